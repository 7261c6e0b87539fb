"""A log in partitions, as a data source of Spark that can seek: files, of which each line is a row.

Each partition is a file of JSON lines, and an offset is the number of a line. A batch takes some of
each partition.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

# Tasks do not find this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # has no types

#: A batch takes so many rows of a partition at most.
ROWS_OF_BATCH = 50


@dataclass(frozen=True)
class PartitionedLog:
    """Reads the log again; `schema` has the columns of its rows."""

    folder: str
    schema: pa.Schema
    name: str = "lines"
    parts: tuple[str, ...] = ("topic", "partition")
    offset: str = "offset"

    def read(self, part: Mapping[str, Any], first: int, stop: int) -> Iterator[pa.Table]:
        lines = Path(self.folder, f"{part['partition']}.jsonl").read_text().splitlines()
        for low in range(first, stop, 20):
            rows = [json.loads(line) for line in lines[low : min(low + 20, stop)]]
            columns, size = pa.Table.from_pylist(rows, self.schema).to_pydict(), len(rows)
            columns |= {name: [part[name]] * size for name in self.parts}
            yield pa.table({**columns, "offset": range(low, low + size)}, self.placed)

    @property
    def placed(self) -> pa.Schema:
        """The columns of its rows with those that say where they lie."""
        places = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
        return pa.schema([*self.schema, *pa.schema(places)])


@dataclass
class Stretch(InputPartition):
    partition: int
    first: int
    stop: int


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, log: PartitionedLog) -> None:
        self.log = log

    def initialOffset(self) -> dict[str, int]:
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def getDefaultReadLimit(self) -> ReadAllAvailable:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        files = Path(self.log.folder).glob("*.jsonl")
        sizes = {file.stem: len(file.read_text().splitlines()) for file in files}
        most = ROWS_OF_BATCH
        return {name: min(size, start.get(name, 0) + most) for name, size in sizes.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [Stretch(int(name), start.get(name, 0), stop) for name, stop in end.items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretch)
        part = {"topic": "events", "partition": partition.partition}
        for table in self.log.read(part, partition.first, partition.stop):
            yield from table.to_batches()


class Lines(DataSource):
    @classmethod
    def name(cls) -> str:
        return "lines"

    @property
    def log(self) -> PartitionedLog:
        columns = pa.py_buffer(base64.b64decode(self.options["columns"]))
        return PartitionedLog(self.options["path"], pa.ipc.read_schema(columns))

    def schema(self) -> StructType:
        return from_arrow_schema(self.log.placed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return Reader(self.log)


def append(log: PartitionedLog, table: pa.Table, partitions: int) -> None:
    """Append rows to the partitions, which they go to in turns."""
    folder = Path(log.folder)
    folder.mkdir(exist_ok=True)
    for number in range(partitions):
        with Path(folder, f"{number}.jsonl").open("a") as file:
            for row in table.take(np.arange(number, table.num_rows, partitions)).to_pylist():
                file.write(json.dumps(row) + "\n")


def trim(log: PartitionedLog, first: Mapping[int, int]) -> None:
    """Delete the rows of each partition before an offset; nobody can read them any more."""
    for number, offset in first.items():
        file = Path(log.folder, f"{number}.jsonl")
        lines = file.read_text().splitlines()
        file.write_text("\n" * offset + "".join(f"{line}\n" for line in lines[offset:]))


def stream_of(spark: SparkSession, log: PartitionedLog) -> DataFrame:
    """Return the rows of a log as a stream."""
    spark.dataSource.register(Lines)
    columns = base64.b64encode(log.schema.serialize()).decode()
    return spark.readStream.format("lines").option("columns", columns).load(log.folder)
