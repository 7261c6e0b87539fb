"""Windows and instances in MATCH_RECOGNIZE: the clauses OVER and INSTANCES.

    OVER COUNT (1000 SLIDE 50 OFFSET 0)
    OVER TIME (INTERVAL '10' SECOND SLIDE INTERVAL '1' SECOND OFFSET INTERVAL '0' SECOND)
    OVER SESSION (INTERVAL '30' SECOND)
    OVER BETWEEN (type = 'start') AND (type = 'end')
    OVER LANDMARK (type = 'reset')          -- or OVER LANDMARK
    OVER ... DRIFT INTERVAL '50' MILLISECOND
    OVER ... WITH DUPLICATES NUMBERED
    INSTANCES 8 SCHEDULE BATCHES OF 100     -- or ROUND ROBIN, BATCHES, LEAST LOADED, BY KEY

SLIDE and OFFSET may be left out. Spans are intervals, durations in quotes or whole numbers, as for
WITHIN. A Python predicate has no text here.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

from outpace.errors import BindError
from outpace.pattern.expression import Expression
from outpace.pattern.notation.lexer import Token, TokenCursor, TokenKind
from outpace.pattern.notation.literal import parse_duration_at, read_interval
from outpace.pattern.notation.parse_expression import read_expression
from outpace.pattern.schedulers import Batches, ByKey, LeastLoaded, RoundRobin, Scheduler
from outpace.pattern.windows import (
    BetweenWindows,
    CountWindows,
    LandmarkWindows,
    SessionWindows,
    TimeWindows,
    WindowSpan,
    WindowSpec,
)


def read_windows(cursor: TokenCursor) -> WindowSpec:
    """Read what follows OVER, without its options.

    Examples
    --------
    >>> from outpace.pattern.notation.lexer import SourceText
    >>> read_windows(TokenCursor(SourceText("COUNT (1000 SLIDE 50)")))
    CountWindows(size=1000, slide=50, offset=0)
    """
    kinds: dict[str, Callable[[TokenCursor], WindowSpec]] = {
        "COUNT": _count_windows,
        "TIME": _time_windows,
        "SESSION": _session_windows,
        "BETWEEN": _between_windows,
        "LANDMARK": _landmark_windows,
    }
    start = cursor.token
    if start.key not in kinds:
        raise cursor.unexpected("COUNT, TIME, SESSION, BETWEEN or LANDMARK after OVER")
    cursor.advance()
    try:
        return kinds[start.key](cursor)
    except BindError as error:
        raise cursor.error(error.message, cursor.span_from(start.start), hint=error.hint) from None


def read_scheduler(cursor: TokenCursor) -> Scheduler:
    """Read what follows SCHEDULE.

    Examples
    --------
    >>> from outpace.pattern.notation.lexer import SourceText
    >>> read_scheduler(TokenCursor(SourceText("BATCHES OF 100")))
    Batches(size=100)
    """
    if cursor.accept("ROUND", "ROBIN"):
        return RoundRobin()
    if cursor.accept("LEAST", "LOADED"):
        return LeastLoaded()
    if cursor.accept("BY", "KEY"):
        return ByKey()
    if cursor.accept("BATCHES"):
        size = read_count(cursor, "the windows of a batch") if cursor.accept("OF") else None
        if size == 0:
            raise cursor.error("a batch has at least one window", cursor.previous.span)
        return Batches(size)
    raise cursor.unexpected("ROUND ROBIN, BATCHES, LEAST LOADED or BY KEY after SCHEDULE")


def read_span(
    cursor: TokenCursor, what: str = "an interval, a duration in quotes or a whole number"
) -> WindowSpan:
    """Read an interval, a duration in quotes or a whole number, where a text says what may stand.

    A whole number is read also where none is meant, so that who refuses it can say what is.
    """
    token = cursor.token
    if token.key == "INTERVAL":
        value = read_interval(cursor).value
        assert isinstance(value, datetime.timedelta), "an interval is a timedelta"
        return value
    if token.kind is TokenKind.STRING:
        return parse_duration_at(cursor, cursor.advance())
    return read_count(cursor, what)


def read_count(cursor: TokenCursor, what: str) -> int:
    """Read a whole number without a sign."""
    token = cursor.token
    if token.kind is not TokenKind.NUMBER or not token.value.isdigit() or len(token.value) > 18:
        raise cursor.unexpected(what)
    return int(cursor.advance().value)


def _count_windows(cursor: TokenCursor) -> CountWindows:
    cursor.expect("(", "'(' and a number of events")
    size = read_count(cursor, "a number of events")
    slide = read_count(cursor, "a number of events") if cursor.accept("SLIDE") else size
    offset = _signed_count(cursor) if cursor.accept("OFFSET") else 0
    cursor.expect(")", "SLIDE, OFFSET or ')'")
    return CountWindows(size, slide, offset)


def _time_windows(cursor: TokenCursor) -> TimeWindows:
    cursor.expect("(", "'(' and a stretch of time")
    size = read_span(cursor)
    slide = read_span(cursor) if cursor.accept("SLIDE") else size
    offset = _signed_span(cursor) if cursor.accept("OFFSET") else 0
    cursor.expect(")", "SLIDE, OFFSET or ')'")
    return TimeWindows(size, slide, offset)


def _session_windows(cursor: TokenCursor) -> SessionWindows:
    cursor.expect("(", "'(' and the gap that ends a session")
    gap = read_span(cursor)
    cursor.expect(")")
    return SessionWindows(gap)


def _between_windows(cursor: TokenCursor) -> BetweenWindows:
    opens = _condition(cursor, cursor.expect("(", "'(' and a condition that opens a window"))
    cursor.expect("AND", "AND and a condition that closes a window")
    closes = _condition(cursor, cursor.expect("(", "'(' and a condition that closes a window"))
    return BetweenWindows(opens, closes)


def _landmark_windows(cursor: TokenCursor) -> LandmarkWindows:
    if not cursor.at("("):
        return LandmarkWindows()
    return LandmarkWindows(_condition(cursor, cursor.advance()))


def _condition(cursor: TokenCursor, opener: Token) -> Expression:
    node = read_expression(cursor)
    if cursor.token.kind is TokenKind.END:
        raise cursor.error("'(' is never closed", opener.span, hint="add ')'")
    cursor.expect(")")
    return node


def _signed_count(cursor: TokenCursor) -> int:
    sign = -1 if cursor.accept("-") else 1
    return sign * read_count(cursor, "a number of events")


def _signed_span(cursor: TokenCursor) -> WindowSpan:
    return _signed_count(cursor) if cursor.at("-") else read_span(cursor)
