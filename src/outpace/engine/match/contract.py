"""The input and the output of a matcher: plain arrays, the same for twins and kernels.

A matcher is a function of a block of sorted rows and, for each partition in it, where an earlier
call stopped. It emits every match that no later row can change and says where it stopped, so
matching a stream is matching `rows kept + new rows` again and again, and matching a table is one
call with `ended`. Nothing else is kept between calls, which makes saved state small and versions of
it easy to check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from outpace.compiler.kernel import read_only
from outpace.engine.arrays import NO_TIME, Booleans, Integers, Unsigned
from outpace.engine.cores import cores
from outpace.engine.kernels.grouping import is_ascending
from outpace.engine.match.meaning import LANES, query_words
from outpace.engine.match.program import Program
from outpace.errors import MatchError
from outpace.pattern.bound import BoundQuery
from outpace.pattern.query import Query

#: A search from one start stops with an error after this many steps, and so many for each row of
#: its block: what is linear or nearly so always ends, what is exponential does not go on for ever.
STEP_BUDGET = 2_000_000
STEPS_PER_ROW = 100

#: All starts of a block together may take this much work, and so much for each row: some minutes,
#: and far more than what is linear ever takes. A unit is a step, or a row that was looked at.
WORK_BUDGET = 10_000_000_000
WORK_PER_ROW = 10_000

#: With more steps for each row than this, and no WITHIN, a search grows faster than the rows.
TOIL_PER_ROW = 200

#: What a call of compiled code does at once: some milliseconds.
WORK_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class Block:
    """Rows of many partitions, sorted by partition and then by the query's order.

    Parameters
    ----------
    columns
        The columns that the query reads, each of the block's length.
    segments
        The row where each partition starts, and the block's length at the end.
    visible
        For each partition the row up to which (exclusive) the matcher may go. Later rows of the
        partition only serve predicates and measures that look ahead with NEXT. The partition's end
        when `ended`.
    ordinals
        For each row its number in its partition, counted from the beginning of the stream. Row 0 of
        a partition is where `^` holds; a block of a stream need not hold it any more.
    arrivals
        For each row its number in the order of arrival, over all partitions, from the beginning.
    times
        For each row the event time in units of the time column; empty without a time column.
    ended
        No more rows will come: `$` holds after each partition's last row, all is settled.
    watermark
        No later row, of any partition, has a time less than this. NO_TIME where unknown.
    floors
        Empty, or for each row the first row that a match which it completes is wanted to start
        with. A matcher may return other matches, too.
    stream
        The times of the newest rows of all partitions, also of those that others match, and their
        arrival numbers; None where the rows of the block are all.
    arrived
        How many rows have come, of all partitions; None where the rows of the block tell it.
    spans
        Where the order is uncertain: for each partition the true times from which up to which
        (exclusive) its matches lie, all of which its end decides; None: any.
    within
        For each partition what WITHIN allows its matches; None: what the query says.
    """

    columns: Mapping[str, pa.Array]
    segments: Integers
    visible: Integers
    ordinals: Integers
    arrivals: Integers
    times: Integers
    ended: bool
    watermark: int = NO_TIME
    floors: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    stream: tuple[Integers, Integers] | None = None
    arrived: int | None = None
    spans: Integers | None = None
    within: Integers | None = None

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self.segments[-1])

    @property
    def next_arrival(self) -> int:
        """The number that a row which comes behind all others would have."""
        return int(self.arrivals.max(initial=-1)) + 1 if self.arrived is None else self.arrived

    def part(self, low: int, high: int) -> Block:
        """Return the partitions from one on up to another, which are not copied."""
        begin, end = int(self.segments[low]), int(self.segments[high])
        rows = slice(begin, end)
        return replace(
            self,
            columns={name: one.slice(begin, end - begin) for name, one in self.columns.items()},
            segments=self.segments[low : high + 1] - begin,
            visible=self.visible[low:high] - begin,
            ordinals=self.ordinals[rows],
            arrivals=self.arrivals[rows],
            times=self.times[rows],
            floors=self.floors[rows] - begin,
            spans=None if self.spans is None else self.spans[low:high],
            within=None if self.within is None else self.within[low:high],
        )

    def withins(self, within: int | None) -> Integers:
        """Return for each partition what WITHIN allows, where a query says so much of all."""
        if self.within is not None:
            return self.within
        return np.full(len(self.segments) - 1, within or 0, np.int64)

    def clock(self) -> tuple[Integers, Integers]:
        """Return the times that the watermark has passed, and the arrivals that moved it there."""
        if self.stream is None:
            order = np.argsort(self.arrivals, kind="stable")
            times, arrivals = self.times[order], self.arrivals[order]
        else:
            times, arrivals = map(np.ascontiguousarray, self.stream)
        # Mostly they rise, which is faster to see than the greatest so far is to find.
        if not is_ascending(times):
            times = np.maximum.accumulate(times)
        return read_only(times), read_only(arrivals)

    def passed_at(self, times: Integers) -> Integers:
        """Return the numbers of the rows, of any partition, that showed that times have passed."""
        if not len(times):
            return times
        clock, numbers = self.clock()
        place = np.searchsorted(clock, times, side="right")
        return np.append(numbers, self.next_arrival)[place].astype(np.int64)


@dataclass
class Resume:
    """Where matching stopped in each partition of a block; one entry per segment.

    `next_start` and `consumed` count rows by ordinal, so they stay true when rows are dropped.

    Parameters
    ----------
    next_start
        The first start that is not settled.
    barrier
        Starts up to and including this one are ruled out by an earlier match (-1: none).
    number
        Matches emitted so far.
    completed_to
        For selection ALL without skip: candidates completed by rows before this one are emitted.
    consumed
        For each segment the ordinals of consumed rows at or after `next_start`, sorted.
    """

    next_start: Integers
    barrier: Integers
    number: Integers
    completed_to: Integers
    consumed: list[Integers]

    @staticmethod
    def fresh(partitions: int) -> Resume:
        """Return the state before any row."""
        zeros = np.zeros(partitions, np.int64)
        return Resume(zeros.copy(), zeros - 1, zeros.copy(), zeros.copy(), [zeros[:0]] * partitions)

    @staticmethod
    def joined(parts: Sequence[Resume]) -> Resume:
        """Return the places of all parts, one part after the other."""
        return Resume(
            np.concatenate([one.next_start for one in parts]),
            np.concatenate([one.barrier for one in parts]),
            np.concatenate([one.number for one in parts]),
            np.concatenate([one.completed_to for one in parts]),
            [consumed for one in parts for consumed in one.consumed],
        )

    @property
    def consuming(self) -> list[int]:
        """The segments with consumed rows; most have none."""
        sizes = np.fromiter(map(len, self.consumed), np.int64, len(self.consumed))
        found: list[int] = np.flatnonzero(sizes).tolist()
        return found

    def normal(self) -> Resume:
        """Return the same place in its one form, whichever matcher has stopped there.

        Before the next start nothing is ruled out that counts, and no candidate is completed.
        """
        barrier = np.where(self.barrier < self.next_start, -1, self.barrier)
        completed_to = np.maximum(self.completed_to, self.next_start)
        return replace(self, barrier=barrier, completed_to=completed_to)


@dataclass(frozen=True)
class BlockMatches:
    """Matches in emission order within each segment, segments in order.

    Parameters
    ----------
    segment
        For each match the segment that it is in.
    start
        For each match the block row of its first event; of an empty match the row where it is.
    number
        MATCH_NUMBER.
    offsets, rows, positions
        Match m took the block rows `rows[offsets[m]:offsets[m + 1]]` at these program positions.
    settled
        For each match the arrival number of the row that made it final; for one that only the end
        of the input made final, the number of the row that would have come next. Never falls within
        a segment.
    confirmed
        For each match whether every order of the events has it; None where their order is certain.
    awaited
        For each match the time that had to pass for it, behind all rows that it needs, so that the
        first later row, of any partition, or time alone makes it final; NO_TIME where one of these
        rows does. None where that is so of all.
    """

    segment: Integers
    start: Integers
    number: Integers
    offsets: Integers
    rows: Integers
    positions: Integers
    settled: Integers
    confirmed: Booleans | None = field(default=None, kw_only=True)
    awaited: Integers | None = field(default=None, kw_only=True)

    def part(self, low: int, high: int) -> BlockMatches:
        """Return the matches from one up to another, which are not copied."""
        first, last = int(self.offsets[low]), int(self.offsets[high])
        return BlockMatches(
            segment=self.segment[low:high],
            start=self.start[low:high],
            number=self.number[low:high],
            offsets=self.offsets[low : high + 1] - first,
            rows=self.rows[first:last],
            positions=self.positions[first:last],
            settled=self.settled[low:high],
            confirmed=None if self.confirmed is None else self.confirmed[low:high],
            awaited=None if self.awaited is None else self.awaited[low:high],
        )


@dataclass(frozen=True)
class PartialMatches:
    """Partial matches that WITHIN ended, laid out like `BlockMatches` without numbers.

    `awaited` is never None.
    """

    segment: Integers
    start: Integers
    offsets: Integers
    rows: Integers
    positions: Integers
    settled: Integers
    awaited: Integers


@dataclass(frozen=True)
class Outcome:
    """The result of a matcher.

    Parameters
    ----------
    found
        Matches that are final now.
    resume
        Where to go on.
    keep_from
        For each segment the first block row that is still needed (the segment's end: none), rows
        that predicates reach back to by PREV not counted.
    timed_out
        Partial matches that timed out, where asked for.
    """

    found: BlockMatches
    resume: Resume
    keep_from: Integers
    timed_out: PartialMatches | None = None


class Progress(Protocol):
    """A function that tells a host how far a matcher is: the rows it is done with, of how many."""

    def __call__(self, done: int, total: int, /) -> None:
        """Take note, quickly; what it raises ends the work."""
        ...


@dataclass(frozen=True)
class Pace:
    """How much compiled code does before Python has the floor, and who hears of it then.

    Only while Python has the floor a signal such as Ctrl-C can end the work.
    """

    work: int = WORK_AT_ONCE
    progress: Progress | None = None
    #: Told again and again while a search takes far more steps than rows.
    toil: Callable[[], None] | None = None


class Matcher(Protocol):
    """A matcher for one bound query."""

    def __call__(self, block: Block, resume: Resume) -> Outcome:
        """Match a block from where an earlier call stopped."""
        ...


@dataclass(frozen=True)
class Task:
    """All that a matcher needs to know of a query.

    Where another query is matched in the place of one, `meaning` is that: ids of matches are its.
    """

    bound: BoundQuery
    program: Program
    timeouts: bool = False
    step_budget: int = field(default=STEP_BUDGET)
    pace: Pace = field(default_factory=Pace, compare=False)
    meaning: Query | None = None

    @cached_property
    def salts(self) -> Unsigned:
        """Numbers for the ids of matches: two for what the query means, and those of the halves."""
        return np.stack([query_words(self.meaning or self.bound.query), LANES])

    @cached_property
    def variables(self) -> Integers:
        """The variable of each position of the program, by its number."""
        return np.array([one.variable for one in self.program.positions], np.int64)

    def steps_allowed(self, rows: int) -> int:
        """Return how many steps a search from one start may take in a block of so many rows."""
        return self.step_budget + STEPS_PER_ROW * rows

    def work_allowed(self, rows: int) -> int:
        """Return how much work all starts in a block of so many rows may take together."""
        return WORK_BUDGET // STEP_BUDGET * self.step_budget + WORK_PER_ROW * rows


@dataclass(frozen=True)
class JointTasks:
    """Queries that are matched in one place, each in partitions of its own.

    Parameters
    ----------
    column
        The column that says which query a row is for, as the rest when divided by how many there
        are; what is left is the number of its key.
    tasks
        What queries are matched as that differ in WITHIN alone.
    task_of, within
        For each query the number of its task, and what WITHIN allows, where there is one.
    """

    column: str
    tasks: tuple[Task, ...]
    task_of: Integers
    within: Integers | None

    @property
    def size(self) -> int:
        """How many queries there are."""
        return len(self.task_of)


class Turns:
    """The turns that a search takes at blocks; between those of compiled code Python has the floor.

    Parameters
    ----------
    task, rows
        The query, and how many rows the blocks have together.
    cost
        How many steps of compiled code take as long as one of this search.
    """

    def __init__(self, task: Task, rows: int, cost: int = 1) -> None:
        self._pace = task.pace
        self._rows = rows
        self._allowed = task.work_allowed(rows) // cost
        self._work = 0
        #: The rows of blocks that are done.
        self.before = 0

    def end(self, work: int, row: int) -> None:
        """Count the work of a turn that got to a row, and tell the host; refuse too much of it."""
        self._work += work
        row += self.before
        if self._work > self._allowed:
            raise MatchError(
                f"the search took more than {self._allowed} steps for {self._rows} rows",
                detail=f"it got to row {row} of the rows looked at",
                hint="explain says which steps make it grow faster than the rows; add WITHIN,"
                " shorten it or the windows, or end a repetition by a condition",
            )
        if not cores().turn(row) and self._pace.progress is not None:
            self._pace.progress(row, self._rows)
        if self._pace.toil is not None and self._work > TOIL_PER_ROW * self._rows:
            self._pace.toil()


def empty_block(task: Task) -> Block:
    """Return a block without rows, with all the types that a real one has."""
    schema = task.bound.schema
    nothing = np.zeros(0, np.int64)
    return Block(
        columns={name: pa.nulls(0, schema.field(name).type) for name in task.bound.columns},
        segments=np.zeros(1, np.int64),
        visible=nothing,
        ordinals=nothing,
        arrivals=nothing,
        times=nothing,
        ended=True,
    )
