"""The input files of `outpace bench --host spark`: written once for each size, then used again.

A file has row groups of 2**20 rows, with PyArrow's own encoding and compression. It is made piece
by piece, one row group in memory at a time, and gets its name only when it is whole.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from outpace.errors import DataError
from outpace.ingest.workloads import event_pieces, events

ROW_GROUP_ROWS = 1 << 20


def events_file(folder: Path, size: int) -> Path:
    """Return the file of the first `size` events, and write it where it is missing.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> path = events_file(folder, 5)
    >>> pq.read_table(path).equals(events(5)), path == events_file(folder, 5)
    (True, True)
    """
    path = folder / f"events-{size}.parquet"
    if path.exists():
        _check(path, size)
        return path
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with pq.ParquetWriter(unfinished, events(0).schema) as writer:
            for piece in event_pieces(size, ROW_GROUP_ROWS):
                writer.write_table(piece, row_group_size=ROW_GROUP_ROWS)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _check(path: Path, size: int) -> None:
    try:
        found = pq.read_metadata(path).num_rows
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(
            f"'{path}' is not a Parquet file", detail=str(error), hint="remove it, and try again"
        ) from error
    if found != size:
        raise DataError(
            f"'{path}' has {found} rows instead of {size}", hint="remove it, and try again"
        )
