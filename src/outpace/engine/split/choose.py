"""The splitter and the schedule that fit the windows of a query."""

from __future__ import annotations

from outpace.engine.split.batch_schedule import BatchedSchedule
from outpace.engine.split.predicate import PredicateSplitter
from outpace.engine.split.schedule import PartitionSchedule, Schedule
from outpace.engine.split.splitter import Splitter
from outpace.engine.split.table import (
    ContentSplitter,
    CountSplitter,
    LandmarkSplitter,
    SessionSplitter,
    TimeSplitter,
)
from outpace.engine.split.unkeyed import UnkeyedCountSplitter, UnkeyedTimeSplitter
from outpace.engine.split.window_list import ListedSchedule
from outpace.pattern.bind.window_kinds import (
    BoundWindows,
    ByContent,
    ByCount,
    ByLandmark,
    ByPredicate,
    BySession,
    ByTime,
    WindowKind,
)
from outpace.pattern.schedulers import Batches, ByKey, RoundRobin, Scheduler

__all__ = ["Splitter", "make_schedule", "make_splitter"]

_SPLITTERS: dict[type[WindowKind], type[Splitter]] = {
    ByCount: CountSplitter,
    ByTime: TimeSplitter,
    BySession: SessionSplitter,
    ByContent: ContentSplitter,
    ByPredicate: PredicateSplitter,
    ByLandmark: LandmarkSplitter,
}

#: Where one range of numbers tells all open windows.
_UNKEYED: dict[type[WindowKind], type[Splitter]] = {
    ByCount: UnkeyedCountSplitter,
    ByTime: UnkeyedTimeSplitter,
}


def make_splitter(windows: BoundWindows) -> Splitter:
    """Return the splitter of bound windows.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from outpace.engine.event import Events
    >>> splitter = make_splitter(BoundWindows(ByCount(3, 2, 0), False, None, ()))
    >>> numbers = np.arange(5)
    >>> split = splitter.push(Events(pa.table({}), numbers * 0, numbers, numbers, numbers[:0]))
    >>> split.opened.first.tolist(), split.closed.stop.tolist()
    ([0, 2, 4], [3, 5])
    >>> splitter.finish().closed.stop.tolist()
    [5]
    """
    kind = type(windows.kind)
    if not windows.keyed and kind in _UNKEYED:
        return _UNKEYED[kind](windows)
    return _SPLITTERS[kind](windows)


#: Windows that close in the order in which they open, where there are no partitions.
_IN_ORDER = (ByCount, ByTime, BySession, ByLandmark)


def make_schedule(scheduler: Scheduler, instances: int, windows: BoundWindows | None) -> Schedule:
    """Return the schedule of bound windows, or of partitions without any; see `scheduler_of`.

    Examples
    --------
    >>> windows = BoundWindows(ByCount(3, 2, 0), False, None, ())
    >>> type(make_schedule(RoundRobin(), 4, windows)).__name__
    'BatchedSchedule'
    """
    if windows is None:
        return PartitionSchedule(scheduler, instances)
    if not windows.keyed and isinstance(windows.kind, _IN_ORDER):
        if instances == 1 or isinstance(scheduler, ByKey):
            return BatchedSchedule(1, instances, used=1)
        if isinstance(scheduler, RoundRobin):
            return BatchedSchedule(1, instances)
        if isinstance(scheduler, Batches):
            return BatchedSchedule(scheduler.size or 1, instances)
    return ListedSchedule(scheduler, instances, keyed=windows.keyed)
