"""How far the clock of a source is from the clock of reference, as exchanges of messages tell.

A source asks what time it is, and is answered; four times are noted (`ClockExchange`). Half of the
time that an exchange takes, without that in which the answer is made, bounds the error: the message
that asks may have taken all of it, or none. Of the last exchanges that which took least counts, so
queues on the way do no harm. An old one counts less, since clocks run apart.

The interval of an exchange holds the true drift. Where that of a new one and the one that counts
have nothing in common, and clocks cannot have run apart so far, one of them was set: the clock has
jumped, and only exchanges from then on count.

Memory: eight exchanges. Paper: Rajendran 2019, 3.2.2, equations 3.12 to 3.15.
"""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass, fields, replace
from typing import Final

import numpy as np

from outpace.engine.arrays import Integers
from outpace.engine.message import ClockExchange
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State, integer, require

#: So many exchanges count.
KEPT: Final = 8

#: So many units of time in a million clocks may run apart: usually, and at the most.
_USUAL, _MOST = 15, 500

_MILLION: Final = 1_000_000

#: The error of a clock that nobody has compared.
UNKNOWN: Final = 1 << 62

#: A drift of as much, 142 years in microseconds, is none: times of reference have to fit.
_FARTHEST: Final = 1 << 52


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The drift of the clock of a source, in microseconds or the units of an integer time.

    Parameters
    ----------
    drift
        The difference that makes its times those of reference, when it is added.
    bound
        How far that may be off: half of the round trip, and what clocks run apart since.
    exchanges, refused
        Exchanges that counted, and those that cannot be true: time went back in them, or the drift
        is more than a century.
    jumps
        How often the clock was set.
    """

    drift: int = 0
    bound: int = 0
    exchanges: int = 0
    refused: int = 0
    jumps: int = 0


@dataclass(frozen=True, slots=True)
class _ClockSample:
    """An exchange: the time that it took, the drift that it tells, and when it was."""

    round_trip: int
    drift: int
    at: int

    def bound(self, now: int, apart: int = _USUAL) -> int:
        """Return how far the drift may be off at a time."""
        return -(-self.round_trip // 2) + abs(now - self.at) * apart // _MILLION


class SourceClock(Stateful):
    """The clock of a source.

    Examples
    --------
    >>> clock = SourceClock()
    >>> clock.compare(ClockExchange("east", 100, 1150, 1160, 180))
    True
    >>> clock.reading
    ClockReading(drift=1015, bound=35, exchanges=1, refused=0, jumps=0)
    >>> clock.compare(ClockExchange("east", 200, 1205, 1215, 240))
    False
    >>> clock.reading.drift, clock.reading.bound
    (990, 15)
    """

    CHANGED = ("_samples",)

    def __init__(self) -> None:
        self._samples: list[_ClockSample] = []
        self.reading = ClockReading()

    def compare(self, exchange: ClockExchange) -> bool:
        """Take an exchange; say whether what was known before does not count any more."""
        known = self.reading
        round_trip = (exchange.heard - exchange.asked) - (exchange.answered - exchange.received)
        both = (exchange.received - exchange.asked) + (exchange.answered - exchange.heard)
        back = round_trip < 0 or exchange.answered < exchange.received
        if back or round_trip >= _FARTHEST or abs(both) >= 2 * _FARTHEST:
            self.reading = replace(known, refused=known.refused + 1)
            return False
        sample = _ClockSample(round_trip, both // 2, exchange.answered)
        best = self._best(sample.at)
        jumped = best is not None and abs(sample.drift - best.drift) > (
            sample.bound(sample.at) + best.bound(sample.at, _MOST)
        )
        self._samples = [*([] if jumped else self._samples[1 - KEPT :]), sample]
        best_now = self._best(sample.at)
        assert best_now is not None
        self.reading = replace(
            known,
            drift=best_now.drift,
            bound=best_now.bound(sample.at),
            exchanges=known.exchanges + 1,
            jumps=known.jumps + jumped,
        )
        return jumped or best is None

    def errors(self, times: Integers) -> Integers:
        """Return how far times of reference may be off that the drift tells of those of events."""
        now = self._samples[-1].at if self._samples else 0
        best = self._best(now)
        if best is None:
            return np.full(len(times), UNKNOWN)
        away = np.abs(times - best.at)
        apart = away // _MILLION * _USUAL + away % _MILLION * _USUAL // _MILLION
        errors: Integers = best.bound(best.at) + apart
        return errors

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        samples = [[*astuple(one)] for one in self._samples]
        return State({"samples": samples, **asdict(self.reading)})

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        numbers = state.numbers
        samples = numbers.get("samples", [])
        require(isinstance(samples, list) and len(samples) <= KEPT, "exchanges are missing")
        names = ("round_trip", "drift", "at")
        self._samples = []
        for one in samples:
            require(isinstance(one, list) and len(one) == len(names), "an exchange has four times")
            named = dict(zip(names, one, strict=True))
            integer(named, "round_trip", range(_FARTHEST))
            integer(named, "drift", range(-_FARTHEST, _FARTHEST))
            self._samples.append(_ClockSample(**{name: integer(named, name) for name in names}))
        integer(numbers, "drift", range(-_FARTHEST, _FARTHEST))
        self.reading = ClockReading(
            **{one.name: integer(numbers, one.name) for one in fields(ClockReading)}
        )

    def _best(self, now: int) -> _ClockSample | None:
        return min(self._samples, key=lambda one: one.bound(now), default=None)
