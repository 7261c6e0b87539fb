"""Stopping `outpace stream`: the first Ctrl-C or SIGTERM asks, the second one ends at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final

from rich.console import Console

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Hears the signals while its block runs.

    Parameters
    ----------
    console
        Where it is said that the first one was heard.
    """

    def __init__(self, console: Console) -> None:
        self.asked = threading.Event()
        self._console = console
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals, again after Spark's start: PySpark would cancel the batch that runs."""
        for number in _SIGNALS:
            signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.asked.is_set():
            self._console.show_cursor(True)
            # Java ends by itself when this process does; what is half done is done again.
            os._exit(128 + number)
        self.asked.set()
