"""Stages on Spark: tasks receive parts of the plan, and batches tell the time of their events."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.tws_tester import TwsTester
from support.patient_order import ASKED, Patient, PatientOrder

import outpace as op
from outpace.engine.codec.cell import CellKind, cell_batch, read_cells
from outpace.engine.codec.table import read_table
from outpace.engine.message import ClockExchange
from outpace.engine.order.choose import ORDERS
from outpace.engine.stage import restore_stage, run_step, save_stage
from outpace.hosts.spark.stages import PlanPart, StageProcessor
from outpace.pattern.bind.join import bind_join
from outpace.pattern.disorder import Disorder
from outpace.pattern.join import SIDES
from outpace.plan.plan import Plan
from outpace.plan.stream_plan import StageDivision, plan_stream
from outpace.testing.stream_chain import Chain

SECOND = 1_000_000

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int64(), "seq": pa.int64()})


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ORDERS, Patient, PatientOrder)


class Batches:
    """Runs a query as Spark does, batch by batch at times of the test."""

    def __init__(self, query: op.Query) -> None:
        self.plan: Plan[StageDivision] = plan_stream(query, SCHEMA, 2)
        (spec,) = self.plan.division.stages
        assert spec.clocked
        self._tester = TwsTester(
            StageProcessor(PlanPart(spec), 1, [0], [0]), timeMode="ProcessingTime"
        )

    def at(self, milliseconds: int, times: list[int] | None = None) -> list[int]:
        given = self._tester.setProcessingTime(milliseconds)
        found = [] if given is None else self._found(given)
        if times is not None:
            table = pa.table({"ts": times, "x": times, "seq": times})
            cells = cell_batch(self.plan.division.packing.pack(table)).to_pandas().iloc[:, 1:]
            found += self._found(self._tester.testInPandas(0, cells))
        return found

    def _found(self, given: Any) -> list[int]:
        if not len(given):
            return []
        cells = read_cells(pa.RecordBatch.from_pandas(given, preserve_index=False))
        return [
            at
            for cell in cells
            if cell.kind is CellKind.MATCHES
            for at in read_table(cell.block)["at"].to_pylist()
        ]


def test_spark_brings_the_time_of_the_batch() -> None:
    batches = Batches(ASKED)
    assert batches.at(5000, [3, 2]) == []
    assert batches.at(5999) == []
    assert batches.at(6000) == [3]
    assert batches.at(9000, [5, 4]) == []
    assert batches.at(9500, [6, 8]) == [5]
    assert batches.at(10_499) == []
    assert batches.at(10_500) == [8]


def test_a_timer_that_is_due_comes_before_the_events_of_the_batch() -> None:
    plan = plan_stream(ASKED, SCHEMA, 1)
    stage = plan.division.stages[0].make()

    def step(now: int, *times: int) -> list[CellKind]:
        table = pa.table({"ts": times, "x": times, "seq": times}, schema=SCHEMA)
        given = run_step(stage, plan.division.packing.pack(table) if times else [], 0, 1, now)
        return [cell.kind for cell in given if cell.kind in (CellKind.MATCHES, CellKind.LATE)]

    assert step(5 * SECOND, 3, 2) == []
    assert stage.timer == 6 * SECOND
    # 1 is late although its piece would have brought it in time without a clock.
    assert step(6 * SECOND, 1) == [CellKind.MATCHES]
    assert stage.counters.late == 1
    assert stage.timer is None


@pytest.mark.parametrize(
    ("disorder", "late"),
    [(op.InOrder(), (1, 0)), (op.KSlack(0), (0, 0))],
    ids=["in order", "slack"],
)
def test_keys_that_are_apart_tell_events_of_one_time_apart_where_they_wait_for_a_later_one(
    disorder: Disorder, late: tuple[int, int]
) -> None:
    query = ASKED.partition_by("x").disorder(disorder)
    matcher, plan = op.open(query), plan_stream(query, SCHEMA, 2)
    chain, found = Chain(plan.division.stages), 0
    # Of one time, what comes second has another key and the lower number.
    for x, seq in ((1, 2), (2, 1)):
        piece = pa.table({"ts": [7], "x": [x], "seq": [seq]}, schema=SCHEMA)
        matcher.push(piece)
        given = chain.run(plan.division.packing.pack(piece))
        found += sum(counters.late for counters in given.counters[0])
    assert (matcher.order.late, found) == late


def test_a_stage_that_needs_all_events_is_one_and_gets_all() -> None:
    keyed = ASKED.partition_by("seq")
    plan = plan_stream(keyed, SCHEMA, 3)
    assert [spec.instances for spec in plan.division.stages] == [1]
    assert not plan.division.packing.drop
    in_three = plan_stream(keyed.over(op.windows.count(10)).instances(2), SCHEMA, 3)
    assert [(spec.instances, spec.clocked) for spec in in_three.division.stages] == [
        (1, True),
        (2, False),
        (1, False),
    ]
    apart = plan_stream(keyed.disorder(op.KSlack(2)), SCHEMA, 3)
    assert [(spec.instances, spec.clocked) for spec in apart.division.stages] == [(3, False)]


def test_windows_of_keys_in_three_stages_find_what_the_table_has() -> None:
    asked = (
        op.Query("q")
        .partition_by("seq")
        .order_by("ts")
        .pattern("A -> B")
        .define(B="x > A.x")
        .measures(at="B.ts", key="A.seq")
        .over(op.windows.time(8, slide=4))
        .instances(2)
        .disorder(Patient(3, "1 s"))
    )
    random = np.random.default_rng(7)
    times = np.arange(60) + random.integers(0, 3, 60)
    table = pa.table(
        {"ts": times, "x": random.integers(0, 9, 60), "seq": random.integers(0, 3, 60)}
    )
    plan = plan_stream(asked, SCHEMA, 2)
    specs = plan.division.stages
    stages = [[spec.make(number) for number in range(spec.instances)] for spec in specs]
    found: list[dict[str, int]] = []
    for number in range(7):
        piece = table.slice(10 * number, 10)
        # The last batch has no events: the time of what waits is up.
        cells = plan.division.packing.pack(piece) if piece.num_rows else []
        for place, instances in enumerate(stages, 1):
            shares = [[one for one in cells if one.instance == n] for n in range(len(instances))]
            given = [
                run_step(stage, share, n, place, (5 + 2 * (number // 6)) * SECOND)
                for n, (stage, share) in enumerate(zip(instances, shares, strict=True))
            ]
            cells = [cell for some in given for cell in some]
        blocks = [cell.block for cell in cells if cell.kind is CellKind.MATCHES]
        found += [row for block in blocks for row in read_table(block).to_pylist()]
    assert stages[0][0].timer is None
    ended = {"ts": 1000, "x": 0, "seq": 99}
    whole = op.match(pa.concat_tables([table, pa.Table.from_pylist([ended])]), asked)
    known = [row for row in whole.to_pylist() if row["at"] < max(times) - 8]
    assert known
    assert {tuple(row.items()) for row in known} <= {tuple(row.items()) for row in found}
    assert {tuple(row.items()) for row in found} <= {
        tuple(row.items()) for row in whole.to_pylist()
    }


ROWS = pa.schema({"ts": pa.int64(), "key": pa.string(), "v": pa.int64()})
ORDERED = op.Query("q").order_by("ts")
PATTERN = ORDERED.pattern("A -> B").define(A="v > 1", B="v < A.v").measures(n="COUNT(*)")


class Mine(op.EventOperator):
    """Gives nothing; a class of a notebook, which no other process can import."""

    output = pa.schema([("x", pa.int64())])

    def on_event(self, event):
        return []


Mine.__module__ = "__main__"

QUERIES = {
    "keyed": PATTERN.partition_by("key").within(10),
    "instances": PATTERN.over(op.windows.count(100, 10)).instances(3),
    "operator": ORDERED.over(op.windows.count(10)).apply(Mine),
}


def sent(value):
    """Return a value as a task of Spark gets it."""
    return pickle.loads(cloudpickle.dumps(value))  # noqa: S301  # the test's own bytes


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_explained_is_what_tasks_receive(name):
    plan = plan_stream(QUERIES[name].disorder(op.KSlack(5)), ROWS, 2)
    # What follows from it is made where it is used, so it stays behind.
    assert plan.operator.bound.output is not None
    assert plan.operator.matcher is not None or name == "operator"
    received = sent(plan)
    assert isinstance(received, Plan)
    assert received.lines() == plan.lines()
    assert not {"bound", "matcher"} & vars(received.operator).keys()
    for spec, original in zip(received.division.stages, plan.division.stages, strict=True):
        assert spec.identity == original.identity
        assert spec.make().part.state().encode() == original.make().part.state().encode()


@pytest.mark.parametrize("name", QUERIES)
def test_a_process_that_has_a_part_of_a_plan_has_it_still(name):
    part = PlanPart(plan_stream(QUERIES[name], ROWS, 2).division.stages[0])
    received = sent(part)
    assert sent(part) is received
    assert sent(part).value.matcher is received.value.matcher


def test_a_batch_is_one_moment_for_all_its_sources() -> None:
    schema = pa.schema({"ts": pa.int64(), "x": pa.int64(), "source": pa.string()})
    asked = ASKED.disorder(op.KSlack(0, patience="10 s", late="side"))
    plan = plan_stream(asked, schema, 2, sources=("a", "b"))
    stage = plan.division.stages[0].make()

    def step(now: int, *events: tuple[int, str]) -> list[list[int]]:
        rows = [{"ts": ts, "x": ts, "source": source} for ts, source in events]
        cells = plan.division.packing.pack(pa.Table.from_pylist(rows, schema)) if events else []
        given = run_step(stage, cells, 0, 1, now * SECOND)
        return [
            read_table(cell.block).column(0).to_pylist()
            for cell in given
            if cell.kind in (CellKind.MATCHES, CellKind.LATE)
        ]

    assert step(0, (1, "a"), (2, "b"), (3, "a"), (4, "b")) == [[2]]
    assert stage.timer == 10 * SECOND
    # Who speaks in a batch is not silent in it, however long ago the last one was.
    assert step(3600, (9, "a"), (5, "b")) == [[4]]
    assert (stage.counters.silent, stage.counters.late) == (0, 0)
    assert step(3605, (10, "a")) == []
    # `b` is silent, and what it sends later is late.
    assert step(3612) == [[9]]
    assert (stage.counters.silent, stage.counters.unawaited) == (1, 2)
    assert (stage.counters.unawaited_first, stage.counters.unawaited_last) == (5, 9)
    assert step(3613, (7, "b"), (11, "a"), (12, "b")) == [[7]]
    assert (stage.counters.silent, stage.counters.late) == (0, 1)
    lines = plan.lines()
    assert "  a source that is silent for 10 seconds holds the others back no longer" in lines


CLOCKED = pa.schema(
    {
        "ts": pa.int64(),
        "x": pa.int64(),
        "seq": pa.int64(),
        "source": pa.string(),
        "clock": pa.struct(dict.fromkeys(["asked", "received", "answered", "heard"], pa.int64())),
    }
)
PAIRS = op.Query("pairs").order_by("ts").pattern("A -> B").within(60).no_skip()
PAIRS = PAIRS.define(A="x < 2", B="x = 3").measures(a="A.ts", b="B.ts")


@pytest.mark.parametrize(
    "query",
    [
        PAIRS.disorder(op.KSlack(3)),
        PAIRS.uncertain(20, source="source", measured=True).disorder(op.InOrder()),
        PAIRS.partition_by("x").define(B="x < 9").disorder(op.KSlack(3)),
        PAIRS.disorder(op.Sequence("1 s")),
        PAIRS.disorder(op.InOrder(late="correct", horizon=200)),
    ],
    ids=["slack", "uncertain", "keyed", "sequence", "correct"],
)
def test_rows_with_a_clock_compare_clocks_as_a_stream_in_process_does(query: op.Query) -> None:
    numbers = np.random.default_rng(7)
    off, seq, now = {"a": 500, "b": -300}, {"a": 0, "b": 0}, 1000
    batches = []
    for number in range(8):
        rows: list[dict[str, Any]] = []
        for source in numbers.choice(list("ab"), 30):
            now += int(numbers.integers(0, 4))
            own = now - off[source]
            if numbers.random() < 0.15 or (number == 0 and seq[source] == 0 and own % 2):
                there, back = map(int, numbers.integers(0, 9, 2))
                times = [own, now + there, now + there, own + there + back]
                clock = dict(zip(["asked", "received", "answered", "heard"], times, strict=True))
                rows.append({"source": source, "clock": clock})
            x, seq[source] = int(numbers.integers(0, 5)), seq[source] + 1
            rows.append({"ts": own, "x": x, "seq": seq[source], "source": source})
        if number == 4:
            off["b"] = -100  # The clock was set.
        batches.append(rows)

    plan = plan_stream(query, CLOCKED, 2, sources=("a", "b"))
    (spec,) = plan.division.stages
    stages = [spec.make(number) for number in range(spec.instances)]
    stream = op.open(query, sources=["a", "b"])
    empty = CLOCKED.remove(4).empty_table()
    stream.push(empty)
    found: list[list[dict[str, Any]]] = [[], []]
    for rows in batches:
        # Tasks have the rows in halves, in any order.
        parts = [rows[:20], rows[20:]]
        packed = [plan.division.packing.pack(pa.Table.from_pylist(part, CLOCKED)) for part in parts]
        for place, stage in enumerate(stages):
            cells = [
                replace(cell, sender=sender, position=position)
                for sender, part in enumerate(packed)
                for position, cell in enumerate(part)
                if cell.instance == place
            ]
            given = run_step(stage, cells, place, 1)
            matches = [one for one in given if one.kind is CellKind.MATCHES]
            found[0] += [row for one in matches for row in read_table(one.block).to_pylist()]
            stages[place] = restore_stage(spec, save_stage(spec, stage), place)
        told = [ClockExchange(row["source"], **row["clock"]) for row in rows if "clock" in row]
        for exchange in sorted(told, key=lambda one: (one.answered, astuple(one))):
            found[1] += stream.compare_clocks(exchange).to_pylist()
        events = [row for row in rows if "clock" not in row]
        found[1] += stream.push(pa.Table.from_pylist(events, empty.schema)).to_pylist()
    totals = [Counter[str](), Counter[str]()]
    for total, matches in zip(totals, found, strict=True):
        for row in matches:
            # What was corrected depends on how events were cut, but not what is left.
            total[repr({**row, "diff": 1})] += row.get("diff", 1)
    assert +totals[0] == +totals[1]
    assert not -totals[0]
    assert found[0]
    assert sum(reading.jumps for reading in stream.clocks.values()) >= 1
    assert "  rows with a clock compare that of their source, and are no events" in plan.lines()


def test_exchanges_that_cannot_be_used_are_refused_or_set_aside() -> None:
    clock = {"asked": 1, "received": 2, "answered": 3, "heard": None}
    rows = pa.Table.from_pylist(
        [
            {"source": "a", "clock": clock},
            {"source": "c", "clock": {**clock, "heard": 4}},
            {"source": "a", "clock": {**clock, "heard": 4}},
            {"source": "a", "x": 1},
        ],
        CLOCKED,
    )
    query = PAIRS.disorder(op.InOrder(invalid="quarantine"))
    cells = plan_stream(query, CLOCKED, 2, sources=("a", "b")).division.packing.pack(rows)
    by_kind = {cell.kind: read_table(cell.block) for cell in cells if len(cell.block)}
    reasons = by_kind[CellKind.INVALID]["reason"].to_pylist()
    assert reasons == [
        "an exchange of clocks has 4 times",
        "there is no source 'c'",
        "the time 'ts' is NULL",
    ]
    assert by_kind[CellKind.CLOCKS].to_pylist() == [{"source": "a", **clock, "heard": 4}]
    plan = plan_stream(PAIRS.disorder(op.InOrder()), CLOCKED, 2, sources=("a", "b"))
    packing = plan.division.packing
    with pytest.raises(op.DataError, match="an exchange of clocks has 4 times"):
        packing.pack(rows)
    # A column of another kind is one like others.
    plain = pa.schema(
        {"ts": pa.int64(), "x": pa.int64(), "source": pa.string(), "clock": pa.int64()}
    )
    assert not plan_stream(PAIRS, plain, 2, sources=("a", "b")).division.packing.clocks


class LoadedBatches:
    """Runs a query whose alpha follows the load, and takes what is kept from batch to batch."""

    def __init__(self) -> None:
        query = op.Query("q").order_by("ts").pattern("A B").define(B="x > A.x")
        query = query.measures(at="B.ts").disorder(op.Speculative(100))
        self.plan = plan_stream(query, SCHEMA, 2)
        (self._spec,) = self.plan.division.stages
        self.kept: dict[str, Any] = {}

    def step(self, *times: int) -> list[tuple[int, bool]]:
        tester = TwsTester(StageProcessor(PlanPart(self._spec), 1, [0], [0]), timeMode="None")
        for name, value in self.kept.items():
            tester.updateValueState(name, 0, value)
        table = pa.table({"ts": times, "x": times, "seq": times}, schema=SCHEMA)
        cells = cell_batch(self.plan.division.packing.pack(table)).to_pandas().iloc[:, 1:]
        given = tester.testInPandas(0, cells)
        self.kept = {name: tester.peekValueState(name, 0) for name in ("state", "load")}
        cells = read_cells(pa.RecordBatch.from_pandas(given, preserve_index=False))
        tables = [read_table(one.block) for one in cells if one.kind is CellKind.MATCHES]
        return [(row["at"], row["confirmed"]) for one in tables for row in one.to_pylist()]


def test_alpha_follows_the_load_and_a_batch_that_is_run_again_decides_the_same() -> None:
    batches = LoadedBatches()
    assert batches.step(1, 2, 3) == [], "at first it waits as the reorderer does"
    busy, began, worked = batches.kept["load"]
    assert (busy, began > 0, worked > 0) == (None, True, True)
    batches.kept["load"] = (0.0, began, worked)  # It has nothing to do.
    early: list[tuple[int, bool]] = []
    for _ in range(8):
        before = batches.kept.copy()
        found = batches.step()
        early += found
        # What was measured while it ran counts in the next batch.
        after, batches.kept = batches.kept, before
        time.sleep(0.01)
        assert batches.step() == found
        assert batches.kept["state"] == after["state"]
        batches.kept["load"] = (0.0, *batches.kept["load"][1:])
    assert early == [(2, False)]
    batches.kept["load"] = (0.95, *batches.kept["load"][1:])
    assert batches.step(5, 6) == [], "too busy: it waits again"
    assert 0 < batches.kept["load"][0] <= 1


def test_a_match_is_once_in_what_a_batch_says_is_the_latest() -> None:
    """Each source of a batch is a step, and that of one may change what that of another gave."""
    numbers = np.random.default_rng(11)
    schema = SCHEMA.append(pa.field("source", pa.string()))
    query = PAIRS.disorder(op.InOrder(late="correct", horizon=200)).emit("latest")
    query = query.measures(number="MATCH_NUMBER()")
    plan = plan_stream(query, schema, 1, sources=("a", "b"))
    (spec,) = plan.division.stages
    stage, stream = spec.make(), op.open(query, sources=["a", "b"], schema=schema)
    present, expected = op.CurrentMatches(), op.CurrentMatches()
    several = 0
    for low in range(0, 600, 50):
        rows = [
            {
                "ts": int(ts),
                "x": int(numbers.integers(0, 5)),
                "seq": low + seq,
                "source": "ab"[seq % 2],
            }
            for seq, ts in enumerate(low + numbers.integers(-40, 50, 50))
        ]
        table = pa.Table.from_pylist(rows, schema)
        cells = run_step(stage, plan.division.packing.pack(table), 0, 1)
        found = [read_table(one.block) for one in cells if one.kind is CellKind.MATCHES]
        told = Counter(name for one in found for name in one["match_id"].to_pylist())
        assert set(told.values()) <= {1}
        several += len(found) > 1
        for one in found:
            present.apply(one)
        expected.apply(stream.push(table))
    assert several
    left = [Counter(map(repr, one.table.to_pylist())) for one in (present, expected)]
    assert left[0] == left[1]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_the_state_of_a_join_has_the_rows_that_a_partner_may_still_come_for(how: str) -> None:
    sides = [pa.schema({"id": pa.int64(), "ts": pa.int64(), side: pa.int64()}) for side in "ab"]
    sizes, within, batch = {}, 50, 1000
    for batches in (2, 8):
        join = op.Join(on="id", within=within, time="ts", how=how, disorder=op.KSlack(10))
        bound = bind_join(join, *sides)
        plan = plan_stream(bound.query, bound.schema, 2, sources=SIDES)
        chain = Chain(plan.division.stages)
        for first in range(0, batches * batch, batch):
            times = np.arange(first, first + batch)
            rows = {"ts": np.repeat(times, 2), "id": np.repeat(times % 7, 2)}
            table = pa.table({**rows, "source": np.tile(SIDES, batch)})
            for name in set(bound.schema.names) - set(table.column_names):
                table = table.append_column(name, pa.nulls(len(table), pa.int64()))
            table = table.select(bound.schema.names).cast(bound.schema)
            given = chain.run(plan.division.packing.pack(table))
        held = sum(one.kept + one.buffered for each in given.counters for one in each)
        assert 0 < held <= 2 * (within + 10 + 2)
        sizes[batches] = chain.state_bytes
    assert sizes[8] < 1.1 * sizes[2] < 40_000
