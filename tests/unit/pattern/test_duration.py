from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import PatternSyntaxError, UnsupportedError
from outpace.pattern.duration import parse_duration, print_duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("500 ms", timedelta(milliseconds=500)),
        ("500ms", timedelta(milliseconds=500)),
        ("1 hour", timedelta(hours=1)),
        ("2 HOURS", timedelta(hours=2)),
        ("2 s", timedelta(seconds=2)),
        ("10 us", timedelta(microseconds=10)),
        ("5 min", timedelta(minutes=5)),
        ("5 mins", timedelta(minutes=5)),
        ("1 day 3 h", timedelta(days=1, hours=3)),
        ("1 day, 3 h", timedelta(days=1, hours=3)),
        ("  2 weeks ", timedelta(weeks=2)),
        ("1.5 s", timedelta(seconds=1.5)),
        ("-3 d", timedelta(days=-3)),
        ("0 s", timedelta(0)),
    ],
)
def test_reads_durations(text, duration):
    assert parse_duration(text) == duration


@given(st.integers(-(10**16), 10**16).map(lambda count: timedelta(microseconds=count)))
def test_printed_durations_read_back(duration):
    assert parse_duration(print_duration(duration)) == duration


@pytest.mark.parametrize(
    "text", ["", " ", "5", "hour", "1 moth", "1 h h", "1e3 s", "0.1 us", "9" * 30 + " d"]
)
def test_bad_durations_are_refused(text):
    with pytest.raises(PatternSyntaxError):
        parse_duration(text)


@pytest.mark.parametrize("text", ["1 month", "2 years", "1 quarter"])
def test_calendar_units_are_refused(text):
    with pytest.raises(UnsupportedError, match="no fixed length"):
        parse_duration(text)
