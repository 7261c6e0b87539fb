"""The folder of a graph: the newest savepoints, from which a run goes on that was lost as a whole.

Sources give the same events every time, so they are read again, and what savepoints do not need is
dropped. The file is replaced as a whole, and on the disk before the next one is written, so that a
crash of the machine leaves one that can be read. One run at a time has the folder.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from outpace.engine.state import State
from outpace.errors import DataError, StateError
from outpace.files.small_file import (
    open_regular,
    read_regular,
    replace_file,
    sync_folder,
)
from outpace.hosts.graph.backup import Backup
from outpace.hosts.graph.graph import Graph
from outpace.hosts.graph.message import read_backups, write_backups
from outpace.pattern.argument import a_path

_FILE: Final = "savepoints"
_LOCK: Final = "run.lock"


class GraphFolder:
    """What is known of the runs of a graph.

    Parameters
    ----------
    path
        The folder, new, or that of an earlier run of the graph.
    graph
        The graph.
    """

    def __init__(self, path: str | os.PathLike[str], graph: Graph) -> None:
        self._path = Path(a_path(path, "the folder of a graph", error=DataError))
        with self._using():
            self._path.mkdir(parents=True, exist_ok=True)
            sync_folder(self._path.absolute().parent)
        self._identity = graph.identity()
        self._lock = open_regular(self._path / _LOCK, os.O_RDWR | os.O_CREAT)
        #: The backups that an earlier run left, by operator, and whether there was one.
        self.backups: dict[str, Backup] = {}
        self.is_new = not (self._path / _FILE).exists()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self.is_new:
                self._write({})
            else:
                self._read()
        except BlockingIOError:
            self.close()
            raise DataError(
                f"another run has the folder '{self._path}'", hint="wait for its end, or end it"
            ) from None
        except BaseException:
            self.close()
            raise

    def save(self, backups: Mapping[str, Backup]) -> None:
        """Replace the backups, where there are newer ones."""
        if any(self.backups.get(name) is not one for name, one in backups.items()):
            self.backups = dict(backups)
            self._write(self.backups)

    def close(self) -> None:
        """Let others run the graph."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _write(self, backups: Mapping[str, Backup]) -> None:
        state = State({"graph": self._identity}, [write_backups(backups.values())])
        with self._using():
            replace_file(self._path / _FILE, state.encode(), durable=True)

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Say where it was that something could not be read or written."""
        try:
            yield
        except StateError as error:
            error.where = str(self._path / _FILE)
            raise
        except OSError as error:
            raise DataError(
                f"cannot keep savepoints in '{self._path}': {(error.strerror or '').lower()}",
                hint="make room there, or name another folder; what was saved before stays",
            ) from error

    def _read(self) -> None:
        with self._using():
            state = State.decode(read_regular(self._path / _FILE))
            if state.numbers.get("graph") != self._identity:
                raise StateError(
                    f"the folder '{self._path}' is that of another graph",
                    hint="go on with the graph that it was made by, or name a new folder",
                )
            self.backups = {one.operator: one for one in read_backups(state)}
