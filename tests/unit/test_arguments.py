"""Arguments of the wrong kind: every public function answers with an error of ours, or with sense.

Each call below is one that works. Each of its arguments is replaced in turn by values of other
kinds; what comes out is a result or an `OutpaceError`, never an error of Python or of Arrow.
"""

import dataclasses
import datetime
import itertools
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import outpace as op
from outpace import simulate as sim
from outpace.errors import OutpaceError
from outpace.pattern.builder import Fluent, Steps

#: A number that NumPy cannot take is refused before it gets there.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

TABLE = pa.table({"ts": [1, 2, 3], "x": [5, 4, 6], "kind": ["a", "b", "c"]})
RISE = (
    op.Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts").within(9)
)

#: Values of other kinds than what is asked for.
STRANGE: dict[str, Any] = {
    "None": None,
    "bool": True,
    "int": 7,
    "negative": -1,
    "huge": 1 << 80,
    "float": 2.5,
    "nan": float("nan"),
    "infinity": float("inf"),
    "text": "abc",
    "empty text": "",
    "bytes": b"abc",
    "list": [1, "a"],
    "nested list": [["ts"]],
    "dict": {"a": 1},
    "set": {"a"},
    "tuple": (1,),
    "object": object(),
    "class": dict,
    "function": len,
    "decimal": Decimal("1.5"),
    "datetime": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
    "timedelta": datetime.timedelta(seconds=5),
    "numpy int": np.int64(3),
    "numpy float": np.float32(2.5),
    "numpy bool": np.bool_(True),
    "numpy array without dimensions": np.array("a"),
    "half a character": "\ud800",
    "no time": pd.NaT,
    "numpy text": np.str_("ts"),
    "numpy time": np.datetime64("2024-01-01T00:00:00", "ns"),
    "numpy duration": np.timedelta64(5, "s"),
    "numpy array": np.array([1, 2]),
    "arrow scalar": pa.scalar(3),
    "frame": pd.DataFrame({"ts": [1]}),
}


def queried(make: Callable[..., op.Query]) -> Callable[..., object]:
    """Make a query, and use it: what passes unseen must not fail later either."""

    def use(**arguments: object) -> object:
        query = make(**arguments)
        repr(query)
        query.to_sql()
        query.to_python()
        return op.search(TABLE, query).table()

    return use


def expressed(make: Callable[..., Fluent]) -> Callable[..., object]:
    return queried(lambda **arguments: RISE.measures(value=make(**arguments)))


def built(make: Callable[..., Steps]) -> Callable[..., object]:
    return queried(lambda **arguments: RISE.pattern(make(**arguments)))


def windowed(make: Callable[..., Any]) -> Callable[..., object]:
    return queried(lambda **arguments: RISE.over(make(**arguments)))


def pushed(**opened: object) -> op.StreamMatcher:
    matcher = op.open(RISE, **opened)  # type: ignore[arg-type]
    matcher.bind(TABLE.schema)
    return matcher


def scenario() -> sim.Scenario:
    query = sim.QueryModel(
        "q",
        (sim.Producer("in", sim.Uniform(10)), sim.Consumer("out", 1.0)),
        (sim.Edge("in", "out"),),
    )
    return sim.Scenario((query,), (sim.VM("vm", mips=1),), duration=1.0)


def simulated(**given: object) -> object:
    return sim.simulate(dataclasses.replace(scenario(), **given), "twin")


