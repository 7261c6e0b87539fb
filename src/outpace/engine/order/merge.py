"""Many ordered sources as one stream in the total order (time, sequence number, source).

A source's events come in the order of its sequence numbers and never back in time. What is ready
depends on nothing but what was said so far: an event is taken as soon as no source can still send
one that comes before it, and not earlier. A heartbeat says of a source that is quiet that no later
event of it lies before a time, and so releases the others. Any cut into blocks, and any order in
which the sources speak, gives the same stream.

Blocks stay as they come, without a copy, until they are taken; a stretch that one source alone has
is never copied. A merge holds for each source at most `capacity` events and the block that went
beyond; `wants` says which sources may go on, and the one that holds the others back always may.

The paper's ordering component (3.2.2, 4.3) waits for an event of every source; its section 4.3
leaves heartbeats to the future.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.kernels.merge import first_out_of_order, merge_runs
from outpace.engine.match.contract import NO_TIME, Integers
from outpace.engine.partition import gather
from outpace.engine.state import pack, unpack
from outpace.errors import DataError, StateError, did_you_mean

#: How many events a source may be ahead of the others.
CAPACITY: Final = 1 << 22

#: The key of an event, or of the first one that a source may still send.
Key = tuple[int, int, int]


@dataclass(frozen=True)
class Ordered:
    """Events in the total order; arrays of one length.

    Parameters
    ----------
    rows
        The columns that travel.
    times, numbers
        The time and the sequence number of each event.
    sources
        For each event the number of its source, in the order of their identifiers.
    watermark
        No later event of the stream has a time less than this.
    """

    rows: pa.Table
    times: Integers
    numbers: Integers
    sources: npt.NDArray[Any]
    watermark: int

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True)
class _Piece:
    """Events of one source that follow each other."""

    rows: pa.Table
    times: Integers
    numbers: Integers

    def __len__(self) -> int:
        return len(self.times)

    def slice(self, start: int, stop: int) -> _Piece:
        rows = self.rows.slice(start, stop - start)
        return _Piece(rows, self.times[start:stop], self.numbers[start:stop])


@dataclass
class _Waiting:
    """What is known of a source: the events that wait, and the least key that may still come."""

    pieces: deque[_Piece] = field(default_factory=deque)
    events: int = 0
    time: int = int(NO_TIME)
    number: int = 0
    finished: bool = False


class SourceMerge:
    """Bring the events of many sources into one order.

    Parameters
    ----------
    sources
        Their identifiers. Of events with the same time and number, that of the source whose
        identifier comes first in the alphabet comes first.
    capacity
        How many events a source may be ahead before `wants` refuses more.

    Examples
    --------
    >>> merge = SourceMerge(["a", "b"])
    >>> merge.push("a", pa.table({"x": [10, 11]}), np.array([1, 5]))
    >>> len(merge.take())
    0
    >>> merge.heartbeat("b", 5)
    >>> merge.take().rows["x"].to_pylist()
    [10]
    >>> merge.finish("b")
    >>> merge.take().rows["x"].to_pylist()
    [11]
    """

    def __init__(self, sources: Sequence[str], *, capacity: int = CAPACITY) -> None:
        self.sources = tuple(sorted(sources))
        if not self.sources or len(set(self.sources)) < len(self.sources):
            raise DataError(
                "sources need identifiers that differ", detail=f"got {', '.join(sources) or 'none'}"
            )
        self._capacity = capacity
        self._numbers = {source: number for number, source in enumerate(self.sources)}
        self._waiting = [_Waiting() for _ in self.sources]
        # One entry for each source that has not finished: a key that it had as its least one. Keys
        # only rise, so an entry that is behind is brought up to date when it is the first.
        self._least: list[Key] = [(int(NO_TIME), 0, number) for number in range(len(self.sources))]
        self._schema: pa.Schema | None = None

    def push(
        self, source: str, rows: pa.Table, times: Integers, numbers: Integers | None = None
    ) -> None:
        """Take the next events of a source; after an error nothing is taken.

        Parameters
        ----------
        source
            Which one.
        rows
            The columns that travel, the same for all sources.
        times
            The time of each event, never falling.
        numbers
            Sequence numbers from 0 on that rise with every event; counted where not given.
        """
        number = self._number(source)
        waiting = self._waiting[number]
        if numbers is None:
            numbers = np.arange(waiting.number, waiting.number + len(times), dtype=np.int64)
        if waiting.finished:
            raise DataError(f"source '{source}' has finished and cannot send more events")
        if not self.wants(source):
            raise DataError(
                f"source '{source}' is {waiting.events} events ahead of source '{self.holding}'",
                hint=f"push events of '{self.holding}' first, or a heartbeat for it",
            )
        if self._schema is None:
            self._schema = rows.schema
        elif not rows.schema.equals(self._schema):
            raise DataError(
                f"source '{source}' has other columns than the sources before it",
                detail=f"expected {_columns(self._schema)}\ngot {_columns(rows.schema)}",
            )
        if not len(times):
            return
        _check_order(source, waiting, times, numbers)
        waiting.pieces.append(_Piece(rows, times, numbers))
        waiting.events += len(times)
        waiting.time, waiting.number = int(times[-1]), int(numbers[-1]) + 1

    def heartbeat(self, source: str, time: int) -> None:
        """Promise that no later event of a source has a time before `time`."""
        waiting = self._waiting[self._number(source)]
        waiting.time = max(waiting.time, time)

    def finish(self, source: str) -> None:
        """Say that a source sends no more events."""
        self._waiting[self._number(source)].finished = True

    def take(self) -> Ordered:
        """Return the events that no later one can come before, in the total order."""
        bound = self._bound()
        pieces: list[_Piece] = []
        runs: list[int] = []
        sizes: list[int] = []
        for number, waiting in enumerate(self._waiting):
            ready = _ready(waiting, number, bound)
            if ready:
                runs.append(number)
                sizes.append(sum(map(len, ready)))
                pieces += ready
        return self._joined(pieces, np.array(runs, np.int64), np.array(sizes, np.int64))

    def wants(self, source: str) -> bool:
        """Say whether a source may go on: it is not too far ahead of the others."""
        waiting = self._waiting[self._number(source)]
        return not waiting.finished and waiting.events < self._capacity

    def buffered(self, source: str) -> int:
        """Return how many events of a source wait."""
        return self._waiting[self._number(source)].events

    @property
    def holding(self) -> str | None:
        """The source that the others wait for; None when all have finished."""
        bound = self._bound()
        return None if bound is None else self.sources[bound[2]]

    def state(self) -> bytes:
        """Return all that is known and waits, as bytes for `restore`."""
        known = [
            [waiting.time, waiting.number, waiting.finished, waiting.events]
            for waiting in self._waiting
        ]
        header = {"order": list(self.sources), "known": known}
        if self._schema is None:
            return pack(header, [])
        pieces = [piece for waiting in self._waiting for piece in waiting.pieces]
        keys = pa.table(
            {
                "time": np.concatenate([piece.times for piece in (_NOTHING, *pieces)]),
                "number": np.concatenate([piece.numbers for piece in (_NOTHING, *pieces)]),
            }
        )
        rows = [self._schema.empty_table(), *(piece.rows for piece in pieces)]
        return pack(header, [keys, pa.concat_tables(rows)])

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned, maybe in another process."""
        header, tables = unpack(data)
        if header.get("order") != list(self.sources):
            raise StateError(
                "the saved state belongs to other sources",
                detail=f"saved {header.get('order')}, now {list(self.sources)}",
            )
        known: Any = header["known"]
        self._waiting = [
            _Waiting(time=time, number=number, finished=finished, events=events)
            for time, number, finished, events in known
        ]
        self._least = [(int(NO_TIME), 0, number) for number in range(len(self.sources))]
        if tables:
            keys, rows = tables
            whole = _Piece(rows, _integers(keys, "time"), _integers(keys, "number"))
            self._schema = rows.schema
            start = 0
            for waiting in self._waiting:
                if waiting.events:
                    waiting.pieces.append(whole.slice(start, start + waiting.events))
                start += waiting.events

    def _number(self, source: str) -> int:
        number = self._numbers.get(source)
        if number is None:
            hint = did_you_mean(source, self.sources) or f"there are {', '.join(self.sources[:10])}"
            raise DataError(f"there is no source '{source}'", hint=hint)
        return number

    def _bound(self) -> Key | None:
        """Return the least key that may still come; None when all sources have finished."""
        while self._least:
            least = self._least[0]
            waiting = self._waiting[least[2]]
            if waiting.finished:
                heapq.heappop(self._least)
                continue
            now = (waiting.time, waiting.number, least[2])
            if now == least:
                return least
            heapq.heapreplace(self._least, now)
        return None

    def _joined(self, pieces: list[_Piece], runs: Integers, sizes: Integers) -> Ordered:
        """Merge pieces: `runs` has the sources that they are of, in order, `sizes` their events."""
        bound = self._bound()
        watermark = int(np.iinfo(np.int64).max) if bound is None else bound[0]
        if self._schema is None or not pieces:
            rows = pa.table({}) if self._schema is None else self._schema.empty_table()
            nothing = _NOTHING.times
            return Ordered(rows, nothing, nothing, nothing, watermark)
        rows = pa.concat_tables([piece.rows for piece in pieces])
        times = _together([piece.times for piece in pieces])
        numbers = _together([piece.numbers for piece in pieces])
        if len(runs) == 1:
            return Ordered(rows, times, numbers, np.broadcast_to(runs, len(times)), watermark)
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        times, numbers, places = merge_runs(times, numbers, bounds)
        columns = [gather(column, places) for column in rows.columns]
        sources = np.repeat(runs, sizes)[places]
        merged = pa.Table.from_arrays(columns, schema=self._schema)
        return Ordered(merged, times, numbers, sources, watermark)


