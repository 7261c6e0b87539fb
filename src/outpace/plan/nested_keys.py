"""Keys that are arrays or rows: rows are matched by other columns that stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from outpace.errors import BindError
from outpace.pattern import types
from outpace.pattern.query import Query


def nested_columns(query: Query, schema: pa.Schema) -> list[str]:
    """Return the columns of PARTITION BY that are arrays or rows, without those that have maps.

    Raises
    ------
    BindError
        A measure has the name of one, and both would be in the result.

    Examples
    --------
    >>> schema = pa.schema([("Tags", pa.list_(pa.string())), ("site", pa.string())])
    >>> nested_columns(Query().partition_by("site", "tags"), schema)
    ['Tags']
    """
    if query.operator is not None:
        return []
    wanted = {name.lower() for name in query.partitions}
    nested = [field.name for field in schema if field.name.lower() in wanted and _is_nested(field)]
    for measure, _ in query.outputs:
        if measure.lower() in (name.lower() for name in nested):
            raise BindError(
                f"measure '{measure}' has the name of an output column",
                where=f"measure {measure}",
                detail=f"the result has column '{measure}' because of partition by",
                hint=f"give the measure another name, such as '{measure}_value'",
            )
    return nested


def key_names(columns: Iterable[str], schema: pa.Schema) -> dict[str, str]:
    """Return names for columns that stand for others.

    Examples
    --------
    >>> key_names(["tags"], pa.schema([("tags", pa.list_(pa.string()))]))
    {'tags': 'tags as a key'}
    """
    taken = set(schema.names)
    names = {}
    for column in columns:
        name = f"{column} as a key"
        while name in taken:
            name += "_"
        names[column] = name
    return names


def by_other_columns(query: Query, others: Mapping[str, str]) -> Query:
    """Return a query whose keys are other columns in the place of some."""
    if not others:
        return query
    lower = {name.lower(): other for name, other in others.items()}
    columns = (lower.get(name.lower(), name) for name in query.partitions)
    return replace(query, partitions=tuple(columns))


def _is_nested(field: pa.Field) -> bool:
    kind = types.value_type(field.type)
    if not (types.is_list(kind) or pa.types.is_struct(kind)):
        return False
    inside = [kind]
    while inside:
        one = inside.pop()
        if pa.types.is_map(one):
            return False  # Of maps nobody says which are equal.
        inside += [one.field(place).type for place in range(one.num_fields)]
    return True
