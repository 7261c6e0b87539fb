"""Tables of all kinds go in, Arrow comes out, and no pattern blows up."""

from __future__ import annotations

import datetime
import io
import math
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from rich.console import Console

import outpace as op
from outpace.compiler.kernel import head_start
from outpace.engine.match import choose, graph, partitions, twin
from outpace.report.progress import Bar

DIP = (
    op.Query("dip")
    .partition_by("symbol")
    .order_by("ts")
    .pattern("STRT DOWN+ UP+")
    .define(DOWN="price < PREV(price)", UP="price > PREV(price)")
    .measures(bottom="LAST(DOWN.price)", ticks="COUNT(*)")
    .within("1 hour")
)


def pushed(table, query):
    stream = op.open(query)
    stream.push(table)
    return stream.finish()


START = datetime.datetime(2026, 1, 5, 9, 0)
TICKS = pa.table(
    {
        "symbol": ["x", "y", "x", "x", "y", "x", "y"],
        "ts": [START + datetime.timedelta(minutes=m) for m in (0, 1, 2, 3, 4, 5, 6)],
        "price": [10.0, 5.0, 8.0, 7.0, 4.0, 9.0, 6.0],
    }
)
DIPS = [
    {"symbol": "x", "bottom": 7.0, "ticks": 4},
    {"symbol": "y", "bottom": 4.0, "ticks": 3},
]


@pytest.mark.parametrize(
    "data",
    [
        TICKS,
        TICKS.to_batches()[0],
        TICKS.to_reader(),
        TICKS.to_pandas(),
        TICKS.to_pandas().set_index("ts", drop=False),
        pl.from_arrow(TICKS),
        pl.from_arrow(TICKS).lazy().collect(),  # type: ignore[union-attr]  # a frame, not a series
        TICKS.to_pydict(),
    ],
    ids=["table", "batch", "reader", "pandas", "pandas index", "polars", "polars lazy", "dict"],
)
def test_every_kind_of_table_goes_in(data: object) -> None:
    assert op.match(data, DIP).to_pylist() == DIPS


def test_a_duckdb_relation_goes_in() -> None:
    connection = duckdb.connect()
    connection.register("ticks", TICKS)
    assert op.match(connection.sql("SELECT * FROM ticks"), DIP).to_pylist() == DIPS


def test_input_order_does_not_matter() -> None:
    shuffled = TICKS.take(pa.array([6, 2, 0, 5, 3, 1, 4]))
    found = op.match(shuffled, DIP).to_pylist()
    assert sorted(found, key=lambda row: str(row["symbol"])) == DIPS


def test_no_rows_give_an_empty_table_with_the_right_columns() -> None:
    found = op.match(TICKS.slice(0, 0), DIP)
    assert found.num_rows == 0
    assert found.schema.names == ["symbol", "bottom", "ticks"]


def test_chunked_input_is_one_table() -> None:
    chunked = pa.concat_tables([TICKS.slice(i, 1) for i in range(TICKS.num_rows)])
    assert op.match(chunked, DIP).to_pylist() == DIPS


def labels(pattern: str, kinds: str, **definitions: str) -> list[list[str]]:
    table = pa.table({"ts": range(len(kinds)), "kind": list(kinds)})
    query = (
        op.Query("q")
        .order_by("ts")
        .pattern(pattern)
        .define(definitions)
        .measures(labels="ARRAY_AGG(CLASSIFIER())")
    )
    return [row["labels"] for row in op.match(table, query).to_pylist()]


