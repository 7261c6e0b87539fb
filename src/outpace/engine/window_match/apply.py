"""User-defined operators in windows: one instance for each window, fed as events come.

Windows that overlap each have an instance and see the same rows, as slices, unless it is one that
they share (`outpace.engine.window_match.apply_shared`). The rows that an
operator returns are ordered by x:y like matches: x is the event that gave them, for what `close`
returns the one that closed the window, and y the window. An `EventOperator` is asked event by event
and x is that event; an `Operator` takes whole tables, and x is the last event of the table, so it
depends on how the stream is cut. Their rows have to fit the output. After an operator raised an
error, which says where, its stream cannot go on.

Memory: the state of the operators; no rows are kept for them.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.match.identity import MatchIds, row_ids
from outpace.engine.split.windows import Split, Windows
from outpace.engine.state import ANY, NATURAL, SavedPart, State, integers, parts, require, typed
from outpace.engine.window_match.matcher import ENDED
from outpace.engine.window_match.open_windows import require_same
from outpace.engine.window_match.result import (
    CLOSING,
    COMPLETING,
    WindowMatches,
    turns_of,
    with_numbers,
)
from outpace.errors import DataError, MatchError, OutpaceError
from outpace.pattern.bind.query import bind_operator
from outpace.pattern.bound import NUMBERING, BoundQuery
from outpace.pattern.operator import EventOperator, Operator, OperatorRows
from outpace.pattern.query import Query


@dataclass(slots=True)
class OperatorErrors:
    """Names operator and window in what fails inside: it is the user's code that runs there.

    A class and not a generator, since it is entered for each window and block.
    """

    bound: BoundQuery
    operator: Operator | None
    key: tuple[object, ...]
    window: int | None = None

    def __enter__(self) -> None:
        """Let the user's code run."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raise an error of the user's code as one of ours."""
        if not isinstance(error, Exception) or isinstance(error, OutpaceError):
            return
        bound, operator = self.bound, self.operator
        name = f"query {bound.query.name}" if operator is None else type(operator).__name__
        named = zip(bound.partition_by, self.key, strict=True)
        where = ", ".join(f"{column} = {value!r}" for column, value in named)
        if self.window is not None and bound.query.windows is not None:
            where = f"window {self.window}" + (f" of {where}" if where else "")
        raise MatchError(
            f"operator {name} failed",
            where=where or None,
            detail=f"{type(error).__name__}: {error}",
        ) from error


def row_count(rows: OperatorRows) -> int:
    """Return how many rows an operator gave."""
    if rows is None:
        return 0
    return rows.num_rows if isinstance(rows, pa.Table) else len(next(iter(rows.values()), ()))


def fitted_rows(name: str, schema: pa.Schema, given: Iterable[OperatorRows]) -> pa.Table:
    """Return all that an operator gave as a table of a schema, or refuse what does not fit."""
    tables: list[pa.Table] = []
    try:
        # Columns of Python values are joined first: each conversion to Arrow costs more than a row.
        for as_tables, some in itertools.groupby(given, lambda rows: isinstance(rows, pa.Table)):
            pieces: list[Any] = [rows for rows in some if rows is not None]
            tables += [
                _fitted(table, schema)
                for table in (pieces if as_tables else [_joined(schema.names, pieces)])
            ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, TypeError) as error:
        raise DataError(
            f"operator {name} returned rows that do not fit its output", detail=str(error)
        ) from error
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema, in its order, as it says their types."""
    if table.schema == schema:
        return table
    return pa.table([table.column(f.name).cast(f.type) for f in schema], schema=schema)


def _joined(names: Sequence[str], pieces: Sequence[Mapping[str, Sequence[object]]]) -> pa.Table:
    for piece in pieces:
        if len({len(column) for column in piece.values()}) > 1:
            raise pa.ArrowInvalid("columns have different lengths")
    if len(pieces) == 1:
        return pa.table({name: pieces[0][name] for name in names})
    chained = itertools.chain.from_iterable
    return pa.table({name: list(chained(piece[name] for piece in pieces)) for name in names})


#: What a saved state knows of an open window.
_PLACES: Final = (
    *("partition", "number", "first", "start_time", "end_time", "begun_at"),
    *("last", "given"),
)


@dataclass
class _ServedWindow:
    """An open window: its operator, where it starts, its key, and its last event so far."""

    operator: Operator
    partition: int
    number: int
    first: int
    start_time: int
    end_time: int
    begun_at: int
    key: tuple[object, ...]
    last: int = -1
    given: int = 0


