"""Metrics of streaming queries: `op.spark.metrics.watch(spark)` collects and serves them.

Every query of the session is watched, those that run already from their next batch on. What is kept
is bounded, see `outpace.hosts.spark.metrics_account`. Importing this does not import PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from outpace.hosts.spark.metrics_server import MetricsServer
from outpace.hosts.spark.metrics_text import prometheus_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from outpace.hosts.spark.listeners import AccountListener
    from outpace.hosts.spark.metrics_account import Account

__all__ = ["Watch", "watch"]

#: The version of what `/metrics.json` says.
VERSION: Final = 1


def watch(spark: SparkSession, port: int | None = None, *, host: str = "127.0.0.1") -> Watch:
    """Collect the metrics of a session's streaming queries, and serve them over HTTP.

    Parameters
    ----------
    spark
        The session, classic or Connect.
    port
        Where to listen. By default the first free one of ten from 9468 on, which is where
        `outpace top` looks; 0 is any free one.
    host
        The address to listen on; whoever reaches it reads the metrics.

    Returns
    -------
    Watch
        What is known so far; close it, or leave its `with` block, to stop.

    Raises
    ------
    OutpaceError
        The address cannot be used.

    Examples
    --------
    >>> watched = watch(spark)  # doctest: +SKIP
    >>> watched.url  # doctest: +SKIP
    'http://127.0.0.1:9468'
    """
    from outpace.hosts.spark.listeners import AccountListener
    from outpace.hosts.spark.metrics_account import Account

    account = Account()
    listener = AccountListener(account)
    watched = Watch(spark, account, listener, host, port)
    spark.streams.addListener(listener)
    return watched


class Watch:
    """The metrics of a session's streaming queries; see `watch`.

    Parameters
    ----------
    spark
        The session.
    account, listener
        What adds the metrics up, and what hears of batches.
    host, port
        Where the metrics are served, as for `watch`.
    """

    def __init__(
        self,
        spark: SparkSession,
        account: Account,
        listener: AccountListener,
        host: str,
        port: int | None,
    ) -> None:
        self._spark = spark
        self._account = account
        self._listener = listener
        self._server = MetricsServer(self.text, self.values, host, port)

    @property
    def url(self) -> str:
        """Where the metrics are: add `/metrics` or `/metrics.json`."""
        return self._server.url

    def text(self) -> str:
        """Return all metrics as Prometheus reads them."""
        return prometheus_text(self._account.samples())

    def values(self) -> dict[str, Any]:
        """Return all metrics, and how the last batches of each query went, as JSON has them."""
        samples = [
            {"name": sample.name, "labels": dict(sample.labels), "value": sample.value}
            for sample in self._account.samples()
        ]
        return {"version": VERSION, "queries": self._account.queries(), "samples": samples}

    def close(self) -> None:
        """Stop watching and listening."""
        self._listener.deaf = True
        self._server.close()
        # A Connect client waits in `removeListener` for the thread that tells listeners, which may
        # be waiting for it: there the listener stays, deaf, until the session ends.
        if not type(self._spark).__module__.startswith("pyspark.sql.connect"):
            self._spark.streams.removeListener(self._listener)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
