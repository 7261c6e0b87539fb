"""A sink that writes a stream into a table of PostgreSQL, each row exactly once.

`writer` gives the function that `foreachBatch` calls. Tasks put their rows into a staging table;
then one transaction moves the rows of the tasks that Spark counts as done into the table, and
writes the batch's number beside them. A batch that Spark runs again, after whatever crash, is found
there and not written twice; rows of tasks that ended, or ran twice, are never moved.

Where matches may be taken back, the table may follow: it has a row for each match that is there,
and the transaction merges the changes of the batch into it.

A task holds one Arrow batch of rows, the driver one line for each task.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, LiteralString

import pyarrow as pa

from outpace.errors import DataError, OutpaceError, StateError
from outpace.hosts.local.current import check_changes
from outpace.hosts.spark.batch import query_id
from outpace.hosts.spark.postgres_copy import as_written, column_type, copy_text
from outpace.pattern.argument import a_flag
from outpace.pattern.bound import DIFF, MATCH

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame

    Connection = psycopg.Connection[tuple[Any, ...]]

__all__ = ["PostgresWriter", "writer"]

#: Where the number of the last finished batch of each stream is kept, in the table's own schema.
BATCHES: Final = "outpace_batches"

#: How long a writer waits for another one of the same stream, which should not be there.
_LOCK_SECONDS_MAX: Final = 60

#: The column of the staging table that tells the tasks apart; no column of a stream has this name.
_TOKEN: Final = "outpace token"
#: The one that tells in which order a task had its rows, where that counts.
_PLACE: Final = "outpace place"
#: The batch before the first one.
_NONE: Final = -1

_PART: Final = re.compile(r'"(?:[^"]|"")+"|[\w$]+')
_NAME: Final = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))?")

_STAGED: Final = pa.schema([("token", pa.string()), ("rows", pa.int64())])
_STAGED_ON_SPARK: Final = "token string, rows bigint"


def writer(
    dsn: str, table: str, *, stream: str | None = None, current: bool = False
) -> PostgresWriter:
    """Return the function for `foreachBatch` that writes a stream into a table of PostgreSQL.

    Parameters
    ----------
    dsn
        Where the server is: "postgresql://user@host/database" or "host=… dbname=…". The driver and
        the tasks connect to it.
    table
        The table, or schema and table: "dips", "reports.dips". Names are taken as they are written
        here. It is made from the columns of the stream where it is missing; one that is there may
        have more columns, which get their defaults.
    stream
        The name under which finished batches are noted: one for each checkpoint folder. By default
        the query's id, which is in the checkpoint; Spark Connect does not tell it to the function.
    current
        Keep the matches that are there now, of a stream with `match_id` and `diff`: one that comes
        is inserted, one that changes or is confirmed is updated, one that is taken back is
        deleted. The table has a row for each match, the columns of the stream without `diff`, and
        where it is made here `match_id` as its key.

    Returns
    -------
    PostgresWriter
        Call `foreachBatch` with it.

    Raises
    ------
    OutpaceError
        Psycopg is missing, or the table's name or the address cannot be read.

    Examples
    --------
    >>> dips = op.match(ticks, dip)  # doctest: +SKIP
    >>> sink = op.spark.postgres.writer("postgresql:///reports", "dips")  # doctest: +SKIP
    >>> dips.writeStream.foreachBatch(sink).option("checkpointLocation", "…")  # doctest: +SKIP
    """
    psycopg = _psycopg()
    try:
        psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error as error:
        raise OutpaceError(
            "the address of PostgreSQL cannot be read",
            detail=str(error),
            hint="write postgresql://user@host/database, or host=… dbname=…",
        ) from error
    return PostgresWriter(dsn, _parts(table), stream, a_flag(current, "current"))


@dataclass(frozen=True)
class PostgresWriter:
    """Writes the batches of a stream; see `writer`.

    Parameters
    ----------
    dsn, table, stream, current
        As for `writer`; the table as the parts of its name.
    """

    dsn: str = field(repr=False)
    table: tuple[str, ...]
    stream: str | None = None
    current: bool = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write a batch, unless it is written already.

        Raises
        ------
        StateError
            The batch does not follow the last one that was finished: the checkpoint is not the one
            that the table was written from.
        DataError
            The table does not take the rows.
        OutpaceError
            The server cannot be reached, or refuses.
        """
        if self.current:
            check_changes(frame.columns)
        target = _TargetTable(self.table, self.stream or query_id(frame), self.current)
        fields = frame.schema.fields
        columns = {field.name: column_type(field.name, field.dataType) for field in fields}
        with _connected(self.dsn) as connection:
            _prepare(connection, target, columns)
            finished = _is_finished(connection, target, batch)
        if finished:
            # Spark's own state still has to follow the batch, so the plan runs in any case.
            frame.write.format("noop").mode("overwrite").save()
            return
        stage = partial(_stage, self.dsn, target, tuple(columns))
        staged = as_written(frame).mapInArrow(stage, _STAGED_ON_SPARK).collect()
        rows = {row["token"]: row["rows"] for row in staged}
        # Not the connection from before: one that is silent for a long time may be cut.
        with _connected(self.dsn) as connection:
            _finish(connection, target, tuple(columns), batch, rows)


