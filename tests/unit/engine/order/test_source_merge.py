"""The merge of sources against sorting, for any cut into blocks and any order of speaking."""

from __future__ import annotations

from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operators import written
from support.properties import examples

from outpace.engine.kernels import merge
from outpace.engine.order.contract import ReleasedEvents
from outpace.engine.order.source_merge import SourceMerge
from outpace.engine.rows.permutation import as_table
from outpace.errors import DataError, StateError

Key = tuple[int, int, str]


@st.composite
def runs(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """Draw ordered runs of (time, number), long stretches of one run alone included."""
    several = []
    # All times may be near the end of those that can be said.
    middle = draw(st.sampled_from([0, 0, 100 - 2**63, 2**63 - 1000]))
    for _ in range(draw(st.integers(1, 9))):
        size = draw(st.integers(0, 90))
        start = middle + draw(st.integers(-50, 50))
        step = draw(st.sampled_from([0, 1, 3]))
        jumps = draw(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9)), max_size=4))
        times = start + step * np.arange(size)
        for place, jump in jumps:
            times[place:] += jump
        first = draw(st.integers(0, 5))
        several.append(list(zip(times.tolist(), range(first, first + size), strict=True)))
    # One time that is far away leaves all others in one bucket.
    far = draw(st.sampled_from([None, 2**40, 2**63 - 1]))
    return several if far is None else [*several, [(far, 0)]]


@given(runs().filter(any), st.sampled_from([1, 7, 100, merge._SLICE]))
def test_merged_runs_are_the_sorted_keys(several, keys_at_once):
    keys = [key for run in several for key in run]
    bounds = np.cumsum([0, *map(len, several)])
    times = np.array([time for time, _ in keys], np.int64)
    numbers = np.array([number for _, number in keys], np.int64)
    before = times.copy(), numbers.copy()
    with patch.object(merge, "_SLICE", keys_at_once):
        got = merge.merge_runs(times, numbers, bounds)
    owner = np.repeat(np.arange(len(several)), np.diff(bounds))
    order = np.lexsort((owner, numbers, times))
    assert got[2].tolist() == order.tolist()
    assert got[0].tolist() == times[order].tolist()
    assert got[1].tolist() == numbers[order].tolist()
    assert (times == before[0]).all()
    assert (numbers == before[1]).all()


@dataclass
class Speaker:
    """A source as the model knows it: what it sent, and the least that it may still send."""

    time: int = -(2**63)
    number: int = 0
    finished: bool = False
    waiting: list[Key] = field(default_factory=list)


class Model:
    """Many sources by definition: what waits, and what may still come."""

    def __init__(self, sources: list[str]) -> None:
        self.speakers = {source: Speaker() for source in sources}

    @property
    def least(self) -> Key | None:
        possible = [
            (speaker.time, speaker.number, source)
            for source, speaker in self.speakers.items()
            if not speaker.finished
        ]
        return min(possible, default=None)

    @property
    def holding(self) -> str | None:
        return None if self.least is None else self.least[2]

    def pop(self) -> list[Key]:
        least = self.least
        ready = []
        for speaker in self.speakers.values():
            before = [key for key in speaker.waiting if least is None or key < least]
            speaker.waiting = speaker.waiting[len(before) :]
            ready += before
        return sorted(ready)


def rows_of(source: str, events: list[tuple[int, int]]) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array([time for time, _ in events], pa.timestamp("us")),
            "who": pa.array([source] * len(events), pa.string()),
            "seq": pa.array([number for _, number in events], pa.int32()),
        }
    )


def push(merge: SourceMerge, source: str, events: list[tuple[int, int]]) -> None:
    merge.push(source, rows_of(source, events))


def keys_of(released: ReleasedEvents) -> list[Key]:
    if not released.rows.num_rows:
        return []
    rows = as_table(released.rows)
    times = rows["ts"].cast(pa.int64()).to_pylist()
    return list(zip(times, rows["seq"].to_pylist(), rows["who"].to_pylist(), strict=True))


#: How much later each event is than the one before, and how much its number is higher.
Steps = list[tuple[int, int]]

ACTIONS = ["push", "push", "push", "heartbeat", "finish", "take", "save"]

