"""The SQL dialects of whole statements, and the way from one to another.

Outpace reads MATCH_RECOGNIZE itself; everything around it is translated by sqlglot. Text that is
in the dialect of the database already is handed over untouched, so nothing that the database
understands gets lost on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import sqlglot
from sqlglot import errors as sqlglot_errors
from sqlglot import exp

from outpace.errors import PatternSyntaxError, Span, UnsupportedError
from outpace.pattern.notation.dialect import OWN
from outpace.pattern.notation.lexer import SourceText, TokenKind, tokenize

#: Dialects in which DECIMAL '1.50' has the digits of its text; after parsing it would be a cast to
#: the database's default number of digits.
_DECIMAL_LITERALS = frozenset({"trino", "presto", "athena"})
_DIGITS = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)")

#: The names of integer types in DuckDB and Spark, in lower case.
_INTEGERS = ("tinyint", "smallint", "integer", "int", "bigint", "hugeint")
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div)


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
        tree = _keep_integer_division(sqlglot.parse_one(text, read=dialect), dialect)
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


def _keep_integer_division(tree: exp.Expr, dialect: str) -> exp.Expr:
    """Rewrite divisions of integers for databases where they do not give integers.

    In Trino 7 / 2 is 3, in DuckDB and Spark 3.5. What type a column has only the database knows, so
    it is made to look: the quotient is cut where all operands are integers. Its value is then
    right; its type is a double.

    Examples
    --------
    >>> tree = sqlglot.parse_one("SELECT 7 / 2, 7 / 2.0 AS b", read="trino")
    >>> _keep_integer_division(tree, "trino").sql("duckdb")
    'SELECT TRUNC(7 / 2) AS "7 / 2", 7 / 2.0 AS b'
    """
    divisions = [node for node in tree.find_all(exp.Div) if node.args.get("typed")]
    _name_results(divisions, dialect)
    conditions = [list(_integer_conditions(division)) for division in divisions]
    # Inner divisions come later in the list and are rewritten first.
    for division, needed in reversed(list(zip(divisions, conditions, strict=True))):
        _rewrite(division, needed)
    return tree


def _name_results(divisions: list[exp.Div], dialect: str) -> None:
    """Let result columns with a division keep the name that they have in the statement."""
    for division in divisions:
        column: exp.Expr = division
        while column.parent is not None and not isinstance(column.parent, exp.Select | exp.Alias):
            column = column.parent
        if isinstance(column.parent, exp.Select) and column.arg_key == "expressions":
            name = exp.to_identifier(column.sql(dialect=dialect), quoted=True)
            named = exp.Alias(this=exp.Null(), alias=name)
            column.replace(named)
            named.set("this", column)


def _integer_conditions(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield what must hold for the value of an arithmetic expression to be an integer."""
    if isinstance(node, exp.Paren | exp.Neg):
        yield from _integer_conditions(node.this)
    elif isinstance(node, _ARITHMETIC):
        yield from _integer_conditions(node.this)
        yield from _integer_conditions(node.expression)
    elif isinstance(node, exp.Literal):
        if not node.is_int:
            yield exp.false()
    elif node.find(exp.Div):
        raise UnsupportedError(
            f"cannot tell whether {node.sql()} is an integer, which decides how '/' divides",
            hint="compute the inner quotient in a subquery of its own, or cast it",
        )
    else:
        names = [exp.Literal.string(name) for name in _INTEGERS]
        kind = exp.Lower(this=exp.func("typeof", node.copy()))
        yield exp.In(this=kind, expressions=names)


def _rewrite(division: exp.Div, needed: list[exp.Expr]) -> None:
    if exp.false() in needed:
        return
    plain = exp.Div(this=division.this, expression=division.expression, typed=False, safe=False)
    cut = exp.func("trunc", plain.copy())
    chosen = exp.case().when(exp.and_(*needed), cut).else_(plain) if needed else cut
    division.replace(exp.Paren(this=chosen) if needed else cut)
