"""The scenario that calibration writes: a file for the simulator that says how it was measured.

A stream on Spark is a producer, an operator that works in batches, and a consumer. Its events
are spread over all cores, and what a batch costs by itself is for one. Costs in seconds become
instructions by what the machine is said to do in a second: in a prediction for the same
machine that number has no effect.

The file has a table `[calibration]` with what was measured, so that the same can be measured again;
the simulator leaves it out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from outpace.errors import ScenarioError
from outpace.simulate.calibration.estimates import Costs
from outpace.simulate.cloud import VM
from outpace.simulate.generators import Uniform
from outpace.simulate.model import BatchOperator, Consumer, Edge, Producer, QueryModel
from outpace.simulate.scenario import Scenario
from outpace.simulate.scenario_file import read_scenario
from outpace.simulate.scenario_text import scenario_text, toml_text

#: The vertices of a scenario that calibration writes.
PRODUCER, OPERATOR, CONSUMER = "events", "match", "sink"

#: The key of the table that the simulator leaves out.
TABLE: Final = "calibration"

#: A run lasts so many batches; the first ones do not count.
_BATCHES, _WARM_UP = 45, 5

#: A batch interval has so many ticks.
_TICKS: Final = 100


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What ran: enough to run it again.

    Parameters
    ----------
    workload
        The name of a workload of `outpace bench`; empty where there is a query.
    query, events
        The path of a query file, and of its events; empty where there is a workload.
    trigger
        The time between two batches, in seconds.
    events_max
        The most events of a batch.
    cores
        How many Spark ran on.
    """

    workload: str = ""
    query: str = ""
    events: str = ""
    trigger: float = 2.0
    events_max: int = 1_000_000
    cores: int = 2

    @property
    def name(self) -> str:
        """What the scenario calls the query."""
        return self.workload or Path(self.query).stem


def calibrated(
    measured: MeasuredRun, costs: Costs, selectivity: float, mips: float, rate: float
) -> Scenario:
    """Return the scenario of a query with these costs.

    Parameters
    ----------
    measured
        What ran.
    costs, selectivity
        The estimates.
    mips
        What a core is said to do in a second, in million instructions.
    rate
        The events a second of the scenario's producer.

    Examples
    --------
    >>> from outpace.simulate.calibration.estimates import Estimate
    >>> costs = Costs(0.5, Estimate(3e-6, True), Estimate(2e-6, True), 400_000)
    >>> scenario = calibrated(MeasuredRun("w2k"), costs, 0.01, mips=1000, rate=100_000)
    >>> match = scenario.queries[0].vertices[1]
    >>> match.instructions, match.interval, match.setup, match.parallelism
    (6000.0, 2.0, 500000000.0, 2)
    """
    speed = mips * 1e6
    match = BatchOperator(
        OPERATOR,
        # More digits than were measured would only be in the way of readers.
        _rounded(costs.event * measured.cores * speed),
        measured.trigger,
        _rounded(costs.setup * speed),
        measured.events_max,
        parallelism=measured.cores,
    )
    query = QueryModel(
        measured.name,
        (Producer(PRODUCER, Uniform(round(rate))), match, Consumer(CONSUMER)),
        (Edge(PRODUCER, OPERATOR), Edge(OPERATOR, CONSUMER, _rounded(selectivity))),
    )
    return Scenario(
        (query,),
        (VM("spark", mips, processors=measured.cores),),
        duration=_BATCHES * measured.trigger,
        warm_up=_WARM_UP * measured.trigger,
        tick=measured.trigger / _TICKS,
    )


def calibrated_text(scenario: Scenario, measured: MeasuredRun, notes: list[str]) -> str:
    """Return the file: comments, the scenario, and what ran."""
    comments = "".join(f"# {line}".rstrip() + "\n" for line in notes)
    table = {key: value for key, value in asdict(measured).items() if value != ""}
    return f"{comments}\n{scenario_text(scenario)}\n[{TABLE}]\n{toml_text(table)}"


def read_calibrated(path: Path) -> tuple[Scenario, MeasuredRun]:
    """Read a file that calibration has written."""
    scenario = read_scenario(path)
    table = tomllib.loads(path.read_text(encoding="utf-8")).get(TABLE)
    if not isinstance(table, dict):
        raise ScenarioError(
            f"the scenario has no table [{TABLE}]",
            where=path.name,
            hint="outpace simulate calibrate writes scenarios that have one",
        )
    measured = _measured(table, path)
    batch_operator(scenario, path)
    return scenario, measured


def batch_operator(scenario: Scenario, path: Path) -> BatchOperator:
    """Return the operator of a calibrated scenario."""
    found = scenario.vertices()
    operators = [vertex for vertex in found.values() if isinstance(vertex, BatchOperator)]
    if len(operators) != 1 or CONSUMER not in found or PRODUCER not in found:
        raise ScenarioError(
            "the scenario is not what calibration writes",
            where=path.name,
            detail=f"it has a producer '{PRODUCER}', one batch operator and a consumer "
            f"'{CONSUMER}'",
        )
    return operators[0]


def _measured(table: Mapping[str, Any], path: Path) -> MeasuredRun:
    for field in fields(MeasuredRun):
        value = table.get(field.name, field.default)
        wanted = (int, float) if isinstance(field.default, float) else type(field.default)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise ScenarioError(
                f"'{field.name}' in [{TABLE}] is not a {type(field.default).__name__}",
                where=path.name,
                detail=repr(value),
            )
    unknown = set(table) - {field.name for field in fields(MeasuredRun)}
    if unknown or bool(table.get("workload")) == bool(table.get("query")):
        raise ScenarioError(
            f"[{TABLE}] does not say what ran",
            where=path.name,
            detail=f"unknown: {', '.join(sorted(unknown))}" if unknown else None,
            hint="it names a workload, or a query with its events",
        )
    return MeasuredRun(**table)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
