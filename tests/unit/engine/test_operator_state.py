"""What parts of an operator keep is saved, and what does not fit a saved state is refused."""

from __future__ import annotations

import sys
from types import FrameType

import pyarrow as pa
import pytest
from support.operators import written

import outpace as op
from outpace.engine.arrays import NO_TIME
from outpace.engine.back import Back
from outpace.engine.front import Front
from outpace.engine.instance import Instance
from outpace.engine.message import (
    Answer,
    Deliver,
    Delivered,
    EventsArrived,
    Routed,
    SetAside,
    SourceEnded,
    TurnEnded,
)
from outpace.engine.operator import WholeOperator, matches_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.identify import EventIds
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import BindError, DataError, MatchError, StateError, UnsupportedError
from outpace.pattern.bind.disorder import bind_disorder

ROWS = pa.table({"ts": [1, 2, 3, 4, 5, 6], "x": [1, 2, 1, 2, 1, 2]})
PAIRS = (
    op.Query("pairs").order_by("ts").pattern("A B").define(A="x = 1", B="x = 2").measures(at="B.ts")
)
WINDOWS = PAIRS.over(op.windows.count(4, slide=1))


def spec_of(query: op.Query, **more: object) -> OperatorSpec:
    return OperatorSpec(query, ROWS.schema, instances=query.instance_count, **more)  # type: ignore[arg-type] # as asked for


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (op.schedulers.Batches(2), op.schedulers.ByKey()),
        (op.schedulers.Batches(4), op.schedulers.Batches(1)),
        (op.schedulers.RoundRobin(), op.schedulers.Batches(2)),
    ],
)
def test_another_scheduler_is_refused(
    before: op.schedulers.Scheduler, after: op.schedulers.Scheduler
) -> None:
    front = Front(spec_of(WINDOWS.instances(2, before)))
    front.step(EventsArrived(ROWS))
    with pytest.raises(StateError, match="belongs to another scheduler"):
        Front(spec_of(WINDOWS.instances(2, after))).restore(written(front.state()))


def test_answers_after_a_restore_lower_the_loads() -> None:
    spec = spec_of(WINDOWS.instances(2))
    front, instances = Front(spec), [Instance(spec), Instance(spec)]
    deliveries = [one for one in front.step(EventsArrived(ROWS)) if isinstance(one, Deliver)]
    again = Front(spec)
    again.restore(written(front.state()))
    for one in deliveries:
        again.step(Delivered(one.instance, instances[one.instance].step(one)))
    assert again.counters().loads == (0, 0)
    assert again.counters().unanswered == (0, 0)


@pytest.mark.parametrize("slow", [0, 1])
def test_a_back_goes_on_where_it_was_saved(slow: int) -> None:
    spec = spec_of(WINDOWS.instances(2, op.schedulers.RoundRobin()))
    front, backs = Front(spec), [Back(spec), Back(spec)]
    instances = [Instance(spec), Instance(spec)]
    sent: list[list[Deliver]] = [[], []]
    found: list[list[int]] = []

    def tell(message: Deliver | Routed | Delivered | TurnEnded) -> None:
        # One of them is saved after every message, while answers are due and matches wait.
        said = [back.step(message) for back in backs]
        saved = written(backs[1].state())
        backs[1] = Back(spec)
        backs[1].restore(saved)
        assert said[0] == said[1]
        assert backs[0].state().encode() == backs[1].state().encode()
        found.extend(emit.matches.table["at"].to_pylist() for emit in said[0])

    def answer(number: int) -> None:
        while sent[number]:
            tell(Delivered(number, instances[number].step(sent[number].pop(0))))
            tell(TurnEnded())

    for stimulus in (*(EventsArrived(ROWS.slice(row, 1)) for row in range(6)), SourceEnded()):
        for message in front.step(stimulus):
            assert isinstance(message, Deliver | Routed)
            tell(message)
            if isinstance(message, Deliver):
                sent[message.instance].append(message)
        tell(TurnEnded())
        answer(1 - slow)
    assert backs[1].counters().waiting
    answer(slow)
    assert [at for part in found for at in part] == [2, 4, 6]


