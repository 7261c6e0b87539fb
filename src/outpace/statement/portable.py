"""Which statements mean the same on Spark and on DuckDB, so that a command may choose.

Only what is known to agree passes: names of columns, `count`, `min` and `max`, `sum` and `avg` of
whole numbers, comparisons within one kind of values, arithmetic of doubles and of whole numbers,
joins, groups, orders and limits. Everything else (sums of doubles, whose last digits depend on the
order of rows, arithmetic of decimals, casts, functions) differs somewhere between databases, in a
result's type if nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final

import pyarrow as pa
from sqlglot import exp

from outpace.pattern.notation.lexer import SourceText, tokenize
from outpace.statement.dialect import spark_select
from outpace.statement.spark_on_duckdb import spark_name, summand
from outpace.statement.step import Statement

_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In)
_DIVISIONS: Final = (exp.Div, exp.Mod)
_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, *_DIVISIONS)
_PORTABLE: Final = (
    *(exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered),
    *(exp.Limit, exp.With, exp.CTE, exp.Subquery, exp.Table, exp.TableAlias, exp.Distinct),
    *(exp.Column, exp.Identifier, exp.Star, exp.Alias, exp.Literal, exp.Null, exp.Boolean),
    *(exp.Paren, exp.And, exp.Or, exp.Not, exp.Is, exp.Count, exp.Min, exp.Max),
    *(exp.Sum, exp.Avg, exp.Neg, *_COMPARISONS, *_ARITHMETIC),
)
#: From narrow to wide; the sum of two is as wide as the wider one.
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
_NUMBERS: Final = frozenset({*_INTEGERS, "decimal", "double"})
#: A double holds every whole number of so many digits.
_EXACT_DIGITS: Final = 15
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|\+00:00)?)?")
#: What is said where there is nothing better to say.
_ELSEWHERE: Final = "SQL that may differ in process"
#: Sums of sums and the like; what looks at them calls itself for each.
_LEVELS_MAX: Final = 200
#: A reason shows so much of a statement.
_SHOWN: Final = 50

_Kinds = dict[str, set[str]]


def differences(statement: Statement, schemas: Mapping[str, Iterable[pa.Field]]) -> str | None:
    """Say what of a statement may differ between Spark and DuckDB; None if nothing does.

    DuckDB runs what `for_duckdb` makes of the statement.

    Parameters
    ----------
    statement
        A statement that is split for Spark.
    schemas
        The columns of every table that it can read and that is known.

    Examples
    --------
    >>> from outpace.statement.split import split
    >>> ticks = {"ticks": [pa.field("price", pa.float64()), pa.field("size", pa.int64())]}
    >>> differences(split("SELECT price / size AS p FROM ticks", database="spark"), ticks)
    >>> differences(split("SELECT round(price) AS p FROM ticks", database="spark"), ticks)
    'SQL that may differ in process: round(price), line 1'
    >>> differences(split("SELECT size * 1.1 AS more FROM ticks", database="spark"), ticks)
    'arithmetic of other types than whole numbers and doubles: size * 1.1, line 1'
    """
    if any(step.lookups for step in statement.steps):
        return "a subquery of MEASURES or DEFINE"
    if any(step.joined for step in statement.steps):
        return "a join with WITHIN"
    if any(step.window for step in statement.steps):
        return "a row pattern in a window"
    if any(step.computed for step in statement.steps):
        return "an expression in PARTITION BY or ORDER BY"
    texts = [*(step.source for step in statement.steps), statement.outer]
    trees = [tree for tree in map(spark_select, texts) if tree is not None]
    if len(trees) < len(texts):
        return "more than one SELECT"
    nodes = [node for tree in trees for node in tree.walk()]
    if _levels(nodes) > _LEVELS_MAX:
        return f"more than {_LEVELS_MAX} parts in one another"
    kinds = _named_kinds(nodes, schemas)
    for node in nodes:
        found = _difference(node, kinds)
        if found is not None:
            return f"{found[0]}: {_written(found[1], statement)}"
    return None


def kind_of(column: pa.DataType) -> str:
    """Return the kind of a column's values; empty where hosts differ.

    Examples
    --------
    >>> kind_of(pa.int8()), kind_of(pa.float64()), kind_of(pa.float32())
    ('tinyint', 'double', '')
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
    if pa.types.is_signed_integer(column):
        return _INTEGERS[column.byte_width.bit_length() - 1]
    return "decimal" if pa.types.is_decimal128(column) else ""


