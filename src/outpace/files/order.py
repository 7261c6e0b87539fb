"""The order of row groups: told by their statistics, so that no row need be read to find it.

Row groups can be taken one after the other where they do not overlap in the first ORDER BY column:
the greatest value of one is not greater than the least of the next, and less than it where further
columns break ties. Rows inside a row group may come in any order; who reads it sorts it. Only where
statistics are missing and the user declares an order, one column is read to measure them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from outpace.files.parquet import FileList, RowGroup, Statistics
from outpace.pattern import types
from outpace.pattern.bound import BoundQuery
from outpace.pattern.notation.print_name import print_name


@dataclass(frozen=True)
class GroupOrder:
    """Whether row groups can be taken one after the other.

    Parameters
    ----------
    groups
        The row groups in order, where they can.
    reason
        Why they cannot, or where the order comes from.
    measurable
        Whether reading the column could give the statistics that are missing.
    broken
        The first row group, in the order of the files, that comes before the one ahead of it.
    """

    groups: tuple[RowGroup, ...] | None
    reason: str
    measurable: bool = False
    broken: RowGroup | None = None


def order_groups(groups: Sequence[RowGroup], bound: BoundQuery) -> GroupOrder:
    """Find the order of row groups for a query."""
    if not bound.order_by or len(groups) < 2:
        return GroupOrder(tuple(groups), "the order of the files")
    name = bound.order_by[0]
    shown = print_name(name)
    if bound.descending[0]:
        return GroupOrder(None, f"{shown} is descending")
    kind = bound.schema.field(name).type
    if types.is_floating(kind) or pa.types.is_nested(kind):
        return GroupOrder(None, f"statistics of {shown} do not tell its order")
    known = [group.statistics[name] for group in groups]
    for group, statistics in zip(groups, known, strict=True):
        if statistics.null_count != 0 and statistics.null_count is not None:
            return GroupOrder(None, f"{shown} is NULL in {group.name}")
        if statistics.least is None or statistics.null_count is None:
            return GroupOrder(None, f"{group.name} has no statistics of {shown}", measurable=True)
    numbers = sorted(range(len(groups)), key=lambda number: (*_range(known[number]), number))
    strict = len(bound.order_by) > 1
    broken = _first_broken(groups, known, strict=strict)
    for one, two in pairwise(numbers):
        if not _follows(known[one], known[two], strict=strict):
            overlap = f"{groups[one].name} and {groups[two].name} overlap in {shown}"
            return GroupOrder(None, overlap, broken=broken)
    ordered = tuple(groups[number] for number in numbers)
    return GroupOrder(ordered, f"statistics of {shown}", broken=broken)


def measure_group(files: FileList, group: RowGroup, column: str) -> RowGroup:
    """Return a row group with the bounds of a column as its rows have them; it reads the column."""
    values = files.read(group, [column]).column(column)
    ends = pc.min_max(values)
    known = Statistics(ends["min"].as_py(), ends["max"].as_py(), values.null_count)
    return replace(group, statistics={**group.statistics, column: known})


def _range(known: Statistics) -> tuple[object, object]:
    return known.least, known.greatest


def _follows(one: Statistics, two: Statistics, *, strict: bool) -> bool:
    return bool(one.greatest < two.least if strict else one.greatest <= two.least)


def _first_broken(
    groups: Sequence[RowGroup], known: Sequence[Statistics], *, strict: bool
) -> RowGroup | None:
    for number, (one, two) in enumerate(pairwise(known)):
        if not _follows(one, two, strict=strict):
            return groups[number + 1]
    return None
