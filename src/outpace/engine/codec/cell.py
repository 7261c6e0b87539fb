"""Cells: the rows that travel between the stages of a stream, each with thousands of events.

A cell has a kind, the instance of the next stage that it is for, and a block of bytes whose content
its kind says: rows (`codec.block`, `codec.table`) or messages (`engine.wire`). On Spark a cell is
one row with the schema `CELLS`; a checksum tells whether it is as it was written. Its head is no
part of a message, as Spark groups cells by columns of their own and collects the reports of them.

Of events that no step can use the times are the content of a cell. They do not travel, but whether
one is late is known only to the stage that has the watermark of the batches before. So their times
go there: in order, as the distances between them, which take one or two bytes each at thousands of
events a second.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field, fields, replace
from enum import IntEnum
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Floats, Integers
from outpace.engine.codec.block import block_cells, narrow_rows, read_block
from outpace.engine.codec.stretch import LogStretch, read_stretches, write_stretches
from outpace.engine.kernels.grouping import is_ascending
from outpace.errors import DataError

#: The first time of no events.
_NO_FIRST: Final = int(np.iinfo(np.int64).max)


class CellKind(IntEnum):
    """The content of a cell."""

    EVENTS = 0
    """Events for an instance, and how far time has come."""
    MATCHES = 1
    """Matches that are final: a table with the query's output."""
    TIMED_OUT = 2
    """Partial matches that WITHIN ended."""
    LATE = 3
    """Events that came late: a table with the input's columns."""
    INVALID = 4
    """Events that cannot be used: a table with the column `reason` and the input's columns."""
    PULSE = 5
    """Nothing but how far time has come: no later match of the sender has an earlier event."""
    REPORT = 6
    """What one step of one instance did, as counters."""
    UNUSED = 7
    """The times of events that no step can use: these do not travel, but may be late."""
    CLOCKS = 8
    """Exchanges with the clocks of sources: a table with who asked, and four times."""
    MOVES = 9
    """What the front says to the back, where what came out is corrected, but for events."""
    SPARSE = 10
    """Of events that no step can use the columns by which an order decides, as a block of rows."""
    TOLD = 11
    """Heartbeats: a table with sources, NULL for the only one, and what each promises."""


@dataclass(frozen=True, slots=True)
class Counters:
    """The counts of one step of one instance, and the sizes of its state after it.

    Parameters
    ----------
    events, released, matches, timed_out, late, invalid
        Events taken and put in order, and what came out, in this step.
    slack
        How far the watermark stays behind the greatest time after the step, in units of time; of
        several instances the greatest counts.
    early
        How much of that events do not wait, 1 - alpha, in millionths.
    tentative, confirmed, retracted, rollbacks, replayed
        What became of matches that may be taken back, in this step, see `ChangeCounters`; where the
        instance was rebuilt by a replay before it, how many events that took.
    replays
        Whether it was.
    checkpoints, checkpoint_bytes, deliveries, redeliveries
        What was done in this step so that they may be, see there.
    tentative_wait, confirmed_wait
        How long matches took to come and to be confirmed, see there.
    full
        How often events had to wait as there was no memory to go back with, see there.
    silent
        Sources that say nothing, so that the others do not wait for them any more.
    unawaited
        Events that went on in this step although a silent source had not come so far.
    unawaited_first, unawaited_last
        The times of the first and of the last of these, if there are any; of several instances the
        least and the greatest count.
    waited, longest_wait
        How long events waited for their turn in this step, added up, and the longest that one has
        waited; see `OrderCounters`.
    buffered, kept, partials, open_windows, keys
        Held after the step: events that wait for their turn, events that undecided matches may
        still need, events that an undecided match may start with, open windows, and keys: those
        that have any of these, and where their events are numbered all that there have been.
    state_bytes
        The size of the state after the step.
    restore_us, step_us, save_us
        The time that reading the state, the step itself and writing the state took.
    checkpoint_us
        The time of the step that its checkpoints took, as far as it is measured.
    """

    events: int = 0
    released: int = 0
    matches: int = 0
    timed_out: int = 0
    late: int = 0
    invalid: int = 0
    slack: int = 0
    early: int = 0
    tentative: int = 0
    confirmed: int = 0
    retracted: int = 0
    rollbacks: int = 0
    replayed: int = 0
    replays: int = 0
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    deliveries: int = 0
    redeliveries: int = 0
    tentative_wait: int = 0
    confirmed_wait: int = 0
    full: int = 0
    silent: int = 0
    unawaited: int = 0
    unawaited_first: int = _NO_FIRST
    unawaited_last: int = NO_TIME
    waited: int = 0
    longest_wait: int = 0
    buffered: int = 0
    kept: int = 0
    partials: int = 0
    open_windows: int = 0
    keys: int = 0
    state_bytes: int = 0
    restore_us: int = 0
    step_us: int = 0
    save_us: int = 0
    checkpoint_us: int = 0


