"""How far time has come in a stream that is out of order: the greatest time, and the watermark.

A step of the clock depends on the times that were seen and on nothing else, so all instances that
see the same times have the same clock, whichever events they hold. Time never goes back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from outpace.engine.arrays import NO_TIME, Integers

_LAST = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock that events move, or one that is told the time.

    Parameters
    ----------
    slack
        How far the watermark stays behind the greatest time; None where only what is told moves it.
    ahead
        How far a time may lie beyond all that were seen before; None where it may be any.
    greatest
        The greatest time seen.
    watermark
        No later event has a time before this.

    Examples
    --------
    >>> clock = Clock(slack=2, ahead=100).after(np.array([[1, 7], [5, 10], [999, 999]]))
    >>> clock.greatest, clock.watermark, clock.latest
    (10, 8, 10)
    """

    slack: int | None
    ahead: int | None
    greatest: int = int(NO_TIME)
    watermark: int = int(NO_TIME)

    def after(self, spans: Integers, told: int = NO_TIME) -> Clock:
        """Return the clock after times were seen.

        Parameters
        ----------
        spans
            Stretches of times without a gap larger than `ahead`: rows of least and greatest.
            Going up from the clock, one that lies too far ahead does not move it, and neither do
            those above. The lowest one starts a clock that has seen nothing.
        told
            No later event has a time before this.
        """
        if self.slack is None:
            return replace(self, watermark=max(self.watermark, int(told)))
        greatest = self.greatest
        if len(spans):
            low, high = spans[np.argsort(spans[:, 0], kind="stable")].T
            start = greatest if greatest != NO_TIME else int(low[0])
            reached = np.maximum.accumulate(np.concatenate([[start], high]))
            beyond = len(low)
            if self.ahead is not None:
                # Differences of far times do not fit into 64 bits with a sign.
                distance = low.astype(np.uint64) - reached[:-1].astype(np.uint64)
                far = (low > reached[:-1]) & (distance > np.uint64(self.ahead))
                beyond = int(np.argmax(far)) if far.any() else beyond
            greatest = int(reached[beyond])
        behind = NO_TIME if greatest == NO_TIME else max(greatest - self.slack, int(NO_TIME))
        watermark = max(self.watermark, int(behind), int(told))
        return replace(self, greatest=greatest, watermark=watermark)

    @property
    def latest(self) -> int:
        """The latest time that an event of the last step may have."""
        if self.ahead is None:
            return _LAST
        if self.slack is not None:
            return self.greatest
        return _LAST if self.watermark == NO_TIME else min(self.watermark + self.ahead, _LAST)


def spans_of(times: Integers, ahead: int | None) -> Integers:
    """Return stretches of times as a clock takes them: apart where `ahead` matters.

    Examples
    --------
    >>> spans_of(np.array([3, 1, 9]), None).tolist(), spans_of(np.array([3, 1, 9]), 2).tolist()
    ([[1, 9]], [[1, 3], [9, 9]])
    """
    if not len(times):
        return np.zeros((0, 2), np.int64)
    if ahead is None:
        return np.array([[times.min(), times.max()]], np.int64)
    distinct = np.unique(times)
    gaps = np.flatnonzero(np.diff(distinct.astype(np.uint64)) > np.uint64(ahead))
    low = distinct[np.concatenate([[0], gaps + 1])]
    high = distinct[np.concatenate([gaps, [len(distinct) - 1]])]
    return np.stack([low, high], axis=1).astype(np.int64)
