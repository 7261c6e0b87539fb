"""Parquet files: what is found, what the footers say, what is read, and what is refused."""

from __future__ import annotations

import datetime
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from outpace.errors import DataError
from outpace.files.parquet import Statistics, list_files, parquet


def write(path: Path, table: pa.Table, rows: int = 1 << 20) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=rows)
    return path


def numbers(*values: int | None) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def names_below(folder: Path, what: str | list[str]) -> list[str]:
    listing = list_files(parquet(what))
    return [str(Path(group.path).relative_to(folder)) for group in listing.groups]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.parquet", "a.parquet", "deep/er/c.parquet", "_hidden.parquet", ".d/e.parquet"):
        write(tmp_path / name, numbers(1, 2))
    (tmp_path / "_SUCCESS").touch()
    return tmp_path


def test_a_folder_gives_its_files_sorted_without_hidden_ones(folder: Path) -> None:
    expected = ["a.parquet", "b.parquet", "deep/er/c.parquet"]
    assert names_below(folder, str(folder)) == expected
    assert names_below(folder, str(folder / "**")) == expected
    assert names_below(folder, f"file://{folder}") == expected


def test_globs_cross_folders_only_with_two_stars(folder: Path) -> None:
    assert names_below(folder, str(folder / "*.parquet")) == ["a.parquet", "b.parquet"]
    assert names_below(folder, f"{folder}/[b]*.parquet") == ["b.parquet"]
    assert names_below(folder, f"{folder}/**/?.parquet") == [
        "a.parquet", "b.parquet", "deep/er/c.parquet",
    ]  # fmt: skip
    assert names_below(folder, f"{folder}/deep/*/c.parquet") == ["deep/er/c.parquet"]
    assert names_below(folder, f"{folder}/_*.parquet") == ["_hidden.parquet"]
    assert names_below(folder, f"file://{folder}/*.parquet") == ["a.parquet", "b.parquet"]


def test_links_to_folders_above_are_entered_once(folder: Path) -> None:
    """Two links in a folder to itself gave each file 2 ** 40 times."""
    for name in ("one", "two"):
        (folder / "deep" / name).symlink_to(folder, target_is_directory=True)
    expected = ["a.parquet", "b.parquet", "deep/er/c.parquet"]
    for what in (folder, folder / "*", folder / "**", folder / "**/**/*.parquet"):
        assert names_below(folder, str(what)) == expected


def test_a_file_named_twice_is_read_once_and_a_name_may_look_like_a_glob(folder: Path) -> None:
    odd = write(folder / "x[1].parquet", numbers(7))
    assert names_below(folder, [str(odd), str(odd), str(folder / "a.parquet")]) == [
        "a.parquet", "x[1].parquet",
    ]  # fmt: skip


def test_an_explicit_file_system_is_used(folder: Path) -> None:
    inside = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    listing = list_files(parquet(Path("a.parquet"), filesystem=inside))
    listing = pickle.loads(pickle.dumps(listing))  # noqa: S301  # our own bytes
    assert listing.read(listing.groups[0], ["n"]).column("n").to_pylist() == [1, 2]


def test_statistics_are_python_values_and_bound_nanoseconds(tmp_path: Path) -> None:
    table = pa.table(
        {
            "n": pa.array([3, None, 1, 2], pa.int8()),
            "at": pa.array([1001, 2999, 5000, 5001], pa.timestamp("ns", "UTC")),
            "nested": [{"a": 1, "b": 2}] * 4,
            "word": pa.array(["x", "y", "x", "z"]).dictionary_encode(),
        }
    )
    first, second = list_files(parquet(write(tmp_path / "f", table, rows=2))).groups
    assert (first.rows, second.number, second.name) == (2, 1, f"row group 1 of {tmp_path}/f")
    assert first.statistics["n"] == Statistics(3, 3, 1)
    assert first.statistics["nested"] == Statistics()
    assert second.statistics["word"] == Statistics("x", "z", 0)
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    after = [start + datetime.timedelta(microseconds=us) for us in (1, 3, 5, 6)]
    assert first.statistics["at"] == Statistics(after[0], after[1], 0)
    assert second.statistics["at"] == Statistics(after[2], after[3], 0)
    assert all(size > 0 for size in first.sizes.values())


