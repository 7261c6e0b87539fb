"""Any number of time ranges gives the result of one: packed, matched apart and merged, no Spark."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import outpace as op
from outpace.engine.border import remembers
from outpace.engine.match.operator import prepare
from outpace.engine.merge_ranges import START, RangeFilter
from outpace.engine.ranges import PACKED, PackedRange, RangeMatcher, Ranges, pack_ranges

WITHIN = 5

PATTERNS = ["A B C", "A B+ C?", "A -> B -> C", "A -> B+ -> C", "A -> !B -> C", "A ->> B -> C"]
SKIPS = [
    op.Query.no_skip,
    op.Query.skip_to_next_row,
    op.Query.skip_past_last_row,
    lambda query: query.skip_to_first("C"),
    lambda query: query.skip_to_last("B" if "!B" not in query.to_text() else "C"),
]
BASE = (
    op.Query("q")
    .order_by("ts")
    .define(A="kind = 'a'", B="kind = 'b'", C="kind = 'c'")
    .measures(ids="ARRAY_AGG(id)", n="COUNT(*)", c="LAST(C.id)")
    .within(WITHIN)
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Rows with ties in time, gaps longer than a window, and keys that are NULL or NaN."""
    size = draw(st.integers(0, 60))
    gaps = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 7, 40]), min_size=size, max_size=size))
    keys = st.sampled_from([None, float("nan"), 0.0, -0.0, 1.5])
    return pa.table(
        {
            "ts": pa.array(np.cumsum(gaps) - 30, pa.int64()),
            "id": pa.array(range(size), pa.int64()),
            "kind": pa.array(
                draw(st.lists(st.sampled_from("abcab"), min_size=size, max_size=size)), pa.string()
            ),
            "key": pa.array(draw(st.lists(keys, min_size=size, max_size=size)), pa.float64()),
            "name": pa.array(
                draw(st.lists(st.sampled_from("xy"), min_size=size, max_size=size)), pa.string()
            ),
        }
    )


def cut_and_merged(
    table: pa.Table, query: op.Query, width: int, pieces: int, rows_at_once: int = 1
) -> pa.Table:
    """Do what a batch on Spark does, in one process."""
    task = prepare(query, table.schema)
    ranges = Ranges(task, width)
    bounds = np.linspace(0, table.num_rows, pieces + 1).astype(int)
    packed = pa.Table.from_batches(
        [
            pack_ranges(ranges, table.slice(low, high - low), position)
            for position, (low, high) in enumerate(itertools.pairwise(bounds))
        ],
        schema=PACKED,
    ).sort_by([("bucket", "ascending"), ("range", "ascending"), ("position", "ascending")])
    parts = [
        PackedRange(row["bucket"], row["range"], pa.py_buffer(row["block"]))
        for row in packed.to_pylist()
    ]
    found = list(RangeMatcher(ranges, rows_at_once=rows_at_once).matches(parts))
    if not found:
        return task.bound.output.empty_table()
    matches = pa.concat_tables(found)
    if not remembers(task):
        return matches
    keys = task.bound.partition_by
    matches = matches.sort_by([(name, "ascending") for name in (*keys, *START)])
    merge = RangeFilter(query.effective_skip, keys)
    return pa.concat_tables(
        merge.keep(matches.slice(first, 2)) for first in range(0, max(1, matches.num_rows), 2)
    )


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


@settings(max_examples=60, deadline=None)
@given(
    table=tables(),
    pattern=st.sampled_from(PATTERNS),
    skip=st.sampled_from(SKIPS),
    keys=st.sampled_from([(), ("name",), ("key", "name")]),
    all_rows=st.booleans(),
    width=st.integers(WITHIN, 3 * WITHIN),
    pieces=st.integers(1, 4),
)
def test_any_number_of_ranges_gives_the_result_of_one(
    table: pa.Table,
    pattern: str,
    skip: object,
    keys: tuple[str, ...],
    all_rows: bool,
    width: int,
    pieces: int,
) -> None:
    query = BASE.pattern(pattern).partition_by(*keys)
    if "->>" not in pattern:
        query = skip(query)  # type: ignore[operator]
    if all_rows:
        query = query.all_rows_per_match()
    expected = op.match(table, query)
    cut = cut_and_merged(table, query, width, pieces)
    assert cut.schema == expected.schema
    assert rows(cut) == rows(expected)
