"""What `outpace simulate plan` says: a sentence, a table, JSON, a page with a plot."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Final

import plotly.graph_objects as go
from rich.console import Console

from outpace.cli.simulate_output import (
    count_text,
    html_table,
    percent_text,
    plots_page,
    print_rows,
    seconds_text,
)
from outpace.report.plots import COLOURS, curve, style
from outpace.simulate.plan import HardwarePlan


def _yes(value: bool) -> str:
    return "yes" if value else "no"


_COLUMNS: Final = {
    "instances": ("instances", str),
    "vms": ("VMs", str),
    "each": ("events/s each", count_text),
    "latency": ("mean", seconds_text),
    "percentile": ("percentile", seconds_text),
    "throughput": ("throughput/s", count_text),
    "utilisation": ("busiest VM", percent_text),
    "keeps_up": ("keeps up", _yes),
    "meets_target": ("meets target", _yes),
}


def plan_answer(plan: HardwarePlan) -> str:
    """Return what the plan found, in a sentence or two."""
    target, rate = plan.target, count_text(plan.rate)
    demand = f"{rate} events/s with a p{target.percentile:g} of {seconds_text(target.seconds)}"
    knee = f"one instance keeps up with {count_text(plan.knee)} events/s (the knee)"
    needed = plan.needed
    if needed is not None:
        many = "instance" if needed.instances == 1 else "instances"
        vms = "VM" if needed.vms == 1 else "VMs"
        verb = "needs" if needed.instances == 1 else "need"
        met = f"and meets the target up to {count_text(plan.capacity)}"
        return (
            f"{demand} {verb} {needed.instances} {many} ({needed.vms} {vms}); "
            f"p{target.percentile:g} is then {seconds_text(needed.percentile)}, and the busiest VM "
            f"is used to {percent_text(needed.utilisation)}; {knee} {met}."
        )
    if plan.capacity:
        return f"{demand} would need more instances than there is room for; {knee}."
    best = min(load.percentile for load in plan.curves)
    return (
        f"No number of instances gives {demand}; the least p{target.percentile:g} at any rate is "
        f"{seconds_text(best)}; {knee}."
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