def test_reading_gives_the_columns_asked_for_in_their_order(tmp_path: Path) -> None:
    table = pa.table(
        {"a": [1, 2, 3], "a.b": [4, 5, 6], "w": pa.array(["x", "y", "x"]).dictionary_encode()}
    )
    listing = list_files(parquet(write(tmp_path / "f", table, rows=2)))
    first, last = listing.only(["a"]).groups
    assert listing.read(last, ["w", "a"]).to_pylist() == [{"w": "x", "a": 3}]
    assert listing.read(first, ["a.b"]).column_names == ["a.b"]
    assert listing.read(first, []).num_rows == 2
    pieces = list(listing.batches(first, ["w"], rows=1))
    assert [piece.to_pylist() for piece in pieces] == [[{"w": "x"}], [{"w": "y"}]]
    assert pieces[0].schema.field("w").type == pa.string()


def test_folders_named_column_and_value_are_columns(tmp_path: Path) -> None:
    for day in ("1", "2"):
        for place in ("here", "__HIVE_DEFAULT_PARTITION__", "a%20b"):
            write(tmp_path / f"day={day}/place={place}/f.parquet", numbers(5, 6))
    listing = list_files(parquet(tmp_path))
    assert listing.schema == pa.schema(
        [("n", pa.int64()), ("day", pa.int64()), ("place", pa.string())]
    )
    rows = pa.concat_tables(listing.read(g, ["place", "n", "day"]) for g in listing.groups)
    assert rows.num_rows == 12
    assert rows.slice(10).to_pylist() == [
        {"place": "here", "n": 5, "day": 2},
        {"place": "here", "n": 6, "day": 2},
    ]
    assert rows.column("place").null_count == 4
    assert "a b" in rows.column("place").to_pylist()
    assert listing.groups[-1].statistics["day"] == Statistics(2, 2, 0)
    assert listing.groups[0].statistics["place"] == Statistics(None, None, 2)
    assert list_files(parquet(str(tmp_path / "day=1/*/*.parquet"))).schema.names == ["n"]


def test_row_groups_without_rows_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a", numbers())
    write(tmp_path / "b", numbers(1))
    listing = list_files(parquet(tmp_path))
    assert [Path(group.path).name for group in listing.groups] == ["b"]
    assert listing.rows == 1


def test_what_cannot_be_listed_is_named(tmp_path: Path) -> None:
    good = write(tmp_path / "good.parquet", numbers(1))
    text = tmp_path / "text.csv"
    text.write_text("n\n1\n")
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(good.read_bytes()[:-9])
    typed = write(tmp_path / "typed", pa.table({"n": ["x"]}))
    more = write(tmp_path / "more", pa.table({"n": [1], "m": [1]}))
    (tmp_path / "empty").mkdir()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    named = tmp_path / "named"
    named.write_bytes(write(more, pa.table({"odd": [1]})).read_bytes().replace(b"odd", b"o\xffd"))
    write(more, pa.table({"n": [1], "m": [1]}))
    cases: list[tuple[list[Path | str], str]] = [
        ([tmp_path / "missing"], f"there is no file or folder '{tmp_path}/missing'"),
        ([tmp_path / "*.orc"], f"no file matches '{tmp_path}/\\*.orc'"),
        ([tmp_path / "empty"], f"no files in '{tmp_path}/empty'"),
        ([text], f"cannot read '{text}' as Parquet"),
        ([cut], f"cannot read '{cut}' as Parquet"),
        ([good, typed], f"column 'n' is string in '{typed}'"),
        ([more, good], f"column 'm' is not in '{good}'"),
        (["nonsense://x/y"], "cannot read the address 'nonsense://x/y'"),
        (["file:///%00"], "cannot list 'file:///%00'"),
        (["~nobody-of-that-name/x"], "cannot read the address '~nobody-of-that-name/x'"),
        (["\ud800"], "a character that no file's name can have"),
        ([pipe], f"'{pipe}' is neither a file nor a folder"),
        ([named], f"cannot read '{named}' as Parquet"),
    ]
    for paths, message in cases:
        with pytest.raises(DataError, match=message):
            list_files(parquet([str(path) for path in paths]))


