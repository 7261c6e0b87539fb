"""Events of several sources, in the order of all of them.

Where each source sends its events in order, `SourceMerge` merges them. Otherwise order is a chain:
a part of its own brings the events of each source into order, so which of them are late depends on
that source alone, however the sources are mixed. Then they wait for those of the other sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import accumulate, islice, pairwise

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.kernels.grouping import is_ascending
from outpace.engine.message import EventsArrived
from outpace.engine.order.contract import Order, ReleasedEvents
from outpace.engine.order.runs import SortedRun, SortedRuns, joined, sorted_run
from outpace.engine.order.sources import CAPACITY, SourceMerge, no_source, ticks_of
from outpace.engine.order.total import TotalOrder
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.rearranged import as_table
from outpace.engine.rows.times import as_integers
from outpace.engine.state import NATURAL, State, integer, require, typed
from outpace.errors import BindError, DataError, StateError
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import Late


class SourceOrder(Order):
    """Brings the events of several sources, each in order, into one order; see `SourceMerge`.

    Parameters
    ----------
    bound
        The query; its first order column is the time of all sources.
    sources
        Their identifiers.
    schema
        The columns of their events.
    """

    CHANGED = ("_merge",)

    def __init__(self, bound: BoundQuery, sources: tuple[str, ...], schema: pa.Schema) -> None:
        if not bound.order_by or bound.descending[0]:
            raise BindError(
                "the events of several sources are ordered by rising time",
                hint='name the time column first: order_by("ts")',
            )
        self._merge = SourceMerge(sources, time=bound.order_by[0])
        self._nothing = schema.empty_table()
        self._ticks = ticks_of(bound.schema.field(bound.order_by[0]).type)
        self._watermark = int(NO_TIME)

    @property
    def buffered(self) -> int:
        """How many events wait for those of other sources."""
        return sum(map(self.waiting, self._merge.sources))

    @property
    def holding(self) -> str | None:
        """The source that the others wait for; None when all have finished."""
        return self._merge.holding

    def waiting(self, source: str) -> int:
        """Return how many events of a source wait."""
        return self._merge.buffered(source)

    def slack_of(self, source: str) -> int:
        """Return 0: each source is in order by itself."""
        return 0

    @property
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME while it is not known."""
        return self._watermark

    def wants(self, source: str) -> bool:
        """Say whether a source may go on: it is not too far ahead of the others."""
        return self._merge.wants(source)

    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Take the next events of a source; after an error nothing is taken."""
        self._merge.push(events.source or "", events.rows)
        if events.watermark == NO_TIME:
            return self._released()
        return self.tell(events.watermark, events.source)

    def tell(self, time: int, source: str | None = None) -> ReleasedEvents:
        """Take a promise that no later event of a source has a time before this."""
        self._merge.heartbeat(source or "", time * self._ticks)
        return self._released()

    def fire(self, at: int) -> ReleasedEvents:
        """Take note that the clock of the host has come to a time, which says nothing here."""
        return self._released()

    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Say that a source, or every one, sends no more events."""
        for one in self._merge.sources if source is None else [source]:
            self._merge.finish(one)
        return self._released()

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        return State({"watermark": self._watermark}, parts={"merge": self._merge.state()})

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self._watermark = integer(state.numbers, "watermark")
        self._merge.restore(state.part("merge"))

    def _released(self) -> ReleasedEvents:
        ordered = self._merge.pop()
        if ordered.watermark != NO_TIME:
            self._watermark = ordered.watermark // self._ticks
        return ReleasedEvents(
            ordered.rows if ordered.rows.num_rows else self._nothing, self._watermark
        )


