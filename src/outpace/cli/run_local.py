"""`outpace run` in process: which runs are small enough, what they find, and how it is written.

Columns, types and text are those of the same run on Spark. What may differ there (other types, SQL
that databases read differently) is left to Spark, and so is what is large.
"""

from __future__ import annotations

import json
import math
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from outpace.cli.run_input import DataFormat, Input
from outpace.cli.run_query import SqlText
from outpace.engine.match.task import prepare
from outpace.errors import BindError, OutpaceError, did_you_mean
from outpace.files.parquet import FileList
from outpace.files.text_lines import is_compressed
from outpace.hosts.local.table import match
from outpace.pattern.bind.query import bind
from outpace.pattern.bind.window_kinds import bind_windows
from outpace.pattern.query import Query
from outpace.report.table import counted_bytes
from outpace.statement.portable import differences
from outpace.statement.spark_on_duckdb import EAGER, for_duckdb
from outpace.statement.step import whole_table
from outpace.statement.unknown_names import unknown_columns, unknown_tables

#: Inputs together may have so many rows, where files tell that, and so many bytes.
ROWS_MAX: Final = 1_000_000
BYTES_MAX: Final = 64 * 2**20
#: Compressed text is about so many times as long as its file.
_UNPACKED: Final = 8

#: Where CSV needs quotes.
_QUOTED: Final = r'[,"\r\n]'


def why_spark(request: Query | SqlText, inputs: Sequence[Input]) -> str | None:
    """Say why a run needs Spark; None if it is done in process."""
    size = sum(map(_bytes, inputs))
    if size > BYTES_MAX:
        return f"the input has {counted_bytes(size)}, more than {counted_bytes(BYTES_MAX)}"
    rows = sum(
        group.rows for one in inputs if isinstance(one.content, FileList)
        for group in one.content.groups
    )  # fmt: skip
    if rows > ROWS_MAX:
        return f"the input has {rows:,} rows, more than {ROWS_MAX:,}"
    for one in inputs:
        for field in one.schema:
            if not is_plain(field.type):
                return f"column '{field.name}' is of type {field.type}"
    output = _outputs(request, inputs)
    for fields in output.values():
        for field in fields:
            if not is_plain(field.type):
                return f"column '{field.name}' of the result is of type {field.type}"
    if isinstance(request, Query):
        return None
    different = differences(request.statement(), {**_schemas(inputs), **output})
    return None if different is None else f"the statement has {different}"


def check_query(request: Query | SqlText, inputs: Sequence[Input], *, catalog: bool) -> None:
    """Refuse unknown names before anything is started.

    Parameters
    ----------
    request, inputs
        What to run on what.
    catalog
        Whether Spark may know more tables than the inputs.
    """
    if isinstance(request, Query):
        _bind(request, inputs[0].schema)
        return
    statement = request.statement()
    names = [one.name for one in inputs if one.name is not None]
    for table in () if catalog else unknown_tables(statement, names):
        raise request.located(
            BindError(
                f"there is no table '{table}'",
                span=request.table_place(table),
                text=request.text,
                detail=f"the inputs are {', '.join(names)}",
                hint=did_you_mean(table, names) or f"--input {table}=PATH",
            )
        )
    schemas = {one.name.lower(): one.schema for one in inputs if one.name is not None}
    for step in statement.steps:
        schema = schemas.get(whole_table(step) or "")
        if schema is not None and not step.lookups and step.is_clause:
            try:
                _bind(step.query, schema)
            except OutpaceError as error:
                raise request.located(statement.located(error, step)) from error.__cause__
    known = {**schemas, **_outputs(request, inputs)}
    columns = {table: [field.name for field in fields] for table, fields in known.items()}
    for column, there in unknown_columns(statement, columns):
        raise request.located(
            BindError(
                f"unknown column '{column}'",
                span=request.column_place(column),
                text=request.text,
                hint=did_you_mean(column, there) or f"the columns are {', '.join(there)}",
            )
        )


def check_columns(request: Query | SqlText, inputs: Sequence[Input]) -> None:
    """Refuse unknown columns around MATCH_RECOGNIZE, where the statement can be tried here."""
    if isinstance(request, SqlText):
        known = {**_schemas(inputs), **_outputs(request, inputs)}
        if differences(request.statement(), known) is None:
            with suppress(LeftToSpark):
                _run_statement(request, {one.name: one.schema.empty_table() for one in inputs})


