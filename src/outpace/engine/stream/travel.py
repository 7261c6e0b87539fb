"""What travels between the stages of windows: events to instances, and matches to the merger.

Both are a few blocks behind a header that says how long each of them is. Integers are as narrow as
they can be, and numbers that can be told from others are not there.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.codec.block import block_cells, narrow_rows, read_block
from outpace.engine.codec.table import read_table, write_table
from outpace.engine.event import Events, no_events
from outpace.engine.rows.partition import one_array
from outpace.engine.split.travel import NUMBERS, packed, unpacked
from outpace.engine.split.windows import Split, Windows
from outpace.engine.window_match.result import WindowMatches

_HEADER: Final = struct.Struct("<qq3Q")

_WINDOWS: Final = pa.schema([pa.field(field.name, pa.int64()) for field in fields(Windows)])

_MATCHES: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("rows", "event", "phase", "window", "partition")),
        ("identity", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Parcel:
    """What an instance is to do in a batch.

    Parameters
    ----------
    events
        The events that its windows need; without their times, which are in a column.
    split
        Its windows that open and close.
    arrived
        How many events the whole stream has had.
    """

    events: Events
    split: Split
    arrived: int

    def write(self, columns: tuple[str, ...], *, keyed: bool) -> bytes:
        """Write it; only these columns of the events travel."""
        events, split = self.events, self.split
        first = int(events.arrival[0]) if len(events.arrival) else self.arrived
        rows = _arrays(packed(events, columns, keyed=keyed))
        parts = [_block(rows) if len(events.arrival) else b""]
        parts += [_windows(split.opened), _windows(split.closed)]
        return _joined(self.arrived, first, parts)

    @staticmethod
    def read(data: pa.Buffer, schema: pa.Schema) -> Parcel:
        """Read what `write` wrote; `schema` has the columns of the events."""
        arrived, first, (rows, opened, closed) = _parted(data)
        events = no_events(schema)
        if len(rows):
            columns = read_block(rows, pa.schema([*schema, *NUMBERS]))
            events = unpacked(pa.table(columns), first)
        return Parcel(events, Split(_read_windows(opened), _read_windows(closed)), arrived)


@dataclass(frozen=True)
class Found:
    """What an instance found in a batch.

    Parameters
    ----------
    matches
        What became final.
    frontier, horizon
        No later match has a smaller x, and none starts with an earlier event.
    """

    matches: WindowMatches
    frontier: int
    horizon: int

    def write(self) -> bytes:
        """Write it; what tells matches apart only where it is known."""
        matches = self.matches
        if not len(matches):
            return _joined(self.frontier, self.horizon, [b"", b"", b""])
        numbers: dict[str, pa.Array] = {
            "rows": pa.array(np.diff(matches.offsets)),
            **{name: pa.array(getattr(matches, name)) for name in _MATCHES.names[1:5]},
        }
        if not matches.identity.null_count:
            numbers["identity"] = matches.identity
        return _joined(
            self.frontier, self.horizon, [_block(numbers), write_table(matches.table), b""]
        )

    @staticmethod
    def read(data: pa.Buffer, schema: pa.Schema) -> Found:
        """Read what `write` wrote; `schema` has the columns of the result."""
        frontier, horizon, (numbers, table, _) = _parted(data)
        if not len(numbers):
            return Found(WindowMatches.none(schema), frontier, horizon)
        columns = read_block(numbers, _MATCHES)
        identity = columns.pop("identity", None)
        rows, event, phase, window, partition = map(_integers, columns.values())
        offsets = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
        if identity is None:
            identity = pa.nulls(len(rows), pa.binary())
        matches = WindowMatches(
            read_table(table), offsets, event, phase, window, partition, identity
        )
        return Found(matches, frontier, horizon)


def _joined(one: int, other: int, parts: Sequence[bytes | pa.Buffer]) -> bytes:
    return b"".join([_HEADER.pack(one, other, *map(len, parts)), *parts])


def _parted(data: pa.Buffer) -> tuple[int, int, list[pa.Buffer]]:
    one, other, *sizes = _HEADER.unpack_from(data)
    ends = (_HEADER.size + np.cumsum([0, *sizes])).tolist()
    whole = pa.py_buffer(data)
    return one, other, [whole.slice(a, n) for a, n in zip(ends[:-1], sizes, strict=True)]


def _block(columns: Mapping[str, pa.Array]) -> pa.Buffer:
    return block_cells([narrow_rows(columns)])[0].as_buffer()


def _windows(windows: Windows) -> pa.Buffer | bytes:
    if not len(windows):
        return b""
    return _block({name: pa.array(getattr(windows, name)) for name in _WINDOWS.names})


def _read_windows(block: pa.Buffer) -> Windows:
    if not len(block):
        return Windows.none()
    return Windows(*map(_integers, read_block(block, _WINDOWS).values()))


def _arrays(rows: pa.Table) -> dict[str, pa.Array]:
    return {name: one_array(rows.column(name)) for name in rows.column_names}


def _integers(column: pa.Array) -> Integers:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
