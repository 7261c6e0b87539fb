"""A flag on events that went on because a time was up: a column that queries read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.engine.codec.cell import CellKind
from outpace.pattern.disorder import Disorder
from outpace.pattern.notation.disorder import disorder_clauses, parse_disorder
from outpace.plan.stream_plan import plan_group, plan_stream
from outpace.testing.sequence import SequenceOracle
from outpace.testing.stream_chain import Chain

SOURCES = ("east", "west")
SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("at", pa.int64()),
        ("seq", pa.int64()),
        ("v", pa.int64()),
        ("source", pa.string()),
    ]
)
EACH = op.Query("each").order_by("ts").pattern("A").measures(ts="A.ts", v="A.v", timed="A.timed")
#: A condition waits for the flag, however little else its step asks for.
PAIRS = (
    op.Query("pairs")
    .order_by("ts")
    .pattern("A -> B")
    .define(A="v > 2", B="v < 2 AND NOT timed")
    .measures(first="A.ts", last="B.ts", timed="A.timed")
    .within(20)
)
KINDS: dict[str, Disorder] = {
    "in order": op.InOrder(arrival="at", patience="6 us", flag="timed"),
    "slack": op.KSlack(2, arrival="at", patience={"east": "9 us"}, flag="timed", late="pass"),
    "numbers": op.Sequence("5 us", arrival="at", at_least="2 us", flag="timed"),
    "both": op.Sequence("9 us", arrival="at", patience="4 us", flag="timed"),
}


def test_matches_say_what_went_on_without_a_source() -> None:
    stream = op.open(EACH.disorder(KINDS["in order"]), sources=SOURCES, schema=SCHEMA)
    stream.push({"ts": [1], "at": [0], "seq": [0], "v": [1], "source": ["west"]})
    found = stream.push(
        {
            "ts": [0, 2, 3, 9],
            "at": [0, 5, 6, 7],
            "seq": [0, 1, 2, 3],
            "v": [1, 2, 3, 4],
            "source": ["east"] * 4,
        }
    )
    assert [(row["ts"], row["timed"]) for row in found.to_pylist()] == [
        (0, False),
        (1, True),
        (2, True),
        (3, True),
    ]
    assert stream.order.unawaited == 3
    resumed = op.resume(EACH.disorder(KINDS["in order"]), stream.state())
    late = {"ts": [2], "at": [8], "seq": [1], "v": [7], "source": ["west"]}
    for one in (stream, resumed):
        one.push(late)
        # Rows that take no part come as they were sent.
        assert one.late.to_pylist() == [{name: value[0] for name, value in late.items()}]
        assert one.finish()["timed"].to_pylist() == [False]


def test_numbers_that_were_given_up_are_flagged_with_what_waited_for_them() -> None:
    query = EACH.disorder(op.Sequence("5 us", arrival="at", first=0, flag="timed"))
    stream = op.open(query)
    rows = {"ts": [0, 2, 3, 4, 5, 6], "at": [0, 1, 2, 6, 7, 8], "seq": [0, 2, 3, 4, 7, 6]}
    found = stream.push({**rows, "v": [0] * 6}).to_pylist() + stream.finish().to_pylist()
    # The end of the stream is no timeout.
    assert [row["ts"] for row in found] == [0, 2, 3, 4, 5, 6]
    assert [row["ts"] for row in found if row["timed"]] == [2, 3]


def test_a_flag_that_the_input_has_stays() -> None:
    query = EACH.disorder(op.Sequence("5 us", arrival="at", first=0, flag="TIMED"))
    rows = {"ts": [0, 2, 3], "at": [0, 1, 9], "seq": [0, 2, 3], "v": [0] * 3}
    found = op.open(query).push({**rows, "timed": [None, False, True]})
    assert found["timed"].to_pylist() == [None, True, True]


@st.composite
def batches(draw: st.DrawFn) -> list[pa.Table]:
    """Draw batches of rows; the times of arrival rise, and no moment is in two of them."""
    event = st.tuples(
        st.sampled_from([0, 1, 1, 2]),
        st.sampled_from([0, 0, 0, 1, -2]),
        st.sampled_from([0, 0, 0, 1, 2]),
        st.sampled_from([0, 1, 1, 4]),
        st.integers(0, 4),
        st.sampled_from(SOURCES),
    )
    given, time, at, numbers = [], 0, 0, dict.fromkeys(SOURCES, 0)
    for drawn in draw(st.lists(st.lists(event, max_size=6), min_size=1, max_size=6)):
        rows, at = [], at + 1
        for step, aside, lost, wait, value, source in drawn:
            time, at = time + step, at + wait
            numbers[source] += 1 + lost
            row = (time + aside, at, numbers[source], value, source)
            rows.append(dict(zip(SCHEMA.names, row, strict=True)))
        given.append(pa.Table.from_pylist(rows, SCHEMA))
    return given


def as_found(tables: list[pa.Table]) -> list[dict[str, Any]]:
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("query", [EACH, PAIRS], ids=["each", "pairs"])
@pytest.mark.parametrize("kind", KINDS)
@examples(5)
@given(drawn=batches())
def test_a_stage_and_a_group_flag_what_a_stream_in_process_flags(query, kind, drawn) -> None:
    query = query.disorder(KINDS[kind])
    stream = op.open(query, sources=SOURCES, schema=SCHEMA)
    expected = as_found([stream.push(table) for table in drawn])
    if query.name == "each" and kind in ("in order", "slack"):
        assert sum(row["timed"] for row in expected) == stream.order.unawaited
    plan = plan_stream(query, SCHEMA, 2, sources=SOURCES)
    chain = Chain(plan.division.stages)
    found = [
        table
        for batch in drawn
        for table in chain.run(plan.division.packing.pack(batch)).tables(CellKind.MATCHES)
    ]
    assert as_found(found) == expected
    group = op.open(op.group(query, replace(query, name="r")), sources=SOURCES, schema=SCHEMA)
    assert as_found([group.push(table)["r"] for table in drawn]) == expected


@examples(15)
@given(drawn=batches())
def test_one_source_flags_what_the_definition_does(drawn) -> None:
    query = EACH.disorder(
        op.Sequence("5 us", arrival="at", alpha=0.6, beta=0.8, deviations=2, flag="timed")
    )
    oracle = SequenceOracle(alpha=0.6, beta=0.8, deviations=2, shortest=0, longest=5)
    rows = [row for table in drawn for row in table.to_pylist() if row["source"] == "east"]
    rows = [{**row, "ts": row["seq"]} for row in rows]
    stream = op.open(query, schema=SCHEMA)
    found = stream.push(pa.Table.from_pylist(rows, SCHEMA)).to_pylist()
    ordered = sorted(range(len(rows)), key=lambda place: (rows[place]["at"], rows[place]["seq"]))
    for place in ordered:
        oracle.arrive(place, rows[place]["seq"], rows[place]["at"])
        oracle.pass_time(rows[place]["at"])
    expected = [(rows[place]["ts"], place in oracle.timed) for place in oracle.order]
    assert [(row["ts"], row["timed"]) for row in found] == expected


def test_a_group_on_spark_has_the_flag() -> None:
    one = EACH.disorder(op.Sequence("5 us", arrival="at", first=0, flag="timed"))
    plan = plan_group(op.group(one, replace(one, name="r")), SCHEMA, 2)
    rows = pa.table(
        {"ts": [0, 2, 3], "at": [0, 1, 9], "seq": [0, 2, 3], "v": [0] * 3, "source": ["a"] * 3},
        schema=SCHEMA,
    )
    (found,) = (
        Chain(plan.division.stages).run(plan.division.packing.pack(rows)).tables(CellKind.MATCHES)
    )
    assert [row["timed"] for row in found.to_pylist() if row["query"] == "r"] == [
        False,
        True,
        False,
    ]


def test_of_a_table_nothing_is_flagged() -> None:
    table = pa.table({"ts": [3, 1], "at": [0, 0], "seq": [2, 1], "v": [0, 0], "source": ["a"] * 2})
    query = EACH.disorder(KINDS["both"])
    assert op.match(table, query)["timed"].to_pylist() == [False, False]
    assert "timed" in str(op.explain(query, table))
    assert op.match(table, query.over(op.windows.count(2)))["timed"].to_pylist() == [False, False]


def test_it_is_written_in_sql() -> None:
    written = "SEQUENCE '1 s' PATIENCE '2 s' FLAG timed"
    disorder = parse_disorder(written, "--disorder")
    assert disorder == op.Sequence("1 s", patience="2 s", flag="timed")
    (clause,) = disorder_clauses(op.Query("q").disorder(disorder))
    assert parse_disorder(clause.removeprefix("DISORDER "), "it") == disorder


def test_a_flag_that_says_nothing_is_refused() -> None:
    with pytest.raises(op.BindError, match="flag says which events went on because a time was up"):
        op.KSlack(2, flag="timed")
    with pytest.raises(op.BindError, match=r"flag is not for op\.Speculative"):
        op.Speculative(2, patience="2 s", flag="timed")
    ordered = op.Query("q").order_by("ts", "timed").pattern("A")
    with pytest.raises(op.BindError, match="events are ordered by 'timed'"):
        op.open(ordered.disorder(op.Sequence("1 s", flag="timed")), schema=SCHEMA)
    with pytest.raises(op.BindError, match="flag names a column of booleans, but 'v'"):
        op.open(EACH.disorder(op.Sequence("1 s", flag="v")), schema=SCHEMA)
    with pytest.raises(op.UnsupportedError, match="retained as they came"):
        op.open(EACH.disorder(op.Sequence("1 s", flag="timed")), schema=SCHEMA, recovery="replay")
    flagged = op.InOrder(patience="1 s", flag="f")
    with pytest.raises(op.UnsupportedError, match="a join gives the columns of its sides"):
        op.Join(on="v", within=5, time="ts", disorder=flagged)


def test_conditions_that_read_it_are_not_computed_before_the_order() -> None:
    plan = plan_stream(PAIRS.disorder(KINDS["in order"]), SCHEMA, 2, sources=SOURCES)
    assert [name for name, _ in plan.crossing.computed] == ["A", "B"]
    assert not any("timed" in sql for _, sql in plan.crossing.computed)
    assert "timed" not in plan.crossing.columns
    assert any("timed says of events" in line for line in plan.lines())
