"""A table that several threads match has the matches of one, in the same order."""

import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st
from support.compiled import LOCAL, PATH, task_of
from support.properties import examples
from support.strategies import patterns

import outpace as op
from outpace.engine.cores import cores
from outpace.engine.divide import parts
from outpace.engine.kernels import grouping
from outpace.engine.match import graph, kernel_search, output
from outpace.errors import BindError, MatchError, OutpaceError
from outpace.hosts.local import table as local_table
from outpace.hosts.local import threads
from outpace.hosts.local.threads import in_threads, thread_count
from outpace.pattern.ast import predicates, variables
from outpace.pattern.query import Query


@pytest.fixture
def eager(monkeypatch):
    """Let every few rows be worth a thread, and let compiled code match them."""
    make_eager(monkeypatch)


def make_eager(patch):
    for module in (parts, local_table, grouping):
        patch.setattr(module, "LEAST_ROWS", 2)
    patch.setattr(output, "LEAST_MATCHES", 2)
    patch.setattr(kernel_search, "WORTH_PREDICATES", 0)
    patch.setattr(kernel_search, "WORTH_KERNELS", 0)
    patch.setattr(graph, "_SMALL", -1)


def rows(most):
    row = st.tuples(
        st.integers(0, 2), st.integers(0, 2) | st.none(), st.sampled_from([0.0, 0.5, 1.5]),
        st.sampled_from("ab"), st.integers(0, 2),
    )  # fmt: skip
    return st.lists(row, max_size=most).map(_table)


def _table(drawn):
    steps, x, f, s, key = zip(*drawn, strict=True) if drawn else ((),) * 5
    return pa.table(
        {
            "ts": pa.array(np.cumsum(steps).astype(np.int64)),
            "x": pa.array(x, pa.int8()),
            "f": pa.array(f, pa.float64()),
            "s": pa.array(s, pa.string()),
            "key": pa.array(key, pa.int64()),
        }
    )


@st.composite
def queries(draw, definitions):
    tree = draw(patterns(leaves=5))
    texts = {name: draw(st.none() | st.sampled_from(definitions)) for name in predicates(tree)}
    query = Query().order_by("ts").pattern(tree)
    query = query.define({name: text for name, text in texts.items() if text})
    if draw(st.integers(0, 4)):
        query = query.within(draw(st.integers(1, 4)))
    if draw(st.booleans()):
        query = query.partition_by("key")
    everything = draw(st.booleans())
    query = query.select("all" if everything else "preferred")
    names = variables(tree) or ("A",)
    skip = draw(st.integers(0, 4)) if variables(tree) else 0
    query = [
        query.no_skip(),
        query.skip_past_last_row(),
        query.skip_to_next_row(),
        query.skip_to_first(draw(st.sampled_from(names)), strict=draw(st.booleans())),
        query.skip_to_last(draw(st.sampled_from(names))),
    ][skip]
    shape = draw(st.integers(0, 3))
    query = query.all_rows_per_match() if shape == 0 else query
    query = query.all_rows_per_match(unmatched=True) if shape == 1 and not everything else query
    return query.measures(first="FIRST(ts)", last="LAST(ts)", n="COUNT(*)")


def _found(query, table, count):
    try:
        return op.match(table, query, threads=count)
    except MatchError as error:
        return error.message


@examples(150)
@given(queries(LOCAL), rows(40), st.integers(2, 4))
def test_threads_change_nothing(query, table, count):
    note(repr(query))
    task_of(query, table)
    with pytest.MonkeyPatch.context() as patch:
        make_eager(patch)
        one, several = (_found(query, table, number) for number in (1, count))
        if isinstance(one, str) or isinstance(several, str):
            # What is refused first may be another start.
            assume(not (isinstance(one, str) and isinstance(several, str)))
            assert one == several
        assert several.equals(one)


@examples(30)
@given(queries((*LOCAL, *PATH[:11])), rows(40), st.integers(2, 4))
def test_threads_change_nothing_where_conditions_read_the_match(query, table, count):
    note(repr(query))
    task_of(query, table)
    with pytest.MonkeyPatch.context() as patch:
        make_eager(patch)
        one, several = (_found(query, table, number) for number in (1, count))
        assert isinstance(one, str) == isinstance(several, str)
        assert isinstance(one, str) or several.equals(one)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("skip", ["past", "next", "last"])
