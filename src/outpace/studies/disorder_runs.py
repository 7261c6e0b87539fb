"""A stream that goes through a reorderer of the engine, on a clock of its own.

Time goes on in steps. In each step the reorderer takes what arrived in it; what it lets go is let
go at the end of the step. So the latency of an event, from its arrival until it is let go, is never
told too small, and is exact to a step. An event that still waits when the stream ends has waited
until then. Nothing depends on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.message import ClockExchange, EventsArrived
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import ReleasedEvents
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bind.query import bind
from outpace.pattern.disorder import Disorder
from outpace.pattern.query import Query

#: Microseconds in a second and in a millisecond.
_SECOND, _MILLISECOND = 1_000_000, 1000

#: What sources are called.
NAMES: Final = tuple(f"{number:02}" for number in range(100))


@dataclass
class OrderedRun:
    """What a reorderer made of a stream.

    Parameters
    ----------
    late
        Events that came late, which it could not bring into order.
    behind, far_behind
        Events that were let go directly behind one that happened later, and those of them that
        happened before it by more than `bound`.
    bound
        How far the clocks of sources may be off.
    """

    late: int = 0
    behind: int = 0
    far_behind: int = 0
    bound: int = 0
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
        before = np.append(times[0] if self._last is None else self._last, times[:-1])
        self.behind += int((times < before).sum())
        self.far_behind += int((times < before - self.bound).sum())
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
    told: int | None = None,
    happened: str | None = None,
    exchanges: Sequence[ClockExchange] = (),
    bound: int = 0,
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
    told
        How often, in microseconds, somebody who knows what is still to come tells before which time
        nothing does; of one stream, and by default nobody tells.
    happened
        The column with the times at which events happened, where the clocks of sources are off; by
        default that of event times.
    exchanges, bound
        What tells how far these clocks are off, before events come, and how exactly.

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
    names = NAMES[: len(streams)]
    order = make_order(
        bind(query, schema), bind_disorder(query, schema), schema, names if apart else None
    )
    run, now, done = OrderedRun(bound=bound), 0, 0
    # From each event on, the earliest time that is still to come.
    coming = np.minimum.accumulate(streams[0][time].to_numpy()[::-1])[::-1]
    for exchange in exchanges:
        order.compare_clocks(exchange)
    for end, numbers in groupby(pieces(streams, arrival, step), key=itemgetter(0)):
        if told is not None and done and (moment := -(-now // told) * told) < end:
            released = order.tell(int(coming[done]))
            run.take(released, happened or time, arrival, moment)
        now = end
        arrived = [(number, rows) for _, number, rows in numbers]
        if not apart:
            arrived = [(0, pa.concat_tables([rows for _, rows in arrived]))]
        for number, rows in arrived:
            released = order.push(EventsArrived(rows, names[number] if apart else None))
            run.take(released, happened or time, arrival, now)
            done += rows.num_rows
    run.take(order.finish(), happened or time, arrival, now)
    return run


def pieces(
    streams: Sequence[pa.Table], arrival: str, step: int
) -> Iterator[tuple[int, int, pa.Table]]:
    """Yield what arrives in each step of the clock: the end of it, which stream, and its events.

    Examples
    --------
    >>> streams = [pa.table({"at": [0, 9, 25]}), pa.table({"at": [21]})]
    >>> [(now, number, rows["at"].to_pylist()) for now, number, rows in pieces(streams, "at", 10)]
    [(10, 0, [0, 9]), (30, 0, [25]), (30, 1, [21])]
    """
    arrivals = [stream[arrival].to_numpy() for stream in streams]
    done = [0] * len(streams)
    while left := [
        one[taken] for one, taken in zip(arrivals, done, strict=True) if taken < len(one)
    ]:
        # The end of the step in which the next event arrives.
        now = int(min(left)) // step * step + step
        for number, stream in enumerate(streams):
            begin, end = done[number], int(np.searchsorted(arrivals[number], now))
            done[number] = end
            if end > begin:
                yield now, number, stream.slice(begin, end - begin)


def shifted(stream: pa.Table, **distances: int) -> pa.Table:
    """Return events with some integer columns moved, each by its own distance."""
    for name, distance in distances.items():
        place = stream.schema.get_field_index(name)
        column = pa.array(stream.column(place).to_numpy() + distance)
        stream = stream.set_column(place, stream.schema.field(place), column)
    return stream
