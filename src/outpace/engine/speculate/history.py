"""What an operator did within a horizon, so that it can go back and do it again with a late event.

    time       ------------------------------------------------------->
    stretches  | mark, rows, matches | mark, rows, matches | mark, rows
                                     ^ go back    * late              ^ now

A stretch begins with a mark, a snapshot of the parts as they stood, and has the rows that they took
since and the matches that came of them. To correct is to go back to the last mark that lies before
the late event, to take the rows since then once more with the event in its place, and to compare
the matches by their ids: what is no longer found is taken back, what is found now comes out.

Memory: the rows and matches within the horizon, and those of at most one stretch before it; a
stretch has at least `STRETCH_ROWS` rows and about a part in `STRETCHES` of all, so there are few
marks. The cost of a correction: that of the rows behind the mark, of which a part in `STRETCHES`
lies before the event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Booleans
from outpace.engine.rows.times import as_integers
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State, integer, require, typed
from outpace.engine.window_match.result import WindowMatches
from outpace.pattern.bound import DIFF

#: A stretch has at least so many rows, and there are about so many of them.
STRETCH_ROWS: Final = 4096
STRETCHES: Final = 16

Mark = TypeVar("Mark")


class Stretch(Stateful, Generic[Mark]):
    """A mark, and what happened from there to the next.

    Parameters
    ----------
    mark
        The parts as they stood; nobody changes them.
    bound
        All that they had taken lies before this time, and no time behind it had been told.
    """

    CHANGED = ("rows", "matches")

    def __init__(self, mark: Mark, bound: int) -> None:
        self.mark, self.bound = mark, bound
        self.rows: list[pa.Table] = []
        self.matches: list[WindowMatches] = []
        self.size = 0


class OperatorHistory(Stateful, Generic[Mark]):
    """What was taken and given within a horizon.

    Parameters
    ----------
    rows, output
        The columns of events, and of matches.
    time
        The column of event time.
    horizon
        How far behind the watermark an event may lie, in units of time.
    """

    CHANGED = ("_stretches",)

    def __init__(self, rows: pa.Schema, output: pa.Schema, time: str, horizon: int) -> None:
        self._rows, self._output = rows, output
        self._time, self._horizon = time, horizon
        self._stretches: list[Stretch[Mark]] = []
        #: All that was taken lies before this time.
        self._bound = int(NO_TIME)

    def __len__(self) -> int:
        return sum(stretch.size for stretch in self._stretches)

    @property
    def begun(self) -> bool:
        """Whether there is a mark."""
        return bool(self._stretches)

    @property
    def wants_mark(self) -> bool:
        """Whether the next rows should begin a stretch."""
        return not self._stretches or self._stretches[-1].size >= self.stretch_rows

    @property
    def stretch_rows(self) -> int:
        """How many rows a stretch should have."""
        return max(STRETCH_ROWS, len(self) // STRETCHES)

    def mark(self, mark: Mark) -> None:
        """Begin a stretch: the parts stand so now."""
        self._stretches.append(Stretch(mark, self._bound))

    def take(self, rows: pa.Table, watermark: int) -> None:
        """Note rows that were taken, in their order, and how far time had come then."""
        stretch = self._stretches[-1]
        if rows.num_rows:
            stretch.rows.append(rows)
            stretch.size += rows.num_rows
            last = as_integers(rows.column(self._time).slice(rows.num_rows - 1))
            self._bound = max(self._bound, int(last[0]) + 1)
        self._bound = max(self._bound, int(watermark))

    def give(self, matches: WindowMatches) -> None:
        """Note matches that came out."""
        if len(matches):
            self._stretches[-1].matches.append(matches)

    def go_back(self, late: pa.Table) -> tuple[Mark, pa.Table, WindowMatches]:
        """Forget what happened since the last mark before some rows; return the mark and that."""
        time = as_integers(late.column(self._time)).min()
        place = max(
            n for n, stretch in enumerate(self._stretches) if n == 0 or stretch.bound <= time
        )
        since, self._stretches = self._stretches[place:], self._stretches[:place]
        self._bound = since[0].bound
        rows = pa.concat_tables(
            [self._rows.empty_table(), *(one for stretch in since for one in stretch.rows)]
        )
        given = [one for stretch in since for one in stretch.matches]
        return since[0].mark, rows, WindowMatches.joined(self._output, given)

    def forget(self, watermark: int) -> None:
        """Forget what no event within the horizon can change."""
        border = watermark - self._horizon
        behind = sum(stretch.bound <= border for stretch in self._stretches[1:])
        if behind and watermark != NO_TIME:
            self._stretches = self._stretches[behind:]

    @property
    def base(self) -> Mark:
        """The parts as they stood at the first mark."""
        return self._stretches[0].mark

    def state(self) -> State:
        """Return all that is kept but the marks, for `restore`."""
        rows = [
            self._rows.empty_table(),
            *(one for stretch in self._stretches for one in stretch.rows),
        ]
        given = [one for stretch in self._stretches for one in stretch.matches]
        matches = WindowMatches.joined(self._output, given)
        numbers = {"bound": self._bound, "first": self._stretches[0].bound}
        tables = [pa.concat_tables(rows), pa.table(matches.numbers), matches.table]
        return State(numbers, [table.combine_chunks() for table in tables])

    def restore(self, state: State, base: Mark) -> None:
        """Go on from what `state` returned, and the parts as they stood at the first mark."""
        header, (rows, numbers, matches) = state.content(3)
        stretch = Stretch(base, integer(header, "first"))
        self._bound = integer(header, "bound")
        rows = typed(rows, self._rows)
        require(not rows.column(self._time).null_count, "an event has no time")
        stretch.rows, stretch.size = [rows], rows.num_rows
        stretch.matches = [WindowMatches.of_saved(numbers, typed(matches, self._output))]
        self._stretches = [stretch]


def changes(before: WindowMatches, after: WindowMatches) -> WindowMatches:
    """Return what turns matches that came out into those that should have, in the order of both.

    A match of which something is shown that has changed is taken back and comes again.
    """
    known: dict[bytes, list[int]] = defaultdict(list)
    for place, one in enumerate(before.ids.array.to_pylist()):
        known[one].append(place)
    pairs = [
        (known[one].pop(0), place)
        for place, one in enumerate(after.ids.array.to_pylist())
        if known.get(one)
    ]
    old, new = np.array(pairs, np.int64).reshape(-1, 2).T
    same = _are_same(before.take(old), after.take(new))
    gone, come = np.ones(len(before), np.bool_), np.ones(len(after), np.bool_)
    gone[old[same]] = come[new[same]] = False
    taken_back = _taken_back(before.take(np.flatnonzero(gone)))
    return WindowMatches.joined(after.table.schema, [taken_back, after.take(np.flatnonzero(come))])


def _taken_back(matches: WindowMatches) -> WindowMatches:
    """Return matches that are wrong now."""
    table = matches.table
    place = table.column_names.index(DIFF)
    diff = pa.array(np.full(table.num_rows, -1, np.int64))
    return replace(matches, table=table.set_column(place, table.schema.field(place), diff), diff=-1)


def _are_same(old: WindowMatches, new: WindowMatches) -> Booleans:
    """Say which matches show the same rows."""
    sizes = np.diff(old.offsets)
    same: Booleans = sizes == np.diff(new.offsets)
    if old.table.equals(new.table):
        return same
    chosen = np.flatnonzero(same)
    old, new = old.take(chosen), new.take(chosen)
    rows = np.ones(old.table.num_rows, np.bool_)
    for one, other in zip(old.table.columns, new.table.columns, strict=True):
        rows &= _equal(one.combine_chunks(), other.combine_chunks())
    wrong = np.repeat(np.arange(len(chosen)), sizes[chosen])[~rows]
    same[chosen[wrong]] = False
    return same


def _equal(one: pa.Array, other: pa.Array) -> Booleans:
    """Say where two columns have the same values; NULL is NULL, and NaN is NaN."""
    if one.equals(other):
        return np.ones(len(one), np.bool_)
    if pa.types.is_nested(one.type) or pa.types.is_floating(one.type):
        pairs: Sequence[Any] = list(zip(one.to_pylist(), other.to_pylist(), strict=True))
        return np.array([repr(left) == repr(right) for left, right in pairs], np.bool_)
    values = pc.fill_null(pc.equal(one, other), False)
    either = pc.or_(values, pc.and_(pc.is_null(one), pc.is_null(other)))
    return np.asarray(either.to_numpy(zero_copy_only=False), np.bool_)
