"""Matching in process, fed piece by piece: a stream without a cluster.

Any cut of the input into pushes, with `state()` and `resume_query` anywhere between, gives the same
matches in the same order. A match is returned by the push that makes it final, not later.
"""

from __future__ import annotations

import datetime

import pyarrow as pa

from outpace.engine.apply import AppliedOperator
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.operator import Emitted, MatchOperator, prepare
from outpace.engine.match.times import time_of
from outpace.engine.state import pack, unpack
from outpace.engine.window.operator import WindowedOperator, windowed_operator
from outpace.errors import DataError, UnsupportedError
from outpace.local.background import compile_in_background
from outpace.local.frames import TableLike, to_arrow
from outpace.pattern.query import Query, Rows


def open_query(
    query: Query, *, schema: pa.Schema | None = None, timeouts: bool = False
) -> StreamMatcher:
    """Open a query that is fed piece by piece.

    Parameters
    ----------
    query
        What to detect and what to return.
    schema
        The input's schema; without it the first push brings it.
    timeouts
        Also collect partial matches that WITHIN ended.

    Examples
    --------
    >>> rise = (Query("rise").order_by("ts").pattern("A B")
    ...         .define(B="price > A.price").measures(at="B.ts"))
    >>> matcher = open_query(rise)
    >>> matcher.push({"ts": [1], "price": [5.0]}).to_pylist()
    []
    >>> matcher = resume_query(rise, matcher.state())
    >>> matcher.push({"ts": [2], "price": [6.0]}).to_pylist()
    [{'at': 2}]
    """
    if query.rows is Rows.ALL_WITH_UNMATCHED:
        raise UnsupportedError(
            "a stream cannot return unmatched rows",
            hint="use ALL ROWS PER MATCH without WITH UNMATCHED ROWS, or match a whole table",
        )
    if query.windows is not None and timeouts:
        raise UnsupportedError("partial matches in windows do not time out: windows end them")
    matcher = StreamMatcher(query, timeouts=timeouts)
    if schema is not None:
        matcher.bind(schema)
    return matcher


def resume_query(query: Query, state: bytes, *, timeouts: bool = False) -> StreamMatcher:
    """Go on from saved state, maybe in another process.

    Raises
    ------
    StateError
        If the state is damaged, or belongs to another version or another query.

    Examples
    --------
    >>> rise = Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")
    >>> matcher = open_query(rise)
    >>> matcher.push({"ts": [1], "x": [5]}).num_rows
    0
    >>> resume_query(rise, matcher.state()).push({"ts": [2], "x": [6]}).to_pylist()
    [{'at': 2}]
    """
    matcher = open_query(query, timeouts=timeouts)
    matcher.restore(state)
    return matcher


class StreamMatcher:
    """A query that is fed piece by piece; see `open_query`.

    Examples
    --------
    >>> rise = Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")
    >>> matcher = open_query(rise)
    >>> matcher.push({"ts": [1, 2], "x": [5, 6]}).to_pylist()
    [{'at': 2}]
    >>> matcher.finish().num_rows
    0
    """

    def __init__(self, query: Query, *, timeouts: bool) -> None:
        self._query = query
        self._timeouts = timeouts
        self._operator: MatchOperator | AppliedOperator | WindowedOperator | None = None
        self._last: Emitted | None = None

    def bind(self, schema: pa.Schema) -> None:
        """Fit the query to the input's schema; a push does this by itself."""
        if self._query.windows is not None:
            self._operator = windowed_operator(self._query, schema)
            return
        if self._query.operator is not None:
            self._operator = AppliedOperator(self._query, schema)
            return
        task = prepare(self._query, schema, timeouts=self._timeouts)
        matcher = choose_matcher(task).matcher
        compile_in_background(matcher)
        self._operator = MatchOperator(task, matcher)

    def push(self, data: TableLike) -> pa.Table:
        """Take the next rows, in event order, and return the matches that became final."""
        table = to_arrow(data)
        if self._operator is None:
            self.bind(table.schema)
        assert self._operator is not None
        return self._remember(self._operator.push(table))

    def advance(self, time: int | datetime.datetime) -> pa.Table:
        """Promise that no later row has a time before `time`; return what became final."""
        operator = self._bound("advance")
        return self._remember(operator.advance(time_of(operator.bound, time)))

    def finish(self) -> pa.Table:
        """Say that the input has ended and return the remaining matches."""
        return self._remember(self._bound("finish").finish())

    @property
    def timed_out(self) -> pa.Table:
        """The partial matches that timed out in the last push, advance or finish."""
        if self._last is None:
            raise DataError("nothing has been pushed yet")
        return self._last.timed_out

    @property
    def rows_kept(self) -> int:
        """How many rows are kept because an undecided match may need them."""
        return 0 if self._operator is None else self._operator.rows_kept

    def state(self) -> bytes:
        """Return everything that is kept between pushes, as bytes for `resume_query`."""
        return pack({"empty": True}, []) if self._operator is None else self._operator.state()

    def restore(self, state: bytes) -> None:
        """Go on from bytes that `state` returned."""
        header, tables = unpack(state)
        if header.get("empty"):
            return
        self.bind(tables[-1].schema)
        assert self._operator is not None
        self._operator.restore(state)

    def _bound(self, action: str) -> MatchOperator | AppliedOperator | WindowedOperator:
        if self._operator is None:
            raise DataError(
                f"cannot {action} before the first push",
                hint="give the schema to open() if there may be no input",
            )
        return self._operator

    def _remember(self, emitted: Emitted) -> pa.Table:
        self._last = emitted
        return emitted.matches
