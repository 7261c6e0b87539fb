"""The times of events that no step can use, as the content of a cell.

Such events do not travel, but whether one is late is known only to the stage that has the watermark
of the batches before. So their times go there: in order, as the distances between them, which take
one or two bytes each at thousands of events a second.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.codec.block import block_cells, narrow_rows, read_block
from outpace.engine.kernels.grouping import is_ascending

_FIRST: Final = struct.Struct("<q")
_GAPS: Final = pa.schema([pa.field("gap", pa.int64())])


def write_times(times: Integers) -> bytes:
    """Return times, of which there is at least one, as bytes.

    Examples
    --------
    >>> read_times(write_times(np.array([7, -2, 7]))).tolist()
    [-2, 7, 7]
    """
    ordered = times if is_ascending(times) else np.sort(times)
    gaps = pa.array(np.diff(ordered, prepend=ordered[:1]))
    return _FIRST.pack(ordered[0]) + bytes(block_cells([narrow_rows({"gap": gaps})])[0].as_buffer())


def read_times(block: bytes | pa.Buffer) -> Integers:
    """Return the times that `write_times` wrote, in order."""
    (first,) = _FIRST.unpack_from(block)
    gaps = read_block(pa.py_buffer(block).slice(_FIRST.size), _GAPS)["gap"].to_numpy()
    # Where times are further apart than 64 bits with a sign tell, both differences and sums wrap.
    return np.cumsum(gaps, dtype=np.int64) + np.int64(first)
