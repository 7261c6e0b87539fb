import datetime

import pytest

from outpace.errors import BindError
from outpace.pattern.notation.print_query import print_fluent, print_match_recognize
from outpace.pattern.query import Query

FULL = (
    Query("full")
    .partition_by("symbol", "the venue")
    .order_by("ts desc", '"event id" nulls first')
    .pattern("a -> b+ UNTIL u")
    .subset(s=("a", "b"))
    .define({"a": "price > 1", "the u": "a.price > s.price AND S.x = 1"})
    .measures(n="COUNT(a.*)", label="CLASSIFIER(s)")
    .all_rows_per_match(empty="omit")
    .skip_to_first("b")
    .within(datetime.timedelta(minutes=90), "previous to current")
    .select("all")
    .consume("selected")
    .limit(3, "start")
)


def test_prints_every_clause_as_sql():
    assert print_match_recognize(FULL) == (
        "MATCH_RECOGNIZE (\n"
        '  PARTITION BY symbol, "the venue"\n'
        '  ORDER BY ts DESC, "event id" NULLS FIRST\n'
        "  MEASURES\n"
        '    COUNT("a".*) AS n,\n'
        '    CLASSIFIER("s") AS label\n'
        "  ALL ROWS PER MATCH OMIT EMPTY MATCHES\n"
        '  AFTER MATCH SKIP TO FIRST "b" OR NEXT ROW\n'
        '  PATTERN ("a" -> "b"+ UNTIL "u")\n'
        "  WITHIN INTERVAL '90' MINUTE PREVIOUS TO CURRENT\n"
        "  SELECT ALL MATCHES\n"
        "  CONSUME SELECTED EVENTS\n"
        "  LIMIT 3 PER START\n"
        '  SUBSET "s" = ("a", "b")\n'
        "  DEFINE\n"
        '    "a" AS price > 1,\n'
        '    "the u" AS "a".price > "s".price AND S.x = 1\n'
        ")"
    )


def test_prints_every_call_as_python():
    assert print_fluent(FULL) == (
        "(\n"
        "    op.Query('full')\n"
        "    .partition_by('symbol', 'the venue')\n"
        "    .order_by('ts desc', '\"event id\" nulls first')\n"
        "    .pattern('a -> b+ UNTIL u')\n"
        "    .subset(s=('a', 'b'))\n"
        "    .define({'a': 'price > 1', 'the u': 'a.price > s.price AND S.x = 1'})\n"
        "    .measures(n='COUNT(a.*)', label='CLASSIFIER(s)')\n"
        "    .all_rows_per_match(empty='omit')\n"
        "    .skip_to_first('b')\n"
        "    .within('90 minutes', 'previous to current')\n"
        "    .select('all')\n"
        "    .consume('selected')\n"
        "    .limit(3, 'start')\n"
        ")"
    )


def test_a_name_that_sql_would_fold_to_a_variable_is_quoted():
    query = Query().pattern("A").define(A="a.x > A.x")
    assert '"a".x > A.x' in print_match_recognize(query)


def test_a_query_without_a_pattern_has_no_sql():
    with pytest.raises(BindError, match="no pattern"):
        print_match_recognize(Query())
    assert print_fluent(Query()) == "(\n    op.Query('query')\n)"
