"""Queries of the same keys give, matched by one operator, what each gives alone."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.grouped import drawn_pieces
from support.properties import examples

import outpace as op
from outpace.engine import alike
from outpace.engine.group import GroupOperator
from outpace.engine.group_spec import GroupSpec
from outpace.engine.message import Emit, EventsArrived, SourceEnded, Stimulus
from outpace.engine.operator import WholeOperator, emit_of
from outpace.engine.state import State
from outpace.pattern.ast import predicates
from outpace.pattern.query import WithinKind

MEASURES = {"first": "FIRST(ts)", "last": "LAST(ts)", "n": "MATCH_NUMBER()"}


RELAXED = ["A -> B", "A -> B -> A", "A -> B+", "A -> B? -> A", "A -> C+ -> B"]

#: Rows that are of no use decide, too.
STRICT = ["A B", "A+ B", "A B* C", "A -> B C", "A B -> C", "A !C", "A !C -> B"]

PATTERNS = [*RELAXED, *STRICT]

#: With WITHIN time decides about the last three.
TIMED = [*PATTERNS, "A ->> B", "A -> !C -> B", "A -> B -> !C", "A -> !B"]


def drawn_pattern(random: Random, *, timed: bool) -> op.Query:
    """A query that is matched with others of its keys."""
    pattern = random.choice(TIMED if timed else PATTERNS)
    query = op.Query("q").order_by("ts").pattern(pattern).measures(MEASURES)
    if timed and random.random() < 0.2:
        query = query.within(5, "previous to current")
    if random.random() < 0.3:
        query = query.skip_to_next_row()
    if random.random() < 0.2:
        query = query.limit(2, per="partition")
    if random.random() < 0.2:
        query = query.measures(last="LAST(A.w) + 1", values="ARRAY_AGG(v)")
    if random.random() < 0.2:
        # An error of the matches that this key is in.
        query = query.measures(**MEASURES, number="CAST(LAST(key) AS INT)")
    return query


def drawn_queries(random: Random) -> list[op.Query]:
    """Queries of some patterns with the same keys, each with its conditions and its WITHIN."""
    timed, keys = random.random() < 0.7, random.choice([[], ["key"], ["key", "w"]])
    disorder = op.KSlack(random.randint(0, 3))
    patterns = [drawn_pattern(random, timed=timed) for _ in range(random.randint(1, 3))]
    queries = []
    for number in range(random.randint(2, 6)):
        low, middle, high = (random.randrange(8) for _ in range(3))
        query = replace(random.choice(patterns), name=f"q{number}").partition_by(*keys)
        conditions = {"A": f"v > {low}", "B": f"(v < {high} OR w = 1)", "C": f"v = {middle}"}
        if random.random() < 0.2:
            conditions["B"] += " AND v <> A.v"
        assert query.tree is not None
        names = predicates(query.tree)
        query = query.define({name: conditions[name] for name in names}).disorder(disorder)
        if timed:
            kind = WithinKind.FIRST_TO_LAST if query.bound is None else query.bound.kind
            query = query.within(random.randint(1, 9), kind)
        queries.append(query)
    return queries


def events(random: Random) -> list[pa.Table]:
    """Events in pieces, whose keys are numbers but for one."""
    key = pa.array(["1", "2", "3", random.choice(["4", "x"])])
    return [
        piece.set_column(
            1, "key", key.take(pa.array([random.randrange(4) for _ in range(len(piece))]))
        ).append_column("w", pa.array([random.randrange(3) for _ in range(len(piece))]))
        for piece in drawn_pieces(random)
    ]


@examples(40)
@given(st.integers(0, 1 << 32))
def test_queries_of_the_same_keys_give_what_each_gives_alone(seed: int) -> None:
    random = Random(seed)
    queries, pieces = drawn_queries(random), events(random)
    spec = GroupSpec(tuple(queries), pieces[0].schema)
    group = GroupOperator(spec)
    assert len(group.operators) == 1
    alone = {one.query.name: WholeOperator(one) for one in spec.operators}
    stimuli: list[Stimulus] = [*map(EventsArrived, pieces), SourceEnded()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike, "_ROWS_AT_ONCE", random.choice([1, 7, 1 << 18]))
        patch.setattr(alike, "_KEYS_MIN", random.choice([-20, 0, 1024]))
        for stimulus in stimuli:
            expected: dict[str, Emit] = {}
            for name, operator in list(alone.items()):
                try:
                    expected[name] = emit_of(operator.step(stimulus))
                except op.DataError:
                    del alone[name]
            if not alone:
                with pytest.raises(op.DataError, match="cannot cast"):
                    group.step(stimulus)
                return
            given = {one.query: one for one in group.step(stimulus) if isinstance(one, Emit)}
            assert group.failed.keys() == {one.name for one in queries} - alone.keys()
            assert {name: one.matches for name, one in given.items()} == {
                name: one.matches for name, one in expected.items()
            }
            if not group.failed:
                assert group.partitions == max(one.partitions for one in alone.values())
            if random.random() < 0.3 and not isinstance(stimulus, SourceEnded):
                state = State.decode(group.state().encode())
                group = GroupOperator(spec)
                group.restore(state)