actions = st.tuples(
    st.sampled_from(ACTIONS),
    st.integers(0, 11),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2)), max_size=6),
)


def act(model: Model, merge: SourceMerge, action: str, source: str, steps: Steps) -> None:
    """Tell the model and the merge the same of a source."""
    speaker = model.speakers[source]
    if action == "finish":
        speaker.finished = True
        merge.finish(source)
    elif action == "heartbeat":
        time = max(speaker.time, 0) + sum(step for step, _ in steps)
        speaker.time = max(speaker.time, time)
        merge.heartbeat(source, time)
    elif action == "push" and not speaker.finished:
        time, number = max(speaker.time, 0), speaker.number - 1
        events = []
        for later, more in steps:
            time, number = time + later, number + more
            events.append((time, number))
        push(merge, source, events)
        speaker.waiting += [(*event, source) for event in events]
        if events:
            speaker.time, speaker.number = time, number + 1


def saved(merge: SourceMerge, fan_in: int) -> SourceMerge:
    """Go on from saved state, with groups of any size."""
    again = SourceMerge(merge.sources, fan_in=fan_in)
    again.restore(written(merge.state()))
    return again


@examples(300)
@given(st.integers(1, 12), st.integers(2, 4), st.sets(st.integers(0, 11)), st.lists(actions))
def test_what_is_taken_is_what_can_have_nothing_before_it(count, fan_in, silent, script):
    sources = [f"s{number:02}" for number in range(count)]
    model, merge = Model(sources), SourceMerge(sources[::-1], fan_in=fan_in)
    # While one source has said nothing, all others wait.
    for number, source in enumerate(sources):
        if number not in silent:
            act(model, merge, "heartbeat", source, [])
    expected = []
    for action, which, steps in script:
        if action == "save":
            merge = saved(merge, 2 + which % 4)
        act(model, merge, action, sources[which % count], steps)
        ordered = merge.pop()
        ready = model.pop()
        expected += ready
        assert keys_of(ordered) == ready
        assert all(
            key[0] >= ordered.watermark for s in model.speakers.values() for key in s.waiting
        )
        assert [merge.buffered(s) for s in sources] == [
            len(model.speakers[s].waiting) for s in sources
        ]
        assert merge.holding == model.holding
    for source in sources:
        act(model, merge, "finish", source, [])
    taken = [*expected, *keys_of(merge.pop())]
    assert taken == sorted([*expected, *model.pop()])


@pytest.mark.parametrize(("count", "fan_in"), [(64, 64), (65, 64), (130, 64), (4097, 64), (300, 5)])
def test_many_sources_in_groups_come_out_in_order(count, fan_in):
    sources = [f"s{number:04}" for number in range(count)]
    model, merge = Model(sources), SourceMerge(sources, fan_in=fan_in)
    generator = np.random.default_rng(count)
    pushed, taken = [], []
    for turn in range(2):
        for which in generator.permutation(count):
            # In the first turn everybody says something, so that the others need not wait.
            action = "push" if turn == 0 else str(generator.choice(ACTIONS[2:6]))
            if action == "finish" and generator.random() < 0.9:
                action = "heartbeat"
            steps = [(int(generator.integers(0, 4)), 1) for _ in range(generator.integers(1, 5))]
            waiting = model.speakers[sources[which]].waiting
            before = len(waiting)
            act(model, merge, action, sources[which], steps)
            pushed += waiting[before:]
            if generator.random() < 9 / count:
                taken += keys_of(merge.pop())
                assert taken[len(taken) - len(ready := model.pop()) :] == ready
        merge = saved(merge, fan_in)
        assert merge.holding == model.holding
    assert taken
    for source in sources:
        act(model, merge, "finish", source, [])
    assert merge.holding is None
    taken += keys_of(merge.pop())
    assert taken == sorted(pushed)


