"""Writers that are killed while a reader in another process follows: no half event, none twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import outpace as op

SCHEMA = pa.schema([("ts", pa.int64()), ("name", pa.string())])

WRITER = """
import sys
import pyarrow as pa
import outpace as op
size = 1
with op.log.open(sys.argv[1]).writer(sync=sys.argv[2]) as writer:
    print(writer.stop, flush=True)
    while True:
        numbers = range(writer.stop, writer.stop + size)
        table = pa.table({"ts": list(numbers), "name": [f"n{n}" for n in numbers]})
        print(writer.append(table).stop, flush=True)
        size = size * 3 % 7919
"""

READER = """
import sys
import outpace as op
log, at = op.log.open(sys.argv[1]), 0
while True:
    stop = log.refresh()
    assert stop >= at, (stop, at)
    table = log.read(at, stop)
    assert table["ts"].to_pylist() == list(range(at, stop)), (at, stop)
    assert table["name"].to_pylist() == [f"n{n}" for n in range(at, stop)]
    at = stop
    if at:
        print(at, flush=True)
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


@pytest.mark.parametrize("sync", ["always", "interval"])
def test_writers_are_killed_while_a_reader_follows(tmp_path: Path, sync: str) -> None:
    path = tmp_path / "log"
    log = op.log.create(path, SCHEMA, segment_bytes=40_000)
    reader = start(READER, str(path))
    moments = random.Random(17)
    promised = 0
    try:
        for _ in range(4):
            writer = start(WRITER, str(path), sync)
            assert writer.stdout is not None
            # It has opened the log and goes on where the last append ended, or behind it.
            opened = writer.stdout.readline()
            assert opened, writer.stderr and writer.stderr.read()
            assert int(opened) >= promised
            # A machine that is busy takes its time for the first append.
            first = writer.stdout.readline()
            time.sleep(moments.uniform(0.05, 0.6))
            writer.send_signal(signal.SIGKILL)
            said = [line for line in writer.stdout.read().splitlines(keepends=True) if "\n" in line]
            writer.wait()
            promised = max(int(line) for line in [first, *said])
            # Nobody has to repair anything before the log is read.
            assert log.refresh() >= promised
        assert reader.stdout is not None
        assert reader.poll() is None, reader.stderr and reader.stderr.read()
        while int(reader.stdout.readline()) < log.stop:
            pass
    finally:
        reader.kill()
        reader.communicate()
    assert promised > 0
    with log.writer() as last:
        assert not last.recovered.lost
        assert not last.recovered.damage
        stop = last.stop
    assert log.refresh() == stop
    assert log.read()["ts"].to_pylist() == list(range(stop))
    assert len(log.folder.bases()) > 1
