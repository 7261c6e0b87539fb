"""Schedulers: windows go where each alone would, and events to each of their instances once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operators import written

from outpace.engine.event import Events
from outpace.engine.split.batch_schedule import BatchedSchedule
from outpace.engine.split.choose import make_schedule, make_splitter
from outpace.engine.split.schedule import Delivery, batch_size, scheduler_of
from outpace.engine.split.window_list import ListedSchedule
from outpace.engine.split.windows import OPEN, Split, Windows, joined_windows
from outpace.engine.state import State
from outpace.engine.wire import read_windows, write_windows
from outpace.errors import BindError, StateError
from outpace.pattern.bind.window_kinds import (
    BoundWindows,
    ByCount,
    ByLandmark,
    BySession,
    ByTime,
    WindowKind,
)
from outpace.pattern.query import Query
from outpace.pattern.schedulers import (
    Batches,
    ByKey,
    Candidate,
    LeastLoaded,
    RoundRobin,
    Scheduler,
)
from outpace.pattern.windows import CountWindows, SessionWindows, TimeWindows


@dataclass(frozen=True)
class Interval:
    """A window by definition: a partition, a number, and ordinals."""

    partition: int
    number: int
    first: int
    stop: int


@dataclass(frozen=True)
class Stream:
    """A stream by definition: the partition of each event, and all windows."""

    partitions: list[int]
    windows: list[Interval]

    def rows(self, window: Interval) -> list[int]:
        """The arrival numbers of a window's events."""
        mine = [row for row, at in enumerate(self.partitions) if at == window.partition]
        return mine[window.first : window.stop]

    def closed_at(self, window: Interval) -> int:
        """The arrival number of its last event; the end of the stream where it stays open."""
        rows = self.rows(window)
        full = len(rows) == window.stop - window.first
        return rows[-1] if full else len(self.partitions)

    def pieces(self, cuts: Sequence[int]) -> list[tuple[Events, Split]]:
        """The stream in blocks, each with what it opens and closes, and the end."""
        bounds = [0, *sorted(cuts), len(self.partitions)]
        pieces = [
            (self._events(low, high), self._split(low, high)) for low, high in pairwise(bounds)
        ]
        size = len(self.partitions)
        return [*pieces, (self._events(size, size), self._split(size, size + 1))]

    def _events(self, low: int, high: int) -> Events:
        partition = np.array(self.partitions, np.int64)
        ordinal = [self.partitions[:row].count(at) for row, at in enumerate(self.partitions)]
        return Events(
            pa.table({"row": np.arange(low, high)}),
            partition[low:high],
            np.array(ordinal, np.int64)[low:high],
            np.arange(low, high),
            np.zeros(0, np.int64),
        )

    def _split(self, low: int, high: int) -> Split:
        opened = [w for w in self.windows if low <= self.rows(w)[0] < high]
        opened.sort(key=lambda w: (self.rows(w)[0], w.number))
        closed = [w for w in self.windows if low <= self.closed_at(w) < high]
        closed.sort(key=lambda w: (self.closed_at(w), w.number))
        return Split(self._table(opened, closed=False), self._table(closed, closed=True))

    def _table(self, windows: list[Interval], *, closed: bool) -> Windows:
        columns = [
            [w.partition for w in windows],
            [w.number for w in windows],
            [w.first for w in windows],
            [w.first + len(self.rows(w)) if closed else OPEN for w in windows],
            [0 for w in windows],
            [0 for w in windows],
            [self.closed_at(w) if closed else -1 for w in windows],
        ]
        return Windows(*[np.array(column, np.int64) for column in columns])


@st.composite
def streams(draw: st.DrawFn, partitions: int) -> Stream:
    """Streams with any windows: overlapping, nested, with gaps, closing in any order."""
    at = draw(st.lists(st.integers(0, partitions - 1), max_size=24))
    windows = []
    for partition in sorted(set(at)):
        size = at.count(partition)
        firsts = sorted(draw(st.lists(st.integers(0, size - 1), max_size=6)))
        for number, first in enumerate(firsts):
            windows.append(Interval(partition, number, first, first + draw(st.integers(1, 8))))
    return Stream(at, windows)


class Crooked(Scheduler):
    """A scheduler of a user."""

    def assign(self, window: Candidate, loads: Sequence[float]) -> int:
        return (window.partition + window.number * window.number) % len(loads)


