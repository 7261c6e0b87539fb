"""Pictures of automata: DOT that parses, SVG that is well formed, and nothing left out."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations

import pytest
from hypothesis import given
from support.strategies import patterns

from outpace.engine.match.program import compile_program
from outpace.explanation.picture import ARCS_MAX, NODES_MAX, SHOWN_MAX, Picture, dot, picture_of
from outpace.explanation.picture_svg import svg
from outpace.pattern import ast
from outpace.pattern.notation.parse_pattern import parse_pattern

SVG = "{http://www.w3.org/2000/svg}"
ODD_NAMES = ('say "hi"', "<b>&amp;", "back\\slash", "zwei\nZeilen", "数据", "x" * 60)


def drawn(text: str) -> Picture:
    return picture_of(program_of(parse_pattern(text)), text)


def program_of(tree: ast.Pattern):
    return compile_program(tree, ast.predicates(tree))


def read_dot(text: str) -> tuple[set[str], list[tuple[str, str]]]:
    """A tiny reader of DOT: the nodes that are declared and the arcs between them."""
    string = r'"(?:[^"\\\n]|\\.)*"'
    attribute = rf"\w+=(?:{string}|[\w.]+)"
    attributes = rf"(?: \[{attribute}(?:, {attribute})*\])"
    head, *body, foot = text.split("\n")
    assert re.fullmatch(rf"digraph {string} {{", head)
    assert foot == "}"
    nodes: set[str] = set()
    arcs: list[tuple[str, str]] = []
    for line in body:
        if found := re.fullmatch(rf"  (n\d+) -> (n\d+){attributes}?;", line):
            arcs.append((found[1], found[2]))
        elif found := re.fullmatch(rf"  (\w+){attributes};", line):
            if found[1] not in ("node", "edge"):
                assert found[1] not in nodes
                nodes.add(found[1])
        else:
            assert re.fullmatch(rf"  {attribute};", line), line
    assert all(end in nodes for arc in arcs for end in arc)
    return nodes, arcs


def read_svg(text: str) -> ET.Element:
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg"
    allowed = {"svg", "title", "desc", "rect", "circle", "path", "polygon", "text", "g"}
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in allowed
        assert not any("href" in name or name.startswith("on") for name in element.attrib)
    return root


def boxes(root: ET.Element) -> list[tuple[float, float, float, float]]:
    """The outlines of the positions: left, top, right, bottom."""
    found = []
    for group in root.iter(f"{SVG}g"):
        outline = group.find(f"{SVG}rect")
        assert outline is not None
        x, y, width, height = (float(outline.get(k, "")) for k in ("x", "y", "width", "height"))
        found.append((x, y, x + width, y + height))
    return found


def test_the_dip_as_dot():
    assert (
        dot(drawn("STRT DOWN+ -> UP"))
        == r"""
