"""A stream out of order gives what its table gives, no match too early and none too late."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.engine.message import EventsArrived
from outpace.engine.order.choose import make_order
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bind.query import bind

Rows = list[dict[str, Any]]


def kinds(pattern: str) -> op.Query:
    return (
        op.Query("q")
        .order_by("ts")
        .pattern(pattern)
        .define({name: f"kind = '{name.lower()}'" for name in "ABCD" if name in pattern})
        .measures(ids="ARRAY_AGG(id)", labels="ARRAY_AGG(CLASSIFIER())")
        .within(5)
    )


QUERIES = {
    "strict": kinds("A B+ C"),
    "undecided": kinds("(A B C A | A B)"),
    "next": kinds("A -> B -> C").skip_to_next_row(),
    "any": kinds("A ->> B"),
    "deadline": kinds("A -> !B").no_skip(),
    "numbered": kinds("A !B C").measures(n="MATCH_NUMBER()"),
    "time windows": kinds("A -> B").over(op.windows.time(4, slide=2), numbered=True),
    "sessions": kinds("A ->> B").over(op.windows.session(2)),
    "count windows": kinds("A -> B").over(op.windows.count(4, slide=2), duplicates=True),
}


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[pa.Table, list[int], int]:
    """Draw events in order, an order of arrival, and how far that is out of order."""
    size = draw(st.integers(0, 14))
    slack = draw(st.integers(0, 6))
    numbers = st.lists(st.integers(0, 3), min_size=size, max_size=size)
    gaps, kind, keys = (draw(numbers) for _ in range(3))
    delays = draw(st.lists(st.integers(0, slack), min_size=size, max_size=size))
    times = list(itertools.accumulate(gaps))
    table = pa.table(
        {
            "ts": pa.array(times, pa.int64()),
            "seq": pa.array(range(size), pa.int64()),
            "id": pa.array(range(size), pa.int64()),
            "kind": pa.array(["abcd"[number] for number in kind], pa.string()),
            "key": pa.array(keys, pa.int64()),
        }
    )
    # No event arrives behind one that is more than the slack later.
    arrival = sorted(range(size), key=lambda row: (times[row] + delays[row], -row))
    return table, arrival, slack


def feed(query: op.Query, parts: list[pa.Table], *, resume: bool, timeouts: bool = False) -> Any:
    matcher = op.open(query, schema=parts[0].schema, timeouts=timeouts)
    found, out, late = [], [], []
    for part in parts:
        found += matcher.push(part).to_pylist()
        out += matcher.timed_out.to_pylist()
        late += matcher.late.to_pylist()
        if resume:
            matcher = op.resume(query, matcher.state(), timeouts=timeouts)
    found += matcher.finish().to_pylist()
    return found, out + matcher.timed_out.to_pylist(), late


def cut(table: pa.Table, places: list[int]) -> list[pa.Table]:
    bounds = [0, *sorted(place % (table.num_rows + 1) for place in places), table.num_rows]
    return [table.slice(start, end - start) for start, end in itertools.pairwise(bounds)]


def as_set(rows: Rows) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("name", QUERIES)
@examples(12)
@given(
    drawn=shuffled(),
    places=st.lists(st.integers(0, 14), max_size=5),
    keyed=st.booleans(),
    resume=st.booleans(),
)
def test_with_enough_slack_the_result_is_that_of_the_table(name, drawn, places, keyed, resume):
    table, arrival, slack = drawn
    query = QUERIES[name].partition_by("key") if keyed else QUERIES[name]
    query = query.disorder(op.KSlack(slack))
    parts = cut(table.take(pa.array(arrival, pa.int64())), places)
    found, _, late = feed(query, parts, resume=resume)
    assert late == []
    assert as_set(found) == as_set(op.match(table, query).to_pylist())


@examples(30)
@given(shuffled(), st.lists(st.integers(0, 14), max_size=5), st.booleans())
def test_partial_matches_time_out_as_in_a_stream_in_order(drawn, places, resume):
    table, arrival, slack = drawn
    query = kinds("A -> B -> C").partition_by("key")
    in_order = op.open(query, timeouts=True)
    expected = in_order.push(table).to_pylist()
    expected_out = in_order.timed_out.to_pylist()
    expected += in_order.finish().to_pylist()
    parts = cut(table.take(pa.array(arrival, pa.int64())), places)
    found, out, _ = feed(query.disorder(op.KSlack(slack)), parts, resume=resume, timeouts=True)
    assert as_set(found) == as_set(expected)
    assert as_set(out) == as_set(expected_out)


@examples(25)
@given(shuffled(), st.lists(st.integers(0, 14), max_size=5))
def test_telling_the_time_gives_what_slack_gives(drawn, places):
    table, arrival, slack = drawn
    query = QUERIES["deadline"].partition_by("key")
    waiting = op.open(query.disorder(op.KSlack(slack)), schema=table.schema)
    told = op.open(query.disorder(op.Punctuation()), schema=table.schema)
    greatest = None
    for part in cut(table.take(pa.array(arrival, pa.int64())), places):
        times = part["ts"].to_pylist()
        greatest = max([*times, *([] if greatest is None else [greatest])], default=None)
        expected = waiting.push(part).to_pylist()
        assert told.push(part).to_pylist() == []
        if greatest is not None:
            assert told.advance(greatest - slack).to_pylist() == expected
            assert told.buffered == waiting.buffered
    assert told.finish().to_pylist() == waiting.finish().to_pylist()


@pytest.mark.parametrize("name", ["strict", "deadline", "time windows", "count windows"])
@examples(12)
@given(
    drawn=shuffled(),
    places=st.lists(st.integers(0, 14), max_size=5),
    late=st.sampled_from(["drop", "pass", "side"]),
    in_order=st.booleans(),
    more=st.booleans(),
)
def test_whatever_is_late_the_result_is_that_of_the_events_that_take_part(
    name, drawn, places, late, in_order, more
):
    table, arrival, _ = drawn
    disorder = op.InOrder(late=late) if in_order else op.KSlack(1, late=late)
    query = QUERIES[name].order_by("ts", "kind") if more else QUERIES[name]
    query = query.disorder(disorder)
    reorderer = make_order(
        bind(query, table.schema), bind_disorder(query, table.schema), table.schema
    )
    parts = cut(table.take(pa.array(arrival, pa.int64())), places)
    released = [reorderer.push(EventsArrived(part)) for part in parts]
    took_part = pa.concat_tables([*(one.rows for one in released), reorderer.finish().rows])
    found, _, came_late = feed(query, parts, resume=False)
    late_rows = [one.late.to_pylist() for one in released if one.late is not None]
    assert came_late == [row for rows in late_rows for row in rows]
    assert took_part.num_rows == table.num_rows - len(came_late) * (late != "pass")
    assert as_set(found) == as_set(op.match(took_part, query).to_pylist())


#: Patterns whose matches two more events can always prevent while they are undecided.
DECIDABLE = ["(A B C D | A B)", "A B+", "A -> !B", "A B C", "A !B C"]


@pytest.mark.parametrize("pattern", DECIDABLE)
@examples(12)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from("abcd")), min_size=1, max_size=5),
    st.integers(0, 3),
)
def test_what_is_emitted_is_what_no_later_event_can_change(pattern, arrived, slack):
    """Try every pair of events that may still come: what all results share is out, and no more."""
    query = kinds(pattern).within(4)
    matcher = op.open(query.disorder(op.KSlack(slack)))
    events: list[tuple[int, int, str, int]] = []
    out: list[Any] = []
    for number, (time, kind) in enumerate(arrived):
        row = {"ts": [time], "seq": [number], "id": [number], "kind": [kind]}
        out += [match["ids"] for match in matcher.push(row).to_pylist()]
        if not matcher.late.num_rows:
            events.append((time, number, kind, number))
    watermark = max(time for time, _, _, _ in events) - slack
    times = range(watermark, watermark + 6)
    # They come before all events of the same time.
    more = [(time, -1, kind, 100) for time in times for kind in "abcd"]
    futures = [(), *((one,) for one in more), *itertools.product(more, more)]
    certain = shared_by_all(query, events, futures)
    assert sorted(out) == sorted(certain)


def shared_by_all(query: op.Query, events: list[Any], futures: list[Any]) -> list[Any]:
    """Return the matches of events that are found whatever comes."""
    rows = [
        (case, *event)
        for case, future in enumerate(futures)
        for event in sorted([*events, *future])
    ]
    columns = zip(*rows, strict=True)
    table = pa.table(
        dict(zip(("case", "ts", "seq", "kind", "id"), map(list, columns), strict=True))
    )
    found: dict[int, set[tuple[int, ...]]] = {case: set() for case in range(len(futures))}
    for match in op.match(table, query.partition_by("case")).to_pylist():
        found[match["case"]].add(tuple(match["ids"]))
    return [list(match) for match in set.intersection(*found.values()) if 100 not in match]


def test_a_preferred_alternative_is_waited_for_until_it_cannot_come():
    def opened() -> op.StreamMatcher:
        matcher = op.open(kinds("(A B C D | A B)").within(10).disorder(op.KSlack(0)))
        rows = {"ts": [1, 2, 3], "id": [1, 2, 3], "kind": list("abc")}
        assert matcher.push(rows).num_rows == 0
        return matcher

    # Time 3 may still see a D; at 4 all events of time 3 are known, and D may come.
    assert opened().push({"ts": [4], "id": [4], "kind": ["d"]}).num_rows == 0
    assert opened().advance(4).num_rows == 0
    assert opened().advance(10).num_rows == 0
    assert opened().advance(11)["ids"].to_pylist() == [[1, 2]]
    rows = {"ts": [4, 5], "id": [4, 5], "kind": ["b", "b"]}
    assert opened().push(rows)["ids"].to_pylist() == [[1, 2]]
    rows = {"ts": [4, 5], "id": [4, 5], "kind": ["d", "b"]}
    assert opened().push(rows)["ids"].to_pylist() == [[1, 2, 3, 4]]


def test_an_absence_is_emitted_by_an_event_of_another_key():
    query = kinds("A -> !B").partition_by("key").disorder(op.KSlack(2))
    matcher = op.open(query)
    assert matcher.push({"ts": [1], "id": [0], "kind": ["a"], "key": [1]}).num_rows == 0
    assert matcher.push({"ts": [7], "id": [1], "kind": ["x"], "key": [2]}).num_rows == 0
    found = matcher.push({"ts": [8], "id": [2], "kind": ["x"], "key": [2]})
    assert found["ids"].to_pylist() == [[0]]


def test_late_events_are_dropped_passed_or_shown():
    rows = [{"ts": [5], "id": [0], "kind": ["a"]}, {"ts": [3, 6], "id": [1, 2], "kind": ["b", "x"]}]
    seen = {}
    for late in ("drop", "pass", "side"):
        matcher = op.open(kinds("A -> B").disorder(op.KSlack(0, late=late)))
        matcher.push(rows[0])
        found = matcher.push(rows[1]).to_pylist()
        assert matcher.late["id"].to_pylist() == [1]
        assert matcher.late.column_names == ["ts", "id", "kind"]
        seen[late] = [match["ids"] for match in [*found, *matcher.finish().to_pylist()]]
        assert matcher.late.num_rows == 0
    assert seen == {"drop": [], "pass": [[0, 1]], "side": []}


def test_invalid_events_are_set_aside_with_a_reason():
    disorder = op.KSlack(0, invalid="quarantine", ahead=100)
    matcher = op.open(kinds("A -> B").disorder(disorder))
    ts = pa.array([1, None, 999, 2], pa.int64())
    rows = pa.table({"ts": ts, "id": [0, 1, 2, 3], "kind": ["a", "a", "a", "b"]})
    matcher.push(rows)
    assert matcher.invalid.select(["reason", "id"]).to_pylist() == [
        {"reason": "the time 'ts' is NULL", "id": 1},
        {"reason": "the time 999 is too far ahead of 2", "id": 2},
    ]
    assert matcher.finish()["ids"].to_pylist() == [[0, 3]]


@pytest.mark.parametrize("sources", [None, ["east"]])
def test_no_number_follows_the_greatest_one(sources):
    """What comes behind it is late, and a greater one, of an unsigned column, is invalid."""
    query = op.Query("all").order_by("ts").pattern("A").measures(ts="A.ts")
    asked = query.disorder(op.Sequence("1 s", late="side", invalid="quarantine"))
    stream = op.open(asked, sources=sources)
    last, found, late, invalid = 2**63 - 1, [], [], []
    for ts, seq in enumerate([last - 2, last - 1, last, last, 0, 7, 2**63, last - 1]):
        row = {"ts": [ts], "seq": pa.array([seq], pa.uint64()), "source": ["east"]}
        found += stream.push(pa.table(row))["ts"].to_pylist()
        late += stream.late["ts"].to_pylist()
        invalid += stream.invalid.select(["ts", "reason"]).to_pylist()
        stream = op.resume(asked, stream.state())
    assert found + stream.finish()["ts"].to_pylist() == [0, 1, 2]
    assert late == [3, 4, 5, 7]
    reason = "'seq' is 9223372036854775808, and numbers end with 9223372036854775807"
    assert invalid == [{"ts": 6, "reason": reason}]
    assert stream.order.late == 4


def test_numbers_that_are_further_apart_than_one_can_say_wait_in_a_saved_stream():
    query = op.Query("all").order_by("ts").pattern("A").measures(ts="A.ts")
    query = query.disorder(op.Sequence("1 s"))
    stream = op.open(query)
    seq = [-(2**63), 2**63 - 1, 2 - 2**63]
    assert stream.push({"ts": [0, 9, 2], "seq": seq})["ts"].to_pylist() == [0]
    stream = op.resume(query, stream.state())
    assert stream.finish()["ts"].to_pylist() == [2, 9]


def test_sources_begin_with_a_number_that_their_column_can_have():
    query = op.Query("all").order_by("ts").pattern("A").disorder(op.Sequence("1 s", first=300))
    schema = pa.schema({"ts": pa.int64(), "seq": pa.uint8()})
    with pytest.raises(op.BindError, match=r"first is 300, but 'seq' is a .*, from 0 to 255"):
        op.open(query, schema=schema)


def test_what_came_late_is_counted_on_after_a_resume():
    """Of a query, by source, and of a group, in which an event counts once."""
    query = kinds("A -> B").disorder(op.KSlack(0, late="side"))
    rows = {"ts": [5, 9, 3], "id": [0, 1, 2], "kind": ["a", "b", "a"]}
    both = op.group(query, replace(query, name="r"))
    for asked, source in ((query, None), (query, "east"), (both, None)):
        stream = op.open(asked, sources=source and [source, "west"])
        # All of a piece come at once; of the next one two are behind the first.
        for late in (0, 2, 4):
            stream.push(rows, source=source)
            assert stream.order.late == late
            stream = op.resume(asked, stream.state())
            assert stream.order.late == late
            if asked is query:
                assert stream._operator.intake.counters(source).late == late


@pytest.mark.parametrize("name", QUERIES)
@examples(25)
@given(
    drawn=shuffled(),
    owners=st.lists(st.integers(0, 2), min_size=14, max_size=14),
    mixed=st.randoms(use_true_random=False),
    resumed=st.booleans(),
)
def test_sources_out_of_order_give_what_the_table_gives(name, drawn, owners, mixed, resumed):
    table, arrival, slack = drawn
    # Times that differ, so that the order of the table does not depend on who sent an event.
    times = [2 * time + place for place, time in enumerate(table["ts"].to_pylist())]
    table = table.set_column(0, "ts", pa.array(times, pa.int64()))
    query = QUERIES[name].disorder(op.KSlack(2 * slack + len(times), late="side"))
    sent = {owner: [row for row in arrival if owners[row] == owner] for owner in range(3)}
    matcher = op.open(query, sources=["s0", "s1", "s2"], schema=table.schema)
    found = []
    while any(sent.values()):
        owner = mixed.choice([one for one, rows in sent.items() if rows])
        count = mixed.randint(1, 4)
        piece = table.take(pa.array(sent[owner][:count], pa.int64()))
        sent[owner] = sent[owner][count:]
        found += matcher.push(piece, source=f"s{owner}").to_pylist()
        assert matcher.late.num_rows == 0
        if resumed:
            matcher = op.resume(query, matcher.state())
    found += matcher.finish().to_pylist()
    assert found == op.match(table, QUERIES[name]).to_pylist()


def test_an_event_is_late_to_its_own_source():
    query = kinds("A -> B").disorder(op.KSlack(1, late="side"))
    matcher = op.open(query, sources=["east", "west"])
    matcher.push({"ts": [1, 9], "id": [0, 1], "kind": ["a", "x"]}, source="east")
    # Nothing has passed for all sources, as the west has not spoken: for the east it has.
    matcher.push({"ts": [7], "id": [2], "kind": ["b"]}, source="east")
    assert matcher.late["id"].to_pylist() == [2]
    assert matcher.push({"ts": [3], "id": [3], "kind": ["b"]}, source="west").num_rows == 0
    assert matcher.late.num_rows == 0
    assert matcher.finish()["ids"].to_pylist() == [[0, 3]]


def test_side_outputs_ask_for_disorder():
    matcher = op.open(kinds("A"))
    with pytest.raises(op.DataError, match="takes its events in order"):
        _ = matcher.late
    with pytest.raises(op.DataError, match="nothing has been pushed yet"):
        _ = op.open(kinds("A").disorder(op.KSlack(1))).invalid


def test_a_state_goes_with_disorder_or_without():
    rows = {"ts": [1], "id": [0], "kind": ["a"]}
    plain, slack = kinds("A -> B"), kinds("A -> B").disorder(op.KSlack(1))
    for saved, other in ((plain, slack), (slack, plain)):
        matcher = op.open(saved)
        matcher.push(rows)
        with pytest.raises(op.StateError, match="the saved state belongs to a query with"):
            op.resume(other, matcher.state())
    larger = kinds("A -> B").disorder(op.KSlack(3))
    matcher = op.open(slack)
    matcher.push(rows)
    with pytest.raises(op.StateError, match=r"KSlack\(slack 1\), now Reorderer KSlack\(slack 3\)"):
        op.resume(larger, matcher.state())


def test_a_push_that_fails_in_matching_ends_the_matcher():
    query = op.Query("q").order_by("ts").pattern("A B").measures(at="B.ts")
    matcher = op.open(query.define(B="CAST(x AS INT) > A.ts").disorder(op.KSlack(0)))
    state = matcher.state()
    with pytest.raises(op.OutpaceError):
        matcher.push({"ts": [1, 2, 3], "x": ["7", "many", "7"]})
    with pytest.raises(op.DataError, match="an earlier push failed"):
        matcher.push({"ts": [3], "x": ["7"]})
    assert op.resume(query.define(B="x > '7'").disorder(op.KSlack(0)), state).buffered == 0


def test_a_condition_that_fails_on_its_own_row_refuses_the_push():
    query = op.Query("q").order_by("ts").pattern("A -> B").measures(at="B.ts")
    query = query.define(A="CAST(x AS INT) > 1", B="CAST(x AS INT) < 1").disorder(op.KSlack(0))
    matcher = op.open(query)
    with pytest.raises(op.OutpaceError):
        matcher.push({"ts": [1, 2], "x": ["many", "7"]})
    found = matcher.push({"ts": [1, 2, 3, 4], "x": ["7", "1", "0", "1"]})
    assert found.to_pylist() == [{"at": 3}]


def test_events_that_no_step_can_use_do_not_wait():
    query = kinds("A -> B").disorder(op.KSlack(10))
    matcher = op.open(query)
    matcher.push({"ts": [1, 2, 3], "id": [0, 1, 2], "kind": ["a", "z", "z"]})
    assert matcher.buffered == 1
    strict = op.open(kinds("A B").disorder(op.KSlack(10)))
    strict.push({"ts": [1, 2, 3], "id": [0, 1, 2], "kind": ["a", "z", "z"]})
    assert strict.buffered == 3, "what comes between two steps counts"
    # They tell the time like others, and may be late.
    matcher.push({"ts": [20], "id": [3], "kind": ["z"]})
    assert matcher.buffered == 0
    matcher.push({"ts": [4], "id": [4], "kind": ["z"]})
    assert matcher.order.late == 1


def test_disorder_changes_nothing_for_a_table():
    query = kinds("A -> B")
    table = pa.table({"ts": [3, 1, 2], "id": [0, 1, 2], "kind": ["b", "a", "c"]})
    expected = op.match(table, query).to_pylist()
    assert expected
    assert op.match(table, query.disorder(op.KSlack(1, late="side"))).to_pylist() == expected


@pytest.mark.parametrize(("pattern", "alarms"), [("A -> !B", True), ("A -> B", False)])
def test_late_events_that_are_dropped_are_told(
    pattern: str, alarms: bool, caplog: pytest.LogCaptureFixture
) -> None:
    query = op.Query("alarm").order_by("ts").pattern(pattern).within(5)
    query = query.define(A="kind = 'a'", B="kind = 'b'")
    stream = op.open(query.disorder(op.KSlack(1)))
    for time, kind in ((1, "a"), (10, "z"), (3, "b"), (4, "b"), (20, "z")):
        stream.push({"ts": time, "kind": kind})
    (said,) = caplog.messages
    assert said.startswith("query 'alarm': 1 event was late and dropped so far")
    assert ("FALSE ALARMS" in said) is alarms
    aside = op.open(query.disorder(op.KSlack(1, late="side")))
    aside.push({"ts": [10, 20], "kind": ["z", "z"]})
    aside.push({"ts": 3, "kind": "b"})
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("disorder", "sources", "told"),
    [
        (op.Sequence("1 s"), None, True),
        (op.Sequence("1 s"), ["east", "west"], False),
        (op.KSlack(1), None, False),
    ],
)
def test_numbers_of_sources_that_nobody_named_are_told(
    disorder: op.Sequence | op.KSlack,
    sources: list[str] | None,
    told: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = op.open(kinds("A -> B").disorder(disorder), sources=sources)
    rows = {"ts": [9, 1], "id": [0, 1], "kind": ["b", "a"], "seq": [7, 7]}
    stream.push({**rows, "source": ["east", "east" if sources else "west"]})
    stream.push({"ts": [2], "id": [2], "kind": ["b"], "seq": [7], "source": ["east"]})
    stream.finish()
    assert caplog.messages
    said = "The events have a column 'source', but the numbers of all count as those of one source"
    assert [said in one for one in caplog.messages] == [told] * len(caplog.messages)


def test_sources_out_of_order_end_one_by_one():
    query = kinds("A -> B").disorder(op.KSlack(9))
    rows = {"ts": [3, 1], "id": [0, 1], "kind": ["b", "a"]}
    matcher = op.open(query, sources=["east", "west"])
    matcher.push(rows, source="east")
    matcher.finish("east")
    matcher = op.resume(query, matcher.state())
    with pytest.raises(op.DataError, match="source 'east' has finished"):
        matcher.push(rows, source="east")
    found = matcher.finish("west").to_pylist() + matcher.finish().to_pylist()
    assert [one["ids"] for one in found] == [[1, 0]]


class Moody(op.windows.Predicate):
    """Opens windows until an event is not to its liking."""

    def opens(self, event: Any, windows: Any) -> bool:
        if event["kind"] == "x":
            raise RuntimeError("no")
        return True

    def closes(self, event: Any, window: Any) -> bool:
        return bool(window.events >= 3)

    def clone(self) -> Moody:
        return Moody()


class Curious(op.windows.Predicate):
    """Notes which columns its events have."""

    seen: ClassVar[set[tuple[str, ...]]] = set()

    def opens(self, event: Any, windows: Any) -> bool:
        self.seen.add(tuple(event))
        return True

    def closes(self, event: Any, window: Any) -> bool:
        return True

    def clone(self) -> Curious:
        return Curious()


def test_a_predicate_of_a_user_sees_the_columns_of_the_user_alone():
    query = kinds("A").over(op.windows.between(predicate=Curious()))
    rows = pa.table({"ts": [1, 2], "id": [0, 1], "kind": ["a", "b"]})
    op.open(query.disorder(op.KSlack(0))).push(rows)
    op.open(query, sources=["east"]).push(rows, source="east")
    assert op.search(rows, query)._in_windows.ids is not None
    assert Curious.seen == {("ts", "id", "kind")}


def test_a_stream_that_lost_events_takes_no_more():
    windows = op.windows.between(predicate=Moody())
    matcher = op.open(kinds("A -> B").over(windows).disorder(op.KSlack(0)))
    with pytest.raises(Exception, match="no"):
        matcher.push({"ts": [1, 2, 9], "id": [0, 1, 2], "kind": ["a", "x", "b"]})
    for action in (matcher.state, matcher.finish):
        with pytest.raises(op.DataError, match="an earlier push failed"):
            action()


def test_a_stream_that_has_ended_is_resumed_as_such():
    query = kinds("A -> B")
    matcher = op.open(query)
    matcher.push({"ts": [1], "id": [0], "kind": ["a"]})
    matcher.finish()
    with pytest.raises(op.DataError, match="the matcher is finished"):
        op.resume(query, matcher.state()).push({"ts": [2], "id": [1], "kind": ["b"]})


def test_rows_of_several_sources_come_in_one_push():
    query = op.Query("q").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")
    query = query.disorder(op.KSlack(0))
    mixed = pa.table({"ts": [3, 1, 2, 4], "x": [3, 1, 2, 4], "source": ["b", "a", "a", "b"]})
    stream = op.open(query, sources=["a", "b"])
    found = [*stream.push(mixed)["at"].to_pylist()]
    found += stream.finish()["at"].to_pylist()
    assert found == [2, 4]
    apart = op.open(query, sources=["a", "b"])
    again = [*apart.push(mixed.slice(1, 2), source="a")["at"].to_pylist()]
    again += apart.push(mixed.take([0, 3]), source="b")["at"].to_pylist()
    assert again + apart.finish()["at"].to_pylist() == found
    # Without disorder each source sends its rows in order.
    in_order = op.open(
        op.Query("q").order_by("ts").pattern("A").measures(at="A.ts"), sources=["a", "b"]
    )
    assert in_order.push(mixed)["at"].to_pylist() == [1, 2]
    with pytest.raises(op.DataError, match="late"):
        in_order.push(mixed)
    assert in_order.push(mixed.slice(0, 0)).num_rows == 0
    assert in_order.finish()["at"].to_pylist() == [3, 4]


def test_a_stream_tells_who_is_silent_and_replays_it(tmp_path, monkeypatch):
    now = [0]
    for module in ("stream", "open_stream"):
        monkeypatch.setattr(f"outpace.hosts.local.{module}.clock_time", lambda: now[0])
    query = op.Query("q").order_by("ts").pattern("A").measures(at="A.ts")
    query = query.disorder(op.InOrder(patience="2 s", late="side"))
    stream = op.open(query, sources=["a", "b"], record=tmp_path / "run")
    stream.push({"ts": [1, 5, 7]}, source="a")
    assert stream.timer == 2_000_000
    now[0] = 1_000_000
    stream.heartbeat("b", 2)
    now[0] = 2_500_000
    stream.push({"ts": [8]}, source="a")
    assert (stream.timer, stream.order.silent) == (3_000_000, 0)
    now[0] = 3_000_000
    assert stream.wake()["at"].to_pylist() == [5, 7]
    assert (stream.order.silent, stream.order.unawaited) == (1, 2)
    assert stream.unawaited == {"b": (5, 7)}
    resumed = op.resume(query, stream.state())
    assert (resumed.order.silent, resumed.order.unawaited) == (1, 2)
    for one in (stream, resumed):
        one.push({"ts": [3]}, source="b")
        assert one.late["ts"].to_pylist() == [3]
        assert (one.order.late, one.order.silent) == (1, 0)
    *_, silent, last = op.replay(tmp_path / "run")
    assert silent.matches["at"].to_pylist() == [5, 7]
    assert last.late["ts"].to_pylist() == [3]


@pytest.mark.parametrize("emission", ["changes", "latest"])
def test_a_push_sees_that_a_source_is_silent(monkeypatch, emission):
    """Not with the next one only: what it sees is that of one push, of a query and of a group."""
    now = [0]
    for module in ("stream", "open_stream", "group"):
        monkeypatch.setattr(f"outpace.hosts.local.{module}.clock_time", lambda: now[0])
    query = op.Query("q").order_by("ts").pattern("A").measures(at="A.ts")
    query = query.disorder(op.KSlack(0, patience="2 s", late="correct", horizon=9)).emit(emission)
    for asked in (query, op.group(query)):
        now[0], given = 0, []
        stream = op.open(asked, sources=["a", "b"])
        stream.push({"ts": [1]}, source="b")
        for second, ts in ((1, 5), (2.5, 7), (3, 8)):
            now[0] = int(second * 1e6)
            found = stream.push({"ts": [ts]}, source="a")
            given.append((found if asked is query else found["q"])["at"].to_pylist())
        assert given == [[], [1, 5], [7]]
        assert (stream.order.silent, stream.order.unawaited) == (1, 3)


@pytest.mark.parametrize(
    "kind",
    [op.InOrder, op.MPKSlack, op.Punctuation, partial(op.KSlack, 2), partial(op.Sequence, "1 s")],
)
@pytest.mark.parametrize("sources", [None, ["a", "b"]])
def test_an_event_says_when_it_arrived_or_is_invalid(kind, sources):
    query = op.Query("q").order_by("ts").pattern("A").measures(ts="A.ts")
    rows = {"ts": [1, 2, 3], "at": [1, None, 2], "seq": [1, 2, 3], "source": ["a", "a", "b"]}
    rows = pa.table(rows)
    stream = op.open(query.disorder(kind(arrival="at")), sources=sources)
    with pytest.raises(op.DataError, match="'at' is NULL, so nobody knows when") as caught:
        stream.push(rows)
    assert caught.value.detail == "row 1 of a piece of 3, column 'at'"
    assert 'invalid="quarantine"' in caught.value.hint
    apart = op.open(
        query.disorder(kind(arrival="at", invalid="quarantine", late="side")), sources=sources
    )
    found = apart.push(rows)["ts"].to_pylist()
    assert apart.invalid["ts"].to_pylist() == [2]
    assert apart.invalid["reason"].to_pylist() == [
        "'at' is NULL, so nobody knows when the event arrived"
    ]
    assert found + apart.finish()["ts"].to_pylist() == [1, 3]


def test_a_group_tells_which_times_went_on_without_a_source(monkeypatch):
    now = [0]
    for module in ("group", "open_stream"):
        monkeypatch.setattr(f"outpace.hosts.local.{module}.clock_time", lambda: now[0])
    query = op.Query("q").order_by("ts").pattern("A").measures(at="A.ts")
    first = query.disorder(op.InOrder(patience="2 s"))
    # It has an order of its own, and waits longer.
    second = replace(query, name="r").disorder(op.KSlack(1, patience="3 s"))
    stream = op.open(op.group(first, second), sources=["a", "b"])
    assert stream.unawaited == {}
    stream.push({"ts": [1, 5, 7]}, source="a")
    now[0] = 1_000_000
    stream.heartbeat("b", 2)
    now[0] = 2_500_000
    stream.push({"ts": [8]}, source="a")
    assert stream.unawaited == {}
    now[0] = 3_000_000
    found = stream.wake()
    assert (found["q"]["at"].to_pylist(), found["r"].num_rows) == ([5, 7], 0)
    assert stream.unawaited == {"b": (5, 7)}
    now[0] = 4_000_000
    found = stream.push({"ts": [20]}, source="a")
    assert found["r"]["at"].to_pylist() == [5, 7, 8]
    assert stream.unawaited == {"b": (5, 8)}


def test_events_of_one_time_come_as_their_source_sent_them():
    query = op.Query("q").order_by("ts").pattern("A B").define(A="id = 1", B="id = 3")
    query = query.measures(first="A.id", last="B.id").disorder(op.InOrder())
    for looks in (False, True):
        stream = op.open(query, sources=["a", "b"])
        found = []
        for source, rows in [
            ("b", [(1, 0), (12, 1)]),
            ("a", [(2, 6)]),
            ("b", [(12, 3), (15, 2)]),
            ("a", [(14, 4), (16, 5)]),
        ]:
            table = pa.table({"ts": [ts for ts, _ in rows], "id": [one for _, one in rows]})
            found += stream.push(table, source=source).to_pylist()
            if looks:
                stream.state()
        assert [*found, *stream.finish().to_pylist()] == [{"first": 1, "last": 3}]


@pytest.mark.parametrize("sources", [None, ["a", "b"]])
@pytest.mark.parametrize(("times", "first"), [([7] * 300, 254), (range(300), None)])
def test_numbers_begin_anew_within_a_piece_as_between_two(times, first, sources):
    numbers = pa.array([(254 + row) % 256 for row in range(300)], pa.uint8())
    rows = pa.table({"ts": times, "seq": numbers, "row": range(300), "source": ["a"] * 300})
    query = op.Query("q").order_by("ts").pattern("A").measures(row="A.row")
    for size in (300, 1, 70):
        stream = op.open(query.disorder(op.Sequence("9 s", first=first)), sources=sources)
        found = [stream.push(rows.slice(low, size)) for low in range(0, 300, size)]
        found.append(stream.finish())
        assert pa.concat_tables(found)["row"].to_pylist() == list(range(300))


def test_an_event_that_passes_late_comes_behind_those_that_were_there():
    rows = pa.table({"ts": [5, 0, 0, 1], "row": [0, 1, 2, 3]})
    passes = op.Sequence("9 s", number="ts", first=0, late="pass")
    query = op.Query("q").order_by("ts").pattern("A").measures(row="A.row").disorder(passes)
    for size in (4, 1):
        stream = op.open(query)
        found = [stream.push(rows.slice(low, size)) for low in range(0, 4, size)]
        found.append(stream.finish())
        assert pa.concat_tables(found)["row"].to_pylist() == [1, 2, 3, 0]


@pytest.mark.parametrize("first", ["heartbeat", "nothing"])
def test_a_column_of_arrival_is_the_only_clock(first):
    schema = pa.schema([("ts", pa.int64()), ("at", pa.int64())])
    query = op.Query("q").order_by("ts").pattern("A").measures(ts="A.ts")
    query = query.disorder(op.KSlack(0, arrival="at", patience="10 us"))
    stream = op.open(query, sources=["a", "b"], schema=schema)
    if first == "heartbeat":
        stream.heartbeat("a", 0)
    else:
        stream.push(schema.empty_table(), source="a")
    rows = [stream.push({"ts": [i], "at": [100 * i]}, source="a").num_rows for i in range(1, 50)]
    assert sum(rows) == 48
