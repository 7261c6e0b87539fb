"""A query over a streaming DataFrame: pack, then the stages in transformWithState, then unpack.

Rows are packed into cells as soon as they cross to Python; cells are what Spark shuffles and what
stages exchange. Each instance of a stage keeps one binary value in Spark's state store. A match
comes out in the batch that makes it final and never changes (append). Where the stream is a log
that can be read again, that value may be a savepoint alone.
"""

from __future__ import annotations

import base64
import datetime
import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from outpace.engine.codec.cell import CELLS, CellKind
from outpace.engine.group_spec import QUERY, GroupSpec
from outpace.engine.operator_spec import tells_timeouts
from outpace.engine.order.contract import REASON
from outpace.engine.recover.protocol import SeekableLog
from outpace.errors import BindError, UnsupportedError
from outpace.hosts.spark.frame import PLACED, BatchFunction, crossing_rows, map_rows
from outpace.hosts.spark.listeners import warn_of_late_events
from outpace.hosts.spark.log_source import SCHEMA_KEY
from outpace.hosts.spark.metrics_account import BEHIND, OBSERVED
from outpace.hosts.spark.schema import arrow_schema, with_schema
from outpace.hosts.spark.seekable import StreamLog, log_of
from outpace.hosts.spark.session import ROCKSDB
from outpace.hosts.spark.stages import (
    OUTPUTS,
    PackTask,
    PlanPart,
    StageProcessor,
    labels,
    pack_blocks,
    pack_matches,
    pack_rows,
    unpack,
    unpack_all,
)
from outpace.pattern.disorder import KSlack, Punctuation
from outpace.pattern.group import QueryGroup
from outpace.pattern.query import Query
from outpace.plan.plan import Plan
from outpace.plan.stream_plan import StageDivision, plan_group, plan_stream

_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"

#: Where `withWatermark` notes the delay that it was given.
_DELAY: Final = "spark.watermarkDelayMs"

#: More partitions than this cost more than they give: each has a state store of its own.
_PARTITIONS_MANY: Final = 32

_CELLS: Final = from_arrow_schema(CELLS)

#: What may not be in the name of a column whose values are kept in a state store.
_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_]+")

#: The numbers that tell the metrics of several operators in one query apart.
_numbers = itertools.count(1)


@dataclass(frozen=True)
class StreamSearch:
    """A query over a stream, and all that comes out of it.

    Each method gives a streaming DataFrame, which nothing runs before it is started. Several of
    them started run the query several times; `outputs` gives all in one, to be told apart in
    `foreachBatch`.

    Parameters
    ----------
    frame
        The stream.
    query
        What to detect and what to return; several queries say in the column `query` whose a row is,
        also one that takes no part in it.
    sources
        The identifiers of several sources, in their order, where the column `source` says who sent
        a row.
    replays
        Whether savepoints are all that Spark keeps, and the log that is the stream is read again.
    log
        What reads it again, where the stream does not say.
    heartbeats
        The column that makes a row a heartbeat of its source, and no event.
    """

    frame: DataFrame
    query: Query | QueryGroup
    sources: tuple[str, ...] | None = None
    replays: bool = False
    log: SeekableLog | None = None
    heartbeats: str | None = None

    def plan(self) -> Plan[StageDivision]:
        """Return how it would run."""
        return _planned(self).plan

    def matches(self) -> DataFrame:
        """Return the matches."""
        chain = self._chain()
        found = chain.rows(CellKind.MATCHES, chain.plan.output)
        if isinstance(self.query, Query):
            _chains[found] = chain
        return found

    def timed_out(self) -> DataFrame:
        """Return the partial matches that WITHIN ended."""
        chain = self._chain(timeouts=True)
        return chain.rows(CellKind.TIMED_OUT, chain.timed_out)

    def late(self) -> DataFrame:
        """Return the events that came late, where the query's disorder has `late="side"`."""
        chain = self._chain()
        return chain.rows(CellKind.LATE, chain.late)

    def invalid(self) -> DataFrame:
        """Return events that cannot be used, where disorder has `invalid="quarantine"`."""
        chain = self._chain()
        return chain.rows(CellKind.INVALID, chain.invalid)

    def outputs(self) -> DataFrame:
        """Return all of it in one DataFrame.

        The column `output` says what a row is: "match", "timed_out", "late" or "invalid"; of the
        columns with these names the one that it says is filled.
        """
        query = self.query
        queries = query.queries if isinstance(query, QueryGroup) else (query,)
        return self._chain(timeouts=any(map(tells_timeouts, queries))).outputs()

    def _chain(self, *, timeouts: bool = False) -> _QueryStages:
        planned = _planned(self, timeouts=timeouts)
        return _QueryStages(planned.plan, _cells(self.frame, planned))


class _Planned(NamedTuple):
    """How a stream is matched, over how many partitions, and what it can be read again from."""

    plan: Plan[StageDivision]
    partitions: int
    log: StreamLog | None


