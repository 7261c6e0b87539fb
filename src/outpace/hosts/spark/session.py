"""A Spark session for the command line and for scripts: `op.spark.session()`.

Nothing else in Outpace makes a session. One that is active is returned as it is. Everything that a
local session opens is bound to the loopback address, its logs are quiet, its web page is off unless
asked for, and its workers run the Python that runs the caller.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from outpace.errors import BindError, OutpaceError
from outpace.hosts.spark.failure import call_details
from outpace.pattern.argument import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

#: The state store that streams need.
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

#: A local master that does not say how often a task is tried.
_LOCAL_CORES: Final = re.compile(r"local(?:\[(\*|\d+)\])?")

#: Spark makes a thread and a Python process for each core that it is told of.
CORES_MAX: Final = 1024

#: How often a task is tried: Spark's own number on a cluster.
_TASK_TRIES: Final = 4

#: What every session that is made here gets unless told otherwise.
_SETTINGS: Final = {
    "spark.ui.showConsoleProgress": "false",
    # Times mean the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    # Rows cross to Python in batches of so many. A limit in bytes, too, would have Spark measure a
    # batch anew for each row, which takes longer than sending it. No batch may have 2 GiB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Streams keep their state in RocksDB, and write what changed of it, not all, in every batch.
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

#: How checkpoints are written where they lie on a local disk. Spark's own choice starts a process
#: for every look at a link, about forty in each batch of a stream; files are renamed in both.
_RENAMED_FILES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

#: How long a Spark Connect server may take to answer; PySpark itself would try for ten minutes.
_ANSWER_SECONDS: Final = 6.0

#: What a session with all parts on this machine gets on top.
_LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.streaming.checkpointFileManagerClass": _RENAMED_FILES,
}


def session(
    name: str = "outpace",
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    ui: bool = False,
) -> SparkSession:
    """Return the active Spark session, or make one that is quiet and keeps to this machine.

    Parameters
    ----------
    name
        The application's name.
    master
        Where Spark runs: "local[*]" by default. On this machine Spark tries a task once, so a
        stream would end with a Python worker that dies; where "local[N]" does not say how often,
        it is four times, as on a cluster.
    remote
        The address of a Spark Connect server, as "sc://host", or "local[2]" for one of its own; by
        default what the environment variable SPARK_REMOTE says, unless there is a `master`.
    conf
        Settings of Spark, which go before those made here.
    ui
        Whether Spark serves its web page.

    Raises
    ------
    OutpaceError
        PySpark or Java is missing, or Spark does not start.

    Examples
    --------
    >>> spark = session(master="local[2]")  # doctest: +SKIP
    >>> spark.range(3).count()  # doctest: +SKIP
    3
    """
    address = remote or (os.environ.get("SPARK_REMOTE") if master is None else None)
    if address and not address.startswith("sc://") and not _is_local(address):
        raise BindError(f"'{address}' is no address of a Spark Connect server", hint="sc://host")
    check_cores(address or master)
    active = _active()
    if active is not None:
        return active
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    place = _with_retries(address or master or "local[*]")
    builder = builder.remote(place) if address else builder.master(place)
    settings: dict[str, str] = {}
    if _is_local(address or master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not address or _is_local(address):
        _require_java()
        settings = classic_settings(address or master, ui=ui)
    if address and _is_local(address):
        settings["spark.connect.grpc.binding.address"] = "127.0.0.1"
    for key, value in {**settings, **(conf or {})}.items():
        builder = builder.config(key, value)
    with _java_ended_by_interrupts(), _own_standard_error() as output:
        try:
            if address and not _is_local(address):
                _require_answer(address)
            return builder.getOrCreate()
        except PySparkException as error:
            raise _not_started(error, address, _tail(output)) from error


@contextmanager
def own_session(
    name: str = "outpace",
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Give a session for a command, and stop it at the end unless it was there before.

    The parameters are those of `session`. In the block nothing is logged: PySpark raises failures
    as well, and an interrupt is none.
    """
    before = _active()
    used = session(name, master=master, remote=remote, conf=conf)
    with _without_logging():
        try:
            yield used
        finally:
            if before is None:
                # When a Connect session is collected, it has no server to take listeners back from.
                warnings.filterwarnings("ignore", "Failed to remove the listener")
                used.stop()


def classic_settings(master: str | None = None, *, ui: bool = False) -> dict[str, str]:
    """Return the settings of a session that is made here, not on another machine.

    Examples
    --------
    >>> classic_settings("local[2]")["spark.driver.bindAddress"]
    '127.0.0.1'
    >>> "spark.driver.bindAddress" in classic_settings("spark://host:7077")
    False
    """
    settings = dict(_SETTINGS)
    settings["spark.ui.enabled"] = "true" if ui else "false"
    settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    if _is_local(master):
        settings.update(_LOCAL_SETTINGS)
        # Few, large partitions; Spark spills what does not fit, and joins small ones.
        settings["spark.sql.shuffle.partitions"] = str(max(4, 2 * (os.cpu_count() or 1)))
    return settings


