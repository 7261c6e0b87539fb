"""What Spark would observe of the stages of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outpace.engine.codec.cell import COUNTERS, Counters


def observed(
    told: Mapping[str, Sequence[Mapping[str, int]]], stages: Sequence[str]
) -> dict[str, list[list[int]]]:
    """Reports of stages, several of each, as they are in a progress."""
    reports = [
        [stages.index(stage), *(getattr(Counters(**counters), name) for name in COUNTERS)]
        for stage, each in told.items()
        for counters in each
    ]
    return {" > ".join(stages): reports}
