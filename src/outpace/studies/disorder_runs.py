"""A stream that goes through a reorderer of the engine, on a clock of its own.

Time goes on in steps. In each step the reorderer takes what arrived in it; what it lets go is let
go at the end of the step. So the latency of an event, from its arrival until it is let go, is never
told too small, and is exact to a step. An event that still waits when the stream ends has waited
until then. Nothing depends on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from outpace.engine.message import EventsArrived
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import ReleasedEvents
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bind.query import bind
from outpace.pattern.disorder import Disorder
from outpace.pattern.query import Query

#: Microseconds in a second and in a millisecond.
_SECOND, _MILLISECOND = 1_000_000, 1000


@dataclass
class OrderedRun:
    """What a reorderer made of a stream.

    Parameters
    ----------
    late
        Events that came late, which it could not bring into order.
    behind
        Events that were let go directly behind one that happened later.
    """

    late: int = 0
    behind: int = 0
    _last: int | None = None
    _counts: dict[int, int] = field(default_factory=dict)
    _sums: dict[int, int] = field(default_factory=dict)
    _greatest: dict[int, int] = field(default_factory=dict)

    @property
    def latency(self) -> float:
        """The average latency of events, in milliseconds."""
        return sum(self._sums.values()) / max(1, sum(self._counts.values())) / _MILLISECOND

    @property
    def greatest_latency(self) -> float:
        """The greatest latency of each second, in milliseconds, on average."""
        return sum(self._greatest.values()) / max(1, len(self._greatest)) / _MILLISECOND

    def latencies(self) -> Iterator[tuple[int, float]]:
        """Return seconds, and the average latency in milliseconds of what was let go in each."""
        for second, count in self._counts.items():
            yield second, self._sums[second] / count / _MILLISECOND

    def accuracy(self, disordered: int) -> float:
        """Return the part of the events out of order that came into order, in percent."""
        return 100.0 * (1 - self.late / disordered)

    def take(self, released: ReleasedEvents, happened: str, arrival: str, now: int) -> None:
        """Count what was let go at a time; columns tell when it happened, and arrived."""
        self.late += 0 if released.late is None else released.late.num_rows
        if not released.rows.num_rows:
            return
        waited = now - released.rows.column(arrival).to_numpy()
        times = released.rows.column(happened).to_numpy()
        self.behind += int((times[1:] < times[:-1]).sum())
        self.behind += self._last is not None and bool(times[0] < self._last)
        self._last = int(times[-1])
        second = now // _SECOND
        self._counts[second] = self._counts.get(second, 0) + len(waited)
        self._sums[second] = self._sums.get(second, 0) + int(waited.sum())
        self._greatest[second] = max(self._greatest.get(second, 0), int(waited.max()))


def run_order(
    disorder: Disorder,
    streams: Sequence[pa.Table],
    *,
    time: str,
    step: int,
    apart: bool = False,
    happened: str | None = None,
) -> OrderedRun:
    """Bring streams into one order.

    Parameters
    ----------
    disorder
        How, with the column that tells when events arrive, in microseconds.
    streams
        The events of each source, as they arrive.
    time
        The column of event times.
    step
        How far the clock goes at a time, in microseconds.
    apart
        Whether the reorderer is told which source sends what; otherwise all are one stream.
    happened
        The column with the times at which events happened, where the clocks of sources are off; by
        default that of event times.

    Examples
    --------
    >>> from outpace.pattern.disorder import KSlack
    >>> stream = pa.table({"ts": [1, 3, 2, 9], "at": [1000, 2000, 3000, 4000]})
    >>> run = run_order(KSlack(1, arrival="at"), [stream], time="ts", step=1000)
    >>> run.late, run.latency
    (0, 2.0)
    """
    arrival = disorder.arrival
    assert arrival is not None
    query = Query("all").order_by(time).pattern("A").disorder(disorder)
    schema = streams[0].schema
    names = [f"{number:02}" for number in range(len(streams))]
    order = make_order(
        bind(query, schema), bind_disorder(query, schema), schema, tuple(names) if apart else None
    )
    arrivals = [stream[arrival].to_numpy() for stream in streams]
    run, done, now = OrderedRun(), [0] * len(streams), 0
    while left := [
        one[taken] for one, taken in zip(arrivals, done, strict=True) if taken < len(one)
    ]:
        # The end of the step in which the next event arrives.
        now = int(min(left)) // step * step + step
        pieces = []
        for number, stream in enumerate(streams):
            begin, end = done[number], int(np.searchsorted(arrivals[number], now))
            done[number] = end
            if end > begin:
                pieces.append((names[number], stream.slice(begin, end - begin)))
        if not apart:
            pieces = [("", pa.concat_tables([rows for _, rows in pieces]))]
        for name, rows in pieces:
            released = order.push(EventsArrived(rows, name or None))
            run.take(released, happened or time, arrival, now)
    run.take(order.finish(), happened or time, arrival, now)
    return run


def shifted(stream: pa.Table, **distances: int) -> pa.Table:
    """Return events with some integer columns moved, each by its own distance."""
    for name, distance in distances.items():
        place = stream.schema.get_field_index(name)
        column = pa.array(stream.column(place).to_numpy() + distance)
        stream = stream.set_column(place, stream.schema.field(place), column)
    return stream
