"""The keys of a graph on several machines: a file that its user alone can read, on each of them.

The file has one secret key. Who has it may do all that a machine of the graph does, so a file that
others can read is refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import zmq

from outpace.errors import DataError
from outpace.files.small_file import open_regular

_BYTES_MAX: Final = 1024


def make_keys(path: Path) -> None:
    """Make a file with new keys."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise DataError(
            f"there is a file '{path}' already",
            hint="name a new one; keys that machines still use are not replaced",
        ) from None
    except OSError as error:
        raise DataError(
            f"cannot make '{path}': {(error.strerror or '').lower()}",
            hint="name a file in a folder that is there, and that you may write to",
        ) from error
    with os.fdopen(handle, "wb") as file:
        file.write(zmq.curve_keypair()[1] + b"\n")


def read_keys(path: Path) -> str:
    """Return the secret key of a file."""
    try:
        handle = open_regular(path)
    except FileNotFoundError:
        raise DataError(
            f"there are no keys in '{path}'",
            hint=f"make them: outpace graph keys {path.name}; then copy the file to each machine",
        ) from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        others = stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
        if others or found.st_uid != os.geteuid():
            raise DataError(
                f"others can read the keys in '{path}', or write them",
                detail=f"its mode is {stat.S_IMODE(found.st_mode):04o}",
                hint=f"let it be your own, for you alone: chmod 600 {path.name}; "
                "make new keys where others may have read them",
            )
        data = file.read(_BYTES_MAX).strip()
    try:
        zmq.curve_public(data)
        return data.decode("ascii")
    except (zmq.ZMQError, ValueError):
        raise DataError(
            f"what is in '{path}' are no keys", hint="make them: outpace graph keys FILE"
        ) from None
