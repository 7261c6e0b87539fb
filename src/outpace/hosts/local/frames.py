"""Tables of other libraries as Arrow: pandas, polars, DuckDB, anything with Arrow's C stream.

Plain Python comes as a dictionary of columns, as one event (a dictionary of values), or as a list
of events.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from outpace.compiler.kernel import call
from outpace.errors import DataError
from outpace.pattern import expression as ex
from outpace.pattern.argument import plain, shown
from outpace.pattern.query import Query, RowsPerMatch

#: Anything that Arrow can read without a copy of our own: see `to_arrow`.
TableLike: TypeAlias = object

#: What to do about a result that has not been fetched; another connection would not see the
#: registered frames, the temporary tables and the transaction of this one.
UNFINISHED_HINT: Final = (
    "fetch the rest of that result first, or run its query on connection.cursor()"
)


def is_unfinished(error: Exception) -> bool:
    """Whether DuckDB refuses work because a result of the connection is not fetched yet."""
    return "unfinished result" in str(error)


def to_arrow(
    data: TableLike, query: Query | None = None, schema: pa.Schema | None = None
) -> pa.Table:
    """Return any table-like object as an Arrow table.

    Python values have no type of their own: where a schema is given they get that of its columns,
    as far as they fit. Arrow's columns and those of frames keep the types that they have. A column
    that has no Arrow type, such as one of numbers and texts, is left out where the query does not
    use it, and is an error otherwise.

    Examples
    --------
    >>> to_arrow({"x": [1, 2]}).num_rows
    2
    >>> to_arrow({"user": "eve", "ts": 5}).to_pylist()
    [{'user': 'eve', 'ts': 5}]
    >>> to_arrow([{"user": "eve", "ts": 5}, {"user": "bob", "ts": 6}])["ts"].to_pylist()
    [5, 6]
    >>> to_arrow(3)
    Traceback (most recent call last):
    ...
    outpace.errors.DataError: [data] cannot read a table from an object of type int
      hint: pass an Arrow table, a pandas or polars frame, a list of dictionaries, ...
    """
    _load_pandas()
    data = _columns_of(data)
    try:
        table = _without_views(_read(data, schema))
    except DataError:
        raise
    except Exception as problem:
        # What a frame of another library raises when it is read is that library's choice; and a
        # relation is a query that runs now.
        readable = _without(data, _unused_broken(data, query, problem))
        table = _without_views(_read(readable, schema))
    _check_repeated(table.column_names)
    return table


@cache
def _load_pandas() -> None:
    """Let Arrow load pandas now, where it is installed, to know its objects.

    It does so when it first needs to, and takes Ctrl-C meanwhile for a failure of pandas.
    """
    call(pa.array, [])


def _check_repeated(names: Iterable[Any]) -> None:
    names = list(names)
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise DataError(
            f"column '{repeated[0]}' is there twice",
            detail=f"the columns are {', '.join(map(str, names))}",
            hint="give every column a name of its own",
        )


def columns_named(query: Query) -> frozenset[str] | None:
    """Return all that may be names of columns in a query, in lower case; None: it uses every one.

    Examples
    --------
    >>> query = Query().order_by("ts").pattern("A").measures(m="A.Price + 1")
    >>> sorted(columns_named(query))
    ['a', 'm', 'price', 'ts']
    """
    by_code = query.operator is not None or getattr(query.windows, "predicate", None) is not None
    # Events that are late are put aside as they came.
    if query.rows is not RowsPerMatch.ONE or by_code or query.order_of_arrival is not None:
        return None
    parts = (query.partitions, query.order, query.definitions, query.outputs, query.windows)
    return frozenset(_texts(parts))


def _texts(part: object) -> Iterator[str]:
    if isinstance(part, str):
        yield part.lower()
    elif isinstance(part, tuple):
        for item in part:
            yield from _texts(item)
    elif isinstance(part, ex.Expression):
        for node in ex.walk(part):
            if isinstance(node, ex.Name):
                yield from _texts(node.parts)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from _texts(getattr(part, field.name))


def _unused_broken(data: TableLike, query: Query | None, problem: Exception) -> list[Any]:
    """Return the columns that cannot be read and that a query does not use; fail for others."""
    _check_repeated(_names(data))
    broken = _broken_columns(data)
    used = None if query is None else columns_named(query)
    for name, reason in broken.items():
        if used is None or str(name).lower() in used:
            raise DataError(
                f"column '{name}' cannot be read",
                detail=reason,
                hint="give all its values one type, or leave the column out",
            ) from problem
    if not broken:
        raise DataError(
            f"cannot read a table from an object of type {type(data).__name__}",
            detail=str(problem),
            hint=UNFINISHED_HINT if is_unfinished(problem) else None,
        ) from problem
    return list(broken)


def _broken_columns(data: Any) -> dict[Any, str]:
    """Return the columns of a frame or dict that have no Arrow type, and why."""
    broken = {}
    for name in _names(data):
        try:
            pa.array(data[name], from_pandas=True)
        except Exception as problem:
            broken[name] = str(problem)[:300]
    return broken


def _without(data: Any, names: Iterable[Any]) -> TableLike:
    if isinstance(data, dict):
        return {name: column for name, column in data.items() if name not in names}
    return data[[name for name in data.columns if name not in names]]


def _names(data: Any) -> Iterable[Any]:
    if isinstance(data, dict):
        return data
    # A column of a relation is not a list of values but another relation.
    return data.columns if hasattr(data, "__dataframe__") else ()


def _read(data: TableLike, schema: pa.Schema | None) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, dict):
        return pa.table({name: _column(name, values, schema) for name, values in data.items()})
    if hasattr(data, "__arrow_c_stream__"):
        return _without_index(pa.RecordBatchReader.from_stream(data).read_all())
    if hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    if type(data).__name__ == "LazyFrame":
        raise DataError(
            "a lazy frame has no rows yet", hint="pass the frame that its .collect() returns"
        )
    raise DataError(
        f"cannot read a table from an object of type {type(data).__name__}",
        hint="pass an Arrow table, a pandas or polars frame, a list of dictionaries, or a DuckDB "
        "relation",
    )


def _columns_of(data: TableLike) -> TableLike:
    """Return columns of Python values as a dictionary, also those of a list of events or of one."""
    if isinstance(data, list | tuple):
        return _columns_of_events(data)
    if not isinstance(data, Mapping):
        return data
    _check_names(data)
    single = [name for name, value in data.items() if _is_value(value)]
    if not single:
        return dict(data)
    if len(single) < len(data):
        column = next(name for name in data if name not in single)
        raise DataError(
            f"'{column}' is a column, but '{single[0]}' is a single value",
            hint="for one event with a list among its values, pass a list of one dictionary",
        )
    return _columns_of_events([data])


def _check_names(names: Iterable[object]) -> None:
    strange = [name for name in names if not isinstance(name, str)]
    if strange:
        raise DataError(f"the name of a column is text, not {shown(strange[0])}")


def _columns_of_events(data: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the columns of a list of events, each a dictionary; what an event lacks is NULL."""
    strange = [row for row, event in enumerate(data) if not isinstance(event, Mapping)]
    if strange:
        raise DataError(
            f"row {strange[0]} of the list is {shown(data[strange[0]])}",
            detail="a list of events has a dictionary for each",
            hint='write [{"ts": 1, "price": 9.5}, {"ts": 2, "price": 9.7}]',
        )
    if not data:
        raise DataError(
            "an empty list has no columns", hint="leave it out, or pass an empty Arrow table"
        )
    names = dict.fromkeys(name for event in data for name in event)
    _check_names(names)
    return {name: [plain(event.get(name)) for event in data] for name in names}


