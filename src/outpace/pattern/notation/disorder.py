"""Disorder as text: the clause DISORDER and the Python call, read and printed.

    DISORDER SLACK '2 s' LATE SIDE INVALID QUARANTINE AHEAD '1 hour'
    DISORDER WATERMARK ...                  -- time is told
    DISORDER NONE ...                       -- events come in order, piece by piece

A kind has a word, in `KINDS`, and its settings follow it in their order. LATE is DROP, PASS or
SIDE, and INVALID is FAIL or QUARANTINE; these and AHEAD may be left out and may stand in any order.
Durations are intervals, durations in quotes or whole numbers, as for WITHIN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, TypeVar

from outpace.errors import BindError
from outpace.pattern.disorder import Disorder, Duration, InOrder, Invalid, KSlack, Late, Watermark
from outpace.pattern.duration import print_duration
from outpace.pattern.expression import Literal
from outpace.pattern.notation.lexer import TokenCursor
from outpace.pattern.notation.parse_windows import read_span
from outpace.pattern.notation.print_expression import print_expression
from outpace.pattern.query import Query

Choice = TypeVar("Choice", bound=Enum)

#: The kinds by their words.
KINDS: Final[dict[str, type[Disorder]]] = {
    "SLACK": KSlack,
    "WATERMARK": Watermark,
    "NONE": InOrder,
}


def read_disorder(cursor: TokenCursor) -> Disorder:
    """Read what follows DISORDER.

    Examples
    --------
    >>> from outpace.pattern.notation.lexer import SourceText
    >>> read_disorder(TokenCursor(SourceText("SLACK '2 s' LATE SIDE"))).late
    <Late.SIDE: 'side'>
    """
    start = cursor.token
    if cursor.token.key not in KINDS:
        *first, last = KINDS
        raise cursor.unexpected(f"{', '.join(first)} or {last} after DISORDER")
    kind = KINDS[cursor.advance().key]
    given: dict[str, Any] = {name: read_span(cursor) for name in kind.settings()}
    given |= _read_options(cursor)
    try:
        return kind(**given)
    except BindError as error:
        raise cursor.error(error.message, cursor.span_from(start.start), hint=error.hint) from None


def disorder_clauses(query: Query) -> Iterable[str]:
    """Yield the clause of MATCH_RECOGNIZE that says how far events are out of order, if any does.

    Examples
    --------
    >>> list(disorder_clauses(Query().disorder(KSlack("2 s", late="pass", ahead="1 hour"))))
    ["DISORDER SLACK INTERVAL '2' SECOND LATE PASS AHEAD INTERVAL '1' HOUR"]
    """
    disorder = query.order_of_arrival
    if disorder is None:
        return
    (word,) = [word for word, kind in KINDS.items() if kind is type(disorder)]
    settings = [_span_text(getattr(disorder, name)) for name in disorder.settings()]
    given = [f"{name.upper()} {text}" for name, text in _options(disorder, _span_text, str.upper)]
    yield " ".join(["DISORDER", word, *settings, *given])


def disorder_calls(query: Query) -> Iterable[str]:
    """Yield the Python call that says how far events are out of order, if any does.

    Examples
    --------
    >>> list(disorder_calls(Query().disorder(KSlack("2 s", late="side"))))
    ["disorder(op.KSlack('2 seconds', late='side'))"]
    """
    disorder = query.order_of_arrival
    if disorder is None:
        return
    settings = [_span_argument(getattr(disorder, name)) for name in disorder.settings()]
    given = [f"{name}={text}" for name, text in _options(disorder, _span_argument, repr)]
    yield f"disorder(op.{type(disorder).__name__}({', '.join([*settings, *given])}))"


def _read_options(cursor: TokenCursor) -> dict[str, Any]:
    given: dict[str, Any] = {}
    while any(cursor.at(word) for word in ("LATE", "INVALID", "AHEAD")):
        word = cursor.token.key
        if word.lower() in given:
            raise cursor.error(f"{word} stands here a second time")
        cursor.advance()
        if word == "LATE":
            given["late"] = _choice(cursor, Late, word)
        elif word == "INVALID":
            given["invalid"] = _choice(cursor, Invalid, word)
        else:
            given["ahead"] = read_span(cursor)
    return given


def _choice(cursor: TokenCursor, kind: type[Choice], after: str) -> Choice:
    known = {choice.name: choice for choice in kind}
    if cursor.token.key not in known:
        *first, last = known
        raise cursor.unexpected(f"{', '.join(first)} or {last} after {after}")
    return known[cursor.advance().key]


def _options(
    disorder: Disorder, span: Callable[[Duration | str], str], word: Callable[[str], str]
) -> Iterable[tuple[str, str]]:
    """Yield what differs from the defaults."""
    late, invalid = Late(disorder.late), Invalid(disorder.invalid)
    if late is not Late.DROP:
        yield "late", word(late.value)
    if invalid is not Invalid.FAIL:
        yield "invalid", word(invalid.value)
    if disorder.ahead is not None:
        yield "ahead", span(disorder.ahead)


def _span_text(span: Duration | str) -> str:
    assert not isinstance(span, str), "a duration is parsed where it is given"
    return str(span) if isinstance(span, int) else print_expression(Literal(span))


def _span_argument(span: Duration | str) -> str:
    assert not isinstance(span, str), "a duration is parsed where it is given"
    return repr(span if isinstance(span, int) else print_duration(span))
