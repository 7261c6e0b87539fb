"""The demo's page: prices with their matches marked, in one HTML file that needs no network."""

from __future__ import annotations

import datetime
import html
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc
from plotly.subplots import make_subplots

from outpace.demo.search import DIP, LARGE, ROTATION, SELL_OFFS, Findings, deepest
from outpace.pattern.notation.print_query import print_match_recognize
from outpace.pattern.query import Query
from outpace.report.page import chart, document

#: Dips marked in the chart, and rows in a table of the page.
MARKED: Final = 24
SHOWN: Final = 8

#: Trades shown before and after the dip that is looked at closely.
CONTEXT: Final = 20

#: Points of a price line; of more, the lowest and highest of each stretch are kept.
MOST_POINTS: Final = 2_000

_LINE: Final = "#94a3b8"
_FALL: Final = "#c2410c"
_RISE: Final = "#0369a1"
_TRADE: Final = "#475569"
_JOINED: Final = "#7c3aed"

#: Name, colour, kind of mark and its shape.
_LEGEND: Final = (
    ("price", _LINE, "lines", "circle"),
    ("dip: fall", _FALL, "lines+markers", "triangle-down"),
    ("dip: rise", _RISE, "lines+markers", "triangle-up"),
    ("large trade", _TRADE, "markers", "circle"),
    ("rotation", _JOINED, "lines+markers", "circle"),
)


def page_of(found: Findings) -> str:
    """Return the page as HTML."""
    parts = [
        "<h1>Patterns in stock trades</h1>",
        f"<p>{_summary(found)} Drag in the chart to look closer, double-click to go back.</p>",
        _section(chart(_chart(found), with_script=True)),
        "<h2>Dips: the price falls, then rises, tick by tick</h2>",
        "<p>The deepest one, with the trades around it:</p>",
        _section(chart(_close_look(found), with_script=False)),
        _query_block(DIP),
        _section(_table(deepest(found.dips, SHOWN))),
        "<h2>Rotations: large trades in three symbols, with anything in between</h2>",
        _query_block(ROTATION),
        _section(_table(found.rotations.slice(0, SHOWN))),
        "<h2>Sell-offs: a large trade and two or more falls right after it, in SQL</h2>",
        f"<pre>{html.escape(SELL_OFFS)}</pre>",
        _section(_table(found.sell_offs)),
        "<h2>How the queries run</h2>",
        _section(found.picture),
        f"<pre>{html.escape(found.plan)}</pre>",
    ]
    return document("Outpace demo", parts)


def _section(content: str) -> str:
    return f"<section><div>{content}</div></section>"


def _summary(found: Findings) -> str:
    marked = min(MARKED, found.dips.num_rows)
    return (
        f"{found.ticks.num_rows:,} generated trades of four invented companies: "
        f"{found.dips.num_rows:,} dips, of which the {marked} deepest are marked; "
        f"{found.rotations.num_rows:,} rotations of large trades. Searched {found.host}."
    )


def cell_text(value: object) -> str:
    """Return a value as a table shows it.

    Examples
    --------
    >>> cell_text(datetime.datetime(2024, 1, 2, 9, 30, 0, 986000)), cell_text(18.5), cell_text(1200)
    ('09:30:00.986', '18.50', '1,200')
    """
    match value:
        case datetime.datetime():
            return value.strftime("%H:%M:%S.%f")[:-3]
        case float():
            return f"{value:,.2f}"
        case int():
            return f"{value:,}"
        case _:
            return str(value)


def _chart(found: Findings) -> go.Figure:
    symbols = sorted(pc.unique(found.ticks["symbol"]).to_pylist())
    figure = make_subplots(
        rows=len(symbols) + 1,
        shared_xaxes=True,
        vertical_spacing=0.02,
        row_heights=[1.0] * len(symbols) + [1.1],
    )
    marked = deepest(found.dips, MARKED).to_pylist()
    for row, symbol in enumerate(symbols, start=1):
        ticks = found.ticks.filter(pc.equal(found.ticks["symbol"], symbol))
        _add_price(figure, row, symbol, ticks)
        for dip in marked:
            if dip["symbol"] == symbol:
                _add_dip(figure, row, ticks, dip)
        figure.update_yaxes(title_text=f"{symbol}, price", row=row, col=1)
    _add_large_trades(figure, len(symbols) + 1, found)
    figure.update_xaxes(title_text="time of day", row=len(symbols) + 1, col=1)
    _add_legend(figure, _LEGEND)
    _style(figure, height=190 * (len(symbols) + 1))
    return figure


def _close_look(found: Findings) -> go.Figure:
    """Draw the deepest dip with a few trades before and after it."""
    figure = make_subplots()
    for dip in deepest(found.dips, 1).to_pylist():
        symbol = dip["symbol"]
        ticks = found.ticks.filter(pc.equal(found.ticks["symbol"], symbol))
        start = pc.index(ticks["ts"], pa.scalar(dip["starts"], ticks["ts"].type)).as_py()
        around = ticks.slice(max(0, start - CONTEXT), 2 * CONTEXT + dip["ticks"])
        _add_price(figure, 1, symbol, around)
        _add_dip(figure, 1, around, dip)
        figure.update_yaxes(title_text=f"{symbol}, price")
        figure.update_xaxes(title_text="time of day")
    _add_legend(figure, _LEGEND[:3])
    _style(figure, height=280)
    return figure