@dataclass(frozen=True)
class _TargetTable:
    """A table, and the stream that is written into it."""

    table: tuple[str, ...]
    stream: str
    #: Whether the table has the matches that are there now.
    current: bool = False

    @property
    def name(self) -> str:
        words = (part.replace('"', '""') for part in self.table)
        return ".".join(word if re.fullmatch(r"[\w$]+", word) else f'"{word}"' for word in words)

    @property
    def staging(self) -> tuple[str, ...]:
        digest = hashlib.sha256("\0".join((self.stream, *self.table)).encode()).hexdigest()
        return (*self.table[:-1], f"outpace_staging_{digest[:16]}")

    @property
    def batches(self) -> tuple[str, ...]:
        return (*self.table[:-1], BATCHES)


def _prepare(connection: Connection, target: _TargetTable, columns: Mapping[str, str]) -> None:
    """Make the tables that are missing, and see whether the stream's columns are in its own."""
    from psycopg import sql

    with connection.transaction():
        _wait_not_for_ever(connection)
        # Two streams that start at once would both make the table of batches.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [BATCHES])
        if not _columns(connection, target.batches):
            made = (
                "CREATE TABLE {} (stream text, sink text, batch bigint NOT NULL, "
                "finished timestamp with time zone NOT NULL, PRIMARY KEY (stream, sink))"
            )
            connection.execute(sql.SQL(made).format(sql.Identifier(*target.batches)))
        there = _columns(connection, target.table)
        shown = {n: kind for n, kind in columns.items() if not (target.current and n == DIFF)}
        if not there:
            _make_table(connection, target.table, shown, key=MATCH if target.current else None)
            there = _columns(connection, target.table)
        if missing := [name for name in shown if name not in there]:
            raise DataError(
                f"the table '{target.name}' has no column '{missing[0]}'",
                detail=f"it has {', '.join(there)}",
                hint="add the column, or write into another table",
            )
        kinds = {n: there[n] if n in shown else kind for n, kind in columns.items()}
        _make_staging(connection, target, kinds)


def _make_table(
    connection: Connection,
    table: tuple[str, ...],
    columns: Mapping[str, str],
    *,
    kept: bool = True,
    key: str | None = None,
) -> None:
    from psycopg import sql

    # Types are words of this module or of the server, never of a user.
    written = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
        for name, kind in columns.items()
    ]
    if key is not None:
        written.append(sql.SQL("PRIMARY KEY ({})").format(sql.Identifier(key)))
    listed = sql.SQL(", ").join(written)
    made: LiteralString = "CREATE TABLE {} ({})" if kept else "CREATE UNLOGGED TABLE {} ({})"
    connection.execute(sql.SQL(made).format(sql.Identifier(*table), listed))


def _make_staging(connection: Connection, target: _TargetTable, columns: Mapping[str, str]) -> None:
    """Make the staging table again where the table or the stream has got other columns."""
    from psycopg import sql

    wanted = {_TOKEN: "uuid", **({_PLACE: "bigint"} if target.current else {}), **columns}
    there = _columns(connection, target.staging)
    if there == wanted:
        return
    if there:
        connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(*target.staging)))
    # A crash of the server empties it; `_finish` then misses the rows, and the batch runs again.
    _make_table(connection, target.staging, wanted, kept=False)


