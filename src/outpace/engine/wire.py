"""Messages as bytes: those between the parts of an operator, and stimuli for a recording.

Each is a header with its numbers and a few parts, whose lengths the header says. All fields come
back. In deliveries and answers integers are as narrow as they can be, and numbers that can be told
from others do not travel; rows of stimuli stay as they came. Nothing is ever unpickled. The reader
of a stimulus does not know its writer: bytes that tell none are refused.

A message is no saved state (`outpace.engine.state`), which has names, a version and a checksum: it
is read by the release that wrote it, thousands of times a second.

The events of a delivery are a block in it, or lie in a block elsewhere that several deliveries
share, as in memory that processes share.

Instructions are not written. Their checksum tells whether a stimulus gives the same again: it
depends on values and types alone, not on how a column lies in memory.
"""

from __future__ import annotations

import bisect
import itertools
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Integers, pooled, rising
from outpace.engine.codec.block import block_cells, narrow_rows, read_block, wide_columns
from outpace.engine.codec.table import read_table, write_table
from outpace.engine.event import EVENT_ID, SEQUENCE_BITS, Events, chosen, no_events
from outpace.engine.match.identity import MatchIds
from outpace.engine.message import (
    NO_SPLIT,
    Answer,
    ClockExchange,
    Deliver,
    Emit,
    EventsArrived,
    HostLoad,
    Instruction,
    MarkSet,
    Move,
    Routed,
    Save,
    SetAside,
    SourceEnded,
    Stimulus,
    TimerFired,
    WatermarkArrived,
    WentBack,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.times import time_values
from outpace.engine.speculate.recall import SentRows
from outpace.engine.speculate.standings import Standing
from outpace.engine.split.windows import Linear, LinearWindows, Split, Windows
from outpace.engine.state import reading, require
from outpace.engine.window_match.result import WindowMatches
from outpace.pattern.bound import BoundQuery

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

_WINDOWS: Final = tuple(field.name for field in fields(Windows))

#: How many values columns have; and a column: how it is written, and up to three numbers.
_COUNT: Final = struct.Struct("<Q")
_COLUMN: Final = struct.Struct("<Bqqq")
#: Values as they are, or their distances from the least one; else they follow from numbers.
_LISTED: Final = tuple(map(np.dtype, ("<u1", "<u2", "<u4", "<i8")))
_FARTHEST: Final = tuple(int(np.iinfo(kind).max) for kind in _LISTED[:-1])
_RISING, _LINEAR, _BOUNDED = range(len(_LISTED), len(_LISTED) + 3)

#: What a stimulus is, and what else it says, as bits of one number.
_STIMULI: Final = (EventsArrived, WatermarkArrived, SourceEnded, TimerFired)
_KIND_BITS: Final = 3
_SOURCE, _SPANS, _CLOCK, _EXCHANGE, _LOAD, _WEIGHTS = 4, 8, 16, 32, 64, 128

_TEXTS: Final = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
)
_LISTS: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


class _Layout:
    """A message as bytes: its numbers, how long each of its parts is, the parts."""

    def __init__(self, numbers: int, parts: int) -> None:
        self._numbers = numbers
        self._header = struct.Struct(f"<{numbers}q{parts}Q")

    def join(self, numbers: Sequence[int], parts: Sequence[bytes | pa.Buffer]) -> bytes:
        """Write a message; parts with alignment stand first, as the header keeps it."""
        return b"".join([self._header.pack(*numbers, *map(len, parts)), *parts])

    def part(self, data: pa.Buffer) -> tuple[tuple[int, ...], list[pa.Buffer]]:
        """Return the numbers and the parts of a message."""
        known = self._header.unpack_from(data)
        sizes = known[self._numbers :]
        require(self._header.size + sum(sizes) == len(data), "")
        starts = itertools.accumulate(sizes, initial=self._header.size)
        whole = pa.py_buffer(data)
        parts = [whole.slice(start, size) for start, size in zip(starts, sizes, strict=False)]
        return known[: self._numbers], parts


#: Said with whether events end: some of the rows do not travel, as the instance has them.
_RECALLS: Final = 2

_DELIVERY: Final = _Layout(numbers=5, parts=6)
_ANSWER: Final = _Layout(numbers=6, parts=6)
_STIMULUS: Final = _Layout(numbers=2, parts=3)
#: What a front says is a line of so many numbers: what it is, and what it tells.
_MOVE_NUMBERS: Final = 8


