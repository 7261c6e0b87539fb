"""Matches where the order of events is uncertain: every order counts, and none is left out."""

from __future__ import annotations

import datetime
import decimal
import operator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.compiler.kernel import compiled
from outpace.engine.kernels.uncertain_sequences import find_uncertain
from outpace.engine.match import uncertain_matcher
from outpace.engine.match.contract import Resume
from outpace.engine.match.output import match_table
from outpace.engine.match.task import prepare, whole_block, with_clock_errors
from outpace.engine.match.uncertain_matcher import UncertainMatcher
from outpace.engine.message import ClockExchange, EventsArrived, SourceEnded, WatermarkArrived
from outpace.engine.operator import WholeOperator, emit_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import OutpaceError
from outpace.pattern import ast
from outpace.pattern.bind.uncertainty import CLOCK_ERROR
from outpace.pattern.bound import NUMBERING
from outpace.pattern.notation.parse_pattern import parse_pattern
from outpace.pattern.query import AfterMatch, Skip
from outpace.testing.every_order import Takes, UncertainEvents, confidences
from outpace.testing.oracle import Holds, Run

#: By variable: the kinds of its events, and how `v` compares with that of an A before, if it does.
FITS = {
    "A": ({0, 1}, None),
    "B": ({1, 2}, None),
    "C": ({2, 3}, None),
    "N": ({3, 4}, None),
    "R": ({1, 2}, ">"),
    "S": ({2, 3, 4}, "="),
    "T": ({1, 3}, "~"),
}
SIGNS = {">": operator.gt, "=": operator.eq, "~": lambda one, other: abs(one - other) == 1}
PATTERNS = (
    "A",
    "A -> B",
    "A ->> B",
    "A B",
    "A -> !N -> B",
    "A ->> !N ->> B",
    "A -> B -> C",
    "A -> B -> N",
    "A ->> B ->> C",
    "A -> !N -> B ->> !N ->> C",
    "A ->> !C ->> B -> N",
    "A B -> C",
    "A -> R",
    "A ->> !S ->> R C",
    "A -> !N",
    "A -> B -> !S",
    "A{2} -> C",
    "A+ -> C",
    "N -> A{2,3}",
    "A+ ->> !N ->> B",
    "A -> R{2} -> !S",
    "A{2} C+",
    "A ->> !T ->> C",
    "A -> T{2} -> !S",
    "A -> B? -> C",
    "(A | N) -> C",
    "A -> (B ->> N | T)? C",
    "B* -> C",
    "A -> C? -> !N -> B",
    "A -> B? -> !N",
    "B? -> A -> (C? -> !N -> T)? -> !S",
    "(A | B) ->> !T ->> (N | S)?",
    "A -> (B | C -> !N) -> S*",
)


def query_of(text: str, bound: int, within: int, source: str | None = None) -> op.Query:
    defined = {}
    for name in FITS.keys() & set(text):
        kinds, sign = FITS[name]
        defined[name] = f"kind IN ({', '.join(map(str, kinds))})"
        compared = "ABS(v - A.v) = 1" if sign == "~" else f"v {sign} A.v"
        defined[name] += "" if sign is None else f" AND {compared}"
    query = op.Query("q").order_by("ts").pattern(text).define(defined).no_skip().within(within)
    query = query.select("all").measures({n.lower(): f"ARRAY_AGG({n}.id)" for n in taken_by(text)})
    return query.uncertain(bound, source)


def taken_by(text: str) -> tuple[str, ...]:
    return ast.variables(parse_pattern(text))


def holds_in(rows: list[dict[str, Any]]) -> Holds:
    """Return the predicates as the definition takes them."""

    def holds(name: str, event: int, run: Run) -> bool:
        kinds, sign = FITS[name]
        if rows[event]["kind"] not in kinds:
            return False
        if sign is None:
            return True
        values = rows[event]["v"], *(rows[other]["v"] for other, label in run if label == "A")
        return len(values) == 2 and None not in values and bool(SIGNS[sign](*values))

    return holds