@given(st.integers(1, 4), st.lists(actions, max_size=15))
def test_an_event_waits_only_for_one_that_may_still_come_before_it(count, script):
    """The least event that a source may still send comes after all that was taken, and it is the
    reason why what waits must wait."""
    sources = [f"s{number}" for number in range(count)]
    merge = SourceMerge(sources)
    ends: dict[str, tuple[int, int]] = dict.fromkeys(sources, (0, 0))
    taken: list[Key] = []
    for action, which, steps in script:
        source = sources[which % count]
        time, number = ends[source]
        if action in ("heartbeat", "finish"):
            time += sum(step for step, _ in steps)
            merge.heartbeat(source, time)
        else:
            events = []
            for later, more in steps:
                time, number = time + later, number + more
                events.append((time, number - 1))
            push(merge, source, events)
        ends[source] = time, number
        taken += keys_of(merge.pop())
    for source in sources:
        merge.heartbeat(source, ends[source][0])
    taken += keys_of(merge.pop())
    waiting = sum(merge.buffered(source) for source in sources)
    least = min((*ends[source], source) for source in sources)
    assert not taken or taken[-1] < least
    push(merge, least[2], [least[:2]])
    for source in sources:
        merge.finish(source)
    rest = keys_of(merge.pop())
    assert len(rest) == waiting + 1
    assert rest[0] == least


def address(rows: pa.Table) -> int:
    return rows["x"].chunk(0).buffers()[1].address


def test_events_of_one_source_are_handed_on_as_they_are():
    merge = SourceMerge(["only"])
    rows = pa.table({"ts": [1, 1, 2], "x": [1, 2, 3]})
    merge.push("only", rows)
    ordered = merge.pop()
    assert address(ordered.rows) == address(rows)
    assert ordered.rows == rows


def test_a_stretch_of_one_source_is_not_copied():
    merge = SourceMerge(["a", "b"])
    rows = pa.table({"ts": np.arange(10), "x": np.arange(10)})
    merge.push("a", rows)
    merge.heartbeat("b", 4)
    ordered = merge.pop()
    assert ordered.rows["x"].to_pylist() == [0, 1, 2, 3]
    assert address(ordered.rows) == address(rows)


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pa.int16(), pa.uint8(), pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.date32()],
)
def test_times_of_any_kind_come_back_as_they_were(kind):
    merge = SourceMerge(["a", "b"])
    several = {"a": [1, 3, 5], "b": [2, 3, 4]}
    for source, times in several.items():
        whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
        merge.push(source, pa.table({"ts": pa.array(times, whole).cast(kind)}))
        merge.finish(source)
    rows = as_table(merge.pop().rows)
    assert rows.schema.field("ts").type == kind
    expected = pa.array([1, 2, 3, 3, 4, 5], whole).cast(kind)
    assert rows["ts"].combine_chunks() == expected


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"tss": [1]}, "source 'a' has no column 'ts'"),
        ({"ts": [1.5]}, "column 'ts' of source 'a' is double"),
        ({"ts": [1, None]}, "column 'ts' of source 'a' has NULLs"),
        ({"ts": [1], "seq": ["x"]}, "column 'seq' of source 'a' is string"),
        ({"ts": [1], "seq": [-1]}, "event -1 of source 'a' is late"),
        ({"ts": [1], "seq": [2**63 - 1]}, "a sequence number of source 'a' is too large"),
    ],
)
def test_events_without_keys_are_refused(rows, message):
    with pytest.raises(DataError) as refused:
        SourceMerge(["a"]).push("a", pa.table(rows))
    assert refused.value.message == message


def test_equal_times_are_ordered_by_number_then_by_identifier():
    merge = SourceMerge(["b", "a"])
    push(merge, "b", [(7, 0), (7, 1)])
    push(merge, "a", [(7, 1), (7, 2)])
    merge.finish("a")
    merge.finish("b")
    assert keys_of(merge.pop()) == [(7, 0, "b"), (7, 1, "a"), (7, 1, "b"), (7, 2, "a")]


@pytest.mark.parametrize(
    ("events", "number", "detail"),
    [
        ([(4, 3)], 3, "its time is 4, expected 5 or later"),
        ([(9, 2)], 2, "its sequence number is 2, expected 3 or more"),
        ([(9, 3), (8, 4)], 4, "its time is 8, expected 9 or later"),
        ([(9, 3), (9, 5), (9, 5)], 5, "its sequence number is 5, expected 6 or more"),
    ],
)
def test_a_late_event_is_refused_by_source_and_number(events, number, detail):
    merge = SourceMerge(["pump", "valve"])
    push(merge, "pump", [(1, 0), (2, 2)])
    merge.heartbeat("pump", 5)
    with pytest.raises(DataError) as refused:
        push(merge, "pump", events)
    assert refused.value.message == f"event {number} of source 'pump' is late"
    assert refused.value.detail == detail
    merge.finish("valve")
    assert keys_of(merge.pop()) == [(1, 0, "pump"), (2, 2, "pump")]


