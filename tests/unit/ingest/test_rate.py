"""Rates: times of events and counts of events are each other's inverse, with bursts too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import OutpaceError
from outpace.ingest.rate import Rate

RATES = st.one_of(
    st.builds(Rate.of, st.integers(1, 3_000_000)),
    st.builds(
        lambda rate, times, length, calm: Rate.of(
            rate, f"{times}x {length} ms every {length + calm} ms"
        ),
        st.integers(1000, 200_000),
        st.integers(1, 20),
        st.integers(1, 5000),
        st.integers(1, 5000),
    ),
)


@given(RATES, st.integers(0, 10**9))
def test_what_has_happened_at_a_time_are_the_events_up_to_it(rate: Rate, first: int) -> None:
    numbers = np.arange(first, first + 300)
    times = rate.times(numbers)
    assert (np.diff(times) >= 0).all()
    for at in (int(times[0]) - 1, *times[::50].tolist(), int(times[-1]) - 1):
        happened = int(rate.happened(np.int64(at)))
        expected = int((times <= at).sum())
        # The list is a part of the stream: what lies outside it is not counted there.
        assert max(first, min(happened, first + 300)) - first == expected


def test_a_steady_rate_is_exact() -> None:
    numbers = np.arange(2_000)
    for rate in (1, 3, 7, 1000, 999_983, 4_000_000):
        assert (Rate.of(rate).times(numbers) == numbers * 1_000_000 // rate).all()


def test_a_burst_ends_every_period() -> None:
    rate = Rate.of(100, "10x 5 s every 60 s")
    seconds = np.arange(0, 180) * 1_000_000 - 1
    per_second = np.diff(rate.happened(seconds))
    assert per_second[:55].tolist() == [100] * 55
    assert per_second[55:60].tolist() == [1000] * 5
    assert per_second[60:120].tolist() == per_second[:60].tolist()
    assert int(rate.happened(np.int64(-1))) == 0
    assert int(rate.happened(np.int64(-(10**12)))) == 0


def test_a_long_period_does_not_overflow() -> None:
    rate = Rate.of(1_000_000, "3x 1 hour every 1 day")
    events = 23 * 3600 * 1_000_000 + 3 * 3600 * 1_000_000
    assert rate.times(np.array([events - 1, events])).tolist() == [86_399_999_999, 86_400_000_000]
    assert int(rate.happened(np.int64(86_400_000_000))) == events + 1


@pytest.mark.parametrize(
    "burst",
    [
        "",
        "10x",
        "10x 5 s",
        "x 5 s every 60 s",
        "10x 5 every 60 s",
        "10x 5 s every 5 s",
        "0x 5 s every 60 s",
        "10x 0 s every 60 s",
        "10x 5 s every 1 month",
    ],
)
def test_a_burst_that_cannot_be_is_refused(burst: str) -> None:
    with pytest.raises(OutpaceError):
        Rate.of(10, burst)


def test_a_rate_that_cannot_be_is_refused() -> None:
    with pytest.raises(OutpaceError, match="1 event a second or more, not 0"):
        Rate.of(0)
