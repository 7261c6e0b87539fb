"""The process host: results of one process, and nothing left behind however it ends."""

from __future__ import annotations

import _thread
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.parallel_operators import Dies, Fails, Loses, Rises, Sleeps

import outpace as op
from outpace.engine.message import EventsArrived, SourceEnded
from outpace.engine.operator_spec import OperatorSpec
from outpace.hosts.processes.parallel_operator import ParallelOperator
from outpace.ingest.source import Source
from outpace.pattern.bind.disorder import bind_disorder
from outpace.studies.space_processes import discarding

SHARED_MEMORY = Path("/dev/shm")
#: What this process has mapped; shared memory of multiprocessing has this in its name.
MAPPED = Path("/proc/self/maps")
ARENA = "pym-"


def table(size: int = 2000) -> pa.Table:
    values = np.random.default_rng(7).integers(0, 5, (2, size))
    return pa.table({"ts": np.arange(size), "key": values[0], "x": values[1]})


@dataclass(frozen=True)
class Listed(Source):
    """The rows of a table as a source, every other one of them where there are two."""

    first: int = 0
    step: int = 1
    size: int = 2000

    def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
        mine = table(self.size).take(pa.array(np.arange(self.first, self.size, self.step)))
        mine = mine.append_column("seq", pa.array(np.arange(mine.num_rows)))
        yield from mine.to_batches(max_chunksize=rows)


@dataclass(frozen=True)
class Endless(Source):
    """Events without end; `read` has one entry for each batch."""

    read: tuple[list[int], ...] = ([],)

    def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
        first = 0
        while True:
            self.read[0].append(first)
            numbers = np.arange(first, first + rows)
            yield pa.record_batch({"ts": numbers, "seq": numbers, "x": numbers % 5})
            first += rows


def pairs(windows: object = None) -> op.Query:
    return (
        op.Query()
        .order_by("ts")
        .pattern("A B+")
        .define(A="x > 0", B="x > PREV(x)")
        .measures(first="FIRST(ts)", last="LAST(ts)")
        .over(windows or op.windows.count(50, slide=20), numbered=True)
    )


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """No test leaves a process of an instance, or shared memory, behind."""
    yield
    assert instance_processes() == []
    gc.collect()
    assert shared_bytes() < 1 << 23
    if SHARED_MEMORY.is_dir():
        mine = f"{ARENA}{os.getpid()}-"
        assert not [path for path in SHARED_MEMORY.iterdir() if path.name.startswith(mine)]


def instance_processes() -> list[str]:
    return [process.name for process in multiprocessing.active_children()]


def shared_bytes() -> int:
    """The shared memory that is mapped; multiprocessing keeps small pieces to use them again."""
    if not MAPPED.exists():
        return 0
    lines = [line for line in MAPPED.read_text().splitlines() if ARENA in line]
    bounds = [line.split()[0].split("-") for line in lines]
    return sum(int(high, 16) - int(low, 16) for low, high in bounds)


@pytest.mark.parametrize(
    ("windows", "schedule"),
    [
        (op.windows.count(50, slide=20), op.schedulers.RoundRobin()),
        (op.windows.time(30, slide=10), None),
        (op.windows.between(open="x = 4", close="x = 0"), op.schedulers.LeastLoaded()),
    ],
)
def test_processes_find_what_one_process_finds(
    windows: object, schedule: op.schedulers.Scheduler | None
) -> None:
    query = pairs(windows).measures(first="FIRST(ts)", id=op.match_id())
    # The ids of rows are their places in the table, whose order is another one.
    rows = table().take(pa.array(np.random.default_rng(3).permutation(table().num_rows)))
    for content in (table(), rows):
        expected = op.match(content, query)
        assert expected.num_rows
        assert op.match(content, query.instances(2, schedule)).equals(expected)


def test_a_key_stays_with_its_instance() -> None:
    query = pairs(op.windows.count(10, slide=3)).partition_by("key")
    expected = op.match(table(), query)
    assert expected.num_rows
    assert op.match(table(), query.instances(3)).equals(expected)


def test_an_operator_of_a_user_runs_in_processes_that_tell_their_progress() -> None:
    query = op.Query().order_by("ts").apply(Rises).over(op.windows.count(30), numbered=True)
    expected = op.match(table(), query)
    assert expected.num_rows
    told: list[tuple[int, int]] = []
    found = op.match(table(), query.instances(2), progress=lambda *place: told.append(place))
    assert found.equals(expected)
    size = table().num_rows
    assert told == [(0, size), (size, size)]


def test_a_query_that_reads_no_column_gets_all_events() -> None:
    query = op.Query().pattern("A B").over(op.windows.count(7, slide=3))
    expected = op.match(table(), query)
    assert expected.num_rows
    assert op.match(table(), query.instances(2)).equals(expected)


