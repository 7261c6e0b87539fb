"""A schedule that knows of every open window which instance has it, in any order of their ends.

It serves partitions, windows that close in any order, and schedulers that are asked window by
window; `outpace.engine.split.batch_schedule` has the others.

Which rows an instance gets is a count of its open windows over the rows of the block. The count
starts with the windows that were open before, rises by one at the first row of a window that opens,
falls by one behind the last row of one that closes, and the windows that stay open end with the
block. The instance gets the rows at which the count is above zero:

    row                      0  1  2  3  4  5  6  7
    window 7, open before    ■  ■                       +1 at 0, -1 at 2
    window 8 opens                    ■  ■  ■           +1 at 3, -1 at 6
    window 9 opens                       ■  ■           +1 at 4, -1 at 6
    count                    1  1  0  1  2  2  0  0
    ranges                   [0    2) [3       6)

With partitions the rows are sorted by partition first, so that those of a window lie side by side,
and the instances lie behind each other on one line: one sort and one running sum of the changes
count for all of them (`_covered`). The ranges are then put back into the order of the block.

Memory: at most four times 17 bytes for each open window, and eight for each partition and instance;
with `ByKey` or one instance, 16 for each partition alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.snapshot import Stateful
from outpace.engine.split.schedule import (
    NO_ROWS,
    Delivery,
    Schedule,
    ask_scheduler,
    rows_by_owner,
)
from outpace.engine.split.windows import Split, Windows, part_windows
from outpace.engine.state import ANY, NATURAL, integer, integers, require
from outpace.pattern.schedulers import Batches, ByKey, Candidate, RoundRobin, Scheduler


class WindowPlaces(Stateful):
    """Which instance has which open window.

    Windows stand in the order of their opening. A closed one only loses its mark; when there is no
    room for more, the closed ones are dropped, and there is twice the room that the others need.
    """

    CHANGED = ("_names", "_key", "_instance", "_alive")

    def __init__(self, *, keyed: bool) -> None:
        #: Without partitions a window's number finds it; with them its place in the order of
        #: opening does, which this tells.
        self._names: dict[tuple[int, int], int] | None = {} if keyed else None
        self._opened = 0
        self._size = 0
        self._key = np.zeros(64, np.int64)
        self._instance = np.zeros(64, np.int64)
        self._alive = np.zeros(64, np.bool_)

    def add(self, windows: Windows, instance: Integers) -> None:
        """Remember windows that open."""
        key = windows.number
        if self._names is not None:
            key = np.arange(self._opened, self._opened + len(windows))
            self._opened += len(windows)
            names = zip(windows.partition.tolist(), windows.number.tolist(), strict=True)
            self._names.update(zip(names, key.tolist(), strict=True))
        if self._size + len(windows) > len(self._key):
            self._drop_closed(len(windows))
        added = slice(self._size, self._size + len(windows))
        self._key[added], self._instance[added], self._alive[added] = key, instance, True
        self._size = added.stop

    def remove(self, windows: Windows) -> Integers:
        """Forget windows that close, and return their instances."""
        key = windows.number
        if self._names is not None:
            names = zip(windows.partition.tolist(), windows.number.tolist(), strict=True)
            key = np.array([self._names.pop(name) for name in names], np.int64)
        at = np.searchsorted(self._key[: self._size], key)
        self._alive[at] = False
        return self._instance[at]

    def tables(self) -> list[pa.Table]:
        """Return the windows that are open, for a saved state."""
        alive = np.flatnonzero(self._alive[: self._size])
        places = pa.table({"key": self._key[alive], "instance": self._instance[alive]})
        # Names are in the order of opening, as the places are.
        names = np.array(list(self._names or ()), np.int64).reshape(-1, 2)
        return [places, pa.table({"partition": names[:, 0], "number": names[:, 1]})]

    def restore(self, tables: list[pa.Table], instances: int, opened: Windows | None) -> None:
        """Go on from what `tables` returned, with so many instances.

        These windows are open, where that is known.
        """
        places, names = tables
        self._key, self._instance = integers(places, key=ANY, instance=range(instances))
        require((np.diff(self._key) > 0).all(), "windows are out of order")
        self._size = places.num_rows
        self._alive = np.ones(self._size, np.bool_)
        given = True
        if self._names is None and opened is not None:
            given = np.array_equal(self._key, np.sort(opened.number))
        elif self._names is not None:
            partition, number = integers(names, partition=NATURAL, number=ANY)
            pairs = zip(partition.tolist(), number.tolist(), strict=True)
            self._names = dict(zip(pairs, self._key.tolist(), strict=True))
            require(len(self._names) == self._size, "a window is there twice")
            if opened is not None:
                known = zip(opened.partition.tolist(), opened.number.tolist(), strict=True)
                given = self._names.keys() == set(known)
            self._opened = int(self._key[-1]) + 1 if self._size else 0
        require(given, "windows are not given to instances")

    def _drop_closed(self, added: int) -> None:
        kept = np.flatnonzero(self._alive[: self._size])
        room = 2 * (len(kept) + added)
        self._size = len(kept)
        self._key = np.resize(self._key[kept], room)
        self._instance = np.resize(self._instance[kept], room)
        self._alive = np.arange(room) < self._size


class ListedSchedule(Schedule):
    """Gives windows of any kind to instances, by any scheduler.

    Parameters
    ----------
    scheduler
        The scheduler that gives windows to instances; see `scheduler_of`.
    instances
        The number of instances.
    keyed
        Whether the stream has partitions.
    """

    CHANGED = ("_places", "_open", "_counts")

    def __init__(self, scheduler: Scheduler, instances: int, *, keyed: bool) -> None:
        super().__init__(instances)
        self._scheduler = scheduler
        self._keyed = keyed
        self._by_key = isinstance(scheduler, ByKey) or instances == 1
        #: Where the open windows are; what stays with its key needs no such list.
        self._places = None if self._by_key else WindowPlaces(keyed=keyed)
        #: Open windows by partition and instance; by partition alone where that tells the instance.
        self._lanes = 1 if self._by_key else instances
        self._open = np.zeros(0, np.int64)
        #: Windows so far by partition, and over all.
        self._counts = np.zeros(0, np.int64)
        self._opened = 0

    def route(self, events: Events, split: Split, loads: Sequence[float]) -> list[Delivery]:
        """Return what each instance gets; instances that get nothing are left out."""
        opened, closed = split.opened, split.closed
        places = _SortedPlaces.of(events, keyed=self._keyed)
        opened_to = self._assign(split, places, loads)
        if self._places is None:
            closed_to = closed.partition % self._instances
        else:
            self._places.add(opened, opened_to)
            closed_to = self._places.remove(closed)
        rows = rows_by_owner(*self._ranges(split, opened_to, closed_to, places))
        given, taken = _by_instance(opened, opened_to), _by_instance(closed, closed_to)
        nothing = Windows.none()
        self.events_sent += sum(size for _, size in rows.values())
        return [
            Delivery(
                instance,
                *rows.get(instance, NO_ROWS),
                Split(given.get(instance, nothing), taken.get(instance, nothing)),
            )
            for instance in sorted({*given, *taken, *rows})
        ]

    def _kept(self) -> tuple[dict[str, object], list[pa.Table]]:
        place_tables = [] if self._places is None else self._places.tables()
        numbers = [pa.table({"": values}) for values in (self._open, self._counts)]
        return {"opened": self._opened}, [*numbers, *place_tables]

    def _set_kept(
        self, numbers: Mapping[str, object], tables: list[pa.Table], opened: Windows | None
    ) -> None:
        open_windows, counts, *place_tables = tables
        self._opened = integer(numbers, "opened", NATURAL)
        (self._open,) = integers(open_windows, **{"": NATURAL})
        (self._counts,) = integers(counts, **{"": NATURAL})
        require(len(self._open) == len(self._counts) * self._lanes, "partitions are missing")
        if opened is not None:
            counted = self._open.reshape(-1, self._lanes).sum(axis=1)
            there = np.bincount(opened.partition, minlength=len(counted))
            require(np.array_equal(counted, there), "windows are not given to instances")
        if self._places is not None:
            self._places.restore(place_tables, self._instances, opened)

    def _assign(self, split: Split, places: _SortedPlaces, loads: Sequence[float]) -> Integers:
        """Return the instance of each window that opens."""
        opened = split.opened
        self._grow(opened)
        if self._by_key:
            return opened.partition % self._instances
        numbers = np.arange(self._opened, self._opened + len(opened))
        self._opened += len(opened)
        scheduler = self._scheduler
        if isinstance(scheduler, RoundRobin):
            return numbers % self._instances
        earlier = self._counts[opened.partition] + _earlier_in_partition(opened.partition)
        np.add.at(self._counts, opened.partition, 1)
        if isinstance(scheduler, Batches):
            return (opened.partition + earlier // (scheduler.size or 1)) % self._instances
        return self._ask(split, places, numbers, earlier, loads)

    def _ask(
        self,
        split: Split,
        places: _SortedPlaces,
        numbers: Integers,
        earlier: Integers,
        loads: Sequence[float],
    ) -> Integers:
        """Ask the scheduler window by window, counting what it gives to each instance."""
        opened, closed = split.opened, split.closed
        ends = places.of_ordinals(closed.partition, closed.stop)
        stops = dict(zip(zip(closed.partition, closed.number, strict=True), ends, strict=True))
        starts = places.of_ordinals(opened.partition, opened.first)
        rest = places.ends(opened.partition)
        current = [float(load) for load in loads]
        assigned = np.empty(len(opened), np.int64)
        for index in range(len(opened)):
            partition, number = int(opened.partition[index]), int(opened.number[index])
            window = Candidate(partition, number, int(numbers[index]), int(earlier[index]))
            assigned[index] = instance = ask_scheduler(self._scheduler, window, current)
            current[instance] += stops.get((partition, number), rest[index]) - starts[index]
        return assigned

    def _grow(self, opened: Windows) -> None:
        """Make room for partitions that open their first window."""
        missing = int(opened.partition.max(initial=-1)) + 1 - len(self._counts)
        if missing > 0:
            missing = max(missing, len(self._counts))
            self._counts = np.concatenate([self._counts, np.zeros(missing, np.int64)])
            self._open = np.concatenate([self._open, np.zeros(missing * self._lanes, np.int64)])

    def _ranges(
        self, split: Split, opened_to: Integers, closed_to: Integers, places: _SortedPlaces
    ) -> tuple[Integers, Integers]:
        """Return the rows of instances, those at which they have an open window, by their owner.

        Over all rows, sorted by partition, and for one instance after the other, the number of open
        windows rises where one opens and falls behind its last row.
        """
        opened, closed = split.opened, split.closed
        held = self._held(places)
        before = held[self._open[held] > 0]
        before_count = self._open[before]
        np.add.at(self._open, self._place(opened.partition, opened_to), 1)
        np.subtract.at(self._open, self._place(closed.partition, closed_to), 1)
        after = held[self._open[held] > 0]
        here = np.isin(closed.partition, places.partitions)
        changes = np.concatenate(
            [
                before_count,
                np.ones(len(opened), np.int64),
                np.full(np.count_nonzero(here), -1),
                -self._open[after],
            ]
        )
        at = np.concatenate(
            [
                places.starts_of(before // self._lanes),
                places.of_ordinals(opened.partition, opened.first),
                places.of_ordinals(closed.partition[here], closed.stop[here]),
                places.ends(after // self._lanes),
            ]
        )
        instance = np.concatenate(
            [before % self._instances, opened_to, closed_to[here], after % self._instances]
        )
        return places.row_ranges(*_covered(instance, at, changes, places.size))

    def _place(self, partition: Integers, instance: Integers) -> Integers:
        """Return where the open windows of a partition are counted."""
        return partition if self._by_key else partition * self._lanes + instance

    def _held(self, places: _SortedPlaces) -> Integers:
        """Return where the open windows of partitions that have rows are counted."""
        known = places.partitions[places.partitions * self._lanes < len(self._open)]
        return (known[:, None] * self._lanes + np.arange(self._lanes)).reshape(-1)


class _SortedPlaces:
    """Where rows are when they are sorted by partition, which leaves each partition's together."""

    def __init__(
        self, order: Integers | None, partitions: Integers, starts: Integers, first: Integers
    ) -> None:
        self._order = order
        #: The partitions that have rows, where each starts, and the ordinal of its first row.
        self.partitions = partitions
        self._starts = starts
        self._first = first

    @staticmethod
    def of(events: Events, *, keyed: bool) -> _SortedPlaces:
        """Sort the rows of events by partition."""
        size = len(events.partition)
        if not size:
            return _SortedPlaces(
                None, np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64)
            )
        if not keyed:
            only = np.zeros(1, np.int64)
            return _SortedPlaces(None, only, np.array([0, size], np.int64), events.ordinal[:1])
        order = np.argsort(events.partition, kind="stable")
        grouped = events.partition[order]
        starts = np.flatnonzero(np.diff(grouped, prepend=-1, append=-1))
        firsts = order[starts[:-1]]
        return _SortedPlaces(order, events.partition[firsts], starts, events.ordinal[firsts])

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self._starts[-1])

    def starts_of(self, partition: Integers) -> Integers:
        """Return where partitions that have rows start."""
        return self._starts[np.searchsorted(self.partitions, partition)]

    def ends(self, partition: Integers) -> Integers:
        """Return the place behind the last row of partitions that have rows."""
        return self._starts[np.searchsorted(self.partitions, partition) + 1]

    def of_ordinals(self, partition: Integers, ordinal: Integers) -> Integers:
        """Return the places of events, or the nearest end of their partition's rows."""
        if not len(self.partitions):
            return np.zeros(len(partition), np.int64)
        last = len(self.partitions) - 1
        # With one partition there is nothing to look for, however many windows there are.
        at = np.minimum(np.searchsorted(self.partitions, partition), last) if last else 0
        sizes = np.diff(self._starts)[at]
        # The end of an open window is as large as can be: nothing may be added to it.
        places: Integers = self._starts[at] + np.clip(ordinal - self._first[at], 0, sizes)
        return places

    def row_ranges(self, owner: Integers, ranges: Integers) -> tuple[Integers, Integers]:
        """Return ranges of places as ranges of row numbers, with the owner of each."""
        if self._order is None or not len(owner):
            return owner, ranges
        sizes = ranges[:, 1] - ranges[:, 0]
        before = np.cumsum(sizes) - sizes
        rows = self._order[np.repeat(ranges[:, 0] - before, sizes) + np.arange(sizes.sum())]
        # One line of rows for all owners, with a gap between any two.
        line = np.sort(np.repeat(owner, sizes) * (self.size + 1) + rows)
        breaks = np.flatnonzero(np.diff(line) != 1)
        firsts = line[np.concatenate([[0], breaks + 1])]
        lasts = line[np.concatenate([breaks, [len(line) - 1]])]
        return _by_owner(firsts, lasts + 1, self.size)


