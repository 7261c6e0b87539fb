"""Whatever a crash leaves, whatever is damaged: whole frames come out, or a clear error does."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import outpace as op
from outpace.ingest.log.blocks import read_blocks
from outpace.ingest.log.folder import _checksum
from outpace.ingest.log.frame import (
    HEADER_BYTES,
    FrameKind,
    LogFrame,
    SyncPoint,
    payload_checksum,
    write_header,
    write_mark,
)
from outpace.ingest.log.recover import check
from outpace.ingest.log.segment import scan

SCHEMA = pa.schema([("ts", pa.int64())])
SIZES = [2, 1, 3]
FIRSTS = [0, 2, 3]
STOP = 6


def events(first: int, count: int) -> pa.Table:
    return pa.table({"ts": list(range(first, first + count))}, schema=SCHEMA)


def make(path: Path, segment_bytes: int = 2**28) -> op.log.Log:
    log = op.log.create(path, SCHEMA, segment_bytes=segment_bytes)
    with log.writer(sync="never") as writer:
        for first, size in zip(FIRSTS, SIZES, strict=True):
            writer.append(events(first, size))
    log.refresh()
    return log


def values(table: pa.Table) -> list[int]:
    return list(table["ts"].to_pylist())


@pytest.fixture
def whole(tmp_path: Path) -> op.log.Log:
    return make(tmp_path / "whole")


def copies(whole: op.log.Log) -> Iterator[Path]:
    """Yield fresh copies of a log, one at a time."""
    while True:
        copy = whole.folder.path.parent / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole.folder.path, copy)
        yield copy


def ends(whole: op.log.Log) -> list[int]:
    (segment,) = whole.segments()
    return [0, *(int(place) for place in segment.headers["position"][1:]), segment.size]


def test_frames_cut_at_every_byte(whole: op.log.Log) -> None:
    """The index is ahead of the frames: a crash of the machine took the last pages."""
    places = ends(whole)
    for size, path in zip(range(places[-1]), copies(whole), strict=False):
        log = op.log.open(path)
        file = log.folder.events_file(0)
        with file.open("r+b") as handle:
            handle.truncate(size)
        kept = max(number for number, place in enumerate(places) if place <= size)
        seen = ([*FIRSTS, STOP])[kept]
        assert op.log.open(path).stop == seen, size
        assert values(op.log.read(path)) == list(range(seen))
        with log.writer(sync="never") as writer:
            assert writer.recovered.cut_bytes == size - places[kept]
            assert writer.recovered.lost == range(seen, STOP)
            # Readers may have seen the lost events: their offsets are not used again.
            assert writer.append(events(100, 2)) == range(STOP, STOP + 2)
        lost: list[op.log.Damage] = []
        after = op.log.open(path)
        assert values(after.read(lost=lost)) == [*range(seen), 100, 101]
        # Those who come later are told.
        assert lost == after.crashed()
        assert [offsets(part) for part in lost] == [range(seen, STOP)]
        with pytest.warns(UserWarning, match=f"a crash took .* offsets {seen} to {STOP - 1}"):
            after.read()
        with log.writer(sync="never") as writer:
            assert writer.recovered.clean


def test_index_cut_at_every_byte(whole: op.log.Log) -> None:
    """The index is behind the frames: a crash came between the two."""
    size = whole.folder.index_file(0).stat().st_size
    assert size == (1 + len(SIZES)) * HEADER_BYTES
    for cut, path in zip(range(size), copies(whole), strict=False):
        log = op.log.open(path)
        with log.folder.index_file(0).open("r+b") as handle:
            handle.truncate(cut)
        told = cut // HEADER_BYTES - 1
        # Without the mark that it begins with, an index is damaged, and the frames are read.
        seen = STOP if told < 0 else ([*FIRSTS, STOP])[told]
        assert values(op.log.read(path)) == list(range(seen))
        with log.writer(sync="never") as writer:
            assert writer.recovered.indexed == len(SIZES) - max(0, told)
            assert writer.append(events(STOP, 1)) == range(STOP, STOP + 1)
        assert values(op.log.read(path)) == list(range(STOP + 1))


def test_half_a_frame_at_the_end(whole: op.log.Log) -> None:
    """The process crashed while it wrote a frame: its bytes are there up to any place."""
    other = make(whole.folder.path.parent / "other")
    with other.writer(sync="never") as writer:
        writer.append(events(STOP, 2))
    # A frame of another log, and a frame of this one: neither is whole.
    foreign = other.folder.events_file(0).read_bytes()[ends(whole)[-1] :]
    own = whole.folder.events_file(0).read_bytes()[: ends(whole)[1]]
    for tail in (foreign, own, bytes(500)):
        for size, path in zip(range(1, len(tail) + 1, 7), copies(whole), strict=False):
            with (path / f"{0:020d}.events").open("ab") as handle:
                handle.write(tail[:size])
            assert values(op.log.read(path)) == list(range(STOP))
            with op.log.open(path).writer(sync="never") as writer:
                assert writer.recovered.cut_bytes == size
                assert not writer.recovered.lost
                assert "torn tail" in str(writer.recovered)
                assert writer.append(events(STOP, 1)) == range(STOP, STOP + 1)
            assert values(op.log.read(path)) == list(range(STOP + 1))


def test_a_flipped_bit_in_the_frames_costs_its_frame_alone(whole: op.log.Log) -> None:
    for place, path in zip(range(0, ends(whole)[-1], 3), copies(whole), strict=False):
        flip(path / f"{0:020d}.events", place)
        assert_only_one_frame_is_lost(path)


def test_a_flipped_bit_in_the_index_costs_nothing(whole: op.log.Log) -> None:
    size = len(SIZES) * HEADER_BYTES
    for place, path in zip(range(size), copies(whole), strict=False):
        flip(path / f"{0:020d}.index", place)
        assert values(op.log.read(path)) == list(range(STOP)), place
        with op.log.open(path).writer(sync="never") as writer:
            assert writer.stop == STOP
        assert values(op.log.read(path)) == list(range(STOP))


def test_a_damaged_frame_stays_when_a_writer_goes_on(whole: op.log.Log) -> None:
    for place, path in zip(range(0, ends(whole)[2], 5), copies(whole), strict=False):
        flip(path / f"{0:020d}.events", place)
        with op.log.open(path).writer(sync="never") as writer:
            assert not writer.recovered.cut_bytes
            assert writer.append(events(STOP, 1)) == range(STOP, STOP + 1)
        lost: list[op.log.Damage] = []
        kept = values(op.log.open(path).read(on_damage="skip", lost=lost))
        assert kept == [n for n in range(STOP + 1) if not any(n in offsets(part) for part in lost)]
        assert len(kept) >= STOP + 1 - max(SIZES)


def offsets(part: op.log.Damage) -> range:
    return range(part.first, part.stop)


def assert_only_one_frame_is_lost(path: Path) -> None:
    lost: list[op.log.Damage] = []
    kept = values(op.log.open(path).read(on_damage="skip", lost=lost))
    if not lost:
        # The bit is in a header, which the index has as well, or between two frames.
        assert kept == list(range(STOP))
        return
    (part,) = lost
    assert part.first in FIRSTS
    assert kept == [n for n in range(STOP) if n not in offsets(part)]
    with pytest.raises(op.DataError, match=r"the event log is damaged") as raised:
        op.log.read(path)
    said = f"{path}/{0:020d}.events, byte {part.position}, offsets {part.first} to {part.stop - 1}"
    assert raised.value.detail == said


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)


def test_a_reader_does_not_go_back_while_an_index_is_made(whole: op.log.Log) -> None:
    index = whole.folder.index_file(0)
    index.unlink()
    reader = op.log.open(whole.folder.path)
    assert reader.refresh() == STOP
    # Room for the mark and the first headers, before they are written.
    index.write_bytes(bytes(1024))
    assert reader.refresh() == STOP
    assert values(reader.read()) == list(range(STOP))


def test_without_any_index_the_frames_tell(whole: op.log.Log) -> None:
    whole.folder.index_file(0).unlink()
    assert values(op.log.read(whole.folder.path)) == list(range(STOP))


@pytest.fixture(params=[2**28, 1], ids=["one segment", "segments"])
def synced(tmp_path: Path, request: pytest.FixtureRequest) -> op.log.Log:
    """A log whose events are all on the disk; the first were there before the others came."""
    log = make(tmp_path / "whole", request.param)
    with log.writer(sync="always") as writer:
        assert writer.recovered.clean
        writer.append(events(STOP, 2))
    log.refresh()
    return log


SYNCED_STOP = STOP + 2


def test_what_was_on_the_disk_is_read_or_told(synced: op.log.Log) -> None:
    """Each file of a log is flipped at many places, cut at many lengths, and deleted."""
    for name in sorted(file.name for file in synced.folder.path.iterdir()):
        size = (synced.folder.path / name).stat().st_size
        changes = [
            *((flip, place) for place in range(0, size, 7)),
            *((os.truncate, length) for length in range(0, size, 7)),
            *((blank, place) for place in range(0, size, HEADER_BYTES)),
            (lambda path, _: path.unlink(), 0),
        ]
        for (change, place), path in zip(changes, copies(synced), strict=False):
            change(path / name, place)
            before = told(path)
            try:
                with op.log.open(path).writer(sync="never") as writer:
                    assert writer.stop == SYNCED_STOP
                    assert not writer.recovered.lost
                    writer.append(events(SYNCED_STOP, 1))
            except op.DataError:
                assert name == "log.json"
                continue
            # Damage stays damage when a writer goes on.
            after = told(path)
            if before is not None:
                assert after == [*before, SYNCED_STOP]


def blank(path: Path, place: int, stop: int | None = None) -> None:
    """Put zeros into a file from a place on."""
    data = path.read_bytes()
    length = len(data[place:stop])
    path.write_bytes(data[:place] + bytes(length) + data[place + length :])


def told(path: Path) -> list[int] | None:
    """Return what a log has, with `on_damage="skip"`; what is lost is counted, and an error."""
    lost: list[op.log.Damage] = []
    try:
        log = op.log.open(path)
    except op.DataError:
        return None
    kept = values(log.read(on_damage="skip", lost=lost))
    gone = {offset for part in lost for offset in offsets(part)}
    assert not any(part.marked for part in lost)
    assert sorted([*kept, *gone]) == list(range(log.stop))
    assert log.stop >= SYNCED_STOP
    if lost:
        with pytest.raises(op.DataError, match=r"the event log is damaged"):
            log.read()
    else:
        assert values(log.read()) == list(range(log.stop))
    return kept


def test_a_flipped_bit_at_the_end_stays_damage(tmp_path: Path) -> None:
    log = op.log.create(tmp_path / "log", SCHEMA)
    with log.writer(sync="always") as writer:
        writer.append(events(0, 2))
        writer.append(events(2, 3))
    file = log.folder.events_file(0)
    size = file.stat().st_size
    flip(file, size - 20)
    with log.writer(sync="always") as writer:
        assert not writer.recovered.cut_bytes
        assert [offsets(part) for part in writer.recovered.damage] == [range(2, 5)]
        assert writer.append(events(5, 1)) == range(5, 6)
    assert file.stat().st_size == size
    with pytest.raises(op.DataError, match=r"offsets 2 to 4"):
        op.log.read(log.folder.path)
    assert values(op.log.open(log.folder.path).read(5)) == [5]
    assert not check(log.folder).tail_bytes
    assert [offsets(part) for part in check(log.folder).damage] == [range(2, 5)]


@pytest.mark.parametrize("index", ["blank", "gone", "unmarked"])
@pytest.mark.parametrize("frame", ["header", "payload", "cut", "blank"])
def test_a_damaged_index_hides_no_damage_at_the_end(tmp_path: Path, index: str, frame: str) -> None:
    """Before the fix the last events were cut without a word, as nobody knew of them."""
    log = op.log.create(tmp_path / "log", SCHEMA)
    with log.writer(sync="always") as writer:
        writer.append(events(0, 2))
        writer.append(events(2, 3))
    log.refresh()
    file, start = log.folder.events_file(0), ends(log)[1]
    size = file.stat().st_size
    if index == "gone":
        log.folder.index_file(0).unlink()
    else:
        blank(log.folder.index_file(0), 0, HEADER_BYTES if index == "unmarked" else None)
    if frame == "cut":
        os.truncate(file, size - 8)
    elif frame == "blank":
        blank(file, start)
    else:
        flip(file, start + 20 if frame == "header" else size - 20)
    left = file.read_bytes()
    # A header in either file tells how many events there were; without one, it was one at least.
    if index == "unmarked" and frame == "header":
        assert values(op.log.read(log.folder.path)) == list(range(5))
        return
    known = index == "unmarked" or frame in ("payload", "cut")
    lost = range(2, 5 if known else 3)
    for stop in (lost.stop, lost.stop + 1):
        after = op.log.open(log.folder.path)
        with pytest.raises(op.DataError, match=f"damaged(.|\n)*offsets 2 to {lost.stop - 1}"):
            after.read()
        assert after.stop == stop
        assert [offsets(part) for part in check(log.folder).damage] == [lost]
        assert not check(log.folder).tail_bytes
        if stop == lost.stop:
            with log.writer(sync="always") as writer:
                assert [offsets(part) for part in writer.recovered.damage] == [lost]
                assert not writer.recovered.cut_bytes
                writer.append(events(7, 1))
    assert file.read_bytes() == left
    assert values(after.read(on_damage="skip", lost=[])) == [0, 1, 7]


def test_no_frame_is_written_before_its_index_is_marked_durably(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a crash of the machine leaves a torn tail behind a mark, which is no damage."""
    log = op.log.create(tmp_path / "log", SCHEMA)

    def refuse(handle: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with log.writer(sync="interval") as writer:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refuse)
            with pytest.raises(op.DataError, match="no space left"):
                writer.append(events(0, 2))
        assert not log.folder.events_file(0).stat().st_size
        assert writer.append(events(0, 2)) == range(2)


