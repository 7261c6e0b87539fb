"""The input of a stage of a host with micro-batches: cells of events, as they were packed.

The events of a batch become stimuli, whatever the order in which its cells come, and the late, the
invalid and the released ones are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.block import read_block
from outpace.engine.codec.cell import Cell, CellKind, Counters, read_times, read_weights
from outpace.engine.codec.table import read_table, write_table
from outpace.engine.front import Front
from outpace.engine.group import GroupOperator
from outpace.engine.group_spec import QUERY, GroupSpec, named_rows
from outpace.engine.match.bits import BITS
from outpace.engine.message import (
    Aside,
    BatchBegun,
    ClockExchange,
    EventsArrived,
    HostLoad,
    SetAside,
    Stimulus,
    TimerFired,
    WatermarkArrived,
)
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.clock import weights_of
from outpace.engine.order.contract import REASON
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.times import as_integers
from outpace.pattern.disorder import Late
from outpace.pattern.query import Query

#: What all waits of a step add up to counts as no more than this, so that sums of them fit.
_LONGEST: Final = 1 << 53


class CellInput:
    """The input of a stage that takes events as they were packed."""

    takes = frozenset(
        {CellKind.EVENTS, CellKind.UNUSED, CellKind.SPARSE, CellKind.CLOCKS, CellKind.TOLD}
    )

    def __init__(
        self, spec: OperatorSpec | GroupSpec, front: Front | WholeOperator | GroupOperator
    ) -> None:
        self._schema = spec.schema
        self._front = front
        self._sources = spec.sources
        #: What had been counted when the batch began.
        self._unawaited, self._aside = 0, Counter[Aside]()
        #: The cells of the last batch that came from a log, and the events of each.
        self.logged: list[tuple[Cell, pa.Table]] = []
        #: How many events of the last batch no step can use, of those that are among the others.
        self._sparse = 0
        self._shown = [name for name in spec.schema.names if not name.startswith(BITS)]
        #: The queries whose late events are shown, and whether several share the events.
        self._to_side = {one.name for one in _queries(spec) if _shows_late(one)}
        self._grouped = isinstance(spec, GroupSpec)
        self._patient = any(_is_patient(one) for one in _queries(spec))
        self._time: str | None = None
        self._weighed: str | None = None
        #: What the host measured, for the next batch; None where it does not say.
        self.load: HostLoad | None = None
        if isinstance(spec, OperatorSpec):
            assert spec.disorder is not None
            self._divisible = spec.disorder.divisible
            self._time = spec.disorder.time
            self._weighed = spec.disorder.weighed
        else:
            self._divisible = spec.divided
        self._mixed = spec.sources is not None and not self._divisible

    def stimuli(self, cells: Sequence[Cell], now: int) -> list[Stimulus]:
        """Return the cells of a batch as one piece of the stream, or of each source that has any.

        What is told of time holds for every source. What is told of clocks comes first, in an order
        of its own. Heartbeats come behind the events: they promise what comes in later batches. A
        timer that is due comes before all events, but behind them where it tells who
        is silent: those that speak in the batch are not.
        """
        self._front.step(BatchBegun())
        self._unawaited = self._front.intake.counters().unawaited
        if isinstance(self._front, GroupOperator):
            self._aside = self._front.aside
        timer, self.logged = self._front.timer, []
        fired = [TimerFired(now)] if timer is not None and timer <= now else []
        pieces: list[Stimulus] = []
        if cells or not fired:
            pieces = [*self._pieces(cells, now), *_promises(cells, now)]
        exchanges = _exchanges(cells)
        return [*exchanges, *pieces, *fired] if self._patient else [*exchanges, *fired, *pieces]

    def _pieces(self, cells: Sequence[Cell], now: int) -> list[EventsArrived]:
        events = [cell for cell in cells if cell.kind in (CellKind.EVENTS, CellKind.SPARSE)]
        unused = [cell for cell in cells if cell.kind is CellKind.UNUSED]
        # Each sender promises for itself; all that ever do so take part in every batch.
        promised = [cell.watermark for cell in events if cell.watermark != NO_TIME]
        watermark = min(promised, default=int(NO_TIME))
        if self._sources is None or self._mixed:
            return [self._piece(events, None, watermark, now, unused)]
        own: dict[int, list[Cell]] = {}
        for cell in events:
            own.setdefault(cell.source, []).append(cell)
        spoken = [
            number for number in range(len(self._sources)) if number in own or watermark != NO_TIME
        ]
        # Where nobody has spoken one says nothing, so that who waits for this stage hears of it.
        return [
            self._piece(own.get(number, []), self._sources[number], watermark, now)
            for number in spoken or [0]
        ]

    def unused_late(self, cells: Sequence[Cell]) -> int:
        """Count the events that no step can use, known by their times alone, that are late."""
        unused = [cell for cell in cells if cell.kind is CellKind.UNUSED]
        return sum(
            int(np.searchsorted(read_times(cell.block), self._watermark(cell.source)))
            for cell in unused
        )

    def aside(self, instructions: Iterable[object]) -> dict[Aside, pa.Table]:
        """Return the events that are set aside, by why."""
        found: dict[Aside, list[pa.Table]] = {}
        for one in instructions:
            if isinstance(one, SetAside):
                rows = named_rows(one.rows, one.query) if self._grouped else one.rows
                found.setdefault(one.kind, []).append(rows)
        return {kind: pa.concat_tables(tables) for kind, tables in found.items()}

    def cells(self, aside: dict[Aside, pa.Table]) -> list[Cell]:
        """Return the events that go to side outputs; they have no columns of bits any more."""
        given, added = [], [QUERY] * self._grouped
        late = aside.get(Aside.LATE)
        if late is not None and self._to_side:
            if self._grouped:
                late = late.filter(pc.is_in(late.column(QUERY), pa.array(sorted(self._to_side))))
            block = write_table(late.select([*added, *self._shown]))
            given += [Cell(CellKind.LATE, block=block)] * bool(late.num_rows)
        if Aside.INVALID in aside:
            shown = aside[Aside.INVALID].select([*added, REASON, *self._shown])
            given.append(Cell(CellKind.INVALID, block=write_table(shown)))
        return given

    def counters(
        self,
        stimuli: Sequence[Stimulus],
        aside: Mapping[Aside, pa.Table],
        late: int,
        before: int,
    ) -> Counters:
        """Return what became of the events of a batch, how many wait, and all keys."""
        sizes = Counter({why: rows.num_rows for why, rows in aside.items()})
        if isinstance(self._front, GroupOperator):
            sizes = self._front.aside - self._aside
        counters = self._front.counters()
        counted = Counters(
            events=sum(one.rows.num_rows for one in stimuli if isinstance(one, EventsArrived))
            - self._sparse,
            released=counters.events - before,
            late=sizes[Aside.LATE] + late,
            invalid=sizes[Aside.INVALID],
            buffered=counters.order.buffered,
            slack=counters.order.slack,
            silent=counters.order.silent,
            unawaited=counters.order.unawaited - self._unawaited,
            waited=min(self._front.intake.waits.waited, _LONGEST),
            longest_wait=self._front.intake.waits.longest,
            keys=counters.partitions,
        )
        if not counted.unawaited:
            return counted
        spans = self._front.intake.unawaited_times.values()
        first, last = min(first for first, _ in spans), max(last for _, last in spans)
        return replace(counted, unawaited_first=first, unawaited_last=last)

    def _piece(
        self,
        cells: Sequence[Cell],
        source: str | None,
        watermark: int,
        now: int,
        unused: Sequence[Cell] = (),
    ) -> EventsArrived:
        blocks = []
        for cell in cells:
            if len(cell.block):
                blocks.append(self.read(cell))
            if cell.first >= 0:
                rows = blocks[-1] if len(cell.block) else self._schema.empty_table()
                self.logged.append((cell, rows))
        sparse = (cell.kind is CellKind.SPARSE for cell in cells if len(cell.block))
        self._sparse = sum(
            block.num_rows for block, is_sparse in zip(blocks, sparse, strict=True) if is_sparse
        )
        rows = pa.concat_tables([self._schema.empty_table(), *blocks])
        spans = weights = None
        if self._divisible:
            spans = np.concatenate([np.zeros((0, 2), np.int64), *(cell.times for cell in cells)])
        elif unused:
            assert self._time is not None
            own = as_integers(one_array(rows.column(self._time)))
            moments = np.concatenate([own, *(read_times(cell.block) for cell in unused)])
            spans = np.broadcast_to(moments[:, None], (len(moments), 2))
            if self._weighed is not None:
                own_weights = weights_of(rows.column(self._weighed))
                weights = np.concatenate(
                    [own_weights, *(read_weights(cell.block) for cell in unused)]
                )
        return EventsArrived(rows, source, spans, watermark, now, self.load, weights)

    def _watermark(self, source: int) -> int:
        """Return the time before which an event of a source is late."""
        assert not isinstance(self._front, GroupOperator)
        return self._front.intake.watermark_of(
            None if self._sources is None else self._sources[source]
        )

    def read(self, cell: Cell) -> pa.Table:
        """Return the events of a cell that has any."""
        columns = read_block(pa.py_buffer(cell.block), self._schema)
        if cell.kind is CellKind.SPARSE:
            # They have no bit, so that the order drops them once it has seen them.
            size = len(next(iter(columns.values())))
            columns = {
                one.name: columns[one.name] if one.name in columns else _nothing(one, size)
                for one in self._schema
            }
        return pa.table([columns[name] for name in self._schema.names], schema=self._schema)


def _queries(spec: OperatorSpec | GroupSpec) -> tuple[Query, ...]:
    return spec.queries if isinstance(spec, GroupSpec) else (spec.query,)


def _shows_late(query: Query) -> bool:
    disorder = query.order_of_arrival
    return disorder is not None and disorder.late is Late.SIDE


def _is_patient(query: Query) -> bool:
    disorder = query.order_of_arrival
    return disorder is not None and disorder.patience is not None


def _nothing(field: pa.Field, size: int) -> pa.Array:
    """Return a column of which nobody knows anything; no bit is set in one of bits."""
    if field.name.startswith(BITS):
        return pa.array(np.zeros(size, np.int64)).cast(field.type)
    return pa.nulls(size, field.type)


def _promises(cells: Sequence[Cell], now: int) -> list[WatermarkArrived]:
    """Return what sources, or the only one, promise with the heartbeats of a batch, by source."""
    promises: dict[str | None, int] = {}
    for cell in (one for one in cells if one.kind is CellKind.TOLD):
        for source, time in zip(*read_table(cell.block).to_pydict().values(), strict=True):
            promises[source] = max(time, promises.get(source, time))
    by_source = sorted(promises.items(), key=lambda one: one[0] or "")
    return [WatermarkArrived(time, source, now) for source, time in by_source]


def _exchanges(cells: Sequence[Cell]) -> list[ClockExchange]:
    """Return the exchanges with clocks of sources, by their times."""
    tables = [read_table(cell.block) for cell in cells if cell.kind is CellKind.CLOCKS]
    found = [ClockExchange(**row) for table in tables for row in table.to_pylist()]
    return sorted(found, key=lambda one: (one.answered, astuple(one)))
