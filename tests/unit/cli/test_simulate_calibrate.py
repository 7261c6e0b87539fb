"""`outpace simulate calibrate` and `validate`: what is wrong is said before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from outpace.cli.main import app
from outpace.cli.simulate_measure import default_mips, setting_of
from outpace.cli.simulate_validate import compare_plots
from outpace.simulate.calibration.calibrated_scenario import MeasuredRun
from outpace.simulate.calibration.compare import Comparison, Reading

CLAUSE = "MATCH_RECOGNIZE (ORDER BY ts PATTERN (A) DEFINE A AS kind = 'a')"


def outpace(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.sql").write_text(CLAUSE)
    (tmp_path / "wrong.sql").write_text("MATCH_RECOGNIZE (ORDER BY ts PATTERN (A")
    grouped = f"SELECT kind, count(*) AS n FROM ticks {CLAUSE} GROUP BY kind"
    (tmp_path / "grouped.sql").write_text(grouped)
    (tmp_path / "plain.sql").write_text("CREATE VIEW kinds AS SELECT kind FROM ticks")
    (tmp_path / "ticks.csv").write_text("ts,kind\n1,a\n2,b\n")
    (tmp_path / "other.csv").write_text("at,kind\n1,a\n")
    (tmp_path / "plain.toml").write_text("duration = 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("calibrate", "nothing to measure"),
        ("calibrate --workload w2q", "there is no workload 'w2q'"),
        ("calibrate {0}/good.sql", "the query has no events"),
        ("calibrate --workload w2k --from {0}/ticks.csv", "--from goes with a query file"),
        ("calibrate {0}/none.sql --from {0}/ticks.csv", "none.sql"),
        ("calibrate {0}/wrong.sql --from {0}/ticks.csv", "wrong.sql"),
        ("calibrate {0}/grouped.sql --from {0}/ticks.csv", "GROUP BY needs all matches"),
        ("calibrate {0}/plain.sql --from {0}/ticks.csv", "the statement matches nothing"),
        ("calibrate {0}/good.sql --from {0}/none.csv", "none.csv"),
        ("calibrate {0}/good.sql --from {0}/other.csv", "ts"),
        ("calibrate {0}/good.sql --from log:{0}", "is no event log"),
        ("calibrate --workload w2k --trigger soon", "--trigger"),
        ("calibrate --workload w2k --mips 0", "--mips"),
        ("calibrate --workload w2k --out {0}", "--out"),
        ("validate {0}/none.toml", "none.toml"),
        ("validate {0}/plain.toml", "plain.toml"),
    ],
)
def test_bad_input_is_named_with_exit_code_2(folder: Path, arguments: str, said: str) -> None:
    given = [part.format(folder) for part in arguments.split()]
    if given[0] == "calibrate" and "--out" not in given:
        given += ["--out", str(folder / "scenario.toml")]
    done = outpace(*given)
    assert done.exit_code == 2, done.output
    assert said in done.output
    assert not (folder / "scenario.toml").exists()


def test_a_query_and_its_events_are_found_from_the_scenario_on(folder: Path) -> None:
    setting = setting_of(MeasuredRun(query="good.sql", events="ticks.csv"), folder)
    assert setting.time == "ts"
    assert setting.events["kind"].to_pylist() == ["a", "b"]


def test_a_machine_says_a_number_of_instructions() -> None:
    assert default_mips() > 0


def test_plots_show_predictions_and_measurements() -> None:
    row = Comparison(1000, False, 1.6, 1.5, 0.1, 1000, 1010, 20, 3)
    plots = dict(compare_plots([row], [Reading(1000, 1.6, 1000)], 2000))
    assert [trace.name for trace in plots["Latency"].data] == ["predicted", "measured"]
    assert plots["Latency"].data[0].y == (1600.0,)
    assert plots["Latency"].data[1].error_y.array == (50.0,)
    assert [round(trace.y[0], 2) for trace in plots["Error"].data] == [6.67, -0.99]
