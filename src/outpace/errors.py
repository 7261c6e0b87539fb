"""The one tree of errors that Outpace raises, each with a code, a place and a hint.

Every error says what is wrong in one lower-case line, then shows the place in the user's own text
(line, column, underlined), then a detail and a hint where there is one. The command line turns any
`OutpaceError` into exit code 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters in the user's text, and the text where it is known.

    Examples
    --------
    >>> Span(3, 5).end - Span(3, 5).start
    2
    """

    start: int
    end: int
    text: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"span {self.start}..{self.end} is not a range")

    def join(self, other: Span) -> Span:
        """Return the smallest span that covers both."""
        text = self.text if self.text is not None else other.text
        return Span(min(self.start, other.start), max(self.end, other.end), text)


class Hint(str):
    """A hint for who writes Python, and for who writes SQL, or on the command line.

    Parameters
    ----------
    python, sql
        What each is told.

    Examples
    --------
    >>> error = BindError("the query has no windows", hint=Hint("add .over(...)", "add OVER ..."))
    >>> error.hint, error.in_sql().hint
    ('add .over(...)', 'add OVER ...')
    """

    sql: str

    def __new__(cls, python: str, sql: str = "") -> Hint:
        """Return the text for who writes Python, with the other one."""
        hint = super().__new__(cls, python)
        hint.sql = sql
        return hint


class OutpaceError(Exception):
    """The base of every error that Outpace raises on purpose.

    Parameters
    ----------
    message
        One lower-case line without a full stop.
    span, text, where
        The place: a range in `text`, and what the text is ("pattern", "define DOWN").
    detail, hint
        More lines: what was found or expected, and what to try.

    Examples
    --------
    >>> print(PatternSyntaxError("expected a quantifier bound", span=Span(2, 3), text="A{x}",
    ...       where="pattern", hint="write A{2} or A{2,5}"))
    [syntax] expected a quantifier bound
      pattern, line 1, column 3
        A{x}
          ^
      hint: write A{2} or A{2,5}
    """

    code = "error"

    def __init__(
        self,
        message: str,
        *,
        span: Span | None = None,
        text: str | None = None,
        where: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.text = span.text if text is None and span is not None else text
        self.where = where
        self.detail = detail
        self.hint = hint

    def located(self, text: str, where: str) -> OutpaceError:
        """Fill in the text and its name where they are not known yet, and return self."""
        if self.text is None:
            self.text = text
        if self.where is None:
            self.where = where
        return self

    def in_sql(self) -> Self:
        """Let the hint be that for who writes SQL, where it has one of its own, and return self."""
        if isinstance(self.hint, Hint):
            self.hint = self.hint.sql
        return self

    def __str__(self) -> str:
        lines = [f"[{self.code}] {self.message}"]
        lines += _place_lines(self.span, self.text, self.where)
        if self.detail:
            lines += [f"  {line}" for line in self.detail.splitlines()]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class PatternSyntaxError(OutpaceError):
    """The text of a pattern, expression or statement does not parse.

    Examples
    --------
    >>> print(PatternSyntaxError("the pattern is empty", hint="the empty pattern is written ()"))
    [syntax] the pattern is empty
      hint: the empty pattern is written ()
    """

    code = "syntax"


class BindError(OutpaceError):
    """A name, type or combination in the query does not fit the input or the language.

    Examples
    --------
    >>> print(BindError("unknown column 'pirce'", where="define DOWN"))
    [bind] unknown column 'pirce'
      define DOWN
    """

    code = "bind"


class UnsupportedError(BindError):
    """The query asks for something that is valid elsewhere but not offered here.

    Examples
    --------
    >>> issubclass(UnsupportedError, BindError), UnsupportedError("SEEK is not supported").code
    (True, 'unsupported')
    """

    code = "unsupported"


class MatchError(OutpaceError):
    """Matching stopped: a skip target is missing, or the step budget is used up.

    Examples
    --------
    >>> print(MatchError("the skip target 'C' is not in the match"))
    [match] the skip target 'C' is not in the match
    """

    code = "match"


class DataError(OutpaceError):
    """The input data breaks a promise: a wrong type, an order that does not hold.

    Examples
    --------
    >>> print(DataError("the time 'ts' is NULL", detail="row 3 of the input"))
    [data] the time 'ts' is NULL
      row 3 of the input
    """

    code = "data"


class StateError(OutpaceError):
    """Saved state is damaged, or belongs to another version or another query.

    Examples
    --------
    >>> print(StateError("the saved state is cut short", detail="7 bytes"))
    [state] the saved state is cut short
      7 bytes
    """

    code = "state"


class InstanceError(OutpaceError):
    """A process that matches windows ended before its work was done.

    Examples
    --------
    >>> print(InstanceError("instance 1 was ended by SIGKILL"))
    [instance] instance 1 was ended by SIGKILL
    """

    code = "instance"


class ScenarioError(OutpaceError):
    """A scenario of the capacity simulator does not fit together.

    Parameters
    ----------
    subject
        What it is about, as a kind and names: ("vertex", "parser"), ("edge", "parser", "output").
        A reader of scenario files finds the line with it.

    Examples
    --------
    >>> print(ScenarioError("the vertex is on no VM", subject=("vertex", "parser")))
    [scenario] the vertex is on no VM
      vertex 'parser'
    """

    code = "scenario"

    def __init__(
        self,
        message: str,
        *,
        subject: tuple[str, ...] = (),
        span: Span | None = None,
        where: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        if where is None and subject:
            where = f"{subject[0]} {' -> '.join(repr(name) for name in subject[1:])}"
        super().__init__(message, span=span, where=where, detail=detail, hint=hint)
        self.subject = subject


def other_type(column: str, found: object, wanted: object) -> DataError:
    """Return the error for a column of a stream that comes with another type than before."""
    return DataError(
        f"column '{column}' is {found}, not {wanted} as before",
        hint="the first rows gave a stream its types: give them before, with op.open(schema=...)",
    )


def missing_column(column: str, found: Iterable[str]) -> DataError:
    """Return the error for rows of a stream without a column that the query uses."""
    return DataError(
        f"the pushed table has no column '{column}'",
        detail="it has " + ", ".join(found),
        hint=did_you_mean(column, found) or "the query uses it; where it has no value, push None",
    )


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint that names the closest known names, or None.

    Examples
    --------
    >>> did_you_mean("pirce", ["price", "volume"])
    "did you mean 'price'?"
    >>> did_you_mean("x", ["price"]) is None
    True
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    if not close:
        return None
    return "did you mean " + " or ".join(f"'{by_lower[key]}'" for key in close) + "?"


def _place_lines(span: Span | None, text: str | None, where: str | None) -> list[str]:
    if span is None or text is None:
        return [f"  {where}"] if where else []
    line_start = text.rfind("\n", 0, span.start) + 1
    line_end = text.find("\n", span.start)
    line_end = len(text) if line_end < 0 else line_end
    line_number = text.count("\n", 0, span.start) + 1
    column = span.start - line_start
    width = max(1, min(span.end, line_end) - span.start)
    line = text[line_start:line_end].replace("\t", " ")
    # A statement may be one very long line: show a window of it around the place.
    window = 100
    cut = 0 if len(line) <= window else max(0, column - window // 2)
    shown = line[cut : cut + window]
    width = min(width, max(1, window - (column - cut)))
    prefix = f"{where}, " if where else ""
    return [
        f"  {prefix}line {line_number}, column {column + 1}",
        f"    {shown}",
        f"    {' ' * (column - cut)}{'^' * width}",
    ]
