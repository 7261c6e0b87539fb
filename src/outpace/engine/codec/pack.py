"""Packing rows into blocks, one for each bucket of keys, and putting the blocks of one together.

Rows keep their order inside a block, and blocks put together in the order of their positions give
all rows of a bucket in the order in which they were packed, so the matches of a bucket are those of
its keys in the whole input. Packing takes time linear in the rows and memory for two copies of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.codec.block import block_cells, narrow_rows, read_block
from outpace.engine.kernels.grouping import order_rows, scatter_of
from outpace.engine.match.bits import BITS, BitTask, bit_columns
from outpace.engine.rows.buckets import key_buckets
from outpace.engine.rows.partition import column_arrays, place_rows

#: A row of packed blocks: which keys, which range of time (0 where rows are not cut by time), where
#: the block's rows stand among all rows, and the block.
PACKED: Final = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("range", pa.int64(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("block", pa.binary(), nullable=False),
    ]
)

Blocks = Sequence[tuple[int, pa.Buffer]]


class Packer:
    """Packs rows by key: bits are computed, and rows that no match needs are left out.

    Parameters
    ----------
    keys
        The key columns.
    columns
        The columns that travel, those of bits among them.
    count
        The number of buckets.
    bits
        The query that reads bits; None where it reads none.

    Examples
    --------
    >>> from outpace.engine.match.bits import with_bits
    >>> from outpace.engine.match.task import prepare
    >>> from outpace.pattern.query import Query
    >>> rows = pa.table({"ts": [1, 2, 3, 4], "key": [8, 9, 8, 9], "kind": ["a", "a", "b", "c"]})
    >>> query = (Query("q").partition_by("key").order_by("ts").pattern("A -> B")
    ...          .define(A="kind = 'a'", B="kind = 'b'").measures(at="B.ts"))
    >>> bits = with_bits(prepare(query, rows.schema))
    >>> packer = Packer(["key"], ["ts", "key", "__outpace_bits_0"], 1, bits)
    >>> blocks = [(n, packer.pack(rows.slice(2 * n, 2), n)["block"][0].as_buffer()) for n in (0, 1)]
    >>> unpack(blocks, bits.task.bound.schema).to_pydict()
    {'ts': [1, 2, 3], 'key': [8, 9, 8], '__outpace_bits_0': [1, 1, 2]}
    """

    def __init__(
        self,
        keys: Sequence[str],
        columns: Sequence[str],
        count: int,
        bits: BitTask | None = None,
    ) -> None:
        self._keys = keys
        self._columns = columns
        self._count = count
        self._bits = bits

    def pack(self, table: pa.Table, position: int) -> pa.RecordBatch:
        """Pack the rows of a table, which stand at a position among all rows."""
        columns, used = self.computed(table)
        buckets = self.buckets(table)
        if used is not None:
            np.putmask(buckets, ~used, self._count)
        return pack(columns, buckets, self._count, position)

    def select(self, table: pa.Table, bucket: int | None = None) -> pa.Table:
        """Return the rows of one bucket, or of all, as `pack` would have packed them."""
        columns, wanted = self.computed(table)
        rows = pa.table(columns)
        if bucket is not None:
            owned = self.buckets(table) == bucket
            wanted = owned if wanted is None else owned & wanted
        return rows if wanted is None else rows.filter(pa.array(wanted))

    def buckets(self, table: pa.Table) -> npt.NDArray[np.int32]:
        """Return the bucket of each row of a table, which has the key columns."""
        if not self._keys or self._count == 1:
            return np.zeros(table.num_rows, np.int32)
        return key_buckets([table.column(name) for name in self._keys], self._count)

    def computed(self, table: pa.Table) -> tuple[dict[str, pa.Array], Booleans | None]:
        """Return the columns that travel, and which rows do where not all have to.

        Columns of bits are computed where the table has none.
        """
        columns, used = column_arrays(table), None
        if self._bits is not None and not columns.keys() >= set(self._columns):
            columns.update(bit_columns(self._bits.predicates, columns, table.num_rows))
        if self._bits is not None and self._bits.drop_unused:
            used = np.zeros(table.num_rows, np.bool_)
            for name in self._columns:
                if name.startswith(BITS):
                    used |= columns[name].to_numpy(zero_copy_only=False) != 0
        return {name: columns[name] for name in self._columns}, used


def pack(
    columns: Mapping[str, pa.Array],
    buckets: npt.NDArray[np.int32],
    count: int,
    position: int,
) -> pa.RecordBatch:
    """Pack rows by bucket.

    Parameters
    ----------
    columns
        The columns of the rows.
    buckets
        The bucket of each row, from 0 on; rows whose bucket is `count` are left out.
    count
        The number of buckets.
    position
        Where the rows stand among all rows that are packed.

    Returns
    -------
    pyarrow.RecordBatch
        With the schema `PACKED`, a row for each bucket that has rows.

    Examples
    --------
    >>> rows = {"x": pa.array([10, 11, 12, 13])}
    >>> packed = pack(rows, np.array([1, 0, 1, 2], np.int32), 2, position=7)
    >>> blocks = [(7, block.as_buffer()) for block in packed["block"]]
    >>> [unpack([block], pa.schema({"x": pa.int64()}))["x"].to_pylist() for block in blocks]
    [[11], [10, 12]]
    """
    order = np.empty(len(buckets), np.int32)
    bounds, scatter = scatter_of(buckets, count + 1)
    order_rows(scatter, order)
    narrow = narrow_rows(columns)
    rows = pa.RecordBatch.from_arrays(
        [place_rows(column, order, scatter) for column in narrow.columns],
        schema=narrow.schema,
    )
    filled = np.flatnonzero(np.diff(bounds[: count + 1]))
    blocks = [rows.slice(bounds[b], bounds[b + 1] - bounds[b]) for b in filled]
    return packed_blocks(filled, np.zeros(len(filled), np.int64), position, blocks)


def packed_blocks(
    buckets: Sequence[int] | Integers,
    ranges: Sequence[int] | Integers,
    position: int,
    blocks: Sequence[pa.RecordBatch],
) -> pa.RecordBatch:
    """Return blocks, each with its bucket and range, with the schema `PACKED`."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array(buckets, pa.int32()),
            pa.array(ranges, pa.int64()),
            pa.array(np.full(len(blocks), position), pa.int64()),
            block_cells(blocks),
        ],
        schema=PACKED,
    )


def unpack(blocks: Blocks, schema: pa.Schema) -> pa.Table:
    """Put blocks together by their positions; `schema` has their columns and maybe others."""
    chunks: dict[str, list[pa.Array]] = {}
    for _, block in sorted(blocks, key=lambda placed_block: placed_block[0]):
        for name, column in read_block(block, schema).items():
            chunks.setdefault(name, []).append(column)
    return pa.table({name: pa.chunked_array(arrays) for name, arrays in chunks.items()})