def test_a_heartbeat_never_takes_back_an_earlier_one():
    merge = SourceMerge(["a", "b"])
    push(merge, "a", [(3, 0)])
    merge.heartbeat("b", 4)
    merge.heartbeat("b", 1)
    assert keys_of(merge.pop()) == [(3, 0, "a")]


def test_a_heartbeat_at_the_end_of_time_releases_all():
    merge = SourceMerge(["a", "b"])
    push(merge, "a", [(2**62, 0)])
    merge.heartbeat("b", 2**70)
    assert keys_of(merge.pop()) == [(2**62, 0, "a")]


def test_the_watermark_is_a_time_that_was_said():
    merge = SourceMerge(["a", "b"])
    assert merge.pop().watermark == -(2**63)
    push(merge, "a", [(7, 0)])
    merge.heartbeat("b", 5)
    assert merge.pop().watermark == 5
    merge.finish("a")
    merge.finish("b")
    assert merge.pop().watermark == 7


def test_a_source_that_is_too_far_ahead_must_wait():
    merge = SourceMerge(["a", "b"], capacity=3)
    push(merge, "a", [(1, 0), (2, 1)])
    assert merge.wants("a")
    push(merge, "a", [(3, 2), (4, 3)])
    assert not merge.wants("a")
    with pytest.raises(DataError, match="source 'a' is 4 events ahead of source 'b'"):
        push(merge, "a", [(5, 4)])
    assert merge.holding == "b"
    assert merge.wants("b")
    merge.heartbeat("b", 3)
    assert keys_of(merge.pop()) == [(1, 0, "a"), (2, 1, "a")]
    assert merge.wants("a")


def test_heartbeats_alone_take_no_memory():
    merge = SourceMerge(["a", "b"])
    size = len(merge.state().encode())
    for time in range(1000, 2000):
        merge.heartbeat("b", time)
        merge.pop()
    assert len(merge.state().encode()) < size + 100


def test_events_that_come_one_by_one_wait_in_few_pieces():
    merge = SourceMerge(["a", "b"])
    for number in range(1500):
        push(merge, "a", [(number // 3, number)])
    assert len(merge._waiting[0].pieces) < 15
    merge.heartbeat("b", 100)
    assert keys_of(merge.pop()) == [(n // 3, n, "a") for n in range(300)]
    merge.finish("b")
    assert keys_of(merge.pop()) == [(n // 3, n, "a") for n in range(300, 1500)]


def test_who_has_finished_sends_nothing():
    merge = SourceMerge(["a"])
    merge.finish("a")
    with pytest.raises(DataError, match="source 'a' has finished"):
        push(merge, "a", [(1, 0)])


def test_unknown_sources_and_equal_identifiers_are_refused():
    with pytest.raises(DataError, match="identifiers that differ"):
        SourceMerge(["a", "a"])
    with pytest.raises(DataError, match="identifiers that differ"):
        SourceMerge([])
    with pytest.raises(DataError, match="identifiers that differ"):
        SourceMerge("ab")
    with pytest.raises(DataError, match="are strings"):
        SourceMerge([1, 2])
    with pytest.raises(DataError, match="a fan-in of 1 is too small"):
        SourceMerge(["a", "b"], fan_in=1)
    with pytest.raises(DataError) as refused:
        SourceMerge(["pump", "valve"]).heartbeat("pumb", 1)
    assert refused.value.hint == "did you mean 'pump'?"


def test_sources_have_the_same_columns():
    merge = SourceMerge(["a", "b"])
    merge.push("a", pa.table({"ts": [1], "x": [1]}))
    with pytest.raises(DataError, match="source 'b' has other columns"):
        merge.push("b", pa.table({"ts": [1], "y": [1]}))


def test_state_belongs_to_its_sources():
    state = SourceMerge(["a", "b"]).state()
    with pytest.raises(StateError, match="other sources"):
        SourceMerge(["a", "c"]).restore(state)
