"""Rows of Spark as PostgreSQL reads them: types of columns, and Arrow batches as COPY's CSV.

A value goes through unchanged or is refused; NULL and the empty text stay different. Structs, maps
and arrays become JSON, which Spark writes.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from outpace.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

#: PostgreSQL's types by the names of Spark's.
_TYPES: Final = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}
_JSON: Final = ("array", "map", "struct")


def column_type(name: str, kind: DataType) -> str:
    """Return PostgreSQL's type for a column.

    Raises
    ------
    UnsupportedError
        There is none with the same values.
    """
    spark_type = kind.simpleString()
    family = spark_type.split("<")[0].split("(")[0]
    if family == "decimal":
        return spark_type.replace("decimal", "numeric")
    if family in ("varchar", "char"):
        return "text"
    if family in _JSON:
        return "jsonb"
    if family not in _TYPES:
        raise UnsupportedError(
            f"the column '{name}' has a type that is not written into PostgreSQL",
            detail=spark_type,
            hint="cast it to a string in the query's output",
        )
    return _TYPES[family]


def as_written(frame: DataFrame) -> DataFrame:
    """Return the rows with nested values as JSON, under names that need no quotes."""
    from pyspark.sql import functions

    fields = frame.schema.fields
    plain = frame.toDF(*(f"_{number}" for number in range(len(fields))))
    written = [
        functions.to_json(name) if column_type(name, field.dataType) == "jsonb" else plain[name]
        for name, field in zip(plain.columns, fields, strict=True)
    ]
    return plain.select(*written)


def copy_text(token: str, batch: pa.RecordBatch, place: int | None = None) -> bytes:
    r"""Return a batch as CSV, with a token in front of each row and, where it is told, its place.

    The first row has that place, and each one the next.

    Examples
    --------
    >>> rows = pa.record_batch({"name": ["a", "", None], "raw": [b"\x00", None, b""]})
    >>> print(copy_text("t", rows).decode(), end="")
    "t","a","\x00"
    "t","",
    "t",,"\x"
    """
    size = batch.num_rows
    places = [] if place is None else [pa.array(range(place, place + size), pa.int64())]
    columns = [pa.repeat(pa.scalar(token), size), *places, *map(_as_text, batch.columns)]
    sink = io.BytesIO()
    # All texts are quoted and NULL is not, which is how COPY tells NULL from an empty text.
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    names = [f"_{number}" for number in range(len(columns))]
    csv.write_csv(pa.table(columns, names=names), sink, options)
    return sink.getvalue()


def _as_text(column: pa.Array) -> pa.Array:
    """Return what CSV cannot hold, or PostgreSQL reads differently, as text."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        values = (None if value is None else f"\\x{value.hex()}" for value in column.to_pylist())
        return pa.array(values, pa.string())
    if pa.types.is_decimal(column.type):
        return pc.cast(column, pa.string())
    if pa.types.is_timestamp(column.type) and column.type.tz:
        return pc.cast(column, pa.timestamp("us", "UTC"))
    return column
