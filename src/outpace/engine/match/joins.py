"""Steps that only rows with the same value as an earlier row can take: found by that value.

Where each condition that matters while a run waits says `its value = value of an earlier row`, as
in `user = LOGIN.user`, the search goes from one such row to the next, and looks at no row between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from outpace.engine.arrays import Integers, Numbers
from outpace.engine.kernels.search import Joins
from outpace.engine.match.codegen_layout import (
    HERE,
    STEPS_HELD,
    RecordLayout,
    place_of,
    without_row,
)
from outpace.pattern.bound import Apply, BoundExpression, ReadPlace
from outpace.pattern.functions.function import CompiledType, kind_of

#: Values that lie so close together are sorted without comparing them.
_CLOSE = 1 << 16


@dataclass(frozen=True)
class Join:
    """How rows are found.

    Parameters
    ----------
    own, earlier
        The columns with a row's own value, and with the value that it is to have.
    register
        The register with the row that the latter is read at.
    variables
        The variables that such a row may fit, as bits.
    """

    own: int
    earlier: int
    register: int
    variables: int


def plan_joins(
    waits: Sequence[int], conditions: Mapping[int, Sequence[BoundExpression]], layout: RecordLayout
) -> tuple[Join | None, ...]:
    """Return for each state how its rows are found by value, or None where they are not.

    Parameters
    ----------
    waits
        For each state the variables that matter while a run waits for a row, as bits.
    conditions
        For each variable whose predicate reads the match what must hold, apart from its own row.
    layout
        Where columns and rows of the run are kept.
    """
    equal = {
        variable: [pair for part in parts if (pair := _equality(part, variable)) is not None]
        for variable, parts in conditions.items()
    }
    return tuple(_join(bits, equal, layout) for bits in waits)


def _join(
    bits: int,
    equal: Mapping[int, Sequence[tuple[BoundExpression, BoundExpression, ReadPlace]]],
    layout: RecordLayout,
) -> Join | None:
    found: dict[tuple[int, int, int], None] | None = None
    for variable in (place for place in range(bits.bit_length()) if bits >> place & 1):
        keys = {
            (
                layout.column(own),
                layout.column(earlier),
                layout.row_register(place.origin, place.variables, place.steps),
            ): None
            for own, earlier, place in equal.get(variable, ())
        }
        found = keys if found is None else {key: None for key in found if key in keys}
    return Join(*next(iter(found)), bits) if found else None


def _equality(
    part: BoundExpression, variable: int
) -> tuple[BoundExpression, BoundExpression, ReadPlace] | None:
    """Return the row's own value, the one that it is to equal, and where that is before a take."""
    if not isinstance(part, Apply) or part.function != "=":
        return None
    for own, earlier in (part.arguments, part.arguments[::-1]):
        place = place_of(earlier, variable)
        if place_of(own, variable) != HERE or place in (None, HERE) or own.type != earlier.type:
            continue
        assert place is not None
        if without_row(earlier) is not None:
            continue
        mine = place.variables is None or variable in place.variables
        if mine and place.origin == "last":
            # The row itself is the last then; before it is taken, the one before it is.
            place = ReadPlace("last", place.variables, place.steps - 1)
        elif mine:
            continue
        if place.steps <= STEPS_HELD and kind_of(own.type) is CompiledType.INTEGER:
            return own, earlier, place
    return None


def join_arrays(
    joins: Sequence[Join | None],
    layout: RecordLayout,
    integers: Integers,
    valid: Numbers,
    masks: Numbers,
) -> Joins:
    """Return the rows that each state's rows are found among, sorted by value."""
    size = len(masks)
    distinct = list(dict.fromkeys(join for join in joins if join is not None))
    values, rows = [], []
    for join in distinct:
        known = valid[join.own * size : (join.own + 1) * size] != 0
        candidates = np.flatnonzero(known & (masks.astype(np.int64) & join.variables != 0))
        slot = layout.slots[join.own]
        keys = integers[slot * size : (slot + 1) * size][candidates]
        order = _sorted_by(keys)
        values.append(keys[order])
        rows.append(candidates[order])
    empty = [np.zeros(0, np.int64)]
    return Joins(
        of_state=np.array([-1 if j is None else distinct.index(j) for j in joins], np.int64),
        register=np.array([join.register for join in distinct], np.int64),
        column=np.array([join.earlier for join in distinct], np.int64),
        slot=np.array([layout.slots[join.earlier] for join in distinct], np.int64),
        bounds=np.cumsum([0, *map(len, rows)]).astype(np.int64),
        values=np.concatenate(values or empty),
        rows=np.concatenate(rows or empty),
    )


def _sorted_by(keys: Integers) -> Integers:
    if len(keys) and int(keys.max()) - int(keys.min()) < _CLOSE:
        return np.argsort((keys - keys.min()).astype(np.uint16), kind="stable")
    return np.argsort(keys, kind="stable")
