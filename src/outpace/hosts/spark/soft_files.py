"""Soft state in files: the events that instances need, for the next process on the same host.

A file has the events that an instance needs to be rebuilt, and is found by what was saved of it. So
who has not the instance need not read the log again. Nothing depends on these files: one that is
lost, damaged or of another's making counts for nothing, and a disk that is full is no error. They
lie in a folder of the user alone, and have the layout of saved state, whose reading believes
nothing.

Disk: one file for each instance, replaced with every batch; a day after its last batch it is
deleted.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR
from typing import Final

from outpace.engine.state import State
from outpace.errors import StateError

#: A file that nobody has written for so long is deleted.
_OLD_SECONDS: Final = 24 * 3600


class SoftFiles:
    """Files by what was saved of instances.

    Parameters
    ----------
    folder
        Where they are; by default a folder of the user among temporary ones.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = SoftFiles(Path(folder, "soft"))
    ...     files.write(0, b"saved", State({"events": 3}), None)
    ...     files.read(0, b"saved").numbers, files.read(1, b"saved")
    ({'events': 3}, None)
    """

    def __init__(self, folder: Path | None = None) -> None:
        own = Path(tempfile.gettempdir(), f"outpace-soft-{os.getuid()}")
        self._folder = own if folder is None else folder
        self._swept = False

    def read(self, number: int, saved: bytes) -> State | None:
        """Return what was written for an instance of a number that was saved so; None: nothing."""
        try:
            return State.decode(self._file(number, saved).read_bytes()) if self._is_own() else None
        except (OSError, StateError):
            return None

    def write(self, number: int, saved: bytes, events: State | None, before: bytes | None) -> None:
        """Keep what an instance needs as it was saved, in place of what was saved before."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if not self._is_own():
                return
            if not self._swept:
                self._swept = True
                self._sweep()
            if events is not None:
                file = self._file(number, saved)
                fresh = file.with_suffix(f".{os.getpid()}")
                try:
                    fresh.write_bytes(events.encode())
                    fresh.replace(file)
                finally:
                    fresh.unlink(missing_ok=True)
            if before is not None and before != saved:
                self._file(number, before).unlink(missing_ok=True)

    def _file(self, number: int, saved: bytes) -> Path:
        return self._folder / hashlib.blake2b(saved, digest_size=16, key=b"%d" % number).hexdigest()

    def _is_own(self) -> bool:
        """Say whether the folder is the user's, and nobody else may look or write."""
        try:
            about = self._folder.lstat()
        except OSError:
            return False
        return S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o077

    def _sweep(self) -> None:
        """Delete what streams have left that go on no more, or elsewhere."""
        oldest = time.time() - _OLD_SECONDS
        for file in self._folder.iterdir():
            with suppress(OSError):
                if file.stat().st_mtime < oldest:
                    file.unlink()
