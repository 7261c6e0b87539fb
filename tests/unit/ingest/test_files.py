"""Files as sources: rows in the order of the files, with numbers of their own or counted ones."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outpace.errors import DataError
from outpace.ingest.files import csv, json_lines, parquet


@pytest.fixture
def table() -> pa.Table:
    return pa.table({"ts": list(range(100)), "x": [n % 7 for n in range(100)]})


def events(source, rows=64):
    return pa.Table.from_batches(source.batches(rows)).to_pylist()


def expected(table):
    return [{**row, "seq": number} for number, row in enumerate(table.to_pylist())]


@pytest.mark.parametrize("rows", [1, 33, 64, 1000])
def test_parquet_is_replayed_file_after_file(tmp_path, table, rows):
    pq.write_table(table.slice(0, 40), tmp_path / "a.parquet", row_group_size=30)
    pq.write_table(table.slice(40), tmp_path / "b.parquet")
    assert events(parquet(tmp_path), rows) == expected(table)
    assert all(batch.num_rows <= rows for batch in parquet(tmp_path).batches(rows))


@pytest.mark.parametrize("rows", [1, 33, 1000])
def test_csv_is_replayed(tmp_path, table, rows):
    lines = [f"{row['ts']};{row['x']}" for row in table.to_pylist()]
    path = tmp_path / "ticks.csv"
    path.write_text("\n".join(["ts;x", *lines]))
    assert events(csv(path, delimiter=";"), rows) == expected(table)
    path.write_text("\n".join(lines))
    source = csv(path, delimiter=";", header=False, schema="ts bigint, x bigint")
    assert events(source, rows) == expected(table)


@pytest.mark.parametrize("delimiter", ["", ";;", 3])
def test_a_delimiter_is_one_character(delimiter):
    with pytest.raises(DataError, match="delimiter"):
        csv("ticks.csv", delimiter=delimiter)


@pytest.mark.parametrize("rows", [1, 33, 1000])
def test_json_lines_are_replayed(tmp_path, table, rows):
    path = tmp_path / "ticks.jsonl"
    path.write_text(
        "\n".join(f'{{"ts": {row["ts"]}, "x": {row["x"]}}}' for row in table.to_pylist())
    )
    assert events(json_lines(path), rows) == expected(table)


def test_numbers_of_the_file_are_kept(tmp_path):
    pq.write_table(pa.table({"ts": [1, 2], "seq": [10, 20]}), tmp_path / "a.parquet")
    assert [event["seq"] for event in events(parquet(tmp_path / "a.parquet"))] == [10, 20]


def test_the_name_of_the_file_is_the_identifier_unless_one_is_given():
    assert parquet("plant/west.parquet").id == "west"
    assert csv(["a/east.csv", "b.csv"]).id == "east"
    assert json_lines("x.jsonl", id="north").id == "north"


def test_a_missing_time_is_named(tmp_path, table):
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="no column 'tss'") as refused:
        events(parquet(tmp_path, time="tss", id="west"))
    assert refused.value.hint == "did you mean 'ts'?"


def test_nothing_is_opened_before_it_is_read():
    source = parquet("there/is/no/such.parquet")
    with pytest.raises(DataError, match="no file"):
        next(source.batches())


def test_a_source_is_a_value():
    assert csv("a.csv") == csv("a.csv")
    assert hash(csv("a.csv")) == hash(csv("a.csv"))
