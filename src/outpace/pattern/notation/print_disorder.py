"""Disorder as text: the clause DISORDER, or the Python call. Both read back as the same value."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outpace.pattern.disorder import Disorder, Duration, InOrder, Invalid, KSlack, Late
from outpace.pattern.duration import print_duration
from outpace.pattern.expression import Literal
from outpace.pattern.notation.print_expression import print_expression
from outpace.pattern.query import Query


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
    kind = "NONE" if isinstance(disorder, InOrder) else "WATERMARK"
    if isinstance(disorder, KSlack):
        kind = f"SLACK {_span_text(disorder.slack)}"
    given = [f"{name.upper()} {text}" for name, text in _options(disorder, _span_text, str.upper)]
    yield " ".join([f"DISORDER {kind}", *given])


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
    slack = [_span_argument(disorder.slack)] if isinstance(disorder, KSlack) else []
    given = [f"{name}={text}" for name, text in _options(disorder, _span_argument, repr)]
    yield f"disorder(op.{type(disorder).__name__}({', '.join([*slack, *given])}))"


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
