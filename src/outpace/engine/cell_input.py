"""The input of a stage of a host with micro-batches: cells of events, as they were packed.

The events of a batch become stimuli, whatever the order in which its cells come, and the late, the
invalid and the released ones are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
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
    Instruction,
    Move,
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


@dataclass(frozen=True)
class TakenCells:
    """What became of the cells of a batch.

    Parameters
    ----------
    said
        What the operator, or the front alone, said of them.
    aside, counters
        The events that go to side outputs, and what is counted of events and of going back.
    logged
        The cells that came from a log, and the events of each.
    """

    said: list[Instruction | Move]
    aside: list[Cell]
    counters: Counters
    logged: list[tuple[Cell, pa.Table]]


class CellInput:
    """The input of a stage that takes events as they were packed.

    Parameters
    ----------
    spec, part
        What the stage is of, and what takes the events.
    """

    takes = frozenset(
        {CellKind.EVENTS, CellKind.UNUSED, CellKind.SPARSE, CellKind.CLOCKS, CellKind.TOLD}
    )

    def __init__(
        self, spec: OperatorSpec | GroupSpec, part: Front | WholeOperator | GroupOperator
    ) -> None:
        self._schema = spec.schema
        self._part = part
        self._sources = spec.sources
        #: What had been counted when the batch began.
        self._unawaited, self._aside = 0, Counter[Aside]()
        self._shown = [name for name in spec.schema.names if not name.startswith(BITS)]
        #: The queries whose late events are shown, and whether several share the events.
        self._to_side = {one.name for one in _queries(spec) if _shows_late(one)}
        self._grouped = isinstance(spec, GroupSpec)
        self._patient = any(_is_patient(one) for one in _queries(spec))
        self._time: str | None = None
        self._weighed: str | None = None
        if isinstance(spec, OperatorSpec):
            assert spec.disorder is not None
            self._divisible = spec.disorder.divisible
            self._time = spec.disorder.time
            self._weighed = spec.disorder.weighed
        else:
            self._divisible = spec.divided
        #: Whether the events of a batch are taken source by source.
        self.by_source = spec.sources is not None and self._divisible

    def take(self, cells: Sequence[Cell], now: int, load: HostLoad | None) -> TakenCells:
        """Let the part take the cells of a batch; `load` is what the host measured before it."""
        part, before, late = self._part, self._part.arrived, self._unused_late(cells)
        parts: Sequence[Front | WholeOperator]
        parts = [part] if isinstance(part, Front) else part.operators
        known = [one.changes for one in parts]
        part.step(BatchBegun())
        self._unawaited = part.intake.counters().unawaited
        if isinstance(part, GroupOperator):
            self._aside = part.aside
        kinds = CellKind.EVENTS, CellKind.SPARSE
        events = [(cell, self.read(cell)) for cell in cells if cell.kind in kinds]
        stimuli = self._stimuli(cells, events, now, load)
        said = [one for stimulus in stimuli for one in part.step(stimulus)]
        aside = self._aside_of(said)
        changed: Counter[str] = Counter()
        for one, was in zip(parts, known, strict=True):
            changes = one.changes.since(was)
            spent = round(1e6 * one.work[1] * changes["checkpoints"])
            changed.update(changes, checkpoint_us=spent)
        useful = sum(rows.num_rows for cell, rows in events if cell.kind is CellKind.EVENTS)
        counters = replace(self._counters(useful, aside, late, before), **changed)
        logged = [(cell, rows) for cell, rows in events if cell.places]
        return TakenCells(said, self._cells(aside), counters, logged)

    def _stimuli(
        self,
        cells: Sequence[Cell],
        events: Sequence[tuple[Cell, pa.Table]],
        now: int,
        load: HostLoad | None,
    ) -> list[Stimulus]:
        """Return the cells of a batch as one piece of the stream, or of each source that has any.

        What is told of time holds for every source. What is told of clocks comes first, in an order
        of its own. Heartbeats come behind the events: they promise what comes in later batches. A
        timer that is due comes before all events, but behind them where it tells who
        is silent: those that speak in the batch are not.
        """
        timer = self._part.timer
        fired = [TimerFired(now)] if timer is not None and timer <= now else []
        pieces: list[Stimulus] = []
        if cells or not fired:
            unused = [cell for cell in cells if cell.kind is CellKind.UNUSED]
            own = self._pieces(events, unused)
            pieces = [replace(one, arrival=now, load=load) for one in own]
            pieces += _promises(cells, now)
        exchanges = _exchanges(cells)
        return [*exchanges, *pieces, *fired] if self._patient else [*exchanges, *fired, *pieces]

    def _pieces(
        self, events: Sequence[tuple[Cell, pa.Table]], unused: Sequence[Cell]
    ) -> list[EventsArrived]:
        # Each sender promises for itself; all that ever do so take part in every batch.
        promised = [cell.watermark for cell, _ in events if cell.watermark != NO_TIME]
        watermark = min(promised, default=int(NO_TIME))
        if not self.by_source or self._sources is None:
            return [self._piece(events, None, watermark, unused)]
        own: dict[int, list[tuple[Cell, pa.Table]]] = {}
        for one in events:
            own.setdefault(one[0].source, []).append(one)
        spoken = [
            number for number in range(len(self._sources)) if number in own or watermark != NO_TIME
        ]
        # Where nobody has spoken one says nothing, so that who waits for this stage hears of it.
        return [
            self._piece(own.get(number, []), self._sources[number], watermark)
            for number in spoken or [0]
        ]

    def _unused_late(self, cells: Sequence[Cell]) -> int:
        """Count the events that no step can use, known by their times alone, that are late."""
        unused = [cell for cell in cells if cell.kind is CellKind.UNUSED]
        return sum(
            int(np.searchsorted(read_times(cell.block), self._watermark(cell.source)))
            for cell in unused
        )

    def _aside_of(self, said: Iterable[object]) -> dict[Aside, pa.Table]:
        """Return the events that are set aside, by why."""
        found: dict[Aside, list[pa.Table]] = {}
        for one in said:
            if isinstance(one, SetAside):
                rows = named_rows(one.rows, one.query) if self._grouped else one.rows
                found.setdefault(one.kind, []).append(rows)
        return {kind: pa.concat_tables(tables) for kind, tables in found.items()}

    def _cells(self, aside: dict[Aside, pa.Table]) -> list[Cell]:
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

    def _counters(
        self, events: int, aside: Mapping[Aside, pa.Table], late: int, before: int
    ) -> Counters:
        """Return what became of the events of a batch, how many wait, and all keys."""
        sizes = Counter({why: rows.num_rows for why, rows in aside.items()})
        if isinstance(self._part, GroupOperator):
            sizes = self._part.aside - self._aside
        counters = self._part.counters()
        counted = Counters(
            events=events,
            released=counters.events - before,
            late=sizes[Aside.LATE] + late,
            invalid=sizes[Aside.INVALID],
            buffered=counters.order.buffered,
            slack=counters.order.slack,
            silent=counters.order.silent,
            unawaited=counters.order.unawaited - self._unawaited,
            waited=min(self._part.intake.waits.waited, _LONGEST),
            longest_wait=self._part.intake.waits.longest,
            keys=counters.partitions,
            early=round(1e6 * (1 - self._part.alpha)),
        )
        if not counted.unawaited:
            return counted
        spans = self._part.intake.unawaited_times.values()
        first, last = min(first for first, _ in spans), max(last for _, last in spans)
        return replace(counted, unawaited_first=first, unawaited_last=last)

    def _piece(
        self,
        events: Sequence[tuple[Cell, pa.Table]],
        source: str | None,
        watermark: int,
        unused: Sequence[Cell] = (),
    ) -> EventsArrived:
        rows = pa.concat_tables([self._schema.empty_table(), *(one for _, one in events)])
        spans = weights = None
        if self._divisible:
            spans = np.concatenate(
                [np.zeros((0, 2), np.int64), *(cell.times for cell, _ in events)]
            )
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
        return EventsArrived(rows, source, spans, watermark, weights=weights)

    def _watermark(self, source: int) -> int:
        """Return the time before which an event of a source is late."""
        assert not isinstance(self._part, GroupOperator)
        return self._part.intake.watermark_of(
            None if self._sources is None else self._sources[source]
        )

    def read(self, cell: Cell) -> pa.Table:
        """Return the events of a cell."""
        if not len(cell.block):
            return self._schema.empty_table()
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
