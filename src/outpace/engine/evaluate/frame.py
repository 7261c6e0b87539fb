"""Frames: the values of the leaves of an expression when it is evaluated over whole columns.

For predicates a leaf is a column shifted inside its partition, for measures the values at the rows
that a match points to. Leaves are decoded (no dictionaries) and in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.rows.partition import gather
from outpace.pattern.bound import (
    Aggregate,
    BoundExpression,
    Label,
    MatchIdentity,
    MatchOrdinal,
    Present,
    Read,
    ReadPlace,
)
from outpace.pattern.values import computed

Indices = npt.NDArray[np.int64]
Column: TypeAlias = "pa.Array | pa.ChunkedArray"


class Frame(Protocol):
    """The values of the leaves of an expression, over some number of output rows."""

    @property
    def size(self) -> int:
        """The number of output rows."""

    def leaf(self, node: BoundExpression) -> pa.Array:
        """Return the values of a leaf (all but calls and constants), one for each row."""


@dataclass
class PredicateFrame:
    """Leaves of LOCAL and OFFSET predicates: columns sorted by partition and order.

    Parameters
    ----------
    columns
        The input columns, all of one length.
    segments
        The first row of each partition, and the number of rows at the end; None: one partition.
    """

    columns: Mapping[str, Column]
    segments: Indices | None = None
    _whole: dict[str, pa.Array] = field(default_factory=dict, repr=False)
    _read: dict[tuple[object, ...], pa.Array] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """The number of input rows."""
        if self.segments is not None:
            return int(self.segments[-1])
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def column(self, name: str) -> pa.Array:
        """Return a column in one piece."""
        if name not in self._whole:
            self._whole[name] = in_one_piece(self.columns[name])
        return self._whole[name]

    def leaf(self, node: BoundExpression) -> pa.Array:
        """Return a column, shifted inside its partition, or where the shifted row exists."""
        if not isinstance(node, Read | Present) or not _is_beside(node.place):
            raise TypeError(f"a predicate over columns cannot read {node!r}")
        if isinstance(node, Present):
            there = np.ones(self.size, np.bool_)
            there[self.missing(node.place.shift)] = False
            return pa.array(there)
        key = (node.column, node.path, node.place.shift)
        if key not in self._read:
            self._read[key] = self._shifted(read(self.column(node.column), node), node.place.shift)
        return self._read[key]

    def missing(self, shift: int) -> Indices:
        """Return the rows whose shifted row lies outside their partition, in order."""
        bounds = self.segments
        if bounds is None:
            bounds = np.array([0, self.size], np.int64)
        starts, ends = bounds[:-1], bounds[1:]
        lengths = np.minimum(ends - starts, abs(shift))
        firsts = starts if shift < 0 else ends - lengths
        # Row k of the result belongs to the partition whose missing rows it falls into.
        before = np.cumsum(lengths) - lengths
        return np.repeat(firsts - before, lengths) + np.arange(lengths.sum(), dtype=np.int64)

    def _shifted(self, column: pa.Array, shift: int) -> pa.Array:
        if shift == 0:
            return column
        rows = np.arange(self.size, dtype=np.int64) + shift
        rows[self.missing(shift)] = -1
        return take(column, rows)


@dataclass
class MatchFrame:
    """Leaves of measures: values at rows that the matcher found.

    Parameters
    ----------
    columns
        The input columns.
    size
        The number of output rows.
    index
        Gives for a place the input row of each output row, -1 where there is none.
    label
        Gives for a place the variable's name of each output row.
    number
        Gives the match number of each output row.
    aggregate
        Gives the value of an aggregate for each output row.
    identity
        Gives the id of the match of each output row; None where none is whole.
    """

    columns: Mapping[str, Column]
    size: int
    index: Callable[[ReadPlace], Indices]
    label: Callable[[ReadPlace], pa.Array]
    number: Callable[[], pa.Array]
    aggregate: Callable[[Aggregate], pa.Array]
    identity: Callable[[], pa.Array] | None = None

    def leaf(self, node: BoundExpression) -> pa.Array:
        """Return the values of a leaf."""
        match node:
            case Read(column=column, place=place):
                return read(take(in_one_piece(self.columns[column]), self.index(place)), node)
            case Label(place=place):
                return self.label(place)
            case Present(place=place):
                return pa.array(self.index(place) >= 0)
            case MatchOrdinal():
                return self.number()
            case MatchIdentity() if self.identity is not None:
                return self.identity()
            case Aggregate():
                return self.aggregate(node)
            case _:
                raise TypeError(f"no leaf: {node!r}")


def _is_beside(place: ReadPlace) -> bool:
    """Say whether a place is at a fixed distance from the row being looked at."""
    return place == ReadPlace("last", shift=place.shift)


def take(column: pa.Array, rows: Indices) -> pa.Array:
    """Return the values at the given rows; -1 gives NULL."""
    absent = rows < 0
    if not absent.any():
        return gather(column, rows)
    return column.take(pa.array(rows, mask=absent))


def read(column: pa.Array, node: Read) -> pa.Array:
    """Return what a leaf reads of its column: a field inside of it, in the type of the leaf."""
    for part in node.path:
        column = pc.struct_field(_decoded(column), part)
    return computed(_decoded(column), node.type)


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def in_one_piece(column: Column) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.combine_chunks()
