"""The front: order, number, split and schedule events, as one part with one mutator.

Events wait until it is their turn (`outpace.engine.order`), get their numbers, and open and close
windows (`outpace.engine.split`); a schedule says which instance gets them. Memory: that of these
parts. Paper: SPACE (Amann 2018) 2.3.4, figure 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import END_OF_TIME, NO_TIME, Integers
from outpace.engine.emission import ChangeCounters
from outpace.engine.event import EVENT_ID, SEQUENCE_BITS, Events, no_events
from outpace.engine.intake import Intake
from outpace.engine.message import (
    NO_SPLIT,
    BatchBegun,
    Deliver,
    Delivered,
    DeliveryFailed,
    EventsArrived,
    EventsRecalled,
    MarkSet,
    Move,
    Reply,
    Routed,
    SourceEnded,
    Stimulus,
    TableArrived,
    TurnEnded,
    WentBack,
    refused_message,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.contract import OrderCounters, ReleasedEvents
from outpace.engine.order.runs import sorted_run
from outpace.engine.order.total import TotalOrder
from outpace.engine.rows.permutation import RearrangedRows, as_table
from outpace.engine.rows.times import as_integers
from outpace.engine.snapshot import Stateful
from outpace.engine.speculate.recall import is_worth_recalling
from outpace.engine.speculate.standings import Standing, Standings
from outpace.engine.speculate.stretches import EventStretches, IdlePartitions
from outpace.engine.split.choose import make_schedule, make_splitter
from outpace.engine.split.number import EventNumbers
from outpace.engine.split.schedule import NO_ROWS, Delivery, Schedule, scheduler_of
from outpace.engine.split.splitter import Splitter
from outpace.engine.split.windows import Split, Windows, joined_windows
from outpace.engine.state import State, integer, require
from outpace.errors import (
    DataError,
    StateError,
)
from outpace.pattern.schedulers import Scheduler

#: What a front hears.
_FrontInput: TypeAlias = Stimulus | TableArrived | Reply | TurnEnded | BatchBegun | EventsRecalled


@dataclass(frozen=True)
class FrontCounters:
    """The counts of a front: events, windows, and deliveries without an answer.

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


