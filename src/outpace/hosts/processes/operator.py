"""The parallel operator: events in, matches out, with instances in processes of their own.

Whoever pushes waits while there is no room, and takes answers meanwhile; so memory is bounded
whatever the rates are: the slots of the ring, a fixed number of parcels for each instance, and what
coordinator and instances keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Final

import pyarrow as pa

from outpace.engine.event import Events
from outpace.engine.split.travel import packed
from outpace.engine.window_match.matcher import WindowMatcher
from outpace.engine.window_match.operator import make_instance
from outpace.hosts.background import compile_when_loaded
from outpace.hosts.processes.coordinator import Coordinator, Parcel
from outpace.hosts.processes.processes import Processes, process_context
from outpace.hosts.processes.ring import Ring, Slots, largest_block
from outpace.hosts.processes.worker import Done, Setup, Work
from outpace.pattern.bind.windows import bind_windows
from outpace.pattern.query import Query

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
    """A query over windows, matched by processes.

    Parameters
    ----------
    query
        A query over windows.
    schema
        The columns of its input.
    memory
        Bytes of shared memory.
    watch
        Told of every answer: the instance, the events that it answers for, and the answer.
    """

    def __init__(
        self,
        query: Query,
        schema: pa.Schema,
        *,
        memory: int = MEMORY,
        watch: Callable[[int, int, Done], None] = lambda instance, events, done: None,
    ) -> None:
        bound, instance, columns = make_instance(query, schema)
        if isinstance(instance, WindowMatcher):
            # Compiled here, once for all instances, which find it on disk.
            compile_when_loaded(instance.matcher)
        windows = bind_windows(query, schema)
        count = query.instance_count
        slots = max(_SLOTS_LEAST, _SLOTS_EACH * count)
        context = process_context()
        self.coordinator = Coordinator(query, bound, windows)
        self._columns = columns
        self._keyed = windows.keyed
        self._watch = watch
        self._slots = Slots(slots)
        self._ring = Ring(context, slots, memory // slots)
        # A scheduler decides here, so it need not be something that another process can import.
        setup = Setup(query.instances(count), schema, self._ring, slots // (2 * count))
        try:
            self._processes = Processes(context, [setup] * count)
        except BaseException:
            self._ring.close()
            raise

    def __enter__(self) -> ParallelOperator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes and give the shared memory back."""
        self._processes.close()
        self._ring.close()

    @property
    def room(self) -> bool:
        """Whether the next events can be sent without waiting."""
        return bool(self._slots.free) and max(self.coordinator.unanswered) < _PARCELS

    def push(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Take the next rows, in order; yield matches as they become complete meanwhile."""
        while rows.num_rows:
            while not self.room:
                self.receive(_TURN_S)
                yield self.coordinator.take()
            travelling = rows.slice(0, BLOCK_ROWS)
            size = largest_block(self._ring, travelling.select(self._columns))
            self._send(*self.coordinator.push(rows.slice(0, size)))
            rows = rows.slice(size)
            self.receive(0)
            yield self.coordinator.take()

    def advance(self, watermark: int) -> None:
        """Promise that no later event has a time before `watermark`."""
        self._send(None, self.coordinator.advance(watermark))

    def finish(self) -> None:
        """Say that no more events come."""
        self._send(None, self.coordinator.finish())

    def rest(self) -> Iterator[pa.Table]:
        """Wait for all answers, after the end of the input, and yield the rest of the matches."""
        while not self.coordinator.settled:
            self.receive(None)
            yield self.coordinator.take()
        yield self.coordinator.take()

    def receive(self, timeout: float | None, also: Sequence[Connection] = ()) -> None:
        """Take the answers that there are, or wait for one; see `Processes.receive`."""
        for instance, done in self._processes.receive(timeout, also):
            events = self.coordinator.receive(instance, done.answer)
            for slot in done.released:
                self._slots.release(slot)
            self._watch(instance, events, done)

    def _send(self, events: Events | None, parcels: list[Parcel]) -> None:
        readers = sum(len(parcel.ranges) > 0 for parcel in parcels)
        slot, size, first = -1, 0, 0
        if events is not None and readers:
            slot = self._slots.take(readers)
            size = self._ring.write(slot, packed(events, self._columns, keyed=self._keyed))
            first = int(events.arrival[0])
        for parcel in parcels:
            at = slot if len(parcel.ranges) else -1
            work = Work(at, size, first, parcel.ranges, parcel.split, parcel.arrived)
            self._processes.send(parcel.instance, work)
