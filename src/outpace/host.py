"""Where a query runs: in process for tables, on Spark for its DataFrames; told by the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import pyarrow as pa

from outpace.local.frames import TableLike
from outpace.local.match import match as match_table
from outpace.pattern.query import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@overload
def match(data: DataFrame, query: Query) -> DataFrame: ...
@overload
def match(data: TableLike, query: Query) -> pa.Table: ...
def match(data: TableLike, query: Query) -> object:
    """Find the matches of a query.

    Parameters
    ----------
    data
        A Spark DataFrame (classic or Connect), an Arrow table, a pandas or polars frame, or a
        DuckDB relation.
    query
        What to detect and what to return.

    Returns
    -------
    pyspark.sql.DataFrame or pyarrow.Table
        Lazy on Spark. In process: partitions in the order of their first row, matches of a
        partition in their own order.

    Examples
    --------
    >>> table = pa.table({"ts": [1, 2, 3, 4], "price": [10.0, 8.0, 7.0, 9.0]})
    >>> dip = (Query("dip").order_by("ts").pattern("STRT DOWN+ UP+")
    ...        .define(DOWN="price < PREV(price)", UP="price > PREV(price)")
    ...        .measures(bottom="LAST(DOWN.price)", ticks="COUNT(*)"))
    >>> match(table, dip).to_pylist()
    [{'bottom': 7.0, 'ticks': 4}]
    """
    if type(data).__module__.startswith("pyspark.sql"):
        from outpace.spark.match import match_frame

        return match_frame(data, query)  # type: ignore[arg-type]  # told by its module's name
    return match_table(data, query)
