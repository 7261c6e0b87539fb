"""What listens to Spark's streaming queries and enters what it hears into the account.

Works on classic and Connect sessions alike: both tell progress as the same JSON. Nothing that
happens here stops a query.
"""

from __future__ import annotations

import json

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from outpace.hosts.spark.metrics_account import Account


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
