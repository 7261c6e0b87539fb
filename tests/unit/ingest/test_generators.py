"""Generated sources: the same events for every batch size, and what they promise of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from outpace.errors import DataError
from outpace.ingest.generators import building, football, simple_events, stock_events

MAKERS = [simple_events, stock_events, football, building]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("rows", [1, 7, 64, 1000])
def test_any_batch_size_gives_the_same_events(make, rows):
    source = make(200, seed=3)
    batches = list(source.batches(rows))
    assert all(0 < batch.num_rows <= rows for batch in batches)
    assert pa.Table.from_batches(batches).combine_chunks() == source.table().combine_chunks()


@pytest.mark.parametrize("make", MAKERS)
def test_the_beginning_does_not_depend_on_how_many_follow(make):
    assert make(500).table().slice(0, 20).combine_chunks() == make(20).table().combine_chunks()


@pytest.mark.parametrize("make", MAKERS)
def test_another_seed_gives_other_events(make):
    assert make(100, seed=1).table() != make(100, seed=2).table()


@pytest.mark.parametrize("make", MAKERS)
def test_events_are_numbered_and_in_order(make):
    table = make(1000).table()
    assert table["seq"].to_pylist() == list(range(1000))
    times = table["ts"].cast(pa.int64()).to_pylist()
    assert times == sorted(times)
    assert not any(column.null_count for column in table.columns)


@pytest.mark.parametrize("make", MAKERS)
def test_a_source_is_a_value(make):
    assert make(10) == make(10)
    assert hash(make(10)) == hash(make(10))
    assert make(10, id="west").id == "west"
    with pytest.raises(dataclasses.FrozenInstanceError):
        make(10).events = 11


def test_the_rate_says_how_far_times_are_apart():
    times = simple_events(5, rate=4).table()["ts"].cast(pa.int64()).to_pylist()
    assert [time - times[0] for time in times] == [0, 250_000, 500_000, 750_000, 1_000_000]
    crowded = simple_events(9, rate=4_000_000).table()["ts"].cast(pa.int64()).to_pylist()
    assert [time - crowded[0] for time in crowded] == [0, 0, 0, 0, 1, 1, 1, 1, 2]


def test_types_come_with_the_same_chance():
    counts = simple_events(100_000, types=("x", "yy")).table()["type"].value_counts().to_pylist()
    assert sorted(count["values"] for count in counts) == ["x", "yy"]
    assert all(49_000 < count["counts"] < 51_000 for count in counts)


def test_a_stock_opens_where_it_closed():
    table = stock_events(5000, symbols=7).table()
    assert set(table["symbol"].to_pylist()) == {f"{letter}AA" for letter in "ABCDEFG"}
    closed: dict[str, float] = {}
    for row in table.to_pylist():
        assert row["open"] == closed.get(row["symbol"], 100.0)
        assert row["low"] <= min(row["open"], row["close"])
        assert row["high"] >= max(row["open"], row["close"])
        assert row["low"] > 0
        closed[row["symbol"]] = row["close"]


def test_a_price_that_falls_for_long_stays_above_zero():
    prices = stock_events(2_000_000, symbols=1).table()["low"]
    assert pc.min(prices).as_py() > 0


def test_sensors_move_as_fast_as_they_say_and_stay_on_the_pitch():
    table = football(40_000, sensors=4).table()
    assert pc.min(table["x"]).as_py() >= 0
    assert pc.max(table["x"]).as_py() <= 105_000
    one = table.filter(pc.equal(table["sid"], 2)).to_pylist()
    turns = 0
    for before, after in itertools.pairwise(one):
        if before["vx"] == after["vx"]:
            assert abs((after["x"] - before["x"]) - before["vx"] / 200) <= 2
        else:
            turns += 1
            assert after["vx"] == -before["vx"]
    assert turns < 10
    assert all(
        abs(row["v"] ** 2 - row["vx"] ** 2 - row["vy"] ** 2 - row["vz"] ** 2) <= 2 * row["v"] + 1
        for row in one
    )


def test_readings_have_values_of_their_quantity():
    table = building(20_000, rooms=3).table()
    assert set(table["room"].to_pylist()) == {0, 1, 2}
    ranges = {"co2": (400, 1000), "humidity": (30, 70), "motion": (0, 1), "power": (50, 400)}
    for quantity, (low, high) in {**ranges, "temperature": (15, 30)}.items():
        values = table.filter(pc.equal(table["quantity"], quantity))["value"]
        assert len(values) > 3000
        assert low <= pc.min(values).as_py() < pc.max(values).as_py() <= high


@pytest.mark.parametrize(
    "make",
    [
        lambda: simple_events(-1),
        lambda: simple_events(1, rate=0),
        lambda: simple_events(1, types=()),
        lambda: stock_events(1, symbols=0),
        lambda: stock_events(1, symbols=26**3 + 1),
        lambda: football(1, sensors=0),
        lambda: building(1, rooms=0),
    ],
)
def test_what_cannot_be_made_is_refused(make):
    with pytest.raises(DataError):
        make()


@pytest.mark.parametrize("make", [*MAKERS, functools.partial(simple_events, keys=7)])
@pytest.mark.parametrize(("first", "stop"), [(0, 1), (17, 17), (299, 1000), (599_990, 600_010)])
def test_reading_may_begin_at_any_event(make, first, stop):
    source = make(600_100, seed=5)
    whole = pa.Table.from_batches(source.batches(70_000)).slice(first, stop - first)
    parts = list(source.between(first, stop, rows=6))
    assert all(0 < part.num_rows <= 6 for part in parts)
    found = pa.Table.from_batches(parts, whole.schema)
    assert found.combine_chunks() == whole.combine_chunks()


@pytest.mark.parametrize("make", MAKERS)
def test_bursts_and_another_beginning_move_times_alone(make):
    plain = make(500, rate=100)
    moved = dataclasses.replace(plain, beginning_us=7_000_000, burst="5x 1 s every 2 s").table()
    times = moved["ts"].cast(pa.int64()).to_pylist()
    assert times[0] == 7_000_000
    assert times[100] == 8_000_000
    assert times[599 - 500 + 100] < 8_200_000
    if make in (simple_events, stock_events):
        assert moved.drop_columns("ts") == plain.table().drop_columns("ts")


def test_keys_of_simple_events_are_a_column_of_their_own():
    table = simple_events(2_000, keys=5).table()
    assert set(table["key"].to_pylist()) == set(range(5))
    assert table.drop_columns("key") == simple_events(2_000).table()
    with pytest.raises(DataError, match="keys is a whole number of at least 1"):
        simple_events(1, keys=0)