#: Parts of scenarios, and arguments with which they can be made.
SIMULATED: dict[Callable[..., object], dict[str, Any]] = {
    sim.Uniform: {"rate": 10},
    sim.Increasing: {"maximum": 10, "over": 5, "start": 1},
    sim.Poisson: {"rate": 10, "seed": 1, "grain": 0.1},
    sim.Bursty: {"rate": 10, "on": 1, "off": 1, "quiet": 0},
    sim.RecordedTimes: {"times": (1.0, 2.0)},
    sim.ConstantOutput: {"events": 1},
    sim.ShareOutput: {"share": 0.5},
    sim.MachineType: {
        "name": "a",
        "mips": 1,
        "processors": 1,
        "memory": 1,
        "price": 1,
        "failures_per_hour": 1,
        "repair": 1,
    },
    sim.Autoscaling: {"most": 2, "least": 1, "above": 0.5, "below": 0.1, "every": 1, "step": 1},
    sim.RandomFailures: {"at": 1, "vm": "a", "per_hour": 1, "repair": 1, "seed": 1},
    sim.Producer: {"id": "a", "generator": sim.Uniform(1), "instructions": 1, "queue": 1},
    sim.OperatorModel: {"id": "a", "instructions": 1, "queue": 1},
    sim.Consumer: {"id": "a", "instructions": 1, "queue": 1},
    sim.WindowedOperator: {
        "id": "a",
        "instructions": 1,
        "window": 2,
        "advance": 1,
        "combination": sim.ConstantOutput(),
        "queue": 1,
    },
    sim.BatchOperator: {
        "id": "a",
        "instructions": 1,
        "interval": 1,
        "setup": 1,
        "events_max": 1,
        "queue": 1,
    },
    sim.Edge: {"source": "a", "target": "b", "selectivity": 1},
    sim.Host: {"id": "a", "mips": 1, "processors": 1, "sharing": "time"},
    sim.Datacentre: {"id": "a", "hosts": (sim.Host("h", 1),)},
    sim.Cloud: {"id": "a", "datacentres": (sim.Datacentre("d", (sim.Host("h", 1),)),)},
    sim.ConstantDelay: {"seconds": 1},
    sim.Bandwidth: {"latency": 1, "bits_per_second": 1, "bytes_per_event": 1},
    sim.Tiers: dict.fromkeys(("host", "datacentre", "cloud", "elsewhere"), sim.ConstantDelay()),
    sim.StartQuery: {"at": 1, "query": "q"},
    sim.StopQuery: {"at": 1, "query": "q"},
    sim.MoveVertex: {"at": 1, "vertex": "a", "vm": "vm"},
    sim.FailVM: {"at": 1, "vm": "vm"},
    sim.RestartVM: {"at": 1, "vm": "vm"},
    sim.SetRate: {"at": 1, "producer": "a", "factor": 2, "generator": None},
    sim.FirstFit: {"fill": 1},
    sim.LoadBalanced: {"fill": 1},
    sim.NetworkAware: {"fill": 1},
    sim.LatencyTarget: {"seconds": 1, "percentile": 99},
    sim.Optimised: {"seconds": 1, "percentile": 99, "seed": 0, "steps": 1},
}


def log_of(folder: Path) -> op.log.Log:
    log = op.log.create(folder, TABLE.schema)
    with log.writer() as writer:
        writer.append(TABLE)
    return log


COL = op.col("x")
A = op.step("A")
FOLDER = tempfile.TemporaryDirectory(prefix="outpace-arguments-")
PATH = Path(FOLDER.name) / "log"
LOG = log_of(PATH)
FOLDERS = itertools.count()

