"""Hypothesis strategies of random patterns, expressions and queries.

Every tree that they draw can be written in all three notations: as text, as MATCH_RECOGNIZE and as
fluent Python.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, get_args

import pyarrow as pa
from hypothesis import strategies as st

from outpace.errors import BindError
from outpace.pattern import ast
from outpace.pattern import disorder as d
from outpace.pattern import expression as ex
from outpace.pattern import query as q
from outpace.pattern import schedulers as s
from outpace.pattern import windows as w
from outpace.pattern.notation.disorder import FAMILIES, KINDS
from outpace.pattern.setting import (
    Choice,
    ClockSpan,
    ColumnName,
    EventSpan,
    FlagName,
    Inner,
    Number,
    NumberRange,
    SettingKind,
    SourceName,
    settings_of,
)

#: Names that need no quotes, and some that do.
_PLAIN_NAMES = ("A", "B", "C", "d", "price", "Symbol", "_x1")
_ODD_NAMES = ("order", "until", "PERMUTE", "unit price", 'a"b', "c`d", "größe", "1st", "a.b", "--")

#: Sets of variables for queries: plain ones, equal but for case, and ones that need quotes.
_VARIABLES = (("A", "B", "C"), ("a", "A", "b"), ("order", "unit price", "UNTIL"), ('a"b', "größe"))

_TYPES = (
    pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(),
    pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.decimal128(10, 2),
    pa.list_(pa.int64()), pa.map_(pa.string(), pa.float64()),
    pa.struct([("bid", pa.float64()), ("the ask", pa.list_(pa.string()))]),
)  # fmt: skip
_FUNCTIONS = ("abs", "sum", "coalesce", "if", "lower", "trim", "substring", "year", "array_agg")
_SUBQUERIES = ("SELECT 1", "SELECT max(x) FROM (VALUES 1, 2) AS t(x)", "VALUES ')', 'a'")


def names() -> st.SearchStrategy[str]:
    """Draw names of columns and variables, quoted ones and any text included."""
    anything = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
    return st.one_of(st.sampled_from(_PLAIN_NAMES), st.sampled_from(_ODD_NAMES), anything)


def patterns(
    variables: Sequence[str] = ("A", "B", "C"),
    *,
    links: Sequence[ast.Link] = tuple(ast.Link),
    modes: Sequence[ast.Mode] = tuple(ast.Mode),
    negation: bool = True,
    anchors: bool = True,
    largest_bound: int = 4,
    leaves: int = 8,
) -> st.SearchStrategy[ast.Pattern]:
    """Draw patterns.

    Parameters
    ----------
    variables
        The names to use.
    links, modes
        The contiguities and quantifier modes to use.
    negation, anchors
        Whether `!B` and `^`, `$` may occur.
    largest_bound
        The largest bound of a quantifier.
    leaves
        The most variables, about.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(patterns(), lambda pattern: isinstance(pattern, ast.Concat))
    Concat(items=(Var(name='A'), Var(name='A')), links=(<Link.STRICT: 'strict'>,))
    """
    name = st.sampled_from(tuple(variables))
    link = st.sampled_from(tuple(links))
    basic: list[st.SearchStrategy[ast.Pattern]] = [st.builds(ast.Var, name)]
    if anchors:
        basic += [st.just(ast.AtStart()), st.just(ast.AtEnd())]
    negated = st.builds(ast.Not, name)

    @st.composite
    def sequence(draw: st.DrawFn, item: st.SearchStrategy[ast.Pattern]) -> ast.Pattern:
        items = draw(st.lists(item, min_size=2, max_size=4))
        if negation and _takes_events(items[:-1]) and draw(st.booleans()):
            items.insert(draw(st.integers(len(items) - 1, len(items))), draw(negated))
        between = [draw(link) for _ in items[1:]]
        return ast.concat(items, between)

    @st.composite
    def repeat(draw: st.DrawFn, item: st.SearchStrategy[ast.Pattern]) -> ast.Pattern:
        least = draw(st.integers(0, largest_bound))
        most = draw(st.none() | st.integers(max(1, least), largest_bound))
        until = draw(st.none() | name) if negation else None
        mode = draw(st.sampled_from(tuple(modes)))
        return ast.Repeat(draw(item), least, most, mode, draw(link), until)

    def larger(item: st.SearchStrategy[ast.Pattern]) -> st.SearchStrategy[ast.Pattern]:
        return st.one_of(
            sequence(item),
            repeat(item),
            st.lists(item, min_size=2, max_size=3).map(ast.alternate),
            st.builds(ast.Exclude, item),
            st.lists(item, min_size=1, max_size=3).map(lambda parts: ast.Permute(tuple(parts))),
            st.just(ast.Empty()),
        )

    return st.recursive(st.one_of(basic), larger, max_leaves=leaves)


def _takes_events(items: Sequence[ast.Pattern]) -> bool:
    """Whether a negation may follow these items: not all of them are anchors or empty."""
    sequence = ast.concat(items)
    flat = sequence.items if isinstance(sequence, ast.Concat) else (sequence,)
    return any(not isinstance(item, ast.AtStart | ast.AtEnd | ast.Empty) for item in flat)


def literals() -> st.SearchStrategy[ex.Literal]:
    """Draw constants of every kind."""
    minutes = st.integers(-14 * 60, 14 * 60).map(
        lambda count: datetime.timezone(datetime.timedelta(minutes=count))
    )
    decimals = st.builds(
        lambda digits, scale: Decimal(digits).scaleb(-scale),
        st.integers(-(10**20), 10**20),
        st.integers(0, 10),
    )
    microseconds = st.integers(-(10**16), 10**16)
    values: st.SearchStrategy[ex.Scalar] = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**37), 10**37),
        st.floats(),
        decimals,
        st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        st.binary(max_size=4),
        st.dates(),
        st.datetimes(),
        st.datetimes(datetime.datetime(2, 1, 1), datetime.datetime(9998, 1, 1), timezones=minutes),
        microseconds.map(lambda count: datetime.timedelta(microseconds=count)),
    )
    return values.map(ex.Literal)


def expressions(
    variables: Sequence[str] = ("A", "B", "C"), *, leaves: int = 10, subqueries: bool = True
) -> st.SearchStrategy[ex.Expression]:
    """Draw expressions: every kind of node that text can express, without regard to types.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, database=None, deadline=None)
    ... @given(expressions())
    ... def check(node):
    ...     assert node == node
    >>> check()
    """
    variable = st.sampled_from(tuple(variables))
    qualified = st.builds(
        lambda first, rest: ex.Name((first, *rest)),
        st.one_of(variable, names()),
        st.lists(names(), max_size=2),
    )
    basic: list[st.SearchStrategy[ex.Expression]] = [
        literals(),
        qualified,
        st.builds(ex.Classifier, st.none() | variable),
        st.sampled_from([ex.MatchNumber(), ex.MatchId()]),
        st.builds(lambda name: ex.Call("count", (ex.Star(name),)), st.none() | variable),
        st.just(ex.Call("count", ())),
    ]
    if subqueries:
        kind = st.sampled_from(("value", "exists"))
        basic.append(st.builds(ex.Subquery, kind, st.sampled_from(_SUBQUERIES)))
    return st.recursive(
        st.one_of(basic), lambda part: _larger_expressions(part, subqueries), max_leaves=leaves
    )


def _larger_expressions(
    part: st.SearchStrategy[ex.Expression], subqueries: bool
) -> st.SearchStrategy[ex.Expression]:
    negated = st.booleans()
    operators = st.sampled_from(get_args(ex.BinaryOperator))
    some = st.lists(part, min_size=1, max_size=3).map(tuple)
    order = st.lists(st.builds(ex.SortKey, part, st.booleans(), st.booleans()), max_size=2)
    calls = st.one_of(
        st.builds(ex.Call, st.sampled_from(_FUNCTIONS), some, st.booleans()),
        st.builds(lambda a, b: ex.Call("position", (a, b)), part, part),
        st.builds(
            ex.Call, st.just("array_agg"), some, st.booleans(), st.none() | part, order.map(tuple)
        ),
        # Functions with the name of a keyword are written in quotes.
        st.builds(ex.Call, st.sampled_from(("first", "exists", "my func")), some),
    )
    offset = st.none() | st.integers(0, 5)
    outer = st.builds(ex.Navigate, st.sampled_from(("first", "last")), part, offset)
    inner = st.builds(ex.Navigate, st.sampled_from(("prev", "next")), part, offset)
    branches = st.lists(st.tuples(part, part), min_size=1, max_size=2).map(tuple)
    kinds: list[st.SearchStrategy[ex.Expression]] = [
        st.builds(ex.Unary, st.sampled_from(("-", "not")), part),
        st.builds(ex.Binary, operators, part, part),
        st.builds(ex.IsNull, part, negated),
        st.builds(ex.Between, part, part, part, negated, st.booleans()),
        st.builds(ex.InList, part, some, negated),
        st.builds(ex.Like, part, part, st.none() | part, negated),
        st.builds(ex.Case, st.none() | part, branches, st.none() | part),
        st.builds(ex.Cast, part, st.sampled_from(_TYPES), st.booleans()),
        calls,
        outer,
        inner,
        st.builds(ex.Semantics, st.sampled_from(("running", "final")), calls | outer | part),
        st.builds(ex.Array, st.lists(part, max_size=2).map(tuple)),
        st.builds(ex.Field, part, names()),
        st.builds(ex.Subscript, part, part),
    ]
    if subqueries:
        text = st.sampled_from(_SUBQUERIES)
        kinds.append(st.builds(ex.Subquery, st.just("in"), text, part, negated))
    return st.one_of(kinds)


def queries(variables: Sequence[str] | None = None) -> st.SearchStrategy[q.Query]:
    """Draw whole queries; they need not fit any schema.

    Parameters
    ----------
    variables
        The pattern variables to use; without them, several sets of names.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, database=None, deadline=None)
    ... @given(queries(["A", "B"]))
    ... def check(query):
    ...     assert set(ast.variables(query.tree)) <= {"A", "B"}
    >>> check()
    """
    if variables is not None:
        return _queries(tuple(variables))
    return st.one_of([_queries(choice) for choice in _VARIABLES])


def _queries(variables: tuple[str, ...]) -> st.SearchStrategy[q.Query]:
    name = st.sampled_from(variables)
    node = expressions(variables, leaves=4)
    items = st.builds(q.OrderItem, names(), st.booleans(), st.none() | st.booleans())
    members = st.lists(name, min_size=1, max_size=3).map(tuple)
    simple = st.sampled_from((q.Skip.NONE, q.Skip.TO_NEXT_ROW, q.Skip.PAST_LAST_ROW))
    skips = st.one_of(
        st.none(),
        simple.map(q.AfterMatch),
        st.builds(
            q.AfterMatch, st.sampled_from((q.Skip.TO_FIRST, q.Skip.TO_LAST)), name, st.booleans()
        ),
    )
    durations = st.one_of(
        st.integers(1, 10**12),
        st.integers(1, 10**12).map(lambda count: datetime.timedelta(microseconds=count)),
    )
    limits = st.builds(q.Limit, st.integers(1, 9), st.sampled_from(q.Per))
    return st.builds(
        q.Query,
        partitions=st.lists(names(), max_size=2).map(tuple),
        order=st.lists(items, max_size=2).map(tuple),
        tree=patterns(variables, leaves=5),
        definitions=_pairs(name, node),
        subsets=_pairs(names(), members),
        outputs=_pairs(names(), node),
        rows=st.sampled_from(q.RowsPerMatch),
        skip=skips,
        bound=st.none() | st.builds(q.Within, durations, st.sampled_from(q.WithinKind)),
        selection=st.none() | st.sampled_from(q.Selection),
        consumption=st.sampled_from(q.Consume),
        limits=st.lists(limits, max_size=2, unique_by=lambda limit: limit.per).map(tuple),
        uncertainty=st.none()
        | st.builds(q.Uncertainty, durations, st.none() | names(), st.booleans()),
        windows=st.none() | windows(),
        drift=st.none() | st.just(1),
        duplicates=st.booleans(),
        numbered=st.booleans(),
        instance_count=st.integers(1, 9),
        scheduler=st.none() | _schedulers(),
        order_of_arrival=st.none() | disorders(),
        emission=st.sampled_from(q.Emission),
    ).map(_without_loose_options)


def windows() -> st.SearchStrategy[w.Windows]:
    """Draw windows of all kinds that have a text; they need not fit any schema.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(windows(), lambda drawn: isinstance(drawn, w.SessionWindows))
    SessionWindows(gap=1)
    """
    condition = expressions(leaves=3)
    size, slide = st.integers(1, 10**12), st.integers(10**6, 10**12)
    offset = st.integers(-(10**12), 10**12)
    return st.one_of(
        st.builds(w.CountWindows, size, slide, offset),
        st.builds(w.TimeWindows, size, slide, offset),
        st.builds(w.TimeWindows, *(span.map(_duration) for span in (size, slide, offset))),
        st.builds(w.SessionWindows, size | size.map(_duration)),
        st.builds(w.BetweenWindows, condition, condition),
        st.builds(w.LandmarkWindows, st.none() | condition),
    )


def disorders() -> st.SearchStrategy[d.Disorder]:
    """Draw how far a stream is out of order; it need not fit any schema.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(disorders(), lambda drawn: isinstance(drawn, d.KSlack)).slack
    0
    """
    return st.one_of(*(_settings(kind) for kind in KINDS.values()))


@st.composite
def _settings(draw: st.DrawFn, kind: type[Any]) -> Any:
    """Draw a disorder, or another value with settings, of a kind by what it says of these."""
    given = {}
    for one in settings_of(kind):
        value = _value(one.kind)
        given[one.name] = draw(value if one.required else st.just(one.default) | value)
    try:
        return kind(**given)
    except BindError:
        # Two settings contradict each other, and none does that can be left out.
        return kind(**{one.name: given[one.name] for one in settings_of(kind) if one.required})


def _value(kind: SettingKind) -> st.SearchStrategy[Any]:
    span = st.integers(0, 10**12)
    match kind:
        case EventSpan():
            return span | span.map(_duration)
        case ClockSpan():
            return span.map(_duration)
        case Number(least=least, most=most, whole=whole):
            low = None if isinstance(least, str) else least
            if whole:
                # A number that does not fit into 64 bits is refused.
                most = (1 << 63) - 1 if most is None else most
                return st.integers(1 - (1 << 63) if low is None else int(low), int(most))
            return st.floats(low, most, allow_nan=False, allow_infinity=False)
        case Choice(members=members):
            return st.sampled_from(members)
        case ColumnName() | FlagName():
            return names()
        case NumberRange():
            part = st.floats(0, 1)
            return st.tuples(part, part).map(sorted).map(tuple)
        case SourceName():
            return st.text(min_size=1)
        case Inner(family="checkpoints"):
            return st.one_of(*map(_settings, FAMILIES["checkpoints"].values()))
        case Inner():
            own = st.builds(d.KSlack, span) | st.builds(d.MPKSlack, at_most=span)
            return own | st.builds(d.Quantile, st.floats(0, 1))


def _duration(microseconds: int) -> datetime.timedelta:
    return datetime.timedelta(microseconds=microseconds)


def _schedulers() -> st.SearchStrategy[s.Scheduler]:
    batches = st.builds(s.Batches, st.none() | st.integers(1, 99))
    return batches | st.sampled_from([s.RoundRobin(), s.LeastLoaded(), s.ByKey()])


def _without_loose_options(query: q.Query) -> q.Query:
    """Leave out what only `over` sets where there are no windows, and give them a drift."""
    if query.windows is None:
        return replace(query, drift=None, duplicates=False, numbered=False)
    if query.drift is None:
        return query
    timed = isinstance(query.windows, w.TimeWindows | w.SessionWindows)
    longest = getattr(query.windows, "gap", getattr(query.windows, "size", None))
    drift = _duration(1) if timed and isinstance(longest, datetime.timedelta) else 1
    try:
        return query.over(query.windows, drift=drift, numbered=query.numbered)
    except BindError:
        return replace(query, drift=None)


def _pairs(
    key: st.SearchStrategy[str], value: st.SearchStrategy[Any]
) -> st.SearchStrategy[tuple[tuple[str, Any], ...]]:
    return st.dictionaries(key, value, max_size=2).map(lambda entries: tuple(entries.items()))
