"""Events as they arrived, where something puts them in order: their numbers, and their ids.

They are retained by the numbers that they arrived with. Windows and matches know them by their
places in the order, and ids tell which event is in which place. An order is saved without the
events that wait in it: of these the ids are enough, as long as the events are retained.

Memory: two integers for each event that is needed, or that came since the last savepoint, and three
for each run of places (`place_runs`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import EVENT_ID
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.event_needs import dropped_ranges
from outpace.engine.recover.place_runs import PlaceRuns
from outpace.engine.rows.times import as_integers
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State, require
from outpace.pattern.notation.print_query import print_identity


class ArrivedEvents(Stateful):
    """Events that are retained, in the order of their arrival.

    Parameters
    ----------
    came
        How many events have arrived.
    numbers, ids
        Those of the events that are retained.

    Examples
    --------
    >>> arrived = ArrivedEvents()
    >>> arrived.take(np.array([70, 80, 90]))
    >>> arrived.places.take(np.array([0, 1]), np.array([80, 70]))
    >>> arrived.keep(arrived.places.keep(np.array([0]))).tolist(), arrived.numbers.tolist()
    ([[0, 0], [2, 2]], [1])
    """

    CHANGED = ("_added", "places")

    def __init__(
        self, came: int = 0, numbers: Integers | None = None, ids: Integers | None = None
    ) -> None:
        none = np.zeros(0, np.int64)
        self.came = came
        self._numbers = none if numbers is None else numbers
        self._ids = none if ids is None else ids
        self._added: list[Integers] = []
        #: The places of events in the order.
        self.places = PlaceRuns()

    @property
    def numbers(self) -> Integers:
        """The numbers of the events that are retained."""
        return self._joined()[0]

    @property
    def ids(self) -> Integers:
        """The ids of the events that are retained."""
        return self._joined()[1]

    def take(self, ids: Integers) -> None:
        """Take the ids of the next events."""
        self._added.append(ids)
        self.came += len(ids)

    def keep(self, ids: Integers, before: int | None = None) -> Integers:
        """Keep some of the events that came before a number, or of all, and return the others.

        As closed intervals of numbers, and only those that were not dropped earlier.
        """
        numbers, known = self._joined()
        kept = np.isin(known, ids)
        if before is not None:
            kept |= numbers >= before
        self._numbers, self._ids = numbers[kept], known[kept]
        return dropped_ranges(numbers, kept)

    def _joined(self) -> tuple[Integers, Integers]:
        if self._added:
            ids = np.concatenate([self._ids, *self._added])
            fresh = len(ids) - len(self._ids)
            self._numbers = np.concatenate([self._numbers, np.arange(self.came - fresh, self.came)])
            self._ids, self._added = ids, []
        return self._numbers, self._ids


def waiting_ids(state: State) -> Integers:
    """Return the ids of the events that a saved state has."""
    found = [as_integers(table.column(EVENT_ID.name)) for table in _event_tables(state)]
    return np.concatenate([np.zeros(0, np.int64), *found])


def without_rows(state: State, schema: pa.Schema) -> State:
    """Return a state with the ids alone of events that have the columns of a schema.

    Columns that an order has added to them stay.
    """
    dropped = {*schema.names} - {EVENT_ID.name}
    tables = [
        table.drop_columns([name for name in table.column_names if name in dropped])
        if EVENT_ID.name in table.column_names
        else table
        for table in state.tables
    ]
    parts = {name: without_rows(part, schema) for name, part in state.parts.items()}
    return replace(state, tables=tables, parts=parts)


def with_rows(state: State, rows: pa.Table, schema: pa.Schema) -> State:
    """Return what `without_rows` left with the events again, of which some rows have all."""
    known = as_integers(rows.column(EVENT_ID.name))

    def filled(state: State) -> State:
        parts = {name: filled(part) for name, part in state.parts.items()}
        return replace(state, tables=[*map(filled_table, state.tables)], parts=parts)

    def filled_table(table: pa.Table) -> pa.Table:
        if EVENT_ID.name not in table.column_names:
            return table
        places = find_places(as_integers(table.column(EVENT_ID.name)), known)
        require((places >= 0).all(), "an event that waits is missing")
        events = rows.select(schema.names).take(pa.array(places))
        for name in table.column_names:
            if name != EVENT_ID.name:
                events = events.append_column(table.schema.field(name), table.column(name))
        return events

    return filled(state)


def find_places(wanted: Integers, known: Integers) -> Integers:
    """Return where numbers or ids are among those known, each once in any order; -1: nowhere.

    Examples
    --------
    >>> find_places(np.array([7, 8, 5]), np.array([5, 9, 7])).tolist()
    [2, -1, 0]
    """
    order = np.argsort(known, kind="stable")
    places = np.searchsorted(known, wanted, sorter=order)
    there = places < len(known)
    found = np.full(len(wanted), -1)
    found[there] = order[places[there]]
    there[there] = known[found[there]] == wanted[there]
    return np.where(there, found, -1)


def _event_tables(state: State) -> Iterator[pa.Table]:
    for table in state.tables:
        if EVENT_ID.name in table.column_names:
            yield table
    for part in state.parts.values():
        yield from _event_tables(part)


def is_put_in_order(spec: OperatorSpec) -> bool:
    """Say whether events have other places in the order than they arrived in."""
    return spec.disorder is not None or spec.sources is not None


def retained_schema(spec: OperatorSpec) -> pa.Schema:
    """Return the columns of events that a replay needs.

    Those that are put in order are retained as they came, with their ids.
    """
    if is_put_in_order(spec):
        return spec.schema.append(EVENT_ID)
    bound = spec.bound
    wanted = {*spec.events.names, *bound.order_by, *bound.partition_by}
    needed = [field for field in spec.schema if field.name in wanted]
    return pa.schema(needed or [spec.schema.field(0)])


def identity_of(spec: OperatorSpec) -> str:
    """Return what tells a query and the columns of its events from others."""
    columns = retained_schema(spec).to_string(show_field_metadata=False)
    return hashlib.sha256(f"{print_identity(spec.query)}\n{columns}".encode()).hexdigest()[:16]
