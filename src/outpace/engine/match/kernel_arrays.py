"""A task as the arrays and numbers that the search kernel works on.

Guarantees: the arrays mean exactly what the program says. Moves to positions from which the pattern
cannot be completed are left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from outpace.engine.arrays import Numbers
from outpace.engine.kernels import search
from outpace.engine.match.after import skip_variables
from outpace.engine.match.contract import Task
from outpace.engine.match.count_ambiguity import is_ambiguous, repeats_runs
from outpace.engine.match.program import ACCEPT, Hold, Negation, Program, Transition, completing
from outpace.pattern.ast import Link
from outpace.pattern.query import Consume, Per, Selection, Skip, WithinKind

#: Variables, moves of one position and holds of one position are bits of a signed 64-bit number.
BITS_MAX = 62
POSITIONS_MAX = np.iinfo(np.int16).max

_LINKS = {Link.STRICT: search.STRICT, Link.NEXT: search.NEXT, Link.ANY: search.ANY}
_SKIPS = {
    Skip.NONE: search.SKIP_NEXT_ROW,
    Skip.TO_NEXT_ROW: search.SKIP_NEXT_ROW,
    Skip.PAST_LAST_ROW: search.SKIP_PAST_LAST,
    Skip.TO_FIRST: search.SKIP_TO_FIRST,
    Skip.TO_LAST: search.SKIP_TO_LAST,
}
_CONSUMES = {
    Consume.NONE: search.CONSUME_NONE,
    Consume.SELECTED: search.CONSUME_SELECTED,
    Consume.ALL: search.CONSUME_ALL,
}
_WITHINS = {
    WithinKind.FIRST_TO_LAST: search.WITHIN_FIRST,
    WithinKind.PREVIOUS_TO_CURRENT: search.WITHIN_PREVIOUS,
}


def states(program: Program) -> list[tuple[Transition, ...]]:
    """Return the moves of each state: before the first event, then after each position."""
    useful = completing(program)
    return [
        program.initial,
        *(
            tuple(move for move in moves if move.target == ACCEPT or useful[move.target])
            for moves in program.follow
        ),
    ]


def fits_bits(program: Program) -> bool:
    """Say whether sets of variables, of a state's moves and of its holds fit into bits."""
    return (
        len(program.names) <= BITS_MAX
        and len(program.positions) <= POSITIONS_MAX
        and all(
            len(moves) <= BITS_MAX and sum(len(move.holds) for move in moves) <= BITS_MAX
            for moves in states(program)
        )
    )


def program_arrays(task: Task) -> search.ProgramArrays:
    """Return the program of a task as arrays."""
    program = task.program
    by_state = states(program)
    moves = [move for state in by_state for move in state]
    initial = len(by_state[0])
    holds: list[Hold] = [hold for move in moves for hold in move.holds]
    ends = _ends(program)
    return search.ProgramArrays(
        variable=_integers(position.variable for position in program.positions),
        first_move=_bounds(len(state) for state in by_state),
        target=_integers(move.target for move in moves),
        link=_integers(_LINKS[move.link] for move in moves),
        flags=_integers(
            search.AT_START * move.at_start + search.AT_END * move.at_end for move in moves
        ),
        until=_integers(_bits(move.untils) for move in moves),
        # Before the first event there is none that a negated step could look at.
        absent_next=_integers(
            0 if index < initial else _negated(move, immediate=True)
            for index, move in enumerate(moves)
        ),
        absent=_integers(
            0 if index < initial else _negated(move, immediate=False)
            for index, move in enumerate(moves)
        ),
        first_hold=_bounds(len(move.holds) for move in moves),
        hold=_integers(1 << hold.variable for hold in holds),
        hold_until=_integers(0 if hold.until is None else 1 << hold.until for hold in holds),
        group_end=_group_ends(by_state),
        group_bits=_group_bits(by_state),
        guarded=_integers(
            bool(move.at_start or move.at_end or (move.negations and index >= initial))
            for index, move in enumerate(moves)
        ),
        ends=_integers(_bits(n.variable for n in state if not n.immediate) for state in ends),
        ends_next=_integers(_bits(n.variable for n in state if n.immediate) for state in ends),
        strict_next=_integers(
            0 if state == 0 or task.timeouts else _strict_next(program, moves)
            for state, moves in enumerate(by_state)
        ),
        waits=_integers(waits_of_states(program)),
    )


