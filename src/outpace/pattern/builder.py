"""The fluent builders: expressions, `col("price") < prev("price")`, and patterns, `step("A")`.

Both give exactly the trees that the text notations give: `col("price") < prev("price")` is
`price < PREV(price)`. In an operator a Python value is a constant (`col("type") == "start"`); as
the argument of a function a string is a column (`prev("price")`), and `lit` makes a constant of it.
Builders are immutable; every method returns a new one.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar, NoReturn
from typing import Literal as OneOf

import pyarrow as pa

from outpace.errors import BindError
from outpace.pattern import ast
from outpace.pattern.argument import (
    a_flag,
    a_text,
    a_whole_number,
    an_instance,
    one_of,
    plain,
    shown,
)
from outpace.pattern.ast import Link, Mode, Pattern
from outpace.pattern.expression import (
    Between,
    Binary,
    BinaryOperator,
    Call,
    Cast,
    Classifier,
    Expression,
    InList,
    IsNull,
    Like,
    Literal,
    MatchId,
    MatchNumber,
    Name,
    Navigate,
    Scalar,
    Semantics,
    Star,
    Unary,
)
from outpace.pattern.notation.parse_expression import parse_expression
from outpace.pattern.notation.parse_pattern import MOST_REPETITIONS, parse_pattern
from outpace.pattern.notation.parse_type import parse_type
from outpace.pattern.size import MOST_LEVELS, expression_is_too_deep, pattern_is_too_deep

_CONSTANTS = (bool, int, float, str, bytes, Decimal, datetime.date, datetime.timedelta)
_Navigation = OneOf["first", "last", "prev", "next"]


@dataclass(frozen=True, slots=True, eq=False)
class Fluent:
    """An expression with Python's operators: `<`, `==`, `+`, and `&`, `|`, `~` for AND, OR, NOT.

    Examples
    --------
    >>> ((col("price") < prev("price")) & ~col("halted")).tree == parse_expression(
    ...     "price < PREV(price) AND NOT halted")
    True
    """

    tree: Expression

    #: A number of NumPy on the left leaves the operator to us instead of making an array.
    __array_ufunc__: ClassVar[None] = None

    def __lt__(self, other: Operand) -> Fluent:
        return self._binary("<", other)

    def __le__(self, other: Operand) -> Fluent:
        return self._binary("<=", other)

    def __gt__(self, other: Operand) -> Fluent:
        return self._binary(">", other)

    def __ge__(self, other: Operand) -> Fluent:
        return self._binary(">=", other)

    # A comparison builds an expression instead of answering, so it breaks the contract of object:
    # that is what the three ignores are for.
    def __eq__(self, other: Operand) -> Fluent:  # type: ignore[override]
        return self._compared("=", other)

    def __ne__(self, other: Operand) -> Fluent:  # type: ignore[override]
        return self._compared("<>", other)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Operand) -> Fluent:
        return self._binary("+", other)

    def __radd__(self, other: Operand) -> Fluent:
        return _constant(other)._binary("+", self)

    def __sub__(self, other: Operand) -> Fluent:
        return self._binary("-", other)

    def __rsub__(self, other: Operand) -> Fluent:
        return _constant(other)._binary("-", self)

    def __mul__(self, other: Operand) -> Fluent:
        return self._binary("*", other)

    def __rmul__(self, other: Operand) -> Fluent:
        return _constant(other)._binary("*", self)

    def __truediv__(self, other: Operand) -> Fluent:
        return self._binary("/", other)

    def __rtruediv__(self, other: Operand) -> Fluent:
        return _constant(other)._binary("/", self)

    def __floordiv__(self, other: Operand) -> Fluent:
        return self._binary("div", other)

    def __rfloordiv__(self, other: Operand) -> Fluent:
        return _constant(other)._binary("div", self)

    def __mod__(self, other: Operand) -> Fluent:
        return self._binary("%", other)

    def __rmod__(self, other: Operand) -> Fluent:
        return _constant(other)._binary("%", self)

    def __and__(self, other: Operand) -> Fluent:
        return self._binary("and", other)

    def __rand__(self, other: Operand) -> Fluent:
        return _constant(other)._binary("and", self)

    def __or__(self, other: Operand) -> Fluent:
        return self._binary("or", other)

    def __ror__(self, other: Operand) -> Fluent:
        return _constant(other)._binary("or", self)

    def __invert__(self) -> Fluent:
        return Fluent(Unary("not", self.tree))

    def __neg__(self) -> Fluent:
        return Fluent(Unary("-", self.tree))

    def __bool__(self) -> NoReturn:
        raise BindError(
            "an expression has no truth value in Python",
            hint="combine conditions with & | ~, each in parentheses",
        )

    def concat(self, other: Operand) -> Fluent:
        """Return the text of both, `self || other`."""
        return self._binary("||", other)

    def is_null(self) -> Fluent:
        """Return whether it is NULL."""
        return Fluent(IsNull(self.tree))

    def is_not_null(self) -> Fluent:
        """Return whether it is not NULL."""
        return Fluent(IsNull(self.tree, negated=True))

    def is_distinct_from(self, other: Operand) -> Fluent:
        """Return whether the two differ, where NULL equals NULL."""
        return self._binary("is distinct from", other)

    def is_not_distinct_from(self, other: Operand) -> Fluent:
        """Return whether the two are equal, where NULL equals NULL."""
        return self._binary("is not distinct from", other)

    def between(self, low: Operand, high: Operand) -> Fluent:
        """Return whether it is between two values, both included."""
        return Fluent(Between(self.tree, _constant(low).tree, _constant(high).tree))

    def isin(self, *values: Operand) -> Fluent:
        """Return whether it is one of the values."""
        if not values:
            raise BindError("isin needs at least one value")
        return Fluent(InList(self.tree, tuple(_constant(value).tree for value in values)))

    def like(self, pattern: Operand, escape: Operand = None) -> Fluent:
        """Return whether it fits a pattern with `%` for any text and `_` for any character."""
        mark = None if escape is None else _constant(escape).tree
        return Fluent(Like(self.tree, _constant(pattern).tree, mark))

    def cast(self, kind: str | pa.DataType, *, safe: bool = False) -> Fluent:
        """Convert to an SQL or Arrow type; with `safe` a value that does not fit becomes NULL."""
        arrow = parse_type(kind) if isinstance(kind, str) else kind
        an_instance(arrow, pa.DataType, "a type of SQL or Arrow", hint='write cast("double")')
        return Fluent(Cast(self.tree, arrow, a_flag(safe, "safe")))

    def running(self) -> Fluent:
        """Put RUNNING in front of FIRST, LAST, an aggregate, or what has them in it."""
        return Fluent(Semantics("running", self.tree))

    def final(self) -> Fluent:
        """Put FINAL in front of FIRST, LAST, an aggregate, or what has them in it."""
        return Fluent(Semantics("final", self.tree))

    def _compared(self, operator: BinaryOperator, other: Operand) -> Fluent:
        if other is None:
            raise BindError(
                "a comparison with None is never true",
                hint="write col(...).is_null(), or is_not_null()",
            )
        return self._binary(operator, other)

    def _binary(self, operator: BinaryOperator, other: Operand) -> Fluent:
        return Fluent(Binary(operator, self.tree, _constant(other).tree))


#: What may stand beside an operator: another expression or a constant.
Operand = Fluent | Expression | Scalar


def expression_tree(value: str | Expression | Fluent, where: str = "expression") -> Expression:
    """Return the tree of an expression in any notation."""
    if isinstance(value, str):
        return parse_expression(value, where=where)
    tree = value.tree if isinstance(value, Fluent) else value
    if not isinstance(tree, Expression):
        raise BindError(
            f"{where} takes SQL text or an expression, not {shown(value)}",
            hint="a constant is written op.lit(3), or in SQL '3'",
        )
    if expression_is_too_deep(tree):
        raise BindError(f"{where} is nested deeper than {MOST_LEVELS} levels")
    return tree


def col(name: str) -> Fluent:
    """Return a column, of the current event or of a variable's: `price`, `A.price`.

    Parts with dots or spaces in them are quoted: `'A."unit price"'`.

    Parameters
    ----------
    name
        The name of the column, maybe behind that of a variable and a dot.

    Examples
    --------
    >>> col("A.price").tree
    Name(parts=('A', 'price'))
    """
    tree = parse_expression(a_text(name, "the name of a column"), where="column")
    if not isinstance(tree, Name):
        raise BindError(f"{name!r} is no column name", hint="quote it: '\"unit price\"'")
    return Fluent(replace(tree, span=None))


def lit(value: Scalar) -> Fluent:
    """Return a constant; None is NULL, a timedelta is an INTERVAL.

    Parameters
    ----------
    value
        The value: a number, a text, a truth value, a date, a time, a timedelta, None.

    Examples
    --------
    >>> (lit(100) * col("share")).tree == parse_expression("100 * share")
    True
    """
    constant = plain(value)
    # The time that pandas gives for none calls itself a datetime, and equals nothing.
    no_time = isinstance(constant, datetime.date) and constant != constant
    if no_time or not (constant is None or isinstance(constant, _CONSTANTS)):
        raise BindError(f"{shown(value)} is no constant")
    return Fluent(Literal(constant))


def prev(expression: str | Fluent, offset: int | None = None) -> Fluent:
    """Return the value at an earlier row of the partition, one row back unless told.

    Parameters
    ----------
    expression
        What is computed there: a column's name, or an expression.
    offset
        How many rows back.

    Examples
    --------
    >>> prev("price", 2).tree == parse_expression("PREV(price, 2)")
    True
    """
    return _navigate("prev", expression, offset)


def next(expression: str | Fluent, offset: int | None = None) -> Fluent:
    """Return the value at a later row of the partition, one row on unless told.

    Parameters
    ----------
    expression
        What is computed there: a column's name, or an expression.
    offset
        How many rows on.

    Examples
    --------
    >>> next("price").tree == parse_expression("NEXT(price)")
    True
    """
    return _navigate("next", expression, offset)


def first(expression: str | Fluent, offset: int | None = None) -> Fluent:
    """Return the value at the first row of the match, or of a variable, `offset` rows later.

    Parameters
    ----------
    expression
        What is computed there: a column's name, or an expression.
    offset
        How many rows later.

    Examples
    --------
    >>> first("A.price").tree == parse_expression("FIRST(A.price)")
    True
    """
    return _navigate("first", expression, offset)


def last(expression: str | Fluent, offset: int | None = None) -> Fluent:
    """Return the value at the last row of the match, or of a variable, `offset` rows earlier.

    Parameters
    ----------
    expression
        What is computed there: a column's name, or an expression.
    offset
        How many rows earlier.

    Examples
    --------
    >>> prev(last("A.price", 1)).tree == parse_expression("PREV(LAST(A.price, 1))")
    True
    """
    return _navigate("last", expression, offset)


def classifier(variable: str | None = None) -> Fluent:
    """Return the variable that a row was matched to, maybe among the rows of one variable.

    Parameters
    ----------
    variable
        The variable among whose rows the last one counts; all rows where it is left out.

    Examples
    --------
    >>> classifier("U").tree == parse_expression("CLASSIFIER(U)")
    True
    """
    return Fluent(Classifier(None if variable is None else a_text(variable, "a variable")))


def match_number() -> Fluent:
    """Return the number of the match in its partition.

    Examples
    --------
    >>> match_number().tree == parse_expression("MATCH_NUMBER()")
    True
    """
    return Fluent(MatchNumber())


def match_id() -> Fluent:
    """Return what tells the match from all others for good: 32 hexadecimal digits.

    It is made of the query, the events of the match, and the variables that they were matched to.
    In a measure alone.

    Examples
    --------
    >>> match_id().tree == parse_expression("MATCH_ID()")
    True
    """
    return Fluent(MatchId())


class _Functions:
    """Scalar and aggregate functions by name: `fn.sum("price")`, `fn.count("*")`, `fn.abs(x)`.

    Examples
    --------
    >>> fn.count("A.*").tree
    Call(name='count', arguments=(Star(variable='A'),), distinct=False, condition=None,
        order=())
    """

    def __getattr__(self, name: str) -> Callable[..., Fluent]:
        if name.startswith("__"):
            raise AttributeError(name)

        def function(*arguments: Operand, distinct: bool = False) -> Fluent:
            trees = tuple(_argument(argument) for argument in arguments)
            return Fluent(Call(name.lower().rstrip("_"), trees, a_flag(distinct, "distinct")))

        return function


#: All functions of the expression language.
fn = _Functions()


def _navigate(kind: _Navigation, expression: str | Fluent, offset: int | None) -> Fluent:
    if offset is not None:
        offset = a_whole_number(offset, f"the offset of {kind}", least=0)
    return Fluent(Navigate(kind, _argument(expression), offset))


def _argument(value: Operand) -> Expression:
    """Return the tree of a function's argument: a string is a column or `*`."""
    if not isinstance(value, str):
        return _constant(value).tree
    if value == "*" or value.endswith(".*"):
        return Star(value[:-2] or None) if len(value) > 1 else Star()
    return col(value).tree


