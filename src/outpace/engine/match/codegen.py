"""Predicates that read the match, compiled: one function per query, kept on disk.

`plan_path` splits each such predicate into what a row decides alone, which becomes masks, and the
rest, for which it writes the text of a function. Numba compiles the text when the matcher needs
it (`outpace.compiler.kernel`).
"""

from __future__ import annotations

import decimal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from outpace.compiler.kernel import is_text_compiled, load_text
from outpace.engine.arrays import Numbers
from outpace.engine.evaluate.numbers import is_text
from outpace.engine.kernels.path_step import no_step
from outpace.engine.kernels.search import PathInput
from outpace.engine.match.codegen_layout import (
    HERE,
    SPREADS,
    STEPS_HELD,
    RecordLayout,
    at_own_row,
    is_current,
    is_hoistable,
    place_of,
    without_row,
)
from outpace.engine.match.contract import Block, Task
from outpace.engine.match.joins import Join, plan_joins
from outpace.engine.match.kernel_arrays import is_wide, waits_of_states
from outpace.engine.match.path_columns import path_columns
from outpace.pattern import types
from outpace.pattern.bind.query import classify
from outpace.pattern.bound import (
    Aggregate,
    Apply,
    BoundExpression,
    Constant,
    MatchOrdinal,
    Predicate,
    PredicateClass,
    Present,
    Read,
    ReadPlace,
)
from outpace.pattern.functions import function_of
from outpace.pattern.functions.function import ZERO, Code, CompiledType, Term, Uncompilable, kind_of
from outpace.pattern.values import CONTEXT

#: What looks at which of two values is the lesser.
_ORDERING: Final = (
    "<", "<=", ">", ">=", "min", "max", "min_by", "max_by", "greatest", "least",
)  # fmt: skip

#: The number of the form of step functions goes into the hash under which they are kept.
_HEADER = '''\
"""Generated predicates of one query, of form 6; see outpace.engine.match.codegen."""

from math import (
    acos, asin, atan, atan2, cos, e, exp, isfinite, isinf, isnan, log, log10, log2, pi, sin, sqrt,
    tan,
)

from numpy import ceil, float32, floor, trunc

from outpace.engine.arrays import Numbers
from outpace.engine.kernels.arithmetic import (
    log_of_base, power, remainder, round_to, times_so_many,
)
from outpace.engine.kernels.path_step import find_first, find_last, is_repeated, path_step


@path_step
def step(
    variable, depth, row, begin, stop, size, run_rows, run_labels, registers, float_registers,
    column_integers, column_floats, valid,
):
'''

#: The number of the match that is searched for.
_NUMBER: Final = "match_number"

_ASKING: Final = """
from outpace.compiler.kernel import caller

ask = caller()


"""


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
    joins
        For each state how the rows that it waits for are found by value, or None.
    source
        The text of the function; empty without such variables.
    asked
        For each variable some of whose conditions have no compiled form, those: Python is asked
        whether they hold, for rows that all else lets pass.
    """

    prefilters: tuple[Predicate, ...]
    variables: tuple[int, ...]
    layout: RecordLayout
    joins: tuple[Join | None, ...]
    source: str
    asked: Mapping[int, BoundExpression]

    @property
    def compiled(self) -> bool:
        """Whether the function has been compiled on this machine, or there is none."""
        return not self.source or is_text_compiled(self.source)

    @property
    def joined(self) -> frozenset[int]:
        """The variables whose rows are found by value."""
        bits = 0
        for join in self.joins:
            bits |= 0 if join is None else join.variables
        return frozenset(place for place in range(bits.bit_length()) if bits >> place & 1)

    def step(self) -> Any:
        """Return the compiled function, compiling it if need be."""
        if not self.source:
            return no_step()
        return load_text(self.source).step

    def path(self, block: Block, masks: Numbers, asked: int) -> PathInput | None:
        """Return what the function reads of a block, see `path_columns`."""
        return path_columns(self.layout, self.joins, block, masks, asked)


def plan_path(task: Task) -> PathPlan:
    """Plan how a query's predicates run."""
    predicates = task.bound.predicates
    layout = RecordLayout(len(predicates))
    prefilters: list[Predicate] = []
    bodies: dict[int, list[str]] = {}
    conditions: dict[int, list[BoundExpression]] = {}
    asked: dict[int, BoundExpression] = {}
    for variable, predicate in enumerate(predicates):
        if predicate.kind is not PredicateClass.PATH:
            prefilters.append(predicate)
            continue
        assert predicate.expression is not None
        own, rest = _split(predicate.expression, variable)
        prefilters.append(_prefilter(predicate.name, own, variable))
        bodies[variable], conditions[variable], left, layout = _body(rest, variable, layout)
        if left:
            asked[variable] = _all_of(left)
    waits = waits_of_states(task.program)
    # Rows are sorted by value by bits of one mask.
    many = is_wide(len(predicates))
    joins = plan_joins([0] * len(waits) if many else waits, conditions, layout)
    source = _source(layout, bodies, asked) if bodies else ""
    return PathPlan(tuple(prefilters), tuple(bodies), layout, joins, source, asked)


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
    whole = _all_of([at_own_row(part) for part in own])
    return Predicate(name, whole, classify(whole))


