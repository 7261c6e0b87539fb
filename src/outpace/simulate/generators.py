"""How many events a producer has produced by a time: CEPSim's generator functions g(t).

Every generator is a value with one method, `totals`, which answers for many times at once. It
promises what equation 2 of the CEPSim paper (section 4.1) asks for: whole numbers that never fall
with time, 0 at time 0, and the same answer for a time whatever else is asked. Randomness is a seed.

Own generators are classes with such a method.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from outpace.errors import DataError, ScenarioError
from outpace.files.small_file import read_small
from outpace.simulate.fields import Seconds, check_fields, not_negative

Times = NDArray[np.float64]
Totals = NDArray[np.int64]

#: What counts events must not overflow, however long a run is.
RATE_MAX = 1e12

#: A generator makes fewer events in a run, so that 64 bits count them.
EVENTS_MAX = 1e18

#: So many draws are made for one run.
_DRAWS_MAX = 10**8

#: A product such as 10 · 0.3 may lie a rounding error below the whole number that is meant.
_ROUNDING = 1e-9

#: Draws of a smaller mean are looked up in a table of so many parts of the interval from 0 to 1.
_TABLE_MEAN = 10.0
_PARTS = 4096

#: How large a file with recorded times may be.
_TRACE_BYTES_MAX = 2**28


@runtime_checkable
class Generator(Protocol):
    """A function from time to the number of events produced so far."""

    def totals(self, times: Times) -> Totals:
        """Return g(t) for each of the times, in seconds.

        Parameters
        ----------
        times
            The times, in seconds.
        """
        ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """The same number of events in every second.

    Parameters
    ----------
    rate
        Events a second.

    Examples
    --------
    >>> Uniform(rate=10).totals(np.array([0.0, 0.3, 1.0, 60.0])).tolist()
    [0, 3, 10, 600]
    """

    rate: float

    def __post_init__(self) -> None:
        check_fields(self)
        _check_rate("rate", self.rate)

    def totals(self, times: Times) -> Totals:
        """Return rate · t, rounded down.

        Parameters
        ----------
        times
            The times, in seconds.
        """
        return whole_events(self.rate * times)


@dataclass(frozen=True, slots=True)
class Increasing:
    """A rate that rises evenly from `start` to `maximum` in the first `over` seconds and stays.

    Parameters
    ----------
    maximum, start
        The last rate and the first one, in events a second.
    over
        How many seconds the rise takes.

    Examples
    --------
    >>> Increasing(maximum=100, over=10).totals(np.array([0.0, 5.0, 10.0, 11.0])).tolist()
    [0, 125, 500, 600]
    """

    maximum: float
    over: Seconds
    start: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        _check_rate("start", self.start)
        _check_rate("maximum", self.maximum)
        _positive("over", self.over)

    def totals(self, times: Times) -> Totals:
        """Return the area under the rate, rounded down.

        Parameters
        ----------
        times
            The times, in seconds.
        """
        rising = np.minimum(times, self.over)
        slope = (self.maximum - self.start) / self.over
        area = self.start * rising + slope * rising * rising / 2
        return whole_events(area + self.maximum * (times - rising))


@dataclass(frozen=True, slots=True)
class Poisson:
    """Events at random times, independent of each other, `rate` in a second on average.

    The number in each stretch of `grain` seconds is drawn from a Poisson distribution; within a
    stretch the events lie evenly. A time costs memory for the stretches before it.

    Parameters
    ----------
    rate
        Events a second, on average.
    seed
        Another seed gives other events.
    grain
        The length of a stretch, in seconds.

    Examples
    --------
    >>> totals = Poisson(rate=1000, seed=7).totals(np.array([0.0, 1.0, 1.0, 2.0]))
    >>> bool(totals[1] == totals[2] and 900 < totals[1] < 1100)
    True
    """

    rate: float
    seed: int
    grain: Seconds = 0.01

    def __post_init__(self) -> None:
        check_fields(self)
        _check_rate("rate", self.rate)
        not_negative("a generator's seed is", self.seed)
        _positive("grain", self.grain)

    def totals(self, times: Times) -> Totals:
        """Return the running sum of the draws, interpolated and rounded down.

        Parameters
        ----------
        times
            The times, in seconds.
        """
        position = times / self.grain + _ROUNDING
        last = float(position.max(initial=0.0))
        if last >= _DRAWS_MAX:
            raise ScenarioError(
                f"a Poisson generator draws more than {_DRAWS_MAX:,} numbers",
                hint="a longer grain, or a shorter run",
            )
        whole_events(np.array([self.rate * (last + 1) * self.grain]))
        stretches = int(last) + 1
        drawn = _draw_counts(self.rate * self.grain, stretches, self.seed)
        begins = np.concatenate(([0], np.cumsum(drawn)))
        stretch = position.astype(np.int64)
        return begins[stretch] + whole_events((position - stretch) * drawn[stretch])


@dataclass(frozen=True, slots=True)
class Bursty:
    """`on` seconds with `rate` events a second, then `off` seconds with `quiet`, again and again.

    Parameters
    ----------
    rate, quiet
        Events a second in a burst, and between bursts.
    on, off
        How many seconds a burst lasts, and the time between two.

    Examples
    --------
    >>> Bursty(rate=100, on=1, off=4).totals(np.array([0.5, 1.0, 4.9, 5.5])).tolist()
    [50, 100, 100, 150]
    """

    rate: float
    on: Seconds
    off: Seconds
    quiet: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        _check_rate("rate", self.rate)
        _check_rate("quiet", self.quiet)
        _positive("on", self.on)
        _positive("off", self.off)

    def totals(self, times: Times) -> Totals:
        """Return the area under the rate, rounded down.

        Parameters
        ----------
        times
            The times, in seconds.
        """
        cycles = np.floor(times / (self.on + self.off) + _ROUNDING)
        within = np.maximum(times - cycles * (self.on + self.off), 0.0)
        loud = np.minimum(within, self.on)
        a_cycle = self.rate * self.on + self.quiet * self.off
        return whole_events(cycles * a_cycle + self.rate * loud + self.quiet * (within - loud))


@dataclass(frozen=True, slots=True)
class RecordedTimes:
    """The recorded times of events, in seconds, in order.

    Parameters
    ----------
    times
        The times.

    Examples
    --------
    >>> RecordedTimes((0.5, 0.5, 2.0)).totals(np.array([0.0, 0.5, 1.0, 3.0])).tolist()
    [0, 0, 2, 3]
    """

    times: tuple[float, ...]

    def __post_init__(self) -> None:
        try:
            times = tuple(float(time) for time in self.times)
        except (TypeError, ValueError, OverflowError) as error:
            raise ScenarioError("a trace is a list of times", detail=str(error)) from error
        object.__setattr__(self, "times", times)
        recorded = np.array(self.times)
        if not np.isfinite(recorded).all() or (recorded < 0).any():
            raise ScenarioError("a trace has a time that is not a number of seconds from 0 on")
        if (np.diff(recorded) < 0).any():
            after = int(np.argmax(np.diff(recorded) < 0))
            raise ScenarioError(
                "the times of a trace must not fall",
                detail=f"{self.times[after]} is followed by {self.times[after + 1]}",
            )

    @classmethod
    def read(cls, path: str | Path) -> RecordedTimes:
        """Read a text file with one time, in seconds, in each line.

        Parameters
        ----------
        path
            The file.
        """
        try:
            lines = read_small(Path(path), _TRACE_BYTES_MAX).split()
        except (OSError, DataError) as error:
            detail = str(error) if isinstance(error, OSError) else error.message
            raise ScenarioError(f"the trace {str(path)!r} cannot be read", detail=detail) from None
        try:
            return cls(tuple(float(line) for line in lines))
        except ValueError as error:
            raise ScenarioError(
                f"the trace {str(path)!r} has a line that is not a time", detail=str(error)[:200]
            ) from None

    def totals(self, times: Times) -> Totals:
        """Return how many recorded times lie before each of these.

        Parameters
        ----------
        times
            The times, in seconds.
        """
        return np.searchsorted(np.array(self.times), times, side="left").astype(np.int64)


def whole_events(events: NDArray[np.float64]) -> Totals:
    """Return numbers of events, rounded down; refuse what is too many to be counted."""
    if not (events < EVENTS_MAX).all():
        raise ScenarioError(f"a generator makes more than {EVENTS_MAX:g} events")
    return np.floor(events + _ROUNDING).astype(np.int64)


def _draw_counts(mean: float, count: int, seed: int) -> Totals:
    """Draw from a Poisson distribution; more draws begin with the same ones."""
    generator = np.random.default_rng(seed)
    if not 0.0 < mean < _TABLE_MEAN:
        return generator.poisson(mean, count)
    chances = generator.random(count)
    # How likely each number is or a smaller one; greater ones than these are less so than 1e-20.
    ends = np.cumsum(np.exp(-mean) * np.cumprod([1.0, *(mean / np.arange(1, 64))]))
    least = np.searchsorted(ends, np.arange(_PARTS + 1) / _PARTS, side="right")
    # Most parts belong to one number.
    table = np.where(np.diff(least) > 0, -1, least[:-1])
    drawn = table[(chances * _PARTS).astype(np.int64)]
    unsure = np.flatnonzero(drawn < 0)
    drawn[unsure] = np.searchsorted(ends, chances[unsure], side="right")
    return drawn


def _check_rate(name: str, value: float) -> None:
    not_negative(f"a generator's {name} is", value)
    if value > RATE_MAX:
        raise ScenarioError(f"a generator's {name} is above {RATE_MAX:g} events a second: {value}")


def _positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ScenarioError(f"a generator's {name} is not a number above 0: {value}")
