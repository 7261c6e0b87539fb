import datetime
import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.codec.block import block_cells, narrow_rows, read_block


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_any_cut_into_blocks_reads_back_as_it_was(values, cuts):
    rows = {"n": pa.array(values), "text": pa.array([None if v % 3 else str(v) for v in values])}
    narrow = narrow_rows(rows)
    bounds = sorted({0, len(values), *(cut for cut in cuts if cut < len(values))})
    pieces = [narrow.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    schema = pa.schema({"n": pa.int64(), "text": pa.string(), "other": pa.bool_()})
    read = [read_block(cell.as_buffer(), schema) for cell in block_cells(pieces)]
    for name, column in rows.items():
        assert pa.concat_arrays([block[name] for block in read]).equals(column)


def test_blocks_are_narrow():
    first = datetime.datetime(2026, 1, 1)
    times = pa.array([first + datetime.timedelta(microseconds=n) for n in range(10_000)])
    (cell,) = block_cells([narrow_rows({"ts": times, "key": pa.array([7] * 10_000)})])
    assert len(cell.as_buffer()) < 4 * 10_000


@pytest.mark.parametrize("offset", range(8))
def test_a_cell_may_lie_anywhere(offset):
    (cell,) = block_cells([narrow_rows({"x": pa.array([0.5, 1.5])})])
    moved = pa.py_buffer(bytes(offset) + cell.as_py()).slice(offset)
    column = read_block(moved, pa.schema({"x": pa.float64()}))["x"]
    assert column.to_pylist() == [0.5, 1.5]
    assert column.buffers()[1].address % 8 == 0