def _column(name: str, values: Any, schema: pa.Schema | None) -> Any:
    """Return a list of Python values as a column of the schema's type, anything else as it is."""
    index = -1 if schema is None or not isinstance(values, list) else schema.get_field_index(name)
    if schema is None or index < 0:
        return values
    column, wanted = pa.array(values), schema.field(index).type
    if pa.types.is_null(column.type) or _family(column.type) == _family(wanted):
        # Whoever checks the types says what does not fit.
        with suppress(pa.ArrowException):
            return column.cast(wanted)
    return column


def _family(kind: pa.DataType) -> object:
    """Return what types have in common whose values may be written as each other."""
    for family in (_NUMBER, _TIME, _TEXT):
        if any(belongs(kind) for belongs in family):
            return family
    return kind.id


_NUMBER = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_TIME = (pa.types.is_timestamp, pa.types.is_date)
_TEXT = (pa.types.is_string, pa.types.is_large_string)

#: By the number of a view type the plain one.
_PLAIN = {pa.string_view().id: pa.string(), pa.binary_view().id: pa.binary()}


def _is_value(value: object) -> bool:
    """Whether it is one value and not a column of them."""
    return isinstance(value, str | bytes) or not isinstance(value, Iterable)


def _without_views(table: pa.Table) -> pa.Table:
    """Turn view types, which few of Arrow's functions take, into the plain ones."""
    if not any(kind.id in _PLAIN for kind in table.schema.types):
        return table
    fields = [field.with_type(_PLAIN.get(field.type.id, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _without_index(table: pa.Table) -> pa.Table:
    """Leave out the index column that pandas adds when its index is not a plain range."""
    index = [name for name in table.column_names if name.startswith("__index_level_")]
    return table.drop_columns(index) if index else table