def _covered(
    instance: Integers, at: Integers, changes: Integers, size: int
) -> tuple[Integers, Integers]:
    """Return the ranges in which the count of an instance is above zero, and the owner of each."""
    # One line of places for all instances: counts end at zero before the next one's begins.
    key = instance * (size + 1) + at
    order = np.argsort(key, kind="stable")
    key = key[order]
    level = np.cumsum(changes[order])
    last = np.diff(key, append=-1) != 0
    key, level = key[last], level[last]
    above = level > 0
    edges = np.diff(above, prepend=False)
    return _by_owner(key[edges & above], key[edges & ~above], size)


def _by_owner(firsts: Integers, stops: Integers, size: int) -> tuple[Integers, Integers]:
    """Return ranges of one line, on which each owner has so many places, and the owner of each."""
    owner = firsts // (size + 1)
    return owner, np.stack([firsts, stops], axis=1) - (owner * (size + 1))[:, None]


def _by_instance(windows: Windows, instance: Integers) -> dict[int, Windows]:
    """Part windows by instance, keeping their order."""
    if not len(windows):
        return {}
    if bool((instance == instance[0]).all()):
        return {int(instance[0]): windows}
    order = np.argsort(instance, kind="stable")
    owner = instance[order]
    bounds = np.flatnonzero(np.diff(owner, prepend=-1, append=-1))
    return {
        int(owner[low]): part_windows(windows, order[low:high])
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    }


def _earlier_in_partition(partition: Integers) -> Integers:
    """Return for each window how many before it are of the same partition."""
    order = np.argsort(partition, kind="stable")
    grouped = partition[order]
    earlier = np.empty(len(partition), np.int64)
    earlier[order] = np.arange(len(partition)) - np.searchsorted(grouped, grouped)
    return earlier
