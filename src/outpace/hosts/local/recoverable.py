"""A stream in process whose state is not saved: its events are retained, and replayed when lost.

A push counts once its events are retained. What no match can use is dropped from the log now and
then, by itself; what was acknowledged, when `acknowledge` says so. Events that come out of order,
or of several sources, are retained as they came, with all stimuli between them, so that a
replay puts them in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import pyarrow as pa

from outpace.engine.event import EVENT_ID
from outpace.engine.message import (
    EventsArrived,
    Instruction,
    MatchesAcknowledged,
    Stimulus,
)
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.arrivals import is_put_in_order, retained_schema
from outpace.engine.recover.recoverable import RecoverableOperator, savepoint_of
from outpace.engine.savepoint import Savepoint
from outpace.errors import DataError, StateError
from outpace.hosts.local.frames import TableLike
from outpace.hosts.local.recovery_counters import RecoveryCounters
from outpace.hosts.local.stream import StreamMatcher
from outpace.ingest.retained_log import RetainedLog
from outpace.pattern.argument import a_whole_number
from outpace.pattern.query import Query

#: So many events and stimuli come between two notices of what is not needed any more.
NOTICE_EVENTS: Final = 1 << 14


class RecoverableStream(StreamMatcher):
    """A query that is fed piece by piece, and recovered by a replay; see `outpace.open`.

    Parameters
    ----------
    query
        The query.
    log
        What retains the events; one that has some is replayed when the stream goes on.
    sources
        The identifiers of several sources; by default those of the log.

    Examples
    --------
    >>> rise = Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")
    >>> stream = RecoverableStream(rise, RetainedLog())
    >>> stream.push({"ts": [1, 2], "x": [5, 6]}).to_pylist()
    [{'at': 2}]
    >>> stream = RecoverableStream(rise, stream.log)
    >>> stream.replayed.to_pylist()  # Not acknowledged, so once more.
    [{'at': 2}]
    >>> stream.acknowledge().seed
    (1, 0)
    """

    def __init__(
        self, query: Query, log: RetainedLog, *, sources: Iterable[str] | None = None
    ) -> None:
        if sources is None and log.savepoint is not None:
            sources = log.savepoint.sources
        super().__init__(query, sources=sources)
        self.log = log
        #: Events and stimuli since the last savepoint, and when that was.
        self._since, self._saved = 0, time.monotonic()
        self._replays, self._recover_s = 0, 0.0
        #: Whether the operator has taken what the log has not.
        self._failed = False
        self._replayed: pa.Table | None = None
        if log.schema is not None:
            try:
                self.bind(_arriving(log.schema))
                self._replay()
            except BaseException:
                log.close()
                raise

    @property
    def replayed(self) -> pa.Table:
        """The matches that the replay gave: those that had not been acknowledged."""
        if self._replayed is None:
            raise DataError("nothing was replayed", hint="resume a stream from its retained log")
        return self._replayed

    @property
    def came(self) -> dict[str, int]:
        """How many events each of several sources has sent, so that each can go on behind them."""
        operator = self._operator
        counts = {} if operator is None or self._identifiers is None else operator.intake.came
        return {name: count for name, count in counts.items() if name is not None}

    def push(self, data: TableLike, source: str | None = None) -> pa.Table:
        """Take the next rows, retain them, and return the matches that became final.

        Parameters
        ----------
        data
            The rows: a table, a data frame, a dictionary of columns.
        source
            Who sent them, where the stream has several sources.
        """
        self._check()
        rows = self._rows(data, source)
        if self.make_room(rows.num_rows) < rows.num_rows:
            self.log.check_room(rows.num_rows)
        # Another table, which is not known as the matches of a stream: the log lacks their ids.
        return super().push(rows.slice(0), source)

    def make_room(self, events: int) -> int:
        """Drop what is not needed where the log has no room for more events.

        Parameters
        ----------
        events
            How many.

        Returns
        -------
        int
            How many of them it has room for.
        """
        room = self.log.room(events)
        if room < events and self._operator is not None:
            self._save(self.operator)
            room = self.log.room(events)
        return room

    def acknowledge(self, x: int | None = None, y: int | None = None) -> Savepoint:
        """Say that matches have been taken for good, and drop what is not needed for others.

        Parameters
        ----------
        x, y
            The number of the last of them, as `Query.over(..., numbered=True)` shows it; without it
            all that came out.
        """
        self._check()
        if (x is None) != (y is None):
            raise DataError(
                "the number of a match has two parts",
                hint="write acknowledge(match_event, window), or acknowledge() for all",
            )
        if x is not None:
            x = a_whole_number(x, "match_event", error=DataError)
            y = a_whole_number(y, "window", error=DataError)
        last = self.operator.last_match if x is None or y is None else (x, y)
        return self._save(self.operator, last)

    def state(self) -> bytes:
        """Refuse: the retained log has all that is needed."""
        raise DataError(
            "a stream that is recovered by a replay saves no state",
            hint="go on with op.resume(query, log)",
        )

    def restore(self, state: bytes) -> None:
        """Refuse: the retained log would not have the events of a state.

        Parameters
        ----------
        state
            Bytes of any stream.
        """
        raise DataError(
            "a stream that is recovered by a replay goes on from no state",
            hint="go on with op.resume(query, log)",
        )

    def bind(self, schema: pa.Schema) -> None:
        """Fit the query to the input's schema; the retained log begins with it, so it stays.

        Parameters
        ----------
        schema
            The columns of the rows.
        """
        if self._schema is not None and schema != self._schema:
            raise DataError(
                "the retained log has events of another schema",
                hint="open another stream for rows with this schema",
            )
        super().bind(schema)

    def _check(self) -> None:
        """Refuse to go on where operator and log are apart, or another stream has the log."""
        operator = self._operator
        if self._failed or (operator is not None and operator.front.has_lost):
            raise DataError("an earlier push failed", hint="go on with op.resume(query, log)")
        if not self.log.is_free_for(self):
            raise DataError(
                "another stream goes on with the retained log",
                hint="push to that one, or go on with op.resume(query, log)",
            )

    @property
    def operator(self) -> RecoverableOperator:
        """What takes the events."""
        operator = self._bound("acknowledge")
        assert isinstance(operator, RecoverableOperator)
        return operator

    @property
    def recovery(self) -> RecoveryCounters:
        """How it goes with recovery: what is retained, and what replays did."""
        log = self.log
        return RecoveryCounters(
            len(log),
            log.nbytes,
            1 - len(log) / log.came if log.came else 0.0,
            time.monotonic() - self._saved,
            self._replays,
            self._recover_s,
            self.operator.doubles if self._replays else 0,
        )

    def _save(
        self, operator: RecoverableOperator, last: tuple[int, int] | None = None
    ) -> Savepoint:
        """Drop from the log what is not needed, as matches up to one are acknowledged, or none."""
        savepoint = savepoint_of(operator.step(MatchesAcknowledged(last)))
        self.log.thin(savepoint)
        self._since, self._saved = 0, time.monotonic()
        return savepoint

    def _make(self, spec: OperatorSpec) -> WholeOperator:
        operator = self._recoverable(spec)
        kept = retained_schema(spec)
        if self.log.schema is None:
            first = next(iter(spec.bound.order_by), kept.names[0])
            # Events without a time are retained, too, where something puts them in order.
            self.log.begin(kept, EVENT_ID.name if EVENT_ID.name in kept.names else first)
        if self.log.savepoint is not None:
            operator.check(self.log.savepoint)
        self.log.take(self)
        if self.log.savepoint is None:
            if len(self.log) < self.log.came:
                raise StateError("the retained log has no savepoint", hint="start from the input")
            self._save(operator)
        return operator

    def _recoverable(self, spec: OperatorSpec) -> RecoverableOperator:
        """Return a new operator that is recovered by a replay."""
        return RecoverableOperator(spec)

    def _carry(self, instructions: list[Instruction]) -> list[Instruction]:
        """Carry deliveries to instances that are elsewhere, and return all else once it is known.

        Here the one instance is beside.
        """
        return instructions

    def _instructions(self, stimulus: Stimulus) -> list[Instruction]:
        self._check()
        operator = self.operator
        if self._since >= NOTICE_EVENTS:
            # Now, as matches of the last push may have been acknowledged since. A notice that fails
            # is made with the next push.
            with suppress(OSError, DataError):
                self._save(operator)
        turn, rows = operator.turn, None
        if isinstance(stimulus, EventsArrived):
            rows = operator.retained(stimulus)
        given = self._carry(super()._instructions(stimulus))
        # The operator has taken what nobody could give it again, unless it is retained.
        self._failed = True
        self.log.retain(stimulus, rows, turn, ordered=is_put_in_order(operator.spec))
        self._since += 1 if rows is None else 1 + rows.num_rows
        self._failed = False
        return given

    def _replay(self) -> None:
        """Go on from what is retained."""
        savepoint = self.log.savepoint
        assert savepoint is not None, "a stream begins with one"
        began = time.monotonic()
        rows, numbers = self.log.events()
        emit = self.operator.rebuild(savepoint, rows, numbers, self.log.stimuli, self._carry)
        self._replays, self._recover_s = 1, time.monotonic() - began
        self._begun, self._emits = True, {emit.query: emit}
        self._replayed = emit.matches.table


def _arriving(schema: pa.Schema) -> pa.Schema:
    """Return the columns of events that come, of those that are retained."""
    return pa.schema([field for field in schema if field.name != EVENT_ID.name])
