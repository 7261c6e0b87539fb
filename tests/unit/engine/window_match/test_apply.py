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
from outpace.engine.divide.batch_match import BatchMatcher
from outpace.engine.divide.batches import BatchCutter
from outpace.engine.event import Events
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.split.choose import make_splitter
from outpace.engine.split.number import EventNumbers
from outpace.engine.split.windows import Split, Windows, joined_windows
from outpace.engine.state import State
from outpace.engine.window_match.apply import WindowedApply
from outpace.engine.window_match.apply_shared import SharedApply
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import DataError, StateError, UnsupportedError
from outpace.pattern import windows as w
from outpace.pattern.bind.window_kinds import BySession, bind_windows
from outpace.testing.window_definition import windows_by_definition

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


class SharedTotal(op.SharedOperator):
    """What `Total` tells, for all windows at once."""

    output = Total.output

    def __init__(self) -> None:
        self.total = self.rows = 0
        self.before: dict[int, tuple[int, int]] = {}

    def process_windows(self, block: op.WindowBlock) -> op.WindowRows:
        totals = np.cumsum([self.total, *block.events["x"].to_pylist()])
        for number, row in zip(block.opened.tolist(), block.first.tolist(), strict=True):
            self.before[number] = int(totals[row]), self.rows + row
        begun = np.array([self.before.pop(one) for one in block.closed.tolist()]).reshape(-1, 2)
        total, rows = totals[block.stop] - begun[:, 0], self.rows + block.stop - begun[:, 1]
        self.total, self.rows = int(totals[-1]), self.rows + block.events.num_rows
        return op.WindowRows({"total": total, "rows": rows}, block.closed)

    def state(self) -> bytes:
        return json.dumps([self.total, self.rows, list(self.before.items())]).encode()

    def restore(self, data: bytes) -> None:
        self.total, self.rows, before = json.loads(data)
        self.before = {number: tuple(begin) for number, begin in before}


class SharedRecords(op.SharedOperator):
    """What `Records` tells of events, for all windows at once."""

    output = Records.output

    def __init__(self) -> None:
        self.best: dict[int, tuple[int, int]] = {}

    def process_windows(self, block: op.WindowBlock) -> op.WindowRows | None:
        firsts = dict(zip(block.opened.tolist(), block.first.tolist(), strict=True))
        stops = dict(zip(block.closed.tolist(), block.stop.tolist(), strict=True))
        values = block.events["x"].to_pylist()
        given = []
        for number in [*self.best, *firsts]:
            best, rows = self.best.get(number, (-1, 0))
            for row in range(firsts.get(number, 0), stops.get(number, len(values))):
                rows += 1
                if values[row] > best:
                    best = values[row]
                    given.append((number, row, best, rows))
            self.best[number] = best, rows
        for number in stops:
            del self.best[number]
        if not given:
            return None
        window, event, total, rows = zip(*given, strict=True)
        return op.WindowRows(pa.table({"total": total, "rows": rows}), window, event)

    def state(self) -> bytes:
        return json.dumps(list(self.best.items())).encode()

    def restore(self, data: bytes) -> None:
        self.best = {number: tuple(best) for number, best in json.loads(data)}


class OpenRecords(Records):
    """Records without a last row."""

    def close(self) -> None:
        return None


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
                given += [(row, 1, one) for one in pa.table(result).to_pylist()]
        inside = window.closed_at == own[-1]
        given += [
            (window.closed_at, int(inside), one)
            for one in pa.table(operator.close() or {}).to_pylist()
        ]
        key = {"key": keys[own[0]]} if windows.keyed else {}
        for place, (event, phase, row) in enumerate(given):
            session = isinstance(windows.kind, BySession)
            turn = window.end_time if session else window.number
            order = (event, phase, turn, int(own[0]), place)
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
    rows = [row for part in parts for row in part.by_starts().table.to_pylist()]
    return [{name: row[name] for name in row if name not in names} for row in rows]


@given(
    streams(),
    specs(),
    st.sampled_from(
        [
            (Total, Total),
            (Records, Records),
            (SharedTotal, Total),
            (SharedTotal, SharedTotal),
            (SharedRecords, OpenRecords),
        ]
    ),
    st.booleans(),
    st.data(),
)
def test_operators_give_the_same_in_any_cut(
    table: pa.Table,
    spec: w.Windows,
    makes: tuple[type[op.Operator], type[op.Operator]],
    keyed: bool,
    data: st.DataObject,
) -> None:
    """Operators for all windows give what those for each window do."""
    make, each = makes
    query = query_of(spec, make, keyed=keyed)
    events = numbered(query, table)
    splitter = make_splitter(bind_windows(query, SCHEMA))
    apply = SharedApply if issubclass(make, op.SharedOperator) else WindowedApply
    applied = apply(query, SCHEMA)
    parts = []
    cuts = sorted(data.draw(st.lists(st.integers(0, table.num_rows), max_size=4), "cuts"))
    for piece in pieces(events, cuts):
        parts.append(applied.step(piece, splitter.push(piece)))
        assert applied.open_windows == splitter.open_windows
        if data.draw(st.booleans(), "save"):
            saved, applied = written(applied.state()), apply(query, SCHEMA)
            applied.restore(saved, splitter.opened())
    rest = splitter.finish()
    nothing = next(pieces(events, [0]))
    parts.append(applied.step(nothing, rest, ended=True))
    assert shown(parts) == by_definition(query_of(spec, each, keyed=keyed), events)
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
    assert applied.horizon == 2


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


