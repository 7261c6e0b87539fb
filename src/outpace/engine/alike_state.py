"""The states of queries that are matched as one: of each what it would be alone, and of all.

In a saved state each query stands for itself, so one that fails later goes its own way, and who
reads a state need not know which queries were matched as one. Numbers of partitions and of events
are given anew, in their order, which is all that counts of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.rows.key_table import KeyTable
from outpace.engine.split.number import NumberTables
from outpace.engine.state import State
from outpace.engine.window_match.partition_matcher import PartitionTables

#: The column that says which query a row is for, see `JointTasks`.
WHOSE: Final = pa.field("__outpace_whose", pa.int64())


class _Known(NamedTuple):
    """The partitions that an operator knows: keys, numbers, and how many events each has had."""

    keys: pa.Table
    numbers: Integers
    counts: Integers
    room: int
    arrived: int

    @staticmethod
    def of(state: State) -> _Known:
        saved = state.part("front").part("numbers")
        keys, given, counted = NumberTables.of(saved)
        room, arrived = (int(saved.numbers[name]) for name in ("keys", "arrived"))
        if not keys.column_names:
            return _Known(keys, np.arange(room), np.full(room, arrived), room, arrived)
        numbers = _integers(given, "number") if given.num_rows else np.arange(keys.num_rows)
        counts = _integers(counted, "count")
        if len(counts) != len(numbers):
            counts = counts[numbers]
        return _Known(keys, numbers, counts, room, arrived)

    def state(self) -> State:
        """Return what `EventNumbers` reads; partitions are numbered without a gap."""
        header = {"arrived": self.arrived, "keys": len(self.numbers)}
        none = np.zeros(0, np.int64)
        counts = self.counts if self.keys.column_names else none
        numbers, counted = pa.table({"number": none}), pa.table({"count": counts})
        return State(header, NumberTables(self.keys, numbers, counted))


def states_apart(
    whole: State,
    table: KeyTable,
    fresh: State,
    fingerprints: Sequence[str],
    columns: Sequence[Sequence[str]],
) -> list[State]:
    """Return the state of each query, of that of all.

    Parameters
    ----------
    whole, table
        The state of all, and their keys.
    fresh
        The state of one query before it has taken anything.
    fingerprints, columns
        What tells the states of the queries apart, and the columns of rows that each keeps.
    """
    known, alone = _Known.of(whole), _Known.of(fresh)
    count = len(fingerprints)
    key, whose = np.divmod(_integers(known.keys, WHOSE.name), count)
    place = np.searchsorted(table.numbers, key)
    owner, number = np.full(known.room, -1), np.zeros(known.room, np.int64)
    owner[known.numbers] = whose
    of_query = _by_owner(whose, count)
    for chosen in of_query:
        number[known.numbers[chosen]] = np.arange(len(chosen))
    stops, places, rows = PartitionTables.of(whole.part("instance"))
    stopped, kept = (
        _by_owner(owner[_integers(one, "partition")], count) for one in (stops, places)
    )
    stops, places = _renumbered(stops, number), _renumbered(places, number)
    if not alone.keys.column_names:
        # All events of a query without keys are those of its one partition.
        at = places.column_names.index("arrival")
        places = places.set_column(at, "arrival", places.column("ordinal"))
    states = []
    for query, fingerprint in enumerate(fingerprints):
        chosen = of_query[query]
        keys, counts, arrived = alone.keys, known.counts[chosen], known.arrived
        if keys.column_names:
            keys = table.keys.take(place[chosen])
        else:
            arrived = int(counts.sum())
        own = _Known(keys, known.numbers[chosen], counts, known.room, arrived)
        own_rows = rows.select(columns[query]).take(kept[query])
        tables = PartitionTables(stops.take(stopped[query]), places.take(kept[query]), own_rows)
        states.append(_with(fresh, whole, own, tables, fingerprint))
    return states


def states_together(
    fresh: State, table: KeyTable, states: Mapping[int, State], count: int
) -> State:
    """Return the state of all, of those of queries.

    Parameters
    ----------
    fresh, table
        The state of all before they have taken anything, and their keys, which are added.
    states, count
        The states of queries, by their numbers, and how many of these there are.
    """
    parts = {query: _Known.of(one) for query, one in states.items()}
    rooms, tables = 0, [PartitionTables.of(fresh.part("instance"))]
    words = _words(table, parts, count)
    for known, state in zip(parts.values(), states.values(), strict=True):
        number = np.zeros(known.room, np.int64)
        number[known.numbers] = rooms + np.arange(len(known.numbers))
        rooms += len(known.numbers)
        saved = PartitionTables.of(state.part("instance"))
        stops, places = (_renumbered(one, number) for one in (saved.stops, saved.places))
        whose = pa.array(words[_integers(places, "partition")])
        tables.append(PartitionTables(stops, places, saved.rows.append_column(WHOSE, whose)))
    every = _Known(
        pa.table([words], schema=pa.schema([WHOSE])),
        np.arange(rooms),
        np.concatenate([one.counts for one in parts.values()]),
        rooms,
        max(one.arrived for one in parts.values()),
    )
    # Columns that a query does not keep are NULL in its rows.
    joined = (pa.concat_tables(one, promote_options="default") for one in zip(*tables, strict=True))
    latest = max(states.values(), key=lambda one: one.part("instance").numbers["watermark"])
    return _with(fresh, latest, every, PartitionTables(*joined))


def _words(table: KeyTable, parts: Mapping[int, _Known], count: int) -> Integers:
    """Return what says whose each partition of queries is, and add their keys to a table."""
    whose = np.concatenate([np.full(len(one.numbers), query) for query, one in parts.items()])
    keys = pa.concat_tables([one.keys for one in parts.values()])
    if not keys.column_names:
        return whose
    found = table.look_up(keys)
    table.add(found)
    words: Integers = found.numbers[found.codes] * count + whose
    return words


def _by_owner(owner: Integers, count: int) -> list[Integers]:
    """Return the places of what each of so many owns, in order."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, count)))


def _with(
    fresh: State,
    source: State,
    known: _Known,
    tables: PartitionTables,
    fingerprint: str | None = None,
) -> State:
    """Return a state with partitions and rows; time and the end are those of another one."""
    front, instance = fresh.part("front"), fresh.part("instance")
    numbers = {**instance.numbers, "watermark": source.part("instance").numbers["watermark"]}
    numbers |= {} if fingerprint is None else {"query": fingerprint}
    known_parts = {**front.parts, "numbers": known.state()}
    parts = {
        "front": State(source.part("front").numbers, front.tables, known_parts),
        "instance": State(numbers, tables),
    }
    return State(fresh.numbers, fresh.tables, parts)


def _renumbered(table: pa.Table, number: Integers) -> pa.Table:
    """Return a table whose partitions have other numbers."""
    at = table.column_names.index("partition")
    numbers = pa.array(number[_integers(table, "partition")])
    return table.set_column(at, "partition", numbers)


def _integers(table: pa.Table, name: str) -> Integers:
    return np.asarray(table.column(name).to_numpy(), np.int64)