def test_a_small_table_is_not_given_more_processes_than_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def start(spec: OperatorSpec) -> ParallelOperator:
        asked.append(spec.query.instance_count)
        return ParallelOperator(spec)

    monkeypatch.setattr("outpace.hosts.processes.run.ParallelOperator", start)
    query = pairs(op.windows.count(2))
    small = table(2)
    assert op.match(small, query.instances(1024)).equals(op.match(small, query))
    assert asked == [2]
    with pytest.raises(op.BindError, match="at most 1024 instances"):
        op.match(small, query.instances(1025))


def test_too_many_instances_are_refused_before_anything_is_made_for_them() -> None:
    query = pairs(op.windows.count(10)).instances(10**9)
    with pytest.raises(op.BindError, match="at most 1024 instances"):
        op.run(query, op.sources.simple_events(10))


def test_a_run_starts_no_more_processes_than_are_of_use() -> None:
    """What is made of a query is seen before anything is started."""
    query = op.Query().order_by("ts").pattern("A").over(op.windows.count(10)).instances(1024)
    source = op.sources.simple_events(30)
    useful = min(1024, 8 * (os.cpu_count() or 1))
    assert len(op.run(query, source).metrics.instances) == useful
    # Who says which instance gets a window has as many as said.
    scheduled = query.instances(1024, schedule=op.schedulers.RoundRobin())
    assert len(op.run(scheduled, source).metrics.instances) == 1024


def test_small_slots_and_held_rows_change_nothing() -> None:
    # Windows are much larger than the slots that an instance may hold: it must get copies.
    query = pairs(op.windows.count(900, slide=300)).instances(2)
    expected = op.match(table(), query.instances(1))
    with ParallelOperator(OperatorSpec(query, table().schema), memory=1 << 17) as operator:
        found = list(operator.push(EventsArrived(table())))
        found += operator.push(SourceEnded())
        found += operator.rest()
    assert pa.concat_tables(found).equals(expected)


def test_sources_are_run_as_one_stream_in_order() -> None:
    sources = [Listed("a", first=0, step=2), Listed("b", first=1, step=2)]
    query = pairs().instances(2)
    with op.run(query, sources, batch_rows=150) as run:
        found = pa.concat_tables(list(run))
    assert found.equals(op.match(table(), query.instances(1)))
    assert [run.metrics.sources[source].events for source in "ab"] == [1000, 1000]
    assert run.metrics.operator.events == 2000
    assert run.metrics.operator.matches == found.num_rows
    assert run.metrics.operator.sent == sum(one.events for one in run.metrics.instances)
    assert run.metrics.operator.duplication == pytest.approx(1 + 30 / (3 * 20), abs=0.1)
    assert run.metrics.table.num_rows


@dataclass(frozen=True)
class Shuffled(Listed):
    """The rows of a source, each moved by a few places."""

    def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
        mine = pa.Table.from_batches(list(super().batches()))
        places = np.arange(mine.num_rows) + np.random.default_rng(3).integers(0, 9, mine.num_rows)
        mine = mine.take(pa.array(np.argsort(places, kind="stable")))
        yield from mine.to_batches(max_chunksize=rows)


@pytest.mark.parametrize("several", [1, 2])
@pytest.mark.parametrize("windows", [op.windows.count(50, slide=20), op.windows.time(50, slide=20)])
def test_sources_out_of_order_are_brought_into_order(several: int, windows: object) -> None:
    sources = [Shuffled(f"s{first}", first=first, step=several) for first in range(several)]
    query = pairs(windows).instances(2)
    with op.run(query.disorder(op.KSlack(9 * several)), sources, batch_rows=150) as run:
        found = pa.concat_tables(list(run))
    assert found.equals(op.match(table(), query.instances(1)))
    assert not any(source.late for source in run.metrics.sources.values())


def test_events_of_several_sources_go_on_early() -> None:
    sources = [Shuffled(f"s{first}", first=first, step=2) for first in range(2)]
    query = pairs(op.windows.time(50, slide=20)).instances(2)
    early, current = query.disorder(op.Speculative(18, alpha=0)), op.CurrentMatches()
    with op.run(early, sources, batch_rows=150) as run:
        for found in run:
            current.apply(found)
    expected = op.match(table(), query.instances(1))
    assert all(current.table["confirmed"].to_pylist())
    given = current.table.select(expected.column_names).to_pylist()
    assert Counter(map(repr, given)) == Counter(map(repr, expected.to_pylist()))
    assert run.metrics.operator.rollbacks
    assert not any(source.late for source in run.metrics.sources.values())


