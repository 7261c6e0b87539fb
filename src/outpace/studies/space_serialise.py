"""Section 5.1 of the study `space`: how large serialised events are, and how fast that goes.

Blocks are what travels between processes and on Spark (`outpace.engine.wire`). They are compared
with serialisations that go event by event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from outpace.engine.codec.block import block_cells, read_block
from outpace.engine.split.number import EventNumbers
from outpace.engine.wire import pack_events
from outpace.studies.measure import rate_of
from outpace.studies.report import Row
from outpace.studies.space_codecs import Codec, Event, json_codec, protobuf_codec
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


def _plain(rows: pa.Table) -> list[Event]:
    """Return events as dictionaries of plain values, with the number of their source."""
    times = rows["ts"].cast(pa.int64())
    whole = rows.set_column(rows.column_names.index("ts"), "ts", times)
    return [{"source": 1, **event} for event in whole.to_pylist()]


def _size_row(kind: str, curve: str, value: float, paper: float) -> Row:
    return Row(SIZES.name, f"{kind}, {curve}", value, SIZES.unit, paper, curve, kind)


def _rate_row(kind: str, curve: str, action: str, value: float) -> Row:
    place = f"{kind}, {action}"
    return Row(CODING.name, f"{place}, {curve}", value, CODING.unit, None, curve, place)
