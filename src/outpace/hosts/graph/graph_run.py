"""The run of a graph: its sources are read here, its matches come out here, its monitor is here.

Sources have output queues as operators do, so that what operators need again is retained here.
Whatever ends a run, an error in a source, in an operator or here, ends its processes.

Memory: what is retained of the sources, and a few batches.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict
from typing import Final

import pyarrow as pa
import zmq

from outpace.engine.rows.times import as_integer
from outpace.hosts.graph.folder import GraphFolder
from outpace.hosts.graph.graph import SINK_OF, Graph, bind
from outpace.hosts.graph.inlet import Inlet, TakenMatches
from outpace.hosts.graph.keys import read_keys
from outpace.hosts.graph.links import Links, Secret
from outpace.hosts.graph.machine import Machine, RemoteMachine, processes_of
from outpace.hosts.graph.member import BEAT_S
from outpace.hosts.graph.message import SINK
from outpace.hosts.graph.metrics import GraphMetrics
from outpace.hosts.graph.monitor import Monitor
from outpace.hosts.graph.outlet import MESSAGE_EVENTS, Outlet, OutputQueue
from outpace.hosts.graph.sink import make_log
from outpace.hosts.processes.reader import Item, SourceEnd, SourceReader
from outpace.hosts.run_watch import WatchedRun
from outpace.ingest.source import Heartbeat

#: The longest wait for anything.
_TURN_S: Final = 0.1


class GraphRun(WatchedRun):
    """A graph that runs; see `outpace.graph`.

    Parameters
    ----------
    graph
        The graph. It runs while matches are asked for.
    folder
        Where the newest savepoints are; see `Graph.run`.

    Examples
    --------
    >>> import outpace as op
    >>> falls = (op.Query("falls").order_by("ts").pattern("A B").define(B="close < A.close")
    ...          .measures(at="B.ts", low="B.close"))
    >>> lower = (op.Query("lower").order_by("at").pattern("A B").define(B="low < A.low")
    ...          .measures(at="B.at"))
    >>> ticks = op.sources.stock_events(1000)
    >>> with op.graph(ticks, {"falls": falls, "alarm": lower.of("falls")}).run() as run:
    ...     found = run.tables()["alarm"]
    >>> found.equals(op.match(op.match(ticks.table(), falls), lower))
    True
    """

    def __init__(self, graph: Graph, folder: str | os.PathLike[str] | None = None) -> None:
        self._graph, place = graph, graph.placement
        key = None if place.keys is None else read_keys(place.keys)
        self._links = Links(Secret(secrets.token_hex(16), key))
        self._folder = None if folder is None else GraphFolder(folder, graph)
        self._metrics = GraphMetrics()
        self._monitor: Monitor | None = None
        self._outlet: Outlet | None = None
        self._taken: dict[str, TakenMatches] = {}
        self._called: dict[str, Callable[[pa.Table], None]] = {}
        self._logs: dict[str, str] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self._ended: set[str] = set()
        self._counted_at = 0.0
        self._tables = self._run()

    def __repr__(self) -> str:
        return f"run of {self._graph!r}"

    def __iter__(self) -> Iterator[tuple[str, pa.Table]]:
        return self

    def __next__(self) -> tuple[str, pa.Table]:
        return next(self._tables)

    def __enter__(self) -> GraphRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; what has not come out does not."""
        self._tables.close()
        if self._folder is not None:
            self._folder.close()
        self._links.close()

    def tables(self) -> dict[str, pa.Table]:
        """Run to the end, and return all matches that no sink takes, by operator."""
        found: dict[str, list[pa.Table]] = {}
        for name, table in self:
            found.setdefault(name, []).append(table)
        for name, sink in self._graph.sinks.items():
            if sink is None and name in self._schemas:
                found.setdefault(name, []).append(self._schemas[name].empty_table())
        return {name: pa.concat_tables(tables) for name, tables in found.items()}

    @property
    def metrics(self) -> GraphMetrics:
        """What is counted of the operators and of what is retained, while the graph runs."""
        return self._metrics

    @property
    def _name(self) -> str:
        return ", ".join(self._graph.nodes)

    def _counted(self) -> dict[str, dict[str, float]]:
        """Return what is counted of operators, and of the sources."""
        metrics = self._metrics
        retained = {
            "retained_events": metrics.retained_events,
            "retained_bytes": metrics.retained_bytes,
        }
        known = {
            name: asdict(one) | {"skipped_share": one.skipped_share}
            for name, one in list(metrics.operators.items())
        }
        return {"sources": retained, **known}

    @property
    def processes(self) -> dict[str, int]:
        """The identifiers of the processes, by operator; that of a sink is `sink of` its."""
        return {} if self._monitor is None else self._monitor.pids

    def _run(self) -> Generator[tuple[str, pa.Table], None, None]:
        reader = SourceReader(self._graph.sources, MESSAGE_EVENTS)
        try:
            self._start(self._begin(reader))
            while not self._is_done():
                yield from self._turn(reader)
            self._count()
        finally:
            reader.stop()
            if self._monitor is not None:
                self._monitor.close()
            for one in self._taken.values():
                one.inlet.close()
            if self._outlet is not None:
                self._outlet.close()
            if self._folder is not None:
                self._folder.close()

    def _begin(self, reader: SourceReader) -> dict[str, pa.Schema]:
        """Wait for the columns of all sources, and return them; what has ended has none."""
        schemas: dict[str, pa.Schema] = {}
        waiting = {one.id for one in self._graph.sources}
        while waiting:
            reader.listen()
            for source in sorted(waiting):
                item = reader.next(source)
                while isinstance(item, Heartbeat):
                    reader.pop(source)
                    item = reader.next(source)
                if isinstance(item, pa.RecordBatch):
                    schemas[source] = item.schema
                if item is not None:
                    waiting.discard(source)
            if waiting:
                reader.wakes.poll(_TURN_S)
        return schemas

    def _start(self, schemas: dict[str, pa.Schema]) -> None:
        graph, place, links = self._graph, self._graph.placement, self._links
        bound = bind(graph, schemas)
        self._schemas = {name: one.spec.bound.output for name, one in bound.items()}
        for name, sink in graph.sinks.items():
            if name in bound and sink is not None and not callable(sink):
                old = self._folder is not None and not self._folder.is_new
                self._logs[name] = make_log(sink, self._schemas[name], name, go_on=old)
        queues = {
            (source.id, name): OutputQueue(one.columns, graph.queue_events)
            for source in graph.sources
            for name, one in bound.items()
            if source.id in one.inputs
        }
        self._outlet = Outlet(links, place.sources, queues)
        if self._folder is not None:
            self._outlet.keep(self._folder.backups.values())
        identity = graph.identity(placed=True)
        self._monitor = monitor = Monitor(links, place.monitor, graph.patience_s, identity)
        for source in graph.sources:
            monitor.tell(source.id, self._outlet.address)
        processes = processes_of(graph, bound, self._logs)
        machines: dict[str, Machine | RemoteMachine] = {
            name: RemoteMachine(links.secret.token, schemas) for name in place.machines
        }
        machines[place.first] = Machine(processes, monitor.address, links.secret)
        monitor.start(processes, machines)
        for name in bound:
            if name in graph.sinks and name not in self._logs:
                given = graph.sinks[name]
                self._taken[name] = TakenMatches(Inlet(links, name, SINK))
                if callable(given):
                    self._called[name] = given

    def _is_done(self) -> bool:
        assert self._monitor is not None
        done = [one.ended for one in self._taken.values()]
        return all(done) and all(self._monitor.is_done(f"{SINK_OF}{name}") for name in self._logs)

    def _turn(self, reader: SourceReader) -> Iterator[tuple[str, pa.Table]]:
        """Let everything go on by one turn, and yield what came out."""
        monitor, outlet = self._monitor, self._outlet
        assert monitor is not None
        assert outlet is not None
        reader.listen()
        self._read(reader, outlet)
        outlet.send()
        self._wait(reader, monitor, outlet)
        for name in monitor.turn():
            if name in self._taken:
                self._taken[name].inlet.connect(monitor.addresses[name], self._taken[name].stop)
        for name, one in self._taken.items():
            if one.inlet.asks() and name in monitor.addresses:
                one.inlet.connect(monitor.addresses[name], one.stop)
        outlet.receive()
        if time.monotonic() - self._counted_at >= BEAT_S:
            self._count()
            if self._folder is not None:
                self._folder.save(outlet.backups)
        for name, one in self._taken.items():
            for _, table in one.tables():
                if name in self._called:
                    self._called[name](table)
                else:
                    yield name, table

    def _wait(self, reader: SourceReader, monitor: Monitor, outlet: Outlet) -> None:
        """Wait until something comes from anywhere."""
        poller = zmq.Poller()
        for socket in (monitor.socket, outlet.socket):
            poller.register(socket, zmq.POLLIN)
        for one in self._taken.values():
            if one.inlet.socket is not None:
                poller.register(one.inlet.socket, zmq.POLLIN)
        for handle in (reader.wakes.fileno(), *monitor.sentinels):
            poller.register(handle, zmq.POLLIN)
        poller.poll(int(_TURN_S * 1000))

    def _read(self, reader: SourceReader, outlet: Outlet) -> None:
        """Let the queues of sources take what these have, as far as there is room."""
        for source in self._graph.sources:
            queues = [queue for key, queue in outlet.queues.items() if key[0] == source.id]
            while source.id not in self._ended and all(one.has_room for one in queues):
                item = reader.next(source.id)
                if item is None:
                    break
                rows = item.num_rows if isinstance(item, pa.RecordBatch) else 0
                reader.pop(source.id, rows)
                for queue in queues:
                    _give(queue, item, source.time)
                if isinstance(item, SourceEnd):
                    self._ended.add(source.id)
        reader.check()

    def _count(self) -> None:
        """Bring the metrics up to date."""
        self._counted_at = time.monotonic()
        assert self._monitor is not None
        assert self._outlet is not None
        queues = self._outlet.queues.values()
        self._metrics.retained_events = sum(len(one.log) for one in queues)
        self._metrics.retained_bytes = sum(one.log.nbytes for one in queues)
        self._metrics.refused = self._outlet.refused + self._monitor.refused
        for name in self._monitor.names:
            self._metrics.operators[name] = self._monitor.metrics(name)


def _give(queue: OutputQueue, item: Item, column: str) -> None:
    """Let a queue take what came of a source."""
    match item:
        case Heartbeat() if queue.log.schema is not None and column in queue.log.schema.names:
            kind = queue.log.schema.field(column).type
            queue.promise(as_integer(item.time, kind))
        case SourceEnd():
            queue.end()
        case pa.RecordBatch():
            queue.append(pa.Table.from_batches([item]))
