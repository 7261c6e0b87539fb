"""How queries, searches and explanations show themselves."""

from collections.abc import Callable

import pyarrow as pa
import pytest

import outpace as op
from outpace.pattern.notebook import ROWS_SHOWN

HOSTILE = "<script>alert('x')</script>"
RISE = op.Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")
TABLE = {"ts": [1, 2, 3], "x": [5, 4, 6]}


class Nothing(op.Operator):
    """Gives nothing."""

    output = pa.schema({"n": pa.int64()})

    def process(self, events: pa.Table) -> None:
        return None


def test_a_query_shows_its_clause() -> None:
    assert repr(RISE).splitlines()[:2] == ["query rise", "MATCH_RECOGNIZE ("]
    assert '<span style="color:#1f77b4;font-weight:bold">PATTERN</span>' in RISE._repr_html_()


@pytest.mark.parametrize(
    "query",
    [
        op.Query(),
        op.Query().order_by("ts"),
        op.Query().apply(Nothing),
        op.Query().apply(lambda: Nothing()),
        RISE.over(op.windows.count(3)),
        RISE.define(B="x > 'a\nb'"),
        RISE.define(C="x > 1"),
    ],
)
def test_a_query_that_is_not_whole_shows_itself_too(query: op.Query) -> None:
    assert "query" in repr(query)
    assert "query" in query._repr_html_()


def test_names_and_values_are_escaped() -> None:
    query = (
        op.Query(HOSTILE).order_by("ts").pattern("A").measures({HOSTILE: "A.x"})
        .define(A=f"x = '{HOSTILE.replace(chr(39), chr(39) * 2)}'")
    )  # fmt: skip
    found = op.search({"ts": [1], "x": [HOSTILE]}, query)
    for html in (query._repr_html_(), found._repr_html_(), found.why(0)._repr_html_()):
        assert "<script>" not in html
        assert "&lt;script&gt;" in html


def test_a_search_shows_its_first_rows() -> None:
    html = op.search(TABLE, RISE)._repr_html_()
    assert "<td>3</td>" in html
    assert "rise: 1 row from 3 events" in html
    single = op.Query().order_by("ts").pattern("A").measures(x="A.x")
    many = op.search({"ts": list(range(50)), "x": [None] * 50}, single)._repr_html_()
    assert many.count("<i>NULL</i>") == ROWS_SHOWN
    assert "and 30 more" in many


def test_to_look_at_a_search_does_not_run_it() -> None:
    broken = op.search({"ts": [1]}, RISE)
    assert repr(broken).startswith("search for rise in 1 row")


def test_explanations_need_no_print() -> None:
    found = op.search(TABLE, RISE)
    for text in (found.why(0), found.why_not([0, 1])):
        assert repr(text) == str(text)
        assert text._repr_html_().startswith("<pre")


def test_streams_say_how_far_they_are() -> None:
    matcher = op.open(RISE)
    assert repr(matcher) == "stream of rise: nothing pushed yet"
    matcher.push(TABLE)
    assert repr(matcher).startswith("stream of rise: ")
    with op.run(RISE, op.sources.simple_events(3)) as run:
        assert repr(run) == "run of rise over simple: 0 events"


def test_greedy_is_told_apart_from_what_flink_calls_so() -> None:
    with pytest.raises(op.BindError, match="no quantifier") as caught:
        op.step("A").greedy()
    assert "possessive()" in str(caught.value.hint)
    with pytest.warns(UserWarning, match="Flink's greedy\\(\\) is possessive"):
        greedy = op.step("A").one_or_more().greedy()
    assert greedy.tree == op.step("A").one_or_more().tree


SNOWFLAKE = """MATCH_RECOGNIZE (
  ORDER BY ts
  MEASURES MATCH_SEQUENCE_NUMBER() AS place, LEAD(x, 1) AS following
  ALL ROWS PER MATCH
  PATTERN (A B)
  DEFINE B AS x > LAG(x, 1)
)"""


def test_words_of_snowflake_are_read_in_its_dialect() -> None:
    query = op.Query.from_sql(SNOWFLAKE, dialect="Snowflake")
    rows = op.match(TABLE, query).to_pylist()
    assert [row["place"] for row in rows] == [1, 2]
    assert [row["following"] for row in rows] == [6, None]
    again = op.Query.from_sql(query.to_sql())
    assert op.match(TABLE, again).to_pylist() == rows


def test_a_measure_of_an_earlier_pattern_is_named() -> None:
    with pytest.raises(op.BindError, match="unknown variable 'B'\n  measure at") as caught:
        op.match(TABLE, RISE.pattern("A C"))
    assert "an earlier pattern had it" in str(caught.value)
    assert "write .measures(at=...) anew" in str(caught.value.hint)


def test_lag_takes_no_value_for_missing_rows() -> None:
    with pytest.raises(
        op.PatternSyntaxError, match=r"(?s)LAG takes no value.*COALESCE\(LAG\(x, 1\)"
    ):
        op.Query.from_sql(SNOWFLAKE.replace("LAG(x, 1)", "LAG(x, 1, 0)"), dialect="snowflake")


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: RISE.pattern(None), 'pattern("A B+ C")'),
        (lambda: RISE.pattern(["A", "B"]), 'pattern("A B+ C")'),
        (lambda: RISE.partition_by(3), 'partition_by("symbol")'),
        (lambda: RISE.within(-1), 'within("1 hour")'),
        (lambda: RISE.limit(1.5), "limit(10)"),
        (lambda: RISE.measures("A.ts"), "measures(since='FIRST(A.ts)')"),
        (lambda: RISE.define("x > 1"), "define(A='price > 3')"),
    ],
)
def test_a_wrong_argument_gets_an_example(make: Callable[[], object], hint: str) -> None:
    with pytest.raises(op.BindError) as caught:
        make()
    assert hint in str(caught.value.hint)


def test_a_second_pattern_sets_definitions_aside() -> None:
    query = RISE.measures(n="COUNT(*)").define(A="x < 9").pattern("A C")
    assert [name for name, _ in query.definitions] == ["A"]
    back = query.pattern("A B")
    assert dict(back.definitions) == dict(RISE.define(A="x < 9").definitions)
    assert op.match(TABLE, back).num_rows == 1
    # A definition given anew wins over the one that was set aside.
    assert (
        dict(query.define(B="x > 0").pattern("A B").definitions)["B"] != dict(back.definitions)["B"]
    )


@pytest.mark.parametrize(
    "query",
    [
        op.Query().order_by("ts").pattern("A B").define(Z="x > 1"),
        op.Query().order_by("ts").define(Z="x > 1").pattern("A B").pattern("A C"),
    ],
)
def test_a_definition_that_no_pattern_had_is_a_mistake(query: op.Query) -> None:
    with pytest.raises(op.BindError, match="variable 'Z' is not in the pattern"):
        op.match(TABLE, query)
