"""Checks of a query that need no schema: whether its clauses fit each other.

Guarantees that every variable that a clause names exists, that SUBSETs are unions of variables, and
that a pattern whose matches could not be bounded is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from outpace.errors import BindError, Hint, Span, UnsupportedError, did_you_mean
from outpace.pattern import ast
from outpace.pattern.query import Emission, Query, RowsPerMatch, Selection, Skip
from outpace.pattern.size import check_size

#: The most instances that a query may have.
INSTANCES_MAX: Final = 1024


def check_clauses(query: Query) -> ast.Pattern:
    """Check a query's clauses against each other, and return its pattern.

    Examples
    --------
    >>> check_clauses(Query().pattern(ast.Var("A")))
    Var(name='A')
    """
    tree = query.tree
    if tree is None:
        raise BindError("the query has no pattern", hint="add one, such as .pattern('A B+')")
    check_size(tree)
    _check_negation(query, tree)
    _check_definitions(query, tree)
    _check_subsets(query, tree)
    _check_measures(query)
    _check_skip(query, tree)
    _check_rows(query, tree)
    _check_bounded(query, tree)
    check_instances(query)
    check_emission(query)
    return tree


def check_streamable(query: Query) -> None:
    """Refuse what a stream cannot give, whoever runs it."""
    if query.rows is RowsPerMatch.ALL_WITH_UNMATCHED:
        raise UnsupportedError(
            "a stream cannot return unmatched rows",
            hint="use ALL ROWS PER MATCH without WITH UNMATCHED ROWS, or match a whole table",
        )


def check_emission(query: Query) -> None:
    """Refuse to follow changes where there are none."""
    if query.emission is Emission.LATEST and not query.corrects:
        raise BindError(
            "nothing is taken back, so every match is the latest",
            where="emit",
            hint=Hint(
                'add disorder(op.Speculative("2 s")) or late="correct", or leave out emit',
                "add DISORDER SPECULATIVE SLACK '2 s' or LATE CORRECT, or leave out EMIT",
            ),
        )


def check_instances(query: Query, *, windowed: bool = True) -> None:
    """Refuse more instances than any host runs, and those without windows to share if asked to."""
    if query.instance_count > INSTANCES_MAX:
        raise BindError(
            f"there are at most {INSTANCES_MAX} instances, not {query.instance_count}",
            where="instances",
            hint="each is a process, or a task on Spark: have about as many as cores",
        )
    if windowed and query.instance_count > 1 and query.windows is None:
        raise BindError(
            "instances are given windows, and the query has none",
            where="instances",
            hint=Hint(
                "add .over(op.windows.count(1000)) or other windows, or leave out .instances",
                "add OVER COUNT (1000) or other windows, or leave out INSTANCES",
            ),
        )


def _unknown(name: str, known: Iterable[str], where: str, message: str = "") -> BindError:
    names = list(known)
    there_are = f"the variables are {', '.join(names)}" if names else "the pattern has no variables"
    hint = did_you_mean(name, names) or there_are
    return BindError(message or f"unknown variable '{name}'", where=where, hint=hint)


def _place(node: ast.Pattern, tree: ast.Pattern) -> Span | None:
    """Return where a node stands, with the text that the tree was read from."""
    if node.span is None or tree.span is None:
        return node.span
    return replace(node.span, text=tree.span.text)


def _check_definitions(query: Query, tree: ast.Pattern) -> None:
    known = ast.predicates(tree)
    names: set[str] = set()
    for name, expression in query.definitions:
        where = f"define {name}"
        if name in names:
            raise BindError(
                f"variable '{name}' is defined twice", span=expression.span, where=where
            )
        names.add(name)
        if name not in known:
            if name in dict(query.subsets):
                raise BindError(f"'{name}' is a subset and cannot be defined", where=where)
            raise _unknown(name, known, where, f"variable '{name}' is not in the pattern")


def _check_subsets(query: Query, tree: ast.Pattern) -> None:
    variables = ast.variables(tree)
    unions = dict(query.subsets)
    if len(unions) != len(query.subsets):
        raise BindError("a subset is defined twice", where="subset")
    for name, members in query.subsets:
        where = f"subset {name}"
        if name in ast.predicates(tree):
            raise BindError(f"subset '{name}' has the name of a variable", where=where)
        if not members:
            raise BindError(f"subset '{name}' has no variables", where=where)
        for member in members:
            if member in unions:
                raise _subset_of_subset(name, member, unions, where)
            if member not in variables:
                raise _unknown(member, variables, where)


def _subset_of_subset(
    name: str, member: str, unions: dict[str, tuple[str, ...]], where: str
) -> BindError:
    cycle = _cycle(name, unions)
    if cycle:
        return BindError(
            "subsets form a circle: " + " -> ".join(cycle),
            where=where,
            hint="a subset is a union of variables of the pattern",
        )
    return BindError(
        f"subset '{name}' cannot contain subset '{member}'",
        where=where,
        hint="list the variables themselves: " + ", ".join(unions[member]),
    )


def _cycle(start: str, unions: dict[str, tuple[str, ...]]) -> list[str]:
    """Return a way from a subset through subsets back to itself, or nothing."""
    stack = [[start]]
    names: set[str] = set()
    while stack:
        way = stack.pop()
        for member in unions.get(way[-1], ()):
            if member == start:
                return [*way, start]
            if member in unions and member not in names:
                names.add(member)
                stack.append([*way, member])
    return []


def _check_measures(query: Query) -> None:
    names: set[str] = set()
    for name, expression in query.outputs:
        if name.lower() in names:
            raise BindError(
                f"measure '{name}' is defined twice", span=expression.span, where=f"measure {name}"
            )
        names.add(name.lower())


def _check_skip(query: Query, tree: ast.Pattern) -> None:
    skip = query.effective_skip
    if skip.skip not in (Skip.TO_FIRST, Skip.TO_LAST):
        return
    known = (*ast.variables(tree), *dict(query.subsets))
    if skip.variable not in known:
        raise _unknown(str(skip.variable), known, "after match skip")


def _check_rows(query: Query, tree: ast.Pattern) -> None:
    if query.rows is not RowsPerMatch.ALL_WITH_UNMATCHED:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Exclude):
            raise BindError(
                "an exclusion cannot be combined with unmatched rows",
                span=_place(node, tree),
                where="pattern",
                hint="leave out {- -}, or return all rows per match without unmatched ones",
            )


def _check_negation(query: Query, tree: ast.Pattern) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Not) and not _is_inside_sequence(node, tree):
            raise BindError(
                f"!{node.name} needs a step before it",
                span=_place(node, tree),
                where="pattern",
                hint=f"write A -> !{node.name} -> C, or A !{node.name} C",
            )
    trailing = trailing_negation(tree)
    if trailing is not None and query.bound is None:
        raise BindError(
            f"-> !{trailing.name} at the end of a pattern needs within",
            span=_place(trailing, tree),
            where="pattern",
            hint=Hint(
                "without within nobody knows how long to wait; add .within('10 s')",
                "without WITHIN nobody knows how long to wait; add WITHIN '10 s'",
            ),
        )


def _is_inside_sequence(node: ast.Not, tree: ast.Pattern) -> bool:
    return any(
        isinstance(parent, ast.Concat) and any(item is node for item in parent.items[1:])
        for parent in ast.walk(tree)
    )


def trailing_negation(pattern: ast.Pattern) -> ast.Not | None:
    """Return a negation that must hold until the end of time: `A -> !B` with nothing after it.

    Examples
    --------
    >>> trailing_negation(ast.concat([ast.Var("A"), ast.Not("B")], [ast.Link.NEXT]))
    Not(name='B')
    """
    stack: list[ast.Pattern] = [pattern]
    while stack:
        node = stack.pop()
        if not isinstance(node, ast.Concat):
            stack.extend(ast.children(node))
            continue
        for position in range(len(node.items) - 1, -1, -1):
            item = node.items[position]
            if isinstance(item, ast.Not):
                if node.links[position - 1] is not ast.Link.STRICT:
                    return item
                continue
            stack.append(item)
            if not _can_be_empty(item):
                break
    return None


def _can_be_empty(pattern: ast.Pattern) -> bool:
    match pattern:
        case ast.Var():
            return False
        case ast.Repeat(item=item, least=least):
            return least == 0 or _can_be_empty(item)
        case ast.Exclude(item=item):
            return _can_be_empty(item)
        case ast.Alternate(options=options):
            return any(_can_be_empty(option) for option in options)
        case ast.Concat(items=items) | ast.Permute(items=items):
            return all(_can_be_empty(item) for item in items)
        case _:
            return True


def _check_bounded(query: Query, tree: ast.Pattern) -> None:
    """Refuse patterns with exponentially many matches that nothing bounds."""
    if query.effective_selection is not Selection.ALL or query.bound is not None or query.limits:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Repeat) and node.most is None:
            inside = ast.links(node.item) | {node.link}
            if ast.Link.ANY in inside:
                raise BindError(
                    "an unbounded repetition with ->> has more matches than anyone can list",
                    span=_place(node, tree),
                    where="pattern",
                    hint=Hint(
                        "bound it with .within(...), .limit(...) or a quantifier such as {1,5}",
                        "bound it with WITHIN, LIMIT or a quantifier such as {1,5}",
                    ),
                )
