"""Events that memory has no room for: in the segments of an event log that goes with the process.

They are known by their places among those that are here. Segments are deleted once nobody needs any
of their events. The folder is a temporary one; what a process that was killed has left is removed
by the next that needs one.

Memory: eight bytes an event.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.errors import DataError
from outpace.ingest.log.folder import create_folder
from outpace.ingest.log.reader import Log

_PREFIX: Final = "outpace-retained-"
#: A folder that is younger may have no lock yet, though somebody has it.
_YOUNG_S: Final = 60.0


class SpilledEvents:
    """Events on disk, in their order.

    Parameters
    ----------
    schema
        Their columns.
    segment_bytes
        About the size of a file.

    Examples
    --------
    >>> spilled = SpilledEvents(pa.schema({"x": pa.int64()}), 1 << 20)
    >>> spilled.append(pa.table({"x": [5, 6, 7]}))
    >>> spilled.keep(np.array([True, False, True]))
    >>> len(spilled), spilled.read(0, 2)["x"].to_pylist()
    (2, [5, 7])
    """

    def __init__(self, schema: pa.Schema, segment_bytes: int) -> None:
        number = "number"
        while number in schema.names:
            number += "_"
        with _writing():
            _remove_left()
            path = tempfile.mkdtemp(prefix=_PREFIX)
            # It is called when a process ends that `multiprocessing` has started, too.
            Finalize(self, shutil.rmtree, (path,), {"ignore_errors": True}, exitpriority=1)
            kept = schema.insert(0, pa.field(number, pa.int64()))
            self._log = Log(create_folder(path, kept, number, segment_bytes))
            self._writer = self._log.writer(sync="never")
        self._number = number
        #: Where the events are in the log.
        self._offsets = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def nbytes(self) -> int:
        """The bytes of the files."""
        return sum(file.stat().st_size for file in self._log.folder.path.glob("*.events"))

    def append(self, rows: pa.Table) -> None:
        """Take the next events."""
        first = self._writer.stop
        offsets = np.arange(first, first + rows.num_rows)
        with _writing():
            # A log has a column with times, which events need not have.
            self._writer.append(rows.add_column(0, self._number, pa.array(offsets)))
        self._offsets = np.concatenate([self._offsets, offsets])

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Forget all other events."""
        self._offsets = self._offsets[kept]
        first = int(self._offsets[0]) if len(self._offsets) else self._writer.stop
        self._log.trim(first)

    def read(self, low: int, high: int) -> pa.Table:
        """Return events by their places among those that are here."""
        offsets = self._offsets[low:high]
        if not len(offsets):
            return self._log.schema.empty_table().drop_columns([self._number])
        self._log.refresh()
        first = int(offsets[0])
        rows = self._log.read(first, int(offsets[-1]) + 1)
        return rows.take(pa.array(offsets - first)).drop_columns([self._number])


def _remove_left() -> None:
    """Remove the folders of processes that were killed: nobody has their locks."""
    for place in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = place.stat()
            if time.time() - found.st_mtime < _YOUNG_S or found.st_uid != os.geteuid():
                continue
            handle = os.open(place / "writer.lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
            finally:
                os.close(handle)


@contextmanager
def _writing() -> Iterator[None]:
    """Say where it was that something could not be written."""
    try:
        yield
    except (OSError, DataError) as error:
        reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else None
        raise DataError(
            "events that memory has no room for cannot be put into files"
            + (f": {reason}" if reason else ""),
            detail=None if reason else str(error),
            hint=f"make room in '{tempfile.gettempdir()}', or name another folder: TMPDIR",
        ) from error
