"""How the rows of a query are divided among tasks on Spark, and why not otherwise.

Without windows rows are cut into ranges of time where that can be: a task has the rows of a range,
and those of WITHIN behind it, so it finds every match that starts in its range. Where a match rules
out later ones, the borders are put in order after that (`engine.divide`).

Windows of time are told by arithmetic, so rows are packed by batches of windows as they cross, in
any order. Windows of the other kinds need the order of all events of their partition. Keyed ones
are divided by key, and each task splits its own keys; without keys one task orders the packed rows
and splits them into batches. Batches come with the windows that overlap them, so each task knows
which matches count for its own windows and nothing is merged (`engine.divide.batches`).

What a match is numbered by counts the events of all keys. Where numbers are asked for, windows of
time go by time with all keys together; for the other kinds one task orders, numbers and splits the
packed rows of all keys, and the keys are matched in parallel.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from outpace.engine.divide.batches import TimeBatches
from outpace.engine.match.program import compile_program
from outpace.pattern import ast
from outpace.pattern.bind.window_kinds import BoundWindows, ByContent, ByCount, ByPredicate, ByTime
from outpace.pattern.bound import BoundQuery, MatchOrdinal
from outpace.pattern.query import Consume, Query, RowsPerMatch, Selection, Skip, WithinKind


class Cut(Enum):
    """Where rows, or windows of them, are cut for tasks."""

    KEY = "by key"
    KEY_AND_RANGE = "by key and time range"
    RANGE = "by time range"
    TIME = "by time, in batches of windows"
    SPLIT = "in batches of windows"
    NUMBERED = "by key, after one task has numbered the events of all keys"
    NONE = "not at all"

    @property
    def by_range(self) -> bool:
        """Whether ranges of time are tasks of their own."""
        return self in (Cut.RANGE, Cut.KEY_AND_RANGE)


#: Ranges are this many times as long as WITHIN, so a row is in two of them one time in so many,
#: and a task holds the rows of so many windows and one more.
RANGE_FACTOR: Final = 32

#: Times are 64-bit integers, so that ranges of longer windows would not fit.
_WITHIN_MAX: Final = 1 << 56


def divide_rows(query: Query, bound: BoundQuery, back: int, ahead: int) -> tuple[Cut, str]:
    """Return how rows can be divided, and why not by range where they cannot."""
    assert query.tree is not None
    program = compile_program(query.tree, ast.predicates(query.tree))
    every_start = query.effective_skip.skip in (Skip.NONE, Skip.TO_NEXT_ROW)
    reasons = {
        "there is no WITHIN": bound.within is None,
        "WITHIN is longer than any range": (bound.within or 0) > _WITHIN_MAX,
        "WITHIN measures from event to event": query.bound is not None
        and query.bound.kind is not WithinKind.FIRST_TO_LAST,
        "PREV or NEXT may reach any distance in time": back > 0 or ahead > 0,
        "the pattern has ^ or $": any(
            isinstance(n, ast.AtStart | ast.AtEnd) for n in ast.walk(query.tree)
        ),
        "the pattern can match nothing": program.matches_empty,
        # What a match rules out travels with the rows that it shows.
        "a match may show none of its rows": (
            query.rows is not RowsPerMatch.ONE and program.matches_unseen and not every_start
        ),
        "matches are numbered": bound.has(MatchOrdinal),
        "the order of events is uncertain": query.uncertainty is not None,
        "a row without a partner looks back": query.join is not None,
        "there is a limit": bool(query.limits),
        "events are consumed": query.consumption is not Consume.NONE,
        "unmatched rows are asked for": query.rows is RowsPerMatch.ALL_WITH_UNMATCHED,
        "all matches are asked for and some are skipped": (
            query.effective_selection is Selection.ALL
            and query.effective_skip.skip is not Skip.NONE
        ),
    }
    whole, ranged = (Cut.KEY, Cut.KEY_AND_RANGE) if bound.partition_by else (Cut.NONE, Cut.RANGE)
    for reason, holds in reasons.items():
        if holds:
            return whole, reason
    return ranged, ""


#: A batch is so many times as long as the windows before and behind it that overlap it.
BATCH_FACTOR: Final = 16

#: Windows of time that do not overlap are put together: few enough for tasks to share few windows,
#: enough for blocks of more than a few rows.
DISJOINT_WINDOWS: Final = 16

#: Windows that one task splits are put together until they have so many rows.
BATCH_ROWS: Final = 1 << 18

#: No batch is made longer than this for the sake of what overlaps it: a task has to hold it.
LARGE_BATCH_ROWS: Final = 1 << 24


#: So many buckets of keys are matched in parallel where the user has not said.
NUMBERED_BUCKETS: Final = 16


def by_windows(query: Query) -> bool:
    """Say whether a query is planned here: it has windows, or an operator over a partition."""
    return query.windows is not None or query.operator is not None


def divide_windows(bound: BoundQuery, windows: BoundWindows | None) -> tuple[Cut, str]:
    """Return how windows can be divided, and why not otherwise where that is a loss."""
    keyed = bool(bound.partition_by)
    numbered = windows is not None and bound.query.numbered
    if windows is not None and isinstance(windows.kind, ByTime):
        return Cut.TIME, "numbers count the events of all keys" if keyed and numbered else ""
    if keyed:
        return (Cut.NUMBERED if numbered else Cut.KEY), ""
    if windows is None:
        return Cut.NONE, "one operator takes all events"
    return Cut.SPLIT, ""


def removes_duplicates(query: Query, windows: BoundWindows | None) -> bool:
    """Say whether several windows may find a match that comes out once."""
    if windows is None or query.duplicates or query.operator is not None:
        return False
    match windows.kind:
        case ByCount(size=size, slide=slide) | ByTime(size=size, slide=slide):
            return size > slide
        case ByContent() | ByPredicate():
            return True
        case _:
            return False


def time_batches(
    windows: BoundWindows | None, size: int | None, *, neighbours: bool
) -> TimeBatches | None:
    """Return the batches of windows of time, of so many windows where that is given."""
    if windows is None or not isinstance(windows.kind, ByTime):
        return None
    kind = windows.kind
    overlap = -(-kind.size // kind.slide) - 1
    chosen = BATCH_FACTOR * overlap or DISJOINT_WINDOWS
    return TimeBatches(kind.size, kind.slide, kind.offset, size or chosen, neighbours)


def batch_rows(windows: BoundWindows | None, *, neighbours: bool) -> int:
    """Return how many rows a batch has of windows that one task splits."""
    if neighbours and windows is not None and isinstance(windows.kind, ByCount):
        overlap = BATCH_FACTOR * (windows.kind.size - windows.kind.slide)
        return max(BATCH_ROWS, min(LARGE_BATCH_ROWS, overlap))
    return BATCH_ROWS
