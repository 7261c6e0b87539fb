"""Values in plain Python: how columns become them, and how one type of value becomes another.

A timestamp with a zone is an aware datetime in UTC (the zone is part of the type), a timestamp
without one is naive, an interval is a timedelta, a map is a dict. Nanoseconds are cut off where
something is computed: `computed` does it to columns. `converter` gives what CAST does: a value
that does not fit raises `DataError`.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import struct
from collections.abc import Callable, Iterable
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import DataError
from outpace.pattern import types

#: Wide enough for a product of two 38-digit decimals before it is rounded to its type.
CONTEXT = decimal.Context(prec=80, rounding=decimal.ROUND_HALF_UP)
_BEYOND_INTEGERS = 1 << 65

#: Times and numbers that count events lie between this, excluded, and its negative: two of them can
#: be added in 64 bits.
TIME_LIMIT = 1 << 62

#: A text or array longer than this is not made: no value of real data comes near it.
MOST_CHARACTERS = 1_000_000

EPOCH = datetime.datetime(1970, 1, 1)
#: The most characters that all values of a column together may have where functions make them;
#: conditions that need more are computed row by row, without keeping the values.
MOST_TEXT = 1 << 28
#: An element of an array takes as much as so many characters.
ELEMENT_CHARACTERS = 8

_DAY = datetime.timedelta(days=1)
EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def computed(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> Any:
    """Return a column in the type with which expressions compute, or any that it fits.

    Examples
    --------
    >>> computed(pa.array([1999], pa.timestamp("ns")), pa.timestamp("us"))[0].value
    1
    """
    if column.type == kind:
        return column
    try:
        return pc.cast(column, options=pc.CastOptions(kind, allow_time_truncate=True))
    except pa.ArrowInvalid as problem:
        raise DataError("a value of a column is out of range", detail=str(problem)) from problem


def column_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column as Python values.

    Examples
    --------
    >>> column_values(pa.array([1, None]))
    [1, None]
    """
    column = computed(column, types.computed_type(column.type))
    kind = column.type
    try:
        if pa.types.is_timestamp(kind) and kind.tz:
            return [_in_utc(stamp) for stamp in column.cast(types.TIMESTAMP).to_pylist()]
        plain = column.to_pylist()
        return [native(value, kind) for value in plain] if _nested(kind) else plain
    except UnicodeDecodeError as problem:
        raise DataError("a text of a column is not UTF-8", detail=str(problem)) from problem
    except (OverflowError, ValueError) as problem:
        raise DataError("a time of a column is outside of the years 1 to 9999") from problem


