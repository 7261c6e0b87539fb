"""Delayed events: each comes once, never early, never later than said, however it is cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import DataError
from outpace.ingest.event_stream import Delays
from outpace.ingest.rate import Rate

EVENTS = 400
DELAYS = st.builds(
    Delays,
    st.builds(
        Rate.of,
        st.integers(1, 5_000),
        st.sampled_from([None, "5x 2 s every 5 s", "3x 10 s every 1 minute"]),
    ),
    longest_us=st.sampled_from([0, 1, 999, 10_000, 300_000, 5_000_000]),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 1000),
    events=st.just(EVENTS),
)


@given(DELAYS, st.lists(st.integers(0, EVENTS), max_size=6))
def test_any_cut_gives_the_same_order_and_each_event_once(delays: Delays, cuts: list[int]) -> None:
    whole = delays.arriving(0, EVENTS).tolist()
    assert sorted(whole) == list(range(EVENTS))
    edges = [0, *sorted(cuts), EVENTS]
    parts = [delays.arriving(first, stop) for first, stop in itertools.pairwise(edges)]
    assert np.concatenate(parts).tolist() == whole


@given(DELAYS)
def test_no_event_is_late_for_slack_of_the_longest_delay(delays: Delays) -> None:
    times = delays.rate.times(np.arange(EVENTS))[delays.arriving(0, EVENTS)]
    before = np.concatenate([[0], np.maximum.accumulate(times)[:-1]])
    assert (times >= before - delays.longest_us).all()


@given(DELAYS)
def test_no_event_comes_before_its_time(delays: Delays) -> None:
    for tick in range(0, EVENTS, 37):
        assert all(number <= tick for number in delays.arriving(tick, tick + 1).tolist())


@given(DELAYS, st.integers(0, EVENTS - 1), st.integers(1, 50))
def test_a_cut_holds_as_many_events_as_it_may(delays: Delays, first: int, most: int) -> None:
    stop = delays.cut(first, EVENTS, most)
    assert first < stop <= EVENTS
    assert len(delays.arriving(first, stop)) <= most or stop == first + 1
    if stop < EVENTS and len(delays.arriving(first, stop)) < most:
        assert len(delays.arriving(first, stop + 1)) > most


def test_a_share_of_the_events_is_delayed() -> None:
    delays = Delays(Rate.of(1000), longest_us=2_000_000, share=0.1, seed=3)
    order = delays.arriving(10_000, 60_000)
    behind = np.maximum.accumulate(order) - order
    assert 0.08 < (behind > 0).mean() < 0.12
    assert 1_500 < behind.max() <= 2_000
    other = Delays(Rate.of(1000), longest_us=2_000_000, share=0.1, seed=4)
    assert order.tolist() != other.arriving(10_000, 60_000).tolist()


@pytest.mark.parametrize("wrong", [{"longest_us": -1}, {"share": 1.5}, {"longest_us": 1 << 33}])
def test_what_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(DataError):
        Delays(Rate.of(10), **wrong)  # type: ignore[arg-type]
