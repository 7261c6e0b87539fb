"""What splitter, instances and merger hand to each other: plain arrays.

A window is an interval of ordinals: `ordinal` counts the events of a partition from the beginning
of the stream, `arrival` counts those of all partitions together, in the total order. Both are the
same in a stream without keys, and neither depends on how the stream is cut into blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
import pyarrow as pa

from outpace.engine.match.contract import Integers

#: The `stop` of a window that is still open.
OPEN = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Events:
    """The next events of a stream, in its order; arrays of one length.

    Parameters
    ----------
    rows
        The columns that travel.
    partition
        The number of each event's partition, given in the order of first events.
    ordinal, arrival
        Its number in its partition, and among all.
    times
        Event time in units of the time column; empty for a query that has no use for time.
    """

    rows: pa.Table
    partition: Integers
    ordinal: Integers
    arrival: Integers
    times: Integers
    #: The events that these were sliced from, and the place of the first one in them.
    _whole: tuple[Events, int] | None = field(default=None, init=False, repr=False, compare=False)

    def slice(self, low: int, high: int) -> Events:
        """Return the events from `low` up to `high`, which are not copied.

        Examples
        --------
        >>> numbers = np.arange(6)
        >>> events = Events(pa.table({"x": numbers}), numbers * 0, numbers, numbers, numbers[:0])
        >>> events.slice(1, 3).and_next(events.slice(3, 5)).ordinal.tolist()
        [1, 2, 3, 4]
        """
        part = Events(
            self.rows.slice(low, high - low),
            self.partition[low:high],
            self.ordinal[low:high],
            self.arrival[low:high],
            self.times[low:high],
        )
        whole, begin = (self, 0) if self._whole is None else self._whole
        object.__setattr__(part, "_whole", (whole, begin + low))
        return part

    def and_next(self, events: Events) -> Events:
        """Return these events and others behind them; slices that lie so are not copied."""
        if self._whole is not None and events._whole is not None:
            (whole, begin), (other, following) = self._whole, events._whole
            if whole is other and begin + len(self.arrival) == following:
                return whole.slice(begin, following + len(events.arrival))
        return Events(
            pa.concat_tables([self.rows, events.rows]),
            np.concatenate([self.partition, events.partition]),
            np.concatenate([self.ordinal, events.ordinal]),
            np.concatenate([self.arrival, events.arrival]),
            np.concatenate([self.times, events.times]),
        )


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
        the last (count, between), else the event that came too late for it, or the number that the
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

    To say what opens and closes costs the same however much it is then, who takes it pays for what
    it reads alone, and what travels to another process is short.

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
    _columns: dict[str, Integers | Linear]

    def __init__(self, number: Integers | range, **columns: Integers | Linear) -> None:
        vars(self).update(_numbers=number, _columns=columns)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getattr__(self, name: str) -> Integers:
        """Make a column when it is asked for first."""
        known = vars(self)
        if name == "number" and "_numbers" in known:
            given = self._numbers
            values = np.arange(given.start, given.stop) if isinstance(given, range) else given
        elif name in known.get("_columns", ()):
            column = self._columns[name]
            values = column.of(self.number) if isinstance(column, Linear) else column
        else:
            raise AttributeError(name)
        known[name] = values
        return values


@dataclass(frozen=True)
class Split:
    """What a splitter says of the next events: what opened, and what closed.

    A window that opens and closes within the same events is in both. `opened` is ordered by the
    arrival of the first event, `closed` by `closed_at`, both then by number.
    """

    opened: Windows
    closed: Windows
