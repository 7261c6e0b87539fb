"""Saved state is checked before it is believed."""

import pyarrow as pa
import pytest

from outpace.engine.state import pack, unpack
from outpace.errors import StateError

SAVED = pack({"query": "abc", "rows": 3}, [pa.table({"x": [1, 2]}), pa.table({"y": ["a"]})])


def test_tables_and_header_come_back() -> None:
    header, tables = unpack(SAVED)
    assert header == {"query": "abc", "rows": 3}
    assert [table.to_pydict() for table in tables] == [{"x": [1, 2]}, {"y": ["a"]}]


@pytest.mark.parametrize("place", range(16, len(SAVED), 37))
def test_a_flipped_bit_is_noticed(place: int) -> None:
    damaged = bytearray(SAVED)
    damaged[place] ^= 1
    with pytest.raises(StateError, match="the saved state is damaged"):
        unpack(bytes(damaged))


@pytest.mark.parametrize("size", [0, 5, 15])
def test_a_short_run_of_bytes_is_refused(size: int) -> None:
    with pytest.raises(StateError, match="cut short"):
        unpack(SAVED[:size])


def test_a_cut_tail_is_refused() -> None:
    with pytest.raises(StateError, match="damaged"):
        unpack(SAVED[:-1])


def test_another_version_is_named() -> None:
    newer = bytearray(SAVED)
    newer[7] = 9
    with pytest.raises(StateError, match="has version 9, this release reads version 1"):
        unpack(bytes(newer))


def test_other_bytes_are_refused() -> None:
    with pytest.raises(StateError, match="not saved state"):
        unpack(b"\x80\x04" + bytes(40))