def _all_of(parts: Sequence[BoundExpression]) -> BoundExpression:
    return parts[0] if len(parts) == 1 else Apply(pa.bool_(), "and", tuple(parts))


def _body(
    rest: Sequence[BoundExpression], variable: int, layout: RecordLayout
) -> tuple[list[str], list[BoundExpression], list[BoundExpression], RecordLayout]:
    """Return the text of a predicate, the conditions in it, those left out, and the new layout."""
    code, terms = Code(), []
    written, left = [], []
    for part in rest:
        writer = CodeWriter(layout.copy(), variable, Code(list(code.lines), code.count))
        try:
            terms.append(writer.write(part))
        except Uncompilable:
            left.append(part)
            continue
        layout, code = writer.layout, writer.code
        written.append(part)
    holds = " and ".join(f"{term.known} and {term.value}" for term in terms) or "True"
    return [*code.lines, f"if not ({holds}): return 0"], written, left, layout


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
        match expression:
            case Constant(value=str() | bytes()):
                # What is known of texts is how those of columns compare.
                return self._column(self.layout.column(expression), "row", "True")
            case Constant(value=value):
                return _literal(value, expression.type)
            case Read(type=kind, column=column, path=path, place=place):
                at, inside = self._row(place)
                base = Read(kind, column, path, HERE)
                return self._column(self.layout.column(base), at, inside)
            case Present(place=place):
                _, inside = self._row(place)
                return Term(inside, "True", CompiledType.BOOLEAN)
            case Aggregate():
                return self._aggregate(expression)
            case MatchOrdinal():
                return self.code.line(_NUMBER, "True", CompiledType.INTEGER)
            case Apply(arguments=arguments):
                if (one := place_of(expression, self.variable)) is not None:
                    return self._computed(expression, one)
                self._note_order(expression)
                numba = function_of(expression).numba
                if numba is not None:
                    return numba(self.code, expression, [self.write(part) for part in arguments])
        raise Uncompilable

    def _computed(self, expression: Apply, place: ReadPlace) -> Term:
        """Write an expression of one row, which is computed for all rows beforehand."""
        at, inside = self._row(place)
        term = self._column(self.layout.column(expression), at, inside)
        if inside == "True" or (otherwise := without_row(expression)) is None:
            return term
        # Where there is no such row the expression has a value all the same.
        value = _literal(otherwise, expression.type).value
        chosen = f"{term.value} if {inside} else {value}"
        return self.code.line(chosen, f"{term.known} or not {inside}", term.kind)

    def _note_order(self, node: Apply | Aggregate) -> None:
        """Note where it counts which of two texts is the lesser."""
        texts = any(map(is_text, (argument.type for argument in node.arguments)))
        self.layout.ordered |= texts and node.function in _ORDERING

    def _column(self, column: int, at: str, inside: str) -> Term:
        layout = self.layout
        kind = layout.kinds[column]
        slot = layout.slots[column]
        store = "column_floats" if kind is CompiledType.FLOAT else "column_integers"
        value = f"{store}[{slot} * size + {at}]"
        if kind is CompiledType.BOOLEAN:
            value = f"{value} != 0"
        known = f"valid[{column} * size + {at}] != 0"
        return self.code.line(value, known if inside == "True" else f"{inside} and {known}", kind)

    def _row(self, place: ReadPlace) -> tuple[str, str]:
        """Write the row at a place and whether there is one; else it is the row looked at."""
        here = place.origin == "row" or is_current(place, self.variable)
        if here and not place.shift:
            return "row", "True"
        self.code.count += 1
        number, lines = self.code.count, self.code.lines
        name = f"p{number}"
        lines.append(f"{name} = {'row' if here else self._locate(place)}")
        inside = f"{name} >= 0"
        if place.shift:
            inside = f"{name} >= 0 and begin <= {name} + ({place.shift}) < stop"
        lines.append(f"i{number} = {inside}")
        lines.append(f"r{number} = {name} + ({place.shift}) if i{number} else row")
        return f"r{number}", f"i{number}"

    def _locate(self, place: ReadPlace) -> str:
        if place.steps <= STEPS_HELD:
            register = self.layout.row_register(place.origin, place.variables, place.steps)
            return f"registers[after_integers + {register}]"
        if is_wide(self.layout.variables):
            raise Uncompilable
        bits = self.layout.bits(place.variables)
        if place.origin == "last":
            return f"find_last(run_rows, run_labels, depth, {bits}, {place.steps})"
        return f"find_first(run_rows, run_labels, depth, {bits}, {place.steps})"

    def _aggregate(self, node: Aggregate) -> Term:
        self._note_order(node)
        registers = self.layout.aggregate(node)
        count = f"registers[after_integers + {registers.count}]"
        if registers.value is None:
            return self.code.line(count, "True", CompiledType.INTEGER)
        if registers.kind is CompiledType.FLOAT:
            value = f"float_registers[after_floats + {registers.value}]"
        else:
            value = f"registers[after_integers + {registers.value}]"
        if registers.column is not None:
            row = f"registers[after_integers + {registers.value}]"
            at = self.code.line(f"max({row}, 0)", "True", CompiledType.INTEGER).value
            return self._column(registers.column, at, f"{row} >= 0")
        if node.function in SPREADS:
            less = SPREADS[node.function]
            spread = f"{value} / float(max({count} - {less}, 1))"
            if node.function.startswith("stddev"):
                spread = f"sqrt({spread})"
            return self.code.line(spread, f"{count} > {less}", CompiledType.FLOAT)
        known = f"{count} > 0"
        if registers.kind is CompiledType.BOOLEAN:
            return self.code.line(f"{value} != 0", known, registers.kind)
        if node.function != "avg":
            return self.code.line(value, known, registers.kind)
        divisor = f"({count} if {count} > 0 else 1)"
        if pa.types.is_duration(node.type):
            # Half a microsecond is rounded to the even.
            self.code.within(value, 1 << 61)
            whole, rest = f"({value} // {divisor})", f"({value} % {divisor} * 2)"
            up = f"{rest} > {divisor} or ({rest} == {divisor} and {whole} % 2 != 0)"
            text = f"{whole} + (1 if {up} else 0)"
            return self.code.line(text, known, CompiledType.INTEGER)
        if types.is_decimal(node.type):
            # Half a digit is rounded away from zero.
            self.code.within(value, 1 << 61)
            half = f"(2 * abs({value}) + {divisor}) // (2 * {divisor})"
            text = f"{half} if {value} >= 0 else -({half})"
            return self.code.line(text, known, CompiledType.INTEGER)
        if registers.kind is CompiledType.INTEGER:
            self.code.exact(value)
        return self.code.line(f"float({value}) / float({divisor})", known, CompiledType.FLOAT)


