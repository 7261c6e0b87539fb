"""Graphs on several machines: what comes out is the same, whatever is lost, and nobody else joins.

The machines are processes of this one, on its loopback.
"""

from __future__ import annotations

import random
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import zmq
from support.graphs import WINDOWS, PacedRows, chain, expected, letters
from support.machines import (
    PLACES,
    SHAPES,
    GraphOnMachines,
    free_addresses,
    machine_processes,
    run_on_machines,
)

import outpace as op
from outpace.engine.state import State
from outpace.hosts.graph.graph_run import GraphRun
from outpace.hosts.graph.inlet import Inlet, TakenMatches
from outpace.hosts.graph.keys import make_keys, read_keys
from outpace.hosts.graph.links import Links, Secret
from outpace.hosts.graph.machine import RemoteMachine
from outpace.hosts.graph.message import read, read_backups, write
from outpace.hosts.graph.monitor import Monitor
from outpace.hosts.graph.outlet import Outlet, OutputQueue
from outpace.hosts.graph.placement import Address

ROWS = letters(2400, seed=5)


def want(shape: str, kind: str, rows: pa.Table = ROWS) -> pa.Table:
    operators = SHAPES[shape](WINDOWS[kind])
    return expected(rows, operators)[list(operators)[-1]]


def test_operators_and_a_machine_that_are_lost_are_there_again(tmp_path: Path) -> None:
    with machine_processes("chain", "time", tmp_path, ROWS, "south", "east") as others:
        acts = {
            15: lambda run: others.kill_operator(run, "two"),
            30: lambda run: others.kill("east"),
        }
        found, run = run_on_machines(others.about, ROWS, acts)
        assert others.killed == ["two", "machine east"]
        assert found.equals(want("chain", "time"))
        replays = {name: one.replays for name, one in run.metrics.operators.items()}
        assert replays == {"one": 0, "two": 1, "three": 1}
        assert run.metrics.operators["three"].recover_s > 0
    # The others end with the run.
    assert [one.exitcode for one in others.processes.values()] == [0, 0]


@pytest.mark.soak
def test_the_first_machine_goes_on_with_the_others(tmp_path: Path) -> None:
    """The run is lost with sources, monitor and sink; the other machines wait for the next one."""
    names = "north", "south", "east"
    with machine_processes("chain", "count", tmp_path, ROWS, *names, log=True) as machines:
        await_savepoints(tmp_path / "graph" / "savepoints")
        machines.kill("north")
        for one in machines.processes.values():
            one.join(60)
        assert {name: one.exitcode for name, one in machines.processes.items()} == dict.fromkeys(
            names, 0
        )
    assert op.log.open(tmp_path / "log").read().equals(want("chain", "count"))


def await_savepoints(file: Path) -> None:
    """Wait until the first machine has savepoints on disk."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(FileNotFoundError, op.StateError):
            backups = read_backups(State.decode(file.read_bytes()))
            if any(one.savepoint.at > 0 for one in backups):
                return
        time.sleep(0.02)
    raise AssertionError("there are no savepoints")


@pytest.mark.soak
def test_a_stuck_operator_of_another_machine_is_started_again_there(tmp_path: Path) -> None:
    with machine_processes("diamond", "count", tmp_path, ROWS, "south", "east") as others:
        acts = {20: lambda run: others.kill_operator(run, "join", signal.SIGSTOP)}
        found, run = run_on_machines(others.about, ROWS, acts)
        assert others.killed == ["join"]
        assert found.equals(want("diamond", "count"))
        assert run.metrics.operators["join"].replays >= 1


@pytest.mark.soak
@pytest.mark.parametrize("shape", PLACES)
@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("seed", range(5))
def test_machines_and_their_operators_may_be_lost_at_any_time(
    tmp_path: Path, shape: str, kind: str, seed: int
) -> None:
    rows, draw = letters(4000, seed), random.Random(seed)
    with machine_processes(shape, kind, tmp_path, rows, "south", "east") as others:

        def lose(run: GraphRun) -> None:
            operators = list(SHAPES[shape](WINDOWS[kind]))
            for name in draw.sample(operators, draw.choice([1, 1, 2])):
                others.kill_operator(run, name)
            if draw.random() < 0.5:
                others.kill(draw.choice(["south", "east"]))

        found, _ = run_on_machines(
            others.about, rows, dict.fromkeys(draw.sample(range(5, 100), 4), lose)
        )
        assert others.killed
        assert found.equals(want(shape, kind, rows))


def knock(address: str, public: bytes, secret: bytes, server: bytes) -> bool:
    """Talk to a socket with some keys, as who reads, and say whether it refused that."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.curve_publickey, peer.curve_secretkey, peer.curve_serverkey = public, secret, server
        peer.connect(address)
        peer.send(write("hello", token="guess", node="one", reader="two", number=0, next=0))
        peer.send(write("taken", number=10**6))
        return bool(peer.poll(1000)) and b"refused" in peer.recv()


