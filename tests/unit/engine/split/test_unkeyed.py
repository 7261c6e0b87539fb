"""A queue gives integers in the order in which they came, however they were added and taken."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.split.unkeyed import Queue


@given(st.lists(st.tuples(st.sampled_from([0, 1, 3, 600, 1024, 3000]), st.floats(0, 1))))
def test_a_queue_is_a_list(steps: list[tuple[int, float]]) -> None:
    queue, held, next_value = Queue(), list[int](), 0
    for added, share in steps:
        queue.add(np.arange(next_value, next_value + added))
        held += range(next_value, next_value + added)
        next_value += added
        count = int(share * len(held))
        assert queue.pop(count).tolist() == held[:count]
        del held[:count]
        assert len(queue) == len(held)
        assert queue.values.tolist() == held


def test_what_was_taken_does_not_change() -> None:
    queue = Queue()
    queue.add(np.arange(5))
    taken = queue.pop(3)
    for _ in range(5):
        queue.add(np.full(700, 9))
    assert taken.tolist() == [0, 1, 2]
