"""Many ordered sources as one stream in the total order (time, sequence number, source).

A source's events come in the order of its sequence numbers and never back in time. The events that
are ready depend on nothing but the events and heartbeats so far: an event is taken as soon as no
source can still send one that comes before it, and not earlier. A heartbeat says of a source that
is quiet that no later event of it lies before a time, and so releases the others. Any cut into
blocks, and any order in which the sources speak, gives the same stream.

Blocks stay as they come until they are taken, only small ones that wait are joined; a stretch that
one source alone has is not copied. A merge holds for each source at most `capacity` events and the
block that went beyond; `wants` says which sources may go on, and the one that holds the others back
always may.

A tree knows the source that holds the others back, and the sources that have events which are
ready: groups of at most 64 sources, groups of such groups, and so on (`outpace.engine.order.tree`).
A push looks at its own group and at those above it, not at all sources. Events stay with their
source until they are ready; then their keys are put in order, and their other columns are moved
once, by the part that asks for them. Where times are spread, the cost per event hardly depends on
the number of sources; where they crowd it grows with the logarithm of that number
(`outpace.engine.kernels.merge`). The ordering component of SPACE (Amann 2018, 3.2.2 and 4.3) waits
for an event of every source, and compares with all of them for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import END_OF_TIME, NO_TIME, Integers, pooled
from outpace.engine.event import EVENT_ID
from outpace.engine.kernels.merge import count_out_of_order, merge_runs
from outpace.engine.order.contract import ReleasedEvents
from outpace.engine.order.senders import no_source, source_names
from outpace.engine.order.tree import NEVER, KeyTree, OrderKey
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.permutation import RearrangedRows
from outpace.engine.rows.times import as_integers
from outpace.engine.snapshot import Stateful
from outpace.engine.state import ANY, NATURAL, SavedPart, State, integer, integers, require
from outpace.errors import DataError, did_you_mean

#: The column of sequence numbers.
SEQUENCE: Final = "seq"

#: How many events of a source may be held back.
CAPACITY: Final = 1 << 22

#: How many sources, or groups of them, are compared with each other at most.
FAN_IN: Final = 64

#: Pieces with fewer events than this are joined while they wait.
_SMALL: Final = 4096


@dataclass(frozen=True)
class _SourcePiece:
    """Events of one source that follow each other."""

    rows: pa.Table
    times: Integers
    numbers: Integers

    def __len__(self) -> int:
        return len(self.times)

    def slice(self, start: int, stop: int) -> _SourcePiece:
        rows = self.rows.slice(start, stop - start)
        return _SourcePiece(rows, self.times[start:stop], self.numbers[start:stop])


@dataclass
class _Waiting(Stateful):
    """The state of a source: the events that wait, and the least key that may still come."""

    CHANGED = ("pieces",)

    pieces: deque[_SourcePiece] = field(default_factory=deque)
    events: int = 0
    time: int = int(NO_TIME)
    number: int = 0
    finished: bool = False

    def least(self, source: int) -> OrderKey:
        """Return the least key that may still come, where the source has this number."""
        return NEVER if self.finished else (self.time, self.number, source)

    def first(self, source: int) -> OrderKey:
        """Return the key of the first event that waits, where the source has this number."""
        if not self.pieces:
            return NEVER
        piece = self.pieces[0]
        return int(piece.times[0]), int(piece.numbers[0]), source

    def append(self, piece: _SourcePiece) -> None:
        """Let events wait; small pieces are joined, so that there are never many of them."""
        self.events += len(piece)
        self.time, self.number = int(piece.times[-1]), int(piece.numbers[-1]) + 1
        while self.pieces and len(self.pieces[-1]) <= len(piece) < _SMALL:
            joined = _join([self.pieces.pop(), piece])
            piece = _SourcePiece(joined.rows.combine_chunks(), joined.times, joined.numbers)
        self.pieces.append(piece)


class SourceMerge(SavedPart):
    """Bring the events of many sources into one order.

    Parameters
    ----------
    sources
        Their identifiers. Of events with the same time and number, that of the source whose
        identifier comes first in the alphabet comes first.
    time
        The column of times: timestamps, dates or integers. Inside, a time is its microseconds, its
        nanoseconds where the column has them, or the integer that it is.
    sequence
        The column of sequence numbers; where there is none, and with None, the events of a source
        are counted.
    apart
        Whether all events of an earlier source count before those of a later one.
    capacity
        How many events of a source may be held back before `wants` refuses more.
    fan_in
        How many sources, or groups of them, are compared with each other at most.

    Examples
    --------
    >>> merge = SourceMerge(["a", "b"])
    >>> merge.push("a", pa.table({"ts": [1, 5], "x": [10, 11]}))
    >>> merge.pop().rows.num_rows
    0
    >>> merge.heartbeat("b", 5)
    >>> merge.pop().rows["x"].to_pylist()
    [10]
    >>> merge.finish("b")
    >>> merge.pop().rows["x"].to_pylist()
    [11]
    """

    CHANGED = ("_waiting", "_least", "_first")
    SAME: ClassVar = {"order": ("sources", "other sources")}

    def __init__(
        self,
        sources: Iterable[str],
        *,
        time: str = "ts",
        sequence: str | None = SEQUENCE,
        apart: bool = False,
        capacity: int = CAPACITY,
        fan_in: int = FAN_IN,
    ) -> None:
        self._time, self._sequence = time, sequence
        self.sources = source_names(sources)
        if fan_in < 2:
            raise DataError(
                f"a fan-in of {fan_in} is too small", hint="groups have 2 sources or more"
            )
        self._capacity, self._fan_in = capacity, fan_in
        self._numbers = {source: number for number, source in enumerate(self.sources)}
        #: No events, with the columns of those to come; None as long as these are not known.
        self._nothing: pa.Table | None = None
        #: The greatest time that events had; after it was restored that of events which wait.
        self.latest = int(NO_TIME)
        stretch = int(np.iinfo(np.int64).max) // len(self.sources) if apart else 0
        #: The number of the first event that is counted, of each source.
        self._begin = [stretch * number for number in range(len(self.sources))]
        self._start([_Waiting(number=begin) for begin in self._begin])

    def push(self, source: str, events: pa.Table | pa.RecordBatch) -> None:
        """Take the next events of a source; after an error nothing is taken.

        Parameters
        ----------
        source
            Which one.
        events
            The events in their order. All sources have the same columns. Times never fall, and
            sequence numbers rise from 0 or more with every event.
        """
        is_batch = isinstance(events, pa.RecordBatch)
        rows = pa.Table.from_batches([events]) if is_batch else events
        number = self._number(source)
        waiting = self._waiting[number]
        if waiting.finished:
            raise DataError(f"source '{source}' has finished and cannot send more events")
        if not self.wants(source):
            raise DataError(
                f"source '{source}' is {waiting.events} events ahead of source '{self.holding}'",
                hint=f"push events of '{self.holding}' first, or a heartbeat for it",
            )
        piece = self._piece(source, rows, waiting.number)
        if self._nothing is not None and not rows.schema.equals(self._nothing.schema):
            raise DataError(
                f"source '{source}' has other columns than the sources before it",
                detail=f"expected {_columns(self._nothing.schema)}\ngot {_columns(rows.schema)}",
            )
        if len(piece):
            _check_order(source, waiting, piece, self._begin[number])
            waiting.append(piece)
            self.latest = max(self.latest, waiting.time)
            self._least[number] = waiting.least(number)
            # Events that wait already come before these.
            if waiting.events == len(piece):
                self._first[number] = waiting.first(number)
        if self._nothing is None:
            self._nothing = rows.schema.empty_table()

    def heartbeat(self, source: str, time: int) -> None:
        """Promise that no later event of a source has a time before `time`."""
        number = self._number(source)
        waiting = self._waiting[number]
        waiting.time = max(waiting.time, min(time, END_OF_TIME))
        self._least[number] = waiting.least(number)

    def finish(self, source: str) -> None:
        """Say that a source sends no more events."""
        number = self._number(source)
        self._waiting[number].finished = True
        self._least[number] = NEVER

    def pop(self) -> ReleasedEvents:
        """Return the events that no later one can come before, in the total order.

        A column is moved to its place when somebody asks for it.
        """
        bound = self._least.least
        pieces: list[_SourcePiece] = []
        bounds = [0]
        for number in self._first.before(bound):
            waiting = self._waiting[number]
            ready = _ready(waiting, number, bound)
            pieces += ready
            bounds.append(bounds[-1] + sum(map(len, ready)))
            self._first[number] = waiting.first(number)
        watermark = bound[0]
        if bound == NEVER:
            watermark = max(waiting.time for waiting in self._waiting)
        return ReleasedEvents(self._merged(pieces, np.array(bounds)), watermark)

    def wants(self, source: str) -> bool:
        """Say whether a source may go on: not too many of its events are held back."""
        waiting = self._waiting[self._number(source)]
        return not waiting.finished and waiting.events < self._capacity

    def buffered(self, source: str) -> int:
        """Return how many events of a source wait."""
        return self._waiting[self._number(source)].events

    @property
    def ended(self) -> frozenset[str]:
        """The sources that send no more events."""
        each = zip(self.sources, self._waiting, strict=True)
        return frozenset(source for source, waiting in each if waiting.finished)

    @property
    def holding(self) -> str | None:
        """The source that the others wait for; None when all have finished."""
        least = self._least.least
        return None if least == NEVER else self.sources[least[2]]

    def state(self) -> State:
        """Return all that is known and waits, for `restore`."""
        known = [
            [waiting.time, waiting.number, waiting.finished, waiting.events]
            for waiting in self._waiting
        ]
        state = super().state().plus(State({"known": known}))
        if self._nothing is None:
            return state
        pieces = [piece for waiting in self._waiting for piece in waiting.pieces]
        keys = pa.table(
            {
                "time": np.concatenate([piece.times for piece in (_NOTHING, *pieces)]),
                "number": np.concatenate([piece.numbers for piece in (_NOTHING, *pieces)]),
            }
        )
        rows = [self._nothing, *(piece.rows for piece in pieces)]
        return state.plus(State({}, [keys, pa.concat_tables(rows)]))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process."""
        super().restore(state)
        header, tables = state.content()
        waiting = [_Waiting(**one) for one in map(_known, header["known"])]
        require(len(waiting) == len(self.sources), "a source is missing")
        if tables:
            keys, rows = tables
            whole = _SourcePiece(rows, *integers(keys, time=ANY, number=range(ANY.stop - 1)))
            events = sum(one.events for one in waiting)
            require(rows.num_rows == keys.num_rows == events, "events are missing")
            self._nothing = rows.schema.empty_table()
            start = 0
            for source, one in zip(self.sources, waiting, strict=True):
                if one.events:
                    piece = whole.slice(start, start + one.events)
                    own = self._piece(source, piece.rows, int(piece.numbers[0]))
                    require((own.times == piece.times).all(), "times are not those of the events")
                    require(
                        not count_out_of_order(piece.times, piece.numbers),
                        "events are out of order",
                    )
                    one.pieces.append(piece)
                start += one.events
        self._start(waiting)

    def _start(self, waiting: list[_Waiting]) -> None:
        """Go on from what is known of each source."""
        self._waiting = waiting
        self.latest = max([one.time for one in waiting if one.events], default=int(NO_TIME))
        least = (one.least(number) for number, one in enumerate(waiting))
        first = (one.first(number) for number, one in enumerate(waiting))
        self._least = KeyTree(least, fan_in=self._fan_in)
        self._first = KeyTree(first, fan_in=self._fan_in)

    def _number(self, source: str) -> int:
        number = self._numbers.get(source)
        if number is None:
            raise no_source(source, self.sources)
        return number

    def _piece(self, source: str, rows: pa.Table, following: int) -> _SourcePiece:
        """Return events with their keys; those without numbers get the ones that follow."""
        times = self._keys(source, rows, self._time)
        if self._sequence is not None and self._sequence in rows.column_names:
            return _SourcePiece(rows, times, self._keys(source, rows, self._sequence))
        return _SourcePiece(
            rows, times, np.arange(following, following + len(times), dtype=np.int64)
        )

    def _keys(self, source: str, rows: pa.Table, name: str) -> Integers:
        if name not in rows.column_names:
            hint = did_you_mean(name, rows.column_names)
            raise DataError(f"source '{source}' has no column '{name}'", hint=hint)
        column = one_array(rows[name])
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise DataError(
                f"column '{name}' of source '{source}' is {kind}",
                hint="events are ordered by timestamps, dates or integers",
            )
        if column.null_count:
            raise DataError(f"column '{name}' of source '{source}' has NULLs")
        return as_integers(column.view(pa.int64()) if ticks_of(kind) > 1 else column)

    def _merged(self, pieces: list[_SourcePiece], bounds: Integers) -> pa.Table | RearrangedRows:
        """Merge pieces, those of the first source up to the first bound, and so on."""
        if not pieces:
            return pa.table({}) if self._nothing is None else self._nothing
        joined = _join(pieces)
        rows = joined.rows
        if len(bounds) == 2:
            return rows
        times, numbers, places = merge_runs(joined.times, joined.numbers, bounds)
        keys = {self._time: times, self._sequence: numbers}
        moved = {
            column.name: _as_column(keys[column.name], column.type)
            for column in rows.schema
            if column.name in keys and _is_key(column.type)
        }
        return RearrangedRows(rows, places, moved)


