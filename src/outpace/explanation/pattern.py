"""The pattern in EXPLAIN: its tree, and its automaton in words."""

from __future__ import annotations

from typing import Final

from outpace.engine.match.program import ACCEPT, Program, Transition
from outpace.explanation.text_table import counted
from outpace.pattern import ast
from outpace.pattern.ast import Link

#: Of a larger program or tree only the first lines are written.
LINES_MAX: Final = 120

_LINKS = {
    Link.STRICT: "the very next event",
    Link.NEXT: "the first later event that fits",
    Link.ANY: "any later event that fits",
}
_LINK_WORDS = {Link.STRICT: "then at once", Link.NEXT: "then next", Link.ANY: "then any"}


def tree_section(tree: ast.Pattern) -> list[str]:
    """Return the tree, a line for each node.

    Examples
    --------
    >>> for line in tree_section(ast.concat([ast.Var("A"), ast.Repeat(ast.Var("B"), 1, None)])):
    ...     print(line)
    sequence
      A
      then at once: one or more, greedy, at once after each other
        B
    """
    lines: list[str] = []
    stack: list[tuple[int, str, ast.Pattern]] = [(0, "", tree)]
    while stack and len(lines) < LINES_MAX:
        depth, lead, node = stack.pop()
        lines.append("  " * depth + lead + _node_text(node))
        leads = [""] * len(ast.children(node))
        if isinstance(node, ast.Concat):
            leads = ["", *(f"{_LINK_WORDS[link]}: " for link in node.links)]
        below = [
            (depth + 1, word, part) for word, part in zip(leads, ast.children(node), strict=True)
        ]
        stack += reversed(below)
    return [*lines, "..."] if stack else lines


def _node_text(node: ast.Pattern) -> str:
    match node:
        case ast.Var(name=name):
            return name
        case ast.Not(name=name):
            return f"no {name}"
        case ast.Empty():
            return "nothing"
        case ast.AtStart():
            return "the partition's first row comes next"
        case ast.AtEnd():
            return "the partition's last row came before"
        case ast.Concat():
            return "sequence"
        case ast.Alternate():
            return "one of, the first preferred"
        case ast.Permute():
            return "all of, in any order"
        case ast.Exclude():
            return "left out of the rows"
        case ast.Repeat():
            return _repeat_text(node)
    raise AssertionError(f"no such pattern node: {node!r}")


def _repeat_text(node: ast.Repeat) -> str:
    match (node.least, node.most):
        case (0, 1):
            count = "none or one"
        case (0, None):
            count = "any number"
        case (1, None):
            count = "one or more"
        case (least, None):
            count = f"{least} or more"
        case (least, most) if least == most:
            count = f"exactly {least}"
        case (least, most):
            count = f"{least} to {most}"
    words = [count]
    if node.least != node.most:
        words.append(node.mode.value)
    if node.most is None or node.most > 1:
        words.append(_REPEATED[node.link])
    if node.until is not None:
        words.append(f"until {node.until}")
    return ", ".join(words)


_REPEATED = {
    Link.STRICT: "at once after each other",
    Link.NEXT: "each the next that fits",
    Link.ANY: "each any later one that fits",
}


def automaton_section(program: Program) -> list[str]:
    """Return the positions and, in order of preference, the moves out of each.

    Examples
    --------
    >>> from outpace.engine.match.program import compile_program
    >>> program = compile_program(ast.Repeat(ast.Var("A"), 1, None), ("A",))
    >>> for line in automaton_section(program):
    ...     print(line)
    1 position; numbers 1., 2. are the order of preference
    start    1. 0 A
    0 A      1. 0 A, the very next event
             2. accept
    """
    count = len(program.positions)
    lines = [f"{counted(count, 'position')}; numbers 1., 2. are the order of preference"]
    sources = ["start", *(_position_text(program, position) for position in range(count))]
    moves = [program.initial, *program.follow]
    width = 2 + max(map(len, sources[:LINES_MAX]))
    for index, (source, options) in enumerate(zip(sources, moves, strict=True)):
        if len(lines) > LINES_MAX:
            return [*lines, f"... and {count + 1 - index} more positions"]
        for rank, move in enumerate(options, start=1):
            lead = source if rank == 1 else ""
            text = _move_text(program, move, is_first=index == 0)
            lines.append(f"{lead.ljust(width)}  {rank}. {text}")
        if not options:
            lines.append(f"{source.ljust(width)}  no way on")
        for negation in _waiting_negations(program, index - 1):
            lines.append(f"{' ' * width}  ends when {negation} comes")
    return lines


def _position_text(program: Program, position: int) -> str:
    taken = program.positions[position]
    name = program.names[taken.variable]
    return f"{position} {{- {name} -}}" if taken.excluded else f"{position} {name}"


def _waiting_negations(program: Program, position: int) -> list[str]:
    """Return what ends a run that waits here although no move says so."""
    if position < 0:
        return []
    on_moves = {negation for move in program.follow[position] for negation in move.negations}
    return [
        program.names[negation.variable]
        for negation in program.ends[position]
        if negation not in on_moves
    ]


def _move_text(program: Program, move: Transition, *, is_first: bool) -> str:
    names = program.names
    words = ["accept" if move.target == ACCEPT else _position_text(program, move.target)]
    if move.target != ACCEPT and not is_first:
        words.append(_LINKS[move.link])
    if move.at_start:
        words.append("only at the partition's first row")
    if move.at_end:
        words.append("only after the partition's last row")
    words += [f"until {names[until]} comes" for until in move.untils]
    words += [f"passing over no {names[hold.variable]}" for hold in move.holds]
    for negation in move.negations:
        name = names[negation.variable]
        words.append(
            f"unless the very next event is {name}"
            if negation.immediate
            else f"unless {name} comes before"
        )
    return ", ".join(words)
