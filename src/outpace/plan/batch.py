"""The plan of a batch on Spark: what Catalyst computes, what crosses to Python, how rows are cut.

Predicates that need only their own row become bits of one small integer column, computed where the
data is; the query that runs in Python reads the bits. Columns that nothing else needs stay behind,
and where the semantics allow it so do the rows that no step can use.
"""

from __future__ import annotations

import decimal
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import pyarrow as pa

from outpace.engine.match.operator import kept_columns, prepare
from outpace.engine.match.reach import reach_of
from outpace.errors import UnsupportedError
from outpace.pattern import ast, expression
from outpace.pattern.ast import Link
from outpace.pattern.bound import BoundQuery, Predicate, PredicateClass, Read
from outpace.pattern.bound import walk as walk_bound
from outpace.pattern.expression import Binary, Expression, Literal, Name
from outpace.pattern.print_expression import print_expression
from outpace.pattern.print_name import print_name
from outpace.pattern.query import Consume, Query, Rows, Selection, Skip, WithinKind

#: The column of bits, one for each predicate that Catalyst computes.
MASK: Final = "__outpace_mask"

#: Ranges are this many times as long as WITHIN, so a row is in two of them one time in so many.
RANGE_FACTOR: Final = 64

_BITS_MAX = 31

_BINARY = frozenset({"=", "<>", "<", "<=", ">", ">=", "and", "or", "+", "-", "*", "||"})
_CALLS = frozenset({"lower", "upper", "abs", "length", "coalesce"})


class Cut(Enum):
    """How rows are divided among tasks."""

    KEY = "by key"
    RANGE = "by time range"
    NONE = "not at all"


@dataclass(frozen=True)
class BatchPlan:
    """What a batch does.

    Parameters
    ----------
    query
        The query that Python runs: predicates that Catalyst computes are replaced by bits.
    bound
        The user's query, bound; its output is the result's schema.
    bits
        The Spark SQL text of each pushed predicate, by its bit, and the variable it defines.
    columns
        The input columns that cross.
    drop_unused
        Whether rows without any bit stay behind.
    cut, reason
        How rows are divided, and why not by range where they are not.
    width
        The length of a range in units of the time column.
    """

    query: Query
    bound: BoundQuery
    bits: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    drop_unused: bool
    cut: Cut
    reason: str
    width: int = 0

    @property
    def mask_sql(self) -> str:
        """Return the Spark SQL text of the column of bits."""
        terms = [
            f"CASE WHEN {sql} THEN {1 << bit} ELSE 0 END" for bit, (_, sql) in enumerate(self.bits)
        ]
        kind = "TINYINT" if len(terms) < 8 else "SMALLINT" if len(terms) < 16 else "INT"
        return f"CAST({' + '.join(terms)} AS {kind})"

    @property
    def mask_type(self) -> pa.DataType:
        """Return the type of the column of bits."""
        return (
            pa.int8() if len(self.bits) < 8 else pa.int16() if len(self.bits) < 16 else pa.int32()
        )

    def lines(self) -> list[str]:
        """Return what `explain()` shows of the plan."""
        pushed = [f"  bit {bit}: {name} AS {sql}" for bit, (name, sql) in enumerate(self.bits)]
        dropped = "rows without a bit stay behind" if self.drop_unused else "every row crosses"
        return [
            "on Spark",
            f"  computed by Catalyst: {len(self.bits)} of {len(self.bound.predicates)} predicates",
            *pushed,
            f"  columns that cross: {', '.join((*self.columns, *([MASK] if self.bits else [])))}",
            f"  rows: {dropped}",
            f"  divided {self.cut.value}" + (f": {self.reason}" if self.reason else ""),
        ]


def plan_batch(query: Query, schema: pa.Schema) -> BatchPlan:
    r"""Plan a batch over rows of a schema.

    Examples
    --------
    >>> query = (Query("q").order_by("ts").pattern("A -> B").within(10)
    ...          .define(A="kind = 'a'", B="kind = 'b' AND v > A.v").measures(at="B.ts"))
    >>> plan = plan_batch(query, pa.schema(
    ...     [("ts", pa.int64()), ("kind", pa.string()), ("v", pa.int64())]))
    >>> print("\n".join(plan.lines()))
    on Spark
      computed by Catalyst: 1 of 2 predicates
      bit 0: A AS kind = 'a'
      columns that cross: ts, kind, v, __outpace_mask
      rows: every row crosses
      divided by time range
    """
    if query.operator is not None:
        raise UnsupportedError(
            "user-defined operators do not run on Spark yet", hint="collect the rows to Arrow"
        )
    task = prepare(query, schema)
    definitions = dict(query.definitions)
    bits: list[tuple[str, str]] = []
    for predicate in task.bound.predicates:
        if (
            predicate.kind is PredicateClass.LOCAL
            and len(bits) < _BITS_MAX
            and not _reads_floats(predicate, schema)
        ):
            sql = _spark_text(definitions[predicate.name], predicate.name)
            if sql is not None:
                bits.append((predicate.name, sql))
    pushed = {name: bit for bit, (name, _) in enumerate(bits)}
    rewritten = replace(
        query,
        definitions=tuple(
            (name, _bit_test(pushed[name]) if name in pushed else tree)
            for name, tree in query.definitions
        ),
    )
    cut, reason = divide(query, task.bound, reach_of(task).back, reach_of(task).ahead)
    plan = BatchPlan(
        query=rewritten,
        bound=task.bound,
        bits=tuple(bits),
        columns=(),
        drop_unused=_can_drop(
            query, task.bound, pushed, reach_of(task).back or reach_of(task).ahead
        ),
        cut=cut,
        reason=reason,
        width=(task.bound.within or 0) * RANGE_FACTOR,
    )
    crossing = prepare(rewritten, schema.append(pa.field(MASK, plan.mask_type)))
    names = kept_columns(crossing, schema)
    return replace(plan, columns=tuple(name for name in names if name != MASK))


