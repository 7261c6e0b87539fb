"""The own link of a quantifier where the text does not set it: the rule that reads and prints it.

The contiguity between the repetitions of an item is the link that leads to the item; for the first
item of a sequence the link that follows it; where there is none, or at most one repetition, strict.
Anchors and the empty pattern take no event and do not count as items here. Parentheses that only
group do not change anything. Inside a quantified group, an alternation, an exclusion or PERMUTE, a
sequence has its own links, and a single item takes the link of what stands around it.
"""

from __future__ import annotations

from outpace.pattern import ast

#: The link of a quantifier that stands alone.
ALONE = ast.Link.STRICT


def default_link(repeat: ast.Repeat, around: ast.Link) -> ast.Link:
    """Return the own link of a quantifier without one in the text; `around` is its place's."""
    return ALONE if repeat.most == 1 else around


def item_links(sequence: ast.Concat) -> tuple[ast.Link, ...]:
    """Return, for each item of a sequence, the own link that a quantifier on it has by default.

    Examples
    --------
    >>> from outpace.pattern.ast import Concat, Link, Var
    >>> abc = Concat((Var("A"), Var("B"), Var("C")), (Link.NEXT, Link.STRICT))
    >>> [link.value for link in item_links(abc)]
    ['next', 'next', 'strict']
    """
    leading: list[ast.Link] = []
    first = True
    for index, item in enumerate(sequence.items):
        before = sequence.links[index - 1] if index else sequence.links[0]
        after = sequence.links[index] if index < len(sequence.links) else before
        leading.append(after if first else before)
        if not isinstance(item, ast.AtStart | ast.AtEnd | ast.Empty):
            first = False
    return tuple(leading)
