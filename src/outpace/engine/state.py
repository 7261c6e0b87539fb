"""Saved state: a small header and Arrow tables in one checked, versioned run of bytes.

Parts have parts, each with numbers and tables; all of them are written into one run of bytes.
Layout: the magic `OUTPACE`, a version byte, the CRC-32 of all that follows, the length of a JSON
header, the header (numbers, and what tables each part has), then the tables, those of a part before
those of its parts: arrays that are as narrow as their integers are small, or the differences
between these, or an Arrow IPC stream.
Nothing is ever unpickled; damage, another version and another query are told apart and refused with
a clear error.

A checksum does not tell which program wrote the bytes, so nothing is believed: each part says which
tables it wrote, and reads numbers with the bounds that they must lie in (`integers`, `integer`),
because kernels use them as places without looking. Each part checks how its numbers relate to each
other.

A part declares what it keeps (`SavedPart`): what has to be the same for who goes on, numbers with
their bounds, and parts. What it writes itself is what has a form of its own: rows and arrays, whose
tables are made from several attributes and are checked against each other (keys, windows, runs,
matches that wait); the parts of the operator, whose content depends on where they stand (a mark
that it may go back to, instances, the end); and what is kept in another way than it is saved.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import Integers
from outpace.engine.ipc_check import check_uncompressed
from outpace.engine.snapshot import Stateful
from outpace.errors import StateError
from outpace.pattern.argument import an_instance

#: Bounds of integers: all that there are, and those that count events, which may still be added to.
ANY: Final = range(-(1 << 63), 1 << 63)
NATURAL: Final = range(1 << 62)

VERSION: Final = 12
_MAGIC: Final = b"OUTPACE"
_FRAME: Final = struct.Struct("<7sBII")
#: How wide integers may be, and which they can be then.
_WIDTHS: Final = ("|i1", "<i2", "<i4", "<i8")
_BOUNDS: Final = tuple((one, int(np.iinfo(one).min), int(np.iinfo(one).max)) for one in _WIDTHS)
#: Tables of so many rows are in the header.
_FEW: Final = 4
_INTEGER: Final = pa.int64()
_JSON: Final = json.JSONEncoder(separators=(",", ":"))
#: The length of the header is the last part of the frame, and under the checksum.
_SIZE_BYTES: Final = 4


@dataclass(frozen=True)
class State:
    """The state of a part, for a part that goes on from it: read before the next step.

    Parameters
    ----------
    numbers
        Plain JSON values.
    tables
        Tables in the order that the part knows.
    parts
        The states of its parts.

    Examples
    --------
    >>> inner = State({"rows": 2}, [pa.table({"x": [1, 2]})])
    >>> read = State.decode(State({}, parts={"inner": inner}).encode()).part("inner")
    >>> read.numbers["rows"], read.tables[0]["x"].to_pylist()
    (2, [1, 2])
    """

    numbers: Mapping[str, Any]
    tables: Sequence[pa.Table] = ()
    parts: Mapping[str, State] = field(default_factory=dict)

    def part(self, name: str) -> State:
        """Return what a part keeps."""
        require(name in self.parts, f"there is no {name}")
        return self.parts[name]

    def plus(self, more: State) -> State:
        """Return the state of a part that keeps more."""
        numbers, tables = {**self.numbers, **more.numbers}, [*self.tables, *more.tables]
        return State(numbers, tables, {**self.parts, **more.parts})

    def content(self, tables: int | None = None) -> tuple[Mapping[str, Any], list[pa.Table]]:
        """Return numbers and tables, so many of them."""
        require(tables in (None, len(self.tables)), f"it has {len(self.tables)} tables")
        return self.numbers, list(self.tables)

    def encode(self) -> bytes:
        """Return all of it as bytes."""
        written: list[bytes] = []
        text = _JSON.encode(self._write(written)).encode()
        body = b"".join([text, *written])
        checksum = zlib.crc32(body, zlib.crc32(len(text).to_bytes(_SIZE_BYTES, "little")))
        return _FRAME.pack(_MAGIC, VERSION, checksum, len(text)) + body

    @staticmethod
    def decode(data: bytes) -> State:
        """Read what `encode` wrote; raise `StateError` for anything else."""
        shape, body = _parted(data)
        place = 0
        with reading():
            state, place = _read(shape, body, 0)
        require(place == len(body), "there are tables that nobody wrote")
        return state

    def _write(self, written: list[bytes]) -> dict[str, object]:
        """Add the tables to what is written, and return the header of all of it."""
        tables = [_write_table(table, written) for table in self.tables]
        parts = {name: part._write(written) for name, part in self.parts.items()}
        whole = {"numbers": dict(self.numbers), "tables": tables, "parts": parts}
        return {name: content for name, content in whole.items() if content}


class SavedPart(Stateful):
    """A part whose saved state follows from what its class declares, by the names that are saved.

    Examples
    --------
    >>> class Count(SavedPart):
    ...     NUMBERS = {"count": ("_count", NATURAL)}
    ...     def __init__(self, count: int) -> None:
    ...         self._count = count
    >>> other = Count(0)
    >>> other.restore(Count(7).state())
    >>> other.state().numbers
    {'count': 7}
    """

    #: What is the same for who goes on: the attribute, and what else the state belongs to.
    SAME: ClassVar[Mapping[str, tuple[str, str]]] = {}
    #: Integers: the attribute, and its bounds; or `float`, for a number that is not negative.
    NUMBERS: ClassVar[Mapping[str, tuple[str, range | type[float]]]] = {}

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        numbers = {name: self._same(name) for name in self.SAME}
        numbers |= {name: getattr(self, own) for name, (own, _) in self.NUMBERS.items()}
        return State(numbers, parts={name: part.state() for name, part in self._parts()})

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process."""
        for name, (_, other) in self.SAME.items():
            saved, now = state.numbers.get(name), self._same(name)
            if saved != now:
                raise StateError(
                    f"the saved state belongs to {other}",
                    detail=f"saved {saved}, now {now}",
                    hint="go on with what it was saved from, or start from the input",
                )
        for name, (own, bounds) in self.NUMBERS.items():
            read = real if isinstance(bounds, type) else partial(integer, bounds=bounds)
            setattr(self, own, read(state.numbers, name))
        for name, part in self._parts():
            part.restore(state.part(name))

    def _same(self, name: str) -> object:
        value = attrgetter(self.SAME[name][0])(self)
        return list(value) if isinstance(value, tuple) else value

    def _parts(self) -> Iterator[tuple[str, SavedPart]]:
        for name, own in self.PARTS.items():
            part = getattr(self, own)
            several = dict(enumerate(part)) if isinstance(part, list) else part
            if isinstance(several, dict):
                yield from ((f"{name}{key}", one) for key, one in several.items())
            else:
                yield name, part


