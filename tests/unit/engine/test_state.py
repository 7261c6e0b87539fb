"""Saved state is checked before it is believed."""

import json
import zlib
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from outpace.engine.codec.table import read_table
from outpace.engine.state import VERSION, SavedPart, State, integers
from outpace.errors import DataError, StateError
from outpace.hosts.local import recording

TABLES = [pa.table({"x": [1, 2]}), pa.table({"y": ["a"]})]
SAVED = State({"query": "abc", "rows": 3}, TABLES).encode()


def test_tables_and_header_come_back() -> None:
    header, tables = State.decode(SAVED).content()
    assert header == {"query": "abc", "rows": 3}
    assert [table.to_pydict() for table in tables] == [{"x": [1, 2]}, {"y": ["a"]}]


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ([1 << 40, (1 << 40) + 1, (1 << 40) - 5, 1 << 40, 1 << 40], 5),
        ([70_000] * 5, 5),
        ([300, -300] * 3, 12),
        ([-(1 << 63), (1 << 63) - 1, 0, 0, 0], 40),
        ([-(1 << 63), (1 << 63) - 1], 0),  # So few are in the header.
        ([], 0),
    ],
)
def test_integers_are_written_as_narrow_as_they_or_their_differences_are(values, size) -> None:
    saved = State({}, [pa.table({"x": pa.array(values, pa.int64())})]).encode()
    assert State.decode(saved).tables[0]["x"].to_pylist() == values
    header_size = int.from_bytes(saved[12:16], "little")
    assert len(saved) - 16 - header_size == size


@pytest.mark.parametrize("first", ["7", None, 1.5, 1 << 63])
def test_differences_begin_with_an_integer(first: object) -> None:
    header = {"tables": [{"rows": 2, "columns": {"x": ["|i1", first]}}]}
    with pytest.raises(StateError, match="x begins with no integer"):
        State.decode(_with(json.dumps(header).encode(), b"ab"))


@pytest.mark.parametrize("values", [["7"], [None], [1.5], [True], [1 << 63], 7, [0] * 99])
def test_integers_in_the_header_are_some(values: object) -> None:
    header = {"tables": [{"values": {"x": values}}]}
    with pytest.raises(StateError, match=r"x has no integers|cannot be read"):
        State.decode(_with(json.dumps(header).encode(), b""))


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


def test_the_reference_describes_this_version() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "state-format.md"
    text = page.read_text(encoding="utf-8")
    assert f"describes version {VERSION} of" in text
    assert f"| the version, {VERSION} |" in text
    assert f"with two files. This is version {recording.VERSION}." in text


def test_another_version_is_named() -> None:
    newer = bytearray(SAVED)
    newer[7] = VERSION + 1
    message = f"has version {VERSION + 1}, this release reads version {VERSION}"
    with pytest.raises(StateError, match=message):
        State.decode(bytes(newer))


def test_other_bytes_are_refused() -> None:
    with pytest.raises(StateError, match="not saved state"):
        State.decode(b"\x80\x04" + bytes(40))


def _with(header: bytes, *tables: bytes, header_size: int | None = None) -> bytes:
    """State with any content, whose checksum fits."""
    body = b"".join([header, *tables])
    size = (len(header) if header_size is None else header_size).to_bytes(4, "little")
    return (
        b"OUTPACE" + bytes([VERSION]) + zlib.crc32(size + body).to_bytes(4, "little") + size + body
    )


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
    ("column", "version"),
    [
        (pa.array([0.0] * 1000), "V5"),
        (pa.array([0.0] * 1000), "V4"),
        (pa.array(["a" * 1000]).dictionary_encode(), "V5"),
    ],
)
def test_compressed_tables_are_not_decoded(column: pa.Array, version: str) -> None:
    sink, table = pa.BufferOutputStream(), pa.table({"x": column})
    options = pa.ipc.IpcWriteOptions(
        metadata_version=pa.ipc.MetadataVersion[version], compression="zstd"
    )
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    bomb = sink.getvalue().to_pybytes()
    header = json.dumps({"numbers": {}, "tables": [{"bytes": len(bomb)}], "parts": {}})
    with pytest.raises(StateError, match="a message is compressed"):
        State.decode(_with(header.encode(), bomb))
    with pytest.raises(DataError, match="a message is compressed"):
        read_table(bomb)


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


def test_a_column_that_ends_within_a_value_is_refused() -> None:
    longer = pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(bytes(13))])
    with pytest.raises(StateError, match="ends within a value"):
        State.decode(State({}, [pa.table({"x": longer})]).encode())


class Leaf(SavedPart):
    NUMBERS: ClassVar = {"count": ("_count", range(10)), "share": ("share", float)}

    def __init__(self, count: int, share: float = 0.0) -> None:
        self._count, self.share = count, share


class Branch(SavedPart):
    SAME: ClassVar = {"names": ("_names", "other leaves")}
    PARTS: ClassVar = {"": "_few", "leaf ": "_named", "alone": "_alone"}

    def __init__(self, first: int, names: tuple[str, ...] = ("a", "b")) -> None:
        self._names = names
        self._few = [Leaf(first), Leaf(first + 1)]
        self._named = {name: Leaf(first) for name in names}
        self._alone = Leaf(first, 0.5)


def test_what_is_declared_is_saved_and_copied() -> None:
    branch, other = Branch(3), Branch(0)
    state = branch.state()
    assert list(state.parts) == ["0", "1", "leaf a", "leaf b", "alone"]
    taken = branch.snapshot()
    other.restore(State.decode(state.encode()))
    for one in (*branch._few, *branch._named.values(), branch._alone):
        one._count = 9
    for part in (other, taken):
        assert part.state().encode() == state.encode()


@pytest.mark.parametrize(
    ("part", "changed", "said"),
    [
        (Branch(1, ("a",)), Branch(1).state(), r"other leaves\n  saved \['a', 'b'\], now \['a'\]"),
        (Branch(1), State({"names": ["a", "b"]}), "there is no 0"),
        (Leaf(1), State({"count": 10, "share": 0.0}), "count is 10"),
        (Leaf(1), State({"count": 1, "share": 1}), "share is 1"),
        (Leaf(1), State({"count": 1, "share": -0.5}), "share is -0.5"),
    ],
)
def test_what_cannot_be_is_refused_by_the_declaration(
    part: SavedPart, changed: State, said: str
) -> None:
    with pytest.raises(StateError, match=said):
        part.restore(changed)
