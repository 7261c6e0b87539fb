"""Whatever a crash leaves, whatever is damaged: whole frames come out, or a clear error does."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import outpace as op
from outpace.ingest.log.frame import HEADER_BYTES
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
        assert values(op.log.read(path)) == [*range(seen), 100, 101]
        with log.writer(sync="never") as writer:
            assert writer.recovered.clean


def test_index_cut_at_every_byte(whole: op.log.Log) -> None:
    """The index is behind the frames: a crash came between the two."""
    size = whole.folder.index_file(0).stat().st_size
    assert size == len(SIZES) * HEADER_BYTES
    for cut, path in zip(range(size), copies(whole), strict=False):
        log = op.log.open(path)
        with log.folder.index_file(0).open("r+b") as handle:
            handle.truncate(cut)
        seen = ([*FIRSTS, STOP])[cut // HEADER_BYTES]
        assert values(op.log.read(path)) == list(range(seen))
        with log.writer(sync="never") as writer:
            assert writer.recovered.indexed == len(SIZES) - cut // HEADER_BYTES
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
    size = (len(SIZES) - 1) * HEADER_BYTES
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


def test_without_any_index_the_frames_tell(whole: op.log.Log) -> None:
    whole.folder.index_file(0).unlink()
    assert values(op.log.read(whole.folder.path)) == list(range(STOP))


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
        handle.truncate(HEADER_BYTES)
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
    assert values(op.log.read(log.folder.path)) == [0, 1, 2, 6]


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
