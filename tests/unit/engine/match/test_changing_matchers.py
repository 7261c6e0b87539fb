"""A stream may change its matcher: small blocks go to the twin until all is compiled."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operators import FedOperator
from support.properties import examples

import outpace as op
from outpace.engine.match import graph as graph_module
from outpace.engine.match import kernel_search
from outpace.engine.match import partitions as count_module
from outpace.engine.match import twin as twin_module
from outpace.engine.match.contract import Block, Outcome, Resume
from outpace.engine.match.graph import make_graph_matcher
from outpace.engine.match.kernel import make_kernel
from outpace.engine.match.task import prepare
from outpace.engine.match.twin import TwinMatcher
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
@examples(25)
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
    twin = TwinMatcher(task)
    turns = itertools.cycle(order)

    def changing(block: Block, resume: Resume) -> Outcome:
        return (fast if next(turns) else twin)(block, resume)

    times = list(itertools.accumulate(gaps[: len(kinds)]))
    table = pa.table([times, list(range(len(kinds))), kinds], schema=SCHEMA)
    results = []
    for matcher in (changing, twin):
        operator = FedOperator(
            task.bound.query, SCHEMA, given=task, choose=lambda _, matcher=matcher: matcher
        )
        found = []
        for row in range(table.num_rows):
            found += operator.push(table.slice(row, 1)).matches.to_pylist()
        results.append(found + operator.finish().matches.to_pylist())
    assert results[0] == results[1]


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing seem compiled, and the twin give up at once."""
    for module in (graph_module, kernel_search, count_module):
        monkeypatch.setattr(module, "is_compiled", lambda _: False)
    monkeypatch.setattr(twin_module, "_PATIENCE", 5)


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize(
    ("pattern", "found"),
    [(" ->> ".join(["A?"] * 20), 2**10 - 1), ("A+", 1), ("A -> A", 5)],
)
def test_what_the_twin_is_too_slow_for_is_compiled(pattern: str, found: int) -> None:
    asked = Query().order_by("ts").pattern(pattern).define(A="kind = 'a'").measures(n="COUNT(*)")
    search = op.search({"ts": list(range(10)), "kind": ["a"] * 10}, asked)
    assert search.count() == found
    assert search.table().num_rows == found


def test_where_nothing_may_be_compiled_twins_do_all() -> None:
    script = """
import outpace as op
table = {"ts": list(range(2500)), "x": [number % 5 for number in range(2500)]}
base = op.Query().order_by("ts").define(A="x = 1", B="x > A.x").measures(n="COUNT(*)")
queries = [base.pattern(pattern) for pattern in ("A B", "A -> B", "A ->> B")]
for query in [query.within(5) for query in queries] + [queries[1].over(op.windows.count(10, 5))]:
    print(op.search(table, query).count(), op.match(table, query).num_rows)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["500"] * 4 + ["1500"] * 2 + ["500"] * 2, "")