def _constant(value: Operand) -> Fluent:
    if isinstance(value, Fluent):
        return value
    return Fluent(value) if isinstance(value, Expression) else lit(value)


@dataclass(frozen=True, slots=True)
class Steps:
    """A pattern under construction; made by `step`.

    Quantifiers apply to the last step (or group). Between its repetitions they allow other events
    (`link="next"`) unless told: `consecutive()` and `allow_combinations()` change that afterwards,
    `greedy()`, `reluctant()` and `possessive()` the mode, `until(...)` the end.

    Examples
    --------
    >>> step("A").followed_by("B").one_or_more().then("C").tree == parse_pattern("A -> B+ C")
    True
    """

    items: tuple[Pattern, ...]
    links: tuple[Link, ...] = ()

    @property
    def tree(self) -> Pattern:
        """The pattern that was built."""
        return ast.concat(self.items, self.links)

    def then(self, step: str | Steps) -> Steps:
        """Add a step at the very next event: `A B`."""
        return self._add(Link.STRICT, _item(step))

    def followed_by(self, step: str | Steps) -> Steps:
        """Add a step at the next event that fits: `A -> B`."""
        return self._add(Link.NEXT, _item(step))

    def followed_by_any(self, step: str | Steps) -> Steps:
        """Add a step at any later event that fits: `A ->> B`."""
        return self._add(Link.ANY, _item(step))

    def not_then(self, name: str) -> Steps:
        """Demand that the very next event does not fit: `A !B`."""
        return self._add(Link.STRICT, ast.Not(_variable(name)))

    def not_followed_by(self, name: str) -> Steps:
        """Demand that no event fits until the next step: `A -> !B`."""
        return self._add(Link.NEXT, ast.Not(_variable(name)))

    def or_(self, other: str | Steps) -> Steps:
        """Allow another pattern instead of everything so far: `A B | C`."""
        return Steps((ast.alternate((self.tree, _item(other))),))

    def exclude(self) -> Steps:
        """Match the last step, but leave it out of ALL ROWS PER MATCH: `{- A -}`."""
        return self._change(ast.Exclude(self.items[-1]))

    def optional(self, *, mode: str | Mode = Mode.GREEDY) -> Steps:
        """Let the last step, or its whole repetition, be left out: `A?`, `A*` for `A+`."""
        last = self.items[-1]
        if isinstance(last, ast.Repeat) and last.least <= 1:
            return self._change(replace(last, least=0))
        if isinstance(last, ast.Repeat):
            return self._change(ast.Repeat(last, 0, 1, last.mode))
        return self._change(ast.Repeat(self._repeatable(), 0, 1, one_of(Mode, mode, "mode")))

    def one_or_more(self, *, mode: str | Mode = Mode.GREEDY, link: str | Link = Link.NEXT) -> Steps:
        """Repeat the last step: `A+`."""
        return self._repeat(1, None, mode, link)

    def zero_or_more(
        self, *, mode: str | Mode = Mode.GREEDY, link: str | Link = Link.NEXT
    ) -> Steps:
        """Repeat the last step, or leave it out: `A*`."""
        return self._repeat(0, None, mode, link)

    def times(
        self,
        least: int,
        most: int | None = None,
        *,
        mode: str | Mode = Mode.GREEDY,
        link: str | Link = Link.NEXT,
    ) -> Steps:
        """Repeat the last step so many times: `A{2}`, `A{2,5}`."""
        return self._repeat(least, least if most is None else most, mode, link)

    def times_or_more(
        self, least: int, *, mode: str | Mode = Mode.GREEDY, link: str | Link = Link.NEXT
    ) -> Steps:
        """Repeat the last step at least so many times: `A{2,}`."""
        return self._repeat(least, None, mode, link)

    def greedy(self) -> Steps:
        """Prefer as many repetitions as possible: `A+`, which every quantifier does unless told.

        Flink's `greedy()` is more: an event that the repetition can take is never given to the next
        step. That is `possessive()` here, `A++`.
        """
        return self._modify(_made_greedy, both=True)

    def reluctant(self) -> Steps:
        """Prefer as few repetitions as possible: `A+?`."""
        return self._modify(lambda repeat: replace(repeat, mode=Mode.RELUCTANT), both=True)

    def possessive(self) -> Steps:
        """Never leave an event that the repetition could have taken: `A++`."""
        return self._modify(lambda repeat: replace(repeat, mode=Mode.POSSESSIVE), both=True)

    def consecutive(self) -> Steps:
        """Allow no other events between the repetitions: `A(.)+`."""
        return self._modify(lambda repeat: replace(repeat, link=_own(repeat, Link.STRICT)))

    def allow_combinations(self) -> Steps:
        """Let the repetitions take any of the later events that fit: `A(->>)+`."""
        return self._modify(lambda repeat: replace(repeat, link=_own(repeat, Link.ANY)))

    def until(self, name: str) -> Steps:
        """End the repetition at the first event that satisfies a variable's definition."""
        return self._modify(lambda repeat: replace(repeat, until=_variable(name)))

    def _add(self, link: Link, item: Pattern) -> Steps:
        return Steps((*self.items, item), (*self.links, link))

    def _change(self, last: Pattern) -> Steps:
        return Steps((*self.items[:-1], last), self.links)

    def _repeatable(self) -> Pattern:
        last = self.items[-1]
        if isinstance(last, ast.Not):
            raise BindError("a negation cannot be repeated")
        return last

    def _repeat(self, least: int, most: int | None, mode: str | Mode, link: str | Link) -> Steps:
        low = a_whole_number(least, "the least number of repetitions", least=0)
        high = MOST_REPETITIONS
        if most is not None:
            most = high = a_whole_number(most, "the greatest number of repetitions")
        if not 0 <= low <= high <= MOST_REPETITIONS or high < 1:
            raise BindError(f"the quantifier bounds {least} and {most} are not a range")
        item = self._repeatable()
        repeat = ast.Repeat(item, low, most, one_of(Mode, mode, "mode"))
        return self._change(replace(repeat, link=_own(repeat, one_of(Link, link, "link"))))

    def _modify(self, change: Callable[[ast.Repeat], ast.Repeat], *, both: bool = False) -> Steps:
        """Change the last quantifier; where `optional` was put around it, the inner one."""
        last = self.items[-1]
        if not isinstance(last, ast.Repeat):
            raise BindError(
                "there is no quantifier to change",
                hint='write step("A").one_or_more() first; it is greedy unless told, and what '
                "Flink calls greedy() is possessive()",
            )
        inner = last.item
        if last.most == 1 and isinstance(inner, ast.Repeat):
            outer = change(last) if both else last
            return self._change(replace(outer, item=change(inner)))
        return self._change(change(last))


