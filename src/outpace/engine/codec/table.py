"""Tables as the content of cells: the rows that come out of a stream, with their types.

They are no blocks (`outpace.engine.codec.block`), as whoever reads them knows no schema to widen
them by, and a table may be empty or have several chunks.
"""

from __future__ import annotations

import pyarrow as pa

from outpace.engine.codec.block import write_rows
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
    write_rows(table, sink)
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
