"""Early release: how far events go on before it is certain that none comes before them.

    times     -----certain-----------early----------greatest-->
                   |<------- K ---------------------->|
                                     |<-- alpha K --->|

An order says how far time has come for certain. The events behind that, up to a part of the way to
the greatest time, go on early. One that comes between the two corrects what came of the early ones.

Papers: Sardar 2018, equation 2.3 and 3.2.2; Mutschler and Philippsen 2013.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.message import HostLoad
from outpace.engine.order.contract import Order
from outpace.engine.order.runs import SortedRun, SortedRuns, sorted_run
from outpace.engine.order.total import TotalOrder
from outpace.engine.state import integer, require
from outpace.pattern.bind.disorder import BoundDisorder

#: What alpha goes down by once it is near what was too much.
_LEAST_STEP: Final = 0.05

#: So near to what was too much it is tried again, as the load may have fallen since.
_NEAR: Final = _LEAST_STEP / 16


@dataclass(frozen=True)
class SpeculationFactor:
    """Alpha: the part of K that events wait, which may follow the load.

    As windows of congestion do: a host that is not busy enough halves it. One that is too busy goes
    back to 1, and the factor that was too small is remembered: from half of the way to it on, steps
    are small, and at most half of what is left, so that alpha settles where the load is steep, too.
    (Sardar 2018, 3.2.2 has the line at half of what is left, which lies below that factor, and
    steps that are all alike.)

    Parameters
    ----------
    target
        How busy the host is to be, from and to; None where alpha stays as it is.
    alpha
        The factor now.
    best
        The factor when the host was too busy last; None while it never was.

    Examples
    --------
    >>> factor = SpeculationFactor((0.7, 0.9), 1.0)
    >>> for busy in (0.2, 0.4, 0.8, 0.95, 0.3, 0.3, 0.8):
    ...     factor = factor.follow(busy)
    ...     print(round(factor.alpha, 3), end=" ")
    0.5 0.25 0.25 1.0 0.625 0.575 0.575
    """

    target: tuple[float, float] | None
    alpha: float
    best: float | None = None

    def follow(self, busy: float) -> SpeculationFactor:
        """Return the factor for a host that was so busy."""
        if self.target is None:
            return self
        low, high = self.target
        if busy > high:
            return replace(self, alpha=1.0, best=self.alpha)
        if busy >= low:
            return self
        if self.best is None:
            lower = self.alpha / 2 if self.alpha > _LEAST_STEP else 0.0
        elif self.alpha > (line := (1 + self.best) / 2):
            lower = max(line, self.alpha / 2)
        else:
            lower = max(0.0, self.alpha - _LEAST_STEP)
            if self.best < self.alpha - _NEAR:
                lower = max(lower, (self.alpha + self.best) / 2)
        return replace(self, alpha=lower)


@dataclass(frozen=True)
class EarlyRelease:
    """How far events have gone on early.

    Parameters
    ----------
    factor
        The part of K that events wait.
    greatest, gone
        The greatest time of all events, and that before which they have gone on.
    times_full
        How often events had to wait longer than the factor says, as there was no room for them.
    """

    factor: SpeculationFactor
    greatest: int = int(NO_TIME)
    gone: int = int(NO_TIME)
    times_full: int = 0

    @staticmethod
    def of(disorder: BoundDisorder) -> EarlyRelease:
        """Return how it begins."""
        alpha: float | None = disorder["alpha"]
        if alpha is None:
            return EarlyRelease(SpeculationFactor(disorder["target"], 1.0))
        return EarlyRelease(SpeculationFactor(None, alpha))

    def follow(self, load: HostLoad | None) -> EarlyRelease:
        """Return how it goes on after a load."""
        return self if load is None else replace(self, factor=self.factor.follow(load.busy))

    def due(self, certain: int, greatest: int) -> int:
        """Return before which time events are to go on: `ts + alpha K < greatest`."""
        alpha = self.factor.alpha
        if certain == NO_TIME:
            # As long as nobody knows K, all is speculation.
            return greatest if alpha < 1 else int(NO_TIME)
        return max(certain, greatest - math.floor(alpha * (greatest - certain)))

    def reach(self, greatest: int, due: int, within: int) -> EarlyRelease:
        """Return how far events go on: to what is due, and so far as there is room for them."""
        gone = max(self.gone, within)
        return EarlyRelease(self.factor, greatest, gone, self.times_full + (gone < due))

    @property
    def numbers(self) -> dict[str, object]:
        """All that is kept, for `restore`."""
        factor = {"alpha": self.factor.alpha, "best": self.factor.best}
        return {"greatest": self.greatest, "gone": self.gone, **factor}

    def restored(self, numbers: Mapping[str, Any]) -> EarlyRelease:
        """Return how it goes on from what `numbers` were."""
        greatest, gone = (integer(numbers, name) for name in ("greatest", "gone"))
        alpha, best = (numbers.get(name) for name in ("alpha", "best"))
        require(isinstance(alpha, float) and 0 <= alpha <= 1, "alpha is from 0 to 1")
        known = isinstance(best, float) and 0 <= best <= 1
        require(best is None or known, "alpha was from 0 to 1")
        factor = replace(self.factor, alpha=float(alpha or 0), best=best)
        return EarlyRelease(factor, greatest, gone)


class EarlyOrder(Order):
    """An order that lets events go on early, and says which belong before them that come later."""

    _early: EarlyRelease
    _order: TotalOrder
    _runs: SortedRuns

    def _begin_early(self, disorder: BoundDisorder) -> None:
        self._early = EarlyRelease.of(disorder)
        self.memory = disorder["memory"]

    @property
    def alpha(self) -> float:
        """The part of K, or of the way to what is certain, that events wait now at least."""
        return self._early.factor.alpha

    @property
    def times_full(self) -> int:
        """How often events had to wait longer than that, as there was no room for them."""
        return self._early.times_full

    @property
    def watermark(self) -> int:
        """Events before this time have gone on; NO_TIME while none has."""
        return self._early.gone

    @property
    def greatest(self) -> int:
        """The greatest time that events had; NO_TIME while none came."""
        return self._early.greatest

    def _reach(
        self, rows: pa.Table, early: EarlyRelease, certain: int, greatest: int
    ) -> tuple[pa.Table | None, SortedRun, EarlyRelease]:
        """Return which of some events correct early ones, the others, and how far all go on."""
        run, correcting = sorted_run(rows, self._order.ticks(rows)), None
        behind = int(np.searchsorted(run.times, self._order.in_ticks(early.gone)))
        if behind:
            before, run = run.cut(behind)
            correcting = before.rows
        within = due = early.due(certain, greatest)
        if self.room is not None:
            within = _time_within(self._order, (*self._runs, run), self.room, certain, due)
        return correcting, run, early.reach(greatest, due, within)


def _time_within(
    order: TotalOrder, runs: Sequence[SortedRun], room: int, certain: int, due: int
) -> int:
    """Return a time before which so many events go on early as there is room for, at most."""
    low, high = map(order.in_ticks, (certain, due))
    times = np.concatenate([np.zeros(0, np.int64), *(one.times for one in runs)])
    early = times[(times >= low) & (times < high)]
    if len(early) <= room:
        return due
    first = int(np.partition(early, room)[room])
    return max(certain, order.in_units(first))
