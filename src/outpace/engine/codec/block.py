"""Rows as blocks: many rows as one binary cell, which Spark moves and stores as one row.

A block is an Arrow IPC stream of one record batch, with its integers as narrow as they can be. It
is what travels and what is stored wherever there are many events; whoever moves it puts a head of
its own before it, as the architecture page lists. Rows that come out keep their types: tables
(`outpace.engine.codec.table`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.ipc_check import check_uncompressed
from outpace.engine.rows.narrow import is_text, narrow, widen

#: Kernels want their numbers aligned, and a cell lies wherever the one before it ends.
_ALIGNED: Final = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)


def narrow_rows(columns: Mapping[str, pa.Array], *, numbered: bool = False) -> pa.RecordBatch:
    """Return rows in as few bytes as they need; slices of them can be blocks; see `narrow`."""
    fields, arrays = [], []
    for name, column in columns.items():
        field, narrowed = narrow(name, column, numbered=numbered)
        fields.append(field)
        arrays.append(narrowed)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def block_cells(blocks: Sequence[pa.RecordBatch]) -> pa.Array:
    """Write each block into a cell of a binary column.

    Examples
    --------
    >>> rows = narrow_rows({"x": pa.array([10, 11, 12])})
    >>> cells = block_cells([rows.slice(0, 1), rows.slice(1)])
    >>> read_block(cells[1].as_buffer(), pa.schema({"x": pa.int64()}))["x"].to_pylist()
    [11, 12]
    >>> read_block(cells[1].as_buffer(), pa.schema({"y": pa.int64()}))
    {}
    """
    # Writing to nothing first tells the size, so that what is written for good never moves.
    size = _write(blocks, pa.MockOutputStream())[-1]
    space = pa.allocate_buffer(size)
    offsets = np.array(_write(blocks, pa.FixedSizeBufferWriter(space)), np.int32)
    return pa.Array.from_buffers(pa.binary(), len(blocks), [None, pa.py_buffer(offsets), space])


def read_block(cell: pa.Buffer, schema: pa.Schema) -> dict[str, pa.Array]:
    """Return the columns of a block that a schema has, which tells their types.

    Columns that it does not have are left where they are. A block that others may have written is
    checked before, see `check_block`.
    """
    return wide_columns(narrow_block(cell), schema)


def check_block(cell: pa.Buffer, schema: pa.Schema) -> None:
    """Refuse a block whose offsets or codes lead outside of it, or that is compressed.

    Raises
    ------
    ValueError, OSError
        It is none that can be read.
    """
    check_uncompressed(cell)
    rows = narrow_block(cell)
    for column in rows.columns:
        _check_column(column)
    types = {field.name: field.type for field in schema}
    texts = [one.type for one in rows.schema if is_text(types.get(one.name, pa.null()))]
    if any(map(pa.types.is_dictionary, texts)):
        raise ValueError("texts are numbered, which those of others are not")


def _check_column(column: pa.Array) -> None:
    """Refuse values that lie outside of their column; texts need not be texts, which is quicker."""
    kind = column.type
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    plain = large or pa.types.is_string(kind) or pa.types.is_binary(kind)
    column.validate(full=not (plain or pa.types.is_primitive(kind)))
    if plain and len(column):
        # The first and the last bound are known to lie inside.
        bounds: npt.NDArray[Any] = np.frombuffer(
            column.buffers()[1], np.int64 if large else np.int32
        )
        bounds = bounds[column.offset : column.offset + len(column) + 1]
        if (bounds[1:] < bounds[:-1]).any():
            raise ValueError("a text lies outside of its column")


def narrow_block(cell: pa.Buffer) -> pa.RecordBatch:
    """Return the rows of a block as narrow as they lie in it; they refer to its memory."""
    with pa.ipc.open_stream(cell, options=_ALIGNED) as reader:
        return reader.read_next_batch()


def wide_columns(rows: pa.RecordBatch, schema: pa.Schema) -> dict[str, pa.Array]:
    """Return the columns of narrow rows that a schema has, which tells their types."""
    return {
        field.name: widen(field, column, schema.field(field.name).type)
        for field, column in zip(rows.schema, rows.columns, strict=True)
        if field.name in schema.names
    }


def _write(blocks: Sequence[pa.RecordBatch], sink: pa.NativeFile) -> list[int]:
    """Write blocks one after the other and return where each starts, and the end."""
    offsets = [0]
    for block in blocks:
        write_rows(block, sink)
        offsets.append(sink.tell())
    return offsets


def write_rows(rows: pa.RecordBatch | pa.Table, sink: pa.NativeFile) -> None:
    """Write rows as they are, as an Arrow IPC stream."""
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
