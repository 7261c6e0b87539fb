"""Hosting user-defined operators: over whole partitions, with errors that say where."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from outpace.engine.rows.partition import sort_rows
from outpace.errors import DataError, MatchError, OutpaceError
from outpace.pattern.bind.query import bind_operator
from outpace.pattern.bound import BoundQuery
from outpace.pattern.operator import Operator, OperatorRows
from outpace.pattern.query import Query


def apply_to_table(query: Query, table: pa.Table) -> pa.Table:
    """Run a query's operator over every partition of a complete table, one after the other."""
    assert query.operator is not None
    bound = bind_operator(query, table.schema)
    order, segments = sort_rows(table, bound)
    ordered = table if order is None else table.take(pa.array(order))
    names = bound.partition_by
    own = pa.schema(list(bound.output)[len(names) :])
    results = [bound.output.empty_table()]
    for low, high in itertools.pairwise(segments.tolist()):
        events = ordered.slice(low, high - low)
        key = tuple(events.column(name)[0].as_py() for name in names)
        with operator_errors(bound, None, key):
            operator = query.operator()
        with operator_errors(bound, operator, key):
            given = [operator.process(events), operator.close()]
        rows = fitted_rows(bound.query.name, own, given)
        shown = [
            events.column(name).take(pa.array(np.zeros(rows.num_rows, np.int64))) for name in names
        ]
        results.append(pa.table([*shown, *rows.columns], schema=bound.output))
    return pa.concat_tables(results)


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


def row_count(rows: OperatorRows) -> int:
    """Return how many rows an operator gave."""
    if rows is None:
        return 0
    return rows.num_rows if isinstance(rows, pa.Table) else len(next(iter(rows.values()), ()))


def fitted_rows(name: str, schema: pa.Schema, given: Iterable[OperatorRows]) -> pa.Table:
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
    if len(pieces) == 1:
        return pa.table({name: pieces[0][name] for name in names})
    chained = itertools.chain.from_iterable
    return pa.table({name: list(chained(piece[name] for piece in pieces)) for name in names})
