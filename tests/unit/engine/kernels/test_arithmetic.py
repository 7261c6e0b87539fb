"""What compiled conditions compute is, to the last bit, what the functions mean in Python."""

import datetime
import math

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outpace.engine.kernels.arithmetic import (
    log_of_base,
    power,
    remainder,
    round_to,
    times_so_many,
)
from outpace.pattern.functions import find_function
from outpace.pattern.functions.function import Signature

FLOAT = pa.float64()
#: Numbers as people write them, halves among them, and any others.
NUMBERS = (
    st.integers(-(10**6), 10**6).map(lambda whole: whole / 1000)
    | st.integers(-(10**4), 10**4).map(lambda whole: (10 * whole + 5) / 100)
    | st.floats()
)


def _python(name, *kinds, result=FLOAT):
    return find_function(name).python(Signature(kinds, result))


def _same(compiled, plain):
    assert compiled == plain or (math.isnan(compiled) and math.isnan(plain))


@given(NUMBERS, st.integers(0, 12), st.sampled_from([-1, 0, 1]))
def test_rounding_goes_by_the_digits_that_are_written(value, digits, aside):
    value = math.nextafter(value, math.inf * aside) if aside else value
    assume(not abs(value) * 10.0**digits >= 1e13)
    expected = _python("round", FLOAT, pa.int64())(value, digits)
    _same(round_to(value, 10.0**digits), expected)


@pytest.mark.parametrize(("value", "expected"), [(2.675, 2.68), (-1.005, -1.01), (0.285, 0.29)])
def test_halves_that_no_double_holds_go_away_from_zero(value, expected):
    assert round_to(value, 100.0) == expected


@given(NUMBERS, NUMBERS)
def test_powers_logarithms_and_remainders(left, right):
    _same(power(left, right), _python("power", FLOAT, FLOAT)(left, right))
    _same(log_of_base(left, right), _python("log", FLOAT, FLOAT)(left, right))
    if right != 0:
        _same(remainder(left, right), _python("%", FLOAT, FLOAT)(left, right))


@given(st.floats(-300, 300))
def test_a_square_is_that_of_pow(value):
    assert power(value, 2.0) == math.pow(value, 2.0)


@given(
    st.integers(-(1 << 52), 1 << 52) | st.integers(-1000, 1000),
    st.floats(-1e3, 1e3) | st.integers(-9, 9).map(lambda half: half / 2),
)
def test_an_interval_so_many_times_is_rounded_to_the_even(count, number):
    assume(abs(count * number) < 1 << 52)
    expected = datetime.timedelta(microseconds=count) * number
    assert times_so_many(count, number) == expected // datetime.timedelta(microseconds=1)
