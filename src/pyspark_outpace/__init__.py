"""The data source `outpace.matches`, which Spark finds by this package's name.

Spark imports every package whose name starts with `pyspark_` when it first looks for a data source,
so nothing is imported here before the source is used.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Matches of a query over Parquet files; `outpace.hosts.spark.source` has the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "outpace.matches"

    def schema(self) -> StructType:
        """Return the columns of the matches."""
        from outpace.hosts.spark.source import matches_schema

        return matches_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what finds the matches."""
        from outpace.hosts.spark.source import MatchesReader

        return MatchesReader(self.options, schema)
