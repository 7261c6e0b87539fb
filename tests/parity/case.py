"""A case: a query, the events that it is asked about, and how they are fed to a stream."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import outpace as op

Row: TypeAlias = "dict[str, Any]"
#: A run as the oracle has it: (event, variable) in order.
Run: TypeAlias = "tuple[tuple[int, str], ...]"
#: Whether an event fits a variable after a run, written in Python.
Holds: TypeAlias = "Callable[[Sequence[Row], int, Run], bool]"


@dataclass(frozen=True)
class Push:
    rows: pa.Table
    source: str | None = None


@dataclass(frozen=True)
class Advance:
    time: int | datetime.datetime


@dataclass(frozen=True)
class Heartbeat:
    source: str
    time: int | datetime.datetime


@dataclass(frozen=True)
class Finish:
    source: str | None = None


Step: TypeAlias = "Push | Advance | Heartbeat | Finish"


@dataclass(frozen=True)
class Case:
    """What is asked.

    Parameters
    ----------
    name
        Of the case among those of its file.
    query
        What to detect.
    table
        All events, for `op.match`; None where only a stream is asked.
    steps
        How a stream is fed; none where only a table is asked.
    sources
        Of the stream.
    then
        A query over the matches of the first one.
    instances
        Numbers of processes that give the same result as one.
    holds
        Definitions in Python, for the oracle; other variables hold for events of their kind.
    """

    name: str
    query: op.Query
    table: pa.Table | None = None
    steps: tuple[Step, ...] = ()
    sources: tuple[str, ...] | None = None
    then: op.Query | None = None
    instances: tuple[int, ...] = ()
    holds: Mapping[str, Holds] = field(default_factory=dict)


# --- Events: the same on every machine ------------------------------------------------------------


def numbers(seed: int, count: int, below: int) -> npt.NDArray[np.int64]:
    """Return numbers from 0 on; NumPy keeps the raw output of a bit generator the same."""
    raw = np.asarray(np.random.PCG64(seed).random_raw(count), np.uint64)
    return (raw % np.uint64(below)).astype(np.int64)


def events(size: int, seed: int, *, kinds: str = "abcd", gap: int = 3) -> pa.Table:
    """Return events in order of time; some have equal times, and some no value."""
    values = [None if value == 0 else int(value) for value in numbers(seed + 3, size, 20)]
    return pa.table(
        {
            "ts": np.cumsum(numbers(seed, size, gap)),
            "id": np.arange(size),
            "kind": [kinds[number] for number in numbers(seed + 1, size, len(kinds))],
            "key": [f"k{number}" for number in numbers(seed + 2, size, 3)],
            "v": pa.array(values, pa.int64()),
            "price": numbers(seed + 4, size, 400) / 8,
        }
    )


def timed(table: pa.Table) -> pa.Table:
    """Return events whose times are timestamps, a second for each unit."""
    micros = pa.array(table["ts"].to_numpy() * 1_000_000)
    return table.set_column(0, "ts", micros.cast(pa.timestamp("us", "UTC")))


def fed(table: pa.Table, sizes: Iterable[int] = (1, 12, 0, 17, 2, 9)) -> tuple[Step, ...]:
    """Return pushes of a table; each third is followed by the time that the next event has."""
    steps: list[Step] = []
    start = 0
    for number, size in enumerate(cycle(sizes)):
        if start >= table.num_rows:
            break
        steps.append(Push(table.slice(start, size)))
        start += size
        if number % 3 == 2 and start < table.num_rows:
            steps.append(Advance(table["ts"][start].as_py()))
    return (*steps, Finish())


def delayed(table: pa.Table, seed: int, most: int) -> pa.Table:
    """Return events in an order in which none comes behind one that is more than `most` later."""
    arrival = table["ts"].to_numpy() + numbers(seed, table.num_rows, most + 1)
    return table.take(pa.array(np.argsort(arrival, kind="stable")))


def by_source(table: pa.Table, sources: Sequence[str], seed: int) -> dict[str, pa.Table]:
    """Give each event to a source, with a number in it."""
    which = numbers(seed, table.num_rows, len(sources))
    parts = {}
    for number, source in enumerate(sources):
        rows = table.filter(pa.array(which == number))
        parts[source] = rows.append_column("seq", pa.array(np.arange(rows.num_rows)))
    return parts


def merged(parts: Mapping[str, pa.Table]) -> pa.Table:
    """Return the events of all sources in the order (time, sequence number, source)."""
    rows = [
        (row["ts"], row["seq"], source, row)
        for source, part in parts.items()
        for row in part.to_pylist()
    ]
    ordered = [row for *_, row in sorted(rows, key=lambda row: row[:3])]
    return pa.Table.from_pylist(ordered, schema=next(iter(parts.values())).schema)


def in_turns(
    parts: Mapping[str, pa.Table], sizes: Iterable[int] = (7, 2, 9, 5)
) -> tuple[Step, ...]:
    """Feed sources in turns; after each round the last one says how far it is, and all end."""
    steps: list[Step] = []
    starts = dict.fromkeys(parts, 0)
    turns = cycle(sizes)
    while any(starts[source] < part.num_rows for source, part in parts.items()):
        for source, part in parts.items():
            size = next(turns)
            steps.append(Push(part.slice(starts[source], size), source))
            starts[source] += size
        if starts[source] < part.num_rows:
            steps.append(Heartbeat(source, part["ts"][starts[source]].as_py()))
    return (*steps, *(Finish(source) for source in list(parts)[:-1]), Finish())


def kinds(pattern: str, **definitions: str) -> op.Query:
    """Return a query whose variables are kinds of events unless they are defined."""
    letters = sorted({*re.findall(r"\b[A-D]\b", pattern)} - {*definitions})
    query = op.Query("q").order_by("ts").pattern(pattern)
    query = query.define({name: f"kind = '{name.lower()}'" for name in letters})
    return query.define(definitions)


def traced(pattern: str, **definitions: str) -> op.Query:
    """Return a query that tells which events a match took, and as what."""
    ids, labels = "ARRAY_AGG(id)", "ARRAY_AGG(CLASSIFIER())"
    return kinds(pattern, **definitions).measures(ids=ids, labels=labels)


def named(cases: Iterable[Case]) -> dict[str, Case]:
    """Return cases by their names, each of which there is once."""
    found: dict[str, Case] = {}
    for case in cases:
        assert case.name not in found, case.name
        found[case.name] = case
    return found
