"""What becomes of events with sequence numbers, by the definitions, one event after the other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Mean:
    """An average that forgets, and the mean deviation from it: equations 3.2 to 3.10."""

    kept: float
    average: float | None = None
    deviation: float = 0.0

    def add(self, value: float) -> None:
        """Let a value count, unless it is of events that came at once."""
        if not value:
            return
        if self.average is None:
            self.average, self.deviation = value, value / 2
            return
        off = abs(value - self.average)
        self.deviation = self.kept * self.deviation + (1 - self.kept) * off
        self.average = self.kept * self.average + (1 - self.kept) * value

    def high(self, deviations: float) -> float:
        """Return the average and so many deviations: equations 3.1 and 3.6."""
        return (self.average or 0.0) + deviations * self.deviation


class SequenceOracle:
    """Takes the events of a source as they arrive: held ones are (arrival, due, row) by number."""

    def __init__(
        self,
        *,
        alpha: float,
        beta: float,
        deviations: float,
        shortest: int,
        longest: int,
        first: int | None = None,
    ) -> None:
        self.deviations, self.shortest, self.longest = deviations, shortest, longest
        self.between, self.holding = Mean(alpha), Mean(beta)
        self.expected = first
        self.arrived: int | None = None
        self.passed: int | None = None
        self.held: dict[int, tuple[int, int, int]] = {}
        #: Those that came late, and how many were let in before each.
        self.late: dict[int, int] = {}
        self.order: list[int] = []
        #: Those let in because a time was up.
        self.timed: set[int] = set()

    def patience(self) -> int:
        """Equation 3.11; the longest until the first gap is over."""
        first = self.holding.average is None and self.passed is None
        if self.between.average is None or first:
            return self.longest
        high = [one.high(self.deviations) for one in (self.between, self.holding)]
        return int(min(self.longest, max(self.shortest, *high)))

    def arrive(self, row: int, number: int, clock: int) -> None:
        """Take an event."""
        self.pass_time(clock)
        if self.expected is None:
            self.expected = number
        if number > self.expected:
            if number in self.held:
                self.late[row] = len(self.order)
            else:
                self.held[number] = (clock, clock + self.patience(), row)
            return
        if number < self.expected:
            self.late[row] = len(self.order)
            if self.passed is not None:
                self.holding.add(min(clock - self.passed, self.longest))
            return
        if self.arrived is not None:
            self.between.add(clock - self.arrived)
        self.arrived = clock
        self.order.append(row)
        self.expected += 1
        first = clock
        while self.expected in self.held:
            arrival, _, row = self.held.pop(self.expected)
            first = min(first, arrival)
            self.order.append(row)
            self.expected += 1
        self.holding.add(clock - first)

    def pass_time(self, clock: int) -> None:
        """Let the clock come to a time: what is up by then goes, one time after the other."""
        while (up := self.due) is not None and up <= clock:
            last = max(number for number, (_, due, _) in self.held.items() if due <= up)
            gone = []
            while self.held and (min(self.held) <= last or min(self.held) == self.expected):
                number = min(self.held)
                arrival, _, row = self.held.pop(number)
                gone.append(arrival)
                self.order.append(row)
                self.timed.add(row)
                self.expected = number + 1
            self.passed = min(gone)

    @property
    def due(self) -> int | None:
        """When the time of a held event is up."""
        return min((due for _, due, _ in self.held.values()), default=None)