@pytest.mark.parametrize(
    ("pattern", "kinds"),
    [
        ("A+ B+", "a" * 5000),
        ("(A | B)* C", "a" * 5000),
        ("(A+)+ C", "a" * 5000),
        ("((A?)*)+ C", "a" * 2000),
        ("(A* B*)* C", "a" * 2000),
        ("A{,50} A{50} C", "a" * 2000),
    ],
)
@pytest.mark.parametrize("skip", ["skip_past_last_row", "skip_to_next_row"])
def test_ambiguous_patterns_stay_polynomial(pattern: str, kinds: str, skip: str) -> None:
    table = pa.table({"ts": range(len(kinds)), "kind": list(kinds)})
    query = (
        op.Query("q")
        .order_by("ts")
        .pattern(pattern)
        .define({"C": "kind = 'c'"} if "C" in pattern else {})
        .measures(first="FIRST(ts)", last="LAST(ts)")
    )
    found = op.match(table, getattr(query, skip)())
    if "C" in pattern:
        assert found.num_rows == 0
    else:
        starts = len(kinds) - 1 if skip == "skip_to_next_row" else 1
        assert found.num_rows == starts
        assert set(found["last"].to_pylist()) == {len(kinds) - 1}


def test_permute_of_eight_finds_any_order() -> None:
    names = "ABCDEFGH"
    definitions = {name: f"kind = '{name.lower()}'" for name in names}
    pattern = f"PERMUTE({', '.join(names)})"
    assert labels(pattern, "hgfedcba" * 50, **definitions) == [list("HGFEDCBA")] * 50


def test_a_search_that_must_be_exponential_stops_with_a_clear_error() -> None:
    table = pa.table({"ts": range(60)})
    query = (
        op.Query("q")
        .order_by("ts")
        .pattern("(A | B)* C")
        .define(C="COUNT(A.ts) = 61 AND COUNT(B.ts) = 61")
        .measures(n="COUNT(*)")
    )
    with pytest.raises(op.MatchError, match="the search for a match took more than"):
        op.match(table, query)


def test_all_matches_are_counted_without_being_listed() -> None:
    rng = np.random.default_rng(1)
    table = pa.table(
        {"ts": np.arange(1_000_000), "kind": rng.integers(0, 10, 1_000_000).astype(np.int8)}
    )
    query = (
        op.Query("q")
        .order_by("ts")
        .pattern("A ->> B ->> C ->> D")
        .within(1000)
        .define(A="kind = 0", B="kind = 1", C="kind = 2", D="kind = 3")
        .measures(at="D.ts")
    )
    count = op.search(table, query).count()
    assert 1.5e10 < count < 1.9e10
    few = op.match(table, query.limit(10))
    assert few.num_rows == 10


def test_a_match_of_many_rows_needs_no_deep_stack() -> None:
    table = pa.table({"ts": range(200_000), "v": range(200_000)})
    query = (
        op.Query("q").order_by("ts").pattern("A B+").define(B="v > PREV(v)").measures(n="COUNT(*)")
    )
    assert op.match(table, query).to_pylist() == [{"n": 200_000}]


