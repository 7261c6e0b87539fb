"""Binding events whose order is uncertain: what is supported, and in units of the time column.

Supported are patterns whose ways (`ways.py`) are sequences of different variables, repeated or not,
and negations behind them, of which no match can rule out another: whether events match depends on
their order and times, and on what their own values and those of single steps before them are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from outpace.errors import BindError, Hint, UnsupportedError
from outpace.pattern import ast, types
from outpace.pattern.bind.scope import resolve_column
from outpace.pattern.bind.ways import unsupported, ways_of
from outpace.pattern.bound import (
    Apply,
    BoundExpression,
    BoundMeasure,
    BoundUncertainty,
    Constant,
    Label,
    Predicate,
    PredicateClass,
    Present,
    Read,
    ReadPlace,
    UncertainStep,
    walk,
)
from outpace.pattern.functions.condition import COMPARISONS
from outpace.pattern.query import Consume, Query, RowsPerMatch, Selection, Skip, WithinKind
from outpace.pattern.size import size_of
from outpace.pattern.windows import TimeWindows

#: The column that says how sure a match is.
CONFIDENCE: Final = "confidence"

#: How far the time of an event may be off by what is known of the clock of its source, in a column
#: that the order of sources adds where it is asked for.
CLOCK_ERROR: Final = pa.field("__outpace_clock_error", pa.int64())

#: So many units of time, four times, and some more, fit into 64 bits.
_SPAN_MAX: Final = 1 << 58

#: What must hold beside comparisons of two values.
HOLDS: Final = "holds"
TOGETHER: Final = "together"

#: The step of an event that is looked at, where a condition compares it with another.
OWN: Final = -1


@dataclass(frozen=True)
class PairComparison:
    """A part of a condition that reads an event before the one looked at.

    Parameters
    ----------
    sign
        What compares both values; HOLDS: the one side, which is a boolean, must hold; TOGETHER: so
        it is, and reads its own event, at the place `last`, and an earlier one, at `first`.
    sides
        Values of one event each, but for TOGETHER.
    steps
        For each side the step whose event it reads, or OWN; for TOGETHER that of the earlier one.
    """

    sign: str
    sides: tuple[BoundExpression, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class StepCondition:
    """A condition, taken apart: what its own event decides, and what others decide with it."""

    own: Predicate
    others: tuple[PairComparison, ...] = ()


def bind_uncertainty(
    query: Query,
    schema: pa.Schema,
    predicates: tuple[Predicate, ...],
    measures: tuple[BoundMeasure, ...],
    bound: int,
    within: int | None,
    window: int | None,
) -> BoundUncertainty:
    """Return how uncertain the order is, or say what is not supported with it.

    Parameters
    ----------
    query, schema, predicates, measures
        The query, its input, and what was bound of it.
    bound, within, window
        How far two events may be apart in either order, what WITHIN allows, and how long windows
        by time are.
    """
    assert query.uncertainty is not None
    if CONFIDENCE in map(str.lower, (*query.partitions, *(one.name for one in measures))):
        raise BindError(
            f"the result has a column '{CONFIDENCE}' already",
            where="uncertain",
            hint="rename that column, or measure",
        )
    if query.join is not None:
        # Only how far apart two rows are decides, and not the order of others.
        assert within is not None, "a join is within a bound"
        return BoundUncertainty(bound, within, None, ())
    ways = ways_of(query.tree or ast.Empty(), [predicate.name for predicate in predicates])
    _check_rules(query, ways)
    for way in ways:
        conditions_of(predicates, way)
    for measure in measures:
        for node in walk(measure.expression):
            if isinstance(node, Read | Label | Present) and node.place.shift:
                raise unsupported(
                    f"measure {measure.name} reads the event before or after another",
                    "leave out PREV and NEXT: nobody knows which event that is",
                )
    if window is not None:
        # All events of a window are so close, and what must not be at the end ends with it.
        within = window if within is None else min(window, within)
    if within is None:
        raise BindError(
            "uncertain needs within",
            where="uncertain",
            hint=Hint(
                'say how long a match may take at most: .within("10 s")',
                "say how long a match may take at most: WITHIN '10 s'",
            ),
        )
    if bound >= within:
        raise BindError(
            f"uncertain must be shorter than {'within' if window != within else 'the windows'}",
            where="uncertain",
            detail="else no match would be sure",
        )
    if within > _SPAN_MAX:
        raise BindError(f"with uncertain, within is at most {_SPAN_MAX} units", where="within")
    source = query.uncertainty.source
    if source is not None:
        source = resolve_column(source, schema, "uncertain")
    return BoundUncertainty(bound, within, source, ways)


def conditions_of(
    predicates: Sequence[Predicate], way: tuple[UncertainStep, ...]
) -> dict[int, StepCondition]:
    """Return the conditions of all variables of a way, or say what is not supported."""
    gaps = [gap for step in way for gap in (step.between, step.behind)]
    used = {step.variable for step in way}.union(*(gap.variables for gap in gaps))
    return {number: _condition(predicates[number], number, way) for number in sorted(used)}


def _condition(
    predicate: Predicate, variable: int, way: tuple[UncertainStep, ...]
) -> StepCondition:
    if predicate.kind in (PredicateClass.LOCAL, PredicateClass.ALWAYS):
        return StepCondition(predicate)
    known = _known_steps(variable, way)
    assert predicate.expression is not None
    whole = _on_way(predicate.expression, frozenset(step.variable for step in way) | {variable})
    conjunction = isinstance(whole, Apply) and whole.function == "and"
    own: list[BoundExpression] = []
    others: list[PairComparison] = []
    for part in whole.arguments if conjunction and isinstance(whole, Apply) else (whole,):
        read = _steps_read(part, predicate.name, variable, known)
        if read <= {OWN}:
            own.append(_at_row(part))
        elif len(read) == 1:
            others.append(PairComparison(HOLDS, (_at_row(part),), tuple(read)))
        else:
            others.append(_comparison(part, read, predicate.name, variable, known))
    if not own:
        return StepCondition(Predicate(predicate.name, None, PredicateClass.ALWAYS), tuple(others))
    local = own[0] if len(own) == 1 else Apply(pa.bool_(), "and", tuple(own))
    return StepCondition(Predicate(predicate.name, local, PredicateClass.LOCAL), tuple(others))


def _on_way(expression: BoundExpression, variables: frozenset[int]) -> BoundExpression:
    """Return an expression as it is where no other variables have events."""
    match expression:
        case Read(place=place) | Present(place=place) if place.variables is not None:
            there = place.variables & variables
            if there:
                return replace(expression, place=replace(place, variables=there))
            return Constant(expression.type, None if isinstance(expression, Read) else False)
        case Apply(arguments=arguments):
            parts = tuple(_on_way(argument, variables) for argument in arguments)
            return replace(expression, arguments=parts)
    return expression


def _known_steps(variable: int, way: tuple[UncertainStep, ...]) -> dict[int, int]:
    """Return the variables of one event that a condition can read, with their steps."""
    before = min(
        place + (step.variable != variable)
        for place, step in enumerate(way)
        if variable in (step.variable, *step.between.variables, *step.behind.variables)
    )
    return {step.variable: place for place, step in enumerate(way[:before]) if step.most == 1}


def _steps_read(
    expression: BoundExpression, name: str, variable: int, known: dict[int, int]
) -> set[int]:
    """Return the steps whose events an expression reads."""
    read = set()
    for node in walk(expression):
        if isinstance(node, Constant | Apply):
            continue
        place = node.place if isinstance(node, Read | Present) else None
        if place is None or place.steps or place.shift:
            raise _reads_others(name)
        own = place.origin == "last" and (place.variables is None or variable in place.variables)
        if own:
            read.add(OWN)
            continue
        step = (
            known.get(*place.variables) if place.variables and len(place.variables) == 1 else None
        )
        if step is None:
            raise _reads_others(name)
        read.add(step)
    return read


def _comparison(
    part: BoundExpression, read: set[int], name: str, variable: int, known: dict[int, int]
) -> PairComparison:
    if isinstance(part, Apply) and part.function in COMPARISONS:
        each = [_steps_read(side, name, variable, known) or {OWN} for side in part.arguments]
        nested = (
            types.is_list(side.type) or pa.types.is_struct(side.type) for side in part.arguments
        )
        if all(len(steps) == 1 for steps in each) and not any(nested):
            sides = tuple(_at_row(side) for side in part.arguments)
            return PairComparison(part.function, sides, tuple(min(steps) for steps in each))
    earlier = read - {OWN}
    if len(earlier) == 1:
        return PairComparison(TOGETHER, (_at_row(part, variable),), tuple(earlier))
    raise unsupported(
        f"the condition of {name} mixes values of two earlier events",
        "compare values of one event with values of another: B.price > A.price + 5",
    )


def _at_row(expression: BoundExpression, variable: int | None = None) -> BoundExpression:
    """Return an expression of one event with its reads in the form of a LOCAL predicate.

    Of two events, that of a variable is at the place `last`, and the other one at `first`.
    """
    match expression:
        case Read(place=place) | Present(place=place):
            others = variable is not None and place.variables is not None
            earlier = others and variable not in (place.variables or ())
            return replace(expression, place=ReadPlace("first" if earlier else "last"))
        case Apply(arguments=arguments):
            there = tuple(_at_row(argument, variable) for argument in arguments)
            return replace(expression, arguments=there)
    return expression


def _reads_others(name: str) -> UnsupportedError:
    return unsupported(
        f"the condition of {name} reads other events than single steps before it",
        "conditions look at their own event, and at those of steps that take one event before it",
    )


def _check_rules(query: Query, ways: Sequence[tuple[UncertainStep, ...]]) -> None:
    # To take no event is one more way, which gives nothing where all matches are selected.
    single = len(ways) == 1 and _one_way(*ways) and not size_of(query.tree or ast.Empty()).empty
    if query.effective_selection is not Selection.ALL and not single:
        raise unsupported("one match of each start is preferred", 'write .select("all")')
    if query.windows is not None:
        _check_windows(query)
    if query.rows is not RowsPerMatch.ONE:
        raise unsupported("all rows of a match are asked for", "use one row per match")
    if query.effective_skip.skip is not Skip.NONE:
        raise unsupported(
            "a match rules out later ones",
            "add .no_skip(): every match that skipping would leave in any order is among those",
        )
    if query.limits or query.consumption is not Consume.NONE:
        raise unsupported("a match rules out others", "leave out limit and consume")
    if query.bound is not None and query.bound.kind is not WithinKind.FIRST_TO_LAST:
        raise unsupported("within measures from event to event", "measure from first to last")


def _check_windows(query: Query) -> None:
    if not isinstance(query.windows, TimeWindows):
        raise unsupported(
            "the query is matched in windows that other events begin and end",
            "use windows.time, which true times decide about, or .within(...) alone",
        )
    if query.drift is not None:
        raise unsupported("windows have a drift", "leave out drift: true times decide")
    if not query.duplicates:
        raise unsupported(
            "a match of several windows is returned once",
            "add duplicates=True: each window that may have a match says how sure it is",
        )


def _one_way(steps: tuple[UncertainStep, ...]) -> bool:
    """Say whether a start has one match at most in a given order of the events."""
    repeated = all(
        step.least == step.most
        and (step.most == 1 or step.between.every or step.variable in step.between.variables)
        for step in steps
    )
    return repeated and all(
        step.behind.every or after.variable in step.behind.variables
        for step, after in pairwise(steps)
    )