def _strict_next(program: Program, moves: tuple[Transition, ...]) -> int:
    """Return what the very next event must fit, or 0 where a run may also end or skip events."""
    if any(move.target == ACCEPT or move.link is not Link.STRICT for move in moves):
        return 0
    return _bits(program.positions[move.target].variable for move in moves)


def _second_bits(program: Program) -> int:
    found = 0
    by_state = states(program)
    for move in program.initial:
        bits = 0 if move.target == ACCEPT else _strict_next(program, by_state[move.target + 1])
        if bits == 0:
            return 0
        found |= bits
    return found


def rules(task: Task, path_variables: Iterable[int]) -> search.SearchRules:
    """Return what a query asks for beside its pattern."""
    bound, program = task.bound, task.program
    query = bound.query
    skip = query.effective_skip
    path = _bits(path_variables)
    limits = {limit.per: limit.count for limit in query.limits}
    every = query.effective_selection is Selection.ALL
    kind = search.WITHIN_NONE
    if bound.within is not None:
        assert query.bound is not None
        kind = _WITHINS[query.bound.kind]
    targets = (move.target for move in program.initial if move.target != ACCEPT)
    return search.SearchRules(
        path=path,
        start_bits=_bits(program.positions[target].variable for target in targets),
        # Where partial matches are told of, none is left out because it surely fails.
        second_bits=0 if task.timeouts else _second_bits(program),
        matches_empty=program.matches_empty,
        within_kind=kind,
        skip=_SKIPS[skip.skip],
        skip_free=skip.skip is Skip.NONE,
        skip_bits=_bits(skip_variables(bound)),
        skip_strict=skip.strict,
        consume=_CONSUMES[query.consumption],
        limit=limits.get(Per.PARTITION, -1),
        memo=path == 0 and not task.timeouts,
        budget=task.step_budget,
        work=task.pace.work,
        every=every,
        ruled=every
        and (
            skip.skip is not Skip.NONE
            or query.consumption is not Consume.NONE
            or Per.PARTITION in limits
        ),
        per_start=limits.get(Per.START, -1),
        repeats=every and is_ambiguous(program),
        tells=_tells(task),
    )


def _tells(task: Task) -> int:
    if not task.timeouts:
        return search.TELL_NONE
    return search.TELL_ALL if repeats_runs(task.program) else search.TELL_ENDED


def _integers(values: Iterable[int]) -> Numbers:
    return np.fromiter(values, np.int64)


def _bounds(sizes: Iterable[int]) -> Numbers:
    return np.cumsum([0, *sizes]).astype(np.int64)


def _bits(variables: Iterable[int]) -> int:
    bits = 0
    for variable in variables:
        bits |= 1 << variable
    return bits


def _negated(move: Transition, *, immediate: bool) -> int:
    return _bits(n.variable for n in move.negations if n.immediate is immediate)


def _group_ends(by_state: list[tuple[Transition, ...]]) -> Numbers:
    found: list[int] = []
    base = 0
    for moves in by_state:
        end = base + len(moves)
        ends = []
        for index in range(len(moves) - 1, -1, -1):
            if moves[index].target == ACCEPT:
                end = base + index
            ends.append(end)
        found.extend(reversed(ends))
        base += len(moves)
    return np.array(found, np.int64)


def _group_bits(by_state: list[tuple[Transition, ...]]) -> Numbers:
    ends = _group_ends(by_state)
    found: list[int] = []
    for moves in by_state:
        base = len(found)
        for index in range(len(moves)):
            end = int(ends[base + index]) - base
            found.append((1 << max(end, index)) - (1 << index))
    # Before the end there is always a move to ask for, also in a state without any.
    return np.array([*found, 0], np.int64)


def waits_of_states(program: Program) -> list[int]:
    """Return for each state the variables that matter while a run waits for a row, as bits."""
    return [_waits(program, *each) for each in zip(states(program), _ends(program), strict=True)]


def _ends(program: Program) -> list[tuple[Negation, ...]]:
    return [(), *program.ends]


def _waits(program: Program, moves: tuple[Transition, ...], ends: tuple[Negation, ...]) -> int:
    """Return the variables that matter while a run waits for a later event."""
    bits = _bits(n.variable for n in ends if not n.immediate)
    for move in moves:
        if move.target != ACCEPT and move.link is not Link.STRICT:
            bits |= 1 << program.positions[move.target].variable | _bits(move.untils)
            for hold in move.holds:
                bits |= 1 << hold.variable | (0 if hold.until is None else 1 << hold.until)
    return bits
