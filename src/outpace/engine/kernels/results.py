"""Rows of the result: windows in their order, and when each is final."""

from __future__ import annotations

from typing import Final

from outpace.compiler.kernel import compiled_when_worth
from outpace.engine.arrays import Numbers
from outpace.engine.kernels.search import REACHED_END

#: A window moves over at most so many before all are sorted in another way.
_SHORT: Final = 256


@compiled_when_worth
def spread_runs(
    event: Numbers,
    ends: Numbers,
    window: Numbers,
    number: Numbers,
    partition: Numbers,
    run_of: Numbers,
    event_of: Numbers,
    window_of: Numbers,
    number_of: Numbers,
) -> bool:
    """Put the windows of runs in order: by event, number and partition, equal ones as they come.

    Parameters
    ----------
    event, ends
        For each run the event that completed the match, and where its windows end.
    window
        The windows of the runs, one behind the other; those of a run rise by number.
    number, partition
        What is known of windows.
    run_of, event_of, window_of, number_of
        Filled in: for each window in order its run, and what belongs to it.

    Returns
    -------
    bool
        False where runs do not rise by event, or too many windows are not in order.
    """
    begin = 0
    # The first window with the event of the run.
    tied = 0
    for run in range(len(event)):
        now = event[run]
        if run and now != event[run - 1]:
            if now < event[run - 1]:
                return False
            tied = begin
        for place in range(begin, ends[run]):
            here = window[place]
            key = number[here]
            to = place
            while to > tied and (
                number_of[to - 1] > key
                or (number_of[to - 1] == key and partition[window_of[to - 1]] > partition[here])
            ):
                run_of[to] = run_of[to - 1]
                window_of[to] = window_of[to - 1]
                number_of[to] = number_of[to - 1]
                to -= 1
                if place - to > _SHORT:
                    return False
            run_of[to] = run
            window_of[to] = here
            number_of[to] = key
            event_of[place] = now
        begin = ends[run]
    return True


@compiled_when_worth
def latest_arrivals(
    arrivals: Numbers,
    segments: Numbers,
    segment: Numbers,
    reach: Numbers,
    following: int,
    settled: Numbers,
) -> None:
    """Fill `settled` from each match's reach; `following` stands for the end of the input.

    Within a segment the reach never falls, so one pass over its rows serves all its matches.
    """
    row = 0
    latest = 0
    for match in range(len(reach)):
        if match == 0 or segment[match] != segment[match - 1]:
            row = segments[segment[match]]
            latest = arrivals[row]
        if reach[match] == REACHED_END:
            settled[match] = following
            continue
        while row < reach[match]:
            if arrivals[row] > latest:
                latest = arrivals[row]
            row += 1
        settled[match] = latest
