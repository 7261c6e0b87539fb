"""A machine of a graph beside the first: it runs the processes that the monitor asks for.

It tells the monitor again and again who it is and which processes run, and hears which are to.
Nothing that comes over the link says what a process does: that is in the graph, which is the same
on every machine; another one is refused. A machine whose monitor is gone ends its processes after
some time, and waits for the next run.
"""

from __future__ import annotations

import logging
import time
from dataclasses import astuple
from typing import Any, Final

import zmq

from outpace.engine.state import NATURAL, State, integer, reading, require
from outpace.errors import BindError, OutpaceError, StateError
from outpace.hosts.graph.graph import Graph, bind
from outpace.hosts.graph.keys import read_keys
from outpace.hosts.graph.links import LINGER_MS, Links, Secret
from outpace.hosts.graph.machine import END_S, Machine, NodeProcess, processes_of
from outpace.hosts.graph.member import BEAT_S
from outpace.hosts.graph.message import read, told_failure, write
from outpace.hosts.graph.placement import known_machine

_LOG: Final = logging.getLogger("outpace.graph")


class ServedMachine:
    """The part of a graph that runs on a machine beside the first.

    Parameters
    ----------
    graph
        The graph.
    name
        The machine.
    """

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph, self._name = graph, known_machine(name, graph.placement.machines)
        place = graph.placement
        if name == place.first:
            raise BindError(
                f"machine '{name}' has the sources and the monitor",
                hint="run the graph there: graph.run()",
            )
        self._key = None if place.keys is None else read_keys(place.keys)
        self._links = Links(Secret("", self._key))
        self._monitor = self._links.connect(str(place.monitor), again=True)
        self._identity = graph.identity(placed=True)
        self._token, self._machine = "", Machine((), str(place.monitor), Secret(""))
        self._known: dict[str, NodeProcess] = {}
        #: Tells those apart who are this machine: the last of them is.
        self._session = time.time_ns()
        self._beat_at, self._ended = 0.0, False

    def work(self) -> None:
        """Work until the run has ended."""
        _LOG.warning("machine '%s' waits for '%s'", self._name, self._graph.placement.monitor)
        try:
            while not self._ended:
                self._turn()
            self._machine.close(END_S)
            self._beat()
        except OutpaceError as error:
            self._monitor.socket.send(write("machine", **self._who, **told_failure(error)))
            raise
        finally:
            self._machine.close()
            self._monitor.close(LINGER_MS)
            self._links.close(LINGER_MS)

    @property
    def _who(self) -> dict[str, Any]:
        return {"machine": self._name, "session": self._session, "graph": self._identity}

    def _turn(self) -> None:
        poller = zmq.Poller()
        for one in (self._monitor.socket, *self._machine.sentinels):
            poller.register(one, zmq.POLLIN)
        poller.poll(int(BEAT_S * 1000))
        while self._monitor.socket.poll(0):
            self._hear(*read(self._monitor.socket.recv()))
        if self._monitor.lost_for > self._graph.patience_s and self._token:
            _LOG.warning("the monitor is gone, so machine '%s' waits for another", self._name)
            self._leave()
        if time.monotonic() - self._beat_at >= BEAT_S and not self._monitor.lost_for:
            self._beat()

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        states = {name: list(astuple(one)) for name, one in self._machine.states.items()}
        self._monitor.socket.send(write("machine", **self._who, states=states))

    def _hear(self, kind: str, message: State) -> None:
        match kind:
            case "orders":
                self._obey(message)
            case "stop":
                self._ended = True
            case "refused":
                raise StateError(
                    f"the graph on '{self._graph.placement.monitor}' refused machine "
                    f"'{self._name}'",
                    detail=str(message.numbers["why"]),
                    hint="run the same file on all machines, each once",
                )

    def _obey(self, message: State) -> None:
        """Run the processes that are asked for."""
        token = str(message.numbers["token"])
        if token != self._token:
            if self._token:
                self._leave()
            self._join(token, message)
        states = self._machine.states
        numbers = message.numbers["numbers"]
        for name in numbers:
            require(name in self._known, "there is no such process here")
            number = integer(numbers, name, NATURAL)
            if name not in states or states[name].number < number:
                self._machine.start(name, number)

    def _join(self, token: str, message: State) -> None:
        """Belong to a run: its columns say what the operators are made from."""
        with reading():
            sources = message.numbers["sources"]
            schemas = {
                str(name): table.schema for name, table in zip(sources, message.tables, strict=True)
            }
        processes = processes_of(self._graph, bind(self._graph, schemas), {})
        here = [one for one in processes if one.machine == self._name]
        self._known = {one.name: one for one in here}
        secret, monitor = Secret(token, self._key), str(self._graph.placement.monitor)
        self._machine, self._token = Machine(here, monitor, secret), token
        _LOG.warning("machine '%s' runs %s", self._name, ", ".join(self._known) or "nothing")

    def _leave(self) -> None:
        """End all processes of a run that nobody is there of."""
        self._machine.close()
        self._token, self._session = "", time.time_ns()
