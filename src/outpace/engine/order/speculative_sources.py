"""The speculative order of several sources: events go on before all sources have come so far.

    source a  ------------------------x         events of b between certain and early have not come
    source b  ---------x
                       |certain       |greatest

Each source has a reorderer of its own, and these wait for each other as they do without speculation
(`reordered_sources`): that says which events are late and how far time has come for certain. Beside
it events go on early, up to a part of the way to the greatest time of any source, whoever is
behind. What comes between the two corrects what came of the early ones.

Memory: the events that wait, and once more those that are not certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import END_OF_TIME, NO_TIME, Integers
from outpace.engine.event import EVENT_ID, SEQUENCE_BITS
from outpace.engine.match.bits import BitTask
from outpace.engine.message import ClockExchange, EventsArrived, HostLoad
from outpace.engine.order.contract import Order, ReleasedEvents
from outpace.engine.order.early_release import EarlyOrder
from outpace.engine.order.reordered_sources import ReorderedSources
from outpace.engine.order.runs import SortedRun, SortedRuns, joined
from outpace.engine.order.waiting import OWNER
from outpace.engine.rows.times import as_integers
from outpace.engine.state import State
from outpace.errors import UnsupportedError
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery


class SpeculativeSources(EarlyOrder, ReorderedSources):
    """Lets events of several sources go on early, and says which belong before them.

    Parameters
    ----------
    bound, disorder, each, schema
        As for `ReorderedSources`; what brings the events of each source into order is for certain.
    useful
        What says which events a step can use; None where all are kept.
    """

    CHANGED = (*ReorderedSources.CHANGED, "_runs")

    def __init__(
        self,
        bound: BoundQuery,
        disorder: BoundDisorder,
        each: Mapping[str, Order],
        schema: pa.Schema,
        useful: BitTask | None = None,
    ) -> None:
        super().__init__(bound, disorder["slack"], each, schema)
        self._useful = useful
        self._runs = SortedRuns(schema)
        self._begin_early(disorder)

    @property
    def buffered(self) -> int:
        """How many events wait for their turn."""
        return len(self._runs)

    @property
    def certain(self) -> int:
        """No event that is not late has a time before this; NO_TIME while it is not known."""
        greatest = self._early.greatest
        if self.holding is not None or greatest == NO_TIME:
            return self._watermark
        # All sources have ended, so nothing comes at that time any more either.
        return max(self._watermark, min(greatest, END_OF_TIME - 1) + 1)

    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Take events of a source, or of all that the column `source` names.

        After an error nothing is taken.
        """
        return self._go_on(events.rows, super().push(events), events.load)

    def tell(self, time: int, source: str | None = None, arrival: int = NO_TIME) -> ReleasedEvents:
        """Take a promise that no later event of a source has a time before this."""
        return self._go_on(self._runs.nothing.rows, super().tell(time, source, arrival))

    def fire(self, at: int) -> ReleasedEvents:
        """Take note that the clock of the host has come to a time, for every source."""
        return self._go_on(self._runs.nothing.rows, super().fire(at))

    def compare_clocks(self, exchange: ClockExchange) -> ReleasedEvents:
        """Refuse: the events that went on early have the times of their own clocks."""
        raise UnsupportedError(
            "the clocks of sources are not compared with op.Speculative",
            where="disorder",
            hint="use the reorderer alone, or leave out the exchanges",
        )

    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Say that a source, or every one, sends no more events."""
        given = super().finish(source)
        if self.holding is not None:
            return self._go_on(self._runs.nothing.rows, given)
        rows = self._in_order(self._runs.pop(None))
        gone = max(self.watermark, given.watermark)
        self._early = replace(self._early, gone=gone)
        return ReleasedEvents(rows, gone, given.late, given.invalid)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        rows = joined([self._runs.nothing, *self._runs]).rows
        return State(self._early.numbers, [rows], {"certain": super().state()})

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process."""
        super().restore(state.part("certain"))
        header, (rows,) = state.content(1)
        self._early = self._early.restored(header)
        sizes = [rows.num_rows] if rows.num_rows else []
        self._runs.restore(sizes, rows, self._order.time, self._order.ticks)

    def _go_on(
        self, rows: pa.Table, given: ReleasedEvents, load: HostLoad | None = None
    ) -> ReleasedEvents:
        """Let events go on early, but for those that were set aside."""
        aside = [one for one in (given.late, given.invalid) if one is not None and one.num_rows]
        if aside:
            ids = np.concatenate([_ids(one) for one in aside])
            rows = rows.filter(pa.array(~np.isin(_ids(rows), ids)))
        early = self._early.follow(load)
        times = as_integers(rows.column(self._order.time))
        greatest = max(early.greatest, int(times.max(initial=NO_TIME)))
        if self._useful is not None:
            rows = rows.filter(pa.array(self._useful.used(rows)))
        correcting, run, early = self._reach(rows, early, self.certain, greatest)
        ready = self._in_order(self._runs.pop(self._order.in_ticks(early.gone), run))
        self._early = early
        return ReleasedEvents(ready, early.gone, given.late, given.invalid, correcting)

    def _in_order(self, run: SortedRun) -> pa.Table:
        """Return events of all sources in the total order, of equals those of the first source."""
        rows = run.rows.append_column(OWNER, pa.array(_ids(run.rows) >> SEQUENCE_BITS))
        return self._order.without_ties(SortedRun(rows, run.times)).drop_columns([OWNER.name])


def _ids(rows: pa.Table) -> Integers:
    """Return the ids of events; those of no source have none, and are invalid."""
    return as_integers(rows.column(EVENT_ID.name))
