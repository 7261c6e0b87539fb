"""Blocks of events in shared memory: written once, and read there by every instance.

The memory is a number of slots of one size; a block fits into one. A slot is free again when every
instance that was sent to it has let go of its rows. The memory has no name in the file system, so
it is gone with the last process that has it mapped, however that ends.

Memory: the slots, and nothing beside them.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from multiprocessing.context import BaseContext
from typing import Any, Final

import pyarrow as pa

from outpace.engine.codec.block import narrow_block, write_rows
from outpace.errors import DataError

#: Bytes of what travels beside the columns of events: three integers a row, and more.
_BESIDE_ROW: Final = 24
_BESIDE_COLUMN: Final = 256
_BESIDE_BLOCK: Final = 4096


class RingSlots:
    """Which slots are free, and how many readers the others still have.

    Examples
    --------
    >>> slots = RingSlots(2)
    >>> first, second = slots.lease(readers=2), slots.lease(readers=1)
    >>> slots.free
    0
    >>> slots.release(first), slots.release(first), slots.free
    (None, None, 1)
    """

    def __init__(self, count: int) -> None:
        self._free = deque(range(count))
        self._readers = [0] * count

    @property
    def free(self) -> int:
        """How many slots are free."""
        return len(self._free)

    def lease(self, readers: int) -> int:
        """Return a free slot that so many readers will release."""
        assert readers > 0, "a block is for somebody"
        slot = self._free.popleft()
        self._readers[slot] = readers
        return slot

    def release(self, slot: int) -> None:
        """Note that a reader is done with a slot."""
        self._readers[slot] -= 1
        assert self._readers[slot] >= 0, "a slot is released once by each reader"
        if not self._readers[slot]:
            self._free.append(slot)


class Ring:
    """Shared memory in slots; a process that is started with it maps the same memory.

    Parameters
    ----------
    context
        How processes are started.
    slots, slot_bytes
        The number of slots, and the size of each.
    """

    def __init__(self, context: BaseContext, slots: int, slot_bytes: int) -> None:
        # Kernels want their numbers aligned.
        self.slot_bytes = slot_bytes // 64 * 64
        self._memory: Any = context.RawArray(ctypes.c_byte, slots * self.slot_bytes + 64)

    def fits(self, rows: pa.Table) -> bool:
        """Say whether rows fit into a slot, with the numbers that travel beside them."""
        beside = _BESIDE_ROW * int(rows.num_rows) + _BESIDE_COLUMN * len(rows.column_names)
        return _size(rows) + beside + _BESIDE_BLOCK <= self.slot_bytes

    def write(self, slot: int, rows: pa.RecordBatch) -> int:
        """Write rows into a slot that nobody reads, and return their size in bytes."""
        first = self._address(slot) - ctypes.addressof(self._memory)
        space = memoryview(self._memory).cast("B")[first : first + self.slot_bytes]
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(space))
        write_rows(rows, sink)
        size: int = sink.tell()
        return size

    def close(self) -> None:
        """Let go of the memory, which nobody may read or write any more."""
        self._memory = None

    def _address(self, slot: int) -> int:
        start = -(-ctypes.addressof(self._memory) // 64) * 64
        return start + slot * self.slot_bytes

    def view(self, slot: int, size: int, owner: object) -> pa.Buffer:
        """Return the bytes of a slot; `owner` lives as long as anything that refers to them."""
        return pa.foreign_buffer(self._address(slot), size, owner)


class RingReader:
    """What an instance reads, and what of it it still uses.

    Rows that are read refer to the shared memory. They may be kept, and as long as anything refers
    to them the slot is not free. An instance that holds more than its share of slots gets copies
    instead, so instances together never hold more than a part of the slots; the rest goes round.

    Parameters
    ----------
    ring
        The memory.
    share
        How many slots may be held; 0 always copies.
    """

    def __init__(self, ring: Ring, share: int) -> None:
        self._ring = ring
        self._share = share
        self._leases: dict[int, weakref.ref[_Lease]] = {}
        self._released: list[int] = []

    def read(self, slot: int, size: int) -> pa.RecordBatch:
        """Return the rows in a slot."""
        if len(self._leases) >= self._share:
            # What was copied is independent of the slot at once.
            rows = narrow_block(pa.py_buffer(self._ring.view(slot, size, self).to_pybytes()))
            self._released.append(slot)
            return rows
        lease = _Lease()
        self._leases[slot] = weakref.ref(lease, lambda _: self._release(slot))
        return narrow_block(self._ring.view(slot, size, lease))

    def released(self) -> tuple[int, ...]:
        """Return the slots that became free of this reader since the last call."""
        released, self._released = tuple(self._released), []
        return released

    def _release(self, slot: int) -> None:
        del self._leases[slot]
        self._released.append(slot)


class _Lease:
    """Lives as long as rows that refer to a slot."""


def largest_block(ring: Ring, rows: pa.Table) -> int:
    """Return how many of the first rows are sure to fit into a slot together.

    Raises
    ------
    DataError
        Where one row is too large.
    """
    count = int(rows.num_rows)
    while not ring.fits(rows.slice(0, count)):
        if count == 1:
            raise DataError(
                "an event is too large for the shared memory",
                detail=f"a slot has {ring.slot_bytes} bytes",
                hint="give the run more memory, or leave out columns that the query does not read",
            )
        count = -(-count // 2)
    return count


def _size(rows: pa.Table) -> int:
    # Writing to nothing tells the size, with dictionaries and all.
    sink = pa.MockOutputStream()
    write_rows(rows, sink)
    size: int = sink.size()
    return size
