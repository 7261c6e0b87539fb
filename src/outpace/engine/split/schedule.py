"""Running a scheduler: windows go to instances, and events to the instances of their windows.

`Schedule.route` takes what the splitter says of the next events and returns what each instance gets
of them: its windows that open and close, and its rows as ranges. An instance gets an event at most
once, however many of its windows hold it, and an event that no window holds goes nowhere. The work
for a block is at most that of its rows and of the windows that open or close in it, never that of
the windows that stay open.

Paper: SPACE (Amann 2018) 2.3.4, 4.4 and 5.4.3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.snapshot import Stateful
from outpace.engine.split.windows import Split, Windows
from outpace.engine.state import NATURAL, State, integer
from outpace.errors import StateError
from outpace.pattern.query import Query
from outpace.pattern.schedulers import Batches, ByKey, Scheduler
from outpace.pattern.windows import BetweenWindows, CountWindows, TimeWindows
from outpace.pattern.windows import Windows as WindowSpec

#: The rows of an instance that gets windows alone, and their number.
NO_ROWS: Final = np.zeros((0, 2), np.int64), 0


class Delivery(NamedTuple):
    """What an instance gets of the next events.

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


class Schedule(Stateful, ABC):
    """Gives windows to instances and says which rows each of them gets.

    Parameters
    ----------
    instances
        The number of instances.
    """

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
        header = {"instances": self._instances, "sent": self.events_sent, **numbers}
        return State(header, tables)

    def restore(self, state: State, opened: Windows | None = None) -> None:
        """Go on from what `state` returned, maybe in another process.

        These windows are open, where that is known.
        """
        header, tables = state.content()
        if header.get("instances") != self._instances or len(tables) != len(self._kept()[1]):
            raise StateError("the saved state belongs to another schedule")
        self.events_sent = integer(header, "sent", NATURAL)
        self._set_kept(header, tables, opened)

    @abstractmethod
    def _kept(self) -> tuple[dict[str, object], list[pa.Table]]:
        """Return what is known of the windows, as numbers and tables."""

    @abstractmethod
    def _set_kept(
        self, numbers: Mapping[str, object], tables: list[pa.Table], opened: Windows | None
    ) -> None:
        """Take over what `_kept` returned."""


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
