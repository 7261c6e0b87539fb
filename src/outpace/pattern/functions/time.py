"""Functions of dates, timestamps and intervals.

Parts of a timestamp with a zone are those of its local time. Weeks begin on Monday (ISO 8601).
`day_of_week` counts Monday as 1 and Sunday as 7, as in Trino; Spark's `dayofweek` counts Sunday as
1; `weekday` counts Monday as 0.
"""

from __future__ import annotations

import calendar
import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import DataError, did_you_mean
from outpace.pattern import types, values
from outpace.pattern.bound import Apply, BoundExpression, Constant
from outpace.pattern.functions.function import (
    ArrowOperand,
    Code,
    CompiledType,
    Function,
    MismatchError,
    Signature,
    Term,
    Uncompilable,
    ValueFunction,
    all_known,
    compiled_as,
    converted,
    fixed,
    require,
    returns,
    unsuitable,
)
from outpace.pattern.types import type_name
from outpace.pattern.values import EPOCH, EPOCH_UTC, in_zone, local_time, zone

_UNITS = {
    "microsecond": datetime.timedelta(microseconds=1),
    "millisecond": datetime.timedelta(milliseconds=1),
    "second": datetime.timedelta(seconds=1),
    "minute": datetime.timedelta(minutes=1),
    "hour": datetime.timedelta(hours=1),
    "day": datetime.timedelta(days=1),
    "week": datetime.timedelta(weeks=1),
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200}
_ALL_UNITS = (*_UNITS, *_MONTHS)

#: A day in microseconds.
DAY: Final = 86_400_000_000

#: A day inside the years 1 to 9999, in microseconds since 1970. (Arrow loads pandas, if it is
#: there, to make a value.)
FIRST_TIME, LAST_TIME = (
    (day - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    for day in (datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 31))
)


def _local(value: Any, kind: pa.DataType) -> Any:
    return local_time(value, kind) if pa.types.is_timestamp(kind) else value


def check_years(column: pa.Array) -> None:
    """Leave times that Python does not know, or not in every zone, to the row evaluator."""
    ends = pc.min_max(column.view(pa.int64()))
    if not ends["min"].is_valid:
        return
    if ends["min"].as_py() <= FIRST_TIME or ends["max"].as_py() >= LAST_TIME:
        raise unsuitable("times outside of the years 1 to 9999")


