"""Matches as values: what is said of them stays said where they are joined and chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import outpace as op
from outpace.engine.match.identity import MatchIds
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.whole import match_whole
from outpace.engine.window_match.result import MatchSayings, WindowMatches


def found(times: list[int]) -> WindowMatches:
    query = op.Query("q").order_by("ts").pattern("A").define(A="ts > 0").measures(at="A.ts")
    rows = pa.table({"ts": pa.array(times, pa.int64())})
    return match_whole(OperatorSpec(query, rows.schema), rows)


def test_whether_matches_are_taken_back_is_kept() -> None:
    said = MatchSayings(lambda: (np.array([-1, 0]), np.array([False, True])))
    one, two = found([1]), replace(found([2, 3]), said=said)
    joined = WindowMatches.joined(one.table.schema, [one, two])
    assert joined.diff.tolist() == [1, -1, 0]
    assert joined.confirmed.tolist() == [True, False, True]
    for chosen in ([2, 0], [0, 1], [1]):
        taken = joined.take(np.array(chosen))
        assert taken.diff.tolist() == joined.diff[chosen].tolist()
        assert taken.confirmed.tolist() == joined.confirmed[chosen].tolist()
        assert taken.table["at"].to_pylist() == [place + 1 for place in chosen]


def test_matches_of_which_something_else_is_said_are_others() -> None:
    one = found([1])
    assert one == replace(one, said=MatchSayings(lambda: (np.array([1]), np.array([True]))))
    assert one != replace(one, said=MatchSayings(lambda: (np.array([1]), np.array([False]))))
    assert one != replace(one, said=MatchSayings(lambda: (np.array([-1]), np.array([True]))))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.data())
def test_chosen_matches_have_their_own_rows(sizes: list[int], data: st.DataObject) -> None:
    places = np.arange(len(sizes))
    offsets = np.append(0, np.cumsum(sizes))
    rows = pa.table({"row": np.arange(offsets[-1])})
    ids = MatchIds(places, np.stack([places, places], 1).astype(np.uint64))
    order = places, places, places, places
    matches = WindowMatches(rows, offsets, *order, lambda: ids, turn=places)
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, len(sizes))] * 2)))
    some = st.lists(st.sampled_from(places.tolist()))
    chosen = data.draw(st.just(list(range(low, high))) | some)
    taken = matches.take(np.array(chosen, np.int64))
    order = taken.event, taken.phase, taken.window, taken.partition, taken.turns
    for numbers in (*order, taken.ids.start):
        assert numbers.tolist() == chosen
    assert taken.ids.words[:, 1].tolist() == chosen
    shown = np.split(taken.table["row"].to_numpy(), taken.offsets[1:-1]) if chosen else []
    assert [one.tolist() for one in shown] == [
        list(range(offsets[place], offsets[place + 1])) for place in chosen
    ]
    assert taken.offsets.tolist() == [0, *np.cumsum([sizes[place] for place in chosen]).tolist()]
