"""What `outpace simulate plan --catalogue` shows: the machines that a rate needs, and prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import plotly.graph_objects as go
from rich.console import Console

from outpace.cli.simulate_output import (
    OutputColumn,
    count_text,
    html_table,
    percent_text,
    plots_page,
    price_text,
    print_rows,
    seconds_text,
)
from outpace.report.plots import curve, style
from outpace.simulate.mix import MachineMix, MachinePlan

_TYPES: Final[Mapping[str, OutputColumn]] = {
    "machine": ("machine", str),
    "price": ("an hour", price_text),
    "capacity": ("events/s", count_text),
    "dear": ("a million events", price_text),
    "instances": ("alone", count_text),
    "reason": ("", str),
}

_MIXES: Final[Mapping[str, OutputColumn]] = {
    "mix": ("machines", str),
    "price": ("an hour", price_text),
    "percentile": ("percentile", seconds_text),
    "utilisation": ("busiest VM", percent_text),
    "availability": ("available", lambda part: f"{100 * part:.8g} %"),
    "chosen": ("", str),
}


def machines_answer(plan: MachinePlan) -> str:
    """Return what the plan found, in a sentence or two."""
    target, best = plan.target, plan.best
    demand = (
        f"{count_text(plan.rate)} events/s with a p{target.percentile:g} of "
        f"{seconds_text(target.seconds)}"
    )
    if plan.availability is not None:
        demand += f" in {100 * plan.availability:.6g} % of the time"
    if best is None:
        return f"No machines of the catalogue give {demand}."
    return (
        f"{demand}: {mix_text(best.machines)}, for {_hourly_text(best.price, plan)}. "
        f"p{target.percentile:g} is then {seconds_text(best.percentile)}, the busiest VM is used "
        f"to {percent_text(best.utilisation)}, and the machines that work are enough in "
        f"{100 * best.availability:.8g} % of the time."
    )


def mix_text(mix: Mapping[str, int]) -> str:
    """Return numbers of machines in words.

    Examples
    --------
    >>> mix_text({"small": 2, "large": 1})
    '2 × small and 1 × large'
    """
    return " and ".join(f"{count:,} × {name}" for name, count in mix.items())


def _hourly_text(price: float, plan: MachinePlan) -> str:
    """Return the price of an hour with its currency."""
    return f"{price_text(price)} {plan.currency}".rstrip() + " an hour"


def machines_fields(plan: MachinePlan) -> dict[str, Any]:
    """Return a plan as the JSON object has it."""
    prices = [
        {"rate": rate, "price": price, "instances": dict(mix)} for rate, price, mix in plan.prices
    ]
    return {**asdict(plan), "prices": prices, "answer": machines_answer(plan)}


def print_machines(plan: MachinePlan, console: Console) -> None:
    """Print the tables and the answer."""
    for title, columns, rows in _tables(plan):
        print_rows(title, columns, rows, console)
    console.print(machines_answer(plan), highlight=False, markup=False, soft_wrap=True)


def machines_page(title: str, plan: MachinePlan) -> str:
    """Return a page with the answer, the tables and the plots; it needs no network."""
    tables = [html_table(*table) for table in _tables(plan)]
    plots = [("Frontier: price and latency", _frontier_plot(plan))] if plan.frontier else []
    if plan.prices:
        plots.append(("Price by rate", _price_plot(plan)))
    return plots_page(title, [machines_answer(plan)], tables, plots)


def _tables(
    plan: MachinePlan,
) -> list[tuple[str, Mapping[str, OutputColumn], list[dict[str, Any]]]]:
    percentile = (f"p{plan.target.percentile:g}", seconds_text)
    priced = f"prices in {plan.currency}" if plan.currency else "prices"
    types = [
        {**asdict(one), "dear": 1e6 * one.price / 3600 / one.capacity if one.capacity else None}
        for one in plan.types
    ]
    mixes = [
        {**asdict(mix), "mix": mix_text(mix.machines), "chosen": _chosen(mix, plan)}
        for mix in plan.frontier
    ]
    return [
        (f"an instance on each type, {priced}", _TYPES, types),
        (f"the frontier, {priced}", {**_MIXES, "percentile": percentile}, mixes),
    ]


def _chosen(mix: MachineMix, plan: MachinePlan) -> str:
    if mix == plan.best:
        return "the cheapest"
    return "" if mix.meets_target else "available too little"


def _frontier_plot(plan: MachinePlan) -> go.Figure:
    plot = go.Figure()
    for number, (name, met) in enumerate((("meets all", True), ("available too little", False))):
        own = [mix for mix in plan.frontier if mix.meets_target is met]
        if not own:
            continue
        values = [1000 * mix.percentile for mix in own]
        trace = curve(name, [mix.price for mix in own], values, number)
        trace.update(
            mode="markers",
            text=[mix_text(mix.machines) for mix in own],
            hovertemplate="%{text}<br>%{x:.4g}, %{y:.4g} ms",
        )
        plot.add_trace(trace)
    if plan.best is not None:
        plot.add_annotation(
            x=plan.best.price,
            y=1000 * plan.best.percentile,
            text=mix_text(plan.best.machines),
            showarrow=True,
        )
    style(plot, _hourly(plan), f"p{plan.target.percentile:g} latency (ms)")
    return plot.update_xaxes(rangemode="tozero")


def _price_plot(plan: MachinePlan) -> go.Figure:
    rates, prices, mixes = zip(*plan.prices, strict=True)
    trace = curve("the cheapest machines", rates, prices, 0)
    trace.update(text=[mix_text(mix) for mix in mixes], hovertemplate="%{text}<br>%{x}, %{y:.4g}")
    plot = go.Figure([trace])
    plot.add_vline(x=plan.rate, line={"color": "#64748b", "dash": "dash", "width": 1})
    return style(plot, "input rate (events/s)", _hourly(plan))


def _hourly(plan: MachinePlan) -> str:
    return f"price of an hour ({plan.currency})" if plan.currency else "price of an hour"
