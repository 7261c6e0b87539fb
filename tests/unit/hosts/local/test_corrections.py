"""Late events that correct what came out: in the end all is as if they had come in time."""

from __future__ import annotations

import logging
from collections import Counter
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.disordered import SCHEMA, drawn_events, queries

import outpace as op
from outpace.pattern.checkpoints import LeastWork


def rises(**settings: object) -> op.Query:
    query = op.Query("rise").order_by("ts").pattern("A B").define(B="v > A.v")
    query = query.measures(first="A.v", last="B.v").skip_to_next_row()
    return query.disorder(op.KSlack(0, late="correct", horizon=10, **settings))


def rows(*values: tuple[int, int]) -> pa.Table:
    return pa.table({"ts": [ts for ts, _ in values], "v": [v for _, v in values]})


def test_what_a_late_event_changes_comes_again() -> None:
    stream = op.open(rises())
    found = stream.push(rows((1, 10), (3, 30), (4, 20), (9, 0)))
    assert found.to_pylist() == [{"first": 10, "last": 30, "diff": 1}]
    # 25 comes between 10 and 30.
    assert stream.push(rows((2, 25))).to_pylist() == [
        {"first": 10, "last": 30, "diff": -1},
        {"first": 10, "last": 25, "diff": 1},
        {"first": 25, "last": 30, "diff": 1},
    ]
    # 5 has the time of 10, and came behind it.
    assert stream.push(rows((1, 5))).to_pylist() == [
        {"first": 10, "last": 25, "diff": -1},
        {"first": 5, "last": 25, "diff": 1},
    ]
    assert (stream.order.late, stream.order.corrected) == (0, 2)
    assert stream.finish().num_rows == 0
    # Nobody hears what is confirmed.
    known = stream.speculation
    assert (known.tentative, known.confirmed, known.retracted) == (4, 0, 2)


def test_what_is_confirmed_may_be_a_value() -> None:
    query = op.Query("rise").order_by("ts").pattern("A B").define(B="v > A.v")
    query = query.measures(match_id="A.v", confirmed="B.v")
    stream = op.open(query.disorder(op.KSlack(0, late="correct", horizon=10)))
    stream.push(rows((1, 10), (3, 30), (4, 20)))
    assert stream.push(rows((2, 25))).to_pylist() == [
        {"match_id": 10, "confirmed": 30, "diff": -1},
        {"match_id": 10, "confirmed": 25, "diff": 1},
    ]


def test_what_is_later_than_the_horizon_is_dropped_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = op.open(rises())
    stream.push(rows((1, 10), (3, 30), (20, 0)))
    with caplog.at_level(logging.WARNING):
        assert stream.push(rows((9, 1), (10, 1))).num_rows == 0
    assert stream.late["ts"].to_pylist() == [9]
    assert (stream.order.late, stream.order.corrected) == (1, 1)
    assert "1 event was late and dropped" in caplog.text


def test_a_table_has_nothing_to_correct() -> None:
    found = op.match(rows((1, 10), (3, 30)), rises())
    assert found.to_pylist() == [{"first": 10, "last": 30, "diff": 1}]