#: What is called, and arguments with which it works.
CALLS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "Query": (
        queried(lambda name: RISE.__class__(name).order_by("ts").pattern("A")),
        {"name": "q"},
    ),
    "Query.partition_by": (queried(lambda c, d: RISE.partition_by(c, d)), {"c": "kind", "d": "x"}),
    "Query.order_by": (queried(lambda c, d: RISE.order_by(c, d)), {"c": "ts", "d": "x desc"}),
    "Query.pattern": (queried(lambda pattern: RISE.pattern(pattern)), {"pattern": "A B"}),
    "Query.apply": (queried(lambda operator: RISE.apply(operator)), {"operator": op.EventOperator}),
    "Query.define": (
        queried(lambda d, b: RISE.define(d, B=b)),
        {"d": {"A": "x > 1"}, "b": "x > 1"},
    ),
    "Query.subset": (queried(lambda u: RISE.subset(U=u)), {"u": ["A", "B"]}),
    "Query.measures": (queried(lambda d, n: RISE.measures(d, n=n)), {"d": {"m": "A.x"}, "n": "1"}),
    "Query.all_rows_per_match": (
        queried(RISE.all_rows_per_match),
        {"empty": "omit", "unmatched": False},
    ),
    "Query.skip_to_first": (queried(RISE.skip_to_first), {"variable": "B", "strict": True}),
    "Query.skip_to_last": (queried(RISE.skip_to_last), {"variable": "B", "strict": True}),
    "Query.within": (queried(RISE.within), {"duration": 5, "kind": "previous to current"}),
    "Query.select": (queried(RISE.select), {"selection": "all"}),
    "Query.consume": (queried(RISE.consume), {"consumption": "all"}),
    "Query.limit": (queried(RISE.limit), {"count": 2, "per": "start"}),
    "Query.over": (
        queried(RISE.over),
        {"windows": op.windows.count(2), "duplicates": True, "numbered": True},
    ),
    "Query.instances": (
        queried(lambda count, schedule: RISE.instances(count, schedule)),
        {"count": 1, "schedule": op.schedulers.ByKey()},
    ),
    "Query.disorder": (queried(RISE.disorder), {"disorder": op.KSlack(2)}),
    "Query.from_sql": (
        op.Query.from_sql,
        {"text": "MATCH_RECOGNIZE (ORDER BY ts PATTERN (A))", "dialect": "trino", "name": "q"},
    ),
    "Query.to_sql": (RISE.to_sql, {"dialect": "trino"}),
    "Query.explain": (lambda data: str(RISE.explain(data)), {"data": TABLE}),
    "col": (expressed(op.col), {"name": "A.x"}),
    "lit": (expressed(op.lit), {"value": 3}),
    "prev": (expressed(op.prev), {"expression": "A.x", "offset": 1}),
    "next": (expressed(op.next), {"expression": "A.x", "offset": 1}),
    "first": (expressed(op.first), {"expression": "A.x", "offset": 1}),
    "last": (expressed(op.last), {"expression": "A.x", "offset": 1}),
    "classifier": (expressed(op.classifier), {"variable": "A"}),
    "fn": (
        expressed(lambda argument, distinct: op.fn.count(argument, distinct=distinct)),
        {"argument": "A.x", "distinct": False},
    ),
    "operators": (expressed(lambda a, b: (a + COL) * 2 - b), {"a": 1, "b": 2}),
    "comparisons": (expressed(lambda a, b: (a < COL) & (b == COL)), {"a": 1, "b": 2}),
    "and, or": (expressed(lambda a, b: (a & (COL > 1)) | b), {"a": True, "b": True}),
    "modulo": (expressed(lambda b: (7 % COL) // b), {"b": 2}),
    "Fluent.concat": (expressed(op.col("kind").concat), {"other": "b"}),
    "Fluent.between": (expressed(COL.between), {"low": 1, "high": 2}),
    "Fluent.isin": (expressed(lambda a, b: COL.isin(a, b)), {"a": 1, "b": 2}),
    "Fluent.like": (expressed(op.col("kind").like), {"pattern": "a%", "escape": "x"}),
    "Fluent.cast": (expressed(COL.cast), {"kind": "double", "safe": True}),
    "step": (built(op.step), {"step": "A"}),
    "permute": (built(lambda a, b: op.permute(a, b)), {"a": "A", "b": "B"}),
    "Steps.then": (built(A.then), {"step": "B"}),
    "Steps.followed_by": (built(A.followed_by), {"step": "B"}),
    "Steps.followed_by_any": (built(A.followed_by_any), {"step": "B"}),
    "Steps.not_then": (built(A.not_then), {"name": "B"}),
    "Steps.not_followed_by": (built(A.not_followed_by), {"name": "B"}),
    "Steps.or_": (built(A.or_), {"other": "B"}),
    "Steps.optional": (built(A.then("B").optional), {"mode": "greedy"}),
    "Steps.one_or_more": (built(A.then("B").one_or_more), {"mode": "greedy", "link": "next"}),
    "Steps.times": (
        built(A.then("B").times),
        {"least": 1, "most": 2, "mode": "greedy", "link": "next"},
    ),
    "Steps.times_or_more": (built(A.then("B").times_or_more), {"least": 1}),
    "Steps.until": (built(A.followed_by("B").one_or_more().until), {"name": "A"}),
    "match": (op.match, {"data": TABLE, "query": RISE}),
    "search": (lambda **given: op.search(**given).count(), {"data": TABLE, "query": RISE}),
    "explain": (op.explain, {"query": RISE, "data": TABLE}),
    "sql": (op.sql, {"session": None, "text": "SELECT 1", "dialect": "trino"}),
    "open": (
        op.open,
        {"query": RISE, "sources": ["a"], "schema": TABLE.schema, "timeouts": True},
    ),
    "resume": (op.resume, {"query": RISE, "state": op.open(RISE).state(), "timeouts": False}),
    "parquet": (op.parquet, {"path": "a", "ordered": True, "filesystem": None}),
    "run": (
        op.run,
        {
            "query": RISE,
            "sources": op.sources.simple_events(3),
            "rate_control": None,
            "memory": 1 << 20,
            "batch_rows": 100,
            "aside": None,
        },
    ),
    "RateControl": (op.RateControl, {"first_rate": 5, "interval_s": 0.1, "aim_s": 0.1}),
    "Search.why": (op.search(TABLE, RISE).why, {"match_index": 0}),
    "Search.why_not": (op.search(TABLE, RISE).why_not, {"rows": [0, 1]}),
    "StreamMatcher.push": (lambda data: pushed().push(data), {"data": TABLE}),
    "StreamMatcher.push of a source": (
        lambda source: pushed(sources=["a"]).push(TABLE, source),
        {"source": "a"},
    ),
    "StreamMatcher.heartbeat": (
        lambda source, time: pushed(sources=["a"]).heartbeat(source, time),
        {"source": "a", "time": 5},
    ),
    "StreamMatcher.wants": (lambda source: pushed(sources=["a"]).wants(source), {"source": "a"}),
    "StreamMatcher.advance": (lambda time: pushed().advance(time), {"time": 5}),
    "StreamMatcher.finish": (lambda source: pushed(sources=["a"]).finish(source), {"source": "a"}),
    "StreamMatcher.bind": (lambda schema: op.open(RISE).bind(schema), {"schema": TABLE.schema}),
    "StreamMatcher.restore": (
        lambda state: op.open(RISE).restore(state),
        {"state": op.open(RISE).state()},
    ),
    "InOrder": (op.InOrder, {"late": "drop", "invalid": "fail", "ahead": 5}),
    "KSlack": (op.KSlack, {"slack": 2, "late": "drop", "invalid": "fail", "ahead": 5}),
    "Punctuation": (op.Punctuation, {"late": "drop", "invalid": "fail", "ahead": 5}),
    "windows.count": (windowed(op.windows.count), {"size": 2, "slide": 1, "offset": 0}),
    "windows.time": (windowed(op.windows.time), {"size": 2, "slide": 1, "offset": 0}),
    "windows.session": (windowed(op.windows.session), {"gap": 2}),
    "windows.between": (
        windowed(op.windows.between),
        {"open": "x > 1", "close": "x < 3", "predicate": None},
    ),
    "windows.landmark": (windowed(op.windows.landmark), {"at": "x > 1"}),
    "windows.assign": (
        op.windows.assign,
        {"data": TABLE, "query": RISE.over(op.windows.count(2))},
    ),
    "schedulers.Batches": (op.schedulers.Batches, {"size": 2}),
    "log.create": (
        lambda **given: op.log.create(f"log {next(FOLDERS)}", **given),
        {"schema": TABLE.schema, "time": "ts", "segment_bytes": 1 << 20},
    ),
    "log.create at a path": (lambda path: op.log.create(path, TABLE.schema), {"path": "log"}),
    "log.open": (op.log.open, {"path": PATH}),
    "log.read": (op.log.read, {"path": PATH, "start": 0, "stop": 2, "on_damage": "fail"}),
    "Log.behind": (LOG.behind, {"offset": 0}),
    "Log.end_of": (LOG.end_of, {"start": 0, "events": 2, "bytes": 100}),
    "Log.trim": (LOG.trim, {"before": 0}),
    "Log.writer": (
        lambda **given: LOG.writer(**given).close(),
        {"sync": "interval", "interval_ms": 100, "on_invalid": "fail"},
    ),
    "sources.simple_events": (
        lambda **given: next(op.sources.simple_events(**given).batches(2)),
        {"events": 3, "seed": 1, "types": "ab", "keys": 2, "rate": 10, "id": "a"},
    ),
    "sources.stock_events": (
        lambda **given: next(op.sources.stock_events(**given).batches(2)),
        {"events": 3, "seed": 1, "symbols": 2, "rate": 10, "id": "a"},
    ),
    "sources.football": (
        lambda **given: next(op.sources.football(**given).batches(2)),
        {"events": 3, "seed": 1, "sensors": 2, "rate": 10, "id": "a"},
    ),
    "sources.building": (
        lambda **given: next(op.sources.building(**given).batches(2)),
        {"events": 3, "seed": 1, "rooms": 2, "rate": 10, "id": "a"},
    ),
    "sources.csv": (
        op.sources.csv,
        {
            "path": "a",
            "time": "ts",
            "id": "a",
            "schema": "ts bigint",
            "delimiter": ",",
            "header": True,
        },
    ),
    "sources.json_lines": (
        op.sources.json_lines,
        {"path": "a", "time": "ts", "id": "a", "schema": "ts bigint"},
    ),
    "sources.parquet": (op.sources.parquet, {"path": "a", "time": "ts", "id": "a"}),
    "sources.paced": (op.sources.paced, {"source": op.sources.simple_events(3), "rate": 10}),
    "sources.merged": (
        lambda **given: next(op.sources.merged(**given)),
        {"sources": [op.sources.simple_events(3)], "rows": 10},
    ),
    "simulate.QueryModel": (
        lambda **given: simulated(queries=[sim.QueryModel(**given)]),
        {
            "name": "q",
            "vertices": [sim.Producer("in", sim.Uniform(10)), sim.Consumer("out")],
            "edges": [sim.Edge("in", "out")],
        },
    ),
    "simulate.Scenario": (
        simulated,
        {
            "queries": scenario().queries,
            "vms": scenario().vms,
            "duration": 1.0,
            "placement": {"in": "vm"},
            "clouds": (),
            "network": sim.ConstantDelay(),
            "scheduling": sim.SimpleScheduling(),
            "allocation": sim.UniformAllocation(),
            "tick": 0.1,
            "queue": 10,
            "overflow": "drop",
            "warm_up": 0.0,
            "sample": 1.0,
            "changes": (sim.FailVM(0.5, "vm"),),
        },
    ),
    "simulate.VM": (
        lambda **given: simulated(vms=[sim.VM(**given)]),
        {"id": "vm", "mips": 1, "processors": 1, "host": None},
    ),
    **{f"simulate.{kind.__name__}": (kind, given) for kind, given in SIMULATED.items()},
    "simulate.simulate": (sim.simulate, {"scenario": scenario(), "engine": "twin"}),
    "simulate.plan": (
        sim.plan,
        {"scenario": scenario(), "rate": 10.0, "target": sim.LatencyTarget(1.0)},
    ),
    "simulate.plan_machines": (
        sim.plan_machines,
        {
            "scenario": scenario(),
            "rate": 10.0,
            "target": sim.LatencyTarget(1.0),
            "catalogue": sim.Catalogue((sim.MachineType("a", mips=1),)),
            "availability": 0.5,
        },
    ),
    "simulate.what_if": (
        sim.what_if,
        {"scenario": scenario(), "rates": [1.0], "instances": [1], "machines": []},
    ),
    "simulate.repeat": (sim.repeat, {"scenario": scenario(), "seeds": 1}),
    "simulate.parse_catalogue": (sim.parse_catalogue, {"text": "machines = []"}),
    "simulate.read_catalogue": (sim.read_catalogue, {"path": "a"}),
    "simulate.from_query": (
        lambda **given: sim.from_query(**given, seconds=0.001),
        {"query": RISE, "data": TABLE, "piece": 10, "mips": 1.0, "rate": 1.0},
    ),
    "simulate.optimise": (
        sim.optimise,
        {"scenario": scenario(), "target": sim.LatencyTarget(1.0), "seed": 0, "steps": 1},
    ),
    "simulate.mean_rates": (sim.mean_rates, {"queries": scenario().queries, "seconds": 1}),
    "simulate.place": (
        sim.place,
        {
            "queries": scenario().queries,
            "vms": scenario().vms,
            "strategy": sim.FirstFit(),
            "rates": {"in": 1.0, "out": 1.0},
            "clouds": (),
        },
    ),
    "simulate.placed": (sim.placed, {"scenario": scenario(), "choice": sim.FirstFit()}),
    "simulate.write_scenario": (
        sim.write_scenario,
        {"scenario": scenario(), "path": "scenario.toml"},
    ),
    "simulate.scenario_text": (sim.scenario_text, {"scenario": scenario()}),
    "simulate.parse_scenario": (sim.parse_scenario, {"text": "duration = 1"}),
    "simulate.read_scenario": (sim.read_scenario, {"path": "a"}),
}

CASES = [(call, argument) for call, (_, given) in CALLS.items() for argument in given]


@pytest.mark.parametrize(("call", "argument"), CASES, ids=[f"{c}, {a}" for c, a in CASES])
def test_a_wrong_argument_gets_an_error_of_ours(
    call: str, argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function, given = CALLS[call]
    wrong = []
    for kind, value in STRANGE.items():
        try:
            function(**{**given, argument: value})
        except OutpaceError:
            pass
        except Exception as error:
            wrong.append(f"{kind}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def said(function: Callable[[], object]) -> str:
    with pytest.raises(OutpaceError) as caught:
        function()
    return str(caught.value)


def test_one_event_and_a_list_of_events_can_be_pushed() -> None:
    matcher = op.open(RISE)
    assert matcher.push({"ts": 1, "x": 5}).num_rows == 0
    assert matcher.push([{"ts": 2, "x": 6}, {"ts": 3, "x": 1}]).to_pylist() == [{"at": 2}]
    assert matcher.push([{"x": np.int64(9), "ts": np.int64(4)}]).to_pylist() == [{"at": 4}]


def test_an_event_of_a_column_and_a_value_is_neither() -> None:
    assert "'x' is a column, but 'ts' is a single value" in said(
        lambda: op.match({"ts": 1, "x": [5]}, RISE)
    )
    assert "row 1 of the list is 3" in said(lambda: op.match([{"ts": 1}, 3], RISE))


def test_columns_and_rows_are_named_in_lists_too() -> None:
    assert RISE.order_by(["ts", "x desc"]) == RISE.order_by("ts", "x desc")
    assert RISE.partition_by(["kind", "x"]) == RISE.partition_by("kind", "x")
    found = op.search(TABLE, RISE)
    assert found.why_not(0) == found.why_not([0]) == found.why_not(np.array([0]))


def test_numbers_of_numpy_are_numbers() -> None:
    assert RISE.within(np.int64(5)) == RISE.within(5)
    assert RISE.within(np.timedelta64(5, "s")) == RISE.within("5 s")
    assert RISE.within(pd.Timedelta(seconds=5)) == RISE.within("5 s")
    assert RISE.limit(np.int32(2)) == RISE.limit(2)
    assert op.windows.count(np.int64(4), np.int64(2)) == op.windows.count(4, 2)
    assert op.windows.time(np.int64(4)) == op.windows.time(4)
    assert type(op.KSlack(np.int64(3)).slack) is int
    assert op.step("A").times(np.int64(2)).tree == op.step("A").times(2).tree
    when = pa.table({"ts": pa.array([1], pa.timestamp("us"))})
    matcher = op.open(op.Query().order_by("ts").pattern("A").within("1 s"), schema=when.schema)
    assert matcher.advance(np.datetime64("2024-01-01T00:00:00", "ns")).num_rows == 0


def test_a_column_that_is_there_twice_is_named() -> None:
    twice = pa.table([[1], [2], [3]], names=["ts", "x", "x"])
    assert "column 'x' is there twice" in said(lambda: op.match(twice, RISE))
    frame = pd.DataFrame([[1, 2, 3]], columns=["ts", "x", "x"])
    assert "column 'x' is there twice" in said(lambda: op.match(frame, RISE))


def test_definitions_without_names_are_asked_for_them() -> None:
    assert "write define(A='price > 3')" in said(lambda: RISE.define("price > 3"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change", [RISE, RISE.disorder(op.KSlack(0)), RISE.over(op.windows.count(2))]
)
def test_a_column_that_becomes_double_points_at_the_schema(change: op.Query) -> None:
    matcher = op.open(change)
    matcher.push({"ts": [1], "x": [5]})
    text = said(lambda: matcher.push({"ts": [2], "x": [5.5]}))
    assert "column 'x' is double, not int64 as before" in text
    assert "op.open(schema=...)" in text
    schema = pa.schema({"ts": pa.int64(), "x": pa.float64()})
    matcher = op.open(change, schema=schema)
    matcher.push({"ts": [1], "x": [5]})
    matcher.push([{"ts": 2, "x": 5.5}])
    matcher.push([{"ts": 3, "x": None}])


def test_python_values_become_a_type_only_where_nothing_is_lost() -> None:
    matcher = op.open(RISE, schema=TABLE.schema)
    for wrong in (1.5, "7", True):
        assert "column 'x' is" in said(
            lambda wrong=wrong: matcher.push({"ts": [1], "x": [wrong], "kind": ["a"]})
        )


@pytest.mark.parametrize(
    "query",
    [RISE, RISE.over(op.windows.time(5)), RISE.over(op.windows.session(5)).instances(2)],
    ids=["whole", "windows", "instances"],
)
def test_a_time_that_is_null_is_named_by_its_row(query: op.Query) -> None:
    text = said(lambda: op.match({"ts": [3, None, 1], "x": [1, 2, 3]}, query))
    assert "the time 'ts' is NULL" in text
    assert "row 1 of the input" in text


def test_a_pushed_time_that_is_null_is_named_by_its_row() -> None:
    ordered = op.Query().order_by("ts").pattern("A B")
    rows = {"ts": [1, None, 3]}
    windows = ordered.over(op.windows.time(10))
    assert "row 1 of the input" in said(lambda: op.open(windows).push({"ts": [1, None]}))
    assert "row 1 of the input" in said(lambda: op.open(ordered.within(5)).push(rows))
    # Without WITHIN a NULL has its place in the order: the last one.
    assert "ts is 3, after NULL" in said(lambda: op.open(ordered).push(rows))


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ('kind = "login"', "text goes into single quotes: 'login'"),
        ("kind = None", "write IS NULL"),
        ("x > LAG(x, 1)", "PREV(x, n)"),
        ("x > lead(x)", "NEXT(x, n)"),
        ("MATCH_SEQUENCE_NUMBER() > 1", "RUNNING COUNT(*)"),
    ],
)
def test_words_of_other_languages_get_a_hint(condition: str, hint: str) -> None:
    assert hint in said(lambda: op.match(TABLE, RISE.define(B=condition)))


class Failing(op.EventOperator):
    """Fails at the event whose x is 6."""

    output = pa.schema({"n": pa.int64()})

    def on_event(self, event: dict[str, Any]) -> list[dict[str, object]]:
        return [{"n": 1 // (event["x"] - 6)}]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda query: query, "kind = 'c'"),
        (lambda query: query.over(op.windows.count(2)), "window 0 of kind = 'c'"),
    ],
)
def test_what_fails_in_an_operator_names_it_and_its_window(
    change: Callable[[op.Query], op.Query], place: str
) -> None:
    query = change(op.Query("q").partition_by("kind").order_by("ts").apply(Failing))
    for found in (op.match, lambda rows, query: op.open(query).push(rows)):
        text = said(lambda found=found: found(TABLE, query))
        assert "operator Failing failed" in text
        assert f"\n  {place}\n" in text
        assert "ZeroDivisionError" in text


class Speechless(op.Operator):
    """An operator that does not say what it returns."""

    def process(self, window):
        return window.rows


@pytest.mark.parametrize("operator", [Speechless, lambda: Speechless()], ids=["class", "function"])
def test_an_operator_without_output_is_told_what_is_missing(operator: Any) -> None:
    query = op.Query().order_by("ts").apply(operator)
    with pytest.raises(op.BindError, match="does not say which columns it returns") as refused:
        op.match(TABLE, query)
    assert "output = pa.schema(" in str(refused.value.hint)


class Ducklike:
    """A class that is no operator, and lacks what one has."""

    output = pa.schema([("n", pa.int64())])


class Unfinished(op.SharedOperator):
    output = Ducklike.output


@pytest.mark.parametrize(
    ("operator", "method"),
    [
        (op.Operator, "process"), (op.EventOperator, "on_event"), (Unfinished, "process_windows"),
        (Ducklike, "process"), (int, "process"),
    ],
)  # fmt: skip
def test_an_operator_without_a_method_is_refused_when_it_is_given(
    operator: Any, method: str
) -> None:
    with pytest.raises(op.BindError, match=f"{operator.__name__} has no method '{method}'"):
        op.Query().apply(operator)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Unfinished(), "cannot be made(.|\n)*process_windows"),
        (lambda: Ducklike(), "operator Ducklike has no method 'process'"),
        (lambda needed: None, "cannot be made(.|\n)*needed"),
    ],
)
def test_a_function_that_makes_no_operator_is_refused(make: Any, message: str) -> None:
    with pytest.raises(op.BindError, match=message):
        op.match(TABLE, op.Query().order_by("ts").apply(make))


@pytest.mark.parametrize("events", [{}, [{}]])
def test_events_without_columns_are_said_to_have_none(events: Any) -> None:
    with pytest.raises(op.BindError, match="unknown column 'ts'") as refused:
        op.open(RISE).push(events)
    assert refused.value.hint == "the rows have no columns at all"


def test_a_lazy_frame_is_to_be_collected() -> None:
    with pytest.raises(op.DataError, match="no rows yet") as refused:
        op.match(pl.from_arrow(TABLE).lazy(), RISE)  # type: ignore[union-attr]
    assert ".collect()" in str(refused.value.hint)


def test_the_first_time_out_of_range_is_not_said_to_be_in_it() -> None:
    with pytest.raises(op.DataError, match="out of range: 4611686018427387904") as refused:
        op.match({"ts": [2**62], "x": [1]}, RISE)
    assert str(refused.value.hint).endswith("to below 2^62")
