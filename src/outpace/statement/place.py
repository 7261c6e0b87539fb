"""Places in the user's statement: of errors that only name something, and of text made from it.

A query holds the names of its columns and variables without their places, since most queries are
not read from text. Here they are looked up in the text of the clause that the error speaks of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from outpace.errors import OutpaceError, Span
from outpace.pattern.notation.lexer import SourceText, Token, tokenize

#: How the `where` of an error begins, or else its message, and the keyword of the clause.
_CLAUSES = {
    "partition by": "PARTITION",
    "order by": "ORDER",
    "measure": "MEASURES",
    "after match skip": "SKIP",
    "subset": "SUBSET",
    "define": "DEFINE",
    "within": "WITHIN",
    "pattern": "PATTERN",
}
_KEYWORDS = frozenset(_CLAUSES.values()) | {"ONE", "ALL", "AFTER"}
_QUOTED = re.compile(r"'([^']+)'")


def place_in_clause(error: OutpaceError, text: str, clause: Span, dialect: str) -> Span | None:
    """Return the place in a statement that an error without one speaks of, or None.

    Parameters
    ----------
    error
        Its `where` or its message says which clause is meant.
    text
        The whole statement.
    clause
        Where `MATCH_RECOGNIZE ( ... )` stands in it.
    dialect
        What the statement is written in.

    Examples
    --------
    >>> from outpace.errors import BindError
    >>> text = "FROM t MATCH_RECOGNIZE (ORDER BY tz PATTERN (A))"
    >>> error = BindError("unknown column 'tz'", where="order by")
    >>> place_in_clause(error, text, Span(7, len(text)), "outpace")
    Span(start=33, end=35)
    """
    subject = (error.where or error.message).lower()
    keyword = next((key for begin, key in _CLAUSES.items() if subject.startswith(begin)), None)
    if keyword is None:
        return None
    source = SourceText(text[clause.start : clause.end], offset=clause.start, dialect=dialect)
    tokens = _clause(tokenize(source), keyword)
    named = _QUOTED.search(error.message) or re.search(r"variable (\w+)", error.detail or "")
    if named is not None:
        found = [
            (before.key != "AS", token.start, token.span)
            for before, token in pairwise(tokens)
            if token.is_name and token.value.lower() == named[1].lower()
        ]
        if found:
            # The name of a measure is meant rather than a column that it reads.
            return min(found, key=lambda one: one[:2])[2]
    return tokens[0].span if tokens else None


def place_of_name(error: OutpaceError, text: str, clause: Span, dialect: str) -> Span | None:
    """Return where the name that an error quotes stands in a part of a statement, or None."""
    named = _QUOTED.search(error.message)
    source = SourceText(text[clause.start : clause.end], offset=clause.start, dialect=dialect)
    for token in tokenize(source) if named is not None else ():
        if named is not None and token.is_name and token.value.lower() == named[1].lower():
            return token.span
    return None


def _clause(tokens: list[Token], keyword: str) -> list[Token]:
    """Return the tokens from a keyword directly in the outer parentheses up to the next one."""
    depth = 0
    found: list[Token] = []
    for token in tokens:
        depth += (token.key == "(") - (token.key == ")")
        if found and depth == 1 and token.key in _KEYWORDS:
            break
        if found or (depth == 1 and token.key == keyword):
            found.append(token)
    return found


@dataclass(frozen=True, slots=True)
class Fragment:
    """Pieces of text, each with its place in the statement, or None where it is not from there.

    Examples
    --------
    >>> fragment = Fragment((("SELECT * FROM ", None), ("ticks", 40)))
    >>> fragment.text
    'SELECT * FROM ticks'
    >>> fragment.place(15), fragment.place(0)
    (41, None)
    """

    pieces: tuple[tuple[str, int | None], ...] = ()

    @staticmethod
    def join(parts: Iterable[str | Fragment]) -> Fragment:
        """Return one fragment of several parts; a plain string is not from the statement."""
        pieces: list[tuple[str, int | None]] = []
        for part in parts:
            pieces.extend(part.pieces if isinstance(part, Fragment) else ((part, None),))
        return Fragment(tuple(pieces))

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(piece for piece, _ in self.pieces)

    def place(self, index: int) -> int | None:
        """Return where in the statement the character at an index of the text comes from."""
        start = 0
        for piece, origin in self.pieces:
            if index < start + len(piece):
                return None if origin is None else origin + index - start
            start += len(piece)
        return None

    def relocate(self, error: OutpaceError, statement: str) -> OutpaceError:
        """Turn a place in the fragment's text into the place in the statement."""
        if error.span is not None and error.text is None:
            start = self.place(error.span.start)
            width = error.span.end - error.span.start
            error.span = None if start is None else Span(start, start + width)
        return error.located(statement, "statement")