def meaning(
    text: str,
    table: pa.Table,
    bound: int,
    within: int | None,
    sourced: bool,
    window: tuple[int, int] | None = None,
) -> dict[Takes, str]:
    widths = [bound] * len(table)
    if CLOCK_ERROR.name in table.column_names:
        widths = [min(2 * error, bound) for error in table[CLOCK_ERROR.name].to_pylist()]
    events = UncertainEvents(
        table["ts"].to_pylist(), table["source"].to_pylist() if sourced else None, widths
    )
    return confidences(events, parse_pattern(text), holds_in(table.to_pylist()), within, window)


def found_in(matches: pa.Table) -> dict[Takes, str]:
    found = {}
    for row in matches.to_pylist():
        sure = row.pop("confidence", "?")
        match = frozenset((event, name.upper()) for name in row for event in row[name] or ())
        assert match not in found
        found[match] = sure
    return found


def several(match: Takes) -> bool:
    """Whether a step has more than one event."""
    return len({name for _, name in match}) < len(match)


def tables(size: int, waits: int = 3) -> st.SearchStrategy[pa.Table]:
    value = st.none() | st.integers(0, 2)
    event = st.tuples(st.integers(0, waits), st.integers(0, 4), st.integers(0, 1), value)

    def table(events: list[tuple[int, int, int, int | None]]) -> pa.Table:
        waited, kinds, sources, values = zip(*events, strict=True)
        times = [sum(waited[: place + 1]) for place in range(len(waited))]
        columns = {"ts": times, "kind": kinds, "source": sources, "id": range(len(times))}
        return pa.table({**columns, "v": pa.array(values, pa.int64())})

    return st.lists(event, min_size=1, max_size=size).map(table)


@pytest.mark.parametrize("text", PATTERNS)
@examples(10)
@given(tables(6), st.integers(1, 5), st.integers(1, 9), st.booleans())
def test_a_match_is_found_if_some_order_has_it_and_confirmed_if_every_order_has(
    text: str, table: pa.Table, bound: int, more: int, sourced: bool
) -> None:
    query = query_of(text, bound, bound + more, "source" if sourced else None)
    expected = meaning(text, table, bound, bound + more, sourced)
    found = found_in(op.match(table, query))
    if sourced:
        # Of several events of a step, more may be possible than the order of sources lets be.
        more_possible = set(filter(several, found)) - expected.keys()
        assert all(found[one] == "UNCERTAIN" for one in more_possible)
        found = {one: sure for one, sure in found.items() if one not in more_possible}
    assert found == expected
    assert op.search(table, query).count() == len(op.match(table, query))


#: Patterns of which a start has one match at most in a given order.
SINGLE = ("A -> B", "A B", "A -> B -> C", "A B -> C", "A -> R", "A{2} -> C", "A -> T{2}")
PAST_LAST = AfterMatch(Skip.PAST_LAST_ROW)


def test_where_matches_skip_one_pair_of_events_makes_all_behind_it_uncertain() -> None:
    """So none can be decided by itself, however far it lies behind: skipping is refused."""
    # The first two events may have changed places; the others are far apart.
    times = [0, 1, *range(10, 100, 10)]
    events = UncertainEvents(times, None, [2] * len(times))
    # Two events side by side, none of which is the first one.
    found = confidences(
        events, parse_pattern("A B"), lambda name, event, run: event > 0, 1000, after=PAST_LAST
    )
    pairs = {tuple(sorted(event for event, _ in match)): sure for match, sure in found.items()}
    assert set(pairs) == {(place, place + 1) for place in range(1, 10)}
    assert set(pairs.values()) == {"UNCERTAIN"}
    free = confidences(events, parse_pattern("A B"), lambda name, event, run: event > 0, 1000)
    assert [*free.values()].count("CONFIRMED") == 8


@pytest.mark.parametrize("text", SINGLE)
@examples(10)
@given(tables(6), st.integers(1, 5), st.booleans())
def test_without_skipping_no_match_is_missing_that_any_order_has_with_it(
    text: str, table: pa.Table, bound: int, sourced: bool
) -> None:
    """And what is a match in every order with skipping is one in every order without."""
    query = query_of(text, bound, 1000, "source" if sourced else None)
    events = UncertainEvents(
        table["ts"].to_pylist(),
        table["source"].to_pylist() if sourced else None,
        [bound] * len(table),
    )
    holds = holds_in(table.to_pylist())
    skipping = confidences(events, parse_pattern(text), holds, 1000, after=PAST_LAST)
    found = found_in(op.match(table, query))
    assert skipping.keys() <= found.keys()
    assert all(found[one] == "CONFIRMED" for one, sure in skipping.items() if sure == "CONFIRMED")


