"""What a front retains: how far back it goes, and how much it keeps."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.speculate.stretches import EventStretches
from outpace.pattern.checkpoints import CheckpointModel, CheckpointWork, Every, LeastWork

ROWS = pa.schema([("ts", pa.int64())])


def made(model: CheckpointModel | None = None) -> EventStretches[str]:
    return EventStretches(ROWS, "ts", model)


def times(*values: int) -> pa.Table:
    return pa.table({"ts": values}, ROWS)


def begins(kept: EventStretches[str], *values: int) -> bool:
    """Say whether a stretch is to begin with rows of some times."""
    return kept.place_mark(np.array(values), NO_TIME)[0]


def test_it_goes_back_to_the_last_mark_before_the_late_event() -> None:
    kept = made(Every(2))
    for number, piece in enumerate([(1, 2), (4, 4), (6, 7), (9,)]):
        assert begins(kept, *piece)
        assert kept.mark(f"mark {number}") == number
        kept.take(times(*piece), piece[-1], NO_TIME)
    # What has the time of a row that went on may belong before it.
    rows = kept.go_back(times(4, 9))
    assert (kept.last[0], rows["ts"].to_pylist()) == ("mark 1", [4, 4, 6, 7, 9])
    assert (kept.newest, kept.oldest, len(kept), kept.bound) == (1, 0, 2, 3)
    # Numbers rise, also behind a mark that it went back to.
    assert kept.mark("again") == 4


def test_a_time_that_was_told_counts_for_a_mark() -> None:
    kept = made()
    kept.mark("begin")
    kept.take(times(1), 8, NO_TIME)
    kept.mark("told")
    kept.go_back(times(5))
    assert kept.last[0] == "begin"


def test_it_keeps_what_is_within_the_horizon() -> None:
    kept = made(Every(4))
    most = 0
    for time in range(1000):
        if begins(kept, time):
            kept.mark(str(time))
        kept.take(times(time), time, NO_TIME)
        kept.forget(time - 10)
        most = max(most, len(kept))
    assert 10 < most <= 10 + 2 * 4
    rows = kept.go_back(times(989))
    assert int(kept.last[0]) < 989
    assert rows["ts"].to_pylist() == list(range(int(kept.last[0]), 1000))


def test_no_mark_lies_among_what_is_certain() -> None:
    kept = made(Every(2))
    assert kept.place_mark(np.arange(10), 6) == (True, 6)
    kept.mark("begin")
    kept.take(times(1), 1, 1)
    assert kept.place_mark(np.arange(10), 6) == (False, 6)


def test_large_histories_have_few_marks() -> None:
    kept = made(LeastWork(share=1, most=16))
    kept.work.take(1000)
    kept.work.measured(1000.0)  # An event takes so long that a checkpoint is nothing beside it.
    nearest, last = 1 / (16 * math.sqrt(2)), 0
    for time in range(6000):
        if begins(kept, time):
            assert time - last >= nearest * len(kept)
            kept.mark(str(time))
            last = time
        kept.take(times(time), time, NO_TIME)
        kept.forget(time - 2000)
        if time > 4500:
            # No more of them become kept; those that lie nearer are forgotten.
            assert 16 <= kept.newest - kept.oldest <= 1 / nearest + 1


def test_partitions_forgotten_before_a_mark_are_told_to_it() -> None:
    kept = made()
    kept.mark("begin")
    kept.take(times(1), 1, NO_TIME)
    kept.mark("second")
    idle = np.array([3]), np.array([1])
    kept.note_idle(*idle, before=0)
    assert (kept.base[1], kept.last[1]) == ([], [idle])


def test_it_goes_on_where_it_was_saved() -> None:
    kept = made()
    kept.mark("begin")
    kept.take(times(1, 2), 2, NO_TIME)
    kept.mark("second")
    kept.take(times(3), 3, NO_TIME)
    other = made()
    other.restore(kept.state(), "begin again")
    assert other.go_back(times(2))["ts"].to_pylist() == [1, 2, 3]
    assert other.last[0] == "begin again"
    assert other.mark("next") == 2


def test_what_was_certain_of_the_open_stretch_is_still_known_when_it_goes_on() -> None:
    class Asked(Every):
        """Notes what it was asked."""

        def interval(self, work: CheckpointWork) -> int:
            asked.append((work.since, work.certain))
            return self.events

    asked: list[tuple[int, int]] = []
    kept, other = made(Asked(100)), made(Asked(100))
    kept.mark("begin")
    kept.take(times(1, 2, 3, 4), 4, 3)
    other.restore(kept.state(), "begin again")
    for one in (kept, other):
        begins(one, 5, 6)
    assert asked == [(4, 2)] * 2
