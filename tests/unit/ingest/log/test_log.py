"""What is appended comes out: any appends, any ranges, any number of writers one after another."""

from __future__ import annotations

import datetime
import errno
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.engine.codec.block import read_block
from outpace.ingest.log.blocks import block_starts, read_blocks
from outpace.ingest.log.recover import check
from outpace.ingest.log.rows import payloads

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("source", pa.string()),
        ("seq", pa.int64()),
        ("price", pa.float64()),
        ("tags", pa.list_(pa.int32())),
    ]
)


def events(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "ts": [(7 * n) % 11 - 5 for n in numbers],
            "source": ["x" * (n % 4) if n % 5 else None for n in numbers],
            "seq": list(numbers),
            "price": [n / 8 for n in numbers],
            "tags": [[n] * (n % 3) for n in numbers],
        },
        schema=SCHEMA,
    )


appends = st.lists(st.one_of(st.integers(0, 6), st.none()), max_size=12)
"""Numbers of events to append; None is a new writer."""


def write(log: op.log.Log, sizes: list[int | None], first: int = 0) -> int:
    writer = log.writer(sync="never")
    for size in sizes:
        if size is None:
            writer.close()
            writer = log.writer(sync="never")
            assert writer.recovered.clean
            assert writer.stop == first
        else:
            assert writer.append(events(first, size)) == range(first, first + size)
            first += size
    writer.close()
    return first


