"""Simulate a scenario, with the engine that is asked for, or the fastest that can run it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal

import numpy as np

from outpace.compiler.kernel import is_compiled
from outpace.errors import ScenarioError
from outpace.pattern.argument import an_instance
from outpace.simulate.fast import needs_twin, run_fast
from outpace.simulate.kernels.ticks import run_group
from outpace.simulate.layout import Layout, lay_out
from outpace.simulate.metrics import Recording
from outpace.simulate.model import Producer
from outpace.simulate.phases import arriving_events, new_events, phases
from outpace.simulate.result import Result
from outpace.simulate.scaled_run import run_scaled
from outpace.simulate.scenario import Scenario
from outpace.simulate.twin import run_twin

Engine = Literal["fast", "twin"]

#: So many steps of vertices the twin does in the time that the other engine takes to compile.
_WORTH_COMPILING = 1_000_000

_is_compiled = functools.cache(is_compiled)


def simulate(
    scenario: Scenario,
    engine: Engine | None = None,
    on_progress: Callable[[float], None] = lambda _: None,
) -> Result:
    """Simulate a scenario from its begin to its end.

    Parameters
    ----------
    scenario
        What to simulate.
    engine
        "fast" is compiled, and runs what is made of this library's own values. "twin" computes in
        plain Python objects, and runs everything. Both give the same numbers. If it is not given,
        the fast one is taken where it can be, unless it would have to be compiled first for less
        than that takes.
    on_progress
        Told, from time to time, which part of the work is done, from 0 to 1.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(10)), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> scenario = Scenario((query,), (VM("worker", mips=2500),), duration=60, warm_up=10)
    >>> round(simulate(scenario).throughput("out"), 9)
    10.0
    """
    an_instance(scenario, Scenario, "a scenario", error=ScenarioError)
    if engine is not None and (not isinstance(engine, str) or engine not in ("fast", "twin")):
        raise ScenarioError(f"unknown engine {engine!r}", hint="known engines: fast, twin")
    own = needs_twin(scenario)
    if engine == "fast" and own is not None:
        raise ScenarioError(
            "the fast engine runs the library's own values only",
            detail=f"this one is not: {own}",
            hint="leave the engine out, or ask for the twin",
        )
    if scenario.scaling is not None:
        return run_scaled(scenario, lambda one: simulate(one, engine))
    layout = lay_out(scenario)
    if engine == "fast" or (engine is None and own is None and _is_worth(layout)):
        recording = run_fast(layout, on_progress=on_progress)
    else:
        recording = run_twin(scenario, on_progress)
    _record_shed(layout, recording)
    return Result(layout, recording)


def _record_shed(layout: Layout, recording: Recording) -> None:
    """Count what producers did not take in as dropped by them."""
    for number in layout.producers:
        vertex = layout.vertices[number]
        if not isinstance(vertex, Producer) or vertex.rate_max is None:
            continue
        every = phases(layout)
        shed = arriving_events(layout, every, number, 0, layout.ticks)
        shed -= new_events(layout, every, number, 0, layout.ticks)
        recording.dropped[number] += shed[layout.warm_up_ticks :].sum()
        firsts = np.arange(0, layout.ticks, layout.ticks_per_sample)
        recording.vertex_dropped[:, number] += np.add.reduceat(shed, firsts)


def _is_worth(layout: Layout) -> bool:
    steps = len(layout.vertices) * layout.ticks
    return steps >= _WORTH_COMPILING or _is_compiled(run_group)
