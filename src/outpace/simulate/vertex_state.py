"""What a vertex of the twin holds and does: Algorithms 1 to 3 of the CEPSim paper.

Less than a billionth of an event is nothing to do, and what would be left over by less than a
billionth of the input is taken along: otherwise rounding errors would be processed one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from outpace.simulate.event_set import (
    EMPTY,
    EventSet,
    EventSetQueue,
    add_sets,
    add_totals,
    spread_of,
)
from outpace.simulate.layout import SAME_TIME
from outpace.simulate.model import BatchOperator, WindowedOperator

#: The part of an event, and of the input, that is not worth a step.
NOTHING = 1e-9


def is_over(events: float, bound: float) -> bool:
    """Return whether so many events are more than a bound, by more than a rounding error.

    Examples
    --------
    >>> is_over(2048.0, 2048.0), is_over(2049.0, 2048.0)
    (False, True)
    """
    return events - bound > NOTHING * bound


class VertexState:
    """The queues of a vertex, one for each predecessor; a producer has one of its own.

    Parameters
    ----------
    cost
        Instructions per event; 0 is no limit.
    inputs
        The number of queues.
    bound
        How many events may wait in each queue.
    """

    def __init__(self, cost: float, inputs: int, bound: float) -> None:
        self.cost = cost
        self.bound = bound
        self.queues = [EventSetQueue() for _ in range(inputs)]

    def waiting(self, now: float = math.inf) -> float:
        """Return how many events wait in all queues by now, without what their senders keep."""
        waiting = 0.0
        for queue in self.queues:
            waiting += self.open_events(queue, now)
        return waiting

    def open_events(self, queue: EventSetQueue, now: float) -> float:
        """Return how many events of a queue are within its bound; the sender keeps the rest."""
        sent = queue.until(now)
        return self.bound if is_over(sent, self.bound) else sent

    def possible(self, limit: float, now: float) -> float:
        """Return how many events could be processed if instructions were free; 0 for nothing.

        Parameters
        ----------
        limit
            How many events the successors have room for.
        now
            What was sent later does not count.
        """
        possible = min(self.waiting(now), limit)
        return possible if possible > NOTHING else 0.0

    def take(self, instructions: float, limit: float, now: float) -> list[EventSet]:
        """Dequeue what can be processed, in proportion from each queue (Algorithm 1)."""
        possible = self.possible(limit, now)
        if self.cost:
            possible = min(possible, instructions / self.cost)
        if possible <= NOTHING:
            return [EMPTY] * len(self.queues)
        return [add_sets(queue.dequeue_sets(part)) for queue, part in self._parts(possible, now)]

    def clear(self) -> EventSet:
        """Return the sum of all that is held, and hold nothing."""
        return add_sets([queue.dequeue_all() for queue in self.queues])

    def _parts(self, possible: float, now: float) -> Iterator[tuple[EventSetQueue, float]]:
        """Yield how many of the events each queue has a part of, in proportion; inf for all."""
        waiting = self.waiting(now)
        everything = waiting - possible <= NOTHING * waiting
        for queue in self.queues:
            within = self.open_events(queue, now)
            if not everything:
                yield queue, possible * within / waiting
            else:
                yield queue, math.inf if within == queue.cardinality else within


class WindowState(VertexState):
    """A windowed operator: slots in a circle, one for each advance period of a window.

    Periods are counted from `origin`. The first window closes after `slots` periods; before that
    the index moves without an output. The totals of accumulated events are kept until an output
    carries them, so that none are lost.
    """

    def __init__(self, vertex: WindowedOperator, inputs: int, bound: float, origin: float) -> None:
        super().__init__(float(vertex.instructions), inputs, bound)
        self._vertex = vertex
        self.restart(origin)

    def restart(self, origin: float) -> None:
        """Begin anew: periods count from this time, and nothing is accumulated."""
        self._origin = origin
        self._periods = 0
        self._index = 0
        self._slots = [[EMPTY] * len(self.queues) for _ in range(self._vertex.slots)]
        self.uncounted: Mapping[str, float] = {}
        self._uncounted_events = 0.0

    def due(self, begin: float) -> bool:
        """Return whether an advance period has ended."""
        following = self._origin + (self._periods + 1) * self._vertex.period
        return begin >= following - SAME_TIME

    def close(self, begin: float) -> EventSet:
        """End an advance period; return the output of the window (Algorithm 2, lines 2–8)."""
        self._periods += 1
        output = self._output(begin) if self._periods >= len(self._slots) else EMPTY
        self._index = (self._index + 1) % len(self._slots)
        self._slots[self._index] = [EMPTY] * len(self.queues)
        return output

    def accumulate(self, taken: Sequence[EventSet], end: float) -> None:
        """Add what was taken from each queue to the current slot (Algorithm 2, lines 9–18)."""
        slot = self._slots[self._index]
        for position, event_set in enumerate(taken):
            slot[position] += event_set.update(end)
            self.uncounted = add_totals(self.uncounted, event_set.totals)
            self._uncounted_events += event_set.cardinality

    def clear(self) -> EventSet:
        """Return the sum of all that waits and that no output has counted, and hold nothing."""
        accumulated = EventSet(self._uncounted_events, totals=self.uncounted)
        waiting = super().clear()
        self._slots = [[EMPTY] * len(self.queues) for _ in self._slots]
        self.uncounted = {}
        self._uncounted_events = 0.0
        return accumulated + waiting

    def _output(self, begin: float) -> EventSet:
        """Return the output of the window that ends (Algorithm 3); empty if nothing is in it."""
        by_predecessor = [
            add_sets([slot[position] for slot in self._slots])
            for position in range(len(self.queues))
        ]
        everything = add_sets(by_predecessor)
        if not everything.cardinality:
            return EMPTY
        events = self._vertex.combination.combine([s.cardinality for s in by_predecessor])
        if not 0 < events < math.inf:
            return EMPTY
        output = EventSet(events, begin, everything.update(begin).latency, self.uncounted)
        self.uncounted = {}
        self._uncounted_events = 0.0
        return output


class BatchState(VertexState):
    """A batch operator: the batch that it is working on, and what that still needs."""

    def __init__(self, vertex: BatchOperator, inputs: int, bound: float, origin: float) -> None:
        # Where an event costs nothing, what a batch costs says how much the operator needs to run.
        super().__init__(float(vertex.instructions or vertex.setup), inputs, bound)
        self._vertex = vertex
        self.setup = float(vertex.setup)
        self.restart(origin)

    def restart(self, origin: float) -> None:
        """Begin anew: intervals count from this time, and there is no batch."""
        self._origin = origin
        self._intervals = 0
        self.batch = EMPTY
        self._owed = 0.0
        self.owed_setup = 0.0

    def required(self, now: float, sent: float) -> float | None:
        """Return the instructions for the batch that runs or could begin; None without one.

        Parameters
        ----------
        now
            The time.
        sent
            What was sent later than this does not count.
        """
        if self.batch.cardinality:
            return self._owed
        due = now >= self._origin + self._intervals * self._vertex.interval - SAME_TIME
        events = self._next_events(sent)
        return self._cost_of(events) if due and events else None

    def begin(self, now: float, sent: float) -> EventSet:
        """Begin a batch if none runs and one can begin; return what it takes."""
        if self.batch.cardinality or self.required(now, sent) is None:
            return EMPTY
        if self._vertex.interval:
            passed = (now - self._origin + SAME_TIME) / self._vertex.interval
            self._intervals = math.floor(passed) + 1
        events = self._next_events(sent)
        self._owed, self.owed_setup = self._cost_of(events), self.setup
        parts = self._parts(events, sent)
        taken = [taken for queue, part in parts for taken in queue.dequeue_sets(part)]
        self.batch = replace(add_sets(taken), spread=spread_of(taken))
        return self.batch

    @property
    def next_setup(self) -> float:
        """The instructions of the setup that are left, or those of the next batch."""
        return self.owed_setup if self.batch.cardinality else self.setup

    def work(self, instructions: float) -> float:
        """Spend instructions on the batch, and return how many it took."""
        used = min(instructions, self._owed)
        self._owed -= used
        self.owed_setup = max(0.0, self.owed_setup - used)
        return used

    def finish(self) -> EventSet:
        """Return the batch if all of it is done."""
        if self._owed > NOTHING * self._cost_of(1.0):
            return EMPTY
        done, self.batch, self._owed = self.batch, EMPTY, 0.0
        return done

    def clear(self) -> EventSet:
        """Return the sum of the batch and of all that waits, and hold nothing."""
        running, self.batch, self._owed = self.batch, EMPTY, 0.0
        return running + super().clear()

    def _next_events(self, sent: float) -> float:
        return min(self.possible(math.inf, sent), float(self._vertex.events_max))

    def _cost_of(self, events: float) -> float:
        return self.setup + events * self._vertex.instructions
