"""Writes a stream into PostgreSQL on a Connect session with a server of its own: for the tests.

In the second run there is a second file, a crash after the transaction, and a restart; and a writer
that does not know its stream.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import outpace as op

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


def run(session: SparkSession, folder: Path, sink: object, checkpoint: str) -> None:
    stream = session.readStream.schema("number bigint").json(str(folder / "in"))
    query = (
        stream.dropDuplicates(["number"])
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def fail(session: SparkSession, folder: Path, sink: object, checkpoint: str) -> None:
    """Run, and write down what the failure says."""
    try:
        run(session, folder, sink, checkpoint)
    except PySparkException as error:
        (folder / f"{checkpoint}.said").write_text(str(error), encoding="utf-8")


def main(folder: Path, dsn: str, table: str) -> None:
    session = op.spark.session(remote="local[2]", conf=SETTINGS)
    write = op.spark.postgres.writer(dsn, table, stream="numbers")
    first = not (folder / "in").exists()
    (folder / "in").mkdir(exist_ok=True)
    lines = ("1", "2", "2") if first else ("2", "3", "4")
    text = "".join(f'{{"number": {number}}}\n' for number in lines)
    (folder / "in" / f"{'first' if first else 'second'}.json").write_text(text, encoding="utf-8")
    if not first:

        def crash(frame: DataFrame, batch: int) -> None:
            write(frame, batch)
            raise RuntimeError("killed here")

        fail(session, folder, crash, "checkpoint")
        fail(session, folder, op.spark.postgres.writer(dsn, table), "unnamed")
    run(session, folder, write, "checkpoint")
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
