"""Streams of generated events: any stretch is the same, and in order they are the generator's."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from outpace.errors import OutpaceError
from outpace.ingest.event_stream import EventStream, stream_of

LIMIT = 500


@pytest.mark.parametrize("kind", ["simple", "stock", "football", "building"])
def test_sorted_by_number_a_late_stream_is_the_generators(kind: str) -> None:
    stream = EventStream(kind, rate=100, delay_us=2_000_000, delayed=0.3, limit=LIMIT, keys=7)
    events = pa.Table.from_batches([stream.read(0, LIMIT)])
    in_order = stream.source.table().combine_chunks()
    assert events.sort_by("seq").combine_chunks() == in_order
    assert events["seq"].to_pylist() != in_order["seq"].to_pylist()


@examples(25)
@given(
    st.sampled_from(["simple", "stock"]),
    st.sampled_from([0, 50_000, 3_000_000]),
    st.lists(st.integers(0, LIMIT), max_size=4),
)
def test_any_cut_gives_the_same_stream(kind: str, delay_us: int, cuts: list[int]) -> None:
    stream = EventStream(kind, rate=100, delay_us=delay_us, delayed=0.5, limit=LIMIT)
    edges = [0, *sorted(cuts), LIMIT]
    parts = [stream.read(edges[n], edges[n + 1]) for n in range(len(edges) - 1)]
    assert pa.Table.from_batches(parts).combine_chunks() == pa.Table.from_batches(
        [stream.read(0, LIMIT)]
    )


def test_pieces_cover_a_stretch_and_outweigh_the_delay() -> None:
    stream = EventStream(rate=1000, delay_us=5_000_000)
    cuts = list(stream.cuts(20_000, 31_000, ticks=100))
    assert cuts[0][0] == 20_000
    assert cuts[-1][1] == 31_000
    assert all(stop == begin for (_, stop), (begin, _) in itertools.pairwise(cuts))
    assert cuts[0][1] - cuts[0][0] >= 5_000
    assert list(EventStream().cuts(0, 250, ticks=100)) == [(0, 100), (100, 200), (200, 250)]
    assert list(stream.cuts(7, 7)) == []


def test_ticks_are_due_by_the_rate_and_end_with_the_limit() -> None:
    stream = EventStream(rate=10, burst="5x 1 s every 2 s", limit=40)
    assert stream.due(-1) == 0
    assert stream.due(0) == 1
    assert stream.due(1_000_000) == 11
    assert stream.due(1_100_000) == 16
    assert stream.due(10**12) == 40
    assert stream.elapsed_us(15) == 1_100_000


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "stocks"}, r"no events of kind 'stocks'(.|\n)*did you mean 'stock'"),
        ({"kind": "stock", "types": "ab"}, "have no types"),
        ({"kind": "stock", "keys": 10**6}, "symbols of three letters"),
        ({"delayed": 2.0}, "share of delayed events"),
        ({"burst": "often"}, "a burst is not written as 'often'"),
    ],
)
def test_settings_are_checked_at_once(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(OutpaceError, match=message):
        stream_of(wrong)