@pytest.mark.parametrize("several", [1, 2])
def test_the_queries_of_a_group_read_sources_once(several: int) -> None:
    sources = [Shuffled(f"s{first}", first=first, step=several) for first in range(several)]
    single = replace(pairs(), windows=None, numbered=False).within(9)
    queries = [
        replace(pairs(), name="windows").disorder(op.KSlack(9 * several)),
        replace(single, name="single").disorder(op.KSlack(10 * several)),
        replace(single, name="keyed").partition_by("key").disorder(op.KSlack(20 * several)),
        replace(single, name="hasty").disorder(op.KSlack(1)),
        replace(pairs(), name="too").disorder(op.KSlack(1)),
    ]
    late: Counter[tuple[str, str]] = Counter()

    def count(query: str, why: str, rows: pa.Table) -> None:
        late[query, why] += rows.num_rows

    found: dict[str, list[pa.Table]] = {query.name: [] for query in queries}
    with op.run(op.group(*queries), sources, batch_rows=150, aside=count) as run:
        for tables in run:
            for name, matches in tables.items():
                found[name].append(matches)
    assert repr(run).startswith("run of windows, single, keyed, hasty, too over s0")
    counted = run.metrics.operator
    every = [one.num_rows for tables in found.values() for one in tables]
    assert (counted.events, counted.matches) == (2000, sum(every))
    for query in queries[:3]:
        expected = op.match(table(), query).to_pylist()
        given = pa.concat_tables(found[query.name]).to_pylist()
        assert sorted(map(repr, given)) == sorted(map(repr, expected)), query.name
    assert set(late) == {("hasty", "late"), ("too", "late")}
    known = run.metrics.sources.values()
    assert sum(source.late for source in known) == late["hasty", "late"] == late["too", "late"]
    assert {source.slack for source in known} == {20 * several}
    assert counted.latency > 1
    assert counted.longest_wait > 10


def test_what_a_group_takes_back_is_counted() -> None:
    early = op.Speculative(60, alpha=0, checkpoints=100)
    queries = [replace(pairs(), name=name).disorder(early) for name in ("one", "two")]
    queries.append(replace(pairs(), name="sure").disorder(op.KSlack(60)))
    with op.run(op.group(*queries), Delayed("a"), batch_rows=97) as run:
        tables = [found[name] for found in run for name in ("one", "two") if name in found]
    told = pa.concat_tables(tables).to_pylist()
    counted = run.metrics.operator
    gone, sure = (sum(row["diff"] < 0 for row in told), sum(row["confirmed"] for row in told))
    assert (counted.retracted, counted.confirmed, counted.alpha) == (gone, sure, 0)
    assert gone > 0
    assert min(counted.rollbacks, counted.redeliveries, counted.checkpoint_bytes) > 0
    assert counted.share_retracted == gone / counted.tentative
    assert (counted.slack, counted.full) == (60, 0)
    assert 0 <= counted.tentative_latency < counted.confirmed_latency
    stream = op.open(op.group(*queries))
    stream.push(pa.Table.from_batches(Delayed("a").batches()))
    stream.finish()
    known = stream.speculation
    assert (known.confirmed, known.alpha) == (sure, 0)
    assert known.checkpoints > 0


def test_what_does_not_run_in_a_group_is_told_by_name() -> None:
    good = pairs().disorder(op.KSlack(2))
    bad = replace(good, name="bad").all_rows_per_match(unmatched=True)
    with pytest.raises(op.UnsupportedError, match="cannot return unmatched rows") as caught:
        op.run(op.group(good, bad), Listed("a"))
    assert caught.value.where == "query 'bad'"


@pytest.mark.parametrize(
    ("source", "most"),
    [(op.sources.simple_events(20_000), 12), (op.sources.stock_events(20_000), 24)],
)
def test_events_travel_in_few_bytes(source: Source, most: int) -> None:
    # An operator of a user gets all columns.
    query = discarding().over(op.windows.count(1000)).instances(2)
    with op.run(query, source, rate_control=None) as run:
        assert list(run) == []
    assert 0 < run.metrics.operator.bytes / run.metrics.operator.events <= most


def test_late_and_invalid_events_are_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    @dataclass(frozen=True)
    class Late(Source):
        def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"ts": [1, 2, 90], "seq": [0, 1, 2], "x": [0, 1, 2]})
            yield pa.record_batch({"ts": [3, None, 91], "seq": [3, 4, 5], "x": [2, 3, 3]})

    aside: list[tuple[str, list[int]]] = []
    query = pairs(op.windows.count(2)).disorder(op.KSlack(5, invalid="quarantine"))
    sources = [Late("a"), op.sources.paced(Listed("b", size=0), 1)]
    with (
        caplog.at_level("WARNING", "outpace"),
        op.run(
            query, sources, aside=lambda why, rows: aside.append((why, rows["seq"].to_pylist()))
        ) as run,
    ):
        found = pa.concat_tables(list(run))
    assert found["last"].to_pylist() == [91]
    known = run.metrics.sources["a"]
    assert (known.events, known.late, known.invalid) == (6, 1, 1)
    assert aside == [("late", [3]), ("invalid", [4])]
    assert "1 event was late and dropped so far" in caplog.text