def _levels(nodes: Iterable[exp.Expr]) -> int:
    """Return how deep nodes are, each after the one that it is part of."""
    levels = {id(None): 0}
    for node in nodes:
        levels[id(node)] = levels[id(node.parent)] + 1
    return max(levels.values())


def _named_kinds(nodes: Iterable[exp.Expr], schemas: Mapping[str, Iterable[pa.Field]]) -> _Kinds:
    """Return of which kinds a column of a name may be, wherever in the statement it is."""
    kinds: _Kinds = {}
    for fields in schemas.values():
        for field in fields:
            kinds.setdefault(field.name.lower(), set()).add(kind_of(field.type))
    computed = [one for node in nodes if isinstance(node, exp.Select) for one in node.selects]
    known = -1
    # What one column is computed from may be computed itself.
    while known != (known := sum(map(len, kinds.values()))):
        for one in computed:
            name = (spark_name(one) or "").lower()
            kinds.setdefault(name, set()).update(_kinds(one.unalias(), kinds))
    return kinds


def _difference(node: exp.Expr, kinds: _Kinds) -> tuple[str, exp.Expr] | None:
    """Return what differs about a node, without those in it, and where."""
    if not isinstance(node, _PORTABLE):
        return _ELSEWHERE, node
    other = _other(node)
    if other is not None:
        return _ELSEWHERE, other
    if isinstance(node, exp.Select):
        return _nameless(node)
    if isinstance(node, _COMPARISONS) and not _is_plain(node, kinds):
        return "a comparison of different types", node
    if isinstance(node, _DIVISIONS) and any(
        side.find(*_DIVISIONS) for side in (node.this, node.expression)
    ):
        return "a division of a quotient", node
    if isinstance(node, (exp.Neg, *_ARITHMETIC)) and "" in (_kinds(node, kinds) or {""}):
        return "arithmetic of other types than whole numbers and doubles", node
    if isinstance(node, exp.Sum | exp.Avg) and _kinds(node, kinds) == {""}:
        return "a sum or an average of other types than whole numbers", node
    return None


def _other(node: exp.Expr) -> exp.Expr | None:
    """Return what is not portable about a node of a portable kind."""
    if isinstance(node, exp.Select):
        return _first_other(node, _OF_SELECT)
    if isinstance(node, exp.Join):
        found = node if node.args.get("on") is None else None
        return found or _first_other(node, ("this", "on", "side", "kind"))
    if isinstance(node, exp.Table):
        return node if node.db else _first_other(node, ("this", "alias"))
    if isinstance(node, exp.Ordered):
        return _first_other(node, ("this", "desc", "nulls_first"))
    if isinstance(node, exp.Group):
        return _first_other(node, ("expressions",))
    strange = (
        (isinstance(node, exp.Null) and not isinstance(node.parent, exp.Is))
        or (isinstance(node, exp.TableAlias) and bool(node.columns))
        or (isinstance(node, exp.Count | exp.Min | exp.Max) and bool(node.expressions))
        or (isinstance(node, exp.Distinct) and _is_of_several(node))
        or (isinstance(node, exp.Literal) and not node.is_string and not _has_one_type(node))
    )
    return node if strange else None


_OF_SELECT: Final = (
    *("expressions", "distinct", "from_", "from", "joins", "where", "group", "having", "order"),
    *("limit", "with_", "with"),
)


def _first_other(node: exp.Expr, known: Iterable[str]) -> exp.Expr | None:
    others = [value for name, value in node.args.items() if value and name not in known]
    first = others[0][0] if others and isinstance(others[0], list) else (others or [None])[0]
    return first if first is None or isinstance(first, exp.Expr) else node


def _is_of_several(distinct: exp.Distinct) -> bool:
    return isinstance(distinct.parent, exp.Count) and len(distinct.expressions) != 1


def _has_one_type(number: exp.Literal) -> bool:
    """Say whether a number has the same type everywhere, or one that does not show."""
    if number.is_int:
        return int(number.this) < 2**63
    user = number.find_ancestor(*_COMPARISONS, *_ARITHMETIC, exp.Select)
    return "e" in number.this.lower() or not isinstance(user, exp.Select)


