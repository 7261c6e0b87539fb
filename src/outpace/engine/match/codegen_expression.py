"""Source text for predicates that read the match: a closed set of templates over numbers.

Every value becomes two local variables, the value and whether it is known (SQL's NULL is not). The
text holds column and register numbers, operators from fixed tables and literals that Python's own
`repr` wrote for an int or a float. Nothing of a user's text, not even a name, gets into it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from outpace.engine.match.codegen_layout import (
    Kind,
    Layout,
    Uncompilable,
    is_hoistable,
    kind_of,
)
from outpace.pattern.bound import Aggregate, Apply, BoundExpression, Constant, Place, Present, Read

_COMPARE = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MOVE = {"+": "+", "-": "-", "*": "*"}

#: Integers beyond this have no exact double, and comparing the two needs more than a conversion.
_EXACT = 1 << 53


@dataclass(frozen=True)
class Term:
    """A value in the generated text: its expression, whether it is known, and its kind."""

    value: str
    known: str
    kind: Kind


@dataclass
class Writer:
    """Writes the body of one predicate; lines refer only to earlier lines."""

    layout: Layout
    variable: int
    lines: list[str] = field(default_factory=list)
    _count: int = 0

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
                return Term(inside, "True", Kind.BOOLEAN)
            case Aggregate():
                return self._aggregate(expression)
            case Apply():
                return self._apply(expression)
        raise Uncompilable

    def _line(self, value: str, known: str, kind: Kind) -> Term:
        self._count += 1
        name = f"v{self._count}"
        self.lines.append(f"{name} = {value}")
        if known in ("True", "False"):
            return Term(name, known, kind)
        self.lines.append(f"k{self._count} = {known}")
        return Term(name, f"k{self._count}", kind)

    def _column(self, column: int, at: str) -> Term:
        layout = self.layout
        kind = layout.kinds[column]
        slot = layout.slots[column]
        store = "column_floats" if kind is Kind.FLOAT else "column_integers"
        value = f"{store}[{slot} * size + {at}]"
        if kind is Kind.BOOLEAN:
            value = f"{value} != 0"
        return self._line(value, f"valid[{column} * size + {at}] != 0", kind)

    def _row(self, place: Place) -> tuple[str, str]:
        """Write the row at a place and whether there is one; else it is the row looked at."""
        located = self._locate(place)
        self._count += 1
        name = f"p{self._count}"
        self.lines.append(f"{name} = {located}")
        inside = f"{name} >= 0"
        if place.shift:
            inside = f"{name} >= 0 and begin <= {name} + ({place.shift}) < stop"
        self.lines.append(f"i{self._count} = {inside}")
        self.lines.append(f"r{self._count} = {name} + ({place.shift}) if i{self._count} else row")
        return f"r{self._count}", f"i{self._count}"

    def _read(self, node: Read) -> Term:
        at, known = self._row(node.place)
        base = Read(node.type, node.column, node.path, Place("row"))
        term = self._column(self.layout.column(base, self.variable), at)
        return self._line(term.value, f"{known} and {term.known}", term.kind)

    def _locate(self, place: Place) -> str:
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
            return self._line(count, "True", Kind.INTEGER)
        assert registers.value is not None
        if registers.kind is Kind.FLOAT:
            value = f"float_registers[after_floats + {registers.value}]"
        else:
            value = f"registers[after_integers + {registers.value}]"
        known = f"{count} > 0"
        if node.function != "avg":
            return self._line(value, known, registers.kind)
        if registers.kind is Kind.INTEGER:
            self._exact(value)
        divisor = f"({count} if {count} > 0 else 1)"
        return self._line(f"float({value}) / float({divisor})", known, Kind.FLOAT)

    def _exact(self, value: str) -> None:
        self.lines.append(f"if {value} > {_EXACT} or {value} < -{_EXACT}: return -1")

    def _apply(self, node: Apply) -> Term:
        name = node.function
        if name in ("case", "coalesce"):
            return self._choice(node)
        terms = [self.write(argument) for argument in node.arguments]
        if name in ("and", "or"):
            return self._connective(name, terms)
        if name == "not":
            (term,) = terms
            return self._line(f"not {term.value}", term.known, Kind.BOOLEAN)
        if name == "is null":
            return self._line(f"not ({terms[0].known})", "True", Kind.BOOLEAN)
        if name == "cast":
            return self._cast(terms[0], node)
        if name == "negate":
            return self._arithmetic(node, "-", [Term("0", "True", terms[0].kind), *terms])
        if name in _MOVE or name == "/":
            return self._arithmetic(node, name, terms)
        if name in _COMPARE:
            return self._comparison(name, node, terms)
        raise Uncompilable

    def _comparison(self, name: str, node: Apply, terms: list[Term]) -> Term:
        left, right = terms
        kinds = {left.kind, right.kind}
        if Kind.BOOLEAN in kinds and len(kinds) > 1:
            raise Uncompilable
        if len(kinds) > 1:
            self._exact((left if left.kind is Kind.INTEGER else right).value)
        first, second = node.arguments
        temporal = pa.types.is_temporal(first.type) or pa.types.is_temporal(second.type)
        if temporal and first.type != second.type:
            raise Uncompilable
        return self._line(
            f"{left.value} {_COMPARE[name]} {right.value}", _both(left, right), Kind.BOOLEAN
        )

    def _arithmetic(self, node: Apply, name: str, terms: list[Term]) -> Term:
        left, right = terms
        if any(pa.types.is_temporal(argument.type) for argument in node.arguments):
            raise Uncompilable
        known = _both(left, right)
        if node.type == pa.float64():
            for term in terms:
                if term.kind is Kind.INTEGER:
                    self._exact(term.value)
            first, second = f"float({left.value})", f"float({right.value})"
            if name == "/":
                apart = self._line(f"{right.value} != 0", "True", Kind.BOOLEAN)
                known = f"{known} and {apart.value}"
                return self._line(
                    f"{first} / ({second} if {apart.value} else 1.0)", known, Kind.FLOAT
                )
            return self._line(f"{first} {name} {second}", known, Kind.FLOAT)
        if node.type not in _RANGES or name == "/" or Kind.FLOAT in (left.kind, right.kind):
            raise Uncompilable
        low, high = _RANGES[node.type]
        term = self._line(f"{left.value} {name} {right.value}", known, Kind.INTEGER)
        # What wraps around cannot be seen afterwards, so operands that could are left to the twin.
        limit = 1 << (31 if name == "*" else 62)
        for part in terms:
            self.lines.append(f"if {part.value} >= {limit} or {part.value} <= -{limit}: return -1")
        self.lines.append(
            f"if {known} and ({term.value} > {high} or {term.value} < {low}): return -1"
        )
        return term

    def _connective(self, name: str, terms: list[Term]) -> Term:
        if name == "and":
            value = " and ".join(f"({t.known} and {t.value})" for t in terms)
            decided = " or ".join(f"({t.known} and not {t.value})" for t in terms)
        else:
            value = " or ".join(f"({t.known} and {t.value})" for t in terms)
            decided = value
        every = " and ".join(f"({t.known})" for t in terms)
        return self._line(value, f"({every}) or {decided}", Kind.BOOLEAN)

    def _cast(self, term: Term, node: Apply) -> Term:
        source, wanted = node.arguments[0].type, node.type
        if wanted == pa.float64() and term.kind is not Kind.BOOLEAN and not _temporal(source):
            return self._line(f"float({term.value})", term.known, Kind.FLOAT)
        if wanted in _RANGES and source in _RANGES and _RANGES[wanted][1] >= _RANGES[source][1]:
            return term
        raise Uncompilable

    def _choice(self, node: Apply) -> Term:
        terms = [self.write(argument) for argument in node.arguments]
        kind = kind_of(node.type)
        if node.function == "coalesce":
            branches = [(term.known, term) for term in terms]
            otherwise = None
        else:
            pairs = zip(terms[0::2], terms[1::2], strict=False)
            branches = [(f"{test.known} and {test.value}", term) for test, term in pairs]
            otherwise = terms[-1] if len(terms) % 2 else None
        result = otherwise or Term(_ZERO[kind], "False", kind)
        for test, term in reversed(branches):
            value, known = self._as(term, kind), term.known
            other = self._as(result, kind)
            chosen = self._line(test, "True", Kind.BOOLEAN).value
            result = self._line(
                f"{value} if {chosen} else {other}",
                f"({known}) if {chosen} else ({result.known})",
                kind,
            )
        return result

    def _as(self, term: Term, kind: Kind) -> str:
        if term.known == "False":
            return _ZERO[kind]
        if kind is Kind.FLOAT and term.kind is Kind.INTEGER:
            return f"float({term.value})"
        if term.kind is not kind:
            raise Uncompilable
        return term.value


_ZERO = {Kind.INTEGER: "0", Kind.FLOAT: "0.0", Kind.BOOLEAN: "False"}

_RANGES = {
    pa.int8(): (-(1 << 7), (1 << 7) - 1),
    pa.int16(): (-(1 << 15), (1 << 15) - 1),
    pa.int32(): (-(1 << 31), (1 << 31) - 1),
    pa.int64(): (-(1 << 63), (1 << 63) - 1),
}


def _temporal(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(data_type))


def _both(left: Term, right: Term) -> str:
    return (
        " and ".join(known for known in dict.fromkeys((left.known, right.known)) if known != "True")
        or "True"
    )


def _literal(value: object, data_type: pa.DataType) -> Term:
    if value is None:
        kind = Kind.BOOLEAN if pa.types.is_null(data_type) else kind_of(data_type)
        return Term(_ZERO[kind], "False", kind)
    kind = kind_of(data_type)
    if isinstance(value, bool) and kind is Kind.BOOLEAN:
        return Term(repr(value), "True", kind)
    if type(value) is int and kind is Kind.INTEGER and -(1 << 63) < value < 1 << 63:
        return Term(f"({value!r})", "True", kind)
    if type(value) in (int, float) and kind is Kind.FLOAT:
        # The check above is one that a type checker does not follow.
        number = float(value)  # type: ignore[arg-type]
        if number == number and abs(number) != float("inf"):
            return Term(f"({number!r})", "True", kind)
    raise Uncompilable
