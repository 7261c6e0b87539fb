"""What an expression may do to a match: its errors have a place, and its work has bounds."""

import datetime

import pyarrow as pa
import pytest

import outpace as op
from outpace.pattern import values

TABLE = pa.table({"ts": [1, 2, 3], "s": ["a", "b", "c"], "x": [1.5, 1e300, float("nan")]})


def query(condition: str = "TRUE", measure: str = "A.ts") -> op.Query:
    return op.Query().order_by("ts").pattern("A").define(A=condition).measures(m=measure)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("CAST(repeat('9', ts * 5000) AS BIGINT) = 1", "cannot cast '99999"),
        ("CAST(x AS BIGINT) = 1", "cannot cast 1e+300 to bigint"),
        ("CAST(x AS DECIMAL(38, 0)) = 1", "1E+300') does not fit into decimal(38, 0)"),
        ("width_bucket(x, 1, 2, 3) = 1", "width_bucket needs numbers"),
        ("chr(55295 + ts) = 'a'", "55296 is no character"),
        ("INTERVAL '1' DAY * x > INTERVAL '1' DAY", "a date or interval is out of range"),
        ("year(from_unixtime(ts * -62135596800) AT TIME ZONE 'America/Lima') = 1", "outside of"),
        ("replace(repeat(s, 100000), s, repeat(s, 100000)) = s", "is too long"),
        ("repeat(s, 1000000) || s = s", "a value of length 1000001 is too long"),
        ("concat_ws(repeat(s, 900000), s, s, s) = s", "is too long"),
        ("array_join(ARRAY[s, s, s], repeat(s, 900000)) = s", "is too long"),
        ("lpad(s, 100000000) = s", "cannot be padded"),
        ("regexp_replace(repeat(s, 9000), s, repeat(s, 10000)) = s", "is too long"),
        ("regexp_replace(repeat(s, 20000), s, '') = s", "a text of 20000 characters is too long"),
        ("regexp_like(repeat(s, 1000000), '(a?){999}a{999}b')", "is too long for this regular"),
        ("regexp_extract(repeat(s, 1000000), '((a?){9}){90}b', 1) = s", "is too long for this"),
        ("levenshtein_distance(repeat(s, 9999), repeat(s, 9999)) = 0", "not supported"),
        ("s LIKE repeat(s, 20000)", "a pattern of LIKE has at most"),
    ],
)
def test_a_failure_in_a_condition_is_an_error_with_a_place(condition: str, message: str) -> None:
    with pytest.raises(op.DataError, match="define A, line 1, column") as refused:
        op.match(TABLE, query(condition))
    assert message in refused.value.message


@pytest.mark.parametrize(
    "measure", ["listagg(s, repeat('x', 1000000))", "CAST(repeat(s, 30) AS INTEGER)"]
)
def test_a_failure_in_a_measure_is_an_error_with_a_place(measure: str) -> None:
    pairs = op.Query().order_by("ts").pattern("A A").define(A="TRUE").measures(m=measure)
    with pytest.raises(op.DataError, match="measure m, line 1, column 1"):
        op.match(TABLE, pairs)


def test_a_failure_that_no_function_foresees_is_an_error_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from outpace.pattern.functions import text as functions_text

    def broken(*_: object) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(functions_text, "check_length", broken)
    with pytest.raises(op.DataError) as refused:
        op.match(TABLE, query("repeat(s, 2) = s"))
    assert refused.value.message == "repeat of 'a', 2 cannot be computed"
    assert op.match(TABLE, query("TRY(repeat(s, 2)) IS NULL")).num_rows == 3


def test_numbers_without_end_are_refused() -> None:
    for refused in (
        lambda: op.match(TABLE, query().within(10**30)),
        lambda: op.match(TABLE, query().limit(10**30)),
        lambda: query().within(1.5),  # type: ignore[arg-type]
        lambda: query().limit("3"),  # type: ignore[arg-type]
        lambda: op.match(TABLE, query().define(A=op.col("s") == op.lit("\ud800"))),
        lambda: op.match(TABLE, query("TIMESTAMP '2020-01-01 00:00:00' AT TIME ZONE '+9999' > ts")),
    ):
        with pytest.raises(op.OutpaceError):
            refused()
    assert op.match(TABLE, query("round(x, -2) > 1e299")).num_rows == 1


def test_texts_too_long_to_be_kept_are_compared_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = pa.table({"ts": range(40), "s": ["ab"] * 40})
    monkeypatch.setattr(values, "MOST_TEXT", 1 << 20)
    assert op.match(table, query("repeat(s, 50000) = s")).num_rows == 0
    with pytest.raises(op.DataError, match="too long to be kept"):
        op.match(table, query(measure="repeat(s, 50000)"))