def ticks_of(kind: pa.DataType) -> int:
    """Return how many units of a merge's times are in one of a query's, for a time of a type.

    Nanoseconds count in the order of events; queries count in microseconds.

    Examples
    --------
    >>> ticks_of(pa.timestamp("ns")), ticks_of(pa.timestamp("ms")), ticks_of(pa.int64())
    (1000, 1, 1)
    """
    return 1000 if pa.types.is_timestamp(kind) and kind.unit == "ns" else 1


def _ready(waiting: _Waiting, source: int, bound: OrderKey) -> list[_SourcePiece]:
    """Take the pieces of a source before the bound, the last one cut where the bound lies."""
    ready: list[_SourcePiece] = []
    while waiting.pieces:
        piece = waiting.pieces[0]
        size = len(piece)
        cut = _before(piece, source, bound)
        if cut:
            ready.append(piece if cut == size else piece.slice(0, cut))
            waiting.events -= cut
        if cut < size:
            waiting.pieces[0] = piece.slice(cut, size) if cut else piece
            break
        waiting.pieces.popleft()
    return ready


def _before(piece: _SourcePiece, source: int, bound: OrderKey) -> int:
    """Return how many events of a piece come before a bound."""
    time, number, first = bound
    if (int(piece.times[-1]), int(piece.numbers[-1]), source) < bound:
        return len(piece)
    low = int(np.searchsorted(piece.times, time, "left"))
    high = low + int(np.searchsorted(piece.times[low:], time, "right"))
    # Of an equal number, the event of an earlier source comes before the bound.
    least = number + 1 if source < first else number
    return low + int(np.searchsorted(piece.numbers[low:high], least, "left"))


