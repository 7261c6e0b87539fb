"""A task as the arrays and numbers that the search kernel works on.

Guarantees: the arrays mean exactly what the program says. Moves to positions from which the pattern
cannot be completed are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

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
BITS_MAX = MOVES_MAX = 62
#: So many masks a row has at most.
WORDS_MAX = 16
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


def is_wide(variables: int) -> bool:
    """Say whether a row has several masks, as one has not that many bits."""
    return variables > BITS_MAX


@dataclass(frozen=True)
class Words:
    """The masks of rows: few variables share one, of more each state looks at one that has its own.

    Parameters
    ----------
    variables
        For each mask its variables, by bit.
    of_state
        The mask of each state.
    """

    variables: tuple[tuple[int, ...], ...]
    of_state: tuple[int, ...]

    @staticmethod
    def of(program: Program) -> Words:
        """Return the masks of a program; what one state alone looks at may not fit."""
        if not is_wide(len(program.names)):
            return Words((tuple(range(len(program.names))),), (0,) * (len(program.positions) + 1))
        looks = [
            _looked_at(program, *each) for each in zip(states(program), _ends(program), strict=True)
        ]
        words: list[dict[int, None]] = [{}]
        of_state = []
        for names in looks:
            fitting = (w for w, word in enumerate(words) if len({*word, *names}) <= BITS_MAX)
            chosen = next(fitting, len(words))
            if chosen == len(words):
                words.append({})
            words[chosen] |= dict.fromkeys(names)
            of_state.append(chosen)
        return Words(tuple(map(tuple, words)), tuple(of_state))

    def bits(self, state: int, variables: Iterable[int]) -> int:
        """Return variables that a state looks at as bits of its mask."""
        word = self.variables[self.of_state[state]]
        return _bits(map(word.index, variables))


def _looked_at(
    program: Program, moves: tuple[Transition, ...], ends: tuple[Negation, ...]
) -> list[int]:
    """Return the variables that matter in a state."""
    found = [negation.variable for negation in ends]
    for move in moves:
        found += [negation.variable for negation in move.negations]
        found += move.untils
        for hold in move.holds:
            found += [hold.variable] if hold.until is None else [hold.variable, hold.until]
        if move.target != ACCEPT:
            found.append(program.positions[move.target].variable)
    return sorted(set(found))


def fits_bits(program: Program) -> bool:
    """Say whether what a state looks at, its moves and its holds fit into bits."""
    words = Words.of(program).variables
    return (
        len(words) <= WORDS_MAX
        and all(len(word) <= BITS_MAX for word in words)
        and len(program.positions) <= POSITIONS_MAX
        and all(
            len(moves) <= MOVES_MAX and sum(len(move.holds) for move in moves) <= MOVES_MAX
            for moves in states(program)
        )
    )


def program_arrays(task: Task, path_variables: Collection[int]) -> search.ProgramArrays:
    """Return the program of a task as arrays; the predicates of some variables read the match."""
    program = task.program
    by_state = states(program)
    moves = [move for state in by_state for move in state]
    from_state = [state for state, those in enumerate(by_state) for _ in those]
    initial = len(by_state[0])
    holds: list[tuple[int, Hold]] = [
        (state, hold) for state, move in zip(from_state, moves, strict=True) for hold in move.holds
    ]
    ends = list(enumerate(_ends(program)))
    words = Words.of(program)
    named = np.zeros((len(words.variables), search.NAMED), np.int64)
    for word, variables in enumerate(words.variables):
        named[word, : len(variables)] = variables
    targets = skip_variables(task.bound)

    def negated(index: int, *, immediate: bool) -> int:
        # Before the first event there is none that a negated step could look at.
        these = () if index < initial else moves[index].negations
        return words.bits(
            from_state[index], (n.variable for n in these if n.immediate is immediate)
        )

    return search.ProgramArrays(
        variable=_integers(position.variable for position in program.positions),
        first_move=_bounds(len(state) for state in by_state),
        target=_integers(move.target for move in moves),
        link=_integers(_LINKS[move.link] for move in moves),
        flags=_integers(
            search.AT_START * move.at_start + search.AT_END * move.at_end for move in moves
        ),
        until=_integers(
            words.bits(state, move.untils) for state, move in zip(from_state, moves, strict=True)
        ),
        absent_next=_integers(negated(index, immediate=True) for index in range(len(moves))),
        absent=_integers(negated(index, immediate=False) for index in range(len(moves))),
        first_hold=_bounds(len(move.holds) for move in moves),
        hold=_integers(words.bits(state, [hold.variable]) for state, hold in holds),
        hold_until=_integers(
            0 if hold.until is None else words.bits(state, [hold.until]) for state, hold in holds
        ),
        group_end=_group_ends(by_state),
        group_bits=_group_bits(by_state),
        guarded=_integers(
            bool(move.at_start or move.at_end or (move.negations and index >= initial))
            for index, move in enumerate(moves)
        ),
        ends=_integers(
            words.bits(state, (n.variable for n in these if not n.immediate))
            for state, these in ends
        ),
        ends_next=_integers(
            words.bits(state, (n.variable for n in these if n.immediate)) for state, these in ends
        ),
        strict_next=_integers(
            0
            if state == 0 or task.timeouts
            else words.bits(state, _members(_strict_next(program, those)))
            for state, those in enumerate(by_state)
        ),
        waits=_integers(
            words.bits(state, _members(waited))
            for state, waited in enumerate(waits_of_states(program))
        ),
        word=_integers(words.of_state),
        named=named.ravel(),
        path=_integers(
            _bits(word.index(variable) for variable in word if variable in path_variables)
            for word in words.variables
        ),
        fits=_integers(
            0
            if move.target == ACCEPT
            else words.variables[words.of_state[state]].index(
                program.positions[move.target].variable
            )
            for state, move in zip(from_state, moves, strict=True)
        ),
        skips=np.array([name in targets for name in range(len(program.names))], np.uint8),
    )


def _strict_next(program: Program, moves: tuple[Transition, ...]) -> int:
    """Return what the very next event must fit, or 0 where a run may also end or skip events."""
    if any(move.target == ACCEPT or move.link is not Link.STRICT for move in moves):
        return 0
    return _bits(program.positions[move.target].variable for move in moves)


def _second_bits(program: Program, words: Words) -> int:
    if len(words.variables) > 1:
        return 0
    found = 0
    by_state = states(program)
    for move in program.initial:
        bits = 0 if move.target == ACCEPT else _strict_next(program, by_state[move.target + 1])
        if bits == 0:
            return 0
        found |= bits
    return found


def rules(task: Task, path_variables: Collection[int]) -> search.SearchRules:
    """Return what a query asks for beside its pattern."""
    bound, program = task.bound, task.program
    query = bound.query
    skip = query.effective_skip
    words = Words.of(program)
    limits = {limit.per: limit.count for limit in query.limits}
    every = query.effective_selection is Selection.ALL
    kind = search.WITHIN_NONE
    if bound.within is not None:
        assert query.bound is not None
        kind = _WITHINS[query.bound.kind]
    targets = (move.target for move in program.initial if move.target != ACCEPT)
    return search.SearchRules(
        words=len(words.variables),
        path=len(path_variables) > 0,
        start_bits=words.bits(0, (program.positions[target].variable for target in targets)),
        # Where partial matches are told of, none is left out because it surely fails.
        second_bits=0 if task.timeouts else _second_bits(program, words),
        matches_empty=program.matches_empty,
        within_kind=kind,
        skip=_SKIPS[skip.skip],
        skip_free=skip.skip is Skip.NONE,
        skip_strict=skip.strict,
        consume=_CONSUMES[query.consumption],
        limit=limits.get(Per.PARTITION, -1),
        memo=not path_variables and not task.timeouts,
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


def _members(bits: int) -> list[int]:
    return [place for place in range(bits.bit_length()) if bits >> place & 1]


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
