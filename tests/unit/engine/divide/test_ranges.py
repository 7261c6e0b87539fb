"""Any number of time ranges gives the result of one: packed, matched apart and merged, no Spark."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.engine.codec.block import read_block
from outpace.engine.codec.pack import PACKED
from outpace.engine.divide.border import remembers
from outpace.engine.divide.ranges import (
    PackedRange,
    RangeFilter,
    RangeMatcher,
    Ranges,
    merged_schema,
    pack_ranges,
)
from outpace.engine.match.task import prepare
from outpace.errors import DataError, MatchError
from outpace.pattern.values import TIME_LIMIT

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
    # In a run of `a` there are chains of matches that never meet.
    .define(A="kind = 'a'", B="kind <> 'c'", C="kind <> 'b'")
    .measures(ids="ARRAY_AGG(id)", n="COUNT(*)", c="LAST(C.id)")
    .within(WITHIN)
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Rows with ties in time, gaps longer than a window, and keys that are NULL or NaN."""
    size = draw(st.integers(0, 60))
    gaps = draw(
        st.lists(st.sampled_from([0, 0, 1, 1, 1, 1, 2, 7, 40]), min_size=size, max_size=size)
    )
    keys = st.sampled_from([None, float("nan"), 0.0, -0.0, 1.5])
    return pa.table(
        {
            "ts": pa.array(np.cumsum(gaps) - 30, pa.int64()),
            "id": pa.array(range(size), pa.int64()),
            "kind": pa.array(
                draw(st.lists(st.sampled_from("aaaabc"), min_size=size, max_size=size)), pa.string()
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
    matcher = RangeMatcher(ranges, rows_at_once=rows_at_once)
    output = task.bound.output
    if not remembers(task):
        return pa.concat_tables([output.empty_table(), *matcher.matches(parts)])
    found = pa.Table.from_batches(list(matcher.possible_matches(parts)), schema=PACKED)
    kept = [output.empty_table()]
    merges: dict[int, RangeFilter] = {}
    schema = merged_schema(output)
    for row in found.sort_by([("bucket", "ascending"), ("range", "ascending")]).to_pylist():
        merge = merges.setdefault(
            row["bucket"], RangeFilter(query.effective_skip, task.bound.partition_by)
        )
        block = pa.table(read_block(pa.py_buffer(row["block"]), schema), schema=schema)
        kept.append(merge.keep(block))
    return pa.concat_tables(kept)


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


@examples(60)
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
    skip: Callable[[op.Query], op.Query],
    keys: tuple[str, ...],
    all_rows: bool,
    width: int,
    pieces: int,
) -> None:
    query = BASE.pattern(pattern).partition_by(*keys)
    if "->>" not in pattern:
        query = skip(query)
    if all_rows:
        query = query.all_rows_per_match()
    expected = op.match(table, query)
    cut = cut_and_merged(table, query, width, pieces)
    assert cut.schema == expected.schema
    assert rows(cut) == rows(expected)


STRICT = BASE.define(B="kind = 'b'", C="kind = 'c'")


def events(kinds: str) -> pa.Table:
    size = len(kinds)
    return pa.table(
        {
            "ts": pa.array(range(size), pa.int64()),
            "id": pa.array(range(size), pa.int64()),
            "kind": list(kinds),
        }
    )


def test_a_match_that_counts_can_fail_to_skip() -> None:
    query = STRICT.pattern("A B* C").skip_to_first("B", strict=True)
    fine, wrong = events("abcxxxxxxabbcb"), events("abcxxxxxxac")
    assert rows(cut_and_merged(fine, query, WITHIN, 2)) == rows(op.match(fine, query))
    for run in (op.match, lambda table, query: cut_and_merged(table, query, WITHIN, 2)):
        with pytest.raises(MatchError, match=r"not present in match(.|\n)*hint: skip to"):
            run(wrong, query)


def test_a_row_without_a_time_is_refused() -> None:
    table = pa.table({"ts": pa.array([1, None]), "id": [1, 2], "kind": ["a", "b"]})
    query = BASE.pattern("A B C")
    with pytest.raises(DataError, match="the time 'ts' is NULL"):
        cut_and_merged(table, query, WITHIN, 1)


def possible(table: pa.Table, query: op.Query, width: int) -> tuple[int, int]:
    """Return how many matches leave their ranges, and how many ranges there are."""
    task = prepare(query, table.schema)
    ranges = Ranges(task, width)
    packed = pack_ranges(ranges, table, 0).to_pylist()
    parts = [PackedRange(0, row["range"], pa.py_buffer(row["block"])) for row in packed]
    (found,) = RangeMatcher(ranges).possible_matches(parts)
    schema = merged_schema(task.bound.output)
    blocks = [read_block(block.as_buffer(), schema) for block in found["block"]]
    return sum(len(block["n"]) for block in blocks), len(parts)


def test_few_of_the_matches_of_all_starts_leave_a_range() -> None:
    """What the pass over the matches sees is little more than what counts."""
    table = events("abc" * 200)
    query = STRICT.pattern("A -> B -> C").skip_past_last_row()
    found, _ = possible(table, query, 20 * WITHIN)
    assert found == op.match(table, query).num_rows
    overlapping = table.set_column(2, "kind", pa.array(list("aabcc" * 120)))
    found, ranges = possible(overlapping, query, 20 * WITHIN)
    counted = op.match(overlapping, query).num_rows
    every = op.match(overlapping, query.no_skip()).num_rows
    assert counted <= found <= counted + 2 * ranges < every


@pytest.mark.parametrize("skip", [op.Query.skip_past_last_row, op.Query.no_skip])
def test_ranges_may_reach_beyond_the_ends_of_time(skip: Callable[[op.Query], op.Query]) -> None:
    least, greatest = -TIME_LIMIT, TIME_LIMIT - 1
    times = [least, least + 3, least + 4, greatest - 4, greatest - 3, greatest]
    table = events("abcabc").set_column(0, "ts", pa.array(times, pa.int64()))
    query = skip(STRICT.pattern("A -> B -> C"))
    expected = rows(op.match(table, query))
    assert len(expected) == 2
    for width in (WITHIN, 7, 8):
        assert rows(cut_and_merged(table, query, width, 2)) == expected
