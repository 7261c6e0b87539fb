"""Queries of a group give what each of them gives alone."""

from __future__ import annotations

import logging
from collections import Counter
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outpace as op

SCHEMA = pa.schema([("ts", pa.int64()), ("key", pa.string()), ("v", pa.int64())])


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


def test_bad_groups_are_refused() -> None:
    with pytest.raises(op.BindError, match="one query at least"):
        op.group()
    with pytest.raises(op.BindError, match="two queries of the group are named 'a'"):
        op.group(single("a"), single("a"))
    # What types rule out is told at run time as well.
    with pytest.raises(op.OutpaceError):
        op.group("a")  # type: ignore[arg-type]
    with pytest.raises(op.UnsupportedError, match="has one source"):
        op.open(op.group(single("a")), sources=["x"])  # type: ignore[call-overload]
    group = op.open(op.group(single("a")))
    with pytest.raises(op.DataError, match="before the first push"):
        group.finish()
    group.push(rows((1, 1)))
    with pytest.raises(op.DataError, match="other columns than those before"):
        group.push({"ts": [2]})
    with pytest.raises(op.StateError, match="to other queries"):
        op.resume(op.group(single("b")), group.state())
    with pytest.raises(op.StateError, match="not to a group"):
        op.resume(op.group(single("a")), op.open(single("a")).state())


def test_after_an_error_nothing_more_is_taken() -> None:
    wrong = single("wrong").define(A="CAST(key AS INT) > 1", B="v = 2")
    group = op.open(op.group(single("right"), wrong), schema=SCHEMA)
    queried, state = op.group(single("right"), wrong), group.state()
    with pytest.raises(op.DataError):
        group.push(rows((1, 1), (2, 2), (9, 0)))
    group = op.resume(queried, state)
    fine = pa.Table.from_pylist([{"ts": 1, "key": "7", "v": 1}], SCHEMA)
    assert {table.num_rows for table in group.push(fine).values()} == {0}


def test_after_a_row_that_cannot_be_used_the_group_goes_on() -> None:
    other = single("other").disorder(op.MPKSlack())
    group = op.open(op.group(single("one"), single("two", 2), other))
    group.push(rows((1, 1)))
    bad = pa.Table.from_pylist([{"ts": None, "key": "k", "v": 2}], SCHEMA)
    with pytest.raises(op.DataError):
        group.push(pa.concat_tables([rows((2, 2)), bad]))
    found = group.push(rows((2, 2), (9, 0)))
    assert {name: table.num_rows for name, table in found.items()} == dict.fromkeys(found, 1)


PATTERNS = [
    ("A B+", {"B": "v > A.v"}),
    ("A -> !B", {"A": "v > 3", "B": "v < 3"}),
    ("A ->> B", {"A": "v = 2", "B": "v > A.v"}),
    ("A -> B", {"A": "v > 6", "B": "v < 2"}),
    ("A B*", {"A": "v > 2", "B": "v < PREV(v)"}),
]


def drawn_query(random: Random, name: str) -> op.Query:
    pattern, conditions = random.choice(PATTERNS)
    query = op.Query(name).order_by("ts").pattern(pattern).define(**conditions)
    query = query.measures(times="ARRAY_AGG(ts)", number="MATCH_NUMBER()", id="MATCH_ID()")
    query = query.within(random.randint(1, 9))
    if random.random() < 0.5:
        query = query.partition_by("key")
    if random.random() < 0.3:
        query = query.skip_to_next_row()
    if random.random() < 0.3:
        windows = [op.windows.time(10, slide=5), op.windows.count(6, slide=3)]
        query = query.over(random.choice(windows), numbered=random.random() < 0.5)
    settings: dict[str, object] = {"late": random.choice(["drop", "side", "pass"])}
    if random.random() < 0.2:
        settings |= {"ahead": 20, "invalid": "quarantine"}
    if random.random() < 0.1:
        settings |= {"late": "correct", "horizon": 9}
    kinds = [
        op.KSlack(random.randint(0, 5), **settings),
        op.KSlack(random.randint(0, 5), **settings),
        op.MPKSlack(**settings),
        op.Punctuation(**settings),
        op.InOrder(**settings),
        op.LDOP(window=10, **settings),
    ]
    return query.disorder(random.choice(kinds))


@given(st.integers(0, 1 << 32))
def test_each_query_gives_what_it_gives_alone(seed: int) -> None:
    random = Random(seed)
    queries = [drawn_query(random, f"q{number}") for number in range(random.randint(1, 3))]
    time, events = 0, []
    for _ in range(random.randint(2, 20)):
        time += random.choice([0, 1, 1, 3])
        events.append({"ts": time, "key": random.choice("uvw"), "v": random.randrange(8)})
    events.sort(key=lambda one: one["ts"] + random.randint(0, 8))
    queried = op.group(*queries)
    group = op.open(queried)
    alone = {query.name: op.open(query) for query in queries}
    while events:
        size = random.randint(1, 9)
        piece, events = pa.Table.from_pylist(events[:size], SCHEMA), events[size:]
        found = group.push(piece)
        for name, matcher in alone.items():
            assert found[name].equals(matcher.push(piece))
            assert rows_of(group.late[name]) == rows_of(matcher.late)
            assert rows_of(group.invalid[name]) == rows_of(matcher.invalid)
        if random.random() < 0.2:
            told = int(piece["ts"][0].as_py()) - random.randint(0, 8)
            found = group.advance(told)
            assert all(found[name].equals(alone[name].advance(told)) for name in alone)
        if random.random() < 0.2:
            group = op.resume(queried, group.state())
    found = group.finish()
    assert all(found[name].equals(matcher.finish()) for name, matcher in alone.items())


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))
