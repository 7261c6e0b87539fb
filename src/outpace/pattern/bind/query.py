"""Binding: a query and a schema become a `BoundQuery`, or an error that says what does not fit.

After binding nothing about names, types or forbidden combinations can fail; what is left to fail at
run time depends on the data (overflow, a cast, a missing skip target).
"""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import replace

import pyarrow as pa

from outpace.errors import BindError, Hint
from outpace.pattern import ast, types
from outpace.pattern.argument import check_characters
from outpace.pattern.bind.check import check_clauses, check_emission, check_instances
from outpace.pattern.bind.doubtful import self_comparisons, useless_order
from outpace.pattern.bind.drift import check_drift, drift_fields
from outpace.pattern.bind.expression import bind_expression
from outpace.pattern.bind.scope import Scope, resolve_column
from outpace.pattern.bind.uncertainty import CONFIDENCE, bind_uncertainty
from outpace.pattern.bind.units import in_units
from outpace.pattern.bound import (
    CONFIRMED,
    DIFF,
    MATCH,
    NUMBERING,
    Aggregate,
    BoundExpression,
    BoundMeasure,
    BoundQuery,
    BoundUncertainty,
    Constant,
    Label,
    MatchIdentity,
    MatchOrdinal,
    Predicate,
    PredicateClass,
    Present,
    Read,
    ReadPlace,
    left_out,
    walk,
)
from outpace.pattern.operator import check_operator
from outpace.pattern.query import OrderItem, Query, RowsPerMatch, Selection
from outpace.pattern.types import type_name
from outpace.pattern.values import TIME_LIMIT
from outpace.pattern.windows import TimeWindows


def bind(query: Query, schema: pa.Schema) -> BoundQuery:
    """Bind a query to the schema of its input.

    Parameters
    ----------
    query
        What to detect.
    schema
        The columns of the input.

    Raises
    ------
    BindError
        Where the query does not fit the schema or itself.

    Examples
    --------
    >>> from outpace.pattern.expression import Binary, Literal, Name
    >>> query = (Query().order_by("ts").pattern(ast.Var("A"))
    ...          .define(A=Binary(">", Name(("x",)), Literal(3))).measures(x=Name(("A", "x"))))
    >>> bound = bind(query, pa.schema([("ts", pa.int64()), ("x", pa.int8())]))
    >>> bound.predicates[0].kind.value, bound.output.names
    ('local', ['x'])
    """
    tree = check_clauses(query)
    names = ast.predicates(tree)
    subsets = {
        name: frozenset(names.index(member) for member in members)
        for name, members in query.subsets
    }
    for limit in query.limits:
        if limit.count > TIME_LIMIT:
            raise BindError(f"a limit is at most {TIME_LIMIT}", where="limit")
    partition_by = _columns(query.partitions, schema, "partition by")
    query, order_by = _ordered(query, schema)
    predicates = _predicates(query, schema, names, subsets)
    measures = _measures(query, schema, names, subsets) or _default_measures(
        query, schema, order_by
    )
    if query.identifies:
        measures = _with_identity(measures)
    within = _within(query, schema, order_by)
    uncertainty = None
    if query.uncertainty is not None:
        span = _span(query, query.uncertainty.bound, schema, order_by, "uncertain")
        window = None
        if isinstance(query.windows, TimeWindows):
            window = _span(query, query.windows.size, schema, order_by, "time windows")
        uncertainty = bind_uncertainty(query, schema, predicates, measures, span, within, window)
    if query.drift is not None and not query.speculates:  # which is refused below
        check_drift(query, predicates, measures)
    expressions = [
        *(p.expression for p in predicates if p.expression is not None),
        *(m.expression for m in measures),
    ]
    source = None if uncertainty is None else uncertainty.source
    _check_partitions(partition_by, order_by, schema, source)
    bound = BoundQuery(
        query=query,
        schema=schema,
        predicates=predicates,
        subsets=subsets,
        measures=measures,
        partition_by=partition_by,
        order_by=order_by,
        descending=tuple(item.descending for item in query.order),
        nulls_first=tuple(bool(item.nulls_first) for item in query.order),
        time=order_by[0] if order_by else None,
        within=within,
        columns=_used_columns(partition_by, order_by, expressions, uncertainty),
        output=_output(query, schema, partition_by, order_by, measures),
        warnings=(*useless_order(partition_by, order_by), *self_comparisons(predicates)),
        uncertainty=uncertainty,
    )
    if query.duplicates and (query.speculates or bound.has(MatchIdentity)):
        raise BindError(
            "the id of a match is the same in every window that has it",
            where="disorder" if query.speculates else "measures",
            hint=Hint(
                "leave out duplicates and drift, or op.Speculative",
                "leave out DUPLICATES and DRIFT, or SPECULATIVE",
            )
            if query.speculates
            else "leave out duplicates, or MATCH_ID()",
        )
    return bound


