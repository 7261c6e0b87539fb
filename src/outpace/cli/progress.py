"""A progress bar for commands that run on Spark, fed by Spark's own account of its tasks.

It appears on standard error, only on a terminal, only when the work takes longer than
two seconds, and is gone when the work ends. What it holds is one small entry per job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from rich.console import Console

from outpace.report.progress import PATIENCE_SECONDS, Bar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Tasks:
    """How many of the tasks that are known so far are done.

    Examples
    --------
    >>> Tasks(1, 4) + Tasks(2, 2)
    Tasks(done=3, total=6)
    """

    done: int = 0
    total: int = 0

    def __add__(self, other: Tasks) -> Tasks:
        return Tasks(self.done + other.done, self.total + other.total)


class TaskFeed(Protocol):
    """Where a bar gets its numbers."""

    def tasks(self) -> Tasks:
        """Return the tasks of all jobs since the feed was made."""

    def close(self) -> None:
        """Stop listening."""


@contextmanager
def spark_progress(
    session: SparkSession,
    label: str,
    *,
    console: Console | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Iterator[Callable[[], None]]:
    """Show the progress of the Spark jobs that run inside the block.

    Gives a function that takes the bar away. Call it before anything is printed: text that meets a
    bar is written into its line.

    Parameters
    ----------
    session
        The session whose jobs run, classic or Connect.
    label
        What stands in front of the bar.
    console
        Where it appears; standard error by default.
    patience_seconds
        How long the block may take before the bar appears.
    """
    shown = console or Console(stderr=True)
    if not shown.is_terminal:
        yield lambda: None
        return
    feed = feed_of(session)
    over = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(feed, label, shown, patience_seconds, over), daemon=True
    )
    watch.start()

    def take_away() -> None:
        over.set()
        watch.join()

    try:
        yield take_away
    finally:
        take_away()
        feed.close()


def feed_of(session: SparkSession) -> TaskFeed:
    """Return the feed of a session."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        return ConnectFeed(session)
    return ClassicFeed(session)


class ClassicFeed:
    """Asks the status tracker of the command's own session; a job is known once it was seen."""

    def __init__(self, session: SparkSession) -> None:
        self._tracker = session.sparkContext.statusTracker()
        self._running: set[int] = set()
        self._ended = Tasks()

    def tasks(self) -> Tasks:
        """Return the tasks of all jobs seen so far."""
        active = set(self._tracker.getActiveJobsIds())
        for job in self._running - active:
            total = self._tasks_of(job).total
            self._ended += Tasks(total, total)
        self._running = active
        return sum((self._tasks_of(job) for job in active), self._ended)

    def close(self) -> None:
        """There is nothing to stop."""

    def _tasks_of(self, job: int) -> Tasks:
        """Return the tasks of the stages that have started: others may be skipped for good."""
        information = self._tracker.getJobInfo(job)
        stages = [] if information is None else list(information.stageIds)
        running = set(self._tracker.getActiveStageIds())
        known = [stage for stage in map(self._tracker.getStageInfo, stages) if stage is not None]
        started = [one for one in known if one.numCompletedTasks or one.stageId in running]
        return sum((Tasks(one.numCompletedTasks, one.numTasks) for one in started), Tasks())


class ConnectFeed:
    """Listens to what the server reports while it runs an operation."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._operations: dict[str | None, Tasks] = {}
        session.registerProgressHandler(self._report)  # type: ignore[arg-type]  # any callable

    def tasks(self) -> Tasks:
        """Return the tasks of all operations reported so far."""
        return sum(list(self._operations.values()), Tasks())

    def close(self) -> None:
        """Stop listening."""
        self._session.removeProgressHandler(self._report)  # type: ignore[arg-type]  # as above

    def _report(
        self,
        stages: Iterable[Any] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,
    ) -> None:
        del inflight_tasks
        reported = [Tasks(one.num_completed_tasks, one.num_tasks) for one in stages or ()]
        found = sum(reported, Tasks())
        self._operations[operation_id] = Tasks(found.total, found.total) if done else found


def _watch(
    feed: TaskFeed, label: str, console: Console, patience_seconds: float, over: threading.Event
) -> None:
    if over.wait(patience_seconds):
        return
    with ExitStack() as stack:
        bar = Bar(label, stack, unit="tasks", console=console, patience_seconds=0)
        bar(0, 0)
        while not over.wait(_POLL_SECONDS):
            tasks = feed.tasks()
            bar(tasks.done, tasks.total)