def test_strangers_are_refused_and_counted_and_nothing_is_lost(tmp_path: Path) -> None:
    make_keys(tmp_path / "graph.key")
    machines = dict(zip(("north", "east"), free_addresses(2), strict=True))
    about = GraphOnMachines("chain", "count", machines, tmp_path / "graph.key", places={})
    knocked: list[bool] = []
    refused: list[str] = []

    def knock_everywhere(run: GraphRun) -> None:
        assert run._monitor is not None
        own = read_keys(about.keys).encode()
        server = zmq.curve_public(own)
        for address in [run._monitor.address, *run._monitor.addresses.values()]:
            host, _, port = address.removeprefix("tcp://").partition(":")
            with socket.create_connection((host, int(port))) as peer:
                peer.sendall(b"GET / HTTP/1.1\r\n\r\n" * 9)
            assert not knock(address, *zmq.curve_keypair(), server)
            assert not knock(address, *zmq.curve_keypair(), zmq.curve_keypair()[0])
            # One of another graph, that has the same keys.
            knocked.append(knock(address, server, own, server))
        with pytest.raises(op.StateError) as caught:
            replace(about, kind="time").graph(PacedRows("events")).serve("east")
        refused.append(str(caught.value))

    found, run = run_on_machines(about, ROWS, {30: knock_everywhere})
    assert found.equals(want("chain", "count"))
    assert knocked == [False, True, True, True, True]  # The monitor does not answer strangers.
    assert "refused machine 'east'" in refused[0]
    assert "it has another graph" in refused[0]
    # At each socket three connections, and two messages; and at the monitor the machine.
    assert run.metrics.refused >= 2 * 5 + 1
    assert all(one.refused >= 5 for one in run.metrics.operators.values())
    assert all(one.replays == 0 for one in run.metrics.operators.values())


def test_the_last_of_two_that_are_one_machine_is_it(tmp_path: Path) -> None:
    links = Links(Secret("run"))
    monitor = Monitor(links, Address("127.0.0.1", 0), 3.0, "graph")
    try:
        monitor.start([], {"south": RemoteMachine("run", {})})
        answers = []
        for session in (7, 9, 7):
            with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
                peer.connect(monitor.address)
                said = {"machine": "south", "session": session, "graph": "graph", "states": {}}
                peer.send(write("machine", **said))
                assert monitor.socket.poll(5000)
                assert list(monitor.turn()) == []
                assert peer.poll(5000)
                answers.append(read(peer.recv())[0])
        assert answers == ["orders", "orders", "refused"]
        assert monitor.refused == 1
    finally:
        monitor.close()
        links.close()


def test_an_address_that_is_taken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outpace.hosts.graph.links._PATIENCE_S", 0.2)
    links = Links(Secret("run"))
    try:
        first = links.listen(Address("127.0.0.1", 0))
        taken = Address.read(first.address)
        with pytest.raises(op.DataError, match=f"cannot listen at '{taken}': address already in"):
            links.listen(taken)
        with pytest.raises(op.DataError, match=r"cannot listen at 'tcp://192\.0\.2\.1:"):
            links.listen(Address("192.0.2.1", 7000))
    finally:
        links.close()