def quoted(name: str) -> str:
    """Return a column name as Spark SQL reads it, whatever it contains."""
    return "`" + name.replace("`", "``") + "`"


def _bit_test(bit: int) -> Expression:
    shifted = Binary("div", Name((MASK,)), Literal(1 << bit))
    return Binary("=", Binary("%", shifted, Literal(2)), Literal(1))


def _spark_text(tree: Expression, variable: str) -> str | None:
    """Return a predicate as Spark SQL, or None where Spark might not mean the same."""
    if not all(_same_in_spark(node) for node in expression.walk(tree)):
        return None

    def unqualified(node: Expression) -> Expression:
        if isinstance(node, Name) and len(node.parts) > 1 and node.parts[0] == variable:
            return Name(node.parts[1:])
        return node

    return print_expression(expression.transform(tree, unqualified), dialect="spark")


def _reads_floats(predicate: Predicate, schema: pa.Schema) -> bool:
    """Say whether a predicate may meet NaN, which Spark takes for the largest number."""
    assert predicate.expression is not None
    reads = [node for node in walk_bound(predicate.expression) if isinstance(node, Read)]
    return any(node.path or pa.types.is_floating(schema.field(node.column).type) for node in reads)


def _same_in_spark(node: Expression) -> bool:
    match node:
        case Binary(operator=operator):
            return operator in _BINARY
        case expression.Call(name=name):
            return name in _CALLS
        case expression.Like(pattern=pattern, escape=escape):
            # Spark's LIKE has a default escape character, SQL's has none.
            plain = isinstance(pattern, Literal) and "\\" not in str(pattern.value)
            return plain and escape is None
        case Literal(value=value):
            return value is None or isinstance(value, bool | int | float | str | decimal.Decimal)
        case (
            Name()
            | expression.Unary()
            | expression.IsNull()
            | expression.Between()
            | expression.InList()
            | expression.Case()
        ):
            return True
        case _:
            return False


def _can_drop(query: Query, bound: BoundQuery, pushed: dict[str, int], reaches: int) -> bool:
    assert query.tree is not None
    anchored = any(isinstance(n, ast.AtStart | ast.AtEnd) for n in ast.walk(query.tree))
    return (
        len(pushed) == len(bound.predicates)
        and Link.STRICT not in ast.links(query.tree)
        and not anchored
        and not reaches
        and query.rows is not Rows.ALL_WITH_UNMATCHED
    )


def divide(query: Query, bound: BoundQuery, back: int, ahead: int) -> tuple[Cut, str]:
    """Return how rows can be divided, and why not by range where they cannot."""
    if bound.partition_by:
        return Cut.KEY, ", ".join(print_name(name) for name in bound.partition_by)
    assert query.tree is not None
    reasons = {
        "there is no WITHIN": bound.within is None,
        "WITHIN measures from event to event": query.bound is not None
        and query.bound.kind is not WithinKind.FIRST_TO_LAST,
        "PREV or NEXT may reach any distance in time": back > 0 or ahead > 0,
        "the pattern has ^ or $": any(
            isinstance(n, ast.AtStart | ast.AtEnd) for n in ast.walk(query.tree)
        ),
        "the pattern can match nothing": _nullable(query.tree),
        "matches are numbered": _numbered(query),
        "there is a limit": bool(query.limits),
        "events are consumed": query.consumption is not Consume.NONE,
        "unmatched rows are asked for": query.rows is Rows.ALL_WITH_UNMATCHED,
        "rows of matches are asked for": query.rows is not Rows.ONE,
        "all matches are asked for and some are skipped": (
            query.effective_selection is Selection.ALL
            and query.effective_skip.skip is not Skip.NONE
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            return Cut.NONE, reason
    return Cut.RANGE, ""


def _numbered(query: Query) -> bool:
    trees = [tree for _, tree in (*query.definitions, *query.outputs)]
    return any(
        isinstance(node, expression.MatchNumber) for t in trees for node in expression.walk(t)
    )


def _nullable(pattern: ast.Pattern) -> bool:
    from outpace.engine.match.program import compile_program

    return compile_program(pattern, ast.predicates(pattern)).matches_empty