@dataclass(frozen=True)
class _QueryStages:
    """The stages of a query, as Spark runs them: how, and what cells the last one gives."""

    plan: Plan[StageDivision]
    cells: DataFrame

    @property
    def timed_out(self) -> pa.Schema:
        """The columns of partial matches that timed out; none where they are not kept."""
        operator = self.plan.runs
        return operator.timed_out if operator.timeouts else pa.schema([])

    @property
    def late(self) -> pa.Schema:
        """The columns of events that came late: those of the input."""
        return pa.schema([*self._named, *self.plan.crossing.schema])

    @property
    def invalid(self) -> pa.Schema:
        """The columns of events that cannot be used."""
        reason = pa.field(REASON, pa.string())
        return pa.schema([*self._named, reason, *self.plan.crossing.schema])

    @property
    def _named(self) -> list[pa.Field]:
        """What says which of several queries an event takes no part in."""
        grouped = isinstance(self.plan.runs, GroupSpec)
        return [pa.field(QUERY, pa.string())] if grouped else []

    def rows(self, kind: CellKind, output: pa.Schema) -> DataFrame:
        chosen = self.cells.filter(sf.col("kind") == int(kind)).select("block")
        blocks = with_schema(chosen, StructType([_CELLS["block"]]))
        title = f"outpace {self.plan.name}: {kind.name.lower()}"
        given = pa.schema([CELLS.field("block")])
        return map_rows(blocks, named(title, unpack, output), given, output)

    def outputs(self) -> DataFrame:
        plan = self.plan
        tables = (plan.output, self.timed_out, self.late, self.invalid)
        structs = [
            pa.field(name, pa.struct(list(schema)))
            for name, schema in zip(OUTPUTS, tables, strict=True)
            if len(schema)
        ]
        output = pa.schema([pa.field("output", pa.string()), *structs])
        kinds = [int(OUTPUTS[field.name]) for field in structs]
        chosen = self.cells.filter(sf.col("kind").isin(kinds)).select("kind", "block")
        blocks = with_schema(chosen, StructType([_CELLS["kind"], _CELLS["block"]]))
        given = pa.schema([CELLS.field("kind"), CELLS.field("block")])
        title = f"outpace {plan.name}: outputs"
        return map_rows(blocks, named(title, unpack_all, output), given, output)


#: The stages behind a DataFrame of matches: as the input of another query it tells the time.
_chains: WeakKeyDictionary[DataFrame, _QueryStages] = WeakKeyDictionary()


def _planned(asked: StreamSearch, *, timeouts: bool = False) -> _Planned:
    frame, request, sources, heartbeats = asked.frame, asked.query, asked.sources, asked.heartbeats
    before = _chains.get(frame)
    schema = _input_schema(frame, before)
    if asked.replays and before is not None:
        raise UnsupportedError(
            "the matches of another query are no log that can be read again",
            hint="leave out recovery, or write the matches into files, and match these",
        )
    log = log_of(frame, asked.log) if asked.replays else None
    told = heartbeats is not None
    if isinstance(request, Query):
        query = _with_clock(frame, request, before, told=told)
        partitions = _check_session(frame)
        plan = plan_stream(
            query,
            schema,
            partitions,
            timeouts=timeouts,
            sources=sources,
            heartbeats=heartbeats,
            log=None if log is None else log.log.log,
        )
        return _Planned(plan, partitions, log)
    if log is not None:
        raise UnsupportedError(
            "several queries together are not recovered by a replay",
            hint="leave recovery out, or match each query by itself",
        )
    queries = tuple(_with_clock(frame, query, before, told=told) for query in request.queries)
    partitions = _check_session(frame)
    plan = plan_group(
        QueryGroup(queries),
        schema,
        partitions,
        timeouts=timeouts,
        sources=sources,
        heartbeats=heartbeats,
    )
    follows = any(isinstance(query.order_of_arrival, Punctuation) for query in queries)
    if before is not None and follows and not before.plan.tells_time_to(plan):
        raise BindError(
            f"the matches of '{before.plan.name}' tell the time to some queries of the group only",
            hint="order all by the time of an event of the matches, or match them apart",
        )
    return _Planned(plan, partitions, None)


def _cells(frame: DataFrame, planned: _Planned) -> DataFrame:
    """Return what the stages of a plan give, as Spark runs them."""
    plan, partitions, log = planned
    before, name = _chains.get(frame), plan.name
    packing, stages = plan.division.packing, plan.division.stages
    own = [labels(spec.instances, partitions) for spec in stages]
    pack = PackTask(PlanPart(packing), own[0])
    title = f"outpace {name}: pack"
    if before is not None:
        timed = before.plan.tells_time_to(plan)
        cells = _map_cells(before.cells, named(title, pack_matches, pack, timed))
    elif SCHEMA_KEY in _block_metadata(frame):
        where = [] if log is None else ["first", "stop"]
        cells = _map_cells(frame.select("block", *where), named(title, pack_blocks, pack))
    else:
        places = () if log is None else log.places
        rows = crossing_rows(frame, plan.crossing, places)
        crossed = pa.schema([*plan.crossing.row_schema, *(PLACED if places else ())])
        cells = map_rows(rows, named(title, pack_rows, pack), crossed, CELLS)
    for place, spec in enumerate(stages):
        behind = own[place + 1] if place + 1 < len(own) else [0]
        # One instance is the same wherever it is; where several are depends on how many places.
        stage = replace(spec, partitions=partitions if spec.instances > 1 else 1)
        read = None if log is None else log.log
        processor = StageProcessor(PlanPart(stage), place + 1, own[place], behind, read)
        grouped = _by_instance(cells, f"outpace {name}: {spec.name}")
        # A stage with a clock makes Spark run batches without events, which others need not pay.
        clock = "ProcessingTime" if spec.clocked else "None"
        stepped = grouped.transformWithStateInPandas(processor, _CELLS, "Append", clock)
        cells = with_schema(stepped, _CELLS)
    return _observed(cells, plan)


