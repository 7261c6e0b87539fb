"""The operator of the study `speculation` on a clock of its own: real parts, measured costs.

Front, instances and back are those of the engine, each message of theirs is real, and what a step
takes is measured. One machine does all steps, one after the other; the clock of the run has them
where they would be: a host has front and back, and each instance has a processor of its own.

    events  ->  host: front, back  ->  instance 0   its queue, one delivery after the other
                        ^          ->  instance 1
                        |__ answers __/

The paper's instances are busy for 100 microseconds with each event of each window. Nobody waits for
that here: it is added to the clock.
"""

from __future__ import annotations

import heapq
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Floats, Integers
from outpace.engine.back import Back
from outpace.engine.front import Front
from outpace.engine.instance import Instance
from outpace.engine.message import (
    Answer,
    Deliver,
    Delivered,
    Emit,
    EventsArrived,
    HostLoad,
    MarkSet,
    Move,
    Routed,
    SetAside,
    SourceEnded,
    Stimulus,
    TurnEnded,
    WentBack,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.times import as_integers
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bound import DIFF
from outpace.pattern.disorder import Disorder
from outpace.pattern.query import Query
from outpace.studies.speculation_stream import APART, loads_of, sequence_query

#: What is compared.
K_SLACK, SPECULATION = "K-slack", "speculation"
#: What an instance does for an event of a window, in seconds (section 7.6.1).
LOAD_S: Final = 100e-6
#: The host takes what came in so long, in seconds.
TURN_S: Final = 20e-3
#: Events that it takes at once, and windows of them that an instance may have without an answer.
_MOST: Final = 4096
_WINDOWS_AHEAD: Final = 2
#: More go to instances while one of them has less than so many deliveries.
_DELIVERIES_AHEAD: Final = 2
#: The load is measured over so long, in seconds, as hosts do.
_STRETCH_S: Final = 0.1
#: A step takes as long as the median of so many of its kind, and of so many at least.
_ALIKE: Final = 31
_ALIKE_LEAST: Final = 5

Output = TypeVar("Output")


class MeasuredCosts:
    """What steps take: for each the median of the last ones of its kind and about its size.

    What else happens on the machine does not count then.
    """

    def __init__(self) -> None:
        self._alike: dict[tuple[str, int], deque[float]] = defaultdict(lambda: deque(maxlen=_ALIKE))
        #: What counts from now on, by kind and size; None while it is measured.
        self._settled: dict[str, dict[int, float]] | None = None

    def settle(self) -> None:
        """Let what was measured count from now on, so that runs differ in what they do alone.

        A step of a size that was not measured, or hardly, takes as long as the next one in size.
        """
        kinds: dict[str, dict[int, deque[float]]] = defaultdict(dict)
        for (kind, size), alike in self._alike.items():
            kinds[kind][size] = alike
        self._settled = {}
        for kind, sizes in kinds.items():
            least = min(_ALIKE_LEAST, max(map(len, sizes.values())))
            known = {size: alike for size, alike in sizes.items() if len(alike) >= least}
            self._settled[kind] = {size: statistics.median(one) for size, one in known.items()}

    def of(
        self,
        act: Callable[[], Output],
        kind: str | Callable[[Output], str],
        size: int = 0,
        pieces: Callable[[Output], int] = lambda made: 1,
    ) -> tuple[Output, float]:
        """Do something and return what it gave, and how many seconds count for it.

        Where only what it gave tells the kind, that is a function of it, and so is in how many
        pieces it was done, each of which takes its part of the time.
        """
        began = time.process_time()
        made = act()
        took = time.process_time() - began
        count = pieces(made)
        name, about = kind if isinstance(kind, str) else kind(made), (size // count).bit_length()
        if self._settled is not None and (known := self._settled.get(name)):
            return made, count * known[min(known, key=lambda one: (abs(one - about), one))]
        alike = self._alike[name, about]
        alike.append(took / count)
        return made, count * statistics.median(alike)


@dataclass(frozen=True)
class RunSetting:
    """What runs, and how events come.

    Parameters
    ----------
    disorder
        How events are brought into order.
    size, slide
        The windows, in events.
    instances
        How many.
    rate
        Events that come in a second.
    """

    disorder: Disorder
    size: int
    slide: int
    instances: int
    rate: float

    @property
    def query(self) -> Query:
        """The query."""
        return sequence_query(self.size, self.slide, self.instances).disorder(self.disorder)

    def spec(self, schema: pa.Schema) -> OperatorSpec:
        """Return the operator."""
        query = self.query
        return OperatorSpec(query, schema, disorder=bind_disorder(query, schema)).shared


def able_rate(size: int, slide: int, instances: int) -> float:
    """Return the events in a second that instances could do if nothing took time but their load.

    >>> able_rate(1000, 100, 2) == 0.2 / LOAD_S
    True
    """
    return instances * slide / size / LOAD_S


@dataclass
class SpeculationRun:
    """What came of a run; times are in seconds, by event in the order of their times.

    Parameters
    ----------
    arrived
        When events came.
    tentative
        When all instances had done what they got of an event for the first time.
    confirmed
        When they had done it for the last time, and nothing could change it any more.
    ended
        When all was done.
    late
        Events that came after more than K.
    corrections, again
        How often the operator went back, and how many events went on once more.
    marks
        How many checkpoints there were.
    given, retracted
        Matches that came out, and that were taken back.
    """

    arrived: Floats
    tentative: Floats
    confirmed: Floats
    ended: float = 0.0
    late: int = 0
    corrections: int = 0
    again: int = 0
    marks: int = 0
    given: int = 0
    retracted: int = 0
    costs: MeasuredCosts = field(default_factory=MeasuredCosts)
    matches: list[pa.Table] = field(default_factory=list)

    @staticmethod
    def begun(
        stream: pa.Table, rate: float, *, costs: MeasuredCosts | None = None
    ) -> SpeculationRun:
        """Return a run of which nothing is done yet: so many of the events come in a second."""
        count = stream.num_rows
        arrived, nothing = np.empty(count), np.full(count, np.nan)
        arrived[as_integers(stream.column("ts")) // APART] = np.arange(1, count + 1) / rate
        return SpeculationRun(arrived, nothing, nothing.copy(), costs=costs or MeasuredCosts())

    @property
    def throughput(self) -> float:
        """Events in a second."""
        return len(self.arrived) / self.ended

    def latency(self, of: Floats, begin: float = 0.0, end: float = 1.0) -> Floats:
        """Return how long events waited that came in a part of the run, in milliseconds."""
        places = np.argsort(self.arrived, kind="stable")
        count = len(places)
        places = places[int(begin * count) : int(end * count)]
        waited = (of - self.arrived)[places]
        return 1000 * waited[np.isfinite(waited)]


@dataclass
class _EventBatch:
    """Events that went on together: their places, and how many instances have not answered."""

    events: Integers
    due: int = 0


class VirtualHost:
    """Drives the parts of an operator on a clock of its own.

    Parameters
    ----------
    setting
        What runs.
    stream
        The events, in the order in which they come.
    keeps
        Whether matches are kept.
    costs
        What steps of other runs took, where those count for this one, too.
    """

    def __init__(
        self,
        setting: RunSetting,
        stream: pa.Table,
        *,
        keeps: bool = False,
        costs: MeasuredCosts | None = None,
    ) -> None:
        spec = setting.spec(stream.schema)
        self._setting, self._stream, self._keeps = setting, stream, keeps
        self._front, self._back = Front(spec), Back(spec)
        self._instances = [Instance(spec) for _ in range(setting.instances)]
        count = stream.num_rows
        self._times = as_integers(stream.column("ts"))
        self.run = SpeculationRun.begun(stream, setting.rate, costs=costs)
        self._arrivals = self.run.arrived[self._times // APART]
        #: When events were certain, and when instances had done them last.
        self._sure, self._done = np.full(count, np.nan), np.full(count, np.nan)
        self._certain = 0
        #: Which events have gone on.
        self._gone = np.zeros(count, np.bool_)
        self._now, self._turn = 0.0, 0.0
        #: When each instance has done all that it got, and how long it has been busy since.
        self._free = [0.0] * setting.instances
        self._busy: list[deque[tuple[float, float]]] = [deque() for _ in self._free]
        self._asked = 0.0
        #: Events and deliveries of each without an answer.
        self._unanswered = [0] * setting.instances
        self._waiting = [0] * setting.instances
        #: Answers that are on their way: when they come, a number, who, what, and of which block.
        self._answers: list[tuple[float, int, int, Answer, _EventBatch]] = []
        self._sent = 0

    def drive(self) -> SpeculationRun:
        """Let all events come, and wait for all answers."""
        count, taken = self._stream.num_rows, 0
        while taken < count or self._answers:
            if self._answers and self._answers[0][0] <= self._now:
                self._hear()
                continue
            came = int(np.searchsorted(self._arrivals, self._now, "right"))
            if came > taken and self._now >= self._turn and self._room:
                rows = self._stream.slice(taken, min(_MOST, came - taken))
                taken += rows.num_rows
                self._turn = self._now + TURN_S
                arrival = int(self._now * 1e6)
                self._step(EventsArrived(rows, arrival=arrival, load=self._load()), rows.num_rows)
                if taken == count:
                    self._step(SourceEnded(), 0)
                continue
            self._now = self._next(taken)
        self.run.ended = self._now
        return self.run

    @property
    def _room(self) -> bool:
        """Whether somebody has nothing to do soon; who is far behind may stop all others.

        What is wrong is corrected before more comes that may be late, as other hosts do it.
        """
        if self._back.goes_back:
            return False
        ahead = max(self._unanswered) < _WINDOWS_AHEAD * self._setting.size
        return ahead and min(self._waiting) < _DELIVERIES_AHEAD

    def _next(self, taken: int) -> float:
        """Return when something can be done next."""
        due = [self._answers[0][0]] if self._answers else []
        if taken < len(self._arrivals) and self._room:
            due.append(max(self._turn, float(self._arrivals[taken])))
        return max(self._now, min(due))

    def _step(self, stimulus: Stimulus, size: int) -> None:
        """Let the front take what happened, and send what it says."""
        said, seconds = self.run.costs.of(
            lambda: self._front.step(stimulus), _front_kind, size, _pieces
        )
        self._now += seconds
        deliveries: list[Deliver] = []
        for message in said:
            match message:
                case SetAside():
                    self.run.late += message.rows.num_rows
                case MarkSet():
                    self.run.marks += 1
                    self._tell_back(message)
                case WentBack():
                    self.run.corrections += 1
                    self._tell_back(message)
                case Deliver():
                    deliveries.append(message)
                case Routed():
                    self._send(deliveries)
                    self._tell_back(message)
                    self._note_certain(message.certain)
                    deliveries = []
        self._end_turn()

    def _send(self, deliveries: list[Deliver]) -> None:
        """Send the deliveries of some events; instances have them one after the other."""
        if not deliveries:
            return
        setting, events = self._setting, deliveries[0].events
        block = _EventBatch(as_integers(events.rows.column("ts")) // APART)
        self.run.again += int(self._gone[block.events].sum())
        self._gone[block.events] = True
        loads = np.zeros(setting.instances, np.int64)
        if len(events.arrival):
            first, stop = int(events.arrival[0]), int(events.arrival[-1]) + 1
            loads = loads_of(first, stop, setting.size, setting.slide, setting.instances)
        for message in deliveries:
            self._tell_back(message)
        for message in deliveries:
            number, standing = message.instance, message.standing
            stands = standing is not None and (standing.back_to is not None, standing.mark is None)
            answer, seconds = self.run.costs.of(
                partial(self._instances[number].step, message),
                f"instance {stands}",
                size=message.size,
            )
            begin = max(self._now, self._free[number])
            end = self._free[number] = begin + seconds + int(loads[number]) * LOAD_S
            self._busy[number].append((begin, end))
            self._unanswered[number] += message.size
            self._waiting[number] += 1
            block.due += 1
            self._sent += 1
            heapq.heappush(self._answers, (end, self._sent, number, answer, block))

    def _hear(self) -> None:
        """Take the answers that have come."""
        done: list[_EventBatch] = []
        while self._answers and self._answers[0][0] <= self._now:
            _, _, number, answer, block = heapq.heappop(self._answers)
            _, seconds = self.run.costs.of(
                partial(self._answered, Delivered(number, answer)),
                "answer",
                size=len(answer.matches),
            )
            self._now += seconds
            self._unanswered[number] -= answer.events
            self._waiting[number] -= 1
            block.due -= 1
            if not block.due:
                done.append(block)
        self._end_turn()
        for block in done:
            first = block.events[np.isnan(self.run.tentative[block.events])]
            self.run.tentative[first] = self._now
            self._done[block.events] = self._now
        self.run.confirmed = np.maximum(self._done, self._sure)

    def _answered(self, message: Delivered) -> None:
        self._front.step(message)
        self._back.step(message)

    def _end_turn(self) -> None:
        emits, seconds = self.run.costs.of(lambda: self._back.step(TurnEnded()), "back")
        self._now += seconds
        for emit in emits:
            self._count(emit)

    def _count(self, emit: Emit) -> None:
        table = emit.matches.table
        if not table.num_rows:
            return
        if self._keeps:
            self.run.matches.append(table)
        if DIFF not in table.column_names:
            self.run.given += table.num_rows
            return
        diffs = table.column(DIFF).to_numpy()
        self.run.given += int((diffs > 0).sum())
        self.run.retracted += int((diffs < 0).sum())

    def _tell_back(self, message: MarkSet | WentBack | Deliver | Routed) -> None:
        _, seconds = self.run.costs.of(lambda: self._back.step(message), type(message).__name__)
        self._now += seconds

    def _note_certain(self, certain: int) -> None:
        """Note which events nothing changes any more."""
        if certain == NO_TIME:
            # Without speculation all that goes on is certain.
            certain = self._front.watermark
        stop = min(max(0, -(-certain // APART)), len(self._sure))
        if stop > self._certain:
            self._sure[self._certain : stop] = self._now
            self._certain = stop

    def _load(self) -> HostLoad | None:
        """Return how busy instances were since somebody asked, on average; None: too short ago.

        The one that had most to do tells what events take.
        """
        begin, now = self._asked, self._now
        if now - begin < _STRETCH_S:
            return None
        worked = list[float]()
        for busy in self._busy:
            while busy and busy[0][1] <= begin:
                busy.popleft()
            spans = (min(now, end) - max(begin, first) for first, end in busy if first < now)
            worked.append(sum(spans))
        self._asked = now
        return HostLoad(statistics.mean(worked) / (now - begin), max(worked))


def _front_kind(said: Sequence[Move]) -> str:
    """Name what a front did: to go back takes longer than to go on."""
    return "front back" if any(isinstance(one, WentBack) for one in said) else "front"


def _pieces(said: Sequence[Move]) -> int:
    """Count the pieces in which a front let events go on; time alone is one."""
    return max(1, sum(isinstance(one, Routed) for one in said))
