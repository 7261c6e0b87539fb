"""What several queries give as one table: which query a row is of, and the columns of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from outpace.errors import BindError
from outpace.pattern.types import type_name

#: The column that says which query a row is of.
QUERY: Final = "query"


def joined_schema(outputs: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of what several queries give; those of one name have one type.

    Parameters
    ----------
    outputs
        The columns of each query, by its name.

    Examples
    --------
    >>> joined_schema({"a": pa.schema({"x": pa.int64()}), "b": pa.schema({"y": pa.int64()})}).names
    ['query', 'x', 'y']
    """
    fields: dict[str, pa.Field] = {}
    owners: dict[str, str] = {}
    for name, schema in outputs.items():
        for field in schema:
            known = fields.setdefault(field.name, pa.field(field.name, field.type))
            owner = owners.setdefault(field.name, name)
            if field.name == QUERY:
                raise BindError(
                    f"the column '{QUERY}' of '{name}' hides which query a row is of",
                    hint="give it another name",
                )
            if known.type != field.type:
                raise BindError(
                    f"the column '{field.name}' has two types in the results of the group",
                    detail=f"{type_name(known.type)} in '{owner}', {type_name(field.type)} in"
                    f" '{name}'",
                    hint="give it another name in one of them, or cast it",
                )
    return pa.schema([pa.field(QUERY, pa.string()), *fields.values()])


def joined_rows(name: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return what one query gives with the columns of all, NULL where it has none.

    Examples
    --------
    >>> every = joined_schema({"a": pa.schema({"x": pa.int64()}), "b": pa.schema({"y": pa.int8()})})
    >>> joined_rows("b", pa.table({"y": pa.array([7], pa.int8())}), every).to_pylist()
    [{'query': 'b', 'x': None, 'y': 7}]
    """
    size = rows.num_rows
    columns = [
        rows.column(field.name) if field.name in rows.column_names else pa.nulls(size, field.type)
        for field in list(schema)[1:]
    ]
    return pa.table([pa.array([name] * size, pa.string()), *columns], schema=schema)
