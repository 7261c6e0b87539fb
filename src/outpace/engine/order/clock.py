"""How far time has come in a stream that is out of order: the greatest time, K, and the watermark.

A clock depends on the times that it was shown, in their order, and on nothing else, so all parts
that see the same times have the same clock, whichever events they hold. Time never goes back.

A rule says how K is chosen; see `outpace.engine.kernels.slack` for each of them. Memory: some
numbers, and for rules that need them 30 KiB of delays and 40 KiB of windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import END_OF_TIME, NO_TIME, Bytes, Floats, Integers
from outpace.engine.kernels import slack as kernel
from outpace.engine.kernels.grouping import ORDERED, UNORDERED, order_runs
from outpace.engine.rows.partition import one_array
from outpace.engine.snapshot import Stateful
from outpace.engine.state import ANY, NATURAL, State, integers, require

_NO_VALUES: Final = np.zeros(0)


@dataclass(frozen=True, slots=True)
class SlackRule:
    """How K is chosen: a rule of the kernel, and the numbers that it goes by.

    Parameters
    ----------
    kind
        FIXED, GREATEST_DELAY, QUANTILE, DISTANCE or COVERAGE.
    at_least, at_most
        The bounds of K, in units of time. A fixed K is both of them.
    share
        Which quantile of delays counts.
    length
        The length of the windows, or of the stretches of time, that are measured.
    low, high
        The bounds of the factor of latency distance.
    aggregate, error, normal
        Which aggregate is to be how exact; how sure, as a quantile of the normal distribution.
    proportional, derivative
        The gains of the controller.
    """

    kind: int = kernel.FIXED
    at_least: int = 0
    at_most: int = END_OF_TIME
    share: float = 1.0
    length: int = 1
    low: float = 1.0
    high: float = 1.0
    aggregate: int = kernel.COUNT_OF
    error: float = 0.0
    normal: float = 0.0
    proportional: float = 0.0
    derivative: float = 0.0

    @property
    def by_event(self) -> bool:
        """Whether each event counts, and not the greatest time of a piece alone."""
        return self.kind != kernel.FIXED


def fixed(slack: int) -> SlackRule:
    """Return the rule that K is always the same."""
    return SlackRule(at_least=slack, at_most=slack)


class Clock(Stateful):
    """A clock that events move, or the watermarks that the source sends.

    Parameters
    ----------
    rule
        How K is chosen; None where only watermarks that the source sends move the clock.
    ahead
        How far a time may lie beyond all that were seen before; None where it may be any.

    Examples
    --------
    >>> clock = Clock(fixed(2), ahead=100)
    >>> fates, met = clock.follow(np.array([1, 7, 10, 999, 5]))
    >>> fates.tolist(), int(met[-1])
    ([0, 0, 0, 2, 1], 8)
    >>> clock.greatest, clock.watermark, clock.latest
    (10, 8, 10)
    """

    CHANGED = ("_numbers", "_fractions", "_delays", "_windows")

    def __init__(self, rule: SlackRule | None, ahead: int | None) -> None:
        self.rule = rule
        self.ahead = ahead
        rule = rule or fixed(0)
        none = -1 if ahead is None else ahead
        self._bounds = np.array(
            [rule.at_least, rule.at_most, none, rule.length, rule.aggregate], np.int64
        )
        self._settings = np.array(
            [
                rule.share,
                rule.error,
                rule.normal,
                rule.proportional,
                rule.derivative,
                rule.low,
                rule.high,
            ]
        )
        self._numbers = np.zeros(kernel.NUMBERS, np.int64)
        self._numbers[[kernel.GREATEST, kernel.WATERMARK, kernel.CELL]] = NO_TIME
        self._numbers[kernel.PENDING] = END_OF_TIME
        self._numbers[kernel.SLACK] = rule.at_least
        self._fractions = np.zeros(kernel.FRACTIONS)
        self._fractions[kernel.ALPHA] = 1.0
        counts = rule.kind in (kernel.QUANTILE, kernel.COVERAGE)
        measures = rule.kind == kernel.COVERAGE
        self._delays = np.zeros(kernel.BINS if counts else 0, np.int64)
        self._windows = np.zeros((kernel.WINDOWS if measures else 0, kernel.FIELDS))
        if measures:
            self._numbers[[kernel.FIRST, kernel.OPEN, kernel.END]] = NO_TIME

    @property
    def greatest(self) -> int:
        """The greatest time seen."""
        return int(self._numbers[kernel.GREATEST])

    @property
    def watermark(self) -> int:
        """No later event has a time before this."""
        return int(self._numbers[kernel.WATERMARK])

    @property
    def slack(self) -> int | None:
        """K as it is now; None where the watermark is told."""
        return None if self.rule is None else int(self._numbers[kernel.SLACK])

    @property
    def latest(self) -> int:
        """The latest time that an event which was just shown may have."""
        if self.ahead is None:
            return END_OF_TIME
        if self.rule is not None:
            return self.greatest
        known = self.watermark != NO_TIME
        return min(self.watermark + self.ahead, END_OF_TIME) if known else END_OF_TIME

    def follow(
        self, times: Integers, values: Floats = _NO_VALUES, *, at_once: bool = False
    ) -> tuple[Bytes, Integers]:
        """Take the times of events, one after the other, or of a piece that arrives at once.

        Returns
        -------
        tuple
            What becomes of each event, and the watermark that it met.
        """
        assert self.rule is not None
        fates, met = np.zeros(len(times), np.int8), np.zeros(len(times), np.int64)
        kernel.follow_times(
            times,
            values,
            fates,
            met,
            at_once,
            self.rule.kind,
            self._bounds,
            self._settings,
            self._numbers,
            self._fractions,
            self._delays,
            self._windows,
        )
        return fates, met

    def follow_spans(self, spans: Integers) -> None:
        """Take all times of a piece at once, where K is fixed.

        Parameters
        ----------
        spans
            Stretches of times without a gap larger than `ahead`: rows of least and greatest. Going
            up from the clock, one that lies too far ahead does not move it, and neither do those
            above. The lowest one starts a clock that has seen nothing.
        """
        if self.rule is None or not len(spans):
            return
        low, high = spans[np.argsort(spans[:, 0], kind="stable")].T
        start = self.greatest if self.greatest != NO_TIME else int(low[0])
        reached = np.maximum.accumulate(np.concatenate([[start], high]))
        beyond = len(low)
        if self.ahead is not None:
            # Differences of far times do not fit into 64 bits with a sign.
            distance = low.astype(np.uint64) - reached[:-1].astype(np.uint64)
            far = (low > reached[:-1]) & (distance > np.uint64(self.ahead))
            beyond = int(np.argmax(far)) if far.any() else beyond
        self._numbers[kernel.GREATEST] = reached[beyond]
        self.tell(max(self.greatest - self.rule.at_least, int(NO_TIME)))

    def reach(self, time: int) -> None:
        """Take a time that is not before the greatest one, where K is fixed and none is too far."""
        assert self.rule is not None
        self._numbers[kernel.GREATEST] = max(self.greatest, time)
        self.tell(max(self.greatest - self.rule.at_least, int(NO_TIME)))

    def await_passing(self, times: Integers) -> None:
        """Let times ahead of the clock count as behind it, if they are when it goes on."""
        pending = int(self._numbers[kernel.PENDING])
        self._numbers[kernel.PENDING] = int(times.min(initial=pending))

    def tell(self, time: int) -> None:
        """Take a promise that no later event has a time before this."""
        self._numbers[kernel.WATERMARK] = max(self.watermark, int(time))

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        numbers = self._numbers.copy()
        # What the delays say anyway.
        numbers[[kernel.BELOW, kernel.TOTAL]] = 0
        place = np.flatnonzero(self._delays)
        header: dict[str, Any] = {
            "rule": -1 if self.rule is None else self.rule.kind,
            "fractions": self._fractions.tolist(),
        }
        return State(
            header,
            [
                pa.table({"number": numbers}),
                pa.table({"place": place, "count": self._delays[place]}),
                pa.table(
                    {str(field): self._window_rows()[:, field] for field in range(kernel.FIELDS)}
                ),
            ],
        )

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        header, (numbers, delays, windows) = state.content(3)
        rule = -1 if self.rule is None else self.rule.kind
        require(header.get("rule") == rule, "it belongs to another rule")
        (self._numbers,) = integers(numbers, number=ANY)
        require(len(self._numbers) == kernel.NUMBERS, "numbers are missing")
        place, count = integers(delays, place=range(len(self._delays)), count=NATURAL)
        self._delays[:] = 0
        self._delays[place] = count
        self._restore_fractions(header.get("fractions"))
        self._restore_windows(windows)

    def _window_rows(self) -> Floats:
        """Return the windows that are measured, in their order."""
        first, end = self._numbers[[kernel.FIRST, kernel.END]]
        rows: Floats = self._windows[np.arange(first, end) % max(len(self._windows), 1)]
        return rows

    def _restore_fractions(self, fractions: object) -> None:
        self._fractions = finite_numbers(fractions, kernel.FRACTIONS)
        require(0.0 <= self._fractions[kernel.ALPHA] <= 1.0, "a share is none")
        numbers, total = self._numbers, int(self._delays.sum())
        at = int(numbers[kernel.BIN])
        require(0 <= at < max(len(self._delays), 1), "there is no such delay")
        require(0 <= total < 1 << 40, "there are too many delays")
        numbers[kernel.BELOW], numbers[kernel.TOTAL] = int(self._delays[:at].sum()), total
        low = min(int(numbers[kernel.NOW]), int(numbers[kernel.BEFORE]), int(numbers[kernel.DELAY]))
        require(low >= 0, "a count is negative")

    def _restore_windows(self, windows: pa.Table) -> None:
        first, opened, end = (
            int(self._numbers[at]) for at in (kernel.FIRST, kernel.OPEN, kernel.END)
        )
        room = len(self._windows)
        require(first <= opened <= end <= first + room, "windows are out of order")
        require(windows.num_rows == end - first, "windows are missing")
        for field in range(kernel.FIELDS if room else 0):
            values = windows.column(str(field)).to_numpy().astype(np.float64)
            require(np.isfinite(values).all(), "a window has no numbers")
            self._windows[np.arange(first, end) % room, field] = values


def finite_numbers(values: object, count: int) -> Floats:
    """Return so many fractions of a saved state."""
    require(isinstance(values, list) and len(values) == count, "fractions are missing")
    assert isinstance(values, list)
    fits = (isinstance(one, float | int) and math.isfinite(one) for one in values)
    require(all(fits), "a fraction is none")
    numbers: Floats = np.array(values, np.float64)
    return numbers


def weights_of(column: pa.Array | pa.ChunkedArray) -> Floats:
    """Return what an aggregate reads of events; NULL, NaN and what is infinite count as nothing.

    A number whose square would be infinite counts as the largest that has one, and nearly 0 is 0.

    Examples
    --------
    >>> weights_of(pa.array([2, None, -1])).tolist()
    [2.0, 0.0, -1.0]
    >>> weights_of(pa.array([-1e200, 1e-200])).tolist()
    [-1e+100, 0.0]
    """
    numbers = pc.cast(one_array(column), pa.float64(), safe=False)
    weights: Floats = numbers.to_numpy(zero_copy_only=False)
    weights = np.nan_to_num(weights, posinf=0.0, neginf=0.0)
    weights[np.abs(weights) < kernel.SMALLEST] = 0.0
    return np.clip(weights, -kernel.LARGEST, kernel.LARGEST, out=weights)


def order_of(times: Integers, weights: Floats) -> Integers:
    """Return the order in which events that come at once count, whichever order they come in.

    Examples
    --------
    >>> order_of(np.array([5, 2, 5]), np.array([0.2, 0.3, 0.1])).tolist()
    [1, 2, 0]
    """
    # What is nearly in order is sorted much faster so; then few are equal, and are put in order.
    order = np.argsort(times, kind="stable")
    ordered, within = times[order], np.arange(len(times))
    status = order_runs(ordered, weights[order], ordered, ordered, within)
    if status == UNORDERED:
        order = np.lexsort([weights, times])
    elif status == ORDERED:
        order = order[within]
    return order


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
