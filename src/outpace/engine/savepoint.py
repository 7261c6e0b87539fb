"""Savepoints: the values that a lost operator is rebuilt from, beside the retained events.

The savepoint of Lima et al. is ⟨seed, trim, skip⟩. To these come the windows that matches may
still come of, with their numbers and borders, so that events which count windows may be skipped,
too (III-B5), and the counters of the operator. No event is in it: its size grows with the windows
that are open and with keys, not with the events in the windows.

Its bytes are a state (`outpace.engine.state`) in an envelope of its own: they are sent and saved
with every acknowledgement, so numbers and names that most have in common take next to no room.

Paper: Lima et al., sections II-B, III-A and III-B2.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.state import NATURAL, State, narrow_kind, narrowed, parts, reading, require
from outpace.errors import StateError
from outpace.pattern.argument import a_text, a_whole_number, an_instance, listed, shown

#: Where the numbers of events begin, which a savepoint may say that none is trimmed before.
_TRIM: Final = range(-1, NATURAL.stop)
#: What its bytes begin with: a name, a version, how often the rest was packed, and its checksum.
_FRAME: Final = struct.Struct("<7sBBI")
_MAGIC: Final = b"OUTSAVE"
_VERSION: Final = 5
#: The rest, which is packed: query, whether there is a seed and its parts, trim, what is settled,
#: at, turn, then how many ends skip ranges have in which width, and the bytes of the sources.
_NUMBERS: Final = struct.Struct("<16s?12qI3sI")
#: From so many bytes on, which are mostly numbers that count up, a third of what is left is worth
#: three times as long; and what one pass leaves, a thousandth at best, is as even again.
_LONG: Final = 1 << 16
#: The names that are in most savepoints, so that they take next to no room when it is packed.
_USUAL: Final = (
    b'"numbers":{"order":"Reorderer InOrder()","corrected":0,"follows":false,"late":[]},"parts":{'
    b'"order":{"numbers":{"order":["ts"],"runs":[]},"tables":[{"values":{"ts":[0]}},{"values":{'
    b'"__outpace_id":[]}}],"parts":{"clock":{"numbers":{"rule":0,"fractions":[1.0,0.0,0.0,0.0]},'
    b'"tables":[{"rows":14,"columns":{"number":"<i8"}},{"values":{"place":[],"count":[]}},'
    b'{"bytes":304}]}}},"ids":{"tables":[{"values":{"count":[0]}}]}}},"places":{"numbers":{"needed":'
    b'0},"tables":[{"values":{"gap":[0],"length":[0],"source":[0],"ahead":[0]}}]}}}'
    b'"columns":{"windows":"<i2"}}],"parts":{}}}},"held":"places":{"place":"number":"number":"|i1"'
    b'"rows":0,"columns":{"count":"|i1"}}],"parts":{"instance":"query":"stops":"clock":"ids":'
    b'{"columns":{"kept":["|i1",{"parts":{"front":{"numbers":{"ended":false},"parts":{"intake":'
    b'{"numbers":{"order":"OrderedInput","follows":false},"parts":{"order":{"numbers":'
    b'{"watermark":-9223372036854775808},"tables":[{"values":{"ts":[0]}}]}}},"numbers":{"numbers":'
    b'{"arrived":0,"keys":1},"tables":[{"values":{}},{"values":{"number":[]}},{"values":{"count":'
    b'[]}}]},"windows":{"numbers":{"windows":"ByCount(size=0, slide=0, offset=0)'
    b'"ByTime(size=0, slide=0, offset=0)","arrived":0,"watermark":0},"tables":[{"values":'
    b'{"numbers":[0,0]}},{"values":{"kept":[]}}]}}},"windows":{"numbers":{"base":0},"tables":'
    b'[{"rows":0,"columns":{"windows":"<i2"}}]}}}'
)


class MatchPlace(NamedTuple):
    """The place of a match in the order of all; its number is `event:window`, see `WindowMatches`.

    Time may pass several times before the same event: the turn tells the matches of each apart. It
    is 0 where an event completed a match. In a turn the order is that of windows, or what stands
    for their numbers there, and where there are partitions of the starts of their first matches.

    Examples
    --------
    >>> MatchPlace(7, 0, 1, 2) > MatchPlace(7, 0, 0, 3)
    True
    """

    event: int
    phase: int
    turn: int
    order: int
    start: int = 0
    window: int = 0
    partition: int = 0


#: Before all matches.
NOTHING: Final = MatchPlace(-1, 0, 0, 0)


def is_behind(places: Sequence[Integers], last: MatchPlace) -> Booleans:
    """Say which places come behind one; of them there are the columns.

    Examples
    --------
    >>> places = np.array([[3, 3], [1, 1], [0, 0], [0, 2], [0, 0], [0, 2], [0, 0]])
    >>> is_behind(places, MatchPlace(3, 1, 0, 1)).tolist()
    [False, True]
    """
    later = np.zeros(len(places[0]), np.bool_)
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
        something puts events in order, and not they alone decide, how many stimuli it had taken.
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

    @staticmethod
    def of(
        operator: str,
        *,
        at: int,
        trim: int = -1,
        skip: Iterable[int] = (),
        settled: tuple[int, int] | None = None,
        content: bytes = b"",
    ) -> Savepoint:
        """Return the savepoint of an operator of one's own.

        Parameters
        ----------
        operator
            Its name.
        at
            How many events have come: the number of the last one, and 1 more.
        trim
            Events up to this number are of no more use; -1 where all are.
        skip
            The numbers of later events that are of no more use, which rise.
        settled
            The number x:y of the last match that was acknowledged, where a replay gives it again.
        content
            What else `restore` needs; `own` has it again.

        Examples
        --------
        >>> savepoint = Savepoint.of("thirds", at=9, trim=1, skip=[2, 3, 5], content=b"2")
        >>> savepoint.skip.tolist(), savepoint.own
        ([[2, 3], [5, 5]], b'2')
        """
        at = a_whole_number(at, "at", least=0, error=StateError)
        trim = a_whole_number(trim, "trim", least=-1, error=StateError)
        skipped = listed(skip)
        if skipped is None:
            raise StateError(
                f"skip is a list of the numbers of events, not {shown(skip)}",
                hint="write skip=[2, 3, 5]",
            )
        named = [a_whole_number(one, "a number in skip", error=StateError) for one in skipped]
        numbers = np.array([number for number in named if number > trim], np.int64)
        first = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        last = np.append(first[1:], len(numbers))[: len(first)] - 1
        ranges = np.stack([numbers[first], numbers[last]], axis=1)
        if trim >= at or (len(numbers) and not 0 <= numbers[-1] < at):
            raise StateError(
                "a savepoint drops events that have not come",
                detail=f"{at} events have come, trim is {trim}",
                hint="let trim, and all numbers in skip, be less than at",
            )
        if (np.diff(numbers) <= 0).any():
            raise StateError(
                "the numbers that a savepoint skips do not rise",
                hint="write each once, in order: skip=sorted(set(...))",
            )
        place = NOTHING
        if settled is not None:
            parted = listed(settled)
            if parted is None or len(parted) != 2:
                raise StateError(
                    f"settled is the number x:y of a match, not {shown(settled)}",
                    hint="write settled=match.number, or settled=(x, y)",
                )
            x, y = (a_whole_number(one, "a part of settled", error=StateError) for one in parted)
            place = MatchPlace(x, 1, 0, y, window=y)
        an_instance(content, bytes | bytearray | memoryview, "content in bytes", error=StateError)
        own = State({}, [pa.table({"own": pa.array([bytes(content)], pa.binary())})])
        named_by = own_identity(a_text(operator, "the name of an operator", error=StateError))
        return Savepoint(named_by, None, trim, ranges, place, at, 0, own.encode)

    @property
    def own(self) -> bytes:
        """What `of` was given as content."""
        _, (table,) = State.decode(self.content).content(1)
        (own,) = parts(table, 1, "own")
        return own

    @cached_property
    def content(self) -> bytes:
        """The windows, and counters of the operator; made when they are asked for first."""
        return self.make()

    def drops(self, numbers: Integers) -> Booleans:
        """Say which of some events, by their numbers, which rise, it has no more use for.

        Parameters
        ----------
        numbers
            The numbers of the events, rising.
        """
        dropped = np.zeros(len(numbers), np.bool_)
        dropped[: int(np.searchsorted(numbers, self.trim, "right"))] = True
        if len(self.skip):
            # Each interval turns it on before its first event, and off behind its last.
            size = len(numbers) + 1
            turns = np.bincount(np.searchsorted(numbers, self.skip[:, 0]), minlength=size)
            turns -= np.bincount(np.searchsorted(numbers, self.skip[:, 1], "right"), minlength=size)
            dropped |= np.cumsum(turns[:-1]) > 0
        return dropped

    def keeping(self, numbers: Integers, most: int | None = None) -> Savepoint:
        """Return it with the intervals that are skipped, also those told before, or the longest.

        Parameters
        ----------
        numbers
            The numbers of the events that it needs, rising; those that came later do not matter.
        most
            How many intervals at most; by default all.

        Examples
        --------
        >>> savepoint = Savepoint.of("thirds", at=9, trim=1)
        >>> [savepoint.keeping(np.array([4, 5, 9]), most).skip.tolist() for most in (None, 1)]
        [[[2, 3], [6, 8]], [[6, 8]]]
        """
        skip = ranges_between(self.trim, numbers[numbers < self.at], self.at)
        if most is not None and len(skip) > most:
            longest = np.argsort(skip[:, 0] - skip[:, 1], kind="stable")[:most]
            skip = skip[np.sort(longest)]
        return replace(self, skip=skip)

    def encode(self) -> bytes:
        """Return it as bytes."""
        # Distances are small numbers, which are written as such.
        distances = self.skip.ravel() - self.trim
        distances[1:] -= distances[:-1].copy()
        flat = narrowed(distances)
        sources = b"" if self.sources is None else json.dumps(self.sources).encode()
        seed = (0, 0) if self.seed is None else self.seed
        numbers = *seed, self.trim, *self.settled, self.at, self.turn
        head = _NUMBERS.pack(
            self.query.encode(),
            self.seed is not None,
            *numbers,
            len(flat),
            flat.dtype.str.encode(),
            len(sources),
        )
        data = head + flat.tobytes() + sources + self.content
        passes = 1 if len(data) < _LONG else 2
        for _ in range(passes):
            data = _packed(data)
        return _FRAME.pack(_MAGIC, _VERSION, passes, zlib.crc32(data)) + data

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
        body = _unpacked(bytes(data))
        require(len(body) >= _NUMBERS.size, "the savepoint is cut short")
        with reading():
            query, seeded, *numbers, skips, kind, named = _NUMBERS.unpack_from(body)
            x, y, trim, *settled, at, turn = numbers
            width = narrow_kind(kind.decode())
            begin = _NUMBERS.size + skips * width.itemsize
            require(begin + named <= len(body), "the savepoint is cut short")
            distances = np.frombuffer(body, width, skips, _NUMBERS.size).astype(np.int64)
            sources = json.loads(body[begin : begin + named]) if named else None
            known = sources is None or (sources and all(isinstance(one, str) for one in sources))
            require(known, "sources have no names")
            content = body[begin + named :]
            State.decode(content)
            require(x in NATURAL, "the seed is no number of a match")
            require(trim in _TRIM and at in NATURAL and turn in NATURAL, "its numbers are none")
            ends = trim + np.cumsum(distances)
            require(len(ends) % 2 == 0 and (distances >= 0).all(), "skip ranges do not rise")
            require(not len(ends) or ends[-1] < at, "events are skipped that have not come")
            return Savepoint(
                query.rstrip(b"\0").decode(),
                (x, y) if seeded else None,
                trim,
                ends.reshape(-1, 2),
                MatchPlace(*settled),
                at,
                turn,
                lambda: content,
                None if sources is None else tuple(sources),
            )


def ranges_between(trim: int, needed: Integers, at: int) -> Integers:
    """Return the closed intervals of numbers between two that are not needed; those that are rise.

    Examples
    --------
    >>> ranges_between(3, np.array([4, 5, 8]), 10).tolist()
    [[6, 7], [9, 9]]
    """
    edges = np.concatenate([[trim], needed, [at]])
    gaps = np.flatnonzero(np.diff(edges) > 1)
    return np.stack([edges[gaps] + 1, edges[gaps + 1] - 1], axis=1)


def _packed(data: bytes) -> bytes:
    """Return bytes that have much in common with `_USUAL` as fewer ones."""
    level = 1 if len(data) < _LONG else 4
    packer = zlib.compressobj(level, wbits=-12, memLevel=5, zdict=_USUAL)
    return packer.compress(data) + packer.flush()


def _unpacked(data: bytes) -> bytes:
    """Return what was packed, or refuse what is damaged or was written by another release."""
    require(len(data) >= _FRAME.size, "the savepoint is cut short")
    magic, version, passes, checksum = _FRAME.unpack_from(data)
    if magic != _MAGIC:
        raise StateError("these bytes are no savepoint", hint="pass the bytes of a savepoint")
    if version != _VERSION:
        raise StateError(
            f"the savepoint has version {version}, this release reads version {_VERSION}",
            hint="go on with the release that wrote it, or start again from the input",
        )
    body = data[_FRAME.size :]
    if zlib.crc32(body) != checksum:
        raise StateError(
            "the savepoint is damaged",
            detail="its checksum does not fit its content",
            hint="go on with an earlier one, or start again from the input",
        )
    require(passes in (1, 2), "nobody packs so often")
    with reading():
        for _ in range(passes):
            body = zlib.decompressobj(wbits=-12, zdict=_USUAL).decompress(body)
    return body


def own_identity(name: str) -> str:
    """Return what tells an operator of one's own from others."""
    return hashlib.sha256(f"operator {name}".encode()).hexdigest()[:16]
