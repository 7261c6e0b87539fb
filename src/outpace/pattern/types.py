"""The type system: which Arrow types expressions know, and which type two of them share.

Guarantees: `common_type` is symmetric (of two time zones it takes the left), and never loses a
value except for what SQL accepts: a 64-bit integer or a decimal next to a double becomes a double.
Dictionary columns count as their values, and times in microseconds, whatever their unit.
"""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa

from outpace.pattern.expression import Scalar

#: Digits that an integer of a type can have, which is the precision of the decimal that holds it.
_DIGITS = {
    pa.int8(): 3,
    pa.int16(): 5,
    pa.int32(): 10,
    pa.int64(): 19,
    pa.uint8(): 3,
    pa.uint16(): 5,
    pa.uint32(): 10,
    pa.uint64(): 20,
}
SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_UNITS = ("s", "ms", "us", "ns")
MAX_PRECISION = 38
TIMESTAMP = pa.timestamp("us")
INTERVAL = pa.duration("us")


def value_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the values: a dictionary's values, else the type itself.

    Examples
    --------
    >>> value_type(pa.dictionary(pa.int32(), pa.string()))
    DataType(string)
    """
    if pa.types.is_dictionary(data_type):
        return value_type(data_type.value_type)
    return data_type


def computed_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type with which expressions compute.

    It has no dictionaries, times in microseconds, and arrays of any length.

    Examples
    --------
    >>> computed_type(pa.timestamp("ns", "UTC"))
    TimestampType(timestamp[us, tz=UTC])
    >>> computed_type(pa.list_(pa.duration("s")))
    ListType(list<item: duration[us]>)
    >>> computed_type(pa.list_(pa.int64(), 2))
    ListType(list<item: int64>)
    """
    kind = value_type(data_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return INTERVAL
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_date(kind):
        return pa.date32()
    if is_list(kind):
        item = computed_type(kind.value_type)
        fits = item == kind.value_type and not pa.types.is_fixed_size_list(kind)
        return kind if fits else pa.list_(item)
    if pa.types.is_map(kind):
        parts = computed_type(kind.key_type), computed_type(kind.item_type)
        return kind if parts == (kind.key_type, kind.item_type) else pa.map_(*parts)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(computed_type(field.type)) for field in kind])
    return kind


def is_supported(data_type: pa.DataType) -> bool:
    """Say whether columns of this type can be used in expressions."""
    kind = value_type(data_type)
    if is_list(kind):
        return is_supported(kind.value_type)
    if pa.types.is_map(kind):
        return is_supported(kind.key_type) and is_supported(kind.item_type)
    if pa.types.is_struct(kind):
        return all(is_supported(field.type) for field in kind)
    return (
        pa.types.is_null(kind)
        or pa.types.is_boolean(kind)
        or is_numeric(kind)
        or is_string(kind)
        or is_binary(kind)
        or is_temporal(kind)
    )


def is_integer(data_type: pa.DataType) -> bool:
    """Say whether values are integers."""
    return data_type in _DIGITS


def is_floating(data_type: pa.DataType) -> bool:
    """Say whether values are floats (32 or 64 bits)."""
    return bool(pa.types.is_float32(data_type) or pa.types.is_float64(data_type))


def is_decimal(data_type: pa.DataType) -> bool:
    """Say whether values are decimals of at most 38 digits."""
    return bool(pa.types.is_decimal(data_type)) and data_type.precision <= MAX_PRECISION


def is_numeric(data_type: pa.DataType) -> bool:
    """Say whether values are numbers."""
    return is_integer(data_type) or is_floating(data_type) or is_decimal(data_type)


def is_string(data_type: pa.DataType) -> bool:
    """Say whether values are text."""
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_string_view(data_type)
    )


