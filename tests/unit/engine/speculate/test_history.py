"""The history: how far back it goes, how much it keeps, and what it says has changed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from outpace.engine.arrays import Booleans
from outpace.engine.emission import ChangeCounters
from outpace.engine.match.identity import MatchIds
from outpace.engine.speculate.history import (
    GivenMatches,
    MatchHistory,
    Saying,
    ShownColumns,
    changes,
    with_sayings,
)
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import StateError

FOUND = pa.schema([("a", pa.float64()), ("b", pa.list_(pa.int64())), ("c", pa.string())])
OUTPUT = pa.schema([*FOUND, ("diff", pa.int64()), ("confirmed", pa.bool_())])
SHOWN = ShownColumns(FOUND, OUTPUT)


def matches(*shown: tuple[int, object, object, object], rows: int = 1) -> WindowMatches:
    """Matches with these ids and values, of so many rows each."""
    table = pa.Table.from_pylist(
        [dict(zip("abc", values, strict=True)) for _, *values in shown for _ in range(rows)],
        FOUND,
    )
    none = np.zeros(len(shown), np.int64)
    words = np.array([[one, 0] for one, *_ in shown], np.uint64).reshape(-1, 2)
    offsets = np.arange(len(shown) + 1) * rows
    return WindowMatches(table, offsets, none, none, none, none, lambda: MatchIds(none, words))


def made() -> MatchHistory[str]:
    return MatchHistory(SHOWN)


def given_of(found: WindowMatches, certain: bool = False) -> GivenMatches:
    count = len(found)
    found = found.found_by(np.zeros(count, np.int64))
    return GivenMatches(SHOWN, found, np.full(count, certain))


def said(
    found: WindowMatches, diff: int, certain: Booleans | bool, shown: ShownColumns = SHOWN
) -> Saying:
    if found.found is None:
        found = found.found_by(np.zeros(len(found), np.int64))
    return Saying(GivenMatches(shown, found), diff, certain)


def changed(before: WindowMatches, after: WindowMatches) -> WindowMatches:
    """What is wrong now, and what is new."""
    change = changes(given_of(before), given_of(after))
    return with_sayings(
        OUTPUT,
        [said(change.gone, -1, False), said(change.come, 1, False)],
    )


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


def test_fractions_are_the_same_where_they_look_so() -> None:
    values = [0.0, -0.0, math.nan, None, 1.5]
    one, other = ([value for value in values for _ in values], values * len(values))
    before, after = (
        matches(*((place, value, None, None) for place, value in enumerate(shown)))
        for shown in (one, other)
    )
    found = changed(before, after).table["diff"].to_pylist()
    assert found == [-1] * 20 + [1] * 20


def test_a_match_of_several_rows_comes_again_as_a_whole() -> None:
    before, after = (matches((1, 1.0, [1], "x"), (2, 2.0, [2], x), rows=2) for x in ("y", "z"))
    found = changed(before, after).table
    assert found["diff"].to_pylist() == [-1, -1, 1, 1]
    assert found["c"].to_pylist() == ["y", "y", "z", "z"]


def found(number: int, time: int) -> WindowMatches:
    """A match with an id that depends on what lies before a time."""
    return matches((number, 1.0, [1], "x")).found_by(np.array([time]))


def told(history: MatchHistory[str], certain: int) -> list[tuple[int, int, bool]]:
    """What is said of matches: their ids, whether they come, go or stay, and whether for sure."""
    out = with_sayings(OUTPUT, history.emit(certain))
    columns = (out.table[name].to_pylist() for name in ("diff", "confirmed"))
    return [*zip(out.ids.words[:, 0].tolist(), *columns, strict=True)]


def test_what_comes_out_is_compared_with_what_is_found_once_more() -> None:
    kept = made()
    kept.mark(0, "begin")
    kept.give(found(1, 5))
    assert told(kept, 0) == [(1, 1, False)]
    kept.mark(1, "second")
    kept.give(found(2, 8))
    kept.give(found(3, 9))
    assert told(kept, 5) == [(1, 0, True), (2, 1, False), (3, 1, False)]
    assert kept.go_back(1) == "second"
    assert kept.went_back
    kept.give(found(3, 9))
    kept.mark(2, "third")
    kept.give(found(4, 9))
    assert told(kept, 5) == [(2, -1, False), (4, 1, False)]
    assert not kept.went_back
    assert told(kept, 9) == [(3, 0, True), (4, 0, True)]
    assert told(kept, 99) == []


def test_it_goes_back_once_more_before_all_is_found() -> None:
    kept = made()
    kept.mark(0, "begin")
    kept.give(found(1, 5))
    kept.mark(1, "second")
    kept.give(found(2, 8))
    told(kept, 0)
    kept.go_back(1)
    kept.give(found(3, 8))
    kept.go_back(0)
    kept.give(found(1, 5))
    kept.give(found(4, 8))
    assert told(kept, 5) == [(2, -1, False), (1, 0, True), (4, 1, False)]


def test_what_nobody_goes_back_before_is_forgotten() -> None:
    kept = made()
    for number in range(5):
        kept.mark(number, str(number))
        kept.give(found(number, number))
        told(kept, number)
        kept.forget(number - 1)
    with pytest.raises(StateError, match="a mark that this part of it does not have"):
        kept.go_back(2)


@pytest.mark.parametrize(
    ("times", "first", "second"),
    [
        ((3, 8), [(1, 1, True), (2, 1, False)], [(2, 0, True)]),
        ((9, 5), [(1, 1, False), (2, 1, True)], [(1, 0, True)]),
        ((1, 5), [(1, 1, True), (2, 1, True)], []),
        ((6, 6), [(1, 1, False), (2, 1, False)], [(1, 0, True), (2, 0, True)]),
    ],
)
def test_a_match_is_certain_when_time_has_come_to_what_it_depends_on(
    times: tuple[int, int],
    first: list[tuple[int, int, bool]],
    second: list[tuple[int, int, bool]],
) -> None:
    kept = made()
    kept.mark(0, "begin")
    both = matches((1, 1.0, [1], "x"), (2, 2.0, [2], "y")).found_by(np.array(times))
    kept.give(both)
    assert told(kept, 5) == first
    # Who goes on from what was saved says nothing of it once more.
    other = made()
    other.restore(kept.state(), "begin")
    for one in (kept, other):
        assert told(one, 5) == []
        assert told(one, 9) == second
        assert told(one, 9) == []


def test_ids_are_shown_where_somebody_asks_for_them() -> None:
    output = pa.schema([FOUND.field("c"), ("match_id", pa.string()), ("diff", pa.int64())])
    one = matches((1, 1.0, [1], "x"), (2, 2.0, [2], "y"), rows=2)
    columns = ShownColumns(FOUND, output)
    table = with_sayings(output, [said(one, diff, False, columns) for diff in (-1, 1)]).table
    assert table.schema == output
    assert table["c"].to_pylist() == ["x", "x", "y", "y"] * 2
    assert table["match_id"].to_pylist() == [
        text for text in one.ids.texts.to_pylist() * 2 for _ in "12"
    ]
    assert table["diff"].to_pylist() == [-1] * 4 + [1] * 4


def test_a_match_of_no_row_does_not_count() -> None:
    two = matches((1, 1.0, [1], "x"), (2, 2.0, [2], "y")).found_by(np.array([3, 8]))
    shown_once = replace(two, table=two.table.slice(1), offsets=np.array([0, 0, 1]))
    sayings = [said(shown_once, 1, np.array([True, False])), said(shown_once, 0, True)]
    known = ChangeCounters().after([*sayings, said(two, -1, False)], 10)
    assert (known.tentative, known.confirmed, known.retracted) == (1, 1, 2)
    assert (known.tentative_wait, known.confirmed_wait) == (2, 2)
    each = ShownColumns(FOUND, OUTPUT, one_row=True)
    known = ChangeCounters().after([said(two, 1, True, each)], 5)
    assert (known.tentative, known.confirmed, known.confirmed_wait) == (0, 2, 2)


def test_a_history_goes_on_where_it_was_saved() -> None:
    kept = made()
    kept.mark(3, "begin")
    kept.give(found(7, 3))
    kept.give(found(8, 4))
    told(kept, 3)
    other = made()
    other.restore(kept.state(), "begin again")
    assert other.go_back(3) == "begin again"
    other.give(found(7, 3))
    assert told(other, 4) == [(8, -1, False)]


@pytest.mark.parametrize("far", [0, 1 << 62])
def test_how_long_matches_waited_is_counted_however_far_time_has_come(far: int) -> None:
    times = far + np.array([4, 2, 9, 3])
    ones = [
        matches(*((n, 1.0, [1], "x") for n in range(4))).found_by(times)
        for times in (times, np.sort(times))
    ]
    known = [ChangeCounters().after([said(one, 1, False)], far + 5).tentative_wait for one in ones]
    assert known == [6, 6]
