"""Row patterns in a window, where each row has a frame of its own, as a query over partitions.

MATCH_RECOGNIZE searches a partition, in which PREV and NEXT see every row. A window gives each row
a frame that begins with it: its match lies within the frame, and PREV and NEXT see nothing outside.
Both search row by row and skip after a match, so `framed` writes the frames into the conditions:

    PREV(price)             CASE WHEN row - 1 >= FIRST(row) THEN PREV(price) END
    a frame that ends       ... AND row - FIRST(row) <= FIRST(after), in the DEFINE of each variable
    SEEK, PATTERN (A B)     PATTERN (SKIPPED*? A B), and what is said of all rows is of A and B
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

from outpace.errors import UnsupportedError
from outpace.pattern import ast
from outpace.pattern.expression import (
    Binary,
    Call,
    Case,
    Classifier,
    Expression,
    Literal,
    MatchId,
    MatchNumber,
    Name,
    Navigate,
    Semantics,
    Star,
    transform,
    walk,
)
from outpace.pattern.functions.aggregate import find_aggregate
from outpace.pattern.query import Query, RowsPerMatch
from outpace.pattern.size import size_of


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of the rows of a window, and names that stand for nothing else.

    Parameters
    ----------
    row
        The column with the number of a row in its partition.
    after
        The column that says how many rows come after a row in its frame; None for all.
    seek
        Whether the match may begin behind the first row of the frame.
    skipped, matched
        Names for the variable of the rows before the match, and for the rows of the match.
    """

    row: str
    after: str | None
    seek: bool
    skipped: str
    matched: str


def framed(query: Query, frames: Frames) -> Query:
    """Return the query over partitions that finds what a query finds in the frames of their rows.

    Its first measure is the row whose match it is. Where a match can be empty, all rows of matches
    come out, and an empty match is a row without that number.

    Parameters
    ----------
    query
        With a pattern, definitions, subsets, measures and where to go on after a match.
    frames
        What the rows see.

    Examples
    --------
    >>> from outpace.pattern.notation.parse_match_recognize import parse_match_recognize
    >>> from outpace.pattern.notation.print_query import print_match_recognize
    >>> asked = parse_match_recognize("PATTERN (A B+) DEFINE A AS price < PREV(price)")
    >>> found = framed(asked, Frames("row", None, False, "SKIPPED", "MATCHED"))
    >>> print(print_match_recognize(found))
    MATCH_RECOGNIZE (
      MEASURES
        FIRST(row) AS row_of
      ONE ROW PER MATCH
      PATTERN (A B+)
      DEFINE
        A AS price < CASE WHEN row - 1 >= FIRST(row) THEN PREV(price) END
    )
    """
    assert query.tree is not None, "a query that was read has a pattern"
    _refuse(query)
    subsets, tree = query.subsets, query.tree
    rewriting = _Rewriting(frames, {*ast.predicates(tree), *(name for name, _ in subsets)})
    before = _rows_before(tree)
    definitions = {
        name: rewriting.seen(node, name, before.get(name, 0)) for name, node in query.definitions
    }
    if frames.seek:
        subsets = (*subsets, (frames.matched, ast.variables(tree)))
        skipped = ast.Repeat(ast.Var(frames.skipped), 0, None, ast.Mode.RELUCTANT)
        tree = ast.concat([skipped, tree])
    if frames.after is not None:
        for name in ast.variables(tree):
            inside = rewriting.inside(frames.after)
            known = definitions.get(name)
            definitions[name] = inside if known is None else Binary("and", inside, known)
    outputs = [(name, rewriting.seen(node)) for name, node in query.outputs]
    rows = RowsPerMatch.ONE
    if size_of(query.tree).empty:
        rows = RowsPerMatch.ALL_SHOW_EMPTY
        outputs = [(name, _at_the_end(node)) for name, node in outputs]
    return replace(
        query,
        tree=tree,
        subsets=subsets,
        definitions=tuple(definitions.items()),
        outputs=((f"{frames.row}_of", rewriting.first), *outputs),
        rows=rows,
    )


def _refuse(query: Query) -> None:
    """Refuse what goes beyond the rows of one frame."""
    assert query.tree is not None, "a query that was read has a pattern"
    for part in ast.walk(query.tree):
        what = next((what for kind, what in _NOT_IN_FRAMES if isinstance(part, kind)), None)
        if what is not None:
            raise UnsupportedError(f"{what} does not stand in a window", span=part.span)
    if ast.links(query.tree) - {ast.Link.STRICT}:
        message = "'->' and '->>' do not stand in a window"
        raise UnsupportedError(message, span=query.tree.span)
    for _, node in (*query.outputs, *query.definitions):
        for inner in walk(node):
            if isinstance(inner, MatchNumber | MatchId):
                message = "matches of a window have no numbers"
                raise UnsupportedError(message, span=inner.span)


_NOT_IN_FRAMES: tuple[tuple[type[ast.Pattern], str], ...] = (
    (ast.AtStart, "the anchor '^'"),
    (ast.AtEnd, "the anchor '$'"),
    (ast.Exclude, "'{- -}'"),
    (ast.Not, "'!'"),
)