def pack_events(events: Events, columns: Sequence[str]) -> pa.RecordBatch:
    """Return events as the block that travels, with these columns of theirs.

    Numbers that can be told from others do not travel, nor do times, which a column has.
    """
    packed = {name: one_array(events.rows.column(name)) for name in columns}
    if EVENT_ID.name in packed:
        # Sources and numbers are small apart, and far from each other together.
        ids = packed[EVENT_ID.name].to_numpy()
        packed[EVENT_ID.name] = pa.array(ids & ((1 << SEQUENCE_BITS) - 1))
        packed[_SOURCE_COLUMN] = pa.array(ids >> SEQUENCE_BITS)
    arrival, ordinal = events.arrival, events.ordinal
    if events.partition.any():
        packed[_PARTITION_COLUMN] = pa.array(events.partition)
    if ordinal is not arrival and not np.array_equal(ordinal, arrival):
        packed[_ORDINAL_COLUMN] = pa.array(ordinal)
    gaps = len(arrival) and int(arrival[-1]) - int(arrival[0]) >= len(arrival)
    if gaps or not packed:
        packed[_ARRIVAL_COLUMN] = pa.array(arrival)
    return narrow_rows(packed, numbered=True)


def write_delivery(
    delivery: Deliver, spec: OperatorSpec, *, apart: bool = False, sent: SentRows | None = None
) -> bytes:
    """Write a delivery: its own events, those columns of them that instances need.

    Without windows it is all events, as those of others tell the time.

    Parameters
    ----------
    delivery, spec
        The delivery, and the operator.
    apart
        Whether the events lie in a block elsewhere: then it is said which of them are its own.
    sent
        What the instance was sent: of rows that it has only the ids travel.
    """
    whole = apart or spec.windows is None
    events, split = delivery.events if whole else delivery.own_events, delivery.split
    first = int(events.arrival[0]) if len(events.arrival) else delivery.arrived
    block, ranges = b"", b""
    if whole:
        known = [[0, delivery.size]] if delivery.ranges is None else delivery.ranges
        ranges = np.array(known, "<i8").tobytes()
    fresh = b""
    if not apart and len(events.arrival):
        columns = spec.kept.names
        if sent is not None:
            unknown = ~sent.known(event_ids(events))
            rows = events.rows.select(columns).filter(pa.array(unknown))
            fresh, columns = write_table(rows) if rows.num_rows else b"", [EVENT_ID.name]
        block = block_cells([pack_events(events, columns)])[0].as_buffer()
    ended = delivery.ended + (0 if sent is None else _RECALLS)
    standing = b""
    if delivery.standing is not None:
        marks = [-1 if one is None else one for one in astuple(delivery.standing)]
        standing = np.array(marks, "<i8").tobytes()
    return _DELIVERY.join(
        (delivery.instance, delivery.arrived, delivery.watermark, ended, first),
        [block, ranges, write_windows(split.opened), write_windows(split.closed), standing, fresh],
    )


def write_moves(moves: Iterable[Move | Instruction]) -> bytes:
    """Write what a front says to the back; of deliveries, to whom."""
    lines: list[tuple[int, ...]] = []
    for move in moves:
        match move:
            case MarkSet():
                lines.append((0, move.mark))
            case WentBack():
                lines.append((1, move.mark))
            case Deliver():
                lines.append((2, move.instance))
            case Routed():
                lines.append((3, *map(int, astuple(move))))
    filled = [(*line, *[0] * (_MOVE_NUMBERS - len(line))) for line in lines]
    return np.array(filled, "<i8").tobytes()


def read_moves(
    data: pa.Buffer, spec: OperatorSpec
) -> Iterator[MarkSet | WentBack | Deliver | Routed]:
    """Read what `write_moves` wrote."""
    nothing = no_events(spec.events)
    for what, *told in np.frombuffer(data, "<i8").reshape(-1, _MOVE_NUMBERS).tolist():
        match what:
            case 0:
                yield MarkSet(told[0])
            case 1:
                yield WentBack(told[0])
            case 2:
                yield Deliver(told[0], nothing, None, NO_SPLIT, 0)
            case _:
                arrived, watermark, ended, certain, again, oldest, now = told
                yield Routed(arrived, watermark, bool(ended), certain, bool(again), oldest, now)


def event_ids(events: Events) -> Integers:
    """Return the ids of events that have any."""
    return np.asarray(one_array(events.rows.column(EVENT_ID.name)).to_numpy(), np.int64)


