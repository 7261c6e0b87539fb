"""Section 5.1 of the study `space`: how large serialised events are, and how fast that goes.

Blocks are what travels between processes and on Spark (`outpace.engine.wire`). They are compared
with serialisations that go event by event: JSON text, and Protocol Buffers, an optional package of
others, with the messages of the paper's listings 4.1 and 4.2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import pyarrow as pa

from outpace.engine.codec.block import block_cells, read_block
from outpace.engine.split.number import EventNumbers
from outpace.engine.wire import pack_events
from outpace.studies.measure import rate_of
from outpace.studies.report import Row
from outpace.studies.space_figures import CODING, SIZES
from outpace.studies.space_stream import EVENT_KINDS, events_of

#: How many events a block has; the issue of one event is a block of one.
BLOCKS: Final = (1_000, 10_000)

#: Bytes of an event in the paper's table: Protocol Buffers, and the strings of PACE.
PROTOBUF_BYTES: Final = {"SimpleEvent": 16, "StockEvent": 38}
TEXT_BYTES: Final = {"SimpleEvent": 63, "StockEvent": 155}

#: What the innermost message of an event holds, as in the paper's listing 4.2.
_PAYLOADS: Final[Mapping[str, Mapping[str, str]]] = {
    "SimpleEvent": {"type": "string"},
    "StockEvent": {
        "symbol": "string",
        "open": "float",
        "high": "float",
        "low": "float",
        "close": "float",
    },
}

#: Events that the codecs of single events are measured with.
_SINGLE_EVENTS: Final = 2_000


def serialisation(seconds: float) -> Iterator[Row]:
    """Measure bytes per event and rates of writing and reading.

    Parameters
    ----------
    seconds
        How long each rate is measured.
    """
    for kind in EVENT_KINDS:
        for size in BLOCKS:
            yield from _of_blocks(kind, size, seconds)
        for codec, paper in _codecs(kind):
            yield from _of_codec(kind, codec, paper, seconds)


def _of_blocks(kind: str, size: int, seconds: float) -> Iterator[Row]:
    rows = events_of(kind, size)
    events = EventNumbers(rows.schema, (), None).number(rows)

    def write() -> pa.Buffer:
        block = pack_events(events, rows.column_names)
        return block_cells([block])[0].as_buffer()

    block = write()
    curve = f"blocks of {size:,}"
    yield _size_row(kind, curve, len(block) / size, PROTOBUF_BYTES[kind])
    written = rate_of(write, size, seconds)
    read = rate_of(lambda: read_block(block, rows.schema), size, seconds)
    yield _rate_row(kind, curve, "write", written)
    yield _rate_row(kind, curve, "read", read)


def _of_codec(kind: str, codec: Codec, paper: float, seconds: float) -> Iterator[Row]:
    events = _plain(events_of(kind, _SINGLE_EVENTS))
    texts = [codec.write(event) for event in events]
    mean = sum(map(len, texts)) / len(texts)
    yield _size_row(kind, codec.name, mean, paper)
    written = rate_of(lambda: [codec.write(event) for event in events], len(events), seconds)
    read = rate_of(lambda: [codec.read(text) for text in texts], len(texts), seconds)
    yield _rate_row(kind, codec.name, "write", written)
    yield _rate_row(kind, codec.name, "read", read)


def _codecs(kind: str) -> Iterator[tuple[Codec, float]]:
    buffers = protobuf_codec(("seq", "ts", "source"), _PAYLOADS[kind])
    if buffers is not None:
        yield buffers, PROTOBUF_BYTES[kind]
    yield json_codec(), TEXT_BYTES[kind]


def _plain(rows: pa.Table) -> list[EventValues]:
    """Return events as dictionaries of plain values, with the number of their source."""
    times = rows["ts"].cast(pa.int64())
    whole = rows.set_column(rows.column_names.index("ts"), "ts", times)
    return [{"source": 1, **event} for event in whole.to_pylist()]


def _size_row(kind: str, curve: str, value: float, paper: float) -> Row:
    return Row(SIZES.name, f"{kind}, {curve}", value, SIZES.unit, paper, curve, kind)


def _rate_row(kind: str, curve: str, action: str, value: float) -> Row:
    place = f"{kind}, {action}"
    return Row(CODING.name, f"{place}, {curve}", value, CODING.unit, None, curve, place)


#: An event as a dictionary, with the columns of a source.
EventValues = Mapping[str, Any]

#: The numbers of the fields' types in a descriptor.
_TYPES: Final = {"int64": 3, "float": 2, "string": 9, "message": 11}


@dataclass(frozen=True, slots=True)
class Codec:
    """A serialisation of single events.

    Parameters
    ----------
    name
        How rows and plots call it.
    write, read
        From an event to bytes, and back to something that has all its values.
    """

    name: str
    write: Callable[[EventValues], bytes]
    read: Callable[[bytes], object]


def json_codec() -> Codec:
    """Return JSON text with the names of the fields in it, as PACE's strings have them.

    Examples
    --------
    >>> codec = json_codec()
    >>> codec.write({"seq": 1, "value": "a"})
    b'{"seq":1,"value":"a"}'
    >>> codec.read(b'{"seq":1,"value":"a"}')
    {'seq': 1, 'value': 'a'}
    """
    encode = json.JSONEncoder(separators=(",", ":")).encode
    return Codec("JSON text", lambda event: encode(event).encode(), json.loads)


def protobuf_codec(metadata: Iterable[str], payload: Mapping[str, str]) -> Codec | None:
    """Return Protocol Buffers with the paper's nesting, or None where they are not installed.

    Parameters
    ----------
    metadata
        The integer fields of the outer message.
    payload
        The fields of the innermost message and their types: int64, float or string.

    Examples
    --------
    >>> codec = protobuf_codec(["seq"], {"value": "string"})
    >>> codec is None or len(codec.write({"seq": 1, "value": "a"})) == 9
    True
    """
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        return None
    outer = tuple(metadata)
    message = _message_class(outer, payload)
    inner = tuple(payload)

    def write(event: EventValues) -> bytes:
        made = message()
        for name in outer:
            setattr(made, name, event[name])
        content = made.event.payload
        for name in inner:
            setattr(content, name, event[name])
        return bytes(made.SerializeToString())

    return Codec("Protocol Buffers", write, message.FromString)


def _message_class(metadata: Iterable[str], payload: Mapping[str, str]) -> Any:
    """Build the class of a message that holds an event message, which holds the payload."""
    from google.protobuf import (  # type: ignore[import-untyped] # it has no annotations
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="event", syntax="proto3")
    outer_fields = {**dict.fromkeys(metadata, "int64"), "event": "EventMessage"}
    for message, fields in (
        ("Message", outer_fields),
        ("EventMessage", {"payload": "Payload"}),
        ("Payload", payload),
    ):
        described = file.message_type.add(name=message)
        for number, (name, type_name) in enumerate(fields.items(), start=1):
            field = described.field.add(name=name, number=number, label=1)
            field.type = _TYPES.get(type_name, _TYPES["message"])
            if type_name not in _TYPES:
                field.type_name = f".event.{type_name}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("event.Message"))
