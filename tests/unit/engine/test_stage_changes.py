"""Stages that share windows go back together: what they take back and find is that of one place."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.disordered import PATTERNS, SCHEMA, drawn_events
from support.properties import examples

import outpace as op
from outpace.engine.codec.cell import CellKind
from outpace.engine.message import HostLoad
from outpace.engine.stage import StagePart, run_step
from outpace.pattern.disorder import Disorder
from outpace.plan.stream_plan import plan_stream
from outpace.testing.stream_chain import Chain

WINDOWS = st.sampled_from(
    [op.windows.time(10, slide=5), op.windows.count(6, slide=3), op.windows.session(3)]
)
DISORDERS = st.sampled_from(
    [
        op.Speculative(6, alpha=0, checkpoints=50),
        op.Speculative(6, alpha=0.5, checkpoints=1),
        op.Speculative(op.MPKSlack(), alpha=0.2, checkpoints=2),
        op.KSlack(1, late="correct", horizon=9),
    ]
)
#: What is said of matches, of which it may be said at different times that they are certain.
Told = Counter[str]


@st.composite
def queries(draw: st.DrawFn) -> op.Query:
    pattern, conditions = draw(PATTERNS)
    query = op.Query("q").order_by("ts").pattern(pattern).define(**conditions).within(7)
    query = query.measures(seqs="ARRAY_AGG(seq)").instances(draw(st.integers(2, 3)))
    if keyed := draw(st.booleans()):
        query = query.partition_by("key")
    if draw(st.booleans()):
        query = query.skip_to_next_row()
    query = query.over(draw(WINDOWS), numbered=keyed)
    return query.emit(draw(st.sampled_from(["changes", "latest"])))


def arriving(random: Random) -> list[pa.Table]:
    """Events out of order, in pieces, and one by which all is certain."""
    events = drawn_events(random)
    order = sorted(range(len(events)), key=lambda n: events["ts"][n].as_py() + random.randint(0, 8))
    pieces, low = [], 0
    while low < len(events):
        size = random.randint(1, 6)
        pieces.append(events.take(order[low : low + size]))
        low += size
    last = [{"ts": ts, "seq": ts, "key": "u", "v": 0} for ts in (1000, 2000)]
    return [*pieces, *(pa.Table.from_pylist([one], SCHEMA) for one in last)]


def told(tables: list[pa.Table]) -> tuple[Told, Told]:
    """What comes and goes, and which matches are certain."""
    rows = [row for table in tables for row in table.to_pylist()]
    sure = Counter(row["match_id"] for row in rows if row.pop("confirmed", False))
    return Counter(repr(row) for row in rows if row["diff"]), sure


@examples(15)
@given(queries(), DISORDERS, st.integers(0, 1 << 32))
def test_they_take_back_and_find_what_one_place_does(
    query: op.Query, disorder: Disorder, seed: int
) -> None:
    random, query = Random(seed), query.disorder(disorder)
    plan = plan_stream(query, SCHEMA, 2)
    assert StagePart.BACK in [one.part for one in plan.division.stages]
    chain, beside = Chain(plan.division.stages), op.open(query)
    sure, known = Told(), Told()
    for piece in arriving(random):
        cells = plan.division.packing.pack(piece)
        again, _ = chain.crash(cells)
        given = chain.run(cells)
        assert given.cells == again.cells, "a batch that is run again gives the same"
        said, certain = told(given.tables(CellKind.MATCHES))
        expected, others = told([beside.push(piece)])
        assert said == expected
        sure, known = sure + certain, known + others
        # Rows that go on again go on apart, so what they decide may be certain earlier.
        assert not known - sure
    assert sure == known


def test_the_stages_count_what_they_take_back() -> None:
    query = op.Query("q").order_by("ts").pattern("A B").define(B="v > A.v").measures(at="B.ts")
    query = query.over(op.windows.time(10, slide=5)).instances(2)
    plan = plan_stream(query.disorder(op.Speculative(50, alpha=0)), SCHEMA, 2)
    chain, counted, moved = Chain(plan.division.stages), [], []
    # What comes at 2 is part of the match in the place of what came at 3.
    for events in (((1, 1), (3, 2), (12, 1), (20, 1)), ((2, 9), (30, 1)), ((900, 1),)):
        rows = [{"ts": ts, "seq": ts, "key": "u", "v": v} for ts, v in events]
        given = chain.run(plan.division.packing.pack(pa.Table.from_pylist(rows, SCHEMA)))
        (front,), _, (back,) = given.counters
        changes = back.tentative, back.retracted, back.confirmed
        counted.append((front.rollbacks, front.replayed, *changes))
        moved.append((front.checkpoints > 0, front.redeliveries > 0))
        copied = front.checkpoint_bytes, back.checkpoint_bytes
        assert all(copied) if front.checkpoints else not any(copied)
    assert moved == [(True, False), (False, True), (False, False)]
    assert counted == [(0, 0, 1, 0, 0), (1, 3, 1, 1, 0), (0, 0, 0, 0, 1)]


@pytest.mark.parametrize("windows", [None, op.windows.time(10, slide=5)])
def test_a_stage_tells_what_its_checkpoints_took(windows: object) -> None:
    query = op.Query("q").order_by("ts").pattern("A B").define(B="v > A.v").measures(at="B.ts")
    query = query.disorder(op.Speculative(50, alpha=0, checkpoints=1))
    if windows is not None:
        query = query.over(windows).instances(2)
    plan = plan_stream(query, SCHEMA, 2)
    stages = plan.division.stages
    assert [stage.measured for stage in stages] == [True, False, False][: len(stages)]
    stage, taken = stages[0].make(), []
    for first, load in ((0, None), (10, HostLoad(busy=0.5, worked=0.02))):
        rows = [{"ts": ts, "seq": ts, "key": "u", "v": 1} for ts in range(first, first + 10)]
        cells = plan.division.packing.pack(pa.Table.from_pylist(rows, SCHEMA))
        run_step(stage, cells, 0, 1, load=load)
        taken.append((stage.counters.checkpoints, stage.counters.checkpoint_us > 0))
    # The last event waits for the next.
    assert taken == [(9, False), (10, True)]


def test_a_stage_tells_that_memory_is_used_up() -> None:
    query = op.Query("q").order_by("ts").pattern("A B").define(B="v > A.v").measures(at="B.ts")
    plan = plan_stream(query.disorder(op.Speculative(50, alpha=0, memory=3)), SCHEMA, 2)
    stage = plan.division.stages[0].make()
    rows = [{"ts": ts, "seq": ts, "key": "u", "v": 1} for ts in range(10)]
    run_step(stage, plan.division.packing.pack(pa.Table.from_pylist(rows, SCHEMA)), 0, 1)
    assert stage.counters.full == 1


@pytest.mark.parametrize("windows", [None, op.windows.time(10, slide=5)])
def test_what_is_saved_is_what_k_keeps_and_not_the_batch(windows: object) -> None:
    query = op.Query("q").order_by("ts").pattern("A B").define(B="v > A.v").measures(at="B.ts")
    if windows is not None:
        query = query.over(windows).instances(2)
    plan = plan_stream(query.disorder(op.Speculative(50, alpha=0, checkpoints=1000)), SCHEMA, 2)
    chain, sizes = Chain(plan.division.stages), []
    for size in (5_000, 50_000):
        first = len(sizes) * 5_000
        seq = pa.array(range(first, first + size))
        values = [number * 7 % 10 for number in range(size)]
        rows = {"ts": seq, "seq": seq, "key": ["u"] * size, "v": values}
        chain.run(plan.division.packing.pack(pa.table(rows, schema=SCHEMA)))
        sizes.append(chain.state_bytes)
    assert sizes[1] < 1.2 * sizes[0] < 200_000


@pytest.mark.parametrize("windows", [None, op.windows.time(10, slide=5)])
def test_once_events_were_late_no_more_than_k_goes_on_again_or_is_saved(windows: object) -> None:
    """Before the fix all of a batch did that came with the mark before the late event."""
    query = op.Query("q").order_by("ts").pattern("A B").define(B="v > A.v").measures(at="B.ts")
    if windows is not None:
        query = query.over(windows).instances(2)
    plan = plan_stream(query.disorder(op.Speculative(50, alpha=0)), SCHEMA, 2)
    chain, size, replayed, sizes = Chain(plan.division.stages), 20_000, [], []
    for first in range(0, 6 * size, size):
        # The first of a batch belongs before what came last.
        times = [first - 20, *range(first + 1, first + size)]
        rows = {"ts": times, "seq": times, "key": ["u"] * size, "v": [ts % 3 for ts in times]}
        given = chain.run(plan.division.packing.pack(pa.table(rows, schema=SCHEMA)))
        replayed.append(given.counters[0][0].replayed)
        sizes.append(chain.state_bytes)
    assert min(replayed[1:]) > 0
    assert max(replayed[-3:]) < 200
    assert max(sizes[-3:]) < 20_000 < min(sizes[:1])
