"""A stream may change its matcher: small blocks go to the twin until all is compiled."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.engine.match.contract import Block, Outcome, Resume
from outpace.engine.match.graph import make_graph_matcher
from outpace.engine.match.kernel import make_kernel
from outpace.engine.match.operator import MatchOperator, prepare
from outpace.engine.match.twin import make_twin
from outpace.pattern.query import Query, Selection

SCHEMA = pa.schema([("ts", pa.int64()), ("id", pa.int64()), ("kind", pa.string())])

BASE = (
    Query("q")
    .order_by("ts")
    .within(5)
    .measures(n="MATCH_NUMBER()", ids="ARRAY_AGG(id)", labels="ARRAY_AGG(CLASSIFIER())")
)

PATTERNS = ["A B+ C", "A -> B -> C", "A -> !B -> C", "A ->> B ->> C", "A ->> B+", "A? ->> B"]


def query(pattern: str, skip: str) -> Query:
    names = [name for name in "ABC" if name in pattern]
    defined = BASE.pattern(pattern).define({name: f"kind = '{name.lower()}'" for name in names})
    chosen: Query = getattr(defined, skip)()
    return chosen


@pytest.mark.parametrize("skip", ["no_skip", "skip_past_last_row", "skip_to_next_row"])
@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=25)
@given(
    kinds=st.lists(st.sampled_from("abc"), max_size=10),
    gaps=st.lists(st.integers(0, 3), min_size=10, max_size=10),
    order=st.lists(st.booleans(), min_size=1, max_size=4),
)
def test_changing_the_matcher_changes_nothing(
    pattern: str, skip: str, kinds: list[str], gaps: list[int], order: list[bool]
) -> None:
    task = prepare(query(pattern, skip), SCHEMA)
    everything = task.bound.query.effective_selection is Selection.ALL
    fast = make_graph_matcher(task) if everything else make_kernel(task)
    assert fast is not None
    twin = make_twin(task)
    turns = itertools.cycle(order)

    def changing(block: Block, resume: Resume) -> Outcome:
        return (fast if next(turns) else twin)(block, resume)

    times = list(itertools.accumulate(gaps[: len(kinds)]))
    table = pa.table([times, list(range(len(kinds))), kinds], schema=SCHEMA)
    results = []
    for matcher in (changing, twin):
        operator = MatchOperator(task, matcher)
        found = []
        for row in range(table.num_rows):
            found += operator.push(table.slice(row, 1)).matches.to_pylist()
        results.append(found + operator.finish().matches.to_pylist())
    assert results[0] == results[1]
