"""How scenarios are written as TOML: the tables are the values, their keys the values' fields.

A file mirrors `Scenario`: what is a field there is a key here, a value within is a table. Where
there are several kinds of values, such as generators, the table has a `kind`. This module has the
kinds and what each field holds; the reader and the writer follow it.
"""

from __future__ import annotations

from typing import Any

from outpace.simulate.changes import FailVM, Move, RestartVM, SetRate, StartQuery, StopQuery
from outpace.simulate.cloud import VM, Cloud, Datacentre, Host
from outpace.simulate.combination import ConstantOutput, PairedOutput, ShareOutput
from outpace.simulate.generators import Bursty, Increasing, Poisson, RecordedTimes, Uniform
from outpace.simulate.model import (
    BatchOperator,
    Consumer,
    Edge,
    OperatorModel,
    Producer,
    QueryModel,
    WindowedOperator,
)
from outpace.simulate.network import Bandwidth, ConstantDelay, Tiers
from outpace.simulate.placement import FirstFit, LoadBalanced, NetworkAware
from outpace.simulate.placement_choice import Optimised
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
        "move": Move,
        "fail": FailVM,
        "restart": RestartVM,
        "rate": SetRate,
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
