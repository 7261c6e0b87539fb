"""Rate control against a simulated operator: nothing piles up, and little capacity is wasted."""

from __future__ import annotations

import pytest

from outpace.hosts.processes.control import RateControl, RateController


class Simulation:
    """Instances with given speeds; events are read as the controller allows and shared evenly."""

    def __init__(self, speeds: list[float], control: RateControl, batch: int = 1 << 16) -> None:
        self.controller = RateController(control, len(speeds))
        self.speeds = speeds
        self.loads = [0.0] * len(speeds)
        self.batch = batch
        self.now = 0.0
        self.read = 0
        self.most_waiting = 0.0
        self.rates: list[float] = []

    def run(self, seconds: float, *, offered: float = float("inf"), tick: float = 0.002) -> float:
        """Let time pass; return the events per second that were read."""
        start, read_before, limit = self.now, self.read, offered * seconds
        while self.now < start + seconds:
            self.now += tick
            self._work(tick)
            self.controller.adjust(self.now, self.loads, 1.0)
            self.rates.append(self.controller.rate)
            size = self.controller.block(self.now, self.batch)
            if size and self.read - read_before + size <= limit:
                self.controller.spend(size)
                self.read += size
                self.loads = [load + size / len(self.loads) for load in self.loads]
            waits = [load / speed for load, speed in zip(self.loads, self.speeds, strict=True)]
            self.most_waiting = max(self.most_waiting, *waits)
        return (self.read - read_before) / seconds

    def _work(self, tick: float) -> None:
        for number, speed in enumerate(self.speeds):
            done = min(self.loads[number], speed * tick)
            self.loads[number] -= done
            self.controller.worked(number, int(done), done / speed)


CONTROL = RateControl(first_rate=10_000, interval_s=0.05, aim_s=0.2)


@pytest.mark.parametrize("speeds", [[100_000], [400_000, 400_000], [50_000] * 8])
def test_a_source_without_end_keeps_all_instances_busy_and_waiting_short(
    speeds: list[float],
) -> None:
    simulation = Simulation(speeds, CONTROL)
    simulation.run(2.0)
    assert simulation.run(10.0) >= 0.9 * sum(speeds)
    assert simulation.most_waiting <= 3 * CONTROL.aim_s


@pytest.mark.parametrize("interval_s", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("aim_s", [0.01, 0.1, 1.0])
def test_any_settings_let_events_through(interval_s: float, aim_s: float) -> None:
    simulation = Simulation([100_000], RateControl(10_000, interval_s, aim_s))
    simulation.run(5.0 + 5 * interval_s)
    assert simulation.run(5.0) >= 50_000


def test_the_slowest_instance_decides() -> None:
    simulation = Simulation([1_000_000, 100_000], CONTROL)
    simulation.run(2.0)
    assert simulation.run(10.0) == pytest.approx(200_000, rel=0.1)
    assert simulation.most_waiting <= 3 * CONTROL.aim_s


def test_a_slow_source_is_not_held_back() -> None:
    simulation = Simulation([100_000], CONTROL, batch=100)
    simulation.run(2.0, offered=50_000)
    assert simulation.run(5.0, offered=50_000) == pytest.approx(50_000, rel=0.01)


def test_the_rate_follows_instances_that_become_slower() -> None:
    simulation = Simulation([400_000], CONTROL)
    simulation.run(3.0)
    simulation.speeds = [100_000]
    simulation.run(3.0)
    assert simulation.run(5.0) == pytest.approx(100_000, rel=0.1)
    assert simulation.loads[0] / 100_000 <= 3 * CONTROL.aim_s


def test_at_the_start_the_rate_doubles_with_every_interval() -> None:
    controller = RateController(CONTROL, 1)
    rates = []
    for step in range(4):
        controller.adjust(step * 0.05, [0], 1.0)
        rates.append(controller.rate)
    assert rates == [10_000, 20_000, 40_000, 80_000]


def test_the_rise_ends_at_what_instances_can_do() -> None:
    simulation = Simulation([100_000], CONTROL)
    simulation.run(3.0)
    assert simulation.rates[0] <= 2 * CONTROL.first_rate
    assert max(simulation.rates) <= 2 * 100_000


def test_an_overloaded_start_does_not_rise() -> None:
    controller = RateController(CONTROL, 1)
    controller.worked(0, 100_000, 1.0)
    for step in range(10):
        controller.adjust(step * 0.05, [100_000], 1.0)
    assert controller.rate == 0.0
    controller.adjust(1.0, [0], 1.0)
    assert controller.rate == 2 * CONTROL.first_rate


def test_nothing_is_added_before_the_first_answer() -> None:
    controller = RateController(CONTROL, 2)
    controller.worked(0, 1_000_000, 1.0)
    for step in range(10):
        controller.adjust(step * 0.05, [0, 500], 1.0)
    assert controller.rate == CONTROL.first_rate


def test_a_pause_is_not_followed_by_a_flood() -> None:
    controller = RateController(CONTROL, 1)
    controller.block(0.0, 1 << 20)
    assert controller.block(3600.0, 1 << 20) <= CONTROL.first_rate * CONTROL.interval_s


def test_waiting_ends_when_a_block_may_be_read() -> None:
    controller = RateController(CONTROL, 1)
    assert controller.block(0.0, 1000) == 0
    wait = controller.wait_s(1000)
    assert controller.block(wait * 0.9, 1000) == 0
    size = controller.block(wait * 1.1, 1000)
    assert 0 < size <= 1000
    controller.spend(size)
    assert controller.block(wait * 1.1, 1000) == 0


def test_few_events_do_not_wait_for_a_whole_block() -> None:
    controller = RateController(CONTROL, 1)
    controller.block(0.0, 1)
    assert controller.block(0.001, 1) == 1


def test_slow_instances_get_small_blocks() -> None:
    for speed in (10_000, 1_000_000):
        controller = RateController(CONTROL, 1)
        controller.worked(0, speed, 1.0)
        for step in range(15):
            controller.adjust(step * 0.05, [0], 1.0)
        controller.adjust(1.0, [0.2 * speed], 1.0)
        assert controller.rate == pytest.approx(speed)
        controller.block(1.0, 1 << 20)
        size = controller.block(1.0 + controller.wait_s(1 << 20) * 1.01, 1 << 20)
        assert 0 < size / speed < CONTROL.aim_s / 2


def test_events_that_go_to_two_instances_count_twice() -> None:
    controller = RateController(CONTROL, 2)
    for number in range(2):
        controller.worked(number, 1000, 1.0)
    controller.adjust(0.0, [200, 200], 2.0)
    assert controller.rate == pytest.approx(1000.0)
