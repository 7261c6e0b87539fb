"""The merger: the matches of many instances as one, in their total order, each of them once.

An instance gives its matches in order, and with them two promises: no later match has a number x
below its frontier, and none starts before its horizon. Matches below the frontiers of all are
complete and come out, in their total order (`outpace.engine.window_match.result`). A match that
windows of different instances found comes out for the first of them: the matches that came out are
remembered as an instance remembers its own (`outpace.engine.window_match.repeats`).

Memory: the matches between the slowest frontier and the fastest, and what tells apart at most twice
those that came out and start behind the slowest horizon. Paper: SPACE (Amann 2018) 2.3.4 and 3.1.5.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State, integers, require, typed
from outpace.engine.window_match.matcher import ENDED
from outpace.engine.window_match.repeats import KnownMatches
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import StateError


class Merger(Stateful):
    """Puts the matches of instances together.

    Parameters
    ----------
    schema
        The columns of the result.
    instances
        The number of instances.
    distinct
        Drop matches that a window has found before. Not needed where no two instances have windows
        with events in common, as an instance drops its own.
    keyed
        Whether windows of several partitions may close together.
    """

    CHANGED = ("_waiting", "_frontiers", "_horizons", "_known")

    def __init__(
        self, schema: pa.Schema, instances: int, *, distinct: bool, keyed: bool = False
    ) -> None:
        self._schema = schema
        self._keyed = keyed
        self._nothing = WindowMatches.none(schema)
        self._distinct = distinct
        #: For each instance the parts that wait, each with the earliest start in it.
        self._waiting: list[deque[tuple[int, WindowMatches]]] = [deque() for _ in range(instances)]
        self._frontiers = [0] * instances
        self._horizons = [0] * instances
        self._known = KnownMatches()

    @property
    def frontier(self) -> int:
        """All matches with a smaller x have been given."""
        return min(self._frontiers)

    @property
    def waiting(self) -> int:
        """How many matches wait for an instance that is behind."""
        return sum(len(matches) for queue in self._waiting for _, matches in queue)

    @property
    def remembered(self) -> int:
        """How many matches are remembered because they may be found again."""
        return len(self._known)

    def push(self, instance: int, matches: WindowMatches) -> None:
        """Take the next matches of an instance, in their order."""
        if len(matches):
            if len(self._frontiers) > 1:
                self._expect(instance, int(matches.event[0]), "has a match of")
            earliest = int(matches.ids.start.min()) if self._distinct else 0
            self._waiting[instance].append((earliest, matches))

    def advance(self, instance: int, frontier: int, horizon: int) -> None:
        """Take the promises of an instance, which hold for what it has not given yet.

        Parameters
        ----------
        instance
            Which one.
        frontier
            No later match has a smaller x; `ENDED` where there is none.
        horizon
            No later match starts with an earlier event.
        """
        self._expect(instance, frontier, "goes up to")
        self._frontiers[instance] = frontier
        self._horizons[instance] = horizon

    def _expect(self, instance: int, event: int, what: str) -> None:
        """Refuse what an instance has said before, or should have."""
        if event < (known := self._frontiers[instance]):
            raise out_of_turn(instance, f"it {what} event {event}, after all before {known}")

    def pop(self) -> WindowMatches:
        """Return what is complete, in its order."""
        return self._before(self.frontier)

    def rest(self) -> WindowMatches:
        """Return all that waits, in its order, once all instances gave what they found so far."""
        return self._before(ENDED)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        promises = pa.table({"frontier": self._frontiers, "horizon": self._horizons})
        parts = [
            (instance, earliest, matches)
            for instance, queue in enumerate(self._waiting)
            for earliest, matches in queue
        ]
        queued = {
            "instance": [instance for instance, _, _ in parts],
            "earliest": [earliest for _, earliest, _ in parts],
            "matches": [len(matches) for *_, matches in parts],
        }
        matches = WindowMatches.joined(self._schema, [matches for *_, matches in parts])
        waiting = State({}, [pa.table(queued, _QUEUED), pa.table(matches.numbers), matches.table])
        return State({}, [promises, self._known.table()], {"waiting": waiting})

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process."""
        _, (promises, seen) = state.content(2)
        if promises.num_rows != len(self._frontiers):
            raise StateError("the saved state belongs to another number of instances")
        natural = range(ENDED + 1)
        read = integers(promises, frontier=natural, horizon=natural)
        self._frontiers, self._horizons = (line.tolist() for line in read)
        self._known = KnownMatches.from_table(seen)
        _, (queued, numbers, rows) = state.part("waiting").content(3)
        matches = WindowMatches.of_saved(numbers, typed(rows, self._schema))
        instances, earliest, counts = integers(
            queued,
            instance=range(len(self._frontiers)),
            earliest=natural,
            matches=range(1, len(matches) + 1),
        )
        ends = np.cumsum(counts)
        require(len(matches) == counts.sum(), "matches belong to no instance")
        self._waiting = [deque() for _ in self._frontiers]
        for instance, least, stop, count in zip(instances, earliest, ends, counts, strict=True):
            part = matches.take(_rows(stop - count, stop))
            require((np.diff(part.event) >= 0).all(), "matches that wait are not in their order")
            self._waiting[instance].append((int(least), part))

    def _before(self, frontier: int) -> WindowMatches:
        """Return the matches below a frontier, in their order; one instance gives no others."""
        if len(self._waiting) == 1:
            ready = [part for _, part in self._waiting[0]]
            self._waiting[0].clear()
        else:
            ready = [part for queue in self._waiting for part in _before(queue, frontier)]
        matches = WindowMatches.joined(self._schema, ready) if ready else self._nothing
        if len(ready) > 1 and len(self._waiting) > 1:
            matches = matches.ordered()
        if self._distinct:
            matches = self._known.new(matches)
            none = _rows(0, 0)
            self._known.remember(matches, none, none, elsewhere=self._horizon())
        return matches.by_starts() if self._keyed else matches

    def _horizon(self) -> int:
        """Return the first event that a match which comes later may start with."""
        # Horizons say nothing of what was given before them, so matches that wait count as well.
        waiting = [earliest for queue in self._waiting for earliest, _ in queue]
        return min([*self._horizons, *waiting])


_QUEUED = pa.schema([(name, pa.int64()) for name in ("instance", "earliest", "matches")])


def out_of_turn(instance: int, detail: str) -> StateError:
    """Return the error for an answer that is not the next one of its instance."""
    return StateError(
        f"an answer of instance {instance} comes out of turn",
        detail=detail,
        hint="the answers of an instance are taken in the order of its deliveries, each once; "
        "after a restart all parts go on from states that were saved together",
    )


def _before(queue: deque[tuple[int, WindowMatches]], frontier: int) -> list[WindowMatches]:
    """Take the matches below a frontier, the last part cut where the frontier lies."""
    ready: list[WindowMatches] = []
    while queue:
        earliest, part = queue[0]
        cut = int(np.searchsorted(part.event, frontier))
        if not cut:
            break
        ready.append(part.take(_rows(0, cut)))
        if cut < len(part):
            # Made now: of what is cut again and again it would be through all cuts before.
            _ = part.ids, part.phase, part.window, part.partition
            queue[0] = earliest, part.take(_rows(cut, len(part)))
            break
        queue.popleft()
    return ready


def _rows(start: int, stop: int) -> Integers:
    return np.arange(start, stop, dtype=np.int64)
