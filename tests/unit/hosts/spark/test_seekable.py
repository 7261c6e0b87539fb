"""Logs behind streams on Spark: every stretch of them is read again as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.partitioned_log import PartitionedLog, append, trim

import outpace as op
from outpace.engine.codec.stretch import LogStretch, read_stretches, stretches_of, write_stretches
from outpace.hosts.spark.seekable import EventLog, OwnLog, ParquetLog, ReadableLog

ROWS = pa.table({"id": range(100), "x": [number * 0.5 for number in range(100)]})


def read(log: ReadableLog, schema: pa.Schema, part: str, first: int, stop: int) -> pa.Table:
    """Read a stretch, whose pieces follow each other."""
    pieces, at = list(log.read(schema, LogStretch(part, first, stop))), first
    for rows, place in pieces:
        assert place == (part, at, at + rows.num_rows)
        at = place.stop
    assert at == stop
    return pa.concat_tables([schema.empty_table(), *(rows for rows, _ in pieces)])


@pytest.mark.parametrize("group", [7, 30, 100])
def test_any_rows_of_a_parquet_file_are_read_again(tmp_path: Path, group: int) -> None:
    folder = tmp_path / "day=2" / "of%20=a b"
    folder.mkdir(parents=True)
    pq.write_table(ROWS, folder / "a ä.parquet", row_group_size=group)
    address = (folder / "a ä.parquet").as_uri()
    schema = pa.schema([("X", pa.float32()), ("day", pa.int32()), ("id", pa.int64()), ("no", "i4")])
    for first, stop in ((0, 100), (0, 1), (6, 8), (29, 61), (99, 100), (40, 40)):
        found = read(ParquetLog(), schema, address, first, stop)
        assert found["id"].to_pylist() == [*range(first, stop)]
        assert found["X"].to_pylist() == [0.5 * number for number in range(first, stop)]
        assert {*found["day"].to_pylist()} <= {2}
        assert found["no"].null_count == stop - first


def test_a_file_that_is_gone_or_damaged_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and no more")
    for name in ("a", "b"):
        address = (tmp_path / f"{name}.parquet").as_uri()
        with pytest.raises(op.DataError, match=f"cannot read .*/{name}.parquet again"):
            list(ParquetLog().read(ROWS.schema, LogStretch(address, 0, 1)))


def test_rows_of_an_event_log_are_read_again_with_their_offsets(tmp_path: Path) -> None:
    with op.log.create(tmp_path, ROWS.schema, time="id").writer() as writer:
        for low in range(0, 100, 30):
            writer.append(ROWS.slice(low, 30))
    schema = pa.schema([("place", pa.int64()), ("id", pa.int64())])
    log = EventLog(str(tmp_path), 0, "fail", "place")
    for first, stop in ((0, 100), (29, 61), (99, 100)):
        found = read(log, schema, "", first, stop)
        assert found["place"].to_pylist() == found["id"].to_pylist() == [*range(first, stop)]


class Wrong(PartitionedLog):
    """Gives what it should not."""

    def read(self, part: Mapping[str, Any], first: int, stop: int) -> Iterator[pa.Table]:
        found = pa.concat_tables(super().read(part, first, stop))
        # More is no fault.
        before = super().read(part, 0, stop)
        yield {"lacks": found.take([0, 2]), "drop": found.drop_columns(["x"])}.get(
            self.name, pa.concat_tables(before)
        )


def test_a_log_of_a_user_gives_what_is_asked_of_it(tmp_path: Path) -> None:
    own = PartitionedLog(str(tmp_path / "log"), ROWS.schema)
    append(own, ROWS, 2)
    part, schema = (
        '{"topic":"events","partition":1}',
        own.schema.append(pa.field("topic", pa.string())),
    )
    odd = read(OwnLog(own), schema, part, 5, 45)
    assert odd["id"].to_pylist() == [*range(11, 91, 2)]
    more = read(OwnLog(Wrong(own.folder, own.schema)), schema, part, 5, 45)
    assert more.equals(odd)
    assert OwnLog(own).log != OwnLog(PartitionedLog(own.folder, own.schema, "other")).log
    with pytest.raises(op.DataError, match="gives rows out of their order, or lacks some"):
        read(OwnLog(Wrong(own.folder, own.schema, "lacks")), schema, part, 5, 45)
    with pytest.raises(op.DataError, match="gives no column 'x'"):
        read(OwnLog(Wrong(own.folder, own.schema, "drop")), schema, part, 5, 45)
    trim(own, {1: 20})
    assert read(OwnLog(own), schema, part, 20, 45)["id"].to_pylist() == [*range(41, 91, 2)]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 6)), max_size=12))
def test_stretches_have_the_places_of_rows_in_their_order(places: list[tuple[str, int]]) -> None:
    parts, offsets = ([place[n] for place in places] for n in (0, 1))
    found = stretches_of(pa.chunked_array([parts], pa.string()), pa.chunked_array([offsets], "i8"))
    assert [(part, n) for part, low, high in found for n in range(low, high)] == places
    assert read_stretches(write_stretches(found)) == found


@pytest.mark.parametrize(("part", "offset"), [(None, 1), ("a", None), ("a", -1)])
def test_rows_that_do_not_say_where_they_lie_are_refused(part: object, offset: object) -> None:
    columns = [pa.chunked_array([[part]], "string"), pa.chunked_array([[offset]], "i8")]
    with pytest.raises(op.DataError, match="does not say where in its log it lies"):
        stretches_of(*columns)
