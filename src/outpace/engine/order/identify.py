"""Ids of events: which source sent an event, and which of its events it is, as they arrived.

Events get them before anything puts them in another order, so that an event which comes in between
others changes the id of none. An id is one number: the source's above, the event's below. Memory:
one number for each source.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import EVENT_ID, SEQUENCE_BITS
from outpace.engine.order.senders import owners_of
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State, integers, require
from outpace.errors import UnsupportedError
from outpace.pattern.bind.disorder import SOURCE


class EventIds(Stateful):
    """Gives ids to the events of sources.

    Parameters
    ----------
    sources
        The identifiers of the sources; None where there is one.
    place
        The number of the operator, where each of several has events of its own.

    Examples
    --------
    >>> ids = EventIds(("a", "b"))
    >>> rows = pa.table({"x": [7, 8]})
    >>> ids.accept("b", rows)
    >>> [hex(id) for id in ids.give(rows, "b")["__outpace_id"].to_pylist()]
    ['0x1000000000002', '0x1000000000003']
    """

    CHANGED = ("_counts",)

    def __init__(self, sources: tuple[str, ...] | None = None, place: int = 0) -> None:
        # Whoever names the sources in another order means the same.
        names: Sequence[str | None] = (None,) if sources is None else sorted(sources)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._first = place * len(names)
        if self._first + len(names) > 1 << (63 - SEQUENCE_BITS):
            raise UnsupportedError(
                f"there are too many sources to tell their events apart: {len(names):,}",
                hint=f"give a stream at most {1 << (63 - SEQUENCE_BITS):,} of them",
            )
        #: How many events each source has sent.
        self._counts: Integers = np.zeros(len(names), np.int64)

    def give(self, rows: pa.Table, source: str | None) -> pa.Table:
        """Return the next events of a source with their ids; they count from `accept` on.

        Where there are several and none is named, the column `source` says whose each event is.
        """
        return rows.append_column(EVENT_ID, pa.array(self.next(rows, source)))

    def next(self, rows: pa.Table, source: str | None) -> Integers:
        """Return the ids that `give` gives."""
        # The order says it better where there is no such source.
        number = self._numbers.get(source, 0)
        if source is None and None not in self._numbers:
            owners = self._owners(rows)
            order = np.argsort(owners, kind="stable")
            # Those of no source come first, and have no id that anybody asks for.
            starts = np.cumsum(np.bincount(owners + 1, minlength=len(self._counts) + 1))
            place = np.empty(len(owners), np.int64)
            place[order] = np.arange(len(owners)) - starts[owners[order]]
            ids = ((self._first + owners) << SEQUENCE_BITS) + self._counts[owners] + place
            return np.where(owners < 0, -1, ids)
        begin = ((self._first + number) << SEQUENCE_BITS) + int(self._counts[number])
        return np.arange(begin, begin + rows.num_rows)

    def at(self, numbers: Integers) -> Integers:
        """Return the ids of events of the only source, by how many came before each."""
        assert len(self._counts) == 1, "numbers tell no sources apart"
        return numbers + (self._first << SEQUENCE_BITS)

    def accept(self, source: str | None, rows: pa.Table) -> None:
        """Count events of a source, or of those that the column `source` names, that were taken."""
        self._counts = self._counts.copy()
        if source is None and None not in self._numbers:
            owners = self._owners(rows)
            self._counts += np.bincount(owners[owners >= 0], minlength=len(self._counts))
        else:
            self._counts[self._numbers[source]] += rows.num_rows

    @property
    def counts(self) -> dict[str | None, int]:
        """How many events each source has sent, or the only one: None."""
        return {name: int(self._counts[number]) for name, number in self._numbers.items()}

    def _owners(self, rows: pa.Table) -> Integers:
        if SOURCE not in rows.column_names:
            return np.zeros(rows.num_rows, np.int64)
        names = [name for name in self._numbers if name is not None]
        return owners_of(rows.column(SOURCE), names).astype(np.int64)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        return State({}, [pa.table({"count": self._counts})])

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        _, (counts,) = state.content(1)
        (known,) = integers(counts, count=range(1 << SEQUENCE_BITS))
        require(len(known) == len(self._counts), "sources are missing")
        self._counts = known
