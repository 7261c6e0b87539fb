"""The stage "merge": the matches of all instances as one stream, in their order, each of them once.

All instances have taken the same batches, so whatever they gave is complete and comes out at once.
With it goes a pulse: no later match has an event with a time before it.

Memory: what `Merger` keeps to tell matches that may be found again. Paper: 2.3.4 and 3.1.5.
"""

from __future__ import annotations

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.table import write_table
from outpace.engine.merge.merger import Merger
from outpace.engine.split.router import finds_again
from outpace.engine.stream.cell import Cell, Counters, Kind
from outpace.engine.stream.travel import Found
from outpace.engine.stream.windowed import WindowedStream


class MergeStage:
    """Merges the matches of instances.

    Parameters
    ----------
    stream
        Whose matches.
    """

    takes = frozenset({Kind.EVENTS})

    def __init__(self, stream: WindowedStream) -> None:
        query = stream.query
        self._schema = stream.bound.output
        self._merger = Merger(self._schema, query.instance_count, distinct=finds_again(query))
        self._counters = Counters()

    @property
    def counters(self) -> Counters:
        """What the last step did, and what is held after it."""
        return self._counters

    def step(self, cells: list[Cell]) -> list[Cell]:
        """Take what the instances found in a batch."""
        for cell in cells:
            found = Found.read(pa.py_buffer(cell.block), self._schema)
            self._merger.push(cell.sender, found.matches)
            self._merger.advance(cell.sender, found.frontier, found.horizon)
        matches = self._merger.rest()
        self._counters = Counters(matches=len(matches))
        watermark = min((cell.watermark for cell in cells), default=NO_TIME)
        given = []
        if len(matches):
            given.append(Cell(Kind.MATCHES, block=write_table(matches.table), watermark=watermark))
        return [*given, Cell(Kind.PULSE, watermark=watermark)]

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `restore`."""
        return self._merger.state()

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned."""
        self._merger.restore(data)
