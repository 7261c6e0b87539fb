"""Windows that follow from their numbers are those with all columns, wherever they are taken."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.split.windows import (
    Linear,
    LinearWindows,
    Windows,
    joined_windows,
    take_windows,
)
from outpace.engine.wire import read_windows, write_windows

OTHERS = [field.name for field in fields(Windows) if field.name != "number"]


@st.composite
def windows(draw: st.DrawFn) -> tuple[LinearWindows, Windows]:
    """Draw windows that are told by rules, and the same with all columns."""
    number: np.ndarray | range = range(draw(st.integers(-9, 9)), draw(st.integers(10, 15)))
    if draw(st.booleans()):
        number = np.unique(draw(st.lists(st.integers(-20, 20), max_size=9))).astype(np.int64)
    small = st.integers(-5, 5)
    rules = st.builds(Linear, small, small, st.none() | small)
    told: dict[str, np.ndarray | Linear] = {}
    made = {"number": np.array(number, np.int64)}
    for name in OTHERS:
        rule = draw(rules)
        values = [rule.base + rule.step * int(one) for one in number]
        if rule.least is not None:
            values = [max(rule.least, value) for value in values]
        made[name] = np.array(values, np.int64)
        told[name] = made[name] if draw(st.booleans()) else rule
    return LinearWindows(number, **told), Windows(**made)


def lists(some: Windows) -> list[list[int]]:
    return [column.tolist() for column in some.columns]


@given(windows(), st.sampled_from(OTHERS))
def test_they_are_the_same_windows(pair: tuple[LinearWindows, Windows], name: str) -> None:
    told, made = pair
    assert len(told) == len(made)
    travelled = read_windows(pa.py_buffer(write_windows(told)))
    at = np.arange(len(made))[::2]
    assert lists(take_windows(told, at)) == lists(take_windows(made, at))
    assert lists(joined_windows(told, made)) == lists(joined_windows(made, told))
    zeros = np.zeros(len(made), np.int64)
    assert lists(replace(told, **{name: zeros})) == lists(replace(made, **{name: zeros}))
    assert lists(travelled) == lists(told) == lists(made)
    assert all(column.dtype == np.int64 for column in told.columns)


def test_what_travels_does_not_grow_with_the_windows() -> None:
    zero = Linear(0)
    sizes = [
        len(write_windows(LinearWindows(range(count), **dict.fromkeys(OTHERS, zero))))
        for count in (10, 10_000)
    ]
    assert sizes[1] == sizes[0]


def test_nothing_else_is_made_up() -> None:
    with pytest.raises(AttributeError, match="length"):
        LinearWindows(range(3), **dict.fromkeys(OTHERS, Linear(0))).length  # noqa: B018  # reading it is what fails
