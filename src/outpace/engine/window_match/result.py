"""The matches of windows, with their numbers x:y, in one total order.

The order is that of x, the event that made a match final; at the same x, a match that the end of a
window decided comes before one that an event decided, where the event that closed the window lies
behind it; then that of the window's number y, of sessions that of the time that closes them; then,
of windows of different partitions, that of the starts of their first matches; then the order inside
the window. None of this depends on how the stream is cut, nor on which keys are still known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.kernels.grouping import ORDERED, UNORDERED, order_runs
from outpace.engine.match.contract import Block, BlockMatches, Task
from outpace.engine.match.identity import MATCH_ID, MatchIds
from outpace.engine.match.output import match_rows
from outpace.engine.rows.partition import column_arrays, gather
from outpace.engine.state import ANY, NATURAL, integers, require, typed
from outpace.pattern.bound import BoundQuery
from outpace.pattern.query import Query, RowsPerMatch
from outpace.pattern.types import is_instant, is_integer
from outpace.pattern.windows import SessionWindows, TimeWindows

#: The phases of one x: windows that close behind their last event, then all else.
CLOSING, COMPLETING = 0, 1

#: Matches that lie together share the rows of these and others, where that many are few, or all are
#: at most so many times theirs.
_FEW: Final = 1024
_SHARE: Final = 4

#: What matches are beside their rows, of which each has so many.
MATCH_NUMBERS: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("rows", "event", "phase", "window", "partition")),
        *((name, pa.int64()) for name in ("turn", "start")),
        ("id", MATCH_ID),
    ]
)


#: What of matches may be made when it is asked for.
_MADE: Final = frozenset(("offsets", "event", "phase", "window", "partition", "identify"))


class MatchSayings:
    """What is said of each of some matches, see `WindowMatches`; made when it is asked for.

    Parameters
    ----------
    make
        Returns `diff` and `confirmed`.
    """

    def __init__(self, make: Callable[[], tuple[Integers, Booleans]]) -> None:
        self._make = make

    @cached_property
    def values(self) -> tuple[Integers, Booleans]:
        """For each match whether it is new, and whether it is certain."""
        return self._make()


@dataclass(frozen=True, eq=False)
class WindowMatches:
    """Matches in their total order; arrays have one entry per match.

    Parameters
    ----------
    table
        The result's rows, with all output columns.
    offsets
        Match m has the table's rows `offsets[m]` up to `offsets[m + 1]`.
    event, phase, window, partition
        What the matches are ordered by at first: x, CLOSING or COMPLETING, y, and the partition's
        number, which `by_starts` does without.
        In a stream without windows, CLOSING is what time or the end made final, behind all rows
        that it needs; then that time, else 0, stands for the window, and the start for the
        partition.
    identify
        Returns what tells the matches apart, see `ids`.
    found
        For each, the time before which all that it depends on lies; None where nobody asks.
    turn
        What stands for y in the order, where that is not y: of sessions, whose numbers differ from
        key to key, the time of the last event.
    said
        For each, whether it is new and certain, see `diff` and `confirmed`; None where all are.
    """

    table: pa.Table
    offsets: Integers
    event: Integers
    phase: Integers
    window: Integers
    partition: Integers
    identify: Callable[[], MatchIds]
    found: Integers | None = None
    turn: Integers | None = None
    said: MatchSayings | None = None

    @cached_property
    def ids(self) -> MatchIds:
        """What tells the matches from all others; made when it is asked for."""
        return self.identify()

    @property
    def diff(self) -> Integers:
        """For each match 1 where it is new, -1 where it is taken back, 0 where it stays."""
        return np.ones(len(self), np.int64) if self.said is None else self.said.values[0]

    @property
    def confirmed(self) -> Booleans:
        """For each match whether nothing takes it back any more."""
        return np.ones(len(self), np.bool_) if self.said is None else self.said.values[1]

    @property
    def turns(self) -> Integers:
        """What orders the matches of one x and phase: y, or what stands for it."""
        return self.window if self.turn is None else self.turn

    def __len__(self) -> int:
        return len(self.event)

    def __eq__(self, other: object) -> bool:
        """Say whether the same matches came out, as the same rows."""
        return (
            isinstance(other, WindowMatches)
            and self.table.equals(other.table)
            and bool(np.array_equal(self.diff, other.diff))
            and bool(np.array_equal(self.confirmed, other.confirmed))
            and bool(np.array_equal(self.ids.words, other.ids.words))
        )

    @staticmethod
    def none(schema: pa.Schema) -> WindowMatches:
        """Return no matches."""
        none = np.zeros(0, np.int64)
        offsets = np.zeros(1, np.int64)
        nothing = schema.empty_table()
        return WindowMatches(nothing, offsets, none, none, none, none, lambda: MatchIds.joined([]))

    @property
    def numbers(self) -> dict[str, pa.Array]:
        """All but the rows as columns, which `of_numbers` reads."""
        values = (np.diff(self.offsets), self.event, self.phase, self.window, self.partition)
        columns = [*map(pa.array, (*values, self.turns, self.ids.start)), self.ids.array]
        return dict(zip(MATCH_NUMBERS.names, columns, strict=True))

    @staticmethod
    def of_numbers(numbers: Mapping[str, pa.Array], table: pa.Table) -> WindowMatches:
        """Return the matches with these rows whose numbers are known."""
        *values, written = (numbers[name] for name in MATCH_NUMBERS.names)
        rows, event, phase, window, partition, turn, start = (
            np.asarray(value.to_numpy(zero_copy_only=False), np.int64) for value in values
        )
        offsets = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
        ids = MatchIds.of_array(start, written)
        order = event, phase, window, partition
        return WindowMatches(table, offsets, *order, lambda: ids, turn=turn)

    @staticmethod
    def of_saved(numbers: pa.Table, table: pa.Table) -> WindowMatches:
        """Return matches of a saved state, or refuse what cannot be."""
        numbers = typed(numbers, MATCH_NUMBERS)
        bounds = dict.fromkeys(MATCH_NUMBERS.names[:-1], NATURAL)
        bounds |= {
            "rows": range(table.num_rows + 1),
            "phase": range(CLOSING, COMPLETING + 1),
            "window": ANY,
            "turn": ANY,
        }
        rows, *_ = integers(numbers, **bounds)
        require(rows.sum() == table.num_rows, "matches have other rows")
        require(not numbers.column("id").null_count, "matches have no id")
        return WindowMatches.of_numbers(column_arrays(numbers), table)

    def take(self, chosen: Integers) -> WindowMatches:
        """Return some matches, in the order given.

        Those that lie together are not copied, unless they would hold much more than they are.
        """
        near = max(_FEW, _SHARE * len(chosen)) >= len(self)
        if len(chosen) and near and bool((np.diff(chosen) == 1).all()):
            return self._stretch(slice(int(chosen[0]), int(chosen[-1]) + 1))
        table, offsets = take_rows(self.table, self.offsets, chosen)
        return self._own(chosen, table, lambda: offsets)

    def part(self, begin: int, end: int) -> WindowMatches:
        """Return the matches from one on up to another; as `take`, but nobody looks at them."""
        if max(_FEW, _SHARE * (end - begin)) < len(self):
            return self.take(np.arange(begin, end))
        return self._stretch(slice(begin, end))

    def _stretch(self, own: slice) -> WindowMatches:
        begins = self.offsets[own.start : own.stop + 1]
        first = int(begins[0])
        rows = self.table.slice(first, int(begins[-1]) - first)
        return self._own(own, rows, lambda: begins - first)

    def _own(
        self, own: Integers | slice, table: pa.Table, offsets: Callable[[], Integers]
    ) -> WindowMatches:
        """Return some matches, whose rows are known."""
        known = {"table": table, "event": self.event[own], "identify": lambda: self.ids.take(own)}
        found = None if self.found is None else self.found[own]
        turn = None if self.turn is None else self.turn[own]
        said = None
        if self.said is not None:
            said = MatchSayings(lambda: (self.diff[own], self.confirmed[own]))
        known |= {"found": found, "turn": turn, "said": said}
        return LazyMatches(
            known, lambda name: offsets() if name == "offsets" else getattr(self, name)[own]
        )

    def shown_as(self, table: pa.Table, said: MatchSayings | None) -> WindowMatches:
        """Return the matches with other rows, as many for each, that come, go or stay."""
        return self._with(table=table, said=said)

    def found_by(self, found: Integers) -> WindowMatches:
        """Return the matches, with the time before which all that each depends on lies."""
        return self._with(found=found)

    def _with(self, **other: object) -> WindowMatches:
        """Return the matches with some things that are others."""
        known = {"table": self.table, "said": self.said, "found": self.found, "event": self.event}
        known |= {"turn": self.turn, **other, "identify": lambda: self.ids}
        return LazyMatches(known, lambda name: getattr(self, name))

    def ordered(self) -> WindowMatches:
        """Return the matches by x, phase, turn and partition; those of a window as they come."""
        if len(self) < 2:
            return self
        order = in_total_order(self.event, self.phase, self.turns, self.partition)
        return self if order is None else self.take(order)

    def by_starts(self) -> WindowMatches:
        """Return matches that are `ordered` with partitions in an order that needs no numbers.

        Windows of different partitions that have the same turn come in the order of the starts of
        their first matches. That is known wherever a match is, also where rows that no step can use
        were left out, or where a partition was forgotten and came again.
        """
        together = self._together()
        if not (together & (np.diff(self.partition, prepend=-1) != 0)).any():
            return self
        order = np.lexsort((self.first_starts(), np.cumsum(~together)))
        return self if bool((np.diff(order) == 1).all()) else self.take(order)

    def first_starts(self) -> Integers:
        """Return for each match the start of the first one that its window has at the same x."""
        begins = np.flatnonzero(~self._together() | (np.diff(self.partition, prepend=-1) != 0))
        return np.repeat(self.ids.start[begins], np.diff(begins, append=len(self)))

    def _together(self) -> Booleans:
        """Say which matches have x, phase and turn of the one before."""
        together: Booleans = np.diff(self.event, prepend=-1) == 0
        if together.any():
            for key in (self.phase, self.turns):
                together[1:] &= key[1:] == key[:-1]
        return together

    @staticmethod
    def joined(schema: pa.Schema, parts: Sequence[WindowMatches]) -> WindowMatches:
        """Return the matches of all parts, one part after the other, which are all alike."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return WindowMatches.none(schema)
        if isinstance(parts[0], JointMatches):
            return JointMatches.by_task(parts)
        known = {
            "table": pa.concat_tables([part.table for part in parts]),
            "found": _all_found(parts),
            "turn": _all_turns(parts),
            "said": _all_said(parts),
        }
        return LazyMatches(known, lambda name: _joined(parts, name))


