"""Bounds on patterns and expressions: how large a pattern is, and how deep trees are.

Its size is that with its repetitions written out, known without writing them out. What is counted
is there in every program of the pattern, so a pattern that is refused here would be refused by who
compiles it, only later.

Whatever walks a tree may recurse once or twice per level: parsed and built trees are never deeper
than `MOST_LEVELS`, so none can exhaust the interpreter's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Final, NamedTuple, TypeVar

from outpace.errors import UnsupportedError
from outpace.pattern import ast, expression

#: Bounds on a pattern: the places that take an event, and the ways between places.
POSITIONS_MAX: Final = 10_000
WAYS_MAX: Final = 200_000


class Size(NamedTuple):
    """How large a pattern is.

    Parameters
    ----------
    positions
        The places that take an event.
    first, last
        Those that can take the first event, and the last.
    ways
        The pairs of places that can take one event and the next; no more than there are.
    empty
        Whether the pattern can take none.
    """

    positions: int = 0
    first: int = 0
    last: int = 0
    ways: int = 0
    empty: bool = True


def check_size(pattern: ast.Pattern) -> None:
    """Refuse a pattern that is too large.

    Examples
    --------
    >>> check_size(ast.Repeat(ast.Repeat(ast.Var("A"), 0, 1), 1400, 1400))
    Traceback (most recent call last):
    ...
    outpace.errors.UnsupportedError: [unsupported] the pattern is too large
      pattern
      more than 200000 ways from one event to the next
      hint: use smaller bounds in the quantifiers, or an unbounded one
    """
    size = size_of(pattern)
    if size.positions > POSITIONS_MAX:
        raise too_large(f"more than {POSITIONS_MAX} positions")
    if size.ways > WAYS_MAX:
        raise too_large(f"more than {WAYS_MAX} ways from one event to the next")


def too_large(detail: str) -> UnsupportedError:
    """Return the error for a pattern that is too large."""
    return UnsupportedError(
        "the pattern is too large",
        where="pattern",
        detail=detail,
        hint="use smaller bounds in the quantifiers, or an unbounded one",
    )


def size_of(pattern: ast.Pattern) -> Size:
    """Return how large a pattern is.

    Examples
    --------
    >>> size_of(ast.Repeat(ast.Var("A"), 2, None)).ways
    2
    """
    parts = [size_of(part) for part in ast.children(pattern)]
    match pattern:
        case ast.Var():
            return Size(1, 1, 1, 0, empty=False)
        case ast.Concat():
            return reduce(_then, parts, Size())
        case ast.Alternate():
            return _either(parts, any(part.empty for part in parts))
        case ast.Permute():
            # An item stands behind every set of the others.
            copies = 2 ** (len(parts) - 1)
            found = _either(parts, all(part.empty for part in parts))
            return found._replace(positions=copies * found.positions, ways=copies * found.ways)
        case ast.Repeat():
            return _repeated(parts[0], pattern)
        case ast.Exclude():
            return parts[0]
    return Size()


def _then(left: Size, right: Size) -> Size:
    return Size(
        left.positions + right.positions,
        left.first + (right.first if left.empty else 0),
        right.last + (left.last if right.empty else 0),
        left.ways + right.ways + left.last * right.first,
        left.empty and right.empty,
    )


def _either(parts: list[Size], empty: bool) -> Size:
    first, last = (sum(part[side] for part in parts) for side in (1, 2))
    return Size(sum(p.positions for p in parts), first, last, sum(p.ways for p in parts), empty)


def _repeated(item: Size, repeat: ast.Repeat) -> Size:
    """Write an item out, from the last time on; each time that may be left out holds the next."""
    found = Size()
    times = max(1, repeat.least) if repeat.most is None else repeat.most
    for number in range(times if item.positions else 0):
        if repeat.most is None and number == 0:
            # It may come again and again; the ways back to it may be there already.
            found = item._replace(ways=max(item.ways, item.last * item.first))
        else:
            found = _then(item, found)
        if number < times - repeat.least:
            found = found._replace(empty=True)
        if found.positions > POSITIONS_MAX or found.ways > WAYS_MAX:
            break
    return found


#: How deep parentheses, calls and prefixes may be nested in a text.
MOST_NESTED = 64

#: How deep a tree may be.
MOST_LEVELS = 200

_AnyNode = TypeVar("_AnyNode")


def pattern_is_too_deep(pattern: ast.Pattern) -> bool:
    """Whether a pattern has more than `MOST_LEVELS` levels."""
    return _too_deep(pattern, ast.children)


def expression_is_too_deep(node: expression.Expression) -> bool:
    """Whether an expression has more than `MOST_LEVELS` levels.

    Examples
    --------
    >>> node = expression.Name(("x",))
    >>> expression_is_too_deep(node)
    False
    >>> for _ in range(MOST_LEVELS):
    ...     node = expression.Unary("-", node)
    >>> expression_is_too_deep(node)
    True
    """
    return _too_deep(node, expression.children)


def _too_deep(root: _AnyNode, children: Callable[[_AnyNode], Iterable[_AnyNode]]) -> bool:
    level = [root]
    for _ in range(MOST_LEVELS):
        level = [child for node in level for child in children(node)]
        if not level:
            return False
    return True
