"""Choosing the matcher for a query: the fastest one that covers it, else the twin."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.compiler.kernel import is_disabled
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.match.kernel import make_kernel
from outpace.engine.match.twin import make_twin
from outpace.pattern.query import Selection


@dataclass(frozen=True)
class MatcherChoice:
    """A matcher and what it is, for `explain()`."""

    name: str
    matcher: Matcher


def choose_matcher(task: Task) -> MatcherChoice:
    """Return the fastest matcher that covers the query.

    The graph shares the work of all matches that overlap, the kernel searches for the preferred
    match of each start, and the twin, plain Python, covers everything else.
    """
    if task.bound.query.join is not None:
        from outpace.engine.match.join_matcher import JoinMatcher

        return MatcherChoice("join", JoinMatcher(task))
    if task.bound.uncertainty is not None:
        from outpace.engine.match.uncertain import UncertainMatcher

        return MatcherChoice("uncertain order", UncertainMatcher(task))
    if not (task.timeouts or is_disabled()):
        if task.bound.query.effective_selection is Selection.ALL:
            from outpace.engine.match.graph import make_graph_matcher

            graph = make_graph_matcher(task)
            if graph is not None:
                return MatcherChoice("graph", graph)
        else:
            kernel = make_kernel(task)
            if kernel is not None:
                return MatcherChoice("kernel", kernel)
    return MatcherChoice("twin", make_twin(task))