def with_changed_rows(
    parts: Callable[[], Sequence[WindowMatches]],
    table: pa.Table,
    said: MatchSayings,
    *,
    turned: bool,
) -> WindowMatches:
    """Return the matches of all parts with other rows, as many for each, that come, go or stay.

    When they were found is not told; that something else stands for y is.
    """
    known = {"table": table, "said": said, "turn": _all_turns(parts()) if turned else None}
    return LazyMatches(known, lambda name: _joined(parts(), name))


def _joined(parts: Sequence[WindowMatches], name: str) -> object:
    """Return something that matches have for those of all parts, but for rows and what is said."""
    if name == "identify":
        return lambda: MatchIds.joined([part.ids for part in parts])
    if name == "offsets":
        counts = np.concatenate([np.diff(part.offsets) for part in parts])
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return np.concatenate([getattr(part, name) for part in parts])


def _all_said(parts: Sequence[WindowMatches]) -> MatchSayings | None:
    """Return what is said of the matches of all parts; None where all are new and certain."""
    if all(part.said is None for part in parts):
        return None

    def values() -> tuple[Integers, Booleans]:
        diff = np.concatenate([part.diff for part in parts])
        return diff, np.concatenate([part.confirmed for part in parts])

    return MatchSayings(values)


def _all_found(parts: Sequence[WindowMatches]) -> Integers | None:
    """Return by when the matches of parts are found; None where nobody asks."""
    found = [part.found for part in parts if part.found is not None]
    return np.concatenate(found) if found else None


