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
from outpace.engine.message import EventsArrived, RowsAcknowledged, SourceEnded, Stimulus
from outpace.engine.operator import matches_of
from outpace.engine.order.source_merge import ticks_of
from outpace.engine.recover.counted import CountedOperator, watermark_of
from outpace.engine.recover.recoverable import savepoint_of
from outpace.engine.state import ANY, NATURAL, State, integer
from outpace.hosts.graph.backup import Backup, keep_newest
from outpace.hosts.graph.graph import BoundNode
from outpace.hosts.graph.inlet import Inlet
from outpace.hosts.graph.intake import InputMerge
from outpace.hosts.graph.member import Member
from outpace.hosts.graph.message import read_backups, read_events, write_backups
from outpace.hosts.graph.metrics import NodeMetrics
from outpace.hosts.graph.outlet import Outlet, OutputQueue

#: A savepoint is given when something was acknowledged and so many seconds have passed, or when so
#: many events have come.
SAVE_S: Final = 0.1
SAVE_EVENTS: Final = 1 << 14
#: The next savepoint is not given before so many times what the last one took, so that they cost
#: little.
_SAVE_TIMES: Final = 50
#: So many events are one step.
_STEP_EVENTS: Final = 1 << 14


@dataclass(frozen=True)
class Reader:
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
    """

    node: BoundNode
    readers: tuple[Reader, ...]
    followers: frozenset[str]
    queue_events: int


def run_operator(
    setup: OperatorSetup, monitor: str, token: str, number: int, parent: Connection
) -> None:
    """Work until the monitor says that all is done; the body of the process.

    Parameters
    ----------
    setup
        The operator.
    monitor, token
        The address of the monitor, and the secret of the run.
    number
        How often the operator was started before.
    parent
        A pipe that nothing is sent through: its other end closes when the parent is gone.
    """
    member = Member(setup.node.name, monitor, token, number, parent)
    with member.telling():
        _Operator(setup, member, token).work()


class _Operator:
    """The loop of the process."""

    def __init__(self, setup: OperatorSetup, member: Member, token: str) -> None:
        self._setup, self._member, self._token = setup, member, token
        node = setup.node
        self._node = node
        self._operator = CountedOperator(node.spec)
        self._intake: InputMerge | None = None
        self._inlets = {
            one.name: Inlet(member.context, token, one.name, node.name, member.number)
            for one in node.inputs
        }
        #: Who has said which backups it keeps, before there is anything else.
        self._welcomed: set[str] = set()
        self._backups: dict[str, Backup] = {}
        self._early: list[tuple[str, str, State]] = []
        self._outlet: Outlet | None = None
        self._metrics = NodeMetrics()
        self._saved_at, self._since, self._save_s = time.monotonic(), 0, 0.0
        self._unsaved = False
        self._watermark = int(NO_TIME)

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
            wanted = None if self._intake is None else self._intake.wanted(name)
            self._inlets[name].connect(address, wanted)
        if open_now:
            for name, inlet in self._inlets.items():
                for kind, message in inlet.receive():
                    self._hear(name, kind, message)
        if self._intake is not None:
            self._go_on(self._intake)
        if outlet is not None:
            outlet.receive()
            self._save(outlet)
            outlet.send()

    def _hear(self, name: str, kind: str, message: State) -> None:
        """Take what a predecessor says."""
        if kind == "welcome":
            if self._intake is None:
                own = {self._node.name, *self._setup.followers}
                kept = (one for one in read_backups(message) if one.operator in own)
                keep_newest(self._backups, kept)
            self._welcomed.add(name)
            self._unsaved = True
            if self._intake is None and len(self._welcomed) == len(self._inlets):
                self._begin()
            return
        if self._intake is None:
            self._early.append((name, kind, message))
            return
        match kind:
            case "events":
                self._intake.take(name, *read_events(message))
            case "promise":
                self._intake.promise(name, integer(message.numbers, "time", ANY))
            case "end":
                self._intake.end(name, integer(message.numbers, "count", NATURAL))
        self._inlets[name].taken(self._intake.taken(name))

    def _go_on(self, intake: InputMerge) -> None:
        """Match what is ready."""
        if intake.collecting:
            if not intake.collected:
                return
            rows, numbers = intake.stand()
            backup = self._backups[self._node.name]
            found = self._operator.stand(backup.savepoint, rows, numbers, backup.settled)
            self._open(backup.settled, found)
        assert self._outlet is not None
        rows = intake.ready()
        for start in range(0, rows.num_rows, _STEP_EVENTS):
            self._step(EventsArrived(rows.slice(start, _STEP_EVENTS)))
        if rows.num_rows:
            self._since += rows.num_rows
            self._promise(intake)
            for name, inlet in self._inlets.items():
                inlet.taken(intake.taken(name))
        if intake.ended:
            if not self._operator.front.ended:
                self._step(SourceEnded())
            for queue in self._outlet.queues.values():
                queue.end()

    def _step(self, stimulus: Stimulus) -> None:
        instructions = self._operator.step(stimulus)
        self._watermark = watermark_of(instructions)
        self._give(matches_of(instructions))

    def _give(self, matches: pa.Table) -> None:
        assert self._outlet is not None
        for queue in self._outlet.queues.values():
            queue.append(matches)

    def _promise(self, intake: InputMerge) -> None:
        """Let readers that ask for it know how far time has come."""
        asking = [one.name for one in self._setup.readers if one.asks_time]
        if not asking:
            return
        if self._node.spec.windows is not None:
            told = intake.time_of(self._operator.first_open)
        else:
            kind = self._node.schema.field(self._node.time).type
            unknown = self._watermark == NO_TIME
            told = None if unknown else self._watermark * ticks_of(kind)
        assert self._outlet is not None
        if told is not None:
            for name in asking:
                self._outlet.queues[self._node.name, name].promise(told)

    def _begin(self) -> None:
        """Begin, or wait for what the newest backup needs."""
        backup = self._backups.get(self._node.name)
        if backup is not None:
            self._operator.check(backup.savepoint)
            self._metrics.skipped = backup.skipped
        self._intake = InputMerge(self._node, backup)
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
        self._outlet = Outlet(self._member.context, self._token, queues)
        if matches is not None:
            self._give(matches)
        self._backups.pop(self._node.name, None)
        self._outlet.keep(self._backups.values())
        self._member.ready(self._outlet.address)

    def _save(self, outlet: Outlet) -> None:
        """Give a savepoint to all predecessors, where it is time for one."""
        assert self._intake is not None
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
        needed, inputs = self._intake.save(savepoint)
        settled, skipped = self._operator.settled, self._metrics.skipped
        own = Backup(self._node.name, savepoint, settled, needed, inputs, skipped)
        told = write_backups([own, *outlet.backups.values()])
        for inlet in self._inlets.values():
            inlet.send("saved", [told])
        self._saved_at, self._since, self._unsaved = time.monotonic(), 0, False
        self._save_s = self._saved_at - now
        self._metrics.saves += 1

    def _counted(self) -> NodeMetrics:
        metrics = self._metrics
        metrics.matches = self._operator.came_out
        metrics.savepoint_age_s = time.monotonic() - self._saved_at
        if self._intake is not None:
            metrics.events, metrics.doubles = self._intake.arrived, self._intake.doubles
        if self._outlet is not None:
            queues = self._outlet.queues.values()
            metrics.retained_events = sum(len(one.log) for one in queues)
            metrics.retained_bytes = sum(one.log.nbytes for one in queues)
            metrics.doubles += sum(one.doubles for one in queues)
            metrics.refused = self._outlet.refused
        return metrics