def test_a_delivery_that_nobody_answers_is_one_that_failed() -> None:
    front = Front(OperatorSpec(PAIRS, ROWS.schema))
    for _ in range(2):
        delivery, _ = front.step(EventsArrived(ROWS))
        assert isinstance(delivery, Deliver)
        assert (delivery.arrived, front.arrived) == (6, 0)
    operator = WholeOperator(OperatorSpec(PAIRS, ROWS.schema))
    operator.step(EventsArrived(ROWS))
    assert operator.front.arrived == 6
    # Windows that opened cannot be taken back.
    front = Front(OperatorSpec(WINDOWS, ROWS.schema))
    front.step(EventsArrived(ROWS))
    with pytest.raises(DataError, match="an earlier push failed"):
        front.step(EventsArrived(ROWS))


def test_the_end_lets_out_what_waits() -> None:
    query = PAIRS.disorder(op.KSlack(100))
    operator = WholeOperator(
        OperatorSpec(query, ROWS.schema, disorder=bind_disorder(query, ROWS.schema))
    )
    assert matches_of(operator.step(EventsArrived(ROWS))).num_rows == 0
    assert matches_of(operator.step(SourceEnded()))["at"].to_pylist() == [2, 4, 6]


def test_a_column_cannot_be_taken_for_ids() -> None:
    named = ROWS.append_column("__outpace_id", pa.array([7] * 6))
    for match in (op.match, lambda table, query: op.open(query).push(table)):
        with pytest.raises(BindError, match="cannot have the name '__outpace_id'"):
            match(named, WINDOWS)


def test_there_are_only_so_many_sources() -> None:
    with pytest.raises(UnsupportedError, match="too many sources"):
        EventIds(tuple(map(str, range(40_000))))


def test_a_state_from_before_the_first_push_forgets_all() -> None:
    empty = op.open(PAIRS).state()
    stream = op.open(PAIRS)
    stream.push(ROWS.slice(0, 1))
    stream.restore(empty)
    assert stream.push(ROWS.slice(1, 1)).num_rows == 0
    assert stream.rows_kept == 0 or stream.finish().num_rows == 0


def test_a_stream_that_follows_another_does_not_go_back() -> None:
    first = op.open(PAIRS.within(10))
    follows = (
        op.Query("next").order_by("at").pattern("C D").measures(c="C.at", d="D.at").within(100)
    )
    second = op.open(follows)
    second.push({"at": [20]})
    with pytest.raises(DataError, match="at is 2, after 20"):
        second.push(first.push(ROWS))
    assert second.push({"at": [21]})["d"].to_pylist() == [21]
    third = op.open(follows)
    third.push(first.push({"ts": [30, 31], "x": [1, 2]}))
    with pytest.raises(DataError, match="after"):
        third.push({"at": [1]})


def test_an_end_that_fails_takes_back_nothing_but_itself() -> None:
    query = op.Query("q").order_by("ts").pattern("A $").measures(n="CAST(LAST(A.s) AS BIGINT)")
    stream = op.open(query)
    stream.push({"ts": [10], "s": ["x"]})
    with pytest.raises(DataError, match="cannot cast"):
        stream.finish()
    with pytest.raises(DataError, match="comes before"):
        stream.push({"ts": [5], "s": ["1"]})


class Counted(op.Operator):
    output = pa.schema([("n", pa.int64())])

    def __init__(self) -> None:
        self._count = 0

    def process(self, events: pa.Table) -> None:
        self._count += events.num_rows

    def close(self) -> dict[str, list[int]]:
        return {"n": [self._count]}

    def state(self) -> bytes:
        return str(self._count).encode()

    def restore(self, state: bytes) -> None:
        self._count = int(state)


@pytest.mark.parametrize(
    "windows",
    [
        None,
        op.windows.count(3),
        op.windows.count(4, slide=1),
        op.windows.time(5, slide=2),
        op.windows.session(2),
        op.windows.landmark("x = 1"),
    ],
)
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("operator", [False, True])
def test_a_stream_that_has_ended_is_saved_and_stays_ended(
    windows: op.windows.Windows | None, *, keyed: bool, waits: bool, operator: bool
) -> None:
    query = op.Query("q").order_by("ts")
    query = query.apply(Counted) if operator else query.pattern("A B").measures(n="COUNT(*)")
    query = query if windows is None else query.over(windows)
    query = query.disorder(op.KSlack(1)) if waits else query
    query = query.partition_by("key") if keyed else query
    stream = op.open(query)
    stream.push({"ts": [1, 2, 3, 4], "x": [1, 2, 1, 2], "key": [0, 1, 0, 1]})
    stream.finish()
    resumed = op.resume(query, stream.state())
    assert resumed.state() == stream.state()
    with pytest.raises(op.DataError, match="finished"):
        resumed.push({"ts": [9], "x": [1], "key": [0]})


