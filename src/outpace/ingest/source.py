"""Sources: values that tell which events come, in batches, with times and sequence numbers.

A source has an identifier of its own and yields the same events every time, whatever the size of
the batches. Nothing is opened or made before it is read; a reader holds one batch of each source.
Paper: SPACE (Amann 2018) 3.1.2 and 4.3.1.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from outpace.engine.order.source_merge import SEQUENCE as SEQUENCE
from outpace.engine.order.source_merge import SourceMerge
from outpace.engine.rows.permutation import as_table
from outpace.errors import DataError
from outpace.pattern.argument import a_text, a_whole_number, shown

#: How many events a batch has where nobody asks for another size. No power of two: then equal
#: batches of many sources would compete for the same places of the cache.
BATCH_ROWS: Final = 60_000


@dataclass(frozen=True)
class Heartbeat:
    """A promise of a source: no later event of it has a time before this.

    Parameters
    ----------
    time
        A datetime, or an integer: microseconds where the time column has timestamps.
    """

    time: int | datetime.datetime


@dataclass(frozen=True)
class Source(ABC):
    """Events in order, each with a time and a sequence number that rises from event to event.

    Parameters
    ----------
    id
        The identifier, which no other source of the same operator may have.
    time
        The column with the time of each event.

    Examples
    --------
    >>> from outpace.ingest.generators import simple_events
    >>> source = simple_events(3)
    >>> source.id, [batch.num_rows for batch in source.batches(2)]
    ('simple', [2, 1])
    """

    id: str
    time: str = field(default="ts", kw_only=True)

    def __post_init__(self) -> None:
        a_text(self.id, "the identifier of a source", error=DataError)
        a_text(self.time, "the time column of a source", error=DataError)

    @abstractmethod
    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield all events from the beginning, at most `rows` at a time.

        Parameters
        ----------
        rows
            The most events of a batch.
        """

    def arrivals(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch | Heartbeat]:
        """Yield events as they come, and promises between them where the source is quiet.

        A source that never keeps others waiting has no promises to make; this is `batches` then.

        Parameters
        ----------
        rows
            The most events of a batch.
        """
        yield from self.batches(rows)

    def table(self) -> pa.Table:
        """Return all events at once."""
        batches = list(self.batches())
        if not batches:
            raise DataError(f"source '{self.id}' has no events")
        return pa.Table.from_batches(batches)


def merged(sources: Sequence[Source], rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
    """Yield the events of all sources in the order (time, sequence number, source).

    The source that the others wait for is read next, so at most two batches of each are held.

    Parameters
    ----------
    sources
        The sources, each with an identifier of its own.
    rows
        The most events that are read from a source at a time.

    Examples
    --------
    >>> from outpace.ingest.generators import simple_events
    >>> two = [simple_events(2, seed=seed, id=f"s{seed}") for seed in (1, 2)]
    >>> [part["seq"].to_pylist() for part in merged(two)]
    [[0, 0, 1, 1]]
    """
    rows = a_whole_number(rows, "the number of rows", least=1, error=DataError)
    merge = merge_of(sources)
    batches = {source.id: source.batches(rows) for source in sources}
    while (holding := merge.holding) is not None:
        batch = next(batches[holding], None)
        if batch is None:
            merge.finish(holding)
        else:
            merge.push(holding, batch)
        ordered = merge.pop().rows
        if ordered.num_rows:
            yield as_table(ordered)


def merge_of(sources: Sequence[Source]) -> SourceMerge:
    """Return the merge that the events of sources are to be pushed to."""
    if not isinstance(sources, Sequence) or not all(isinstance(one, Source) for one in sources):
        raise DataError(f"sources are expected, not {shown(sources)}", hint="see outpace.sources")
    times = {source.time for source in sources}
    if len(times) > 1:
        raise DataError(
            "sources of one operator need the same time column",
            detail=f"there are {', '.join(sorted(times))}",
        )
    return SourceMerge([source.id for source in sources], time=min(times, default=""))
