"""Where a query runs: in process or on Spark; told by the data, or by what runs the statement."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeGuard, overload

import pyarrow as pa

from outpace.engine.match.contract import Progress
from outpace.engine.order.senders import source_names
from outpace.engine.recover.protocol import SeekableLog
from outpace.errors import BindError, DataError, UnsupportedError
from outpace.explanation.explain import Explanation
from outpace.explanation.explain import explain as explain_plan
from outpace.files.parquet import ParquetFiles
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.hosts.local.join import join_data
from outpace.hosts.local.nested_keys import number_keys
from outpace.hosts.local.table import Search
from outpace.hosts.local.table import match as match_table
from outpace.hosts.local.table import search as search_table
from outpace.pattern.argument import a_text, shown, some_names
from outpace.pattern.disorder import Disorder
from outpace.pattern.group import QueryGroup, naming_query
from outpace.pattern.join import SIDES, Join
from outpace.pattern.query import Query, checked_query
from outpace.plan.row_plan import plan_query

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

    from outpace.explanation.explain import GroupExplanation
    from outpace.hosts.spark.stream_search import StreamSearch


@overload
def match(
    data: DataFrame,
    query: Query,
    *,
    progress: bool | Progress = False,
    sources: Iterable[str] | None = None,
    heartbeats: str | None = None,
    recovery: Literal["replay"] | None = None,
    log: SeekableLog | None = None,
) -> DataFrame: ...
# A table may be anything that has columns, so the types cannot tell it from a DataFrame.
@overload
def match(  # type: ignore[overload-overlap]
    data: DataFrame,
    query: QueryGroup,
    *,
    sources: Iterable[str] | None = None,
    heartbeats: str | None = None,
) -> DataFrame: ...
@overload
def match(
    data: ParquetFiles,
    query: Query,
    *,
    progress: bool | Progress = False,
    threads: int | None = None,
    spark: SparkSession | Literal[False] | None = None,
) -> DataFrame | pa.Table: ...
@overload
def match(
    data: TableLike,
    query: Query,
    *,
    progress: bool | Progress = False,
    threads: int | None = None,
) -> pa.Table: ...
@overload
def match(
    data: TableLike, query: QueryGroup, *, threads: int | None = None
) -> dict[str, pa.Table]: ...
def match(
    data: TableLike | ParquetFiles,
    query: Query | QueryGroup,
    *,
    progress: bool | Progress = False,
    sources: Iterable[str] | None = None,
    heartbeats: str | None = None,
    recovery: Literal["replay"] | None = None,
    log: SeekableLog | None = None,
    threads: int | None = None,
    spark: SparkSession | Literal[False] | None = None,
) -> object:
    """Find the matches of a query.

    Parameters
    ----------
    data
        A Spark DataFrame (classic or Connect), Parquet files (see `parquet`), an Arrow table, a
        pandas or polars frame, or a DuckDB relation.
    query
        What to detect and what to return. Several queries over one input are an `outpace.group`.
    progress
        In process: True for a bar on standard error, which appears on a terminal or in a notebook
        when the work takes longer than two seconds, or a function that is called now and then with
        the rows that are done and the rows that there are. On Spark it is refused: nothing runs
        before the result is used, and then Spark shows its own.
    sources
        Of a streaming DataFrame: the identifiers of several sources. The column `source` says who
        sent a row. Each source is in the order that the query's disorder says, by itself; a row
        waits until those of no other source can come before it. A table is sorted as a whole, so
        there they are refused.
    heartbeats
        Of a streaming DataFrame: a column of the type of the time. A row where it is not NULL is no
        event but a heartbeat of its source: no row of that source which comes in a later batch has
        a time before it.
    recovery
        Of a streaming DataFrame that comes from a log: "replay" lets Spark keep savepoints alone,
        mostly a kilobyte an instance, and reads what was lost from the log again. Without it Spark
        keeps the state. An event log says where it is, in blocks or with `offsetColumn`, and so do
        Parquet files.
    log
        Of a stream from another log: what reads that again, see `recover.SeekableLog`.
    threads
        In process: how many threads match a large table, see `set_threads`. Spark has its own
        setting.
    spark
        Of Parquet files: the session that matches them, or False to match them in process. By
        default it is the active session, or this process where none is.

    Returns
    -------
    pyspark.sql.DataFrame or pyarrow.Table
        Lazy on Spark. In process: partitions in the order of their first row, matches of a
        partition in their own order; of files with keys, partitions in any order. Over windows,
        matches in the order of their numbers x:y, see `Query.over`. The queries of a group
        give a dictionary of tables by their names; on a streaming DataFrame one with a column
        `query` that says whose a row is, and the columns of all.

    Examples
    --------
    >>> table = pa.table({"ts": [1, 2, 3, 4], "price": [10.0, 8.0, 7.0, 9.0]})
    >>> dip = (Query("dip").order_by("ts").pattern("STRT DOWN+ UP+")
    ...        .define(DOWN="price < PREV(price)", UP="price > PREV(price)")
    ...        .measures(bottom="LAST(DOWN.price)", ticks="COUNT(*)"))
    >>> match(table, dip).to_pylist()
    [{'bottom': 7.0, 'ticks': 4}]
    """
    stream = _stream(data, query, sources, heartbeats, recovery, log)
    on_spark = _is_spark_frame(data)
    session = None
    if isinstance(data, ParquetFiles):
        session = _session(spark)
        on_spark = session is not None
    elif spark is not None:
        raise UnsupportedError(
            "only Parquet files may be matched on Spark or in process",
            hint="leave spark out; a DataFrame is matched on Spark, a table in process",
        )
    _check_threads(threads, on_spark=on_spark)
    if isinstance(query, QueryGroup):
        return _match_group(data, query, progress, stream, threads)
    checked_query(query)
    if progress is not False and on_spark:
        raise UnsupportedError(
            "progress is shown in process, not on Spark",
            detail="on Spark nothing runs before the result is used",
            hint="leave progress out; spark.ui.showConsoleProgress lets Spark show its own",
        )
    if stream is not None:
        return stream.matches()
    if isinstance(data, ParquetFiles):
        if session is None:
            from outpace.hosts.local.files import match_files as match_files_here

            return match_files_here(data, query, progress=progress, threads=threads)
        from outpace.hosts.spark.files import match_files

        return match_files(session, data, query)
    if _is_spark_frame(data):
        from outpace.hosts.spark.frame import match_frame

        return match_frame(data, query)
    return match_table(data, query, progress=progress, threads=threads)


def _match_group(
    data: object,
    group: QueryGroup,
    progress: bool | Progress,
    stream: StreamSearch | None,
    threads: int | None,
) -> object:
    if progress is not False:
        raise UnsupportedError(
            "a group of queries has no progress", hint="match its queries one by one"
        )
    if stream is not None:
        return stream.matches()
    if isinstance(data, ParquetFiles) or _is_spark_frame(data):
        raise _no_stream()
    table, found = to_arrow(data), {}
    for query in group.queries:
        with naming_query(query):
            found[query.name] = match_table(table, query, threads=threads)
    return found


# A table may be anything that has columns, so the types cannot tell it from a DataFrame.
@overload
def search(  # type: ignore[overload-overlap]
    data: DataFrame,
    query: Query | QueryGroup,
    *,
    sources: Iterable[str] | None = None,
    heartbeats: str | None = None,
    recovery: Literal["replay"] | None = None,
    log: SeekableLog | None = None,
) -> StreamSearch: ...
@overload
def search(data: tuple[DataFrame, DataFrame], query: Join) -> StreamSearch: ...
@overload
def search(data: TableLike, query: Query, *, threads: int | None = None) -> Search: ...
def search(
    data: TableLike | tuple[DataFrame, DataFrame],
    query: Query | QueryGroup | Join,
    *,
    sources: Iterable[str] | None = None,
    heartbeats: str | None = None,
    recovery: Literal["replay"] | None = None,
    log: SeekableLog | None = None,
    threads: int | None = None,
) -> object:
    """Prepare a search: it runs when something is asked of it.

    Parameters
    ----------
    data
        A table, or a streaming DataFrame of Spark; of a join the left and the right stream.
    query
        What to detect and what to return; over a stream also an `outpace.group`, and over two a
        `Join`.
    sources, heartbeats, recovery, log
        Of a stream: the identifiers of several sources, the column of heartbeats, and how it is
        recovered and from what, as for `match`.
    threads
        Of a table: how many threads work on it, as for `match`.

    Returns
    -------
    Search or StreamSearch
        On a table: matches, their number, what timed out, and why. On a stream: matches, what timed
        out, late and invalid events, each as a streaming DataFrame.

    Examples
    --------
    >>> rise = Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")
    >>> found = search({"ts": [1, 2, 3], "x": [5, 4, 6]}, rise)
    >>> found.count(), found.table().to_pylist()
    (1, [{'at': 3}])
    """
    if isinstance(query, Join):
        others = sources, heartbeats, recovery, log, threads
        return _search_join(data, query, alone=all(one is None for one in others))
    _check_threads(threads, on_spark=_is_spark_frame(data))
    stream = _stream(data, query, sources, heartbeats, recovery, log)
    if stream is not None:
        return stream
    return search_table(data, checked_query(query), threads=threads)


@overload
def join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: str | list[str] | tuple[str, ...],
    within: str | datetime.timedelta | int,
    time: str,
    how: str = "inner",
    uncertain: str | datetime.timedelta | int | None = None,
    disorder: Disorder | None = None,
    name: str = "join",
) -> DataFrame: ...
@overload
def join(
    left: TableLike,
    right: TableLike,
    *,
    on: str | list[str] | tuple[str, ...],
    within: str | datetime.timedelta | int,
    time: str,
    how: str = "inner",
    uncertain: str | datetime.timedelta | int | None = None,
    disorder: Disorder | None = None,
    name: str = "join",
) -> pa.Table: ...
def join(
    left: TableLike,
    right: TableLike,
    *,
    on: str | list[str] | tuple[str, ...],
    within: str | datetime.timedelta | int,
    time: str,
    how: str = "inner",
    uncertain: str | datetime.timedelta | int | None = None,
    disorder: Disorder | None = None,
    name: str = "join",
) -> object:
    """Join the rows of two tables or streams that are equal in some columns and close in time.

    The result has the columns of `on`, the time column, and the other columns of both sides; it can
    be the input of `match`. Its time is that at which a row is known: the later one of a pair, and
    for a row without a partner its own time and `within`. Columns that both sides have come with
    the suffix `_left` or `_right`, the times too. To push rows piece by piece, open a `Join`.

    Parameters
    ----------
    left, right
        Two tables as for `match`, or two DataFrames of Spark, which are both batch or both
        streaming.
    on, within, time, how, uncertain, disorder, name
        See `Join`. A complete table is sorted, so disorder changes nothing there.

    Returns
    -------
    pyspark.sql.DataFrame or pyarrow.Table
        Lazy on Spark. In process, in the order of time.

    Examples
    --------
    >>> orders = {"id": [1, 2], "ts": [10, 20], "item": ["tea", "jam"]}
    >>> payments = {"id": [1], "ts": [12], "paid": [3.5]}
    >>> for row in join(orders, payments, on="id", within=5, time="ts", how="left").to_pylist():
    ...     print(row["ts"], row["item"], row["paid"])
    12 tea 3.5
    25 jam None
    """
    wanted = Join(
        on=on,
        within=within,
        time=time,
        how=how,
        uncertain=uncertain,
        disorder=disorder,
        name=name,
    )
    if _is_spark_frame(left) and _is_spark_frame(right):
        from outpace.hosts.spark.join import join_frames

        return join_frames(left, right, wanted)
    for side, data in zip(SIDES, (left, right), strict=True):
        if _is_spark_frame(data) or isinstance(data, ParquetFiles):
            raise UnsupportedError(
                f"the {side} side is on Spark, the other is not",
                hint="give two DataFrames of Spark, such as spark.read.parquet(...), or two tables",
            )
    return join_data(left, right, wanted)


@overload
def explain(
    query: Query,
    data: TableLike | ParquetFiles | pa.Schema | None = None,
    *,
    sources: Iterable[str] | None = None,
    heartbeats: str | None = None,
    recovery: Literal["replay"] | None = None,
    log: SeekableLog | None = None,
) -> Explanation: ...
@overload
def explain(query: QueryGroup, data: TableLike | pa.Schema | None = None) -> GroupExplanation: ...
def explain(
    query: Query | QueryGroup,
    data: TableLike | ParquetFiles | pa.Schema | None = None,
    *,
    sources: Iterable[str] | None = None,
    heartbeats: str | None = None,
    recovery: Literal["replay"] | None = None,
    log: SeekableLog | None = None,
) -> Explanation | GroupExplanation:
    """Explain a query: what it finds, how it is matched, and where each part of it runs.

    Parameters
    ----------
    query
        What to explain; of an `outpace.group` also what its queries share.
    data
        What it would run on, or the Arrow schema of that. For a Spark DataFrame and for Parquet
        files the explanation says what Spark computes, what crosses to Python and how rows are
        divided. Without it, what depends on types is left out.
    sources, heartbeats, recovery, log
        Of a stream: the identifiers of several sources, the column of heartbeats, and how it is
        recovered and from what, as for `match`.

    Examples
    --------
    >>> query = Query().order_by("ts").pattern("A B").define(B="x > 1").measures(n="COUNT(*)")
    >>> explain(query, pa.table({"ts": [1], "x": [2]})).matcher
    'kernel'
    """
    stream = _stream(data, query, sources, heartbeats, recovery, log)
    if isinstance(query, QueryGroup):
        return _explain_group(query, data, stream)
    checked_query(query)
    if stream is not None:
        return explain_plan(query, stream.plan())
    if data is None or isinstance(data, pa.Schema):
        return explain_plan(query, data)
    if isinstance(data, ParquetFiles):
        if (session := _session(None)) is None:
            from outpace.hosts.local.files import plan_files_here

            return explain_plan(query, plan_files_here(data, query))
        from outpace.hosts.spark.files import plan_session_files

        return explain_plan(query, plan_session_files(session, data, query))
    if _is_spark_frame(data):
        from outpace.hosts.spark.frame import flagged
        from outpace.hosts.spark.nested_keys import NestedKeys
        from outpace.hosts.spark.schema import arrow_schema

        nested = NestedKeys(flagged(data, query), query)
        return explain_plan(nested.query, plan_query(nested.query, arrow_schema(nested.frame)))
    table, query, _ = number_keys(to_arrow(data, query).slice(0, 0), query)
    return explain_plan(query, table.schema)


def _explain_group(
    group: QueryGroup, data: object, stream: StreamSearch | None
) -> GroupExplanation:
    from outpace.explanation.explain import explain_group

    if data is None or isinstance(data, pa.Schema):
        return explain_group(group, data)
    if stream is not None:
        plan = stream.plan()
        return explain_group(QueryGroup(plan.queries), plan)
    if isinstance(data, ParquetFiles) or _is_spark_frame(data):
        raise _no_stream()
    return explain_group(group, to_arrow(data).schema)


def _no_stream() -> UnsupportedError:
    return UnsupportedError(
        "on Spark the queries of a group share a stream, and this is none",
        detail="a DataFrame is read by each query that is matched on it",
        hint="match its queries one by one",
    )


@overload
def sql(session: SparkSession, text: str, dialect: str = "outpace") -> DataFrame: ...
@overload
def sql(session: duckdb.DuckDBPyConnection, text: str, dialect: str = "outpace") -> pa.Table: ...
def sql(
    session: SparkSession | duckdb.DuckDBPyConnection, text: str, dialect: str = "outpace"
) -> object:
    """Run a statement with MATCH_RECOGNIZE, or JOIN ... WITHIN, on Spark or in process on DuckDB.

    Parameters
    ----------
    session
        A Spark session (classic or Connect) or an open DuckDB connection. It runs what is not
        MATCH_RECOGNIZE; its tables and views can be read, and frames that are registered.
    text
        One statement. It may hold any number of MATCH_RECOGNIZE clauses, also in subqueries and
        common table expressions. Their inputs are computed before the rest of the statement runs,
        a common table expression anew for each clause that reads it.
    dialect
        What the statement is written in: "trino", "spark", "flink", "oracle", "snowflake" and the
        like. By default it is Spark's or DuckDB's own SQL around MATCH_RECOGNIZE.

    Returns
    -------
    pyspark.sql.DataFrame or pyarrow.Table
        Lazy on Spark. In process, the result of the statement; a table without columns where it
        has none.

    Examples
    --------
    >>> import duckdb
    >>> con = duckdb.connect()
    >>> sql(con, '''
    ...     SELECT m.low
    ...     FROM (VALUES (1, 90), (2, 80), (3, 70), (4, 75)) t(ts, price)
    ...     MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(DOWN.price) AS low
    ...                      PATTERN (STRT DOWN+ UP)
    ...                      DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)) m
    ... ''').to_pylist()
    [{'low': 70}]
    """
    a_text(text, "a statement")
    a_text(dialect, "a dialect")
    # DuckDB and the SQL parser take a quarter of a second to load: only who uses them waits.
    if _is_duckdb_connection(session):
        from outpace.hosts.local.sql import sql as run_on_duckdb

        return run_on_duckdb(session, text, dialect)
    if _is_spark_session(session):
        from outpace.hosts.spark.sql import sql as run_on_spark

        return run_on_spark(session, text, dialect)
    name = type(session).__name__
    raise DataError(
        f"expected a Spark session or a DuckDB connection, not an object of type {name}",
        hint="duckdb.connect() gives a connection; no Spark session is created here",
    )


def _session(spark: SparkSession | Literal[False] | None) -> SparkSession | None:
    """Return the session that files are matched with; None: in process."""
    if spark is False:
        return None
    if spark is not None:
        if type(spark).__name__ != "SparkSession":
            raise BindError(
                f"spark is a session of Spark or False, not {shown(spark)}",
                hint="leave it out to match where a session is active, and in process else",
            )
        return spark
    # Where Spark has not been loaded no session is active.
    loaded = sys.modules.get("pyspark.sql")
    return None if loaded is None else loaded.SparkSession.getActiveSession()


def _check_threads(threads: int | None, *, on_spark: bool) -> None:
    if threads is not None and on_spark:
        raise UnsupportedError(
            "threads match a table in process, not one on Spark",
            hint="leave threads out; the master of the session says how many cores Spark uses",
        )


def _is_spark_frame(value: object) -> TypeGuard[DataFrame]:
    # The classic and the Connect class are told by their module: neither is imported without need.
    return type(value).__module__.startswith("pyspark.sql")


def _is_stream(value: object) -> TypeGuard[DataFrame]:
    if not _is_spark_frame(value):
        return False
    from outpace.hosts.spark.schema import is_streaming

    return is_streaming(value)


def _stream(
    data: object,
    query: Query | QueryGroup,
    sources: Iterable[str] | None,
    heartbeats: str | None,
    recovery: object,
    log: SeekableLog | None,
) -> StreamSearch | None:
    """Return what is asked of a stream on Spark, and refuse it of anything else."""
    replays = _replays(recovery, log, data)
    names, told = _sources(sources, data), _heartbeats(heartbeats, data)
    if not _is_stream(data):
        return None
    from outpace.hosts.spark.stream_search import StreamSearch

    asked = query if isinstance(query, QueryGroup) else checked_query(query)
    return StreamSearch(data, asked, names, replays, log, told)


def _search_join(data: object, join: Join, *, alone: bool) -> StreamSearch:
    sides = data if isinstance(data, tuple | list) else ()
    if len(sides) != len(SIDES) or not all(map(_is_spark_frame, sides)):
        raise UnsupportedError(
            "a search of a join is over two streams of Spark",
            hint="write op.search((left, right), op.Join(...)); op.join(...) joins tables, and in "
            "process op.open(op.Join(...)) has what is late",
        )
    if not alone:
        raise UnsupportedError("a join has two sides, and no other options", hint="leave them out")
    from outpace.hosts.spark.join import search_frames

    return search_frames(sides[0], sides[1], join)


def _sources(sources: Iterable[str] | None, data: object) -> tuple[str, ...] | None:
    """Return the identifiers of the sources of a stream, in their order; a table has none."""
    if sources is None:
        return None
    if not _is_stream(data):
        raise UnsupportedError(
            "only a stream has several sources",
            detail="a table is sorted as a whole, whoever sent its rows",
            hint="leave sources out; in process, op.open(query, sources=[...]) opens a stream",
        )
    return source_names(some_names(sources, "sources", hint='write sources=["east", "west"]'))


def _heartbeats(heartbeats: str | None, data: object) -> str | None:
    """Return the column of heartbeats of a stream on Spark; others are told them by a call."""
    if heartbeats is None or _is_stream(data):
        return heartbeats if heartbeats is None else a_text(heartbeats, "heartbeats")
    raise UnsupportedError(
        "only a streaming DataFrame has rows that are heartbeats",
        hint="leave heartbeats out; in process, heartbeat(source, time) of a stream is one",
    )


def _replays(recovery: object, log: object, data: object) -> bool:
    """Return whether a stream is recovered by a replay, and refuse it of anything else."""
    if recovery is None and log is None:
        return False
    if recovery != "replay":
        raise UnsupportedError(
            f"there is no recovery {shown(recovery)}"
            if recovery is not None
            else "a log is read again by a replay alone",
            hint='write recovery="replay", or leave it out',
        )
    if not _is_stream(data):
        raise UnsupportedError(
            "only a stream is recovered, and this is none",
            hint='leave recovery out; in process, write op.open(query, recovery="replay")',
        )
    return True


def _is_duckdb_connection(value: object) -> TypeGuard[duckdb.DuckDBPyConnection]:
    return type(value).__name__ == "DuckDBPyConnection"


def _is_spark_session(value: object) -> TypeGuard[SparkSession]:
    # The classic and the Connect class are not related, and neither is imported without need.
    return any(
        kind.__name__ == "SparkSession" and kind.__module__.startswith("pyspark.sql")
        for kind in type(value).__mro__
    )
