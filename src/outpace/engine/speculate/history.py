"""The matches that came out within a horizon, to find those that a late event changes.

    marks      | matches             | matches             | matches
                                     ^ go back    * late              ^ now

Matches are kept by the mark behind which they came out. When the operator goes back to a mark (see
`stretches`), the matches that came out since are compared with those that are found once more, by
their ids: a match that is no longer found is taken back, a new one comes out. A match is certain
once nothing can come any more before the time that had passed when it was found.

Memory: the matches within the horizon, and those of at most one stretch before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Booleans, Integers, repeated
from outpace.engine.kernels.grouping import is_ascending
from outpace.engine.kernels.pairs import paired_ids
from outpace.engine.rows.partition import gather
from outpace.engine.snapshot import Stateful
from outpace.engine.state import ANY, NATURAL, State, integer, integers, require, typed
from outpace.engine.window_match.result import (
    MatchSayings,
    WindowMatches,
    numbers_of_rows,
    with_changed_rows,
)
from outpace.errors import StateError
from outpace.pattern.bound import CONFIRMED, DIFF, MATCH

Mark = TypeVar("Mark")


@dataclass(frozen=True)
class ShownColumns:
    """The columns in which matches come out, with what is said of them.

    Parameters
    ----------
    found
        The columns of matches as they are found, without what is said of them.
    output
        Those that come out.
    one_row
        Whether each match is one row, which is faster.
    confirms
        Whether it is said of all that become certain.
    """

    found: pa.Schema
    output: pa.Schema
    one_row: bool = False
    confirms: bool = True

    @cached_property
    def places(self) -> list[int]:
        """Where each column is among those found, the id, `diff` and `confirmed` behind them."""
        names = [*self.found.names, MATCH, DIFF, CONFIRMED]
        return [names.index(name) for name in self.output.names]

    @cached_property
    def identifies(self) -> bool:
        """Whether ids are shown."""
        return MATCH in self.output.names and MATCH not in self.found.names

    @cached_property
    def adds(self) -> bool:
        """Whether anything is shown beside what is found."""
        return not self.output.equals(self.found)


@dataclass(frozen=True)
class GivenMatches:
    """Matches that came out.

    Parameters
    ----------
    shown
        How they come out.
    matches
        The matches, of which is known when they were found.
    known
        For each, whether it was said that nothing takes it back any more when it was there before;
        None where none was. The others are certain when time has come so far.
    """

    shown: ShownColumns
    matches: WindowMatches
    known: Booleans | None = None

    def __len__(self) -> int:
        return len(self.matches)

    @property
    def found(self) -> Integers:
        """For each, the time before which all that it depends on lies."""
        if (found := self.matches.found) is None:
            assert not len(self)
            return np.zeros(0, np.int64)
        return found

    @cached_property
    def is_rising(self) -> bool:
        """Whether the matches become certain one after the other."""
        return self.known is None and is_ascending(self.found)

    def rows(self, diff: int, certain: Booleans | bool) -> pa.Table:
        """Return their rows with what is said of them."""
        if not isinstance(certain, bool):
            one_row = self.shown.one_row
            sure = certain if one_row else np.repeat(certain, np.diff(self.matches.offsets))
            return self._with(diff, pa.array(sure))
        if (known := self._made.get((diff, certain))) is None:
            sure = repeated(certain, self.matches.table.num_rows)
            known = self._made[diff, certain] = self._with(diff, sure)
        return known

    @cached_property
    def _made(self) -> dict[tuple[int, bool], pa.Table]:
        """Their rows where the same is said of all."""
        return {}

    def _with(self, diff: int, sure: pa.Array) -> pa.Table:
        shown = self.shown
        if not shown.adds:
            return self.matches.table
        columns = [*self._columns, repeated(diff, len(sure)), sure]
        return pa.Table.from_arrays([columns[n] for n in shown.places], schema=shown.output)

    @cached_property
    def _columns(self) -> list[pa.ChunkedArray | pa.Array | None]:
        """The columns of their rows, and behind them their ids where these are shown."""
        matches, ids = self.matches, None
        if self.shown.identifies:
            ids = matches.ids.texts
            if not self.shown.one_row:
                sizes = np.diff(matches.offsets)
                ids = ids.take(pa.array(np.repeat(np.arange(len(sizes)), sizes)))
        return [*matches.table.columns, ids]

    def certain(self, time: int) -> Booleans:
        """Return for each whether it is said that nothing takes it back: so far time has come."""
        certain = self.found <= time
        return certain if self.known is None else certain | self.known

    @staticmethod
    def joined(shown: ShownColumns, parts: Sequence[GivenMatches], time: int) -> GivenMatches:
        """Return the matches of all parts, one part after the other; so far time has come."""
        return GivenMatches(
            shown,
            WindowMatches.joined(shown.found, [part.matches for part in parts]),
            np.concatenate([np.zeros(0, np.bool_), *(part.certain(time) for part in parts)]),
        )


class Saying:
    """Matches of which the same is said.

    Parameters
    ----------
    given
        Matches that came out, these among them.
    diff
        1 where they are new, -1 where they are taken back, 0 where they stay.
    certain
        For each, whether nothing takes it back any more, or for all.
    begin, end
        These are those from one on up to another; all by default.
    """

    def __init__(
        self,
        given: GivenMatches,
        diff: int,
        certain: Booleans | bool,
        begin: int = 0,
        end: int | None = None,
    ) -> None:
        self._given, self.diff, self.certain = given, diff, certain
        self._begin, self._end = begin, len(given) if end is None else end
        self._is_all = len(self) == len(given)

    def __len__(self) -> int:
        return self._end - self._begin

    @cached_property
    def matches(self) -> WindowMatches:
        """The matches."""
        matches = self._given.matches
        return matches if self._is_all else matches.part(self._begin, self._end)

    @property
    def sure(self) -> Saying:
        """What is said of those that nothing takes back any more."""
        if isinstance(self.certain, bool):
            return self if self.certain else Saying(self._given, self.diff, False, 0, 0)
        sure = self._given.matches.take(np.flatnonzero(self.certain))
        return Saying(GivenMatches(self._given.shown, sure), self.diff, True)

    @property
    def is_turned(self) -> bool:
        """Whether something else stands for the numbers of windows."""
        return self._given.matches.turn is not None

    def counts(self, now: int) -> Iterator[tuple[bool, int, int]]:
        """Yield of those that are certain, and of others, how many have a row, and their wait.

        That is how far a time is behind what decided them, added up.
        """
        found, certain = self._given.found[self._begin : self._end], self.certain
        if not self._given.shown.one_row:
            there = np.flatnonzero(np.diff(self.matches.offsets))
            found = found[there]
            certain = certain if isinstance(certain, bool) else certain[there]
        if isinstance(certain, bool):
            yield certain, len(found), _waited(found, now, is_rising=self._given.is_rising)
            return
        for chosen, value in ((found[certain], True), (found[~certain], False)):
            yield value, len(chosen), _waited(chosen, now, is_rising=False)

    @property
    def rows(self) -> pa.Table:
        """The rows of the matches, with what is said of them."""
        rows = self._given.rows(self.diff, self.certain)
        if self._is_all:
            return rows
        # No copy, however few of all these are: they come out, and all are kept here as long.
        begin, end = self._begin, self._end
        if not self._given.shown.one_row:
            begin, end = self._given.matches.offsets[[begin, end]].tolist()
        return rows.slice(begin, end - begin)


class MatchStretch(Stateful, Generic[Mark]):
    """A mark, and the matches that came out from there to the next.

    Parameters
    ----------
    number
        Of the mark.
    mark
        The back, as it stood; nobody changes it.
    """

    CHANGED = ("given",)

    def __init__(self, number: int, mark: Mark) -> None:
        self.number, self.mark = number, mark
        self.given: list[GivenMatches] = []


class MatchHistory(Stateful, Generic[Mark]):
    """The matches that came out within a horizon, and the changes that are still to come out.

    Parameters
    ----------
    shown
        How they come out.
    """

    CHANGED = ("_stretches", "_fresh", "_unsure")

    def __init__(self, shown: ShownColumns) -> None:
        self._shown = shown
        self._stretches: list[MatchStretch[Mark]] = []
        #: What was found and nobody has been told yet, by the number of the mark before it.
        self._fresh: list[tuple[int, WindowMatches]] = []
        #: What came out since the mark that the operator went back to; None where it did not.
        self._before: GivenMatches | None = None
        #: So far time has come for certain, and all that depends on no more was said to be certain.
        self._time = int(NO_TIME)
        #: What came out from there on of which not all was said to be certain, where that is said.
        self._unsure: list[GivenMatches] = []

    @property
    def went_back(self) -> bool:
        """Whether matches have come out that are to be compared with what is found once more."""
        return self._before is not None

    def mark(self, number: int, mark: Mark) -> None:
        """Begin a stretch: the back stands so now."""
        self._stretches.append(MatchStretch(number, mark))

    def go_back(self, number: int) -> Mark:
        """Go back to a mark, and return it; the matches that came out since are to be compared."""
        numbers = [stretch.number for stretch in self._stretches]
        if number not in numbers:
            raise StateError(
                "the operator goes back to a mark that this part of it does not have",
                detail=f"mark {number}, it has {numbers}",
                hint="restore front, instances and back together, as they were saved",
            )
        place = numbers.index(number)
        since = self._stretches[place:]
        given = [one for stretch in since for one in stretch.given]
        del self._unsure[max(0, len(self._unsure) - len(given)) :]
        if self._before is not None:
            given.append(self._before)
        self._before = GivenMatches.joined(self._shown, given, self._time)
        self._stretches[place:] = [MatchStretch(number, since[0].mark)]
        self._fresh = [one for one in self._fresh if one[0] < number]
        return since[0].mark

    def give(self, matches: WindowMatches) -> None:
        """Take matches that are found."""
        if len(matches):
            self._fresh.append((self._stretches[-1].number, matches))

    def emit(self, certain: int) -> list[Saying]:
        """Return what is to be said: nothing that comes lies before a time."""
        out = self._made_certain(certain) if self._shown.confirms else []
        fresh = [self._given(matches) for _, matches in self._fresh]
        if self._before is None:
            for one in fresh:
                out += self._come(one, certain)
        else:
            after = GivenMatches.joined(self._shown, fresh, certain)
            change = changes(self._before, after)
            if len(change.gone):
                out.append(Saying(self._given(change.gone), -1, False))
            if self._shown.confirms and len(change.confirmed):
                out.append(Saying(self._given(change.confirmed), 0, True))
            if len(change.come):
                sure = self._shown.confirms and change.certain
                out.append(Saying(self._given(change.come), 1, sure))
            ends = np.cumsum([len(one) for one in fresh], dtype=np.int64)
            fresh = [
                replace(one, known=change.kept[end - len(one) : end])
                for one, end in zip(fresh, ends, strict=True)
            ]
        self._time = max(self._time, certain)
        self._keep(fresh)
        return out

    def _given(self, matches: WindowMatches) -> GivenMatches:
        """Return matches that come out now."""
        return GivenMatches(self._shown, matches)

    def _come(self, given: GivenMatches, time: int) -> list[Saying]:
        """Say that matches come, and which of them are certain: nothing lies before a time."""
        size = len(given)
        if not self._shown.confirms:
            return [Saying(given, 1, False)]
        if not given.is_rising:
            return [Saying(given, 1, given.certain(time))]
        if given.found[0] > time:
            return [Saying(given, 1, False)]
        sure = int(given.found.searchsorted(time, "right"))
        parts = [Saying(given, 1, True, 0, sure), Saying(given, 1, False, sure)]
        return parts if sure < size else parts[:1]

    def _keep(self, fresh: Sequence[GivenMatches]) -> None:
        """Note the matches that came out."""
        for (number, _), one in zip(self._fresh, fresh, strict=True):
            place = len(self._stretches) - 1
            while place and self._stretches[place].number > number:
                place -= 1
            self._stretches[place].given.append(one)
        self._unsure += fresh if self._shown.confirms else []
        self._fresh, self._before = [], None

    def _made_certain(self, time: int) -> list[Saying]:
        """Say that matches are certain, and were not said to be: nothing lies before a time."""
        sure: list[Saying] = []
        done = 0
        for given in self._unsure:
            if given.is_rising:
                begin = int(given.found.searchsorted(self._time, "right"))
                end = int(given.found.searchsorted(time, "right"))
                is_all = end == len(given)
                sure += [Saying(given, 0, True, begin, end)] if begin < end else []
            else:
                certain = given.certain(time)
                is_all = bool(certain.all())
                fresh = given.matches.take(np.flatnonzero(certain & ~given.certain(self._time)))
                sure += [Saying(self._given(fresh), 0, True)] if len(fresh) else []
            if not is_all:
                break  # What was found later depends on later times.
            done += 1
        del self._unsure[:done]
        return sure

    def forget(self, oldest: int) -> None:
        """Forget the matches that came out before a mark: no part goes back before it."""
        behind = 0
        while behind + 1 < len(self._stretches) and self._stretches[behind + 1].number <= oldest:
            behind += 1
        del self._stretches[:behind]

    @property
    def begun(self) -> bool:
        """Whether there is a mark."""
        return bool(self._stretches)

    @property
    def oldest(self) -> int:
        """The number of the first mark."""
        return self._stretches[0].number

    @property
    def base(self) -> Mark:
        """The back, as it stood at the first mark."""
        return self._stretches[0].mark

    def state(self) -> State:
        """Return all that is kept but the marks, for `restore`."""
        given = [one for stretch in self._stretches for one in stretch.given]
        tables = _tables(GivenMatches.joined(self._shown, given, self._time))
        return State({"oldest": self.oldest}, tables)

    def restore(self, state: State, base: Mark) -> None:
        """Go on from what `state` returned, and from the back as it stood at the first mark."""
        header, tables = state.content(3)
        stretch = MatchStretch(integer(header, "oldest", NATURAL), base)
        stretch.given = [_read(tables, self._shown)]
        self._stretches, self._unsure = [stretch], [*stretch.given] if self._shown.confirms else []


def _waited(found: Integers, now: int, *, is_rising: bool) -> int:
    """Return how far a time is behind others, added up, but for those that it has not come to."""
    if now == NO_TIME or not len(found):
        return 0
    if not is_rising:
        return int(np.maximum(now - found, 0).sum())
    passed = found if found[-1] <= now else found[: found.searchsorted(now, "right")]
    # The sum of times may wrap around; how far they are behind does not.
    return (now * len(passed) - int(np.add.reduce(passed))) % (1 << 64)


def _tables(given: GivenMatches) -> list[pa.Table]:
    assert given.known is not None
    sure = pa.table({"found": given.found, "certain": given.known.astype(np.int64)})
    tables = [pa.table(given.matches.numbers), given.matches.table, sure]
    return [table.combine_chunks() for table in tables]


def _read(tables: Sequence[pa.Table], shown: ShownColumns) -> GivenMatches:
    numbers, table, sure = tables
    matches = WindowMatches.of_saved(numbers, typed(table, shown.found))
    found, certain = integers(sure, found=ANY, certain=range(2))
    require(len(found) == len(matches), "matches are missing")
    return GivenMatches(shown, matches.found_by(found), certain.astype(np.bool_))


@dataclass(frozen=True)
class Changes:
    """The changes that turn the matches that came out into those that should have.

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
    """Compare matches that came out with those that should have, by their ids.

    Of both is known which are certain.
    """
    assert given.known is not None
    assert should.known is not None
    # Each column is read several times, and would be put together as often.
    before, after = (
        one.matches.shown_as(one.matches.table.combine_chunks(), one.matches.said)
        for one in (given, should)
    )
    old = paired_ids(before.ids.words, after.ids.words)
    new = np.flatnonzero(old >= 0)
    same = _are_same(before, old[new], after, new)
    old, new = old[new[same]], new[same]
    gone, come = np.ones(len(before), np.bool_), np.ones(len(after), np.bool_)
    gone[old] = come[new] = False
    kept = np.zeros(len(after), np.bool_)
    kept[new] = given.known[old]
    fresh = np.flatnonzero(come)
    return Changes(
        before.take(np.flatnonzero(gone)),
        after.take(fresh),
        should.known[fresh],
        after.take(np.flatnonzero(should.known & ~come & ~kept)),
        kept,
    )