class _Rewriting:
    """What becomes of expressions; `variables` are the names that are no columns."""

    def __init__(self, frames: Frames, variables: Iterable[str]) -> None:
        self.frames = frames
        self.variables = frozenset(variables)
        self.row = Name((frames.row,))
        #: The number of the row that the frame begins with.
        self.first = Navigate("first", self.row)

    def inside(self, after: str) -> Expression:
        """Return the condition that a row is in the frame of the match's first row."""
        passed = Binary("-", self.row, self.first)
        return Binary("<=", passed, Navigate("first", Name((after,))))

    def seen(self, node: Expression, variable: str | None = None, before: int = 0) -> Expression:
        """Return an expression that sees the frame alone, and of all rows those of the match.

        In the DEFINE of a variable so many rows of the frame are before its row at least.
        """
        if self.frames.seek:
            node = transform(node, self._of_match)
        return transform(node, lambda part: self._guarded(part, variable, before))

    def _of_match(self, node: Expression) -> Expression:
        """Let what is said of all rows be said of those of the match."""
        if isinstance(node, Navigate) and node.kind in ("first", "last"):
            return replace(node, operand=transform(node.operand, self._matched))
        if isinstance(node, Navigate):
            return replace(node, operand=transform(node.operand, self._unlabelled))
        if not isinstance(node, Call) or find_aggregate(node.name) is None:
            return node
        arguments = tuple(transform(one, self._matched) for one in node.arguments)
        if all(self._is_constant(one) for one in arguments):
            if node.name != "count" or Literal(None) in arguments or node.distinct:
                message = f"'{node.name}' of a constant does not go with SEEK"
                raise UnsupportedError(message, span=node.span, hint="name a column of the rows")
            arguments = (Star(self.frames.matched),)
        condition = node.condition and transform(node.condition, self._matched)
        order = tuple(
            replace(key, operand=transform(key.operand, self._matched)) for key in node.order
        )
        return replace(node, arguments=arguments, condition=condition, order=order)

    def _matched(self, node: Expression) -> Expression:
        matched = self.frames.matched
        if isinstance(node, Name) and node.parts[0] not in self.variables | {matched}:
            return replace(node, parts=(matched, *node.parts))
        if isinstance(node, Classifier | Star) and node.variable is None:
            return replace(node, variable=matched)
        return node

    def _unlabelled(self, node: Expression) -> Expression:
        """Let rows before the match have no variable."""
        if not isinstance(node, Classifier):
            return node
        return Call("nullif", (node, Literal(self.frames.skipped)), span=node.span)

    def _is_constant(self, node: Expression) -> bool:
        return not any(isinstance(part, Name | Classifier | Star) for part in walk(node))

    def _guarded(self, node: Expression, variable: str | None, before: int) -> Expression:
        """Let PREV and NEXT see the frame alone."""
        if not isinstance(node, Navigate) or node.kind in ("first", "last"):
            return node
        place = self._row_of(node.operand)
        steps = 1 if node.offset is None else node.offset
        distance = Literal(steps)
        if node.kind == "prev":
            present = variable is not None and place in (self.row, self._row(variable))
            if present and steps <= before:
                return node
            within: Expression = Binary(">=", Binary("-", place, distance), self.first)
        elif self.frames.after is not None:
            passed = Binary("-", Binary("+", place, distance), self.first)
            within = Binary("<=", passed, Navigate("first", Name((self.frames.after,))))
        else:
            return node
        return Case(None, ((within, node),), None, span=node.span)

    def _row_of(self, node: Expression) -> Expression:
        """Return the number of the row that an expression is evaluated on."""
        if isinstance(node, Semantics | Navigate):
            return replace(node, operand=self._row_of(node.operand))
        for part in walk(node):
            if isinstance(part, Name) and part.parts[0] in self.variables | {self.frames.matched}:
                return self._row(part.parts[0])
            if isinstance(part, Classifier) and part.variable is not None:
                return self._row(part.variable)
        return self.row

    def _row(self, variable: str) -> Name:
        return Name((variable, self.frames.row))


def _rows_before(pattern: ast.Pattern) -> dict[str, int]:
    """Return how many rows of a match at least are before a row of each variable."""
    found: dict[str, int] = {}

    def walked(node: ast.Pattern, before: int) -> int:
        """Note the variables of a part that so many rows are before; return its least rows."""
        match node:
            case ast.Var(name=name):
                found[name] = min(before, found.get(name, before))
                return 1
            case ast.Concat(items=items):
                return reduce(lambda rows, item: rows + walked(item, before + rows), items, 0)
            case ast.Permute(items=items):
                return sum(walked(item, before) for item in items)
            case ast.Repeat(item=item, least=least):
                return least * walked(item, before)
        return min((walked(part, before) for part in ast.children(node)), default=0)

    walked(pattern, 0)
    return found


def _at_the_end(node: Expression) -> Expression:
    """Return a measure of a match's last row that is the same on each of its rows."""
    if isinstance(node, Semantics):
        return replace(node, kind="final")
    if isinstance(node, Name | Classifier):
        return Semantics("final", Navigate("last", node, span=node.span), span=node.span)
    if isinstance(node, Navigate) and node.kind in ("prev", "next"):
        operand = node.operand
        if isinstance(operand, Semantics):
            operand = operand.operand
        elif not isinstance(operand, Navigate):
            operand = Navigate("last", operand, span=operand.span)
        return replace(node, operand=Semantics("final", operand, span=operand.span))
    aggregate = isinstance(node, Call) and find_aggregate(node.name) is not None
    if aggregate or isinstance(node, Navigate):
        return Semantics("final", node, span=node.span)
    return _with_parts(node, _at_the_end)


def _with_parts(node: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return a node with each of its direct parts changed."""

    def changed(value: object) -> object:
        if isinstance(value, Expression):
            return change(value)
        return tuple(map(changed, value)) if isinstance(value, tuple) else value

    parts: dict[str, Any] = {
        one.name: changed(getattr(node, one.name)) for one in fields(node) if one.name != "span"
    }
    return replace(node, **parts)
