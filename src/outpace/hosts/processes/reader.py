"""Reading sources: a thread that brings their events into one order, a few batches ahead.

The source that the others wait for is read next. A source is read no faster than its events are
taken: what it offers beyond that stays with it. Memory: two batches of each source, and those that
are ready.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from typing import Final

import pyarrow as pa

from outpace.engine.order.sources import SourceMerge
from outpace.ingest.source import Source

#: Batches that may be ready.
_AHEAD: Final = 4
#: How long the thread waits for room before it looks whether anybody still wants events.
_PATIENCE_S: Final = 0.1


@dataclass(frozen=True)
class SourceBatch:
    """Events in their order.

    Parameters
    ----------
    rows
        The events.
    watermark
        No later event has a time less than this.
    counts, buffered
        How many events were read from each source so far, and how many of them wait.
    """

    rows: pa.Table
    watermark: int
    counts: dict[str, int]
    buffered: dict[str, int]

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def after(self, size: int) -> SourceBatch | None:
        """Return the batch without its first events; None where nothing is left."""
        return replace(self, rows=self.rows.slice(size)) if size < len(self) else None


class SourceReader:
    """Reads sources in a thread.

    Parameters
    ----------
    sources, time
        The sources, and the column with the times of their events.
    batch_rows
        The events of a batch.
    """

    def __init__(self, sources: Sequence[Source], time: str, batch_rows: int) -> None:
        self._sources = sources
        self._time = time
        self._batch_rows = batch_rows
        self._ready: queue.Queue[SourceBatch | BaseException | None] = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        self.wakes, self._wake = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._run, name="outpace-sources", daemon=True)
        self._thread.start()

    def take(self) -> SourceBatch | None:
        """Return the next batch, which is ready; None where there are no more events.

        Raises what reading a source raised.
        """
        self.wakes.recv_bytes()
        batch = self._ready.get()
        if isinstance(batch, BaseException):
            raise batch
        return batch

    @property
    def ready(self) -> bool:
        """Whether `take` returns at once."""
        return self.wakes.poll()

    def stop(self) -> None:
        """Read no more; a source that is being waited for is left alone."""
        self._stopped.set()
        self._thread.join(_PATIENCE_S * 2)
        self.wakes.close()
        if not self._thread.is_alive():
            self._wake.close()

    def _run(self) -> None:
        try:
            with closing(self._batches()) as batches:
                for batch in batches:
                    if not self._put(batch):
                        return
            self._put(None)
        except BaseException as error:
            self._put(error)

    def _put(self, item: SourceBatch | BaseException | None) -> bool:
        """Hand something over; return False where nobody wants it any more."""
        while not self._stopped.is_set():
            try:
                self._ready.put(item, timeout=_PATIENCE_S)
            except queue.Full:
                continue
            self._wake.send_bytes(b"1")
            return True
        return False

    def _batches(self) -> Generator[SourceBatch, None, None]:
        merge = SourceMerge([source.id for source in self._sources], time=self._time)
        with ExitStack() as opened:
            batches = {}
            for source in self._sources:
                batches[source.id] = source.batches(self._batch_rows)
                opened.callback(_close, batches[source.id])
            yield from self._merged(merge, batches)

    def _merged(
        self, merge: SourceMerge, batches: Mapping[str, Iterator[pa.RecordBatch]]
    ) -> Iterator[SourceBatch]:
        counts = dict.fromkeys(batches, 0)
        while (holding := merge.holding) is not None and not self._stopped.is_set():
            batch = next(batches[holding], None)
            if batch is None:
                merge.finish(holding)
            else:
                merge.push(holding, pa.Table.from_batches([batch]))
                counts[holding] += batch.num_rows
            ordered = merge.take()
            if len(ordered):
                buffered = {source: merge.buffered(source) for source in counts}
                yield SourceBatch(ordered.rows, ordered.watermark, dict(counts), buffered)


def _close(batches: Iterator[pa.RecordBatch]) -> None:
    """Let a source close what it has opened; one that is no generator has no such need."""
    if isinstance(batches, Generator):
        batches.close()
