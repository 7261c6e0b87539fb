"""Keys that have no open window are forgotten, and nothing that comes out tells it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operators import FedOperator, match_windows
from support.window_queries import KINDS, PATTERNS, tables

from outpace.pattern.query import Query
from outpace.pattern.windows import TimeWindows, WindowSpec
from outpace.windows import landmark, session

#: A predicate that cannot be saved is left out; the first event of a key may be a landmark alone.
WINDOWS = [*(windows for name, windows in KINDS.items() if name != "predicate"), landmark()]


@st.composite
def changing_keys(draw: st.DrawFn) -> pa.Table:
    """Return a stream in which other keys come as time passes."""
    table = draw(tables())
    keys = table["ts"].to_numpy() // draw(st.integers(3, 9)) * 2 + table["key"].to_numpy()
    return table.set_column(3, "key", pa.array(keys))


def saved(operator: FedOperator, query: Query, schema: pa.Schema) -> FedOperator:
    """Return an operator that goes on from a saved state."""
    fresh = FedOperator(query, schema, forgets=True)
    fresh.restore(operator.state())
    return fresh


@given(data=st.data())
def test_each_step_gives_the_same_matches(data: st.DataObject) -> None:
    windows = data.draw(st.sampled_from(WINDOWS))
    query = data.draw(st.sampled_from(list(PATTERNS.values()))).partition_by("key")
    query = query.over(windows, duplicates=data.draw(st.booleans()))
    table = data.draw(changing_keys())
    forgets = FedOperator(query, table.schema, forgets=True)
    keeps = FedOperator(query, table.schema)
    rest = table
    while rest.num_rows:
        size = data.draw(st.integers(1, rest.num_rows))
        rows, rest = rest.slice(0, size), rest.slice(size)
        time = rows["ts"][-1].as_py()
        assert_same(forgets.push(rows).matches, keeps.push(rows).matches)
        assert_same(forgets.advance(time).matches, keeps.advance(time).matches)
        if data.draw(st.booleans()):
            forgets = saved(forgets, query, table.schema)
    assert_same(forgets.finish().matches, keeps.finish().matches)


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Compare matches that may come in any order."""
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


@pytest.mark.parametrize("windows", [session(3), TimeWindows(8, 2), TimeWindows(3, 9)])
def test_the_state_is_that_of_the_keys_that_live(windows: WindowSpec) -> None:
    query = PATTERNS["next"].partition_by("key").over(windows)
    schema = pa.schema(
        [("ts", pa.int64()), ("id", pa.int64()), ("kind", pa.string()), ("key", pa.int64())]
    )
    operator = FedOperator(query, schema, forgets=True)
    sizes = []
    for batch in range(40):
        keys = np.arange(batch * 20, batch * 20 + 20)
        rows = {"ts": np.full(20, batch * 10), "id": keys, "kind": ["a"] * 20, "key": keys}
        operator.push(pa.table(rows, schema=schema))
        operator.advance(batch * 10 + 8)
        sizes.append(len(operator.state()))
    # Numbers that grow may take a byte more each; keys that were forgotten would take far more.
    assert max(sizes[20:]) <= 1.1 * max(sizes[:20])


def test_sessions_let_go_of_the_rows_that_prev_reads() -> None:
    query = Query().partition_by("key").order_by("ts").pattern("UP").define(UP="v > PREV(v)")
    times = np.arange(400)
    table = pa.table({"ts": times, "key": times // 10, "v": times % 7})
    sessions = query.over(session(50))
    stream = FedOperator(sessions, table.schema, forgets=True)
    found = [stream.push(table.slice(row, 20)).matches for row in range(0, 400, 20)]
    assert (stream.rows_kept, stream.partitions_kept) == (5, 5)
    found.append(stream.finish().matches)
    assert_same(pa.concat_tables(found), match_windows(sessions, table))
    # Without them, as many rows are kept as there have been keys.
    kept = FedOperator(query, table.schema)
    kept.push(table)
    assert kept.rows_kept == 40
