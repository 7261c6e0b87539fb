"""The type system: laws of the common type, and values that survive the way to Python and back."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import DataError
from outpace.pattern import types, values

KINDS = [
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
    pa.uint32(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(10, 2),
    pa.decimal128(38, 0),
    pa.string(), pa.large_string(), pa.binary(), pa.date32(), pa.timestamp("s"), pa.timestamp("us"),
    pa.timestamp("us", "UTC"), pa.duration("us"), pa.time64("us"), pa.list_(pa.int32()),
    pa.list_(pa.float64()), pa.map_(pa.string(), pa.int32()), pa.struct([("a", pa.int32())]),
]  # fmt: skip

_SUMMER = datetime.datetime(2024, 7, 1, 1, tzinfo=datetime.UTC)


@given(st.sampled_from(KINDS), st.sampled_from(KINDS))
def test_common_type_is_symmetric_and_holds_both(left: pa.DataType, right: pa.DataType) -> None:
    joined = types.common_type(left, right)
    assert joined == types.common_type(right, left)
    if joined is not None:
        assert types.common_type(joined, left) == joined
        assert values.converter(left, joined) is not None


@given(st.sampled_from(KINDS))
def test_common_type_with_itself_and_null(kind: pa.DataType) -> None:
    assert types.common_type(kind, kind) == kind
    assert types.common_type(kind, pa.null()) == kind


@pytest.mark.parametrize(
    ("left", "right", "joined"),
    [
        (pa.int8(), pa.uint8(), pa.int16()),
        (pa.uint8(), pa.uint16(), pa.uint16()),
        (pa.int64(), pa.uint64(), pa.decimal128(20, 0)),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.int16(), pa.float32(), pa.float32()),
        (pa.int32(), pa.decimal128(4, 2), pa.decimal128(12, 2)),
        (pa.decimal128(10, 2), pa.decimal128(8, 4), pa.decimal128(12, 4)),
        (pa.decimal128(10, 2), pa.float64(), pa.float64()),
        (pa.date32(), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("ms")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
        (pa.string(), pa.int32(), None),
        (pa.bool_(), pa.int32(), None),
    ],
)
def test_common_type(left: pa.DataType, right: pa.DataType, joined: pa.DataType | None) -> None:
    assert types.common_type(left, right) == joined


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, -5], pa.int8()),
        pa.array([1.5, None], pa.float32()),
        pa.array([Decimal("1.50"), None]),
        pa.array(["a", None], pa.large_string()),
        pa.array([b"a", None]),
        pa.array([datetime.date(2024, 1, 1), None]),
        pa.array([datetime.datetime(2024, 1, 1, 1), None], pa.timestamp("ms")),
        pa.array([_SUMMER, None], pa.timestamp("us", "Europe/Berlin")),
        pa.array([datetime.timedelta(seconds=1), None]),
        pa.array([[1, None], None, []], pa.list_(pa.int64())),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        pa.array([{"a": 1, "b": None}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ],
    ids=lambda column: str(column.type),
)  # fmt: skip
def test_values_survive_python(column: pa.Array) -> None:
    assert values.to_array(values.column_values(column), column.type).equals(column)
    assert types.is_supported(column.type)


def test_timestamps_with_a_zone_are_utc_in_python() -> None:
    """Aware datetimes of one zone compare by the clock on the wall, which goes back in autumn."""
    first = datetime.datetime(2024, 10, 27, 0, 30, tzinfo=datetime.UTC)
    column = pa.array(
        [first, first + datetime.timedelta(hours=1)], pa.timestamp("us", "Europe/Berlin")
    )
    earlier, later = values.column_values(column)
    assert earlier.tzinfo is datetime.UTC
    assert earlier < later
    assert values.local_time(earlier, column.type).hour == 2
    assert values.local_time(later, column.type).hour == 2


def test_nanoseconds_are_cut_to_microseconds() -> None:
    column = pa.array([1_999], pa.timestamp("ns"))
    assert values.column_values(column) == [datetime.datetime(1970, 1, 1, 0, 0, 0, 1)]


def test_dictionaries_count_as_their_values() -> None:
    column = pa.array(["a", "b", "a", None]).dictionary_encode()
    assert values.column_values(column) == ["a", "b", "a", None]
    assert types.type_name(column.type) == "varchar"


def test_unknown_zone_is_refused() -> None:
    with pytest.raises(DataError, match="time zone 'Mars/Olympus' is not known"):
        values.zone("Mars/Olympus")
