"""The windows of a table, to look at: they are those of the definition, in the table's own rows."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outpace as op
from outpace.errors import BindError, DataError

TRADES = pa.table(
    {
        "symbol": ["x", "y", "x", "x"],
        "ts": pa.array([30, 10, 0, 12], pa.timestamp("s", "UTC")),
        "price": [3.0, 1.0, 2.0, 5.0],
    }
)


def at(second: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(second, datetime.UTC)


def test_time_windows_show_their_bounds_in_the_type_of_the_time() -> None:
    query = op.Query().partition_by("symbol").order_by("ts").over(op.windows.time("10 s"))
    assert op.windows.assign(TRADES, query).to_pylist() == [
        {
            "symbol": symbol,
            "window": window,
            "first_row": row,
            "rows": 1,
            "window_start": at(10 * window),
            "window_end": at(10 * window + 10),
        }
        for symbol, window, row in [("x", 0, 2), ("x", 1, 3), ("x", 3, 0), ("y", 1, 1)]
    ]


def test_other_windows_show_their_first_and_last_event() -> None:
    query = op.Query().order_by("ts").over(op.windows.session("11 s"))
    assert op.windows.assign(TRADES, query).to_pylist() == [
        {"window": 0, "first_row": 2, "rows": 3, "window_start": at(0), "window_end": at(12)},
        {"window": 1, "first_row": 0, "rows": 1, "window_start": at(30), "window_end": at(30)},
    ]


def test_without_a_time_there_are_no_times() -> None:
    query = op.Query().order_by("price desc").over(op.windows.landmark("symbol = 'x'"))
    assert op.windows.assign(TRADES, query).to_pylist() == [
        {"window": 0, "first_row": 3, "rows": 1, "window_start": None, "window_end": None},
        {"window": 1, "first_row": 0, "rows": 1, "window_start": None, "window_end": None},
        {"window": 2, "first_row": 2, "rows": 2, "window_start": None, "window_end": None},
    ]


def test_an_empty_table_has_no_windows() -> None:
    query = op.Query().partition_by("symbol").order_by("ts").over(op.windows.count(5))
    shown = op.windows.assign(TRADES.slice(0, 0), query)
    assert shown.num_rows == 0
    assert shown.schema.field("window_start").type == pa.timestamp("s", "UTC")


def test_a_row_without_a_time_is_named_by_its_place_in_the_table() -> None:
    query = op.Query().order_by("ts").over(op.windows.session(2))
    with pytest.raises(DataError, match="'ts' is NULL") as refused:
        op.windows.assign({"ts": [1, None, 0]}, query)
    assert refused.value.detail == "row 1 of the input, counted from 0"


def test_a_query_without_windows_is_refused() -> None:
    with pytest.raises(BindError, match="the query has no windows"):
        op.windows.assign(TRADES, op.Query())


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20)), max_size=20))
def test_rows_are_those_of_the_table(events: list[tuple[str, int]]) -> None:
    table = pa.table(
        {"key": [key for key, _ in events], "ts": [ts for _, ts in events]},
        schema=pa.schema([("key", pa.string()), ("ts", pa.int64())]),
    )
    query = op.Query().partition_by("key").order_by("ts").over(op.windows.count(3, 2))
    expected = []
    order = sorted(range(len(events)), key=lambda row: events[row][1])
    for key in dict.fromkeys(events[row][0] for row in order):
        own = [row for row in order if events[row][0] == key]
        for number, low in enumerate(range(0, len(own), 2)):
            rows = own[low : low + 3]
            expected.append((key, number, rows[0], len(rows)))
    shown = op.windows.assign(table, query)
    names = ("key", "window", "first_row", "rows")
    assert [tuple(row[name] for name in names) for row in shown.to_pylist()] == expected
