"""`outpace log`: what it appends, shows, finds damaged and trims, and how it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import outpace as op
from outpace.cli.main import app

GOOD = [{"ts": n, "kind": f"k{n}", "price": n / 2} for n in range(6)]
SCHEMA = "ts bigint, kind string, price double"


def log(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["log", *map(str, arguments)])


def lines(path: Path, *rows: object) -> Path:
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A log with the good events."""
    path = tmp_path / "made"
    op.log.create(path, pa.Table.from_pylist(GOOD).schema)
    done = log("append", lines(tmp_path / "good.jsonl", *GOOD), "--to", path)
    assert (done.exit_code, done.stdout) == (0, f"6 events in {path}\n")
    return path


def test_files_of_all_formats_make_a_log_and_add_to_it(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(GOOD)
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("ts,price,kind\n7,1,x\n8,2.5,y\n")
    lines(tmp_path / "c.jsonl", {"ts": 9, "kind": "z"}, "", {"ts": 10, "price": 3})
    path = tmp_path / "log"
    first = log("append", tmp_path / "a.parquet", "--to", path)
    assert first.exit_code == 0, first.stderr
    more = log("append", tmp_path / "b.csv", tmp_path / "c.jsonl", "--to", path)
    assert (more.exit_code, more.stdout) == (0, f"4 events in {path}\n"), more.stderr
    assert op.log.read(path).to_pylist() == [
        *GOOD,
        {"ts": 7, "kind": "x", "price": 1.0},
        {"ts": 8, "kind": "y", "price": 2.5},
        {"ts": 9, "kind": "z", "price": None},
        {"ts": 10, "kind": None, "price": 3.0},
    ]


BAD = [
    ("nonsense", "the line is not JSON", ", line 2"),
    ({"ts": 7, "kind": 5, "price": 1.0}, "'5' is not of type varchar", ", line 2, column kind"),
    ({"kind": "x", "price": 1.0}, "the time 'ts' is NULL", ", line 2"),
    ({"ts": 2**62, "kind": "x"}, "the time 'ts' is out of range: 4611686018427387904", ", line 2"),
]


@pytest.mark.parametrize(("bad", "reason", "place"), BAD, ids=["text", "type", "null", "range"])
def test_a_poisoned_line_is_named(
    tmp_path: Path, made: Path, bad: object, reason: str, place: str
) -> None:
    file = lines(tmp_path / "bad.jsonl", GOOD[0], bad, GOOD[1])
    done = log("append", file, "--to", made)
    assert done.exit_code == 2
    assert reason in done.stderr
    assert f"{file}{place}\n" in done.stderr
    assert "--rejected" in done.stderr or "hint" in done.stderr
    kept = tmp_path / "rejected.jsonl"
    again = log("append", file, "--to", made, "--rejected", kept)
    assert (again.exit_code, again.stdout) == (0, f"2 events in {made}, 1 rejected\n")
    (rejected,) = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    assert rejected["place"] == f"{file}{place}"
    assert rejected["reason"].startswith(reason)


def test_many_poisoned_lines_cost_none_of_the_others(tmp_path: Path, made: Path) -> None:
    rows = [{"ts": n, "kind": "k" * (n % 7), "price": 0.5} for n in range(1000)]
    mixed = [f"bad {n}" * 30 if n % 7 == 3 else row for n, row in enumerate(rows)]
    kept = tmp_path / "rejected.jsonl"
    file = lines(tmp_path / "mixed.jsonl", *mixed)
    assert log("append", file, "--to", made, "--rejected", kept).exit_code == 0
    assert op.log.open(made).read(6).to_pylist() == [
        row for n, row in enumerate(rows) if n % 7 != 3
    ]
    rejected = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    assert [(one["place"], one["line"]) for one in rejected] == [
        (f"{file}, line {n + 1}", f"bad {n}" * 30) for n in range(1000) if n % 7 == 3
    ]


def test_standard_input_is_appended_as_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = [sys.executable, "-c", "from outpace.cli.main import app; app()", "log", "append"]
    command = [*program, "-", "--to", str(path), "--schema", SCHEMA]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(GOOD[0]) + "\n" + json.dumps(GOOD[1])[:9])
        process.stdin.flush()
        while not (path / "log.json").exists() or not op.log.open(path).stop:
            assert process.poll() is None
        assert op.log.read(path).to_pylist() == GOOD[:1]
        said, failed = process.communicate(json.dumps(GOOD[1])[9:] + "\n" + "no\n", timeout=120)
    assert (process.returncode, said) == (2, "")
    assert "standard input, line 3" in failed
    assert "in the log before it: 2 events" in failed
    assert op.log.read(path).to_pylist() == GOOD[:2]


