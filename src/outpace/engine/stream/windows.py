"""The stage "match": an instance finds the matches of the windows that it is given.

In every batch it says what became final, and promises of what will: no later match has a smaller x
than its frontier, starts with an event before its horizon, or has an event with a time before the
watermark of its cell.

Memory: what `WindowMatcher` keeps, the rows of open windows at most; for a user-defined operator
what it keeps itself. Paper: 2.3.4 and 3.1.4.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from outpace.engine.rows.times import time_values
from outpace.engine.stream.cell import Cell, Counters, Kind
from outpace.engine.stream.travel import Found, Parcel
from outpace.engine.stream.windowed import WindowedStream


class WindowStage:
    """Matches windows.

    Parameters
    ----------
    stream
        What to match.
    """

    takes = frozenset({Kind.EVENTS})

    def __init__(self, stream: WindowedStream) -> None:
        self._time = stream.disorder.time
        self._bound = stream.bound
        self._schema = pa.schema([stream.events.field(name) for name in stream.columns])
        self._instance = stream.instance()
        self._counters = Counters()

    @property
    def counters(self) -> Counters:
        """What the last step did, and what is held after it."""
        return self._counters

    def step(self, cells: list[Cell]) -> list[Cell]:
        """Take the events of a batch, with the windows that they open and close."""
        return [self._answer(cell) for cell in cells]

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `restore`."""
        return self._instance.state()

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned."""
        self._instance.restore(data)

    def _answer(self, cell: Cell) -> Cell:
        parcel = Parcel.read(pa.py_buffer(cell.block), self._schema)
        rows = parcel.events.rows
        columns = {name: rows.column(name) for name in rows.column_names}
        events = replace(parcel.events, times=time_values(self._bound, columns))
        instance = self._instance
        matches = instance.step(events, parcel.split, arrived=parcel.arrived)
        self._counters = Counters(
            events=rows.num_rows,
            matches=len(matches),
            kept=instance.rows_kept,
            partials=instance.starts_kept(),
            open_windows=instance.open_windows,
            keys=instance.partitions_kept,
        )
        return Cell(
            Kind.EVENTS,
            block=Found(matches, parcel.arrived, instance.horizon).write(),
            watermark=min(cell.watermark, instance.earliest(self._time)),
        )
