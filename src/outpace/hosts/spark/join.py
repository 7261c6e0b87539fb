"""Joining two DataFrames, batch or streaming: one stream of both sides, and the query over it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from outpace.errors import UnsupportedError
from outpace.hosts.spark.frame import match_frame
from outpace.hosts.spark.schema import arrow_schema, is_streaming, with_schema
from outpace.hosts.spark.stream_search import StreamSearch
from outpace.pattern.bind.disorder import SOURCE
from outpace.pattern.bind.join import BoundJoin, bind_join
from outpace.pattern.join import SIDES, Join
from outpace.plan.crossing import quoted
from outpace.plan.stream_plan import check_result_alone


def join_frames(left: DataFrame, right: DataFrame, join: Join) -> DataFrame:
    """Join two DataFrames; nothing runs before the result is used."""
    return join_sides(left, right, bind_join(join, arrow_schema(left), arrow_schema(right)))


def join_sides(left: DataFrame, right: DataFrame, bound: BoundJoin) -> DataFrame:
    """Join two DataFrames by a join that fits them."""
    streams = is_streaming(left), is_streaming(right)
    if streams[0] != streams[1]:
        still = SIDES[streams.index(False)]
        raise UnsupportedError(
            f"the {still} side is no stream, but the other is",
            hint="a table that does not change is joined by DataFrame.join; else read it as a"
            " stream, too",
        )
    if streams[0]:
        check_result_alone(bound.query)
    return match_frame(_both(left, right, bound), bound.query, SIDES if streams[0] else None)


def search_frames(left: DataFrame, right: DataFrame, join: Join) -> StreamSearch:
    """Prepare a join of two streams, and what of their rows takes no part in it."""
    for side, frame in zip(SIDES, (left, right), strict=True):
        if not is_streaming(frame):
            raise UnsupportedError(
                f"the {side} side is no stream, so no row of it comes late",
                hint="op.join(left, right, ...) joins tables",
            )
    bound = bind_join(join, arrow_schema(left), arrow_schema(right))
    return StreamSearch(_both(left, right, bound), bound.query, SIDES)


def _both(left: DataFrame, right: DataFrame, bound: BoundJoin) -> DataFrame:
    """Return the rows of both sides, as the query over them reads them."""
    sides = [_rows(frame, side, bound) for frame, side in zip((left, right), SIDES, strict=True)]
    return with_schema(sides[0].union(sides[1]), from_arrow_schema(bound.schema))


def _rows(frame: DataFrame, side: str, join: BoundJoin) -> DataFrame:
    """Return the rows of one side as the stream of both has them."""
    columns = join.columns[SIDES.index(side)]

    def column(name: str) -> Column:
        if name == SOURCE:
            return sf.lit(side)
        return sf.col(quoted(columns[name])) if name in columns else sf.lit(None)

    fields = from_arrow_schema(join.schema).fields
    return frame.select(*(column(one.name).cast(one.dataType).alias(one.name) for one in fields))
