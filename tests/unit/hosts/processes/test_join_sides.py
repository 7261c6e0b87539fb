"""Joins that run over sources: the rows of the table join, in its order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.joins import LEFT, RIGHT, Rows, joined, some_rows
from support.properties import examples

import outpace as op
from outpace.ingest import ClockSync

STREAMED: dict[str, Any] = {"on": "id", "time": "ts"}


@dataclass(frozen=True)
class Listed(op.sources.Source):
    """Rows as they come, each list a batch, with what a source promises between them."""

    items: tuple[Any, ...]

    def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
        return (one for one in self.arrivals(rows) if isinstance(one, pa.RecordBatch))

    def arrivals(self, rows: int = 100) -> Iterator[pa.RecordBatch | op.sources.Heartbeat]:
        return iter(self.items)


def source(rows: Rows, schema: pa.Schema, size: int = 3, promises: bool = False) -> Listed:
    items: list[Any] = [pa.RecordBatch.from_pylist([], schema)]
    for begin in range(0, len(rows), size):
        if promises:
            items.append(op.sources.Heartbeat(min(row["ts"] for row in rows[begin:])))
        items.append(pa.RecordBatch.from_pylist(rows[begin : begin + size], schema))
    return Listed("rows", tuple(items))


def ran(join: op.Join, sides: Sequence[op.sources.Source], **settings: Any) -> Rows:
    with op.run(join, list(sides), **settings) as run:
        return [row for table in run for row in table.to_pylist()]


@examples(4)
@given(
    st.integers(0, 2**20),
    st.tuples(st.integers(0, 14), st.integers(0, 14)),
    st.integers(0, 12),
    st.sampled_from(["inner", "left"]),
    st.booleans(),
)
def test_a_join_of_sources_gives_what_nested_loops_give(seed, sizes, within, how, disordered):
    rng = np.random.default_rng(seed)
    sides = [some_rows(seed, size, side) for side, size in enumerate(sizes)]
    disorder = None
    if disordered:
        disorder = op.KSlack(6)
        for rows in sides:
            came = np.argsort([row["ts"] + rng.uniform(0, 6) for row in rows])
            rows[:] = [rows[place] for place in came]
    join = op.Join(**STREAMED, within=within, how=how, disorder=disorder)
    sources = [
        source(rows, schema, int(rng.integers(1, 6)), bool(rng.integers(0, 2)))
        for rows, schema in zip(sides, (LEFT, RIGHT), strict=True)
    ]
    ordered = [sorted(rows, key=lambda row: row["ts"]) for rows in sides]
    assert ran(join, sources) == joined(*ordered, within, how)


def test_late_and_invalid_rows_are_told_and_counted_by_side():
    left = [{"id": 1, "ts": time, "v": 0, "a": "x"} for time in (5, 9, 2)]
    right = [{"id": 1, "ts": time, "v": 0} for time in (6, None)]
    aside = []

    def told(why: str, rows: pa.Table) -> None:
        aside.append((why, rows["source"].to_pylist(), rows["ts"].to_pylist()))

    join = op.Join(**STREAMED, within=2, disorder=op.KSlack(1, invalid="quarantine"))
    sources = [source(left, LEFT, 1), source(right, RIGHT, 1)]
    with op.run(join, sources, aside=told) as run:
        found = [row["ts"] for table in run for row in table.to_pylist()]
    assert found == [6]
    assert sorted(aside) == [("invalid", ["right"], [None]), ("late", ["left"], [2])]
    assert run.metrics.sources["left"].late == run.metrics.sources["right"].invalid == 1


@pytest.mark.parametrize(
    ("sides", "settings", "message"),
    [
        (1, {}, "a join has two sources"),
        (3, {}, "a join has two sources"),
        (2, {"time": "v"}, "ordered by their time"),
        (2, {"on": "b"}, "unknown column 'b'"),
        (2, {"clocks": True}, "clocks are compared"),
    ],
)
def test_what_does_not_run_is_refused(sides, settings, message):
    asked = {**STREAMED, "within": 1, **settings}
    clocked = asked.pop("clocks", False)
    given = [source([], LEFT), source([], RIGHT), source([], RIGHT)][:sides]
    with ClockSync(port=0) as sync, pytest.raises(op.OutpaceError, match=message):
        ran(op.Join(**asked), given, clocks=sync if clocked else None)


def test_a_side_that_never_tells_its_columns_is_an_error_and_two_are_nothing():
    silent, spoken = Listed("rows", ()), source([], LEFT)
    join = op.Join(**STREAMED, within=1)
    assert ran(join, [silent, silent]) == []
    with pytest.raises(op.DataError, match="right side has ended without events"):
        ran(join, [spoken, silent])
