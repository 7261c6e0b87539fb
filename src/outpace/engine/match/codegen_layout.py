"""The memory of compiled predicates: columns by number, and registers that follow the run.

A register holds something about the run so far (a count, a sum, the last row of a variable) and is
updated with every take, so that no predicate has to look at all rows of the run again.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Final, cast

from outpace.engine.evaluate.row import compile_scalar
from outpace.engine.match.kernel_arrays import is_wide
from outpace.errors import DataError
from outpace.pattern.bound import (
    Aggregate,
    Apply,
    BoundExpression,
    Constant,
    Present,
    Read,
    ReadPlace,
    walk,
)
from outpace.pattern.functions import function_of
from outpace.pattern.functions.function import CompiledType, Uncompilable, kind_of

#: The row that a predicate looks at.
HERE: Final = ReadPlace("row")

#: Rows so many steps behind the first or before the last are kept in registers, others looked for.
STEPS_HELD: Final = 8

#: The aggregates that say how far values are spread, and over how many less than all it is divided.
SPREADS: Final = {"variance": 1, "stddev": 1, "var_pop": 0, "stddev_pop": 0}

#: The aggregates that registers follow, by what these hold.
FAMILIES: Final = {
    **{name: name for name in ("count", "count_if", "sum", "min", "max", "min_by", "max_by")},
    **dict.fromkeys(SPREADS, "spread"),
    "avg": "sum", "bool_and": "min", "bool_or": "max", "product": "product",
}  # fmt: skip


@dataclass(frozen=True)
class Registers:
    """Where an aggregate is kept: the count of values, and what they come to.

    `column` is None, or the column that has the value, at the row that is kept.
    """

    count: int
    value: int | None
    kind: CompiledType
    column: int | None = None


@dataclass
class RecordLayout:
    """Numbers the columns and registers of a query as its predicates are written."""

    variables: int
    columns: list[BoundExpression] = field(default_factory=list)
    kinds: list[CompiledType] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    #: For each integer or float register what it starts with.
    integers: list[int] = field(default_factory=list)
    floats: list[float] = field(default_factory=list)
    #: Whether it counts which of two texts is the lesser.
    ordered: bool = False
    #: Lines that bring the registers from before a take to after it.
    updates: list[str] = field(default_factory=list)
    _rows: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _aggregates: dict[tuple[object, ...], Registers] = field(default_factory=dict)

    def copy(self) -> RecordLayout:
        """Return one that changes by itself."""
        return replace(
            self, **{field.name: copy(getattr(self, field.name)) for field in fields(self)}
        )

    def bits(self, variables: frozenset[int] | None) -> int:
        """Return a set of variables as bits."""
        every = range(self.variables) if variables is None else variables
        return sum(1 << variable for variable in every)

    def among(self, bits: int) -> str:
        """Write whether the variable that a row is taken for is one of a set."""
        if not is_wide(self.variables):
            return f"{bits} >> variable & 1"
        if bits == self.bits(None):
            return "True"
        members = [place for place in range(self.variables) if bits >> place & 1]
        return f"({' or '.join(f'variable == {member}' for member in members) or 'False'})"

    def column(self, expression: BoundExpression) -> int:
        """Return the number of the column that holds an expression of one row, for each row."""
        local = at_own_row(expression)
        if local in self.columns:
            return self.columns.index(local)
        if any(not isinstance(part, Read | Present | Apply | Constant) for part in walk(local)):
            raise Uncompilable  # Labels are no columns.
        kind = kind_of(local.type)
        is_float = kind is CompiledType.FLOAT
        slot = sum((other is CompiledType.FLOAT) == is_float for other in self.kinds)
        self.columns.append(local)
        self.kinds.append(kind)
        self.slots.append(slot)
        return len(self.columns) - 1

    def row_register(self, origin: str, variables: frozenset[int] | None, steps: int) -> int:
        """Return the register that holds the row `steps` behind the first, or before the last."""
        bits = self.bits(variables)
        key = (origin, bits, steps)
        if key not in self._rows:
            outer = self.row_register(origin, variables, steps - 1) if steps else None
            self._rows[key] = register = self._integer(-1)
            before, after = _places(register)
            condition, taken = self.among(bits), "row"
            if origin == "first":
                condition = f"{condition} and {before} < 0"
            if outer is not None:
                # The run had the row further out already: then this is the next one.
                taken = "row" if origin == "first" else _places(outer)[0]
                condition = f"{condition} and {_places(outer)[0]} >= 0"
            self.updates.append(f"{after} = {taken} if {condition} else {before}")
        return self._rows[key]

    def aggregate(self, node: Aggregate) -> Registers:
        """Return the registers of an aggregate."""
        family = FAMILIES.get(node.function)
        by = family in ("min_by", "max_by")
        selects = bool(node.order) or node.condition is not None or (by and node.distinct)
        wide = node.distinct and is_wide(self.variables)
        if family is None or len(node.arguments) > 1 + by or selects or wide:
            raise Uncompilable
        bits = self.bits(node.variables)
        column = self.column(node.arguments[-1]) if node.arguments else -1
        key = (family, bits, column, node.distinct)
        if key not in self._aggregates:
            self._aggregates[key] = self._new_aggregate(family, bits, column, node.distinct)
        found = self._aggregates[key]
        if not by:
            return found
        column = self.column(node.arguments[0])
        return replace(found, column=column, kind=self.kinds[column])

    def _new_aggregate(self, family: str, bits: int, column: int, distinct: bool) -> Registers:
        count = self._integer(0)
        before, after = _places(count)
        counted = f"{self.among(bits)} != 0"
        if column >= 0:
            counted = f"{counted} and valid[{column} * size + row] != 0"
        if distinct:
            store = "floats" if self.kinds[column] is CompiledType.FLOAT else "integers"
            counted = (
                f"{counted} and not is_repeated(run_rows, run_labels, depth, {bits}, row,"
                f" column_{store}, {self.slots[column]} * size, valid, {column} * size)"
            )
        if family == "count_if":
            counted = f"{counted} and column_integers[{self.slots[column]} * size + row] != 0"
        self.updates.append(f"counted = {counted}")
        self.updates.append(f"{after} = {before} + (1 if counted else 0)")
        if family in ("count", "count_if"):
            return Registers(count, None, CompiledType.INTEGER)
        kind = self.kinds[column]
        slot = self.slots[column]
        if family in ("min_by", "max_by"):
            register = self._integer(-1)
            old, new = _places(register)
            store = "floats" if kind is CompiledType.FLOAT else "integers"
            value, other = (
                f"column_{store}[{slot} * size + {at}]" for at in ("row", f"max({old}, 0)")
            )
            better = f"{value} < {other} or ({other} != {other} and {value} == {value})"
            if family == "max_by":
                better = f"{value} > {other} or ({value} != {value} and {other} == {other})"
            self.updates.append(f"{new} = row if counted and ({old} < 0 or {better}) else {old}")
            return Registers(count, register, kind)
        if kind is CompiledType.FLOAT:
            register, old, new = self._float()
            value = f"column_floats[{slot} * size + row]"
        else:
            register = self._integer(0)
            old, new = _places(register)
            value = f"column_integers[{slot} * size + row]"
        if family == "spread":
            # See `statistics._squares`.
            _, old_mean, mean = self._float()
            self.updates += [
                f"distance = {value} - {old_mean}",
                f"{mean} = {old_mean} + distance / {after} if counted else {old_mean}",
                f"{new} = {old} + distance * ({value} - {mean}) if counted else {old}",
            ]
        elif family == "product":
            self.updates.append(
                f"{new} = ({old} if {before} > 0 else 1.0) * {value} if counted else {old}"
            )
        elif family == "sum":
            if kind is CompiledType.INTEGER:
                limit = 1 << 62
                self.updates.append(
                    f"if counted and ({old} >= {limit} or {old} <= -{limit}"
                    f" or {value} >= {limit} or {value} <= -{limit}): return -1"
                )
            self.updates.append(f"{new} = {old} + {value} if counted else {old}")
        else:
            # NaN is greater than all numbers, and a comparison with it never holds.
            better = f"{value} < {old} or {old} != {old}"
            if family == "max":
                better = f"{value} > {old} or {value} != {value}"
            self.updates.append(
                f"{new} = {value} if counted and ({before} == 0 or {better}) else {old}"
            )
        return Registers(count, register, kind)

    def _float(self) -> tuple[int, str, str]:
        """Return a new register of floats, and its places before and after a take."""
        register = len(self.floats)
        self.floats.append(0.0)
        return (
            register,
            f"float_registers[before_floats + {register}]",
            f"float_registers[after_floats + {register}]",
        )

    def _integer(self, initial: int) -> int:
        self.integers.append(initial)
        return len(self.integers) - 1


def _places(register: int) -> tuple[str, str]:
    return (
        f"registers[before_integers + {register}]",
        f"registers[after_integers + {register}]",
    )


def is_current(place: ReadPlace, variable: int) -> bool:
    """Say whether a place is the row that a predicate of `variable` looks at, or one near it."""
    mine = place.variables is None or variable in place.variables
    return place.origin == "last" and mine and place.steps == 0


def place_of(expression: BoundExpression, variable: int) -> ReadPlace | None:
    """Return the one row that an expression is read from and near, None where it is no such one.

    Then the expression can be computed for each row beforehand. `HERE` is the row looked at.
    """
    places = set()
    for node in walk(expression):
        match node:
            case Read(place=place) | Present(place=place):
                here = place.origin == "row" or is_current(place, variable)
                places.add(HERE if here else replace(place, shift=0, final=False))
            case Apply() | Constant():
                pass
            case _:
                return None
    return places.pop() if len(places) == 1 else None


def is_hoistable(expression: BoundExpression, variable: int) -> bool:
    """Say whether an expression reads the row looked at alone and never fails on any row."""
    if place_of(expression, variable) != HERE:
        return False
    for node in walk(expression):
        if isinstance(node, Apply):
            fixed = all(isinstance(argument, Constant) for argument in node.arguments[1:])
            if not function_of(node).safe or (node.function == "like" and not fixed):
                return False
    return True


def at_own_row(expression: BoundExpression) -> BoundExpression:
    """Return an expression of one row with its reads in the form of a LOCAL predicate."""
    match expression:
        case Read(place=place) | Present(place=place):
            return replace(expression, place=ReadPlace("last", shift=place.shift))
        case Apply(arguments=arguments):
            return replace(expression, arguments=tuple(map(at_own_row, arguments)))
    return expression


def without_row(expression: BoundExpression) -> object:
    """Return what an expression comes to where none of the rows that it reads is there."""
    evaluate = compile_scalar(
        expression, lambda leaf: lambda _: False if isinstance(leaf, Present) else None
    )
    try:
        return cast("object", evaluate(None))
    except DataError:
        raise Uncompilable from None
