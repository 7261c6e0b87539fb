"""A study's page: a plot for each figure of the paper, in one HTML file that needs no network.

Measured curves are drawn with lines; where the paper gives a number for the same setting, a hollow
mark of the same colour and shape shows it beside the measured one.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from outpace.report.page import chart, document
from outpace.report.plots import curve as curve_of
from outpace.report.plots import look, style
from outpace.studies.report import AxisPlace, Figure, PlotKind, Row, Study, number_text, paper_text

#: Settings whose greatest is so many times the least are drawn on a logarithmic axis.
_DECADES: Final = 30


def page_of(
    study: Study, rows: Sequence[Row], conditions: str, *, stopped: str | None = None
) -> str:
    """Return the page as HTML; all scripts and styles are in it.

    Parameters
    ----------
    study
        Whose figures are shown.
    rows
        The measurements.
    conditions
        Where and how it was measured, in a sentence.
    stopped
        How far a study came that did not end by itself, in a sentence.
    """
    parts = [
        f"<h1>{html.escape(study.title)}</h1>",
        f"<p>{html.escape(study.source)}</p>",
        f"<p>{html.escape(conditions)}</p>",
    ]
    if stopped is not None:
        parts.append(f'<p class="stopped">{html.escape(stopped)}</p>')
    for number, figure in enumerate(study.figures):
        own = [row for row in rows if row.figure == figure.name]
        parts.append(_section(figure, own, with_script=number == 0))
    return document(study.title, parts)


def plot_of(figure: Figure, rows: Sequence[Row]) -> go.Figure:
    """Return the plot of a figure: its rows that have a place, and the paper's numbers for them."""
    drawn = [row for row in rows if row.at is not None]
    plot = go.Figure()
    for number, curve in enumerate(dict.fromkeys(row.curve for row in drawn)):
        own = [row for row in drawn if row.curve == curve]
        plot.add_trace(_trace(figure.kind, curve, own, number))
        plot.add_traces(_paper_traces(figure.kind, curve, own, number))
    style(plot, figure.axis, f"{figure.quantity} ({figure.unit})").update_layout(barmode="group")
    if figure.log:
        plot.update_yaxes(type="log", rangemode="normal")
    return plot.update_xaxes(**_axis(figure.kind, [row.at for row in drawn]))


def _section(figure: Figure, rows: Sequence[Row], *, with_script: bool) -> str:
    drawn = chart(plot_of(figure, rows), with_script=with_script)
    name = html.escape(figure.name)
    heading = name if name[0].isalpha() else f"Figure {name}"
    return (
        f'<section id="figure-{name}"><h2>{heading}: {html.escape(figure.title)}</h2>'
        f"<p><b>The paper.</b> {html.escape(figure.said)}</p>"
        f"<p><b>Here.</b> {html.escape(figure.here)}</p>"
        f"<div>{drawn}</div>{_table(figure, rows)}</section>"
    )


def _trace(kind: PlotKind, curve: str, rows: Sequence[Row], number: int) -> go.Bar | go.Scatter:
    places, values = [row.at for row in rows], [row.value for row in rows]
    if kind is PlotKind.BARS:
        return go.Bar(x=places, y=values, name=curve, marker={"color": look(number)[0]})
    return curve_of(curve, places, values, number)


def _paper_traces(kind: PlotKind, curve: str, rows: Sequence[Row], number: int) -> list[go.Scatter]:
    """Return the paper's numbers for a curve as marks, where it has any."""
    given = [row for row in rows if isinstance(row.paper, float | int)]
    if not given:
        return []
    colour, _, symbol = look(number)
    places, values = [row.at for row in given], [row.paper for row in given]
    name = f"{curve}: the paper"
    if kind is PlotKind.BARS:
        hollow = {"color": "#ffffff", "line": {"color": colour, "width": 2}}
        return [go.Bar(x=places, y=values, name=name, marker=hollow)]
    marker = {"color": colour, "symbol": f"{symbol}-open", "size": 12, "line": {"width": 2}}
    return [go.Scatter(x=places, y=values, name=name, mode="markers", marker=marker)]


def _axis(kind: PlotKind, places: Sequence[AxisPlace]) -> dict[str, object]:
    """Return how the axis of settings is drawn: numbers where they belong, words in their order.

    Numbers that span more than a decade or two have a logarithmic axis; those that fall in the
    paper fall here.
    """
    numbers = [place for place in places if isinstance(place, int | float)]
    if kind is PlotKind.BARS or not numbers or len(numbers) < len(places):
        return {"type": "category"} if places else {}
    falls = numbers[0] > numbers[-1]
    direction = {"autorange": "reversed"} if falls else {}
    if kind is PlotKind.TIME or min(numbers) <= 0 or max(numbers) < _DECADES * min(numbers):
        return {"type": "linear", **direction}
    return {"type": "log", "dtick": 1, **direction}


def _table(figure: Figure, rows: Sequence[Row]) -> str:
    listed = [row for row in rows if figure.kind is not PlotKind.TIME or row.at is None]
    if not listed:
        return ""
    lines = "".join(
        f"<tr><td>{html.escape(row.setting)}</td>"
        f'<td class="number">{html.escape(paper_text(row.paper))}</td>'
        f'<td class="number">{number_text(row.value)}</td><td>{html.escape(row.unit)}</td></tr>'
        for row in listed
    )
    return (
        "<details><summary>the numbers</summary><div><table>"
        '<tr><th>setting</th><th class="number">paper</th><th class="number">here</th>'
        f"<th>unit</th></tr>{lines}</table></div></details>"
    )
