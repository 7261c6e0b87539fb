"""Where the nodes of a picture stand: layers from left to right, few crossings, a straight spine.

Loops are opened first, so that what is left has a direction: in each group of nodes that can reach
each other, the arcs back to where the group is entered go. Layers are longest paths; an arc over
several layers gets a bend in each of them, so that it passes between nodes and never through one.
Nodes within a layer are ordered by the mean of their neighbours and then moved towards them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

_SWEEPS: Final = 12
_ALIGNMENTS: Final = 24

Pair = tuple[int, int]


@dataclass(frozen=True)
class PictureLayout:
    """Places of nodes and bends.

    Parameters
    ----------
    layer
        For each node its layer, from 0.
    height
        For each node its vertical place, the middle of the picture near 0.
    bends
        For an arc that goes forward over several layers, the heights in the layers between.
    backward
        The arcs that go back or stay in a layer, self loops left out.
    """

    layer: Mapping[int, int]
    height: Mapping[int, float]
    bends: Mapping[Pair, tuple[float, ...]]
    backward: frozenset[Pair]


def lay_out(
    count: int, arcs: Iterable[tuple[int, int, float]], spacing: Mapping[int, float], bend: float
) -> PictureLayout:
    """Place the nodes `0 .. count - 1`; node 0 is the entry and the last one stands at the right.

    Parameters
    ----------
    arcs
        Source, target and weight: a heavier arc is drawn straighter, an earlier one higher up.
    spacing
        The height that each node needs, arcs and notes included.
    bend
        The height that a bend needs.

    Examples
    --------
    >>> layout = lay_out(4, [(0, 1, 1.0), (1, 2, 1.0), (2, 1, 1.0), (2, 3, 1.0)],
    ...                  dict.fromkeys(range(4), 80.0), 30.0)
    >>> [layout.layer[node] for node in range(4)], sorted(layout.backward)
    ([0, 1, 2, 3], [(2, 1)])
    """
    weights: dict[Pair, float] = {}
    for source, target, weight in arcs:
        weights[source, target] = max(weight, weights.get((source, target), 0.0))
    loops = {(source, target) for source, target in weights if source == target}
    backward = _loop_arcs(count, set(weights)) - loops
    forward = {pair: weights[pair] for pair in weights if pair not in backward | loops}
    layer = _layers(count, forward)
    grid = _Grid(spacing, bend)
    for node in _visited(count, weights):
        grid.add(layer[node], node)
    for pair, weight in forward.items():
        grid.connect(layer, pair, weight)
    grid.order()
    grid.align()
    bends = {pair: tuple(grid.height[key] for key in chain) for pair, chain in grid.chains.items()}
    return PictureLayout(layer, {node: grid.height[node] for node in range(count)}, bends, backward)


def _visited(count: int, arcs: Iterable[Pair]) -> list[int]:
    """Return the nodes in the order of a walk that takes arcs as listed, preferred ones first."""
    out: dict[int, list[int]] = {node: [] for node in range(count)}
    for source, target in arcs:
        out[source].append(target)
    found: dict[int, None] = {}
    stack = list(range(count - 1, -1, -1))
    while stack:
        node = stack.pop()
        if node not in found:
            found[node] = None
            stack += reversed(out[node])
    return list(found)


def _loop_arcs(count: int, arcs: set[Pair]) -> frozenset[Pair]:
    """Return arcs without which the graph has no loops."""
    removed: set[Pair] = set()
    pending = [set(range(count))]
    while pending:
        nodes = pending.pop()
        inside = {(a, b) for a, b in arcs - removed if a in nodes and b in nodes}
        for component in _components(nodes, inside):
            if len(component) == 1:
                continue
            removed |= _arcs_to_entries(component, inside, arcs)
            pending.append(component)
    return frozenset(removed)


def _arcs_to_entries(component: set[int], inside: set[Pair], arcs: set[Pair]) -> set[Pair]:
    """Return the arcs that begin another round of a loop.

    An arc to an entry is one if its source leads to every entry, as the end of a repetition does.
    In `(A? B)*` both are entries, but A leads only to B, so the arc from A to B goes forward.
    """
    inner = {(a, b) for a, b in inside if a in component and b in component}
    entries = {b for a, b in arcs if b in component and a not in component} or {min(component)}
    reached: dict[int, set[int]] = {}
    for source, target in arcs:
        reached.setdefault(source, set()).add(target)
    rounds = {(a, b) for a, b in inner if a != b and b in entries and reached[a] >= entries}
    if not rounds:
        rounds = {(a, b) for a, b in inner if b in entries and b < a}
    return rounds or {(a, b) for a, b in inner if a != b and b in entries}


def _components(nodes: set[int], arcs: set[Pair]) -> list[set[int]]:
    """Return the groups of nodes that reach each other (Kosaraju, without recursion)."""
    out: dict[int, list[int]] = {node: [] for node in nodes}
    back: dict[int, list[int]] = {node: [] for node in nodes}
    for source, target in sorted(arcs):
        out[source].append(target)
        back[target].append(source)
    finished: list[int] = []
    visits: set[int] = set()
    for root in sorted(nodes):
        stack = [(root, 0)]
        while stack:
            node, index = stack.pop()
            if index == 0 and node in visits:
                continue
            visits.add(node)
            if index < len(out[node]):
                stack += [(node, index + 1), (out[node][index], 0)]
            else:
                finished.append(node)
    found: list[set[int]] = []
    places: set[int] = set()
    for root in reversed(finished):
        component: set[int] = set()
        todo = [root]
        while todo:
            node = todo.pop()
            if node not in places:
                places.add(node)
                component.add(node)
                todo += back[node]
        if component:
            found.append(component)
    return found


def _layers(count: int, forward: Mapping[Pair, float]) -> dict[int, int]:
    """Return the length of the longest way to each node; the last node stands behind all others."""
    waiting = dict.fromkeys(range(count), 0)
    out: dict[int, list[int]] = {node: [] for node in range(count)}
    for source, target in forward:
        waiting[target] += 1
        out[source].append(target)
    layer = {node: 0 if node == 0 else 1 for node in range(count)}
    ready = [node for node in range(count) if not waiting[node]]
    while ready:
        node = ready.pop()
        for target in out[node]:
            layer[target] = max(layer[target], layer[node] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    last = count - 1
    layer[last] = max((layer[node] + 1 for node in range(last)), default=0)
    return layer


@dataclass
class _Grid:
    """The layers with their nodes and bends, while they are being ordered and aligned."""

    spacing: Mapping[int, float]
    bend: float
    columns: dict[int, list[int]] = field(default_factory=dict)
    chains: dict[Pair, tuple[int, ...]] = field(default_factory=dict)
    height: dict[int, float] = field(default_factory=dict)
    bends: int = 0
    #: For each node and bend its neighbours to the left and to the right, with weights.
    left: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    right: dict[int, list[tuple[int, float]]] = field(default_factory=dict)

    def add(self, layer: int, key: int) -> None:
        self.columns.setdefault(layer, []).append(key)
        self.left[key] = []
        self.right[key] = []

    def connect(self, layer: Mapping[int, int], pair: Pair, weight: float) -> None:
        """Join two nodes, with a bend in every layer between them; bends have negative keys."""
        source, target = pair
        chain = [source]
        for between in range(layer[source] + 1, layer[target]):
            self.bends += 1
            self.add(between, -self.bends)
            chain.append(-self.bends)
        chain.append(target)
        for a, b in pairwise(chain):
            pull = weight * (3.0 if a < 0 and b < 0 else 1.0)
            self.right[a].append((b, pull))
            self.left[b].append((a, pull))
        self.chains[pair] = tuple(chain[1:-1])

    def order(self) -> None:
        """Reorder the layers towards fewer crossings and keep the best order seen."""
        best = {layer: list(column) for layer, column in self.columns.items()}
        fewest = self._crossings()
        for sweep in range(_SWEEPS):
            if not fewest:
                break
            neighbours = self.left if sweep % 2 == 0 else self.right
            for layer in sorted(self.columns, reverse=sweep % 2 == 1):
                self._sort(layer, neighbours)
            crossings = self._crossings()
            if crossings < fewest:
                fewest = crossings
                best = {layer: list(column) for layer, column in self.columns.items()}
        self.columns = best

    def _sort(self, layer: int, neighbours: Mapping[int, list[tuple[int, float]]]) -> None:
        place = {key: i for column in self.columns.values() for i, key in enumerate(column)}

        def mean(key: int) -> float:
            near = neighbours[key]
            return sum(place[other] for other, _ in near) / len(near) if near else place[key]

        self.columns[layer].sort(key=mean)

    def _crossings(self) -> int:
        place = {key: i for column in self.columns.values() for i, key in enumerate(column)}
        total = 0
        for column in self.columns.values():
            # In the order of their left ends, a line crosses those before it that end lower.
            ends: list[int] = []
            for end in (b for a in column for b in sorted(place[c] for c, _ in self.right[a])):
                at = bisect_right(ends, end)
                total += len(ends) - at
                ends.insert(at, end)
        return total

    def align(self) -> None:
        """Move nodes towards their neighbours, keeping the order and the distances."""
        for column in self.columns.values():
            for key, place in zip(column, self._stack(column), strict=True):
                self.height[key] = place
        for turn in range(_ALIGNMENTS):
            for layer in sorted(self.columns, reverse=turn % 2 == 1):
                column = self.columns[layer]
                wished = [self._wish(key) for key in column]
                for key, place in zip(column, self._spread(column, wished), strict=True):
                    self.height[key] = place
        middle = self.height[0]
        self.height = {key: place - middle for key, place in self.height.items()}

    def _wish(self, key: int) -> tuple[float, float]:
        near = self.left[key] + self.right[key]
        weight = sum(pull for _, pull in near)
        if not weight:
            return self.height[key], 1.0
        return sum(self.height[other] * pull for other, pull in near) / weight, weight

    def _need(self, key: int) -> float:
        return self.bend if key < 0 else self.spacing[key]

    def _stack(self, column: list[int]) -> list[float]:
        """Return each key's place below the first one at the least distance, centred."""
        places = [0.0]
        for above, below in pairwise(column):
            places.append(places[-1] + (self._need(above) + self._need(below)) / 2)
        return [place - places[-1] / 2 for place in places]

    def _spread(self, column: list[int], wished: list[tuple[float, float]]) -> list[float]:
        """Return the places nearest to the wished ones that keep order and distance.

        With the least distances taken off, that is the weighted isotonic regression (pool adjacent
        violators).
        """
        stacked = self._stack(column)
        pools: list[tuple[float, float, int]] = []
        for (wish, weight), least in zip(wished, stacked, strict=True):
            value, size = wish - least, 1
            while pools and pools[-1][0] > value:
                other, other_weight, other_size = pools.pop()
                value = (value * weight + other * other_weight) / (weight + other_weight)
                weight += other_weight
                size += other_size
            pools.append((value, weight, size))
        values = [value for value, _, size in pools for _ in range(size)]
        return [value + least for value, least in zip(values, stacked, strict=True)]
