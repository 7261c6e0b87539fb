"""The parallel operator: events in, matches out, with instances in processes of their own.

Whoever pushes waits while there is no room, and takes answers meanwhile; so memory is bounded
whatever the rates are: the slots of the ring, a fixed number of parcels for each instance, and what
front, instances and back keep.

What a query of a group does with an event is little, often less than to send it to a process. So
the operators of a group are where its events are ordered, and no process is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from multiprocessing.connection import Connection, wait
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.back import Back, BackCounters
from outpace.engine.emission import ChangeCounters
from outpace.engine.front import Front
from outpace.engine.group import GroupOperator
from outpace.engine.group_spec import GroupSpec
from outpace.engine.match.choose import choose_matcher
from outpace.engine.message import (
    Answer,
    Aside,
    Deliver,
    Delivered,
    Emit,
    HostLoad,
    Instruction,
    SetAside,
    Stimulus,
)
from outpace.engine.operator import WholeOperator, emit_of, joined_emit
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.speculate.recall import is_worth_recalling
from outpace.engine.wire import event_ids, pack_events, read_answer, write_delivery
from outpace.hosts.background import compile_when_loaded, compiled_soon
from outpace.hosts.clock import BusyMeter
from outpace.hosts.processes.processes import Processes, process_context
from outpace.hosts.processes.ring import Ring, RingSlots, largest_block
from outpace.hosts.processes.worker import Setup, WorkItem, WorkResult, sent_rows
from outpace.pattern.group import QueryGroup

#: The shared memory of a run, in bytes.
MEMORY: Final = 1 << 27
#: Events of a block, if they fit into a slot.
BLOCK_ROWS: Final = 1 << 17
#: Slots for each instance, half of which it may hold; and the least number of slots.
_SLOTS_EACH: Final = 4
_SLOTS_LEAST: Final = 16
#: Parcels that an instance may have without an answer.
_PARCELS: Final = 64
#: The longest wait for an answer, after which whoever pushes can see what else there is to do.
_TURN_S: Final = 0.1


class ParallelOperator:
    """A query, matched by processes that share its windows, or its partitions without any.

    Parameters
    ----------
    spec
        The operator as if it were in one place; its query says how many instances there are.
    memory
        Bytes of shared memory.
    watch
        Told of every answer: the instance, what it did, and the answer.
    aside
        Told of the events that are set aside.
    make
        What the operator is: that of a run, or one that is recovered by a replay.
    """

    def __init__(
        self,
        spec: OperatorSpec,
        *,
        memory: int = MEMORY,
        watch: Callable[[int, WorkResult, Answer], None] = lambda *answered: None,
        aside: Callable[[SetAside], None] = lambda aside: None,
        make: type[WholeOperator] = WholeOperator,
    ) -> None:
        # Compiled code is waited for: instances that begin without it would be slow for long.
        spec = replace(spec.shared, choose=choose_matcher)
        self.operator = make(spec, block_size=self._block_size)
        self._spec = spec = self.operator.spec
        assert spec.instances is not None
        count = spec.instances
        if spec.matcher is not None:
            # Compiled here, once for all instances, which find it on disk.
            compile_when_loaded(spec.matcher)
        slots = max(_SLOTS_LEAST, _SLOTS_EACH * count)
        context = process_context()
        self._watch, self._aside = watch, aside
        #: Parcels of each instance without an answer.
        self._parcels = [0] * count
        #: What each instance was sent, where it may be sent it again.
        self._sent = [sent_rows(spec) for _ in range(count)]
        #: How busy each instance is.
        self._meters = [BusyMeter() for _ in range(count)]
        self.bytes_written = 0
        self._slots = RingSlots(slots)
        self._ring = Ring(context, slots, memory // slots)
        # A scheduler decides here, so it need not be something that another process can import.
        share = slots // (2 * count)
        setup = Setup(replace(spec, query=spec.query.instances(1)), self._ring, share)
        try:
            self._processes = Processes(context, [setup] * count)
        except BaseException:
            self._ring.close()
            raise

    def __enter__(self) -> ParallelOperator:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes and give the shared memory back."""
        self._processes.close()
        self._ring.close()

    @property
    def front(self) -> Front:
        """What knows of sources and of time."""
        return self.operator.front

    @property
    def back(self) -> Back:
        """What knows of the answers that are due."""
        return self.operator.back

    @property
    def room(self) -> bool:
        """Whether the next events can be sent without waiting."""
        return bool(self._slots.free) and max(self._parcels) < _PARCELS

    @property
    def changes(self) -> ChangeCounters:
        """What became of matches that may be taken back."""
        return self.operator.changes

    def load(self) -> HostLoad | None:
        """Return the load of the busiest instance in the last stretch of time."""
        loads = [load for meter in self._meters if (load := meter.load()) is not None]
        return max(loads, key=lambda one: one.busy, default=None)

    def push(self, stimulus: Stimulus) -> Iterator[pa.Table]:
        """Let the operator take what happened, and yield matches as they become complete."""
        while self.back.goes_back:
            # What is wrong is corrected before more comes that may be late; instances do that while
            # the next events are read.
            yield from self.receive(_TURN_S)
        for one in self.carry(self.operator.step(stimulus)):
            match one:
                case SetAside():
                    self._aside(one)
                case Emit():
                    yield one.matches.table

    def carry(self, instructions: Sequence[Instruction]) -> Iterator[Instruction]:
        """Send deliveries as soon as there is room for them, and yield all else as it comes."""
        yield from (one for one in instructions if not isinstance(one, Deliver))
        deliveries = (one for one in instructions if isinstance(one, Deliver))
        for _, block in groupby(deliveries, key=lambda one: id(one.events)):
            while not self.room:
                yield from self._receive(_TURN_S)
            self._send([*block])
        yield from self._receive(0)

    def carry_all(self, instructions: Sequence[Instruction]) -> list[Instruction]:
        """Send deliveries, wait for all answers, and return all else, with one `Emit` behind."""
        given = [*self.carry(instructions)]
        while self.back.is_waiting:
            given += self._receive(None)
        emits = [one for one in given if isinstance(one, Emit)]
        return [*(one for one in given if not isinstance(one, Emit)), joined_emit(emits)]

    def receive(self, timeout: float | None, also: Sequence[Connection] = ()) -> list[pa.Table]:
        """Take the answers that there are, or wait for one, and return what becomes complete.

        See `Processes.receive`.
        """
        return [emit.matches.table for emit in self._receive(timeout, also)]

    def rest(self) -> Iterator[pa.Table]:
        """Wait for all answers, after the end of the input, and yield the rest of the matches."""
        while not self.back.settled:
            yield from self.receive(None)

    def _receive(self, timeout: float | None, also: Sequence[Connection] = ()) -> list[Emit]:
        emits = []
        for instance, done in self._processes.receive(timeout, also):
            answer = read_answer(pa.py_buffer(done.answer), self._spec.found_columns)
            self._parcels[instance] -= 1
            emits.append(emit_of(self.operator.step(Delivered(instance, answer))))
            self._meters[instance].add(done.seconds, done.seconds)
            for slot in done.released:
                self._slots.release(slot)
            self._watch(instance, done, answer)
        return emits

    def _block_size(self, rows: pa.Table) -> int:
        return largest_block(self._ring, rows.slice(0, BLOCK_ROWS).select(self._spec.kept.names))

    def _recalled(self, delivery: Deliver) -> bytes | None:
        """Return a delivery without the rows that its instance has; None where it has none."""
        sent = self._sent[delivery.instance]
        if sent is None or delivery.standing is None:
            return None
        sent.stand(delivery.standing)
        ids = event_ids(delivery.own_events) if delivery.size else np.zeros(0, np.int64)
        known = int(np.count_nonzero(sent.known(ids)))
        some = is_worth_recalling(known, len(ids) - known)
        data = write_delivery(delivery, self._spec, sent=sent) if some else None
        sent.add(ids)
        return data

    def _send(self, deliveries: Sequence[Deliver]) -> None:
        """Send the deliveries of one block, whose events are written once."""
        # An instance that is given windows alone reads no slot. Without windows all read what came,
        # as its times decide in their partitions.
        apart = self._spec.windows is not None
        reads = [
            delivery.size > 0 if apart else len(delivery.events.arrival) > 0
            for delivery in deliveries
        ]
        recalled = [self._recalled(delivery) for delivery in deliveries]
        reads = [read and own is None for read, own in zip(reads, recalled, strict=True)]
        readers = sum(reads)
        slot, size = -1, 0
        if readers:
            slot = self._slots.lease(readers)
            block = pack_events(deliveries[0].events, self._spec.kept.names)
            size = self._ring.write(slot, block)
            self.bytes_written += size
        for delivery, read, own in zip(deliveries, reads, recalled, strict=True):
            at = slot if read else -1
            data = write_delivery(delivery, self._spec, apart=True) if own is None else own
            work = WorkItem(at, size, data)
            self.bytes_written += 0 if own is None else len(own)
            self._parcels[delivery.instance] += 1
            self._processes.send(delivery.instance, work)


