"""Tables as the content of cells: the rows that come out of a stream, with their types."""

from __future__ import annotations

import pyarrow as pa

from outpace.engine.ipc_check import check_uncompressed
from outpace.errors import DataError


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
    """Return the table that `write_table` wrote.

    Raises
    ------
    DataError
        If these are other bytes.
    """
    try:
        check_uncompressed(pa.py_buffer(block))
        with pa.ipc.open_stream(block) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError("a table of the stream cannot be read", detail=str(error)) from error
    return table
