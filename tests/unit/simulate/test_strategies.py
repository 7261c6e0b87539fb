"""Schedulings and allocations, alone: who gets how many instructions, round by round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.simulate import (
    DynamicScheduling,
    SimpleScheduling,
    UniformAllocation,
    WeightedAllocation,
)
from outpace.simulate.strategies import ROUNDS, Allocation, Scheduling

COSTS = st.lists(st.floats(0, 1e7), min_size=1, max_size=8)


class Backlog:
    """Vertices that each have some instructions' worth of events, and pass nothing on."""

    def __init__(self, costs: list[float], needs: list[float | None]) -> None:
        self.costs = costs
        self._needs = needs

    def required(self, position: int) -> float | None:
        return self._needs[position]

    def run(
        self, scheduling: Scheduling, n: float, allocation: Allocation
    ) -> list[tuple[int, float]]:
        given = []
        for position, instructions in scheduling.schedule(self, n, allocation):
            given.append((position, instructions))
            need = self._needs[position]
            if need is not None:
                left = need - min(need, instructions)
                self._needs[position] = left if left > 1e-6 and self.costs[position] else None
        return given


@given(COSTS, st.floats(0, 1e9))
def test_allocations_divide_all_of_it(costs: list[float], instructions: float) -> None:
    assert sum(UniformAllocation().allocate(instructions, costs)) == pytest.approx(instructions)
    weighted = WeightedAllocation().allocate(instructions, costs)
    assert sum(weighted) == pytest.approx(instructions if any(costs) else 0.0)


def test_simple_scheduling_goes_through_once_whatever_is_needed() -> None:
    backlog = Backlog([1.0, 3.0], [None, 500.0])
    assert backlog.run(SimpleScheduling(), 100, WeightedAllocation()) == [(0, 25), (1, 75)]


def test_dynamic_scheduling_gives_what_others_leave_to_who_needs_more() -> None:
    backlog = Backlog([1.0] * 4, [10.0, None, 500.0, 500.0])
    given = backlog.run(DynamicScheduling(), 400, UniformAllocation())
    assert given == [(0, 10), (2, 100), (3, 100), (2, 95), (3, 95)]


def test_dynamic_scheduling_ends_when_nobody_needs_anything() -> None:
    backlog = Backlog([1.0, 1.0], [30.0, 80.0])
    given = backlog.run(DynamicScheduling(), 120, UniformAllocation())
    assert given == [(0, 30), (1, 60), (1, 20)]


def test_dynamic_scheduling_by_weight_prefers_who_costs_much() -> None:
    backlog = Backlog([1.0, 99.0], [500.0, 500.0])
    given = backlog.run(DynamicScheduling(), 100, WeightedAllocation())
    assert given == [(0, 1), (1, 99)]


def test_who_costs_nothing_runs_without_instructions() -> None:
    backlog = Backlog([0.0, 2.0], [0.0, 50.0])
    given = backlog.run(DynamicScheduling(), 100, WeightedAllocation())
    assert given == [(0, 0), (1, 50)]


def test_rounds_are_bounded() -> None:
    class Endless(Backlog):
        def run(
            self, scheduling: Scheduling, n: float, allocation: Allocation
        ) -> list[tuple[int, float]]:
            return list(scheduling.schedule(self, n, allocation))

    # It always has something to do and never uses anything up.
    given = Endless([0.0], [0.0]).run(DynamicScheduling(), 100, UniformAllocation())
    assert len(given) == ROUNDS


@given(
    st.lists(st.tuples(st.floats(1, 1e4), st.floats(0.1, 1e4)), min_size=1, max_size=6),
    st.floats(1, 1e4),
    st.sampled_from([UniformAllocation(), WeightedAllocation()]),
)
def test_dynamic_scheduling_gives_all_that_is_needed_or_all_there_is(
    vertices: list[tuple[float, float]], instructions: float, allocation: Allocation
) -> None:
    costs, needs = [cost for cost, _ in vertices], [need for _, need in vertices]
    given = Backlog(costs, list(needs)).run(DynamicScheduling(), instructions, allocation)
    total = sum(amount for _, amount in given)
    assert total == pytest.approx(min(instructions, sum(needs)), rel=1e-6)
