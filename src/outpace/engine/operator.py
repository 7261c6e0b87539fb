"""The operator: order, number, split, schedule, match, merge, as three parts with one mutator each.

The front brings events into order, numbers them, says which windows they open and close, and which
instance gets them. Instances match the windows that they are given; a partition without windows is
the window that is always open. The back puts what they found together, in its order.
`WholeOperator` is a front and one instance in one place, whose matches are in order already; a host
that has parts in several places carries `Deliver` and `Delivered` between them. Each part is a
state machine: a step is a function of its state and of the message.

Memory: that of the parts, see there; the back has a number for each delivery without an answer.
Paper: SPACE (Amann 2018) 2.3.4, figure 2.3.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.event import EVENT_ID, SEQUENCE_BITS, no_events
from outpace.engine.match.output import timed_out_schema
from outpace.engine.merge.merger import Merger, out_of_turn
from outpace.engine.message import (
    NO_SPLIT,
    AllAnswered,
    Answer,
    Aside,
    ClockExchange,
    Correct,
    Deliver,
    Delivered,
    Emit,
    EventsArrived,
    Instruction,
    Routed,
    SetAside,
    SourceEnded,
    Stimulus,
    TimerFired,
    TimeTold,
    TurnEnded,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import Order, OrderCounters, ReleasedEvents
from outpace.engine.order.drift import ClockReading
from outpace.engine.order.identify import EventIds
from outpace.engine.order.in_order import OrderedInput
from outpace.engine.order.runs import sorted_run
from outpace.engine.order.source_order import ReorderedSources, SourceOrder
from outpace.engine.order.total import TotalOrder
from outpace.engine.rows.rearranged import RearrangedRows, as_table
from outpace.engine.rows.times import as_integers
from outpace.engine.snapshot import Stateful
from outpace.engine.speculate.history import SPANS, History, changes
from outpace.engine.split.choose import make_schedule, make_splitter
from outpace.engine.split.number import EventNumbers
from outpace.engine.split.schedule import NO_ROWS, Delivery, Schedule, scheduler_of
from outpace.engine.split.splitter import Splitter
from outpace.engine.split.windows import Split, Windows, joined_windows
from outpace.engine.state import ANY, NATURAL, State, integer, integers, require
from outpace.engine.window_match.apply import AppliedOperator, WindowedApply
from outpace.engine.window_match.apply_shared import SharedApply
from outpace.engine.window_match.matcher import ENDED, WindowMatcher
from outpace.engine.window_match.partition_matcher import PartitionMatcher
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import (
    DataError,
    StateError,
    UnsupportedError,
    missing_column,
    other_type,
)
from outpace.pattern.bind.disorder import SOURCE, bind_disorder
from outpace.pattern.disorder import Punctuation
from outpace.pattern.notation.disorder import disorder_clauses
from outpace.pattern.operator import SharedOperator
from outpace.pattern.schedulers import Scheduler

#: Where the parts stood, for `WholeOperator`.
_Mark: TypeAlias = "tuple[Front, Instance]"

#: The orders of several sources.
_SOURCES: Final = (SourceOrder, ReorderedSources)


@dataclass(frozen=True)
class FrontCounters:
    """What a front has done, and what waits.

    Parameters
    ----------
    events, sent
        Events that had their turn, and how many went to instances, one for each that got it.
    open_windows, partitions
        Windows that are open, and partitions that are known.
    order
        How it goes with the order of the events.
    unanswered, loads
        For each instance the deliveries without an answer, and the events in them.
    """

    events: int
    sent: int
    open_windows: int
    partitions: int
    order: OrderCounters
    unanswered: tuple[int, ...]
    loads: tuple[int, ...]

    @property
    def duplication(self) -> float:
        """How often an event was sent, on average over all events."""
        return self.sent / self.events if self.events else 1.0


@dataclass(frozen=True)
class BackCounters:
    """What a back holds: matches that wait for others, and those that may be found again."""

    waiting: int
    remembered: int


class Front(Stateful):
    """Brings events into order, numbers and splits them, and says who gets them.

    A scheduler decides by the windows and by loads: the events that an instance was sent and has
    not answered for. Where answers do not come back, that is all that it was sent, so a scheduler
    evens out the events sent, and a batch that is run again gives the same.

    Parameters
    ----------
    spec
        The operator.
    place
        Which one it is, where each of several has events of its own.
    block_size
        Says how many of the first of some events in order go on together; all by default.
    """

    CHANGED = ("_order", "_ids", "_numbers", "_splitter", "_schedule", "_unanswered", "_loads")

    def __init__(
        self,
        spec: OperatorSpec,
        place: int = 0,
        block_size: Callable[[pa.Table], int] | None = None,
    ) -> None:
        self._spec, self._place = spec, place
        self._block_size = block_size
        bound, windows = spec.bound, spec.windows
        self._ids = EventIds(spec.sources if spec.identified else None, place)
        self._order: Order = _make_order(spec)
        self._numbers = EventNumbers(bound.schema, bound.partition_by, spec.time)
        self._splitter: Splitter | None = None if windows is None else make_splitter(windows)
        self._schedule: Schedule | None = None
        if spec.instances is not None:
            if spec.horizon is not None:
                raise UnsupportedError(
                    'late="correct" goes back in one place, with the one instance beside',
                    hint="leave out instances",
                )
            query = spec.query.instances(spec.instances, spec.query.scheduler)
            self._scheduler = scheduler_of(query)
            self._schedule = make_schedule(self._scheduler, spec.instances, windows)
        #: For each instance the deliveries without an answer, and the events in them.
        self._unanswered = [0] * (spec.instances or 1)
        self._loads = [0] * (spec.instances or 1)
        #: How many events came late, by source.
        self._late: Counter[str | None] = Counter()
        #: How many came late and corrected what had come out.
        self._corrected = 0
        self._nothing = spec.events.empty_table()
        self._no_events = no_events(spec.events)
        self._ended = False
        #: Whether what counts once the instance beside has answered ends the input; None: nothing.
        self._untaken: bool | None = None
        #: Whether events left the order, or windows opened, and nobody has taken them yet.
        self._lost = False
        #: Whether the events are the matches of another stream, which tells the time.
        self._follows = False

    @property
    def arrived(self) -> int:
        """How many events have had their turn."""
        return self._numbers.arrived

    @property
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME while it is not known."""
        return self._order.watermark

    def watermark_of(self, source: str | None) -> int:
        """Return the time before which an event of a source, or of the only one, is late."""
        if source is not None and isinstance(self._order, ReorderedSources):
            return self._order.watermark_of(source)
        return self.watermark

    def counters(self) -> FrontCounters:
        """Return what there was, and what waits; it takes a look at all that is open."""
        return FrontCounters(
            self.arrived,
            self.arrived if self._schedule is None else self._schedule.events_sent,
            0 if self._splitter is None else self._splitter.open_windows,
            self._numbers.partitions,
            self.order_counters(),
            tuple(self._unanswered),
            tuple(self._loads),
        )

    def step(self, message: Stimulus | Delivered) -> list[SetAside | Deliver | Routed | Correct]:
        """Take what happened and return what is to be done.

        After an error in the rows nothing is taken. Where the one instance is beside, so that
        deliveries come back at once, a delivery that is not answered is one that failed: nothing is
        taken either, or no more is, where events left the order or windows opened for it. No more
        is taken either where the lack of memory or Ctrl-C may have ended a step half done.
        """
        if isinstance(message, Delivered):
            self._answered(message)
            return []
        self.check()
        try:
            return self._take(message)
        except BaseException as error:
            if not self._only_looks and _comes_anywhere(error):
                self._lost = True
            raise

    @property
    def _only_looks(self) -> bool:
        """Whether nothing changes before an answer has come."""
        return self._splitter is None and isinstance(self._order, OrderedInput)

    def _take(self, message: Stimulus) -> list[SetAside | Deliver | Routed | Correct]:
        if self._ended:
            raise DataError("the matcher is finished", hint="open a new one for more input")
        self._untaken, before = None, self.watermark
        match message:
            case EventsArrived():
                released = self._arrive(message)
            case TimeTold():
                released = self._order.tell(message.watermark, message.source, message.arrival)
            case TimerFired():
                released = self._order.fire(message.at)
            case SourceEnded():
                released = self._order.finish(message.source)
            case ClockExchange():
                released = self._order.compare_clocks(message)
        self._lost = not isinstance(self._order, OrderedInput)
        late, correcting = released.late, None
        if late is not None:
            late, correcting = self._parted(late, before)
            source = message.source if isinstance(message, EventsArrived) else None
            self._count_late(late, source)
        aside = [(Aside.LATE, late), (Aside.INVALID, released.invalid)]
        said: list[SetAside | Deliver | Routed | Correct] = [
            SetAside(kind, self._shown(rows))
            for kind, rows in aside
            if rows is not None and rows.num_rows
        ]
        ended = isinstance(message, SourceEnded) and message.source is None
        if ended and released.rows.num_rows:
            # What events decide comes before what their end does.
            said += self._blocks(released, ended=False)
            released = replace(released, rows=self._nothing)
        said += self._blocks(released, ended=ended)
        self._lost = self._lost and self._schedule is None
        if correcting is not None and correcting.num_rows:
            self._corrected += correcting.num_rows
            said.append(Correct(correcting.select(self._spec.events.names)))
        return said

    def _parted(self, late: pa.Table, watermark: int) -> tuple[pa.Table, pa.Table | None]:
        """Return the late events that are too late, and those that correct what came out.

        The watermark is that from before the piece, so a piece is as good as its events one by one.
        """
        disorder, horizon = self._spec.disorder, self._spec.horizon
        if disorder is None or horizon is None:
            return late, None
        over = as_integers(late.column(disorder.time)) < watermark - horizon
        return late.filter(pa.array(over)), late.filter(pa.array(~over))

    @property
    def timer(self) -> int | None:
        """When `TimerFired` is due; None where never. A host asks after each step and `restore`."""
        return None if self._ended else self._order.timer

    @property
    def holding(self) -> str | None:
        """The source that the others wait for; None where there is one, or all have finished."""
        return self._order.holding if isinstance(self._order, _SOURCES) else None

    def clock_of(self, source: str) -> ClockReading | None:
        """Return what is known of the clock of a source; None where nothing is."""
        return self._order.clock_of(source)

    def wants(self, source: str) -> bool:
        """Say whether a source may go on; one that is too far ahead of the others must wait."""
        assert isinstance(self._order, _SOURCES)
        return self._order.wants(source)

    def order_counters(self, source: str | None = None) -> OrderCounters:
        """Return how it goes with the order of all events, or of those of a source."""
        order, late = self._order, sum(self._late.values())
        if source is None or not isinstance(order, _SOURCES):
            silent = len(order.silent)
            return OrderCounters(
                order.slack, order.buffered, late, silent, order.unawaited, self._corrected
            )
        own, silent = self._late.get(source, 0), int(source in order.silent)
        return OrderCounters(order.slack_of(source), order.waiting(source), own, silent)

    def check(self) -> None:
        """Refuse to go on where events that were taken are lost."""
        if self._lost:
            raise DataError("an earlier push failed", hint="resume the query from a saved state")

    def _count_late(self, rows: pa.Table, source: str | None) -> None:
        """Count late events by source, where somebody says who sent them."""
        counts = Counter({source: rows.num_rows})
        if source is None and self._spec.sources is not None and SOURCE in rows.column_names:
            counts = Counter(rows.column(SOURCE).cast(pa.string()).to_pylist())
        self._late = Counter(self._late) + counts

    def lose(self) -> None:
        """Take no more: the instance beside has begun to take what nobody can take back."""
        self._lost = True

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        parts = {"order": self._order.state(), **self.state_behind().parts}
        if self._spec.identified:
            parts["ids"] = self._ids.state()
        numbers: dict[str, object] = {
            "ended": self._ended,
            "follows": self._follows,
            "order": self._ordering,
        }
        if self._schedule is not None:
            numbers["scheduler"] = _name_of(self._scheduler)
            numbers["loads"], numbers["unanswered"] = self._loads, self._unanswered
            parts["schedule"] = self._schedule.state()
        return State(numbers, parts=parts)

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, whatever was taken since; nothing else is left."""
        fresh = Front(self._spec, self._place, self._block_size)
        fresh._read(state)
        self.become(fresh)

    @property
    def _ordering(self) -> str:
        """How events are brought into order, with all settings."""
        return " ".join([self._order.kind, *disorder_clauses(self._spec.query)])

    def _read(self, state: State) -> None:
        ended = state.numbers.get("ended")
        require(isinstance(ended, bool), "nobody knows whether it has ended")
        self._ended = bool(ended)
        if state.numbers.get("follows") is True:
            self._follow()
        if (saved := state.numbers.get("order")) != self._ordering:
            raise StateError(
                "the saved state belongs to a stream that was brought into order in another way",
                detail=f"saved by {saved}, now {self._ordering}",
                hint="go on with the disorder that it was started with, or start from the input",
            )
        self._order.restore(state.part("order"))
        if self._spec.identified:
            self._ids.restore(state.part("ids"))
        self.read_behind(state)
        if self._schedule is not None:
            self._restore_schedule(self._schedule, state)

    def behind(self) -> Front:
        """Return a front that stands, behind the order, where this one does, for `rewind`."""
        twin = copy.copy(self)
        twin.rewind(self)
        return twin

    def rewind(self, mark: Front) -> None:
        """Stand behind the order where a front did; the order goes on from where it is."""
        self._numbers = mark._numbers.snapshot()
        self._splitter = None if mark._splitter is None else mark._splitter.snapshot()
        self._ended, self._untaken = False, None

    def replay(
        self, rows: pa.Table, watermark: int = NO_TIME, *, ended: bool = False
    ) -> Iterator[Deliver | Routed]:
        """Let events go on, behind `rewind`, that have left the order before."""
        self._lost = True
        return self._route(rows, watermark, ended=ended)

    def state_behind(self) -> State:
        """Return what is kept behind the order, for `read_behind`."""
        parts = {"numbers": self._numbers.state()}
        if self._splitter is not None and not self._ended:
            parts["windows"] = self._splitter.state()
        return State({}, parts=parts)

    def read_behind(self, state: State) -> None:
        """Go on, behind the order, from what was saved."""
        self._numbers.restore(state.part("numbers"))
        if self._splitter is not None and not self._ended:
            self._splitter.restore(state.part("windows"))
            self._require_same(self._splitter)

    def _restore_schedule(self, schedule: Schedule, state: State) -> None:
        saved, now = state.numbers.get("scheduler"), _name_of(self._scheduler)
        if saved != now:
            raise StateError(
                "the saved state belongs to another scheduler",
                detail=f"saved with {saved}, now {now}",
                hint="go on with the scheduler that it was started with, or start from the input",
            )
        schedule.restore(state.part("schedule"), self.opened())
        loads, unanswered = (
            _counts(state.numbers.get(name), len(self._loads)) for name in ("loads", "unanswered")
        )
        self._loads, self._unanswered = loads, unanswered

    def opened(self) -> Windows | None:
        """Return the windows that are open; the end has closed all."""
        if self._splitter is None:
            return None
        return Windows.none() if self._ended else self._splitter.opened()

    @property
    def taken(self) -> Integers:
        """How many events of each partition have had their turn, by its number."""
        return self._numbers.taken

    def _arrive(self, message: EventsArrived) -> ReleasedEvents:
        """Let the order take events, with their ids."""
        rows, source = self._fitted(message.rows), message.source
        before = self._order, self._follows
        given = self._spec.disorder is not None or self._spec.sources is not None
        if (message.watermark != NO_TIME or self._follows) and not given:
            self._check_following(rows)
        if self._spec.identified and rows.schema.get_field_index(EVENT_ID.name) < 0:
            rows = self._ids.give(rows, source)
        try:
            released = self._order.push(replace(message, rows=rows))
        except BaseException:
            self._order, self._follows = before
            raise
        if self._spec.identified:
            self._ids.accept(source, rows)
        return released

    def _follow(self) -> None:
        """Take the matches of another stream from now on, whose watermarks tell the time."""
        bound, before = self._spec.bound, self._order
        disorder = bind_disorder(self._spec.query.disorder(Punctuation()), bound.schema)
        self._order = make_order(bound, disorder, self._spec.arriving)
        self._follows = True
        if isinstance(before, OrderedInput):
            self._order.tell(before.latest)

    def _check_following(self, matches: pa.Table) -> None:
        """Refuse events, matches of another stream or others, before the time that has passed."""
        order, time = self._order, self._spec.bound.order_by[0]
        passed = order.latest if isinstance(order, OrderedInput) else order.watermark
        times = as_integers(matches.column(time).drop_null())
        if len(times) and times.min() < passed:
            raise DataError(
                f"matches of another stream come before rows that were already taken: "
                f"{time} is {times.min()}, after {passed}",
                hint="push the matches of one stream, each once and in the order in which they "
                "came; for several streams open with sources, or use .disorder(op.KSlack(...))",
            )
        if not self._follows:
            self._follow()

    def _shown(self, rows: pa.Table) -> pa.Table:
        """Return events as they came."""
        return rows.drop_columns([EVENT_ID.name]) if self._spec.identified else rows

    def _blocks(self, released: ReleasedEvents, *, ended: bool) -> Iterator[Deliver | Routed]:
        """Let events go on in blocks, and time with the last of them."""
        rows = released.rows.select(self._spec.events.names)
        if self._block_size is not None:
            rows = as_table(rows)
            while rows.num_rows and (size := self._block_size(rows)) < rows.num_rows:
                yield from self._route(rows.slice(0, size), int(NO_TIME), ended=False)
                rows = rows.slice(size)
        yield from self._route(rows, released.watermark, ended=ended)

    def _route(
        self, rows: pa.Table | RearrangedRows, watermark: int, *, ended: bool
    ) -> Iterator[Deliver | Routed]:
        splitter, events, split = self._splitter, self._no_events, NO_SPLIT
        arrived = self.arrived + rows.num_rows
        changes = self._lost or splitter is not None or self._schedule is not None
        if rows.num_rows or splitter is None:
            events = self._numbers.number(rows)
            split = NO_SPLIT if splitter is None else splitter.push(events)
            if changes:
                self._numbers.accept()
        if changes:
            self._lost, self._ended = True, ended
            if isinstance(self._order, OrderedInput):
                self._order.accept()
        else:
            self._untaken = ended
        if splitter is not None:
            split = self._close(splitter, split, watermark, ended=ended)
        if self._schedule is None:
            self._unanswered[0] += changes
            yield Deliver(0, events, None, split, arrived, watermark, ended)
        else:
            shares = self._schedule.route(events, split, self._loads)
            if splitter is None:
                if self._spec.bound.within is not None and rows.num_rows:
                    watermark = max(watermark, int(events.times[-1]))
                shares += self._others(shares, watermark, ended=ended)
            for one in shares:
                delivery = Deliver(
                    one.instance, events, one.ranges, one.split, arrived, watermark, ended
                )
                self._unanswered[one.instance] += 1
                self._loads[one.instance] += one.size
                yield delivery
        if self._spec.forgets_partitions and splitter is not None:
            touched = np.union1d(events.partition, split.closed.partition)
            self._numbers.forget(splitter.idle(touched))
        yield Routed(arrived, watermark, ended)

    def _others(self, shares: Sequence[Delivery], watermark: int, *, ended: bool) -> list[Delivery]:
        """Return what instances get that have no events: time and the end decide in partitions."""
        if not ended and (self._spec.bound.within is None or watermark == NO_TIME):
            return []
        had = {one.instance for one in shares}
        others = (number for number in range(len(self._loads)) if number not in had)
        return [Delivery(number, *NO_ROWS, NO_SPLIT) for number in others]

    def _close(self, splitter: Splitter, split: Split, watermark: int, *, ended: bool) -> Split:
        """Add what the passing of time closes, and the end of the input."""
        closed = split.closed
        if watermark != NO_TIME:
            closed = joined_windows(closed, splitter.advance(watermark).closed)
        if ended:
            closed = joined_windows(closed, splitter.finish().closed)
        return Split(split.opened, closed)

    def _answered(self, message: Delivered) -> None:
        if self._untaken is not None:
            assert isinstance(self._order, OrderedInput)
            self._order.accept()
            self._numbers.accept()
            self._ended, self._untaken = self._untaken, None
        if len(idle := message.answer.idle):
            # More events may be on their way to an instance that knows nothing of them yet.
            over = self._numbers.taken[idle] == message.answer.seen
            self._numbers.forget(idle[over], restart=True)
        if self._unanswered[message.instance]:
            self._unanswered[message.instance] -= 1
            if self._schedule is None:
                self._lost = self._unanswered[0] > 0
            else:
                self._loads[message.instance] -= message.answer.events

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns of the stream, or refuse those that have not all of them.

        Tables may differ in the order of columns, and in what is said beside their types.
        """
        spec, schema = self._spec, rows.schema
        known = spec.arriving if spec.brings_ids else spec.schema
        if schema.equals(known, check_metadata=True):
            return rows
        for field in spec.events if spec.disorder is None else spec.schema:
            if field == EVENT_ID:
                continue
            index = schema.get_field_index(field.name)
            if index < 0:
                raise missing_column(field.name, schema.names)
            found = schema.field(index).type
            if found != field.type:
                raise other_type(field.name, found, field.type)
        # A column that nobody reads may have any type, and is left out.
        there = [field for field in known if _has(schema, field)]
        if not there:
            return rows  # Nothing but their number counts.
        columns = [rows.column(field.name) for field in there]
        return pa.Table.from_arrays(columns, schema=pa.schema(there))

    def _require_same(self, splitter: Splitter) -> None:
        """Refuse the saved state of a splitter that took other events."""
        numbers, seen, opened = self._numbers, splitter.seen, splitter.opened()
        taken = numbers.taken
        same = len(seen) <= len(taken) and (seen == taken[: len(seen)]).all()
        same = same and not taken[len(seen) :].any() and splitter.arrived == numbers.arrived
        require(same, "windows have other events than the stream")
        require((opened.first < opened.stop).all(), "a window has no events")
        require(not np.isin(opened.partition, numbers.forgotten).any(), "a partition is forgotten")


