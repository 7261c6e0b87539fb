"""What an operator tells its predecessors: a savepoint, and which of their events it needs.

A savepoint numbers the events of all predecessors in the one order in which the operator took
them. A backup says the same by the numbers that each predecessor gave its own. Events that are
needed come back from them; put in order again, they are those that the savepoint needs, one by one.
So each predecessor may forget at its own time: the newest backup says what to leave out.

Backups are kept by all ancestors, so that operators beside each other may be lost together.
Paper: Lima et al., sections II-B (there: ack) and II-C.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.savepoint import NOTHING, MatchPlace, Savepoint
from outpace.engine.state import NATURAL, State, integer, integers, reading, require


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
    numbers: Integers

    @property
    def trim(self) -> int:
        """Events up to this number are of no use."""
        return (int(self.numbers[0]) if len(self.numbers) else self.at) - 1

    @property
    def skip(self) -> Integers:
        """Closed intervals of numbers between `trim` and `at` that are of no use."""
        edges = np.concatenate([[self.trim], self.numbers, [self.at]])
        gaps = np.flatnonzero(np.diff(edges) > 1)
        skip: Integers = np.stack([edges[gaps] + 1, edges[gaps + 1] - 1], axis=1)
        return skip

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


@dataclass(frozen=True, eq=False)
class Backup:
    """What an operator is rebuilt from, beside the events that its predecessors retain.

    Parameters
    ----------
    operator
        Its name.
    savepoint
        Where it stood.
    settled
        How many rows of its matches were acknowledged by all who read them.
    needed
        Which events the savepoint needs.
    inputs
        The same by predecessor, in the numbers of each.
    skipped
        How many events were of no use before all events before them were, so far.

    Examples
    --------
    >>> needed = NeededNumbers(5, np.array([3]))
    >>> savepoint = Savepoint("q", None, 2, needed.skip, NOTHING, 5, 0, State({}).encode)
    >>> backup = Backup("falls", savepoint, 7, needed, {"ticks": needed})
    >>> again = Backup.decode(backup.encoded)
    >>> again.operator, again.settled, again.inputs["ticks"].numbers.tolist()
    ('falls', 7, [3])
    """

    operator: str
    savepoint: Savepoint
    settled: int
    needed: NeededNumbers
    inputs: Mapping[str, NeededNumbers]
    skipped: int = 0

    @property
    def age(self) -> tuple[int, MatchPlace, int]:
        """What is greater for a later one of the operator."""
        return self.savepoint.at, self.savepoint.settled, self.settled

    def savepoint_for(self, name: str) -> Savepoint:
        """Return what a predecessor may forget."""
        needed = self.inputs[name]
        return replace(self.savepoint, trim=needed.trim, skip=needed.skip, at=needed.at)

    @cached_property
    def encoded(self) -> bytes:
        """The backup as bytes."""
        all_of = {"": self.needed, **self.inputs}
        header = {
            "operator": self.operator,
            "settled": self.settled,
            "skipped": self.skipped,
            "needed": [[name, one.at, one.trim] for name, one in all_of.items()],
        }
        bare = replace(self.savepoint, skip=np.zeros((0, 2), np.int64)).encode()
        saved = pa.table({"savepoint": pa.array([bare], pa.binary())})
        return State(header, [saved, *(one.runs() for one in all_of.values())]).encode()

    @staticmethod
    def decode(data: bytes) -> Backup:
        """Read what `encoded` has; raise `StateError` for anything else."""
        state = State.decode(data)
        with reading():
            header, (saved, *tables) = state.content()
            require(len(tables) == len(header["needed"]) > 1, "inputs are missing")
            needed = {}
            for (name, at, trim), table in zip(header["needed"], tables, strict=True):
                told = {"at": at, "trim": trim}
                bounds = integer(told, "at", NATURAL), integer(told, "trim", range(-1, 1 << 62))
                needed[str(name)] = NeededNumbers.read(*bounds, table)
            savepoint = Savepoint.decode(saved["savepoint"][0].as_py())
            settled, skipped = (integer(header, one, NATURAL) for one in ("settled", "skipped"))
            whole = needed.pop("")
            return Backup(str(header["operator"]), savepoint, settled, whole, needed, skipped)


def taken_until(number: int) -> Savepoint:
    """Return what says that all events before a number were taken for good."""
    nothing = np.zeros((0, 2), np.int64)
    return Savepoint("", None, number - 1, nothing, NOTHING, number, 0, State({}).encode)


def keep_newest(known: dict[str, Backup], backups: Iterable[Backup]) -> None:
    """Keep of each operator the newest backup."""
    for one in backups:
        other = known.get(one.operator)
        if other is None or one.age >= other.age:
            known[one.operator] = one
