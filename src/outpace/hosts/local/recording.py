"""Recordings of streams: what came, in order, and what came of it, so that it can be replayed.

A recording is a folder. `recording.json` says its version, the query and how the stream was opened.
`steps` is a run of frames (`outpace.ingest.log.frame`), each with its checksums:

- the columns of the rows, when they are known, and the saved state that a stream was resumed from;
- each stimulus, before the stream takes it, so that one that ends the process is there as well;
- its outcome: a checksum of the instructions, or the error.

A frame is in the file when the call that writes it returns, so a crash of the process loses nothing
before it, and a crash of the machine what the system has not written yet. What is torn at the end
is left out and told; other damage is refused with its place. What is detected is kept as well
(`outpace.hosts.local.description`).

Memory: one frame.
"""

from __future__ import annotations

import logging
import os
import secrets
import struct
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from outpace.engine.codec.table import write_table
from outpace.engine.message import EventsArrived, Instruction, Stimulus, query_of
from outpace.engine.wire import instructions_checksum, write_stimulus
from outpace.errors import DataError, OutpaceError, StateError
from outpace.files.small_file import open_regular
from outpace.hosts.clock import clock_time
from outpace.hosts.local.description import Recordable, describe, is_description, recall
from outpace.ingest.log.folder import read_about, write_about
from outpace.ingest.log.frame import (
    HEADER_BYTES,
    MAGIC,
    FrameKind,
    LogFrame,
    frame_parts,
    payload_checksum,
    read_header,
)
from outpace.ingest.log.segment import SegmentReader
from outpace.ingest.log.segment_writer import write_all
from outpace.pattern.argument import a_path
from outpace.pattern.group import QueryGroup

VERSION: Final = 2
_FORMAT: Final = "outpace.recording"
_ABOUT: Final = "recording.json"
_STEPS: Final = "steps"
_HINT: Final = "op.open(query, record=path) and outpace stream --record make one"
_OUTCOME: Final = struct.Struct("<BI")
#: A frame says its length in four bytes.
_BYTES_MAX: Final = 2**32 - 1
#: How much of a torn end is looked at in one piece.
_PIECE_BYTES: Final = 1 << 20

_LOG: Final = logging.getLogger("outpace.stream")


class Ending(IntEnum):
    """How a step ended."""

    DONE = 0
    FAILED = 1
    INTERRUPTED = 2
    """By Ctrl-C, say: it depends on the moment, so a replay leaves the step out."""


class StepOutcome(NamedTuple):
    """What came of a step: how it ended, the checksum of its instructions, the error's text."""

    ending: Ending
    checksum: int = 0
    error: str = ""

    def write(self) -> bytes:
        """Return the outcome as bytes."""
        return _OUTCOME.pack(self.ending, self.checksum) + self.error.encode(errors="replace")

    @staticmethod
    def read(data: pa.Buffer) -> StepOutcome:
        """Read what `write` wrote."""
        ending, checksum = _OUTCOME.unpack_from(data)
        return StepOutcome(Ending(ending), checksum, data.to_pybytes()[_OUTCOME.size :].decode())


def outcome_of(instructions: Sequence[Instruction], of: Recordable) -> StepOutcome:
    """Return the outcome of a step that was done; queries of a group count with their names."""
    if not isinstance(of, QueryGroup):
        return StepOutcome(Ending.DONE, instructions_checksum(instructions))
    checksum = 0
    for name, own in groupby(instructions, query_of):
        checksum = zlib.crc32(f"{name} {instructions_checksum([*own])}".encode(), checksum)
    return StepOutcome(Ending.DONE, checksum)


def failure_of(error: Exception) -> StepOutcome:
    """Return the outcome of a step that failed."""
    if isinstance(error, OutpaceError):
        return StepOutcome(Ending.FAILED, error=f"[{error.code}] {error.message}")
    return StepOutcome(Ending.FAILED, error=f"{type(error).__name__}: {error}")


