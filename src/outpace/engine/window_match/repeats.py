"""Which matches came out already, for as long as another window may find them again.

A match is the same where partition, rows and labels are; these are compared themselves, their
hashes only lead to them. Instances ask for the windows of their own, the merger for those of all.

Later windows start behind all events that have come, so a match is forgotten once no window may
find one that starts as early any more. Memory: at most twice the matches that start in open
windows. What was remembered lies in lots, each more than twice as large as the next, so a call
costs what the matches that it brings cost, and a look at the start of each that is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.snapshot import Stateful
from outpace.engine.split.windows import OPEN
from outpace.engine.state import NATURAL, integers, require
from outpace.engine.window_match.result import WindowMatches, first_events

Unsigned = npt.NDArray[np.uint64]


class Seen(Stateful):
    """The matches that came out; what tells one from others does so in all partitions."""

    CHANGED = ("_lots",)

    def __init__(self) -> None:
        self._lots: list[_Lot] = []

    def __len__(self) -> int:
        return sum(map(len, self._lots))

    def new(self, matches: WindowMatches) -> WindowMatches:
        """Return the matches that did not come out before, each once, in their order."""
        encoded = matches.identity.dictionary_encode()
        # Codes are given in the order of first appearance.
        highest = np.maximum.accumulate(encoded.indices.to_numpy())
        fresh = np.flatnonzero(np.diff(highest, prepend=-1))
        if self._lots:
            # What starts behind all that is remembered is new.
            latest = max(lot.start.max() for lot in self._lots)
            asked = np.flatnonzero(first_events(encoded.dictionary) <= latest)
            identity = encoded.dictionary.take(pa.array(asked))
            hashes = _hashes(identity)
            known = np.logical_or.reduce([lot.has(identity, hashes) for lot in self._lots])
            fresh = np.delete(fresh, asked[known])
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
        again = np.flatnonzero(first_events(matches.identity) >= floors[matches.partition])
        identity = matches.identity.take(pa.array(again))
        self._append(_Lot.of(matches.partition[again], identity))

    def table(self) -> pa.Table:
        """Return what is remembered, for a saved state."""
        whole = _joined(self._lots)
        return pa.table({"partition": whole.partition, "identity": whole.identity})

    @staticmethod
    def from_table(table: pa.Table) -> Seen:
        """Return what `table` wrote."""
        seen = Seen()
        (partition,) = integers(table, partition=NATURAL)
        known = table.column("identity")
        require(pa.types.is_binary(known.type) and not known.null_count, "matches have no identity")
        identity = pa.concat_arrays([_NONE.identity, *known.chunks])
        sizes = pc.binary_length(identity).to_numpy(zero_copy_only=False)
        require(((sizes > 0) & (sizes % 8 == 0)).all(), "a match has no events")
        seen._append(_Lot.of(partition, identity))
        return seen

    def _append(self, lot: _Lot) -> None:
        """Add a lot; those that are not much larger are joined with it, so there are few."""
        while self._lots and len(self._lots[-1]) <= 2 * len(lot):
            lot = _joined([self._lots.pop(), lot])
        if len(lot):
            self._lots.append(lot)


@dataclass(frozen=True)
class _Lot:
    """Matches, by hash.

    Parameters
    ----------
    partition, start, identity
        Of each match the partition, the arrival of its first event, and what tells it from others.
    hashes, order
        The hashes of matches, rising, and which match each belongs to.
    """

    partition: Integers
    start: Integers
    identity: pa.Array
    hashes: Unsigned
    order: Integers

    def __len__(self) -> int:
        return len(self.hashes)

    @staticmethod
    def of(partition: Integers, identity: pa.Array) -> _Lot:
        hashes = _hashes(identity)
        order = np.argsort(hashes)
        return _Lot(partition, first_events(identity), identity, hashes[order], order)

    def without_dead(self, floors: Integers) -> _Lot:
        """Drop the matches that cannot come again, where these are more than half."""
        alive = np.flatnonzero(self.start >= floors[self.partition])
        if 2 * len(alive) >= len(self):
            return self
        return _Lot.of(self.partition[alive], self.identity.take(pa.array(alive)))

    def has(self, identity: pa.Array, hashes: Unsigned) -> Booleans:
        """Say which matches are in the lot."""
        first = np.searchsorted(self.hashes, hashes, "left")
        counts = np.searchsorted(self.hashes, hashes, "right") - first
        known = np.zeros(len(hashes), np.bool_)
        asked = np.repeat(np.arange(len(hashes)), counts)
        if len(asked):
            # All matches with the same hash are compared, the first of them and those after it.
            place = first[asked] + np.arange(len(asked)) - (np.cumsum(counts) - counts)[asked]
            there = self.identity.take(pa.array(self.order[place]))
            same = pc.equal(identity.take(pa.array(asked)), there)
            known[asked[same.to_numpy(zero_copy_only=False)]] = True
        return known


def _joined(lots: list[_Lot]) -> _Lot:
    hashes = np.concatenate([_NONE.hashes, *(lot.hashes for lot in lots)])
    before = np.cumsum([0, *map(len, lots)])
    order = [lot.order + base for lot, base in zip(lots, before, strict=False)]
    # A stable sort merges what is in order already.
    merged = np.argsort(hashes, kind="stable")
    return _Lot(
        np.concatenate([_NOTHING, *(lot.partition for lot in lots)]),
        np.concatenate([_NOTHING, *(lot.start for lot in lots)]),
        pa.concat_arrays([_NONE.identity, *(lot.identity for lot in lots)]),
        hashes[merged],
        np.concatenate([_NOTHING, *order])[merged],
    )


def _hashes(identity: pa.Array) -> Unsigned:
    """Return a hash of each match: the sum of its numbers, mixed with their places in it."""
    if not len(identity):
        return _NONE.hashes
    _, offsets, values = identity.buffers()
    ends = np.frombuffer(offsets, np.int32)[identity.offset :][: len(identity) + 1] // 8
    numbers = np.frombuffer(values, np.uint64)[ends[0] : ends[-1]]
    begins = ends[:-1] - ends[0]
    place = np.arange(len(numbers)) - np.repeat(begins, np.diff(ends))
    mixed = (numbers + place.view(np.uint64) * _SPREAD) * _SPREAD
    mixed ^= mixed >> np.uint64(29)
    return np.add.reduceat(mixed * _SPREAD, begins)


#: An odd number whose bits look random.
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_NOTHING = np.zeros(0, np.int64)
# `pa.array` of a list would import pandas, with every import of this library.
_NO_IDENTITY = pa.nulls(0, pa.binary())
_NONE = _Lot(_NOTHING, _NOTHING, _NO_IDENTITY, _NOTHING.astype(np.uint64), _NOTHING)
