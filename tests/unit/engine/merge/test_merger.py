"""The merger: what instances find, in any order of turns, comes out ordered and once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operators import written

from outpace.engine.match.identity import MatchIds
from outpace.engine.merge.merger import Merger
from outpace.engine.window_match.matcher import ENDED
from outpace.engine.window_match.result import CLOSING, COMPLETING, WindowMatches
from outpace.errors import StateError

SCHEMA = pa.schema([("id", pa.int64()), ("window", pa.int64())])


@dataclass(frozen=True, order=True)
class One:
    """A match by definition; the fields are in the order that counts."""

    event: int
    phase: int
    window: int
    partition: int
    inside: int
    identity: int
    start: int = 0


def matches_of(found: list[One], rows_each: int = 1) -> WindowMatches:
    table = pa.table(
        {
            "id": [one.identity for one in found for _ in range(rows_each)],
            "window": [one.window for one in found for _ in range(rows_each)],
        },
        schema=SCHEMA,
    )
    ids = MatchIds(
        np.array([one.start for one in found], np.int64),
        np.array([(0, one.identity) for one in found], np.uint64).reshape(-1, 2),
    )
    return WindowMatches(
        table,
        np.arange(len(found) + 1, dtype=np.int64) * rows_each,
        np.array([one.event for one in found], np.int64),
        np.array([one.phase for one in found], np.int64),
        np.array([one.window for one in found], np.int64),
        np.array([one.partition for one in found], np.int64),
        lambda: ids,
    )


def shown(matches: WindowMatches) -> list[tuple[int, int, int]]:
    ids = matches.table["id"].to_pylist()
    return list(zip(matches.event.tolist(), matches.window.tolist(), ids, strict=True))


def expected(found: list[One], *, distinct: bool) -> list[tuple[int, int, int]]:
    seen = set()
    out = []
    for one in sorted(found):
        if distinct and one.identity in seen:
            continue
        seen.add(one.identity)
        out.append((one.event, one.window, one.identity))
    return out


@st.composite
def findings(draw: st.DrawFn) -> list[One]:
    """Matches of any windows; some windows find the same, as overlapping ones do."""
    taken = draw(st.lists(st.integers(0, 8), max_size=20))
    found = [
        One(
            event=draw(st.integers(0, 12)),
            phase=draw(st.sampled_from([CLOSING, COMPLETING])),
            window=draw(st.integers(0, 5)),
            partition=draw(st.integers(0, 1)),
            inside=inside,
            identity=identity,
            start=identity // 3,
        )
        for inside, identity in enumerate(taken)
    ]
    # The order inside a window is that in which its instance finds the matches.
    return sorted(found)


@given(data=st.data(), distinct=st.booleans())
def test_any_order_of_turns_gives_all_matches_in_order(data: st.DataObject, distinct: bool) -> None:
    found = data.draw(findings())
    instances = data.draw(st.integers(1, 3))
    merger = Merger(SCHEMA, instances, distinct=distinct)
    frontiers = [0] * instances
    out: list[tuple[int, int, int]] = []
    while min(frontiers) < 14:
        behind = [i for i in range(instances) if frontiers[i] < 14]
        instance = data.draw(st.sampled_from(behind))
        to = data.draw(st.integers(frontiers[instance] + 1, 14))
        mine = [
            one
            for one in found
            if (one.window + one.partition) % instances == instance
            and frontiers[instance] <= one.event < to
        ]
        merger.push(instance, matches_of(mine))
        merger.advance(instance, to, 0)
        frontiers[instance] = to
        taken = shown(merger.pop())
        assert all(event < min(frontiers) for event, _, _ in taken)
        out += taken
    assert out == expected(found, distinct=distinct)
    assert merger.waiting == 0


@given(data=st.data(), distinct=st.booleans())
def test_instances_in_step_leave_nothing_waiting(data: st.DataObject, distinct: bool) -> None:
    found = data.draw(findings())
    instances = data.draw(st.integers(1, 3))
    merger = Merger(SCHEMA, instances, distinct=distinct)
    out: list[tuple[int, int, int]] = []
    bounds = [0, *sorted(data.draw(st.lists(st.integers(0, 14), max_size=4))), 14]
    for low, high in pairwise(bounds):
        for instance in range(instances):
            mine = [
                one
                for one in found
                if (one.window + one.partition) % instances == instance and low <= one.event < high
            ]
            merger.push(instance, matches_of(mine))
            # What time alone decides has the number of the next event, and does not wait for it.
            merger.advance(instance, max(low, high - 1), 0)
        taken = shown(merger.rest())
        assert taken == sorted(taken, key=lambda one: one[0])
        out += taken
        saved, merger = written(merger.state()), Merger(SCHEMA, instances, distinct=distinct)
        merger.restore(saved)
    assert out == expected(found, distinct=distinct)


def test_the_state_of_other_instances_is_refused() -> None:
    with pytest.raises(StateError, match="another number of instances"):
        Merger(SCHEMA, 3, distinct=True).restore(Merger(SCHEMA, 2, distinct=True).state())


def test_the_rows_of_a_match_stay_together() -> None:
    merger = Merger(SCHEMA, 2, distinct=True)
    merger.push(0, matches_of([One(1, 1, 0, 0, 0, 7), One(3, 1, 0, 0, 0, 8)], rows_each=2))
    merger.push(1, matches_of([One(2, 1, 1, 0, 0, 7), One(2, 1, 1, 0, 1, 9)], rows_each=3))
    merger.advance(0, 4, 0)
    merger.advance(1, 4, 0)
    taken = merger.pop()
    assert taken.table["id"].to_pylist() == [7, 7, 9, 9, 9, 8, 8]
    assert taken.offsets.tolist() == [0, 2, 5, 7]


def test_a_match_that_another_window_closes_later_is_dropped_later_too() -> None:
    merger = Merger(SCHEMA, 2, distinct=True)
    merger.push(0, matches_of([One(1, 1, 0, 0, 0, 7)]))
    merger.advance(0, 5, 5)
    merger.advance(1, 5, 0)
    assert shown(merger.pop()) == [(1, 0, 7)]
    merger.push(1, matches_of([One(6, 0, 1, 0, 0, 7)]))
    merger.advance(0, ENDED, ENDED)
    merger.advance(1, ENDED, ENDED)
    assert shown(merger.pop()) == []
    assert merger.remembered == 0


def test_what_waits_counts_for_what_is_remembered() -> None:
    merger = Merger(SCHEMA, 2, distinct=True)
    again = One(8, 0, 1, 0, 0, 7, start=1)
    merger.push(0, matches_of([One(2, 1, 0, 0, 0, 7, start=1)]))
    # The second instance has no window left that began before event 9, but what it gave waits.
    merger.push(1, matches_of([again]))
    merger.advance(0, 5, 5)
    merger.advance(1, 9, 9)
    assert shown(merger.pop()) == [(2, 0, 7)]
    merger.advance(0, 9, 9)
    assert shown(merger.pop()) == []


@given(data=st.data())
def test_what_no_window_can_find_again_is_forgotten(data: st.DataObject) -> None:
    size, slide, length = 6, 2, 60
    windows = [(first, min(first + size, length)) for first in range(0, length, slide)]
    spans = data.draw(
        st.lists(st.tuples(st.integers(0, length - 3), st.integers(0, 2)), max_size=30)
    )
    found = []
    for identity, (start, more) in enumerate(dict.fromkeys(spans)):
        for number, (first, stop) in enumerate(windows):
            last = start + more
            if first <= start and last < stop:
                event = data.draw(st.integers(last, stop - 1))
                found.append(One(event, COMPLETING, number, 0, identity, identity, start))
    merger = Merger(SCHEMA, 2, distinct=True)
    out: list[tuple[int, int, int]] = []
    most = 0
    for low in range(0, length, 5):
        high = low + 5
        for instance in range(2):
            mine = [o for o in found if low <= o.event < high and o.window % 2 == instance]
            still_open = [
                first
                for number, (first, stop) in enumerate(windows)
                if number % 2 == instance and first < high < stop
            ]
            merger.push(instance, matches_of(sorted(mine)))
            merger.advance(instance, high, min(still_open, default=high))
        out += shown(merger.pop())
        most = max(most, merger.remembered)
    assert out == expected(found, distinct=True)
    assert merger.remembered == 0
    # Three blocks cover the windows that are open at a time, and one more is being taken.
    ends = [event for event, _, _ in out]
    assert most <= max((sum(low <= e < low + 20 for e in ends) for low in ends), default=0)


def test_without_duplicates_to_drop_nothing_is_remembered() -> None:
    merger = Merger(SCHEMA, 1, distinct=False)
    merger.push(0, matches_of([One(1, 1, 0, 0, 0, 7), One(1, 1, 1, 0, 0, 7)]))
    merger.advance(0, 2, 0)
    assert shown(merger.pop()) == [(1, 0, 7), (1, 1, 7)]
    assert merger.remembered == 0


def test_a_frontier_that_falls_is_refused() -> None:
    merger = Merger(SCHEMA, 2, distinct=False)
    merger.advance(0, 5, 0)
    with pytest.raises(StateError, match="out of turn\n  it goes up to event 4"):
        merger.advance(0, 4, 0)
    with pytest.raises(StateError, match="it has a match of event 4, after all before 5"):
        merger.push(0, matches_of([One(4, 1, 0, 0, 0, 7)]))


@pytest.mark.parametrize("step", [0, 1])
def test_what_waits_for_many_turns_comes_out(step: int) -> None:
    """A part that nothing, or one match, is taken of in each turn, more often than calls nest."""
    turns = 2000
    found = [One(event, COMPLETING, 0, 0, 0, event) for event in range(turns + 1)]
    merger, given = Merger(SCHEMA, 2, distinct=False), list[int]()
    merger.push(0, matches_of(found))
    merger.advance(0, ENDED, ENDED)
    for turn in range(turns):
        merger.advance(1, step * turn, 0)
        given += [int(one) for one in merger.pop().table["id"].to_pylist()]
    merger.advance(1, ENDED, ENDED)
    last = merger.pop()
    assert [*given, *last.ids.words[:, 1].tolist()] == list(range(turns + 1))
    assert len(last.phase) == len(last)
