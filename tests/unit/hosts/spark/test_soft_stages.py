"""Instances that a process still has from the batch before."""

from __future__ import annotations

from outpace.hosts.spark.soft_stages import SoftStages


def test_a_process_has_so_many_instances_at_most_and_each_once() -> None:
    soft: SoftStages[str, int] = SoftStages(2)
    one = "a query"
    for number in range(3):
        soft.put(one, number, b"saved", number)
    assert [soft.take(one, number, b"saved") for number in range(3)] == [None, 1, 2]
    soft.put(one, 0, b"older", 0)
    soft.put(one, 0, b"newer", 1)
    assert soft.take(one, 0, b"older") is None
    assert soft.take(one, 0, b"newer") is None
