"""The study `disorder`: its stream and profiles, how latency is told, and its tables."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import outpace as op
from outpace.cli.main import app
from outpace.engine.order.drift import SourceClock
from outpace.errors import DataError
from outpace.studies.disorder import QUICK, WHOLE, disorder_study, single_source
from outpace.studies.disorder_clocks import drawn_ways, exchanges
from outpace.studies.disorder_figures import (
    ACCURACIES,
    COVERAGE,
    FIGURES,
    GREATEST,
    LATENCIES,
    OTHERS,
    SEQUENCE,
    TICKS,
)
from outpace.studies.disorder_runs import run_order, shifted
from outpace.studies.disorder_stream import (
    ARMS,
    ARRIVED,
    BALLS,
    KICKOFF,
    LEGS,
    PICOSECONDS,
    PROFILES,
    arriving,
    disordered,
    football,
)
from outpace.studies.disorder_ticks import read_ticks, ticks
from outpace.studies.page import plot_of

SECOND = 1_000_000 * PICOSECONDS


def test_every_sensor_sends_at_its_rate():
    match = football(20_000)
    times, sensors = match["ts"].to_numpy(), match["sid"].to_numpy()
    assert (np.diff(times) >= 0).all()
    first = sensors[times < KICKOFF + SECOND]
    rates = dict(zip(*np.unique(first, return_counts=True), strict=True))
    assert rates == {**dict.fromkeys(BALLS, 2000), **dict.fromkeys((*LEGS, *ARMS), 200)}
    assert match["seqNum"].to_pylist() == list(range(20_000))


def test_directions_have_the_length_that_the_schema_says():
    match = football(500)
    for names in (("vx", "vy", "vz"), ("ax", "ay", "az")):
        lengths = np.linalg.norm([match[name].to_numpy() for name in names], axis=0)
        assert np.abs(lengths - 10_000).max() < 2


def test_velocities_are_those_of_the_positions():
    match = football(20_000)
    ball = match.filter(pa.array(match["sid"].to_numpy() == BALLS[0]))
    seconds = ball["ts"].to_numpy() / SECOND
    way = np.linalg.norm([np.ptp(ball[name].to_numpy()[[0, -1]]) for name in "xyz"])
    speed = ball["v_abs"].to_numpy().mean() / 1000
    assert way / (seconds[-1] - seconds[0]) == pytest.approx(speed, rel=0.05)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_profile_has_the_numbers_of_its_table(profile):
    small = profile.scaled(0.02)
    stream = arriving(football(small.events), small)
    assert stream.num_rows == small.events
    assert disordered(stream["ts"].to_numpy()) == pytest.approx(small.disordered, abs=5)
    arrived = stream[ARRIVED].to_numpy()
    assert (np.diff(arrived) >= 0).all()
    delays = arrived - (stream["ts"].to_numpy() - KICKOFF) // PICOSECONDS
    usual = delays[(delays > 0) & (delays < 10_000)] / 1000
    # At least the two events behind it overtake an event.
    assert np.median(usual) == pytest.approx((profile.least + profile.most) / 2, rel=0.15)
    assert usual.max() <= max(profile.most, 0.5)
    assert stream.equals(arriving(football(small.events), small)), "a seed decides"


def test_latency_lasts_from_arrival_to_the_step_that_lets_an_event_go():
    stream = pa.table({"ts": [1, 3, 2, 9, 10], "at": [0, 1100, 1200, 3000, 3500]})
    # 2 and 1 go when 9 is there, in the step that ends at 4 ms; so does 3. At the end 9 and 10 go.
    run = run_order(op.KSlack(2, arrival="at"), [stream], time="ts", step=1000)
    assert run.late == 0
    assert run.latency == pytest.approx((4000 + 2900 + 2800 + 1000 + 500) / 5000)
    assert run.greatest_latency == 4.0
    assert list(run.latencies()) == [(0, run.latency)]
    assert run.accuracy(1) == 100.0


def test_an_event_is_behind_if_the_one_before_it_happened_later():
    stream = pa.table({"ts": [1, 3, 2, 9], "at": [0, 1, 2, 3], "true": [5, 4, 6, 1]})
    run = run_order(op.KSlack(2, arrival="at"), [stream], time="ts", step=1, happened="true")
    assert run.behind == 2, "4 behind 6, and 1 behind 4"


def test_a_finer_step_changes_no_decision():
    profile = PROFILES[0].scaled(0.01)
    stream = arriving(football(profile.events), profile).select(["ts", ARRIVED, "seqNum"])
    disorder = op.Sequence("500 ms", number="seqNum", arrival=ARRIVED)
    coarse, fine = (run_order(disorder, [stream], time="ts", step=step) for step in (10_000, 2000))
    assert coarse.late == fine.late > 0
    assert fine.latency < coarse.latency < fine.latency + 10


def test_sources_that_are_known_are_ordered_each_by_its_numbers():
    stream = pa.table({"ts": [1, 3, 2, 9], "at": [1000, 2000, 3000, 4000], "seq": [0, 2, 1, 3]})
    streams = [stream, shifted(stream, ts=1, at=1)]
    assert streams[1]["ts"].to_pylist() == [2, 4, 3, 10]
    disorder = op.Sequence("1 s", arrival="at")
    assert run_order(disorder, streams, time="ts", step=1000, apart=True).late == 0
    assert run_order(disorder, streams, time="ts", step=1000).late == 4, "numbers come twice"


def test_exchanges_tell_the_drift_as_exactly_as_clocks_count():
    off = {}
    for resolution in (1000 * PICOSECONDS, PICOSECONDS):
        clock = SourceClock()
        for exchange in exchanges(7 * SECOND, drawn_ways(), resolution):
            clock.compare(exchange)
        off[resolution] = abs(clock.reading.drift + 7 * SECOND), clock.reading.bound
    assert off[1000 * PICOSECONDS] == (0, 0), "all within a millisecond"
    error, bound = off[PICOSECONDS]
    assert 0 < error < bound < 100 * PICOSECONDS


def test_sequence_orders_all_but_what_nobody_could_know_of():
    profile = PROFILES[0].scaled(0.05)
    rows = list(single_source(profile, 5000))
    found = {(row.figure, row.setting): row.value for row in rows}
    table = f"{profile.name}, {SEQUENCE}"
    assert found["Table 5.5", SEQUENCE] == sum(peak.events for peak in profile.peaks)
    assert found[ACCURACIES.name, table] > 99.8
    assert found["Table 5.5", f"{SEQUENCE}: accuracy"] == found[ACCURACIES.name, table]
    assert 90 < found[OTHERS.name, f"{table} with the paper's settings"] < 99
    assert found[LATENCIES.name, table] < 5
    assert {row.setting for row in rows if row.figure == ACCURACIES.name} == {
        f"{profile.name}, {kind}" for kind in (SEQUENCE, GREATEST, COVERAGE)
    }


def test_coverage_with_a_least_k_waits_less_than_the_greatest_delay_and_loses_peaks_alone():
    profile = PROFILES[0].scaled(0.15)
    found = {(row.figure, row.setting): row.value for row in single_source(profile, 5000)}
    coverage, greatest = (f"{profile.name}, {kind}" for kind in (COVERAGE, GREATEST))
    assert found[LATENCIES.name, coverage] < 0.95 * found[LATENCIES.name, greatest]
    assert found["Table 5.5", COVERAGE] <= sum(peak.events for peak in profile.peaks)
    without = f"{coverage} without a least K, error of "
    assert found[OTHERS.name, f"{without}3 %"] < found["Table 5.5", f"{COVERAGE}: accuracy"]
    assert found[OTHERS.name, f"{without}0.03 %: latency"] > found[LATENCIES.name, coverage]


def test_the_quick_study_has_rows_for_every_table(tmp_path):
    result = CliRunner().invoke(app, ["study", "disorder", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "disorder.json").read_text(encoding="utf-8"))
    columns = ["table", "setting", "value", "unit", "paper", "quick"]
    assert all(list(row) == columns and row["quick"] for row in rows)
    assert {row["table"] for row in rows} == {figure.name for figure in FIGURES}
    settings = [(row["table"], row["setting"], row["unit"]) for row in rows]
    assert len(set(settings)) == len(settings), "a setting tells its row from all others"
    value = {(row["table"], row["setting"]): row["value"] for row in rows}
    assert value["Table 5.6", "Dataset 1, MP-K-slack to Sequence"] > 40
    assert value["Table 5.6", "Dataset 1, AQ-K-slack to Sequence"] > 18
    sequence = [row for row in rows if row["unit"] == "%" and row["setting"].endswith("Sequence")]
    assert len(sequence) == 5
    assert all(row["value"] > 99 for row in sequence)
    left = [value["Table 5.10", f"{drift}, nothing corrected"] for drift in ("0 ms", "5 ms")]
    assert left[0] < 40 < 10_000 < left[1], "a clock that is off undoes the order"
    compared = [row for row in rows if row["setting"].endswith("clocks compared in ms")]
    assert [row["value"] for row in compared] == [left[0]] * 3, "a comparison brings it back"
    (exactly,) = [row for row in rows if "by more than the bound" in row["setting"]]
    assert exactly["value"] == left[0] < value["Table 5.10", "5 ms, clocks compared in µs"]
    for table in ("Table 5.11", "Table 5.12"):
        errors = [value[table, f"window {number}"] for number in range(1, 8)]
        assert all(abs(error) < 1e5 for error in errors), "ten times what a ball can do"
        averages = "window 1: average by right clocks", "window 1: average by the corrected clock"
        assert errors[0] == pytest.approx(value[table, averages[0]] - value[table, averages[1]])
    accuracies = {
        row["setting"]: row["value"] for row in rows if row["setting"].endswith("accuracy")
    }
    assert accuracies["5 ms, nothing corrected: accuracy"] < 0
    assert min(accuracies[one] for one in accuracies if "compared in ms" in one) > 99
    goal = "1 s off, 50 ms"
    assert value["Table 5.13", "1 s off, 10 ms, with confidence: CONFIRMED"] == 1
    assert value["Table 5.13", goal] == value["Table 5.13", f"{goal}, with confidence: CONFIRMED"]
    assert value["Table 5.13", goal] == 0
    assert value["Table 5.13", f"{goal}, with confidence: UNCERTAIN"] == 1
    page = (tmp_path / "disorder.html").read_text(encoding="utf-8")
    assert all(f'id="figure-{figure.name}"' in page for figure in FIGURES)
    assert '<script src="http' not in page


def test_the_study_has_ticks_where_a_file_is_given(tmp_path):
    assert TICKS not in disorder_study(QUICK).figures
    study = disorder_study(WHOLE, tmp_path / "ticks.csv")
    assert study.figures == (*FIGURES, TICKS)
    assert study.experiments[-1][0] == "real ticks"


@pytest.fixture
def tick_file(tmp_path: Path) -> Path:
    """A file of ticks, every fourth of which is up to 90 ms late."""
    random = np.random.default_rng(5)
    times = 1000 + np.arange(400) * 10
    arrival = times + np.where(np.arange(400) % 4 == 2, random.integers(20, 90, 400), 0)
    lines = ["event_type,id,name,volume,price,stock_time_ms"]
    lines += [f"BUY,{row},INTC,1,27.5,{times[row]}" for row in np.argsort(arrival, kind="stable")]
    path = tmp_path / "ticks.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def test_ticks_go_through_every_reorderer(tick_file):
    rows = list(ticks(tick_file, most=120))
    value = {row.setting: row.value for row in rows}
    assert len(value) == len(rows)
    assert value["ticks"] == 120
    assert value["K-slack, K = 0 ms: late"] == value["ticks out of order"] > 0
    assert value["K-slack, K = 100 ms: late"] == 0
    assert value["Sequence, at least 100 ms: late"] == 0
    assert (
        value["Sequence, at least 100 ms: latency"]
        < value["K-slack, K = 100 ms: latency"]
        < value["K-slack, K = 300 ms: latency"]
    )
    told = [value[f"Punctuation, told every {every} ms: late"] for every in (10, 1000)]
    assert told == [0, 0]
    assert (
        value["Punctuation, told every 10 ms: latency"]
        < value["Punctuation, told every 1000 ms: latency"]
    )
    assert len({row.curve for row in rows if row.at is not None}) == 7
    loss = plot_of(TICKS, rows).layout.xaxis
    assert loss.type == "linear"
    assert loss.autorange != "reversed", "the fewest lost events are on the left"


def test_ticks_are_numbered_in_the_order_of_their_times(tick_file):
    stream = read_ticks(tick_file)
    order = np.argsort(stream["seq"].to_numpy())
    assert (np.diff(stream["ts"].to_numpy()[order]) > 0).all()
    assert (np.diff(stream[ARRIVED].to_numpy()) > 0).all()


def test_a_file_without_ticks_is_refused(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("id,price\n1,2\n")
    with pytest.raises(DataError, match="is no file of ticks"):
        read_ticks(path)
    result = CliRunner().invoke(app, ["study", "disorder", "--ticks", str(tmp_path / "none.csv")])
    assert result.exit_code == 2
    assert "does not exist" in result.stderr


@pytest.fixture
def real_ticks(shared: Path) -> Path:
    """A day of ticks that lies beside the project."""
    path = shared / "data" / "stocks.csv.gz"
    if not path.is_file():
        pytest.skip("the file ../shared/data/stocks.csv.gz is not here")
    return path


def test_real_ticks_lose_nothing_with_a_slack_of_890_ms(real_ticks):
    # The first that is so late is tick 19 687.
    stream = read_ticks(real_ticks, 20_000)
    late = {
        slack: run_order(
            op.KSlack(slack, arrival=ARRIVED), [stream], time="ts", step=60_000_000
        ).late
        for slack in (889, 890)
    }
    assert late[890] == 0 < late[889]


def test_sequence_loses_few_real_ticks_by_what_it_learns(real_ticks):
    stream = read_ticks(real_ticks, 20_000)
    run = run_order(op.Sequence("1 s", arrival=ARRIVED), [stream], time="ts", step=60_000_000)
    assert 0 < run.late < stream.num_rows * 0.005
