"""Sources at a pace: events that are offered as fast as asked for, by the clock, and not faster.

Event n is offered n / rate seconds after reading began. A reader that is slower finds events that
have been offered already and gets them at once: nothing is lost, and nothing piles up here, as the
events of the source underneath are made or read only when they are taken. Whoever orders the events
of several such sources is told the time of the next one while it is not due, so nobody waits for a
source that is slow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from outpace.engine.rows.times import as_integers
from outpace.errors import DataError
from outpace.ingest.source import BATCH_ROWS, Heartbeat, Source
from outpace.pattern.argument import a_number, an_instance

#: The longest time that an event waits for its batch, in seconds.
_LONGEST_S: Final = 0.02


def paced(source: Source, rate: float) -> PacedSource:
    """Offer the events of a source at a rate.

    Parameters
    ----------
    source
        The source.
    rate
        Events per second of the clock.

    Examples
    --------
    >>> from outpace.ingest.generators import simple_events
    >>> source = paced(simple_events(100), rate=10_000)
    >>> source.id, sum(batch.num_rows for batch in source.batches(20))
    ('simple', 100)
    """
    an_instance(source, Source, "a source", hint="see outpace.sources", error=DataError)
    rate = a_number(rate, "the rate of a source", above=0, error=DataError)
    return PacedSource(source.id, source, rate, time=source.time)


@dataclass(frozen=True)
class PacedSource(Source):
    """A source whose events are offered at a rate; see `paced`.

    Parameters
    ----------
    source, rate
        As for `paced`.
    in_order
        Whether its events are in order, so that no later one comes before the next.
    """

    source: Source
    rate: float
    in_order: bool = True

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield batches, each when its last event is due."""
        return (one for one in self.arrivals(rows) if isinstance(one, pa.RecordBatch))

    def arrivals(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch | Heartbeat]:
        """Yield batches, each when its last event is due, and promises that it is not yet."""
        began, offered = time.monotonic(), 0
        # A batch must not take longer to come together than its first event may wait.
        for batch in self.source.batches(min(rows, max(1, int(self.rate * _LONGEST_S)))):
            offered += batch.num_rows
            early = began + offered / self.rate - time.monotonic()
            following = batch.column(self.time).slice(0, 1)
            if early > _LONGEST_S and self.in_order and not following.null_count:
                yield Heartbeat(int(as_integers(following)[0]))
            if early > 0:
                time.sleep(early)
            yield batch
