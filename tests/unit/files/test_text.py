"""CSV and JSON lines: any cut gives all rows once, and a bad value is found with its place."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from outpace.errors import DataError, OutpaceError
from outpace.files import text_lines
from outpace.files.text import TextList, list_text, parse_schema
from outpace.files.text_parse import TextFormat

CSV, JSON = TextFormat.CSV, TextFormat.JSON
SCHEMA = parse_schema("ts bigint, kind string, price double")

Row = tuple[int | None, str | None, float | None]

CELLS = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])),
    st.none() | st.floats(allow_nan=False),
)


def csv_line(row: Row) -> str:
    ts, kind, price = row
    quoted = "" if kind is None else '"' + kind.replace('"', '""') + '"'
    return f"{'' if ts is None else ts},{quoted},{'' if price is None else repr(price)}"


def json_line(row: Row) -> str:
    return json.dumps(dict(zip(SCHEMA.names, row, strict=True)), ensure_ascii=False)


@contextmanager
def files(**contents: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in contents.items():
            (Path(folder) / name.replace("_", ".")).write_bytes(content)
        yield Path(folder)


@contextmanager
def blocks_of(size: int) -> Iterator[None]:
    before = text_lines.BLOCK_BYTES
    text_lines.BLOCK_BYTES = size  # type: ignore[misc]  # a test's own size
    try:
        yield
    finally:
        text_lines.BLOCK_BYTES = before  # type: ignore[misc]  # as above


def rows_of(listed: TextList) -> list[tuple[object, ...]]:
    batches = [batch for piece in listed.pieces for batch in listed.read(piece)]
    table = pa.Table.from_batches(batches, schema=listed.schema)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def error_of(format: TextFormat, content: bytes, schema: str | None = None) -> str:
    known = None if schema is None else parse_schema(schema)
    with files(rows_txt=content) as folder, pytest.raises(OutpaceError) as caught:
        rows_of(list_text(format, [str(folder / "rows.txt")], schema=known))
    return str(caught.value).replace(f"{folder}/", "")


def infinite(row: Row) -> bool:
    return row[2] is not None and abs(row[2]) == float("inf")


@examples(60)
@given(
    rows=st.lists(CELLS, min_size=1, max_size=30),
    piece=st.integers(1, 300),
    block=st.integers(1, 200),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    format=st.sampled_from([CSV, JSON]),
)
def test_any_cut_gives_all_rows_once(
    rows: list[Row], piece: int, block: int, end: str, last: bool, format: TextFormat
) -> None:
    rows = [row for row in rows if not (format is JSON and infinite(row))]
    lines = [csv_line(row) if format is CSV else json_line(row) for row in rows]
    head = "ts,kind,price" + end if format is CSV else ""
    text = head + end.join(lines) + (end if last else "")
    with files(rows_txt=text.encode()) as folder, blocks_of(block):
        listed = list_text(
            format,
            [str(folder / "rows.txt")],
            schema=SCHEMA,
            piece_bytes=max(piece, len(text) // 40),
        )
        assert rows_of(listed) == rows


@examples(40)
@given(
    before=st.lists(st.sampled_from(["", "7,a,1.5"]), max_size=40),
    after=st.integers(0, 20),
    piece=st.integers(20, 400),
    block=st.integers(1, 120),
)
def test_the_line_of_a_bad_value_is_the_line_of_an_editor(
    before: list[str], after: int, piece: int, block: int
) -> None:
    lines = ["ts,kind,price", *before, "8,b,cheap", *["9,c,2"] * after]
    with files(rows_txt="\n".join(lines).encode()) as folder, blocks_of(block):
        path = str(folder / "rows.txt")
        listed = list_text(CSV, [path], schema=SCHEMA, piece_bytes=piece)
        with pytest.raises(DataError) as caught:
            rows_of(listed)
    assert caught.value.message == "'cheap' is not of type double"
    assert f"rows.txt, line {len(before) + 2}, column price" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"1,a,2.5\n2,b,low\n", "'low' is not of type double\n  rows.txt, line 3, column price"),
        (b"1,a,2.5\n\n\n2,b\n", "expected 3 values, found 2\n  rows.txt, line 5"),
        (b"1,a,2.5\n2,b,3,4\n", "expected 3 values, found 4\n  rows.txt, line 3"),
        (b"1.5,a,2\n", "'1.5' is not of type bigint\n  rows.txt, line 2, column ts"),
        (b"9223372036854775808,a,2\n", "is not of type bigint\n  rows.txt, line 2, column ts"),
        (b"1,\xff,2\n", "the value is not UTF-8 text\n  rows.txt, line 2, column kind"),
        (b'1,"a\nb",2\n', "a quoted value does not end on its line\n  rows.txt, line 2"),
        (b'1,"a,2\n2,b,3\n', "a quoted value does not end on its line\n  rows.txt, line 2"),
    ],
)
def test_what_is_wrong_with_csv_is_told_with_its_place(content: bytes, said: str) -> None:
    found = error_of(CSV, b"ts,kind,price\n" + content, "ts bigint, kind string, price double")
    assert said in found
    assert found.startswith("[data] ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b'{"ts":1}\n\n{"ts":"x"}\n',
            "'\"x\"' is not of type bigint\n  rows.txt, line 3, column ts",
        ),
        (b'{"ts":1}\n{"ts":1.5}\n', "'1.5' is not of type bigint\n  rows.txt, line 2, column ts"),
        (b'{"day":"soon"}\n', "'\"soon\"' is not of type date\n  rows.txt, line 1, column day"),
        (b'{"ts":1}\n{"ts":}\n', "expecting value at character 7\n  rows.txt, line 2"),
        (b'{"ts":1}\n[1]\n', "the line is not a JSON object\n  rows.txt, line 2"),
        (b'{"ts":1}{"ts":2}\n', "extra data at character 9\n  rows.txt, line 1"),
        (b'{"ts":\n1}\n', "the line is not JSON: expecting value"),
        (b'{"kind":"\xff"}\n', "byte 10 of the line is not UTF-8\n  rows.txt, line 1"),
    ],
)
def test_what_is_wrong_with_json_is_told_with_its_place(content: bytes, said: str) -> None:
    assert said in error_of(JSON, content, "ts bigint, kind string, day date")


@pytest.mark.parametrize(
    ("format", "content", "said"),
    [
        (CSV, b"ts,price\n1,2\n2,low\n3,4\n", "rows.txt, line 3, column price"),
        (CSV, b"at,x\n2024-01-01 10:00:00,1\n2024-01-02,1\nsoon,1\n", "line 4, column at"),
        (CSV, b"ts,kind\n1,a\n2\n", "expected 2 values, found 1\n  rows.txt, line 3"),
        (CSV, b"ts,kind\n1,\xff\n", "not UTF-8 text\n  rows.txt, line 2, column kind"),
        (CSV, b"", "the file has no header"),
        (CSV, b"a,a\n1,2\n", "column 'a' is twice in the header\n  rows.txt, line 1"),
        (JSON, b'{"a":1}\n{"b":2,"a":"x"}\n', "another type than those of the lines before"),
        (JSON, b"", "the files have no rows to tell the columns from"),
        (JSON, b'{"a":1}\nnonsense\n', "the line is not JSON: expecting value at character 1"),
    ],
)
def test_types_that_cannot_be_told_are_refused(
    format: TextFormat, content: bytes, said: str
) -> None:
    assert said in error_of(format, content)


def test_types_are_told_from_the_values() -> None:
    header = "n,x,b,day,at,zoned,time,nothing,word\n"
    line = "1,2.5,true,2024-01-02,2024-01-02 03:04:05.25,2024-01-02T03:04:05Z,03:04:05,,a\n"
    with files(rows_csv=(header + line).encode()) as folder:
        schema = list_text(CSV, [str(folder)]).schema
    kinds = ["int64", "double", "bool", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]"]
    assert [str(kind) for kind in schema.types] == [*kinds, "time64[us]", "string", "string"]
    times = {"zoned": "2024-01-02T03:04:05Z", "naive": "2024-01-02 03:04:05.5"}
    value = {"n": 1, "x": 2.5, **times, "list": [1], "none": None}
    with files(rows_json=json.dumps(value).encode()) as folder:
        schema = list_text(JSON, [str(folder)]).schema
    by_name = {field.name: str(field.type) for field in schema}
    assert by_name == {
        "n": "int64",
        "x": "double",
        "zoned": "timestamp[us, tz=UTC]",
        "naive": "timestamp[us]",
        "list": "list<item: int64>",
        "none": "string",
    }


def test_named_types_go_before_told_ones() -> None:
    with files(rows_csv=b"ts,kind,price\n1,2,3\n") as folder:
        listed = list_text(CSV, [str(folder)], schema=parse_schema("price double, kind string"))
        assert rows_of(listed) == [(1, "2", 3.0)]
    with files(rows_json=b'{"ts":1}\n') as folder:
        listed = list_text(JSON, [str(folder)], schema=parse_schema("price double"))
        assert dict(zip(listed.schema.names, rows_of(listed)[0], strict=True)) == {
            "ts": 1,
            "price": None,
        }


def test_several_files_may_order_their_columns_differently() -> None:
    with files(a_csv=b"ts,x\n1,2\n", b_csv=b"x,ts\n4,3\n", c_csv=b"x,ts\n") as folder:
        assert rows_of(list_text(CSV, [str(folder)])) == [(1, 2), (3, 4)]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (b"ts\n1\n", "column 'price' is not in the header"),
        (b"ts,price,more\n1,2,3\n", "column 'more' is not in the first file"),
    ],
)
def test_files_must_have_the_same_columns(second: bytes, said: str) -> None:
    with files(a_csv=b"ts,price\n1,2\n", b_csv=second) as folder:
        with pytest.raises(DataError, match=said) as caught:
            list_text(CSV, [str(folder)])
        assert f"{folder}/b.csv, line 1" in str(caught.value)


def test_a_compressed_file_is_one_piece_and_still_names_lines() -> None:
    good = b"ts,price\n" + b"1,2.5\n" * 5_000
    with files(rows_csv_gz=gzip.compress(good)) as folder, blocks_of(1_000):
        path = str(folder / "rows.csv.gz")
        listed = list_text(CSV, [path], piece_bytes=100)
        assert len(listed.pieces) == 1
        assert len(rows_of(listed)) == 5_000
    with files(rows_csv_gz=gzip.compress(good + b"2,x\n")) as folder, blocks_of(1_000):
        with pytest.raises(DataError, match="'x' is not of type double") as caught:
            rows_of(list_text(CSV, [str(folder / "rows.csv.gz")]))
        assert "rows.csv.gz, line 5002, column price" in str(caught.value)


def test_a_damaged_compressed_file_is_named() -> None:
    content = gzip.compress(b"ts,price\n" + b"1,2.5\n" * 5_000)[:-20]
    with files(rows_csv_gz=content) as folder:
        with pytest.raises(DataError, match="cannot read") as caught:
            rows_of(list_text(CSV, [str(folder)]))
        assert "rows.csv.gz" in caught.value.message


def test_a_byte_order_mark_is_passed_over() -> None:
    with files(rows_csv=b"\xef\xbb\xbfts,x\r\n1,2\r\n") as folder:
        assert rows_of(list_text(CSV, [str(folder)])) == [(1, 2)]
    with files(rows_json=b'\xef\xbb\xbf{"ts":1}\n{"ts":2}\n') as folder:
        assert rows_of(list_text(JSON, [str(folder)])) == [(1,), (2,)]


def test_without_a_header_the_schema_names_the_columns() -> None:
    with files(rows_csv=b"1;2\n3;4\n") as folder:
        schema = parse_schema("ts bigint, x double")
        listed = list_text(CSV, [str(folder)], schema=schema, header=False, delimiter=";")
        assert rows_of(listed) == [(1, 2.0), (3, 4.0)]
        with pytest.raises(DataError, match="without a header"):
            list_text(CSV, [str(folder)], header=False)


def test_a_line_has_a_longest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "LINE_BYTES_MAX", 1 << 16)
    content = b"kind\n" + b"a" * 100_000 + b"\n"
    too_long = pytest.raises(DataError, match="a line is longer than")
    with files(rows_csv=content) as folder, blocks_of(1_000), too_long:
        list_text(CSV, [str(folder)], schema=parse_schema("kind string"))


def test_an_error_in_a_schema_shows_the_place() -> None:
    with pytest.raises(OutpaceError) as caught:
        parse_schema("ts bigint, kind strin")
    assert caught.value.span is not None
    assert "ts bigint, kind strin"[caught.value.span.start :] == "strin"
    with pytest.raises(OutpaceError, match="twice"):
        parse_schema("ts bigint, ts double")


@pytest.mark.parametrize("schema", [None, pa.schema([("ts", pa.int64())])], ids=["told", "named"])
@pytest.mark.parametrize(
    ("content", "said", "line"),
    [
        (b"null\n", "not a JSON object", 1),
        (b'{"ts": 1}\n  null\n', "not a JSON object", 2),
        (b'{"ts": 1}\n{"ts": [' + b"9" * 5000 + b"]}\n", "ts|digits", 2),
        (b'{"ts": 1}\n{"ts": ' + b"[" * 5000 + b"]" * 5000 + b"}\n", "nested too deeply", 2),
    ],
)
def test_lines_that_arrow_does_not_survive_are_told(
    tmp_path: Path, schema: pa.Schema | None, content: bytes, said: str, line: int
) -> None:
    path = tmp_path / "events.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said) as raised:
        rows_of(list_text(TextFormat.JSON, [str(path)], schema=schema))
    assert f"line {line}" in str(raised.value)


def test_a_header_that_is_no_csv_is_told(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_bytes(b"ts,x\r1,2\r")
    with pytest.raises(DataError, match=r"the header is not CSV\n.*events\.csv, line 1"):
        list_text(TextFormat.CSV, [str(path)])
