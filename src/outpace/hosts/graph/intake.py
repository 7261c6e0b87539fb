"""What comes over the links to an operator: each event once, or what a lost one is rebuilt from.

Events are known by the numbers that their predecessor gave them. What was taken before is dropped;
while an operator is rebuilt, the events that its backup needs are collected, and later ones wait.

Memory: the events that are collected or wait for that.
Paper: Lima et al., section II-A.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.recover.event_needs import NeededNumbers
from outpace.errors import StateError


class LinkIntake:
    """Takes what comes over a link.

    Parameters
    ----------
    name
        The predecessor.
    needed
        The events that the operator is rebuilt from; None where it begins.

    Examples
    --------
    >>> intake = LinkIntake("falls")
    >>> intake.take(pa.table({"x": [5, 6]}), np.array([0, 1]))
    >>> intake.take(pa.table({"x": [6, 7]}), np.array([1, 2]))
    >>> [rows["x"].to_pylist() for rows in intake.pop()], intake.doubles, intake.wanted
    ([[5, 6], [7]], 1, 3)
    """

    def __init__(self, name: str, needed: NeededNumbers | None = None) -> None:
        self._name, self._needed = name, needed
        #: Behind the last event that came, and how many came again.
        self.next = self.doubles = 0
        #: No later event has a time before this.
        self.promise = int(NO_TIME)
        self._collected: list[pa.Table] = []
        self._waiting: list[pa.Table] = []
        self._end: int | None = None

    @property
    def wanted(self) -> int | None:
        """The event that is to come next; None: all that is retained."""
        return self.next if self._needed is None else None

    @property
    def collected(self) -> bool:
        """Whether all that the operator is rebuilt from is here."""
        count = sum(rows.num_rows for rows in self._collected)
        return self._needed is None or count == len(self._needed.numbers)

    def take(self, rows: pa.Table, numbers: Integers) -> None:
        """Take events; those that were taken before are dropped."""
        low = int(np.searchsorted(numbers, self.next))
        self.doubles += low
        if self._needed is not None and not self._waiting:
            low += self._collect(self._needed, rows.slice(low), numbers[low:])
        rows, numbers = rows.slice(low), numbers[low:]
        if len(numbers):
            begin = self.next
            if numbers[0] != begin or numbers[-1] != begin + len(numbers) - 1:
                raise self._not_retained(begin)
            self.next = int(numbers[-1]) + 1
            self._waiting.append(rows)

    def end(self, count: int) -> None:
        """Hear how many events the predecessor had in all."""
        taken = self.next if self._needed is None else self._needed.at
        if count < taken:
            raise StateError(
                f"'{self._name}' has {count} events in all, of which {taken} were taken before",
                hint="sources give the same events every time a graph goes on",
            )
        self._end = count

    @property
    def ended(self) -> bool:
        """Whether all events have come."""
        return self.next == self._end

    def stand(self, schema: pa.Schema) -> tuple[pa.Table, Integers]:
        """Return the events that a rebuilt operator begins with, and their numbers."""
        assert self._needed is not None, "there is something to begin with"
        needed, self._needed = self._needed, None
        self.next = max(self.next, needed.at)
        collected, self._collected = self._collected, []
        return pa.concat_tables([schema.empty_table(), *collected]), needed.numbers

    def pop(self) -> list[pa.Table]:
        """Return the events that are next, as they came."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def _collect(self, needed: NeededNumbers, rows: pa.Table, numbers: Integers) -> int:
        """Collect events that are needed, and return how many there are that had their turn."""
        old = int(np.searchsorted(numbers, needed.at))
        chosen = np.isin(numbers[:old], needed.numbers)
        if chosen.any():
            self._collected.append(rows.slice(0, old).filter(pa.array(chosen)))
        if old:
            self.next = int(numbers[old - 1]) + 1
        if old < len(numbers):
            if not self.collected:
                raise self._not_retained(int(needed.numbers[0]))
            self.next = needed.at
        return old

    def _not_retained(self, number: int) -> StateError:
        return StateError(
            f"events of '{self._name}' from {number} on are needed, and were not all retained",
            hint="start from the input: with a new folder for the graph, and new logs of sinks",
        )
