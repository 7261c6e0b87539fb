"""Conditions, tables and blocks on which compiled matchers are compared with the twin."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st

from outpace.engine.match.contract import WORK_AT_ONCE, Block
from outpace.engine.match.task import prepare, whole_block
from outpace.errors import BindError, MatchError

LOCAL = (
    "x = 0",
    "x = 1",
    "x <= 1",
    "x > PREV(x)",
    "x < NEXT(x)",
    "s = 'a' OR x = 2",
    "x IN (0, 2) AND f > 0.5",
)
PATH = (
    "x > A.x",
    "MATCH_NUMBER() % 2 = 1 OR x > A.x",
    "x >= LAST(x, 1)",
    "COUNT(*) < 4",
    "x = 1 AND (COUNT(B.x) = 1 OR B.f > (SUM(B.f) - B.f) / (COUNT(B.f) - 1))",
    "SUM(x) < 4 OR x IS NULL",
    "f > AVG(A.f)",
    "MAX(x) - MIN(x) < 2",
    "COALESCE(PREV(LAST(B.x)), 1) = x",
    "CASE WHEN x = FIRST(A.x) THEN f > 0.25 ELSE s = 'a' END",
    "PREV(COALESCE(A.x, 1)) = 1 OR LAST(COALESCE(B.x, 0), 1) = x",
    "NOT (x = FIRST(A.x, 1)) OR LAST(B.x, 1) > 0",
    "x = FIRST(B.x, 2) OR LAST(A.x, 3) IS NULL",
    "s = A.s",
    "s >= LAST(s, 1) AND s <> MAX(B.s)",
    "UPPER(s) = UPPER(A.s) OR A.s LIKE 'b%'",
    "s IN (A.s, LAST(B.s), 'a')",
    "x IS DISTINCT FROM A.x AND s IS NOT DISTINCT FROM LAST(B.s, 1)",
    "m > A.m + 1.5 OR m * A.m < 0.4",
    "SUM(m) < 3 AND m >= AVG(A.m)",
    "m = MAX(m) OR CAST(A.m AS DOUBLE) = f",
    "m - x < A.m * 2",
    "t - A.t < INTERVAL '2' SECOND AND t < A.t + INTERVAL '3' SECOND",
    "t = MIN(t) OR EXTRACT(SECOND FROM A.t) = EXTRACT(SECOND FROM t)",
    "w > A.w - INTERVAL '1' SECOND OR w + A.w < t - A.t",
    "d > A.d AND d - A.d < INTERVAL '3' DAY",
    "COUNT_IF(x > 0) < 2 OR COUNT_IF(B.f > 0.25) = 1",
    "12 / A.x > 6 OR x = A.x + B.x",
    "STDDEV(f) < 0.4 OR VAR_POP(B.x) > 0",
    "f > AVG(A.f) + STDDEV_POP(A.f) AND VARIANCE(x) >= 0",
    "ABS(x - A.x) = 1 OR ROUND(f - A.f, 1) >= 0.3 OR ABS(m - A.m) < 0.5",
    "(x - A.x) % 2 = -1 OR (x + 4) div (A.x + 1) > 1 OR f % (A.f + 0.5) > 0.2",
    "GREATEST(x, A.x) - LEAST(x, A.x) < 2 AND GREATEST(s, A.s) <> 'b'",
    "SQRT(POWER(f - A.f, 2) + x) < 1 OR LN(A.x - x) > 0 OR ISNAN(SQRT(x - A.x))",
    "FLOOR(m - A.m) > 0 OR CEIL(m * A.m) = 1 OR SIGN(m - A.m) = -1 OR TRUNCATE(f - A.f) = 1",
    "m % (A.m + 1) > 0.3 OR ROUND(m - A.m, 1) = 0.5",
    "date_diff('hour', A.t, t) > 12 AND to_milliseconds(t - A.t) < 180000000",
    "w * 1.5 > A.w - w OR to_unixtime(A.t) + x > 86401 OR date_diff('day', d, A.d) < -1",
    "LEVENSHTEIN_DISTANCE(s, A.s) < 1 AND x >= A.x",
    "CARDINALITY(ARRAY_AGG(x)) < 3 OR LENGTH(s || A.s) = 2 AND x > A.x",
    "SUM(x) FILTER (WHERE f > 0.2) < 2 OR COUNT(B.*) FILTER (WHERE B.x > 0) = 1",
    "COUNT(DISTINCT x) < 3 AND SUM(DISTINCT f) > 0.5 OR COUNT(DISTINCT B.s) = 2",
    "BOOL_AND(x > 0) OR BOOL_OR(B.f > 0.3) AND MIN(x > 0) = (s = 'a')",
    "MAX_BY(x, f) > MIN_BY(x, s) OR MAX_BY(A.s, A.x) = 'b'",
    "w > AVG(w) OR PRODUCT(f) > 0.2",
    "g - A.g > 0.1 OR g * A.g <= 0.3 OR g / A.g > 1",
    "s IN (A.s, 'b') OR BITWISE_AND(x, A.x) = 1 OR COALESCE(LAST(B.s), A.s) = 'a'",
)


#: What compiled code does at once: as little as it can, a little, all of it.
WORKS = st.sampled_from([0, 5, WORK_AT_ONCE])


def tables(size=14):
    row = st.tuples(
        st.integers(0, 2),
        st.integers(0, 2) | st.none(),
        st.sampled_from([0.0, 0.25, 0.5, 1.5]) | st.none(),
        st.sampled_from(["a", "b", "B"]) | st.none(),
        st.integers(0, 1),
        st.decimals("-0.5", "3", places=2) | st.none(),
        st.none() | st.integers(0, 4).map(lambda day: 86_401 * day),
        st.none() | st.integers(-1, 2),
    )
    return st.lists(row, max_size=size).map(_table)


def _table(rows):
    steps, x, f, s, key, m, t, w = zip(*rows, strict=True) if rows else ((),) * 8
    return pa.table(
        {
            "ts": pa.array(np.cumsum(steps).astype(np.int64)),
            "x": pa.array(x, pa.int8()),
            "f": pa.array(f, pa.float64()),
            "g": pa.array(f, pa.float32()),
            "s": pa.array(s, pa.string()),
            "key": pa.array(key, pa.int64()),
            "m": pa.array(m, pa.decimal128(6, 2)),
            "t": pa.array(t, pa.timestamp("s")),
            "w": pa.array(w, pa.duration("s")),
            "d": pa.array(t, pa.timestamp("s")).cast(pa.date32()),
        }
    )


def task_of(query, table, *, timeouts=False):
    try:
        return prepare(query, table.schema, timeouts=timeouts)
    except BindError:
        assume(False)


def outcome_of(matcher, block, resume):
    try:
        return matcher(block, resume)
    except MatchError as error:
        return error.message


def same_partial(one, other):
    """Compare the partial matches of two outcomes."""
    assert (one.timed_out is None) == (other.timed_out is None)
    if one.timed_out is not None:
        for name in ("segment", "start", "offsets", "rows", "positions", "settled", "awaited"):
            left, right = (getattr(each.timed_out, name).tolist() for each in (one, other))
            assert left == right, f"timed out: {name}"


def prefix_of(task, table, size, watermark):
    """Return the block of a stream's first rows, with nothing dropped."""
    block = whole_block(task, table.slice(0, size))
    return Block(
        block.columns,
        block.segments,
        block.visible,
        block.ordinals,
        block.arrivals,
        block.times,
        ended=False,
        watermark=watermark,
    )
