"""A group of queries that runs over sources: these are read once, and matched in the program.

What a query of a group does with an event is little, often less than to send it to a process. So
the operators of all queries are where the events are ordered, and no process is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait

import pyarrow as pa

from outpace.engine.back import BackCounters
from outpace.engine.front import FrontCounters
from outpace.engine.group import GroupOperator
from outpace.engine.message import Emit, EventsArrived, SetAside, Stimulus
from outpace.engine.order.contract import OrderCounters
from outpace.engine.order.drift import ClockReading
from outpace.hosts.background import compiled_soon
from outpace.pattern.group import QueryGroup

#: What queries of a group found, by their names, without those that found nothing.
Found = dict[str, pa.Table]


class OperatorsInProgram:
    """The operators of a group, asked as a `ParallelOperator` is.

    Parameters
    ----------
    group, schema, sources
        The queries, the columns of events, and the identifiers of several sources.
    aside
        Told of the events that are set aside, and by which query.
    """

    #: There is always room, and nothing lies in shared memory.
    room = True
    bytes_written = 0

    def __init__(
        self,
        group: QueryGroup,
        schema: pa.Schema,
        sources: tuple[str, ...] | None,
        aside: Callable[[SetAside, str], None],
    ) -> None:
        self._operator = GroupOperator(group.queries, schema, sources=sources, choose=compiled_soon)
        self._aside = aside
        self._events = 0
        self.front, self.back = self, _NothingBehind()

    def busy(self) -> float | None:
        """Nobody measures it."""
        return None

    @property
    def timer(self) -> int | None:
        """When `TimerFired` is due; None where never."""
        return self._operator.timer

    @property
    def holding(self) -> str | None:
        """The source that the others wait for."""
        return self._operator.holding

    def wants(self, source: str) -> bool:
        """Say whether a source may go on."""
        return self._operator.wants(source)

    def clock_of(self, source: str) -> ClockReading | None:
        """Return what is known of the clock of a source; None where nothing is."""
        return self._operator.clock_of(source)

    def counters(self) -> FrontCounters:
        """Return what there was, and what waits."""
        instances = [one.instance for one in self._operator.operators]
        opened = sum(one.open_windows for one in instances)
        keys = max(one.partitions_kept for one in instances)
        waits = OrderCounters(buffered=self._operator.buffered)
        return FrontCounters(self._events, self._events, opened, keys, waits, (0,), (0,))

    def order_counters(self, source: str) -> OrderCounters:
        """Return how it goes with the order of a source, for the queries together."""
        return OrderCounters(buffered=self._operator.buffered)

    def push(self, stimulus: Stimulus) -> Iterator[Found]:
        """Let all queries take what happened, and yield what they find."""
        if isinstance(stimulus, EventsArrived):
            self._events += stimulus.rows.num_rows
        found: Found = {}
        given = self._operator.step(stimulus)
        for error in self._operator.failed.values():
            raise error
        for name, instructions in given.items():
            for one in instructions:
                if isinstance(one, SetAside):
                    self._aside(one, name)
                elif isinstance(one, Emit) and one.matches.table.num_rows:
                    found[name] = one.matches.table
        yield found

    def pop(self) -> Found:
        """Return what became complete meanwhile: nothing does."""
        return {}

    def receive(self, timeout: float | None, also: Sequence[Connection] = ()) -> None:
        """Wait for one of some connections; no answer comes."""
        wait(list(also), timeout)

    def close(self) -> None:
        """Nothing is open."""


class _NothingBehind:
    """What is asked instead of a merger."""

    settled = True

    def counters(self) -> BackCounters:
        return BackCounters(0, 0)
