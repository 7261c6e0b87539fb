"""WHY NOT: the right step, row and condition are named, and the search agrees with the twin."""

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from support.explaining import events_queries, searched

from outpace.engine.match.partitions import WholePartitions
from outpace.engine.match.task import prepare, whole_block
from outpace.errors import DataError
from outpace.explanation.diagnose import explain_move
from outpace.explanation.evidence import Evidence, TracedRun
from outpace.explanation.explore import explore
from outpace.explanation.why_not import why_not
from outpace.pattern import ast
from outpace.pattern.query import Query

EVENTS = pa.table(
    {
        "ts": [datetime.datetime(2026, 1, 1, 10, minute) for minute in (0, 5, 10, 20, 30)],
        "kind": ["a", "x", "b", "n", "c"],
        "v": [1, 2, 3, 4, 5],
    }
)
CONDITIONS = {
    "A": "kind = 'a'",
    "B": "kind = 'b' AND v > A.v",
    "C": "kind = 'c' AND v > 10",
    "N": "kind = 'n'",
    "L": "kind = 'c'",
    "X": "kind IN ('x', 'n')",
}


def query(pattern: str) -> Query:
    base = Query().order_by("ts").pattern(pattern).measures(n="COUNT(*)").within("1 hour")
    assert base.tree is not None
    return base.define({name: CONDITIONS[name] for name in ast.predicates(base.tree)})


def told(case: WholePartitions, rows) -> str:
    return why_not(case.task, case.block, rows)


def after(text: str) -> list[str]:
    """The lines that say what stops the run."""
    lines = text.splitlines()
    return lines[next(i for i, line in enumerate(lines) if line.startswith("after row")) :]


def test_the_failing_conjunct_is_named():
    assert (
        told(searched(EVENTS, query("A -> B -> C")), [0, 2, 4])
        == """
no match starts at row 0
the run that gets furthest takes 2 rows:

  row  ts                   label  position  follows                    condition   values     is
  0    2026-01-01 10:00:00  A      0         first                      kind = 'a'  'a' = 'a'  true
  2    2026-01-01 10:10:00  B      1         next that fits, 1 skipped  kind = 'b'  'b' = 'b'  true
                                                                        v > A.v     3 > 1      true

after row 2:
  C: no row up to the end fits (2 rows looked at)
    row 4:
      kind = 'c'  'c' = 'c'  true
      v > 10      5 > 10     false
""".strip()
    )


def test_the_row_that_breaks_contiguity_is_named():
    assert after(told(searched(EVENTS, query("A B L")), [0, 2, 4])) == [
        "after row 0:",
        "  B: the very next row, row 1, does not fit",
        "    kind = 'b'  'x' = 'b'  false",
        "    v > A.v     2 > 1      true",
        "    row 2 would fit, but row 1 stands between them; -> would allow that",
    ]


def test_a_row_behind_the_time_of_within_is_named():
    late = query("A -> L").within("25 minutes")
    assert after(told(searched(EVENTS, late), [0, 4])) == [
        "after row 0:",
        "  L: row 4 comes 30 minutes after row 0, WITHIN allows less than 25 minutes "
        "(5 minutes too long)",
        "    no row before it fits (3 rows looked at)",
        "    row 1:",
        "      kind = 'c'  'x' = 'c'  false",
    ]
    just = query("N -> L").within("10 minutes")
    assert after(told(searched(EVENTS, just), [3, 4])) == [
        "after row 3:",
        "  L: row 4 comes 10 minutes after row 3, WITHIN allows less than 10 minutes "
        "(just too long)",
        "    it would fit otherwise",
    ]


def test_the_row_that_a_negation_forbids_is_named():
    assert after(told(searched(EVENTS, query("A -> B -> !N -> L")), [0, 2, 4])) == [
        "after row 2:",
        "  L: row 3 is a N, which !N forbids",
        "    kind = 'n'  'n' = 'n'  true",
    ]
    assert after(told(searched(EVENTS, query("A -> B -> !N")), [0, 2])) == [
        "after row 2:",
        "  !N: row 3 is a N after the run",
        "    kind = 'n'  'n' = 'n'  true",
    ]


