"""Bounds on nesting, so that no text and no tree can exhaust the interpreter's stack.

Whatever walks a pattern or an expression may recurse once or twice per level: parsed and built
trees are never deeper than `MOST_LEVELS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from outpace.pattern import ast, expression

#: How deep parentheses, calls and prefixes may be nested in a text.
MOST_NESTED = 64

#: How deep a tree may be.
MOST_LEVELS = 200

_Node = TypeVar("_Node")


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


def _too_deep(root: _Node, children: Callable[[_Node], Iterable[_Node]]) -> bool:
    level = [root]
    for _ in range(MOST_LEVELS):
        level = [child for node in level for child in children(node)]
        if not level:
            return False
    return True
