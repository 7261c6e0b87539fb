"""`outpace log`: event logs from the shell: append to one, look at it, check it, trim it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outpace.cli import options
from outpace.cli.log_input import (
    PlaceOfRow,
    RejectedInput,
    find_input,
    input_tables,
    standard_input,
)
from outpace.cli.run_input import format_named
from outpace.engine.rows.times import from_integers
from outpace.errors import DataError
from outpace.files.text import parse_schema
from outpace.ingest.log import Log, create
from outpace.ingest.log import open as open_log
from outpace.ingest.log.folder import SEGMENT_BYTES
from outpace.ingest.log.frame import FrameKind
from outpace.ingest.log.recover import check as check_log
from outpace.ingest.log.rows import fitting
from outpace.ingest.log.segment import Segment
from outpace.ingest.log.writer import Sync
from outpace.pattern.argument import one_of
from outpace.report.table import FittedTable, counted, counted_bytes

log = typer.Typer(no_args_is_help=True, help="Append to event logs and look at them.")

#: A table that goes to a pipe or a file may be this wide.
_WIDTH_MAX: Final = 2_000
_STANDARD_INPUT: Final = "-"

LogFolder = Annotated[Path, typer.Argument(metavar="LOG", help="The folder of an event log.")]


@log.callback()
def group() -> None:
    """Append to event logs and look at them."""


@log.command()
def append(
    files: Annotated[
        list[str],
        typer.Argument(help="Parquet, CSV or JSON lines; files, folders, globs; - reads lines."),
    ],
    to: Annotated[Path, typer.Option(help="The log; it is made where there is none.")],
    time: Annotated[str, typer.Option(help="The time column of a new log.")] = "ts",
    segment_bytes: Annotated[
        int, typer.Option(min=1, help="The size of a new log's segments.")
    ] = SEGMENT_BYTES,
    sync: Annotated[
        str, typer.Option(help="When events are forced to the disk: always, interval or never.")
    ] = "interval",
    rejected: Annotated[
        Path | None, typer.Option(help="Where bad lines go; without it they end the command.")
    ] = None,
    input_format: Annotated[
        str | None, typer.Option("--format", help="What the files are: parquet, csv or json.")
    ] = None,
    schema: options.Schema = None,
    delimiter: options.Delimiter = ",",
    header: options.Header = True,
) -> None:
    """Append events from files or from standard input to a log."""
    forced = one_of(Sync, sync, "sync")
    with ExitStack() as stack:
        file = None
        if rejected is not None:
            file = stack.enter_context(rejected.open("a", encoding="utf-8"))
        bad = RejectedInput(file)
        target = open_log(to) if (to / "log.json").exists() else None
        types = None if schema is None else parse_schema(schema)
        known = types if target is None else target.schema
        kind = None if input_format is None else format_named(input_format)
        if files == [_STANDARD_INPUT]:
            columns = _needed(known, to)
            tables = standard_input(columns, bad)
        else:
            whole = target is not None
            found = [find_input(path, kind, known, whole, delimiter, header) for path in files]
            columns = found[0].schema
            tables = chain.from_iterable(input_tables(content, bad) for content in found)
        if target is None:
            target = create(to, columns, time=time, segment_bytes=segment_bytes)
        appended = _append(target, tables, bad, forced)
    typer.echo(
        f"{counted(appended, 'event')} in {to}" + (f", {bad.count:,} rejected" if file else "")
    )


@log.command()
def show(
    path: LogFolder,
    limit: Annotated[
        int, typer.Option(min=1, max=10**6, help="Segments that are shown, the last.")
    ] = 20,
) -> None:
    """Show the segments of a log: offsets, times, bytes and rates."""
    opened = open_log(path)
    segments = list(opened.segments())
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_MAX)
    table = Table()
    for name in ("offsets", "events", "frames", "size", "least time", "greatest time", "arrived"):
        left = "time" in name or name == "arrived"
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    table.add_column("events/s", justify="right", no_wrap=True)
    for segment in segments[-limit:]:
        table.add_row(*map(Text, _segment_row(opened, segment)))
    console.print(FittedTable(table))
    size = sum(segment.size for segment in segments)
    console.print(
        f"{counted(opened.stop - opened.first, 'event')} in {counted(len(segments), 'segment')}, "
        f"{counted_bytes(size)}, "
        f"offsets {opened.first:,} to {opened.stop:,}, time column '{opened.time}'\n"
        "This is what the indexes say; outpace log check reads the events, too."
    )
    for segment in segments:
        for damage in segment.damage:
            console.print(Text(f"damaged: {damage.error().detail}"))
    for lost in opened.crashed():
        console.print(Text(f"lost in a crash: {lost.error().detail}"))


@log.command()
def check(path: LogFolder) -> None:
    """Read all of a log and say what is damaged; exit code 1 if anything is."""
    found = check_log(open_log(path).folder)
    typer.echo(f"whole: {counted(found.events, 'event')} in {counted(found.segments, 'segment')}")
    if found.cut:
        typer.echo(f"lost in a crash: {counted(found.cut, 'event')}, marked by a writer")
    if found.tail_bytes:
        typer.echo(f"torn at the end: {counted_bytes(found.tail_bytes)}, cut by the next writer")
    if found.unseen:
        typer.echo(f"not in the index: {counted(found.unseen, 'frame')}, added by the next writer")
    for damage in found.damage:
        typer.echo(f"damaged: {damage.reason}: {damage.error().detail}", err=True)
    for index in found.indexes:
        typer.echo(f"damaged: {index}; readers do without it", err=True)
    if found.damage or found.indexes:
        raise typer.Exit(1)


@log.command()
def trim(
    path: LogFolder,
    before: Annotated[int, typer.Option(min=0, help="Events from this offset on are kept.")],
) -> None:
    """Delete segments whose events are all before an offset."""
    opened = open_log(path)
    deleted = opened.trim(before)
    typer.echo(
        f"{counted(deleted, 'segment')} deleted, the log begins with offset {opened.first:,}"
    )


def _needed(known: pa.Schema | None, to: Path) -> pa.Schema:
    if known is None:
        raise DataError(
            f"there is no log in '{to}', and lines do not tell the types of its columns",
            hint='name them: --schema "ts timestamp, price double"',
        )
    return known


def _append(
    target: Log, tables: Iterator[tuple[PlaceOfRow, pa.Table]], bad: RejectedInput, sync: Sync
) -> int:
    appended = 0
    with target.writer(sync=sync) as writer:
        if not writer.recovered.clean:
            typer.echo(f"repaired: {writer.recovered}", err=True)
        try:
            for place, table in tables:
                good = bad.events(place, _fitting(table, target.schema, place), target.time)
                appended += len(writer.append(good))
        except DataError as error:
            note = f"in the log before it: {counted(appended, 'event')}"
            error.detail = note if error.detail is None else f"{error.detail}\n{note}"
            raise
    return appended


def _fitting(table: pa.Table, schema: pa.Schema, place: PlaceOfRow) -> pa.Table:
    try:
        return fitting(table, schema)
    except DataError as error:
        error.where = f"what begins with {place(0)}"
        raise


def _segment_row(opened: Log, segment: Segment) -> list[str]:
    headers = segment.headers[segment.headers["kind"] == FrameKind.EVENTS]
    offsets = f"{segment.base:,} – {segment.stop:,}"
    events = int(headers["events"].sum(dtype=np.int64))
    if not len(headers):
        return [offsets, "0", "0", counted_bytes(segment.size), "", "", "", ""]
    first, last = int(headers["arrival"].min()), int(headers["arrival"].max())
    later = int(headers["events"][headers["arrival"] > first].sum(dtype=np.int64))
    rate = f"{later / (last - first) * 1e6:,.0f}" if last > first else ""
    return [
        offsets,
        f"{events:,}",
        f"{len(headers):,}",
        counted_bytes(segment.size),
        _shown(opened, int(headers["least"].min())),
        _shown(opened, int(headers["greatest"].max())),
        f"{_moment(first)} – {_moment(last)}",
        rate,
    ]


def _shown(opened: Log, time: int) -> str:
    kind = opened.schema.field(opened.time).type
    return str(from_integers(np.array([time]), kind)[0])


def _moment(time_us: int) -> str:
    return str(np.datetime64(time_us, "us").astype("datetime64[s]")).replace("T", " ")
