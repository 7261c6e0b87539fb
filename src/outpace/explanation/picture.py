"""The picture of an automaton: which nodes and arcs are drawn, and the same as Graphviz DOT.

Every position of the program is a node, and every move an arc with its rank in the order of
preference. A program of more than `SHOWN_MAX` positions is drawn with the copies of a repetition as
one node, or else with one node per variable; `Picture.remark` says what is left out.
`picture_svg.py` draws the same picture without Graphviz.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from outpace.engine.match.program import ACCEPT, Program, Transition
from outpace.pattern.ast import Link

#: Above this many positions, copies are drawn as one node.
SHOWN_MAX: Final = 36
#: Never more nodes than this; the rest is left out, and the remark says so.
NODES_MAX: Final = 120
#: Never more arcs than this; the least preferred are left out, and the remark says so.
ARCS_MAX: Final = 250
#: The longest group of positions that is recognised as a copy of the group before it.
_PERIOD_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class PictureNode:
    """A node: the start, a position (or several drawn as one), or the acceptance.

    `detail` names the positions by number; `ends` are the variables whose event ends a run that
    waits here although no arc says so.
    """

    kind: str
    name: str = ""
    detail: str = ""
    excluded: bool = False
    ends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arc:
    """A move between two nodes, given by their places in `Picture.nodes`.

    `ranks` are the places in the order of preference; `link` is None where contiguity means
    nothing: from the start and to the acceptance.
    """

    source: int
    target: int
    ranks: tuple[int, ...]
    link: Link | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn; the first node is the start, the last one the acceptance."""

    title: str
    nodes: tuple[PictureNode, ...]
    arcs: tuple[Arc, ...]
    remark: str = ""

    def needs_ranks(self, source: int) -> bool:
        """Whether more than one move leaves a node, so that their order matters."""
        return sum(len(arc.ranks) for arc in self.arcs if arc.source == source) > 1


def picture_of(program: Program, title: str = "pattern") -> Picture:
    """Choose what to draw of a program.

    Examples
    --------
    >>> from outpace.engine.match.program import compile_program
    >>> from outpace.pattern.ast import Repeat, Var, concat
    >>> picture = picture_of(compile_program(concat([Var("A"), Repeat(Var("B"), 1, None)]),
    ...                                      ("A", "B")))
    >>> [(node.kind, node.name) for node in picture.nodes]
    [('start', ''), ('position', 'A'), ('position', 'B'), ('accept', '')]
    >>> [(arc.source, arc.target, arc.ranks) for arc in picture.arcs]
    [(0, 1, (1,)), (1, 2, (1,)), (2, 2, (1,)), (2, 3, (2,))]
    """
    groups, remark = _groups(program)
    members: list[list[int]] = [[] for _ in range(max(groups, default=-1) + 1)]
    for position, group in enumerate(groups):
        members[group].append(position)
    kept = min(len(members), NODES_MAX)
    nodes = (
        PictureNode("start"),
        *(_node(program, members[group]) for group in range(kept)),
        PictureNode("accept"),
    )
    arcs = _arcs(program, groups, kept)
    if len(arcs) > ARCS_MAX:
        left_out = f"only the {ARCS_MAX} most preferred of {len(arcs)} arcs are drawn"
        remark = f"{remark}; {left_out}" if remark else left_out
        preferred = sorted(arcs, key=lambda arc: arc.ranks[0])[:ARCS_MAX]
        arcs = tuple(sorted(preferred, key=lambda arc: (arc.source, arc.ranks)))
    return Picture(title, nodes, arcs, remark)


def dot(picture: Picture) -> str:
    r"""Write a picture as Graphviz DOT.

    Examples
    --------
    >>> from outpace.engine.match.program import compile_program
    >>> from outpace.pattern.ast import Var
    >>> print(dot(picture_of(compile_program(Var("A"), ("A",)), "one")))
    digraph "one" {
      rankdir=LR;
      node [fontname="sans-serif"];
      edge [fontname="sans-serif", fontsize=10];
      n0 [shape=point, width=0.15, label=""];
      n1 [shape=circle, label="A\n0"];
      n2 [shape=doublecircle, width=0.3, label=""];
      n0 -> n1;
      n1 -> n2;
    }
    """
    lines = [
        f"digraph {_quoted(picture.title)} {{",
        "  rankdir=LR;",
        '  node [fontname="sans-serif"];',
        '  edge [fontname="sans-serif", fontsize=10];',
    ]
    if picture.remark:
        lines.append(f"  label={_quoted(picture.remark)};")
    lines += [f"  n{index} {_dot_node(node)};" for index, node in enumerate(picture.nodes)]
    lines += [f"  {_dot_arc(picture, arc)};" for arc in picture.arcs]
    return "\n".join([*lines, "}"])


def notes_of(move: Transition, names: Sequence[str]) -> tuple[str, ...]:
    """Return what guards a move, a few words each.

    Examples
    --------
    >>> notes_of(Transition(0, at_start=True, untils=(1,)), ("A", "U"))
    ('^', 'until U')
    """
    return (
        *(("^",) if move.at_start else ()),
        *(("$",) if move.at_end else ()),
        *(f"until {names[variable]}" for variable in move.untils),
        *(f"possessive {names[hold.variable]}" for hold in move.holds),
        *(
            f"{'next is no' if negation.immediate else 'no'} {names[negation.variable]}"
            for negation in move.negations
        ),
    )


