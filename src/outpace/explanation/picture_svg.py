"""The picture of an automaton as SVG, drawn without Graphviz.

The SVG is self-contained: no scripts, no references, names escaped, with a title and a description.
Time runs from left to right. Solid arcs are strict, dashed ones next, dotted ones any; a small
number where an arc begins is its rank in the order of preference.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from outpace.explanation.picture import Arc, Picture, PictureNode
from outpace.explanation.picture_layout import PictureLayout, lay_out
from outpace.pattern.ast import Link

_RADIUS: Final = 23.0
_GAP: Final = 84.0
_ROW: Final = 84.0
_BEND: Final = 30.0
_LANE: Final = 26.0
_NAME_MAX: Final = 22
_NOTE_MAX: Final = 34
_MARGIN: Final = 18.0
_FONT: Final = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"
_INK: Final = "#1f2933"
_BLUE: Final = "#1d5fa8"
_RED: Final = "#b42318"
_GREY: Final = "#616e7c"
_DASHES: Final = {
    Link.NEXT: ' stroke-dasharray="7 4"',
    Link.ANY: ' stroke-dasharray="1.5 4" stroke-linecap="round"',
}
_LEGEND: Final = {
    Link.STRICT: "strict: the very next event",
    Link.NEXT: "next: the first later event that fits",
    Link.ANY: "any: any later event that fits",
}

Point = tuple[float, float]


def svg(picture: Picture) -> str:
    """Draw a picture as one SVG element.

    Examples
    --------
    >>> from outpace.engine.match.program import compile_program
    >>> from outpace.pattern.ast import Var
    >>> from outpace.explanation.picture import picture_of
    >>> drawn = svg(picture_of(compile_program(Var("A"), ("A",)), "a < b"))
    >>> drawn.startswith("<svg"), "<title>a &lt; b</title>" in drawn
    (True, True)
    """
    return _Drawing(picture).text()


@dataclass(frozen=True, slots=True)
class _Box:
    """A node on the sheet: its middle, and half its width and height (a circle, or a pill)."""

    x: float
    y: float
    half: float
    radius: float

    def edge(self, angle: float) -> Point:
        """Return the point where a line at this angle from the middle leaves the shape."""
        dx, dy = math.cos(angle), math.sin(angle)
        inner = self.half - self.radius
        if abs(dy) * inner > abs(dx) * self.radius and abs(dy) > 1e-9:
            return self.x + dx / abs(dy) * self.radius, self.y + math.copysign(self.radius, dy)
        side = math.copysign(inner, dx)
        # Where the ray meets the round end, whose middle is `side` away.
        along = dx * side + math.sqrt(max(0.0, self.radius**2 - (dy * side) ** 2))
        return self.x + dx * along, self.y + dy * along


class _Drawing:
    """One picture while it is drawn: arcs first, then nodes above them, then the words."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.layout = _laid_out(picture)
        self.boxes = _boxes(picture, self.layout)
        self.lines: list[str] = []
        self.labels: list[str] = []
        self.left = self.top = math.inf
        self.right = self.bottom = -math.inf
        self.floor = self._floor()

    def text(self) -> str:
        for box in self.boxes:
            self._cover(box.x - box.half, box.y - box.radius, box.x + box.half, box.y + box.radius)
        angles = self._angles()
        for index, arc in enumerate(self.picture.arcs):
            self._arc(arc, *angles[index])
        nodes = [
            part
            for node, box in zip(self.picture.nodes, self.boxes, strict=True)
            for part in self._node(node, box)
        ]
        body = [*self.lines, *nodes, *self.labels]
        legend = self._legend()
        width = self.right - self.left + 2 * _MARGIN
        height = self.bottom - self.top + 2 * _MARGIN
        frame = f"{self.left - _MARGIN:.1f} {self.top - _MARGIN:.1f} {width:.1f} {height:.1f}"
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
                f'height="{height:.0f}" viewBox="{frame}" role="img" font-family="{_FONT}">',
                f"<title>{_escaped(self.picture.title)}</title>",
                f"<desc>{_escaped(_description(self.picture))}</desc>",
                f'<rect x="{self.left - _MARGIN:.1f}" y="{self.top - _MARGIN:.1f}" '
                f'width="{width:.1f}" height="{height:.1f}" fill="#ffffff"/>',
                *body,
                *legend,
                "</svg>",
            ]
        )

    def _cover(self, left: float, top: float, right: float, bottom: float) -> None:
        self.left, self.top = min(self.left, left), min(self.top, top)
        self.right, self.bottom = max(self.right, right), max(self.bottom, bottom)

    # Arcs

    def _angles(self) -> dict[int, tuple[float, float]]:
        """Choose for each forward arc the angles at which it leaves and arrives, fanned out."""
        leaving: dict[int, list[tuple[float, int]]] = {}
        arriving: dict[int, list[tuple[float, int]]] = {}
        for index, arc in enumerate(self.picture.arcs):
            if not self._is_forward(arc):
                continue
            points = self._waypoints(arc)
            leaving.setdefault(arc.source, []).append((_slope(points[0], points[1]), index))
            arriving.setdefault(arc.target, []).append((_slope(points[-2], points[-1]), index))
        out = {i: angle for fan in leaving.values() for i, angle in _fanned(fan).items()}
        into = {
            i: angle
            for fan in arriving.values()
            for i, angle in _fanned([(-slope, i) for slope, i in fan]).items()
        }
        return {i: (out.get(i, 0.0), -into.get(i, 0.0)) for i in range(len(self.picture.arcs))}

    def _is_forward(self, arc: Arc) -> bool:
        pair = (arc.source, arc.target)
        return arc.source != arc.target and pair not in self.layout.backward

    def _waypoints(self, arc: Arc) -> list[Point]:
        """Return the middles of the source, the bends and the target."""
        first = self.layout.layer[arc.source] + 1
        bends = [
            (self._column(first + i), height)
            for i, height in enumerate(self.layout.bends.get((arc.source, arc.target), ()))
        ]
        source, target = self.boxes[arc.source], self.boxes[arc.target]
        return [(source.x, source.y), *bends, (target.x, target.y)]

    def _column(self, layer: int) -> float:
        return next(
            box.x for node, box in enumerate(self.boxes) if self.layout.layer[node] == layer
        )

    def _arc(self, arc: Arc, leave: float, arrive: float) -> None:
        if arc.source == arc.target:
            self._self_loop(arc)
        elif self._is_forward(arc):
            self._forward(arc, leave, arrive)
        elif self.layout.layer[arc.source] == self.layout.layer[arc.target]:
            self._beside(arc)
        else:
            self._return(arc)

    def _forward(self, arc: Arc, leave: float, arrive: float) -> None:
        source, target = self.boxes[arc.source], self.boxes[arc.target]
        start, end = source.edge(leave), target.edge(math.pi + arrive)
        points = [start, *self._waypoints(arc)[1:-1], end]
        curve: list[tuple[Point, Point, Point]] = []
        for index in range(1, len(points)):
            a, b = points[index - 1], points[index]
            reach = (b[0] - a[0]) * 0.45
            first = _ahead(a, leave, reach) if index == 1 else (a[0] + reach, a[1])
            final = index == len(points) - 1
            second = _ahead(b, math.pi + arrive, reach) if final else (b[0] - reach, b[1])
            curve.append((first, second, b))
        middle = len(points) // 2
        note = _bezier(points[middle - 1], *curve[middle - 1], 0.55)
        # Arcs from the small start lie closer together where they begin.
        away = 13.0 + _RADIUS - source.radius
        self._stroke(arc, start, curve, note, _bezier(start, *curve[0], _share(start, curve, away)))

    def _self_loop(self, arc: Arc) -> None:
        box = self.boxes[arc.source]
        before = [a for a in self.picture.arcs if a.source == a.target == arc.source]
        reach = 44.0 + 22.0 * before.index(arc)
        start, end = box.edge(math.radians(-122)), box.edge(math.radians(-58))
        # The curve rises to three quarters of its handles.
        curve = [((start[0] - 20, start[1] - reach), (end[0] + 20, end[1] - reach), end)]
        top = (box.x, start[1] - reach * 0.75)
        self._stroke(arc, start, curve, (top[0], top[1] - 15), top)

    def _beside(self, arc: Arc) -> None:
        """Draw an arc within a layer: downwards on the right side, upwards on the left."""
        source, target = self.boxes[arc.source], self.boxes[arc.target]
        down = target.y > source.y
        side = 1.0 if down else -1.0
        leave = math.radians(62.0 if down else 242.0)
        arrive = math.radians(-62.0 if down else 118.0)
        start, end = source.edge(leave), target.edge(arrive)
        bulge = 12.0 + 0.16 * abs(end[1] - start[1]) + max(source.half, target.half) - _RADIUS
        lift = 0.3 * (end[1] - start[1])
        curve = [
            (
                (start[0] + side * bulge, start[1] + lift),
                (end[0] + side * bulge, end[1] - lift),
                end,
            )
        ]
        middle = _bezier(start, *curve[0], 0.5)
        self._stroke(arc, start, curve, middle, _bezier(start, *curve[0], 0.25))

    def _return(self, arc: Arc) -> None:
        """Draw an arc to an earlier layer: down between the layers, back below them, and up."""
        source, target = self.boxes[arc.source], self.boxes[arc.target]
        lane = self.floor[arc]
        start, down_x = self._descent(arc.source, side=1.0)
        end, up_x = self._descent(arc.target, side=-1.0)
        turn = 18.0
        curve: list[tuple[Point, Point, Point]] = [
            ((down_x, start[1] + (lane - start[1]) * 0.55), (down_x, lane), (down_x - turn, lane)),
            ((down_x - turn, lane), (up_x + turn, lane), (up_x + turn, lane)),
            ((up_x, lane), (up_x, end[1] + (lane - end[1]) * 0.55), end),
        ]
        self._stroke(
            arc, start, curve, ((source.x + target.x) / 2, lane), (down_x - turn - 6, lane)
        )

    def _descent(self, node: int, side: float) -> tuple[Point, float]:
        """Return where a returning arc touches a node, and the line on which it goes down."""
        box = self.boxes[node]
        below = any(
            other.y > box.y + 1
            for index, other in enumerate(self.boxes)
            if self.layout.layer[index] == self.layout.layer[node]
        )
        if not below:
            return box.edge(math.radians(90.0 - side * 18.0)), box.x + side * 10.0
        widest = max(
            other.half
            for index, other in enumerate(self.boxes)
            if self.layout.layer[index] == self.layout.layer[node]
        )
        return box.edge(math.radians(90.0 - side * 50.0)), box.x + side * (widest + 16.0)

    def _floor(self) -> dict[Arc, float]:
        """Give each returning arc a lane below all that it passes; shorter ones are higher up."""
        returning = [
            arc
            for arc in self.picture.arcs
            if (arc.source, arc.target) in self.layout.backward
            and self.layout.layer[arc.source] != self.layout.layer[arc.target]
        ]
        spans = {
            arc: (self.layout.layer[arc.target], self.layout.layer[arc.source]) for arc in returning
        }
        lanes: dict[Arc, float] = {}
        for arc in sorted(returning, key=lambda arc: (spans[arc][1] - spans[arc][0], arc.source)):
            low, high = spans[arc]
            lane = self._lowest(low, high) + _LANE
            while any(
                abs(other - lane) < _LANE and spans[a][0] <= high and spans[a][1] >= low
                for a, other in lanes.items()
            ):
                lane += _LANE
            lanes[arc] = lane
        return lanes

    def _lowest(self, low: int, high: int) -> float:
        lowest = -math.inf
        for index, box in enumerate(self.boxes):
            if low <= self.layout.layer[index] <= high:
                extra = 14.0 * len(self.picture.nodes[index].ends)
                lowest = max(lowest, box.y + box.radius + extra)
        for (source, _), bends in self.layout.bends.items():
            first = self.layout.layer[source] + 1
            for offset, height in enumerate(bends):
                if low <= first + offset <= high:
                    lowest = max(lowest, height)
        return lowest

    def _stroke(
        self,
        arc: Arc,
        start: Point,
        curve: list[tuple[Point, Point, Point]],
        note: Point,
        rank: Point,
    ) -> None:
        """Draw a curve with its arrow head, its rank and its notes."""
        path = f"M {start[0]:.1f} {start[1]:.1f}"
        here = start
        for first, second, end in curve:
            path += " C " + ", ".join(f"{x:.1f} {y:.1f}" for x, y in (first, second, end))
            for step in range(11):
                x, y = _bezier(here, first, second, end, step / 10)
                self._cover(x, y, x, y)
            here = end
        dash = "" if arc.link is None else _DASHES.get(arc.link, "")
        self.lines.append(
            f'<path d="{path}" fill="none" stroke="{_INK}" stroke-width="1.5"{dash}/>'
        )
        self.lines.append(_arrow_head(curve[-1][1], here))
        if self.picture.needs_ranks(arc.source):
            self._rank(arc, *rank)
        if arc.notes:
            self._note(arc, *note)

    def _rank(self, arc: Arc, x: float, y: float) -> None:
        text = ",".join(map(str, arc.ranks)) if len(arc.ranks) < 4 else f"{arc.ranks[0]}.."
        half = 6.5 + 3.2 * (len(text) - 1)
        self.labels.append(
            f'<rect x="{x - half:.1f}" y="{y - 6.5:.1f}" width="{2 * half:.1f}" height="13" '
            f'rx="6.5" fill="#ffffff" stroke="{_BLUE}" stroke-width="0.8"/>'
        )
        self.labels.append(_words(x, y + 3.3, text, 9.5, _BLUE))
        self._cover(x - half, y - 7, x + half, y + 7)

    def _note(self, arc: Arc, x: float, y: float) -> None:
        lines = [_shortened(note, _NOTE_MAX) for note in arc.notes]
        if arc.source == arc.target:
            y -= 12.0 * (len(lines) - 1)
        for index, line in enumerate(lines):
            half = _width(line, 10.0) / 2 + 2
            top = y - 7 + 12.0 * index
            self.labels.append(
                f'<rect x="{x - half:.1f}" y="{top:.1f}" width="{2 * half:.1f}" height="13" '
                f'fill="#ffffff" fill-opacity="0.85"/>'
            )
            self.labels.append(_words(x, top + 10, line, 10.0, _RED))
            self._cover(x - half, top, x + half, top + 13)

    # Nodes and words

    def _node(self, node: PictureNode, box: _Box) -> list[str]:
        if node.kind == "start":
            return [f'<circle cx="{box.x:.1f}" cy="{box.y:.1f}" r="{box.radius}" fill="{_INK}"/>']
        if node.kind == "accept":
            return [
                f'<circle cx="{box.x:.1f}" cy="{box.y:.1f}" r="{radius}" fill="#ffffff" '
                f'stroke="{_INK}" stroke-width="1.6"/>'
                for radius in (box.radius, box.radius - 4)
            ]
        dash = ' stroke-dasharray="4 3"' if node.excluded else ""
        parts = [
            f'<g class="position"><title>{_escaped(_hover(node))}</title>',
            f'<rect x="{box.x - box.half:.1f}" y="{box.y - box.radius:.1f}" '
            f'width="{2 * box.half:.1f}" height="{2 * box.radius:.1f}" rx="{box.radius}" '
            f'fill="#eef4fb" stroke="{_INK}" stroke-width="1.6"{dash}/>',
            _words(box.x, box.y + 2, _shortened(node.name, _NAME_MAX), 13.0, _INK),
            _words(box.x, box.y + 15, node.detail, 9.0, _GREY),
            "</g>",
        ]
        for index, name in enumerate(node.ends):
            y = box.y + box.radius + 13 + 13 * index
            line = _shortened(f"no {name}", _NOTE_MAX)
            half = _width(line, 10.0) / 2
            parts.append(_words(box.x, y, line, 10.0, _RED))
            self._cover(box.x - half, y - 10, box.x + half, y + 3)
        return parts

    def _legend(self) -> list[str]:
        """Explain the kinds of arcs that occur, and say what is drawn together."""
        used = [link for link in Link if any(arc.link is link for arc in self.picture.arcs)]
        y = self.bottom + 26.0
        parts = []
        for link in used:
            parts.append(
                f'<path d="M {self.left:.1f} {y - 3.5:.1f} h 34" fill="none" stroke="{_INK}" '
                f'stroke-width="1.5"{_DASHES.get(link, "")}/>'
            )
            parts.append(self._legend_line(self.left + 42, y, _LEGEND[link]))
            y += 16.0
        if any(self.picture.needs_ranks(node) for node in range(len(self.picture.nodes))):
            parts.append(self._legend_line(self.left, y, "numbers: the order of preference"))
            y += 16.0
        if any(node.excluded for node in self.picture.nodes):
            parts.append(self._legend_line(self.left, y, "dashed outline: left out of the rows"))
            y += 16.0
        if self.picture.remark:
            parts.append(self._legend_line(self.left, y, self.picture.remark))
        return parts

    def _legend_line(self, x: float, y: float, text: str) -> str:
        self._cover(self.left, y - 10, x + _width(text, 10.5), y + 3)
        return _words(x, y, text, 10.5, _GREY, anchor="start")