ABOUT = [
    "[" * 100_000,
    '{"format": "outpace.log", "version": 1, "schema": ' + "[" * 100_000,
    "[]", "1", "null", '"text"', "\0", "1" * 10_000,
    '{"format": ["outpace.log"]}',
    '{"format": "outpace.log", "version": 1' + "0" * 400 + "}",
    '{"format": "outpace.log", "version": 1}',
]  # fmt: skip


@pytest.mark.parametrize("text", ABOUT, ids=range(len(ABOUT)))
def test_a_log_json_that_says_something_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.json").write_text(text)
    with pytest.raises(op.DataError, match=r"log\.json|version"):
        op.log.open(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("salt", -1), ("salt", 2**32), ("salt", 2**80), ("salt", "7"), ("salt", True),
        ("segment_bytes", -5), ("segment_bytes", 1e400), ("segment_bytes", None),
        ("time", "other"), ("time", ["ts"]), ("time", None), ("schema", 7), ("schema", "%"),
        ("schema", "AAAA"), ("schema", ""), ("schema", "/////wAAAAA="),
    ],
)  # fmt: skip
def test_a_log_json_with_a_fitting_checksum(tmp_path: Path, key: str, value: object) -> None:
    log = op.log.create(tmp_path / "log", SCHEMA)
    about = log.folder.path / "log.json"
    said = json.loads(about.read_text())
    said[key] = value
    del said["checksum"]
    said["checksum"] = _checksum(said)
    about.write_text(json.dumps(said))
    with pytest.raises(op.DataError, match=r"log\.json"):
        op.log.open(log.folder.path)