def _literal(value: object, data_type: pa.DataType) -> Term:
    if value is None:
        kind = CompiledType.BOOLEAN if pa.types.is_null(data_type) else kind_of(data_type)
        return Term(ZERO[kind], "False", kind)
    kind = kind_of(data_type)
    if isinstance(value, bool) and kind is CompiledType.BOOLEAN:
        return Term(repr(value), "True", kind)
    if isinstance(value, decimal.Decimal) and types.is_decimal(data_type):
        value = int(value.scaleb(data_type.scale, CONTEXT))
    elif types.is_temporal(data_type):
        value = pa.scalar(value, data_type).value
    if type(value) is int and kind is CompiledType.INTEGER and -(1 << 63) < value < 1 << 63:
        return Term(f"({value!r})", "True", kind)
    if type(value) in (int, float) and kind is CompiledType.FLOAT:
        # The check above is one that a type checker does not follow.
        number = float(value)  # type: ignore[arg-type]
        if number == number and abs(number) != float("inf"):
            return Term(f"({number!r})", "True", kind)
    raise Uncompilable


def _source(
    layout: RecordLayout, bodies: Mapping[int, Sequence[str]], asked: Collection[int]
) -> str:
    integers = sum(kind is not CompiledType.FLOAT for kind in layout.kinds)
    ask = (
        f"    return ask(column_integers[{integers} * size],"
        f" (variable, depth, row, begin, run_rows, run_labels, {_NUMBER}))"
    )
    lines = [
        f"{_NUMBER} = column_integers[{integers} * size + 1]",
        f"before_integers = depth * {len(layout.integers)}",
        f"after_integers = before_integers + {len(layout.integers)}",
        f"before_floats = depth * {len(layout.floats)}",
        f"after_floats = before_floats + {len(layout.floats)}",
        *layout.updates,
    ]
    for variable, body in bodies.items():
        lines.append(f"if variable == {variable}:")
        lines.extend(f"    {line}" for line in body)
        if variable in asked:
            lines.append(ask)
    lines.append("return 1")
    header = _HEADER.replace("\n\n\n", _ASKING, 1) if asked else _HEADER
    return header + "".join(f"    {line}\n" for line in lines)