class Instance(Stateful):
    """Finds the matches of the windows, or of the partitions, that it is given.

    Parameters
    ----------
    spec
        The operator.
    tells_time
        Whether answers say how far back the events of later matches may lie, where that takes a
        look at all rows kept.
    """

    CHANGED = ("_matcher",)

    def __init__(self, spec: OperatorSpec, *, tells_time: bool = False) -> None:
        self._spec = spec
        self._tells_time = tells_time
        self._nothing = pa.table({})
        if spec.task is not None and spec.task.timeouts:
            self._nothing = timed_out_schema(spec.task).empty_table()
        self._matcher = _make_matcher(spec)

    @property
    def begun(self) -> int:
        """How often it has begun to change what it keeps of partitions."""
        return self._matcher.begun if isinstance(self._matcher, PartitionMatcher) else 0

    @property
    def rows_kept(self) -> int:
        """How many rows undecided matches may still need."""
        return self._matcher.rows_kept

    @property
    def partitions_kept(self) -> int:
        """How many partitions anything is kept of."""
        return self._matcher.partitions_kept

    @property
    def open_windows(self) -> int:
        """How many windows are open; a partition is none that anybody counts."""
        matcher = self._matcher
        return 0 if isinstance(matcher, PartitionMatcher) else matcher.open_windows

    def starts_kept(self) -> int:
        """Count the rows kept that an undecided match may start with; linear in the rows kept."""
        return self._matcher.starts_kept()

    def step(self, delivery: Deliver) -> Answer:
        """Take events and windows, and return what became final."""
        events, ended = delivery.own_events, delivery.ended
        watermark = self._watermark(delivery.watermark)
        matcher = self._matcher
        if isinstance(matcher, PartitionMatcher):
            settled = matcher.step(
                events,
                watermark=watermark,
                ended=ended,
                stream=delivery.events,
                arrived=delivery.arrived,
            )
            return Answer(
                settled.matches,
                settled.timed_out,
                delivery.arrived,
                delivery.arrived,
                self._told(watermark),
                events=delivery.size,
                idle=settled.idle,
                seen=settled.seen,
            )
        matches = matcher.step(events, delivery.split, arrived=delivery.arrived, ended=ended)
        return Answer(
            matches,
            self._nothing,
            delivery.arrived,
            matcher.horizon,
            self._told(watermark),
            matcher.open_windows,
            delivery.size,
        )

    def count(self, delivery: Deliver) -> int:
        """Return how many matches there are in the windows of a delivery that is all there is."""
        assert isinstance(self._matcher, WindowMatcher)
        return self._matcher.count(delivery.own_events, delivery.split)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        return self._matcher.state()

    def restore(self, state: State, front: Front | None = None) -> None:
        """Go on from what `state` returned, and a front that was saved with it, if any."""
        fresh = Instance(self._spec, tells_time=self._tells_time)
        if isinstance(fresh._matcher, PartitionMatcher):
            known = () if front is None else (front.taken, front.arrived)
            fresh._matcher.restore(state, *known)
        else:
            windows = (None, None) if front is None else (front.opened(), front.taken)
            fresh._matcher.restore(state, *windows)
        self.become(fresh)

    def _watermark(self, watermark: int) -> int:
        """Return how far time has come, where time decides anything."""
        decides = self._spec.bound.within is not None or self._spec.windows is not None
        return watermark if decides else int(NO_TIME)

    def _told(self, watermark: int) -> int:
        """Return how far back the events of later matches may lie."""
        reach = self._spec.reach
        if watermark != NO_TIME and self._tells_time:
            assert self._spec.disorder is not None
            assert not isinstance(self._matcher, PartitionMatcher)
            return min(watermark, self._matcher.earliest(self._spec.disorder.time))
        if watermark == NO_TIME or reach is None:
            return int(NO_TIME)
        return max(watermark - reach, int(NO_TIME))


