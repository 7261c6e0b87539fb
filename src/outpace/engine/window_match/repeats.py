"""Which matches came out already, for as long as another window may find them again.

A match is the same where its id is (`outpace.engine.match.identity`). Instances ask for the
windows of their own, the merger for those of all.

Later windows start behind all events that have come, so a match is forgotten once no window may
find one that starts as early any more. Memory: at most twice the matches that start in open
windows. The matches that are remembered lie in lots, each more than twice as large as the next, so
a call costs what the matches that it brings cost, and a look at the start of each that is
remembered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers, Unsigned
from outpace.engine.match.identity import MATCH_ID, MatchIds
from outpace.engine.rows.partition import one_array
from outpace.engine.snapshot import Stateful
from outpace.engine.split.windows import OPEN
from outpace.engine.state import NATURAL, integers, require
from outpace.engine.window_match.result import WindowMatches


class KnownMatches(Stateful):
    """The matches that came out; what tells one from others does so in all partitions."""

    CHANGED = ("_lots",)

    def __init__(self) -> None:
        self._lots: list[_Lot] = []

    def __len__(self) -> int:
        return sum(map(len, self._lots))

    def new(self, matches: WindowMatches) -> WindowMatches:
        """Return the matches that did not come out before, each once, in their order."""
        ids = matches.ids
        codes = ids.array.dictionary_encode().indices.to_numpy()
        # Codes are given in the order of first appearance.
        fresh = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
        if self._lots:
            # What starts behind all that is remembered is new.
            latest = max(lot.start.max() for lot in self._lots)
            candidates = np.flatnonzero(ids.start[fresh] <= latest)
            words = ids.words[fresh[candidates]]
            known = np.logical_or.reduce([lot.has(words) for lot in self._lots])
            fresh = np.delete(fresh, candidates[known])
        return matches if len(fresh) == len(matches) else matches.take(fresh)

    def remember(
        self, matches: WindowMatches, partition: Integers, floor: Integers, elsewhere: int = OPEN
    ) -> None:
        """Remember matches that come out now, and forget those that cannot come again.

        Parameters
        ----------
        matches
            What comes out.
        partition, floor
            Partitions, and for each the first event, by arrival number, that a match found later
            may start with.
        elsewhere
            That event for all other partitions; by default, none can come again there.
        """
        partitions = [matches.partition, partition, *(lot.partition for lot in self._lots)]
        floors = np.full(1 + max(some.max(initial=0) for some in partitions), elsewhere)
        floors[partition] = floor
        lots, self._lots = self._lots, []
        for lot in lots:
            self._append(lot.without_dead(floors))
        again = np.flatnonzero(matches.ids.start >= floors[matches.partition])
        self._append(_Lot.of(matches.partition[again], matches.ids.take(again)))

    def table(self) -> pa.Table:
        """Return what is remembered, for a saved state."""
        lot = _joined(self._lots)
        ids = MatchIds(lot.start, lot.words)
        return pa.table({"partition": lot.partition, "start": lot.start, "id": ids.array})

    @staticmethod
    def from_table(table: pa.Table) -> KnownMatches:
        """Return what `table` wrote."""
        matches = KnownMatches()
        partition, start = integers(table, partition=NATURAL, start=NATURAL)
        known = table.column("id")
        require(known.type == MATCH_ID and not known.null_count, "matches have no id")
        matches._append(_Lot.of(partition, MatchIds.of_array(start, one_array(known))))
        return matches

    def _append(self, lot: _Lot) -> None:
        """Add a lot; those that are not much larger are joined with it, so there are few."""
        while self._lots and len(self._lots[-1]) <= 2 * len(lot):
            lot = _joined([self._lots.pop(), lot])
        if len(lot):
            self._lots.append(lot)


@dataclass(frozen=True)
class _Lot:
    """Matches, in the order of the first words of their ids.

    Parameters
    ----------
    partition, start, words
        Of each match the partition, the arrival of its first event, and its id.
    """

    partition: Integers
    start: Integers
    words: Unsigned

    def __len__(self) -> int:
        return len(self.start)

    @staticmethod
    def of(partition: Integers, ids: MatchIds) -> _Lot:
        # A stable sort merges what is in order already.
        order = np.argsort(ids.words[:, 0], kind="stable")
        return _Lot(partition[order], ids.start[order], ids.words[order])

    def without_dead(self, floors: Integers) -> _Lot:
        """Drop the matches that cannot come again, where these are more than half."""
        alive = np.flatnonzero(self.start >= floors[self.partition])
        if 2 * len(alive) >= len(self):
            return self
        return _Lot(self.partition[alive], self.start[alive], self.words[alive])

    def has(self, words: Unsigned) -> Booleans:
        """Say which ids are in the lot."""
        first = np.searchsorted(self.words[:, 0], words[:, 0], "left")
        counts = np.searchsorted(self.words[:, 0], words[:, 0], "right") - first
        known = np.zeros(len(words), np.bool_)
        owner = np.repeat(np.arange(len(words)), counts)
        # All ids with the same first word are compared, the first of them and those after it.
        place = first[owner] + np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
        known[owner[self.words[place, 1] == words[owner, 1]]] = True
        return known


def _joined(lots: list[_Lot]) -> _Lot:
    ids = MatchIds.joined([MatchIds(lot.start, lot.words) for lot in lots])
    return _Lot.of(np.concatenate([_NOTHING, *(lot.partition for lot in lots)]), ids)


_NOTHING = np.zeros(0, np.int64)
