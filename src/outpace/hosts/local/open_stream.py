"""What streams in process have in common, of one query or of several.

They are bound to columns, fed by one source or by several, told of time and of clocks, recorded,
saved and resumed. How rows come in, and whether what comes out is one table or one for each query,
is their own.
"""

from __future__ import annotations

import datetime
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from outpace.compiler.kernel import fitting
from outpace.engine.arrays import NO_TIME
from outpace.engine.emission import SpeculationCounters, emitted_together
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.message import (
    Aside,
    ClockExchange,
    Emit,
    Instruction,
    SetAside,
    SourceEnded,
    Stimulus,
    TimerFired,
    WatermarkArrived,
)
from outpace.engine.operator import WholeOperator, joined_emit
from outpace.engine.order.contract import OrderCounters
from outpace.engine.order.drift import ClockReading
from outpace.engine.order.source_merge import SourceMerge
from outpace.engine.rows.times import as_integer, from_integers
from outpace.engine.state import State
from outpace.errors import DataError
from outpace.hosts.background import compiled_soon
from outpace.hosts.clock import BusyMeter, clock_time
from outpace.pattern.argument import a_text, a_whole_number, an_instance
from outpace.pattern.bind.disorder import SOURCE
from outpace.pattern.disorder import Late
from outpace.pattern.query import Query
from outpace.plan.late_events import LateEvents

if TYPE_CHECKING:
    from outpace.engine.group import GroupOperator
    from outpace.hosts.local.description import Recordable
    from outpace.hosts.local.recording import Recorder

#: What takes the events.
StreamOperator = TypeVar("StreamOperator", bound="WholeOperator | GroupOperator")
#: What a push returns.
Output = TypeVar("Output")

_LOG: Final = logging.getLogger("outpace.stream")


