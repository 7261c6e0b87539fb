"""Splitters equal the windows by definition, for any cut, watermarks between, and saved state."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import astuple
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operators import written

import outpace as op
from outpace.compiler.kernel import compiled
from outpace.engine.event import Events
from outpace.engine.kernels import time_windows
from outpace.engine.kernels import window_table as kernels
from outpace.engine.split import table as split_table
from outpace.engine.split.choose import Splitter, make_splitter
from outpace.engine.split.number import EventNumbers
from outpace.engine.split.table import TableSplitter
from outpace.engine.split.unkeyed import UnkeyedSplitter
from outpace.engine.split.windows import OPEN, Split, Windows
from outpace.engine.state import State
from outpace.errors import DataError, StateError, UnsupportedError
from outpace.pattern import windows as w
from outpace.pattern.bind.window_kinds import BoundWindows, bind_windows
from outpace.testing.window_definition import Window, windows_by_definition

SCHEMA = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("kind", pa.int8())])


class EveryOther(op.windows.Predicate):
    """Opens at every second event of kind 1, closes after three events or at a kind of its own."""

    def __init__(self, seen: int = 0) -> None:
        self.seen = seen

    def opens(
        self, event: Mapping[str, object], windows: tuple[op.windows.OpenWindow, ...]
    ) -> bool:
        self.seen += event["kind"] == 1
        assert all(window.events >= 1 for window in windows)
        return event["kind"] == 1 and self.seen % 2 == 1 and len(windows) < 3

    def closes(self, event: Mapping[str, object], window: op.windows.OpenWindow) -> bool:
        return window.events >= 3 + window.number % 3 or event["ts"] == window.first["ts"]

    def clone(self) -> EveryOther:
        return type(self)(self.seen)

    def state(self) -> bytes:
        return json.dumps(self.seen).encode()

    def restore(self, data: bytes) -> None:
        self.seen = json.loads(data)


def specs() -> st.SearchStrategy[w.Windows]:
    span = st.integers(1, 9)
    offset = st.integers(-12, 12)
    condition = st.sampled_from(["kind = 0", "kind = 1", "kind > 0", "TRUE", "FALSE", "kind <> 2"])
    return st.one_of(
        st.builds(op.windows.count, span, span, offset),
        st.builds(op.windows.time, span, span, offset),
        st.builds(op.windows.session, span),
        st.builds(op.windows.between, condition, condition),
        st.builds(op.windows.landmark, st.none() | condition),
        st.builds(lambda: op.windows.between(predicate=EveryOther())),
    )


@st.composite
def streams(draw: st.DrawFn) -> pa.Table:
    """Draw events in the order of time, with ties, jumps, NULL kinds and a few keys."""
    steps = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 5, 30]), max_size=30))
    size = len(steps)
    start = draw(st.integers(-40, 40))
    kinds = draw(st.lists(st.sampled_from([0, 1, 2, None]), min_size=size, max_size=size))
    keys = draw(st.lists(st.sampled_from("abc"), min_size=size, max_size=size))
    times = start + np.cumsum(np.array(steps, np.int64))
    return pa.table({"key": keys, "ts": times, "kind": kinds}, schema=SCHEMA)


def bound(windows: w.Windows, *, keyed: bool, timed: bool = True) -> BoundWindows:
    query = op.Query().order_by("ts").over(windows, numbered=timed)
    return bind_windows(query.partition_by("key") if keyed else query, SCHEMA)


def numbered(table: pa.Table, windows: BoundWindows) -> Events:
    names = ("key",) if windows.keyed else ()
    return EventNumbers(table.schema, names, windows.time).number(table)


def closed(windows: Windows) -> list[Window]:
    return [Window(*map(int, line)) for line in zip(*astuple(windows), strict=True)]


def piece(events: Events, low: int, high: int) -> Events:
    return Events(
        events.rows.slice(low, high - low),
        events.partition[low:high],
        events.ordinal[low:high],
        events.arrival[low:high],
        events.times[low:high],
    )


def check_splits(splits: list[Split], events: Events) -> list[Window]:
    """Check what holds for every splitter and return the windows that closed."""
    opened = [window for split in splits for window in closed(split.opened)]
    done = [window for split in splits for window in closed(split.closed)]
    place = {
        (partition, ordinal): arrival
        for partition, ordinal, arrival in zip(
            events.partition.tolist(),
            events.ordinal.tolist(),
            events.arrival.tolist(),
            strict=True,
        )
    }
    order = [(place[one.partition, one.first], one.number) for one in opened]
    assert order == sorted(order)
    assert {one.stop for one in opened} <= {OPEN}
    assert {one.closed_at for one in opened} <= {-1}
    names = [(one.partition, one.number, one.first) for one in opened]
    assert len(set(names)) == len(names)
    assert set(names) == {(one.partition, one.number, one.first) for one in done}
    starts = {(one.partition, one.number): one.start_time for one in opened}
    assert all(starts[one.partition, one.number] == one.start_time for one in done)
    return done


@given(streams(), specs(), st.booleans(), st.booleans())
def test_a_whole_stream_has_the_windows_of_the_definition(
    table: pa.Table, spec: w.Windows, keyed: bool, timed: bool
) -> None:
    windows = bound(spec, keyed=keyed, timed=timed)
    events = numbered(table, windows)
    splitter = make_splitter(windows)
    done = check_splits([splitter.push(events), splitter.finish()], events)
    assert done == windows_by_definition(windows, events)


@given(streams(), specs(), st.booleans(), st.booleans(), st.data())
def test_any_cut_any_watermarks_and_saved_state_give_the_same(
    table: pa.Table, spec: w.Windows, keyed: bool, timed: bool, data: st.DataObject
) -> None:
    windows = bound(spec, keyed=keyed, timed=timed)
    events = numbered(table, windows)
    splitter = make_splitter(windows)
    splits = []
    times = table.column("ts").to_pylist()
    cuts = sorted(data.draw(st.lists(st.integers(0, table.num_rows), max_size=5), "cuts"))
    for low, high in pairwise([0, *cuts, table.num_rows]):
        splits.append(splitter.push(piece(events, low, high)))
        if times and data.draw(st.booleans(), "time passes"):
            latest = times[high] if high < len(times) else times[-1] + 100
            splits.append(splitter.advance(data.draw(st.integers(times[0] - 9, latest), "to")))
        if data.draw(st.booleans(), "save"):
            splitter = resumed(splitter)
    splits.append(splitter.finish())
    assert check_splits(splits, events) == windows_by_definition(windows, events)


def resumed(splitter: Splitter) -> Splitter:
    other = make_splitter(splitter.windows)
    other.restore(written(splitter.state()))
    assert other.arrived == splitter.arrived
    assert other.open_windows == splitter.open_windows
    return other


@pytest.mark.parametrize("silence", [3, 40])
@pytest.mark.parametrize(("size", "slide"), [(30, 1), (30, 7), (3, 11)])
def test_many_windows_and_silences_in_one_push(silence: int, size: int, slide: int) -> None:
    """What one push tells outgrows the room for it, and numbers leap where no events are."""
    windows = bound(op.windows.time(size, slide), keyed=False)
    times = np.cumsum(np.where(np.arange(300) % 3, 1, silence)) - 500
    table = pa.table({"key": ["a"] * 300, "ts": times, "kind": times * 0}, schema=SCHEMA)
    events = numbered(table, windows)
    for cut in (0, 7, 150):
        splitter = make_splitter(windows)
        pushes = [splitter.push(piece(events, low, high)) for low, high in ((0, cut), (cut, 300))]
        done = check_splits([*pushes, splitter.finish()], events)
        assert done == windows_by_definition(windows, events)


#: Where each loop is called from.
LOOPS = (
    (kernels, "split_by_count"),
    (time_windows, "split_times"),
    (split_table, "split_by_time"),
    (split_table, "split_by_session"),
    (split_table, "split_by_bits"),
    (kernels, "close_rest"),
)


@pytest.mark.parametrize(
    "spec",
    [
        op.windows.count(50, 3, -7),
        op.windows.time(60, 7, 2),
        op.windows.session(2),
        op.windows.between("kind = 1", "kind = 2"),
        op.windows.landmark("kind = 1"),
    ],
)
@pytest.mark.parametrize("keyed", [False, True])
def test_compiled_and_plain_loops_agree(
    spec: w.Windows, keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(7)
    table = pa.table(
        {
            "key": random.choice(["a", "b", "c", "d"], 3000),
            "ts": np.cumsum(random.integers(0, 3, 3000)),
            "kind": random.integers(0, 4, 3000),
        },
        schema=SCHEMA,
    )
    windows = bound(spec, keyed=keyed)
    events = numbered(table, windows)

    def run(loop: Callable[[Callable[..., object]], Callable[..., object]]) -> list[list[Window]]:
        for module, name in LOOPS:
            chosen = loop(inspect.unwrap(getattr(module, name)))
            monkeypatch.setattr(module, name, chosen)
        splitter = make_splitter(windows)
        splits = [splitter.push(events), splitter.advance(10_000), splitter.finish()]
        return [closed(part) for split in splits for part in (split.opened, split.closed)]

    plain = run(lambda function: function)
    assert sum(map(len, plain))
    assert run(compiled) == plain


def integers_kept(splitter: Splitter) -> int:
    """How many integers the saved state is made of."""
    _, tables = splitter.state().content()
    return sum(table.num_rows * table.num_columns for table in tables)


@pytest.mark.parametrize("timed", [False, True])
def test_what_is_kept_does_not_grow_with_open_count_windows(timed: bool) -> None:
    """Count windows without times keep nothing of each; with times its first event's time."""
    kept = {}
    for slide in (1, 100):
        windows = bound(op.windows.count(1000, slide), keyed=False, timed=timed)
        splitter = make_splitter(windows)
        assert isinstance(splitter, UnkeyedSplitter)
        times = np.arange(5000)
        table = pa.table({"key": ["a"] * 5000, "ts": times, "kind": times * 0}, schema=SCHEMA)
        splitter.push(numbered(table, windows))
        assert splitter.open_windows == 1000 // slide - 1
        kept[slide] = integers_kept(splitter)
    assert (kept[1] == kept[100]) is not timed
    assert kept[1] <= 2 + 1000