def test_files_that_never_end(tmp_path: Path) -> None:
    log = make(tmp_path / "log")
    for file in (log.folder.path / "log.json", log.folder.events_file(0), log.folder.index_file(0)):
        kept = file.read_bytes()
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(op.DataError, match=f"'{file}' is no regular file"):
            op.log.read(log.folder.path)
        file.unlink()
        file.symlink_to("/dev/zero")
        with pytest.raises(op.DataError, match=f"'{file}' is no regular file"):
            op.log.read(log.folder.path)
        file.unlink()
        file.write_bytes(kept)
    assert values(op.log.read(log.folder.path)) == list(range(STOP))


@pytest.mark.parametrize(
    "frame",
    [
        LogFrame(FrameKind.EVENTS, 0, 2**32 - 1, 0, 1, 0, 0, 0, 0),
        LogFrame(FrameKind.EVENTS, 0, 8, 0, 2**32 - 1, 0, 0, 0, 0),
        LogFrame(FrameKind.EVENTS, 0, 8, 2**63 - 1, 2**32 - 1, 0, 0, 2**63 - 1, 0),
        LogFrame(FrameKind.EVENTS, -8, 8, 0, 2, 0, 0, 0, 0),
        LogFrame(FrameKind.EVENTS, 2**62 + 8, 8, 0, 2, 0, 0, 0, 0),
        LogFrame(FrameKind.CUT, 0, 0, 2**61, 2**32 - 1, 0, 0, 0, 0),
        LogFrame(FrameKind.CUT, 0, 0, 0, 2, 2**63 - 1, -(2**63), -(2**63), 0),
    ],
    ids=range(7),
)
def test_headers_with_fitting_checksums_and_any_numbers(tmp_path: Path, frame: LogFrame) -> None:
    log = op.log.create(tmp_path / "log", SCHEMA)
    salt = log.folder.salt
    payload = b"no block"
    header = write_header(replace(frame, payload_checksum=payload_checksum(payload, salt)), salt)
    log.folder.events_file(0).write_bytes(header + payload)
    for mark in (bytes(HEADER_BYTES), write_mark(SyncPoint(72, 2), salt)):
        log.folder.index_file(0).write_bytes(mark + header)
        with suppress(op.DataError), warnings.catch_warnings(action="ignore"):
            op.log.read(log.folder.path)
        with warnings.catch_warnings(action="ignore"):
            op.log.open(log.folder.path).read(on_damage="skip", lost=[])
        with suppress(op.DataError), log.writer(sync="never") as writer:
            writer.append(events(7, 1))