@dataclass(frozen=True)
class EventGroup:
    """The new events of one partition, in order."""

    rows: pa.Table
    ordinal: Integers
    arrival: Integers
    _events: list[dict[str, object]] = field(default_factory=list)

    def arrival_of(self, ordinal: int) -> int:
        """Return the arrival of an event."""
        return int(self.arrival[np.searchsorted(self.ordinal, ordinal)])

    def events(self, low: int, high: int) -> list[dict[str, object]]:
        """Return rows as dictionaries, which are made once for all windows."""
        if not self._events:
            self._events.extend(self.rows.to_pylist())
        return [dict(event) for event in self._events[low:high]]


@dataclass(frozen=True)
class RowPlaces:
    """For each row that an operator gave: event and phase, its window, how many it gave before.

    `begun_at` is the arrival of the window's first event.
    """

    event: Integers
    phase: Integers
    number: Integers
    partition: Integers
    start_time: Integers
    end_time: Integers
    begun_at: Integers
    given: Integers


@dataclass(frozen=True)
class _OutputPiece:
    """Rows that an operator gave at once, by which events, and the number of the first of them."""

    window: _ServedWindow
    rows: OperatorRows
    event: Integers
    phase: int
    number: int


class OperatorRunner(SavedPart, ABC):
    """A query's operator in the windows that an instance was given.

    Parameters
    ----------
    query
        It has an operator and windows.
    schema
        The columns of the events.
    """

    SAME: ClassVar = {"operator": ("bound.query.name", "another query")}
    NUMBERS: ClassVar = {"frontier": ("_frontier", range(ANY.stop))}

    def __init__(self, query: Query, schema: pa.Schema) -> None:
        assert query.operator is not None
        self._make = query.operator
        self.bound = bind_operator(query, schema)
        names = self.bound.partition_by
        added = len(NUMBERING) if query.numbered else 0
        fields = list(self.bound.output)
        self._shown = pa.schema(fields[: len(fields) - added])
        self._given = pa.schema(fields[len(names) : len(fields) - added])
        self._frontier = 0

    @property
    def horizon(self) -> int:
        """As good as none: what operators give is never the same twice, so nobody asks for it."""
        return self._frontier

    @property
    def rows_kept(self) -> int:
        """None: what an operator keeps is its own."""
        return 0

    @property
    @abstractmethod
    def open_windows(self) -> int:
        """How many windows are open."""

    @property
    @abstractmethod
    def partitions_kept(self) -> int:
        """How many partitions have open windows."""

    @abstractmethod
    def earliest(self, time: str) -> int:
        """Return when the first of the open windows started; their times must be known."""

    @abstractmethod
    def restore(
        self, state: State, opened: Windows | None = None, taken: Integers | None = None
    ) -> None:
        """Go on from what `state` returned; see `WindowMatcher.restore`."""
        super().restore(state)

    @abstractmethod
    def _apply(self, groups: dict[int, EventGroup], split: Split) -> WindowMatches:
        """Give operators new events by partition, with what opens and closes."""

    def starts_kept(self) -> int:
        """None: an operator has no partial matches that are known here."""
        return 0

    def step(
        self, events: Events, split: Split, *, arrived: int | None = None, ended: bool = False
    ) -> WindowMatches:
        """Take the next events of the instance's windows and return what their operators give.

        Parameters
        ----------
        events
            In order; between windows some may be left out.
        split
            The instance's windows that open with these events, and those that close.
        arrived
            How many events the whole stream has had, those of other instances included; without it
            the last one of `events` counts.
        ended
            No more events come, and all windows are closed.
        """
        matches = self._apply(_by_partition(events, keyed=bool(self.bound.partition_by)), split)
        last = int(events.arrival[-1]) + 1 if len(events.arrival) else 0
        self._frontier = ENDED if ended else max(self._frontier, last, arrived or 0)
        return matches

    def _matches(
        self,
        keys: Sequence[tuple[object, ...]],
        sizes: Sequence[int],
        given: Iterable[OperatorRows],
        each: RowPlaces,
    ) -> WindowMatches:
        """Return rows in their total order, behind their keys; no two are the same match.

        Each key is that of so many rows.
        """
        rows = fitted_rows(self.bound.query.name, self._given, given)
        known: list[pa.ChunkedArray] = []
        if self.bound.partition_by:
            of_row = pa.array(np.repeat(np.arange(len(keys)), sizes))
            known = self._key_columns(keys).take(of_row).columns[:-1]
        columns = dict(zip(self.bound.partition_by, known, strict=True))
        columns.update(zip(rows.column_names, rows.columns, strict=True))
        offsets = np.arange(rows.num_rows + 1, dtype=np.int64)
        table = with_numbers(
            self.bound,
            pa.table(columns, schema=self._shown),
            each.event,
            each.number,
            each.start_time,
            each.end_time,
        )
        order = each.event, each.phase, each.number, each.partition

        def identify() -> MatchIds:
            window = each.start_time, each.number
            return row_ids(self.bound.query, known, *window, each.given, each.begun_at)

        turn = turns_of(self.bound.query, each.end_time)
        return WindowMatches(table, offsets, *order, identify, turn=turn).ordered()

    def _key_columns(self, keys: Sequence[tuple[object, ...]]) -> pa.Table:
        """Return keys, and a column without values where there may be no key."""
        columns = {
            name: pa.array([key[place] for key in keys], self.bound.output.field(place).type)
            for place, name in enumerate(self.bound.partition_by)
        }
        return pa.table({**columns, "": pa.nulls(len(keys))})

    def _key_of(self, rows: pa.Table) -> tuple[object, ...]:
        """Return the key of events of one partition."""
        names = self.bound.partition_by
        (first,) = rows.slice(0, 1).select(names).to_pylist() or [{}]
        return tuple(first[name] for name in names)