@examples(60)
@given(appends, st.sampled_from([1, 3000, 2**28]), st.data())
def test_any_range_of_any_appends_is_what_was_appended(
    sizes: list[int | None], segment_bytes: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = op.log.create(folder, SCHEMA, segment_bytes=segment_bytes)
        stop = write(log, sizes)
        assert log.refresh() == stop
        assert op.log.read(folder).equals(events(0, stop))
        low = data.draw(st.integers(0, stop))
        high = data.draw(st.integers(low, stop))
        assert log.read(low, high).equals(events(low, high - low))
        left = log.behind(low)
        assert left.events == stop - low
        assert (left.arrival_us is None) == (low == stop)
        wanted = data.draw(st.integers(1, 8))
        found = list(read_blocks(log, low, high))
        assert sum(block.events for block in found) == high - low
        starts = block_starts(log, low, high, wanted, wanted + 2)
        # A task that begins with a block has the same blocks as one that began before.
        for start in starts:
            assert block_starts(log, start, high, wanted, wanted + 2) == [
                later for later in starts if later >= start
            ]


@examples(60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_blocks_have_the_events_of_the_range(sizes: list[int], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = op.log.create(folder, SCHEMA)
        stop = write(log, list(sizes))
        log.refresh()
        low = data.draw(st.integers(0, stop - 1))
        high = data.draw(st.integers(low + 1, stop))
        (block,) = read_blocks(log, low, high)
        table = pa.table(read_block(block.data, SCHEMA)).cast(SCHEMA)
        assert table.equals(events(low, high - low))
        times = table["ts"].to_pylist()
        assert block.first == low
        # Bounds of whole frames are those of their headers.
        assert (block.least, block.greatest) == (min(times), max(times))


@examples(60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 12), st.integers(1, 900))
def test_limits_hold_and_the_end_is_reached(sizes: list[int], most: int, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = op.log.create(folder, SCHEMA, segment_bytes=4000)
        stop = write(log, list(sizes))
        log.refresh()
        at = 0
        while at < stop:
            end = log.end_of(at, events=most)
            assert at < end <= at + most
            at = end
        assert at == stop
        assert log.end_of(stop, events=most) == stop
        while at > 0:
            begin = max(0, at - 3)
            assert begin < log.end_of(begin, bytes=size) <= stop
            at = begin
        assert log.end_of(0, bytes=2**40) == log.end_of(0) == stop


def test_a_reader_follows_a_writer(tmp_path: Path) -> None:
    log = op.log.create(tmp_path / "log", SCHEMA, segment_bytes=3000)
    reader = op.log.open(tmp_path / "log")
    with log.writer() as writer:
        for first in range(0, 200, 10):
            writer.append(events(first, 10))
            assert reader.stop == first
            assert reader.refresh() == first + 10
            assert reader.read(first).equals(events(first, 10))
    assert len(log.folder.bases()) > 3


def test_arrival_never_goes_back(tmp_path: Path) -> None:
    log = op.log.create(tmp_path / "log", SCHEMA)
    with log.writer() as writer:
        writer.append(events(0, 1), arrival_us=70)
        writer.append(events(1, 1), arrival_us=50)
    with log.writer() as writer:
        writer.append(events(2, 1), arrival_us=60)
        writer.append(events(3, 1), arrival_us=80)
    log.refresh()
    (segment,) = log.segments()
    assert segment.headers["arrival"].tolist() == [70, 70, 70, 80]
    assert (log.arrival_before(0), log.arrival_before(3), log.arrival_before(4)) == (0, 70, 80)
    assert log.behind(3).arrival_us == 80
    assert log.behind(4) == op.log.Behind(0, 0, None)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    log = op.log.create(tmp_path / "log", SCHEMA)
    with (
        log.writer(),
        pytest.raises(op.DataError, match=r"another writer has the log(.|\n)*process"),
    ):
        log.writer()
    log.writer().close()


def test_trimming_deletes_whole_segments(tmp_path: Path) -> None:
    log = op.log.create(tmp_path / "log", SCHEMA, segment_bytes=1)
    write(log, [2, 3, 4])
    assert log.trim(4) == 1
    assert (log.first, log.stop) == (2, 9)
    assert log.read().equals(events(2, 7))
    with pytest.raises(op.DataError, match=r"the events were trimmed(.|\n)*offsets 0 to 1"):
        log.read(0)
    lost: list[op.log.Damage] = []
    assert log.read(0, on_damage="skip", lost=lost).equals(events(2, 7))
    assert [(part.first, part.stop) for part in lost] == [(0, 2)]
    assert log.trim(9) == 1
    assert log.read().equals(events(5, 4))
    assert write(log, [1], 9) == 10


def test_events_are_cut_into_frames() -> None:
    table = events(0, 10)
    parts = list(payloads(table, "ts", most=4))
    assert [part.events for part in parts] == [4, 4, 2]
    assert [part.least for part in parts] == [
        min(table["ts"].to_pylist()[first : first + 4]) for first in (0, 4, 8)
    ]


def test_dictionaries_are_stored_as_values(tmp_path: Path) -> None:
    column = pa.array(["a", "b", "a"]).dictionary_encode()
    table = pa.table({"ts": [1, 2, 3], "kind": column})
    log = op.log.create(tmp_path / "log", table.schema)
    with log.writer() as writer:
        writer.append(table)
    assert op.log.read(tmp_path / "log")["kind"].type == pa.string()


TIMES = [
    pa.timestamp("s"),
    pa.timestamp("ms", "Europe/Berlin"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.date32(),
    pa.date64(),
]


@pytest.mark.parametrize("kind", TIMES, ids=str)
def test_times_of_any_type(tmp_path: Path, kind: pa.DataType) -> None:
    moments = [datetime.datetime(2024, 2, 3), datetime.datetime(1969, 12, 31)]
    times = pa.array(moments, pa.timestamp("us")).cast(kind, safe=False)
    log = op.log.create(tmp_path / "log", pa.schema({"t": kind}), time="t")
    with log.writer() as writer:
        writer.append(pa.table({"t": times}))
    log.refresh()
    (segment,) = log.segments()
    assert segment.headers["least"].tolist() == [-86_400_000_000]
    assert segment.headers["greatest"].tolist() == [1_706_918_400_000_000]
    assert log.read()["t"].to_pylist() == times.to_pylist()


def far(kind: pa.DataType, value: int) -> pa.Array:
    width = {pa.date32(): pa.int32(), pa.uint64(): pa.uint64()}.get(kind, pa.int64())
    return pa.array([1, value], width).cast(kind)


OUT_OF_RANGE = [
    (pa.int64(), 2**62),
    (pa.int64(), -(2**62) - 1),
    (pa.uint64(), 2**62),
    (pa.timestamp("s"), 253_402_300_800),
    (pa.timestamp("s"), -62_135_596_801),
    (pa.timestamp("us", "UTC"), 253_402_300_800_000_000),
    (pa.date32(), 2_932_897),
]


@pytest.mark.parametrize(("kind", "value"), OUT_OF_RANGE, ids=str)
def test_times_out_of_range_are_refused(tmp_path: Path, kind: pa.DataType, value: int) -> None:
    log = op.log.create(tmp_path / "log", pa.schema({"t": kind}), time="t")
    last = far(kind, value - 1 if value > 0 else value + 1)
    with log.writer() as writer:
        with pytest.raises(op.DataError, match=r"the time 't' is out of range: (.|\n)*row 1"):
            writer.append(pa.table({"t": far(kind, value)}))
        assert writer.stop == 0
        assert writer.append(pa.table({"t": last})) == range(2)


def test_a_null_time_is_refused_with_its_row(tmp_path: Path) -> None:
    log = op.log.create(tmp_path / "log", SCHEMA)
    bad = events(0, 5).set_column(0, "ts", pa.array([1, 2, None, 3, None]))
    with log.writer() as writer:
        with pytest.raises(op.DataError, match=r"'ts' is NULL\n  row 2, and 1 more rows"):
            writer.append(bad)
        assert writer.append(events(0, 1)) == range(1)


def test_rejected_events_are_kept_apart(tmp_path: Path) -> None:
    log = op.log.create(tmp_path / "log", SCHEMA)
    bad = events(0, 5).set_column(0, "ts", pa.array([1, 2, None, 3, 2**63 - 1]))
    with log.writer(on_invalid="reject") as writer:
        assert writer.append(bad) == range(3)
        assert writer.append(bad.slice(2, 1)) == range(3, 3)
        assert writer.rejected == 3
    assert op.log.read(tmp_path / "log")["seq"].to_pylist() == [0, 1, 3]
    rejected = op.log.read(tmp_path / "log" / "rejected")
    assert rejected["seq"].to_pylist() == [2, 4, 2]
    assert rejected["reason"].to_pylist() == [
        "the time 'ts' is NULL",
        f"the time 'ts' is out of range: {2**63 - 1}",
        "the time 'ts' is NULL",
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"ts": [1], "prise": [1.0]}), "no column 'price'(.|\n)*did you mean 'prise'"),
        (pa.table({"ts": [1], "price": [1.0], "x": [1]}), "the log has no column 'x'"),
        (pa.table({"ts": [1, 2], "price": ["1", "b"]}), "not of type double\n  row 1: 'b'"),
        (pa.table({"ts": [1.5, 2.0], "price": [1, 2]}), "not of type bigint\n  row 0: 1.5"),
        (pa.table({"ts": [1, 2], "price": [1.0, None]}), "'price' must not be NULL\n  row 1"),
    ],
)
def test_events_that_do_not_fit_are_refused(tmp_path: Path, table: pa.Table, message: str) -> None:
    schema = pa.schema([pa.field("ts", pa.int64()), pa.field("price", pa.float64(), False)])
    log = op.log.create(tmp_path / "log", schema)
    with log.writer() as writer, pytest.raises(op.DataError, match=message):
        writer.append(table)
    assert log.refresh() == 0