class ReorderedSources(Order):
    """Brings the events of several sources, each out of order by itself, into one order.

    An event that its source lets go waits until none of another source can come before it: until
    the watermarks of all sources have passed its time. Events of the same time are in the query's
    order, then in that of the columns that break ties, then of their sources, then as they came.

    Memory: the events that wait, at most twice. Nobody is refused who is far ahead of the others: a
    host that runs a piece again would be refused again. `wants` tells who is.

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

    CHANGED = ("_each", "_waiting", "_first", "_watermarks", "_finished")

    def __init__(
        self,
        bound: BoundQuery,
        disorder: BoundDisorder,
        each: Mapping[str, Order],
        schema: pa.Schema,
    ) -> None:
        self._order = TotalOrder(bound, disorder)
        self._corrects = disorder.late is Late.CORRECT
        self._schema = schema
        #: In the order of identifiers, which decides between events that nothing else tells apart.
        self._each = dict(sorted(each.items()))
        self._waiting = {source: SortedRuns(schema) for source in self._each}
        #: The first time that waits of each source that has any.
        self._first: dict[str, int] = {}
        #: How far time has come for each source.
        self._watermarks = dict.fromkeys(self._each, int(NO_TIME))
        self._finished: set[str] = set()
        self._watermark = int(NO_TIME)

    @property
    def kind(self) -> str:
        """The kind of the sources' own orders, which are all of one."""
        return " of ".join([super().kind, *{order.kind for order in self._each.values()}])

    @property
    def buffered(self) -> int:
        """How many events wait for others, of their source or of other sources."""
        return sum(map(self.waiting, self._each))

    @property
    def holding(self) -> str | None:
        """The source that the others wait for; None when all have finished."""
        running = [source for source in self._each if source not in self._finished]
        return min(running, key=lambda source: self._watermarks[source], default=None)

    def waiting(self, source: str) -> int:
        """Return how many events of a source wait."""
        return len(self._waiting[source]) + self._each[source].buffered

    @property
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME while it is not known."""
        return self._watermark

    @property
    def slack(self) -> int:
        """The greatest slack of a source."""
        return max(order.slack for order in self._each.values())

    def slack_of(self, source: str) -> int:
        """Return how far the watermark of a source stays behind its greatest time."""
        return self._each[source].slack

    @property
    def timer(self) -> int | None:
        """When the order of any source wants to be asked again."""
        timers = [order.timer for one, order in self._each.items() if one not in self._finished]
        return min((timer for timer in timers if timer is not None), default=None)

    def watermark_of(self, source: str) -> int:
        """Return a time that no later event of a source lies before, unless it is late."""
        return self._each[source].watermark

    def wants(self, source: str) -> bool:
        """Say whether a source may go on: it is not too far ahead of the others."""
        waiting = len(self._waiting[self._known(source)])
        return source not in self._finished and waiting < CAPACITY

    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Take events of a source; after an error nothing is taken."""
        name = self._known(events.source)
        if name in self._finished:
            raise DataError(f"source '{name}' has finished and cannot send more events")
        return self._pass_on({name: self._each[name].push(events)})

    def tell(self, time: int, source: str | None = None) -> ReleasedEvents:
        """Take a promise that no later event of a source has a time before this."""
        name = self._known(source)
        told = {} if name in self._finished else {name: self._each[name].tell(time)}
        return self._pass_on(told)

    def fire(self, at: int) -> ReleasedEvents:
        """Take note that the clock of the host has come to a time, for every source."""
        running = [one for one in self._each if one not in self._finished]
        return self._pass_on({one: self._each[one].fire(at) for one in running})

    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Say that a source, or every one, sends no more events."""
        ending = {*self._each} if source is None else {self._known(source)}
        last = {one: self._each[one].finish() for one in sorted(ending - self._finished)}
        self._finished |= ending
        return self._pass_on(last)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        numbers = {
            "sources": list(self._each),
            "watermark": self._watermark,
            "watermarks": list(self._watermarks.values()),
            "finished": sorted(self._finished),
            "runs": [[len(run) for run in runs] for runs in self._waiting.values()],
        }
        runs = [run.rows for runs in self._waiting.values() for run in runs]
        rows = pa.concat_tables([self._schema.empty_table(), *runs])
        each = {f"source {name}": order.state() for name, order in self._each.items()}
        return State(numbers, [rows], parts=each)

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process."""
        numbers, (rows,) = state.content(1)
        names = list(self._each)
        if numbers.get("sources") != names:
            raise StateError(
                "the saved state belongs to other sources",
                detail=f"saved {numbers.get('sources')}, now {names}",
            )
        watermarks, runs, finished = (
            numbers.get(name, []) for name in ("watermarks", "runs", "finished")
        )
        require(len(watermarks) == len(runs) == len(names), "a source is missing")
        require(set(finished) <= set(names), "a source is unknown")
        rows = typed(rows, self._schema)
        require(not rows.column(self._order.time).null_count, "an event has no time")
        sizes = [
            integer({"run": size}, "run", range(1, NATURAL.stop)) for one in runs for size in one
        ]
        ends = [0, *accumulate(sizes)]
        require(ends[-1] == rows.num_rows, "events are missing")
        parts = (rows.slice(low, high - low) for low, high in pairwise(ends))
        for name, watermark, own in zip(names, watermarks, runs, strict=True):
            waiting = [SortedRun(part, self._order.ticks(part)) for part in islice(parts, len(own))]
            require(all(is_ascending(run.times) for run in waiting), "events are out of order")
            self._waiting[name].replace(waiting)
            self._note_first(name)
            self._watermarks[name] = integer({"watermark": watermark}, "watermark")
            self._each[name].restore(state.part(f"source {name}"))
        self._watermark = integer(numbers, "watermark")
        self._finished = set(finished)

    def _known(self, source: str | None) -> str:
        if source is None or source not in self._each:
            raise no_source(source, list(self._each))
        return source

    def _pass_on(self, released: Mapping[str, ReleasedEvents]) -> ReleasedEvents:
        """Let events that sources let go wait for those of the others."""
        if self._corrects:
            released = {source: self._in_time(one) for source, one in released.items()}
        for source, one in released.items():
            self._watermarks[source] = max(self._watermarks[source], one.watermark)
            if one.rows.num_rows:
                self._waiting[source].add(sorted_run(one.rows, self._order.ticks(one.rows)))
                self._note_first(source)
        return replace(
            self._released(),
            late=_together([one.late for one in released.values()]),
            invalid=_together([one.invalid for one in released.values()]),
        )

    def _in_time(self, released: ReleasedEvents) -> ReleasedEvents:
        """Let those go on that are late for their source alone: the others are not so far."""
        late = released.late
        if late is None:
            return released
        behind = as_integers(one_array(late.column(self._order.time))) < self._watermark
        return replace(
            released,
            rows=pa.concat_tables([as_table(released.rows), late.filter(pa.array(~behind))]),
            late=late.filter(pa.array(behind)) if behind.any() else None,
        )

    def _note_first(self, source: str) -> None:
        first = min((int(run.times[0]) for run in self._waiting[source]), default=None)
        if first is None:
            self._first.pop(source, None)
        else:
            self._first[source] = first

    def _released(self) -> ReleasedEvents:
        """Take the events that those of no source can come before any more."""
        open_sources = [time for one, time in self._watermarks.items() if one not in self._finished]
        bound = None
        if open_sources:
            self._watermark = max(self._watermark, min(open_sources))
            bound = self._order.in_ticks(self._watermark)
        else:
            self._watermark = max(self._watermarks.values())
        due = []
        for source, runs in self._waiting.items():
            if source in self._first and (bound is None or self._first[source] < bound):
                due.append(runs.pop(bound))
                self._note_first(source)
        rows = self._order.without_ties(joined(due)) if due else self._schema.empty_table()
        return ReleasedEvents(rows, self._watermark)


def _together(aside: Iterable[pa.Table | None]) -> pa.Table | None:
    """Return what several sources set aside; None where none did."""
    there = [rows for rows in aside if rows is not None]
    return pa.concat_tables(there) if there else None
