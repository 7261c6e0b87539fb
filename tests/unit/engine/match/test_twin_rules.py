"""The twin through the bound query: skips, budgets, depth, time and several partitions."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from outpace.engine.arrays import NO_TIME
from outpace.engine.match import twin
from outpace.engine.match.after import FIRST_ROW, MISSING
from outpace.engine.match.contract import Block, Resume
from outpace.engine.match.task import match_block, prepare, whole_block
from outpace.engine.match.twin import TwinMatcher
from outpace.errors import MatchError
from outpace.pattern.query import Query


def letters(text):
    return pa.table({"ts": range(len(text)), "x": list(text)})


def query(pattern, names="ABC", **definitions):
    defined = {name: f"x = '{name.lower()}'" for name in names if name in pattern}
    return (
        Query()
        .order_by("ts")
        .pattern(pattern)
        .define({**defined, **definitions})
        .measures(rows="COUNT(*)")
    )


def runs(asked, table, **options):
    task = prepare(asked, table.schema)
    task = replace(task, **options)
    found = match_block(TwinMatcher(task), whole_block(task, table)).found
    return [
        found.rows[low:high].tolist()
        for low, high in zip(found.offsets, found.offsets[1:], strict=False)
    ]


def test_predicates_that_read_the_run_see_it_with_the_row_in_question():
    table = pa.table({"ts": range(5), "v": [3, 2, 1, 5, 9]})
    asked = (
        Query()
        .order_by("ts")
        .pattern("A B+ C")
        .define(B="v < LAST(v, 1)", C="v > SUM(B.v)")
        .measures(rows="COUNT(*)")
    )
    assert runs(asked, table) == [[0, 1, 2, 3]]


def test_an_empty_match_is_followed_by_the_next_row():
    assert runs(query("A*"), letters("baab")) == [[], [1, 2], []]


def test_a_skip_to_a_missing_variable_is_an_error_where_asked_for():
    asked = query("A B?").skip_to_last("B", strict=True)
    with pytest.raises(MatchError, match=MISSING):
        runs(asked, letters("aab"))
    assert runs(query("A B?").skip_to_last("B"), letters("aab")) == [[0], [1, 2]]


def test_a_skip_to_the_first_row_is_an_error_where_asked_for():
    with pytest.raises(MatchError, match=FIRST_ROW):
        runs(query("A B").skip_to_first("A", strict=True), letters("ab"))
    assert runs(query("A B").skip_to_first("A"), letters("abab")) == [[0, 1], [2, 3]]


def test_a_skip_to_a_subset_goes_to_any_of_its_variables():
    asked = query("A B C").subset(U=("B", "C"))
    assert runs(asked.skip_to_last("U", strict=True), letters("abcabc")) == [[0, 1, 2], [3, 4, 5]]


def test_deep_matches_need_no_deep_stack():
    assert [len(run) for run in runs(query("A+ B"), letters("a" * 100_000 + "b"))] == [100_001]


@pytest.mark.parametrize(
    "pattern", ["(A | B)* C", "A+ B+ C", "((A+)+)+ C", "(A* B*)* C", "(A | A A | B)+ C"]
)
def test_failures_are_not_searched_twice(pattern):
    table = letters("a" * 400 + "b")
    asked = query(pattern, names="AC", **({"B": "x >= 'a'"} if "B" in pattern else {}))
    assert runs(asked, table, step_budget=20_000) == []


def test_what_only_a_deadline_ended_is_tried_again_from_a_later_start():
    table = pa.table({"ts": [0, 1, 2], "x": list("aab")})
    assert runs(query("A+ B").within(2), table) == [[1, 2]]


def test_a_search_that_reads_the_run_stops_at_its_budget():
    asked = query("(A | B)* C", names="C", A="x = FIRST(x)", B="x = FIRST(x)")
    with pytest.raises(MatchError, match="took more than 9000 steps") as raised:
        runs(asked, letters("a" * 40), step_budget=5_000)
    assert "WITHIN" in str(raised.value)


def stream_block(rows, *, ended=False, watermark=NO_TIME):
    """Make a block of (partition, letter, time) in order of arrival."""
    order = sorted(range(len(rows)), key=lambda index: rows[index][0])
    keys = [rows[index][0] for index in order]
    starts = [index for index, key in enumerate(keys) if index == 0 or key != keys[index - 1]]
    segments = np.array([*starts, len(rows)], np.int64)
    sizes = np.diff(segments)
    return Block(
        columns={
            "x": pa.array([rows[i][1] for i in order]),
            "ts": pa.array([rows[index][2] for index in order]),
        },
        segments=segments,
        visible=segments[1:],
        ordinals=np.concatenate([np.arange(size) for size in sizes]).astype(np.int64),
        arrivals=np.array(order, np.int64),
        times=np.array([rows[index][2] for index in order], np.int64),
        ended=ended,
        watermark=watermark,
    )


def timed_twin(pattern, within):
    asked = query(pattern).within(within)
    return TwinMatcher(prepare(asked, letters("a").schema))


def test_the_watermark_settles_a_silent_partition():
    twin = timed_twin("A -> !B", 5)
    rows = [("p", "a", 0), ("q", "c", 4), ("q", "c", 5)]
    silent = twin(stream_block(rows), Resume.fresh(2))
    assert silent.found.start.tolist() == []
    assert silent.keep_from.tolist() == [0, 3]
    known = twin(stream_block(rows, watermark=5), Resume.fresh(2))
    assert known.found.start.tolist() == [0]
    # Row 2 of the stream brought time to the deadline, not row 1.
    assert known.found.settled.tolist() == [2]


def test_a_watermark_before_the_deadline_settles_nothing():
    twin = timed_twin("A -> !B", 5)
    outcome = twin(stream_block([("p", "a", 0)], watermark=4), Resume.fresh(1))
    assert outcome.found.start.tolist() == []
    assert outcome.resume.next_start.tolist() == [0]


def test_rows_that_are_only_looked_ahead_at_are_not_taken():
    asked = query("A B")
    block = stream_block([("p", "a", 0), ("p", "b", 1)])
    twin = TwinMatcher(prepare(asked, letters("a").schema))
    hidden = Block(
        block.columns,
        block.segments,
        np.array([1]),
        block.ordinals,
        block.arrivals,
        block.times,
        False,
    )
    assert twin(hidden, Resume.fresh(1)).found.start.tolist() == []
    assert twin(block, Resume.fresh(1)).found.start.tolist() == [0]


def test_a_match_that_is_found_does_not_wait_for_another_way_to_it():
    asked = query("A -> (B | B !C)").select("all")
    block = stream_block([("p", "a", 0), ("p", "b", 1)])
    found = TwinMatcher(prepare(asked, letters("a").schema))(block, Resume.fresh(1)).found
    assert found.settled.tolist() == [1]


def test_what_a_skip_rules_out_is_not_kept():
    twin = TwinMatcher(prepare(query("A B"), letters("a").schema))
    outcome = twin(stream_block([("p", "a", 0), ("p", "b", 1), ("p", "c", 2)]), Resume.fresh(1))
    assert outcome.keep_from.tolist() == [3]
    assert outcome.resume.next_start.tolist() == [3]


def test_matches_that_end_with_the_same_row_share_what_they_had_to_know(monkeypatch):
    # The fewer objects there are, the shorter Python's garbage collector keeps a signal waiting.
    seen = []
    settle = twin._SegmentMatcher._pass_settled_starts

    def noted(self, starts, counts):
        seen.extend(c.reach for found in starts for group in found.groups for c in group)
        settle(self, starts, counts)

    monkeypatch.setattr(twin._SegmentMatcher, "_pass_settled_starts", noted)
    task = prepare(query("A ->> B ->> C").select("all"), letters("a").schema)
    match_block(TwinMatcher(task), whole_block(task, letters("aaabbbccc")))
    assert len(seen) == 3**3
    assert len({id(reach) for reach in seen}) == 3