def bind_operator(query: Query, schema: pa.Schema) -> BoundQuery:
    """Bind a query with a user-defined operator, which has an order and partitions only."""
    operator = query.operator
    assert operator is not None
    if query.tree is not None or query.outputs or query.definitions:
        raise BindError(
            "a query has a pattern or an operator, not both",
            hint="leave out pattern, define and measures beside apply",
        )
    if query.uncertainty is not None:
        raise BindError(
            "a user-defined operator takes events in one order",
            where="uncertain",
            hint="leave out uncertain, or use a pattern",
        )
    if query.drift is not None:
        raise BindError(
            "a user-defined operator sees each event once, so its windows have no drift",
            where="drift",
            hint="leave out drift, or use a pattern with measures",
        )
    check_instances(query)
    check_emission(query)
    if query.corrects:
        raise BindError(
            "corrections are for patterns: what an operator of yours gave cannot be corrected",
            where="disorder",
            hint=Hint(
                'write late="drop", "pass" or "side", and no op.Speculative',
                "write LATE DROP, PASS or SIDE, and no SPECULATIVE",
            ),
        )
    partition_by = _columns(query.partitions, schema, "partition by")
    query, order_by = _ordered(query, schema)
    _check_partitions(partition_by, order_by, schema)
    output = getattr(operator, "output", None)
    name = getattr(operator, "__name__", type(operator).__name__)
    if output is None:
        try:
            made = operator()
        except Exception as error:  # It is the user's code.
            raise BindError(
                f"operator {name} cannot be made",
                where="apply",
                detail=f"{type(error).__name__}: {error}",
            ) from error
        check_operator(made)
        output = getattr(made, "output", None)
    if not isinstance(output, pa.Schema):
        raise BindError(
            f"operator {name} does not say which columns it returns",
            where="apply",
            hint='give the class an attribute: output = pa.schema([("mean", pa.float64())])',
        )
    clash = set(partition_by) & set(output.names)
    if clash:
        raise BindError(f"the operator returns a partition column: {', '.join(sorted(clash))}")
    return BoundQuery(
        query=query,
        schema=schema,
        predicates=(),
        subsets={},
        measures=(),
        partition_by=partition_by,
        order_by=order_by,
        descending=tuple(item.descending for item in query.order),
        nulls_first=tuple(bool(item.nulls_first) for item in query.order),
        time=order_by[0] if order_by else None,
        within=None,
        columns=tuple(schema.names),
        output=_with_numbers(
            query, schema, order_by, [*(schema.field(name) for name in partition_by), *output]
        ),
    )


def _scope_names(
    names: tuple[str, ...], subsets: dict[str, frozenset[int]]
) -> dict[str, frozenset[int]]:
    return {**{name: frozenset({number}) for number, name in enumerate(names)}, **subsets}


def _unlabelled(query: Query) -> frozenset[str]:
    assert query.tree is not None
    return frozenset(ast.predicates(query.tree)) - frozenset(ast.variables(query.tree))


