"""Which events a replay needs: those of live windows that were used, or may be yet.

The matcher knows the events that count as used, as far as a pattern allows it:

- a chain `A -> B -> C` of conditions on single events takes the first event that fits each step, so
  only the events of its matches are used, and those that an undecided match may need;
- of other patterns that skip events without a trace, and have no `WITHIN`, each event that fits
  some step may be used;
- of all others every event, and of user-defined operators those that they do not say they skip.

Events that open or close windows are always needed. Memory: two or three numbers for each event
that is needed, or that came since the last savepoint.
Paper: Lima et al., section III-A.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.match.bits import with_bits
from outpace.engine.match.kernel import chain_steps
from outpace.engine.match.reach import reach_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.savepoint import NOTHING, Savepoint, ranges_between
from outpace.engine.snapshot import Stateful
from outpace.engine.state import NATURAL, State, integers, require
from outpace.pattern.bound import PredicateClass
from outpace.pattern.query import Consume, Selection


class Use(Enum):
    """The events in windows that a replay needs."""

    MATCHED = "those of matches"
    FITTING = "those that fit a step"
    EVERY = "every one"


def use_of(spec: OperatorSpec) -> Use:
    """Return which events of windows a query may use.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from outpace.pattern.query import Query
    >>> from outpace.pattern.windows import CountWindows
    >>> windows, schema = CountWindows(9, 3), pa.schema({"ts": pa.int64(), "k": pa.string()})
    >>> query = Query().order_by("ts").define(A="k = 'a'", B="k = 'b'").measures(n="COUNT(*)")
    >>> [use_of(OperatorSpec(query.pattern(text).over(windows), schema)).value
    ...  for text in ("A -> B", "A -> B(->)+", "A B")]
    ['those of matches', 'those that fit a step', 'every one']
    """
    task = spec.task
    if task is None or task.bound.query.leeway is not None or task.bound.uncertainty is not None:
        return Use.EVERY
    query, reach = task.bound.query, reach_of(task)
    local = all(
        predicate.kind in (PredicateClass.LOCAL, PredicateClass.ALWAYS)
        for predicate in task.bound.predicates
    )
    around = reach.back or reach.ahead or reach.anchored or reach.awaits_row
    ruled = query.limits or query.consumption is not Consume.NONE
    ruled = ruled or query.effective_selection is not Selection.PREFERRED
    # Which events a chain has used is known by its instance alone, where it is beside.
    beside = spec.instances is None
    if chain_steps(task) is not None and local and not around and not ruled and beside:
        return Use.MATCHED
    # Where time may end a match, any event tells that it has passed.
    if task.bound.within is None and with_bits(task).drop_unused:
        return Use.FITTING
    return Use.EVERY


class NeededEvents(Stateful):
    """The numbers of events, of which a replay needs some.

    Examples
    --------
    >>> needed = NeededEvents()
    >>> needed.add(np.arange(1, 11))
    >>> needed.use(np.array([1, 4, 10]))
    >>> needed.keep_used(10).tolist(), needed.numbers.tolist()
    ([[2, 3], [5, 9]], [1, 4, 10])
    """

    CHANGED = ("_added", "_used")

    def __init__(self) -> None:
        nothing = np.zeros(0, np.int64)
        self._known = nothing, nothing, np.zeros(0, np.bool_)
        self._added: list[tuple[Integers, Integers | None, Booleans | None]] = []
        #: The events behind all of these, of one partition: none has been looked at yet.
        self._fresh = range(0)
        self._used: list[Integers] = []
        #: From which number on all were kept last, and how many are used that come first: of them
        #: nothing has to be decided any more.
        self._least, self._decided = -1, 0

    @property
    def numbers(self) -> Integers:
        """The numbers of the events."""
        return self._joined()[0]

    @property
    def partition(self) -> Integers:
        """The partition of each event."""
        return self._joined()[1]

    @property
    def used(self) -> Booleans:
        """Whether each event was used."""
        return self._joined()[2]

    def add(
        self, numbers: Integers, partition: Integers | None = None, used: Booleans | None = None
    ) -> None:
        """Add the next events, of one partition where none is named; none is used by default."""
        if not len(numbers):
            return
        first, stop = int(numbers[0]), int(numbers[-1]) + 1
        if partition is not None or stop - first != len(numbers):
            self._spell_out()
            self._added.append((numbers, partition, used))
            return
        if self._fresh and self._fresh.stop != first:
            self._spell_out()
        self._fresh = range(self._fresh.start if self._fresh else first, stop)
        if used is not None:
            self._used.append(numbers[used])

    def use(self, numbers: Integers) -> None:
        """Say that events are used; those that are missing do not matter."""
        if len(numbers):
            self._used.append(numbers)

    def trim(self, first: int) -> None:
        """Forget the events before one."""
        numbers, partition, used = self._known
        if low := int(numbers.searchsorted(first)):
            self._known = numbers[low:], partition[low:], used[low:]
            self._decided = max(0, self._decided - low)
        added = self._added
        self._added = []
        for numbers, owner, some in added:
            low = int(np.searchsorted(numbers, first))
            if low < len(numbers):
                owner = None if owner is None else owner[low:]
                self._added.append((numbers[low:], owner, None if some is None else some[low:]))
        self._fresh = range(max(first, self._fresh.start), self._fresh.stop)

    def keep_used(self, least: int) -> Integers:
        """Keep the events that are used, and all from a number on; return the others as `thin`.

        The events are those of one partition. Those that were used when this was asked last are
        kept as they are, and only the later ones are looked at, which follow each other.
        """
        (numbers, _, used), fresh = self._known, self._fresh
        if not fresh and not self._used and not self._added and least == self._least:
            return np.zeros((0, 2), np.int64)  # Nothing came since.
        self._least = least
        later = numbers[self._decided :]
        first, size = int(later[0]) if len(later) else fresh.start, len(later) + len(fresh)
        stop = fresh.stop if fresh or not len(later) else int(later[-1]) + 1
        if self._added or stop - first > size:
            numbers, _, used = self._joined()
            skip = self.thin(used | (numbers >= least))
            self._decided = int(self._known[0].searchsorted(least))
            return skip
        # With a place before the first one, and one behind the last.
        kept = np.zeros(size + 2, np.bool_)
        kept[1 : 1 + len(later)] = used[self._decided :]
        if self._used:
            said = np.concatenate(self._used)
            said = said[said >= first]
            kept[np.minimum(said - (first - 1), size + 1)] = True
        late = 1 + min(max(0, least - first), size)
        late_used = kept[late:-1].copy()
        kept[0], kept[late:] = True, True
        edges = np.flatnonzero(kept[1:] != kept[:-1]) + first
        edges[1::2] -= 1
        added = np.flatnonzero(kept[1:-1]) + first
        numbers = np.concatenate([numbers[: self._decided], added])
        used = np.ones(len(numbers), np.bool_)
        self._decided = len(numbers) - len(late_used)
        used[self._decided :] = late_used
        self._known = numbers, np.zeros(len(numbers), np.int64), used
        self._fresh, self._used = range(0), []
        return edges.reshape(-1, 2)

    def thin(self, needed: Booleans) -> Integers:
        """Keep the events that are needed, and return the others as closed intervals."""
        numbers, partition, used = self._joined()
        if needed.all():
            return np.zeros((0, 2), np.int64)
        self._known = numbers[needed], partition[needed], used[needed]
        return dropped_ranges(numbers, needed)

    def _spell_out(self) -> None:
        """Put the fresh events among those that have a partition, and may have gaps."""
        if self._fresh:
            self._added.append((np.arange(self._fresh.start, self._fresh.stop), None, None))
            self._fresh = range(0)

    def _joined(self) -> tuple[Integers, Integers, Booleans]:
        self._spell_out()
        if self._added:
            numbers, partition, used = ([part] for part in self._known)
            for fresh, owner, some in self._added:
                numbers.append(fresh)
                partition.append(np.zeros(len(fresh), np.int64) if owner is None else owner)
                used.append(np.zeros(len(fresh), np.bool_) if some is None else some)
            self._known = np.concatenate(numbers), np.concatenate(partition), np.concatenate(used)
            self._added = []
        if self._used:
            known, _, flags = self._known
            said = np.concatenate(self._used)
            self._used = []
            if len(known):
                said = said[(said >= known[0]) & (said <= known[-1])]
                at = np.searchsorted(known, said)
                flags[at[known[at] == said]] = True
        return self._known


def dropped_ranges(numbers: Integers, kept: Booleans) -> Integers:
    """Return the numbers that are not kept as closed intervals, of numbers that rise.

    Examples
    --------
    >>> dropped_ranges(np.array([1, 2, 5, 7]), np.array([False, False, True, False])).tolist()
    [[1, 2], [7, 7]]
    """
    bounded = np.ones(len(kept) + 2, np.bool_)
    bounded[1:-1] = kept
    edges = np.flatnonzero(bounded[1:] != bounded[:-1])
    return np.stack([numbers[edges[::2]], numbers[edges[1::2] - 1]], axis=1)


@dataclass(frozen=True, eq=False)
class NeededNumbers:
    """Which events a replay needs: some of those before a number, and all from it on.

    Examples
    --------
    >>> needed = NeededNumbers(10, np.array([4, 5, 8]))
    >>> needed.trim, needed.skip.tolist()
    (3, [[6, 7], [9, 9]])
    """

    at: int
    numbers: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def trim(self) -> int:
        """Events up to this number are of no use."""
        return (int(self.numbers[0]) if len(self.numbers) else self.at) - 1

    @property
    def skip(self) -> Integers:
        """Closed intervals of numbers between `trim` and `at` that are of no use."""
        return ranges_between(self.trim, self.numbers, self.at)

    @property
    def savepoint(self) -> Savepoint:
        """What tells somebody which events to forget, and nothing else."""
        nothing = State({})
        return Savepoint("", None, self.trim, self.skip, NOTHING, self.at, 0, nothing.encode)

    def runs(self) -> pa.Table:
        """Return the numbers as runs of numbers that follow each other, told by small ones."""
        numbers = self.numbers
        begin = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        length = np.diff(begin, append=len(numbers))
        before = np.concatenate([[self.trim], numbers[begin[1:] - 1] + 1])[: len(begin)]
        return pa.table({"gap": numbers[begin] - before, "length": length})

    @staticmethod
    def read(at: int, trim: int, table: pa.Table) -> NeededNumbers:
        """Read what `runs` wrote."""
        some = range(1, NATURAL.stop)
        gap, length = integers(table, gap=some, length=some)
        require(trim + int(gap.sum()) + int(length.sum()) <= at, "events are needed too early")
        # What a number is ahead of its place.
        ahead = trim + np.cumsum(gap)
        needed = NeededNumbers(at, np.repeat(ahead, length) + np.arange(length.sum()))
        require(needed.trim == trim, "needed events are not where they begin")
        return needed
