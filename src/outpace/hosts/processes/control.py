"""Rate control: how fast sources are read, so that instances are busy and nothing piles up.

The rate follows what instances are measured to process, and the time that they need for what waits
for them: with little waiting it is above what they can do, with much below, and at the aim it is
just that. A source that offers more is held back, never cut. At the start, when nothing is measured
and nothing is warm, the rate is low and doubles with every interval. Slow instances get small
blocks, so that they answer often enough to be steered.

The controller has no clock: whoever asks brings the time. Paper: SPACE (Amann 2018) 4.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from outpace.pattern.argument import a_number

#: How much a new measurement counts against those before it.
_NEWNESS: Final = 0.2
#: The rate may be so many times what instances can do, while too little waits for them.
_MOST: Final = 2.0
#: A block holds this share of the work that may wait.
_BLOCK: Final = 0.25


@dataclass(frozen=True, slots=True)
class RateControl:
    """How the rate at which sources are read is found.

    Parameters
    ----------
    first_rate
        Events per second at the start.
    interval_s
        How often the rate is set anew, in seconds; at the start it doubles as often.
    aim_s
        The seconds of work that may wait for an instance.

    Examples
    --------
    >>> RateControl(aim_s=0.05)
    RateControl(first_rate=200000.0, interval_s=0.05, aim_s=0.05)
    """

    first_rate: float = 200_000.0
    interval_s: float = 0.05
    aim_s: float = 0.25

    def __post_init__(self) -> None:
        for name in self.__slots__:
            object.__setattr__(self, name, a_number(getattr(self, name), name, above=0))


class RateController:
    """Says how many events may be read now.

    Parameters
    ----------
    control
        Its settings.
    instances
        The number of instances.

    Examples
    --------
    >>> controller = RateController(RateControl(first_rate=4000.0, interval_s=1.0, aim_s=1.0), 1)
    >>> controller.block(now=0.0, at_hand=10_000), controller.block(now=0.5, at_hand=10_000)
    (0, 2000)
    >>> controller.worked(0, events=1000, seconds=1.0)
    >>> controller.adjust(now=60.0, loads=[1000], duplication=1.0)
    >>> controller.rate
    1000.0
    """

    def __init__(self, control: RateControl, instances: int) -> None:
        self._control = control
        #: For each instance the events that it processes in a second of work; 0 while not known.
        self._speeds = [0.0] * instances
        #: How high the rate may be while it rises at the start; without end after that.
        self._ceiling = control.first_rate
        self._rate = control.first_rate
        self._budget = 0.0
        self._budget_at = math.nan
        self._adjusted_at = math.nan

    @property
    def rate(self) -> float:
        """The events per second that are read."""
        return self._rate

    def worked(self, instance: int, events: int, seconds: float) -> None:
        """Take a measurement: an instance processed so many events in so much time."""
        if events <= 0 or seconds <= 0:
            return
        speed, before = events / seconds, self._speeds[instance]
        self._speeds[instance] = speed if not before else before + _NEWNESS * (speed - before)

    def due(self, now: float) -> bool:
        """Say whether it is time to set the rate anew."""
        return not now - self._adjusted_at < self._control.interval_s

    def adjust(self, now: float, loads: Sequence[float], duplication: float) -> None:
        """Set the rate anew, where it is time to.

        Parameters
        ----------
        now
            The time in seconds, from any point on.
        loads
            For each instance the events that wait for it.
        duplication
            How many instances an event goes to on average.
        """
        if not self.due(now):
            return
        first = math.isnan(self._adjusted_at)
        self._adjusted_at = now
        pressure = self._waiting_s(loads) / self._control.aim_s
        answered = all(speed or not load for speed, load in zip(self._speeds, loads, strict=True))
        if not first and answered and pressure < _MOST:
            self._ceiling *= 2
        measured = [speed for speed in self._speeds if speed]
        if not measured:
            self._rate = self._ceiling
            return
        # Instances without a measurement count like the others.
        together = sum(measured) / len(measured) * len(self._speeds)
        sustainable = together / max(duplication, 1e-9)
        self._rate = min(self._ceiling, sustainable * max(0.0, _MOST - pressure))
        if self._ceiling > _MOST * sustainable:
            self._ceiling = math.inf

    def block(self, now: float, at_hand: int) -> int:
        """Return how many of the events at hand may be read now, in one block; 0 to wait."""
        if not math.isnan(self._budget_at):
            # What was not used in an interval is lost, or a pause would be followed by a flood.
            most = max(self._least(at_hand), self._rate * self._control.interval_s)
            self._budget = min(most, self._budget + self._rate * (now - self._budget_at))
        self._budget_at = now
        return min(at_hand, int(self._budget)) if self._budget >= self._least(at_hand) else 0

    def spend(self, events: int) -> None:
        """Note that events were read."""
        self._budget -= events

    def wait_s(self, at_hand: int) -> float:
        """Return the seconds until a block may be read, at most until the rate is set anew."""
        missing = self._least(at_hand) - self._budget
        if missing <= 0 or self._rate <= 0:
            return 0.0 if missing <= 0 else self._control.interval_s
        return min(missing / self._rate, self._control.interval_s)

    def _least(self, at_hand: int) -> float:
        """Return the least size of a block."""
        return min(float(at_hand), max(1.0, self._rate * self._control.aim_s * _BLOCK))

    def _waiting_s(self, loads: Sequence[float]) -> float:
        """Return the seconds that the slowest instance needs for what waits for it."""
        return max(
            (load / speed for load, speed in zip(loads, self._speeds, strict=True) if speed),
            default=0.0,
        )
