"""What a replay needs of windows: those that matches may still come of, and events of these.

A replay begins with the first event of these windows, and opens and closes them where they did.

Memory: that of the layout and of the events needed.
Paper: Lima et al., sections III-A and III-B2.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.event import Events
from outpace.engine.front import Front
from outpace.engine.match.bits import with_bits
from outpace.engine.message import Deliver, EventsRecalled, Move
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.arrivals import ArrivedEvents, waiting_ids, without_rows
from outpace.engine.recover.event_needs import NeededEvents, Use
from outpace.engine.recover.layout import WindowLayout
from outpace.engine.recover.match_places import GivenPlaces
from outpace.engine.recover.place_runs import PlaceRuns
from outpace.engine.recover.refusals import missing_events
from outpace.engine.rows.permutation import as_table
from outpace.engine.savepoint import MatchPlace
from outpace.engine.split.windows import OPEN, Split, joined_windows, take_windows
from outpace.engine.state import NATURAL, State, integer
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import DataError
from outpace.pattern.windows import SessionWindows

_NONE: Final = np.zeros(0, np.int64)


class WindowContent:
    """What a savepoint has of windows, as bytes: made when it leaves, which is mostly at once.

    Until then, and until something else is taken, it is read where it stands.
    """

    def __init__(
        self, front: Front, layout: WindowLayout, places: State | None, schema: pa.Schema
    ) -> None:
        self._front, self._layout = front, layout
        self._places, self._schema = places, schema
        self._made: bytes | None = None

    def __call__(self) -> bytes:
        """Return it."""
        if self._made is None:
            parts = {"front": self._front.unscheduled, "windows": self._layout.state()}
            if self._places is not None:
                parts["front"] = without_rows(parts["front"], self._schema)
                parts["places"] = self._places
            self._made = State({}, parts=parts).encode()
        return self._made

    def freeze(self) -> None:
        """Let what is taken next not change it."""
        if self._made is None:
            self._front = self._front.snapshot()


class WindowReplay:
    """The windows that matches may still come of, and which of their events a replay needs.

    Parameters
    ----------
    spec
        The operator.
    use
        Which events its windows may use.
    """

    def __init__(self, spec: OperatorSpec, use: Use) -> None:
        self._spec, self._use, self._keyed = spec, use, bool(spec.bound.partition_by)
        self._bits = with_bits(spec.task) if use is Use.FITTING and spec.task else None
        every = spec.query.duplicates or spec.task is None
        by_time = isinstance(spec.query.windows, SessionWindows)
        self._layout = WindowLayout(keyed=self._keyed, every=every, by_time=by_time)
        self._needed = NeededEvents()
        #: What the last savepoint has of windows, until something else is taken.
        self._unread: weakref.ref[WindowContent] | None = None

    @property
    def numbers(self) -> Integers:
        """The numbers of the events that are needed, or came since the last savepoint."""
        return self._needed.numbers

    @property
    def start_open(self) -> int | None:
        """When the first window started that is open; None where none is."""
        return self._layout.start_open

    def starts(self, matches: WindowMatches) -> Integers:
        """Return what orders matches of windows of different partitions, see `MatchPlace`."""
        return matches.first_starts() if self._keyed else matches.partition

    def turns(self, matches: WindowMatches) -> Integers:
        """Return the turns in which matches of events before a savepoint had come."""
        return self._layout.turns(matches.partition, matches.window)

    def used(self, events: Events) -> Booleans | None:
        """Return which events are used whatever comes of them; None: none is."""
        if self._bits is not None:
            return self._bits.used(events.rows)
        return self._used_by_operator(events) if self._use is Use.EVERY else None

    def _used_by_operator(self, events: Events) -> Booleans:
        """Return which events are used: all, but for those that a user's operator skips."""
        used = np.ones(len(events.arrival), np.bool_)
        make = self._spec.query.operator
        if make is None or not len(used):
            return used
        skipped = make().skips(as_table(events.rows).select(self._spec.kept.names))
        if skipped is None:
            return used
        skipped = np.asarray(skipped)
        if skipped.dtype != np.bool_ or skipped.shape != used.shape:
            raise DataError(
                f"operator {self._spec.query.name} says of {len(used)} events which it skips, "
                f"but not as so many of True and False",
                hint="return one of them for each event from skips(events)",
            )
        return ~skipped

    def take(self, events: Events, used: Booleans | None, split: Split, turn: int) -> None:
        """Note events, which of them are used in any case, and the windows that open and close."""
        self._add(events, used)
        self._needed.use(self._layout.take(events, split, turn))

    def _add(self, events: Events, used: Booleans | None) -> None:
        self._needed.add(events.arrival, events.partition if self._keyed else None, used)

    def use(self, numbers: Integers) -> None:
        """Note that matches have used events."""
        self._needed.use(numbers)

    def save(
        self,
        operator: WholeOperator,
        arrived: ArrivedEvents | None,
        given: GivenPlaces,
        settled: MatchPlace,
    ) -> tuple[Integers, WindowContent]:
        """Drop what nobody needs any more; return the events that are not needed, and the rest.

        Matches come of windows that are live, and stay as long as these are.
        """
        layout, front, needed = self._layout, operator.front, self._needed
        if layout.drop(settled):
            given.keep(settled, layout.floor, layout.holds)
        needed.trim(layout.floor)
        undecided = operator.instance.undecided() if self._use is Use.MATCHED else (_NONE, _NONE)
        skip = self._thin(*undecided)
        places: State | None = None
        if arrived is not None:
            ids = arrived.places.keep(needed.numbers)
            waiting = waiting_ids(front.intake.order.state())
            skip = arrived.keep(np.concatenate([ids, waiting]))
            places = State({"needed": len(ids)}, [arrived.places.table()])
        self.freeze()
        content = WindowContent(front, layout.snapshot(), places, self._spec.arriving)
        self._unread = weakref.ref(content)
        return skip, content

    def _thin(self, partition: Integers, first: Integers) -> Integers:
        """Keep events that are used, or may be as they are behind the first such of a partition."""
        needed = self._needed
        if not self._keyed:
            return needed.keep_used(int(first[0]) if len(first) else OPEN)
        numbers, owner, opened = needed.numbers, needed.partition, self._layout.first
        chosen = needed.used | (numbers >= _floors(owner, partition, first))
        return needed.thin(chosen & (numbers >= _floors(owner, np.arange(len(opened)), opened)))

    def freeze(self) -> None:
        """Let the last savepoint stay what it is, where somebody has it who has not read it."""
        if self._unread is not None and (content := self._unread()) is not None:
            content.freeze()
        self._unread = None

    def stand(
        self,
        front: Front,
        arrived: ArrivedEvents | None,
        content: State,
        rows: pa.Table,
        numbers: Integers,
    ) -> EventsRecalled:
        """Stand where a savepoint was made, and return the events that instances take again."""
        self._layout.restore(content.part("windows"))
        if arrived is not None:
            rows, numbers = _put_in_place(arrived, content.part("places"), rows, front.arrived)
        events = front.recall(rows, numbers)
        split = self._layout.split(events, front.taken)
        self._add(events, self.used(events))
        self._needed.use(self._layout.borders)
        return EventsRecalled(events, split)