SCHEDULERS = [
    RoundRobin(),
    Batches(size=1),
    Batches(size=3),
    LeastLoaded(),
    ByKey(),
    Crooked(),
]


@pytest.mark.parametrize("keyed", [False, True])
@given(data=st.data())
def test_an_instance_gets_each_event_of_its_windows_once(keyed: bool, data: st.DataObject) -> None:
    stream = data.draw(streams(3 if keyed else 1))
    instances = data.draw(st.integers(1, 4))
    scheduler = data.draw(st.sampled_from(SCHEDULERS))
    cuts = data.draw(st.lists(st.integers(0, len(stream.partitions)), max_size=4))
    schedule = ListedSchedule(scheduler, instances, keyed=keyed)
    got: list[list[int]] = [[] for _ in range(instances)]
    opened: list[list[tuple[int, int]]] = [[] for _ in range(instances)]
    closed: list[list[tuple[int, int]]] = [[] for _ in range(instances)]
    for events, split in stream.pieces(cuts):
        if data.draw(st.booleans()):
            saved, schedule = (
                written(schedule.state()),
                ListedSchedule(scheduler, instances, keyed=keyed),
            )
            schedule.restore(saved)
        for delivery in schedule.route(events, split, [0.0] * instances):
            mine = delivery.instance
            for first, stop in delivery.ranges.tolist():
                assert first < stop
                got[mine] += events.arrival[first:stop].tolist()
            opened[mine] += windows_of(delivery.split.opened)
            closed[mine] += windows_of(delivery.split.closed)
    assert sorted(name for names in opened for name in names) == sorted(
        (window.partition, window.number) for window in stream.windows
    )
    for instance in range(instances):
        assert sorted(opened[instance]) == sorted(closed[instance])
        held = {
            row
            for window in stream.windows
            if (window.partition, window.number) in opened[instance]
            for row in stream.rows(window)
        }
        assert got[instance] == sorted(held)
    assert schedule.events_sent == sum(map(len, got))


@pytest.mark.parametrize("scheduler", [RoundRobin(), Batches(size=3), ByKey(), Crooked()])
@given(data=st.data())
def test_many_windows_at_once_go_where_each_alone_would_go(
    scheduler: Scheduler, data: st.DataObject
) -> None:
    stream = data.draw(streams(3))
    instances = data.draw(st.integers(1, 4))
    schedule = ListedSchedule(scheduler, instances, keyed=True)
    given_to: dict[tuple[int, int], int] = {}
    order: list[tuple[int, int]] = []
    for events, split in stream.pieces([len(stream.partitions) // 2]):
        saved, schedule = (
            written(schedule.state()),
            ListedSchedule(scheduler, instances, keyed=True),
        )
        schedule.restore(saved)
        order += windows_of(split.opened)
        for delivery in schedule.route(events, split, [0.0] * instances):
            given_to |= dict.fromkeys(windows_of(delivery.split.opened), delivery.instance)
    for opened, (partition, number) in enumerate(order):
        place = sum(1 for at, _ in order[:opened] if at == partition)
        candidate = Candidate(partition, number, opened, place)
        assert given_to[partition, number] == scheduler.assign(candidate, [0.0] * instances)


@st.composite
def kinds(draw: st.DrawFn) -> WindowKind:
    """Windows that close in the order in which they open."""
    small = st.integers(1, 9)
    return draw(
        st.one_of(
            st.builds(ByCount, small, small, st.integers(-9, 9)),
            st.builds(ByTime, small, small, st.integers(-9, 9)),
            st.builds(BySession, small),
            st.just(ByLandmark(None)),
        )
    )


@given(data=st.data())
def test_batches_go_where_lists_say(data: st.DataObject) -> None:
    windows = BoundWindows(data.draw(kinds()), False, "ts", ())
    scheduler = data.draw(st.sampled_from([RoundRobin(), Batches(1), Batches(3), ByKey()]))
    instances = data.draw(st.integers(1, 5))
    times = np.cumsum(data.draw(st.lists(st.integers(0, 12), max_size=40)), dtype=np.int64)
    batched = make_schedule(scheduler, instances, windows)
    assert isinstance(batched, BatchedSchedule)
    listed = ListedSchedule(scheduler, instances, keyed=False)
    splitter = make_splitter(windows)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(times)), max_size=4)))
    for turn, (low, high) in enumerate(pairwise([0, *cuts, len(times), len(times)])):
        rows = np.arange(low, high)
        events = Events(pa.table({"ts": times[rows]}), rows * 0, rows, rows, times[rows])
        split = splitter.push(events)
        closed = [split.closed]
        if high < len(times) and data.draw(st.booleans()):
            closed.append(splitter.advance(int(times[high])).closed)
        if turn > len(cuts):
            closed.append(splitter.finish().closed)
        split = Split(split.opened, reduce(joined_windows, closed))
        if data.draw(st.booleans()):
            saved, batched = written(batched.state()), make_schedule(scheduler, instances, windows)
            batched.restore(saved)
        loads = [0.0] * instances
        found = [delivered(one) for one in batched.route(events, split, loads)]
        assert found == [delivered(one) for one in listed.route(events, split, loads)]
    assert batched.events_sent == listed.events_sent


