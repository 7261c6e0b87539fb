"""Durations as text at the edge of the library: "500 ms", "1 hour", "1 day 3 h".

A duration is a list of numbers with units of fixed length; months and years have none and are
refused. Inside the library durations are timedeltas or integer microseconds.
"""

from __future__ import annotations

import datetime
import re
from decimal import Decimal

from outpace.errors import PatternSyntaxError, Span, UnsupportedError, did_you_mean

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SHORT = {
    "us": "microsecond",
    "µs": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "sec": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
    "w": "week",
}
_SINGULAR = {f"{unit}s": unit for unit in (*_MICROSECONDS, "sec", "min", "hr")}
_CALENDAR = frozenset({"month", "months", "year", "years", "quarter", "quarters"})
_PART = re.compile(r"\s*+(?P<number>[+-]?[0-9]++(?:\.[0-9]++)?)\s*+(?P<unit>[^\W\d_]++)?\s*+,?")
_MOST_DIGITS = 30
_LARGEST = datetime.timedelta(days=366 * 1000)


def parse_duration(text: str, *, where: str = "duration") -> datetime.timedelta:
    """Read a duration.

    Examples
    --------
    >>> parse_duration("500 ms")
    datetime.timedelta(microseconds=500000)
    >>> parse_duration("1 day 3 h") == datetime.timedelta(days=1, hours=3)
    True
    >>> parse_duration("1.5 minutes").total_seconds()
    90.0
    """
    position = 0
    total = 0
    while position < len(text.rstrip()) or not position:
        found = _PART.match(text, position)
        if found is None:
            raise _syntax(text, where, "expected a number and a unit", position, len(text))
        unit = found["unit"]
        if unit is None:
            start, end = found.span("number")
            raise _syntax(text, where, "a duration needs a unit", start, end)
        scale = _unit(unit, text, where, found.start("unit"))
        if len(found["number"]) > _MOST_DIGITS:
            start, end = found.span("number")
            raise _syntax(text, where, "the number has too many digits", start, end)
        amount = Decimal(found["number"]) * scale
        if amount != amount.to_integral_value():
            start, end = found.span("number")
            raise _syntax(text, where, "a duration is a whole number of microseconds", start, end)
        total += int(amount)
        position = found.end()
    if abs(total) > _LARGEST // datetime.timedelta(microseconds=1):
        raise _syntax(text, where, "a duration is at most 1000 years", 0, len(text))
    return datetime.timedelta(microseconds=total)


def unit_microseconds(unit: str) -> int | None:
    """Return the length of a unit ("hour", "hours", "h"), or None where it is not known.

    Examples
    --------
    >>> unit_microseconds("MINUTE"), unit_microseconds("month")
    (60000000, None)
    """
    name = unit.lower()
    name = _SINGULAR.get(name, name)
    return _MICROSECONDS.get(_SHORT.get(name, name))


def is_calendar_unit(unit: str) -> bool:
    """Whether a unit has no fixed length: months, quarters and years."""
    return unit.lower() in _CALENDAR


def print_duration(duration: datetime.timedelta) -> str:
    """Write a duration as text that `parse_duration` reads back.

    Examples
    --------
    >>> print_duration(datetime.timedelta(hours=36)), print_duration(datetime.timedelta(0))
    ('36 hours', '0 seconds')
    >>> print_duration(datetime.timedelta(milliseconds=500))
    '500 milliseconds'
    """
    amount, unit = whole_units(duration)
    return f"{amount} {unit}" if abs(amount) == 1 else f"{amount} {unit}s"


def whole_units(duration: datetime.timedelta) -> tuple[int, str]:
    """Return a duration as a whole number of the largest unit, up to days, that divides it."""
    total = duration // datetime.timedelta(microseconds=1)
    if total == 0:
        return 0, "second"
    for unit in ("day", "hour", "minute", "second", "millisecond"):
        if total % _MICROSECONDS[unit] == 0:
            return total // _MICROSECONDS[unit], unit
    return total, "microsecond"


def _unit(unit: str, text: str, where: str, start: int) -> int:
    scale = unit_microseconds(unit)
    if scale is not None:
        return scale
    span = Span(start, start + len(unit))
    if is_calendar_unit(unit):
        raise UnsupportedError(
            f"'{unit}' has no fixed length",
            span=span,
            text=text,
            where=where,
            hint="write it in days",
        )
    hint = did_you_mean(unit, _MICROSECONDS) or "write 500 ms, 10 s, 5 min, 1 hour or 2 days"
    raise PatternSyntaxError(
        f"'{unit}' is no unit of time", span=span, text=text, where=where, hint=hint
    )


def _syntax(text: str, where: str, message: str, start: int, end: int) -> PatternSyntaxError:
    hint = "write 500 ms, 10 s, 5 min, 1 hour or 1 day 3 h"
    place = Span(min(start, len(text)), max(start, min(end, len(text))))
    return PatternSyntaxError(message, span=place, text=text, where=where, hint=hint)
