"""`outpace run`: a user's own query over files from the shell, in process or on Spark.

Bad input of any kind ends with one message that names the place and with exit code 2; then no
output is left, and what was there before is untouched. Unknown names are refused before
Spark is started.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import outpace as op
from outpace.cli import options
from outpace.cli.run_input import (
    Input,
    TextOptions,
    damage_named_in,
    format_named,
    read_inputs,
)
from outpace.cli.run_local import (
    LeftToSpark,
    check_columns,
    check_query,
    found_in_process,
    pandas_left_out,
    size_text,
    why_spark,
)
from outpace.cli.run_output import CommandResult, Target, print_rows, target_of, write_rows
from outpace.cli.run_query import SqlText, read_query
from outpace.errors import DataError
from outpace.files.parquet import FileList
from outpace.pattern.query import Query
from outpace.report.table import FittedTable, counted
from outpace.statement.step import whole_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A table that goes to a pipe or a file may be this wide.
_WIDTH_MAX: Final = 2_000


def run(
    query: options.QueryFile,
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
    limit: Annotated[int, typer.Option(min=0, max=10**6, help="Rows that the console shows.")] = 20,
    schema: options.Schema = None,
    delimiter: options.Delimiter = ",",
    header: options.Header = True,
    dialect: options.Dialect = "outpace",
    name: options.QueryName = None,
    explain: Annotated[bool, typer.Option(help="Print the plan and run nothing.")] = False,
    spark: options.OnSpark = False,
    master: options.Master = None,
    remote: options.Remote = None,
    conf: options.Conf = None,
) -> None:
    """Run a query over files and write or show what it finds."""
    settings = options.pairs(conf, "--conf")
    request = read_query(query, name=name, dialect=dialect)
    kind = None if input_format is None else format_named(input_format)
    read = read_inputs(inputs, kind, TextOptions(schema, options.one_character(delimiter), header))
    _check_number(request, read)
    target = target_of(
        output,
        None if output_format is None else format_named(output_format),
        overwrite=overwrite,
        inputs=[file for one in read for file in one.files],
    )
    elsewhere = bool(master or remote or settings or os.environ.get("SPARK_REMOTE"))
    check_query(request, read, catalog=elsewhere)
    chosen = spark or elsewhere
    reason = None if chosen else why_spark(request, read)
    if reason is None and not chosen:
        typer.echo(f"in process: {size_text(read)} of input; --spark runs it on Spark", err=True)
        try:
            with pandas_left_out(query):
                _run_in_process(request, read, target, limit, explain=explain)
            return
        except LeftToSpark as left:
            reason = f"in process the statement fails with {left}"
    check_columns(request, read)
    if reason is not None:
        typer.echo(f"on Spark: {reason}", err=True)
    from outpace.cli.progress import spark_progress
    from outpace.hosts.spark.failure import comes_from_spark, spark_error
    from outpace.hosts.spark.session import own_session

    with own_session(
        f"outpace run {query.name}", master=master, remote=remote, conf=settings
    ) as session:
        from outpace.cli.run_spark import SparkResult, found_on_spark

        try:
            if explain:
                _explain(request, read, session)
                return
            with spark_progress(session, query.name) as take_away:
                found = SparkResult(found_on_spark(session, request, read))
                _deliver(found, target, limit, take_away)
        except Exception as error:
            if not comes_from_spark(error):
                raise
            problem = spark_error(error)
            raise damage_named_in(str(problem), read) or problem from error


def _run_in_process(
    request: Query | SqlText, inputs: Sequence[Input], target: Target, limit: int, *, explain: bool
) -> None:
    if explain:
        _explain(request, inputs)
        return
    try:
        _deliver(found_in_process(request, inputs), target, limit, lambda: None)
    except DataError as error:
        raise damage_named_in(str(error), inputs) or error from error.__cause__


def _check_number(request: Query | SqlText, inputs: Sequence[Input]) -> None:
    if isinstance(request, Query) and len(inputs) != 1:
        raise DataError(
            f"the query reads one input, not {len(inputs)}",
            hint="a glob or a folder names several files; a statement in SQL reads several inputs",
        )
    nameless = [one for one in inputs if one.name is None]
    if isinstance(request, SqlText) and nameless:
        raise DataError(
            f"'{nameless[0].files[0]}' gives the input no name", hint="--input name=path"
        )


def _deliver(
    found: CommandResult, target: Target, limit: int, before_printing: Callable[[], None]
) -> None:
    if target.path is not None:
        rows = write_rows(found, target)
        before_printing()
        typer.echo(f"{counted(rows, 'row')} in {target.path}")
    elif target.format is not None:
        print_rows(found, target.format, sys.stdout.buffer, before_printing)
    else:
        shown, rows = found.first_rows(limit)
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
        table.add_column(
            Text(field.name),
            justify="right" if number else "left",
            no_wrap=number,
        )
    for row in zip(*(column.to_pylist() for column in shown.columns), strict=True):
        table.add_row(*(Text("NULL" if value is None else str(value)) for value in row))
    if shown.num_rows:
        console.print(FittedTable(table))
    left = rows - shown.num_rows
    console.print(counted(rows, "row") + (f", the first {shown.num_rows:,} shown" if left else ""))


def _explain(
    request: Query | SqlText, inputs: Sequence[Input], session: SparkSession | None = None
) -> None:
    """Print what the query means and how it would run in process, or on Spark where that is."""
    for query, source in _parts(request, inputs):
        data: object = None
        if source is not None:
            data = source.schema if session is None else _data(session, source)
        typer.echo(op.explain(query, data).text + "\n")
    if session is not None:
        from outpace.cli.run_spark import found_on_spark

        found = found_on_spark(session, request, inputs)
        typer.echo("Spark's plan")
        found.explain("formatted")


def _data(session: SparkSession, source: Input) -> object:
    from outpace.cli.run_spark import frame_of

    content = source.content
    return content.files if isinstance(content, FileList) else frame_of(session, source)


def _parts(
    request: Query | SqlText, inputs: Sequence[Input]
) -> Iterator[tuple[Query, Input | None]]:
    """Yield each query with the input that it reads as it is."""
    if isinstance(request, Query):
        yield request, inputs[0]
        return
    named = {one.name.lower(): one for one in inputs if one.name is not None}
    for step in request.statement().steps:
        if step.joined is not None:
            continue
        yield step.query, None if step.lookups else named.get(whole_table(step) or "")
