"""Where the command `outpace` begins: no Ctrl-C is lost, while its modules load or later.

It is a package of its own because importing anything below `outpace` loads the library first.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

#: What drops an interrupt has returned after so many seconds.
_MOMENT_S: Final = 0.1


def main() -> None:
    """Load the command line and run it."""
    heard = signal.getsignal(signal.SIGINT)
    if heard is signal.default_int_handler:
        # Some modules are written in C and make another error of an exception in their midst.
        signal.signal(signal.SIGINT, _end)
    from outpace.cli.main import app

    sys.unraisablehook = _interrupt_again
    signal.signal(signal.SIGINT, heard)
    app()


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    os._exit(128 + number)


def _interrupt_again(dropped: UnraisableHookArgs) -> None:
    """Interrupt again where Python has dropped an interrupt.

    It does so in what it calls by itself, such as after each import, and when an object of Java is
    no longer needed, which PySpark then tells Java.
    """
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
        return
    main_thread = threading.main_thread().ident
    again = threading.Timer(_MOMENT_S, signal.pthread_kill, (main_thread, signal.SIGINT))
    again.daemon = True
    again.start()
