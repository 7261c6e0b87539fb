"""What the demo looks for, and the search itself.

Three patterns over trades: a dip within each symbol (strict), large trades that wander through
three symbols (next), and the ways through four symbols (any), counted without listing them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

import outpace as op
from outpace.testing.ticks import generate_ticks

#: A trade of so many shares is a large one.
LARGE: Final = 10_000

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
    .within("5 minutes")
)

CHAINS: Final = (
    op.Query("chains")
    .order_by("ts")
    .pattern("A ->> B ->> C ->> D")
    .define(
        A="symbol = 'ACME' AND volume >= 1500",
        B="symbol = 'BOLT' AND volume >= 1500",
        C="symbol = 'CORE' AND volume >= 1500",
        D="symbol = 'DUNE' AND volume >= 1500",
    )
    .measures(starts="A.ts", ends="D.ts")
    .within("30 minutes")
)


@dataclass(frozen=True)
class Findings:
    """The input, the matches of two queries, the number of matches of the third, and how one runs.

    `plan` explains the dip query as text, `picture` shows its automaton as SVG.
    """

    ticks: pa.Table
    dips: pa.Table
    rotations: pa.Table
    chains: int
    plan: str
    picture: str


#: Called with the name of a part of the search before it runs.
Announce = Callable[[str], None]

STAGES: Final = 5


def find(rows: int, announce: Announce) -> Findings:
    """Search generated trades; `announce` is called `STAGES` times."""
    announce("generate trades")
    ticks = generate_ticks(rows)
    announce("find dips")
    dips = op.match(ticks, DIP)
    announce("find rotations")
    rotations = op.match(ticks, ROTATION)
    announce("count chains")
    chains = op.search(ticks, CHAINS).count()
    announce("explain")
    explanation = op.explain(DIP, ticks.schema)
    return Findings(ticks, dips, rotations, chains, explanation.text, explanation.svg)


def deepest(dips: pa.Table, count: int) -> pa.Table:
    """Return the dips that fell by the largest share of their top, deepest first."""
    fall = pc.divide(pc.subtract(dips["top"], dips["bottom"]), dips["top"])
    order = pc.sort_indices(fall, sort_keys=[("", "descending")])
    return dips.take(order.slice(0, count))
