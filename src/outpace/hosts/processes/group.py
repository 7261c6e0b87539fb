"""A group of queries that runs over sources: these are read once, and matched in the program.

What a query of a group does with an event is little, often less than to send it to a process. So
the operators of all queries are where the events are ordered, and no process is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait

import pyarrow as pa

from outpace.engine.back import BackCounters
from outpace.engine.group import GroupOperator
from outpace.engine.group_spec import GroupSpec
from outpace.engine.message import Aside, SetAside, Stimulus
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
    count
        Told how many events are set aside, each once, and why.
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
        count: Callable[[Aside, int], None],
    ) -> None:
        spec = GroupSpec(
            group.queries, schema, sources=sources, choose=compiled_soon, together=True
        )
        self.front, self.back = GroupOperator(spec), _NothingBehind()
        self._aside, self._count = aside, count

    def busy(self) -> float | None:
        """Nobody measures it."""
        return None

    def push(self, stimulus: Stimulus) -> Iterator[Found]:
        """Let all queries take what happened, and yield what they find."""
        step = self.front.step(stimulus)
        for kind in Aside:
            self._count(kind, step.count(kind))
        for (name, kind), rows in step.aside.items():
            self._aside(SetAside(kind, rows), name)
        yield {name: table for name, table in step.matches.items() if table.num_rows}

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
