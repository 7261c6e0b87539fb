"""A process that appends events to a log at a pace, and again from the first when all are used up.

Run as `python -m outpace.simulate.calibration.feed LOG EVENTS`, with events as an Arrow file. Each
line of standard input is a JSON object: `{"rate": 1000}` goes on with so many events a second,
`{"burst": 5000}` appends as many at once; the end of the input ends it. When the events begin
again, their times go on from the last one. Nothing is in memory but the events.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.ingest.log import open as open_log
from outpace.ingest.log.writer import Writer

#: How long events wait to be appended together, in seconds.
TURN: Final = 0.02

#: The most events of an append.
_APPENDED: Final = 1 << 18


class Endless:
    """Events without an end: the same again and again, with times that go on.

    Parameters
    ----------
    events
        At least one.
    time
        The column with their times.

    Examples
    --------
    >>> endless = Endless(pa.table({"ts": [5, 7, 8], "kind": ["a", "b", "c"]}), "ts")
    >>> [endless.take(2)["ts"].to_pylist() for _ in range(3)]
    [[5, 7], [8], [9, 11]]
    """

    def __init__(self, events: pa.Table, time: str) -> None:
        self._events = events.combine_chunks()
        self._place = events.schema.get_field_index(time)
        self._time = events.schema.field(time)
        times = pc.cast(self._events[time], _integers(self._time.type)).combine_chunks()
        self._times = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
        least, greatest = int(self._times.min()), int(self._times.max())
        self._round = greatest - least + max(1, (greatest - least) // len(self._times))
        self._shift = np.int64(0)
        self._next = 0

    def take(self, count: int) -> pa.Table:
        """Return the next events, at most so many and at least one."""
        stop = min(self._next + count, self._events.num_rows)
        shifted = pa.array(self._times[self._next : stop] + self._shift)
        times = shifted.cast(_integers(self._time.type)).cast(self._time.type)
        taken = self._events.slice(self._next, stop - self._next)
        self._next = stop
        if stop == self._events.num_rows:
            self._next = 0
            self._shift += self._round
        return taken.set_column(self._place, self._time, times)


def _integers(kind: pa.DataType) -> pa.DataType:
    """Return the integers that times of a type are stored as."""
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


def feed(writer: Writer, events: Endless) -> None:
    """Append as the lines of standard input say, until they end."""
    rate, began, sent = 0.0, time.monotonic(), 0
    commands = sys.stdin.fileno()
    unread = b""
    while True:
        # Lines are read from the descriptor, as a buffer would hide that there are more.
        if select.select([commands], [], [], TURN)[0]:
            found = os.read(commands, 4096)
            if not found:
                return
            *lines, unread = (unread + found).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "burst" in message:
                    _append(writer, events, int(message["burst"]))
                rate, began, sent = float(message.get("rate", 0.0)), time.monotonic(), 0
        due = int(rate * (time.monotonic() - began)) - sent
        sent += _append(writer, events, min(due, _APPENDED))


def _append(writer: Writer, events: Endless, count: int) -> int:
    left = count
    while left > 0:
        part = events.take(min(left, _APPENDED))
        writer.append(part)
        left -= part.num_rows
    return max(0, count)


if __name__ == "__main__":
    with pa.memory_map(sys.argv[2]) as source:
        table = pa.ipc.open_file(source).read_all()
        log = open_log(sys.argv[1])
        with log.writer() as writer:
            feed(writer, Endless(table, log.time))
