"""The cheapest machines: against trying every mix, and against simulation."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.properties import examples
from support.simulated import chain

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    Catalogue,
    Consumer,
    LatencyTarget,
    MachineType,
    OperatorModel,
    Producer,
    Scenario,
    Uniform,
    plan_machines,
    what_if,
)
from outpace.simulate.mix import _availability, _least_of, _least_pairs, _Option, on_machines

OPTIONS = st.builds(
    _Option,
    st.just("machine"),
    st.floats(1, 20),
    st.floats(0.5, 20),
    st.sampled_from([0.7, 0.9, 0.99, 1.0]),
)


def chance_of(options: list[_Option], counts: tuple[int, ...], rate: float) -> float:
    """How likely what works can take a rate: the sum over which of all machines work."""
    every = [o for option, count in zip(options, counts, strict=True) for o in [option] * count]
    chance = 0.0
    for works in itertools.product((False, True), repeat=len(every)):
        can = sum(o.capacity for o, up in zip(every, works, strict=True) if up)
        if can >= rate * (1 - 1e-9):
            chance += math.prod(
                o.works if up else 1 - o.works for o, up in zip(every, works, strict=True)
            )
    return chance


@given(st.lists(OPTIONS, min_size=1, max_size=2), st.integers(0, 4), st.integers(0, 4), st.data())
@examples(60)
def test_the_availability_is_that_of_all_sets_of_machines_that_work(
    options: list[_Option], first: int, second: int, data: st.DataObject
) -> None:
    counts = (first, second)[: len(options)]
    rate = data.draw(st.floats(0.5, 100))
    expected = chance_of(options, counts, rate)
    assert _availability(options, counts, rate) == pytest.approx(expected, abs=1e-9)


@given(OPTIONS, OPTIONS, st.floats(1, 60), st.sampled_from([None, 0.5, 0.9]))
@examples(60)
def test_no_other_mix_of_two_types_is_cheaper(
    one: _Option, other: _Option, rate: float, availability: float | None
) -> None:
    def enough(counts: tuple[int, int]) -> bool:
        whole = counts[0] * one.capacity + counts[1] * other.capacity
        if whole < rate * (1 - 1e-9):
            return False
        return availability is None or _availability([one, other], counts, rate) >= availability

    most = 40
    every = [
        pair for pair in itertools.product(range(most), repeat=2) if any(pair) and enough(pair)
    ]
    assume(every)
    price = min(a * one.price + b * other.price for a, b in every)
    alone = [
        count * option.price
        for option in (one, other)
        if (count := _least_of(option, rate, availability)) is not None
    ]
    mixed = [
        a * one.price + b * other.price for a, b in _least_pairs(one, other, rate, availability)
    ]
    cheapest = min(alone + mixed)
    assert cheapest <= price + 1e-9
    # Where the cheapest has few machines, brute force has seen it too.
    if cheapest < most * min(one.price, other.price):
        assert cheapest == pytest.approx(price)


def scenario(**given: object) -> Scenario:
    query = chain(Producer("in", Uniform(10), 1e6, **given), Consumer("out"))
    return Scenario((query,), (VM("vm", 100),), duration=20)


SMALL = MachineType("small", mips=100, price=1.0)
LARGE = MachineType("large", mips=1000, price=8.0)


def test_a_large_machine_and_small_ones_for_the_rest() -> None:
    plan = plan_machines(scenario(), 1150, LatencyTarget(0.5), Catalogue((SMALL, LARGE), "EUR"))
    assert plan.best is not None
    assert plan.best.instances == {"small": 2, "large": 1}
    assert plan.best.price == 10
    assert plan.best.percentile <= 0.5
    assert [one.instances for one in plan.types] == [12, 2]
    assert plan.best in plan.frontier
    assert [mix.price for mix in plan.frontier] == sorted(mix.price for mix in plan.frontier)
    slower = [mix.percentile for mix in plan.frontier]
    assert len(set(slower)) > 2
    prices = [price for _, price, _ in plan.prices]
    assert prices == sorted(prices)


def test_an_availability_costs_spares() -> None:
    failing = MachineType("small", mips=100, price=1.0, failures_per_hour=1, repair=360)
    catalogue = Catalogue((failing,))
    works = 1 / 1.1
    for wanted in (0.9, 0.99, 0.9999):
        plan = plan_machines(scenario(), 290, LatencyTarget(1), catalogue, availability=wanted)
        assert plan.best is not None
        (count,) = plan.best.instances.values()
        chances = {
            n: sum(math.comb(n, k) * works**k * (1 - works) ** (n - k) for k in range(3, n + 1))
            for n in (count - 1, count)
        }
        assert chances[count - 1] < wanted <= chances[count]
        assert plan.best.availability == pytest.approx(chances[count])


def test_a_type_without_memory_enough_is_not_taken() -> None:
    tight = MachineType("tight", mips=1000, price=0.1, memory=5e5)
    roomy = MachineType("roomy", mips=1000, price=5.0, memory=5e6)
    held = scenario(state_bytes=1e6)
    plan = plan_machines(held, 100, LatencyTarget(1), Catalogue((tight, roomy)))
    assert plan.best is not None
    assert plan.best.machines == {"roomy": 1}
    assert plan.types[0].reason == "it meets the target at no rate"


def test_a_plan_that_cannot_be_met_has_no_machines() -> None:
    plan = plan_machines(scenario(), 100, LatencyTarget(1e-4), Catalogue((SMALL, LARGE)))
    assert plan.best is None
    assert plan.frontier == plan.prices == ()


def test_a_vertex_of_one_processor_is_no_faster_on_many() -> None:
    query = chain(
        Producer("in", Uniform(10)), OperatorModel("op", 1e6, parallelism=2), Consumer("out", 1e5)
    )
    base = Scenario((query,), (VM("vm", 100, processors=2),), duration=20)
    wide = on_machines(base, MachineType("wide", mips=100, processors=16))
    assert {name: v.parallelism for name, v in wide.vertices().items()} == {
        "in": 1,
        "op": 16,
        "out": 1,
    }


def test_what_cannot_be_planned_is_refused() -> None:
    catalogue = Catalogue((SMALL,))
    for wrong in ({"rate": 0.0}, {"availability": 1.0}, {"availability": 0.0}):
        with pytest.raises(ScenarioError):
            plan_machines(
                **{
                    "scenario": scenario(),
                    "rate": 10.0,
                    "target": LatencyTarget(1),
                    "catalogue": catalogue,
                    **wrong,
                }
            )
    with pytest.raises(ScenarioError, match="two types of machines of this name"):
        Catalogue((SMALL, SMALL))


def test_what_if_is_every_combination() -> None:
    found = what_if(scenario(), [50, 150], machines=[SMALL, LARGE], instances=[1, 2])
    keeps = {(one.machine, one.load.instances, one.load.rate): one.load.keeps_up for one in found}
    assert keeps == {
        (machine, count, rate): machine == "large" or rate / count <= 100
        for machine in ("small", "large")
        for count in (1, 2)
        for rate in (50, 150)
    }
    assert [one.price for one in found] == [1, 1, 2, 2, 8, 8, 16, 16]