def _write_table(table: pa.Table, written: list[bytes]) -> dict[str, object]:
    """Write a table: one of integers as arrays that are as narrow as can be, else by Arrow.

    Integers of few rows are in the header.
    """
    columns, rows = table.columns, table.num_rows
    if all(column.type == _INTEGER and not column.null_count for column in columns) and (
        columns or not rows
    ):
        if rows <= _FEW:
            values = {
                name: column.to_numpy().tolist()
                for name, column in zip(table.column_names, columns, strict=True)
            }
            return {"values": values}
        widths = {}
        for name, column in zip(table.column_names, columns, strict=True):
            narrow, widths[name] = _narrowest(column.to_numpy())
            written.append(narrow.tobytes())
        return {"rows": rows, "columns": widths}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written.append(sink.getvalue().to_pybytes())
    return {"bytes": len(written[-1])}


def _narrowest(
    values: Integers,
) -> tuple[npt.NDArray[np.signedinteger[Any]], str | tuple[str, int]]:
    """Return integers as narrow as can be, and how they are written.

    That is their type; or where the differences are narrower, these, their type and the first one.
    """
    narrow = narrowed(values)
    if narrow.itemsize > 1 and len(values) > 1:
        # Where two are too far apart, both the difference and the sum of it wrap.
        apart = np.zeros_like(values)
        np.subtract(values[1:], values[:-1], out=apart[1:])
        apart = narrowed(apart)
        if apart.itemsize < narrow.itemsize:
            return apart, (apart.dtype.str, int(values[0]))
    return narrow, narrow.dtype.str


