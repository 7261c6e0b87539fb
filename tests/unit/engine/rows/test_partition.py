"""Sorting into partitions equals sorting in plain Python."""

import datetime
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.rows.partition import (
    gather,
    group_codes,
    key_codes,
    place_rows,
    sort_rows,
    sort_table,
)
from outpace.pattern.bind.query import bind
from outpace.pattern.query import OrderItem, Query


def _bound(table, keys, order):
    query = Query().pattern("A").measures(n="COUNT(*)")
    query = query.partition_by(*keys) if keys else query
    return bind(query.order_by(*order) if order else query, table.schema)


def _plainly_sorted(table, keys, order):
    """Return the sorted row numbers and segments, by Python's own stable sort."""
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    groups = {}
    for row in range(table.num_rows):
        groups.setdefault(tuple(columns[name][row] for name in keys), []).append(row)
    rows, segments = [], [0]
    for group in groups.values():
        for item in reversed(order):
            group = _sorted_by(group, columns[item.column], item)
        rows += group
        segments.append(len(rows))
    return rows, segments


def _sorted_by(rows, values, item):
    known = [row for row in rows if values[row] is not None]
    nulls = [row for row in rows if values[row] is None]
    # A stable sort keeps ties as they are in both directions.
    known.sort(key=lambda row: _rank(values[row]), reverse=item.descending)
    if item.descending:
        known = [row for _, same in _runs(known, values) for row in sorted(same, key=rows.index)]
    return nulls + known if item.nulls_first else known + nulls


def _runs(rows, values):
    runs = []
    for row in rows:
        if runs and runs[-1][0] == _rank(values[row]):
            runs[-1][1].append(row)
        else:
            runs.append((_rank(values[row]), [row]))
    return runs


def _rank(value):
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


@st.composite
def tables(draw):
    size = draw(st.integers(0, 12))

    def column(values, kind):
        return pa.array(draw(st.lists(values, min_size=size, max_size=size)), kind)

    return pa.table(
        {
            "small": column(st.integers(-2, 2), pa.int16()),
            "wide": column(st.sampled_from([-(2**62), 0, 2**62]) | st.none(), pa.int64()),
            "text": column(st.sampled_from(["", "a", "b"]) | st.none(), pa.string()),
            "ts": column(st.integers(0, 4), pa.int64()),
            "price": column(st.sampled_from([0.0, 1.5, math.nan]) | st.none(), pa.float64()),
        }
    )


@given(
    tables(),
    st.lists(st.sampled_from(["small", "wide", "text"]), unique=True),
    st.lists(
        st.builds(
            OrderItem, st.sampled_from(["ts", "price", "wide"]), st.booleans(), st.booleans()
        ),
        max_size=2,
        unique_by=lambda item: item.column,
    ),
    st.booleans(),
)
def test_rows_are_sorted_by_partition_and_order(table, keys, order, cut):
    keys = [key for key in keys if key not in [item.column for item in order]]
    expected, segments = _plainly_sorted(table, keys, order)
    if cut and table.num_rows > 1:
        table = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    bound = _bound(table, keys, order)
    found, found_segments = sort_rows(table, bound)
    rows = list(range(table.num_rows)) if found is None else found.tolist()
    assert rows == expected
    assert found_segments.tolist() == segments
    whole = sort_table(table, bound, table.column_names)
    assert whole.segments.tolist() == segments
    for name in table.column_names:
        taken = table.column(name).take(pa.array(expected, pa.int64())).to_pylist()
        assert [repr(v) for v in whole.columns[name].to_pylist()] == [repr(v) for v in taken]
    ordinals = [row for size in np.diff(segments) for row in range(size)]
    assert whole.ordinals.tolist() == ordinals


def test_a_table_in_order_without_keys_is_not_copied():
    table = pa.table({"ts": [1, 2, 2, 5], "x": [4, 3, 2, 1]})
    order, segments = sort_rows(table, _bound(table, [], [OrderItem("ts")]))
    assert order is None
    assert segments.tolist() == [0, 4]
    column = table.column("x")
    assert gather(column, order).buffers()[1].address == column.chunk(0).buffers()[1].address


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["b", "a", "b", None]),
        pa.array(["b", "a", "b", None]).dictionary_encode(),
        pa.array([7, 5, 7, None], pa.uint64()),
        pa.array([0.0, 1.0, -0.0, math.nan]),
        pa.array([datetime.date(2024, 1, day) for day in (2, 1, 2, 3)]),
        pa.array([{"x": [1]}, {"x": [2]}, {"x": [1]}, None]),
        pa.array([True, False, True, None]),
    ],
)
def test_keys_of_any_type_are_numbered_by_first_appearance(values):
    codes, firsts = key_codes([pa.chunked_array([values.slice(0, 2), values.slice(2)])])
    assert codes.tolist() == [0, 1, 0, 2]
    assert firsts.tolist() == [0, 1, 3]


def test_equal_values_that_stand_twice_in_a_dictionary_are_one_key():
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", "b", "a"]))
    codes, _ = key_codes([pa.chunked_array([column])])
    assert codes.tolist() == [0, 1, 0]


@pytest.mark.parametrize("keys", [[0.0, -0.0, 1.0], [1.0, 0.0, -0.0], [0.0, 1.0, -0.0]])
def test_a_partition_shows_the_key_of_its_first_row(keys):
    table = pa.table({"ts": [1, 2, 3], "key": keys})
    bound = bind(Query("q").partition_by("key").order_by("ts").pattern("A"), table.schema)
    shown = sort_table(table, bound, ["key"]).columns["key"].to_pylist()
    assert sorted(map(str, shown)) == ["0.0", "0.0", "1.0"]


@given(st.integers(0, 5), st.integers(0, 3), st.booleans(), st.data())
def test_texts_are_gathered_whatever_their_length(width, skipped, varied, data):
    values = [f"{n:0{width}}"[: width - (varied and n % 2)] for n in range(20)]
    column = pa.array(["x" * skipped, *values]).slice(1)
    order = np.array(data.draw(st.permutations(range(20))), np.int32)
    gathered = gather(column, order)
    gathered.validate(full=True)
    assert gathered.equals(column.take(pa.array(order)))


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.float64(), pa.timestamp("us")])
@pytest.mark.parametrize("size", [10, 9001])
@pytest.mark.parametrize("begin", [0, 3, 8])
def test_columns_with_nulls_are_placed_as_arrow_places_them(kind, size, begin):
    rng = np.random.default_rng(size)
    values = pa.array(rng.integers(0, 100, begin + size)).cast(kind)
    missing = pa.array(rng.random(begin + size) < 0.3)
    for column in (pc.if_else(missing, None, values), pa.nulls(begin + size, kind)):
        column = column.slice(begin)
        some = rng.integers(0, size, 2 * size)
        assert gather(column, some).equals(column.take(pa.array(some)))
        codes = rng.integers(0, 7, size).astype(np.int32)
        grouping = group_codes(codes, 7)
        placed = place_rows(column, grouping.order, grouping.scatter)
        assert placed.equals(column.take(pa.array(np.argsort(codes, kind="stable"))))
        placed.validate(full=True)
