"""The process host: sources are read, instances match in processes, matches come out in order.

`run` reads sources for as long as they last, `match_in_processes` a table. Matches are those of one
process, in the same order, whatever the number of instances, their scheduler and their speed.
Events are read when there is room for them, and with rate control when instances can keep up.
Whatever ends a run, an error in a source, in an instance or here, or an interrupt from the
keyboard, ends its processes and frees its shared memory.

Memory: the shared memory, a few batches of events, and what the parts of the operator keep.
Paper: SPACE (Amann 2018) 2.3.4, 3.1 and 4.5.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.match.contract import Progress
from outpace.engine.message import (
    Answer,
    Aside,
    EventsArrived,
    SetAside,
    SourceEnded,
    TimerFired,
    WatermarkArrived,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.times import as_integer
from outpace.engine.split.number import in_order
from outpace.engine.whole import with_ids
from outpace.errors import BindError, DataError, UnsupportedError, missing_column
from outpace.hosts.clock import clock_time
from outpace.hosts.processes.control import RateControl, RateController
from outpace.hosts.processes.join_sides import JoinedSides, sides_of
from outpace.hosts.processes.metrics import Metrics
from outpace.hosts.processes.parallel_operator import (
    BLOCK_ROWS,
    MEMORY,
    OperatorsInProgram,
    ParallelOperator,
)
from outpace.hosts.processes.processes import load_aside
from outpace.hosts.processes.reader import Item, SourceEnd, SourceReader
from outpace.hosts.processes.recovered_operator import RecoveredOperator
from outpace.hosts.processes.worker import WorkResult
from outpace.hosts.run_watch import WatchedRun
from outpace.ingest.clock import ClockSync
from outpace.ingest.pace import PacedSource
from outpace.ingest.retained_log import RetainedLog
from outpace.ingest.source import Heartbeat, Source, merge_of
from outpace.pattern.argument import a_whole_number, an_instance, listed, shown
from outpace.pattern.bind.check import INSTANCES_MAX, check_instances, check_streamable
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bound import MatchIdentity
from outpace.pattern.disorder import Late
from outpace.pattern.group import QueryGroup, naming_query
from outpace.pattern.join import Join
from outpace.pattern.query import Query, checked_query
from outpace.plan.late_events import LateEvents

#: The longest wait for anything, after which it is looked whether the run was stopped.
_TURN_S: Final = 0.1

#: Instances of a user may wait for something else than a core.
_PROCESSES_PER_CORE: Final = 8

_CONTROL: Final = RateControl()

_Operator: TypeAlias = ParallelOperator | OperatorsInProgram | RecoveredOperator

_LOG: Final = logging.getLogger("outpace.run")


def run(
    query: Query | QueryGroup | Join,
    sources: Source | Sequence[Source],
    *,
    rate_control: RateControl | None = _CONTROL,
    memory: int = MEMORY,
    batch_rows: int = BLOCK_ROWS,
    aside: Callable[..., None] | None = None,
    clocks: ClockSync | None = None,
    recovery: Literal["replay"] | None = None,
    log: RetainedLog | None = None,
) -> Run:
    """Run a query over sources, with its instances in processes of their own.

    Parameters
    ----------
    query
        What to detect; `Query.over` and `Query.instances` say in which windows and in how many
        processes. Without windows each partition is one that stays open. The queries of an
        `outpace.group` are matched in this process, whatever their instances. A `Join` gives the
        rows of `outpace.open`.
    sources
        Where events come from, which are ordered by time, sequence number and source. Each source
        is in order, or as far out of it as the query's disorder says. A join has two: the first is
        its left side, the other its right one, and `left` and `right` are their names.
    rate_control
        How the rate is found at which sources are read; None reads whenever there is room, as a
        group does.
    memory
        Bytes of shared memory for events on their way to instances.
    batch_rows
        How many events are read from a source at a time.
    aside
        Called with "late" or "invalid" and such events, where the query has disorder; with the name
        of the query before them where it is one of a group.
    clocks
        What compares the clocks of the sources with that of this machine; their events then count
        by the time of this machine. The query has disorder, `op.InOrder()` at least.
    recovery, log
        "replay": the run keeps no state. Its events are retained in a log, and the same call with
        that log goes on where a run was lost, whatever ended it; see `outpace.recover`. The query
        is a single one; without windows, and with one instance, it is matched in this process. Its
        sources give the same events when they are read again.

    Returns
    -------
    Run
        An iterator of tables of matches, in order; of a group, of dictionaries of tables by the
        names of the queries that have any. As a context manager it ends all processes on leaving.

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
    queries = _queries(query)
    given = (sources,) if isinstance(sources, Source) else listed(sources)
    if not given or not all(isinstance(source, Source) for source in given):
        raise BindError("sources are expected to run on", hint="see outpace.sources")
    memory = a_whole_number(memory, "memory", least=1)
    batch_rows = a_whole_number(batch_rows, "batch_rows", least=1)
    if rate_control is not None:
        hint = "write op.RateControl(aim_s=0.05), or None"
        an_instance(rate_control, RateControl, "rate control", hint=hint)
    if aside is not None and not callable(aside):
        hint = "write aside=lambda why, rows: print(why, rows)"
        raise BindError(f"aside is a function, not {shown(aside)}", hint=hint)
    if clocks is not None:
        an_instance(clocks, ClockSync, "what compares clocks", hint="write op.ingest.ClockSync()")
        if len(given) < 2 or any(one.order_of_arrival is None for one in queries):
            raise BindError(
                "clocks are compared where several sources have an order of their own",
                hint="run on several sources, with .disorder(op.InOrder()) or another",
            )
    if recovery is not None or log is not None:
        _check_recovery(query, recovery, log, clocks)
    if any(one.order_of_arrival is not None for one in queries):
        # The next event of a source that is out of order promises nothing.
        given = tuple(
            replace(one, in_order=False) if isinstance(one, PacedSource) else one for one in given
        )
    if isinstance(query, Join):
        given = sides_of(given)
    merge_of(given)  # refuses sources that do not go together
    for one in queries:
        with naming_query(one) if isinstance(query, QueryGroup) else nullcontext():
            _check(one, given)
    if isinstance(query, QueryGroup):
        return Run(query, list(given), None, memory, batch_rows, aside, clocks)
    useful = query if isinstance(query, Join) else _within_use(query)
    if log is not None:
        return Run(useful, list(given), None, memory, batch_rows, aside, clocks, log)
    return Run(useful, list(given), rate_control, memory, batch_rows, aside, clocks)