def _check_order(source: str, waiting: _Waiting, piece: _SourcePiece, begin: int) -> None:
    """Refuse events before the heartbeat or an earlier event, and numbers that do not rise."""
    times, numbers = piece.times, piece.numbers
    if numbers[-1] == np.iinfo(np.int64).max:
        raise DataError(f"a sequence number of source '{source}' is too large")
    late = 0
    if times[0] >= waiting.time and numbers[0] >= waiting.number:
        if not count_out_of_order(times, numbers):
            return
        late = 1 + int(np.argmax((np.diff(times) < 0) | (np.diff(numbers) <= 0)))
    after = waiting.time if late == 0 else int(times[late - 1])
    following = waiting.number if late == 0 else int(numbers[late - 1]) + 1
    time, number = int(times[late]), int(numbers[late])
    if number < following:
        detail = f"its sequence number is {number}, expected {following} or more"
    else:
        detail = f"its time is {time}, expected {after} or later"
    raise DataError(
        f"event {number - begin} of source '{source}' is late",
        detail=detail,
        hint="a source sends its events in order, and none before its own heartbeat",
    )


def _is_key(kind: pa.DataType) -> bool:
    """Say whether a column lies in memory as its keys do."""
    return bool(kind == pa.int64() or (pa.types.is_timestamp(kind) and kind.unit in ("us", "ns")))


def _as_column(keys: Integers, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(keys), [None, pa.py_buffer(keys)])


def _join(pieces: list[_SourcePiece]) -> _SourcePiece:
    """Return pieces one after the other, their rows in as many chunks; one alone is not copied."""
    if len(pieces) == 1:
        return pieces[0]
    rows = pa.concat_tables([piece.rows for piece in pieces])
    # Fresh memory would cost more than to fill it.
    times, numbers = (pooled(rows.num_rows, np.int64) for _ in range(2))
    np.concatenate([piece.times for piece in pieces], out=times)
    np.concatenate([piece.numbers for piece in pieces], out=numbers)
    return _SourcePiece(rows, times, numbers)


def _known(saved: list[Any]) -> dict[str, Any]:
    """Return what a saved state knows of a source."""
    named = dict(zip(("time", "number", "finished", "events"), saved, strict=True))
    require(type(named["finished"]) is bool, "a source has neither finished nor not")
    integer(named, "time")
    integer(named, "number", range(ANY.stop))
    integer(named, "events", NATURAL)
    return named


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema if column != EVENT_ID)


_NOTHING: Final = _SourcePiece(pa.table({}), np.zeros(0, np.int64), np.zeros(0, np.int64))