class LeftToSpark(Exception):  # noqa: N818 - it is no failure
    """A number is too large or divided by zero, which Spark may find, or not look at."""


def found_in_process(request: Query | SqlText, inputs: Sequence[Input]) -> TableResult:
    """Read the inputs and return the rows of the result; only Spark can decide some queries."""
    if isinstance(request, Query):
        return TableResult.of(match(read_table(inputs[0]), request, progress=True))
    return TableResult.of(_run_statement(request, {one.name: read_table(one) for one in inputs}))


@contextmanager
def pandas_left_out(*queries: Path) -> Iterator[None]:
    """Let Arrow not load pandas, which it does to know its objects and which takes long.

    SQL brings no such objects. A Python file may, and then nothing is left out.
    """
    if any(query.suffix.lower() == ".py" for query in queries):
        yield
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        yield
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out", name=name)


def read_table(source: Input) -> pa.Table:
    """Read all rows of an input."""
    content = source.content
    if isinstance(content, FileList):
        groups = [content.read(group, content.schema.names) for group in content.groups]
        return pa.concat_tables([content.schema.empty_table(), *groups])
    batches = [batch for piece in content.pieces for batch in content.read(piece)]
    return pa.Table.from_batches(batches, content.schema)


def size_text(inputs: Sequence[Input]) -> str:
    """Return how large inputs are, in words."""
    return counted_bytes(sum(map(_bytes, inputs)))


@dataclass(frozen=True)
class TableResult:
    """The rows of a table, with Spark's types.

    Parameters
    ----------
    table
        The rows of the result.
    """

    table: pa.Table

    @classmethod
    def of(cls, found: pa.Table) -> TableResult:
        """Return rows with the types that they have on Spark."""
        fields = [pa.field(field.name, _spark_type(field.type)) for field in found.schema]
        return cls(found.cast(pa.schema(fields)))

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.table.schema

    def write_parts(self, folder: Path, format: DataFormat, *, header: bool) -> int:
        """Write the rows as one part, with the name that Spark gives to it."""
        folder.mkdir()
        name = f"part-00000-{uuid.uuid4()}-c000"
        if format is DataFormat.PARQUET:
            pq.write_table(self.table, folder / f"{name}.snappy.parquet")
        else:
            lines = _csv_lines if format is DataFormat.CSV else json_lines
            with (folder / f"{name}.{format.value}").open("w", encoding="utf-8") as file:
                if header and format is DataFormat.CSV:
                    file.write(",".join(map(str, _quoted(pa.array(self.schema.names)))) + "\n")
                for batch in self.table.to_batches(max_chunksize=65_536):
                    file.writelines(line + "\n" for line in lines(batch))
        (folder / "_SUCCESS").touch()
        return int(self.table.num_rows)

    def first_rows(self, limit: int) -> tuple[pa.Table, int]:
        """Return the first rows, and how many there are."""
        return self.table.slice(0, limit), self.table.num_rows


def _run_statement(request: SqlText, tables: Mapping[str | None, pa.Table]) -> pa.Table:
    import duckdb

    from outpace.hosts.local.sql import run_split

    statement = request.statement()
    # A statement reads its inputs alone, as on Spark: no file by its name, no extension.
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"SET disabled_optimizers = '{','.join(EAGER)}'")
        for name, table in tables.items():
            assert name is not None
            connection.register(name, table)
        try:
            return run_split(connection, for_duckdb(statement), progress=True)
        except OutpaceError as error:
            if isinstance(
                error.__cause__, duckdb.OutOfRangeException | duckdb.InvalidInputException
            ):
                raise LeftToSpark(error.message.removeprefix("DuckDB: ")) from error
            raise request.located(error) from error.__cause__


def _bind(query: Query, schema: pa.Schema) -> None:
    if query.operator is None:
        prepare(query, schema)
        if query.windows is not None:
            bind_windows(query, schema)


def _schemas(inputs: Sequence[Input]) -> dict[str, Iterable[pa.Field]]:
    return {str(one.name): one.schema for one in inputs}


