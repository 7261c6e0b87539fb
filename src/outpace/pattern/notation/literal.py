"""Constants in expressions: numbers, typed literals such as DATE '2026-01-31', and intervals.

An integer stays an integer, `1.5` is a decimal and `1e0` a double, as in SQL. A typed literal whose
type a plain constant cannot carry becomes a CAST of one.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from dataclasses import replace
from decimal import Decimal, InvalidOperation

import pyarrow as pa

from outpace.errors import PatternSyntaxError, UnsupportedError
from outpace.pattern.duration import is_calendar_unit, parse_duration, unit_microseconds
from outpace.pattern.expression import Cast, Expression, Literal
from outpace.pattern.notation.lexer import SourceText, Token, TokenCursor, TokenKind
from outpace.pattern.notation.parse_type import TYPE_WORDS, read_type

#: The largest number of digits in a number: that of a decimal.
MOST_DIGITS = 38

_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"(?P<date>\d{4}-\d{1,2}-\d{1,2})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{2})"
    r"(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{1,12}))?)?)?"
    r"\s*(?P<zone>\S+)?",
    re.ASCII,
)
_ZONE = re.compile(r"([+-])(\d{1,2}):?(\d{2})?", re.ASCII)
_FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")
_FIELD_MICROSECONDS = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000)
_LONGEST_MICROSECONDS = datetime.timedelta(days=366 * 1000) // datetime.timedelta(microseconds=1)
_INTERVAL_HINT = "write INTERVAL '5' MINUTE or INTERVAL '1 02:03:04' DAY TO SECOND"
_HINTS = {
    "date": "write DATE '2026-01-31'",
    "timestamp": "write TIMESTAMP '2026-01-31 10:00:00'",
}


def read_number(source: SourceText, token: Token, *, negative: bool = False) -> Literal:
    """Return the value of a number token."""
    text = ("-" if negative else "") + token.value
    if "e" in text or "E" in text:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise source.error("the number is too large for a double", token.span)
        return Literal(value, span=token.span)
    if len(text.replace(".", "").lstrip("-0")) > MOST_DIGITS:
        raise source.error(f"a number has at most {MOST_DIGITS} digits", token.span)
    number = int(text) if token.value.isdigit() else Decimal(text)
    return Literal(number, span=token.span)


def at_typed_literal(cursor: TokenCursor) -> bool:
    """Whether a typed literal comes next: TYPE 'text', X'00' or INTERVAL."""
    token, following = cursor.token, cursor.ahead()
    if token.key == "INTERVAL":
        value = cursor.ahead(2) if following.key in ("-", "+") else following
        return value.kind in (TokenKind.STRING, TokenKind.NUMBER)
    if following.kind is not TokenKind.STRING:
        return False
    if token.key == "X":
        return token.end == following.start
    return token.key in TYPE_WORDS or token.key == "TIME"


def read_typed_literal(cursor: TokenCursor) -> Expression:
    """Read a typed literal; `at_typed_literal` said that one comes next."""
    start = cursor.token
    if start.key == "INTERVAL":
        return read_interval(cursor)
    if start.key == "TIME":
        raise cursor.error("a time of day without a date is not supported")
    if start.key == "X":
        cursor.advance()
        return _binary(cursor, start)
    kind = read_type(cursor)
    text = cursor.advance()
    span = cursor.span_from(start.start)
    try:
        return replace(_typed(kind, text.value), span=span)
    except (ValueError, OverflowError, InvalidOperation):
        word = start.key.lower()
        raise cursor.error(f"'{text.value}' is no {word}", span, hint=_HINTS.get(word)) from None


def read_interval(cursor: TokenCursor) -> Literal:
    """Read INTERVAL '5' MINUTE, INTERVAL '1 hour', INTERVAL '1 02:03:04' DAY TO SECOND."""
    start = cursor.expect("INTERVAL")
    negative = cursor.accept("-") or (cursor.accept("+") and False)
    value = cursor.advance()
    unit = cursor.token
    if unit.kind is not TokenKind.WORD or not _is_unit(unit.key):
        duration = parse_duration_at(cursor, value)
    elif is_calendar_unit(unit.key):
        message = f"an interval in {_plural(unit)} has no fixed length"
        raise cursor.source.unsupported(message, unit.span, hint="write it in days")
    else:
        cursor.advance()
        last = unit
        if cursor.accept("TO"):
            last = cursor.advance()
        duration = _fields(cursor, value, unit, last)
    span = cursor.span_from(start.start)
    return Literal(-duration if negative else duration, span=span)


def parse_duration_at(cursor: TokenCursor, value: Token) -> datetime.timedelta:
    """Return the duration that a string token holds, such as '1 hour'."""
    if value.kind is not TokenKind.STRING:
        raise cursor.error("an interval needs a unit", value.span, hint=_INTERVAL_HINT)
    try:
        return parse_duration(value.value)
    except UnsupportedError as error:
        raise cursor.source.unsupported(error.message, value.span, hint=error.hint) from None
    except PatternSyntaxError as error:
        raise cursor.error(error.message, value.span, hint=error.hint) from None


def _plural(unit: Token) -> str:
    return unit.key.lower().rstrip("s") + "s"


def _is_unit(word: str) -> bool:
    return unit_microseconds(word) is not None or is_calendar_unit(word)


def _fields(cursor: TokenCursor, value: Token, first: Token, last: Token) -> datetime.timedelta:
    """Return the duration of '1 02:03:04' with the units from `first` to `last`."""
    bad = cursor.error(
        f"'{value.value}' is no interval in {_plural(first)}", value.span, hint=_INTERVAL_HINT
    )
    sign = -1 if value.value.strip().startswith("-") else 1
    parts = re.split(r"[ :]", value.value.strip().lstrip("+-"))
    if first is last:
        scales = [unit_microseconds(first.key) or 0]
    elif first.key in _FIELDS and last.key in _FIELDS:
        from_field, to_field = _FIELDS.index(first.key), _FIELDS.index(last.key)
        scales = list(_FIELD_MICROSECONDS[from_field : to_field + 1])
    else:
        raise bad
    numbers = [re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,9})?", part) for part in parts]
    if len(parts) != len(scales) or not all(numbers):
        raise bad
    total = sum(Decimal(part) * scale for part, scale in zip(parts, scales, strict=True))
    if total != int(total) or total > _LONGEST_MICROSECONDS:
        raise bad
    return datetime.timedelta(microseconds=sign * int(total))


def _binary(cursor: TokenCursor, start: Token) -> Literal:
    text = cursor.advance()
    span = cursor.span_from(start.start)
    try:
        return Literal(bytes.fromhex(text.value), span=span)
    except ValueError:
        raise cursor.error(f"'{text.value}' is no hexadecimal text", span) from None


def _typed(kind: pa.DataType, text: str) -> Expression:
    """Return the value of `text` as a type; a ValueError says that it is none."""
    if pa.types.is_string(kind):
        return Literal(text)
    if pa.types.is_boolean(kind):
        if text.lower() not in ("true", "false"):
            raise ValueError
        return Literal(text.lower() == "true")
    if pa.types.is_date(kind):
        return Literal(read_date(text))
    if pa.types.is_timestamp(kind):
        return Literal(read_timestamp(text))
    if pa.types.is_decimal(kind):
        value = Decimal(text.strip())
        if not value.is_finite() or len(value.as_tuple().digits) > MOST_DIGITS:
            raise ValueError
        return Literal(value)
    if pa.types.is_floating(kind):
        return Literal(float(text)) if kind == pa.float64() else Cast(Literal(float(text)), kind)
    if pa.types.is_integer(kind) and len(text) <= MOST_DIGITS:
        return Cast(Literal(int(text.strip())), kind)
    raise ValueError


def read_date(text: str) -> datetime.date:
    """Return the date that `text` stands for; a ValueError says that it is none.

    Examples
    --------
    >>> read_date("2026-01-31")
    datetime.date(2026, 1, 31)
    """
    found = _DATE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no date")
    return datetime.date(int(found[1]), int(found[2]), int(found[3]))


def read_timestamp(text: str) -> datetime.datetime:
    """Return the timestamp that `text` stands for; a ValueError says that it is none.

    It has a zone where the text ends in one: an offset, or a name such as UTC or Europe/Berlin.

    Examples
    --------
    >>> read_timestamp("2026-01-31 10:00:00.5")
    datetime.datetime(2026, 1, 31, 10, 0, 0, 500000)
    >>> read_timestamp("2026-01-31 10:00:00 +02:00").isoformat()
    '2026-01-31T10:00:00+02:00'
    """
    found = _TIMESTAMP.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no timestamp")
    fraction = (found["fraction"] or "").ljust(6, "0")
    if fraction[6:].strip("0"):
        raise ValueError("a timestamp counts microseconds")
    time = datetime.time(
        int(found["hour"] or 0),
        int(found["minute"] or 0),
        int(found["second"] or 0),
        int(fraction[:6]),
    )
    zone = _zone(found["zone"]) if found["zone"] else None
    moment = datetime.datetime.combine(read_date(found["date"]), time, zone)
    if zone is None:
        return moment
    try:
        moment.astimezone(datetime.UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is not in the years 1 to 9999 of UTC") from None
    return moment


def _zone(text: str) -> datetime.tzinfo:
    found = _ZONE.fullmatch(text)
    if found is not None:
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        return datetime.timezone(
            datetime.timedelta(minutes=-minutes if found[1] == "-" else minutes)
        )
    if text.upper() in ("UTC", "Z"):
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        raise ValueError(f"{text!r} is no time zone") from None
