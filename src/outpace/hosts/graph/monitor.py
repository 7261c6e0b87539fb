"""The monitor: it has the processes of a graph started, and started again when lost or stuck.

A process is lost when it ends without having said why; its predecessors and readers go on. It is
stuck when its heart has not beaten for some time; then another one takes its place. What it says of
an error in the data or in the query ends the run: it would meet it again.

A machine is lost when it has not been heard for some time, or comes again as another process. Its
operators wait until it is there, while the rest goes on.
Paper: Lima et al., section II-C.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, Final

from outpace.engine.state import NATURAL, State, integer
from outpace.errors import InstanceError, OutpaceError, StateError
from outpace.hosts.graph.links import Links
from outpace.hosts.graph.machine import END_S, Machine, NodeProcess, RemoteMachine
from outpace.hosts.graph.message import failure_of, knows_secret, read, write
from outpace.hosts.graph.metrics import NodeMetrics
from outpace.hosts.graph.placement import Address

#: So often a process is started again without having come any further.
_ATTEMPTS: Final = 10
#: How long a process may take to start, on a busy machine, before its heart beats; and how long a
#: machine may not be heard, which waits while one starts.
_START_S: Final = 60.0
#: How long a machine may not be there before somebody is told that it is waited for.
_MISSED_S: Final = 2.0
_POLL_MS: Final = 20

_LOG: Final = logging.getLogger("outpace.graph")


@dataclass
class _WatchedProcess:
    """A process, and what is known of it."""

    process: NodeProcess
    machine: Machine | RemoteMachine
    number: int = 0
    #: Who it is on the socket; None where that is not known yet.
    peer: bytes | None = None
    heard: float = field(default_factory=time.monotonic)
    lost: float | None = None
    #: How far it had come when it was lost, and how often it was so without coming any further.
    reached: int = -1
    attempts: int = 0
    done: bool = False
    metrics: NodeMetrics = field(default_factory=NodeMetrics)

    @property
    def pid(self) -> int:
        """The identifier of the process; 0 where it does not run."""
        state = self.machine.states.get(self.process.name)
        return state.pid if state is not None and state.number == self.number else 0

    @property
    def code(self) -> int | None:
        """The exit code of the process; None while it runs."""
        state = self.machine.states.get(self.process.name)
        return state.code if state is not None and state.number == self.number else None


class Monitor:
    """The processes of a graph, by name.

    Parameters
    ----------
    links, address
        Those of the process, and where to listen.
    patience_s
        How long a heart may not beat.
    identity
        Tells the graph from others, to other machines.
    """

    def __init__(
        self, links: Links, address: Address, patience_s: float, identity: str = ""
    ) -> None:
        self._token, self._patience_s, self._identity = links.secret.token, patience_s, identity
        self._listening = links.listen(address)
        self.socket, self.address = self._listening.socket, self._listening.address
        self._machines: Mapping[str, Machine | RemoteMachine] = {}
        self._watched: dict[str, _WatchedProcess] = {}
        #: Where nodes can be read.
        self.addresses: dict[str, str] = {}
        self._missed_at = time.monotonic() + _MISSED_S

    def start(
        self, processes: Sequence[NodeProcess], machines: Mapping[str, Machine | RemoteMachine]
    ) -> None:
        """Have processes started on their machines."""
        self._machines = machines
        for one in processes:
            self._watched[one.name] = _WatchedProcess(one, machines[one.machine])
            machines[one.machine].start(one.name, 0)

    @property
    def refused(self) -> int:
        """How many messages and connections came from peers that are none of the run."""
        return self._listening.refused

    @property
    def pids(self) -> dict[str, int]:
        """The identifiers of the processes that run, each on its machine."""
        return {name: one.pid for name, one in self._watched.items() if one.pid}

    @property
    def sentinels(self) -> list[int]:
        """What can be read once a process of this machine has ended."""
        own = (one for one in self._machines.values() if isinstance(one, Machine))
        return [handle for one in own for handle in one.sentinels]

    @property
    def names(self) -> list[str]:
        """What the processes are called."""
        return list(self._watched)

    def metrics(self, name: str) -> NodeMetrics:
        """Return what is known of a process."""
        return self._watched[name].metrics

    def is_done(self, name: str) -> bool:
        """Say whether a sink has taken everything."""
        return self._watched[name].done

    def turn(self) -> Iterator[str]:
        """Hear all processes, start lost ones again, and yield the nodes that can be read now."""
        yield from self._receive()
        now = time.monotonic()
        for machine, one in self._others():
            if one.is_here and one.silence_s > max(self._patience_s, _START_S):
                one.is_here, self._missed_at = False, now
                self._lose_machine(machine)
        self._tell_missed(now)
        for name, watched in self._watched.items():
            # A machine that is not heard says nothing of its processes.
            if watched.machine.silence_s <= self._patience_s:
                self._check(name, watched, now)
        for _, one in self._others():
            if one.untold:
                self._order(one)

    def _check(self, name: str, one: _WatchedProcess, now: float) -> None:
        """Start a process again that has ended, or is stuck."""
        patience_s = self._patience_s
        if one.peer is None:
            patience_s = max(patience_s, _START_S)
        if one.code is not None:
            _LOG.warning("'%s' was lost with exit code %s, so it is started again", name, one.code)
            self._lose(name, one, "the system may have run out of memory")
        elif now - one.heard > patience_s:
            _LOG.warning("'%s' is stuck, so it is ended and started again", name)
            self._lose(name, one, f"it was silent for {patience_s:g} s; raise patience_s")

    def tell(self, node: str, address: str) -> None:
        """Let all who read a node know where it is."""
        self.addresses[node] = address
        for one in self._watched.values():
            if node in one.process.inputs and one.peer is not None:
                self._send(one.peer, "peer", node=node, address=address)

    def close(self) -> None:
        """End all processes."""
        for one in self._watched.values():
            if one.peer is not None:
                self._send(one.peer, "stop")
        for _, other in self._others():
            if other.peer is not None:
                self._send(other.peer, "stop")
        end = time.monotonic() + END_S
        # They tell how it stands with them before they end.
        while time.monotonic() < end and any(
            one.machine.is_here and one.pid and one.code is None for one in self._watched.values()
        ):
            self.socket.poll(_POLL_MS)
            with suppress(OutpaceError):
                deque(self._receive(), maxlen=0)
        with suppress(OutpaceError):
            deque(self._receive(), maxlen=0)
        for machine in self._machines.values():
            if isinstance(machine, Machine):
                machine.close()
        self._watched = {}
        self._listening.close()

    def _others(self) -> Iterator[tuple[str, RemoteMachine]]:
        for name, one in self._machines.items():
            if isinstance(one, RemoteMachine):
                yield name, one

    def _receive(self) -> Iterator[str]:
        for peer, data in self._listening.receive():
            try:
                kind, message = read(data)
                if kind == "machine":
                    self._hear_machine(peer, message)
                    continue
                known = knows_secret(message, self._token)
            except StateError:
                known = False
            if not known:
                _LOG.warning("a peer on the socket of a monitor was refused")
                self._listening.refuse(peer, None)
                continue
            yield from self._hear(peer, kind, str(message.numbers["name"]), message.numbers)

    def _hear(self, peer: bytes, kind: str, name: str, numbers: Any) -> Iterator[str]:
        one = self._watched[name]
        if numbers.get("number") != one.number:
            return  # It was lost since.
        one.heard = time.monotonic()
        if one.peer != peer:
            # It has begun, or its connection was lost and made again.
            one.peer = peer
            for node in one.process.inputs:
                self._say_where(peer, node)
        match kind:
            case "where":
                self._say_where(peer, str(numbers["node"]))
            case "ready":
                if one.lost is not None:
                    one.metrics.recover_s, one.lost = one.heard - one.lost, None
                if numbers["address"] is not None:
                    self.tell(name, str(numbers["address"]))
                    yield name
            case "beat":
                for part in fields(NodeMetrics):
                    counted_here = part.name in ("replays", "recover_s")
                    if not counted_here and part.name in numbers["metrics"]:
                        setattr(one.metrics, part.name, numbers["metrics"][part.name])
            case "done":
                one.done = True
            case "failed":
                raise failure_of(f"operator '{name}'", numbers)

    def _hear_machine(self, peer: bytes, message: State) -> None:
        """Hear which processes another machine runs, and tell it which it is to run."""
        numbers = message.numbers
        name, session = str(numbers.get("machine")), integer(numbers, "session", NATURAL)
        one = self._machines.get(name)
        if not isinstance(one, RemoteMachine):
            self._refuse(peer, f"machine '{name}'", "the graph has no such machine")
        elif numbers.get("graph") != self._identity:
            self._refuse(peer, f"machine '{name}'", "it has another graph")
        elif session < one.session:
            self._refuse(peer, f"machine '{name}'", "another process is this machine now")
        elif "message" in numbers:
            raise failure_of(f"machine '{name}'", numbers)
        else:
            if session > one.session:
                if one.is_here:
                    self._lose_machine(name)
                one.session = session
            if not one.is_here:
                _LOG.warning("machine '%s' is here", name)
                for watched in self._watched.values():
                    if watched.machine is one:
                        watched.heard = time.monotonic()
            one.is_here = True
            one.hear(peer, numbers["states"])
            self._order(one)

    def _order(self, one: RemoteMachine) -> None:
        """Tell a machine what it is to run."""
        if one.peer is not None:
            self.socket.send_multipart([one.peer, one.orders()])

    def _refuse(self, peer: bytes, who: str, why: str) -> None:
        _LOG.warning("%s was refused: %s", who, why)
        self._listening.refuse(peer, why)

    def _tell_missed(self, now: float) -> None:
        """Say once which machines are waited for."""
        if now > self._missed_at:
            self._missed_at = float("inf")
            for name, one in self._others():
                if not one.is_here:
                    _LOG.warning("machine '%s' is not here, so its operators wait for it", name)

    def _lose_machine(self, name: str) -> None:
        """Start all processes of a machine again, once it is there."""
        for one in self._watched.values():
            if one.process.machine == name:
                self._start_again(one)

    def _lose(self, name: str, one: _WatchedProcess, hint: str) -> None:
        """Start a process again, if it has come any further."""
        if one.metrics.events > one.reached:
            one.reached, one.attempts = one.metrics.events, 0
        one.attempts += 1
        if one.attempts > _ATTEMPTS:
            raise InstanceError(
                f"operator '{name}' was lost {one.attempts} times without coming any further",
                detail=None if one.code is None else f"its exit code is {one.code}",
                hint=hint,
            )
        self._start_again(one)

    def _start_again(self, one: _WatchedProcess) -> None:
        now, name = time.monotonic(), one.process.name
        one.number, one.heard, one.peer, one.lost = one.number + 1, now, None, now
        one.metrics.replays += 1
        one.metrics.saves = 0
        self.addresses.pop(name, None)
        one.machine.start(name, one.number)

    def _say_where(self, peer: bytes, node: str) -> None:
        if node in self.addresses:
            self._send(peer, "peer", node=node, address=self.addresses[node])

    def _send(self, peer: bytes, kind: str, **numbers: Any) -> None:
        self.socket.send_multipart([peer, write(kind, **numbers)])
