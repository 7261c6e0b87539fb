"""The program: a pattern compiled to positions and ordered moves between them.

A position is a place where the pattern takes an event. After a take, the moves out of the position
are tried in SQL's order of preference; `docs/explanation/semantics.md` says what links and guards
mean. Bounded repetitions are written out, PERMUTE shares the orders of equal sets of items, so
PERMUTE of n items has n * 2^(n-1) copies of them instead of n * n!.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from outpace.pattern import ast
from outpace.pattern.ast import Link, Mode
from outpace.pattern.size import POSITIONS_MAX, WAYS_MAX, too_large

_T = TypeVar("_T")

#: The target of a move that completes the match.
ACCEPT: Final = -1

#: A bound on the work of making a program, beside those of a pattern's size: the parts with all
#: repetitions written out. A larger pattern is refused before it takes a second.
PARTS_MAX: Final = 200_000


@dataclass(frozen=True, slots=True)
class Position:
    """A place that takes an event: the variable's number, and whether it stands in `{- -}`."""

    variable: int
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class Negation:
    """A predicate that must not hold: for the very next event, or for every skipped one."""

    variable: int
    immediate: bool


@dataclass(frozen=True, slots=True)
class Hold:
    """The predicate of a possessive repetition that a move leaves, and the one that ends it."""

    variable: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """One way on from a position.

    Parameters
    ----------
    target
        A position, or ACCEPT.
    link
        How the event must follow (of no meaning for ACCEPT and for the first event).
    at_start, at_end
        Anchors on the way: the event must be the partition's first; ACCEPT only after its last.
    untils
        Predicates that close this move from the first event on that satisfies one.
    holds
        Possessive repetitions that this move leaves.
    negations
        Negated steps on the way.
    """

    target: int
    link: Link = Link.STRICT
    at_start: bool = False
    at_end: bool = False
    untils: tuple[int, ...] = ()
    holds: tuple[Hold, ...] = ()
    negations: tuple[Negation, ...] = ()


@dataclass(frozen=True)
class Program:
    """A compiled pattern.

    Parameters
    ----------
    names
        The names of the variables, by number.
    positions
        All positions.
    initial
        Moves before the first event.
    follow
        For each position the moves after it.
    ends
        For each position the negations whose event ends the run while it waits there: those of all
        its moves, and those that follow the repetition it stands in.
    """

    names: tuple[str, ...]
    positions: tuple[Position, ...]
    initial: tuple[Transition, ...]
    follow: tuple[tuple[Transition, ...], ...]
    ends: tuple[tuple[Negation, ...], ...]

    @property
    def matches_empty(self) -> bool:
        """Whether the pattern can match without an event."""
        return any(move.target == ACCEPT for move in self.initial)

    @property
    def skips_unused(self) -> bool:
        """Whether a partition gives the same matches without the rows that fit no variable.

        Not where a row counts by its place: for a take or a negation that the very next row
        decides, for the partition's first or last row, and where a row alone is an empty match.
        """
        return self.needs_one_unused and not any(
            any(negation.immediate for negation in move.negations)
            # The first take and the end of a match follow nothing.
            or (moves is not self.initial and move.target != ACCEPT and move.link is Link.STRICT)
            for moves in (self.initial, *self.follow)
            for move in moves
        )

    @property
    def needs_one_unused(self) -> bool:
        """Whether of rows that fit no variable, and follow each other, the first alone counts.

        It ends what the very next row decides, and those behind it decide nothing.
        """
        moves = (move for each in (self.initial, *self.follow) for move in each)
        return not self.matches_empty and not any(one.at_start or one.at_end for one in moves)

    @property
    def matches_unseen(self) -> bool:
        """Whether a match can lie in `{- -}` alone, so that ALL ROWS PER MATCH shows none of it."""
        reached: set[int] = set()
        waiting = [move.target for move in self.initial]
        while waiting:
            target = waiting.pop()
            if target == ACCEPT:
                return True
            if self.positions[target].excluded and target not in reached:
                reached.add(target)
                waiting += [move.target for move in self.follow[target]]
        return False


def compile_program(pattern: ast.Pattern, names: tuple[str, ...]) -> Program:
    """Compile a pattern; `names` numbers the variables.

    Examples
    --------
    >>> from outpace.pattern.ast import Repeat, Var, concat
    >>> program = compile_program(concat([Var("A"), Repeat(Var("B"), 1, None)]), ("A", "B"))
    >>> [move.target for move in program.follow[1]]
    [1, -1]
    """
    assembler = _Assembler({name: number for number, name in enumerate(names)})
    entry = assembler.assemble(pattern)
    left = WAYS_MAX
    found, left = _moves(entry, left)
    initial = tuple(m for m in found if not m.at_end or m.target == ACCEPT)
    follow = []
    for node in assembler.takes:
        found, left = _moves(node.after, left)
        # After a take `^` cannot hold any more, and nothing can follow `$`.
        moves = tuple(
            move
            for move in found
            if not move.at_start and (not move.at_end or move.target == ACCEPT)
        )
        follow.append(moves)
    ends = tuple(
        tuple(
            dict.fromkeys(
                [
                    *(n for move in moves for n in move.negations),
                    *(Negation(variable, False) for variable in node.follow_negations),
                ]
            )
        )
        for node, moves in zip(assembler.takes, follow, strict=True)
    )
    return Program(
        names=names,
        positions=tuple(Position(node.variable, node.excluded) for node in assembler.takes),
        initial=initial,
        follow=tuple(follow),
        ends=ends,
    )


