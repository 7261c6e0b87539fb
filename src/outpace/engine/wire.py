"""Messages as bytes: what the parts of an operator tell each other, and stimuli for a recording.

Each is a few blocks behind a header that says how long each of them is. In deliveries and answers
integers are as narrow as they can be, and numbers that can be told from others are not there; rows
of stimuli stay as they came. Nothing is ever unpickled. Who reads a stimulus does not know who
wrote it: bytes that tell none are refused.

Instructions are not written. Their checksum tells whether a stimulus gives the same again: it
depends on values and types alone, not on how a column lies in memory.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.codec.block import block_cells, narrow_rows, read_block, wide_columns
from outpace.engine.codec.table import read_table, write_table
from outpace.engine.event import EVENT_ID, SEQUENCE_BITS, Events, chosen, no_events
from outpace.engine.message import (
    Answer,
    Deliver,
    Emit,
    EventsArrived,
    Instruction,
    SourceEnded,
    Stimulus,
    TimerFired,
    TimeTold,
)
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.times import time_values
from outpace.engine.split.windows import Split, Windows
from outpace.engine.state import reading, require
from outpace.engine.window_match.result import MATCH_NUMBERS, WindowMatches
from outpace.pattern.bound import BoundQuery

_HEADER: Final = struct.Struct("<qq3Q")

#: What an answer says beside its promises: time, open windows, and events delivered.
_KNOWN: Final = struct.Struct("<qqq")

#: Columns that travel beside those of the events.
_PARTITION_COLUMN: Final = "__outpace_partition"
_ORDINAL_COLUMN: Final = "__outpace_ordinal"
_SOURCE_COLUMN: Final = "__outpace_source"
_ARRIVAL_COLUMN: Final = "__outpace_arrival"
_NUMBERS: Final = pa.schema(
    [
        (name, pa.int64())
        for name in (_PARTITION_COLUMN, _ORDINAL_COLUMN, _SOURCE_COLUMN, _ARRIVAL_COLUMN)
    ]
)

_WINDOWS: Final = pa.schema([pa.field(field.name, pa.int64()) for field in fields(Windows)])

#: What a stimulus is, and what else it says, as bits of one number.
_STIMULI: Final = (EventsArrived, TimeTold, SourceEnded, TimerFired)
_KIND_BITS: Final = 3
_SOURCE, _SPANS, _CLOCK = 4, 8, 16

_TEXTS: Final = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
)
_LISTS: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def pack_events(events: Events, columns: tuple[str, ...], *, keyed: bool) -> pa.RecordBatch:
    """Return events as the block that travels, with these columns of theirs.

    Numbers that can be told from others do not travel, nor do times, which a column has.
    """
    packed = {name: one_array(events.rows.column(name)) for name in columns}
    if EVENT_ID.name in packed:
        # Sources and numbers are small apart, and far from each other together.
        ids = packed[EVENT_ID.name].to_numpy()
        packed[EVENT_ID.name] = pa.array(ids & ((1 << SEQUENCE_BITS) - 1))
        packed[_SOURCE_COLUMN] = pa.array(ids >> SEQUENCE_BITS)
    if keyed:
        packed |= {
            _PARTITION_COLUMN: pa.array(events.partition),
            _ORDINAL_COLUMN: pa.array(events.ordinal),
        }
    arrival = events.arrival
    gaps = len(arrival) and int(arrival[-1]) - int(arrival[0]) >= len(arrival)
    if gaps or not packed:
        packed[_ARRIVAL_COLUMN] = pa.array(arrival)
    return narrow_rows(packed, numbered=True)


def unpack_events(
    block: pa.RecordBatch, first: int, ranges: Integers, schema: pa.Schema, bound: BoundQuery
) -> Events:
    """Return the events in ranges of rows of a block that `pack_events` returned.

    Parameters
    ----------
    block
        The block; what it has of others is left where it is.
    first
        The arrival number of its first event.
    ranges
        Pairs of a first row and the one behind the last, rising, one at least.
    schema, bound
        The columns of the events, and the query.
    """
    low, high = int(ranges[0, 0]), int(ranges[-1, 1])
    columns = wide_columns(block.slice(low, high - low), pa.schema([*schema, *_NUMBERS]))
    return chosen(_events(columns, first + low, bound), ranges - low)


def write_delivery(delivery: Deliver, columns: tuple[str, ...], *, keyed: bool) -> bytes:
    """Write a delivery; only these columns of its own events travel, times in theirs."""
    events, split = delivery.own_events, delivery.split
    first, block = delivery.arrived, b""
    if len(events.arrival):
        first = int(events.arrival[0])
        block = block_cells([pack_events(events, columns, keyed=keyed)])[0].as_buffer()
    parts = [block, write_windows(split.opened), write_windows(split.closed)]
    return _joined(delivery.arrived, first, parts)


def read_delivery(data: pa.Buffer, schema: pa.Schema, bound: BoundQuery) -> Deliver:
    """Read what `write_delivery` wrote; `schema` has the columns of the events."""
    arrived, first, (rows, opened, closed) = _parted(data)
    events = no_events(schema)
    if len(rows):
        events = _events(read_block(rows, pa.schema([*schema, *_NUMBERS])), first, bound)
    split = Split(read_windows(opened), read_windows(closed))
    return Deliver(0, events, None, split, arrived)


def write_answer(answer: Answer) -> bytes:
    """Write an answer."""
    matches, known = (
        answer.matches,
        _KNOWN.pack(answer.watermark, answer.open_windows, answer.events),
    )
    if not len(matches):
        return _joined(answer.frontier, answer.horizon, [b"", b"", known])
    parts = [_block(matches.numbers), write_table(matches.table), known]
    return _joined(answer.frontier, answer.horizon, parts)


def read_answer(data: pa.Buffer, schema: pa.Schema) -> Answer:
    """Read what `write_answer` wrote; `schema` has the columns of the result."""
    frontier, horizon, (numbers, table, known) = _parted(data)
    promises = frontier, horizon, *_KNOWN.unpack(known)
    nothing = pa.table({})
    if not len(numbers):
        return Answer(WindowMatches.none(schema), nothing, *promises)
    matches = WindowMatches.of_numbers(read_block(numbers, MATCH_NUMBERS), read_table(table))
    return Answer(matches, nothing, *promises)


def write_stimulus(stimulus: Stimulus) -> bytes:
    """Write a stimulus, with its rows as they came.

    Examples
    --------
    >>> read_stimulus(pa.py_buffer(write_stimulus(TimeTold(7, "east"))))
    TimeTold(watermark=7, source='east')
    """
    flags, watermark = _STIMULI.index(type(stimulus)), 0
    rows: pa.Buffer | bytes = b""
    source = times = b""
    if isinstance(stimulus, TimerFired):
        return _joined(stimulus.at, flags, [rows, source, times])
    if stimulus.source is not None:
        flags, source = flags | _SOURCE, stimulus.source.encode()
    if not isinstance(stimulus, SourceEnded):
        watermark = int(stimulus.watermark)
    if isinstance(stimulus, EventsArrived):
        rows = write_table(stimulus.rows)
        if stimulus.arrival != NO_TIME:
            flags, times = flags | _CLOCK, np.array([stimulus.arrival], "<i8").tobytes()
        if stimulus.spans is not None:
            flags, times = flags | _SPANS, times + stimulus.spans.astype("<i8").tobytes()
    return _joined(watermark, flags, [rows, source, times])


def read_stimulus(data: pa.Buffer) -> Stimulus:
    """Read what `write_stimulus` wrote; raise `StateError` for anything else."""
    with reading():
        watermark, flags, (rows, text, clock) = _parted(data)
        require(0 <= flags < 2 * _CLOCK, "")
        require(len(data) == _HEADER.size + len(rows) + len(text) + len(clock), "")
        kind = flags & _KIND_BITS
        if kind == _STIMULI.index(TimerFired):
            return TimerFired(watermark)
        source = text.to_pybytes().decode() if flags & _SOURCE else None
        if kind == _STIMULI.index(SourceEnded):
            return SourceEnded(source)
        if kind == _STIMULI.index(TimeTold):
            return TimeTold(watermark, source)
        times = np.frombuffer(clock, "<i8").astype(np.int64)
        arrival, spans = NO_TIME, None
        if flags & _CLOCK:
            arrival, times = int(times[0]), times[1:]
        if flags & _SPANS:
            spans = times.reshape(-1, 2)
        return EventsArrived(read_table(rows), source, spans, watermark, arrival)


def instructions_checksum(instructions: Sequence[Instruction]) -> int:
    """Return a number that is the same for the same instructions.

    Examples
    --------
    >>> rows = pa.table({"x": [1, None]})
    >>> same = pa.table({"x": pa.chunked_array([[1], pa.array([None], pa.int64())])})
    >>> nothing = pa.table({})
    >>> from outpace.engine.message import Aside, SetAside
    >>> one, other, none = (
    ...     instructions_checksum([SetAside(Aside.LATE, table)]) for table in (rows, same, nothing)
    ... )
    >>> one == other, one == none
    (True, False)
    """
    checksum = 0
    for instruction in instructions:
        if isinstance(instruction, Emit):
            text = f"emit {instruction.watermark}"
            tables = [instruction.matches.table, instruction.timed_out]
        else:
            text, tables = instruction.kind.value, [instruction.rows]
        checksum = zlib.crc32(text.encode(), checksum)
        for table in tables:
            checksum = _table_checksum(table, checksum)
    return checksum


def _table_checksum(table: pa.Table, checksum: int) -> int:
    checksum = zlib.crc32(str(table.num_rows).encode(), checksum)
    for name in table.column_names if table.num_rows else ():
        column = one_array(table.column(name))
        checksum = zlib.crc32(f"{name} {column.type}".encode(), checksum)
        checksum = _column_checksum(column, checksum)
    return checksum


def _column_checksum(column: pa.Array, checksum: int) -> int:
    """Go on with the values of a column; what lies where a value is NULL is anything."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _column_checksum(column.dictionary_decode(), checksum)
    if isinstance(kind, pa.BaseExtensionType):
        return _column_checksum(column.storage, checksum)
    if any(is_one(kind) for is_one in _TEXTS):
        column = column.cast(pa.large_binary())
    if column.null_count:
        valid = np.packbits(column.is_valid().to_numpy(zero_copy_only=False)).tobytes()
        checksum, column = zlib.crc32(valid, checksum), column.drop_null()
    if any(is_one(kind) for is_one in _LISTS):
        checksum = zlib.crc32(pc.list_value_length(column).to_numpy().tobytes(), checksum)
        return _column_checksum(column.flatten(), checksum)
    if pa.types.is_struct(kind):
        for field in column.flatten():
            checksum = _column_checksum(field, checksum)
        return checksum
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return zlib.crc32(repr(column.to_pylist()).encode(), checksum)
    if pa.types.is_large_binary(column.type):
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, np.int64)[column.offset :][: len(column) + 1]
        checksum = zlib.crc32(np.diff(ends).tobytes(), checksum)
        return zlib.crc32(b"" if data is None else data[ends[0] : ends[-1]], checksum)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_floating(kind):
        # One that is not a number may have any of many forms.
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), column)
    width = column.type.bit_width // 8
    values = column.buffers()[1]
    return zlib.crc32(values.slice(column.offset * width, len(column) * width), checksum)