def test_it_is_written_in_sql() -> None:
    query = rises()
    text = query.to_sql()
    assert "LATE CORRECT HORIZON 10" in text
    assert op.Query.from_sql(text, name="rise") == query


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: op.KSlack(1, late="correct"), "says nothing without horizon"),
        (lambda: op.KSlack(1, horizon=5), "says nothing without late"),
        (lambda: op.KSlack(1, late="correct", horizon=-5), "horizon must not be negative"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(op.OutpaceError, match=message):
        make()


def test_what_cannot_be_corrected_is_refused() -> None:
    with pytest.raises(op.OutpaceError, match="column 'diff' already"):
        op.open(rises().measures(diff="A.v")).push(rows((1, 1)))


def test_a_state_with_another_horizon_is_refused() -> None:
    stream = op.open(rises())
    stream.push(rows((1, 1)))
    other = op.Query.from_sql(rises().to_sql().replace("HORIZON 10", "HORIZON 11"), name="rise")
    with pytest.raises(op.StateError, match="up to another horizon"):
        op.resume(other, stream.state())


KINDS = st.sampled_from(
    [
        lambda slack: op.KSlack(slack, late="correct", horizon=50),
        lambda slack: op.MPKSlack(late="correct", horizon=50),
        lambda slack: op.InOrder(late="correct", horizon=50),
        lambda slack: op.Punctuation(late="correct", horizon=50),
        lambda slack: op.Sequence("1 s", late="correct", horizon=50),
    ]
)


class Changes:
    """The matches that are current."""

    def __init__(self) -> None:
        self.current: Counter[str] = Counter()

    def apply(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            diff = row.pop("diff")
            self.current[repr(row)] += diff
            assert self.current[repr(row)] >= 0, "what is taken back came out before"


@given(queries(), KINDS, st.integers(0, 3), st.sampled_from([1, 3, 4096]), st.integers(0, 1 << 32))
def test_after_the_last_change_all_is_as_in_order(
    query: op.Query, kind: object, slack: int, span: int, seed: int
) -> None:
    random = Random(seed)
    events = drawn_events(random)
    assert callable(kind)
    corrected = query.disorder(kind(slack))
    coming = sorted(events.to_pylist(), key=lambda one: one["ts"] + random.randint(0, 12))
    stream, changes = op.open(corrected), Changes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LeastWork, "interval", lambda *_: span)
        while coming:
            size = random.randint(1, 6)
            piece, coming = coming[:size], coming[size:]
            changes.apply(stream.push(pa.Table.from_pylist(piece, SCHEMA)))
            if random.random() < 0.3:
                changes.apply(stream.advance(piece[-1]["ts"] - random.randint(0, 5)))
            if random.random() < 0.2:
                stream = op.resume(corrected, stream.state())
        assert stream.order.late == 0
        changes.apply(stream.finish())
    assert +changes.current == Counter(map(repr, op.match(events, query).to_pylist()))


@given(KINDS, st.integers(0, 3), st.integers(0, 1 << 32))
def test_after_the_last_change_sources_are_as_in_order(kind: object, slack: int, seed: int) -> None:
    random = Random(seed)
    query = op.Query("q").order_by("ts").pattern("A B").define(A="v > 3", B="v < A.v")
    query = query.measures(seqs="ARRAY_AGG(seq)").skip_to_next_row()
    events = drawn_events(random).to_pylist()
    coming = sorted(events, key=lambda one: one["ts"] + random.randint(0, 12))
    sent = dict.fromkeys("uvw", 0)
    for one in coming:
        one["seq"] = sent[one["key"]]
        sent[one["key"]] += 1
    assert callable(kind)
    corrected = query.disorder(kind(slack))
    stream, changes = op.open(corrected, sources=list(sent)), Changes()
    stream.bind(SCHEMA)
    while coming:
        size = random.randint(1, 8)
        piece, coming = coming[:size], coming[size:]
        for name in sent:
            own = [one for one in piece if one["key"] == name]
            changes.apply(stream.push(pa.Table.from_pylist(own, SCHEMA), source=name))
        if random.random() < 0.2:
            stream = op.resume(corrected, stream.state())
    assert stream.order.late == 0
    changes.apply(stream.finish())
    order = sorted(events, key=lambda one: (one["ts"], one["seq"], one["key"]))
    expected = op.match(pa.Table.from_pylist(order, SCHEMA), query)
    assert +changes.current == Counter(map(repr, expected.to_pylist()))


def test_a_saved_history_is_as_small_as_its_rows() -> None:
    stream = op.open(rises())
    for time in range(1000):
        stream.push(rows((time, time % 7)))
    assert len(stream.state()) < 100_000


@pytest.mark.parametrize("cut", [1, 2, 8])
def test_what_is_too_late_by_arrival_does_not_depend_on_the_cut(cut: int) -> None:
    times = [1, 2, 100, 5, 101, 300, 280, 299]
    late = op.KSlack(2, late="correct", horizon=10, arrival="at")
    query = op.Query("pairs").order_by("ts").pattern("A B").measures(a="A.ts", b="B.ts")
    stream, current = op.open(query.disorder(late)), Counter[tuple[int, int]]()
    found = [
        stream.push({"ts": times[low : low + cut], "at": [*range(low, low + cut)]})
        for low in range(0, 8, cut)
    ]
    for row in pa.concat_tables([*found, stream.finish()]).to_pylist():
        current[row["a"], row["b"]] += row["diff"]
    assert sorted(+current) == [(1, 2), (100, 101), (299, 300)]
    assert stream.order.late == 2
