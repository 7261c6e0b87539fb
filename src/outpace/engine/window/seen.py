"""Which matches came out already, for as long as another window may find them again.

A match is the same where partition, rows and labels are. Later windows start behind all events that
have come, so a match is forgotten once it starts before every open window of its partition: at most
the matches that start in open windows are remembered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from outpace.engine.match.contract import Integers
from outpace.engine.window.contract import OPEN
from outpace.engine.window.result import WindowMatches


class Seen:
    """The matches that came out, by partition."""

    def __init__(self) -> None:
        self._by_partition: dict[int, set[bytes]] = defaultdict(set)

    def __len__(self) -> int:
        return sum(len(known) for known in self._by_partition.values())

    def new(self, matches: WindowMatches) -> WindowMatches:
        """Return the matches that did not come out before, each once, in their order."""
        encoded = matches.identity.dictionary_encode()
        first = np.full(len(encoded.dictionary), len(matches), np.int64)
        np.minimum.at(first, encoded.indices.to_numpy(), np.arange(len(matches)))
        fresh = [
            row
            for row, key in zip(first.tolist(), encoded.dictionary.to_pylist(), strict=True)
            if key not in self._by_partition[int(matches.partition[row])]
        ]
        return matches.take(np.sort(np.array(fresh, np.int64)))

    def remember(self, matches: WindowMatches, floors: Mapping[int, int]) -> None:
        """Remember matches that come out now, and forget those that start before the floors.

        Parameters
        ----------
        matches
            What comes out.
        floors
            For each partition the first event, by arrival number, that a match found later may
            start with; none for partitions where any such match is a new one.
        """
        self._forget(floors)
        at_least = np.full(int(matches.partition.max(initial=-1)) + 1, OPEN, np.int64)
        for partition, floor in floors.items():
            if partition < len(at_least):
                at_least[partition] = floor
        again = np.flatnonzero(starts(matches.identity) >= at_least[matches.partition])
        keys = matches.identity.take(pa.array(again)).to_pylist()
        for partition, key in zip(matches.partition[again].tolist(), keys, strict=True):
            self._by_partition[partition].add(key)

    def _forget(self, floors: Mapping[int, int]) -> None:
        for partition in list(self._by_partition):
            floor = floors.get(partition, OPEN)
            known = {key for key in self._by_partition[partition] if _start(key) >= floor}
            if known:
                self._by_partition[partition] = known
            else:
                del self._by_partition[partition]

    def table(self) -> pa.Table:
        """Return what is remembered, for a saved state."""
        pairs = [(p, key) for p, keys in self._by_partition.items() for key in sorted(keys)]
        return pa.table(
            {
                "partition": pa.array([partition for partition, _ in pairs], pa.int64()),
                "identity": pa.array([key for _, key in pairs], pa.binary()),
            }
        )

    @staticmethod
    def from_table(table: pa.Table) -> Seen:
        """Return what `table` wrote."""
        seen = Seen()
        columns = (table.column("partition").to_pylist(), table.column("identity").to_pylist())
        for partition, key in zip(*columns, strict=True):
            seen._by_partition[partition].add(key)
        return seen


def starts(identity: pa.Array) -> Integers:
    """Return the arrival numbers of the first events of matches."""
    if not len(identity):
        return np.zeros(0, np.int64)
    _, offsets, values = identity.buffers()
    places = np.frombuffer(offsets, np.int32)[identity.offset :][: len(identity)]
    return np.frombuffer(values, np.int64)[places // 8]


def _start(key: bytes) -> int:
    return int.from_bytes(key[:8], "little", signed=True)
