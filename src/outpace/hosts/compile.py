"""Compiling ahead: every kernel, when the library is set up.

`python -m outpace.hosts.compile` compiles every kernel once and leaves it in Numba's cache on
disk, which takes a minute or two. After that no query waits for it. The compiler has one thread, so
parts that share few kernels are compiled in processes beside each other.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Final

import pyarrow as pa

from outpace import simulate
from outpace.engine.codec.block import narrow_rows
from outpace.engine.divide.assign import windows_of
from outpace.engine.order.source_merge import SourceMerge
from outpace.hosts.local.join import join_data
from outpace.hosts.local.open import open_query
from outpace.hosts.local.table import match, search
from outpace.ingest.generators import simple_events, stock_events
from outpace.ingest.source import merged
from outpace.ingest.workloads import WORKLOADS, events
from outpace.pattern.disorder import MPKSlack, Sequence, Speculative
from outpace.pattern.group import group
from outpace.pattern.join import Join
from outpace.pattern.notation.parse_expression import parse_expression
from outpace.pattern.query import Query
from outpace.pattern.windows import (
    CountWindows,
    LandmarkWindows,
    SessionWindows,
    TimeWindows,
    WindowSpec,
)

#: Enough rows that the matcher compiles rather than leaving them to the twin.
_ROWS = 200_000


def compile_kernels() -> None:
    """Compile the kernels for both widths of masks that queries need."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        for done in [processes.submit(compile_part) for compile_part in _PARTS]:
            done.result()


def _match() -> None:
    """Match whole tables and windows of events."""
    table = events(_ROWS)
    for query in (*(make() for make in WORKLOADS.values()), *_wide_queries()):
        match(table, query)
    for query in (*(WORKLOADS[name]() for name in ("w1", "w1k", "w4s")), *_wide_queries()):
        for size in (1000, 50):
            match(table, query.over(CountWindows(size, 50)))


def _match_all() -> None:
    """Find all matches, and count them; the twin answers as long as nothing is compiled."""
    *pairs, uncertain = _all_queries()
    for query in pairs:
        match(events(5000), query)
        search(events(5000), query).count()
    match(events(_ROWS), uncertain)


def _order_and_split() -> None:
    """Merge and reorder events, and split them into windows."""
    table = events(_ROWS)
    for windows in _windows():
        for query in (Query(), Query().partition_by("type")):
            windows_of(query.order_by("ts").over(windows), table)
    _merge_sources(table)
    _reorder(table)
    join_data(table, table, Join(on="type", within=0, time="ts", how="left"))


def _reorder(table: pa.Table) -> None:
    """Bring events into order by delays, and by numbers, and correct what came too early."""
    table = table.append_column("seq", pa.array(range(table.num_rows)))
    query = Query().order_by("ts").pattern("A").define(A="ts < 0")
    for disorder in (MPKSlack(), Sequence("1 s")):
        open_query(query.disorder(disorder)).push(table)
    alike = [query.define(A=f"type = {number}").disorder(MPKSlack()) for number in range(2)]
    open_query(group(*(replace(one, name=f"{n}") for n, one in enumerate(alike)))).push(table)
    late = _ROWS // 100
    stream = open_query(query.define(A="type = 0").disorder(Speculative(_ROWS, alpha=0)))
    for piece in (table.slice(late), table.slice(0, late)):
        stream.push(piece)


def _merge_sources(table: pa.Table) -> None:
    """Merge events whose times are spread, crowd, or have no numbers; narrow some."""
    for rate in (1_000, 1_000_000_000):
        sources = [simple_events(_ROWS, seed=n, rate=rate, id=str(n)) for n in range(3)]
        for _ in merged(sources):
            pass
    SourceMerge(["counted"]).push("counted", table)
    stocks = stock_events(_ROWS).table().combine_chunks()
    narrow_rows({name: stocks[name].chunk(0) for name in stocks.column_names})


def _simulate() -> None:
    """Simulate two vertices for a second."""
    vertices = (simulate.Producer("in", simulate.Uniform(10)), simulate.Consumer("out"))
    query = simulate.QueryModel("q", vertices, (simulate.Edge("in", "out"),))
    scenario = simulate.Scenario((query,), (simulate.VM("worker", mips=1),), duration=1)
    simulate.simulate(scenario, engine="fast")


def _all_queries() -> list[Query]:
    pairs = (
        Query("pairs")
        .order_by("ts")
        .pattern("A ->> B")
        .within(10)
        .define(A="type = 0", B="type = 1")
        .measures(at="B.ts")
    )
    return [pairs, pairs.skip_past_last_row(), pairs.uncertain(1)]


def _windows() -> list[WindowSpec]:
    at = parse_expression("type = 0")
    return [CountWindows(1000, 500), TimeWindows(1000, 500), SessionWindows(1), LandmarkWindows(at)]


def _wide_queries() -> list[Query]:
    names = "ABCDEFGHI"
    return [
        Query(f"wide {link}")
        .order_by("ts")
        .pattern(pattern)
        .define({name: f"type = {number}" for number, name in enumerate(names)})
        .measures(n="COUNT(*)")
        .within(1000)
        for link, pattern in (
            ("strict", " ".join(names)),
            ("next", " -> ".join(names)),
            ("mixed", " -> ".join(names) + "?"),
        )
    ]


#: What takes longest comes first.
_PARTS: Final[tuple[Callable[[], None], ...]] = (_simulate, _match, _match_all, _order_and_split)

if __name__ == "__main__":
    compile_kernels()
