"""Matching in process, fed piece by piece: a stream without a cluster.

Any cut of the input into pushes, with `state()` and `resume_query` anywhere between, gives the same
matches in the same order. A match is returned by the push that makes it final, not later. Events
of several sources are brought into one order first (`outpace.engine.order`), so it does not matter
either which source is pushed when. So are events that come out of order, as far as the query says
that they are (`Query.disorder`).

Matches that are pushed into another stream as they are bring with them how far time has come in
this one, since a match that ends later may become final earlier. The other stream then puts them in
order, and its own deadlines pass without another match.
"""

from __future__ import annotations

import datetime
import logging
import weakref
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.match.operator import Emitted
from outpace.engine.order.reorderer import Released, Reorderer
from outpace.engine.order.sources import SourceMerge, ticks_of
from outpace.engine.rows.deadlines import NEVER
from outpace.engine.rows.times import as_integer, as_integers, time_of
from outpace.engine.state import pack, parts, read_header, reading, unpack
from outpace.engine.stream.operator import (
    StreamOperator,
    joined,
    make_operator,
    push_until,
    reach_back,
    shows_time,
)
from outpace.errors import BindError, DataError, StateError, UnsupportedError
from outpace.hosts.background import compile_when_loaded
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.pattern.argument import a_flag, a_text, an_instance, some_names
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import Late, Watermark
from outpace.pattern.query import Query, Rows, checked_query
from outpace.plan.late_events import LateEvents

_LOG: Final = logging.getLogger("outpace.stream")

