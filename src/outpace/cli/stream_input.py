"""The input of `outpace stream`: an event log, a folder of files, generated events, or any source.

What can be checked without Spark is checked before it is started. Where a query reads the input as
it is, logs and generated events come as blocks, which cost far less to bring to Python than rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import pyarrow as pa

from outpace.cli.run_input import (
    DataFormat,
    Input,
    TextOptions,
    format_named,
    format_of,
    read_inputs,
    split_name,
)
from outpace.errors import BindError, DataError
from outpace.files.parquet import list_files, parquet
from outpace.files.text import list_text, parse_schema
from outpace.files.text_parse import TextFormat
from outpace.plan.stream_plan import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The name of the table in a statement where the input gives none.
TABLE: Final = "input"

LOG: Final = "outpace.log"
EVENTS: Final = "outpace.events"

#: A micro-batch takes files of about this size, unless told otherwise.
_BATCH_BYTES: Final = 256 * 2**20


@dataclass(frozen=True)
class StreamInput:
    """A source of Spark and how it is read.

    Parameters
    ----------
    name
        The name of the table in a statement.
    format, options, path
        What Spark's reader is told.
    schema
        The columns, or their types as Spark reads them; None where the source knows.
    place
        The folder or glob of files on this machine that are read with no option but the usual.
    """

    name: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    schema: pa.Schema | str | None = None
    place: Path | None = None

    @property
    def is_text(self) -> bool:
        """Whether lines are parsed, and may be broken."""
        return self.format in (DataFormat.CSV.value, DataFormat.JSON.value)

    def rows(self, session: SparkSession) -> DataFrame:
        """Return the stream, a row for each event."""
        from pyspark.sql.pandas.types import from_arrow_schema

        reader = session.readStream.format(self.format).options(**self.options)
        if isinstance(self.schema, str):
            reader = reader.schema(self.schema)
        elif self.schema is not None:
            reader = reader.schema(from_arrow_schema(self.schema))
        elif self.format == DataFormat.PARQUET.value:
            assert self.path is not None
            reader = reader.schema(session.read.parquet(self.path).schema)
        return reader.load(self.path)

    def blocks(self, session: SparkSession) -> DataFrame:
        """Return the stream for a query that reads it as it is: in blocks, where there are any."""
        if self.format not in (LOG, EVENTS) or "form" in self.options:
            return self.rows(session)
        return replace(self, options={**self.options, "form": "blocks"}).rows(session)

    def with_broken_lines(self, times: Collection[str], session: SparkSession) -> DataFrame:
        """Return the stream of a text with one more column: the line, where it cannot be read.

        Such a line has no time, even if one could be read, so it is an invalid event.
        """
        from pyspark.sql import functions as sf

        from outpace.plan.crossing import quoted

        assert isinstance(self.schema, pa.Schema)
        options = {**self.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        schema = self.schema.append(pa.field(CORRUPT, pa.string()))
        frame = replace(self, options=options, schema=schema).rows(session)
        for time in {*times} & {*self.schema.names}:
            readable = sf.when(sf.col(CORRUPT).isNull(), sf.col(quoted(time)))
            frame = frame.withColumn(time, readable)
        return frame


def input_of(
    text: str | None,
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    events_max: int | None = None,
    columns: TextOptions | None = None,
) -> StreamInput:
    """Read what `--from` says, after all checks that need no Spark.

    Parameters
    ----------
    text
        `log:PATH`, `events:KIND?OPTION=VALUE&…`, a folder or a glob, each with `NAME=` in front
        where a statement calls it so.
    format
        What a folder holds, or the name of any source of Spark.
    options
        Options of the source.
    events_max
        The most events of a micro-batch.
    columns
        How CSV and JSON lines are read, and what columns they have.

    Examples
    --------
    >>> events = input_of("ticks=events:stock?rate=1000&disorder=2 s")
    >>> events.name, events.format, dict(events.options)
    ('ticks', 'outpace.events', {'kind': 'stock', 'rate': '1000', 'disorder': '2 s'})
    """
    given = dict(options or {})
    read = columns or TextOptions()
    if text is None and format is None:
        raise BindError("there is no input", hint="--from log:PATH, --from FOLDER or --from-format")
    name, place = (None, None) if text is None else split_name(text)
    if format is None and place is not None and place.startswith(("log:", "events:")):
        kind, _, rest = place.partition(":")
        named = name if place != text else None
        if events_max is not None:
            given["maxEventsPerTrigger"] = str(events_max)
        if read.schema is not None:
            raise BindError(f"{kind}: knows its columns", hint="--schema goes with CSV and JSON")
        return (_log if kind == "log" else _events)(named, rest, given)
    if events_max is not None:
        raise BindError(
            "--max-events goes with a log or generated events",
            hint="a source of Spark has its own: --option maxFilesPerTrigger=4",
        )
    if format is not None and (place is None or not _is_files(format, place)):
        return StreamInput(name or TABLE, format, given, place, read.schema)
    assert place is not None
    return _files(name or TABLE, place, format, given, read)


def spark_path(path: Path) -> str:
    """Return a path as Spark takes it: unlike a URI nothing in it is escaped.

    Examples
    --------
    >>> spark_path(Path("/data/my dips/batch=7"))
    'file:///data/my dips/batch=7'
    """
    return f"file://{path}"


def _log(name: str | None, path: str, options: dict[str, str]) -> StreamInput:
    from outpace.ingest.log.options import read_options
    from outpace.ingest.log.reader import Log

    if not path:
        raise BindError("the log has no path", hint="--from log:ticks.log")
    place = str(Path(path).expanduser().absolute())
    read_options({**options, "path": place})
    Log.open(place)
    return StreamInput(name or split_name(place)[0] or TABLE, LOG, options, place)


def _events(name: str | None, text: str, options: dict[str, str]) -> StreamInput:
    from outpace.ingest.event_options import read_options

    kind, _, settings = text.partition("?")
    try:
        values = dict(parse_qsl(settings, keep_blank_values=True, strict_parsing=bool(settings)))
    except ValueError as error:
        raise BindError(
            f"'{settings}' are no options of generated events",
            hint="--from 'events:simple?rate=1000&keys=8'",
        ) from error
    every = {**({"kind": kind} if kind else {}), **values, **options}
    read_options(every)
    return StreamInput(name or "events", EVENTS, every)


def _is_files(format: str, place: str) -> bool:
    """Say whether files of this machine are meant, and not an address or another source."""
    return format.lower() in {one.value for one in DataFormat} and "://" not in place


def _files(
    name: str, place: str, format: str | None, options: dict[str, str], read: TextOptions
) -> StreamInput:
    path = Path(place).expanduser().absolute()
    if "://" in place:
        raise BindError(
            f"what '{place}' holds is not told", hint="--from-format parquet, csv or json"
        )
    if path.is_file():
        raise BindError(f"'{place}' is one file", hint="a stream reads a folder, or a glob")
    kind, schema = _kind_and_schema(path, None if format is None else format_named(format), read)
    plain = None if options else path
    if not {"maxFilesPerTrigger", "maxBytesPerTrigger"} & options.keys():
        options["maxBytesPerTrigger"] = str(_BATCH_BYTES)
    if kind is not DataFormat.PARQUET:
        options = {"mode": "FAILFAST", **options}
    if kind is DataFormat.CSV:
        layout = {"sep": read.delimiter, "header": str(read.header).lower(), "escape": '"'}
        # The names of the header have to be those of the schema, in its order.
        options = {**layout, "enforceSchema": str(not read.header).lower(), **options}
    return StreamInput(name, kind.value, options, spark_path(path), schema, plain)


def local_files(place: Path) -> list[Path]:
    """Return what a folder or a glob holds, without hidden names; folders too."""
    whole = Path(place.anchor)
    found = place.iterdir() if place.is_dir() else whole.glob(str(place.relative_to(whole)))
    return [one for one in found if one.name[:1] not in "._"]


def looked_at(
    file: Path, kind: DataFormat, read: TextOptions, schema: pa.Schema | str | None
) -> Input:
    """Look at one file of a stream; text has the columns of the stream."""
    if kind is DataFormat.PARQUET:
        return Input(TABLE, (str(file),), list_files(parquet(file)))
    assert isinstance(schema, pa.Schema)
    text = TextFormat.CSV if kind is DataFormat.CSV else TextFormat.JSON
    header = read.header or kind is DataFormat.JSON
    listed = list_text(text, [str(file)], schema=schema, delimiter=read.delimiter, header=header)
    return Input(TABLE, (str(file),), listed)


def _kind_and_schema(
    path: Path, kind: DataFormat | None, read: TextOptions
) -> tuple[DataFormat, pa.Schema | None]:
    """Return what files hold: as the options say, then nothing is looked at, or as they say."""
    schema = None if read.schema is None else parse_schema(read.schema)
    if kind is not None and schema is not None:
        return kind, schema
    if path.is_dir() and not any(one.name[:1] not in "._" for one in path.iterdir()):
        raise DataError(
            f"there are no files in '{path}' yet",
            hint='say what will come: --from-format json --schema "ts bigint, price double"',
        )
    if schema is not None:
        raise BindError(
            "the columns are named, but not what the files are",
            hint="--from-format parquet, csv or json",
        )
    found = read_inputs([f"{TABLE}={path}"], kind, read)[0]
    kind = kind or format_of(found.files[0])
    assert kind is not None
    return kind, None if kind is DataFormat.PARQUET else found.schema
