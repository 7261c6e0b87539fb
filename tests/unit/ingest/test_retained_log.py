"""The retained log: in memory, in files that memory has no room for, and bounded."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outpace as op
from outpace.engine.recover.event_needs import NeededNumbers
from outpace.engine.savepoint import Savepoint
from outpace.ingest.log.segment_writer import SegmentWriter
from outpace.ingest.retained_log import RetainedLog

KINDS = pa.array(list("abc")).dictionary_encode()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary files go to a folder of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def rows(first: int, count: int) -> pa.Table:
    """Events whose values are their numbers, also with columns that a log of events may lack."""
    numbers = np.arange(first, first + count)
    lists = [[one] * (one % 3) for one in numbers.tolist()]
    listed = pa.array(lists, pa.list_(pa.int64()))
    return pa.table({"x": numbers, "number": listed, "k": KINDS.take(pa.array(numbers % 3))})


def needs(at: int, kept: list[int]) -> Savepoint:
    """Return a savepoint behind some events that needs some of them."""
    return NeededNumbers(at, np.array(kept, np.int64)).savepoint


@given(st.data())
def test_where_events_are_makes_no_difference(data: st.DataObject) -> None:
    size = rows(0, 10).nbytes
    spilling = RetainedLog(
        memory_bytes=data.draw(st.sampled_from([1, size, 3 * size])), segment_bytes=2000
    )
    whole = RetainedLog(memory_bytes=1 << 40)
    for act in data.draw(st.lists(st.sampled_from(["append", "thin", "read"]), max_size=25)):
        if act == "append":
            count = data.draw(st.integers(0, 25))
            for log in (whole, spilling):
                log.append(rows(log.came, count))
        elif act == "thin" and whole.came:
            numbers = whole.events()[1].tolist()
            kept = data.draw(st.sets(st.sampled_from(numbers))) if numbers else set()
            for log in (whole, spilling):
                log.thin(needs(whole.came, sorted(kept)))
        elif whole.came:
            first = data.draw(st.integers(0, whole.came + 1))
            most = data.draw(st.none() | st.integers(0, 30))
            wanted, found = whole.events(first, most), spilling.events(first, most)
            assert found[0].schema.equals(wanted[0].schema)
            assert found[0].to_pylist() == wanted[0].to_pylist()
            assert found[1].tolist() == wanted[1].tolist() == wanted[0]["x"].to_pylist()
            assert spilling.first == whole.first
            assert len(spilling) == len(whole)


def test_memory_is_bounded_and_files_are_deleted(folder: Path) -> None:
    log = RetainedLog(memory_bytes=100_000, segment_bytes=50_000)
    before = pa.total_allocated_bytes()
    for _ in range(200):
        log.append(pa.table({"x": np.arange(log.came, log.came + 1000)}))
        assert log._held <= 100_000
        assert pa.total_allocated_bytes() - before < 1_000_000
    (spilled,) = folder.glob("outpace-retained-*")
    files = len(list(spilled.glob("*.events")))
    assert files > 10
    assert log.nbytes > 500_000  # Files are compressed.
    assert log.events(150_000, 3)[0]["x"].to_pylist() == [150_000, 150_001, 150_002]
    log.thin(needs(190_000, [*range(180_000, 190_000)]))
    assert len(list(spilled.glob("*.events"))) < files / 5
    assert len(log) == 20_000
    del log
    assert not spilled.exists()


def test_a_log_that_has_so_many_bytes_takes_no_more() -> None:
    log = RetainedLog(size_bytes=10_000, memory_bytes=4_000)
    while log.room(1):
        log.append(rows(log.came, 10))
    assert 10_000 <= log.nbytes < 25_000
    with pytest.raises(op.DataError, match="no room for 1 more events") as caught:
        log.append(rows(log.came, 1))
    assert "bytes of at most 10000" in str(caught.value)
    log.thin(NeededNumbers(log.came).savepoint)
    log = RetainedLog(size_bytes=10_000)
    log.append(rows(0, 500))
    assert log.room(1) == 0
    log.thin(NeededNumbers(500).savepoint)
    assert log.room(7) == 7


@pytest.mark.parametrize("bound", ["events", "size_bytes", "memory_bytes"])
def test_bounds_are_numbers(bound: str) -> None:
    with pytest.raises(op.DataError, match=bound):
        RetainedLog(**{bound: 0})


def test_a_disk_without_room_is_told_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    log = RetainedLog(memory_bytes=1)
    log.append(rows(0, 10))

    def write(*given: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(SegmentWriter, "write", write)
        with pytest.raises(op.DataError, match="memory has no room for") as caught:
            log.append(rows(10, 10))
        assert "no space left" in str(caught.value).lower()
        assert "TMPDIR" in str(caught.value)
    assert log.came == 10
    log.append(rows(10, 10))
    assert log.events()[0].to_pylist() == rows(0, 20).to_pylist()


def test_what_a_killed_process_left_is_removed(folder: Path) -> None:
    program = (
        "import os, signal, tempfile\n"
        f"tempfile.tempdir = {str(folder)!r}\n"
        "import pyarrow as pa\n"
        "from outpace.ingest.retained_log import RetainedLog\n"
        "log = RetainedLog(memory_bytes=1)\n"
        "for _ in range(3): log.append(pa.table({'x': [1, 2]}))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    (left,) = folder.glob("outpace-retained-*")
    own = RetainedLog(memory_bytes=1)
    for _ in range(2):
        own.append(rows(own.came, 5))
    assert left.exists()  # It may be one that has just begun.
    old = time.time() - 3600
    for place in folder.glob("outpace-retained-*"):
        os.utime(place, (old, old))
    other = RetainedLog(memory_bytes=1)
    for _ in range(2):
        other.append(rows(other.came, 5))
    assert not left.exists()
    # One that is in use stays.
    assert own.events()[0].to_pylist() == rows(0, 10).to_pylist()
