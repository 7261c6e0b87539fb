"""Predicates that read the match, compiled: one function per query, kept on disk.

`plan_path` splits each such predicate into what a row decides alone, which becomes masks, and the
rest, for which it writes the text of a function. Numba compiles the text when the matcher needs
it (`outpace.compiler.kernel`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from outpace.compiler.kernel import is_text_compiled, load_text
from outpace.engine.evaluate.columns import evaluate_columns
from outpace.engine.evaluate.frame import PredicateFrame
from outpace.engine.kernels.path_step import no_step
from outpace.engine.kernels.search import PathInput
from outpace.engine.match.codegen_layout import RecordLayout, at_own_row, is_hoistable
from outpace.engine.match.contract import Block, Task
from outpace.pattern.bind.query import classify
from outpace.pattern.bound import (
    Aggregate,
    Apply,
    BoundExpression,
    Constant,
    Predicate,
    PredicateClass,
    Present,
    Read,
    ReadPlace,
)
from outpace.pattern.functions import function_of
from outpace.pattern.functions.function import ZERO, Code, CompiledType, Term, Uncompilable, kind_of

#: The number of the form of step functions goes into the hash under which they are kept.
_HEADER = '''\
"""Generated predicates of one query, of form 2; see outpace.engine.match.codegen."""

from outpace.engine.kernels.path_step import find_first, find_last, path_step


@path_step
def step(
    variable, depth, row, begin, stop, size, run_rows, run_labels, registers, float_registers,
    column_integers, column_floats, valid,
):
'''


@dataclass(frozen=True)
class PathPlan:
    """How the predicates of a query are run.

    Parameters
    ----------
    prefilters
        For each variable a predicate that needs no run and holds wherever its own can.
    variables
        The variables whose predicates are compiled.
    layout
        The columns and registers that they use.
    source
        The text of the function; empty without such variables.
    """

    prefilters: tuple[Predicate, ...]
    variables: tuple[int, ...]
    layout: RecordLayout
    source: str

    @property
    def compiled(self) -> bool:
        """Whether the function has been compiled on this machine, or there is none."""
        return not self.source or is_text_compiled(self.source)

    def step(self) -> Any:
        """Return the compiled function, compiling it if need be."""
        if not self.source:
            return no_step()
        return load_text(self.source).step

    def path(self, block: Block) -> PathInput:
        """Return the columns and the first registers that the function reads."""
        layout = self.layout
        size = block.size
        floats = sum(kind is CompiledType.FLOAT for kind in layout.kinds)
        integer_columns = np.zeros((len(layout.kinds) - floats) * size, np.int64)
        float_columns = np.zeros(floats * size, np.float64)
        valid = np.ones(len(layout.kinds) * size, np.uint8)
        frame = PredicateFrame(block.columns, block.segments)
        for number, expression in enumerate(layout.columns):
            column = evaluate_columns(expression, frame)
            store = float_columns if layout.kinds[number] is CompiledType.FLOAT else integer_columns
            slot = layout.slots[number]
            store[slot * size : (slot + 1) * size] = _plain(column)
            if column.null_count:
                known = column.is_valid().to_numpy(zero_copy_only=False)
                valid[number * size : (number + 1) * size] = known
        return PathInput(
            integer_columns,
            float_columns,
            valid,
            np.array(layout.integers, np.int64),
            np.array(layout.floats, np.float64),
        )


def plan_path(task: Task) -> PathPlan | None:
    """Plan how a query's predicates run; None where one of them cannot be compiled."""
    predicates = task.bound.predicates
    layout = RecordLayout(len(predicates))
    prefilters: list[Predicate] = []
    bodies: dict[int, list[str]] = {}
    try:
        for variable, predicate in enumerate(predicates):
            if predicate.kind is not PredicateClass.PATH:
                prefilters.append(predicate)
                continue
            assert predicate.expression is not None
            own, rest = _split(predicate.expression, variable)
            prefilters.append(_prefilter(predicate.name, own, variable))
            bodies[variable] = _body(rest, variable, layout)
    except Uncompilable:
        return None
    source = _source(layout, bodies) if bodies else ""
    return PathPlan(tuple(prefilters), tuple(bodies), layout, source)


def _split(
    expression: BoundExpression, variable: int
) -> tuple[list[BoundExpression], list[BoundExpression]]:
    """Part a condition into conjuncts of the row alone and conjuncts of the run."""
    parts = [expression]
    if isinstance(expression, Apply) and expression.function == "and":
        parts = list(expression.arguments)
    own = [part for part in parts if is_hoistable(part, variable)]
    return own, [part for part in parts if not is_hoistable(part, variable)]


def _prefilter(name: str, own: Sequence[BoundExpression], variable: int) -> Predicate:
    if not own:
        return Predicate(name, None, PredicateClass.ALWAYS)
    local = [at_own_row(part, variable) for part in own]
    whole = local[0] if len(local) == 1 else Apply(pa.bool_(), "and", tuple(local))
    return Predicate(name, whole, classify(whole))


def _body(rest: Sequence[BoundExpression], variable: int, layout: RecordLayout) -> list[str]:
    writer = CodeWriter(layout, variable)
    terms = [writer.write(part) for part in rest]
    holds = " and ".join(f"{term.known} and {term.value}" for term in terms) or "True"
    return [*writer.code.lines, f"return 1 if {holds} else 0"]