def native(value: Any, kind: pa.DataType) -> Any:
    """Return what Arrow gives for a value of a nested type in the form of this module."""
    if value is None:
        return None
    if types.is_list(kind):
        return [native(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return {native(k, kind.key_type): native(v, kind.item_type) for k, v in pairs}
    if pa.types.is_struct(kind):
        return {field.name: native(value[field.name], field.type) for field in kind}
    if pa.types.is_timestamp(kind) and kind.tz:
        return value.astimezone(datetime.UTC)
    return value


def to_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return Python values as an Arrow array of a type; the inverse of `column_values`."""
    if pa.types.is_map(kind):
        values = [None if v is None else list(v.items()) for v in values]
    try:
        array = pa.array(values, type=kind)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as problem:
        message = f"a computed value does not fit into {types.type_name(kind)}"
        raise DataError(message, detail=str(problem)) from problem
    if isinstance(array, pa.ChunkedArray):
        raise DataError("the values that an expression gives are too large for one column")
    return array


def local_time(value: datetime.datetime, kind: pa.DataType) -> datetime.datetime:
    """Return the wall-clock time of a timestamp in the zone of its type."""
    if kind.tz is None:
        return value
    return in_zone(value, zone(kind.tz))


def in_zone(value: datetime.datetime, where: datetime.tzinfo) -> datetime.datetime:
    """Return the same instant on the clock of another zone."""
    try:
        return value.astimezone(where)
    except OverflowError as problem:
        raise DataError(f"{value} is outside of the years 1 to 9999 in that time zone") from problem


def zone(name: str) -> datetime.tzinfo:
    """Return a time zone by its name (`Europe/Berlin`) or offset (`+02:00`)."""
    found = re.fullmatch(r"([+-])(\d\d):?(\d\d)", name)
    if found:
        offset = datetime.timedelta(hours=int(found[2]), minutes=int(found[3]))
        if offset < _DAY and int(found[3]) < 60:
            return datetime.timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as problem:
        raise DataError(f"time zone {excerpt(name)} is not known") from problem


def converter(source: pa.DataType, target: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function that turns values of one type into another, or None if CAST cannot.

    Examples
    --------
    >>> converter(pa.string(), pa.int32())("12")
    12
    >>> converter(pa.bool_(), pa.date32()) is None
    True
    """
    source, target = types.value_type(source), types.value_type(target)
    if source == target or pa.types.is_null(source):
        return _same
    if types.is_string(target):
        return _to_text(source)
    if pa.types.is_boolean(target):
        return _to_boolean(source)
    if types.is_integer(target):
        return _to_integer(source, target)
    if types.is_floating(target):
        return _to_float(source, target)
    if types.is_decimal(target):
        return _to_decimal(source, target)
    if types.is_binary(target):
        if types.is_string(source):
            return lambda value: value.encode()
        return _same if types.is_binary(source) else None
    if types.is_temporal(target):
        return _to_temporal(source, target)
    return _to_nested(source, target)


def round_decimal(value: decimal.Decimal, kind: pa.DataType) -> decimal.Decimal:
    """Round half up to the scale of a decimal type; more digits than it has are an error."""
    try:
        rounded = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=CONTEXT)
    except decimal.InvalidOperation:
        # More digits than the context has, or no number at all.
        rounded = decimal.Decimal("Infinity")
    if rounded.copy_abs() >= decimal.Decimal(10) ** (kind.precision - kind.scale):
        raise DataError(f"{excerpt(value)} does not fit into {types.type_name(kind)}")
    return rounded


def round_float32(value: float) -> float:
    """Round to the nearest 32-bit float."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def check_integer(value: int, kind: pa.DataType) -> int:
    """Return an integer that fits its type; refuse one that does not."""
    low, high = types.integer_range(kind)
    if not low <= value <= high:
        raise DataError(f"{excerpt(value)} is out of range for {types.type_name(kind)}")
    return value


def round_half_away(value: float | decimal.Decimal) -> int:
    """Round to an integer, halves away from zero."""
    exact = decimal.Decimal(value)
    return int(exact.quantize(decimal.Decimal(1), rounding=decimal.ROUND_HALF_UP, context=CONTEXT))


def check_length(length: int) -> None:
    """Refuse a text or array of so many characters or elements before it is made."""
    if length > MOST_CHARACTERS:
        raise DataError(
            f"a value of length {length} is too long", detail=f"the most is {MOST_CHARACTERS}"
        )


def can_be_kept(longest: int, total: int) -> bool:
    """Return whether values are made that have so many characters at most, and all together."""
    return longest <= MOST_CHARACTERS and total <= MOST_TEXT


def gathered(found: Iterable[Any]) -> list[Any]:
    """Return values as a list, unless they are too long to be kept all at once.

    Examples
    --------
    >>> gathered(["a", None, 3])
    ['a', None, 3]
    """
    room = MOST_TEXT
    kept = []
    for value in found:
        if isinstance(value, str | bytes):
            room -= len(value)
        elif isinstance(value, list | dict):
            room -= ELEMENT_CHARACTERS * len(value)
        if room < 0:
            raise DataError("the values that an expression makes are too long to be kept")
        kept.append(value)
    return kept


def joined_text(separator: str, parts: list[str]) -> str:
    """Join texts, if the result is not too long."""
    check_length(sum(map(len, parts)) + len(separator) * max(0, len(parts) - 1))
    return separator.join(parts)


def excerpt(value: object) -> str:
    """Return a value as an error message shows it: however long it is, only its beginning.

    Examples
    --------
    >>> excerpt("abc"), len(excerpt("a" * 1000))
    ("'abc'", 63)
    """
    if isinstance(value, str | bytes):
        value = value[:100]
    elif isinstance(value, int) and value.bit_length() > 1000:
        return "a very large number"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _same(value: Any) -> Any:
    return value


def _in_utc(stamp: datetime.datetime | None) -> datetime.datetime | None:
    return None if stamp is None else stamp.replace(tzinfo=datetime.UTC)


def _nested(kind: pa.DataType) -> bool:
    return types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_struct(kind)


def _unfit(value: object, target: pa.DataType) -> DataError:
    return DataError(f"cannot cast {excerpt(value)} to {types.type_name(target)}")


def _to_text(source: pa.DataType) -> Callable[[Any], Any] | None:
    if types.is_string(source):
        return _same
    if pa.types.is_boolean(source):
        return lambda value: "true" if value else "false"
    if types.is_integer(source) or types.is_floating(source):
        return str
    if types.is_decimal(source):
        return lambda value: format(value, "f")
    if types.is_binary(source):
        return lambda value: value.decode("utf-8", errors="replace")
    if pa.types.is_timestamp(source):
        return lambda value: local_time(value, source).isoformat(sep=" ")
    if types.is_temporal(source):
        return str
    return None


def _to_boolean(source: pa.DataType) -> Callable[[Any], Any] | None:
    words = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

    def from_text(value: str) -> bool:
        if value.strip().lower() not in words:
            raise _unfit(value, pa.bool_())
        return words[value.strip().lower()]

    if types.is_string(source):
        return from_text
    return (lambda value: value != 0) if types.is_numeric(source) else None


def _to_integer(source: pa.DataType, target: pa.DataType) -> Callable[[Any], Any] | None:
    def from_text(value: str) -> int:
        found = re.fullmatch(r"\s*([+-]?)0*(\d+)\s*", value, re.ASCII)
        # No integer type has more than 20 digits, and Python refuses to read very many.
        if not found or len(found[2]) > 20:
            raise _unfit(value, target)
        return check_integer(int(found[1] + found[2]), target)

    def from_number(value: float | decimal.Decimal) -> int:
        # NaN is not less than anything either.
        if not -_BEYOND_INTEGERS < value < _BEYOND_INTEGERS:
            raise _unfit(value, target)
        return check_integer(round_half_away(value), target)

    if types.is_string(source):
        return from_text
    if types.is_integer(source):
        return lambda value: check_integer(value, target)
    if types.is_numeric(source):
        return from_number
    return int if pa.types.is_boolean(source) else None


def _to_float(source: pa.DataType, target: pa.DataType) -> Callable[[Any], Any] | None:
    narrow = round_float32 if pa.types.is_float32(target) else _same

    def from_text(value: str) -> float:
        try:
            # Python's underscores between digits are no SQL.
            return float(narrow(float("x" if "_" in value else value)))
        except ValueError as problem:
            raise _unfit(value, target) from problem

    if types.is_string(source):
        return from_text
    if types.is_numeric(source) or pa.types.is_boolean(source):
        return lambda value: narrow(float(value))
    return None


def _to_decimal(source: pa.DataType, target: pa.DataType) -> Callable[[Any], Any] | None:
    def from_any(value: Any) -> decimal.Decimal:
        try:
            # A float's shortest text is what the user sees; its exact binary value is not.
            exact = decimal.Decimal(str(value) if isinstance(value, float) else value)
            return round_decimal(exact, target)
        except decimal.InvalidOperation as problem:
            raise _unfit(value, target) from problem

    known = types.is_numeric(source) or types.is_string(source) or pa.types.is_boolean(source)
    return from_any if known else None


def _to_temporal(source: pa.DataType, target: pa.DataType) -> Callable[[Any], Any] | None:
    if types.is_string(source):
        return lambda value: parse_temporal(value, target)
    if pa.types.is_date(target):
        if pa.types.is_timestamp(source):
            return lambda value: local_time(value, source).date()
        return _same if pa.types.is_date(source) else None
    if pa.types.is_timestamp(target):
        return _to_timestamp(source, target)
    if pa.types.is_time(target):
        if pa.types.is_timestamp(source):
            return lambda value: local_time(value, source).time()
        return _same if pa.types.is_time(source) else None
    return _same if pa.types.is_duration(source) else None


def _to_timestamp(source: pa.DataType, target: pa.DataType) -> Callable[[Any], Any] | None:
    if pa.types.is_date(source):

        def from_date(value: datetime.date) -> datetime.datetime:
            midnight = datetime.datetime(value.year, value.month, value.day)
            return _wall_to(midnight, target)

        return from_date
    if not pa.types.is_timestamp(source):
        return None
    if (source.tz is None) == (target.tz is None):
        return _same
    if target.tz is None:
        return lambda value: local_time(value, source).replace(tzinfo=None)
    return lambda value: _wall_to(value, target)


def _wall_to(value: datetime.datetime, target: pa.DataType) -> datetime.datetime:
    if target.tz is None:
        return value
    return in_zone(value.replace(tzinfo=zone(target.tz)), datetime.UTC)


def parse_temporal(text: str, target: pa.DataType) -> Any:
    """Return the date, time, timestamp or interval that a text in ISO form says.

    Examples
    --------
    >>> parse_temporal("2024-02-29 10:00", pa.timestamp("us"))
    datetime.datetime(2024, 2, 29, 10, 0)
    """
    try:
        if pa.types.is_date(target):
            return datetime.date.fromisoformat(text.strip())
        if pa.types.is_time(target):
            return datetime.time.fromisoformat(text.strip())
        if pa.types.is_timestamp(target):
            stamp = datetime.datetime.fromisoformat(text.strip())
            if stamp.tzinfo is None:
                return _wall_to(stamp, target)
            shifted = in_zone(stamp, datetime.UTC)
            return shifted if target.tz else shifted.replace(tzinfo=None)
    except ValueError as problem:
        raise _unfit(text, target) from problem
    raise _unfit(text, target)


def _to_nested(source: pa.DataType, target: pa.DataType) -> Callable[[Any], Any] | None:
    if types.is_list(source) and types.is_list(target):
        item = converter(source.value_type, target.value_type)
        if item is None:
            return None
        return lambda value: [None if part is None else item(part) for part in value]
    if pa.types.is_map(source) and pa.types.is_map(target):
        key = converter(source.key_type, target.key_type)
        held = converter(source.item_type, target.item_type)
        if key is None or held is None:
            return None
        return lambda value: {
            key(name): None if part is None else held(part) for name, part in value.items()
        }
    return None
