"""What becomes of events out of order, by the definitions of the rules that choose K."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class SlackOracle:
    """A clock that keeps all it has seen.

    Parameters
    ----------
    rule
        "fixed", "greatest", "quantile", "distance" or "coverage".
    """

    rule: str
    slack: int = 0
    least: int = 0
    most: int = 1 << 62
    ahead: int | None = None
    share: float = 0.95
    length: int = 10
    low: float = 1.0
    high: float = 1.0
    aggregate: str = "count"
    bound: float = 0.1
    normal: float = 1.6
    gains: tuple[float, float] = (0.5, 0.1)
    times: list[int] = field(default_factory=list)
    greatest: int | None = None
    watermark: int | None = None
    alpha: float = 1.0
    error: float = 0.0
    longest: int = 0
    _since: list[int] = field(default_factory=list)
    _delays: list[int] = field(default_factory=list)
    _results: dict[int, int] = field(default_factory=dict)
    _events: list[tuple[int, float, bool]] = field(default_factory=list)
    _behind: list[tuple[int, int]] = field(default_factory=list)
    _measured: set[int] = field(default_factory=set)

    def follow(
        self, times: Iterable[int], values: Iterable[float], *, at_once: bool = False
    ) -> list[str]:
        """Take events as they arrive, and say what becomes of each.

        Where they arrive at once, none makes another one late.
        """
        before, fates = self.watermark, []
        for time, value in zip(times, values, strict=True):
            met = before if at_once else self.watermark
            fates.append(self._take(time, value, late=met is not None and time < met))
        return fates

    def tell(self, time: int) -> None:
        """Take a promise that no later event has a time before this."""
        self.watermark = time if self.watermark is None else max(self.watermark, time)

    def _take(self, time: int, value: float, *, late: bool) -> str:
        first = self.greatest is None
        greatest = time if self.greatest is None else self.greatest
        if self.ahead is not None and time - greatest > self.ahead:
            return "invalid"
        raised = first or time > greatest
        delay = max(0, greatest - time)
        if raised:
            self.longest = max([self.longest, *(time - one for one in self._since)])
            self._since = []
            self.greatest = greatest = time
        elif delay:
            self._since.append(time)
        if self.rule == "greatest":
            self.slack = self.longest
        elif self.rule == "quantile":
            insort(self._delays, delay)
            self.slack = self._quantile()
        elif self.rule == "distance":
            self.slack = self._distance(delay)
        elif self.rule == "coverage":
            if delay:
                insort(self._delays, delay)
            self._events.append((time, value, late))
            self._measure()
            self.slack = int(self.alpha * self.longest)
        self.slack = min(max(self.slack, self.least), self.most)
        behind = greatest - self.slack
        self.tell(behind)
        return "late" if late else "in time"

    def _quantile(self) -> int:
        """The least border of a bin that has so many delays up to it."""
        if not self._delays:
            return 0
        place = max(math.ceil(self.share * len(self._delays)), 1) - 1
        return border(self._delays[place])

    def _distance(self, delay: int) -> int:
        assert self.greatest is not None
        cell = self.greatest // self.length
        if delay:
            self._behind.append((cell, delay))
        recent = [delay for at, delay in self._behind if at >= cell - 1]
        if not recent:
            return 0
        drawn = ((cell % 1_000_003) * 7_919 % 1_000_003) / 1_000_003
        factor = self.low + (self.high - self.low) * drawn
        return math.ceil(factor * (float(sum(recent)) / len(recent)))

    def _measure(self) -> None:
        """Let the controller see each window once its late events have mostly come, in turn.

        The first is that of the first event.
        """
        assert self.greatest is not None
        watermark = -math.inf if self.watermark is None else self.watermark
        windows = range(self._events[0][0] // self.length, self.greatest // self.length + 1)
        for number in windows:
            if watermark >= (number + 1) * self.length:
                self._results.setdefault(number, self.greatest)
        for number in windows:
            if number in self._measured:
                continue
            if number not in self._results:
                break
            if self.greatest - self._results[number] < self._quantile():
                break
            self._measured.add(number)
            inside = [one for one in self._events if one[0] // self.length == number]
            if inside:
                self._control(inside)

    def _control(self, inside: list[tuple[int, float, bool]]) -> None:
        coverage = sum(not late for _, _, late in inside) / len(inside)
        error = self._needed([value for _, value, _ in inside]) - coverage
        change = self.gains[0] * error + self.gains[1] * (error - self.error)
        self.alpha = min(max(self.alpha + change, 0.0), 1.0)
        self.error = error

    def _needed(self, values: list[float]) -> float:
        """The least share of a sample whose error stays within the bound, found by halving."""
        if self.aggregate == "extreme":
            return self.normal
        if self.aggregate == "count":
            values = [1.0] * len(values)
        total, squares = sum(values), sum(value * value for value in values)
        mean = total / len(values)
        spread = max(squares / len(values) - mean * mean, 0.0)

        def off(share: float) -> float:
            if self.aggregate == "average":
                deviation = math.sqrt((1 - share) / (share * len(values)) * spread)
                return self.normal * deviation / abs(mean) if mean else math.inf
            deviation = math.sqrt(share * (1 - share) * squares)
            return (1 - share) + self.normal * deviation / abs(total) if total else math.inf

        if self.aggregate == "average" and not spread:
            return 0.0
        low, high = 1e-12, 1.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (low, middle) if off(middle) <= self.bound else (middle, high)
        return high


def border(delay: int) -> int:
    """Return the largest delay that is not told apart from this one."""
    step = 1
    while delay // step >= 128:
        step *= 2
    return delay // step * step + step - 1
