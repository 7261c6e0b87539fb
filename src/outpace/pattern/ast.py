"""The pattern tree: what a match looks like, as frozen values.

The fluent builder, pattern text and MATCH_RECOGNIZE all produce these nodes, and equal patterns are
equal values. Build sequences and alternations with `concat` and `alternate`: they flatten nested
ones, so that `(A B) C` and `A B C` are one tree. `docs/explanation/semantics.md` defines what the
nodes mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from outpace.errors import Span


class Link(Enum):
    """How an event must follow the one before it in a match (contiguity)."""

    STRICT = "strict"
    """The very next event: juxtaposition, `A B`."""
    NEXT = "next"
    """The first later event that fits, `A -> B` (skip till next match)."""
    ANY = "any"
    """Any later event that fits, `A ->> B` (skip till any match)."""


class Mode(Enum):
    """Which of several repetitions a quantifier prefers."""

    GREEDY = "greedy"
    """As many as possible: `A+`."""
    RELUCTANT = "reluctant"
    """As few as possible: `A+?`."""
    POSSESSIVE = "possessive"
    """Never leaves an event that it could have taken: `A++` (Flink's greedy)."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The base of all pattern nodes."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Var(Pattern):
    """One event, labelled with a pattern variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Not(Pattern):
    """A step that must not happen: `!B`, only inside a sequence and never its first item.

    The link that leads to it says which: strict, the very next event is no B (`A !B C`); otherwise
    no B until the next step is taken (`A -> !B -> C`). At the end of a pattern it must hold
    until WITHIN has passed.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Empty(Pattern):
    """The empty pattern, `()`."""


@dataclass(frozen=True, slots=True)
class AtStart(Pattern):
    """The anchor `^`: the partition's first row comes next."""


@dataclass(frozen=True, slots=True)
class AtEnd(Pattern):
    """The anchor `$`: the partition's last row came before."""


@dataclass(frozen=True, slots=True)
class Concat(Pattern):
    """A sequence; `links[i]` leads from `items[i]` to `items[i + 1]`. Use `concat` to build one."""

    items: tuple[Pattern, ...]
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        if len(self.items) < 2 or len(self.links) != len(self.items) - 1:
            raise ValueError("a sequence has two or more items and one link between each two")


@dataclass(frozen=True, slots=True)
class Alternate(Pattern):
    """One of several options, the first preferred. Use `alternate` to build one."""

    options: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        if len(self.options) < 2:
            raise ValueError("an alternation has two or more options")


@dataclass(frozen=True, slots=True)
class Permute(Pattern):
    """All items in any order, `PERMUTE(A, B)`; orders are preferred as the items are listed."""

    items: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Exclude(Pattern):
    """Matched, but left out of the rows of ALL ROWS PER MATCH: `{- A -}`."""

    item: Pattern


@dataclass(frozen=True, slots=True)
class Repeat(Pattern):
    """A quantified item.

    Parameters
    ----------
    item
        The part of the pattern that is repeated.
    least, most
        Bounds; `most` None means no bound.
    mode
        Greedy, reluctant or possessive.
    link
        The contiguity between one repetition and the next.
    until
        A variable whose predicate ends the repetition: from the first event that satisfies it on,
        no further repetition is taken.
    """

    item: Pattern
    least: int
    most: int | None
    mode: Mode = Mode.GREEDY
    link: Link = Link.STRICT
    until: str | None = None

    def __post_init__(self) -> None:
        if self.least < 0 or (self.most is not None and self.most < max(1, self.least)):
            raise ValueError(f"quantifier bounds {self.least},{self.most} are not a range")


def concat(items: Sequence[Pattern], links: Sequence[Link] | None = None) -> Pattern:
    """Build a sequence, flattening nested ones; one item is itself, none is `Empty`.

    Examples
    --------
    >>> concat([concat([Var("A"), Var("B")]), Var("C")]) == concat([Var("A"), Var("B"), Var("C")])
    True
    """
    between = list(links) if links is not None else [Link.STRICT] * (len(items) - 1)
    if not items:
        return Empty()
    flat: list[Pattern] = []
    flat_links: list[Link] = []
    for index, item in enumerate(items):
        if index:
            flat_links.append(between[index - 1])
        if isinstance(item, Concat):
            flat.extend(item.items)
            flat_links.extend(item.links)
        else:
            flat.append(item)
    if len(flat) == 1:
        return flat[0]
    return Concat(tuple(flat), tuple(flat_links))


def alternate(options: Sequence[Pattern]) -> Pattern:
    """Build an alternation, flattening nested ones; one option is itself."""
    flat: list[Pattern] = []
    for option in options:
        flat.extend(option.options if isinstance(option, Alternate) else (option,))
    return flat[0] if len(flat) == 1 else Alternate(tuple(flat))


def children(pattern: Pattern) -> tuple[Pattern, ...]:
    """Return the direct parts of a node."""
    match pattern:
        case Concat(items=parts) | Permute(items=parts) | Alternate(options=parts):
            return parts
        case Exclude(item=part) | Repeat(item=part):
            return (part,)
        case _:
            return ()


def walk(pattern: Pattern) -> Iterator[Pattern]:
    """Yield the node and everything below it, in text order, without recursion.

    Examples
    --------
    >>> [n.name for n in walk(concat([Var("A"), Not("B"), Var("C")])) if isinstance(n, Var)]
    ['A', 'C']
    """
    stack = [pattern]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def variables(pattern: Pattern) -> tuple[str, ...]:
    """Return the names of the variables that can label a row, each once, in text order."""
    return tuple(dict.fromkeys(n.name for n in walk(pattern) if isinstance(n, Var)))


def predicates(pattern: Pattern) -> tuple[str, ...]:
    """Return every name that needs a DEFINE to look up: variables, negated ones and `until`s."""
    names: dict[str, None] = {}
    for node in walk(pattern):
        match node:
            case Var(name=name) | Not(name=name):
                names[name] = None
            case Repeat(until=str(name)):
                names[name] = None
            case _:
                pass
    return tuple(names)


def links(pattern: Pattern) -> frozenset[Link]:
    """Return the kinds of links that occur anywhere in the pattern."""
    found: set[Link] = set()
    for node in walk(pattern):
        if isinstance(node, Concat):
            found.update(node.links)
        elif isinstance(node, Repeat) and (node.most is None or node.most > 1):
            found.add(node.link)
    return frozenset(found)
