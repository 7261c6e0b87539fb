"""Rows of a stream on Spark that are heartbeats tell what a call tells a stream in process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.engine.codec.cell import CellKind
from outpace.pattern.disorder import Disorder
from outpace.plan.plan import Plan
from outpace.plan.stream_plan import StageDivision, plan_group, plan_stream
from outpace.testing.stream_chain import Chain

SOURCES = ("east", "west")
SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("key", pa.string()),
        ("v", pa.int64()),
        ("source", pa.string()),
        ("told", pa.int64()),
    ]
)
PAIRS = (
    op.Query("pairs")
    .order_by("ts")
    .pattern("A -> B")
    .define(A="v > 2", B="v < 2")
    .measures(a="A.ts", b="B.ts")
    .within(9)
)
KINDS: dict[str, Disorder] = {
    "in order": op.InOrder(late="side"),
    "slack": op.KSlack(3, late="side"),
    "told": op.Punctuation(late="side", invalid="quarantine"),
    "greatest delay": op.MPKSlack(late="side"),
    "corrects": op.KSlack(1, late="correct", horizon=5),
}

#: A time, a key, a value and a source, and what sources promise after them.
Batch: TypeAlias = "tuple[list[tuple[int, str, int, str]], dict[str, int]]"


@st.composite
def drawn_batches(draw: st.DrawFn) -> list[Batch]:
    """Draw events that are out of order by a bit, and heartbeats, of which not all are kept."""
    event = st.tuples(
        st.sampled_from([0, 1, 2]),
        st.sampled_from([0, 0, -2, -5]),
        st.sampled_from("uv"),
        st.integers(0, 4),
        st.sampled_from(SOURCES),
    )
    promise = st.dictionaries(st.sampled_from(SOURCES), st.integers(-4, 1))
    batches, time = [], 10
    for events, told in draw(st.lists(st.tuples(st.lists(event, max_size=5), promise), max_size=6)):
        rows = []
        for step, aside, key, value, source in events:
            time += step
            rows.append((time + aside, key, value, source))
        batches.append((rows, {source: time + off for source, off in told.items()}))
    return batches


def table_of(batch: Batch, *, spread: bool = False) -> pa.Table:
    """Return a batch as the rows of a stream; heartbeats come before the events, or the last."""
    events, told = batch
    rows = [(*event, None) for event in events]
    beats = [(None, None, None, source, time) for source, time in told.items()]
    # An older one says nothing more.
    beats += [(None, None, None, source, time - 3) for source, time in told.items()]
    every = [*rows, *beats] if spread else [*beats, *rows]
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in every], SCHEMA
    )


def streamed(plan: Plan[StageDivision], batches: list[Batch]) -> list[dict[str, list[str]]]:
    chain, found = Chain(plan.division.stages), []
    for number, batch in enumerate(batches):
        given = chain.run(plan.division.packing.pack(table_of(batch, spread=number % 2 > 0)))
        kinds = {"matches": CellKind.MATCHES, "late": CellKind.LATE}
        found.append(
            {
                name: sorted(str(row) for table in given.tables(kind) for row in table.to_pylist())
                for name, kind in kinds.items()
            }
        )
    return found


def in_process(
    query: op.Query, batches: list[Batch], sources: tuple[str, ...] | None
) -> list[dict[str, list[str]]]:
    stream, found = op.open(query, sources=sources, schema=SCHEMA), []
    shows = query.order_of_arrival.late.value == "side"
    for events, told in batches:
        given = [stream.push(table_of((events, {})))]
        late = stream.late
        if sources is None and told:
            given.append(stream.advance(max(told.values())))
        elif sources is not None:
            given += [stream.heartbeat(source, told[source]) for source in sorted(told)]
        rows = [str(row) for table in given for row in table.to_pylist()]
        found.append(
            {
                "matches": sorted(rows),
                "late": sorted(str(row) for row in late.to_pylist()) if shows else [],
            }
        )
    return found


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@examples(8)
@given(batches=drawn_batches(), sources=st.sampled_from([None, SOURCES]))
def test_a_row_tells_what_a_call_tells(kind, keyed, batches, sources) -> None:
    query = (PAIRS.partition_by("key") if keyed else PAIRS).disorder(KINDS[kind])
    if kind == "in order" and sources is None:
        # Who is late among events of one time is decided key by key, where the source orders them.
        batches = [([(*event[:3], "east") for event in events], told) for events, told in batches]
    plan = plan_stream(query, SCHEMA, 3, sources=sources, heartbeats="told")
    assert streamed(plan, batches) == in_process(query, batches, sources)


@examples(8)
@given(batches=drawn_batches(), sources=st.sampled_from([None, SOURCES]), keyed=st.booleans())
def test_a_group_hears_it_as_its_queries_do(batches, sources, keyed) -> None:
    query = (PAIRS.partition_by("key") if keyed else PAIRS).disorder(KINDS["told"])
    group = op.group(query, replace(query, name="again"))
    plan = plan_group(group, SCHEMA, 3, sources=sources, heartbeats="TOLD")
    found = [
        [row.replace("'query': 'again', ", "") for row in one["matches"] if "again" in row]
        for one in streamed(plan, batches)
    ]
    assert found == [one["matches"] for one in in_process(query, batches, sources)]


def test_a_heartbeat_of_a_silent_source_is_a_word() -> None:
    query = PAIRS.disorder(op.InOrder(patience="5 us"))
    plan = plan_stream(query, SCHEMA, 1, sources=SOURCES, heartbeats="told")
    assert "  rows with told tell the time of their source, and are no events" in plan.lines()
    (spec,) = plan.division.stages
    chain = Chain([spec])

    def run(now: int, *batch: Any) -> int | None:
        _, chain.states = chain.crash(plan.division.packing.pack(table_of(batch)), now)
        return chain.timer

    assert run(10, [(1, "u", 3, "east")], {}) == 15
    # West speaks at 14, and is waited for from then on; east is silent before that.
    assert run(14, [], {"west": 1}) == 15


def test_what_no_source_sends_is_set_aside() -> None:
    query = PAIRS.disorder(KINDS["told"])
    plan = plan_stream(query, SCHEMA, 1, sources=SOURCES, heartbeats="told")
    rows = table_of(([(1, "u", 3, "east")], {"nobody": 4}))
    (invalid,) = (
        table
        for table in Chain(plan.division.stages)
        .run(plan.division.packing.pack(rows))
        .tables(CellKind.INVALID)
    )
    assert invalid["reason"].to_pylist() == ["there is no source 'nobody'"] * 2
    strict = plan_stream(PAIRS, SCHEMA, 1, sources=SOURCES, heartbeats="told")
    with pytest.raises(op.DataError, match="there is no source 'nobody'"):
        strict.division.packing.pack(rows)


def test_heartbeats_are_times() -> None:
    with pytest.raises(op.BindError, match="the heartbeats in 'key' are varchar, not bigint"):
        plan_stream(PAIRS, SCHEMA, 1, heartbeats="key")
    with pytest.raises(op.BindError, match="the heartbeats in 'ts'"):
        plan_stream(PAIRS, SCHEMA, 1, heartbeats="ts")
    with pytest.raises(op.BindError, match="heart"):
        plan_stream(PAIRS, SCHEMA, 1, heartbeats="heart")
    other = op.Query("v").order_by("v").pattern("A")
    with pytest.raises(op.BindError, match="a heartbeat tells one time"):
        plan_group(op.group(PAIRS, other), SCHEMA, 1, heartbeats="told")
    with pytest.raises(op.UnsupportedError, match="only a streaming DataFrame"):
        op.match(SCHEMA.empty_table(), PAIRS, heartbeats="told")
