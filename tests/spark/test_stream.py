"""Streams on Spark: the result is that of the table, whatever the batches; nothing comes twice."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from support.joins import LEFT, RIGHT, some_rows
from support.streamed import (
    END,
    PROVIDER,
    QUERIES,
    apart,
    events,
    kinds,
    ordered,
    pieces,
    read_pieces,
    rows_by_batch,
    rows_of,
    run,
    together,
    write_pieces,
)

import outpace as op
from outpace.engine.codec.cell import COUNTERS
from outpace.errors import BindError, UnsupportedError
from outpace.hosts.spark.failure import spark_error
from outpace.hosts.spark.metrics_account import Account
from outpace.hosts.spark.metrics_names import STAGE_TOTALS
from outpace.hosts.spark.stages import partition_of


def totals(query: StreamingQuery) -> dict[tuple[str, str], float]:
    """What the metrics count of a query that has ended, by stage and counter."""
    account = Account()
    for progress in query.recentProgress:
        account.progressed(json.loads(progress.json))
    counters = {metric.name: counter for counter, metric in STAGE_TOTALS.items()}
    return {
        (sample.labels["stage"], counters[sample.name]): sample.value
        for sample in account.samples()
        if sample.name in counters
    }


def test_every_kind_of_query_finds_what_the_table_has(
    streaming: SparkSession, tmp_path: Path
) -> None:
    table = events(300, 1)
    write_pieces(pieces(table, 2, 2), tmp_path / "in")
    stream = read_pieces(streaming, tmp_path / "in")
    query = run(together({name: op.match(stream, q) for name, q in QUERIES.items()}), tmp_path)
    found = apart(rows_of(streaming, tmp_path), QUERIES)
    for name, asked in QUERIES.items():
        assert ordered(found[name]) == ordered(op.match(table, asked).to_pylist()), name
        assert found[name], name
    progress = query.recentProgress
    assert len(progress) == 3
    metrics = progress[0]["observedMetrics"]
    assert len(metrics) == len(QUERIES)
    (keyed,) = [row for row in metrics.values() if "pack > order + match" in row.asDict()][:1]
    reports = keyed["pack > order + match"]
    assert {report[0] for report in reports} == {0, 1}
    assert all(len(report) == 1 + len(COUNTERS) for report in reports)


def test_disorder_late_and_invalid_events_and_timeouts_in_one_run(
    streaming: SparkSession, tmp_path: Path
) -> None:
    asked = (
        kinds("A -> B")
        .partition_by("key")
        .within(10)
        .disorder(op.KSlack(5, late="side", invalid="quarantine", ahead=2_000_000))
    )
    batches = [
        [("a", 10, "x"), ("c", 3, "x"), ("b", 14, "x"), ("a", None, "x")],
        [("a", 9, "y"), ("a", 8, "x"), ("c", 13, "x"), ("d", 5_000_000_000, "x"), ("a", 12, "z")],
        [("b", 16, "y"), ("c", END, "end")],
    ]
    names = iter(range(100))
    parts = [
        pa.table(
            {
                "id": pa.array([next(names) for _ in batch]),
                "ts": pa.array([ts for _, ts, _ in batch], pa.int64()),
                "key": [key for _, _, key in batch],
                "kind": [kind for kind, _, _ in batch],
            }
        )
        for batch in batches
    ]
    write_pieces(parts, tmp_path / "in")
    stream = read_pieces(streaming, tmp_path / "in")
    query = run(op.search(stream, asked).outputs(), tmp_path)
    rows = rows_of(streaming, tmp_path)
    found = {
        name: sorted((row[name] for row in rows if row["output"] == name), key=str)
        for name in ("match", "timed_out", "late", "invalid")
    }
    # The watermark is 14 - 5 = 9 after the first batch.
    assert [row["id"] for row in found["late"]] == [5]
    reasons = {row["id"]: row["reason"] for row in found["invalid"]}
    assert reasons.keys() == {3, 7}
    assert "NULL" in reasons[3]
    assert "5000000000 is too far ahead" in reasons[7]
    assert sorted((row["first"], row["last"]) for row in found["match"]) == [(0, 2), (4, 9)]
    assert [row["key"] for row in found["timed_out"]] == ["z"]
    counted = totals(query)
    assert counted["pack", "events"] == sum(map(len, batches))
    # Packing sees that there is no time; only a stage knows what is too far ahead of all.
    assert (counted["pack", "invalid"], counted["order + match", "invalid"]) == (1, 1)
    assert counted["order + match", "late"] == len(found["late"])
    assert counted["order + match", "timed_out"] == len(found["timed_out"])
    assert counted["order + match", "matches"] == len(found["match"])


def test_late_events_that_are_dropped_are_counted_whether_a_step_can_use_them_or_not(
    streaming: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = kinds("A -> B").partition_by("key").within(10).disorder(op.KSlack(5))
    parts = [
        pa.table({"id": [0, 1], "ts": [10, 14], "key": ["x", "x"], "kind": ["a", "d"]}),
        # The watermark is 9: two are late, one of them of no use; so is one that is in time.
        pa.table(
            {"id": [2, 3, 4, 5], "ts": [8, 7, 13, 15], "key": list("xyzx"), "kind": list("adcb")}
        ),
        pa.table({"id": [6], "ts": [END], "key": ["end"], "kind": ["end"]}),
    ]
    write_pieces(parts, tmp_path / "in")
    query = run(op.match(read_pieces(streaming, tmp_path / "in"), asked), tmp_path)
    assert [(row["first"], row["last"]) for row in rows_of(streaming, tmp_path)] == [(0, 5)]
    counted = totals(query)
    assert counted["pack", "events"] == 7
    assert counted["order + match", "late"] == 2
    # What no step can use does not travel: the stage took events 0, 2 and 5.
    assert counted["order + match", "events"] == 3
    assert counted["order + match", "released"] == 2
    # Listeners are told of a progress after it.
    while not caplog.messages:
        time.sleep(0.05)
    (said,) = caplog.messages
    assert "query 'q': 2 events were late and dropped so far. " in said
    assert said.endswith("; files are read by modification time, not by name")


def test_a_deadline_passes_with_events_of_other_keys(
    streaming: SparkSession, tmp_path: Path
) -> None:
    asked = kinds("A -> !B").partition_by("key").within(10)
    parts = [
        pa.table({"id": [0], "ts": [5], "key": ["x"], "kind": ["a"]}),
        pa.table({"id": [1], "ts": [14], "key": ["y"], "kind": ["c"]}),
        pa.table({"id": [2], "ts": [15], "key": ["y"], "kind": ["c"]}),
    ]
    write_pieces(parts, tmp_path / "in")
    run(op.match(read_pieces(streaming, tmp_path / "in"), asked), tmp_path)
    found = [[row["first"] for row in rows] for rows in rows_by_batch(tmp_path)]
    # Not at 14, when a B could still come; at 15, when none could: without an event of the key.
    assert found == [[], [], [0]]


def test_what_a_later_event_could_change_waits(streaming: SparkSession, tmp_path: Path) -> None:
    asked = kinds("(A B C D | A B)").within(100)
    table = pa.table({"id": [0, 1, 2, 3], "ts": [1, 2, 3, 4], "kind": list("abcc")})
    write_pieces([table.slice(number, 1) for number in range(4)], tmp_path / "in")
    run(op.match(read_pieces(streaming, tmp_path / "in"), asked), tmp_path)
    found = [[row["n"] for row in rows] for rows in rows_by_batch(tmp_path)]
    assert found == [[], [], [], [2]]


def test_the_matches_of_one_query_are_events_of_the_next(
    streaming: SparkSession, tmp_path: Path
) -> None:
    table = events(200, 5, keys=2)
    pairs = kinds("A -> B").partition_by("key").within(20).measures(at="LAST(ts)").no_skip()
    # No pair for so long: only time that passes in the first query can tell.
    silence = (
        op.Query("silence")
        .partition_by("key")
        .order_by("at")
        .pattern("P -> !Q")
        .within(15)
        .measures(since="P.at")
        .no_skip()
    )
    write_pieces(pieces(table, 3, 6), tmp_path / "in")
    stream = read_pieces(streaming, tmp_path / "in")
    run(op.match(op.match(stream, pairs), silence), tmp_path)
    want = op.match(op.match(table, pairs), silence)
    assert want.num_rows
    assert ordered(rows_of(streaming, tmp_path)) == ordered(want.to_pylist())


@pytest.mark.parametrize(
    "measure", ["LAST(ts) - 500", pytest.param("PREV(A.ts)", marks=pytest.mark.soak)]
)
def test_matches_that_are_ordered_by_another_time_than_that_of_their_events(
    streaming: SparkSession, tmp_path: Path, measure: str
) -> None:
    pairs = kinds("A -> B").within(50).measures(at=measure)
    follow = op.Query("follow").order_by("at").pattern("P Q").measures(p="P.at", q="Q.at")
    times = [1000, 1100, 1101, 1200, 1300, 1310]
    table = pa.table({"id": times, "ts": times, "kind": list("dabdab")})
    write_pieces([table.slice(0, 3), table.slice(3, 2), table.slice(5)], tmp_path / "in")
    matched = op.match(read_pieces(streaming, tmp_path / "in"), pairs)
    run(op.match(matched, follow), tmp_path)
    want = op.match(op.match(table, pairs), follow)
    assert want.num_rows
    assert ordered(rows_of(streaming, tmp_path)) == ordered(want.to_pylist())
    told = follow.disorder(op.Punctuation())
    with pytest.raises(BindError, match="do not tell the time in 'at'"):
        op.match(matched, told)


def test_the_watermark_of_the_dataframe_is_the_slack(
    streaming: SparkSession, tmp_path: Path
) -> None:
    """And what comes out of a batch is what comes in process, where the same time is told."""
    second = 1_000_000
    at = [1, 5, 3.5, 9, 6, 8.5, 7.5, 12, 9.5, 11, 20]
    times = pa.array([int(one * second) for one in at], pa.timestamp("us", "UTC"))
    table = pa.table({"id": range(len(at)), "ts": times, "kind": list("acbdaabbaac")})
    parts = [table.slice(low, high - low) for low, high in ((0, 2), (2, 4), (4, 8), (8, 11))]
    write_pieces(parts, tmp_path / "in")
    stream = read_pieces(streaming, tmp_path / "in")
    asked = kinds("A -> B").disorder(op.Punctuation(late="side"))
    with pytest.raises(BindError, match="no watermark on 'ts'"):
        op.match(stream, asked)
    run(op.search(stream.withWatermark("ts", "2 seconds"), asked).outputs(), tmp_path)
    matcher, found, late = op.open(asked), [], []
    for part in parts:
        found += matcher.push(part).to_pylist()
        late += matcher.late["id"].to_pylist()
        # Spark's watermark is that of the batches before.
        latest = pc.max(table.slice(0, part["id"][-1].as_py() + 1)["ts"]).as_py()
        found += matcher.advance(latest - timedelta(seconds=2)).to_pylist()
    rows = rows_of(streaming, tmp_path)
    matches = [row["match"] for row in rows if row["output"] == "match"]
    assert ordered(matches) == ordered(found)
    assert {(row["first"], row["last"]) for row in matches} >= {(0, 2), (5, 7)}
    assert sorted(row["late"]["id"] for row in rows if row["output"] == "late") == sorted(late)
    assert late == [4, 8]


def test_a_session_without_rocksdb_is_told_what_to_set(
    streaming: SparkSession, tmp_path: Path
) -> None:
    streaming.conf.unset(PROVIDER)
    stream = streaming.readStream.format("rate").load().withColumnRenamed("timestamp", "ts")
    with pytest.raises(UnsupportedError, match="RocksDB") as raised:
        op.match(stream, op.Query().order_by("ts").pattern("A").measures(v="A.value"))
    assert PROVIDER in str(raised.value.hint)


def test_instances_fall_into_the_partitions_that_they_are_meant_for(spark: SparkSession) -> None:
    numbers = spark.range(50).select(sf.col("id").cast("int").alias("id"))
    for partitions in (1, 3, 7, 200):
        placed = numbers.select("id", sf.expr(f"pmod(hash(id), {partitions})").alias("place"))
        for row in placed.collect():
            assert partition_of(row["id"], partitions) == row["place"]


def test_a_join_and_a_pattern_over_it_give_what_they_give_in_process(
    streaming: SparkSession, tmp_path: Path
) -> None:
    sides = [some_rows(8, 120, side, end=400) for side in (0, 1)]
    tables = [pa.Table.from_pylist(*side) for side in zip(sides, (LEFT, RIGHT), strict=True)]
    settings: Any = {"on": "id", "within": 9, "time": "ts", "how": "left", "uncertain": 2}
    rng = np.random.default_rng(3)
    streams = []
    for name, table in zip(("left", "right"), tables, strict=True):
        late = table.take(np.argsort(table["ts"].to_numpy() + rng.uniform(0, 5, 120)))
        end = pa.Table.from_pylist([{"ts": END}], table.schema)
        write_pieces([pa.concat_tables([late, end])], tmp_path / name)
        streams.append(read_pieces(streaming, tmp_path / name))
    joined = op.join(streams[0], streams[1], **settings, disorder=op.KSlack(5))
    # Nothing follows, by the time that the join tells; of ties none is the first.
    columns = {f"own_{name}": f"A.{name}" for name in joined.columns[1:]}
    quiet = op.Query("quiet").partition_by("id").order_by("ts").pattern("A -> !B").within(12)
    asked = quiet.define(B="ts > A.ts AND v_right > 40").measures(columns).no_skip()
    run(op.match(joined, asked), tmp_path)
    assert ordered(rows_of(streaming, tmp_path)) == ordered(
        op.match(op.join(*tables, **settings), asked).to_pylist()
    )
    still = streaming.read.parquet(str(tmp_path / "right"))
    with pytest.raises(UnsupportedError, match="the right side is no stream"):
        op.join(streams[0], still, **settings)
    aside = op.Join(**settings, disorder=op.KSlack(5, late="side"))
    with pytest.raises(UnsupportedError, match="gives its result alone"):
        op.join(streams[0], streams[1], **settings, disorder=aside.disorder)
    with pytest.raises(UnsupportedError, match="the left side is on Spark"):
        op.join(still, tables[1], **settings)
    with pytest.raises(UnsupportedError, match="the right side is no stream, so no row"):
        op.search((streams[0], still), aside)
    for data in (streams[0], tables, (streams[0], tables[1])):
        with pytest.raises(UnsupportedError, match="over two streams of Spark"):
            op.search(data, aside)
    with pytest.raises(UnsupportedError, match="has two sides, and no other options"):
        op.search((streams[0], streams[1]), aside, sources=["left", "right"])
    with pytest.raises(UnsupportedError, match="only patterns without windows"):
        op.search((streams[0], streams[1]), aside).timed_out()


def test_what_takes_no_part_in_a_join_comes_out_beside_its_rows(
    streaming: SparkSession, tmp_path: Path
) -> None:
    rng = np.random.default_rng(4)
    pieces, streams = [], []
    for side, schema in enumerate((LEFT, RIGHT)):
        table = pa.Table.from_pylist(some_rows(5, 90, side, end=200), schema)
        table = table.take(np.argsort(table["ts"].to_numpy() + rng.uniform(0, 40, 90)))
        untimed = pa.Table.from_pylist([{"id": 1, "v": side}], schema)
        parts = [table.slice(0, 30), untimed, table.slice(30, 30), table.slice(60)]
        pieces.append([parts[0], pa.concat_tables(parts[1:3]), parts[3]])
        write_pieces(pieces[-1], tmp_path / str(side))
        streams.append(read_pieces(streaming, tmp_path / str(side)))
    disorder = op.KSlack(2, late="side", invalid="quarantine")
    join = op.Join(on="id", within=9, time="ts", how="left", disorder=disorder)
    matcher, wanted = op.open(join, schema=(LEFT, RIGHT)), []
    for parts in zip(*pieces, strict=True):
        for rows, side in zip(parts, ("left", "right"), strict=True):
            wanted += [("match", row) for row in matcher.push(rows, side).to_pylist()]
            wanted += [("late", row) for row in matcher.late.to_pylist()]
            wanted += [("invalid", row) for row in matcher.invalid.to_pylist()]
    run(op.search((streams[0], streams[1]), join).outputs(), tmp_path)
    found = [(row["output"], row[row["output"]]) for row in rows_of(streaming, tmp_path)]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    told = [(output, row.get("source")) for output, row in found]
    assert {*told} >= {(kind, side) for kind in ("late", "invalid") for side in ("left", "right")}
    assert ("match", None) in told


def test_sources_out_of_order_find_what_the_table_has(
    streaming: SparkSession, tmp_path: Path
) -> None:
    table, rng = events(120, 5), np.random.default_rng(5)
    east = np.arange(table.num_rows) % 2 == 0
    table = table.append_column("seq", table["id"])
    table = table.append_column("source", pa.array(np.where(east, "east", "west")))
    # Up to 20 behind in its source; the east comes a batch behind the west.
    piece = (table["ts"].to_numpy() + rng.integers(0, 21, table.num_rows)) // 250 + east
    piece[-1] = piece.max()
    parts = [table.filter(pa.array(piece == number)) for number in range(piece.max() + 1)]
    # The clock of the east is a thousand behind, which an exchange in the first batch tells.
    clock = {"asked": 0, "received": 1000, "answered": 1000, "heard": 0}
    names = pa.struct(dict.fromkeys(clock, pa.int64()))
    schema = table.schema.append(pa.field("clock", names)).append(pa.field("told", pa.int64()))
    told = pa.Table.from_pylist([{"source": "east", "clock": clock}], schema)
    sent = [
        pa.Table.from_pylist(
            [
                {**row, "ts": row["ts"] - 1000 * (row["source"] == "east")}
                for row in part.to_pylist()
            ],
            schema,
        )
        for part in parts
        if part.num_rows
    ]
    # Heartbeats, each by the clock of its source, say that this was all up to a time.
    last = table["ts"][-1].as_py()
    ends = [{"source": "west", "told": last + 1000}, {"source": "east", "told": last}]
    sent.append(pa.Table.from_pylist(ends, schema))
    write_pieces([pa.concat_tables([sent[0], told]), *sent[1:]], tmp_path / "in")
    stream = read_pieces(streaming, tmp_path / "in")
    asked = QUERIES["keyed"].disorder(op.KSlack(20))
    run(op.match(stream, asked, sources=["west", "east"], heartbeats="told"), tmp_path)
    found = rows_of(streaming, tmp_path)
    assert ordered(found) == ordered(op.match(table, asked).to_pylist())
    assert found
    text = op.explain(asked, stream, sources=["west", "east"], heartbeats="told").text
    assert "rows with told tell the time of their source, and are no events" in text
    assert "order: of 2 sources, each by itself: an event waits until one is seen" in text
    assert "rows with a clock compare that of their source" in text
    with pytest.raises(BindError, match="has no column 'source'"):
        op.match(stream.drop("source"), asked, sources=["west", "east"])
    with pytest.raises(UnsupportedError, match="only a stream has several sources"):
        op.match(streaming.read.parquet(str(tmp_path / "in")), asked, sources=["west"])
    # Where heartbeats tell the time, Spark need not.
    with pytest.raises(BindError, match="the stream has no watermark"):
        op.match(stream, asked.disorder(op.Punctuation()))
    assert op.explain(asked.disorder(op.Punctuation()), stream, heartbeats="told").text


#: Which rows come out where matches may be taken back.
EMITTED = (("speculative, by load", "confirmed"), ("corrected", "confirmed"))


def test_every_kind_of_disorder_gives_what_it_gives_in_process(
    streaming: SparkSession, tmp_path: Path
) -> None:
    rng, table = np.random.default_rng(3), events(300, 3)
    times = table["ts"].to_numpy()
    arrival = times + np.where(rng.random(len(times)) < 0.2, rng.integers(0, 90, len(times)), 0)
    table = table.append_column("seq", pa.array(np.arange(len(times))))
    table = table.append_column("at", pa.array(arrival))
    table = table.take(pa.array(np.argsort(arrival, kind="stable")))
    parts = [table.slice(low, 100) for low in range(0, table.num_rows, 100)]
    disorders = {
        "mp": op.MPKSlack(),
        "quantile": op.Quantile(0.9, at_most=50),
        "aq": op.AQKSlack(error=0.2, aggregate="sum", column="seq", window=20),
        "ldop": op.LDOP(window=50),
        "sequence": op.Sequence("60 us", arrival="at"),
        "speculative": op.Speculative(op.MPKSlack(), alpha=0.3, arrival="at"),
    }
    asked = {name: QUERIES["keyed"].disorder(one) for name, one in disorders.items()}
    corrected = op.KSlack(2, late="correct", horizon=200)
    asked["corrected"] = QUERIES["keyed, strict, compares"].disorder(corrected)
    asked["corrected windows"] = QUERIES["three stages, numbered keys"].disorder(corrected)
    by_load = op.Speculative(op.MPKSlack(), arrival="at")
    asked["speculative, by load"] = QUERIES["keyed"].disorder(by_load)
    emitted = {f"{name} {how}": asked[name].emit(how) for name, how in EMITTED}
    # How early its matches come depends on the machine, but not which are confirmed.
    del asked["speculative, by load"]
    asked = {**emitted, **asked}
    write_pieces(parts, tmp_path / "in")
    stream = read_pieces(streaming, tmp_path / "in")
    run(together({name: op.match(stream, q) for name, q in asked.items()}), tmp_path)
    found = apart(rows_of(streaming, tmp_path), asked)
    late = {}
    for name, query in asked.items():
        matcher = op.open(query)
        expected = [row for part in parts for row in matcher.push(part).to_pylist()]
        assert ordered(found[name]) == ordered(expected), name
        late[name] = matcher.order.late + matcher.order.corrected
    assert found["mp"]
    assert all({row["diff"] for row in found[name]} == {1, -1} for name in list(asked)[-2:])
    assert all(late.values())
    assert len(set(late.values())) > 2
    assert all(found[name] for name in emitted)


def test_a_group_reads_a_stream_once_and_finds_what_it_finds_in_process(
    streaming: SparkSession, tmp_path: Path
) -> None:
    """Also of several sources, and what each query sets aside."""
    rng, table = np.random.default_rng(5), events(200, 5)
    late = table["ts"].to_numpy() + np.where(rng.random(201) < 0.2, rng.integers(0, 40, 201), 0)
    table = table.take(pa.array(np.argsort(late, kind="stable")))
    table = table.append_column("source", pa.array(rng.choice(["east", "west"], 201)))
    parts = [table.slice(0, 120), table.slice(120)]
    names, sides = ("keyed", "time windows", "no key, absence"), ("drop", "side", "side")
    queries = [
        replace(QUERIES[name], name=name).disorder(op.KSlack(slack, late=side))
        for slack, (name, side) in enumerate(zip(names, sides, strict=True))
    ]
    group, sources = op.group(*queries), ["east", "west"]
    write_pieces(parts[:1], tmp_path / "in")
    stream = read_pieces(streaming, tmp_path / "in")
    text = op.explain(group, stream, sources=sources).text
    assert "2. order + match of all: 1 instance" in text
    assert "order: of 2 sources" in text
    query = run(op.search(stream, group, sources=sources).outputs(), tmp_path)
    assert len(query.recentProgress[0]["sources"]) == 1
    # It goes on from its checkpoint, but not with other queries.
    write_pieces(parts[1:], tmp_path / "in", begin=1)
    other = op.group(*queries[:2], queries[2].within(8))
    with pytest.raises(StreamingQueryException) as failed:
        run(op.search(stream, other, sources=sources).outputs(), tmp_path)
    error = spark_error(failed.value)
    assert isinstance(error, op.StateError), error
    assert "belongs to another query" in str(error)
    run(op.search(stream, group, sources=sources).outputs(), tmp_path)
    matcher, expected, aside = op.open(group, sources=sources, timeouts=True), [], []
    timed_out: list[dict[str, object]] = []
    for part in parts:
        for name, rows in matcher.push(part).items():
            expected += [{"query": name} | row for row in rows.to_pylist()]
            told = matcher.timed_out[name].to_pylist()
            timed_out += [{"query": name} | row for row in told]
        for name in names[1:]:
            aside += [{"query": name} | row for row in matcher.late[name].to_pylist()]
    found = rows_of(streaming, tmp_path)
    assert ordered(row["match"] for row in found if row["output"] == "match") == ordered(expected)
    assert ordered(row["late"] for row in found if row["output"] == "late") == ordered(aside)
    told = [row["timed_out"] for row in found if row["output"] == "timed_out"]
    assert ordered(told) == ordered({"key": None} | row for row in timed_out)
    assert {row["query"] for row in expected} == set(names)
    assert {row["query"] for row in aside} == set(names[1:])
    assert {row["query"] for row in timed_out} >= {"keyed"}
    with pytest.raises(UnsupportedError, match="and this is none"):
        op.match(streaming.read.parquet(str(tmp_path / "in")), group)
    assert op.search(stream, group, sources=sources).timed_out().columns[0] == "query"
    assert op.match(stream, group, sources=sources).columns[0] == "query"


def test_matches_that_tell_the_time_to_a_part_of_a_group_are_refused(
    streaming: SparkSession, tmp_path: Path
) -> None:
    write_pieces([events(5, 1)], tmp_path / "in")
    found = op.Query("found").order_by("ts").pattern("A B").measures(at="B.ts", v="A.v").within(5)
    matches = op.match(read_pieces(streaming, tmp_path / "in"), found)
    timed, other = (op.Query(name).order_by(name).pattern("A") for name in ("at", "v"))
    assert "order + match of all" in op.explain(op.group(timed), matches).text
    with pytest.raises(op.BindError, match="'found' tell the time to some queries of the group"):
        op.match(matches, op.group(timed, other))


def test_explain_shows_the_stages(streaming: SparkSession, tmp_path: Path) -> None:
    write_pieces([events(5, 1)], tmp_path / "in")
    stream = read_pieces(streaming, tmp_path / "in")
    text = QUERIES["three stages"].explain(stream).text
    assert "2. order + split: 1 instance" in text
    assert "3. match: 2 instances" in text
    assert "4. merge: 1 instance" in text


def test_a_timer_of_the_clock_lets_events_go_and_a_batch_that_is_run_again_decides_the_same(
    streaming: SparkSession, tmp_path: Path
) -> None:
    asked = (
        op.Query("q")
        .partition_by("key")
        .order_by("ts")
        .pattern("A B")
        .define(B="v > A.v")
        .measures(at="B.ts")
        .disorder(op.Sequence("1 ms"))
    )
    table = pa.table({"ts": [3, 1], "v": [3, 1], "key": ["x", "x"], "seq": [3, 1]})
    write_pieces([table], tmp_path / "in")
    found = op.match(read_pieces(streaming, tmp_path / "in"), asked)
    seen: list[tuple[int, list[int]]] = []

    def take(batch: DataFrame, number: int) -> None:
        rows = [row.at for row in batch.collect()]
        seen.append((number, rows))
        if rows and len([one for one in seen if one[1]]) == 1:
            raise RuntimeError("lost before it was committed")

    def started() -> StreamingQuery:
        written = found.writeStream.foreachBatch(take).trigger(processingTime="0 seconds")
        return written.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    # No event comes that closes the gap: Spark runs a batch without events, and its time is up.
    with pytest.raises(StreamingQueryException, match="lost before"):
        started().awaitTermination(60)
    query = started()
    deadline = time.monotonic() + 60
    while len([one for one in seen if one[1]]) < 2 and time.monotonic() < deadline:
        assert query.isActive
        time.sleep(0.05)
    query.stop()
    first, again = [one for one in seen if one[1]]
    assert first == again
    assert first[1] == [3]
    assert first[0] > 0, "the batch with the events does not give the match"
