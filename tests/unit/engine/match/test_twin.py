"""The twin equals the oracle, and a stream equals a table."""

from hypothesis import given, note
from hypothesis import strategies as st
from support.matching import Case, cases, push_all
from support.properties import examples

from outpace.testing.oracle import answer


def _times_are_the_oracles(case: Case) -> None:
    note(repr(case.pattern))
    pushed = push_all(case, [], timeouts=True)
    expected = answer(case.question())
    assert pushed.matches == expected.matches
    assert pushed.timed_out == expected.timed_out


@examples(300)
@given(cases())
def test_a_complete_partition_gives_the_matches_of_the_oracle(case):
    note(repr(case.pattern))
    pushed = push_all(case, [])
    assert pushed.matches == answer(case.question()).matches
    assert pushed.numbers == list(range(1, len(pushed.matches) + 1))
    assert pushed.settled == sorted(pushed.settled)


@given(cases())
def test_timed_out_runs_are_those_of_the_oracle(case):
    _times_are_the_oracles(case)


@given(cases(), st.data())
def test_any_cut_gives_the_same_matches_in_the_same_order(case, data):
    note(repr(case.pattern))
    cuts = sorted(data.draw(st.lists(st.integers(0, case.size), max_size=6)))
    whole, cut = push_all(case, [], timeouts=True), push_all(case, cuts, timeouts=True)
    assert cut.matches == whole.matches
    assert cut.numbers == whole.numbers
    assert cut.settled == whole.settled
    assert cut.timed_out == whole.timed_out


@given(cases())
def test_a_match_is_emitted_by_the_row_that_its_number_names(case):
    pushed = push_all(case, range(case.size + 1))
    for match, settled in enumerate(pushed.settled):
        assert pushed.emitted_after[settled] <= match or settled == case.size
        assert pushed.emitted_after[min(settled, case.size) + 1] > match