def _check_recovery(query: object, recovery: object, log: object, clocks: ClockSync | None) -> None:
    """Refuse what is not recovered by a replay."""
    if recovery != "replay":
        raise UnsupportedError(
            f"there is no recovery {recovery!r}", hint='write recovery="replay", or leave log out'
        )
    if not isinstance(query, Query) or clocks is not None:
        raise UnsupportedError(
            "a single query is recovered by a replay, without clocks that are compared",
            hint="leave recovery out, or run each query by itself",
        )
    hint = 'write log=op.recover.RetainedLog("folder")'
    an_instance(log, RetainedLog, "the retained log of a run", hint=hint)


def _queries(query: Query | QueryGroup | Join) -> tuple[Query, ...]:
    """Return the queries that run; that of a join as far as it is known without its columns."""
    if isinstance(query, Join):
        return (query.outline,)
    return query.queries if isinstance(query, QueryGroup) else (checked_query(query),)


def _check(query: Query, sources: Sequence[Source]) -> None:
    """Refuse a query that does not run over sources."""
    if len(sources) > 1 and not _orders_by(query, sources[0].time):
        raise BindError(
            "the events of several sources are ordered by their time",
            detail=f"the time of the sources is '{sources[0].time}'",
            hint=f'write order_by("{sources[0].time}")',
        )
    check_streamable(query)
    check_instances(query, windowed=False)


def match_in_processes(query: Query, table: pa.Table, progress: Progress | None = None) -> pa.Table:
    """Return the matches of a query in the windows of a complete table.

    `progress` is told of the events that were handed out, of which instances have a few blocks.
    """
    check_instances(query)
    query = _within_use(query, max(1, table.num_rows))
    spec = OperatorSpec(query, table.schema)
    rows = table
    if spec.bound.has(MatchIdentity):
        spec, rows = with_ids(spec, rows)
    report = progress or (lambda done, total: None)
    found: list[pa.Table] = []
    load_aside(processes=True)
    with ParallelOperator(spec) as operator:
        rows = in_order(spec.bound, rows, spec.time)
        for begin in range(0, rows.num_rows, BLOCK_ROWS):
            report(begin, rows.num_rows)
            found += operator.push(EventsArrived(rows.slice(begin, BLOCK_ROWS)))
        found += operator.push(SourceEnded())
        found += operator.rest()
        report(rows.num_rows, rows.num_rows)
    return pa.concat_tables([spec.bound.output.empty_table(), *found])


