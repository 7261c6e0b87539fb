import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import PatternSyntaxError
from outpace.pattern.notation.parse_type import parse_type, print_type


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("boolean", pa.bool_()),
        ("tinyint", pa.int8()),
        ("smallint", pa.int16()),
        ("int", pa.int32()),
        ("INTEGER", pa.int32()),
        ("bigint", pa.int64()),
        ("long", pa.int64()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("double precision", pa.float64()),
        ("string", pa.string()),
        ("varchar", pa.string()),
        ("varchar(10)", pa.string()),
        ("character varying(3)", pa.string()),
        ("char(1)", pa.string()),
        ("binary", pa.binary()),
        ("varbinary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us")),
        ("timestamp(3)", pa.timestamp("ms")),
        ("timestamp(0) without time zone", pa.timestamp("s")),
        ("timestamp(9)", pa.timestamp("ns")),
        ("timestamp with time zone", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal", pa.decimal128(38, 0)),
        ("decimal(10)", pa.decimal128(10, 0)),
        ("numeric(10, 2)", pa.decimal128(10, 2)),
        ("array(int)", pa.list_(pa.int32())),
        ("array<int>", pa.list_(pa.int32())),
        ("int[]", pa.list_(pa.int32())),
        ("map(varchar, array(int))", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ("row(a int, \"b c\" varchar)", pa.struct([("a", pa.int32()), ("b c", pa.string())])),
        ("struct<a: int, b: struct<c: date>>",
         pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.date32())]))])),
    ],
)  # fmt: skip
def test_reads_types(text, kind):
    assert parse_type(text) == kind


KINDS = st.recursive(
    st.sampled_from(
        [pa.bool_(), pa.int8(), pa.uint64(), pa.float32(), pa.string(), pa.date32()]
        + [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")]
        + [pa.decimal128(5, 2), pa.duration("us"), pa.binary()]
    ),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.tuples(inner, inner).map(lambda pair: pa.map_(*pair)),
        st.dictionaries(st.sampled_from(["a", "b c", "order"]), inner, min_size=1).map(
            lambda members: pa.struct(list(members.items()))
        ),
    ),
    max_leaves=5,
)


@given(KINDS)
def test_printed_types_read_back(kind):
    assert parse_type(print_type(kind)) == kind


@pytest.mark.parametrize(
    "text",
    ["", "foo", "decimal(39)", "decimal(5, 6)", "decimal(0)", "timestamp(10)", "array(int", "row()",
     "int int", "varchar(0)", "map(int)", "array(" * 5_000, "1", "decimal(1.5)"],
)  # fmt: skip
def test_bad_types_are_refused(text):
    with pytest.raises(PatternSyntaxError):
        parse_type(text)
