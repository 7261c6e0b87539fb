"""The stage "order + split": one instance puts events in order, numbers and splits them.

Each instance of the next stage gets one cell in every batch, with the events that its windows need,
each event once, the windows that open and close, and how far stream and time have come. So an
instance without events holds nobody back.

A scheduler decides by the windows and by loads. What an instance has yet to do is not known here,
as nothing comes back from later stages: its load is the number of events that it was sent since the
beginning, so `LeastLoaded` evens out the events sent. A user's own scheduler must decide by what it
is given alone, for a batch that is run again must give the same.

Memory: the events that wait for their turn, what tells open windows, and an entry for each
partition that there has been. Paper: 2.3.4.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from outpace.engine.block import read_block
from outpace.engine.match.contract import NO_TIME, Integers
from outpace.engine.order.reorder import Released, Reorderer
from outpace.engine.state import pack, unpack
from outpace.engine.stream.cell import Cell, Counters, Kind
from outpace.engine.stream.table_block import write_table
from outpace.engine.stream.travel import Parcel
from outpace.engine.stream.windowed import WindowedStream
from outpace.engine.window.contract import Events, Split, Windows
from outpace.engine.window.router import Router
from outpace.engine.window.travel import chosen
from outpace.pattern.disorder import Late


class SplitStage:
    """Puts events in order and gives them to the instances of their windows.

    Parameters
    ----------
    stream
        What to split.
    """

    takes = frozenset({Kind.EVENTS})

    def __init__(self, stream: WindowedStream) -> None:
        self._stream = stream
        self._reorderer = Reorderer(stream.bound, stream.disorder, stream.events)
        self._router = Router(stream.query, stream.bound, stream.windows, checked=False)
        self._sent = np.zeros(stream.query.instance_count, np.int64)
        self._counters = Counters()

    @property
    def counters(self) -> Counters:
        """What the last step did, and what is held after it."""
        return self._counters

    def step(self, cells: list[Cell]) -> list[Cell]:
        """Take the events of a batch, in any order."""
        blocks = [read_block(c.block, self._stream.events) for c in cells if len(c.block)]
        rows = pa.concat_tables([self._stream.events.empty_table(), *map(self._rows, blocks)])
        spans = np.concatenate([np.zeros((0, 2), np.int64), *(cell.times for cell in cells)])
        told = max((cell.watermark for cell in cells), default=NO_TIME)
        released = self._reorderer.push(rows, spans, told)
        events, deliveries = self._router.push(
            released.rows, self._sent.tolist(), released.watermark
        )
        # Times travel in their column.
        events = replace(events, times=events.times[:0])
        nothing = Split(Windows.none(), Windows.none()), np.zeros((0, 2), np.int64)
        given = {one.instance: (one.split, one.ranges) for one in deliveries}
        parcels = [
            self._parcel(number, events, *given.get(number, nothing), released.watermark)
            for number in range(len(self._sent))
        ]
        self._counters = Counters(
            events=rows.num_rows,
            released=released.rows.num_rows,
            late=released.late.num_rows,
            invalid=released.invalid.num_rows,
            buffered=self._reorderer.buffered,
        )
        return [*parcels, *self._aside(released)]

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `restore`."""
        parts = [self._reorderer.state(), self._router.state(), self._sent.tobytes()]
        return pack({}, [pa.table({"part": pa.array(parts, pa.binary())})])

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned."""
        _, (parts,) = unpack(data)
        reorderer, router, sent = parts.column("part").to_pylist()
        self._reorderer.restore(reorderer)
        self._router.restore(router)
        self._sent = np.frombuffer(sent, np.int64).copy()

    def _rows(self, columns: dict[str, pa.Array]) -> pa.Table:
        return pa.table([columns[f.name] for f in self._stream.events], schema=self._stream.events)

    def _parcel(
        self, number: int, events: Events, split: Split, ranges: Integers, watermark: int
    ) -> Cell:
        own = chosen(events, ranges)
        self._sent[number] += len(own.arrival)
        parcel = Parcel(own, split, self._router.arrived)
        block = parcel.write(self._stream.columns, keyed=self._stream.windows.keyed)
        return Cell(Kind.EVENTS, number, block, watermark=watermark)

    def _aside(self, released: Released) -> list[Cell]:
        """Return what goes to side outputs."""
        cells = []
        if released.late.num_rows and self._stream.disorder.late is Late.SIDE:
            late = released.late.select(self._stream.shown)
            cells.append(Cell(Kind.LATE, block=write_table(late)))
        if released.invalid.num_rows:
            reason = released.invalid.column_names[0]
            invalid = released.invalid.select([reason, *self._stream.shown])
            cells.append(Cell(Kind.INVALID, block=write_table(invalid)))
        return cells