class Back(Stateful):
    """Puts the matches of instances together, in their order, each of them once.

    With `Deliver` it hears whose answers are due, so that `TurnEnded` lets out what no due answer
    can change; where all have answered, `AllAnswered` lets the rest out.
    """

    CHANGED = ("_merger", "_due", "_horizons", "_watermarks")

    def __init__(self, spec: OperatorSpec) -> None:
        self._spec, count = spec, spec.instances or 1
        self._merger = Merger(spec.bound.output, count, distinct=spec.finds_again)
        #: For each instance the arrival numbers that its due deliveries begin with.
        self._due: list[deque[int]] = [deque() for _ in range(count)]
        #: What each instance promised last: who has not answered has no windows, and no time.
        self._horizons = [ENDED] * count
        self._watermarks = [int(NO_TIME)] * count
        self._arrived = 0
        self._ended = False
        self._nothing = pa.table({})

    @property
    def settled(self) -> bool:
        """Whether the input has ended and every delivery is answered."""
        return self._ended and not any(self._due)

    def counters(self) -> BackCounters:
        """Return how many matches are held."""
        return BackCounters(self._merger.waiting, self._merger.remembered)

    def step(self, message: Deliver | Routed | Delivered | TurnEnded | AllAnswered) -> list[Emit]:
        """Take what happened and return what is complete."""
        match message:
            case Deliver():
                # An answer is due for what comes from here on.
                self._due[message.instance].append(self._arrived)
                return []
            case Routed():
                self._arrived, self._ended = message.arrived, message.ended
                return []
            case Delivered():
                self._receive(message)
                return []
            case TurnEnded():
                return self._complete()
            case AllAnswered():
                return self._emit(self._merger.rest())

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        numbers = {"arrived": self._arrived, "ended": self._ended}
        sizes = [len(due) for due in self._due]
        promised = {"due": sizes, "horizon": self._horizons, "watermark": self._watermarks}
        due = pa.array([first for due in self._due for first in due], pa.int64())
        tables = [pa.table(promised), pa.table({"arrived": due})]
        return State(numbers, tables, {"merger": self._merger.state()})

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, whatever was taken since."""
        fresh = Back(self._spec)
        fresh._read(state)
        self.become(fresh)

    def _read(self, state: State) -> None:
        header, (promised, due) = state.content(2)
        self._arrived = integer(header, "arrived", NATURAL)
        self._ended = header.get("ended") is True
        (first,) = integers(due, arrived=range(self._arrived + 1))
        counts, horizons, watermarks = integers(
            promised, due=range(len(first) + 1), horizon=range(ENDED + 1), watermark=ANY
        )
        self._merger.restore(state.part("merger"))
        require(len(counts) == len(self._due), "promises of instances are missing")
        require(counts.sum() == len(first), "deliveries belong to no instance")
        parts = np.split(first, np.cumsum(counts)[:-1])
        require(all((np.diff(part) >= 0).all() for part in parts), "deliveries go back")
        self._due = [deque(part.tolist()) for part in parts]
        self._horizons, self._watermarks = horizons.tolist(), watermarks.tolist()

    def _complete(self) -> list[Emit]:
        """Return what no due answer can change any more."""
        if self._spec.windows is None and not any(self._due):
            # What time makes final comes before the next event, which need not come soon.
            return self._emit(self._merger.rest())
        now = ENDED if self._ended else self._arrived
        for number, (due, horizon) in enumerate(zip(self._due, self._horizons, strict=True)):
            frontier = due[0] if due else now
            self._merger.advance(number, frontier, min(horizon, frontier))
        return self._emit(self._merger.pop())

    def _receive(self, message: Delivered) -> None:
        instance, answer = message.instance, message.answer
        due = self._due[instance]
        if due:
            if answer.events and answer.frontier <= due[0]:
                detail = (
                    f"it goes up to event {answer.frontier}, and those from {due[0]} on are due"
                )
                raise out_of_turn(instance, detail)
            due.popleft()
        self._merger.push(instance, answer.matches)
        self._merger.advance(instance, answer.frontier, answer.horizon)
        self._horizons[instance] = answer.horizon if answer.open_windows else ENDED
        self._watermarks[instance] = answer.watermark

    def _emit(self, matches: WindowMatches) -> list[Emit]:
        return [Emit(matches, self._nothing, min(self._watermarks))]


class WholeOperator(Stateful):
    """Front and one instance in one place; what one instance finds is in order, so nobody merges.

    Examples
    --------
    >>> from outpace.pattern.query import Query
    >>> query = Query().order_by("ts").pattern("A B").measures(at="B.ts")
    >>> operator = WholeOperator(OperatorSpec(query, pa.schema([("ts", pa.int64())])))
    >>> (emit,) = operator.step(EventsArrived(pa.table({"ts": [1, 2]})))
    >>> emit.matches.table.to_pylist()
    [{'at': 2}]
    """

    CHANGED = ("front", "instance", "_history")

    def __init__(self, spec: OperatorSpec, place: int = 0) -> None:
        assert spec.instances is None, "instances that share windows have places of their own"
        self.spec, self._place = spec, place
        self.front = Front(spec, place)
        self.instance = Instance(spec)
        #: What was done within the horizon, where late events correct it.
        self._history: History[_Mark] | None = None
        if spec.disorder is not None and spec.horizon is not None:
            columns = spec.events, spec.bound.output, spec.disorder.time
            self._history = History(*columns, spec.horizon)

    def step(self, stimulus: Stimulus) -> list[Instruction]:
        """Take what happened and return what is to be done; see `Front.step` for errors."""
        aside: list[Instruction] = []
        answers: list[Answer] = []
        begun, late = self.instance.begun, None
        self._mark()
        try:
            for message in self.front.step(stimulus):
                if isinstance(message, SetAside):
                    aside.append(message)
                elif isinstance(message, Deliver):
                    answers.append(self._deliver(message))
                elif isinstance(message, Correct):
                    late = message.rows
            emit = _emitted(self.spec.bound.output, answers)
            if self._history is not None:
                ended = isinstance(stimulus, SourceEnded) and stimulus.source is None
                emit = self._remember(self._history, emit, late, ended=ended)
            return [*aside, emit]
        except BaseException:
            if answers or self.instance.begun != begun:
                self.front.lose()
            raise

    def _deliver(self, message: Deliver) -> Answer:
        answer = self.instance.step(message)
        self.front.step(Delivered(0, answer))
        if self._history is not None:
            self._history.take(message.events.rows, message.watermark)
        return answer

    def _mark(self) -> None:
        """Note where the parts stand, so that they can go back there, if it is time to."""
        if self._history is not None and self._history.wants_mark:
            self._history.mark((self.front.behind(), self.instance.snapshot()))

    def _remember(
        self, history: History[_Mark], emit: Emit, late: pa.Table | None, *, ended: bool
    ) -> Emit:
        """Note what comes out; with late events, let come out what they change."""
        if late is None:
            history.give(emit.matches)
        else:
            (front, instance), rows, before = history.go_back(late)
            watermark = self.front.watermark
            self.front.rewind(front)
            self.instance.become(instance.snapshot())
            after = self._replay(history, self._in_place(rows, late), watermark, ended=ended)
            emit = replace(emit, matches=changes(before, after))
        history.forget(self.front.watermark)
        return emit

    def _replay(
        self, history: History[_Mark], rows: pa.Table, watermark: int, *, ended: bool
    ) -> WindowMatches:
        """Take rows once more and return all matches that come of them."""
        found = []
        size = max(history.span_rows, rows.num_rows // SPANS)
        pieces = [rows.slice(begin, size) for begin in range(0, rows.num_rows, size)]
        for piece in pieces:
            self._mark()
            told = watermark if piece is pieces[-1] else int(NO_TIME)
            found.append(self._take_again(self.front.replay(piece, told)))
            history.give(found[-1])
        if ended:
            found.append(self._take_again(self.front.replay(rows.slice(0, 0), ended=True)))
        return WindowMatches.joined(self.spec.bound.output, found)

    def _take_again(self, messages: Iterator[Deliver | Routed]) -> WindowMatches:
        answers = [self._deliver(one) for one in messages if isinstance(one, Deliver)]
        found = [answer.matches for answer in answers]
        return WindowMatches.joined(self.spec.bound.output, found)

    def _in_place(self, rows: pa.Table, late: pa.Table) -> pa.Table:
        """Return rows in their order, with late ones among them."""
        spec = self.spec
        assert spec.disorder is not None
        order, both = TotalOrder(spec.bound, spec.disorder), pa.concat_tables([rows, late])
        if spec.sources is not None:
            # Among equals that of the lower source comes first, then that which came first.
            source = as_integers(both.column(EVENT_ID.name)) >> SEQUENCE_BITS
            both = both.take(np.argsort(source, kind="stable"))
        return order.without_ties(sorted_run(both, order.ticks(both)))

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        self.front.check()
        parts = {"front": self.front.state(), "instance": self.instance.state()}
        if self._history is not None and self._history.begun:
            front, instance = self._history.base
            parts["history"] = self._history.state()
            parts["base"] = front.state_behind()
            parts["base instance"] = instance.state()
        return State(self._header, parts=parts)

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process; if it is refused, as before.

        Also one that failed goes on from there.
        """
        if state.numbers != self._header:
            other = f"{'without' if self.spec.windows else 'with'} windows"
            if state.numbers.get("windows") == self._header["windows"]:
                other = "whose late events correct what came out up to another horizon"
            raise StateError(
                f"the saved state belongs to a query {other}",
                hint="resume it with the query that it was saved from, or start from the input",
            )
        front, instance = Front(self.spec, self._place), Instance(self.spec)
        front.restore(state.part("front"))
        instance.restore(state.part("instance"), front)
        fresh = WholeOperator(self.spec, self._place)
        if fresh._history is not None and "history" in state.parts:
            base = Front(self.spec, self._place), Instance(self.spec)
            base[0].read_behind(state.part("base"))
            base[1].restore(state.part("base instance"), base[0])
            fresh._history.restore(state.part("history"), base)
        self._history = fresh._history
        self.front.become(front)
        self.instance.become(instance)

    @property
    def _header(self) -> dict[str, object]:
        corrects = {} if self.spec.horizon is None else {"horizon": self.spec.horizon}
        return {"windows": self.spec.windows is not None, **corrects}


