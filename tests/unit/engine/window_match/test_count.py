"""Matches in windows are as many as a list of them has, however they are counted."""

from __future__ import annotations

import math
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import outpace as op
from outpace.engine.match import choose, contract, graph, partitions, twin
from outpace.engine.window_match import count as module


class Nested(op.windows.Predicate):
    """Opens at each event of kind 0 or 1, and closes some of the windows before older ones."""

    def opens(self, event, windows):
        return event["kind"] < 2

    def closes(self, event, window):
        return window.events > (7 * window.number) % 5

    def clone(self):
        return Nested()


WINDOWS = (
    op.windows.count(5, slide=2),
    op.windows.count(4),
    op.windows.count(2, slide=5),
    op.windows.count(7, slide=1, offset=-4),
    op.windows.time(6, slide=2),
    op.windows.time(9, slide=1, offset=1),
    op.windows.time(4),
    op.windows.session(2),
    op.windows.between(open="kind = 0", close="kind = 2"),
    op.windows.between(predicate=Nested()),
    op.windows.landmark(),
    op.windows.landmark(at="kind = 1"),
)

PATTERNS = (
    "A",
    "A ->> B",
    "A ->> B ->> C",
    "A ->> B ->> C ->> A",
    "A ->> UP",
    "UP ->> DOWN ->> B",
    "FIRM ->> B ->> FIRM",
    "A ->> BEFORE",
    "BEFORE ->> !FIRM ->> B",
    "A ->> !C ->> B",
    "A ->> !UP ->> B",
    "A ->> !A ->> FIRM",
    "A -> UP ->> B",
    "A{1,2} ->> B(->>){0,2}",
    "FIRM{1,2} ->> FIRM{1,2}",
    "^ A ->> B",
    "(^ A | B) ->> C",
    "(A ->> !UP ->> B | A ->> !DOWN ->> B)",
    "A ->> B $",
    "A ->> B -> !C",
    "A ->> LARGER",
)

DEFINED = {
    "A": "kind = 0",
    "B": "kind = 1",
    "C": "kind = 2",
    "UP": "kind > PREV(kind)",
    "DOWN": "kind <= PREV(kind, 2)",
    "FIRM": "kind >= COALESCE(PREV(kind), 1)",
    "BEFORE": "COALESCE(NEXT(kind), 2) > 1",
    "LARGER": "x > A.x",
}

rows = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3), st.integers(0, 1)),
    max_size=14,
)


@st.composite
def queries(draw):
    text = draw(st.sampled_from(PATTERNS))
    names = set(re.findall("[A-Z]+", text))
    query = op.Query("counted").order_by("ts").pattern(text).select("all")
    query = query.define(**{name: DEFINED[name] for name in names})
    measures = {"n": draw(st.sampled_from(["1", "PREV(kind)", "MATCH_NUMBER()"]))}
    query = query.measures(**measures)
    if draw(st.booleans()):
        query = query.partition_by("k")
    within = draw(st.sampled_from(["first to last", "previous to current", None]))
    if within is not None or text.endswith("-> !C"):
        query = query.within(draw(st.integers(1, 6)), within or "first to last")
    rule = draw(st.sampled_from([None] * 6 + ["partition", "start", "skip", "consume"]))
    if rule in ("partition", "start"):
        query = query.limit(2, rule)
    elif rule == "skip":
        query = query.skip_to_next_row()
    elif rule == "consume":
        query = query.consume("selected")
    return query.over(draw(st.sampled_from(WINDOWS)), duplicates=draw(st.booleans()))


def table_of(listed):
    steps, kinds, xs, keys = zip(*listed, strict=True) if listed else ((), (), (), ())
    columns = {"ts": np.cumsum(steps, dtype=np.int64), "kind": kinds, "x": xs, "k": keys}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


@pytest.fixture(scope="module", autouse=True)
def _small_parts():
    with pytest.MonkeyPatch.context() as patch:
        # As many parts as a long table has, and nothing left to the twin.
        patch.setattr(module, "ROWS_AT_ONCE", 9)
        patch.setattr(module, "ROWS_LISTED", 7)
        patch.setattr(module, "SMALL", -1)
        yield


@given(queries(), rows)
def test_a_count_is_the_length_of_the_list(query, listed):
    note(query.to_text())
    search = op.search(table_of(listed), query)
    assert search.count() == search.table().num_rows


def chosen(size, count=3):
    return math.comb(size, count)


