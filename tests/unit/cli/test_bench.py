"""The benchmark command and its workloads: right counts, whatever the speed."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from outpace.bench.data import ROW_GROUP_ROWS, events_file
from outpace.bench.worker import run
from outpace.cli.main import app
from outpace.errors import DataError
from outpace.ingest.workloads import WORKLOADS, event_pieces, events, random_numbers


def _reference(name, size):
    """Return what a workload finds, by plain loops over its definition."""
    table = events(size)
    columns = {column: table.column(column).to_pylist() for column in table.column_names}
    groups = {}
    for row in range(size):
        groups.setdefault(columns["key"][row] if name in _KEYED else 0, []).append(row)
    stretches = [rows for group in groups.values() for rows in _windows(name, group, size)]
    matches = [match for rows in stretches for match in _FINDERS[name[:2]](name, rows, columns)]
    return [len(matches)] + [sum(match[part] for match in matches) for part in range(3)]


_KEYED = ("w1k", "w1kn", "w2k", "w3a", "w3b", "w4s", "w4r", "w5k")

#: Size and slide of the windows; a row's time is its number, so windows by count are by time too.
_WINDOWS = {"w5t": (1000, 50), "w5c": (1000, 50), "w5k": (10**6, 50_000)}


def _windows(name, rows, size):
    """Return the rows of a partition window by window, or all where there are no windows."""
    if name not in _WINDOWS:
        return [rows]
    length, slide = _WINDOWS[name]
    starts = range(slide - length, size, slide)
    return [[row for row in rows if start <= row < start + length] for start in starts]


def _chains(name, rows, columns):
    within = {"w1t": 50, "w1tn": 50, "w1k": 10**6, "w1kn": 10**6, "w5k": 10**6}.get(name, 1000)
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


_FINDERS = {"w1": _chains, "w2": _triples, "w3": _dips, "w4": _rises, "w5": _chains}


def _numbers(result):
    return [result[name] for name in ("matches", "sum_start", "sum_end", "sum_length")]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_finds_what_plain_loops_find(name):
    assert _numbers(run(name, 30_000, 1)) == _reference(name, 30_000)


@pytest.fixture
def peers_answers(shared):
    answers = shared / "peers" / "flink" / "ref_counts.txt"
    if not answers.is_file():
        pytest.skip("the peers' reference answers are not here")
    lines = [line.split(",") for line in answers.read_text().splitlines()]
    return {
        (name, size): [int(part.split("=")[1]) for part in parts] for _, name, size, *parts in lines
    }


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in _WINDOWS])
def test_a_workload_finds_what_the_peers_reference_says(name, peers_answers):
    assert _numbers(run(name, 500_000, 1)) == peers_answers[name, "n=500000"]


@pytest.mark.soak
@pytest.mark.parametrize("name", ["w5t", "w5c"])
def test_windows_hold_as_many_matches_as_the_peers_reference_says(name, peers_answers):
    # The reference counts per window; its last number is the sum of the counts.
    *_, matches = peers_answers[name, "n=500000"]
    assert run(name, 500_000, 1)["matches_in_whole_windows"] == matches


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


@pytest.mark.parametrize("rows", [1, 999, 4096, 10_000])
def test_pieces_of_any_size_are_the_whole(rows):
    size = 3 if rows == 1 else 10_000
    pieces = list(event_pieces(size, rows))
    assert [piece.num_rows for piece in pieces[:-1]] == [rows] * (len(pieces) - 1)
    assert pa.concat_tables(pieces).equals(events(size))


def test_a_file_of_events_is_written_once_and_whole(tmp_path):
    size = ROW_GROUP_ROWS + 3
    path = events_file(tmp_path / "new", size)
    assert pq.read_table(path).equals(events(size))
    assert pq.read_metadata(path).num_row_groups == 2
    written = path.stat().st_mtime_ns
    assert events_file(tmp_path / "new", size) == path
    assert path.stat().st_mtime_ns == written
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_was_left_by_something_else_is_refused(tmp_path):
    events_file(tmp_path, 4).rename(tmp_path / "events-5.parquet")
    with pytest.raises(DataError, match="has 4 rows instead of 5"):
        events_file(tmp_path, 5)
    (tmp_path / "events-6.parquet").write_text("six")
    with pytest.raises(DataError, match="is not a Parquet file"):
        events_file(tmp_path, 6)


def test_the_command_prints_an_object_for_each_workload():
    done = CliRunner().invoke(
        app, ["bench", "--workload", "w2,w1", "--n", "2000", "--repeat", "1", "--json"]
    )
    assert done.exit_code == 0, done.output
    objects = [json.loads(line) for line in done.output.splitlines()]
    assert [found["workload"] for found in objects] == ["w2", "w1"]
    assert all(found["n"] == 2000 and found["host"] == "local" for found in objects)


def test_the_command_shows_a_table():
    done = CliRunner().invoke(app, ["bench", "--workload", "w2", "--n", "2000", "--repeat", "1"])
    assert done.exit_code == 0, done.output
    title, heads, row = [line.split() for line in done.output.splitlines()]
    assert title == ["2,000", "events"]
    assert heads == ["workload", "seconds", "M/s", "matches", "peak_bytes"]
    assert row[0] == "w2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--workload w9", "there is no workload 'w9'"),
        ("--workload ,", "no workload is named"),
        ("--host flink", "there is no host 'flink'"),
        ("--host spark --workload w1,w9", "there is no workload 'w9'"),
        ("--host spark --input csv", "there is no input 'csv'"),
        ("--host spark --cores 0", "Spark runs on 1 to 1024 cores"),
        ("--host stream --cores 1,99999999999", "Spark runs on 1 to 1024 cores"),
        ("--host spark --cores two", "'two' is not a list of numbers of cores"),
        ("--host local --input parquet", "--input is only for --host spark and stream"),
        ("--cores 2", "--cores is only for --host spark"),
    ],
)
def test_what_is_not_known_is_refused(options, message):
    done = CliRunner().invoke(app, ["bench", *options.split()])
    assert done.exit_code == 2
    assert message in done.output
