"""Windows in EXPLAIN: which ones, whether they share work, who matches them, what is merged."""

from __future__ import annotations

from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Task
from outpace.engine.split.schedule import overlapping, scheduler_of
from outpace.engine.window_match.sharing import sharable
from outpace.pattern.notation.print_windows import window_calls
from outpace.pattern.query import Query


def window_stages(query: Query, task: Task | None, *, placed: bool = False) -> list[str]:
    """Say what the splitter, the instances and the merger do; nothing for a query without windows.

    Parameters
    ----------
    query, task
        The query, as it is and bound.
    placed
        Whether a host says by itself who matches which windows, and what is merged.

    Examples
    --------
    >>> from outpace.pattern.windows import CountWindows
    >>> query = Query().order_by("ts").pattern("A B").over(CountWindows(1000, 50)).instances(4)
    >>> for line in window_stages(query, None):
    ...     print(line)
    splitter: over(op.windows.count(1000, slide=50)), each matched as if it were all there is
    instances: 4, chosen by Batches(size=76)
    merger: by match number x:y, a match of several windows once
    """
    if query.windows is None:
        return []
    over = next(iter(window_calls(query)))
    lines = [f"splitter: {over}, each matched as if it were all there is"]
    if task is not None:
        shared = overlapping(query.windows) and sharable(task, choose_matcher(task).matcher)
        lines.append(
            "windows: share the search of each start, so that overlap costs little"
            if shared
            else "windows: matched one by one"
        )
    if placed:
        return lines
    if query.instance_count > 1:
        lines.append(f"instances: {query.instance_count}, chosen by {scheduler_of(query)}")
    kept = "in every window that finds it" if query.duplicates else "of several windows once"
    return [*lines, f"merger: by match number x:y, a match {kept}"]
