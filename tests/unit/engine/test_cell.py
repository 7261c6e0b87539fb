"""Cells as rows: what was written comes back, and any other bytes are refused."""

import numpy as np
import pyarrow as pa
import pytest

from outpace.engine.codec.cell import CELLS, Cell, CellKind, Counters, cell_batch, read_cells
from outpace.engine.codec.table import read_table, write_table
from outpace.errors import DataError

SPANS = np.array([[1, 2], [5, 9]], "<i8").tobytes()
ROWS = cell_batch(
    [
        Cell(CellKind.EVENTS, 1, b"some bytes", 2, 3, 4, 5, SPANS),
        Cell(CellKind.REPORT, counters=Counters(events=3)),
    ]
).to_pylist()


def read(rows: list[dict[str, object]]) -> list[Cell]:
    return list(read_cells(pa.RecordBatch.from_pylist(rows, CELLS)))


def test_a_changed_bit_of_a_cell_is_refused() -> None:
    assert [cell.kind for cell in read(ROWS)] == [CellKind.EVENTS, CellKind.REPORT]
    for name in ("head", "block"):
        whole = ROWS[0][name]
        for bit in range(8 * len(whole)):
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(DataError, match="a cell of the stream is damaged"):
                read([ROWS[0] | {name: bytes(changed)}])


@pytest.mark.parametrize(
    "foreign",
    [{"head": b""}, {"head": b"short"}, {"kind": 99}, {"kind": 1}, {"report": [1] * 99}],
    ids=str,
)
def test_a_row_that_is_no_cell_is_refused(foreign: dict[str, object]) -> None:
    with pytest.raises(DataError, match="of the stream is"):
        read([ROWS[0] | foreign])


def test_bytes_that_are_no_table_are_refused() -> None:
    whole = write_table(pa.table({"s": ["one", "two", "three"]})).to_pybytes()
    offsets = np.array([0, 3, 6, 11], "<i4").tobytes()
    beyond = whole.replace(offsets, np.array([0, 3, 6, 1 << 30], "<i4").tobytes())
    for data in (b"", b"nonsense", whole[:-60], beyond):
        with pytest.raises(DataError, match="a table of the stream cannot be read"):
            read_table(data)