def _ready(waiting: _Waiting, source: int, bound: Key | None) -> list[_Piece]:
    """Take the pieces of a source before the bound, the last one cut where the bound lies."""
    ready: list[_Piece] = []
    while waiting.pieces:
        piece = waiting.pieces[0]
        size = len(piece)
        cut = size if bound is None else _before(piece, source, bound)
        if cut:
            ready.append(piece if cut == size else piece.slice(0, cut))
            waiting.events -= cut
        if cut < size:
            waiting.pieces[0] = piece.slice(cut, size) if cut else piece
            break
        waiting.pieces.popleft()
    return ready


def _before(piece: _Piece, source: int, bound: Key) -> int:
    """Return how many events of a piece come before a bound."""
    time, number, first = bound
    if (int(piece.times[-1]), int(piece.numbers[-1]), source) < bound:
        return len(piece)
    low = int(np.searchsorted(piece.times, time, "left"))
    high = low + int(np.searchsorted(piece.times[low:], time, "right"))
    # Of an equal number, the event of an earlier source comes before the bound.
    least = number + 1 if source < first else number
    return low + int(np.searchsorted(piece.numbers[low:high], least, "left"))


def _check_order(source: str, waiting: _Waiting, times: Integers, numbers: Integers) -> None:
    """Refuse events before the heartbeat or an earlier event, and numbers that do not rise."""
    if numbers[-1] == np.iinfo(np.int64).max:
        raise DataError(f"a sequence number of source '{source}' is too large")
    late = first_out_of_order(times, numbers)
    if times[0] < waiting.time or numbers[0] < waiting.number:
        late = 0
    if late < 0:
        return
    after = waiting.time if late == 0 else int(times[late - 1])
    following = waiting.number if late == 0 else int(numbers[late - 1]) + 1
    time, number = int(times[late]), int(numbers[late])
    if number < following:
        detail = f"its sequence number is {number}, expected {following} or more"
    else:
        detail = f"its time is {time}, expected {after} or later"
    raise DataError(
        f"event {number} of source '{source}' is late",
        detail=detail,
        hint="a source sends its events in order, and none before its own heartbeat",
    )


def _together(arrays: list[Integers]) -> Integers:
    """Return arrays one after the other; one alone is not copied."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _integers(table: pa.Table, name: str) -> Integers:
    return np.asarray(table.column(name).to_numpy(), np.int64)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)


_NOTHING: Final = _Piece(pa.table({}), np.zeros(0, np.int64), np.zeros(0, np.int64))