def _part(
    name: str, read: Callable[[Any], int], about: str, example: str, *aliases: str,
    clock: bool = False, arrow: ValueFunction | None = None,
) -> Function:  # fmt: skip
    """Return a function that reads a part of a date or timestamp; `clock`: of its time of day."""

    def python(signature: Signature) -> ValueFunction:
        kind = signature.arguments[0]
        return lambda value: read(_local(value, kind))

    def kernel(node: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
        assert arrow is not None
        if pa.types.is_timestamp(operands[0].type) and operands[0].type.tz:
            check_years(operands[0])
        return arrow(operands[0]).cast(node.type)

    rule = returns(pa.int64(), "clock" if clock else "instant")
    held = kernel if arrow else None
    return Function(name, 1, 1, rule, python, about, example, aliases, arrow=held)


def _second(column: pa.Array) -> pa.Array:
    # Arrow leaves the zone out here, but before standard time zones differ by seconds, too.
    zoned = pa.types.is_timestamp(column.type) and column.type.tz
    return pc.second(pc.local_timestamp(column) if zoned else column)


def _unit(argument: BoundExpression, position: int) -> str:
    value = argument.value if isinstance(argument, Constant) else None
    if not isinstance(value, str):
        raise MismatchError("expected a unit such as 'day', as a literal", position)
    name = value.lower().removesuffix("s")
    if name not in _ALL_UNITS:
        raise MismatchError(
            f"unknown unit '{value}'",
            position,
            did_you_mean(name, _ALL_UNITS) or "the units are " + ", ".join(_ALL_UNITS),
        )
    return name


def _truncated_rule(given: Sequence[BoundExpression]) -> Signature:
    _unit(given[0], 0)
    return Signature((pa.string(), kind := require(given[1], "instant", 1)), kind)


def _date_trunc(signature: Signature) -> ValueFunction:
    kind = signature.result
    plain = pa.types.is_date(kind)

    def compute(unit: str, value: Any) -> Any:
        name = unit.lower().removesuffix("s")
        if plain:
            return value if name in _UNITS and name != "week" else _floor_date(name, value)
        floor = _floor_stamp(name, local_time(value, kind))
        return in_zone(floor, datetime.UTC) if kind.tz else floor

    return compute


def _floor_date(unit: str, value: datetime.date) -> datetime.date:
    if unit == "week":
        return value - datetime.timedelta(days=value.weekday())
    months = _MONTHS[unit]
    count = (value.year * 12 + value.month - 1) // months * months
    return datetime.date(max(1, count // 12), count % 12 + 1, 1)


def _floor_stamp(unit: str, value: datetime.datetime) -> datetime.datetime:
    midnight = datetime.time(tzinfo=value.tzinfo)
    if unit in _MONTHS or unit == "week":
        return datetime.datetime.combine(_floor_date(unit, value.date()), midnight)
    if unit == "day":
        return datetime.datetime.combine(value.date(), midnight)
    keep = {
        "hour": {"minute": 0, "second": 0, "microsecond": 0},
        "minute": {"second": 0, "microsecond": 0},
        "second": {"microsecond": 0},
        "millisecond": {"microsecond": value.microsecond // 1000 * 1000},
        "microsecond": {},
    }[unit]
    # The checker cannot know that the names are those of integer fields.
    return value.replace(**keep)  # type: ignore[arg-type]


def _add_rule(given: Sequence[BoundExpression]) -> Signature:
    """Rule of date_add(unit, count, x), and of Spark's date_add(date, days)."""
    if len(given) == 2:
        return Signature((pa.date32(), require(given[1], "integer", 1)), pa.date32())
    unit = _unit(given[0], 0)
    kind = require(given[2], "instant", 2)
    if pa.types.is_date(kind) and unit in ("hour", "minute", "second", "millisecond"):
        kind = types.TIMESTAMP
    return Signature((pa.string(), require(given[1], "integer", 1), kind), kind)


def _date_add(sign: int) -> Callable[[Signature], ValueFunction]:
    def implement(signature: Signature) -> ValueFunction:
        if len(signature.arguments) == 2:
            return lambda value, days: _moved("day", sign * days, value)
        kind = signature.result

        def compute(unit: str, count: int, value: Any) -> Any:
            name = unit.lower().removesuffix("s")
            if name in _MONTHS and pa.types.is_timestamp(kind) and kind.tz:
                # A month later means the same time of day on the local clock.
                moved = _moved(name, sign * count, local_time(value, kind))
                return in_zone(moved, datetime.UTC)
            return _moved(name, sign * count, value)

        return compute

    return implement


def _moved(unit: str, count: int, value: Any) -> Any:
    try:
        if unit in _UNITS:
            return value + _UNITS[unit] * count
        months = value.year * 12 + value.month - 1 + _MONTHS[unit] * count
        year, month = divmod(months, 12)
        last = calendar.monthrange(year, month + 1)[1]
        return value.replace(year=year, month=month + 1, day=min(value.day, last))
    except (OverflowError, ValueError, IndexError) as problem:
        raise DataError("a date is out of range") from problem


def _difference_rule(given: Sequence[BoundExpression]) -> Signature:
    """Rule of date_diff(unit, from, to), and of Spark's datediff(to, from) in days."""
    if len(given) == 2:
        return Signature((pa.date32(), pa.date32()), pa.int64())
    _unit(given[0], 0)
    first, second = require(given[1], "instant", 1), require(given[2], "instant", 2)
    common = types.common_type(first, second)
    if common is None:
        raise MismatchError(f"{type_name(first)} and {type_name(second)} do not go together", 2)
    return Signature((pa.string(), common, common), pa.int64())


def _date_diff(signature: Signature) -> ValueFunction:
    if len(signature.arguments) == 2:
        return lambda later, earlier: (later - earlier).days
    kind = signature.arguments[1]

    def compute(unit: str, start: Any, end: Any) -> int:
        name = unit.lower().removesuffix("s")
        if name in _UNITS:
            distance = int(abs(end - start) // _UNITS[name])
            return distance if end >= start else -distance
        first, second = _local(start, kind), _local(end, kind)
        return (
            _whole_months(first, second) // _MONTHS[name]
            if second >= first
            else -(_whole_months(second, first) // _MONTHS[name])
        )

    return compute


def _compiled_difference(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
    if len(terms) == 2:
        later, earlier = terms
        text = f"{later.value} - {earlier.value}"
        return code.line(text, all_known(*terms), CompiledType.INTEGER)
    unit = node.arguments[0]
    assert isinstance(unit, Constant)
    size = _UNITS.get(str(unit.value).lower().removesuffix("s"))
    if size is None:
        raise Uncompilable
    for term in terms[1:]:
        code.within(term.value, 1 << 62)
    held = DAY if pa.types.is_date(node.arguments[1].type) else 1
    distance = f"({terms[2].value} - {terms[1].value})"
    whole = f"abs({distance}) * {held} // {size // datetime.timedelta(microseconds=1)}"
    text = f"{whole} if {distance} >= 0 else -({whole})"
    return code.line(text, all_known(*terms[1:]), CompiledType.INTEGER)


def _compiled_unix(code: Code, _: Apply, terms: Sequence[Term]) -> Term:
    (term,) = terms
    code.exact(term.value)
    return code.line(f"float({term.value}) / 1000000.0", term.known, CompiledType.FLOAT)


def _whole_months(first: Any, second: Any) -> int:
    """Count the months after which `first` moved is not yet past `second`."""
    months = int((second.year - first.year) * 12 + second.month - first.month)
    return months if _moved("month", months, first) <= second else months - 1


def _to_unix(signature: Signature) -> ValueFunction:
    origin = EPOCH_UTC if signature.arguments[0].tz else EPOCH
    return lambda value: (value - origin).total_seconds()


def _to_unix_whole(signature: Signature) -> ValueFunction:
    origin = EPOCH_UTC if signature.arguments[0].tz else EPOCH
    return lambda value: (value - origin) // datetime.timedelta(seconds=1)


def _from_unix(origin: datetime.datetime, scale: float) -> ValueFunction:
    def compute(count: float) -> datetime.datetime:
        try:
            return origin + datetime.timedelta(seconds=count * scale)
        except (OverflowError, ValueError) as problem:
            raise DataError(f"{count} is no time that a timestamp can hold") from problem

    return compute


def _stamp_rule(given: Sequence[BoundExpression]) -> Signature:
    """Rule of to_timestamp: seconds since 1970 or a text in ISO form."""
    if types.is_string(given[0].type):
        return Signature((given[0].type,), types.TIMESTAMP)
    return Signature((require(given[0], "double", 0),), pa.timestamp("us", "UTC"))


def _to_stamp(signature: Signature) -> ValueFunction:
    if types.is_string(signature.arguments[0]):
        return lambda text: values.parse_temporal(text, types.TIMESTAMP)
    return _from_unix(EPOCH_UTC, 1)


def _to_date_rule(given: Sequence[BoundExpression]) -> Signature:
    kind = given[0].type
    if types.is_string(kind):
        return Signature((kind,), pa.date32())
    return Signature((require(given[0], "instant", 0),), pa.date32())


def _zoned_rule(given: Sequence[BoundExpression]) -> Signature:
    """Rule of `x AT TIME ZONE z`: the same instant in another zone, or a local time in one."""
    name = given[1].value if isinstance(given[1], Constant) else None
    if not isinstance(name, str):
        raise MismatchError("expected the name of a time zone, as a literal", 1)
    try:
        zone(name)
    except DataError as problem:
        raise MismatchError(problem.message, 1) from problem
    kind = require(given[0], "timestamp", 0)
    return Signature((kind, pa.string()), pa.timestamp(kind.unit, name))


def _at_zone(signature: Signature) -> ValueFunction:
    where, function = zone(signature.result.tz), converted(signature)

    def compute(value: datetime.datetime, _: str) -> datetime.datetime:
        moment: datetime.datetime = function(value)
        in_zone(moment, where)  # A time that its zone cannot show is refused where it is made.
        return moment

    return compute


def _last_day(value: datetime.date) -> datetime.date:
    return value.replace(day=calendar.monthrange(value.year, value.month)[1])


def _interval_rule(given: Sequence[BoundExpression]) -> Signature:
    if not pa.types.is_duration(given[0].type):
        raise MismatchError(f"expected an interval, found {type_name(given[0].type)}", 0)
    return Signature((types.INTERVAL,), pa.int64())


_DAY = "date '2024-01-31'"
_CLOCK = "timestamp '2024-01-31 10:20:30.5'"

TIMES: tuple[Function, ...] = (
    _part("year", lambda value: value.year, "the year", f"year({_DAY}) = 2024", arrow=pc.year),
    _part("quarter", lambda value: (value.month + 2) // 3, "1 to 4", f"quarter({_DAY}) = 1"),
    _part("month", lambda value: value.month, "1 to 12", f"month({_DAY}) = 1", arrow=pc.month),
    _part("week", lambda value: value.isocalendar()[1], "ISO week", f"week({_DAY}) = 5",
          "week_of_year", "weekofyear"),
    _part("day", lambda value: value.day, "of the month", f"day({_DAY}) = 31",
          "day_of_month", "dayofmonth", arrow=pc.day),
    _part("day_of_week", lambda value: value.isoweekday(), "Monday 1 to Sunday 7",
          f"day_of_week({_DAY}) = 3", "dow", "isodow"),
    _part("dayofweek", lambda value: value.isoweekday() % 7 + 1,
          "Sunday 1 to Saturday 7, as Spark", f"dayofweek({_DAY}) = 4"),
    _part("weekday", lambda value: value.weekday(), "Monday 0 to Sunday 6", f"weekday({_DAY}) = 2"),
    _part("day_of_year", lambda value: value.timetuple().tm_yday, "1 to 366",
          f"day_of_year({_DAY}) = 31", "doy", "dayofyear"),
    _part("year_of_week", lambda value: value.isocalendar()[0], "ISO year",
          f"year_of_week({_DAY}) = 2024", "yow", "isoyear"),
    _part("hour", lambda value: value.hour, "0 to 23", f"hour({_CLOCK}) = 10",
          clock=True, arrow=pc.hour),
    _part("minute", lambda value: value.minute, "0 to 59", f"minute({_CLOCK}) = 20",
          clock=True, arrow=pc.minute),
    _part("second", lambda value: value.second, "0 to 59", f"second({_CLOCK}) = 30",
          clock=True, arrow=_second),
    _part("millisecond", lambda value: value.microsecond // 1000, "0 to 999",
          f"millisecond({_CLOCK}) = 500", clock=True),
    Function("date_trunc", 2, 2, _truncated_rule, _date_trunc,
             "the start of its month or other unit", f"date_trunc('month', {_DAY}) = '2024-01-01'",
             ("datetrunc",)),
    Function("date_add", 2, 3, _add_rule, _date_add(1),
             "so many units later; with two arguments, a date days later",
             f"date_add('month', 1, {_DAY}) = '2024-02-29'", ("dateadd",)),
    Function("date_sub", 2, 3, _add_rule, _date_add(-1),
             "the same, earlier", f"date_sub({_DAY}, 1) = '2024-01-30'"),
    Function("date_diff", 2, 3, _difference_rule, _date_diff,
             "whole units from one to another; with two arguments, days from the second",
             f"date_diff('day', {_DAY}, date '2024-03-01') = 30", ("datediff", "timestampdiff"),
             numba=_compiled_difference),
    Function("to_unixtime", 1, 1, returns(pa.float64(), "timestamp"), _to_unix,
             "seconds since 1970, as a double", "to_unixtime(timestamp '1970-01-02') = 86400",
             ("epoch",), numba=_compiled_unix),
    Function("unix_timestamp", 1, 1, returns(pa.int64(), "timestamp"), _to_unix_whole,
             "whole seconds", "unix_timestamp(timestamp '1970-01-02') = 86400",
             numba=compiled_as("{} // 1000000", CompiledType.INTEGER)),
    Function("from_unixtime", 1, 1, returns(pa.timestamp("us", "UTC"), "double"),
             fixed(_from_unix(EPOCH_UTC, 1)),
             "a timestamp in UTC", "hour(from_unixtime(3600)) = 1", ("timestamp_seconds",)),
    Function("to_timestamp", 1, 1, _stamp_rule, _to_stamp,
             "a timestamp from a text, or from seconds since 1970",
             "hour(to_timestamp('2024-01-31 10:00:00')) = 10", ("timestamp",)),
    Function("to_date", 1, 1, _to_date_rule, converted,
             "the date of a timestamp or text", f"to_date('2024-01-31') = {_DAY}", ("date",)),
    Function("at_timezone", 2, 2, _zoned_rule, _at_zone,
             "the same moment in another zone",
             "hour(at_timezone(timestamp '2024-01-31 10:00:00 UTC', 'Asia/Tokyo')) = 19"),
    Function("last_day_of_month", 1, 1, returns(pa.date32(), "instant"),
             lambda s: lambda value: _last_day(converted(s)(value)),
             "the last date of its month", "last_day_of_month(date '2024-02-01') = '2024-02-29'",
             ("last_day",)),
    Function("to_milliseconds", 1, 1, _interval_rule,
             fixed(lambda value: value // datetime.timedelta(milliseconds=1)),
             "an interval in milliseconds", "to_milliseconds(interval '5' second) = 5000",
             numba=compiled_as("{} // 1000", CompiledType.INTEGER)),
)  # fmt: skip