def test_the_jvm_is_not_started_and_pyspark_not_imported() -> None:
    script = (
        "import sys, outpace as op\n"
        "op.match({'ts': [1]}, op.Query('q').pattern('A').measures(n='COUNT(*)'))\n"
        "sys.exit(any(name.startswith('pyspark') for name in sys.modules))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_pandas_missing_values_are_null() -> None:
    frame = pd.DataFrame({"ts": [1, 2, 3], "v": [1.0, None, 3.0]})
    query = op.Query("q").order_by("ts").pattern("A").define(A="v IS NULL").measures(at="A.ts")
    assert op.match(frame, query).to_pylist() == [{"at": 2}]


def test_a_column_without_one_type_only_stops_a_query_that_uses_it() -> None:
    mixed = {"ts": [1, 2], "v": [1, 2], "Junk": [1, "a"]}
    query = op.Query("q").order_by("ts").pattern("A").define(A="v > 1").measures(at="A.ts")
    events = [dict(zip(mixed, values, strict=True)) for values in zip(*mixed.values(), strict=True)]
    for data in (mixed, MappingProxyType(mixed), events, pd.DataFrame(mixed)):
        assert op.match(data, query).to_pylist() == [{"at": 2}]
        assert op.open(query).push(data).to_pylist() == [{"at": 2}]
        for using in (query.all_rows_per_match(), query.measures(m="A.junk")):
            with pytest.raises(op.DataError, match="column 'Junk' cannot be read"):
                op.match(data, using)
    with pytest.raises(op.DataError, match="cannot read a table from an object of type dict"):
        op.match({"ts": [1, 2], "v": [1]}, query)


def test_timed_out_partial_matches_are_a_second_table() -> None:
    table = pa.table({"ts": [1, 2, 20], "kind": ["a", "b", "c"]})
    query = (
        op.Query("q")
        .order_by("ts")
        .pattern("A -> B -> C")
        .within(10)
        .define(A="kind = 'a'", B="kind = 'b'", C="kind = 'c'")
        .measures(at="C.ts")
    )
    result = op.search(table, query)
    assert result.table().num_rows == 0
    assert result.timed_out().to_pylist() == [
        {
            "first_time": 1,
            "last_time": 2,
            "labels": ["A", "B"],
            "rows": [0, 1],
            "reason": "no C within the time allowed",
        }
    ]


@pytest.mark.parametrize(("days", "found"), [(2, 0), (3, 1), (5, 1)])
def test_within_measures_dates_too(days: int, found: int) -> None:
    table = pa.table({"day": [datetime.date(2026, 1, 1), datetime.date(2026, 1, 3)]})
    query = op.Query("q").order_by("day").pattern("A B").measures(at="B.day")
    assert op.match(table, query.within(f"{days} days")).num_rows == found


def test_without_measures_every_host_shows_the_same_columns():
    # The columns of the input may have any name: with one row per match they do not come out.
    table = pa.table({"first_time": [1, 2, 3, 5], "rows": [5.0, 4.0, 6.0, 1.0]})
    query = op.Query().order_by("first_time").pattern("A B").define(B="rows < A.rows")
    expected = [
        {"match_number": 1, "first_time": 1, "last_time": 2, "rows": 2},
        {"match_number": 2, "first_time": 3, "last_time": 5, "rows": 2},
    ]
    found = op.search(table, query)
    assert (found.table().to_pylist(), found.count()) == (expected, 2)
    stream = op.open(query)
    streamed = [*stream.push(table).to_pylist(), *stream.finish().to_pylist()]
    assert streamed == expected
    windows = query.over(op.windows.count(4))
    assert op.match(table, windows).to_pylist() == expected
    numbered = op.match(table, query.over(op.windows.count(4), numbered=True))
    assert numbered.select(list(expected[0])).to_pylist() == expected
    connection = duckdb.connect()
    connection.register("events", table)
    clause = query.to_sql()
    assert op.sql(connection, f"SELECT * FROM events {clause}").to_pylist() == expected
    assert op.sql(connection, f"SELECT COUNT(*) AS n FROM events {clause}").to_pylist() == [
        {"n": 2}
    ]
    assert op.match(table, replace(query, order=())).to_pylist() == [
        {"match_number": 1, "rows": 2},
        {"match_number": 2, "rows": 2},
    ]


def test_progress_is_told_to_a_function_and_shown_as_a_bar() -> None:
    told: list[tuple[int, int]] = []
    over = DIP.over(op.windows.count(3))
    assert op.match(TICKS, over, progress=lambda *place: told.append(place)).num_rows == 1
    assert told[-1] == (7, 7)
    told.clear()
    pairs = op.Query("pairs").order_by("ts").pattern("A B").define(B="ts < 0").measures(a="A.ts")
    rows, over = {"ts": range(150_000)}, pairs.over(op.windows.count(30, slide=3))
    op.match(rows, over, progress=lambda *place: told.append(place))
    assert told[:2] == [(131_072, 150_000), (150_000, 150_000)]
    assert op.match(TICKS, DIP, progress=True).to_pylist() == DIPS
    with pytest.raises(op.BindError, match="progress is True, False or a function, not str"):
        op.match(TICKS, DIP, progress="yes")  # type: ignore[call-overload]


def test_the_bar_appears_after_a_while_and_goes_away() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with ExitStack() as stack:
        bar = Bar("dip", stack, console=console, patience_seconds=0)
        bar(30, 100)
        bar(60, 100)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "dip" in shown
    with ExitStack() as stack:
        quiet = Console(file=io.StringIO(), force_terminal=True, width=80)
        Bar("dip", stack, console=quiet)(30, 100)
    assert quiet.file.getvalue() == ""  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "run", [op.match, op.search, lambda data, q, **of: op.explain(q, data, **of)]
)
def test_only_a_stream_has_several_sources(run):
    table = pa.table({"ts": [1], "source": ["a"]})
    query = op.Query("q").order_by("ts").pattern("A").measures(at="A.ts")
    with pytest.raises(op.UnsupportedError, match="only a stream has several sources"):
        run(table, query, sources=["a", "b"])


