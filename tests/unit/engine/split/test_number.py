"""Events have the numbers that counting them one by one gives, however they come."""

from __future__ import annotations

import math
from functools import reduce
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operators import written

from outpace.engine.event import Events
from outpace.engine.split.number import EventNumbers, in_order
from outpace.errors import DataError, StateError
from outpace.pattern.bind.query import bind
from outpace.pattern.query import Query

#: No time: it is just out of range.
FAR = 1 << 62

VALUES = {
    "text": st.sampled_from(["a", "b", None]),
    "number": st.sampled_from([0.0, -0.0, 1.5, math.nan, None]),
    "place": st.integers(-3, 3),
}
SCHEMA = pa.schema(
    [("text", pa.dictionary(pa.int8(), pa.string())), ("number", pa.float64()), ("place", "int16")]
)


def tables() -> st.SearchStrategy[pa.Table]:
    rows = st.lists(st.fixed_dictionaries(VALUES), max_size=20)
    return rows.map(lambda drawn: pa.Table.from_pylist(drawn, schema=SCHEMA))


def counted(table: pa.Table, names: list[str]) -> list[tuple[int, int, int]]:
    """Return partition, ordinal and arrival of each row, by counting."""
    seen: dict[tuple[object, ...], list[int]] = {}
    found = []
    for arrival, row in enumerate(table.to_pylist()):
        key = tuple("nan" if row[name] != row[name] else row[name] for name in names)
        number, count = seen.setdefault(key, [len(seen), 0])
        seen[key][1] += 1
        found.append((number, count, arrival))
    return found


@given(tables(), st.lists(st.sampled_from(list(VALUES)), unique=True), st.data())
def test_numbers_do_not_depend_on_the_cut(
    table: pa.Table, names: list[str], data: st.DataObject
) -> None:
    numbers = EventNumbers(SCHEMA, names, None)
    found: list[tuple[int, int, int]] = []
    cuts = sorted(data.draw(st.lists(st.integers(0, table.num_rows), max_size=4), "cuts"))
    for low, high in pairwise([0, *cuts, table.num_rows]):
        if data.draw(st.booleans(), "not taken"):
            numbers.number(table)
        rows = table.slice(low, high - low)
        if rows.num_rows and data.draw(st.booleans(), "its own dictionary"):
            rows = pa.Table.from_pylist(rows.to_pylist(), schema=SCHEMA)
        events = numbers.number(rows)
        numbers.accept()
        columns = (events.partition, events.ordinal, events.arrival)
        found += zip(*(column.tolist() for column in columns), strict=True)
        if data.draw(st.booleans(), "save"):
            saved, numbers = written(numbers.state()), EventNumbers(SCHEMA, names, None)
            numbers.restore(saved)
    assert found == counted(table, names)
    assert numbers.arrived == table.num_rows
    firsts = [place for place, (_, ordinal, _) in enumerate(found) if names and not ordinal]
    shown = table.select(names).take(pa.array(firsts, pa.int64()))
    assert str(keys_of(numbers).to_pylist()) == str(shown.to_pylist())


def test_times_are_integers_and_never_missing() -> None:
    schema = pa.schema([("at", pa.timestamp("ms"))])
    numbers = EventNumbers(schema, (), "at")
    assert numbers.number(pa.table({"at": [5]}, schema=schema)).times.tolist() == [5000]
    with pytest.raises(DataError, match="the time 'at' is NULL"):
        numbers.number(pa.table({"at": [5, None]}, schema=schema))


def test_saved_state_of_other_partitions_is_refused() -> None:
    saved = EventNumbers(SCHEMA, ("place",), None).state()
    with pytest.raises(StateError, match="other partitions"):
        EventNumbers(SCHEMA, ("number",), None).restore(saved)


def test_many_partitions_get_room() -> None:
    schema = pa.schema([("key", pa.int64())])
    numbers = EventNumbers(schema, ("key",), None)
    table = pa.table({"key": np.arange(5000)}, schema=schema)
    for _ in range(2):
        numbers.number(table)
        numbers.accept()
    events = numbers.number(table)
    assert events.partition.tolist() == list(range(5000))
    assert set(events.ordinal.tolist()) == {2}