def test_a_range_goes_on_where_the_one_before_it_has_ended(skip, monkeypatch):
    """Every row may start a match, so that ranges that start by themselves find others."""
    size = 1000
    table = pa.table({"ts": range(size), "x": [n * n % 7 for n in range(size)]})
    query = Query().order_by("ts").pattern("A B{1,4} C").within(9)
    query = query.define(B="x > 1", C="x < 5").measures(first="FIRST(ts)", last="LAST(ts)")
    query = {"past": query, "next": query.skip_to_next_row(), "last": query.skip_to_last("C")}[skip]
    again = []
    behind = parts._behind

    def noting(*args):
        found = behind(*args)
        again.append(len(found[0]))
        return found

    monkeypatch.setattr(parts, "_behind", noting)
    monkeypatch.setattr(parts, "LEAST_ROWS", 50)
    assert op.match(table, query, threads=4).equals(op.match(table, query, threads=1))
    assert len(again) == (0 if skip == "next" else 8)


@pytest.mark.usefixtures("eager")
def test_partitions_are_matched_in_different_threads(monkeypatch):
    seen = set()
    matched = parts.match_block

    def noting(*args):
        seen.add(threading.current_thread().name)
        time.sleep(0.02)
        return matched(*args)

    monkeypatch.setattr(parts, "match_block", noting)
    table = pa.table({"ts": range(90), "key": [n % 9 for n in range(90)]})
    query = Query().partition_by("key").order_by("ts").pattern("A B").measures(n="COUNT(*)")
    assert op.match(table, query, threads=2).num_rows == 45
    assert len(seen) == 2
    assert threading.current_thread().name not in seen


@pytest.mark.usefixtures("eager")
def test_progress_is_told_by_the_thread_that_asked():
    told = []

    def progress(done, total):
        told.append((done, total, threading.current_thread() is threading.main_thread()))

    table = pa.table({"ts": range(200_000), "x": [n % 3 for n in range(200_000)]})
    query = Query().order_by("ts").pattern("A+ B").define(A="SUM(A.x) < 500", B="x = 1")
    query = query.within(2000).skip_to_next_row().measures(n="COUNT(*)")
    op.match(table, query, threads=2, progress=progress)
    assert told
    assert all(done <= total == 200_000 and mine for done, total, mine in told)


@pytest.mark.usefixtures("eager")
def test_an_error_is_that_of_the_first_part_and_ends_the_others():
    table = pa.table({"ts": [0, 1, 2, 3] * 10, "key": [n // 4 for n in range(40)]})
    query = Query().partition_by("key").order_by("ts").pattern("A B").measures(x="100 / (ts - ts)")
    with in_threads(3):
        assert cores().count == 3
        with pytest.raises(ZeroDivisionError, match="2"):
            cores().each(lambda n: n if n < 2 else _fail(n), [0, 1, 2, 3])
    assert op.match(table, query, threads=3).equals(op.match(table, query, threads=1))


def _fail(number):
    raise ZeroDivisionError(str(number))


def test_what_nobody_waits_for_stops():
    """Ctrl-C while threads work ends them at their next turn."""
    ended = []

    def work(_):
        try:
            while True:
                time.sleep(0.001)
                cores().turn(1)
        finally:
            ended.append(True)

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), in_threads(2):
        cores().each(work, [0, 1], interrupt)
    assert len(ended) == 2


def test_the_number_of_threads_is_what_was_said_last(monkeypatch):
    monkeypatch.setattr(threads, "_chosen", None)
    monkeypatch.delenv("OUTPACE_THREADS", raising=False)
    assert thread_count() >= 1
    monkeypatch.setenv("OUTPACE_THREADS", "3")
    assert thread_count() == 3
    op.set_threads(5)
    assert thread_count() == 5
    assert thread_count(2) == 2
    op.set_threads(None)
    assert thread_count() == 3


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", True, 5000])
def test_what_is_no_number_of_threads_is_refused(count):
    with pytest.raises(BindError, match="threads"):
        op.set_threads(count)
    with pytest.raises(OutpaceError, match="threads"):
        op.match({"ts": [1]}, Query().order_by("ts").pattern("A"), threads=count)


@pytest.mark.parametrize("text", ["0", "many", "-2", "1.5", "99999999999999999999"])
def test_a_wrong_variable_is_named(text, monkeypatch):
    monkeypatch.setattr(threads, "_chosen", None)
    monkeypatch.setenv("OUTPACE_THREADS", text)
    with pytest.raises(BindError, match="OUTPACE_THREADS is a whole number from 1 to 1024"):
        op.match({"ts": [1]}, Query().order_by("ts").pattern("A").measures(n="COUNT(*)"))