@examples(150)
@given(
    st.sampled_from(sorted(PATTERNS)),
    tables(5),
    st.integers(1, 4),
    st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(-3, 3)),
    st.none() | st.integers(1, 9),
    st.booleans(),
)
def test_in_a_window_are_the_events_whose_true_time_is(
    text: str,
    table: pa.Table,
    bound: int,
    windows: tuple[int, int, int],
    more: int | None,
    sourced: bool,
) -> None:
    longer, slide, offset = windows
    size = bound + longer
    query = query_of(text, bound, bound + (more or 9), "source" if sourced else None)
    query = query.over(
        op.windows.time(size, slide=slide, offset=offset), duplicates=True, numbered=True
    )
    negated = "!" in text
    if more is None and not negated:
        query = replace(query, bound=None)
    elif more is None:
        more = 9
    found = op.match(table, query)
    by_window: dict[int, dict[Takes, str]] = {}
    for number in set(found["window"].to_pylist()):
        own = found.filter(pc.equal(found["window"], number)).drop_columns(NUMBERING)
        by_window[number] = found_in(own)
    last = table["ts"].to_pylist()[-1]
    expected = {}
    for number in range((-offset - size - bound) // slide, (last + bound - offset) // slide + 1):
        start = offset + number * slide
        within = None if more is None else bound + more
        window = start, start + size
        if own := meaning(text, table, bound, within, sourced, window):
            expected[number] = own
        if sourced and number in by_window:
            possible = set(filter(several, by_window[number])) - own.keys()
            assert all(by_window[number].pop(one) == "UNCERTAIN" for one in possible)
    assert {number: own for number, own in by_window.items() if own} == expected


@examples(30)
@given(
    st.sampled_from(sorted(PATTERNS)),
    tables(6),
    st.integers(2, 6),
    st.integers(1, 9),
    st.booleans(),
    st.lists(st.sampled_from([0, 1, 2, 3, 9]), min_size=6, max_size=6),
)
def test_clocks_that_are_known_better_leave_fewer_orders(
    text: str, table: pa.Table, bound: int, more: int, sourced: bool, errors: list[int]
) -> None:
    table = table.append_column(CLOCK_ERROR, [errors[: len(table)]])
    query = query_of(text, bound, bound + more, "source" if sourced else None)
    task = with_clock_errors(prepare(query, table.schema.remove(5)))
    block = whole_block(task, table)
    matches = UncertainMatcher(task)(block, Resume.fresh(1)).found
    found = found_in(match_table(task, block, matches))
    expected = meaning(text, table, bound, bound + more, sourced)
    assert expected.keys() <= found.keys()
    if sourced or any(map(several, found)):
        sure = {one for one in found if found[one] == "CONFIRMED"}
        assert sure <= {one for one in expected if expected[one] == "CONFIRMED"}
    else:
        assert found == expected
    # Nobody is less sure than without.
    plain = found_in(op.match(table, query))
    assert found.keys() <= plain.keys()
    assert all(found[one] == plain[one] for one in found if plain[one] == "CONFIRMED")


@examples(60)
@given(
    st.sampled_from(sorted(PATTERNS)),
    tables(25),
    st.integers(1, 5),
    st.integers(1, 9),
    st.lists(st.integers(-5, 5), min_size=25, max_size=25),
)
def test_the_true_matches_are_found_and_those_confirmed_are_true(
    text: str, true: pa.Table, bound: int, more: int, errors: list[int]
) -> None:
    # Times are doubled, so that half of the bound is a whole number.
    times = [2 * time for time in true["ts"].to_pylist()]
    seen = [
        time + max(-bound, min(bound, error)) for time, error in zip(times, errors, strict=False)
    ]
    hidden = true.set_column(0, "ts", pa.array(times))
    observed = true.set_column(0, "ts", pa.array(seen)).sort_by("ts")
    query = query_of(text, 2 * bound, 2 * (bound + more))
    certain = op.match(hidden, replace(query, uncertainty=None))
    expected = set(found_in(certain))
    found = found_in(op.match(observed, query))
    assert expected <= set(found)
    assert {match for match, sure in found.items() if sure == "CONFIRMED"} <= expected


@examples(30)
@given(
    st.sampled_from(sorted(PATTERNS)),
    tables(30),
    st.integers(1, 5),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
    st.none() | st.integers(1, 15),
    st.lists(st.integers(0, 30), max_size=6),
    st.booleans(),
)
def test_a_stream_gives_the_matches_of_a_table_however_it_is_cut(
    text: str,
    table: pa.Table,
    bound: int,
    more: int,
    sourced: bool,
    keyed: bool,
    slide: int | None,
    cuts: list[int],
    saved: bool,
) -> None:
    query = query_of(text, bound, bound + more, "source" if sourced else None)
    if slide is not None:
        query = query.over(op.windows.time(bound + 7, slide=slide), duplicates=True, numbered=True)
    query = query.partition_by("source") if keyed else query
    spec = OperatorSpec(query, table.schema)
    whole = run(spec, table, list(range(len(table) + 1)), saved=False)
    bounds = [0, *sorted(min(cut, len(table)) for cut in cuts), len(table)]
    assert run(spec, table, bounds, saved=saved) == whole
    rows = sorted(map(repr, whole.table.to_pylist()))
    assert rows == sorted(map(repr, op.match(table, query).to_pylist()))


@examples(20)
@given(
    st.sampled_from(["A -> B", "A ->> B", "A -> !N -> B", "A -> !N", "A{2} -> C", "A B"]),
    st.lists(
        st.tuples(
            st.sampled_from("xy"),
            st.integers(0, 30),
            st.integers(0, 4) | st.tuples(st.integers(0, 15), st.integers(0, 15)),
        ),
        min_size=1,
        max_size=25,
    ),
    st.tuples(st.integers(-500, 500), st.integers(-500, 500)),
    st.booleans(),
)
def test_true_matches_are_found_by_clocks_as_they_were_measured(
    text: str,
    happened: list[tuple[str, int, int | tuple[int, int]]],
    drifts: tuple[int, int],
    saved: bool,
) -> None:
    """Kinds of events, or exchanges with the clock of a source, which is off by a drift."""
    off = dict(zip("xy", drifts, strict=True))
    query = query_of(text, 40, 90).disorder(op.InOrder(late="side")).uncertain(40, measured=True)
    stream = op.open(query, sources=["x", "y"])
    now, true, tables = 10_000, [], []
    for source in "xy":
        # The first event of each is none of the pattern; then its clock is known.
        rows = {"ts": [now - 5000 - off[source]], "kind": [9], "id": [-1], "v": [0]}
        tables.append(stream.push(rows, source=source))
        own = now - off[source]
        exchange = ClockExchange(source, own, now + 14, now + 14, own + 18)
        tables.append(stream.compare_clocks(exchange))
    for number, (source, wait, what) in enumerate(happened):
        now += wait
        own = now - off[source]
        if isinstance(what, tuple):
            there, back = what
            exchange = ClockExchange(source, own, now + there, now + there, own + there + back)
            tables.append(stream.compare_clocks(exchange))
            continue
        rows = {"ts": [own], "kind": [what], "id": [number], "v": [0]}
        true.append({**rows, "ts": [now]})
        tables.append(stream.push(rows, source=source))
        if saved:
            stream = op.resume(query, stream.state())
    tables.append(stream.finish())
    assert all(reading.bound <= 9 for reading in stream.clocks.values())
    found = found_in(pa.concat_tables(tables))
    if not true:
        assert not found
        return
    table = pa.concat_tables([pa.table(row) for row in true])
    certain = op.match(table, replace(query, uncertainty=None, order_of_arrival=None))
    expected = set(found_in(certain))
    assert expected <= set(found)
    assert {match for match, sure in found.items() if sure == "CONFIRMED"} <= expected


def test_clocks_that_are_known_well_confirm_a_match() -> None:
    query = query_of("A -> B", 1000, 3000).disorder(op.InOrder())

    def confidence(query: op.Query, *round_trips: int) -> list[str]:
        stream = op.open(query, sources=["x", "y"])
        stream.push({"ts": [0], "kind": [9], "id": [0]}, source="x")
        for source, round_trip in zip("xy", round_trips, strict=False):
            stream.compare_clocks(
                ClockExchange(source, 0, round_trip // 2, round_trip // 2, round_trip)
            )
        tables = [
            stream.push({"ts": [5000], "kind": [0], "id": [1]}, source="x"),
            stream.push({"ts": [5100], "kind": [2], "id": [2]}, source="y"),
            stream.finish(),
        ]
        return pa.concat_tables(tables)["confidence"].to_pylist()

    measured = query.uncertain(1000, measured=True)
    assert confidence(query, 40, 100) == ["UNCERTAIN"]
    assert confidence(measured, 40, 100) == ["CONFIRMED"]
    # A clock that nobody has compared, or not well, counts as the bound says.
    assert confidence(measured, 40) == ["UNCERTAIN"]
    assert confidence(measured, 40, 900) == ["UNCERTAIN"]


def test_an_event_that_is_surely_in_one_of_two_gaps_and_may_be_in_neither_rules_a_match_out() -> (
    None
):
    rows = {"kind": [0, 1, 2, 3], "source": [0] * 4, "id": range(4), "v": [1] * 4}
    table = pa.table({"ts": [0, 3, 5, 12], **rows})
    # The third is a B and a C: behind the A, and before the last, so the second B cannot be taken.
    expected = meaning("A -> B -> C", table, 4, 20, sourced=False)
    assert frozenset({(0, "A"), (1, "B"), (3, "C")}) not in expected
    assert frozenset({(0, "A"), (2, "B"), (3, "C")}) in expected
    assert found_in(op.match(table, query_of("A -> B -> C", 4, 20))) == expected


def test_a_pattern_may_have_more_steps_than_a_number_has_bits() -> None:
    size = 70
    table = pa.table({"ts": range(0, 10 * size, 10), "kind": range(size)})
    names = [f"V{number}" for number in range(size)]
    query = op.Query("q").order_by("ts").pattern(" -> ".join(names)).within(1000).no_skip()
    query = query.define({name: f"kind = {name[1:]}" for name in names}).measures(n="COUNT(*)")
    found = [op.match(table, query.uncertain(bound)).to_pylist() for bound in (5, 25)]
    assert found == [[{"n": size, "confidence": one}] for one in ("CONFIRMED", "UNCERTAIN")]


def test_events_of_a_match_have_their_labels_though_they_came_in_another_order() -> None:
    query = query_of("A -> B -> C", 4, 9)
    query = query.measures(
        ids="ARRAY_AGG(id)", labels="ARRAY_AGG(CLASSIFIER())", one="CLASSIFIER()"
    )
    table = pa.table({"ts": [1, 2, 3], "kind": [3, 2, 0], "id": [7, 8, 9]})
    (found,) = op.match(table, query).select(["ids", "labels", "one"]).to_pylist()
    assert found == {"ids": [9, 8, 7], "labels": ["A", "B", "C"], "one": "C"}


def run(spec: OperatorSpec, table: pa.Table, bounds: list[int], *, saved: bool) -> WindowMatches:
    operator, found = WholeOperator(spec), []
    pieces = [EventsArrived(table.slice(low, high - low)) for low, high in pairwise(bounds)]
    for stimulus in (*pieces, SourceEnded()):
        found.append(emit_of(operator.step(stimulus)).matches)
        if saved:
            state, operator = operator.state(), WholeOperator(spec)
            operator.restore(state)
    return WindowMatches.joined(spec.bound.output, found)


def test_a_stream_keeps_what_a_later_match_may_need_also_of_silent_keys() -> None:
    query = query_of("A -> B", 10, 100).partition_by("source")
    stream = op.open(query)

    def push(ts: int, kind: int, source: int) -> list[dict[str, object]]:
        return stream.push({"ts": [ts], "kind": [kind], "source": [source], "id": [ts]}).to_pylist()

    assert push(0, 2, 1) == []
    assert push(5, 0, 1) == []
    assert push(15, 9, 2) == []
    assert push(16, 9, 2) == [{"source": 1, "a": [5], "b": [0], "confidence": "UNCERTAIN"}]
    assert stream.rows_kept == 4
    assert push(121, 9, 2) == []
    assert stream.rows_kept == 4
    assert push(126, 9, 2) == []
    assert stream.rows_kept == 4
    assert push(400, 9, 2) == []
    assert stream.rows_kept == 1


def test_what_time_alone_makes_final_comes_behind_the_events_of_all_keys() -> None:
    query = query_of("A -> B", 10, 100).partition_by("source")
    rows = {"ts": [0, 5, 15], "kind": [0, 2, 9], "source": [1, 1, 2], "id": [0, 1, 2]}
    table = pa.table(rows)
    operator = WholeOperator(OperatorSpec(query, table.schema))
    assert not len(emit_of(operator.step(EventsArrived(table))).matches)
    assert emit_of(operator.step(WatermarkArrived(20))).matches.event.tolist() == [3]


def test_compiled_code_finds_what_plain_python_finds() -> None:
    numbers = np.random.default_rng(3)
    size = 300
    table = pa.table(
        {
            "ts": np.sort(numbers.integers(0, 5 * size, size)),
            "kind": numbers.integers(0, 12, size),
            "source": numbers.integers(0, 3, size),
            "id": range(size),
            "v": numbers.integers(0, 3, size),
        }
    )
    # What is compiled keeps the function that it was made of; its type does not say so.
    plain_kernel = find_uncertain.__wrapped__  # type: ignore[attr-defined]
    kernel = compiled(plain_kernel)
    for text in PATTERNS:
        for source in (None, "source"):
            task = prepare(query_of(text, 20, 60, source), table.schema)
            matcher, block = UncertainMatcher(task), whole_block(task, table)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(uncertain_matcher, "find_uncertain", plain_kernel)
                plain = matcher(block, Resume.fresh(1)).found
                patch.setattr(uncertain_matcher, "find_uncertain", kernel)
                fast = matcher(block, Resume.fresh(1)).found
            assert plain.rows.tolist() == fast.rows.tolist()
            assert plain.confirmed.tolist() == fast.confirmed.tolist()
            assert len(plain.rows)


@pytest.mark.parametrize("begin", [-(1 << 62), (1 << 62) - 40])
def test_times_may_be_as_far_from_0_as_times_can_be(begin: int) -> None:
    rows = {"kind": [0, 1, 3, 0, 2, 0, 1, 3], "source": [0] * 8, "id": range(8), "v": [1] * 8}
    near = pa.table({"ts": [0, 2, 5, 9, 11, 31, 33, 39], **rows})
    far = near.set_column(0, "ts", pa.array([begin + time for time in near["ts"].to_pylist()]))
    for text in PATTERNS:
        query = query_of(text, 3, 9)
        assert op.match(far, query).equals(op.match(near, query)), text


NAN = float("nan")
VALUES = {
    "integers": ([3, None, -(1 << 63), 3, (1 << 63) - 1, 0], pa.int64()),
    "unsigned": ([3, None, 1 << 63, 3, 0, (1 << 64) - 1], pa.uint64()),
    "floats": ([0.0, -0.0, NAN, None, float("-inf"), NAN], pa.float64()),
    "narrow": ([1.5, -1.5, NAN, None, 1.5, 0.0], pa.float32()),
    "text": (["b", "", None, "ä", "b", "a"], pa.string()),
    "codes": (pa.array(["b", "", None, "ä", "b", "a"]).dictionary_encode(), None),
    "decimals": ([decimal.Decimal(one) for one in ("1.10", "-2", "1.1", "0", "9", "3")], None),
    "days": ([datetime.date(2020, 1, one) for one in (1, 5, 3, 1, 2, 9)], None),
    "flags": ([True, False, None, True, False, True], None),
    "nothing": ([None] * 6, pa.int64()),
}


@pytest.mark.parametrize("name", VALUES)
def test_conditions_on_earlier_events_mean_the_same_where_the_order_is_certain(name: str) -> None:
    values, kind = VALUES[name]
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    table = pa.table({"ts": range(0, 60, 10), "id": range(6), "x": column})
    signs = ["=", "<>"] if name == "flags" else ["=", "<>", "<", "<=", ">", ">="]
    others = ["A.x IS NULL AND x IS NOT NULL", "x = A.x OR id > A.id + 1", "NOT x IN (A.x)"]
    for condition in [*(f"x {sign} A.x" for sign in signs), *others]:
        query = op.Query("q").order_by("ts").pattern("A ->> !N ->> B").within(35).no_skip()
        query = query.define(B=condition, N="id = A.id + 2").measures(a="A.id", b="B.id")
        certain = op.match(table, query)
        found = op.match(table, query.uncertain(1))
        assert found.drop_columns("confidence").equals(certain), condition
        assert set(found["confidence"].to_pylist()) <= {"CONFIRMED"}


def test_a_value_is_computed_of_events_alone_that_have_to_do_with_it() -> None:
    table = pa.table({"ts": [0, 10, 20], "x": [4, 0, 9], "id": [0, 1, 2]})
    query = op.Query("q").order_by("ts").pattern("A -> B").within(35).no_skip().measures(b="B.id")
    query = query.define(A="x = 4", B="x > 8 / A.x AND x > 0").uncertain(1)
    assert op.match(table, query).to_pylist() == [{"b": 2, "confidence": "CONFIRMED"}]


def test_the_goal_that_a_delay_of_50_ms_hides_is_found() -> None:
    """Query 5.8 of the paper: two sources, 44 ms apart, whose clocks are off by 50 ms."""
    start = datetime.datetime(2026, 1, 1)
    times = [start + datetime.timedelta(milliseconds=ms) for ms in (0, 6, 900)]
    table = pa.table({"ts": times, "sid": ["1", "0", "0"], "near": [True, False, False]})
    goal = (
        op.Query("goal")
        .order_by("ts")
        .pattern("E1 -> E2")
        .define(E1="sid = '0'", E2="sid = '1' AND near")
        .within("2 s")
        .no_skip()
        .measures(at="E2.ts")
    )
    assert op.match(table, goal).num_rows == 0
    found = op.match(table, goal.uncertain("50 ms", source="sid"))
    assert found.to_pylist() == [{"at": times[0], "confidence": "UNCERTAIN"}]


def test_equal_values_name_one_source_in_every_type() -> None:
    base = {"ts": [1, 3], "kind": [0, 2], "id": [0, 1]}
    query = query_of("A -> B", 5, 9, "source")
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "a"]))
    for column in (twice, pa.array(["a", "a"]).dictionary_encode(), pa.array([0.0, -0.0])):
        found = op.match(pa.table({**base, "source": column}), query)
        assert found["confidence"].to_pylist() == ["CONFIRMED"]
    for nested in (pa.array([[1], [1]]), pa.array([{"x": 1}] * 2)):
        with pytest.raises(OutpaceError, match=r"column 'source' of type .* has no order"):
            op.match(pa.table({**base, "source": nested}), query)