def completing(program: Program) -> list[bool]:
    """Return for each position whether ACCEPT can be reached from it."""
    before: list[list[int]] = [[] for _ in program.positions]
    stack = []
    for position, moves in enumerate(program.follow):
        for move in moves:
            if move.target == ACCEPT:
                stack.append(position)
            else:
                before[move.target].append(position)
    reached = [False] * len(before)
    while stack:
        position = stack.pop()
        if not reached[position]:
            reached[position] = True
            stack.extend(before[position])
    return reached


class _GraphNode:
    """A node of the graph that the assembler builds back to front."""

    __slots__ = ()


class _Accepting(_GraphNode):
    __slots__ = ()


@dataclass(slots=True, eq=False)
class _TakeNode(_GraphNode):
    variable: int
    excluded: bool
    after: _GraphNode
    position: int = -1
    follow_negations: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class _ChoiceNode(_GraphNode):
    options: list[_GraphNode] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _MarkNode(_GraphNode):
    """Changes what the next take must obey, then goes on."""

    after: _GraphNode
    link: Link | None = None
    at_start: bool = False
    at_end: bool = False
    until: int | None = None
    hold: Hold | None = None
    negated: int | None = None


class _Assembler:
    """Builds the graph of a pattern, each part with the node that comes after it."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self.numbers = numbers
        self.takes: list[_TakeNode] = []
        self.parts = 0

    def assemble(self, pattern: ast.Pattern) -> _GraphNode:
        """Build the whole graph, number the takes in text order and return the entry."""
        entry = self.item(pattern, _Accepting(), excluded=False)
        self.takes.reverse()
        for position, take in enumerate(self.takes):
            take.position = position
        return entry

    def item(self, pattern: ast.Pattern, after: _GraphNode, *, excluded: bool) -> _GraphNode:
        self.parts += 1
        if self.parts > PARTS_MAX:
            raise too_large(f"more than {PARTS_MAX} parts, with all repetitions written out")
        match pattern:
            case ast.Var(name=name):
                return self._take(self.numbers[name], after, excluded)
            case ast.Empty():
                return after
            case ast.AtStart():
                return _MarkNode(after, at_start=True)
            case ast.AtEnd():
                return _MarkNode(after, at_end=True)
            case ast.Exclude(item=item):
                return self.item(item, after, excluded=True)
            case ast.Alternate(options=options):
                # Everything is built back to front, so that positions come out in text order.
                built = [self.item(o, after, excluded=excluded) for o in reversed(options)]
                return _ChoiceNode(built[::-1])
            case ast.Concat():
                return self._concat(pattern, after, excluded)
            case ast.Permute(items=items):
                return self._permute(items, after, excluded)
            case ast.Repeat():
                return self._repeat(pattern, after, excluded)
        raise AssertionError(f"no such pattern node: {pattern!r}")

    def _take(self, variable: int, after: _GraphNode, excluded: bool) -> _TakeNode:
        if len(self.takes) >= POSITIONS_MAX:
            raise too_large(f"more than {POSITIONS_MAX} positions")
        node = _TakeNode(variable, excluded, after)
        self.takes.append(node)
        return node

    def _concat(self, pattern: ast.Concat, after: _GraphNode, excluded: bool) -> _GraphNode:
        node = after
        for index in range(len(pattern.items) - 1, -1, -1):
            item = pattern.items[index]
            if isinstance(item, ast.Not):
                node = _MarkNode(node, negated=self.numbers[item.name])
            else:
                first_new = len(self.takes)
                node = self.item(item, node, excluded=excluded)
                self._attach_following_negation(pattern, index, first_new)
            if index:
                node = _MarkNode(node, link=pattern.links[index - 1])
        return node

    def _attach_following_negation(self, pattern: ast.Concat, index: int, first_new: int) -> None:
        """Let `B+ -> !C` hold from the first B on, not only after the last."""
        item = pattern.items[index]
        repeated = item
        while isinstance(repeated, ast.Repeat):
            repeated = repeated.item
        follower = pattern.items[index + 1] if index + 1 < len(pattern.items) else None
        if (
            isinstance(item, ast.Repeat)
            and isinstance(repeated, ast.Var)
            and isinstance(follower, ast.Not)
            and pattern.links[index] is not Link.STRICT
        ):
            for take in self.takes[first_new:]:
                take.follow_negations = (self.numbers[follower.name],)

    def _permute(
        self, items: tuple[ast.Pattern, ...], after: _GraphNode, excluded: bool
    ) -> _GraphNode:
        everything = (1 << len(items)) - 1
        nodes: dict[int, _GraphNode] = {everything: after}
        # A larger set of used items is never a smaller number than its own subsets.
        for used in range(everything - 1, -1, -1):
            left = [index for index in range(len(items)) if not used >> index & 1]
            options = [
                self.item(items[index], nodes[used | 1 << index], excluded=excluded)
                for index in reversed(left)
            ]
            nodes[used] = options[0] if len(options) == 1 else _ChoiceNode(options[::-1])
        return nodes[0]

    def _repeat(self, pattern: ast.Repeat, after: _GraphNode, excluded: bool) -> _GraphNode:
        until = None if pattern.until is None else self.numbers[pattern.until]
        held: tuple[str, ...] = ()
        if pattern.mode is Mode.POSSESSIVE:
            held, _ = _first_variables(pattern.item)

        def once(following: _GraphNode) -> _GraphNode:
            body = self.item(pattern.item, following, excluded=excluded)
            return body if until is None else _MarkNode(body, until=until)

        def leave_or(more: _GraphNode) -> list[_GraphNode]:
            leave: _GraphNode = after
            for name in held:
                leave = _MarkNode(leave, hold=Hold(self.numbers[name], until))
            return [leave, more] if pattern.mode is Mode.RELUCTANT else [more, leave]

        node: _GraphNode
        if pattern.most is None:
            loop = _ChoiceNode()
            body = once(loop)
            # The first repetition keeps the link that led to it; the later ones have their own.
            loop.options = leave_or(_MarkNode(body, link=pattern.link))
            node = body if pattern.least else _ChoiceNode(leave_or(body))
            written = max(1, pattern.least)
        else:
            node = after
            for index in range(pattern.most, pattern.least, -1):
                more = once(node)
                node = _ChoiceNode(
                    leave_or(more if index == 1 else _MarkNode(more, link=pattern.link))
                )
            written = pattern.least
            if written == 0:
                return node
            node = once(node)
        for _ in range(written - 1):
            node = once(_MarkNode(node, link=pattern.link))
        return node


def _first_variables(pattern: ast.Pattern) -> tuple[tuple[str, ...], bool]:
    """Return the variables that can take a part's first event, and whether it can take none."""
    match pattern:
        case ast.Var(name=name):
            return (name,), False
        case ast.Repeat(most=0):
            return (), True
        case ast.Repeat(item=item, least=least):
            first, empty = _first_variables(item)
            return first, empty or least == 0
        case ast.Exclude(item=item):
            return _first_variables(item)
        case ast.Alternate() | ast.Permute() | ast.Concat():
            parts = [_first_variables(part) for part in ast.children(pattern)]
            if isinstance(pattern, ast.Concat):
                # What follows a part that takes an event does not take the first.
                taking = (index + 1 for index, (_, empty) in enumerate(parts) if not empty)
                parts = parts[: next(taking, len(parts))]
            some = any if isinstance(pattern, ast.Alternate) else all
            first = tuple(dict.fromkeys(name for names, _ in parts for name in names))
            return first, some(empty for _, empty in parts)
    return (), True


