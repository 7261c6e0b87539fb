"""What a program says on a pseudo terminal."""

from __future__ import annotations

import os
import time


def read_until(terminal: int, text: str) -> str:
    """Return what is said up to some text, or fail after two minutes."""
    said, deadline = "", time.monotonic() + 120
    while text not in said:
        assert time.monotonic() < deadline, said
        said += os.read(terminal, 65536).decode("utf-8", "replace")
    return said


def read_to_end(terminal: int) -> str:
    """Return the rest, until the other side is closed, and close this one."""
    said = ""
    try:
        while piece := os.read(terminal, 65536):
            said += piece.decode("utf-8", "replace")
    except OSError:
        pass  # the other side is closed
    os.close(terminal)
    return said
