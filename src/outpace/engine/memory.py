"""Memory for columns that are filled once and handed on: from Arrow's pool.

A large NumPy array is new memory from the system each time, and the first touch of each of its
pages costs more than most kernels do; Arrow's pool keeps pages for the next array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def pooled(size: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array with any content.

    Examples
    --------
    >>> pooled(3, np.int64).shape, pooled(0, np.int8).shape
    ((3,), (0,))
    """
    width = np.dtype(kind)
    if not size:
        return np.empty(0, width)
    return np.frombuffer(pa.allocate_buffer(size * width.itemsize), width)
