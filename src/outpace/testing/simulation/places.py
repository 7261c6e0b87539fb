"""Hosts of an operator, simulated: in one place, in several, and in stages with micro-batches.

Each drives the parts of the engine as a real host does and loses them at any step. What is lost is
made anew from its specification, restored from what was saved last, and given again what it was
given since; it must then say again what it said.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from random import Random
from typing import Any, Final

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.back import Back
from outpace.engine.codec.cell import Cell, CellKind
from outpace.engine.codec.table import read_table
from outpace.engine.front import Front
from outpace.engine.group import GroupOperator
from outpace.engine.instance import Instance
from outpace.engine.message import (
    Answer,
    Aside,
    ClockExchange,
    Deliver,
    Delivered,
    Emit,
    EventsArrived,
    Instruction,
    MarkSet,
    Routed,
    SetAside,
    SourceEnded,
    Stimulus,
    TimerFired,
    TurnEnded,
    WatermarkArrived,
    WentBack,
)
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.speculate.recall import SentRows
from outpace.engine.split.windows import Windows
from outpace.engine.state import State
from outpace.engine.wire import (
    event_ids,
    pack_events,
    read_answer,
    read_delivery,
    write_answer,
    write_delivery,
)
from outpace.errors import DataError
from outpace.pattern.bound import CONFIRMED, DIFF, MATCH
from outpace.pattern.query import Emission
from outpace.plan.plan import Plan
from outpace.plan.stream_plan import StageDivision
from outpace.testing.simulation.arrival import END, Batch, DrawnArrival, batches
from outpace.testing.simulation.trace import RunTrace, SimulationError, check, check_same
from outpace.testing.stream_chain import BatchOutput, Chain, States

#: What is said of matches that may change.
_CHANGES: Final = (MATCH, DIFF, CONFIRMED)
_WINDOWS: Final = tuple(column.name for column in fields(Windows))


@dataclass
class RunOutcome:
    """What came out of a run."""

    matches: list[dict[str, Any]] = field(default_factory=list)
    timed_out: list[dict[str, Any]] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    invalid: list[dict[str, Any]] = field(default_factory=list)

    def settle(self, emission: Emission) -> None:
        """Keep the matches that are left after all changes; only those that are there may go."""
        if emission is Emission.CONFIRMED:
            return
        if emission is Emission.LATEST:
            told = {row[MATCH]: row for row in self.matches}
            left = (row for row in told.values() if row[DIFF] > 0)
            self.matches = [{n: v for n, v in row.items() if n not in _CHANGES} for row in left]
            return
        current: list[dict[str, Any]] = []
        for row in self.matches:
            match = {name: value for name, value in row.items() if name not in _CHANGES}
            if row[DIFF] > 0:
                current.append(match)
            elif row[DIFF] < 0:
                check(match in current, f"a match goes that never came: {match}")
                current.remove(match)
        self.matches = current

    def take(self, instructions: Sequence[Instruction]) -> None:
        """Carry out instructions."""
        for one in instructions:
            match one:
                case Emit():
                    self.matches += one.matches.table.to_pylist()
                    self.timed_out += one.timed_out.to_pylist()
                case SetAside(kind=Aside.LATE):
                    self.late += one.rows.to_pylist()
                case SetAside(kind=Aside.INVALID):
                    self.invalid += one.rows.to_pylist()


@dataclass
class LossyPart:
    """A part, what it was saved as, and what it took and said since.

    Parameters
    ----------
    name
        Of the part.
    make
        Makes it anew.
    step
        Lets it take a message, and returns what it says.
    trace
        Where it is noted.
    encoded
        Whether it is saved as bytes by itself, and not as a snapshot alone.
    """

    name: str
    make: Callable[[], Any]
    step: Callable[[Any, Any], Any]
    trace: RunTrace
    encoded: bool = True
    part: Any = field(init=False)
    _saved: bytes | None = None
    _snapshot: Any = None
    _crashes: int = 0
    _since: list[tuple[Any, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.part = self.make()

    def take(self, message: Any) -> Any:
        """Let the part take a message."""
        answer = self.step(self.part, message)
        self._since.append((message, text_of(answer)))
        return answer

    def save(self) -> None:
        """Save the part; what it took before is not needed any more."""
        self._saved = self.part.state().encode() if self.encoded else b""
        self._snapshot = self.part.snapshot()
        self._since.clear()
        self.trace.say(f"save {self.name}: {len(self._saved)} bytes")

    def crash(self) -> None:
        """Lose the part and make it again, or roll it back to the snapshot, by turns."""
        self.trace.crash(f"crash {self.name}: {len(self._since)} messages again")
        self._crashes += 1
        if self._saved is None:
            self.part = self.make()
        elif self._crashes % 2 and self.encoded:
            self.part = self.make()
            self.part.restore(State.decode(self._saved))
        else:
            self.part = self._snapshot.snapshot()
        for message, answer in self._since:
            again = text_of(self.step(self.part, message))
            check_same(f"{self.name} says something else after a crash", [again], [answer])


def text_of(answer: object) -> str:
    """Return what a part said as text that is the same where it said the same."""
    match answer:
        case None | int() | str():
            return repr(answer)
        case list():
            return "; ".join(map(text_of, answer))
        case pa.Table():
            return f"{answer.column_names} {answer.to_pylist()}"
        case Emit():
            ids = answer.matches.ids.array.to_pylist()
            tables = text_of(answer.matches.table), text_of(answer.timed_out)
            return f"emit {answer.query} {tables} {ids} {answer.watermark}"
        case SetAside():
            return f"aside {answer.query} {answer.kind.value} {text_of(answer.rows)}"
        case Routed() | MarkSet() | WentBack():
            return repr(answer)
        case Deliver():
            events, split = answer.own_events, answer.split
            numbers = (events.partition, events.ordinal, events.arrival)
            windows = (split.opened, split.closed)
            return (
                f"deliver {answer.instance} {text_of(events.rows)} {[*map(_listed, numbers)]}"
                f" {[[_listed(getattr(each, name)) for name in _WINDOWS] for each in windows]}"
                f" {answer.arrived} {answer.watermark} {answer.ended} {answer.standing}"
            )
        case Answer():
            matches = answer.matches
            places = (matches.event, matches.phase, matches.window, matches.partition)
            promises = (answer.frontier, answer.horizon, answer.watermark, answer.open_windows)
            ids = matches.ids.array.to_pylist()
            return f"answer {text_of(matches.table)} {ids} {[*map(_listed, places)]} {promises}"
    raise AssertionError(f"nobody says {answer!r}")


def _listed(numbers: Any) -> list[int]:
    return [int(number) for number in numbers]


def line_of(stimulus: Stimulus) -> str:
    """Return a stimulus as a line of the trace."""
    match stimulus:
        case EventsArrived():
            of = "" if stimulus.source is None else f" of {stimulus.source}"
            return f"events{of}: {stimulus.rows.to_pylist()}"
        case WatermarkArrived():
            return f"time{'' if stimulus.source is None else ' of ' + stimulus.source}:" + (
                f" {stimulus.watermark}"
            )
        case TimerFired():
            return f"clock: {stimulus.at}"
        case SourceEnded():
            return f"end of {stimulus.source or 'all'}"
        case ClockExchange():
            return f"clock of {stimulus.source}"


# --- One place -----------------------------------------------------------------------------------


def run_in_one_place(
    make: Callable[[], WholeOperator | GroupOperator],
    arrival: DrawnArrival,
    random: Random,
    trace: RunTrace,
    *,
    saves: bool,
) -> dict[str, RunOutcome]:
    """Drive a whole operator, or a group of them, that is saved and lost now and then.

    Returns what came out of each query, by its name.
    """
    outcomes: dict[str, RunOutcome] = defaultdict(RunOutcome)
    kept = LossyPart("operator", make, lambda part, stimulus: part.step(stimulus), trace)
    steps: list[Stimulus] = [*arrival.steps, SourceEnded()]
    for number, stimulus in enumerate(steps, 1):
        trace.say(line_of(stimulus))
        answer = kept.take(stimulus)
        for instruction in answer:
            outcomes[instruction.query].take([instruction])
        trace.say(f"  {text_of(answer)}")
        if saves and number < len(steps):
            if isinstance(stimulus, EventsArrived):
                _refuse(kept, arrival, stimulus.rows, trace)
            if random.random() < 0.3:
                kept.save()
        if random.random() < 0.2:
            kept.crash()
        check_same("timer", [kept.part.timer], [arrival.timer(number)])
    operator: WholeOperator | GroupOperator = kept.part
    for one in operator.operators:
        check(not one.instance.open_windows, "windows are open after the end")
    check(not operator.order.buffered, "events wait after the end")
    return outcomes


def _refuse(kept: LossyPart, arrival: DrawnArrival, rows: pa.Table, trace: RunTrace) -> None:
    """Push a row that comes before others, or one without a time, which must change nothing."""
    if not arrival.query.order:
        return  # No row is wrong there.
    name, row = arrival.query.order[0].column, arrival.events.slice(0, 1)
    if not arrival.is_in_order:
        row = row.drop_columns([name])
    else:
        times = [*row[name].to_pylist(), *rows[name].to_pylist()]
        if len(times) < 2 or times[0] >= times[-1]:
            return
    trace.say(f"a row is wrong: {row.to_pylist()}")
    before = kept.part.state().encode()
    try:
        kept.part.step(EventsArrived(row))
    except DataError:
        check(kept.part.state().encode() == before, "a row that is refused changes the state")
    else:
        raise SimulationError("a row that is wrong is taken")


# --- Several places ------------------------------------------------------------------------------


class Places:
    """Front, instances and back, each in a place of its own, and what is on its way between them.

    An instance takes its deliveries in their order, and its answers come in their order; those of
    different instances come in any. Front and back hear of an answer at different times.
    """

    def __init__(self, spec: OperatorSpec, random: Random, trace: RunTrace, *, saves: bool) -> None:
        count = spec.instances or 1
        self._spec = spec
        self._random, self._trace, self._saves = random, trace, saves
        most = random.choice([1, 3, 1000])
        make = partial(Front, spec, block_size=lambda rows: min(most, int(rows.num_rows)))
        # Parts that go back together are saved together, too, with their oldest marks alone.
        apart = not spec.query.corrects
        self._front = LossyPart("front", make, Front.step, trace, apart)
        self._instances = [
            LossyPart(f"instance {number}", lambda: Instance(spec), Instance.step, trace, apart)
            for number in range(count)
        ]
        self._back = LossyPart("back", lambda: Back(spec), Back.step, trace, apart)
        #: Deliveries, and answers to front and back, that are on their way.
        self._sent: list[deque[Deliver]] = [deque() for _ in range(count)]
        self._to_front: list[deque[Delivered]] = [deque() for _ in range(count)]
        self._to_back: list[deque[Delivered]] = [deque() for _ in range(count)]
        #: How deliveries travel: as in one process, through shared memory, or as bytes.
        self._way = random.choice(["as it is", "memory", "bytes"])
        #: With corrections an instance is not sent again what it has.
        recalls = spec.corrects and spec.windows is not None and self._way != "as it is"
        self._rows = [(SentRows(), SentRows()) if recalls else None for _ in range(count)]
        #: How often something arrives, and how often each instance gets its turn: some are slow.
        self._pace = random.choice([0.05, 1.0, 5.0])
        self._speeds = [random.choice([0.05, 1.0, 1.0, 3.0]) for _ in range(count)]
        self.outcome = RunOutcome()

    def run(self, arrival: DrawnArrival) -> None:
        """Let everything happen, in an order that the seed decides."""
        steps: list[Stimulus] = [*arrival.steps, SourceEnded()]
        waiting = deque(steps)
        while True:
            came = len(steps) - len(waiting)
            check_same("timer", [self._front.part.timer], [arrival.timer(came)])
            turns: list[tuple[Callable[[], None], float]] = []
            if waiting:
                turns.append((lambda: self._arrive(waiting.popleft()), self._pace))
            for number, speed in enumerate(self._speeds):
                for queue, act in (
                    (self._sent, self._work),
                    (self._to_front, self._tell_front),
                    (self._to_back, self._tell_back),
                ):
                    if queue[number]:
                        turns.append((partial(act, number), speed))
            if not turns:
                break
            acts, weights = zip(*turns, strict=True)
            self._random.choices(acts, weights)[0]()
            self._fail()
        self._check_end()

    def _arrive(self, stimulus: Stimulus) -> None:
        self._trace.say(line_of(stimulus))
        for message in self._front.take(stimulus):
            match message:
                case SetAside():
                    self.outcome.take([message])
                case Deliver():
                    self._trace.say(f"  {message.size} events to instance {message.instance}")
                    self._back.take(message)
                    self._sent[message.instance].append(self._travelled(message))
                case _:
                    self._back.take(message)
        self._emit()

    def _work(self, number: int) -> None:
        answer = self._instances[number].take(self._sent[number].popleft())
        self._trace.say(f"instance {number}: {text_of(answer)}")
        if self._way != "as it is":
            answer = read_answer(pa.py_buffer(write_answer(answer)), self._spec.found_columns)
        self._to_front[number].append(Delivered(number, answer))
        self._to_back[number].append(Delivered(number, answer))

    def _tell_front(self, number: int) -> None:
        self._trace.say(f"front hears of instance {number}")
        self._front.take(self._to_front[number].popleft())

    def _tell_back(self, number: int) -> None:
        self._trace.say(f"back hears of instance {number}")
        self._back.take(self._to_back[number].popleft())
        self._emit()

    def _emit(self) -> None:
        answer = self._back.take(TurnEnded())
        self.outcome.take(answer)
        if any(len(emit.matches) for emit in answer):
            self._trace.say(f"  {text_of(answer)}")

    def _fail(self) -> None:
        """Save or lose a part, now and then."""
        random = self._random
        if self._saves and random.random() < 0.15:
            random.choice([self._front, self._back, *self._instances]).save()
        if random.random() < 0.1:
            random.choice([self._front, self._back, *self._instances]).crash()

    def _travelled(self, delivery: Deliver) -> Deliver:
        """Return a delivery as an instance gets it."""
        if self._way == "as it is":
            return delivery
        if (rows := self._rows[delivery.instance]) is not None:
            sender, receiver = rows
            assert delivery.standing is not None
            sender.stand(delivery.standing)
            data = pa.py_buffer(write_delivery(delivery, self._spec, sent=sender))
            sender.add(event_ids(delivery.own_events))
            return read_delivery(data, self._spec, sent=receiver)
        if self._way == "bytes":
            return read_delivery(pa.py_buffer(write_delivery(delivery, self._spec)), self._spec)
        data = pa.py_buffer(write_delivery(delivery, self._spec, apart=True))
        columns = self._spec.kept.names
        # Without windows also the events of others are read, which tell the time.
        read = delivery.size or (self._spec.windows is None and len(delivery.events.arrival))
        block = pack_events(delivery.events, columns) if read else None
        return read_delivery(data, self._spec, block)

    def _check_end(self) -> None:
        front, back = self._front.part, self._back.part
        check(back.settled, "the back waits for an answer")
        check(not back.counters().waiting, "matches wait after the end")
        check(not any(front.counters().loads), "an instance has a load after the end")
        for kept in self._instances:
            check(not kept.part.open_windows, f"{kept.name} has windows open after the end")
            check(not kept.part.rows_kept, f"{kept.name} keeps rows after the end")


# --- Stages --------------------------------------------------------------------------------------


class Stages:
    """A query as stages that are run batch by batch, as a cluster does.

    The cells of a batch come in any order, its rows in any number of tasks. A batch that was lost
    is run again from the states before it, and must give the same cells and states. After each
    batch all has come out that must have by then.

    Parameters
    ----------
    plan
        The stages.
    expected
        Returns what must have come out where so many events have had their turn, and time has come
        so far.
    random, trace
        What decides, and where it is noted.
    """

    def __init__(
        self,
        plan: Plan[StageDivision],
        expected: Callable[[int, int], list[Any]],
        random: Random,
        trace: RunTrace,
    ) -> None:
        self._plan = plan
        self._expected = expected
        self._random, self._trace = random, trace
        self._chain = Chain(plan.division.stages)
        self.outcome = RunOutcome()
        self.late = 0
        self.pulse = int(NO_TIME)
        #: What a pulse promised before each match came.
        self.promised: list[int] = []

    def run(self, arrival: DrawnArrival) -> None:
        """Run all batches, and one that lets time pass."""
        for number, batch in enumerate(batches(arrival), 1):
            self._batch(batch)
            if (progress := arrival.progress) is not None:
                by_then = [*progress, (arrival.events.num_rows, END)][number - 1]
                found, expected = self.outcome.matches, self._expected(*by_then)
                check_same("by now", sorted(map(repr, found)), sorted(map(repr, expected)))
            check_same("timer", [self._chain.timer], [arrival.timer(number)])

    def _batch(self, batch: Batch) -> None:
        rows = None if batch.rows is None else batch.rows.to_pylist()
        self._trace.say(f"batch at {batch.now} until {batch.told}: {rows}")
        cells = [] if batch.rows is None else self._packed(batch.rows, batch.told)
        given, states = self._run(cells, batch.now)
        while self._random.random() < 0.3:
            self._trace.crash("the batch is lost and run again")
            again, same = self._run(cells, batch.now)
            check_same("a batch that is run again", again.own_cells, given.own_cells)
            check(states == same, "the states after a batch that is run again differ")
        self._chain.states = states
        self._take(given)

    def _packed(self, rows: pa.Table, time: int) -> list[Cell]:
        cut = self._random.randint(0, rows.num_rows)
        cells = []
        for task, part in enumerate((rows.slice(0, cut), rows.slice(cut))):
            for position, cell in enumerate(self._plan.division.packing.pack(part, time)):
                cells.append(replace(cell, sender=task, position=position))
        return cells

    def _run(self, cells: Sequence[Cell], now: int) -> tuple[BatchOutput, States]:
        given, states = self._chain.crash(self._random.sample(cells, len(cells)), now)
        # Buffers are compared by what they hold.
        held = [replace(cell, block=bytes(cell.block)) for cell in given.cells]
        return replace(given, cells=held), states

    def _take(self, given: BatchOutput) -> None:
        outcome = self.outcome
        before = len(outcome.matches)
        for kind, rows in (
            (CellKind.MATCHES, outcome.matches),
            (CellKind.TIMED_OUT, outcome.timed_out),
            (CellKind.LATE, outcome.late),
            (CellKind.INVALID, outcome.invalid),
        ):
            for cell in given.cells:
                if cell.kind is kind:
                    rows += read_table(cell.block).to_pylist()
        self.late += sum(counters.late for counters in given.counters[0])
        self.promised += [self.pulse] * (len(outcome.matches) - before)
        pulses = [cell.watermark for cell in given.cells if cell.kind is CellKind.PULSE]
        self.pulse = min(pulses, default=self.pulse)
        self._trace.say(f"  {outcome.matches[before:]}, time {self.pulse}")