def _comes_anywhere(error: BaseException) -> bool:
    """Say whether an error may end a step in the midst of its changes, and is not of the rows."""
    if isinstance(error.__cause__, MemoryError):
        return True  # Said in our words.
    return isinstance(error, MemoryError | pa.ArrowException) or not isinstance(error, Exception)


def _has(schema: pa.Schema, field: pa.Field) -> bool:
    """Say whether a schema has a column of a name and a type."""
    index = schema.get_field_index(field.name)
    return index >= 0 and bool(schema.field(index).type == field.type)


def _name_of(scheduler: Scheduler) -> str:
    """Return what tells schedulers apart; those of users count by their names."""
    if is_dataclass(scheduler):
        return repr(scheduler)
    return f"{type(scheduler).__module__}.{type(scheduler).__qualname__}"


def _counts(saved: object, size: int) -> list[int]:
    """Return a number for each instance from a saved state."""
    require(isinstance(saved, list) and len(saved) == size, "counts of instances are missing")
    assert isinstance(saved, list)
    return [integer({"count": count}, "count") for count in saved]


def _make_matcher(spec: OperatorSpec) -> PartitionMatcher | WindowMatcher | AppliedOperator:
    if spec.task is None:
        make = spec.query.operator
        assert make is not None
        shared = issubclass(make if isinstance(make, type) else type(make()), SharedOperator)
        return (SharedApply if shared else WindowedApply)(spec.query, spec.schema)
    if spec.windows is not None:
        return WindowMatcher(spec.task, spec.matcher, rows=spec.kept)
    assert spec.matcher is not None
    return PartitionMatcher(spec.task, spec.matcher, spec.kept)