class Run(WatchedRun):
    """A query that runs over sources; see `run`.

    Parameters
    ----------
    query, sources, rate_control, memory, batch_rows, aside, clocks, log
        As for `run`, which checks them.

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
        query: Query | QueryGroup | Join,
        sources: list[Source],
        rate_control: RateControl | None,
        memory: int,
        batch_rows: int,
        aside: Callable[..., None] | None,
        clocks: ClockSync | None = None,
        log: RetainedLog | None = None,
    ) -> None:
        self._query, self._log = query, log
        queries = _queries(query)
        shared = isinstance(query, Query) and (log is None or query.windows is not None)
        instances = query.instance_count if isinstance(query, Query) and shared else 1
        #: The sides of a join, whose rows become those of one stream.
        self._sides = JoinedSides(query) if isinstance(query, Join) else None
        self._aside, self._clocks = aside, clocks
        self._sources = sources
        self._memory = memory
        self._batch_rows = batch_rows
        self._controller = None if rate_control is None else RateController(rate_control, instances)
        self.metrics = Metrics.of([source.id for source in sources], instances)
        self._operator: _Operator | None = None
        self._stopped = threading.Event()
        self._began = 0.0
        #: Whether the time of the sources is that of the query, and its type.
        self._tells_time = all(_orders_by(one, sources[0].time) for one in queries)
        self._kind: pa.DataType = pa.null()
        #: Whether sources that are silent are not waited for.
        arriving = [one.order_of_arrival for one in queries]
        self._patient = any(one is not None and one.patience is not None for one in arriving)
        #: How the front knows the sources, where there are several; and how many have ended.
        self._names = tuple(source.id for source in sources) if len(sources) > 1 else None
        self._ended = 0
        #: Where an earlier run was lost: the sources that had ended, and what it took of each.
        self._over: frozenset[str] = frozenset()
        self._taken: dict[str, int] = {}
        #: The source whose events are taken; and what is to be said of those that a query drops.
        self._source = sources[0].id
        self._dropped = {
            one.name: LateEvents(one)
            for one in queries
            if one.order_of_arrival is not None and Late(one.order_of_arrival.late).drops
        }
        self._tables = self._run()

    def __repr__(self) -> str:
        sources = ", ".join(source.id for source in self._sources)
        read = f"{self.metrics.operator.events} events"
        query = self._query
        name = ", ".join(query.names) if isinstance(query, QueryGroup) else query.name
        return f"run of {name} over {sources}: {read}"

    def __iter__(self) -> Iterator[pa.Table]:
        return self

    def __next__(self) -> pa.Table:
        return next(self._tables)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self._tables.close()

    @property
    def _name(self) -> str:
        query = self._query
        return ", ".join(query.names) if isinstance(query, QueryGroup) else query.name

    def _counted(self) -> dict[str, dict[str, float]]:
        """Return what is counted of the operator; of recovery where it is recovered by a replay."""
        total = self.metrics.operator
        counted: dict[str, float] = {"events": total.events, "matches": total.matches}
        sources = list(self.metrics.sources.values())
        for name in ("late", "invalid", "buffered"):
            counted[name] = sum(getattr(one, name) for one in sources)
        counted["slack"] = max(one.slack for one in sources)
        counted |= {one: getattr(total, one) for one in ("latency", "longest_wait")}
        if self._log is not None:
            named = ("skipped_share", "savepoint_age_s", "replays", "recover_s", "doubles")
            counted |= {one: getattr(total, one) for one in (*named, "retained_bytes")}
            counted["retained_events"] = total.retained
        return {self._name: counted}

    def stop(self) -> None:
        """Read no more events and end; windows that are open are left as they are.

        May be called from another thread. What is not matched yet is dropped.
        """
        self._stopped.set()

    def acknowledge(self, x: int | None = None, y: int | None = None) -> None:
        """Say that matches have been taken for good, where the run is recovered by a replay.

        The same call would not give them again after a failure, and events that no other match
        needs are dropped from the retained log.

        Parameters
        ----------
        x, y
            The number of the last of them, as `Query.over(..., numbered=True)` shows it; without it
            all that came out.
        """
        if self._log is None:
            raise DataError(
                "nothing is to be acknowledged: the run is not recovered by a replay",
                hint='write op.run(..., recovery="replay", log=op.recover.RetainedLog("folder"))',
            )
        if self._operator is not None:
            assert isinstance(self._operator, RecoveredOperator)
            self._operator.acknowledge(x, y)

    def _run(self) -> Generator[pa.Table, None, None]:
        reader: SourceReader | None = None
        load_aside(processes=not isinstance(self._query, QueryGroup))
        try:
            for found in self._recovered():
                if found.num_rows:
                    self.metrics.operator.matches += found.num_rows
                    yield found
            if isinstance(self._operator, RecoveredOperator) and self._operator.front.ended:
                return
            left = [source for source in self._sources if source.id not in self._over]
            reader = SourceReader(left, self._batch_rows, self._taken)
            for found in self._turns(reader):
                if self._stopped.is_set():
                    return
                tables = found.values() if isinstance(found, dict) else [found]
                if rows := sum(table.num_rows for table in tables):
                    self.metrics.operator.matches += rows
                    yield found
        finally:
            if reader is not None:
                reader.stop()
            if self._operator is not None:
                self._operator.close()

    def _turns(self, reader: SourceReader) -> Iterator[pa.Table]:
        """Yield what each turn of the loop completes."""
        before = self._begin(reader) if self._operator is None else {}
        if self._operator is None:
            return
        operator = self._operator
        yield from self._compare_clocks(operator)
        for source, item in before.items():
            yield from self._push(operator, source, item)
        while not self._stopped.is_set():
            reader.listen()
            yield from self._compare_clocks(operator)
            now, timer, item = clock_time(), operator.front.timer, None
            source = self._next_source(operator, reader) if self._reading else ""
            # What came before the time of a timer is not late for it.
            soon = self._patient and self._reading and reader.next(source) is not None
            if timer is not None and timer <= (min(now, reader.came(source)) if soon else now):
                at = min(now, reader.came(source)) if soon else now
                yield from operator.push(TimerFired(at))
            if self._reading:
                item = reader.next(source)
                size = self._readable(operator, item)
                if item is not None and size is not None:
                    arrival = reader.pop(source, size)
                    yield from self._push(operator, source, item, size, arrival)
                    self._look(operator)
                    continue
                if item is None:
                    reader.check()
            elif operator.back.settled:
                return
            quiet = self._reading and item is None
            wakes = [reader.wakes] if quiet else []
            yield from operator.receive(self._pause(operator, item), wakes)
            self._look(operator)

    def _compare_clocks(self, operator: _Operator) -> Iterator[pa.Table]:
        """Let the operator know what was heard of the clocks of its sources."""
        for exchange in [] if self._clocks is None else self._clocks.take():
            if exchange.source in (self._names or ()):
                yield from operator.push(exchange)

    @property
    def _reading(self) -> bool:
        """Whether more may come from a source."""
        return self._ended < len(self._sources)

    def _recovered(self) -> Iterator[pa.Table]:
        """Go on from the retained log of an earlier run, and yield what was not acknowledged."""
        log = self._log
        if log is None or log.schema is None:
            return
        assert isinstance(self._query, Query)
        operator = RecoveredOperator(
            self._query, None, self._names, log, self._set_aside, self._answered
        )
        self._operator, self._began = operator, time.perf_counter()
        if self._tells_time:
            self._kind = log.schema.field(self._sources[0].time).type
        self._over = operator.front.intake.order.ended
        self._ended = len(self._over)
        self._taken = {source.id: operator.taken(source.id) for source in self._sources}
        self._look(operator)
        yield operator.replayed
        if not self._reading and not operator.front.ended:
            yield from operator.push(SourceEnded())

    def _begin(self, reader: SourceReader) -> dict[str, Item]:
        """Wait for events, whose columns an operator is made for; return what came before them."""
        before: dict[str, Item] = {}
        schemas: dict[str, pa.Schema] = {}
        wanted = 1 if self._sides is None else len(self._sources)
        while not self._stopped.is_set():
            reader.listen()
            for source in list(reader.ready()):
                while source not in schemas and (item := reader.next(source)) is not None:
                    if isinstance(item, pa.RecordBatch):
                        schemas[source] = item.schema
                    else:
                        reader.pop(source)
                        before[source] = item
                if len(schemas) == wanted:
                    break
            ended = sum(isinstance(item, SourceEnd) for item in before.values())
            if len(schemas) == wanted or (schemas and len(schemas) + ended == len(self._sources)):
                self._make_operator(schemas)
                return before
            if ended == len(self._sources):
                break
            wait([reader.wakes], _TURN_S)
        return before

    def _make_operator(self, schemas: dict[str, pa.Schema]) -> None:
        """Make an operator for the columns of events."""
        schema = next(iter(schemas.values()))
        if self._sides is not None:
            joined = self._sides.bind(schemas)
            self._query, schema = joined.query, joined.schema
        time_column = self._sources[0].time
        if self._tells_time and time_column not in schema.names:
            raise missing_column(time_column, schema.names)
        if self._tells_time:
            self._kind = schema.field(time_column).type
        self._operator, self._began = self._made(schema), time.perf_counter()

    def _made(self, schema: pa.Schema) -> _Operator:
        query = self._query
        if isinstance(query, QueryGroup):
            return OperatorsInProgram(
                query, schema, self._names, self._tell_aside, self._count_aside
            )
        assert isinstance(query, Query), "that of a join is known when its columns are"
        if self._log is not None:
            return RecoveredOperator(
                query, schema, self._names, self._log, self._set_aside, self._answered
            )
        arriving = query.order_of_arrival
        disorder = None if arriving is None else bind_disorder(query, schema)
        return ParallelOperator(
            OperatorSpec(query, schema, disorder=disorder, sources=self._names),
            memory=self._memory,
            watch=self._answered,
            aside=self._set_aside,
        )

    def _next_source(self, operator: _Operator, reader: SourceReader) -> str:
        """Return the source that is read next.

        No event goes on before more comes from it; or it spoke first, where somebody counts for how
        long each is silent.
        """
        spoken = reader.earliest(operator.front.intake.wants) if self._patient else None
        if spoken is not None:
            return spoken
        holding = operator.front.intake.holding if self._names is not None else self._sources[0].id
        assert holding is not None, "a source is read as long as one has not ended"
        return holding

    def _readable(self, operator: _Operator, item: Item | None) -> int | None:
        """Return how many of the events that a source has may go on now; None where it waits."""
        if not isinstance(item, pa.RecordBatch) or not item.num_rows:
            return 0
        if not operator.room:
            return None
        if self._controller is None:
            return int(item.num_rows)
        now = time.perf_counter()
        if self._controller.due(now):
            counters = operator.front.counters()
            self._controller.adjust(now, counters.loads, counters.duplication)
        return self._controller.block(now, item.num_rows) or None

    def _pause(self, operator: _Operator, item: Item | None) -> float:
        """Return how long to wait for answers, until something else may be done."""
        if isinstance(item, pa.RecordBatch) and self._controller is not None and operator.room:
            return self._controller.wait_s(item.num_rows)
        timer = operator.front.timer
        return _TURN_S if timer is None else min(_TURN_S, max(0, timer - clock_time()) / 1e6)

    def _push(
        self,
        operator: _Operator,
        source: str,
        item: Item,
        size: int = 0,
        arrival: int = NO_TIME,
    ) -> Iterator[pa.Table]:
        """Let the operator take what came from a source, so many of its events."""
        name = None if self._names is None else source
        match item:
            case SourceEnd():
                self._ended += 1
                if name is not None:
                    yield from operator.push(SourceEnded(name))
                if not self._reading:
                    yield from operator.push(SourceEnded())
            case Heartbeat() if self._tells_time:
                promise = as_integer(item.time, self._kind)
                yield from operator.push(WatermarkArrived(promise, name, arrival))
            case pa.RecordBatch() if size:
                if self._controller is not None:
                    self._controller.spend(size)
                self._source = source
                self.metrics.sources[source].events += size
                rows = pa.Table.from_batches([item.slice(0, size)])
                if self._sides is not None:
                    rows = self._sides.rows(source, rows)
                came = EventsArrived(rows, name, arrival=arrival, load=operator.load())
                yield from operator.push(came)

    def _set_aside(self, aside: SetAside) -> None:
        """Count events that take no part, and say so."""
        self._count_aside(aside.kind, aside.rows.num_rows)
        self._tell_aside(aside)

    def _count_aside(self, kind: Aside, count: int) -> None:
        known = self.metrics.sources[self._source]
        if kind is Aside.INVALID:
            known.invalid += count
        else:
            known.late += count

    def _tell_aside(self, aside: SetAside) -> None:
        """Say that events take no part, and of a group in which query."""
        if self._aside is not None:
            whose = (aside.query,) if isinstance(self._query, QueryGroup) else ()
            self._aside(*whose, aside.kind.value, aside.rows)
        if aside.kind is Aside.LATE and aside.query in self._dropped:
            warning = self._dropped[aside.query].count(aside.rows.num_rows)
            if warning is not None:
                _LOG.warning(warning)

    def _answered(self, instance: int, done: WorkResult, answer: Answer) -> None:
        """Note what an instance did."""
        known = self.metrics.instances[instance]
        known.events += answer.events
        known.matches += len(answer.matches)
        known.open_windows = answer.open_windows
        known.rows_kept, known.state_bytes = done.rows_kept, done.bytes_kept
        known.busy_s += done.seconds
        if self._controller is not None:
            self._controller.worked(instance, answer.events, done.seconds)

    def _look(self, operator: _Operator) -> None:
        """Bring the metrics up to date and keep a sample where one is due."""
        seconds = time.perf_counter() - self._began
        if not operator.back.settled and not self.metrics.due(seconds):
            return
        front, back = operator.front.counters(), operator.back.counters()
        spans = operator.front.intake.unawaited_times
        for source, counted in self.metrics.sources.items():
            order = operator.front.intake.counters(source)
            counted.buffered, counted.slack = order.buffered, order.slack
            counted.silent, counted.unawaited = order.silent, order.unawaited
            counted.unawaited_first, counted.unawaited_last = spans.get(source, (0, 0))
            reading = operator.front.intake.clock_of(source) if self._clocks is not None else None
            if reading is not None:
                counted.drift, counted.drift_bound = reading.drift, reading.bound
                counted.clock_jumps = reading.jumps
        for known, load in zip(self.metrics.instances, front.loads, strict=True):
            known.waiting = load
        total = self.metrics.operator
        total.events, total.sent, total.bytes = front.events, front.sent, operator.bytes_written
        total.open_windows, total.unawaited = front.open_windows, front.order.unawaited
        total.latency, total.longest_wait = front.order.latency, front.order.longest_wait
        total.waiting_matches, total.remembered_matches = back.waiting, back.remembered
        total.rate_limit = self._controller.rate if self._controller is not None else 0.0
        if isinstance(operator, RecoveredOperator):
            recovery = operator.counters
            total.retained, total.retained_bytes = recovery.retained, recovery.retained_bytes
            total.skipped_share, total.doubles = recovery.skipped_share, recovery.doubles
            total.savepoint_age_s = recovery.savepoint_age_s
            total.replays, total.recover_s = recovery.replays, recovery.recover_s
        else:
            total.take(operator.changes)
            total.alpha, total.slack = operator.front.alpha, front.order.slack
            total.checkpoint_seconds = operator.front.work[1]
        self.metrics.sample(seconds)


def _within_use(query: Query, most: int = INSTANCES_MAX) -> Query:
    """Return a query with no more instances than are of use, unless it schedules them itself.

    The matches are the same, and more processes would take longer to start than to match.
    """
    if query.scheduler is not None:
        return query
    useful = min(most, _PROCESSES_PER_CORE * (os.cpu_count() or 1))
    return query.instances(min(query.instance_count, useful))


def _orders_by(query: Query, time: str) -> bool:
    """Say whether a query orders its events by a rising time first."""
    named = [(item.column.casefold(), item.descending) for item in query.order[:1]]
    return named == [(time.casefold(), False)]