def step(step: str | Steps) -> Steps:
    """Begin a pattern with a variable, or with a group that was built before.

    Parameters
    ----------
    step
        The variable's name, or the group.

    Examples
    --------
    >>> step(step("A").then("B")).times(2, link="strict").tree == parse_pattern("(A B){2}")
    True
    """
    return Steps((_item(step),))


def permute(*steps: str | Steps) -> Steps:
    """Return a pattern of all the steps in any order: `PERMUTE(A, B)`.

    Parameters
    ----------
    *steps
        The variables and groups.

    Examples
    --------
    >>> permute("A", step("B").then("C")).tree == parse_pattern("PERMUTE(A, B C)")
    True
    """
    if not steps:
        raise BindError("permute needs at least one step")
    return Steps((ast.Permute(tuple(_item(step) for step in steps)),))


def pattern_tree(pattern: str | Pattern | Steps) -> Pattern:
    """Return the tree of a pattern in any notation."""
    if isinstance(pattern, str):
        return parse_pattern(pattern)
    tree = pattern.tree if isinstance(pattern, Steps) else pattern
    if not isinstance(tree, Pattern):
        raise BindError(
            f"a pattern is text or a tree, not {shown(pattern)}",
            hint="""write pattern("A B+ C"), or pattern(op.step("A").then("B"))""",
        )
    if pattern_is_too_deep(tree):
        raise BindError(f"the pattern is nested deeper than {MOST_LEVELS} levels")
    return tree


def _item(step: str | Steps) -> Pattern:
    """Return a step; a string is the name of a variable, whatever characters it has."""
    if isinstance(step, Steps):
        return step.tree
    if not isinstance(step, str):
        raise BindError(f"a step is the name of a variable or a group, not {shown(step)}")
    return ast.Var(_variable(step))


def _variable(name: str) -> str:
    if not a_text(name, "a variable"):
        raise BindError("a variable needs a name")
    return name


def _made_greedy(repeat: ast.Repeat) -> ast.Repeat:
    if repeat.mode is Mode.GREEDY:
        warnings.warn(
            "every quantifier is greedy unless told otherwise; Flink's greedy() is possessive()",
            stacklevel=4,
        )
    return replace(repeat, mode=Mode.GREEDY)


def _own(repeat: ast.Repeat, link: Link) -> Link:
    """Return the link to keep: what happens at most once has no link between repetitions."""
    return Link.STRICT if repeat.most == 1 else link