def read_delivery(
    data: pa.Buffer,
    spec: OperatorSpec,
    block: pa.RecordBatch | None = None,
    sent: SentRows | None = None,
) -> Deliver:
    """Read what `write_delivery` wrote.

    Where events lie apart, `block` has them, if any; `sent` has the rows that did not travel. It
    follows where the instance is to stand, and keeps what comes.
    """
    (instance, arrived, watermark, ended, first), parts = _DELIVERY.part(data)
    rows, ranges, opened, closed, marks, fresh = parts
    standing = _read_standing(marks)
    if sent is not None and standing is not None:
        sent.stand(standing)
    columns = pa.schema([*spec.kept, *_NUMBERS])
    own, given = np.frombuffer(ranges, "<i8").reshape(-1, 2), None
    if spec.windows is None and (block is not None or len(rows)):
        wide = read_block(rows, columns) if block is None else wide_columns(block, columns)
        events, given = _events(wide, first, spec.bound), own
    elif block is not None:
        # What it has of others is left where it is.
        low, high = int(own[0, 0]), int(own[-1, 1])
        wide = wide_columns(block.slice(low, high - low), columns)
        events = chosen(_events(wide, first + low, spec.bound), own - low)
    elif ended & _RECALLS and len(rows):
        assert sent is not None
        beside = _with_ids(read_block(rows, pa.schema([EVENT_ID, *_NUMBERS])))
        new = read_table(fresh) if len(fresh) else spec.kept.empty_table()
        table = sent.rows(beside.pop(EVENT_ID.name).to_numpy(), new)
        wide = {name: one_array(table.column(name)) for name in table.column_names}
        events = _events({**wide, **beside}, first, spec.bound)
    elif len(rows):
        events = _events(read_block(rows, columns), first, spec.bound)
    else:
        events = no_events(spec.kept)
    if sent is not None and len(events.arrival):
        sent.add(event_ids(events), events.rows)
    split = Split(read_windows(opened), read_windows(closed))
    return Deliver(instance, events, given, split, arrived, watermark, bool(ended & 1), standing)


def _read_standing(data: pa.Buffer) -> Standing | None:
    if not len(data):
        return None
    bound, back_to, mark, oldest = np.frombuffer(data, "<i8").tolist()
    marks = {"back_to": back_to, "mark": mark}
    known = {name: one for name, one in marks.items() if one >= 0}
    return Standing(bound, **known, oldest=oldest)


def write_answer(answer: Answer) -> bytes:
    """Write an answer."""
    matches, table, timed_out, ids, numbers = answer.matches, b"", b"", b"", b""
    assert matches.said is None, "the back says what becomes of matches"
    if len(matches):
        table, ids = write_table(matches.table), matches.ids.words.astype("<u8").tobytes()
        keys = matches.event, matches.phase, matches.window, matches.partition, matches.turns
        columns = [np.diff(matches.offsets), *keys, matches.ids.start]
        columns += [] if matches.found is None else [matches.found]
        numbers = _write_columns(len(matches), columns)
    if answer.timed_out.column_names:
        timed_out = write_table(answer.timed_out)
    known = answer.watermark, answer.open_windows, answer.events, answer.checkpoint_bytes
    idle = [line.astype("<i8").tobytes() for line in (answer.idle, answer.event_counts)]
    return _ANSWER.join(
        (answer.frontier, answer.horizon, *known), [table, timed_out, ids, *idle, numbers]
    )


def read_answer(data: pa.Buffer, output: pa.Schema) -> Answer:
    """Read what `write_answer` wrote; `output` has the columns of the result."""
    known, (table, timed_out, words, *idle, numbers) = _ANSWER.part(data)
    frontier, horizon, watermark, open_windows, events, copied = known
    matches = WindowMatches.none(output)
    if len(numbers):
        count, columns = _read_columns(numbers)
        sizes, event, phase, window, partition, turn, start, *found = (
            column.of(rising(0, count)) if isinstance(column, Linear) else column
            for column in columns
        )
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        ids = MatchIds(start, np.frombuffer(words, "<u8").reshape(-1, 2))
        rows = read_table(table)
        order = event, phase, window, partition
        matches = WindowMatches(rows, offsets, *order, lambda: ids, turn=turn)
        matches = matches.found_by(found[0]) if found else matches
    forgotten, counts = (np.frombuffer(line, "<i8").astype(np.int64) for line in idle)
    return Answer(
        matches,
        read_table(timed_out) if len(timed_out) else pa.table({}),
        frontier,
        horizon,
        watermark,
        open_windows,
        events,
        forgotten,
        counts,
        copied,
    )


