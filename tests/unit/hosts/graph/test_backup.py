"""What goes upstream: savepoints by the numbers of each predecessor, and how queues follow them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outpace as op
from outpace.engine.message import EventsArrived, RowsAcknowledged, SourceEnded
from outpace.engine.operator import matches_of
from outpace.engine.recover.event_needs import NeededNumbers
from outpace.engine.recover.graph_operator import CountedOperator
from outpace.engine.recover.recoverable import savepoint_of
from outpace.engine.state import State
from outpace.hosts.graph.backup import Backup, keep_newest
from outpace.hosts.graph.graph import BoundNode, bind
from outpace.hosts.graph.intake import LinkIntake
from outpace.hosts.graph.outlet import OutputQueue
from outpace.pattern.query import Query

WINDOWS = op.windows.count(3, slide=2)
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.string()})


def node_of(query: Query, *names: str) -> BoundNode:
    sources = [op.sources.simple_events(1, id=name) for name in names]
    return bind(op.graph(sources, {"A": query}), dict.fromkeys(names, SCHEMA))["A"]


def pairs(first: str, second: str) -> Query:
    query = op.Query("A").order_by("ts").pattern("X -> Y").measures(at="Y.ts")
    return query.define(X=f"k = '{first}'", Y=f"k = '{second}'")


def take_all(operator: CountedOperator, links: dict[str, LinkIntake]) -> list[dict[str, object]]:
    """Let an operator take what came over its links, and return its matches."""
    found = []
    for name, link in links.items():
        found += [EventsArrived(rows, name) for rows in link.pop()]
    return [row for one in found for row in matches_of(operator.step(one)).to_pylist()]


def test_the_exchange_of_figure_4() -> None:
    """The ack of θ, made of c and d, trims the predecessor's queue from ⟨a, b, c, d⟩ to ⟨c, d⟩."""
    node = node_of(pairs("c", "d").over(WINDOWS, duplicates=True), "predecessor")
    before = OutputQueue(node.columns, most=100)
    after = OutputQueue(None, most=100)
    operator, intake = CountedOperator(node.spec), LinkIntake("predecessor")
    # 1: a, b, c and d are sent, and backed up.
    before.append(pa.table({"ts": range(4), "k": list("abcd")}))
    rows, numbers = before.log.events()
    assert rows["k"].to_pylist() == list("abcd")
    # 2: a match goes to the output queue.
    intake.take(rows, numbers)
    after.append(matches_of(operator.step(EventsArrived(*intake.pop()))))
    assert (after.log.came, after.acknowledged) == (1, 0)
    # 3: the successor acknowledges it.
    after.thin(NeededNumbers(1).savepoint)
    # 4: it is deleted, and a savepoint is computed and goes upstream.
    assert len(after.log) == 0
    savepoint = savepoint_of(operator.step(RowsAcknowledged(after.acknowledged)))
    inputs = {"predecessor": operator.needed_by_source(savepoint)[None]}
    backup = Backup.decode(Backup("A", savepoint, operator.settled, inputs).encoded)
    assert (backup.savepoint.trim, backup.settled) == (1, 1)
    # 5: so the predecessor's queue is trimmed.
    before.thin(backup.inputs["predecessor"].savepoint)
    assert before.log.events()[0]["k"].to_pylist() == ["c", "d"]


