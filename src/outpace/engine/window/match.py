"""The instance: the matches of a query in windows, as events come and windows open and close.

The events of a window are a table of their own: a match is found in a window if and only if it is
one of that table. It is returned by the step that makes it final there, or that closes the window,
and x, the event that made it so, does not depend on how the stream is cut into steps. Where a
stream leads a window's time is told by events alone: those of the window, and those that close it.

Without duplicates a match that several windows find is returned once, for the first of them.

Memory: the rows of open windows that an undecided match may still need, the open windows, the
matches that start in them where windows overlap, and what one step returns.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Booleans, Integers, Matcher, Task
from outpace.engine.match.operator import fingerprint, kept_columns
from outpace.engine.match.output import match_rows
from outpace.engine.match.reach import reach_of
from outpace.engine.state import pack, unpack
from outpace.engine.window.contract import OPEN, Events, Split, Windows
from outpace.engine.window.opened import OpenWindows, take_windows
from outpace.engine.window.result import WindowMatches, identities, with_numbers
from outpace.engine.window.rows import joined, kept, no_events, places
from outpace.engine.window.seen import Seen
from outpace.engine.window.separate import ROWS_AT_ONCE, Part, SeparateMatcher, Stretches
from outpace.errors import StateError, UnsupportedError
from outpace.pattern.query import Rows

#: The frontier of an instance that is given no more events.
ENDED = np.iinfo(np.int64).max


class WindowMatcher:
    """Matches a query in the windows that an instance was given.

    Parameters
    ----------
    task
        The query; it has windows.
    matcher
        How one window is matched; by default the fastest way that covers the query.
    rows_at_once
        Rows of windows that are gathered at once where windows are matched one by one.
    """

    def __init__(
        self, task: Task, matcher: Matcher | None = None, *, rows_at_once: int = ROWS_AT_ONCE
    ) -> None:
        query = task.bound.query
        if query.rows is Rows.ALL_WITH_UNMATCHED:
            raise UnsupportedError(
                "windows cannot return unmatched rows",
                hint="use ALL ROWS PER MATCH without WITH UNMATCHED ROWS",
            )
        self.task = task
        self.matcher = choose_matcher(task).matcher if matcher is None else matcher
        self._separate = SeparateMatcher(task, self.matcher, rows_at_once=rows_at_once)
        self._back = reach_of(task).back
        self._columns = kept_columns(task, task.bound.schema)
        self._held = no_events(task.bound.schema.empty_table().select(self._columns).schema)
        self._open = OpenWindows.none()
        self._seen = Seen()
        self._frontier = 0

    @property
    def frontier(self) -> int:
        """No later match is final before this event: its x is not less."""
        return self._frontier

    @property
    def horizon(self) -> int:
        """No later match starts before this event, so those that do cannot come again."""
        return min(self._frontier, int(self._open.begun_at.min(initial=self._frontier)))

    @property
    def rows_kept(self) -> int:
        """How many rows undecided matches may still need."""
        return len(self._held.ordinal)

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return len(self._open)

    def step(
        self, events: Events, split: Split, *, arrived: int | None = None, ended: bool = False
    ) -> WindowMatches:
        """Take the next events of the instance's windows and return what became final.

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
        chosen = replace(events, rows=events.rows.select(self._columns))
        held = joined(self._held, chosen)
        at = places(held, split.opened.partition, split.opened.first)
        added = OpenWindows.fresh(split.opened, held.arrival[at])
        windows = self._open.updated(added, split.closed)
        fresh = np.isin(windows.windows.partition, events.partition)
        parts = self._match(held, windows, fresh)
        matches = WindowMatches.joined(self.task.bound.output, parts).ordered()
        if not self.task.bound.query.duplicates and len(matches):
            matches = self._seen.new(matches)
        # Everything above only reads, so that a step that fails leaves the matcher as it was.
        self._retain(held, windows, matches)
        last = int(events.arrival[-1]) + 1 if len(events.arrival) else 0
        self._frontier = ENDED if ended else max(self._frontier, last, arrived or 0)
        return matches

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `restore`."""
        held = self._held
        places_of = {
            "partition": held.partition,
            "ordinal": held.ordinal,
            "arrival": held.arrival,
        }
        tables = [
            self._open.table(),
            self._seen.table(),
            pa.table(places_of),
            pa.table({"times": held.times}),
            held.rows,
        ]
        header = {"query": fingerprint(self.task.bound), "frontier": self._frontier}
        return pack(header, tables)

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned, maybe in another process."""
        header, tables = unpack(data)
        if header.get("query") != fingerprint(self.task.bound) or len(tables) != 5:
            raise StateError(
                "the saved state belongs to another query or another schema",
                hint="resume it with the query that it was saved from, or start from the input",
            )
        windows, seen, places_of, times, rows = tables
        self._open = OpenWindows.from_table(windows)
        self._seen = Seen.from_table(seen)
        self._held = Events(
            rows,
            _integers(places_of, "partition"),
            _integers(places_of, "ordinal"),
            _integers(places_of, "arrival"),
            _integers(times, "times"),
        )
        self._frontier = int(str(header["frontier"]))

    def _match(self, held: Events, windows: OpenWindows, fresh: Booleans) -> list[WindowMatches]:
        closing = windows.windows.stop != OPEN
        parts = []
        for chosen, ended in ((closing, True), (fresh & ~closing, False)):
            at = np.flatnonzero(chosen)
            if not len(at):
                continue
            some = windows.take(at)
            stretches = self._stretches(held, some)
            for part in self._separate.match(held, stretches, some.resume, ended=ended):
                parts.append(self._matches(part, some.windows))
                _store(windows, at[part.at], part)
        return parts

    def _stretches(self, held: Events, some: OpenWindows) -> Stretches:
        """Return the rows that windows still need, as far as they have come."""
        windows = some.windows
        begin = np.maximum(some.keep - self._back, windows.first)
        return Stretches(
            places(held, windows.partition, begin),
            places(held, windows.partition, windows.stop),
            windows.first,
            windows.closed_at,
        )

    def _matches(self, part: Part, windows: Windows) -> WindowMatches:
        """Return what was found as rows of the result, with their numbers."""
        bound = self.task.bound
        table, match_of = match_rows(self.task, part.block, part.found)
        of = take_windows(windows, part.window)
        row_of = match_of.astype(np.int64)
        counts = np.bincount(row_of, minlength=len(of))
        table = with_numbers(
            bound,
            table,
            part.event[row_of],
            of.number[row_of],
            of.start_time[row_of],
            of.end_time[row_of],
        )
        return WindowMatches(
            table,
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            part.event,
            part.phase,
            of.number,
            of.partition,
            identities(self.task, part.block, part.found),
        )

    def _retain(self, held: Events, windows: OpenWindows, matches: WindowMatches) -> None:
        """Keep the open windows, the rows that they need, and what they may find again."""
        self._open = windows.take(np.flatnonzero(windows.windows.stop == OPEN))
        still = self._open.windows
        begin = np.maximum(self._open.keep - self._back, still.first)
        keep = np.zeros(len(held.ordinal) + 1, np.int64)
        np.add.at(keep, places(held, still.partition, begin), 1)
        np.add.at(keep, places(held, still.partition, np.full(len(still), OPEN)), -1)
        self._held = kept(held, np.cumsum(keep[:-1]) > 0)
        if self.task.bound.query.duplicates:
            return
        self._seen.remember(matches)
        self._seen.forget(self._begun())

    def _begun(self) -> dict[int, int]:
        """Return for each partition the arrival of the first event that is in an open window."""
        partitions, first = np.unique(self._open.windows.partition, return_index=True)
        begun = np.minimum.reduceat(self._open.begun_at, first) if len(first) else first
        return dict(zip(partitions.tolist(), begun.tolist(), strict=True))


def _store(windows: OpenWindows, at: Integers, part: Part) -> None:
    """Note where matching stopped."""
    resume, after = windows.resume, part.resume
    resume.next_start[at] = after.next_start
    resume.barrier[at] = after.barrier
    resume.number[at] = after.number
    resume.completed_to[at] = after.completed_to
    for index, window in enumerate(at.tolist()):
        resume.consumed[window] = after.consumed[index]
    windows.keep[at] = part.keep


def _integers(table: pa.Table, name: str) -> Integers:
    return np.array(table.column(name).to_numpy(), np.int64)
