"""Binding disorder: what a query says of the order of its stream, in units of the time column."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from outpace.errors import BindError
from outpace.pattern import types
from outpace.pattern.bind.expression import resolve_column
from outpace.pattern.disorder import Disorder, Duration, InOrder, Invalid, Late, Watermark
from outpace.pattern.query import Query
from outpace.pattern.types import type_name

#: The column that says who sent an event.
SOURCE: Final = "source"

#: Columns that break ties where the input has them and the query does not order by them.
TIES: Final = ("seq", SOURCE)

_MICROSECOND: Final = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class BoundDisorder:
    """Disorder that fits a schema.

    Parameters
    ----------
    time
        The column of event time: the first of the query's order.
    value
        What the query says.
    settings
        The durations that this kind has, in units of the time column.
    ahead
        How far an event may be ahead of all before it, in units of the time column, or None.
    ties
        Columns that order events beyond the query's order.
    """

    time: str
    value: Disorder
    settings: tuple[tuple[str, int], ...]
    ahead: int | None
    ties: tuple[str, ...]

    @property
    def late(self) -> Late:
        """What becomes of late events."""
        return Late(self.value.late)

    @property
    def invalid(self) -> Invalid:
        """What becomes of invalid events."""
        return Invalid(self.value.invalid)

    @property
    def told(self) -> bool:
        """Whether the watermark is told, and nothing else says what time it is."""
        return isinstance(self.value, Watermark)

    def __str__(self) -> str:
        return self.value.described.format(**dict(self.settings))


def bind_disorder(query: Query, schema: pa.Schema) -> BoundDisorder:
    """Bind the disorder of a query, in order where it says nothing, to the schema of its stream.

    Raises
    ------
    BindError
        The query is not ordered by rising time, or durations do not fit the time column.

    Examples
    --------
    >>> from outpace.pattern.disorder import KSlack
    >>> schema = pa.schema([("ts", pa.timestamp("ms")), ("seq", pa.int64())])
    >>> bound = bind_disorder(Query().order_by("ts").disorder(KSlack("2 s")), schema)
    >>> bound.settings, bound.ties
    ((('slack', 2000000),), ('seq',))
    """
    time = _time(query, schema)
    disorder = query.order_of_arrival or InOrder()
    kind = types.value_type(schema.field(time).type)
    ordered = {resolve_column(item.column, schema, "order by") for item in query.order}
    settings = [(name, getattr(disorder, name)) for name in disorder.settings()]
    assert not isinstance(disorder.ahead, str)
    return BoundDisorder(
        time=time,
        value=disorder,
        settings=tuple((name, _units(value, time, kind, name)) for name, value in settings),
        ahead=None if disorder.ahead is None else _units(disorder.ahead, time, kind, "ahead"),
        ties=tuple(name for name in TIES if name not in ordered and _is_sortable(name, schema)),
    )


def _time(query: Query, schema: pa.Schema) -> str:
    if not query.order:
        raise BindError(
            "a stream needs an order", where="order by", hint='name its time: order_by("ts")'
        )
    name = resolve_column(query.order[0].column, schema, "order by")
    kind = types.value_type(schema.field(name).type)
    if query.order[0].descending:
        raise BindError(f"a stream is ordered by rising time, but '{name}' is descending")
    if not (types.is_integer(kind) or types.is_instant(kind)):
        raise BindError(
            f"'{name}' of type {type_name(kind)} does not tell the time of a stream",
            where="order by",
            hint="order by a timestamp, a date or an integer first",
        )
    return name


def _is_sortable(name: str, schema: pa.Schema) -> bool:
    """Say whether the stream has a column of a name that has an order."""
    if name not in schema.names:
        return False
    kind = types.value_type(schema.field(name).type)
    return types.is_supported(kind) and not pa.types.is_nested(kind)


def _units(duration: Duration, time: str, kind: pa.DataType, what: str) -> int:
    if types.is_integer(kind):
        if isinstance(duration, datetime.timedelta):
            raise BindError(
                f"{what} is a duration, but '{time}' holds integers",
                where="disorder",
                hint="give an integer in the units of the column, or order by a timestamp",
            )
        return duration
    if isinstance(duration, int):
        raise BindError(
            f"{what} is an integer, but '{time}' is a {type_name(kind)}",
            where="disorder",
            hint=f"write a duration such as '{duration} s'",
        )
    return duration // _MICROSECOND
