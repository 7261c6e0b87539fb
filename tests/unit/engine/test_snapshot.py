"""Snapshots: what is taken stays as it was, and whoever goes on from it finds the same."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest
from support.hostile_states import queries

import outpace as op
from outpace.engine.message import EventsArrived, Instruction, SourceEnded, Stimulus
from outpace.engine.operator import WholeOperator

QUERIES = queries()


def rows(begin: int, end: int) -> pa.Table:
    times = range(begin, end)
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()),
            "key": [f"k{t * t % 7}" for t in times],
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
    snapshot, known = operator.snapshot(), operator.state().encode()
    found = take(operator, rest)
    assert snapshot.state().encode() == known
    again = snapshot.snapshot()
    assert take(snapshot, rest) == found
    assert again.state().encode() == known
    assert take(again, rest) == found
