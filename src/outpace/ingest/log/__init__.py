"""The event log: an append-only file format for streams of events, with offsets to go back to.

- `frame`: a block of events with its header, and the index that repeats the headers;
- `folder`: what a log's folder says of it;
- `segment`: reads one segment, whatever its state;
- `rows`: checks events and cuts them into frames;
- `recover`: what a writer does first;
- `segment_writer`, `writer`: append;
- `reader`: reads ranges of offsets;
- `blocks`: ranges of offsets as blocks of a good size.
"""

from __future__ import annotations

import os

import pyarrow as pa

from outpace.ingest.log.folder import SEGMENT_BYTES, create_folder
from outpace.ingest.log.reader import Behind, Log, OnDamage
from outpace.ingest.log.recover import Recovered
from outpace.ingest.log.segment import Damage
from outpace.ingest.log.writer import Writer

__all__ = ["Behind", "Damage", "Log", "Recovered", "Writer", "create", "open", "read"]


def create(
    path: str | os.PathLike[str],
    schema: pa.Schema,
    *,
    time: str = "ts",
    segment_bytes: int = SEGMENT_BYTES,
) -> Log:
    """Make a new event log.

    Parameters
    ----------
    path
        A folder that is new or empty.
    schema
        The columns of the events; `source` and `seq` are columns like others.
    time
        The column with the time of each event: integers, dates or timestamps.
    segment_bytes
        About the size of the files that events are written to.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = create(folder.name, pa.schema({"ts": pa.timestamp("us"), "price": pa.float64()}))
    >>> log.stop
    0
    >>> folder.cleanup()
    """
    return Log(create_folder(path, schema, time, segment_bytes))


def open(path: str | os.PathLike[str]) -> Log:
    """Open an event log for reading, or for writing with `Log.writer`.

    Parameters
    ----------
    path
        The folder of the log.

    Examples
    --------
    >>> open("nothing/here")
    Traceback (most recent call last):
    ...
    outpace.errors.DataError: [data] '...nothing/here' is no event log
      there is no log.json
      hint: op.log.create(path, schema) makes one
    """
    return Log.open(path)


def read(
    path: str | os.PathLike[str],
    start: int | None = None,
    stop: int | None = None,
    *,
    on_damage: OnDamage | str = OnDamage.FAIL,
) -> pa.Table:
    """Return the events of a log as a table, all of them by default.

    Parameters
    ----------
    path
        The folder of the log.
    start, stop, on_damage
        As for `Log.batches`.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with create(folder.name, pa.schema({"ts": pa.int64()})).writer() as writer:
    ...     offsets = writer.append(pa.table({"ts": [5, 6]}))
    >>> read(folder.name)["ts"].to_pylist()
    [5, 6]
    >>> folder.cleanup()
    """
    return Log.open(path).read(start, stop, on_damage=on_damage)
