"""Whether windows of a query may share their searches, and whether they overlap enough for it."""

from __future__ import annotations

from dataclasses import replace

from outpace.engine.match.contract import Matcher, Task
from outpace.engine.match.graph import GraphMatcher
from outpace.engine.match.graph_layout import covered as ends_with_take
from outpace.engine.match.kernel import KernelMatcher
from outpace.engine.match.reach import reach_of
from outpace.pattern.bound import MatchOrdinal
from outpace.pattern.query import Consume, Per, Selection, Skip
from outpace.pattern.windows import BetweenWindows


def sharing(task: Task, matcher: Matcher) -> str:
    """Return what windows that overlap may share: "shared" searches, "covered" matches, or none."""
    if task.bound.query.leeway is not None:
        # Of each window others are matched, or by other times.
        return "separate"
    if sharable(task, matcher):
        return "shared"
    return "covered" if covered(task, matcher) else "separate"


def is_ready(matcher: Matcher) -> bool:
    """Say whether searches that windows share need not wait for a compiler."""
    return isinstance(matcher, KernelMatcher) and matcher.sweep_is_compiled


def sharable(task: Task, matcher: Matcher) -> bool:
    """Say whether what a start comes to is the same in every window that has the rows it needs.

    It is not where matches are counted. The first starts of a window may differ, see `entrance`.
    """
    query = task.bound.query
    if not isinstance(matcher, KernelMatcher) or query.effective_skip.strict or task.timeouts:
        # Where a match is an error, it must be known that a window has it; a match that timed out
        # is of one window.
        return False
    if _closes_freely(task) or query.consumption is not Consume.NONE:
        return False
    return not (
        any(limit.per is Per.PARTITION for limit in query.limits) or task.bound.has(MatchOrdinal)
    )


def covered(task: Task, matcher: Matcher) -> bool:
    """Say whether windows share the matches of the stream, which a graph finds."""
    return isinstance(matcher, GraphMatcher) and everywhere(task) and not _closes_freely(task)


def everywhere(task: Task) -> bool:
    """Say whether a match of the stream is one of every window that holds its events."""
    reach = reach_of(task)
    around = reach.back or reach.ahead or reach.numbered or reach.anchored
    return is_unruled(task) and ends_with_take(task.program) and not around


def everywhere_by_start(task: Task) -> bool:
    """Say whether a limit for each start is all that rules matches out of windows that hold them.

    Then a start has its first matches in every window that holds it, and the later a window closes
    the more of them.
    """
    query = task.bound.query
    unlimited = replace(task, bound=replace(task.bound, query=replace(query, limits=())))
    return all(limit.per is Per.START for limit in query.limits) and everywhere(unlimited)


def is_unruled(task: Task) -> bool:
    """Say whether every candidate is a match, whatever others there are."""
    query = task.bound.query
    return (
        query.effective_selection is Selection.ALL
        and query.effective_skip.skip is Skip.NONE
        and query.consumption is Consume.NONE
        and not query.limits
    )


def _closes_freely(task: Task) -> bool:
    """Say whether windows may close in another order than they open."""
    windows = task.bound.query.windows
    return isinstance(windows, BetweenWindows) and windows.predicate is not None
