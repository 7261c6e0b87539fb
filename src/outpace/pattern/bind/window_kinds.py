"""Binding windows: what a query looks at and a schema become spans in units of the time column.

After binding nothing about names, types or forbidden combinations can fail. Predicates that open
and close windows read the event alone, so they are computed for whole columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from outpace.errors import BindError, Hint
from outpace.pattern import types
from outpace.pattern.bind.expression import bind_expression
from outpace.pattern.bind.query import classify
from outpace.pattern.bind.scope import Scope, resolve_column
from outpace.pattern.bind.units import in_units
from outpace.pattern.bound import Constant, Predicate, PredicateClass, Read, walk
from outpace.pattern.expression import Expression
from outpace.pattern.query import Query
from outpace.pattern.types import type_name
from outpace.pattern.windows import (
    BetweenWindows,
    CountWindows,
    LandmarkWindows,
    SessionWindows,
    TimeWindows,
    WindowPredicate,
    WindowSpan,
)


@dataclass(frozen=True, slots=True)
class ByCount:
    """Windows of `size` events, one every `slide` events from event `offset` on."""

    size: int
    slide: int
    offset: int


@dataclass(frozen=True, slots=True)
class ByTime:
    """Windows of `size` units of time, with a start every `slide` units from `offset` on."""

    size: int
    slide: int
    offset: int


@dataclass(frozen=True, slots=True)
class BySession:
    """Windows that `gap` units of time without an event end."""

    gap: int


@dataclass(frozen=True, slots=True)
class ByContent:
    """Windows that events open and close."""

    open: Predicate
    close: Predicate


@dataclass(frozen=True, slots=True)
class ByPredicate:
    """Windows that a Python object opens and closes."""

    predicate: WindowPredicate


@dataclass(frozen=True, slots=True)
class ByLandmark:
    """Windows from one landmark to the next; the first event alone is one where `at` is None."""

    at: Predicate | None


WindowKind: TypeAlias = ByCount | ByTime | BySession | ByContent | ByPredicate | ByLandmark


@dataclass(frozen=True, slots=True)
class Drift:
    """The three windows of a query with a drift, which the window that is split holds.

    Where the order is uncertain, the one in the middle counts, by true times: what is split holds
    the events that may be in it.

    Parameters
    ----------
    kind
        The window in the middle, as the query has it.
    low, high
        By how much LOW begins before it, and HIGH behind it. Sessions: by how much their gaps are
        shorter and longer.
    """

    kind: ByCount | ByTime | BySession
    low: int
    high: int

    @property
    def whole(self) -> ByCount | ByTime | BySession:
        """The window that holds all three, and closes with the last of them."""
        match self.kind:
            case ByCount(size=size, slide=slide, offset=offset):
                return ByCount(size + self.low + self.high, slide, offset - self.low)
            case ByTime(size=size, slide=slide, offset=offset):
                return ByTime(size + self.low + self.high, slide, offset - self.low)
            case BySession(gap=gap):
                return BySession(gap + self.high)


@dataclass(frozen=True)
class BoundWindows:
    """Windows that fit a schema.

    Parameters
    ----------
    kind
        Which windows, in units of the time column: microseconds for timestamps.
    keyed
        Whether the stream has partitions; without them every event is of partition 0.
    time
        The column that tells when windows start and end: for time and session windows, and for
        numbered ones where there is such a column; else None.
    columns
        The columns that opening and closing reads, without `time`.
    drift
        What is matched of each window, where the query has a leeway.
    """

    kind: WindowKind
    keyed: bool
    time: str | None
    columns: tuple[str, ...]
    drift: Drift | None = None

    @property
    def needs_time(self) -> bool:
        """Whether time closes the windows."""
        return isinstance(self.kind, ByTime | BySession)


def bind_windows(query: Query, schema: pa.Schema) -> BoundWindows:
    """Bind the windows of a query to the schema of its input.

    Raises
    ------
    BindError
        Where they do not fit.

    Examples
    --------
    >>> from outpace.pattern.windows import TimeWindows
    >>> import datetime
    >>> second = datetime.timedelta(seconds=1)
    >>> query = Query().order_by("ts").over(TimeWindows(10 * second, second))
    >>> bind_windows(query, pa.schema([("ts", pa.timestamp("ms"))])).kind
    ByTime(size=10000000, slide=1000000, offset=0)
    """
    kind = _kind(query, schema)
    drift = _drift(query, kind, schema)
    if drift is not None:
        kind = drift.whole
    columns: tuple[str, ...] = ()
    match kind:
        case ByContent(open=opens, close=closes):
            columns = _reads(opens, closes)
        case ByLandmark(at=at) if at is not None:
            columns = _reads(at)
        case ByPredicate():
            columns = tuple(schema.names)
        case _:
            pass
    timed = query.numbered or isinstance(kind, ByTime | BySession)
    time = _time_column(query, schema) if timed else None
    return BoundWindows(kind, bool(query.partitions), time, columns, drift)


def _kind(query: Query, schema: pa.Schema) -> WindowKind:
    match query.windows:
        case CountWindows(size=size, slide=slide, offset=offset):
            return ByCount(size, slide, offset)
        case TimeWindows(size=size, slide=slide, offset=offset):
            spans = [_units(span, query, schema, "time windows") for span in (size, slide, offset)]
            return ByTime(*spans)
        case SessionWindows(gap=gap):
            return BySession(_units(gap, query, schema, "session windows"))
        case BetweenWindows(open=opens, close=closes, predicate=None):
            assert opens is not None
            assert closes is not None
            return ByContent(
                _condition(opens, schema, "window open"), _condition(closes, schema, "window close")
            )
        case BetweenWindows(predicate=predicate):
            assert predicate is not None
            return ByPredicate(predicate)
        case LandmarkWindows(at=at):
            return ByLandmark(None if at is None else _condition(at, schema, "window landmark"))
        case None:
            hint = Hint("add .over(op.windows.count(1000))", "add OVER COUNT (1000)")
            raise BindError("the query has no windows", hint=hint)


def _drift(query: Query, kind: WindowKind, schema: pa.Schema) -> Drift | None:
    """Return the three windows that a drift makes of each.

    Places are whole numbers: at or behind `t - drift / 2` are those at or behind `t` less half of
    the drift, rounded down, and at or behind `t + drift / 2` those at or behind `t` and the rest.
    """
    if query.leeway is None:
        return None
    assert isinstance(kind, ByCount | ByTime | BySession), "other windows have no drift"
    if isinstance(kind, ByCount):
        assert isinstance(query.leeway, int), "events are counted"
        units = query.leeway
    else:
        units = _units(query.leeway, query, schema, "drift")
    if isinstance(kind, BySession):
        return Drift(kind, units, units)
    return Drift(kind, units // 2, units - units // 2)


def _units(span: WindowSpan, query: Query, schema: pa.Schema, where: str) -> int:
    """Return a span in units of the time column."""
    if not query.order:
        raise BindError(
            f"{where} need an event time", where=where, hint="name the time column with order by"
        )
    name = _time_column(query, schema)
    kind = types.value_type(schema.field(resolve_column(query.order[0].column, schema, where)).type)
    if name is None:
        if query.order[0].descending:
            raise BindError(f"{where} need ascending time", where=where)
        raise BindError(
            f"{where} cannot measure '{query.order[0].column}' of type {type_name(kind)}",
            where=where,
            hint="order by a timestamp, a date or an integer first",
        )
    return in_units(span, name, kind, where)


def _time_column(query: Query, schema: pa.Schema) -> str | None:
    """Return the first column of the order where it tells the time."""
    if not query.order or query.order[0].descending:
        return None
    name = resolve_column(query.order[0].column, schema, "order by")
    kind = types.value_type(schema.field(name).type)
    return name if types.is_integer(kind) or types.is_instant(kind) else None


def _condition(node: Expression, schema: pa.Schema, where: str) -> Predicate:
    """Bind a condition on an event alone."""
    bound = bind_expression(node, Scope(schema, {}, (), frozenset(), where))
    if not (pa.types.is_boolean(bound.type) or pa.types.is_null(bound.type)):
        raise BindError(
            f"a condition is expected, but this is a value of {type_name(bound.type)}",
            span=node.span,
            where=where,
        )
    if isinstance(bound, Constant) and bound.value is True:
        return Predicate(where, None, PredicateClass.ALWAYS)
    if classify(bound) is not PredicateClass.LOCAL:
        raise BindError(
            "a window opens and closes by the event alone",
            span=node.span,
            where=where,
            hint="leave out PREV, NEXT, FIRST, LAST and aggregates, or give a predicate object",
        )
    return Predicate(where, bound, PredicateClass.LOCAL)


def _reads(*predicates: Predicate) -> tuple[str, ...]:
    expressions = [one.expression for one in predicates if one.expression is not None]
    read = (node.column for tree in expressions for node in walk(tree) if isinstance(node, Read))
    return tuple(dict.fromkeys(read))
