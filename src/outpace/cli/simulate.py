"""`outpace simulate`: what latency and throughput queries will have on which machines.

A scenario is a TOML file; what is wrong with it is shown with its line, and exit code 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import plotly.graph_objects as go
import typer
from rich.console import Console

from outpace.cli.simulate_calibrate import calibrate
from outpace.cli.simulate_machines import machines_fields, machines_page, print_machines
from outpace.cli.simulate_output import (
    AsJson,
    EngineChoice,
    EngineName,
    OutputColumn,
    Page,
    ScenarioFile,
    check_page,
    count_text,
    html_table,
    json_text,
    percent_text,
    plots_page,
    print_result,
    print_rows,
    progress,
    progress_of_whole,
    result_page,
    result_tables,
    seconds_text,
    terminal,
    yes_text,
)
from outpace.cli.simulate_validate import validate
from outpace.cli.simulate_what_if import (
    OUTCOMES,
    CatalogueFile,
    Seeds,
    catalogue_of,
    compare,
    interval_text,
    what_if_command,
)
from outpace.errors import ScenarioError
from outpace.pattern.duration import parse_duration
from outpace.report.plots import COLOURS, curve, style
from outpace.simulate import FirstFit, LoadBalanced, NetworkAware, Optimised, read_scenario
from outpace.simulate import simulate as simulate_scenario
from outpace.simulate.mix import plan_machines
from outpace.simulate.outcome import Repeated, repeat
from outpace.simulate.placement_choice import PlacementRule
from outpace.simulate.plan import HardwarePlan
from outpace.simulate.plan import plan as plan_instances
from outpace.simulate.plan_target import LatencyTarget
from outpace.simulate.scenario import Scenario


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
    seeds: Seeds = 1,
) -> None:
    """Simulate a scenario and show latency, throughput, utilisation, queues and drops."""
    choice = placement.choice(p99)
    with progress(f"reading {scenario.name}"):
        read = read_scenario(scenario, choice)
    check_page(page)
    with progress_of_whole(f"simulating {read.duration:g} s") as on_progress:
        result = simulate_scenario(read, engine.engine, on_progress)
    repeats: list[dict[str, Any]] = []
    if seeds > 1:
        with progress("simulating with other seeds") as on_simulation:
            found = repeat(read, seeds, engine=engine.engine, on_simulation=on_simulation)
        repeats = _interval_rows(found)
    if page is not None:
        tables = [html_table(_repeats_title(seeds), _REPEATS, _texts(repeats))] if repeats else []
        page.write_text(result_page(scenario.name, result, tables), encoding="utf-8")
    if as_json:
        printed = {name: table.to_pylist() for name, table in result_tables(result).items()}
        if repeats:
            printed["seeds"] = repeats
        typer.echo(json_text(printed))
        return
    print_result(result, terminal(), rows)
    if repeats:
        print_rows(_repeats_title(seeds), _REPEATS, _texts(repeats), terminal())
    if page is not None:
        typer.echo(f"The page: {page}")


@simulations.command()
def plan(
    scenario: ScenarioFile,
    rate: Annotated[float, typer.Option(help="Events a second of all producers together.")],
    p99: Annotated[str, typer.Option(help='The latency that 99 % may not exceed: "500 ms".')],
    catalogue: CatalogueFile = None,
    availability: Annotated[
        float | None,
        typer.Option(help="Percent of the time in which machines that work must be enough: 99.9."),
    ] = None,
    engine: EngineName = EngineChoice.AUTO,
    as_json: AsJson = False,
    page: Page = None,
) -> None:
    """Find out how many instances of a scenario a rate needs, and where its knee is.

    Exit code 1 means that the plan found no number of instances that meets the target.
    """
    target = LatencyTarget(_seconds(p99))
    read = read_scenario(scenario)
    check_page(page)
    if catalogue is not None or availability is not None:
        _plan_machines(scenario, read, rate, target, catalogue, availability, engine, as_json, page)
        return
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
    else:
        print_plan(found, terminal())
        if page is not None:
            typer.echo(f"The page: {page}")
    if found.instances is None:
        raise typer.Exit(1)


def _plan_machines(
    path: Path,
    scenario: Scenario,
    rate: float,
    target: LatencyTarget,
    catalogue: Path | None,
    availability: float | None,
    engine: EngineChoice,
    as_json: bool,
    page: Path | None,
) -> None:
    """Find the cheapest machines; exit code 1 if none will do."""
    types = catalogue_of(path, catalogue)
    with progress("simulating types of machines") as on_simulation:
        found = plan_machines(
            scenario,
            rate,
            target,
            types,
            availability=None if availability is None else availability / 100,
            engine=engine.engine,
            on_simulation=on_simulation,
        )
    if page is not None:
        page.write_text(machines_page(path.name, found), encoding="utf-8")
    if as_json:
        typer.echo(json_text(machines_fields(found)))
    else:
        print_machines(found, terminal())
        if page is not None:
            typer.echo(f"The page: {page}")
    if found.best is None:
        raise typer.Exit(1)


_REPEATS: Final[Mapping[str, OutputColumn]] = {"quantity": ("", str), "mean": ("mean", str)}


def _repeats_title(seeds: int) -> str:
    return f"means of {seeds} runs with other seeds, and 95 % intervals"


def _interval_rows(found: Repeated) -> list[dict[str, Any]]:
    return [{"quantity": name, **asdict(found.interval(name))} for name in OUTCOMES]


def _texts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [
        {"quantity": heading, "mean": interval_text(row, shown)}
        for row in rows
        for heading, shown in [OUTCOMES[row["quantity"]]]
    ]


def _seconds(p99: str) -> float:
    return parse_duration(p99, where="--p99").total_seconds()


simulations.command("what-if")(what_if_command)
simulations.command()(compare)
simulations.command()(calibrate)
simulations.command()(validate)


_COLUMNS: Final = {
    "instances": ("instances", str),
    "vms": ("VMs", str),
    "processors": ("cores", str),
    "each": ("events/s each", count_text),
    "latency": ("mean", seconds_text),
    "percentile": ("percentile", seconds_text),
    "throughput": ("produced/s through", count_text),
    "utilisation": ("busiest VM", percent_text),
    "keeps_up": ("keeps up", yes_text),
    "meets_target": ("meets target", yes_text),
}


def plan_answer(plan: HardwarePlan) -> str:
    """Return what the plan found, in a sentence or two."""
    target, rate = plan.target, count_text(plan.rate)
    demand = f"{rate} events/s with a p{target.percentile:g} of {seconds_text(target.seconds)}"
    if plan.changed:
        demand = f"With {' and '.join(plan.changed)}, {demand}"
    knee = f"one instance keeps up with {count_text(plan.knee)} events/s (the knee)"
    needed = plan.needed
    if needed is not None:
        many = "instance" if needed.instances == 1 else "instances"
        vms = "VM" if needed.vms == 1 else "VMs"
        cores = "core" if needed.processors == 1 else "cores"
        verb = "needs" if needed.instances == 1 else "need"
        met = f"and meets the target up to {count_text(plan.capacity)}"
        return (
            f"{demand} {verb} {needed.instances} {many} ({needed.vms} {vms}, "
            f"{needed.processors} {cores}); "
            f"p{target.percentile:g} is then {seconds_text(needed.percentile)}, and the busiest VM "
            f"is used to {percent_text(needed.utilisation)}; {knee} {met}. "
            f"What binds: {plan.binds}."
        )
    if plan.capacity:
        return f"{demand} would need more instances than there is room for; {knee}."
    best = min(load.percentile for load in plan.curves)
    return (
        f"No number of instances gives {demand}; the least p{target.percentile:g} at any rate is "
        f"{seconds_text(best)}; {knee}. What binds: {plan.binds}."
    )


def plan_fields(plan: HardwarePlan) -> dict[str, Any]:
    """Return a plan as the JSON object has it."""
    return {**asdict(plan), "answer": plan_answer(plan)}


def print_plan(plan: HardwarePlan, console: Console) -> None:
    """Print the table and the answer."""
    print_rows(f"{count_text(plan.rate)} events/s", _headings(plan), _rows(plan), console)
    console.print(plan_answer(plan), highlight=False, markup=False, soft_wrap=True)


def plan_page(title: str, plan: HardwarePlan) -> str:
    """Return a page with the answer, the table and the plot; it needs no network."""
    table = html_table(f"{count_text(plan.rate)} events/s", _headings(plan), _rows(plan))
    heading = "Latency by rate and number of instances"
    return plots_page(title, [plan_answer(plan)], [table], [(heading, plan_plot(plan))])


def _headings(plan: HardwarePlan) -> dict[str, Any]:
    percentile = f"p{plan.target.percentile:g}"
    return {**_COLUMNS, "percentile": (percentile, _COLUMNS["percentile"][1])}


def _rows(plan: HardwarePlan) -> list[dict[str, Any]]:
    return [{**asdict(load), "each": load.rate / load.instances} for load in plan.choices]


def plan_plot(plan: HardwarePlan) -> go.Figure:
    """Return the plot of a plan; numbers of instances are curves, each with its knee."""
    plot = go.Figure()
    for number, count in enumerate(dict.fromkeys(load.instances for load in plan.curves)):
        own = [load for load in plan.curves if load.instances == count]
        values = [1000 * load.percentile for load in own]
        shown = [math.nan if math.isinf(value) else value for value in values]
        name = f"{count} instance" + ("s" if count > 1 else "")
        plot.add_trace(curve(name, [load.rate for load in own], shown, number))
        plot.add_vline(
            x=max((load.rate for load in own if load.keeps_up), default=0.0),
            line={"color": COLOURS[number % len(COLOURS)], "dash": "dot", "width": 1},
            annotation_text=f"knee of {count}",
            annotation_position="top left",
        )
    target = 1000 * plan.target.seconds
    plot.add_hline(y=target, line={"color": "#64748b", "dash": "dash", "width": 1})
    # On a logarithmic axis Plotly takes lines at values, but texts at their logarithms.
    plot.add_annotation(
        x=0,
        xref="paper",
        y=math.log10(target),
        text="target",
        showarrow=False,
        xanchor="left",
        yanchor="bottom",
    )
    plot.add_vline(
        x=plan.rate,
        line={"color": "#64748b", "dash": "dash", "width": 1},
        annotation_text="asked for",
        annotation_position="bottom right",
    )
    quantity = f"p{plan.target.percentile:g} latency (ms)"
    style(plot, "input rate of all instances (events/s)", quantity)
    # The latency beyond the knee is larger by orders of magnitude.
    return plot.update_yaxes(type="log", rangemode="normal")
