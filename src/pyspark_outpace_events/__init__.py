"""The data source `outpace.events`, which Spark finds by this package's name.

Spark imports every package whose name starts with `pyspark_` when it first looks for a data source,
so nothing is imported here before the source is used.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Generated events; `outpace.hosts.spark.events` says which options it has."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "outpace.events"

    def schema(self) -> StructType:
        """Return the columns of the events."""
        from outpace.hosts.spark.events import events_schema
        from outpace.ingest.event_options import read_options

        return events_schema(read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what makes the events of a batch."""
        from outpace.hosts.spark.events import EventsReader

        return EventsReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return what makes the events of a stream."""
        from outpace.hosts.spark.events import EventsStreamReader

        return EventsStreamReader(self.options)