RISE = op.Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")


def test_a_column_that_nobody_reads_may_have_any_type() -> None:
    stream = op.open(RISE)
    stream.push({"ts": [1], "x": [1], "note": [7]})
    assert stream.push({"ts": [2], "x": [2], "note": ["seven"]})["at"].to_pylist() == [2]


def test_operators_without_windows_are_counted_and_not_explained() -> None:
    search = op.search(pa.table({"ts": [1, 2, 3]}), op.Query("q").order_by("ts").apply(Counted))
    assert search.count() == search.table().num_rows == 1
    for ask in (search.timed_out, lambda: search.why(0), lambda: search.why_not([0])):
        with pytest.raises(UnsupportedError, match="not at an operator"):
            ask()


def test_matches_of_another_stream_that_are_refused_change_nothing() -> None:
    first = op.open(op.Query("q").order_by("ts").pattern("A B?").within(5).measures(ts="B.ts"))
    matches = first.push({"ts": [1, 20]})
    assert matches["ts"].to_pylist() == [None]
    stream = op.open(op.Query("p").order_by("ts").pattern("A B").measures(at="B.ts"))
    with pytest.raises(DataError):
        stream.push(matches)
    assert stream.push({"ts": [1, 2]})["at"].to_pylist() == [2]


def test_a_state_that_is_refused_changes_nothing() -> None:
    stream, other = op.open(RISE), op.open(RISE.define(B="x < A.x"))
    stream.push({"ts": [1], "x": [1]})
    other.push({"ts": [100], "x": [1]})
    with pytest.raises(StateError):
        stream.restore(other.state())
    assert stream.push({"ts": [2], "x": [2]})["at"].to_pylist() == [2]


def test_a_back_promises_no_time_before_all_have_answered() -> None:
    query = RISE.over(op.windows.count(2)).instances(2)
    spec = spec_of(query)
    back, nothing = Back(spec), WindowMatches.none(spec.bound.output)
    rows = pa.table({"ts": [1, 2], "x": [9, 8]})
    for message in Front(spec).step(EventsArrived(rows)):
        assert not isinstance(message, SetAside)
        back.step(message)
    back.step(Delivered(0, Answer(nothing, pa.table({}), 2, 2, 100)))
    (emit,) = back.step(TurnEnded())
    assert emit.watermark == NO_TIME


@pytest.mark.parametrize("order", [(1, 0), (0, 0)])
def test_an_answer_out_of_turn_is_refused(order: tuple[int, ...]) -> None:
    spec = spec_of(RISE.over(op.windows.count(2)).instances(1))
    front, instance, back = Front(spec), Instance(spec), Back(spec)
    answers = []
    for first in (1, 3):
        rows = pa.table({"ts": [first, first + 1], "x": [9, 8]})
        for message in front.step(EventsArrived(rows)):
            assert not isinstance(message, SetAside)
            back.step(message)
            if isinstance(message, Deliver):
                answers.append(instance.step(message))
    back.step(Delivered(0, answers[order[0]]))
    with pytest.raises(StateError, match="an answer of instance 0 comes out of turn"):
        back.step(Delivered(0, answers[order[1]]))


def test_sources_whose_events_have_no_ids_may_be_any_number() -> None:
    query = op.Query("q").order_by("ts").apply(Counted)
    op.open(query, sources=[str(number) for number in range(40_000)]).push({"ts": [1]}, source="0")


def test_ids_do_not_depend_on_the_order_in_which_sources_are_named() -> None:
    one, other = EventIds(("a", "b")), EventIds(("b", "a"))
    for source in ("a", "b"):
        assert one.give(ROWS, source).equals(other.give(ROWS, source))


def test_events_that_are_pushed_twice_are_two() -> None:
    first = op.open(PAIRS)
    pushed = first.push(ROWS)
    twice = op.Query("twice").order_by("at").pattern("C").measures(at="C.at")
    for query in (twice, twice.over(op.windows.count(4, slide=1))):
        stream = op.open(query.disorder(op.KSlack(9)))
        stream.push(pushed)
        stream.push(pushed)
        stream.finish()
        (emit,) = stream._emits.values()
        assert emit.matches.table["at"].to_pylist() == [2, 2, 4, 4, 6, 6]
        assert len(set(emit.matches.ids.array.to_pylist())) == 6


