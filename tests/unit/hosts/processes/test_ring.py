"""Shared memory: a block is written once, read without a copy, and its slot comes back."""

from __future__ import annotations

import gc
import multiprocessing

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import DataError
from outpace.hosts.processes.ring import Ring, RingReader, RingSlots, largest_block

CONTEXT = multiprocessing.get_context("spawn")


def ring(slots: int = 4, slot_bytes: int = 1 << 14) -> Ring:
    return Ring(CONTEXT, slots, slot_bytes)


def rows(size: int = 100, first: int = 0) -> pa.RecordBatch:
    names = pa.array([f"n{n % 3}" for n in range(size)]).dictionary_encode()
    values = [None if n % 7 == 0 else first + n for n in range(size)]
    nested = [[n] * (n % 3) for n in range(size)]
    return pa.record_batch({"value": values, "name": names, "nested": nested})


def test_rows_are_read_as_they_were_written() -> None:
    memory = ring()
    reader = RingReader(memory, share=4)
    written = [rows(first=1000 * slot) for slot in range(4)]
    sizes = [memory.write(slot, table) for slot, table in enumerate(written)]
    read = [reader.read(slot, size) for slot, size in enumerate(sizes)]
    assert [table.to_pylist() for table in read] == [table.to_pylist() for table in written]


def test_rows_that_are_read_lie_in_the_shared_memory() -> None:
    memory = ring()
    size = memory.write(1, rows())
    before = pa.total_allocated_bytes()
    read = RingReader(memory, share=1).read(1, size)
    assert pa.total_allocated_bytes() == before
    memory.write(1, rows(first=500))
    assert read["value"].to_pylist()[1] == 501


def test_a_slot_is_released_when_nothing_refers_to_its_rows() -> None:
    memory = ring()
    reader = RingReader(memory, share=4)
    kept = reader.read(0, memory.write(0, rows())).slice(10, 5)["value"]
    numbers = reader.read(1, memory.write(1, pa.record_batch({"x": range(9)})))["x"].to_numpy()
    reader.read(2, memory.write(2, rows()))
    gc.collect()
    assert reader.released() == (2,)
    del numbers
    assert reader.released() == (1,)
    assert kept.to_pylist() == [10, 11, 12, 13, None]
    del kept
    assert reader.released() == (0,)
    assert reader.released() == ()


def test_beyond_its_share_a_reader_gets_copies() -> None:
    memory = ring()
    reader = RingReader(memory, share=1)
    first = reader.read(0, memory.write(0, rows()))
    second = reader.read(1, memory.write(1, rows(first=100)))
    assert reader.released() == (1,)
    memory.write(1, rows(first=900))
    assert second["value"].to_pylist() == rows(first=100)["value"].to_pylist()
    del first
    assert reader.released() == (0,)
    third = reader.read(2, memory.write(2, rows()))
    assert reader.released() == ()
    del third


def test_blocks_are_cut_to_the_size_of_a_slot() -> None:
    memory = ring(slot_bytes=1 << 15)
    table = pa.table({"x": range(10_000)})
    count = largest_block(memory, table)
    assert 0 < count < 10_000
    assert memory.fits(table.slice(0, count))
    assert not memory.fits(table)
    assert largest_block(memory, table.slice(0, 10)) == 10


def test_an_event_that_fits_into_no_slot_is_refused() -> None:
    table = pa.table({"x": ["long " * 10_000, "short"]})
    with pytest.raises(DataError, match="too large for the shared memory"):
        largest_block(ring(), table)


@given(st.data())
def test_a_slot_is_free_when_all_its_readers_are_done(data: st.DataObject) -> None:
    slots = RingSlots(3)
    taken: dict[int, int] = {}
    for _ in range(data.draw(st.integers(0, 20))):
        if slots.free and data.draw(st.booleans()):
            readers = data.draw(st.integers(1, 3))
            slot = slots.lease(readers)
            assert slot not in taken
            taken[slot] = readers
        elif taken:
            slot = data.draw(st.sampled_from(sorted(taken)))
            slots.release(slot)
            taken[slot] -= 1
            if not taken[slot]:
                del taken[slot]
        assert slots.free == 3 - len(taken)
