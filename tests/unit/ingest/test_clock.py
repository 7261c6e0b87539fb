"""Clocks compared over real sockets on loopback: what counts, and what is left alone."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import outpace as op
from outpace.engine.order.drift import SourceClock
from outpace.hosts.clock import clock_time
from outpace.ingest.clock import _ASK, _TELL, ClockClient, ClockSync
from outpace.ingest.source import Source

HOUR = 3_600_000_000
NOW = clock_time()


@pytest.fixture
def sync() -> Iterator[ClockSync]:
    with ClockSync(port=0) as made:
        yield made


def until(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait until something holds, but not for ever."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)
    return holds()


def heard(sync: ClockSync, count: int) -> list[op.ingest.ClockExchange]:
    """Return so many exchanges that became complete."""
    found: list[op.ingest.ClockExchange] = []
    until(lambda: bool(found.extend(sync.wait(0.1)) or len(found) >= count))
    return found


def test_both_sides_know_the_same_exchanges(sync):
    with ClockClient(sync.address, "east", clock=lambda: clock_time() - HOUR) as client:
        asked = [client.ask() for _ in range(4)]
    found = heard(sync, 4)
    assert found == asked
    clock = SourceClock()
    for exchange in found:
        clock.compare(exchange)
    reading = clock.reading
    assert (reading.exchanges, reading.jumps, reading.refused) == (4, 0, 0)
    assert abs(reading.drift - HOUR) <= reading.bound
    assert (sync.counters.questions, sync.counters.exchanges) == (5, 4)


def test_a_clock_that_jumps_is_noticed(sync):
    late = [0]
    with ClockClient(sync.address, "east", clock=lambda: clock_time() - late[0]) as client:
        client.ask()
        late[0] = 60_000_000
        client.ask()
    clock = SourceClock()
    jumped = [clock.compare(exchange) for exchange in heard(sync, 2)]
    assert jumped == [True, True]
    assert clock.reading.jumps == 1


def question(
    sign: bytes = b"OPCK",
    version: int = 1,
    kind: int = 1,
    number: int = 7,
    length: int = 1,
    name: bytes = b"a",
    before: int = 0,
) -> bytes:
    return _ASK.pack(sign, version, kind, number, 100, before, 200, length, name)


BAD = [
    b"",
    b"x",
    bytes(_ASK.size),
    bytes([255]) * _ASK.size,
    question(sign=b"OPCX"),
    question(version=2),
    question(kind=2),
    question(number=0),
    question(length=0),
    question(length=65),
    question(name=b"\xff"),
    question(name=b"ab"),
    question()[:-1],
    question() + b"x",
    b"__import__('os').system('true')",
    b"cos\nsystem\n(S'true'\ntR.",
]


def test_what_is_none_of_ours_is_counted_and_left_alone(sync):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(10)
        for number, data in enumerate(BAD, 1):
            sender.sendto(data, sync.address)
            assert until(lambda count=number: sync.counters.malformed == count)
        # It still answers, with no more bytes than it was asked with.
        sender.sendto(question(), sync.address)
        answer = sender.recv(1000)
    assert len(answer) == _TELL.size < _ASK.size
    assert sync.counters.questions == 1
    assert sync.take() == []


def test_an_exchange_counts_only_if_it_was_answered_there(sync):
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        for sender in (one, other):
            sender.settimeout(10)
        one.sendto(question(number=7), sync.address)
        one.recv(1000)
        # Another sender, or another number, tells nothing of it.
        other.sendto(question(number=9, before=7), sync.address)
        other.recv(1000)
        other.sendto(question(number=10, before=8), sync.address)
        other.recv(1000)
        assert sync.counters.unmatched == 2
        other.sendto(question(number=11, before=10), sync.address)
        other.recv(1000)
    assert len(sync.take()) == sync.counters.exchanges == 1
    with ClockClient(sync.address, "a") as client:
        assert client.ask() is not None
        assert client.ask() is not None
    assert len(heard(sync, 2)) == 2


def test_only_the_sources_that_are_named_are_served():
    with ClockSync(["east"], port=0) as sync:
        with (
            ClockClient(sync.address, "west") as client,
            pytest.raises(op.DataError, match="does not serve the source 'west'"),
        ):
            client.ask()
        with ClockClient(sync.address, "east") as client:
            assert client.ask() is not None
        assert sync.counters.unknown == 1


def test_a_server_that_is_not_there_answers_nothing():
    with ClockSync(port=0) as gone:
        address = gone.address
    with ClockClient(address, "east", timeout=0.05) as client:
        assert client.ask() is None


def test_a_false_answer_is_not_believed():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        with ClockClient(server.getsockname(), "east", timeout=0.2) as client:

            def lie() -> None:
                data, place = server.recvfrom(1000)
                number, asked = _ASK.unpack(data)[3:5]
                server.sendto(b"x", place)
                server.sendto(_TELL.pack(b"OPCK", 1, 2, number + 1, asked, 5, 6), place)
                server.sendto(_TELL.pack(b"OPCK", 1, 2, number, asked + 1, 5, 6), place)
                server.sendto(_TELL.pack(b"OPCX", 1, 2, number, asked, 5, 6), place)

            thread = threading.Thread(target=lie)
            thread.start()
            assert client.ask() is None
            thread.join(10)


def test_bad_arguments_are_refused(sync):
    for bad in ("", "x" * 65, 7, None, "\udc80"):
        with pytest.raises(op.OutpaceError):
            ClockClient(sync.address, bad)
    with pytest.raises(op.DataError, match="at most 86400 seconds"):
        ClockClient(sync.address, "east", timeout=1e30)
    for clock in (lambda: 0.5, lambda: 1 << 70):
        client = ClockClient(sync.address, "east", clock=clock)
        with pytest.raises(op.DataError, match="the time of a clock is"):
            client.ask()
        client.close()
    for address in ("127.0.0.1", ("127.0.0.1", "no such port"), ("127.0.0.1", 1 << 20), 5):
        with pytest.raises(op.DataError, match="no address"):
            ClockClient(address, "east")
    for arguments in ({"port": -1}, {"port": 1 << 17}, {"host": 7}, {"host": "no such host."}):
        with pytest.raises(op.OutpaceError):
            ClockSync(**{"port": 0, **arguments})
    with pytest.raises(op.DataError, match="list of names"):
        ClockSync("east", port=0)
    with pytest.raises(op.DataError, match="cannot serve clocks"):
        ClockSync(port=sync.address[1])


@pytest.mark.parametrize("clock", [lambda: 1 / 0, lambda: 0.5, lambda: 1 << 70])
def test_a_clock_of_reference_that_fails_is_told(clock):
    with ClockSync(port=0, clock=clock) as sync:
        with ClockClient(sync.address, "east", timeout=0.01) as client:
            assert client.ask() is None
        with pytest.raises(op.DataError, match="the clock of reference failed"):
            sync.wait(10)


class Behind(Source):
    """Ten events, a second apart, by a clock that is an hour behind where it is `west`."""

    def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
        west = self.id == "west"
        times = [NOW + (2 * n + west) * 1_000_000 - west * HOUR for n in range(10)]
        yield pa.record_batch({"ts": times, "seq": range(10), "who": [self.id] * 10})


class Numbered(Behind):
    """The same, with the number of each event as a column to join by."""

    def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
        for batch in super().batches(rows):
            yield batch.rename_columns(["ts", "seq_no", "who"])


def test_a_run_orders_sources_by_the_time_of_reference(sync):
    query = (
        op.Query("turns")
        .order_by("ts")
        .pattern("A B")
        .define(A="who = 'east'", B="who = 'west'")
        .measures(at="A.ts", apart="B.ts - A.ts")
        .disorder(op.InOrder())
        .within(10_000_000)
        .no_skip()
        .uncertain(1_000_000, measured=True)
    )
    with ClockClient(sync.address, "west", clock=lambda: clock_time() - HOUR) as client:
        assert client.ask() is not None
    assert until(lambda: sync.counters.exchanges == 1)
    with op.run(query, [Behind("east"), Behind("west")], clocks=sync) as run:
        found = [row for matches in run for row in matches.to_pylist()]
    assert len(found) == 10
    # By the bound alone either could have been first; the clock of the west is known better.
    assert {row["confidence"] for row in found} == {"CONFIRMED"}
    bound = run.metrics.sources["west"].drift_bound
    assert all(abs(row["apart"] - 1_000_000) <= bound for row in found)
    assert abs(run.metrics.sources["west"].drift - HOUR) <= bound
    with pytest.raises(op.BindError, match="several sources"):
        op.run(query, Behind("east"), clocks=sync)


def test_a_join_that_runs_compares_the_clocks_of_its_sides(sync):
    join = op.Join(on="seq_no", within=3_000_000, time="ts", disorder=op.InOrder())
    with ClockClient(sync.address, "right", clock=lambda: clock_time() - HOUR) as client:
        assert client.ask() is not None
    assert until(lambda: sync.counters.exchanges == 1)
    with op.run(join, [Numbered("east"), Numbered("west")], clocks=sync) as run:
        found = [row for rows in run for row in rows.to_pylist()]
    # By their own clocks no two rows are closer than an hour, nearly.
    assert [row["seq_no"] for row in found] == list(range(10))
    bound = run.metrics.sources["right"].drift_bound
    assert all(abs(row["ts"] - row["ts_left"] - 1_000_000) <= bound for row in found)
