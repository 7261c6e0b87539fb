"""The events that a front let go on within a horizon, so that it can go back before a late one.

    time       ------------------------------------------------------->
    stretches  | mark, rows          | mark, rows          | mark, rows
                                     ^ go back    * late              ^ now

A stretch begins with a mark, the front as it stood, and has the rows that went on since. With a
late event the front goes back to the last mark that lies before it, and lets the rows since then go
on once more with the event in its place. Instances and the back go back with it: marks have
numbers, and each part has its own snapshots of them.

A model (`outpace.pattern.checkpoints`) says how many rows a stretch has. Memory: the rows within
the horizon, and those of at most one stretch before it. The cost of a correction: that of the rows
behind the mark, of which half a stretch on average lies before the event.
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.rows.times import as_integers
from outpace.engine.snapshot import Stateful
from outpace.engine.speculate.work import WorkEstimate
from outpace.engine.state import NATURAL, State, integer, require, typed
from outpace.errors import DataError
from outpace.pattern.argument import plain, shown
from outpace.pattern.checkpoints import CheckpointModel, CheckpointWork, LeastWork

Mark = TypeVar("Mark")

#: The numbers of partitions that are forgotten, and how many events each had.
IdlePartitions: TypeAlias = tuple[Integers, Integers]


class Stretch(Stateful, Generic[Mark]):
    """A mark, and the rows that went on from there to the next.

    Parameters
    ----------
    number
        Of the mark.
    mark
        The front as it stood; nobody changes it.
    bound
        All that went on before lies before this time, and no time behind it had been told.
    """

    CHANGED = ("rows", "idle")

    def __init__(self, number: int, mark: Mark, bound: int) -> None:
        self.number, self.mark, self.bound = number, mark, bound
        self.rows: list[pa.Table] = []
        #: How many rows, and how many of them were certain when they went on.
        self.size = self.sure = 0
        #: Partitions that instances forgot before the mark, and told so behind it.
        self.idle: list[IdlePartitions] = []


class EventStretches(Stateful, Generic[Mark]):
    """The events that went on within a horizon.

    Parameters
    ----------
    rows
        The columns of events.
    time
        The column of event time.
    model
        Says where marks lie; None: where they make the least work.
    """

    CHANGED = ("_stretches", "work")

    def __init__(self, rows: pa.Schema, time: str, model: CheckpointModel | None = None) -> None:
        self._rows, self._time, self._model = rows, time, model or LeastWork()
        self._stretches: list[Stretch[Mark]] = []
        self._size = self._next = 0
        #: What going back costs, as far as somebody measures it.
        self.work = WorkEstimate()
        #: All that went on lies before this time, and time has not come further.
        self.bound = int(NO_TIME)

    def __len__(self) -> int:
        return self._size

    def uncertain(self, certain: int) -> int:
        """Count the rows that went on and do not lie before a time."""
        count: int = 0
        for stretch in reversed(self._stretches):
            for rows in reversed(stretch.rows):
                times = as_integers(rows.column(self._time))
                before = int(np.searchsorted(times, certain))
                count += int(rows.num_rows) - before
                if before:
                    return count
        return count

    @property
    def begun(self) -> bool:
        """Whether there is a mark."""
        return bool(self._stretches)

    @property
    def oldest(self) -> int:
        """The number of the first mark that it may go back to."""
        return self._stretches[0].number

    @property
    def newest(self) -> int:
        """The number of the last mark."""
        return self._stretches[-1].number

    @property
    def last(self) -> tuple[Mark, list[IdlePartitions]]:
        """The front as it stood at the last mark, and the partitions that are forgotten since."""
        return self._stretches[-1].mark, self._stretches[-1].idle

    @property
    def base(self) -> tuple[Mark, list[IdlePartitions]]:
        """As `last`, for the first mark."""
        return self._stretches[0].mark, self._stretches[0].idle

    def note_idle(self, idle: Integers, counts: Integers, before: int) -> None:
        """Note partitions that an instance forgot, in the stretches behind a mark."""
        if len(idle):
            for stretch in self._stretches:
                if stretch.number > before:
                    stretch.idle.append((idle, counts))

    def _interval(self, since: int, coming: int, sure: int) -> int:
        """Return how many rows a stretch should have: see `CheckpointWork`."""
        work = self.work
        known = CheckpointWork(
            since, coming, sure, self._size, *work.costs, work.apart, work.missed
        )
        try:
            interval = plain(self._model.interval(known))
        except Exception as error:
            raise DataError(
                f"{type(self._model).__name__}.interval failed",
                detail=f"{type(error).__name__}: {error}",
                hint="mend it, or take a model of op.checkpoints",
            ) from error
        if isinstance(interval, bool) or not isinstance(interval, int) or interval < 1:
            name = type(self._model).__name__
            raise DataError(
                f"{name}.interval returned {shown(interval)}, which is no number of events",
                hint="return a whole number from 1 on",
            )
        return interval

    def times(self, rows: pa.Table) -> Integers:
        """Return the times of rows, for `place_mark` and `take`."""
        return as_integers(rows.column(self._time))

    def place_mark(self, times: Integers, certain: int) -> tuple[bool, int]:
        """Say whether some rows are to begin a stretch, and how many go on before the next mark.

        Nobody goes back before what is certain, so no mark lies there.
        """
        sure = int(times.searchsorted(certain))
        last = self._stretches[-1] if self._stretches else None
        if last is not None:
            interval = self._interval(last.size, len(times), last.sure + sure)
            if interval > last.size:
                return False, max(sure, interval - last.size)
        return True, max(sure, self._interval(0, len(times), sure))

    def ends_stretch(self, times: Integers, *, marks: bool) -> bool:
        """Say whether a mark is to lie behind some rows that are certain, before time goes on.

        They belong to the last stretch, or begin one where there is a mark before them. An event
        that comes behind them, and before a time that is told early, would go back before them.
        """
        size = sure = len(times)
        if self._stretches and not marks:
            size, sure = size + self._stretches[-1].size, sure + self._stretches[-1].sure
        return self._interval(size, 1, sure) <= size

    def mark(self, mark: Mark) -> int:
        """Begin a stretch: the front stands so now; return its number."""
        number, self._next = self._next, self._next + 1
        self._stretches.append(Stretch(number, mark, self.bound))
        return number

    def take(
        self, rows: pa.Table, watermark: int, certain: int, times: Integers | None = None
    ) -> None:
        """Note rows that went on, in their order, how far time had come then, and for certain.

        Who knows the times of the rows gives them.
        """
        if rows.num_rows:
            times = self.times(rows) if times is None else times
            self.work.take(rows.num_rows)
            stretch = self._stretches[-1]
            stretch.rows.append(rows)
            stretch.size += rows.num_rows
            stretch.sure += int(times.searchsorted(certain))
            self._size += rows.num_rows
            self.bound = max(self.bound, int(times[-1]) + 1)
        self.bound = max(self.bound, int(watermark))

    def go_back(self, late: pa.Table) -> pa.Table:
        """Return what went on since the last mark before some rows; that mark is the last now."""
        time = as_integers(late.column(self._time)).min()
        place = max(
            n for n, stretch in enumerate(self._stretches) if n == 0 or stretch.bound <= time
        )
        since, self._stretches = self._stretches[place:], self._stretches[:place]
        first = Stretch(since[0].number, since[0].mark, since[0].bound)
        first.idle = since[0].idle
        self._stretches.append(first)
        self.bound = first.bound
        self._size -= sum(stretch.size for stretch in since)
        before = sum(int(np.searchsorted(self.times(rows), time)) for rows in since[0].rows)
        self.work.go_back(before / max(1, since[0].size))
        rows = [one for stretch in since for one in stretch.rows]
        return pa.concat_tables([self._rows.empty_table(), *rows])

    def forget(self, certain: int) -> None:
        """Forget what nothing that comes from a time on can change."""
        behind = 0
        while behind + 1 < len(self._stretches) and self._stretches[behind + 1].bound <= certain:
            behind += 1
        self._size -= sum(stretch.size for stretch in self._stretches[:behind])
        del self._stretches[:behind]

    def state(self) -> State:
        """Return all that is kept but the marks, for `restore`."""
        rows = [one for stretch in self._stretches for one in stretch.rows]
        numbers = {
            "bound": self.bound,
            "first": self._stretches[0].bound,
            "oldest": self.oldest,
            "next": self._next,
            "sure": sum(stretch.sure for stretch in self._stretches),
        }
        table = pa.concat_tables([self._rows.empty_table(), *rows])
        return State(numbers, [table.combine_chunks()], {"work": self.work.state()})

    def restore(self, state: State, base: Mark) -> None:
        """Go on from what `state` returned, and the front as it stood at the first mark."""
        header, (rows,) = state.content(1)
        rows = typed(rows, self._rows)
        require(not rows.column(self._time).null_count, "an event has no time")
        oldest, self._next = (integer(header, name, NATURAL) for name in ("oldest", "next"))
        self.work.restore(state.part("work"))
        require(oldest < self._next, "marks are not in their order")
        stretch = Stretch(oldest, base, integer(header, "first"))
        self.bound = integer(header, "bound")
        stretch.rows, stretch.size = [rows], rows.num_rows
        # Older states do not say it.
        stretch.sure = integer({"sure": 0, **header}, "sure", range(rows.num_rows + 1))
        self._size = rows.num_rows
        self._stretches = [stretch]
