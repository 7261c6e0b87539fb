"""What a stream on Spark still needs of its log, as Spark has saved it last.

What lies before that can be trimmed: no replay reads it again.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from outpace.engine.replayed_stage import first_needed
from outpace.engine.state import State
from outpace.errors import DataError, UnsupportedError
from outpace.pattern.argument import a_path


def needed(spark: SparkSession, checkpoint: str | os.PathLike[str]) -> dict[str, int]:
    """Say from which offsets on a stream that is recovered by a replay needs its log.

    It may run meanwhile: what it takes after that is behind these offsets.

    Parameters
    ----------
    spark
        A session.
    checkpoint
        The folder of the stream's checkpoints.

    Returns
    -------
    dict of str to int
        The offset by the part of the log: "" of an event log, the address of a Parquet file, or the
        values of `parts` of a `recover.SeekableLog` as JSON. Of other parts nothing is needed that
        was read.

    Raises
    ------
    UnsupportedError
        The stream saves its state.
    """
    path = a_path(checkpoint, "the folder of checkpoints", error=DataError)
    read = spark.read.format("statestore").option("stateVarName", "state")
    found: dict[str, int] = {}
    for row in read.load(path).select("value.state").collect():
        saved = State.decode(bytes(row.state))
        if "log" not in saved.numbers:
            raise UnsupportedError(
                "the stream saves its state, so it needs nothing that it has read",
                hint='this is for streams with recovery="replay"',
            )
        for part, offset in first_needed(saved.part("stage")).items():
            found[part] = min(offset, found.get(part, offset))
    return found
