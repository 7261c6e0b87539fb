"""What listens to Spark's streaming queries: it enters what it hears into the account of metrics.

Works on classic and Connect sessions alike: both tell progress as the same JSON. Nothing that
happens here stops a query. Another one says in the log of the driver, by query, that a stream lost
events: the stages of a query report how many came late.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from outpace.engine.codec.cell import COUNTERS
from outpace.hosts.spark.metrics_account import Account
from outpace.pattern.disorder import InOrder, Late
from outpace.pattern.query import Query
from outpace.plan.late_events import LateEvents


class AccountListener(StreamingQueryListener):
    """Enters what it hears into an account, until it is told to be deaf."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.deaf = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Note that a query was started."""
        if not self.deaf:
            self._account.started(str(event.id), str(event.runId), event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take in a progress."""
        if not self.deaf:
            self._account.progressed(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Note that a query has nothing to do."""
        if not self.deaf:
            self._account.idled(str(event.id))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Note that a query ended."""
        if not self.deaf:
            self._account.ended(str(event.id), event.exception)


_LOG: Final = logging.getLogger("outpace.spark")


class LateListener(StreamingQueryListener):
    """Warns when queries of a session drop late events."""

    def __init__(self) -> None:
        self._queries: dict[str, tuple[LateEvents, Collection[str]]] = {}

    def expect(self, name: str, queries: Sequence[Query], unnamed: Collection[str] = ()) -> None:
        """Listen to what a query reports under a name, or several together.

        Parameters
        ----------
        name, queries
            What is reported under, and by whom.
        unnamed
            The columns of the events, where nobody named their sources.
        """
        disorders = [query.order_of_arrival or InOrder() for query in queries]
        if any(Late(disorder.late).drops for disorder in disorders):
            self._queries[name] = LateEvents(*queries), unnamed

    def count(self, name: str, late: int, *, of_files: bool = False) -> None:
        """Count events that came late, maybe of files, and warn where that is news."""
        if name not in self._queries:
            return
        dropped, unnamed = self._queries[name]
        warning = dropped.count(late, unnamed)
        if warning is not None:
            files = "; files are read by modification time, not by name" if of_files else ""
            _LOG.warning("%s%s", warning, files)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take in what the stages report."""
        place = 1 + COUNTERS.index("late")
        progress = json.loads(event.progress.json)
        read = [str(source.get("description")) for source in progress.get("sources") or ()]
        of_files = any(one.startswith("FileStreamSource") for one in read)
        for name, chains in (progress.get("observedMetrics") or {}).items():
            if name in self._queries:
                reports = [report for chain in (chains or {}).values() for report in chain or ()]
                self.count(name, sum(report[place] for report in reports), of_files=of_files)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is late yet."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """What was to be said has been said."""


_listeners: WeakKeyDictionary[SparkSession, LateListener] = WeakKeyDictionary()


def warn_of_late_events(
    session: SparkSession, name: str, queries: Sequence[Query], unnamed: Collection[str]
) -> None:
    """Warn on the driver when a query drops events that came late, or one of several.

    Parameters
    ----------
    session
        Where the query will run. With Spark Connect nothing is done: the thread of a listener there
        keeps a program from ending, so only `op.spark.metrics.watch` asks for one.
    name, queries, unnamed
        What `LateListener.expect` takes.
    """
    if not isinstance(session, SparkSession):
        return
    if session not in _listeners:
        _listeners[session] = LateListener()
        session.streams.addListener(_listeners[session])
    _listeners[session].expect(name, queries, unnamed)