def test_several_sources_are_ordered_by_their_time() -> None:
    sources = [Listed("a", first=0, step=2), Listed("b", first=1, step=2)]
    for query in (pairs().order_by("x"), pairs().order_by("ts desc")):
        with pytest.raises(op.BindError, match="several sources are ordered by their time"):
            op.run(query, sources)


def test_an_event_that_one_source_sends_alone_may_be_in_any_order_of_the_query() -> None:
    query = pairs().order_by("seq")
    with op.run(query, Listed("a")) as run:
        found = pa.concat_tables(list(run))
    rows = Listed("a").table()
    assert found.equals(op.match(rows, query))


def test_a_source_that_is_slow_keeps_no_other_waiting() -> None:
    # The camera has a frame every hundredth of a second, the barrier an event in half a minute.
    camera = op.sources.paced(Listed("camera", size=50), rate=100)
    barrier = op.sources.paced(Listed("barrier", first=1000), rate=1 / 30)
    with op.run(pairs(op.windows.count(10)), [camera, barrier]) as run:
        assert next(run).num_rows
        assert run.metrics.sources["barrier"].events == 0


def test_a_source_that_is_quiet_promises_that_nothing_comes() -> None:
    over = threading.Event()

    @dataclass(frozen=True)
    class Barrier(Listed):
        def arrivals(self, rows: int = 100) -> Iterator[pa.RecordBatch | op.sources.Heartbeat]:
            yield op.sources.Heartbeat(30)
            over.wait(30)
            yield from super().batches(rows)

    try:
        sources = [Barrier("barrier", first=1000), Listed("camera", size=50)]
        with op.run(pairs(op.windows.count(10)), sources) as run:
            found = next(run)["last"].to_pylist()
            assert found
            assert max(found) < 30
            over.set()
            found += [last for matches in run for last in matches["last"].to_pylist()]
        assert len(found) == len(set(found))
        assert max(found) > 1000
    finally:
        over.set()


def test_nobody_waits_long_for_a_source_that_is_silent() -> None:
    over = threading.Event()

    @dataclass(frozen=True)
    class Quiet(Listed):
        def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
            yield from Listed("quiet", size=3).batches(rows)
            over.wait(30)
            # What lies behind the others is late.
            yield from Listed("quiet", first=3, size=200).batches(rows)

    query = pairs(op.windows.count(10)).measures(last="LAST(ts)", timed="LAST(timed)")
    query = query.disorder(op.InOrder(patience="0.2 s", flag="timed"))
    try:
        with op.run(query, [Quiet("quiet"), Listed("camera", size=50)]) as run:
            found = next(run)
            # The flag travels with the events, to another process, too.
            assert found["timed"].to_pylist() == [last > 1 for last in found["last"].to_pylist()]
            assert run.metrics.sources["quiet"].events == 3
            over.set()
            list(run)
        assert run.metrics.operator.unawaited > 0
        quiet = run.metrics.sources["quiet"]
        assert (quiet.unawaited_first, quiet.unawaited_last) == (2, 49)
        assert run.metrics.sources["camera"].unawaited_last == 0
        assert run.metrics.sources["quiet"].late == 46
        assert run.metrics.sources["quiet"].silent == 0
    finally:
        over.set()


def test_a_source_that_breaks_is_told_while_another_is_quiet() -> None:
    over = threading.Event()

    @dataclass(frozen=True)
    class Quiet(Listed):
        def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
            over.wait(30)
            yield from super().batches(rows)

    @dataclass(frozen=True)
    class Broken(Listed):
        def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
            yield from Listed("b", size=10).batches(rows)
            raise OSError("the cable is cut")

    try:
        with (
            pytest.raises(OSError, match="the cable is cut"),
            op.run(pairs(), [Quiet("a"), Broken("b")]) as run,
        ):
            list(run)
    finally:
        over.set()


def rises() -> op.Query:
    """A query without windows, of which time decides matches: the last of them may go on."""
    query = op.Query().partition_by("key").order_by("ts").pattern("A B+").define(B="x > A.x")
    return query.measures(first="A.ts", last="B.ts", number="MATCH_NUMBER()").within(20)


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("instances", [1, 3])
def test_without_windows_matches_come_as_those_of_a_stream(instances: int, absent: bool) -> None:
    query = rises()
    if absent:
        query = query.pattern("A -> B -> !C").define(A="x = 0", B="x = 4", C="x = 1")
        query = query.skip_to_next_row()
    sources = [Shuffled(f"s{first}", first=first, step=2) for first in range(2)]
    patient = query.instances(instances).disorder(op.KSlack(18))
    with op.run(patient, sources, batch_rows=150) as run:
        found = pa.concat_tables(list(run))
    stream = op.open(query)
    expected = pa.concat_tables([stream.push(table()), stream.finish()])
    assert expected.num_rows
    assert found.equals(expected)
    assert sorted(found.to_pylist(), key=repr) == sorted(
        op.match(table(), query).to_pylist(), key=repr
    )
    total = run.metrics.operator
    assert (total.matches, total.duplication) == (found.num_rows, 1.0)
    used = sum(x in (0, 1, 4) for x in table()["x"].to_pylist()) if absent else 2000
    assert total.sent == sum(one.events for one in run.metrics.instances) == used
    assert all(one.events for one in run.metrics.instances)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("instances", [1, 2])
