"""Queries that share a stream of micro-batches find what they find in process."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.grouped import SCHEMA, drawn_pieces, drawn_query
from support.properties import examples

import outpace as op
from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.cell import CellKind, Counters
from outpace.engine.codec.table import read_table
from outpace.engine.message import HostLoad
from outpace.engine.operator_spec import tells_timeouts
from outpace.engine.stage import restore_stage, run_step, save_stage
from outpace.pattern.disorder import Invalid, Late
from outpace.plan.plan import Plan
from outpace.plan.stream_plan import StageDivision, plan_group, plan_stream
from outpace.testing.stream_chain import Chain

RISE = op.Query("rise").partition_by("key").order_by("ts").pattern("A B").define(B="v > A.v")
PAIRS = op.Query("pairs").order_by("ts").pattern("A B").measures(a="A.ts", b="B.ts")
PAIRS = PAIRS.skip_to_next_row()
LOW = op.Query("low").order_by("ts").pattern("A").define(A="v < 1")


def streamed(plan: Plan[StageDivision], pieces: list[pa.Table]) -> Counter[str]:
    """Let the stage take pieces, one batch each, saved and read again between them."""
    (spec,) = plan.division.stages
    states: list[bytes | None] = [None] * spec.instances
    found: Counter[str] = Counter()
    for piece in pieces:
        cells = plan.division.packing.pack(piece)
        for number, state in enumerate(states):
            stage = restore_stage(spec, state, number)
            own = [cell for cell in cells if cell.instance == number]
            for cell in run_step(stage, own, number, 1):
                if cell.kind is not CellKind.REPORT:
                    rows = read_table(pa.py_buffer(cell.block)).to_pylist()
                    found.update(f"{cell.kind.name} {shown(row)}" for row in rows)
            states[number] = save_stage(spec, stage)
    return found


def in_process(
    group: op.QueryGroup,
    plan: Plan[StageDivision],
    pieces: list[pa.Table],
    sources: tuple[str, ...] | None = None,
) -> Counter[str]:
    nothing, no_timeout = (dict.fromkeys(one.names) for one in (plan.output, plan.runs.timed_out))
    matcher = op.open(group, sources=sources, timeouts=True)
    sides = {query.name for query in group.queries if query.order_of_arrival.late is Late.SIDE}
    found: Counter[str] = Counter()
    for piece in pieces:
        matches = [(nothing, one) for one in matcher.push(piece).items()]
        late = [({}, one) for one in matcher.late.items() if one[0] in sides]
        invalid = [({}, one) for one in matcher.invalid.items()]
        timed_out = [(no_timeout, one) for one in matcher.timed_out.items()]
        kinds = {"MATCHES": matches, "LATE": late, "INVALID": invalid, "TIMED_OUT": timed_out}
        for kind, told in kinds.items():
            for columns, (name, table) in told:
                rows = (columns | {"query": name} | row for row in table.to_pylist())
                found.update(f"{kind} {shown(row)}" for row in rows)
    return found


def shown(row: dict[str, object]) -> str:
    """A row without the id and numbers of rows, which tell the instance that took the events."""
    return repr({name: value for name, value in row.items() if name not in ("id", "rows")})


@examples(25)
@given(st.integers(0, 1 << 32), st.booleans(), st.sampled_from([None, ("east", "west")]))
def test_every_group_finds_what_it_finds_in_process(
    seed: int, keyed: bool, sources: tuple[str, ...] | None
) -> None:
    """Also what is set aside, and by which query, is the same, and with several sources."""
    random = Random(seed)
    queries = [drawn_query(random, f"q{number}") for number in range(random.randint(1, 3))]
    if keyed:
        late = random.choice(["drop", "side"])
        slack = op.KSlack(seed % 5, late=late, invalid="quarantine", ahead=30)
        queries = [one.partition_by("key").disorder(slack) for one in queries]
    group, pieces, schema = op.group(*queries), drawn_pieces(random), SCHEMA
    if sources is not None:
        known = all(one.order_of_arrival.invalid is Invalid.QUARANTINE for one in queries)
        names = [*sources, *(["lost"] if known else [])]
        schema = schema.append(pa.field("source", pa.string()))
        pieces = [
            piece.append_column(
                "source", pa.array([random.choice(names) for _ in range(len(piece))])
            )
            for piece in pieces
        ]
    timeouts = any(map(tells_timeouts, queries))
    plan = plan_group(group, schema, 3, timeouts=timeouts, sources=sources)
    assert streamed(plan, pieces) == in_process(group, plan, pieces, sources)


def counters(plan: Plan[StageDivision], pieces: list[pa.Table]) -> list[Counters]:
    """What the only stage counts, batch by batch."""
    (spec,) = plan.division.stages
    stage, found = spec.make(), []
    for piece in pieces:
        run_step(stage, plan.division.packing.pack(piece), 0, 1)
        found.append(stage.counters)
    return found


@given(st.integers(0, 1 << 32))
def test_a_stage_counts_what_it_counts_for_one_query(seed: int) -> None:
    random = Random(seed)
    query = op.Query("q").order_by("ts").pattern("A B").define(B="v > A.v")
    query = query.disorder(random.choice([op.KSlack(3), op.MPKSlack(), op.InOrder()]))
    pieces = drawn_pieces(random)
    both = op.group(query, replace(query, name="too"))
    alone = counters(plan_stream(query, SCHEMA, 1), pieces)
    for one, two in zip(alone, counters(plan_group(both, SCHEMA, 1), pieces), strict=True):
        twice = {"matches": 2 * one.matches, "kept": 2 * one.kept, "partials": 2 * one.partials}
        assert two == replace(one, **twice)


#: Those whose matches may be taken back: by the load of the stage, and by its clock.
CHANGING = {
    "by load": LOW.disorder(op.Speculative(6)),
    "by time": PAIRS.disorder(op.Sequence("20 us", late="correct", horizon=40)).emit("latest"),
}


def changed(plan: Plan[StageDivision], seed: int) -> list[tuple[list[dict[str, object]], Counters]]:
    """What a stage tells of each batch: the rows, and what it counts."""
    random, told, state, now = Random(seed), [], None, 0
    pieces, (spec,) = drawn_pieces(random), plan.division.stages
    times = sorted(time for piece in pieces for time in piece["ts"].to_pylist())
    given: Counter[int] = Counter()
    for piece in pieces:
        numbers = []
        for time in piece["ts"].to_pylist():
            numbers.append(times.index(time) + given[time])
            given[time] += 1
        now += random.randint(0, 15)
        stage = restore_stage(spec, state)
        cells = plan.division.packing.pack(piece.append_column("seq", pa.array(numbers)))
        cells = [cell for cell in cells if cell.kind is CellKind.EVENTS]
        busy = random.choice([None, 0.1, 0.8, 0.95])
        load = None if busy is None else HostLoad(busy, busy / 100)
        found = run_step(stage, cells, 0, 1, now if spec.clocked else int(NO_TIME), load)
        tables = [read_table(cell.block) for cell in found if cell.kind is CellKind.MATCHES]
        told.append(([row for table in tables for row in table.to_pylist()], stage.counters))
        state = save_stage(spec, stage)
    return told


@pytest.mark.parametrize("name", CHANGING)
@examples(25)
@given(st.integers(0, 1 << 32))
def test_a_query_that_takes_matches_back_is_in_a_group_what_it_is_alone(
    name: str, seed: int
) -> None:
    query, schema = CHANGING[name], SCHEMA.append(pa.field("seq", pa.int64()))
    alone, group = plan_stream(query, schema, 1), plan_group(op.group(query), schema, 1)
    assert group.division.stages[0].measured == query.speculates
    for (rows, one), (both, two) in zip(changed(alone, seed), changed(group, seed), strict=True):
        assert both == [{"query": query.name} | row for row in rows]
        assert two == one


def test_a_row_without_a_time_is_set_aside_by_every_query_that_shares_it() -> None:
    apart = op.KSlack(2, invalid="quarantine")
    other = replace(RISE, name="other")
    rows = pa.table({"ts": [1, None], "key": ["u", "v"], "v": [1, 2]}, schema=SCHEMA)

    def aside(*queries: op.Query) -> list[object]:
        plan = plan_group(op.group(*queries), SCHEMA, 3)
        cells = Chain(plan.division.stages).run(plan.division.packing.pack(rows))
        return [row for one in cells.tables(CellKind.INVALID) for row in one.to_pylist()]

    expected = {"reason": "the time 'ts' is NULL", "ts": None, "key": "v", "v": 2}
    # Divided by key it is found where rows are packed, and else by the order of each query.
    keyed = aside(RISE.disorder(apart), other.disorder(apart))
    alone = aside(RISE.disorder(apart), other.partition_by().disorder(apart))
    assert keyed == alone == [{"query": name} | expected for name in ("rise", "other")]
    with pytest.raises(op.DataError, match="'ts' is NULL"):
        aside(RISE.disorder(apart), other.disorder(op.KSlack(2)))
    named = SCHEMA.append(pa.field("query", pa.string()))
    with pytest.raises(op.BindError, match="hides which query a row takes no part in"):
        plan_group(op.group(RISE.disorder(apart)), named, 1)


def test_a_group_with_sources_names_them_and_goes_by_the_clocks_of_all() -> None:
    schema = SCHEMA.append(pa.field("source", pa.string()))
    patient = PAIRS.disorder(op.InOrder(patience="5 us"))
    plan = plan_group(op.group(patient, LOW), schema, 3, sources=("east", "west"))
    assert "  order: of 2 sources, each by itself: as each query says" in plan.lines()
    (spec,) = plan.division.stages
    assert (spec.clocked, spec.instances) == (True, 1)
    stage = spec.make()
    rows = {"ts": [1, 2, 3], "key": ["u"] * 3, "v": [0] * 3, "source": ["east"] * 3}
    cells = plan.division.packing.pack(pa.table(rows, schema=schema))
    assert not [one for one in run_step(stage, cells, 0, 1, 10) if one.kind is CellKind.MATCHES]
    assert stage.timer == 15
    # Who has events in a batch is not silent in it.
    cells = plan.division.packing.pack(pa.table(rows, schema=schema).slice(2))
    found = [one for one in run_step(stage, cells, 0, 1, 15) if one.kind is CellKind.MATCHES]
    (table,) = (read_table(one.block) for one in found)
    assert [(row["query"], row["a"]) for row in table.to_pylist()] == [("pairs", 1)]
    with pytest.raises(op.BindError, match="has no column 'source'"):
        plan_group(op.group(LOW), SCHEMA, 1, sources=("east",))


def test_queries_that_agree_on_the_key_are_divided_by_it() -> None:
    def instances(*queries: op.Query) -> int:
        return plan_group(op.group(*queries), SCHEMA, 3).division.stages[0].instances

    other = op.Query("other").partition_by("key").order_by("ts").pattern("A").define(A="v = 1")
    assert instances(RISE, other) == 3
    assert instances(RISE, other.disorder(op.KSlack(2))) == 3
    assert instances(RISE, other.partition_by()) == 1
    assert instances(RISE, other.disorder(op.MPKSlack())) == 1
    assert instances(RISE, other.disorder(op.InOrder(ahead=5))) == 1
    assert instances(RISE, other.over(op.windows.count(5), numbered=True)) == 1


def test_only_what_is_read_crosses_and_what_is_explained_says_where_it_goes() -> None:
    schema = SCHEMA.append(pa.field("unused", pa.string()))
    plan = plan_group(op.group(RISE, LOW), schema, 3)
    assert plan.crossing.columns == ("ts", "key", "v")
    assert "  2. order + match of all: 1 instance" in plan.lines()
    assert (
        "  2. order + match of all: 3 instances, by key"
        in plan_group(op.group(RISE), schema, 3).lines()
    )


def test_the_state_of_another_group_is_refused() -> None:
    def stage(*queries: op.Query) -> Plan[StageDivision]:
        return plan_group(op.group(*queries), SCHEMA, 1)

    (spec,) = stage(RISE, LOW).division.stages
    (other,) = stage(RISE, LOW.define(A="v < 2")).division.stages
    state = save_stage(spec, spec.make())
    assert restore_stage(spec, state)
    with pytest.raises(op.StateError, match="belongs to another query"):
        restore_stage(other, state)


def test_columns_of_one_name_have_one_type() -> None:
    text = op.Query("text").order_by("ts").pattern("A").measures(n="A.key")
    number = op.Query("number").order_by("ts").pattern("A").measures(n="A.v")
    with pytest.raises(op.BindError, match="'n' has two types") as caught:
        plan_group(op.group(text, number), SCHEMA, 1)
    assert caught.value.detail == "varchar in 'text', bigint in 'number'"
    with pytest.raises(op.BindError, match="hides which query a row is of"):
        plan_group(op.group(text.measures(query="1")), SCHEMA, 1)


def test_a_plan_is_that_of_every_query() -> None:
    plan = plan_group(op.group(RISE, LOW), SCHEMA, 3)
    assert plan.name == "rise and 1 more"
    assert [query.name for query in plan.queries] == ["rise", "low"]
    assert plan.output.names[:2] == ["query", "key"]
    assert plan.division.packing.keys == ()


def test_time_is_told_to_a_group_where_every_query_goes_by_it() -> None:
    found = op.Query("found").order_by("ts").pattern("A B").measures(at="B.ts", v="A.v").within(5)
    before = plan_stream(found, SCHEMA, 1)
    timed, other = (op.Query(name).order_by(name).pattern("A") for name in ("at", "v"))

    def told(*queries: op.Query) -> bool:
        return before.tells_time_to(plan_group(op.group(*queries), before.output, 1))

    assert told(timed, replace(timed, name="again"))
    assert not told(timed, other)
    assert not told(other, timed)
