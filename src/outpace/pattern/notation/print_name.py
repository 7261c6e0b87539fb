"""Names as text, quoted exactly where reading them back needs it, and objects of users."""

from __future__ import annotations

import re

from outpace.pattern.notation.lexer import BACKSLASH_DIALECTS

#: Words that cannot be a column or variable without quotes.
RESERVED = frozenset(
    {
        "AND", "AS", "BETWEEN", "BY", "CASE", "DISTINCT", "ELSE", "END", "ESCAPE", "EXISTS",
        "FALSE", "FOR", "FROM", "GROUP", "HAVING", "IN", "IS", "LIKE", "NOT", "NULL", "ON",
        "OR", "ORDER", "SELECT", "TABLE", "THEN", "TRUE", "USING", "VALUES", "WHEN", "WHERE",
        "WITH",
    }
)  # fmt: skip
#: Words that are printed in quotes although they are read without, where it is clear what is meant.
_QUOTED = RESERVED | frozenset(
    {
        "ALL", "ARRAY", "ASC", "ASYMMETRIC", "CAST", "CONSUME", "CURRENT", "DEFINE", "DESC", "DIV",
        "EXTRACT",
        "FINAL", "INITIAL", "INTERVAL", "LIMIT", "MATCH_RECOGNIZE", "MEASURES", "NULLS", "OMIT",
        "PATTERN", "PER", "PERMUTE", "PREVIOUS", "RUNNING", "SEEK", "SHOW", "SUBSET", "TRY_CAST",
        "SYMMETRIC", "UNTIL", "WITHIN",
    }
)  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def print_name(name: str, *, dialect: str = "outpace", quoted: bool = False) -> str:
    """Write a name, in quotes where it needs them or where asked to.

    Examples
    --------
    >>> print(print_name("price"), print_name("unit price"), print_name("order"))
    price "unit price" "order"
    >>> print_name("order", dialect="spark")
    '`order`'
    """
    if not quoted and _PLAIN.fullmatch(name) and name.upper() not in _QUOTED:
        return name
    quote = "`" if dialect in BACKSLASH_DIALECTS else '"'
    return quote + name.replace(quote, quote * 2) + quote


def print_object(value: object) -> str:
    """Write what a user made in Python: as it says itself, else by its class.

    Examples
    --------
    >>> class Mine: ...
    >>> print_object(Mine()), print_object(7)
    ('Mine()', '7')
    """
    if type(value).__repr__ is not object.__repr__:
        return repr(value)
    return f"{type(value).__name__}({'...' if getattr(value, '__dict__', None) else ''})"
