"""The parts of an operator as stages: cells in and cells out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.back import Back
from outpace.engine.cell_input import CellInput, TakenCells
from outpace.engine.codec.cell import Cell, CellKind, Counters
from outpace.engine.codec.table import write_table
from outpace.engine.emission import emitted_together
from outpace.engine.front import Front
from outpace.engine.group import GroupOperator
from outpace.engine.group_spec import GroupSpec, joined_rows
from outpace.engine.instance import Instance
from outpace.engine.message import (
    Answer,
    Deliver,
    Delivered,
    Emit,
    HostLoad,
    Routed,
    TurnEnded,
)
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.wire import (
    read_answer,
    read_delivery,
    read_moves,
    write_answer,
    write_delivery,
    write_moves,
)


class EventStage(ABC):
    """A stage that takes events as they were packed."""

    takes = CellInput.takes
    part: WholeOperator | GroupOperator | Front
    counters = Counters()
    _arriving: CellInput

    @property
    def timer(self) -> int | None:
        """When, by the time of batches, it wants to take a step; None where never."""
        return self.part.timer

    def step(
        self, cells: Sequence[Cell], now: int = NO_TIME, load: HostLoad | None = None
    ) -> list[Cell]:
        """Order the events of a batch, in whatever order they come, and let time pass."""
        return self._given(self._arriving.take(cells, now, load))

    @abstractmethod
    def _given(self, taken: TakenCells) -> list[Cell]:
        """Return what comes of the cells of a batch, and count it."""


class WholeStage(EventStage):
    """The whole operator, or those of a group: an instance has the events of its keys, or all."""

    part: WholeOperator | GroupOperator

    def __init__(self, spec: OperatorSpec | GroupSpec, number: int) -> None:
        #: The columns of what the queries of a group give together, by why; None for one query.
        self._joined: dict[CellKind, pa.Schema] | None = None
        if isinstance(spec, GroupSpec):
            self.part, self._queries = GroupOperator(spec, number), spec.queries
            self._joined = {CellKind.MATCHES: spec.output, CellKind.TIMED_OUT: spec.timed_out}
        else:
            self.part, self._queries = self._operator(spec, number), (spec.query,)
        self._arriving = CellInput(spec, self.part)

    def _operator(self, spec: OperatorSpec, number: int) -> WholeOperator:
        """Return a new operator of one query."""
        return WholeOperator(spec, number)

    def _given(self, taken: TakenCells) -> list[Cell]:
        emits = self._together([one for one in taken.said if isinstance(one, Emit)])
        instances = [one.instance for one in self.part.operators]
        self.counters = replace(
            taken.counters,
            matches=sum(emit.matches.table.num_rows for emit in emits),
            timed_out=sum(emit.timed_out.num_rows for emit in emits),
            kept=sum(one.rows_kept for one in instances),
            partials=sum(one.starts_kept() for one in instances),
            open_windows=sum(one.open_windows for one in instances),
            keys=max(one.partitions_kept for one in instances),
        )
        if self._joined is not None:
            return [*_joined(emits, self._joined), *taken.aside]
        watermark = emits[-1].watermark
        pulse = [Cell(CellKind.PULSE, watermark=watermark)] if watermark != NO_TIME else []
        found = [cell for emit in emits for cell in _emitted(emit)]
        return [*found, *taken.aside, *pulse]

    def _together(self, emits: Sequence[Emit]) -> list[Emit]:
        """Return what each query gives in a batch, whose steps are one to who reads of it."""
        given = []
        for query in self._queries:
            own = [emit for emit in emits if emit.query == query.name]
            joint = emitted_together(query, [emit.matches for emit in own])
            given += [replace(emit, matches=one) for emit, one in zip(own, joint, strict=True)]
        return given


class FrontStage(EventStage):
    """The front alone: each instance of the next stage gets a cell in every batch, or several."""

    part: Front

    def __init__(self, spec: OperatorSpec) -> None:
        self.part = Front(spec)
        self._arriving = CellInput(spec, self.part)
        self._spec = spec

    def _given(self, taken: TakenCells) -> list[Cell]:
        self.counters, messages = taken.counters, taken.said
        # How far time has come counts after the last delivery of a batch alone.
        watermark = [one for one in messages if isinstance(one, Routed)][-1].watermark
        messages = [*messages, *self.part.step(TurnEnded())]
        deliveries = [
            replace(one, watermark=watermark) for one in messages if isinstance(one, Deliver)
        ]
        given = [
            Cell(CellKind.EVENTS, delivery.instance, write_delivery(delivery, self._spec))
            for delivery in deliveries
        ]
        moves = Cell(CellKind.MOVES, block=write_moves(messages))
        return [*given, moves, *taken.aside]


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
    """The back alone: the matches of a batch are complete, and come out at once."""

    takes = frozenset({CellKind.EVENTS, CellKind.MOVES})
    timer = None

    def __init__(self, spec: OperatorSpec) -> None:
        self.part = Back(spec)
        self._spec = spec
        self.counters = Counters()

    def step(self, cells: Sequence[Cell]) -> list[Cell]:
        """Take what the instances found in a batch."""
        known = self.part.changes
        answers: list[deque[Answer]] = [deque() for _ in range(self._spec.instances or 1)]
        for cell in (one for one in cells if one.kind is CellKind.EVENTS):
            answers[cell.sender].append(
                read_answer(pa.py_buffer(cell.block), self._spec.found_columns)
            )
        for cell in (one for one in cells if one.kind is CellKind.MOVES):
            for move in read_moves(pa.py_buffer(cell.block), self._spec):
                self.part.step(move)
                if isinstance(move, Deliver):
                    answer = answers[move.instance].popleft()
                    self.part.step(Delivered(move.instance, answer))
        (emit,) = self.part.step(TurnEnded())
        self.counters = Counters(
            matches=emit.matches.table.num_rows, **self.part.changes.since(known)
        )
        return [*_emitted(emit), Cell(CellKind.PULSE, watermark=emit.watermark)]


def _emitted(emit: Emit) -> list[Cell]:
    """Return what came out."""
    given = [(CellKind.MATCHES, emit.matches.table), (CellKind.TIMED_OUT, emit.timed_out)]
    return [
        Cell(kind, block=write_table(table), watermark=emit.watermark)
        for kind, table in given
        if table.num_rows
    ]


def _joined(emits: Sequence[Emit], schemas: Mapping[CellKind, pa.Schema]) -> list[Cell]:
    """Return what came out of several queries, as one table of each kind."""
    cells = []
    for kind, schema in schemas.items():
        timed = kind is CellKind.TIMED_OUT
        given = ((one.query, one.timed_out if timed else one.matches.table) for one in emits)
        tables = [joined_rows({name: rows}, schema) for name, rows in given if rows.num_rows]
        if tables:
            cells.append(Cell(kind, block=write_table(pa.concat_tables(tables))))
    return cells
