"""The values that splitter, instances and merger hand to each other: plain arrays.

A window is an interval of ordinals: `ordinal` counts the events of a partition from the beginning
of the stream, `arrival` counts those of all partitions together, in the total order. Both are the
same in a stream without keys, and neither depends on how the stream is cut into blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from outpace.engine.arrays import Integers

#: The `stop` of a window that is still open.
OPEN = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Windows:
    """Windows, one per place.

    Parameters
    ----------
    partition, number
        Which window: the partition's number, and the window's number in it. Numbers rise with
        `first`.
    first, stop
        The ordinals of its first event and of the one behind its last; `OPEN` while it is open.
    start_time, end_time
        Time windows: their bounds. Others: the times of the first and the last event, where the
        query has a time column; 0 otherwise and while not known.
    closed_at
        The arrival number of the event that closed it: its own last event where that is known to be
        the last (count, between), else the first event behind it, or the number that the
        next event would have had, at the end of the input or where only time passed. -1 while open.
    """

    partition: Integers
    number: Integers
    first: Integers
    stop: Integers
    start_time: Integers
    end_time: Integers
    closed_at: Integers

    def __len__(self) -> int:
        return len(self.number)

    @property
    def columns(self) -> tuple[Integers, ...]:
        """All that is known of the windows, in the order of the parameters."""
        return tuple(getattr(self, one.name) for one in fields(Windows))

    @property
    def given(self) -> tuple[Integers | Linear | range, ...]:
        """All that is known of the windows, with columns that follow from numbers as they do."""
        return self.columns

    @staticmethod
    def none() -> Windows:
        """Return no windows."""
        return _NO_WINDOWS


_NO_WINDOWS = Windows(*[np.zeros(0, np.int64)] * 7)


@dataclass(frozen=True, slots=True)
class Linear:
    """Integers that follow from numbers: `base + step * number`, but none below `least`."""

    base: int
    step: int = 0
    least: int | None = None

    def of(self, numbers: Integers) -> Integers:
        """Return the integer of each number."""
        values = numbers * self.step + self.base if self.step else np.full(len(numbers), self.base)
        return values if self.least is None else np.maximum(values, self.least)


class LinearWindows(Windows):
    """Windows of which columns follow from their numbers, and are made when one asks for them.

    To name the windows that open and close costs the same however many they are, a reader pays for
    the windows that it reads alone, and the message to another process is short.

    Parameters
    ----------
    number
        The numbers; a range where they follow each other.
    columns
        Each other column of `Windows`, or how it follows from the number.

    Examples
    --------
    >>> zero = Linear(0)
    >>> tens = LinearWindows(range(3, 6), partition=zero, first=Linear(-35, 10, 0),
    ...     stop=Linear(65, 10), start_time=zero, end_time=zero, closed_at=Linear(64, 10))
    >>> len(tens), tens.first.tolist(), tens.stop.tolist()
    (3, [0, 5, 15], [95, 105, 115])
    """

    _numbers: Integers | range
    _columns: Mapping[str, Integers | Linear]
    #: The columns that do not follow from the numbers.
    _listed: tuple[str, ...]

    def __init__(self, number: Integers | range, **columns: Integers | Linear) -> None:
        listed = tuple(name for name in columns if not isinstance(columns[name], Linear))
        vars(self).update(_numbers=number, _columns=columns, _listed=listed)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def given(self) -> tuple[Integers | Linear | range, ...]:
        """All that is known of the windows, as it was given."""
        given = {**self._columns, "number": self._numbers}
        return tuple(given[one.name] for one in fields(Windows))

    def take(self, at: Integers | slice) -> LinearWindows:
        """Return some of the windows; what follows from numbers still does."""
        numbers, columns = self._numbers, self._columns
        if isinstance(at, slice):
            numbers = numbers[at]
        elif isinstance(numbers, range):
            numbers = numbers.start + numbers.step * at
        else:
            numbers = numbers[at]
        if self._listed:
            columns = {**columns, **{name: getattr(self, name)[at] for name in self._listed}}
        return _linear(numbers, columns, self._listed)

    def __getattr__(self, name: str) -> Integers:
        """Make a column when it is asked for first."""
        known = vars(self)
        if name == "number" and "_numbers" in known:
            given = self._numbers
            values = (
                np.arange(given.start, given.stop, given.step)
                if isinstance(given, range)
                else given
            )
        elif name in known.get("_columns", ()):
            column = self._columns[name]
            values = column.of(self.number) if isinstance(column, Linear) else column
        else:
            raise AttributeError(name)
        known[name] = values
        return values


def _linear(
    numbers: Integers | range, columns: Mapping[str, Integers | Linear], listed: tuple[str, ...]
) -> LinearWindows:
    """Return windows whose columns, of which nobody makes a copy, may be those of others, too."""
    windows = object.__new__(LinearWindows)
    known = {"_numbers": numbers, "_columns": columns, "_listed": listed}
    object.__setattr__(windows, "__dict__", known)
    return windows


@dataclass(frozen=True)
class Split:
    """The windows that the next events open, and those that they close.

    A window that opens and closes within the same events is in both. `opened` is ordered by the
    arrival of the first event, `closed` by `closed_at`, both then by number.
    """

    opened: Windows
    closed: Windows


def take_windows(windows: Windows, at: Integers | slice) -> Windows:
    """Return some windows, with all that is known of them."""
    return Windows(*(column[at] for column in windows.columns))


def part_windows(windows: Windows, at: Integers | slice) -> Windows:
    """Return some windows; what follows from their numbers is still not made."""
    return windows.take(at) if isinstance(windows, LinearWindows) else take_windows(windows, at)


def joined_windows(one: Windows, other: Windows) -> Windows:
    """Return windows one behind the other."""
    if not len(one) or not len(other):
        return one if len(one) else other
    pairs = zip(one.columns, other.columns, strict=True)
    return Windows(*(np.concatenate(pair) for pair in pairs))
