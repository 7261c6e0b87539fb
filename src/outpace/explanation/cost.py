"""Cost and memory in EXPLAIN: how the work grows with the rows, and what a stream must keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.engine.match.contract import STEPS_PER_ROW, WORK_BUDGET, WORK_PER_ROW, Task
from outpace.engine.match.kernel import is_chain
from outpace.engine.match.program import ACCEPT, Program
from outpace.engine.match.reach import reach_of
from outpace.explanation.conditions import Condition
from outpace.explanation.text_table import counted
from outpace.pattern.ast import Link
from outpace.pattern.bound import PredicateClass
from outpace.pattern.duration import print_duration
from outpace.pattern.query import Query, Selection, Skip, WithinKind

#: So many steps are named where many are meant.
_NAMES_SHOWN: Final = 8


def cost_section(
    query: Query, program: Program, conditions: Sequence[Condition], step_budget: int
) -> list[str]:
    """Say how the work grows with the number of rows."""
    if query.uncertainty is not None:
        return ["for each start the rows that may follow it in some order, and each match once"]
    if query.effective_selection is Selection.ALL:
        return [*_all_matches(query, program), *_quadratic(query, program)]
    longest = longest_strict(program)
    if longest is not None:
        return [f"linear: each start looks at no more than {counted(longest, 'row')}"]
    reached = "all later rows" if query.bound is None else f"the rows of {_duration(query)}"
    reads_match = any(condition.kind is PredicateClass.PATH for condition in conditions)
    skips = (Skip.NONE, Skip.TO_NEXT_ROW, Skip.PAST_LAST_ROW)
    if is_chain(program) and not reads_match and query.effective_skip.skip in skips:
        return ["linear: each step reads the rows once, for all starts together"]
    if not _branches(program):
        lines = [f"polynomial: one run from each start, over {reached} at most"]
    elif reads_match:
        lines = [
            "a search that may take exponential time, because conditions read the match:",
            f"it stops with an error after {step_budget:,} steps for one start,",
            f"and {STEPS_PER_ROW} more for each row",
        ]
    else:
        size = len(program.positions)
        lines = [
            f"polynomial: from each start at most {counted(size, 'position')} × {reached},",
            "because no part of the search is tried twice",
        ]
    return [*lines, *_quadratic(query, program)]


def _quadratic(query: Query, program: Program) -> list[str]:
    """Say which steps let every start look at all later rows, where nothing bounds that."""
    if query.bound is not None or query.windows is not None:
        return []
    by_state = (program.initial, *program.follow)
    later, again = set(), set()
    for source, moves in enumerate(by_state, start=-1):
        for move in moves:
            if source < 0 or move.target == ACCEPT:
                continue
            if move.link is not Link.STRICT:
                later.add(program.names[program.positions[move.target].variable])
            elif move.target <= source:
                again.add(program.names[program.positions[move.target].variable])
    causes = [f"{_names(again)} may repeat without end"] if again else []
    causes += [f"{_names(later)} may come at any later row"] if later else []
    if not causes:
        return []
    return [
        f"quadratic in the rows at worst, as {' and '.join(causes)}: WITHIN would bound it;",
        f"it stops with an error after {WORK_BUDGET:,} steps for all starts together,",
        f"and {WORK_PER_ROW:,} more for each row",
    ]


def _names(names: set[str]) -> str:
    """Return some names, the first ones of many."""
    shown = sorted(names)[:_NAMES_SHOWN]
    left = len(names) - len(shown)
    return ", ".join(shown) + (f" and {left} others" if left else "")


def memory_section(query: Query, program: Program, task: Task | None) -> list[str]:
    """Say what a stream must keep of each partition."""
    longest = longest_strict(program)
    if query.windows is not None and query.bound is None and longest is None:
        kept = "keeps rows of open windows, from the first open start on"
    elif query.bound is not None and query.bound.kind is WithinKind.FIRST_TO_LAST:
        kept = f"keeps rows of the last {_duration(query)} per partition"
        if query.uncertainty is not None:
            kept = f"keeps rows of the last {_duration(query)}, and twice the bound, per partition"
    elif longest is not None:
        kept = f"keeps at most the last {counted(longest, 'row')} per partition"
    elif query.bound is not None:
        kept = f"keeps the rows of runs that took a row in the last {_duration(query)}"
    else:
        kept = "keeps all rows from the first open start on; WITHIN would bound that"
    lines = [f"in a stream: {kept}"]
    reach = None if task is None else reach_of(task)
    if reach is not None and reach.back:
        lines.append(f"and {counted(reach.back, 'row')} before them, for PREV")
    if reach is not None and reach.ahead:
        lines.append(f"and waits for {counted(reach.ahead, 'row')} after a row, for NEXT")
    return lines


def longest_strict(program: Program) -> int | None:
    """Return how many rows a match spans at most; None if that has no bound.

    Examples
    --------
    >>> from outpace.engine.match.program import compile_program
    >>> from outpace.pattern.ast import Repeat, Var, concat
    >>> longest_strict(compile_program(concat([Var("A"), Repeat(Var("B"), 0, 2)]), ("A", "B")))
    3
    >>> longest_strict(compile_program(Repeat(Var("A"), 1, None), ("A",))) is None
    True
    """
    moves = [move for options in program.follow for move in options if move.target != ACCEPT]
    if any(move.link is not Link.STRICT for move in moves):
        return None
    waiting = [0] * len(program.positions)
    for move in moves:
        waiting[move.target] += 1
    ready = [position for position, count in enumerate(waiting) if not count]
    length = [1] * len(program.positions)
    done = 0
    while ready:
        position = ready.pop()
        done += 1
        for move in program.follow[position]:
            if move.target == ACCEPT:
                continue
            length[move.target] = max(length[move.target], length[position] + 1)
            waiting[move.target] -= 1
            if not waiting[move.target]:
                ready.append(move.target)
    return max(length, default=0) if done == len(program.positions) else None


def _all_matches(query: Query, program: Program) -> list[str]:
    lines = ["all matches are meant, and there may be very many of them:"]
    if any(m.link is Link.ANY for options in program.follow for m in options):
        lines[0] = "each ->> multiplies the matches by the rows that fit:"
    lines.append(
        "finding and counting is shared between them, each match returned costs its length"
    )
    if query.limits:
        limits = " and ".join(f"{limit.count} per {limit.per.value}" for limit in query.limits)
        lines.append(f"the limit returns at most {limits}")
    return lines


def _branches(program: Program) -> bool:
    return any(len(options) > 1 for options in (program.initial, *program.follow))


def _duration(query: Query) -> str:
    assert query.bound is not None
    duration = query.bound.duration
    return f"{duration} time units" if isinstance(duration, int) else print_duration(duration)
