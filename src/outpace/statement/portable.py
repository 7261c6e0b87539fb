"""Which statements mean the same on Spark and on DuckDB, so that a command may choose.

Only what is known to agree passes: names of columns, `count`, `min` and `max`, comparisons within
one kind of values, sums, differences and products of double numbers, joins, groups, orders and
limits. Everything else (other arithmetic, casts, functions) differs somewhere between databases, in
a result's type if nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from outpace.statement.split import Statement

_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In)
_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul)
_LITERALS: Final = (exp.Literal, exp.Boolean, exp.Neg)
_PORTABLE: Final = (
    *(exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered),
    *(exp.Limit, exp.With, exp.CTE, exp.Subquery, exp.Table, exp.TableAlias, exp.Distinct),
    *(exp.Column, exp.Identifier, exp.Star, exp.Alias, exp.Literal, exp.Null, exp.Boolean),
    *(exp.Paren, exp.And, exp.Or, exp.Not, exp.Is, exp.Count, exp.Min, exp.Max),
    *(exp.Neg, *_COMPARISONS, *_ARITHMETIC),
)
#: A double holds every whole number of so many digits.
_EXACT_DIGITS: Final = 15
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|\+00:00)?)?")


def differences(statement: Statement, schemas: Mapping[str, Iterable[pa.Field]]) -> str | None:
    """Say what of a statement may differ between Spark and DuckDB; None if nothing does.

    Parameters
    ----------
    statement
        A statement that is split for Spark.
    schemas
        The columns of every table that it can read and that is known.

    Examples
    --------
    >>> from outpace.statement.split import split
    >>> ticks = {"ticks": [pa.field("price", pa.float64())]}
    >>> differences(split("SELECT price FROM ticks WHERE price > 3", database="spark"), ticks)
    >>> differences(split("SELECT price / 2 AS half FROM ticks", database="spark"), ticks)
    'SQL that may differ elsewhere (Div)'
    >>> differences(split("SELECT price * 1.1 AS more FROM ticks", database="spark"), ticks)
    """
    kinds: dict[str, set[str]] = {}
    for fields in schemas.values():
        for field in fields:
            kinds.setdefault(field.name.lower(), set()).add(kind_of(field.type))
    if any(step.lookups for step in statement.steps):
        return "a subquery of MEASURES or DEFINE"
    trees = [
        _parsed(text) for text in (*(step.source for step in statement.steps), statement.outer)
    ]
    nodes = [node for tree in trees if tree is not None for node in tree.walk()]
    if None in trees or any(not isinstance(node, _PORTABLE) for node in nodes):
        other = next((type(n).__name__ for n in nodes if not isinstance(n, _PORTABLE)), "a command")
        return f"SQL that may differ elsewhere ({other})"
    for node in nodes:
        if isinstance(node, exp.Alias):
            kinds.setdefault(node.alias.lower(), set()).update(_kinds(node.this, kinds))
    for node in nodes:
        if _is_particular(node):
            return f"SQL that may differ elsewhere ({type(node).__name__})"
        if isinstance(node, _COMPARISONS) and not _is_plain(node, kinds):
            return "a comparison of different types"
        if isinstance(node, _ARITHMETIC) and _kinds(node, kinds) != {"double"}:
            return "arithmetic of other numbers than doubles"
    return None


def column_names(statement: Statement) -> list[str] | None:
    """Return the names of a portable statement's columns as it writes them; None with a star."""
    tree = _parsed(statement.outer)
    assert tree is not None
    names = [one.alias_or_name for one in tree.selects]
    return None if names == ["*"] else names


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
        tree = _parsed(text)
        if tree is None:
            continue
        own = there | {one.alias.lower() for one in tree.find_all(exp.CTE)}
        for table in tree.find_all(exp.Table):
            plain = isinstance(table.this, exp.Identifier) and not table.db
            if plain and table.name.lower() not in own:
                yield table.name


def kind_of(column: pa.DataType) -> str:
    """Return what the values of a column can be compared with; empty where hosts differ.

    Examples
    --------
    >>> kind_of(pa.int8()), kind_of(pa.float64()), kind_of(pa.float32())
    ('number', 'double', '')
    """
    if pa.types.is_string(column):
        return "text"
    if pa.types.is_boolean(column):
        return "truth"
    if pa.types.is_date32(column):
        return "date"
    if pa.types.is_timestamp(column):
        return "moment"
    if pa.types.is_float64(column):
        return "double"
    exact = pa.types.is_signed_integer(column) or pa.types.is_decimal128(column)
    return "number" if exact else ""


