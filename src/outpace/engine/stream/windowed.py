"""A query over windows as the stages of a stream see it: what each makes its parts of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.match.operator import kept_columns
from outpace.engine.window_match.apply import WindowedApply
from outpace.engine.window_match.matcher import WindowMatcher
from outpace.engine.window_match.operator import Instance
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bind.query import bind_operator
from outpace.pattern.bind.windows import BoundWindows, bind_windows
from outpace.pattern.bound import BoundQuery
from outpace.pattern.query import Query


@dataclass(frozen=True)
class WindowedStream:
    """A query over windows of a stream.

    Parameters
    ----------
    query
        The query; its first order column is the event time.
    task
        The pattern as it is matched, reading bits or not; None for a user-defined operator.
    disorder
        How far events are out of order, and what becomes of those that are late or invalid.
    events
        The columns that come, with their types: all that the query reads, shows, orders by or
        splits by, and all of the input where some events are set aside.
    """

    query: Query
    task: Task | None
    disorder: BoundDisorder
    events: pa.Schema

    @cached_property
    def bound(self) -> BoundQuery:
        """The query, bound to the columns that come."""
        return bind_operator(self.query, self.events) if self.task is None else self.task.bound

    @cached_property
    def windows(self) -> BoundWindows:
        """The windows; it is known when those of an operator start, which keeps no rows."""
        windows = bind_windows(self.query, self.events)
        return replace(windows, time=self.disorder.time) if self.task is None else windows

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that an instance needs."""
        if self.task is None:
            return tuple(self.events.names)
        return kept_columns(self.task, self.events)

    def instance(self) -> Instance:
        """Return what finds the matches of windows; all share what is compiled."""
        if self.task is None:
            return WindowedApply(self.query, self.events)
        assert self.matcher is not None
        return WindowMatcher(self.task, self.matcher)

    @cached_property
    def matcher(self) -> Matcher | None:
        """What finds the matches; None for a user-defined operator."""
        return None if self.task is None else choose_matcher(self.task).matcher
