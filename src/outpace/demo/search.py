"""What the demo looks for, and where: in process or on Spark, with the same findings.

Three patterns over trades: a dip within each symbol (strict, divided by key), large trades that
wander through three symbols (next, divided by time range), and a statement in SQL that counts the
sell-offs which follow a large trade.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

import outpace as op
from outpace.explanation.explain import Explanation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A trade of so many shares is a large one.
LARGE: Final = 100_000

DIP: Final = (
    op.Query("dip")
    .partition_by("symbol")
    .order_by("ts")
    .pattern("STRT DOWN+ UP+")
    .define(DOWN="price < PREV(price)", UP="price > PREV(price)")
    .measures(
        starts="STRT.ts",
        bottom_at="LAST(DOWN.ts)",
        ends="LAST(UP.ts)",
        top="STRT.price",
        bottom="LAST(DOWN.price)",
        recovered="LAST(UP.price)",
        ticks="COUNT(*)",
    )
    .within("1 hour")
)

ROTATION: Final = (
    op.Query("rotation")
    .order_by("ts")
    .pattern("A -> B -> C")
    .define(
        A=f"volume >= {LARGE}",
        B=f"volume >= {LARGE} AND symbol <> A.symbol",
        C=f"volume >= {LARGE} AND symbol <> A.symbol AND symbol <> B.symbol",
    )
    .measures(
        starts="A.ts",
        second_at="B.ts",
        ends="C.ts",
        first="A.symbol",
        second="B.symbol",
        third="C.symbol",
        shares="SUM(volume)",
    )
    .within("2 minutes")
)

SELL_OFFS: Final = f"""\
SELECT symbol, count(*) AS sell_offs, max(fall) AS deepest_fall, max(trades) AS longest
FROM ticks MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY ts
    MEASURES BIG.price - LAST(DOWN.price) AS fall, COUNT(DOWN.ts) AS trades
    PATTERN (BIG DOWN{{2,}})
    DEFINE BIG AS volume >= {LARGE}, DOWN AS price < PREV(price)
)
GROUP BY symbol
ORDER BY symbol
"""


@dataclass(frozen=True)
class DemoHost:
    """Where the trades are, and how to ask there.

    Parameters
    ----------
    name
        Where that is, in words.
    match, sql
        Find the matches of a query, or answer a statement over `ticks`.
    explain
        Says how a query runs there.
    watch
        Shows a part of the search, by its name, while it runs.
    """

    name: str
    match: Callable[[op.Query], pa.Table]
    sql: Callable[[str], pa.Table]
    explain: Callable[[op.Query], Explanation]
    watch: Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True)
class Findings:
    """The input, what the three patterns found, and how the queries run.

    `plan` explains the queries as text, `picture` shows the automaton of the dip query as SVG.
    """

    host: str
    ticks: pa.Table
    dips: pa.Table
    rotations: pa.Table
    sell_offs: pa.Table
    plan: str
    picture: str


def local_host(ticks: pa.Table, watch: Callable[[str], AbstractContextManager[object]]) -> DemoHost:
    """Return the host that searches in this process, with DuckDB around patterns in SQL."""
    import duckdb

    connection = duckdb.connect()
    connection.register("ticks", ticks)
    return DemoHost(
        name="in process",
        match=lambda query: op.match(ticks, query),
        sql=lambda text: op.sql(connection, text),
        explain=lambda query: op.explain(query, ticks),
        watch=watch,
    )


def spark_host(
    session: SparkSession, path: Path, watch: Callable[[str], AbstractContextManager[object]]
) -> DemoHost:
    """Return the host that searches a Parquet file on Spark.

    Spark's tasks read the file for the queries; the statement reads it as a view of the session.
    """
    files = op.parquet(path)
    session.read.parquet(str(path)).createOrReplaceTempView("ticks")
    return DemoHost(
        name=f"on Spark {session.version}",
        match=lambda query: op.match(files, query).toArrow(),
        sql=lambda text: op.sql(session, text).toArrow(),
        explain=lambda query: op.explain(query, files),
        watch=watch,
    )


def find(ticks: pa.Table, host: DemoHost) -> Findings:
    """Search trades on a host that has them."""
    with host.watch("find dips"):
        dips = host.match(DIP)
    with host.watch("find rotations"):
        rotations = host.match(ROTATION).sort_by("starts")
    with host.watch("count sell-offs"):
        sell_offs = host.sql(SELL_OFFS)
    explanation = host.explain(DIP)
    lines = [explanation.text]
    elsewhere = host.explain(ROTATION).placement
    if elsewhere:
        lines += ["", f"query {ROTATION.name}: {ROTATION.to_text()}", *elsewhere]
    return Findings(host.name, ticks, dips, rotations, sell_offs, "\n".join(lines), explanation.svg)


def deepest(dips: pa.Table, count: int) -> pa.Table:
    """Return the dips that fell by the largest share of their top, deepest first."""
    fall = pc.divide(pc.subtract(dips["top"], dips["bottom"]), dips["top"])
    ranked = dips.append_column("fall", fall)
    order = [("fall", "descending"), ("starts", "ascending"), ("symbol", "ascending")]
    return ranked.sort_by(order).slice(0, count).drop_columns("fall")
