"""Plots of a comparison: predicted and measured latency and throughput over the rate."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from outpace.report.plots import COLOURS, curve, style
from outpace.simulate.calibration.compare import (
    LATENCY_BOUND,
    THROUGHPUT_BOUND,
    Comparison,
    Reading,
)


def compare_plots(
    rows: Sequence[Comparison], predicted: Sequence[Reading], knee: float
) -> list[tuple[str, go.Figure]]:
    """Return the plots with their titles; measured values have bars of their spread.

    Parameters
    ----------
    rows
        What was measured, beside what was predicted for it.
    predicted
        Predictions for many rates, which make the curve.
    knee
        The rate up to which batches keep up.

    Examples
    --------
    >>> row = Comparison(1000, False, 1.6, 1.5, 0.1, 1000, 1010, 20, 3)
    >>> [title for title, _ in compare_plots([row], [Reading(1000, 1.6, 1000)], 2000)]
    ['Latency', 'Throughput', 'Error']
    """
    rates, places = [row.rate for row in rows], [reading.rate for reading in predicted]
    latency = _plot(
        curve("predicted", places, [1000 * reading.latency for reading in predicted], 0),
        curve("measured", rates, [1000 * row.latency for row in rows], 1),
        [500 * row.latency_spread for row in rows],
        "mean latency (ms)",
    )
    throughput = _plot(
        curve("predicted", places, [reading.throughput for reading in predicted], 0),
        curve("measured", rates, [row.throughput for row in rows], 1),
        [row.throughput_spread / 2 for row in rows],
        "throughput (events/s)",
    )
    plots = [("Latency", latency), ("Throughput", throughput), ("Error", _errors(rows))]
    for _, plot in plots:
        plot.add_vline(
            x=knee,
            line={"color": "#64748b", "dash": "dot", "width": 1},
            annotation_text="knee",
            annotation_position="top left",
        )
    return plots


def _plot(
    predicted: go.Scatter, measured: go.Scatter, half_spread: Sequence[float], unit: str
) -> go.Figure:
    predicted.update(mode="lines")
    measured.update(mode="markers", error_y={"type": "data", "array": list(half_spread)})
    return style(go.Figure([predicted, measured]), "input rate (events/s)", unit)


def _errors(rows: Sequence[Comparison]) -> go.Figure:
    rates = [row.rate for row in rows]
    plot = go.Figure(
        [
            curve("latency", rates, [100 * row.latency_error for row in rows], 0),
            curve("throughput", rates, [100 * row.throughput_error for row in rows], 1),
        ]
    )
    style(plot, "input rate (events/s)", "predicted above measured (%)")
    for bound, colour in ((LATENCY_BOUND, COLOURS[0]), (THROUGHPUT_BOUND, COLOURS[1])):
        for side in (-100 * bound, 100 * bound):
            plot.add_hline(y=side, line={"color": colour, "dash": "dash", "width": 1})
    return plot.update_yaxes(rangemode="normal")
