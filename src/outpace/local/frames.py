"""Tables of other libraries as Arrow: pandas, polars, DuckDB, anything with Arrow's C stream."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

from outpace.errors import DataError

#: Anything that Arrow can read without a copy of our own: see `to_arrow`.
TableLike: TypeAlias = object


def to_arrow(data: TableLike) -> pa.Table:
    """Return any table-like object as an Arrow table.

    Examples
    --------
    >>> to_arrow({"x": [1, 2]}).num_rows
    2
    >>> to_arrow(3)
    Traceback (most recent call last):
    ...
    outpace.errors.DataError: [data] cannot read a table from an object of type int
      hint: pass an Arrow table, a pandas or polars frame, or a DuckDB relation
    """
    return _without_views(_read(data))


def _read(data: TableLike) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, dict):
        return pa.table(data)
    if hasattr(data, "__arrow_c_stream__"):
        return _without_index(pa.RecordBatchReader.from_stream(data).read_all())
    if hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    raise DataError(
        f"cannot read a table from an object of type {type(data).__name__}",
        hint="pass an Arrow table, a pandas or polars frame, or a DuckDB relation",
    )


def _without_views(table: pa.Table) -> pa.Table:
    """Turn view types, which few of Arrow's functions take, into the plain ones."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    if not any(field.type in plain for field in table.schema):
        return table
    fields = [field.with_type(plain.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _without_index(table: pa.Table) -> pa.Table:
    """Leave out the index column that pandas adds when its index is not a plain range."""
    index = [name for name in table.column_names if name.startswith("__index_level_")]
    return table.drop_columns(index) if index else table
