"""What going back costs, as it is estimated, and where checkpoints lie by that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import outpace as op
from outpace.engine.speculate.work import CHECKPOINT_S, WorkEstimate
from outpace.engine.state import State
from outpace.errors import StateError
from outpace.pattern.checkpoints import CheckpointWork


def test_checkpoints_are_many_where_much_is_late_and_events_take_long() -> None:
    """What a host measures decides, and how often the operator went back."""
    intervals = []
    for seconds, late in ((1e-7, False), (1e-7, True), (1e-3, False), (1e-3, True)):
        estimate = WorkEstimate()
        for _ in range(50):
            estimate.take(1000)
            if late:
                estimate.go_back(0.5)
            estimate.measured(1000 * seconds)
        event, checkpoint = estimate.costs
        known = CheckpointWork(
            coming=10**6, event=event, checkpoint=checkpoint, apart=estimate.apart
        )
        intervals.append(op.checkpoints.LeastWork().interval(known))
    fast, fast_late, slow, slow_late = intervals
    assert fast > 10 * fast_late > 10 * slow
    assert slow >= slow_late


def test_a_checkpoint_lies_behind_what_is_certain_where_it_often_goes_back() -> None:
    model = op.checkpoints.LeastWork()
    known = {"coming": 20_000, "certain": 19_946, "event": 2e-7, "checkpoint": 5e-4}
    often, seldom = (CheckpointWork(apart=apart, **known) for apart in (40_000, 1_000_000))
    assert model.interval(often) <= 19_946
    assert model.interval(seldom) == 20_000
    dear = CheckpointWork(apart=40_000, **{**known, "checkpoint": 5e-2})
    assert model.interval(dear) == 20_000


def test_what_compiles_once_does_not_decide_for_long() -> None:
    estimate = WorkEstimate()
    for number in range(10):
        estimate.take(1000)
        estimate.measured(2e-3 if number else 2.0)
    event, _ = estimate.costs
    assert event < 1e-5
    for _ in range(30):
        estimate.take(1000)
        estimate.measured(2.0)
    assert estimate.costs[0] > 1e-3, "what takes longer from now on is soon expected"


@given(
    st.lists(
        st.tuples(st.integers(1, 10_000), st.integers(1, 50), st.floats(0, 10)),
        min_size=1,
        max_size=30,
    )
)
def test_costs_are_never_nothing_nor_more_than_was_measured(
    measured: list[tuple[int, int, float]],
) -> None:
    estimate = WorkEstimate()
    most = CHECKPOINT_S
    for events, pieces, seconds in measured:
        for _ in range(pieces):
            estimate.take(events)
        estimate.measured(seconds)
        most = max(most, seconds)
        event, checkpoint = estimate.costs
        assert 0 < event <= checkpoint <= 1.1 * most
    other = WorkEstimate()
    other.restore(State.decode(estimate.state().encode()))
    assert vars(other) == vars(estimate), "so a run that goes on decides the same"


def test_a_state_with_other_numbers_is_refused() -> None:
    numbers = {**WorkEstimate().state().numbers, "apart": "far"}
    with pytest.raises(StateError, match="apart is far"):
        WorkEstimate().restore(State(numbers))
