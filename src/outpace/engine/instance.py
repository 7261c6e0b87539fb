"""An instance: matches the windows that it is given; a partition is the window that stays open."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.front import Front
from outpace.engine.message import (
    Answer,
    Deliver,
    refused_message,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.times import as_integers
from outpace.engine.snapshot import Stateful
from outpace.engine.speculate.standings import Standing
from outpace.engine.state import NATURAL, State, integer, require
from outpace.engine.window_match.apply import OperatorRunner, WindowedApply
from outpace.engine.window_match.apply_shared import SharedApply
from outpace.engine.window_match.matcher import WindowMatcher
from outpace.engine.window_match.partition_matcher import PartitionMatcher
from outpace.engine.window_match.result import COMPLETING, WindowMatches
from outpace.errors import StateError
from outpace.pattern.operator import SharedOperator

#: No events are used.
_NO_EVENTS: Final = np.zeros(0, np.int64)
_InstanceMatcher: TypeAlias = PartitionMatcher | WindowMatcher | OperatorRunner


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

    CHANGED = ("_matcher", "_marks")

    def __init__(self, spec: OperatorSpec, *, tells_time: bool = False) -> None:
        self._spec = spec
        self._tells_time = tells_time
        self._nothing = spec.timed_out.empty_table()
        self._matcher = _make_matcher(spec)
        #: As what it stood at marks, by their numbers, where late events correct.
        self._marks: dict[int, _InstanceMatcher] = {}
        #: The marks that it had set when it was saved, and that its state does not have.
        self._unsaved = range(0)

    @property
    def matcher(self) -> _InstanceMatcher:
        """What matches its windows or partitions, as it stands."""
        return self._matcher

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
        return self._matcher.open_windows

    def is_unmoved(self, watermark: int) -> bool:
        """Say whether it gives nothing up to a time, if no events come; of windows nobody knows."""
        matcher = self._matcher
        return isinstance(matcher, PartitionMatcher) and matcher.is_unmoved(watermark)

    def starts_kept(self) -> int:
        """Count the rows kept that an undecided match may start with; linear in the rows kept."""
        return self._matcher.starts_kept()

    def step(self, delivery: Deliver) -> Answer:
        """Take events and windows, and return what became final."""
        if not isinstance(delivery, Deliver):
            raise refused_message("an instance", delivery, Deliver)
        copied = 0 if delivery.standing is None else self._stand(delivery.standing)
        return self._take(delivery, copied)

    def _stand(self, standing: Standing) -> int:
        """Go back to a mark, and set one, as a delivery says; return how many bytes that copies.

        Between two marks without a delivery nothing changed, so one of them stands for both.
        """
        if standing.back_to is not None:
            if standing.back_to in self._unsaved:
                raise StateError(
                    f"the saved state of an instance does not have mark {standing.back_to}, to"
                    " which the front goes back",
                    detail=f"it has mark {self._unsaved.start - 1} alone",
                    hint="where late events correct, restore all parts from states that were saved"
                    " together",
                )
            later = sorted(number for number in self._marks if number >= standing.back_to)
            if later:
                self._matcher = self._marks[later[0]].snapshot()
                for number in later[1:]:
                    del self._marks[number]
        if standing.mark is not None:
            self._marks[standing.mark] = self._matcher.snapshot()
        for number in [number for number in self._marks if number < standing.oldest]:
            del self._marks[number]  # Nobody goes back there.
        return 0 if standing.mark is None else self._matcher.copied_bytes

    def _found(self, matches: WindowMatches, delivery: Deliver) -> WindowMatches:
        """Return matches with the time before which all that they depend on lies, where it counts.

        What an event completed is found with it, and not only with all of its block.
        """
        if delivery.standing is None:
            return matches
        assert self._spec.disorder is not None
        if not len(matches) or not len(delivery.events.arrival):
            return matches.found_by(np.full(len(matches), delivery.standing.bound))
        times, arrival = delivery.events.times, delivery.events.arrival
        if not len(times):
            times = as_integers(delivery.events.rows.column(self._spec.disorder.time))
        in_windows = not isinstance(self._matcher, PartitionMatcher)
        if arrival[-1] - arrival[0] == len(arrival) - 1:
            place = matches.event - arrival[0]
            if not in_windows and place[0] >= 0 and place[-1] < len(arrival):
                return matches.found_by(times[place] + 1)
        else:
            place = np.searchsorted(arrival, matches.event)
        place = np.minimum(np.maximum(place, 0), len(arrival) - 1)
        own = arrival[place] == matches.event
        if in_windows:
            own &= matches.phase == COMPLETING
        return matches.found_by(np.where(own, times[place] + 1, delivery.standing.bound))

    def _take(self, delivery: Deliver, copied: int) -> Answer:
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
                self._found(settled.matches, delivery),
                settled.timed_out,
                frontier=delivery.arrived,
                horizon=delivery.arrived,
                watermark=self._promise(watermark),
                events=delivery.size,
                idle=settled.idle,
                event_counts=settled.event_counts,
                checkpoint_bytes=copied,
            )
        matches = matcher.step(events, delivery.split, arrived=delivery.arrived, ended=ended)
        return Answer(
            self._found(matches, delivery),
            self._nothing,
            frontier=delivery.arrived,
            horizon=matcher.horizon,
            watermark=self._promise(watermark),
            open_windows=matcher.open_windows,
            events=delivery.size,
            checkpoint_bytes=copied,
            used=self._take_used(),
        )

    def _take_used(self) -> Integers:
        """Return the events of the matches of a step, where somebody asks for them."""
        if self._spec.tells_used and isinstance(self._matcher, WindowMatcher):
            return self._matcher.take_used()
        return _NO_EVENTS

    def undecided(self) -> tuple[Integers, Integers]:
        """Return partitions, and the first event of each that an undecided match may need."""
        assert isinstance(self._matcher, WindowMatcher)
        return self._matcher.undecided()

    def count(self, delivery: Deliver) -> int:
        """Return how many matches there are in the windows of a delivery that is all there is."""
        assert isinstance(self._matcher, WindowMatcher)
        return self._matcher.count(delivery.own_events, delivery.split)

    def state(self) -> State:
        """Return all that is kept, for `restore`: where it stands, and where at the oldest mark.

        Who goes on from it goes back no less far.
        """
        state = self._matcher.state()
        if not self._marks:
            return state
        oldest, newest = min(self._marks), max(*self._marks, self._unsaved.stop - 1)
        base = {"now": state, "base": self._marks[oldest].state()}
        last = {"newest": newest} if newest > oldest else {}
        return State({"oldest": oldest, **last}, parts=base)

    def restore(self, state: State, front: Front | None = None) -> None:
        """Go on from what `state` returned, and a front that was saved with it, if any."""
        fresh = Instance(self._spec, tells_time=self._tells_time)
        if "base" in state.parts:
            base = None if front is None else front.base
            oldest = integer(state.numbers, "oldest", NATURAL)
            newest = integer({"newest": oldest, **state.numbers}, "newest", NATURAL)
            require(oldest <= newest, "marks are not in their order")
            fresh._marks = {oldest: _make_matcher(self._spec)}
            fresh._unsaved = range(oldest + 1, newest + 1)
            _restore(next(iter(fresh._marks.values())), state.part("base"), base)
            state = state.part("now")
        _restore(fresh._matcher, state, front)
        self.become(fresh)

    def _watermark(self, watermark: int) -> int:
        """Return how far time has come, where time decides anything."""
        decides = self._spec.bound.within is not None or self._spec.windows is not None
        return watermark if decides else int(NO_TIME)

    def _promise(self, watermark: int) -> int:
        """Return how far back the events of later matches may lie."""
        reach = self._spec.reach
        if watermark != NO_TIME and self._tells_time:
            assert self._spec.disorder is not None
            assert not isinstance(self._matcher, PartitionMatcher)
            return min(watermark, self._matcher.earliest(self._spec.disorder.time))
        if watermark == NO_TIME or reach is None:
            return int(NO_TIME)
        return max(watermark - reach, int(NO_TIME))


def _restore(matcher: _InstanceMatcher, state: State, front: Front | None) -> None:
    """Let a matcher go on from a state, and a front that was saved with it, if any."""
    if isinstance(matcher, PartitionMatcher):
        matcher.restore(state, *(() if front is None else (front.taken, front.arrived)))
    else:
        matcher.restore(state, *((None, None) if front is None else (front.opened(), front.taken)))


def _make_matcher(spec: OperatorSpec) -> _InstanceMatcher:
    if spec.found is None:
        make = spec.query.operator
        assert make is not None
        shared = issubclass(make if isinstance(make, type) else type(make()), SharedOperator)
        return (SharedApply if shared else WindowedApply)(spec.query, spec.schema)
    if spec.windows is not None:
        tells_used = spec.tells_used
        return WindowMatcher(spec.found, spec.matcher, rows=spec.kept, tells_used=tells_used)
    assert spec.matcher is not None
    return PartitionMatcher(spec.found, spec.matcher, spec.kept, spec.joint)
