"""Whether one key has so many rows that it has to be divided by time: told by a sample of keys.

The sample is the head of a few row groups, evenly spaced, so it costs little whatever the size of
the files. A file that is sorted by key can make a key look more frequent than it is; then rows are
cut by range without need, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.rows.partition import key_codes
from outpace.files.parquet import FileList

#: Row groups that are sampled, and rows of each.
_GROUPS: Final = 8
_ROWS: Final = 1 << 15


def rows_of_largest_key(files: FileList, keys: Sequence[str]) -> int:
    """Return about how many rows the most frequent key has."""
    if not files.groups:
        return 0
    places = np.unique(np.linspace(0, len(files.groups) - 1, _GROUPS).astype(int))
    groups = [files.groups[place] for place in places]
    heads = [next(files.batches(group, keys, _ROWS)) for group in groups]
    sample = pa.concat_tables(heads)
    codes, _ = key_codes([sample.column(name) for name in keys])
    return int(np.bincount(codes).max() * files.rows // len(codes))
