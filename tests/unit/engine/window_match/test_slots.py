"""Windows in slots: snapshots share what steps do not change, and none sees the other's steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.engine.message import EventsArrived, Instruction
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.split.windows import Windows
from outpace.engine.window_match import slots
from outpace.engine.window_match.slots import WindowSlots

SCHEMA = pa.schema([("ts", pa.int64()), ("key", pa.int64()), ("kind", pa.int64())])
BASE = (
    op.Query("q")
    .order_by("ts")
    .pattern("A -> B -> C")
    .define(A="kind = 0", B="kind = 1", C="kind = 2")
    .measures(a="A.ts", c="C.ts")
)
QUERIES = (
    BASE.over(op.windows.count(9, slide=1)),
    BASE.partition_by("key").over(op.windows.count(6, slide=2)),
    BASE.partition_by("key").over(op.windows.time(20, slide=3)),
    BASE.partition_by("key").pattern("A B+ C").over(op.windows.count(7, slide=1)),
)


def block(begin: int, size: int) -> EventsArrived:
    at = np.arange(begin, begin + size)
    return EventsArrived(
        pa.table({"ts": at, "key": at * at % 7 % 3, "kind": at * 7919 % 11 % 3}, SCHEMA)
    )


@examples(20)
@given(
    st.sampled_from(QUERIES),
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 25)), max_size=25),
)
def test_whoever_goes_on_from_a_snapshot_finds_what_the_events_say(
    query: op.Query, acts: list[tuple[int, bool, int]]
) -> None:
    spec = OperatorSpec(query, SCHEMA)
    operators = [WholeOperator(spec)]
    taken: list[list[EventsArrived]] = [[]]
    given: list[list[list[Instruction]]] = [[]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "_CLOSED_MAX", 3)
        for place, snaps, size in acts:
            at = place % len(operators)
            if snaps:
                operators.append(operators[at].snapshot())
                taken.append([*taken[at]])
                given.append([*given[at]])
                continue
            taken[at].append(block(sum(one.rows.num_rows for one in taken[at]), size))
            given[at].append(operators[at].step(taken[at][-1]))
        for operator, stimuli, said in zip(operators, taken, given, strict=True):
            plain = WholeOperator(spec)
            assert [plain.step(stimulus) for stimulus in stimuli] == said
            assert operator.state().encode() == plain.state().encode()


def own_bytes(part: Any, twin: object) -> int:
    """Return the bytes of arrays of one part that share no memory with those of the other."""
    if isinstance(twin, np.ndarray):
        return 0 if np.shares_memory(part, twin) else twin.nbytes
    inner: dict[str, Any] = vars(twin) if hasattr(twin, "__dict__") else {}
    return sum(own_bytes(getattr(part, name), one) for name, one in inner.items())


def test_a_snapshot_copies_one_number_of_each_of_many_windows() -> None:
    windows, count = WindowSlots(), 100_000
    numbers, zero = np.arange(count), np.zeros(count, np.int64)
    windows.add(Windows(zero, numbers, numbers, zero, zero, zero, zero), numbers)
    twin = windows.snapshot()
    assert own_bytes(windows, twin) == windows.copied_bytes < 8 * count + 100
