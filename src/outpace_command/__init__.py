"""Where the command `outpace` begins: Ctrl-C while its modules load ends it without a word.

It is a package of its own because importing anything below `outpace` loads the library first.
"""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> None:
    """Load the command line and run it."""
    heard = signal.getsignal(signal.SIGINT)
    if heard is signal.default_int_handler:
        # Some modules are written in C and make another error of an exception in their midst.
        signal.signal(signal.SIGINT, _end)
    from outpace.cli.main import app

    signal.signal(signal.SIGINT, heard)
    app()


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    os._exit(128 + number)
