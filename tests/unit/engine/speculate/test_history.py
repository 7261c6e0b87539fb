"""The history: how far back it goes, how much it keeps, and what it says has changed."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from outpace.engine.match.identity import MatchIds
from outpace.engine.speculate import history
from outpace.engine.speculate.history import OperatorHistory, changes
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


def made(horizon: int = 10) -> OperatorHistory[str]:
    return OperatorHistory(ROWS, OUTPUT, "ts", horizon)


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
        kept.take(times(*piece), piece[-1])
    # What has the time of a row that was taken may belong before it.
    mark, rows, _ = kept.go_back(times(4, 9))
    assert (mark, rows["ts"].to_pylist()) == ("mark 1", [4, 4, 6, 7, 9])
    assert len(kept) == 2


def test_a_time_that_was_told_counts_for_a_mark() -> None:
    kept = made()
    kept.mark("begin")
    kept.take(times(1), 8)
    kept.mark("told")
    assert kept.go_back(times(5))[0] == "begin"


def test_it_keeps_what_is_within_the_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STRETCH_ROWS", 4)
    kept = made(horizon=10)
    most = 0
    for time in range(1000):
        if kept.wants_mark:
            kept.mark(str(time))
        kept.take(times(time), time)
        kept.forget(time)
        most = max(most, len(kept))
    assert 10 < most <= 10 + 2 * 4
    mark, rows, _ = kept.go_back(times(989))
    assert int(mark) < 989
    assert rows["ts"].to_pylist() == list(range(int(mark), 1000))


def test_large_histories_have_few_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STRETCH_ROWS", 1)
    kept = made(horizon=10_000)
    marks = 0
    for time in range(3000):
        if kept.wants_mark:
            kept.mark(str(time))
            marks += 1
        kept.take(times(time), time)
    assert marks < 150


def test_what_is_the_same_does_not_come_again() -> None:
    before = matches((1, 1.0, [1], "x"), (2, math.nan, None, None), (3, 2.0, [1, 2], "y"))
    after = matches((2, math.nan, None, None), (3, 2.0, [1, 3], "y"), (4, None, [], "z"))
    changed = changes(before, after)
    assert changed.table.select(["b", "c", "diff"]).to_pylist() == [
        {"b": [1], "c": "x", "diff": -1},
        {"b": [1, 2], "c": "y", "diff": -1},
        {"b": [1, 3], "c": "y", "diff": 1},
        {"b": [], "c": "z", "diff": 1},
    ]
    assert changed.ids.words[:, 0].tolist() == [1, 3, 3, 4]
    assert changes(before, before).table.num_rows == 0
    assert changes(matches(), matches()).table.num_rows == 0


def test_a_match_of_several_rows_comes_again_as_a_whole() -> None:
    before, after = (matches((1, 1.0, [1], "x"), (2, 2.0, [2], x), rows=2) for x in ("y", "z"))
    changed = changes(before, after).table
    assert changed["diff"].to_pylist() == [-1, -1, 1, 1]
    assert changed["c"].to_pylist() == ["y", "y", "z", "z"]


def test_a_history_goes_on_where_it_was_saved() -> None:
    kept = made()
    kept.mark("begin")
    kept.take(times(1, 2), 2)
    kept.give(matches((7, 1.0, [1], "x")))
    other = made()
    other.restore(kept.state(), "begin again")
    mark, rows, given = other.go_back(times(2))
    assert (mark, rows["ts"].to_pylist()) == ("begin again", [1, 2])
    assert given == matches((7, 1.0, [1], "x"))
