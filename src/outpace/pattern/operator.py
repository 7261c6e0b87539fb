"""Operators that users write: a Python class over the events of a window, in place of a pattern.

A window has an operator of its own; without `Query.over` a partition is one window, open from its
first event to the end of the input. `Operator` takes whole tables, `EventOperator` one event at a
time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, TypeAlias

import pyarrow as pa

from outpace.errors import UnsupportedError

#: Rows that an operator returns: a table, columns by name, or None for no row.
Rows: TypeAlias = "pa.Table | Mapping[str, Sequence[object]] | None"


class Operator(ABC):
    """A user-defined operator; one instance serves one window.

    Examples
    --------
    >>> class Mean(Operator):
    ...     output = pa.schema([("mean", pa.float64())])
    ...     def __init__(self):
    ...         self.sum, self.count = 0.0, 0
    ...     def process(self, events):
    ...         self.sum += sum(events["price"].to_pylist())
    ...         self.count += events.num_rows
    ...     def close(self):
    ...         return {"mean": [self.sum / self.count]}
    >>> mean = Mean()
    >>> mean.process(pa.table({"price": [1.0, 2.0]}))
    >>> mean.close()
    {'mean': [1.5]}
    """

    #: The columns that the operator returns; the partition columns come before them.
    output: ClassVar[pa.Schema]

    @abstractmethod
    def process(self, events: pa.Table) -> Rows:
        """Take the window's next events, in order, and return the rows that they give."""

    def close(self) -> Rows:
        """Return the rows that the end of the window gives."""
        return None

    def state(self) -> bytes:
        """Return what `restore` needs; without it a stream with this operator cannot be saved."""
        raise UnsupportedError(
            f"operator {type(self).__name__} cannot be saved",
            hint="give it the methods state and restore",
        )

    def restore(self, data: bytes) -> None:
        """Go on from what `state` returned."""
        raise UnsupportedError(f"operator {type(self).__name__} cannot be restored")


class EventOperator(Operator):
    """A user-defined operator that takes one event at a time, as a dictionary.

    Examples
    --------
    >>> class Rises(EventOperator):
    ...     output = pa.schema([("at", pa.int64())])
    ...     last = float("inf")
    ...     def on_event(self, event):
    ...         if event["price"] > self.last:
    ...             yield {"at": event["ts"]}
    ...         self.last = event["price"]
    >>> Rises().process(pa.table({"ts": [1, 2], "price": [3.0, 4.0]})).to_pylist()
    [{'at': 2}]
    """

    @abstractmethod
    def on_event(self, event: dict[str, object]) -> Iterable[Mapping[str, object]]:
        """Take an event and return the rows that it gives."""

    def process(self, events: pa.Table) -> Rows:
        """Take the events one by one."""
        rows = [dict(row) for event in events.to_pylist() for row in self.on_event(event) or ()]
        return pa.Table.from_pylist(rows, schema=self.output)
