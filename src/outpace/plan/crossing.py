"""What of a DataFrame crosses to Python: the bits that Catalyst computes, and what else is used.

Conditions that need only their own row, also as parts of larger ones, become bits of byte columns,
computed where the data is. Columns that nothing else needs stay behind, and where the semantics
allow it so do the rows that no step can use.

A condition is written in Spark SQL only where Spark means exactly what the engine means, whatever
the session's settings; else it stays in Python. Scans that Spark lets skip rows know neither NaN
nor that zero has two signs, so conditions that such rows may satisfy are written past them.
"""

from __future__ import annotations

import datetime
import decimal
import math
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from outpace.engine.event import EVENT_ID
from outpace.engine.match.bits import BITS, BitTask, counts_unused, with_bits
from outpace.engine.match.contract import Task
from outpace.engine.match.task import kept_columns, prepare
from outpace.pattern import types
from outpace.pattern.bind.window_kinds import bind_windows
from outpace.pattern.bound import Apply, BoundExpression, Constant, MatchIdentity, Read, walk
from outpace.pattern.functions import function_of
from outpace.pattern.functions.choice import spark_type
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.query import Query

_BITS_PER_COLUMN: Final = 8


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """What crosses, for one query or several.

    Parameters
    ----------
    schema
        The input's columns.
    columns
        Those that cross.
    computed
        The Spark SQL of each bit, and the variable that it belongs to.
    drop_unused
        Whether rows without any bit stay behind.
    bits
        The query that Python runs, which reads the bits; None for a user-defined operator, and for
        several queries.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    computed: tuple[tuple[str, str], ...] = ()
    drop_unused: bool = False
    bits: BitTask | None = None

    @property
    def brings_places(self) -> bool:
        """Whether rows bring their places among all, which are the ids of events."""
        return EVENT_ID.name in self.columns

    @property
    def bit_columns(self) -> dict[str, str]:
        """The Spark SQL of each column of bits, signed bytes, by the column's name."""
        columns: dict[str, list[str]] = {}
        for number, (_, sql) in enumerate(self.computed):
            column, bit = divmod(number, _BITS_PER_COLUMN)
            # The highest bit of a signed byte counts below zero.
            value = 1 << bit if bit < _BITS_PER_COLUMN - 1 else -(1 << bit)
            term = f"CASE WHEN {sql} THEN {value} ELSE 0 END"
            columns.setdefault(f"{BITS}{column}", []).append(term)
        return {name: f"CAST({' + '.join(terms)} AS TINYINT)" for name, terms in columns.items()}

    @property
    def used_sql(self) -> str | None:
        """The Spark SQL that says which rows cross; None where all do."""
        if not self.drop_unused:
            return None
        return " OR ".join(dict.fromkeys(sql for _, sql in self.computed))

    @property
    def row_schema(self) -> pa.Schema:
        """The columns that rows have when they have crossed, in their order."""
        fields = [self.schema.field(name) for name in self.columns]
        fields += [pa.field(name, pa.int8()) for name in self.bit_columns]
        # Rows without any column would not be counted on the way.
        return pa.schema(fields or [pa.field(f"{BITS}0", pa.int8())])

    def lines(self) -> list[str]:
        """Return what `explain()` shows of it."""
        size = len(self.bit_columns)
        added = [f"{size} byte{'s' * (size > 1)} of bits"] if size else []
        added += ["the places of rows"] if self.brings_places else []
        named = (name for name in self.columns if name != EVENT_ID.name)
        crossing = [", ".join(map(print_name, named)), *added]
        return [
            f"computed by Catalyst: {_count(len(self.computed), 'condition')}",
            *(f"  {name}: {sql}" for name, sql in self.computed),
            f"columns that cross to Python: {', and '.join(filter(None, crossing)) or 'none'}",
            f"rows that cross: {'those that fit a condition above' if self.drop_unused else 'all'}",
        ]


def plan_crossing(
    query: Query,
    schema: pa.Schema,
    *,
    timeouts: bool = False,
    unknown: frozenset[str] = frozenset(),
    places: bool = False,
) -> Crossing:
    """Decide what of rows of a schema crosses.

    Parameters
    ----------
    query, schema
        The query, and the input's columns.
    timeouts
        Whether partial matches that WITHIN ended are asked for.
    unknown
        The columns whose values events may get behind the crossing, as the time.
    places
        Whether rows bring their places among all where ids are asked for, as a column of their own.
    """
    if query.operator is not None:
        return Crossing(schema=schema, columns=tuple(schema.names))
    task = prepare(query, schema, timeouts=timeouts)
    if places:
        task = with_places(task)
    bits, computed = _computed_by_catalyst(task, unknown)
    windows = None if query.windows is None else bind_windows(query, schema)
    schema = task.bound.schema
    used = {*kept_columns(bits.task, schema), *(() if windows is None else windows.columns)}
    return Crossing(
        schema=schema,
        columns=tuple(name for name in schema.names if name in used),
        computed=computed,
        drop_unused=bits.drop_unused and not counts_unused(task.bound, windows),
        bits=bits,
    )


