"""Graphs whose processes are killed at moments that a seed decides, and what they should give."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa

import outpace as op
from outpace.hosts.graph.graph import Graph
from outpace.hosts.graph.links import Secret
from outpace.hosts.graph.member import Member
from outpace.hosts.graph.metrics import GraphMetrics
from outpace.ingest.source import Source
from outpace.pattern.node import Node
from outpace.pattern.query import Query
from outpace.pattern.windows import WindowSpec

#: So many events come at a time, after so many seconds.
BATCH = 40
PAUSE_S = 0.004

WINDOWS: dict[str, WindowSpec] = {
    "count": op.windows.count(30, slide=11),
    "time": op.windows.time(40, slide=15),
    "predicate": op.windows.between("v < 8", "v > 92"),
}


@dataclass(frozen=True)
class PacedRows(Source):
    """The rows of a table, a few at a time; `before` is called with the number of each batch."""

    rows: pa.Table = field(default_factory=lambda: pa.table({}))
    before: Callable[[int], None] = field(default=lambda number: None)

    def batches(self, rows: int = BATCH) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(self.rows.to_batches(max_chunksize=min(rows, BATCH))):
            self.before(number)
            time.sleep(PAUSE_S)
            yield batch


class Dying(op.Operator):
    """An operator of a user that ends its process."""

    output = pa.schema({"at": pa.int64()})

    def process(self, events: pa.Table) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def start_late(
    seconds: float, monitor: str, secret: Secret, number: int, parent: Connection
) -> None:
    """Be a process of a graph that takes long to start."""
    time.sleep(seconds)
    member = Member("late", monitor, secret, number, parent)
    member.done()
    while not member.stopped:
        member.wait([], 0.05)
        if member.due:
            member.beat({})
    member.leave({})


def letters(count: int, seed: int) -> pa.Table:
    """Events of eight kinds, with a key and a value."""
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": np.cumsum(draw.integers(0, 3, count)),
            "k": pa.array(draw.choice(list("abcdefgh"), count)),
            "key": draw.integers(0, 3, count),
            "v": draw.integers(0, 100, count),
        }
    )


def pairs(first: str, second: str, windows: WindowSpec | None, *, keyed: bool = False) -> Query:
    """Two kinds of events behind each other."""
    query = op.Query(f"{first}{second}").order_by("ts").pattern("A -> B" if windows else "A B")
    query = query.define(A=f"k = '{first}'", B=f"k = '{second}'")
    query = query.measures(at="B.ts", begin="A.ts", v="B.v")
    query = query.partition_by("key") if keyed else query
    return query if windows is None else query.over(windows, duplicates=True)


def values(windows: WindowSpec | None) -> Query:
    """A small value, later a large one, among the matches of `pairs` and of itself."""
    query = op.Query("values").order_by("at").pattern("A -> B" if windows else "A B")
    query = query.define(A="v < 50", B="v >= 50").measures(at="B.at", begin="A.begin", v="A.v")
    return query if windows is None else query.over(windows, duplicates=True)


def chain(windows: WindowSpec | None, *, keyed: bool = False) -> dict[str, Query | Node]:
    """Three operators behind each other."""
    last = op.Query("last").order_by("at").pattern("A B").define(B="B.v <> A.v")
    return {
        "one": pairs("a", "b", windows, keyed=keyed),
        "two": values(windows).of("one"),
        "three": last.measures(at="B.at", v="B.v", before="A.v").of("two"),
    }


def diamond(windows: WindowSpec) -> dict[str, Query | Node]:
    """Two operators that read one source, and one that reads both."""
    return {
        "left": pairs("a", "b", windows).of("events"),
        "right": pairs("c", "d", windows).of("events"),
        "join": values(windows).of("right", "left"),
    }


def expected(source: pa.Table, operators: Mapping[str, Query | Node]) -> dict[str, pa.Table]:
    """What each operator gives, one after the other, without any process."""
    known = {"events": source}
    for name, one in operators.items():
        node = one if isinstance(one, Node) else Node(one)
        inputs = [known[given] for given in sorted(node.inputs or ("events",))]
        stream = op.open(node.query)
        rows = inputs[0]
        if len(inputs) > 1:
            time_column = node.query.order[0].column
            times = np.concatenate([np.array(table[time_column]) for table in inputs])
            numbers = np.concatenate([np.arange(table.num_rows) for table in inputs])
            whose = np.repeat(range(len(inputs)), [table.num_rows for table in inputs])
            shared = [
                one for one in rows.column_names if all(one in t.column_names for t in inputs)
            ]
            rows = pa.concat_tables([table.select(shared) for table in inputs])
            rows = rows.take(np.lexsort((whose, numbers, times)))
        known[name] = pa.concat_tables([stream.push(rows), stream.finish()])
    return known


@dataclass
class KilledRun:
    """What came of a run whose processes were killed."""

    found: dict[str, pa.Table]
    killed: list[str]
    metrics: GraphMetrics


def run_with_kills(
    rows: pa.Table,
    operators: Mapping[str, Query | Node],
    kills: Mapping[int, tuple[str, ...]],
    *,
    sinks: Mapping[str, Path] | None = None,
    sign: int = signal.SIGKILL,
    patience_s: float = 20.0,
    wait: bool = True,
) -> KilledRun:
    """Run a graph, and kill the processes of some names before batches of some numbers come.

    Where the source waits, each is killed when it has given a savepoint, if only it does so.
    """
    killed: list[str] = []
    gone = {0}
    runs: list[op.GraphRun] = []

    def kill(number: int) -> None:
        names = kills.get(number, ())
        if names and (wait or not killed):
            _await(lambda: all(_goes_on(runs[0], name) for name in names))
        before = runs[0].processes if names else {}
        for name in names:
            # One that was killed and not yet noticed is no other one.
            if (pid := before.get(name, 0)) not in gone:
                with suppress(ProcessLookupError):
                    os.kill(pid, sign)
                    killed.append(name)
                    gone.add(pid)
        if names and wait and sign == signal.SIGKILL:
            _await(lambda: all(runs[0].processes.get(name) != before.get(name) for name in names))

    source = PacedRows("events", rows=rows, before=kill)
    graph: Graph = op.graph(source, operators, sinks, patience_s=patience_s)
    with graph.run() as run:
        runs.append(run)
        found = run.tables()
        return KilledRun(found, killed, run.metrics)


def _goes_on(run: op.GraphRun, name: str) -> bool:
    """Say whether a process has taken something, and an operator has given a savepoint."""
    known = run.metrics.operators.get(name)
    if known is None or name not in run.processes:
        return False
    return known.saves > 0 or (name.startswith("sink of") and known.events > 0)


def _await(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 3.0
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)


def draw_kills(seed: int, names: list[str], batches: int, count: int) -> dict[int, tuple[str, ...]]:
    """Draw before which batches which processes are killed: one, or some together."""
    draw = random.Random(seed)
    moments = draw.sample(range(5, batches), min(count, batches - 5))
    return {
        at: tuple(draw.sample(names, draw.choice([1, 1, 2, len(names)]))) for at in sorted(moments)
    }
