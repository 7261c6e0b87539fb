"""The comparison with Flink: what it reads, what it makes of it, and that it goes on alone."""

from pathlib import Path

import compare
import pytest

PROJECT = Path(__file__).resolve().parents[3]
SUMS = {"matches": 7, "sum_start": 1, "sum_end": 2, "sum_length": 3}
LINE = (
    "RESULT,w2,p={p},n=20,{kind},run_s=4.8,net_s=4.9,ev_s={rate},matches=7,sumS=1,sumE=2,sumL=3\n"
)


@pytest.fixture
def flink():
    lines = [
        LINE.format(p=p, kind="measured", rate=rate) for p, rate in ((1, 500_000), (2, 400_000))
    ]
    return [compare.read_flink(line) for line in lines]


def _result(rate, share, n=20, **more):
    return {
        "workload": "w2",
        "n": n,
        "events_per_s": rate,
        "share_of_ceiling": share,
        **SUMS,
        **more,
    }


def _results(**kinds):
    return {"parquet": [], "dataframe": [], "cores": [], **kinds}


def test_only_measured_runs_of_flink_are_read(flink):
    assert flink[1] == {
        "workload": "w2",
        "parallelism": 2,
        "n": 20,
        "events_per_s": 400_000,
        "sums": (7, 1, 2, 3),
    }
    assert compare.read_flink(LINE.format(p=1, kind="warmup", rate=1)) is None
    assert compare.read_flink("ERROR,w2,1,20,java.lang.Error: n=measured\n") is None


def test_the_table_holds_the_better_rate_of_flink_and_the_ratios_to_it(flink):
    results = _results(
        parquet=[_result(20_000_000, 0.8)],
        dataframe=[_result(2_500_000, 0.64)],
        cores=[_result(1, 1), _result(1, 1, speedup=1.9)],
    )
    reference = {("w2", 20): (7, 1, 2, 3)}
    text = compare.table(["w2", "w9"], flink, results, reference, 2)
    assert text.splitlines()[2:] == [
        "| w2 | 0.5 (p=1) | 20 | 40.0 | 0.80 | 2.5 | 5.0 | 0.64 | agree |",
        "| w9 | - | - | - | - | - | - | - | - |",
        "",
        "w2, Parquet: 2 cores are 1.9 times one core.",
    ]


def test_counts_are_compared_with_each_other_and_with_the_reference(flink):
    same = _results(parquet=[_result(1, 1)])
    assert compare.counts("w2", flink, same, {("w2", 20): (7, 1, 2, 3)}) == "agree"
    assert compare.counts("w2", flink, same, {("w2", 20): (7, 1, 2, 4)}) == "differ"
    assert compare.counts("w2", flink, same, {}) == "agree with each other"
    other = _results(parquet=[_result(1, 1) | {"sum_end": 5}])
    assert compare.counts("w2", flink, other, {}) == "differ"
    assert compare.counts("w1", flink, same, {}) == "-"


def test_the_reference_is_read_where_it_is(tmp_path):
    path = tmp_path / "ref_counts.txt"
    assert compare.read_reference(path) == {}
    path.write_text("REF,w1,n=500,matches=4,sumS=5,sumE=6,sumL=7\n")
    assert compare.read_reference(path) == {("w1", 500): (4, 5, 6, 7)}
