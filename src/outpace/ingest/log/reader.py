"""The reading side of an event log: any number of readers, in any process, while one writes.

A reader sees whole appends, in the order of their offsets, as far as the log had come when it
looked last (`refresh`). It holds the headers of at most a few segments, and one frame.
"""

from __future__ import annotations

import os
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.codec.block import check_block, read_block
from outpace.errors import DataError
from outpace.ingest.log.folder import Folder, open_folder
from outpace.ingest.log.frame import (
    HEADER_BYTES,
    HEADERS,
    FrameKind,
    Headers,
    LogFrame,
    frame_of,
)
from outpace.ingest.log.segment import Damage, Segment, open_segment, read_closed, read_last
from outpace.ingest.log.writer import OnInvalid, Sync, Writer
from outpace.pattern.argument import a_whole_number, one_of

#: How many closed segments a reader remembers the headers of: at most 512 KiB each.
_REMEMBERED: Final = 4
_BROKEN: Final = "a block is not what its checksum says"
_UNREADABLE: Final = "a block is not what its header and the log say"
_CRASHED: Final = "a crash took events before they were forced to the disk"


class OnDamage(Enum):
    """What becomes of reading where events cannot be read."""

    FAIL = "fail"
    SKIP = "skip"
    """It goes on behind them; what is lost is counted."""


@dataclass(frozen=True)
class FrameRun:
    """Frames of one segment that follow each other, and what is lost between and around them."""

    base: int
    headers: Headers
    damage: tuple[Damage, ...]


@dataclass(frozen=True)
class Behind:
    """How far a reader is behind: what it has not read, and how long the oldest of it waits.

    Parameters
    ----------
    events, bytes
        What has not been read.
    arrival_us
        When the oldest event of that came, in microseconds since 1970; None if there is none.
    """

    events: int
    bytes: int
    arrival_us: int | None


