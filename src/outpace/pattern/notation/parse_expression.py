"""SQL expressions, as in DEFINE and MEASURES, read into the expression tree.

From loosest to tightest: OR, AND, NOT, one comparison or predicate (=, IS NULL, BETWEEN, IN, LIKE),
`||`, + and -, * / % and DIV, the sign, then `.field`, `[index]`, `::type` and AT TIME ZONE. Calls
are read by `parse_call`, constants by `literal`. A text is parsed and never run; nesting is
bounded, and long chains of AND or OR become balanced trees, so that they do not count as nesting.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal as OneOf

from outpace.errors import PatternSyntaxError, Span
from outpace.pattern.expression import (
    Between,
    Binary,
    BinaryOperator,
    Call,
    Cast,
    Expression,
    Field,
    InList,
    IsNull,
    Like,
    Literal,
    Name,
    Subquery,
    Subscript,
    Unary,
)
from outpace.pattern.notation.lexer import CaseFold, SourceText, Token, TokenCursor, TokenKind
from outpace.pattern.notation.literal import at_typed_literal, read_number, read_typed_literal
from outpace.pattern.notation.parse_call import at_special, read_call, read_special
from outpace.pattern.notation.parse_type import read_type
from outpace.pattern.notation.print_name import RESERVED
from outpace.pattern.size import MOST_LEVELS, MOST_NESTED, expression_is_too_deep

#: Dialects in which `/` on two integers gives an integer.
INTEGER_DIVISION = frozenset(
    {"trino", "presto", "athena", "postgres", "redshift", "tsql", "sqlite", "flink", "calcite"}
)

#: A chain of AND or OR with more operands than this becomes a balanced tree.
LONGEST_CHAIN = 32

_OR, _AND, _NOT, _COMPARE, _CONCAT, _SUM, _PRODUCT, _SIGN = range(1, 9)
_OPERATORS: dict[str, tuple[BinaryOperator, int]] = {
    "OR": ("or", _OR),
    "AND": ("and", _AND),
    "=": ("=", _COMPARE),
    "==": ("=", _COMPARE),
    "<>": ("<>", _COMPARE),
    "!=": ("<>", _COMPARE),
    "<": ("<", _COMPARE),
    "<=": ("<=", _COMPARE),
    ">": (">", _COMPARE),
    ">=": (">=", _COMPARE),
    "||": ("||", _CONCAT),
    "+": ("+", _SUM),
    "-": ("-", _SUM),
    "*": ("*", _PRODUCT),
    "/": ("/", _PRODUCT),
    "//": ("div", _PRODUCT),
    "DIV": ("div", _PRODUCT),
    "%": ("%", _PRODUCT),
}
_PREDICATES = ("BETWEEN", "IN", "LIKE")
#: Operators of other systems, and what to write for them.
_ELSEWHERE = {
    **dict.fromkeys(("REGEXP", "RLIKE", "~"), "regexp_like(text, 'expression')"),
    "SIMILAR": "regexp_like(text, 'expression'), with a regular expression",
    "ILIKE": "lower(text) LIKE 'pattern'",
    "GLOB": "text LIKE 'pattern', where % stands for any text and _ for one character",
}
#: Reserved words that are likely to be meant as a column where an expression is expected.
_MAYBE_COLUMNS = frozenset(
    {"BY", "FOR", "FROM", "GROUP", "ON", "ORDER", "SELECT", "TABLE", "VALUES"}
)
_SUBQUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "TABLE"})


def parse_expression(
    text: str, *, where: str = "expression", dialect: str = "outpace"
) -> Expression:
    """Read an SQL expression.

    Parameters
    ----------
    text
        The expression.
    where, dialect
        See `outpace.pattern.notation.lexer.SourceText`. The dialect also says what `/` does with
        integers.

    Raises
    ------
    PatternSyntaxError
        With the place in the text.

    Examples
    --------
    >>> parse_expression("price < PREV(price)")
    Binary(operator='<', left=Name(parts=('price',)),
        right=Navigate(kind='prev', operand=Name(parts=('price',)), offset=None))
    """
    cursor = TokenCursor(SourceText(text, where, dialect=dialect))
    if cursor.token.kind is TokenKind.END:
        raise cursor.error("the expression is empty")
    node = read_expression(cursor)
    cursor.expect_end()
    return node


def read_expression(cursor: TokenCursor, variable: CaseFold | None = None) -> Expression:
    """Read an expression from a cursor, as far as it goes.

    `variable` gives the name of a variable in CLASSIFIER(A), A.* and A.column; it must leave names
    that are no variables alone.
    """
    start = cursor.token.span
    node = ExpressionReader(cursor, variable or (lambda name, _quoted: name)).read()
    if expression_is_too_deep(node):
        raise cursor.error(f"the expression is nested deeper than {MOST_LEVELS} levels", start)
    return replace(node, span=cursor.source.marked(node.span))


class ExpressionReader:
    """Reads one expression; each method reads what its name says, from the cursor's place on."""

    def __init__(self, cursor: TokenCursor, variable: CaseFold) -> None:
        self.cursor = cursor
        self.variable = variable
        self.level = 0

    def read(self, floor: int = 0) -> Expression:
        """Read an expression of operators that bind at least as tightly as `floor`.

        Operands and operators wait on two stacks until a looser operator comes: one call reads a
        whole text between parentheses, however many operators it has.
        """
        self.level += 1
        if self.level > MOST_NESTED:
            raise self.cursor.error(f"expressions are nested deeper than {MOST_NESTED} levels")
        pending = _Pending(self.cursor)
        while True:
            self._prefixes(pending)
            pending.operands.append(self._operand())
            while (predicate := self._predicate_ahead(pending, floor)) is not None:
                pending.operands.append(predicate)
            operator = self._operator_ahead()
            if operator is None or operator.power < floor:
                self.level -= 1
                return pending.finish()
            pending.push(operator)
            self.cursor.advance()

    def value(self) -> Expression:
        """Read an operand of a comparison."""
        return self.read(_CONCAT)

    def _prefixes(self, pending: _Pending) -> None:
        cursor = self.cursor
        while True:
            token = cursor.token
            if token.key == "NOT":
                if pending.operators and pending.operators[-1].power > _NOT:
                    raise cursor.unexpected("an expression", hint="put NOT x into parentheses")
                pending.operators.append(_WaitingOperator("not", _NOT, token))
            elif token.key == "-":
                if cursor.ahead().kind is TokenKind.NUMBER and self._plain_number(cursor.ahead(2)):
                    return
                pending.operators.append(_WaitingOperator("negate", _SIGN, token))
            elif token.key != "+":
                return
            cursor.advance()

    def _plain_number(self, following: Token) -> bool:
        return following.key not in (".", "[", "::")

    def _operand(self) -> Expression:
        cursor = self.cursor
        if not cursor.at("-"):
            return self._postfix()
        mark = cursor.advance()
        number = read_number(cursor.source, cursor.advance(), negative=True)
        return replace(number, span=cursor.span_from(mark.start))

    def _operator_ahead(self) -> _WaitingOperator | None:
        token = self.cursor.token
        found = _OPERATORS.get(token.key)
        if found is None:
            self._refuse_foreign()
            return None
        name, power = found
        if token.key == "/" and self.cursor.source.dialect in INTEGER_DIVISION:
            name = "div"
        return _WaitingOperator(name, power, token)

    def _refuse_foreign(self) -> None:
        token = self.cursor.token
        if token.key == "NOT":
            token = self.cursor.ahead()
        if token.key in _ELSEWHERE:
            raise self.cursor.error(
                f"'{token.value}' is no operator here",
                token.span,
                hint=f"write {_ELSEWHERE[token.key]}",
            )

    def _predicate_ahead(self, pending: _Pending, floor: int) -> Expression | None:
        """Read IS, BETWEEN, IN or LIKE after the last operand, or return None."""
        cursor = self.cursor
        token = cursor.token
        negated = token.key == "NOT" and cursor.ahead().key in _PREDICATES
        if floor > _COMPARE or not (negated or token.key in (*_PREDICATES, "IS")):
            return None
        pending.settle(_COMPARE, token)
        left = pending.operands.pop()
        start = left.span.start if left.span else token.start
        if negated:
            cursor.advance()
        node = replace(self._predicate(left, negated), span=cursor.span_from(start))
        pending.predicate = node
        return node

    def _predicate(self, left: Expression, negated: bool) -> Expression:
        cursor = self.cursor
        match cursor.advance().key:
            case "IS":
                return self._is(left)
            case "BETWEEN":
                symmetric = self._symmetric()
                low = self.value()
                cursor.expect("AND", "AND and the upper end of BETWEEN")
                return Between(left, low, self.value(), negated, symmetric)
            case "LIKE":
                pattern = self.value()
                escape = self.value() if cursor.accept("ESCAPE") else None
                return Like(left, pattern, escape, negated)
            case _:
                return self._in(left, negated)

    def _symmetric(self) -> bool:
        """Read SYMMETRIC or ASYMMETRIC, unless the word is a column's name."""
        cursor = self.cursor
        is_name = cursor.ahead().key in ("AND", ".")
        if is_name or cursor.token.key not in ("SYMMETRIC", "ASYMMETRIC"):
            return False
        return cursor.advance().key == "SYMMETRIC"

    def _is(self, left: Expression) -> Expression:
        cursor = self.cursor
        negated = cursor.accept("NOT")
        if cursor.accept("NULL") or cursor.accept("UNKNOWN"):
            return IsNull(left, negated)
        same: BinaryOperator = "is distinct from" if negated else "is not distinct from"
        if cursor.at("TRUE") or cursor.at("FALSE"):
            token = cursor.advance()
            return Binary(same, left, Literal(token.key == "TRUE", span=token.span))
        if cursor.accept("DISTINCT", "FROM"):
            other: BinaryOperator = "is not distinct from" if negated else "is distinct from"
            return Binary(other, left, self.value())
        raise cursor.unexpected("NULL, TRUE, FALSE or DISTINCT FROM after IS")

    def _in(self, left: Expression, negated: bool) -> Expression:
        cursor = self.cursor
        opener = cursor.expect("(", "'(' after IN")
        if cursor.accept(")"):
            raise cursor.error(
                "IN has no values to compare with",
                cursor.span_from(opener.start),
                hint="name one at least: x IN (1, 2); of no values x is none: write FALSE",
            )
        if self.at_subquery():
            return Subquery("in", self.subquery_text(), left, negated)
        return InList(left, self.items(")"), negated)

    def _postfix(self) -> Expression:
        cursor = self.cursor
        start = cursor.token.start
        node = self.primary()
        while True:
            if cursor.accept("."):
                name = cursor.expect_name("the name of a field after '.'").value
                node = Field(node, name, span=cursor.span_from(start))
            elif cursor.accept("["):
                index = self.read()
                cursor.expect("]")
                node = Subscript(node, index, span=cursor.span_from(start))
            elif cursor.accept("::"):
                kind = read_type(cursor)
                node = Cast(node, kind, span=cursor.span_from(start))
            elif cursor.accept("AT", "TIME", "ZONE"):
                zone = self.primary()
                node = Call("at_timezone", (node, zone), span=cursor.span_from(start))
            else:
                return node

    def primary(self) -> Expression:
        """Read an operand without what may follow it, such as `[1]`."""
        cursor = self.cursor
        token = cursor.token
        if token.kind is TokenKind.NUMBER:
            return read_number(cursor.source, cursor.advance())
        if token.kind is TokenKind.STRING:
            cursor.advance()
            return Literal(token.value, span=token.span)
        if token.key == "(":
            return self._parenthesised()
        if not token.is_name:
            raise cursor.unexpected("an expression")
        if at_typed_literal(cursor):
            return read_typed_literal(cursor)
        if at_special(cursor):
            return read_special(self)
        if cursor.ahead().key == "(" and token.key not in RESERVED:
            return read_call(self)
        if token.key in RESERVED:
            column = token.key in _MAYBE_COLUMNS
            hint = f'write "{token.value}" for the column' if column else None
            raise cursor.unexpected("an expression", hint=hint)
        return self._name()

    def _name(self) -> Expression:
        cursor = self.cursor
        first = cursor.advance()
        parts = [first.value]
        while cursor.at(".") and cursor.ahead().is_name:
            cursor.advance()
            parts.append(cursor.advance().value)
        if len(parts) > 1:
            parts[0] = self.variable(first.value, first.kind is TokenKind.QUOTED)
        return Name(tuple(parts), span=cursor.span_from(first.start))

    def _parenthesised(self) -> Expression:
        cursor = self.cursor
        start = cursor.advance()
        if self.at_subquery():
            text = self.subquery_text()
            return Subquery("value", text, span=cursor.span_from(start.start))
        node = self.read()
        if cursor.at(","):
            raise cursor.error("rows of several values are not supported")
        self.close(start)
        return node

    def close(self, start: Token) -> None:
        """Take the parenthesis that closes the one at `start`."""
        if self.cursor.token.kind is TokenKind.END:
            raise self.cursor.error("'(' is never closed", start.span, hint="add ')'")
        self.cursor.expect(")")

    def items(self, closer: str) -> tuple[Expression, ...]:
        """Read expressions between commas, one at least, and the closing token."""
        items = [self.read()]
        while self.cursor.accept(","):
            items.append(self.read())
        self.cursor.expect(closer, f"',' or '{closer}'")
        return tuple(items)

    def at_subquery(self) -> bool:
        """Whether a subquery comes next, right after its opening parenthesis."""
        return self.cursor.token.key in _SUBQUERY_WORDS

    def subquery_text(self) -> str:
        """Take a subquery and its closing parenthesis, and return its text."""
        cursor = self.cursor
        opener = cursor.previous
        begin = cursor.token.start
        level = 1
        while level:
            token = cursor.advance()
            if token.kind is TokenKind.END:
                raise cursor.error("the subquery is never closed", opener.span, hint="add ')'")
            level += (token.key == "(") - (token.key == ")")
        source = cursor.source
        return source.text[begin - source.offset : cursor.previous.start - source.offset].strip()


