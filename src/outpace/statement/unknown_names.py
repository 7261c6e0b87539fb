"""Names that a statement reads and that are not there, found before a database is started.

What cannot be told for certain is left to the database: nothing is refused that it would take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from outpace.statement.dialect import spark_select
from outpace.statement.split import Statement


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
    for text in (*(step.source for step in statement.steps), statement.outer):
        tree = spark_select(text)
        if tree is None:
            continue
        own = there | {one.alias.lower() for one in tree.find_all(exp.CTE)}
        for table in tree.find_all(exp.Table):
            plain = isinstance(table.this, exp.Identifier) and not table.db
            if plain and table.name.lower() not in own:
                yield table.name