def _put_in_place(
    arrived: ArrivedEvents, saved: State, rows: pa.Table, size: int
) -> tuple[pa.Table, Integers]:
    """Return the events that had their turn before a savepoint, in order, and their places."""
    known, (runs,) = saved.content(1)
    arrived.places = PlaceRuns.read(runs, size)
    places = arrived.places.find(arrived.ids)
    at = np.argsort(places, kind="stable")[int((places < 0).sum()) :]
    places = places[at]
    # Others may be there, too; these are, and the first and the last of them.
    if (
        len(at) < integer(known, "needed", NATURAL)
        or not np.isin(arrived.places.ends, places).all()
    ):
        raise missing_events(arrived.came)
    return rows.take(pa.array(at)), places


def blocks_of(moves: Sequence[Move]) -> list[tuple[Events, Split]]:
    """Return events that went on together, with the windows of all instances that got them."""
    found: list[tuple[Events, Split]] = []
    together = False
    for message in moves:
        if isinstance(message, Deliver):
            events, split = message.events, message.split
            if together:
                _, before = found.pop()
                opened = joined_windows(before.opened, split.opened)
                order = np.lexsort((opened.number, opened.partition))
                closed = joined_windows(before.closed, split.closed)
                split = Split(take_windows(opened, order), closed)
            found.append((events, split))
        together = isinstance(message, Deliver)
    return found


def _floors(partition: Integers, names: Integers, values: Integers) -> Integers:
    """Return the value of each event's partition, of those that are named; `OPEN` for others."""
    table = np.full(max(int(names.max(initial=0)), int(partition.max(initial=0))) + 1, OPEN)
    table[names] = values
    floors: Integers = table[partition]
    return floors
