"""Matches that are found once and belong to many windows, as rows of the result."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from outpace.engine.match.contract import Block, Found, Integers, Task
from outpace.engine.match.operator import take_matches
from outpace.engine.match.output import match_rows
from outpace.engine.window.contract import Windows
from outpace.engine.window.result import (
    COMPLETING,
    WindowMatches,
    identities,
    in_total_order,
    rows_of_matches,
    take_rows,
    with_numbers,
)


def spread(
    task: Task,
    block: Block,
    found: Found,
    match: Integers,
    event: Integers,
    windows: Windows,
    window: Integers,
) -> WindowMatches:
    """Return the matches of windows in their total order; measures are computed once for a match.

    Parameters
    ----------
    task, block, found
        The query, the rows, and what was found.
    match, event, window
        For each match of a window: which match, in the order found, the event that completed it,
        and which of the `windows`.
    """
    bound = task.bound
    if not len(match):
        return WindowMatches.none(bound.output)
    number, partition = windows.number[window], windows.partition[window]
    phase = np.full(len(match), COMPLETING, np.int64)
    order = in_total_order(event, phase, number, partition)
    fresh = np.diff(match, prepend=-1) > 0
    once = np.flatnonzero(fresh)
    if len(once) < len(found.start):
        found = take_matches(found, match[once])
    table, match_of = match_rows(task, block, found)
    counts = np.bincount(match_of, minlength=len(once))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    chosen = np.cumsum(fresh) - 1
    if order is not None:
        chosen, event, number = chosen[order], event[order], number[order]
        window, partition = window[order], partition[order]
    table, offsets = take_rows(table, offsets, chosen)
    if bound.query.numbered:
        times = windows.start_time[window], windows.end_time[window]
        table = with_numbers(bound, table, *rows_of_matches(offsets, event, number, *times))
    if bound.query.duplicates:
        identity = pa.nulls(len(chosen), pa.binary())
    else:
        identity = identities(task, block, found).take(chosen)
    return WindowMatches(table, offsets, event, phase, number, partition, identity)