def test_without_windows_what_within_rules_out_is_forgotten(instances: int, keyed: bool) -> None:
    rows = table().append_column("seq", pa.array(np.arange(2000)))
    query = rises().partition_by(*["seq"] * keyed).instances(instances)
    kept: list[int] = []
    with ParallelOperator(
        OperatorSpec(query, rows.schema),
        watch=lambda _, done, answer: kept.append(done.rows_kept),
    ) as operator:
        for begin in range(0, 2000, 100):
            list(operator.push(EventsArrived(rows.slice(begin, 100))))
            while any(operator.front.counters().unanswered):
                operator.receive(None)
        assert 0 < max(kept) <= 20
        # Keys that nothing is known of are forgotten in the front as well.
        assert operator.front.counters().partitions <= 20


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("told", [False, True])
def test_time_makes_the_match_of_a_quiet_key_final(instances: int, told: bool) -> None:
    over = threading.Event()

    @dataclass(frozen=True)
    class Quiet(Source):
        def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
            raise NotImplementedError  # Who has arrivals is not asked for batches.

        def arrivals(self, rows: int = 100) -> Iterator[pa.RecordBatch | op.sources.Heartbeat]:
            yield pa.record_batch({"ts": [0, 1], "seq": [0, 1], "key": ["a", "a"], "x": [1, 2]})
            if told:
                yield op.sources.Heartbeat(100)
            else:
                yield pa.record_batch({"ts": [100], "seq": [2], "key": ["b"], "x": [1]})
            over.wait(30)

    try:
        with op.run(rises().instances(instances), Quiet("a")) as run:
            assert next(run)["last"].to_pylist() == [1]
            assert not over.is_set()
            over.set()
            assert list(run) == []
    finally:
        over.set()


def test_a_scheduler_gives_partitions_to_instances_where_there_are_no_windows() -> None:
    class Last(op.schedulers.Scheduler):
        def assign(self, window: op.schedulers.Candidate, loads: Sequence[float]) -> int:
            return len(loads) - 1 if window.place == 0 else -1

    with op.run(rises().instances(2, Last()), Listed("a")) as run:
        found = sum(matches.num_rows for matches in run)
    assert found == op.match(table(), rises()).num_rows
    assert [one.events for one in run.metrics.instances] == [0, 2000]


def test_unmatched_rows_are_refused() -> None:
    with pytest.raises(op.UnsupportedError, match="cannot return unmatched rows"):
        op.run(rises().all_rows_per_match(unmatched=True), Listed("a"))


@dataclass(frozen=True)
class Delayed(Source):
    """The rows of a table, of which every tenth comes up to 60 later."""

    def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
        content, random = table(), np.random.default_rng(5)
        late = random.integers(0, 60, content.num_rows) * (random.random(content.num_rows) < 0.1)
        coming = content.take(np.argsort(content["ts"].to_numpy() + late, kind="stable"))
        coming = coming.append_column("seq", pa.array(np.arange(coming.num_rows)))
        yield from coming.to_batches(max_chunksize=rows)


@pytest.mark.parametrize(
    ("disorder", "query"),
    [
        (op.KSlack(5, late="correct", horizon=100), pairs(op.windows.count(50, slide=20))),
        (
            op.Speculative(60, alpha=0),
            pairs(op.windows.time(30, slide=10)).instances(3, op.schedulers.RoundRobin()),
        ),
        (op.Speculative(60, alpha=0.5), pairs().partition_by("key")),
        (
            op.Speculative(60),
            replace(pairs(), windows=None, numbered=False).within(9).partition_by("key"),
        ),
    ],
    ids=["windows of events", "windows of time", "keyed windows", "partitions"],
)
def test_what_is_late_is_corrected_by_all_instances(
    disorder: op.pattern.disorder.Disorder, query: op.Query
) -> None:
    query = query if query.instance_count > 1 else query.instances(2)
    current, retracted, confirmed = Counter[str](), 0, 0
    with op.run(query.disorder(disorder), Delayed("a"), batch_rows=97) as run:
        for found in run:
            for row in found.to_pylist():
                diff, sure = row.pop("diff"), row.pop("confirmed", False)
                row.pop("match_id", None)
                current[repr(row)] += diff
                retracted += diff < 0
                confirmed += sure
                assert current[repr(row)] >= 0
    expected = op.match(table(), query.instances(1))
    assert +current == Counter(map(repr, expected.to_pylist()))
    if isinstance(disorder, op.Speculative):
        assert confirmed == expected.num_rows
    counted = run.metrics.operator
    assert (counted.retracted, counted.confirmed) == (retracted, confirmed)
    # What was wrong may have been corrected before it came out: how much did, goes by the load.
    assert counted.rollbacks or (disorder == op.Speculative(60) and not retracted)
    assert counted.checkpoints <= counted.checkpoint_bytes / 8
    assert counted.deliveries > counted.redeliveries
    assert bool(counted.redeliveries) == bool(counted.rollbacks)


