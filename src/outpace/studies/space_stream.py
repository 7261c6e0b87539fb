"""What the experiments of the study `space` share: the paper's events, and a splitter to feed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from outpace.engine.split.choose import make_splitter
from outpace.engine.split.number import EventNumbers
from outpace.engine.split.schedule import Schedule, scheduler_of
from outpace.ingest.generators import simple_events, stock_events
from outpace.ingest.source import Source
from outpace.pattern.bind.windows import bind_windows
from outpace.pattern.query import Query

#: How events come: in blocks of so many.
BLOCK_ROWS: Final = 65_536

#: The paper's two kinds of events.
EVENT_KINDS: Final[Mapping[str, Callable[..., Source]]] = {
    "SimpleEvent": simple_events,
    "StockEvent": stock_events,
}


def events_of(kind: str, size: int) -> pa.Table:
    """Return the first events of a kind as one piece."""
    return EVENT_KINDS[kind](size).table().combine_chunks()


class SplitStream:
    """The splitter of a query as one stands in a stream: numbers, windows, schedule.

    It takes the same blocks again and again: windows by count look at numbers alone, and these go
    on, so the stream has no end and needs no memory.

    Parameters
    ----------
    query
        A query over windows by count, without keys.
    blocks
        What comes, over and over.
    """

    def __init__(self, query: Query, blocks: Sequence[pa.Table]) -> None:
        schema = blocks[0].schema
        windows = bind_windows(query, schema)
        self._blocks = blocks
        self._numbers = EventNumbers(schema, (), windows.time)
        self._idle = [0.0] * query.instance_count
        self.splitter = make_splitter(windows)
        self.schedule = Schedule(scheduler_of(query), query.instance_count, keyed=False)
        self.events = sum(block.num_rows for block in blocks)

    def run(self) -> None:
        """Take all blocks once."""
        for rows in self._blocks:
            self.take(rows)

    def take(self, rows: pa.Table) -> None:
        """Split the next events, and say what each instance gets."""
        events = self._numbers.number(rows)
        split = self.splitter.push(events)
        self._numbers.take()
        self.schedule.route(events, split, self._idle)

    def run_until(self, events: int) -> None:
        """Go on until so many events have come."""
        while self._numbers.arrived < events:
            self.run()


def blocks_of(kind: str, events: int) -> list[pa.Table]:
    """Return the first events of a kind as a stream's blocks."""
    return [
        pa.Table.from_batches([batch]) for batch in EVENT_KINDS[kind](events).batches(BLOCK_ROWS)
    ]
