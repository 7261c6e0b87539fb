"""The operator of a run that is recovered by a replay: a stream with its log, and processes.

No state of it is saved, only savepoints; events are retained as they are read. Who runs the query
again with the log goes on where it was lost: what the log has is replayed, and each source is read
from behind the events that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from outpace.engine.front import Front
from outpace.engine.message import (
    Answer,
    Emit,
    EventsArrived,
    HostLoad,
    Instruction,
    SetAside,
    Stimulus,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.recoverable import RecoverableOperator
from outpace.engine.savepoint import Savepoint
from outpace.hosts.local.recoverable import RecoverableStream
from outpace.hosts.local.recovery_counters import RecoveryCounters
from outpace.hosts.processes.parallel_operator import AnsweredAtOnce, ParallelOperator
from outpace.hosts.processes.worker import WorkResult
from outpace.ingest.retained_log import RetainedLog
from outpace.pattern.query import Query


class RecoveredOperator(AnsweredAtOnce):
    """A query with its retained log; each step waits for what it needs.

    Parameters
    ----------
    query, schema, sources
        The query, the columns of events, and the identifiers of several sources; those of a log
        that has events are its own.
    log
        What retains the events.
    aside
        Told of the events that are set aside.
    watch
        Told of every answer of an instance in a process.
    """

    def __init__(
        self,
        query: Query,
        schema: pa.Schema | None,
        sources: tuple[str, ...] | None,
        log: RetainedLog,
        aside: Callable[[SetAside], None],
        watch: Callable[[int, WorkResult, Answer], None],
    ) -> None:
        self._stream = _SharedStream(query, log, sources, watch)
        if schema is not None:
            self._stream.bind(schema)
        self._aside = aside

    @property
    def bytes_written(self) -> int:
        """Bytes of events in shared memory."""
        processes = self._stream.processes
        return 0 if processes is None else processes.bytes_written

    @property
    def front(self) -> Front:
        """What knows of sources and of time."""
        return self._stream.operator.front

    @property
    def replayed(self) -> pa.Table:
        """The matches of an earlier run that were not acknowledged."""
        return self._stream.replayed

    @property
    def counters(self) -> RecoveryCounters:
        """How it goes with recovery."""
        return self._stream.recovery

    def taken(self, source: str) -> int:
        """Return how many events of a source have been taken, also by earlier runs."""
        return self._stream.came.get(source, self._stream.log.came)

    def acknowledge(self, x: int | None, y: int | None) -> Savepoint:
        """See `RecoverableStream.acknowledge`."""
        return self._stream.acknowledge(x, y)

    def load(self) -> HostLoad | None:
        """Return nothing: nobody follows how busy the program is."""

    def push(self, stimulus: Stimulus) -> Iterator[pa.Table]:
        """Take what happened, retain it, and yield what became final.

        Where the log has no room for all events, some are taken, and the others when what came of
        those was yielded and may have been acknowledged.
        """
        if not isinstance(stimulus, EventsArrived):
            yield from self._step(stimulus)
            return
        rows = stimulus.rows
        while rows.num_rows:
            size = self._stream.make_room(rows.num_rows)
            if not size:
                self._stream.log.check_room(rows.num_rows)
            yield from self._step(replace(stimulus, rows=rows.slice(0, size)))
            rows = rows.slice(size)

    def _step(self, stimulus: Stimulus) -> Iterator[pa.Table]:
        for one in self._stream.step(stimulus):
            match one:
                case SetAside():
                    self._aside(one)
                case Emit():
                    yield one.matches.table

    def close(self) -> None:
        """End the processes, and let others go on with the log."""
        self._stream.close()


class _SharedStream(RecoverableStream):
    """A recoverable stream whose windows processes share, where the query asks for several."""

    def __init__(
        self,
        query: Query,
        log: RetainedLog,
        sources: tuple[str, ...] | None,
        watch: Callable[[int, WorkResult, Answer], None],
    ) -> None:
        self._watch = watch
        self.processes: ParallelOperator | None = None
        try:
            super().__init__(query, log, sources=sources)
        except BaseException:
            self.close()
            raise

    def _recoverable(self, spec: OperatorSpec) -> RecoverableOperator:
        if spec.windows is None or self._query.instance_count == 1:
            return super()._recoverable(spec)
        self.processes = ParallelOperator(spec, watch=self._watch, make=RecoverableOperator)
        operator = self.processes.operator
        assert isinstance(operator, RecoverableOperator)
        return operator

    def _carry(self, instructions: list[Instruction]) -> list[Instruction]:
        processes = self.processes
        return instructions if processes is None else processes.carry_all(instructions)

    def close(self) -> None:
        """End the processes, and let others go on with the log."""
        if self.processes is not None:
            self.processes.close()
        self.log.close()
