"""The compiled engine: the twin's numbers, thousands of times as fast.

It runs what is made of this library's own values; a scheduling, an allocation or a combination of
the user's own is Python, and needs the twin. Groups of
machines that do not depend on each other run in threads; results do not depend on how many there
are.

It takes memory for the queues as the twin does, 8 bytes a number, for one part of the machines in
each thread at a time; and for these, 8 bytes a tick for each of their producers that differ.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from outpace.simulate.fast_state import MachineGroup, Numbering, ScenarioPart, make_state
from outpace.simulate.kernels.records import History, RunState, Settings
from outpace.simulate.kernels.ticks import enter_phase, leave_phase, run_group
from outpace.simulate.layout import Layout
from outpace.simulate.metrics import Recording
from outpace.simulate.model import (
    ConstantOutput,
    PairedOutput,
    ShareOutput,
    WindowedOperator,
)
from outpace.simulate.phases import phases
from outpace.simulate.scenario import Scenario
from outpace.simulate.strategies import (
    DynamicScheduling,
    SimpleScheduling,
    UniformAllocation,
    WeightedAllocation,
)

_COMBINATIONS = (ConstantOutput, ShareOutput, PairedOutput)

#: A part has about so many vertices, if its groups are not larger.
PART = 4096


def needs_twin(scenario: Scenario) -> str | None:
    """Return what of a scenario this engine cannot run, or None if it can.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(10)), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> needs_twin(Scenario((query,), (VM("worker", mips=2500),), duration=60)) is None
    True
    """
    for scheduling, allocation in dict.fromkeys(map(scenario.strategies, scenario.vms)):
        if type(scheduling) not in (SimpleScheduling, DynamicScheduling):
            return f"the scheduling {scheduling!r}"
        if type(allocation) not in (UniformAllocation, WeightedAllocation):
            return f"the allocation {allocation!r}"
    for query in scenario.queries:
        for vertex in query.vertices:
            if (
                isinstance(vertex, WindowedOperator)
                and type(vertex.combination) not in _COMBINATIONS
            ):
                return f"the combination {vertex.combination!r} of {vertex.id!r}"
    return None


def run_fast(layout: Layout, on_progress: Callable[[float], None] = lambda _: None) -> Recording:
    """Simulate a scenario from its begin to its end.

    Parameters
    ----------
    layout
        The scenario, which must not need the twin.
    on_progress
        Told which part of the machines is done.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Uniform
    >>> from outpace.simulate.layout import lay_out
    >>> query = QueryModel("q", (Producer("in", Uniform(10)), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> scenario = Scenario((query,), (VM("worker", mips=2500),), duration=60)
    >>> run_fast(lay_out(scenario)).events.tolist()
    [599.0]
    """
    numbering = Numbering(layout, phases(layout))
    state = make_state(numbering)
    recording = Recording.empty(layout)
    parts = list(_parts(numbering.groups))

    def run(groups: Sequence[MachineGroup]) -> None:
        _run_part(ScenarioPart(numbering, state, groups), numbering, recording)

    with ThreadPoolExecutor(min(len(parts), len(os.sched_getaffinity(0)))) as pool:
        for done, _ in enumerate(pool.map(run, parts), start=1):
            on_progress(done / len(parts))
    _fill(recording, state)
    return recording


def _parts(groups: Sequence[MachineGroup]) -> Iterator[Sequence[MachineGroup]]:
    first = 0
    for after, group in enumerate(groups, start=1):
        size = group.vertices[1] - groups[first].vertices[0]
        if size >= PART or after == len(groups):
            yield groups[first:after]
            first = after


def _run_part(part: ScenarioPart, numbering: Numbering, recording: Recording) -> None:
    """Run groups of machines through all phases."""
    settings = _settings(numbering.layout)
    history = History(*(getattr(recording, name) for name in History._fields))
    machines = (part.groups[0].machines[0], part.groups[-1].machines[1])
    stores = part.stores
    for number, phase in enumerate(numbering.phases):
        begin = phase.first_tick * settings.tick
        leave_phase(part.state, stores, machines, begin)
        started, cleared = part.enter(number)
        enter_phase(part.state, stores, machines, started, cleared, begin)
        ticks = (phase.first_tick, phase.end_tick)
        for group in part.groups:
            stores = run_group(
                part.state, stores, history, settings, group.machines, group.vertices, ticks
            )


def _settings(layout: Layout) -> Settings:
    scenario = layout.scenario
    return Settings(
        float(scenario.tick),
        layout.ticks,
        layout.warm_up_ticks,
        layout.ticks_per_sample,
    )


def _fill(recording: Recording, state: RunState) -> None:
    """Write what the records hold at the end where the results belong."""
    vertices, consumers, machines = state.vertices, state.consumers, state.machines
    recording.processed[vertices["number"]] = vertices["processed"]
    for name in ("dropped", "done", "delay", "setup"):
        getattr(recording, name)[vertices["number"]] = vertices[name]
    recording.instructions[machines["number"]] = machines["used"]
    recording.events[consumers["place"]] = consumers["events"]
    recording.latency[consumers["place"]] = consumers["latency"]
    ends = np.append(consumers["first_total"][1:], len(state.paths))
    for place, first, end in zip(consumers["place"], consumers["first_total"], ends, strict=True):
        total = 0.0
        for consumed, paths in zip(state.consumed[first:end], state.paths[first:end], strict=True):
            total += consumed / paths
        recording.totals[place] = total