BASE = op.Query("q").order_by("ts").pattern("A -> B").within(100).no_skip().measures(n="COUNT(*)")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BASE.uncertain(0), "uncertain must be longer than nothing, not 0"),
        (lambda: BASE.uncertain("-5 ms"), "uncertain must be longer than nothing"),
        (lambda: BASE.uncertain(1.5), "uncertain is a duration or an integer, not 1.5"),
        (lambda: BASE.uncertain(5, source=3), "the column of sources"),
        (lambda: BASE.uncertain("5 ms"), "uncertain is a duration, but 'ts' holds integers"),
        (lambda: BASE.uncertain(100), "uncertain must be shorter than within"),
        (lambda: BASE.uncertain(5, source="site"), "unknown column 'site'"),
        (lambda: BASE.uncertain(5).skip_past_last_row(), "a match rules out later ones"),
        (lambda: BASE.uncertain(5).limit(3), "a match rules out others"),
        (lambda: BASE.uncertain(5).pattern("A++ -> B"), "more than sequences of events"),
        (lambda: BASE.uncertain(5).pattern("(A | B)+ -> C"), "more than sequences of events"),
        (lambda: BASE.uncertain(5).pattern("PERMUTE(A, B)"), "more than sequences of events"),
        (lambda: BASE.uncertain(5).pattern("A !C B"), "more than sequences of events"),
        (lambda: BASE.uncertain(5).pattern("A+ -> B"), "one match of each start is preferred"),
        (lambda: BASE.uncertain(5).pattern("A? -> B"), "one match of each start is preferred"),
        (lambda: BASE.uncertain(5).pattern("A??"), "one match of each start is preferred"),
        (lambda: BASE.uncertain(5).pattern("A? -> !B"), "one match of each start is preferred"),
        (lambda: BASE.uncertain(5).pattern("(A | B) -> C"), "one match of each start is preferred"),
        (lambda: BASE.uncertain(5).pattern("A{2} -> !B -> !C -> D"), "two negations stand behind"),
        (
            lambda: BASE.uncertain(5).pattern("A{2,3} -> B? -> !C -> D"),
            "a part that may be left out stands between A and a negation",
        ),
        (
            lambda: BASE.uncertain(5).pattern(" -> ".join(f"A{n}?" for n in range(7))),
            "the pattern has more than 64 ways",
        ),
        (lambda: BASE.uncertain(5).pattern("A -> A"), "a variable stands twice"),
        (lambda: BASE.uncertain(5).define(B="v > PREV(v)"), "the condition of B reads other"),
        (lambda: BASE.uncertain(5).define(A="v > B.v"), "the condition of A reads other"),
        (lambda: BASE.uncertain(5).define(B="v > SUM(A.v)"), "the condition of B reads other"),
        (
            lambda: BASE.uncertain(5).pattern("A -> B -> C").define(C="v > A.v - B.v"),
            "the condition of C mixes values of two earlier events",
        ),
        (
            lambda: BASE.uncertain(5).pattern("A{2} -> B").define(B="v > A.v"),
            "the condition of B reads other",
        ),
        (lambda: BASE.uncertain(5).measures(b="PREV(B.v)"), "measure b reads the event before"),
        (lambda: BASE.uncertain(5).measures(confidence="1"), "a column 'confidence' already"),
        (lambda: BASE.uncertain(1 << 60).within(1 << 61), "within is at most 288230376151711744"),
        (lambda: BASE.uncertain(5).all_rows_per_match(), "all rows of a match are asked for"),
        (lambda: BASE.uncertain(5).over(op.windows.count(5)), "in windows that other events begin"),
        (lambda: BASE.uncertain(5).over(op.windows.landmark()), "in windows that other events"),
        (lambda: BASE.uncertain(5).over(op.windows.time(9)), "of several windows is returned once"),
        (lambda: BASE.uncertain(5).over(op.windows.time(9), drift=3), "windows have a drift"),
        (
            lambda: BASE.uncertain(9).over(op.windows.time(9), duplicates=True),
            "uncertain must be shorter than the windows",
        ),
        (
            lambda: BASE.uncertain(5).pattern("A ->> B").select("preferred"),
            "one match of each start is preferred",
        ),
        (
            lambda: op.Query("q").order_by("ts").pattern("A -> B").no_skip().uncertain(5),
            "uncertain needs within",
        ),
        (
            lambda: op.Query("q").order_by("ts").apply(lambda: None).uncertain(5),
            "a user-defined operator takes events in one order",
        ),
    ],
)
def test_what_is_not_supported_is_refused(make, message: str) -> None:
    table = pa.table({"ts": [1], "v": [1]})
    with pytest.raises(OutpaceError, match=message):
        op.match(table, make())