def _all_turns(parts: Sequence[WindowMatches]) -> Integers | None:
    """Return what stands for the numbers of windows in all parts; None where these count."""
    if not [part for part in parts if part.turn is not None]:
        return None
    return np.concatenate([part.turns for part in parts])


class LazyMatches(WindowMatches):
    """Matches of which some things are made when they are asked for first.

    Parameters
    ----------
    known
        The columns that are there already: `table` at least. None where all is, as
        `dataclasses.replace` gives it.
    make
        Returns one of the others by its name.
    made
        Functions that return them, in its place.
    """

    _make: Callable[[str], object]

    def __init__(
        self,
        known: Mapping[str, object] | None = None,
        make: Callable[[str], object] | None = None,
        **made: Any,
    ) -> None:
        if known is None:
            vars(self).update(made)
        else:
            vars(self).update(known, _make=make or (lambda name: made[name]()))

    def __getattr__(self, name: str) -> object:
        if name not in _MADE:
            raise AttributeError(name)
        value = vars(self)[name] = self._make(name)
        return value


class JointMatches(LazyMatches):
    """Matches of several tasks, whose rows have other columns: those of each are a part.

    Together they can be counted, and nothing else.
    """

    parts: tuple[WindowMatches, ...]

    def __init__(self, parts: Sequence[WindowMatches]) -> None:
        super().__init__({"parts": tuple(parts)}, lambda name: _joined(parts, name))

    @staticmethod
    def by_task(every: Sequence[WindowMatches]) -> JointMatches:
        """Return the matches of several steps, those of each task one step after the other."""
        lists = zip(*(one.parts for one in every if isinstance(one, JointMatches)), strict=True)
        return JointMatches([WindowMatches.joined(one[0].table.schema, one) for one in lists])


