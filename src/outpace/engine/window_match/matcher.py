"""The instance: the matches of a query in windows, as events come and windows open and close.

The events of a window are a table of their own: a match is found in a window if and only if it is
one of that table. It is returned by the step that makes it final there, or that closes the window.
x, the number of the event that made it so, does not depend on how the stream is cut into steps: in
a window only its own events tell the time. Without duplicates a match that several windows find is
returned once, for the first of them.

Windows that overlap much share their searches (`shared`) or their matches (`covered`) where the
query allows it, else they are matched one by one (`separate`). So are those that would share their
searches, as long as the compiler is not done: the matches are the same, and so is a saved state.
With keys, a step costs what it touches (`by_key`). Memory: see there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import Events, no_events
from outpace.engine.kernels.grouping import find_pairs
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.match.kernel import KernelMatcher
from outpace.engine.match.kernel_search import WORTH_PREDICATES
from outpace.engine.match.reach import reach_of
from outpace.engine.match.task import count_starts, fingerprint, kept_columns
from outpace.engine.rows.times import as_integers, valid_times
from outpace.engine.split.schedule import overlapping
from outpace.engine.split.windows import Split, Windows, take_windows
from outpace.engine.state import (
    ANY,
    NATURAL,
    SavedPart,
    State,
    integers,
    require,
    typed,
)
from outpace.engine.window_match.by_key import Strategy, WindowsByKey
from outpace.engine.window_match.count import count_in_windows
from outpace.engine.window_match.covered_windows import CoveredWindows
from outpace.engine.window_match.drifting import DriftingWindows, UncertainWindows
from outpace.engine.window_match.open_windows import OpenWindows, require_same
from outpace.engine.window_match.result import WindowMatches
from outpace.engine.window_match.rows import places
from outpace.engine.window_match.separate import SeparateWindows
from outpace.engine.window_match.shared_windows import GivesUpError, SharedWindows
from outpace.engine.window_match.sharing import is_ready, sharing
from outpace.engine.window_match.stretches import ROWS_AT_ONCE
from outpace.errors import UnsupportedError
from outpace.pattern.bind.window_kinds import BoundWindows, bind_windows
from outpace.pattern.query import RowsPerMatch

#: So many events and what belongs to them fit into fast memory.
ROWS_IN_STEP: Final = 1 << 17

#: The frontier and the horizon of an instance that is given no more events.
ENDED: Final = int(np.iinfo(np.int64).max)


class WindowMatcher(SavedPart):
    """Matches a query in the windows that an instance was given.

    Parameters
    ----------
    task
        The query; it has windows.
    matcher
        How one window is matched; by default the fastest way that covers the query.
    rows
        The columns of events that are kept; by default those that the query reads and shows.
    rows_at_once
        Rows of windows that are gathered at once where windows are matched one by one.
    rows_in_step
        Events that are taken at once where windows share their searches.
    shared
        Whether windows share their searches where they may; by default where that is worth it.
    """

    CHANGED = ("_strategy",)
    SAME: ClassVar = {"query": ("_fingerprint", "another query or another schema")}
    NUMBERS: ClassVar = {"frontier": ("_frontier", range(ENDED + 1))}

    def __init__(
        self,
        task: Task,
        matcher: Matcher | None = None,
        *,
        rows: pa.Schema | None = None,
        rows_at_once: int = ROWS_AT_ONCE,
        rows_in_step: int = ROWS_IN_STEP,
        shared: bool | None = None,
        tells_used: bool = False,
    ) -> None:
        query = task.bound.query
        if query.rows is RowsPerMatch.ALL_WITH_UNMATCHED:
            raise UnsupportedError(
                "windows cannot return unmatched rows",
                hint="use ALL ROWS PER MATCH without WITH UNMATCHED ROWS",
            )
        self.task = task
        self.matcher = choose_matcher(task) if matcher is None else matcher
        #: The windows where the times of events tell, when one closes, what is matched of it.
        self._drifting: BoundWindows | None = None
        if query.leeway is not None:
            self._drifting = bind_windows(query, task.bound.schema)
        self._timed = task.bound.within is not None or (
            self._drifting is not None and self._drifting.time is not None
        )
        self._rows_at_once = rows_at_once
        self._rows_in_step = rows_in_step
        self._shared = shared
        if rows is None:
            kept = kept_columns(task, task.bound.schema)
            rows = pa.schema([task.bound.schema.field(name) for name in kept])
        self._columns = rows.names
        self._nothing = no_events(rows)
        self._strategy: Strategy | None = None
        #: How windows are matched now, and how they are saved, which the query alone decides.
        self._kind = ""
        kind = sharing(task, self.matcher)
        self._worth = overlapping(query.windows) if shared is None else shared
        self._layout = kind if self._worth or kind == "shared" else "separate"
        self._frontier = 0
        #: Gets the events of what is found; None where nobody asks for them.
        self._matched: list[Integers] | None = [] if tells_used else None

    def take_used(self) -> Integers:
        """Return the events of what was found since the last time, where somebody asks for them."""
        used = self._matched or [self._nothing.arrival]
        found = used[0] if len(used) == 1 else np.concatenate(used)
        if self._matched:
            self._matched.clear()
        return found

    @property
    def horizon(self) -> int:
        """No later match starts before this event, so those that do cannot come again."""
        begun_at = ENDED if self._strategy is None else self._strategy.begun_at
        return min(self._frontier, begun_at)

    @property
    def rows_kept(self) -> int:
        """How many rows undecided matches may still need."""
        return 0 if self._strategy is None else len(self._strategy.held.ordinal)

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return 0 if self._strategy is None else self._strategy.open_windows

    @property
    def partitions_kept(self) -> int:
        """How many partitions have open windows."""
        return 0 if self._strategy is None else len(np.unique(self._strategy.undecided[0]))

    def starts_kept(self) -> int:
        """Count the rows kept that an undecided match may start with; linear in the rows kept."""
        if self._strategy is None:
            return 0
        held, (partition, ordinal) = self._strategy.held, self._strategy.undecided
        known, at = np.unique(partition, return_inverse=True)
        least = np.full(len(known) + 1, ENDED)
        np.minimum.at(least, at, ordinal)
        undecided = held.ordinal >= least[np.searchsorted(known, held.partition)]
        return count_starts(self.task, held.rows, undecided)

    def undecided(self) -> tuple[Integers, Integers]:
        """Return partitions, and the first event of each that an undecided match may need."""
        if not self.rows_kept:
            return self._nothing.partition, self._nothing.arrival
        assert self._strategy is not None
        held = self._strategy.held
        if not self.task.bound.partition_by:
            return held.partition[:1], held.arrival[:1]
        begin = np.flatnonzero(np.diff(held.partition, prepend=-1))
        return held.partition[begin], held.arrival[begin]

    def earliest(self, time: str) -> int:
        """Return the least time of the rows that undecided matches may still need."""
        if not self.rows_kept:
            return ENDED
        assert self._strategy is not None
        return int(as_integers(self._strategy.held.rows.column(time)).min())

    def step(
        self, events: Events, split: Split, *, arrived: int | None = None, ended: bool = False
    ) -> WindowMatches:
        """Take the next events of the instance's windows and return what became final.

        After an error the matcher is of no more use.

        Parameters
        ----------
        events
            In order; between windows some may be left out. Columns that the query has no use for
            may be left out, too.
        split
            The instance's windows that open with these events, and those that close.
        arrived
            How many events the whole stream has had, those of other instances included; without it
            the last one of `events` counts.
        ended
            No more events come, and all windows are closed.
        """
        if self._strategy is None:
            self._strategy = self._choose(len(events.arrival))
        rows = ENDED if self._kind == "separate" else self._rows_in_step
        parts = [self._match_piece(*piece) for piece in _pieces(self._chosen(events), split, rows)]
        last = int(events.arrival[-1]) + 1 if len(events.arrival) else 0
        self._frontier = ENDED if ended else max(self._frontier, last, arrived or 0)
        return WindowMatches.joined(self.task.bound.output, parts)

    def count(self, events: Events, split: Split) -> int:
        """Return how many matches all events have, as one step that ends the windows gives them."""
        if self._drifting is not None:
            return len(self.step(events, split, ended=True))
        return count_in_windows(self.task, self.matcher, self._chosen(events), split.closed)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        state = super().state()
        if self._strategy is None:
            return state
        held = self._strategy.held
        numbers = {"partition": held.partition, "ordinal": held.ordinal, "arrival": held.arrival}
        tables = [pa.table(numbers), pa.table({"times": held.times}), held.rows]
        windows, *kept = self._strategy.tables()
        if self._kind != self._layout:
            windows = OpenWindows.from_table(windows).cursors()
        if self._layout == "shared":
            kept = [_found_again(seen, windows, held) for seen in kept]
        return state.plus(State({"kind": self._layout}, [*tables, windows, *kept]))

    def restore(
        self, state: State, opened: Windows | None = None, taken: Integers | None = None
    ) -> None:
        """Go on from what `state` returned, maybe in another process.

        Where it is known, these windows are open, and partitions have had so many events.
        """
        super().restore(state)
        header, tables = state.content()
        if not tables:
            require(opened is None or not len(opened), "windows are missing")
            return
        numbers, times, rows, *kept = tables
        partitions = range(min(self._frontier, NATURAL.stop))
        held = Events(
            typed(rows, self._nothing.rows.schema),
            *integers(numbers, partition=partitions, ordinal=NATURAL, arrival=partitions),
            *integers(times, times=ANY),
        )
        self._require_rows(held)
        if taken is not None:
            known = held.partition < len(taken)
            known[known] = held.ordinal[known] < taken[held.partition[known]]
            require(known.all(), "rows have not come yet")
        kind = header.get("kind")
        require(kind == self._layout, f"windows are {kind}")
        names = integers(kept[0], partition=partitions, number=ANY, first=NATURAL)
        require_same(opened, *names)
        begin = np.flatnonzero(np.diff(held.partition, prepend=-1))
        require(np.isin(held.partition[begin], names[0]).all(), "rows have no window")
        self._strategy = self._choose(0)
        if self._kind != self._layout:
            kept[0] = OpenWindows.at_cursors(kept[0]).table()
        if self._kind == "separate":
            OpenWindows.from_table(kept[0]).require_rows(held, reach_of(self.task).back)
        self._strategy.restore(kept, held)

    def _require_rows(self, held: Events) -> None:
        """Refuse rows that are not by partition, and in each without a gap."""
        size = len(held.partition)
        require(held.rows.num_rows == size, "rows have no numbers")
        require(len(held.times) == (size if self._timed else 0), "rows have no times")
        step = np.diff(held.partition)
        require((step >= 0).all(), "rows are not by partition")
        inside = step == 0
        require((np.diff(held.ordinal)[inside] == 1).all(), "rows are missing")
        require((np.diff(held.arrival)[inside] > 0).all(), "arrivals do not rise")

    @property
    def _fingerprint(self) -> str:
        bound = self.task.bound
        return f"{fingerprint(bound)} duplicates={bound.query.duplicates}"

    def _chosen(self, events: Events) -> Events:
        """Return events with what matching needs."""
        times = events.times if self._timed else events.times[:0]
        if self._drifting is not None and self._drifting.time is not None and not len(times):
            # They do not travel, as a column has them.
            times = valid_times(self._drifting.time, events.rows.column(self._drifting.time))
        return events.showing(events.rows.select(self._columns), times)

    def _choose(self, rows: int) -> Strategy:
        """Choose how to match, when it is known how many events come at once."""
        if self._layout != "shared":
            return self._make(self._layout)
        ready = self._shared or rows >= WORTH_PREDICATES or is_ready(self.matcher)
        return self._make("shared" if self._worth and ready else "separate")

    def _match_piece(self, events: Events, split: Split) -> WindowMatches:
        assert self._strategy is not None
        try:
            return self._strategy.step(events, split)
        except GivesUpError:
            self._strategy = self._apart(self._strategy)
            return self._strategy.step(events, split)

    def _apart(self, shared: Strategy) -> Strategy:
        """Go on with windows one by one, where their searches stand."""
        windows, repeats = shared.tables()
        separate = self._make("separate")
        separate.restore([OpenWindows.at_cursors(windows).table(), repeats], shared.held)
        return separate

    def _make(self, kind: str) -> Strategy:
        """Return a way to match by its name in saved state."""
        self._kind = kind
        strategy: Strategy
        if self._drifting is not None:
            make = DriftingWindows if self.task.bound.uncertainty is None else UncertainWindows
            strategy = make(
                self.task, self.matcher, self._nothing, self._rows_at_once, self._drifting
            )
        elif kind == "shared":
            assert isinstance(self.matcher, KernelMatcher)
            strategy = SharedWindows(self.task, self.matcher, self._nothing, self._rows_at_once)
            strategy.matched = self._matched
        elif kind == "covered":
            strategy = CoveredWindows(self.task, self.matcher, self._nothing)
        else:
            strategy = SeparateWindows(self.task, self.matcher, self._nothing, self._rows_at_once)
            strategy.matched = self._matched
        return WindowsByKey(strategy) if self.task.bound.partition_by else strategy


def _found_again(repeats: pa.Table, windows: pa.Table, held: Events) -> pa.Table:
    """Return the matches, of those that came out, that a search of an open window may come to."""
    partition, cursor = (windows.column(name).to_numpy() for name in ("partition", "cursor"))
    known, at = np.unique(partition, return_inverse=True)
    least = np.full(len(known), ENDED)
    np.minimum.at(least, at, cursor)
    row = places(held, known, least)
    inside = row < np.searchsorted(held.partition, known, "right")
    floors = np.full(len(known) + 1, ENDED)
    floors[:-1][inside] = held.arrival[row[inside]]
    owner, start = (repeats.column(name).to_numpy() for name in ("partition", "start"))
    place = np.minimum(np.searchsorted(known, owner), len(known))
    there = np.append(known, -1)[place] == owner
    again = start >= floors[np.where(there, place, len(known))]
    return repeats.take(pa.array(np.flatnonzero(again)))


def _pieces(events: Events, split: Split, rows: int) -> Iterator[tuple[Events, Split]]:
    """Yield steps of at most `rows` events: they fit into fast memory, and make up the step."""
    size = len(events.arrival)
    if size <= rows:
        yield events, split
        return
    begun_at = _begun_at(events, split)
    for low in range(0, size, rows):
        high = min(low + rows, size)
        first = events.arrival[low] if low else np.iinfo(np.int64).min
        stop = events.arrival[high] if high < size else np.iinfo(np.int64).max
        # Both lists are ordered by the events that open and close.
        opened = np.arange(*np.searchsorted(begun_at, (first, stop)))
        closed = np.arange(*np.searchsorted(split.closed.closed_at, (first, stop)))
        yield (
            events.slice(low, high),
            Split(take_windows(split.opened, opened), take_windows(split.closed, closed)),
        )


def _begun_at(events: Events, split: Split) -> Integers:
    """Return the arrivals of the events that open windows."""
    opened = split.opened
    if len(events.partition) and not events.partition.any():
        return events.arrival[places(events, opened.partition, opened.first)]
    order = np.lexsort((events.ordinal, events.partition))
    at = np.empty(len(opened), np.int64)
    find_pairs(events.partition[order], events.ordinal[order], opened.partition, opened.first, at)
    return events.arrival[order[at]]
