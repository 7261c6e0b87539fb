"""Hosting user-defined operators like patterns: sorted, by partition, whole or in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.match.operator import Emitted
from outpace.engine.order.arrival import Arrival
from outpace.engine.rows.partition import key_codes, key_tuples, sort_rows
from outpace.engine.state import pack, parts, require, require_types, unpack
from outpace.errors import DataError, MatchError, OutpaceError, StateError
from outpace.pattern.bind.query import bind_operator
from outpace.pattern.bound import BoundQuery
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
        self._arrival = Arrival(self.bound, self.bound.partition_by)
        self._instances: dict[tuple[Hashable, ...], Operator] = {}
        #: The values that a partition shows; keys compare as partitions do, NaN with NaN.
        self._shown: dict[tuple[Hashable, ...], tuple[object, ...]] = {(): ()}

    @property
    def rows_kept(self) -> int:
        """None: what an operator keeps is its own."""
        return 0

    @property
    def partitions_kept(self) -> int:
        """How many partitions have an operator."""
        return len(self._instances)

    def starts_kept(self) -> int:
        """None: an operator has no partial matches that are known here."""
        return 0

    def push(self, table: pa.Table) -> Emitted:
        """Take the next rows, in order, and return what they give."""
        self._arrival.check(table)
        emitted = self._emitted([self.feed(key, piece) for key, piece in self.pieces(table)])
        self._arrival.take(table)
        return emitted

    def advance(self, watermark: int) -> Emitted:
        """Time alone closes no window that is a whole partition."""
        return self._emitted([])

    def finish(self) -> Emitted:
        """Close every window and return what that gives."""
        return self._emitted([self.close(key) for key in list(self._instances)])

    def feed(self, key: tuple[Hashable, ...], events: pa.Table) -> pa.Table:
        """Give events to a partition's operator."""
        if key not in self._instances:
            with self._told(key):
                self._instances[key] = self._make()
        operator = self._instances[key]
        with self._told(key, operator):
            rows = operator.process(events)
        return self._result(key, rows)

    def close(self, key: tuple[Hashable, ...]) -> pa.Table:
        """Close a partition's window."""
        operator = self._instances.pop(key)
        with self._told(key, operator):
            rows = operator.close()
        return self._result(key, rows)

    def pieces(self, table: pa.Table) -> list[tuple[tuple[Hashable, ...], pa.Table]]:
        """Part a table by partition, in the order of first rows, keeping the order of rows."""
        names = self.bound.partition_by
        if not table.num_rows:
            return []
        if not names:
            return [((), table)]
        codes, firsts = key_codes([table.column(name) for name in names])
        order = np.argsort(codes, kind="stable")
        bounds: Integers = np.searchsorted(codes[order], np.arange(len(firsts) + 1))
        keys = self._known(table.select(names).take(pa.array(firsts)))
        grouped = table.take(pa.array(order))
        return [
            (key, grouped.slice(low, high - low))
            for key, low, high in zip(keys, bounds[:-1], bounds[1:], strict=True)
        ]

    def state(self) -> bytes:
        """Return the operators' own states, by partition."""
        names = self.bound.partition_by
        shown = [self._shown[key] for key in self._instances]
        columns = {
            name: pa.array([values[i] for values in shown], self.bound.schema.field(name).type)
            for i, name in enumerate(names)
        }
        states = pa.array([one.state() for one in self._instances.values()], pa.binary())
        header = {"operator": self.bound.query.name}
        nothing = self.bound.schema.empty_table()
        tables = [pa.table({**columns, "": states}), self._arrival.latest, nothing]
        return pack(header, tables)

    def restore(self, data: bytes) -> None:
        """Go on from what `state` returned."""
        header, (saved, latest, _) = unpack(data, 3)
        if header.get("operator") != self.bound.query.name:
            raise StateError("the saved state belongs to another query")
        self._arrival.restore(latest)
        names = self.bound.partition_by
        require_types(saved.drop_columns([""]), pa.schema(map(self.bound.schema.field, names)))
        states = parts(saved, saved.num_rows, "")
        keys = self._known(saved.select(names)) if names else [()] * len(states)
        for key, content in zip(keys, states, strict=True):
            self._instances[key] = self._make()
            self._instances[key].restore(content)
        require(len(self._instances) == len(states), "partitions have the same key")

    def _known(self, keys: pa.Table) -> list[tuple[Hashable, ...]]:
        """Return keys as they compare, and note what new ones show."""
        known = key_tuples(keys)
        for key, row in zip(known, keys.to_pylist(), strict=True):
            self._shown.setdefault(key, tuple(row.values()))
        return known

    def _told(
        self, key: tuple[object, ...], operator: Operator | None = None
    ) -> AbstractContextManager[None]:
        return operator_errors(self.bound, operator, key)

    def _emitted(self, results: list[pa.Table]) -> Emitted:
        return Emitted(pa.concat_tables([self.nothing, *results]), pa.table({}))

    def _result(self, key: tuple[Hashable, ...], rows: Rows) -> pa.Table:
        if rows is None:
            return self.nothing
        shown = self._shown[key]
        own = pa.schema(list(self.bound.output)[len(key) :])
        table = fitted_rows(self.bound.query.name, own, [rows])
        constants = [
            pa.array([value] * table.num_rows, self.bound.output.field(i).type)
            for i, value in enumerate(shown)
        ]
        return pa.table([*constants, *table.columns], schema=self.bound.output)


@contextmanager
def operator_errors(
    bound: BoundQuery,
    operator: Operator | None,
    key: tuple[object, ...],
    window: int | None = None,
) -> Iterator[None]:
    """Name operator and window in what fails inside: it is the user's code that runs there."""
    try:
        yield
    except OutpaceError:
        raise
    except Exception as error:
        name = f"query {bound.query.name}" if operator is None else type(operator).__name__
        named = zip(bound.partition_by, key, strict=True)
        where = ", ".join(f"{column} = {value!r}" for column, value in named)
        if window is not None:
            where = f"window {window}" + (f" of {where}" if where else "")
        raise MatchError(
            f"operator {name} failed",
            where=where or None,
            detail=f"{type(error).__name__}: {error}",
        ) from error


def row_count(rows: Rows) -> int:
    """Return how many rows an operator gave."""
    if rows is None:
        return 0
    return rows.num_rows if isinstance(rows, pa.Table) else len(next(iter(rows.values()), ()))


def fitted_rows(name: str, schema: pa.Schema, given: Iterable[Rows]) -> pa.Table:
    """Return all that an operator gave as a table of a schema, or refuse what does not fit."""
    tables = [schema.empty_table()]
    try:
        # Columns of Python values are joined first: each conversion to Arrow costs more than a row.
        for as_tables, some in itertools.groupby(given, lambda rows: isinstance(rows, pa.Table)):
            pieces: list[Any] = [rows for rows in some if rows is not None]
            tables += [
                pa.table([table.column(f.name).cast(f.type) for f in schema], schema=schema)
                for table in (pieces if as_tables else [_joined(schema.names, pieces)])
            ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, TypeError) as error:
        raise DataError(
            f"operator {name} returned rows that do not fit its output", detail=str(error)
        ) from error
    return pa.concat_tables(tables)


def _joined(names: Sequence[str], pieces: Sequence[Mapping[str, Sequence[object]]]) -> pa.Table:
    for piece in pieces:
        if len({len(column) for column in piece.values()}) > 1:
            raise pa.ArrowInvalid("columns have different lengths")
    chained = itertools.chain.from_iterable
    return pa.table({name: list(chained(piece[name] for piece in pieces)) for name in names})