def with_places(task: Task) -> Task:
    """Return a pattern over rows that bring their places among all, where ids are asked for."""
    bound = task.bound
    if not bound.has(MatchIdentity):
        return task
    # Nothing shows the ids that rows bring.
    return replace(task, bound=replace(bound, schema=bound.schema.append(EVENT_ID)))


def _computed_by_catalyst(
    task: Task, unknown: frozenset[str]
) -> tuple[BitTask, tuple[tuple[str, str], ...]]:
    """Return the query that reads bits, and the variable and the Spark SQL of each bit."""
    bits = with_bits(task, lambda condition: catalyst_text(condition) is not None, unknown)
    computed = []
    for predicate in bits.predicates:
        assert predicate.expression is not None
        sql = catalyst_text(predicate.expression)
        assert sql is not None
        computed.append((predicate.name, sql))
    return bits, tuple(computed)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number or 'no'} {noun}s"


def catalyst_text(condition: BoundExpression) -> str | None:
    """Return a condition on one row as Spark SQL, or None where Spark might not mean the same.

    Examples
    --------
    >>> from outpace.pattern.bound import ReadPlace
    >>> price = Read(pa.float64(), "price", (), ReadPlace("last"))
    >>> catalyst_text(Apply(pa.bool_(), "<", (price, Constant(pa.float64(), 5.0))))
    '(`price` < 5.0D)'
    >>> catalyst_text(Apply(pa.bool_(), ">", (price, Constant(pa.float64(), 5.0))))
    '(`price` > 5.0D AND NOT isnan(`price`))'
    """
    text = _text(_past_scans(condition) if _skipped_by_scans(condition) else condition)
    # Spark puts a variable's value in its place, wherever it stands, unless a setting forbids it.
    return None if text is None or "${" in text else text


def _skipped_by_scans(condition: BoundExpression) -> bool:
    """Say whether a scan that gets the condition may skip rows that satisfy it.

    A Parquet file's bounds and dictionaries leave NaN out, which satisfies what is negated, and
    order negative zero before zero.
    """
    for node in walk(condition):
        if isinstance(node, Apply) and _reads_floats(node):
            if node.function in ("not", "<>", "case"):
                return True
            zero = any(isinstance(part, Constant) and part.value == 0 for part in node.arguments)
            if zero and node.function in ("=", "<=", ">=", "in"):
                return True
    return False


def _reads_floats(condition: BoundExpression) -> bool:
    return any(isinstance(node, Read) and types.is_floating(node.type) for node in walk(condition))


def _past_scans(node: BoundExpression) -> BoundExpression:
    """Return the same condition on sums with zero, which Spark does not give to a scan."""
    match node:
        case Read(type=kind) if types.is_floating(kind):
            return Apply(kind, "+", (node, Constant(kind, 0.0)))
        case Apply(type=kind, function=function, arguments=arguments):
            return Apply(kind, function, tuple(map(_past_scans, arguments)))
    return node


def quoted(name: str) -> str:
    """Return a column name as Spark SQL reads it, whatever it contains."""
    return "`" + name.replace("`", "``") + "`"


def _text(node: BoundExpression) -> str | None:
    match node:
        case Read(column=column, path=(), place=place) if place.shift == 0:
            return quoted(column) if spark_type(node.type) else None
        case Constant(value=value):
            return _constant(node.type, value)
        case Apply(arguments=arguments):
            spell = function_of(node).catalyst
            parts = [text for part in arguments if (text := _text(part)) is not None]
            return spell(node, parts) if spell and len(parts) == len(arguments) else None
        case _:
            return None


#: What tells the type of an integer literal.
_SUFFIXES: Final = {pa.int8(): "Y", pa.int16(): "S", pa.int32(): "", pa.int64(): "L"}


def _constant(kind: pa.DataType, value: object) -> str | None:
    name = spark_type(kind)
    match value:
        case _ if name is None:
            return None
        case None:
            return f"CAST(NULL AS {name})"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() if kind in _SUFFIXES:
            # The least number of a type is too large without its sign.
            least = value == types.integer_range(kind)[0]
            return f"CAST('{value}' AS {name})" if least else f"{value}{_SUFFIXES[kind]}"
        case float() if math.isfinite(value):
            text = f"{value!r}D"
            return text if pa.types.is_float64(kind) else f"CAST({text} AS {name})"
        case decimal.Decimal():
            return f"CAST('{value}' AS {name})"
        case str() if "'" not in value and "\\" not in value:
            # What a quote or a backslash means inside a literal depends on the session.
            return f"'{value}'"
        case datetime.date() if not isinstance(value, datetime.datetime):
            return f"DATE'{value.isoformat()}'"
        case _:
            return None
