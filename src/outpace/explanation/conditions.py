"""The conditions in EXPLAIN: what each needs to know, and so where it runs."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from outpace.explanation.text_table import text_table
from outpace.pattern import ast
from outpace.pattern.bound import BoundQuery, PredicateClass
from outpace.pattern.expression import (
    Call,
    Classifier,
    Expression,
    MatchNumber,
    Name,
    Navigate,
    walk,
)
from outpace.pattern.functions.aggregate import find_aggregate
from outpace.pattern.notation.print_expression import print_expression
from outpace.pattern.query import Query


@dataclass(frozen=True, slots=True)
class Condition:
    """The DEFINE of one variable: its class and its text."""

    name: str
    kind: PredicateClass
    text: str


def conditions_of(query: Query, bound: BoundQuery | None) -> list[Condition]:
    """Return the conditions of a query, classed by binding or, without it, by their text.

    Examples
    --------
    >>> query = Query().pattern("A B C").define(B="x > PREV(x)", C="x > A.x")
    >>> [condition.kind.value for condition in conditions_of(query, None)]
    ['always', 'offset', 'path']
    """
    assert query.tree is not None
    definitions = dict(query.definitions)
    found = []
    for number, name in enumerate(ast.predicates(query.tree)):
        definition = definitions.get(name)
        text = "every row fits" if definition is None else print_expression(definition)
        if bound is not None:
            kind = bound.predicates[number].kind
        else:
            kind = PredicateClass.ALWAYS if definition is None else _class(name, definition, query)
        found.append(Condition(name, kind, text))
    return found


def conditions_section(
    conditions: Sequence[Condition],
    matcher: str | None,
    joined: Container[int] = (),
    asked: Container[int] = (),
) -> list[str]:
    """Return a table of conditions.

    Parameters
    ----------
    conditions
        Those of all variables.
    matcher
        The name of the matcher that will run, if known.
    joined
        The variables whose rows it finds by a value that they share with an earlier one.
    asked
        The variables for which Python is asked about what is not compiled.
    """
    rows = [
        [
            condition.name,
            condition.kind.value,
            _where(condition.kind, matcher)
            + (" in part, Python is asked" if number in asked else "")
            + (", found by value" if number in joined else ""),
            condition.text,
        ]
        for number, condition in enumerate(conditions)
    ]
    return text_table(["variable", "class", "runs", "condition"], rows, indent="")


def _where(kind: PredicateClass, matcher: str | None) -> str:
    match kind:
        case PredicateClass.ALWAYS:
            return "nowhere"
        case PredicateClass.LOCAL | PredicateClass.OFFSET:
            return "before matching, as bits of whole columns"
        case PredicateClass.PATH if matcher is None:
            return "inside the matcher"
        case PredicateClass.PATH:
            how = "interpreted" if matcher == "twin" else "compiled"
            return f"inside the matcher, {how}"


def _class(name: str, definition: Expression, query: Query) -> PredicateClass:
    """Class a condition by what its text reads: the match, rows near its own, or its own."""
    assert query.tree is not None
    unions: dict[str, tuple[str, ...]] = {v: (v,) for v in ast.predicates(query.tree)}
    unions.update(dict(query.subsets))
    found = PredicateClass.LOCAL
    for node in walk(definition):
        match node:
            case Name(parts=(first, _, *_)) if first in unions and name not in unions[first]:
                return PredicateClass.PATH
            case Classifier() | MatchNumber() | Navigate(kind="first"):
                return PredicateClass.PATH
            case Navigate(kind="last", offset=offset) if offset:
                return PredicateClass.PATH
            case Call(name=function) if find_aggregate(function) is not None:
                return PredicateClass.PATH
            case Navigate(kind="prev" | "next"):
                found = PredicateClass.OFFSET
            case _:
                pass
    return found
