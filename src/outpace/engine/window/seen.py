"""Which matches came out already, for as long as another window may find them again.

A match is the same where partition, rows and labels are. Later windows start behind all events that
have come, so a match is forgotten once no window may find one that starts as early any more: at
most the matches that start in open windows are remembered.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.match.contract import Integers
from outpace.engine.window.contract import OPEN
from outpace.engine.window.result import WindowMatches, first_events


class Seen:
    """The matches that came out; what tells one from others does so in all partitions."""

    def __init__(self) -> None:
        self._partition = np.zeros(0, np.int64)
        self._identity = pa.array([], pa.binary())

    def __len__(self) -> int:
        return len(self._partition)

    def new(self, matches: WindowMatches) -> WindowMatches:
        """Return the matches that did not come out before, each once, in their order."""
        encoded = matches.identity.dictionary_encode()
        # Codes are given in the order of first appearance.
        highest = np.maximum.accumulate(encoded.indices.to_numpy())
        fresh = np.flatnonzero(np.diff(highest, prepend=-1))
        if len(self):
            known = pc.is_in(encoded.dictionary, value_set=self._identity)
            fresh = fresh[~known.to_numpy(zero_copy_only=False)]
        return matches if len(fresh) == len(matches) else matches.take(fresh)

    def remember(self, matches: WindowMatches, partition: Integers, floor: Integers) -> None:
        """Remember matches that come out now, and forget those that cannot come again.

        Parameters
        ----------
        matches
            What comes out.
        partition, floor
            Partitions, and for each the first event, by arrival number, that a match found later
            may start with. In other partitions none can come again.
        """
        identity = pa.concat_arrays([self._identity, matches.identity])
        partitions = np.concatenate([self._partition, matches.partition])
        floors = np.full(1 + max(partitions.max(initial=0), partition.max(initial=0)), OPEN)
        floors[partition] = floor
        again = np.flatnonzero(first_events(identity) >= floors[partitions])
        self._partition = partitions[again]
        self._identity = identity.take(pa.array(again))

    def table(self) -> pa.Table:
        """Return what is remembered, for a saved state."""
        return pa.table({"partition": self._partition, "identity": self._identity})

    @staticmethod
    def from_table(table: pa.Table) -> Seen:
        """Return what `table` wrote."""
        seen = Seen()
        seen._partition = np.array(table.column("partition").to_numpy(), np.int64)
        seen._identity = pa.concat_arrays([seen._identity, *table.column("identity").chunks])
        return seen
