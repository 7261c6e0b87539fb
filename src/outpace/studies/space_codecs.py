"""Serialisations that go event by event, to be compared with blocks: JSON text, Protocol Buffers.

The messages are those of the paper's listings 4.1 and 4.2. Protocol Buffers are an optional package
of others; without it there is no such codec.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

#: An event as a dictionary, with the columns of a source.
Event = Mapping[str, Any]

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
    write: Callable[[Event], bytes]
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

    def write(event: Event) -> bytes:
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
