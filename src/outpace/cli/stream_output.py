"""The output of `outpace stream`: the console, folders, a table of PostgreSQL, or any sink.

A folder gets one folder `batch=N` for each micro-batch that gives rows. A batch that Spark runs
again after a crash replaces its own folder, and the same batch always has the same rows: each row
is there once, for any reader, and nothing has to be looked up in a log. Late and invalid events go
to folders of their own in the same way, in the same batch.

The console shows the first rows of each batch, so the driver holds that many times the parts.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outpace.cli.run_input import DataFormat, format_named
from outpace.cli.run_output import check_writable
from outpace.cli.stream_input import spark_path
from outpace.errors import BindError, DataError, StateError, UnsupportedError
from outpace.files.small_file import read_small
from outpace.hosts.local.current import says_certain
from outpace.pattern.bound import CONFIRMED, DIFF
from outpace.report.table import FittedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Writes the rows of a micro-batch, given its number.
BatchWriter = Callable[["DataFrame", int], None]

POSTGRES: Final = "postgres:"

#: What stands for the console.
CONSOLE: Final = "console"

#: What is said of a match, in words, and their colours.
_TENTATIVE, _CONFIRMED, _RETRACTED = "tentative", "confirmed", "retracted"
_CURRENT = "current"
_COLOURS: Final = {_TENTATIVE: "yellow", _CONFIRMED: "green", _RETRACTED: "red"}
_LEGEND: Final = {
    _TENTATIVE: "may be taken back",
    _CONFIRMED: "stays",
    _RETRACTED: "taken back",
}

_PARTITIONS: Final = "spark.sql.shuffle.partitions"
#: What a file of offsets may have; those of Spark have some kilobytes for each source.
_OFFSETS_BYTES_MAX: Final = 1 << 24


@dataclass(frozen=True)
class SparkSink:
    """A sink of Spark: its name, and its options."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FolderWriter:
    """Writes each batch into a folder of its own, which it replaces if the batch runs again."""

    path: Path
    format: DataFormat = DataFormat.PARQUET

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write a batch; one without rows leaves nothing."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        from outpace.cli.run_spark import TEXT_OPTIONS

        place = self.path / f"batch={batch}"
        counter = Observation()
        counted = frame.observe(counter, sf.count(sf.lit(1)).alias("rows"))
        writer = counted.write.options(**TEXT_OPTIONS[self.format]).mode("overwrite")
        if self.format is DataFormat.CSV:
            writer = writer.option("header", True)
        writer.format(self.format.value).save(spark_path(place))
        if not counter.get["rows"]:
            shutil.rmtree(place)


