"""Running a scheduler: windows go to instances, and events to the instances of their windows.

`Schedule.route` takes what the splitter says of the next events and returns what each instance gets
of them: its windows that open and close, and its rows as ranges. An instance gets an event at most
once, however many of its windows hold it, and an event that no window holds goes nowhere. The work
for a block is that of its rows and of the windows that open or close in it, never that of the
windows that stay open.

Memory: at most four times 17 bytes for each open window, and eight for each partition and instance;
with `ByKey` or one instance, 16 for each partition alone.

Paper: SPACE (Amann 2018) 2.3.4, 4.4 and 5.4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.snapshot import Stateful
from outpace.engine.split.placement import Placed
from outpace.engine.split.windows import Split, Windows, take_windows
from outpace.engine.state import NATURAL, State, integer, integers, require
from outpace.errors import BindError, StateError
from outpace.pattern.query import Query
from outpace.pattern.schedulers import Batches, ByKey, Candidate, RoundRobin, Scheduler
from outpace.pattern.windows import BetweenWindows, CountWindows, TimeWindows
from outpace.pattern.windows import Windows as WindowSpec


@dataclass(frozen=True)
class Delivery:
    """What an instance gets of the next events.

    Parameters
    ----------
    instance
        The instance, from 0 on.
    ranges
        The rows, as pairs of a first row and the one behind the last; ascending, with gaps between.
    split
        Its windows that open and close.
    """

    instance: int
    ranges: Integers
    split: Split

    @property
    def size(self) -> int:
        """The number of rows."""
        return int((self.ranges[:, 1] - self.ranges[:, 0]).sum())


def scheduler_of(query: Query) -> Scheduler:
    """Return the scheduler that a query asks for, with all sizes chosen.

    Examples
    --------
    >>> query = Query().over(CountWindows(size=1000, slide=100)).instances(4)
    >>> scheduler_of(query)
    Batches(size=36)
    >>> scheduler_of(query.partition_by("symbol"))
    ByKey()
    """
    asked = query.scheduler
    if asked is None:
        asked = ByKey() if query.partitions else Batches()
    if isinstance(asked, Batches) and asked.size is None:
        return Batches(batch_size(query.windows, query.instance_count))
    return asked


def batch_size(windows: WindowSpec | None, instances: int) -> int:
    """Return how many consecutive windows make a batch.

    It is so large that what is sent twice adds no more than one instance's share of the events:
    the duplication is at most 1 + 1 / instances. A larger batch would save little more, and make
    instances wait longer for their turn.

    Examples
    --------
    >>> batch_size(CountWindows(size=20, slide=10), 2), batch_size(CountWindows(10, 10), 8)
    (2, 1)
    """
    if not isinstance(windows, CountWindows | TimeWindows):
        return 1
    size, slide = windows.size, windows.slide
    # Both are numbers, or both are stretches of time: binding checks it, their types do not say it.
    batch: int = -((slide - size) * instances // slide)  # type: ignore[operator, assignment]
    return max(1, batch)


class Schedule(Stateful):
    """Gives windows to instances and says which rows each of them gets.

    Parameters
    ----------
    scheduler
        Who gets a window; see `scheduler_of`.
    instances
        The number of instances.
    keyed
        Whether the stream has partitions.
    """

    CHANGED = ("_placed", "_open", "_counts")

    def __init__(self, scheduler: Scheduler, instances: int, *, keyed: bool) -> None:
        self._scheduler = scheduler
        self._instances = instances
        self._keyed = keyed
        self._by_key = isinstance(scheduler, ByKey) or instances == 1
        #: Where the open windows are; what stays with its key needs no such list.
        self._placed = None if self._by_key else Placed(keyed=keyed)
        #: Open windows by partition and instance; by partition alone where that tells the instance.
        self._lanes = 1 if self._by_key else instances
        self._open = np.zeros(0, np.int64)
        #: Windows so far by partition, and over all.
        self._counts = np.zeros(0, np.int64)
        self._opened = 0
        self.events_in = 0
        self.events_sent = 0

    @property
    def duplication(self) -> float:
        """How often an event was sent, on average over all events."""
        return self.events_sent / self.events_in if self.events_in else 1.0

    def route(self, events: Events, split: Split, loads: Sequence[float]) -> list[Delivery]:
        """Return what each instance gets; instances that get nothing are left out.

        Parameters
        ----------
        events, split
            The next events, and what they open and close.
        loads
            For each instance the events that wait for it.
        """
        opened, closed = split.opened, split.closed
        places = _Places.of(events, keyed=self._keyed)
        opened_to = self._assign(split, places, loads)
        if self._placed is None:
            closed_to = closed.partition % self._instances
        else:
            self._placed.add(opened, opened_to)
            closed_to = self._placed.remove(closed)
        ranges = self._ranges(split, opened_to, closed_to, places)
        deliveries = self._deliveries(split, opened_to, closed_to, ranges)
        self.events_in += len(events.arrival)
        self.events_sent += sum(delivery.size for delivery in deliveries)
        return deliveries

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        placed = [] if self._placed is None else self._placed.tables()
        counted = {"opened": self._opened, "in": self.events_in, "sent": self.events_sent}
        numbers = [pa.table({"": values}) for values in (self._open, self._counts)]
        return State({"instances": self._instances, **counted}, [*numbers, *placed])

    def restore(self, state: State, opened: Windows | None = None) -> None:
        """Go on from what `state` returned, maybe in another process.

        These windows are open, where that is known.
        """
        header, (open_windows, counts, *placed) = state.content()
        lengths = 0 if self._placed is None else 2
        if header.get("instances") != self._instances or len(placed) != lengths:
            raise StateError("the saved state belongs to another schedule")
        self._opened = integer(header, "opened", NATURAL)
        self.events_in, self.events_sent = (
            integer(header, name, NATURAL) for name in ("in", "sent")
        )
        (self._open,) = integers(open_windows, **{"": NATURAL})
        (self._counts,) = integers(counts, **{"": NATURAL})
        require(len(self._open) == len(self._counts) * self._lanes, "partitions are missing")
        if opened is not None:
            counted = self._open.reshape(-1, self._lanes).sum(axis=1)
            there = np.bincount(opened.partition, minlength=len(counted))
            require(np.array_equal(counted, there), "windows are not given to instances")
        if self._placed is not None:
            self._placed.restore(placed, self._instances, opened)

    def _assign(self, split: Split, places: _Places, loads: Sequence[float]) -> Integers:
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
        places: _Places,
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
            instance = self._scheduler.assign(window, tuple(current))
            if not isinstance(instance, int | np.integer) or not 0 <= instance < self._instances:
                raise BindError(
                    f"scheduler {type(self._scheduler).__name__} returned {instance!r}",
                    detail=f"for window {number} of partition {partition}",
                    hint=f"return a number from 0 to {self._instances - 1}",
                )
            assigned[index] = instance
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
        self, split: Split, opened_to: Integers, closed_to: Integers, places: _Places
    ) -> dict[int, Integers]:
        """Return the rows of each instance: those at which it has an open window.

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
        return {
            number: places.row_ranges(ranges)
            for number, ranges in _covered(instance, at, changes, places.size)
        }

    def _place(self, partition: Integers, instance: Integers) -> Integers:
        """Return where the open windows of a partition are counted."""
        return partition if self._by_key else partition * self._lanes + instance

    def _held(self, places: _Places) -> Integers:
        """Return where the open windows of partitions that have rows are counted."""
        known = places.partitions[places.partitions * self._lanes < len(self._open)]
        return (known[:, None] * self._lanes + np.arange(self._lanes)).reshape(-1)

    def _deliveries(
        self,
        split: Split,
        opened_to: Integers,
        closed_to: Integers,
        ranges: dict[int, Integers],
    ) -> list[Delivery]:
        nothing = Windows.none()
        opened = _by_instance(split.opened, opened_to)
        closed = _by_instance(split.closed, closed_to)
        return [
            Delivery(
                instance,
                ranges.get(instance, np.zeros((0, 2), np.int64)),
                Split(opened.get(instance, nothing), closed.get(instance, nothing)),
            )
            for instance in sorted({*opened, *closed, *ranges})
        ]