#: Those of which the least counts, and those of which the greatest does.
_LEAST: Final = ("unawaited_first",)
_GREATEST: Final = ("slack", "early", "unawaited_last", "longest_wait")

#: The names of the counters, in their order.
COUNTERS: Final = tuple(counter.name for counter in fields(Counters))


def add_count(name: str, one: int, other: int) -> int:
    """Return what a counter of two instances is together.

    Examples
    --------
    >>> add_count("events", 3, 4), add_count("slack", 3, 4), add_count("unawaited_first", 3, 4)
    (7, 4, 3)
    """
    if name in _LEAST:
        return min(one, other)
    return max(one, other) if name in _GREATEST else one + other


#: A row for each cell. What only Python reads is one column: each costs Spark time in every batch.
#: `report` is the stage and the counters of a report, NULL for other cells.
CELLS: Final = pa.schema(
    [
        pa.field("instance", pa.int32(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("head", pa.binary(), nullable=False),
        pa.field("block", pa.binary(), nullable=False),
        pa.field("report", pa.list_(pa.field("element", pa.int64(), nullable=False))),
    ]
)

#: The head of a cell: the checksum of its kind, all that follows and its block; stage, sender,
#: position, source, how many spans there are, and the watermark; spans and places follow.
_HEAD: Final = struct.Struct("<Iiiiiiq")
#: Where in it the checksum ends.
_CHECKED: Final = 4
_SPAN_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell.

    Parameters
    ----------
    kind
        The kind of its content.
    instance
        Which instance of the next stage takes it.
    block
        Its content.
    stage
        The stage that it comes from; 0 is packing.
    sender
        The task or instance that it comes from.
    position
        Its place among the cells of its sender in this batch.
    watermark
        What its sender promises: none of its later events has a time before this.
    spans
        The times that were seen, as stretches without a large gap: pairs of the least and the
        greatest time, rising, 16 bytes each.
    source
        The number of the source whose events and times it has; -1 where nobody tells sources apart.
    places
        Where in their log the rows lie that were packed together with it; empty where they come
        from none.
    counters
        Of a report.
    """

    kind: CellKind
    instance: int = 0
    block: bytes | pa.Buffer = b""
    stage: int = 0
    sender: int = 0
    position: int = 0
    watermark: int = NO_TIME
    spans: bytes = b""
    source: int = -1
    places: tuple[LogStretch, ...] = ()
    counters: Counters = field(default=Counters())

    @property
    def times(self) -> Integers:
        """The stretches of times that were seen, a row with least and greatest for each."""
        return np.frombuffer(self.spans, "<i8").reshape(-1, 2).astype(np.int64)


def in_order(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells by sender and position: Spark hands them over in any order."""
    return sorted(cells, key=lambda cell: (cell.sender, cell.position))


def cell_batch(cells: Iterable[Cell]) -> pa.RecordBatch:
    """Return cells as rows.

    Examples
    --------
    >>> cell = Cell(CellKind.REPORT, watermark=7, counters=Counters(events=3))
    >>> list(read_cells(cell_batch([cell]))) == [cell]
    True
    """
    rows = [
        (
            cell.instance,
            int(cell.kind),
            _head(cell),
            bytes(cell.block),
            (cell.stage, *astuple(cell.counters)) if cell.kind is CellKind.REPORT else None,
        )
        for cell in cells
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(CELLS)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, CELLS.types, strict=True)],
        schema=CELLS,
    )


def read_cells(batch: pa.RecordBatch) -> Iterator[Cell]:
    """Return the cells of rows; blocks are not copied."""
    columns = [batch.column(name).to_pylist() for name in CELLS.names if name != "block"]
    blocks = (block.as_buffer() for block in batch.column("block"))
    for (instance, kind, head, report), block in zip(
        zip(*columns, strict=True), blocks, strict=True
    ):
        yield cell_of(instance, kind, head, block if len(block) else b"", report)


