"""What a function for `foreachBatch` knows of its batch: whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outpace.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def query_id(frame: DataFrame) -> str:
    """Return the id of the streaming query whose batch this is; its checkpoint holds it."""
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise UnsupportedError(
            "Spark Connect does not tell the function which query its batch comes from",
            hint="name the stream: writer(…, stream='dips')",
        )
    found = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if found is None:
        raise UnsupportedError(
            "the rows are not a batch of a stream",
            hint="give the writer to foreachBatch, or name the stream: writer(…, stream='dips')",
        )
    return found
