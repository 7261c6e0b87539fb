"""Stretches of a log: where rows that were read from it lie, so that they can be read again.

A log may have parts, as files or the partitions of a topic, each with offsets of its own. Rows with
consecutive offsets are one stretch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import DataError


class LogStretch(NamedTuple):
    """The events of a part of a log between two offsets; the only part of a log is ""."""

    part: str
    first: int
    stop: int


def stretches_of(parts: pa.ChunkedArray, offsets: pa.ChunkedArray) -> tuple[LogStretch, ...]:
    """Return where rows lie, by the part and the offset of each.

    Rows with consecutive offsets are one stretch; what is left out between them is in none.

    Examples
    --------
    >>> parts = pa.chunked_array([["a", "a", "a", "b"]])
    >>> stretches_of(parts, pa.chunked_array([[7, 8, 10, 11]]))
    (LogStretch(part='a', first=7, stop=9), LogStretch(part='a', first=10, stop=11), \
LogStretch(part='b', first=11, stop=12))
    """
    if not len(offsets):
        return ()
    if parts.null_count or offsets.null_count or pc.min(offsets).as_py() < 0:
        raise DataError(
            "a row of the stream does not say where in its log it lies",
            hint="parts have names, and offsets are integers from 0 on",
        )
    own, offsets = parts.combine_chunks(), offsets.to_numpy()
    same = pc.equal(own.slice(1), own.slice(0, len(own) - 1)).to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(np.append(True, ~same.astype(np.bool_) | (np.diff(offsets) != 1)))
    stops = np.append(starts[1:], len(offsets)) - 1
    names = own.take(pa.array(starts)).to_pylist()
    firsts, lasts = offsets[starts].tolist(), offsets[stops].tolist()
    return tuple(
        LogStretch(name, first, last + 1)
        for name, first, last in zip(names, firsts, lasts, strict=True)
    )


def write_stretches(stretches: Sequence[LogStretch]) -> bytes:
    """Return stretches as bytes; none as no bytes."""
    return json.dumps(stretches, separators=(",", ":")).encode() if stretches else b""


def read_stretches(data: bytes) -> tuple[LogStretch, ...]:
    """Return the stretches that `write_stretches` wrote."""
    return tuple(LogStretch(*one) for one in json.loads(data)) if data else ()