def delivered(delivery: Delivery) -> tuple[object, ...]:
    """What an instance gets, as it is after it has travelled."""
    split = delivery.split
    travelled = [
        read_windows(pa.py_buffer(write_windows(part))) for part in (split.opened, split.closed)
    ]
    return (
        delivery.instance,
        delivery.ranges.tolist(),
        delivery.size,
        [[column.tolist() for column in part.columns] for part in travelled],
    )


@pytest.mark.parametrize("scheduler", [RoundRobin(), Batches(50_000)])
def test_what_an_instance_is_told_of_many_windows_is_short(scheduler: Scheduler) -> None:
    windows = BoundWindows(ByCount(1_000_000, 10, 0), False, None, ())
    splitter, schedule = make_splitter(windows), make_schedule(scheduler, 2, windows)
    rows = np.arange(100_000)
    events = Events(pa.table({}), rows * 0, rows, rows, rows[:0])
    one, *_ = schedule.route(events, splitter.push(events), [0.0] * 2)
    assert len(one.split.opened) >= 5000
    assert one.split.opened.first.sum() > 0, "the columns are there"
    assert len(write_windows(one.split.opened)) + len(write_windows(one.split.closed)) < 1000


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"opened": 2, "closed": 3}, "more windows have closed than opened"),
        ({"opened": 4, "closed": 3}, "windows are not given to instances"),
    ],
)
def test_a_state_of_batches_that_contradicts_the_windows_is_refused(
    numbers: dict[str, object], message: str
) -> None:
    windows = BoundWindows(ByCount(10, 5, 0), False, None, ())
    schedule = make_schedule(RoundRobin(), 2, windows)
    state = schedule.state()
    wrong = State({**state.numbers, **numbers}, state.tables)
    with pytest.raises(StateError, match=message):
        schedule.restore(wrong, Windows.none())


def test_the_least_loaded_instance_gets_the_next_window() -> None:
    stream = Stream([0] * 12, [Interval(0, n, n * 4, n * 4 + 4) for n in range(3)])
    schedule = ListedSchedule(LeastLoaded(), 3, keyed=False)
    [first, second] = schedule.route(*stream.pieces([])[0], [5.0, 0.0, 3.0])
    # The second instance gets a window of four events, then the third (3 < 4), then the second.
    assert (first.instance, windows_of(first.split.opened)) == (1, [(0, 0), (0, 2)])
    assert (second.instance, windows_of(second.split.opened)) == (2, [(0, 1)])


