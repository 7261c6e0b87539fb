"""A progress bar for matching in process, which appears only when the work takes long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from outpace.engine.match.contract import Progress
from outpace.errors import BindError

if TYPE_CHECKING:
    from rich.console import Console

#: How long work may take before the bar appears.
PATIENCE_SECONDS: Final = 2.0


@contextmanager
def show_progress(progress: bool | Progress, label: str) -> Iterator[Progress | None]:
    """Give what is to be told while the block works: a bar, a user's function, or nothing."""
    if progress is False:
        yield None
    elif progress is True:
        with ExitStack() as stack:
            yield Bar(label, stack)
    elif callable(progress):
        yield progress
    else:
        raise BindError(
            f"progress is True, False or a function, not {type(progress).__name__}",
            hint="progress=True shows a bar, a function gets the rows done and the rows",
        )


class Bar:
    """A bar on standard error that is taken away with its stack.

    Parameters
    ----------
    label
        What stands in front of it.
    stack
        Closed when the work ends.
    console
        Where it appears; standard error by default.
    patience_seconds
        How long the work may take before it appears.
    """

    def __init__(
        self,
        label: str,
        stack: ExitStack,
        *,
        console: Console | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        self._console = console or Console(stderr=True)
        text = TextColumn("{task.description}")
        columns = (text, BarColumn(), TaskProgressColumn(), Elapsed())
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(label or "match", total=None)
        self._stack = stack
        self._appears = time.monotonic() + patience_seconds
        self._visible = False

    def __call__(self, done: int, total: int, /) -> None:
        """Show how far the work is, once it takes long."""
        if time.monotonic() < self._appears:
            return
        if not self._visible and (self._console.is_terminal or self._console.is_jupyter):
            self._visible = True
            self._stack.enter_context(self._bar)
        self._bar.update(self._task, completed=done, total=total)
