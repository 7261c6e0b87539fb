"""Windows whose borders are unsure: the window that is split holds all events that may be in it.

Windows with a drift hold LOW, MIDDLE and HIGH each, whose matches are joined into one row.

The window that is split reaches from the start of LOW to the end of HIGH, so it closes when all
three are known. Then each of them is matched as a table of its own. A window of time or count has
one of each, shifted by half of the drift. A session has one row for each MIDDLE in it: HIGH is the
whole, and LOW begins where MIDDLE does.

Where the order of events is uncertain, true times say which of them a window holds. It closes when
no other event can be in it. Then it is matched, and a match is one of events that may be in the
window together.

Memory: the rows of open windows, and what one step gathers.
Paper: Rajendran 2019, 3.2.3.1, figure 3.4.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.event import Events
from outpace.engine.kernels.grouping import find_pairs
from outpace.engine.match.contract import Matcher, Resume, Task
from outpace.engine.match.identity import MatchIds, identified
from outpace.engine.match.output import match_rows
from outpace.engine.rows.partition import one_array
from outpace.engine.split.windows import OPEN, Windows, take_windows
from outpace.engine.window_match.open_windows import OpenWindows
from outpace.engine.window_match.result import (
    CLOSING,
    COMPLETING,
    WindowMatches,
    turns_of,
    with_numbers,
)
from outpace.engine.window_match.rows import places
from outpace.engine.window_match.separate import SeparateWindows
from outpace.engine.window_match.stretches import Stretches, part_matches
from outpace.pattern.bind.drift import SHIFTED
from outpace.pattern.bind.window_kinds import BoundWindows, BySession, ByTime, Drift

_RowBounds: TypeAlias = "tuple[Integers, Integers]"


@dataclass(frozen=True)
class _WindowParts:
    """The parts of closed windows that are matched, and which of them make a row of the result.

    Parameters
    ----------
    stretches
        The rows of all LOW, of all MIDDLE and of all HIGH: the first of each, and the one behind
        its last, among those held.
    lines
        For each row of the result its LOW, its MIDDLE and its HIGH, counted through all three.
    window
        The window that each row of the result belongs to.
    """

    stretches: tuple[_RowBounds, _RowBounds, _RowBounds]
    lines: Integers
    window: Integers


class UnsureWindows(SeparateWindows):
    """Matches windows when they close, as no other event can be in them.

    Parameters
    ----------
    task, matcher, nothing, rows_at_once
        As of windows that are matched one by one.
    windows
        The windows, with what is split.
    """

    def __init__(
        self,
        task: Task,
        matcher: Matcher,
        nothing: Events,
        rows_at_once: int,
        windows: BoundWindows,
    ) -> None:
        super().__init__(task, matcher, nothing, rows_at_once)
        assert windows.drift is not None
        self._drift: Drift = windows.drift

    def _match(self, held: Events, windows: OpenWindows, fresh: Booleans) -> list[WindowMatches]:
        closed = take_windows(windows.windows, np.flatnonzero(windows.windows.stop != OPEN))
        return self._match_closed(held, closed) if len(closed) else []

    @abstractmethod
    def _match_closed(self, held: Events, closed: Windows) -> list[WindowMatches]:
        """Return the matches of windows that have closed, of which there is one at least."""


class DriftingWindows(UnsureWindows):
    """Matches the three windows of each window when it closes."""

    def __init__(
        self,
        task: Task,
        matcher: Matcher,
        nothing: Events,
        rows_at_once: int,
        windows: BoundWindows,
    ) -> None:
        super().__init__(task, matcher, nothing, rows_at_once, windows)
        bound = task.bound
        keys = [bound.output.field(name) for name in bound.partition_by]
        values = [pa.field(one.name, one.expression.type) for one in bound.measures]
        query = replace(bound.query, drift=None, numbered=False)
        #: The query as it is matched in each of the three.
        self._plain = replace(
            task, bound=replace(bound, query=query, output=pa.schema([*keys, *values]))
        )

    def _match_closed(self, held: Events, closed: Windows) -> list[WindowMatches]:
        low = places(held, closed.partition, closed.first)
        high = places(held, closed.partition, closed.stop)
        if isinstance(self._drift.kind, BySession):
            shifted = _sessions(held, low, high, self._drift.kind.gap, self._drift.low)
        else:
            shifted = self._intervals(held, closed, low, high)
        found, tables, ids = self._found(held, shifted)
        lines = found[shifted.lines]
        some = np.flatnonzero((lines >= 0).any(axis=1))
        if not len(some):
            return []
        lines, of = lines[some], shifted.window[some]
        middle = shifted.stretches[1][0][some]
        shown = self._shown_windows(held, take_windows(closed, of), middle, high[of] - 1)
        phase = np.where(closed.closed_at[of] > held.arrival[high[of] - 1], CLOSING, COMPLETING)
        numbers = shown.closed_at, shown.number, shown.start_time, shown.end_time
        table = with_numbers(
            self._task.bound, self._joined(pa.concat_tables(tables), lines), *numbers
        )
        return [
            WindowMatches(
                table,
                np.arange(len(lines) + 1),
                shown.closed_at,
                phase,
                shown.number,
                shown.partition,
                self._identified(ids, lines, shown),
                turn=turns_of(self._task.bound.query, shown.end_time),
            )
        ]

    def _intervals(
        self, held: Events, closed: Windows, low: Integers, high: Integers
    ) -> _WindowParts:
        """Return the three of windows that arithmetic tells."""
        drift, kind = self._drift, self._drift.kind
        assert not isinstance(kind, BySession)
        start = kind.offset + closed.number * kind.slide

        def shift(distance: int) -> _RowBounds:
            bounds = start + distance, start + distance + kind.size
            if isinstance(kind, ByTime):
                begin, end = (_places_of_times(held, closed.partition, bound) for bound in bounds)
            else:
                begin, end = (places(held, closed.partition, bound) for bound in bounds)
            return np.clip(begin, low, high), np.clip(end, low, high)

        count = len(closed)
        window = np.arange(count)
        lines = np.stack([window, window + count, window + 2 * count], axis=1)
        return _WindowParts((shift(-drift.low), shift(0), shift(drift.high)), lines, window)

    def _found(
        self, held: Events, shifted: _WindowParts
    ) -> tuple[Integers, list[pa.Table], list[Callable[[], MatchIds]]]:
        """Return the match of each stretch or -1, the rows of all matches, and what makes ids."""
        found = np.full(sum(len(low) for low, _ in shifted.stretches), -1, np.int64)
        tables, ids = [self._plain.bound.output.empty_table()], list[Callable[[], MatchIds]]()
        before, count = 0, 0
        # One after the other, those that lie side by side need not be copied.
        for low, high in shifted.stretches:
            first = held.ordinal[np.minimum(low, len(held.ordinal) - 1)]
            stretches = Stretches(low, high, first, np.zeros_like(low))
            for part in self._matcher.match(held, stretches, Resume.fresh(len(low)), ended=True):
                table, _ = match_rows(self._plain, part.block, part.found)
                found[before + part.window] = count + np.arange(table.num_rows)
                tables.append(table)
                ids.append(identified(self._task, part.block, part.found))
                count += table.num_rows
            before += len(low)
        return found, tables, ids

    def _shown_windows(
        self, held: Events, windows: Windows, middle: Integers, last: Integers
    ) -> Windows:
        """Return windows with the bounds of MIDDLE, or of what is next to it where it is empty."""
        kind = self._drift.kind
        if isinstance(kind, ByTime):
            start = kind.offset + windows.number * kind.slide
            return replace(windows, start_time=start, end_time=start + kind.size)
        if not len(held.times):
            return windows
        return replace(windows, start_time=held.times[np.minimum(middle, last)])

    def _joined(self, matches: pa.Table, lines: Integers) -> pa.Table:
        """Return the rows of the result without their numbers."""
        bound = self._task.bound
        any_of = pa.array(lines.max(axis=1))
        columns = [one_array(matches.column(name)).take(any_of) for name in bound.partition_by]
        missing = lines < 0
        for measure in bound.measures:
            values = one_array(matches.column(measure.name))
            three = [
                values.take(pa.array(lines[:, place], mask=missing[:, place]))
                for place in range(len(SHIFTED))
            ]
            average, spread = _average_and_spread(three)
            columns += [average, *three, spread]
        return pa.table(columns, schema=bound.matched)

    def _identified(
        self, parts: list[Callable[[], MatchIds]], lines: Integers, windows: Windows
    ) -> Callable[[], MatchIds]:
        query = self._task.bound.query
        start_time, number = windows.start_time, windows.number

        def make() -> MatchIds:
            ids = MatchIds.joined([part() for part in parts]).together(lines)
            return ids.in_windows(query, start_time, number)

        return make


class UncertainWindows(UnsureWindows):
    """Matches windows of true time when they close."""

    def _match_closed(self, held: Events, closed: Windows) -> list[WindowMatches]:
        kind = self._drift.kind
        assert isinstance(kind, ByTime)
        start = kind.offset + closed.number * kind.slide
        closed = replace(closed, start_time=start, end_time=start + kind.size)
        stretches = Stretches(
            places(held, closed.partition, closed.first),
            places(held, closed.partition, closed.stop),
            closed.first,
            closed.closed_at,
            np.stack([closed.start_time, closed.end_time], axis=1),
        )
        resume = Resume.fresh(len(closed))
        return [
            part_matches(self._task, part, closed)
            for part in self._matcher.match(held, stretches, resume, ended=True)
        ]


def _sessions(held: Events, low: Integers, high: Integers, gap: int, drift: int) -> _WindowParts:
    """Return for each session MIDDLE in windows the three: where LOW ends, and the whole."""
    sizes = high - low
    ends = np.cumsum(sizes)
    rows = np.repeat(low - ends + sizes, sizes) + np.arange(ends[-1])
    silence = np.diff(held.times[rows], prepend=0)
    window = np.repeat(np.arange(len(low)), sizes)
    begins = np.diff(window, prepend=-1) > 0
    shorter = np.append(np.flatnonzero(begins | (silence >= gap - drift)), len(rows))
    middle = np.flatnonzero(begins | (silence >= gap))
    count = len(middle)
    low_end = shorter[np.searchsorted(shorter, middle, side="right")]
    middle_end = np.append(middle[1:], len(rows))
    of = window[middle]
    first = rows[middle]
    line = np.arange(count)
    stretches = (
        (first, first + low_end - middle),
        (first, first + middle_end - middle),
        (low, high),
    )
    return _WindowParts(stretches, np.stack([line, line + count, 2 * count + of], axis=1), of)


def _places_of_times(events: Events, partition: Integers, time: Integers) -> Integers:
    """Return the first row of each partition at or behind a time."""
    out = np.empty(len(partition), np.int64)
    find_pairs(events.partition, events.times, partition, time, out)
    return out


def _average_and_spread(values: list[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Return the average of what is there, and how far it lies apart.

    Both are NULL where nothing is; of one alone nobody knows how far it is from others.
    """
    numbers = np.stack([_as_floats(value) for value in values])
    there = np.stack([value.is_valid().to_numpy(zero_copy_only=False) for value in values])
    count = there.sum(axis=0)
    with np.errstate(all="ignore"):
        average = np.where(there, numbers, 0.0).sum(axis=0) / count
        highest = np.where(there, numbers, -np.inf).max(axis=0)
        spread = highest - np.where(there, numbers, np.inf).min(axis=0)
    return pa.array(average, mask=count == 0), pa.array(spread, mask=count < 2)


def _as_floats(values: pa.Array) -> npt.NDArray[np.float64]:
    floats = values.cast(pa.float64(), safe=False).fill_null(0.0)
    return np.asarray(floats.to_numpy(zero_copy_only=False), np.float64)