def test_a_query_without_windows_has_one_for_each_partition() -> None:
    query = op.Query().order_by("ts").pattern("A B").define(A="x = 0", B="x = 4")
    query = query.measures(at="A.ts", id=op.match_id()).partition_by("key").instances(2)
    with op.run(query, Listed("a"), rate_control=None) as run:
        found = pa.concat_tables(list(run))
    expected = op.match(table(), query.instances(1))
    order = [("at", "ascending"), ("id", "ascending")]
    assert found.sort_by(order).equals(expected.sort_by(order))


def test_a_source_without_events_gives_no_table() -> None:
    assert list(op.run(pairs(), Listed("a", size=0))) == []


def test_who_leaves_early_leaves_nothing_behind() -> None:
    with op.run(pairs().instances(2), Endless("a")) as run:
        for _ in run:
            assert len(instance_processes()) == 2
            assert shared_bytes() >= 1 << 26
            break
    with pytest.raises(StopIteration):
        next(run)


def test_a_run_can_be_stopped_from_another_thread() -> None:
    query = pairs().instances(1).define(A="x > 100")
    with op.run(query, Endless("a")) as run:
        timer = threading.Timer(0.5, run.stop)
        timer.start()
        assert list(run) == []
        timer.join()


def test_an_error_of_the_user_takes_everything_down() -> None:
    def interested() -> None:
        with op.run(pairs().instances(2), Endless("a")) as run:
            for _ in run:
                raise KeyError("something else")

    with pytest.raises(KeyError):
        interested()


def test_an_interrupt_takes_everything_down() -> None:
    query = pairs().instances(2).define(A="x > 100")
    # Who starts the tests in the background may have them ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(1.0, _thread.interrupt_main)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt), op.run(query, Endless("a")) as run:
            list(run)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_instance_that_is_killed_is_reported() -> None:
    def kill_one() -> None:
        with op.run(pairs().instances(2), Endless("a")) as run:
            for _ in run:
                victim = multiprocessing.active_children()[0]
                assert victim.pid is not None
                os.kill(victim.pid, signal.SIGKILL)

    with pytest.raises(op.InstanceError, match=r"instance [01] was ended by SIGKILL"):
        kill_one()


def test_an_operator_that_dies_is_reported() -> None:
    query = op.Query().order_by("ts").apply(Dies).over(op.windows.count(30)).instances(2)
    with pytest.raises(op.InstanceError, match=r"ended by SIGKILL") as failure:
        op.match(table(), query)
    assert "memory" in str(failure.value)


def test_an_operator_that_fails_is_reported_with_its_traceback() -> None:
    query = op.Query().order_by("ts").apply(Fails).over(op.windows.count(30)).instances(2)
    with pytest.raises(op.MatchError, match="ZeroDivisionError: nothing can be") as failure:
        op.match(table(), query)
    assert "operator Fails failed\n  window " in str(failure.value)
    notes = "".join(failure.value.__notes__)
    assert "raised in instance" in notes
    assert "parallel_operators.py" in notes
    assert "in process" in notes


def test_a_connection_that_an_operator_loses_is_not_taken_for_that_of_the_instance() -> None:
    query = op.Query().order_by("ts").apply(Loses).over(op.windows.count(30)).instances(2)
    with pytest.raises(op.MatchError, match="BrokenPipeError: the service is gone"):
        op.match(table(), query)


def test_an_error_of_a_query_is_the_same_as_in_one_process() -> None:
    query = (
        op.Query()
        .order_by("ts")
        .pattern("A B? C")
        .define(A="x = 0", B="x = 1", C="x = 2")
        .skip_to_first("B", strict=True)
        .over(op.windows.count(30))
    )
    with pytest.raises(op.MatchError) as alone:
        op.match(table(), query)
    with pytest.raises(op.MatchError) as apart:
        op.match(table(), query.instances(2))
    assert str(apart.value) == str(alone.value)
    assert "raised in instance" in apart.value.__notes__[0]


def test_an_error_of_a_source_is_raised() -> None:
    @dataclass(frozen=True)
    class Broken(Source):
        def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
            yield from Listed("a", size=200).batches(rows)
            raise OSError("the cable is cut")

    with pytest.raises(OSError, match="the cable is cut"), op.run(pairs(), Broken("a")) as run:
        list(run)


