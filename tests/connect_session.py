"""Runs queries on a Connect session with a server of its own: a program for the tests.

A process has either classic or Connect sessions, so this one is started by a test. It reads a list
of (name, dialect, statement) from `asked.json` in the folder that it is given, and writes to
`answered.json` what each statement gives (columns and rows, or an error) and what is found in the
files that it writes there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from file_parity import from_files, write_files
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from statements import answer, ticks

import outpace as op


def outcome(session: SparkSession, text: str, dialect: str) -> dict[str, object]:
    try:
        table = op.sql(session, text, dialect).toArrow()
    except (op.OutpaceError, PySparkException) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"columns": table.column_names, "rows": answer(table)}


def main(folder: Path) -> None:
    session = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    assert type(session).__module__ == "pyspark.sql.connect.session"
    session.createDataFrame(ticks()).createOrReplaceTempView("ticks")
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    found = {name: outcome(session, text, dialect) for name, dialect, text in asked}
    write_files(folder)
    answers = {"statements": found, "files": from_files(session, folder)}
    (folder / "answered.json").write_text(json.dumps(answers), encoding="utf-8")
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