def _style(figure: go.Figure, *, height: int) -> None:
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 60, "r": 16, "t": 40, "b": 36},
        # Below the plot, in pixels from its end: above it lie the buttons.
        legend={"orientation": "h", "y": -72 / (height - 76), "yanchor": "top", "x": 0},
        hovermode="closest",
    )


def _add_price(figure: go.Figure, row: int, symbol: str, ticks: pa.Table) -> None:
    kept = thinned(ticks["price"].to_numpy())
    shown = ticks.take(pa.array(kept))
    line = go.Scatter(
        x=shown["ts"].to_pylist(),
        y=shown["price"].to_pylist(),
        mode="lines",
        line={"color": _LINE, "width": 1},
        name=symbol,
        showlegend=False,
        hovertemplate="%{x|%H:%M:%S} %{y:.2f}<extra>" + symbol + "</extra>",
    )
    figure.add_trace(line, row=row, col=1)


def _add_dip(figure: go.Figure, row: int, ticks: pa.Table, dip: dict[str, object]) -> None:
    text = f"{dip['top']:.2f} to {dip['bottom']:.2f} to {dip['recovered']:.2f}"
    parts = (
        (_FALL, "triangle-down", "starts", "bottom_at"),
        (_RISE, "triangle-up", "bottom_at", "ends"),
    )
    for colour, symbol, begin, end in parts:
        inside = pc.and_(
            pc.greater_equal(ticks["ts"], pa.scalar(dip[begin], ticks["ts"].type)),
            pc.less_equal(ticks["ts"], pa.scalar(dip[end], ticks["ts"].type)),
        )
        stretch = ticks.filter(inside)
        trace = go.Scatter(
            x=stretch["ts"].to_pylist(),
            y=stretch["price"].to_pylist(),
            mode="lines+markers",
            line={"color": colour, "width": 3},
            marker={"size": 7, "symbol": symbol},
            showlegend=False,
            hovertemplate=text + "<extra>dip</extra>",
        )
        figure.add_trace(trace, row=row, col=1)


def _add_large_trades(figure: go.Figure, row: int, found: Findings) -> None:
    large = found.ticks.filter(pc.greater_equal(found.ticks["volume"], LARGE))
    volumes = large["volume"].to_numpy()
    times: list[object] = []
    places: list[object] = []
    for match in found.rotations.to_pylist():
        times += [match["starts"], match["second_at"], match["ends"], None]
        places += [match["first"], match["second"], match["third"], None]
    joined = go.Scatter(
        x=times,
        y=places,
        mode="lines+markers",
        line={"color": _JOINED, "width": 2},
        marker={"size": 9},
        showlegend=False,
        hovertemplate="%{x|%H:%M:%S} %{y}<extra>rotation</extra>",
    )
    trades = go.Scatter(
        x=large["ts"].to_pylist(),
        y=large["symbol"].to_pylist(),
        mode="markers",
        marker={"color": _TRADE, "size": 4 + volumes / 40_000, "opacity": 0.7},
        showlegend=False,
        customdata=volumes,
        hovertemplate="%{x|%H:%M:%S} %{customdata:,} shares<extra>%{y}</extra>",
    )
    figure.add_trace(joined, row=row, col=1)
    figure.add_trace(trades, row=row, col=1)
    order = sorted(pc.unique(found.ticks["symbol"]).to_pylist(), reverse=True)
    figure.update_yaxes(
        title_text="large trades", categoryorder="array", categoryarray=order, row=row, col=1
    )


def _add_legend(figure: go.Figure, entries: Sequence[tuple[str, str, str, str]]) -> None:
    """Add one entry for each colour, whatever was found."""
    for name, colour, mode, symbol in entries:
        marker = {"color": colour, "size": 8, "symbol": symbol}
        style = {"line": {"color": colour, "width": 3}, "marker": marker}
        entry = go.Scatter(x=[None], y=[None], mode=mode, name=name, hoverinfo="skip", **style)
        figure.add_trace(entry, row=1, col=1)


def thinned(prices: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return which points to draw: all, or the lowest and highest of each of many stretches.

    Examples
    --------
    >>> thinned(np.array([3.0, 1.0, 2.0]))
    array([0, 1, 2])
    """
    if len(prices) <= MOST_POINTS:
        return np.arange(len(prices))
    edges = np.linspace(0, len(prices), MOST_POINTS // 2 + 1).astype(np.int64)
    kept = [
        start + extreme(prices[start:end])
        for start, end in pairwise(edges)
        for extreme in (np.argmin, np.argmax)
    ]
    return np.unique(np.array(kept))


def _query_block(query: Query) -> str:
    return f"<pre>{html.escape(print_match_recognize(query))}</pre>"


def _table(rows: pa.Table) -> str:
    numeric = [pa.types.is_floating(f.type) or pa.types.is_integer(f.type) for f in rows.schema]
    marks = [' class="number"' if flag else "" for flag in numeric]
    head = "".join(
        f"<th{mark}>{html.escape(name)}</th>"
        for mark, name in zip(marks, rows.column_names, strict=True)
    )
    lines = [
        "".join(
            f"<td{mark}>{html.escape(cell_text(value))}</td>"
            for mark, value in zip(marks, row.values(), strict=True)
        )
        for row in rows.to_pylist()
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><tr>{head}</tr>{body}</table>"