class _Places:
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
    def of(events: Events, *, keyed: bool) -> _Places:
        """Sort the rows of events by partition."""
        size = len(events.partition)
        if not size:
            return _Places(
                None, np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64)
            )
        if not keyed:
            only = np.zeros(1, np.int64)
            return _Places(None, only, np.array([0, size], np.int64), events.ordinal[:1])
        order = np.argsort(events.partition, kind="stable")
        grouped = events.partition[order]
        starts = np.flatnonzero(np.diff(grouped, prepend=-1, append=-1))
        firsts = order[starts[:-1]]
        return _Places(order, events.partition[firsts], starts, events.ordinal[firsts])

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

    def row_ranges(self, ranges: Integers) -> Integers:
        """Return ranges of places as ranges of row numbers."""
        if self._order is None:
            return ranges
        rows = np.sort(np.concatenate([self._order[first:stop] for first, stop in ranges.tolist()]))
        breaks = np.flatnonzero(np.diff(rows) != 1)
        firsts = rows[np.concatenate([[0], breaks + 1])]
        lasts = rows[np.concatenate([breaks, [len(rows) - 1]])]
        return np.stack([firsts, lasts + 1], axis=1)


def _covered(
    instance: Integers, at: Integers, changes: Integers, size: int
) -> list[tuple[int, Integers]]:
    """Return, for each instance that has any, the ranges in which its count is above zero."""
    if not len(at):
        return []
    # One line of places for all instances: counts end at zero before the next one's begins.
    key = instance * (size + 1) + at
    order = np.argsort(key, kind="stable")
    key = key[order]
    level = np.cumsum(changes[order])
    last = np.append(np.diff(key) != 0, True)
    key, level = key[last], level[last]
    above = level > 0
    edges = np.diff(above, prepend=False)
    firsts, stops = key[edges & above], key[edges & ~above]
    owner = firsts // (size + 1)
    ranges = np.stack([firsts, stops], axis=1) - (owner * (size + 1))[:, None]
    bounds = np.flatnonzero(np.diff(owner, prepend=-1, append=-1))
    return [
        (int(owner[low]), ranges[low:high])
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]


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
        int(owner[low]): take_windows(windows, order[low:high])
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    }


def _earlier_in_partition(partition: Integers) -> Integers:
    """Return for each window how many before it are of the same partition."""
    order = np.argsort(partition, kind="stable")
    grouped = partition[order]
    earlier = np.empty(len(partition), np.int64)
    earlier[order] = np.arange(len(partition)) - np.searchsorted(grouped, grouped)
    return earlier


#: Up to so many open windows, matching them one by one costs less than sharing does.
WORTH_SHARING: Final = 2


def overlapping(windows: WindowSpec | None, times: int = WORTH_SHARING) -> bool:
    """Say whether more than so many windows may be open at once, most of the time.

    Examples
    --------
    >>> overlapping(CountWindows(1000, 500), 1), overlapping(CountWindows(1000, 500), 2)
    (True, False)
    """
    match windows:
        case CountWindows(size=size, slide=slide):
            return size > times * slide
        case TimeWindows(size=length, slide=step):
            return bool(length > times * step)  # type: ignore[operator]  # both are of one kind
        case BetweenWindows():
            return True
        case _:
            return False
