"""The graph matcher equals the twin and the oracle, in any order of emission and any cut."""

import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st
from support.matching import Case, block_of, cases, push_all
from support.properties import examples

from outpace.compiler.kernel import call
from outpace.engine.kernels import graph_match as graph_match_module
from outpace.engine.match import graph as graph_module
from outpace.engine.match.contract import Block, Pace, Resume
from outpace.engine.match.graph import make_graph_matcher
from outpace.engine.match.twin import TwinMatcher
from outpace.errors import MatchError
from outpace.pattern import ast
from outpace.pattern.ast import Link, Mode
from outpace.pattern.query import AfterMatch, Selection, Skip
from outpace.testing.oracle import answer

NO_SKIP = AfterMatch(Skip.NONE)
ALL = {"selection": Selection.ALL, "reading_run": frozenset()}


@pytest.fixture(autouse=True, scope="module")
def compile_at_once():
    """Run compiled code on small blocks too, and let every table grow from nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_module, "_SMALL", -1)
        patch.setattr(graph_match_module, "FIRST_LINES", 0)
        yield


def truth_of(case):
    def truth(block):
        rows = [case.table[ordinal] for ordinal in block.ordinals]
        return np.array(rows, np.bool_).reshape(len(rows), 4)

    return truth


@dataclass(frozen=True)
class GraphCase(Case):
    """A case that the graph answers; `nodes_kept` of 0 gives up old nodes whenever it can."""

    nodes_kept: int = 0

    def matcher(self, **options):
        return make_graph_matcher(self.task(), truth_of(self), nodes_kept=self.nodes_kept)


def by_graph(case, **options):
    values = {name: getattr(case, name) for name in Case.__dataclass_fields__}
    return GraphCase(**values, **options)


def covered(case):
    return make_graph_matcher(case.task()) is not None


def letters(text):
    return tuple(tuple(letter in word for letter in "ABCD") for word in text.split())


def chain(*names, link=Link.ANY):
    return ast.concat([ast.Var(name) for name in names], [link] * (len(names) - 1))


def case_of(pattern, text, **options):
    table = letters(text)
    values = {"times": tuple(range(len(table))), "after": NO_SKIP, **ALL, **options}
    return Case(pattern, table, **values)


def runs(case, **options):
    return ["".join(f"{name}{row}" for row, name in run) for _, run in
            push_all(by_graph(case, **options), []).matches]  # fmt: skip


@given(cases(size=6, **ALL))
def test_the_graph_gives_the_matches_of_the_oracle_in_order(case):
    note(repr(case.pattern))
    assume(covered(case))
    pushed = push_all(by_graph(case), [])
    assert pushed.matches == answer(case.question()).matches
    assert pushed.numbers == list(range(1, len(pushed.matches) + 1))


@given(cases(size=8, **ALL), st.sampled_from([0, 3, 1000]), st.data())
def test_any_cut_settles_each_match_as_the_twin_does(case, nodes_kept, data):
    note(repr(case.pattern))
    assume(covered(case))
    graph = by_graph(case, nodes_kept=nodes_kept)
    cuts = sorted(data.draw(st.lists(st.integers(0, case.size), max_size=6)))
    whole, cut, twin = push_all(graph, []), push_all(graph, cuts), push_all(case, cuts)
    assert whole.matches == cut.matches == twin.matches
    assert whole.settled == cut.settled == twin.settled
    assert cut.emitted_after == twin.emitted_after


@examples(50)
@given(cases(size=5, **ALL), cases(size=5, **ALL), st.booleans(), st.integers(0, 20))
def test_segments_with_a_common_watermark_settle_as_in_the_twin(case, other, ended, ahead):
    """Two partitions of one query: the second case gives only its events."""
    sizes = (case.size, other.size)
    assume(all(sizes) and covered(case))
    order = np.lexsort((np.arange(sum(sizes)), np.array([*case.times, *other.times])))
    arrivals = np.argsort(order)
    times = np.array([*case.times, *other.times], np.int64)
    block = Block(
        columns={},
        segments=np.array([0, sizes[0], sum(sizes)]),
        visible=np.array([sizes[0], sum(sizes)]),
        ordinals=np.concatenate([np.arange(size) for size in sizes]),
        arrivals=arrivals,
        times=times,
        ended=ended,
        watermark=int(times.max()) + ahead,
    )
    table = np.array([*case.table, *other.table], np.bool_)

    class Predicates:
        def masks(self, segment):
            low, high = block.segments[segment : segment + 2]
            return [table[low:high, letter].tobytes() for letter in range(4)]

        def asking(self, segment):
            return None

    mine = make_graph_matcher(case.task(), lambda _: table)(block, Resume.fresh(2))
    twin = TwinMatcher(case.task(), lambda _: Predicates())(block, Resume.fresh(2))
    for name in ("segment", "start", "number", "offsets", "rows", "settled"):
        assert getattr(mine.found, name).tolist() == getattr(twin.found, name).tolist(), name
    assert (mine.keep_from >= twin.keep_from).all()


def test_matches_come_by_completing_event_then_start_then_preference():
    case = case_of(chain("A", "B", "C"), "A A B B C B C")
    assert runs(case) == [
        "A0B2C4", "A0B3C4", "A1B2C4", "A1B3C4",
        "A0B2C6", "A0B3C6", "A0B5C6", "A1B2C6", "A1B3C6", "A1B5C6",
    ]  # fmt: skip


def test_a_limit_per_start_takes_the_first_of_each_start():
    case = case_of(chain("A", "B", "C"), "A A B B C B C", per_start=1)
    assert runs(case) == ["A0B2C4", "A1B2C4"]


def test_a_limit_per_partition_goes_by_start():
    case = case_of(chain("A", "B", "C"), "A A B B C B C", per_partition=3)
    assert runs(case) == ["A0B2C4", "A0B3C4", "A0B2C6"]


def test_within_cuts_off_old_starts_of_a_shared_node():
    case = case_of(chain("A", "B", "C"), "A A B C C C", within=4)
    assert runs(case) == ["A0B2C3", "A1B2C3", "A1B2C4"]


def test_two_runs_with_the_same_labels_are_one_match():
    several = ast.Repeat(ast.Var("A"), 1, None, Mode.GREEDY, Link.ANY)
    case = case_of(ast.concat([several, several], [Link.ANY]), "A A A", within=10)
    assert runs(case) == ["A0A1", "A0A1A2", "A0A2", "A1A2"]


def test_a_limit_enumerates_only_that_many():
    several = ast.Repeat(ast.Var("A"), 1, None, Mode.GREEDY, Link.ANY)
    # There are 2^200 matches; a limit must not touch them.
    case = case_of(several, " ".join(["A"] * 200), per_partition=5)
    assert len(runs(case)) == 5


def test_too_many_matches_are_refused_with_their_number():
    several = ast.Repeat(ast.Var("A"), 1, None, Mode.GREEDY, Link.ANY)
    case = case_of(several, " ".join(["A"] * 70), within=100)
    matcher = make_graph_matcher(case.task(), truth_of(case), takes_max=1000)
    with pytest.raises(MatchError) as caught:
        matcher(block_of(case, 0, 70, ended=True), Resume.fresh(1))
    assert caught.value.message == f"there are {2**70 - 1} matches, with more than 1000 rows"
    assert caught.value.hint is not None


@given(cases(size=8, **ALL), st.integers(1, 40))
def test_a_count_gives_up_what_the_list_has(case, work):
    note(repr(case.pattern))
    matcher = make_graph_matcher(replace(case.task(), pace=Pace(work)), truth_of(case))
    assume(matcher is not None)
    block = block_of(case, 0, case.size, ended=True)
    try:
        listed = len(matcher(block, Resume.fresh(1)).found.start)
    except MatchError as error:
        with pytest.raises(MatchError, match=error.message):
            matcher.count(block, Resume.fresh(1))
    else:
        assert matcher.count(block, Resume.fresh(1)) == listed


@pytest.mark.parametrize("limits", [{"per_start": 300}, {"per_partition": 3000}])
def test_matches_up_to_a_limit_are_counted_where_a_list_is_refused(limits):
    case = case_of(chain("A", "A", "A"), " ".join(["A"] * 40), **limits)
    task = replace(case.task(), pace=Pace(100))
    matcher = make_graph_matcher(task, truth_of(case), takes_max=1000)
    block = block_of(case, 0, 40, ended=True)
    with pytest.raises(MatchError, match="the matches have more than 1000 rows") as caught:
        matcher(block, Resume.fresh(1))
    assert caught.value.hint.startswith("count them with .count()")
    assert matcher.count(block, Resume.fresh(1)) > 2000
    with pytest.raises(MatchError, match="the matches have more than 50 rows") as caught:
        replace(matcher, takes_max=50).count(block, Resume.fresh(1))
    assert ".count()" not in caught.value.hint


@pytest.mark.parametrize("strict", [False, True])
def test_a_strict_skip_to_a_missing_variable_is_an_error(strict):
    case = case_of(chain("A", "B"), "A B", after=AfterMatch(Skip.TO_FIRST, "C", strict))
    if strict:
        with pytest.raises(MatchError, match="not present in match"):
            runs(case)
    else:
        assert runs(case) == ["A0B1"]


@pytest.mark.parametrize(
    "pattern",
    [
        ast.concat([ast.Var("A"), ast.Not("B")]),
        ast.concat([ast.Var("A"), ast.AtEnd()]),
    ],
)
def test_an_end_that_depends_on_later_rows_is_left_to_the_twin(pattern):
    assert make_graph_matcher(case_of(pattern, "A").task()) is None


def test_rows_that_within_has_passed_are_given_up():
    case = by_graph(case_of(chain("A", "B"), " ".join(["A"] * 20), within=3))
    outcome = case.matcher()(block_of(case, 0, 20, ended=False), Resume.fresh(1))
    # The next event has a time of 19 or later: a start at 17 may still be in its window.
    assert outcome.keep_from.tolist() == [17]
    assert outcome.resume.next_start.tolist() == [17]


def test_a_signal_waits_until_the_arrays_of_a_kernel_are_handed_over():
    done = []

    def interrupted():
        signal.raise_signal(signal.SIGINT)
        done.append(1)

    # Who starts the tests in the background lets them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            call(interrupted)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == [1]


def test_a_kernel_without_memory_says_that_the_matches_do_not_fit():
    with ThreadPoolExecutor(1) as thread:
        for answer_of in (call, lambda *work: thread.submit(call, *work).result()):
            with pytest.raises(MatchError, match="the matches do not fit into memory"):
                answer_of(np.empty, 1 << 56)


def test_a_graph_without_memory_says_that_the_matches_do_not_fit(monkeypatch):
    monkeypatch.setattr(graph_match_module, "FIRST_LINES", 1 << 50)
    with pytest.raises(MatchError, match="the matches do not fit into memory"):
        runs(case_of(chain("A", "B"), "A B"))


def test_what_is_looked_at_to_tell_equal_matches_apart_is_work():
    optional = ast.Repeat(ast.Var("A"), 0, 1)
    case = case_of(ast.concat([optional] * 6, [Link.ANY] * 5), "A A A A A A")
    done = []
    task = replace(case.task(), pace=Pace(100, lambda *place: done.append(place)))
    block = block_of(case, 0, case.size, ended=True)
    outcome = make_graph_matcher(task, truth_of(case))(block, Resume.fresh(1))
    assert len(outcome.found.start) == 2**6 - 1
    # Most of the work is to look for a preferred way to the same match.
    assert len(done) * 100 > 40 * len(outcome.found.rows)
