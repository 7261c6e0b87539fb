"""Windows of more keys than a step touches: the matches of a whole table, however it is cut."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from support.operators import FedOperator, match_windows

from outpace.engine.state import State
from outpace.engine.window_match.by_key import MANY_MIN, WindowsByKey
from outpace.engine.window_match.matcher import WindowMatcher
from outpace.pattern.query import Query
from outpace.pattern.windows import CountWindows, TimeWindows
from outpace.windows import session

KEYS = 2 * MANY_MIN


def events() -> pa.Table:
    """Return a stream in which all keys come by, then few often, then all at once again."""
    random = np.random.default_rng(7)
    key = np.concatenate([np.arange(KEYS), random.integers(0, 20, 600), np.arange(KEYS)])
    times = np.concatenate([np.arange(KEYS) // 8, 64 + np.arange(600) // 8, np.full(KEYS, 139)])
    return pa.table(
        {
            "ts": times,
            "id": np.arange(len(key)),
            "kind": random.choice(list("aabbc"), len(key)),
            "key": key,
        }
    )


BASE = (
    Query("q")
    .partition_by("key")
    .order_by("ts")
    .pattern("A -> B")
    .define(A="kind = 'a'", B="kind = 'b'")
    .measures(first="FIRST(id)", last="LAST(id)")
)
QUERIES = {
    "searches are shared": (BASE, True, "shared"),
    "first starts differ": (BASE.measures(p="PREV(A.id)"), True, "shared"),
    "matches are shared": (BASE.select("all"), True, "covered"),
    "one by one": (BASE.measures(m="MATCH_NUMBER()"), False, "separate"),
}
WINDOWS = {
    "time": TimeWindows(70, 20),
    "count": CountWindows(6, 2),
    "session": session(40),
}


def operator_of(query: Query, schema: pa.Schema, *, shared: bool) -> FedOperator:
    operator = FedOperator(query, schema)
    task = operator.operator.spec.task
    assert task is not None
    operator.operator.instance._matcher = WindowMatcher(task, shared=shared)
    return operator


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("name", QUERIES)
def test_few_of_many_keys_at_a_time_give_the_matches_of_the_table(
    name: str, windows: str, duplicates: bool
) -> None:
    query, shared, kind = QUERIES[name]
    query = query.over(WINDOWS[windows], duplicates=duplicates, numbered=True)
    table = events()
    operator = operator_of(query, table.schema, shared=shared)
    found, aside = [], set()
    for begin in range(0, table.num_rows, 60):
        found.append(operator.push(table.slice(begin, 60)).matches)
        strategy = operator.operator.instance._matcher._strategy
        assert isinstance(strategy, WindowsByKey)
        assert operator.operator.instance._matcher._kind == kind
        aside.add(strategy._aside is not None)
        assert strategy.open_windows == operator.operator.front.counters().open_windows
        assert strategy.begun_at >= 0
        if begin % 240 == 180:
            saved = State.decode(operator.state())
            operator = operator_of(query, table.schema, shared=shared)
            front = operator.operator.front
            front.restore(saved.part("front"))
            matcher = operator.operator.instance._matcher
            matcher.restore(saved.part("instance"), front.opened(), front.taken)
    found.append(operator.finish().matches)
    assert aside == {False, True}
    assert pa.concat_tables(found).to_pylist() == match_windows(query, table).to_pylist()


def test_windows_that_get_other_slots_are_searched_where_they_are() -> None:
    table = events()
    query = QUERIES["first starts differ"][0].over(WINDOWS["time"], numbered=True)
    found = []
    for size in (table.num_rows, 60):
        operator = operator_of(query, table.schema, shared=True)
        parts = [operator.push(table.slice(at, size)) for at in range(0, table.num_rows, size)]
        found.append(
            [row for one in (*parts, operator.finish()) for row in one.matches.to_pylist()]
        )
    assert found[0] == found[1]


def test_where_the_oldest_window_began_is_known_when_it_lies_aside() -> None:
    table = events()
    query = BASE.over(TimeWindows(70, 70))
    operator = operator_of(query, table.schema, shared=False)
    for begin in range(0, KEYS, 60):
        operator.push(table.slice(begin, min(60, KEYS - begin)))
    assert operator.operator.instance._matcher._strategy._aside is not None
    assert operator.operator.instance._matcher.horizon == 0
    operator.push(table.slice(KEYS, 600))
    operator.advance(140)
    assert operator.operator.instance._matcher.horizon == KEYS + 600


@pytest.mark.parametrize("name", ["searches are shared", "first starts differ", "one by one"])
def test_undecided_starts_and_keys_with_open_windows_are_counted(name: str) -> None:
    query, shared, _ = QUERIES[name]
    size, slide = 6, 2
    table = events()
    operator = operator_of(query.over(CountWindows(size, slide)), table.schema, shared=shared)
    aside = set()
    own: dict[int, list[tuple[int, str]]] = {}
    for begin in range(0, table.num_rows, 60):
        rows = table.slice(begin, 60)
        operator.push(rows)
        aside.add(operator.operator.instance._matcher._strategy._aside is not None)
        for row in rows.to_pylist():
            own.setdefault(row["key"], []).append((row["id"], row["kind"]))
        starts, keys = set(), 0
        for seen in own.values():
            opened = range(0, len(seen), slide)
            windows = [seen[first:] for first in opened if first + size > len(seen)]
            starts.update(*map(waiting_starts, windows))
            keys += bool(windows)
        assert operator.starts_kept() == len(starts)
        assert operator.partitions_kept == keys
    assert aside == {False, True}


def waiting_starts(window: list[tuple[int, str]]) -> list[int]:
    """Return the events of a window that a match may start with that is not found yet."""
    ends = [place for place, (_, kind) in enumerate(window) if kind == "b"]
    past = 0
    for end in ends:
        if any(kind == "a" for _, kind in window[past:end]):
            past = end + 1
    return [number for number, kind in window[past:] if kind == "a"]
