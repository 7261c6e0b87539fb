"""Events by sequence number, against the definitions and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outpace.engine.kernels import sequence
from outpace.testing.sequence import Mean, SequenceOracle

SETTINGS = {"alpha": 0.6, "beta": 0.8, "deviations": 2.0, "shortest": 0, "longest": 50}
#: Of a kernel alone: numbers have no end.
ENDLESS = 0

#: The number of an event, and how long after the one before it it arrives.
Sent = tuple[int, int]


class Kernel:
    """The kernel, with what it holds between two calls."""

    def __init__(
        self, settings: dict[str, float], numbers: int = ENDLESS, first: int | None = None
    ) -> None:
        self.settings = np.array([float(value) for value in (*settings.values(), numbers)])
        self.numbers = numbers
        self.whole = np.full(sequence.WHOLE, sequence.NOTHING)
        self.whole[sequence.DUE] = sequence.NEVER
        self.whole[sequence.EXPECTED] = sequence.NOTHING if first is None else first
        self.fractions = np.full(sequence.FRACTIONS, math.nan)
        #: Number, arrival, due and row of the events that are held.
        self.held = np.zeros((4, 0), np.int64)
        self.late: list[int] = []
        self.order: list[int] = []
        self.timed: set[int] = set()

    def arrive(self, events: np.ndarray, now: int) -> None:
        """Take events: rows of number, arrival and row."""
        new = np.insert(events.T, 2, 0, axis=0)
        columns = np.ascontiguousarray(np.concatenate([self.held, new], axis=1))
        count = columns.shape[1]
        fates, order = np.zeros(count, np.int8), np.zeros(count, np.int64)
        counts = np.zeros(1, np.int64)
        sequence.order_sequences(
            np.array([0, count]),
            *columns[:3],
            np.array([self.held.shape[1]]),
            np.array([now]),
            self.settings,
            self.whole[None],
            self.fractions[None],
            fates,
            order,
            counts,
        )
        entered = int(counts[0])
        self.order += columns[3, order[:entered]].tolist()
        self.late += columns[3, fates == sequence.LATE].tolist()
        assert np.isin(fates[order[:entered]], (sequence.ADMITTED, sequence.TIMED)).all()
        self.timed.update(columns[3, fates == sequence.TIMED].tolist())
        stay = int((fates == sequence.HELD).sum())
        self.held = columns[:, order[entered : entered + stay]]
        held = self.held[0]
        if self.numbers:
            held = (held - self.whole[sequence.EXPECTED]) % self.numbers
        assert (np.diff(held) > 0).all()


def arrived(sent: list[Sent]) -> np.ndarray:
    """Return events with their times of arrival and rows."""
    clock = np.cumsum([wait for _, wait in sent])
    rows = [(number, clock[row], row) for row, (number, _) in enumerate(sent)]
    return np.array(rows, np.int64).reshape(-1, 3)


@given(
    st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 20)), max_size=300),
    st.integers(-300, 300),
    st.integers(0, 300),
)
def test_numbers_that_begin_anew_go_on(sent: list[Sent], first: int, cut: int) -> None:
    """With 256 numbers all is as without an end, if none is off by more than half of them."""
    events = arrived([(first + row + off, wait) for row, (off, wait) in enumerate(sent)])
    endless, bounded = Kernel(SETTINGS), Kernel(SETTINGS, numbers=256)
    short = events.copy()
    short[:, 0] = (events[:, 0] + 128) % 256 - 128
    now = int(events[:, 1].max(initial=0))
    for kernel, rows in ((endless, events), (bounded, short)):
        kernel.arrive(rows[:cut], int(rows[:cut, 1].max(initial=0)))
        kernel.arrive(rows[cut:], now)
        kernel.arrive(rows[:0], now + 50)
    assert bounded.order == endless.order
    assert bounded.late == endless.late


@example([(0, 0), (2, 1), (4, 1), (1, 1)], 4, 0, 50, 2.0, None, 0)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20))),
    st.integers(0, 60),
    st.sampled_from([0, 5]),
    st.sampled_from([5, 50]),
    st.sampled_from([0.0, 2.0]),
    st.sampled_from([None, 0, 3]),
    st.sampled_from([0, sequence.GREATEST - 20]),
)
def test_as_defined(
    sent: list[Sent],
    cut: int,
    shortest: int,
    longest: int,
    deviations: float,
    first: int | None,
    least: int,
) -> None:
    """Also where numbers come to their end."""
    settings = SETTINGS | {"shortest": shortest, "longest": longest, "deviations": deviations}
    events = arrived([(least + number, wait) for number, wait in sent])
    first = None if first is None else least + first
    oracle, kernel = SequenceOracle(**settings, first=first), Kernel(settings, first=first)
    for number, clock, row in events.tolist():
        oracle.arrive(row, number, clock)
        oracle.pass_time(clock)
    for part in (events[:cut], events[cut:]):
        if len(part):
            kernel.arrive(part, int(part[-1, 1]))
    assert (kernel.order, kernel.late) == (oracle.order, [*oracle.late])
    due = min((due for _, due, _ in oracle.held.values()), default=sequence.NEVER)
    assert kernel.whole[sequence.DUE] == due, "whoever waits for it would be told too early"
    end = int(events[-1, 1] + 1000) if len(events) else 0
    oracle.pass_time(end)
    kernel.arrive(events[:0], end)
    assert (kernel.order, kernel.late) == (oracle.order, [*oracle.late])
    assert kernel.timed == oracle.timed
    assert sorted([*kernel.order, *kernel.late]) == list(range(len(sent)))


@given(st.permutations(range(12)), st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_exact_while_gaps_close_in_time(numbers: list[int], waits: list[int]) -> None:
    """An event is let in behind all that were sent before it, if the longest wait allows it."""
    kernel = Kernel(SETTINGS | {"shortest": 1000, "longest": 1000}, first=0)
    kernel.arrive(arrived([*zip(numbers, waits, strict=True)]), 36)
    assert [numbers[row] for row in kernel.order] == list(range(12))


def test_example_of_the_paper() -> None:
    """Rajendran 2019, 3.2.1: events 1 2 4 5 6 3 7; 4, 5 and 6 are held until 3 is there."""
    kernel = Kernel(SETTINGS | {"shortest": 50})
    held = []
    for row, number in enumerate([1, 2, 4, 5, 6, 3, 7]):
        kernel.arrive(np.array([[number, row, number]]), row)
        held.append(kernel.held[0].tolist())
    assert held == [[], [], [4], [4, 5], [4, 5, 6], [], []]
    assert kernel.order == [1, 2, 3, 4, 5, 6, 7]


def test_equations_by_hand() -> None:
    """Some events; the numbers are those of equations 3.1 to 3.11, worked out with a pencil.

    Arrivals 0, 10, 20, 32 of numbers 0 to 3 give averages 10, 10, 0.6 * 10 + 0.4 * 12 = 10.8 and
    deviations 10 / 2 = 5, 0.6 * 5 + 0.4 * 0 = 3, 0.6 * 3 + 0.4 * |12 - 10| = 2.6. Number 5 at 40 is
    held as long as any may be, since no gap was seen. So is 6 at 41. Number 4 at 45 comes 13 after
    3: deviation 0.6 * 2.6 + 0.4 * |13 - 10.8| = 2.44, average 0.6 * 10.8 + 0.4 * 13 = 11.68; the
    gap took 5, so times held have the average 5 and the deviation 2.5. Number 8 at 50 is held, at
    most 11.68 + 2 * 2.44 = 16.56. Number 7 at 52: the gap took 2, so times held have the deviation
    0.8 * 2.5 + 0.2 * |2 - 5| = 2.6 and the average 0.8 * 5 + 0.2 * 2 = 4.4. Number 10 at 60 is
    held, 11 at 61 too; the time of 10 is up before 9 comes.
    """
    kernel = Kernel(SETTINGS)
    known, means = kernel.whole, kernel.fractions
    times_held = [sequence.HOLDING, sequence.HOLDING_OFF]

    def take(number: int, clock: int) -> None:
        kernel.arrive(np.array([[number, clock, number]]), clock)

    for number, clock in [(0, 0), (1, 10), (2, 20), (3, 32)]:
        take(number, clock)
    assert means[[sequence.BETWEEN, sequence.BETWEEN_OFF]].tolist() == pytest.approx([10.8, 2.6])
    take(5, 40)
    take(6, 41)
    assert known[sequence.DUE] == 40 + SETTINGS["longest"]
    take(4, 45)
    assert means.tolist() == pytest.approx([11.68, 2.44, 5.0, 2.5]), "the gap counts once"
    take(8, 50)
    assert known[sequence.DUE] == 50 + math.floor(16.56)
    take(7, 52)
    assert means[times_held].tolist() == pytest.approx([4.4, 2.6])
    take(10, 60)
    take(11, 61)
    due = int(known[sequence.DUE])
    assert due == 60 + math.floor(
        max(means[sequence.BETWEEN] + 2 * means[sequence.BETWEEN_OFF], 4.4 + 5.2)
    )
    kernel.arrive(np.zeros((0, 3), np.int64), due)
    assert known[sequence.EXPECTED] == 12
    take(9, due + 1)
    assert kernel.late == [9]
    # The late event counts as if it had been waited for since 10 came.
    waited = due + 1 - 60
    assert means[sequence.HOLDING] == pytest.approx(0.8 * 4.4 + 0.2 * waited)


def test_a_very_late_event_counts_as_the_longest_wait() -> None:
    kernel = Kernel(SETTINGS)
    kernel.arrive(arrived([(0, 0), (1, 10), (3, 1), (2, 9_000)]), 9_011)
    assert kernel.late == [3]
    assert kernel.fractions[sequence.HOLDING] == SETTINGS["longest"]


def test_the_first_gap_that_stays_is_the_only_one_that_waits_longest() -> None:
    """Where events are lost, and none is late, a gap is waited for as long as events are apart."""
    kernel = Kernel(SETTINGS)
    kernel.arrive(arrived([(0, 0), (1, 2), (3, 2)]), 4)
    assert kernel.whole[sequence.DUE] == 4 + SETTINGS["longest"]
    kernel.arrive(np.array([[5, 60, 3]]), 60)
    assert kernel.whole[sequence.DUE] < 60 + 10


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20))), st.integers(0, 60))
def test_how_often_one_looks_makes_no_difference(sent: list[Sent], pause: int) -> None:
    """Times that are up one after the other are so by themselves; what is learnt is the same."""
    seldom, often = Kernel(SETTINGS), Kernel(SETTINGS)
    events = arrived(sent)
    end = int(events[:, 1].max(initial=0)) + pause
    seldom.arrive(events, end)
    for clock in range(end + 1):
        often.arrive(events[events[:, 1] == clock], clock)
    assert (often.order, often.late, often.timed) == (seldom.order, seldom.late, seldom.timed)
    assert (often.whole == seldom.whole).all()
    assert np.array_equal(often.fractions, seldom.fractions, equal_nan=True)


def test_the_last_gap_that_was_given_up_is_the_one_that_an_event_missed() -> None:
    """Gaps are given up at 51 and at 60: number 3 missed the second one, which began at 10."""
    kernel = Kernel(SETTINGS)
    kernel.arrive(np.array([(0, 0, 0), (2, 1, 1), (4, 10, 2)]), 10)
    kernel.arrive(np.array([(3, 70, 3)]), 70)
    assert kernel.whole[sequence.PASSED] == 10
    assert kernel.late == [3]


def test_nothing_follows_the_greatest_number_though_a_gap_before_it_was_given_up() -> None:
    kernel = Kernel(SETTINGS)
    events = arrived([(5, 0), (sequence.GREATEST, 1), (6, 100), (sequence.GREATEST, 1), (7, 1)])
    kernel.arrive(events, int(events[-1, 1]))
    assert (kernel.order, kernel.late) == ([0, 1], [2, 3, 4])


def test_average_of_the_oracle() -> None:
    mean = Mean(0.6)
    for value in (10, 10, 12):
        mean.add(value)
    assert (mean.average, mean.deviation) == pytest.approx((10.8, 2.6))