def write_stimulus(stimulus: Stimulus) -> bytes:
    """Write a stimulus, with its rows as they came.

    Examples
    --------
    >>> read_stimulus(pa.py_buffer(write_stimulus(WatermarkArrived(7, "east"))))
    WatermarkArrived(watermark=7, source='east', arrival=-9223372036854775808)
    """
    rows: pa.Buffer | bytes = b""
    source = times = b""
    if isinstance(stimulus, ClockExchange):
        four = [stimulus.asked, stimulus.received, stimulus.answered, stimulus.heard]
        times = np.array(four, "<i8").tobytes()
        return _STIMULUS.join((0, _EXCHANGE), [rows, stimulus.source.encode(), times])
    flags, watermark = _STIMULI.index(type(stimulus)), 0
    if isinstance(stimulus, TimerFired):
        return _STIMULUS.join((stimulus.at, flags), [rows, source, times])
    if stimulus.source is not None:
        flags, source = flags | _SOURCE, stimulus.source.encode()
    if not isinstance(stimulus, SourceEnded):
        watermark = int(stimulus.watermark)
        if stimulus.arrival != NO_TIME:
            flags, times = flags | _CLOCK, np.array([stimulus.arrival], "<i8").tobytes()
    if isinstance(stimulus, EventsArrived):
        rows = write_table(stimulus.rows)
        if (load := stimulus.load) is not None:
            numbers = np.array([load.busy, load.worked], "<f8")
            flags, times = flags | _LOAD, times + numbers.tobytes()
        if stimulus.spans is not None:
            flags, times = flags | _SPANS, times + stimulus.spans.astype("<i8").tobytes()
        if stimulus.weights is not None:
            flags, times = flags | _WEIGHTS, times + stimulus.weights.astype("<f8").tobytes()
    return _STIMULUS.join((watermark, flags), [rows, source, times])


