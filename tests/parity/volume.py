"""Cases of many events: benchmark queries over whole blocks, and `op.run` over sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

import pyarrow as pa
from parity.case import Case, by_source, events, merged, named, traced
from parity.operators import Pairs
from parity.record import Record, digest

import outpace as op
from outpace.ingest.workloads import WORKLOADS
from outpace.ingest.workloads import events as workload_events

#: So many events that blocks are divided, kernels run compiled, and no result is written out.
SIZE: Final = 30_000
#: Blocks of one event, a few, and most.
CUTS: Final = (0, 1, 101, 7_000, 7_000, 29_000, SIZE)

SOURCES: Final = ("east", "north", "west")


@cache
def _events() -> pa.Table:
    return workload_events(SIZE)


def record_workload(name: str) -> Record:
    """Return what is frozen of a benchmark's query."""
    query, table = WORKLOADS[name](), _events()
    stream = op.open(query)
    emitted = []
    for start, end in pairwise(CUTS):
        emitted.append(stream.push(table.slice(start, end - start)))
        if end == CUTS[3]:
            stream = op.resume(query, stream.state())
    emitted.append(stream.finish())
    return {"name": name, "table": digest([op.match(table, query)]), "stream": digest(emitted)}


@dataclass(frozen=True)
class Listed(op.sources.Source):
    """A part of some events as a source."""

    def batches(self, rows: int = 20) -> Iterator[pa.RecordBatch]:
        yield from _parts()[self.id].to_batches(max_chunksize=rows)


@cache
def _parts() -> dict[str, pa.Table]:
    return by_source(events(400, 51), SOURCES, 52)


def _runs() -> Iterator[Case]:
    chain = traced("A -> B -> C")
    table = merged(_parts())
    windows = op.windows
    yield Case("time windows", chain.over(windows.time(20, slide=7), numbered=True), table)
    counted = chain.over(windows.count(30, slide=11), numbered=True, duplicates=True)
    yield Case("count windows", counted.instances(2, op.schedulers.Batches(3)), table)
    keyed = chain.partition_by("key").over(windows.session(6), numbered=True)
    yield Case("sessions by key", keyed.instances(2), table)
    yield Case("no windows, by key", chain.within(30).partition_by("key").instances(2), table)
    own = op.Query("q").order_by("ts").apply(Pairs)
    own = own.over(windows.between(open="kind = 'a'", close="kind = 'd'"), numbered=True)
    yield Case("operator", own, table)


RUNS: Final = named(_runs())


def record_run(name: str) -> Record:
    """Return what is frozen of a run: when a match comes depends on the machine, the order not."""
    case = RUNS[name]
    with op.run(case.query, [Listed(source) for source in SOURCES]) as run:
        found = pa.concat_tables(run)
    whole = op.match(case.table, case.query.instances(1))
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, whole.to_pylist()))
    return {"name": name, **digest([found])}