def cell_of(
    instance: int,
    kind: int,
    head: bytes,
    block: bytes | pa.Buffer,
    report: Iterable[int] | None,
) -> Cell:
    """Return the cell of a row.

    Raises
    ------
    DataError
        If the row is no cell, or not as it was written.
    """
    try:
        checksum, stage, sender, position, source, spans, watermark = _HEAD.unpack_from(head)
        cell_kind = CellKind(kind)
        counters = Counters() if report is None else Counters(*[int(count) for count in report][1:])
    except (struct.error, ValueError, TypeError) as error:
        raise DataError("a row of the stream is no cell", detail=str(error)) from error
    if _checksum(cell_kind, head[_CHECKED:], block) != checksum:
        raise DataError(
            "a cell of the stream is damaged", detail="its checksum does not fit its content"
        )
    behind = _HEAD.size + spans * _SPAN_BYTES
    times, places = head[_HEAD.size : behind], read_stretches(head[behind:])
    place = stage, sender, position
    return Cell(cell_kind, instance, block, *place, watermark, times, source, places, counters)


def _head(cell: Cell) -> bytes:
    place = cell.stage, cell.sender, cell.position, cell.source
    fixed = _HEAD.pack(0, *place, len(cell.spans) // _SPAN_BYTES, cell.watermark)
    checked = fixed[_CHECKED:] + cell.spans + write_stretches(cell.places)
    return struct.pack("<I", _checksum(cell.kind, checked, cell.block)) + checked


def _checksum(kind: CellKind, head: bytes, block: bytes | pa.Buffer) -> int:
    return zlib.crc32(block, zlib.crc32(head, kind))


def add_reports(cells: Iterable[Cell]) -> list[Cell]:
    """Return one report for each stage that reports.

    Examples
    --------
    >>> cells = [Cell(CellKind.REPORT, counters=Counters(events=number)) for number in (3, 4)]
    >>> [cell.counters.events for cell in add_reports(cells)]
    [7]
    """
    added: dict[int, Cell] = {}
    for cell in cells:
        before = added.get(cell.stage)
        if before is not None:
            pairs = zip(COUNTERS, astuple(before.counters), astuple(cell.counters), strict=True)
            cell = replace(cell, counters=Counters(*(add_count(*pair) for pair in pairs)))
        added[cell.stage] = cell
    return list(added.values())


_FIRST: Final = struct.Struct("<q")
_GAPS: Final = pa.schema([pa.field("gap", pa.int64())])
_WEIGHED: Final = _GAPS.append(pa.field("weight", pa.float64()))


def write_times(times: Integers, weights: Floats | None = None) -> bytes:
    """Return times, of which there is at least one, as bytes, with the weight of each if any.

    Examples
    --------
    >>> read_times(write_times(np.array([7, -2, 7]))).tolist()
    [-2, 7, 7]
    """
    # What is nearly in order is sorted much faster so.
    order = None if is_ascending(times) else np.argsort(times, kind="stable")
    ordered = times if order is None else times[order]
    columns = {"gap": pa.array(np.diff(ordered, prepend=ordered[:1]))}
    if weights is not None:
        columns["weight"] = pa.array(weights if order is None else weights[order])
    return _FIRST.pack(ordered[0]) + bytes(block_cells([narrow_rows(columns)])[0].as_buffer())


def read_times(block: bytes | pa.Buffer) -> Integers:
    """Return the times that `write_times` wrote, in order."""
    (first,) = _FIRST.unpack_from(block)
    gaps = read_block(pa.py_buffer(block).slice(_FIRST.size), _GAPS)["gap"].to_numpy()
    # Where times are further apart than 64 bits with a sign tell, both differences and sums wrap.
    return np.cumsum(gaps, dtype=np.int64) + np.int64(first)


def read_weights(block: bytes | pa.Buffer) -> Floats:
    """Return the weights of times that `write_times` wrote with them."""
    read = read_block(pa.py_buffer(block).slice(_FIRST.size), _WEIGHED)["weight"]
    weights: Floats = read.to_numpy(zero_copy_only=False)
    return weights
