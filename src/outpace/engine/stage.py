"""Stages: the parts of an operator as a host with micro-batches runs them, cells in and cells out.

In every batch that has any event, each instance of a stage takes one step with all cells that are
for it; so each hears how far time has come, even where no event is for it. A stage that goes by the
clock has one instance, which takes a step in a batch without events when its timer is due. A step
is a function of the state, the time of the batch and the cells, in whatever order these come: a
batch that is run again gives the same. Between two batches the state of an instance is one run of
bytes.

A stage is the whole operator, or one part of it: the front alone orders, numbers and splits events;
instances match windows; the back merges their matches. The operators of several queries are one
stage, too. Of an operator whose events come from a log the state need not be saved: its savepoint
is, and who has no more reads the events again that it needs.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.back import Back
from outpace.engine.cell_input import CellInput, TakenCells
from outpace.engine.codec.cell import Cell, CellKind, Counters, add_reports, in_order
from outpace.engine.codec.table import write_table
from outpace.engine.emission import emitted_together
from outpace.engine.event import EVENT_ID
from outpace.engine.front import Front
from outpace.engine.group import GroupOperator
from outpace.engine.group_spec import GroupSpec, joined_rows
from outpace.engine.instance import Instance
from outpace.engine.match.contract import Matcher
from outpace.engine.message import (
    Answer,
    Deliver,
    Delivered,
    Emit,
    HostLoad,
    MatchesAcknowledged,
    Routed,
    TurnEnded,
)
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.packing import Packing
from outpace.engine.recover.log_places import LogPiece, LogPlaces
from outpace.engine.recover.recoverable import RecoverableOperator, savepoint_of
from outpace.engine.savepoint import Savepoint
from outpace.engine.state import NATURAL, State, integer, integers, reading, require
from outpace.engine.wire import (
    read_answer,
    read_delivery,
    read_moves,
    write_answer,
    write_delivery,
    write_moves,
)
from outpace.errors import StateError


class StagePart(Enum):
    """Which part of the operator a stage is, by its name in `explain()` and in metrics."""

    WHOLE = "order + match"
    FRONT = "order + split"
    INSTANCE = "match"
    BACK = "merge"
    GROUP = "order + match of all"


#: The column with the numbers of events that an instance needs.
_NUMBER: Final = "__outpace_number"

#: Reads the rows of a log between two offsets, piece by piece.
ReadLog: TypeAlias = Callable[[int, int], Iterable[LogPiece]]


@dataclass(frozen=True)
class LogReplay:
    """How an instance gets the events of a log again.

    Parameters
    ----------
    packing
        How rows are packed.
    log
        What tells the log from others.
    """

    packing: Packing
    log: int


@dataclass(frozen=True)
class StageSpec:
    """The specification of a stage, for the planner and for the host that runs it.

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
    replay
        How an instance gets events again, where no state is saved but savepoints; None where the
        state is.
    """

    part: StagePart
    instances: int
    operator: OperatorSpec | GroupSpec
    identity: str
    partitions: int = 1
    replay: LogReplay | None = None

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

    @property
    def measured(self) -> bool:
        """Whether its instance wants to know what its steps take."""
        if isinstance(self.operator, GroupSpec):
            return self.operator.speculates
        orders = self.part in (StagePart.WHOLE, StagePart.FRONT)
        return orders and self.operator.query.speculates

    def make(self, number: int = 0) -> Stage:
        """Return a new instance, of a number."""
        if isinstance(self.operator, GroupSpec) or self.part is StagePart.WHOLE:
            if self.replay is None:
                return WholeStage(self.operator, number)
            assert isinstance(self.operator, OperatorSpec), "each query has savepoints of its own"
            return ReplayedStage(self.operator, number)
        return _STAGES[self.part](self.operator)


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


class ReplayedStage(WholeStage):
    """The whole operator, of which a savepoint is saved, and which is rebuilt by a replay.

    A host that keeps the output of a batch together with what is saved after it, or neither, calls
    `acknowledge` between the two, so that no replay gives a match again.
    """

    part: RecoverableOperator

    def __init__(self, spec: OperatorSpec, number: int) -> None:
        super().__init__(spec, number)
        self._number = number
        self._places = LogPlaces()
        #: The last savepoint; None where a batch came since, or none was made.
        self._savepoint: Savepoint | None = None
        #: The events that the last savepoint needs, and those that came since, with their numbers.
        self._events: list[pa.Table] = []
        #: How many events the replay took that it was rebuilt by; None where it was not, or long
        #: ago.
        self._replayed: int | None = None

    def _operator(self, spec: OperatorSpec, number: int) -> RecoverableOperator:
        return RecoverableOperator(spec, number)

    def _given(self, taken: TakenCells) -> list[Cell]:
        given, self._savepoint = super()._given(taken), None
        number = self.part.came - sum(rows.num_rows for _, rows in taken.logged)
        for cell, rows in taken.logged:
            self._places.add(number, rows.num_rows, cell.first, cell.stop)
            if rows.num_rows:
                self._events.append(self._numbered(rows, number))
            number += rows.num_rows
        if self._replayed is not None:
            self.counters = replace(self.counters, replays=1, replayed=self._replayed)
            self._replayed = None
        return given

    def acknowledge(self) -> None:
        """Take all matches that came out as kept, and drop the events that none needs any more."""
        part, places = self.part, self._places
        savepoint = savepoint_of(part.step(MatchesAcknowledged(part.last_match)))
        needed = part.needed
        if len(needed):
            places.trim(int(needed[0]))
            events = pa.concat_tables(self._events)
            numbers = events.column(_NUMBER).to_numpy()
            self._events = [events.take(pa.array(np.searchsorted(numbers, needed)))]
        else:
            places.clear()
            self._events = []
        self._savepoint = savepoint.keeping(needed)

    def state(self) -> State:
        """Return the savepoint, and where in the log the events begin that it needs."""
        assert self._savepoint is not None, "what came out is acknowledged before it is saved"
        places = self._places
        offset, number = places.first or (places.until, self.part.came)
        packed = np.frombuffer(self._savepoint.encode(), np.int8)
        table = pa.table({"savepoint": packed.astype(np.int64)})
        return State({"offset": offset, "number": number, "until": places.until}, [table])

    @property
    def soft(self) -> State | None:
        """The events that the last savepoint needs, for `recall`; None where it needs none."""
        if not self._events:
            return None
        return State({}, self._events, {"places": self._places.state()})

    def recall(self, saved: State, soft: State) -> None:
        """Stand where `state` was, with what `soft` was then."""
        savepoint = self._read(saved)
        _, (events,) = soft.content(1)
        columns = self._numbered(self.part.spec.schema.empty_table(), 0).schema
        require(events.schema.equals(columns), "events have other columns")
        (numbers,) = integers(events.select([_NUMBER]), **{_NUMBER: range(savepoint.at)})
        require((np.diff(numbers) > 0).all(), "events do not rise")
        self._places.restore(soft.part("places"))
        self._stand(savepoint, events)

    def rebuild(self, saved: State, packing: Packing, read: ReadLog) -> None:
        """Stand where `state` was, with the events of the log."""
        savepoint, header = self._read(saved), saved.numbers
        offset, number, until = (
            integer(header, name, NATURAL) for name in ("offset", "number", "until")
        )
        places = LogPlaces(offset)
        kept = [self._numbered(self.part.spec.schema.empty_table(), 0)]
        for piece in read(offset, until) if offset < until else ():
            own = self._own(packing, piece)
            places.add(number, own.num_rows, piece.first, piece.stop)
            wanted = ~savepoint.drops(np.arange(number, number + own.num_rows))
            kept.append(self._numbered(own, number).filter(pa.array(wanted)))
            number += own.num_rows
        if number != savepoint.at:
            raise StateError(
                "the log has other events than those that were read from it",
                detail=f"{number:,} and not {savepoint.at:,} of '{self._queries[0].name}' before "
                f"offset {until:,}, read again from offset {offset:,}",
                hint="start with a new checkpoint folder; keep the events of a log that a stream "
                "still needs",
            )
        places.until, self._places = until, places
        events = pa.concat_tables(kept)
        self._stand(savepoint, events)
        self._replayed = events.num_rows if offset < until else None

    def _read(self, saved: State) -> Savepoint:
        """Return the savepoint of what `state` returned, which is that of this query."""
        _, (table,) = saved.content(1)
        (packed,) = integers(table, savepoint=range(-128, 128))
        savepoint = Savepoint.decode(packed.astype(np.int8).tobytes())
        self.part.check(savepoint)
        return savepoint

    def _stand(self, savepoint: Savepoint, events: pa.Table) -> None:
        """Let the operator stand where a savepoint was made, with the events that it needs."""
        numbers = events.column(_NUMBER).to_numpy()
        ids = pa.array(self.part.intake.ids_at(numbers))
        rows = events.drop_columns([_NUMBER]).append_column(EVENT_ID, ids)
        with reading():
            self.part.rebuild(savepoint, rows, numbers)
        self._events = [events] if len(numbers) else []
        self._savepoint = savepoint

    def _numbered(self, rows: pa.Table, first: int) -> pa.Table:
        """Return events with their numbers, of which the first is known."""
        numbers = np.arange(first, first + rows.num_rows)
        return rows.append_column(pa.field(_NUMBER, pa.int64()), pa.array(numbers))

    def _own(self, packing: Packing, piece: LogPiece) -> pa.Table:
        """Return the events of a piece that are its own, as they came."""
        cells = packing.pack(piece.rows)
        own = [
            self._arriving.read(cell)
            for cell in cells
            if cell.kind is CellKind.EVENTS and cell.instance == self._number
        ]
        return pa.concat_tables([self.part.spec.schema.empty_table(), *own])


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


Stage: TypeAlias = WholeStage | FrontStage | InstanceStage | BackStage

_STAGES: dict[StagePart, Callable[[OperatorSpec], Stage]] = {
    StagePart.FRONT: FrontStage,
    StagePart.INSTANCE: InstanceStage,
    StagePart.BACK: BackStage,
}


def save_stage(spec: StageSpec, stage: Stage) -> bytes:
    """Return the state of an instance, with what tells whose it is."""
    state = stage.state() if isinstance(stage, ReplayedStage) else stage.part.state()
    return State(_header(spec), parts={"stage": state}).encode()


def restore_stage(
    spec: StageSpec,
    data: bytes | None,
    number: int = 0,
    read: ReadLog | None = None,
    soft: State | None = None,
) -> Stage:
    """Return an instance of a stage, of a number, as it was saved; a new one where nothing was.

    Where savepoints are saved, `read` reads the log that the events came from, unless `soft` is
    what `ReplayedStage.soft` was then.

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
    if (replayed := "log" in header) != (spec.replay is not None):
        raise StateError(
            f'the stream was started {"with" if replayed else "without"} recovery="replay"',
            hint="go on as it was started, or start with a new checkpoint folder from the "
            "retained input",
        )
    for name, value in _header(spec).items():
        if header.get(name) != value and name == "log":
            raise StateError(
                "the saved state of the stream belongs to another log",
                hint="go on with the log that it was started with, wherever that is now, or start "
                "with a new checkpoint folder",
            )
        if header.get(name) != value:
            raise StateError(
                f"the saved state of the stream belongs to another query ({name} differs)"
                if name not in ("instances", "partitions")
                else f"the stream was started with {header.get(name)} {name} of '{spec.name}', "
                f"not {value}",
                hint="go on with the query and the settings that it was started with, or start "
                "with a new checkpoint folder from the retained input",
            )
    if isinstance(stage, ReplayedStage):
        assert spec.replay is not None, "the stage was made by it"
        assert read is not None, "somebody reads the log"
        if soft is not None:
            with suppress(StateError):
                stage.recall(saved.part("stage"), soft)
                return stage
            stage = spec.make(number)
            assert isinstance(stage, ReplayedStage), "it is one"
        stage.rebuild(saved.part("stage"), spec.replay.packing, read)
        return stage
    with reading():
        stage.part.restore(saved.part("stage"))
    return stage


def run_step(
    stage: Stage,
    cells: Iterable[Cell],
    number: int,
    place: int,
    now: int = NO_TIME,
    load: HostLoad | None = None,
) -> list[Cell]:
    """Let instance `number` of the stage at a place in the chain (from 1 on) take a batch.

    `now` is the time of the batch, in microseconds, where the stage goes by it; `load` is what
    was measured before it, where something follows that.

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
    if isinstance(stage, EventStage):
        given = stage.step(taken_cells, now, load)
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


def _header(spec: StageSpec) -> dict[str, object]:
    header: dict[str, object] = {
        "stage": spec.name,
        "query": spec.identity,
        "instances": spec.instances,
        "partitions": spec.partitions,
    }
    if spec.replay is not None:
        # A savepoint is small, and so is what is beside it.
        header["query"] = hashlib.sha256(spec.identity.encode()).hexdigest()[:16]
        header["log"] = spec.replay.log
    return header
