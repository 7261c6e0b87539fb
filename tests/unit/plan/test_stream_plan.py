from dataclasses import replace

import pyarrow as pa
import pytest

from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.cell import CellKind
from outpace.engine.codec.table import read_table
from outpace.engine.stage import restore_stage, run_step, save_stage
from outpace.engine.stage_parts import WholeStage
from outpace.errors import StateError
from outpace.hosts.background import Compilable
from outpace.pattern.disorder import LDOP, AQKSlack, InOrder, KSlack, Punctuation, Quantile
from outpace.pattern.operator import EventOperator
from outpace.pattern.query import Query
from outpace.pattern.windows import CountWindows
from outpace.plan.plan import Plan
from outpace.plan.stream_plan import StageDivision, plan_stream
from outpace.testing.stream_chain import Chain


@pytest.mark.parametrize("windowed", [False, True])
def test_stages_that_match_tell_with_what_so_that_it_can_be_compiled_early(windowed):
    schema = pa.schema({"ts": pa.int64(), "v": pa.int64()})
    query = Query("q").order_by("ts").pattern("A -> B").define(A="v > 1", B="v < 1").within(10)
    if windowed:
        query = query.over(CountWindows(100, 10)).instances(2)
    stages = plan_stream(query.measures(n="COUNT(*)"), schema, 2).division.stages
    matching = {spec.name: isinstance(spec.matcher, Compilable) for spec in stages}
    split = {"order + split": False, "match": True, "merge": False}
    assert matching == (split if windowed else {"order + match": True})
    assert all(spec.matcher is spec.matcher for spec in stages)


@pytest.mark.parametrize(
    ("measure", "shown"),
    [
        ("LAST(ts)", True),
        ("FIRST(A.ts)", True),
        ("NEXT(B.ts)", True),
        ("PREV(A.ts)", False),
        ("LAST(ts) - 500", False),
        ("COUNT(*)", False),
    ],
)
def test_time_is_told_in_columns_with_the_time_of_an_event_of_the_match(measure, shown):
    schema = pa.schema({"ts": pa.int64(), "v": pa.int64()})
    query = Query("q").order_by("ts").pattern("A -> B").define(A="v > 1", B="v < 1").within(10)
    plan = plan_stream(query.measures(at=measure), schema, 1)
    assert plan.operator.shows_time_in("at") is shown
    if not shown:
        assert not plan.tells_time_in("at")


def test_a_stage_knows_by_the_bits_of_events_which_of_them_wait_with_ldop():
    schema = pa.schema({"ts": pa.int64(), "type": pa.string()})
    query = Query("q").order_by("ts").pattern("A -> B").define(A="type = 'a'", B="type = 'b'")
    query = query.measures(at="B.ts").disorder(LDOP(window=20, at_least=100))
    plan = plan_stream(query, schema, 2)
    (spec,) = plan.division.stages
    stage = spec.make(0)
    assert isinstance(stage, WholeStage)
    rows = pa.table({"ts": [1, 2, 3, 4, 200], "type": ["a", "x", "b", "x", "x"]})
    waiting, found = [], []
    for piece in (rows.slice(0, 4), rows.slice(4)):
        found += found_in(plan, stage, piece)
        waiting.append(stage.part.front.intake.counters().buffered)
    assert waiting == [2, 0]
    assert found == [{"at": 3}]


def test_rows_that_no_step_can_use_tell_the_time_and_what_is_weighed():
    types = {"ts": pa.int64(), "type": pa.string(), "v": pa.int64(), "at": pa.int64()}
    schema = pa.schema(types | {"source": pa.string()})
    query = Query("q").order_by("ts").pattern("A -> B").define(A="type = 'a'", B="type = 'b'")
    for disorder, said in (
        (AQKSlack(aggregate="sum", column="v", window=9), "only tell the time and v"),
        (AQKSlack(window=9), "only tell the time"),
        (
            AQKSlack(aggregate="sum", column="v", window=9, arrival="at"),
            "only tell the time, at and v",
        ),
        (KSlack(3, arrival="at"), "only tell the time and at"),
        (AQKSlack(window=9, late="side"), "blocks of ts, type, v, at, source and bits"),
    ):
        lines = plan_stream(query.measures(at="B.ts").disorder(disorder), schema, 2).lines()
        assert next(line for line in lines if "1. pack" in line).endswith(said)
    weighed = query.measures(at="B.ts").disorder(AQKSlack(aggregate="sum", column="v", window=9))
    lines = plan_stream(weighed, schema, 2, sources=("a", "b")).lines()
    assert next(line for line in lines if "1. pack" in line).endswith("the time, v and source")