def test_a_column_of_a_user_gives_no_ids() -> None:
    query = op.Query("q").order_by("ts").pattern("A").measures(at="A.ts")
    found = []
    for rows in (ROWS, ROWS.append_column("__outpace_id", pa.array([7] * 6))):
        stream = op.open(query, schema=ROWS.schema)
        stream.push(rows)
        (emit,) = stream._emits.values()
        found.append(emit.matches.ids.array.to_pylist())
    assert found[0] == found[1]


def test_a_restored_front_gives_keys_the_numbers_that_the_live_one_does() -> None:
    schema = pa.schema({"ts": pa.int64(), "k": pa.string(), "x": pa.int64()})
    windows = op.windows.between(open="x = 1", close="x = 2")
    spec = OperatorSpec(
        PAIRS.partition_by("k").over(windows).instances(2), schema, instances=2, forgets=True
    )

    def arrive(front: Front, *rows: tuple[int, str, int]) -> list[tuple[int, list[int]]]:
        events = pa.Table.from_pylist(
            [dict(zip(schema.names, row, strict=True)) for row in rows], schema
        )
        said = front.step(EventsArrived(events))
        return [
            (one.instance, one.own_events.partition.tolist())
            for one in said
            if isinstance(one, Deliver)
        ]

    live, again = Front(spec), Front(spec)
    arrive(live, *((1, key, 1) for key in "abcdefghijklmnopqrst"))
    # Keys are forgotten, the later ones first.
    for key in "qcam":
        arrive(live, (2, key, 2))
    again.restore(written(live.state()))
    for keys in ("u", "vw", "xyz"):
        told = arrive(live, *((3, key, 1) for key in keys))
        assert told == arrive(again, *((3, key, 1) for key in keys))
        assert live.state().encode() == again.state().encode()


KEYED = ROWS.append_column("k", pa.array(["a", "a", "b", "b", "a", "b"]))
FAULTY = {
    "keys": PAIRS.partition_by("k").within(2),
    "sessions": PAIRS.partition_by("k").over(op.windows.session(2)),
    "reordered": PAIRS.disorder(op.KSlack(1)),
    "reordered windows": WINDOWS.disorder(op.KSlack(1)),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_lack_of_memory_anywhere_leaves_no_half_step(name: str) -> None:
    query = FAULTY[name]
    disorder = None if query.order_of_arrival is None else bind_disorder(query, KEYED.schema)
    spec = OperatorSpec(query, KEYED.schema, disorder=disorder)
    stimulus = EventsArrived(KEYED.slice(3))
    before = WholeOperator(spec)
    before.step(EventsArrived(KEYED.slice(0, 3)))
    whole = before.snapshot()
    expected = matches_of(whole.step(stimulus)).to_pylist()
    assert expected
    refused, place, operator = set(), 0, before.snapshot()
    while _fails_at(place, operator, stimulus):
        try:
            found = matches_of(operator.step(stimulus)).to_pylist()
        except DataError:
            with pytest.raises(DataError, match="an earlier push failed"):
                operator.state()
            refused.add(True)
        else:
            assert found == expected
            assert operator.state().encode() == whole.state().encode()
            refused.add(False)
        place, operator = place + 1, before.snapshot()
    assert refused == {True, False}


def _fails_at(place: int, operator: WholeOperator, stimulus: EventsArrived) -> bool:
    """Take a step without memory from the call of so many functions of the engine on."""
    left = place

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left
        if event == "call" and "outpace/engine" in frame.f_code.co_filename:
            left -= 1
            if left < 0:
                raise MemoryError

    sys.setprofile(count)
    try:
        operator.step(stimulus)
    except (MemoryError, MatchError):
        return True
    finally:
        sys.setprofile(None)
    return False


def test_a_back_that_may_correct_is_saved_once_all_have_answered() -> None:
    query = WINDOWS.disorder(op.KSlack(1, late="correct", horizon=9)).instances(2)
    spec = spec_of(query, disorder=bind_disorder(query, ROWS.schema))
    front, back = Front(spec), Back(spec)
    for message in front.step(EventsArrived(ROWS)):
        if not isinstance(message, SetAside):
            back.step(message)
    with pytest.raises(StateError, match="answers are due"):
        back.state()
