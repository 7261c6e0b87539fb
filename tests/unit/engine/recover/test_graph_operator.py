"""Matches that are counted: each has its number among all, also when the operator was rebuilt."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import outpace as op
from outpace.engine.arrays import Integers
from outpace.engine.message import (
    EventsArrived,
    RowsAcknowledged,
    SourceEnded,
    Stimulus,
    WatermarkArrived,
)
from outpace.engine.operator import matches_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.source_merge import CAPACITY
from outpace.engine.recover.event_needs import NeededNumbers
from outpace.engine.recover.graph_operator import CountedOperator
from outpace.engine.recover.recoverable import savepoint_of
from outpace.engine.savepoint import Savepoint
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.query import Query

ROWS = pa.table({"ts": range(60), "k": list("abcab" * 12), "key": [0, 1, 2] * 20})


def query(windows: int, *, keyed: bool, selection: str, rows: bool = False) -> Query:
    made = op.Query("q").order_by("ts").pattern("A -> B").define(A="k = 'a'", B="k = 'b'")
    made = made.measures(begin="A.ts", end="B.ts")
    made = made.partition_by("key") if keyed else made
    made = made.measures(kind="CLASSIFIER()").all_rows_per_match() if rows else made
    if windows == 0:
        return made.pattern("A B") if selection == "preferred" else made.pattern("A B+")
    made = made.select(selection) if selection != "preferred" else made
    return made.over(op.windows.count(windows, slide=3), duplicates=True)


def saved(operator: CountedOperator, count: int) -> Savepoint:
    """Acknowledge the first so many rows, and return what is needed now."""
    return savepoint_of(operator.step(RowsAcknowledged(count)))


@given(
    windows=st.sampled_from([0, 7, 11]),
    keyed=st.booleans(),
    selection=st.sampled_from(["preferred", "all"]),
    rows=st.booleans(),
    cuts=st.lists(st.integers(0, 60), max_size=6).map(sorted),
    shares=st.lists(st.floats(0, 1), min_size=7, max_size=7),
    lost=st.lists(st.booleans(), min_size=7, max_size=7),
)
def test_a_rebuilt_operator_counts_on_and_gives_the_rest(
    windows: int,
    keyed: bool,
    selection: str,
    rows: bool,
    cuts: list[int],
    shares: list[float],
    lost: list[bool],
) -> None:
    spec = OperatorSpec(query(windows, keyed=keyed, selection=selection, rows=rows), ROWS.schema)
    whole = CountedOperator(spec)
    want = pa.concat_tables(
        [matches_of(whole.step(EventsArrived(ROWS))), matches_of(whole.step(SourceEnded()))]
    ).to_pylist()
    operator, found, settled = CountedOperator(spec), list[dict[str, object]](), 0
    kept = np.arange(0)
    for begin, end, share, fails in zip([0, *cuts], [*cuts, 60], shares, lost, strict=False):
        found += matches_of(
            operator.step(EventsArrived(ROWS.slice(begin, end - begin)))
        ).to_pylist()
        kept = np.concatenate([kept, np.arange(begin, end)])
        assert operator.came_out == len(found)
        # Some of the matches are acknowledged; those of one event and window only together.
        savepoint = saved(operator, settled + int(share * (len(found) - settled)))
        assert settled <= operator.settled <= len(found)
        settled = operator.settled
        savepoint = Savepoint.decode(savepoint.encode())
        kept = kept[~savepoint.drops(kept)]
        if fails:
            operator = CountedOperator(spec)
            before = kept[kept < savepoint.at]
            events: dict[str | None, Any] = {None: (ROWS.take(before), before)}
            again = operator.stand(savepoint, events, settled).to_pylist()
            later = kept[kept >= savepoint.at]
            if len(later):
                again += matches_of(operator.step(EventsArrived(ROWS.take(later)))).to_pylist()
            assert again == found[settled:]
            assert operator.came_out == len(found)
    found += matches_of(operator.step(SourceEnded())).to_pylist()
    assert found == want


def test_a_savepoint_before_all_events_can_be_read() -> None:
    operator = CountedOperator(OperatorSpec(query(7, keyed=False, selection="all"), ROWS.schema))
    again = Savepoint.decode(saved(operator, 0).encode())
    assert (again.seed, again.at, again.trim) == (None, 0, -1)


NAMES = ("east", "north", "west")
SLACK = 4
KINDS = {
    "strict": lambda made: made.pattern("A B"),
    "within": lambda made: made.pattern("A B+").within(6),
    "relaxed within": lambda made: made.within(9),
    "count": lambda made: made.over(op.windows.count(7, slide=3), duplicates=True),
    "time": lambda made: made.over(op.windows.time(8, slide=4), duplicates=True),
    "distinct": lambda made: made.over(op.windows.time(8, slide=4)),
    "session": lambda made: made.over(op.windows.session(3), duplicates=True),
    "between": lambda made: made.over(op.windows.between("v < 2", "v > 7"), duplicates=True),
}


class Links:
    """What sources have sent and retained for an operator, and how much of it has come."""

    def __init__(self, random: Random, sent: dict[str | None, pa.Table], told: bool) -> None:
        self._random, self._sent, self._told = random, sent, told
        self.taken = dict.fromkeys(sent, 0)
        self.kept = {name: np.arange(rows.num_rows) for name, rows in sent.items()}
        self._ended: set[str | None] = set()
        self._all_ended = False

    def next(self) -> Stimulus | None:
        """Return some events of a source, a promise of it, or an end; None where all came."""
        left = [name for name in self._sent if name not in self._ended]
        if not left:
            before, self._all_ended = self._all_ended, True
            return None if before else SourceEnded()
        name = self._random.choice(left)
        rows, begin = self._sent[name], self.taken[name]
        if begin == rows.num_rows:
            self._ended.add(name)
            return self.next() if name is None else SourceEnded(name)
        if self._told and self._random.random() < 0.3:
            return WatermarkArrived(rows["ts"][begin].as_py() - self._random.randint(0, 1), name)
        size = self._random.choice([1, 2, 5, rows.num_rows])
        self.taken[name] = min(begin + size, rows.num_rows)
        return EventsArrived(rows.slice(begin, size), name)

    def save(self, needed: dict[str | None, NeededNumbers]) -> None:
        """Forget what is not needed."""
        for name, one in needed.items():
            kept = self.kept[name]
            self.kept[name] = kept[np.isin(kept, one.numbers) | (kept >= one.at)]

    def stand(
        self, needed: dict[str | None, NeededNumbers]
    ) -> dict[str | None, tuple[pa.Table, Integers]]:
        """Return what is needed, and go on behind it, in any other way."""
        events = {}
        for name, one in needed.items():
            assert np.isin(one.numbers, self.kept[name]).all()
            events[name] = self._sent[name].take(one.numbers), one.numbers
            self.taken[name] = one.at
        self._ended.clear()
        self._all_ended = False
        return events


def draw_sources(
    random: Random, names: tuple[str | None, ...], late: bool
) -> dict[str | None, pa.Table]:
    """Draw what sources send, in order or not."""
    sent = {}
    for name in names:
        ts = np.cumsum([random.choice([0, 0, 1, 1, 3, 9]) for _ in range(random.randint(0, 40))])
        if late:
            ts = np.maximum(ts - np.array([random.choice([0, 0, 0, 2, 3, 6]) for _ in ts]), 0)
        columns = {
            "ts": ts.astype(np.int64),
            "k": [random.choice("abc") for _ in ts],
            "key": [random.randrange(3) for _ in ts],
            "v": [random.randrange(10) for _ in ts],
        }
        sent[name] = pa.table(columns, SOURCE_SCHEMA)
    return sent


SOURCE_SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.string(), "key": pa.int64(), "v": pa.int64()})


def in_one_order(sent: dict[str | None, pa.Table], late: bool) -> pa.Table:
    """Return the events of all sources in order, those left out that come late in their own."""
    placed = []
    for name, rows in sent.items():
        greatest = -SLACK
        for number, row in enumerate(rows.to_pylist()):
            if not late or row["ts"] >= greatest - SLACK:
                ties = (name or "", number) if late else (number, name or "")
                placed.append((row["ts"], *ties, row))
            greatest = max(greatest, row["ts"])
    placed.sort(key=lambda one: one[:3])
    return pa.Table.from_pylist([one[3] for one in placed], SOURCE_SCHEMA)


@given(
    seed=st.integers(0, 1 << 30),
    kind=st.sampled_from(sorted(KINDS)),
    keyed=st.booleans(),
    sources=st.integers(1, 3),
    late=st.booleans(),
)
@example(seed=431328546, kind="within", keyed=True, sources=2, late=False)
def test_how_sources_take_turns_makes_no_difference_to_what_is_given_again(
    seed: int, kind: str, keyed: bool, sources: int, late: bool
) -> None:
    random = Random(seed)
    made = op.Query("q").order_by("ts").pattern("A -> B").define(A="v < 6", B="v > 3")
    made = made.partition_by("key") if keyed else made
    plain = KINDS[kind](made.measures(begin="A.ts", end="LAST(B.ts)", n="COUNT(*)"))
    late = late or sources == 1
    asked = plain.disorder(op.KSlack(SLACK)) if late else plain
    names: tuple[str | None, ...] = NAMES[:sources] if sources > 1 else (None,)
    sent = draw_sources(random, names, late)
    stream = op.open(plain, schema=SOURCE_SCHEMA)
    want = [stream.push(in_one_order(sent, late)), stream.finish()]
    expected = pa.concat_tables(want).to_pylist()
    spec = OperatorSpec(
        asked,
        SOURCE_SCHEMA,
        disorder=bind_disorder(asked, SOURCE_SCHEMA) if late else None,
        sources=NAMES[:sources] if sources > 1 else None,
        event_driven=True,
    )
    links = Links(random, sent, told=not late)
    operator, found, settled = CountedOperator(spec), list[dict[str, object]](), 0
    savepoint, losses = saved(operator, 0), 4
    needed = operator.needed_by_source(savepoint)
    while (stimulus := links.next()) is not None:
        if not operator.front.ended:
            found += matches_of(operator.step(stimulus)).to_pylist()
        often = 0.7 if operator.front.ended else 0.25
        if random.random() < often:
            acknowledged = random.randint(settled, len(found))
            savepoint = Savepoint.decode(saved(operator, acknowledged).encode())
            settled, needed = operator.settled, operator.needed_by_source(savepoint)
            links.save(needed)
        if losses and random.random() < often:
            losses -= 1
            operator = CountedOperator(spec)
            again = operator.stand(savepoint, links.stand(needed), settled).to_pylist()
            # What came out before comes again, as it was.
            assert again == found[settled : settled + len(again)]
            found = found[:settled] + again
            assert operator.came_out == len(found)
    assert found == expected


@pytest.mark.parametrize("kind", ["within", "time"])
@pytest.mark.parametrize("event_driven", [True, False])
def test_promises_let_events_go_on_and_decide_nothing_by_themselves(
    kind: str, event_driven: bool
) -> None:
    made = op.Query("q").order_by("ts").pattern("A -> B+").define(A="v < 6", B="v > 3")
    asked = KINDS[kind](made.measures(n="COUNT(*)"))
    spec = OperatorSpec(asked, SOURCE_SCHEMA, sources=NAMES[:2], event_driven=event_driven)
    operator = CountedOperator(spec)

    def given(stimulus: Stimulus) -> int:
        return int(matches_of(operator.step(stimulus)).num_rows)

    rows = pa.table({"ts": [0, 1, 40], "k": list("abc"), "key": [0] * 3, "v": [1, 9, 1]})
    rows = rows.cast(SOURCE_SCHEMA)
    assert given(EventsArrived(rows.slice(0, 2), "east")) == 0
    assert given(WatermarkArrived(30, "east")) == 0
    by_time = given(WatermarkArrived(30, "north"))
    assert operator.front.arrived == 2
    assert (by_time > 0) is not event_driven
    assert given(EventsArrived(rows.slice(2), "east")) == 0
    by_event = given(WatermarkArrived(41, "north"))
    assert (by_event > 0) is event_driven


def test_a_source_that_is_far_ahead_is_refused_unless_its_host_lets_it_wait() -> None:
    spec = OperatorSpec(query(0, keyed=False, selection="preferred"), ROWS.schema, sources=NAMES)
    orders = [
        CountedOperator(replace(spec, event_driven=driven)).front.intake.order
        for driven in (True, False)
    ]
    rows = pa.table({"ts": np.zeros(CAPACITY, np.int64)})
    for order in orders:
        order.push(EventsArrived(rows, "east"))
        assert order.held_back("east") == CAPACITY
    orders[0].push(EventsArrived(rows.slice(0, 1), "east"))
    with pytest.raises(op.DataError, match="ahead of source 'north'"):
        orders[1].push(EventsArrived(rows.slice(0, 1), "east"))
