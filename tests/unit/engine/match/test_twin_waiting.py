"""The twin emits a match as soon as every continuation of the stream has it, and not before."""

from dataclasses import replace
from itertools import product

from hypothesis import assume, given, note
from hypothesis import strategies as st
from support.matching import Case, cases, push_all
from support.properties import examples

from outpace.engine.match.program import ACCEPT, compile_program
from outpace.pattern import ast
from outpace.pattern.ast import Link, Mode
from outpace.testing.oracle import answer

KINDS = [
    (False, False, False, False),
    (True, False, False, False),
    (False, True, False, False),
    (True, True, False, False),
    (False, False, True, False),
]


def _continuations(case: Case, most: int) -> list[Case]:
    last = case.times[-1] if case.times else 0
    found = [case]
    for length in range(1, most + 1):
        for gap in (0, 1, 9) if case.within is not None else (1,):
            times = tuple(last + gap * (step + 1) for step in range(length))
            for rows in product(KINDS, repeat=length):
                found.append(replace(case, table=(*case.table, *rows), times=(*case.times, *times)))
    return found


def _common_beginning(lists: list[list]) -> list:
    common = lists[0]
    for other in lists[1:]:
        shared = 0
        while shared < min(len(common), len(other)) and common[shared] == other[shared]:
            shared += 1
        common = common[:shared]
    return common


links = st.sampled_from(Link)
takes = st.sampled_from([ast.Var("A"), ast.Var("B")])
bounds = st.sampled_from([(0, 1), (0, None), (1, None), (0, 2), (2, 2)])
modes = st.sampled_from([Mode.GREEDY, Mode.RELUCTANT])


@st.composite
def _patterns(draw):
    """Patterns whose moves can all be taken by some event, whatever came before."""

    def repeated(item):
        if draw(st.booleans()):
            return item
        return ast.Repeat(item, *draw(bounds), draw(modes), draw(links))

    def item():
        if draw(st.integers(0, 3)):
            return repeated(draw(takes))
        options = [repeated(draw(takes)), ast.concat([draw(takes), draw(takes)], [draw(links)])]
        return repeated(ast.alternate(options))

    items, between = [item()], []
    for _ in range(draw(st.integers(0, 2))):
        if draw(st.integers(0, 4)) == 0:
            between.append(draw(links))
            items.append(ast.Not("C"))
        between.append(draw(links))
        items.append(item())
    ending = draw(st.sampled_from(["", "", "", "not", "$"]))
    if ending:
        between.append(draw(links) if ending == "not" else Link.STRICT)
        items.append(ast.Not("C") if ending == "not" else ast.AtEnd())
    return ast.concat(items, between)


def _ends_with_a_condition(pattern: ast.Pattern) -> bool:
    return any(
        move.target == ACCEPT and (move.at_end or move.negations)
        for moves in compile_program(pattern, ("A", "B", "C", "D")).follow
        for move in moves
    )


@examples(25)
@given(_patterns(), cases(size=4, reading_run=frozenset()), st.integers(1, 3))
def test_a_match_is_emitted_exactly_when_all_continuations_have_it(pattern, case, within):
    note(repr(pattern))
    condition = _ends_with_a_condition(pattern)
    rows = tuple((a, b, c, False) for a, b, c, _ in case.table)
    skip = case.after if case.after.variable is None else replace(case.after, variable="A")
    assume(skip.variable is None or "A" in ast.variables(pattern))
    needed = within if condition or case.within is not None else None
    case = replace(case, pattern=pattern, table=rows, after=skip, within=needed)
    # Several ways to end, one of them with a condition, become final together.
    assume(not condition or case.selection.name == "PREFERRED")
    emitted = push_all(case, [case.size], finish=False).matches
    futures = [answer(future.question()).matches for future in _continuations(case, 3)]
    assert emitted == _common_beginning(futures)
