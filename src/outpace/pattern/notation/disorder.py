"""Disorder as text: the clause DISORDER and the Python call, read and printed.

    DISORDER SLACK '2 s' LATE SIDE INVALID QUARANTINE AHEAD '1 hour'
    DISORDER PUNCTUATION ...                -- time is told
    DISORDER NONE ...                       -- events come in order, piece by piece

A kind has a word, in `KINDS`. Settings that it cannot do without follow the word in their order.
The others stand behind their names, such as LATE, in any order, and may be left out. How a setting
is written follows from its kind (`outpace.pattern.setting`): durations are intervals, durations in
quotes or whole numbers, as for WITHIN; those by the clock are no whole numbers. A setting that is
another value with settings has a kind and these in parentheses, or what is short for one.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from outpace.errors import BindError, UnsupportedError, did_you_mean
from outpace.pattern.checkpoints import Adaptive, Every, EverySpeculative, LeastWork
from outpace.pattern.disorder import (
    LDOP,
    AQKSlack,
    Disorder,
    InOrder,
    KSlack,
    MPKSlack,
    Punctuation,
    Quantile,
    Sequence,
    Speculative,
)
from outpace.pattern.duration import print_duration
from outpace.pattern.expression import Literal
from outpace.pattern.notation.lexer import SourceText, TokenCursor, TokenKind
from outpace.pattern.notation.literal import read_number
from outpace.pattern.notation.parse_windows import read_count, read_span
from outpace.pattern.notation.print_expression import print_expression
from outpace.pattern.notation.print_name import print_name, print_object
from outpace.pattern.query import Query
from outpace.pattern.setting import (
    Choice,
    ClockSpan,
    ColumnName,
    EventSpan,
    FlagName,
    Inner,
    Number,
    NumberRange,
    Setting,
    SettingKind,
    SourceName,
    settings_of,
)

#: The kinds by their words.
KINDS: Final[dict[str, type[Disorder]]] = {
    "SLACK": KSlack,
    "MP": MPKSlack,
    "AQ": AQKSlack,
    "LDOP": LDOP,
    "QUANTILE": Quantile,
    "SEQUENCE": Sequence,
    "SPECULATIVE": Speculative,
    "PUNCTUATION": Punctuation,
    "NONE": InOrder,
}


#: Those of all that a setting may be; see `Inner`.
FAMILIES: Final[dict[str, Mapping[str, type[Any]]]] = {
    "disorder": KINDS,
    "checkpoints": {
        "EVERY": Every,
        "SPECULATIVE": EverySpeculative,
        "ADAPTIVE": Adaptive,
        "LEAST": LeastWork,
    },
}


#: What a duration by the clock may be.
_CLOCK_SPAN: Final = "an interval or a duration in quotes"


def read_disorder(cursor: TokenCursor) -> Disorder:
    """Read what follows DISORDER.

    Examples
    --------
    >>> from outpace.pattern.notation.lexer import SourceText
    >>> read_disorder(TokenCursor(SourceText("SLACK '2 s' LATE SIDE"))).late
    <Late.SIDE: 'side'>
    """
    disorder: Disorder = _read_kind(cursor, KINDS, "after DISORDER")
    return disorder


def _read_kind(cursor: TokenCursor, kinds: Mapping[str, type[Any]], where: str) -> Any:
    """Read the word of a kind, and its settings."""
    start = cursor.token
    if cursor.token.key not in kinds:
        *first, last = kinds
        hint = did_you_mean(cursor.token.value, kinds)
        raise cursor.unexpected(f"{', '.join(first)} or {last} {where}", hint=hint)
    kind = kinds[cursor.advance().key]
    required = [one for one in settings_of(kind) if one.required]
    named = {one.name.upper(): one for one in settings_of(kind) if not one.required}
    given = {one.name: _read(cursor, one) for one in required}
    while cursor.token.key in named:
        word = cursor.advance()
        one = named[word.key]
        if one.name in given:
            raise cursor.error(f"{word.key} stands here a second time", word.span)
        given[one.name] = _read(cursor, one)
    try:
        return kind(**given)
    except BindError as error:
        raise cursor.error(error.message, cursor.span_from(start.start), hint=error.hint) from None


def parse_disorder(text: str, where: str) -> Disorder:
    """Return the disorder that a text without the word DISORDER means.

    Examples
    --------
    >>> parse_disorder("SLACK 5 LATE PASS", "--disorder").slack
    5
    """
    cursor = TokenCursor(SourceText(text, where))
    disorder = read_disorder(cursor)
    if cursor.token.kind is not TokenKind.END:
        message = f"{cursor.found()} does not belong here"
        raise cursor.error(message, hint=settings_hint(disorder))
    return disorder


def settings_hint(disorder: Disorder) -> str:
    """Say which words may follow that of a kind.

    Examples
    --------
    >>> settings_hint(KSlack(5))
    'DISORDER SLACK takes LATE, INVALID, AHEAD, ARRIVAL, HORIZON, PATIENCE and FLAG, each once'
    """
    word = next(word for word, kind in KINDS.items() if kind is type(disorder))
    *first, last = (one.name.upper() for one in settings_of(type(disorder)) if not one.required)
    return f"DISORDER {word} takes {', '.join(first)} and {last}, each once"


def disorder_syntax(word: str, family: str = "disorder") -> str:
    """Return how a kind is written in SQL, without what all kinds of disorder take.

    Examples
    --------
    >>> disorder_syntax("SLACK")
    'SLACK interval'
    """
    common = settings_of(Disorder)
    settings = [one for one in settings_of(FAMILIES[family][word]) if one not in common]
    return " ".join([word, *map(_setting_syntax, settings)])


def common_syntax() -> str:
    """Return how the settings are written in SQL that all kinds of disorder take."""
    return " ".join(map(_setting_syntax, settings_of(Disorder)))


def _setting_syntax(setting: Setting) -> str:
    text = _placeholder(setting.kind)
    return text if setting.required else f"[{setting.name.upper()} {text}]"


def disorder_clauses(query: Query) -> Iterable[str]:
    """Yield the clause of MATCH_RECOGNIZE that says how far events are out of order, if any does.

    Examples
    --------
    >>> list(disorder_clauses(Query().disorder(KSlack("2 s", late="pass", ahead="1 hour"))))
    ["DISORDER SLACK INTERVAL '2' SECOND LATE PASS AHEAD INTERVAL '1' HOUR"]
    """
    if query.order_of_arrival is not None:
        yield f"DISORDER {_clause(query.order_of_arrival)}"


def _clause(value: Any, family: str = "disorder") -> str:
    words = [word for word, kind in FAMILIES[family].items() if kind is type(value)]
    if not words:
        raise UnsupportedError(f"{family} written in Python have no SQL text", hint="use to_python")
    texts = [
        _in_sql(inner, one.kind)
        if one.required
        else f"{one.name.upper()} {_in_sql(inner, one.kind)}"
        for one, inner in _given(value)
    ]
    return " ".join([*words, *texts])


def disorder_calls(query: Query) -> Iterable[str]:
    """Yield the Python call that says how far events are out of order, if any does.

    Examples
    --------
    >>> list(disorder_calls(Query().disorder(KSlack("2 s", late="side"))))
    ["disorder(op.KSlack('2 seconds', late='side'))"]
    """
    if query.order_of_arrival is not None:
        yield f"disorder({_call(query.order_of_arrival)})"


def _call(value: Any, module: str = "op") -> str:
    texts = [
        _in_python(inner) if one.required else f"{one.name}={_in_python(inner)}"
        for one, inner in _given(value)
    ]
    return f"{module}.{type(value).__name__}({', '.join(texts)})"


def _given(value: Any) -> Iterable[tuple[Setting, Any]]:
    """Yield the settings that differ from their defaults."""
    for one in settings_of(type(value)):
        inner = getattr(value, one.name)
        if inner != one.default:
            yield one, inner


def _read(cursor: TokenCursor, setting: Setting) -> Any:
    """Read the value of a setting and check it, so that an error shows its place."""
    start = cursor.token.start
    value = _value(cursor, setting)
    try:
        return setting.checked(value)
    except BindError as error:
        raise cursor.error(error.message, cursor.span_from(start), hint=error.hint) from None


def _value(cursor: TokenCursor, setting: Setting) -> Any:
    match setting.kind:
        case ClockSpan(by_source=True) if cursor.accept("("):
            return _read_by_source(cursor, setting.name)
        case ClockSpan(by_source=by_source):
            each = ", or durations of sources in parentheses" if by_source else ""
            return read_span(cursor, f"{_CLOCK_SPAN}{each}")
        case EventSpan():
            return read_span(cursor)
        case Number(whole=whole):
            return _number(cursor, setting, whole=whole)
        case NumberRange():
            return _number(cursor, setting), _number(cursor, setting)
        case Inner(family=family):
            if not cursor.accept("("):
                if family == "disorder":
                    return read_span(cursor)
                return read_count(cursor, "a number of events, or a model in parentheses")
            inner = _read_kind(cursor, FAMILIES[family], f"for {setting.name.upper()}")
            cursor.expect(")")
            return inner
        case Choice(members=members):
            known = {member.name.upper(): member for member in members}
            if cursor.token.key not in known:
                *first, last = known
                words = f"{', '.join(first)} or {last}" if first else last
                raise cursor.unexpected(f"{words} after {setting.name.upper()}")
            return known[cursor.advance().key]
        case ColumnName() | FlagName():
            return cursor.expect_name(f"a column for {setting.name.upper()}").value
        case SourceName():
            return _read_source(cursor, setting.name)


def _number(cursor: TokenCursor, setting: Setting, *, whole: bool = False) -> float:
    negative = cursor.accept("-")
    if cursor.token.kind is not TokenKind.NUMBER:
        raise cursor.unexpected(f"a number for {setting.name.upper()}")
    number = read_number(cursor.source, cursor.advance(), negative=negative).value
    return number if whole and isinstance(number, int) else float(str(number))


def _read_source(cursor: TokenCursor, name: str) -> str:
    if cursor.token.kind is not TokenKind.STRING:
        raise cursor.unexpected(f"a source in quotes for {name.upper()}")
    return cursor.advance().value


def _read_by_source(cursor: TokenCursor, name: str) -> dict[str, Any]:
    """Read durations by source behind an opening parenthesis: 'east' = '2 s', 'west' = '3 s')."""
    spans: dict[str, Any] = {}
    while True:
        source = _read_source(cursor, name)
        if source in spans:
            raise cursor.error(f"'{source}' stands here a second time", cursor.previous.span)
        cursor.expect("=")
        spans[source] = read_span(cursor, _CLOCK_SPAN)
        if not cursor.accept(","):
            cursor.expect(")")
            return spans


def _placeholder(kind: SettingKind) -> str:
    match kind:
        case ClockSpan(by_source=True):
            return "interval | ('source' = interval, ...)"
        case EventSpan() | ClockSpan():
            return "interval"
        case Number():
            return "number"
        case NumberRange():
            return "number number"
        case Inner(family=family):
            return "(order) | interval" if family == "disorder" else "(checkpoints) | number"
        case Choice(members=members):
            return "|".join(member.name.upper() for member in members)
        case ColumnName() | FlagName():
            return "column"
        case SourceName():
            return "'source'"


def _in_sql(value: Any, kind: SettingKind | None = None) -> str:
    if isinstance(kind, Inner):
        return f"({_clause(value, kind.family)})"
    if isinstance(kind, SourceName):
        return print_expression(Literal(value))
    match value:
        case (float(), float()):
            return " ".join(map(str, value))
        case datetime.timedelta():
            return print_expression(Literal(value))
        case Enum():
            return value.name.upper()
        case str():
            return print_name(value)
        case tuple():
            spans = (f"{print_expression(Literal(name))} = {_in_sql(span)}" for name, span in value)
            return f"({', '.join(spans)})"
    return str(value)


def _in_python(value: Any) -> str:
    match value:
        case Disorder():
            return _call(value)
        case Every() | EverySpeculative() | Adaptive() | LeastWork():
            return _call(value, "op.checkpoints")
        case datetime.timedelta():
            return repr(print_duration(value))
        case Enum():
            return repr(value.value)
        case (float(), float()):
            return repr(value)
        case tuple():
            spans = (f"{name!r}: {_in_python(span)}" for name, span in value)
            return f"{{{', '.join(spans)}}}"
    return print_object(value)
