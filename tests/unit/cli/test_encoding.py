"""A terminal that shows ASCII alone, or another narrow encoding, ends no command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import outpace as op

SCENARIO = """
duration = 10
[[vms]]
id = "größe"
mips = 2500
[[queries]]
name = "Ω"
vertices = [
    { kind = "producer", id = "in", generator = { kind = "uniform", rate = 10 } },
    { kind = "operator", id = "f", instructions = 1e6 },
    { kind = "consumer", id = "out" },
]
edges = [{ source = "in", target = "f" }, { source = "f", target = "out" }]
"""

COMMANDS = """
import sys
from outpace.cli.main import app
for number, command in enumerate(sys.argv[1:]):
    try:
        app(command.split())
    except SystemExit as ended:
        sys.stdout.flush()
        print(number, ended.code, file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_every_command_says_what_it_can(tmp_path: Path, encoding: str) -> None:
    log = op.log.create(tmp_path / "größe", pa.schema({"ts": pa.int64(), "name": pa.string()}))
    with log.writer(sync="never") as writer:
        writer.append(pa.table({"ts": [1, 2], "name": ["ä", "Ω"]}))
    (tmp_path / "größe.toml").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "größe.csv").write_text("ts,name\n1,Ω\n2,ä\n", encoding="utf-8")
    (tmp_path / "query.sql").write_text(
        'MATCH_RECOGNIZE (ORDER BY ts MEASURES A.name AS "Ω" PATTERN (A))', encoding="utf-8"
    )
    commands = [
        "--help",
        "log show größe",
        "log check größe",
        "log show fehlt-Ω",
        "simulate run größe.toml",
        "simulate plan größe.toml --p99 1s --rate 100",
        "run query.sql größe.csv --schema ts",
        "Ω",
    ]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, *commands],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"},
        capture_output=True,
        timeout=300,
    )
    said = done.stderr.decode(encoding, "replace")
    assert "Traceback" not in said
    assert done.stdout
    assert b"0 - 2" in done.stdout  # the offsets of the log
    codes = [line for line in said.splitlines() if line[:1].isdigit() and len(line) == 3]
    assert codes == ["0 0", "1 0", "2 0", "3 2", "4 0", "5 0", "6 2", "7 2"]
