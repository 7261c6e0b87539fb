"""Which queries without windows can be cut into ranges of time, and why others cannot.

A task has the rows of a range, and those of WITHIN behind it, so it finds every match that starts
in its range. Where a match rules out later ones, the borders are put in order after that
(`engine.divide`).
"""

from __future__ import annotations

from typing import Final

from outpace.engine.match.program import compile_program
from outpace.pattern import ast
from outpace.pattern.bound import BoundQuery, MatchOrdinal
from outpace.pattern.query import Consume, Query, RowsPerMatch, Selection, Skip, WithinKind
from outpace.plan.division import Division

#: Ranges are this many times as long as WITHIN, so a row is in two of them one time in so many,
#: and a task holds the rows of so many windows and one more.
RANGE_FACTOR: Final = 32

#: Times are 64-bit integers, so that ranges of longer windows would not fit.
_WITHIN_MAX: Final = 1 << 56


def divide_rows(query: Query, bound: BoundQuery, back: int, ahead: int) -> tuple[Division, str]:
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
    whole, ranged = (
        (Division.KEY, Division.KEY_AND_RANGE)
        if bound.partition_by
        else (Division.NONE, Division.RANGE)
    )
    for reason, holds in reasons.items():
        if holds:
            return whole, reason
    return ranged, ""
