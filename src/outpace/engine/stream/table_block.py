"""Tables as the content of cells: what comes out of a stream, with its types."""

from __future__ import annotations

import pyarrow as pa


def write_table(table: pa.Table) -> pa.Buffer:
    """Return a table as bytes.

    Examples
    --------
    >>> read_table(write_table(pa.table({"x": [1, 2]})))["x"].to_pylist()
    [1, 2]
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def read_table(block: bytes | pa.Buffer) -> pa.Table:
    """Return the table that `write_table` wrote."""
    with pa.ipc.open_stream(block) as reader:
        return reader.read_all()
