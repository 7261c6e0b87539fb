"""The history: how far back it goes, how much it keeps, and what it says has changed."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from outpace.engine.match.identity import MatchIds
from outpace.engine.speculate import history
from outpace.engine.speculate.history import GivenMatches, OperatorHistory, changes, said
from outpace.engine.window_match.result import WindowMatches

ROWS = pa.schema([("ts", pa.int64())])
OUTPUT = pa.schema(
    [("a", pa.float64()), ("b", pa.list_(pa.int64())), ("c", pa.string()), ("diff", pa.int64())]
)


def matches(*shown: tuple[int, object, object, object], rows: int = 1) -> WindowMatches:
    """Matches with these ids and values, of so many rows each."""
    table = pa.Table.from_pylist(
        [
            dict(zip("abc", values, strict=True), diff=1)
            for _, *values in shown
            for _ in range(rows)
        ],
        OUTPUT,
    )
    none = np.zeros(len(shown), np.int64)
    words = np.array([[one, 0] for one, *_ in shown], np.uint64).reshape(-1, 2)
    offsets = np.arange(len(shown) + 1) * rows
    return WindowMatches(table, offsets, none, none, none, none, lambda: MatchIds(none, words))


def made() -> OperatorHistory[str]:
    return OperatorHistory(ROWS, OUTPUT, "ts")


def given_of(found: WindowMatches, certain: bool = False) -> GivenMatches:
    count = len(found)
    return GivenMatches(found, np.zeros(count, np.int64), np.full(count, certain))


def changed(before: WindowMatches, after: WindowMatches) -> WindowMatches:
    """What is wrong now, and what is new."""
    change = changes(given_of(before), given_of(after))
    return WindowMatches.joined(OUTPUT, [said(change.gone, -1), said(change.come, 1)])


def times(*values: int) -> pa.Table:
    return pa.table({"ts": values}, ROWS)


def test_it_goes_back_to_the_last_mark_before_the_late_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "STRETCH_ROWS", 2)
    kept = made()
    for number, piece in enumerate([(1, 2), (4, 4), (6, 7), (9,)]):
        assert kept.wants_mark
        kept.mark(f"mark {number}")
        kept.take(times(*piece), piece[-1], 0)
    # What has the time of a row that was taken may belong before it.
    mark, rows, _ = kept.go_back(times(4, 9))
    assert (mark, rows["ts"].to_pylist()) == ("mark 1", [4, 4, 6, 7, 9])
    assert len(kept) == 2


def test_a_time_that_was_told_counts_for_a_mark() -> None:
    kept = made()
    kept.mark("begin")
    kept.take(times(1), 8, 1)
    kept.mark("told")
    assert kept.go_back(times(5))[0] == "begin"


def test_it_keeps_what_is_within_the_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STRETCH_ROWS", 4)
    kept = made()
    most = 0
    for time in range(1000):
        if kept.wants_mark:
            kept.mark(str(time))
        kept.take(times(time), time, time + 1)
        kept.forget(time - 10)
        most = max(most, len(kept))
    assert 10 < most <= 10 + 2 * 4
    mark, rows, _ = kept.go_back(times(989))
    assert int(mark) < 989
    assert rows["ts"].to_pylist() == list(range(int(mark), 1000))


def test_large_histories_have_few_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STRETCH_ROWS", 1)
    kept = made()
    marks = 0
    for time in range(3000):
        if kept.wants_mark:
            kept.mark(str(time))
            marks += 1
        kept.take(times(time), time, time + 1)
    assert marks < 150


def test_what_is_the_same_does_not_come_again() -> None:
    before = matches((1, 1.0, [1], "x"), (2, math.nan, None, None), (3, 2.0, [1, 2], "y"))
    after = matches((2, math.nan, None, None), (3, 2.0, [1, 3], "y"), (4, None, [], "z"))
    found = changed(before, after)
    assert found.table.select(["b", "c", "diff"]).to_pylist() == [
        {"b": [1], "c": "x", "diff": -1},
        {"b": [1, 2], "c": "y", "diff": -1},
        {"b": [1, 3], "c": "y", "diff": 1},
        {"b": [], "c": "z", "diff": 1},
    ]
    assert found.ids.words[:, 0].tolist() == [1, 3, 3, 4]
    assert changed(before, before).table.num_rows == 0
    assert changed(matches(), matches()).table.num_rows == 0


def test_a_match_of_several_rows_comes_again_as_a_whole() -> None:
    before, after = (matches((1, 1.0, [1], "x"), (2, 2.0, [2], x), rows=2) for x in ("y", "z"))
    found = changed(before, after).table
    assert found["diff"].to_pylist() == [-1, -1, 1, 1]
    assert found["c"].to_pylist() == ["y", "y", "z", "z"]


def test_a_history_goes_on_where_it_was_saved() -> None:
    kept = made()
    kept.mark("begin")
    kept.take(times(1, 2), 2, 2)
    kept.give(matches((7, 1.0, [1], "x")), 2)
    other = made()
    other.restore(kept.state(), "begin again")
    mark, rows, given = other.go_back(times(2))
    assert (mark, rows["ts"].to_pylist()) == ("begin again", [1, 2])
    assert given.matches == matches((7, 1.0, [1], "x"))
    assert (given.found.tolist(), given.certain.tolist()) == ([3], [False])


def test_matches_are_certain_once() -> None:
    kept = made()
    kept.mark("begin")
    kept.take(times(1, 2), 2, 2)
    assert kept.give(matches((7, 1.0, [1], "x")), 2).certain.tolist() == [False]
    assert len(kept.make_certain(2)) == 0
    kept.take(times(5), 5, 3)
    assert kept.give(matches((8, 1.0, [1], "x")), 6).certain.tolist() == [True]
    assert kept.make_certain(6).ids.words[:, 0].tolist() == [7]
    assert len(kept.make_certain(9)) == 0
