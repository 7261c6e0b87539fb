"""Saved state is checked before it is believed."""

import zlib

import numpy as np
import pyarrow as pa
import pytest

from outpace.engine.state import State, integers
from outpace.errors import StateError

TABLES = [pa.table({"x": [1, 2]}), pa.table({"y": ["a"]})]
SAVED = State({"query": "abc", "rows": 3}, TABLES).encode()


def test_tables_and_header_come_back() -> None:
    header, tables = State.decode(SAVED).content()
    assert header == {"query": "abc", "rows": 3}
    assert [table.to_pydict() for table in tables] == [{"x": [1, 2]}, {"y": ["a"]}]


@pytest.mark.parametrize("place", range(16, len(SAVED), 37))
def test_a_flipped_bit_is_noticed(place: int) -> None:
    damaged = bytearray(SAVED)
    damaged[place] ^= 1
    with pytest.raises(StateError, match="the saved state is damaged"):
        State.decode(bytes(damaged))


@pytest.mark.parametrize("size", [0, 5, 15])
def test_a_short_run_of_bytes_is_refused(size: int) -> None:
    with pytest.raises(StateError, match="cut short"):
        State.decode(SAVED[:size])


def test_a_cut_tail_is_refused() -> None:
    with pytest.raises(StateError, match="damaged"):
        State.decode(SAVED[:-1])


def test_another_version_is_named() -> None:
    newer = bytearray(SAVED)
    newer[7] = 9
    with pytest.raises(StateError, match="has version 9, this release reads version 4"):
        State.decode(bytes(newer))


def test_other_bytes_are_refused() -> None:
    with pytest.raises(StateError, match="not saved state"):
        State.decode(b"\x80\x04" + bytes(40))


def _with(header: bytes, *tables: bytes, header_size: int | None = None) -> bytes:
    """State with any content, whose checksum fits."""
    body = header + b"".join(len(table).to_bytes(8, "little") + table for table in tables)
    size = (len(header) if header_size is None else header_size).to_bytes(4, "little")
    return b"OUTPACE\x02" + zlib.crc32(size + body).to_bytes(4, "little") + size + body


@pytest.mark.parametrize("place", range(8, 16))
def test_the_length_of_the_header_is_under_the_checksum(place: int) -> None:
    damaged = bytearray(SAVED)
    damaged[place] ^= 1
    with pytest.raises(StateError, match="the saved state is damaged"):
        State.decode(bytes(damaged))


@pytest.mark.parametrize(
    "state",
    [
        _with(b"{"),
        _with(b"[]"),
        _with(b"\xff"),
        _with(b"[" * 100_000),
        _with(b"{}", header_size=1),
        _with(b"{}", header_size=2**32 - 1),
        _with(b"{}", b"no Arrow"),
    ],
)
def test_content_that_cannot_be_read_is_refused(state: bytes) -> None:
    with pytest.raises(StateError):
        State.decode(state)


def test_a_table_is_looked_at_as_a_whole() -> None:
    content = pa.py_buffer(b"abc"), pa.py_buffer(np.array([0, 3, 1], np.int32))
    broken = pa.Array.from_buffers(pa.string(), 2, [None, content[1], content[0]])
    with pytest.raises(StateError, match="cannot be read"):
        State.decode(State({}, [pa.table({"x": broken})]).encode())


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (pa.table({"y": [1]}), "there is no x"),
        (pa.table({"x": [1.0]}), "x has no integers"),
        (pa.table({"x": pa.array([1, None])}), "x has no integers"),
        (pa.table({"x": pa.array([1], pa.int32())}), "x has no integers"),
        (pa.table({"x": [0, 3]}), "x is between 0 and 3"),
        (pa.table({"x": [-1, 2]}), "x is between -1 and 2"),
    ],
)
def test_numbers_have_a_type_and_bounds(table: pa.Table, why: str) -> None:
    with pytest.raises(StateError, match=why):
        integers(table, x=range(3))
