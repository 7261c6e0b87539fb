"""`outpace study`: the files that it writes, the table that it prints, and how it fails."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outpace.cli.main import app
from outpace.cli.study import conditions, run_study
from outpace.errors import OutpaceError
from outpace.studies.report import Figure, PlotKind, Row, Study
from outpace.studies.space_figures import FIGURES

FIGURE = Figure("7.1", "a figure", "setting", "rate", "events/s", PlotKind.STEPS, "slow", "fast")
ROW = Row("7.1", "one", 2.0, "events/s", 1.0, "here", 1)


def study(*rows: Row) -> Study:
    return Study("sample", "A sample", "A paper", (FIGURE,), (("measuring", lambda: rows),))


def test_a_study_leaves_rows_and_a_page_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "folder"
    assert run_study(study(ROW), out, quick=True) == [ROW]
    (written,) = json.loads((out / "sample.json").read_text(encoding="utf-8"))
    assert written == ROW.fields() | {"quick": True}
    assert "Figure 7.1: a figure" in (out / "sample.html").read_text(encoding="utf-8")
    printed = capsys.readouterr()
    assert str(out / "sample.json") in printed.out.replace("\n", "")
    assert str(out / "sample.html") in printed.out.replace("\n", "")
    assert "with the smaller settings of --quick" in printed.out.replace("\n", " ")
    assert not printed.err, "a progress bar is for terminals"


def test_a_terminal_shows_which_experiment_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # to the console this is a terminal
    run_study(study(ROW), tmp_path, quick=True)
    assert "measuring" in capsys.readouterr().err


def test_what_was_measured_before_something_fails_is_written(tmp_path: Path) -> None:
    def failing() -> Iterator[Row]:
        yield ROW
        raise OutpaceError("the machine is too small")

    failed = Study("sample", "A sample", "A paper", (FIGURE,), (("measuring", failing),))
    with pytest.raises(OutpaceError, match="too small"):
        run_study(failed, tmp_path, quick=False)
    assert json.loads((tmp_path / "sample.json").read_text(encoding="utf-8")) == [ROW.fields()]
    assert (tmp_path / "sample.html").exists()


def test_a_study_that_is_stopped_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped() -> Iterator[Row]:
        yield ROW
        raise KeyboardInterrupt

    experiments = (("first", lambda: [ROW]), ("second", stopped), ("third", lambda: [ROW]))
    with pytest.raises(KeyboardInterrupt):
        run_study(Study("sample", "A", "B", (FIGURE,), experiments), tmp_path, quick=False)
    said = "The study was stopped after 1 of 3 experiments"
    assert said in capsys.readouterr().out
    assert said in (tmp_path / "sample.html").read_text(encoding="utf-8")


def test_what_is_measured_is_there_while_a_study_goes_on(tmp_path: Path) -> None:
    seen = []

    def look() -> Iterator[Row]:
        rows = json.loads((tmp_path / "sample.json").read_text(encoding="utf-8"))
        seen.append((rows, (tmp_path / "sample.html").read_text(encoding="utf-8")))
        yield ROW

    experiments = (("first", lambda: [ROW]), ("second", look))
    run_study(Study("sample", "A", "B", (FIGURE,), experiments), tmp_path, quick=False)
    ((rows, page),) = seen
    assert rows == [ROW.fields()]
    assert "The study goes on: 1 of 2 experiments are done." in page
    assert "The study goes on" not in (tmp_path / "sample.html").read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_made_fails_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["study", "space", "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "file exists" in result.stderr


@pytest.mark.parametrize("taken", ["sample.json", "sample.html"])
def test_a_file_that_cannot_be_written_fails_before_anything_is_measured(
    tmp_path: Path, taken: str
) -> None:
    measured = []

    def measuring() -> Iterator[Row]:
        measured.append(ROW)
        yield ROW

    asked = Study("sample", "A sample", "A paper", (FIGURE,), (("measuring", measuring),))
    (tmp_path / taken).mkdir()
    with pytest.raises(IsADirectoryError):
        run_study(asked, tmp_path, quick=True)
    assert not measured


def test_a_study_that_is_not_known_is_refused() -> None:
    result = CliRunner().invoke(app, ["study", "time"])
    assert result.exit_code == 2
    assert "time" in result.stderr


def test_the_page_says_how_it_was_measured() -> None:
    assert "numbers to compare with the paper" in conditions(quick=True)
    assert "--quick" in conditions(quick=True)
    assert "--quick" not in conditions(quick=False)
    assert re.search(r"on \d+ cores? of one machine", conditions(quick=False))


@pytest.mark.soak
def test_the_quick_study_has_rows_for_every_figure(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["study", "space", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "space.json").read_text(encoding="utf-8"))
    assert {row["figure"] for row in rows} == {figure.name for figure in FIGURES}
    assert all(row["value"] > 0 for row in rows)
    settings = [(row["figure"], row["setting"], row["unit"]) for row in rows]
    assert len(set(settings)) == len(settings), "a setting tells its row from all others"
    page = (tmp_path / "space.html").read_text(encoding="utf-8")
    for figure in FIGURES:
        assert f'id="figure-{figure.name}"' in page