def test_the_row_that_ends_a_repetition_is_named():
    text = told(searched(EVENTS, query("A -> X(->){2} UNTIL B -> L")), [0, 1, 3, 4])
    assert after(text) == [
        "after row 1:",
        "  X: row 2 fits B, which ends the repetition",
        "    kind = 'b'  'b' = 'b'  true",
        "    v > A.v     3 > 1      true",
    ]


def test_a_row_that_a_possessive_repetition_could_take_is_named():
    case = searched(EVENTS, query("A -> X(->)*+ -> N"))
    run = TracedRun(rows=[0], positions=[0], labels=[0])
    leave = case.task.program.follow[0][-1]
    assert explain_move(Evidence(case.task, case.block, 0), run, leave) == [
        "N: row 1 fits X, and a possessive repetition leaves no event that it could take",
        "  kind IN ('x', 'n')  'x' IN ('x', 'n')  true",
    ]


def test_anchors_are_named():
    assert told(searched(EVENTS, query("^ N L")), [3, 4]).splitlines() == [
        "no match starts at row 3",
        "it cannot be the first row of a match:",
        "  ^ N: it is not the first row of its partition",
    ]
    assert after(told(searched(EVENTS, query("A X $")), [0, 1])) == [
        "after row 1:",
        "  $: row 2 follows, so the run is not at the end",
    ]


def test_a_null_is_shown_as_null():
    table = pa.table({"ts": [1, 2], "x": [1, None]})
    rising = Query().order_by("ts").pattern("A B").define(B="x > A.x").measures(n="COUNT(*)")
    assert after(told(searched(table, rising), [0, 1])) == [
        "after row 0:",
        "  B: the very next row, row 1, does not fit",
        "    x > A.x  NULL > 1  NULL",
    ]


def test_a_start_that_does_not_fit():
    assert told(searched(EVENTS, query("(A | C) -> L")), [1]).splitlines() == [
        "no match starts at row 1",
        "it cannot be the first row of a match:",
        "  A: it does not fit",
        "    kind = 'a'  'x' = 'a'  false",
        "  C: it does not fit",
        "    kind = 'c'  'x' = 'c'  false",
        "    v > 10      2 > 10     false",
    ]


def test_another_start_that_gets_further_is_shown():
    lines = told(searched(EVENTS, query("X -> N -> C")), [0, 1, 3]).splitlines()
    assert lines[0] == "no match starts at row 0"
    further = lines.index("from row 1 a run gets further:")
    assert [line.split()[0] for line in lines[further + 3 : further + 5]] == ["1", "3"]


def test_named_rows_among_all_matches():
    every = searched(EVENTS, query("A ->> X ->> L"))
    assert told(every, [0, 3, 4]) == "rows 0, 3, 4 are a match"
    assert told(every, range(5)).splitlines() == [
        "rows 0, 1, 4 are a match",
        "not in it: rows 2, 3",
    ]
    lines = told(every, [0, 2, 4]).splitlines()
    assert lines[:3] == [
        "row 0 does start a match, for example rows 0, 1, 4",
        "",
        "with the named rows alone:",
    ]
    assert after("\n".join(lines))[1] == "  X: row 1 fits, but is not one of the named rows"


def test_counting_very_many_matches_is_not_needed_to_say_why_there_is_none():
    size = 400
    table = pa.table({"ts": list(range(size)), "x": [1] * size})
    many = (
        Query()
        .order_by("ts")
        .pattern("A ->> B ->> C ->> D ->> E")
        .define(E="x = 2")
        .measures(n="COUNT(*)")
        .within(size)
    )
    task = prepare(many, table.schema)
    text = why_not(task, whole_block(task, table), [0, 1, 2, 3, 4])
    assert after(text)[1] == "  E: no row up to the end fits (396 rows looked at)"


