"""Batches: every window is in one of them, with all windows and events that it shares."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from outpace.engine.arrays import Integers
from outpace.engine.divide.batches import (
    BatchCutter,
    TimeBatches,
    WindowBatch,
)
from outpace.engine.split.windows import OPEN, Split, Windows
from outpace.engine.wire import read_windows, write_windows


def windows(first: list[int], stop: list[int]) -> Windows:
    numbers = np.arange(len(first)) + 3
    starts, stops = np.array(first, np.int64), np.array(stop, np.int64)
    return Windows(numbers * 0, numbers, starts, stops, starts * 10, stops * 10, stops - 1)


def rows_of(all_windows: Windows, keep: Integers) -> Windows:
    return Windows(*(column[keep] for column in all_windows.columns))


@st.composite
def streams(draw: st.DrawFn) -> Windows:
    """Windows that content opens and closes: any overlap, closing in any order."""
    first = sorted(draw(st.lists(st.integers(0, 40), max_size=25)))
    return windows(first, [begin + draw(st.integers(1, 12)) for begin in first])


def splits(stream: Windows, cuts: list[int]) -> list[Split]:
    """What a splitter says of the stream, cut into pieces after some ordinals."""
    said = []
    for low, high in zip([-1, *cuts], [*cuts, 10**6], strict=True):
        opened = np.flatnonzero((stream.first > low) & (stream.first <= high))
        closing = np.flatnonzero((stream.closed_at > low) & (stream.closed_at <= high))
        new = rows_of(stream, opened)
        new.stop[stream.stop[opened] - 1 > low] = OPEN
        new.closed_at[:] = -1
        said.append(Split(new, rows_of(stream, closing[np.argsort(stream.closed_at[closing])])))
    return said


@examples(150)
@given(
    streams(),
    st.integers(1, 15),
    st.none() | st.integers(1, 5),
    st.booleans(),
    st.lists(st.integers(0, 55), max_size=4).map(sorted),
)
def test_every_window_is_own_once_and_comes_with_its_neighbours(
    stream: Windows, rows: int, count: int | None, neighbours: bool, cuts: list[int]
) -> None:
    cutter = BatchCutter(rows, count, neighbours=neighbours)
    batches: list[WindowBatch] = []
    said = splits(stream, cuts)
    for place, split in enumerate(said):
        batches += cutter.push(split, ended=place == len(said) - 1)
        seen = cuts[place] + 1 if place < len(cuts) else 10**6
        left = [n for n in stream.number.tolist() if not batches or n >= batches[-1].stop]
        needed = stream.first[np.isin(stream.number, left)]
        assert cutter.needed_from(seen) <= min([seen, *needed.tolist()])
    own = [n for batch in batches for n in range(batch.first, batch.stop)]
    assert own == stream.number.tolist()
    for batch in batches:
        mine = (stream.number >= batch.first) & (stream.number < batch.stop)
        low, high = stream.first[mine].min(), stream.stop[mine].max()
        near = mine if not neighbours else (stream.first < high) & (stream.stop > low)
        wanted = stream.number[near]
        assert set(wanted.tolist()) <= set(batch.windows.number.tolist())
        for name, column in vars(batch.windows).items():
            places = batch.windows.number - 3
            assert column.tolist() == getattr(stream, name)[places].tolist()
        if count is not None:
            assert batch.stop - batch.first <= count
        read = read_windows(pa.py_buffer(write_windows(batch.windows)))
        assert [c.tolist() for c in read.columns] == [c.tolist() for c in batch.windows.columns]


def test_windows_that_do_not_overlap_have_no_neighbours() -> None:
    stream = windows([0, 4, 9, 12], [4, 9, 12, 20])
    batches = list(BatchCutter(6).push(Split(stream, stream), ended=True))
    assert [batch.windows.number.tolist() for batch in batches] == [[3, 4], [5, 6]]
    assert [batch.rows for batch in batches] == [(0, 9), (9, 20)]


def test_long_batches_of_many_windows() -> None:
    starts = list(range(3000))
    stream = windows(starts, [start + 5 for start in starts])
    batches = list(BatchCutter(1000).push(Split(stream, stream), ended=True))
    sizes = [batch.stop - batch.first for batch in batches]
    assert sizes == [996, 996, 996, 12]
    assert [len(batch.windows) for batch in batches] == [1000, 1004, 1004, 16]


@pytest.mark.parametrize("neighbours", [True, False])
@given(
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(-40, 40),
    st.integers(1, 6),
    st.lists(st.integers(-200, 200), max_size=30),
)
def test_a_batch_of_time_has_the_events_of_its_windows(
    neighbours: bool, size: int, slide: int, offset: int, count: int, given_times: list[int]
) -> None:
    batches = TimeBatches(size, slide, offset, count, neighbours)
    times = np.array(sorted(given_times), np.int64)
    sliced = {number: (first, stop) for number, first, stop in batches.slices(times)}
    for number in range(-250, 250):
        low, high = batches.windows(number)
        start, end = offset + low * slide, offset + (high - 1) * slide + size
        inside = np.flatnonzero((times >= start) & (times < end)).tolist()
        first, stop = sliced.get(number, (0, 0))
        assert list(range(first, stop)) == inside
        assert (batches.start(number), batches.end(number)) == (start, end)
        own = set(range(number * count, (number + 1) * count))
        assert own <= set(range(low, high))
    assert len(sliced) == len(list(batches.slices(times)))


def test_times_at_the_ends_of_what_64_bits_hold() -> None:
    limits = np.iinfo(np.int64)
    times = np.array([limits.min, limits.min + 1, 0, limits.max], np.int64)
    for offset in (-7, 7):
        found = list(TimeBatches(10, 5, offset, 4).slices(times))
        assert [(first, stop) for _, first, stop in found if stop == 4][-1] == (3, 4)
        assert min(first for _, first, _ in found) == 0
