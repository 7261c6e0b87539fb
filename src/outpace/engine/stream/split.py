"""The stage "order + split": one instance puts events in order, numbers and splits them.

Each instance of the next stage gets one cell in every batch, with the events that its windows need,
each event once, the windows that open and close, and how far stream and time have come. So an
instance without events holds nobody back.

A scheduler decides by the windows and by loads. What an instance has yet to do is not known here,
as nothing comes back from later stages: its load is the number of events that it was sent since the
beginning, so `LeastLoaded` evens out the events sent. A user's own scheduler must decide by what it
is given alone, for a batch that is run again must give the same.

Memory: the events that wait for their turn, what tells open windows, and an entry for each
partition: of those with open windows where time numbers these, else of all that there have been.
Paper: 2.3.4.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.split.router import Router
from outpace.engine.split.travel import chosen
from outpace.engine.split.windows import Split, Windows
from outpace.engine.state import pack, parts, require, unpack
from outpace.engine.stream.cell import Cell, Counters, Kind
from outpace.engine.stream.ordering import TAKES, Ordering
from outpace.engine.stream.travel import Parcel
from outpace.engine.stream.windowed import WindowedStream


class SplitStage:
    """Puts events in order and gives them to the instances of their windows.

    Parameters
    ----------
    stream
        What to split.
    """

    takes = TAKES

    def __init__(self, stream: WindowedStream) -> None:
        self._stream = stream
        self._ordering = Ordering(stream.bound, stream.disorder, stream.events)
        self._router = Router(
            stream.query, stream.bound, stream.windows, checked=False, forgets=True
        )
        self._sent = np.zeros(stream.query.instance_count, np.int64)
        self._counters = Counters()

    @property
    def counters(self) -> Counters:
        """What the last step did, and what is held after it."""
        return self._counters

    def step(self, cells: list[Cell]) -> list[Cell]:
        """Take the events of a batch, in any order."""
        ordered = self._ordering.step(cells)
        events, deliveries = self._router.push(ordered.rows, self._sent.tolist(), ordered.watermark)
        # Times travel in their column.
        events = replace(events, times=events.times[:0])
        nothing = Split(Windows.none(), Windows.none()), np.zeros((0, 2), np.int64)
        given = {one.instance: (one.split, one.ranges) for one in deliveries}
        parcels = [
            self._parcel(number, events, *given.get(number, nothing), ordered.watermark)
            for number in range(len(self._sent))
        ]
        self._counters = replace(ordered.counters, keys=self._router.partitions)
        return [*parcels, *ordered.aside]

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `restore`."""
        states = [self._ordering.state(), self._router.state(), self._sent.tobytes()]
        return pack({}, [pa.table({"part": pa.array(states, pa.binary())})])

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned."""
        _, (saved,) = unpack(data, 1)
        ordering, router, sent = parts(saved, 3)
        require(len(sent) == self._sent.nbytes, "an instance is missing")
        self._ordering.restore(ordering)
        self._router.restore(router)
        self._sent = np.frombuffer(sent, np.int64).copy()

    def _parcel(
        self, number: int, events: Events, split: Split, ranges: Integers, watermark: int
    ) -> Cell:
        own = chosen(events, ranges)
        self._sent[number] += len(own.arrival)
        parcel = Parcel(own, split, self._router.arrived)
        block = parcel.write(self._stream.columns, keyed=self._stream.windows.keyed)
        return Cell(Kind.EVENTS, number, block, watermark=watermark)
