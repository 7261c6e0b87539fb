"""EXPLAIN: its exact text for a few queries, and that any query can be explained."""

import xml.etree.ElementTree as ET

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.explaining import CONDITIONS
from support.strategies import patterns

from outpace.errors import BindError, OutpaceError, UnsupportedError
from outpace.explanation.explain import explain
from outpace.pattern import ast, query
from outpace.pattern.checkpoints import Adaptive, CheckpointModel, EverySpeculative
from outpace.pattern.disorder import Disorder, KSlack, MPKSlack, Punctuation, Speculative
from outpace.pattern.query import Query
from outpace.pattern.windows import BetweenWindows, CountWindows, WindowPredicate
from outpace.plan.row_plan import plan_query
from outpace.plan.stream_plan import plan_stream

TICKS = pa.schema([("ts", pa.timestamp("us")), ("symbol", pa.string()), ("price", pa.float64())])
DIP = (
    Query("dip")
    .partition_by("symbol")
    .order_by("ts")
    .pattern("STRT DOWN+ UP+")
    .define(DOWN="price < PREV(price)", UP="price > PREV(price)")
    .measures(bottom="LAST(DOWN.price)", ticks="COUNT(*)")
    .within("1 hour")
)


def section(text: str, title: str) -> list[str]:
    """The lines of one section, without their indent."""
    blocks = [block.split("\n") for block in text.split("\n\n")]
    found = next(block for block in blocks if block[0] == title)
    return [line[2:] for line in found[1:]]


def test_a_query_without_a_schema():
    assert (
        str(DIP.explain())
        == """
query dip
  MATCH_RECOGNIZE (
    PARTITION BY symbol
    ORDER BY ts
    MEASURES
      LAST(DOWN.price) AS bottom,
      COUNT(*) AS ticks
    ONE ROW PER MATCH
    PATTERN (STRT DOWN+ UP+)
    WITHIN INTERVAL '1' HOUR
    DEFINE
      DOWN AS price < PREV(price),
      UP AS price > PREV(price)
  )

tree
  sequence
    STRT
    then at once: one or more, greedy, at once after each other
      DOWN
    then at once: one or more, greedy, at once after each other
      UP

automaton
  3 positions; numbers 1., 2. are the order of preference
  start     1. 0 STRT
  0 STRT    1. 1 DOWN, the very next event
  1 DOWN    1. 1 DOWN, the very next event
            2. 2 UP, the very next event
  2 UP      1. 2 UP, the very next event
            2. accept

conditions
  variable  class   runs                                       condition
  STRT      always  nowhere                                    every row fits
  DOWN      offset  before matching, as bits of whole columns  price < PREV(price)
  UP        offset  before matching, as bits of whole columns  price > PREV(price)

stages
  order: rows are sorted by ts; rows with equal values keep the input's order
  partition: by symbol, each matched on its own
  match: chosen with a schema
  select: the preferred match of each start, after a match skip past last row
  measures: bottom, ticks
  rows: one row per match
  left out: reorderer (the rows are sorted here), splitter (the query has no windows), merger (one \
instance)

cost
  polynomial: from each start at most 3 positions × the rows of 1 hour,
  because no part of the search is tried twice

memory
  in a stream: keeps rows of the last 1 hour per partition

result
  its types are known when the query meets a schema
""".strip()
    )


def test_a_schema_adds_the_matcher_the_result_and_what_a_stream_keeps():
    text = DIP.explain(TICKS).text
    assert section(text, "stages")[2] == (
        "match: by the kernel, a compiled search for the preferred match of each start"
    )
    assert section(text, "memory") == [
        "in a stream: keeps rows of the last 1 hour per partition",
        "and 1 row before them, for PREV",
    ]
    assert section(text, "result") == ["symbol: varchar", "bottom: double", "ticks: bigint"]


def test_warnings_are_shown():
    doubtful = DIP.define(UP="UP.price > LAST(UP.price)")
    (warning,) = section(doubtful.explain(TICKS).text, "warnings")
    assert warning.startswith("define UP: a value is compared with itself")


def test_a_match_that_shows_its_partition_alone_is_told():
    keyed = Query("q").partition_by("symbol").order_by("ts").pattern("A")
    assert "measures: none, so a match shows its partition alone" in explain(keyed).text
    assert "measures: none\n" in explain(keyed.all_rows_per_match()).text