class Log:
    """An event log, for reading; `writer` opens it for writing.

    Parameters
    ----------
    folder
        The folder, as `outpace.log.open` finds it.

    Examples
    --------
    >>> import tempfile
    >>> from outpace.ingest.log import create
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = create(folder.name, pa.schema({"ts": pa.int64(), "price": pa.float64()}))
    >>> with log.writer() as writer:
    ...     writer.append(pa.table({"ts": [1, 2, 3], "price": [10.0, 11.0, 10.5]}))
    range(0, 3)
    >>> log.refresh()
    3
    >>> log.read(1)["price"].to_pylist()
    [11.0, 10.5]
    >>> folder.cleanup()
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._bases: list[int] = []
        self._last: Segment | None = None
        self._closed: dict[int, Segment] = {}
        self.refresh()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Log:
        """Open a log for reading.

        Parameters
        ----------
        path
            The folder of the log.
        """
        return cls(open_folder(path))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the events."""
        return self.folder.schema

    @property
    def time(self) -> str:
        """The column with the times of the events."""
        return self.folder.time

    @property
    def first(self) -> int:
        """The offset of the first event that is kept."""
        return self._bases[0] if self._bases else 0

    @property
    def stop(self) -> int:
        """The offset after the last event that was seen."""
        return 0 if self._last is None else self._last.stop

    def writer(
        self,
        *,
        sync: Sync | str = Sync.INTERVAL,
        interval_ms: int = 100,
        on_invalid: OnInvalid | str = OnInvalid.FAIL,
    ) -> Writer:
        """Open the log for writing; there is one writer at a time.

        Parameters
        ----------
        sync
            When events are forced to the disk: "always", before `append` returns and before readers
            see them; "interval", within some time; "never".
        interval_ms
            That time.
        on_invalid
            What becomes of an event whose time is NULL or out of range: "fail" refuses the append,
            "reject" puts the event into the log in the folder `rejected`, with the reason.
        """
        return Writer(self.folder, sync=sync, interval_ms=interval_ms, on_invalid=on_invalid)

    def refresh(self) -> int:
        """Look how far the log has come, and return `stop`."""
        bases = self.folder.bases()
        # A segment without whole frames adds nothing, and the one before it may be torn, too.
        while bases:
            last = read_last(self.folder, bases[-1], self._last)
            if len(last.headers) or last.damage or len(bases) == 1:
                self._last = last
                break
            bases.pop()
        self._bases = bases
        return self.stop

    def runs(self, start: int, stop: int) -> Iterator[FrameRun]:
        """Yield the frames with events from `start` on and before `stop`, segment by segment.

        Parameters
        ----------
        start, stop
            The offset of the first event, and the one behind the last.
        """
        if start >= stop:
            return
        if start < self.first:
            path = str(self.folder.path)
            lost = Damage(path, 0, start, min(stop, self.first), "the events were trimmed")
            yield FrameRun(self.first, np.zeros(0, HEADERS), (lost,))
        for number in range(max(0, bisect_right(self._bases, start) - 1), len(self._bases)):
            if self._bases[number] >= stop:
                break
            segment = self._segment(number)
            headers = segment.headers
            chosen = (headers["first"] < stop) & (headers["first"] + headers["events"] > start)
            damage = tuple(
                part for part in segment.damage if part.first < stop and part.stop > start
            )
            yield FrameRun(segment.base, headers[chosen], damage)

    def batches(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        on_damage: OnDamage | str = OnDamage.FAIL,
        lost: list[Damage] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield events in the order of their offsets, frame by frame.

        Parameters
        ----------
        start, stop
            From which offset on, and up to which; all that is kept and was seen, by default.
        on_damage
            "fail" raises a DataError where events cannot be read, "skip" goes on behind them.
        lost
            A list that what was skipped is added to, and what a crash took (`Damage.marked`), which
            ends no reading. Without a list, a warning tells the latter.
        """
        low = self.first if start is None else _offset(start)
        high = self.stop if stop is None else min(_offset(stop), self.stop)
        for _, batch in self.placed(low, high, on_damage=on_damage, lost=lost):
            yield batch

    def placed(
        self,
        start: int,
        stop: int,
        *,
        on_damage: OnDamage | str = OnDamage.FAIL,
        lost: list[Damage] | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield events as `batches` does, with the offset of the first of each frame.

        Parameters
        ----------
        start, stop, on_damage, lost
            As there.
        """
        for frame, payload in self.payloads(start, stop, on_damage=on_damage, lost=lost):
            batch = self._events(frame, payload)
            if isinstance(batch, Damage):
                self._tell(batch, on_damage, lost)
                continue
            begin = max(start - frame.first, 0)
            yield (
                frame.first + begin,
                batch.slice(begin, min(stop, frame.stop) - frame.first - begin),
            )

    def read(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        on_damage: OnDamage | str = OnDamage.FAIL,
        lost: list[Damage] | None = None,
    ) -> pa.Table:
        """Return events as a table; the parameters are those of `batches`.

        Parameters
        ----------
        start, stop, on_damage, lost
            As for `batches`.
        """
        return pa.Table.from_batches(
            self.batches(start, stop, on_damage=on_damage, lost=lost), self.schema
        )

    def payloads(
        self,
        start: int,
        stop: int,
        *,
        on_damage: OnDamage | str = OnDamage.FAIL,
        lost: list[Damage] | None = None,
    ) -> Iterator[tuple[LogFrame, pa.Buffer]]:
        """Yield the frames that have events of a range of offsets, with their blocks.

        Parameters
        ----------
        start, stop
            The offset of the first event, and the one behind the last.
        on_damage, lost
            As for `batches`.
        """
        for run in self.runs(start, stop):
            for found in chain(run.damage, self._read(run)):
                if isinstance(found, Damage):
                    self._tell(found, on_damage, lost)
                else:
                    yield found

    def _tell(self, damage: Damage, on_damage: OnDamage | str, lost: list[Damage] | None) -> None:
        """Raise, add to a list or warn, as asked."""
        skip = one_of(OnDamage, on_damage, "on_damage") is OnDamage.SKIP
        if not (skip or damage.marked):
            raise damage.error()
        if lost is not None:
            lost.append(damage)
        elif damage.marked:
            warnings.warn(f"{damage.reason}: {damage.error().detail}", stacklevel=4)

    def crashed(self, start: int | None = None, stop: int | None = None) -> list[Damage]:
        """Return what crashes took of a range of offsets, and writers have marked since.

        It was in the log, and readers may have seen it, but it was not forced to the disk yet.

        Parameters
        ----------
        start, stop
            From which offset on, and up to which; all that is kept and was seen, by default.
        """
        low = self.first if start is None else start
        high = self.stop if stop is None else stop
        return [
            self._crashed(run.base, frame_of(record))
            for run in self.runs(low, high)
            for record in run.headers[run.headers["kind"] == FrameKind.CUT]
        ]

    def _crashed(self, base: int, frame: LogFrame) -> Damage:
        path = str(self.folder.events_file(base))
        return Damage(path, frame.position, frame.first, frame.stop, _CRASHED, marked=True)

    def _events(self, frame: LogFrame, payload: pa.Buffer) -> pa.RecordBatch | Damage:
        """Return the events of a frame."""
        try:
            columns = read_block(payload, self.schema)
            batch = pa.RecordBatch.from_arrays(
                [columns[name] for name in self.schema.names], schema=self.schema
            )
            batch.validate()
            if batch.num_rows != frame.events:
                raise ValueError(f"{batch.num_rows} events and not {frame.events}")
        # Whoever can write to the log can write any block, with a checksum that fits.
        except Exception:
            path = str(self.folder.path)
            return Damage(path, frame.position, frame.first, frame.stop, _UNREADABLE)
        return batch

    def _read(self, run: FrameRun) -> Iterator[tuple[LogFrame, pa.Buffer] | Damage]:
        path = str(self.folder.events_file(run.base))
        frames = [frame_of(record) for record in run.headers]
        if not frames:
            return
        try:
            with open_segment(self.folder, run.base) as reader:
                for frame in frames:
                    if frame.kind is FrameKind.CUT:
                        yield self._crashed(run.base, frame)
                        continue
                    payload = reader.payload(frame)
                    if payload is None:
                        yield Damage(path, frame.position, frame.first, frame.stop, _BROKEN)
                    elif not self._is_sound(payload):
                        yield Damage(path, frame.position, frame.first, frame.stop, _UNREADABLE)
                    else:
                        yield frame, payload
        except FileNotFoundError:
            yield Damage(path, 0, frames[0].first, frames[-1].stop, "the segment was deleted")

    def _is_sound(self, payload: pa.Buffer) -> bool:
        # Whoever can write to the log can write a few bytes that stand for any number of events, or
        # texts that lie outside of their block.
        try:
            check_block(payload, self.schema)
        except (ValueError, OSError, StopIteration):
            return False
        return True

    def end_of(self, start: int, *, events: int | None = None, bytes: int | None = None) -> int:
        """Return how far to read from an offset on: at most so many events and bytes.

        At least one event is read if there is one. The end is that of a frame where this leaves out
        less than half of what is allowed.

        Parameters
        ----------
        start
            The offset of the first event.
        events, bytes
            How many events and bytes are read at most; None: any number.
        """
        start = _offset(start)
        if events is not None:
            events = a_whole_number(events, "the number of events", error=DataError)
        if bytes is not None:
            bytes = a_whole_number(bytes, "the number of bytes", error=DataError)
        stop = self.stop if events is None else min(self.stop, start + events)
        if bytes is None and stop == self.stop:
            return stop
        whole, room = start, float("inf") if bytes is None else bytes
        for run in self.runs(start, stop):
            stops, sizes = self._left(run, start)
            taken = np.cumsum(sizes)
            fits = int(np.searchsorted(taken, room, "right"))
            count = min(fits, int(np.searchsorted(stops, stop, "right")))
            if count:
                whole = int(stops[count - 1])
            if count < len(stops):
                if count == fits:
                    left = room - (taken[count - 1] if count else 0)
                    begin = max(start, int(run.headers[count]["first"]))
                    part = int((int(stops[count]) - begin) * left / sizes[count])
                    stop = min(stop, max(begin + part, start + 1))
                return whole if 2 * (whole - start) >= stop - start else stop
            room -= taken[-1] if len(taken) else 0
        return stop

    def behind(self, offset: int) -> Behind:
        """Say how far somebody is behind who has read up to an offset.

        Parameters
        ----------
        offset
            The offset of the first event that is not read yet.
        """
        offset = _offset(offset)
        place = max(offset, self.first)
        for run in self.runs(place, self.stop):
            if len(run.headers):
                _, sizes = self._left(run, offset)
                later = [base for base in self._bases if base > run.base]
                size = int(sizes.sum()) + sum(map(self._size, later))
                return Behind(self.stop - place, size, int(run.headers[0]["arrival"]))
        return Behind(self.stop - place, 0, None)

    def _left(self, run: FrameRun, start: int) -> tuple[Integers, npt.NDArray[np.float64]]:
        """Return where frames stop, and how many bytes they have from an offset on."""
        stops = run.headers["first"] + run.headers["events"]
        events = np.maximum(run.headers["events"], 1)
        sizes = HEADER_BYTES + run.headers["length"].astype(np.float64)
        return stops, sizes * np.minimum(stops - start, events) / events

    def _size(self, base: int) -> int:
        try:
            return self.folder.events_file(base).stat().st_size
        except FileNotFoundError:
            return 0

    def arrival_before(self, offset: int) -> int:
        """Return when the last event before an offset came; 0 where there is none.

        Parameters
        ----------
        offset
            The offset.
        """
        offset = _offset(offset)
        for run in self.runs(offset - 1, offset):
            if len(run.headers):
                return int(run.headers[-1]["arrival"])
        return 0

    def trim(self, before: int) -> int:
        """Delete segments whose events are all before an offset, and return how many.

        The last segment is never deleted. A reader that still needs the events is told so.

        Parameters
        ----------
        before
            The offset of the first event that is kept in any case.
        """
        before = _offset(before)
        self.refresh()
        old = [base for base, stop in pairwise(self._bases) if stop <= before]
        for base in old:
            # Frames tell all without their index; an index without them tells that they are lost.
            self.folder.index_file(base).unlink(missing_ok=True)
            self.folder.events_file(base).unlink(missing_ok=True)
            self._closed.pop(base, None)
        self.refresh()
        return len(old)

    def segments(self) -> Iterator[Segment]:
        """Yield all segments."""
        for number in range(len(self._bases)):
            yield self._segment(number)

    def _segment(self, number: int) -> Segment:
        if number == len(self._bases) - 1:
            assert self._last is not None
            return self._last
        base = self._bases[number]
        if base not in self._closed:
            if len(self._closed) >= _REMEMBERED:
                self._closed.pop(next(iter(self._closed)))
            self._closed[base] = read_closed(self.folder, base, self._bases[number + 1])
        return self._closed[base]


def _offset(value: int) -> int:
    return a_whole_number(value, "an offset", error=DataError)