class OpenStream(ABC, Generic[StreamOperator, Output]):
    """A stream that is fed piece by piece.

    Parameters
    ----------
    queries
        What is detected.
    sources
        The identifiers of several sources.
    timeouts
        Whether partial matches that WITHIN ended are collected.
    choose
        What picks a matcher.
    """

    def __init__(
        self,
        queries: Iterable[Query],
        *,
        sources: Iterable[str] | None,
        timeouts: bool,
        choose: Callable[[Task], Matcher] | None,
    ) -> None:
        self._timeouts = timeouts
        self._choose = compiled_soon if choose is None else choose
        self._recorder: Recorder | None = None
        #: Whether anything may be kept.
        self._begun = False
        self._identifiers = None if sources is None else SourceMerge(sources).sources
        self._operator: StreamOperator | None = None
        self._schema: pa.Schema | None = None
        #: What the last step gave to whom, and which rows take no part in what, and why.
        self._emits: dict[str, Emit] = {}
        self._aside: dict[tuple[str, Aside], pa.Table] = {}
        self._dropped: dict[str, LateEvents] = {}
        #: Measures the load, where something follows it.
        self._meter: BusyMeter | None = None
        self._queries = {query.name: query for query in queries}
        for query in self._queries.values():
            disorder = query.order_of_arrival
            if disorder is not None and Late(disorder.late).drops:
                self._dropped[query.name] = LateEvents(query)
            if query.speculates and self._meter is None:
                self._meter = BusyMeter()

    @property
    @abstractmethod
    def _recorded(self) -> Recordable:
        """What is detected, for a recording."""

    @abstractmethod
    def _fit(self, schema: pa.Schema) -> None:
        """Begin with operators for a schema, and nothing that earlier ones had."""

    @abstractmethod
    def _time_type(self) -> pa.DataType:
        """Return the type of the time column."""

    @abstractmethod
    def _found(self, stimulus: Stimulus) -> Output:
        """Return what became final with a stimulus, the last one."""

    @abstractmethod
    def state(self) -> bytes:
        """Return everything that is kept between pushes, as bytes for `resume_query`."""

    @abstractmethod
    def _restore(self, saved: State) -> None:
        """Go on from saved state."""

    def bind(self, schema: pa.Schema) -> None:
        """Fit what is detected to the input's schema; the first push does this by itself.

        Once something was taken, the schema stays as it is.

        Parameters
        ----------
        schema
            The columns of the rows.
        """
        hint = 'write pa.schema({"ts": pa.int64(), "price": pa.float64()})'
        an_instance(schema, pa.Schema, "a schema of Arrow", hint=hint)
        if self._begun:
            if schema == self._schema:
                return
            raise DataError(
                "the stream has rows of another schema already",
                hint="open another stream for rows with this schema",
            )
        with self._all_or_nothing():
            self._fit(schema)
            if self._recorder is not None:
                self._recorder.bound(schema)

    @property
    def _has_state(self) -> bool:
        """Whether a recording begins with what is kept."""
        return self._begun

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Let the stream be as before after an error; parts are put in place, not changed."""
        before = vars(self).copy()
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise

    def record(self, path: str | os.PathLike[str]) -> None:
        """Write all that is taken from now on to a recording, which begins with what is kept now.

        Parameters
        ----------
        path
            A folder, new or empty.
        """
        from outpace.hosts.local.recording import Recorder

        state = self.state() if self._has_state else None
        recorder = Recorder(
            path, self._recorded, sources=self._identifiers, timeouts=self._timeouts
        )
        if state is not None:
            recorder.restored(state)
        elif self._schema is not None:
            recorder.bound(self._schema)
        self._recorder = recorder

    def heartbeat(self, source: str, time: int | datetime.datetime) -> Output:
        """Promise that no later row of a source has a time before `time`; return what is final.

        Parameters
        ----------
        source
            The identifier of the source.
        time
            The time before which it sends no row any more.
        """
        self._bound("take a heartbeat")
        self._check_source(source)
        return self._step(
            WatermarkArrived(as_integer(time, self._time_type()), source, clock_time())
        )

    def compare_clocks(self, exchange: ClockExchange) -> Output:
        """Take what tells how far the clock of a source is from ours; return what became final.

        From now on its rows count by our time: the time column is changed by the drift that was
        measured. See `outpace.ingest.ClockSync`, which measures it.

        Parameters
        ----------
        exchange
            A question of the source and its answer, with the times of both clocks.
        """
        self._bound("compare clocks")
        an_instance(
            exchange, ClockExchange, "an exchange", hint="write op.ingest.ClockExchange(...)"
        )
        self._check_source(exchange.source)
        for name in ("asked", "received", "answered", "heard"):
            a_whole_number(getattr(exchange, name), name, error=DataError)
        return self._step(exchange)

    @property
    def clocks(self) -> dict[str, ClockReading]:
        """What is known of the clocks of sources: drift, bound, exchanges and jumps of each."""
        operator = self._operator
        if operator is None or self._identifiers is None:
            return {}
        known = {source: operator.intake.clock_of(source) for source in self._identifiers}
        return {source: reading for source, reading in known.items() if reading is not None}

    @property
    def unawaited(self) -> dict[str, tuple[int, int]]:
        """For sources that were not waited for, what went on without them when they last were not.

        By source the times of the first and of the last row that went on because the source was
        silent, in microseconds or units of an integer time: with `patience`, since the stream was
        opened or resumed, and of a group for any of its queries. A match with rows from there may
        be another one than it would have been.
        """
        operator = self._operator
        return {} if operator is None else dict(operator.intake.unawaited_times)

    def wants(self, source: str) -> bool:
        """Say whether a source may go on; one that is too far ahead of the others must wait.

        Parameters
        ----------
        source
            The identifier of the source.
        """
        a_text(source, "the identifier of a source", error=DataError)
        if self._operator is None and self._identifiers is not None:
            return source in self._identifiers
        self._check_source(source)
        assert self._operator is not None, "without sources none can be asked for"
        return self._operator.intake.wants(source)

    def finish(self, source: str | None = None) -> Output:
        """Say that the input, or one source, has ended and return the matches that became final.

        Parameters
        ----------
        source
            The identifier of the source that has ended; None: the whole input has.
        """
        self._bound("finish")
        if source is not None:
            self._check_source(source)
        return self._step(SourceEnded(source))

    @property
    def timer(self) -> int | None:
        """When, in microseconds of the clock, `wake` is due; None where nothing asks for it."""
        return None if self._operator is None else self._operator.timer

    def wake(self) -> Output:
        """Let time pass by the clock and return what became final.

        Call it when the time of `timer` has come and no rows are pushed. A push sees by itself that
        it has, behind its rows; `op.run` and streams on Spark do so at any time.
        """
        self._bound("wake")
        return self._step(TimerFired(clock_time()))

    @property
    def buffered(self) -> int:
        """How many rows wait for others that may come before them; in all queries of a group."""
        return self.order.buffered

    @property
    def order(self) -> OrderCounters:
        """How it goes with the order of the rows: slack, rows that wait, and rows that came late.

        Late rows are counted since the stream was opened, also before it was resumed, and so are
        those that went on without waiting for a source that is silent. How long rows waited counts
        since it was resumed. Of a group it is that of all queries together,
        and a row that several of them drop counts as late once.
        """
        return OrderCounters() if self._operator is None else self._operator.order

    @property
    def speculation(self) -> SpeculationCounters:
        """How it goes with matches that may be taken back, since the stream was opened or resumed.

        With late="correct" too; there none is known to be confirmed, unless that is what comes out.
        Of a group it is that of all queries together; of what does not add up, the greatest.
        """
        if (operator := self._operator) is None:
            return SpeculationCounters()
        order, (event, checkpoint) = operator.intake.counters(), operator.work
        return SpeculationCounters(
            **vars(operator.changes),
            alpha=operator.alpha,
            slack=order.slack,
            latency=order.latency,
            event_seconds=event,
            checkpoint_seconds=checkpoint,
        )

    @property
    def rows_kept(self) -> int:
        """How many rows an undecided match may need, and are kept; in all queries of a group."""
        return sum(one.instance.rows_kept for one in self._operators)

    @property
    def open_windows(self) -> int:
        """How many windows are open; in all queries of a group."""
        return sum(one.instance.open_windows for one in self._operators)

    @property
    def partitions(self) -> int:
        """How many partitions are known; in a group, to the query that knows most."""
        return 0 if self._operator is None else self._operator.partitions

    @property
    def watermark(self) -> int | None:
        """No later row has a time before this, in microseconds or units of an integer time.

        None where it is not known: rows in order tell it only where WITHIN or windows ask for it.
        For a group it holds for all queries, and is None where one of them does not know it.
        """
        watermark = NO_TIME if self._operator is None else self._operator.intake.watermark
        return None if watermark == NO_TIME else int(watermark)

    @property
    def _operators(self) -> list[WholeOperator]:
        return [] if self._operator is None else self._operator.operators

    def time_text(self, time: int) -> str:
        """Return a time such as the watermark as text, in the type of the time column.

        Parameters
        ----------
        time
            The time, as an integer in the units of the time column.
        """
        try:
            return str(from_integers(np.array([time]), self._time_type())[0])
        except (DataError, ValueError, OverflowError, pa.ArrowException):
            return str(time)  # It has no type, or is before or after all that a date can be.

    def restore(self, state: bytes) -> None:
        """Go on from bytes that `state` returned; if they are refused, as before.

        Parameters
        ----------
        state
            The bytes, also from another process.
        """
        with self._all_or_nothing():
            self._restore(State.decode(state))
            if self._recorder is not None:
                self._recorder.restored(state)

    def step(self, stimulus: Stimulus) -> list[Instruction]:
        """Take a stimulus as it is, record it where that is asked for, and return what it gives.

        Parameters
        ----------
        stimulus
            The message: events, a time, the end of a source, ...
        """
        if self._recorder is not None:
            return self._recorder.step(stimulus, self._instructions)
        return self._instructions(stimulus)

    def _instructions(self, stimulus: Stimulus) -> list[Instruction]:
        """Let the operator take a stimulus."""
        operator = self._bound("go on")
        with nullcontext() if self._meter is None else self._meter.work():
            given = operator.step(stimulus)
        self._begun = True
        return given

    @fitting()
    def _step(self, stimulus: Stimulus) -> Output:
        """Take a stimulus, and the time that has come with it, and return what became final."""
        self._aside = {}
        given = self.step(stimulus)
        now, due = getattr(stimulus, "arrival", int(NO_TIME)), self.timer
        if due is not None and due <= now:
            # Behind what has come, so that who sent any of it is not silent.
            given += self.step(TimerFired(now))
        self._emits = self._together([one for one in given if isinstance(one, Emit)])
        aside: dict[tuple[str, Aside], list[pa.Table]] = {}
        for one in given:
            if isinstance(one, SetAside):
                aside.setdefault((one.query, one.kind), []).append(one.rows)
        self._aside = {key: pa.concat_tables(tables) for key, tables in aside.items()}
        for name, dropped in self._dropped.items():
            late = self._aside.get((name, Aside.LATE))
            if late is None:
                continue
            unnamed = late.column_names if self._identifiers is None else ()
            warning = dropped.count(late.num_rows, unnamed)
            if warning is not None:
                _LOG.warning(warning)
        return self._found(stimulus)

    def _together(self, emits: Sequence[Emit]) -> dict[str, Emit]:
        """Return what each query gives, by its name, as that of one step."""
        together: dict[str, list[Emit]] = {}
        for one in emits:
            together.setdefault(one.query, []).append(one)
        for name, own in together.items():
            if len(own) > 1:
                parts = emitted_together(self._queries[name], [one.matches for one in own])
                each = zip(own, parts, strict=True)
                own[:] = [joined_emit([replace(one, matches=part) for one, part in each])]
        return {name: emit for name, (emit,) in together.items()}

    def _check_source(self, source: str | None) -> None:
        if self._identifiers is None:
            raise DataError(
                f"there is no source '{source}': the query was opened without sources",
                hint='open it with op.open(query, sources=["a", "b"])',
            )
        if source is None:
            raise DataError(
                "the source of the rows is missing",
                hint=f"""push(data, source="a"), or rows with a column '{SOURCE}'""",
            )
        a_text(source, "the identifier of a source", error=DataError)

    def _bound(self, action: str) -> StreamOperator:
        if self._operator is None:
            raise DataError(
                f"cannot {action} before the first push",
                hint="give the schema to open() if there may be no input",
            )
        return self._operator