@pytest.mark.parametrize("kind", ["folder", "device", "pipe"])
def test_a_lock_that_is_no_file(whole: op.log.Log, kind: str) -> None:
    lock = whole.folder.lock_file
    lock.unlink(missing_ok=True)
    if kind == "folder":
        lock.mkdir()
    elif kind == "device":
        lock.symlink_to("/dev/null")
    else:
        os.mkfifo(lock)
    with pytest.raises(op.DataError, match=r"writer\.lock"):
        whole.writer()


def write_frame(log: op.log.Log, payload: bytes) -> None:
    """Write three events of the times 0 to 2, with checksums that fit."""
    salt = log.folder.salt
    checksum = payload_checksum(payload, salt)
    header = write_header(
        LogFrame(FrameKind.EVENTS, 0, len(payload), 0, 3, 0, 2, 0, checksum), salt
    )
    log.folder.events_file(0).write_bytes(header + payload)
    log.folder.index_file(0).write_bytes(bytes(HEADER_BYTES) + header)


def test_a_compressed_block_is_not_decoded(tmp_path: Path) -> None:
    log = op.log.create(tmp_path / "log", SCHEMA)
    sink, table = pa.BufferOutputStream(), events(0, 3)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    write_frame(log, sink.getvalue().to_pybytes())
    with pytest.raises(op.DataError, match="a block is not what its header and the log say"):
        op.log.read(log.folder.path)