def test_folders_that_are_no_logs(tmp_path: Path) -> None:
    with pytest.raises(op.DataError, match="no time column 'when'"):
        op.log.create(tmp_path / "a", SCHEMA, time="when")
    with pytest.raises(op.DataError, match="'price' is of type double"):
        op.log.create(tmp_path / "a", SCHEMA, time="price")
    op.log.create(tmp_path / "a", SCHEMA)
    with pytest.raises(op.DataError, match="is not empty"):
        op.log.create(tmp_path / "a", SCHEMA)
    about = tmp_path / "a" / "log.json"
    text = about.read_text()
    about.write_text(text.replace('"version": 1', '"version": 9'))
    with pytest.raises(op.DataError, match="the log has version 9, this release reads version 1"):
        op.log.open(tmp_path / "a")
    about.write_text(text[:-20])
    with pytest.raises(op.DataError, match="cannot read"):
        op.log.open(tmp_path / "a")
    about.write_text("{}")
    with pytest.raises(op.DataError, match="is not of an event log"):
        op.log.open(tmp_path / "a")


def test_many_small_frames_are_in_several_segments(tmp_path: Path) -> None:
    log = op.log.create(tmp_path / "log", pa.schema({"ts": pa.int64()}))
    with log.writer(sync="never") as writer:
        for number in range(8200):
            writer.append(pa.table({"ts": [number]}), arrival_us=number)
    log.refresh()
    assert log.folder.bases() == [0, 8192]
    assert np.array_equal(log.read()["ts"], np.arange(8200))