def test_named_rows_that_a_match_leaves_out_are_listed():
    lines = told(searched(EVENTS, query("A -> X -> L")), [0, 1, 2]).splitlines()
    assert lines[:2] == ["row 0 does start a match: rows 0, 1, 4", "not in it: row 2"]


EQUAL = pa.table({"ts": [1, 2, 3, 4, 5], "g": [0, 0, 0, 0, 1], "x": [1, 1, 1, 1, 1]})
PAIRS = Query().partition_by("g").order_by("ts").pattern("A B").measures(n="COUNT(*)")


def test_the_match_that_rules_out_by_skipping_is_named():
    assert told(searched(EQUAL, PAIRS), [1, 2]).splitlines() == [
        "no match starts at row 1, although rows 1, 2 (A, B) would be one",
        "match 0 of the partition (rows 0, 1) rules it out: "
        "AFTER MATCH SKIP PAST LAST ROW goes on at row 2",
    ]


def test_the_match_that_rules_out_by_consuming_is_named():
    consuming = PAIRS.skip_to_next_row().consume("selected")
    assert told(searched(EQUAL, consuming), [1, 2]).splitlines() == [
        "no match starts at row 1, although rows 1, 2 (A, B) would be one",
        "match 0 of the partition (rows 0, 1) rules it out: "
        "it has consumed row 1 (consume selected)",
    ]


def test_a_limit_that_is_reached_is_named():
    limited = PAIRS.skip_to_next_row().limit(1)
    assert told(searched(EQUAL, limited), [1, 2]).splitlines()[1] == (
        "the limit of matches is reached: 1 per partition"
    )


def test_rows_of_several_partitions():
    lines = told(searched(EQUAL, PAIRS), [3, 4]).splitlines()
    assert lines[0] == "row 4 is in another partition than row 3 (g = 0); a match never spans two"
    assert lines[1].startswith("no match starts at row 3")


def test_a_row_that_does_start_a_match():
    assert told(searched(EQUAL, PAIRS), [0, 1]) == "row 0 does start a match: rows 0, 1"


@pytest.mark.parametrize("rows", [[], [9], [-1]])
def test_unknown_rows_are_refused(rows):
    with pytest.raises(DataError):
        told(searched(EQUAL, PAIRS), rows)


def test_the_work_is_bounded():
    size = 2_000
    table = pa.table({"ts": list(range(size)), "x": [1] * size})
    hard = (
        Query()
        .order_by("ts")
        .pattern("(A+ B+)+ C")
        .define(A="COUNT(*) > 0", C="x = 2")
        .measures(n="COUNT(*)")
        .within(50)
    )
    case = searched(table.slice(0, 10), hard)
    assert after(told(case, [0]))[0] == "after row 9:"
    task_rows = Evidence(case.task, searched(table, hard.define(C="x = 1")).block, 0)
    explored = explore(task_rows, 0)
    assert explored.cut_off
    assert len(explored.furthest.rows) == 50


@given(events_queries())
def test_a_start_has_a_complete_run_exactly_if_the_twin_finds_a_match(case):
    evidence = Evidence(case.task, case.block, 0)
    starts = {int(start) for start in case.found.start}
    nonempty = {
        int(start)
        for index, start in enumerate(case.found.start)
        if case.found.offsets[index] < case.found.offsets[index + 1]
    }
    for start in range(evidence.size):
        explored = explore(evidence, start)
        assert not explored.cut_off
        if start in nonempty or start not in starts:
            assert explored.candidate == (start in nonempty)


@given(events_queries())
def test_the_preferred_run_is_the_twins(case):
    evidence = Evidence(case.task, case.block, 0)
    if case.task.program.matches_empty:
        return
    for index, start in enumerate(case.found.start):
        takes = slice(int(case.found.offsets[index]), int(case.found.offsets[index + 1]))
        explored = explore(evidence, int(start))
        assert list(explored.furthest.rows) == case.found.rows[takes].tolist()
        assert list(explored.furthest.positions) == case.found.positions[takes].tolist()


@given(events_queries())
def test_every_row_gets_an_answer(case):
    for row in range(case.block.size):
        assert "row" in told(case, [row])
