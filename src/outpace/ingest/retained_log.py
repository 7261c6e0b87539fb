"""The retained log: the events of a stream, by their numbers, for as long as a replay needs them.

Events are retained in memory, and what that has no room for in temporary files that end with the
process; or in the segments of an event log in a folder (`outpace.ingest.log`), where they survive
it. There the last savepoint is a
file beside them, which is replaced as a whole, and the stimuli between them are a file that grows;
events are found by their offsets, which are their numbers. A savepoint drops events: in memory at
once; in a folder those that it skips are left out by a replay, and segments are deleted when all of
their events are trimmed.

Memory: events of at most `memory_bytes` and those that came last, sixteen bytes for each of the
others; in a folder eight bytes for each event that a savepoint kept.
Paper: Lima et al., section II-B (there: upstream backup).
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Final, TypeGuard

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.event import EVENT_ID
from outpace.engine.message import EventsArrived, SourceEnded, Stimulus, WatermarkArrived
from outpace.engine.savepoint import Savepoint
from outpace.engine.state import NATURAL, require
from outpace.engine.wire import read_stimulus, write_stimulus
from outpace.errors import DataError, StateError
from outpace.files.small_file import read_regular, replace_file
from outpace.ingest.log.folder import SEGMENT_BYTES, create_folder
from outpace.ingest.log.frame import (
    HEADER_BYTES,
    FrameKind,
    LogFrame,
    frame_parts,
    payload_checksum,
    read_header,
)
from outpace.ingest.log.reader import Log
from outpace.ingest.log.segment import Damage
from outpace.ingest.log.writer import Writer
from outpace.ingest.spilled_events import SpilledEvents
from outpace.pattern.argument import a_flag, a_path, a_whole_number

#: So many bytes of events are kept in memory, unless a log is told otherwise.
MEMORY_BYTES: Final = 64 << 20
#: The files beside the events: what they are needed for, and the stimuli between them.
_SAVEPOINT: Final = "savepoint"
_STIMULI: Final = "stimuli"
#: A file of stimuli is written anew when it has so many more than are left of it.
_SUPERSEDED: Final = 1024


class RetainedLog:
    """Events that a stream has taken, and may need again.

    Parameters
    ----------
    path
        A folder for the events, new, empty, or that of an earlier log; without it they are in
        memory.
    events, size_bytes
        How many events are retained at most, and until how many bytes of them more are taken; a
        push that would need more is refused, until matches are acknowledged.
    memory_bytes
        How many bytes of events are kept in memory, before older ones go to temporary files; by
        default 64 MiB.
    durable
        Whether events are forced to the disk before they count, so that they survive the end of the
        machine, too.
    segment_bytes
        About the size of the files in the folder.

    Examples
    --------
    >>> log = RetainedLog(events=1000)
    >>> log.append(pa.table({"ts": [1, 2, 3]}))
    range(0, 3)
    >>> len(log), log.came, log.savepoint, log.is_empty
    (3, 3, None, False)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        events: int | None = None,
        size_bytes: int | None = None,
        memory_bytes: int | None = None,
        durable: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        bounds = {"events": events, "size_bytes": size_bytes, "memory_bytes": memory_bytes}
        for name, bound in bounds.items():
            if bound is not None:
                a_whole_number(bound, name, least=1, error=DataError)
        self._size_bytes = size_bytes
        self._memory_bytes = MEMORY_BYTES if memory_bytes is None else memory_bytes
        self._most, self._durable = events, a_flag(durable, "durable", error=DataError)
        self._segment_bytes = segment_bytes
        self._path: Path | None = None
        #: The numbers of the events that are retained, and of those that came since, which all are.
        self._known, self._fresh = np.zeros(0, np.int64), range(0)
        #: Those in memory, their bytes, and those before them that it had no room for.
        self._rows: list[pa.Table] = []
        self._held = 0
        self._spilled: SpilledEvents | None = None
        self._log: Log | None = None
        self._writer: Writer | None = None
        #: The stimuli since the last savepoint, behind how many events, in which turn; the file
        #: that has them, and how many that has.
        self._stimuli: list[tuple[int, int, Stimulus]] = []
        self._file: FileIO | None = None
        self._file_size = 0
        self._owner: weakref.ref[object] | None = None
        #: What the stream needs; None before it has said so.
        self.savepoint: Savepoint | None = None
        #: How many events have come, and their columns; None before these are known.
        self.came = 0
        self.schema: pa.Schema | None = None
        if path is not None:
            self._path = Path(a_path(path, "the path of a retained log", error=DataError))
            if (self._path / "log.json").exists():
                self._open(self._path)

    def __len__(self) -> int:
        return len(self._known) + len(self._fresh)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has come: `op.open` begins with it then, and `op.resume` goes on else."""
        return not self.came and not self._stimuli

    @property
    def nbytes(self) -> int:
        """The bytes that the events take, in memory and in files."""
        if self._path is None:
            return self._held + (0 if self._spilled is None else self._spilled.nbytes)
        return sum(file.stat().st_size for file in self._path.glob("*.events"))

    def __repr__(self) -> str:
        where = "in memory" if self._path is None else f"in {str(self._path)!r}"
        return f"retained log {where}: {len(self):,} of {self.came:,} events"

    @property
    def stimuli(self) -> list[tuple[int, Stimulus]]:
        """The stimuli since the last savepoint, and behind how many events each came.

        Times and the end of the input, or where something puts events in order, all of them: that
        of events without them tells that a piece of these begins.
        """
        return [(came, stimulus) for came, _, stimulus in self._stimuli]

    def room(self, events: int) -> int:
        """Return how many can be retained of so many more events.

        Parameters
        ----------
        events
            The number of events.
        """
        if self._size_bytes is not None and self.nbytes >= self._size_bytes:
            return 0
        return events if self._most is None else max(0, min(events, self._most - len(self)))

    def check_room(self, events: int) -> None:
        """Refuse more events than can be retained.

        Parameters
        ----------
        events
            The number of events.
        """
        if self.room(events) < events:
            raise DataError(
                f"the retained log has no room for {events} more events",
                detail=f"it has {len(self)} of at most {self._most}"
                if self._most is not None
                else f"it has {self.nbytes} bytes of at most {self._size_bytes}",
                hint="acknowledge matches, or retain more events",
            )

    @property
    def first(self) -> int:
        """The number of the first event that is retained, or of the next one."""
        if len(self._known):
            return int(self._known[0])
        return self._fresh.start if self._fresh else self.came

    def count_from(self, number: int) -> int:
        """Return how many events are retained with this number or a later one.

        Parameters
        ----------
        number
            The number of an event.
        """
        known = len(self._known) - int(np.searchsorted(self._known, number))
        return known + len(self._fresh[max(0, number - self._fresh.start) :])

    def take(self, owner: object) -> None:
        """Let a stream write alone from now on, which finds what is in the folder now.

        Parameters
        ----------
        owner
            The stream.
        """
        if self._path is not None and self._log is not None:
            self.close()
            self._writer = self._log.writer(sync="always" if self._durable else "never")
            self._open(self._path)
        self._owner = weakref.ref(owner)

    def is_free_for(self, owner: object) -> bool:
        """Say whether no other stream writes.

        Parameters
        ----------
        owner
            The stream that asks.
        """
        return self._owner is None or self._owner() is owner

    def begin(self, schema: pa.Schema, time: str = "ts") -> None:
        """Say what the columns of the events are, before any comes.

        Parameters
        ----------
        schema
            The columns.
        time
            That with their times, of which a folder keeps an index.
        """
        assert self.schema is None, "a log begins once"
        self.schema = schema
        if self._path is not None:
            self._log = Log(create_folder(self._path, schema, time, self._segment_bytes))

    def append(self, rows: pa.Table) -> range:
        """Retain the next events, and return their numbers.

        Parameters
        ----------
        rows
            The events.
        """
        if self.schema is None:
            self.begin(rows.schema)
        self.check_room(rows.num_rows)
        added = range(self.came, self.came + rows.num_rows)
        if self._log is None:
            self._make_room(rows.nbytes)
            self._rows.append(rows)
            self._held += rows.nbytes
        elif rows.num_rows:
            self._locked(self._log).append(rows)
        self._fresh = range(self._fresh.start if self._fresh else added.start, added.stop)
        self.came = added.stop
        return added

    def retain(
        self, stimulus: Stimulus, rows: pa.Table | None, turn: int, *, ordered: bool
    ) -> None:
        """Retain what a stream has taken.

        Parameters
        ----------
        stimulus, rows
            What it took, and its events as they are retained, see `RecoverableOperator.retained`.
        turn
            That of the stream before, see `MatchPlace`.
        ordered
            Whether something puts events in order: then all stimuli decide it.
        """
        if isinstance(stimulus, EventsArrived):
            assert rows is not None, "events are retained with their rows"
            if ordered:
                self.check_room(rows.num_rows)
                # First, so that no event is there without it.
                self._keep(turn, replace(stimulus, rows=stimulus.rows.select([])))
            self.append(rows)
        elif ordered or isinstance(stimulus, SourceEnded) or _tells_time(stimulus):
            self._keep(turn, stimulus)

    def _keep(self, turn: int, stimulus: Stimulus) -> None:
        """Retain a stimulus that came in a turn of the stream."""
        kept = self.came, turn, stimulus
        self._note(kept)
        if self._log is None:
            return
        self._locked(self._log)
        if self._file is None or self._file_size > 2 * len(self._stimuli) + _SUPERSEDED:
            self._write_stimuli()
            return
        data = _framed(kept, self._file.tell(), self._log.folder.salt)
        with self._writing():
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._durable:
                os.fsync(self._file.fileno())
        self._file_size += 1

    def _is_over(self, kept: tuple[int, int, Stimulus]) -> bool:
        """Say whether the savepoint knows of a stimulus."""
        known = self.savepoint
        return known is not None and (kept[0] < known.at or kept[1] < known.turn)

    def _note(self, kept: tuple[int, int, Stimulus]) -> None:
        """Remember a stimulus, in place of one that says less.

        In the same turn no match came of the time before, so that the later time says it all. Where
        something puts events in order, each stimulus has a turn of its own.
        """
        *place, stimulus = kept
        if _tells_time(stimulus) and self._stimuli:
            *before, last = self._stimuli[-1]
            if before == place and _tells_time(last):
                self._stimuli.pop()
                kept = *kept[:2], max(last, stimulus, key=lambda one: one.watermark)
        self._stimuli.append(kept)

    def thin(self, savepoint: Savepoint) -> None:
        """Drop the events that a savepoint has no use for, and remember it.

        Parameters
        ----------
        savepoint
            The savepoint that a recovery would start from.
        """
        if self._log is not None:
            self._locked(self._log)
        numbers = self._numbers()
        keep = ~savepoint.drops(numbers)
        spilled = 0
        if self._spilled is not None:
            spilled = len(self._spilled)
            self._spilled.keep(keep[:spilled])
        if self._rows and not keep[spilled:].all():
            # What is left holds no memory of what is not.
            rows = pa.concat_tables(self._rows).take(np.flatnonzero(keep[spilled:]))
            self._rows = [rows.combine_chunks()]
            self._held = self._rows[0].nbytes
        self._known, self._fresh = numbers[keep], range(0)
        self.savepoint = savepoint
        self._write_savepoint()
        later = [one for one in self._stimuli if not self._is_over(one)]
        if len(later) < len(self._stimuli):
            self._stimuli = later
            self._write_stimuli()
        if self._log is not None:
            self._log.trim(savepoint.trim + 1)

    def events(self, first: int = 0, most: int | None = None) -> tuple[pa.Table, Integers]:
        """Return events that are retained, and their numbers.

        Parameters
        ----------
        first
            The number from which on they are wanted.
        most
            How many at most; None: all.
        """
        low = len(self) - self.count_from(first)
        high = len(self) if most is None else min(len(self), low + most)
        numbers = self._numbers(low, high)
        if self._log is not None:
            return self._read(self._log, numbers), numbers
        if self.schema is None:
            raise DataError("nothing has been retained", hint="push events before any are read")
        tables, spilled = [self.schema.empty_table()], 0
        if self._spilled is not None:
            spilled = len(self._spilled)
            tables.append(self._spilled.read(low, high).cast(self.schema))
        if high > spilled and self._rows:
            begin = max(low - spilled, 0)
            tables.append(pa.concat_tables(self._rows).slice(begin, high - spilled - begin))
        return pa.concat_tables(tables), numbers

    def _make_room(self, nbytes: int) -> None:
        """Let older events go to files where memory has no room for so many bytes more."""
        if not self._rows or self._held + nbytes <= self._memory_bytes:
            return
        assert self.schema is not None
        if self._spilled is None:
            self._spilled = SpilledEvents(self.schema, self._segment_bytes)
        self._spilled.append(pa.concat_tables(self._rows))
        self._rows, self._held = [], 0

    def _read(self, log: Log, numbers: Integers) -> pa.Table:
        """Return events of the folder; what is lost there may be some that nobody needs."""
        log.refresh()
        first = int(numbers[0]) if len(numbers) else self.came
        lost: list[Damage] = []
        stop = int(numbers[-1]) + 1 if len(numbers) else self.came
        rows = log.read(first, stop, on_damage="skip", lost=lost)
        there = np.arange(first, stop)
        for one in lost:
            there = there[(there < one.first) | (there >= one.stop)]
        if not np.isin(numbers, there).all():
            raise StateError(
                f"events that a replay needs are lost in the retained log: {lost[0].reason}",
                detail=str(lost[0].error().detail),
                hint="start from the input, with a new log",
            )
        return rows.take(pa.array(np.searchsorted(there, numbers)))

    def close(self) -> None:
        """Let others write to the folder."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _numbers(self, low: int = 0, high: int | None = None) -> Integers:
        """Return the numbers of events that are retained, by their places."""
        known, high = len(self._known), len(self) if high is None else high
        fresh = self._fresh[max(low - known, 0) : max(high - known, 0)]
        return np.concatenate([self._known[low:high], np.arange(fresh.start, fresh.stop)])

    def _locked(self, log: Log) -> Writer:
        """Return what writes to the folder, as nobody else does."""
        if self._writer is None:
            self._writer = log.writer(sync="always" if self._durable else "never")
        if self._writer.stop != self.came:
            raise DataError(
                f"the folder has {self._writer.stop} events, of which {self.came} are known here",
                hint="go on with op.resume(query, log)",
            )
        return self._writer

    def _write_stimuli(self) -> None:
        """Put the stimuli into the folder, in place of what is there."""
        if self._log is None or self._path is None:
            return
        self._locked(self._log)
        if self._file is not None:
            self._file.close()
            self._file = None
        written = bytearray()
        for one in self._stimuli:
            written += _framed(one, len(written), self._log.folder.salt)
        self._replace(_STIMULI, written)
        with self._writing():
            self._file = (self._path / _STIMULI).open("ab", buffering=0)
        self._file_size = len(self._stimuli)

    def _write_savepoint(self) -> None:
        """Put the savepoint into the folder, with all that is skipped of the events there."""
        if self._path is None or self._log is None or self.savepoint is None:
            return
        self._replace(_SAVEPOINT, self.savepoint.keeping(self._known).encode())

    def _replace(self, name: str, content: bytes | bytearray) -> None:
        """Put a file into the folder, or another one in its place, as a whole."""
        assert self._path is not None
        with self._writing():
            replace_file(self._path / name, content, durable=self._durable)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Say where it was that something could not be written."""
        try:
            yield
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DataError(
                f"cannot write to the retained log in '{self._path}': {reason}",
                hint="make room on the disk, then go on with op.resume(query, log)",
            ) from error

    def _open(self, path: Path) -> None:
        """Go on with what an earlier log left."""
        self._log = Log.open(path)
        self._stimuli, self.savepoint = [], None
        self.schema = self._log.schema
        self.came = self._log.stop
        first = self._log.first
        try:
            if (saved := _content(path / _SAVEPOINT)) is not None:
                self.savepoint = Savepoint.decode(saved)
                require(self.savepoint.at <= self.came, "the savepoint is ahead of the events")
                first = max(first, self.savepoint.trim + 1)
            self._open_stimuli(_content(path / _STIMULI) or b"")
        except StateError as error:
            error.where = str(path)
            raise
        numbers = np.arange(first, self.came)
        if self.savepoint is not None:
            numbers = numbers[~self.savepoint.drops(numbers)]
        self._known, self._fresh = numbers, range(0)

    def _open_stimuli(self, data: bytes) -> None:
        """Remember the stimuli of before; where all are kept, each event came with one of them."""
        assert self._log is not None
        self._file_size = 0
        covered = 0 if self.savepoint is None else self.savepoint.at
        for one, events in _frames(data, self.came, self._log.folder.salt):
            self._file_size += 1
            if self._is_over(one):
                continue
            if isinstance(one[2], EventsArrived):
                if one[0] >= self.came:
                    continue  # Its events were not written: it did not count.
                require(one[0] <= covered, "nobody knows how events came")
                covered = one[0] + events
            self._note(one)
        assert self.schema is not None
        traced = EVENT_ID.name in self.schema.names
        require(covered >= self.came or not traced, "nobody knows how the last events came")


def _content(path: Path) -> bytes | None:
    """Return the bytes of a file; None where there is none."""
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None


def _tells_time(stimulus: Stimulus) -> TypeGuard[WatermarkArrived]:
    """Say whether a stimulus tells how far time has come."""
    return isinstance(stimulus, WatermarkArrived) and stimulus.watermark != NO_TIME


def _framed(kept: tuple[int, int, Stimulus], position: int, salt: int) -> bytes:
    """Return a stimulus as a frame at a position, which `_frames` reads."""
    came, turn, stimulus = kept
    payload = write_stimulus(stimulus)
    events = stimulus.rows.num_rows if isinstance(stimulus, EventsArrived) else 0
    checksum, length = payload_checksum(payload, salt), len(payload)
    kind = FrameKind.STIMULUS
    frame = LogFrame(kind, position, length, came, events, turn, turn, 0, checksum)
    return b"".join(frame_parts(frame, payload, salt))


def _frames(data: bytes, last: int, salt: int) -> Iterator[tuple[tuple[int, int, Stimulus], int]]:
    """Yield stimuli, and with how many events each came, up to one that was not written as a whole.

    Behind the last event nothing is lost with it.
    """
    place = 0
    while place + HEADER_BYTES <= len(data):
        frame = read_header(memoryview(data)[place : place + HEADER_BYTES], salt)
        known = frame is not None and (frame.kind, frame.position) == (FrameKind.STIMULUS, place)
        if frame is None or not known or not _is_whole(frame, data, salt):
            short = frame is not None and known and frame.end >= len(data) and frame.first >= last
            require(short or not any(data[place:]), "the stimuli between events are damaged")
            return
        begin = place + HEADER_BYTES
        stimulus = read_stimulus(pa.py_buffer(data[begin : begin + frame.length]))
        require(frame.least in NATURAL, "a stimulus came before the first event")
        yield (frame.first, frame.least, stimulus), frame.events
        place = frame.end


def _is_whole(frame: LogFrame, data: bytes, salt: int) -> bool:
    begin = frame.position + HEADER_BYTES
    payload = memoryview(data)[begin : begin + frame.length]
    return frame.end <= len(data) and payload_checksum(payload, salt) == frame.payload_checksum