def test_standard_input_needs_types(tmp_path: Path) -> None:
    done = log("append", "-", "--to", tmp_path / "log")
    assert done.exit_code == 2
    assert "--schema" in done.stderr


def test_showing_a_log(made: Path) -> None:
    done = log("show", made)
    assert done.exit_code == 0
    assert "6 events in 1 segment, " in done.stdout
    assert "0 – 6" in done.stdout
    assert "outpace log check reads the events, too" in done.stdout


def test_times_of_a_log_are_whole_on_a_narrow_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime(2026, 1, 2, 9, 31, 7, tzinfo=UTC)
    made = op.log.create(tmp_path / "log", pa.schema({"ts": pa.timestamp("us", "UTC")}))
    with made.writer() as writer:
        writer.append(pa.table({"ts": [moment]}, schema=made.schema))
    monkeypatch.setattr("outpace.cli.log.Console", partial(Console, width=60, force_terminal=True))
    shown = log("show", tmp_path / "log").stdout
    assert str(moment) in shown


def test_checking_a_log(made: Path) -> None:
    done = log("check", made)
    assert (done.exit_code, done.stdout) == (0, "whole: 6 events in 1 segment\n")
    file = made / f"{0:020d}.events"
    with file.open("ab") as handle:
        handle.write(b"torn")
    torn = log("check", made)
    assert torn.exit_code == 0
    assert "torn at the end: 4 bytes, cut by the next writer" in torn.stdout
    index = made / f"{0:020d}.index"
    whole = index.read_bytes()
    index.write_bytes(b"x" + whole[1:])
    without = log("check", made)
    assert without.exit_code == 1
    assert f"{index}; readers do without it" in without.stderr
    index.write_bytes(whole)
    done = log("append", made.parent / "good.jsonl", "--to", made)
    assert "repaired: 4 bytes of a torn tail were cut" in done.stderr
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    damaged = log("check", made)
    assert damaged.exit_code == 1
    assert f"{file}, byte 0, offsets 0 to 5" in damaged.stderr


def test_an_index_of_zeros_is_damaged(made: Path) -> None:
    index = made / f"{0:020d}.index"
    index.write_bytes(bytes(index.stat().st_size))
    done = log("check", made)
    assert done.exit_code == 1
    assert f"{index}; readers do without it" in done.stderr
    assert op.log.read(made).num_rows == 6


def test_a_choice_that_there_is_not_makes_no_log(tmp_path: Path, made: Path) -> None:
    other = tmp_path / "other"
    done = log("append", made.parent / "good.jsonl", "--to", other, "--sync", "maybe")
    assert done.exit_code == 2
    assert "maybe" in done.stderr
    assert not other.exists()


def test_trimming_a_log(tmp_path: Path) -> None:
    made = op.log.create(tmp_path / "log", pa.schema({"ts": pa.int64()}), segment_bytes=1)
    with made.writer() as writer:
        for number in range(3):
            writer.append(pa.table({"ts": [number]}))
    done = log("trim", tmp_path / "log", "--before", 2)
    assert (done.exit_code, done.stdout) == (
        0,
        "2 segments deleted, the log begins with offset 2\n",
    )
    assert op.log.read(tmp_path / "log")["ts"].to_pylist() == [2]


def test_other_columns_are_named(tmp_path: Path, made: Path) -> None:
    pq.write_table(pa.table({"ts": [1], "knd": ["a"], "price": [1.0]}), tmp_path / "x.parquet")
    done = log("append", tmp_path / "x.parquet", "--to", made)
    assert done.exit_code == 2
    assert "the events have no column 'kind'" in done.stderr
    assert "did you mean 'knd'?" in done.stderr
    assert str(tmp_path / "x.parquet") in done.stderr
    lost = log("append", tmp_path / "x.parquet", "--to", tmp_path / "x.parquet")
    assert lost.exit_code == 2