def _make_order(spec: OperatorSpec) -> Order:
    if spec.sources is not None or spec.disorder is not None:
        filters = spec.disorder is not None and spec.disorder.value.filters
        useful = spec.useful if filters else None
        return make_order(spec.bound, spec.disorder, spec.arriving, spec.sources, useful)
    keys = (
        ()
        if spec.windows is not None and spec.query.windows is not None
        else spec.bound.partition_by
    )
    tells_time = spec.reach is not None and spec.checked
    return OrderedInput(
        spec.bound,
        spec.arriving,
        keys,
        checked=spec.checked,
        tells_time=tells_time,
        read=spec.time,
    )


def _emitted(schema: pa.Schema, answers: Sequence[Answer]) -> Emit:
    """Return what one instance gave, which is in its order, each match once."""
    last = answers[-1]
    if len(answers) == 1:
        return Emit(last.matches, last.timed_out, last.watermark)
    return Emit(
        WindowMatches.joined(schema, [answer.matches for answer in answers]),
        pa.concat_tables([answer.timed_out for answer in answers]),
        last.watermark,
    )


def matches_of(instructions: Sequence[Instruction]) -> pa.Table:
    """Return the matches that became final with one stimulus."""
    return emit_of(instructions).matches.table


def emit_of(instructions: Sequence[Instruction]) -> Emit:
    """Return what became final with one stimulus."""
    (emit,) = [one for one in instructions if isinstance(one, Emit)]
    return emit
