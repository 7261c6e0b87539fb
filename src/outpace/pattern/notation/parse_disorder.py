"""Disorder in MATCH_RECOGNIZE: the clause DISORDER.

    DISORDER SLACK '2 s' LATE SIDE INVALID QUARANTINE AHEAD '1 hour'
    DISORDER WATERMARK ...                  -- time is told
    DISORDER NONE ...                       -- events come in order, piece by piece

LATE is DROP, PASS or SIDE, and INVALID is FAIL or QUARANTINE. What follows the kind may be left out
and may stand in any order. Durations are intervals, durations in quotes or whole numbers, as for
WITHIN.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from outpace.errors import BindError
from outpace.pattern.disorder import Disorder, Duration, InOrder, Invalid, KSlack, Late, Watermark
from outpace.pattern.notation.lexer import Cursor
from outpace.pattern.notation.parse_windows import read_span

Choice = TypeVar("Choice", bound=Enum)


def read_disorder(cursor: Cursor) -> Disorder:
    """Read what follows DISORDER.

    Examples
    --------
    >>> from outpace.pattern.notation.lexer import Source
    >>> read_disorder(Cursor(Source("SLACK '2 s' LATE SIDE"))).late
    <Late.SIDE: 'side'>
    """
    start = cursor.token
    if not any(cursor.at(kind) for kind in ("SLACK", "WATERMARK", "NONE")):
        raise cursor.unexpected("SLACK, WATERMARK or NONE after DISORDER")
    kind = cursor.advance().key
    slack = read_span(cursor) if kind == "SLACK" else 0
    late, invalid, ahead = _options(cursor)
    try:
        if kind == "SLACK":
            return KSlack(slack, late=late, invalid=invalid, ahead=ahead)
        return (Watermark if kind == "WATERMARK" else InOrder)(late, invalid, ahead)
    except BindError as error:
        raise cursor.error(error.message, cursor.span_from(start.start), hint=error.hint) from None


def _options(cursor: Cursor) -> tuple[Late, Invalid, Duration | None]:
    late, invalid, ahead = Late.DROP, Invalid.FAIL, None
    seen: set[str] = set()
    while any(cursor.at(word) for word in ("LATE", "INVALID", "AHEAD")):
        word = cursor.token.key
        if word in seen:
            raise cursor.error(f"{word} stands here a second time")
        seen.add(word)
        cursor.advance()
        if word == "LATE":
            late = _choice(cursor, Late, word)
        elif word == "INVALID":
            invalid = _choice(cursor, Invalid, word)
        else:
            ahead = read_span(cursor)
    return late, invalid, ahead


def _choice(cursor: Cursor, kind: type[Choice], after: str) -> Choice:
    known = {choice.name: choice for choice in kind}
    if cursor.token.key not in known:
        *first, last = known
        raise cursor.unexpected(f"{', '.join(first)} or {last} after {after}")
    return known[cursor.advance().key]