def narrowed(values: Integers) -> npt.NDArray[np.signedinteger[Any]]:
    """Return integers in as few bytes as the greatest of them needs.

    Examples
    --------
    >>> narrowed(np.array([7, -300])).dtype.str
    '<i2'
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    kind = next(one for one, least, most in _BOUNDS if least <= low and high <= most)
    narrow: npt.NDArray[np.signedinteger[Any]] = values.astype(kind)
    return narrow


def narrow_kind(name: str) -> np.dtype[Any]:
    """Return the type of integers that `narrowed` returned, by its name."""
    require(name in _WIDTHS, "there are no integers")
    return np.dtype(name)


def _read(shape: dict[str, Any], body: memoryview, place: int) -> tuple[State, int]:
    """Return a state of this shape, whose tables begin at a place, and the place behind them."""
    numbers = shape.get("numbers", {})
    require(isinstance(numbers, dict), "numbers have no names")
    tables, parts = [], {}
    for written in shape.get("tables", ()):
        table, place = _read_table(written, body, place)
        tables.append(table)
    for name, part in shape.get("parts", {}).items():
        parts[name], place = _read(part, body, place)
    return State(numbers, tables, parts), place


def _read_table(written: dict[str, Any], body: memoryview, place: int) -> tuple[pa.Table, int]:
    if "values" in written:
        for name, values in written["values"].items():
            whole = all(type(one) is int and one in ANY for one in values)
            require(len(values) <= _FEW and whole, f"{name} has no integers")
        given = written["values"].items()
        return pa.table({name: np.array(values, np.int64) for name, values in given}), place
    if "columns" in written:
        columns, rows = {}, integer(written, "rows", range(len(body) + 1))
        for name, kind in written["columns"].items():
            apart = isinstance(kind, list)
            width, first = kind if apart else (kind, 0)
            require(width in _WIDTHS, f"{name} has no integers")
            values = np.frombuffer(body, width, rows, place).astype(np.int64)
            if apart:
                require(isinstance(first, int) and first in ANY, f"{name} begins with no integer")
                values = np.cumsum(values) + first
            columns[name] = values
            place += values.size * np.dtype(width).itemsize
        return pa.table(columns), place
    end = place + integer(written, "bytes", range(len(body) - place + 1))
    stream = pa.py_buffer(bytes(body[place:end]))
    check_uncompressed(stream)
    with pa.ipc.open_stream(stream) as reader:
        table = reader.read_all()
    table.validate(full=True)
    for column in table.columns:
        require(all(map(_is_whole, column.chunks)), "a column ends within a value")
    return table, end


def _is_whole(array: pa.Array) -> bool:
    """Say whether the values of an array fill the memory that it has: Arrow would not mind."""
    kind, values = array.type, array.buffers()[1:2]
    if pa.types.is_dictionary(kind):
        return _is_whole(array.indices) and _is_whole(array.dictionary)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        width = 4
    elif pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind):
        width = max(1, kind.bit_width // 8)
    else:
        return True
    return all(buffer is None or buffer.size % width == 0 for buffer in values)


def _parted(data: bytes) -> tuple[dict[str, Any], memoryview]:
    """Return the header, and the bytes of the tables."""
    hint = "pass the bytes that state() returned"
    an_instance(data, bytes | bytearray | memoryview, "saved state", hint=hint, error=StateError)
    if len(data) < _FRAME.size:
        raise StateError("the saved state is cut short", detail=f"{len(data)} bytes")
    magic, version, checksum, header_size = _FRAME.unpack_from(data)
    if magic != _MAGIC:
        raise StateError("these bytes are not saved state of Outpace")
    if version != VERSION:
        raise StateError(
            f"the saved state has version {version}, this release reads version {VERSION}",
            hint="go on with the release that wrote it, or start again from the input",
        )
    view = memoryview(data)
    if zlib.crc32(view[_FRAME.size - _SIZE_BYTES :]) != checksum:
        raise StateError(
            "the saved state is damaged", detail="its checksum does not fit its content"
        )
    body = view[_FRAME.size :]
    require(header_size <= len(body), "the header is cut short")
    with reading():
        header = json.loads(bytes(body[:header_size]))
    require(isinstance(header, dict), "the header is no object")
    return header, body[header_size:]


@contextmanager
def reading() -> Iterator[None]:
    """Turn whatever goes wrong while state is read into a `StateError`."""
    try:
        yield
    except StateError:
        raise
    except Exception as error:
        # Content that nobody wrote here may be wrong in any way, and so may users' `restore` be.
        raise StateError(
            "the saved state cannot be read", detail=f"{type(error).__name__}: {error}"
        ) from error


def require(holds: object, what: str) -> None:
    """Refuse state of which something does not hold."""
    if not holds:
        raise StateError("the saved state contradicts itself", detail=what)


def integers(table: pa.Table, **bounds: range) -> list[Integers]:
    """Return columns of integers, each with the bounds of its values, as arrays to write to.

    Examples
    --------
    >>> integers(pa.table({"place": [0, 2], "count": [7, 8]}), place=range(3), count=NATURAL)
    [array([0, 2]), array([7, 8])]
    >>> integers(pa.table({"place": [0, 3]}), place=range(3))
    Traceback (most recent call last):
    ...
    outpace.errors.StateError: [state] the saved state contradicts itself
      place is between 0 and 3
    """
    return [_integers(table, name, bound) for name, bound in bounds.items()]


def integer(header: Mapping[str, Any], name: str, bounds: range = ANY) -> int:
    """Return an integer of a header."""
    value = header.get(name)
    require(type(value) is int and value in bounds, f"{name} is {str(value)[:40]}")
    return int(str(value))


def real(header: Mapping[str, Any], name: str) -> float:
    """Return a number of a header that is not negative."""
    value = header.get(name)
    require(isinstance(value, float) and value >= 0, f"{name} is {str(value)[:40]}")
    return float(str(value))


def lists(table: pa.Table, name: str, bounds: range) -> list[Integers]:
    """Return a column with a list of integers in each row."""
    require(table.schema.field(name).type == pa.list_(pa.int64()), f"{name} has no integers")
    column = table.column(name).combine_chunks()
    require(not column.null_count, f"{name} is NULL")
    values = _integers(pa.table({name: column.flatten()}), name, bounds)
    if not len(values):
        return [values] * len(column)
    return np.split(values, np.cumsum(pc.list_value_length(column).to_numpy())[:-1])


def parts(table: pa.Table, count: int, name: str = "part") -> list[bytes]:
    """Return so many states that a table holds, each as bytes of its own."""
    column = table.column(name)
    require(pa.types.is_binary(column.type) and not column.null_count, f"{name} has no bytes")
    require(len(column) == count, f"{name} has {len(column)} values")
    return list(column.to_pylist())


def typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with a schema, or refuse one that has other columns or other types."""
    known = table.schema.names == schema.names and table.schema.types == schema.types
    require(known, f"the columns are {', '.join(table.schema.names)[:200]}")
    return pa.table(table.columns, schema=schema)


def _integers(table: pa.Table, name: str, bounds: range) -> Integers:
    require(name in table.column_names, f"there is no {name}")
    column = table.column(name)
    require(column.type == pa.int64() and not column.null_count, f"{name} has no integers")
    values = np.array(column.to_numpy(), np.int64)
    if len(values):
        low, high = int(values.min()), int(values.max())
        fits = bounds.start <= low and high < bounds.stop
        require(fits, f"{name} is between {low} and {high}")
    return values