digraph "STRT DOWN+ -> UP" {
  rankdir=LR;
  node [fontname="sans-serif"];
  edge [fontname="sans-serif", fontsize=10];
  n0 [shape=point, width=0.15, label=""];
  n1 [shape=circle, label="STRT\n0"];
  n2 [shape=circle, label="DOWN\n1"];
  n3 [shape=circle, label="UP\n2"];
  n4 [shape=doublecircle, width=0.3, label=""];
  n0 -> n1;
  n1 -> n2;
  n2 -> n2 [label="1"];
  n2 -> n3 [label="2", style=dashed];
  n3 -> n4;
}""".lstrip()
    )


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("A -> !B -> C", {"no B"}),
        ("A !B C", {"next is no B"}),
        ("A -> B(->)+ UNTIL U -> C", {"until U"}),
        ("A -> B++ -> C", {"possessive B"}),
        ("^ A $", {"^", "$"}),
    ],
)
def test_what_guards_a_move_is_written_on_its_arc(text, notes):
    picture = drawn(text)
    assert {note for arc in picture.arcs for note in arc.notes} == notes
    shown = [element.text for element in read_svg(svg(picture)).iter(f"{SVG}text")]
    assert notes <= set(shown)


def test_a_negation_after_a_repetition_stands_at_its_positions():
    picture = picture_of(program_of(parse_pattern("A -> B{2} -> !C -> D")))
    assert [node.ends for node in picture.nodes if node.name == "B"] == [("C",), ()]


def test_links_are_drawn_differently():
    root = read_svg(svg(drawn("A B -> C ->> D")))
    dashes = {path.get("stroke-dasharray") for path in root.iter(f"{SVG}path")}
    assert dashes == {None, "7 4", "1.5 4"}


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_can_be_drawn(name):
    tree = ast.concat([ast.Var(name), ast.Repeat(ast.Var("B"), 0, None, until=name)])
    picture = picture_of(program_of(tree), name)
    nodes, _ = read_dot(dot(picture))
    assert len(nodes) == 4
    root = read_svg(svg(picture))
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert titles[0] == name.replace("\n", " ")
    assert titles[1].startswith(name.replace("\n", " "))


@given(patterns())
def test_every_position_and_every_move_is_drawn(tree):
    program = program_of(tree)
    picture = picture_of(program)
    nodes, arcs = read_dot(dot(picture))
    root = read_svg(svg(picture))
    assert len(nodes) == len(picture.nodes)
    assert len(boxes(root)) == len(picture.nodes) - 2
    moves = [(-1, program.initial), *enumerate(program.follow)]
    if picture.remark:
        many_moves = sum(len(options) for _, options in moves) > ARCS_MAX
        assert len(program.positions) > SHOWN_MAX or many_moves
        return
    assert len(picture.nodes) == len(program.positions) + 2
    last = len(program.positions) + 1
    assert set(arcs) == {
        (f"n{source + 1}", f"n{last if move.target < 0 else move.target + 1}")
        for source, options in moves
        for move in options
    }


@given(patterns(leaves=6))
def test_no_two_positions_overlap_and_all_lie_inside(tree):
    root = read_svg(svg(picture_of(program_of(tree))))
    left, top, width, height = map(float, root.get("viewBox", "").split())
    found = boxes(root)
    for x0, y0, x1, y1 in found:
        assert left <= x0 < x1 <= left + width
        assert top <= y0 < y1 <= top + height
    for one, other in combinations(found, 2):
        apart_x = one[2] <= other[0] or other[2] <= one[0]
        apart_y = one[3] <= other[1] or other[3] <= one[1]
        assert apart_x or apart_y


def test_copies_of_a_repetition_are_drawn_as_one():
    picture = drawn("A{100} (C D){30}")
    assert [(n.name, n.detail) for n in picture.nodes if n.name] == [
        ("A", "0-99"),
        ("C", "100, 102 .. 158"),
        ("D", "101, 103 .. 159"),
    ]
    assert picture.remark == "160 positions: copies of a repetition are drawn as one"
    assert "160 positions" in svg(picture)


def test_a_large_permutation_is_drawn_by_variable():
    picture = drawn("PERMUTE(A, B, C, D, E)")
    assert [n.name for n in picture.nodes if n.name] == list("ABCDE")
    assert picture.remark == "80 positions: all positions of a variable are drawn as one"


def test_a_dense_pattern_keeps_its_preferred_arcs():
    picture = drawn(" ".join(f"V{number}?" for number in range(30)))
    assert len(picture.arcs) == ARCS_MAX
    assert picture.remark == f"only the {ARCS_MAX} most preferred of 496 arcs are drawn"
    preferred = {arc.source for arc in picture.arcs if 1 in arc.ranks}
    assert preferred == set(range(31))
    read_svg(svg(picture))


def test_a_huge_pattern_is_cut():
    tree = ast.concat([ast.Var(f"V{number}") for number in range(500)])
    picture = picture_of(program_of(tree))
    assert len(picture.nodes) == NODES_MAX + 2
    assert picture.remark == f"500 positions: only the first {NODES_MAX} nodes are drawn"
    read_svg(svg(picture))


@pytest.mark.parametrize("least", [0, 1, 3])
def test_a_repetition_keeps_the_order_of_preference(least):
    greedy = picture_of(program_of(ast.Repeat(ast.Var("A"), least, None)))
    reluctant = picture_of(program_of(ast.Repeat(ast.Var("A"), least, None, ast.Mode.RELUCTANT)))
    for picture, again in ((greedy, (1,)), (reluctant, (2,))):
        loop = next(arc for arc in picture.arcs if arc.source == arc.target)
        assert loop.ranks == again
