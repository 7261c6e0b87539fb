"""Columns that the input of a clause has twice, where a dialect does not take the first of them.

DuckDB gives the second `k` of a subquery another name, so that `k` is the first one. Most systems
refuse to read `k` then, and so does a statement that is written in their dialects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

import pyarrow as pa
import sqlglot
from sqlglot import errors as sqlglot_errors
from sqlglot import exp

from outpace.pattern import ast
from outpace.pattern.bind.scope import resolve_column
from outpace.pattern.expression import Name, walk
from outpace.pattern.notation.lexer import SourceText, tokenize
from outpace.pattern.query import Query
from outpace.statement.step import Step


def inner_query(source: str, database: str) -> str | None:
    """Return the query whose columns a source reads all of; None where it is no subquery.

    Examples
    --------
    >>> inner_query("SELECT *, a + 1 AS b FROM (SELECT t.a, u.a FROM t, u) AS x", "duckdb")
    'SELECT t.a, u.a FROM t, u'
    >>> inner_query("WITH w AS (SELECT 1 AS a) SELECT * FROM w", "duckdb")
    'SELECT 1 AS a'
    """
    try:
        tree = sqlglot.parse_one(source, read=database)
    except (sqlglot_errors.SqlglotError, RecursionError):
        return None
    read = tree.args.get("from_") or tree.args.get("from")
    factor = None if read is None else read.this
    tables = {one.alias.lower(): one for one in tree.find_all(exp.CTE)}
    if isinstance(factor, exp.Table) and not factor.db and factor.name.lower() in tables:
        factor = tables.pop(factor.name.lower())
    if not isinstance(factor, exp.Subquery | exp.CTE) or factor.args.get("pivots"):
        return None
    inner = factor.this.copy()
    if isinstance(inner, exp.Select) and not inner.args.get("with_"):
        for name, table in tables.items():
            inner = inner.with_(name, table.this.copy(), copy=False)
    return str(inner.sql(dialect=database))


def check_ambiguous(step: Step, query: Query, columns: Collection[str], dialect: str) -> None:
    """Refuse a step that names a column which its input has more than once.

    Parameters
    ----------
    step, query
        The step, and what it finds.
    columns
        The names of the input's columns.
    dialect
        What the statement is written in.

    Examples
    --------
    >>> from outpace.statement.split import split
    >>> step = split("SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k PATTERN (A))").steps[0]
    >>> check_ambiguous(step, step.query, ["k", "n", "v", "V"], "trino")
    >>> check_ambiguous(step, step.query, ["k", "N", "K", "n"], "trino")
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] column 'k' is ambiguous: the input has 2 of that name
      partition by
      hint: give each a name of its own with AS
    """
    schema = pa.schema([(column.lower(), pa.null()) for column in columns])
    for name, where, node in (*_named(query), *_computed(step, dialect)):
        if schema.names.count(name.lower()) > 1:
            resolve_column(name.lower(), schema, where, node)


def _computed(step: Step, dialect: str) -> Iterator[tuple[str, str, Name]]:
    """Yield the names in what the database computes, which are no functions."""
    for column in step.computed:
        tokens = tokenize(SourceText(column.text, offset=column.span.start, dialect=dialect))
        for token, following in pairwise(tokens):
            if token.is_name and following.key not in ("(", "."):
                yield token.value, "statement", Name((token.value,), span=token.span)


def _named(query: Query) -> Iterator[tuple[str, str, Name | None]]:
    """Yield the columns that a query names, with the clause, and the node where there is one."""
    for name in query.partitions:
        yield name, "partition by", None
    for item in query.order:
        yield item.column, "order by", None
    known = set() if query.tree is None else {*ast.predicates(query.tree)}
    known.update(name for name, _ in query.subsets)
    clauses = (("define", query.definitions), ("measure", query.outputs))
    for where, (name, tree) in ((where, one) for where, named in clauses for one in named):
        for node in walk(tree):
            if isinstance(node, Name):
                variable = len(node.parts) > 1 and node.parts[0] in known
                yield node.parts[1 if variable else 0], f"{where} {name}", node