def is_binary(data_type: pa.DataType) -> bool:
    """Say whether values are bytes."""
    return bool(
        pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_binary_view(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )


def is_list(data_type: pa.DataType) -> bool:
    """Say whether values are arrays."""
    return bool(
        pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_fixed_size_list(data_type)
    )


def is_instant(data_type: pa.DataType) -> bool:
    """Say whether values are dates or timestamps."""
    return bool(pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def is_temporal(data_type: pa.DataType) -> bool:
    """Say whether values are dates, times, timestamps or intervals."""
    return is_instant(data_type) or bool(
        pa.types.is_time(data_type) or pa.types.is_duration(data_type)
    )


def is_ordered(data_type: pa.DataType) -> bool:
    """Say whether `<` and `min` make sense."""
    if is_list(data_type):
        return is_ordered(data_type.value_type)
    return not (pa.types.is_map(data_type) or pa.types.is_struct(data_type))


def integer_range(data_type: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest integer of a type.

    Examples
    --------
    >>> integer_range(pa.uint8())
    (0, 255)
    """
    bits = data_type.bit_width
    if data_type in SIGNED:
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1


def as_decimal(data_type: pa.DataType) -> pa.DataType:
    """Return the decimal type that holds all values of an integer or decimal type."""
    return pa.decimal128(_DIGITS[data_type], 0) if is_integer(data_type) else data_type


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """Return a decimal type, with precision and scale cut to what fits into 38 digits."""
    return pa.decimal128(max(1, min(MAX_PRECISION, precision)), min(MAX_PRECISION, scale))


def literal_type(value: Scalar) -> pa.DataType:
    """Return the type of a literal, as SQL gives it.

    Examples
    --------
    >>> literal_type(1), literal_type(1 << 40), literal_type(decimal.Decimal("1.50"))
    (DataType(int32), DataType(int64), Decimal128Type(decimal128(3, 2)))
    """
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return _integer_literal_type(value)
        case float():
            return pa.float64()
        case decimal.Decimal():
            return _decimal_literal_type(value)
        case str():
            return pa.string()
        case bytes():
            return pa.binary()
        case datetime.datetime():
            return pa.timestamp("us", tz="UTC") if value.tzinfo else TIMESTAMP
        case datetime.date():
            return pa.date32()
        case datetime.timedelta():
            return INTERVAL


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type to which both can be turned without an explicit cast, or None.

    Examples
    --------
    >>> common_type(pa.int32(), pa.float64()), common_type(pa.int32(), pa.string())
    (DataType(double), None)
    """
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if is_numeric(left) and is_numeric(right):
        return _common_number(left, right)
    if is_string(left) and is_string(right):
        large = pa.types.is_large_string(left) or pa.types.is_large_string(right)
        return pa.large_string() if large else pa.string()
    if is_binary(left) and is_binary(right):
        large = pa.types.is_large_binary(left) or pa.types.is_large_binary(right)
        return pa.large_binary() if large else pa.binary()
    if is_temporal(left) and is_temporal(right):
        return _common_temporal(left, right)
    return _common_nested(left, right)


def type_name(data_type: pa.DataType) -> str:
    """Return the type as SQL calls it, for messages.

    Examples
    --------
    >>> type_name(pa.int64()), type_name(pa.decimal128(10, 2)), type_name(pa.list_(pa.string()))
    ('bigint', 'decimal(10, 2)', 'array(varchar)')
    """
    kind = value_type(data_type)
    if is_string(kind):
        return "varchar"
    if is_binary(kind):
        return "varbinary"
    if is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp with time zone" if kind.tz else "timestamp"
    if pa.types.is_duration(kind):
        return "interval"
    if pa.types.is_date(kind):
        return "date"
    if is_list(kind):
        return f"array({type_name(kind.value_type)})"
    if pa.types.is_map(kind):
        return f"map({type_name(kind.key_type)}, {type_name(kind.item_type)})"
    if pa.types.is_struct(kind):
        return "row(" + ", ".join(f"{f.name} {type_name(f.type)}" for f in kind) + ")"
    return _SQL_NAMES.get(kind, str(kind))


_SQL_NAMES = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double",
}


def _integer_literal_type(value: int) -> pa.DataType:
    for candidate in (pa.int32(), pa.int64(), pa.uint64()):
        low, high = integer_range(candidate)
        if low <= value <= high:
            return candidate
    return pa.decimal128(MAX_PRECISION, 0)


def _decimal_literal_type(value: decimal.Decimal) -> pa.DataType:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return pa.float64()
    scale = max(0, -exponent)
    return decimal_type(max(len(digits) + max(0, exponent), scale), scale)


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if is_floating(left) or is_floating(right):
        narrow = all(
            pa.types.is_float32(kind) or (is_integer(kind) and kind.bit_width <= 16)
            for kind in (left, right)
        )
        return pa.float32() if narrow else pa.float64()
    if is_integer(left) and is_integer(right):
        lows, highs = zip(integer_range(left), integer_range(right), strict=True)
        for kind in SIGNED if min(lows) < 0 else _UNSIGNED:
            low, high = integer_range(kind)
            if low <= min(lows) and high >= max(highs):
                return kind
    first, second = as_decimal(left), as_decimal(right)
    scale = max(first.scale, second.scale)
    whole = max(first.precision - first.scale, second.precision - second.scale)
    return decimal_type(whole + scale, scale)


def _finer_unit(left: str, right: str) -> str:
    return max(left, right, key=_UNITS.index)


def _common_temporal(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if pa.types.is_duration(left) and pa.types.is_duration(right):
        return pa.duration(_finer_unit(left.unit, right.unit))
    if pa.types.is_time(left) and pa.types.is_time(right):
        return pa.time64("us")
    if not (is_instant(left) and is_instant(right)):
        return None
    if pa.types.is_date(left) and pa.types.is_date(right):
        return pa.date32()
    if pa.types.is_date(left) or pa.types.is_date(right):
        stamp = right if pa.types.is_date(left) else left
        # A date says nothing about a zone, so it only meets timestamps without one.
        return None if stamp.tz else stamp
    if (left.tz is None) != (right.tz is None):
        return None
    return pa.timestamp(_finer_unit(left.unit, right.unit), tz=left.tz)


def _common_nested(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if is_list(left) and is_list(right):
        item = common_type(left.value_type, right.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(left) and pa.types.is_map(right):
        key = common_type(left.key_type, right.key_type)
        item = common_type(left.item_type, right.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    return None
