"""Navigations around whole expressions are printed as users write them, and as one value."""

import pyarrow as pa
import pytest
from support.explaining import searched

from outpace.explanation.print_bound import BoundPrinter
from outpace.explanation.why import why
from outpace.pattern.bind.query import bind
from outpace.pattern.query import Query

TABLE = pa.table({"ts": [1, 2, 3], "x": pa.array([None, 4, 6], pa.int64())})


@pytest.mark.parametrize(
    "text",
    [
        "PREV(COALESCE(x, 0))",
        "NEXT(x IS NULL, 2)",
        "LAST(A.x IS NULL)",
        "FIRST(COALESCE(A.x, 0) + 1)",
        "PREV(LAST(CASE WHEN U.x > 1 THEN 2 ELSE 3 END, 1), 2)",
        "NEXT(CONCAT_WS('-', CLASSIFIER(), 'x'))",
        "NEXT(COALESCE(CLASSIFIER(A), 'x'))",
        "NOT PREV(x IS NULL) AND PREV(x) > 3",
        "ARRAY_AGG(A.x ORDER BY A.ts DESC NULLS FIRST, A.x) FILTER (WHERE A.x > 1)",
    ],
)
def test_navigation_as_written(text: str) -> None:
    query = Query().order_by("ts").pattern("A B").subset(U=("A", "B")).measures(value=text)
    bound = bind(query.all_rows_per_match(), TABLE.schema)
    printer = BoundPrinter(("A", "B"), bound.subsets)
    assert printer.text(bound.measures[0].expression) == text


def test_why_shows_the_value_of_the_whole_navigation() -> None:
    query = (
        Query()
        .order_by("ts")
        .pattern("A B")
        .define(A="PREV(coalesce(x, 0)) is null", B="PREV(coalesce(x, 0)) < x")
    )
    case = searched(TABLE, query.measures(n="count(*)"))
    told = why(case.task, case.block, case.found, 0)
    assert "PREV(COALESCE(x, 0)) IS NULL" in told
    assert "NULL IS NULL" in told
    assert "0 < 4" in told