def _joined(one: int, other: int, parts: Sequence[bytes | pa.Buffer]) -> bytes:
    return b"".join([_HEADER.pack(one, other, *map(len, parts)), *parts])


def _parted(data: pa.Buffer) -> tuple[int, int, list[pa.Buffer]]:
    one, other, *sizes = _HEADER.unpack_from(data)
    ends = (_HEADER.size + np.cumsum([0, *sizes])).tolist()
    whole = pa.py_buffer(data)
    return one, other, [whole.slice(a, n) for a, n in zip(ends[:-1], sizes, strict=True)]


def _block(columns: Mapping[str, pa.Array]) -> pa.Buffer:
    return block_cells([narrow_rows(columns)])[0].as_buffer()


def write_windows(windows: Windows) -> pa.Buffer | bytes:
    """Write windows, if there are any.

    Examples
    --------
    >>> one = np.arange(2)
    >>> windows = Windows(one * 0, one, one, one + 9, one, one + 8, one + 8)
    >>> read_windows(write_windows(windows)).stop.tolist()
    [9, 10]
    """
    if not len(windows):
        return b""
    return _block({name: pa.array(getattr(windows, name)) for name in _WINDOWS.names})


def read_windows(block: pa.Buffer) -> Windows:
    """Read what `write_windows` wrote."""
    if not len(block):
        return Windows.none()
    return Windows(*map(_integers, read_block(block, _WINDOWS).values()))


def _events(columns: dict[str, pa.Array], first: int, bound: BoundQuery) -> Events:
    """Return events that travelled; `first` is the arrival number of the first of them."""
    beside = {
        name: np.asarray(columns[name].to_numpy(), np.int64)
        for name in _NUMBERS.names
        if name in columns
    }
    if _SOURCE_COLUMN in beside:
        ids = (beside[_SOURCE_COLUMN] << SEQUENCE_BITS) + columns[EVENT_ID.name].to_numpy()
        columns[EVENT_ID.name] = pa.array(ids)
    rows = pa.table(columns)
    arrival = beside.get(_ARRIVAL_COLUMN, np.arange(first, first + rows.num_rows, dtype=np.int64))
    return Events(
        rows.drop_columns(list(beside)),
        beside.get(_PARTITION_COLUMN, np.zeros(len(arrival), np.int64)),
        beside.get(_ORDINAL_COLUMN, arrival),
        arrival,
        time_values(bound, columns),
    )


def _integers(column: pa.Array) -> Integers:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
