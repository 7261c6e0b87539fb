"""The study `speculation`: its stream, the clock of its runs, the black box, and its figures."""

import gzip
import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import outpace as op
from outpace.cli.main import app
from outpace.errors import DataError
from outpace.studies import speculation_runs
from outpace.studies.speculation import (
    QUICK,
    WHOLE,
    SpeculationScale,
    least_peak,
    speculation_study,
)
from outpace.studies.speculation_black_box import BlackBoxHost
from outpace.studies.speculation_figures import FACTORS, INTERVALS, TICKS
from outpace.studies.speculation_runs import (
    LOAD_S,
    MeasuredCosts,
    RunSetting,
    VirtualHost,
    able_rate,
)
from outpace.studies.speculation_stream import (
    APART,
    DelayRamp,
    loads_of,
    sequence_query,
    stream_of,
)
from outpace.studies.speculation_ticks import ticks

#: The delays of section 7.6.4.
PAPER_RAMP = DelayRamp(begin=100_000, end=1_000_000)
SIZE, SLIDE = 60, 20
RAMP = DelayRamp(begin=500, end=2500, every=200)


def test_one_source_is_late_as_the_paper_has_it():
    stream = stream_of(110_000, PAPER_RAMP)
    times, sources = stream["ts"].to_numpy(), stream["source"].to_numpy()
    assert sorted(times) == list(range(0, 110_000 * APART, APART))
    for source in range(3):
        assert (np.diff(times[sources == source]) > 0).all(), "a source sends in its order"
    behind = np.maximum.accumulate(times) - times
    assert behind[sources < 2].max() == 0
    assert PAPER_RAMP.greatest == 510
    assert 510 - APART <= behind.max() <= 510
    late = times[behind > 0]
    assert 150_000 <= late.min() < 151_000, "the first 50 ms have no delay yet"
    assert late.max() < 1_000_000 + 510, "some wait for those before"


