"""What the experiments of the study `space` share: the paper's events, and fronts to feed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.front import Front
from outpace.engine.message import EventsArrived, SourceEnded, Stimulus
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.times import as_integers
from outpace.engine.whole import deliveries
from outpace.engine.wire import write_windows
from outpace.ingest.generators import simple_events, stock_events
from outpace.ingest.source import Source
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
    """The front of an operator as it stands in a stream: order, numbers, windows, schedule.

    It takes the same blocks again and again, so the stream has no end and needs no memory. Every
    delivery is answered at once, as if instances had nothing to do.

    Parameters
    ----------
    query
        A query over windows by count, without keys.
    blocks
        What comes, over and over, with times that go on.
    """

    def __init__(self, query: Query, blocks: Sequence[pa.Table]) -> None:
        spec = OperatorSpec(query, blocks[0].schema, instances=query.instance_count)
        self.front = Front(spec)
        self.events: int = sum(block.num_rows for block in blocks)
        self._blocks = blocks
        self._turns = -1

    def prepare(self) -> None:
        """Let the times of the blocks go on."""
        self._turns += 1
        ends = [pc.min_max(one["ts"].cast(pa.int64())) for one in self._blocks]
        span = ends[-1]["max"].as_py() + 1 - ends[0]["min"].as_py()
        if self._turns:
            self._blocks = [_later(block, span) for block in self._blocks]

    def run(self) -> None:
        """Take all blocks once."""
        for _ in deliveries(self.front, map(EventsArrived, self._blocks)):
            pass

    def run_until(self, events: int) -> None:
        """Go on until so many events have come."""
        while self.front.arrived < events:
            self.prepare()
            self.run()

    def bytes_an_event(self) -> float:
        """Take all blocks once; return the bytes an event that tell instances of their windows."""
        self.prepare()
        sizes = [
            len(write_windows(one.split.opened)) + len(write_windows(one.split.closed))
            for one in deliveries(self.front, map(EventsArrived, self._blocks))
        ]
        return float(sum(sizes) / self.events)


class AppliedStream(SplitStream):
    """A front with an instance in the same place, which runs what the query does with windows."""

    def __init__(self, query: Query, blocks: Sequence[pa.Table]) -> None:
        super().__init__(query, blocks)
        self._operator = WholeOperator(OperatorSpec(query, blocks[0].schema))
        self.front = self._operator.front

    def run(self) -> None:
        """Take all blocks once."""
        for rows in self._blocks:
            self._operator.step(EventsArrived(rows))


class MergedStream:
    """The front of an operator over several sources, whose blocks come in turn.

    Parameters
    ----------
    query
        A query over windows.
    batches
        The blocks of each source, by its name.
    reads
        Whether all columns of what is delivered are read, so that they are moved to their places.
    """

    def __init__(
        self, query: Query, batches: Mapping[str, Sequence[pa.Table]], *, reads: bool
    ) -> None:
        schema = next(iter(batches.values()))[0].schema
        self._spec = OperatorSpec(
            query, schema, sources=tuple(batches), instances=query.instance_count
        )
        self._batches = batches
        self._reads = reads
        self.events = sum(block.num_rows for blocks in batches.values() for block in blocks)

    def prepare(self) -> None:
        """Begin again."""
        self._front = Front(self._spec)

    def run(self) -> None:
        """Take a block of every source, and so on to the end."""
        for delivery in deliveries(self._front, self._stimuli()):
            if self._reads:
                # Rows are moved when they are asked for.
                _ = delivery.events.rows

    def _stimuli(self) -> Iterator[Stimulus]:
        for turn in zip(*self._batches.values(), strict=True):
            for source, rows in zip(self._batches, turn, strict=True):
                yield EventsArrived(rows, source)
        yield SourceEnded()


def _later(block: pa.Table, span: int) -> pa.Table:
    """Return events that are so many microseconds later."""
    at = block.schema.get_field_index("ts")
    field = block.schema.field(at)
    times = as_integers(block.column(at)) + span
    return block.set_column(at, field, pa.array(times).view(field.type))


def blocks_of(kind: str, events: int) -> list[pa.Table]:
    """Return the first events of a kind as a stream's blocks."""
    return [
        pa.Table.from_batches([batch]) for batch in EVENT_KINDS[kind](events).batches(BLOCK_ROWS)
    ]
