"""Queries of a group give what each of them gives alone."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.grouped import SCHEMA, drawn_alike, drawn_pieces, drawn_query
from support.properties import examples

import outpace as op
from outpace.engine.group import GroupOperator
from outpace.engine.group_spec import GroupSpec
from outpace.engine.message import Aside, Emit, EventsArrived, SetAside
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.pattern.bind.disorder import bind_disorder


def single(name: str, slack: int = 0) -> op.Query:
    query = op.Query(name).order_by("ts").pattern("A -> B").define(A="v = 1", B="v = 2")
    return query.measures(first="A.ts", last="B.ts").disorder(op.KSlack(slack))


def rows(*values: tuple[int, int]) -> pa.Table:
    found = [{"ts": ts, "key": "k", "v": v} for ts, v in values]
    return pa.Table.from_pylist(found, SCHEMA)


def test_results_come_by_name_each_when_its_query_has_waited() -> None:
    group = op.open(op.group(single("soon"), single("sure", 5)))
    found = group.push(rows((1, 1), (3, 2), (4, 0)))
    assert {name: table.num_rows for name, table in found.items()} == {"soon": 1, "sure": 0}
    # 2 is late for the first query alone.
    found = group.push(rows((2, 2), (10, 0)))
    assert found["sure"].to_pylist() == [{"first": 1, "last": 2}]
    assert found["soon"].num_rows == 0
    late = {name: table["ts"].to_pylist() for name, table in group.late.items()}
    assert late == {"soon": [2], "sure": []}
    assert group.buffered == 1
    assert {name: table.num_rows for name, table in group.finish().items()} == {
        "soon": 0,
        "sure": 0,
    }


def test_dropped_events_are_told_by_query(caplog: pytest.LogCaptureFixture) -> None:
    group = op.open(op.group(single("soon"), single("sure", 5)))
    group.push(rows((1, 1), (5, 0)))
    with caplog.at_level(logging.WARNING):
        group.push(rows((2, 2)))
    assert [record.message.split(":")[0] for record in caplog.records] == ["query 'soon'"]


def test_a_row_is_late_once_for_however_many_queries() -> None:
    hasty = [single("soon"), single("too"), single("own").disorder(op.MPKSlack())]
    group = op.open(op.group(*hasty, single("sure", 5)))
    group.push(rows((1, 1), (9, 0)))
    # 3 is late for all, 6 for all but the last, and of the two orders each sets both aside.
    group.push(rows((3, 2), (6, 2)))
    late = {name: table.num_rows for name, table in group.late.items()}
    assert late == {"soon": 2, "too": 2, "own": 2, "sure": 1}
    assert group.order.late == 2


def test_a_step_of_a_group_gives_instructions_that_say_their_query() -> None:
    # The one in the middle has an order of its own.
    own = single("own").disorder(op.KSlack(0, late="correct", horizon=1))
    queries = single("soon"), own, single("sure", 5)
    group = GroupOperator(GroupSpec(queries, SCHEMA))
    first = group.step(EventsArrived(rows((1, 1), (9, 2))))
    assert [(type(one), one.query) for one in first] == [
        (Emit, "soon"),
        (Emit, "own"),
        (Emit, "sure"),
    ]
    later = group.step(EventsArrived(rows((3, 2))))
    aside = [(one.query, one.kind, len(one.rows)) for one in later if isinstance(one, SetAside)]
    assert aside == [("soon", Aside.LATE, 1), ("own", Aside.LATE, 1), ("sure", Aside.LATE, 1)]
    assert group.aside == {Aside.LATE: 1}
    disorder = bind_disorder(single("soon"), SCHEMA)
    operator = WholeOperator(OperatorSpec(single("soon"), SCHEMA, disorder=disorder))
    (alone,) = operator.step(EventsArrived(rows((1, 1))))
    assert alone.query == "soon"


@given(st.integers(0, 1 << 32))
def test_queries_with_one_disorder_wait_as_each_does_alone(seed: int) -> None:
    random = Random(seed)
    disorder = random.choice([op.KSlack(random.randint(0, 5)), op.MPKSlack(), op.InOrder()])
    first, second = (drawn_query(random, name).disorder(disorder) for name in "ab")
    group, alone = op.open(op.group(first, second)), op.open(first)
    for piece in drawn_pieces(random):
        group.push(piece)
        alone.push(piece)
        # What a query alone cannot use does not wait there.
        assert (group.order.slack, group.order.late) == (alone.order.slack, alone.order.late)
        assert group.order.buffered >= alone.order.buffered


def test_of_different_slacks_the_largest_is_waited_for() -> None:
    group, sure = op.open(op.group(single("soon"), single("sure", 5))), op.open(single("sure", 5))
    for piece in (rows((1, 1), (3, 2), (4, 0)), rows((10, 0)), rows((12, 0))):
        group.push(piece)
        sure.push(piece)
        assert (group.order.slack, group.order.late) == (sure.order.slack, sure.order.late)
        assert group.order.buffered >= sure.order.buffered
    assert group.order.slack == 5
    assert group.order.latency > 0
    assert group.order.longest_wait > 0


def test_bad_groups_are_refused() -> None:
    with pytest.raises(op.BindError, match="one query at least"):
        op.group()
    with pytest.raises(op.BindError, match="two queries of the group are named 'a'"):
        op.group(single("a"), single("a"))
    # What types rule out is told at run time as well.
    with pytest.raises(op.OutpaceError):
        op.group("a")  # type: ignore[arg-type]
    with pytest.raises(op.BindError, match="sources"):
        op.open(op.group(single("a")), sources="x")
    east = op.open(op.group(single("a")), sources=["east"])
    with pytest.raises(op.DataError, match="the source of the rows is missing"):
        east.push(rows((1, 1)))
    with pytest.raises(op.DataError, match="time passes by source"):
        east.advance(5)
    with pytest.raises(op.DataError, match="opened without sources"):
        op.open(op.group(single("a"))).push(rows((1, 1)), "east")
    with pytest.raises(op.StateError, match="other sources"):
        op.open(op.group(single("a"))).restore(east.state())
    group = op.open(op.group(single("a")))
    with pytest.raises(op.DataError, match="before the first push"):
        group.finish()
    group.push(rows((1, 1)))
    with pytest.raises(op.DataError, match="other columns than those before"):
        group.push({"ts": [2]})
    for others in ([single("b")], [single("a"), single("b")]):
        with pytest.raises(op.StateError, match="to other queries") as refused:
            op.resume(op.group(*others), group.state())
        assert "in another order" in str(refused.value)
    with pytest.raises(op.StateError, match="'a' were brought into order in another way"):
        op.resume(op.group(single("a", 3)), group.state())
    with pytest.raises(op.StateError, match="not to a group"):
        op.resume(op.group(single("a")), op.open(single("a")).state())


def test_a_condition_on_rows_that_fails_leaves_the_group_as_it_was() -> None:
    wrong = single("wrong").define(A="CAST(key AS INT) > 1", B="v = 2")
    group = op.open(op.group(single("right"), wrong, single("other", 3)))
    with pytest.raises(op.DataError) as caught:
        group.push(rows((1, 1), (2, 2), (9, 0)))
    assert caught.value.where is not None
    assert caught.value.where.startswith("query 'wrong': ")
    fine = pa.Table.from_pylist([{"ts": t, "key": "7", "v": t} for t in (1, 2, 9)], SCHEMA)
    assert {name: table.num_rows for name, table in group.push(fine).items()} == {
        "right": 1,
        "wrong": 1,
        "other": 1,
    }


def test_a_query_that_fails_on_a_match_is_over_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong = single("wrong").measures(n="CAST(A.key AS INT)")
    own = replace(wrong, name="own", order_of_arrival=None)
    queried = op.group(wrong, single("right"), own)
    group = op.open(queried, schema=SCHEMA)
    state = group.state()
    assert group.failed == {}
    found = group.push(rows((1, 1), (2, 2), (9, 0)))
    assert {name: table.num_rows for name, table in found.items()} == {"right": 1}
    assert list(group.failed) == list(group.timed_out | group.failed)[-2:] == ["own", "wrong"]
    assert "query 'wrong'" in str(group.failed["wrong"])
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    # That stays so when the group is saved, and is over when it goes back.
    resumed = op.resume(queried, group.state())
    assert "cannot cast 'k'" in str(resumed.failed["wrong"])
    for one in (group, resumed):
        assert list(one.push(rows((10, 1), (11, 2), (20, 0)))) == ["right"]
    group.restore(state)
    assert list(group.push(rows((1, 1)))) == ["wrong", "right", "own"]


def test_the_error_of_the_last_query_is_raised() -> None:
    group = op.open(op.group(single("wrong").measures(n="CAST(A.key AS INT)")), schema=SCHEMA)
    with pytest.raises(op.DataError, match="cannot cast") as caught:
        group.push(rows((1, 1), (2, 2), (9, 0)))
    assert caught.value.where is not None
    assert caught.value.where.startswith("query 'wrong'")
    with pytest.raises(op.DataError, match="an earlier push failed"):
        group.push(rows((10, 0)))


def test_a_state_that_is_refused_leaves_the_group_as_it_was() -> None:
    group, other = op.open(op.group(single("a", 9))), op.open(op.group(single("a", 3)))
    group.push(rows((1, 1)))
    other.push(rows((1, 0)))
    with pytest.raises(op.StateError):
        group.restore(other.state())
    assert group.push(rows((2, 2), (30, 0)))["a"].num_rows == 1
    # What is saved before anything came is nothing.
    group.restore(op.open(op.group(single("a", 9))).state())
    assert group.push(rows((2, 2), (30, 0)))["a"].num_rows == 0


def test_an_error_of_a_query_says_which() -> None:
    wrong = single("wrong").measures(n="A.nothing")
    for act in (
        lambda: op.open(op.group(single("right"), wrong), schema=SCHEMA),
        lambda: op.match(rows((1, 1)), op.group(single("right"), wrong)),
    ):
        with pytest.raises(op.BindError) as caught:
            act()
        assert caught.value.where == "query 'wrong': measure n"


def test_what_the_queries_share_is_explained() -> None:
    own = op.Query("own").order_by("ts").pattern("A").define(A="v = 1")
    group = op.group(single("soon"), single("sure", 5), single("again", 5), own)
    text = str(op.explain(group, SCHEMA))
    assert text.startswith("""\
