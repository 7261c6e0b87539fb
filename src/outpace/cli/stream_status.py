"""How `outpace stream` says how a query goes: a line on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

#: Without a terminal a line comes this often, if there was a batch.
LINE_SECONDS: Final = 10.0


class Status(Protocol):
    """What is known of a running query."""

    @property
    def batch(self) -> int | None:
        """The number of the last batch; None before the first."""

    def line(self) -> str:
        """Return how the query goes."""


class StatusView:
    """Shows how a query goes, whenever it is asked to."""

    def __init__(self, console: Console, live: Live | None, status: Status) -> None:
        self._console = console
        self._live = live
        self._status = status
        self._last: tuple[float, int | None] = (time.monotonic(), None)

    def show(self) -> None:
        """Show it, if it is time."""
        if self._live is not None:
            self._live.update(Text(self._status.line(), style="dim"), refresh=True)
            return
        at, batch = self._last
        if time.monotonic() - at >= LINE_SECONDS and self._status.batch != batch:
            self._console.print(Text(self._status.line()), soft_wrap=True)
            self._last = (time.monotonic(), self._status.batch)


@contextmanager
def status_view(console: Console, status: Status) -> Iterator[StatusView]:
    """Give what shows how a query goes; a line on a terminal is gone afterwards."""
    if not console.is_terminal:
        yield StatusView(console, None, status)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield StatusView(console, live, status)
