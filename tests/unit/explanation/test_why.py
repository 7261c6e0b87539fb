"""WHY: the text of a match, and that every condition it shows is true."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.explaining import events_queries, searched

from outpace.engine.match.partitions import WholePartitions
from outpace.errors import MatchError
from outpace.explanation.evidence import Evidence, TracedRun
from outpace.explanation.why import run_of, why
from outpace.pattern.query import Query

TICKS = pa.table(
    {
        "ts": [1, 2, 3, 4, 5, 6],
        "symbol": ["acme"] * 6,
        "price": [10.0, 8.0, 7.0, 9.0, 9.5, 9.0],
    }
)
DIP = (
    Query("dip")
    .partition_by("symbol")
    .order_by("ts")
    .pattern("STRT DOWN+ UP+")
    .define(DOWN="price < PREV(price)", UP="price > PREV(price)")
    .measures(bottom="LAST(DOWN.price)")
)


def told(case: WholePartitions, index: int = 0) -> str:
    return why(case.task, case.block, case.found, index)


def test_a_match_row_by_row():
    assert (
        told(searched(TICKS, DIP))
        == """
match 0, symbol = 'acme', rows 0 to 4, 5 events, match number 1

  row  ts  label  position  follows  condition            values      is
  0    1   STRT   0         first    no condition
  1    2   DOWN   1         at once  price < PREV(price)  8.0 < 10.0  true
  2    3   DOWN   1         at once  price < PREV(price)  7.0 < 8.0   true
  3    4   UP     2         at once  price > PREV(price)  9.0 > 7.0   true
  4    5   UP     2         at once  price > PREV(price)  9.5 > 9.0   true

complete at row 4, because nothing that is preferred to ending can follow:
  UP: the very next row, row 5, does not fit
    price > PREV(price)  9.0 > 9.5  false
after match skip past last row: the search goes on at row 5
""".strip()
    )


def test_rows_are_called_by_their_place_in_the_input():
    shuffled = TICKS.take([5, 4, 3, 2, 1, 0])
    lines = told(searched(shuffled, DIP)).splitlines()
    assert lines[0] == "match 0, symbol = 'acme', rows 5 to 1, 5 events, match number 1"
    assert lines[3].split()[0] == "5"


def test_skipped_rows_and_every_condition_of_an_and():
    table = pa.table(
        {
            "at": [0, 5, 20],
            "kind": ["a", "x", "b"],
            "v": [1, 2, 3],
        }
    )
    query = (
        Query()
        .order_by("at")
        .pattern("A ->> B")
        .define(A="kind = 'a'", B="kind = 'b' AND v > SUM(A.v) + 1")
        .measures(v="B.v")
        .within(60)
    )
    assert (
        told(searched(table, query))
        == """
match 0, rows 0 to 2, 2 events, match number 1

  row  at  label  position  follows                   condition         values     is
  0    0   A      0         first                     kind = 'a'        'a' = 'a'  true
  2    20  B      1         any that fits, 1 skipped  kind = 'b'        'b' = 'b'  true
                                                      v > SUM(A.v) + 1  3 > 1 + 1  true

complete at row 2
no skip: rules out no other match
""".strip()
    )


def test_an_empty_match():
    query = DIP.pattern("DOWN* UP*").measures(n="COUNT(*)")
    text = told(searched(TICKS, query))
    assert text.splitlines()[0] == "match 0, symbol = 'acme', empty, before row 0"


def test_where_the_search_goes_on():
    query = DIP.skip_to_last("DOWN")
    assert told(searched(TICKS, query)).splitlines()[-1] == (
        "after match skip to last DOWN: the search goes on at row 2"
    )
    short = searched(TICKS.slice(0, 5), DIP)
    assert told(short).splitlines()[-2:] == [
        "  UP: no row follows row 4",
        "after match skip past last row: no row is left to start from",
    ]


def test_a_long_match_is_cut_in_the_middle():
    table = pa.table({"ts": list(range(500)), "x": [1] * 500})
    query = Query().order_by("ts").pattern("A+").define(A="x = 1").measures(n="COUNT(*)")
    lines = told(searched(table, query)).splitlines()
    assert len(lines) < 80
    assert "  ..." in lines


def test_an_unknown_match_is_refused():
    with pytest.raises(MatchError, match="there is no match 1"):
        told(searched(TICKS, DIP), 1)


@given(events_queries(), st.data())
def test_every_condition_of_a_match_is_true(case, data):
    if not len(case.found.start):
        return
    index = data.draw(st.integers(0, len(case.found.start) - 1))
    assert told(case, index).startswith(f"match {index}")
    evidence = Evidence(case.task, case.block, int(case.found.segment[index]))
    run = run_of(case.task, evidence, case.found, index)
    for taken in range(len(run.rows)):
        before = TracedRun(run.rows[:taken], run.positions[:taken], run.labels[:taken])
        findings = evidence.findings(run.labels[taken], run.rows[taken], before)
        assert all(finding.holds for finding in findings)
