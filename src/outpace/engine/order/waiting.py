"""The events of several sources that wait for those of the others, in one order of time.

The events that sources let go lie as they came, until some are due or there are many pieces; then
they are sorted, and those that are due are moved once, wherever they lie. The rest waits in runs.

Memory: the events that wait, at most twice.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import END_OF_TIME, Integers
from outpace.engine.order.contract import AdmittedEvents
from outpace.engine.order.runs import SortedRun, SortedRuns, moved, sorted_run
from outpace.engine.order.source_merge import ticks_of
from outpace.engine.order.total import TotalOrder
from outpace.engine.rows.times import from_integers
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State, integers

#: The number of the source of an event, in a column behind the others.
OWNER: Final = pa.field("__outpace_source", pa.int64())

#: So many pieces of events wait before they are put in order.
_PIECES: Final = 256


class WaitingEvents(Stateful):
    """Events of several sources that wait.

    Parameters
    ----------
    order
        Their order, whose last column is that of sources.
    schema
        Their columns.
    sources
        How many sources there are.
    """

    CHANGED = ("_runs", "_fresh", "counts")

    def __init__(self, order: TotalOrder, schema: pa.Schema, sources: int) -> None:
        self._order = order
        self._runs = SortedRuns(schema.append(OWNER))
        #: What sources have let go lately, as it lies, and the first of its times.
        self._fresh: list[AdmittedEvents] = []
        self._first = END_OF_TIME
        #: How many events of each source wait.
        self.counts = np.zeros(sources, np.int64)

    def add(self, admitted: AdmittedEvents) -> None:
        """Let events wait."""
        if not len(admitted.ticks):
            return
        if admitted.places is not None and 2 * len(admitted.places) < admitted.rows.num_rows:
            # What waits holds no memory of what does not.
            rows = moved(admitted.rows, admitted.places)
            admitted = replace(admitted, rows=rows, places=None)
        self._fresh.append(admitted)
        self._first = min(self._first, int(admitted.ticks.min()))
        self.counts += np.bincount(admitted.owners, minlength=len(self.counts))

    def pop(self, before: int | None) -> SortedRun:
        """Take out the events before a time, or all, with the numbers of their sources."""
        if before is not None and self._first >= before:
            if len(self._fresh) > _PIECES:
                self._settle()
            run = self._runs.pop(before)
        elif len(self._fresh) == 1 and self._fresh[0].places is None:
            run = self._runs.pop(before, self._sorted([]))
        elif self._fresh:
            waited = self._runs.pop(before)
            rows = waited.rows.drop_columns([OWNER.name])
            owners = waited.rows.column(OWNER.name).to_numpy()
            both = self._sorted([AdmittedEvents(rows, None, owners, waited.times)])
            ready = len(both) if before is None else int(np.searchsorted(both.times, before))
            run, rest = both.cut(ready)
            if len(rest):
                self._runs.add(rest)
        else:
            run = self._runs.pop(before)
        if len(run):
            owners = run.rows.column(OWNER.name).to_numpy()
            self.counts -= np.bincount(owners, minlength=len(self.counts))
        return run

    def timed(self, rows: pa.Table, ticks: Integers) -> pa.Table:
        """Return events with other times than those that they brought."""
        kind = self._order.kind
        values = pa.array(ticks)
        values = values.view(kind) if ticks_of(kind) > 1 else from_integers(ticks, kind).cast(kind)
        index = rows.schema.get_field_index(self._order.time)
        return rows.set_column(index, rows.schema.field(index), values)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        self._settle()
        sizes, rows = self._runs.saved
        return State({"runs": sizes}, [rows])

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        numbers, (rows,) = state.content(1)
        sources = range(len(self.counts))
        (owners,) = integers(rows.select([OWNER.name]), **{OWNER.name: sources})
        self._runs.restore(numbers["runs"], rows, self._order.time, self._order.ticks)
        self.counts = np.bincount(owners, minlength=len(self.counts))

    def _settle(self) -> None:
        """Put what sources have let go among the runs."""
        if self._fresh:
            self._runs.add(self._sorted([]))

    def _sorted(self, others: list[AdmittedEvents]) -> SortedRun:
        """Take what sources have let go lately, and other events, in the order of time."""
        every, self._fresh, self._first = [*others, *self._fresh], [], END_OF_TIME
        shifted = any(one.shifted for one in every)
        if len(every) == 1 and every[0].places is None:
            (one,) = every
            rows = self.timed(one.rows, one.ticks) if shifted else one.rows
            return sorted_run(rows.append_column(OWNER, pa.array(one.owners)), one.ticks)
        rows = pa.concat_tables([one.rows for one in every])
        starts = [0, *accumulate(one.rows.num_rows for one in every)]
        place = np.concatenate(
            [
                np.arange(low, high) if one.places is None else one.places + low
                for one, (low, high) in zip(every, pairwise(starts), strict=True)
            ]
        )
        time = np.concatenate([one.ticks for one in every])
        order = np.argsort(time, kind="stable")
        rows, time = moved(rows, place[order]), time[order]
        rows = self.timed(rows, time) if shifted else rows
        owners = np.concatenate([one.owners for one in every])[order]
        return SortedRun(rows.append_column(OWNER, pa.array(owners)), time)