@dataclass
class CodeWriter:
    """Writes the body of one predicate.

    Every value becomes two local variables, the value and whether it is known (SQL's NULL is not).
    The text holds column and register numbers, what the registry writes for functions, and literals
    that Python's own `repr` wrote for an int or a float. Nothing of a user's text, not even a name,
    gets into it.
    """

    layout: RecordLayout
    variable: int
    code: Code = field(default_factory=Code)

    def write(self, expression: BoundExpression) -> Term:
        """Write an expression and return the variables that hold it."""
        if is_hoistable(expression, self.variable):
            return self._column(self.layout.column(expression, self.variable), "row")
        match expression:
            case Constant(value=value):
                return _literal(value, expression.type)
            case Read():
                return self._read(expression)
            case Present(place=place):
                _, inside = self._row(place)
                return Term(inside, "True", CompiledType.BOOLEAN)
            case Aggregate():
                return self._aggregate(expression)
            case Apply(arguments=arguments):
                numba = function_of(expression).numba
                if numba is not None:
                    return numba(self.code, expression, [self.write(part) for part in arguments])
        raise Uncompilable

    def _column(self, column: int, at: str) -> Term:
        layout = self.layout
        kind = layout.kinds[column]
        slot = layout.slots[column]
        store = "column_floats" if kind is CompiledType.FLOAT else "column_integers"
        value = f"{store}[{slot} * size + {at}]"
        if kind is CompiledType.BOOLEAN:
            value = f"{value} != 0"
        return self.code.line(value, f"valid[{column} * size + {at}] != 0", kind)

    def _row(self, place: ReadPlace) -> tuple[str, str]:
        """Write the row at a place and whether there is one; else it is the row looked at."""
        located = self._locate(place)
        self.code.count += 1
        number, lines = self.code.count, self.code.lines
        name = f"p{number}"
        lines.append(f"{name} = {located}")
        inside = f"{name} >= 0"
        if place.shift:
            inside = f"{name} >= 0 and begin <= {name} + ({place.shift}) < stop"
        lines.append(f"i{number} = {inside}")
        lines.append(f"r{number} = {name} + ({place.shift}) if i{number} else row")
        return f"r{number}", f"i{number}"

    def _read(self, node: Read) -> Term:
        at, known = self._row(node.place)
        base = Read(node.type, node.column, node.path, ReadPlace("row"))
        term = self._column(self.layout.column(base, self.variable), at)
        return self.code.line(term.value, f"{known} and {term.known}", term.kind)

    def _locate(self, place: ReadPlace) -> str:
        if place.origin == "row":
            raise Uncompilable
        if place.steps == 0:
            register = self.layout.row_register(place.origin, place.variables)
            return f"registers[after_integers + {register}]"
        bits = self.layout.bits(place.variables)
        if place.origin == "last":
            return f"find_last(run_rows, run_labels, depth, {bits}, {place.steps})"
        return f"find_first(run_rows, run_labels, depth, {bits}, {place.steps})"

    def _aggregate(self, node: Aggregate) -> Term:
        registers = self.layout.aggregate(node, self.variable)
        count = f"registers[after_integers + {registers.count}]"
        if node.function == "count":
            return self.code.line(count, "True", CompiledType.INTEGER)
        assert registers.value is not None
        if registers.kind is CompiledType.FLOAT:
            value = f"float_registers[after_floats + {registers.value}]"
        else:
            value = f"registers[after_integers + {registers.value}]"
        known = f"{count} > 0"
        if node.function != "avg":
            return self.code.line(value, known, registers.kind)
        if registers.kind is CompiledType.INTEGER:
            self.code.exact(value)
        divisor = f"({count} if {count} > 0 else 1)"
        return self.code.line(f"float({value}) / float({divisor})", known, CompiledType.FLOAT)


def _literal(value: object, data_type: pa.DataType) -> Term:
    if value is None:
        kind = CompiledType.BOOLEAN if pa.types.is_null(data_type) else kind_of(data_type)
        return Term(ZERO[kind], "False", kind)
    kind = kind_of(data_type)
    if isinstance(value, bool) and kind is CompiledType.BOOLEAN:
        return Term(repr(value), "True", kind)
    if type(value) is int and kind is CompiledType.INTEGER and -(1 << 63) < value < 1 << 63:
        return Term(f"({value!r})", "True", kind)
    if type(value) in (int, float) and kind is CompiledType.FLOAT:
        # The check above is one that a type checker does not follow.
        number = float(value)  # type: ignore[arg-type]
        if number == number and abs(number) != float("inf"):
            return Term(f"({number!r})", "True", kind)
    raise Uncompilable


def _source(layout: RecordLayout, bodies: dict[int, list[str]]) -> str:
    lines = [
        f"before_integers = depth * {len(layout.integers)}",
        f"after_integers = before_integers + {len(layout.integers)}",
        f"before_floats = depth * {len(layout.floats)}",
        f"after_floats = before_floats + {len(layout.floats)}",
        *layout.updates,
    ]
    for variable, body in bodies.items():
        lines.append(f"if variable == {variable}:")
        lines.extend(f"    {line}" for line in body)
    lines.append("return 1")
    return _HEADER + "".join(f"    {line}\n" for line in lines)


def _plain(column: pa.Array) -> Any:
    """Return values as numbers; what stands for NULL has no meaning."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.fill_null(False).to_numpy(zero_copy_only=False)
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        column = column.view(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.view(pa.int32())
    return (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
