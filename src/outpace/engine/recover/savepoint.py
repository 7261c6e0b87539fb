"""Savepoints: the values that a lost operator is rebuilt from, beside the retained events.

The savepoint of Lima et al. is ⟨seed, trim, skip⟩. To these come the windows that matches may
still come of, with their numbers and borders, so that events which count windows may be skipped,
too (III-B5), and the counters of the operator. No event is in it: its size grows with the windows
that are open and with keys, not with the events in the windows.

Paper: Lima et al., sections II-B, III-A and III-B2.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.event import EVENT_ID
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.state import ANY, NATURAL, State, integer, integers, reading, require
from outpace.errors import StateError
from outpace.pattern.argument import an_instance
from outpace.pattern.notation.print_query import print_identity

#: Where the numbers of events begin, which a savepoint may say that none is trimmed before.
_TRIM: Final = range(-1, NATURAL.stop)
#: The length of what is told, which the content follows.
_SIZE: Final = struct.Struct("<I")


class MatchPlace(NamedTuple):
    """The place of a match in the order of all; its number is `event:window`, see `WindowMatches`.

    Time may pass several times before the same event: the turn tells the matches of each apart, as
    windows of other partitions have numbers of their own. It is 0 where an event completed a match.

    Examples
    --------
    >>> MatchPlace(7, 0, 1, 2) > MatchPlace(7, 0, 0, 3)
    True
    """

    event: int
    phase: int
    turn: int
    window: int
    partition: int = 0


#: Before all matches.
NOTHING: Final = MatchPlace(-1, 0, 0, 0)


def is_behind(places: Integers, last: MatchPlace) -> Booleans:
    """Say which places come behind one; they are columns.

    Examples
    --------
    >>> places = np.array([[3, 3], [1, 1], [0, 0], [0, 2], [0, 0]])
    >>> is_behind(places, MatchPlace(3, 1, 0, 1)).tolist()
    [False, True]
    """
    later = np.zeros(places.shape[1], np.bool_)
    for values, least in zip(places[::-1], last[::-1], strict=True):
        later = (values > least) | ((values == least) & later)
    return later


@dataclass(frozen=True, eq=False)
class Savepoint:
    """The message of an operator to the log of its events, with or without an acknowledgement.

    Parameters
    ----------
    query
        What tells the query and its columns from others.
    seed
        The number x:y of the first match that a replay gives; None where no match has come out.
    trim
        Events up to this number are of no more use; -1 where all are.
    skip
        Closed intervals of numbers of events behind `trim` that are of no more use, a row for each.
        They are those that were not told before: the log has dropped the others.
    settled
        A place before the first match that was not acknowledged: a replay gives those behind it.
    at
        How many events the operator had taken.
    turn
        How often it had given matches without an event, as time passed or the input ended; where
        something puts events in order, how many stimuli it had taken.
    make
        Returns the windows, and counters of the operator, as the bytes of a `State`.
    sources
        The identifiers of several sources; None where there is one.

    Examples
    --------
    >>> skip = np.array([[2, 3], [5, 9]])
    >>> settled = MatchPlace(5, 1, 0, 4)
    >>> savepoint = Savepoint("q", (3, 3), 1, skip, settled, 10, 0, State({}).encode)
    >>> again = Savepoint.decode(savepoint.encode())
    >>> again.seed, again.trim, again.skip.tolist()
    ((3, 3), 1, [[2, 3], [5, 9]])
    """

    query: str
    seed: tuple[int, int] | None
    trim: int
    skip: Integers
    settled: MatchPlace
    at: int
    turn: int
    make: Callable[[], bytes] = field(repr=False)
    sources: tuple[str, ...] | None = None

    @cached_property
    def content(self) -> bytes:
        """The windows, and counters of the operator; made when they are asked for first."""
        return self.make()

    def drops(self, numbers: Integers) -> Booleans:
        """Say which of some events, by their numbers, it has no more use for.

        Parameters
        ----------
        numbers
            The numbers of the events.
        """
        at = np.searchsorted(self.skip[:, 0], numbers, "right") - 1
        known = at >= 0
        skipped = np.zeros(len(numbers), np.bool_)
        skipped[known] = numbers[known] <= self.skip[at[known], 1]
        return skipped | (numbers <= self.trim)

    def check(self, spec: OperatorSpec) -> None:
        """Refuse to be the savepoint of another query.

        Parameters
        ----------
        spec
            The operator that is to go on from it.
        """
        if self.query != identity_of(spec):
            raise StateError(
                "the savepoint belongs to another query or another schema",
                hint="go on with the query that it was made by, or start from the input",
            )
        if self.sources != spec.sources:
            named = [", ".join(one) if one else "none" for one in (self.sources, spec.sources)]
            raise StateError(
                "the savepoint belongs to other sources",
                detail=f"it has {named[0]}, now there are {named[1]}",
                hint="go on with the sources that it was made with, or start from the input",
            )

    def encode(self) -> bytes:
        """Return it as bytes."""
        numbers: dict[str, object] = {
            "savepoint": self.query,
            "seed": None if self.seed is None else list(self.seed),
            "trim": self.trim,
            "settled": list(self.settled),
            "at": self.at,
            "turn": self.turn,
        }
        if self.sources is not None:
            numbers["sources"] = list(self.sources)
        # Distances are small numbers, which are written as such.
        flat = np.diff(self.skip.ravel(), prepend=self.trim)
        told = State(numbers, [pa.table({"skip": flat})]).encode()
        return _SIZE.pack(len(told)) + told + self.content

    @staticmethod
    def decode(data: bytes) -> Savepoint:
        """Read what `encode` wrote; raise `StateError` for anything else.

        Parameters
        ----------
        data
            The bytes that `encode` wrote.
        """
        hint = "pass the bytes of a savepoint"
        an_instance(
            data, bytes | bytearray | memoryview, "a savepoint", hint=hint, error=StateError
        )
        require(len(data) > _SIZE.size, "the savepoint is cut short")
        (size,) = _SIZE.unpack_from(data)
        require(size < len(data) - _SIZE.size, "the savepoint is cut short")
        state = State.decode(bytes(data[_SIZE.size : _SIZE.size + size]))
        content = bytes(data[_SIZE.size + size :])
        State.decode(content)
        with reading():
            numbers, (table,) = state.content(1)
            query, seed = numbers.get("savepoint"), numbers.get("seed")
            require(isinstance(query, str), "these bytes are no savepoint")
            known = seed is None or len(seed) == 2
            require(known, "the seed is no number of a match")
            if seed is not None:
                pair = {"x": seed[0], "y": seed[1]}
                seed = integer(pair, "x", NATURAL), integer(pair, "y")
            trim, at = integer(numbers, "trim", _TRIM), integer(numbers, "at", NATURAL)
            place = {str(key): value for key, value in enumerate(numbers["settled"])}
            require(len(place) == len(MatchPlace._fields), "what is settled has no place")
            settled = MatchPlace(*(integer(place, key) for key in place))
            (distances,) = integers(table, skip=ANY)
            ends = trim + np.cumsum(distances)
            require(len(ends) % 2 == 0 and (distances >= 0).all(), "skip ranges do not rise")
            require(not len(ends) or ends[-1] < at, "events are skipped that have not come")
            turn, skip = integer(numbers, "turn", NATURAL), ends.reshape(-1, 2)
            named = numbers.get("sources")
            known = named is None or (named and all(isinstance(one, str) for one in named))
            require(known, "sources have no names")
            sources = None if named is None else tuple(named)
            return Savepoint(
                str(query), seed, trim, skip, settled, at, turn, lambda: content, sources
            )


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
