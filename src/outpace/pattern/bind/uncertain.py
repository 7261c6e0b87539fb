"""Binding events whose order is uncertain: what is supported, and in units of the time column.

Supported are sequences of different variables with `->` and `->>`, and negations between them, of
which no match can rule out another: whether events match depends on their order and times alone.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from outpace.errors import BindError, UnsupportedError
from outpace.pattern import ast
from outpace.pattern.bind.expression import resolve_column
from outpace.pattern.bound import (
    BoundMeasure,
    BoundUncertainty,
    Label,
    Predicate,
    PredicateClass,
    Present,
    Read,
    walk,
)
from outpace.pattern.query import Consume, Query, RowsPerMatch, Selection, Skip, WithinKind

#: The column that says how sure a match is.
CONFIDENCE: Final = "confidence"

#: So many units of time, four times, and some more, fit into 64 bits.
_SPAN_MAX: Final = 1 << 58

#: Gaps between steps are bits.
_STEPS_MAX: Final = 60


def bind_uncertainty(
    query: Query,
    schema: pa.Schema,
    predicates: tuple[Predicate, ...],
    measures: tuple[BoundMeasure, ...],
    bound: int,
    within: int | None,
) -> BoundUncertainty:
    """Return how uncertain the order is, or say what is not supported with it.

    Parameters
    ----------
    query, schema, predicates, measures
        The query, its input, and what was bound of it.
    bound, within
        How far two events may be apart in either order, and what WITHIN allows.
    """
    assert query.uncertainty is not None
    _check_pattern(query)
    _check_rules(query)
    for predicate in predicates:
        if predicate.kind not in (PredicateClass.LOCAL, PredicateClass.ALWAYS):
            raise _unsupported(
                f"the condition of {predicate.name} reads other events",
                "with uncertain, conditions look at their own event alone",
            )
    for measure in measures:
        for node in walk(measure.expression):
            if isinstance(node, Read | Label | Present) and node.place.shift:
                raise _unsupported(
                    f"measure {measure.name} reads the event before or after another",
                    "leave out PREV and NEXT: nobody knows which event that is",
                )
    if CONFIDENCE in map(str.lower, (*query.partitions, *(one.name for one in measures))):
        raise BindError(
            f"the result has a column '{CONFIDENCE}' already",
            where="uncertain",
            hint="rename that column, or measure",
        )
    if within is None:
        raise BindError(
            "uncertain needs within",
            where="uncertain",
            hint='say how long a match may take at most: .within("10 s")',
        )
    if bound >= within:
        raise BindError(
            "uncertain must be shorter than within",
            where="uncertain",
            detail="else no match would be sure",
        )
    if within > _SPAN_MAX:
        raise BindError(f"with uncertain, within is at most {_SPAN_MAX} units", where="within")
    source = query.uncertainty.source
    if source is not None:
        source = resolve_column(source, schema, "uncertain")
    return BoundUncertainty(bound, within, source)


def _check_pattern(query: Query) -> None:
    tree = query.tree
    items, links = (tree.items, tree.links) if isinstance(tree, ast.Concat) else ((tree,), ())
    names = [item.name for item in items if isinstance(item, ast.Var)]
    steps = all(isinstance(item, ast.Var | ast.Not) for item in items)
    if not steps or ast.Link.STRICT in links or isinstance(items[-1], ast.Not):
        raise _unsupported(
            "the pattern is more than a sequence of single events",
            "write steps with -> or ->>, and !C between them, such as A -> !C -> B",
        )
    if len(set(names)) < len(names):
        raise _unsupported(
            "a variable stands twice in the pattern", "give each step a variable of its own"
        )
    if len(names) > _STEPS_MAX:
        raise _unsupported(f"the pattern has more than {_STEPS_MAX} steps", "take a shorter one")
    if ast.Link.ANY in links and query.effective_selection is not Selection.ALL:
        raise _unsupported("one match of each start is preferred", 'write .select("all")')


def _check_rules(query: Query) -> None:
    if query.windows is not None:
        raise _unsupported(
            "the query is matched in windows",
            "use .within(...) alone; op.open runs it where op.run would give windows to instances",
        )
    if query.rows is not RowsPerMatch.ONE:
        raise _unsupported("all rows of a match are asked for", "use one row per match")
    if query.effective_skip.skip is not Skip.NONE:
        raise _unsupported("a match rules out later ones", "add .no_skip()")
    if query.limits or query.consumption is not Consume.NONE:
        raise _unsupported("a match rules out others", "leave out limit and consume")
    if query.bound is not None and query.bound.kind is not WithinKind.FIRST_TO_LAST:
        raise _unsupported("within measures from event to event", "measure from first to last")


def _unsupported(message: str, hint: str) -> UnsupportedError:
    return UnsupportedError(
        f"{message}, which is not supported with uncertain", where="uncertain", hint=hint
    )