def turns_of(query: Query, end_time: Integers) -> Integers | None:
    """Return what stands for the numbers of windows in the order of matches; None: these do.

    Sessions of different keys close one after the other, each at its time, whatever its number.
    """
    return end_time if isinstance(query.windows, SessionWindows) else None


def found_matches(
    task: Task,
    block: Block,
    found: BlockMatches,
    event: Integers,
    identify: Callable[[], MatchIds],
    **order: Callable[[], Integers],
) -> WindowMatches:
    """Return matches in partitions: what was found, when, and what else orders them."""
    table, match_of = match_rows(task, block, found, identify)

    def offsets() -> Integers:
        if task.bound.query.rows is RowsPerMatch.ONE:
            return np.arange(len(event) + 1)
        counts = np.bincount(match_of, minlength=len(event))
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    made = {"offsets": offsets, **order}
    known = {"table": table, "event": event, "identify": identify}
    return LazyMatches(known, lambda name: made[name]())


def rows_of_matches(offsets: Integers, *values: Integers) -> list[Integers]:
    """Return values of matches for each of their rows."""
    sizes = np.diff(offsets)
    if bool((sizes == 1).all()):
        return list(values)
    return [np.repeat(value, sizes) for value in values]


def take_rows(table: pa.Table, offsets: Integers, chosen: Integers) -> tuple[pa.Table, Integers]:
    """Return the rows of some matches, in the order given, and where those of each begin."""
    if table.num_rows == len(offsets) - 1 and bool((np.diff(offsets) == 1).all()):
        return _take(table, chosen), np.arange(len(chosen) + 1)
    rows, begins = numbers_of_rows(offsets, chosen)
    return _take(table, rows), begins


def numbers_of_rows(offsets: Integers, chosen: Integers) -> tuple[Integers, Integers]:
    """Return which rows some matches have, and where those of each begin among them."""
    counts = np.diff(offsets)[chosen]
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return np.repeat(offsets[:-1][chosen] - ends[:-1], counts) + np.arange(ends[-1]), ends


def _take(table: pa.Table, rows: Integers) -> pa.Table:
    columns = [gather(column, rows) for column in table.columns]
    return pa.table(columns, schema=table.schema)


def in_total_order(
    event: Integers, phase: Integers, window: Integers, partition: Integers
) -> Integers | None:
    """Return the order of matches by their keys, ties as they come; None where they lie so."""
    order = np.arange(len(event))
    status = order_runs(event, phase, window, partition, order)
    if status == UNORDERED:
        return np.lexsort((partition, window, phase, event))
    return order if status == ORDERED else None


def with_numbers(
    bound: BoundQuery,
    table: pa.Table,
    event: Integers,
    window: Integers,
    start_time: Integers,
    end_time: Integers,
) -> pa.Table:
    """Add the columns that `Query.over(numbered=True)` asks for; arrays have one entry per row.

    Only windows of time know their end before it has come, so other windows have none.
    """
    if bound.output.names == table.column_names:
        return table
    kind = bound.output.field("window_start").type
    timed = isinstance(bound.query.windows, TimeWindows)
    missing = pa.nulls(table.num_rows, kind)
    columns = [
        pa.array(event),
        pa.array(window),
        _times(start_time, kind) if has_time(bound) else missing,
        _times(end_time, kind) if timed else missing,
    ]
    return pa.table([*table.columns, *columns], schema=bound.output)


def has_time(bound: BoundQuery) -> bool:
    """Say whether the first column of the query's order is one of rising times or integers."""
    if not bound.order_by or bound.descending[0]:
        return False
    kind = bound.schema.field(bound.order_by[0]).type
    return is_instant(kind) or is_integer(kind)


def _times(values: Integers, kind: pa.DataType) -> pa.Array:
    """Return event times as values of the time column's type."""
    if not is_instant(kind):
        return pa.array(values).cast(kind)
    instants = pa.array(values).cast(pa.timestamp("us", getattr(kind, "tz", None)))
    return instants.cast(kind, safe=False)
