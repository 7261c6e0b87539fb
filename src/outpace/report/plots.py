"""Plots of a simulation over time: latency, throughput, queues, utilisation.

Each plot shows at most `CURVES` curves, those with the greatest values; its title says how many
there are in all. The plots are Plotly figures.
"""

from __future__ import annotations

import html
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
_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash")
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "star", "pentagon")

#: Below the plot: above it, the buttons of the plot would lie over the entries.
LEGEND: Final = {"orientation": "h", "y": -0.2, "yanchor": "top", "x": 0}


def plots_over_time(result: Result) -> list[tuple[str, go.Figure]]:
    """Return the plots of a result, each with its title.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Scenario, Uniform
    >>> from outpace.simulate import simulate
    >>> query = QueryModel("q", (Producer("in", Uniform(10)), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> result = simulate(Scenario((query,), (VM("worker", mips=100),), duration=60))
    >>> [title for title, _ in plots_over_time(result)]
    ['Latency by consumer', 'Throughput by consumer', 'Queue by vertex', 'Drops by vertex',
     'Utilisation by vertex', 'Utilisation by VM']
    """
    consumers, vertices = result.consumer_history(), result.vertex_history()
    warm_up = result.layout.scenario.warm_up
    return [
        _plot(title, history, column, quantity, scale, warm_up)
        for title, history, column, quantity, scale in (
            ("Latency", consumers, "latency", "latency (ms)", 1000.0),
            ("Throughput", consumers, "throughput", "throughput (events/s)", 1.0),
            ("Queue", vertices, "queue", "queue (events)", 1.0),
            ("Drops", vertices, "dropped", "drops (events)", 1.0),
            ("Utilisation", vertices, "utilisation", "utilisation (%)", 100.0),
            ("Utilisation", result.vm_history(), "utilisation", "utilisation (%)", 100.0),
        )
    ]


def curve(
    name: str, places: Sequence[float | str | None], values: Sequence[float], number: int
) -> go.Scatter:
    """Return a curve, with a colour, a dash and a symbol that tell it from others of its plot."""
    colour, dash, symbol = look(number)
    return go.Scatter(
        x=list(places),
        y=[None if math.isnan(value) else value for value in values],
        name=html.escape(name, quote=False),  # plotly takes a name for markup
        mode="lines+markers" if len(places) < 100 else "lines",
        connectgaps=True,
        line={"color": colour, "dash": dash, "width": 2},
        marker={"color": colour, "symbol": symbol, "size": 7},
    )


def look(number: int) -> tuple[str, str, str]:
    """Return colour, dash and symbol of a curve; the first thirty curves of a plot all differ.

    Examples
    --------
    >>> look(0), look(6)
    (('#0369a1', 'solid', 'circle'), ('#0369a1', 'dash', 'pentagon'))
    """
    colour, dash, symbol = (kinds[number % len(kinds)] for kinds in (COLOURS, _DASHES, _SYMBOLS))
    return colour, dash, symbol


def style(plot: go.Figure, axis: str, quantity: str) -> go.Figure:
    """Give a plot the look of all plots; both axes are named by their quantity and its unit."""
    return plot.update_layout(
        template="plotly_white",
        height=400,
        margin={"l": 64, "r": 16, "t": 32, "b": 48},
        legend=LEGEND,
        showlegend=True,
        xaxis_title=axis,
        yaxis_title=quantity,
        yaxis_rangemode="tozero",
    )


def _plot(
    title: str, history: pa.Table, column: str, quantity: str, scale: float, warm_up: float
) -> tuple[str, go.Figure]:
    kind = history.column_names[1]
    label = "VM" if kind == "vm" else kind
    names = list(dict.fromkeys(history[kind].to_pylist()))
    values = scale * history[column].to_numpy().reshape(-1, len(names))
    times = history["time"].to_numpy()[:: max(1, len(names))]
    greatest = np.where(np.isnan(values), -1.0, values).max(axis=0, initial=-1.0)
    shown = sorted(np.argsort(-greatest, kind="stable")[:CURVES])
    plot = go.Figure([curve(names[n], times, values[:, n], i) for i, n in enumerate(shown)])
    style(plot, "time (s)", quantity)
    if warm_up:
        plot.add_vrect(x0=0, x1=warm_up, fillcolor="#94a3b8", opacity=0.15, line_width=0)
        plot.add_annotation(x=0, y=1, yref="paper", text="warm-up", showarrow=False, xanchor="left")
    some = f", {CURVES} of {len(names):,}" if len(names) > CURVES else ""
    return f"{title} by {label}{some}", plot