def test_all_kinds_of_nodes_and_guards_in_words():
    text = explain(
        Query()
        .order_by("ts")
        .pattern("^ A -> (B | C)(->){2,3} UNTIL U -> D*+ -> !N -> {- E -} $ | PERMUTE(F, G) !N H")
        .within("1 hour")
    ).text
    assert section(text, "tree") == [
        "one of, the first preferred",
        "  sequence",
        "    the partition's first row comes next",
        "    then at once: A",
        "    then next: 2 to 3, greedy, each the next that fits, until U",
        "      one of, the first preferred",
        "        B",
        "        C",
        "    then next: any number, possessive, each the next that fits",
        "      D",
        "    then next: no N",
        "    then next: left out of the rows",
        "      E",
        "    then at once: the partition's last row came before",
        "  sequence",
        "    all of, in any order",
        "      F",
        "      G",
        "    then at once: no N",
        "    then at once: H",
    ]
    automaton = "\n".join(section(text, "automaton"))
    for words in (
        "only at the partition's first row",
        "accept, only after the partition's last row",
        "until U comes",
        "passing over no D",
        "unless N comes before",
        "unless the very next event is N",
        "{- E -}",
    ):
        assert words in automaton


@pytest.mark.parametrize(
    ("pattern", "within", "cost", "memory"),
    [
        (
            "A B? C",
            None,
            "linear: each start looks at no more than 3 rows",
            "in a stream: keeps at most the last 3 rows per partition",
        ),
        (
            "A -> B",
            None,
            "linear: each step reads the rows once, for all starts together",
            "in a stream: keeps all rows from the first open start on; WITHIN would bound that",
        ),
        (
            "A ->> B",
            "5 s",
            "each ->> multiplies the matches by the rows that fit:",
            "in a stream: keeps rows of the last 5 seconds per partition",
        ),
        (
            "A+ P+",
            None,
            "a search that may take exponential time, because conditions read the match:",
            "in a stream: keeps all rows from the first open start on; WITHIN would bound that",
        ),
    ],
)
def test_cost_and_memory(pattern, within, cost, memory):
    asked = Query().order_by("ts").pattern(pattern)
    asked = asked.define(P="x > FIRST(A.x)") if "P" in pattern else asked
    text = explain(asked.within(within) if within else asked).text
    assert section(text, "cost")[0] == cost
    assert section(text, "memory") == [memory]


@pytest.mark.parametrize(
    ("pattern", "within", "cause"),
    [
        ("A B+ C", None, "B may repeat without end"),
        ("A -> B -> C?", None, "B, C may come at any later row"),
        ("A (B C)* -> D", None, "B may repeat without end and D may come at any later row"),
        ("A ->> B", None, "B may come at any later row"),
        ("A B+ C", "5 s", None),
        ("A B{1,9} C", None, None),
        ("A -> B -> C", None, None),
    ],
)
def test_a_quadratic_query_says_which_steps_make_it_so(pattern, within, cause):
    asked = Query().order_by("ts").pattern(pattern)
    lines = section(explain(asked.within(within) if within else asked).text, "cost")
    told = [line for line in lines if line.startswith("quadratic")]
    expected = f"quadratic in the rows at worst, as {cause}: WITHIN would bound it;"
    assert told == ([] if cause is None else [expected])


def test_a_large_automaton_is_cut():
    lines = section(explain(Query().pattern("A{1000}")).text, "automaton")
    assert len(lines) < 140
    assert lines[-1].startswith("... and ")


def test_the_picture_comes_along():
    explained = DIP.explain()
    assert explained.dot.startswith('digraph "dip: STRT DOWN+ UP+"')
    root = ET.fromstring(explained.svg)
    assert root.tag.endswith("svg")
    assert "&lt; PREV(price)" in explain(DIP)._repr_html_()


def test_a_query_that_does_not_fit_is_refused():
    with pytest.raises(BindError, match="the query has no pattern"):
        explain(Query())
    with pytest.raises(BindError, match="unknown column"):
        explain(DIP, pa.schema([("ts", pa.timestamp("us"))]))


def test_without_a_planner_the_error_says_what_to_import(monkeypatch):
    monkeypatch.setattr(query, "_explainers", [])
    with pytest.raises(UnsupportedError, match="no planner is loaded"):
        DIP.explain()


@given(patterns(), st.data())
def test_the_class_by_text_is_the_class_by_binding(tree, data):
    definitions = {name: data.draw(st.sampled_from(CONDITIONS)) for name in ast.predicates(tree)}
    asked = (
        Query()
        .order_by("ts")
        .pattern(tree)
        .define({name: text for name, text in definitions.items() if text})
        .measures(n="COUNT(*)")
        .select("preferred")
        .within(5)
    )
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    try:
        bound = explain(asked, schema)
    except OutpaceError:
        return
    assert [c.kind for c in bound._conditions] == [c.kind for c in explain(asked)._conditions]
    assert bound.text