class _MoveMarks(NamedTuple):
    """The marks that a move has met on its way; see `Transition`."""

    link: Link = Link.STRICT
    at_start: bool = False
    at_end: bool = False
    untils: tuple[int, ...] = ()
    holds: tuple[Hold, ...] = ()
    negations: tuple[Negation, ...] = ()


def _moves(entry: _GraphNode, ways_left: int) -> tuple[list[Transition], int]:
    """Walk everything reachable without an event, in order of preference.

    Returns the moves, and how many more ways may be looked at.
    """
    found: dict[Transition, None] = {}
    visits: set[tuple[int, _MoveMarks]] = set()
    stack: list[tuple[_GraphNode, _MoveMarks]] = [(entry, _MoveMarks())]
    while stack:
        node, way = stack.pop()
        # A repetition that took nothing comes back here with nothing new: its loop ends.
        if (id(node), way) in visits:
            continue
        visits.add((id(node), way))
        if len(visits) > ways_left:
            raise too_large(f"more than {WAYS_MAX} ways from one event to the next")
        match node:
            case _Accepting():
                accepted = way._replace(link=Link.STRICT, untils=(), holds=())
                found[Transition(ACCEPT, *accepted)] = None
            case _TakeNode():
                found[Transition(node.position, *way)] = None
            case _ChoiceNode():
                stack.extend((option, way) for option in reversed(node.options))
            case _MarkNode():
                stack.append((node.after, _marked(way, node)))
    return list(found), ways_left - len(visits)


def _marked(way: _MoveMarks, mark: _MarkNode) -> _MoveMarks:
    if mark.link is not None:
        return way._replace(link=mark.link)
    if mark.at_start:
        return way._replace(at_start=True)
    if mark.at_end:
        return way._replace(at_end=True)
    if mark.until is not None:
        return way._replace(untils=_with(way.untils, mark.until))
    if mark.hold is not None:
        return way._replace(holds=_with(way.holds, mark.hold))
    assert mark.negated is not None
    negation = Negation(mark.negated, immediate=way.link is Link.STRICT)
    return way._replace(negations=_with(way.negations, negation))


def _with(values: tuple[_T, ...], value: _T) -> tuple[_T, ...]:
    return values if value in values else (*values, value)
