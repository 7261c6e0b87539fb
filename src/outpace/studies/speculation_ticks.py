"""Real ticks with speculation: how much earlier matches come than with K-slack, and how many go.

For the file see `disorder_ticks`; here it has the column `name`, too. Time is that of the ticks, so
nothing depends on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from outpace.hosts.local.open import open_query
from outpace.pattern.bound import CONFIRMED, DIFF, MATCH
from outpace.pattern.disorder import Disorder, KSlack, Speculative
from outpace.pattern.query import Query
from outpace.studies.disorder_runs import pieces
from outpace.studies.disorder_stream import ARRIVED
from outpace.studies.disorder_ticks import read_ticks
from outpace.studies.report import Row
from outpace.studies.speculation_figures import TICKS

#: Steps of the clock, in microseconds.
_STEP: Final = 10_000
#: K, in milliseconds: with it no tick is late.
SLACK: Final = 890


@dataclass
class TickRun:
    """When matches came, in microseconds; those that stay.

    Parameters
    ----------
    came
        By what a match shows, when it came for the last time.
    given, retracted
        Matches that came, and that were taken back.
    """

    came: dict[tuple[Any, ...], int] = field(default_factory=dict)
    given: int = 0
    retracted: int = 0

    def take(self, found: pa.Table, now: int) -> None:
        """Take what came out at a time."""
        for row in found.to_pylist():
            diff = row.pop(DIFF, 1)
            for told in (MATCH, CONFIRMED):
                row.pop(told, None)
            match = tuple(row.values())
            if diff > 0:
                self.came[match] = now
                self.given += 1
            elif diff < 0:
                del self.came[match]
                self.retracted += 1


def run_ticks(stream: pa.Table, disorder: Disorder) -> TickRun:
    """Match rising prices of a stock on a clock that the ticks move."""
    query = Query("rise").order_by("ts").partition_by("name").pattern("A B")
    query = query.define(B="price > A.price").skip_to_next_row()
    query = query.measures(first="A.seq", second="B.seq")
    matches, run, now = open_query(query.disorder(disorder)), TickRun(), 0
    for now, _, rows in pieces([stream], ARRIVED, _STEP):
        run.take(matches.push(rows), now)
    run.take(matches.finish(), now)
    return run


def ticks(path: Path, alphas: Sequence[float], most: int | None = None) -> Iterator[Row]:
    """Compare speculation with K-slack on ticks, at most so many from a third of the file on.

    At the beginning of a day there are few, and each waits for the next.
    """
    stream = read_ticks(path, also=("name",))
    if most is not None and most < stream.num_rows:
        stream = stream.slice(min(stream.num_rows // 3, stream.num_rows - most), most)
    name, usual = TICKS.name, run_ticks(stream, KSlack(SLACK))
    yield Row(name, "ticks", stream.num_rows, "events")
    yield Row(name, "matches", len(usual.came), "matches")
    for alpha in alphas:
        run = run_ticks(stream, Speculative(SLACK, alpha=alpha))
        words = f"alpha {alpha:g}"
        yield Row(
            name, f"{words}: others in the end", len(usual.came.keys() ^ run.came.keys()), "matches"
        )
        both = usual.came.keys() & run.came.keys()
        earlier = np.array([usual.came[match] - run.came[match] for match in both]) / 1000
        if len(earlier):
            mean, median = float(earlier.mean()), float(np.median(earlier))
            yield Row(name, f"{words}: earlier, on average", mean, "ms", None, "on average", alpha)
            yield Row(name, f"{words}: earlier, median", median, "ms", None, "median", alpha)
        share = 100 * run.retracted / max(1, run.given)
        yield Row(name, f"{words}: taken back", run.retracted, "matches")
        yield Row(name, f"{words}: taken back, of those that came", share, "%")