group of 4 queries
  ordered once for soon, sure, again, in a chain
    an event waits until one is seen that is 0 later: soon
    an event waits until one is seen that is 5 later: sure, again
    matched as one: sure, again
  with an order of its own: own
  conditions on single rows: 6, of which 2 are computed

query soon
""")
    assert [name for name in group.names if f"query {name}\n" in text] == list(group.names)
    assert "known when they meet a schema" in op.explain(group).text
    assert op.explain(op.group(own), rows((1, 1))).shared[0] == "with an order of its own: own"


def test_a_table_gives_a_table_for_each_query() -> None:
    found = op.match(rows((1, 1), (2, 2)), op.group(single("a"), single("b").define(A="v = 2")))
    assert {name: table.to_pylist() for name, table in found.items()} == {
        "a": [{"first": 1, "last": 2}],
        "b": [],
    }
    with pytest.raises(op.UnsupportedError, match="has no progress"):
        op.match(rows((1, 1)), op.group(single("a")), progress=True)  # type: ignore[call-overload]


def test_after_a_row_that_cannot_be_used_the_group_goes_on() -> None:
    other = single("other").disorder(op.MPKSlack())
    group = op.open(op.group(single("one"), single("two", 2), other))
    group.push(rows((1, 1)))
    bad = pa.Table.from_pylist([{"ts": None, "key": "k", "v": 2}], SCHEMA)
    with pytest.raises(op.DataError):
        group.push(pa.concat_tables([rows((2, 2)), bad]))
    found = group.push(rows((2, 2), (9, 0)))
    assert {name: table.num_rows for name, table in found.items()} == dict.fromkeys(found, 1)


@examples(75)
@given(st.integers(0, 1 << 32))
def test_each_query_gives_what_it_gives_alone(seed: int) -> None:
    random = Random(seed)
    queries = [drawn_query(random, f"q{number}") for number in range(random.randint(1, 3))]
    if random.random() < 0.5:
        queries += [
            drawn_alike(random, random.choice(queries), f"alike{number}") for number in range(2)
        ]
    queried = op.group(*queries)
    sources = random.choice([None, ["east", "west"]])
    try:
        alone = {query.name: op.open(query, sources=sources, schema=SCHEMA) for query in queries}
    except op.OutpaceError as error:
        with pytest.raises(type(error), match=re.escape(error.message)):
            op.open(queried, sources=sources, schema=SCHEMA)
        return
    with TemporaryDirectory() as home:
        recordings = [Path(home) / "first"] if random.random() < 0.2 else []
        group = op.open(
            queried, sources=sources, schema=SCHEMA, record=next(iter(recordings), None)
        )
        given: list[dict[str, pa.Table]] = []

        def same(act: Callable[[Any], Any]) -> None:
            found = act(group)
            assert all(found[name].equals(act(matcher)) for name, matcher in alone.items())
            given.append(found)

        for piece in drawn_pieces(random):
            source = random.choice(sources) if sources else None
            same(lambda one, piece=piece, source=source: one.push(piece, source))
            for name, matcher in alone.items():
                assert rows_of(group.late[name]) == rows_of(matcher.late)
                assert rows_of(group.invalid[name]) == rows_of(matcher.invalid)
            told = int(piece["ts"][0].as_py()) - random.randint(0, 8)
            if random.random() < 0.2:
                if source is None:
                    same(lambda one, told=told: one.advance(told))
                else:
                    same(lambda one, told=told, source=source: one.heartbeat(source, told))
            early = any(query.speculates for query in queries)
            if source and not early and random.random() < 0.2:
                drift = random.randint(-3, 3)
                exchange = op.ingest.ClockExchange(source, told, told + drift, told + drift, told)
                same(lambda one, exchange=exchange: one.compare_clocks(exchange))
            if random.random() < 0.2:
                record = Path(home) / f"{len(recordings)}" if recordings else None
                recordings += [record] if record else []
                group = op.resume(queried, group.state(), record=record)
        if sources:
            same(lambda one: one.finish("east"))
        same(lambda one: one.finish())
        steps = [step for one in recordings for step in op.replay(one)]
    assert all(step.as_recorded for step in steps)
    assert not recordings or [step.matches for step in steps] == given


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def test_a_condition_on_the_time_reads_the_one_that_an_event_has_in_the_end() -> None:
    late = op.Query("late").order_by("ts").pattern("A").define(A="ts >= 10").measures(at="A.ts")
    for disorder in (op.InOrder(late="pass"), op.KSlack(0, late="pass")):
        stream = op.open(op.group(late.disorder(disorder)))
        stream.push({"ts": [1, 10]})
        assert stream.push({"ts": [3, 11]})["late"]["at"].to_pylist()[0] == 10
    for disorder in (op.InOrder(), op.KSlack(0), op.Punctuation()):
        asked = late.disorder(disorder)
        group, alone = (op.open(one, sources=["east", "west"]) for one in (op.group(asked), asked))
        for stream in (group, alone):
            stream.push({"ts": [9]}, source="east")
            stream.compare_clocks(op.ingest.ClockExchange("west", 0, 5, 5, 0))
            stream.push({"ts": [6]}, source="west")
        assert group.finish()["late"]["at"].to_pylist() == [11]
        assert alone.finish()["at"].to_pylist() == [11]


def test_conditions_that_are_equal_but_not_the_same_are_kept_apart() -> None:
    table = pa.table({"ts": [1, 2, 3], "x": [1.0, -0.0, 0.0]})
    queries = [
        op.Query(name).order_by("ts").pattern("A").define(A=f"atan2(x, {zero}) < 1")
        for name, zero in (("plus", "0.0"), ("minus", "-0.0"))
    ]
    asked = [query.measures(at="A.ts").disorder(op.InOrder()) for query in queries]
    group = op.open(op.group(*asked))
    assert group.push(table) == {one.name: op.open(one).push(table) for one in asked}


def test_rows_that_timed_out_have_the_numbers_that_they_have_alone() -> None:
    asked = op.Query("q").order_by("ts").pattern("A -> B").within(2).disorder(op.InOrder())
    asked = asked.define(A="x = 1", B="x = 2")
    table = pa.table({"ts": [0, 1, 5, 9], "x": [0, 0, 1, 0]})
    group, alone = op.open(op.group(asked), timeouts=True), op.open(asked, timeouts=True)
    group.push(table)
    alone.push(table)
    assert group.timed_out["q"].to_pylist() == alone.timed_out.to_pylist() != []


def test_rows_that_a_query_in_order_refuses_are_taken_by_none() -> None:
    plain = op.Query("plain").order_by("ts").pattern("A").measures(at="A.ts")
    waits = replace(plain, name="waits").disorder(op.KSlack(10))
    stream = op.open(op.group(plain, waits))
    stream.push({"ts": [1, 5]})
    with pytest.raises(op.DataError) as caught:
        stream.push({"ts": [3]})
    assert caught.value.where == "query 'plain'"
    assert not stream.failed
    assert stream.push({"ts": [20]})["plain"]["at"].to_pylist() == [20]
    assert stream.finish()["waits"]["at"].to_pylist() == [20]


def test_operators_of_a_group_that_are_lost_go_on_from_a_saved_state() -> None:
    spec = GroupSpec((single("wrong").measures(n="CAST(A.key AS INT)"),), SCHEMA, together=True)
    group = GroupOperator(spec)
    group.step(EventsArrived(rows((5, 0))))
    state = group.state()
    with pytest.raises(op.DataError, match="cannot cast"):
        group.step(EventsArrived(rows((6, 1), (7, 2), (9, 0))))
    with pytest.raises(op.DataError, match="an earlier push failed"):
        group.step(EventsArrived(rows((10, 0))))
    group.restore(state)
    group.step(EventsArrived(rows((4, 0), (10, 0))))
    assert group.counters().order.late == 1


def test_a_query_that_refuses_rows_lets_no_other_tell_timeouts_twice() -> None:
    one = op.Query("one").order_by("ts").pattern("A -> B").define(A="k = 'a'", B="k = 'b'")
    two = op.Query("two").order_by("n").pattern("X").define(X="k = 'a'").measures(n="X.n")
    group = op.open(op.group(one.measures(at="B.ts").within(5), two), timeouts=True)
    group.push({"ts": [1], "n": [10], "k": ["a"]})
    with pytest.raises(op.DataError, match="comes before rows"):
        group.push({"ts": [100], "n": [5], "k": ["c"]})
    group.push({"ts": [100], "n": [11], "k": ["c"]})
    assert group.timed_out["one"].num_rows == 1


class Total(op.Operator):
    """Adds up; nobody can save it."""

    output = pa.schema([("total", pa.int64())])

    def __init__(self) -> None:
        self.total = 0

    def process(self, events: pa.Table) -> None:
        self.total += sum(events["v"].to_pylist())

    def close(self) -> dict[str, list[int]]:
        return {"total": [self.total]}


def test_an_operator_that_nobody_can_save_is_one_of_a_group() -> None:
    total = op.Query("total").order_by("ts").apply(Total).over(op.windows.count(3))
    group = op.open(op.group(total, single("a")))
    found = [group.push(rows((ts, ts))) for ts in range(4)]
    assert [one["total"].num_rows for one in found] == [0, 0, 1, 0]


def test_a_group_is_over_when_it_is_finished() -> None:
    group = op.open(op.group(single("a"), single("b", 3)))
    group.push(rows((1, 1)))
    group.finish()
    for values in ((5, 0), (6, 1)):
        with pytest.raises(op.DataError, match="the group is finished"):
            group.push(rows(values))
    assert not group.failed
    with pytest.raises(op.DataError, match="the group is finished"):
        op.resume(op.group(single("a"), single("b", 3)), group.state()).push(rows((7, 1)))


def test_the_watermark_of_a_group_is_that_of_queries_that_go_on() -> None:
    wrong = single("wrong", 9).measures(n="CAST(A.key AS INT)")
    group = op.open(op.group(single("right", 3), wrong), schema=SCHEMA)
    group.push(rows((1, 1), (2, 2), (30, 0)))
    assert list(group.failed) == ["wrong"]
    assert group.watermark == 27 - 6  # They share a chain, and its last link waits for all.
    group.push(rows((40, 0)))
    assert group.watermark == 31