def _predicates(
    query: Query, schema: pa.Schema, names: tuple[str, ...], subsets: dict[str, frozenset[int]]
) -> tuple[Predicate, ...]:
    definitions = dict(query.definitions)
    bound = []
    for number, name in enumerate(names):
        if name not in definitions:
            bound.append(Predicate(name, None, PredicateClass.ALWAYS))
            continue
        scope = Scope(
            schema,
            _scope_names(names, subsets),
            names,
            _unlabelled(query),
            f"define {name}",
            defines=number,
        )
        expression = bind_expression(definitions[name], scope)
        if not (pa.types.is_boolean(expression.type) or pa.types.is_null(expression.type)):
            raise BindError(
                f"a definition is a condition, but this is a value of {type_name(expression.type)}",
                span=definitions[name].span,
                where=scope.where,
            )
        _check_numbers(query, expression, scope.where)
        bound.append(_classified(name, expression))
    return tuple(bound)


def _check_numbers(query: Query, expression: BoundExpression, where: str) -> None:
    """Refuse conditions on a number that matches only get after all of them are known."""
    counted = any(isinstance(node, MatchOrdinal) for node in walk(expression))
    if counted and query.effective_selection is Selection.ALL:
        raise BindError(
            "MATCH_NUMBER() in a definition needs one match for each start",
            where=where,
            hint='select the "preferred" match, or use MATCH_NUMBER() in a measure',
        )


def _classified(name: str, expression: BoundExpression) -> Predicate:
    if isinstance(expression, Constant) and expression.value is True:
        return Predicate(name, None, PredicateClass.ALWAYS)
    return Predicate(name, expression, classify(expression))


def classify(expression: BoundExpression) -> PredicateClass:
    """Return what a bound DEFINE needs to know: its own row, rows near it, or the match.

    Examples
    --------
    >>> classify(Constant(pa.bool_(), False)).value
    'local'
    """
    found = PredicateClass.LOCAL
    for node in walk(expression):
        match node:
            case Read(place=place) | Present(place=place):
                own_row = place.origin == "last" and place.variables is None
                if not own_row or place.steps or place.final:
                    return PredicateClass.PATH
                if place.shift:
                    found = PredicateClass.OFFSET
            case Label() | MatchOrdinal() | MatchIdentity() | Aggregate():
                return PredicateClass.PATH
            case _:
                pass
    return found


def _measures(
    query: Query, schema: pa.Schema, names: tuple[str, ...], subsets: dict[str, frozenset[int]]
) -> tuple[BoundMeasure, ...]:
    measures = []
    for name, expression in query.outputs:
        scope = Scope(
            schema,
            _scope_names(names, subsets),
            names,
            _unlabelled(query),
            f"measure {name}",
            final=query.rows is RowsPerMatch.ONE,
        )
        try:
            bound = bind_expression(expression, scope)
        except BindError as error:
            if any(error.message == f"unknown variable '{gone}'" for gone, _ in query.set_aside):
                error.detail = "an earlier pattern had it, and the measure is still of that one"
                error.hint = f"{error.hint}; write .measures({name}=...) anew"
            raise
        measures.append(BoundMeasure(name, _as_stored(bound, schema)))
    return tuple(measures)


def _with_identity(measures: tuple[BoundMeasure, ...]) -> tuple[BoundMeasure, ...]:
    """Return measures with the id by which matches are told apart that may be taken back."""
    for measure in measures:
        if measure.name.lower() == MATCH and not isinstance(measure.expression, MatchIdentity):
            raise BindError(
                f"the result has a column '{MATCH}' already",
                where=f"measure {measure.name}",
                detail="what came out is corrected, and the id of a match says which one is meant",
                hint="rename that measure",
            )
    others = tuple(measure for measure in measures if measure.name.lower() != MATCH)
    return (*others, BoundMeasure(MATCH, MatchIdentity(pa.string())))


def _default_measures(
    query: Query, schema: pa.Schema, order_by: tuple[str, ...]
) -> tuple[BoundMeasure, ...]:
    """Return what is shown of a match where the query asks for no column: which, when, how long.

    The times are those of the first and the last row; without an order there are none.
    """
    if query.rows is not RowsPerMatch.ONE or query.partitions:
        return ()
    columns: dict[str, BoundExpression] = {"match_number": MatchOrdinal(pa.int64())}
    if order_by:
        kind = types.value_type(schema.field(order_by[0]).type)
        columns["first_time"] = Read(kind, order_by[0], (), ReadPlace("first", final=True))
        columns["last_time"] = Read(kind, order_by[0], (), ReadPlace("last", final=True))
    columns["rows"] = Aggregate(pa.int64(), "count", (), None, final=True)
    return tuple(BoundMeasure(name, expression) for name, expression in columns.items())


