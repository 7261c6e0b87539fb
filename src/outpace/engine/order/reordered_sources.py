"""The order of several sources that each send their events out of order: it is a chain.

A part of its own brings the events of each source into order, so which of them are late depends on
that source alone, however the sources are mixed. Then they wait for those of the other sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import END_OF_TIME, NO_TIME, Integers
from outpace.engine.message import ClockExchange, EventsArrived
from outpace.engine.order.contract import AdmittedEvents, Order, ReleasedEvents, with_flags
from outpace.engine.order.drift import UNKNOWN, ClockReading, SourceClock
from outpace.engine.order.moments import (
    Pieces,
    arrivals_of,
    has_several,
    take_moments,
    with_apart,
)
from outpace.engine.order.reorderer import units_in
from outpace.engine.order.runs import SortedRun, moved
from outpace.engine.order.senders import Owners, SourceShares, no_source, owned
from outpace.engine.order.silence import Silence
from outpace.engine.order.source_merge import CAPACITY
from outpace.engine.order.total import TotalOrder
from outpace.engine.order.waiting import OWNER, WaitingEvents
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.permutation import RearrangedRows, as_table
from outpace.engine.rows.times import as_integers
from outpace.engine.state import ANY, NATURAL, State, integer, require
from outpace.errors import DataError
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bind.uncertainty import CLOCK_ERROR
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import Late


class ReorderedSources(Order):
    """Brings the events of several sources, each out of order by itself, into one order.

    An event that its source lets go waits until none of another source can come before it: until
    the watermarks of all sources have passed its time. Events of the same time are in the query's
    order, then in that of the columns that break ties, then of their sources, then as they came.

    Where the disorder says how patient it is, nobody waits for a source that is silent longer
    (`outpace.engine.order.silence`): it is told how far the others have come, lets go of its own
    events before that, and those that it sends later are late by its own order. Where all are
    silent, all that waits for others goes on, up to the watermark of the source that is furthest. A
    source that waits for missing events of its own is not silent.

    Each source has its own clock. Where that was compared with the clock of reference
    (`outpace.engine.order.drift`), its events go on with the time of reference, which is their own
    and the drift, and all that is here counts by that; the times of messages to a source, and from
    it, are by its own. A drift that is measured anew may put an event before the watermark by no
    more than the error of measuring: then it goes on at the watermark. Where a clock has jumped,
    such an event is late; the events that wait in the order of its source go on by the clock as it
    was, and that order begins anew.

    Memory: the events that wait, at most twice. A source of which many are held back
    is not refused: a host that runs a piece again would be refused again. `wants` tells of it.

    Parameters
    ----------
    bound
        The query.
    disorder
        How far events are out of order.
    each
        What brings the events of each source into order, by identifier.
    schema
        The columns of their events.
    """

    CHANGED: ClassVar[tuple[str, ...]] = (
        *("_watermarks", "_finished", "_silence", "_clocks", "_unawaited_of"),
        *("_unawaited_times", "_back"),
    )
    SAME: ClassVar = {"sources": ("_names", "other sources")}
    NUMBERS: ClassVar = {"watermark": ("_watermark", ANY), "unawaited": ("_unawaited", NATURAL)}
    PARTS: ClassVar = {"source ": "_each", "waiting": "_waiting"}

    def __init__(
        self,
        bound: BoundQuery,
        disorder: BoundDisorder,
        each: Mapping[str, Order],
        schema: pa.Schema,
    ) -> None:
        # The order of identifiers decides between events that nothing else tells apart.
        self._order = TotalOrder(bound, replace(disorder, ties=(*disorder.ties, OWNER.name)))
        self._disorder = disorder
        self._schema = schema
        self._arrival: str | None = disorder["arrival"]
        self._flag: str | None = disorder["flag"]
        self._each = dict(sorted(each.items()))
        self._names = tuple(self._each)
        self._numbers = {source: number for number, source in enumerate(self._names)}
        known = bound.uncertainty
        #: Whether events go on with the errors of their clocks.
        self._measured = known is not None and known.errors is not None
        self._given = schema.append(CLOCK_ERROR) if self._measured else schema
        self._waiting = WaitingEvents(self._order, self._given, len(self._names))
        #: How far time has come for each source, as far as it says so itself.
        self._watermarks = dict.fromkeys(self._each, int(NO_TIME))
        self._finished: set[str] = set()
        self._watermark = int(NO_TIME)
        patience = disorder["patience"]
        if isinstance(patience, tuple):
            patience = dict(patience)
        self._silence = None if patience is None else Silence(self._each, patience)
        #: Whether it counts how far the other sources were when each event arrived: what is late
        #: for its source alone goes on.
        self._meets_others = self._arrival is not None and disorder.late is Late.CORRECT
        #: Events that went on although a silent source had not come so far, and those by source.
        self._unawaited = 0
        self._unawaited_of = dict.fromkeys(self._each, 0)
        #: The times of those when each source was silent last, and who has spoken since.
        self._unawaited_times: dict[str, tuple[int, int]] = {}
        self._back: set[str] = set()
        #: What the order of each source begins with, also where its clock was set.
        self._begins = {name: order.state() for name, order in self._each.items()}
        #: The clocks of sources that were compared with that of reference.
        self._clocks: dict[str, SourceClock] = {}
        self._unit = units_in(self._order.kind)
        #: The greatest time of the events of any source.
        self._greatest = int(NO_TIME)

    @property
    def kind(self) -> str:
        """The kind of the sources' own orders, which are all of one."""
        return " of ".join([super().kind, *{order.kind for order in self._each.values()}])

    @property
    def buffered(self) -> int:
        """How many events wait for others, of their source or of other sources."""
        return sum(map(self.waiting, self._each))

    @property
    def silent(self) -> frozenset[str]:
        """The sources that nobody waits for because they say nothing."""
        return frozenset(() if self._silence is None else self._silence.silent)

    @property
    def unawaited(self) -> int:
        """How many events went on although a silent source had not come so far."""
        return self._unawaited

    def unawaited_of(self, source: str) -> int:
        """Return how many events went on although a source was silent and not so far."""
        return self._unawaited_of[source]

    @property
    def unawaited_times(self) -> Mapping[str, tuple[int, int]]:
        """The first and the last time that went on without a source, when it was silent last."""
        return self._unawaited_times

    @property
    def holding(self) -> str | None:
        """The source that the others wait for; None when all have finished."""
        running = self._live() or [one for one in self._each if one not in self._finished]
        return min(running, key=lambda source: self._watermarks[source], default=None)

    @property
    def ended(self) -> frozenset[str]:
        """The sources that send no more events."""
        return frozenset(self._finished)

    def waiting(self, source: str) -> int:
        """Return how many events of a source wait."""
        return self.held_back(source) + self._each[source].buffered

    def held_back(self, source: str) -> int:
        """Return how many events of a source wait for other sources alone."""
        return int(self._waiting.counts[self._numbers[source]])

    @property
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME while it is not known."""
        return self._watermark

    @property
    def greatest(self) -> int:
        """The greatest time of the events of any source: they wait for each other by time."""
        return self._greatest

    @property
    def slack(self) -> int:
        """The greatest slack of a source."""
        return max(order.slack for order in self._each.values())

    def slack_of(self, source: str) -> int:
        """Return how far the watermark of a source stays behind its greatest time."""
        return self._each[source].slack

    @property
    def timer(self) -> int | None:
        """When the order of any source wants to be asked again, or a source is silent."""
        timers = [self._each[source].timer for source in self._live()]
        if self._silence is not None and self._arrival is None:
            # Who waits for missing events is not silent before they are given up.
            timers.append(self._silence.timer(self._missing()))
        return min((timer for timer in timers if timer is not None), default=None)

    def watermark_of(self, source: str) -> int:
        """Return a time that no later event of a source lies before, unless it is late."""
        return self._each[source].watermark

    def wants(self, source: str) -> bool:
        """Say whether a source may go on: not too many of its events are held back."""
        held_back = self.held_back(self._known(source))
        return source not in self._finished and held_back < CAPACITY

    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Take events of a source, or of all that the column `source` names.

        After an error nothing is taken.
        """
        if events.source is not None:
            name = self._known(events.source)
            self._check_open(name)
            if self._silence is not None or self._meets_others:
                return self._take(events, None)
            aside = self._hand_over(name, self._each[name].push(events))
            return ReleasedEvents.joined([*filter(_sets_aside, [aside]), self._released()])
        rows, owners, stray = owned(events.rows, self._names, self._disorder)
        for number in np.flatnonzero(np.bincount(owners)):
            self._check_open(self._names[number])
        released = self._take(replace(events, rows=rows), owners)
        if stray is None:
            return released
        aside = ReleasedEvents(self._nothing, self._watermark, invalid=stray)
        return ReleasedEvents.joined([released, aside])

    def tell(self, time: int, source: str | None = None, arrival: int = NO_TIME) -> ReleasedEvents:
        """Take a promise that no later event of a source has a time before this."""
        name = self._known(source)
        if name in self._finished:
            return self._released()
        if self._arrival is not None:
            arrival = int(NO_TIME)  # The column is the clock, and says nothing here.
        before = self._come_to(arrival, {name: arrival})
        events = self._hand_over(name, self._each[name].tell(time))
        return ReleasedEvents.joined([*before, events, self._released()])

    def compare_clocks(self, exchange: ClockExchange) -> ReleasedEvents:
        """Take what tells how far the clock of a source is from that of reference."""
        name, kind = self._known(exchange.source), self._order.kind
        if pa.types.is_integer(kind) and kind != pa.int64():
            raise DataError(
                f"'{self._order.time}' is {kind}, which may not hold the time of reference",
                hint="use timestamps, or integers of 64 bits",
            )
        if name in self._finished:
            return self._released()
        given = []
        known = self._clocks.get(name, SourceClock())
        clock = known.snapshot()
        changed = clock.compare(exchange)
        if clock.reading.jumps > known.reading.jumps:
            # What waits has times of the clock as it was; what comes is in an order of its own.
            given.append(self._each[name].finish())
            self._keep(name, given[-1].rows)
            self._each[name].restore(self._begins[name])
            self._watermarks[name] = int(NO_TIME)
        self._clocks[name] = clock
        if changed:
            # What was sent before is as it is; what comes and lies behind the others is late.
            given.append(self._each[name].tell(self._own_time(name, self._watermark)))
            self._keep(name, given[-1].rows)
        self._note_time(name, self._each[name].watermark)
        return ReleasedEvents.joined([*map(self._aside, given), self._released()])

    def clock_of(self, source: str) -> ClockReading | None:
        """Return what is known of the clock of a source; None where nothing is."""
        clock = self._clocks.get(self._known(source))
        return None if clock is None else clock.reading

    def fire(self, at: int) -> ReleasedEvents:
        """Take note that the clock of the host has come to a time, for every source."""
        given = [self._hand_over(source, self._each[source].fire(at)) for source in self._live()]
        if self._silence is not None:
            self._silence.find(at, self._missing())
        return ReleasedEvents.joined([*given, self._released()])

    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Say that a source, or every one, sends no more events."""
        given = []
        for one in self._each if source is None else [self._known(source)]:
            if one not in self._finished:
                given.append(self._hand_over(one, self._each[one].finish()))
                self._finished.add(one)
                if self._silence is not None:
                    self._silence.end(one)
        return ReleasedEvents.joined([*given, self._released()])

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        watermarks = list(self._watermarks.values())
        numbers = {
            "watermarks": watermarks,
            "finished": sorted(self._finished),
            "unawaited of": list(self._unawaited_of.values()),
        }
        parts = {f"clock {name}": clock.state() for name, clock in self._clocks.items()}
        if self._silence is not None:
            parts["silence"] = self._silence.state()
        return super().state().plus(State(numbers, parts=parts))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process."""
        super().restore(state)
        numbers, names = state.numbers, self._names
        watermarks, finished = (numbers.get(name, []) for name in ("watermarks", "finished"))
        unawaited = numbers.get("unawaited of", [])
        require(len(watermarks) == len(unawaited) == len(names), "a source is missing")
        require(set(finished) <= set(names), "a source is unknown")
        for name, watermark, count in zip(names, watermarks, unawaited, strict=True):
            self._watermarks[name] = integer({"watermark": watermark}, "watermark")
            self._unawaited_of[name] = integer({"unawaited": count}, "unawaited", NATURAL)
            if f"clock {name}" in state.parts:
                self._clocks[name] = SourceClock()
                self._clocks[name].restore(state.part(f"clock {name}"))
            self._note_time(name, int(NO_TIME))
        self._finished = set(finished)
        # The patience may have been given since: then its count begins now.
        if self._silence is not None and "silence" in state.parts:
            self._silence.restore(state.part("silence"), finished)

    @property
    def _nothing(self) -> pa.Table:
        return self._given.empty_table()

    def _known(self, source: str | None) -> str:
        if source is None or source not in self._each:
            raise no_source(source, list(self._each))
        return source

    def _check_open(self, source: str) -> None:
        if source in self._finished:
            raise DataError(f"source '{source}' has finished and cannot send more events")

    def _live(self) -> list[str]:
        """Return the sources that others wait for."""
        if self._silence is not None:
            return self._silence.live
        return [source for source in self._each if source not in self._finished]

    def _missing(self) -> dict[str, int]:
        """Return the sources that wait for missing events of their own, and until when."""
        due = ((one, self._each[one].due) for one in self._live())
        return {source: at for source, at in due if at is not None}

    def _take(self, events: EventsArrived, owners: Owners | None) -> ReleasedEvents:
        """Take events; after an error stand where nothing of them was taken."""
        if self._silence is None and not self._meets_others:
            aside, _ = self._push_each(events, SourceShares.of(events, owners, self._names))
            return ReleasedEvents.joined([*aside, self._released()])
        clock = np.full(events.rows.num_rows, events.arrival)
        if self._arrival is not None:
            clock = arrivals_of(events.rows.column(self._arrival))
        if self._silence is not None:
            clock = np.maximum(clock, self._silence.now)

        def take(
            piece: EventsArrived, clock: Integers, own: Integers
        ) -> ReleasedEvents | Pieces | None:
            return self._take_stretch(piece, None if owners is None else owners[own], clock)

        return take_moments(self, events, clock, take, self.snapshot())

    def _take_stretch(
        self, events: EventsArrived, owners: Owners | None, clock: Integers
    ) -> ReleasedEvents | Pieces | None:
        """Take events at once if it stays the same who is silent, else in halves.

        Where it counts how far the others were when an event arrived that is late for its source,
        and their orders do not tell, what arrived with it is taken by itself.

        Parameters
        ----------
        events, owners
            Those of one source, or the numbers of their sources.
        clock
            When each arrived, rising.
        """
        shares, several = SourceShares.of(events, owners, self._names), has_several(clock)
        silence, spoken = self._silence, dict[str, Integers]()
        if silence is not None:
            spoken = {name: clock[share] for name, share in shares.each()}
            if several and silence.changes(spoken, int(clock[-1]), self._missing()):
                return None
        before = self.snapshot() if several and self._meets_others else None
        first = events.arrival if self._arrival is None else int(NO_TIME)
        first = int(clock[0]) if len(clock) else first
        given = self._come_to(first, {name: int(at[-1]) for name, at in spoken.items()})
        aside, moments = self._push_each(events, shares)
        if before is not None and len(moments):
            self.become(before)
            return with_apart(events, clock, np.maximum(moments, clock[0]))
        given += aside
        if several and silence is not None:
            # As if what arrived at the last moment had come by itself.
            for source, due in self._missing().items():
                given += self._let_go(source, due, int(clock[-1]) - 1)
        return ReleasedEvents.joined([*given, self._released()])

    def _push_each(
        self, events: EventsArrived, shares: SourceShares
    ) -> tuple[list[ReleasedEvents], Integers]:
        """Let sources take their events, all at once where that is possible.

        Returns
        -------
        tuple
            What they set aside; and when those arrived that are late for their sources, where it
            counts how far the others were and nobody knows it.
        """
        no_moments = np.zeros(0, np.int64)
        promises = events.watermark != NO_TIME
        if len(shares.names) > 1 and not promises and self._disorder.late is not Late.CORRECT:
            orders = [self._each[name] for name in shares.names]
            kind = type(orders[0])
            admitted = kind.push_all(orders, events, shares.places, shares.bounds)
            if admitted is not None:
                numbers = np.array([self._numbers[name] for name in shares.names])
                self._add(replace(admitted, owners=numbers[admitted.owners]))
                for name, order in zip(shares.names, orders, strict=True):
                    self._note_time(name, order.watermark)
                late = admitted.late
                aside = [] if late is None else [self._aside(ReleasedEvents(late, 0, late))]
                return aside, no_moments
        pieces = {}
        if events.source is not None:
            pieces[events.source] = events
        elif len(shares.names):
            rows = moved(events.rows, shares.places)
            for name, (low, high) in zip(shares.names, pairwise(shares.bounds), strict=True):
                own = rows.slice(low, high - low)
                pieces[name] = replace(events, rows=own, source=name, spans=None)
        if promises and events.source is None:
            # What is told of time holds for every source.
            none = replace(events, rows=self._schema.empty_table(), spans=None)
            others = [one for one in self._each if one not in pieces and one not in self._finished]
            pieces |= {one: replace(none, source=one) for one in others}
        before = {name: self._each[name].snapshot() for name in pieces} if len(pieces) > 1 else {}
        try:
            released = {name: self._each[name].push(piece) for name, piece in pieces.items()}
        except BaseException:
            self._each.update(before)
            raise
        moments = dict.fromkeys(released, no_moments)
        if self._meets_others:
            late = {name: one.late for name, one in released.items() if one.late is not None}
            moments |= {n: arrivals_of(one.column(self._arrival)) for n, one in late.items()}
        met = self._met(released, moments)
        aside = [self._hand_over(name, one, met.get(name)) for name, one in released.items()]
        unknown = [no_moments, *(one for name, one in moments.items() if name not in met)]
        return list(filter(_sets_aside, aside)), np.concatenate(unknown)

    def _met(
        self, released: Mapping[str, ReleasedEvents], moments: Mapping[str, Integers]
    ) -> dict[str, Integers]:
        """Return how far all sources were at moments, those of each; nothing where it is unknown.

        It is known where the order of each source tells how its watermark moved with its events.
        """
        live = self._live()
        steps = {name: one.steps for name, one in released.items()}
        if not any(map(len, moments.values())) or any(one is None for one in steps.values()):
            return {}
        found = {}
        for name, own in moments.items():
            reached = np.full(len(own), END_OF_TIME)
            for source in live:
                at = np.full(len(own), self._watermarks[source])
                if (moved_by := steps.get(source)) is not None:
                    clock = moved_by.moments[moved_by.order]
                    before = np.append(moved_by.met, moved_by.final)
                    at = before[np.searchsorted(clock, own)]
                    at = np.where(at == NO_TIME, at, at + self._drift(source))
                reached = np.minimum(reached, at)
            found[name] = np.maximum(reached, self._watermark)
        return found

    def _come_to(self, clock: int, spoken: dict[str, int]) -> list[ReleasedEvents]:
        """Let the clock come to a time at which sources speak; return what that lets go."""
        silence = self._silence
        if silence is None or (not spoken and clock == NO_TIME):
            return []
        given = []
        if clock > silence.now:
            # A column tells all that arrived before. A host may say late that a time has come, and
            # does so behind what came by then.
            before = silence.now if self._arrival is None else clock - 1
            for source, due in self._missing().items():
                given += self._let_go(source, due, before)
            # What goes on now does so while those are silent that speak next.
            if silence.find(before, self._missing()) or given:
                given.append(self._released())
        clock = max(clock, silence.now)
        words = {one: max(at, clock) for one, at in spoken.items()}
        for source in silence.hear(words, clock, self._missing()):
            # What it sends from now on is late where the others have passed it.
            self._back.add(source)
            events = self._each[source].tell(self._own_time(source, self._watermark))
            given.append(self._hand_over(source, events))
        return given

    def _let_go(self, source: str, due: int | None, now: int) -> list[ReleasedEvents]:
        """Let a source go on whose missing events were waited for long enough."""
        given = []
        while due is not None and due <= now:
            given.append(self._hand_over(source, self._each[source].fire(due)))
            due = self._each[source].due
        return given

    def _hand_over(
        self, source: str, released: ReleasedEvents, met: Integers | None = None
    ) -> ReleasedEvents:
        """Let events that a source lets go wait for those of the others; return the rest.

        Those that are late met a watermark of all sources: this one, where nothing else is known.
        """
        self._keep(source, released.rows)
        self._note_time(source, released.watermark)
        late = released.late
        if late is not None and self._disorder.late is Late.CORRECT:
            # Those go on that are late for their source alone: the others are not so far.
            drift = self._drift(source)
            times = as_integers(one_array(late.column(self._order.time))) + drift
            met = np.full(len(times), self._watermark) if met is None else met
            behind = times < met
            self._keep(source, late.filter(pa.array(~behind)))
            late, met = (late.filter(pa.array(behind)) if behind.any() else None), met[behind]
            if late is not None and drift:
                # What corrects goes to its place by the time of reference, too.
                ticks = self._order.ticks(late) + self._order.in_ticks(drift)
                late = self._waiting.timed(late, ticks)
        return self._aside(replace(released, late=late), met)

    def _note_time(self, source: str, watermark: int) -> None:
        """Take note of how far time has come in a source, by its own clock."""
        drift, greatest = self._drift(source), self._each[source].greatest
        if watermark != NO_TIME:
            self._watermarks[source] = min(watermark + drift, END_OF_TIME)
        if greatest != NO_TIME:
            self._greatest = max(self._greatest, greatest + drift)

    def _drift(self, source: str) -> int:
        """Return what is added to the times of a source, as exactly as their column has them."""
        if source not in self._clocks:
            return 0
        return round(self._clocks[source].reading.drift / self._unit) * self._unit

    def _own_time(self, source: str, time: int) -> int:
        """Return a time of reference by the clock of a source."""
        return time if time == NO_TIME else max(time - self._drift(source), int(NO_TIME))

    def _keep(self, source: str, rows: pa.Table | RearrangedRows) -> None:
        if rows.num_rows:
            rows = as_table(rows)
            owners = np.full(rows.num_rows, self._numbers[source])
            self._add(AdmittedEvents(rows, None, owners, self._order.ticks(rows)))

    def _add(self, admitted: AdmittedEvents) -> None:
        """Let events wait, by the time of reference."""
        brought = admitted.ticks
        if self._clocks and len(admitted.ticks):
            drifts = np.array([self._drift(name) for name in self._names])
            # None goes on before the watermark.
            low = self._order.in_ticks(-(-self._watermark // self._unit) * self._unit)
            scale = self._order.in_ticks(1)
            brought = admitted.ticks + scale * drifts[admitted.owners]
            admitted = replace(admitted, ticks=np.maximum(brought, low), shifted=True)
        self._waiting.add(self._with_errors(admitted, brought) if self._measured else admitted)

    def _with_errors(self, admitted: AdmittedEvents, brought: Integers) -> AdmittedEvents:
        """Return events with how far their times may be off, by their clocks as they are now.

        That of an event that goes on at the watermark is off by what it was moved, too.
        """
        errors = np.full(len(admitted.ticks), UNKNOWN)
        scale = self._order.in_ticks(1)
        times, moved_by = admitted.ticks // scale, -((brought - admitted.ticks) // scale)
        for name, clock in self._clocks.items():
            own = admitted.owners == self._numbers[name]
            errors[own] = clock.errors(times[own]) + self._unit // 2
        errors = np.minimum(errors + moved_by, UNKNOWN)
        rows = admitted.rows if admitted.places is None else moved(admitted.rows, admitted.places)
        rows = rows.append_column(CLOCK_ERROR, pa.array(errors))
        return replace(admitted, rows=rows, places=None)

    def _aside(self, released: ReleasedEvents, met: Integers | None = None) -> ReleasedEvents:
        """Return what a source sets aside, without what it lets go; it met the others, too."""
        return replace(released, rows=self._nothing, watermark=self._watermark, met=met)

    def _released(self) -> ReleasedEvents:
        """Take the events that those of no source can come before any more."""
        live, silent = self._live(), self.silent
        reached = self._watermark
        if live:
            reached = max(reached, min(self._watermarks[one] for one in live))
        elif silent:
            reached = max(reached, *self._watermarks.values())
        else:
            reached = max(self._watermarks.values())
        aside = []
        for source in silent:
            if self._each[source].buffered:
                events = self._each[source].tell(self._own_time(source, reached))
                self._keep(source, events.rows)
                aside.append(self._aside(events))
        self._watermark = reached
        bound = self._order.in_ticks(reached) if live else None
        run = self._waiting.pop(bound)
        if not len(run):
            return ReleasedEvents.joined([*aside, ReleasedEvents(self._nothing, self._watermark)])
        unawaited = 0
        if silent:
            went = {one: self._beyond(run, self._watermarks[one]) for one in silent}
            unawaited = max(went.values())
            self._unawaited += unawaited
            for source, count in went.items():
                self._unawaited_of[source] += count
                if count:
                    self._note_unawaited(source, run.times[-count], run.times[-1])
        rows = self._order.without_ties(run).drop_columns([OWNER.name])
        if self._flag is not None and unawaited:
            rows = with_flags(rows, self._flag, np.arange(len(run)) >= len(run) - unawaited)
        return ReleasedEvents.joined([*aside, ReleasedEvents(rows, self._watermark)])

    def _note_unawaited(self, source: str, first: int, last: int) -> None:
        """Note from which time to which events went on without a source that is silent."""
        span = self._order.in_units(int(first)), self._order.in_units(int(last))
        if source in self._unawaited_times and source not in self._back:
            span = self._unawaited_times[source][0], span[1]
        self._unawaited_times[source] = span
        self._back.discard(source)

    def _beyond(self, run: SortedRun, time: int) -> int:
        """Return how many events have a time that is not before another one."""
        return len(run) - int(np.searchsorted(run.times, self._order.in_ticks(time)))


def _sets_aside(released: ReleasedEvents) -> bool:
    return released.late is not None or released.invalid is not None