@dataclass
class ConsoleWriter:
    """Shows the first rows of each batch, as one table that grows.

    Parameters
    ----------
    console
        Where.
    limit
        The most rows of one batch.
    changes
        Whether rows say what becomes of matches: then a word says it, in colours on a terminal.
    """

    console: Console
    limit: int
    changes: bool = False
    _widths: list[int] = field(default_factory=list)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Show a batch."""
        from outpace.cli.run_spark import SparkResult

        shown, rows = SparkResult(frame).first_rows(self.limit)
        if rows:
            self.show(shown, rows)

    def show(self, shown: pa.Table, rows: int) -> None:
        """Print rows under those that are there, and how many more there are."""
        first, colours = not self._widths, dict[str, str]()
        if self.changes:
            shown = _in_words(shown)
            colours = _COLOURS
            if first and self.console.is_terminal and not self.console.no_color:
                self.console.print(_legend())
        columns = [
            ["NULL" if value is None else str(value) for value in column.to_pylist()]
            for column in shown.columns
        ]
        known = self._widths or [len(name) for name in shown.schema.names]
        self._widths = [
            max(width, *map(len, column)) if column else width
            for width, column in zip(known, columns, strict=True)
        ]
        table = Table(box=None, show_header=first, pad_edge=False, header_style="bold")
        for field_, width in zip(shown.schema, self._widths, strict=True):
            number = pa.types.is_integer(field_.type) or pa.types.is_floating(field_.type)
            justify = "right" if number or pa.types.is_decimal(field_.type) else "left"
            table.add_column(
                Text(field_.name),
                justify=justify,  # type: ignore[arg-type]  # one of its words
                no_wrap=justify == "right",
                min_width=min(width, self.console.width // max(1, len(columns))),
            )
        for row in zip(*columns, strict=True):
            table.add_row(*map(Text, row), style=colours.get(row[0]))
        self.console.print(FittedTable(table))
        if rows > shown.num_rows:
            self.console.print(f"and {rows - shown.num_rows:,} more", style="dim")


def _in_words(rows: pa.Table) -> pa.Table:
    """Return rows with a word for what becomes of their matches, in place of the columns for it.

    Examples
    --------
    >>> told = pa.table({"x": [1, 2, 1], "diff": [1, 1, -1], "confirmed": [False, True, False]})
    >>> _in_words(told).to_pydict()
    {'match': ['tentative', 'confirmed', 'retracted'], 'x': [1, 2, 1]}

    Where nothing says which matches are certain, those that come are current:

    >>> _in_words(told.drop_columns(["confirmed"]))["match"].to_pylist()
    ['current', 'current', 'retracted']
    >>> _in_words(pa.table({"confirmed": [7], "diff": [1]})).to_pylist()
    [{'match': 'current', 'confirmed': 7}]
    """
    come = [_CURRENT] * rows.num_rows
    told = [DIFF]
    if says_certain(rows.schema):
        told.append(CONFIRMED)
        sure = rows.column(CONFIRMED).to_pylist()
        come = [_CONFIRMED if certain else _TENTATIVE for certain in sure]
    words = [
        _RETRACTED if diff < 0 else word
        for diff, word in zip(rows.column(DIFF).to_pylist(), come, strict=True)
    ]
    kept = [name for name in rows.column_names if name not in told]
    return rows.select(kept).add_column(0, "match", pa.array(words, pa.string()))


def _legend() -> Text:
    """Return what the colours mean."""
    words = [Text.assemble((word, _COLOURS[word]), f": {said}") for word, said in _LEGEND.items()]
    return Text("   ").join(words)


@dataclass(frozen=True)
class Fork:
    """Gives each output of a query to a writer of its own; the batch is computed once."""

    writers: Mapping[str, BatchWriter]

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write a batch."""
        from pyspark.sql import functions as sf

        frame.persist()
        try:
            for name, write in self.writers.items():
                write(frame.filter(sf.col("output") == name).select(f"{name}.*"), batch)
        finally:
            frame.unpersist()


@dataclass(frozen=True)
class Checkpoint:
    """The folder in which Spark keeps how far a query has come.

    Parameters
    ----------
    path
        The folder.
    temporary
        Whether it is gone after the command.
    """

    path: Path
    temporary: bool = False

    @property
    def is_begun(self) -> bool:
        """Whether a query has been started with it."""
        return bool(self._offsets())

    def settings(self) -> dict[str, str]:
        """Return the settings of Spark that a query that goes on has to have.

        The number of partitions is that of its state, on whatever machine it is started again.
        """
        for file in self._offsets():
            try:
                for line in read_small(file, _OFFSETS_BYTES_MAX).splitlines():
                    if _PARTITIONS in line:
                        return {_PARTITIONS: str(int(json.loads(line)["conf"][_PARTITIONS]))}
            except (ValueError, TypeError, LookupError, RecursionError, OSError) as error:
                raise StateError(
                    f"'{file}' is not what Spark wrote there", detail=str(error)
                ) from error
        return {}

    def _offsets(self) -> list[Path]:
        return [file for file in self.path.glob("offsets/*") if file.name.isdigit()]


