"""Two sides of a join as one stream, and the join of complete tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.match.finality import emission_order
from outpace.engine.match.output import match_table
from outpace.engine.match.partitions import WholePartitions
from outpace.engine.match.task import prepare, take_matches
from outpace.engine.rows.partition import gather
from outpace.engine.rows.times import valid_times
from outpace.errors import DataError
from outpace.pattern.bind.disorder import SOURCE
from outpace.pattern.bind.join import SEQUENCE, BoundJoin
from outpace.pattern.join import SIDES
from outpace.pattern.types import common_type, is_binary, is_string, type_name, value_type


def rows_of_side(join: BoundJoin, side: str, table: pa.Table) -> pa.Table:
    """Return the rows of one side as the stream of both has them.

    Raises
    ------
    DataError
        A column is missing, or has another type.
    """
    columns = join.columns[SIDES.index(side)]
    size = table.num_rows
    made = [
        pa.repeat(side, size)
        if field.name == SOURCE
        else _column(table, columns[field.name], field.type, side)
        if field.name in columns
        else pa.nulls(size, field.type)
        for field in join.schema
    ]
    return pa.table(made, schema=join.schema)


def _column(table: pa.Table, name: str, kind: pa.DataType, side: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise DataError(
            f"column '{name}' is missing",
            where=f"{side} side",
            detail=f"the columns are {', '.join(table.column_names)}",
        )
    column = table.column(name)
    given = value_type(column.type)
    texts = any(alike(given) and alike(kind) for alike in (is_string, is_binary))
    if given != kind and not texts and common_type(given, kind) != kind:
        raise DataError(
            f"column '{name}' has {type_name(given)}, not {type_name(kind)}", where=f"{side} side"
        )
    return column if column.type == kind else column.cast(kind)


def join_tables(join: BoundJoin, left: pa.Table, right: pa.Table) -> pa.Table:
    """Return the join of complete tables, in order of time.

    Rows of one time come as in a stream: by their sequence number where both tables have it, then
    those of the left table first, then as they are in their table.
    """
    sides = [rows_of_side(join, *each) for each in zip(SIDES, (left, right), strict=True)]
    both, order = pa.concat_tables(sides), _order(join, sides)
    columns = [gather(column, order) for column in both.columns]
    ordered = pa.table(columns, schema=join.schema)
    task = prepare(join.query, join.schema)
    whole = WholePartitions(task, ordered)
    order, _ = emission_order(whole.block, whole.found)
    found = take_matches(whole.found, order)
    return match_table(task, whole.block, found)


def _order(join: BoundJoin, sides: list[pa.Table]) -> Integers:
    """Return the order of the rows of both sides."""
    time = join.query.order[0].column
    times = []
    for side, rows in zip(SIDES, sides, strict=True):
        try:
            times.append(valid_times(time, rows.column(time), range(rows.num_rows)))
        except DataError as error:
            error.where = f"{side} side"
            raise
    keys = [np.concatenate(times)]
    if SEQUENCE in join.schema.names:
        numbers = pa.concat_tables(rows.select([SEQUENCE]) for rows in sides)[SEQUENCE]
        keys += [numbers.is_null().to_numpy(), numbers.fill_null(0).to_numpy()]
    # Equal rows stay as they are: the left side comes first.
    return np.lexsort(keys[::-1])