def _parsed(text: str) -> exp.Select | None:
    try:
        tree = sqlglot.parse_one(text, read="spark")
    except (SqlglotError, RecursionError):
        return None
    return tree if isinstance(tree, exp.Select) else None


def _is_particular(node: exp.Expr) -> bool:
    """Say whether a node of a portable kind has something that is not."""
    if isinstance(node, exp.Select):
        return _has_other(node, _OF_SELECT) or not _has_plain_columns(node)
    if isinstance(node, exp.Neg):
        return not isinstance(node.this, exp.Literal) or node.this.is_string
    if isinstance(node, exp.Null):
        return not isinstance(node.parent, exp.Is)
    if isinstance(node, exp.Table):
        return bool(node.db) or _has_other(node, ("this", "alias"))
    if isinstance(node, exp.TableAlias):
        return bool(node.columns)
    if isinstance(node, exp.Join):
        return node.args.get("on") is None or _has_other(node, ("this", "on", "side", "kind"))
    if isinstance(node, exp.Count | exp.Min | exp.Max):
        return bool(node.args.get("expressions"))
    if isinstance(node, exp.Ordered):
        return _has_other(node, ("this", "desc", "nulls_first"))
    return isinstance(node, exp.Group) and _has_other(node, ("expressions",))


def _has_plain_columns(select: exp.Select) -> bool:
    """Say whether the names of all columns are told, each once, or are those of one table."""
    if any(one.is_star and not isinstance(one, exp.Alias) for one in select.selects):
        return len(select.selects) == 1 and not select.args.get("joins")
    names = [one.alias_or_name.lower() for one in select.selects]
    named = all(isinstance(one, exp.Column | exp.Alias) for one in select.selects)
    return named and len(set(names)) == len(names)


_OF_SELECT: Final = (
    *("expressions", "distinct", "from_", "from", "joins", "where", "group", "having", "order"),
    *("limit", "with_", "with"),
)


def _has_other(node: exp.Expr, known: Iterable[str]) -> bool:
    return any(value for name, value in node.args.items() if name not in known)


def _is_plain(node: exp.Expr, kinds: Mapping[str, set[str]]) -> bool:
    """Say whether a comparison is of values of one kind, in the form that both databases read."""
    sides = [node.this, *_others(node)]
    told = [_kinds(side, kinds) for side in sides if not isinstance(side, _LITERALS)]
    every = {"number" if kind == "double" else kind for kind in set().union(*told)}
    if len(every) != 1 or "" in every:
        return False
    kind = next(iter(every))
    return all(_is_literal(side, kind) for side in sides if isinstance(side, _LITERALS))


def _kinds(node: exp.Expr, kinds: Mapping[str, set[str]]) -> set[str]:
    """Return of which kinds a column, or what is computed from one, may be; "" is unknown."""
    if isinstance(node, exp.Count):
        return {"number"}
    if isinstance(node, exp.Min | exp.Max | exp.Paren):
        return _kinds(node.this, kinds)
    if isinstance(node, _ARITHMETIC):
        sides = [one for one in (node.this, node.expression) if not _is_short_number(one)]
        return set().union(*(_kinds(one, kinds) for one in sides)) if sides else {""}
    return kinds.get(node.name.lower(), {""}) if isinstance(node, exp.Column) else {""}


def _is_short_number(node: exp.Expr) -> bool:
    """Say whether a node is a number that becomes the same double in every database."""
    node = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(node, exp.Literal) or node.is_string:
        return False
    return len(node.this.replace(".", "")) <= _EXACT_DIGITS and "e" not in node.this.lower()


def _others(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Between):
        return [node.args["low"], node.args["high"]]
    if isinstance(node, exp.In):
        # Without a list there is a subquery, which is no literal.
        return list(node.expressions) or [node]
    return [node.expression]


def _is_literal(side: exp.Expr, kind: str) -> bool:
    if isinstance(side, exp.Boolean):
        return kind == "truth"
    if isinstance(side, exp.Neg) or not side.is_string:
        return kind == "number"
    form = {"text": re.compile(r".*", re.DOTALL), "date": _DATE, "moment": _MOMENT}.get(kind)
    return form is not None and form.fullmatch(side.this) is not None
