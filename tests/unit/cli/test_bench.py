"""The benchmark command and its workloads: right counts, whatever the speed."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from outpace.cli.bench_worker import run
from outpace.cli.main import app
from outpace.testing.workloads import WORKLOADS, events, random_numbers


def _reference(name, size):
    """Return what a workload finds, by plain loops over its definition."""
    table = events(size)
    columns = {column: table.column(column).to_pylist() for column in table.column_names}
    groups = {}
    for row in range(size):
        groups.setdefault(columns["key"][row] if name in _KEYED else 0, []).append(row)
    matches = [m for rows in groups.values() for m in _FINDERS[name[:2]](name, rows, columns)]
    return [len(matches)] + [sum(match[part] for match in matches) for part in range(3)]


_KEYED = ("w1k", "w1kn", "w2k", "w3a", "w3b", "w4s", "w4r")


def _chains(name, rows, columns):
    within = {"w1t": 50, "w1tn": 50, "w1k": 10**6, "w1kn": 10**6}.get(name, 1000)
    free_from = 0
    for place, row in enumerate(rows):
        if columns["type"][row] != 0 or place < free_from:
            continue
        wanted, at = 1, place
        while wanted < 5 and at + 1 < len(rows):
            at += 1
            wanted += columns["type"][rows[at]] == wanted
        if wanted == 5 and rows[at] - row < within:
            yield row, rows[at], 5
            free_from = 0 if name.endswith("n") else at + 1


def _triples(name, rows, columns):
    within = 10**6 if name == "w2k" else 1000
    for a, b, c in zip(rows, rows[1:], rows[2:], strict=False):
        if [columns["type"][row] for row in (a, b, c)] == [0, 1, 2] and c - a < within:
            yield a, c, 3


def _dips(name, rows, columns):
    walk = [columns["walk"][row] for row in rows]
    start = 0
    while start < len(rows):
        at = start + 1
        while at < len(rows) and walk[at] < walk[at - 1]:
            at += 1
        bottom = at - 1
        while at < len(rows) and walk[at] > walk[at - 1] and (name == "w3a" or at == bottom + 1):
            at += 1
        fell, rose = bottom > start, at - 1 > bottom
        if name == "w3a" and fell and rose and at < len(rows):
            yield rows[start], rows[at - 1], at - start + 1
            start = at - 1
        elif name == "w3b" and fell and rose:
            yield rows[start], rows[bottom + 1], bottom + 2 - start
            start = bottom + 2
        else:
            start += 1


def _rises(name, rows, columns):
    start = 0
    while start < len(rows):
        found = _rise(name, rows, columns, start)
        if found is not None:
            yield rows[start], rows[found[0]], found[1] + 2
        start = start + 1 if found is None else found[0] + 1


def _rise(name, rows, columns, start):
    if columns["t4"][rows[start]] != 0:
        return None
    prices = []
    for at in range(start + 1, len(rows)):
        kind, price = columns["t4"][rows[at]], columns["p4"][rows[at]]
        if rows[at] - rows[start] >= 100_000:
            return None
        if kind == 1 and (not prices or price > sum(prices) / len(prices)):
            prices.append(price)
        elif kind == 2 and prices:
            return at, len(prices)
        elif name == "w4s":
            return None
    return None


_FINDERS = {"w1": _chains, "w2": _triples, "w3": _dips, "w4": _rises}


def _numbers(result):
    return [result[name] for name in ("matches", "sum_start", "sum_end", "sum_length")]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_finds_what_plain_loops_find(name):
    assert _numbers(run(name, 30_000, 1)) == _reference(name, 30_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_finds_what_the_peers_reference_says(name, shared):
    answers = shared / "peers" / "flink" / "ref_counts.txt"
    if not answers.is_file():
        pytest.skip("the peers' reference answers are not here")
    lines = [line for line in answers.read_text().splitlines() if f"REF,{name},n=500000," in line]
    expected = [int(part.split("=")[1]) for part in lines[0].split(",")[3:]]
    assert _numbers(run(name, 500_000, 1)) == expected


def test_random_numbers_are_those_of_splitmix64():
    seed = 0x910A2DEC89025CC1  # splitmix64 of 1
    mask = 2**64 - 1

    def mix(value):
        value = (value + 0x9E3779B97F4A7C15) & mask
        value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ value >> 27) * 0x94D049BB133111EB) & mask
        return value ^ value >> 31

    assert mix(1) == seed
    assert random_numbers(1, 3).tolist() == [mix((seed + row) & mask) for row in range(3)]


def test_the_walk_of_each_key_starts_anew():
    table = events(5000)
    key, walk = (np.asarray(table.column(name)) for name in ("key", "walk"))
    moves = (random_numbers(3, 5000) % np.uint64(7)).astype(np.int64) - 3
    rows = np.flatnonzero(key == key[0])
    assert walk[rows].tolist() == (10000 + np.cumsum(moves[rows])).tolist()


def test_the_command_prints_an_object_for_each_workload():
    done = CliRunner().invoke(
        app, ["bench", "--workload", "w2,w1", "--n", "2000", "--repeat", "1", "--json"]
    )
    assert done.exit_code == 0, done.output
    objects = [json.loads(line) for line in done.output.splitlines()]
    assert [found["workload"] for found in objects] == ["w2", "w1"]
    assert all(found["n"] == 2000 and found["host"] == "local" for found in objects)


def test_an_unknown_workload_is_refused():
    done = CliRunner().invoke(app, ["bench", "--workload", "w9"])
    assert done.exit_code == 2
    assert "there is no workload 'w9'" in done.output
