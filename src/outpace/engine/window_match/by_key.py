"""Windows of many keys, of which a step touches few: the state of the others lies aside.

A step touches the partitions that have events in it, or windows that close. While these are a good
part of all that have open windows, the strategy knows all of them. Else its state is laid aside by
partition; a step hands it what belongs to the partitions that it touches, as saved state, and takes
it back. So a step costs the windows that it touches, however many keys have open windows. Matches
are the same either way, as they are when a state is saved and resumed.

Memory: that of the strategy, up to twice, and two integers for each partition ever seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers, distinct, grown
from outpace.engine.event import Events
from outpace.engine.rows.rows_by_key import KeyedRows, RowsWithKeys
from outpace.engine.snapshot import Stateful
from outpace.engine.split.windows import OPEN, Split, Windows
from outpace.engine.window_match.result import WindowMatches

#: What is known is laid aside where the partitions with open windows are so many times those that a
#: step touches, and more than so many. It is brought together again when half are touched.
MANY: Final = 4
MANY_MIN: Final = 256


class Strategy(Protocol):
    """How the windows of an instance are matched."""

    @property
    def held(self) -> Events:
        """The rows that undecided matches may still need."""
        ...

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        ...

    @property
    def begun_at(self) -> int:
        """The arrival of the first event of all open windows."""
        ...

    @property
    def undecided(self) -> tuple[Integers, Integers]:
        """Partitions and ordinals: where the searches of all open windows stand."""
        ...

    def step(self, events: Events, split: Split) -> WindowMatches:
        """Take events and the windows that they open and close; return what became final."""
        ...

    def tables(self) -> list[pa.Table]:
        """Return all that is kept but the rows, by `partition`, for a saved state."""
        ...

    def restore(self, tables: list[pa.Table], held: Events) -> None:
        """Go on from what `tables` returned, and the rows."""
        ...


class WindowsByKey(Stateful):
    """Lets a strategy match the windows of the partitions that a step touches.

    Parameters
    ----------
    strategy
        How windows are matched; its state is by partition, the open windows first.
    """

    CHANGED = ("_strategy", "_open", "_begun_at", "_aside")

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._timed = False
        #: For each partition how many windows are open, and the first event of the oldest one.
        self._open = np.zeros(0, np.int64)
        self._begun_at = np.zeros(0, np.int64)
        self._partitions = 0
        self._aside: _KeyTables | None = None

    @property
    def held(self) -> Events:
        """The rows that undecided matches may still need."""
        return self._strategy.held if self._aside is None else self._whole(self._aside)[1]

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return self._strategy.open_windows if self._aside is None else len(self._aside.tables[0])

    @property
    def begun_at(self) -> int:
        """The arrival of the first event of all open windows."""
        if self._aside is None:
            return self._strategy.begun_at
        return int(self._begun_at.min(initial=OPEN))

    @property
    def undecided(self) -> tuple[Integers, Integers]:
        """Partitions and ordinals: where the searches of all open windows stand."""
        if self._aside is None:
            return self._strategy.undecided
        windows = self._aside.tables[0].take(np.flatnonzero(self._open))
        if "cursor" in windows.rows.column_names:
            return windows.key, _column(windows.rows, "cursor")
        first, decided = (_column(windows.rows, name) for name in ("first", "next_start"))
        return windows.key, first + decided

    def step(self, events: Events, split: Split) -> WindowMatches:
        """Take events and the windows that they open and close; return what became final."""
        partitions = distinct(events.partition, split.closed.partition)
        if self._aside is None and self._partitions > max(MANY_MIN, MANY * len(partitions)):
            self._lay_aside()
        elif self._aside is not None and 2 * len(partitions) >= self._partitions:
            self.restore(*self._whole(self._aside))
        self._timed = self._timed or len(events.times) > 0
        if self._aside is None:
            matches = self._strategy.step(events, split)
        else:
            matches = self._step_aside(self._aside, partitions, events, split)
        self._count(partitions, split)
        return matches

    def tables(self) -> list[pa.Table]:
        """Return all that is kept but the rows, for a saved state."""
        return self._strategy.tables() if self._aside is None else self._whole(self._aside)[0]

    def restore(self, tables: list[pa.Table], held: Events) -> None:
        """Go on from what `tables` returned, and the rows."""
        self._strategy.restore(tables, held)
        self._aside = None
        self._timed = len(held.times) > 0
        self._open = np.bincount(_column(tables[0], "partition")).astype(np.int64)
        self._partitions = int(np.count_nonzero(self._open))

    def _count(self, partitions: Integers, split: Split) -> None:
        """Count the partitions that have open windows."""
        self._open = grown(self._open, int(partitions.max(initial=-1)) + 1, 0)
        before = int(np.count_nonzero(self._open[partitions]))
        np.add.at(self._open, split.opened.partition, 1)
        np.add.at(self._open, split.closed.partition, -1)
        self._partitions += int(np.count_nonzero(self._open[partitions])) - before

    def _lay_aside(self) -> None:
        """Take from the strategy all that it knows."""
        tables, held = self._strategy.tables(), self._strategy.held
        self._aside = _KeyTables(
            KeyedRows(held.rows.schema, 3),
            [KeyedRows(_without_partition(table).schema, 0) for table in tables],
        )
        self._begun_at = np.zeros(0, np.int64)
        everywhere = np.flatnonzero(self._open)
        self._take_back(self._aside, everywhere, np.arange(len(self._open)))

    def _step_aside(
        self, aside: _KeyTables, partitions: Integers, events: Events, split: Split
    ) -> WindowMatches:
        # Partitions are numbered anew in the same order, so that nothing depends on how many.
        def here(windows: Windows) -> Windows:
            return replace(windows, partition=np.searchsorted(partitions, windows.partition))

        self._strategy.restore(*self._known(aside, partitions, np.arange(len(partitions))))
        matches = self._strategy.step(
            replace(events, partition=np.searchsorted(partitions, events.partition)),
            Split(here(split.opened), here(split.closed)),
        )
        self._take_back(aside, partitions, partitions)
        return replace(matches, partition=partitions[matches.partition])

    def _take_back(self, aside: _KeyTables, partitions: Integers, names: Integers) -> None:
        """Lay aside what the strategy knows of partitions; `names` are theirs by its numbers."""
        tables, held = self._strategy.tables(), self._strategy.held
        times = held.times if len(held.times) else np.zeros_like(held.arrival)
        numbers = np.stack([held.ordinal, held.arrival, times])
        rows = RowsWithKeys(held.rows.combine_chunks(), names[held.partition], numbers)
        aside.rows.replace(partitions, rows)
        for store, table in zip(aside.tables, tables, strict=True):
            store.replace(partitions, _by_partition(table, names))
        self._begun_at = grown(self._begun_at, int(partitions.max(initial=-1)) + 1, OPEN)
        self._begun_at[partitions] = OPEN
        partition = names[_column(tables[0], "partition")]
        np.minimum.at(self._begun_at, partition, _column(tables[0], "begun_at"))

    def _whole(self, aside: _KeyTables) -> tuple[list[pa.Table], Events]:
        """Return all that is known, by partition."""
        everywhere = np.flatnonzero(self._open)
        return self._known(aside, everywhere, everywhere)

    def _known(
        self, aside: _KeyTables, partitions: Integers, names: Integers
    ) -> tuple[list[pa.Table], Events]:
        """Return what is known of partitions, which are called by other names."""
        tables = []
        for store in aside.tables:
            kept = store.take(partitions)
            order = np.argsort(kept.key, kind="stable")
            partition = names[np.searchsorted(partitions, kept.key[order])]
            table = kept.rows.take(pa.array(order))
            tables.append(table.append_column("partition", pa.array(partition)))
        kept = aside.rows.take(partitions)
        order = np.argsort(kept.key, kind="stable")
        ordinal, arrival, times = kept.numbers[:, order]
        partition = names[np.searchsorted(partitions, kept.key[order])]
        rows = kept.rows.take(pa.array(order)).combine_chunks()
        return tables, Events(
            rows, partition, ordinal, arrival, times if self._timed else times[:0]
        )


class _KeyTables(Stateful):
    """The state, by partition: rows, and the tables of a strategy."""

    CHANGED = ("rows", "tables")

    def __init__(self, rows: KeyedRows, tables: Sequence[KeyedRows]) -> None:
        self.rows = rows
        self.tables = tables


def _by_partition(table: pa.Table, names: Integers) -> RowsWithKeys:
    partition = names[_column(table, "partition")]
    order = np.argsort(partition, kind="stable")
    rows = _without_partition(table).take(pa.array(order)).combine_chunks()
    return RowsWithKeys(rows, partition[order], np.zeros((0, len(order)), np.int64))


def _without_partition(table: pa.Table) -> pa.Table:
    return table.drop_columns(["partition"])


def _column(table: pa.Table, name: str) -> Integers:
    return np.array(table.column(name).to_numpy(), np.int64)