class Front(Stateful):
    """Brings events into order, numbers and splits them, and chooses the instances that get them.

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

    CHANGED = (
        *("intake", "_numbers", "_splitter", "_schedule", "_unanswered", "_loads"),
        *("_stretches", "_standings"),
    )

    def __init__(
        self,
        spec: OperatorSpec,
        place: int = 0,
        block_size: Callable[[pa.Table], int] | None = None,
    ) -> None:
        self._spec, self._place = spec, place
        self._block_size = block_size
        bound, windows = spec.bound, spec.windows
        self.intake = Intake(spec, place)
        self._numbers = EventNumbers(bound.schema, bound.partition_by, spec.time)
        self._splitter: Splitter | None = None if windows is None else make_splitter(windows)
        self._schedule: Schedule | None = None
        if spec.instances is not None:
            query = spec.query.instances(spec.instances, spec.query.scheduler)
            self._scheduler = scheduler_of(query)
            self._schedule = make_schedule(self._scheduler, spec.instances, windows)
        #: For each instance the deliveries without an answer, and the events in them.
        self._unanswered = [0] * (spec.instances or 1)
        self._loads = [0] * (spec.instances or 1)
        #: What went on within the horizon, where late events correct what came of it.
        self._stretches: EventStretches[Front] | None = None
        if spec.disorder is not None and spec.corrects:
            model = dict(spec.disorder.settings).get("checkpoints")
            self._stretches = EventStretches(spec.events, spec.disorder.time, model)
        self._standings = Standings(len(self._loads))
        #: What it did so that late events correct what came out: back and instances count theirs.
        self.changes = ChangeCounters()
        self._nothing = spec.events.empty_table()
        self._no_events = no_events(spec.events)
        self._ended = False
        #: Whether what counts once the instance beside has answered ends the input; None: nothing.
        self._untaken: bool | None = None
        #: Whether events left the order, or windows opened, and nobody has taken them yet.
        self._lost = False

    @property
    def arrived(self) -> int:
        """How many events have had their turn."""
        return self._numbers.arrived

    @property
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME while it is not known."""
        return self.intake.order.watermark

    @property
    def alpha(self) -> float:
        """The part of K that events wait."""
        return self.intake.order.alpha

    @property
    def certain(self) -> int:
        """Nothing that comes changes what lies before this time; NO_TIME while it is not known."""
        certain = self.intake.order.certain
        return certain if certain == NO_TIME else certain - (self._spec.horizon or 0)

    @property
    def partitions(self) -> int:
        """How many partitions are known."""
        return self._numbers.partitions

    @property
    def keys(self) -> pa.Table:
        """The keys of the partitions that are known."""
        return self._numbers.keys

    def counters(self) -> FrontCounters:
        """Return what there was, and what waits; it takes a look at all that is open."""
        return FrontCounters(
            self.arrived,
            self.arrived if self._schedule is None else self._schedule.events_sent,
            0 if self._splitter is None else self._splitter.open_windows,
            self._numbers.partitions,
            self.intake.counters(),
            tuple(self._unanswered),
            tuple(self._loads),
        )

    @property
    def oldest(self) -> int | None:
        """The number of the oldest mark that it may go back to; None where there is none."""
        stretches = self._stretches
        return stretches.oldest if stretches is not None and stretches.begun else None

    @property
    def base(self) -> Front | None:
        """The front, behind the order, as it stood at the oldest mark; None where there is none."""
        stretches = self._stretches
        if stretches is None or not stretches.begun:
            return None
        twin = self.twin()
        twin._rewind(*stretches.base)
        return twin

    def step(self, message: _FrontInput) -> list[Move]:
        """Take what happened and return what is to be done.

        After `TurnEnded` every instance hears where it is to stand, also who had no events.

        After an error in the rows nothing is taken. Where the one instance is beside, so that
        deliveries come back at once, a delivery that is not answered is one that failed: nothing is
        taken either, or no more is, where events left the order or windows opened for it. No more
        is taken either where the lack of memory or Ctrl-C may have ended a step half done.
        """
        match message:
            case Delivered():
                self._answered(message)
                return []
            case DeliveryFailed():
                # No answer is due any more.
                self._lost, self._unanswered = True, [0] * len(self._unanswered)
                return []
            case TurnEnded():
                begun = self._stretches is None or self._stretches.begun
                return [*self._told_to_all()] if begun and not self._ended else []
            case BatchBegun():
                self.intake.waits.forget()
                return []
            case EventsRecalled():
                return self._redeliver(message.events, message.split)
        if not isinstance(message, Stimulus | TableArrived):
            raise refused_message("the front", message, _FrontInput)
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
        return self._splitter is None and self._schedule is None and self.intake.in_order

    def _take(self, message: Stimulus | TableArrived) -> list[Move]:
        if self._ended:
            raise DataError("the matcher is finished", hint="open a new one for more input")
        certain, order = self.certain, self.intake.order
        if self._stretches is not None and order.memory is not None:
            order.room = max(0, order.memory - self._stretches.uncertain(certain))
        self._untaken, full = None, order.times_full
        whole = isinstance(message, TableArrived)
        if isinstance(message, TableArrived):
            message = EventsArrived(message.rows)
        released = self.intake.take(message)
        if self._stretches is not None and isinstance(message, EventsArrived) and message.load:
            self._stretches.work.measured(message.load.worked)
        self._lost = not self.intake.in_order
        ended = whole or (isinstance(message, SourceEnded) and message.source is None)
        said: list[Move] = [*self.intake.aside(released)]
        correcting = released.correcting
        goes_back = correcting is not None and correcting.num_rows > 0
        if correcting is not None and goes_back:
            back, again = self._go_back(correcting)
            said += back
            fresh = released.rows.num_rows
            if self._schedule is not None and fresh and is_worth_recalling(len(again), fresh):
                # What instances have goes on apart from what is new to all.
                apart = replace(released, rows=again, watermark=int(NO_TIME))
                said += self._blocks(apart, ended=False, more=True)
            else:
                rows = as_table(released.rows.select(again.column_names))
                released = replace(released, rows=pa.concat_tables([again, rows]))
        if ended and released.rows.num_rows and not whole:
            # What events decide comes before what their end does.
            said += self._blocks(released, ended=False)
            released = replace(released, rows=self._nothing)
        said += self._blocks(released, ended=ended)
        if self._stretches is not None:
            sent = sum(isinstance(one, Deliver) for one in said)
            self.changes = self.changes.plus(
                deliveries=sent, redeliveries=sent * goes_back, full=order.times_full - full
            )
        self._lost = self._lost and self._schedule is None
        return said

    def _go_back(self, late: pa.Table) -> tuple[list[Move], pa.Table]:
        """Go back before late events, say so, and return what goes on again, they among it."""
        stretches = self._stretches
        assert stretches is not None
        said: list[Move] = [] if stretches.begun else [self._mark(stretches)]
        late = late.select(self._spec.events.names)
        rows = stretches.go_back(late)
        self.changes = self.changes.plus(rollbacks=1, replayed=rows.num_rows)
        self._rewind(*stretches.last)
        self._standings.go_back(stretches.newest)
        said.append(WentBack(stretches.newest))
        return said, self._in_place(pa.concat_tables([rows, late]))

    def _in_place(self, rows: pa.Table) -> pa.Table:
        """Return rows in their order, of which the last came late."""
        spec = self._spec
        assert spec.disorder is not None
        order = TotalOrder(spec.bound, spec.disorder)
        if spec.sources is not None:
            # Among equals that of the lower source comes first, then that which came first.
            source = as_integers(rows.column(EVENT_ID.name)) >> SEQUENCE_BITS
            rows = rows.take(np.argsort(source, kind="stable"))
        return order.without_ties(sorted_run(rows, order.ticks(rows)))

    @property
    def timer(self) -> int | None:
        """When `TimerFired` is due; None where never. A host asks after each step and `restore`."""
        return None if self._ended else self.intake.timer

    @property
    def work(self) -> tuple[float, float]:
        """Seconds that an event takes, and a checkpoint; 0 where nobody has measured it."""
        work = None if self._stretches is None else self._stretches.work
        return work.costs if work is not None and work.is_known else (0.0, 0.0)

    @property
    def ended(self) -> bool:
        """Whether the input has ended."""
        return self._ended

    @property
    def has_lost(self) -> bool:
        """Whether events that were taken are lost."""
        return self._lost

    def check(self) -> None:
        """Refuse to go on where events that were taken are lost."""
        if not self._lost:
            return
        if (due := self._unanswered[0]) and self._schedule is None:
            raise DataError(
                "an earlier push failed, or its answer has not come yet",
                detail=f"deliveries without an answer: {due}",
                hint="resume the query from a saved state; who drives the parts gives the front"
                " each answer, as Delivered, before more events",
            )
        raise DataError("an earlier push failed", hint="resume the query from a saved state")

    def state(self) -> State:
        """Return all that is kept, for `restore`: where it stands, and where at the oldest mark.

        Where late events correct, no delivery is on its way: instances and the back are saved with
        it, each with the same mark.
        """
        if not self._standings.are_heard and not self._ended:
            raise StateError(
                "instances have not heard of all marks that late events may go back to",
                hint="let the operator take TurnEnded, and carry its deliveries, before you save",
            )
        parts = {"intake": self.intake.state(), **self.mark_state().parts}
        if self._stretches is not None and (base := self.base) is not None:
            parts |= {"retained": self._stretches.state(), "base": base.mark_state()}
        numbers: dict[str, object] = {"ended": self._ended}
        if self._schedule is not None:
            numbers["scheduler"] = _name_of(self._scheduler)
            numbers["loads"], numbers["unanswered"] = self._loads, self._unanswered
        return State(numbers, parts=parts)

    def restore(self, state: State, *, scheduled: bool = True) -> None:
        """Go on from what `state` returned, whatever was taken since; nothing else is left.

        Or from what `unscheduled` was, of a front whose windows had other instances, or one: then
        what is open has no instance until `EventsRecalled` gives it one.
        """
        fresh = Front(self._spec, self._place, self._block_size)
        schedule = fresh._schedule
        if not scheduled:
            fresh._schedule = None
        fresh._read(state)
        fresh._schedule = schedule
        self.become(fresh)

    def _redeliver(self, events: Events, split: Split) -> list[Move]:
        """Return what instances get of events that had their turn before, all at once."""
        arrived = self.arrived
        if self._schedule is None:
            return [Deliver(0, events, None, split, arrived), Routed(arrived)]
        shares = self._schedule.route(events, split, self._loads)
        for one in shares:
            self._unanswered[one.instance] += 1
            self._loads[one.instance] += one.size
        given = (Deliver(one.instance, events, one.ranges, one.split, arrived) for one in shares)
        return [*given, Routed(arrived)]

    @property
    def unscheduled(self) -> State:
        """What `restore` needs where there will be other instances."""
        state = self.state()
        parts = {name: part for name, part in state.parts.items() if name != "schedule"}
        return State({"ended": self._ended}, parts=parts)

    def _read(self, state: State) -> None:
        ended = state.numbers.get("ended")
        require(isinstance(ended, bool), "nobody knows whether it has ended")
        self._ended = bool(ended)
        self.intake.restore(state.part("intake"))
        if self._schedule is not None:
            self._check_scheduler(state)
        self.restore_mark(state)
        if self._stretches is not None and "retained" in state.parts:
            base = Front(self._spec, self._place, self._block_size)
            base.restore_mark(state.part("base"))
            self._stretches.restore(state.part("retained"), base)
        if self._schedule is not None:
            self._restore_loads(state)

    def _mark(self, stretches: EventStretches[Front]) -> MarkSet:
        """Note where it stands behind the order, and let instances do so."""
        twin = self.twin()
        # It is not asked for more than where it stood.
        twin._stretches = None
        twin._rewind(self, [])
        number = stretches.mark(twin)
        parts = (twin._numbers, twin._splitter, twin._schedule)
        copied = sum(one.copied_bytes for one in parts if one is not None)
        self.changes = self.changes.plus(checkpoints=1, checkpoint_bytes=copied)
        self._standings.set_mark(number)
        return MarkSet(number)

    def _rewind(self, mark: Front, idle: Sequence[IdlePartitions]) -> None:
        """Stand, behind the order, where a front does, but for partitions forgotten since."""
        self._numbers = mark._numbers.snapshot()
        self._splitter = None if mark._splitter is None else mark._splitter.snapshot()
        self._schedule = None if mark._schedule is None else mark._schedule.snapshot()
        self._ended, self._untaken = False, None
        for one in idle:
            self._forget(*one)

    def mark_state(self) -> State:
        """Return what is kept behind the order, for `restore_mark`."""
        parts = {"numbers": self._numbers.state()}
        if self._splitter is not None and not self._ended:
            parts["windows"] = self._splitter.state()
        if self._schedule is not None:
            parts["schedule"] = self._schedule.state()
        return State({}, parts=parts)

    def restore_mark(self, state: State) -> None:
        """Go on, behind the order, from what was saved."""
        self._numbers.restore(state.part("numbers"))
        if self._splitter is not None and not self._ended:
            self._splitter.restore(state.part("windows"))
            self._require_same(self._splitter)
        if self._schedule is not None:
            self._schedule.restore(state.part("schedule"), self.opened())

    def _check_scheduler(self, state: State) -> None:
        saved, now = state.numbers.get("scheduler"), _name_of(self._scheduler)
        if saved != now:
            raise StateError(
                "the saved state belongs to another scheduler",
                detail=f"saved with {saved}, now {now}",
                hint="go on with the scheduler that it was started with, or start from the input",
            )

    def _restore_loads(self, state: State) -> None:
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

    def recall(self, rows: pa.Table, numbers: Integers) -> Events:
        """Return events that had their turn before, by their numbers; some may be missing."""
        return self._numbers.recall(rows.select(self._spec.events.names), numbers)

    def _blocks(
        self, released: ReleasedEvents, *, ended: bool, more: bool = False
    ) -> Iterator[MarkSet | Deliver | Routed]:
        """Let events go on in blocks, and time with the last of them."""
        rows, certain = released.rows.select(self._spec.events.names), self.certain
        stretches, limit = self._stretches, self._block_size
        marks = stretches is not None and not stretches.begun
        if limit is not None or stretches is not None:
            rows = as_table(rows)
            times = None if stretches is None else stretches.times(rows)
            while size := rows.num_rows:
                if stretches is not None and times is not None:
                    marks, size = stretches.place_mark(times, certain)
                if limit is not None:
                    size = min(size, limit(rows))
                if size >= rows.num_rows:
                    break
                piece, now = rows.slice(0, size), int(NO_TIME)
                yield from self._route(piece, now, certain, marks=marks, ended=False, more=True)
                rows, times = rows.slice(size), None if times is None else times[size:]
            if stretches is not None and times is not None and len(times):
                # Time may go on beyond these rows, to where others may come that go back there.
                early = times[-1] < certain < released.watermark
                if early and stretches.ends_stretch(times, marks=marks):
                    now = int(NO_TIME)
                    yield from self._route(rows, now, certain, marks=marks, ended=False, more=True)
                    rows, marks = self._nothing, True
        now = released.watermark
        yield from self._route(rows, now, certain, marks=marks, ended=ended, more=more)

    def _route(
        self,
        rows: pa.Table | RearrangedRows,
        watermark: int,
        certain: int,
        *,
        marks: bool,
        ended: bool,
        more: bool,
    ) -> Iterator[MarkSet | Deliver | Routed]:
        stretches = self._stretches
        if stretches is not None and marks:
            yield self._mark(stretches)
        if stretches is not None and not more:
            # No more of what this step let go on comes from before.
            stretches.forget(certain)
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
            self.intake.accept()
        else:
            self._untaken = ended
        if splitter is not None:
            split = self._close(splitter, split, watermark, ended=ended)
        if stretches is not None:
            times = events.times if len(events.times) else None
            stretches.take(events.rows, watermark, certain, times)
        if self._schedule is None:
            self._unanswered[0] += changes
            standing = self._standing_of(0)
            yield Deliver(0, events, None, split, arrived, watermark, ended, standing)
        else:
            shares = self._schedule.route(events, split, self._loads)
            if splitter is None and self._spec.bound.within is not None and rows.num_rows:
                watermark = max(watermark, int(events.times[-1]))
            shares += self._others(shares, watermark, ended=ended)
            come = arrived, watermark, ended
            for one in shares:
                number = one.instance
                self._unanswered[number] += 1
                self._loads[number] += one.size
                standing = None if stretches is None else self._standing_of(number)
                yield Deliver(number, events, one.ranges, one.split, *come, standing)
        if self._spec.forgets_partitions and splitter is not None:
            partitions = np.union1d(events.partition, split.closed.partition)
            self._numbers.forget(splitter.idle(partitions))
        if stretches is None:
            yield Routed(arrived, watermark, ended)
        else:
            certain = END_OF_TIME if ended else certain
            now = self.intake.order.now
            yield Routed(arrived, watermark, ended, certain, more, stretches.oldest, now)

    def _told_to_all(self) -> Iterator[Deliver]:
        """Tell every instance how far events have come, and marks."""
        for number in range(len(self._loads)):
            self._unanswered[number] += 1
            delivery = Deliver(number, self._no_events, None, NO_SPLIT, self.arrived)
            yield replace(delivery, standing=self._standing_of(number))

    def _standing_of(self, instance: int) -> Standing | None:
        """Return where an instance is to stand when it takes what it is sent now."""
        stretches = self._stretches
        if stretches is None:
            return None
        return self._standings.send(instance, stretches.bound, stretches.oldest, stretches.newest)

    def _others(self, shares: Sequence[Delivery], watermark: int, *, ended: bool) -> list[Delivery]:
        """Return what instances get that have no events, and are to hear of something else.

        Time and the end decide in partitions. Who is to go back has windows that are others' now.
        """
        decides = self._splitter is None and (
            ended or (self._spec.bound.within is not None and watermark != NO_TIME)
        )
        if not decides and self._stretches is None:
            return []
        had = {one.instance for one in shares}
        return [
            Delivery(number, *NO_ROWS, NO_SPLIT)
            for number in range(len(self._loads))
            if number not in had and (decides or self._standings.goes_back(number))
        ]

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
            self.intake.accept()
            self._numbers.accept()
            self._ended, self._untaken = self._untaken, None
        idle = message.answer.idle, message.answer.event_counts
        if self._stretches is None:
            self._forget(*idle)
        elif (before := self._standings.take_answer(message.instance)) is not None:
            self._forget(*idle)
            self._stretches.note_idle(*idle, before)
        if self._unanswered[message.instance]:
            self._unanswered[message.instance] -= 1
            if self._schedule is None:
                self._lost = self._unanswered[0] > 0
            else:
                self._loads[message.instance] -= message.answer.events

    def _forget(self, idle: Integers, counts: Integers) -> None:
        """Forget the partitions that an instance has forgotten, with all their events."""
        if len(idle):
            # More events may be on their way to an instance that knows nothing of them yet.
            over = self._numbers.taken[idle] == counts
            self._numbers.forget(idle[over], restart=True)

    def _require_same(self, splitter: Splitter) -> None:
        """Refuse the saved state of a splitter that took other events."""
        numbers, counts, opened = self._numbers, splitter.event_counts, splitter.opened()
        taken = numbers.taken
        same = len(counts) <= len(taken) and (counts == taken[: len(counts)]).all()
        same = same and not taken[len(counts) :].any() and splitter.arrived == numbers.arrived
        require(same, "windows have other events than the stream")
        require((opened.first < opened.stop).all(), "a window has no events")
        require(not np.isin(opened.partition, numbers.forgotten).any(), "a partition is forgotten")


def _comes_anywhere(error: BaseException) -> bool:
    """Say whether an error may end a step in the midst of its changes, and is not of the rows."""
    if isinstance(error.__cause__, MemoryError):
        return True  # Said in our words.
    return isinstance(error, MemoryError | pa.ArrowException) or not isinstance(error, Exception)


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