def _node(program: Program, members: list[int]) -> PictureNode:
    first = program.positions[members[0]]
    on_arcs = {n for position in members for m in program.follow[position] for n in m.negations}
    ends = dict.fromkeys(
        program.names[negation.variable]
        for position in members
        for negation in program.ends[position]
        if negation not in on_arcs
    )
    return PictureNode(
        "position", program.names[first.variable], _spans(members), first.excluded, tuple(ends)
    )


def _spans(members: list[int]) -> str:
    """Write position numbers, with a range as `0-3`, and only the ends of many."""
    if len(members) == 1:
        return str(members[0])
    if members[-1] - members[0] + 1 == len(members):
        return f"{members[0]}-{members[-1]}"
    if len(members) <= 3:
        return ", ".join(map(str, members))
    return f"{members[0]}, {members[1]} .. {members[-1]}"


def _arcs(program: Program, groups: list[int], kept: int) -> tuple[Arc, ...]:
    """Merge moves between the same two nodes with the same link into one arc."""
    ranks: dict[tuple[int, int, Link | None], dict[int, None]] = {}
    notes: dict[tuple[int, int, Link | None], dict[str, None]] = {}
    sources = [(0, program.initial)]
    sources += [(1 + groups[position], moves) for position, moves in enumerate(program.follow)]
    for source, moves in sources:
        for rank, move in enumerate(moves, start=1):
            target = 1 + (kept if move.target == ACCEPT else groups[move.target])
            if source > kept or (move.target != ACCEPT and target > kept):
                continue
            link = None if source == 0 or move.target == ACCEPT else move.link
            key = (source, target, link)
            ranks.setdefault(key, {})[rank] = None
            notes.setdefault(key, {}).update(dict.fromkeys(notes_of(move, program.names)))
    return tuple(
        Arc(source, target, tuple(sorted(ranks[key])), link, tuple(notes[key]))
        for key in ranks
        for source, target, link in [key]
    )


def _groups(program: Program) -> tuple[list[int], str]:
    """Return for each position the node that it is drawn as, and a remark where that is shared."""
    size = len(program.positions)
    if size <= SHOWN_MAX:
        return list(range(size)), ""
    keys = list(zip(program.positions, program.ends, strict=True))
    groups = _repeated_blocks(keys)
    how = "copies of a repetition are drawn as one"
    if max(groups) >= SHOWN_MAX:
        by_variable: dict[Hashable, int] = {}
        together = [by_variable.setdefault(key, len(by_variable)) for key in program.positions]
        if max(together) < max(groups):
            groups, how = together, "all positions of a variable are drawn as one"
    remarks = [how] if max(groups) < size - 1 else []
    if max(groups) >= NODES_MAX:
        remarks.append(f"only the first {NODES_MAX} nodes are drawn")
    return groups, f"{size} positions: {'; '.join(remarks)}" if remarks else ""


def _repeated_blocks(keys: Sequence[Hashable]) -> list[int]:
    """Number the keys so that a block of them that repeats itself gets the same numbers again."""
    groups: list[int] = []
    count = 0
    while len(groups) < len(keys):
        start = len(groups)
        best_period, best_copies = 1, 1
        for period in range(1, min(_PERIOD_MAX, (len(keys) - start) // 3) + 1):
            copies = _copies(keys, start, period)
            # Twice may be chance, as in the written-out orders of PERMUTE.
            if copies > 2 and copies * period > best_copies * best_period:
                best_period, best_copies = period, copies
        groups += list(range(count, count + best_period)) * best_copies
        count += best_period
    return groups


def _copies(keys: Sequence[Hashable], start: int, period: int) -> int:
    position = start + period
    while position < len(keys) and keys[position] == keys[position - period]:
        position += 1
    return (position - start) // period


def _dot_node(node: PictureNode) -> str:
    if node.kind == "start":
        return '[shape=point, width=0.15, label=""]'
    if node.kind == "accept":
        return '[shape=doublecircle, width=0.3, label=""]'
    style = ", style=dashed" if node.excluded else ""
    lines = [node.name, node.detail, *(f"no {name}" for name in node.ends)]
    return f"[shape=circle, label={_quoted(*lines)}{style}]"


_DOT_STYLES = {Link.STRICT: "solid", Link.NEXT: "dashed", Link.ANY: "dotted"}


def _dot_arc(picture: Picture, arc: Arc) -> str:
    label = []
    if picture.needs_ranks(arc.source):
        label.append(", ".join(map(str, arc.ranks)))
    label += arc.notes
    attributes = [f"label={_quoted(*label)}"] if label else []
    if arc.link not in (None, Link.STRICT):
        attributes.append(f"style={_DOT_STYLES[arc.link]}")
    suffix = f" [{', '.join(attributes)}]" if attributes else ""
    return f"n{arc.source} -> n{arc.target}{suffix}"


def _quoted(*lines: str) -> str:
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines]
    return '"' + "\\n".join(escaped) + '"'
