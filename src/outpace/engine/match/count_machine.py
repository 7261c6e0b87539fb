"""The counting machine: the change that each event makes to the numbers of runs that wait.

A state is a set of open moves; every run is in one after its last take. An event sends the runs of
a state to another state (skipping the event), and adds as many runs to the states that its takes
lead to. Where the pattern is unambiguous a take leads to one position; else takes with
the same label lead to one state with the moves of all their positions, so that runs which give the
same match are one. Only the kinds of events that occur in the data, the symbols, are worked out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from outpace.engine.arrays import Booleans
from outpace.engine.kernels.count_rows import CountMachine
from outpace.engine.match.count_ambiguity import is_ambiguous
from outpace.engine.match.program import ACCEPT, Hold, Negation, Program, Transition
from outpace.pattern.ast import Link

#: A machine with more pairs of state and symbol is not built.
PAIRS_MAX: Final = 200_000

#: No state: the run cannot go on.
NOWHERE: Final = -1


class _Slot(NamedTuple):
    """An open move of a position, with the possessive repetitions that still guard it."""

    position: int
    rank: int
    holds: frozenset[Hold]


class _MachineState(NamedTuple):
    """Open moves; `fresh` where the very next event matters."""

    slots: frozenset[_Slot]
    fresh: bool


@dataclass
class _MachineStep:
    """The change that one symbol makes to one state."""

    skip: int
    takes: list[int] = field(default_factory=list)
    accepted: int = 0


def build_machine(program: Program, symbols: Booleans) -> CountMachine | None:
    """Build the machine of a program for the symbols that occur, or None if it is too large.

    Parameters
    ----------
    program
        A program whose ACCEPT depends on nothing that comes later.
    symbols
        For each symbol and variable whether it is satisfied; the last column says whether the
        event is the partition's first.

    Examples
    --------
    >>> from outpace.engine.match.program import compile_program
    >>> from outpace.pattern.ast import Link, Var, concat
    >>> program = compile_program(concat([Var("A"), Var("B")], [Link.ANY]), ("A", "B"))
    >>> build_machine(program, np.array([[True, False, False], [False, True, False]])).states
    1
    """
    builder = _Builder(program, by_label=is_ambiguous(program))
    kinds = [row.tolist() for row in symbols]
    starts = [builder.start(bits) for bits in kinds]
    steps: list[list[_MachineStep]] = []
    # Working out a state may add states at the end of the list.
    while len(steps) < len(builder.states):
        if len(builder.states) * max(1, len(kinds)) > PAIRS_MAX:
            return None
        state = builder.states[len(steps)]
        steps.append([builder.step(state, bits) for bits in kinds])
    sums: list[list[int]] = []
    flat: list[int] = []
    lines = []
    for symbol, start in enumerate(starts):
        line = []
        for skip, take in ((True, False), (False, True), (True, True)):
            line.append(len(sums))
            for changed, sources in _sources(steps, symbol, skip, take).items():
                sums.append([changed, len(flat), len(flat) + len(sources)])
                flat += sources
            line.append(len(sums))
        accepted = [s for s, row in enumerate(steps) for _ in range(row[symbol].accepted)]
        for states in (accepted, start.takes):
            line += [len(flat), len(flat) + len(states)]
            flat += states
        lines.append([*line, start.accepted])
    return CountMachine(
        states=len(steps),
        symbols=np.array(lines, np.int64).reshape(len(lines), 11),
        sums=np.array(sums, np.int64).reshape(len(sums), 3),
        flat=np.array(flat, np.int64),
    )


class _Builder:
    def __init__(self, program: Program, *, by_label: bool) -> None:
        self.program = program
        self.by_label = by_label
        self.states: list[_MachineState] = []
        self._numbers: dict[_MachineState, int] = {}

    def start(self, bits: Sequence[bool]) -> _MachineStep:
        """Return the states where runs begin with an event."""
        targets = [
            move.target
            for move in self.program.initial
            if move.target != ACCEPT and self._may_start(move, bits)
        ]
        return self._taken(targets, NOWHERE)

    def step(self, state: _MachineState, bits: Sequence[bool]) -> _MachineStep:
        """Return what an event does to a state."""
        slots = [
            slot
            for slot in (self._met(slot, bits, fresh=state.fresh) for slot in state.slots)
            if slot is not None
        ]
        fitting = [slot for slot in slots if bits[self._variable(self._move(slot).target)]]
        waiting = frozenset(slot for slot in slots if self._waits_on(slot, bits))
        targets = [self._move(slot).target for slot in fitting]
        return self._taken(targets, self._number(waiting, fresh=False))

    def _may_start(self, move: Transition, bits: Sequence[bool]) -> bool:
        return (
            bits[self._variable(move.target)]
            and (bits[-1] or not move.at_start)
            and not any(bits[until] for until in move.untils)
            and not any(
                bits[hold.variable] and (hold.until is None or not bits[hold.until])
                for hold in move.holds
            )
        )

    def _met(self, slot: _Slot, bits: Sequence[bool], *, fresh: bool) -> _Slot | None:
        """Return the slot as an event finds it, or None if the event closes the move."""
        move = self._move(slot)
        if fresh and any(n.immediate and bits[n.variable] for n in self._ends(slot)):
            return None
        if any(bits[until] for until in move.untils):
            return None
        holds = frozenset(h for h in slot.holds if h.until is None or not bits[h.until])
        if any(bits[hold.variable] for hold in holds):
            return None
        return slot._replace(holds=holds)

    def _waits_on(self, slot: _Slot, bits: Sequence[bool]) -> bool:
        """Say whether the move stays open when the event is skipped."""
        move = self._move(slot)
        if any(not n.immediate and bits[n.variable] for n in self._ends(slot)):
            return False
        fits = bits[self._variable(move.target)]
        return move.link is Link.ANY or (move.link is Link.NEXT and not fits)

    def _taken(self, targets: Iterable[int], skip: int) -> _MachineStep:
        """Return the step that takes an event at some positions."""
        groups: dict[int, set[int]] = {}
        for target in targets:
            key = self._variable(target) if self.by_label else target
            groups.setdefault(key, set()).add(target)
        step = _MachineStep(skip)
        for _, group in sorted(groups.items()):
            moves = [(p, r, m) for p in group for r, m in enumerate(self.program.follow[p])]
            step.accepted += any(move.target == ACCEPT for *_, move in moves)
            slots = frozenset(
                _Slot(position, rank, frozenset(move.holds))
                for position, rank, move in moves
                if move.target != ACCEPT
            )
            number = self._number(slots, fresh=True)
            if number != NOWHERE:
                step.takes.append(number)
        return step

    def _number(self, slots: frozenset[_Slot], *, fresh: bool) -> int:
        if not slots:
            return NOWHERE
        matters = any(
            self._move(slot).link is Link.STRICT or any(n.immediate for n in self._ends(slot))
            for slot in slots
        )
        state = _MachineState(slots, fresh and matters)
        if state not in self._numbers:
            self._numbers[state] = len(self.states)
            self.states.append(state)
        return self._numbers[state]

    def _move(self, slot: _Slot) -> Transition:
        return self.program.follow[slot.position][slot.rank]

    def _ends(self, slot: _Slot) -> tuple[Negation, ...]:
        return self.program.ends[slot.position]

    def _variable(self, position: int) -> int:
        return self.program.positions[position].variable


def _sources(
    steps: list[list[_MachineStep]], symbol: int, skip: bool, take: bool
) -> dict[int, list[int]]:
    """Return for each state that a symbol changes the states that it adds up."""
    sources: dict[int, list[int]] = {state: [] for state in range(len(steps))}
    for state, row in enumerate(steps):
        step = row[symbol]
        if skip and step.skip != NOWHERE:
            sources[step.skip].append(state)
        if take:
            for target in step.takes:
                sources[target].append(state)
    if skip:
        return {state: added for state, added in sources.items() if added != [state]}
    return {state: added for state, added in sources.items() if added}