@pytest.mark.parametrize(
    ("rows", "window", "event", "message"),
    [
        ({"total": [1], "rows": [1]}, [7], None, "a row of a window that does not close"),
        ({"total": [1], "rows": [1]}, [7], [0], "a row of a window that is not open"),
        ({"total": [1], "rows": [1]}, [0], [1], "a row of an event that is not in the block"),
        ({"total": [1], "rows": [1]}, [0, 0], None, "1 rows without as many integers in `window`"),
        ({"total": [1], "rows": [1]}, [0], ["x"], "1 rows without as many integers in `event`"),
        ({"total": [1]}, [0], None, "rows that do not fit its output"),
    ],
)
def test_rows_of_no_window_or_event_are_refused(
    rows: Mapping[str, list[int]], window: list[int], event: list[int] | None, message: str
) -> None:
    class Wrong(SharedTotal):
        def process_windows(self, block: op.WindowBlock) -> op.WindowRows:
            return op.WindowRows(rows, window, event)

    query = query_of(op.windows.count(1), Wrong)
    table = pa.table({"key": ["a"], "ts": [0], "x": [0]}, schema=SCHEMA)
    with pytest.raises(DataError, match=message):
        op.match(table, query)


def test_an_operator_is_called_once_for_all_windows_of_a_block() -> None:
    calls = []

    class Called(SharedTotal):
        def process_windows(self, block: op.WindowBlock) -> op.WindowRows:
            calls.append((len(block.opened), len(block.closed)))
            return super().process_windows(block)

    query = query_of(op.windows.count(100, 1), Called)
    rows = {"key": ["a"] * 300, "ts": range(300), "x": range(300)}
    stream = op.open(query)
    stream.push(rows)
    stream.finish()
    assert calls == [(300, 201), (0, 99)]


@given(streams(), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
def test_batches_of_windows_share_an_operator(
    table: pa.Table, size: int, slide: int, rows: int
) -> None:
    query = query_of(op.windows.count(size, slide), SharedTotal)
    spec = OperatorSpec(query, SCHEMA)
    assert spec.windows is not None
    splitter = make_splitter(spec.windows)
    split, matcher = splitter.push(numbered(query, table)), BatchMatcher(spec)
    whole = Split(split.opened, joined_windows(split.closed, splitter.finish().closed))
    found = [spec.bound.output.empty_table()]
    for batch in BatchCutter(rows, neighbours=False).push(whole, ended=True):
        low, high = batch.rows
        found.append(matcher.match_batch(table.slice(low, high - low), batch))
    expected = op.match(table, query_of(op.windows.count(size, slide), Total))
    assert pa.concat_tables(found).sort_by("window").equals(expected.sort_by("window"))


@pytest.mark.parametrize("rows", [50, 1500, 5000])
def test_many_windows_that_are_open_are_counted(rows: int) -> None:
    query = query_of(op.windows.count(4000, 1), SharedTotal)
    stream = op.open(query)
    size = 12_000
    table = pa.table({"key": ["a"] * size, "ts": range(size), "x": range(size)}, schema=SCHEMA)
    found = [stream.push(table.slice(low, rows)) for low in range(0, size, rows)]
    assert stream.open_windows == 3999
    whole = pa.concat_tables(found)
    assert whole["rows"].to_pylist() == [4000] * 8001
    assert whole["total"].to_pylist() == [4000 * at + 2000 * 3999 for at in range(8001)]


def test_the_state_of_shared_windows_is_checked() -> None:
    query = query_of(op.windows.count(4, 2), SharedTotal)
    table = pa.table({"key": ["a"] * 5, "ts": range(5), "x": range(5)}, schema=SCHEMA)
    events = numbered(query, table)
    splitter = make_splitter(bind_windows(query, SCHEMA))
    applied = SharedApply(query, SCHEMA)
    applied.step(events, splitter.push(events))
    state = applied.state()
    states, known, keys = state.tables
    for wrong, message in [
        ([pa.concat_tables([states] * 2), known, pa.concat_tables([keys] * 2)], "there twice"),
        ([states, known.slice(1), keys], "windows are missing"),
        ([states, _shifted(known), keys], "other windows are open"),
    ]:
        with pytest.raises(StateError, match=message):
            SharedApply(query, SCHEMA).restore(State(state.numbers, wrong), splitter.opened())


def _shifted(known: pa.Table) -> pa.Table:
    return known.set_column(1, "number", pa.array(known["number"].to_numpy() + 1))


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
