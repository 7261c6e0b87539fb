"""Numbering the events of a stream: which partition, which event of it, which of all.

Partitions get numbers in the order of their first events. Numbers do not depend on how the stream
is cut into pieces. Memory: the key and a few integers for each partition ever seen. A host to whom
the numbers as such mean nothing may let partitions be forgotten: the number of one is given again,
to a partition whose events are counted on from there, and only as many are kept as live at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers, grown, rising
from outpace.engine.event import Events
from outpace.engine.kernels.grouping import count_rows
from outpace.engine.rows.key_table import KeyNumbers, KeyTable
from outpace.engine.rows.partition import RowNumbers, sort_groups
from outpace.engine.rows.permutation import RearrangedRows
from outpace.engine.rows.times import invalid_times, valid_times
from outpace.engine.snapshot import Stateful
from outpace.engine.state import NATURAL, State, integer, integers, require
from outpace.pattern.bound import BoundQuery


@dataclass(frozen=True)
class _NumberedPiece:
    """A piece of the stream: its events, their keys, and how many each has had with it."""

    size: int
    keys: KeyNumbers
    counts: Integers


class NumberTables(NamedTuple):
    """The tables of saved numbers: keys, their numbers where some are missing, and counts."""

    keys: pa.Table
    numbers: pa.Table
    counts: pa.Table

    @staticmethod
    def of(state: State) -> NumberTables:
        """Return the tables of a state."""
        return NumberTables(*state.content(3)[1])


class EventNumbers(Stateful):
    """Numbers events piece by piece, in the order of the stream.

    Parameters
    ----------
    schema
        The columns of the stream.
    partition_by
        The columns of the key; none for a stream without partitions.
    time
        The column that times are read from, or None.

    Examples
    --------
    >>> rows = pa.table({"key": ["b", "a", "b"], "ts": [1, 2, 3]})
    >>> numbers = EventNumbers(rows.schema, ("key",), "ts")
    >>> events = numbers.number(rows)
    >>> events.partition.tolist(), events.ordinal.tolist(), events.times.tolist()
    ([0, 1, 0], [0, 0, 1], [1, 2, 3])
    >>> numbers.accept()
    >>> numbers.number(rows).arrival.tolist(), numbers.partitions
    ([3, 4, 5], 2)
    """

    CHANGED = ("_counts", "_keys")

    def __init__(self, schema: pa.Schema, partition_by: Sequence[str], time: str | None) -> None:
        self._keyed = bool(partition_by)
        self._time = time
        self._arrived = 0
        #: How many events each partition has had, by its number.
        self._counts = np.zeros(16, np.int64)
        self._keys = KeyTable(pa.schema([schema.field(name) for name in partition_by]))
        self._piece = self._piece_of(schema.empty_table())

    @property
    def arrived(self) -> int:
        """How many events were taken."""
        return self._arrived

    @property
    def partitions(self) -> int:
        """How many partitions are known."""
        return len(self._keys)

    @property
    def keys(self) -> pa.Table:
        """The keys of the partitions that are known."""
        return self._keys.keys

    def number(self, rows: pa.Table | RearrangedRows) -> Events:
        """Number the next events; they count from `accept` on."""
        times = np.zeros(0, np.int64)
        if self._time is not None:
            times = valid_times(self._time, rows.column(self._time), range(rows.num_rows))
        piece = self._piece = self._piece_of(rows)
        arrival = rising(self._arrived, rows.num_rows)
        ordinal = arrival
        codes = piece.keys.codes, piece.keys.numbers
        if self._keyed:
            ordinal = np.empty(len(arrival), np.int64)
            count_rows(piece.keys.codes, piece.counts, ordinal)
        return Events.of_codes(rows, codes, ordinal, arrival, times)

    def accept(self) -> None:
        """Count the events that `number` returned last; without it they are as if never seen."""
        piece = self._piece
        self._arrived += piece.size
        self._keys.add(piece.keys)
        if self._keyed:
            self._counts = grown(self._counts, self._keys.room, 0)
            self._counts[piece.keys.numbers] = piece.counts

    def recall(self, rows: pa.Table, arrival: Integers) -> Events:
        """Number events that were taken before by their numbers among all; some may be missing.

        In its partition each counts from the last one back, so that the next one follows.
        """
        keys = self._keys.look_up(rows)
        require(not len(keys.new) or not self._keyed, "events have keys that nobody knows")
        counts = np.bincount(keys.codes, minlength=len(keys.numbers)).astype(np.int64)
        first = self.taken[keys.numbers] - counts
        require((first >= 0).all(), "there are more events than came")
        ordinal = np.empty(len(arrival), np.int64)
        count_rows(keys.codes, first, ordinal)
        times = np.zeros(0, np.int64)
        if self._time is not None:
            times = valid_times(self._time, rows.column(self._time), range(rows.num_rows))
        return Events.of_codes(rows, (keys.codes, keys.numbers), ordinal, arrival, times)

    def forget(self, partitions: Integers, *, restart: bool = False) -> None:
        """Forget partitions: should they come again, they are new, with the number of any such.

        Their events are counted on, or from 0 again.
        """
        self._keys.forget(partitions)
        if restart and self._keyed:
            self._counts[partitions] = 0

    @property
    def taken(self) -> Integers:
        """How many events of each partition were taken, by its number."""
        return self._counts[: self._keys.room] if self._keyed else np.array([self._arrived])

    @property
    def forgotten(self) -> Integers:
        """The numbers of partitions that were forgotten."""
        return self._keys.free

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        header, tables = self._keys.tables()
        if not self._keyed:
            return State({"arrived": self._arrived, **header}, NumberTables(*tables, _no_counts()))
        counts = self.taken
        if not counts[self._keys.free].any():
            # Nothing is known of partitions that were forgotten: they are given their numbers anew.
            counts = counts[self._keys.numbers]
        counted = pa.table({"count": counts})
        return State({"arrived": self._arrived, **header}, NumberTables(*tables, counted))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process."""
        header, saved = state.numbers, NumberTables.of(state)
        self._arrived = integer(header, "arrived", NATURAL)
        self._keys.restore(header, [saved.keys, saved.numbers])
        (known,) = integers(saved.counts, count=range(self._arrived + 1))
        self._counts = np.zeros(max(16, self._keys.room), np.int64)
        if self._keyed:
            # Of partitions that were forgotten there need be none.
            every = len(known) == self._keys.room
            numbers = np.arange(len(known)) if every else self._keys.numbers
            require(len(known) == len(numbers), "partitions have no keys")
            self._counts[numbers] = known

    def _piece_of(self, rows: pa.Table | RearrangedRows) -> _NumberedPiece:
        keys = self._keys.look_up(rows)
        counts = np.zeros(len(keys.numbers), np.int64)
        old = keys.numbers < self._keys.room
        counts[old] = self._counts[keys.numbers[old]]
        return _NumberedPiece(rows.num_rows, keys, counts)


def in_order(bound: BoundQuery, table: pa.Table, time: str | None = None) -> pa.Table:
    """Return a table's rows in the query's order, over all partitions, ties as they come.

    Where the column of a time is given, a row without one is refused by its number in the table:
    sorted, it would have another.
    """
    order = row_order(bound, table, time)
    return table if order is None else table.take(pa.array(order))


def row_order(bound: BoundQuery, table: pa.Table, time: str | None) -> RowNumbers | None:
    """Return the order that `in_order` brings rows into; None where they are in it."""
    rows = table.num_rows
    order = sort_groups(table, bound, None, np.array([0, rows], np.int64))
    if time is not None and rows:
        column = table.column(time)
        # Of times that rise the first and the last tell.
        rise = order is None and bound.order_by[:1] == (time,) and not column.null_count
        if not rise or invalid_times(column.take([0, rows - 1])).any():
            valid_times(time, column, range(rows))
    return order


@cache
def _no_counts() -> pa.Table:
    """Return what is said of the partitions of a stream without any."""
    return pa.schema({"count": pa.int64()}).empty_table()
