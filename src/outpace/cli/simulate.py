"""`outpace simulate`: what latency and throughput queries will have on which machines.

A scenario is a TOML file; what is wrong with it is shown with its line, and exit code 2.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from outpace.cli.simulate_calibrate import calibrate
from outpace.cli.simulate_output import (
    json_text,
    print_result,
    progress,
    progress_of_whole,
    result_page,
    result_tables,
    terminal,
)
from outpace.cli.simulate_plan import plan_fields, plan_page, print_plan
from outpace.cli.simulate_validate import validate
from outpace.errors import ScenarioError
from outpace.pattern.duration import parse_duration
from outpace.simulate import FirstFit, LoadBalanced, NetworkAware, Optimised, read_scenario
from outpace.simulate import simulate as simulate_scenario
from outpace.simulate.placement_choice import PlacementRule
from outpace.simulate.plan import plan as plan_instances
from outpace.simulate.plan_target import LatencyTarget
from outpace.simulate.run import Engine


class EngineChoice(StrEnum):
    """What simulates."""

    AUTO = "auto"
    FAST = "fast"
    TWIN = "twin"

    @property
    def engine(self) -> Engine | None:
        """The engine as `simulate` takes it."""
        match self:
            case EngineChoice.AUTO:
                return None
            case EngineChoice.FAST:
                return "fast"
            case EngineChoice.TWIN:
                return "twin"


class PlacementChoice(StrEnum):
    """Where vertices run."""

    AS_WRITTEN = "as-written"
    FIRST_FIT = "first-fit"
    BALANCED = "balanced"
    NETWORK_AWARE = "network-aware"
    OPTIMISED = "optimised"

    def choice(self, p99: str | None) -> PlacementRule | None:
        """Return how to place the vertices; None if the file says it."""
        if (p99 is not None) != (self is PlacementChoice.OPTIMISED):
            raise ScenarioError(
                "--placement optimised needs a latency to meet"
                if p99 is None
                else "--p99 says what --placement optimised is to meet",
                hint='write for example: --placement optimised --p99 "500 ms"',
            )
        match self:
            case PlacementChoice.AS_WRITTEN:
                return None
            case PlacementChoice.FIRST_FIT:
                return FirstFit()
            case PlacementChoice.BALANCED:
                return LoadBalanced()
            case PlacementChoice.NETWORK_AWARE:
                return NetworkAware()
            case PlacementChoice.OPTIMISED:
                return Optimised(_seconds(p99 or ""))


simulations = typer.Typer(no_args_is_help=True, help="Simulate queries on machines.")

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A TOML file.")]
EngineName = Annotated[
    EngineChoice, typer.Option("--engine", help="What simulates; auto takes what fits best.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object.")]
Page = Annotated[Path | None, typer.Option("--html", help="A file for a page with plots.")]


@simulations.callback()
def group() -> None:
    """Simulate queries on machines."""


@simulations.command()
def run(
    scenario: ScenarioFile,
    engine: EngineName = EngineChoice.AUTO,
    as_json: AsJson = False,
    page: Page = None,
    rows: Annotated[int, typer.Option(min=1, max=10**6, help="The most rows of a table.")] = 20,
    placement: Annotated[
        PlacementChoice, typer.Option(help="Where vertices run; as-written is as the file says.")
    ] = PlacementChoice.AS_WRITTEN,
    p99: Annotated[
        str | None, typer.Option(help='What --placement optimised is to meet: "500 ms".')
    ] = None,
) -> None:
    """Simulate a scenario and show latency, throughput, utilisation, queues and drops."""
    choice = placement.choice(p99)
    with progress(f"reading {scenario.name}"):
        read = read_scenario(scenario, choice)
    _check_page(page)
    with progress_of_whole(f"simulating {read.duration:g} s") as on_progress:
        result = simulate_scenario(read, engine.engine, on_progress)
    if page is not None:
        page.write_text(result_page(scenario.name, result), encoding="utf-8")
    if as_json:
        tables = {name: table.to_pylist() for name, table in result_tables(result).items()}
        typer.echo(json_text(tables))
        return
    print_result(result, terminal(), rows)
    if page is not None:
        typer.echo(f"The page: {page}")


@simulations.command()
def plan(
    scenario: ScenarioFile,
    rate: Annotated[float, typer.Option(help="Events a second of all producers together.")],
    p99: Annotated[str, typer.Option(help='The latency that 99 % may not exceed: "500 ms".')],
    engine: EngineName = EngineChoice.AUTO,
    as_json: AsJson = False,
    page: Page = None,
) -> None:
    """Find out how many instances of a scenario a rate needs, and where its knee is."""
    target = LatencyTarget(_seconds(p99))
    read = read_scenario(scenario)
    _check_page(page)
    with progress("simulating rates and numbers of instances") as on_simulation:
        found = plan_instances(
            read,
            rate,
            target,
            engine=engine.engine,
            on_simulation=on_simulation,
        )
    if page is not None:
        page.write_text(plan_page(scenario.name, found), encoding="utf-8")
    if as_json:
        typer.echo(json_text(plan_fields(found)))
        return
    print_plan(found, terminal())
    if page is not None:
        typer.echo(f"The page: {page}")


def _seconds(p99: str) -> float:
    return parse_duration(p99, where="--p99").total_seconds()


simulations.command()(calibrate)
simulations.command()(validate)


def _check_page(page: Path | None) -> None:
    """Fail, before anything is simulated, if the page cannot be written; leave nothing behind."""
    if page is None:
        return
    if page.is_dir() or not os.access(page if page.exists() else page.parent, os.W_OK):
        raise ScenarioError(
            f"the page {str(page)!r} cannot be written", hint="name a file in a folder that exists"
        )
