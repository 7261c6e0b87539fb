"""The pattern tree as pattern text, with no more parentheses, links and quotes than needed.

`parse_pattern(print_pattern(tree)) == tree` for every tree that pattern text can express.
"""

from __future__ import annotations

from collections.abc import Callable

from outpace.errors import BindError
from outpace.pattern import ast
from outpace.pattern.notation.own_link import ALONE, default_link, item_links
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.size import MOST_LEVELS, pattern_is_too_deep

_LINKS = {ast.Link.STRICT: " ", ast.Link.NEXT: " -> ", ast.Link.ANY: " ->> "}
_OWN_LINKS = {ast.Link.STRICT: "(.)", ast.Link.NEXT: "(->)", ast.Link.ANY: "(->>)"}
_MODES = {ast.Mode.GREEDY: "", ast.Mode.RELUCTANT: "?", ast.Mode.POSSESSIVE: "+"}
_SIGNS = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def print_pattern(pattern: ast.Pattern, *, name: Callable[[str], str] = print_name) -> str:
    """Write a pattern as text.

    Parameters
    ----------
    pattern
        The tree.
    name
        How a variable is written.

    Examples
    --------
    >>> from outpace.pattern.notation.parse_pattern import parse_pattern
    >>> print_pattern(parse_pattern("((A) (B){1,} -> (C|D))"))
    'A B+ -> (C | D)'
    >>> print_pattern(parse_pattern("A -> B(.)+ UNTIL u"))
    'A -> B(.)+ UNTIL u'
    """
    if pattern_is_too_deep(pattern):
        raise BindError(f"the pattern is nested deeper than {MOST_LEVELS} levels")
    return _PatternPrinter(name).text(pattern, ALONE)


class _PatternPrinter:
    def __init__(self, name: Callable[[str], str]) -> None:
        self.name = name

    def text(self, pattern: ast.Pattern, around: ast.Link) -> str:
        """Write a pattern; `around` is the own link that a quantifier here has by default."""
        match pattern:
            case ast.Var(name=name):
                return self.name(name)
            case ast.Not(name=name):
                return "!" + self.name(name)
            case ast.AtStart():
                return "^"
            case ast.AtEnd():
                return "$"
            case ast.Concat():
                return self._sequence(pattern)
            case ast.Alternate(options=options):
                return " | ".join(self.text(option, around) for option in options)
            case ast.Permute(items=items):
                return f"PERMUTE({', '.join(self.text(item, around) for item in items)})"
            case ast.Exclude(item=item):
                return f"{{- {self.text(item, around)} -}}"
            case ast.Repeat():
                return self._repeat(pattern, around)
            case _:
                return "()"

    def _sequence(self, pattern: ast.Concat) -> str:
        pieces: list[str] = []
        for index, (item, own) in enumerate(zip(pattern.items, item_links(pattern), strict=True)):
            if index:
                pieces.append(_LINKS[pattern.links[index - 1]])
            text = self.text(item, own)
            pieces.append(f"({text})" if isinstance(item, ast.Alternate | ast.Concat) else text)
        return "".join(pieces)

    def _repeat(self, pattern: ast.Repeat, around: ast.Link) -> str:
        grouped = isinstance(pattern.item, ast.Alternate | ast.Concat | ast.Repeat)
        inner = self.text(pattern.item, around)
        item = f"({inner})" if grouped else inner
        own = "" if pattern.link is default_link(pattern, around) else _OWN_LINKS[pattern.link]
        until = f" UNTIL {self.name(pattern.until)}" if pattern.until is not None else ""
        return item + own + _quantifier(pattern) + _MODES[pattern.mode] + until


def _quantifier(pattern: ast.Repeat) -> str:
    sign = _SIGNS.get((pattern.least, pattern.most))
    if sign is not None:
        return sign
    if pattern.least == pattern.most:
        return f"{{{pattern.least}}}"
    return f"{{{pattern.least or ''},{'' if pattern.most is None else pattern.most}}}"
