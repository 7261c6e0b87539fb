"""A portable statement of Spark as DuckDB runs it, with the types, names and errors of Spark.

In Spark's SQL a whole number is an INT, or a BIGINT where it is larger; in DuckDB's it takes the
type of the column beside it. Spark refuses to divide by zero, DuckDB gives an infinite number. A
sum of whole numbers is a BIGINT in Spark, and their average a sum of doubles that is divided;
DuckDB adds in 128 bits. And a column without a name of its own gets another one.

DuckDB computes more than Spark, which stops at the first NULL: where DuckDB fails, Spark may not.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import sqlglot
from sqlglot import exp

from outpace.statement.step import Statement

#: Rules of DuckDB's optimiser that would leave out what Spark computes: `x + 1 > 5` becomes
#: `x > 4`, and of two conditions the simpler one goes first.
EAGER: Final = ("expression_rewriter", "filter_pushdown", "reorder_filter")
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
#: Doubles add whole numbers up to this in any order, and lose nothing.
_EXACT_MAX: Final = 2**53
#: Here a number counts rows or columns.
_COUNTS: Final = (exp.Limit, exp.Ordered, exp.Group)
_SIGNS: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_FORMS: Final[dict[type[exp.Expr], str]] = {
    exp.Paren: "{}",
    exp.Neg: "(- {})",
    exp.Count: "count({})",
    exp.Min: "min({})",
    exp.Max: "max({})",
    exp.Sum: "sum({})",
    exp.Avg: "avg({})",
}
_PLAIN_NUMBER: Final = re.compile(r"(0|[1-9]\d*)(\.\d+)?")


def for_duckdb(statement: Statement) -> Statement:
    """Return a portable statement, split for Spark, in the words of DuckDB.

    Examples
    --------
    >>> from outpace.statement.split import split
    >>> for_duckdb(split("SELECT count(*), max(n + 1) AS m FROM t", database="spark")).outer
    'SELECT COUNT(*) AS "count(1)", MAX("n" + CAST(1 AS INT)) AS "m" FROM "t"'
    """
    steps = tuple(replace(step, source=_translated(step.source)) for step in statement.steps)
    return replace(statement, steps=steps, outer=_translated(statement.outer))


def spark_name(node: exp.Expr) -> str | None:
    """Return the name that Spark gives to a column of a result; None where that is not known.

    Examples
    --------
    >>> select = sqlglot.parse_one("SELECT count(*), max(m.a - -1), -b, c AS d, e > 1 FROM m")
    >>> [spark_name(node) for node in select.selects]
    ['count(1)', 'max((a - -1))', '(- b)', 'd', None]
    """
    if isinstance(node, exp.Column | exp.Alias):
        return node.alias_or_name
    if isinstance(node, exp.Star):
        return "1"
    if isinstance(node, exp.Literal):
        plain = not node.is_string and _PLAIN_NUMBER.fullmatch(node.this)
        return node.this if plain else None
    if isinstance(node, exp.Distinct):
        inner = [spark_name(one) for one in node.expressions]
        return None if len(inner) != 1 or inner[0] is None else f"DISTINCT {inner[0]}"
    if isinstance(node, exp.Div | exp.Add | exp.Sub | exp.Mul):
        left, right = spark_name(node.this), spark_name(node.expression)
        return None if left is None or right is None else f"({left} {_SIGNS[type(node)]} {right})"
    inside = spark_name(node.this) if type(node) in _FORMS else None
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and inside is not None:
        return f"-{inside}"
    return None if inside is None else _FORMS[type(node)].format(inside)


def _translated(text: str) -> str:
    tree = sqlglot.parse_one(text, read="spark")
    for select in list(tree.find_all(exp.Select)):
        _name_columns(select)
    for division in reversed(list(tree.find_all(exp.Div, exp.Mod))):
        _guard(division)
    for number in list(tree.find_all(exp.Literal)):
        if not number.is_string and number.is_int and not isinstance(number.parent, _COUNTS):
            kind = "INT" if int(number.this) <= _INT_MAX else "BIGINT"
            number.replace(exp.cast(number.copy(), kind))
    for aggregate in list(tree.find_all(exp.Sum, exp.Avg)):
        aggregate.replace(_exact(aggregate))
    # Quoted names cannot be taken for a keyword of DuckDB.
    return tree.sql(dialect="duckdb", identify=True)


def _name_columns(select: exp.Select) -> None:
    columns: list[exp.Expr] = []
    for one in select.selects:
        name = spark_name(one)
        kept = isinstance(one, exp.Alias) or one.is_star
        columns.append(one if kept or name is None else exp.alias_(one, name, quoted=True))
    select.set("expressions", columns)


def summand(aggregate: exp.AggFunc) -> exp.Expr:
    """Return what is added up, each value of it or each once."""
    inside: exp.Expr = aggregate.this
    each: list[exp.Expr] = inside.expressions if isinstance(inside, exp.Distinct) else [inside]
    return each[0] if len(each) == 1 else inside


def _exact(aggregate: exp.AggFunc) -> exp.Expr:
    """Return a sum or an average of whole numbers that Spark gives in whatever order it adds.

    It fails where some order could leave the type in between, and Spark may fail or lose digits.
    """
    size = exp.Abs(this=exp.cast(summand(aggregate).copy(), "HUGEINT", dialect="duckdb"))
    total = exp.Sum(this=aggregate.this.copy())
    most = _LONG_MAX
    result: exp.Expr = exp.cast(total, "BIGINT")
    if isinstance(aggregate, exp.Avg):
        count = exp.Count(this=aggregate.this.copy())
        most, result = _EXACT_MAX, exp.Div(this=exp.cast(total, "DOUBLE"), expression=count)
    large = exp.GT(this=exp.Sum(this=size), expression=exp.Literal.number(most))
    failure = exp.func("error", exp.Literal.string("the sum is too large"))
    return exp.case().when(large, failure).else_(result)


def _guard(division: exp.Expr) -> None:
    """Let a division of something by zero fail, and let any number be a multiple of -1."""
    divisor = division.expression
    zero = exp.EQ(this=divisor.copy(), expression=exp.Literal.number(0))
    something = exp.not_(exp.Is(this=division.this.copy(), expression=exp.null()))
    failure = exp.func("error", exp.Literal.string("division by zero"))
    safe = exp.case().when(exp.and_(zero, something), failure)
    if isinstance(division, exp.Mod):
        # DuckDB takes the quotient of the smallest number and -1, which is too large.
        minus_one = exp.EQ(this=divisor.copy(), expression=exp.Literal.number(-1))
        safe = safe.when(minus_one, exp.Neg(this=exp.paren(divisor.copy())))
    division.set("expression", safe.else_(divisor.copy()))
    division.set("safe", False)
