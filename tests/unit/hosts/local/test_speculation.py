"""Answers now, corrected later: what is confirmed is what the reorderer alone lets out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.disordered import SCHEMA, drawn_events, queries
from support.properties import examples

import outpace as op
from outpace.engine.message import EventsArrived, HostLoad
from outpace.errors import BindError, DataError
from outpace.pattern.checkpoints import CheckpointModel, CheckpointWork
from outpace.pattern.disorder import Late

SLACKS = st.sampled_from(
    [
        *(op.KSlack(slack) for slack in (0, 4, 12)),
        *(op.MPKSlack(), op.MPKSlack(at_most=5)),
        *(op.Quantile(0.8), op.Punctuation(), op.LDOP(window=10)),
    ]
)


class WithKept(CheckpointModel):
    """A model of a user: the more is kept, the rarer are checkpoints."""

    def interval(self, work: CheckpointWork) -> int:
        return 1 + work.kept // 3


class Wrong(CheckpointModel):
    """One that does not say when."""

    def interval(self, work: CheckpointWork) -> int:
        return 0


MODELS = st.sampled_from(
    [
        *(op.checkpoints.Every(1), op.checkpoints.Every(3)),
        *(op.checkpoints.EverySpeculative(1), op.checkpoints.EverySpeculative(2, most=5)),
        *(op.checkpoints.Adaptive(), op.checkpoints.LeastWork(), WithKept()),
    ]
)


class Followed:
    """The matches that are current, and those of them that are confirmed."""

    def __init__(self) -> None:
        self.current: Counter[str] = Counter()
        self.confirmed: Counter[str] = Counter()

    def apply(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            diff, confirmed = row.pop("diff"), row.pop("confirmed")
            assert len(row.pop("match_id")) == 32
            text = repr(row)
            if diff < 0:
                assert not confirmed
                assert self.current[text] > self.confirmed[text], "only what is tentative may go"
            self.current[text] += diff
            if confirmed:
                self.confirmed[text] += 1
                assert self.confirmed[text] <= self.current[text], "confirmed once, and current"


class Compared:
    """What a stream that speculates gives, beside what its reorderer alone lets out."""

    def __init__(self) -> None:
        self.early: list[Any] = []
        self.in_order: list[Any] = []
        self._followed, self._expected = Followed(), Counter[str]()

    def take(self, found: pa.Table, sure: pa.Table) -> None:
        """Take what both gave for the same."""
        self.early.extend(found.to_pylist())
        self.in_order.extend(sure.to_pylist())
        self._followed.apply(found)
        self._expected.update(map(repr, sure.to_pylist()))
        # What time decides may be confirmed a little later.
        assert not self._followed.confirmed - self._expected

    def check_end(self, alpha: float) -> None:
        """Compare all of it; where events wait for all of K, row for row."""
        assert +self._followed.current == +self._followed.confirmed == self._expected
        if alpha == 1:
            said = {(row.pop("diff"), row.pop("confirmed")) for row in self.early}
            assert said <= {(1, True)}
            for row in self.early:
                del row["match_id"]
            assert self.early == self.in_order


@examples(40)
@given(
    queries(),
    SLACKS,
    st.sampled_from([0, 0.3, 0.5, 1]),
    MODELS,
    st.integers(0, 1 << 32),
)
def test_what_is_confirmed_is_what_the_reorderer_lets_out(
    query: op.Query,
    slack: op.pattern.disorder.Disorder,
    alpha: float,
    model: CheckpointModel,
    seed: int,
) -> None:
    random, both = Random(seed), Compared()
    events = drawn_events(random).to_pylist()
    coming = sorted(events, key=lambda one: one["ts"] + random.randint(0, 12))
    speculative = query.disorder(op.Speculative(slack, alpha=alpha, checkpoints=model))
    stream, plain = op.open(speculative), op.open(query.disorder(slack))
    while coming:
        size = random.randint(1, 6)
        piece, coming = coming[:size], coming[size:]
        rows = pa.Table.from_pylist(piece, SCHEMA)
        both.take(stream.push(rows), plain.push(rows))
        if random.random() < 0.3:
            told = piece[-1]["ts"] - random.randint(0, 5)
            both.take(stream.advance(told), plain.advance(told))
        if random.random() < 0.2:
            stream = op.resume(speculative, stream.state())
    assert stream.order.late == plain.order.late
    both.take(stream.finish(), plain.finish())
    both.check_end(alpha)


@examples(30)
@given(queries(), SLACKS, st.sampled_from([0, 0.5, 1]), MODELS, st.integers(0, 1 << 32))
def test_of_several_sources_it_is_what_each_lets_out(
    query: op.Query,
    slack: op.pattern.disorder.Disorder,
    alpha: float,
    model: CheckpointModel,
    seed: int,
) -> None:
    random, both, sources = Random(seed), Compared(), ["a", "b", "c"]
    speculative = query.disorder(op.Speculative(slack, alpha=alpha, checkpoints=model))
    events = sorted(
        drawn_events(random).to_pylist(), key=lambda one: one["ts"] + random.randint(0, 12)
    )
    coming = {
        name: [one for one in events if one["seq"] % 3 == number]
        for number, name in enumerate(sources)
    }
    stream, plain = (
        op.open(speculative, sources=sources),
        op.open(query.disorder(slack), sources=sources),
    )
    while any(coming.values()):
        name = random.choice([name for name, own in coming.items() if own])
        size = random.randint(1, 4)
        piece, coming[name] = coming[name][:size], coming[name][size:]
        rows = pa.Table.from_pylist(piece, SCHEMA)
        both.take(stream.push(rows, name), plain.push(rows, name))
        if random.random() < 0.3:
            told = piece[-1]["ts"] - random.randint(0, 5)
            both.take(stream.heartbeat(name, told), plain.heartbeat(name, told))
        if not coming[name] and random.random() < 0.5:
            both.take(stream.finish(name), plain.finish(name))
        if random.random() < 0.2:
            stream = op.resume(speculative, stream.state())
    assert stream.order.late == plain.order.late
    both.take(stream.finish(), plain.finish())
    both.check_end(alpha)


def test_a_match_does_not_wait_for_a_source_that_is_behind() -> None:
    stream = op.open(rises(alpha=0), sources=["a", "b"])
    # 30 comes behind 10 as far as anybody knows.
    found = stream.push(rows((1, 10), (3, 30), (4, 20)), "a")
    assert [(row["last"], row["diff"]) for row in found.to_pylist()] == [(30, 1)]
    found = stream.push(rows((2, 25)), "b")
    assert sorted((row["last"], row["diff"]) for row in found.to_pylist()) == [
        *((25, 1), (30, -1), (30, 1)),
    ]
    assert stream.push(rows((40, 0)), "a").num_rows == 0
    assert stream.speculation.confirmed == 0
    sure = stream.push(rows((40, 0)), "b")
    assert sure["confirmed"].to_pylist() == [True, True]
    assert stream.order.late == 0
    assert stream.push(rows((12, 1)), "b").num_rows == 0
    assert stream.order.late == 1


@pytest.mark.parametrize("checkpoints", [1, 5, 100])
def test_checkpoints_decide_how_much_is_matched_again(checkpoints: int) -> None:
    stream = op.open(rises(alpha=0, checkpoints=checkpoints))
    for first in range(0, 300, 30):
        stream.push(rows(*((ts, ts % 7) for ts in range(first, first + 30) if ts % 30 != 25)))
        stream.push(rows((first + 25, 3)))
    counted = stream.speculation
    assert counted.rollbacks == stream.order.corrected == 10
    # Behind each late event lie three that had gone on: those from 26 to 28.
    assert counted.replayed >= 10 * 3
    assert counted.replayed < 10 * (3 + checkpoints)


@pytest.mark.parametrize("windows", [None, op.windows.time(400, slide=200)])
def test_no_certain_row_is_matched_again_where_time_alone_went_on_early(windows: Any) -> None:
    """The less is speculation, the fewer rows lie between what is certain and what went on."""
    query = rises(slack=100, alpha=0.9, checkpoints=10)
    query = query if windows is None else query.over(windows)
    stream, current = op.open(query), op.CurrentMatches()
    for low in range(0, 1000, 100):
        times = [200 * number for number in range(low, low + 100)]
        current.apply(stream.push(rows(*((ts, ts % 7) for ts in times))))
        # Behind the last but one, which is certain, and before the time that was told.
        late = times[-1] - 95
        current.apply(stream.push(rows((late, late % 7))))
    current.apply(stream.finish())
    known = stream.speculation
    assert known.rollbacks == 10
    assert known.replayed <= 10
    came = sorted([*range(0, 200_000, 200), *(200 * n - 295 for n in range(100, 1001, 100))])
    expected = op.match(rows(*((ts, ts % 7) for ts in came)), query)
    assert Counter(current.table["last"].to_pylist()) == Counter(expected["last"].to_pylist())


def test_a_model_that_fails_is_named() -> None:
    class Failing(CheckpointModel):
        def interval(self, work: CheckpointWork) -> int:
            return work.since // (work.since - work.since)

    stream = op.open(rises(alpha=0, checkpoints=Failing()))
    with pytest.raises(DataError, match=r"(?s)Failing.interval failed\n  ZeroDiv.*mend it"):
        stream.push(rows((1, 1), (2, 2)))
    assert "checkpoints=Failing()" in rises(alpha=0, checkpoints=Failing()).to_python()


def test_a_model_that_says_no_number_is_named() -> None:
    stream = op.open(rises(alpha=0, checkpoints=Wrong()))
    with pytest.raises(DataError, match=r"Wrong.interval returned 0, which is no number of events"):
        stream.push(rows((1, 1), (2, 2)))


def test_a_number_of_numpy_is_one() -> None:
    class Counted(CheckpointModel):
        def interval(self, work: CheckpointWork) -> int:
            return np.int64(2)

    assert op.Speculative(5, checkpoints=np.int64(2)) == op.Speculative(5, checkpoints=2)
    stream = op.open(rises(alpha=0, checkpoints=Counted()))
    stream.push(rows((1, 1), (2, 2), (3, 3), (4, 4)))
    assert stream.speculation.checkpoints == 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("often", "a model for checkpoints is expected, not 'often'"),
        (True, "a model for checkpoints is expected, not True"),
        (0, "events is a number of at least 1, not 0"),
        (1.5, "a model for checkpoints is expected, not 1.5"),
    ],
)
def test_what_is_no_model_is_refused(value: Any, said: str) -> None:
    with pytest.raises(BindError, match=said):
        op.Speculative(5, checkpoints=value)


def test_memory_bounds_what_is_speculation() -> None:
    bounded, free = (op.open(rises(alpha=0, memory=memory)) for memory in (4, None))
    current = op.CurrentMatches()
    for ts in range(200):
        current.apply(bounded.push(rows((ts, ts % 7))))
        current.drop_confirmed()
        assert current.table.num_rows <= 4
        free.push(rows((ts, ts % 7)))
    assert (free.speculation.full, free.order.buffered, free.speculation.alpha) == (0, 1, 0)
    # Of the eleven that are not certain about four have gone on.
    assert bounded.speculation.full > 150
    assert bounded.order.buffered in (7, 8)


def rises(slack: int = 10, **settings: Any) -> op.Query:
    query = op.Query("rise").order_by("ts").pattern("A B").define(B="v > A.v")
    query = query.measures(first="A.v", last="B.v").skip_to_next_row()
    return query.disorder(op.Speculative(slack, **settings))


def in_sql(disorder: str) -> op.Query:
    return op.Query.from_sql(f"ORDER BY ts PATTERN (A) DISORDER {disorder}")


def rows(*values: tuple[int, int]) -> pa.Table:
    return pa.table({"ts": [ts for ts, _ in values], "v": [v for _, v in values]})


def shown(table: pa.Table) -> list[tuple[object, ...]]:
    names = ("first", "last", "diff", "confirmed")
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


def test_matches_come_early_go_and_are_confirmed() -> None:
    # A fixed number of events between checkpoints: how many there are depends on no clock.
    stream, current = op.open(rises(alpha=0, checkpoints=100)), op.CurrentMatches()
    found = stream.push(rows((1, 10), (3, 30), (4, 20)))
    current.apply(found)
    assert shown(found) == [(10, 30, 1, False)]
    # 25 comes between 10 and 30.
    found = stream.push(rows((2, 25)))
    current.apply(found)
    assert shown(found) == [(10, 30, -1, False), (10, 25, 1, False), (25, 30, 1, False)]
    # All that is before 4 is certain now, so 7 is late.
    found = stream.push(rows((14, 50), (15, 0)))
    current.apply(found)
    assert shown(found) == [(10, 25, 0, True), (25, 30, 0, True), (20, 50, 1, False)]
    assert shown(stream.push(rows((3, 7)))) == []
    assert (stream.order.late, stream.order.corrected) == (1, 1)
    assert current.table["last"].to_pylist() == [25, 30, 50]
    assert current.drop_confirmed()["last"].to_pylist() == [25, 30]
    current.apply(stream.finish())
    assert current.table["confirmed"].to_pylist() == [True]
    known = stream.speculation
    assert (known.alpha, known.slack) == (0, 10)
    assert (known.tentative, known.confirmed, known.retracted) == (4, 3, 1)
    assert known.share_retracted == 0.25
    assert (known.rollbacks, known.replayed, known.checkpoints) == (1, 2, 1)
    assert (known.deliveries, known.redeliveries) == (6, 1)
    assert 0 < known.checkpoint_bytes < 1000
    assert op.open(rises()).speculation.share_retracted == 0


def test_what_a_checkpoint_takes_is_known_once_it_is_measured() -> None:
    stream = op.open(rises(alpha=0, checkpoints=1))
    stream.push(rows((1, 10), (3, 30), (4, 20)))
    assert (stream.speculation.event_seconds, stream.speculation.checkpoint_seconds) == (0, 0)
    stream.step(EventsArrived(rows((5, 10)), load=HostLoad(busy=0.5, worked=0.25)))
    known = stream.speculation
    assert 0 < known.event_seconds <= known.checkpoint_seconds < 0.25


def test_a_checkpoint_copies_little_of_what_is_kept() -> None:
    query = op.Query("q").order_by("ts").pattern("A -> B").define(A="v >= 0", B="v < 0")
    query = query.measures(at="B.ts").within(1 << 30)
    stream = op.open(query.disorder(op.Speculative(1 << 40, alpha=0, checkpoints=1000)))
    stream.push(rows(*((time, 1) for time in range(20_000))))
    before = stream.speculation
    assert stream.rows_kept > 19_000
    stream.push(rows(*((time, 1) for time in range(20_000, 21_000))))
    known = stream.speculation
    assert known.checkpoints == before.checkpoints + 1
    assert known.checkpoint_bytes - before.checkpoint_bytes < len(stream.state()) / 100


def test_a_table_is_certain() -> None:
    found = op.match(rows((1, 10), (3, 30)), rises(alpha=0))
    assert shown(found) == [(10, 30, 1, True)]


def test_what_comes_out_is_certain_once_all_sources_have_ended() -> None:
    stream = op.open(rises(alpha=1), sources=["a", "b"])
    stream.push(rows((1, 10), (4, 20)), "a")
    stream.push(rows((3, 15)), "b")
    assert stream.finish("a").num_rows == 0
    assert shown(stream.finish("b")) == [(10, 15, 1, True), (15, 20, 1, True)]
    assert stream.finish().num_rows == 0


def test_alpha_follows_the_load() -> None:
    stream = op.open(rises())
    pushed = EventsArrived(rows((1, 10), (3, 30), (4, 20)))
    stream.bind(pushed.rows.schema)
    # At first it waits like the reorderer; a host that has nothing to do lets it speculate.
    assert not stream.order.buffered
    stream.step(pushed)
    assert stream.order.buffered == 3
    for _ in range(8):
        stream.step(EventsArrived(pushed.rows.slice(3), load=HostLoad(0.0, 0.0)))
    assert stream.order.buffered == 1
    stream.step(EventsArrived(rows((6, 5)), load=HostLoad(0.95, 0.1)))
    assert stream.order.buffered == 2


def test_alpha_follows_the_load_in_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outpace.hosts.clock._STRETCH", 0.0)
    monkeypatch.setattr("outpace.hosts.clock.BusyMeter.add", lambda meter, busy, worked: None)
    stream = op.open(op.group(rises()))
    stream.push(rows((1, 10), (3, 30), (4, 20)))
    assert stream.order.buffered
    for _ in range(9):
        stream.push(rows((4, 20)).slice(1))
    assert stream.order.buffered == 1, "what has nothing to do lets them go on"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: op.Speculative(op.Sequence("1 s")), "op.Sequence has no K"),
        (lambda: op.Speculative(op.Speculative()), "op.Speculative has no K"),
        (lambda: op.Speculative(op.KSlack(3, late="side")), "says what K is and nothing else"),
        (lambda: op.Speculative(-3), "slack must not be negative"),
        (lambda: op.Speculative(3, alpha=2), "alpha is a number from 0 to 1"),
        (lambda: op.Speculative(3, target=(0.9, 0.1)), "begins with the lower number"),
        (lambda: op.Speculative(3, target=1), "target is two numbers"),
        (lambda: op.Speculative(3, late="pass"), "is not for op.Speculative"),
        (lambda: op.Speculative(3, late=Late.PASS), "is not for op.Speculative"),
        (lambda: in_sql("SPECULATIVE SLACK 3 LATE PASS"), 'late="pass" is not for op.Speculative'),
        (lambda: in_sql("SPECULATIVE LATE CORRECT"), 'late="correct" is not for op.Speculative'),
    ],
)
def test_settings_that_say_nothing_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(op.OutpaceError, match=message):
        make()


def test_what_cannot_be_speculated_on_is_refused() -> None:
    with pytest.raises(op.OutpaceError, match="column 'confirmed' already"):
        op.open(rises().measures(confirmed="A.v")).push(rows((1, 1)))
    with pytest.raises(op.OutpaceError, match="column 'match_id' already"):
        op.open(rises().measures(match_id="A.v")).push(rows((1, 1)))
    with pytest.raises(op.OutpaceError, match="the id of a match is the same in every window"):
        op.open(rises().over(op.windows.time(5), drift=2)).push(rows((1, 1)))
    named = rises(alpha=0).measures(Match_ID=op.match_id())
    assert op.match(rows((1, 1), (2, 2)), named).column_names[2:] == [
        "match_id",
        "diff",
        "confirmed",
    ]
    moved = op.open(rises(clock="a"), sources=["a", "b"])
    with pytest.raises(op.OutpaceError, match="clock of one source is for events that come as one"):
        moved.push(rows((1, 1)).append_column("source", pa.array(["a"])))
    both = op.open(rises(), sources=["a", "b"])
    both.push(rows((1, 1)), source="a")
    with pytest.raises(op.OutpaceError, match="clocks of sources are not compared"):
        both.compare_clocks(op.ingest.ClockExchange("a", 0, 5, 5, 0))
    gone = pa.table({"match_id": ["a"], "diff": [-1], "confirmed": [False]})
    with pytest.raises(op.OutpaceError, match="it never came"):
        op.CurrentMatches().apply(gone)
    with pytest.raises(op.OutpaceError, match="what a stream gave is expected"):
        op.CurrentMatches().apply(None)
    unsure = op.CurrentMatches()
    unsure.apply(pa.table({"match_id": ["a"], "diff": [1]}))
    sure, again = op.CurrentMatches(), {"match_id": ["a"], "diff": [1], "confirmed": [True]}
    sure.apply(pa.table(again))
    with pytest.raises(op.OutpaceError, match="the match a came already"):
        sure.apply(pa.table(again))
    with pytest.raises(op.OutpaceError, match="no column 'confirmed'"):
        unsure.drop_confirmed()
    with pytest.raises(op.OutpaceError, match=r"(?s)no column 'match_id'.*with late='correct' and"):
        op.CurrentMatches().apply(pa.table({"diff": [-1]}))


def test_a_state_with_other_settings_is_refused() -> None:
    stream = op.open(rises(alpha=0.5))
    stream.push(rows((1, 1)))
    with pytest.raises(op.StateError, match="in another way"):
        op.resume(rises(alpha=0.25), stream.state())


def test_a_row_that_is_refused_leaves_the_state_as_it_was() -> None:
    pairs = op.Query("pairs").order_by("ts").pattern("A -> B").define(A="v = 1", B="v = 2")
    pairs = pairs.measures(first="A.ts", last="B.ts")
    query = pairs.disorder(op.Speculative(5, alpha=0.0, checkpoints=1))
    stream = op.open(query)
    for ts in range(30):
        stream.push({"ts": [ts], "v": [ts % 3]})
    before = stream.state()
    with pytest.raises(op.DataError, match="NULL"):
        stream.push(pa.table({"ts": pa.array([None], pa.int64()), "v": [1]}))
    assert stream.state() == before
    op.resume(query, before).push({"ts": [26], "v": [2]})


@pytest.mark.parametrize("alpha", [0, 0.5, 1])
def test_it_is_known_how_long_matches_took(alpha: float) -> None:
    """By event time: tentative ones as long as alpha says, confirmed ones K, and the next event."""
    stream = op.open(rises(alpha=alpha))
    for ts in range(200):
        stream.push(rows((ts, ts)))
    known = stream.speculation
    assert known.slack == 10
    if alpha < 1:
        assert known.tentative_latency == pytest.approx(10 * alpha, abs=1)
    else:
        assert known.tentative == known.tentative_latency == 0
    assert known.confirmed_latency == pytest.approx(10, abs=1)


def sent(*events: tuple[str, int]) -> pa.Table:
    """Events of sources; each rises above all before it."""
    return pa.table({"ts": [ts for _, ts in events], "source": [source for source, _ in events]})


def followed_by(**settings: Any) -> op.Query:
    query = op.Query("next").order_by("ts").pattern("A B").define(B="B.ts > A.ts")
    query = query.measures(first="A.ts", last="B.ts").skip_to_next_row()
    return query.disorder(op.Speculative(**settings))


def test_the_events_of_one_source_move_the_clock() -> None:
    """The example of Sardar 2018, 3.2.1: what K is behind each event of the clock, `a`."""
    stream = op.open(followed_by(slack=op.MPKSlack(), alpha=1, clock="a"))
    slacks, waiting = [], []
    for event in (("a", 4), ("b", 3), ("c", 6), ("a", 7), ("a", 9), ("b", 10), ("a", 13)):
        stream.push(sent(event))
        if event[0] == "a":
            slacks.append(stream.speculation.slack)
            waiting.append(stream.buffered)
    assert slacks == [0, 4, 4, 4]
    assert waiting == [1, 3, 3, 3], "what lies ahead of the clock waits, too"
    stream.push(sent(("c", 500)))
    assert stream.speculation.slack == 4, "others do not move the clock, however far they are"
    stream.push(sent(("b", 11)))
    assert stream.speculation.slack == 4
    stream.push(sent(("a", 19)))
    assert stream.speculation.slack == 19 - 11, "how late it was shows when the clock goes on"
    stream.push(sent(("a", 600)))
    assert stream.speculation.slack == 8, "what lay ahead of the clock was not late"


def test_without_an_event_of_the_clock_all_wait() -> None:
    stream = op.open(followed_by(slack=5, alpha=0, clock="a"))
    assert stream.push(sent(("b", 1), ("b", 2), ("b", 90))).num_rows == 0
    assert stream.buffered == 3
    assert stream.advance(50).num_rows == 1, "but somebody may say what time it is"
    assert stream.push(sent(("a", 100))).num_rows == 1
    assert stream.finish()["diff"].to_pylist() == [1]


@examples(30)
@given(
    st.sampled_from([op.KSlack(40), op.MPKSlack(at_least=40), op.Quantile(0.5, at_least=40)]),
    st.sampled_from([0, 0.5, 1, None]),
    st.integers(0, 1 << 32),
)
def test_with_a_clock_all_is_right_in_the_end(
    slack: op.pattern.disorder.Disorder, alpha: float | None, seed: int
) -> None:
    random = Random(seed)
    events = [(random.choice("aabc"), ts) for ts in range(random.randint(1, 60))]
    coming = sorted(events, key=lambda one: one[1] + random.randint(0, 12))
    query = followed_by(slack=slack, alpha=alpha, clock="a")
    stream, current = op.open(query), op.CurrentMatches()
    while coming:
        size = random.randint(1, 6)
        piece, coming = coming[:size], coming[size:]
        current.apply(stream.push(sent(*piece)))
        if random.random() < 0.2:
            stream = op.resume(query, stream.state())
    current.apply(stream.finish())
    found = current.table
    assert sorted(found["first"].to_pylist()) == [ts for _, ts in events[:-1]]
    assert found["confirmed"].to_pylist() == [True] * found.num_rows


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ahead": 5}, "ahead has no meaning where the events of one source move the clock"),
        ({"arrival": "came"}, "arrival has no meaning"),
        ({"slack": op.Punctuation()}, r"slack=op.Punctuation\(\) has no meaning"),
        ({"clock": 3}, "clock is text, not 3"),
    ],
)
def test_what_a_clock_does_not_go_with_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BindError, match=said):
        op.Speculative(**{"clock": "a", **settings})


def test_a_clock_needs_a_column_of_sources() -> None:
    stream = op.open(rises(alpha=0, clock="a"))
    with pytest.raises(BindError, match="clock names the source 'a', but the input has no column"):
        stream.push(rows((1, 1)))


@pytest.mark.parametrize("sources", [[b"\xff"], [["a"]], [{"name": "a"}]])
def test_a_column_of_sources_holds_names(sources: list[Any]) -> None:
    stream = op.open(rises(alpha=0, clock="a"))
    with pytest.raises(BindError, match=r"the column 'source' is a .*, which is no name"):
        stream.push(pa.table({"ts": [1], "v": [1], "source": sources}))


def test_a_run_with_a_model_in_python_is_recorded(tmp_path: Path) -> None:
    query = rises(alpha=0, checkpoints=WithKept())
    stream = op.open(query, record=tmp_path / "run")
    for ts in (1, 3, 2, 8):
        stream.push(rows((ts, ts)))
    assert len(list(op.replay(tmp_path / "run", query=query))) == 4


def test_a_saved_stream_goes_on_with_other_checkpoints() -> None:
    stream = op.open(rises(checkpoints=3))
    stream.push(rows((1, 1), (3, 3), (4, 4)))
    again = op.resume(rises(checkpoints=op.checkpoints.Adaptive()), stream.state())
    for late in ((2, 2), (30, 1)):
        assert again.push(rows(late)).equals(stream.push(rows(late)))


def test_the_watermark_is_what_no_later_row_lies_before_though_rows_go_on_early() -> None:
    query = op.Query("q").order_by("ts").pattern("A B").define(B="ts > 0").measures(at="B.ts")
    stream = op.open(query.disorder(op.Speculative(10, alpha=0.0)))
    stream.push({"ts": [1, 9, 30]})
    assert stream.watermark == 20
    stream.push({"ts": [25]})
    assert (stream.order.late, stream.watermark) == (0, 20)
