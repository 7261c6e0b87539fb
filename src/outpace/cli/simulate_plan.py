"""What `outpace simulate plan` says: a sentence, a table, JSON, a page with a plot."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from rich.console import Console

from outpace.cli.simulate_output import (
    count_text,
    html_table,
    percent_text,
    plots_page,
    print_rows,
    seconds_text,
)
from outpace.simulate.plan import Plan
from outpace.simulate.plan_plot import plan_plot


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


def plan_answer(plan: Plan) -> str:
    """Return what the plan found, in a sentence or two."""
    target, rate = plan.target, count_text(plan.rate)
    asked = f"{rate} events/s with a p{target.percentile:g} of {seconds_text(target.seconds)}"
    knee = f"one instance keeps up with {count_text(plan.knee)} events/s (the knee)"
    needed = plan.needed
    if needed is not None:
        many = "instance" if needed.instances == 1 else "instances"
        vms = "VM" if needed.vms == 1 else "VMs"
        verb = "needs" if needed.instances == 1 else "need"
        met = f"and meets the target up to {count_text(plan.capacity)}"
        return (
            f"{asked} {verb} {needed.instances} {many} ({needed.vms} {vms}); "
            f"p{target.percentile:g} is then {seconds_text(needed.percentile)}, and the busiest VM "
            f"is used to {percent_text(needed.utilisation)}; {knee} {met}."
        )
    if plan.capacity:
        return f"{asked} would need more instances than there is room for; {knee}."
    best = min(load.percentile for load in plan.curves)
    return (
        f"No number of instances gives {asked}; the least p{target.percentile:g} at any rate is "
        f"{seconds_text(best)}; {knee}."
    )


def plan_fields(plan: Plan) -> dict[str, Any]:
    """Return a plan as the JSON object has it."""
    return {**asdict(plan), "answer": plan_answer(plan)}


def print_plan(plan: Plan, console: Console) -> None:
    """Print the table and the answer."""
    print_rows(f"{count_text(plan.rate)} events/s", _headings(plan), _rows(plan), console)
    console.print(plan_answer(plan), highlight=False, markup=False, soft_wrap=True)


def plan_page(title: str, plan: Plan) -> str:
    """Return a page with the answer, the table and the plot; it needs no network."""
    table = html_table(f"{count_text(plan.rate)} events/s", _headings(plan), _rows(plan))
    heading = "Latency by rate and number of instances"
    return plots_page(title, [plan_answer(plan)], [table], [(heading, plan_plot(plan))])


def _headings(plan: Plan) -> dict[str, Any]:
    percentile = f"p{plan.target.percentile:g}"
    return {**_COLUMNS, "percentile": (percentile, _COLUMNS["percentile"][1])}


def _rows(plan: Plan) -> list[dict[str, Any]]:
    return [{**asdict(load), "each": load.rate / load.instances} for load in plan.choices]
