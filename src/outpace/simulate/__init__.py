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
- `read_scenario`, `parse_scenario`, `write_scenario`, `scenario_text`: scenarios as TOML.
"""

from __future__ import annotations

from outpace.simulate.autoscaling import Autoscaling
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
    "LatencyTarget",
    "LoadBalanced",
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
    "RestartVM",
    "Result",
    "Scenario",
    "SetRate",
    "ShareOutput",
    "SimpleScheduling",
    "StartQuery",
    "StopQuery",
    "Tiers",
    "Uniform",
    "UniformAllocation",
    "WeightedAllocation",
    "WindowedOperator",
    "mean_rates",
    "optimise",
    "parse_catalogue",
    "parse_scenario",
    "place",
    "placed",
    "plan",
    "read_catalogue",
    "read_scenario",
    "scenario_text",
    "simulate",
    "write_scenario",
]
