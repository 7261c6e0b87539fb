"""`outpace bench --host spark`: the numbers are those of the in-process run, whatever the speed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outpace.bench.spark import SMALLER, PairedRuns, Timing, measure
from outpace.bench.worker import run
from outpace.cli.bench import INPUTS
from outpace.cli.main import app
from outpace.errors import MatchError

PROJECT = Path(__file__).resolve().parents[2]
_SUMS = ("matches", "sum_start", "sum_end", "sum_length")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bench")


@pytest.mark.parametrize("kind", INPUTS["spark"])
@pytest.mark.parametrize("workload", [pytest.param("w2", marks=pytest.mark.soak), "w1k"])
def test_a_workload_finds_what_it_finds_in_process(spark, folder, kind, workload):
    n = 100_000
    result = measure(spark, workload, kind, n, 2, 1, folder, warm_runs=0)
    expected = run(workload, n, 1)
    assert {name: result[name] for name in _SUMS} == {name: expected[name] for name in _SUMS}
    assert {name: result[name] for name in ("workload", "host", "input", "n", "n_small")} == {
        "workload": workload,
        "host": "spark",
        "input": kind,
        "n": n,
        "n_small": n // SMALLER,
    }
    assert result["events_per_s_plain"] == pytest.approx(n / result["seconds"], rel=0.01)


@pytest.mark.soak
def test_the_command_finds_what_the_peers_reference_says(java, tmp_path, shared):
    answers = shared / "peers" / "flink" / "ref_counts.txt"
    if not answers.is_file():
        pytest.skip("the peers' reference answers are not here")
    lines = [line for line in answers.read_text().splitlines() if "REF,w1,n=500000," in line]
    expected = [int(part.split("=")[1]) for part in lines[0].split(",")[3:]]
    options = "--host spark --input parquet,dataframe --workload w1 --n 500000 --repeat 1 --json"
    done = CliRunner().invoke(
        app, ["bench", *options.split(), "--cores", "1,2", "--data", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    results = [json.loads(line) for line in done.output.splitlines()]
    cases = [(cores, kind) for cores in (1, 2) for kind in INPUTS["spark"]]
    assert [(found["cores"], found["input"]) for found in results] == cases
    for number, found in enumerate(results):
        assert [found[name] for name in _SUMS] == expected
        rates = {one["events_per_s"] for one in (found, results[number % 2])}
        assert ("speedup" in found) == (number >= 2 and None not in rates)


@pytest.mark.soak
def test_the_memory_of_a_small_run_is_watched(java, tmp_path):
    script = PROJECT / "bench" / "large.py"
    options = "--n 100000 --workload w2 --input parquet --heap 512m --limit 0.1 --remove"
    done = subprocess.run(
        [sys.executable, script, *options.split(), "--data", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "JVM and workers took more than 0.1 GiB together" in done.stderr
    assert done.returncode == 1
    (found,) = map(json.loads, done.stdout.splitlines())
    expected = run("w2", 100_000, 1)
    assert {name: found[name] for name in _SUMS} == {name: expected[name] for name in _SUMS}
    jvm, workers, driver = (found[f"peak_{part}_bytes"] for part in ("jvm", "workers", "driver"))
    assert 100 << 20 < jvm < 1 << 30
    assert workers > 40 << 20
    assert driver > 40 << 20
    assert max(jvm, workers) < found["peak_spark_bytes"] <= jvm + workers
    assert found["peak_spark_bytes"] < found["peak_total_bytes"]
    assert not list(tmp_path.iterdir())


def test_the_steady_rate_leaves_out_what_every_run_costs():
    pairs = tuple((cost + 0.5, cost + 2.5) for cost in (1.0, 7.0, 3.0))
    timing = Timing(small=100, large=500, pairs=pairs)
    assert timing.steady == 200.0
    assert timing.seconds == 5.5
    assert timing.plain == 500 / 5.5


def test_there_is_no_steady_rate_where_the_larger_run_is_not_slower():
    assert Timing(small=1, large=5, pairs=((2.0, 1.0),)).steady is None


def test_runs_that_find_different_numbers_fail():
    answers = iter([1, 2, 1, 2, 1, 3])
    runs = PairedRuns(lambda path: next(answers))
    runs.add(["small", "large"])
    runs.add(["small", "large"])
    assert runs.answer("w1") == 2
    runs.add(["small", "large"])
    with pytest.raises(MatchError, match="runs of workload 'w1' found different numbers"):
        runs.answer("w1")
