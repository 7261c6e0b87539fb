"""Matching in process, fed piece by piece: a stream without a cluster.

Any cut of the input into pushes, with `state()` and `resume_query` anywhere between, gives the same
matches in the same order. A match is returned by the push that makes it final, not later. Events
of several sources are brought into one order first (`outpace.engine.order`), so it does not matter
either which source is pushed when.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

import pyarrow as pa

from outpace.engine.apply import AppliedOperator
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import NO_TIME
from outpace.engine.match.operator import Emitted, MatchOperator, prepare
from outpace.engine.match.times import as_integer, time_of
from outpace.engine.order.merge import SourceMerge, ticks_of
from outpace.engine.state import pack, unpack
from outpace.engine.window.operator import WindowedOperator, windowed_operator
from outpace.errors import BindError, DataError, StateError, UnsupportedError
from outpace.local.background import compile_in_background
from outpace.local.frames import TableLike, to_arrow
from outpace.pattern.bound import BoundQuery
from outpace.pattern.query import Query, Rows


def open_query(
    query: Query,
    *,
    sources: Iterable[str] | None = None,
    schema: pa.Schema | None = None,
    timeouts: bool = False,
) -> StreamMatcher:
    """Open a query that is fed piece by piece.

    Parameters
    ----------
    query
        What to detect and what to return.
    sources
        The identifiers of several sources, whose events are ordered by time (the first column of
        the query's order), sequence number (the column `seq`, else they are counted) and source.
        Each push then names its source.
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

    Events of several sources wait until no other source can send an earlier one:

    >>> matcher = open_query(rise, sources=["east", "west"])
    >>> matcher.push({"ts": [2], "price": [6.0]}, source="east").to_pylist()
    []
    >>> matcher.push({"ts": [1], "price": [5.0]}, source="west").to_pylist()
    []
    >>> matcher.heartbeat("west", 3).to_pylist()
    [{'at': 2}]
    """
    if not isinstance(query, Query):
        raise BindError(
            f"a query is expected, not an object of type {type(query).__name__}",
            hint='write op.Query("name").pattern("A B")',
        )
    if query.rows is Rows.ALL_WITH_UNMATCHED:
        raise UnsupportedError(
            "a stream cannot return unmatched rows",
            hint="use ALL ROWS PER MATCH without WITH UNMATCHED ROWS, or match a whole table",
        )
    if query.windows is not None and timeouts:
        raise UnsupportedError("partial matches in windows do not time out: windows end them")
    matcher = StreamMatcher(query, sources=sources, timeouts=timeouts)
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
    header, _ = unpack(state)
    saved = header.get("sources")
    sources = map(str, saved) if isinstance(saved, list) else None
    matcher = open_query(query, sources=sources, timeouts=timeouts)
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

    def __init__(
        self, query: Query, *, sources: Iterable[str] | None = None, timeouts: bool = False
    ) -> None:
        self._query = query
        self._timeouts = timeouts
        self._operator: MatchOperator | AppliedOperator | WindowedOperator | None = None
        self._identifiers = None if sources is None else SourceMerge(sources).sources
        self._merge: SourceMerge | None = None
        self._last: Emitted | None = None

    def bind(self, schema: pa.Schema) -> None:
        """Fit the query to the input's schema; a push does this by itself."""
        self._operator = self._operator_for(schema)
        if self._identifiers is not None:
            time = _time_column(self._operator.bound)
            self._merge = SourceMerge(self._identifiers, time=time)

    def push(self, data: TableLike, source: str | None = None) -> pa.Table:
        """Take the next rows, in event order, and return the matches that became final.

        Parameters
        ----------
        data
            The rows; of one source where there are several.
        source
            Which one.
        """
        table = to_arrow(data)
        if self._operator is None:
            self.bind(table.schema)
        assert self._operator is not None
        if self._identifiers is None and source is None:
            return self._remember(self._operator.push(table))
        self._merged(source).push(str(source), table)
        return self._released()

    def heartbeat(self, source: str, time: int | datetime.datetime) -> pa.Table:
        """Promise that no later row of a source has a time before `time`; return what is final."""
        kind = _time_type(self._bound("take a heartbeat").bound)
        self._merged(source).heartbeat(source, as_integer(time, kind) * ticks_of(kind))
        return self._released()

    def wants(self, source: str) -> bool:
        """Say whether a source may go on; one that is too far ahead of the others must wait."""
        if self._operator is None and self._identifiers is not None:
            return source in self._identifiers
        return self._merged(source).wants(source)

    def advance(self, time: int | datetime.datetime) -> pa.Table:
        """Promise that no later row has a time before `time`; return what became final."""
        if self._identifiers is not None:
            raise DataError("time passes by source", hint="use heartbeat(source, time)")
        operator = self._bound("advance")
        return self._remember(operator.advance(time_of(operator.bound, time)))

    def finish(self, source: str | None = None) -> pa.Table:
        """Say that the input, or one source, has ended and return the matches that became final."""
        operator = self._bound("finish")
        if source is not None:
            self._merged(source).finish(source)
            return self._released()
        if self._merge is None:
            return self._remember(operator.finish())
        for every in self._merge.sources:
            self._merge.finish(every)
        ordered = self._merge.take()
        pushed = [operator.push(ordered.rows)] if len(ordered) else []
        return self._remember(*pushed, operator.finish())

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
        inner = pack({"empty": True}, []) if self._operator is None else self._operator.state()
        if self._identifiers is None:
            return inner
        waiting = b"" if self._merge is None else self._merge.state()
        parts = pa.table({"part": pa.array([inner, waiting], pa.binary())})
        return pack({"sources": list(self._identifiers)}, [parts])

    def restore(self, state: bytes) -> None:
        """Go on from bytes that `state` returned."""
        header, tables = unpack(state)
        if header.get("sources") != (self._identifiers and list(self._identifiers)):
            raise StateError("the saved state belongs to a stream with other sources")
        waiting = b""
        if self._identifiers is not None:
            state, waiting = tables[0].column("part").to_pylist()
            header, tables = unpack(state)
        if header.get("empty"):
            return
        self.bind(tables[-1].schema)
        assert self._operator is not None
        self._operator.restore(state)
        if self._merge is not None:
            self._merge.restore(waiting)

    def _operator_for(
        self, schema: pa.Schema
    ) -> MatchOperator | AppliedOperator | WindowedOperator:
        if self._query.windows is not None:
            return windowed_operator(self._query, schema)
        if self._query.operator is not None:
            return AppliedOperator(self._query, schema)
        task = prepare(self._query, schema, timeouts=self._timeouts)
        matcher = choose_matcher(task).matcher
        compile_in_background(matcher)
        return MatchOperator(task, matcher)

    def _merged(self, source: str | None) -> SourceMerge:
        if self._identifiers is None:
            raise DataError(
                f"there is no source '{source}': the query was opened without sources",
                hint='open it with op.open(query, sources=["a", "b"])',
            )
        if source is None:
            raise DataError("the source of the rows is missing", hint='push(data, source="a")')
        self._bound("ask for a source")
        assert self._merge is not None
        return self._merge

    def _released(self) -> pa.Table:
        """Match the events that no source holds back any more, and let time pass up to there."""
        assert self._merge is not None
        operator = self._bound("go on")
        ordered = self._merge.take()
        pushed = [operator.push(ordered.rows)] if len(ordered) else []
        time = ordered.watermark
        if time != NO_TIME:
            time = time_of(operator.bound, time // ticks_of(_time_type(operator.bound)))
        return self._remember(*pushed, operator.advance(time))

    def _bound(self, action: str) -> MatchOperator | AppliedOperator | WindowedOperator:
        if self._operator is None:
            raise DataError(
                f"cannot {action} before the first push",
                hint="give the schema to open() if there may be no input",
            )
        return self._operator

    def _remember(self, *emitted: Emitted) -> pa.Table:
        matches = pa.concat_tables([one.matches for one in emitted])
        self._last = Emitted(matches, pa.concat_tables([one.timed_out for one in emitted]))
        return matches


def _time_column(bound: BoundQuery) -> str:
    if not bound.order_by or bound.descending[0]:
        raise BindError(
            "the events of several sources are ordered by rising time",
            hint='name the time column first: order_by("ts")',
        )
    return bound.order_by[0]


def _time_type(bound: BoundQuery) -> pa.DataType:
    return bound.schema.field(bound.order_by[0]).type
