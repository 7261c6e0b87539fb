"""The Spark host: DataFrames in and out, lazily; `session` alone makes a session, when asked to.

Importing this package does not import PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outpace.hosts.spark import current as current
from outpace.hosts.spark import metrics as metrics
from outpace.hosts.spark import postgres as postgres
from outpace.hosts.spark.session import require_spark, session

if TYPE_CHECKING:
    from outpace.hosts.spark.needs import needed
    from outpace.hosts.spark.schema import with_schema
else:

    def __getattr__(name: str) -> object:
        if name not in ("needed", "with_schema"):
            raise AttributeError(f"module 'outpace.spark' has no attribute '{name}'")
        require_spark()
        from outpace.hosts.spark.needs import needed
        from outpace.hosts.spark.schema import with_schema

        return {"needed": needed, "with_schema": with_schema}[name]


__all__ = ["current", "metrics", "needed", "postgres", "session", "with_schema"]
