"""`outpace run`: a user's own query over files, on Spark, from the shell.

Bad input of any kind ends with one message that names the place and with exit code 2; then no
output is left, and what was there before is untouched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import outpace as op
from outpace.cli.progress import spark_progress
from outpace.cli.run_input import (
    Input,
    TextOptions,
    damage_named_in,
    format_named,
    read_inputs,
)
from outpace.cli.run_query import SqlText, read_query
from outpace.errors import BindError, DataError, OutpaceError
from outpace.pattern.query import Query
from outpace.plan.files import FileList
from outpace.plan.text_files import TextList
from outpace.spark.failure import comes_from_spark, spark_error
from outpace.spark.session import own_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from outpace.cli.run_output import Target

#: A table that goes to a pipe or a file may be this wide.
_WIDTH_MAX: Final = 2_000


def run(
    query: Annotated[Path, typer.Argument(help="A .sql or .py file.")],
    inputs: Annotated[
        list[str],
        typer.Option("--input", "-i", help="PATH or NAME=PATH; files, folders or globs."),
    ],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="A file, or a folder with / at its end.")
    ] = None,
    input_format: Annotated[
        str | None, typer.Option("--format", help="What the inputs are: parquet, csv or json.")
    ] = None,
    output_format: Annotated[
        str | None, typer.Option(help="How rows are written: parquet, csv or json.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an output that is there.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Rows that the console shows.")] = 20,
    schema: Annotated[
        str | None, typer.Option(help='Types of columns: "ts bigint, price double".')
    ] = None,
    delimiter: Annotated[str, typer.Option(help="What separates the values of CSV.")] = ",",
    header: Annotated[bool, typer.Option(help="Whether CSV begins with names.")] = True,
    dialect: Annotated[str, typer.Option(help="What the SQL is written in.")] = "outpace",
    name: Annotated[str | None, typer.Option(help="Which query of a .py file is meant.")] = None,
    explain: Annotated[bool, typer.Option(help="Print the plan and run nothing.")] = False,
    master: Annotated[
        str | None, typer.Option(help="Where Spark runs; local[*] by default.")
    ] = None,
    remote: Annotated[str | None, typer.Option(help="A Spark Connect server, sc://HOST.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", help="A setting of Spark, KEY=VALUE.")
    ] = None,
) -> None:
    """Run a query over files and write or show what it finds."""
    settings = dict(_setting(text) for text in conf or ())
    asked = read_query(query, name=name, dialect=dialect)
    kind = None if input_format is None else format_named(input_format)
    read = read_inputs(inputs, kind, TextOptions(schema, one_character(delimiter), header))
    _check_number(asked, read)
    from outpace.cli.run_output import target_of

    target = target_of(
        output,
        None if output_format is None else format_named(output_format),
        overwrite=overwrite,
        inputs=[file for one in read for file in one.files],
    )
    with own_session(
        f"outpace run {query.name}", master=master, remote=remote, conf=settings
    ) as session:
        try:
            if explain:
                _explain(session, asked, read)
                return
            with spark_progress(session, query.name) as take_away:
                _deliver(_found(session, asked, read), target, limit, take_away)
        except Exception as error:
            if not comes_from_spark(error):
                raise
            told = spark_error(error)
            raise damage_named_in(str(told), read) or told from error


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise BindError(f"'{text}' is no setting", hint="--conf spark.driver.memory=4g")
    return key.strip(), value.strip()


def one_character(delimiter: str) -> str:
    """Return what separates the values of CSV."""
    meant = "\t" if delimiter == "\\t" else delimiter
    if len(meant) != 1 or ord(meant) > 127:
        raise BindError(f"the delimiter is one character, not {delimiter!r}")
    return meant


def _check_number(asked: Query | SqlText, inputs: Sequence[Input]) -> None:
    if isinstance(asked, Query) and len(inputs) != 1:
        raise DataError(
            f"the query reads one input, not {len(inputs)}",
            hint="a glob or a folder names several files; a statement in SQL reads several inputs",
        )
    nameless = [one for one in inputs if one.name is None]
    if isinstance(asked, SqlText) and nameless:
        raise DataError(
            f"'{nameless[0].files[0]}' gives the input no name", hint="--input name=path"
        )


def _found(session: SparkSession, asked: Query | SqlText, inputs: Sequence[Input]) -> DataFrame:
    if isinstance(asked, Query):
        return _match(session, inputs[0], asked)
    from outpace.spark.sql import sql

    for one in inputs:
        assert one.name is not None
        _frame(session, one).createOrReplaceTempView(one.name)
    matchers = {
        one.name: partial(_match, session, one)
        for one in inputs
        if one.name is not None and isinstance(one.content, FileList)
    }
    try:
        return sql(session, asked.text, asked.dialect, matchers)
    except OutpaceError as error:
        raise asked.located(error) from error.__cause__


def _match(session: SparkSession, source: Input, query: Query) -> DataFrame:
    if isinstance(source.content, FileList):
        return op.match(source.content.files, query)
    return op.match(_frame(session, source), query)


def _frame(session: SparkSession, source: Input) -> DataFrame:
    """Return the rows of an input as they are."""
    content = source.content
    if isinstance(content, TextList):
        from outpace.spark.rows_text import read_text

        return read_text(session, content)
    local = not any("://" in path for path in content.files.paths)
    if local and not any(group.constants for group in content.groups):
        # Spark's own reader leaves out what a statement does not use.
        return session.read.parquet(*(Path(file).as_uri() for file in source.files))
    from outpace.spark.files import rows_frame

    return rows_frame(session, content, content.schema.names)


def _deliver(
    found: DataFrame, target: Target, limit: int, before_printing: Callable[[], None]
) -> None:
    from outpace.cli.run_output import first_rows, print_rows, write_rows

    if target.path is not None:
        rows = write_rows(found, target)
        before_printing()
        typer.echo(f"{_counted(rows)} in {target.path}")
    elif target.format is not None:
        print_rows(found, target.format, sys.stdout.buffer, before_printing)
    else:
        shown, rows = first_rows(found, limit)
        before_printing()
        _show(shown, rows)


def _show(shown: pa.Table, rows: int) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_MAX)
    table = Table()
    for field in shown.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        number = number or pa.types.is_decimal(field.type)
        table.add_column(Text(field.name), justify="right" if number else "left", overflow="fold")
    for row in zip(*(column.to_pylist() for column in shown.columns), strict=True):
        table.add_row(*(Text("NULL" if value is None else str(value)) for value in row))
    if shown.num_rows:
        console.print(table)
    left = rows - shown.num_rows
    console.print(_counted(rows) + (f", the first {shown.num_rows:,} shown" if left else ""))


def _counted(rows: int) -> str:
    return f"{rows:,} {'row' if rows == 1 else 'rows'}"


def _explain(session: SparkSession, asked: Query | SqlText, inputs: Sequence[Input]) -> None:
    """Print what the query means and how Spark would run it."""
    for query, source in _parts(asked, inputs):
        data = None
        if source is not None:
            content = source.content
            data = content.files if isinstance(content, FileList) else _frame(session, source)
        typer.echo(op.explain(query, data).text + "\n")
    found = _found(session, asked, inputs)
    typer.echo("Spark's plan")
    found.explain("formatted")


def _parts(asked: Query | SqlText, inputs: Sequence[Input]) -> Iterator[tuple[Query, Input | None]]:
    """Yield each query with the input that it reads as it is."""
    if isinstance(asked, Query):
        yield asked, inputs[0]
        return
    from outpace.spark.sql import whole_table

    named = {one.name.lower(): one for one in inputs if one.name is not None}
    for step in asked.steps():
        yield step.query, None if step.lookups else named.get(whole_table(step) or "")