def _input_schema(frame: DataFrame, before: _QueryStages | None) -> pa.Schema:
    if before is not None:
        return before.plan.output
    written = _block_metadata(frame).get(SCHEMA_KEY)
    if written is None:
        return arrow_schema(frame)
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(written)))


def _block_metadata(frame: DataFrame) -> dict[str, Any]:
    schema = frame.schema
    return dict(schema["block"].metadata) if "block" in schema.names else {}


def _with_clock(
    frame: DataFrame, query: Query, before: _QueryStages | None, *, told: bool
) -> Query:
    """Return the query with what tells it the time: its own events, or the query before it.

    What heartbeats tell comes with the events.
    """
    disorder = query.order_of_arrival
    if before is not None:
        column = query.order[0].column if query.order else ""
        tells_time = before.plan.tells_time_in(column)
        if isinstance(disorder, Punctuation) and query.order and not tells_time:
            raise BindError(
                f"the matches of '{before.plan.name}' do not tell the time in '{column}'",
                hint="order by the time of one of their events, with WITHIN or time windows, or "
                "use op.KSlack",
            )
        return query.disorder(Punctuation()) if tells_time and disorder is None else query
    if not isinstance(disorder, Punctuation) or not query.order or told:
        return query
    name = query.order[0].column
    fields = {field.name: field for field in frame.schema.fields}
    delay = fields[name].metadata.get(_DELAY) if name in fields else None
    if delay is None:
        raise BindError(
            f"the stream has no watermark on '{name}'",
            hint=f'call withWatermark("{name}", "2 seconds") on it, tell it with heartbeats=, or '
            'use op.KSlack("2 s")',
        )
    slack = datetime.timedelta(milliseconds=int(delay))
    return query.disorder(KSlack(slack, **disorder.options))


def _check_session(frame: DataFrame) -> int:
    """Return the number of shuffle partitions of the session, which must be fit for streams."""
    conf = frame.sparkSession.conf
    if conf.get(_PROVIDER, None) != ROCKSDB:
        raise UnsupportedError(
            "streams need Spark's RocksDB state store",
            detail=f"{_PROVIDER} is {conf.get(_PROVIDER, None) or 'not set'}",
            hint=f'spark.conf.set("{_PROVIDER}", "{ROCKSDB}")',
        )
    partitions = int(str(conf.get(_PARTITIONS)))
    if partitions > _PARTITIONS_MANY:
        warnings.warn(
            f"{_PARTITIONS} is {partitions}: every one costs time in every batch; set it to about "
            "the number of cores before the stream is started for the first time",
            stacklevel=4,
        )
    return partitions


def _by_instance(cells: DataFrame, title: str) -> GroupedData:
    """Group cells by instance under a title: this column is all of a stage that Spark names."""
    title = _UNNAMED.sub("_", title)
    first, *others = _CELLS.fields
    titled = StructType([StructField(title, first.dataType, first.nullable), *others])
    return with_schema(cells.withColumnRenamed(first.name, title), titled).groupBy(title)


def _map_cells(frame: DataFrame, change: BatchFunction) -> DataFrame:
    return with_schema(frame.mapInArrow(change, schema=_CELLS), _CELLS)


def named(
    title: str, change: Callable[..., Iterator[pa.RecordBatch]], *given: object
) -> BatchFunction:
    """Return what changes rows, with a title that Spark shows in its plans and on its page."""
    step = partial(change, *given)
    step.__name__ = title  # type: ignore[attr-defined]  # Spark asks for it
    return step


def _observed(cells: DataFrame, plan: Plan[StageDivision]) -> DataFrame:
    """Let Spark collect the reports of every stage; `outpace.hosts.spark.metrics` reads them.

    A sum for each counter would cost a tenth of a second in every batch.
    """
    chain = BEHIND.join(["pack", *(spec.name for spec in plan.division.stages)])
    reported = f"{OBSERVED}:{plan.name}:{next(_numbers)}"
    packing = plan.division.packing
    unnamed = packing.schema.names if packing.sources is None else ()
    warn_of_late_events(cells.sparkSession, reported, plan.queries, unnamed)
    return with_schema(cells.observe(reported, sf.collect_list("report").alias(chain)), _CELLS)
