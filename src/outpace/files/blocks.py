"""What is put together of files: row groups that are read at once, and keys that a task matches.

Keyed rows are packed into blocks by key bucket, the blocks of a bucket come together in one task,
and that task matches the bucket as a table. A bucket has at most about `BUCKET_ROWS` rows and
`BUCKET_BYTES` bytes where keys are many and even. Where one key alone has more rows, a query with
WITHIN that can be cut is cut by time range too; without that a task holds all rows of the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.rows.partition import key_codes
from outpace.files.parquet import FileList
from outpace.plan.division import Cut
from outpace.plan.plan import Plan
from outpace.plan.row_plan import RowDivision

#: What a task that matches holds of its input: the smaller of the two limits counts.
BUCKET_ROWS: Final = 1_000_000
BUCKET_BYTES: Final = 128 << 20

#: Row groups that are sampled to tell whether one key has too many rows, and rows of each.
_GROUPS: Final = 8
_ROWS: Final = 1 << 15

#: Up to `_SPREAD` buckets are made so that each has this many rows: work for that many cores.
_SPREAD: Final = 16
_SPREAD_ROWS: Final = 250_000

#: Row groups are packed together up to so many rows and bytes, so that small ones make no small
#: blocks; a row group that is larger alone is packed alone.
UNIT_ROWS: Final = 1 << 20
UNIT_BYTES: Final = 256 << 20


def pack_units(rows: Sequence[int], sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Put row groups that follow each other together, up to a number of rows and bytes.

    Examples
    --------
    >>> pack_units([400_000, 400_000, 400_000, 3_000_000, 10], [0, 0, 0, 0, 0])
    ((0, 2), (2, 3), (3, 4), (4, 5))
    """
    units: list[tuple[int, int]] = []
    first = unit_rows = unit_bytes = 0
    for number, (more_rows, more_bytes) in enumerate(zip(rows, sizes, strict=True)):
        full = unit_rows + more_rows > UNIT_ROWS or unit_bytes + more_bytes > UNIT_BYTES
        if full and number > first:
            units.append((first, number))
            first, unit_rows, unit_bytes = number, 0, 0
        unit_rows += more_rows
        unit_bytes += more_bytes
    return (*units, (first, len(rows))) if rows else ()


def bucket_count(rows: int, size: int) -> int:
    """Return how many buckets rows of so many bytes are divided into.

    Examples
    --------
    >>> [bucket_count(rows, 20 * rows) for rows in (0, 1_000_000, 20_000_000, 200_000_000)]
    [1, 4, 20, 200]
    """
    spread = min(_SPREAD, -(-rows // _SPREAD_ROWS))
    return max(1, spread, -(-rows // BUCKET_ROWS), -(-size // BUCKET_BYTES))


def cut_keys(files: FileList, plan: Plan[RowDivision]) -> RowDivision:
    """Divide a keyed query, by time range only where a key is too large for a task."""
    division = plan.division
    if not division.cut.by_range:
        return division
    reason = "there are few rows"
    if files.rows > BUCKET_ROWS:
        largest = rows_of_largest_key(files, plan.bound.partition_by)
        if largest > BUCKET_ROWS:
            return replace(division, reason=f"one key has about {largest:,} rows")
        reason = "no key has too many rows for a task"
    return replace(division, cut=Cut.KEY, reason=reason)


def packed_bytes(files: FileList, packed: Sequence[str]) -> int:
    """Return about how many bytes travel: plain numbers by their width, the rest by the footers."""
    total = 0
    for name in packed:
        index = files.schema.get_field_index(name)
        kind = pa.uint8() if index < 0 else files.schema.field(index).type
        if pa.types.is_primitive(kind):
            total += files.rows * max(1, kind.bit_width // 8)
        else:
            total += sum(group.sizes[name] for group in files.groups)
    return total


def rows_of_largest_key(files: FileList, keys: Sequence[str]) -> int:
    """Return about how many rows the most frequent key has, by a sample of the keys.

    The sample is the head of a few row groups, evenly spaced, so it costs little whatever the size
    of the files. A file that is sorted by key can make a key look more frequent than it is; then
    rows are cut by range without need, with the same result.
    """
    if not files.groups:
        return 0
    places = np.unique(np.linspace(0, len(files.groups) - 1, _GROUPS).astype(int))
    groups = [files.groups[place] for place in places]
    heads = [next(files.batches(group, keys, _ROWS)) for group in groups]
    sample = pa.concat_tables(heads)
    codes, _ = key_codes([sample.column(name) for name in keys])
    return int(np.bincount(codes).max() * files.rows // len(codes))
