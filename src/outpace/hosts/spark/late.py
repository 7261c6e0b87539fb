"""What says that a stream lost events: a warning in the log of the driver, by query.

The stages of a query report how many events came late; Spark hands the reports to the driver with
the progress of each batch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from outpace.engine.codec.cell import COUNTERS
from outpace.pattern.disorder import InOrder, Late
from outpace.pattern.query import Query
from outpace.plan.late_events import LateEvents

_LOG: Final = logging.getLogger("outpace.spark")


class LateListener(StreamingQueryListener):
    """Warns when queries of a session drop late events."""

    def __init__(self) -> None:
        self._queries: dict[str, LateEvents] = {}

    def expect(self, name: str, queries: Sequence[Query]) -> None:
        """Listen to what a query reports under a name, or several together."""
        disorders = [query.order_of_arrival or InOrder() for query in queries]
        if any(Late(disorder.late).drops for disorder in disorders):
            self._queries[name] = LateEvents(*queries)

    def count(self, name: str, late: int) -> None:
        """Count events that came late, and warn where that is news."""
        warning = self._queries[name].count(late) if name in self._queries else None
        if warning is not None:
            _LOG.warning("%s; files are read by modification time, not by name", warning)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take in what the stages report."""
        place = 1 + COUNTERS.index("late")
        observed = json.loads(event.progress.json).get("observedMetrics") or {}
        for name, chains in observed.items():
            if name in self._queries:
                reports = [report for chain in (chains or {}).values() for report in chain or ()]
                self.count(name, sum(report[place] for report in reports))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is late yet."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """What was to be said has been said."""


_listeners: WeakKeyDictionary[SparkSession, LateListener] = WeakKeyDictionary()


def warn_of_late_events(session: SparkSession, name: str, queries: Sequence[Query]) -> None:
    """Warn on the driver when a query drops events that came late, or one of several.

    Parameters
    ----------
    session
        Where the query will run. With Spark Connect nothing is done: the thread of a listener there
        keeps a program from ending, so only `op.spark.metrics.watch` asks for one.
    name, queries
        What is reported under, and by whom.
    """
    if not isinstance(session, SparkSession):
        return
    if session not in _listeners:
        _listeners[session] = LateListener()
        session.streams.addListener(_listeners[session])
    _listeners[session].expect(name, queries)
