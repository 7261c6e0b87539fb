"""What a scenario's changes mean, tick by tick: phases, new events, links.

Changes come at times that are known beforehand, so that all they do to vertices and machines is
worked out before a run, for all engines alike. Between two changes nothing changes but queues.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outpace.simulate.changes import (
    Change,
    FailVM,
    MoveVertex,
    RandomFailures,
    RestartVM,
    SetRate,
    StartQuery,
    StopQuery,
    happening,
)
from outpace.simulate.cloud import assign_hosts, shared_capacities
from outpace.simulate.generators import Generator, whole_events
from outpace.simulate.layout import Layout, tick_at
from outpace.simulate.model import Producer
from outpace.simulate.network import NetworkLink
from outpace.simulate.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of ticks in which nothing changes but queues.

    Parameters
    ----------
    first_tick, end_tick
        The ticks, the second one excluded.
    running
        Whether each vertex belongs to a query that runs.
    homes
        The number of the VM of each vertex.
    up
        Whether each VM works.
    capacities
        What each VM gets, in million instructions a second; 0 where nothing runs on it.
    started, cleared
        Vertices that begin anew with the phase, and vertices that lose what they hold.
    """

    first_tick: int
    end_tick: int
    running: tuple[bool, ...]
    homes: tuple[int, ...]
    up: tuple[bool, ...]
    capacities: tuple[float, ...]
    started: frozenset[int]
    cleared: frozenset[int]


def phases(layout: Layout) -> tuple[Phase, ...]:
    """Return the phases of a run, in order; the first one begins with tick 0.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Scenario, Uniform
    >>> from outpace.simulate.layout import lay_out
    >>> query = QueryModel("q", (Producer("in", Uniform(10)), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> scenario = Scenario((query,), (VM("worker", mips=2500),), duration=60,
    ...                     changes=(FailVM(20, "worker"), RestartVM(30, "worker")))
    >>> [(phase.first_tick, phase.up) for phase in phases(lay_out(scenario))]
    [(0, (True,)), (200, (False,)), (300, (True,))]
    """
    scenario = layout.scenario
    by_tick: dict[int, list[Change]] = {0: []}
    for change in happening(scenario.changes, scenario.duration):
        if not isinstance(change, SetRate):
            by_tick.setdefault(tick_at(change.at, scenario), []).append(change)
    firsts = sorted(tick for tick in by_tick if tick < layout.ticks)
    state = _PhaseState(layout)
    return tuple(
        state.phase(first, end, by_tick[first])
        for first, end in zip(firsts, [*firsts[1:], layout.ticks], strict=True)
    )


def new_events(
    layout: Layout, all_phases: Sequence[Phase], producer: int, first: int, end: int
) -> NDArray[np.int64]:
    """Return how many events a producer takes in at the begin of each of the ticks.

    They are those that arrive, as far as its `rate_max` allows.

    Parameters
    ----------
    producer
        The number of the vertex.
    first, end
        The ticks, the second one excluded.
    """
    arriving = arriving_events(layout, all_phases, producer, 0, end)
    vertex = layout.vertices[producer]
    assert isinstance(vertex, Producer)
    if vertex.rate_max is not None:
        arriving = _admitted(arriving, vertex.rate_max, layout.scenario.tick)
    return arriving[first:]


def _admitted(arriving: NDArray[np.int64], rate_max: float, tick: float) -> NDArray[np.int64]:
    """Return what a rate allows of the events of each tick; what it leaves is kept for a second.

    Examples
    --------
    >>> _admitted(np.array([0, 60, 60, 0, 5]), rate_max=100, tick=0.1).tolist()
    [0, 60, 50, 0, 5]
    """
    most = max(1.0, float(rate_max))
    admitted, allowed = [], most
    for events in arriving.tolist():
        allowed = min(most, allowed + rate_max * tick)
        taken = min(events, math.floor(allowed + 1e-9))
        allowed -= taken
        admitted.append(taken)
    return np.array(admitted, np.int64)


def arriving_events(
    layout: Layout, all_phases: Sequence[Phase], producer: int, first: int, end: int
) -> NDArray[np.int64]:
    """Return how many events of a producer arrive at the begin of each of the ticks.

    They are those of the tick before: g(begin) - g(begin of the tick before). At tick 0, and while
    the producer's query does not run, there are none.

    Parameters
    ----------
    producer
        The number of the vertex.
    first, end
        The ticks, the second one excluded.
    """
    vertex = layout.vertices[producer]
    assert isinstance(vertex, Producer)
    scenario = layout.scenario
    ticks = np.arange(first, end)
    events = np.zeros(end - first, np.int64)
    segments = _rates(layout, vertex)
    for (begin, generator, factor), (stop, _, _) in zip(
        segments, [*segments[1:], (layout.ticks, vertex.generator, None)], strict=True
    ):
        inside = (ticks > begin) & (ticks <= stop)
        if not inside.any():
            continue
        chosen = ticks[inside]
        border = np.arange(chosen[0] - 1, chosen[-1] + 1)
        events[inside] = np.diff(_totals(generator, factor, begin, border, scenario.tick))
    return np.where(_produces(all_phases, producer, ticks), events, 0)


