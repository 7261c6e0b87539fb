"""An instance: matches the windows that it is given; a partition is the window that stays open."""

from __future__ import annotations

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.front import Front
from outpace.engine.match.output import timed_out_schema
from outpace.engine.message import (
    Answer,
    Deliver,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State
from outpace.engine.window_match.apply import AppliedOperator, WindowedApply
from outpace.engine.window_match.apply_shared import SharedApply
from outpace.engine.window_match.matcher import WindowMatcher
from outpace.engine.window_match.partition_matcher import PartitionMatcher
from outpace.pattern.operator import SharedOperator


class Instance(Stateful):
    """Finds the matches of the windows, or of the partitions, that it is given.

    Parameters
    ----------
    spec
        The operator.
    tells_time
        Whether answers say how far back the events of later matches may lie, where that takes a
        look at all rows kept.
    """

    CHANGED = ("_matcher",)

    def __init__(self, spec: OperatorSpec, *, tells_time: bool = False) -> None:
        self._spec = spec
        self._tells_time = tells_time
        self._nothing = pa.table({})
        if spec.task is not None and spec.task.timeouts:
            self._nothing = timed_out_schema(spec.task).empty_table()
        self._matcher = _make_matcher(spec)

    @property
    def begun(self) -> int:
        """How often it has begun to change what it keeps of partitions."""
        return self._matcher.begun if isinstance(self._matcher, PartitionMatcher) else 0

    @property
    def rows_kept(self) -> int:
        """How many rows undecided matches may still need."""
        return self._matcher.rows_kept

    @property
    def partitions_kept(self) -> int:
        """How many partitions anything is kept of."""
        return self._matcher.partitions_kept

    @property
    def open_windows(self) -> int:
        """How many windows are open; a partition is none that anybody counts."""
        matcher = self._matcher
        return 0 if isinstance(matcher, PartitionMatcher) else matcher.open_windows

    def is_unmoved(self, watermark: int) -> bool:
        """Say whether it gives nothing up to a time, if no events come; of windows nobody knows."""
        matcher = self._matcher
        return isinstance(matcher, PartitionMatcher) and matcher.is_unmoved(watermark)

    def starts_kept(self) -> int:
        """Count the rows kept that an undecided match may start with; linear in the rows kept."""
        return self._matcher.starts_kept()

    def step(self, delivery: Deliver) -> Answer:
        """Take events and windows, and return what became final."""
        events, ended = delivery.own_events, delivery.ended
        watermark = self._watermark(delivery.watermark)
        matcher = self._matcher
        if isinstance(matcher, PartitionMatcher):
            settled = matcher.step(
                events,
                watermark=watermark,
                ended=ended,
                stream=delivery.events,
                arrived=delivery.arrived,
            )
            return Answer(
                settled.matches,
                settled.timed_out,
                delivery.arrived,
                delivery.arrived,
                self._told(watermark),
                events=delivery.size,
                idle=settled.idle,
                seen=settled.seen,
            )
        matches = matcher.step(events, delivery.split, arrived=delivery.arrived, ended=ended)
        return Answer(
            matches,
            self._nothing,
            delivery.arrived,
            matcher.horizon,
            self._told(watermark),
            matcher.open_windows,
            delivery.size,
        )

    def count(self, delivery: Deliver) -> int:
        """Return how many matches there are in the windows of a delivery that is all there is."""
        assert isinstance(self._matcher, WindowMatcher)
        return self._matcher.count(delivery.own_events, delivery.split)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        return self._matcher.state()

    def restore(self, state: State, front: Front | None = None) -> None:
        """Go on from what `state` returned, and a front that was saved with it, if any."""
        fresh = Instance(self._spec, tells_time=self._tells_time)
        if isinstance(fresh._matcher, PartitionMatcher):
            known = () if front is None else (front.taken, front.arrived)
            fresh._matcher.restore(state, *known)
        else:
            windows = (None, None) if front is None else (front.opened(), front.taken)
            fresh._matcher.restore(state, *windows)
        self.become(fresh)

    def _watermark(self, watermark: int) -> int:
        """Return how far time has come, where time decides anything."""
        decides = self._spec.bound.within is not None or self._spec.windows is not None
        return watermark if decides else int(NO_TIME)

    def _told(self, watermark: int) -> int:
        """Return how far back the events of later matches may lie."""
        reach = self._spec.reach
        if watermark != NO_TIME and self._tells_time:
            assert self._spec.disorder is not None
            assert not isinstance(self._matcher, PartitionMatcher)
            return min(watermark, self._matcher.earliest(self._spec.disorder.time))
        if watermark == NO_TIME or reach is None:
            return int(NO_TIME)
        return max(watermark - reach, int(NO_TIME))


def _make_matcher(spec: OperatorSpec) -> PartitionMatcher | WindowMatcher | AppliedOperator:
    if spec.task is None:
        make = spec.query.operator
        assert make is not None
        shared = issubclass(make if isinstance(make, type) else type(make()), SharedOperator)
        return (SharedApply if shared else WindowedApply)(spec.query, spec.schema)
    if spec.windows is not None:
        return WindowMatcher(spec.task, spec.matcher, rows=spec.kept)
    assert spec.matcher is not None
    return PartitionMatcher(spec.task, spec.matcher, spec.kept)
