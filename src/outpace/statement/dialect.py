"""The SQL dialects of whole statements, and the way from one to another.

Outpace reads MATCH_RECOGNIZE itself; everything around it is translated by sqlglot. Text that is
in the dialect of the database already is handed over untouched, so nothing that the database
understands gets lost on the way.
"""

from __future__ import annotations

import re
from itertools import pairwise

import sqlglot
from sqlglot import errors as sqlglot_errors
from sqlglot import exp

from outpace.errors import PatternSyntaxError, Span, UnsupportedError, did_you_mean
from outpace.pattern.notation.lexer import SourceText, TokenKind, tokenize
from outpace.statement.dialect_division import keep_integer_division

#: Dialects in which DECIMAL '1.50' has the digits of its text; after parsing it would be a cast to
#: the database's default number of digits.
_DECIMAL_LITERALS = frozenset({"trino", "presto", "athena"})
_DIGITS = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)")

#: The library's own dialect: MATCH_RECOGNIZE as Outpace has it, inside the database's own SQL.
OWN = "outpace"


class Flink(sqlglot.Dialect):
    """Flink SQL as far as it differs from the standard: names are quoted with backticks."""

    TYPED_DIVISION = True

    class Tokenizer(sqlglot.Tokenizer):
        """The quotes of Flink SQL."""

        IDENTIFIERS = ["`"]  # noqa: RUF012 - sqlglot's metaclass reads a plain list


def check_dialect(dialect: str) -> str:
    """Return the name of a dialect in lower case, or fail with the closest known names.

    Examples
    --------
    >>> check_dialect("Trino")
    'trino'
    >>> check_dialect("trinno")
    Traceback (most recent call last):
    outpace.errors.UnsupportedError: [unsupported] there is no dialect 'trinno'
      hint: did you mean 'trino'?
    """
    name = dialect.lower()
    # The known ones are listed only for who asks for another: that loads them all.
    if name != OWN and (not name or sqlglot.Dialect.get(name) is None):
        known = {OWN, *(key for key in sqlglot.Dialect.classes if key)}
        raise UnsupportedError(
            f"there is no dialect '{dialect}'",
            hint=did_you_mean(name, known) or f"known dialects: {', '.join(sorted(known))}",
        )
    return name


def translate(text: str, dialect: str, database: str) -> str:
    """Rewrite a statement in the dialect of a database.

    A place in an error counts from the beginning of `text`.

    Parameters
    ----------
    text
        One statement without MATCH_RECOGNIZE.
    dialect
        What it is written in; "outpace" is the database's own SQL.
    database
        The dialect that the database understands.

    Examples
    --------
    >>> translate("SELECT * FROM (VALUES 1, 2) t(x)", "trino", "duckdb")
    'SELECT * FROM (VALUES (1), (2)) AS "t"("x")'
    >>> translate("FROM t SELECT a", "outpace", "duckdb")
    'FROM t SELECT a'
    """
    if dialect in (OWN, database):
        return text
    if dialect in _DECIMAL_LITERALS:
        text = _with_plain_decimals(text, dialect)
    try:
        tree = keep_integer_division(sqlglot.parse_one(text, read=dialect), dialect)
        # Quoted names cannot be taken for a keyword of the database.
        return tree.sql(dialect=database, identify=True)
    except sqlglot_errors.ParseError as error:
        raise _syntax_error(error, text, dialect) from error
    except sqlglot_errors.SqlglotError as error:
        message = f"the statement cannot be rewritten from {dialect} to {database}"
        raise PatternSyntaxError(message, detail=str(error)) from error
    except RecursionError as error:
        raise PatternSyntaxError("the statement is nested too deeply") from error


def spark_select(text: str) -> exp.Select | None:
    """Return what a query in Spark's SQL says, or None if it is no SELECT or cannot be read.

    Examples
    --------
    >>> spark_select("SELECT a FROM t").selects[0].name, spark_select("SHOW TABLES")
    ('a', None)
    """
    try:
        tree = sqlglot.parse_one(text, read="spark")
    except (sqlglot_errors.SqlglotError, RecursionError):
        return None
    return tree if isinstance(tree, exp.Select) else None


def _with_plain_decimals(text: str, dialect: str) -> str:
    """Write DECIMAL '1.50' as 1.50, which has the same type; no place in the text changes.

    Examples
    --------
    >>> _with_plain_decimals("SELECT DECIMAL '1.50', DECIMAL '7', CAST('1.5' AS DECIMAL)", "trino")
    "SELECT         1.50 ,         7. , CAST('1.5' AS DECIMAL)"
    """
    tokens = tokenize(SourceText(text, dialect=dialect))
    for word, string in pairwise(tokens):
        if (
            word.key == "DECIMAL"
            and string.kind is TokenKind.STRING
            and _DIGITS.fullmatch(string.value)
        ):
            number = string.value if "." in string.value else f"{string.value}."
            place = number.rjust(string.end - word.start - 1).ljust(string.end - word.start)
            text = text[: word.start] + place + text[string.end :]
    return text


def _syntax_error(error: sqlglot_errors.ParseError, text: str, dialect: str) -> PatternSyntaxError:
    first = error.errors[0] if error.errors else {}
    highlight = str(first.get("highlight") or "")
    span = _place(text, first.get("line"), first.get("col"), len(highlight))
    found = f" at '{highlight}'" if highlight else ""
    return PatternSyntaxError(f"this is not {dialect} SQL{found}", span=span)


def _place(text: str, line: object, column: object, width: int) -> Span | None:
    """Return the place of a token from the line and the column where it ends, both from 1."""
    if not isinstance(line, int) or not isinstance(column, int):
        return None
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    end = min(start + column, len(text))
    return Span(max(0, end - width), end)
