"""Hosting user-defined operators like patterns: sorted, by partition, whole or in pieces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from outpace.engine.match.contract import Integers
from outpace.engine.match.operator import Emitted
from outpace.engine.partition import key_codes, sort_rows
from outpace.engine.state import pack, unpack
from outpace.errors import DataError, StateError
from outpace.pattern.bind import bind_operator
from outpace.pattern.operator import Operator, Rows
from outpace.pattern.query import Query


def apply_to_table(query: Query, table: pa.Table) -> pa.Table:
    """Run a query's operator over every partition of a complete table."""
    applied = AppliedOperator(query, table.schema)
    order, _ = sort_rows(table, applied.bound)
    ordered = table if order is None else table.take(pa.array(order))
    results = []
    for key, piece in applied.pieces(ordered):
        results += [applied.feed(key, piece), applied.close(key)]
    return pa.concat_tables([applied.nothing, *results])


class AppliedOperator:
    """A query's operator over a stream, one instance for each partition."""

    def __init__(self, query: Query, schema: pa.Schema) -> None:
        assert query.operator is not None
        self._make = query.operator
        self.bound = bind_operator(query, schema)
        self.nothing = self.bound.output.empty_table()
        self._instances: dict[tuple[object, ...], Operator] = {}

    @property
    def rows_kept(self) -> int:
        """None: what an operator keeps is its own."""
        return 0

    def push(self, table: pa.Table) -> Emitted:
        """Take the next rows, in order, and return what they give."""
        return self._emitted([self.feed(key, piece) for key, piece in self.pieces(table)])

    def advance(self, watermark: int) -> Emitted:
        """Time alone closes no window that is a whole partition."""
        return self._emitted([])

    def finish(self) -> Emitted:
        """Close every window and return what that gives."""
        return self._emitted([self.close(key) for key in list(self._instances)])

    def feed(self, key: tuple[object, ...], events: pa.Table) -> pa.Table:
        """Give events to a partition's operator."""
        if key not in self._instances:
            self._instances[key] = self._make()
        return self._result(key, self._instances[key].process(events))

    def close(self, key: tuple[object, ...]) -> pa.Table:
        """Close a partition's window."""
        return self._result(key, self._instances.pop(key).close())

    def pieces(self, table: pa.Table) -> list[tuple[tuple[object, ...], pa.Table]]:
        """Part a table by partition, in the order of first rows, keeping the order of rows."""
        names = self.bound.partition_by
        if not table.num_rows:
            return []
        if not names:
            return [((), table)]
        codes, firsts = key_codes([table.column(name) for name in names])
        order = np.argsort(codes, kind="stable")
        bounds: Integers = np.searchsorted(codes[order], np.arange(len(firsts) + 1))
        keys = table.select(names).take(pa.array(firsts)).to_pylist()
        grouped = table.take(pa.array(order))
        return [
            (tuple(key[name] for name in names), grouped.slice(low, high - low))
            for key, low, high in zip(keys, bounds[:-1], bounds[1:], strict=True)
        ]

    def state(self) -> bytes:
        """Return the operators' own states, by partition."""
        names = self.bound.partition_by
        columns = {
            name: pa.array([key[i] for key in self._instances], self.bound.schema.field(name).type)
            for i, name in enumerate(names)
        }
        states = pa.array([one.state() for one in self._instances.values()], pa.binary())
        header = {"operator": self.bound.query.name}
        return pack(header, [pa.table({**columns, "": states}), self.bound.schema.empty_table()])

    def restore(self, data: bytes) -> None:
        """Go on from what `state` returned."""
        header, tables = unpack(data)
        if header.get("operator") != self.bound.query.name:
            raise StateError("the saved state belongs to another query")
        for row in tables[0].to_pylist():
            content = row.pop("")
            instance = self._make()
            instance.restore(content)
            self._instances[tuple(row.values())] = instance

    def _emitted(self, results: list[pa.Table]) -> Emitted:
        return Emitted(pa.concat_tables([self.nothing, *results]), pa.table({}))

    def _result(self, key: tuple[object, ...], rows: Rows) -> pa.Table:
        if rows is None:
            return self.nothing
        fields = [self.bound.output.field(i) for i in range(len(key), len(self.bound.output))]
        table = fitted_rows(self.bound.query.name, fields, rows)
        constants = [
            pa.array([value] * table.num_rows, self.bound.output.field(i).type)
            for i, value in enumerate(key)
        ]
        return pa.table([*constants, *table.columns], schema=self.bound.output)


def fitted_rows(name: str, fields: Sequence[pa.Field], rows: Rows) -> pa.Table:
    """Return what an operator gave as a table of these columns, or refuse what does not fit."""
    schema = pa.schema(fields)
    if rows is None:
        return schema.empty_table()
    try:
        table = rows if isinstance(rows, pa.Table) else pa.table(dict(rows))
        columns = [table.column(field.name).cast(field.type) for field in fields]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, TypeError) as error:
        raise DataError(
            f"operator {name} returned rows that do not fit its output", detail=str(error)
        ) from error
    return pa.table(columns, schema=schema)