def _as_stored(expression: BoundExpression, schema: pa.Schema) -> BoundExpression:
    """Let a measure that computes nothing keep the unit of its column, nanoseconds too."""
    if not isinstance(expression, Read):
        return expression
    kind = types.value_type(schema.field(expression.column).type)
    for part in expression.path:
        kind = types.value_type(kind.field(part).type)
    return replace(expression, type=kind)


def _ordered(query: Query, schema: pa.Schema) -> tuple[Query, tuple[str, ...]]:
    """Return the query and its columns of ORDER BY without repetitions, which change nothing."""
    items: dict[str, OrderItem] = {}
    for item in query.order:
        items.setdefault(resolve_column(item.column, schema, "order by"), item)
    if len(items) < len(query.order):
        query = replace(query, order=tuple(items.values()))
    return query, tuple(items)


def _columns(names: tuple[str, ...], schema: pa.Schema, where: str) -> tuple[str, ...]:
    found = tuple(resolve_column(name, schema, where) for name in names)
    for position, name in enumerate(found):
        if name in found[:position]:
            raise BindError(f"column '{name}' is named twice", where=where)
    return found


def _check_partitions(
    partition_by: tuple[str, ...],
    order_by: tuple[str, ...],
    schema: pa.Schema,
    source: str | None = None,
) -> None:
    sources = () if source is None else (source,)
    clauses = (("partition by", partition_by), ("order by", order_by), ("uncertain", sources))
    for where, names in clauses:
        for name in names:
            kind = types.value_type(schema.field(name).type)
            nested = types.is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind)
            if nested or not types.is_supported(kind):
                key = nested and where == "partition by"
                raise BindError(
                    f"column '{name}' of type {type_name(kind)} has no order",
                    where=where,
                    hint="arrays and rows are keys of complete tables and DataFrames alone: add a"
                    " column that tells them apart"
                    if key
                    else None,
                )


def _within(query: Query, schema: pa.Schema, order_by: tuple[str, ...]) -> int | None:
    """Return the bound of WITHIN in the units of the time column."""
    if query.bound is None:
        return None
    return _span(query, query.bound.duration, schema, order_by, "within")


def _span(
    query: Query,
    duration: datetime.timedelta | int,
    schema: pa.Schema,
    order_by: tuple[str, ...],
    what: str,
) -> int:
    """Return a stretch of time in the units of the time column."""
    if not order_by:
        raise BindError(
            f"{what} needs an event time",
            where=what,
            hint="name the time column with order by",
        )
    name = order_by[0]
    kind = types.value_type(schema.field(name).type)
    if query.order[0].descending:
        raise BindError(f"{what} needs ascending time, but '{name}' is descending", where=what)
    if not (types.is_integer(kind) or types.is_instant(kind)):
        raise BindError(
            f"{what} cannot measure '{name}' of type {type_name(kind)}",
            where=what,
            hint="order by a timestamp, a date or an integer first",
        )
    units = in_units(duration, name, kind, what, f"{what} is {{}}")
    if units > TIME_LIMIT:  # It is added to times in 64 bits.
        raise BindError(
            f"{what} is too large: {units}",
            where=what,
            hint=f"the longest is {TIME_LIMIT}",
        )
    return units


def _used_columns(
    partition_by: tuple[str, ...],
    order_by: tuple[str, ...],
    expressions: list[BoundExpression],
    uncertainty: BoundUncertainty | None,
) -> tuple[str, ...]:
    used = dict.fromkeys((*partition_by, *order_by))
    if uncertainty is not None:
        used.update(dict.fromkeys(uncertainty.columns))
    for expression in expressions:
        used.update(
            dict.fromkeys(node.column for node in walk(expression) if isinstance(node, Read))
        )
    return tuple(used)


def with_changes(bound: BoundQuery) -> BoundQuery:
    """Return a query whose result has all that is said of matches, whatever of it is shown."""
    query, matched = bound.query, list(bound.matched)
    own = matched[: len(matched) - len(_shown(query))]
    numbers = list(bound.output)[len(matched) :]
    return replace(bound, output=pa.schema([*own, *_said(query), *numbers]))


