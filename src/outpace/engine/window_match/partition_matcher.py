"""The instance of a query without windows: a partition is one window, which is always open.

Between pieces it keeps the rows that an undecided match may still need, and where matching stopped
in each partition. A step matches `rows kept + new rows` of the partitions that it has rows of, and
of those in which time decides something now. So its cost is linear in these rows, of which WITHIN
bounds the ones kept; however many other partitions there are, they cost nothing.

A partition is idle when an undecided match needs none of its rows. Of one without rows the least is
kept, for as long as the stream goes on, that decides about its later rows: the number of its
matches where MATCH_NUMBER() or a limit per partition ask for it and there was one, and that it had
rows where the pattern has `^`. PREV keeps as many last rows of every partition as it looks back;
session windows (`outpace.engine.split`) forget partitions that fall silent. With NEXT, rows wait
for those that it looks ahead to: time ends no wait then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Booleans, Integers, distinct, pooled
from outpace.engine.event import Events
from outpace.engine.kernels.grouping import scatter_rows
from outpace.engine.match.contract import (
    Block,
    BlockMatches,
    Matcher,
    Outcome,
    PartialMatches,
    Resume,
    Task,
)
from outpace.engine.match.finality import emission_order, order_by_decision, starts_in_order
from outpace.engine.match.identity import identified
from outpace.engine.match.output import timed_out_schema, timed_out_table
from outpace.engine.match.reach import Reach, reach_of
from outpace.engine.match.task import (
    count_starts,
    fingerprint,
    take_matches,
    taken_lists,
)
from outpace.engine.rows.deadlines import NEVER, Deadlines
from outpace.engine.rows.partition import (
    Grouping,
    gather,
    group_codes,
    one_array,
    place_rows,
)
from outpace.engine.rows.rows_by_key import KeyedRows, RowsWithKeys
from outpace.engine.rows.times import time_values
from outpace.engine.snapshot import Stateful
from outpace.engine.state import NATURAL, State, integer, integers, require, typed
from outpace.engine.window_match.result import (
    CLOSING,
    COMPLETING,
    WindowMatches,
    found_matches,
)
from outpace.engine.window_match.stops import Stops
from outpace.errors import StateError
from outpace.pattern.query import WithinKind
from outpace.pattern.values import TIME_LIMIT


class StepResult(NamedTuple):
    """The matches that a step made final.

    Parameters
    ----------
    matches
        The matches, in the order in which they come out.
    timed_out
        Partial matches that WITHIN ended, where asked for.
    idle, event_counts
        Partitions that nothing is known of any more, and how many rows each of them has had.
    """

    matches: WindowMatches
    timed_out: pa.Table
    idle: Integers
    event_counts: Integers


class PartitionMatcher(Stateful):
    """Matches partitions that come piece by piece, in event order.

    Parameters
    ----------
    task, matcher
        The query and how it is matched.
    rows
        The columns of events that are kept.
    """

    CHANGED = ("_kept", "_stops", "_deadlines")

    def __init__(self, task: Task, matcher: Matcher, rows: pa.Schema) -> None:
        self.task = task
        self.matcher = matcher
        self._columns = rows.names
        self._reach: Reach = reach_of(task)
        self._rows = rows
        self._timed = task.bound.within is not None and task.bound.time is not None
        #: How often a step has begun to change what is kept.
        self.begun = 0
        # Most steps settle nothing, and to make an empty table takes as long as to find that out.
        self._no_matches = WindowMatches.none(task.bound.output)
        self._no_timeouts: pa.Table = timed_out_schema(task).empty_table()
        self._begin()

    def _begin(self) -> None:
        self._stops = Stops()
        #: The rows kept, each with its ordinal, its arrival, and its time where WITHIN measures it.
        self._kept = KeyedRows(self._rows, 3 if self._timed else 2)
        self._deadlines = Deadlines()
        self._watermark = NO_TIME

    @property
    def rows_kept(self) -> int:
        """How many rows an undecided match may still need."""
        return len(self._kept)

    @property
    def partitions_kept(self) -> int:
        """How many partitions anything is kept of."""
        return len(self._stops)

    def is_unmoved(self, watermark: int) -> bool:
        """Say whether it decides nothing up to a time, if no rows come."""
        return not len(self._deadlines.passed(min(watermark, TIME_LIMIT - 1)))

    def starts_kept(self) -> int:
        """Count the rows kept that an undecided match may start with; linear in the rows kept."""
        kept = self._kept.take(self._kept.keys)
        undecided = kept.numbers[0] >= self._stops.resume(kept.key).next_start
        return count_starts(self.task, kept.rows, undecided)

    def step(
        self,
        events: Events,
        *,
        watermark: int = NO_TIME,
        ended: bool = False,
        stream: Events | None = None,
        arrived: int | None = None,
    ) -> StepResult:
        """Take the next events and return what they make final.

        After an error nothing is taken, unless a step has `begun`.

        Parameters
        ----------
        events
            In order. Columns that the query has no use for may be there.
        watermark
            No later event has a time before this.
        ended
            No more events come.
        stream, arrived
            All that came with them, also for other instances, and how many the stream has had;
            None where these events are all.
        """
        times = events.times
        if self._timed and len(times) != len(events.ordinal):
            times = time_values(self.task.bound, events.rows)
        told = max(min(watermark, TIME_LIMIT - 1), self._newest(times))
        if not ended or (not len(events.ordinal) and self.is_unmoved(TIME_LIMIT)):
            return self._step(events, times, told, told, stream, arrived, ended=ended)
        # What rows and time make final comes before what only the end does, in any case; where one
        # of the two fails, neither is taken.
        past, twin = TIME_LIMIT - 1, self.snapshot()
        last = twin._step(events, times, told, past, stream, arrived, ended=False)
        rest = twin._step(events.slice(0, 0), times[:0], told, past, None, arrived, ended=True)
        self.become(twin)
        return StepResult(
            WindowMatches.joined(self.task.bound.output, [last.matches, rest.matches]),
            pa.concat_tables([last.timed_out, rest.timed_out]),
            np.concatenate([last.idle, rest.idle]),
            np.concatenate([last.event_counts, rest.event_counts]),
        )

    def _step(
        self,
        events: Events,
        times: Integers,
        told: int,
        newest: int,
        stream: Events | None,
        arrived: int | None,
        *,
        ended: bool,
    ) -> StepResult:
        """Take events; time has come so far, and matches are found as if it had come to another."""
        rows = events.rows.select(self._columns)
        passed = self._deadlines.passed(newest)
        _, numbers = events.codes
        keys = self._kept.keys if ended else distinct(numbers, passed)
        self._stops.make_room(numbers)
        clock = None if stream is None else (stream.times, stream.arrival)
        known = {"watermark": newest, "ended": ended, "stream": clock, "arrived": arrived}
        block, keys = self._block(events, rows, times, keys.astype(np.int64), known)
        outcome = self.matcher(block, self._stops.resume(keys))
        matches, timed_out = self._emit(block, outcome, told)
        self.begun += 1
        self._watermark = newest
        return StepResult(matches, timed_out, *self._retain(block, keys, outcome))

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        kept = self._kept.take(self._kept.keys)
        ordinal, arrival = kept.numbers[:2]
        places = pa.table({"partition": kept.key, "ordinal": ordinal, "arrival": arrival})
        header = {"query": fingerprint(self.task.bound), "watermark": self._watermark}
        return State(header, [self._stops.table(), places, kept.rows])

    def restore(
        self, state: State, taken: Integers | None = None, arrived: int = NATURAL.stop
    ) -> None:
        """Go on from what `state` returned; so many rows were taken, of each and of all, if known.

        What is kept of a partition ends with its last row.
        """
        header, (stops, places, rows) = state.content(3)
        if header.get("query") != fingerprint(self.task.bound):
            raise StateError(
                "the saved state belongs to another query or another schema",
                hint="resume it with the query that it was saved from, or start from the input",
            )
        self._begin()
        self._watermark = integer(header, "watermark")
        taken = _taken_by(stops, places) if taken is None else taken
        self._stops.restore(stops, taken)
        rows = typed(rows, self._rows)
        require(rows.num_rows == places.num_rows, "rows have no places")
        key, ordinal, arrival = integers(
            places, partition=range(len(taken)), ordinal=NATURAL, arrival=range(arrived)
        )
        self._check_places(key, ordinal, arrival, taken)
        begin = np.flatnonzero(np.diff(key, prepend=-1))
        times = time_values(self.task.bound, rows)
        numbers = np.stack([ordinal, arrival, times] if self._timed else [ordinal, arrival])
        self._kept.replace(key[begin], RowsWithKeys(rows.combine_chunks(), key, numbers))
        ends = np.append(begin[1:], len(key))
        waiting = begin + self._stops.resume(key[begin]).next_start - ordinal[begin]
        self._wait(key[begin], times, np.minimum(waiting, ends), ends)

    def _check_places(
        self, key: Integers, ordinal: Integers, arrival: Integers, taken: Integers
    ) -> None:
        """Refuse rows kept that are not the last ones of their partitions, from some row on."""
        begin = np.flatnonzero(np.diff(key, prepend=-1))
        sizes = np.diff(begin, append=len(key))
        known = self._stops.partitions
        require(len(np.unique(key[begin])) == len(begin), "the rows of a partition lie apart")
        require(np.isin(key[begin], known).all(), "a partition is not known")
        left = np.arange(len(key)) - np.repeat(begin + sizes, sizes)
        require((ordinal == taken[key] + left).all(), "the ordinals of rows do not follow")
        inside = np.ones(len(key), np.bool_)
        inside[begin] = False
        require((np.diff(arrival, prepend=-1)[inside] > 0).all(), "arrivals do not rise")
        first = taken.copy()
        first[key[begin]] = ordinal[begin]
        starts = self._stops.next_start[known]
        fits = (first[known] <= starts) & (starts <= taken[known])
        require(fits.all(), "a start has no row")

    def _emit(self, block: Block, outcome: Outcome, told: int) -> tuple[WindowMatches, pa.Table]:
        """Return matches, and what had timed out when time had come so far."""
        found, partial = outcome.found, outcome.timed_out
        matches, timed_out = self._no_matches, self._no_timeouts
        if len(found.start):
            matches = self._matches(block, self._dated(block, found))
        if partial is not None and len(partial.start):
            order = order_by_decision(
                partial.settled, partial.awaited, block.arrivals[partial.start]
            )
            order = order[self._deadlines_of(block, partial)[order] <= told]
            timed_out = timed_out_table(self.task, block, _take_partial(partial, order))
        return matches, timed_out

    def _deadlines_of(self, block: Block, partial: PartialMatches) -> Integers:
        """Return the times that ended partial matches."""
        within = self.task.bound.query.bound
        assert within is not None
        assert self.task.bound.within is not None
        by_step = within.kind is WithinKind.PREVIOUS_TO_CURRENT
        rows = partial.rows[partial.offsets[1:] - 1] if by_step else partial.start
        return block.times[rows] + self.task.bound.within

    def _matches(self, block: Block, found: BlockMatches) -> WindowMatches:
        """Return matches in the order in which they come out."""
        taken, starts = found, None
        # A single partition has its matches in this order.
        if len(block.segments) > 2:
            order, starts = emission_order(block, found)
            taken, starts = take_matches(found, order), starts[order]
        awaited = taken.awaited

        def phase() -> Integers:
            if awaited is None:
                return np.full(len(taken.start), COMPLETING)
            return np.where(awaited == NO_TIME, COMPLETING, CLOSING)

        def window() -> Integers:
            none = np.zeros(len(taken.start), np.int64)
            return none if awaited is None else np.where(awaited == NO_TIME, none, awaited)

        return found_matches(
            self.task,
            block,
            taken,
            taken.settled,
            identified(self.task, block, taken),
            phase=phase,
            window=window,
            partition=lambda: starts_in_order(block, taken) if starts is None else starts,
        )

    def _dated(self, block: Block, found: BlockMatches) -> BlockMatches:
        """Return matches with what made them final, the rows that NEXT looks ahead to included."""
        if block.ended:
            # The end settles all that is left, at once.
            settled, awaited = np.full(len(found.start), block.next_arrival), found.awaited
            if awaited is None:
                awaited = np.full(len(settled), NO_TIME)
            awaited = np.where(awaited == NO_TIME, NEVER, awaited)
            return replace(found, settled=settled, awaited=awaited)
        ahead = self._reach.ahead
        if not ahead:
            return found
        shown = np.empty_like(found.settled)
        for segment in np.unique(found.segment):
            mine = found.segment == segment
            arrivals = block.arrivals[block.segments[segment] : block.segments[segment + 1]]
            shown[mine] = arrivals[np.searchsorted(arrivals, found.settled[mine]) + ahead]
        return replace(found, settled=shown)

    def _block(
        self,
        events: Events,
        rows: pa.Table,
        times: Integers,
        keys: Integers,
        known: dict[str, Any],
    ) -> tuple[Block, Integers]:
        """Join the rows kept of some keys and the new ones; return the block and its keys.

        What else is known of it is given.
        """
        kept = self._kept.take(keys)
        codes, new = events.codes
        place = np.searchsorted(keys, new).astype(np.int32)
        codes = np.concatenate([np.searchsorted(keys, kept.key).astype(np.int32), place[codes]])
        grouping = group_codes(codes, len(keys))
        joined = pa.concat_tables([kept.rows, rows]) if len(kept) else rows
        columns = {
            name: place_rows(
                one_array(joined.column(name)),
                grouping.order,
                grouping.codes,
                grouping.segments,
            )
            for name in self._columns
        }
        # Fresh memory would cost more than to fill it.
        new_numbers = [events.ordinal, events.arrival, *[times] * self._timed]
        numbers = pooled(len(new_numbers) * len(codes), np.int64).reshape(len(new_numbers), -1)
        held = len(kept.key)
        numbers[:, :held] = kept.numbers
        for line, values in zip(numbers, new_numbers, strict=True):
            line[held:] = values
        ordinals, arrivals, *measured = (_grouped(line, grouping) for line in numbers)
        there = np.flatnonzero(np.diff(grouping.segments))
        segments = np.append(grouping.segments[there], len(codes))
        ahead = 0 if known["ended"] else self._reach.ahead
        if ahead:
            # Rows that are only looked ahead at are not seen by the matcher yet, so time must not
            # settle what they could still change.
            known["watermark"] = NO_TIME
        block = Block(
            columns=columns,
            segments=segments,
            visible=np.maximum(segments[1:] - ahead, segments[:-1]),
            ordinals=ordinals,
            arrivals=arrivals,
            times=measured[0] if measured else numbers[0, :0],
            **known,
        )
        return block, keys[there]

    def _newest(self, times: Integers) -> int:
        """Return the watermark after rows with these times."""
        if not self._timed or not len(times):
            return self._watermark
        return max(self._watermark, int(times[-1]))

    def _retain(self, block: Block, keys: Integers, outcome: Outcome) -> tuple[Integers, Integers]:
        """Keep what is still needed of each partition; see `StepResult` for what is returned."""
        self._stops.stop(keys, outcome.resume)
        begin, end = block.segments[:-1], block.segments[1:]
        back = 0 if block.ended else self._reach.back
        first = np.maximum(outcome.keep_from - back, begin)
        sizes = end - first
        rows = np.repeat(end - np.cumsum(sizes), sizes) + np.arange(sizes.sum())
        columns = [gather(block.columns[name], rows) for name in self._columns]
        kept = pa.Table.from_arrays(columns, schema=self._rows)
        lines = block.ordinals, block.arrivals, *[block.times] * self._timed
        numbers = np.stack([line[rows] for line in lines])
        self._kept.replace(keys, RowsWithKeys(kept, np.repeat(keys, sizes), numbers))
        self._deadlines.forget(self._watermark)
        self._wait(keys, block.times, outcome.keep_from, end)
        unneeded = (sizes == 0) & ~self._remembered(outcome.resume)
        idle: Integers = keys[unneeded]
        self._stops.forget(idle)
        return idle, block.ordinals[end[unneeded] - 1] + 1

    def _remembered(self, resume: Resume) -> Booleans:
        """Say which partitions must stay known even without rows."""
        if self._reach.anchored:
            return np.ones(len(resume.number), np.bool_)
        return (resume.number > 0) & self._reach.numbered

    def _wait(self, keys: Integers, times: Integers, begin: Integers, end: Integers) -> None:
        """Note when time can decide something in partitions that have undecided rows.

        That is never before one of these rows is as old as WITHIN allows.
        """
        within = self.task.bound.within
        if within is None or self._reach.ahead:
            return
        if self.task.bound.uncertainty is not None:
            self._wait_uncertain(keys, times, begin, end)
            return
        young = np.append(np.flatnonzero(times > self._watermark - within), len(times))
        row = young[np.searchsorted(young, begin)]
        waits = row < end
        deadline = np.full(len(keys), NEVER)
        deadline[waits] = np.minimum(times[row[waits]], NEVER - 1 - within) + within
        self._deadlines.replace(keys, deadline)

    def _wait_uncertain(
        self, keys: Integers, times: Integers, begin: Integers, end: Integers
    ) -> None:
        """Note when time makes matches final that the first undecided row ends, and frees rows."""
        uncertainty = self.task.bound.uncertainty
        assert uncertainty is not None
        waits = begin < end
        resume = self._stops.resume(keys)
        undecided = np.maximum(begin, begin + resume.completed_to - resume.next_start)
        # No row is freed as long as one is undecided.
        row = np.where(undecided < end, undecided, begin)
        after = np.where(undecided < end, uncertainty.delay, uncertainty.reach)
        deadline = np.full(len(keys), NEVER)
        since = np.minimum(times[row[waits]], NEVER - after[waits] - 2)
        deadline[waits] = since + after[waits] + 1
        self._deadlines.replace(keys, deadline)


def _taken_by(stops: pa.Table, places: pa.Table) -> Integers:
    """Return how many rows each partition has had, by what was saved of it."""
    known, starts = integers(stops, partition=NATURAL, next_start=NATURAL)
    key, ordinal = integers(places, partition=NATURAL, ordinal=NATURAL)
    taken = np.zeros(max(known.max(initial=-1), key.max(initial=-1)) + 1, np.int64)
    np.maximum.at(taken, known, starts)
    np.maximum.at(taken, key, ordinal + 1)
    return taken


def _grouped(values: Integers, grouping: Grouping) -> Integers:
    if grouping.codes is None:
        return values
    grouped = pooled(len(values), values.dtype)
    scatter_rows(values, grouping.codes, grouping.segments, grouped)
    return grouped


def _take_partial(partial: PartialMatches, order: Integers) -> PartialMatches:
    offsets, source = taken_lists(partial.offsets, order)
    return PartialMatches(
        partial.segment[order],
        partial.start[order],
        offsets,
        partial.rows[source],
        partial.positions[source],
        partial.settled[order],
        partial.awaited[order],
    )
