"""Plots of a simulation over time: latency, throughput, queues, utilisation.

Each plot shows at most `CURVES` curves, those with the greatest values; its title says how many
there are in all. The plots are Plotly figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa

from outpace.simulate.result import Result

#: The most curves of a plot.
CURVES: Final = 12

COLOURS: Final = ("#0369a1", "#c2410c", "#7c3aed", "#15803d", "#b45309", "#be185d")
_DASHES: Final = ("solid", "dash")


def plots_over_time(result: Result) -> list[tuple[str, go.Figure]]:
    """Return the plots of a result, each with its title.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, Query, Scenario, Uniform
    >>> from outpace.simulate import simulate
    >>> query = Query("q", (Producer("in", Uniform(10)), Consumer("out")), (Edge("in", "out"),))
    >>> result = simulate(Scenario((query,), (VM("worker", mips=100),), duration=60))
    >>> [title for title, _ in plots_over_time(result)]
    ['Latency by consumer', 'Throughput by consumer', 'Queue by vertex', 'Drops by vertex',
     'Utilisation by vertex', 'Utilisation by VM']
    """
    consumers, vertices = result.consumer_history(), result.vertex_history()
    warm_up = result.layout.scenario.warm_up
    return [
        _plot(title, history, column, unit, scale, warm_up)
        for title, history, column, unit, scale in (
            ("Latency", consumers, "latency", "ms", 1000.0),
            ("Throughput", consumers, "throughput", "events/s", 1.0),
            ("Queue", vertices, "queue", "events", 1.0),
            ("Drops", vertices, "dropped", "events", 1.0),
            ("Utilisation", vertices, "utilisation", "%", 100.0),
            ("Utilisation", result.vm_history(), "utilisation", "%", 100.0),
        )
    ]


def curve(name: str, places: Sequence[float], values: Sequence[float], number: int) -> go.Scatter:
    """Return a curve, with a colour and a dash that tell it from others of its plot."""
    return go.Scatter(
        x=list(places),
        y=[None if math.isnan(value) else value for value in values],
        name=name,
        mode="lines+markers" if len(places) < 100 else "lines",
        connectgaps=True,
        line={
            "color": COLOURS[number % len(COLOURS)],
            "dash": _DASHES[number // len(COLOURS) % len(_DASHES)],
            "width": 2,
        },
    )


def style(plot: go.Figure, axis: str, unit: str) -> go.Figure:
    """Give a plot the look of all plots of the simulator."""
    return plot.update_layout(
        template="plotly_white",
        height=360,
        margin={"l": 70, "r": 16, "t": 24, "b": 48},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        showlegend=True,
        xaxis_title=axis,
        yaxis_title=unit,
        yaxis_rangemode="tozero",
    )


def _plot(
    title: str, history: pa.Table, column: str, unit: str, scale: float, warm_up: float
) -> tuple[str, go.Figure]:
    kind = history.column_names[1]
    label = "VM" if kind == "vm" else kind
    names = list(dict.fromkeys(history[kind].to_pylist()))
    values = scale * history[column].to_numpy().reshape(-1, len(names))
    times = history["time"].to_numpy()[:: max(1, len(names))]
    greatest = np.where(np.isnan(values), -1.0, values).max(axis=0, initial=-1.0)
    shown = sorted(np.argsort(-greatest, kind="stable")[:CURVES])
    plot = go.Figure([curve(names[n], times, values[:, n], i) for i, n in enumerate(shown)])
    style(plot, "time (s)", unit)
    if warm_up:
        plot.add_vrect(x0=0, x1=warm_up, fillcolor="#94a3b8", opacity=0.15, line_width=0)
        plot.add_annotation(x=0, y=1, yref="paper", text="warm-up", showarrow=False, xanchor="left")
    some = f", {CURVES} of {len(names):,}" if len(names) > CURVES else ""
    return f"{title} by {label}{some}", plot