def test_windows_show_which_parts_run():
    chain = (
        Query("q")
        .order_by("ts")
        .pattern("A -> B")
        .define(A="v = 0", B="v = 1")
        .measures(n="COUNT(*)")
        .over(CountWindows(1000, 50))
    )
    schema = pa.schema({"ts": pa.int64(), "v": pa.int64()})
    text = str(explain(chain, schema))
    assert "splitter: over(op.windows.count(1000, slide=50))" in text
    assert "windows: share the search of each start" in text
    assert "merger: by match number x:y, a match of several windows once" in text
    assert "left out: reorderer (the rows are sorted here)\n" in text
    assert "keeps rows of open windows" in text
    tumbling = chain.over(CountWindows(1000, 1000), duplicates=True).instances(2)
    text = str(explain(tumbling, schema))
    assert "windows: matched one by one" in text
    assert "instances: 2, chosen by Batches(" in text
    assert "a match in every window that finds it" in text


LEAST_WORK = (
    "where they and going back take least in all, by what is measured, and as a rule apart by at"
    " least 0.7 of 1/256 of the events that are kept"
)
WITHIN_K = "and to go back the events within K, those behind one checkpoint more, and their matches"


class Tenth(CheckpointModel):
    def interval(self, work):
        return 10


@pytest.mark.parametrize(
    ("disorder", "reach", "checkpoints", "memory"),
    [
        (
            Speculative(),
            "an event that is late by K at most, as MPKSlack says, is put in its place;"
            " others: drop",
            LEAST_WORK,
            "nothing bounds K: at_most of its reorderer would, and memory the events",
        ),
        (
            Speculative("2 s", checkpoints=1, late="side", memory=5000),
            "an event that is late by K at most, as KSlack 2 seconds says, is put in its place;"
            " others: side",
            "every 1 event",
            "of which at most 5,000 are speculation: others wait longer",
        ),
        (
            Speculative(Punctuation(), checkpoints=EverySpeculative(50)),
            "an event that is not before the time that was told is put in its place; others: drop",
            "every 50 events of speculation, and 1000 events behind the last one at most",
            WITHIN_K,
        ),
        (
            Speculative(MPKSlack(at_most="1 s"), checkpoints=Adaptive()),
            "an event that is late by K at most, as MPKSlack 1 second says, is put in its place;"
            " others: drop",
            "as soon as events took as long as a checkpoint does",
            WITHIN_K,
        ),
        (
            Speculative("2 s", checkpoints=Tenth()),
            "an event that is late by K at most, as KSlack 2 seconds says, is put in its place;"
            " others: drop",
            "where Tenth says",
            WITHIN_K,
        ),
        (
            KSlack("2 s", late="correct", horizon="1 minute"),
            "an event that is at most 1 minute behind the watermark is put in its place",
            LEAST_WORK,
            "and to go back the events of 1 minute, and their matches",
        ),
    ],
)
def test_what_is_corrected_says_how_far_it_goes_back_and_what_that_costs(
    disorder: Disorder, reach: str, checkpoints: str, memory: str
) -> None:
    query = DIP.disorder(disorder).over(CountWindows(100, 10))
    for data in (None, TICKS, plan_stream(query, TICKS, 2)):
        text = explain(query, data).text
        told = section(text, "going back")
        assert told[0] == f"reach: {reach}"
        assert told[1] == f"checkpoints: {checkpoints}"
        assert "keys, open windows, who has them, runs" in told[2]
        assert "matched once more" in told[4]
        assert section(text, "memory")[-1] == memory


def test_what_is_final_goes_nowhere_back() -> None:
    assert "going back" not in explain(DIP.disorder(KSlack("2 s")), TICKS).text


def test_a_stream_on_spark_has_the_reorderer_that_its_plan_has():
    ticks = DIP.disorder(KSlack("2 s"))
    plan = plan_stream(ticks, TICKS, 2)
    explanation = explain(ticks, plan)
    assert explanation.operator is plan.operator
    stages = section(explanation.text, "stages")
    assert stages[0] == "order: a reorderer puts the events of the stream in order by ts"
    assert stages[-1] == (
        "left out: splitter (the query has no windows), merger (each key has one instance)"
    )
    assert "  order: an event waits until one is seen that is 2 seconds later" in plan.lines()
    assert section(explanation.text, plan.lines()[0]) == [line[2:] for line in plan.lines()[1:]]
    table = section(explain(ticks, plan_query(ticks, TICKS)).text, "stages")
    assert table[-1].startswith("left out: reorderer (the rows are sorted here), splitter")


