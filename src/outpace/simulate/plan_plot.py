"""The plot of a plan: latency over rate, with knees, the target and the rate asked for."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from outpace.report.plots import COLOURS, curve, style
from outpace.simulate.plan import Plan


def plan_plot(plan: Plan) -> go.Figure:
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
