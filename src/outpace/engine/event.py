"""Events in their order, with their numbers: what windows are made of."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers


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


def no_events(schema: pa.Schema) -> Events:
    """Return events that are none."""
    return Events(schema.empty_table(), *[np.zeros(0, np.int64)] * 4)
