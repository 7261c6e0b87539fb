"""Generated events as a stream without an end: by rate, with bursts, some of them late.

Any stretch of the stream is the same whenever and wherever it is made, so what was read before a
crash can be read again. A reader holds the events of one batch and of the longest delay.

A share of the events is held up, each for a time of its own up to the longest. Which and for how
long is a function of the event's number and a seed, so any part of the stream can be made without
the rest. The stream goes by ticks: event n, if nothing holds it up, comes at tick n, and a delayed
one at the first tick that is not before the end of its delay, ahead of the event of that tick. So
no event is late for K-slack with the longest delay, and each event comes once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.kernels.hashing import draw_below
from outpace.errors import BindError, DataError, did_you_mean
from outpace.ingest.generators import (
    BEGINNING_US,
    GeneratedSource,
    building,
    football,
    simple_events,
    stock_events,
)
from outpace.ingest.rate import Rate
from outpace.ingest.source import BATCH_ROWS
from outpace.ingest.workloads import splitmix64

_MILLION: Final = 1_000_000
#: Draws have 32 bits.
_LONGEST_US: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Delays:
    """Which events come late, and when.

    Parameters
    ----------
    rate
        When events happen.
    longest_us
        The longest delay in microseconds; 0 is none.
    share
        Which share of the events is delayed, from 0 to 1.
    seed
        Another seed delays other events.
    events
        How many there are: what is held up at the end comes with the last one. None is no end.

    Examples
    --------
    >>> late = Delays(Rate.of(10), longest_us=300_000, share=0.5, seed=2, events=8)
    >>> late.arriving(0, 8).tolist()
    [0, 1, 3, 2, 4, 5, 6, 7]
    >>> late.arriving(0, 3).tolist() + late.arriving(3, 8).tolist()
    [0, 1, 3, 2, 4, 5, 6, 7]
    """

    rate: Rate
    longest_us: int = 0
    share: float = 0.1
    seed: int = 1
    events: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.longest_us <= _LONGEST_US:
            raise DataError(f"events are delayed by 0 to {_LONGEST_US // _MILLION} seconds")
        if not 0 <= self.share <= 1:
            raise DataError(f"the share of delayed events is from 0 to 1, not {self.share}")

    def reach(self, tick: int) -> int:
        """Return the first event that may come at a tick or later."""
        if not self.longest_us or not tick:
            return tick
        before = self.rate.times(np.array([tick - 1], np.int64))
        return int(self.rate.happened(before - self.longest_us)[0])

    def arriving(self, first: int, stop: int) -> Integers:
        """Return the numbers of the events that come from tick `first` to before `stop`, in order.

        It holds so many numbers, and those of the longest delay before them.
        """
        numbers, ticks = self._between(first, stop)
        # Numbers rise, and the event of a tick has the largest of all that come at it.
        return numbers[np.argsort(ticks, kind="stable")]

    def cut(self, first: int, stop: int, events_max: int) -> int:
        """Return a tick up to `stop` before which at most so many events come, as late as it can.

        It is one tick at least, even where more events come at that. It holds the numbers of two
        longest delays, however many events are asked for.
        """
        held = self._held(first)
        # Up to here at most so many come, as each tick has one event that happens at it.
        near = min(stop, max(first, first + events_max - held))
        room = events_max - (near - first + held - self._held(near))
        ends = self.rate.times(np.array([near], np.int64)) + self.longest_us
        stop = min(stop, int(self.rate.happened(ends)[0]) + 1)
        ticks = self._between(near, stop)[1]
        if len(ticks) <= room:
            return max(stop, near)
        return max(near, first + 1, int(np.partition(ticks, room)[room]))

    def _held(self, tick: int) -> int:
        """Return how many events that happened before a tick have not come before it."""
        if not self.longest_us:
            return 0
        return int((self._ticks(np.arange(self.reach(tick), tick, dtype=np.int64)) >= tick).sum())

    def _between(self, first: int, stop: int) -> tuple[Integers, Integers]:
        numbers = np.arange(self.reach(first), stop, dtype=np.int64)
        ticks = self._ticks(numbers)
        here = (ticks >= first) & (ticks < stop)
        return numbers[here], ticks[here]

    def _ticks(self, numbers: Integers) -> Integers:
        """Return the tick at which each of some numbers in a row comes."""
        if not self.longest_us or not len(numbers):
            return numbers
        (late,) = np.nonzero(self._draw(0, numbers, _MILLION) < round(self.share * _MILLION))
        delays = 1 + self._draw(1, numbers, self.longest_us)[late]
        ticks = numbers.copy()
        ticks[late] = self.rate.happened(self.rate.times(numbers[late]) + delays - 1)
        return ticks if self.events is None else np.minimum(ticks, self.events - 1)

    def _draw(self, which: int, numbers: Integers, below: int) -> Integers:
        # Generators draw from streams of their own, which the bit keeps apart from these.
        stream = np.array([(self.seed << 1 | which) ^ (1 << 62)], np.int64).view(np.uint64)
        drawn = np.empty(len(numbers), np.int64)
        draw_below(splitmix64(stream)[0], int(numbers[0]), below, drawn)
        return drawn


#: The most events that a stream without an end counts.
_ENDLESS: Final = 1 << 53


@dataclass(frozen=True)
class EventStream:
    """Events in the order in which they come, which a delay may change.

    The stream goes by ticks; without delays, event n is tick n.

    Parameters
    ----------
    kind
        "simple", "stock", "football" or "building": see `outpace.sources`.
    rate
        Events per second.
    burst
        When there are more: "10x 5 s every 60 s".
    seed
        Another seed gives other events, and other delays.
    delay_us, delayed
        The longest delay in microseconds, and the share of the events that have one.
    keys
        How many stocks, sensors or rooms there are; simple events get a column `key`.
    types
        What the column `type` of simple events may be.
    limit
        After how many events the stream ends; None is never.
    beginning_us
        The time of the first event, in microseconds since 1970.

    Examples
    --------
    >>> stream = EventStream("simple", rate=10, delay_us=300_000, delayed=0.5, seed=2, limit=8)
    >>> stream.read(0, 8)["seq"].to_pylist()
    [0, 1, 3, 2, 4, 5, 6, 7]
    >>> stream.due(450_000)
    5
    """

    kind: str = "simple"
    rate: int = 1000
    burst: str | None = None
    seed: int = 1
    delay_us: int = 0
    delayed: float = 0.1
    keys: int | None = None
    types: str | None = None
    limit: int | None = None
    beginning_us: int = BEGINNING_US

    @property
    def events(self) -> int:
        """How many events there are at most."""
        return _ENDLESS if self.limit is None else self.limit

    @property
    def schema(self) -> pa.Schema:
        """The columns of the events."""
        return next(self.source.between(0, 1)).schema

    @property
    def source(self) -> GeneratedSource:
        """The source of the events in the order of their times."""
        makers: dict[str, tuple[Callable[..., GeneratedSource], str]] = {
            "simple": (simple_events, "keys"),
            "stock": (stock_events, "symbols"),
            "football": (football, "sensors"),
            "building": (building, "rooms"),
        }
        if self.kind not in makers:
            raise BindError(
                f"there are no events of kind '{self.kind}'",
                hint=did_you_mean(self.kind, makers) or f"there are {', '.join(makers)}",
            )
        make, keys = makers[self.kind]
        if self.types is not None and self.kind != "simple":
            raise BindError(f"events of kind '{self.kind}' have no types")
        settings = {keys: self.keys, "types": self.types}
        more = {name: value for name, value in settings.items() if value is not None}
        made = make(self.events, seed=self.seed, rate=self.rate, **more)
        return replace(made, beginning_us=self.beginning_us, burst=self.burst)

    @property
    def delays(self) -> Delays:
        """Which events come late, and when."""
        spread = Rate.of(self.rate, self.burst)
        return Delays(spread, self.delay_us, self.delayed, self.seed, self.limit)

    def due(self, elapsed_us: int) -> int:
        """Return how many ticks have passed so long after the beginning."""
        passed = int(Rate.of(self.rate, self.burst).happened(np.int64(elapsed_us)))
        return min(passed, self.events)

    def elapsed_us(self, tick: int) -> int:
        """Return how long after the beginning a tick is."""
        return int(Rate.of(self.rate, self.burst).times(np.array([tick], np.int64))[0])

    def cuts(self, first: int, stop: int, ticks: int = BATCH_ROWS) -> Iterator[tuple[int, int]]:
        """Cut a stretch of ticks into pieces of so many, or of the longest delay if that is more.

        What is made for the delays before a piece must not outweigh the piece.
        """
        ticks = max(ticks, stop - self.delays.reach(stop))
        for begin in range(first, stop, ticks):
            yield begin, min(begin + ticks, stop)

    def read(self, first: int, stop: int) -> pa.RecordBatch:
        """Return the events that come from tick `first` to before `stop`, as they come."""
        numbers = self.delays.arriving(first, stop)
        if not len(numbers):
            return pa.RecordBatch.from_pylist([], self.schema)
        least, greatest = int(numbers.min()), int(numbers.max())
        parts = self.source.between(least, greatest + 1)
        made = pa.Table.from_batches(parts).combine_chunks()
        if self.delay_us:
            made = made.take(pa.array(numbers - least))
        return made.to_batches()[0]


def stream_of(settings: Mapping[str, object]) -> EventStream:
    """Return the stream with these settings; what cannot be made is refused now."""
    stream = EventStream(**settings)  # type: ignore[arg-type]  # read from options by their names
    _ = stream.delays, stream.schema
    return stream