def test_texts_that_lie_outside_of_their_block_are_not_read(tmp_path: Path) -> None:
    schema = pa.schema([("ts", pa.int64()), ("text", pa.string())])
    log = op.log.create(tmp_path / "log", schema)
    bounds = pa.py_buffer(np.array([0, 1 << 30, 2, 3], np.int32))
    texts = pa.Array.from_buffers(pa.string(), 3, [None, bounds, pa.py_buffer(b"abc")])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([pa.array([0, 1, 2]), texts], schema=schema))
    write_frame(log, sink.getvalue().to_pybytes())
    with pytest.raises(op.DataError, match="a block is not what its header and the log say"):
        op.log.read(log.folder.path)
    with pytest.raises(op.DataError, match="a block is not what its header and the log say"):
        list(read_blocks(op.log.open(log.folder.path), 0, 3))


def segments(tmp_path: Path) -> op.log.Log:
    log = make(tmp_path / "segments", segment_bytes=1)
    assert log.folder.bases() == FIRSTS
    return log


def test_a_missing_segment_is_told(tmp_path: Path) -> None:
    for names in (("events",), ("events", "index")):
        log = segments(tmp_path)
        for name in names:
            (log.folder.path / f"{2:020d}.{name}").unlink()
        with pytest.raises(op.DataError, match=r"cut short or missing(.|\n)*offsets 2 to 2"):
            op.log.read(log.folder.path)
        lost: list[op.log.Damage] = []
        found = op.log.open(log.folder.path).read(on_damage="skip", lost=lost)
        assert values(found) == [0, 1, 3, 4, 5]
        assert [offsets(part) for part in lost] == [range(2, 3)]
        shutil.rmtree(log.folder.path)


def test_a_segment_that_is_cut_short_is_told(tmp_path: Path) -> None:
    log = segments(tmp_path)
    with log.folder.events_file(0).open("r+b") as handle:
        handle.truncate(100)
    with pytest.raises(op.DataError, match=r"byte 0, offsets 0 to 1"):
        op.log.read(log.folder.path)
    assert values(op.log.open(log.folder.path).read(2)) == [2, 3, 4, 5]


