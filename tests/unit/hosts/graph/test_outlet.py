"""Output queues: what is on its way is bounded, and what a reader has lost comes again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

import outpace as op
from outpace.engine.recover.event_needs import NeededNumbers
from outpace.hosts.graph.inlet import Inlet, TakenMatches
from outpace.hosts.graph.links import Links, Secret
from outpace.hosts.graph.message import MESSAGE_BYTES, read, read_events, write
from outpace.hosts.graph.outlet import Outlet, OutputQueue
from outpace.hosts.graph.placement import Address
from outpace.ingest.retained_log import RetainedLog

HERE = Address("127.0.0.1", 0)


def rows(begin: int, end: int) -> pa.Table:
    return pa.table({"x": np.arange(begin, end)})


def sent(queue: OutputQueue) -> tuple[list[int], list[str]]:
    """The numbers of the events that are sent now, which are their values, and what else is."""
    numbers, others = list[int](), list[str]()
    for data in queue.messages():
        kind, message = read(data)
        if kind == "events":
            table, own = read_events(message)
            assert table["x"].to_pylist() == own.tolist()
            numbers += own.tolist()
        else:
            others.append(kind)
    return numbers, others


def test_no_more_events_are_on_their_way_than_may_be() -> None:
    queue = OutputQueue(None, most=5)
    queue.begin_at(0)
    queue.append(rows(0, 12))
    queue.promise(7)
    queue.end()
    assert sent(queue) == ([0, 1, 2, 3, 4], [])
    assert not queue.has_room
    assert sent(queue) == ([], [])
    queue.taken(4)
    assert sent(queue) == ([5, 6, 7, 8], [])
    queue.taken(9)
    assert queue.has_room
    assert sent(queue) == ([9, 10, 11], ["promise", "end"])
    assert sent(queue) == ([], [])


@pytest.mark.parametrize("memory_bytes", [1, 1 << 20])
def test_who_has_lost_all_gets_what_is_retained_and_who_has_not_gets_the_rest(
    monkeypatch: pytest.MonkeyPatch, memory_bytes: int
) -> None:
    monkeypatch.setattr("outpace.ingest.retained_log.MEMORY_BYTES", memory_bytes)
    queue = OutputQueue(None, most=100)
    queue.begin_at(0)
    for first in (0, 4, 7):
        queue.append(rows(first, first + 3 + (first == 0)))
    assert len(sent(queue)[0]) == 10
    needed = NeededNumbers(8, np.array([3, 6]))
    queue.thin(needed.savepoint)
    assert queue.acknowledged == 3
    queue.begin_at(None)
    assert sent(queue)[0] == [3, 6, 8, 9]
    queue.begin_at(9)
    assert sent(queue)[0] == [9]


def test_events_that_come_again_are_counted_and_not_sent() -> None:
    queue = OutputQueue(None, most=100, begin=5)
    queue.append(rows(5, 8))
    queue.begin_at(10)
    assert queue.doubles == 3
    assert sent(queue)[0] == []
    queue.append(rows(8, 12))
    assert queue.doubles == 5
    assert sent(queue)[0] == [10, 11]


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=8),
    st.integers(1, 10),
    st.lists(st.integers(0, 200), max_size=20),
)
def test_a_source_that_is_read_again_never_waits_for_what_is_not_needed(
    sizes: list[int], most: int, wanted: list[int]
) -> None:
    """Events between those that are needed are dropped, so that they keep nobody waiting."""
    at = sum(sizes) + 1
    needed = NeededNumbers(at, np.unique([one for one in wanted if one < at]).astype(np.int64))
    queue = OutputQueue(None, most=most)
    queue.thin(needed.savepoint)
    queue.begin_at(None)
    came, begin = list[int](), 0
    for size in [*sizes, 1, 3]:
        while not queue.has_room:
            new = sent(queue)[0]
            assert new, "there is something to take"
            came += new
            queue.taken(came[-1] + 1)
        queue.append(rows(begin, begin + size))
        begin += size
    while new := sent(queue)[0]:
        came += new
        queue.taken(came[-1] + 1)
    assert came == [*needed.numbers.tolist(), *range(at, begin)]


@given(st.lists(st.integers(0, 40), max_size=10), st.integers(0, 50), st.integers(0, 60))
def test_a_retained_log_knows_how_many_events_come_from_a_number_on(
    kept: list[int], fresh: int, number: int
) -> None:
    log = RetainedLog()
    log.append(rows(0, 41))
    needed = NeededNumbers(41, np.unique(kept).astype(np.int64))
    log.thin(needed.savepoint)
    log.append(rows(41, 41 + fresh))
    assert log.count_from(number) == int((log.events()[1] >= number).sum())


@pytest.fixture
def links() -> Iterator[Links]:
    links = Links(Secret("secret"))
    yield links
    links.close()


def test_matches_are_acknowledged_when_they_are_taken_and_not_before(links: Links) -> None:
    """Who takes them may wait for a disk meanwhile, once for all that came."""
    queue = OutputQueue(None, most=100)
    outlet = Outlet(links, HERE, {("one", "two"): queue})
    taken = TakenMatches(Inlet(links, "one", "two"), stop=2)
    taken.inlet.connect(outlet.address, taken.stop)
    heard(outlet)
    for first in (0, 4, 8):
        queue.append(rows(first, first + 4))
        outlet.send()
    came = list[int]()
    while len(came) < 10:
        assert taken.inlet.socket is not None
        assert taken.inlet.socket.poll(5000)
        for first, table in taken.tables():
            outlet.receive()
            assert queue.acknowledged <= first == 2 + len(came)
            came += table["x"].to_pylist()
    assert came == list(range(2, 12))
    while queue.acknowledged < 12:
        heard(outlet)


def heard(outlet: Outlet) -> None:
    assert outlet.socket.poll(5000)
    outlet.receive()


def answer(inlet: Inlet) -> str:
    assert inlet.socket is not None
    assert inlet.socket.poll(5000)
    return next(kind for kind, _ in inlet.receive())


def test_a_lost_reader_that_is_heard_late_takes_no_place(links: Links) -> None:
    """Two connections are heard in any order: who came later may be heard first."""
    outlet = Outlet(links, HERE, {("one", "two"): OutputQueue(None, 100)})
    lost, lives = (Inlet(links, "one", "two", number) for number in (0, 1))
    lives.connect(outlet.address, None)
    heard(outlet)
    assert answer(lives) == "welcome"
    lost.connect(outlet.address, None)
    heard(outlet)
    lost.taken(3)
    heard(outlet)
    outlet.queues["one", "two"].append(rows(0, 3))
    lives.taken(0)
    heard(outlet)
    outlet.send()
    assert answer(lives) == "events"
    assert outlet.refused == 0


@pytest.mark.parametrize("sealed", [False, True])
def test_the_largest_message_is_taken_and_a_larger_one_costs_the_connection(sealed: bool) -> None:
    links = Links(Secret("secret", zmq.curve_keypair()[1].decode() if sealed else None))
    outlet = Outlet(links, HERE, {("one", "two"): OutputQueue(None, 100)})
    knocking, reader = links.connect(outlet.address, again=False), Inlet(links, "one", "two")
    try:
        knocking.socket.send(bytes(MESSAGE_BYTES))
        heard(outlet)
        assert outlet.refused == 1
        assert knocking.lost_for == 0
        knocking.socket.send(bytes(MESSAGE_BYTES + 100))
        end = time.monotonic() + 20
        while not knocking.lost_for and time.monotonic() < end:
            time.sleep(0.01)
        assert knocking.lost_for
        assert not outlet.socket.poll(0)
        reader.connect(outlet.address, None)
        heard(outlet)
        assert answer(reader) == "welcome"
    finally:
        links.close()


def test_wide_events_are_sent_in_several_messages_and_too_wide_ones_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = 1 << 16
    monkeypatch.setattr("outpace.hosts.graph.message.MESSAGE_BYTES", most)
    queue = OutputQueue(None, most=100)
    wide = pa.table({"x": ["ab" * 5000] * 9, "n": range(9)})
    queue.append(wide)
    messages = list(queue.messages())
    assert len(messages) > 1
    assert all(len(one) <= most for one in messages)
    parts = [read_events(read(one)[1]) for one in messages]
    assert pa.concat_tables([part for part, _ in parts]).equals(wide)
    assert [int(one) for _, numbers in parts for one in numbers] == list(range(9))
    queue.append(pa.table({"x": ["a" * most], "n": [9]}))
    with pytest.raises(op.DataError, match=r"operators of a graph has 6\d,\d+ bytes"):
        list(queue.messages())


@pytest.mark.parametrize("token", ["guess", "Schlüssel", "\ud800", 3, None, ["secret"]])
def test_who_does_not_know_the_secret_is_refused(links: Links, token: object) -> None:
    outlet = Outlet(links, HERE, {("one", "two"): OutputQueue(None, 100)})
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.connect(outlet.address)
        peer.send(write("hello", token=token, node="one", reader="two", number=0, next=0))
        heard(outlet)
        assert peer.poll(5000)
        assert read(peer.recv())[0] == "refused"
    assert outlet.refused == 1
