"""Stages: the parts of an operator as a host with micro-batches runs them, cells in and cells out.

In every batch that has any event, each instance of a stage takes one step with all cells that are
for it; so each hears how far time has come, even where no event is for it. A stage that goes by the
clock has one instance, which takes a step in a batch without events when its timer is due. A step
is a function of the state, the time of the batch and the cells, in whatever order these come: a
batch that is run again gives the same. Between two batches the state of an instance is one run of
bytes.

A stage is the whole operator, or one part of it: the front alone orders, numbers and splits events;
instances match windows; the back merges what they found. The operators of several queries are one
stage, too (`group_stage`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.back import Back
from outpace.engine.codec.block import read_block
from outpace.engine.codec.cell import Cell, CellKind, Counters, add_reports, in_order
from outpace.engine.codec.table import read_table, write_table
from outpace.engine.codec.times import read_times
from outpace.engine.event import no_events
from outpace.engine.front import Front
from outpace.engine.group_stage import GroupSpec, GroupStage
from outpace.engine.instance import Instance
from outpace.engine.match.bits import BITS
from outpace.engine.match.contract import Matcher
from outpace.engine.message import (
    NO_SPLIT,
    AllAnswered,
    Aside,
    ClockExchange,
    Deliver,
    Delivered,
    Emit,
    EventsArrived,
    Routed,
    SetAside,
    TimerFired,
)
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.state import State, reading
from outpace.engine.wire import read_answer, read_delivery, write_answer, write_delivery
from outpace.errors import StateError
from outpace.pattern.disorder import Late


class StagePart(Enum):
    """Which part of the operator a stage is, by its name in `explain()` and in metrics."""

    WHOLE = "order + match"
    FRONT = "order + split"
    INSTANCE = "match"
    BACK = "merge"
    GROUP = "order + match of all"


@dataclass(frozen=True)
class StageSpec:
    """What a stage is, for the planner and for who runs it.

    Parameters
    ----------
    part
        Which part of the operator.
    instances
        How many there are.
    operator
        The operator, or those of several queries.
    identity
        A text that tells what it computes; a state is only read by a stage with the same.
    partitions
        Over how many partitions of the host its instances are spread.
    """

    part: StagePart
    instances: int
    operator: OperatorSpec | GroupSpec
    identity: str
    partitions: int = 1

    @property
    def name(self) -> str:
        """What it is called: "order + match"."""
        return self.part.value

    @property
    def matcher(self) -> Matcher | None:
        """What its instances match with, so that it can be compiled before it is worth it."""
        matches = self.part in (StagePart.WHOLE, StagePart.INSTANCE, StagePart.GROUP)
        return self.operator.matcher if matches else None

    @property
    def clocked(self) -> bool:
        """Whether its instances go by the time of batches, and ask for timers."""
        if isinstance(self.operator, GroupSpec):
            return self.operator.clocked
        takes_events = self.part in (StagePart.WHOLE, StagePart.FRONT)
        disorder = self.operator.disorder
        return takes_events and disorder is not None and disorder.value.clocked

    def make(self, number: int = 0) -> Stage:
        """Return a new instance, of a number."""
        if isinstance(self.operator, GroupSpec):
            return GroupStage(self.operator, number)
        if self.part is StagePart.WHOLE:
            return WholeStage(self.operator, number)
        return _STAGES[self.part](self.operator)


#: What all waits of a step add up to counts as no more than this, so that sums of them fit.
_LONGEST: Final = 1 << 53


class _Arriving:
    """The input of a stage that takes events as they were packed."""

    takes = frozenset({CellKind.EVENTS, CellKind.UNUSED, CellKind.CLOCKS})

    def __init__(self, spec: OperatorSpec, front: Front) -> None:
        assert spec.disorder is not None
        self._schema = spec.schema
        self._front = front
        self._sources = spec.sources
        self._mixed = spec.sources is not None and not spec.disorder.divisible
        self._patient = spec.disorder["patience"] is not None
        self._unawaited = 0
        self._shown = [name for name in spec.schema.names if not name.startswith(BITS)]
        self._to_side = spec.disorder.late is Late.SIDE
        self._divisible = spec.disorder.divisible

    def stimuli(
        self, cells: Sequence[Cell], now: int
    ) -> list[ClockExchange | EventsArrived | TimerFired]:
        """Return the cells of a batch as one piece of the stream, or of each source that has any.

        What is told of time holds for every source. What is told of clocks comes first, in an order
        of its own. A timer that is due comes before all events, but behind them where it tells who
        is silent: those that speak in the batch are not.
        """
        self._front.waits.forget()
        timer = self._front.timer
        fired = [TimerFired(now)] if timer is not None and timer <= now else []
        pieces = self._pieces(cells, now) if cells or not fired else []
        told = _exchanges(cells)
        return [*told, *pieces, *fired] if self._patient else [*told, *fired, *pieces]

    def _pieces(self, cells: Sequence[Cell], now: int) -> list[EventsArrived]:
        events = [cell for cell in cells if cell.kind is CellKind.EVENTS]
        # Each sender promises for itself; all that ever do so take part in every batch.
        promised = [cell.watermark for cell in events if cell.watermark != NO_TIME]
        told = min(promised, default=int(NO_TIME))
        if self._sources is None or self._mixed:
            return [self._piece(events, None, told, now)]
        own: dict[int, list[Cell]] = {}
        for cell in events:
            own.setdefault(cell.source, []).append(cell)
        spoken = [
            number for number in range(len(self._sources)) if number in own or told != NO_TIME
        ]
        # Where nobody has spoken one says nothing, so that who waits for this stage hears of it.
        return [
            self._piece(own.get(number, []), self._sources[number], told, now)
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
                found.setdefault(one.kind, []).append(one.rows)
        return {kind: pa.concat_tables(tables) for kind, tables in found.items()}

    def cells(self, aside: dict[Aside, pa.Table]) -> list[Cell]:
        """Return the events that go to side outputs; they have no columns of bits any more."""
        given = []
        if Aside.LATE in aside and self._to_side:
            late = aside[Aside.LATE].select(self._shown)
            given.append(Cell(CellKind.LATE, block=write_table(late)))
        if Aside.INVALID in aside:
            invalid = aside[Aside.INVALID]
            shown = invalid.select([invalid.column_names[0], *self._shown])
            given.append(Cell(CellKind.INVALID, block=write_table(shown)))
        return given

    def counters(
        self,
        stimuli: Sequence[ClockExchange | EventsArrived | TimerFired],
        aside: dict[Aside, pa.Table],
        late: int,
        before: int,
    ) -> Counters:
        """Return what became of the events of a batch, how many wait, and all keys."""
        sizes = {kind: rows.num_rows for kind, rows in aside.items()}
        counters = self._front.counters()
        unawaited, self._unawaited = self._unawaited, counters.order.unawaited
        return Counters(
            events=sum(one.rows.num_rows for one in stimuli if isinstance(one, EventsArrived)),
            released=counters.events - before,
            late=sizes.get(Aside.LATE, 0) + late,
            invalid=sizes.get(Aside.INVALID, 0),
            buffered=counters.order.buffered,
            slack=counters.order.slack,
            silent=counters.order.silent,
            unawaited=counters.order.unawaited - unawaited,
            waited=min(self._front.waits.waited, _LONGEST),
            longest_wait=self._front.waits.longest,
            keys=counters.partitions,
        )

    def _piece(
        self, cells: Sequence[Cell], source: str | None, told: int, now: int
    ) -> EventsArrived:
        blocks = [self._read(cell) for cell in cells if len(cell.block)]
        rows = pa.concat_tables([self._schema.empty_table(), *blocks])
        spans = None
        if self._divisible:
            spans = np.concatenate([np.zeros((0, 2), np.int64), *(cell.times for cell in cells)])
        return EventsArrived(rows, source, spans=spans, watermark=told, arrival=now)

    def _watermark(self, source: int) -> int:
        """Return the time before which an event of a source is late."""
        return self._front.watermark_of(None if self._sources is None else self._sources[source])

    def _read(self, cell: Cell) -> pa.Table:
        columns = read_block(pa.py_buffer(cell.block), self._schema)
        return pa.table([columns[name] for name in self._schema.names], schema=self._schema)


def _exchanges(cells: Sequence[Cell]) -> list[ClockExchange]:
    """Return the exchanges with clocks of sources, by their times."""
    tables = [read_table(cell.block) for cell in cells if cell.kind is CellKind.CLOCKS]
    found = [ClockExchange(**row) for table in tables for row in table.to_pylist()]
    return sorted(found, key=lambda one: (one.answered, astuple(one)))


class WholeStage:
    """The whole operator: an instance has the events of its keys, or all of them."""

    takes = _Arriving.takes

    def __init__(self, spec: OperatorSpec, number: int) -> None:
        self.part = WholeOperator(spec, number)
        self._arriving = _Arriving(spec, self.part.front)
        self.counters = Counters()

    @property
    def timer(self) -> int | None:
        """When, by the time of batches, it wants to take a step; None where never."""
        return self.part.front.timer

    def step(self, cells: Sequence[Cell], now: int = NO_TIME) -> list[Cell]:
        """Order the events of a batch, match those whose turn it is, and let time pass."""
        arriving, before = self._arriving, self.part.front.arrived
        late, stimuli = arriving.unused_late(cells), arriving.stimuli(cells, now)
        instructions = [one for stimulus in stimuli for one in self.part.step(stimulus)]
        aside = arriving.aside(instructions)
        emits = [one for one in instructions if isinstance(one, Emit)]
        instance = self.part.instance
        self.counters = replace(
            arriving.counters(stimuli, aside, late, before),
            matches=sum(emit.matches.table.num_rows for emit in emits),
            timed_out=sum(emit.timed_out.num_rows for emit in emits),
            kept=instance.rows_kept,
            partials=instance.starts_kept(),
            open_windows=instance.open_windows,
            keys=instance.partitions_kept,
        )
        watermark = emits[-1].watermark
        told = [Cell(CellKind.PULSE, watermark=watermark)] if watermark != NO_TIME else []
        found = [cell for emit in emits for cell in _emitted(emit)]
        return [*found, *arriving.cells(aside), *told]


class FrontStage:
    """The front alone: each instance of the next stage gets a cell in every batch, or several."""

    takes = _Arriving.takes

    def __init__(self, spec: OperatorSpec) -> None:
        self.part = Front(spec)
        assert spec.instances is not None
        self._arriving = _Arriving(spec, self.part)
        self._spec, self._instances = spec, spec.instances
        self._nothing = no_events(spec.events)
        self.counters = Counters()

    @property
    def timer(self) -> int | None:
        """When, by the time of batches, it wants to take a step; None where never."""
        return self.part.timer

    def step(self, cells: Sequence[Cell], now: int = NO_TIME) -> list[Cell]:
        """Take the events of a batch, in any order."""
        arriving, before = self._arriving, self.part.arrived
        late, stimuli = arriving.unused_late(cells), arriving.stimuli(cells, now)
        messages = [one for stimulus in stimuli for one in self.part.step(stimulus)]
        aside = arriving.aside(messages)
        # How far time has come counts after the last delivery of a batch alone.
        routed = [one for one in messages if isinstance(one, Routed)][-1]
        deliveries = [one for one in messages if isinstance(one, Deliver)]
        self.counters = arriving.counters(stimuli, aside, late, before)
        idle = set(range(self._instances)) - {one.instance for one in deliveries}
        deliveries += [
            Deliver(number, self._nothing, None, NO_SPLIT, routed.arrived)
            for number in sorted(idle)
        ]
        timed = [replace(delivery, watermark=routed.watermark) for delivery in deliveries]
        return [
            *(
                Cell(CellKind.EVENTS, delivery.instance, write_delivery(delivery, self._spec))
                for delivery in timed
            ),
            *arriving.cells(aside),
        ]


class InstanceStage:
    """An instance alone: it finds the matches of the windows that it is given."""

    takes = frozenset({CellKind.EVENTS})
    timer = None

    def __init__(self, spec: OperatorSpec) -> None:
        self.part = Instance(spec, tells_time=True)
        self._spec = spec
        self.counters = Counters()

    def step(self, cells: Sequence[Cell]) -> list[Cell]:
        """Take the events of a batch, with the windows that they open and close."""
        deliveries = [read_delivery(pa.py_buffer(cell.block), self._spec) for cell in cells]
        answers = [self.part.step(delivery) for delivery in deliveries]
        self.counters = Counters(
            events=sum(delivery.size for delivery in deliveries),
            matches=sum(len(answer.matches) for answer in answers),
            kept=self.part.rows_kept,
            partials=self.part.starts_kept(),
            open_windows=self.part.open_windows,
            keys=self.part.partitions_kept,
        )
        return [Cell(CellKind.EVENTS, block=write_answer(answer)) for answer in answers]


class BackStage:
    """The back alone: what the instances found in a batch is complete and comes out at once."""

    takes = frozenset({CellKind.EVENTS})
    timer = None

    def __init__(self, spec: OperatorSpec) -> None:
        self.part = Back(spec)
        self._output = spec.bound.output
        self.counters = Counters()

    def step(self, cells: Sequence[Cell]) -> list[Cell]:
        """Take what the instances found in a batch."""
        for cell in cells:
            answer = read_answer(pa.py_buffer(cell.block), self._output)
            self.part.step(Delivered(cell.sender, answer))
        (emit,) = self.part.step(AllAnswered())
        self.counters = Counters(matches=emit.matches.table.num_rows)
        return [*_emitted(emit), Cell(CellKind.PULSE, watermark=emit.watermark)]


Stage: TypeAlias = WholeStage | FrontStage | InstanceStage | BackStage | GroupStage

_STAGES: dict[StagePart, Callable[[OperatorSpec], Stage]] = {
    StagePart.FRONT: FrontStage,
    StagePart.INSTANCE: InstanceStage,
    StagePart.BACK: BackStage,
}


def save_stage(spec: StageSpec, stage: Stage) -> bytes:
    """Return the state of an instance, with what tells whose it is."""
    return State(_header(spec), parts={"stage": stage.part.state()}).encode()


def restore_stage(spec: StageSpec, data: bytes | None, number: int = 0) -> Stage:
    """Return an instance of a stage, of a number, as it was saved; a new one where nothing was.

    Raises
    ------
    StateError
        The state is damaged, or of another version, query or number of instances.
    """
    stage = spec.make(number)
    if data is None:
        return stage
    saved = State.decode(data)
    header = saved.numbers
    for name, value in _header(spec).items():
        if header.get(name) != value:
            raise StateError(
                f"the saved state of the stream belongs to another query ({name} differs)"
                if name not in ("instances", "partitions")
                else f"the stream was started with {header.get(name)} {name} of '{spec.name}', "
                f"not {value}",
                hint="go on with the query and the settings that it was started with, or start "
                "with a new checkpoint folder from the retained input",
            )
    with reading():
        stage.part.restore(saved.part("stage"))
    return stage


def run_step(
    stage: Stage, cells: Iterable[Cell], number: int, place: int, now: int = NO_TIME
) -> list[Cell]:
    """Let instance `number` of the stage at a place in the chain (from 1 on) take a batch.

    `now` is the time of the batch, in microseconds, where the stage goes by it.

    Returns
    -------
    list of Cell
        The cells that it is not for, reports added up, and its own, numbered. Its own report is for
        the caller to add.
    """
    mine: list[Cell] = []
    others: list[Cell] = []
    reports: list[Cell] = []
    for cell in cells:
        taken = cell.kind in stage.takes
        (mine if taken else reports if cell.kind is CellKind.REPORT else others).append(cell)
    taken_cells = in_order(mine)
    if isinstance(stage, WholeStage | FrontStage | GroupStage):
        given = stage.step(taken_cells, now)
    else:
        given = stage.step(taken_cells)
    return [
        *others,
        *add_reports(reports),
        *(
            replace(cell, stage=place, sender=number, position=position)
            for position, cell in enumerate(given)
        ),
    ]


def _emitted(emit: Emit) -> list[Cell]:
    """Return what came out."""
    given = [(CellKind.MATCHES, emit.matches.table), (CellKind.TIMED_OUT, emit.timed_out)]
    return [
        Cell(kind, block=write_table(table), watermark=emit.watermark)
        for kind, table in given
        if table.num_rows
    ]


def _header(spec: StageSpec) -> dict[str, object]:
    return {
        "stage": spec.name,
        "query": spec.identity,
        "instances": spec.instances,
        "partitions": spec.partitions,
    }