def _laid_out(picture: Picture) -> PictureLayout:
    spacing = {}
    for index, node in enumerate(picture.nodes):
        loops = [arc for arc in picture.arcs if arc.source == arc.target == index]
        above = max((34.0 + 22.0 * i + 12.0 * len(a.notes) for i, a in enumerate(loops)), default=0)
        spacing[index] = _ROW + above + 13.0 * len(node.ends) if node.kind == "position" else 40.0
    weighted = [(arc.source, arc.target, 3.0 if arc.ranks[0] == 1 else 1.0) for arc in picture.arcs]
    return lay_out(len(picture.nodes), weighted, spacing, _BEND)


def _boxes(picture: Picture, layout: PictureLayout) -> list[_Box]:
    """Place each layer to the right of the one before, with room for the notes between them."""
    halves, radii = [], []
    for node in picture.nodes:
        name = _shortened(node.name, _NAME_MAX)
        wide = max(_width(name, 13.0), _width(node.detail, 9.0) + 8) / 2 + 8
        radii.append({"start": 6.0, "accept": 12.0}.get(node.kind, _RADIUS))
        halves.append(max(radii[-1], wide) if node.kind == "position" else radii[-1])
    count = 1 + max(layout.layer.values())
    widest = [0.0] * count
    for index, half in enumerate(halves):
        layer = layout.layer[index]
        widest[layer] = max(widest[layer], half)
    gaps = [_GAP] * count
    for arc in picture.arcs:
        if (
            arc.notes
            and arc.source != arc.target
            and (arc.source, arc.target) not in layout.backward
        ):
            longest = max(_width(_shortened(note, _NOTE_MAX), 10.0) for note in arc.notes)
            middle = (layout.layer[arc.source] + layout.layer[arc.target] - 1) // 2
            gaps[middle] = max(gaps[middle], longest + 44.0)
    columns = [0.0]
    for layer in range(1, count):
        columns.append(columns[-1] + widest[layer - 1] + gaps[layer - 1] + widest[layer])
    return [
        _Box(columns[layout.layer[index]], layout.height[index], half, radius)
        for index, (half, radius) in enumerate(zip(halves, radii, strict=True))
    ]


