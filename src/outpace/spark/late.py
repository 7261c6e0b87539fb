"""What says that a stream lost events: a warning in the log of the driver, by query.

The stages of a query report how many events came late; Spark hands the reports to the driver with
the progress of each batch. Whoever drops events by a setting that was never made should hear of it:
a pattern with a negation may match falsely then.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from outpace.engine.stream.cell import COUNTERS
from outpace.pattern import ast
from outpace.pattern.disorder import Late
from outpace.plan.stream import StreamPlan

_LOG: Final = logging.getLogger("outpace.spark")

#: A query says it again when so many times as many events came late as when it last did.
_AGAIN: Final = 10


@dataclass
class _Told:
    """A query that drops late events: what to say of it, how many it lost, how many were told."""

    query: str
    negated: tuple[str, ...]
    lost: int = 0
    said: int = 0


class LateListener(StreamingQueryListener):
    """Warns when queries of a session drop late events."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}

    def expect(self, name: str, plan: StreamPlan) -> None:
        """Listen to what a query reports under a name."""
        if plan.layout.disorder.late is not Late.DROP:
            return
        tree = plan.bound.query.tree
        nodes = () if tree is None else ast.walk(tree)
        negated = tuple(dict.fromkeys(n.name for n in nodes if isinstance(n, ast.Not)))
        self._told[name] = _Told(plan.bound.query.name, negated)

    def take(self, name: str, late: int) -> None:
        """Count events that came late, and warn where that is news."""
        told = self._told.get(name)
        if told is None or not late:
            return
        told.lost += late
        if told.lost < _AGAIN * told.said:
            return
        told.said = told.lost
        events = "1 event was" if told.lost == 1 else f"{told.lost} events were"
        warning = f"query '{told.query}': {events} late and dropped so far"
        if told.negated:
            names = ", ".join(f"!{name}" for name in told.negated)
            warning += f"; with {names} in the pattern, matches may be FALSE ALARMS"
        _LOG.warning(
            '%s. Let it wait longer with .disorder(op.KSlack(...)), or see them with late="side"; '
            "files are read by modification time, not by name",
            warning,
        )

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's names
        """Take in what the stages report."""
        place = 1 + COUNTERS.index("late")
        observed = json.loads(event.progress.json).get("observedMetrics") or {}
        for name, chains in observed.items():
            if name in self._told:
                reports = [report for chain in (chains or {}).values() for report in chain or ()]
                self.take(name, sum(report[place] for report in reports))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is late yet."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """What was to be said has been said."""


_listeners: WeakKeyDictionary[SparkSession, LateListener] = WeakKeyDictionary()


def warn_of_late_events(session: SparkSession, name: str, plan: StreamPlan) -> None:
    """Warn on the driver when a query drops events that came late.

    Parameters
    ----------
    session
        Where the query will run. With Spark Connect nothing is done: there a listener is a stream
        of its own from the server, which only `op.spark.metrics.watch` asks for.
    name, plan
        What the query reports under, and how it runs.
    """
    if not isinstance(session, SparkSession):
        return
    if session not in _listeners:
        _listeners[session] = LateListener()
        session.streams.addListener(_listeners[session])
    _listeners[session].expect(name, plan)
