"""Windows as values: what can be asked for, what fits a schema, and the messages otherwise."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import pyarrow as pa
import pytest

import outpace as op
from outpace.errors import (
    BindError,
    DataError,
    OutpaceError,
    PatternSyntaxError,
    UnsupportedError,
)
from outpace.pattern.bind.query import bind, bind_operator
from outpace.pattern.bind.window_kinds import (
    ByContent,
    ByCount,
    ByLandmark,
    ByPredicate,
    BySession,
    ByTime,
    bind_windows,
)
from outpace.pattern.bound import PredicateClass
from outpace.pattern.notation.print_query import print_identity
from outpace.pattern.windows import CountWindows, SessionWindows, TimeWindows

SECOND = datetime.timedelta(seconds=1)
SCHEMA = pa.schema(
    [
        ("Symbol", pa.string()),
        ("ts", pa.timestamp("ns", "UTC")),
        ("day", pa.date32()),
        ("seq", pa.int32()),
        ("price", pa.float64()),
    ]
)


class Never(op.windows.Predicate):
    def opens(
        self, event: Mapping[str, object], windows: tuple[op.windows.OpenWindow, ...]
    ) -> bool:
        return False

    def closes(self, event: Mapping[str, object], window: op.windows.OpenWindow) -> bool:
        return False

    def clone(self) -> Never:
        return Never()


def over(windows: object, *order: str, **options: bool) -> op.Query:
    query = op.Query().pattern("A").over(windows, **options)  # type: ignore[arg-type]
    return query.order_by(*order) if order else query


def test_spans_may_be_written_in_three_ways() -> None:
    assert op.windows.time("10 s", "1 s") == TimeWindows(10 * SECOND, SECOND, 0 * SECOND)
    assert op.windows.time(10 * SECOND, slide=SECOND) == op.windows.time("10 s", "1000 ms")
    assert op.windows.time(100, 10, -3) == TimeWindows(100, 10, -3)
    assert op.windows.session("1 min") == SessionWindows(60 * SECOND)


def test_without_a_slide_windows_follow_each_other() -> None:
    assert op.windows.count(7) == CountWindows(7, 7)
    assert op.windows.time("7 s") == TimeWindows(7 * SECOND, 7 * SECOND)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: op.windows.count(0), "size is at least 1, not 0"),
        (lambda: op.windows.count(5, 0), "slide is at least 1, not 0"),
        (lambda: op.windows.count("5 s"), "the size of a count window is a whole number of events"),
        (lambda: op.windows.count(5, offset=1.5), "the offset of a count window is a whole number"),
        (lambda: op.windows.count(1 << 61), "size is too large"),
        (lambda: op.windows.count(10_000_001, 1), "an event is in 10000001 windows"),
        (lambda: op.windows.time("1 day", "1 ms"), "an event is in 86400000 windows"),
        (lambda: op.windows.time("0 s"), "size is at least 1 microsecond, not 0 seconds"),
        (lambda: op.windows.time(10, -1), "slide is at least 1, not -1"),
        (lambda: op.windows.time("10 s", 1), "size is 10 seconds, but slide is 1"),
        (lambda: op.windows.time(10, 1, "1 s"), "size is 10, but offset is 1 second"),
        (lambda: op.windows.time(1.5), "size is a duration or an integer, not 1.5"),
        (lambda: op.windows.time(None), "size is a duration or an integer, not None"),
        (lambda: op.windows.time("10 parsecs"), "'parsecs' is no unit of time"),
        (lambda: op.windows.session(0), "gap is at least 1, not 0"),
        (lambda: op.windows.session(True), "gap is a duration or an integer, not True"),
        (lambda: op.windows.between(open="x = 1"), "have open and close, or a predicate"),
        (lambda: op.windows.between(), "have open and close, or a predicate"),
        (
            lambda: op.windows.between("x = 1", "x = 2", predicate=Never()),
            "have open and close, or a predicate",
        ),
        (lambda: op.windows.between(predicate=Never), "a window predicate is expected, not <class"),
        (lambda: op.windows.landmark("x ="), "expected an expression"),
    ],
)
def test_what_can_be_no_window_is_refused_at_once(make, message) -> None:
    with pytest.raises(OutpaceError, match=message):
        make()


def drifting(windows, drift, **measures: str) -> op.Query:
    query = op.Query().order_by("ts").pattern("A+").over(windows, drift=drift)
    return query.measures(measures) if measures else query


@pytest.mark.parametrize(
    ("windows", "drift", "message"),
    [
        (op.windows.time("1 s"), 0, "drift is at least 1, not 0"),
        (op.windows.time("1 s"), "-50 ms", "drift is at least 1 microsecond, not -50 millisec"),
        (op.windows.time("1 s"), "1 s", "the drift is shorter than the window, 1 second, not 1 s"),
        (op.windows.time("1 s"), 50, "windows are measured by 1 second, but drift is 50"),
        (op.windows.time(1000), "50 ms", "measured by 1000, but drift is 50 milliseconds"),
        (op.windows.time("1 s"), 0.5, "drift is a duration or an integer, not 0.5"),
        (op.windows.time("1 s"), True, "drift is a duration or an integer, not True"),
        (op.windows.count(9), 9, "the drift is shorter than the window, 9, not 9"),
        (op.windows.count(9), -1, "drift is at least 1, not -1"),
        (op.windows.count(9), "50 ms", "the drift of count windows is a number of events"),
        (op.windows.session("1 s"), "2 s", "shorter than the gap of a session, 1 second, not 2"),
        (op.windows.landmark(), 1, "windows that the content of events begins have no drift"),
        (op.windows.between("TRUE", "TRUE"), 1, "the content of events begins have no drift"),
    ],
)
def test_what_can_be_no_drift_is_refused_at_once(windows, drift, message) -> None:
    with pytest.raises(BindError, match=message):
        op.Query().over(windows, drift=drift)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (drifting(op.windows.time("1 s"), "1 ms"), "with a drift need measures"),
        (drifting(op.windows.time("1 s"), "1 ms", at="LAST(ts)"), "'at' is a timestamp"),
        (drifting(op.windows.count(9), 2, is_high="MAX(price) > 3"), "'is_high' is a bool"),
        (
            drifting(op.windows.count(9), 2, n="COUNT(*)", n_low="COUNT(*)"),
            "the result has two columns 'n_low'",
        ),
        (
            drifting(op.windows.count(9), 2, n="COUNT(*)").pattern("A B"),
            "a window may have several matches, and with a drift it has one",
        ),
        (drifting(op.windows.count(9), 2, n="COUNT(*)").define(A="price > 1"), "several matches"),
        (drifting(op.windows.count(9), 2, n="COUNT(*)").within("1 s"), "several matches"),
        (drifting(op.windows.count(9), 2, n="COUNT(*)").skip_to_next_row(), "several matches"),
        (drifting(op.windows.count(9), 2, n="COUNT(*)").pattern("A+?"), "several matches"),
        (drifting(op.windows.count(9), 2, n="COUNT(*)").pattern("^ A | B"), "several matches"),
        (drifting(op.windows.count(9), 2, n="COUNT(*)").pattern("^ A ->> B"), "several matches"),
        (
            drifting(op.windows.count(9), 2, n="COUNT(*)").all_rows_per_match(),
            "windows with a drift give one row each",
        ),
    ],
)
def test_what_has_no_meaning_in_windows_with_a_drift_is_refused(query, message) -> None:
    with pytest.raises(BindError, match=message):
        bind(query, SCHEMA)


@pytest.mark.parametrize("pattern", ["A*", "A++", "^ A B", "^ A | ^ B C", "^ A -> B $"])
def test_patterns_with_one_match_in_a_window_may_have_a_drift(pattern) -> None:
    query = drifting(op.windows.count(9), 2, n="COUNT(*)").pattern(pattern)
    names = ["n", "n_low", "n_middle", "n_high", "n_spread"]
    assert bind(query, SCHEMA).output.names == names
    limited = drifting(op.windows.count(9), 2, n="COUNT(*)").pattern("A ->> B").limit(1)
    assert bind(limited, SCHEMA).output.names == names


def test_an_operator_of_a_user_has_no_drift() -> None:
    query = op.Query().over(op.windows.count(9), drift=2).apply(lambda: None)
    with pytest.raises(BindError, match="its windows have no drift"):
        bind_operator(query, SCHEMA)


def test_a_drift_is_written_and_read() -> None:
    query = drifting(op.windows.time("10 s"), "50 ms", n="COUNT(*)")
    assert query.duplicates
    text = "ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A+) OVER TIME ('10 s') DRIFT '50 ms'"
    assert op.Query.from_sql(text) == query
    assert op.Query.from_sql(query.to_sql()) == query
    assert ".over(op.windows.time('10 seconds'), drift='50 milliseconds')" in query.to_python()
    assert print_identity(query) != print_identity(query.over(op.windows.time("10 s")))
    with pytest.raises(PatternSyntaxError, match="the drift is shorter than the window, 9, not 10"):
        op.Query.from_sql("ORDER BY ts PATTERN (A+) OVER COUNT (9) DRIFT 10")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: op.Query().instances(0),
            "a whole number of at least 1, not 0",
        ),
        (
            lambda: op.Query().instances("2"),
            "a whole number of at least 1, not '2'",
        ),
        (lambda: op.Query().instances(2, op.schedulers.RoundRobin), "a scheduler is expected, not"),
        (
            lambda: op.schedulers.Batches(0),
            "a whole number of at least 1, not 0",
        ),
        (
            lambda: op.schedulers.Batches("2"),
            "a whole number of at least 1, not '2'",
        ),
    ],
)
def test_what_can_be_no_instances_is_refused_at_once(make, message) -> None:
    with pytest.raises(BindError, match=message):
        make()


def test_spans_are_bound_in_units_of_the_time_column() -> None:
    assert bind_windows(over(op.windows.time("2 s", "1 s"), "ts"), SCHEMA).kind == ByTime(
        2_000_000, 1_000_000, 0
    )
    assert bind_windows(over(op.windows.time("2 days"), "DAY"), SCHEMA).time == "day"
    assert bind_windows(over(op.windows.session(5), "seq"), SCHEMA).kind == BySession(5)
    assert bind_windows(over(op.windows.count(5, 3, -1)), SCHEMA).kind == ByCount(5, 3, -1)


def test_a_time_is_bound_where_it_closes_windows_or_is_shown() -> None:
    times = {
        (numbered, order): bind_windows(
            over(op.windows.count(5), order, numbered=numbered), SCHEMA
        ).time
        for numbered in (False, True)
        for order in ("ts", "price", "ts desc")
    }
    assert times.pop((True, "ts")) == "ts"
    assert set(times.values()) == {None}
    assert bind_windows(over(op.windows.time("1 s"), "ts"), SCHEMA).time == "ts"


def test_bounds_of_windows_have_room_beside_a_narrow_time() -> None:
    narrow = pa.table({"ts": pa.array([1, 3], pa.uint8())})
    query = over(op.windows.time(4, 2), "ts", numbered=True).measures(at="A.ts")
    shown = op.match(narrow, query)
    assert shown.column("window_start").to_pylist() == [-2, 0]
    assert shown.schema.field("window_start").type == pa.int64()


def test_a_falling_order_shows_no_times() -> None:
    query = over(op.windows.count(2), "ts desc", numbered=True).measures(at="A.ts")
    shown = op.match({"ts": [1, 3]}, query)
    assert shown.column("at").to_pylist() == [3, 1]
    assert shown.column("window_start").to_pylist() == [None, None]


def test_a_time_beyond_64_bits_is_refused() -> None:
    wide = pa.table({"ts": pa.array([1 << 63], pa.uint64())})
    with pytest.raises(DataError, match="is out of range"):
        op.match(wide, over(op.windows.time(4), "ts").measures(at="A.ts"))


def test_conditions_are_bound_to_the_event_alone() -> None:
    windows = bind_windows(over(op.windows.between("SYMBOL = 'a'", "TRUE")), SCHEMA)
    assert isinstance(windows.kind, ByContent)
    assert windows.kind.open.kind is PredicateClass.LOCAL
    assert windows.kind.close.kind is PredicateClass.ALWAYS
    assert windows.columns == ("Symbol",)
    marked = bind_windows(over(op.windows.landmark(op.col("price") > 1)), SCHEMA)
    assert isinstance(marked.kind, ByLandmark)
    assert marked.columns == ("price",)


def test_a_predicate_sees_the_whole_event() -> None:
    query = over(op.windows.between(predicate=Never())).partition_by("symbol")
    windows = bind_windows(query, SCHEMA)
    assert isinstance(windows.kind, ByPredicate)
    assert windows.keyed
    assert list(windows.columns) == SCHEMA.names


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (op.Query().pattern("A"), "the query has no windows"),
        (over(op.windows.time("1 s")), "time windows need an event time"),
        (over(op.windows.session("1 s")), "session windows need an event time"),
        (over(op.windows.time("1 s"), "seq"), "a duration is given, but 'seq' holds integers"),
        (over(op.windows.session(5), "ts"), "an integer is given, but 'ts' is a timestamp"),
        (over(op.windows.time(5), "price"), "time windows cannot measure 'price' of type double"),
        (over(op.windows.time("1 s"), "ts desc"), "time windows need ascending time"),
        (over(op.windows.time("1 s"), "tz"), "unknown column 'tz'"),
        (over(op.windows.landmark("PREV(price) > 1")), "opens and closes by the event alone"),
        (over(op.windows.landmark("COUNT(*) > 1")), "opens and closes by the event alone"),
        (over(op.windows.between("price", "TRUE")), "a condition is expected, but this is a value"),
        (over(op.windows.between("prize > 1", "TRUE")), "unknown column 'prize'"),
    ],
)
def test_what_does_not_fit_is_refused(query, message) -> None:
    with pytest.raises(BindError, match=message):
        bind_windows(query, SCHEMA)


def test_a_refused_condition_is_shown_in_its_place() -> None:
    with pytest.raises(BindError) as refused:
        bind_windows(over(op.windows.between("TRUE", "price > PREV(price)")), SCHEMA)
    assert str(refused.value).splitlines()[:3] == [
        "[bind] a window opens and closes by the event alone",
        "  window close, line 1, column 1",
        "    price > PREV(price)",
    ]


def test_three_ways_in_give_the_same_query() -> None:
    query = (
        op.Query()
        .order_by("ts")
        .pattern("A B")
        .over(op.windows.time("10 s", slide="1 s"), numbered=True)
        .instances(4, schedule=op.schedulers.Batches(size=8))
    )
    text = """
        ORDER BY ts PATTERN (A B)
        OVER TIME (INTERVAL '10' SECOND SLIDE '1 s') NUMBERED
        INSTANCES 4 SCHEDULE BATCHES OF 8"""
    assert op.Query.from_sql(text) == query
    assert op.Query.from_sql(query.to_sql()) == query
    assert ".over(op.windows.time('10 seconds', slide='1 second'), numbered=True)" in (
        query.to_python()
    )
    assert ".instances(4, schedule=op.schedulers.Batches(size=8))" in query.to_python()


def test_what_is_written_in_python_has_no_sql_text() -> None:
    class Mine(op.schedulers.Scheduler):
        def assign(self, window, loads):
            return 0

    with pytest.raises(UnsupportedError, match="a Python object opens and closes have no SQL text"):
        over(op.windows.between(predicate=Never())).to_sql()
    with pytest.raises(UnsupportedError, match="a scheduler written in Python has no SQL text"):
        over(op.windows.count(5)).instances(2, schedule=Mine()).to_sql()
    assert "between(predicate=Never())" in over(op.windows.between(predicate=Never())).to_python()


def test_the_identity_of_a_query_is_what_it_finds() -> None:
    class Other(Never):
        pass

    count = over(op.windows.count(5))
    assert print_identity(count) == print_identity(count.instances(4, op.schedulers.ByKey()))
    different = [
        count,
        over(op.windows.count(6)),
        over(op.windows.count(5), numbered=True),
        over(op.windows.between(predicate=Never())),
        over(op.windows.between(predicate=Other())),
        over(op.windows.between(predicate=Other()), duplicates=True),
        op.Query().pattern("A"),
    ]
    assert len({print_identity(query) for query in different}) == len(different)
