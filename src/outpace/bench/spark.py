"""How fast workloads run on Spark: whole jobs of two sizes, beside what reading alone takes.

A job plans the query, matches, and lets Spark sum up the matches, so that every match crosses to
the JVM. The steady rate is that of the rows that the larger job has more than the smaller one,
which leaves out what every job costs; the plain rate leaves out nothing but the session's start.
The ceiling is measured in the same way and in turn with the jobs: from Parquet, tasks that read
the same columns with PyArrow and match nothing; from a DataFrame, a `mapInArrow` that counts the
rows and columns that cross. Every run must find the same, or the measurement fails.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from outpace.api import match
from outpace.bench.data import events_file
from outpace.errors import MatchError
from outpace.files.parquet import parquet
from outpace.hosts.spark.frame import crossing_rows
from outpace.hosts.spark.schema import arrow_schema
from outpace.ingest.workloads import WORKLOADS
from outpace.pattern.bind.query import bind
from outpace.pattern.query import Query
from outpace.plan.row_plan import plan_query

#: The smaller job has one row in so many of the larger one.
SMALLER: Final = 5

#: Runs of the smaller job before anything counts: they start the workers and warm the compilers.
WARM_RUNS: Final = 2

_COUNT_SCHEMA: Final = "rows bigint"

Output = TypeVar("Output")


class MatchSums(NamedTuple):
    """What a job found, in numbers that other systems can be compared with."""

    matches: int
    sum_start: int
    sum_end: int
    sum_length: int


@dataclass(frozen=True)
class Timing:
    """The seconds of runs of two sizes.

    Examples
    --------
    >>> timing = Timing(small=100, large=500, pairs=((1.0, 3.0), (1.5, 3.0), (1.0, 2.0)))
    >>> timing.seconds, timing.steady, timing.plain
    (3.0, 266.6..., 166.6...)
    """

    small: int
    large: int
    pairs: tuple[tuple[float, float], ...]

    @property
    def seconds(self) -> float:
        """The median of the larger size."""
        return statistics.median(large for _, large in self.pairs)

    @property
    def steady(self) -> float | None:
        """Rows per second without what every run costs; None where the sizes are too small."""
        more = statistics.median(large - small for small, large in self.pairs)
        return (self.large - self.small) / more if more > 0 else None

    @property
    def plain(self) -> float:
        """Rows per second of the larger size, with what every run costs."""
        return self.large / self.seconds


class PairedRuns(Generic[Output]):
    """Collects the seconds and the answers of pairs of runs, the smaller size first."""

    def __init__(self, run: Callable[[str], Output]) -> None:
        self._run = run
        self._answers: set[tuple[Output, ...]] = set()
        self.pairs: list[tuple[float, float]] = []

    def add(self, paths: Sequence[str]) -> None:
        """Run both sizes, one after the other."""
        seconds, answers = [], []
        for path in paths:
            started = time.perf_counter()
            answers.append(self._run(path))
            seconds.append(time.perf_counter() - started)
        self.pairs.append((seconds[0], seconds[1]))
        self._answers.add(tuple(answers))

    def answer(self, workload: str) -> Output:
        """Return the answer of the larger size, which must be the same in all runs."""
        if len(self._answers) > 1:
            raise MatchError(
                f"runs of workload '{workload}' found different numbers",
                detail="\n".join(sorted(map(str, self._answers))),
            )
        ((_, answer),) = self._answers
        return answer


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
    """Measure one workload on a session, from Parquet files or from a DataFrame."""
    query = WORKLOADS[workload]()
    small, large = max(1, n // SMALLER), n
    paths = [str(events_file(folder, size)) for size in (small, large)]
    run = partial(job, session, query, kind)
    ceiling = partial(_ceiling, session, query, kind)
    for _ in range(warm_runs):
        run(paths[0])
        ceiling(paths[0])
    jobs, ceilings = PairedRuns(run), PairedRuns(ceiling)
    for _ in range(repeat):
        jobs.add(paths)
        ceilings.add(paths)
    timing = Timing(small, large, tuple(jobs.pairs))
    top = Timing(small, large, tuple(ceilings.pairs))
    ceilings.answer(workload)
    return {
        "workload": workload,
        "host": "spark",
        "input": kind,
        "n": n,
        "cores": cores,
        "repeat": repeat,
        "seconds": round(timing.seconds, 4),
        "seconds_all": [[round(part, 4) for part in pair] for pair in timing.pairs],
        "n_small": small,
        "events_per_s": _whole(timing.steady),
        "events_per_s_plain": round(timing.plain),
        **jobs.answer(workload)._asdict(),
        "ceiling_seconds_all": [[round(part, 4) for part in pair] for pair in top.pairs],
        "ceiling_events_per_s": _whole(top.steady),
        "ceiling_events_per_s_plain": round(top.plain),
        "share_of_ceiling": _share(timing.steady, top.steady),
        "share_of_ceiling_plain": _share(timing.plain, top.plain),
    }


def job(session: SparkSession, query: Query, kind: str, path: str) -> MatchSums:
    """Run a whole job: from the files to the sums of what was found, which the JVM adds up."""
    source = parquet(path) if kind == "parquet" else session.read.parquet(path)
    sums = [sf.coalesce(sf.sum(name), sf.lit(0)) for name in ("start", "end", "length")]
    row = match(source, query).agg(sf.count("*"), *sums).first()
    assert row is not None
    return MatchSums(*row)


def _ceiling(session: SparkSession, query: Query, kind: str, path: str) -> int:
    """Return how many rows were counted by a job that does all but match."""
    counted = (
        _read_files(session, query, path)
        if kind == "parquet"
        else _cross(session.read.parquet(path), query)
    )
    row = counted.agg(sf.sum("rows")).first()
    assert row is not None
    return int(row[0] or 0)


def _read_files(session: SparkSession, query: Query, path: str) -> DataFrame:
    """Divide the row groups as matching does, and read the columns that it reads."""
    with pq.ParquetFile(path) as file:
        columns = bind(query, file.schema_arrow).columns
        groups = session.range(0, file.num_row_groups)
    return groups.mapInArrow(partial(_read_groups, path, list(columns)), _COUNT_SCHEMA)


def _read_groups(
    path: str, columns: list[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    rows = 0
    with pq.ParquetFile(path) as file:
        for group in (group for batch in batches for group in batch.column(0).to_pylist()):
            rows += file.read_row_group(group, columns, use_threads=False).num_rows
    yield _count_of(rows)


def _cross(frame: DataFrame, query: Query) -> DataFrame:
    """Let the rows and columns cross that matching lets cross."""
    crossing = crossing_rows(frame, plan_query(query, arrow_schema(frame)).crossing)
    return crossing.mapInArrow(_count_rows, _COUNT_SCHEMA)


def _count_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _count_of(sum(batch.num_rows for batch in batches))


def _count_of(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


def _whole(rate: float | None) -> int | None:
    return None if rate is None else round(rate)


def _share(rate: float | None, ceiling: float | None) -> float | None:
    return None if rate is None or ceiling is None else round(rate / ceiling, 3)
