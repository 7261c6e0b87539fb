"""The process of an operator of a graph: it takes events, gives matches, and saves no state.

When it starts it asks its predecessors for backups. With one it waits for the events that the
newest says it needs, is rebuilt, and goes on; without one it begins. Only then it says where it can
be read, so that a reader finds all that it may ask for.

What its readers have acknowledged it tells its predecessors by savepoints, with the backups of all
who read it. Its heart beats in the loop that does the work, so one that is stuck is silent.
Paper: Lima et al., figures 4, 6 and 7.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Final

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.message import (
    EventsArrived,
    RowsAcknowledged,
    SourceEnded,
    Stimulus,
    WatermarkArrived,
)
from outpace.engine.operator import matches_of
from outpace.engine.recover.graph_operator import CountedOperator
from outpace.engine.recover.recoverable import savepoint_of
from outpace.engine.state import ANY, NATURAL, State, integer
from outpace.hosts.graph.backup import Backup, keep_newest
from outpace.hosts.graph.graph import BoundNode
from outpace.hosts.graph.inlet import Inlet
from outpace.hosts.graph.intake import LinkIntake
from outpace.hosts.graph.links import Secret
from outpace.hosts.graph.member import Member
from outpace.hosts.graph.message import read_backups, read_events, write_backups
from outpace.hosts.graph.metrics import NodeMetrics
from outpace.hosts.graph.outlet import Outlet, OutputQueue
from outpace.hosts.graph.placement import Address

#: A savepoint is given when something was acknowledged and so many seconds have passed, or when so
#: many events have come.
SAVE_S: Final = 0.1
SAVE_EVENTS: Final = 1 << 14
#: The next savepoint is not given before so many times what the last one took, so that they cost
#: little.
_SAVE_TIMES: Final = 50


@dataclass(frozen=True)
class OperatorReader:
    """Who reads an operator.

    Parameters
    ----------
    name
        Its name.
    columns
        The columns that it reads; None: all.
    asks_time
        Whether it puts events of several inputs in order, and so waits for promises.
    """

    name: str
    columns: tuple[str, ...] | None
    asks_time: bool


@dataclass(frozen=True)
class OperatorSetup:
    """What the process of an operator is started with.

    Parameters
    ----------
    node
        The operator.
    readers
        Who reads it.
    followers
        The names of all operators that its matches come to, whatever the way.
    queue_events
        How many events are on their way to each at most.
    address
        Where it listens.
    """

    node: BoundNode
    readers: tuple[OperatorReader, ...]
    followers: frozenset[str]
    queue_events: int
    address: Address


def run_operator(
    setup: OperatorSetup, monitor: str, secret: Secret, number: int, parent: Connection
) -> None:
    """Work until the monitor says that all is done; the body of the process.

    Parameters
    ----------
    setup
        The operator.
    monitor, secret
        The address of the monitor, and what those who belong to the run know.
    number
        How often the operator was started before.
    parent
        A pipe that nothing is sent through: its other end closes when the parent is gone.
    """
    member = Member(setup.node.name, monitor, secret, number, parent)
    with member.telling():
        _OperatorLoop(setup, member).work()


class _OperatorLoop:
    """The loop of the process."""

    def __init__(self, setup: OperatorSetup, member: Member) -> None:
        self._setup, self._member = setup, member
        node = setup.node
        self._node = node
        self._operator = CountedOperator(node.spec)
        #: What comes over the links, by predecessor, and whether it is still to be rebuilt.
        self._intakes: dict[str, LinkIntake] = {}
        self._collecting = False
        self._inlets = {
            one: Inlet(member.links, one, node.name, member.number) for one in node.inputs
        }
        #: Who has said which backups it keeps, before there is anything else.
        self._welcomed: set[str] = set()
        self._backups: dict[str, Backup] = {}
        self._early: list[tuple[str, str, State]] = []
        self._outlet: Outlet | None = None
        self._metrics = NodeMetrics()
        self._saved_at, self._since, self._save_s = time.monotonic(), 0, 0.0
        self._unsaved = False

    def work(self) -> None:
        """Work until all is done."""
        while not self._member.stopped:
            self._turn()
            if self._member.due:
                self._member.beat(asdict(self._counted()))
        self._member.leave(asdict(self._counted()))

    def _turn(self) -> None:
        outlet = self._outlet
        open_now = outlet is None or all(one.has_room for one in outlet.queues.values())
        sockets = [one.socket for one in self._inlets.values() if open_now and one.socket]
        if outlet is not None:
            sockets.append(outlet.socket)
        self._member.wait(sockets, SAVE_S)
        for name, address in self._member.peers():
            intake = self._intakes.get(name)
            self._inlets[name].connect(address, None if intake is None else intake.wanted)
        for name, inlet in self._inlets.items():
            if inlet.asks():
                self._member.ask(name)
        if open_now:
            for name, inlet in self._inlets.items():
                for kind, message in inlet.receive():
                    self._hear(name, kind, message)
        if self._intakes:
            self._go_on()
        if outlet is not None:
            outlet.receive()
            self._save(outlet)
            outlet.send()

    def _hear(self, name: str, kind: str, message: State) -> None:
        """Take what a predecessor says."""
        if kind == "welcome":
            if not self._intakes:
                own = {self._node.name, *self._setup.followers}
                kept = (one for one in read_backups(message) if one.operator in own)
                keep_newest(self._backups, kept)
            self._welcomed.add(name)
            self._unsaved = True
            if not self._intakes and len(self._welcomed) == len(self._inlets):
                self._begin()
            return
        if not self._intakes:
            self._early.append((name, kind, message))
            return
        intake = self._intakes[name]
        match kind:
            case "events":
                intake.take(*read_events(message))
            case "promise":
                intake.promise = integer(message.numbers, "time", ANY)
            case "end":
                intake.end(integer(message.numbers, "count", NATURAL))

    def _go_on(self) -> None:
        """Let the operator take what has come, or first stand where it stood."""
        if self._collecting and all(one.collected for one in self._intakes.values()):
            self._stand()
        if not self._collecting:
            for name, intake in self._intakes.items():
                if not self._operator.front.ended:
                    self._take(self._node.source(name), intake)
            if all(one.ended for one in self._intakes.values()):
                self._end()
        order = self._operator.front.intake.order
        for name, intake in self._intakes.items():
            source = self._node.source(name)
            waits = self._node.waits and not self._collecting and source is not None
            self._inlets[name].taken(intake.next - (order.held_back(name) if waits else 0))

    def _stand(self) -> None:
        """Stand where the newest backup was made."""
        backup, node = self._backups[self._node.name], self._node
        events = {
            node.source(name): intake.stand(node.schema) for name, intake in self._intakes.items()
        }
        found = self._operator.stand(backup.savepoint, events, backup.settled)
        self._collecting = False
        self._open(backup.settled, found)

    def _take(self, source: str | None, intake: LinkIntake) -> None:
        """Let the operator take what came over a link."""
        for rows in intake.pop():
            self._step(EventsArrived(rows, source))
            self._since += rows.num_rows
        if source is None:
            return
        if intake.promise != NO_TIME and self._node.spec.disorder is None:
            self._step(WatermarkArrived(intake.promise, source))
            intake.promise = int(NO_TIME)
        if intake.ended and source not in self._operator.front.intake.order.ended:
            self._step(SourceEnded(source))

    def _end(self) -> None:
        """Let the operator know that all has come, and readers when all has been given."""
        assert self._outlet is not None
        if not self._operator.front.ended:
            self._step(SourceEnded())
        for queue in self._outlet.queues.values():
            queue.end()

    def _step(self, stimulus: Stimulus) -> None:
        self._give(matches_of(self._operator.step(stimulus)))
        asking = [one.name for one in self._setup.readers if one.asks_time]
        if asking and (own_promise := self._operator.promise) != NO_TIME:
            assert self._outlet is not None
            for name in asking:
                self._outlet.queues[self._node.name, name].promise(own_promise)

    def _give(self, matches: pa.Table) -> None:
        assert self._outlet is not None
        for queue in self._outlet.queues.values():
            queue.append(matches)

    def _begin(self) -> None:
        """Begin, or wait for what the newest backup needs."""
        backup = self._backups.get(self._node.name)
        if backup is not None:
            self._operator.check(backup.savepoint)
            self._metrics.skipped = backup.skipped
        for one in self._inlets:
            self._intakes[one] = LinkIntake(one, None if backup is None else backup.inputs[one])
        self._collecting = backup is not None
        if backup is None:
            self._open(0, None)
        early, self._early = self._early, []
        for name, kind, message in early:
            self._hear(name, kind, message)

    def _open(self, settled: int, matches: pa.Table | None) -> None:
        """Let others read from here on."""
        queues = {
            (self._node.name, one.name): OutputQueue(one.columns, self._setup.queue_events, settled)
            for one in self._setup.readers
        }
        self._outlet = Outlet(self._member.links, self._setup.address, queues)
        if matches is not None:
            self._give(matches)
        self._backups.pop(self._node.name, None)
        self._outlet.keep(self._backups.values())
        self._member.ready(self._outlet.address)

    def _save(self, outlet: Outlet) -> None:
        """Give a savepoint to all predecessors, where it is time for one."""
        acknowledged = min(one.acknowledged for one in outlet.queues.values())
        now = time.monotonic()
        news = acknowledged > self._operator.settled or self._unsaved
        waited = now - self._saved_at
        due = self._since >= SAVE_EVENTS or (news and waited >= SAVE_S)
        if not due or waited < _SAVE_TIMES * self._save_s:
            return
        savepoint = savepoint_of(self._operator.step(RowsAcknowledged(acknowledged)))
        skip = savepoint.skip
        self._metrics.skipped += int((skip[:, 1] - skip[:, 0] + 1).sum())
        needed = self._operator.needed_by_source(savepoint)
        inputs = {name: needed[self._node.source(name)] for name in self._inlets}
        settled, skipped = self._operator.settled, self._metrics.skipped
        own = Backup(self._node.name, savepoint, settled, inputs, skipped)
        message = write_backups([own, *outlet.backups.values()])
        for inlet in self._inlets.values():
            inlet.send("saved", [message])
        self._saved_at, self._since, self._unsaved = time.monotonic(), 0, False
        self._save_s = self._saved_at - now
        self._metrics.saves += 1

    def _counted(self) -> NodeMetrics:
        metrics = self._metrics
        metrics.matches = self._operator.came_out
        metrics.savepoint_age_s = time.monotonic() - self._saved_at
        metrics.events = self._operator.came
        metrics.doubles = sum(one.doubles for one in self._intakes.values())
        if self._outlet is not None:
            queues = self._outlet.queues.values()
            metrics.retained_events = sum(len(one.log) for one in queues)
            metrics.retained_bytes = sum(one.log.nbytes for one in queues)
            metrics.doubles += sum(one.doubles for one in queues)
            metrics.refused = self._outlet.refused
        return metrics