def keys_of(numbers: EventNumbers) -> pa.Table:
    """The key of each partition, by number, as it is saved."""
    _, (keys, *_) = numbers.state().content()
    return keys


def test_keys_that_come_one_by_one_stay_in_their_order() -> None:
    rows = pa.table({"key": range(1500), "ts": range(1500)})
    numbers = EventNumbers(rows.schema, ("key",), None)
    for row in range(rows.num_rows):
        events = numbers.number(rows.slice(row, 1))
        assert events.partition.tolist() == [row]
        numbers.accept()
    assert keys_of(numbers)["key"].equals(rows["key"])
    again = EventNumbers(rows.schema, ("key",), None)
    again.restore(written(numbers.state()))
    assert again.number(rows).partition.tolist() == list(range(1500))


@given(data=st.data())
def test_forgotten_partitions_come_again_as_new_ones(data: st.DataObject) -> None:
    schema = pa.schema([("key", pa.int64())])
    numbers = EventNumbers(schema, ("key",), None)
    alive: dict[int, int] = {}
    counts: dict[int, int] = {}
    most = 0
    for _ in range(data.draw(st.integers(0, 6))):
        keys = data.draw(st.lists(st.integers(0, 9), max_size=6))
        events = numbers.number(pa.table({"key": keys}, schema=schema))
        numbers.accept()
        for key, partition in zip(keys, events.partition.tolist(), strict=True):
            assert alive.setdefault(key, partition) == partition
        assert len(set(alive.values())) == len(alive)
        # Events are counted on, whoever had the number before.
        for partition, ordinal in zip(
            events.partition.tolist(), events.ordinal.tolist(), strict=True
        ):
            assert ordinal == counts.get(partition, 0)
            counts[partition] = ordinal + 1
        most = max(most, len(alive))
        assert len(counts) == most
        if data.draw(st.booleans()):
            saved, numbers = written(numbers.state()), EventNumbers(schema, ("key",), None)
            numbers.restore(saved)
        assert keys_of(numbers)["key"].to_pylist() == sorted(alive, key=alive.__getitem__)
        gone = data.draw(st.lists(st.sampled_from(sorted(alive)), unique=True)) if alive else []
        numbers.forget(np.array([alive.pop(key) for key in gone], np.int64))


@pytest.mark.parametrize("times", [[-FAR - 1, 1, 2], [1, 2, FAR], [2, FAR, 1, -FAR - 1], [1, None]])
def test_a_table_is_refused_for_the_first_row_without_a_time(times: list[int | None]) -> None:
    table = pa.table({"ts": pa.array(times, pa.int64())})
    query = Query().order_by("ts").pattern("A").within(10)
    first = next(row for row, time in enumerate(times) if time is None or abs(time) >= FAR)
    with pytest.raises(DataError, match=f"row {first} of the input"):
        in_order(bind(query, table.schema), table, "ts")


@given(times=st.lists(st.integers(-5, 5)), descending=st.booleans())
def test_a_table_is_brought_into_order(times: list[int], descending: bool) -> None:
    table = pa.table({"ts": pa.array(times, pa.int64())})
    query = Query().order_by("ts DESC" if descending else "ts").pattern("A")
    ordered = in_order(bind(query, table.schema), table, "ts")
    assert ordered["ts"].to_pylist() == sorted(times, reverse=descending)


@given(sizes=st.lists(st.integers(0, 4), min_size=2, max_size=4))
def test_events_without_keys_are_sliced_and_joined_as_others(sizes: list[int]) -> None:
    rows = pa.table({"x": np.arange(sum(sizes))})
    numbers = EventNumbers(rows.schema, (), "x")
    given = []
    for low, size in zip(np.cumsum(sizes) - sizes, sizes, strict=True):
        given.append(numbers.number(rows.slice(low, size)))
        numbers.accept()
    joined = reduce(Events.and_next, (part.slice(0, len(part.arrival)) for part in given))
    for events in (joined, joined.slice(0, sum(sizes)), joined.showing(rows, joined.times)):
        assert events.partition.tolist() == [0] * sum(sizes)
        assert events.ordinal.tolist() == events.arrival.tolist() == list(range(sum(sizes)))
        assert events.times.tolist() == rows["x"].to_pylist()
        assert events.rows.equals(rows)
        assert events.owner in ((0,) if sum(sizes) else (0, None))