def test_folders_that_do_not_fit_are_named(tmp_path: Path) -> None:
    write(tmp_path / "one/n=1/f", numbers(1))
    write(tmp_path / "two/k=1/f", numbers(1))
    write(tmp_path / "two/f", numbers(1))
    with pytest.raises(DataError, match="column 'n' is in the files and in the names"):
        list_files(parquet(tmp_path / "one"))
    with pytest.raises(DataError, match="do not give column 'k'"):
        list_files(parquet(tmp_path / "two"))


@pytest.mark.parametrize("paths", [[], 5, [5]])
def test_what_is_no_path_is_refused(paths: object) -> None:
    with pytest.raises(DataError, match="expected a path"):
        parquet(paths)  # type: ignore[arg-type]  # the wrong type is what is tested


def test_a_row_group_that_cannot_be_read_any_more_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "f", numbers(*range(100)), rows=50)
    listing = list_files(parquet(path))
    data = bytearray(path.read_bytes())
    data[4:40] = b"\xff" * 36
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"cannot read row group 0 of '{path}'"):
        listing.read(listing.groups[0], ["n"])
    with pytest.raises(DataError, match=f"cannot read row group 0 of '{path}'"):
        list(listing.batches(listing.groups[0], ["n"]))


def test_columns_have_types_that_spark_has(tmp_path: Path) -> None:
    table = pa.table(
        {
            "small": pa.array([250], pa.uint8()),
            "large": pa.array([2**64 - 1], pa.uint64()),
            "at": pa.array([1999], pa.timestamp("ns")),
            "clock": pa.array([5], pa.time32("ms")),
        }
    )
    listing = list_files(parquet(write(tmp_path / "f", table)))
    assert [str(kind) for kind in listing.schema.types] == [
        "int16", "decimal128(20, 0)", "timestamp[us]", "time64[us]",
    ]  # fmt: skip
    row = listing.read(listing.groups[0], listing.schema.names)
    assert row.column("small").to_pylist() == [250]
    assert row.column("large").to_pylist() == [2**64 - 1]
    assert row.column("at").cast(pa.int64()).to_pylist() == [1]
    assert row.column("clock").to_pylist() == [datetime.time(0, 0, 0, 5000)]


def test_times_that_python_does_not_have_are_no_bounds(tmp_path: Path) -> None:
    table = pa.table({"at": pa.array([0, 1 << 62], pa.timestamp("us")), "n": [1, 2]})
    listing = list_files(parquet(write(tmp_path / "f", table)))
    assert listing.groups[0].statistics["at"] == Statistics(null_count=0)
    assert listing.groups[0].statistics["n"] == Statistics(1, 2, 0)


class Pair(pa.ExtensionType):
    """A type with two columns in a file, of which Arrow's own questions know nothing."""

    def __init__(self) -> None:
        super().__init__(pa.struct([("low", pa.int64()), ("high", pa.int64())]), "outpace.pair")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, kind: pa.DataType, data: bytes) -> Pair:
        return cls()


def test_statistics_are_those_of_their_column_also_after_extension_types(tmp_path: Path) -> None:
    stored = pa.array([{"low": 1, "high": 2}], Pair().storage_type)
    inner = pa.array([{"pair": {"low": 3, "high": 4}}], pa.struct([("pair", stored.type)]))
    nested = inner.cast(pa.struct([("pair", Pair())]))
    pair = pa.ExtensionArray.from_storage(Pair(), stored)
    pa.register_extension_type(Pair())
    try:
        path = write(tmp_path / "f", pa.table({"pair": pair, "nested": nested, "n": [7]}))
        listing = list_files(parquet(path))
    finally:
        pa.unregister_extension_type("outpace.pair")
    assert listing.groups[0].statistics["n"] == Statistics(7, 7, 0)
    assert listing.schema.field("pair").type == stored.type
    rows = listing.read(listing.groups[0], ["pair"])
    assert rows.column("pair").to_pylist() == stored.to_pylist()