def _nameless(select: exp.Select) -> tuple[str, exp.Expr] | None:
    """Return what is wrong with the names of the columns, if they are not told, each once."""
    for one in select.selects:
        if one.is_star:
            alone = len(select.selects) == 1 and not select.args.get("joins")
            return None if alone else ("more than the columns of one table", select)
    names: set[str] = set()
    for one in select.selects:
        name = spark_name(one)
        if name is None:
            return "a column without a name", one
        if name.lower() in names:
            return "two columns with one name", one
        names.add(name.lower())
    return None


def _is_plain(node: exp.Expr, kinds: _Kinds) -> bool:
    """Say whether a comparison is of values of one kind, in the form that both databases read."""
    sides = [node.this, *_others(node)]
    kind_sets = [_kinds(side, kinds) or {""} for side in sides if not _is_constant(side)]
    every = {"number" if kind in _NUMBERS else kind for kind in set().union(*kind_sets)}
    if len(every) != 1 or "" in every:
        return False
    kind = next(iter(every))
    return all(_is_literal(side, kind) for side in sides if _is_constant(side))


def _kinds(node: exp.Expr, kinds: _Kinds) -> set[str]:
    """Return of which kinds a column, or what is computed from one, may be; "" is another one."""
    if isinstance(node, exp.Column):
        return kinds.get(node.name.lower(), set())
    if isinstance(node, exp.Count):
        return {"bigint"}
    if isinstance(node, exp.Min | exp.Max | exp.Paren):
        return _kinds(node.this, kinds)
    if isinstance(node, exp.Sum | exp.Avg):
        added = _kinds(summand(node), kinds)
        if not added or not added <= {*_INTEGERS}:
            return {""}
        return {"bigint" if isinstance(node, exp.Sum) else "double"}
    if isinstance(node, exp.Literal) and not node.is_string:
        return {_kind_of_number(node.this)}
    if isinstance(node, exp.Neg):
        # A minus in front makes one more number fit into the narrower type.
        border = isinstance(node.this, exp.Literal) and node.this.this == str(2**31)
        inside = {""} if border else _kinds(node.this, kinds)
        return {kind if kind in (*_INTEGERS, "double") else "" for kind in inside}
    if isinstance(node, _ARITHMETIC):
        left, right = _kinds(node.this, kinds), _kinds(node.expression, kinds)
        if left == {"double"} and _is_short_number(node.expression):
            return left
        if right == {"double"} and _is_short_number(node.this):
            return right
        return {_result(node, *pair) for pair in product(left, right)}
    return {""}


def _kind_of_number(written: str) -> str:
    if "e" in written.lower():
        return "double"
    if "." in written:
        return "decimal"
    return "int" if int(written) < 2**31 else "bigint"


def _result(node: exp.Expr, left: str, right: str) -> str:
    """Return the kind of what is computed from two kinds."""
    if left in _INTEGERS and right in _INTEGERS and not isinstance(node, exp.Div):
        return max(left, right, key=_INTEGERS.index)
    return "double" if {left, right} <= {*_INTEGERS, "double"} else ""


def _is_constant(node: exp.Expr) -> bool:
    return isinstance(node.this if isinstance(node, exp.Neg) else node, exp.Literal | exp.Boolean)


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


def _written(node: exp.Expr, statement: Statement) -> str:
    """Return a part of a statement in the words of its user, and its line, where it is found."""
    words = node.sql(dialect="spark")
    looked_for = [
        token.value.lower() for token in tokenize(SourceText(words, dialect="spark"))[:-1]
    ]
    tokens = tokenize(SourceText(statement.text, dialect=statement.dialect))
    values = [token.value.lower() for token in tokens]
    size, line = len(looked_for), ""
    for at in range(len(values) - size):
        if values[at : at + size] == looked_for:
            words = statement.text[tokens[at].start : tokens[at + size - 1].end]
            line = f", line {statement.text.count(chr(10), 0, tokens[at].start) + 1}"
            break
    for step in statement.steps:
        words = words.replace(step.table, step.query.name)
    words = " ".join(words.split())
    return (words if len(words) <= _SHOWN else f"{words[: _SHOWN - 3]}...") + line