def test_a_source_is_not_read_faster_than_instances_work() -> None:
    read: list[int] = []
    query = op.Query().order_by("ts").apply(Sleeps).over(op.windows.count(100)).instances(1)
    with op.run(query, Endless("a", read=(read,)), rate_control=None, batch_rows=100) as run:
        timer = threading.Timer(4.0, run.stop)
        timer.start()
        list(run)
        timer.join()
    # Sixteen slots, what is read ahead, and what was processed in the meantime.
    assert len(read) <= 16 + 8 + 4 / 0.2


def test_an_operator_that_cannot_be_sent_is_refused() -> None:
    class Local(op.Operator):
        output = pa.schema([("at", pa.int64())])

        def process(self, events: pa.Table) -> None:
            return None

    query = op.Query().order_by("ts").apply(Local).over(op.windows.count(30)).instances(2)
    with pytest.raises(op.BindError, match="cannot be sent to another process"):
        op.match(table(), query)


def test_a_source_that_is_left_early_is_closed() -> None:
    closed: list[bool] = []

    @dataclass(frozen=True)
    class Opened(Source):
        def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
            try:
                yield from Endless("a").batches(rows)
            finally:
                closed.append(True)

    with op.run(pairs(), Opened("a"), batch_rows=100) as run:
        next(run)
        assert not closed
    assert closed == [True]


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(op.BindError, match="batch_rows is a whole number of at least 1, not 0"):
        op.run(pairs(), Listed("a"), batch_rows=0)
    with pytest.raises(op.BindError, match="memory is a whole number of at least 1"):
        op.run(pairs(), Listed("a"), memory=-1)
    with pytest.raises(op.BindError, match="of at least 1, not '1 GB'"):
        op.run(pairs(), Listed("a"), memory="1 GB")  # type: ignore[arg-type] # the point
    with pytest.raises(op.BindError, match="rate control is expected"):
        op.run(pairs(), Listed("a"), rate_control=5)  # type: ignore[arg-type] # the point
    with pytest.raises(op.BindError, match="aim_s is a number above 0, not 0"):
        op.RateControl(aim_s=0)
    with pytest.raises(op.DataError, match="the same time column"):
        op.run(pairs(), [Listed("a"), Listed("b", time="other")])
    with pytest.raises(op.DataError, match="identifiers that differ"):
        op.run(pairs(), [Listed("a"), Listed("a")])
    with pytest.raises(op.DataError, match="too large for the shared memory"):
        list(op.run(pairs(), Listed("a"), memory=1))


SCRIPT = """
import multiprocessing, os, signal
import outpace as op

query = op.Query().order_by("ts").pattern("A").measures(at="A.seq")
query = query.over(op.windows.count(2)).instances(2)

def run():
    with op.run(query, op.sources.simple_events(1_000_000), batch_rows=1000) as matches:
        next(matches)
        print(*[process.pid for process in multiprocessing.active_children()], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text)
    return subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)


PLAIN = """
import outpace as op, pyarrow as pa

rows = pa.table({"ts": range(100)})
query = op.Query().order_by("ts").pattern("A B").measures(at="A.ts")
print(op.match(rows, query.over(op.windows.count(10)).instances(2)).num_rows)
"""


def test_a_script_of_which_instances_need_nothing_is_not_run_again(tmp_path: Path) -> None:
    ended = run_script(tmp_path, PLAIN)
    assert (ended.returncode, ended.stdout) == (0, "50\n"), ended.stderr
    typed = subprocess.run(
        [sys.executable, "-"], input=PLAIN, capture_output=True, text=True, check=False
    )
    assert (typed.returncode, typed.stdout) == (0, "50\n"), typed.stderr


OWN = """
import outpace as op, pyarrow as pa

class Count(op.Operator):
    output = pa.schema([("events", pa.int64())])

    def process(self, events):
        return {"events": [events.num_rows]}

rows = pa.table({"ts": range(100)})
query = op.Query().order_by("ts").apply(Count).over(op.windows.count(10)).instances(2)
"""


def test_a_script_that_every_process_would_run_again_is_told_so(tmp_path: Path) -> None:
    ended = run_script(tmp_path, OWN + "op.match(rows, query)\n")
    assert ended.returncode == 1
    assert "ended with exit code 1 as it started" in ended.stderr
    assert "if __name__ == '__main__':" in ended.stderr


def test_instances_end_with_their_parent(tmp_path: Path) -> None:
    ended = run_script(tmp_path, SCRIPT + "if __name__ == '__main__':\n    run()\n")
    assert ended.returncode == -signal.SIGKILL
    instances = [int(pid) for pid in ended.stdout.split()]
    assert len(instances) == 2
    until = time.monotonic() + 30
    while any(is_running(pid) for pid in instances):
        assert time.monotonic() < until, "an instance outlives its parent"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_runs_that_start_at_once_leave_the_main_module_alone() -> None:
    main = sys.modules["__main__"]
    threads = [
        threading.Thread(target=op.match, args=(table(20), pairs().instances(2))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.modules["__main__"] is main


@dataclass(frozen=True)
class Stamped(Source):
    """The rows of a table with timestamps of a unit, one a second."""

    unit: str = "us"

    def table(self) -> pa.Table:
        seconds = pa.array(np.arange(2000)).cast(pa.timestamp("s"))
        rows = table().set_column(0, "ts", seconds.cast(pa.timestamp(self.unit)))
        return rows.append_column("seq", pa.array(np.arange(2000)))

    def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
        yield from self.table().to_batches(max_chunksize=rows)


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_time_passes_in_the_units_of_the_query(unit: str) -> None:
    query = pairs(op.windows.time("50 s", slide="20 s")).instances(2)
    source = Stamped("a", unit)
    with op.run(query, source, batch_rows=100) as matches:
        found = pa.concat_tables(matches)
    assert found.num_rows
    assert found.equals(op.match(source.table(), query.instances(1)))


def test_sources_are_needed() -> None:
    with pytest.raises(op.BindError, match="sources are expected"):
        op.run(pairs(), [])
    with pytest.raises(op.BindError, match="a query is expected"):
        op.run("A B", Listed("a"))  # type: ignore[arg-type] # that is the point


STUCK = """
import outpace as op
from support.parallel_operators import Stuck

