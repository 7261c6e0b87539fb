"""Opening streams in process: of a query, of a group of queries, of a join; and resuming them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, overload

import pyarrow as pa

from outpace.engine.order.source_merge import SourceMerge
from outpace.engine.state import State, reading
from outpace.errors import StateError, UnsupportedError
from outpace.hosts.local.group import GroupMatcher
from outpace.hosts.local.join import JoinStream, resume_join
from outpace.hosts.local.recoverable import RecoverableStream
from outpace.hosts.local.stream import StreamMatcher
from outpace.ingest.retained_log import RetainedLog
from outpace.pattern.argument import a_flag, an_instance, some_names
from outpace.pattern.bind.check import check_clauses, check_streamable
from outpace.pattern.group import QueryGroup, naming_query
from outpace.pattern.join import Join
from outpace.pattern.query import Query, checked_query


@overload
def open_query(
    query: Query,
    *,
    sources: Iterable[str] | None = None,
    schema: pa.Schema | None = None,
    timeouts: bool = False,
    record: str | os.PathLike[str] | None = None,
) -> StreamMatcher: ...


@overload
def open_query(
    query: QueryGroup,
    *,
    sources: Iterable[str] | None = None,
    schema: pa.Schema | None = None,
    timeouts: bool = False,
    record: str | os.PathLike[str] | None = None,
) -> GroupMatcher: ...


@overload
def open_query(
    query: Query,
    *,
    sources: Iterable[str] | None = None,
    schema: pa.Schema | None = None,
    recovery: Literal["replay"],
    log: RetainedLog | None = None,
) -> RecoverableStream: ...


@overload
def open_query(
    query: Join,
    *,
    schema: tuple[pa.Schema, pa.Schema],
    record: str | os.PathLike[str] | None = None,
) -> JoinStream: ...


def open_query(
    query: Query | QueryGroup | Join,
    *,
    sources: Iterable[str] | None = None,
    schema: pa.Schema | tuple[pa.Schema, pa.Schema] | None = None,
    timeouts: bool = False,
    record: str | os.PathLike[str] | None = None,
    recovery: Literal["replay"] | None = None,
    log: RetainedLog | None = None,
) -> StreamMatcher | GroupMatcher | JoinStream:
    """Open a query, a group of them or a join that is fed piece by piece.

    Parameters
    ----------
    query
        What to detect and what to return. Those of a group give a dictionary of tables each time,
        by their names. A join has the sources "left" and "right".
    sources
        The identifiers of several sources, whose events are ordered by time (the first column of
        the query's order), sequence number (the column `seq`, else they are counted) and source.
        Each push then names its source, or its rows have a column `source` that does.
    schema
        The input's schema; without it the first push brings it. A join needs those of its left and
        its right side.
    timeouts
        Also collect partial matches that WITHIN ended.
    record
        A folder, new or empty, to which all that is pushed and told is written as it comes;
        `outpace.replay` gives the same again, step by step.
    recovery, log
        "replay": the stream keeps no state of its own. Its events are retained in a new log, in
        memory by default, from which `resume` goes on; see `outpace.recover`. For a single query
        whose matches are final when they come out.

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
    opened: StreamMatcher | GroupMatcher
    if recovery is not None or log is not None:
        plain = not timeouts and record is None
        opened = _recoverable(query, recovery, log, sources, plain=plain)
    elif isinstance(query, Join):
        _check_join(sources, timeouts=timeouts)
        opened = JoinStream(query, schema)
    elif isinstance(query, QueryGroup):
        sources = check_group(query, sources, timeouts=timeouts)
        opened = GroupMatcher(query, sources=sources, timeouts=timeouts)
    else:
        sources = check_stream(query, sources, timeouts=timeouts)
        opened = StreamMatcher(query, sources=sources, timeouts=timeouts)
    if schema is not None and not isinstance(opened, JoinStream):
        opened.bind(schema)
    if record is not None:
        opened.record(record)
    return opened


def _recoverable(
    query: Query | QueryGroup | Join,
    recovery: object,
    log: RetainedLog | None,
    sources: Iterable[str] | None,
    *,
    plain: bool,
) -> RecoverableStream:
    """Return a stream that is recovered by a replay, or refuse what cannot be one."""
    if recovery != "replay":
        raise UnsupportedError(
            f"there is no recovery {recovery!r}", hint='write recovery="replay", or leave log out'
        )
    if not isinstance(query, Query) or not plain:
        raise UnsupportedError(
            "a single query is recovered by a replay, without timeouts and record",
            hint="leave recovery out, and save the state of the stream",
        )
    sources = check_stream(query, sources, timeouts=False)
    log = RetainedLog() if log is None else log
    an_instance(log, RetainedLog, "a retained log", hint="write op.recover.RetainedLog()")
    if not log.is_empty:
        raise StateError(
            "the retained log has events already", hint="go on with op.resume(query, log)"
        )
    return RecoverableStream(query, log, sources=sources)


def _check_join(sources: Iterable[str] | None = None, *, timeouts: bool) -> None:
    """Refuse what is asked of a join and is for patterns."""
    if sources is not None or timeouts:
        raise UnsupportedError(
            "a join has its two sides as sources, and no partial matches that time out",
            hint='write op.open(join, schema=(left, right)) and push(rows, "left")',
        )


@overload
def resume_query(
    query: Query,
    state: bytes,
    *,
    timeouts: bool = False,
    record: str | os.PathLike[str] | None = None,
) -> StreamMatcher: ...


@overload
def resume_query(query: Query, state: RetainedLog) -> RecoverableStream: ...


@overload
def resume_query(
    query: QueryGroup,
    state: bytes,
    *,
    timeouts: bool = False,
    record: str | os.PathLike[str] | None = None,
) -> GroupMatcher: ...


@overload
def resume_query(
    query: Join, state: bytes, *, record: str | os.PathLike[str] | None = None
) -> JoinStream: ...


def resume_query(
    query: Query | QueryGroup | Join,
    state: bytes | RetainedLog,
    *,
    timeouts: bool = False,
    record: str | os.PathLike[str] | None = None,
) -> StreamMatcher | GroupMatcher | JoinStream:
    """Go on from saved state, maybe in another process.

    Parameters
    ----------
    query, state
        The query, the group of them or the join, and what `state` returned; or the retained log of
        a stream that is recovered by a replay.
    timeouts
        Also collect partial matches that WITHIN ended.
    record
        A folder, new or empty, that gets a recording, as in `open_query`; it begins with the state.

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
    opened: StreamMatcher | GroupMatcher
    if isinstance(state, RetainedLog):
        plain = not timeouts and record is None
        if state.schema is None:
            raise StateError(
                "the retained log is empty",
                hint='look at its path, or write op.open(query, recovery="replay", log=log)',
            )
        if not isinstance(query, Query) or not plain:
            raise StateError(
                "the retained log is not that of a single query",
                hint="resume it with the query alone that it was opened with",
            )
        return RecoverableStream(query, state)
    if isinstance(query, Join):
        _check_join(timeouts=timeouts)
        opened = resume_join(query, state)
    else:
        names = State.decode(state).numbers.get("sources")
        with reading():
            sources = None if names is None else SourceMerge(names).sources
        opened = open_query(query, sources=sources, timeouts=timeouts)
        opened.restore(state)
    if record is not None:
        opened.record(record)
    return opened


def check_group(
    queries: QueryGroup, sources: Iterable[str] | None, *, timeouts: bool
) -> tuple[str, ...] | None:
    """Refuse queries that cannot be a stream in process, and return the sources of them all."""
    a_flag(timeouts, "timeouts")
    for query in queries.queries:
        with naming_query(query):
            check_stream(query, None, timeouts=timeouts and query.windows is None)
    return _named(sources)


def check_stream(
    query: Query, sources: Iterable[str] | None, *, timeouts: bool
) -> tuple[str, ...] | None:
    """Refuse what cannot be a stream in process, and return the identifiers of its sources."""
    if checked_query(query).operator is None:
        check_clauses(query)
    a_flag(timeouts, "timeouts")
    check_streamable(query)
    if query.windows is not None and timeouts:
        raise UnsupportedError("partial matches in windows do not time out: windows end them")
    return _named(sources)


def _named(sources: Iterable[str] | None) -> tuple[str, ...] | None:
    if sources is None:
        return None
    return tuple(some_names(sources, "sources", hint='write sources=["east", "west"]'))