def test_sessions_and_landmarks_keep_one_window_for_each_partition() -> None:
    for spec in (op.windows.session(5), op.windows.landmark("kind = 1")):
        windows = bound(spec, keyed=True)
        splitter = make_splitter(windows)
        assert isinstance(splitter, TableSplitter)
        size = 3000
        table = pa.table(
            {
                "key": [str(number % 10) for number in range(size)],
                "ts": np.arange(size),
                "kind": np.arange(size) % 3,
            },
            schema=SCHEMA,
        )
        splitter.push(numbered(table, windows))
        assert integers_kept(splitter) <= 13 * 10


def test_time_windows_after_a_long_silence_cost_only_what_they_hold() -> None:
    windows = bound(op.windows.time(10, 1), keyed=False)
    splitter = make_splitter(windows)
    table = pa.table({"key": ["a"] * 2, "ts": [0, 1 << 50], "kind": [0, 0]}, schema=SCHEMA)
    split = splitter.push(numbered(table, windows))
    assert (len(split.opened), len(split.closed)) == (20, 10)


@pytest.mark.parametrize("spec", [op.windows.time(5), op.windows.session(5)])
def test_an_event_before_the_watermark_is_refused_and_nothing_is_taken(spec: w.Windows) -> None:
    windows = bound(spec, keyed=False)
    splitter = make_splitter(windows)

    def at(*times: int) -> Events:
        kinds = [0] * len(times)
        table = pa.table({"key": ["a"] * len(times), "ts": times, "kind": kinds}, schema=SCHEMA)
        return numbered(table, windows)

    splitter.push(at(3))
    splitter.advance(7)
    before = splitter.state().encode()
    with pytest.raises(DataError, match=r"row 0 .* has passed\n  its time is 6, after 7"):
        splitter.push(at(6))
    with pytest.raises(DataError, match=r"row 2 .*\n  its time is 8, after 9"):
        splitter.push(at(8, 9, 8))
    with pytest.raises(DataError, match="out of range"):
        splitter.push(at(9, (1 << 62) + 1))
    assert splitter.state().encode() == before


