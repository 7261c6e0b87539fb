"""Matches that are found once and belong to many windows, as rows of the result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outpace.engine.arrays import Integers, pooled
from outpace.engine.kernels.results import spread_runs
from outpace.engine.match.contract import Block, BlockMatches, Task
from outpace.engine.match.identity import MatchIds, identified
from outpace.engine.match.output import match_rows
from outpace.engine.match.task import take_matches
from outpace.engine.split.windows import Windows
from outpace.engine.window_match.result import (
    COMPLETING,
    WindowMatches,
    rows_of_matches,
    take_rows,
    with_numbers,
)


@dataclass(frozen=True)
class WindowRuns:
    """Matches, each with windows that find it, in the order found.

    Parameters
    ----------
    match, event
        For each run: which match, and the event that completed it.
    ends
        Where the windows of each run end in `window`.
    window
        Windows, which rise by number in each run.
    """

    match: Integers
    event: Integers
    ends: Integers
    window: Integers


def spread(
    task: Task, block: Block, found: BlockMatches, runs: WindowRuns, windows: Windows
) -> WindowMatches:
    """Return the matches of windows in their total order; measures are computed once for a match.

    Parameters
    ----------
    task, block, found
        The query, the rows, and the matches in them.
    runs, windows
        Which matches which of the `windows` found.
    """
    bound = task.bound
    count = len(runs.window)
    if not count:
        return WindowMatches.none(bound.output)
    fresh = np.diff(runs.match, prepend=-1) > 0
    once = np.flatnonzero(fresh)
    if len(once) < len(found.start):
        found = take_matches(found, runs.match[once])
    table, match_of = match_rows(task, block, found)
    counts = np.bincount(match_of, minlength=len(once))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    run, event, window, number = _in_order(runs, windows)
    # Mostly each run has a match of its own.
    chosen = run if len(once) == len(fresh) else (np.cumsum(fresh) - 1)[run]
    table, offsets = take_rows(table, offsets, chosen)
    if bound.query.numbered:
        shown = event, number, windows.start_time[window], windows.end_time[window]
        single = bool((counts == 1).all())
        table = with_numbers(bound, table, *(shown if single else rows_of_matches(offsets, *shown)))

    make = identified(task, block, found)

    def identify() -> MatchIds:
        ids = make().take(chosen)
        if not bound.query.duplicates:
            return ids
        return ids.in_windows(bound.query, windows.start_time[window], number)

    phase = np.full(count, COMPLETING, np.int64)
    partition = windows.partition[window] if bound.partition_by else np.zeros(count, np.int64)
    return WindowMatches(table, offsets, event, phase, number, partition, identify)


def _in_order(runs: WindowRuns, windows: Windows) -> tuple[Integers, Integers, Integers, Integers]:
    """Return in the total order the run, the event, the window, and its number."""
    run = pooled(len(runs.window), np.int32)
    event, window, number = (pooled(len(runs.window), np.int64) for _ in range(3))
    known = windows.number, windows.partition
    if not spread_runs(runs.event, runs.ends, runs.window, *known, run, event, window, number):
        run = np.repeat(np.arange(len(runs.event)), np.diff(runs.ends, prepend=0))
        number, partition = (values[runs.window] for values in known)
        order = np.lexsort((partition, number, runs.event[run]))
        run, number, window = run[order], number[order], runs.window[order]
        event = runs.event[run]
    return run, event, window, number
