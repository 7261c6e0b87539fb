"""Hosting user-defined operators: rows that fit their output, and errors that say where."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from outpace.errors import DataError, MatchError, OutpaceError
from outpace.pattern.bound import BoundQuery
from outpace.pattern.operator import Operator, OperatorRows


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
        if window is not None and bound.query.windows is not None:
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
