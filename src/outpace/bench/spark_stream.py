"""How fast workloads run as streams on Spark: whole streaming queries of two sizes from a log.

A run starts a streaming query on a fresh checkpoint folder, with RocksDB as the state store and
Spark's exactly-once commits, lets it take all that the log has in micro-batches, and ends when the
matches are in the Parquet files of the sink. The steady rate is that of the events that the larger
run has more than the smaller one, which leaves out the start of a query; the plain rate leaves out
nothing. From `blocks`, the log gives its blocks as they are; from `rows`, a row for each event, as
any other source does; from `files`, Spark reads Parquet files. Every run must find what the
in-process matcher finds in the same events, or the measurement fails.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from outpace import log
from outpace.api import match
from outpace.bench.data import events_file
from outpace.bench.spark import MatchSums, PairedRuns, Timing
from outpace.errors import DataError, MatchError
from outpace.hosts.local.open import open_query
from outpace.ingest.workloads import WORKLOADS, event_pieces, events
from outpace.pattern.query import Query

#: The smaller run has one event in so many of the larger one.
SMALLER: Final = 5

#: Runs of the smaller size before anything counts.
WARM_RUNS: Final = 1

#: Events of a micro-batch: large ones share the fixed cost of a batch among more events.
BATCH_EVENTS: Final = 1 << 22

_SUMMED: Final = ("start", "end", "length")


def measure(
    session: SparkSession,
    workload: str,
    kind: str,
    n: int,
    cores: int,
    repeat: int,
    folder: Path,
    warm_runs: int = WARM_RUNS,
) -> dict[str, object]:
    """Measure one workload as a stream of blocks, of rows, or from files."""
    query = WORKLOADS[workload]()
    small, large = max(1, n // SMALLER), n
    make = events_folder if kind == "files" else events_log
    paths = [str(make(folder, size)) for size in (small, large)]
    run = partial(stream, session, query, kind)
    for _ in range(warm_runs):
        run(paths[0])
    runs = PairedRuns(run)
    for _ in range(repeat):
        runs.add(paths)
    timing = Timing(small, large, tuple(runs.pairs))
    found = runs.answer(workload)
    if found != (expected := in_process(query, n)):
        raise MatchError(
            f"the stream of workload '{workload}' found other matches than the same events do in "
            "process",
            detail=f"{found} instead of {expected}",
        )
    steady = timing.steady
    return {
        "workload": workload,
        "host": "stream",
        "input": kind,
        "n": n,
        "cores": cores,
        "repeat": repeat,
        "batch_events": BATCH_EVENTS,
        "seconds": round(timing.seconds, 4),
        "seconds_all": [[round(part, 4) for part in pair] for pair in timing.pairs],
        "n_small": small,
        "events_per_s": None if steady is None else round(steady),
        "events_per_s_plain": round(timing.plain),
        **found._asdict(),
    }


def stream(session: SparkSession, query: Query, kind: str, path: str) -> MatchSums:
    """Run a streaming query over all events of a log or of files, and sum up what it wrote."""
    with tempfile.TemporaryDirectory(prefix="outpace-bench-") as folder:
        written = Path(folder, "matches")
        running = (
            match(_source(session, kind, path), query)
            .writeStream.format("parquet")
            .option("path", str(written))
            .option("checkpointLocation", str(Path(folder, "checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        running.awaitTermination()
        return _sums(ds.dataset(written, format="parquet").to_table(columns=list(_SUMMED)))


def in_process(query: Query, n: int) -> MatchSums:
    """Return what is final once all events have come, but not their end."""
    matcher = open_query(query, schema=events(0).schema)
    return _sums(pa.concat_tables([matcher.push(piece) for piece in event_pieces(n)]))


def events_log(folder: Path, size: int) -> Path:
    """Return the log of the first `size` events, and write it where it is missing."""
    path = folder / f"events-{size}.log"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            made = Path(unfinished, path.name)
            with log.create(made, events(0).schema).writer(sync="never") as writer:
                for piece in event_pieces(size):
                    writer.append(piece)
            made.rename(path)
    found = log.open(path).stop
    if found != size:
        raise DataError(
            f"'{path}' has {found} events instead of {size}", hint="remove it, and try again"
        )
    return path


def events_folder(folder: Path, size: int) -> Path:
    """Return a folder with the first `size` events in files of a micro-batch each."""
    path = folder / f"events-{size}.parquet.d"
    if not path.exists():
        whole = events_file(folder, size)
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            batches = pq.ParquetFile(whole).iter_batches(BATCH_EVENTS)
            for number, batch in enumerate(batches):
                part = Path(unfinished, "parts", f"{number:05}.parquet")
                part.parent.mkdir(exist_ok=True)
                pq.write_table(pa.Table.from_batches([batch]), part)
            Path(unfinished, "parts").rename(path)
    return path


def _source(session: SparkSession, kind: str, path: str) -> DataFrame:
    if kind == "files":
        files = session.readStream.schema(session.read.parquet(path).schema)
        return files.option("maxFilesPerTrigger", 1).option("latestFirst", "false").parquet(path)
    source = session.readStream.format("outpace.log").option("form", kind)
    return source.option("maxEventsPerTrigger", BATCH_EVENTS).load(path)


def _sums(found: pa.Table) -> MatchSums:
    return MatchSums(
        found.num_rows,
        *(pc.sum(found.column(name)).as_py() or 0 for name in _SUMMED),
    )
