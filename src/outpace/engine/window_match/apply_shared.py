"""User-defined operators that serve all windows of a partition: one call for each block of events.

The rows that an operator gives for the end of a window are ordered as those of `Operator.close`;
rows that an event gives have that event as their x. So a result does not depend on how many windows
a call is for.

Memory: the state of the operators, and of each open window the bounds that do not follow from its
number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, Self

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.snapshot import Stateful
from outpace.engine.split.windows import Split, Windows, joined_windows, part_windows
from outpace.engine.state import NATURAL, State, integers, parts, require, typed
from outpace.engine.window_match.apply import (
    EventGroup,
    OperatorErrors,
    OperatorRunner,
    RowPlaces,
    row_count,
)
from outpace.engine.window_match.matcher import ENDED
from outpace.engine.window_match.open_windows import require_same, saved_windows
from outpace.engine.window_match.result import CLOSING, COMPLETING, WindowMatches
from outpace.errors import DataError
from outpace.pattern.operator import OperatorRows, SharedOperator, WindowBlock, WindowRows
from outpace.pattern.query import Query

#: What is known of an open window.
_KNOWN: Final = ("partition", "number", "first", "start_time", "end_time")

#: Windows that open are put together up to so many.
_SHORT: Final = 1024


class SharedApply(OperatorRunner):
    """An operator for each partition that has open windows."""

    def __init__(self, query: Query, schema: pa.Schema) -> None:
        super().__init__(query, schema)
        self._nothing = EventGroup(schema.empty_table(), _NOTHING, _NOTHING)
        self._served: dict[int, _ServedPartition] = {}

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return sum(len(one.windows) for one in self._served.values())

    @property
    def partitions_kept(self) -> int:
        """How many partitions have open windows."""
        return len(self._served)

    def earliest(self, time: str) -> int:
        """Return when the first of the open windows started; their times must be known."""
        return min(
            (int(one.windows["start_time"].min()) for one in self._served.values()), default=ENDED
        )

    def snapshot(self) -> Self:
        """Return a part that stands where this one does; each operator is made again."""
        twin = super().snapshot()
        twin._served = {
            partition: replace(
                one, operator=self._again(one.operator.state()), windows=one.windows.snapshot()
            )
            for partition, one in self._served.items()
        }
        return twin

    def state(self) -> State:
        """Return the operators' own states, by partition, and what is known of their windows."""
        served = self._served.values()
        states = {
            "partition": pa.array(self._served, pa.int64()),
            "windows": pa.array([len(one.windows) for one in served], pa.int64()),
            "state": pa.array([one.operator.state() for one in served], pa.binary()),
        }
        known = {
            name: np.concatenate([_NOTHING, *(one.windows[name] for one in served)])
            for name in _KNOWN
        }
        known["begun_at"] = np.concatenate([_NOTHING, *(one.windows.begun_at for one in served)])
        known["given"] = np.concatenate(
            [_NOTHING, *(one.windows.given(one.windows["number"]) for one in served)]
        )
        keys = self._key_columns([one.key for one in served])
        return super().state().plus(State({}, [pa.table(states), pa.table(known), keys]))

    def restore(
        self, state: State, opened: Windows | None = None, taken: Integers | None = None
    ) -> None:
        """Go on from what `state` returned; see `WindowMatcher.restore`."""
        super().restore(state)
        _, (states, known, keys) = state.content(3)
        keys = typed(keys, self._key_columns([]).schema)
        partitions = NATURAL if taken is None else range(len(taken))
        partition, counts = integers(states, partition=partitions, windows=range(1, NATURAL.stop))
        windows = saved_windows(known)
        begun_at, given = integers(known, begun_at=NATURAL, given=NATURAL)
        require(len(np.unique(partition)) == len(partition), "a partition is there twice")
        require(int(counts.sum()) == known.num_rows, "windows are missing")
        require((windows.partition == np.repeat(partition, counts)).all(), "windows are missing")
        require_same(opened, windows.partition, windows.number, windows.first)
        names = self.bound.partition_by
        ends = np.cumsum(counts)
        self._served = {}
        for place, (own, key) in enumerate(
            zip(parts(states, states.num_rows, "state"), keys.to_pylist(), strict=True)
        ):
            mine = _WindowQueue()
            some = slice(ends[place] - counts[place], ends[place])
            mine.add(part_windows(windows, some), begun_at[some])
            began = given[some] > 0
            mine.give(windows.number[some][began], given[some][began] - 1)
            self._served[int(partition[place])] = _ServedPartition(
                self._again(own), tuple(key[name] for name in names), mine
            )

    def _again(self, state: bytes) -> SharedOperator:
        operator = self._made()
        operator.restore(state)
        return operator

    def _made(self) -> SharedOperator:
        operator = self._make()
        assert isinstance(operator, SharedOperator)
        return operator

    def _apply(self, groups: dict[int, EventGroup], split: Split) -> WindowMatches:
        opened, closed = self._by_partition(split.opened), self._by_partition(split.closed)
        none = Windows.none()
        given = [
            one
            for partition in dict.fromkeys([*groups, *closed])
            if partition in opened or partition in self._served
            for one in self._step(
                partition,
                groups.get(partition, self._nothing),
                Split(opened.get(partition, none), closed.get(partition, none)),
            )
        ]
        if not given:
            return WindowMatches.none(self.bound.output)
        columns = zip(*(vars(one.places).values() for one in given), strict=True)
        return self._matches(
            [one.key for one in given],
            [len(one.places.event) for one in given],
            (one.rows for one in given),
            RowPlaces(*map(np.concatenate, columns)),
        )

    def _by_partition(self, windows: Windows) -> dict[int, Windows]:
        """Part windows by partition, keeping their order."""
        if not len(windows) or not self.bound.partition_by:
            return {0: windows} if len(windows) else {}
        order = np.argsort(windows.partition, kind="stable")
        numbers, firsts = np.unique(windows.partition[order], return_index=True)
        bounds = [*firsts.tolist(), len(order)]
        return {
            number: part_windows(windows, order[low:high])
            for number, low, high in zip(numbers.tolist(), bounds[:-1], bounds[1:], strict=True)
        }

    def _step(self, partition: int, group: EventGroup, split: Split) -> Iterator[_GivenRows]:
        """Give the operator of a partition its new events, and yield what they give."""
        served = self._served.get(partition)
        if served is None:
            key = self._key_of(group.rows)
            with OperatorErrors(self.bound, None, key):
                operator = self._made()
            served = self._served[partition] = _ServedPartition(operator, key, _WindowQueue())
        opened, closed = split.opened, split.closed
        windows = served.windows
        opening = _rows(group, opened.first)
        windows.add(opened, group.arrival[opening])
        block = WindowBlock(
            group.rows,
            opened.number,
            opening,
            closed.number,
            _rows(group, closed.stop),
        )
        with OperatorErrors(self.bound, served.operator, served.key):
            result = served.operator.process_windows(block)
        if result is not None and row_count(result.rows):
            places = self._places(partition, group, split, block, windows, result)
            yield _GivenRows(served.key, result.rows, places)
        windows.remove(closed.number)
        if not len(windows):
            del self._served[partition]

    def _places(
        self,
        partition: int,
        group: EventGroup,
        split: Split,
        block: WindowBlock,
        windows: _WindowQueue,
        result: WindowRows,
    ) -> RowPlaces:
        """Return the event and the window of each row."""
        number = self._column(result, result.window, "window")
        where = np.full(len(number), partition)
        given = _ranks(number)
        if result.event is None:
            closed = split.closed
            at = _found(closed.number, number)
            if at is None:
                raise self._refused("a row of a window that does not close", "event")
            closed_at = closed.closed_at
            phase = np.full(len(closed), CLOSING)
            own = block.stop > 0
            # The event that closes a window may be its last one.
            own[own] = group.arrival[block.stop[own] - 1] == closed_at[own]
            phase[own] = COMPLETING
            return RowPlaces(
                closed_at[at],
                phase[at],
                number,
                where,
                closed.start_time[at],
                closed.end_time[at],
                windows.begun(number),
                given + windows.given(number),
            )
        rows = self._column(result, result.event, "event")
        at = _found(windows["number"], number)
        if at is None:
            raise self._refused("a row of a window that is not open", "window")
        if not ((rows >= 0) & (rows < len(group.arrival))).all():
            raise self._refused("a row of an event that is not in the block", "event")
        phase = np.full(len(rows), COMPLETING)
        start, end = (windows[name][at] for name in ("start_time", "end_time"))
        given += windows.given(number)
        windows.give(number, given)
        event, begun_at = group.arrival[rows], windows.begun_at[at]
        return RowPlaces(event, phase, number, where, start, end, begun_at, given)

    def _column(self, result: WindowRows, values: object, name: str) -> Integers:
        """Return what is said of each row as integers, one for each."""
        column = np.asarray(values)
        count = row_count(result.rows)
        if column.shape != (count,) or column.dtype.kind not in "iu":
            raise self._refused(f"{count} rows without as many integers in `{name}`", name)
        return column.astype(np.int64)

    def _refused(self, what: str, name: str) -> DataError:
        return DataError(
            f"operator {self.bound.query.name} returned {what}",
            hint=f"see `{name}` of op.WindowRows: one integer for each row",
        )


