"""Choosing the matcher for a query: the fastest one that covers it, else the twin."""

from __future__ import annotations

from typing import Final

from outpace.compiler.kernel import is_disabled
from outpace.engine.match.candidates import CandidateMatcher, make_candidate_matcher
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.match.graph import GraphMatcher, make_graph_matcher
from outpace.engine.match.join_matcher import JoinMatcher
from outpace.engine.match.kernel import KernelMatcher, make_kernel
from outpace.engine.match.kernel_arrays import MOVES_MAX
from outpace.engine.match.twin import TwinMatcher
from outpace.engine.match.uncertain_matcher import UncertainMatcher
from outpace.pattern.query import Selection

#: What `explain()` calls the matchers.
_NAMES: Final[dict[type, str]] = {
    CandidateMatcher: "search",
    GraphMatcher: "graph",
    JoinMatcher: "join",
    KernelMatcher: "kernel",
    UncertainMatcher: "uncertain order",
}


def choose_matcher(task: Task) -> Matcher:
    """Return the fastest matcher that covers the query.

    The graph shares the work of all matches that overlap, the search finds all matches of each
    start, the kernel the preferred one, and the twin, plain Python, covers everything else.
    """
    if task.bound.query.join is not None:
        return JoinMatcher(task)
    if task.bound.uncertainty is not None:
        return UncertainMatcher(task)
    compiled: Matcher | None = None
    if not is_disabled():
        if task.bound.query.effective_selection is Selection.ALL:
            compiled = make_graph_matcher(task) or make_candidate_matcher(task)
        else:
            compiled = make_kernel(task)
    return TwinMatcher(task) if compiled is None else compiled


def plain_reason() -> str:
    """Say why no compiled matcher covers a query that the twin matches."""
    if is_disabled():
        return "NUMBA_DISABLE_JIT is set"
    return f"the pattern has more than {MOVES_MAX} ways to go on at one place"


def matcher_name(matcher: Matcher) -> str:
    """Return what `explain()` calls a matcher."""
    return _NAMES.get(type(matcher), "twin")