@pytest.mark.parametrize(
    ("condition", "windows", "once", "each"),
    [
        ("TRUE", op.windows.count(1200), chosen(1200), chosen(1200)),
        # The last window has the last 400 rows, which the one before it has, too.
        (
            "TRUE",
            op.windows.count(800, slide=400),
            2 * chosen(800) - chosen(400),
            2 * chosen(800) + chosen(400),
        ),
        # It does not hold of a window's first row.
        (
            "ts > PREV(ts)",
            op.windows.count(800, slide=400),
            2 * chosen(799) - chosen(399),
            2 * chosen(799) + chosen(399),
        ),
    ],
)
def test_matches_that_nobody_could_list_are_counted(condition, windows, once, each) -> None:
    query = op.Query().order_by("ts").pattern("A ->> B ->> C").measures(at="PREV(A.ts)")
    query = query.define(**dict.fromkeys("ABC", condition))
    for duplicates, expected in ((False, once), (True, each)):
        found = op.search({"ts": range(1200)}, query.over(windows, duplicates=duplicates))
        assert found.count() == expected


def test_too_many_matches_to_tell_apart_are_refused(monkeypatch) -> None:
    # Whether a row is the first such one behind another differs from window to window.
    query = op.Query().order_by("ts").pattern("A -> B ->> C").measures(n="1")
    query = query.define(B="ts > COALESCE(PREV(ts), 50)").over(op.windows.count(9, slide=4))
    found = op.search({"ts": range(40)}, query)
    assert found.count() == op.match({"ts": range(40)}, query).num_rows
    monkeypatch.setattr(module, "LISTED_MAX", 20)
    with pytest.raises(op.MatchError, match="more than 20 matches would have to be listed at once"):
        found.count()


@pytest.mark.parametrize("windows", [op.windows.count(9, slide=4), op.windows.count(9)])
def test_too_many_matches_that_only_the_twin_finds_are_refused(windows, monkeypatch) -> None:
    query = op.Query().order_by("ts").pattern("A ->> B").define(B="ts > A.ts").measures(n="1")
    monkeypatch.setattr(twin, "MATCHES_MAX", 35)
    with pytest.raises(op.MatchError, match="there are more than 35 matches"):
        op.search({"ts": range(40)}, query.over(windows)).count()


def test_a_limit_for_each_start_is_counted_without_a_list(monkeypatch) -> None:
    query = op.Query().order_by("ts").pattern("A ->> B ->> C").measures(n="1").limit(7, "start")
    found = op.search({"ts": range(40)}, query.over(op.windows.count(9, slide=4)))
    listed = found.table().num_rows
    monkeypatch.setattr(module, "LISTED_MAX", 5)
    assert op.search({"ts": range(40)}, query.over(op.windows.count(9, slide=4))).count() == listed


def test_a_list_up_to_a_limit_for_each_window_is_bounded(monkeypatch) -> None:
    # Only the graph keeps to a number of rows.
    monkeypatch.setattr(graph, "_SMALL", -1)
    query = op.Query().order_by("ts").pattern("A ->> B ->> C").measures(n="1").limit(80)
    query = query.over(op.windows.count(9, slide=4))
    monkeypatch.setattr(module, "LISTED_MAX", 20)
    with pytest.raises(op.MatchError, match="the matches have more than 60 rows") as caught:
        op.search({"ts": range(40)}, query).count()
    assert caught.value.hint.startswith("count them in each window")
    assert ".count()" not in caught.value.hint


def test_windows_are_listed_together_by_what_their_limits_allow(monkeypatch) -> None:
    monkeypatch.setattr(module, "LISTED", 40)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 1000)
    query = op.Query().order_by("ts").pattern("A ->> B ->> C").measures(n="1").limit(20)
    found = op.search({"ts": range(40)}, query.over(op.windows.count(9, slide=4)))
    sizes = []
    blocks = module._WindowCounter._block

    def block(self, at):
        sizes.append(len(at))
        return blocks(self, at)

    monkeypatch.setattr(module._WindowCounter, "_block", block)
    assert found.count() == found.table().num_rows
    assert max(sizes) == 2


@pytest.mark.parametrize("windows", [op.windows.count(9, slide=4), op.windows.count(9), None])
def test_a_count_by_the_twin_is_refused_when_its_steps_are_spent(windows, monkeypatch) -> None:
    query = op.Query().order_by("ts").pattern("A ->> B").measures(n="1")
    query = query.define(B="ts > A.ts AND CLASSIFIER(A) = 'A'")
    query = query.within(9) if windows is None else query.over(windows)
    for place in (choose, partitions):
        monkeypatch.setattr(place, "make_candidate_matcher", lambda _: None)
    monkeypatch.setattr(twin, "_STEPS_AT_ONCE", 10)
    found = op.search({"ts": range(400)}, query)
    assert found.count() > 1000
    # No part of the windows takes so many steps, but all together do.
    monkeypatch.setattr(contract.Task, "work_allowed", lambda *_: 300 * twin.STEP_COST)
    with pytest.raises(op.MatchError, match="the search took more than 300 steps for") as caught:
        found.count()
    assert "shorten it or the windows" in caught.value.hint