def _outputs(request: Query | SqlText, inputs: Sequence[Input]) -> dict[str, Iterable[pa.Field]]:
    """Return the columns of the matches, where they are known before the rows are read."""
    if isinstance(request, Query):
        return {} if request.operator else {"": bind(request, inputs[0].schema).output}
    schemas = {one.name.lower(): one.schema for one in inputs if one.name is not None}
    steps = [(step, schemas.get(whole_table(step) or "")) for step in request.statement().steps]
    return {
        step.table: bind(step.query, schema).output
        for step, schema in steps
        if schema is not None and step.is_clause and not (step.lookups or step.query.operator)
    }


def _bytes(source: Input) -> int:
    content = source.content
    if isinstance(content, FileList):
        return sum(sum(group.sizes.values()) for group in content.groups)
    found = content.filesystem.get_file_info(list(source.files))
    return sum(one.size * (_UNPACKED if is_compressed(one.path) else 1) for one in found)


def is_plain(kind: pa.DataType) -> bool:
    """Say whether values of a type are read and written here as on Spark."""
    zoned = pa.types.is_timestamp(kind) and kind.tz not in (None, "UTC")
    plain = (
        pa.types.is_boolean(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
    )
    return plain and not zoned


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column on Spark: times have microseconds, and the session's zone."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    return pa.string() if pa.types.is_large_string(kind) else kind


def _csv_lines(batch: pa.RecordBatch) -> Iterable[str]:
    columns = []
    for column in batch.columns:
        texts = _quoted(column) if pa.types.is_string(column.type) else _texts(column)
        columns.append(["" if text is None else text for text in texts])
    return map(",".join, zip(*columns, strict=True))


def _quoted(column: pa.Array) -> list[str | None]:
    escaped = pc.binary_join_element_wise('"', pc.replace_substring(column, '"', '""'), '"', "")
    needed = pc.or_(pc.match_substring_regex(column, _QUOTED), pc.equal(column, ""))
    return list(pc.if_else(needed, escaped, column).to_pylist())


def json_lines(batch: pa.RecordBatch) -> Iterable[str]:
    """Return rows as lines of JSON, without their ends."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        key = json.dumps(name, ensure_ascii=False) + ":"
        texts = _texts(column)
        if not _is_number(column.type):
            texts = [
                text if text is None else json.dumps(text, ensure_ascii=False) for text in texts
            ]
        elif pa.types.is_floating(column.type):
            texts = [f'"{text}"' if text and text[-1] in "Ny" else text for text in texts]
        columns.append([key + ("null" if text is None else text) for text in texts])
    return (f"{{{','.join(row)}}}" for row in zip(*columns, strict=True))


def _is_number(kind: pa.DataType) -> bool:
    """Say whether JSON has values of a type without quotes."""
    return not (pa.types.is_string(kind) or pa.types.is_temporal(kind))


def _texts(column: pa.Array) -> list[str | None]:
    """Return values as Spark writes them."""
    kind = column.type
    if pa.types.is_string(kind):
        return list(column.to_pylist())
    if pa.types.is_timestamp(kind):
        plain = column.cast(pa.timestamp("us"))
        ending = "Z" if kind.tz else ""
        texts = pc.strftime(plain, format="%Y-%m-%dT%H:%M:%S")
        return list(pc.binary_join_element_wise(texts, ending, "").to_pylist())
    if pa.types.is_floating(kind):
        short = np.float32 if pa.types.is_float32(kind) else float
        return _each(column, lambda value: java_text(str(short(value))))
    if pa.types.is_decimal(kind):
        return _each(column, str)
    return list(column.cast(pa.string()).to_pylist())


def _each(column: pa.Array, text: Callable[[Any], str]) -> list[str | None]:
    return [None if value is None else text(value) for value in column.to_pylist()]


def java_text(written: str) -> str:
    """Return a number as Java writes it, from its shortest text in Python.

    Examples
    --------
    >>> [java_text(repr(number)) for number in (19.5, 1e7, 0.00012, -0.0, math.inf, math.nan)]
    ['19.5', '1.0E7', '1.2E-4', '-0.0', 'Infinity', 'NaN']
    """
    number = float(written)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        plain = f"{Decimal(written):f}"
        return plain if "." in plain else f"{plain}.0"
    sign, digits, _ = Decimal(written).normalize().as_tuple()
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{fraction}E{Decimal(written).adjusted()}"
