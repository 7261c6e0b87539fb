"""Simulate a scenario, with the engine that is asked for."""

from __future__ import annotations

from typing import Literal

from outpace.errors import ScenarioError
from outpace.simulate.layout import lay_out
from outpace.simulate.result import Result
from outpace.simulate.scenario import Scenario
from outpace.simulate.twin import run_twin

Engine = Literal["twin"]

_ENGINES = {"twin": run_twin}


def simulate(scenario: Scenario, engine: Engine = "twin") -> Result:
    """Simulate a scenario from its begin to its end.

    Parameters
    ----------
    scenario
        What to simulate.
    engine
        "twin" computes in plain Python objects.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, Query, Uniform
    >>> query = Query("q", (Producer("in", Uniform(10)), Consumer("out")), (Edge("in", "out"),))
    >>> scenario = Scenario((query,), (VM("worker", mips=2500),), duration=60, warm_up=10)
    >>> round(simulate(scenario).throughput("out"), 9)
    10.0
    """
    if engine not in _ENGINES:
        raise ScenarioError(
            f"unknown engine {engine!r}", hint=f"known engines: {', '.join(_ENGINES)}"
        )
    return Result(lay_out(scenario), _ENGINES[engine](scenario))
