"""Where the search goes on after a match: AFTER MATCH SKIP as pure functions.

A barrier is the last start that a match rules out: starts up to and including it are not tried (or,
with all matches asked for, not emitted) any more. The caller numbers the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.errors import MatchError
from outpace.pattern.bound import BoundQuery
from outpace.pattern.query import AfterMatch, Selection, Skip

MISSING: Final = "AFTER MATCH SKIP failed: pattern variable is not present in match"
FIRST_ROW: Final = "AFTER MATCH SKIP failed: cannot skip to first row of match"


def skip_variables(bound: BoundQuery) -> frozenset[int]:
    """Return the numbers of the variables that AFTER MATCH SKIP TO names; a SUBSET is several."""
    variable = bound.query.effective_skip.variable
    if variable is None:
        return frozenset()
    if variable in bound.subsets:
        return bound.subsets[variable]
    return frozenset((bound.number_of(variable),))


def barrier_after(
    after: AfterMatch,
    selection: Selection,
    targets: frozenset[int],
    start: int,
    rows: Sequence[int],
    labels: Sequence[int],
) -> int:
    """Return the last start that a match rules out; `start - 1` means none.

    Parameters
    ----------
    after, selection
        The after-match mode, and whether one or all matches of a start are meant.
    targets
        The variables that the mode names, see `skip_variables`.
    start, rows, labels
        The match: its start, the rows that it took and the variable of each; none when it is empty.

    Raises
    ------
    MatchError
        If the mode is strict and its target is not in the match, or is the match's first row.

    Examples
    --------
    >>> past = AfterMatch(Skip.PAST_LAST_ROW)
    >>> barrier_after(past, Selection.PREFERRED, frozenset(), 3, [3, 4, 6], [0, 1, 1])
    6
    """
    preferred = selection is Selection.PREFERRED
    if not rows:
        return start
    if after.skip is Skip.PAST_LAST_ROW:
        return rows[-1]
    if after.skip is Skip.TO_NEXT_ROW or (after.skip is Skip.NONE and preferred):
        return start
    if after.skip is Skip.NONE:
        return start - 1
    target = _target(after, targets, rows, labels)
    if after.strict and target is None:
        raise MatchError(MISSING, detail=f"variable {after.variable}", hint=HINT)
    if after.strict and target == start:
        raise MatchError(FIRST_ROW, detail=f"variable {after.variable}", hint=HINT)
    beyond = start - 1 if target is None else target - 1
    return max(beyond, start) if preferred else beyond


HINT: Final = "skip to a variable that is in every match after its first row, or to the next row"


def _target(
    after: AfterMatch, targets: frozenset[int], rows: Sequence[int], labels: Sequence[int]
) -> int | None:
    taken = [row for row, label in zip(rows, labels, strict=True) if label in targets]
    if not taken:
        return None
    return taken[0] if after.skip is Skip.TO_FIRST else taken[-1]
