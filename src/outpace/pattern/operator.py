"""Operators that users write: a Python class over the events of a window, in place of a pattern.

A window has an operator of its own; without `Query.over` a partition is one window, open from its
first event to the end of the input. `Operator` takes whole tables, `EventOperator` one event at a
time. A `SharedOperator` serves all windows of a partition, in one call for each block of events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.errors import BindError, UnsupportedError

#: Rows that an operator returns: a table, columns by name, or None for no row.
OperatorRows: TypeAlias = (
    "pa.Table | Mapping[str, Sequence[object] | npt.NDArray[np.generic]] | None"
)

Integers: TypeAlias = "npt.NDArray[np.int64]"


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
    def process(self, events: pa.Table) -> OperatorRows:
        """Take the window's next events, in order, and return the rows that they give.

        Parameters
        ----------
        events
            The events.
        """

    def close(self) -> OperatorRows:
        """Return the rows that the end of the window gives."""
        return None

    def skips(self, events: pa.Table) -> Sequence[bool] | npt.NDArray[np.bool_] | None:
        """Say which events it has no use for, whatever came before; None: it may use every one.

        A stream that is recovered by a replay does not retain these, so an operator that is rebuilt
        does not see them. A new operator is asked.

        Parameters
        ----------
        events
            The events.
        """
        return None

    def state(self) -> bytes:
        """Return what `restore` needs; without it a stream with this operator cannot be saved."""
        raise UnsupportedError(
            f"operator {type(self).__name__} cannot be saved",
            hint="give it the methods state and restore",
        )

    def restore(self, data: bytes) -> None:
        """Go on from what `state` returned.

        Parameters
        ----------
        data
            The bytes that `state` returned.
        """
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
        """Take an event and return the rows that it gives.

        Parameters
        ----------
        event
            The event: its values by the names of the columns.
        """

    def process(self, events: pa.Table) -> OperatorRows:
        """Take the events one by one."""
        rows = [dict(row) for event in events.to_pylist() for row in self.on_event(event) or ()]
        return pa.Table.from_pylist(rows, schema=self.output)


def check_operator(operator: object) -> None:
    """Refuse a class of operators, or an operator, without a method that every operator has.

    Examples
    --------
    >>> check_operator(EventOperator)
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] operator EventOperator has no method 'on_event'
      apply
      hint: an operator extends op.Operator and has process, ...
    """
    unwritten = sorted(getattr(operator, "__abstractmethods__", ()))
    lacking = [name for name in ("process", "close") if not callable(getattr(operator, name, None))]
    if not unwritten and not lacking:
        return
    kind = operator if isinstance(operator, type) else type(operator)
    raise BindError(
        f"operator {kind.__name__} has no method '{[*unwritten, *lacking][0]}'",
        where="apply",
        hint="an operator extends op.Operator and has process, or op.EventOperator and on_event, or"
        " op.SharedOperator and process_windows",
    )


@dataclass(frozen=True)
class WindowBlock:
    """The next events of a partition, and the windows that open and close with them.

    A window has the rows from its `first` up to its `stop`, over as many blocks as it is open. One
    that opens and closes in the same block is in both lists.

    Parameters
    ----------
    events
        The events, in order. Some may be in no window.
    opened, first
        The numbers of the windows that open, and the row of `events` that each begins with.
    closed, stop
        The numbers of the windows that close, and the row of `events` behind the last of each; 0
        where its last event came before these.

    Examples
    --------
    >>> at = np.array([0, 2])
    >>> block = WindowBlock(pa.table({"x": [5, 6, 7]}), np.array([0, 1]), at, at[:1], at[1:])
    >>> block.events.slice(block.first[0], block.stop[0])["x"].to_pylist()
    [5, 6]
    """

    events: pa.Table
    opened: Integers
    first: Integers
    closed: Integers
    stop: Integers


@dataclass(frozen=True)
class WindowRows:
    """Rows that an operator returns for several windows.

    Parameters
    ----------
    rows
        A table, or columns by name.
    window
        The number of each row's window.
    event
        The row of `WindowBlock.events` that gave each row; None where the end of its window did.

    Examples
    --------
    >>> WindowRows({"sum": [11, 12]}, window=[3, 4]).event is None
    True
    """

    rows: OperatorRows
    window: Sequence[int] | Integers
    event: Sequence[int] | Integers | None = None


class SharedOperator(Operator):
    """A user-defined operator; one instance serves all windows of a partition.

    It is called once for a block of events, however many windows are open, so windows that overlap
    can share their work. An instance lives as long as windows of its partition are open.

    Examples
    --------
    >>> class Sums(SharedOperator):
    ...     output = pa.schema([("sum", pa.int64())])
    ...     def __init__(self):
    ...         self.total, self.before = 0, {}
    ...     def process_windows(self, block):
    ...         sums = self.total + np.cumsum([0, *block.events["x"].to_pylist()])
    ...         self.total = sums[-1]
    ...         self.before.update(zip(block.opened, sums[block.first]))
    ...         before = [self.before.pop(number) for number in block.closed]
    ...         return WindowRows({"sum": sums[block.stop] - before}, block.closed)
    >>> sums = Sums()
    >>> events = pa.table({"x": [1, 2, 3]})
    >>> windows, rows = np.array([0, 1]), np.array([0, 1])
    >>> sums.process_windows(WindowBlock(events, windows, rows, windows, rows + 2)).rows
    {'sum': array([3, 5])}
    """

    #: The columns of events, once the only window of an operator that is run alone has begun.
    _alone: pa.Table | None = None

    @abstractmethod
    def process_windows(self, block: WindowBlock) -> WindowRows | None:
        """Take the next events of all windows and return the rows that they give.

        Parameters
        ----------
        block
            The events, and which windows hold them, open and close.
        """

    def process(self, events: pa.Table) -> OperatorRows:
        """Take the next events of one window alone."""
        begins = _NONE if self._alone is not None else _FIRST
        self._alone = events.slice(0, 0)
        given = self.process_windows(WindowBlock(events, begins, begins, _NONE, _NONE))
        return None if given is None else given.rows

    def close(self) -> OperatorRows:
        """Return the rows that the end of one window alone gives."""
        given = self.process_windows(WindowBlock(self._alone, _NONE, _NONE, _FIRST, _FIRST))
        return None if given is None else given.rows


_NONE: Final = np.zeros(0, np.int64)
_FIRST: Final = np.zeros(1, np.int64)