def test_a_link_that_breaks_is_made_again() -> None:
    """A cable, a firewall: nobody is lost, and the reader goes on where it was."""
    links = Links(Secret("run"))
    outlet = Outlet(links, Address("127.0.0.1", 0), {("one", "two"): OutputQueue(None, 100)})
    queue = outlet.queues["one", "two"]
    queue.append(pa.table({"x": range(5)}))
    inlet = Inlet(links, "one", "two")
    taken = TakenMatches(inlet)
    came: list[int] = []

    def go_on(until: int) -> None:
        end = time.monotonic() + 20
        while len(came) < until and time.monotonic() < end:
            outlet.receive()
            outlet.send()
            came.extend(one for _, rows in taken.tables() for one in rows["x"].to_pylist())
            if inlet.asks():
                inlet.connect(outlet.address, taken.stop)
            time.sleep(0.01)

    try:
        with socket.create_server(("127.0.0.1", 0)) as wall:
            # What comes through the wall goes on to the outlet, until it breaks.
            port = wall.getsockname()[1]
            inlet.connect(f"tcp://127.0.0.1:{port}", 0)
            near, _ = wall.accept()
            far = socket.create_connection(("127.0.0.1", Address.read(outlet.address).port))
            pumps = [
                threading.Thread(target=pump, args=both) for both in ((near, far), (far, near))
            ]
            for one in pumps:
                one.start()
            go_on(5)
            for end in (near, far):
                end.shutdown(socket.SHUT_RDWR)
            for one in pumps:
                one.join()
            near.close()
            far.close()
        queue.append(pa.table({"x": range(5, 9)}))
        go_on(9)
        assert came == [*range(9)]
    finally:
        inlet.close()
        outlet.close()
        links.close()


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Send on what comes."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machines": {"north": "10.0.0.1:7000"}}, "no address of the form tcp://host:port"),
        ({"machines": {"north": "tcp://10.0.0.1:70000"}}, "no address of the form"),
        ({"machines": {"north": 3}}, "an address is text"),
        ({"machines": {"": "tcp://127.0.0.1:7000"}}, "a machine has a name"),
        ({"machines": {}}, "machines are names with addresses"),
        ({"places": {"none": "south"}}, "there is no operator 'none' to be placed"),
        ({"places": {"two": "sout"}}, "there is no machine 'sout'"),
        ({"places": 3}, "places are operators with machines"),
        ({"machines": None}, "a graph with places or keys names its machines"),
        ({"machines": {"north": "tcp://127.0.0.1:65534"}}, "'north' needs ports up to 65538"),
        (
            {
                "machines": {"south": "tcp://127.0.0.1:7000", "east": "tcp://127.0.0.1:7002"},
                "places": {"two": "east"},
            },
            "'south' and 'east' both need port 7002 of 127.0.0.1",
        ),
        (
            {"machines": {"north": "tcp://127.0.0.1:7000", "south": "tcp://10.0.0.2:7000"}},
            "machine 'south' at 'tcp://10.0.0.2:7000' can be reached from others",
        ),
        ({"machines": {"north": "tcp://0.0.0.0:7000"}}, "can be reached from others"),
        ({"keys": 3}, "the file with the keys is text or a pathlib.Path"),
    ],
)
def test_what_is_no_place_for_operators_is_refused(change: dict[str, object], message: str) -> None:
    known: dict[str, object] = {"machines": {"south": "tcp://127.0.0.1:7000"}}
    if "machines" in change and change["machines"] is None:
        known["places"] = {"two": "south"}
    with pytest.raises(op.BindError) as caught:
        op.graph(PacedRows("events"), chain(None), **(known | change))  # type: ignore[arg-type]  # also what is none
    assert message in str(caught.value)


def test_machines_that_cannot_be_served_are_refused() -> None:
    graph = op.graph(PacedRows("events"), chain(None), machines={"north": "tcp://127.0.0.1:7000"})
    with pytest.raises(op.BindError, match="there is no machine 'nort'"):
        graph.serve("nort")
    with pytest.raises(op.BindError, match="'north' has the sources and the monitor"):
        graph.serve("north")


def test_keys_are_for_their_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "graph.key"
    with pytest.raises(op.DataError, match="there are no keys in"):
        read_keys(path)
    make_keys(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(read_keys(path)) == 40
    with pytest.raises(op.DataError, match=r"there is a file .* already"):
        make_keys(path)
    with pytest.raises(op.DataError, match=r"cannot make .*: no such file"):
        make_keys(tmp_path / "none" / "graph.key")
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        graph = op.graph(
            PacedRows("events"),
            chain(None),
            machines={"north": "tcp://127.0.0.1:7000"},
            keys=path,
        )
        with pytest.raises(op.DataError, match=r"others can read the keys in .*, or write them"):
            graph.run()
    path.chmod(0o600)
    for content in (b"", b"x" * 39, b"\xff" * 40, b"~" * 40):
        path.write_bytes(content)
        with pytest.raises(op.DataError, match="are no keys"):
            read_keys(path)
