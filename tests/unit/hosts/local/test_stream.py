"""A stream in pieces gives what the whole table gives, however it is cut, saved and resumed."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import outpace as op
from outpace.engine.order import last_rows

PATTERNS = [
    "A B+ C",
    "A B*? C",
    "(A B C A | A B)",
    "A+",
    "A -> B -> C",
    "A -> B+ -> C",
    "A -> !B -> C",
    "A !B C",
    "A ->> B ->> C",
    "A ->> B+",
    "PERMUTE(A, B, C)",
    "^ A B",
    "A B $",
    "(A | B)* C",
    "A? B",
]

QUERIES = {
    f"{text} / {skip}": getattr(
        op.Query("q")
        .order_by("ts")
        .pattern(text)
        .define({name: f"kind = '{name.lower()}'" for name in "ABC" if name in text})
        .measures(
            n="MATCH_NUMBER()",
            first="FIRST(id)",
            last="LAST(id)",
            ids="ARRAY_AGG(id)",
            labels="ARRAY_AGG(CLASSIFIER())",
        )
        .within(5),
        skip,
    )()
    for text in PATTERNS
    for skip in ("skip_past_last_row", "skip_to_next_row", "no_skip")
}


class Nothing(op.Operator):
    """Gives nothing and keeps nothing."""

    output = pa.schema({"n": pa.int64()})

    def process(self, events: pa.Table) -> None:
        return None

    def state(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        return None


def events(kinds: list[str], gaps: list[int], keys: list[int]) -> pa.Table:
    times = [sum(gaps[: i + 1]) for i in range(len(kinds))]
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()),
            "id": pa.array(range(len(kinds)), pa.int64()),
            "kind": pa.array(kinds, pa.string()),
            "key": pa.array(keys, pa.int32()),
        }
    )


def shown_after(query: op.Query, kinds: str) -> list[list[object]]:
    """Return, for each event, the labels of the matches that it made final."""
    matcher = op.open(query)
    table = events(list(kinds), [1] * len(kinds), [0] * len(kinds))
    return [
        [row["labels"] for row in matcher.push(table.slice(i, 1)).to_pylist()]
        for i in range(table.num_rows)
    ]


def test_an_undecided_preferred_alternative_holds_the_match_back() -> None:
    query = QUERIES["(A B C A | A B) / skip_past_last_row"]
    assert shown_after(query, "abcc") == [[], [], [], [["A", "B"]]]
    assert shown_after(query, "abca") == [[], [], [], [["A", "B", "C", "A"]]]
    assert shown_after(query, "abb") == [[], [], [["A", "B"]]]


def test_a_match_that_nothing_can_change_comes_at_once() -> None:
    assert shown_after(QUERIES["A -> B -> C / no_skip"], "abc") == [[], [], [["A", "B", "C"]]]
    assert shown_after(QUERIES["A B*? C / skip_past_last_row"], "abc")[-1] == [["A", "B", "C"]]


def test_rows_kept_are_bounded_by_within() -> None:
    query = QUERIES["A -> B -> C / skip_past_last_row"]
    matcher = op.open(query)
    for start in range(0, 5000, 50):
        times = pa.array(range(start, start + 50), pa.int64())
        matcher.push(pa.table({"ts": times, "id": times, "kind": ["a"] * 50, "key": [0] * 50}))
        assert matcher.rows_kept <= 5


def test_partitions_without_rows_are_forgotten() -> None:
    query = (
        op.Query("q")
        .partition_by("key")
        .order_by("ts")
        .pattern("A B")
        .within(10)
        .define(A="kind = 'a'", B="kind = 'b'")
        .measures(at="A.ts")
    )
    matcher = op.open(query)
    for start in range(0, 40_000, 1000):
        times = pa.array(range(start, start + 1000), pa.int64())
        matcher.push(pa.table({"ts": times, "kind": ["a"] * 1000, "key": times}))
    assert matcher._operator is not None
    assert matcher._operator.instance.partitions_kept < 4000


def test_time_settles_an_absence_without_another_event() -> None:
    query = (
        op.Query("silence")
        .order_by("ts")
        .pattern("A -> !B")
        .within(10)
        .define(A="kind = 'a'", B="kind = 'b'")
        .measures(at="A.ts")
    )
    matcher = op.open(query)
    assert matcher.push({"ts": [1], "kind": ["a"]}).num_rows == 0
    assert matcher.advance(10).num_rows == 0
    assert matcher.advance(11).to_pylist() == [{"at": 1}]


def test_another_partition_moves_time_on() -> None:
    query = (
        op.Query("silence")
        .partition_by("key")
        .order_by("ts")
        .pattern("A -> !B")
        .within(10)
        .define(A="kind = 'a'", B="kind = 'b'")
        .measures(at="A.ts")
    )
    matcher = op.open(query)
    assert matcher.push({"ts": [1], "kind": ["a"], "key": [1]}).num_rows == 0
    found = matcher.push({"ts": [11], "kind": ["x"], "key": [2]})
    assert found.to_pylist() == [{"key": 1, "at": 1}]


def test_rows_out_of_order_are_refused_and_nothing_is_taken() -> None:
    query = op.Query("q").order_by("ts").pattern("A").measures(at="A.ts").within(10)
    matcher = op.open(query)
    matcher.push({"ts": [5, 6]})
    with pytest.raises(op.DataError, match="row 1 of the pushed table comes before"):
        matcher.push({"ts": [7, 5, 8]})
    assert matcher.push({"ts": [7]}).to_pylist() == [{"at": 7}]


@pytest.mark.parametrize("order", ["x", "x DESC", "x NULLS FIRST", "x DESC NULLS FIRST"])
def test_nan_and_null_have_the_place_that_they_have_in_a_table(order: str) -> None:
    query = op.Query.from_sql(f"ORDER BY {order} MEASURES LAST(x) AS x PATTERN (A)")
    table = pa.table({"x": [1.5, None, math.nan, -0.0, 0.0, 2.5]})
    in_order = op.match(table, query)
    matcher = op.open(query)
    found = [matcher.push(in_order.slice(row, 2)) for row in (0, 2, 4)]
    assert repr(pa.concat_tables([*found, matcher.finish()]).to_pylist()) == repr(
        in_order.to_pylist()
    )
    with pytest.raises(op.DataError, match="row 1 of the pushed table comes before row 0 of it"):
        op.open(query).push(in_order.take([5, 0]))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (op.Query("q").pattern("(A?){1400}"), "more than 200000 ways from one event to the next"),
        (op.Query("q"), "the query has no pattern"),
        (op.Query("q").pattern("A").skip_to_last("B"), "'B'"),
    ],
)
def test_what_no_rows_can_mend_is_refused_when_a_stream_is_opened(
    query: op.Query, said: str
) -> None:
    with pytest.raises(op.OutpaceError, match=said):
        op.open(query)


@pytest.mark.parametrize("over", [None, op.windows.count(2)])
@pytest.mark.parametrize("disorder", [None, op.KSlack(1)])
def test_rows_without_a_column_are_refused_with_what_they_have(over: Any, disorder: Any) -> None:
    query = op.Query("q").order_by("ts").pattern("A").define(A="price > 1").measures(at="A.ts")
    query = query if over is None else query.over(over)
    matcher = op.open(query if disorder is None else query.disorder(disorder))
    matcher.push({"ts": [1], "price": [5]})
    with pytest.raises(op.DataError, match="no column 'price'\n  it has ts, prize\n  hint: did"):
        matcher.push({"ts": [2], "prize": [5]})


def test_what_follows_a_null_is_refused_with_the_reason() -> None:
    matcher = op.open(op.Query("q").order_by("ts").pattern("A").measures(at="A.ts"))
    matcher.push({"ts": [5, None]})
    with pytest.raises(op.DataError, match="hint: a NULL comes after every ts: leave such rows"):
        matcher.push({"ts": [6]})


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("keys", [(), ("key",)])
@pytest.mark.parametrize("kind", ["pattern", "operator", "windows"])
def test_a_late_row_is_refused_also_where_nothing_is_kept(
    kind: str, keys: tuple[str, ...], resumed: bool
) -> None:
    query = op.Query("pairs").partition_by(*keys).order_by("ts").pattern("A B")
    if kind == "operator":
        query = op.Query("pairs").partition_by(*keys).order_by("ts").apply(Nothing)
    elif kind == "windows":
        query = query.over(op.windows.count(2))
    matcher = op.open(query)
    matcher.push({"ts": [5, 6], "key": ["a", "a"]})
    for time in (3, 4, 1, 2):
        if resumed:
            matcher = op.resume(query, matcher.state())
        with pytest.raises(op.DataError, match="comes before rows that were already") as raised:
            matcher.push({"ts": [time], "key": ["a"]})
        assert f"ts is {time}, after 6" in str(raised.value)
        assert f".disorder(op.KSlack({6 - time}))" in str(raised.value)
    matcher.push({"ts": [7], "key": ["a"]})


def test_rows_of_one_time_are_in_order_within_their_key() -> None:
    query = op.Query().partition_by("key").order_by("ts", "id").pattern("A B")
    matcher = op.open(query)
    matcher.push({"ts": [1, 1], "id": [5, 1], "key": ["a", "b"]})
    assert matcher.push({"ts": [1], "id": [2], "key": ["b"]}).num_rows == 1
    matcher = op.resume(query, matcher.state())
    for key, last in (("a", 5), ("b", 2)):
        with pytest.raises(op.DataError, match=f"id is 1, after {last}"):
            matcher.push({"ts": [1], "id": [1], "key": [key]})
    with pytest.raises(op.DataError, match="row 1 of the pushed table comes before row 0 of it"):
        matcher.push({"ts": [2, 2], "id": [5, 4], "key": ["c", "c"]})
    assert matcher.push({"ts": [2, 2], "id": [5, 4], "key": ["c", "d"]}).num_rows == 0


@pytest.mark.parametrize("late", [False, True])
def test_several_order_columns_are_looked_at_over_all_keys_at_once(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys lie between each other; only where a row is late each is looked at for itself."""
    query = op.Query().partition_by("key").order_by("ts", "id").pattern("A B")
    places = [(time, key) for time in range(10) for key in "cab"]
    ids = [9 - number for number in range(30)]
    looked: list[pa.Array] = []

    def look(segments: pa.Array) -> list[tuple[int, int]]:
        looked.append(segments)
        return list(itertools.pairwise(segments))

    monkeypatch.setattr(last_rows, "itertools", SimpleNamespace(pairwise=look))
    rows = {"ts": [t for t, _ in places], "key": [k for _, k in places], "id": ids}
    if late:
        rows = {name: [*values, values[-2]] for name, values in rows.items()}
        rows["id"][-1] -= 1
        with pytest.raises(op.DataError, match="comes before row 28 of it"):
            op.open(query).push(rows)
    else:
        assert op.open(query).push(rows).num_rows == 15
    assert bool(looked) is late


