"""A progress bar, which appears only when the work takes long."""

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
    unit
        What is counted, where numbers are shown and not the part that is done.
    console
        Where it appears, if that is a terminal or a notebook; standard error by default.
    patience_seconds
        How long the work may take before it appears.
    """

    def __init__(
        self,
        label: str,
        stack: ExitStack,
        *,
        unit: str | None = None,
        console: Console | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._label = label
        self._stack = stack
        self._unit = unit
        self._console = console
        self._appears = time.monotonic() + patience_seconds
        self._show: Progress | None = None

    def __call__(self, done: int, total: int, /) -> None:
        """Show how far the work is, once it takes long; nothing is known of a total of 0."""
        if time.monotonic() < self._appears:
            return
        if self._show is None:
            self._show = self._begin()
        self._show(done, total)

    def _begin(self) -> Progress:
        # Most work is over before rich is needed.
        from rich import progress
        from rich.console import Console

        console = self._console or Console(stderr=True)
        if not (console.is_terminal or console.is_jupyter):
            return lambda done, total, /: None
        columns = [progress.TextColumn("{task.description}"), progress.BarColumn()]
        if self._unit is None:
            columns.append(progress.TaskProgressColumn())
        else:
            columns += [progress.MofNCompleteColumn(), progress.TextColumn(self._unit)]
        bar = progress.Progress(
            *columns, progress.TimeElapsedColumn(), console=console, transient=True
        )
        task = bar.add_task(self._label or "match", total=None)
        self._stack.enter_context(bar)
        return lambda done, total, /: bar.update(task, completed=done, total=total or None)
