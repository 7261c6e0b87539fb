"""A navigation to a row that does not exist is NULL as a whole, in every matcher and in streams."""

import pyarrow as pa
import pytest

from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.kernel import make_kernel
from outpace.engine.match.reach import reach_of
from outpace.engine.match.task import match_block, prepare, whole_block
from outpace.engine.match.twin import TwinMatcher
from outpace.hosts.local.table import match
from outpace.pattern.query import Query

TABLE = pa.table(
    {
        "k": ["a", "a", "a", "b", "b"],
        "ts": [1, 2, 3, 1, 2],
        "x": pa.array([5, None, -3, None, 7], pa.int64()),
    }
)
BASE = Query().partition_by("k").order_by("ts")


def rows_that_fit(condition: str, pattern: str = "A") -> list[int]:
    """Return the rows at which a match starts, which the chosen matcher and the twin agree on."""
    query = BASE.pattern(pattern).define(A=condition).skip_to_next_row().measures(n="count(*)")
    task = prepare(query, TABLE.schema)
    block = whole_block(task, TABLE)
    twin = match_block(TwinMatcher(task), block).found.start.tolist()
    chosen = match_block(choose_matcher(task), block).found.start.tolist()
    assert chosen == twin
    return twin


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("PREV(coalesce(x, 0)) = 0", [2, 4]),
        ("PREV(coalesce(x, 0)) is null", [0, 3]),
        ("PREV(x is null)", [2, 4]),
        ("not PREV(x is null)", [1]),
        ("NEXT(case when x > 0 then 1 else 2 end) = 2", [0, 1]),
        ("PREV(x < 0 or true)", [1, 2, 4]),
        ("NEXT(x < 0 or true, 2)", [0]),
        ("PREV(x is distinct from 5)", [2, 4]),
        ("PREV(concat_ws('-', cast(x as varchar))) = ''", [2, 4]),
        ("coalesce(PREV(x is null), true)", [0, 2, 3, 4]),
    ],
)
def test_definitions_that_look_at_rows_near_by(condition: str, expected: list[int]) -> None:
    task = prepare(BASE.pattern("A").define(A=condition).measures(n="count(*)"), TABLE.schema)
    assert make_kernel(task) is not None
    assert rows_that_fit(condition) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("FIRST(B.x < 0 or true)", []),
        ("FIRST(B.x < 0 or true) is null", [0, 1, 2, 3, 4]),
        ("LAST(coalesce(A.x, 0), 1) is null", [0, 1, 2, 3, 4]),
        ("PREV(FIRST(coalesce(A.x, 0))) = 0", [2, 4]),
        ("NEXT(coalesce(CLASSIFIER(), 'none')) = 'none'", [0, 1, 3]),
    ],
)
def test_definitions_that_look_at_the_match(condition: str, expected: list[int]) -> None:
    assert rows_that_fit(condition, "A B*?") == expected


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("PREV(coalesce(x, 0))", [None, 5, 0, None, 0]),
        ("PREV(x is null)", [None, False, True, None, True]),
        ("NEXT(case when x > 0 then 1 else 2 end)", [2, 2, None, 1, None]),
        ("FIRST(B.x < 0 or true)", [None, True, True, None, True]),
        ("LAST(coalesce(A.x, 0), 1)", [None] * 5),
        ("FINAL LAST(coalesce(B.x, 0))", [-3, -3, -3, 7, 7]),
        ("NEXT(array[x], 2)", [[-3], None, None, None, None]),
        ("PREV(coalesce(CLASSIFIER(), 'none'))", [None, "A", "B", None, "A"]),
    ],
)
def test_measures(measure: str, expected: list[object]) -> None:
    query = BASE.pattern("A B*").all_rows_per_match().measures(value=measure)
    assert match(TABLE, query)["value"].to_pylist() == expected


def test_an_empty_match_has_no_row() -> None:
    query = BASE.pattern("A*").define(A="x > 100").measures(value="LAST(coalesce(A.x, 0))")
    assert match(TABLE, query)["value"].to_pylist() == [None] * 5


def test_a_guard_reaches_as_far_as_its_row() -> None:
    """No column is left to read, but the answer depends on a row that is yet to come."""
    query = BASE.pattern("A").define(A="NEXT(x < 0 or true, 3)").measures(v="PREV(x is null, 2)")
    reach = reach_of(prepare(query, TABLE.schema))
    assert (reach.back, reach.ahead) == (2, 3)


def test_a_compiled_definition_with_a_guard_equals_the_twin() -> None:
    assert rows_that_fit("LAST(coalesce(A.x, 0), 1) = 0 or count(*) = 1", "A{2}") == [1, 3]
    condition = "PREV(coalesce(x, 0)) = 0 and count(A.*) = 1"
    assert rows_that_fit(condition) == [2, 4]
