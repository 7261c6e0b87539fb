"""Many sources as one stream, read one batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import DataError
from outpace.ingest.generators import simple_events
from outpace.ingest.source import Source, merged


@dataclass(frozen=True)
class Listed(Source):
    """A source of times that are listed."""

    times: tuple[int, ...]

    def batches(self, rows: int = 64) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self.times), rows):
            times = self.times[start : start + rows]
            numbers = list(range(start, start + len(times)))
            columns = [times, numbers, [self.id] * len(times)]
            yield pa.RecordBatch.from_arrays(list(map(pa.array, columns)), ["ts", "seq", "who"])


def keys(tables):
    rows = [row for table in tables for row in table.to_pylist()]
    return [(row["ts"], row["seq"], row["who"]) for row in rows]


@given(
    st.lists(st.lists(st.integers(0, 20), max_size=20).map(sorted), min_size=1, max_size=5),
    st.integers(1, 8),
)
def test_merged_sources_are_sorted(several, rows):
    sources = [Listed(f"s{number}", tuple(times)) for number, times in enumerate(several)]
    every = [
        (time, number, source.id) for source in sources for number, time in enumerate(source.times)
    ]
    assert keys(merged(sources, rows)) == sorted(every)


def test_a_source_is_read_only_as_far_as_the_others_need():
    read = []

    @dataclass(frozen=True)
    class Watched(Listed):
        def batches(self, rows: int = 64) -> Iterator[pa.RecordBatch]:
            for batch in super().batches(rows):
                read.append(self.id)
                yield batch

    slow = Watched("slow", tuple(range(0, 1000, 100)))
    fast = Watched("fast", tuple(range(1000)))
    stream = merged([slow, fast], rows=1)
    first = next(stream)
    assert keys([first]) == [(0, 0, "fast"), (0, 0, "slow")]
    assert read.count("slow") <= 2
    assert read.count("fast") <= 2


def test_sources_of_one_operator_have_different_identifiers():
    with pytest.raises(DataError, match="identifiers that differ"):
        next(merged([simple_events(1), simple_events(2)]))


def test_a_time_that_is_null_is_refused():
    @dataclass(frozen=True)
    class Broken(Source):
        def batches(self, rows: int = 64) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"ts": [1, None], "seq": [0, 1]})

    with pytest.raises(DataError, match="column 'ts' of source 'west' has NULLs"):
        next(merged([Broken("west")]))


def test_sources_of_one_operator_have_the_same_time_column():
    with pytest.raises(DataError, match="the same time column") as refused:
        next(merged([Listed("west", (1,)), Listed("east", (1,), time="at")]))
    assert refused.value.detail == "there are at, ts"


def test_a_source_without_events_has_no_table():
    assert list(merged([simple_events(0)])) == []
    with pytest.raises(DataError, match="source 'simple' has no events"):
        simple_events(0).table()
