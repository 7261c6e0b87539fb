"""Event sets obey equations 3 to 7 of the CEPSim paper, and figure 8 comes out as drawn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.simulate.event_set import EMPTY, EventSet, EventSetQueue

COUNTS = st.floats(0.001, 1e6)
TIMES = st.floats(0, 1e5)
SETS = st.builds(
    EventSet,
    COUNTS,
    TIMES,
    TIMES,
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.floats(0, 1e6)),
)


def near(value: float) -> float:
    return pytest.approx(value, rel=1e-9, abs=1e-9)


def total(event_set: EventSet, producer: str) -> float:
    return event_set.totals.get(producer, 0.0)


@given(SETS, SETS)
def test_a_sum_has_all_events_and_the_averages_by_count(one: EventSet, two: EventSet) -> None:
    both = one + two
    assert both.cardinality == near(one.cardinality + two.cardinality)
    weight = one.cardinality / both.cardinality
    assert both.timestamp == near(weight * one.timestamp + (1 - weight) * two.timestamp)
    assert both.latency == near(weight * one.latency + (1 - weight) * two.latency)
    for producer in "abc":
        assert total(both, producer) == near(total(one, producer) + total(two, producer))


@given(SETS)
def test_the_sum_with_nothing_is_the_set_itself(one: EventSet) -> None:
    assert one + EMPTY == one == EMPTY + one
    assert EMPTY + EMPTY == EMPTY


@given(SETS, st.floats(0.001, 0.999))
def test_an_extracted_part_and_the_rest_are_the_whole(one: EventSet, part: float) -> None:
    count = part * one.cardinality
    taken, left = one.extract(count)
    assert taken.cardinality == count
    assert left.cardinality == one.cardinality - count
    for piece in (taken, left):
        assert (piece.timestamp, piece.latency) == (one.timestamp, one.latency)
    for producer in one.totals:
        assert total(taken, producer) == near(part * total(one, producer))
        assert total(taken, producer) + total(left, producer) == near(total(one, producer))


@given(SETS, st.floats(0.001, 10))
def test_a_selection_changes_the_count_alone(one: EventSet, selectivity: float) -> None:
    selected = one.select(selectivity)
    assert selected.cardinality == one.cardinality * selectivity
    assert (selected.timestamp, selected.latency) == (one.timestamp, one.latency)
    assert selected.totals == one.totals


@given(SETS)
def test_nothing_is_selected_by_a_selectivity_of_0(one: EventSet) -> None:
    assert one.select(0.0) == EMPTY


@given(SETS, TIMES)
def test_an_update_brings_latency_and_time_up_to_date(one: EventSet, now: float) -> None:
    updated = one.update(now)
    assert updated.timestamp == now
    assert updated.latency == near(one.latency + now - one.timestamp)
    assert (updated.cardinality, updated.totals) == (one.cardinality, one.totals)


@given(st.lists(SETS, max_size=6), st.floats(0, 1.2))
def test_a_queue_gives_the_first_events_and_keeps_the_others(
    sets: list[EventSet], part: float
) -> None:
    queue = EventSetQueue()
    whole = EMPTY
    for event_set in sets:
        queue.enqueue(event_set)
        whole += event_set
    assert queue.cardinality == near(whole.cardinality)
    taken = queue.dequeue(part * whole.cardinality)
    assert taken.cardinality == near(min(part, 1.0) * whole.cardinality)
    rest = queue.dequeue_all()
    assert (taken + rest).cardinality == near(whole.cardinality)
    for producer in "abc":
        assert total(taken + rest, producer) == near(total(whole, producer))
    assert (queue.cardinality, len(queue)) == (0.0, 0)


def test_a_queue_is_first_in_first_out() -> None:
    queue = EventSetQueue()
    for time in (1.0, 2.0, 3.0):
        queue.enqueue(EventSet(10.0, timestamp=time))
    assert queue.dequeue(10.0).timestamp == 1.0
    assert queue.dequeue(5.0).timestamp == 2.0
    assert [event_set.cardinality for event_set in queue] == [5.0, 10.0]


def test_an_empty_set_leaves_no_trace_in_a_queue() -> None:
    queue = EventSetQueue()
    queue.enqueue(EMPTY)
    assert len(queue) == 0
    assert queue.dequeue(1.0) == EMPTY


def test_figure_8_follows_the_sets_of_two_producers_to_the_consumer() -> None:
    # Both sets are made at 5; p1 sends at 10, p2 at 13, f1 at 15 with the selectivity of its edge.
    e1 = EventSet(10.0, 5.0, 0.0, {"p1": 10.0}).update(10.0)
    e2 = EventSet(20.0, 5.0, 0.0, {"p2": 20.0}).update(13.0)
    assert (e1.timestamp, e1.latency) == (10.0, 5.0)
    assert (e2.timestamp, e2.latency) == (13.0, 8.0)
    e12 = e1 + e2
    assert e12 == EventSet(30.0, 12.0, 7.0, {"p1": 10.0, "p2": 20.0})
    e3 = e12.update(15.0).select(0.5)
    assert e3 == EventSet(15.0, 15.0, 10.0, {"p1": 10.0, "p2": 20.0})
    # f2 sends it on at 18 and c1 consumes it at 20, when its events are 15 s old on average.
    e4 = e3.update(18.0)
    assert e4 == EventSet(15.0, 18.0, 13.0, {"p1": 10.0, "p2": 20.0})
    e5 = e4.update(20.0)
    assert EMPTY + e5 == EventSet(15.0, 20.0, 15.0, {"p1": 10.0, "p2": 20.0})