def output_of(
    text: str,
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    console: Console,
    limit: int = 20,
    changes: bool = False,
    current: bool = False,
    stream: str | None = None,
) -> BatchWriter | SparkSink:
    """Read what `--to` says, after all checks that need no rows.

    Parameters
    ----------
    text
        "console", `postgres:ADDRESS#TABLE` or a folder; a sink of Spark takes it as its path.
    format
        What a folder gets, or the name of any sink of Spark.
    options
        Options of a sink of Spark.
    console, limit, changes
        Where rows are shown, how many of a batch, and whether they say what becomes of matches.
    current
        Whether a folder or a table gets the matches that are there now.
    stream
        The name under which PostgreSQL notes batches, where Spark does not tell one.
    """
    files = format is None or format.lower() in {one.value for one in DataFormat}
    if options and files:
        raise BindError("--to-option goes with a sink of Spark", hint="--to-format kafka")
    if text.startswith(POSTGRES):
        return _postgres(text, format, stream, current=current)
    if current:
        if text == CONSOLE or not files or format not in (None, DataFormat.PARQUET.value):
            raise BindError(
                "--current keeps a folder of Parquet files, or a table of PostgreSQL",
                hint="--to FOLDER, or --to postgres:ADDRESS#TABLE",
            )
        return _current(text, stream)
    if text == CONSOLE and files:
        if format is not None:
            raise BindError(f"the console does not take {format}", hint="--to FOLDER")
        return ConsoleWriter(console, limit, changes)
    if not files:
        assert format is not None
        path = {} if text == CONSOLE else {"path": text}
        return SparkSink(format, {**path, **(options or {})})
    return folder_of(text, DataFormat.PARQUET if format is None else format_named(format))


def folder_of(text: str, format: DataFormat = DataFormat.PARQUET) -> FolderWriter:
    """Return what writes into a folder that an option names.

    Examples
    --------
    >>> folder_of("s3://bucket/dips")
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] cannot write to the address 's3://bucket/dips'
      hint: a folder is a path; another sink: --to-format NAME
    """
    if "://" in text:
        raise BindError(
            f"cannot write to the address '{text}'",
            hint="a folder is a path; another sink: --to-format NAME",
        )
    path = Path(text).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise DataError(f"'{path}' is a file", hint="a stream writes into a folder")
    check_writable(path if path.exists() else path.parent, path)
    return FolderWriter(path, format)


def _current(text: str, stream: str | None) -> BatchWriter:
    from outpace.hosts.spark.current import writer

    return writer(text, stream=stream)


def _postgres(
    text: str, format: str | None, stream: str | None, *, current: bool = False
) -> BatchWriter:
    from outpace.hosts.spark.postgres import writer

    address, mark, table = text.removeprefix(POSTGRES).rpartition("#")
    if not mark or not address or not table or format is not None:
        raise BindError(
            f"'{text}' names no table of PostgreSQL",
            hint="--to 'postgres:postgresql://user@host/database#table'",
        )
    return writer(address, table, stream=stream, current=current)


def checkpoint_of(text: str | None, output: BatchWriter | SparkSink, temporary: Path) -> Checkpoint:
    """Return where a query keeps how far it has come.

    Parameters
    ----------
    text
        What `--checkpoint` says; by default beside an output folder, temporary for the console.
    output
        Where the rows go.
    temporary
        A folder that is gone after the command.
    """
    if text is not None:
        if "://" in text:
            raise BindError(f"'{text}' is an address", hint="--checkpoint takes a path")
        return Checkpoint(Path(text).expanduser().absolute())
    if isinstance(path := getattr(output, "path", None), Path):
        return Checkpoint(path.with_name(f"{path.name}.checkpoint"))
    if isinstance(output, ConsoleWriter):
        return Checkpoint(temporary, temporary=True)
    raise BindError(
        "the stream needs a folder to note how far it has come", hint="--checkpoint FOLDER"
    )


def check_folder(folder: FolderWriter, checkpoint: Checkpoint) -> None:
    """Refuse a folder that holds something else than what this checkpoint has written there."""
    if not folder.path.is_dir():
        return
    found = sorted(one.name for one in folder.path.iterdir() if one.name[:1] not in "._")
    other = [name for name in found if not name.startswith("batch=")]
    if other:
        raise DataError(
            f"the folder '{folder.path}' holds more than an output",
            detail=", ".join(other[:5]),
            hint="name a folder that is empty or not there",
        )
    if found and not checkpoint.is_begun:
        raise StateError(
            f"the folder '{folder.path}' holds the output of a stream with another checkpoint",
            detail=f"there is none in '{checkpoint.path}'",
            hint="name that checkpoint, or another folder for the output",
        )


def check_remote(output: BatchWriter | SparkSink, address: str | None) -> None:
    """Refuse what cannot be done where Spark Connect runs the query in another process."""
    if address is not None and isinstance(output, ConsoleWriter):
        raise UnsupportedError(
            "rows of a stream on Spark Connect do not come to the console",
            detail=f"they are made at {address}",
            hint="--to FOLDER",
        )