def read_stimulus(data: pa.Buffer) -> Stimulus:
    """Read what `write_stimulus` wrote; raise `StateError` for anything else."""
    with reading():
        (watermark, flags), (rows, text, clock) = _STIMULUS.part(data)
        require(flags == _EXCHANGE or (0 <= flags < 2 * _WEIGHTS and not flags & _EXCHANGE), "")
        if flags == _EXCHANGE:
            asked, received, answered, heard = np.frombuffer(clock, "<i8").tolist()
            return ClockExchange(text.to_pybytes().decode(), asked, received, answered, heard)
        kind = flags & _KIND_BITS
        if kind == _STIMULI.index(TimerFired):
            return TimerFired(watermark)
        source = text.to_pybytes().decode() if flags & _SOURCE else None
        if kind == _STIMULI.index(SourceEnded):
            return SourceEnded(source)
        times = np.frombuffer(clock, "<i8").astype(np.int64)
        arrival, spans, weights, load = NO_TIME, None, None, None
        if flags & _CLOCK:
            arrival, times = int(times[0]), times[1:]
        if kind == _STIMULI.index(WatermarkArrived):
            return WatermarkArrived(watermark, source, arrival)
        if flags & _LOAD:
            load, times = HostLoad(*times[:2].view(np.float64).tolist()), times[2:]
        if flags & _WEIGHTS:
            require(bool(flags & _SPANS) and len(times) % 3 == 0, "weights without times")
            times, weighed = np.split(times, [2 * len(times) // 3])
            weights = weighed.view(np.float64)
        if flags & _SPANS:
            spans = times.reshape(-1, 2)
        return EventsArrived(read_table(rows), source, spans, watermark, arrival, load, weights)


def instructions_checksum(instructions: Sequence[Instruction]) -> int:
    """Return a number that is the same for the same instructions.

    Examples
    --------
    >>> rows = pa.table({"x": [1, None]})
    >>> same = pa.table({"x": pa.chunked_array([[1], pa.array([None], pa.int64())])})
    >>> nothing = pa.table({})
    >>> from outpace.engine.message import Aside
    >>> one, other, none = (
    ...     instructions_checksum([SetAside("q", Aside.LATE, table)])
    ...     for table in (rows, same, nothing)
    ... )
    >>> one == other, one == none
    (True, False)
    """
    checksum = 0
    for instruction in instructions:
        tables = []
        match instruction:
            case Emit():
                text = f"emit {instruction.watermark}"
                tables = [instruction.matches.table, instruction.timed_out]
            case SetAside():
                text, tables = instruction.kind.value, [instruction.rows]
            case Save():
                text = f"save {zlib.crc32(instruction.savepoint.encode())}"
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


def write_windows(windows: Windows) -> bytes:
    """Write windows, if there are any; what follows from their numbers is told so.

    Examples
    --------
    >>> one = np.arange(2)
    >>> windows = Windows(one * 0, one, one, one + 9, one, one + 8, one + 8)
    >>> read_windows(pa.py_buffer(write_windows(windows))).stop.tolist()
    [9, 10]
    """
    return _write_columns(len(windows), windows.given) if len(windows) else b""


def read_windows(data: pa.Buffer) -> Windows:
    """Read what `write_windows` wrote."""
    if not len(data):
        return Windows.none()
    count, columns = _read_columns(data)
    known = dict(zip(_WINDOWS, columns, strict=True))
    number = known.pop("number")
    if isinstance(number, Linear):
        number = number.of(rising(0, count))
    return LinearWindows(number, **known)


def _write_columns(count: int, columns: Iterable[Integers | Linear | range]) -> bytes:
    """Write columns of so many integers, one at least."""
    return b"".join([_COUNT.pack(count), *itertools.chain(*map(_column_bytes, columns))])


def _column_bytes(column: Integers | Linear | range) -> list[bytes | memoryview]:
    if isinstance(column, range):
        return [_COLUMN.pack(_RISING, column.start, column.step, 0)]
    if isinstance(column, Linear):
        kind = _LINEAR if column.least is None else _BOUNDED
        return [_COLUMN.pack(kind, column.base, column.step, column.least or 0)]
    least, most = int(column.min()), int(column.max())
    if least == most:
        return [_COLUMN.pack(_LINEAR, least, 0, 0)]
    kind = bisect.bisect_left(_FARTHEST, most - least)
    least = least if kind < len(_FARTHEST) else 0
    near = pooled(len(column), _LISTED[kind])
    np.subtract(column, least, out=near, casting="unsafe")
    return [_COLUMN.pack(kind, least, 0, 0), near.data]


def _read_columns(data: pa.Buffer) -> tuple[int, list[Any]]:
    """Return how many values columns have, and each column."""
    (count,) = _COUNT.unpack_from(data)
    columns: list[Integers | Linear | range] = []
    place = _COUNT.size
    while place < len(data):
        kind, one, two, three = _COLUMN.unpack_from(data, place)
        place += _COLUMN.size
        if kind == _RISING:
            columns.append(range(one, one + two * count, two))
        elif kind in (_LINEAR, _BOUNDED):
            columns.append(Linear(one, two, three if kind == _BOUNDED else None))
        else:
            near, values = np.frombuffer(data, _LISTED[kind], count, place), pooled(count, np.int64)
            columns.append(np.add(near, one, out=values, dtype=np.int64))
            place += near.nbytes
    return count, columns


def _events(columns: dict[str, pa.Array], first: int, bound: BoundQuery) -> Events:
    """Return events that travelled; `first` is the arrival number of the first of them."""
    columns = _with_ids(columns)
    beside = {
        name: np.asarray(columns[name].to_numpy(), np.int64)
        for name in _NUMBERS.names
        if name in columns
    }
    rows = pa.table(columns)
    arrival = beside.get(_ARRIVAL_COLUMN, np.arange(first, first + rows.num_rows, dtype=np.int64))
    return Events(
        rows.drop_columns(list(beside)),
        beside.get(_PARTITION_COLUMN, np.zeros(len(arrival), np.int64)),
        beside.get(_ORDINAL_COLUMN, arrival),
        arrival,
        time_values(bound, columns),
    )


def _with_ids(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Return columns of events with their ids as they were before they travelled."""
    if _SOURCE_COLUMN not in columns:
        return columns
    source = np.asarray(columns[_SOURCE_COLUMN].to_numpy(), np.int64)
    ids = (source << SEQUENCE_BITS) + columns[EVENT_ID.name].to_numpy()
    others = {name: one for name, one in columns.items() if name != _SOURCE_COLUMN}
    return {**others, EVENT_ID.name: pa.array(ids)}
