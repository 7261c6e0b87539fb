"""`outpace replay`: a recorded stream as a table of steps, explained, and refused where damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import outpace as op
from outpace.cli.main import app
from outpace.engine.operator import WholeOperator

RISE = (
    op.Query("rise")
    .partition_by("key")
    .order_by("ts")
    .pattern("A B")
    .define(B="price > A.price")
    .measures(at="B.ts")
    .within(5)
)


@pytest.fixture(autouse=True)
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    matcher = op.open(RISE, record="recording", timeouts=True)
    matcher.push({"ts": [1], "price": [5.0], "key": ["a"]})
    with pytest.raises(op.DataError):
        matcher.push({"ts": [0], "price": [5.0], "key": ["a"]})
    matcher.push({"ts": [2, 3], "price": [6.0, 4.0], "key": ["a", "a"]})
    matcher.advance(20)
    return tmp_path / "recording"


def replay(*arguments: str) -> tuple[int, list[str], str]:
    done = CliRunner().invoke(app, ["replay", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout.splitlines(), done.stderr


def write_query(query: op.Query) -> None:
    Path("rise.py").write_text(f"import outpace as op\n\nrise = {query.to_python()}\n")


def test_each_step_is_a_row() -> None:
    code, lines, error = replay("recording")
    assert (code, error) == (0, "")
    assert [line.split() for line in lines] == [
        [
            "step",
            "came",
            "matches",
            "kept",
            "windows",
            "partitions",
            "waiting",
            "watermark",
            "note",
        ],
        ["1", "1", "row", "0", "1", "0", "1", "0", "1"],
        [
            *["2", "1", "row", "0", "1", "0", "1", "0", "1", "refused:", "row", "0", "of", "the"],
            *["pushed", "table", "comes", "before", "rows", "that", "were", "already", "taken"],
        ],
        ["3", "2", "rows", "1", "1", "0", "1", "0", "3"],
        ["4", "time", "20", "0", "0", "0", "0", "0", "20", "1", "timed", "out"],
        ["4", "steps", "of", "'rise'"],
    ]


def test_until_is_the_last_step() -> None:
    code, lines, _ = replay("recording", "--until", "2")
    assert (code, lines[-1], len(lines)) == (0, "2 steps of 'rise'", 4)


def test_explain_shows_matches_and_what_is_undecided() -> None:
    code, lines, _ = replay("recording", "--explain")
    assert code == 0
    text = "\n".join(lines)
    assert "step 1: 1 row\n\nundecided:\n  A is row 0 (key = 'a'): waits for B" in text
    assert "match 0, key = 'a', rows 0 to 1, 2 events, match number 1" in text
    assert "6.0 > 5.0" in text
    assert "kept: 1 row, 0 open windows, 1 partition, 0 waiting, watermark 3" in text


def test_explain_of_a_group_goes_query_by_query() -> None:
    fall = op.Query("fall").order_by("ts").pattern("A").define(A="price < 5").measures(at="A.ts")
    matcher = op.open(op.group(RISE.within(5), fall), record="together")
    matcher.push({"ts": [1, 2], "price": [5.0, 6.0], "key": ["a", "a"]})
    matcher.push({"ts": [3], "price": [4.0], "key": ["a"]})
    code, lines, error = replay("together", "--explain")
    assert (code, error) == (0, "")
    assert lines[1:4] == ["", "rise:", "key  at"]
    text = "\n".join(lines)
    assert "query 'rise':\n\nmatch 0, key = 'a', rows 0 to 1" in text
    assert "query 'fall':\n\nmatch 0, row 2" in text


def test_explain_says_once_what_it_does_not_explain() -> None:
    matcher = op.open(RISE.over(op.windows.count(2)), record="windows")
    matcher.push({"ts": [1, 2], "price": [5.0, 6.0], "key": ["a", "a"]})
    matcher.push({"ts": [3], "price": [5.0], "key": ["a"]})
    code, lines, error = replay("windows", "--explain")
    assert (code, error) == (0, "steps are explained of a query without windows\n")
    assert lines[1:3] == ["key  at", "a     2"]


def test_a_step_that_gives_something_else_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = WholeOperator.step
    monkeypatch.setattr(WholeOperator, "step", lambda *given: before(*given) * 2)
    code, lines, error = replay("recording")
    assert (code, error) == (
        1,
        "step 1 gave something else than when it was recorded, and 2 other steps\n",
    )
    assert ["not as recorded" in line for line in lines[1:-1]] == [True, False, True, True]


def test_damage_and_foreign_folders_end_with_code_2(recording: Path) -> None:
    steps = recording / "steps"
    content = bytearray(steps.read_bytes())
    content[-80] ^= 1
    steps.write_bytes(content)
    code, lines, error = replay("recording")
    assert (code, len(lines)) == (2, 4)
    assert error.startswith(f"[state] the recording is damaged\n  {steps}, byte ")
    code, _, error = replay("nowhere")
    assert (code, error.splitlines()[0]) == (
        2,
        f"[data] '{Path('nowhere').absolute()}' is no recording",
    )


def test_a_torn_end_is_told(recording: Path) -> None:
    steps = recording / "steps"
    steps.write_bytes(steps.read_bytes()[:-3])
    code, lines, _ = replay("recording")
    assert (code, lines[-1]) == (0, "4 steps of 'rise'")
    assert "the recording ends in it" in lines[-2]


def test_a_query_file_has_to_be_that_of_the_recording() -> None:
    write_query(RISE)
    assert replay("recording", "--query", "rise.py", "--name", "rise")[0] == 0
    write_query(RISE.within(6))
    code, _, error = replay("recording", "--query", "rise.py")
    assert (code, "is of another query" in error) == (2, True)
    code, _, error = replay("recording", "--name", "rise")
    assert (code, error.splitlines()[0]) == (2, "[bind] --name chooses a query of a Python file")
