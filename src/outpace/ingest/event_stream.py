"""Generated events as a stream without an end: by rate, with bursts, some of them late.

Any stretch of the stream is the same whenever and wherever it is made, so what was read before a
crash can be read again. A reader holds the events of one batch and of the longest delay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.errors import BindError, did_you_mean
from outpace.ingest.delay import Delays
from outpace.ingest.generators import (
    BEGINNING_US,
    Generated,
    building,
    football,
    simple_events,
    stock_events,
)
from outpace.ingest.rate import Rate
from outpace.ingest.source import BATCH_ROWS

#: The most events that a stream without an end counts.
_ENDLESS: Final = 1 << 53


@dataclass(frozen=True)
class EventStream:
    """Events in the order in which they come, which a delay may change.

    The stream goes by ticks, as `outpace.ingest.delay` says; without delays, event n is tick n.

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
    def source(self) -> Generated:
        """The source of the events in the order of their times."""
        makers: dict[str, tuple[Callable[..., Generated], str]] = {
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