class WindowedApply(OperatorRunner):
    """An operator for each window."""

    def __init__(self, query: Query, schema: pa.Schema) -> None:
        super().__init__(query, schema)
        self._open: dict[int, dict[int, _ServedWindow]] = {}

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return sum(map(len, self._open.values()))

    @property
    def partitions_kept(self) -> int:
        """How many partitions have open windows."""
        return sum(map(bool, self._open.values()))

    def earliest(self, time: str) -> int:
        """Return when the first of the open windows started; their times must be known."""
        starts = (one.start_time for own in self._open.values() for one in own.values())
        return min(starts, default=ENDED)

    def snapshot(self) -> Self:
        """Return a part that stands where this one does; each operator is made again."""
        twin = super().snapshot()
        twin._open = {
            partition: {number: self._again(window) for number, window in own.items()}
            for partition, own in self._open.items()
        }
        return twin

    def state(self) -> State:
        """Return the operators' own states, by window."""
        windows = [window for own in self._open.values() for window in own.values()]
        places = {
            name: pa.array([getattr(window, name) for window in windows], pa.int64())
            for name in _PLACES
        }
        states = pa.array([window.operator.state() for window in windows], pa.binary())
        keys = self._key_columns([window.key for window in windows])
        return super().state().plus(State({}, [pa.table({**places, "state": states}), keys]))

    def restore(
        self, state: State, opened: Windows | None = None, taken: Integers | None = None
    ) -> None:
        """Go on from what `state` returned; see `WindowMatcher.restore`."""
        super().restore(state)
        _, (places, keys) = state.content(2)
        self._open = {}
        keys = typed(keys, self._key_columns([]).schema)
        names = self.bound.partition_by
        partitions = NATURAL if taken is None else range(len(taken))
        bounds = {"partition": partitions, "first": NATURAL, "last": range(-1, NATURAL.stop)}
        bounds["begun_at"] = NATURAL
        read = integers(places, **{name: bounds.get(name, ANY) for name in _PLACES})
        states = parts(places, places.num_rows, "state")
        for kept, key, *place in zip(states, keys.to_pylist(), *read, strict=True):
            operator = self._make()
            operator.restore(kept)
            known = dict(zip(_PLACES, map(int, place), strict=True))
            window = _ServedWindow(operator, key=tuple(key[name] for name in names), **known)
            self._open.setdefault(window.partition, {})[window.number] = window
        require(self.open_windows == len(states), "a window is there twice")
        require_same(opened, *read[:3])

    def _again(self, window: _ServedWindow) -> _ServedWindow:
        operator = self._make()
        operator.restore(window.operator.state())
        return replace(window, operator=operator)

    def _apply(self, groups: dict[int, EventGroup], split: Split) -> WindowMatches:
        self._add(split.opened, groups)
        stops = _stops(split.closed)
        pieces = [
            piece
            for partition, group in groups.items()
            for window in self._open.get(partition, {}).values()
            for piece in self._fed(window, group, stops.get((partition, window.number)))
        ]
        return self._joined([*pieces, *self._closed(split.closed)])

    def _add(self, opened: Windows, groups: dict[int, EventGroup]) -> None:
        places = zip(
            opened.partition.tolist(),
            opened.number.tolist(),
            opened.first.tolist(),
            opened.start_time.tolist(),
            opened.end_time.tolist(),
            strict=True,
        )
        keys: dict[int, tuple[object, ...]] = {}
        for place in places:
            partition, number = place[0], place[1]
            if partition not in keys:
                keys[partition] = self._key_of(groups[partition].rows)
            with OperatorErrors(self.bound, None, keys[partition], number):
                operator = self._make()
            begun_at = groups[partition].arrival_of(place[2])
            window = _ServedWindow(operator, *place, begun_at, keys[partition])
            self._open.setdefault(partition, {})[number] = window

    def _fed(
        self, window: _ServedWindow, group: EventGroup, stop: int | None
    ) -> Iterator[_OutputPiece]:
        """Give a window its new events and yield what they give."""
        low = int(group.ordinal.searchsorted(window.first))
        high = len(group.ordinal) if stop is None else int(group.ordinal.searchsorted(stop))
        if low >= high:
            return
        window.last = int(group.arrival[high - 1])
        operator = window.operator
        if isinstance(operator, EventOperator) and type(operator).process is EventOperator.process:
            yield from self._fed_singly(window, operator, group, low, high)
            return
        with self._window_errors(window):
            rows = operator.process(group.rows.slice(low, high - low))
        yield from self._pieces(window, rows, window.last, COMPLETING)

    def _fed_singly(
        self, window: _ServedWindow, operator: EventOperator, group: EventGroup, low: int, high: int
    ) -> Iterator[_OutputPiece]:
        """Give a window its new events one by one, so that each row has its own event."""
        given: list[Mapping[str, object]] = []
        places: list[int] = []
        with self._window_errors(window):
            for place, event in enumerate(group.events(low, high), start=low):
                given += operator.on_event(event) or ()
                places += [place] * (len(given) - len(places))
        rows = {name: [row.get(name) for row in given] for name in self._given.names}
        yield from self._pieces(window, rows, group.arrival[places], COMPLETING)

    def _closed(self, closed: Windows) -> Iterator[_OutputPiece]:
        places = (closed.partition, closed.number, closed.closed_at, closed.end_time)
        for partition, number, closed_at, end in zip(*(p.tolist() for p in places), strict=True):
            own = self._open[partition]
            window = own.pop(number)
            if not own:
                del self._open[partition]
            window.end_time = end
            phase = CLOSING if closed_at > window.last else COMPLETING
            with self._window_errors(window):
                rows = window.operator.close()
            yield from self._pieces(window, rows, closed_at, phase)

    def _window_errors(self, window: _ServedWindow) -> OperatorErrors:
        return OperatorErrors(self.bound, window.operator, window.key, window.number)

    def _pieces(
        self, window: _ServedWindow, given: OperatorRows, event: int | Integers, phase: int
    ) -> Iterator[_OutputPiece]:
        """Yield what an operator gave, if it gave anything."""
        count = row_count(given)
        if count:
            own = event if isinstance(event, np.ndarray) else np.full(count, event, np.int64)
            yield _OutputPiece(window, given, own, phase, window.given)
            window.given += count

    def _joined(self, pieces: Sequence[_OutputPiece]) -> WindowMatches:
        """Return the rows of all pieces."""
        if not pieces:
            return WindowMatches.none(self.bound.output)
        sizes = [len(piece.event) for piece in pieces]
        windows = [piece.window for piece in pieces]
        single = all(size == 1 for size in sizes)

        def each(values: list[int]) -> Integers:
            found = np.array(values, np.int64)
            return found if single else np.repeat(found, sizes)

        return self._matches(
            [window.key for window in windows],
            sizes,
            (piece.rows for piece in pieces),
            RowPlaces(
                np.concatenate([piece.event for piece in pieces]),
                each([piece.phase for piece in pieces]),
                each([window.number for window in windows]),
                each([window.partition for window in windows]),
                each([window.start_time for window in windows]),
                each([window.end_time for window in windows]),
                each([window.begun_at for window in windows]),
                np.concatenate([np.arange(len(piece.event)) + piece.number for piece in pieces]),
            ),
        )


def _by_partition(events: Events, *, keyed: bool) -> dict[int, EventGroup]:
    """Part events by partition; those of a single one are not copied."""
    if not len(events.arrival):
        return {}
    whole = EventGroup(events.rows, events.ordinal, events.arrival)
    if not keyed:
        return {0: whole}
    partition = events.partition
    if bool((partition == partition[0]).all()):
        return {int(partition[0]): whole}
    order = np.argsort(partition, kind="stable")
    numbers, firsts = np.unique(partition[order], return_index=True)
    stops = [*firsts[1:].tolist(), len(order)]
    rows = events.rows.take(pa.array(order))
    return {
        number: EventGroup(
            rows.slice(low, high - low),
            events.ordinal[order[low:high]],
            events.arrival[order[low:high]],
        )
        for number, low, high in zip(numbers.tolist(), firsts.tolist(), stops, strict=True)
    }


def _stops(closed: Windows) -> dict[tuple[int, int], int]:
    places = zip(closed.partition.tolist(), closed.number.tolist(), strict=True)
    return dict(zip(places, closed.stop.tolist(), strict=True))
