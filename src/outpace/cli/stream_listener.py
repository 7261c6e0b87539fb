"""What `outpace stream` hears from Spark of a running query.

The numbers are those of `outpace.hosts.spark.metrics`, and the rows that were written since the
start.
"""

from __future__ import annotations

import json
import threading
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryTerminatedEvent,
)

from outpace.cli.top_view import amount, seconds
from outpace.hosts.spark import metrics_names as names
from outpace.hosts.spark.listeners import AccountListener
from outpace.hosts.spark.metrics_account import Account
from outpace.report.table import counted

#: The name under which the written rows are observed, and of the number itself.
ROWS: Final = "rows"


class StatusListener(AccountListener):
    """Hears of the batches of one query, and of its end.

    Examples
    --------
    >>> listener = StatusListener()
    >>> listener.take({"id": "7", "runId": "1", "name": "dips", "batchId": 3, "batchDuration": 500,
    ...     "timestamp": "2024-01-02T09:30:00.000Z", "observedMetrics": {"rows": {"rows": 2}}})
    >>> print(listener.line())
    batch 3 in 500 ms, 0 events/s, 2 rows
    """

    def __init__(self) -> None:
        self._counted = Account()
        super().__init__(self._counted)
        self.rows = 0
        self.batch: int | None = None
        self.idle = False
        self.ended = threading.Event()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take in a progress."""
        self.take(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Note that no events come."""
        super().onQueryIdle(event)
        self.idle = True

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Note that the query ended: no more events come, and the last rate is gone."""
        self.ended.set()
        super().onQueryTerminated(event)

    def take(self, progress: dict[str, Any]) -> None:
        """Take in a progress, as Spark writes it in JSON."""
        self._counted.progressed(progress)
        observed = (progress.get("observedMetrics") or {}).get(ROWS) or {}
        self.rows += int(observed.get(ROWS) or 0)
        self.batch = int(progress["batchId"])
        self.idle = False

    def line(self) -> str:
        """Return how the query goes."""
        if self.batch is None:
            return "waiting for the first batch"
        totals: dict[str, float] = {}
        events = behind = 0.0
        for sample in self._counted.samples():
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
            if sample.name == names.STAGE_EVENT_RATE.name and sample.labels["stage"] == "pack":
                events += sample.value
            if sample.name == names.SOURCE_BEHIND_SECONDS.name:
                behind = max(behind, sample.value)
        parts = [f"batch {self.batch} in {seconds(totals.get(names.BATCH_SECONDS.name, 0.0))}"]
        if self.idle:
            parts.append("no new events")
        elif not self.ended.is_set():
            parts.append(f"{amount(events)} events/s")
        parts.append(counted(self.rows, "row"))
        if behind:
            parts.append(f"{seconds(behind)} behind")
        for counter in ("late", "invalid"):
            if count := totals.get(names.STAGE_TOTALS[counter].name):
                parts.append(f"{count:,.0f} {counter}")
        if state := totals.get(names.STAGE_HELD["state_bytes"].name):
            parts.append(f"{amount(state, binary=True)} of state")
        return ", ".join(parts)
