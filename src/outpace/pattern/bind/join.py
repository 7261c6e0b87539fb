"""Binding a join: two schemas become one stream of both sides, and the query that joins it.

The result has the columns of `on`, the time column, and the other columns of both sides, the left
side first. The time is that at which a row of the result is known: the later one of a pair, and for
a row without a partner its own and `within`. Columns that both sides have come with the suffix
`_left` or `_right`; so do the times of both, and columns named `source` or `seq`, as the stream of
both sides has these.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from outpace.errors import BindError, UnsupportedError
from outpace.pattern import types
from outpace.pattern.bind.disorder import SOURCE, TIES
from outpace.pattern.bind.scope import resolve_column
from outpace.pattern.expression import Expression, Name
from outpace.pattern.join import SIDES, Join
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.query import JoinKind, OrderItem, Query
from outpace.pattern.setting import ColumnName, settings_of
from outpace.pattern.types import type_name, value_type

#: The column of sequence numbers, which puts rows of one time in order.
SEQUENCE: Final = TIES[0]

#: The least stretch of time, which makes a bound that counts into one that does not.
_TICK: Final = datetime.timedelta(microseconds=1)


@dataclass(frozen=True)
class BoundJoin:
    """A join that fits the schemas of its sides.

    Parameters
    ----------
    query
        What joins the rows of both sides, which are one stream.
    schema
        The columns of that stream; those of the other side are NULL.
    columns
        For each side its columns, by the names that they have in the stream.
    schemas
        The schemas of the sides.
    """

    query: Query
    schema: pa.Schema
    columns: tuple[Mapping[str, str], Mapping[str, str]]
    schemas: tuple[pa.Schema, pa.Schema]

    @property
    def partner(self) -> str:
        """The column of the result that is NULL where a row has no partner: the right time."""
        time, columns = self.query.order[0].column, self.columns[1]
        return next(name for name, own in columns.items() if own == columns[time] and name != time)


def bind_join(join: Join, left: pa.Schema, right: pa.Schema) -> BoundJoin:
    """Bind a join to the schemas of its sides.

    Raises
    ------
    BindError
        A column is missing, has another type on the other side, or would be there twice.
    UnsupportedError
        A column's type does not go with joins.

    Examples
    --------
    >>> left = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("price", pa.float64())])
    >>> right = pa.schema([("ts", pa.int64()), ("id", pa.int64()), ("price", pa.float64())])
    >>> bound = bind_join(Join(on="id", within=5, time="ts"), left, right)
    >>> bound.schema.names
    ['id', 'ts', 'source', 'ts_left', 'price_left', 'ts_right', 'price_right']
    """
    both = left, right
    for side, schema in zip(SIDES, both, strict=True):
        for field in schema:
            if not types.is_supported(value_type(field.type)):
                raise UnsupportedError(
                    f"column '{field.name}' has a type that expressions do not know: {field.type}",
                    where=f"{side} side",
                    hint="leave the column out, or give it another type",
                )
    keys = [_resolved(name, both, "on") for name in join.on]
    time = _resolved(join.time, both, "time")
    for names in (*keys, time):
        _check_name(names[0], "time" if names is time else "on")
    _check_twice([own for own, _ in keys], time[0])
    shared = [
        *(pa.field(names[0], _key_type(names, both)) for names in keys),
        pa.field(time[0], _time_type(time, both)),
        pa.field(SOURCE, pa.string()),
    ]
    ordering = _ordering(join, both)
    known = {field.name for field in shared}
    shared += [
        pa.field(names[0], _alike(names, both)) for names in ordering if names[0] not in known
    ]
    own = [_own_names(both, number, keys, time) for number in (0, 1)]
    fields = [
        pa.field(name, value_type(schema.field(column).type))
        for schema, names in zip(both, own, strict=True)
        for column, name in names.items()
    ]
    _check_result([field.name for field in (*shared[: len(keys) + 1], *fields)])
    columns = [
        {
            **{names[0]: names[number] for names in (*ordering, *keys, time)},
            **{name: column for column, name in names_of.items()},
        }
        for number, names_of in enumerate(own)
    ]
    schema = pa.schema([*shared, *fields])
    query = _query(join, [names[0] for names in keys], time[0], [list(o.values()) for o in own])
    return BoundJoin(query, schema, (columns[0], columns[1]), both)


def _query(join: Join, keys: list[str], time: str, shown: list[list[str]]) -> Query:
    """Return the query whose matches are the result."""
    assert not isinstance(join.within, str)
    tick = 1 if isinstance(join.within, int) else _TICK
    present = "".join(f" AND {_quoted(name)} IS NOT NULL" for name in keys)
    lonely = join.how is JoinKind.LEFT
    outputs: dict[str, str | Expression] = {time: f"LAST({_quoted(time)})"}
    for variable, names in zip("LR", shown, strict=True):
        outputs.update({name: Name((variable, name)) for name in names})
    query = (
        Query(join.name)
        .partition_by(*keys)
        .order_by(OrderItem(time))
        .pattern("L ->> R")
        .define(
            L=f"{SOURCE} = '{SIDES[0]}'" + ("" if lonely else present),
            R=f"{SOURCE} = '{SIDES[1]}'{present}",
        )
        .measures(outputs)
        # All are integers, or all durations.
        .within(join.within + tick)  # type: ignore[operator]
    )
    if join.uncertain is not None:
        # All pairs are found that may be some.
        widest = join.within + join.uncertain + tick  # type: ignore[operator]
        query = query.within(widest).uncertain(join.uncertain)
    assert isinstance(join.how, JoinKind)
    return replace(query, join=join.how, order_of_arrival=join.disorder)


def _quoted(name: str) -> str:
    return print_name(name, quoted=True)


def _resolved(name: str, both: tuple[pa.Schema, pa.Schema], where: str) -> tuple[str, str]:
    """Return the name of a column as each side spells it."""
    left, right = (
        resolve_column(name, schema, f"{where}, {side} side")
        for side, schema in zip(SIDES, both, strict=True)
    )
    return left, right


def _check_name(name: str, where: str) -> None:
    if name.lower() in TIES:
        raise BindError(
            f"a join cannot have '{name}' as a column of {where}",
            where=where,
            detail="in the stream of both sides it says which side a row is of, or its number",
            hint="give the column another name on both sides",
        )


def _check_twice(keys: list[str], time: str) -> None:
    for place, name in enumerate(keys):
        if name in keys[:place]:
            raise BindError(f"column '{name}' is named twice", where="on")
        if name == time:
            raise BindError(
                f"the time '{name}' cannot be a column of on as well",
                where="on",
                hint="within=0 joins rows of the same time",
            )


def _check_result(names: list[str]) -> None:
    known: set[str] = set()
    for name in names:
        if name.lower() in known:
            raise BindError(
                f"the result would have two columns named '{name}'",
                where="join",
                detail="columns that both sides have come with the suffix _left or _right",
                hint="rename the column on one side",
            )
        known.add(name.lower())


def _key_type(names: tuple[str, str], both: tuple[pa.Schema, pa.Schema]) -> pa.DataType:
    left, right = (value_type(s.field(name).type) for s, name in zip(both, names, strict=True))
    texts = any(alike(left) and alike(right) for alike in (types.is_string, types.is_binary))
    if left != right and not texts:
        raise BindError(
            f"column '{names[0]}' has {type_name(left)} on the left side, but {type_name(right)} "
            "on the right",
            where="on",
            hint="give both the same type",
        )
    if types.is_list(left) or pa.types.is_struct(left) or pa.types.is_map(left):
        raise BindError(f"column '{names[0]}' of type {type_name(left)} has no order", where="on")
    return left


def _time_type(names: tuple[str, str], both: tuple[pa.Schema, pa.Schema]) -> pa.DataType:
    left, right = (value_type(s.field(name).type) for s, name in zip(both, names, strict=True))
    if types.is_integer(left) and types.is_integer(right):
        return left if left == right else pa.int64()
    stamps = pa.types.is_timestamp(left) and pa.types.is_timestamp(right)
    if left == right and not types.is_instant(left):
        raise BindError(
            f"the time '{names[0]}' is {_described(left)}",
            where="time",
            hint="name a column of timestamps, dates or integers",
        )
    if left == right or (stamps and left.tz == right.tz):
        common = types.common_type(left, right)
        assert common is not None
        return common
    raise BindError(
        f"the time '{names[0]}' is {_described(left)} on the left side, but {_described(right)} "
        "on the right",
        where="time",
        hint="give both the same type and zone",
    )


def _described(kind: pa.DataType) -> str:
    if not pa.types.is_timestamp(kind):
        return f"a {type_name(kind)}"
    return f"a {type_name(kind)} {'without a zone' if kind.tz is None else f'of zone {kind.tz}'}"


def _ordering(join: Join, both: tuple[pa.Schema, pa.Schema]) -> list[tuple[str, str]]:
    """Return the columns beside the time that put rows in order: both sides have them."""
    disorder = join.disorder
    named = [
        getattr(disorder, one.name)
        for one in (() if disorder is None else settings_of(type(disorder)))
        if isinstance(one.kind, ColumnName)
    ]
    if all(_holds_integers(SEQUENCE, schema) for schema in both):
        named.append(SEQUENCE)
    wanted = dict.fromkeys(name for name in named if name is not None)
    return [_resolved(name, both, "disorder") for name in wanted]


def _holds_integers(name: str, schema: pa.Schema) -> bool:
    return name in schema.names and bool(types.is_integer(value_type(schema.field(name).type)))


def _alike(names: tuple[str, str], both: tuple[pa.Schema, pa.Schema]) -> pa.DataType:
    """Return the one type of a column that puts the rows of both sides in order."""
    left, right = (value_type(s.field(name).type) for s, name in zip(both, names, strict=True))
    common = types.common_type(left, right)
    if common is None:
        raise BindError(
            f"column '{names[0]}' has {type_name(left)} on the left side, but {type_name(right)} "
            "on the right",
            where="disorder",
            detail="it puts the rows of both sides in order",
            hint="give both the same type, or another name",
        )
    return common


def _own_names(
    both: tuple[pa.Schema, pa.Schema],
    number: int,
    keys: list[tuple[str, str]],
    time: tuple[str, str],
) -> dict[str, str]:
    """Return the columns that come out of one side alone, and the names that they get."""
    taken = {time[0].lower(), *TIES, *(name.lower() for name in both[1 - number].names)}
    taken.update(names[0].lower() for names in keys)
    own = [name for name in both[number].names if name not in {names[number] for names in keys}]
    return {name: f"{name}_{SIDES[number]}" if name.lower() in taken else name for name in own}
