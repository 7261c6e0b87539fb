"""The capacity simulator: what latency and throughput queries will have on which machines.

- `Producer`, `OperatorModel`, `WindowedOperator`, `BatchOperator`, `Consumer`, `Edge`,
  `QueryModel`: queries as graphs;
- `Uniform`, `Increasing`, `Poisson`, `Bursty`, `RecordedTimes`: how producers produce;
- `ConstantOutput`, `ShareOutput`, `PairedOutput`: how many events leave a window;
- `VM`, `Host`, `Datacentre`, `Cloud`: machines; `ConstantDelay`, `Bandwidth`, `Tiers`: networks;
- `SimpleScheduling`, `DynamicScheduling`, `UniformAllocation`, `WeightedAllocation`: who runs next;
- `StartQuery`, `StopQuery`, `MoveVertex`, `FailVM`, `RestartVM`, `RandomFailures`, `SetRate`: what
  happens meanwhile; `Autoscaling`: how many instances there are;
- `Catalogue`, `MachineType`, `read_catalogue`, `parse_catalogue`: machines with their prices;
- `Scenario`: all of it together; `simulate`: run it; `Result`: what came out;
- `EventSet`: what flows through queries;
- `FirstFit`, `LoadBalanced`, `NetworkAware`, `Optimised`: where vertices run; `placed`: a scenario
  with its vertices placed so; `place`: only the placement; `mean_rates`: the rates that it needs;
  `optimise`: search for the fewest VMs that do;
- `plan`: how many instances a rate needs; `LatencyTarget`: what they must meet;
  `plan_machines`: the cheapest machines; `what_if`: a table of rates, machines and instances;
- `outcome_of`: a run in a few numbers; `repeat`: runs with other seeds, with intervals;
- `from_query`: a scenario with the costs of a query, as measured;
- `read_scenario`, `parse_scenario`, `write_scenario`, `scenario_text`: scenarios as TOML.
"""

from __future__ import annotations

from outpace.simulate.autoscaling import Autoscaling
from outpace.simulate.calibration.from_query import from_query
from outpace.simulate.catalogue import Catalogue, MachineType
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
from outpace.simulate.event_set import EventSet
from outpace.simulate.generators import Bursty, Increasing, Poisson, RecordedTimes, Uniform
from outpace.simulate.mix import MachineMix, MachinePlan, TypeCapacity, plan_machines
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
from outpace.simulate.optimise import Optimum, optimise
from outpace.simulate.outcome import Interval, Repeated, RunSummary, outcome_of, repeat
from outpace.simulate.placement import FirstFit, LoadBalanced, NetworkAware, place
from outpace.simulate.placement_choice import Optimised, placed
from outpace.simulate.placement_flow import mean_rates
from outpace.simulate.plan import HardwarePlan, plan
from outpace.simulate.plan_target import LatencyTarget
from outpace.simulate.result import Result
from outpace.simulate.run import simulate
from outpace.simulate.scenario import Scenario
from outpace.simulate.scenario_file import (
    parse_catalogue,
    parse_scenario,
    read_catalogue,
    read_scenario,
)
from outpace.simulate.scenario_text import scenario_text, write_scenario
from outpace.simulate.strategies import (
    DynamicScheduling,
    SimpleScheduling,
    UniformAllocation,
    WeightedAllocation,
)
from outpace.simulate.what_if import WhatIf, what_if

__all__ = [
    "VM",
    "Autoscaling",
    "Bandwidth",
    "BatchOperator",
    "Bursty",
    "Catalogue",
    "Cloud",
    "ConstantDelay",
    "ConstantOutput",
    "Consumer",
    "Datacentre",
    "DynamicScheduling",
    "Edge",
    "EventSet",
    "FailVM",
    "FirstFit",
    "HardwarePlan",
    "Host",
    "Increasing",
    "Interval",
    "LatencyTarget",
    "LoadBalanced",
    "MachineMix",
    "MachinePlan",
    "MachineType",
    "MoveVertex",
    "NetworkAware",
    "OperatorModel",
    "Optimised",
    "Optimum",
    "PairedOutput",
    "Poisson",
    "Producer",
    "QueryModel",
    "RandomFailures",
    "RecordedTimes",
    "Repeated",
    "RestartVM",
    "Result",
    "RunSummary",
    "Scenario",
    "SetRate",
    "ShareOutput",
    "SimpleScheduling",
    "StartQuery",
    "StopQuery",
    "Tiers",
    "TypeCapacity",
    "Uniform",
    "UniformAllocation",
    "WeightedAllocation",
    "WhatIf",
    "WindowedOperator",
    "from_query",
    "mean_rates",
    "optimise",
    "outcome_of",
    "parse_catalogue",
    "parse_scenario",
    "place",
    "placed",
    "plan",
    "plan_machines",
    "read_catalogue",
    "read_scenario",
    "repeat",
    "scenario_text",
    "simulate",
    "what_if",
    "write_scenario",
]
