"""Which statements need all rows, so that their result over a stream would never come.

Only what Spark refuses for any stream without a watermark is found, in a SELECT that reads matches;
the rest Spark says itself when the query starts.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from outpace.errors import Span
from outpace.pattern.notation.lexer import SourceText, tokenize
from outpace.statement.dialect import spark_select
from outpace.statement.step import Statement


def needs_all_rows(statement: Statement) -> tuple[str, Span | None] | None:
    """Return what of a statement needs all matches, and where it stands; None if nothing does.

    Parameters
    ----------
    statement
        A statement that is split for Spark.

    Examples
    --------
    >>> from outpace.statement.split import split
    >>> clause = "ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES A.ts AS at PATTERN (A))"
    >>> for text in ("SELECT at FROM {}", "SELECT at, count(*) AS n FROM {} GROUP BY at"):
    ...     needs_all_rows(split(text.format(clause), database="spark"))
    ('GROUP BY', Span(start=98, end=103))
    """
    tree = spark_select(statement.outer)
    if tree is None:
        return None
    matches = {step.table.lower() for step in statement.steps}
    for select in tree.find_all(exp.Select):
        if not any(table.name.lower() in matches for table in select.find_all(exp.Table)):
            continue
        for what, word in _needs(select):
            return what, _place(statement, word)
    return None


def _needs(select: exp.Select) -> Iterator[tuple[str, str]]:
    """Yield what a SELECT needs all rows for, each with its first word."""
    for name, what in (("group", "GROUP BY"), ("distinct", "DISTINCT"), ("order", "ORDER BY")):
        if select.args.get(name):
            yield what, what.split()[0]
    for one in select.selects:
        # What is in a subquery is of its own rows.
        for node in one.walk(prune=lambda inner: isinstance(inner, exp.Query | exp.Window)):
            if isinstance(node, exp.Window):
                yield "a window function", "OVER"
            if isinstance(node, exp.AggFunc):
                yield f"the aggregate {node.sql_name().lower()}", node.sql_name()


def _place(statement: Statement, word: str) -> Span | None:
    """Return where a word stands first outside of the clauses that are matched."""
    for token in tokenize(SourceText(statement.text, dialect=statement.dialect)):
        inside = any(step.span.start <= token.start < step.span.end for step in statement.steps)
        if token.value.upper() == word.upper() and not inside:
            return token.span
    return None