class Interrupted(BaseException):
    """What an alarm raises, at any place of the program, as Ctrl-C does."""


def interrupt(number: int, frame: object) -> None:
    raise Interrupted


def test_an_interrupted_append_leaves_nothing_behind(tmp_path: Path) -> None:
    log = op.log.create(tmp_path / "log", pa.schema({"ts": pa.int64()}))
    large = pa.table({"ts": np.arange(1_000_000) % 1000})
    before = signal.signal(signal.SIGALRM, interrupt)
    appended, interrupted = [], 0
    writer = log.writer(sync="never")
    try:
        for attempt in range(8):
            signal.setitimer(signal.ITIMER_REAL, 0.0004 * 2**attempt)
            try:
                appended.append(len(writer.append(large)))
            except Interrupted:
                interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            try:
                appended.append(len(writer.append(large.slice(0, attempt + 1))))
            except op.DataError:
                # It was interrupted in between: the log itself tells how far it came.
                writer.close()
                writer = log.writer(sync="never")
            checked = check(log.folder)
            assert (checked.damage, checked.indexes, checked.tail_bytes) == ((), (), 0)
    finally:
        signal.signal(signal.SIGALRM, before)
        writer.close()
    assert interrupted
    assert checked.events == log.refresh() == log.read().num_rows
    assert checked.events - sum(appended) in range(0, 8_000_001, 1_000_000)


@pytest.mark.parametrize("ends", [op.log.Writer.close, op.log.Writer.sync])
def test_a_disk_that_failed_between_two_appends_is_told_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: Callable[[op.log.Writer], None]
) -> None:
    """The system tells of a failed write once, here to the thread that synchronises."""
    failed = threading.Event()
    synchronise = os.fdatasync

    def fail_once(handle: int) -> None:
        if not failed.is_set() and threading.current_thread() is not threading.main_thread():
            failed.set()
            raise OSError(errno.EIO, "Input/output error")
        synchronise(handle)

    writer = op.log.create(tmp_path / "log", pa.schema({"ts": pa.int64()})).writer(interval_ms=1)
    monkeypatch.setattr(os, "fdatasync", fail_once)
    writer.append(pa.table({"ts": [1]}))
    assert failed.wait(60)
    with pytest.raises(op.DataError, match="may not be on the disk"):
        ends(writer)
    with suppress(op.DataError):
        writer.close()


@pytest.mark.parametrize(("sync", "durable"), [("always", True), ("never", False)])
def test_the_names_of_the_first_files_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str, durable: bool
) -> None:
    log = op.log.create(tmp_path / "log", pa.schema({"ts": pa.int64()}))
    named: list[set[str]] = []
    synchronise = os.fsync

    def note(handle: int) -> None:
        named.append({path.name for path in Path(f"/proc/self/fd/{handle}").resolve().iterdir()})
        synchronise(handle)

    monkeypatch.setattr(os, "fsync", note)
    with log.writer(sync=sync):
        files = {log.folder.events_file(0).name, log.folder.index_file(0).name}
        assert any(files <= names for names in named) is durable
