"""Ranges of offsets as blocks of a good size: small frames are joined, others stay as they are.

Which events are in which block depends on the range and on the frames alone, so a range that is
read again gives the same blocks. A frame of a good size is handed on as it lies in the file; only
one that the range cuts is written anew.

Memory: one block, and the frames that are joined into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from outpace.engine.codec.block import block_cells, narrow_block, narrow_rows, read_block
from outpace.engine.rows.partition import column_arrays
from outpace.engine.rows.times import as_integers
from outpace.ingest.log.frame import FrameKind, LogFrame, frame_of
from outpace.ingest.log.reader import Log, OnDamage

#: Frames are joined until a block has so many events, and not beyond so many events and bytes.
EVENTS_WANTED: Final = 2**16
EVENTS_MAX: Final = 2**19
_BYTES_MAX: Final = 2**26


@dataclass(frozen=True, slots=True)
class LogBlock:
    """Events as one cell.

    Parameters
    ----------
    data
        What `outpace.engine.codec.block.read_block` reads.
    first, stop
        The offset of the first event, and the one behind the last; some between may be lost.
    events
        How many there are.
    least, greatest
        The least and the greatest event time.
    arrival
        When the first of them came.
    """

    data: pa.Buffer
    first: int
    stop: int
    events: int
    least: int
    greatest: int
    arrival: int


def block_starts(
    log: Log, start: int, stop: int, wanted: int = EVENTS_WANTED, most: int = EVENTS_MAX
) -> list[int]:
    """Return the offsets that the blocks of a range begin with.

    Parameters
    ----------
    log
        The log, refreshed.
    start, stop
        The range.
    wanted, most
        Frames are joined until a block has `wanted` events, and never to more than `most`.
    """
    starts = [start]
    events = size = 0
    for run in log.runs(start, stop):
        for record in run.headers:
            frame = frame_of(record)
            if frame.kind is not FrameKind.EVENTS:
                continue
            low, high = max(start, frame.first), min(stop, frame.stop)
            beyond = events + high - low > most or size + frame.length > _BYTES_MAX
            if events >= wanted or (events and beyond):
                starts.append(low)
                events = size = 0
            events += high - low
            size += frame.length
    return starts


def read_blocks(
    log: Log, start: int, stop: int, *, on_damage: OnDamage | str = OnDamage.FAIL
) -> Iterator[LogBlock]:
    """Yield the events of a range of offsets of a log, which is refreshed, as blocks."""
    starts = block_starts(log, start, stop)
    for low, high in zip(starts, [*starts[1:], stop], strict=True):
        parts = list(log.payloads(low, high, on_damage=on_damage))
        if parts:
            yield _block(log, parts, low, high)


def _block(log: Log, parts: list[tuple[LogFrame, pa.Buffer]], start: int, stop: int) -> LogBlock:
    blocks = [_cut(log, frame, payload, start, stop) for frame, payload in parts]
    if len(blocks) == 1:
        return blocks[0]
    rows = pa.concat_tables(pa.table(read_block(block.data, log.schema)) for block in blocks)
    columns = column_arrays(rows)
    (cell,) = block_cells([narrow_rows(columns)])
    return LogBlock(
        cell.as_buffer(),
        blocks[0].first,
        blocks[-1].stop,
        sum(block.events for block in blocks),
        min(block.least for block in blocks),
        max(block.greatest for block in blocks),
        blocks[0].arrival,
    )


def _cut(log: Log, frame: LogFrame, payload: pa.Buffer, start: int, stop: int) -> LogBlock:
    """Return the events of a frame that are in a range."""
    span = frame.first, frame.stop
    whole = LogBlock(payload, *span, frame.events, frame.least, frame.greatest, frame.arrival)
    low, high = max(start, frame.first), min(stop, frame.stop)
    if (low, high) == span:
        return whole
    (cell,) = block_cells([narrow_block(payload).slice(low - frame.first, high - low)])
    data = cell.as_buffer()
    times = as_integers(read_block(data, log.schema)[log.time])
    return replace(
        whole,
        data=data,
        first=low,
        stop=high,
        events=high - low,
        least=int(times.min()),
        greatest=int(times.max()),
    )