@given(
    st.lists(st.sampled_from("abx"), min_size=1, max_size=60),
    st.lists(st.booleans(), min_size=60, max_size=60),
    st.integers(0, 60),
    st.floats(0, 1),
)
def test_events_of_two_predecessors_come_back_with_the_numbers_that_they_had(
    kinds: list[str], west: list[bool], cut: int, share: float
) -> None:
    node = node_of(pairs("a", "b").over(op.windows.count(6, slide=3)), "east", "west")
    ts = np.arange(len(kinds)) // 2
    whole = pa.table({"ts": ts, "k": kinds}, SCHEMA)
    sent_west = np.array(west[: len(kinds)])
    own = {"east": np.flatnonzero(~sent_west), "west": np.flatnonzero(sent_west)}
    operator, links = CountedOperator(node.spec), {name: LinkIntake(name) for name in own}
    queues = {name: OutputQueue(None, most=1000) for name in own}
    for name, places in own.items():
        queues[name].append(whole.take(places))
        part = places[places < cut]
        links[name].take(whole.take(part), np.arange(len(part)))
    found = take_all(operator, links)
    savepoint = savepoint_of(operator.step(RowsAcknowledged(int(share * len(found)))))
    needed = operator.needed_by_source(savepoint)
    inputs = {name: needed[name] for name in own}
    backup = Backup.decode(Backup("A", savepoint, operator.settled, inputs).encoded)
    again = {name: LinkIntake(name, backup.inputs[name]) for name in own}
    for name, queue in queues.items():
        queue.thin(backup.inputs[name].savepoint)
        rows, numbers = queue.log.events() if queue.log.came else (whole, np.arange(0))
        for at in range(len(numbers)):
            again[name].take(rows.slice(at, 1), numbers[at : at + 1])
    assert all(link.collected for link in again.values())
    rebuilt = CountedOperator(node.spec)
    events: dict[str | None, Any] = {name: link.stand(SCHEMA) for name, link in again.items()}
    got = rebuilt.stand(backup.savepoint, events, backup.settled).to_pylist()
    for name, places in own.items():
        later = places[places >= cut]
        links[name].take(whole.take(later), np.arange(len(places) - len(later), len(places)))
    for one, taking, rest in ((links, operator, found), (again, rebuilt, got)):
        rest += take_all(taking, one)
        for name, places in own.items():
            one[name].end(len(places))
            assert one[name].ended
            rest += matches_of(taking.step(SourceEnded(name))).to_pylist()
    assert got == found[backup.settled :]
    assert rebuilt.came == len(kinds)


@given(st.sets(st.integers(0, 80)), st.integers(0, 20))
def test_needed_numbers_are_told_by_runs(numbers: set[int], more: int) -> None:
    kept = np.array(sorted(numbers), np.int64)
    needed = NeededNumbers(max(numbers, default=0) + 1 + more, kept)
    again = NeededNumbers.read(needed.at, needed.trim, needed.runs())
    assert again.numbers.tolist() == kept.tolist()
    assert again.trim == needed.trim
    dropped = {one for begin, end in needed.skip.tolist() for one in range(begin, end + 1)}
    assert dropped | numbers | set(range(needed.trim + 1)) == set(range(needed.at))
    assert not dropped & numbers


def test_a_backup_is_small_however_much_windows_hold() -> None:
    needed = NeededNumbers(10**6, np.arange(10, 10**6))
    assert len(Backup("A", NeededNumbers(9).savepoint, 0, {"east": needed}).encoded) < 2000


def test_the_newest_backup_is_kept() -> None:
    known: dict[str, Backup] = {}
    needed = NeededNumbers(9, np.zeros(0, np.int64))
    made = [Backup("A", NeededNumbers(at).savepoint, 0, {"east": needed}) for at in (3, 9, 5)]
    keep_newest(known, made)
    assert known["A"] is made[1]


@pytest.mark.parametrize("data", [b"", b"nothing", State({"operator": "A"}).encode()])
def test_bytes_that_are_no_backup_are_refused(data: bytes) -> None:
    with pytest.raises(op.StateError):
        Backup.decode(data)


@pytest.mark.parametrize("rebuilt", [False, True])
def test_an_input_that_has_less_than_was_taken_of_it_is_refused(rebuilt: bool) -> None:
    intake = LinkIntake("east", NeededNumbers(5, np.array([3])) if rebuilt else None)
    if not rebuilt:
        intake.take(pa.table({"ts": range(5), "k": list("abcab")}, SCHEMA), np.arange(5))
    with pytest.raises(op.StateError, match="'east' has 4 events in all, of which 5 were taken"):
        intake.end(4)
    intake.end(5)
    assert intake.ended is not rebuilt


def test_events_that_nobody_retained_are_missed() -> None:
    intake = LinkIntake("east")
    rows = pa.table({"ts": range(9), "k": list("abcababca")}, SCHEMA)
    intake.take(rows.slice(0, 2), np.arange(2))
    with pytest.raises(op.StateError, match="events of 'east' from 2 on are needed"):
        intake.take(rows.slice(3), np.arange(3, 9))
    again = LinkIntake("east", NeededNumbers(5, np.array([1, 3])))
    again.take(rows.slice(3, 1), np.array([3]))
    with pytest.raises(op.StateError, match="events of 'east' from 1 on are needed"):
        again.take(rows.slice(5), np.arange(5, 9))