#: What queries of a group found, by their names, without those that found nothing.
Found = dict[str, pa.Table]


class NothingBehind:
    """What is asked instead of a merger."""

    settled = True

    def counters(self) -> BackCounters:
        """Return that nothing waits."""
        return BackCounters(0, 0)


class AnsweredAtOnce:
    """An operator of which each step is complete, asked as a `ParallelOperator` is."""

    #: There is always room, and nothing waits.
    room = True
    back = NothingBehind()

    def receive(self, timeout: float | None, also: Sequence[Connection] = ()) -> list[Found]:
        """Wait for one of some connections; no answer comes, and nothing becomes complete."""
        wait(list(also), timeout)
        return []


class OperatorsInProgram(AnsweredAtOnce):
    """The operators of a group, in this program.

    Parameters
    ----------
    group, schema, sources
        The queries, the columns of events, and the identifiers of several sources.
    aside
        Told of the events that are set aside.
    count
        Told how many events are set aside, each once, and why.
    """

    #: Nothing lies in shared memory.
    bytes_written = 0

    def __init__(
        self,
        group: QueryGroup,
        schema: pa.Schema,
        sources: tuple[str, ...] | None,
        aside: Callable[[SetAside], None],
        count: Callable[[Aside, int], None],
    ) -> None:
        spec = GroupSpec(
            group.queries, schema, sources=sources, choose=compiled_soon, together=True
        )
        self.front = GroupOperator(spec)
        self._aside, self._count = aside, count
        self._meter = BusyMeter()

    @property
    def changes(self) -> ChangeCounters:
        """What became of matches that may be taken back."""
        return self.front.changes

    def load(self) -> HostLoad | None:
        """Return how busy the queries were for the last stretch of time."""
        return self._meter.load()

    def push(self, stimulus: Stimulus) -> Iterator[Found]:
        """Let all queries take what happened, and yield what they find."""
        counted, found = self.front.aside, dict[str, pa.Table]()
        with self._meter.work():
            given = self.front.step(stimulus)
        for kind, count in (self.front.aside - counted).items():
            self._count(kind, count)
        for one in given:
            match one:
                case SetAside():
                    self._aside(one)
                case Emit() if one.matches.table.num_rows:
                    found[one.query] = one.matches.table
        yield found

    def close(self) -> None:
        """Nothing is open."""
