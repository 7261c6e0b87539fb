"""The rows that are kept of many keys, of which a step reads and replaces those of a few.

Rows lie in runs. A step takes the rows of the keys that it touches and puts back the rest of them
as a new run, in which each key's rows lie together; the rows that it took are dead where they lay.
Runs are joined so that each is at most half as large as the one before, and a run is written again
when more than half of it is dead. So a step costs the rows that it takes and puts back, times the
logarithm of all rows over time, and at most half of the memory is dead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers, grown
from outpace.engine.rows.partition import gather
from outpace.engine.snapshot import Stateful

_NONE: Final = -1


@dataclass(frozen=True)
class RowsWithKeys:
    """Rows with their keys.

    Parameters
    ----------
    rows
        The rows; those of a key are in order, and lie together.
    key
        Each row's key.
    numbers
        What else is known of each row: lines of integers.
    """

    rows: pa.Table
    key: Integers
    numbers: Integers

    def __len__(self) -> int:
        return len(self.key)


@dataclass
class _RowRun(Stateful):
    kept: RowsWithKeys
    live: int


class KeyedRows(Stateful):
    """Rows by key; keys are small integers.

    Parameters
    ----------
    schema
        The columns.
    lines
        How many integers go with each row.

    Examples
    --------
    >>> rows = KeyedRows(pa.schema({"x": pa.int64()}), 1)
    >>> two = RowsWithKeys(pa.table({"x": [1, 2]}), np.array([0, 5]), np.array([[10, 20]]))
    >>> rows.replace(np.array([0, 5]), two)
    >>> one = RowsWithKeys(pa.table({"x": [3]}), np.array([0]), np.array([[30]]))
    >>> rows.replace(np.array([0]), one)
    >>> len(rows), rows.take(np.array([0, 1])).rows.column("x").to_pylist()
    (2, [3])
    """

    CHANGED = ("_runs", "_run", "_first", "_size")

    def __init__(self, schema: pa.Schema, lines: int) -> None:
        nothing = np.zeros(0, np.int64)
        self._nothing = RowsWithKeys(schema.empty_table(), nothing, np.zeros((lines, 0), np.int64))
        self._runs: list[_RowRun] = []
        #: For each key the run that its rows lie in, the first of them there, and how many.
        self._run, self._first, self._size = nothing, nothing, nothing

    def __len__(self) -> int:
        return sum(run.live for run in self._runs)

    @property
    def keys(self) -> Integers:
        """The keys that have rows."""
        return np.flatnonzero(self._size)

    def take(self, keys: Integers) -> RowsWithKeys:
        """Return the rows of different keys, by key in no special order; they stay."""
        known = keys[keys < len(self._size)]
        known = known[self._size[known] > 0]
        if not len(known):
            return self._nothing
        run = self._run[known]
        places = np.flatnonzero(np.bincount(run)).tolist()
        parts = [self._take_from(place, known[run == place]) for place in places]
        return parts[0] if len(parts) == 1 else _joined(parts)

    def replace(self, keys: Integers, kept: RowsWithKeys) -> None:
        """Drop the rows of some keys and keep others of them instead."""
        highest = int(keys.max(initial=-1)) + 1
        self._run = grown(self._run, highest, _NONE)
        self._first = grown(self._first, highest, 0)
        self._size = grown(self._size, highest, 0)
        self._drop(keys)
        if len(kept):
            self._append(kept)

    def _drop(self, keys: Integers) -> None:
        held = keys[self._size[keys] > 0]
        if not len(held):
            return
        dropped = np.zeros(len(self._runs), np.int64)
        np.add.at(dropped, self._run[held], self._size[held])
        self._size[held] = 0
        for place in np.flatnonzero(dropped).tolist():
            run = self._runs[place]
            run.live -= int(dropped[place])
            if not run.live:
                run.kept = self._nothing
            elif 2 * run.live < len(run.kept):
                self._write(place, self._live_of(place))

    def _append(self, kept: RowsWithKeys) -> None:
        """Add a run, together with all before it that are not twice as large."""
        self._runs.append(_RowRun(self._nothing, 0))
        self._write(len(self._runs) - 1, kept)
        joining = len(self._runs) - 1
        live = len(kept)
        while joining and self._runs[joining - 1].live <= 2 * live:
            joining -= 1
            live += self._runs[joining].live
        if joining < len(self._runs) - 1:
            live_runs = [n for n in range(joining, len(self._runs)) if self._runs[n].live]
            parts = [self._live_of(place) for place in live_runs]
            del self._runs[joining + 1 :]
            self._write(joining, parts[0] if len(parts) == 1 else _joined(parts))

    def _write(self, place: int, kept: RowsWithKeys) -> None:
        """Let a run be some rows, and note where those of each key are."""
        self._runs[place] = _RowRun(kept, len(kept))
        first = _first_rows(kept.key)
        keys = kept.key[first]
        self._run[keys] = place
        self._first[keys] = first
        self._size[keys] = np.append(first[1:], len(kept)) - first

    def _live_of(self, place: int) -> RowsWithKeys:
        run = self._runs[place]
        if run.live == len(run.kept):
            return run.kept
        keys = run.kept.key[_first_rows(run.kept.key)]
        return self._take_from(place, keys[(self._size[keys] > 0) & (self._run[keys] == place)])

    def _take_from(self, place: int, keys: Integers) -> RowsWithKeys:
        if not len(keys):
            return self._nothing
        kept, sizes = self._runs[place].kept, self._size[keys]
        ends = np.cumsum(sizes)
        if ends[-1] == len(kept):
            return kept
        rows = np.repeat(self._first[keys] - ends + sizes, sizes) + np.arange(ends[-1])
        columns = [gather(column, rows) for column in kept.rows.columns]
        chosen = pa.table(columns, schema=kept.rows.schema)
        return RowsWithKeys(chosen, kept.key[rows], kept.numbers[:, rows])


def _first_rows(key: Integers) -> Integers:
    """Return the first row of each key; those of a key lie together."""
    first = np.empty(len(key), np.bool_)
    first[:1] = True
    np.not_equal(key[1:], key[:-1], out=first[1:])
    return np.flatnonzero(first)


def _joined(parts: list[RowsWithKeys]) -> RowsWithKeys:
    return RowsWithKeys(
        pa.concat_tables([part.rows for part in parts]).combine_chunks(),
        np.concatenate([part.key for part in parts]),
        np.concatenate([part.numbers for part in parts], axis=1),
    )