def test_arrays_too_long_to_be_kept_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_TEXT", 8 * 100)
    table = pa.table({"ts": range(20), "s": ["a"] * 20})
    rows = op.Query().order_by("ts").pattern("A+").define(A="TRUE").all_rows_per_match()
    for measure in ("array_agg(s)", "split(repeat('a', 20), s)"):
        with pytest.raises(op.DataError, match="too long to be kept"):
            op.match(table, rows.measures(m=measure))


def test_regular_expressions_take_time_in_proportion_to_the_text() -> None:
    table = pa.table({"ts": [1, 2], "s": ["a" * 100, "a" * 100_000 + "b"]})
    assert op.match(table, query("REGEXP_LIKE(s, '^(a+)+$')")).num_rows == 1
    assert op.match(table, query("REGEXP_LIKE(repeat('a', 100) || 'b', '^(a+)+$')")).num_rows == 0
    assert op.match(table, query("s LIKE '" + "%a" * 60 + "%c'")).num_rows == 0
    assert (
        op.match(table, query("s LIKE left(repeat('%a', ts * 300), 600) || '_%_b'")).num_rows == 1
    )


def test_expressions_with_many_parts_are_searched_row_by_row() -> None:
    table = pa.table({"ts": [1, 2, 3], "s": ["a" * 999 + "b", "a" * 900 + "b", None]})
    assert op.match(table, query("REGEXP_LIKE(s, '^(a?){999}a{999}b')")).num_rows == 1
    assert op.match(table, query("regexp_extract(s, 'a{999}(a?){999}(b)', 2) = 'b'")).num_rows == 1


def test_many_characters_are_trimmed_in_linear_time() -> None:
    table = pa.table({"ts": [1], "s": ["bab" + "b" * 300_000]})
    many = "repeat('c', 300000) || 'b'"
    for function, left in (("trim", 1), ("ltrim", 300_002), ("rtrim", 2)):
        assert op.match(table, query(f"length({function}(s, {many})) = {left}")).num_rows == 1
        assert op.match(table, query(f"{function}(repeat('b', 40), {many}) = ''")).num_rows == 1


def test_bytes_that_are_no_text_are_refused() -> None:
    binary = pa.array([b"a", b"\xff"])
    text = pa.Array.from_buffers(pa.string(), 2, binary.buffers())
    with pytest.raises(op.DataError, match="a text of a column is not UTF-8"):
        op.match(pa.table({"ts": [1, 2], "s": text}), query("upper(s) = 'A'"))


def test_nanoseconds_are_cut_off_where_something_is_computed() -> None:
    stamps = pa.array([1_990, 2_010, 2_020], pa.timestamp("ns"))
    table = pa.table({"ts": stamps, "k": stamps.dictionary_encode(), "a": [[s] for s in range(3)]})
    rising = op.Query().order_by("ts").pattern("A B").define(B="ts > A.ts")
    found = op.match(
        table, rising.measures(first="A.ts", k="B.k", last="MAX(ts)", gap="B.ts - A.ts")
    )
    assert found.schema.types == [
        pa.timestamp("ns"),
        pa.timestamp("ns"),
        pa.timestamp("us"),
        pa.duration("us"),
    ]
    assert found.column("first").cast(pa.int64()).to_pylist() == [1_990]
    assert found.column("last").cast(pa.int64()).to_pylist() == [2]
    assert found.column("gap").to_pylist() == [datetime.timedelta(microseconds=1)]


def test_a_timestamp_of_few_digits_is_cut() -> None:
    table = pa.table({"ts": pa.array([1_999_999], pa.timestamp("us"))})
    found = op.match(table, query(measure="CAST(ts AS TIMESTAMP(3))"))
    assert found.column("m").cast(pa.int64()).to_pylist() == [1_999_000]


def test_a_zone_that_differs_by_seconds_is_read_and_written_with_them() -> None:
    noon = datetime.datetime(1850, 6, 1, 12)
    table = pa.table({"ts": pa.array([noon], pa.timestamp("us", "Europe/Berlin"))})
    found = op.match(table, query("second(ts) = 28", "CAST(ts AS VARCHAR)"))
    assert found["m"].to_pylist() == ["1850-06-01 12:53:28+00:53:28"]


def test_a_time_that_its_zone_cannot_show_is_refused() -> None:
    late = datetime.datetime(9999, 12, 31, 15, 30)
    table = pa.table({"ts": pa.array([late], pa.timestamp("us", "UTC"))})
    with pytest.raises(op.DataError, match="outside of the years 1 to 9999 in that time zone"):
        op.match(table, query(measure="ts AT TIME ZONE 'Asia/Tokyo'"))