def require_spark() -> None:
    """Refuse to go on where PySpark, or what it needs, is not installed."""
    for module, title in (("pyspark", "PySpark"), ("pandas", "pandas")):
        try:
            import_module(module)
        except ImportError as error:
            raise OutpaceError(
                f"{title} is not installed",
                detail="Spark is needed here",
                hint='pip install "outpace[spark]"',
            ) from error


def _active() -> SparkSession | None:
    require_spark()
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _is_local(master: str | None) -> bool:
    return master is None or master.split("[")[0] == "local"


def check_cores(place: str | None) -> None:
    """Refuse a local master with a number of cores that no machine has."""
    cores = re.match(r"local\[\s*([0-9]+)", place or "")
    if cores is None:
        return
    digits = cores[1].lstrip("0")
    # Python reads no more than some thousands of digits.
    if not digits or len(digits) > len(str(CORES_MAX)) or int(digits) > CORES_MAX:
        raise BindError(
            f"Spark runs on 1 to {CORES_MAX} cores of this machine", detail=shown(place)
        )


def _with_retries(place: str) -> str:
    """Return a local master that tries tasks as often as a cluster does; any other as it is.

    Examples
    --------
    >>> _with_retries("local[2]"), _with_retries("local[2,1]"), _with_retries("spark://host:7077")
    ('local[2,4]', 'local[2,1]', 'spark://host:7077')
    """
    cores = _LOCAL_CORES.fullmatch(place)
    return place if cores is None else f"local[{cores[1] or 1},{_TASK_TRIES}]"


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise OutpaceError(
            "Spark needs Java 17 or newer, and none is found",
            detail=f"JAVA_HOME is {home}" if home else "there is no java on the PATH",
            hint="install Java 17 and set JAVA_HOME to its folder",
        )


def _require_answer(address: str) -> None:
    """Refuse a Spark Connect server that does not answer."""
    import grpc  # type: ignore[import-untyped]  # it has no types
    from pyspark.sql.connect.client import DefaultChannelBuilder

    decided = threading.Event()
    states: list[object] = []

    def hear(state: object) -> None:
        if state in (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE):
            states.append(state)
            decided.set()

    channel = DefaultChannelBuilder(address).toChannel()
    try:
        channel.subscribe(hear, try_to_connect=True)
        decided.wait(_ANSWER_SECONDS)
    finally:
        channel.close()
    if states[:1] != [grpc.ChannelConnectivity.READY]:
        reason = "the connection failed" if states else f"no answer in {_ANSWER_SECONDS:g} seconds"
        raise _not_reached(address, reason)


@contextmanager
def _java_ended_by_interrupts() -> Iterator[None]:
    """End a Java that Ctrl-C meets while it starts.

    PySpark then removes the folder in which it awaits Java's first message, and a Java that cannot
    write there waits for ever. PySpark keeps the process to itself, so its start is watched.
    """
    from pyspark import SparkContext, java_gateway

    gateway: Any = java_gateway
    started: list[subprocess.Popen[bytes]] = []

    class WatchedProcess(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            started.append(self)
            super().__init__(*arguments, **options)

    plain = gateway.Popen
    gateway.Popen = WatchedProcess
    try:
        yield
    except KeyboardInterrupt:
        # A Java that PySpark has reached ends by itself when this process does.
        if SparkContext._gateway is None:
            for process in started:
                process.kill()
                process.wait()
        raise
    finally:
        gateway.Popen = plain


@contextmanager
def _without_logging() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _own_standard_error() -> Iterator[IO[bytes]]:
    """Start processes with a file as standard error, which is gone when they are.

    Java says a line about its modules at every start. What it says before it fails is kept.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as output:
        kept = os.dup(2)
        try:
            os.dup2(output.fileno(), 2)
            yield output
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _tail(output: IO[bytes]) -> list[str]:
    output.seek(0)
    lines = output.read().decode("utf-8", "replace").splitlines()
    return [line.strip() for line in lines if "incubator modules" not in line][:3]


def _not_started(error: Exception, address: str | None, lines: list[str]) -> OutpaceError:
    text = str(error).strip()
    detail = "\n".join(lines or [call_details(text) or text.partition("\n")[0]])
    if address:
        return _not_reached(address, detail)
    return OutpaceError(
        "Spark did not start",
        detail=detail or None,
        hint="Spark needs Java 17 or newer: try java -version",
    )


def _not_reached(address: str, reason: str) -> OutpaceError:
    return OutpaceError(
        f"cannot reach Spark Connect at {address}",
        detail=reason or None,
        hint="is the server running there?",
    )
