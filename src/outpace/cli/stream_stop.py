"""Stopping `outpace stream`: the first Ctrl-C or SIGTERM asks, the second one ends at once.

When nobody reads the rows any more, that asks as well.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Final

from rich.console import Console

#: A table that goes to a pipe or a file may be this wide.
_WIDTH_MAX: Final = 2_000

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Hears the signals while its block runs.

    Attributes
    ----------
    event
        Set by the first of them, or by whoever wants the query to stop.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals, again after Spark's start: PySpark would cancel the batch that runs."""
        for number in _SIGNALS:
            signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.event.is_set():
            Console(stderr=True).show_cursor()  # which the line of status has hidden
            # Java ends by itself when this process does; what is half done is done again.
            os._exit(128 + number)
        self.event.set()


class PipeConsole(Console):
    """Standard output that is no terminal; who reads it may have read enough, and that is no error.

    Parameters
    ----------
    stop
        What is asked to stop then.
    """

    def __init__(self, stop: StopRequest) -> None:
        super().__init__(width=_WIDTH_MAX)
        self._stop = stop

    def on_broken_pipe(self) -> None:
        """Print nothing more, and ask to stop."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        self._stop.event.set()