def test_the_time_that_is_out_of_range_is_named() -> None:
    windows = bound(op.windows.time(5), keyed=False)
    far = (1 << 62) + 1
    table = pa.table({"key": ["a"] * 2, "ts": [-5, far], "kind": [0, 0]}, schema=SCHEMA)
    with pytest.raises(DataError, match=f"the time 'ts' is out of range: {far}"):
        make_splitter(windows).push(numbered(table, windows))


def test_a_watermark_that_goes_back_says_nothing() -> None:
    windows = bound(op.windows.time(5), keyed=False)
    splitter = make_splitter(windows)
    splitter.advance(100)
    assert len(splitter.advance(50).closed) == 0
    table = pa.table({"key": ["a"], "ts": [60], "kind": [0]}, schema=SCHEMA)
    with pytest.raises(DataError) as refused:
        splitter.push(numbered(table, windows))
    assert "its time is 60, after 100" in str(refused.value)


@pytest.mark.parametrize("spec", [op.windows.time(5), op.windows.session(5)])
def test_a_watermark_may_be_any_integer(spec: w.Windows) -> None:
    windows = bound(spec, keyed=False)
    splitter = make_splitter(windows)
    table = pa.table({"key": ["a"], "ts": [-(1 << 62)], "kind": [0]}, schema=SCHEMA)
    assert len(splitter.advance(-(1 << 70)).closed) == 0
    splitter.push(numbered(table, windows))
    assert len(splitter.advance(-(1 << 62) + 1).closed) == 0
    assert len(splitter.advance(1 << 70).closed) == 1
    assert splitter.open_windows == 0