def test_a_row_before_a_promised_time_is_refused() -> None:
    matcher = op.open(op.Query().order_by("ts").pattern("A B").within(10))
    matcher.push({"ts": [1]})
    matcher.advance(5)
    with pytest.raises(op.DataError, match="comes before the time that has passed"):
        matcher.push({"ts": [4]})


def test_state_of_another_query_is_refused() -> None:
    one = op.Query("one").order_by("ts").pattern("A+").measures(at="A.ts")
    two = one.measures(n="COUNT(*)")
    matcher = op.open(one)
    matcher.push({"ts": [1]})
    with pytest.raises(op.StateError, match="belongs to another query"):
        op.resume(two, matcher.state())


def test_state_goes_on_in_another_process(tmp_path: Path) -> None:
    query = op.Query("q").order_by("ts").pattern("A B").define(B="p > A.p").measures(at="B.ts")
    matcher = op.open(query)
    matcher.push({"ts": [1], "p": [1.5]})
    (tmp_path / "state").write_bytes(matcher.state())
    script = (
        "import sys, outpace as op\n"
        "q = op.Query('q').order_by('ts').pattern('A B').define(B='p > A.p').measures(at='B.ts')\n"
        "m = op.resume(q, open(sys.argv[1], 'rb').read())\n"
        "sys.stdout.write(str(m.push({'ts': [2], 'p': [2.5]}).to_pylist()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "state")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[{'at': 2}]"


def test_a_finished_matcher_takes_no_more() -> None:
    matcher = op.open(op.Query("q").pattern("A").measures(n="MATCH_NUMBER()"))
    matcher.push({"x": [1]})
    matcher.finish()
    with pytest.raises(op.DataError, match="the matcher is finished"):
        matcher.push({"x": [2]})


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("order", ["since", "until"])
@pytest.mark.parametrize(
    ("pattern", "within"), [("A -> !B", 7), ("A -> B+", 9), ("A -> B -> C", 30)]
)
def test_the_matches_of_one_stream_are_events_of_another(
    pattern: str, within: int, order: str, resumed: bool
) -> None:
    # Matches of different keys become final in another order than that of their times.
    rng = np.random.default_rng(3)
    kinds, keys = rng.choice(list("abc"), 300).tolist(), rng.integers(0, 4, 300).tolist()
    table = events(kinds, rng.integers(0, 4, 300).tolist(), keys)
    first = (
        op.Query("first")
        .partition_by("key")
        .order_by("ts")
        .pattern(pattern)
        .define({name: f"kind = '{name.lower()}'" for name in "ABC" if name in pattern})
        .within(within)
        .measures(since="FIRST(ts)", until="LAST(ts)")
    )
    second = (
        op.Query("second")
        .order_by(order, "key")
        .pattern("P -> Q")
        .define(Q="key = P.key")
        .within(60)
        .measures(key="P.key", since="P.since", until="Q.until")
    )
    expected = op.match(op.match(table, first), second).to_pylist()
    assert len(expected) > 4
    one, two = op.open(first), op.open(second)
    found = []
    for row in range(0, 300, 7):
        found += two.push(one.push(table.slice(row, 7))).to_pylist()
        if resumed:
            one, two = op.resume(first, one.state()), op.resume(second, two.state())
    early = len(found)
    found += two.push(one.finish()).to_pylist() + two.finish().to_pylist()
    assert found == expected
    assert early > len(expected) / 2


def test_a_match_that_waits_for_the_next_row_of_its_key_may_be_an_old_event_of_another() -> None:
    first = op.Query("first").partition_by("key").order_by("ts").pattern("A !B").within(2)
    first = first.define(A="kind = 'a'", B="kind = 'b'").measures(at="A.ts")
    then = op.Query("then").order_by("at").pattern("P").measures(p="P.at")
    source, following = op.open(first), op.open(then)
    for rows in (
        events(["a", "x"], [1, 100], [0, 1]),
        events(["x"], [102], [0]),
    ):
        found = following.push(source.push(rows))
    assert found.to_pylist() == [{"p": 1}]


def test_a_copy_of_matches_is_a_table_like_any_other() -> None:
    rise = op.Query().order_by("ts").pattern("A B").define(B="x > A.x").within(9)
    rise = rise.measures(at="B.ts")
    pairs = op.open(op.Query().order_by("at").pattern("P Q").measures(p="P.at", q="Q.at"))
    for day in (0, 1000):
        stream = op.open(rise)
        pieces = [stream.push({"ts": [day, day + 1], "x": [1, 2]}), stream.finish()]
        copied = pa.concat_tables(reversed(pieces))
        assert pairs.push(copied).num_rows == bool(day)


def test_matches_of_a_stream_that_come_twice_are_refused() -> None:
    first = op.Query("first").order_by("ts").pattern("A").within(2).measures(at="A.ts")
    second = op.Query("second").order_by("at").pattern("P").measures(at="P.at")
    one, two = op.open(first), op.open(second)
    early = one.push({"ts": [1, 2]})
    two.push(early)
    two.push(one.push({"ts": [10]}))
    with pytest.raises(op.DataError, match="at is 1, after 8"):
        two.push(early)


def test_time_does_not_go_back():
    stream = op.open(op.Query().order_by("ts").pattern("A B").within(100).measures(a="A.ts"))
    stream.push({"ts": 1})
    stream.advance(10)
    assert stream.advance(5).num_rows == 0
    with pytest.raises(op.DataError, match="comes before the time that has passed"):
        stream.push({"ts": 7})


FORMS = {
    "plain": pa.schema([("ts", pa.int64()), ("c", pa.string())]),
    "not null": pa.schema([pa.field("ts", pa.int64(), nullable=False), ("c", pa.string())]),
    "described": pa.schema([pa.field("ts", pa.int64(), metadata={"a": "b"}), ("c", pa.string())]),
    "other order": pa.schema([("c", pa.string()), ("ts", pa.int64())]),
    "more": pa.schema([("ts", pa.int64()), ("c", pa.string()), ("d", pa.int8())]),
}


@pytest.mark.parametrize("windows", [None, op.windows.count(3), op.windows.session(5)])
@pytest.mark.parametrize("disorder", [None, op.KSlack(0), op.InOrder()])
@pytest.mark.parametrize("sources", [None, ["x", "y"]])
@pytest.mark.parametrize("first", ["plain", "not null", "described"])
def test_tables_may_differ_in_what_they_say_beside_the_types(windows, disorder, sources, first):
    query = op.Query("q").order_by("ts").pattern("A B C").measures(c="C.c", n="COUNT(*)")
    query = query if windows is None else query.over(windows)
    query = query if disorder is None else query.disorder(disorder)
    stream = op.open(query, schema=FORMS[first], sources=sources)
    found = []
    for number, schema in enumerate([*FORMS.values(), *FORMS.values()]):
        values = {"ts": [number], "c": [str(number)], "d": [number]}
        rows = pa.table({name: values[name] for name in schema.names}, schema)
        source = None if sources is None else sources[number % 2]
        found += stream.push(rows, source=source).to_pylist()
        if number == 5:
            stream = op.resume(query, stream.state())
    found += stream.finish().to_pylist()
    expected = op.match(pa.table({"ts": range(10), "c": [str(n) for n in range(10)]}), query)
    assert found == expected.to_pylist()
