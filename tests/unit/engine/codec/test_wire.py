"""Blocks on the wire: what is read is what was written, in few bytes, and damage is refused."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.codec.block import block_cells
from outpace.engine.codec.wire import (
    FIXED_BYTES,
    Header,
    MessageKind,
    _joined,
    block_bytes,
    read_events,
    read_header,
    write_events,
    write_mark,
)
from outpace.errors import DataError
from outpace.ingest.generators import simple_events, stock_events

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("seq", pa.int64()),
        ("type", pa.string()),
        ("value", pa.float64()),
        ("count", pa.int16()),
    ]
)

events = st.lists(
    st.tuples(
        st.integers(0, 2**40),
        st.integers(1, 3),
        st.none() | st.text(max_size=3),
        st.none() | st.floats(allow_nan=False),
        st.none() | st.integers(-(2**15), 2**15 - 1),
    ),
    min_size=1,
    max_size=30,
)


def table_of(rows: list[tuple[object, ...]]) -> pa.Table:
    times, steps, types, values, counts = zip(*rows, strict=True)
    columns = [sorted(times), np.cumsum(steps), types, values, counts]
    arrays = [
        pa.array(column, pa.int64()).cast(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array(column, field.type)
        for column, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.table(arrays, schema=SCHEMA)


@given(events, st.text(max_size=9), st.text(max_size=9), st.integers(-(2**63), 2**63 - 1))
def test_events_come_back_with_their_header(rows, stream, source, watermark):
    table = table_of(rows)
    block = write_events(stream, source, table, watermark=watermark)
    assert block_bytes(block[:FIXED_BYTES]) == len(block)
    header = read_header(block)
    times = table["ts"].cast(pa.int64()).to_pylist()
    numbers = table["seq"].to_pylist()
    assert (header.kind, header.stream, header.source) == (MessageKind.EVENTS, stream, source)
    assert header.rows == table.num_rows
    assert (header.first, header.last) == ((times[0], numbers[0]), (times[-1], numbers[-1]))
    assert header.watermark == max(watermark, times[-1])
    assert read_events(block, SCHEMA).equals(table)
    assert read_events(pa.py_buffer(block), SCHEMA).equals(table)


@pytest.mark.parametrize("rows", [1000, 5000, 100_000])
def test_events_take_few_bytes(rows):
    simple = simple_events(rows).table()
    assert len(write_events("stream", "source", simple)) <= 6 * rows
    stock = stock_events(rows).table()
    assert len(write_events("stream", "source", stock)) <= 20 * rows


def test_numbers_with_gaps_cost_bytes_and_come_back():
    table = pa.table({"ts": np.arange(1000), "seq": 2 * np.arange(1000)})
    whole = pa.table({"ts": np.arange(1000), "seq": np.arange(1000)})
    block = write_events("", "", table)
    assert read_events(block, table.schema).equals(table)
    assert len(block) >= len(write_events("", "", whole)) + 1000


@pytest.mark.parametrize("kind", [MessageKind.HEARTBEAT, MessageKind.END])
def test_marks_have_no_events(kind):
    header = read_header(write_mark(kind, "doors", "west", -5))
    assert (header.kind, header.stream, header.source) == (kind, "doors", "west")
    assert (header.rows, header.watermark) == (0, -5)


def test_any_changed_byte_is_refused():
    table = simple_events(20).table()
    block = write_events("doors", "west", table)
    for place in range(len(block)):
        damaged = bytearray(block)
        damaged[place] ^= 0x41
        with pytest.raises(DataError):
            read_events(bytes(damaged), table.schema)


@pytest.mark.parametrize("size", [0, 3, FIXED_BYTES - 1, FIXED_BYTES, 200])
def test_a_block_that_is_cut_short_is_refused(size):
    block = write_events("doors", "west", simple_events(20).table())
    with pytest.raises(DataError, match="cut short"):
        read_header(block[:size])


def test_other_bytes_and_other_versions_are_told_apart():
    block = bytearray(write_mark(MessageKind.END, "doors", "west"))
    with pytest.raises(DataError, match="not a block"):
        read_header(b"x" * 100)
    block[4] += 1
    with pytest.raises(DataError, match="version 2"):
        read_header(bytes(block))


def test_a_name_that_is_too_long_is_refused():
    with pytest.raises(DataError, match="too long"):
        write_mark(MessageKind.END, "x" * 70_000, "west")


@pytest.mark.parametrize("numbers", [[0, 2, 1, 3], [5, 5, 7, 8], [3, 2, 1, 6]])
def test_numbers_in_any_order_come_back(numbers):
    table = pa.table({"ts": [1, 1, 2, 2], "seq": numbers})
    assert read_events(write_events("", "", table), table.schema).equals(table)


@pytest.mark.parametrize("rows", [{"ts": [], "seq": []}, {"ts": [1, None], "seq": [0, 1]}])
def test_what_has_no_order_is_no_block(rows):
    table = pa.table(rows, schema=pa.schema([("ts", pa.int64()), ("seq", pa.int64())]))
    with pytest.raises(DataError, match="a block needs events"):
        write_events("", "", table)


def test_columns_that_are_not_asked_for_stay_and_missing_ones_are_named():
    block = write_events("", "", pa.table({"ts": [1], "seq": [0], "x": [1]}))
    key = [("ts", pa.int64()), ("seq", pa.int64())]
    assert read_events(block, pa.schema(key)).to_pylist() == [{"ts": 1, "seq": 0}]
    with pytest.raises(DataError, match="no column 'y'"):
        read_events(block, pa.schema([*key, ("x", pa.int64()), ("y", pa.int64())]))


def test_a_block_that_others_wrote_is_read_or_refused():
    rows = pa.table({"ts": [5, 6, 6], "seq": [0, 1, 2], "type": ["a", "b", "a"]})
    block = write_events("doors", "west", rows)
    # The checksum stands behind the magic, the version and the kind, in front of all it covers.
    kind, checksum, covered = 5, slice(6, 10), 10
    refused = 0
    for place in (kind, *range(covered, len(block))):
        changed = bytearray(block)
        changed[place] ^= 0x81
        changed[checksum] = zlib.crc32(changed[covered:], changed[kind]).to_bytes(4, "little")
        try:
            read_events(bytes(changed), rows.schema)
        except DataError:
            refused += 1
    assert refused


def test_texts_that_lead_elsewhere_are_refused():
    offsets, data = pa.py_buffer(np.array([0, 1000, 1], np.int32)), pa.py_buffer(b"abc")
    texts = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
    rows = pa.RecordBatch.from_pydict({"ts": pa.array([1, 2]), "name": texts})
    (cell,) = block_cells([rows])
    header = Header(MessageKind.EVENTS, "s", "a", 2, (1, 0), (2, 1), 2, len(cell.as_buffer()))
    schema = pa.schema({"ts": pa.int64(), "name": pa.string(), "seq": pa.int64()})
    with pytest.raises(DataError, match="the body of the block cannot be read"):
        read_events(_joined(header, cell.as_buffer()), schema)


def test_numbers_beyond_the_last_one_are_refused():
    (cell,) = block_cells([pa.RecordBatch.from_pydict({"ts": pa.array([1, 2])})])
    last = int(np.iinfo(np.int64).max)
    header = Header(MessageKind.EVENTS, "s", "a", 2, (1, last), (2, last), 2, len(cell.as_buffer()))
    with pytest.raises(DataError, match="the body of the block cannot be read"):
        read_events(
            _joined(header, cell.as_buffer()), pa.schema({"ts": pa.int64(), "seq": pa.int64()})
        )
