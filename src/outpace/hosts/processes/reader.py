"""Reading sources: a thread for each, so that one that is quiet keeps no other waiting.

A source is read no faster than its events are taken: what it offers beyond that stays with it.
Memory: two batches of each source, and a few more where there are few sources.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from typing import Final, TypeAlias

import pyarrow as pa

from outpace.errors import DataError
from outpace.hosts.clock import clock_time
from outpace.ingest.source import Heartbeat, Source

#: Batches that all sources together may have ready, and the least number for each.
_AHEAD: Final = 4
_AHEAD_EACH: Final = 2
#: How long threads may take to end.
_PATIENCE_S: Final = 0.2


@dataclass(frozen=True)
class SourceEnd:
    """A source sends no more events, or cannot be read any more."""

    error: BaseException | None = None


#: What comes from a source.
Item: TypeAlias = pa.RecordBatch | Heartbeat | SourceEnd


@dataclass
class _Lane:
    """What has come from a source and nobody has taken, and how much more may come."""

    room: threading.Semaphore
    #: Each with the time when it came.
    items: deque[tuple[Item, int]] = field(default_factory=deque)


class SourceReader:
    """Reads sources in threads.

    Parameters
    ----------
    sources
        The sources.
    batch_rows
        The events of a batch.
    taken
        How many of the first events of each source are left out, as they were taken before.
    """

    def __init__(
        self, sources: Sequence[Source], batch_rows: int, taken: Mapping[str, int] | None = None
    ) -> None:
        self._taken = {} if taken is None else taken
        self.wakes, self._wake = Pipe(duplex=False)
        self._lock = threading.Lock()
        self._woken = self._stopped = False
        self._errors: list[BaseException] = []
        ahead = max(_AHEAD_EACH, _AHEAD // len(sources))
        self._lanes = {source.id: _Lane(threading.Semaphore(ahead)) for source in sources}
        self._threads = [
            threading.Thread(
                target=self._read,
                args=(source, batch_rows, self._lanes[source.id]),
                name=f"outpace-source-{source.id}",
                daemon=True,
            )
            for source in sources
        ]
        for thread in self._threads:
            thread.start()

    def listen(self) -> None:
        """Begin to listen: `wakes` has something to read once more comes."""
        with self._lock:
            if self._woken:
                self.wakes.recv_bytes()
                self._woken = False

    def next(self, source: str) -> Item | None:
        """Return the next that a source sends, which stays with it; None where it is quiet.

        Raises what reading the source raised.
        """
        items = self._lanes[source].items
        item = items[0][0] if items else None
        if isinstance(item, SourceEnd) and item.error is not None:
            raise item.error
        return item

    def ready(self) -> Iterator[str]:
        """Yield the sources that are not quiet."""
        return (source for source, lane in self._lanes.items() if lane.items)

    def earliest(self, wanted: Callable[[str], bool]) -> str | None:
        """Return the wanted source whose next came first; None where all are quiet."""
        ready = [(lane.items[0][1], one) for one, lane in self._lanes.items() if lane.items]
        return min((one for one in ready if wanted(one[1])), default=(0, None))[1]

    def came(self, source: str) -> int:
        """Return when the next came that a source sends."""
        return self._lanes[source].items[0][1]

    def pop(self, source: str, rows: int = 0) -> int:
        """Take the next that a source sends, of events so many, and return when it came."""
        lane = self._lanes[source]
        item, arrival = lane.items[0]
        if isinstance(item, pa.RecordBatch) and rows < item.num_rows:
            lane.items[0] = item.slice(rows), arrival
        else:
            lane.items.popleft()
            lane.room.release()
        return arrival

    def check(self) -> None:
        """Raise what reading any source raised."""
        if self._errors:
            raise self._errors[0]

    def stop(self) -> None:
        """Read no more; a source that is being waited for is left alone."""
        self._stopped = True
        for lane in self._lanes.values():
            lane.room.release()
        until = time.monotonic() + _PATIENCE_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self.wakes.close()
        if not any(thread.is_alive() for thread in self._threads):
            self._wake.close()

    def _read(self, source: Source, batch_rows: int, lane: _Lane) -> None:
        arrivals: Iterator[pa.RecordBatch | Heartbeat] = iter(())
        try:
            arrivals = source.arrivals(batch_rows)
            left = self._taken.get(source.id, 0)
            while left and not self._stopped:
                item: Item = next(arrivals, SourceEnd())
                if isinstance(item, SourceEnd):
                    raise DataError(
                        f"source '{source.id}' has {left} events less than were taken from it",
                        hint="run on the sources that the retained log was made with",
                    )
                if isinstance(item, pa.RecordBatch):
                    rest = item.slice(min(left, item.num_rows))
                    left -= item.num_rows - rest.num_rows
                    if rest.num_rows and lane.room.acquire():
                        self._add(lane, rest)
            while lane.room.acquire() and not self._stopped:
                item = next(arrivals, SourceEnd())
                self._add(lane, item)
                if isinstance(item, SourceEnd):
                    return
        except BaseException as error:
            self._errors.append(error)
            self._add(lane, SourceEnd(error))
        finally:
            # Who is no generator has nothing to close.
            if isinstance(arrivals, Generator):
                arrivals.close()

    def _add(self, lane: _Lane, item: Item) -> None:
        lane.items.append((item, clock_time()))
        with self._lock, suppress(OSError):  # Nobody may be there any more.
            if not self._woken:
                self._woken = True
                self._wake.send_bytes(b"1")