def with_sayings(output: pa.Schema, sayings: Sequence[Saying]) -> WindowMatches:
    """Return matches with what is said of them in their columns: that they come, go or stay.

    And, where they are confirmed, which of them are certain.
    """
    if not sayings:
        return WindowMatches.none(output)
    tables = [one.rows for one in sayings]

    def values() -> tuple[Integers, Booleans]:
        sizes = [len(one) for one in sayings]
        certain = [np.broadcast_to(one.certain, len(one)) for one in sayings]
        return np.repeat([one.diff for one in sayings], sizes), np.concatenate(certain)

    return with_changed_rows(
        lambda: [one.matches for one in sayings],
        pa.concat_tables(tables) if len(tables) > 1 else tables[0],
        MatchSayings(values),
        turned=sayings[0].is_turned,  # All are of one query.
    )


def _are_same(
    before: WindowMatches, old: Integers, after: WindowMatches, new: Integers
) -> Booleans:
    """Say which pairs of matches with the same id show the same rows."""
    sizes = np.diff(before.offsets)[old]
    same: Booleans = sizes == np.diff(after.offsets)[new]
    pairs = np.flatnonzero(same)
    rows = [
        numbers_of_rows(matches.offsets, places[pairs])[0]
        for matches, places in ((before, old), (after, new))
    ]
    equal = np.ones(len(rows[0]), np.bool_)
    for place in range(before.table.num_columns):
        one, other = (matches.table.column(place) for matches in (before, after))
        equal &= _equal(gather(one, rows[0]), gather(other, rows[1]))
    same[np.repeat(pairs, sizes[pairs])[~equal]] = False
    return same


def _equal(one: pa.Array, other: pa.Array) -> Booleans:
    """Say where two columns have the same values; NULL is NULL, and NaN is NaN."""
    if one.equals(other):
        return np.ones(len(one), np.bool_)
    if pa.types.is_floating(one.type):
        left, right = (array.to_numpy(zero_copy_only=False) for array in (one, other))
        bits = f"i{left.itemsize}"
        # NULL is as good as NaN there, and zero is not negative zero.
        alike = (left.view(bits) == right.view(bits)) | (np.isnan(left) & np.isnan(right))
        return np.asarray(alike & (_are_null(one) == _are_null(other)), np.bool_)
    if pa.types.is_nested(one.type):
        pairs: Sequence[Any] = list(zip(one.to_pylist(), other.to_pylist(), strict=True))
        return np.array([repr(left) == repr(right) for left, right in pairs], np.bool_)
    values = pc.fill_null(pc.equal(one, other), False)
    either = pc.or_(values, pc.and_(pc.is_null(one), pc.is_null(other)))
    return np.asarray(either.to_numpy(zero_copy_only=False), np.bool_)


def _are_null(array: pa.Array) -> Booleans:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)