def test_an_instance_has_an_event_once_in_each_of_its_windows():
    for first, stop, count in ((0, 90, 2), (37, 150, 3), (100, 101, 16)):
        expected = [0] * count
        for event in range(first, stop):
            for window in range(event // SLIDE + 1):
                expected[window % count] += event < window * SLIDE + SIZE
        assert loads_of(first, stop, SIZE, SLIDE, count).tolist() == expected


def test_no_checkpoints_bring_the_peak_below_what_is_matched_again():
    # Half of 20 ms, half of what they bring, and 48 events of half a millisecond each.
    assert least_peak(QUICK, 1) == pytest.approx(10 + 5 + 24)
    assert least_peak(WHOLE, 16) == pytest.approx(10 + 5 + 1.5)


class EqualCosts(MeasuredCosts):
    """Each step takes a millisecond, so that a run is always the same; kinds are counted."""

    def __init__(self):
        super().__init__()
        self.kinds = Counter()

    def of(self, act, kind, size=0, pieces=None):
        made = act()
        self.kinds[kind if isinstance(kind, str) else kind(made)] += 1
        return made, 1e-3


@pytest.mark.parametrize(
    ("instances", "alpha", "every"),
    [(1, 0.0, op.checkpoints.Every(7)), (3, 0.2, op.checkpoints.LeastWork())],
)
def test_a_run_gives_what_the_query_gives(instances, alpha, every):
    stream = stream_of(300, RAMP)
    disorder = op.Speculative(600, alpha=alpha, checkpoints=every)
    setting = RunSetting(disorder, SIZE, SLIDE, instances, 700.0)
    costs = EqualCosts()
    run = VirtualHost(setting, stream, keeps=True, costs=costs).drive()
    current, confirmed = Counter(), 0
    for row in pa.concat_tables(run.matches).to_pylist():
        current[row["first"], row["last"]] += row["diff"]
        confirmed += row["confirmed"]
    found = op.match(stream, sequence_query(SIZE, SLIDE, 1)).to_pylist()
    assert +current == Counter((row["first"], row["last"]) for row in found)
    assert confirmed == len(found)
    assert costs.kinds["front back"] == run.corrections > 0
    assert costs.kinds["front"] > 0
    assert run.late == 0
    assert run.given - run.retracted == len(found)
    assert (run.arrived < run.tentative).all()
    assert (run.tentative <= run.confirmed).all()
    assert (run.tentative - run.arrived).min() > LOAD_S


def test_runs_that_are_compared_differ_in_what_they_do_alone():
    stream, costs = stream_of(300, RAMP), MeasuredCosts()

    def tentative(every):
        setting = RunSetting(op.Speculative(600, alpha=0.2, checkpoints=every), SIZE, SLIDE, 2, 1e3)
        return VirtualHost(setting, stream, costs=costs).drive().tentative.tolist()

    tentative(5)
    costs.settle()
    assert tentative(5) == tentative(5)
    # Of a size that was not measured, too.
    assert tentative(60) == tentative(60)


def test_a_step_takes_as_long_as_those_of_its_kind_and_about_its_size(monkeypatch):
    took, costs = iter([1, 1, 1, 1, 9, 40, 40, 40, 40, 90, 500, 7]), MeasuredCosts()
    clock = itertools.accumulate(itertools.chain.from_iterable((0, one) for one in took))
    monkeypatch.setattr(speculation_runs.time, "process_time", lambda: next(clock))
    for size in (*(3,) * 5, *(100,) * 5, 1000):
        costs.of(lambda: "made", "front", size, lambda made: 2)
    costs.settle()
    # What was measured once does not count, nor what is measured now.
    monkeypatch.setattr(speculation_runs.time, "process_time", float)
    assert [costs.of(int, "front", size)[1] for size in (0, 1, 60, 5000)] == [0.5, 0.5, 20, 20]
    assert costs.of(lambda: 3, "front", 3, lambda made: made)[1] == 1.5


def test_without_speculation_nothing_goes_back():
    setting = RunSetting(op.MPKSlack(), SIZE, SLIDE, 2, 3000.0)
    run = VirtualHost(setting, stream_of(300, RAMP)).drive()
    assert run.corrections == run.marks == run.retracted == 0
    assert run.late > 0, "as K grows only with those that are late"
    assert run.throughput < able_rate(SIZE, SLIDE, 2)


def test_the_black_box_saves_before_each_event_and_is_right():
    stream = stream_of(60, DelayRamp(begin=100, end=500, every=100))
    setting = RunSetting(op.Speculative(600, alpha=0.0), 30, 10, 2, 1e5)
    run = BlackBoxHost(setting, stream).drive()
    assert run.given == op.match(stream, sequence_query(30, 10, 1)).num_rows
    assert run.corrections > 0
    assert run.marks >= stream.num_rows, "K has not passed before the end"
    assert run.late == 0


TINY = SpeculationScale(
    size=SIZE,
    slide=SLIDE,
    events=120,
    instances=(4,),
    alphas=(1.0, 0.8, 0.0),
    intervals=(20,),
    interval_instances=(4,),
    streams=2,
    single=8,
    processes=(),
    process_events=0,
    process_batch=0,
    repeats=0,
    ticks=0,
)


def test_the_study_has_rows_for_every_figure():
    study = speculation_study(TINY)
    rows = list(study.run())
    assert {row.figure for row in rows} == {one.name for one in study.figures} - {"Processes"}
    settings = [(row.figure, row.setting, row.unit) for row in rows]
    assert len(set(settings)) == len(settings), "a setting tells its row from all others"
    value = {(row.figure, row.setting): row.value for row in rows}
    assert value["7-5", "4 instances, speculation to the black box"] > 1
    assert value["7-10", "0 %: went back"] == 0
    most = value["7-10", "any speculation to 0 %: steady, at most"]
    assert most >= value["7-10", "100 % to 0 %: steady"]
    assert value["7-15", "every 20: checkpoints"] > 1
    assert all(np.isfinite(row.value) for row in rows)


def test_every_number_of_instances_has_its_figures():
    shown = [figure.name for figure in speculation_study(WHOLE).figures]
    assert shown[:-1] == [f"7-{number}" for number in range(3, 18)]
    assert [figure.name for figure in (*FACTORS.values(), *INTERVALS.values())] == shown[5:-1]
    assert TICKS in speculation_study(QUICK, Path("ticks.csv")).figures


@pytest.fixture
def tick_file(tmp_path: Path) -> Path:
    """A file of ticks of two stocks, every fourth of which is up to 900 ms late."""
    random = np.random.default_rng(5)
    times = 1000 + np.arange(120) * 100
    arrival = times + np.where(np.arange(120) % 4 == 2, random.integers(200, 890, 120), 0)
    lines = ["event_type,id,name,volume,price,stock_time_ms"]
    lines += [
        f"BUY,{row},{'AB'[row % 3 % 2]},1,{random.integers(1, 50)},{times[row]}"
        for row in np.argsort(arrival, kind="stable")
    ]
    path = tmp_path / "ticks.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def test_matches_of_ticks_come_earlier_and_some_are_taken_back(tick_file):
    rows = list(ticks(tick_file, (0.5, 0.0)))
    value = {row.setting: row.value for row in rows}
    assert value["ticks"] == 120
    assert value["matches"] > 0
    assert value["alpha 0: others in the end"] == value["alpha 0.5: others in the end"] == 0
    earlier = [value[f"alpha {alpha}: earlier, on average"] for alpha in ("0.5", "0")]
    assert 0 < earlier[0] < earlier[1] <= 2 * 890
    assert value["alpha 0: taken back"] >= value["alpha 0.5: taken back"]
    assert value["alpha 0: taken back"] > 0


def test_ticks_need_names(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("price,stock_time_ms\n1,2\n")
    with pytest.raises(DataError, match="is no file of ticks"):
        list(ticks(path, (0.0,)))


@pytest.mark.soak
def test_real_ticks_come_earlier(shared: Path):
    path = shared / "data" / "stocks.csv.gz"
    if not path.is_file():
        pytest.skip("the file ../shared/data/stocks.csv.gz is not here")
    value = {row.setting: row.value for row in ticks(path, (0.0,), 3000)}
    assert value["alpha 0: others in the end"] == 0
    assert value["alpha 0: earlier, on average"] > 0


@pytest.mark.soak
def test_the_quick_study_writes_rows_and_a_page(tmp_path):
    result = CliRunner().invoke(app, ["study", "speculation", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "speculation.json").read_text(encoding="utf-8"))
    assert all(list(row) == ["figure", "setting", "value", "unit", "paper"] for row in rows)
    assert {row["figure"] for row in rows} == {one.name for one in speculation_study(QUICK).figures}
    value = {(row["figure"], row["setting"]): row["value"] for row in rows}
    assert value["7-5", "16 instances, speculation to the black box"] > 10
    assert value["7-8", "100 % to 0 %: steady"] < 1
    page = (tmp_path / "speculation.html").read_text(encoding="utf-8")
    assert all(f'id="figure-{figure.name}"' in page for figure in speculation_study(QUICK).figures)
    assert '<script src="http' not in page