query = op.Query().order_by("ts").apply(Stuck).over(op.windows.count(10)).instances(2)
op.match({"ts": list(range(100))}, query)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with their parent")
def test_instances_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    shared = str(Path(__file__).resolve().parents[3])
    environment = {**os.environ, "OUTPACE_STUCK": str(tmp_path), "PYTHONPATH": shared}
    parent = subprocess.Popen([sys.executable, "-c", STUCK], env=environment)
    instances: list[int] = []
    try:
        while len(instances) < 2:
            assert parent.poll() is None
            instances = [int(file.name) for file in tmp_path.iterdir()]
            time.sleep(0.05)
        parent.kill()
        parent.wait()
        until = time.monotonic() + 5
        while any(map(is_alive, instances)):
            assert time.monotonic() < until, "instances live on without their parent"
            time.sleep(0.05)
    finally:
        parent.kill()
        for pid in instances:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_few_rows_that_instances_have_travel_with_many_that_are_new() -> None:
    """A delivery of their own would take longer than they do."""
    rows, late = table(4000), np.where(np.arange(4000) % 3 == 1, 4, 0)
    coming = rows.take(np.argsort(rows["ts"].to_numpy() + late, kind="stable"))
    model = op.checkpoints.EverySpeculative(1, most=5000)
    query = pairs().disorder(op.Speculative(5, alpha=0, checkpoints=model)).instances(2)
    disorder = bind_disorder(query, rows.schema)
    current = op.CurrentMatches()
    with ParallelOperator(OperatorSpec(query, rows.schema, disorder=disorder)) as operator:
        for low in range(0, 4000, 1002):
            before = operator.front.changes
            for found in operator.push(EventsArrived(coming.slice(low, 1002))):
                current.apply(found)
            grown = operator.front.changes.since(before)
            # To each instance go the certain ones, with the few before, and by itself each other.
            assert low == 0 or (grown["rollbacks"] == 1 and grown["redeliveries"] <= 10)
        for found in [*operator.push(SourceEnded()), *operator.rest()]:
            current.apply(found)
    expected = op.match(rows, pairs())
    assert sorted(current.table["last"].to_pylist()) == sorted(expected["last"].to_pylist())


def test_rows_are_sent_again_only_to_instances_that_never_had_them() -> None:
    content = table(1000).append_column("text", pa.array([f"{n:01024}" for n in range(1000)]))
    query = pairs(op.windows.count(50, slide=20)).measures(first="FIRST(ts)", text="LAST(text)")
    query = query.disorder(op.Speculative(60, alpha=0, checkpoints=400))
    query = query.instances(2, op.schedulers.RoundRobin())
    late = np.where(np.arange(1000) % 25 == 7, 30, 0)
    coming = content.take(np.argsort(content["ts"].to_numpy() + late, kind="stable"))
    disorder = bind_disorder(query, content.schema)
    sizes, replayed, found = [], [], []
    for rows in (content, coming):
        with ParallelOperator(OperatorSpec(query, content.schema, disorder=disorder)) as operator:
            told = [
                *(
                    one
                    for low in range(0, 1000, 20)
                    for one in operator.push(EventsArrived(rows.slice(low, 20)))
                ),
                *operator.push(SourceEnded()),
                *operator.rest(),
            ]
            sizes.append(operator.bytes_written)
            replayed.append(operator.front.changes.replayed)
        current = op.CurrentMatches()
        current.apply(pa.concat_tables(told))
        found.append(sorted(current.table["first"].to_pylist()))
    assert found[0] == found[1] != []
    assert replayed[0] == 0 < 1000 < replayed[1]
    # Late rows and those that come with them are written for each instance, the others once.
    assert 20 * (sizes[1] - sizes[0]) < replayed[1] * 1024