@pytest.mark.parametrize("windows", [None, op.windows.count(9, slide=4), op.windows.count(9)])
@pytest.mark.parametrize("ask", [op.match, lambda *args: op.search(*args).count(), pushed])
def test_whatever_does_not_fit_into_memory_is_said_so(windows, ask, monkeypatch):
    def full(*_):
        raise MemoryError

    query = op.Query().order_by("ts").pattern("A ->> B").measures(n="1")
    query = query.define(B="ts > A.ts AND CLASSIFIER(A) = 'A'")
    for place in (choose, partitions):
        monkeypatch.setattr(place, "make_candidate_matcher", lambda _: None)
    monkeypatch.setattr(twin._EmittedMatches, "found", full)
    with pytest.raises(op.MatchError, match="the matches do not fit into memory") as caught:
        ask(pa.table({"ts": range(40)}), query if windows is None else query.over(windows))
    assert caught.value.hint == "take some with .limit(n), or shorten WITHIN or the windows"


def test_a_list_that_does_not_fit_into_memory_may_be_counted(monkeypatch):
    query = op.Query().order_by("ts").pattern("A ->> B").measures(n="1").limit(3, "start")
    monkeypatch.setattr(graph, "_SMALL", -1)
    monkeypatch.setattr(head_start, "left", -1)
    monkeypatch.setattr(graph, "_by_completion", lambda *_: np.empty(1 << 56))
    found = op.search({"ts": range(40)}, query)
    with pytest.raises(op.MatchError, match="the matches do not fit into memory") as caught:
        found.table()
    assert caught.value.hint.startswith("count them with .count(), ")
    assert found.count() == 37 * 3 + 2 + 1


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ([["a", "b"], ["a", "b"], ["ab"], None, [None], [], None], [2, 1, 2, 1, 1]),
        ([[0.0, math.nan], [-0.0, math.nan], [1.0], [], [None], None, None], [2, 1, 1, 1, 2]),
        ([[["a"], []], [["a"], []], [[], ["a"]], [None], [[None]], [], []], [2, 1, 1, 1, 2]),
        ([{"s": "a", "n": 1}, {"s": "a", "n": 1}, {"s": "a"}, {"n": 1}, {}, None], [2, 1, 1, 1, 1]),
    ],
)
def test_arrays_and_rows_of_any_values_are_keys(values, counts):
    table = pa.table({"key": values, "ts": range(len(values))})
    query = op.Query().partition_by("KEY").order_by("ts").pattern("A+")
    query = query.measures(n="COUNT(*)", first="FIRST(ts)")
    found = op.match(pa.concat_tables([table.slice(0, 3), table.slice(3)]), query)
    assert found.schema.field("key").type == table.schema.field("key").type
    assert found["n"].to_pylist() == counts
    assert repr(found["key"].to_pylist()) == repr(table["key"].take(found["first"]).to_pylist())
    assert op.search(table, query.within(2)).timed_out().column_names[0] == "key"
    assert "key as a key" in str(op.explain(query, table))
    with pytest.raises(op.BindError, match="has no order"):
        op.open(query).push(table)