@dataclass(frozen=True)
class _ServedPartition:
    """A partition with open windows: its operator, its key, and the windows."""

    operator: SharedOperator
    key: tuple[object, ...]
    windows: _WindowQueue


@dataclass(frozen=True)
class _GivenRows:
    """Rows that an operator gave at once."""

    key: tuple[object, ...]
    rows: OperatorRows
    places: RowPlaces


@dataclass(frozen=True)
class _WindowPiece:
    """Windows that opened one after the other, and the arrival of the first event of each."""

    windows: Windows
    begun_at: Integers

    def __len__(self) -> int:
        return len(self.begun_at)

    def part(self, at: Integers | slice) -> _WindowPiece:
        return _WindowPiece(part_windows(self.windows, at), self.begun_at[at])

    def joined(self, other: _WindowPiece) -> _WindowPiece:
        begun_at = np.concatenate([self.begun_at, other.begun_at])
        return _WindowPiece(joined_windows(self.windows, other.windows), begun_at)


class _WindowQueue(Stateful):
    """The open windows of a partition, in the order in which they opened, by rising numbers.

    They are kept as they come, short ones together: what follows from numbers takes no room, but
    for the arrival of the first event of each. Windows that close in the order in which they opened
    leave at the beginning.
    """

    CHANGED = ("_pieces", "_given")

    def __init__(self) -> None:
        self._pieces: deque[_WindowPiece] = deque()
        self._size = 0
        #: How many rows windows gave that are still open; none for most.
        self._given: dict[int, int] = {}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> Integers:
        columns = (getattr(piece.windows, name) for piece in self._pieces)
        return np.concatenate([_NOTHING, *columns])

    @property
    def begun_at(self) -> Integers:
        """The arrival of the first event of each."""
        return np.concatenate([_NOTHING, *(piece.begun_at for piece in self._pieces)])

    def begun(self, number: Integers) -> Integers:
        """Return the arrival of the first event of some of them."""
        at = _found(self["number"], number)
        require(at is not None, "windows are missing")
        return self.begun_at[at]

    def add(self, windows: Windows, begun_at: Integers) -> None:
        """Add windows that open, with the arrival of the first event of each."""
        if not len(windows):
            return
        piece = _WindowPiece(windows, begun_at)
        self._size += len(piece)
        if self._pieces and len(self._pieces[-1]) + len(piece) <= _SHORT:
            piece = self._pieces.pop().joined(piece)
        self._pieces.append(piece)

    def given(self, number: Integers) -> Integers:
        """Return how many rows windows gave before."""
        if not self._given:
            return np.zeros(len(number), np.int64)
        return np.array([self._given.get(one, 0) for one in number.tolist()], np.int64)

    def give(self, number: Integers, given: Integers) -> None:
        """Count rows of windows, each with the number of those before it."""
        self._given.update(zip(number.tolist(), (given + 1).tolist(), strict=True))

    def remove(self, number: Integers) -> None:
        """Forget windows that close."""
        count = len(number)
        if not count:
            return
        if self._given:
            for one in number.tolist():
                self._given.pop(one, None)
        self._size -= count
        highest = int(number.max())
        leaving: list[_WindowPiece] = []
        while count > 0:
            leaving.append(self._pieces.popleft())
            count -= len(leaving[-1])
        last = leaving[-1]
        if count < 0:
            self._pieces.appendleft(last.part(slice(len(last) + count, None)))
            last = leaving[-1] = last.part(slice(0, len(last) + count))
        if int(last.windows.number[-1]) == highest:
            return
        # Others than the oldest close.
        whole = reduce(_WindowPiece.joined, [*leaving, *self._pieces])
        stay = np.flatnonzero(~np.isin(whole.windows.number, number))
        self._pieces = deque([whole.part(stay)] if len(stay) else [])


def _rows(group: EventGroup, ordinal: Integers) -> Integers:
    """Return the rows of events of a group, or the ends of it."""
    known = group.ordinal
    if not len(known) or int(known[-1]) - int(known[0]) != len(known) - 1:
        return np.searchsorted(known, ordinal)
    rows: Integers = np.clip(ordinal - known[0], 0, len(known))
    return rows


def _ranks(numbers: Integers) -> Integers:
    """Return for each number how many of the same come before it."""
    order = np.argsort(numbers, kind="stable")
    begins = np.flatnonzero(np.append(True, np.diff(numbers[order]) != 0)[: len(order)])
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.arange(len(numbers)) - np.repeat(begins, np.diff(begins, append=len(numbers)))
    return ranks


def _found(known: Integers, wanted: Integers) -> Integers | None:
    """Return where each number that is wanted stands among those known; None where one does not."""
    if known is wanted or np.array_equal(known, wanted):
        return np.arange(len(wanted))
    if not len(known):
        return None
    order = np.argsort(known, kind="stable") if (known[1:] < known[:-1]).any() else None
    at = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
    at = at if order is None else order[at]
    return at if bool((known[at] == wanted).all()) else None


_NOTHING: Final = np.zeros(0, np.int64)