def _columns(connection: Connection, table: tuple[str, ...]) -> dict[str, str]:
    """Return the columns of a table with their types; none where it does not exist."""
    from psycopg import sql

    statement = (
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    name = sql.Identifier(*table).as_string(connection)
    return dict(connection.execute(statement, [name]).fetchall())


def _is_finished(
    connection: Connection, target: _TargetTable, batch: int, *, lock: bool = False
) -> bool:
    """Whether a batch was finished before; it is the last one then, or the next one.

    With `lock`, other writers of the stream wait until the transaction ends.
    """
    from psycopg import sql

    statement: LiteralString = "SELECT batch FROM {} WHERE stream = %s AND sink = %s"
    if lock:
        statement += " FOR UPDATE"
    found = connection.execute(
        sql.SQL(statement).format(sql.Identifier(*target.batches)), [target.stream, target.name]
    ).fetchone()
    last = found[0] if found else _NONE
    if last == _NONE or batch in (last, last + 1):
        return bool(batch == last)
    raise StateError(
        f"batch {batch} cannot be written after batch {last}, which was the last one finished",
        where=f"stream '{target.stream}' into the table '{target.name}'",
        detail="the checkpoint folder is not the one that the table was written from, or another "
        "program writes the same stream",
        hint="go on with the old checkpoint folder, or give the writer another name for the stream",
    )


def _finish(
    connection: Connection,
    target: _TargetTable,
    columns: Sequence[str],
    batch: int,
    staged: Mapping[str, int],
) -> None:
    """Move the staged rows into the table and note the batch, in one transaction."""
    from psycopg import sql

    key = [target.stream, target.name]
    batches = sql.Identifier(*target.batches)
    with connection.transaction():
        _wait_not_for_ever(connection)
        # The row is there before it is asked for, so that it can be locked.
        first = "INSERT INTO {} VALUES (%s, %s, %s, now()) ON CONFLICT DO NOTHING"
        connection.execute(sql.SQL(first).format(batches), [*key, _NONE])
        if _is_finished(connection, target, batch, lock=True):
            return
        if staged:
            move = _merge if target.current else _move
            moved = move(connection, target, columns, [uuid.UUID(token) for token in staged])
            if lost := sum(staged.values()) - moved:
                raise StateError(
                    f"{lost} rows of batch {batch} are not in the staging table any more",
                    where=f"stream '{target.stream}' into the table '{target.name}'",
                    detail="the server was restarted, or another program writes the same stream",
                    hint="start the query again: it goes on with this batch",
                )
        done = "UPDATE {} SET batch = %s, finished = now() WHERE stream = %s AND sink = %s"
        connection.execute(sql.SQL(done).format(batches), [batch, *key])


def _move(
    connection: Connection, target: _TargetTable, columns: Sequence[str], tokens: list[uuid.UUID]
) -> int:
    """Move the staged rows of some tasks into the table; return how many there were."""
    from psycopg import sql

    # What tasks left behind that ended or ran twice goes away in the same statement.
    move = sql.SQL(
        "WITH moved AS (DELETE FROM {staging} RETURNING *) "
        "INSERT INTO {table} ({columns}) "
        "SELECT {columns} FROM moved WHERE {token} = ANY(%s)"
    ).format(
        staging=sql.Identifier(*target.staging),
        table=sql.Identifier(*target.table),
        columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
        token=sql.Identifier(_TOKEN),
    )
    return connection.execute(move, [tokens]).rowcount


#: The last that is said of each match counts: it is gone, or it is as the row shows it.
_MERGE: Final = """
MERGE INTO {table} AS present
USING (
    SELECT DISTINCT ON ({match}) * FROM {staging} WHERE {token} = ANY(%s)
    ORDER BY {match}, {place} DESC
) AS told ON present.{match} = told.{match}
WHEN MATCHED AND told.{diff} < 0 THEN DELETE
WHEN MATCHED THEN UPDATE SET {set}
WHEN NOT MATCHED AND told.{diff} >= 0 THEN INSERT ({columns}) VALUES ({values})
"""
#: One that is said to come twice in a row has several rows.
_SEVERAL: Final = """
SELECT {match} FROM (
    SELECT {match}, {diff}, lag({diff}) OVER (PARTITION BY {match} ORDER BY {place}) AS before
    FROM {staging} WHERE {token} = ANY(%s)
) AS told WHERE before = {diff} LIMIT 1
"""


def _merge(
    connection: Connection, target: _TargetTable, columns: Sequence[str], tokens: list[uuid.UUID]
) -> int:
    """Let the table follow the staged changes of some tasks; return how many there were."""
    from psycopg import sql

    shown = [sql.Identifier(name) for name in columns if name != DIFF]
    new_values = [sql.SQL("told.{}").format(name) for name in shown]
    pairs = [
        sql.SQL("{} = {}").format(name, value)
        for name, value in zip(shown, new_values, strict=True)
    ]
    names: dict[str, sql.Composable] = {
        "table": sql.Identifier(*target.table),
        "staging": sql.Identifier(*target.staging),
        "token": sql.Identifier(_TOKEN),
        "place": sql.Identifier(_PLACE),
        "match": sql.Identifier(MATCH),
        "diff": sql.Identifier(DIFF),
        "columns": sql.SQL(", ").join(shown),
        "values": sql.SQL(", ").join(new_values),
        "set": sql.SQL(", ").join(pairs),
    }
    several = connection.execute(sql.SQL(_SEVERAL).format(**names), [tokens]).fetchone()
    if several is not None:
        raise DataError(
            f"the match {several[0]} has several rows, and a table of present matches has one",
            where=f"stream '{target.stream}' into the table '{target.name}'",
            hint="let the query give one_row_per_match()",
        )
    connection.execute(sql.SQL(_MERGE).format(**names), [tokens])
    counted = sql.SQL("SELECT count(*) FROM {staging} WHERE {token} = ANY(%s)").format(**names)
    (size,) = connection.execute(counted, [tokens]).fetchone() or (0,)
    # With what tasks left behind that ended or ran twice.
    connection.execute(sql.SQL("DELETE FROM {staging}").format(**names))
    return int(size)


def _wait_not_for_ever(connection: Connection) -> None:
    """Let the transaction fail where another one has what it needs for too long."""
    connection.execute("SELECT set_config('lock_timeout', %s, true)", [f"{_LOCK_SECONDS_MAX}s"])


def _stage(
    dsn: str, target: _TargetTable, columns: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Put the rows of one task into the staging table, in one transaction."""
    from psycopg import sql

    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    token = str(uuid.uuid4())
    place = [_PLACE] if target.current else []
    listed = sql.SQL(", ").join(map(sql.Identifier, (_TOKEN, *place, *columns)))
    copied = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
        sql.Identifier(*target.staging), listed
    )
    rows = 0
    # Outside of a transaction, COPY is one.
    with _connected(dsn) as connection, connection.cursor().copy(copied) as copy:
        for batch in chain([first], filled):
            copy.write(copy_text(token, batch, rows if target.current else None))
            rows += batch.num_rows
    yield pa.RecordBatch.from_pylist([{"token": token, "rows": rows}], _STAGED)


@contextmanager
def _connected(dsn: str) -> Iterator[Connection]:
    """Connect to the server; what it complains about is an error of Outpace."""
    psycopg = _psycopg()
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            yield connection
    except psycopg.errors.LockNotAvailable as error:
        raise StateError(
            "another program writes the same stream into PostgreSQL",
            detail=f"it has held a lock for {_LOCK_SECONDS_MAX} s: {str(error).strip()}",
            hint="stop one of the two, or give the writers different names for their streams",
        ) from error
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        raise DataError(
            "PostgreSQL does not take a row",
            detail=str(error).strip(),
            hint="once the cause is removed, start the query again: it goes on with this batch",
        ) from error
    except psycopg.Error as error:
        raise OutpaceError(
            "PostgreSQL did not do what it was asked to",
            detail=str(error).strip() or type(error).__name__,
            hint="once the cause is removed, start the query again: it goes on with this batch",
        ) from error


def _psycopg() -> ModuleType:
    try:
        import psycopg
    except ImportError as error:
        raise OutpaceError(
            "psycopg is not installed", detail=str(error), hint="pip install 'outpace[postgres]'"
        ) from error
    return psycopg


def _parts(table: str) -> tuple[str, ...]:
    """Return the names of a schema, where there is one, and of a table.

    Examples
    --------
    >>> _parts("dips"), _parts('reports."my.dips"')
    (('dips',), ('reports', 'my.dips'))
    """
    if not _NAME.fullmatch(table):
        raise OutpaceError(
            f"'{table}' is not the name of a table",
            hint="write dips or reports.dips, and in double quotes what is not one word",
        )
    parts = _PART.findall(table)
    return tuple(part[1:-1].replace('""', '"') if part[0] == '"' else part for part in parts)