@dataclass(frozen=True, slots=True)
class _WaitingOperator:
    """An operator that waits for its right side; "not" and "negate" have no left one."""

    name: BinaryOperator | OneOf["not", "negate"]
    power: int
    token: Token


@dataclass(slots=True)
class _Pending:
    """Operands and operators that were read and not combined yet, in text order."""

    cursor: TokenCursor
    operands: list[Expression] = field(default_factory=list)
    operators: list[_WaitingOperator] = field(default_factory=list)
    #: What the last IS, BETWEEN, IN or LIKE gave, to refuse a second one behind it.
    predicate: Expression | None = None

    def push(self, operator: _WaitingOperator) -> None:
        """Add an operator after combining what binds more tightly to its left."""
        self.settle(operator.power, operator.token)
        self.operators.append(operator)

    def settle(self, power: int, token: Token) -> None:
        """Combine all that binds at least as tightly as `power`, up to a comparison."""
        # Equal ANDs and ORs wait, so that a long chain is combined at once.
        least = power + 1 if power <= _AND else power
        while self.operators and self.operators[-1].power >= least:
            if self.operators[-1].power == power == _COMPARE:
                raise self._chained(token)
            self._combine()
        if power == _COMPARE and self.operands[-1] is self.predicate:
            raise self._chained(token)

    def finish(self) -> Expression:
        """Combine everything that is left."""
        while self.operators:
            self._combine()
        (node,) = self.operands
        return node

    def _chained(self, token: Token) -> PatternSyntaxError:
        hint = "put parentheses around one of them"
        return self.cursor.error(
            f"'{token.value}' follows another comparison", token.span, hint=hint
        )

    def _combine(self) -> None:
        operator = self.operators.pop()
        right = self.operands.pop()
        if operator.name == "not" or operator.name == "negate":
            end = right.span.end if right.span else operator.token.end
            span = Span(operator.token.start, max(end, operator.token.end))
            self.operands.append(Unary("not" if operator.name == "not" else "-", right, span=span))
            return
        chain = [right]
        while (
            operator.power <= _AND and self.operators and self.operators[-1].power == operator.power
        ):
            self.operators.pop()
            chain.append(self.operands.pop())
        chain.append(self.operands.pop())
        self.operands.append(_chain(operator.name, chain[::-1]))


def _chain(operator: BinaryOperator, operands: list[Expression]) -> Expression:
    """Combine operands from left to right; many of them as a balanced tree of the same order.

    AND and OR are associative in three-valued logic, so the shape changes no result.
    """
    if len(operands) <= LONGEST_CHAIN:
        node = operands[0]
        for operand in operands[1:]:
            node = Binary(operator, node, operand, span=_join(node, operand))
        return node
    level = operands
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        joined: list[Expression] = [Binary(operator, a, b, span=_join(a, b)) for a, b in pairs]
        level = joined + level[len(joined) * 2 :]
    return level[0]


def _join(left: Expression, right: Expression) -> Span | None:
    return left.span.join(right.span) if left.span and right.span else left.span or right.span
