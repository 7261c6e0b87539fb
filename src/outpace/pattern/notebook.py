"""How queries and results show themselves: as text in a console, as HTML in a notebook.

Names and values are the user's, so all of them are escaped. Colours are set on the words
themselves and are readable on a light and on a dark page.
"""

from __future__ import annotations

from html import escape

import pyarrow as pa

from outpace.errors import OutpaceError
from outpace.pattern.notation.lexer import SourceText, TokenKind, tokenize
from outpace.pattern.query import Query

#: What the words of MATCH_RECOGNIZE begin or are part of.
_KEYWORDS = frozenset(
    {
        "AFTER", "ALL", "AND", "AS", "ASC", "BETWEEN", "BY", "CASE", "CONSUME", "COUNT", "CURRENT",
        "DEFINE", "DESC", "DISORDER", "DISTINCT", "ELSE", "EMIT", "EMPTY", "END", "EVENTS", "FINAL",
        "FIRST", "IN", "INSTANCES", "INTERVAL", "IS", "LAST", "LIKE", "LIMIT", "MATCH",
        "MATCHES", "MATCH_RECOGNIZE", "MEASURES", "NEXT", "NO", "NOT", "NULL", "NULLS", "OMIT",
        "ONE", "OR", "ORDER", "OVER", "PARTITION", "PAST", "PATTERN", "PER", "PERMUTE",
        "PREFERRED", "PREV", "PREVIOUS", "ROW", "ROWS", "RUNNING", "SELECT", "SELECTED", "SHOW",
        "SKIP", "SLIDE", "START", "SUBSET", "THEN", "TO", "UNMATCHED", "UNTIL", "WHEN", "WITH",
        "WITHIN",
    }
)  # fmt: skip
_COLOURS = {TokenKind.STRING: "#2e7d32", TokenKind.NUMBER: "#b35c00"}
_KEYWORD_STYLE = "color:#1f77b4;font-weight:bold"
_PRE = '<pre style="white-space:pre;overflow-x:auto;line-height:1.35">'

#: Of a longer table only the first rows are shown.
ROWS_SHOWN = 20


class Text(str):
    r"""A text of several lines that a console and a notebook show without `print`.

    Examples
    --------
    >>> Text("row  is\n1    true")
    row  is
    1    true
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"{_PRE}{escape(self)}</pre>"


def query_text(query: Query) -> str:
    """Return a query as it shows itself: its name and its clause, as far as it can be written.

    Examples
    --------
    >>> print(query_text(Query("rise").order_by("ts").pattern("A B")))
    query rise
    MATCH_RECOGNIZE (
      ORDER BY ts
      ONE ROW PER MATCH
      PATTERN (A B)
    )
    """
    return f"query {query.name}\n{_body(query)}"


def query_html(query: Query) -> str:
    """Return a query as HTML: its name and its clause in colours."""
    return f"<div><b>query {escape(query.name)}</b>{_PRE}{_coloured(_body(query))}</pre></div>"


def table_html(table: pa.Table, title: str) -> str:
    """Return the first rows of a table as HTML.

    Examples
    --------
    >>> "<td>&lt;b&gt;</td>" in table_html(pa.table({"x": ["<b>"]}), "1 match")
    True
    """
    head = "".join(f"<th>{escape(str(name))}</th>" for name in table.column_names)
    rows = [
        "<tr>" + "".join(f"<td>{_cell(row)}</td>" for row in values) + "</tr>"
        for values in zip(
            *(column.to_pylist() for column in table.slice(0, ROWS_SHOWN).columns), strict=True
        )
    ]
    left = table.num_rows - ROWS_SHOWN
    more = f"<p>and {left} more</p>" if left > 0 else ""
    return (
        f'<div style="overflow-x:auto"><p>{escape(title)}</p>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{more}</div>"
    )


def _cell(value: object) -> str:
    return "<i>NULL</i>" if value is None else escape(str(value))


def _body(query: Query) -> str:
    if query.operator is not None:
        name = getattr(query.operator, "__qualname__", repr(query.operator))
        return f"operator {name}"
    try:
        return query.to_sql() if query.tree is not None else query.to_python()
    except OutpaceError:
        # Windows that a Python predicate opens have no text.
        return f"pattern {query.to_text()}"


def _coloured(sql: str) -> str:
    parts: list[str] = []
    place = 0
    try:
        tokens = tokenize(SourceText(sql, "query"))
    except OutpaceError:
        return escape(sql)
    for token in tokens:
        word = escape(sql[token.start : token.end])
        style = _KEYWORD_STYLE if token.key in _KEYWORDS else None
        if token.kind in _COLOURS:
            style = f"color:{_COLOURS[token.kind]}"
        parts.append(escape(sql[place : token.start]))
        parts.append(f'<span style="{style}">{word}</span>' if style else word)
        place = token.end
    return "".join(parts) + escape(sql[place:])
