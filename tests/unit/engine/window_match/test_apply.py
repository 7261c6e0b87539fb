"""User-defined operators in windows: each sees its window and nothing else, however rows come."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operators import written

import outpace as op
from outpace.engine.event import Events
from outpace.engine.split.choose import make_splitter
from outpace.engine.split.number import EventNumbers
from outpace.engine.split.windows import Split, Windows
from outpace.engine.window_match.apply import WindowedApply
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import DataError, StateError, UnsupportedError
from outpace.pattern import windows as w
from outpace.pattern.bind.windows import bind_windows
from outpace.testing.windows import windows_by_definition

SCHEMA = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("x", pa.int64())])


class Total(op.Operator):
    """The sum of a window, told when it closes."""

    output = pa.schema([("total", pa.int64()), ("rows", pa.int64())])

    def __init__(self) -> None:
        self.total = self.rows = 0

    def process(self, events: pa.Table) -> None:
        assert events.num_rows
        self.total += int(events["x"].to_numpy().sum())
        self.rows += events.num_rows

    def close(self) -> Mapping[str, list[int]]:
        return {"total": [self.total], "rows": [self.rows]}

    def state(self) -> bytes:
        return json.dumps([self.total, self.rows]).encode()

    def restore(self, data: bytes) -> None:
        self.total, self.rows = json.loads(data)


class Records(op.EventOperator):
    """Events that are larger than all before them in the window, and the number of them last."""

    output = pa.schema([("total", pa.int64()), ("rows", pa.int64())])

    def __init__(self) -> None:
        self.best: int | None = None
        self.rows = 0

    def on_event(self, event: dict[str, object]) -> Iterable[Mapping[str, object]]:
        self.rows += 1
        value = event.pop("x")
        assert isinstance(value, int)
        if self.best is None or value > self.best:
            self.best = value
            yield {"total": value, "rows": self.rows}

    def close(self) -> Mapping[str, list[int]]:
        return {"total": [-1], "rows": [self.rows]}

    def state(self) -> bytes:
        return json.dumps([self.best, self.rows]).encode()

    def restore(self, data: bytes) -> None:
        self.best, self.rows = json.loads(data)


def by_definition(query: op.Query, events: Events) -> list[dict[str, object]]:
    """Run an operator on the rows of each window, event by event."""
    windows = bind_windows(query, SCHEMA)
    assert query.operator is not None
    keys = events.rows.column("key").to_pylist()
    found = []
    for window in windows_by_definition(windows, events):
        own = np.flatnonzero(events.partition == window.partition)[window.first : window.stop]
        operator = query.operator()
        given: list[tuple[int, int, dict[str, object]]] = []
        for row in own.tolist():
            result = operator.process(events.rows.slice(row, 1))
            if result is not None:
                given += [(row, 1, one) for one in result.to_pylist()]
        inside = window.closed_at == own[-1]
        given += [
            (window.closed_at, int(inside), one) for one in pa.table(operator.close()).to_pylist()
        ]
        key = {"key": keys[own[0]]} if windows.keyed else {}
        for place, (event, phase, row) in enumerate(given):
            order = (event, phase, window.number, window.partition, place)
            numbers = {"match_event": event, "window": window.number}
            found.append((order, {**key, **row, **numbers}))
    found.sort(key=lambda one: one[0])
    return [row for _, row in found]


def specs() -> st.SearchStrategy[w.Windows]:
    span = st.integers(1, 6)
    return st.one_of(
        st.builds(op.windows.count, span, span, st.integers(-5, 5)),
        st.builds(op.windows.time, span, span),
        st.builds(op.windows.session, span),
        st.just(op.windows.between("x > 5", "x < 3")),
        st.just(op.windows.landmark("x = 4")),
    )


@st.composite
def streams(draw: st.DrawFn) -> pa.Table:
    steps = draw(st.lists(st.sampled_from([0, 1, 1, 2, 9]), max_size=20))
    size = len(steps)
    values = draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
    keys = draw(st.lists(st.sampled_from("ab"), min_size=size, max_size=size))
    return pa.table({"key": keys, "ts": np.cumsum([0, *steps])[1:], "x": values}, schema=SCHEMA)


def query_of(spec: w.Windows, make: type[op.Operator], *, keyed: bool = False) -> op.Query:
    query = op.Query("applied").order_by("ts").apply(make).over(spec, numbered=True)
    return query.partition_by("key") if keyed else query


def numbered(query: op.Query, table: pa.Table) -> Events:
    time = bind_windows(query, SCHEMA).time
    return EventNumbers(SCHEMA, query.partitions, time).number(table)


def pieces(events: Events, cuts: Iterable[int]) -> Iterator[Events]:
    for low, high in pairwise([0, *cuts, len(events.arrival)]):
        yield Events(
            events.rows.slice(low, high - low),
            events.partition[low:high],
            events.ordinal[low:high],
            events.arrival[low:high],
            events.times[low:high],
        )


def shown(parts: list[WindowMatches]) -> list[dict[str, object]]:
    names = ("window_start", "window_end")
    rows = [row for part in parts for row in part.table.to_pylist()]
    return [{name: row[name] for name in row if name not in names} for row in rows]


@given(streams(), specs(), st.sampled_from([Total, Records]), st.booleans(), st.data())
def test_operators_give_the_same_in_any_cut(
    table: pa.Table,
    spec: w.Windows,
    make: type[op.Operator],
    keyed: bool,
    data: st.DataObject,
) -> None:
    query = query_of(spec, make, keyed=keyed)
    events = numbered(query, table)
    splitter = make_splitter(bind_windows(query, SCHEMA))
    applied = WindowedApply(query, SCHEMA)
    parts = []
    cuts = sorted(data.draw(st.lists(st.integers(0, table.num_rows), max_size=4), "cuts"))
    for piece in pieces(events, cuts):
        parts.append(applied.step(piece, splitter.push(piece)))
        assert applied.open_windows == splitter.open_windows
        if data.draw(st.booleans(), "save"):
            saved, applied = written(applied.state()), WindowedApply(query, SCHEMA)
            applied.restore(saved)
    rest = splitter.finish()
    nothing = next(pieces(events, [0]))
    parts.append(applied.step(nothing, rest, ended=True))
    assert shown(parts) == by_definition(query, events)
    assert {part.table.schema for part in parts} == {applied.bound.output}
    assert applied.open_windows == 0
    names = [name for part in parts for name in part.ids.array.to_pylist()]
    assert len(set(names)) == len(names)


def test_windows_that_overlap_see_slices_of_the_same_rows() -> None:
    seen: list[pa.Table] = []

    class Seen(Total):
        def process(self, events: pa.Table) -> None:
            seen.append(events)

    query = query_of(op.windows.count(3, 1), Seen)
    table = pa.table({"key": ["a"] * 4, "ts": range(4), "x": range(4)}, schema=SCHEMA)
    events = numbered(query, table)
    split = make_splitter(bind_windows(query, SCHEMA)).push(events)
    WindowedApply(query, SCHEMA).step(events, split)
    assert [part["x"].to_pylist() for part in seen] == [[0, 1, 2], [1, 2, 3], [2, 3], [3]]
    addresses = {part["x"].chunk(0).buffers()[1].address for part in seen}
    assert addresses == {table["x"].chunk(0).buffers()[1].address}


def test_tables_and_columns_may_take_turns() -> None:
    class Either(Total):
        def close(self) -> Mapping[str, list[int]] | pa.Table | None:
            columns = {"total": [self.total], "rows": [self.rows]}
            return [columns, pa.table(columns), None][self.total % 3]

    query = query_of(op.windows.count(1), Either)
    table = pa.table({"key": ["a"] * 6, "ts": range(6), "x": range(6)}, schema=SCHEMA)
    events = numbered(query, table)
    split = make_splitter(bind_windows(query, SCHEMA)).push(events)
    shown = WindowedApply(query, SCHEMA).step(events, split).table
    assert shown.column("total").to_pylist() == [0, 1, 3, 4]


def test_bounds_of_time_windows_are_shown() -> None:
    query = query_of(op.windows.time(10), Total, keyed=True)
    table = pa.table({"key": ["a", "b"], "ts": [3, 14], "x": [1, 2]}, schema=SCHEMA)
    events = numbered(query, table)
    splitter = make_splitter(bind_windows(query, SCHEMA))
    applied = WindowedApply(query, SCHEMA)
    first = applied.step(events, splitter.push(events)).table.to_pylist()
    row = {"key": "a", "total": 1, "rows": 1, "match_event": 1, "window": 0}
    assert first == [{**row, "window_start": 0, "window_end": 10}]
    assert applied.frontier == 2


@pytest.mark.parametrize(
    "rows",
    [
        {"sum": [1]},
        {"total": [1], "rows": [1, 2]},
        {"total": [1], "rows": [1], "more": [1, 2]},
        {"total": ["a"], "rows": [1]},
        {"total": [1.5], "rows": [1]},
        pa.table({"total": [1]}),
    ],
)
def test_what_does_not_fit_the_output_is_refused(rows: Mapping[str, list[int]]) -> None:
    class Wrong(Total):
        def close(self) -> Mapping[str, list[int]]:
            return rows

    query = query_of(op.windows.count(1), Wrong)
    events = numbered(query, pa.table({"key": ["a"], "ts": [0], "x": [0]}, schema=SCHEMA))
    split = make_splitter(bind_windows(query, SCHEMA)).push(events)
    with pytest.raises(DataError, match="operator applied returned rows that do not fit"):
        WindowedApply(query, SCHEMA).step(events, split)


def test_a_row_of_an_event_that_does_not_fit_is_refused() -> None:
    class Wrong(Records):
        def on_event(self, event: dict[str, object]) -> Iterable[Mapping[str, object]]:
            return [{"total": "many"}]

    query = query_of(op.windows.count(1), Wrong)
    events = numbered(query, pa.table({"key": ["a"], "ts": [0], "x": [0]}, schema=SCHEMA))
    split = make_splitter(bind_windows(query, SCHEMA)).push(events)
    with pytest.raises(DataError, match="operator applied returned rows that do not fit"):
        WindowedApply(query, SCHEMA).step(events, split)


def test_saved_state_is_that_of_the_operators() -> None:
    class Forgetful(Total):
        state = op.Operator.state

    nothing = Split(Windows.none(), Windows.none())
    query = query_of(op.windows.count(9), Forgetful)
    events = numbered(query, pa.table({"key": ["a"], "ts": [0], "x": [0]}, schema=SCHEMA))
    applied = WindowedApply(query, SCHEMA)
    assert len(applied.step(next(pieces(events, [0])), nothing)) == 0
    other = WindowedApply(op.Query("other").apply(Total).over(op.windows.count(9)), SCHEMA)
    with pytest.raises(StateError, match="another query"):
        other.restore(written(applied.state()))
    applied.step(events, make_splitter(bind_windows(query, SCHEMA)).push(events))
    with pytest.raises(UnsupportedError, match="operator Forgetful cannot be saved"):
        applied.state()


def test_time_that_passes_closes_the_windows_of_operators() -> None:
    opened = op.open(query_of(op.windows.time(10), Total, keyed=True))
    assert opened.push({"key": ["a", "b"], "ts": [3, 4], "x": [1, 2]}).num_rows == 0
    assert opened.advance(9).num_rows == 0
    assert opened.advance(10).column("total").to_pylist() == [1, 2]
    assert opened.finish().num_rows == 0
