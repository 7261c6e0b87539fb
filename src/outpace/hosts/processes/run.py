"""The process host: sources are read, instances match in processes, matches come out in order.

`run` reads sources for as long as they last, `match_in_processes` a table. Matches are those of one
process, in the same order, whatever the number of instances, their scheduler and their speed.
Events are read when there is room for them, and with rate control when instances can keep up.
Whatever ends a run, an error in a source, in an instance or here, or an interrupt from the
keyboard, ends its processes and frees its shared memory.

Memory: the shared memory, a few batches of events, and what coordinator and instances keep.
Paper: SPACE (Amann 2018) 2.3.4, 3.1 and 4.5.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from multiprocessing.connection import wait
from types import TracebackType
from typing import Final

import pyarrow as pa

from outpace.engine.match.contract import Progress
from outpace.engine.merge.merger import ENDED
from outpace.engine.message import Answer, SourceEnded, TimeTold
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.sources import ticks_of
from outpace.engine.split.number import in_order
from outpace.errors import BindError, DataError, UnsupportedError
from outpace.hosts.processes.control import RateControl, RateController
from outpace.hosts.processes.metrics import Metrics
from outpace.hosts.processes.operator import BLOCK_ROWS, MEMORY, ParallelOperator
from outpace.hosts.processes.reader import SourceBatch, SourceReader
from outpace.hosts.processes.worker import Done
from outpace.ingest.source import Source
from outpace.pattern.argument import a_whole_number, an_instance
from outpace.pattern.bind.check import check_instances
from outpace.pattern.query import Query, checked_query
from outpace.pattern.windows import LandmarkWindows

#: The longest wait for anything, after which it is looked whether the run was stopped.
_TURN_S: Final = 0.1

#: Instances of a user may wait for something else than a core.
_PROCESSES_PER_CORE: Final = 8

_CONTROL: Final = RateControl()


def run(
    query: Query,
    sources: Source | Sequence[Source],
    *,
    rate_control: RateControl | None = _CONTROL,
    memory: int = MEMORY,
    batch_rows: int = BLOCK_ROWS,
) -> Run:
    """Run a query over sources, with its instances in processes of their own.

    Parameters
    ----------
    query
        What to detect; `Query.over` and `Query.instances` say in which windows and in how many
        processes. Without windows each partition is one.
    sources
        Where events come from, in the order (time, sequence number, source) of them all.
    rate_control
        How the rate is found at which sources are read; None reads whenever there is room.
    memory
        Bytes of shared memory for events on their way to instances.
    batch_rows
        How many events are read from a source at a time.

    Returns
    -------
    Run
        An iterator of tables of matches, in order. As a context manager it ends all processes on
        leaving.

    Examples
    --------
    >>> import outpace as op
    >>> pairs = (op.Query("pairs").order_by("ts").pattern("A B")
    ...          .define(A="type = 'a'", B="type = 'b'").measures(at="A.seq")
    ...          .over(op.windows.count(100)).instances(2))
    >>> with run(pairs, op.sources.simple_events(1000, types="ab")) as matches:
    ...     found = sum(table.num_rows for table in matches)
    >>> found == op.match(op.sources.simple_events(1000, types="ab").table(), pairs).num_rows
    True
    """
    checked_query(query)
    if query.order_of_arrival is not None:
        raise UnsupportedError(
            "the sources of a run are in order, so its query has no disorder",
            hint="leave out disorder, or push the rows of each source to op.open(query, sources=)",
        )
    several = list(sources) if isinstance(sources, Iterable) else []
    listed = [sources] if isinstance(sources, Source) else several
    if not listed or not all(isinstance(source, Source) for source in listed):
        raise BindError("sources are expected to run on", hint="see outpace.sources")
    memory = a_whole_number(memory, "memory", least=1)
    batch_rows = a_whole_number(batch_rows, "batch_rows", least=1)
    if rate_control is not None:
        hint = "write op.RateControl(aim_s=0.05), or None"
        an_instance(rate_control, RateControl, "rate control", hint=hint)
    times = sorted({source.time for source in listed})
    if len(times) > 1:
        raise DataError(
            "sources of one operator need the same time column",
            detail=f"there are {', '.join(times)}",
        )
    whole = query if query.windows is not None else query.over(LandmarkWindows())
    check_instances(whole)
    return Run(whole, listed, rate_control, memory, batch_rows)


def match_in_processes(query: Query, table: pa.Table, progress: Progress | None = None) -> pa.Table:
    """Return the matches of a query in the windows of a complete table.

    `progress` is told of the events that were handed out, of which instances have a few blocks.
    """
    check_instances(query)
    if query.scheduler is None:
        # The matches are the same, and more processes would take longer to start than to match.
        useful = min(max(1, table.num_rows), _PROCESSES_PER_CORE * (os.cpu_count() or 1))
        query = query.instances(min(query.instance_count, useful))
    spec = OperatorSpec(query, table.schema)
    told = progress or (lambda done, total: None)
    found: list[pa.Table] = []
    with ParallelOperator(query, table.schema) as operator:
        rows = in_order(spec.bound, table, spec.time)
        for begin in range(0, rows.num_rows, BLOCK_ROWS):
            told(begin, rows.num_rows)
            found += operator.push(rows.slice(begin, BLOCK_ROWS))
        operator.step(SourceEnded())
        found += operator.rest()
        told(rows.num_rows, rows.num_rows)
    return pa.concat_tables([spec.bound.output.empty_table(), *found])


class Run:
    """A query that runs over sources; see `run`.

    Examples
    --------
    >>> import outpace as op
    >>> query = op.Query().order_by("ts").pattern("A").over(op.windows.count(10))
    >>> with op.run(query, op.sources.simple_events(30)) as matches:
    ...     tables = list(matches)
    >>> matches.metrics.operator.events
    30
    """

    def __init__(
        self,
        query: Query,
        sources: list[Source],
        rate_control: RateControl | None,
        memory: int,
        batch_rows: int,
    ) -> None:
        self._query = query
        self._sources = sources
        self._memory = memory
        self._batch_rows = batch_rows
        self._controller = (
            None if rate_control is None else RateController(rate_control, query.instance_count)
        )
        self.metrics = Metrics.of([source.id for source in sources], query.instance_count)
        self._operator: ParallelOperator | None = None
        self._stopped = threading.Event()
        self._began = 0.0
        #: Whether the order of the sources is that of the time which closes windows.
        self._time_is_ordered = sources[0].time in [item.column for item in query.order[:1]]
        self._tables = self._run()

    def __repr__(self) -> str:
        sources = ", ".join(source.id for source in self._sources)
        read = f"{self.metrics.operator.events} events"
        return f"run of {self._query.name} over {sources}: {read}"

    def __iter__(self) -> Iterator[pa.Table]:
        return self

    def __next__(self) -> pa.Table:
        return next(self._tables)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tables.close()

    def stop(self) -> None:
        """Read no more events and end; windows that are open are left as they are.

        May be called from another thread. What is not matched yet is dropped.
        """
        self._stopped.set()

    def _run(self) -> Generator[pa.Table, None, None]:
        reader = SourceReader(self._sources, self._sources[0].time, self._batch_rows)
        try:
            for table in self._turns(reader):
                if self._stopped.is_set():
                    return
                if table.num_rows:
                    self.metrics.operator.matches += table.num_rows
                    yield table
        finally:
            reader.stop()
            if self._operator is not None:
                self._operator.close()

    def _turns(self, reader: SourceReader) -> Iterator[pa.Table]:
        """Yield what each turn of the loop completes."""
        batch: SourceBatch | None = None
        reading = True
        while not self._stopped.is_set():
            if batch is None and reading and reader.ready:
                batch = reader.take()
                reading = batch is not None
                self._begin(batch)
            size = self._readable(batch)
            if batch is not None and size:
                yield from self._push(batch, size)
                batch = batch.after(size)
            elif self._operator is not None:
                if self._operator.back.settled:
                    return
                empty = batch is None and reading
                self._operator.receive(self._pause(batch), [reader.wakes] if empty else [])
                yield self._operator.take()
            elif reading:
                wait([reader.wakes], _TURN_S)
            else:
                return
            self._look()

    def _begin(self, batch: SourceBatch | None) -> None:
        """Take note of a new batch, or of the end of all sources."""
        if batch is None:
            if self._operator is not None:
                self._operator.step(SourceEnded())
            return
        if self._operator is None:
            self._operator = ParallelOperator(
                self._query, batch.rows.schema, memory=self._memory, watch=self._answered
            )
            self._began = time.perf_counter()
        for source, count in batch.counts.items():
            self.metrics.sources[source].events = count
            self.metrics.sources[source].buffered = batch.buffered[source]

    def _readable(self, batch: SourceBatch | None) -> int:
        """Return how many events of a batch may go to instances now."""
        if batch is None or self._operator is None or not self._operator.room:
            return 0
        if self._controller is None:
            return len(batch)
        front, now = self._operator.front, time.perf_counter()
        assert front.schedule is not None
        self._controller.adjust(now, front.loads, front.schedule.duplication)
        return self._controller.block(now, len(batch))

    def _pause(self, batch: SourceBatch | None) -> float:
        """Return how long to wait for answers, until something else may be done."""
        assert self._operator is not None
        if batch is None or self._controller is None or not self._operator.room:
            return _TURN_S
        return self._controller.wait_s(len(batch))

    def _push(self, batch: SourceBatch, size: int) -> Iterator[pa.Table]:
        assert self._operator is not None
        if self._controller is not None:
            self._controller.spend(size)
        yield from self._operator.push(batch.rows.slice(0, size))
        if size == len(batch) and self._time_is_ordered and batch.watermark < ENDED:
            kind = batch.rows.schema.field(self._sources[0].time).type
            self._operator.step(TimeTold(batch.watermark // ticks_of(kind)))

    def _answered(self, instance: int, events: int, done: Done, answer: Answer) -> None:
        """Note what an instance did."""
        known = self.metrics.instances[instance]
        known.events += events
        known.matches += len(answer.matches)
        known.open_windows = answer.open_windows
        known.rows_kept, known.state_bytes = done.rows_kept, done.bytes_kept
        known.busy_s += done.seconds
        if self._controller is not None:
            self._controller.worked(instance, events, done.seconds)

    def _look(self) -> None:
        """Bring the metrics up to date and keep a sample where one is due."""
        if self._operator is None:
            return
        front, back = self._operator.front, self._operator.back
        seconds = time.perf_counter() - self._began
        ended = back.settled
        if not ended and not self.metrics.due(seconds):
            return
        for known, load in zip(self.metrics.instances, front.loads, strict=True):
            known.waiting = load
        operator = self.metrics.operator
        assert front.schedule is not None
        assert front.splitter is not None
        operator.events = front.schedule.events_in
        operator.sent = front.schedule.events_sent
        operator.open_windows = front.splitter.open_windows
        operator.waiting_matches = back.merger.waiting
        operator.remembered_matches = back.merger.remembered
        operator.rate_limit = self._controller.rate if self._controller is not None else 0.0
        self.metrics.sample(seconds)
