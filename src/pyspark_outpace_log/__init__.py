"""The data source `outpace.log`, which Spark finds by this package's name.

Spark takes one data source from each package whose name starts with `pyspark_`, and imports it when
it first looks for any, so nothing is imported here before the source is used.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Events of a log; `outpace.hosts.spark.log_source` says which options it has."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "outpace.log"

    def schema(self) -> StructType:
        """Return the columns of the events, or of the blocks."""
        from outpace.hosts.spark.log_source import log_schema

        return log_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the log as it is now."""
        from outpace.hosts.spark.log_source import LogReader

        return LogReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return what follows the log."""
        from outpace.hosts.spark.log_source import LogStreamReader

        return LogStreamReader(self.options, schema)
