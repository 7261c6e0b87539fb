"""Binding one expression: names, types, and the row that every leaf reads.

Navigation is pushed down to the leaves, so `PREV(LAST(A.x + A.y), 2)` becomes a sum of two reads.
Where the row does not exist the navigation as a whole is NULL, which a guard sees to where the
reads alone do not: `PREV(coalesce(x, 0))` is NULL on the first row. Everything that is refused here
is refused with its place in the user's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal as OneOf

import pyarrow as pa

from outpace.errors import BindError, Span, did_you_mean
from outpace.pattern import expression as ex
from outpace.pattern import types, values
from outpace.pattern.bind.fold import fold
from outpace.pattern.bind.scope import Scope, bind_error, resolve_column
from outpace.pattern.bound import (
    Aggregate,
    Apply,
    BoundExpression,
    BoundSortKey,
    Constant,
    Label,
    MatchIdentity,
    MatchOrdinal,
    Origin,
    Read,
    ReadPlace,
    guard,
    walk,
)
from outpace.pattern.expression import Scalar
from outpace.pattern.functions import find_function, function_names, is_null_without
from outpace.pattern.functions.aggregate import aggregate_names, find_aggregate
from outpace.pattern.functions.function import Aggregator, Function, MismatchError, Signature
from outpace.pattern.types import type_name

#: What counts rows of the partition, not of the match.
_PHYSICAL = ("prev", "next")
#: Aggregates that keep NULLs, and which argument they leave rows out by.
_DECISIVE = {"min_by": 1, "max_by": 1}
#: Aggregates that are the same in whatever order rows come.
_ANY_ORDER = frozenset({"count", "count_if", "min", "max", "bool_and", "bool_or"})
#: Units of time that are coarser than the microseconds of expressions.
_COARSE = {"s": "second", "ms": "millisecond"}


#: The largest offset of a navigation: row numbers have 64 bits, and nothing is this far away.
_MOST_ROWS = 1 << 31


@dataclass(frozen=True)
class _LeafPlace:
    """Where the leaves of the expression at hand read: inside which navigation or aggregate.

    `owner` is its name and `target` the one variable that all its leaves name.
    """

    origin: OneOf["first", "last", "row"] = "last"
    steps: int = 0
    shift: int = 0
    final: bool = False
    owner: str | None = None
    aggregate: bool = False
    targets: dict[str | None, ex.Expression] = field(default_factory=dict)


def bind_expression(node: ex.Expression, scope: Scope) -> BoundExpression:
    """Bind an expression in a scope, with constants folded.

    Examples
    --------
    >>> scope = Scope(pa.schema([("x", pa.int64())]), {"A": frozenset({0})}, ("A",), frozenset(),
    ...               where="measure m")
    >>> bind_expression(ex.Binary(">", ex.Name(("A", "x")), ex.Literal(1)), scope).type
    DataType(bool)
    """
    binder = _Binder(scope, None if node.span is None else node.span.text)
    try:
        return binder.bind(node, _LeafPlace(final=scope.final))
    except RecursionError:
        problem = BindError("the expression is nested too deeply", where=scope.where)
        raise problem from None


#: Functions that other systems have, and what does their work here.
_ELSEWHERE = {
    "lag": "PREV(x, n) is the value n rows before; LAG is read with dialect='snowflake'",
    "lead": "NEXT(x, n) is the value n rows after; LEAD is read with dialect='snowflake'",
    "match_sequence_number": "RUNNING COUNT(*) is the number of a row in its match",
}


class _Binder:
    """Binds the expressions of one clause; a method for each kind of node."""

    def __init__(self, scope: Scope, text: str | None) -> None:
        self.scope = scope
        self.text = text

    def bind(self, node: ex.Expression, frame: _LeafPlace) -> BoundExpression:
        match node:
            case ex.Literal(value=value):
                return self._literal(node, value)
            case ex.Name():
                return self._name(node, frame)
            case ex.Navigate() | ex.Semantics():
                return self._navigation(node, frame)
            case ex.Classifier():
                return self._classifier(node, frame)
            case ex.MatchNumber():
                return MatchOrdinal(pa.int64())
            case ex.MatchId():
                return self._identity(node, frame)
            case ex.Call():
                return self._call(node, frame)
            case ex.Binary(operator="and" | "or"):
                return self._logic(node, frame)
            case ex.Binary(operator=operator, left=left, right=right):
                return self._apply(operator, node, (left, right), frame)
            case ex.Unary(operator=operator, operand=operand):
                name = "not" if operator == "not" else "negate"
                return self._apply(name, node, (operand,), frame)
            case ex.Star():
                raise self._refusal("'*' stands for rows only in count(*)", node)
            case ex.Subquery():
                raise self._refusal(
                    "a subquery cannot be evaluated here",
                    node,
                    hint="subqueries are run by op.sql",
                    unsupported=True,
                )
            case _:
                return self._syntax(node, frame)

    def _syntax(self, node: ex.Expression, frame: _LeafPlace) -> BoundExpression:
        match node:
            case ex.IsNull(operand=operand, negated=negated):
                return self._negated(self._apply("is null", node, (operand,), frame), negated)
            case ex.InList(operand=operand, items=items, negated=negated):
                found = self._apply("in", node, (operand, *items), frame)
                return self._negated(found, negated)
            case ex.Like(operand=operand, pattern=pattern, escape=escape, negated=negated):
                given = (operand, pattern) if escape is None else (operand, pattern, escape)
                return self._negated(self._apply("like", node, given, frame), negated)
            case ex.Between():
                return self._negated(self._between(node, frame), node.negated)
            case ex.Case():
                return self._case(node, frame)
            case ex.Cast(operand=operand, type=target, safe=safe):
                cast = self._cast(
                    node, self.bind(operand, frame), types.computed_type(target), safe
                )
                return self._rounded(cast, target, self._origin(node))
            case ex.Array(items=items):
                return self._apply("array", node, items, frame)
            case ex.Subscript(item=item, index=index):
                return self._apply("element_at", node, (item, index), frame)
            case ex.Field(item=item, name=name):
                return self._field(node, self.bind(item, frame), name)
            case _:
                kind = type(node).__name__.lower()
                raise self._refusal(f"a {kind} is not supported", node, unsupported=True)

    def _refusal(
        self,
        message: str,
        node: ex.Expression | None,
        *,
        hint: str | None = None,
        unsupported: bool = False,
    ) -> BindError:
        return bind_error(
            message, self.scope.where, node, self.text, hint=hint, unsupported=unsupported
        )

    def _literal(self, node: ex.Expression, value: Scalar) -> BoundExpression:
        if isinstance(value, str) and any("\ud800" <= sign <= "\udfff" for sign in value):
            raise self._refusal("half of a surrogate pair is no character", node)
        return Constant(types.literal_type(value), value)

    def _origin(self, node: ex.Expression) -> Origin:
        span = node.span
        known = None if span is None else Span(span.start, span.end, self.text)
        return Origin(self.scope.where, known)

    # Leaves

    def _name(self, node: ex.Name, frame: _LeafPlace) -> BoundExpression:
        variable: str | None = None
        path = node.parts
        if len(path) > 1 and path[0] in self.scope.variables:
            variable, path = path[0], path[1:]
        elif len(path) > 1 and not self._is_column(path[0]):
            known = [*self.scope.variables, *self.scope.schema.names]
            hint = did_you_mean(path[0], known)
            hint = hint or "the variables are " + ", ".join(self.scope.variables)
            raise self._refusal(f"unknown variable '{path[0]}'", node, hint=hint)
        elif len(path) == 1 and path[0] in self.scope.variables and not self._is_column(path[0]):
            raise self._refusal(
                f"'{path[0]}' is a variable, not a column",
                node,
                hint=f"write {path[0]}.column, or CLASSIFIER() for the variable of a row",
            )
        column = resolve_column(path[0], self.scope.schema, self.scope.where, node, self.text)
        kind = types.computed_type(self.scope.schema.field(column).type)
        inside: list[str] = []
        for part in path[1:]:
            found, kind = self._step_into(kind, part, node)
            inside.append(found)
        if not types.is_supported(kind):
            raise self._refusal(
                f"column '{column}' has a type that expressions do not know: {kind}",
                node,
                unsupported=True,
            )
        return Read(kind, column, tuple(inside), self._place(node, variable, frame))

    def _is_column(self, name: str) -> bool:
        return any(known.lower() == name.lower() for known in self.scope.schema.names)

    def _step_into(
        self, kind: pa.DataType, part: str, node: ex.Expression
    ) -> tuple[str, pa.DataType]:
        if not pa.types.is_struct(kind):
            raise self._refusal(f"{type_name(kind)} has no field '{part}'", node)
        names = [inner.name for inner in kind]
        exact = [name for name in names if name == part]
        loose = exact or [name for name in names if name.lower() == part.lower()]
        if len(loose) != 1:
            hint = did_you_mean(part, names) or "the fields are " + ", ".join(names)
            raise self._refusal(f"unknown field '{part}'", node, hint=hint)
        return loose[0], kind.field(loose[0]).type

    def _classifier(self, node: ex.Classifier, frame: _LeafPlace) -> BoundExpression:
        if node.variable is not None and node.variable not in self.scope.variables:
            raise self._unknown_variable(node.variable, node)
        place = self._place(node, node.variable, frame)
        if place == ReadPlace("last") and self.scope.defines is not None:
            return Constant(pa.string(), self.scope.labels[self.scope.defines])
        return Label(pa.string(), place)

    def _identity(self, node: ex.MatchId, frame: _LeafPlace) -> BoundExpression:
        if self.scope.defines is not None or frame.aggregate:
            raise self._refusal(
                "MATCH_ID() is known when the match is whole", node, hint="show it as a measure"
            )
        return MatchIdentity(pa.string())

    def _unknown_variable(self, name: str, node: ex.Expression) -> BindError:
        hint = did_you_mean(name, self.scope.variables)
        hint = hint or "the variables are " + ", ".join(self.scope.variables)
        return self._refusal(f"unknown variable '{name}'", node, hint=hint)

    def _place(self, node: ex.Expression, variable: str | None, frame: _LeafPlace) -> ReadPlace:
        self._same_target(node, variable, frame)
        numbers = None if variable is None else self._numbers(variable, node)
        if frame.aggregate:
            return ReadPlace("row")
        current = (
            frame.origin == "last"
            and frame.steps == 0
            and not frame.final
            and self.scope.defines is not None
            and (numbers is None or self.scope.defines in numbers)
        )
        # The row in question has the label being defined, so V.x in DEFINE V is its own row.
        return ReadPlace(
            frame.origin, None if current else numbers, frame.steps, frame.shift, frame.final
        )

    def _numbers(self, variable: str, node: ex.Expression) -> frozenset[int]:
        numbers = self.scope.variables[variable]
        own = self.scope.defines is not None and self.scope.defines in numbers
        if variable in self.scope.unlabelled and not own:
            raise self._refusal(
                f"no row of a match is labelled '{variable}'",
                node,
                hint="a variable that is only negated, or only ends a repetition, has no rows",
            )
        return numbers

    def _same_target(self, node: ex.Expression, variable: str | None, frame: _LeafPlace) -> None:
        frame.targets.setdefault(variable, node)
        if frame.owner is None or len(frame.targets) == 1:
            return
        shown = " and ".join(
            "all rows" if target is None else f"'{target}'" for target in frame.targets
        )
        hint = f"this one mixes {shown}"
        if frame.aggregate:
            hint += ": take an aggregate of each, or one of a SUBSET of them"
        raise self._refusal(
            f"all columns inside {frame.owner.upper()} must be of the same variable",
            node,
            hint=hint,
        )

    # Navigation

    def _navigation(self, node: ex.Expression, frame: _LeafPlace) -> BoundExpression:
        inner, final = self._semantics(node)
        if isinstance(inner, ex.Call) and find_aggregate(inner.name) is not None:
            return self._aggregate(inner, frame, final)
        if not isinstance(inner, ex.Navigate) or (inner is not node and inner.kind in _PHYSICAL):
            return self._said_of_all(node, final, frame)
        if frame.aggregate:
            raise self._refusal(
                f"{inner.kind.upper()} cannot stand inside an aggregate", inner, unsupported=True
            )
        if frame.owner is not None:
            raise self._nested(inner, frame)
        if inner.kind in _PHYSICAL:
            return self._physical(inner)
        return self._logical(inner, 0, final)

    def _said_of_all(self, node: ex.Expression, final: bool, frame: _LeafPlace) -> BoundExpression:
        """Bind what RUNNING or FINAL stands before, and says of all rows that are read in it."""
        assert isinstance(node, ex.Semantics)
        if frame.owner is not None:
            outer = frame.owner.upper()
            raise self._refusal(f"{node.kind.upper()} cannot stand inside {outer}", node)
        binder = _Binder(replace(self.scope, final=final), self.text)
        return binder.bind(node.operand, _LeafPlace(final=final))

    def _semantics(self, node: ex.Expression) -> tuple[ex.Expression, bool]:
        """Take RUNNING or FINAL off, and return what it stands before and whether it was FINAL."""
        if not isinstance(node, ex.Semantics):
            return node, self.scope.final
        if node.kind == "final" and self.scope.defines is not None:
            raise self._refusal(
                "FINAL is not possible in DEFINE",
                node,
                hint="while a row is being looked at, the rest of the match is not known",
            )
        return node.operand, node.kind == "final" or self.scope.final

    def _nested(self, node: ex.Navigate, frame: _LeafPlace) -> BindError:
        outer, inner = str(frame.owner).upper(), node.kind.upper()
        if outer in ("PREV", "NEXT") and node.kind in ("first", "last"):
            return self._refusal(
                f"{inner} must stand directly inside {outer}",
                node,
                hint=f"write {outer}({inner}(...), n)",
            )
        return self._refusal(
            f"{inner} cannot stand inside {outer}",
            node,
            hint="only PREV and NEXT can hold a FIRST or LAST",
        )

    def _physical(self, node: ex.Navigate) -> BoundExpression:
        distance = 1 if node.offset is None else node.offset
        self._check_offset(node, distance)
        shift = -distance if node.kind == "prev" else distance
        operand = node.operand
        inner, final = operand, self.scope.final
        if isinstance(operand, ex.Semantics):
            inner, final = self._semantics(operand)
        if isinstance(inner, ex.Navigate) and inner.kind in ("first", "last"):
            return self._logical(inner, shift, final)
        return self._framed(
            node, operand, _LeafPlace("last", 0, shift, self.scope.final, node.kind)
        )

    def _logical(self, node: ex.Navigate, shift: int, final: bool) -> BoundExpression:
        steps = 0 if node.offset is None else node.offset
        self._check_offset(node, steps)
        origin: OneOf["first", "last"] = "first" if node.kind == "first" else "last"
        return self._framed(node, node.operand, _LeafPlace(origin, steps, shift, final, node.kind))

    def _check_offset(self, node: ex.Navigate, offset: int) -> None:
        if offset < 0:
            raise self._refusal(
                f"the offset of {node.kind.upper()} cannot be negative, found {offset}", node
            )
        if offset > _MOST_ROWS:
            raise self._refusal(f"an offset is at most {_MOST_ROWS} rows", node)

    def _framed(
        self, node: ex.Navigate, operand: ex.Expression, frame: _LeafPlace
    ) -> BoundExpression:
        bound = self.bind(operand, frame)
        if not frame.targets:
            raise self._refusal(
                f"{node.kind.upper()} needs a column or CLASSIFIER() to navigate to", node
            )
        if is_null_without(bound):
            return bound
        place = self._place(node, next(iter(frame.targets)), frame)
        return bound if self._always_there(place) else guard(place, bound)

    def _always_there(self, place: ReadPlace) -> bool:
        """Say whether a place has a row for certain: in DEFINE the current row is in the match."""
        own = self.scope.defines
        mine = place.variables is None or own in place.variables
        return own is not None and mine and place.steps == 0 and place.shift == 0

    # Functions

    def _call(self, node: ex.Call, frame: _LeafPlace) -> BoundExpression:
        function = find_function(node.name)
        if function is None:
            if find_aggregate(node.name) is not None:
                return self._aggregate(node, frame, self.scope.final)
            return self._rewritten(node, frame)
        said = {"DISTINCT": node.distinct, "ORDER BY": node.order, "FILTER": node.condition}
        for words in (words for words, given in said.items() if given):
            raise self._refusal(f"{words} has no meaning in {node.name}()", node)
        bound = self._apply(function.name, node, node.arguments, frame)
        if function.name == "try":
            self._check_try(node, bound)
        return bound

    def _check_try(self, node: ex.Call, bound: BoundExpression) -> None:
        if any(isinstance(part, Aggregate) for part in walk(bound)):
            raise self._refusal(
                "an aggregate cannot stand inside TRY",
                node,
                hint="write TRY inside the aggregate",
                unsupported=True,
            )

    def _rewritten(self, node: ex.Call, frame: _LeafPlace) -> BoundExpression:
        """Bind functions that are short for other syntax, or refuse the name."""
        given = node.arguments
        if node.name in ("if", "iff") and len(given) in (2, 3):
            otherwise = given[2] if len(given) == 3 else None
            branch = (given[0], given[1])
            return self.bind(ex.Case(None, (branch,), otherwise, span=node.span), frame)
        if node.name == "nullif" and len(given) == 2:
            same = ex.Binary("=", given[0], given[1], span=node.span)
            branches = ((same, ex.Literal(None)),)
            return self.bind(ex.Case(None, branches, given[0], span=node.span), frame)
        known = [*function_names(), *aggregate_names(), "if", "nullif", "classifier"]
        if node.name in ("if", "iff", "nullif"):
            raise self._arity(node.name, 2, 3 if node.name != "nullif" else 2, node, len(given))
        hint = _ELSEWHERE.get(node.name) or did_you_mean(node.name, known)
        raise self._refusal(f"unknown function '{node.name}'", node, hint=hint)

    def _apply(
        self, name: str, node: ex.Expression, arguments: Sequence[ex.Expression], frame: _LeafPlace
    ) -> BoundExpression:
        function = find_function(name)
        assert function is not None, name
        self._check_arity(function, node, len(arguments))
        bound = [self.bind(argument, frame) for argument in arguments]
        signature = self._resolve(function, node, arguments, bound)
        given = self._coerced(node, bound, signature)
        return fold(Apply(signature.result, name, given, self._origin(node)))

    def _resolve(
        self,
        function: Function | Aggregator,
        node: ex.Expression,
        arguments: Sequence[ex.Expression],
        bound: Sequence[BoundExpression],
    ) -> Signature:
        try:
            return function.resolve(bound)
        except MismatchError as problem:
            at = node if problem.position is None else arguments[problem.position]
            place = at if at.span is not None else node
            title = f"'{function.name}'" if not function.name[0].isalpha() else function.name
            raise self._refusal(
                f"{title.upper() if title.isalpha() else title}: {problem.message}",
                place,
                hint=problem.hint,
            ) from problem

    def _check_arity(
        self, function: Function | Aggregator, node: ex.Expression, count: int
    ) -> None:
        if count < function.least or (function.most is not None and count > function.most):
            raise self._arity(function.name, function.least, function.most, node, count)

    def _arity(
        self, name: str, least: int, most: int | None, node: ex.Expression, count: int
    ) -> BindError:
        if most is None:
            wanted = f"{least} or more arguments"
        elif least == most:
            wanted = f"{least} argument" + ("s" if least != 1 else "")
        else:
            wanted = f"{least} to {most} arguments"
        return self._refusal(f"{name}() takes {wanted}, found {count}", node)

    def _coerced(
        self, node: ex.Expression, bound: Sequence[BoundExpression], signature: Signature
    ) -> tuple[BoundExpression, ...]:
        pairs = zip(bound, signature.arguments, strict=True)
        return tuple(self._coerce(node, argument, kind) for argument, kind in pairs)

    def _coerce(
        self, node: ex.Expression, argument: BoundExpression, target: pa.DataType
    ) -> BoundExpression:
        if argument.type == target or _alike(argument.type, target):
            return argument
        return self._cast(node, argument, target, safe=False)

    def _cast(
        self, node: ex.Expression, operand: BoundExpression, target: pa.DataType, safe: bool
    ) -> BoundExpression:
        if operand.type == target:
            return operand
        if values.converter(operand.type, target) is None:
            raise self._refusal(
                f"cannot cast {type_name(operand.type)} to {type_name(target)}", node
            )
        name = "try_cast" if safe else "cast"
        return fold(Apply(target, name, (operand,), self._origin(node)))

    def _rounded(
        self, cast: BoundExpression, target: pa.DataType, origin: Origin
    ) -> BoundExpression:
        """Cut what a timestamp of few digits, such as TIMESTAMP(3), does not hold."""
        unit = _COARSE.get(target.unit) if pa.types.is_timestamp(target) else None
        if unit is None:
            return cast
        return fold(Apply(cast.type, "date_trunc", (Constant(pa.string(), unit), cast), origin))

    def _field(self, node: ex.Field, item: BoundExpression, name: str) -> BoundExpression:
        found, kind = self._step_into(item.type, name, node)
        if isinstance(item, Read):
            return replace(item, type=kind, path=(*item.path, found))
        return Apply(kind, "field", (item, Constant(pa.string(), found)))

    def _logic(self, node: ex.Binary, frame: _LeafPlace) -> BoundExpression:
        """Bind a chain of one connective as one node, however long it is."""
        operands: list[ex.Expression] = []
        stack: list[ex.Expression] = [node]
        while stack:
            current = stack.pop()
            if isinstance(current, ex.Binary) and current.operator == node.operator:
                stack += (current.right, current.left)
            else:
                operands.append(current)
        return self._apply(node.operator, node, operands, frame)

    def _negated(self, bound: BoundExpression, negated: bool) -> BoundExpression:
        return fold(Apply(pa.bool_(), "not", (bound,))) if negated else bound

    def _between(self, node: ex.Between, frame: _LeafPlace) -> BoundExpression:
        ends = [(node.low, node.high)]
        if node.symmetric:
            ends.append((node.high, node.low))
        ranges = []
        for low, high in ends:
            above = self._apply(">=", node, (node.operand, low), frame)
            below = self._apply("<=", node, (node.operand, high), frame)
            ranges.append(fold(Apply(pa.bool_(), "and", (above, below))))
        return ranges[0] if len(ranges) == 1 else fold(Apply(pa.bool_(), "or", tuple(ranges)))

    def _case(self, node: ex.Case, frame: _LeafPlace) -> BoundExpression:
        arguments: list[ex.Expression] = []
        for condition, outcome in node.branches:
            if node.operand is None:
                arguments += (condition, outcome)
            else:
                same = ex.Binary("=", node.operand, condition, span=condition.span)
                arguments += (same, outcome)
        if node.otherwise is not None:
            arguments.append(node.otherwise)
        return self._apply("case", node, arguments, frame)

    # Aggregates

    def _aggregate(self, node: ex.Call, frame: _LeafPlace, final: bool) -> BoundExpression:
        aggregate = find_aggregate(node.name)
        assert aggregate is not None
        if frame.aggregate or frame.owner is not None:
            outer = str(frame.owner).upper()
            raise self._refusal(f"an aggregate cannot stand inside {outer}", node)
        inner = _LeafPlace("row", final=final, owner=aggregate.name, aggregate=True)
        arguments = node.arguments
        if aggregate.name == "count" and len(arguments) == 1 and isinstance(arguments[0], ex.Star):
            self._star(arguments[0], inner)
            arguments = ()
        self._check_arity(aggregate, node, len(arguments))
        bound = [self.bind(argument, inner) for argument in arguments]
        signature = self._resolve(aggregate, node, arguments, bound)
        given = self._coerced(node, bound, signature)
        given, condition = self._filtered(node, aggregate, given, inner)
        order = self._sorted(node, bound, inner)
        target = next(iter(inner.targets), None)
        return Aggregate(
            signature.result,
            aggregate.name,
            given,
            None if target is None else self.scope.variables[target],
            final,
            node.distinct,
            condition,
            () if aggregate.name in _ANY_ORDER else order,
            self._origin(node),
        )

    def _filtered(
        self,
        node: ex.Call,
        aggregate: Aggregator,
        given: tuple[BoundExpression, ...],
        frame: _LeafPlace,
    ) -> tuple[tuple[BoundExpression, ...], BoundExpression | None]:
        """Bind FILTER; where an aggregate leaves NULLs out, other rows have a NULL."""
        if node.condition is None:
            return given, None
        condition = self.bind(node.condition, frame)
        if not (pa.types.is_boolean(condition.type) or pa.types.is_null(condition.type)):
            what = type_name(condition.type)
            raise self._refusal(f"FILTER takes a condition, not {what}", node.condition)
        decisive = 0 if aggregate.skip_null else _DECISIVE.get(aggregate.name)
        if decisive is None:
            return given, condition
        known = list(given) or [Constant(pa.bool_(), True)]
        value = known[decisive]
        branches = (condition, value, Constant(value.type, None))
        known[decisive] = fold(Apply(value.type, "case", branches, self._origin(node)))
        return tuple(known), None

    def _sorted(
        self, node: ex.Call, given: Sequence[BoundExpression], frame: _LeafPlace
    ) -> tuple[BoundSortKey, ...]:
        """Bind ORDER BY."""
        keys = []
        for key in node.order:
            operand = self.bind(key.operand, frame)
            if not types.is_ordered(operand.type):
                raise self._refusal(f"{type_name(operand.type)} has no order", key)
            if node.distinct and operand not in given:
                raise self._refusal(
                    "with DISTINCT, ORDER BY names what the aggregate takes",
                    key,
                    hint="of equal values only one is left, which has one place",
                )
            keys.append(BoundSortKey(operand.type, operand, key.descending, key.nulls_first))
        return tuple(keys)

    def _star(self, node: ex.Star, frame: _LeafPlace) -> None:
        if node.variable is not None and node.variable not in self.scope.variables:
            raise self._unknown_variable(node.variable, node)
        self._place(node, node.variable, frame)


def _alike(source: pa.DataType, target: pa.DataType) -> bool:
    """Say whether values of two types are the same in all evaluators."""
    return (types.is_string(source) and types.is_string(target)) or (
        types.is_binary(source) and types.is_binary(target)
    )
