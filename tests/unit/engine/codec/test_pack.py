"""Blocks of any row groups in any number of buckets give together what the table gives."""

from __future__ import annotations

import datetime
import math
import subprocess
import sys
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from outpace.engine.codec.pack import Packer, unpack
from outpace.engine.divide.groups import PartitionWork
from outpace.engine.kernels import hashing
from outpace.engine.match.bits import BitTask, bit_columns, with_bits
from outpace.engine.match.task import kept_columns, prepare
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.buckets import key_buckets, key_hashes
from outpace.engine.rows.narrow import narrow, widen
from outpace.engine.rows.partition import key_codes, key_tuples
from outpace.hosts.local.table import match
from outpace.pattern.query import Query

PATTERNS = (
    "A B", "A+ B?", "A -> B", "A ->> B", "A -> B -> C", "A -> B+ -> C", "A -> !B -> C", "A?",
    "A", "^ A -> B", "(A | B) -> C?", "A B* C", "A -> !B", "PERMUTE(A, B)", "A? -> PERMUTE(B, C)",
    "A -> B !C", "A -> (B | PERMUTE(A, C))", "A{2} -> B",
)  # fmt: skip

DEFINITIONS = (
    {"A": "kind = 'a'", "B": "kind = 'b'", "C": "kind = 'c'"},
    {"A": "kind = 'a'", "B": "kind = 'b' AND v > A.v", "C": "v > AVG(A.v) AND kind <> 'd'"},
    {"A": "kind <> PREV(kind)", "B": "v < 2.5 OR v IS NULL", "C": "kind IN ('c', NULL)"},
    {"A": "v > 1", "B": "10 / v > 2", "C": "CLASSIFIER() = 'C' AND v = 1"},
    {"B": "NOT (v > 2)", "C": "kind = 'c' AND LAST(v) > FIRST(v)"},
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    size = draw(st.integers(0, 40))

    def column(values: st.SearchStrategy[object], kind: pa.DataType) -> pa.Array:
        return pa.array(draw(st.lists(values, min_size=size, max_size=size)), kind)

    key = st.sampled_from(["x", "y", "zebra", "", None])
    odd = st.sampled_from([0.0, -0.0, float("nan"), 1.5, None])
    return pa.table(
        {
            "ts": column(st.integers(0, 60), pa.int64()),
            "key": column(key, pa.string()),
            "odd": column(odd, pa.float64()),
            "kind": column(st.sampled_from([*"abcd", None]), pa.string()),
            "v": column(st.integers(1, 4) | st.none(), pa.float64()),
        }
    )


@st.composite
def queries(draw: st.DrawFn) -> Query:
    pattern = draw(st.sampled_from(PATTERNS))
    chosen = draw(st.sampled_from(DEFINITIONS))
    keys = draw(st.sampled_from([("key",), ("odd",), ("key", "odd")]))
    query = (
        Query("q")
        .partition_by(*keys)
        .order_by("ts")
        .pattern(pattern)
        .define({name: text for name, text in chosen.items() if name in pattern})
        .measures(n="COUNT(*)", s="FIRST(ts)", e="LAST(v)", m="MATCH_NUMBER()")
    )
    if "A.v" in repr(chosen) and "A" not in pattern:
        query = query.pattern("A -> B -> C")
    if draw(st.booleans()) or pattern == "A -> !B":
        query = query.within(draw(st.integers(1, 30)))
    rows = draw(st.sampled_from(["one", "all", "unmatched"]))
    if rows == "all":
        return query.all_rows_per_match()
    if rows == "unmatched" and "!" not in pattern:
        return query.all_rows_per_match(unmatched=True)
    return query


def packing(bits: BitTask, buckets: int) -> tuple[Packer, PartitionWork]:
    """Return what packs rows, and what is done with those of a bucket."""
    bound = bits.task.bound
    columns = kept_columns(bits.task, bound.schema)
    packer = Packer(bound.partition_by, columns, buckets, bits)
    spec = OperatorSpec(bound.query, bound.schema, bits.task)
    return packer, PartitionWork(spec, bound.partition_by)


def in_blocks(table: pa.Table, bits: BitTask, cuts: list[int], buckets: int) -> pa.Table:
    """Match a table in pieces, one bucket after the other."""
    packer, work = packing(bits, buckets)
    edges = [0, *sorted(cut % (table.num_rows + 1) for cut in cuts), table.num_rows]
    stored: dict[int, list[tuple[int, pa.Buffer]]] = {}
    for position, (first, stop) in enumerate(pairwise(edges)):
        piece = table.slice(first, stop - first)
        for row in packer.pack(piece, position).to_pylist():
            block = pa.py_buffer(row["block"])
            stored.setdefault(row["bucket"], []).insert(0, (row["position"], block))
    schema = bits.task.bound.schema
    found = [work.whole(unpack(blocks, schema)) for blocks in stored.values()]
    return pa.concat_tables([bits.task.bound.output.empty_table(), *found])


def as_rows(table: pa.Table) -> list[str]:
    """Return the rows in any order; zero and negative zero are one key, either may show it."""
    rows = [{n: v + 0.0 if v == 0.0 else v for n, v in r.items()} for r in table.to_pylist()]
    return sorted(repr(sorted(row.items())) for row in rows)


@examples(60)
@given(
    table=tables(),
    query=queries(),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    buckets=st.integers(1, 5),
)
def test_blocks_give_what_the_table_gives(
    table: pa.Table, query: Query, cuts: list[int], buckets: int
) -> None:
    bits = with_bits(prepare(query, table.schema))
    expected = as_rows(match(table, query))
    assert as_rows(in_blocks(table, bits, cuts, buckets)) == expected
    packer, work = packing(bits, buckets)
    selected = [packer.select(table, bucket) for bucket in range(buckets)]
    found = [work.whole(rows) for rows in selected if rows.num_rows]
    assert as_rows(pa.concat_tables([bits.task.bound.output.empty_table(), *found])) == expected


def test_many_variables_have_bits_in_several_columns() -> None:
    names = [f"V{number}" for number in range(20)]
    table = pa.table({"ts": range(200), "key": [0, 1] * 100, "t": [n % 20 for n in range(200)]})
    query = (
        Query("q")
        .partition_by("key")
        .order_by("ts")
        .pattern(" -> ".join(names))
        .define({name: f"t >= {number - 1}" for number, name in enumerate(names)})
        .measures(s="FIRST(ts)", e="LAST(ts)")
    )
    bits = with_bits(prepare(query, table.schema))
    assert len(bits.predicates) == 20
    assert "t" not in bits.task.bound.columns
    expected = match(table, query)
    assert expected.num_rows > 0
    assert as_rows(in_blocks(table, bits, [7, 90], 2)) == as_rows(expected)


@pytest.mark.parametrize(
    ("pattern", "definitions", "dropped"),
    [
        ("A -> B", {"A": "t = 1", "B": "t = 2 AND v > A.v"}, True),
        ("A B", {"A": "t = 1", "B": "t = 2"}, False),
        ("A -> B", {"A": "t = 1"}, False),
        ("A -> B", {"A": "t = 1", "B": "t > PREV(t)"}, False),
        ("A -> B", {"A": "t = 1", "B": "v > A.v"}, False),
        ("A?", {"A": "t = 1"}, False),
        ("PERMUTE(A, B)", {"A": "t = 1", "B": "t = 2"}, False),
        ("^ A -> B", {"A": "t = 1", "B": "t = 2"}, False),
    ],
)
def test_rows_are_dropped_where_nothing_looks_at_them(
    pattern: str, definitions: dict[str, str], dropped: bool
) -> None:
    schema = pa.schema([("ts", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
    query = Query("q").order_by("ts").pattern(pattern).define(definitions).measures(n="COUNT(*)")
    assert with_bits(prepare(query, schema)).drop_unused is dropped


def test_bits_that_save_nothing_are_not_computed() -> None:
    schema = pa.schema([("ts", pa.int64()), ("v", pa.int64())])
    query = Query("q").order_by("ts").pattern("A B").define(A="v = 1").measures(v="SUM(v)")
    bits = with_bits(prepare(query, schema))
    assert bits.predicates == ()
    assert bits.task.bound.columns == ("ts", "v")


def test_a_condition_that_fails_on_other_rows_stays_behind_its_guard() -> None:
    """The division fails where v is zero, which AND never looks at: before or after packing."""
    table = pa.table({"ts": [1, 2], "key": [1, 1], "t": [1, 2], "v": [0, 5]})
    query = (
        Query("q").partition_by("key").order_by("ts").pattern("A -> B").measures(n="COUNT(*)")
    ).define(A="t = 1", B="t = 2 AND A.t = 1 AND 10 / v = 2")
    bits = with_bits(prepare(query, table.schema))
    assert as_rows(in_blocks(table, bits, [], 1)) == as_rows(match(table, query))
    assert match(table, query).num_rows == 1


#: NaNs of different bits, zeros of both signs.
ODD = np.array([math.nan, 0.0, -0.0, math.nan, 1.0])
ODD.view(np.uint64)[0] = 0xFFF8000000000001

KEYS = (
    pa.array(ODD),
    pa.array(ODD.astype(np.float32)),
    pa.DictionaryArray.from_arrays(pa.array(range(5)), pa.array(ODD)),
    pa.StructArray.from_arrays([pa.array(ODD)], ["x"]),
    pa.array([5, -1, None, 5, 2**40]),
    pa.array([5, 1, 0, None], pa.uint8()),
    pa.array([2**64 - 1, 0, None], pa.uint64()),
    pa.array(["a", "", None, "a", "längere"]),
    pa.array(["a", "b", "a", None]).dictionary_encode(),
    pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", "b", "a"])),
    pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", None, "a"])),
    pa.array([b"x", b"", None], pa.large_binary()),
    pa.array(["x", "a long string that is not inlined", None], pa.string_view()),
    pa.array([b"ab", b"cd", None, b"ab"], pa.binary(2)),
    pa.array([0.0, -0.0, float("nan"), None, float("nan"), 1.0]),
    pa.array([0.0, -0.0, 1.5, None], pa.float32()),
    pa.array([np.float16(0.0), np.float16(-0.0), np.float16("nan")], pa.float16()),
    pa.array([True, False, None, True]),
    pa.array([Decimal("1.50"), Decimal("-1.50"), None, Decimal("1.50")]),
    pa.array([datetime.date(2026, 1, 1), None, datetime.date(1969, 1, 1)]),
    pa.array([datetime.datetime(2026, 1, 1), None, datetime.datetime(2026, 1, 1)]),
    pa.array([datetime.time(1), None, datetime.time(1)]),
    pa.array([{"a": 1, "b": -0.0}, {"a": 1, "b": 0.0}, None, {"a": None, "b": 0.0}]),
    pa.array([[1, 2], [], None, [1, 2]]),
    pa.nulls(3),
)


@pytest.mark.parametrize("column", KEYS, ids=lambda column: str(column.type))
def test_equal_keys_are_in_one_bucket(column: pa.Array) -> None:
    """Equal as partitions have it; slices have the same hashes as the whole."""
    codes, _ = key_codes([pa.chunked_array([column])])
    hashes = key_hashes([column])
    assert len({(int(c), int(h)) for c, h in zip(codes, hashes, strict=True)}) == codes.max() + 1
    assert len(set(hashes.tolist())) == codes.max() + 1
    # A stream knows keys by their Python values.
    assert len(set(key_tuples(pa.table({"key": column})))) == codes.max() + 1
    for row in range(len(column)):
        assert key_hashes([column.slice(row, 1)])[0] == hashes[row]
    assert key_hashes([column.slice(0, 0)]).tolist() == []


def test_keys_of_several_columns_depend_on_each() -> None:
    one, two = pa.array([1, 1, 2, 2, None]), pa.array(["a", "b", "a", "b", None])
    assert len(set(key_hashes([one, two]).tolist())) == 5
    assert len(set(key_hashes([two, one]).tolist())) == 5


def test_buckets_are_the_same_in_another_process() -> None:
    program = (
        "import pyarrow as pa; from outpace.engine.rows.buckets import key_buckets;"
        "print(key_buckets([pa.array(['a', None, 'ü']), pa.array([1.5, 2.0, None])], 97).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    here = key_buckets([pa.array(["a", None, "ü"]), pa.array([1.5, 2.0, None])], 97)
    assert done.stdout.decode().strip() == str(here.tolist())


def test_buckets_are_filled_evenly() -> None:
    for column in (pa.array(range(10_000)), pa.array([f"key{n}" for n in range(10_000)])):
        counts = np.bincount(key_buckets([column], 16), minlength=16)
        assert counts.min() > 500
        assert counts.max() < 750


@given(st.lists(st.binary(max_size=12), max_size=20))
def test_compiled_hashes_are_those_of_the_twins(values: list[bytes]) -> None:
    data = np.frombuffer(b"".join(values), np.uint8)
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    words, twin_words = np.zeros(len(values), np.uint64), np.zeros(len(values), np.uint64)
    hashes, twin_hashes = words.copy(), words.copy()
    hashing.hash_bytes(offsets, data, words)
    hashing.add_words(words, hashes)
    for row, value in enumerate(values):
        word = 0x9E3779B97F4A7C15
        for byte in value:
            word = (word ^ byte) * 0x100000001B3 % 2**64
        twin_words[row] = word
        mixed = (word + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        twin_hashes[row] = mixed ^ mixed >> 31
    assert words.tolist() == twin_words.tolist()
    assert hashes.tolist() == twin_hashes.tolist()


@given(
    values=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300), max_size=6),
    kind=st.sampled_from(
        [pa.int64(), pa.timestamp("us", "UTC"), pa.duration("ns"), pa.time64("us")]
    ),
)
def test_narrow_columns_widen_to_what_they_were(values: list[int], kind: pa.DataType) -> None:
    column = pa.array(values, pa.int64()).view(kind)
    field, narrowed = narrow("x", column)
    assert widen(field, narrowed, kind).equals(column)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([-128, 127], pa.int8()), pa.int8()),
        (pa.array([-(2**31), 2**31 - 1], pa.int32()), pa.int32()),
        (pa.array([-(2**31), 2**31 - 1], pa.int64()), pa.uint32()),
        (pa.array([2**64 - 1, 2**64 - 2], pa.uint64()), pa.uint8()),
        (pa.array([-(2**63), 2**63 - 1]), pa.int64()),
        (pa.array([1, None]), pa.int64()),
        (pa.array([1 / 3]), pa.float64()),
        (pa.array([datetime.date(2026, 1, 1)]), pa.uint8()),
    ],
)
def test_columns_become_as_narrow_as_their_range(column: pa.Array, kind: pa.DataType) -> None:
    field, narrowed = narrow("x", column)
    assert narrowed.type == kind == field.type
    assert widen(field, narrowed, column.type).equals(column)
    sliced = narrow("x", column.slice(1))
    assert widen(*sliced, column.type).equals(column.slice(1))


def test_bits_of_no_rows() -> None:
    assert bit_columns((), {}, 0) == {}
