"""What tasks do where savepoints alone are saved: batches of a log, processes that come and go."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester
from support.streamed import events, kinds, ordered

import outpace as op
from outpace.engine.codec.cell import CellKind, read_cells
from outpace.engine.codec.table import read_table
from outpace.engine.state import State
from outpace.hosts.spark import stages
from outpace.hosts.spark.log_source import LOG_KEY, LogStreamReader, log_schema
from outpace.hosts.spark.seekable import EventLog
from outpace.hosts.spark.soft_files import SoftFiles
from outpace.hosts.spark.soft_stages import SoftStages
from outpace.hosts.spark.stages import PackTask, PlanPart, StageProcessor, pack_blocks
from outpace.plan.stream_plan import plan_stream

QUERY = kinds("A -> B -> C").partition_by("key").within(40)


class Batches:
    """Runs a query over a log as Spark does, batch by batch, in processes that may be new."""

    def __init__(self, path: Path, query: op.Query, monkeypatch: pytest.MonkeyPatch) -> None:
        options = {"path": str(path), "form": "blocks"}
        self._schema = log_schema(options)
        place = EventLog(**json.loads(self._schema["block"].metadata[LOG_KEY]))
        log = op.log.open(path)
        self._reader = LogStreamReader(options, self._schema)
        self._plan = plan_stream(query, log.schema, 2, log=place.log)
        self._pack = PackTask(PlanPart(self._plan.division.packing), [0, 1])
        [spec] = self._plan.division.stages
        self._processor = StageProcessor(PlanPart(spec), 1, [0, 1], [0], place)
        self._tester = TwsTester(self._processor)
        self._patch = monkeypatch
        self.found: list[dict[str, Any]] = []
        self.replays = self.replayed = 0

    def run(self, first: int, stop: int) -> None:
        """Run a batch with the events between two offsets."""
        tasks = self._reader.partitions({"offset": first}, {"offset": stop})
        names = ["block", "first", "stop"]
        for batch in (batch.select(names) for task in tasks for batch in self._reader.read(task)):
            (packed,) = pack_blocks(self._pack, [batch])
            for number in (0, 1):
                cells = packed.filter(pa.compute.equal(packed["instance"], number))
                self._take(self._tester.testInPandas(number, cells.to_pandas().iloc[:, 1:]))

    def lose(self, folder: Path | None = None) -> None:
        """Go on in a process that has nothing, on a host that has no more than a folder."""
        self._patch.setattr(stages, "_soft", SoftStages())
        self._patch.setattr(stages, "_soft_files", SoftFiles(folder or Path("/nowhere/at all")))

    def _take(self, given: Any) -> None:
        for cell in read_cells(pa.RecordBatch.from_pandas(given, preserve_index=False)):
            if cell.kind is CellKind.MATCHES:
                self.found += read_table(cell.block).to_pylist()
            if cell.kind is CellKind.REPORT and cell.stage == 1:
                self.replays += cell.counters.replays
                self.replayed += cell.counters.replayed


def make_log(path: Path, table: pa.Table, **settings: Any) -> op.log.Log:
    log = op.log.create(path, table.schema, **settings)
    with log.writer() as writer:
        for start in range(0, table.num_rows, 50):
            writer.append(table.slice(start, 50))
    return log


@pytest.mark.parametrize("lost", [0, 0.5, 1])
def test_whatever_process_takes_a_batch_the_matches_are_those_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: float
) -> None:
    table, choose = events(600, 7), random.Random(lost)
    make_log(tmp_path / "log", table)
    batches = Batches(tmp_path / "log", QUERY, monkeypatch)
    batches.lose()
    for first in range(0, table.num_rows, 60):
        if choose.random() < lost:
            batches.lose()
        batches.run(first, min(first + 60, table.num_rows))
    assert ordered(batches.found) == ordered(op.match(table, QUERY).to_pylist())
    assert batches.found
    assert (batches.replays > 0) == (batches.replayed > 0) == (lost > 0)
    # Each batch needs some of the events of the last 40 units of time.
    assert batches.replayed < 2 * table.num_rows


def test_a_log_that_lacks_what_is_needed_is_an_error_that_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = events(300, 8)
    log = make_log(tmp_path / "log", table, segment_bytes=2_000)
    batches = Batches(tmp_path / "log", QUERY, monkeypatch)
    batches.lose()
    batches.run(0, 200)
    batches.lose()
    segment = log.folder.events_file(max(base for base in log.folder.bases() if base < 190))
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-50] + bytes(50))
    with pytest.raises(op.DataError, match="not what its checksum says") as error:
        batches.run(200, 260)
    assert segment.name in str(error.value)
    segment.write_bytes(whole)
    batches.run(200, 260)
    batches.lose()
    log.refresh()
    log.trim(260)
    with pytest.raises(op.DataError, match="the events were trimmed"):
        batches.run(260, 300)


def test_another_process_of_the_host_finds_the_events_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, folder = events(600, 7), tmp_path / "soft"
    make_log(tmp_path / "log", table)
    batches = Batches(tmp_path / "log", QUERY, monkeypatch)
    for first in range(0, table.num_rows, 60):
        batches.lose(folder)
        batches.run(first, min(first + 60, table.num_rows))
        assert len(list(folder.iterdir())) <= 2
    assert batches.replays == 0
    assert ordered(batches.found) == ordered(op.match(table, QUERY).to_pylist())
    assert folder.stat().st_mode & 0o777 == 0o700


def test_files_of_others_and_damaged_or_old_ones_are_not_believed(tmp_path: Path) -> None:
    folder = tmp_path / "soft"
    SoftFiles(folder).write(0, b"saved", State({"events": 3}), None)
    [file] = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert SoftFiles(folder).read(0, b"saved") is None
    file.write_bytes(whole)
    folder.chmod(0o777)
    assert SoftFiles(folder).read(0, b"saved") is None
    SoftFiles(folder).write(0, b"more", State({}), None)
    assert [*folder.iterdir()] == [file]
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder)
    assert SoftFiles(tmp_path / "link").read(0, b"saved") is None
    found = SoftFiles(folder).read(0, b"saved")
    assert found is not None
    assert found.numbers == {"events": 3}
    os.utime(file, (0, 0))
    SoftFiles(folder).write(1, b"other", State({}), None)
    assert file not in folder.iterdir()
