"""Whether two different runs of a pattern can take the same events under the same labels.

Matches are distinct as lists of (event, variable). Where two runs can give one list, as in
`A+ A+`, counting must merge them and enumeration must drop the second. The test walks pairs of
positions and ignores links and guards, so it may call a pattern ambiguous that is not, never the
other way round.
"""

from __future__ import annotations

from typing import Final

from outpace.engine.match.program import ACCEPT, Program, Transition

#: Patterns with more pairs of positions than this count as ambiguous without a look.
PAIRS_MAX: Final = 500_000


def is_ambiguous(program: Program) -> bool:
    """Say whether two runs may give the same list of (event, variable).

    Examples
    --------
    >>> from outpace.engine.match.program import compile_program
    >>> from outpace.pattern.ast import Repeat, Var, concat
    >>> several = Repeat(Var("A"), 1, None)
    >>> is_ambiguous(compile_program(several, ("A",)))
    False
    >>> is_ambiguous(compile_program(concat([several, several]), ("A",)))
    True
    """
    if _has_two_ways(program):
        return True
    targets = [_targets(moves) for moves in program.follow]
    accepts = [any(move.target == ACCEPT for move in moves) for moves in program.follow]
    stack: list[tuple[int, int]] = []
    for reached in (_targets(program.initial), *targets):
        stack += _pairs(program, reached, reached)
    visits = set(stack)
    while stack:
        first, second = stack.pop()
        if (accepts[first] and accepts[second]) or set(targets[first]) & set(targets[second]):
            return True
        for pair in _pairs(program, targets[first], targets[second]):
            if pair not in visits:
                visits.add(pair)
                stack.append(pair)
        if len(visits) > PAIRS_MAX:
            return True
    return False


def repeats_runs(program: Program) -> bool:
    """Say whether two runs that go on differently may begin with one list of (event, variable).

    Examples
    --------
    >>> from outpace.engine.match.program import compile_program
    >>> from outpace.pattern.ast import Alternate, Var, concat
    >>> ways = [concat([Var("A"), Var(name)]) for name in "BC"]
    >>> repeats_runs(compile_program(ways[0], ("A", "B", "C")))
    False
    >>> repeats_runs(compile_program(Alternate(tuple(ways)), ("A", "B", "C")))
    True
    """
    reached = [_targets(moves) for moves in (program.initial, *program.follow)]
    return _has_two_ways(program) or any(_pairs(program, each, each) for each in reached)


def _has_two_ways(program: Program) -> bool:
    """Say whether two moves of a state lead to the same, as with two links in `(A(->)+)(.)+`."""
    return any(
        len({move.target for move in moves}) < len(moves)
        for moves in (program.initial, *program.follow)
    )


def _targets(moves: tuple[Transition, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(move.target for move in moves if move.target != ACCEPT))


def _pairs(
    program: Program, left: tuple[int, ...], right: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Return the pairs of different positions that take the same variable, smaller first."""
    by_variable: dict[int, list[int]] = {}
    for position in right:
        by_variable.setdefault(program.positions[position].variable, []).append(position)
    return [
        (min(a, b), max(a, b))
        for a in left
        for b in by_variable.get(program.positions[a].variable, ())
        if a != b
    ]
