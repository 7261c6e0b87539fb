"""Parts that are made or driven in a wrong way say so, and where."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import outpace as op
from outpace.engine.back import Back
from outpace.engine.front import Front
from outpace.engine.group import GroupOperator
from outpace.engine.group_spec import GroupSpec
from outpace.engine.instance import Instance
from outpace.engine.message import (
    Deliver,
    Delivered,
    DeliveryFailed,
    Emit,
    EventsArrived,
    Routed,
    SourceEnded,
    TurnEnded,
    WatermarkArrived,
)
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.recoverable import RecoverableOperator
from outpace.engine.state import State
from outpace.errors import BindError, DataError, StateError, UnsupportedError
from outpace.pattern.bind.disorder import bind_disorder

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int64()})
PAIRS = op.Query("pairs").order_by("ts").pattern("A B").define(A="x = 1", B="x = 2")
DISORDERS = [op.KSlack(5), op.KSlack(5, late="correct", horizon=9), op.Speculative(5)]


def rows(*times: int) -> EventsArrived:
    return EventsArrived(pa.table({"ts": times, "x": [1 + time % 2 for time in times]}, SCHEMA))


@pytest.mark.parametrize("disorder", DISORDERS)
def test_a_disorder_has_to_be_bound(disorder: Any) -> None:
    with pytest.raises(BindError, match="not bound to the columns of events") as told:
        OperatorSpec(PAIRS.disorder(disorder), SCHEMA, disorder=disorder)
    assert told.value.where == "disorder"
    assert "bind_disorder(query, schema)" in str(told.value)


@pytest.mark.parametrize("sources", [None, ("east", "west")])
@pytest.mark.parametrize("disorder", DISORDERS)
def test_the_disorder_of_a_query_is_not_forgotten(
    disorder: Any, sources: tuple[str, ...] | None
) -> None:
    spec = OperatorSpec(PAIRS.disorder(disorder), SCHEMA, sources=sources)
    with pytest.raises(BindError, match="takes them in order") as told:
        WholeOperator(spec)
    assert told.value.where == "query 'pairs': disorder"


@pytest.mark.parametrize("disorder", DISORDERS)
def test_a_table_is_in_order_whatever_a_query_says_of_streams(disorder: Any) -> None:
    table = rows(5, 2, 3, 4).rows
    query = PAIRS.over(op.windows.count(2, slide=1)).measures(at="B.ts")
    for asked in (PAIRS.measures(at="B.ts"), query, query.instances(2)):
        assert op.match(table, asked.disorder(disorder))["at"].to_pylist() == [3, 5]


def test_queries_of_a_group_have_names_of_their_own() -> None:
    with pytest.raises(BindError, match="two queries of the group are named 'pairs'"):
        GroupSpec((PAIRS, op.Query("other").order_by("ts").pattern("A"), PAIRS), SCHEMA)
    with pytest.raises(BindError, match="one query at least"):
        GroupSpec((), SCHEMA)


@pytest.mark.parametrize("message", [None, "events", pa.table({"ts": [1], "x": [1]})])
def test_parts_refuse_what_is_no_message(message: Any) -> None:
    spec = OperatorSpec(PAIRS, SCHEMA)
    group = GroupOperator(GroupSpec((PAIRS.disorder(op.KSlack(1)),), SCHEMA))
    for part, name in ((Front(spec), "front"), (Instance(spec), "instance"), (group, "group")):
        with pytest.raises(DataError, match=rf"{name} does not take {type(message).__name__}"):
            part.step(message)


def test_parts_refuse_messages_of_others() -> None:
    front = Front(OperatorSpec(PAIRS, SCHEMA))
    delivery, routed = front.step(rows(1, 2))
    assert isinstance(delivery, Deliver)
    assert isinstance(routed, Routed)
    wrong: list[Any] = [delivery, routed]
    for message in wrong:
        with pytest.raises(DataError, match="the front does not take") as told:
            front.step(message)
        assert "it takes BatchBegun, ClockExchange, Delivered" in str(told.value)
    instance: Any = Instance(OperatorSpec(PAIRS, SCHEMA))
    with pytest.raises(DataError, match="does not take the class TurnEnded, which is no message"):
        instance.step(TurnEnded)
    back: Any = Back(OperatorSpec(PAIRS, SCHEMA))
    with pytest.raises(DataError, match="the back does not take EventsArrived"):
        back.step(rows(1, 2))
    # The answer to what was said before counts all the same.
    front.step(Delivered(0, instance.step(delivery)))
    assert front.arrived == 2


def test_who_forgets_an_answer_is_told_so() -> None:
    spec = OperatorSpec(PAIRS.over(op.windows.count(2)), SCHEMA)
    front, instance = Front(spec), Instance(spec)
    delivery, _ = front.step(rows(1, 2))
    assert isinstance(delivery, Deliver)
    with pytest.raises(DataError, match="or its answer has not come yet") as told:
        front.step(rows(3, 4))
    assert "deliveries without an answer: 1" in str(told.value)
    front.step(Delivered(0, instance.step(delivery)))
    front.step(rows(3, 4))
    front.step(DeliveryFailed())
    with pytest.raises(DataError) as failed:
        front.step(rows(5, 6))
    assert failed.value.message == "an earlier push failed"


def test_an_instance_that_is_restored_alone_does_not_go_back_to_a_mark_that_it_has_not() -> None:
    """It would go on from where it stands, and matches would be missing."""
    query = PAIRS.disorder(op.Speculative(100, alpha=0, checkpoints=op.checkpoints.Every(1)))
    spec = OperatorSpec(query, SCHEMA, disorder=bind_disorder(query, SCHEMA))
    front, instance = Front(spec), Instance(spec)

    def step(message: EventsArrived) -> list[int]:
        found = []
        for said in front.step(message):
            if isinstance(said, Deliver):
                answer = instance.step(said)
                front.step(Delivered(0, answer))
                found += answer.matches.table["first_time"].to_pylist()
        return found

    for time in (0, 2, 4, 6):
        assert step(rows(time)) == []
    whole, alone = front.snapshot(), instance.snapshot()
    # The front stands where it stood, and has more marks than the saved instance.
    alone.restore(State.decode(instance.state().encode()))
    again = State.decode(alone.state().encode())
    assert step(rows(5)) == [4]
    for state in (alone.state(), again):
        front, instance = whole.snapshot(), Instance(spec)
        instance.restore(state)
        with pytest.raises(StateError, match="does not have mark 2, to which the front goes back"):
            step(rows(5))
    # Where all parts are restored, the front has no other mark either.
    front, instance = Front(spec), Instance(spec)
    front.restore(State.decode(whole.state().encode()))
    instance.restore(again, front)
    assert step(rows(5)) == [4]
    instance = Instance(spec)
    wrong = State({"oldest": 3, "newest": 2}, parts=again.parts)
    with pytest.raises(StateError, match="not in their order"):
        instance.restore(wrong)


def corrected(*, restored: bool) -> list[tuple[object, ...]]:
    """Return the matches of two instances that a late event corrects, maybe from saved parts."""
    query = (
        op.Query("pairs").order_by("ts").partition_by("k").pattern("A B")
        .measures(a="A.ts", b="B.ts").disorder(op.KSlack(0, late="correct", horizon=100))
    )  # fmt: skip
    schema = pa.schema([("ts", pa.int64()), ("k", pa.string())])
    spec = OperatorSpec(query, schema, disorder=bind_disorder(query, schema), instances=2)
    operator, instances = WholeOperator(spec), [Instance(spec) for _ in range(2)]
    left: list[tuple[object, ...]] = []

    def take(message: Any) -> None:
        given = operator.step(message)
        while given:
            one = given.pop(0)
            if isinstance(one, Deliver):
                answer = instances[one.instance].step(one)
                given += operator.step(Delivered(one.instance, answer))
            elif isinstance(one, Emit):
                for row in one.matches.table.to_pylist():
                    match = row["k"], row["a"], row["b"]
                    left.append(match) if row["diff"] > 0 else left.remove(match)

    def came(key: str, *times: int) -> None:
        take(EventsArrived(pa.table({"ts": times, "k": [key] * len(times)}, schema)))

    came("a", 1)
    came("a", 2, 3)
    if restored:
        with pytest.raises(StateError, match="instances have not heard of all marks"):
            operator.front.state()
        take(TurnEnded())
        saved = [part.state() for part in (operator.front, operator.back, *instances)]
        operator, instances = WholeOperator(spec), [Instance(spec) for _ in range(2)]
        for part, state in zip((operator.front, operator.back, *instances), saved, strict=True):
            part.restore(state)
    came("b", 10, 12)
    came("b", 11)
    came("b", 13)
    take(SourceEnded())
    return sorted(left, key=repr)


def test_parts_that_are_saved_together_go_on_with_corrections() -> None:
    assert corrected(restored=True) == corrected(restored=False)
    assert ("b", 10, 11) in corrected(restored=False)


def test_a_source_that_nobody_named_is_refused() -> None:
    operator = WholeOperator(OperatorSpec(PAIRS, SCHEMA))
    for message in (
        EventsArrived(rows(1).rows, source="east"),
        WatermarkArrived(5, "east"),
        SourceEnded("east"),
    ):
        with pytest.raises(DataError, match="there is no source 'east'"):
            operator.step(message)
    for sources in ((), "east", ("east", "east")):
        wrong: Any = sources
        with pytest.raises(BindError, match="not a tuple of different names"):
            OperatorSpec(PAIRS, SCHEMA, sources=wrong)


def test_answers_of_nobody_are_refused() -> None:
    spec = OperatorSpec(PAIRS.over(op.windows.count(2)), SCHEMA, instances=2)
    operator, instance = WholeOperator(spec), Instance(spec)
    delivery = operator.step(rows(1, 2))[0]
    assert isinstance(delivery, Deliver)
    answer = instance.step(delivery)
    for number in (-1, 2):
        with pytest.raises(StateError, match="there are 2, counted from 0"):
            operator.step(Delivered(number, answer))
    operator.step(Delivered(delivery.instance, answer))
    with pytest.raises(StateError, match="all that it was sent is answered"):
        operator.step(Delivered(delivery.instance, answer))
    assert not any(operator.counters().unanswered)
    with pytest.raises(StateError, match="instances are elsewhere"):
        operator.state()
    with pytest.raises(UnsupportedError, match="share partitions without windows"):
        RecoverableOperator(OperatorSpec(PAIRS, SCHEMA, instances=2))
