"""The events of all predecessors in one order, numbered, and which of them are still needed.

The order is that of time, of the numbers that events have, and of the names of the predecessors. It
depends on the events alone, so that a replay numbers them as before. What was taken before is
dropped by its number.

Memory: what waits for other predecessors, and four integers for each event that is needed.
Paper: Lima et al., section II-A (there: Splitter).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.order.source_merge import SourceMerge, ticks_of
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.rearranged import as_table
from outpace.engine.rows.times import as_integers
from outpace.engine.savepoint import Savepoint
from outpace.errors import StateError
from outpace.hosts.graph.backup import Backup, NeededNumbers
from outpace.hosts.graph.graph import BoundNode

#: Columns that go through the merge beside those of events: their numbers, and whose they are.
_NUMBER: Final = "__outpace_number"
_INPUT: Final = "__outpace_input"

_UNBOUNDED: Final = 1 << 62


@dataclass
class _Collected:
    """What is to come of a predecessor before an operator can be rebuilt."""

    needed: NeededNumbers
    rows: list[pa.Table] = field(default_factory=list)
    count: int = 0


class InputMerge:
    """Takes the events of predecessors and gives them in one order.

    Parameters
    ----------
    node
        The operator.
    backup
        What it is rebuilt from; None where it begins.

    Examples
    --------
    >>> import outpace as op
    >>> from outpace.hosts.graph.graph import bind, graph
    >>> pair = op.Query("pair").order_by("ts").pattern("A B").define(B="x > A.x")
    >>> pair = pair.measures(at="B.ts")
    >>> doors = [op.sources.simple_events(3, id=name) for name in "ab"]
    >>> schema = pa.schema({"ts": pa.int64(), "x": pa.int64()})
    >>> intake = InputMerge(bind(graph(doors, {"pair": pair}), {"a": schema, "b": schema})["pair"])
    >>> intake.take("a", pa.table({"ts": [1, 4], "x": [0, 0]}), np.array([0, 1]))
    >>> intake.ready().num_rows
    0
    >>> intake.take("b", pa.table({"ts": [2], "x": [0]}), np.array([0]))
    >>> intake.ready()["ts"].to_pylist(), intake.arrived
    ([1, 2], 2)
    """

    def __init__(self, node: BoundNode, backup: Backup | None = None) -> None:
        self._node = node
        #: In the order in which events of one time and number come.
        self.names = tuple(sorted(one.name for one in node.inputs))
        self._merge: SourceMerge | None = None
        if len(self.names) > 1:
            sequence = _NUMBER if node.sequence is None else node.sequence
            self._merge = SourceMerge(
                self.names, time=node.time, sequence=sequence, capacity=_UNBOUNDED
            )
        #: How many events have been given, and came again.
        self.arrived = self.doubles = 0
        #: Behind the last event that came of each predecessor, and that was given.
        self._next = dict.fromkeys(self.names, 0)
        self._given = dict.fromkeys(self.names, 0)
        self._ends: dict[str, int] = {}
        self._finished: set[str] = set()
        self._waiting: list[pa.Table] = []
        #: Of events that are needed: number among all, predecessor, number there, time.
        self._known = np.zeros((4, 0), np.int64)
        self._fresh: list[Integers] = []
        self._last_time: int | None = None
        self._backup = backup
        self._collected: dict[str, _Collected] = {}
        #: What came of predecessors behind that, in its order.
        self._later: list[Callable[[], None]] = []
        if backup is not None:
            self._collected = {name: _Collected(backup.inputs[name]) for name in self.names}

    def wanted(self, name: str) -> int | None:
        """Return the event that is to come next of a predecessor; None: all that it retains."""
        return None if self.collecting else self._next[name]

    def taken(self, name: str) -> int:
        """Return up to which event a predecessor need not wait for this operator."""
        waits = self._node.waits and not self.collecting
        return self._given[name] if waits else self._next[name]

    @property
    def collecting(self) -> bool:
        """Whether the operator is not rebuilt yet."""
        return self._backup is not None

    @property
    def collected(self) -> bool:
        """Whether all that it is rebuilt from is here."""
        return all(one.count == len(one.needed.numbers) for one in self._collected.values())

    def take(self, name: str, rows: pa.Table, numbers: Integers) -> None:
        """Take events of a predecessor; those that were taken before are dropped."""
        low = int(np.searchsorted(numbers, self._next[name]))
        self.doubles += low
        rows, numbers = rows.slice(low), numbers[low:]
        if not len(numbers):
            return
        if self.collecting:
            self._collect(name, rows, numbers)
            return
        begin = self._next[name]
        if numbers[0] != begin or numbers[-1] != begin + len(numbers) - 1:
            raise StateError(f"events of '{name}' from {begin} on were not retained")
        self._next[name] = int(numbers[-1]) + 1
        if self._merge is None:
            self._waiting.append(self._marked(name, rows, numbers))
        else:
            self._merge.push(name, self._marked(name, rows, numbers))

    def promise(self, name: str, time: int) -> None:
        """Hear that no later event of a predecessor has a time before this."""
        if self.collecting:
            self._later.append(partial(self.promise, name, time))
        elif self._merge is not None:
            self._merge.heartbeat(name, time)

    def end(self, name: str, count: int) -> None:
        """Hear how many events a predecessor had in all."""
        taken = self._collected[name].needed.at if self.collecting else self._next[name]
        if count < taken:
            raise StateError(
                f"'{name}' has {count} events in all, of which {taken} were taken before",
                hint="sources give the same events every time a graph goes on",
            )
        self._ends[name] = count

    @property
    def ended(self) -> bool:
        """Whether all events were given."""
        return not self.collecting and all(
            self._given[name] == self._ends.get(name) for name in self.names
        )

    def ready(self) -> pa.Table:
        """Return the events that are next, in their order."""
        if self.collecting:
            return pa.table({})
        if self._merge is None:
            waiting, self._waiting = self._waiting, []
            rows = pa.concat_tables(waiting) if waiting else pa.table({})
        else:
            for name, count in self._ends.items():
                if self._next[name] == count and name not in self._finished:
                    self._merge.finish(name)
                    self._finished.add(name)
            rows = as_table(self._merge.pop().rows)
        if not rows.num_rows:
            return rows
        numbers = np.arange(self.arrived, self.arrived + rows.num_rows)
        rows = self._note(rows, numbers)
        self.arrived += rows.num_rows
        return rows

    def stand(self) -> tuple[pa.Table, Integers]:
        """Return the events that a rebuilt operator begins with, and their numbers."""
        assert self._backup is not None, "there is something to begin with"
        backup, self._backup = self._backup, None
        rows = [
            self._marked(name, pa.concat_tables(one.rows), one.needed.numbers)
            for name, one in self._collected.items()
            if one.rows
        ]
        table = pa.concat_tables(rows) if rows else self._node.schema.empty_table()
        if len(rows) > 1:
            sequence = _NUMBER if self._node.sequence is None else self._node.sequence
            keys = [self._node.time, sequence, _INPUT]
            table = table.sort_by([(key, "ascending") for key in keys])
        numbers = backup.needed.numbers
        if rows:
            table = self._note(table, numbers)
        self.arrived = backup.needed.at
        for name, one in self._collected.items():
            self._next[name] = self._given[name] = one.needed.at
        later, self._later, self._collected = self._later, [], {}
        for take in later:
            take()
        return table, numbers

    def save(self, savepoint: Savepoint) -> tuple[NeededNumbers, dict[str, NeededNumbers]]:
        """Forget what a savepoint does not need, and return what it does."""
        known = self._all()
        self._known = known = known[:, ~savepoint.drops(known[0])]
        old = known[0] < savepoint.at
        inputs = {}
        for place, name in enumerate(self.names):
            own = known[1] == place
            numbers, later = known[2, own & old], known[2, own & ~old]
            at = int(later[0]) if len(later) else self._given[name]
            inputs[name] = NeededNumbers(at, numbers)
        return NeededNumbers(savepoint.at, known[0, old]), inputs

    def time_of(self, number: int) -> int | None:
        """Return the time of an event that is needed, or of the last one; None: there was none."""
        if number >= self.arrived:
            return self._last_time
        known = self._all()
        return int(known[3, int(np.searchsorted(known[0], number))])

    def _all(self) -> Integers:
        if self._fresh:
            self._known = np.concatenate([self._known, *self._fresh], axis=1)
            self._fresh = []
        return self._known

    def _marked(self, name: str, rows: pa.Table, numbers: Integers) -> pa.Table:
        rows = rows.append_column(_NUMBER, pa.array(numbers))
        place = np.full(len(numbers), self.names.index(name))
        return rows.append_column(_INPUT, pa.array(place))

    def _note(self, rows: pa.Table, numbers: Integers) -> pa.Table:
        """Note where events came from, and return them without that."""
        own = one_array(rows[_NUMBER]).to_numpy()
        places = one_array(rows[_INPUT]).to_numpy()
        rows = rows.drop_columns([_NUMBER, _INPUT])
        times = np.zeros(len(own), np.int64)
        if self._node.time:
            times = times_of(rows[self._node.time])
            self._last_time = int(times[-1])
        self._fresh.append(np.stack([numbers, places, own, times]))
        for place, name in enumerate(self.names):
            of_one = own[places == place]
            if len(of_one):
                self._given[name] = int(of_one[-1]) + 1
        return rows

    def _collect(self, name: str, rows: pa.Table, numbers: Integers) -> None:
        self._next[name] = int(numbers[-1]) + 1
        one = self._collected[name]
        old = int(np.searchsorted(numbers, one.needed.at))
        chosen = np.isin(numbers[:old], one.needed.numbers)
        if chosen.any():
            one.rows.append(rows.slice(0, old).filter(pa.array(chosen)))
            one.count += int(chosen.sum())
        if old < len(numbers):
            if one.count < len(one.needed.numbers):
                raise StateError(f"events of '{name}' that are needed were not retained")
            self._later.append(partial(self.take, name, rows.slice(old), numbers[old:]))


def times_of(column: pa.ChunkedArray) -> Integers:
    """Return times as a merge has them; 0 where there is none, which the operator refuses."""
    values = one_array(column)
    if not (pa.types.is_integer(values.type) or pa.types.is_temporal(values.type)):
        return np.zeros(len(values), np.int64)
    if values.null_count:
        return np.zeros(len(values), np.int64)
    return as_integers(values.view(pa.int64()) if ticks_of(values.type) > 1 else values)
