"""Small files: regular ones that somebody else may have written, and ones replaced as a whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from outpace.errors import DataError


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file and return its descriptor, or fail where it is no regular file.

    A device may have no end and a pipe no writer, so neither is waited for.

    Raises
    ------
    FileNotFoundError
        There is none.
    DataError
        It is no regular file, or cannot be opened.
    """
    try:
        handle = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"cannot open '{path}'", detail=str(error)) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise DataError(f"'{path}' is no regular file")
    return handle


def read_regular(path: Path) -> bytes:
    """Return what is in a regular file; raise as `open_regular` does."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read()


def replace_file(path: Path, content: bytes | bytearray, *, durable: bool) -> None:
    """Put a file in the place of one that may be there, as a whole: a crash leaves one of both.

    Parameters
    ----------
    path, content
        The file, and what it has.
    durable
        Whether a crash of the machine leaves one of both, too, and the new one on return.
    """
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)
    if durable:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make names of files durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_small(path: Path, bytes_max: int) -> str:
    """Return the text of a file.

    Parameters
    ----------
    path
        A regular file in UTF-8; a mark at its beginning that says so is left out.
    bytes_max
        How large it may be.

    Raises
    ------
    FileNotFoundError
        There is none.
    DataError
        It cannot be opened, or is no regular file, too large or no text.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise DataError(f"'{path}' has more than {bytes_max:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"'{path}' is not UTF-8 text", where=f"line {line}", detail=str(error)
        ) from error
