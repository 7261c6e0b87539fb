"""Narrow columns come back bit by bit, whole and in slices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.codec.block import block_cells, check_block, narrow_rows, read_block
from outpace.engine.rows.narrow import narrow, widen

decimals = st.builds(
    lambda whole, scale: whole / scale,
    st.integers(-(10**12), 10**12),
    st.sampled_from([1, 10, 100]),
)
floats = st.one_of(
    st.lists(decimals, max_size=80),
    st.lists(st.floats(), max_size=80),
    st.lists(st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), 1e300]), max_size=5),
)
texts = st.one_of(
    st.lists(st.text(st.characters(max_codepoint=0x7F), min_size=3, max_size=3)),
    st.lists(st.text(max_size=3)),
    st.lists(st.none() | st.just("ab")),
)
columns = st.one_of(
    floats.map(lambda values: pa.array(values, pa.float64())),
    texts.map(lambda values: pa.array(values, pa.string())),
    st.lists(st.binary(min_size=2, max_size=2)).map(lambda values: pa.array(values, pa.binary())),
    st.lists(st.binary(min_size=2, max_size=2)).map(lambda values: pa.array(values, pa.binary(2))),
    st.lists(st.integers(-(2**63), 2**63 - 1)).map(lambda values: pa.array(values, pa.int64())),
    st.lists(st.integers(0, 2**64 - 1)).map(lambda values: pa.array(values, pa.uint64())),
    st.lists(st.integers(-4, 4)).map(lambda values: pa.array(values, pa.timestamp("us"))),
    st.lists(st.booleans()).map(lambda values: pa.array(values, pa.bool_())),
)


def bits(column: pa.Array) -> list[object]:
    if pa.types.is_float64(column.type):
        return column.to_numpy().view(np.int64).tolist()
    return column.to_pylist()


@given(columns, st.integers(0, 5), st.integers(0, 5))
def test_a_column_comes_back_bit_by_bit(column, before, after):
    part = column.slice(before)
    field, small = narrow("x", part)
    wide = widen(field, small, column.type)
    wide.validate(full=True)
    assert wide.type == column.type
    assert bits(wide) == bits(part)
    assert bits(widen(field, small.slice(after), column.type)) == bits(part.slice(after))
    assert small.nbytes <= part.nbytes


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([100.25, 99.75], pa.uint8()),
        ([100.01, 350.99], pa.uint16()),
        ([0.0, 5.0, 1e6], pa.uint32()),
        ([0.0, -0.0], pa.float64()),
        ([1 / 3, 1.0], pa.float64()),
        ([1.5, float("nan")], pa.float64()),
        ([0.0, 1e10], pa.float64()),
    ],
)
def test_decimals_with_few_places_are_narrow(values, kind):
    assert narrow("x", pa.array(values))[1].type == kind


def test_what_only_the_untried_values_tell_is_seen():
    values = np.full(10_000, 0.25)
    values[4_999] = 1 / 3
    assert narrow("x", pa.array(values))[1].type == pa.float64()


def test_texts_of_one_length_need_no_offsets():
    field, small = narrow("symbol", pa.array(["AAA", "BBB", "CCC"]).slice(1))
    assert small.nbytes == 6
    assert widen(field, small, pa.string()).to_pylist() == ["BBB", "CCC"]
    assert narrow("symbol", pa.array(["A", "BB"]))[1].type == pa.string()
    assert narrow("symbol", pa.array(["", ""]))[1].type == pa.string()


@pytest.mark.parametrize(("differ", "kept"), [(2, True), (256, True), (257, False)])
def test_few_texts_in_many_rows_are_there_once(differ, kept):
    texts = [f"text {number % (differ - 1)}" for number in range(5000)]
    column = pa.array(["another", *texts, ""]).slice(1)
    field, small = narrow("x", column, numbered=True)
    assert pa.types.is_dictionary(small.type) == kept
    assert widen(field, small, column.type).equals(column)
    assert widen(field, small.slice(7, 5), column.type).equals(column.slice(7, 5))
    assert not pa.types.is_dictionary(narrow("x", column)[1].type)
    cell = block_cells([narrow_rows({"x": column}, numbered=True)])[0].as_buffer()
    schema = pa.schema({"x": pa.string()})
    assert read_block(cell, schema)["x"].equals(column)
    if kept:
        with pytest.raises(ValueError, match="texts are numbered"):
            check_block(cell, schema)
