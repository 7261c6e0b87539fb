"""The ways through a pattern: the sequences of steps that its options and optional parts leave.

Each variable stands once in the pattern, so the variables of a match tell its way, and matches of
all ways together are those of the pattern.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

from outpace.errors import UnsupportedError
from outpace.pattern import ast
from outpace.pattern.bound import Gap, UncertainStep

#: Each way is searched by itself.
WAYS_MAX: Final = 64


class _WayPart(NamedTuple):
    """A part of a way: a repetition of a variable, or a negation; and the link that leads to it.

    The link is None where that stands outside of the part of the pattern that is looked at.
    """

    item: ast.Repeat | ast.Not
    link: ast.Link | None = None


def ways_of(tree: ast.Pattern, names: Sequence[str]) -> tuple[tuple[UncertainStep, ...], ...]:
    """Return the steps of each way through a pattern, or say what is not supported.

    Examples
    --------
    >>> from outpace.pattern.notation.parse_pattern import parse_pattern
    >>> ways = ways_of(parse_pattern("A -> (B | C)? -> D"), "ABCD")
    >>> [[step.variable for step in way] for way in ways]
    [[0, 1, 3], [0, 2, 3], [0, 3]]
    """
    variables = [node.name for node in ast.walk(tree) if isinstance(node, ast.Var)]
    if len(set(variables)) < len(variables):
        raise unsupported(
            "a variable stands twice in the pattern", "give each step a variable of its own"
        )
    ways = [way for items in _unfolded(tree) if (way := _taking(items))]
    if not ways:
        raise _more_than_ways()
    #: What ends a run behind each variable, on whichever way.
    absent: dict[str, dict[str, None]] = {name: {} for name in variables}
    for way in ways:
        for name, negated in _negated(way).items():
            absent[name].update(dict.fromkeys(negated))
    _check_negations(tree, ways, absent)
    numbers = {name: number for number, name in enumerate(names)}
    made = dict.fromkeys(_steps(way, absent, numbers) for way in ways)
    if len({tuple(step.variable for step in way) for way in made}) < len(made):
        raise unsupported(
            "events with the same variables match in two ways", "leave out one of the options"
        )
    return tuple(made)


def _unfolded(tree: ast.Pattern) -> list[tuple[_WayPart, ...]]:
    """Return the ways through a part of a pattern."""
    match tree:
        case ast.Empty():
            return [()]
        case ast.Not():
            return [(_WayPart(tree),)]
        case ast.Alternate(options=options):
            return _few([way for option in options for way in _unfolded(option)])
        case ast.Concat(items=items, links=links):
            ways: list[tuple[_WayPart, ...]] = [()]
            for item, link in zip(items, (None, *links), strict=True):
                led = [
                    (part[0]._replace(link=part[0].link or link), *part[1:]) if part else ()
                    for part in _unfolded(item)
                ]
                ways = _few([(*way, *part) for way, part in product(ways, led)])
            return ways
        case ast.Repeat(least=0):
            return _few([*_unfolded(replace(tree, least=1)), ()])
        case ast.Repeat(item=item, most=1) if not isinstance(item, ast.Var):
            _check_plain(tree)
            return _unfolded(item)
    step = tree if isinstance(tree, ast.Repeat) else ast.Repeat(tree, 1, 1)
    _check_plain(step)
    if not isinstance(step.item, ast.Var):
        raise _more_than_ways()
    return [(_WayPart(step),)]


def _few(ways: list[tuple[_WayPart, ...]]) -> list[tuple[_WayPart, ...]]:
    if len(ways) > WAYS_MAX:
        raise unsupported(f"the pattern has more than {WAYS_MAX} ways", "take a shorter one")
    return ways


def _check_plain(step: ast.Repeat) -> None:
    if step.until or step.mode is ast.Mode.POSSESSIVE:
        raise _more_than_ways()


def _taking(way: tuple[_WayPart, ...]) -> tuple[_WayPart, ...]:
    """Return a way from its first event on: a negation before it says nothing."""
    taking = (place for place, part in enumerate(way) if isinstance(part.item, ast.Repeat))
    way = way[next(taking, len(way)) :]
    if any(isinstance(item, ast.Not) and link is ast.Link.STRICT for item, link in way):
        raise _more_than_ways()
    return way


def _negated(way: tuple[_WayPart, ...]) -> dict[str, list[str]]:
    """Return the negations behind each variable of a way."""
    negated: dict[str, list[str]] = {}
    last = ""
    for item, _ in way:
        if isinstance(item, ast.Not):
            negated[last].append(item.name)
        else:
            last = _name_of(item)
            negated[last] = []
    return negated


def _check_negations(
    tree: ast.Pattern, ways: list[tuple[_WayPart, ...]], absent: Mapping[str, Mapping[str, None]]
) -> None:
    """Refuse negations that hold behind some events of a repeated step, and not behind all."""
    behind: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Concat):
            for item, after in zip(node.items, node.items[1:], strict=False):
                inner = item
                while isinstance(inner, ast.Repeat):
                    inner = inner.item
                if isinstance(inner, ast.Var) and isinstance(after, ast.Not):
                    behind.setdefault(inner.name, set()).add(after.name)
    for item, _ in (part for way in ways for part in way):
        if isinstance(item, ast.Repeat) and item.most != 1:
            name = _name_of(item)
            if len(absent[name]) > 1:
                raise unsupported(
                    f"two negations stand behind the repetition of {name}",
                    "write one variable for both: !C with C AS x OR y",
                )
            if set(absent[name]) != behind.get(name, set()):
                raise unsupported(
                    f"a part that may be left out stands between {name} and a negation",
                    f"write the negation right behind {name}, or do not repeat it",
                )


def _steps(
    way: tuple[_WayPart, ...], absent: Mapping[str, Mapping[str, None]], numbers: Mapping[str, int]
) -> tuple[UncertainStep, ...]:
    taken = [(item, link) for item, link in way if isinstance(item, ast.Repeat)]
    steps = []
    own_negations = _negated(way)
    for place, (step, _) in enumerate(taken):
        name = _name_of(step)
        negated = [numbers[one] for one in absent[name]]
        between = Gap() if step.most == 1 else _gap(step.link, numbers[name], negated)
        if place + 1 < len(taken):
            target, link = taken[place + 1]
            behind = _gap(link or ast.Link.STRICT, numbers[_name_of(target)], negated)
        else:
            # Other ways do not end a match that waits for the end of WITHIN.
            behind = Gap(tuple(dict.fromkeys(numbers[one] for one in own_negations[name])))
        steps.append(UncertainStep(numbers[name], step.least, step.most, between, behind))
    return tuple(steps)


def _gap(link: ast.Link, target: int, absent: list[int]) -> Gap:
    first = [target] if link is ast.Link.NEXT else []
    return Gap(tuple(dict.fromkeys([*first, *absent])), link is ast.Link.STRICT)


def _name_of(step: ast.Repeat) -> str:
    assert isinstance(step.item, ast.Var)
    return step.item.name


def _more_than_ways() -> UnsupportedError:
    return unsupported(
        "the pattern is more than sequences of events",
        "write steps such as A, B{3} or C* with links, options (D | E), and !F behind -> or ->>",
    )


def unsupported(message: str, hint: str) -> UnsupportedError:
    """Return the error for what a query with `Query.uncertain` must not have."""
    return UnsupportedError(
        f"{message}, which is not supported with uncertain", where="uncertain", hint=hint
    )
