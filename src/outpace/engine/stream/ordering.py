"""Cells of events, put in order: what the first stage begins with, whatever it goes on with.

Events that no step can use are known by their times alone, and counted where they are late.

Memory: the events that wait for their turn; see `Reorderer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.block import read_block
from outpace.engine.codec.table import write_table
from outpace.engine.codec.times import read_times
from outpace.engine.match.bits import BITS
from outpace.engine.order.reorderer import Released, Reorderer
from outpace.engine.stream.cell import Cell, Counters, Kind
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import Late

#: The cells that a stage takes which puts events in order.
TAKES: Final = frozenset({Kind.EVENTS, Kind.UNUSED})


@dataclass(frozen=True)
class Ordered:
    """What a batch gives.

    Parameters
    ----------
    rows
        The events whose turn it is, in order.
    watermark
        No later event has a time before this.
    aside
        Cells with the events that go to side outputs.
    counters
        What became of the events of the batch, and how many wait.
    """

    rows: pa.Table
    watermark: int
    aside: list[Cell]
    counters: Counters


class Ordering:
    """Puts the events of an instance in order.

    Parameters
    ----------
    bound
        The query.
    disorder
        How far events are out of order, and what becomes of those that are late or invalid.
    events
        The columns that the blocks of events have, with their types. All of the input are there
        where events are set aside, which have no columns of bits any more.
    """

    def __init__(self, bound: BoundQuery, disorder: BoundDisorder, events: pa.Schema) -> None:
        self._events = events
        self._shown = [name for name in events.names if not name.startswith(BITS)]
        self._to_side = disorder.late is Late.SIDE
        self._reorderer = Reorderer(bound, disorder, events)

    def step(self, cells: list[Cell]) -> Ordered:
        """Take the cells of a batch."""
        unused = [cell.block for cell in cells if cell.kind is Kind.UNUSED]
        late = sum(_before(self._reorderer.watermark, block) for block in unused)
        events = [cell for cell in cells if cell.kind is Kind.EVENTS]
        blocks = [self._read(cell) for cell in events if len(cell.block)]
        rows = pa.concat_tables([self._events.empty_table(), *blocks])
        spans = np.concatenate([np.zeros((0, 2), np.int64), *(cell.times for cell in events)])
        # Each sender promises for itself; all that ever do so take part in every batch.
        promised = [cell.watermark for cell in events if cell.watermark != NO_TIME]
        told = min(promised, default=int(NO_TIME))
        released = self._reorderer.push(rows, spans, told)
        counters = Counters(
            events=rows.num_rows,
            released=released.rows.num_rows,
            late=released.late.num_rows + late,
            invalid=released.invalid.num_rows,
            buffered=self._reorderer.buffered,
        )
        return Ordered(released.rows, released.watermark, self._aside(released), counters)

    def state(self) -> bytes:
        """Return what waits for its turn, as bytes for `restore`."""
        return self._reorderer.state()

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned."""
        self._reorderer.restore(data)

    def _read(self, cell: Cell) -> pa.Table:
        columns = read_block(pa.py_buffer(cell.block), self._events)
        return pa.table([columns[name] for name in self._events.names], schema=self._events)

    def _aside(self, released: Released) -> list[Cell]:
        tables = [(Kind.LATE, released.late.select(self._shown))] if self._to_side else []
        reason = released.invalid.column_names[0]
        tables.append((Kind.INVALID, released.invalid.select([reason, *self._shown])))
        return [
            Cell(kind, block=write_table(table), watermark=released.watermark)
            for kind, table in tables
            if table.num_rows
        ]


def _before(time: int, block: bytes | pa.Buffer) -> int:
    """Count the times in a block that are before one."""
    return int(np.searchsorted(read_times(block), time))
