"""Windows of events whose order is uncertain: true times say which events each holds.

The window that is split holds the events that may be in it, and closes when no other can be. Then
it is matched, and a match is one of events that may be in the window together.

Memory: the rows of open windows, and what one step gathers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from outpace.engine.arrays import Booleans
from outpace.engine.event import Events
from outpace.engine.match.contract import Matcher, Resume, Task
from outpace.engine.split.windows import OPEN, take_windows
from outpace.engine.window_match.open_windows import OpenWindows
from outpace.engine.window_match.result import WindowMatches
from outpace.engine.window_match.rows import places
from outpace.engine.window_match.separate import SeparateWindows
from outpace.engine.window_match.stretches import Stretches, part_matches
from outpace.pattern.bind.window_kinds import BoundWindows, ByTime


class UncertainWindows(SeparateWindows):
    """Matches windows of true time when they close.

    Parameters
    ----------
    task, matcher, nothing, rows_at_once
        As of windows that are matched one by one.
    windows
        The windows, with what is split.
    """

    def __init__(
        self,
        task: Task,
        matcher: Matcher,
        nothing: Events,
        rows_at_once: int,
        windows: BoundWindows,
    ) -> None:
        super().__init__(task, matcher, nothing, rows_at_once)
        assert windows.drift is not None
        assert isinstance(windows.drift.kind, ByTime)
        self._kind: ByTime = windows.drift.kind

    def _match(self, held: Events, windows: OpenWindows, fresh: Booleans) -> list[WindowMatches]:
        closed = take_windows(windows.windows, np.flatnonzero(windows.windows.stop != OPEN))
        start = self._kind.offset + closed.number * self._kind.slide
        closed = replace(closed, start_time=start, end_time=start + self._kind.size)
        stretches = Stretches(
            places(held, closed.partition, closed.first),
            places(held, closed.partition, closed.stop),
            closed.first,
            closed.closed_at,
            np.stack([closed.start_time, closed.end_time], axis=1),
        )
        resume = Resume.fresh(len(closed))
        return [
            part_matches(self._task, part, closed)
            for part in self._matcher.match(held, stretches, resume, ended=True)
        ]
