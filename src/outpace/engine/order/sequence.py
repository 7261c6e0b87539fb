"""Order by sequence numbers: an event waits for those that its source sent before it.

A gate holds events whose turn by number has not come (`outpace.engine.kernels.sequence` says how
long), and lets the others in. Behind it a reorderer gets the events in order already, and sees to
those that are late or invalid by their time.

Memory: the events that arrive while a gap is waited for, at most for the timeout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.compiler.kernel import read_only
from outpace.engine.arrays import END_OF_TIME, NO_TIME, Booleans, Bytes, Floats, Integers
from outpace.engine.kernels import sequence as kernel
from outpace.engine.kernels.grouping import is_ascending_in_groups
from outpace.engine.message import EventsArrived
from outpace.engine.order.clock import finite_numbers, fixed
from outpace.engine.order.contract import (
    AdmittedEvents,
    Order,
    ReleasedEvents,
    quarantine_hint,
    with_flags,
    with_reasons,
)
from outpace.engine.order.moments import arrivals_of, has_several, take_moments
from outpace.engine.order.reorderer import Reorderer
from outpace.engine.order.runs import moved
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.times import as_integers, invalid_times, reason_of
from outpace.engine.state import ANY, State, integer, integers, require, typed
from outpace.errors import DataError
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import Invalid, Late
from outpace.pattern.types import value_type


class SequenceOrder(Order):
    """Brings the events of a source into the order of their sequence numbers.

    Parameters
    ----------
    bound, disorder, schema
        As for `Reorderer`.
    """

    CHANGED = ("_whole", "_fractions")
    NUMBERS: ClassVar = {"now": ("_now", ANY), "promise": ("_promise", ANY)}
    PARTS: ClassVar = {"order": "_inner"}

    def __init__(self, bound: BoundQuery, disorder: BoundDisorder, schema: pa.Schema) -> None:
        self._disorder = disorder
        self._time, self._number = disorder.time, disorder["number"]
        self._arrival: str | None = disorder["arrival"]
        self._flag: str | None = disorder["flag"]
        width = value_type(schema.field(self._number).type).bit_width
        # Numbers of 64 bits do not begin anew.
        self._range = 1 << width if width < 64 else 0
        self._settings = np.array(
            [
                disorder["alpha"],
                disorder["beta"],
                disorder["deviations"],
                disorder["at_least"] or 0,
                disorder["timeout"],
                self._range,
            ],
            np.float64,
        )
        plain = tuple((name, None if name == "arrival" else one) for name, one in disorder.settings)
        within = replace(disorder, settings=plain)
        self._inner = Reorderer(bound, within, schema, fixed(0), in_order=True)
        self._whole = np.full(kernel.WHOLE, kernel.NOTHING, np.int64)
        self._whole[kernel.DUE] = kernel.NEVER
        if disorder["first"] is not None:
            self._whole[kernel.EXPECTED] = disorder["first"]
        self._fractions = np.full(kernel.FRACTIONS, math.nan)
        #: Events that are held, by number; when they arrived, and when their time is up.
        self._held = schema.empty_table()
        self._waits = np.zeros((2, 0), np.int64)
        #: How far the clock has come, and the watermark that the source sent.
        self._now = int(NO_TIME)
        self._promise = int(NO_TIME)

    @property
    def buffered(self) -> int:
        """How many events wait for others."""
        return int(self._held.num_rows) + self._inner.buffered

    @property
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME while it is not known."""
        return self._inner.watermark

    @property
    def slack(self) -> int:
        """How long an event would be held now, in microseconds of the clock."""
        return int(kernel.patience(self._whole, self._fractions, self._settings))

    @property
    def greatest(self) -> int:
        """The greatest time of the events that were let in; NO_TIME while none was."""
        return self._inner.greatest

    @property
    def now(self) -> int:
        """The clock by which events arrive."""
        return self._now

    @property
    def oldest(self) -> int:
        """When the first of the events came that are held."""
        return int(self._waits[0].min()) if self._waits.shape[1] else self._now

    @property
    def timer(self) -> int | None:
        """When the time of a held event is up, unless a column tells the time."""
        return None if self._arrival is not None else self.due

    @property
    def due(self) -> int | None:
        """When the time of a held event is up."""
        due = int(self._whole[kernel.DUE])
        return None if due == kernel.NEVER else due

    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Take events as they arrive; after an error nothing is taken."""
        self._check_times(events.rows)
        rows, invalid = self._numbered(events.rows)
        clock = np.full(rows.num_rows, events.arrival)
        if self._arrival is not None:
            clock = arrivals_of(rows.column(self._arrival))
        # What was waited for goes on before events that may be refused.
        before = None if self._arrival is None or self.due is None else self.snapshot()
        released = take_moments(self, replace(events, rows=rows), clock, self._take, before)
        if invalid is not None:
            both = [invalid, *([] if released.invalid is None else [released.invalid])]
            released = replace(released, invalid=pa.concat_tables(both))
        return released

    def _take(
        self, events: EventsArrived, clock: Integers, places: Integers
    ) -> ReleasedEvents | None:
        """Take events with numbers, unless those of several moments are to be taken in halves."""
        rows, arrivals = events.rows, np.maximum(clock, self._now)
        if (arrivals[1:] <= arrivals[:-1]).any():
            # Those that arrive at one time count in the order of their numbers.
            numbers = as_integers(one_array(rows.column(self._number)))
            order = np.lexsort([_turns(numbers, self._range), arrivals])
            rows, arrivals = moved(rows, order), arrivals[order]
        several = has_several(clock)
        given: list[ReleasedEvents] = []
        if self._arrival is not None and len(arrivals) and not several:
            # A column tells all that arrived before: what was waited for until then has gone on.
            while self.due is not None and self.due < arrivals[0]:
                given.append(self._pass(self.due, self._promise))
        now = max(self._now, events.arrival if self._arrival is None else int(NO_TIME))
        promise = max(self._promise, events.watermark)
        taken = self._step(rows, arrivals, now, promise, events.source, several=several)
        return ReleasedEvents.joined([*given, taken]) if given and taken is not None else taken

    @classmethod
    def push_all(
        cls, orders: Sequence[Order], events: EventsArrived, places: Integers, bounds: Integers
    ) -> AdmittedEvents | None:
        """Let the gates of several sources take events at once, in one pass over all of them."""
        gates = [order for order in orders if isinstance(order, SequenceOrder)]
        one, rows = gates[0], events.rows
        disorder = one._disorder
        usual = disorder.late is not Late.PASS and disorder.ahead is None
        if not usual or not _countable(rows.column(one._number)).all():
            return None
        every = pa.concat_tables([rows, *(gate._held for gate in gates if gate._held.num_rows)])
        if invalid_times(every.column(one._time)).any():
            return None
        held = np.array([gate._held.num_rows for gate in gates], np.int64)
        numbers = as_integers(one_array(every.column(one._number)))
        latest = np.array([gate._now for gate in gates], np.int64)
        sizes = np.diff(bounds)
        arrived = np.full(rows.num_rows, events.arrival)
        if one._arrival is not None:
            arrived = arrivals_of(rows.column(one._arrival))
        arrived = np.maximum(arrived[places], np.repeat(latest, sizes))
        places = _in_turn(places, arrived, _turns(numbers[places], one._range), bounds)
        # Held events of each source, then those that come.
        ends = np.cumsum(held + sizes)
        starts = ends - held - sizes
        index, clock = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64)
        comes = np.ones(len(numbers), np.bool_)
        waited = np.repeat(starts - (np.cumsum(held) - held), held) + np.arange(held.sum())
        comes[waited] = False
        index[waited] = rows.num_rows + np.arange(held.sum())
        index[comes], clock[comes] = places, arrived
        due = np.zeros(len(numbers), np.int64)
        clock[waited], due[waited] = np.concatenate([gate._waits for gate in gates], axis=1)
        now = np.maximum(latest, clock[ends - 1])
        if one._arrival is None:
            now = np.maximum(now, events.arrival)
        whole, fractions, fates, order, entered = _ordered(
            gates, np.append(starts, len(index)), numbers[index], clock, due, held, now
        )
        place = np.arange(len(index)) - np.repeat(starts, held + sizes)
        let_in = place < np.repeat(entered, held + sizes)
        taken, owners = index[order[let_in]], np.repeat(np.arange(len(gates)), entered)
        ticks = one._inner.ticks(every)
        steps = np.concatenate([[0], np.cumsum(entered)])
        spoke = np.flatnonzero(entered)
        first = ticks[taken[steps[spoke]]].tolist()
        rises = is_ascending_in_groups(ticks, taken, steps)
        if not rises or not all(
            gates[gate]._takes_next(tick) for gate, tick in zip(spoke, first, strict=True)
        ):
            return None
        if one._arrival is not None and not one._inner.keeps_ties(every, ticks, taken, owners):
            return None
        stay = np.add.reduceat(fates == kernel.HELD, starts, dtype=np.int64)
        stays = order[~let_in & (place < np.repeat(entered + stay, held + sizes))]
        last_places = taken[steps[1:][spoke] - 1]
        last_rows = moved(every.select(one._inner.order_columns), last_places)
        last_times = as_integers(one_array(last_rows.column(one._time))).tolist()
        passed = {
            int(gate): (last_rows.slice(place, 1), time)
            for place, (gate, time) in enumerate(zip(spoke, last_times, strict=True))
        }
        waiting, behind = moved(every, index[stays]), np.cumsum(stay).tolist()
        for number, gate in enumerate(gates):
            low, high = behind[number] - int(stay[number]), behind[number]
            own = stays[low:high]
            gate._held = waiting.slice(low, high - low)
            gate._waits = np.stack([clock[own], due[own]])
            gate._whole, gate._fractions = whole[number], fractions[number]
            gate._now, gate._promise = int(now[number]), max(gate._promise, events.watermark)
            promise = min(gate._promise, gate._least(gate._held)) if high > low else gate._promise
            gate._inner.note_passed(*passed.get(number, (None, 0)), promise)
        if one._flag is not None:
            timed = np.zeros(every.num_rows, np.bool_)
            timed[index[fates == kernel.TIMED]] = True
            every = with_flags(every, one._flag, timed)
        late = index[fates == kernel.LATE]
        return AdmittedEvents(
            every, taken, owners, ticks[taken], moved(every, late) if len(late) else None
        )

    def tell(self, time: int, source: str | None = None, arrival: int = NO_TIME) -> ReleasedEvents:
        """Take a promise that the source sends no event with a time before this any more."""
        return self._pass(self._now, max(self._promise, time))

    def fire(self, at: int) -> ReleasedEvents:
        """Let events in whose time is up."""
        return self._pass(max(self._now, at), self._promise)

    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Say that no more events come: the events that are held go on."""
        entered = self._inner.push(EventsArrived(self._held))
        self._held, self._waits = self._held.slice(0, 0), self._waits[:, :0]
        self._whole[kernel.DUE] = kernel.NEVER
        last = self._inner.finish()
        rows = pa.concat_tables([entered.rows, last.rows])
        return ReleasedEvents(rows, last.watermark, entered.late, entered.invalid)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        numbers = {
            "known": self._whole.tolist(),
            "means": np.nan_to_num(self._fractions, nan=-1.0).tolist(),
        }
        arrived, due = self._waits
        waits = pa.table({"arrived": arrived, "due": due})
        return super().state().plus(State(numbers, [self._held, waits]))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        super().restore(state)
        numbers, (held, waits) = state.content(2)
        means = finite_numbers(numbers.get("means"), kernel.FRACTIONS)
        require(((means[::2] < 0) == (means[1::2] < 0)).all(), "an average has no deviation")
        finite_numbers(numbers.get("known"), kernel.WHOLE)
        held = typed(held, self._held.schema)
        arrived, due = integers(waits, arrived=ANY, due=ANY)
        require(len(due) == held.num_rows, "events are missing")
        column = held.column(self._number)
        require(not column.null_count, "an event has no number")
        self._whole = np.array(
            [integer({"known": one}, "known") for one in numbers["known"]], np.int64
        )
        ordered = as_integers(column)
        if self._range:
            ordered = (ordered - self._whole[kernel.EXPECTED]) % self._range
        require((ordered[1:] > ordered[:-1]).all(), "events are out of order")
        self._fractions = np.where(means < 0, math.nan, means)
        self._held, self._waits = held, np.stack([arrived, due])

    def _check_times(self, rows: pa.Table) -> None:
        """Refuse events whose times cannot be used, unless such are set aside in their turn.

        One that is held would be refused with what lets it go, and with it again.
        """
        times = rows.column(self._time)
        if self._disorder.invalid is Invalid.FAIL and (wrong := invalid_times(times)).any():
            row = int(np.argmax(wrong))
            raise self._refused(reason_of(times, self._time, row), row, rows, self._time)

    def _numbered(self, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Return the events that have a number, and those that have none with the reason."""
        column = rows.column(self._number)
        countable = _countable(column)
        if countable.all():
            return rows, None
        wrong = np.flatnonzero(~countable)
        reasons = [self._without_number(column[int(row)].as_py()) for row in wrong]
        if self._disorder.invalid is Invalid.FAIL:
            raise self._refused(reasons[0], int(wrong[0]), rows, self._number)
        return rows.filter(pa.array(countable)), with_reasons(rows.take(pa.array(wrong)), reasons)

    def _without_number(self, number: int | None) -> str:
        if number is None:
            return f"'{self._number}' is NULL, so nobody knows where the event belongs"
        return f"'{self._number}' is {number}, and numbers end with {kernel.GREATEST}"

    def _refused(self, reason: str, row: int, rows: pa.Table, column: str) -> DataError:
        return DataError(
            reason,
            detail=f"row {row} of a piece of {rows.num_rows}, column '{column}'",
            hint=quarantine_hint(self._disorder),
        )

    def _pass(self, now: int, promise: int) -> ReleasedEvents:
        released = self._step(self._held.slice(0, 0), np.zeros(0, np.int64), now, promise, None)
        assert released is not None
        return released

    def _step(
        self,
        rows: pa.Table,
        arrivals: Integers,
        now: int,
        promise: int,
        source: str | None,
        *,
        several: bool = False,
    ) -> ReleasedEvents | None:
        """Let events in, held ones and those that arrive, and pass them on with the time told.

        Nothing is done where events of several moments would not be what they are one by one.
        """
        every = pa.concat_tables([self._held, rows])
        arrived = np.concatenate([self._waits[0], arrivals])
        due = np.concatenate([self._waits[1], np.zeros(len(arrivals), np.int64)])
        now = max(now, int(arrivals[-1])) if len(arrivals) else now
        numbers = as_integers(one_array(every.column(self._number)))
        held = np.array([self._held.num_rows])
        (whole,), (fractions,), fates, order, (entered,) = _ordered(
            [self], np.array([0, len(due)]), numbers, arrived, due, held, np.array([now])
        )
        stays = order[entered : entered + int((fates == kernel.HELD).sum())]
        late = None
        admitted = order[:entered]
        passed = np.flatnonzero(fates == kernel.LATE)
        if len(passed):
            late = moved(every, passed)
            if self._goes_on:
                admitted = np.insert(admitted, due[passed], passed)
        entering = moved(every, admitted)
        if self._flag is not None:
            entering = with_flags(entering, self._flag, fates[admitted] == kernel.TIMED)
        if several:
            by_turn = np.arange(len(admitted))
            if (self._goes_on and len(passed)) or not self._inner.takes_by_moments(
                entering, by_turn, self._promise
            ):
                return None
        waiting = moved(every, stays) if len(stays) else every.slice(0, 0)
        # Who promised what of time had sent those that are held.
        bound = min(promise, self._least(waiting)) if len(stays) else promise
        released = self._inner.push(EventsArrived(entering, source, None, bound))
        self._whole, self._fractions = whole, fractions
        self._held, self._waits = waiting, np.stack([arrived[stays], due[stays]])
        self._now, self._promise = now, promise
        if late is None or self._goes_on:
            return released
        both = [late, *([] if released.late is None else [released.late])]
        return replace(released, late=pa.concat_tables(both))

    @property
    def _goes_on(self) -> bool:
        """Whether events that come behind their numbers go on: then their times decide."""
        return self._disorder.late in (Late.PASS, Late.CORRECT)

    def _takes_next(self, first: int) -> bool:
        """Say whether events from a tick on may be let in, whatever is told meanwhile."""
        promise = self._promise if self._arrival is not None else int(NO_TIME)
        return self._inner.takes_next(first, promise)

    def _least(self, rows: pa.Table) -> int:
        times: Any = as_integers(rows.column(self._time).drop_null())
        return int(times.min()) if len(times) else END_OF_TIME


def _countable(numbers: pa.ChunkedArray) -> Booleans:
    """Say of each number whether there is one, and it is not beyond those of 64 bits."""
    if not pa.types.is_uint64(numbers.type):
        return np.asarray(numbers.is_valid())
    greatest = pa.scalar(kernel.GREATEST, pa.uint64())
    return np.asarray(pc.less_equal(numbers, greatest).fill_null(False))


def _turns(numbers: Integers, wrap: int) -> Integers:
    """Return what numbers mean beside those before them, where they begin anew after so many.

    Examples
    --------
    >>> _turns(np.array([254, 0, 255, 1]), 256).tolist()
    [0, 2, 1, 3]
    """
    if not wrap:
        return numbers
    steps = np.diff(numbers, prepend=numbers[:1])
    return np.cumsum((steps + wrap // 2) % wrap - wrap // 2)


def _in_turn(places: Integers, arrived: Integers, turns: Integers, bounds: Integers) -> Integers:
    """Return events of each source as they arrived; those of one time by their numbers.

    Parameters
    ----------
    places, arrived
        Which events, source after source, and when they arrived, which is put in order.
    turns
        What their numbers mean.
    bounds
        Where the events of each source begin and end.
    """
    step = np.diff(arrived)
    within = np.ones(len(step), np.bool_)
    within[bounds[1:-1] - 1] = False
    owners = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    some: Any = slice(None)
    if not (within & (step < 0)).any():
        same = within & (step == 0)
        some = np.flatnonzero(np.append(same, False) | np.append(False, same))
        if not len(some):
            return places
    order = np.lexsort([turns[some], arrived[some], owners[some]])
    places = places.copy()
    places[some], arrived[some] = places[some][order], arrived[some][order]
    return places


def _ordered(
    gates: Sequence[SequenceOrder],
    bounds: Integers,
    numbers: Integers,
    clock: Integers,
    due: Integers,
    held: Integers,
    now: Integers,
) -> tuple[Integers, Floats, Bytes, Integers, Integers]:
    """Let the kernel bring events into order, of which it is told as it says; no gate changes.

    Returns
    -------
    tuple
        What is known of each gate then, the fates and the order of the events, and how many enter.
    """
    size = len(numbers)
    found = (
        np.array([gate._whole for gate in gates]),
        np.array([gate._fractions for gate in gates]),
        np.zeros(size, np.int8),
        np.zeros(size, np.int64),
        np.zeros(len(gates), np.int64),
    )
    settings, numbers = gates[0]._settings, read_only(numbers)
    kernel.order_sequences(bounds, numbers, clock, due, held, now, settings, *found)
    return found
