"""What of a DataFrame crosses to Python: the bits that Catalyst computes, and what else is used.

Conditions that need only their own row, also as parts of larger ones, become bits of byte columns,
computed where the data is. Columns that nothing else needs stay behind, and where the semantics
allow it so do the rows that no step can use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from outpace.engine.match.bits import BITS, BitTask, with_bits
from outpace.engine.match.contract import Task
from outpace.pattern.bound import BoundQuery
from outpace.pattern.notation.print_name import print_name
from outpace.plan.catalyst import catalyst_text

_BITS_PER_COLUMN: Final = 8


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """What crosses.

    Parameters
    ----------
    bound
        The user's query, bound; its output is the result's schema.
    computed
        The Spark SQL of each bit, and the variable that it belongs to.
    columns
        The input columns that cross.
    drop_unused
        Whether rows without any bit stay behind.
    """

    bound: BoundQuery
    computed: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    drop_unused: bool

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
    def crossing(self) -> pa.Schema:
        """The columns that cross, in their order."""
        fields = [self.bound.schema.field(name) for name in self.columns]
        fields += [pa.field(name, pa.int8()) for name in self.bit_columns]
        # Rows without any column would not be counted on the way.
        return pa.schema(fields or [pa.field(f"{BITS}0", pa.int8())])

    def crossing_lines(self) -> list[str]:
        """Return what `explain()` shows of it."""
        size = len(self.bit_columns)
        added = [f"{size} byte{'s' * (size > 1)} of bits"] if size else []
        crossing = [", ".join(map(print_name, self.columns)), *added]
        return [
            f"computed by Catalyst: {_count(len(self.computed), 'condition')}",
            *(f"  {name}: {sql}" for name, sql in self.computed),
            f"columns that cross to Python: {', and '.join(filter(None, crossing)) or 'none'}",
            f"rows that cross: {'those that fit a condition above' if self.drop_unused else 'all'}",
        ]


def computed_by_catalyst(task: Task) -> tuple[BitTask, tuple[tuple[str, str], ...]]:
    """Return the query that reads bits, and the variable and the Spark SQL of each bit."""
    bits = with_bits(task, lambda condition: catalyst_text(condition) is not None)
    computed = []
    for predicate in bits.predicates:
        assert predicate.expression is not None
        sql = catalyst_text(predicate.expression)
        assert sql is not None
        computed.append((predicate.name, sql))
    return bits, tuple(computed)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number or 'no'} {noun}s"
