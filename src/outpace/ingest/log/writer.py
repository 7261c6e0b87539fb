"""The writer of an event log: one at a time, whole appends, and nothing lost that was promised.

An append is seen by readers when it is whole. It fails without a trace (a full disk, say) unless it
needs more than one segment; then the error says how many of its events are in the log. What a crash
has left half written is cut when the next writer opens the log; what was on the disk already is
never cut. Events wait in no buffer of the writer: a crash of its process loses none that were
appended. What a crash of the machine may take is what is not synchronised yet:

- "always": nothing, as an append returns, and is seen, when it is on the disk;
- "interval": what was appended in the last `interval_ms`;
- "never": what the system has not written by itself.

Memory: the encoded events of one append are written frame by frame, so one frame is held.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.rows.times import invalid_times, reason_of
from outpace.errors import DataError
from outpace.files.small_file import open_regular
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.ingest.log.folder import Folder, create_folder, open_folder
from outpace.ingest.log.frame import HEADER_BYTES, FrameKind, LogFrame, payload_checksum
from outpace.ingest.log.recover import Recovered, recover
from outpace.ingest.log.rows import Payload, fitting, payloads
from outpace.ingest.log.segment_writer import SegmentWriter
from outpace.pattern.argument import a_whole_number, one_of

#: A segment has at most so many frames, so that an index is small and soon checked.
_FRAMES_MAX: Final = 2**13
#: What a disk says that has no room; anything else may have left the file in any state.
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Sync(Enum):
    """When events are forced to the disk."""

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class OnInvalid(Enum):
    """What becomes of an event whose time is NULL or out of range."""

    FAIL = "fail"
    REJECT = "reject"
    """It goes to the log `rejected` inside the log's folder, with the reason."""


