"""Runs that are recovered by a replay: the same call goes on where a run was lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import outpace as op

CHAIN = (
    op.Query("q")
    .order_by("ts")
    .pattern("A -> B")
    .define(A="type = 'a'", B="type = 'b'")
    .measures(a="A.seq", b="B.seq")
)
COUNTED = CHAIN.over(op.windows.count(40, slide=10), duplicates=True, numbered=True)
TIMED = CHAIN.over(op.windows.time("60 ms", slide="20 ms"), numbered=True)
QUERIES = {
    "partitions": CHAIN,
    "count": COUNTED,
    "time": TIMED.disorder(op.KSlack("3 ms")),
    "adaptive": COUNTED.disorder(op.MPKSlack()),
    "within": CHAIN.within("9 ms").disorder(op.KSlack("2 ms")),
}
SHARED = {
    "shared count": COUNTED.instances(2),
    "shared time": TIMED.disorder(op.KSlack("3 ms")).instances(
        3, schedule=op.schedulers.RoundRobin()
    ),
}


def sources(count: int, events: int = 1500) -> list[op.sources.Source]:
    """Return sources that give the same events whenever they are read."""
    return [
        op.sources.simple_events(events, types="abcd", seed=seed, id=f"s{seed}")
        for seed in range(count)
    ]


def rows_of(tables: Sequence[pa.Table]) -> list[dict[str, object]]:
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize(
    ("name", "count"),
    [("partitions", 1), ("count", 2), ("time", 1), ("adaptive", 2), ("within", 1)],
)
def test_the_same_call_goes_on_where_a_run_was_lost(name: str, count: int, tmp_path: Path) -> None:
    query = QUERIES[name]
    with op.run(query, sources(count), batch_rows=100) as run:
        expected = rows_of(list(run))
    found: list[dict[str, object]] = []
    lost = done = False
    for number in range(30):
        log = op.recover.RetainedLog(tmp_path / "log", segment_bytes=20_000)
        with op.run(query, sources(count), batch_rows=100, recovery="replay", log=log) as again:
            done = True
            for taken, table in enumerate(again):
                if taken == 3 + number % 3:
                    # It has come out, but nobody has said that it is taken for good.
                    done, lost = False, True
                    break
                found += table.to_pylist()
                again.acknowledge()
        if done:
            break
    assert found == expected
    assert done
    assert lost
    known = again.metrics.operator
    assert known.replays == 1
    assert known.recover_s > 0
    assert known.retained < 200
    assert known.skipped_share > 0.8
    assert known.retained_bytes > 0
    # What was acknowledged is over: nothing comes again.
    log = op.recover.RetainedLog(tmp_path / "log")
    with op.run(query, sources(count), recovery="replay", log=log) as over:
        assert list(over) == []


@pytest.mark.parametrize("query", SHARED.values(), ids=SHARED)
def test_instances_that_share_windows_go_on_where_a_run_was_lost(
    query: op.Query, tmp_path: Path
) -> None:
    with op.run(query.instances(1), sources(2), batch_rows=300) as run:
        expected = rows_of(list(run))
    found: list[dict[str, object]] = []
    # The number of instances may be another one each time.
    for instances in (query.instance_count, 1, query.instance_count):
        again = op.run(
            query.instances(instances, schedule=query.scheduler),
            sources(2),
            batch_rows=300,
            recovery="replay",
            log=op.recover.RetainedLog(tmp_path / "log"),
        )
        with again:
            for taken, table in enumerate(again):
                if taken == 2 and len(found) < len(expected) // 2:
                    break
                found += table.to_pylist()
                again.acknowledge()
        if instances > 1:
            assert len(again.metrics.instances) == instances
            assert sum(one.events for one in again.metrics.instances) > 0
    assert found == expected
    assert again.metrics.operator.skipped_share > 0.5


def test_metrics_of_recovery_come_with_the_others(tmp_path: Path) -> None:
    log = op.recover.RetainedLog(tmp_path / "log")
    with op.run(COUNTED, sources(1), batch_rows=500, recovery="replay", log=log) as run:
        tables = list(run)
        assert run.metrics.operator.retained == 1500
        assert run.metrics.operator.replays == run.metrics.operator.doubles == 0
    assert rows_of(tables)
    retained = run.metrics.over_time("operator", "retained")["value"].to_pylist()
    assert retained[0] < retained[-1]


def test_sources_with_fewer_events_than_were_taken_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with op.run(
        COUNTED, sources(1), recovery="replay", log=op.recover.RetainedLog(path), batch_rows=500
    ) as run:
        next(run)
    log = op.recover.RetainedLog(path)
    assert log.came == 500
    again = op.run(COUNTED, sources(1, events=300), recovery="replay", log=log)
    with pytest.raises(op.DataError, match="'s0' has 200 events less"), again:
        list(again)
    other = op.run(COUNTED, sources(2), recovery="replay", log=op.recover.RetainedLog(path))
    with pytest.raises(op.StateError, match=r"other sources|another query"), other:
        list(other)
    # A refused run leaves the log as it was.
    with op.run(COUNTED, sources(1), recovery="replay", log=op.recover.RetainedLog(path)) as right:
        assert rows_of(list(right))


def test_a_log_without_room_ends_the_run_until_matches_are_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = op.recover.RetainedLog(path, events=600)
    run = op.run(COUNTED, sources(1), batch_rows=100, recovery="replay", log=log)
    with pytest.raises(op.DataError, match=r"no room for \d+ more events"), run:
        list(run)
    log = op.recover.RetainedLog(path, events=600)
    found = []
    # A batch has more events than there is room for, and is taken piece by piece.
    with op.run(COUNTED, sources(1), batch_rows=1000, recovery="replay", log=log) as again:
        for table in again:
            found += table.to_pylist()
            again.acknowledge()
    with op.run(COUNTED, sources(1)) as whole:
        assert found == rows_of(list(whole))


def test_what_is_not_recovered_is_refused(tmp_path: Path) -> None:
    log = op.recover.RetainedLog(tmp_path / "log")
    with pytest.raises(op.UnsupportedError, match="no recovery 'state'"):
        op.run(CHAIN, sources(1), recovery="state", log=log)  # type: ignore[arg-type]  # refused
    with pytest.raises(op.UnsupportedError, match="no recovery None"):
        op.run(CHAIN, sources(1), log=log)
    with pytest.raises(op.BindError, match="the retained log of a run"):
        op.run(CHAIN, sources(1), recovery="replay")
    with pytest.raises(op.UnsupportedError, match="a single query"):
        op.run(op.group(CHAIN, replace(COUNTED, name="r")), sources(1), recovery="replay", log=log)
    corrected = CHAIN.disorder(op.KSlack("2 s", late="correct", horizon="9 s"))
    with pytest.raises(op.UnsupportedError, match="late events correct"):
        list(op.run(corrected, sources(1), recovery="replay", log=log))
    plain = op.run(CHAIN, sources(1))
    with pytest.raises(op.DataError, match="not recovered by a replay"):
        plain.acknowledge()


#: Appends matches to a file, each as a line, and leaves out those that are there already.
KILLED = """
import sys
from dataclasses import replace
from pathlib import Path
import outpace as op
from test_recovered_operator import QUERIES, SHARED, sources
query, count, folder = {**QUERIES, **SHARED}[sys.argv[1]], int(sys.argv[2]), Path(sys.argv[3])
there = folder / "matches"
lines = there.read_text().splitlines(keepends=True) if there.exists() else []
known = {line for line in lines if line.endswith("\\n")}
there.write_text("".join(line for line in lines if line in known))
log = op.recover.RetainedLog(folder / "log", segment_bytes=20_000)
with op.run(query, sources(count, 600), batch_rows=20, recovery="replay", log=log) as run:
    for table in run:
        with there.open("a") as file:
            for row in table.to_pylist():
                line = f"{row}\\n"
                if line not in known:
                    file.write(line)
                    file.flush()
        run.acknowledge()
        print(len(known), flush=True)
print("done", flush=True)
"""


def kill_and_compare(name: str, count: int, folder: Path, random: Random, kills: int) -> None:
    """Kill a run so many times, at any moment, then let it end and compare what it wrote."""
    program = [sys.executable, "-c", KILLED, name, str(count), str(folder)]
    for number in range(kills + 1):
        with subprocess.Popen(
            program, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent
        ) as process:
            assert process.stdout is not None
            if number == kills:
                assert process.stdout.read().endswith("done\n")
                break
            for _ in range(random.randint(1, 12)):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
    with op.run({**QUERIES, **SHARED}[name], sources(count, 600), batch_rows=20) as run:
        expected = [f"{row}\n" for row in rows_of(list(run))]
    assert (folder / "matches").read_text().splitlines(keepends=True) == expected


def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    kill_and_compare("adaptive", 1, tmp_path, Random(1), kills=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40))
def test_runs_that_are_killed_at_any_moment_go_on(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    name = random.choice(["count", "time", "adaptive", *SHARED])
    kill_and_compare(name, random.choice([1, 2]), tmp_path, random, kills=5)
