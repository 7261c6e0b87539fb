"""Front, instances and back, driven in one process: any turns give the result of one instance."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from outpace.engine.back import Back
from outpace.engine.event import EVENT_ID, SEQUENCE_BITS, Events
from outpace.engine.front import Front
from outpace.engine.instance import Instance
from outpace.engine.message import (
    Deliver,
    Delivered,
    EventsArrived,
    SetAside,
    SourceEnded,
    Stimulus,
    TurnEnded,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.wire import pack_events, read_delivery, write_delivery
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.disorder import Speculative
from outpace.pattern.query import Query
from outpace.pattern.schedulers import (
    RoundRobin,
)
from outpace.pattern.windows import (
    CountWindows,
    TimeWindows,
)

SCHEMA = pa.schema([("ts", pa.int64()), ("key", pa.string()), ("x", pa.int64())])


class Driver:
    """Front, instances and back; an instance answers when it is told to."""

    def __init__(self, query: Query) -> None:
        disorder = None if query.order_of_arrival is None else bind_disorder(query, SCHEMA)
        instances = query.instance_count
        self.spec = spec = OperatorSpec(query, SCHEMA, disorder=disorder, instances=instances)
        self.front, self.back = Front(spec), Back(spec)
        self._instances = [Instance(spec) for _ in range(query.instance_count)]
        self._sent: list[deque[Deliver]] = [deque() for _ in self._instances]
        self.results: list[pa.Table] = []

    @property
    def busy(self) -> list[int]:
        return [number for number, queue in enumerate(self._sent) if queue]

    def step(self, stimulus: Stimulus) -> None:
        for message in self.front.step(stimulus):
            assert not isinstance(message, SetAside)
            self.back.step(message)
            if isinstance(message, Deliver):
                self._sent[message.instance].append(self.travelled(message))
        self._take()

    def push(self, rows: pa.Table) -> None:
        self.step(EventsArrived(rows))

    def answer(self, instance: int) -> None:
        answer = self._instances[instance].step(self._sent[instance].popleft())
        self.front.step(Delivered(instance, answer))
        self.back.step(Delivered(instance, answer))
        self._take()

    def travelled(self, delivery: Deliver) -> Deliver:
        block = pack_events(delivery.events, self.spec.kept.names) if delivery.size else None
        data = write_delivery(delivery, self.spec, apart=True)
        return read_delivery(pa.py_buffer(data), self.spec, block)

    def _take(self) -> None:
        self.results += [emit.matches.table for emit in self.back.step(TurnEnded())]


def test_an_instance_that_gets_nothing_holds_nobody_back() -> None:
    query = (
        Query()
        .order_by("ts")
        .pattern("A")
        .define(A="x = 1")
        .measures(ts="A.ts")
        .over(CountWindows(2, 2))
        .instances(8, RoundRobin())
    )
    driver = Driver(query)
    driver.push(pa.table({"ts": [1, 2], "key": ["a", "a"], "x": [1, 0]}, schema=SCHEMA))
    assert driver.busy == [0]
    assert not pa.concat_tables(driver.results).num_rows
    driver.answer(0)
    assert pa.concat_tables(driver.results)["ts"].to_pylist() == [1]


def test_a_match_is_remembered_while_another_instance_may_find_it_again() -> None:
    # The first window ends with event 3, which makes the match final there. In the second one only
    # event 4 shows that it does not go on.
    query = (
        Query()
        .order_by("ts")
        .pattern("A B+")
        .define(A="x = 1", B="x = 2")
        .measures(first="FIRST(ts)", last="LAST(ts)")
        .over(CountWindows(4, 2), numbered=True)
        .instances(2, RoundRobin())
    )
    driver = Driver(query)
    for ts, x in enumerate([0, 0, 1, 2, 0, 0, 0, 0]):
        driver.push(pa.table({"ts": [ts], "key": ["a"], "x": [x]}, schema=SCHEMA))
        while driver.busy:
            driver.answer(driver.busy[0])
    found = pa.concat_tables(driver.results).to_pylist()
    assert [(row["first"], row["last"], row["window"]) for row in found] == [(2, 3, 0)]
    assert driver.back.counters().remembered == 0


def test_a_mark_is_where_it_was_set_however_late_the_answers_before_it_come() -> None:
    query = (
        Query()
        .order_by("ts")
        .pattern("A")
        .measures(ts="A.ts")
        .over(CountWindows(2, 2))
        .instances(2, RoundRobin())
        .disorder(Speculative(10, alpha=0, checkpoints=1))
    )
    driver = Driver(query)
    # All is delivered, with a mark before each event, before anybody answers.
    for times in ([1, 2, 4, 5, 6], [3]):
        size = len(times)
        rows = {"ts": times, "key": ["a"] * size, "x": [0] * size}
        driver.push(pa.table(rows, schema=SCHEMA))
        while driver.busy:
            driver.answer(driver.busy[-1])
    found = pa.concat_tables(driver.results)
    there = Counter[int]()
    for row in found.to_pylist():
        there[row["ts"]] += row["diff"]
    assert sorted(there.elements()) == [1, 2, 3, 4, 5]


def test_loads_are_the_events_without_an_answer() -> None:
    query = Query().order_by("ts").pattern("A").over(CountWindows(2, 2)).instances(2, RoundRobin())
    driver = Driver(query)
    rows = pa.table({"ts": range(6), "key": ["a"] * 6, "x": range(6)}, schema=SCHEMA)
    driver.push(rows)
    assert driver.front.counters().loads == (4, 2)
    assert driver.front.counters().unanswered == (1, 1)
    driver.answer(0)
    assert driver.front.counters().loads == (0, 2)


@pytest.mark.parametrize("keyed", [False, True])
def test_events_travel_as_one_block(keyed: bool) -> None:
    query = Query().order_by("ts").pattern("A B").measures(x="B.x").over(TimeWindows(5, 5))
    query = query.partition_by("key") if keyed else query
    driver = Driver(query.within(3))
    rows = pa.table({"ts": [1, 2, 3], "key": list("aba"), "x": [1, 2, 3]}, schema=SCHEMA)
    driver.push(rows)
    later = rows.set_column(0, "ts", pa.array([4, 5, 6]))
    messages = driver.front.step(EventsArrived(later))
    delivery = next(one for one in messages if isinstance(one, Deliver))
    block = pack_events(delivery.events, ("ts", "x"))
    assert block.nbytes == block.num_rows * len(block.schema)
    assert len(block.schema) == (4 if keyed else 2)


def test_events_without_columns_travel() -> None:
    query = Query().pattern("A").over(CountWindows(2, 2))
    driver = Driver(query)
    rows = pa.table({"ts": range(3), "key": ["a"] * 3, "x": range(3)}, schema=SCHEMA)
    messages = driver.front.step(EventsArrived(rows))
    delivery = next(one for one in messages if isinstance(one, Deliver))
    own = driver.travelled(replace(delivery, ranges=np.array([[1, 3]]))).events
    assert (own.rows.num_rows, own.arrival.tolist()) == (2, [1, 2])


def test_ids_of_several_sources_travel_in_few_bytes() -> None:
    ids = np.array([7, (3 << SEQUENCE_BITS) + 5, 8])
    rows, numbers = pa.table({"x": [1, 2, 3], EVENT_ID.name: ids}), np.arange(3)
    events = Events(rows, numbers * 0, numbers, numbers, numbers[:0])
    assert pack_events(events, ("x", EVENT_ID.name)).nbytes == 3 * 3


def test_behind_the_end_a_turn_asks_nothing_of_instances() -> None:
    query = Query().order_by("ts").pattern("A B").measures(at="B.ts").over(CountWindows(4, 2))
    front = Front(OperatorSpec(query, SCHEMA, instances=2))
    assert len([one for one in front.step(TurnEnded()) if isinstance(one, Deliver)]) == 2
    front.step(SourceEnded())
    assert front.step(TurnEnded()) == []
