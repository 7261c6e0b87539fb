"""The Spark host: DataFrames in and out, lazily; `session` alone makes a session, when asked to.

Importing this package does not import PySpark.
"""

from __future__ import annotations

from outpace.hosts.spark import metrics as metrics
from outpace.hosts.spark import postgres as postgres
from outpace.hosts.spark.session import session

__all__ = ["metrics", "postgres", "session"]
