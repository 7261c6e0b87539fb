"""Scenarios as TOML: how they are written, so that reading them gives an equal value.

A file mirrors `Scenario`: what is a field there is a key here, a value within is a table. Where
there are several kinds of values, such as generators, the table has a `kind`. The reader
(`scenario_file`) follows the kinds and what each field holds, which are said here.

What a value leaves at its default is not written. Own strategies, generators and networks are
Python classes and cannot be written; that is an error.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

from outpace.errors import ScenarioError
from outpace.pattern.argument import a_path, an_instance
from outpace.simulate.autoscaling import Autoscaling
from outpace.simulate.catalogue import MachineType
from outpace.simulate.changes import (
    FailVM,
    MoveVertex,
    RandomFailures,
    RestartVM,
    SetRate,
    StartQuery,
    StopQuery,
)
from outpace.simulate.cloud import VM, Cloud, Datacentre, Host
from outpace.simulate.generators import Bursty, Increasing, Poisson, RecordedTimes, Uniform
from outpace.simulate.model import (
    BatchOperator,
    ConstantOutput,
    Consumer,
    Edge,
    OperatorModel,
    PairedOutput,
    Producer,
    QueryModel,
    ShareOutput,
    WindowedOperator,
)
from outpace.simulate.network import Bandwidth, ConstantDelay, Tiers
from outpace.simulate.placement import FirstFit, LoadBalanced, NetworkAware
from outpace.simulate.placement_choice import Optimised
from outpace.simulate.scenario import Scenario
from outpace.simulate.strategies import (
    DynamicScheduling,
    SimpleScheduling,
    UniformAllocation,
    WeightedAllocation,
)

#: By the name of a type in a field: the kinds of values it may be.
KINDS: dict[str, dict[str, type[Any]]] = {
    "Vertex": {
        "producer": Producer,
        "operator": OperatorModel,
        "window": WindowedOperator,
        "batch": BatchOperator,
        "consumer": Consumer,
    },
    "Generator": {
        "uniform": Uniform,
        "increasing": Increasing,
        "poisson": Poisson,
        "bursty": Bursty,
        "trace": RecordedTimes,
    },
    "Combination": {"constant": ConstantOutput, "share": ShareOutput, "pairs": PairedOutput},
    "Network": {"constant": ConstantDelay, "bandwidth": Bandwidth, "tiers": Tiers},
    "Scheduling": {"simple": SimpleScheduling, "dynamic": DynamicScheduling},
    "Allocation": {"uniform": UniformAllocation, "weighted": WeightedAllocation},
    "Change": {
        "start": StartQuery,
        "stop": StopQuery,
        "move": MoveVertex,
        "fail": FailVM,
        "restart": RestartVM,
        "rate": SetRate,
        "failures": RandomFailures,
    },
}

#: What may stand in the place of a placement: how to make one.
PLACEMENTS: dict[str, type[Any]] = {
    "first-fit": FirstFit,
    "balanced": LoadBalanced,
    "network-aware": NetworkAware,
    "optimised": Optimised,
}

#: By the name of a type in a field: the one value it is.
TABLES: dict[str, type[Any]] = {
    "QueryModel": QueryModel,
    "Edge": Edge,
    "VM": VM,
    "Cloud": Cloud,
    "Datacentre": Datacentre,
    "Host": Host,
    "MachineType": MachineType,
    "Autoscaling": Autoscaling,
}

#: Types that are texts in a file.
TEXTS = ("str", "Sharing", "Overflow")


def kind_name(value: object) -> str | None:
    """Return the name of a value's kind; None if it is not of a kind that can be written.

    Examples
    --------
    >>> kind_name(Uniform(10))
    'uniform'
    """
    for kinds in KINDS.values():
        for name, kind in kinds.items():
            if type(value) is kind:
                return name
    return None


def write_scenario(scenario: Scenario, path: str | Path) -> None:
    """Write a scenario to a file.

    Parameters
    ----------
    scenario
        The scenario.
    path
        The file.
    """
    text = scenario_text(scenario)
    place = a_path(path, "the path of a scenario", error=ScenarioError)
    try:
        Path(place).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"cannot write '{place}'", detail=str(error)) from error


def scenario_text(scenario: Scenario) -> str:
    """Return a scenario as TOML.

    Parameters
    ----------
    scenario
        The scenario.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(10)), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> print(scenario_text(Scenario((query,), (VM("worker", mips=2500),), duration=60)))
    duration = 60
    <BLANKLINE>
    [placement]
    in = "worker"
    out = "worker"
    <BLANKLINE>
    [[vms]]
    id = "worker"
    mips = 2500
    <BLANKLINE>
    [[queries]]
    name = "q"
    vertices = [
        { kind = "producer", id = "in", generator = { kind = "uniform", rate = 10 } },
        { kind = "consumer", id = "out" },
    ]
    edges = [
        { source = "in", target = "out" },
    ]
    <BLANKLINE>
    """
    an_instance(scenario, Scenario, "a scenario", error=ScenarioError)
    tables = ("vms", "clouds", "vertices", "queries", "changes")
    chosen = _sharing(_chosen(scenario))
    settings = {
        name: chosen.pop(name) for name in list(chosen) if name not in (*tables, "placement")
    }
    scaling = settings.pop("scaling", None)
    parts = [toml_text(settings)]
    if scaling is not None:
        parts.append("[scaling]\n" + toml_text(_chosen(scaling)))
    if scenario.placement:
        parts.append("[placement]\n" + toml_text(scenario.placement))
    for name in tables:
        for value in chosen.get(name, ()):
            table = value if isinstance(value, dict) else _table(value)
            parts.append(f"[[{name}]]\n" + toml_text(table))
    return "\n".join(parts)


def _sharing(chosen: dict[str, Any]) -> dict[str, Any]:
    """Let vertices that several queries have stand once, where their queries only name them."""
    queries = chosen["queries"]
    counts = Counter(vertex.id for query in queries for vertex in query.vertices)
    shared = {v.id: v for query in queries for v in query.vertices if counts[v.id] > 1}

    def named(query: QueryModel) -> dict[str, Any]:
        vertices = tuple(v.id if v.id in shared else v for v in query.vertices)
        return {**_chosen(query), "vertices": vertices}

    return {**chosen, "vertices": tuple(shared.values()), "queries": tuple(map(named, queries))}


def toml_text(table: Mapping[str, Any]) -> str:
    """Return the lines of a table.

    Examples
    --------
    >>> print(toml_text({"rate": 10, "unit": "events/s"}), end="")
    rate = 10
    unit = "events/s"
    """
    return "".join(f"{_key(key)} = {_long(value)}\n" for key, value in table.items())


def _long(value: Any) -> str:
    """A value in a line of its own: tables in a list get a line each."""
    if isinstance(value, tuple) and any(map(is_dataclass, value)):
        return "[\n" + "".join(f"    {_short(item)},\n" for item in value) + "]"
    return _short(value)


def _short(value: Any) -> str:
    """A value within a line."""
    if isinstance(value, str):
        # TOML forbids one character that JSON allows.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, tuple):
        return "[" + ", ".join(_short(item) for item in value) + "]"
    return "{ " + ", ".join(f"{_key(k)} = {_short(v)}" for k, v in _table(value).items()) + " }"


def _table(value: Any) -> dict[str, Any]:
    """The keys of a value's table."""
    if type(value) in TABLES.values():
        return _chosen(value)
    kind = kind_name(value)
    if kind is None:
        raise ScenarioError(
            "a scenario with own classes cannot be written", detail=f"{type(value).__name__}"
        )
    return {"kind": kind, **_chosen(value)}


def _chosen(value: Any) -> dict[str, Any]:
    """The fields of a value that are not at their defaults."""
    return {
        field.name: getattr(value, field.name)
        for field in fields(value)
        if getattr(value, field.name) != _default(field)
    }


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return MISSING if field.default_factory is MISSING else field.default_factory()


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _short(name)