def _fanned(fan: list[tuple[float, int]]) -> dict[int, float]:
    """Keep angles at one side of a node apart, so that arcs and ranks do not lie on each other."""
    least = min(math.radians(24.0), math.radians(130.0) / max(1, len(fan)))
    ordered = sorted(fan)
    angles: list[float] = []
    for slope, _ in ordered:
        angle = max(-1.1, min(1.1, slope))
        angles.append(angle if not angles else max(angle, angles[-1] + least))
    overflow = max(0.0, angles[-1] - 1.15)
    angles = [angle - overflow for angle in angles]
    for index in range(len(angles) - 2, -1, -1):
        angles[index] = min(angles[index], angles[index + 1] - least)
    return {index: angle for (_, index), angle in zip(ordered, angles, strict=True)}


def _slope(a: Point, b: Point) -> float:
    return math.atan2(b[1] - a[1], max(1.0, b[0] - a[0]))


def _ahead(point: Point, angle: float, distance: float) -> Point:
    return point[0] + math.cos(angle) * distance, point[1] + math.sin(angle) * distance


def _bezier(a: Point, b: Point, c: Point, d: Point, t: float) -> Point:
    u = 1 - t
    weights = (u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t)
    points = (a, b, c, d)
    return (
        sum(weight * point[0] for weight, point in zip(weights, points, strict=True)),
        sum(weight * point[1] for weight, point in zip(weights, points, strict=True)),
    )


