"""What may go wrong around a stream: it stops with a clear error or sets events aside, and goes on.

Whatever the cause, once it is removed the same query goes on with the same checkpoint, and in the
end every match is there once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from support.streamed import (
    END,
    events,
    kinds,
    ordered,
    read_pieces,
    rows_of,
    run,
    write_pieces,
)

import outpace as op
from outpace.hosts.spark.failure import spark_error

QUERY = kinds("A -> B -> C").partition_by("key").within(40)
SCHEMA = "id bigint, ts bigint, key string, kind string, _corrupt_record string"


def expected(table: pa.Table) -> list[str]:
    return ordered(op.match(table, QUERY).to_pylist())


def from_log(spark: SparkSession, path: Path, most: int = 100) -> DataFrame:
    stream = spark.readStream.format("outpace.log").option("maxEventsPerTrigger", most)
    return op.match(stream.load(str(path)), QUERY)


def failure_of(frame: DataFrame, folder: Path) -> op.OutpaceError:
    with pytest.raises(StreamingQueryException) as failed:
        run(frame, folder)
    return spark_error(failed.value)


@pytest.mark.soak
def test_a_damaged_segment_stops_the_stream_until_it_is_repaired(
    streaming: SparkSession, tmp_path: Path
) -> None:
    table = events(400, 1)
    log = op.log.create(tmp_path / "log", table.schema, segment_bytes=4_000)
    with log.writer() as writer:
        for start in range(0, table.num_rows, 50):
            writer.append(table.slice(start, 50))
    segments = sorted((tmp_path / "log").glob("*.events"))
    assert len(segments) > 3
    damaged = segments[2]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-200] + bytes(200))
    said = failure_of(from_log(streaming, tmp_path / "log"), tmp_path)
    assert isinstance(said, op.DataError), said
    assert str(int(damaged.stem)) in str(said) or damaged.name in str(said), said
    damaged.write_bytes(whole)
    run(from_log(streaming, tmp_path / "log"), tmp_path)
    assert ordered(rows_of(streaming, tmp_path)) == expected(table)


def test_a_state_of_another_query_is_refused_and_the_changed_one_starts_from_the_retained_log(
    streaming: SparkSession, tmp_path: Path
) -> None:
    table = events(300, 6)
    log = op.log.create(tmp_path / "log", table.schema)
    with log.writer() as writer:
        writer.append(table.slice(0, 200))
    run(from_log(streaming, tmp_path / "log"), tmp_path / "before")
    with log.writer() as writer:
        writer.append(table.slice(200))
    changed = QUERY.within(60)
    stream = streaming.readStream.format("outpace.log").load(str(tmp_path / "log"))
    said = failure_of(op.match(stream, changed), tmp_path / "before")
    assert isinstance(said, op.StateError), said
    assert "belongs to another query" in str(said)
    # Nothing is lost: the query that it belongs to goes on.
    run(from_log(streaming, tmp_path / "log"), tmp_path / "before")
    assert ordered(rows_of(streaming, tmp_path / "before")) == expected(table)
    run(op.match(stream, changed), tmp_path / "after")
    found = ordered(rows_of(streaming, tmp_path / "after"))
    assert found == ordered(op.match(table, changed).to_pylist())
    assert len(found) > len(expected(table))


def test_late_rows_of_a_k_that_adapts_are_those_in_process_and_another_reorderer_is_refused(
    streaming: SparkSession, tmp_path: Path
) -> None:
    rng, table = np.random.default_rng(4), events(200, 4)
    times = table["ts"].to_numpy()
    arrival = times + np.where(rng.random(len(times)) < 0.2, rng.integers(0, 90, len(times)), 0)
    table = table.take(pa.array(np.argsort(arrival, kind="stable")))
    parts = [table.slice(low, 50) for low in range(0, table.num_rows, 50)]
    asked = QUERY.disorder(op.Quantile(0.8, late="side"))
    write_pieces(parts[:2], tmp_path / "in")
    stream = read_pieces(streaming, tmp_path / "in")
    run(op.search(stream, asked).outputs(), tmp_path)
    write_pieces(parts[2:], tmp_path / "in", begin=2)
    for other in (op.Quantile(0.9, late="side"), op.MPKSlack(late="side")):
        changed = op.search(stream, QUERY.disorder(other)).outputs()
        said = failure_of(changed, tmp_path)
        assert isinstance(said, op.StateError), said
    run(op.search(stream, asked).outputs(), tmp_path)
    matcher, found, late = op.open(asked), [], []
    for part in parts:
        found += matcher.push(part).to_pylist()
        late += matcher.late["id"].to_pylist()
    rows = rows_of(streaming, tmp_path)
    assert ordered([row["match"] for row in rows if row["output"] == "match"]) == ordered(found)
    assert sorted(row["late"]["id"] for row in rows if row["output"] == "late") == sorted(late)
    assert found
    assert late


@pytest.mark.soak  # `tests/unit/ingest/log/test_damage.py` cuts frames at every byte.
def test_a_torn_append_is_cut_and_the_stream_goes_on(
    streaming: SparkSession, tmp_path: Path
) -> None:
    table = events(400, 2)
    log = op.log.create(tmp_path / "log", table.schema)
    with log.writer() as writer:
        writer.append(table.slice(0, 200))
    segment = max((tmp_path / "log").glob("*.events"))
    index = segment.with_suffix(".index")
    size, before = segment.stat().st_size, index.read_bytes()
    with log.writer() as writer:
        writer.append(table.slice(200, 100))
    # As if the writer had died in the middle of the append: half of it, and no entry in the index.
    with segment.open("r+b") as file:
        file.truncate((size + segment.stat().st_size) // 2)
    index.write_bytes(before)
    run(from_log(streaming, tmp_path / "log"), tmp_path)
    with op.log.open(tmp_path / "log").writer() as writer:
        assert writer.stop == 200
        # What the crash has torn was never acknowledged: its source sends it again.
        writer.append(table.slice(writer.stop))
    run(from_log(streaming, tmp_path / "log"), tmp_path)
    assert ordered(rows_of(streaming, tmp_path)) == expected(table)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    try:
        subprocess.run(["mount", *options], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.soak
def test_a_full_disk_stops_the_stream_until_there_is_room(
    streaming: SparkSession, tmp_path: Path, small_disk: Path
) -> None:
    """The checkpoint and the output are on the disk."""
    table = events(400, 3)
    log = op.log.create(tmp_path / "log", table.schema)
    with log.writer() as writer:
        writer.append(table.slice(0, 200))
    run(from_log(streaming, tmp_path / "log"), small_disk)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free))
    with log.writer() as writer:
        writer.append(table.slice(200))
    with pytest.raises(Exception, match="No space left on device"):
        run(from_log(streaming, tmp_path / "log"), small_disk)
    filler.unlink()
    run(from_log(streaming, tmp_path / "log"), small_disk)
    assert ordered(rows_of(streaming, small_disk)) == expected(table)


GOOD = events(60, 4)
POISON = {
    "a wrong type": '{"id": 1, "ts": "now", "key": "k1", "kind": "a"}',
    "no JSON": "{]",
    "a time that is NULL": '{"id": 2, "ts": null, "key": "k1", "kind": "a"}',
    "no time": '{"id": 3, "key": "k1", "kind": "b"}',
}
FAR = json.dumps({"id": 4, "ts": 50 * END, "key": "k1", "kind": "a"})


def write_lines(folder: Path, number: int, lines: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text("".join(f"{line}\n" for line in lines), "utf-8")


def good_lines(start: int, stop: int | None = None) -> list[str]:
    rows = GOOD.select(["id", "ts", "key", "kind"]).slice(start, stop)
    return [json.dumps(row) for row in rows.to_pylist()]


def from_json(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def test_poisoned_records_are_set_aside_and_nothing_is_lost(
    streaming: SparkSession, tmp_path: Path
) -> None:
    bad = [*POISON.values(), FAR]
    write_lines(tmp_path / "in", 0, [*good_lines(0, 20), *bad, *good_lines(20, 20)])
    aside = op.KSlack(0, invalid="quarantine", ahead=2 * END)
    search = op.search(from_json(streaming, tmp_path / "in"), QUERY.disorder(aside))
    run(search.outputs(), tmp_path)
    write_lines(tmp_path / "in", 1, good_lines(40))
    run(search.outputs(), tmp_path)
    found = rows_of(streaming, tmp_path)
    matches = [row["match"] for row in found if row["output"] == "match"]
    invalid = [row["invalid"] for row in found if row["output"] == "invalid"]
    assert ordered(matches) == expected(GOOD)
    assert matches
    assert {row["output"] for row in found} == {"match", "timed_out", "invalid"}
    assert sorted(row["_corrupt_record"] or "" for row in invalid) == sorted(
        ["", "", "", POISON["a wrong type"], POISON["no JSON"]]
    )
    assert all(row["reason"] for row in invalid)
    assert {row["id"] for row in invalid if not row["_corrupt_record"]} == {2, 3, 4}


@pytest.mark.parametrize(
    "poison",
    ["a time too far ahead", *(pytest.param(name, marks=pytest.mark.soak) for name in POISON)],
)
def test_a_poisoned_record_stops_the_stream_until_it_is_removed(
    streaming: SparkSession, tmp_path: Path, poison: str
) -> None:
    line = POISON.get(poison, FAR)
    write_lines(tmp_path / "in", 0, good_lines(0, 20))
    query = QUERY.disorder(op.KSlack(0, ahead=2 * END))
    run(op.match(from_json(streaming, tmp_path / "in"), query), tmp_path)
    write_lines(tmp_path / "in", 1, [*good_lines(20, 10), line, *good_lines(30)])
    said = failure_of(op.match(from_json(streaming, tmp_path / "in"), query), tmp_path)
    assert isinstance(said, op.DataError), said
    assert "quarantine" in str(said)
    write_lines(tmp_path / "in", 1, good_lines(20))
    run(op.match(from_json(streaming, tmp_path / "in"), query), tmp_path)
    assert ordered(rows_of(streaming, tmp_path)) == expected(GOOD)
