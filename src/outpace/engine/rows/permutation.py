"""Rows of a table in another order, of which a column is moved when somebody asks for it.

An order looks at the keys of events alone. Their other columns are moved once, by the part that
needs them, and columns that no part needs are never moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from outpace.engine.rows.partition import gather


class RearrangedRows:
    """A table in another order; it has the methods of a table that one needs to look at columns.

    Parameters
    ----------
    rows
        The table.
    places
        For each row, where it is in the table.
    moved
        Columns that are in the new order already.

    Examples
    --------
    >>> import numpy as np
    >>> rows = RearrangedRows(pa.table({"x": [5, 6], "y": ["a", "b"]}), np.array([1, 0]), {})
    >>> rows.column("x").to_pylist(), rows.select(["y"]).table().to_pylist()
    ([6, 5], [{'y': 'b'}, {'y': 'a'}])
    """

    def __init__(
        self, rows: pa.Table, places: npt.NDArray[Any], moved: Mapping[str, pa.Array]
    ) -> None:
        self._rows = rows
        self._places = places
        self._moved = dict(moved)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self._places)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column in the new order."""
        if name not in self._moved:
            self._moved[name] = gather(self._rows.column(name), self._places)
        return pa.chunked_array([self._moved[name]])

    def select(self, names: Sequence[str]) -> RearrangedRows:
        """Return some columns; those that were moved stay so."""
        return RearrangedRows(self._rows.select(names), self._places, self._moved)

    def take(self, rows: pa.Array) -> pa.Table:
        """Return some rows, as a table."""
        return self.table().take(rows)

    def table(self) -> pa.Table:
        """Return all that is there, in the new order."""
        names = self._rows.column_names
        return pa.table([self.column(name) for name in names], schema=self._rows.schema)


def as_table(rows: pa.Table | RearrangedRows) -> pa.Table:
    """Return rows as a table."""
    return rows.table() if isinstance(rows, RearrangedRows) else rows
