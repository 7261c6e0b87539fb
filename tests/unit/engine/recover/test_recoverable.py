"""Operators rebuilt from savepoints and retained events go on as if they had never been lost."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.event import EVENT_ID
from outpace.engine.instance import Instance
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.twin import TwinMatcher
from outpace.engine.message import (
    ClockExchange,
    Deliver,
    Delivered,
    Emit,
    EventsArrived,
    MatchesAcknowledged,
    SourceEnded,
    WatermarkArrived,
)
from outpace.engine.operator import WholeOperator, emit_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.arrivals import retained_schema
from outpace.engine.recover.event_needs import NeededEvents
from outpace.engine.recover.recoverable import RecoverableOperator, savepoint_of
from outpace.engine.savepoint import NOTHING, Savepoint
from outpace.engine.state import State
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import DataError, StateError, UnsupportedError
from outpace.ingest.retained_log import RetainedLog
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.disorder import Disorder, InOrder, KSlack, Speculative
from outpace.pattern.query import Query
from outpace.pattern.windows import CountWindows, TimeWindows, WindowSpec
from outpace.testing.simulation.queries import draw_operator_query, draw_pattern_query, is_large
from outpace.testing.simulation.replay_run import Receiver
from outpace.windows import between

NONE = np.zeros(0, np.int64)
LETTERS = pa.schema({"ts": pa.int64(), "k": pa.string()})


def letters(text: str, first: int = 1) -> pa.Table:
    """Return events of these types, numbered from 1 as in the paper."""
    return pa.table({"ts": range(first, first + len(text)), "k": list(text)}, LETTERS)


def sequence(types: str, windows: WindowSpec | None, link: str = " -> ") -> OperatorSpec:
    """Return the operator of a pattern of types, as the paper writes it."""
    names = types.upper()
    query = (
        Query("q")
        .order_by("ts")
        .pattern(link.join(names))
        .define({name: f"k = '{name.lower()}'" for name in names})
        .measures(first=f"{names[0]}.ts", last=f"{names[-1]}.ts")
    )
    if windows is not None:
        query = query.over(windows, duplicates=True, numbered=True)
    return OperatorSpec(query, LETTERS)


def numbers(matches: WindowMatches) -> list[str]:
    """Return the numbers x:y of matches, both counted from 1 as in the paper."""
    pairs = zip(matches.event.tolist(), matches.window.tolist(), strict=True)
    return [f"{x + 1}:{y + 1}" for x, y in pairs]


def fed(operator: RecoverableOperator, text: str) -> list[str]:
    """Push events one by one, and return the numbers of all matches."""
    rows = letters(text, operator.front.arrived + 1)
    given = [
        emit_of(operator.step(EventsArrived(rows.slice(n, 1)))).matches for n in range(len(text))
    ]
    return [number for matches in given for number in numbers(matches)]


def saved(operator: RecoverableOperator, last: tuple[int, int] | None = None) -> Savepoint:
    """Acknowledge matches up to one, or none, and return what is needed now."""
    return savepoint_of(operator.step(MatchesAcknowledged(last)))


def told(savepoint: Savepoint) -> tuple[str | None, int, list[list[int]]]:
    """Return seed, trim and skip of a savepoint, counted from 1 as in the paper."""
    seed = None if savepoint.seed is None else f"{savepoint.seed[0] + 1}:{savepoint.seed[1] + 1}"
    return seed, savepoint.trim + 1, (savepoint.skip + 1).tolist()


def retained(savepoint: Savepoint, text: str) -> tuple[pa.Table, np.ndarray]:
    """Return what the predecessor still has of some events after a savepoint."""
    every = np.arange(len(text))
    kept = every[~savepoint.drops(every)]
    return letters(text).take(pa.array(kept)), kept


# --- The paper's figures --------------------------------------------------------------------------


def test_figure_4_an_acknowledged_match_trims_what_came_before_the_next_window() -> None:
    # θ is made of a, b, c and d; window 2 begins with c.
    operator = RecoverableOperator(sequence("abcd", CountWindows(4, 2)))
    assert fed(operator, "abcd") == ["4:1"]
    assert retained(saved(operator), "abcd")[0]["k"].to_pylist() == list("abcd")
    savepoint = saved(operator, (3, 0))
    # SN_trim is SN(b): the predecessor's queue ⟨a, b, c, d⟩ becomes ⟨c, d⟩.
    assert told(savepoint)[:2] == ("4:1", 2)
    assert retained(savepoint, "abcd")[0]["k"].to_pylist() == list("cd")


def test_skip_ranges_of_section_3a() -> None:
    operator = RecoverableOperator(sequence("abc", CountWindows(10, 10)))
    assert fed(operator, "aaababddbc") == ["10:1"]
    assert told(saved(operator))[2] == [[2, 3], [5, 9]]


def test_figure_6_two_windows_give_the_same_match() -> None:
    operator = RecoverableOperator(sequence("ef", CountWindows(5, 2)))
    assert fed(operator, "abcde") == []
    # The window of a has closed without a match; c and e have opened others, and d is skipped.
    assert told(saved(operator)) == (None, 2, [[4, 4]])
    assert fed(operator, "f") == ["6:2", "6:3"]
    savepoint = saved(operator, (5, 1))
    assert told(savepoint) == ("6:2", 2, [])
    kept = np.array([2, 4, 5])
    again = RecoverableOperator(operator.spec)
    rest = again.rebuild(savepoint, letters("abcdef").take(pa.array(kept)), kept)
    assert numbers(rest.matches) == ["6:3"]


def test_figure_7_a_replay_starts_with_the_first_window_after_the_last_that_had_closed() -> None:
    operator = RecoverableOperator(sequence("ef", CountWindows(5, 1)))
    assert fed(operator, "abcdefg") == ["6:2", "6:3", "6:4", "6:5"]
    # θ is the match of window 4; the first two windows can give no more, and c opens the third.
    assert told(saved(operator, (5, 3)))[:2] == ("6:3", 2)
    # An acknowledgement that comes late, of a match before θ, changes nothing.
    assert told(saved(operator, (5, 2)))[:2] == ("6:3", 2)


def extreme() -> RecoverableOperator:
    """Return the operator of figure 8: every event is a match in every window of four events."""
    query = (
        Query("q")
        .order_by("ts")
        .pattern("A")
        .define(A="k >= 'a'")
        .measures(at="A.ts")
        .over(CountWindows(4, 1), duplicates=True, numbered=True)
    )
    return RecoverableOperator(OperatorSpec(query, LETTERS))


def test_figure_8_numbers_are_what_they_were() -> None:
    operator = extreme()
    given = fed(operator, "abcdefg")
    # 8a: counted one by one, the match of e in the fourth window is the 13th.
    assert given[:6] == ["1:1", "2:1", "2:2", "3:1", "3:2", "3:3"]
    assert given[12] == "5:4"
    savepoint = saved(operator, (4, 3))
    # 8b: the ack of 5:4 gives seed 3:3 and trims up to b.
    assert told(savepoint) == ("3:3", 2, [])
    rows, kept = retained(savepoint, "abcdefg")
    assert rows["k"].to_pylist() == list("cdefg")
    again = RecoverableOperator(operator.spec)
    rest = numbers(again.rebuild(savepoint, rows, kept).matches)
    # Of 3:3, 4:3, 4:4, 5:3 ... those up to 5:4 are acknowledged.
    assert rest == given[13:]
    seen = np.concatenate([np.stack(part) for part in again._given._parts], axis=1)
    replayed = [f"{x + 1}:{y + 1}" for x, y in zip(seen[0], seen[3], strict=True)]
    assert replayed[:5] == ["3:3", "4:3", "4:4", "5:3", "5:4"]
    assert fed(again, "hi") == fed(operator, "hi")


# --- Savepoints ----------------------------------------------------------------------------------


def test_openers_of_count_windows_stay_and_numbers_go_on() -> None:
    operator = RecoverableOperator(sequence("ab", CountWindows(6, 3)))
    stream = "axxxxbxxaxxbxxxxxa"
    given = fed(operator, stream)
    savepoint = saved(operator, (5, 0))
    rows, kept = retained(savepoint, stream)
    # The second window has closed without a match, and event 6 opens the third one. Events 6, 9, 12
    # and 15 open windows, and 11 and 14 close them, though no match uses most of them.
    assert kept.tolist() == [6, 8, 9, 11, 12, 14, 15, 17]
    again = RecoverableOperator(operator.spec)
    assert numbers(again.rebuild(savepoint, rows, kept).matches) == given[1:]
    assert fed(again, "bxxxxxab") == fed(operator, "bxxxxxab")


@pytest.mark.parametrize(
    ("link", "skip"),
    [
        (" -> ", [[4, 5]]),  # A chain: x and the second b have no match.
        (" ->> ", [[4, 4]]),  # All matches: both b have one.
        (" ", []),  # Strictly one behind the other: what lies between counts.
    ],
)
def test_what_is_skipped_depends_on_the_matcher(link: str, skip: list[list[int]]) -> None:
    operator = RecoverableOperator(sequence("ab", CountWindows(6, 6), link))
    fed(operator, "xabxbx")
    assert told(saved(operator))[2] == skip


def test_a_savepoint_is_small_and_holds_no_events() -> None:
    operator = RecoverableOperator(sequence("abcde", TimeWindows(1000, 50)))
    text = "".join(Random(1).choices("abcdefghij", k=3000))
    operator.step(EventsArrived(letters(text)))
    saved(operator, operator.last_match)
    operator.step(EventsArrived(letters(text[:200], 3001)))
    data = saved(operator, operator.last_match).encode()
    assert len(data) < 500
    assert Savepoint.decode(data).encode() == data


@pytest.mark.parametrize("keyed", [False, True])
def test_a_savepoint_that_is_read_later_is_what_it_was(keyed: bool) -> None:
    spec = sequence("ab", TimeWindows(8, 4))
    if keyed:
        spec = OperatorSpec(spec.query.partition_by("k"), LETTERS)
    read, unread = RecoverableOperator(spec), RecoverableOperator(spec)
    expected, later = [], []
    for text in ("axbxabxxab", "", "xbxaabbbxx"):
        fed(read, text)
        fed(unread, text)
        expected.append(saved(read).encode())
        later.append(saved(unread))
    fed(unread, "xbxaabbbxx")
    assert [one.encode() for one in later] == expected


@given(st.data())
def test_events_that_are_kept_are_those_that_are_used_or_late(data: st.DataObject) -> None:
    needed, there, used, first = NeededEvents(), set[int](), set[int](), 0
    for _ in range(data.draw(st.integers(1, 4))):
        for size in data.draw(st.lists(st.integers(1, 9), max_size=3)):
            flags = data.draw(st.none() | st.lists(st.booleans(), min_size=size, max_size=size))
            first += data.draw(st.sampled_from([0, 0, 2]))  # A rebuilt operator does not get all.
            fresh = np.arange(first, first + size)
            needed.add(fresh, None, None if flags is None else np.array(flags))
            there.update(fresh.tolist())
            used.update(fresh[flags].tolist() if flags is not None else ())
            first += size
        said = data.draw(st.lists(st.integers(0, first + 3)))
        needed.use(np.array(said, np.int64))
        used.update(said)
        least = data.draw(st.integers(0, first + 3))
        skip = needed.keep_used(least)
        kept = {one for one in there if one in used or one >= least}
        dropped = {one for low, high in skip.tolist() for one in range(low, high + 1)}
        assert needed.numbers.tolist() == sorted(kept)
        assert dropped & there == there - kept
        assert not dropped & kept
        assert (skip[1:, 0] > skip[:-1, 1] + 1).all() or len(there) < first
        there = kept
        used &= kept


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.integers(-1, 30))
def test_what_a_savepoint_drops(skipped: set[int], there: set[int], trim: int) -> None:
    ends: list[list[int]] = []
    for number in sorted(one for one in skipped if one > trim):
        if ends and ends[-1][1] == number - 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    skip = np.array(ends, np.int64).reshape(-1, 2)
    savepoint = Savepoint("q" * 16, None, trim, skip, NOTHING, 61, 0, State({}).encode)
    numbers = np.array(sorted(there), np.int64)
    expected = [one <= trim or one in skipped for one in sorted(there)]
    assert sent(savepoint).drops(numbers).tolist() == expected


def test_a_savepoint_of_another_query_is_refused() -> None:
    operator = RecoverableOperator(sequence("ab", CountWindows(6, 3)))
    fed(operator, "ab")
    savepoint = saved(operator)
    rows, kept = retained(savepoint, "ab")
    for other in (sequence("abc", CountWindows(6, 3)), sequence("ab", CountWindows(7, 3))):
        with pytest.raises(StateError, match="another query"):
            RecoverableOperator(other).rebuild(savepoint, rows, kept)


@pytest.mark.parametrize("windows", [CountWindows(6, 3), None])
def test_events_that_were_not_retained_are_missed(windows: WindowSpec | None) -> None:
    operator = RecoverableOperator(sequence("ab", windows))
    fed(operator, "xxa")
    savepoint = saved(operator)
    rows, kept = letters("xxaxx"), np.arange(5)
    with pytest.raises(StateError, match="not retained"):
        RecoverableOperator(operator.spec).rebuild(savepoint, rows.slice(4), kept[4:])
    with pytest.raises(StateError, match=r"not retained|is missing"):
        RecoverableOperator(operator.spec).rebuild(savepoint, rows.slice(3), kept[3:])


def test_damaged_savepoints_are_refused() -> None:
    operator = RecoverableOperator(sequence("ab", CountWindows(6, 3)))
    fed(operator, "abxa")
    data = saved(operator).encode()
    for place in range(0, len(data), 7):
        broken = bytearray(data)
        broken[place] ^= 0x41
        with pytest.raises(StateError):
            Savepoint.decode(bytes(broken))
    with pytest.raises(StateError):
        Savepoint.decode(WholeOperator(operator.spec).state().encode())


def test_matches_that_did_not_come_are_not_acknowledged() -> None:
    operator = RecoverableOperator(sequence("ab", CountWindows(6, 3)))
    fed(operator, "ab")
    with pytest.raises(DataError, match="9:9"):
        saved(operator, (9, 9))


def put_in_order(disorder: Disorder, sources: tuple[str, ...] | None = None) -> OperatorSpec:
    """Return an operator whose events are put in order."""
    query = sequence("ab", CountWindows(6, 3)).query.disorder(disorder)
    disordered = bind_disorder(query, LETTERS)
    return OperatorSpec(query, LETTERS, disorder=disordered, sources=sources)


@pytest.mark.parametrize(
    "disorder", [KSlack(3, late="correct", horizon=5), Speculative(KSlack(3), alpha=0.5)]
)
def test_what_late_events_correct_is_refused(disorder: Disorder) -> None:
    with pytest.raises(UnsupportedError, match="late events correct"):
        RecoverableOperator(put_in_order(disorder))


def test_clocks_that_are_compared_are_refused() -> None:
    operator = RecoverableOperator(put_in_order(InOrder(), ("east", "west")))
    with pytest.raises(UnsupportedError, match="clocks that are compared"):
        operator.step(ClockExchange("east", 0, 5, 6, 1))


def test_a_savepoint_of_other_sources_is_refused() -> None:
    operator = RecoverableOperator(put_in_order(KSlack(3), ("east", "west")))
    savepoint = sent(saved(operator))
    again = RecoverableOperator(put_in_order(KSlack(3), ("east", "north")))
    with pytest.raises(StateError, match=r"other sources(?s:.)*east, north"):
        again.rebuild(
            savepoint, letters("").append_column(EVENT_ID, pa.array([], pa.int64())), NONE
        )


def test_events_that_wait_are_retained_and_late_ones_are_not() -> None:
    operator = RecoverableOperator(put_in_order(KSlack(3)))
    rows = pa.table({"ts": [5, 4, 9, 8, 1, 12], "k": list("xxaxbx")}, LETTERS)
    kept = [operator.retained(EventsArrived(rows.slice(at, 1))) for at in range(6)]
    operator.step(EventsArrived(rows.slice(0, 4)))
    operator.step(EventsArrived(rows.slice(4)))
    savepoint = sent(saved(operator))
    # 4 opened the window, 9 and 12 wait; 5 and 8 were skipped, and 1 was late.
    needed = np.flatnonzero(~savepoint.drops(np.arange(6)))
    assert needed.tolist() == [1, 2, 5]
    assert savepoint.at == 6
    ids = pa.array(np.arange(6))
    rows = rows.append_column(EVENT_ID, ids)
    assert kept[0].schema == rows.schema
    again = RecoverableOperator(operator.spec)
    assert len(again.rebuild(savepoint, rows.take(pa.array(needed)), needed).matches) == 0
    later = pa.table({"ts": [13, 30], "k": ["b", "x"]}, LETTERS)
    given = [emit_of(one.step(EventsArrived(later))).matches for one in (operator, again)]
    assert numbers(given[0]) == numbers(given[1]) == ["6:1", "6:2"]
    with pytest.raises(StateError, match="an event that waits is missing"):
        RecoverableOperator(operator.spec).rebuild(
            savepoint, rows.take(pa.array([1, 2])), np.array([1, 2])
        )


# --- Any query, crashes anywhere ------------------------------------------------------------------


SCHEMA = pa.schema(
    {"ts": pa.int64(), "id": pa.int64(), "kind": pa.string(), "key": pa.string(), "v": pa.int64()}
)


def sent(savepoint: Savepoint) -> Savepoint:
    """Return a savepoint as another process gets it."""
    return Savepoint.decode(savepoint.encode())


def drawn(random: Random) -> tuple[OperatorSpec, pa.Table]:
    """Draw a query of any kind, and events for it."""
    windowed = random.random() < 0.7
    if random.random() < 0.1:
        case = draw_operator_query(random, lambda units: units, windowed=windowed)
    else:
        case = draw_pattern_query(random, SCHEMA, lambda units: units, windowed=windowed)
    query = case.query.partition_by("key") if random.random() < 0.4 else case.query
    size = random.randint(0, 14 if is_large(query) else 50)
    kinds = "abcd" if case.holds is None else "".join(sorted(case.holds)).lower() * 4 + "d"
    times = np.cumsum([random.choice((0, 1, 1, 2)) for _ in range(size)], dtype=np.int64)
    columns = [
        times,
        np.arange(size),
        random.choices(kinds, k=size),
        random.choices("xyz", k=size),
        [random.choice((None, *range(8))) for _ in range(size)],
    ]
    events = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)
    return OperatorSpec(query, SCHEMA, choose=random.choice([TwinMatcher, choose_matcher])), events


def pieces(random: Random, size: int) -> Iterator[tuple[int, int]]:
    """Yield the first event and the size of pieces."""
    first = 0
    while first < size:
        step = min(random.choice((1, 1, 2, 3, 5, size)), size - first)
        yield first, step
        first += step


def stimuli(random: Random, events: pa.Table) -> Iterator[EventsArrived | WatermarkArrived]:
    """Yield events in pieces, and times between them that no later event is before."""
    times = [*events["ts"].to_pylist(), 10**6]
    for first, size in pieces(random, events.num_rows):
        yield EventsArrived(events.slice(first, size))
        last, following = times[first + size - 1], times[first + size]
        for time in sorted(random.choices(range(last, min(following, last + 30) + 1), k=3)):
            if random.random() < 0.2:
                yield WatermarkArrived(time)


@given(st.integers(0, 2**32))
def test_whatever_is_lost_the_rest_comes_out_once(seed: int) -> None:
    random = Random(seed)
    spec, events = drawn(random)
    whole = RecoverableOperator(spec)
    steps = [EventsArrived(events), SourceEnded()]
    expected = [
        row for step in steps for row in emit_of(whole.step(step)).matches.table.to_pylist()
    ]
    operator, below = RecoverableOperator(spec), Receiver()
    above = RetainedLog()
    above.begin(retained_schema(spec))
    above.thin(saved(operator))
    for stimulus in [*stimuli(random, events), SourceEnded()]:
        turn = operator.turn
        rows = operator.retained(stimulus) if isinstance(stimulus, EventsArrived) else None
        below.take(emit_of(operator.step(stimulus)).matches)
        above.retain(stimulus, rows, turn, ordered=False)
        if random.random() < 0.5 and (number := below.acknowledged(random)) is not None:
            above.thin(sent(saved(operator, number)))
        elif random.random() < 0.3:
            above.thin(sent(saved(operator)))
        if random.random() < 0.3:
            operator = RecoverableOperator(spec)
            assert above.savepoint is not None
            again = operator.rebuild(above.savepoint, *above.events(), above.stimuli)
            below.replay(again.matches)
    found = below.finish().matches
    assert sorted(map(str, found)) == sorted(map(str, expected))
    if not spec.bound.partition_by:
        assert found == expected


def test_windows_between_events_are_found_again() -> None:
    query = (
        Query("q")
        .order_by("ts")
        .pattern("A -> B")
        .define(A="k = 'a'", B="k = 'b'")
        .measures(first="A.ts")
        .over(between(open="k = 's'", close="k = 'e'"), duplicates=True, numbered=True)
    )
    operator = RecoverableOperator(OperatorSpec(query, LETTERS))
    stream = "xxsxaxexxsxxaxxbxxexxsa"
    given = fed(operator, stream)
    savepoint = saved(operator)
    rows, kept = retained(savepoint, stream)
    assert rows["k"].to_pylist() == list("sabesa")
    again = RecoverableOperator(operator.spec)
    assert numbers(again.rebuild(savepoint, rows, kept).matches) == given
    assert fed(again, "xbe") == fed(operator, "xbe")


def test_what_a_replay_rebuilds_has_no_state_to_save() -> None:
    operator = RecoverableOperator(sequence("ab", None))
    for asked in (operator.snapshot, operator.state, lambda: operator.restore(State({}))):
        with pytest.raises(UnsupportedError, match="no state to save"):
            asked()


def test_what_comes_before_all_have_answered_is_refused() -> None:
    query = sequence("ab", CountWindows(6, 3)).query.instances(2)
    operator = RecoverableOperator(OperatorSpec(query, LETTERS).shared)
    said = operator.step(EventsArrived(letters("abcabc")))
    deliveries = [one for one in said if isinstance(one, Deliver)]
    assert deliveries
    for message in (EventsArrived(letters("a")), MatchesAcknowledged()):
        with pytest.raises(DataError, match="answers to what came before are due"):
            operator.step(message)
    for one in deliveries:
        answer = Instance(operator.spec).step(one)
        said += operator.step(Delivered(one.instance, answer))
    alone = RecoverableOperator(sequence("ab", CountWindows(6, 3)))
    expected = emit_of(alone.step(EventsArrived(letters("abcabc")))).matches
    assert sum(len(one.matches) for one in said if isinstance(one, Emit)) == len(expected) == 3
    assert savepoint_of(operator.step(MatchesAcknowledged())).at == 6