def test_a_finished_splitter_takes_nothing_more() -> None:
    splitter = make_splitter(bound(op.windows.count(5), keyed=False))
    splitter.finish()
    for action in (splitter.finish, lambda: splitter.advance(3)):
        with pytest.raises(DataError, match="the splitter is finished"):
            action()


def test_saved_state_of_other_windows_is_refused() -> None:
    saved = make_splitter(bound(op.windows.count(5), keyed=False)).state()
    with pytest.raises(StateError, match="belongs to other windows"):
        make_splitter(bound(op.windows.count(6), keyed=False)).restore(saved)


@pytest.mark.parametrize("spec", [op.windows.count(5, 2), op.windows.time(5, 2)])
def test_saved_state_that_contradicts_itself_is_refused(spec: w.Windows) -> None:
    splitter = make_splitter(bound(spec, keyed=False))
    table = pa.table({"key": ["a"] * 9, "ts": range(9), "kind": [0] * 9}, schema=SCHEMA)
    splitter.push(numbered(table, splitter.windows))
    header, (numbers, kept) = splitter.state().content()
    for tables in ([numbers], [kept, numbers], [numbers.slice(1), kept], [numbers, kept.slice(1)]):
        with pytest.raises(StateError, match="contradicts itself"):
            make_splitter(splitter.windows).restore(State(header, tables))
    with pytest.raises(StateError, match="belongs to other windows"):
        make_splitter(bound(spec, keyed=True)).restore(written(splitter.state()))


def test_a_predicate_without_a_state_cannot_be_saved() -> None:
    class Forgetful(EveryOther):
        state = op.windows.Predicate.state

    windows = bound(op.windows.between(predicate=Forgetful()), keyed=False)
    splitter = make_splitter(windows)
    table = pa.table({"key": ["a"], "ts": [1], "kind": [1]}, schema=SCHEMA)
    splitter.push(numbered(table, windows))
    with pytest.raises(UnsupportedError, match="window predicate Forgetful cannot be saved"):
        splitter.state()


def test_after_an_error_in_a_predicate_nothing_is_taken() -> None:
    class Failing(EveryOther):
        def closes(self, event: Mapping[str, object], window: op.windows.OpenWindow) -> bool:
            if event["kind"] is None:
                raise ValueError("no kind")
            return super().closes(event, window)

    windows = bound(op.windows.between(predicate=Failing()), keyed=False)
    kinds = [1, 0, 1, 1, None]
    table = pa.table({"key": ["a"] * 5, "ts": range(5), "kind": kinds}, schema=SCHEMA)
    events = numbered(table, windows)
    splitter = make_splitter(windows)
    splitter.push(piece(events, 0, 1))
    before = splitter.state().encode()
    with pytest.raises(ValueError, match="no kind"):
        splitter.push(piece(events, 1, 5))
    assert splitter.state().encode() == before
    assert len(splitter.push(piece(events, 1, 4)).opened) == 1


def test_a_session_ends_though_an_older_one_goes_on() -> None:
    """The partition that waits longest is the one with the oldest last event, not first event."""
    windows = bound(op.windows.session(5), keyed=True)
    table = pa.table(
        {"key": ["a", "b", "a", "c"], "ts": [0, 1, 4, 6], "kind": [0] * 4}, schema=SCHEMA
    )
    events = numbered(table, windows)
    splitter = make_splitter(windows)
    ended = closed(splitter.push(events).closed)
    assert [(one.partition, one.stop, one.closed_at) for one in ended] == [(1, 1, 3)]
    rest = closed(splitter.finish().closed)
    assert ended + rest == windows_by_definition(windows, events)