@pytest.mark.parametrize("asked", ["timed_out", "why", "why_not"])
def test_what_looks_at_one_order_is_refused(asked: str) -> None:
    search = op.search(pa.table({"ts": [1], "v": [1]}), BASE.uncertain(5))
    with pytest.raises(OutpaceError, match=f"{asked} looks at one order of the events"):
        getattr(search, asked)(*() if asked == "timed_out" else (0,))
    with pytest.raises(OutpaceError, match="partial matches are not known"):
        op.open(BASE.uncertain(5), timeouts=True).push({"ts": [1], "v": [1]})


def test_uncertainty_is_written_and_read() -> None:
    query = op.Query().order_by("ts").pattern("A -> B").within("1 s").no_skip()
    query = query.uncertain("50 ms", source="my site")
    measured = query.uncertain("50 ms", measured=True)
    assert " MEASURED\n" in measured.to_sql()
    assert op.Query.from_sql(measured.to_sql()) == measured
    assert "measured=True" in measured.to_python()
    text = """ORDER BY ts AFTER MATCH NO SKIP PATTERN (A -> B) WITHIN '1 s'
        UNCERTAIN '50 ms' SOURCE "my site" """
    assert op.Query.from_sql(text) == query
    assert op.Query.from_sql(query.to_sql()) == query
    assert ".uncertain('50 milliseconds', source='my site')" in query.to_python()
    assert "UNCERTAIN 5\n" in BASE.uncertain(5).to_sql()
