"""The schema of a DataFrame: asked of Spark, or told where Spark does not answer.

On Connect a question is a request to the server. In a flow of a declarative pipeline Spark refuses
it, as the tables that the flow reads may not exist yet; there the user tells the schema.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from outpace.errors import UnsupportedError

#: What Spark says to questions inside a flow of a pipeline.
_IN_PIPELINE: Final = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"

#: How Spark writes and reads times as text with all their microseconds: its own formats stop at
#: milliseconds, so that different times would be one key, or come back from a file as others.
TIME_FORMATS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def with_schema(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return a DataFrame that knows its schema without asking Spark.

    Parameters
    ----------
    frame
        What a flow of a pipeline reads, for example `spark.read.table("ticks")`.
    schema
        The columns that it has, in their order; those of the pipeline's own table. Nothing is
        converted: where a column has another type, the flow fails.

    Returns
    -------
    pyspark.sql.DataFrame
        The same rows. Give it to `op.match`.
    """
    if not type(frame).__module__.startswith("pyspark.sql.connect"):
        return frame
    copy = frame.select("*")
    # `DataFrame.to` would be the public way, but the server resolves what stands below it at once.
    copy._cached_schema = schema  # type: ignore[attr-defined]  # of the Connect class alone
    return copy


def is_streaming(frame: DataFrame) -> bool:
    """Say whether a DataFrame is a stream.

    In a flow of a pipeline Spark does not answer, and logs the question as an error. There its plan
    tells whether it reads a stream.
    """
    if not type(frame).__module__.startswith("pyspark.sql.connect"):
        return bool(frame.isStreaming)
    remote: Any = frame
    client = remote.sparkSession.client
    return reads_stream(remote._plan.plan(client)) if _in_flow(client) else remote.isStreaming


def reads_stream(plan: Any) -> bool:
    """Say whether a plan of Spark Connect, as a message, reads a stream anywhere."""
    parts = [plan]
    while parts:
        for field, value in parts.pop().ListFields():
            if field.name == "is_streaming" and value:
                return True
            if field.message_type is not None and not field.message_type.GetOptions().map_entry:
                parts.extend([value] if hasattr(value, "ListFields") else value)
    return False


def _in_flow(client: Any) -> bool:
    """Say whether a client is in a flow of a pipeline: what it asks is marked so."""
    given = getattr(client.thread_local, "user_context_extensions", ())
    return any(extension.type_url.endswith("PipelineAnalysisContext") for _, extension in given)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the schema that a DataFrame's rows have when they cross to Python."""
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    try:
        return to_arrow_schema(frame.schema, timezone=zone)
    except PySparkException as error:
        if error.getCondition() != _IN_PIPELINE:
            raise
        raise UnsupportedError(
            "inside a flow of a pipeline, Spark does not say which columns there are",
            hint="tell them: op.match(op.spark.with_schema(frame, schema), query); op.sql goes "
            "outside the flow's function",
        ) from error