def without_changes(bound: BoundQuery) -> BoundQuery:
    """Return a query whose result has nothing that is said of matches: their ids tell the rest."""
    query = bound.query
    said = {field.name for field in _said(query)} | ({MATCH} if query.identifies else set())
    return replace(
        bound,
        measures=tuple(one for one in bound.measures if one.name not in said),
        output=pa.schema([field for field in bound.output if field.name not in said]),
    )


def _said(query: Query) -> list[pa.Field]:
    """Return the columns that say what becomes of matches."""
    said = [pa.field(DIFF, pa.int64())] if query.corrects else []
    return [*said, pa.field(CONFIRMED, pa.bool_())] if query.confirms else said


def _shown(query: Query) -> list[pa.Field]:
    """Return those of them that come out."""
    return [field for field in _said(query) if field.name not in left_out(query)]


def _output(
    query: Query,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
    order_by: tuple[str, ...],
    measures: tuple[BoundMeasure, ...],
) -> pa.Schema:
    """Return the result's columns in the order of SQL:2016."""
    leading = partition_by
    if query.rows is not RowsPerMatch.ONE:
        repeated = [name for name, times in Counter(schema.names).items() if times > 1]
        if repeated:
            raise BindError(
                f"column '{repeated[0]}' is there twice",
                detail="with all rows per match the result has all columns of the input",
                hint="give each a name of its own with AS",
            )
        leading = tuple(dict.fromkeys((*partition_by, *order_by)))
    rest = [
        field
        for field in schema
        if query.rows is not RowsPerMatch.ONE and field.name not in leading
    ]
    input_names = [*leading, *(field.name for field in rest)]
    taken = {name.lower(): name for name in input_names}
    for measure in measures:
        check_characters(measure.name, "the name of a measure")
        if measure.name.lower() in taken:
            raise BindError(
                f"measure '{measure.name}' has the name of an output column",
                where=f"measure {measure.name}",
                detail=_why_in_output(taken[measure.name.lower()], partition_by),
                hint=f"give the measure another name, such as '{measure.name}_value'",
            )
    shown = [pa.field(measure.name, measure.expression.type) for measure in measures]
    if query.drift is not None:
        shown = drift_fields(measures, leading)
    if query.uncertainty is not None:
        shown.append(pa.field(CONFIDENCE, pa.string()))
    matched = [
        *(schema.field(name).with_nullable(True) for name in leading),
        *shown,
        *(field.with_nullable(True) for field in rest),
    ]
    for field in _said(query):
        if field.name in {one.name.lower() for one in matched}:
            raise BindError(
                f"the result has a column '{field.name}' already",
                where="disorder",
                detail=f"what came out is corrected, and '{field.name}' says how",
                hint="rename that column",
            )
    matched += _shown(query)
    return _with_numbers(query, schema, order_by, matched)


def _with_numbers(
    query: Query, schema: pa.Schema, order_by: tuple[str, ...], fields: list[pa.Field]
) -> pa.Schema:
    """Add the columns that say which event and which window a row belongs to, if asked for."""
    if query.windows is None or not query.numbered:
        return pa.schema(fields)
    time = schema.field(order_by[0]).type if order_by else pa.int64()
    if not types.is_instant(time):
        # Bounds of windows may lie beyond what a narrow integer holds.
        time = pa.int64()
    taken = {field.name.lower() for field in fields}
    for name in NUMBERING:
        if name in taken:
            raise BindError(
                f"the result has a column '{name}' already",
                where="over",
                hint=Hint(
                    "leave out numbered=True, or rename that column",
                    "leave out NUMBERED, or rename that column",
                ),
            )
    types_of = (pa.int64(), pa.int64(), time, time)
    return pa.schema([*fields, *map(pa.field, NUMBERING, types_of)])


def _why_in_output(column: str, partition_by: tuple[str, ...]) -> str:
    if column in partition_by:
        return f"the result has column '{column}' because of partition by"
    return f"with all rows per match the result has all columns of the input, '{column}' too"