def _share(start: Point, curve: list[tuple[Point, Point, Point]], distance: float) -> float:
    """Return how far along its first part a curve has gone this distance from its start."""
    first, second, end = curve[0]
    for step in range(1, 20):
        if math.dist(start, _bezier(start, first, second, end, step / 20)) >= distance:
            return step / 20
    return 0.5


def _arrow_head(before: Point, tip: Point) -> str:
    angle = math.atan2(tip[1] - before[1], tip[0] - before[0])
    corners = [tip, _ahead(tip, angle + 2.75, 9.0), _ahead(tip, angle - 2.75, 9.0)]
    shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon points="{shape}" fill="{_INK}"/>'


def _words(x: float, y: float, text: str, size: float, colour: str, anchor: str = "middle") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{colour}">{_escaped(text)}</text>'
    )


def _width(text: str, size: float) -> float:
    """Guess the width of a text, generously, so that it fits in whatever font there is."""
    units = sum(1.05 if unicodedata.east_asian_width(c) in "WF" else 0.66 for c in text)
    return units * size


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _hover(node: PictureNode) -> str:
    left_out = ", left out of the rows" if node.excluded else ""
    return f"{node.name}, position {node.detail}{left_out}"


def _description(picture: Picture) -> str:
    names = [node.name for node in picture.nodes if node.kind == "position"]
    return (
        f"An automaton with {len(names)} nodes ({', '.join(names)}) and {len(picture.arcs)} arcs, "
        f"read from left to right. {picture.remark}"
    ).strip()


def _escaped(text: str) -> str:
    """Escape markup, and drop the control characters that XML cannot hold."""
    return escape("".join(c if c >= " " else " " for c in text if c not in "\ufffe\uffff"))
