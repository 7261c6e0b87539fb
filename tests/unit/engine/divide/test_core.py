"""Cores anywhere in the data, matched on their own, give together what one search gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.divide import border
from outpace.engine.divide.border import find_entry
from outpace.engine.divide.core import CoreMatcher, CoreMatches, sorted_block
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Block, Resume, Task
from outpace.engine.match.kernel import KernelMatcher, make_kernel
from outpace.engine.match.output import match_table
from outpace.engine.match.task import kept_columns, match_block, prepare, whole_block
from outpace.engine.match.twin import TwinMatcher
from outpace.errors import MatchError
from outpace.pattern.query import Query

PATTERNS = (
    "A B", "A+ B?", "A -> B", "A ->> B", "A -> B -> C", "A+ -> C", "A -> !B -> C", "A A", "A -> !B",
    "(A | B) C?", "A B* C", "A ->> B ->> C", "(A -> B){1,2}",
)  # fmt: skip

DEFINITIONS = (
    {"A": "kind = 0", "B": "kind = 1", "C": "kind = 2"},
    {"A": "kind < 2", "B": "kind > 0", "C": "v > A.v"},
    {"A": "kind <> PREV(kind)", "B": "kind = 1", "C": "kind = 2"},
    {"A": "kind = 0", "B": "kind <= NEXT(kind, 2)", "C": "v > PREV(v, 2)"},
    {"A": "v IS NULL OR v > 0", "B": "PREV(v) > 0 AND NEXT(v) < 3", "C": "kind >= 1"},
)

SKIPS: tuple[Callable[[Query], Query], ...] = (
    lambda query: query,
    lambda query: query.skip_past_last_row(),
    lambda query: query.skip_to_next_row(),
    lambda query: query.no_skip(),
    lambda query: query.skip_to_first("A"),
    lambda query: query.skip_to_last("A"),
    lambda query: query.skip_to_last("B"),
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    size = draw(st.integers(0, 40))
    kinds = draw(st.integers(1, 4))
    steps = draw(st.lists(st.sampled_from((0, 1, 1, 1, 2, 9)), min_size=size, max_size=size))
    kind = draw(st.lists(st.integers(0, kinds - 1), min_size=size, max_size=size))
    v = draw(st.lists(st.integers(0, 4) | st.none(), min_size=size, max_size=size))
    return pa.table(
        {
            "ts": pa.array(np.cumsum(steps, dtype=np.int64)),
            "kind": pa.array(kind, pa.int64()),
            "v": pa.array(v, pa.int64()),
        }
    )


@st.composite
def queries(draw: st.DrawFn) -> Query:
    pattern = draw(st.sampled_from(PATTERNS))
    chosen = draw(st.sampled_from(DEFINITIONS))
    query = (
        Query("q")
        .order_by("ts")
        .pattern(pattern)
        .define({name: text for name, text in chosen.items() if name in pattern})
        .measures(n="COUNT(*)", s="FIRST(ts)", e="LAST(ts)", p="PREV(v)", f="NEXT(FIRST(kind), 1)")
        .within(draw(st.integers(1, 12)))
    )
    skips = SKIPS[:4:3] if "->>" in pattern else SKIPS if " B" in pattern else SKIPS[:-1]
    query = draw(st.sampled_from(skips))(query)
    return query.all_rows_per_match() if draw(st.booleans()) else query


def cuts(data: st.DataObject, size: int) -> list[int]:
    inner = data.draw(st.sets(st.integers(0, size), max_size=6))
    return sorted({0, size, *inner})


def pieces(task: Task, table: pa.Table, bounds: Sequence[int]) -> list[Block]:
    columns = table.select(kept_columns(task, table.schema))
    return [sorted_block(task, columns.slice(low, high - low)) for low, high in pairwise(bounds)]


def whole(task: Task, table: pa.Table) -> list[dict[str, object]]:
    block = whole_block(task, table)
    found = match_block(choose_matcher(task), block).found
    rows: list[dict[str, object]] = match_table(task, block, found).to_pylist()
    return rows


def by_cores(
    task: Task, blocks: list[Block], ranges: list[tuple[int, int]]
) -> Iterator[dict[str, object]]:
    """Match each range of pieces on its own, as a task would."""
    for low, high in ranges:
        before = sum(block.size for block in blocks[:low])
        entry = find_entry(task, reversed(blocks[:low]), before, partial(iter, blocks[low:]))
        matcher = CoreMatcher(task, entry)
        parts: list[CoreMatches] = []
        for block in blocks[:low]:
            matcher.skip(block)
        for block in blocks[low:high]:
            parts += matcher.push(block)
        parts += matcher.finish(blocks[high:])
        for part in parts:
            yield from match_table(matcher.task, part.block, part.found).to_pylist()


def in_any_order(rows: Sequence[dict[str, object]]) -> list[str]:
    return sorted(map(repr, rows))


@given(st.data(), tables(), queries())
def test_cores_give_together_what_one_search_gives(
    data: st.DataObject, table: pa.Table, query: Query
) -> None:
    task = prepare(query, table.schema)
    bounds = cuts(data, table.num_rows)
    blocks = pieces(task, table, bounds)
    edges = cuts(data, len(blocks))
    found = list(by_cores(task, blocks, list(pairwise(edges))))
    assert in_any_order(found) == in_any_order(whole(task, table))


def letters(text: str, step: int = 1) -> pa.Table:
    kinds = ["abc".index(letter) for letter in text]
    times = np.arange(len(text), dtype=np.int64) * step
    return pa.table({"ts": times, "kind": kinds, "v": np.zeros(len(text), np.int64)})


def two(pattern: str = "A B", within: int = 10) -> Query:
    names = {"A": "kind = 0", "B": "kind = 1", "C": "kind = 2"}
    return (
        Query("two")
        .order_by("ts")
        .pattern(pattern)
        .define({name: text for name, text in names.items() if name in pattern})
        .measures(s="FIRST(ts)", n="COUNT(*)")
        .within(within)
    )


@pytest.mark.parametrize("size", [61, 62])
def test_matches_that_never_forget_are_followed_to_the_beginning(size: int) -> None:
    table = letters("a" * size)
    task = prepare(two("A A", within=3), table.schema)
    blocks = pieces(task, table, [*range(0, size, 5), size])
    ranges = list(pairwise([0, 5, 7, 12, len(blocks)]))
    assert in_any_order(list(by_cores(task, blocks, ranges))) == in_any_order(whole(task, table))


def test_looking_back_stops_where_all_entries_agree() -> None:
    table = letters("aab" * 400)
    task = prepare(two("A -> B", within=6), table.schema)
    blocks = pieces(task, table, [*range(0, 1200, 100), 1200])
    read: list[int] = []

    def before() -> Iterator[Block]:
        for number in reversed(range(11)):
            read.append(number)
            yield blocks[number]

    assert find_entry(task, before(), 1100, lambda: iter(blocks[11:])) == 1
    assert read == [10]


def test_strict_skips_fail_for_real_matches_only() -> None:
    """A match that is cut short at the end of a piece may lack the target; the whole one has it."""
    query = two("A (C | B)?", within=50).skip_to_last("B", strict=True)
    table = letters("ab" * 20)
    task = prepare(query, table.schema)
    for bounds in ([0, 7, 40], [0, 39, 40]):
        blocks = pieces(task, table, bounds)
        found = list(by_cores(task, blocks, [(0, 1), (1, 2)]))
        assert in_any_order(found) == in_any_order(whole(task, table))
    task = prepare(query, letters("abac").schema)
    with pytest.raises(MatchError, match="not present in match"):
        list(by_cores(task, pieces(task, letters("abacab"), [0, 3, 6]), [(0, 2)]))


def test_the_rows_held_are_bounded_by_the_window() -> None:
    table = letters("abc" * 2000)
    task = prepare(two("A -> B -> C", within=500), table.schema)
    matcher = CoreMatcher(task)
    most = found = 0
    for block in pieces(task, table, [*range(0, 6000, 20), 6000]):
        found += sum(len(part.found.start) for part in matcher.push(block))
        most = max(most, matcher.rows_held)
    found += sum(len(part.found.start) for part in matcher.finish())
    assert found == 2000
    assert most <= 4 * 500 + 20


def test_pieces_without_starts_are_looked_at_only_as_far_as_windows_reach() -> None:
    table = letters("ab" + "c" * 50 + "ab")
    task = prepare(two("A -> B -> C"), table.schema)
    blocks = pieces(task, table, [0, 2, 52, 54])
    matcher = CoreMatcher(task)
    parts = [
        *matcher.push(blocks[0]),
        *matcher.push(blocks[1], searched=False),
        *matcher.push(blocks[2]),
        *matcher.finish(),
    ]
    assert [part.block.size for part in parts] == [2 + 10]
    assert len(parts[0].found.start) == 1


def test_a_search_remembers_only_where_matches_rule_out_starts() -> None:
    schema = letters("a").schema
    remembering = [two(), two().skip_to_last("B"), two().skip_to_first("B")]
    free = [two().no_skip(), two().skip_to_next_row(), two("A ->> B")]
    assert all(border.remembers(prepare(query, schema)) for query in remembering)
    assert not any(border.remembers(prepare(query, schema)) for query in free)


@pytest.mark.parametrize("pattern", ["A B", "A -> B", "A -> B -> !C", "A+ B?"])
def test_rows_that_came_in_order_settle_matches_as_the_twin_says(pattern: str) -> None:
    task = prepare(two(pattern, within=4), letters("a").schema)
    block = sorted_block(task, letters("aabcabacbaab").select(["ts", "kind"]))
    kernel = make_kernel(task)
    assert isinstance(kernel, KernelMatcher)
    kernel.compile_now()
    found = kernel(block, Resume.fresh(1)).found
    expected = TwinMatcher(task)(block, Resume.fresh(1)).found
    assert len(expected.start)
    assert found.settled.tolist() == expected.settled.tolist()


def test_windows_may_end_after_the_end_of_time() -> None:
    table = letters("abaabbab" * 9).set_column(
        0, "ts", pa.array(np.arange(72, dtype=np.int64) * (1 << 55))
    )
    task = prepare(two("A -> B", within=1 << 62), table.schema)
    blocks = pieces(task, table, [*range(0, 72, 6), 72])
    found = list(by_cores(task, blocks, [(0, 5), (5, 9), (9, 12)]))
    assert in_any_order(found) == in_any_order(whole(task, table))
