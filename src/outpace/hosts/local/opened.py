"""What streams in process have in common, of one query or of several.

They are bound to columns, fed by one source or by several, told of time and of clocks, recorded,
saved and resumed. What a step gives, and how rows come in, is their own.
"""

from __future__ import annotations

import datetime
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from outpace.engine.intake import Intake, JoinedIntakes
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.message import (
    ClockExchange,
    SourceEnded,
    Stimulus,
    TimerFired,
    WatermarkArrived,
)
from outpace.engine.order.drift import ClockReading
from outpace.engine.order.source_merge import SourceMerge
from outpace.engine.rows.times import as_integer, from_integers
from outpace.engine.state import State
from outpace.errors import DataError
from outpace.hosts.background import compiled_soon
from outpace.hosts.clock import clock_time
from outpace.pattern.argument import a_text, a_whole_number, an_instance
from outpace.pattern.bind.disorder import SOURCE

if TYPE_CHECKING:
    from outpace.hosts.local.recorded import Recordable
    from outpace.hosts.local.recording import Recorder

#: What takes the events.
Operator = TypeVar("Operator")
#: What a push returns.
Found = TypeVar("Found")
#: What a step gives: the instructions of a query, or those of several by their names.
Given = TypeVar("Given")


class StreamFront(Protocol):
    """The part of an operator that knows of sources and of time."""

    @property
    def timer(self) -> int | None:
        """When `TimerFired` is due; None where never."""

    @property
    def intake(self) -> Intake | JoinedIntakes:
        """How events come in."""


class OpenStream(ABC, Generic[Operator, Found, Given]):
    """A stream that is fed piece by piece.

    Parameters
    ----------
    sources
        The identifiers of several sources.
    timeouts
        Whether partial matches that WITHIN ended are collected.
    choose
        What picks a matcher.
    """

    def __init__(
        self,
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
        self._operator: Operator | None = None
        self._schema: pa.Schema | None = None

    @property
    @abstractmethod
    def _recorded(self) -> Recordable:
        """What is detected, for a recording."""

    @property
    @abstractmethod
    def _front(self) -> StreamFront | None:
        """What knows of sources and of time; None before there are columns."""

    @abstractmethod
    def _fit(self, schema: pa.Schema) -> None:
        """Begin with operators for a schema, and nothing that earlier ones had."""

    @abstractmethod
    def _time_type(self) -> pa.DataType:
        """Return the type of the time column."""

    @abstractmethod
    def _instructions(self, stimulus: Stimulus) -> Given:
        """Let the operators take a stimulus."""

    @abstractmethod
    def _step(self, stimulus: Stimulus) -> Found:
        """Take a stimulus and return what became final."""

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

    def heartbeat(self, source: str, time: int | datetime.datetime) -> Found:
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

    def compare_clocks(self, exchange: ClockExchange) -> Found:
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
        front = self._front
        if front is None or self._identifiers is None:
            return {}
        known = {source: front.intake.clock_of(source) for source in self._identifiers}
        return {source: reading for source, reading in known.items() if reading is not None}

    def wants(self, source: str) -> bool:
        """Say whether a source may go on; one that is too far ahead of the others must wait.

        Parameters
        ----------
        source
            The identifier of the source.
        """
        a_text(source, "the identifier of a source", error=DataError)
        if self._front is None and self._identifiers is not None:
            return source in self._identifiers
        self._check_source(source)
        assert self._front is not None, "without sources none can be asked for"
        return self._front.intake.wants(source)

    def finish(self, source: str | None = None) -> Found:
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
        front = self._front
        return None if front is None else front.timer

    def wake(self) -> Found:
        """Let time pass by the clock and return what became final.

        Call it when the time of `timer` has come, before the next rows are pushed: `op.run` and
        streams on Spark do so by themselves.
        """
        self._bound("wake")
        return self._step(TimerFired(clock_time()))

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

    def step(self, stimulus: Stimulus) -> Given:
        """Take a stimulus as it is, record it where that is asked for, and return what it gives.

        Parameters
        ----------
        stimulus
            The message: events, a time, the end of a source, ...
        """
        if self._recorder is not None:
            return self._recorder.step(stimulus, self._instructions)
        return self._instructions(stimulus)

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

    def _bound(self, action: str) -> Operator:
        if self._operator is None:
            raise DataError(
                f"cannot {action} before the first push",
                hint="give the schema to open() if there may be no input",
            )
        return self._operator
