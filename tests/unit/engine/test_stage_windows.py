"""Split, match and merge over micro-batches: what comes out, and when, is that of one operator."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from support.operators import FedOperator
from support.window_queries import KINDS, PATTERNS, Bounded, pattern

from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.cell import Cell, CellKind
from outpace.engine.match.bits import BitTask, with_bits
from outpace.engine.match.task import prepare
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.packing import Packing
from outpace.engine.stage import StagePart, StageSpec, restore_stage
from outpace.errors import StateError
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.disorder import InOrder, KSlack, Punctuation
from outpace.pattern.operator import EventOperator
from outpace.pattern.query import Query
from outpace.pattern.schedulers import Batches, LeastLoaded, RoundRobin, Scheduler
from outpace.pattern.windows import (
    BetweenWindows,
    CountWindows,
    SessionWindows,
    TimeWindows,
    WindowSpec,
)
from outpace.testing.stream_chain import BatchOutput, Chain
from outpace.windows import between

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("id", pa.int64()),
        ("kind", pa.string()),
        ("key", pa.int64()),
        ("seq", pa.int64()),
    ]
)
SLACK = 4


class SavedBounded(Bounded):
    """A predicate that has nothing to save."""

    def clone(self) -> SavedBounded:
        return SavedBounded()

    def state(self) -> bytes:
        return b""

    def restore(self, data: bytes) -> None:
        pass


class Climbs(EventOperator):
    """Gives the events whose kind is behind that of the one before."""

    output = pa.schema([("at", pa.int64())])

    def __init__(self) -> None:
        self.last = "z"

    def on_event(self, event: dict[str, object]) -> Iterable[Mapping[str, object]]:
        kind = str(event["kind"])
        if kind > self.last:
            yield {"at": event["id"]}
        self.last = kind

    def close(self) -> Mapping[str, Sequence[object]]:
        return {"at": [ord(self.last)]}

    def state(self) -> bytes:
        return self.last.encode()

    def restore(self, data: bytes) -> None:
        self.last = data.decode()


WINDOWS = {**KINDS, "predicate": BetweenWindows(predicate=SavedBounded())}
QUERIES = {**PATTERNS, "operator": Query("q").order_by("ts").apply(Climbs)}


def bits_of(query: Query, schema: pa.Schema) -> BitTask:
    """Return a query that reads bits, if it can."""
    return with_bits(prepare(query, schema))


def operator_of(query: Query, schema: pa.Schema, *, bits: bool) -> OperatorSpec:
    """Return a query as the stages see it, with columns of bits or without."""
    disorder = bind_disorder(query, schema)
    shape = {"disorder": disorder, "instances": query.instance_count, "forgets": True}
    if query.operator is not None:
        return OperatorSpec(query, schema, **shape)
    task = bits_of(query, schema).task if bits else prepare(query, schema)
    return OperatorSpec(query, task.bound.schema, task, **shape)


def split_specs(operator: OperatorSpec, count: int, identity: str) -> list[StageSpec]:
    """Return the stages of a query over windows that several instances match."""
    parts = [(StagePart.FRONT, 1), (StagePart.INSTANCE, count), (StagePart.BACK, 1)]
    return [StageSpec(part, several, operator, identity) for part, several in parts]


class Simulation:
    """A query as a chain of stages, beside one operator that is fed what must have come by now."""

    def __init__(self, query: Query, schema: pa.Schema, *, bits: bool = False) -> None:
        bits = bits and query.operator is None
        stream = operator_of(query, schema, bits=bits)
        specs = split_specs(stream, query.instance_count, "a query")
        # Hosts send the stages to where they run.
        self.chain = Chain(pickle.loads(pickle.dumps(specs)))  # noqa: S301
        self._disorder = stream.disorder
        self._packing = Packing(
            schema=schema,
            columns=tuple(stream.schema.names),
            keys=stream.bound.partition_by,
            instances=1,
            bits=bits_of(query, schema) if bits else None,
            drop=False,
            disorder=stream.disorder,
        )
        self._operator = FedOperator(query, schema, checked=False)
        # Time closes windows of several keys at once, and those that were forgotten are new again.
        self._any_order = bool(query.partitions) and isinstance(query.windows, TimeWindows)
        self._waiting = schema.empty_table()
        self._clock = NO_TIME
        self._times: dict[int, int] = {}
        #: No match that comes now has an event before this time.
        self.pulse = NO_TIME
        self.found = [stream.bound.output.empty_table()]
        self.expected = [stream.bound.output.empty_table()]

    def cells(self, tasks: Sequence[pa.Table], told: int = NO_TIME) -> list[Cell]:
        """Pack the rows of tasks."""
        return [
            replace(cell, sender=sender)
            for sender, rows in enumerate(tasks)
            for cell in self._packing.pack(rows, told)
        ]

    def run(self, tasks: Sequence[pa.Table], told: int = NO_TIME) -> BatchOutput:
        """Run a batch, and check that what comes out is what must, no more and no less."""
        given = self.chain.run(self.cells(tasks, told))
        self._times |= {
            event: time
            for rows in tasks
            for event, time in zip(rows["id"].to_pylist(), rows["ts"].to_pylist(), strict=True)
        }
        found = given.tables(CellKind.MATCHES)
        starts = [
            self._times[one]
            for rows in found
            if "first" in rows.column_names
            for one in rows["first"].to_pylist()
        ]
        assert all(start >= self.pulse for start in starts)
        assert given.pulse >= self.pulse
        self.pulse = given.pulse
        self.found += found
        self._expect(pa.concat_tables(tasks), told)
        self.check()
        return given

    def check(self) -> None:
        """Compare what came out with what must have by now."""
        found, expected = self.result(), pa.concat_tables(self.expected).to_pylist()
        if self._any_order:
            found, expected = sorted(found, key=repr), sorted(expected, key=repr)
        assert found == expected

    def result(self) -> list[dict[str, object]]:
        """Return all that came out."""
        found: list[dict[str, object]] = pa.concat_tables(self.found).to_pylist()
        return found

    def _expect(self, rows: pa.Table, told: int) -> None:
        """Feed the operator with all rows whose turn it is, in order."""
        rows = pa.concat_tables([self._waiting, rows]).sort_by("seq")
        times = rows["ts"].to_pylist()
        if not self._disorder.takes_watermarks:
            self._clock = max([self._clock, *times])
        slack = dict(self._disorder.settings).get("slack", 0)
        watermark = told if self._clock == NO_TIME else max(self._clock - slack, told)
        in_order = isinstance(self._disorder.value, InOrder)
        ready = len(times) if in_order else sum(time < watermark for time in times)
        self.expected.append(self._operator.push(rows.slice(0, ready)).matches)
        self._waiting = rows.slice(ready)
        if watermark != NO_TIME:
            self.expected.append(self._operator.advance(watermark).matches)


def events(**columns: object) -> pa.Table:
    """Return events with all columns; those that are not given say nothing."""
    times = columns["ts"]
    assert isinstance(times, list)
    defaults = {"kind": ["x"] * len(times), "key": [0] * len(times), "id": times, "seq": times}
    return pa.table({**defaults, **columns}, schema=SCHEMA)


PAIRS = pattern("A -> B")


def test_an_instance_without_windows_holds_nobody_back() -> None:
    query = PAIRS.over(CountWindows(2, 2)).instances(4, RoundRobin())
    given = Simulation(query, SCHEMA).run([events(ts=[1, 2], kind=["a", "b"])])
    assert [rows["last"].to_pylist() for rows in given.tables(CellKind.MATCHES)] == [[2]]


def test_time_alone_closes_windows_and_lets_their_matches_out() -> None:
    query = PATTERNS["strict"].over(TimeWindows(10, 10)).instances(2, RoundRobin())
    simulation = Simulation(query.disorder(Punctuation()), SCHEMA)
    given = simulation.run([events(ts=[1, 2], kind=["a", "b"])])
    assert not given.tables(CellKind.MATCHES)
    given = simulation.run([events(ts=[])], told=9)
    assert not given.tables(CellKind.MATCHES)
    given = simulation.run([events(ts=[])], told=10)
    assert [rows["n"].to_pylist() for rows in given.tables(CellKind.MATCHES)] == [[2]]


def test_a_pulse_is_as_late_as_undecided_matches_allow() -> None:
    query = PAIRS.over(CountWindows(4, 4)).instances(2, RoundRobin())
    simulation = Simulation(query, SCHEMA)
    # An a waits for its b.
    simulation.run([events(ts=[10, 20, 30], kind=["x", "a", "x"])])
    assert simulation.pulse == 20
    # The first window is closed, and the second has seen nothing of use.
    simulation.run([events(ts=[40, 50], kind=["x", "x"])])
    assert simulation.pulse == 50


def test_the_pulse_of_an_operator_is_where_its_first_open_window_starts() -> None:
    query = QUERIES["operator"].over(CountWindows(3, 3)).instances(2, RoundRobin())
    simulation = Simulation(query, SCHEMA)
    simulation.run([events(ts=[10, 20])])
    assert simulation.pulse == 10
    simulation.run([events(ts=[30])])
    assert simulation.pulse == 30
    simulation.run([events(ts=[40])])
    assert simulation.pulse == 40


@pytest.mark.parametrize("bits", [False, True])
def test_events_that_are_late_or_too_far_ahead_go_to_side_outputs(bits: bool) -> None:
    query = PAIRS.over(CountWindows(4, 4)).instances(2)
    query = query.disorder(KSlack(2, late="side", invalid="quarantine", ahead=100))
    simulation = Simulation(query, SCHEMA, bits=bits)
    chain = simulation.chain
    chain.run(simulation.cells([events(ts=[10, 11])]))
    given = chain.run(simulation.cells([events(ts=[8, 9]), events(ts=[500, 12])]))
    [late], [invalid] = given.tables(CellKind.LATE), given.tables(CellKind.INVALID)
    assert late.equals(events(ts=[8]))
    assert invalid.column_names == ["reason", *SCHEMA.names]
    assert invalid["ts"].to_pylist() == [500]
    assert "too far ahead" in invalid["reason"][0].as_py()
    split = given.counters[0][0]
    assert (split.events, split.late, split.invalid) == (4, 1, 1)


def test_late_events_are_counted_where_they_are_dropped() -> None:
    simulation = Simulation(PAIRS.over(CountWindows(4, 4)).instances(2), SCHEMA)
    chain = simulation.chain
    chain.run(simulation.cells([events(ts=[10])]))
    given = chain.run(simulation.cells([events(ts=[9, 11])]))
    assert not given.tables(CellKind.LATE)
    assert (given.counters[0][0].late, given.counters[0][0].released) == (1, 1)


def test_instances_count_the_events_that_they_were_sent() -> None:
    query = PAIRS.over(CountWindows(4, 2)).instances(2, RoundRobin())
    simulation = Simulation(query, SCHEMA)
    given = simulation.chain.run(simulation.cells([events(ts=list(range(8)))]))
    split, instances = given.counters[0][0], given.counters[1]
    assert split.released == 8
    # All but the first two are in two windows, of which each instance has one.
    assert sum(instance.events for instance in instances) == 14
    assert sum(instance.open_windows for instance in instances) == 1


def test_the_load_of_an_instance_is_what_it_was_sent() -> None:
    # One window behind the other, the first as long as three of the others.
    query = PAIRS.over(between(open="kind = 'a'", close="kind = 'c'"))
    simulation = Simulation(query.instances(2, LeastLoaded()), SCHEMA)
    owners = []
    for start, size in ((0, 6), (10, 2), (20, 2), (30, 2), (40, 2)):
        kinds = ["a", *["x"] * (size - 1)]
        given = simulation.run([events(ts=[*range(start, start + size)], kind=kinds)])
        owners.append([one.open_windows for one in given.counters[1]].index(1))
        simulation.run([events(ts=[start + size], kind=["c"])])
    assert owners == [0, 1, 1, 1, 0]


def test_counters_say_what_each_stage_holds() -> None:
    query = PAIRS.over(CountWindows(4, 2)).instances(2, RoundRobin()).disorder(KSlack(10))
    simulation = Simulation(query, SCHEMA)
    given = simulation.run([events(ts=[1, 2, 3, 20, 30], kind=["a", "x", "x", "x", "x"])])
    [[split], matched, [merged]] = given.counters
    assert (split.events, split.released, split.buffered) == (5, 3, 2)
    assert [one.open_windows for one in matched] == [1, 1]
    assert sum(one.kept for one in matched) == 3
    # The a is in the first window alone.
    assert sorted(one.partials for one in matched) == [0, 1]
    assert merged.matches == 0


# The numbers of sessions go on where a key comes again, those of time windows are given by time.
@pytest.mark.parametrize(("windows", "known"), [(TimeWindows(10, 10), 1), (SessionWindows(9), 3)])
def test_keys_are_counted_where_something_is_held_of_them(windows: WindowSpec, known: int) -> None:
    query = PAIRS.partition_by("key").over(windows, numbered=True).instances(2)
    simulation = Simulation(query, SCHEMA)
    given = simulation.run([events(ts=[1, 2, 3], key=[7, 8, 9], kind=["a", "a", "x"])])
    [[split], matched, _] = given.counters
    assert (split.keys, sum(one.keys for one in matched)) == (3, 3)
    assert sum(one.partials for one in matched) == 2
    given = simulation.run([events(ts=[20], key=[7])])
    [[split], matched, _] = given.counters
    assert (split.keys, sum(one.keys for one in matched)) == (known, 1)
    assert sum(one.partials for one in matched) == 0


@pytest.mark.parametrize("scheduler", [None, RoundRobin(), Batches(), LeastLoaded()])
def test_keys_that_are_gone_cost_nothing_where_time_numbers_windows(
    scheduler: Scheduler | None,
) -> None:
    query = PATTERNS["any"].partition_by("key").over(TimeWindows(8, 4), numbered=True)
    simulation = Simulation(query.instances(2, scheduler), SCHEMA)
    sizes = []
    for batch in range(40):
        first = 20 * batch
        times = [10 * batch + row // 4 for row in range(20)]
        keys, kinds = [*range(first, first + 10)] * 2, [*"ac"] * 10
        simulation.run([events(ts=times, key=keys, kind=kinds, id=[*range(first, first + 20)])])
        sizes.append(simulation.chain.state_bytes)
    assert max(sizes[20:]) <= 1.05 * max(sizes[:20])


@pytest.mark.parametrize("name", ["count", "time", "session", "between"])
@pytest.mark.parametrize("keyed", [False, True])
def test_states_do_not_grow_with_the_stream(name: str, keyed: bool) -> None:
    query = PATTERNS["any"].over(WINDOWS[name], numbered=True).instances(3, RoundRobin())
    query = query.partition_by("key") if keyed else query
    simulation = Simulation(query.disorder(KSlack(SLACK)), SCHEMA)
    rng = np.random.default_rng(1)
    sizes = []
    for batch in range(60):
        ids = np.arange(batch * 40, batch * 40 + 40)
        kinds = rng.choice(list("abcd"), 40).tolist()
        table = events(
            ts=(ids // 2 + 10 * batch).tolist(),
            kind=kinds,
            key=rng.integers(0, 3, 40).tolist(),
            id=ids.tolist(),
            seq=ids.tolist(),
        )
        simulation.chain.run(simulation.cells([table]))
        sizes.append(simulation.chain.state_bytes)
    assert max(sizes[30:]) < 1.2 * max(sizes[5:30])


def test_a_state_is_refused_by_another_number_of_instances() -> None:
    query = PAIRS.over(CountWindows(4, 4)).instances(2)
    chain = Simulation(query, SCHEMA).chain
    cells = Simulation(query, SCHEMA).cells([events(ts=[1])])
    chain.run(cells)
    other = Simulation(query.instances(3), SCHEMA).chain
    for place in range(3):
        with pytest.raises(StateError):
            restore_stage(other.specs[place], chain.states[place][0])
