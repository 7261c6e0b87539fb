"""Snapshots: what is taken stays as it was, and whoever goes on from it finds the same."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hostile_states import queries

import outpace as op
from outpace.engine import snapshot
from outpace.engine.message import EventsArrived, Instruction, SourceEnded, Stimulus
from outpace.engine.operator import WholeOperator
from outpace.engine.snapshot import Layers
from outpace.engine.state import State
from outpace.errors import StateError

QUERIES = queries()


def rows(begin: int, end: int) -> pa.Table:
    times = range(begin, end)
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()),
            "key": [f"k{t * t % 7}" for t in times],
            "seq": pa.array(times, pa.int64()),
            "x": pa.array([t * 7919 % 13 for t in times], pa.int64()),
            "price": [float(t * 31 % 17) for t in times],
        }
    )


def stimuli(sources: list[str], begin: int, end: int, choose: random.Random) -> list[Stimulus]:
    cuts = sorted({begin, end, *(choose.randrange(begin, end) for _ in range(4))})
    return [
        EventsArrived(rows(low, high), source=source)
        for low, high in itertools.pairwise(cuts)
        for source in sources or [None]  # type: ignore[list-item]
    ]


def take(operator: WholeOperator, given: list[Stimulus]) -> list[list[Instruction]]:
    return [operator.step(stimulus) for stimulus in given]


@pytest.mark.parametrize("name", QUERIES)
def test_steps_of_neither_change_the_other(name: str) -> None:
    query, how = QUERIES[name]
    choose = random.Random(name)
    sources = how.get("sources", [])
    stream = op.open(query, schema=rows(0, 1).schema, **how)
    operator = stream._operator
    assert operator is not None
    take(operator, stimuli(sources, 0, 90, choose))
    rest = [*stimuli(sources, 90, 200, choose), SourceEnded()]
    taken, known = operator.snapshot(), operator.state().encode()
    found = take(operator, rest)
    assert taken.state().encode() == known
    again = taken.snapshot()
    assert take(taken, rest) == found
    assert again.state().encode() == known
    assert take(again, rest) == found


@pytest.mark.parametrize("name", QUERIES)
def test_a_restored_operator_has_nothing_but_the_state(name: str) -> None:
    query, how = QUERIES[name]
    choose = random.Random(name)
    sources = how.get("sources", [])
    operator = op.open(query, schema=rows(0, 1).schema, **how)._operator
    assert operator is not None
    empty = operator.state().encode()
    begun = stimuli(sources, 0, 90, choose)
    found = take(operator, begun)
    saved = operator.state().encode()
    rest = [*stimuli(sources, 90, 200, choose), SourceEnded()]
    later = take(operator, rest)
    # It has ended, and may as well have failed: what it took since is forgotten.
    operator.front._lost = True
    for state, pushed, said in ((saved, rest, later), (empty, begun, found), (saved, rest, later)):
        operator.restore(State.decode(state))
        assert operator.state().encode() == state
        assert take(operator, pushed) == said


def test_a_state_that_is_refused_leaves_the_operator_as_it_was() -> None:
    query, _ = QUERIES["plain by key"]
    operator = op.open(query, schema=rows(0, 1).schema)._operator
    assert operator is not None
    operator.step(EventsArrived(rows(0, 20)))
    saved = operator.state()
    operator.step(EventsArrived(rows(20, 50)))
    known = operator.state().encode()
    with pytest.raises(StateError):
        operator.restore(State(saved.numbers, parts={"front": saved.part("front")}))
    assert operator.state().encode() == known


@given(
    st.dictionaries(st.integers(0, 9), st.integers(0, 9)),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("urs"), st.integers(0, 9)), max_size=30),
    st.integers(0, 3),
)
def test_layers_are_dictionaries_of_their_own(
    content: dict[int, int], acts: list[tuple[int, str, int]], most: int
) -> None:
    layers, expected = [Layers(dict(content))], [dict(content)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "_CHANGED_MIN", most)
        for place, act, key in acts:
            at = place % len(layers)
            if act == "s":
                layers.append(layers[at].snapshot())
                expected.append(dict(expected[at]))
            elif act == "u":
                layers[at].update([(key, place), (key + 1, key)])
                expected[at].update([(key, place), (key + 1, key)])
            else:
                there = [one for one in (key, key + 1) if one in expected[at]]
                layers[at].remove(there)
                for one in there:
                    del expected[at][one]
            assert [dict(one) for one in layers] == expected
            assert [len(one) for one in layers] == [len(one) for one in expected]
            found = [one.find(range(12), -1) for one in layers]
            assert found == [[one.get(key, -1) for key in range(12)] for one in expected]


def test_what_a_snapshot_copies_is_known_without_one() -> None:
    one = Layers({number: number for number in range(10_000)})
    assert one.copied_bytes == 0, "nothing has changed since"
    one.snapshot()
    one.update([(1, 7), (20_000, 9)])
    assert one.copied_bytes == 2 * 8