class Writer:
    """Appends to a log; use it as a context manager, or close it.

    Parameters
    ----------
    folder
        The folder of the log.
    sync, interval_ms, on_invalid
        As for `Log.writer`.

    Attributes
    ----------
    recovered
        What the last writer had left behind, and what was cut.
    rejected
        How many events were rejected by this writer.
    """

    def __init__(
        self,
        folder: Folder,
        *,
        sync: Sync | str = Sync.INTERVAL,
        interval_ms: int = 100,
        on_invalid: OnInvalid | str = OnInvalid.FAIL,
    ) -> None:
        interval_ms = a_whole_number(interval_ms, "interval_ms", least=1, error=DataError)
        self._folder = folder
        self._sync = one_of(Sync, sync, "sync")
        self._durable = self._sync is not Sync.NEVER
        self._on_invalid = one_of(OnInvalid, on_invalid, "on_invalid")
        self._rejecting = _rejected_folder(folder) if self._on_invalid is OnInvalid.REJECT else None
        #: Opened by the first event that is rejected.
        self._rejected_log: Writer | None = None
        self.rejected = 0
        self._broken: str | None = None
        self._lock = _locked(folder)
        try:
            self.recovered: Recovered = recover(folder, durable=self._durable)
            self._stop, self._arrival = self.recovered.stop, self.recovered.arrival
            found = self.recovered
            self._segment = SegmentWriter(
                folder, found.base, found.end, found.frames, found.stop, durable=self._durable
            )
            if self._durable:
                folder.sync()  # Events are durable only in files that are.
        except BaseException:
            os.close(self._lock)
            raise
        self._syncing = _Syncing(interval_ms / 1000) if self._sync is Sync.INTERVAL else None

    @property
    def stop(self) -> int:
        """The offset that the next event gets."""
        return self._stop

    def append(self, events: TableLike, *, arrival_us: int | None = None) -> range:
        """Append events and return their offsets.

        Parameters
        ----------
        events
            Events with the columns of the log, in any order of the columns: a table of any kind,
            or a list of dictionaries.
        arrival_us
            When they came, in microseconds since 1970: now, by default. It never goes back.

        Raises
        ------
        DataError
            Columns, types or times do not fit, or the disk has no room. Then nothing is appended,
            unless the events need more than one segment: the detail says how many are. Rejected
            events are stored before the others are: appended again, they are stored again.
        """
        if self._syncing is not None and self._syncing.failure is not None:
            self._broken = f"events could not be forced to the disk: {self._syncing.failure}"
        if self._broken is not None:
            raise DataError(
                "the log cannot be appended to by this writer",
                detail=self._broken,
                hint="close it and open the log again: what is half written is cut then",
            )
        table = fitting(to_arrow(events, schema=self._folder.schema), self._folder.schema)
        now = time.time_ns() // 1000
        if arrival_us is not None:
            now = a_whole_number(arrival_us, "arrival_us", error=DataError)
        self._arrival = max(self._arrival, now)
        table = self._without_invalid(table)
        first = self._stop
        try:
            self._append(table)
        except OSError as error:
            self._undo(error)
            raise self._failed(error, self._stop - first, table.num_rows) from error
        except BaseException:
            if self._broken is None:
                self._segment.cut()
            raise
        return range(first, self._stop)

    def sync(self) -> None:
        """Force all that was appended to the disk.

        Raises
        ------
        DataError
            The disk has not taken it, now or at an interval before.
        """
        with self._durably():
            self._segment.sync()
        if self._rejected_log is not None:
            self._rejected_log.sync()

    def close(self) -> None:
        """Make the last events durable, give up the lock and close the files.

        Raises
        ------
        DataError
            The disk has not taken all that was appended.
        """
        if self._lock < 0:
            return
        try:
            with self._durably():
                if self._syncing is not None:
                    self._syncing.cancel()
                self._segment.close()
        finally:
            os.close(self._lock)
            self._lock = -1
            if self._rejected_log is not None:
                self._rejected_log.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def _durably(self) -> Iterator[None]:
        """Say what the disk has not taken; a system tells of a failure once, so it is kept."""
        failure: OSError | None = None
        try:
            yield
        except OSError as error:
            failure = error
        if self._syncing is not None:
            failure = self._syncing.failed() or failure
        if failure is not None:
            raise DataError(
                f"events of the log in '{self._folder.path}' may not be on the disk",
                detail=str(failure),
                hint="append them again to a log on a disk that works",
            ) from failure

    def _append(self, table: pa.Table) -> None:
        limit = self._folder.segment_bytes
        if self._segment.end and self._segment.end + table.nbytes > limit:
            self._roll()
        frames: list[LogFrame] = []
        end = self._segment.end
        for payload in payloads(table, self._folder.time):
            full = self._segment.frames + len(frames) == _FRAMES_MAX
            if end and (full or end + HEADER_BYTES + len(payload.data) > limit):
                self._show(frames)
                self._roll()
                frames, end = [], 0
            frame = self._frame(payload, end, frames[-1].stop if frames else self._stop)
            self._segment.write(frame, payload.data, len(frames) + 1)
            frames.append(frame)
            end = frame.end
        self._show(frames)

    def _frame(self, payload: Payload, position: int, first: int) -> LogFrame:
        return LogFrame(
            FrameKind.EVENTS,
            position,
            len(payload.data),
            first,
            payload.events,
            payload.least,
            payload.greatest,
            self._arrival,
            payload_checksum(payload.data, self._folder.salt),
        )

    def _show(self, frames: list[LogFrame]) -> None:
        """Let readers see frames."""
        if not frames:
            return
        # Whatever ends this early, the log itself knows best how far it came: open it again.
        self._broken = "it was interrupted when it let readers see an append"
        self._segment.show(frames, durable=self._sync is Sync.ALWAYS)
        self._stop = frames[-1].stop
        self._broken = None
        if self._syncing is not None:
            self._syncing.after_append(self._segment)

    def _roll(self) -> None:
        """Close the segment and begin the next one."""
        following = SegmentWriter(self._folder, self._stop, 0, 0, self._stop, durable=self._durable)
        if self._syncing is not None:
            self._syncing.cancel()
        before, self._segment = self._segment, following
        before.close()
        if self._durable:
            self._folder.sync()

    def _undo(self, error: OSError) -> None:
        """Cut off what was written of an append that failed."""
        if self._broken is not None or error.errno not in _NO_ROOM:
            self._broken = f"{error}" if self._broken is None else f"{self._broken}: {error}"
            return
        try:
            self._segment.cut()
        except OSError as second:
            self._broken = f"what was half written cannot be cut: {second}"

    def _failed(self, error: OSError, done: int, total: int) -> DataError:
        left = f"the first {done} of {total} events are" if done else "none of the events is"
        return DataError(
            f"cannot append to the log in '{self._folder.path}': {(error.strerror or '').lower()}",
            detail=f"{left} in the log",
            hint="make room on the disk and append again" if error.errno in _NO_ROOM else None,
        )

    def _without_invalid(self, table: pa.Table) -> pa.Table:
        column = table[self._folder.time]
        invalid = invalid_times(column)
        if not invalid.any():
            return table
        rows = np.flatnonzero(invalid)
        if self._rejecting is None:
            raise DataError(
                reason_of(column, self._folder.time, int(rows[0])),
                detail=f"row {rows[0]}"
                + (f", and {len(rows) - 1} more rows" if len(rows) > 1 else ""),
                hint='on_invalid="reject" keeps such events apart',
            )
        reasons = [reason_of(column, self._folder.time, int(row)) for row in rows]
        if self._rejected_log is None:
            self._rejected_log = Writer(self._rejecting, sync=self._sync)
        self._rejected_log.append(_rejected_rows(table.take(rows), reasons, self._arrival))
        self.rejected += len(rows)
        return table.filter(pa.array(~invalid))


