"""Keys that are arrays or rows: a DataFrame is matched by texts that say their values."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from outpace.hosts.spark.schema import TIME_FORMATS, arrow_schema
from outpace.pattern.query import Query, RowsPerMatch
from outpace.plan.crossing import quoted
from outpace.plan.nested_keys import by_other_columns, key_names, nested_columns

_VALUE: Final = "key"


class NestedKeys:
    """What a query is matched by whose keys are arrays or rows.

    Parameters
    ----------
    frame, query
        The rows, and the query by the user's columns.
    """

    def __init__(self, frame: DataFrame, query: Query) -> None:
        texts: dict[str, str] = {}
        if query.partitions:
            schema = arrow_schema(frame)
            texts = key_names(nested_columns(query, schema), schema)
        self._columns = {text: frame.schema[name] for name, text in texts.items()}
        self._every = query.rows is not RowsPerMatch.ONE
        for name, text in texts.items():
            value = sf.struct(sf.col(quoted(name)).alias(_VALUE))
            frame = frame.withColumn(text, sf.to_json(value, TIME_FORMATS))
        self.frame = frame
        self.query = by_other_columns(query, texts)

    def __bool__(self) -> bool:
        return bool(self._columns)

    def restored(self, found: DataFrame) -> DataFrame:
        """Return matches with the keys that texts say."""
        columns = []
        hidden = {field.name for field in self._columns.values()} if self._every else set()
        for name in found.columns:
            field = self._columns.get(name)
            if field is not None:
                said = StructType([StructField(_VALUE, field.dataType)])
                value = sf.from_json(sf.col(quoted(name)), said, TIME_FORMATS).getField(_VALUE)
                columns.append(value.alias(field.name))
            elif name not in hidden:
                columns.append(sf.col(quoted(name)))
        return found.select(*columns)
