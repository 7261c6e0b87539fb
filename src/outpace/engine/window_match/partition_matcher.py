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

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Booleans, Integers, distinct, grown, pooled
from outpace.engine.event import Events
from outpace.engine.kernels.grouping import scatter_rows
from outpace.engine.match.contract import (
    Block,
    BlockMatches,
    JointTasks,
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
    take_partial_matches,
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
    JointMatches,
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
        The matches, in the order in which they come out; those of several tasks are apart.
    timed_out
        Partial matches that WITHIN ended, where asked for.
    idle, event_counts
        Partitions that nothing is known of any more, and how many rows each of them has had.
    """

    matches: WindowMatches
    timed_out: pa.Table
    idle: Integers
    event_counts: Integers


class _Line(NamedTuple):
    """One of the tasks: its number, how it is matched, and what it gives where there is nothing."""

    number: int
    task: Task
    matcher: Matcher
    reach: Reach
    nothing: WindowMatches

    @staticmethod
    def of(number: int, task: Task, matcher: Matcher) -> _Line:
        nothing = WindowMatches.none(task.bound.output)
        return _Line(number, task, matcher, reach_of(task), nothing)

    def remembered(self, resume: Resume) -> Booleans:
        """Say which partitions must stay known even without rows."""
        if self.reach.anchored or not self.reach.numbered:
            return np.full(len(resume.number), self.reach.anchored)
        return resume.number > 0


class _Share(NamedTuple):
    """The rows of a task in a step, from a row of the block on, and what came of them."""

    line: _Line
    begin: int
    block: Block
    outcome: Outcome


class PartitionTables(NamedTuple):
    """The tables of a saved matcher: where searches stand, the places of rows, the rows kept."""

    stops: pa.Table
    places: pa.Table
    rows: pa.Table

    @staticmethod
    def of(state: State) -> PartitionTables:
        """Return the tables of a state."""
        return PartitionTables(*state.content(3)[1])


class PartitionMatcher(Stateful):
    """Matches partitions that come piece by piece, in event order.

    Parameters
    ----------
    task, matcher
        The query and how it is matched.
    rows
        The columns of events that are kept.
    joint
        The tasks of several queries, each with its matcher, where rows say which they are for; then
        `task` tells what is the same of all.
    """

    CHANGED = ("_kept", "_stops", "_deadlines", "_owners")

    def __init__(
        self,
        task: Task,
        matcher: Matcher,
        rows: pa.Schema,
        joint: tuple[JointTasks, Sequence[Matcher]] | None = None,
    ) -> None:
        self.task = task
        self.matcher = matcher
        self._joint = None if joint is None else joint[0]
        tasks = [(task, matcher)] if joint is None else zip(joint[0].tasks, joint[1], strict=True)
        self._lines = [_Line.of(number, *one) for number, one in enumerate(tasks)]
        self._columns = rows.names
        self._reach: Reach = reach_of(task)
        self._rows = rows
        self._timed = task.bound.within is not None and task.bound.time is not None
        #: How often a step has begun to change what is kept.
        self.begun = 0
        # Most steps settle nothing, and to make an empty table takes as long as to find that out.
        self._no_timeouts: pa.Table = timed_out_schema(task).empty_table()
        nothing = [line.nothing for line in self._lines]
        matches = nothing[0] if joint is None else JointMatches(nothing)
        none = np.zeros(0, np.int64)
        self._unmoved = StepResult(matches, self._no_timeouts, none, none)
        self._begin()

    def _begin(self) -> None:
        self._stops = Stops()
        #: The rows kept, each with its ordinal, its arrival, and its time where WITHIN measures it.
        self._kept = KeyedRows(self._rows, 3 if self._timed else 2)
        self._deadlines = Deadlines()
        #: For each partition the query that it is of, where there are several.
        self._owners = np.zeros(0, np.int64)
        self._watermark = NO_TIME

    @property
    def open_windows(self) -> int:
        """A partition is no window that anybody counts."""
        return 0

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
        if self._joint is None:
            return count_starts(self.task, kept.rows, undecided)
        number = self._joint.task_of[self._owners[kept.key]]
        own = ((one.task, undecided & (number == one.number)) for one in self._lines)
        return sum(count_starts(task, kept.rows, some) for task, some in own)

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
        now = max(min(watermark, TIME_LIMIT - 1), self._newest(times))
        if not ended or (not len(events.ordinal) and self.is_unmoved(TIME_LIMIT)):
            return self._step(events, times, now, now, stream, arrived, ended=ended)
        # What rows and time make final comes before what only the end does, in any case; where one
        # of the two fails, neither is taken.
        past, twin = TIME_LIMIT - 1, self.snapshot()
        last = twin._step(events, times, now, past, stream, arrived, ended=False)
        rest = twin._step(events.slice(0, 0), times[:0], now, past, None, arrived, ended=True)
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
        now: int,
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
        if not len(keys) and not len(numbers):
            self._watermark = newest
            return self._unmoved
        self._stops.make_room(numbers)
        if self._joint is not None:
            self._own(numbers[events.codes[0]], rows)
        clock = None if stream is None else (stream.times, stream.arrival)
        known = {"watermark": newest, "ended": ended, "stream": clock, "arrived": arrived}
        block, keys = self._block(events, rows, times, keys.astype(np.int64), known)
        shares = self._shares(block, keys)
        matches, timed_out = self._emit(shares, now)
        self.begun += 1
        self._watermark = newest
        return StepResult(matches, timed_out, *self._retain(block, keys, shares))

    def _own(self, partitions: Integers, rows: pa.Table) -> None:
        """Note which query each partition is of, as its rows say."""
        assert self._joint is not None
        self._owners = grown(self._owners, int(partitions.max(initial=-1)) + 1, 0)
        self._owners[partitions] = rows.column(self._joint.column).to_numpy() % self._joint.size

    def _shares(self, block: Block, keys: Integers) -> list[_Share]:
        """Let each task match its partitions."""
        resume, (first, *others) = self._stops.resume, self._lines
        if self._joint is None or not others or not len(keys):
            return [_Share(first, 0, block, first.matcher(block, resume(keys)))]
        number = self._joint.task_of[self._owners[keys]]
        bounds = [*np.flatnonzero(np.diff(number, prepend=-1)).tolist(), len(keys)]
        shares = []
        for low, high in pairwise(bounds):
            line, part = self._lines[number[low]], block.part(low, high)
            outcome = line.matcher(part, resume(keys[low:high]))
            shares.append(_Share(line, int(block.segments[low]), part, outcome))
        return shares

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        kept = self._kept.take(self._kept.keys)
        ordinal, arrival = kept.numbers[:2]
        places = pa.table({"partition": kept.key, "ordinal": ordinal, "arrival": arrival})
        header = {"query": fingerprint(self.task.bound), "watermark": self._watermark}
        return State(header, PartitionTables(self._stops.table(), places, kept.rows))

    def restore(
        self, state: State, taken: Integers | None = None, arrived: int = NATURAL.stop
    ) -> None:
        """Go on from what `state` returned; so many rows were taken, of each and of all, if known.

        What is kept of a partition ends with its last row.
        """
        header, (stops, places, rows) = state.numbers, PartitionTables.of(state)
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
        if self._joint is not None:
            self._own(key, rows)
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

    def _emit(self, shares: Sequence[_Share], now: int) -> tuple[WindowMatches, pa.Table]:
        """Return matches, and what had timed out when time had come so far."""
        found = [line.nothing for line in self._lines]
        for line, _, block, outcome in shares:
            if len(outcome.found.start):
                matches = _matches(line.task, block, self._dated(block, outcome.found))
                found[line.number] = matches
        if self._joint is not None:
            return JointMatches(found), self._no_timeouts
        ((_, _, block, outcome),) = shares
        partial, timed_out = outcome.timed_out, self._no_timeouts
        if partial is not None and len(partial.start):
            order = order_by_decision(
                partial.settled, partial.awaited, block.arrivals[partial.start]
            )
            order = order[self._deadlines_of(block, partial)[order] <= now]
            timed_out = timed_out_table(self.task, block, take_partial_matches(partial, order))
        return found[0], timed_out

    def _deadlines_of(self, block: Block, partial: PartialMatches) -> Integers:
        """Return the times that ended partial matches."""
        within = self.task.bound.query.bound
        assert within is not None
        assert self.task.bound.within is not None
        by_step = within.kind is WithinKind.PREVIOUS_TO_CURRENT
        rows = partial.rows[partial.offsets[1:] - 1] if by_step else partial.start
        return block.times[rows] + self.task.bound.within

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
        held, new = np.searchsorted(keys, kept.key), np.searchsorted(keys, new)
        if self._joint is not None and len(self._lines) > 1:
            # The partitions of a task lie together.
            order = np.argsort(self._joint.task_of[self._owners[keys]], kind="stable")
            place = np.empty(len(keys), np.int64)
            place[order] = np.arange(len(keys))
            keys, held, new = keys[order], place[held], place[new]
        codes = np.concatenate([held.astype(np.int32), new.astype(np.int32)[codes]])
        grouping = group_codes(codes, len(keys))
        joined = pa.concat_tables([kept.rows, rows]) if len(kept) else rows
        columns = {
            name: place_rows(one_array(joined.column(name)), grouping.order, grouping.scatter)
            for name in self._columns
        }
        # Fresh memory would cost more than to fill it.
        new_numbers = [events.ordinal, events.arrival, *[times] * self._timed]
        numbers = pooled(len(new_numbers) * len(codes), np.int64).reshape(len(new_numbers), -1)
        size = len(kept.key)
        numbers[:, :size] = kept.numbers
        for line, values in zip(numbers, new_numbers, strict=True):
            line[size:] = values
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
            within=self._withins(keys[there]),
            **known,
        )
        return block, keys[there]

    def _withins(self, keys: Integers) -> Integers | None:
        """Return what WITHIN allows the matches of partitions, where they may differ in it."""
        if self._joint is None or self._joint.within is None:
            return None
        return self._joint.within[self._owners[keys]]

    def _newest(self, times: Integers) -> int:
        """Return the watermark after rows with these times."""
        if not self._timed or not len(times):
            return self._watermark
        return max(self._watermark, int(times[-1]))

    def _retain(
        self, block: Block, keys: Integers, shares: Sequence[_Share]
    ) -> tuple[Integers, Integers]:
        """Keep what is still needed of each partition; see `StepResult` for what is returned."""
        resume, keep_from, remembered = _stopped(shares)
        self._stops.stop(keys, resume)
        begin, end = block.segments[:-1], block.segments[1:]
        back = 0 if block.ended else self._reach.back
        first = np.maximum(keep_from - back, begin)
        sizes = end - first
        rows = np.repeat(end - np.cumsum(sizes), sizes) + np.arange(sizes.sum())
        columns = [gather(block.columns[name], rows) for name in self._columns]
        kept = pa.Table.from_arrays(columns, schema=self._rows)
        lines = block.ordinals, block.arrivals, *[block.times] * self._timed
        numbers = np.stack([line[rows] for line in lines])
        self._kept.replace(keys, RowsWithKeys(kept, np.repeat(keys, sizes), numbers))
        self._deadlines.forget(self._watermark)
        self._wait(keys, block.times, keep_from, end)
        unneeded = (sizes == 0) & ~remembered
        idle: Integers = keys[unneeded]
        self._stops.forget(idle)
        return idle, block.ordinals[end[unneeded] - 1] + 1

    def _wait(self, keys: Integers, times: Integers, begin: Integers, end: Integers) -> None:
        """Note when time can decide something in partitions that have undecided rows.

        That is never before one of these rows is as old as WITHIN allows.
        """
        if self.task.bound.within is None or self._reach.ahead:
            return
        if self.task.bound.uncertainty is not None and self.task.bound.query.join is None:
            self._wait_uncertain(keys, times, begin, end)
            return
        each = self._withins(keys)
        within = self.task.bound.within if each is None else each
        oldest = np.maximum(self._watermark, NO_TIME + within) - within
        if each is not None:
            oldest = np.repeat(oldest, np.diff(end, prepend=0))
        young = np.append(np.flatnonzero(times > oldest), len(times))
        row = young[np.searchsorted(young, begin)]
        waits = row < end
        deadline = np.full(len(keys), NEVER)
        within = within if each is None else each[waits]
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


def _stopped(shares: Sequence[_Share]) -> tuple[Resume, Integers, Booleans]:
    """Return where matching stopped, the rows to keep from there on, and what stays known."""
    if len(shares) == 1:
        ((line, _, _, outcome),) = shares
        return outcome.resume, outcome.keep_from, line.remembered(outcome.resume)
    return (
        Resume.joined([one.outcome.resume for one in shares]),
        np.concatenate([one.begin + one.outcome.keep_from for one in shares]),
        np.concatenate([one.line.remembered(one.outcome.resume) for one in shares]),
    )


def _matches(task: Task, block: Block, found: BlockMatches) -> WindowMatches:
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
        task,
        block,
        taken,
        taken.settled,
        identified(task, block, taken),
        phase=phase,
        window=window,
        partition=lambda: starts_in_order(block, taken) if starts is None else starts,
    )


def _taken_by(stops: pa.Table, places: pa.Table) -> Integers:
    """Return how many rows each partition has had, by what was saved of it."""
    known, starts = integers(stops, partition=NATURAL, next_start=NATURAL)
    key, ordinal = integers(places, partition=NATURAL, ordinal=NATURAL)
    taken = np.zeros(max(known.max(initial=-1), key.max(initial=-1)) + 1, np.int64)
    np.maximum.at(taken, known, starts)
    np.maximum.at(taken, key, ordinal + 1)
    return taken


def _grouped(values: Integers, grouping: Grouping) -> Integers:
    if grouping.scatter is None:
        return values
    grouped = pooled(len(values), values.dtype)
    scatter_rows(values, grouping.scatter, grouped)
    return grouped
