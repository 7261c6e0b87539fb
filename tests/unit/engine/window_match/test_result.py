"""Matches as values: what is said of them stays said where they are joined and chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

import outpace as op
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.whole import match_whole
from outpace.engine.window_match.result import WindowMatches


def found(times: list[int]) -> WindowMatches:
    query = op.Query("q").order_by("ts").pattern("A").define(A="ts > 0").measures(at="A.ts")
    rows = pa.table({"ts": pa.array(times, pa.int64())})
    return match_whole(OperatorSpec(query, rows.schema), rows)


def test_whether_matches_are_taken_back_is_kept() -> None:
    one, two = (replace(_plain(found(times)), diff=-1, confirmed=False) for times in ([1], [2, 3]))
    joined = WindowMatches.joined(one.table.schema, [one, two])
    assert (joined.diff, joined.confirmed) == (-1, False)
    chosen = joined.take(np.array([2, 0]))
    assert (chosen.diff, chosen.confirmed) == (-1, False)
    assert chosen.table["at"].to_pylist() == [3, 1]


def test_of_matches_that_come_and_go_the_rows_tell_which() -> None:
    one = _plain(found([1]))
    gone, none = replace(one, diff=-1), WindowMatches.none(one.table.schema)
    assert WindowMatches.joined(one.table.schema, [one, gone]).diff == 0
    assert WindowMatches.joined(one.table.schema, [none, gone]).diff == -1
    assert WindowMatches.joined(one.table.schema, [none, none]).diff == 1


def _plain(matches: WindowMatches) -> WindowMatches:
    """Return matches of which all is made."""
    return WindowMatches(
        matches.table,
        matches.offsets,
        matches.event,
        matches.phase,
        matches.window,
        matches.partition,
        lambda: matches.ids,
    )