def test_a_closed_segment_whose_index_lost_its_end(tmp_path: Path) -> None:
    log = make(tmp_path / "log")
    with log.folder.index_file(0).open("r+b") as handle:
        handle.truncate(2 * HEADER_BYTES)
    log.folder.index_file(STOP).touch()
    log.folder.events_file(STOP).touch()
    assert op.log.open(log.folder.path).stop == 2
    with log.writer(sync="never") as writer:
        assert writer.stop == STOP
        writer.append(events(STOP, 1))
    # The next segment says how far this one goes.
    assert values(op.log.read(log.folder.path)) == list(range(STOP + 1))


def test_the_last_segment_is_gone_but_its_index_is_not(tmp_path: Path) -> None:
    log = segments(tmp_path)
    log.folder.events_file(3).unlink()
    assert values(op.log.read(log.folder.path)) == [0, 1, 2]
    with log.writer(sync="never") as writer:
        assert writer.recovered.lost == range(3, 6)
        assert writer.append(events(6, 1)) == range(6, 7)
    lost: list[op.log.Damage] = []
    assert values(op.log.open(log.folder.path).read(lost=lost)) == [0, 1, 2, 6]
    assert [offsets(part) for part in lost] == [range(3, 6)]


def test_a_segment_that_was_only_begun(tmp_path: Path) -> None:
    for name in ("index", "events"):
        log = segments(tmp_path)
        log.folder.index_file(STOP).touch()
        if name == "events":
            log.folder.events_file(STOP).touch()
        assert values(op.log.read(log.folder.path)) == list(range(STOP))
        with log.writer(sync="never") as writer:
            assert writer.append(events(STOP, 1)) == range(STOP, STOP + 1)
        assert values(op.log.read(log.folder.path)) == list(range(STOP + 1))
        shutil.rmtree(log.folder.path)


def test_a_payload_that_looks_like_frames(tmp_path: Path) -> None:
    """A log whose events are the bytes of a log, torn at its end: no frame is found inside one."""
    inner = make(tmp_path / "inner").folder.events_file(0).read_bytes()
    log = op.log.create(tmp_path / "outer", pa.schema({"ts": pa.int64(), "data": pa.binary()}))
    with log.writer(sync="never") as writer:
        writer.append(pa.table({"ts": [1], "data": [inner]}))
        own = log.folder.events_file(0).read_bytes()
        writer.append(pa.table({"ts": [2], "data": [own * 3]}))
    size = log.folder.events_file(0).stat().st_size
    with log.folder.events_file(0).open("r+b") as handle:
        handle.truncate(size - 9)
    segment = scan(log.folder, 0)
    assert (segment.stop, segment.end, segment.damage) == (1, len(own), ())


FULL = """
import resource, sys
import numpy as np
import pyarrow as pa
import outpace as op
log = op.log.open(sys.argv[1])
rows = pa.table({"ts": list(range(2000))})
with log.writer(sync="never") as writer:
    size = log.folder.events_file(0).stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (size + 10, size + 200, 100):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            writer.append(rows)
        except op.DataError as error:
            print(error.message.rpartition(": ")[2], "|", error.detail)
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    print(writer.append(rows))
"""


def test_a_file_that_cannot_grow(whole: op.log.Log) -> None:
    """The file size limit of the system stands for a full disk, byte by byte."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(whole.folder.path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    said = "file too large | none of the events is in the log\n"
    assert done.stdout == said * 3 + "range(6, 2006)\n"
    assert whole.refresh() == 2006
    assert values(whole.read(0, STOP)) == list(range(STOP))
    with whole.writer(sync="never") as writer:
        assert writer.recovered.clean


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    try:
        subprocess.run(["mount", *options], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(writer: op.log.Writer) -> None:
    for _ in range(10_000):
        writer.append(events(writer.stop, 300))


def test_a_full_disk(small_disk: Path) -> None:
    log = op.log.create(small_disk / "log", SCHEMA, segment_bytes=60_000)
    with log.writer(sync="never") as writer:
        with pytest.raises(op.DataError, match="no space left on device") as raised:
            fill(writer)
        done = writer.stop
        assert raised.value.detail == "none of the events is in the log"
        assert isinstance(raised.value.__cause__, OSError)
        assert raised.value.__cause__.errno == errno.ENOSPC
        assert done > 3000
        assert values(op.log.read(small_disk / "log")) == list(range(done))
        assert log.trim(done // 2) > 0
        # There is room again, and the same writer goes on.
        assert writer.append(events(done, 300)) == range(done, done + 300)
    left = op.log.open(small_disk / "log")
    assert values(left.read()) == list(range(left.first, done + 300))
