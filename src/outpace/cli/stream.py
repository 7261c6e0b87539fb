"""`outpace stream`: a query over a stream from the shell, until it is stopped.

It runs on Spark, or in process where the source is small and nothing has to be kept.

Ctrl-C and SIGTERM let the batch that runs end, or interrupt it where it takes long; either way the
same command goes on from where the checkpoint says, and each row is written once. What is wrong
with the options is said before Spark is started.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.text import Text

from outpace.cli import options
from outpace.cli.run_input import TextOptions
from outpace.cli.run_local import pandas_left_out
from outpace.cli.run_query import read_queries
from outpace.cli.stream_input import input_of, spark_path
from outpace.cli.stream_local import in_process, run_in_process, why_spark
from outpace.cli.stream_output import (
    CONSOLE,
    BatchWriter,
    Checkpoint,
    ConsoleWriter,
    FolderWriter,
    Fork,
    SparkSink,
    check_folder,
    check_remote,
    checkpoint_of,
    folder_of,
    output_of,
)
from outpace.cli.stream_query import (
    Additions,
    check_current,
    check_query,
    disorder_of,
    endings,
    found,
    tells_changes,
)
from outpace.cli.stream_status import status_view
from outpace.cli.stream_stop import PipeConsole, StopRequest
from outpace.engine.order.senders import source_names
from outpace.errors import BindError, UnsupportedError
from outpace.pattern.duration import parse_duration
from outpace.pattern.query import Emission
from outpace.report.table import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from outpace.cli.stream_listener import StatusListener

#: How often the query is looked at.
_LOOK_SECONDS: Final = 0.25
#: How long a batch may go on after the stop was asked for.
_GRACE_SECONDS: Final = 10.0
#: What a query says whose Spark is gone.
_SHUT_DOWN: Final = re.compile(r"SparkContext (was|has been) (shut ?down|stopped)|stopped SparkC")

From = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        help="log:PATH, events:KIND?rate=1000, or a folder of Parquet, JSON or CSV files; "
        "NAME=… names the table of a statement, which may have several.",
    ),
]
FromFormat = Annotated[
    str | None,
    typer.Option(help="What a folder holds (parquet, csv, json), or any source of Spark."),
]
SourceOption = Annotated[
    list[str] | None, typer.Option("--option", help="An option of the source, KEY=VALUE.")
]
To = Annotated[str, typer.Option("--to", help="console, a folder, or postgres:ADDRESS#TABLE.")]
ToFormat = Annotated[
    str | None,
    typer.Option(help="What a folder gets (parquet, csv, json), or any sink of Spark."),
]
SinkOption = Annotated[
    list[str] | None, typer.Option("--to-option", help="An option of a sink of Spark, KEY=VALUE.")
]
Current = Annotated[
    bool,
    typer.Option("--current", help="Keep the matches that are there now, not all changes."),
]
LateTo = Annotated[str | None, typer.Option(help="A folder for events that come late.")]
InvalidTo = Annotated[
    str | None, typer.Option(help="A folder for events without a usable time, and broken lines.")
]
TimedOutTo = Annotated[
    str | None, typer.Option(help="A folder for partial matches that WITHIN ended.")
]


def stream(
    query: options.QueryPaths,
    source: From = None,
    from_format: FromFormat = None,
    option: SourceOption = None,
    to: To = CONSOLE,
    to_format: ToFormat = None,
    to_option: SinkOption = None,
    current: Current = False,
    late_to: LateTo = None,
    invalid_to: InvalidTo = None,
    timed_out_to: TimedOutTo = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Where progress is kept; beside an output folder by default.")
    ] = None,
    trigger: Annotated[
        str, typer.Option(help='When batches run: "1 s", once or available-now.')
    ] = "1 s",
    slack: Annotated[
        str | None, typer.Option(help='How long to wait for late events: "2 s".')
    ] = None,
    disorder: Annotated[
        str | None,
        typer.Option(help="How far events are out of order, as in SQL: \"SLACK '2 s' LATE PASS\"."),
    ] = None,
    emit: Annotated[
        Emission | None,
        typer.Option(help="Which rows come out where matches may be taken back."),
    ] = None,
    recovery: Annotated[
        Literal["replay"] | None,
        typer.Option(help="Keep savepoints, and read the log again where a state is lost."),
    ] = None,
    sender: Annotated[
        list[str] | None,
        typer.Option("--source", help="A source that the column source names; each by itself."),
    ] = None,
    heartbeats: Annotated[
        str | None,
        typer.Option(help="A column; rows where it is not NULL are heartbeats, up to its time."),
    ] = None,
    max_events: Annotated[
        int | None, typer.Option(min=1, max=10**10, help="The most events of one batch.")
    ] = None,
    schema: options.Schema = None,
    delimiter: options.Delimiter = ",",
    header: options.Header = True,
    limit: Annotated[
        int, typer.Option(min=0, max=10**6, help="Rows of a batch that the console shows.")
    ] = 20,
    dialect: options.Dialect = "outpace",
    name: options.QueryName = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve metrics here; 0 is any free port.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="A new folder for a recording, in process; outpace replay reads it."),
    ] = None,
    spark: options.OnSpark = False,
    master: options.Master = None,
    remote: options.Remote = None,
    conf: options.Conf = None,
) -> None:
    """Run a query over a stream; Ctrl-C stops it. With an output, the same command goes on.

    Several queries, and an op.group, read the stream once, and the column query says whose a row
    is. An op.Join reads two: --from LEFT --from RIGHT.

    A clause or a query over a small source, a join and SELECT * FROM a JOIN b ON … WITHIN … run in
    process if rows go to the console. A folder or another output, --checkpoint, --recovery,
    --source, --heartbeats, side outputs, --metrics-port and other statements need Spark. Only a
    stream in process is recorded.
    """
    settings = options.pairs(conf, "--conf")
    timing = trigger_of(trigger)
    request = read_queries(query, name=name, dialect=dialect)
    called = query[0].stem if len(query) == 1 else f"{query[0].stem} and {len(query) - 1} more"
    additions = Additions(
        disorder_of(slack, disorder),
        emit,
        late_to is not None,
        invalid_to is not None,
        timed_out_to is not None,
        source_names(sender) if sender else (),
        recovery,
        heartbeats,
    )
    columns = TextOptions(schema, options.one_character(delimiter), header)
    given = options.pairs(option, "--option")
    inputs = [
        input_of(one, format=from_format, options=given, events_max=max_events, columns=columns)
        for one in (source or (None,))
    ]
    check_query(request, inputs, additions)
    if current:
        check_current(request, additions)
    address = remote or (os.environ.get("SPARK_REMOTE") if master is None else None)
    stop = StopRequest()
    shown, messages = _consoles(to == CONSOLE, stop)
    output = output_of(
        to,
        format=to_format,
        options=options.pairs(to_option, "--to-option"),
        console=shown,
        limit=limit,
        changes=tells_changes(request, additions),
        current=current,
        stream=checkpoint if address else None,
    )
    check_remote(output, address)
    sides = {"late": late_to, "invalid": invalid_to, "timed_out": timed_out_to}
    folders = {side: folder_of(text) for side, text in sides.items() if text is not None}
    sink = _with_sides(output, folders)
    reason = None
    if not (spark or master or address or settings):
        reason = _why_spark(output, checkpoint, metrics_port) or why_spark(
            request, inputs, additions, columns
        )
        if reason is None:
            assert isinstance(output, ConsoleWriter)
            _say(messages, "in process: the stream cannot be resumed; --spark runs it on Spark")
            asked, feeds = in_process(request, inputs, additions, columns)
            with pandas_left_out(*query), stop:
                run_in_process(asked, feeds, output, timing, stop, messages, record)
            return
    if record is not None:
        raise UnsupportedError(
            "a stream on Spark is not recorded",
            detail=f"it runs there because {reason or 'Spark was asked for'}",
            hint="leave --record out: the source and --checkpoint let Spark repeat its batches",
        )
    from outpace.hosts.spark.session import own_session

    with _temporary() as temporary, stop:
        kept = checkpoint_of(checkpoint, output, temporary)
        for folder in (output, *folders.values()):
            if isinstance(folder, FolderWriter):
                check_folder(folder, kept)
        if reason is not None:
            _say(messages, f"on Spark: {reason}")
        with (
            _ended_together(stop, kept, messages),
            own_session(
                f"outpace stream {called}",
                master=master,
                remote=remote,
                conf={
                    **_defaults(),
                    **endings(request, additions, timing),
                    **settings,
                    **kept.settings(),
                },
            ) as session,
        ):
            stop.listen()
            if stop.event.is_set():
                return
            with _watching(session, metrics_port, messages):
                frame = _counted(found(session, request, inputs, additions), sides=additions.sides)
                _run(session, frame, sink, kept, called, timing, stop, messages)


def _why_spark(
    output: BatchWriter | SparkSink, checkpoint: str | None, metrics_port: int | None
) -> str | None:
    """Say why what a query gives needs Spark; None if it does not."""
    if checkpoint is not None or not isinstance(output, ConsoleWriter):
        return "progress is kept in a checkpoint"
    return None if metrics_port is None else "metrics are counted there"


def trigger_of(text: str) -> dict[str, Any]:
    """Return what Spark is told of when batches run.

    Examples
    --------
    >>> trigger_of("500 ms"), trigger_of("available-now")
    ({'processingTime': '500 milliseconds'}, {'availableNow': True})
    """
    if text == "once":
        return {"once": True}
    if text == "available-now":
        return {"availableNow": True}
    milliseconds = round(parse_duration(text, where="--trigger").total_seconds() * 1000)
    return {"processingTime": f"{milliseconds} milliseconds"}


def _consoles(rows: bool, stop: StopRequest) -> tuple[Console, Console]:
    """Return where rows are shown, and where it is said how the query goes.

    They are one if rows go to a terminal: the line of status stays below them.
    """
    shown = Console()
    if rows and shown.is_terminal:
        return shown, shown
    return PipeConsole(stop), Console(stderr=True)


def _say(messages: Console, text: str) -> None:
    messages.print(Text(text), soft_wrap=True)


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="outpace-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _with_sides(
    output: BatchWriter | SparkSink, folders: Mapping[str, FolderWriter]
) -> BatchWriter | SparkSink:
    if not folders:
        return output
    if isinstance(output, SparkSink):
        raise BindError(
            f"side outputs do not go with the sink '{output.format}'",
            hint="--to console, a folder or postgres:ADDRESS#TABLE",
        )
    paths = [one.path for one in (output, *folders.values()) if isinstance(one, FolderWriter)]
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise BindError(f"two outputs go to '{twice[0]}'", hint="each has a folder of its own")
    return Fork({"match": output, **folders})


def _defaults() -> dict[str, str]:
    """Return settings that a stream needs and a server may not have; each partition costs time."""
    from outpace.hosts.spark.session import ROCKSDB

    return {
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 1)),
    }


@contextmanager
def _ended_together(stop: StopRequest, checkpoint: Checkpoint, messages: Console) -> Iterator[None]:
    """Take it for a stop if Spark is gone after one was asked for: some signal whole groups."""
    try:
        yield
    except Exception as error:
        if not stop.event.is_set() or not _is_cut_off(error):
            raise
        _say(messages, f"Spark was stopped as well{_resumed(checkpoint)}")


def _is_cut_off(error: Exception) -> bool:
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]  # it has no types

    return isinstance(error, ConnectionError | Py4JNetworkError) or bool(
        _SHUT_DOWN.search(str(error))
    )


@contextmanager
def _watching(session: SparkSession, port: int | None, messages: Console) -> Iterator[None]:
    if port is None:
        yield
        return
    from outpace.hosts.spark.metrics import watch

    with watch(session, port) as watched:
        _say(messages, f"metrics at {watched.url}/metrics")
        yield


def _counted(frame: DataFrame, *, sides: bool) -> DataFrame:
    """Let Spark count the rows that are written, without those of side outputs."""
    from pyspark.sql import functions as sf

    from outpace.cli.stream_listener import ROWS

    rows = sf.count_if(sf.col("output") == "match") if sides else sf.count(sf.lit(1))
    return frame.observe(ROWS, rows.alias(ROWS))


def _run(
    session: SparkSession,
    frame: DataFrame,
    sink: BatchWriter | SparkSink,
    checkpoint: Checkpoint,
    name: str,
    timing: Mapping[str, Any],
    stop: StopRequest,
    messages: Console,
) -> None:
    """Run the query until it ends, fails or is asked to stop."""
    if checkpoint.temporary:
        _say(messages, "without --checkpoint the stream cannot be resumed")
    with _listening(session) as listener:
        going = _started(frame, sink, checkpoint, name, timing)
        with status_view(messages, listener) as view:
            while going.isActive and not stop.event.wait(_LOOK_SECONDS):
                view.show()
            if stop.event.is_set():
                _say(messages, "stopping after this batch; once more ends at once")
                _let_batch_end(going, listener)
            if going.isActive:
                going.stop()
            else:
                going.awaitTermination()  # raises what made it fail
        # Spark tells of batches a little later than of the end.
        listener.ended.wait(_GRACE_SECONDS)
    _say(messages, _farewell(listener, checkpoint))


@contextmanager
def _listening(session: SparkSession) -> Iterator[StatusListener]:
    """Listen to a session that may go on after the command."""
    from outpace.cli.stream_listener import StatusListener

    listener = StatusListener()
    session.streams.addListener(listener)
    try:
        yield listener
    finally:
        session.streams.removeListener(listener)


def _started(
    frame: DataFrame,
    sink: BatchWriter | SparkSink,
    checkpoint: Checkpoint,
    name: str,
    timing: Mapping[str, Any],
) -> StreamingQuery:
    writer = frame.writeStream.queryName(name).outputMode("append").trigger(**timing)
    writer = writer.option("checkpointLocation", spark_path(checkpoint.path))
    if isinstance(sink, SparkSink):
        return writer.format(sink.format).options(**sink.options).start()
    return writer.foreachBatch(sink).start()


def _let_batch_end(going: StreamingQuery, listener: StatusListener) -> None:
    """Wait for the batch that runs, a while: one that is interrupted is only run again."""
    before, until = listener.batch, time.monotonic() + _GRACE_SECONDS
    while (
        going.isActive
        and going.status["isTriggerActive"]
        and listener.batch == before
        and time.monotonic() < until
    ):
        time.sleep(_LOOK_SECONDS)


def _farewell(listener: StatusListener, checkpoint: Checkpoint) -> str:
    return f"{counted(listener.rows, 'row')}{_resumed(checkpoint)}"


def _resumed(checkpoint: Checkpoint) -> str:
    return "" if checkpoint.temporary else f"; the same command goes on from {checkpoint.path}"
