"""Pages: one HTML file with all scripts and styles in it, which needs no network."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final

import plotly.graph_objects as go

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; color: #0f172a; background: #f8fafc; margin: 0; }
main { max-width: 1100px; margin: 0 auto; padding: 24px; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 36px 0 8px; }
p { margin: 0 0 10px; max-width: 80ch; }
section > div, pre { background: #fff; border: 1px solid #e2e8f0; border-radius: 8px;
                     padding: 12px; margin: 0 0 12px; overflow-x: auto; }
pre { font: 13px/1.5 ui-monospace, monospace; }
table { border-collapse: collapse; font-size: 14px; width: 100%; }
th, td { padding: 4px 10px; border-bottom: 1px solid #e2e8f0; text-align: left; }
th { color: #475569; font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
summary { cursor: pointer; color: #475569; }
details > div { overflow-x: auto; }
.stopped { border-left: 4px solid #c2410c; padding-left: 10px; font-weight: 600; }
@media (max-width: 600px) { main { padding: 12px; } section > div { padding: 4px; } }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """Return an HTML page of parts that are HTML themselves."""
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def chart(plot: go.Figure, *, with_script: bool) -> str:
    """Return a plot as HTML; the first one of a page brings the script for all."""
    config = {"displaylogo": False, "responsive": True}
    drawn: str = plot.to_html(full_html=False, include_plotlyjs=with_script, config=config)
    return drawn
