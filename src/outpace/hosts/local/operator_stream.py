"""A stream of an operator of one's own, whose events are retained, and replayed when it is lost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from outpace.engine.recover.protocol import OwnMatch, Recoverable
from outpace.engine.savepoint import Savepoint, own_identity
from outpace.errors import DataError, StateError
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.ingest.log.rows import fitting
from outpace.ingest.retained_log import RetainedLog
from outpace.pattern.argument import a_text, an_instance


class OperatorStream:
    """Feeds an operator of one's own, and retains what it may need again.

    Parameters
    ----------
    operator
        A new one, see `Recoverable`.
    log
        What retains the events; the operator goes on from one that has some.
    time
        The column with the times of events, of which a folder keeps an index.

    Examples
    --------
    >>> class Sevens:
    ...     name = "sevens"
    ...     def __init__(self):
    ...         self.found, self.came, self.done = [], 0, -1
    ...     def push(self, events, numbers):
    ...         for number, x in zip(numbers.tolist(), events["x"].to_pylist()):
    ...             self.came = number + 1
    ...             if x == 7:
    ...                 self.found.append(OwnMatch(number, 0, {"x": x}))
    ...     def pop(self):
    ...         return self.found.pop(0) if self.found else None
    ...     def save(self, match):
    ...         self.done = self.done if match is None else match.x
    ...         return Savepoint.of(self.name, at=self.came, trim=self.done)
    ...     def restore(self, savepoint):
    ...         self.done = savepoint.trim
    >>> stream = OperatorStream(Sevens(), RetainedLog())
    >>> first, second = stream.push({"x": [7, 1, 7, 2]})
    >>> stream.acknowledge(first)
    >>> stream.log
    retained log in memory: 3 of 4 events
    >>> OperatorStream(Sevens(), stream.log).replayed == [second]
    True
    """

    def __init__(self, operator: Recoverable, log: RetainedLog, *, time: str = "ts") -> None:
        hint = "give it name, push, pop, save and restore"
        an_instance(operator, Recoverable, "an operator", hint=hint)
        an_instance(log, RetainedLog, "a retained log", hint="write op.recover.RetainedLog()")
        self._operator, self.log, self._time = operator, log, time
        self._identity = own_identity(a_text(operator.name, "the name of an operator"))
        self._last: OwnMatch | None = None
        self._failed = False
        #: The matches that the replay gave: those that had not been acknowledged.
        self.replayed: list[OwnMatch] = []
        log.take(self)
        if log.schema is not None:
            try:
                self._replay()
            except BaseException:
                log.close()
                raise

    def push(self, data: TableLike) -> list[OwnMatch]:
        """Take the next events, retain them, and return the matches that they gave.

        Parameters
        ----------
        data
            The events.
        """
        self._check()
        rows = to_arrow(data, schema=self.log.schema)
        if self.log.schema is None:
            self.log.begin(rows.schema, self._time)
        assert self.log.schema is not None
        rows = fitting(rows, self.log.schema)
        if self.log.room(rows.num_rows) < rows.num_rows:
            self._thin(self._operator.save(None))
            self.log.check_room(rows.num_rows)
        # What fails here leaves the operator apart from the log, which has what counts.
        self._failed = True
        first = self.log.came
        self._operator.push(rows, np.arange(first, first + rows.num_rows))
        found = list(self._found())
        self.log.append(rows)
        self._failed = False
        return found

    def acknowledge(self, match: OwnMatch | None = None) -> None:
        """Say that matches have been taken for good, up to one, or all; the log drops the rest.

        Parameters
        ----------
        match
            The last match that has been taken; None: all that came out.
        """
        self._check()
        match = self._last if match is None else match
        if match is not None:
            an_instance(match, OwnMatch, "a match", hint="pass one that push returned")
        self._thin(self._operator.save(match))

    def _thin(self, savepoint: Savepoint) -> None:
        an_instance(
            savepoint, Savepoint, "what save returns", hint="write op.recover.Savepoint.of(...)"
        )
        if savepoint.query != self._identity:
            raise StateError(
                "the savepoint belongs to another operator",
                hint="write the name of the operator as the first argument of Savepoint.of",
            )
        if savepoint.at != self.log.came:
            raise StateError(
                f"the savepoint knows of {savepoint.at} events, but {self.log.came} have come",
                hint="write at= as the number of the last event that was pushed, and 1 more",
            )
        self.log.thin(savepoint)

    def _found(self) -> Iterator[OwnMatch]:
        while (match := self._operator.pop()) is not None:
            an_instance(match, OwnMatch, "a match", hint="write op.recover.OwnMatch(x, y, row)")
            if self._last is not None and match.number <= self._last.number:
                raise DataError(
                    f"match {match.x}:{match.y} comes behind {self._last.x}:{self._last.y}",
                    hint="give matches in the order of their numbers",
                )
            self._last = match
            yield match

    def _check(self) -> None:
        if self._failed:
            raise DataError("an earlier push failed", hint="go on with a new operator and the log")
        if not self.log.is_free_for(self):
            raise DataError(
                "another stream goes on with the retained log",
                hint="push to that one, or go on with a new operator and the log",
            )

    def _replay(self) -> None:
        savepoint, settled = self.log.savepoint, (-1, -1)
        if savepoint is not None:
            if savepoint.query != self._identity:
                raise StateError(
                    "the savepoint belongs to another operator",
                    hint="go on with the operator that it was made by, or start from the input",
                )
            self._operator.restore(savepoint)
            settled = savepoint.settled.event, savepoint.settled.window
        elif len(self.log) < self.log.came:
            raise StateError("the retained log has no savepoint", hint="start from the input")
        rows, numbers = self.log.events()
        if rows.num_rows:
            self._operator.push(rows, numbers)
        # Doubles: matches that a replay has to give again on the way to others.
        self.replayed = [match for match in self._found() if match.number > settled]
