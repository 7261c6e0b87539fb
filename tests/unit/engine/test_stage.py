"""Instances that order and match, in micro-batches with crashes, give what the table gives."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operators import FedOperator
from support.properties import examples

import outpace as op
from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.cell import Cell, CellKind, Counters
from outpace.engine.codec.table import read_table
from outpace.engine.stage import restore_stage
from outpace.errors import DataError, StateError
from outpace.plan.plan import Plan
from outpace.plan.stream_plan import StageDivision, plan_stream
from outpace.testing.stream_chain import BatchOutput, Chain, States

#: A time that decides all that time can.
END = 10_000

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.int64()),
        ("seq", pa.int64()),
        ("key", pa.string()),
        ("kind", pa.string()),
        ("v", pa.int64()),
    ]
)

#: Events of the same time are in order, however they come.
UNNUMBERED = SCHEMA.remove(SCHEMA.get_field_index("seq"))


@dataclass
class Simulated:
    """A chain of stages, run batch by batch as a cluster would, with re-runs of a batch."""

    plan: Plan[StageDivision]
    random: random.Random
    out: dict[CellKind, list[Any]] = field(default_factory=lambda: {kind: [] for kind in CellKind})
    pulse: int = int(NO_TIME)
    counters: list[Counters] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chain = Chain(self.plan.division.stages)

    def batch(self, table: pa.Table, watermark: int = NO_TIME) -> None:
        """Run a batch whose rows lie in several tasks; nothing of a crashed run counts."""
        cells = list(self.packed(table, watermark))
        given, states = self.run(cells)
        while self.random.random() < 0.4:
            assert self.run(cells) == (given, states)
        self.chain.states = states
        self.counters, *_ = given.counters
        for cell in given.cells:
            if cell.kind is not CellKind.PULSE:
                self.out[cell.kind] += read_table(cell.block).to_pylist()
            if cell.kind is CellKind.MATCHES:
                assert min(read_table(cell.block)["first_time"].to_pylist()) >= self.pulse
        # What a pulse promises is for the batches after it.
        pulses = [cell.watermark for cell in given.cells if cell.kind is CellKind.PULSE]
        self.pulse = min(pulses, default=self.pulse)

    def packed(self, table: pa.Table, watermark: int) -> Iterable[Cell]:
        cut = self.random.randint(0, table.num_rows)
        for task, part in enumerate((table.slice(0, cut), table.slice(cut))):
            for position, cell in enumerate(self.plan.division.packing.pack(part, watermark)):
                if cell.kind is CellKind.INVALID:
                    self.out[CellKind.INVALID] += read_table(cell.block).to_pylist()
                elif cell.kind is not CellKind.REPORT:
                    yield replace(cell, sender=task, position=position)

    def run(self, cells: list[Cell]) -> tuple[BatchOutput, States]:
        """Run a batch with its cells in any order, for nothing."""
        given, states = self.chain.crash(self.random.sample(cells, len(cells)))
        # Buffers are compared by what they hold.
        held = [replace(cell, block=bytes(cell.block)) for cell in given.cells]
        return replace(given, cells=held), states


def simulated(query: op.Query, instances: int = 1, seed: int = 0, **options: Any) -> Simulated:
    return Simulated(plan_stream(query, SCHEMA, instances, **options), random.Random(seed))


def kinds(pattern: str, within: int | None = 6) -> op.Query:
    query = (
        op.Query("q")
        .order_by("ts")
        .pattern(pattern)
        .define({name: f"kind = '{name.lower()}'" for name in "ABC" if name in pattern})
        .measures(first="FIRST(id)", last="LAST(id)", n="COUNT(*)", first_time="FIRST(ts)")
    )
    return query if within is None else query.within(within)


class Sums(op.Operator):
    """A user-defined operator: the sum of a window."""

    output = pa.schema([("sum", pa.int64()), ("first_time", pa.int64())])

    def __init__(self) -> None:
        self.sum, self.first = 0, END

    def process(self, events: pa.Table) -> None:
        self.sum += sum(events["v"].to_pylist())
        self.first = min([self.first, *events["ts"].to_pylist()])

    def close(self) -> dict[str, list[int]]:
        return {"sum": [self.sum], "first_time": [self.first]}

    def state(self) -> bytes:
        return f"{self.sum} {self.first}".encode()

    def restore(self, data: bytes) -> None:
        self.sum, self.first = map(int, data.split())


QUERIES = {
    "strict": kinds("A B+ C"),
    "next": kinds("A -> B -> C").skip_to_next_row(),
    "to a first row": kinds("A B+ C").skip_to_first("B"),
    "to a last row": kinds("A -> B+ -> C").skip_to_last("B"),
    "any": kinds("A ->> B"),
    "permuted": kinds("A? -> PERMUTE(B, C)"),
    "deadline": kinds("A -> !B").no_skip(),
    "path": kinds("A -> B").define(B="kind = 'b' AND v > A.v"),
    "all rows": kinds("A B").all_rows_per_match(),
    "unbounded": kinds("A -> B", within=None),
    "time windows": kinds("A -> B").over(op.windows.time(4, slide=2)),
    "sessions": kinds("A ->> B", within=None).over(op.windows.session(2)),
    "operator": op.Query("q").order_by("ts").apply(Sums).over(op.windows.time(5)),
}


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def event(number: int, time: int | None, kind: str = "x", key: str = "k") -> tuple[Any, ...]:
    return number, time, number, key, kind, 0


@pytest.mark.parametrize("pattern", ["PERMUTE(A, B)", "A? -> PERMUTE(A, B)", "A -> B C"])
def test_rows_that_fit_no_variable_stand_between_rows_that_must_follow_each_other(pattern):
    chain = simulated(kinds(pattern))
    rows = [event(number, number, kind) for number, kind in enumerate("axbxc")]
    chain.batch(table([*rows, event(5, END)]))
    assert chain.out[CellKind.MATCHES] == []


@pytest.mark.parametrize("instances", [1, 3])
def test_late_and_invalid_events_come_out_with_the_columns_of_the_input(instances):
    disorder = op.KSlack(2, late="side", invalid="quarantine", ahead=50)
    query = kinds("A -> B").partition_by("key").disorder(disorder)
    chain = simulated(query, instances)
    chain.batch(table([event(0, 10, "a", "p"), event(1, 12, "x", "q"), event(2, None, "x", "q")]))
    late, far = event(3, 9, "b", "p"), event(4, 500, "b", "q")
    chain.batch(table([late, far, event(5, 11, "b", "p")]))
    chain.batch(table([event(6, 20)]))
    assert chain.out[CellKind.LATE] == table([late]).to_pylist()
    assert [row["reason"] for row in chain.out[CellKind.INVALID]] == [
        "the time 'ts' is NULL",
        "the time 500 is too far ahead of 12",
    ]
    assert list(chain.out[CellKind.INVALID][1]) == ["reason", *SCHEMA.names]
    assert [(row["first"], row["last"]) for row in chain.out[CellKind.MATCHES]] == [(0, 5)]


def test_dropped_late_events_are_counted_and_not_given():
    chain = simulated(kinds("A -> B").disorder(op.KSlack(0)))
    chain.batch(table([event(0, 10, "a")]))
    chain.batch(table([event(1, 5, "b"), event(2, 11, "b"), event(3, 12)]))
    [counters] = chain.counters
    assert (counters.events, counters.late, counters.released, counters.buffered) == (2, 1, 2, 0)
    assert (counters.matches, counters.kept, chain.out[CellKind.LATE]) == (1, 0, [])


@pytest.mark.parametrize(
    ("windows", "instances"),
    [(None, 1), (None, 3), (op.windows.time(4, slide=2), 1), (op.windows.time(4, slide=2), 3)],
)
@examples(15)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(-9, 9), st.sampled_from("abx")), max_size=6), max_size=4
    ),
    slack=st.none() | st.integers(0, 5),
    late=st.sampled_from(["drop", "pass"]),
    seed=st.integers(0, 99),
)
def test_late_events_are_counted_whether_a_step_can_use_them_or_not(
    windows, instances, batches, slack, late, seed
):
    disorder = op.InOrder(late=late) if slack is None else op.KSlack(slack, late=late)
    query = kinds("A -> B").disorder(disorder)
    if windows is None:
        query = query.partition_by("key")
    else:
        query = query.over(windows).instances(instances)
    plan = plan_stream(query, UNNUMBERED, instances)
    assert plan.division.packing.drop
    assert len(plan.division.stages) == (3 if windows is not None and instances > 1 else 1)
    chain = Simulated(plan, random.Random(seed))
    greatest = None
    for batch in batches:
        rows = [event(number, time, kind, f"k{time}") for number, (time, kind) in enumerate(batch)]
        given = chain.run(list(chain.packed(table(rows).drop_columns("seq"), NO_TIME)))
        _, chain.chain.states = given
        watermark = -END if greatest is None else greatest - (slack or 0)
        counted = sum(counters.late for counters in given[0].counters[0])
        assert counted == sum(time < watermark for time, _ in batch)
        greatest = max(
            [*(time for time, _ in batch), *([] if greatest is None else [greatest])], default=None
        )


ADAPTIVE = {
    "mp": op.MPKSlack(),
    "quantile": op.Quantile(0.8, at_most=12),
    "aq": op.AQKSlack(error=0.2, aggregate="count", window=10),
    "aq of a column": op.AQKSlack(error=0.3, aggregate="sum", column="v", window=10),
    "ldop": op.LDOP(window=9, late="pass"),
}


@pytest.mark.parametrize("name", ADAPTIVE)
@examples(15)
@given(
    batches=st.lists(
        st.lists(
            st.tuples(
                st.integers(-9, 9),
                st.sampled_from("abxyz"),
                # Sums of these depend on the order, so that of events of one time counts.
                st.sampled_from([0.1, 1e17, -1e17, 3.0, math.nan, math.inf, None]),
            ),
            max_size=8,
        ),
        max_size=6,
    ),
    keyed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_an_adaptive_slack_needs_but_the_times_and_weights_of_events_that_no_step_can_use(
    name, batches, keyed, seed
):
    query = kinds("A -> B").disorder(ADAPTIVE[name])
    query = query.partition_by("key") if keyed else query
    place = UNNUMBERED.get_field_index("v")
    schema = UNNUMBERED.set(place, pa.field("v", pa.float64()))
    plan = plan_stream(query, schema, 2)
    assert plan.division.packing.drop
    assert [spec.instances for spec in plan.division.stages] == [1]
    chain, alone = Simulated(plan, random.Random(seed)), op.open(query)
    expected, late = [], 0
    for number, batch in enumerate(batches):
        rows = [
            event(8 * number + index, 5 * number + time, kind, f"k{time % 2}")
            for index, (time, kind, _) in enumerate(batch)
        ]
        weights = pa.array([weight for *_, weight in batch], pa.float64())
        piece = table(rows).drop_columns("seq").set_column(place, "v", weights)
        expected += alone.push(piece).to_pylist()
        chain.batch(piece)
        if chain.counters:
            late += chain.counters[0].late
            assert chain.counters[0].slack == alone.order.slack
        assert late == alone.order.late
    assert sorted(map(repr, chain.out[CellKind.MATCHES])) == sorted(map(repr, expected))


SPARSE = {
    "by arrival": (op.KSlack(3, arrival="at"), None),
    "weighed by arrival": (
        op.AQKSlack(error=0.3, aggregate="sum", column="v", window=10, arrival="at"),
        None,
    ),
    "of sources": (op.MPKSlack(late="pass"), ("s0", "s1")),
    "weighed of sources": (
        op.AQKSlack(error=0.3, aggregate="sum", column="v", window=10),
        ("s0", "s1"),
    ),
    "of sources by arrival": (op.Quantile(0.8, arrival="at"), ("s0", "s1")),
    "of silent sources": (op.LDOP(window=9, arrival="at", patience="9 us"), ("s0", "s1")),
}


@pytest.mark.parametrize("name", SPARSE)
@examples(15)
@given(
    batches=st.lists(
        st.lists(
            st.tuples(
                st.integers(-9, 9),
                st.sampled_from("abxyz"),
                st.sampled_from([0.1, 1e17, -1e17, 3.0, math.nan, None]),
                st.integers(0, 4),
                st.sampled_from(["s0", "s1"]),
            ),
            max_size=8,
        ),
        max_size=6,
    ),
    seed=st.integers(0, 99),
)
def test_where_sources_or_arrivals_decide_these_columns_alone_are_sent_of_events_without_use(
    name, batches, seed
):
    disorder, sources = SPARSE[name]
    query = kinds("A -> B").disorder(disorder)
    place = UNNUMBERED.get_field_index("v")
    schema = UNNUMBERED.set(place, pa.field("v", pa.float64()))
    schema = schema.append(pa.field("at", pa.int64())).append(pa.field("source", pa.string()))
    plan = plan_stream(query, schema, 2, sources=sources)
    assert plan.division.packing.drop
    chain, alone = Simulated(plan, random.Random(seed)), op.open(query, sources=sources)
    expected, late = [], 0
    for number, batch in enumerate(batches):
        rows = [
            dict(
                zip(
                    schema.names,
                    (8 * number + index, 5 * number + time, "k", kind, v, 5 * number + at, source),
                    strict=True,
                )
            )
            for index, (time, kind, v, at, source) in enumerate(batch)
        ]
        piece = pa.Table.from_pylist(rows, schema)
        expected += alone.push(piece).to_pylist()
        sent = [cell.kind for cell in plan.division.packing.pack(piece)]
        assert (CellKind.SPARSE in sent) == any(kind in "xyz" for _, kind, *_ in batch)
        chain.batch(piece)
        if chain.counters:
            assert chain.counters[0].slack == alone.order.slack
            assert chain.counters[0].events == sum(kind in "ab" for _, kind, *_ in batch)
            late += sum(counters.late for counters in chain.counters)
    assert late == alone.order.late
    assert sorted(map(repr, chain.out[CellKind.MATCHES])) == sorted(map(repr, expected))


def test_an_event_without_use_that_does_not_say_when_it_arrived_is_set_aside_as_it_is():
    schema = UNNUMBERED.append(pa.field("at", pa.int64()))
    disorder = op.KSlack(3, arrival="at", invalid="quarantine")
    chain = Simulated(plan_stream(kinds("A -> B").disorder(disorder), schema, 1), random.Random(0))
    rows = [(0, 1, "k", "a", 0, 1), (1, 2, "k", "x", 7, None), (2, 3, "k", "x", 8, 2)]
    table = pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in rows], schema)
    chain.batch(table)
    (aside,) = chain.out[CellKind.INVALID]
    assert aside.pop("reason") == "'at' is NULL, so nobody knows when the event arrived"
    assert aside == table.to_pylist()[1]


def test_what_is_weighed_of_events_that_no_step_can_use_decides_as_in_process():
    rng = np.random.default_rng(5)
    # Several events have one time, and sums of their weights depend on the order.
    times = np.sort(rng.integers(0, 450, 2000))
    came = np.argsort(times + rng.exponential(8, 2000) * (rng.random(2000) < 0.4), kind="stable")
    events = pa.table(
        {
            "id": np.arange(2000),
            "ts": times[came],
            "kind": rng.choice(list("abxyz"), 2000),
            "v": rng.lognormal(0, 3, 2000),
        }
    )
    slacks = {}
    for column in ("v", None):
        disorder = op.AQKSlack(error=0.2, aggregate="sum", column=column, window=30)
        query = kinds("A -> B").disorder(disorder)
        plan = plan_stream(query, events.schema, 2)
        assert plan.division.packing.drop
        chain, alone, other = Simulated(plan, random.Random(3)), op.open(query), op.open(query)
        slacks[column] = []
        for low in range(0, 2000, 100):
            piece = events.slice(low, 100)
            alone.push(piece)
            other.push(piece.take(rng.permutation(100)))
            chain.batch(piece)
            slacks[column].append(alone.order.slack)
            assert chain.counters[0].slack == alone.order.slack == other.order.slack
    assert slacks["v"] != slacks[None]
    assert len(set(slacks["v"])) > 5


@pytest.mark.parametrize("kind", ["b", "x"])
def test_an_event_too_far_ahead_fails_the_batch_of_its_instance(kind):
    chain = simulated(kinds("A -> B").disorder(op.KSlack(2, ahead=50)))
    chain.batch(table([event(0, 10)]))
    with pytest.raises(DataError, match="the time 500 is too far ahead of 11"):
        chain.batch(table([event(1, 11), event(2, 500, kind)]))


@pytest.mark.parametrize(
    ("query", "first", "second"),
    [
        (QUERIES["next"], (1, 1), (0, 0)),
        (QUERIES["time windows"], (1, 2), (0, 0)),
        # Without windows an operator lives as long as its key.
        (op.Query("q").order_by("ts").apply(Sums), (0, 2), (0, 3)),
    ],
)
def test_partial_matches_and_keys_are_counted(query, first, second):
    chain = simulated(query.partition_by("key"))
    chain.batch(table([event(0, 1, "a", "p"), event(1, 2, "b", "q")]))
    assert [(counters.partials, counters.keys) for counters in chain.counters] == [first]
    chain.batch(table([event(2, 100, "x", "r")]))
    assert [(counters.partials, counters.keys) for counters in chain.counters] == [second]


def test_an_instance_without_events_hears_the_time():
    query = kinds("A -> !B").partition_by("key").disorder(op.KSlack(0))
    chain = simulated(query, instances=4)
    chain.batch(table([event(0, 1, "a", "p")]))
    assert chain.out[CellKind.MATCHES] == []
    chain.batch(table([event(1, 7, "x", other) for other in "qrst"]))
    assert [row["first"] for row in chain.out[CellKind.MATCHES]] == [0]


def test_time_that_is_told_releases_events():
    chain = simulated(kinds("A -> B").disorder(op.Punctuation()))
    chain.batch(table([event(0, 2, "b"), event(1, 1, "a")]), watermark=1)
    assert chain.out[CellKind.MATCHES] == []
    chain.batch(SCHEMA.empty_table(), watermark=3)
    assert [row["last"] for row in chain.out[CellKind.MATCHES]] == [0]


def test_time_goes_as_far_as_all_who_tell_it_promise():
    plan = plan_stream(kinds("A -> B").disorder(op.Punctuation()), SCHEMA, 1)
    stage = plan.division.stages[0].make()
    rows = plan.division.packing.pack(table([event(0, 4, "a")]))
    pulses = [plan.division.packing.pulse(watermark) for watermark in (9, 5)]
    stage.step([cell for cells in (rows, *pulses) for cell in cells if cell.kind in stage.takes])
    assert (stage.counters.released, stage.counters.late) == (1, 0)
    stage.step(plan.division.packing.pack(table([event(1, 4, "b"), event(2, 7, "b")]))[:1])
    assert (stage.counters.buffered, stage.counters.late) == (1, 1)
    [matches, _] = stage.step(plan.division.packing.pulse(8))
    assert read_table(matches.block)["last"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("query", "pulse"),
    [
        (kinds("A -> B"), 100 - 6),
        (kinds("A -> B").within(6, "previous to current"), None),
        (kinds("A -> B", within=None), None),
        (kinds("A -> B").define(A="NEXT(v) > 1"), None),
        (kinds("A !B"), None),
        (kinds("A B $"), None),
        (kinds("A !B C"), 100 - 6),
        (kinds("A -> B").over(op.windows.time(20, slide=5)), 100 - 20),
        (kinds("A -> B").over(op.windows.count(4)), None),
    ],
)
def test_a_pulse_tells_how_far_back_a_match_may_reach_where_there_is_a_bound(query, pulse):
    chain = simulated(query)
    chain.batch(table([event(0, 100)]))
    assert chain.pulse == (NO_TIME if pulse is None else pulse)


def test_a_state_of_another_query_is_refused():
    saved = simulated(kinds("A -> B"))
    saved.batch(table([event(0, 1, "a")]))
    [spec] = simulated(kinds("A -> B -> C")).plan.division.stages
    with pytest.raises(StateError, match="belongs to another query"):
        restore_stage(spec, saved.chain.states[0][0])


@pytest.mark.parametrize(
    ("define", "partials"),
    [
        ({"A": "v > 1"}, 2),
        # Without a condition of its own every event may start one.
        ({}, 3),
        # The first two are decided: no match starts with them.
        ({"A": "v > PREV(v)"}, 1),
    ],
)
def test_undecided_starts_are_counted(define, partials):
    query = op.Query().order_by("ts").pattern("A -> B").within(10)
    query = query.define({**define, "B": "v < 0"}).measures(at="B.ts")
    schema = pa.schema([("ts", pa.int64()), ("v", pa.int64())])
    operator = FedOperator(query, schema)
    operator.push(pa.table({"ts": [1, 2, 3], "v": [5, 1, 6]}, schema=schema))
    assert operator.starts_kept() == partials
    operator.push(pa.table({"ts": [30], "v": [-1]}, schema=schema))
    assert operator.starts_kept() <= 1


# --- Several sources -----------------------------------------------------------------------------

SOURCES = ("east", "north", "west")
SOURCED = SCHEMA.append(pa.field("source", pa.string()))

#: Events of one batch: time, kind, key, number and source.
Batch = list[tuple[int, str, str, int, str]]


def sourced(batch: Batch, first: int = 0) -> pa.Table:
    rows = [
        (number, time, seq, key, kind, seq, source)
        for number, (time, kind, key, seq, source) in enumerate(batch, first)
    ]
    return pa.Table.from_pylist(
        [dict(zip(SOURCED.names, row, strict=True)) for row in rows], SOURCED
    )


class Compared:
    """A chain of stages, and one operator in process that is fed the same."""

    def __init__(
        self, query: op.Query, instances: int, seed: int, sources: tuple[str, ...]
    ) -> None:
        plan = plan_stream(query, SOURCED, instances, sources=sources)
        self.chain = Simulated(plan, random.Random(seed))
        self.matcher = op.open(query, sources=sources, schema=SOURCED)
        self.sources = sources
        self.found: list[Any] = []
        self.late: list[Any] = []
        self.counted = 0

    def batch(self, rows: pa.Table) -> None:
        """Run a batch, and check that what has come out by now is the same."""
        self.chain.batch(rows)
        for source in self.sources:
            own = rows.filter(pc.equal(rows["source"], source))
            if own.num_rows:
                self.take(self.matcher.push(own, source=source))
                self.late += self.matcher.late.to_pylist()
        self.counted += sum(counters.late for counters in self.chain.counters)
        assert self.counted == len(self.late)
        self.check()

    def take(self, matches: pa.Table) -> None:
        self.found += matches.to_pylist()

    def check(self) -> None:
        given = self.chain.out[CellKind.MATCHES]
        assert sorted(map(repr, given)) == sorted(map(repr, self.found))

    def end(self) -> None:
        """Let every source come to a time that decides all that time can."""
        self.batch(sourced([(END, "x", "p", END, source) for source in self.sources], END))


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    """Draw batches of events of all sources, each at most 3 behind what it sent before."""
    greatest = dict.fromkeys(SOURCES, 0)
    drawn = []
    for _ in range(draw(st.integers(0, 4))):
        batch: Batch = []
        event = st.tuples(
            st.sampled_from(SOURCES),
            st.integers(-3, 3),
            st.sampled_from("aabbcx"),
            st.sampled_from("pqr"),
            st.integers(0, 3),
        )
        for source, step, kind, key, seq in draw(st.lists(event, max_size=9)):
            time = max(greatest[source] + step, 0)
            greatest[source] = max(greatest[source], time)
            batch.append((time, kind, key, seq, source))
        drawn.append(batch)
    return drawn


SOURCED_QUERIES = {
    **{name: QUERIES[name] for name in ("strict", "next", "deadline", "path", "all rows")},
    "time windows": QUERIES["time windows"],
    "operator": QUERIES["operator"],
    "shared windows": kinds("A -> B").over(op.windows.count(4, slide=2)).instances(3),
    "shared time windows": QUERIES["time windows"].instances(2),
}


@examples(30)
@given(
    name=st.sampled_from(sorted(SOURCED_QUERIES)),
    keyed=st.booleans(),
    drawn=batches(),
    seed=st.integers(0, 99),
    instances=st.integers(1, 3),
)
def test_sources_give_what_they_give_in_process(name, keyed, drawn, seed, instances):
    query = SOURCED_QUERIES[name].disorder(op.KSlack(3, late="side"))
    query = query.partition_by("key") if keyed else query
    compared = Compared(query, instances, seed, SOURCES)
    for number, batch in enumerate(drawn):
        compared.batch(sourced(batch, 100 * number))
    compared.end()
    assert not compared.late
    waiting = sum(counters.buffered for counters in compared.chain.counters)
    # What no step can use need not wait.
    assert waiting in (0, len(SOURCES))


@examples(20)
@given(
    late=st.sampled_from(["drop", "side", "pass"]),
    drawn=batches(),
    slack=st.integers(0, 2),
    seed=st.integers(0, 99),
    keyed=st.booleans(),
)
def test_an_event_is_late_to_its_own_source_wherever_it_is_matched(late, drawn, slack, seed, keyed):
    query = kinds("A -> B").disorder(op.KSlack(slack, late=late))
    query = query.partition_by("key") if keyed else query
    compared = Compared(query, 2, seed, SOURCES)
    for number, batch in enumerate(drawn):
        compared.batch(sourced(batch, 100 * number))
    compared.end()
    side = compared.late if late == "side" else []
    given = compared.chain.out[CellKind.LATE]
    assert sorted(map(repr, given)) == sorted(map(repr, side))


def test_stages_show_the_ids_of_matches():
    query = kinds("A -> B").measures(first="FIRST(id)", first_time="FIRST(ts)", key="MATCH_ID()")
    run = simulated(query.disorder(op.KSlack(5)), seed=4)
    rows = [event(0, 1, "a"), event(1, 3, "b"), event(2, 20, "a"), event(3, 22, "b")]
    run.batch(table(rows[::-1]))
    run.batch(table([]), END)
    found = {row["first"]: row["key"] for row in run.out[CellKind.MATCHES]}
    assert sorted(found) == [0, 2]
    assert len({*found.values()}) == 2


def test_an_event_without_a_time_is_no_gap_among_numbers():
    query = kinds("A -> B").disorder(op.Sequence("1 s", invalid="quarantine"))
    run = simulated(query)
    run.batch(table([event(0, 1, "a"), event(1, None), event(2, 3, "b")]))
    assert run.chain.timer is None
    assert [row["id"] for row in run.out[CellKind.INVALID]] == [1]
    assert len(run.out[CellKind.MATCHES]) == 1


def test_a_source_that_says_nothing_holds_the_others_back():
    query = kinds("A -> B").partition_by("key").disorder(op.KSlack(0))
    compared = Compared(query, 3, 1, ("east", "west"))
    compared.batch(sourced([(1, "a", "p", 0, "east"), (2, "b", "p", 1, "east")]))
    compared.batch(sourced([(9, "x", "q", 2, "east")], 10))
    assert compared.found == []
    assert sum(counters.buffered for counters in compared.chain.counters) == 2
    # An event of any key, and of no use, tells every instance how far its source has come.
    compared.batch(sourced([(5, "x", "r", 0, "west")], 20))
    assert len(compared.found) == 1


def test_time_that_is_told_holds_for_every_source():
    query = kinds("A -> !B").disorder(op.Punctuation())
    compared = Compared(query, 1, 1, ("east", "west"))
    for told, found in ((1, 0), (2, 0), (20, 1)):
        rows = sourced([(2, "a", "p", 0, "east")] if told == 1 else [])
        compared.chain.batch(rows, told)
        if rows.num_rows:
            compared.take(compared.matcher.push(rows, source="east"))
        for source in compared.sources:
            compared.take(compared.matcher.heartbeat(source, told))
        compared.check()
        assert len(compared.found) == found


def test_an_event_too_far_ahead_is_so_of_its_source():
    disorder = op.KSlack(0, ahead=50, invalid="quarantine")
    compared = Compared(kinds("A -> B").disorder(disorder), 1, 1, ("east", "west"))
    compared.batch(sourced([(10, "a", "p", 0, "east"), (1000, "x", "p", 0, "west")]))
    compared.batch(sourced([(500, "x", "p", 0, "east"), (1010, "x", "p", 0, "west")], 10))
    [invalid] = compared.chain.out[CellKind.INVALID]
    assert (invalid["source"], invalid["reason"]) == ("east", "the time 500 is too far ahead of 10")


@pytest.mark.parametrize(
    ("source", "reason"), [(None, "'source' is NULL"), ("wset", "there is no source 'wset'")]
)
def test_events_of_an_unknown_source_cannot_be_used(source, reason):
    rows = sourced([(1, "a", "p", 0, "east"), (1, "a", "p", 0, source)])
    query = kinds("A -> B")
    with pytest.raises(DataError, match=reason) as error:
        plan_stream(query, SOURCED, 1, sources=("east", "west")).division.packing.pack(rows)
    assert "the sources are east, west" in str(error.value)
    guarded = query.disorder(op.InOrder(invalid="quarantine"))
    chain = Simulated(plan_stream(guarded, SOURCED, 1, sources=("east",)), random.Random(1))
    chain.batch(rows)
    [invalid] = chain.out[CellKind.INVALID]
    assert invalid == {"reason": reason, **rows.to_pylist()[1]}


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_source_is_any_kind_of_text(kind):
    schema = SOURCED.set(6, pa.field("source", kind))
    plan = plan_stream(kinds("A -> B"), schema, 1, sources=("east", "west"))
    rows = sourced([(1, "a", "p", 0, "west"), (2, "a", "p", 0, "east")]).cast(schema)
    cells = plan.division.packing.pack(rows)
    assert [cell.source for cell in cells if cell.kind is CellKind.EVENTS] == [0, 1]


def test_a_state_of_other_sources_is_refused():
    one, other = (
        plan_stream(kinds("A -> B"), SOURCED, 1, sources=sources)
        for sources in (("east", "west"), ("east", "north"))
    )
    saved = Simulated(one, random.Random(1))
    saved.batch(sourced([(1, "a", "p", 0, "east")]))
    with pytest.raises(StateError, match="belongs to another query"):
        restore_stage(other.division.stages[0], saved.chain.states[0][0])
