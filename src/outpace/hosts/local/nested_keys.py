"""Keys that are arrays or rows: a table is matched by numbers that stand for their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import Integers
from outpace.pattern import types
from outpace.pattern.query import Query, RowsPerMatch
from outpace.plan.nested_keys import by_other_columns, key_names, nested_columns


@dataclass(frozen=True)
class NestedKey:
    """A column of PARTITION BY whose values are arrays or rows.

    Parameters
    ----------
    column, number
        Its name, and that of the column of numbers that rows are matched by.
    numbers, values
        The numbers there are, in their order, and the value that each stands for.
    """

    column: str
    number: str
    numbers: Integers
    values: pa.Array


def number_keys(table: pa.Table, query: Query) -> tuple[pa.Table, Query, tuple[NestedKey, ...]]:
    """Return a table with numbers for its nested keys, the query by these, and what they mean.

    Examples
    --------
    >>> table = pa.table({"tags": [["a", "b"], ["a"], ["a", "b"], None]})
    >>> table, query, keys = number_keys(table, Query().partition_by("tags").pattern("A"))
    >>> table[query.partitions[0]].to_pylist(), keys[0].values.to_pylist()
    ([1, 2, 1, 0], [None, ['a', 'b'], ['a']])
    """
    keys = []
    others = key_names(nested_columns(query, table.schema), table.schema)
    for name, other in others.items():
        column = table[name].combine_chunks()
        codes = _numbers(column)
        numbers, first = np.unique(codes, return_index=True)
        key = NestedKey(name, other, numbers, column.take(pa.array(first)))
        table = table.append_column(key.number, pa.array(codes))
        keys.append(key)
    return table, by_other_columns(query, others), tuple(keys)


def with_keys(found: pa.Table, keys: Sequence[NestedKey], query: Query) -> pa.Table:
    """Return matches with the keys that numbers stand for."""
    for key in keys:
        places = np.searchsorted(key.numbers, found[key.number].to_numpy())
        if query.rows is not RowsPerMatch.ONE:
            found = found.drop_columns([key.column])
        place = found.column_names.index(key.number)
        found = found.set_column(place, key.column, key.values.take(pa.array(places)))
    return found


def _numbers(values: pa.Array) -> Integers:
    """Number values in the order in which they come first, from 1 on; NULL is 0."""
    kind = values.type
    if types.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        inner = _numbers(values.flatten())
        ends = 8 * np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(inner)]
        texts = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(values), buffers)
        values = pc.if_else(values.is_valid(), texts, pa.scalar(None, texts.type))
    elif pa.types.is_struct(kind):
        inner = np.column_stack([_numbers(part) for part in values.flatten()])
        width = pa.binary(8 * inner.shape[1])
        buffers = [None, pa.py_buffer(np.ascontiguousarray(inner))]
        texts = pa.FixedSizeBinaryArray.from_buffers(width, len(values), buffers)
        values = pc.if_else(values.is_valid(), texts, pa.scalar(None, width))
    elif pa.types.is_dictionary(kind):
        values = values.cast(kind.value_type)
    elif pa.types.is_floating(kind):
        values = pc.add(values, 0.0)  # -0.0 is 0.0.
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.int64)
    codes = values.dictionary_encode().indices
    numbers: Integers = pc.fill_null(codes, -1).to_numpy().astype(np.int64) + 1
    return numbers