@pytest.mark.parametrize(
    ("size", "slide", "scheduler", "instances", "expected"),
    [
        (20, 10, RoundRobin(), 2, 2.0),
        (20, 5, RoundRobin(), 2, 2.0),
        (20, 5, RoundRobin(), 4, 4.0),
        (20, 5, RoundRobin(), 8, 4.0),
        (20, 20, RoundRobin(), 4, 1.0),
        (20, 10, Batches(size=2), 3, 1 + 10 / 20),
        (20, 5, Batches(size=12), 2, 1 + 15 / 60),
        (20, 5, Batches(size=30), 5, 1 + 15 / 150),
        (20, 5, ByKey(), 4, 1.0),
    ],
)
def test_the_duplication_is_that_of_the_formula(
    size: int, slide: int, scheduler: Scheduler, instances: int, expected: float
) -> None:
    turn = slide * instances * (scheduler.size or 1 if isinstance(scheduler, Batches) else 1)
    total = 40 + 3 * turn
    windows = [Interval(0, n, n * slide, n * slide + size) for n in range(total // slide)]
    stream = Stream([0] * total, windows)
    schedule = ListedSchedule(scheduler, instances, keyed=False)
    start, middle, *_ = stream.pieces([40, 40 + 2 * turn])
    schedule.route(*start, [0.0] * instances)
    before = schedule.events_sent
    schedule.route(*middle, [0.0] * instances)
    assert (schedule.events_sent - before) / (2 * turn) == pytest.approx(expected)
    if isinstance(scheduler, Batches):
        assert expected == 1 + (size - slide) / ((scheduler.size or 1) * slide)


@pytest.mark.parametrize("keyed", [False, True])
def test_windows_that_have_closed_are_forgotten(keyed: bool) -> None:
    windows = [Interval(0, n, n, n + 2) for n in range(100)]
    stream = Stream([0] * 102, windows)
    schedule = ListedSchedule(RoundRobin(), 2, keyed=keyed)
    for events, split in stream.pieces(range(0, 102, 4)):
        schedule.route(events, split, [0.0, 0.0])
    assert schedule._places is not None
    assert len(schedule._places._key) <= 64
    assert not schedule._places._names


@pytest.mark.parametrize(
    ("scheduler", "instances"), [(RoundRobin(), 3), (ByKey(), 2), (RoundRobin(), 1)]
)
def test_the_state_of_another_schedule_is_refused(scheduler: Scheduler, instances: int) -> None:
    saved = ListedSchedule(RoundRobin(), 2, keyed=True).state()
    with pytest.raises(StateError, match="another schedule"):
        ListedSchedule(scheduler, instances, keyed=True).restore(saved)


def test_events_in_no_window_go_nowhere() -> None:
    stream = Stream([0] * 10, [Interval(0, 0, 2, 4), Interval(0, 1, 7, 9)])
    schedule = ListedSchedule(RoundRobin(), 1, keyed=False)
    [delivery] = schedule.route(*stream.pieces([])[0], [0.0])
    assert delivery.ranges.tolist() == [[2, 4], [7, 9]]
    assert delivery.size == 4


@pytest.mark.parametrize("answer", [2, -1, None, "0"])
def test_a_scheduler_that_names_no_instance_is_refused(answer: object) -> None:
    class Wrong(Scheduler):
        def assign(self, window: Candidate, loads: Sequence[float]) -> int:
            return answer  # type: ignore[return-value] # that is the point

    stream = Stream([0] * 3, [Interval(0, 0, 0, 2)])
    schedule = ListedSchedule(Wrong(), 2, keyed=False)
    with pytest.raises(BindError, match=r"scheduler Wrong returned"):
        schedule.route(*stream.pieces([])[0], [0.0, 0.0])


def test_a_query_without_a_scheduler_goes_by_key_or_in_batches() -> None:
    query = Query().over(CountWindows(1000, 50)).instances(4)
    assert scheduler_of(query) == Batches(size=76)
    assert scheduler_of(query.partition_by("symbol")) == ByKey()
    assert scheduler_of(query.instances(4, RoundRobin())) == RoundRobin()
    assert scheduler_of(query.instances(4, Batches(size=3))) == Batches(size=3)


@pytest.mark.parametrize("instances", [1, 2, 7, 64])
@pytest.mark.parametrize("slide", [1, 7, 500, 1000, 2000])
def test_a_chosen_batch_adds_at_most_the_share_of_one_instance(slide: int, instances: int) -> None:
    for windows in (CountWindows(1000, slide), TimeWindows(1000, slide)):
        batch = batch_size(windows, instances)
        assert 1 + (1000 - slide) / (batch * slide) <= 1 + 1 / instances
    assert batch_size(SessionWindows(10), instances) == 1


def test_a_batch_has_at_least_one_window() -> None:
    with pytest.raises(BindError, match="a whole number of at least 1, not 0"):
        Batches(size=0)


def windows_of(windows: Windows) -> list[tuple[int, int]]:
    return list(zip(windows.partition.tolist(), windows.number.tolist(), strict=True))
