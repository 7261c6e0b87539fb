"""Messages as bytes: deliveries and answers on their way between the parts of an operator.

Both are a few blocks behind a header that says how long each of them is. Integers are as narrow as
they can be, and numbers that can be told from others are not there.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.codec.block import block_cells, narrow_rows, read_block
from outpace.engine.codec.table import read_table, write_table
from outpace.engine.event import no_events
from outpace.engine.message import Answer, Deliver
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.times import time_values
from outpace.engine.split.travel import NUMBERS, packed, unpacked
from outpace.engine.split.windows import Split, Windows
from outpace.engine.window_match.result import WindowMatches
from outpace.pattern.bound import BoundQuery

_HEADER: Final = struct.Struct("<qq3Q")

_WINDOWS: Final = pa.schema([pa.field(field.name, pa.int64()) for field in fields(Windows)])

_MATCHES: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("rows", "event", "phase", "window", "partition")),
        ("identity", pa.binary()),
    ]
)


def write_delivery(delivery: Deliver, columns: tuple[str, ...], *, keyed: bool) -> bytes:
    """Write a delivery; only these columns of its own events travel, times in theirs."""
    events, split = replace(delivery.own_events, times=np.zeros(0, np.int64)), delivery.split
    first = int(events.arrival[0]) if len(events.arrival) else delivery.arrived
    rows = _arrays(packed(events, columns, keyed=keyed))
    parts = [_block(rows) if len(events.arrival) else b""]
    parts += [_windows(split.opened), _windows(split.closed)]
    return _joined(delivery.arrived, first, parts)


def read_delivery(data: pa.Buffer, schema: pa.Schema, bound: BoundQuery) -> Deliver:
    """Read what `write_delivery` wrote; `schema` has the columns of the events."""
    arrived, first, (rows, opened, closed) = _parted(data)
    events = no_events(schema)
    if len(rows):
        columns = read_block(rows, pa.schema([*schema, *NUMBERS]))
        events = unpacked(pa.table(columns), first)
        known = {name: events.rows.column(name) for name in events.rows.column_names}
        events = replace(events, times=time_values(bound, known))
    split = Split(_read_windows(opened), _read_windows(closed))
    return Deliver(0, events, None, split, arrived)


def write_answer(answer: Answer) -> bytes:
    """Write an answer; what tells matches apart only where it is known."""
    matches = answer.matches
    if not len(matches):
        return _joined(answer.frontier, answer.horizon, [b"", b"", b""])
    numbers: dict[str, pa.Array] = {
        "rows": pa.array(np.diff(matches.offsets)),
        **{name: pa.array(getattr(matches, name)) for name in _MATCHES.names[1:5]},
    }
    if not matches.identity.null_count:
        numbers["identity"] = matches.identity
    parts = [_block(numbers), write_table(matches.table), b""]
    return _joined(answer.frontier, answer.horizon, parts)


def read_answer(data: pa.Buffer, schema: pa.Schema) -> Answer:
    """Read what `write_answer` wrote; `schema` has the columns of the result."""
    frontier, horizon, (numbers, table, _) = _parted(data)
    nothing = pa.table({})
    if not len(numbers):
        return Answer(WindowMatches.none(schema), nothing, frontier, horizon)
    columns = read_block(numbers, _MATCHES)
    identity = columns.pop("identity", None)
    rows, event, phase, window, partition = map(_integers, columns.values())
    offsets = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
    if identity is None:
        identity = pa.nulls(len(rows), pa.binary())
    matches = WindowMatches(read_table(table), offsets, event, phase, window, partition, identity)
    return Answer(matches, nothing, frontier, horizon)


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
