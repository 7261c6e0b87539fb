"""What a late event does to windows: the eight cases of an internal replay.

An event opens a window now or does not, and one was open that begins with it or was not; the same
for the event that closes a window. Sardar 2018, tables 6-3 and 6-4, sends a message to an instance
for some of them: ADD or nothing, DEL, NOTCLOSE, END. Here the instance goes back and is told of its
windows once more, so each case shows in what comes out.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

import outpace as op

TIMES = [1, 2, 4, 5, 6, 7, 8, 9]

Windows = list[tuple[int, ...]]


def opened(late: int | None) -> tuple[Windows, Windows]:
    """The windows that close without a late event, and with it, as they come out."""
    query = (
        op.Query("all")
        .order_by("ts")
        .pattern("A{3}")
        .measures(rows="ARRAY_AGG(ts)")
        .over(op.windows.count(3, slide=2))
        .disorder(op.Speculative(100, alpha=0))
    )
    stream, current = op.open(query), op.CurrentMatches()
    # The last one waits for another of its time.
    current.apply(stream.push(pa.table({"ts": [*TIMES, 10]})))
    before = current.table["rows"].to_pylist()
    if late is not None:
        current.apply(stream.push(pa.table({"ts": [late]})))
    after = current.table["rows"].to_pylist()
    expected = op.match(pa.table({"ts": sorted([*TIMES, *([late] if late else [])])}), query)
    assert sorted(after) == sorted(expected["rows"].to_pylist())
    return [*map(tuple, before)], [*map(tuple, after)]


def test_windows_without_a_late_event() -> None:
    before, after = opened(None)
    assert before == after == [(1, 2, 4), (4, 5, 6), (6, 7, 8)]


@pytest.mark.parametrize(
    ("name", "late", "event", "end", "opens", "was_there"),
    [
        ("a window begins with the event, as before", 3, 1, 0, True, True),
        ("ADD: a window begins with another event now", 3, 5, 0, True, False),
        ("DEL: a window does not begin with the event any more", 3, 4, 0, False, True),
        ("no window begins with the event, as before", 3, 2, 0, False, False),
        ("a window ends with the event, as before", 7, 4, -1, True, True),
        ("END: a window ends with the event now", 3, 5, -1, True, False),
        ("NOTCLOSE: a window does not end with the event any more", 3, 4, -1, False, True),
        ("no window ends with the event, as before", 3, 2, -1, False, False),
    ],
)
def test_a_late_event_changes_windows(
    name: str, late: int, event: int, end: int, opens: bool, was_there: bool
) -> None:
    before, after = opened(late)
    assert (event in {one[end] for one in after}) is opens, name
    assert (event in {one[end] for one in before}) is was_there, name