class _Syncing:
    """Forces events to the disk some time after they were appended, in a thread."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._timer: threading.Timer | None = None
        self._due = False
        self._busy = threading.Lock()
        #: What went wrong.
        self.failure: OSError | None = None

    def after_append(self, segment: SegmentWriter) -> None:
        """Force what was appended to the disk when the interval is over."""
        if not self._due:
            self._due = True
            self._timer = threading.Timer(self._interval_s, self._run, (segment,))
            self._timer.daemon = True
            self._timer.start()

    def cancel(self) -> None:
        """Give up what is planned, wait for what is under way: the caller does it now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        # One that takes longer than the interval may still run beside the last one.
        with self._busy:
            self._due = False

    def failed(self) -> OSError | None:
        """Return what went wrong, also in what is under way."""
        with self._busy:
            return self.failure

    def _run(self, segment: SegmentWriter) -> None:
        with self._busy:
            # What is appended from here on needs the next one.
            self._due = False
            try:
                segment.sync()
            except OSError as error:
                self.failure = error


def _locked(folder: Folder) -> int:
    handle = open_regular(folder.lock_file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        process = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(handle)
        raise DataError(
            f"another writer has the log '{folder.path}'", detail=f"process {process}"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def _rejected_folder(folder: Folder) -> Folder:
    """Return the folder of the log that rejected events go to, and make it where it is not."""
    if (folder.rejected / "log.json").exists():
        return open_folder(folder.rejected)
    for name in ("reason", "arrival"):
        if name in folder.schema.names:
            raise DataError(
                f"the log has a column '{name}', so it cannot keep rejected events apart",
                hint="the log of rejected events has columns 'reason' and 'arrival' of its own",
            )
    own = [pa.field("reason", pa.string()), pa.field("arrival", pa.timestamp("us", "UTC"))]
    columns = [field.with_nullable(True) for field in folder.schema]
    return create_folder(
        folder.rejected, pa.schema([*own, *columns]), "arrival", folder.segment_bytes
    )


def _rejected_rows(rows: pa.Table, reasons: list[str], arrival_us: int) -> pa.Table:
    arrivals = pa.array([arrival_us] * len(reasons), pa.timestamp("us", "UTC"))
    return rows.add_column(0, "arrival", arrivals).add_column(0, "reason", pa.array(reasons))
