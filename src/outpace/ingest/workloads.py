"""Workloads for benchmarks: deterministic input of any size, and the queries over it.

Column values come from splitmix64 of the row number, so every machine and every language can make
the same input. Types are single bytes: 0 stands for `a`, 1 for `b` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.arrays import Integers, Unsigned
from outpace.pattern.query import Query
from outpace.pattern.windows import CountWindows, TimeWindows, WindowSpec

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

KEYS = 1000
_WALK_FROM = 10000


def splitmix64(values: Unsigned) -> Unsigned:
    """Return the splitmix64 hash of each number.

    Examples
    --------
    >>> [hex(int(value)) for value in splitmix64(np.array([0], np.uint64))]
    ['0xe220a8397b1dcdaf']
    """
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


def random_numbers(stream: int, size: int, start: int = 0) -> Unsigned:
    """Return numbers of one of many independent streams, from a place in it on.

    Examples
    --------
    >>> bool((random_numbers(1, 5)[2:] == random_numbers(1, 3, start=2)).all())
    True
    """
    seed = splitmix64(np.array([stream], np.uint64))[0]
    # Adding to a scalar would warn of the wrap-around that is meant here.
    return splitmix64(np.full(size, seed) + np.arange(start, start + size, dtype=np.uint64))


def events(size: int) -> pa.Table:
    """Return the input of all workloads.

    `ts` counts rows; `type` is one of ten; `key` one of a thousand; `walk` a random walk for each
    key from 10000 on; `t4` is 0, 1 or 2 with shares 2, 6 and 2 of ten; `p4` is between 0 and 999.

    Examples
    --------
    >>> events(3).column_names
    ['ts', 'type', 'key', 'walk', 't4', 'p4']
    """
    return _events(0, size, np.full(KEYS, _WALK_FROM))


def event_pieces(size: int, rows: int = 1 << 20) -> Iterator[pa.Table]:
    """Return the same input piece by piece; it holds one piece of `rows` rows at a time.

    Examples
    --------
    >>> [piece.num_rows for piece in event_pieces(7, rows=3)]
    [3, 3, 1]
    """
    walked = np.full(KEYS, _WALK_FROM)
    for start in range(0, size, rows):
        yield _events(start, min(rows, size - start), walked)


def _events(start: int, size: int, walked: Integers) -> pa.Table:
    """Return some rows; `walked` is where the walk of each key stands before, then after them."""
    key = (random_numbers(2, size, start) % np.uint64(KEYS)).astype(np.int32)
    moves = (random_numbers(3, size, start) % np.uint64(7)).astype(np.int64) - 3
    tenth = (random_numbers(4, size, start) % np.uint64(10)).astype(np.int8)
    return pa.table(
        {
            "ts": np.arange(start, start + size, dtype=np.int64),
            "type": (random_numbers(1, size, start) % np.uint64(10)).astype(np.int8),
            "key": key,
            "walk": walk_by_key(key, moves, walked),
            "t4": np.digitize(tenth, [2, 8]).astype(np.int8),
            "p4": (random_numbers(5, size, start) % np.uint64(1000)).astype(np.int32),
        }
    )


def walk_by_key(key: npt.NDArray[Any], moves: Integers, walked: Integers) -> Integers:
    """Add up the moves of each key on their own, from where its walk stands to where it gets.

    Examples
    --------
    >>> walked = np.array([10, 20])
    >>> walk_by_key(np.array([0, 1, 0]), np.array([1, 1, 1]), walked).tolist(), walked.tolist()
    ([11, 21, 12], [12, 21])
    """
    # Sixteen bits are enough for the keys, and sorting them takes a third of the time.
    order = np.argsort(key.astype(np.uint16), kind="stable")
    total = np.cumsum(moves[order])
    counts = np.bincount(key, minlength=len(walked))
    ends = np.concatenate([[0], total])[np.cumsum(counts)]
    before = np.concatenate([[0], ends[:-1]])
    walk = np.empty_like(total)
    walk[order] = total + np.repeat(walked - before, counts)
    walked += ends - before
    return walk


def _sequence() -> Query:
    return (
        Query("chain")
        .order_by("ts")
        .pattern("A -> B -> C -> D -> E")
        .define({name: f"type = {number}" for number, name in enumerate("ABCDE")})
        .measures(start="FIRST(ts)", end="LAST(ts)", length="COUNT(*)")
    )


def _chain(within: int) -> Query:
    return _sequence().within(within)


def _windowed(windows: WindowSpec) -> Query:
    """Find the chains of every window, each as often as windows hold it, with their numbers."""
    return _sequence().over(windows, duplicates=True, numbered=True)


def _strict(within: int) -> Query:
    return (
        Query("strict")
        .order_by("ts")
        .pattern("A B C")
        .define(A="type = 0", B="type = 1", C="type = 2")
        .measures(start="FIRST(ts)", end="LAST(ts)", length="COUNT(*)")
        .within(within)
    )


def _dip(pattern: str, end: str, **more: str) -> Query:
    return (
        Query("dip")
        .partition_by("key")
        .order_by("ts")
        .pattern(pattern)
        .define(DOWN="walk < PREV(walk)", UP="walk > PREV(walk)", **more)
        .measures(start="STRT.ts", end=end, length="COUNT(*)")
    )


def _rising(pattern: str) -> Query:
    # SUM and COUNT in the definition of B include the row in question.
    above = "COUNT(B.p4) = 1 OR B.p4 > (SUM(B.p4) - B.p4) / (COUNT(B.p4) - 1)"
    return (
        Query("rising")
        .partition_by("key")
        .order_by("ts")
        .pattern(pattern)
        .define(A="t4 = 0", B=f"t4 = 1 AND ({above})", C="t4 = 2")
        .measures(start="FIRST(ts)", end="LAST(ts)", length="COUNT(*)")
        .within(100_000)
    )


#: The queries by their names; see bench/README.md.
WORKLOADS: Mapping[str, Callable[[], Query]] = {
    "w1": lambda: _chain(1000),
    "w1n": lambda: _chain(1000).no_skip(),
    "w1t": lambda: _chain(50),
    "w1tn": lambda: _chain(50).no_skip(),
    "w1k": lambda: _chain(1_000_000).partition_by("key"),
    "w1kn": lambda: _chain(1_000_000).partition_by("key").no_skip(),
    "w2": lambda: _strict(1000),
    "w2k": lambda: _strict(1_000_000).partition_by("key"),
    "w3a": lambda: _dip("STRT DOWN+ UP+ FIN", "LAST(UP.ts)", FIN="walk <= PREV(walk)").skip_to_last(
        "UP"
    ),
    "w3b": lambda: _dip("STRT DOWN+ UP", "UP.ts"),
    "w4s": lambda: _rising("A B+ C"),
    "w4r": lambda: _rising("A -> B+ -> C"),
    "w5t": lambda: _windowed(TimeWindows(1000, 50)),
    # As some systems count: a window ends after every 50 events, the first ones are shorter.
    "w5c": lambda: _windowed(CountWindows(1000, 50, offset=-950)),
    "w5k": lambda: _windowed(TimeWindows(1_000_000, 50_000)).partition_by("key"),
}