def found_in(
    plan: Plan[StageDivision], stage: WholeStage, rows: pa.Table
) -> list[dict[str, object]]:
    """Return the matches that a stage finds in the next rows."""
    cells = run_step(stage, plan.division.packing.pack(rows), 0, 1, 0)
    blocks = [cell.block for cell in cells if cell.kind is CellKind.MATCHES]
    return [row for block in blocks for row in read_table(block).to_pylist()]


@pytest.mark.parametrize("disorder", [InOrder(late="pass"), KSlack(0, late="pass")])
def test_a_condition_on_the_time_reads_the_one_that_a_late_event_passes_at(disorder):
    schema = pa.schema({"ts": pa.int64(), "type": pa.string()})
    query = Query("q").order_by("ts").pattern("A").define(A="ts >= 10 AND type = 'a'")
    plan = plan_stream(query.measures(at="A.ts").disorder(disorder), schema, 2)
    assert plan.crossing.computed == (("A", "(`type` = 'a')"),)
    stage = plan.division.stages[0].make(0)
    assert isinstance(stage, WholeStage)
    pieces = [pa.table({"ts": times, "type": ["b", "a"]}) for times in ([1, 12], [13, 3])]
    assert found_in(plan, stage, pieces[0]) in ([], [{"at": 12}])
    assert found_in(plan, stage, pieces[1])[-1] == {"at": 12}


class Nothing(EventOperator):
    """Gives nothing."""

    output = pa.schema([("x", pa.int64())])

    def on_event(self, event: dict[str, object]) -> list[dict[str, object]]:
        return []


class NothingElse(Nothing):
    """Gives nothing, too, and is another one."""


def test_a_state_of_another_operator_of_the_user_is_refused():
    schema = pa.schema({"ts": pa.int64()})
    query = Query("q").order_by("ts").over(CountWindows(10, 10))
    one, other = (
        plan_stream(query.apply(it), schema, 1).division.stages for it in (Nothing, NothingElse)
    )
    for before, after in zip(one, other, strict=True):
        with pytest.raises(StateError, match="belongs to another query"):
            restore_stage(after, save_stage(before, before.make()))


def test_events_that_no_step_can_use_are_late_by_their_own_times():
    schema = pa.schema([("ts", pa.int64()), ("kind", pa.string())])
    query = Query("q").order_by("ts").pattern("B -> C").define(B="kind = 'b'", C="kind = 'c'")
    query = query.measures(t="B.ts").within(7).disorder(Punctuation())
    plan = plan_stream(query, schema, 2)
    chain, late = Chain(plan.division.stages), []
    for times, told in (([0], NO_TIME), ([], 2), ([3, 3, 1], NO_TIME)):
        rows = pa.table({"ts": times, "kind": ["d"] * len(times)}, schema)
        cells = [
            replace(cell, sender=0, position=place)
            for place, cell in enumerate(plan.division.packing.pack(rows, told))
        ]
        late.append(sum(counters.late for counters in chain.run(cells).counters[0]))
    assert late == [0, 0, 1]


def test_events_without_a_time_are_set_aside_though_no_step_can_use_them():
    schema = pa.schema({"ts": pa.int64(), "type": pa.string()})
    query = Query("q").order_by("ts").pattern("A").define(A="type = 'a'").measures(at="A.ts")
    query = query.disorder(Quantile(0.9, invalid="quarantine", at_most=5))
    plan = plan_stream(query, schema, 1)
    assert plan.division.packing.drop
    cells = plan.division.packing.pack(
        pa.table({"ts": [1, None], "type": ["a", "x"]}, schema=schema)
    )
    (invalid,) = [cell.block for cell in cells if cell.kind is CellKind.INVALID]
    assert read_table(invalid)["type"].to_pylist() == ["x"]