def links(layout: Layout) -> dict[tuple[int, int], NetworkLink]:
    """Return the link between any two VMs that differ, by their numbers, as a lookup on demand."""
    return _Links(layout)


class _Links(dict[tuple[int, int], NetworkLink]):
    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self._network = layout.scenario.network
        places = assign_hosts(layout.scenario.vms, layout.scenario.clouds)
        self._places = [places[vm.id] for vm in layout.scenario.vms]

    def __missing__(self, pair: tuple[int, int]) -> NetworkLink:
        source, target = pair
        link = self._network.link(self._places[source], self._places[target])
        self[pair] = link
        return link


class _PhaseState:
    """What has changed so far, and the phase that follows from it."""

    def __init__(self, layout: Layout) -> None:
        scenario = layout.scenario
        self._layout = layout
        self._number = {vertex.id: number for number, vertex in enumerate(layout.vertices)}
        self._vm = {vm.id: number for number, vm in enumerate(scenario.vms)}
        self._queries = {
            query.name: frozenset(self._number[vertex.id] for vertex in query.vertices)
            for query in scenario.queries
        }
        self._homes = [self._vm[scenario.placement[vertex.id]] for vertex in layout.vertices]
        self._up = [True] * len(scenario.vms)
        self._places = assign_hosts(scenario.vms, scenario.clouds)
        self._active = {query.name for query in scenario.queries} - _started_later(scenario)
        self._running: frozenset[int] = frozenset()

    def phase(self, first: int, end: int, changes: Sequence[Change]) -> Phase:
        """Apply the changes and return the phase that they begin."""
        cleared: set[int] = set()
        for change in changes:
            self._apply(change, cleared)
        running: frozenset[int] = frozenset().union(*(self._queries[name] for name in self._active))
        started = running - self._running
        cleared |= self._running - running
        self._running = running
        vertices = range(len(self._homes))
        busy = [False] * len(self._up)
        for vertex in running:
            busy[self._homes[vertex]] = self._up[self._homes[vertex]]
        scenario = self._layout.scenario
        return Phase(
            first,
            end,
            tuple(vertex in running for vertex in vertices),
            tuple(self._homes),
            tuple(self._up),
            tuple(shared_capacities(scenario.vms, scenario.clouds, self._places, busy)),
            started,
            frozenset(cleared),
        )

    def _apply(self, change: Change, cleared: set[int]) -> None:
        match change:
            case StartQuery():
                self._active.add(change.query)
            case StopQuery():
                self._active.discard(change.query)
            case MoveVertex():
                self._homes[self._number[change.vertex]] = self._vm[change.vm]
            case FailVM():
                failed = self._vm[change.vm]
                self._up[failed] = False
                cleared |= {vertex for vertex, home in enumerate(self._homes) if home == failed}
            case RestartVM():
                self._up[self._vm[change.vm]] = True
            case SetRate() | RandomFailures():
                raise AssertionError("it changes new events, or has become single failures")


def _started_later(scenario: Scenario) -> set[str]:
    """The queries whose first change is their start."""
    first: dict[str, Change] = {}
    for change in sorted(scenario.changes, key=lambda change: change.at):
        if isinstance(change, StartQuery | StopQuery):
            first.setdefault(change.query, change)
    return {name for name, change in first.items() if isinstance(change, StartQuery)}


def _rates(layout: Layout, producer: Producer) -> list[tuple[int, Generator, float | None]]:
    """The ticks after which a generator counts, with its factor."""
    segments: list[tuple[int, Generator, float | None]] = [(0, producer.generator, None)]
    for change in sorted(layout.scenario.changes, key=lambda change: change.at):
        if isinstance(change, SetRate) and change.producer == producer.id:
            begin = tick_at(change.at, layout.scenario)
            segments.append((begin, change.generator or producer.generator, change.factor))
    return segments


def _totals(
    generator: Generator,
    factor: float | None,
    begin: int,
    ticks: NDArray[np.int64],
    tick: float,
) -> NDArray[np.int64]:
    """The events produced since the tick `begin` by each of the ticks."""
    if factor is None:
        return generator.totals((ticks - begin).astype(np.float64) * tick)
    before = generator.totals(np.array([begin * tick]))[0]
    since = generator.totals(ticks.astype(np.float64) * tick) - before
    return whole_events(factor * since)


def _produces(
    all_phases: Sequence[Phase], producer: int, ticks: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the producer ran in each tick and in the tick before, without a new start."""
    produces = np.zeros(len(ticks), np.bool_)
    ran = False
    for phase in all_phases:
        runs = phase.running[producer]
        inside = (ticks >= phase.first_tick) & (ticks < phase.end_tick)
        produces[inside] = runs
        if runs and not ran:
            produces[ticks == phase.first_tick] = False
        ran = runs
    return produces