@pytest.mark.parametrize(("instances", "left_out"), [(1, ["merger (one instance)"]), (4, [])])
def test_a_stream_over_windows_merges_where_instances_share_them(instances, left_out):
    counted = Query("q").order_by("ts").pattern("A B").over(CountWindows(100, 10))
    counted = counted.measures(n="COUNT(*)").instances(instances)
    plan = plan_stream(counted, TICKS, 2)
    stages = section(explain(counted, plan).text, "stages")
    told = [line for line in stages if line.startswith("left out")]
    assert told == [f"left out: {part}" for part in left_out]
    assert any("merge: 1 instance" in line for line in plan.lines()) == (not left_out)


def test_the_matcher_is_that_of_the_operator_that_runs():
    query = Query("q").order_by("ts").pattern("A ->> B").within("1 hour")
    query = query.define(A="price > 1", B="price < 1").measures(n="COUNT(*)")
    timed = plan_stream(query, TICKS, 2, timeouts=True)
    assert explain(query, timed).matcher == "search"
    assert "match: by a compiled search for all matches" in explain(query, timed).text
    assert explain(query, plan_stream(query, TICKS, 2)).matcher == "graph"
    alike = explain(query, plan_query(query, TICKS)), explain(query, TICKS)
    for title in ("conditions", "cost", "memory", "result"):
        assert section(alike[0].text, title) == section(alike[1].text, title)


class Odd(WindowPredicate):
    def opens(self, event, windows):
        return event["v"] == 1

    def closes(self, event, window):
        return event["v"] == 3

    def clone(self):
        return Odd()


def test_windows_of_a_python_predicate_are_shown_as_python():
    found = Query("q").order_by("ts").pattern("A B").over(BetweenWindows(predicate=Odd()))
    text = explain(found, pa.schema({"ts": pa.int64(), "v": pa.int64()})).text
    assert ".over(op.windows.between(predicate=" in text
    assert "splitter: over(op.windows.between(predicate=" in text


def test_how_a_stream_orders_its_events_is_told() -> None:
    disorder = MPKSlack(at_most=5, late="side")
    asked = Query("q").order_by("ts").pattern("A").disorder(disorder)
    told = (
        "  order in a stream: an event waits until one is seen that is later by the largest delay"
        " so far (at_most 5); late events: side\n"
    )
    assert told in explain(asked).text
    assert told in explain(asked, pa.schema({"ts": pa.int64()})).text


def test_rows_that_are_found_by_the_value_of_an_earlier_one_are_told() -> None:
    schema = pa.schema([("ts", pa.int64()), ("kind", pa.string()), ("user", pa.string())])
    login = Query().order_by("ts").pattern("LOGIN ->> BUY").measures(n="COUNT(*)")
    login = login.define(LOGIN="kind = 'login'", BUY="kind = 'buy' AND user = LOGIN.user")
    explained = explain(login, schema)
    assert explained.matcher == "search"
    assert "match: by a compiled search for all matches of each start" in explained.text
    assert "inside the matcher, compiled, found by value" in explained.text
    preferred = explain(login.select("preferred"), schema)
    assert preferred.matcher == "kernel"
    assert "found by value" in preferred.text
    apart = login.define(BUY="kind = 'buy' AND user <> LOGIN.user")
    assert "found by value" not in explain(apart, schema).text


def test_a_query_that_leaves_compiled_code_is_warned_of(monkeypatch) -> None:
    schema = pa.schema([("ts", pa.int64()), ("name", pa.string())])
    near = Query().order_by("ts").pattern("A B").measures(n="COUNT(*)")
    near = near.define(B="name <> A.name AND LEVENSHTEIN_DISTANCE(name, A.name) < 2")
    asked = explain(near, schema)
    assert asked.matcher == "kernel"
    assert "inside the matcher, compiled in part, Python is asked" in asked.text
    assert "\nwarnings\n  a part of B's condition is not compiled: Python is asked" in asked.text
    assert "warnings" not in explain(near.define(B="name <> A.name"), schema).text
    plain = {
        "the pattern has more than 62 ways to go on at one place": near.pattern(
            " | ".join(f"V{number}" for number in range(63))
        ).define({}),
    }
    for reason, slow in plain.items():
        explained = explain(slow, schema)
        assert explained.matcher == "twin"
        assert f"\nwarnings\n  {reason}" in explained.text
        assert "so it is matched in plain Python" in explained.text
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert "\nwarnings\n  NUMBA_DISABLE_JIT is set" in explain(near, schema).text
