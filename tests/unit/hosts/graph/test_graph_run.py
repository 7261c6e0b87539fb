"""Graphs with real processes and sockets: what comes out is the same, whatever is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.graphs import (
    WINDOWS,
    Dying,
    PacedRows,
    chain,
    diamond,
    draw_kills,
    expected,
    letters,
    pairs,
    run_with_kills,
    values,
)

import outpace as op
from outpace.pattern.node import Node
from outpace.pattern.query import Query

ROWS = letters(4000, seed=1)
BATCHES = 100


def test_without_kills_a_chain_gives_what_its_queries_give_one_by_one() -> None:
    operators = chain(WINDOWS["count"])
    run = run_with_kills(ROWS, operators, {})
    assert run.found["three"].equals(expected(ROWS, operators)["three"])
    metrics = run.metrics.operators
    assert [metrics[name].replays for name in ("one", "two", "three")] == [0, 0, 0]
    assert metrics["one"].events <= ROWS.num_rows
    assert metrics["one"].doubles == 0


@pytest.mark.parametrize(
    "kills",
    [
        {40: ("two",), 70: ("two",)},
        {30: ("one", "two"), 60: ("two", "three")},
        {50: ("one", "two", "three")},
    ],
    ids=["one", "adjacent", "all"],
)
def test_a_chain_gives_the_same_when_operators_are_killed(
    kills: dict[int, tuple[str, ...]],
) -> None:
    operators = chain(WINDOWS["time"])
    run = run_with_kills(ROWS, operators, kills)
    assert run.killed
    assert run.found["three"].equals(expected(ROWS, operators)["three"])
    assert sum(one.replays for one in run.metrics.operators.values()) >= len(run.killed)
    assert all(run.metrics.operators[name].recover_s > 0 for name in run.killed)


def test_a_diamond_gives_the_same_when_operators_are_killed() -> None:
    operators = diamond(WINDOWS["count"])
    run = run_with_kills(ROWS, operators, {30: ("left",), 60: ("left", "join")})
    assert run.killed
    assert run.found["join"].equals(expected(ROWS, operators)["join"])


def disordered(rows: pa.Table) -> pa.Table:
    """Return events of which some come later than others of their time, by 12 at most."""
    delays = np.random.default_rng(7).choice([0, 0, 0, 4, 12], rows.num_rows)
    return rows.take(np.argsort(np.array(rows["ts"]) + delays, kind="stable"))


def given_one_by_one(query: Query, slack: int, inputs: dict[str, pa.Table]) -> pa.Table:
    """Return what a query gives for events that come one by one, as a column says."""
    several = list(inputs) if len(inputs) > 1 else None
    stream = op.open(query.disorder(op.KSlack(slack, arrival="moment")), sources=several)
    found = [
        stream.push(
            rows.append_column("moment", pa.array(range(rows.num_rows))), name if several else None
        )
        for name, rows in inputs.items()
    ]
    return pa.concat_tables([*found, stream.finish()])


@pytest.mark.parametrize("kinds", [("time", "count"), ("count", None)], ids=["windows", "last"])
def test_events_out_of_order_give_the_same_when_operators_are_killed(
    kinds: tuple[str, str | None],
) -> None:
    rows = disordered(ROWS.slice(0, 2400))
    first, last = WINDOWS[kinds[0]], None if kinds[1] is None else WINDOWS[kinds[1]]
    # Matches come in the order of their ends, and are read in that of their beginnings.
    begun = values(last).order_by("begin")
    # Some events are late, and some matches.
    queries = {
        "left": (pairs("a", "b", first), 8, ["events"]),
        "right": (pairs("c", "d", first, keyed=True), 8, ["events"]),
        "join": (begun, 15, ["left", "right"]),
        "single": (begun, 15, ["left"]),
    }
    operators = {
        name: query.disorder(op.KSlack(slack)).of(inputs)
        for name, (query, slack, inputs) in queries.items()
    }
    run = run_with_kills(rows, operators, {20: ("left", "join"), 40: ("join", "single", "right")})
    assert run.killed
    known = {"events": rows}
    for name, (query, slack, inputs) in queries.items():
        known[name] = given_one_by_one(query, slack, {one: known[one] for one in inputs})
    for name in ("join", "single"):
        assert run.found[name].num_rows > 0
        assert run.found[name].equals(known[name])


def test_a_log_has_each_match_once_when_its_writer_is_killed(tmp_path: Path) -> None:
    operators = chain(WINDOWS["predicate"])
    kills = {30: ("sink of three",), 60: ("three", "sink of three")}
    run = run_with_kills(ROWS, operators, kills, sinks={"three": tmp_path / "log"})
    assert "sink of three" in run.killed
    assert run.found == {}
    log = op.log.open(tmp_path / "log")
    assert log.read().equals(expected(ROWS, operators)["three"])


def test_a_stuck_operator_is_started_again() -> None:
    operators = chain(WINDOWS["count"])
    run = run_with_kills(ROWS, operators, {50: ("two",)}, sign=signal.SIGSTOP, patience_s=2.0)
    assert run.killed == ["two"]
    assert run.metrics.operators["two"].replays >= 1
    assert run.found["three"].equals(expected(ROWS, operators)["three"])


@pytest.mark.soak
@pytest.mark.parametrize("kind", [*WINDOWS, None])
@pytest.mark.parametrize("seed", range(10))
def test_chains_give_the_same_whatever_is_killed(
    tmp_path: Path, kind: str | None, seed: int
) -> None:
    operators = chain(WINDOWS[kind] if kind else None, keyed=seed % 2 == 1)
    kill_at_any_time(tmp_path, operators, seed)


@pytest.mark.soak
@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("seed", range(10))
def test_diamonds_give_the_same_whatever_is_killed(tmp_path: Path, kind: str, seed: int) -> None:
    kill_at_any_time(tmp_path, diamond(WINDOWS[kind]), seed)


def kill_at_any_time(folder: Path, operators: Mapping[str, Query | Node], seed: int) -> None:
    """Kill operators, and where matches go to a log the sink, at moments that a seed draws."""
    rows, last = letters(8000, seed), list(operators)[-1]
    log = folder / "log" if seed % 4 > 1 else None
    names = [*operators, *([] if log is None else [f"sink of {last}"])]
    sinks = None if log is None else {last: log}
    kills = draw_kills(seed, names, 200, 5)
    run = run_with_kills(rows, operators, kills, sinks=sinks, wait=False)
    assert run.killed
    found = run.found[last] if log is None else op.log.open(log).read()
    assert found.equals(expected(rows, operators)[last])


def test_matches_come_out_where_they_are_asked_for() -> None:
    operators = chain(WINDOWS["count"])
    source = PacedRows("events", rows=ROWS.slice(0, 800))
    taken: list[pa.Table] = []
    graph = op.graph(source, operators, {"one": taken.append, "three": taken.append})
    with graph.run() as run:
        assert list(run) == []
    want = expected(ROWS.slice(0, 800), operators)
    assert sum(table.num_rows for table in taken) == want["one"].num_rows + want["three"].num_rows


def test_a_source_without_events_gives_nothing() -> None:
    source = PacedRows("events", rows=ROWS.slice(0, 0))
    with op.graph(source, chain(WINDOWS["count"])).run() as run:
        assert run.tables() == {}


def test_a_reader_that_is_slow_keeps_the_sources_waiting() -> None:
    rows, read = letters(4000, 2), list[int]()
    source = PacedRows("events", rows=rows, before=read.append)
    query = op.Query("all").order_by("ts").pattern("A").measures(at="A.ts")
    with op.graph(source, {"all": query}, queue_events=100).run() as run:
        first = next(run)[1]
        before = len(read)
        time.sleep(0.5)
        # Nobody takes more, so that no more is read than links and reader hold.
        assert len(read) - before <= 8
        rest = sum(table.num_rows for _, table in run)
    assert first.num_rows + rest == rows.num_rows


def test_an_error_in_the_data_ends_the_run_and_names_the_operator() -> None:
    rows = ROWS.slice(0, 400).set_column(0, "ts", pa.array([*range(399), 0]))
    source = PacedRows("events", rows=rows)
    with op.graph(source, {"one": pairs("a", "b", None)}).run() as run:
        with pytest.raises(op.DataError, match="comes before") as caught:
            run.tables()
        assert "operator 'one'" in str(caught.value)
    assert run.processes == {}


def test_an_operator_that_is_always_lost_ends_the_run() -> None:
    source = PacedRows("events", rows=ROWS.slice(0, 400))
    query = op.Query("die").order_by("ts").apply(Dying).over(WINDOWS["count"])
    graph = op.graph(source, {"one": query})
    with graph.run() as run, pytest.raises(op.InstanceError, match="'one' was lost 11 times"):
        run.tables()


def test_processes_end_with_the_run() -> None:
    source = PacedRows("events", rows=ROWS)
    with op.graph(source, chain(WINDOWS["count"])).run() as run:
        next(run)
        pids = list(run.processes.values())
        assert len(pids) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert threading.active_count() < 20


def test_two_sources_are_merged_as_a_run_merges_them() -> None:
    east, west = (
        op.sources.simple_events(500, seed=seed, types="abc", id=f"s{seed}") for seed in (1, 2)
    )
    query = (
        op.Query("pairs")
        .order_by("ts")
        .pattern("A B")
        .define(A="type = 'a'")
        .measures(at="B.ts", type="B.type")
    )
    with op.graph([east, west], {"pairs": query}).run() as run:
        found = run.tables()["pairs"]
    with op.run(query, [east, west]) as tables:
        want = pa.concat_tables(list(tables))
    assert found.num_rows > 0
    assert found.equals(want)


def test_a_second_operator_may_read_a_source_and_an_operator() -> None:
    window = WINDOWS["time"]
    first = pairs("a", "b", window)
    rows = ROWS.slice(0, 2000)
    second = op.Query("s").order_by("ts").pattern("A B").define(A="v < 50", B="v > 50")
    shown = first.measures(ts="B.ts", v="B.v")
    operators = {"one": shown.of("events"), "two": second.measures(at="B.ts").of("events", "one")}
    run = run_with_kills(rows, operators, {20: ("one",), 35: ("one", "two")})
    assert run.found["two"].equals(expected(rows, operators)["two"])
