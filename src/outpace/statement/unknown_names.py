"""Tables and columns that a statement reads and nobody knows, found before a database is started.

What cannot be told for certain is left to the database: nothing is refused that it would take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sqlglot import exp

from outpace.statement.dialect import spark_select
from outpace.statement.spark_on_duckdb import spark_name
from outpace.statement.step import Statement

#: Where all that stands between a column and its SELECT is of these kinds, it can be nothing else.
_AROUND: Final = (
    *(exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Join, exp.Alias, exp.Paren),
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Like, exp.Predicate),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.DPipe, exp.Concat, exp.Coalesce),
    *(exp.Cast, exp.Case, exp.If, exp.Count, exp.Distinct, exp.Min, exp.Max, exp.Sum, exp.Avg),
    *(exp.Round, exp.Abs, exp.Upper, exp.Lower, exp.Length, exp.Stddev, exp.Variance),
)
#: What brings columns of its own.
_TABLES: Final = (exp.Lateral, exp.Unnest, exp.Values, exp.Pivot, exp.UDTF, exp.Aliases)
#: What Spark understands where there is no such column.
_WORDS: Final = frozenset(
    {"current_date", "current_timestamp", "current_time", "localtimestamp", "current_user"}
    | {"session_user", "user", "grouping__id", "all"}
)


def unknown_tables(statement: Statement, known: Iterable[str]) -> Iterator[str]:
    """Yield the plain names of tables that a statement reads and that are not known.

    Examples
    --------
    >>> from outpace.statement.split import split
    >>> text = "WITH a AS (SELECT * FROM tiks) SELECT * FROM a JOIN lake.b USING (x), range(3)"
    >>> list(unknown_tables(split(text, database="spark"), ["ticks"]))
    ['tiks']
    """
    steps = {step.table for step in statement.steps}
    there = {name.lower() for name in (*known, *steps)}
    for text in (*(text for step in statement.steps for text in step.sources), statement.outer):
        tree = spark_select(text)
        if tree is None:
            continue
        own = there | {one.alias.lower() for one in tree.find_all(exp.CTE)}
        for table in tree.find_all(exp.Table):
            plain = isinstance(table.this, exp.Identifier) and not table.db
            if plain and table.name.lower() not in own:
                yield table.name


def unknown_columns(
    statement: Statement, known: Mapping[str, Iterable[str]]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns that no table of a statement has, each with those that there are.

    Parameters
    ----------
    statement
        A statement that is split for Spark.
    known
        The columns of the tables that are known, also of the steps, by the tables' names in lower
        case.

    Examples
    --------
    >>> from outpace.statement.split import split
    >>> text = "SELECT upper(symbl), prise + 1 AS symbol FROM ticks t WHERE t.symbol = s.x.y"
    >>> list(unknown_columns(split(text, database="spark"), {"ticks": ["symbol", "price"]}))
    [('symbl', ['price', 'symbol']), ('prise', ['price', 'symbol'])]
    """
    for text in (*(text for step in statement.steps for text in step.sources), statement.outer):
        tree = spark_select(text)
        columns = None if tree is None else _columns(tree, known)
        if tree is None or columns is None:
            continue
        # A name that the statement itself gives to anything is not looked at more closely.
        given = {
            node.name.lower()
            for node in tree.find_all(exp.Identifier, exp.Literal)
            if not isinstance(node.parent, exp.Column) or node.arg_key != "this"
        }
        there = {name.lower() for name in columns} | given | _WORDS
        for column in tree.find_all(exp.Column):
            if column.name.lower() not in there and _is_certain(column, tree):
                yield column.name, sorted(columns)


def _columns(tree: exp.Select, known: Mapping[str, Iterable[str]]) -> set[str] | None:
    """Return the columns of all tables that a query reads; None where one is not known."""
    if tree.find(*_TABLES):
        return None
    own = {one.alias.lower() for one in tree.find_all(exp.CTE)}
    columns: set[str] = set()
    for table in tree.find_all(exp.Table):
        name = table.name.lower()
        plain = isinstance(table.this, exp.Identifier) and not table.db
        if not plain or (name not in own and name not in known):
            return None
        columns.update(known.get(name, ()))
    selects = [select for select in tree.find_all(exp.Select) if select is not tree]
    return columns if all(map(_is_named, selects)) else None


def _is_named(select: exp.Select) -> bool:
    """Say whether the names of a query's columns are known."""
    return all(one.is_star or spark_name(one) is not None for one in select.selects)


def _is_certain(column: exp.Column, tree: exp.Select) -> bool:
    """Say whether a column can be nothing else than a column of a table."""
    tables = {one.alias_or_name.lower() for one in tree.find_all(exp.Table, exp.Subquery)}
    if isinstance(column.this, exp.Star) or column.args.get("db"):
        return False
    if column.table and column.table.lower() not in tables:
        return False
    node: exp.Expr | None = column.parent
    while isinstance(node, _AROUND):
        if isinstance(node, exp.Order | exp.Group | exp.Having) and not _is_named(tree):
            return False
        node = node.parent
    return isinstance(node, exp.Select)