class Recorder:
    """Writes what happens in a stream to a new recording.

    Parameters
    ----------
    path
        A folder that is new or empty.
    query, sources, timeouts
        What is detected, and how the stream is opened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        query: Recordable,
        *,
        sources: tuple[str, ...] | None = None,
        timeouts: bool = False,
    ) -> None:
        self.path = Path(a_path(path, "the path of a recording", error=DataError)).absolute()
        self._query, self._salt = query, secrets.randbits(32)
        about = {
            "format": _FORMAT,
            "version": VERSION,
            **describe(query),
            "sources": None if sources is None else list(sources),
            "timeouts": timeouts,
            "salt": self._salt,
        }
        write_about(self.path, _ABOUT, about, "recording")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._handle = os.open(self.path / _STEPS, flags, 0o666)
        except OSError as error:
            raise DataError(f"cannot record to '{self.path}'", detail=str(error)) from error
        weakref.finalize(self, os.close, self._handle)
        self._end = self._number = 0
        self._broken: str | None = None

    def bound(self, schema: pa.Schema) -> None:
        """Note the columns that rows have from now on."""
        self._write(FrameKind.SCHEMA, write_table(schema.empty_table()))

    def restored(self, state: bytes) -> None:
        """Note the saved state that the stream goes on from."""
        self._write(FrameKind.STATE, pa.py_buffer(state))

    def step(
        self, stimulus: Stimulus, take: Callable[[Stimulus], list[Instruction]]
    ) -> list[Instruction]:
        """Note a stimulus, let the stream take it, and note what comes of it."""
        if self._broken is not None:
            raise DataError(
                f"the recording in '{self.path}' cannot go on",
                detail=self._broken,
                hint="save the state and resume the query with another recording, or without one",
            )
        self._number += 1
        rows = stimulus.rows.num_rows if isinstance(stimulus, EventsArrived) else 0
        try:
            self._write(FrameKind.STIMULUS, write_stimulus(stimulus), rows)
        except BaseException:
            self._number -= 1
            raise
        try:
            instructions = take(stimulus)
        except Exception as error:
            self._end_step(failure_of(error))
            raise
        except BaseException:
            self._end_step(StepOutcome(Ending.INTERRUPTED))
            raise
        self._end_step(outcome_of(instructions, self._query))
        return instructions

    def _end_step(self, outcome: StepOutcome) -> None:
        """Note an outcome; what the stream has found must not be lost where that fails."""
        try:
            self._write(FrameKind.OUTCOME, outcome.write())
        except DataError as error:
            self._broken = f"what came of step {self._number} could not be written"
            _LOG.warning("%s: %s", error.message, error.detail)

    def _write(self, kind: FrameKind, payload: bytes | pa.Buffer, rows: int = 0) -> None:
        length = len(payload)
        if length > _BYTES_MAX:
            raise DataError(
                f"{length:,} bytes are too many for one step of a recording",
                hint="push the rows in smaller pieces",
            )
        checksum = payload_checksum(payload, self._salt)
        now = clock_time()
        frame = LogFrame(kind, self._end, length, self._number, rows, 0, 0, now, checksum)
        try:
            write_all(self._handle, frame_parts(frame, payload, self._salt), self._end)
            self._end = frame.end
        except OSError as error:
            self._cut()
            raise DataError(f"cannot record to '{self.path}'", detail=str(error)) from error
        except BaseException:
            self._cut()
            raise

    def _cut(self) -> None:
        """Cut off what was half written."""
        try:
            os.ftruncate(self._handle, self._end)
        except OSError as error:
            self._broken = f"what was half written cannot be cut: {error}"


@dataclass
class StreamRecording:
    """A recording, for reading.

    Parameters
    ----------
    path
        Its folder.
    described
        What it says of what it records.
    sources, timeouts
        How the stream was opened.
    torn
        What was left out at the end, once that is read; None where nothing was.
    """

    path: Path
    described: Mapping[str, Any]
    sources: tuple[str, ...] | None
    timeouts: bool
    salt: int
    torn: str | None = None

    @staticmethod
    def open(path: str | os.PathLike[str]) -> StreamRecording:
        """Read what a recording says of itself."""
        place = Path(a_path(path, "the path of a recording", error=DataError)).absolute()
        about = place / _ABOUT
        said = read_about(about, _FORMAT, VERSION, "recording", _HINT)
        sources, timeouts, salt = (said.get(key) for key in ("sources", "timeouts", "salt"))
        fits = is_description(said) and isinstance(sources, list | None)
        fits = fits and all(isinstance(one, str) for one in sources or ())
        fits = fits and type(timeouts) is bool and type(salt) is int and 0 <= salt < 2**32
        if not fits:
            raise DataError(f"'{about}' is damaged", detail="no release writes what it says")
        known = None if sources is None else tuple(sources)
        return StreamRecording(place, said, known, bool(timeouts), salt or 0)

    def query(self, given: Recordable | None = None) -> Recordable:
        """Return what was recorded, which may have to be given."""
        return recall(self.described, given, self.path / _ABOUT)

    def frames(self) -> Iterator[tuple[LogFrame, pa.Buffer]]:
        """Yield the frames with their payloads, up to a torn end.

        Raises
        ------
        StateError
            If a frame is damaged, or does not follow the one before it.
        """
        path = self.path / _STEPS
        self.torn = None
        try:
            handle = open_regular(path)
        except FileNotFoundError:
            raise StateError(
                f"the recording in '{self.path}' has no steps", detail=f"there is no {_STEPS}"
            ) from None
        try:
            reader = SegmentReader(path, handle, self.salt)
            size, position, number, open_step = reader.size(), 0, 0, False
            while position < size:
                frame = read_header(reader.read(position, HEADER_BYTES), self.salt)
                whole = frame is not None and frame.position == position
                payload = reader.payload(frame) if frame is not None and whole else None
                if frame is None or payload is None:
                    short = frame.end > size if frame is not None and whole else False
                    if not (short or _ends_in_zeros(reader, position, size)):
                        raise self.damaged(position, number, "what is there is no whole step")
                    self.torn = self._place(position, number)
                    return
                if frame.kind is FrameKind.STIMULUS:
                    number, follows, open_step = number + 1, True, True
                elif frame.kind is FrameKind.OUTCOME:
                    follows, open_step = open_step, False
                else:
                    follows = frame.kind in (FrameKind.SCHEMA, FrameKind.STATE)
                if not follows or frame.first != number:
                    raise self.damaged(position, number, "a step does not follow the one before it")
                yield frame, payload
                position = frame.end
        finally:
            os.close(handle)

    @contextmanager
    def reading(self, frame: LogFrame) -> Iterator[None]:
        """Name the place of what goes wrong while the payload of a frame is read and believed."""
        try:
            yield
        except OutpaceError as error:
            if frame.kind in (FrameKind.SCHEMA, FrameKind.STATE):
                error.where = error.where or self._place(frame.position, frame.first)
                raise
            why = error.detail or error.message
            raise self.damaged(frame.position, frame.first, why) from error
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise self.damaged(frame.position, frame.first, why) from error

    def damaged(self, position: int, number: int, why: str) -> StateError:
        """Return the error of damage at some byte, after some step."""
        return StateError(
            "the recording is damaged",
            where=self._place(position, number),
            detail=why,
        )

    def _place(self, position: int, number: int) -> str:
        return f"{self.path / _STEPS}, byte {position}, after step {number}"


def _ends_in_zeros(reader: SegmentReader, position: int, size: int) -> bool:
    """Whether a file ends within a header, or with zeros that a crash has left."""
    if size - position < HEADER_BYTES:
        begun = reader.read(position, len(MAGIC)).to_pybytes()
        if MAGIC.startswith(begun):
            return True
    pieces = range(position, size, _PIECE_BYTES)
    return not any(any(reader.read(place, _PIECE_BYTES).to_pybytes()) for place in pieces)
