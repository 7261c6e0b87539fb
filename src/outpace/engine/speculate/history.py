"""What an operator did within a horizon, so that it can go back and do it again with a late event.

    time       ------------------------------------------------------->
    stretches  | mark, rows, matches | mark, rows, matches | mark, rows
                                     ^ go back    * late              ^ now

A stretch begins with a mark, a snapshot of the parts as they stood, and has the rows that they took
since and the matches that came of them. To correct is to go back to the last mark that lies before
the late event, to take the rows since then once more with the event in its place, and to compare
the matches by their ids: what is no longer found is taken back, what is found now comes out. A
match is certain once nothing can come any more before the time that had passed when it was found.

Memory: the rows and matches within the horizon, and those of at most one stretch before it; a
stretch has at least `STRETCH_ROWS` rows and about a part in `STRETCHES` of all, so there are few
marks. The cost of a correction: that of the rows behind the mark, of which a part in `STRETCHES`
lies before the event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Booleans, Integers
from outpace.engine.rows.times import as_integers
from outpace.engine.snapshot import Stateful
from outpace.engine.state import ANY, State, integer, integers, require, typed
from outpace.engine.window_match.result import COMPLETING, WindowMatches
from outpace.pattern.bound import CONFIRMED, DIFF

#: A stretch has at least so many rows, and there are about so many of them.
STRETCH_ROWS: Final = 4096
STRETCHES: Final = 16

Mark = TypeVar("Mark")


@dataclass(frozen=True)
class GivenMatches:
    """Matches that came out.

    Parameters
    ----------
    matches
        The matches.
    found
        For each, the time before which all that it depends on lies.
    certain
        For each, whether it was said that nothing takes it back any more.
    """

    matches: WindowMatches
    found: Integers
    certain: Booleans

    def __len__(self) -> int:
        return len(self.found)

    @staticmethod
    def joined(output: pa.Schema, parts: Sequence[GivenMatches]) -> GivenMatches:
        """Return the matches of all parts, one part after the other."""
        return GivenMatches(
            WindowMatches.joined(output, [part.matches for part in parts]),
            np.concatenate([np.zeros(0, np.int64), *(part.found for part in parts)]),
            np.concatenate([np.zeros(0, np.bool_), *(part.certain for part in parts)]),
        )


class Stretch(Stateful, Generic[Mark]):
    """A mark, and what happened from there to the next.

    Parameters
    ----------
    mark
        The parts as they stood; nobody changes them.
    bound
        All that they had taken lies before this time, and no time behind it had been told.
    """

    CHANGED = ("rows", "given")

    def __init__(self, mark: Mark, bound: int) -> None:
        self.mark, self.bound = mark, bound
        self.rows: list[pa.Table] = []
        self.given: list[GivenMatches] = []
        self.size = 0


class OperatorHistory(Stateful, Generic[Mark]):
    """What was taken and given within a horizon.

    Parameters
    ----------
    rows, output
        The columns of events, and of matches.
    time
        The column of event time.
    """

    CHANGED = ("_stretches",)

    def __init__(self, rows: pa.Schema, output: pa.Schema, time: str) -> None:
        self._rows, self._output, self._time = rows, output, time
        self._stretches: list[Stretch[Mark]] = []
        #: All that was taken lies before this time.
        self._bound = int(NO_TIME)
        #: How many events had arrived, and the times of the last of them.
        self._nothing = np.zeros(0, np.int64)
        #: The stretch, and in it the first part, of which not all is known to be certain.
        self._unsure = (0, 0)
        self._last: tuple[int, Integers] = 0, self._nothing

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

    def take(self, rows: pa.Table, watermark: int, arrived: int) -> None:
        """Note rows that were taken, in their order, how far time had come then, and their number.

        With them so many had arrived.
        """
        stretch = self._stretches[-1]
        self._last = arrived, self._nothing
        if rows.num_rows:
            stretch.rows.append(rows)
            stretch.size += rows.num_rows
            times = as_integers(rows.column(self._time))
            self._bound = max(self._bound, int(times[-1]) + 1)
            self._last = arrived, times
        self._bound = max(self._bound, int(watermark))

    def give(self, matches: WindowMatches, certain: int) -> GivenMatches:
        """Note matches that came out, and return them; nothing that comes lies before a time."""
        found = np.full(len(matches), self._bound)
        arrived, times = self._last
        if len(matches) and len(times):
            # What an event completed is found with it, and not only with all of its block.
            place = matches.event - (arrived - len(times))
            own = (matches.phase == COMPLETING) & (place >= 0) & (place < len(times))
            found[own] = times[place[own]] + 1
        given = GivenMatches(matches, found, found <= certain)
        if len(matches):
            self._stretches[-1].given.append(given)
        return given

    def make_certain(self, time: int) -> WindowMatches:
        """Return the matches that are certain and were not said to be: nothing lies before a time.

        They are said to be now.
        """
        sure = []
        number, place = self._unsure
        while number < len(self._stretches):
            parts = self._stretches[number].given
            if place == len(parts):
                if number + 1 == len(self._stretches):
                    break
                number, place = number + 1, 0
                continue
            given = parts[place]
            fresh = (given.found <= time) & ~given.certain
            if fresh.any():
                sure.append(given.matches.take(np.flatnonzero(fresh)))
                given = parts[place] = replace(given, certain=given.certain | fresh)
            if not given.certain.all():
                break  # What was found later depends on later times.
            place += 1
        self._unsure = number, place
        return WindowMatches.joined(self._output, sure)

    def go_back(self, late: pa.Table) -> tuple[Mark, pa.Table, GivenMatches]:
        """Forget what happened since the last mark before some rows; return the mark and that."""
        time = as_integers(late.column(self._time)).min()
        place = max(
            n for n, stretch in enumerate(self._stretches) if n == 0 or stretch.bound <= time
        )
        since, self._stretches = self._stretches[place:], self._stretches[:place]
        self._unsure = min(self._unsure, (place, 0))
        self._bound = since[0].bound
        rows = pa.concat_tables(
            [self._rows.empty_table(), *(one for stretch in since for one in stretch.rows)]
        )
        given = [one for stretch in since for one in stretch.given]
        return since[0].mark, rows, GivenMatches.joined(self._output, given)

    def change(self, before: GivenMatches, after: Sequence[GivenMatches]) -> Changes:
        """Compare what came out with what should have and was noted; what was certain stays so."""
        change = changes(before, GivenMatches.joined(self._output, after))
        begin = 0
        kept = {id(one): one for one in after}
        for stretch in self._stretches:
            for place, given in enumerate(stretch.given):
                if id(given) in kept:
                    certain = change.kept[begin : begin + len(given)]
                    stretch.given[place] = replace(given, certain=given.certain | certain)
                    begin += len(given)
        return change

    def forget(self, certain: int) -> None:
        """Forget what nothing that comes from a time on can change."""
        behind = sum(stretch.bound <= certain for stretch in self._stretches[1:])
        if behind and certain != NO_TIME:
            self._stretches = self._stretches[behind:]
            number, place = self._unsure
            self._unsure = (number - behind, place) if number >= behind else (0, 0)

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
        given = GivenMatches.joined(
            self._output, [one for stretch in self._stretches for one in stretch.given]
        )
        numbers = {"bound": self._bound, "first": self._stretches[0].bound}
        sure = pa.table({"found": given.found, "certain": given.certain.astype(np.int64)})
        matches = given.matches
        tables = [pa.concat_tables(rows), pa.table(matches.numbers), matches.table, sure]
        return State(numbers, [table.combine_chunks() for table in tables])

    def restore(self, state: State, base: Mark) -> None:
        """Go on from what `state` returned, and the parts as they stood at the first mark."""
        header, (rows, numbers, table, sure) = state.content(4)
        stretch = Stretch(base, integer(header, "first"))
        self._bound = integer(header, "bound")
        rows = typed(rows, self._rows)
        require(not rows.column(self._time).null_count, "an event has no time")
        stretch.rows, stretch.size = [rows], rows.num_rows
        matches = WindowMatches.of_saved(numbers, typed(table, self._output))
        found, certain = integers(sure, found=ANY, certain=range(2))
        require(len(found) == len(matches), "matches are missing")
        stretch.given = [GivenMatches(matches, found, certain.astype(np.bool_))]
        self._stretches = [stretch]


@dataclass(frozen=True)
class Changes:
    """What turns matches that came out into those that should have.

    Parameters
    ----------
    gone, come
        The matches that are wrong now, and those that are new; one of which something is shown
        that has changed is both.
    certain
        Which of the new ones are certain.
    confirmed
        Those that were there before, and are certain now.
    kept
        Which of all that should have come out were there before, and were certain.
    """

    gone: WindowMatches
    come: WindowMatches
    certain: Booleans
    confirmed: WindowMatches
    kept: Booleans


def changes(given: GivenMatches, should: GivenMatches) -> Changes:
    """Compare matches that came out with those that should have, by their ids."""
    before, after = given.matches, should.matches
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
    kept = np.zeros(len(after), np.bool_)
    kept[new[same]] = given.certain[old[same]]
    fresh = np.flatnonzero(come)
    return Changes(
        before.take(np.flatnonzero(gone)),
        after.take(fresh),
        should.certain[fresh],
        after.take(np.flatnonzero(should.certain & ~come & ~kept)),
        kept,
    )


def said(matches: WindowMatches, diff: int, certain: Booleans | None = None) -> WindowMatches:
    """Return matches with what is said of them in their columns: that they come, go or stay.

    And which of them are certain, by default all.
    """
    table = matches.table
    place = table.schema.get_field_index(DIFF)
    table = table.set_column(
        place, table.schema.field(place), pa.repeat(pa.scalar(diff), table.num_rows)
    )
    if (place := table.schema.get_field_index(CONFIRMED)) >= 0:
        flags = np.ones(len(matches), np.bool_) if certain is None else certain
        column = pa.array(np.repeat(flags, np.diff(matches.offsets)))
        table = table.set_column(place, table.schema.field(place), column)
    return matches.shown_as(table, diff)


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
