"""The reorderer: events that come out of order go on in order, as soon as none comes before them.

The order is that of the query, whose first column is the event time, rising; of equal events that
with the lower sequence number (a column `seq`) comes first, then that with the lower source (a
column `source`), then that which came first. An event is late when its time lies before the
watermark from before the piece that brings it, and is released when its time lies before the
watermark after that piece. Where events are to be in order already, each piece is released at once,
sorted, and an event that the order puts before one released earlier is late.

The events that are released are a function of the pieces alone. Any cut into pieces of events that
are never more than K behind gives the same order with a slack of K. With less, which events are
late depends on the cut: those of one piece are never late to each other. Where a column says when
each event arrived, it is late by the events that had arrived before it, and the cut does not
matter (`moments`).

Memory: the events that wait, at most twice; these are those of the last K units of time, or since
the last watermark told. Cost of a piece: linear in its events and those it releases, times the
logarithm of their number; events that wait on cost only what `runs` says.

Papers: Sardar 2018, 2.4.2 and figure 2-6 (K-slack with a fixed K); Rajendran 2019, 2.3 (the rules
that choose K, in `clock` and `rules`).
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Booleans, Floats, Integers
from outpace.engine.kernels.grouping import is_ascending
from outpace.engine.kernels.slack import INVALID, LATE
from outpace.engine.match.bits import BitTask
from outpace.engine.message import EventsArrived
from outpace.engine.order.clock import Clock, SlackRule, order_of, spans_of, weights_of
from outpace.engine.order.contract import (
    Order,
    ReleasedEvents,
    WatermarkSteps,
    quarantine_hint,
    with_reasons,
)
from outpace.engine.order.moments import arrivals_of, has_several, take_moments
from outpace.engine.order.runs import SortedRun, SortedRuns, moved, sorted_run
from outpace.engine.order.total import TotalOrder
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.times import as_integers, from_integers, invalid_times, reason_of
from outpace.engine.state import State, integer, require, typed
from outpace.errors import DataError
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import Invalid, Late

#: When events come, in a column behind those that order them.
_MOMENT: Final = pa.field("__outpace_moment", pa.int64())


class Reorderer(Order):
    """Brings the events of a stream into the order of a query.

    Parameters
    ----------
    bound
        The query.
    disorder
        How far events are out of order, and what becomes of those that are late or invalid.
    schema
        The columns that events have: those of the order and those that break ties among them.
    rule
        How K is chosen; None where only watermarks that the source sends move that of the order.
    in_order
        Whether events are to be in order already, so that each piece is released at once.
    useful
        What says which events a step can use. The others move the clock, and may be late or invalid
        like any, but do not wait and are never released. None where all are kept.

    Examples
    --------
    >>> from outpace.pattern.bind.query import bind
    >>> from outpace.pattern.bind.disorder import bind_disorder
    >>> from outpace.engine.order.clock import fixed
    >>> from outpace.pattern.disorder import KSlack
    >>> from outpace.pattern.query import Query
    >>> query = Query().order_by("ts").pattern("A").disorder(KSlack(2))
    >>> schema = pa.schema([("ts", pa.int64())])
    >>> disorder = bind_disorder(query, schema)
    >>> reorderer = Reorderer(bind(query, schema), disorder, schema, fixed(2))
    >>> reorderer.push(EventsArrived(pa.table({"ts": [3, 1, 4]}))).rows["ts"].to_pylist()
    [1]
    >>> released = reorderer.push(EventsArrived(pa.table({"ts": [1, 2, 9]})))
    >>> released.rows["ts"].to_pylist(), released.late["ts"].to_pylist(), released.watermark
    ([2, 3, 4], [1], 7)
    >>> reorderer.finish().rows["ts"].to_pylist()
    [9]
    """

    CHANGED: ClassVar[tuple[str, ...]] = ("_runs",)
    SAME: ClassVar = {"order": ("_order.columns", "another order")}
    PARTS: ClassVar = {"clock": "_clock"}

    def __init__(
        self,
        bound: BoundQuery,
        disorder: BoundDisorder,
        schema: pa.Schema,
        rule: SlackRule | None,
        *,
        in_order: bool = False,
        useful: BitTask | None = None,
    ) -> None:
        self._disorder = disorder
        self._hint = quarantine_hint(disorder)
        self._useful = useful
        self._time = disorder.time
        self._order = TotalOrder(bound, disorder)
        self._in_order = in_order
        self._clock = Clock(rule, disorder.ahead)
        self._runs = SortedRuns(schema)
        #: The greatest time of events, where the clock does not go by them.
        self._seen = int(NO_TIME)
        #: How the watermark moved with the last piece, where a column says when events arrived.
        self._steps: WatermarkSteps | None = None
        #: The order columns of the last event released; only where events are to be in order.
        self._last = schema.empty_table().select(self._order.columns)

    @property
    def buffered(self) -> int:
        """How many events wait for their turn."""
        return len(self._runs)

    @property
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME while it is not known."""
        return self._clock.watermark

    @property
    def greatest(self) -> int:
        """The greatest time that events had."""
        return max(self._clock.greatest, self._seen)

    @property
    def slack(self) -> int:
        """How far the watermark stays behind the greatest time; 0 where it is told."""
        return self._clock.slack or 0

    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Take events in any order; after an error nothing is taken.

        Raises
        ------
        DataError
            An event is invalid, and such are not to be set aside.
        """
        arrival = self._disorder["arrival"]
        if self._in_order and arrival is not None:
            clock = arrivals_of(events.rows.column(arrival))
            return take_moments(self, events, clock, self._take_in_order)
        return self._take(events)

    def _take_in_order(
        self, events: EventsArrived, clock: Integers, places: Integers
    ) -> ReleasedEvents | None:
        """Take events, unless they are of several moments and another cut might give another."""
        if has_several(clock) and not self.takes_by_moments(events.rows, clock):
            return None
        return self._take(events)

    def takes_by_moments(self, rows: pa.Table, moments: Integers, promise: int = NO_TIME) -> bool:
        """Say whether events pass as they are, at once as well as one moment after the other.

        Parameters
        ----------
        rows, moments
            Events, and when each comes.
        promise
            How far the watermark may go meanwhile.
        """
        known = ~invalid_times(rows.column(self._time))
        keys = rows.select(self._order.columns).append_column(_MOMENT, pa.array(moments))
        keys = keys if known.all() else keys.filter(pa.array(known))
        ticks = self._order.ticks(keys)
        late = ticks < self._order.in_ticks(max(self.watermark, promise))
        if self._last.num_rows:
            late |= self._before_last(keys, ticks)
        if late.any():
            return False
        ordered = self._order.without_ties(sorted_run(keys, ticks))
        return is_ascending(as_integers(one_array(ordered.column(_MOMENT.name))))

    def _take(self, events: EventsArrived) -> ReleasedEvents:
        clock, usable, late, invalid, met = self._admit(events)
        if clock.rule is None and usable.num_rows:
            latest = int(as_integers(one_array(usable.column(self._time))).max())
            self._seen = max(self._seen, latest)
        usable = self._used(usable)
        ticks = self._order.ticks(usable)
        before = None if self._in_order else clock.watermark
        ready = self._release(sorted_run(usable, ticks), before)
        self._clock = clock
        steps, self._steps = self._steps, None
        return ReleasedEvents(ready, clock.watermark, late, invalid, met=met, steps=steps)

    def _used(self, rows: pa.Table) -> pa.Table:
        """Return the events that a step can use."""
        if self._useful is None or (used := self._useful.used(rows)).all():
            return rows
        return rows.filter(pa.array(used))

    def _admit(
        self, events: EventsArrived
    ) -> tuple[Clock, pa.Table, pa.Table | None, pa.Table | None, Integers]:
        """Return a clock that has seen events, those that take part, the late and the invalid.

        And the watermark that each of the late ones met.
        """
        rows = events.rows
        known = ~invalid_times(rows.column(self._time))
        usable = rows if known.all() else rows.filter(pa.array(known))
        clock = self._clock.snapshot()
        valid, behind, met = self._follow(clock, usable, events)
        invalid, late = self._invalid(rows, known, valid, clock), None
        if not valid.all():
            usable, behind, met = usable.filter(pa.array(valid)), behind[valid], met[valid]
        if self._last.num_rows:
            behind |= self._before_last(usable, self._order.ticks(usable))
        if behind.any():
            late = usable.filter(pa.array(behind))
            if self._disorder.late is Late.PASS:
                usable = self._passed(usable, behind, met)
            else:
                usable = usable.filter(pa.array(~behind))
        return clock, usable, late, invalid, met[behind]

    @property
    def order_columns(self) -> tuple[str, ...]:
        """The columns by which events are ordered, in turn."""
        return self._order.columns

    def ticks(self, rows: pa.Table) -> Integers:
        """Return the times of events as exactly as their column has them."""
        return self._order.ticks(rows)

    def keeps_ties(
        self, rows: pa.Table, ticks: Integers, places: Integers, owners: Integers
    ) -> bool:
        """Say whether events of one time are in order where they stand side by side.

        Parameters
        ----------
        rows, ticks
            A table that has them, and its times.
        places, owners
            Where they are in it, and whose they are; those of each are side by side.
        """
        times = ticks[places]
        tied = np.flatnonzero((times[1:] == times[:-1]) & (owners[1:] == owners[:-1]))
        if not len(tied) or len(self._order.columns) == 1:
            return True
        some = np.union1d(tied, tied + 1)
        keys = moved(rows.select(self._order.columns), places[some])
        return self._order.puts_before(keys, np.searchsorted(some, tied))

    def takes_next(self, first: int, promise: int = NO_TIME) -> bool:
        """Say whether events from a tick on, in the order of time, would pass as they are."""
        last = int(self._order.ticks(self._last)[0]) if self._last.num_rows else None
        tied = first == last and len(self._order.columns) > 1
        late = first < self._order.in_ticks(max(self._clock.watermark, promise))
        return not (late or tied or (last is not None and first < last))

    def note_passed(self, last: pa.Table | None, time: int, promise: int) -> None:
        """Note events that passed as they are: the last one, and the watermark of the source."""
        if last is not None:
            self._clock.reach(time)
            self._last = last
        self._clock.tell(promise)

    def _follow(
        self, clock: Clock, rows: pa.Table, events: EventsArrived
    ) -> tuple[Booleans, Booleans, Integers]:
        """Let the clock see a piece.

        Returns
        -------
        tuple
            Which events are valid, which are late, and the watermark that each met.
        """
        times = as_integers(one_array(rows.column(self._time)))
        arrival, values = self._disorder["arrival"], self._weights(rows, events)
        if clock.rule is None or arrival is None:
            before = clock.watermark
            if clock.rule is not None and clock.rule.by_event:
                # Events that arrive at once count in the order of their times.
                moments = times if events.spans is None else events.spans[:, 0]
                order = order_of(moments, values) if len(values) else None
                clock.follow(
                    # What is nearly in order, or made of parts that are, is sorted much faster so.
                    np.sort(moments, kind="stable") if order is None else moments[order],
                    values if order is None else values[order],
                    at_once=True,
                )
            else:
                # The greatest time says all, so that parts of a stream can be ordered apart.
                spans = events.spans
                clock.follow_spans(spans_of(times, clock.ahead) if spans is None else spans)
            clock.tell(events.watermark)
            met = np.broadcast_to(np.int64(before), times.shape)
            return times <= clock.latest, times < before, met
        moments = arrivals_of(rows.column(arrival))
        order = np.lexsort([times, moments])
        if len(values):
            # Of one time of arrival and one time, what is weighed decides, however they lie.
            came, happened = moments[order], times[order]
            tied = (came[1:] == came[:-1]) & (happened[1:] == happened[:-1])
            some = np.flatnonzero(np.append(tied, False) | np.append(False, tied))
            few = order[some]
            order[some] = few[np.lexsort([values[few], times[few], moments[few]])]
        fates, met = clock.follow(times[order], values[order] if len(values) else values)
        self._steps = WatermarkSteps(met, moments, order, clock.watermark)
        clock.tell(events.watermark)
        back = np.argsort(order)
        fates, met = fates[back], met[back]
        return fates != INVALID, fates == LATE, met

    def _weights(self, rows: pa.Table, events: EventsArrived) -> Floats:
        """Return what an aggregate over the events reads; nothing where none does."""
        if events.weights is not None:
            return events.weights
        name = self._disorder.weighed
        return np.zeros(0) if name is None else weights_of(rows.column(name))

    def tell(self, time: int, source: str | None = None, arrival: int = NO_TIME) -> ReleasedEvents:
        """Take a promise that no later event has a time before this."""
        return self.push(EventsArrived(self._runs.nothing.rows, watermark=time))

    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Say that no more events come, and return those that wait."""
        ready = self._release(self._runs.nothing, None)
        watermark = self.watermark
        if ready.num_rows:
            final = as_integers(one_array(ready.column(self._time).slice(ready.num_rows - 1)))
            watermark = max(watermark, int(final[0]))
        return ReleasedEvents(ready, watermark)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        sizes, rows = self._runs.saved
        seen = {} if self._seen == NO_TIME else {"seen": self._seen}
        return super().state().plus(State({"runs": sizes, **seen}, [self._last, rows]))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process.

        How far events are out of order may have changed since: what has passed stays passed.
        """
        super().restore(state)
        header, (last, rows) = state.content(2)
        self._seen = integer(header, "seen") if "seen" in header else int(NO_TIME)
        self._last = typed(last, self._last.schema)
        require(last.num_rows <= 1 and not last.column(self._time).null_count, "the last event")
        self._runs.restore(header["runs"], rows, self._order.time, self._order.ticks)

    def _release(self, run: SortedRun, before: int | None) -> pa.Table:
        """Let events wait, and take out those before a time, in the total order."""
        bound = None if before is None else self._order.in_ticks(before)
        due = self._runs.pop(bound, run)
        ready = self._order.without_ties(due)
        if before is None and ready.num_rows:
            last = ready.select(self._order.columns).slice(ready.num_rows - 1)
            if not self._last.num_rows or not self._before_last(last, self._order.ticks(last))[0]:
                self._last = moved(last, np.zeros(1, np.int64))
        return ready

    def _before_last(self, rows: pa.Table, ticks: Integers) -> Booleans:
        """Say which events the order puts before the last one released."""
        last = int(self._order.ticks(self._last)[0])
        behind = ticks < last
        # Only what the order puts after it decides between events of the same time.
        tied = np.flatnonzero((ticks == last) & ~behind)
        if len(tied) and len(self._order.columns) > 1:
            keys = moved(rows.select(self._order.columns), tied)
            behind[tied] = self._order.before_first(pa.concat_tables([self._last, keys]))
        return behind

    def _passed(self, rows: pa.Table, behind: Booleans, met: Integers) -> pa.Table:
        """Return events with late ones moved up to where they can still take part."""
        unit = units_in(self._order.kind)
        times = -(-met[behind] // unit) * unit
        try:
            values = from_integers(times, self._order.kind).cast(self._order.kind)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"a late event cannot pass at {times.max()}: the type of '{self._time}' ends"
                " before",
                detail=str(error),
            ) from None
        index = rows.schema.get_field_index(self._time)
        column = pc.replace_with_mask(one_array(rows.column(index)), pa.array(behind), values)
        rows = rows.set_column(index, rows.schema.field(index), column)
        if not self._last.num_rows:
            return rows
        # A time may be finer than the watermark. Of one time, what passes comes behind the last
        # event, whatever else decides between the two.
        still = self._order.ticks(rows) < self._order.ticks(self._last)[0]
        if not still.any():
            return rows
        value = one_array(self._last.column(self._time))[0]
        column = pc.if_else(pa.array(still), value, one_array(rows.column(index)))
        return rows.set_column(index, rows.schema.field(index), column)

    def _invalid(
        self, rows: pa.Table, known: Booleans, valid: Booleans, clock: Clock
    ) -> pa.Table | None:
        """Return the events that cannot be used with the reasons, or refuse the first of them."""
        if known.all() and valid.all():
            return None
        far = np.flatnonzero(known)[~valid]
        bad = np.sort(np.concatenate([np.flatnonzero(~known), far]))
        latest = clock.latest if clock.rule is not None else clock.watermark
        shown = from_integers(np.array([latest], np.int64), self._order.kind)[0]
        column = rows.column(self._time)
        reasons = [
            f"the time {column[int(row)]} is too far ahead of {shown}"
            if known[row]
            else reason_of(column, self._time, int(row))
            for row in bad
        ]
        if self._disorder.invalid is Invalid.FAIL:
            raise DataError(
                reasons[0],
                detail=f"row {int(bad[0])} of a piece of {rows.num_rows}, column '{self._time}'",
                hint=self._hint,
            )
        return with_reasons(rows.take(pa.array(bad)), reasons)


def units_in(kind: pa.DataType) -> int:
    """Return how many units of a query's time the steps of a column are apart."""
    if pa.types.is_date(kind):
        return 86_400_000_000
    if pa.types.is_timestamp(kind):
        return {"s": 1_000_000, "ms": 1_000}.get(kind.unit, 1)
    return 1
