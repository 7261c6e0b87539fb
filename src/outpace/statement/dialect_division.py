"""Division of integers in dialects where it gives integers, for databases where it does not.

In Trino 7 / 2 is 3, in DuckDB and Spark 3.5. What type a column has only the database knows, so it
is made to look: the quotient is cut where all operands are integers. Its value is then right; its
type is a double.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from outpace.errors import UnsupportedError

#: The names of integer types in DuckDB and Spark, in lower case.
_INTEGERS = ("tinyint", "smallint", "integer", "int", "bigint", "hugeint")
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div)


def keep_integer_division(tree: exp.Expr, dialect: str) -> exp.Expr:
    """Rewrite the divisions of a statement that the dialect understands as SQL's own.

    Examples
    --------
    >>> import sqlglot
    >>> tree = sqlglot.parse_one("SELECT 7 / 2, 7 / 2.0 AS b", read="trino")
    >>> keep_integer_division(tree, "trino").sql("duckdb")
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