#: How far time had come in a stream when it returned a table, by the table's identity and column:
#: no later match has an event before it. A copy, or a table from a file, is just a table.
_times_told: Final[dict[int, dict[str, int]]] = {}


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

    Events out of order wait until the query's disorder says that none comes before them:

    >>> from outpace.pattern.disorder import KSlack
    >>> matcher = open_query(rise.disorder(KSlack(2)))
    >>> matcher.push({"ts": [2, 1, 4], "price": [6.0, 5.0, 0.0]}).to_pylist()
    []
    >>> matcher.push({"ts": [5, 0], "price": [0.0, 9.0]}).to_pylist()
    [{'at': 2}]
    >>> matcher.late["ts"].to_pylist()
    [0]
    """
    checked_query(query)
    a_flag(timeouts, "timeouts")
    if query.rows is Rows.ALL_WITH_UNMATCHED:
        raise UnsupportedError(
            "a stream cannot return unmatched rows",
            hint="use ALL ROWS PER MATCH without WITH UNMATCHED ROWS, or match a whole table",
        )
    if query.windows is not None and timeouts:
        raise UnsupportedError("partial matches in windows do not time out: windows end them")
    if sources is not None:
        sources = some_names(sources, "sources", hint='write sources=["east", "west"]')
        check_sources(query)
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
    saved = read_header(state).get("sources")
    with reading():
        sources = None if saved is None else SourceMerge(saved).sources
    matcher = open_query(query, sources=sources, timeouts=timeouts)
    matcher.restore(state)
    return matcher


def check_sources(query: Query) -> None:
    """Refuse disorder where sources are named: each is in order, and they say what time it is."""
    if query.order_of_arrival is not None:
        raise UnsupportedError(
            "the events of a source come in order, so a query over sources has no disorder",
            hint="leave out disorder, or push the rows of all sources without naming them",
        )


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
        self._operator: StreamOperator | None = None
        self._schema: pa.Schema | None = None
        self._identifiers = None if sources is None else SourceMerge(sources).sources
        self._merge: SourceMerge | None = None
        self._reorderer: Reorderer | None = None
        self._dropped: LateEvents | None = None
        #: How far time has come, how far before that a later match may lie, and where it shows it.
        self._time = int(NO_TIME)
        self._reach: int | None = None
        self._timed: tuple[str, ...] = ()
        self._last: Emitted | None = None
        self._released: Released | None = None
        self._failed = False

    def __repr__(self) -> str:
        if self._operator is None:
            return f"stream of {self._query.name}: nothing pushed yet"
        kept = f"{self.rows_kept} rows kept, {self.buffered} waiting"
        return f"stream of {self._query.name}: {kept}"

    def bind(self, schema: pa.Schema) -> None:
        """Fit the query to the input's schema; a push does this by itself."""
        hint = 'write pa.schema({"ts": pa.int64(), "price": pa.float64()})'
        an_instance(schema, pa.Schema, "a schema of Arrow", hint=hint)
        operator = make_operator(
            self._query, schema, timeouts=self._timeouts, choose=_compiled_soon
        )
        if self._identifiers is not None:
            self._merge = SourceMerge(self._identifiers, time=_time_column(operator.bound))
        if self._query.order_of_arrival is not None:
            disorder = bind_disorder(self._query, schema)
            self._dropped = LateEvents(self._query) if disorder.late is Late.DROP else None
            self._reorderer = Reorderer(operator.bound, disorder, schema)
        self._reach = reach_back(operator)
        if self._reach is not None:
            shown = operator.bound.output.names
            self._timed = tuple(name for name in shown if shows_time(operator.bound, name))
        self._operator = operator
        self._schema = schema

    def push(self, data: TableLike, source: str | None = None) -> pa.Table:
        """Take the next rows and return the matches that became final.

        Parameters
        ----------
        data
            The rows, in event order, or as far out of it as the query's disorder says; of one
            source where there are several. One event may come as a dictionary of its values,
            some as a list of dictionaries.
        source
            Which one.
        """
        told = _times_told.get(id(data), {})
        table = to_arrow(data, self._query, self._schema)
        if self._operator is None:
            self.bind(table.schema)
        operator = self._bound("push")
        if self._identifiers is not None or source is not None:
            self._merged(source).push(source or "", table)
            return self._merge_on()
        time = told.get(next(iter(operator.bound.order_by), ""))
        if time is not None and self._query.order_of_arrival is None:
            return self._follow(table, time)
        if self._reorderer is not None:
            return self._go_on(self._reorderer.push(table))
        emitted = operator.push(table)
        if self._timed and table.num_rows:
            last = table.column(operator.bound.order_by[0]).slice(table.num_rows - 1)
            self._time = max(self._time, int(as_integers(last)[0]))
        return self._remember(emitted)

    def heartbeat(self, source: str, time: int | datetime.datetime) -> pa.Table:
        """Promise that no later row of a source has a time before `time`; return what is final."""
        kind = _time_type(self._bound("take a heartbeat").bound)
        self._merged(source).heartbeat(source, as_integer(time, kind) * ticks_of(kind))
        return self._merge_on()

    def wants(self, source: str) -> bool:
        """Say whether a source may go on; one that is too far ahead of the others must wait."""
        a_text(source, "the identifier of a source", error=DataError)
        if self._operator is None and self._identifiers is not None:
            return source in self._identifiers
        return self._merged(source).wants(source)

    def advance(self, time: int | datetime.datetime) -> pa.Table:
        """Promise that no later row has a time before `time`; return what became final.

        An earlier time than one that has passed promises nothing new, and takes nothing back.
        """
        if self._identifiers is not None:
            raise DataError("time passes by source", hint="use heartbeat(source, time)")
        operator = self._bound("advance")
        if self._reorderer is None:
            emitted = operator.advance(time_of(operator.bound, time))
            if self._timed:
                self._time = max(self._time, time_of(operator.bound, time))
            return self._remember(emitted)
        nothing = operator.bound.schema.empty_table()
        told = as_integer(time, _time_type(operator.bound))
        return self._go_on(self._reorderer.push(nothing, told=told))

    def finish(self, source: str | None = None) -> pa.Table:
        """Say that the input, or one source, has ended and return the matches that became final."""
        operator = self._bound("finish")
        if source is not None:
            self._merged(source).finish(source)
            return self._merge_on()
        self._time = NEVER
        if self._reorderer is not None:
            self._go_on(self._reorderer.finish())
            assert self._last is not None
            return self._remember(self._last, operator.finish())
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
    def late(self) -> pa.Table:
        """The rows that came late in the last push, as they came, whatever becomes of them."""
        return self._ordered.late

    @property
    def invalid(self) -> pa.Table:
        """The rows of the last push that cannot be used, with the reason in the first column."""
        return self._ordered.invalid

    @property
    def buffered(self) -> int:
        """How many rows wait for others that may come before them."""
        if self._merge is not None:
            return sum(map(self._merge.buffered, self._merge.sources))
        return 0 if self._reorderer is None else self._reorderer.buffered

    @property
    def rows_kept(self) -> int:
        """How many rows are kept because an undecided match may need them."""
        return 0 if self._operator is None else self._operator.rows_kept

    def state(self) -> bytes:
        """Return everything that is kept between pushes, as bytes for `resume_query`."""
        self._check()
        inner = pack({"empty": True}, []) if self._operator is None else self._operator.state()
        front = self._merge or self._reorderer
        if self._identifiers is None and front is None:
            return inner
        waiting = b"" if front is None else front.state()
        states = pa.table({"part": pa.array([inner, waiting], pa.binary())})
        header = {"sources": self._identifiers and list(self._identifiers)}
        return pack({**header, "follows": self._follows}, [states])

    def restore(self, state: bytes) -> None:
        """Go on from bytes that `state` returned."""
        header, tables = unpack(state)
        if header.get("sources") != (self._identifiers and list(self._identifiers)):
            raise StateError("the saved state belongs to a stream with other sources")
        if header.get("empty"):
            return
        in_order = "sources" not in header
        orders = self._identifiers is not None or self._query.order_of_arrival is not None
        follows = bool(header.get("follows")) and not orders
        if in_order is orders and not follows:
            raise StateError(
                "the saved state belongs to a query without disorder"
                if in_order
                else "the saved state belongs to a query with disorder",
                hint="resume it with the query that it was saved from, or start from the input",
            )
        with reading():
            states = [state] if in_order else parts(tables[0], 2)
            self._restore(states, tables, follows=follows)

    def _restore(
        self, states: Sequence[bytes], tables: Sequence[pa.Table], *, follows: bool
    ) -> None:
        """Go on from the state of the query, and of what waits to be put in order."""
        if len(states) > 1:
            if read_header(states[0]).get("empty"):
                return
            # Rows that wait have all columns, those that are kept only what the query needs.
            _, tables = unpack(states[self._identifiers is None])
        self.bind(tables[-1].schema)
        assert self._operator is not None
        self._operator.restore(states[0])
        if follows:
            self._reorderer = self._following(self._operator.bound)
        front = self._merge or self._reorderer
        if front is not None:
            front.restore(states[1])

    @property
    def _ordered(self) -> Released:
        if self._query.order_of_arrival is None:
            raise DataError(
                "the query takes its events in order", hint='write disorder(op.KSlack("2 s"))'
            )
        if self._released is None:
            raise DataError("nothing has been pushed yet")
        return self._released

    def _merged(self, source: str | None) -> SourceMerge:
        if self._identifiers is None:
            raise DataError(
                f"there is no source '{source}': the query was opened without sources",
                hint='open it with op.open(query, sources=["a", "b"])',
            )
        if source is None:
            raise DataError("the source of the rows is missing", hint='push(data, source="a")')
        a_text(source, "the identifier of a source", error=DataError)
        self._bound("ask for a source")
        assert self._merge is not None
        return self._merge

    def _merge_on(self) -> pa.Table:
        """Match the events that no source holds back any more, and let time pass up to there."""
        assert self._merge is not None
        operator = self._bound("go on")
        ordered = self._merge.take()
        pushed = [operator.push(ordered.rows)] if len(ordered) else []
        time = ordered.watermark
        if time != NO_TIME:
            time = time_of(operator.bound, time // ticks_of(_time_type(operator.bound)))
            self._time = max(self._time, time)
        return self._remember(*pushed, operator.advance(time))

    def _go_on(self, released: Released) -> pa.Table:
        """Match the events whose turn it is, and let time pass up to the watermark."""
        operator = self._bound("go on")
        self._released = released
        if self._dropped is not None:
            warning = self._dropped.take(released.late.num_rows)
            if warning is not None:
                _LOG.warning(warning)
        self._time = max(self._time, released.watermark)
        self._failed = True
        emitted = push_until(operator, released.rows, released.watermark)
        self._failed = False
        return self._remember(emitted)

    @property
    def _follows(self) -> bool:
        """Whether the events are the matches of another stream, which tells the time."""
        return self._reorderer is not None and self._query.order_of_arrival is None

    def _following(self, bound: BoundQuery) -> Reorderer:
        disorder = bind_disorder(self._query.disorder(Watermark()), bound.schema)
        return Reorderer(bound, disorder, bound.schema)

    def _follow(self, matches: pa.Table, time: int) -> pa.Table:
        """Take matches of another stream, of which no later one has an event before a time."""
        bound = self._bound("follow").bound
        if self._reorderer is None:
            self._reorderer = self._following(bound)
        times = as_integers(matches.column(bound.order_by[0]).drop_null())
        if len(times) and times.min() < self._reorderer.watermark:
            raise DataError(
                f"matches of another stream come before rows that were already taken: "
                f"{bound.order_by[0]} is {times.min()}, after {self._reorderer.watermark}",
                hint="push the matches of one stream, each once and in the order in which they "
                "came; for several streams open with sources, or use .disorder(op.KSlack(...))",
            )
        return self._go_on(self._reorderer.push(matches, told=time))

    def _bound(self, action: str) -> StreamOperator:
        self._check()
        if self._operator is None:
            raise DataError(
                f"cannot {action} before the first push",
                hint="give the schema to open() if there may be no input",
            )
        return self._operator

    def _check(self) -> None:
        """Refuse to go on where events that were put in order could not be matched."""
        if self._failed:
            raise DataError("an earlier push failed", hint="resume the query from a saved state")

    def _remember(self, *emitted: Emitted) -> pa.Table:
        self._last = joined(list(emitted))
        return self._with_time(self._last.matches)

    def _with_time(self, matches: pa.Table) -> pa.Table:
        """Let matches say, to a stream that they are pushed into, how far time has come."""
        if not self._timed or self._time == NO_TIME:
            return matches
        assert self._reach is not None
        told = self._time if self._time == NEVER else self._time - self._reach
        marked = matches.slice(0)  # an object of its own
        _times_told[id(marked)] = dict.fromkeys(self._timed, told)
        weakref.finalize(marked, _times_told.pop, id(marked))
        return marked


def _compiled_soon(task: Task) -> Matcher:
    """Return the matcher of a pattern; without windows it is compiled while it works already."""
    matcher = choose_matcher(task).matcher
    if task.bound.query.windows is None:
        compile_when_loaded(matcher)
    return matcher


def _time_column(bound: BoundQuery) -> str:
    if not bound.order_by or bound.descending[0]:
        raise BindError(
            "the events of several sources are ordered by rising time",
            hint='name the time column first: order_by("ts")',
        )
    return bound.order_by[0]


def _time_type(bound: BoundQuery) -> pa.DataType:
    return bound.schema.field(bound.order_by[0]).type
