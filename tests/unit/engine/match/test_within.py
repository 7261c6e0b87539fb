"""Where partitions of a block have a WITHIN of their own, each is matched as by its own query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.compiler.kernel import head_start
from outpace.engine.arrays import NO_TIME
from outpace.engine.match import graph, kernel_search
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Matcher, Outcome, Resume, Task
from outpace.engine.match.task import prepare, whole_block
from outpace.engine.match.twin import TwinMatcher
from outpace.pattern.ast import predicates
from outpace.pattern.query import Query

PATTERNS = ["A -> B", "A B+", "A -> B+ -> C", "A ->> B", "A -> !C", "A -> !C -> B", "(A | B) ->> C"]


def drawn_rows(random: Random) -> pa.Table:
    """Rows of some partitions, each in the order of its times."""
    size = random.randint(1, 20)
    times = np.cumsum([random.choice([0, 1, 1, 2]) for _ in range(size)])
    key = sorted(random.randrange(4) for _ in range(size))
    return pa.table({"key": key, "ts": times, "v": [random.randrange(4) for _ in range(size)]})


def drawn_query(random: Random) -> Query:
    """A query of any kind that has a WITHIN."""
    query = op.Query("q").partition_by("key").order_by("ts").pattern(random.choice(PATTERNS))
    conditions = {"A": "v < 2", "B": "v > 0", "C": "v = 3"}
    if random.random() < 0.3:
        conditions["B"] += " AND v <> FIRST(A.v)"
    assert query.tree is not None
    query = query.define({name: conditions[name] for name in predicates(query.tree)})
    if random.random() < 0.3:
        query = query.skip_to_next_row()
    return query.measures(last="LAST(ts)")


@pytest.fixture(autouse=True, scope="module")
def compile_at_once():
    """Run compiled code on small blocks too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head_start, "left", -1)
        patch.setattr(kernel_search, "WORTH_PREDICATES", 0)
        patch.setattr(kernel_search, "WORTH_KERNELS", 0)
        patch.setattr(graph, "_SMALL", -1)
        yield


@examples(40)
@given(st.integers(0, 1 << 32), st.sampled_from([choose_matcher, TwinMatcher]))
def test_each_partition_has_the_matches_of_its_own_within(
    seed: int, choose: Callable[[Task], Matcher]
) -> None:
    random = Random(seed)
    rows, query = drawn_rows(random), drawn_query(random)
    kind = random.choice(["first to last", "previous to current"])
    block = whole_block(prepare(query.within(9, kind), rows.schema), rows)
    partitions = len(block.segments) - 1
    if random.random() < 0.5:
        now = int(block.times.max()) + random.randint(0, 5)
        block = replace(block, ended=False, watermark=random.choice([NO_TIME, now]))
    within = np.array([random.randint(1, 6) for _ in range(partitions)])
    every = choose(prepare(query.within(9, kind), rows.schema))
    found = every(replace(block, within=within), Resume.fresh(partitions))
    for number, bound in enumerate(within.tolist()):
        part = replace(block.part(number, number + 1), stream=block.clock(), arrived=len(rows))
        alone = choose(prepare(query.within(bound, kind), rows.schema))
        expected = alone(part, Resume.fresh(1))
        begin = int(block.segments[number])
        assert matches_of(found, number, begin) == matches_of(expected, 0, 0)
        assert found.keep_from[number] - begin == expected.keep_from[0]
        assert found.resume.next_start[number] == expected.resume.next_start[0]


def matches_of(outcome: Outcome, segment: int, begin: int) -> list[tuple[object, ...]]:
    """Return the matches of a partition, with rows counted from its first."""
    found = outcome.found
    own = np.flatnonzero(found.segment == segment).tolist()
    runs = [slice(int(found.offsets[one]), int(found.offsets[one + 1])) for one in own]
    return [
        (
            int(found.settled[one]),
            NO_TIME if found.awaited is None else int(found.awaited[one]),
            (found.rows[run] - begin).tolist(),
            found.positions[run].tolist(),
        )
        for one, run in zip(own, runs, strict=True)
    ]
