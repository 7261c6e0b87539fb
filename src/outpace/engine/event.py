"""Events in their order, with their numbers: what windows are made of.

An event has a number in the order of all, which one that comes in before it would shift, and an id,
which nothing shifts: its source, and its number among the events of that source as they arrived.
Where there is one source and its events come in order, the two are the same, and no id is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.rows.partition import gather, key_codes
from outpace.engine.rows.permutation import RearrangedRows

#: The column of event ids, and how many bits of one the number in its source has.
EVENT_ID: Final = pa.field("__outpace_id", pa.int64())
SEQUENCE_BITS: Final = 48

#: Each event's place among partitions, and the numbers of these.
Codes = tuple[npt.NDArray[np.int32], Integers]


@dataclass(frozen=True)
class Events:
    """The next events of a stream, in its order; arrays of one length.

    Parameters
    ----------
    rows
        The columns that travel.
    partition
        The number of each event's partition.
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
    _codes: Codes | None = field(default=None, init=False, repr=False, compare=False)
    #: Whether all are of partition 0, as those without keys are.
    _alone: bool = field(default=False, init=False, repr=False, compare=False)
    _content: RearrangedRows | None = field(default=None, init=False, repr=False, compare=False)

    @staticmethod
    def of_codes(
        rows: pa.Table | RearrangedRows,
        codes: Codes,
        ordinal: Integers,
        arrival: Integers,
        times: Integers,
    ) -> Events:
        """Return events whose partitions are known by codes; numbers are made when asked for.

        So are rows in their order, where they are not in it yet.
        """
        numbers = codes[1]
        alone = len(numbers) == 1 and not numbers[0]
        events = Events._without_partition(rows, ordinal, arrival, times, alone=alone)
        object.__setattr__(events, "_codes", codes)
        if isinstance(rows, RearrangedRows):
            del vars(events)["rows"]
            object.__setattr__(events, "_content", rows)
        return events

    @staticmethod
    def _without_partition(
        rows: pa.Table | RearrangedRows,
        ordinal: Integers,
        arrival: Integers,
        times: Integers,
        *,
        alone: bool = True,
    ) -> Events:
        """Return events whose partitions are made when they are asked for."""
        events = Events(rows, ordinal[:0], ordinal, arrival, times)
        del vars(events)["partition"]
        object.__setattr__(events, "_alone", alone)
        return events

    def __getattr__(self, name: str) -> Any:
        """Make rows, or the numbers of partitions, when they are asked for first."""
        if name == "rows" and self._content is not None:
            object.__setattr__(self, "rows", self._content.table())
            return self.rows
        if name == "partition" and self._alone:
            # Memory that nobody has written to is full of zeros already.
            partition = np.zeros(len(self.ordinal), np.int64)
        elif name == "partition" and self._codes is not None:
            codes, numbers = self._codes
            partition = numbers[codes]
        else:
            raise AttributeError(name)
        object.__setattr__(self, "partition", partition)
        return partition

    @property
    def owner(self) -> int | None:
        """The partition of all events, which are sorted by it; None where there are several."""
        if self._alone:
            return 0
        partition = self.partition
        alike = len(partition) and partition[0] == partition[-1]
        return int(partition[0]) if alike else None

    def showing(self, rows: pa.Table, times: Integers) -> Events:
        """Return the events with other columns, or other times."""
        if self._alone:
            return Events._without_partition(rows, self.ordinal, self.arrival, times)
        return Events(rows, self.partition, self.ordinal, self.arrival, times)

    @property
    def codes(self) -> Codes:
        """Each event's place among the partitions that there are, and the numbers of these."""
        if self._codes is not None:
            return self._codes
        codes, firsts = key_codes([pa.chunked_array([pa.array(self.partition)])])
        return codes, self.partition[firsts]

    def slice(self, low: int, high: int) -> Events:
        """Return the events from `low` up to `high`, which are not copied.

        Examples
        --------
        >>> numbers = np.arange(6)
        >>> events = Events(pa.table({"x": numbers}), numbers * 0, numbers, numbers, numbers[:0])
        >>> events.slice(1, 3).and_next(events.slice(3, 5)).ordinal.tolist()
        [1, 2, 3, 4]
        """
        rows, ordinal = self.rows.slice(low, high - low), self.ordinal[low:high]
        arrival = ordinal if self.arrival is self.ordinal else self.arrival[low:high]
        numbers = ordinal, arrival, self.times[low:high]
        if self._alone:
            part = Events._without_partition(rows, *numbers)
        else:
            part = Events(rows, self.partition[low:high], *numbers)
        whole, begin = (self, 0) if self._whole is None else self._whole
        object.__setattr__(part, "_whole", (whole, begin + low))
        return part

    def and_next(self, events: Events) -> Events:
        """Return these events and others behind them; slices that lie so are not copied."""
        if self._whole is not None and events._whole is not None:
            (whole, begin), (other, following) = self._whole, events._whole
            if whole is other and begin + len(self.arrival) == following:
                return whole.slice(begin, following + len(events.arrival))
        rows = pa.concat_tables([self.rows, events.rows])
        arrival = ordinal = np.concatenate([self.arrival, events.arrival])
        if self.ordinal is not self.arrival or events.ordinal is not events.arrival:
            ordinal = np.concatenate([self.ordinal, events.ordinal])
        times = np.concatenate([self.times, events.times])
        if self._alone and events._alone:
            return Events._without_partition(rows, ordinal, arrival, times)
        partition = np.concatenate([self.partition, events.partition])
        return Events(rows, partition, ordinal, arrival, times)


def event_ids(columns: Mapping[str, pa.Array], arrival: Integers) -> Integers:
    """Return the ids of events, by their columns and their arrival numbers."""
    ids = columns.get(EVENT_ID.name)
    # Row numbers of a table may have half the width.
    return arrival.astype(np.int64, copy=False) if ids is None else ids.to_numpy()


def no_events(schema: pa.Schema) -> Events:
    """Return events that are none."""
    return Events(schema.empty_table(), *[np.zeros(0, np.int64)] * 4)


def select(events: Events, rows: Integers) -> Events:
    """Return some events, in the order given."""
    columns = [gather(column, rows) for column in events.rows.columns]
    return Events(
        pa.table(columns, schema=events.rows.schema),
        events.partition[rows],
        events.ordinal[rows],
        events.arrival[rows],
        events.times[rows] if len(events.times) else events.times,
    )


def chosen(events: Events, ranges: Integers) -> Events:
    """Return the events in ranges of rows; one range alone is not copied."""
    if len(ranges) == 1:
        low, high = ranges[0].tolist()
        return Events(
            events.rows.slice(low, high - low),
            events.partition[low:high],
            events.ordinal[low:high],
            events.arrival[low:high],
            events.times[low:high],
        )
    sizes = ranges[:, 1] - ranges[:, 0]
    before = np.cumsum(sizes) - sizes
    return select(events, np.repeat(ranges[:, 0] - before, sizes) + np.arange(sizes.sum()))
