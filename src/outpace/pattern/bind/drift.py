"""Windows with a drift: what they ask of a query, and the columns that they give.

Each window has at most one match, so that those of LOW, MIDDLE and HIGH belong together, and its
measures are numbers. A measure becomes five columns: the average, the three values, and how far
they lie apart.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from outpace.errors import BindError, Hint
from outpace.pattern import ast, types
from outpace.pattern.bound import BoundMeasure, Predicate, PredicateClass
from outpace.pattern.query import Per, Query, RowsPerMatch, Selection, Skip
from outpace.pattern.types import type_name

#: What the columns of LOW, MIDDLE and HIGH are called, behind the name of their measure.
SHIFTED: Final = ("_low", "_middle", "_high")

#: What the column is called that says how far the three lie apart.
SPREAD: Final = "_spread"


def drift_fields(measures: tuple[BoundMeasure, ...], leading: tuple[str, ...]) -> list[pa.Field]:
    """Return the columns of measures in windows with a drift, behind the leading ones."""
    fields = []
    for measure in measures:
        kind = measure.expression.type
        fields.append(pa.field(measure.name, pa.float64()))
        fields += [pa.field(measure.name + suffix, kind) for suffix in SHIFTED]
        fields.append(pa.field(measure.name + SPREAD, pa.float64()))
    names = {name.lower() for name in leading}
    for field in fields:
        if field.name.lower() in names:
            raise BindError(
                f"the result has two columns '{field.name}'",
                where="drift",
                detail="with drift, a measure v also gives v_low, v_middle, v_high and v_spread",
                hint="rename a measure",
            )
        names.add(field.name.lower())
    return fields


def check_drift(
    query: Query, predicates: tuple[Predicate, ...], measures: tuple[BoundMeasure, ...]
) -> None:
    """Refuse queries of which nobody knows what a drift would mean."""
    if query.rows is not RowsPerMatch.ONE:
        raise BindError(
            "windows with a drift give one row each",
            where="drift",
            hint="use one row per match, or leave out drift",
        )
    if not query.outputs:
        raise BindError(
            "windows with a drift need measures to take the average of",
            where="drift",
            hint=Hint('add .measures(total="SUM(A.price)")', "add MEASURES SUM(A.price) AS total"),
        )
    for measure in measures:
        kind = measure.expression.type
        if not types.is_numeric(kind):
            raise BindError(
                f"measure '{measure.name}' is a {type_name(kind)}, which has no average",
                where="drift",
                hint=Hint(
                    "with drift all measures are numbers; numbered=True shows which window it is",
                    "with DRIFT all measures are numbers; NUMBERED shows which window it is",
                ),
            )
    if not _matches_once(query, predicates):
        raise BindError(
            "a window may have several matches, and with a drift it has one",
            where="drift",
            hint=Hint(
                "add .limit(1) for the first match of each window, or begin the pattern with ^",
                "add LIMIT 1 for the first match of each window, or begin the pattern with ^",
            ),
        )


def _matches_once(query: Query, predicates: tuple[Predicate, ...]) -> bool:
    """Say whether a window has at most one match, as far as the clauses tell."""
    assert query.tree is not None
    if any(limit.per is Per.PARTITION and limit.count == 1 for limit in query.limits):
        return True
    if query.effective_selection is not Selection.PREFERRED:
        return False
    return _is_anchored(query.tree) or _takes_all(query, query.tree, predicates)


def _is_anchored(tree: ast.Pattern) -> bool:
    """Say whether every match begins with the first event."""
    match tree:
        case ast.AtStart():
            return True
        case ast.Concat(items=items):
            return _is_anchored(items[0])
        case ast.Alternate(options=options):
            return all(map(_is_anchored, options))
        case _:
            return False


def _takes_all(query: Query, tree: ast.Pattern, predicates: tuple[Predicate, ...]) -> bool:
    """Say whether the match of the first event goes on to the last one, and no other follows."""
    match tree:
        case ast.Repeat(
            item=ast.Var(name=name), least=0 | 1, most=None, mode=mode, link=link, until=None
        ):
            always = {one.name for one in predicates if one.kind is PredicateClass.ALWAYS}
            goes_on = mode is not ast.Mode.RELUCTANT and link is ast.Link.STRICT
            past = query.effective_skip.skip is Skip.PAST_LAST_ROW
            return goes_on and past and name in always and query.bound is None
        case _:
            return False
