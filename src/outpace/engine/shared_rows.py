"""The rows of queries with one order of events: bits of single rows, each made once for all.

A condition that needs only its own row is a bit, which is computed once, however many queries ask
for it, and rows that no step of a query can use do not reach its operator: they only tell the time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.match.bits import (
    BITS,
    BitTask,
    bit_columns,
    columns_read,
    counts_unused,
    with_bits,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.partition import gather, one_array
from outpace.engine.rows.permutation import RearrangedRows
from outpace.errors import OutpaceError
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import Predicate
from outpace.pattern.disorder import KSlack, Late
from outpace.pattern.group import naming_query
from outpace.pattern.query import Query

#: A condition of rows as 0 and 1, or several of them as the bits of bytes.
Bits: TypeAlias = npt.NDArray[np.uint8]

_PER_COLUMN: Final = 8

#: The columns of bits that the queries share are named so, followed by their number.
_SHARED: Final = "__outpace_shared_"


@dataclass(frozen=True)
class GroupMember:
    """A query that shares an order; `whole` is its operator, were it alone."""

    whole: OperatorSpec

    @property
    def query(self) -> Query:
        """The query."""
        return self.whole.query

    @property
    def disorder(self) -> BoundDisorder:
        """How far its events are out of order."""
        assert self.whole.disorder is not None
        return self.whole.disorder

    @cached_property
    def bits(self) -> BitTask:
        """Its pattern, where rows bring bits."""
        assert self.whole.task is not None
        unknown = self.disorder.changed(clocks=self.whole.sources is not None)
        return with_bits(self.whole.task, unknown=unknown, follows=True)

    @cached_property
    def spec(self) -> OperatorSpec:
        """The operator behind the order: it takes rows as they come, and is told the time."""
        known = replace(
            self.whole,
            schema=self.bits.task.bound.schema,
            given=self.bits.task,
            disorder=None,
            sources=None,
            checked=False,
            brings_ids=True,
        )
        needed = set(known.events.names)
        columns = [field for field in known.schema if field.name in needed]
        return replace(known, schema=pa.schema(columns))

    @cached_property
    def drops(self) -> bool:
        """Whether rows that no step can use may be left out; timed-out rows tell their numbers."""
        return self.bits.drop_unused and self._counts_used

    @cached_property
    def drops_following(self) -> bool:
        """Whether they may where the row before, of the same key, is such a row."""
        return self.bits.drop_following and self._counts_used

    @property
    def _counts_used(self) -> bool:
        whole = self.whole
        return not whole.timeouts and not counts_unused(whole.bound, whole.windows)

    @cached_property
    def _nothing(self) -> pa.Table:
        return self.spec.arriving.empty_table()

    @property
    def ordering(self) -> tuple[object, ...]:
        """What queries agree on that share an order: its columns, and all settings but K.

        Where sources wait for each other, K counts as well.
        """
        bound, value = self.whole.bound, self.disorder.value
        slack = isinstance(value, KSlack) and value.arrival is None and value.late is not Late.PASS
        slack = slack and self.whole.sources is None
        settings = tuple(
            (name, one) for name, one in self.disorder.settings if not (slack and name == "slack")
        )
        sorted_by = bound.order_by, bound.descending, bound.nulls_first
        return type(value), slack, settings, self.disorder.ties, sorted_by, self.whole.measured

    def rows(self, released: SharedRows, numbers: Sequence[int]) -> pa.Table:
        """Return the rows that the operator needs, with its bits, which have these numbers."""
        chosen = None
        if self.drops:
            released = released.useful
        own = [released.bit(number) for number in numbers]
        if self.drops:
            chosen = np.flatnonzero(functools.reduce(np.bitwise_or, own).view(np.bool_))
            if not len(chosen):
                return self._nothing
            own = [bit.take(chosen) for bit in own]
        columns = [
            pa.array(_packed(own, int(field.name.removeprefix(BITS))))
            if field.name.startswith(BITS)
            else gather(released.column(field.name), chosen)
            for field in self.spec.arriving
        ]
        return pa.Table.from_arrays(columns, schema=self.spec.arriving)


class SharedBits:
    """The conditions of all queries, each once, as bits of columns that travel with the events."""

    def __init__(self, members: Iterable[GroupMember]) -> None:
        self.predicates: list[Predicate] = []
        #: The first query that has each of them.
        self._owners: list[Query] = []
        #: Where each is, by its text: 0.0 and -0.0 are equal, but not the same condition.
        self._places: dict[str, int] = {}
        #: How many conditions there are, equal ones counted each time.
        self.conditions = 0
        for member in members:
            with naming_query(member.query):
                predicates = member.bits.predicates
            self.conditions += len(predicates)
            for one in predicates:
                if (text := repr(one.expression)) not in self._places:
                    self._places[text] = len(self.predicates)
                    self.predicates.append(one)
                    self._owners.append(member.query)

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of bits."""
        count = -(-len(self.predicates) // _PER_COLUMN)
        return [pa.field(f"{_SHARED}{number}", pa.uint8()) for number in range(count)]

    def added(self, rows: pa.Table) -> pa.Table:
        """Return rows with all bits."""
        if not self.predicates:
            return rows
        predicates = tuple(self.predicates)
        columns = {name: one_array(rows.column(name)) for name in columns_read(predicates)}
        try:
            computed = bit_columns(predicates, columns, rows.num_rows)
        except OutpaceError:
            for one, owner in zip(predicates, self._owners, strict=True):
                with naming_query(owner):
                    bit_columns((one,), columns, rows.num_rows)
            raise
        for field, column in zip(self.fields, computed.values(), strict=True):
            rows = rows.append_column(field, column)
        return rows

    def numbers(self, task: BitTask) -> list[int]:
        """Return the number of the bit of each condition of a query."""
        return [self._places[repr(one.expression)] for one in task.predicates]

    def released(self, rows: pa.Table | RearrangedRows) -> SharedRows:
        """Return rows with all bits as they come out of an order."""
        return SharedRows(rows, [field.name for field in self.fields])


class SharedRows:
    """Rows that come out of an order, whose columns and bits are made once for all queries.

    Parameters
    ----------
    rows
        The rows.
    names
        Their columns of bits.
    chosen
        Which of the rows count; None: all.
    """

    def __init__(
        self,
        rows: pa.Table | RearrangedRows,
        names: Sequence[str],
        chosen: Integers | None = None,
    ) -> None:
        self._rows, self._names, self._chosen = rows, names, chosen
        self._columns: dict[str, pa.Array] = {}
        self._apart: dict[int, Bits] = {}

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self._rows.num_rows if self._chosen is None else len(self._chosen)

    def column(self, name: str) -> pa.Array:
        """Return a column in one piece."""
        if name not in self._columns:
            self._columns[name] = gather(self._rows.column(name), self._chosen)
        return self._columns[name]

    @cached_property
    def bits(self) -> Bits:
        """All bits: a line of bytes for each of their columns."""
        lines = [self.column(name).to_numpy() for name in self._names]
        return np.stack(lines) if lines else np.zeros((0, self.size), np.uint8)

    def bit(self, number: int) -> Bits:
        """Return a bit as 0 and 1."""
        if number not in self._apart:
            column, place = divmod(number, _PER_COLUMN)
            self._apart[number] = (self.bits[column] >> place) & 1
        return self._apart[number]

    @cached_property
    def useful(self) -> SharedRows:
        """The rows that have any bit."""
        used = np.flatnonzero(functools.reduce(np.bitwise_or, self.bits))
        return self if len(used) == self.size else SharedRows(self._rows, self._names, used)


def _packed(bits: Sequence[Bits], number: int) -> Bits:
    """Return the column of bits with a number."""
    own = bits[number * _PER_COLUMN : (number + 1) * _PER_COLUMN]
    column = own[0].copy()
    for bit, values in enumerate(own[1:], start=1):
        column |= values << bit
    return column
