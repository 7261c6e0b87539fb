"""What `outpace simulate calibrate` and `validate` run: a query, its events, and how they are fed.

What is wrong with the options or the files is said before Spark is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

import outpace as op
from outpace.cli.run_input import DataFormat, format_of, split_name
from outpace.cli.run_query import read_query
from outpace.cli.stream_input import LOG, StreamInput
from outpace.cli.stream_query import Additions, check_query, found
from outpace.errors import BindError, DataError, did_you_mean
from outpace.hosts.spark.session import own_session
from outpace.ingest.files import csv, json_lines, parquet
from outpace.ingest.log.reader import Log
from outpace.ingest.source import Source
from outpace.ingest.workloads import WORKLOADS, events
from outpace.pattern.query import Query
from outpace.simulate.calibration.calibrated_scenario import MeasuredRun
from outpace.simulate.calibration.live_stream import SETTINGS, StreamSetting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: So many events are held and fed again and again.
EVENTS_HELD: Final = 1_000_000

_SOURCES: Final[Mapping[DataFormat, Callable[..., Source]]] = {
    DataFormat.PARQUET: parquet,
    DataFormat.CSV: csv,
    DataFormat.JSON: json_lines,
}


def setting_of(measured: MeasuredRun, folder: Path) -> StreamSetting:
    """Read a query and its events; paths are looked for from a folder on."""
    if measured.workload:
        return _workload_setting(measured)
    request = read_query(folder / measured.query)
    if isinstance(request, Query):
        order = request.order
    else:
        steps = request.statement().steps
        if not steps:
            raise BindError("the statement matches nothing", where=measured.query)
        order = steps[0].query.order
    if not order:
        raise BindError("the query has no order of events", where=measured.query, hint="ORDER BY")
    time = order[0].column
    name, place = split_name(measured.events)
    check_query(request, [_log_input(name or "input", place, 1)], Additions())
    table = _events(place, folder, time)

    def matching(session: SparkSession, path: str, most: int) -> DataFrame:
        return found(session, request, [_log_input(name or "input", path, most)], Additions())

    return StreamSetting(matching, table, time, measured.trigger, measured.events_max)


@contextmanager
def measuring_session(cores: int) -> Iterator[SparkSession]:
    """Give a session for measurements, which ends with the block."""
    conf = {"spark.sql.shuffle.partitions": str(cores), **SETTINGS}
    with own_session("outpace simulate", master=f"local[{cores}]", conf=conf) as session:
        yield session


def default_mips() -> float:
    """Return what this machine says a core does in a second, in million instructions.

    Linux has a rough number for it; 2500 where there is none. Predictions for the same machine do
    not depend on it.
    """
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    speeds = [line.partition(":")[2] for line in lines if line.lower().startswith("bogomips")]
    return float(speeds[0]) if speeds and float(speeds[0]) > 0 else 2500.0


def _workload_setting(measured: MeasuredRun) -> StreamSetting:
    if measured.workload not in WORKLOADS:
        hint = did_you_mean(measured.workload, WORKLOADS) or f"one of {', '.join(WORKLOADS)}"
        raise BindError(f"there is no workload '{measured.workload}'", hint=hint)
    query = WORKLOADS[measured.workload]()

    def matching(session: SparkSession, path: str, most: int) -> DataFrame:
        return op.match(_log_input("input", path, most).blocks(session), query)

    held = min(EVENTS_HELD, max(10_000, measured.events_max))
    return StreamSetting(matching, events(held), "ts", measured.trigger, measured.events_max)


def _log_input(name: str, path: str, most: int) -> StreamInput:
    return StreamInput(name, LOG, {"maxEventsPerTrigger": str(most)}, path)


def _events(place: str, folder: Path, time: str) -> pa.Table:
    """Read events of a log or of files, not more than are held."""
    if place.startswith("log:"):
        log = Log.open(folder / place.removeprefix("log:"))
        batches: Iterator[pa.RecordBatch] = log.batches()
    else:
        kind = format_of(place)
        if kind is None:
            raise DataError(
                f"the ending of '{place}' tells no format", hint="parquet, csv, json or log:PATH"
            )
        path = place if "://" in place else folder / place
        batches = _SOURCES[kind](path, time=time).batches()
    read = [pa.Table.from_batches([batch]) for batch in _first(batches)]
    if not sum(table.num_rows for table in read):
        raise DataError(f"'{place}' has no events")
    whole = pa.concat_tables(read).slice(0, EVENTS_HELD)
    if time not in whole.column_names:
        hint = did_you_mean(time, whole.column_names)
        raise DataError(f"'{place}' has no column '{time}'", hint=hint)
    return whole


def _first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        if rows >= EVENTS_HELD:
            return
