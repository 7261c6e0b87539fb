"""Running a scheduler: windows go to instances, and events to the instances of their windows.

`Schedule.route` takes the next events with the windows that they open and close, and returns the
share of each instance: its windows that open and close, and its rows as ranges. An instance gets an
event at most once, however many of its windows hold it, and an event that no window holds goes
nowhere. The work for a block is at most that of its rows and of the windows that open or close in
it, never that of the windows that stay open.

Windows of four events, the next two events later, in batches of two among two instances:

    event        0  1  2  3  4  5  6  7
    window 0     ■  ■  ■  ■                    batch 0: instance 0
    window 1           ■  ■  ■  ■
    window 2                 ■  ■  ■  ■        batch 1: instance 1
    window 3                       ■  ■  …     (stays open)
    instance 0   [0               6)           windows 0 and 1 open, and close
    instance 1               [4         8)     windows 2 and 3 open, and 2 closes

Events 4 and 5 are sent twice, since they lie at the border of two batches. There are three ways to
know which instance has a window. Where windows close in the order in which they open and are given
in batches, two counts say it (`outpace.engine.split.batch_schedule`); else a list does
(`outpace.engine.split.window_list`). Without windows a partition is the window, and
`PartitionSchedule` here has its instance.

Paper: SPACE (Amann 2018) 2.3.4, 4.4 and 5.4.3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers, grown
from outpace.engine.event import Events
from outpace.engine.split.windows import Split, Windows
from outpace.engine.state import NATURAL, SavedPart, State, integer, integers
from outpace.errors import BindError, StateError
from outpace.pattern.query import Query
from outpace.pattern.schedulers import Batches, ByKey, Candidate, Scheduler
from outpace.pattern.windows import BetweenWindows, CountWindows, TimeWindows, WindowSpec

#: The rows of an instance that gets windows alone, and their number.
NO_ROWS: Final = np.zeros((0, 2), np.int64), 0


class Delivery(NamedTuple):
    """The share of an instance in the next events.

    Parameters
    ----------
    instance
        The instance, from 0 on.
    ranges, size
        The rows, as pairs of a first row and the one behind the last, ascending, with gaps between;
        and their number.
    split
        Its windows that open and close.
    """

    instance: int
    ranges: Integers
    size: int
    split: Split


class Schedule(SavedPart, ABC):
    """Gives windows to instances and says which rows each of them gets.

    Parameters
    ----------
    instances
        The number of instances.
    """

    SAME: ClassVar = {"instances": ("_instances", "another schedule")}
    NUMBERS: ClassVar = {"sent": ("events_sent", NATURAL)}

    def __init__(self, instances: int) -> None:
        self._instances = instances
        #: How many events were sent, one for each instance that got it.
        self.events_sent = 0

    @abstractmethod
    def route(self, events: Events, split: Split, loads: Sequence[float]) -> list[Delivery]:
        """Return what each instance gets; instances that get nothing are left out.

        Parameters
        ----------
        events, split
            The next events, and what they open and close.
        loads
            For each instance the events that wait for it.
        """

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        numbers, tables = self._kept()
        return super().state().plus(State(numbers, tables))

    def restore(self, state: State, opened: Windows | None = None) -> None:
        """Go on from what `state` returned, maybe in another process.

        These windows are open, where that is known.
        """
        super().restore(state)
        header, tables = state.content()
        if len(tables) != len(self._kept()[1]):
            raise StateError("the saved state belongs to another schedule")
        self._set_kept(header, tables, opened)

    @abstractmethod
    def _kept(self) -> tuple[dict[str, object], list[pa.Table]]:
        """Return what is known of the windows, as numbers and tables."""

    @abstractmethod
    def _set_kept(
        self, numbers: Mapping[str, object], tables: list[pa.Table], opened: Windows | None
    ) -> None:
        """Take over what `_kept` returned."""


class PartitionSchedule(Schedule):
    """Gives partitions to instances, where there are no windows: one is a window that stays open.

    A partition that is forgotten leaves its number, and with it its place, to another one. Memory:
    an integer for each number.

    Parameters
    ----------
    scheduler
        The scheduler that gives partitions to instances; see `scheduler_of`.
    instances
        The number of instances.
    """

    CHANGED = ("_owners",)

    def __init__(self, scheduler: Scheduler, instances: int) -> None:
        super().__init__(instances)
        self._scheduler = scheduler
        #: The instance of each partition, by its number; -1 while there is none.
        self._owners = np.zeros(0, np.int64)
        self._opened = 0

    def route(self, events: Events, split: Split, loads: Sequence[float]) -> list[Delivery]:
        """Return what each instance gets; instances that get nothing are left out."""
        codes, numbers = events.codes
        self._owners = grown(self._owners, int(numbers.max(initial=-1)) + 1, -1)
        new = np.flatnonzero(self._owners[numbers] < 0)
        if len(new):
            current = [float(load) for load in loads]
            sizes = np.bincount(codes, minlength=len(numbers))
            for partition, size in zip(numbers[new].tolist(), sizes[new].tolist(), strict=True):
                window = Candidate(partition, 0, self._opened, 0)
                instance = ask_scheduler(self._scheduler, window, current)
                self._owners[partition] = instance
                self._opened += 1
                current[instance] += size
        self.events_sent += len(codes)
        owner = self._owners[numbers][codes]
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        ranges = np.stack([first, np.append(first[1:], len(owner))[: len(first)]], axis=1)
        order = np.argsort(owner[first], kind="stable")
        rows = rows_by_owner(owner[first][order], ranges[order])
        return [Delivery(instance, *own, split) for instance, own in rows.items()]

    def _kept(self) -> tuple[dict[str, object], list[pa.Table]]:
        return {"opened": self._opened}, [pa.table({"owner": self._owners})]

    def _set_kept(
        self, numbers: Mapping[str, object], tables: list[pa.Table], opened: Windows | None
    ) -> None:
        self._opened = integer(numbers, "opened", NATURAL)
        (self._owners,) = integers(tables[0], owner=range(-1, self._instances))


def ask_scheduler(scheduler: Scheduler, window: Candidate, loads: Sequence[float]) -> int:
    """Return the instance that a scheduler gives a window to, or refuse what is none."""
    instance = scheduler.assign(window, tuple(loads))
    if not isinstance(instance, int | np.integer) or not 0 <= instance < len(loads):
        raise BindError(
            f"scheduler {type(scheduler).__name__} returned {instance!r}",
            detail=f"for window {window.number} of partition {window.partition}",
            hint=f"return a number from 0 to {len(loads) - 1}",
        )
    return int(instance)


def rows_by_owner(owner: Integers, ranges: Integers) -> dict[int, tuple[Integers, int]]:
    """Return each owner's ranges and the number of rows in them; owners ascend."""
    if not len(owner):
        return {}
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    sizes = np.add.reduceat(ranges[:, 1] - ranges[:, 0], begins)
    bounds = [*begins.tolist(), len(owner)]
    return {
        instance: (ranges[low:high], size)
        for instance, low, high, size in zip(
            owner[begins].tolist(), bounds[:-1], bounds[1:], sizes.tolist(), strict=True
        )
    }


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
    choice = query.scheduler
    if choice is None:
        choice = ByKey() if query.partitions else Batches()
    if isinstance(choice, Batches) and choice.size is None:
        return Batches(batch_size(query.windows, query.instance_count))
    return choice


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
