"""Events that wait for their turn, as a few runs in the order of time.

A run is joined with the one before it as soon as it is as long, so n events lie in about log n
runs, and one that waits is moved about log n times. Taking the rows that are due looks at each run
once and moves nothing but these rows.

Memory: at most twice the bytes of the events that wait, or 16 KiB for a run where that is more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.kernels.grouping import is_ascending
from outpace.engine.rows.partition import gather
from outpace.engine.snapshot import Stateful
from outpace.engine.state import NATURAL, integer, require, typed

#: So many bytes are not worth the time that it takes to free them.
_SMALL: Final = 16_384


@dataclass(frozen=True)
class SortedRun:
    """Rows in the order of their times; of equal times, as they came."""

    rows: pa.Table
    times: Integers

    def __len__(self) -> int:
        return len(self.times)

    def cut(self, place: int) -> tuple[SortedRun, SortedRun]:
        """Return the rows before a place, and the others."""
        if place in (0, len(self)):
            none = SortedRun(self.rows.slice(0, 0), self.times[:0])
            return (self, none) if place else (none, self)
        rest = self.rows.slice(place)
        return (
            SortedRun(self.rows.slice(0, place), self.times[:place]),
            SortedRun(_compact(rest), self.times[place:].copy()),
        )


def sorted_run(rows: pa.Table, times: Integers) -> SortedRun:
    """Return rows in the order of time."""
    if is_ascending(times):
        return SortedRun(rows, times)
    order = np.argsort(times, kind="stable")
    return SortedRun(moved(rows, order), times[order])


def joined(runs: list[SortedRun]) -> SortedRun:
    """Return runs as one; of equal times, those of earlier runs come first."""
    if len(runs) == 1:
        return runs[0]
    run = sorted_run(
        pa.concat_tables([run.rows for run in runs]), np.concatenate([run.times for run in runs])
    )
    return SortedRun(run.rows.combine_chunks(), run.times)


def _compact(rows: pa.Table) -> pa.Table:
    """Return rows in memory of their own where they hold more than twice what they need."""
    held = rows.get_total_buffer_size()
    if held <= _SMALL or 2 * rows.nbytes >= held:
        return rows
    return moved(rows, np.arange(rows.num_rows))


def moved(rows: pa.Table, order: Integers) -> pa.Table:
    """Return rows in another order, each column in one piece."""
    columns = [gather(column, order) for column in rows.columns]
    return pa.Table.from_arrays(columns, schema=rows.schema)


class SortedRuns(Stateful):
    """All events that wait.

    Parameters
    ----------
    schema
        Their columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.nothing = SortedRun(schema.empty_table(), np.zeros(0, np.int64))
        self._runs: list[SortedRun] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, run: SortedRun) -> None:
        """Let events wait."""
        self._keep([*self._runs, run])

    def pop(self, before: int | None, run: SortedRun | None = None) -> SortedRun:
        """Take out events with a time before a bound, also of some that come; all without one."""
        due, waiting = [self.nothing], []
        for one in [*self._runs, *([] if run is None else [run])]:
            place = len(one) if before is None else int(np.searchsorted(one.times, before))
            ready, rest = one.cut(place)
            due += [ready] if len(ready) else []
            waiting += [rest] if len(rest) else []
        self._keep(waiting)
        return joined(due if len(due) == 1 else due[1:])

    def __iter__(self) -> Iterator[SortedRun]:
        return iter(self._runs)

    @property
    def saved(self) -> tuple[list[int], pa.Table]:
        """How long runs are, and their rows; to join them would cost more than to save them."""
        rows = pa.concat_tables([self.nothing.rows, *(run.rows for run in self._runs)])
        return [len(run) for run in self._runs], rows

    def restore(
        self,
        sizes: Sequence[object],
        rows: pa.Table,
        time: str,
        ticks: Callable[[pa.Table], Integers],
    ) -> None:
        """Let the rows wait that `saved` had; `time` names their times."""
        rows = typed(rows, self.nothing.rows.schema)
        require(not rows.column(time).null_count, "an event has no time")
        known = [integer({"run": size}, "run", NATURAL) for size in sizes]
        ends = [0, *accumulate(known)]
        require(ends[-1] == rows.num_rows, "events are missing")
        parts = [rows.slice(low, high - low) for low, high in pairwise(ends)]
        runs = [SortedRun(part, ticks(part)) for part in parts]
        require(all(is_ascending(run.times) for run in runs), "events are out of order")
        self._runs = runs

    def _keep(self, waiting: list[SortedRun]) -> None:
        """Keep runs, each joined with the one before it that is not longer."""
        self._runs = []
        for one in waiting:
            while self._runs and len(self._runs[-1]) <= len(one):
                one = joined([self._runs.pop(), one])
            self._runs.append(one)
