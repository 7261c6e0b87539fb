"""What `outpace simulate` prints and writes: tables in the terminal, JSON, a page with plots."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import plotly.graph_objects as go
import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from outpace.errors import ScenarioError
from outpace.report.page import chart, document
from outpace.report.plots import plots_over_time
from outpace.report.table import FittedTable, counted_bytes
from outpace.simulate import Result
from outpace.simulate.run import Engine
from outpace.studies.report import number_text

#: A table that goes to a pipe or a file may be this wide.
_WIDTH_MAX: Final = 2_000

#: How a column is shown: its heading and its cells.
OutputColumn = tuple[str, Callable[[Any], str]]


def seconds_text(seconds: float | None) -> str:
    """Return a time with three digits that count, in a unit that suits it.

    Examples
    --------
    >>> [seconds_text(seconds) for seconds in (0.0, 0.000034, 0.01234, 7.5, 125.0, math.nan)]
    ['0 s', '34 µs', '12.3 ms', '7.5 s', '125 s', '–']
    """
    if seconds is None or math.isnan(seconds):
        return "–"
    if math.isinf(seconds):
        return "∞"
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= length or unit == "µs":
            break
    return "0 s" if not seconds else f"{seconds / length:.3g} {unit}"


def percent_text(part: float | None) -> str:
    """Return a part as percent.

    Examples
    --------
    >>> percent_text(0.0512), percent_text(math.nan)
    ('5.12 %', '–')
    """
    return "–" if part is None or math.isnan(part) else f"{100 * part:.3g} %"


def bytes_text(size: float | None) -> str:
    """Return a number of bytes, short.

    Examples
    --------
    >>> bytes_text(0.0), bytes_text(1_500.0)
    ('–', '1.5 kB')
    """
    return counted_bytes(round(size)) if size else "–"


def count_text(value: float | None) -> str:
    """Return a number, short.

    Examples
    --------
    >>> count_text(1500.0), count_text(math.nan)
    ('1,500', '–')
    """
    return "–" if value is None or math.isnan(value) else number_text(value)


def price_text(price: float | None) -> str:
    """Return a price, short.

    Examples
    --------
    >>> price_text(0.1234567), price_text(None)
    ('0.1235', '–')
    """
    return "–" if price is None or math.isnan(price) else f"{price:,.4g}"


def yes_text(value: bool) -> str:
    """Return a truth in a word."""
    return "yes" if value else "no"


class EngineChoice(StrEnum):
    """What simulates."""

    AUTO = "auto"
    FAST = "fast"
    TWIN = "twin"

    @property
    def engine(self) -> Engine | None:
        """The engine as `simulate` takes it."""
        match self:
            case EngineChoice.AUTO:
                return None
            case EngineChoice.FAST:
                return "fast"
            case EngineChoice.TWIN:
                return "twin"


ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A TOML file.")]
EngineName = Annotated[
    EngineChoice, typer.Option("--engine", help="What simulates; auto takes what fits best.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object.")]
Page = Annotated[Path | None, typer.Option("--html", help="A file for a page with plots.")]


def check_page(page: Path | None) -> None:
    """Fail, before anything is simulated, if the page cannot be written; leave nothing behind."""
    if page is None:
        return
    if page.is_dir() or not os.access(page if page.exists() else page.parent, os.W_OK):
        raise ScenarioError(
            f"the page {str(page)!r} cannot be written", hint="name a file in a folder that exists"
        )


_COLUMNS: Final[Mapping[str, OutputColumn]] = {
    "consumer": ("consumer", str),
    "query": ("query", str),
    "vertex": ("vertex", str),
    "kind": ("kind", str),
    "vm": ("VM", str),
    "events": ("events", count_text),
    "latency": ("mean", seconds_text),
    "p50": ("p50", seconds_text),
    "p95": ("p95", seconds_text),
    "p99": ("p99", seconds_text),
    "throughput": ("produced/s", count_text),
    "processed": ("processed", count_text),
    "dropped": ("dropped", count_text),
    "utilisation": ("utilisation", percent_text),
    "loss": ("lost", percent_text),
    "memory_max": ("memory", bytes_text),
    "queue_mean": ("queue", count_text),
    "queue_max": ("at most", count_text),
}

#: Those of vertices count the events that come to them, the others those that producers made.
_VERTEX_COLUMNS: Final = {**_COLUMNS, "throughput": ("events/s", count_text)}

_WORDS: Final = (
    *("consumer", "query", "vertex", "kind", "vm"),
    *("machine", "mix", "quantity", "reason", "chosen"),
)


def result_tables(result: Result) -> dict[str, pa.Table]:
    """Return the tables of a result by what their rows are."""
    homes = result.layout.scenario.placement
    vertices = result.vertices()
    vms = [homes[vertex] for vertex in vertices["vertex"].to_pylist()]
    return {
        "queries": result.queries(),
        "consumers": result.consumers(),
        "vertices": vertices.add_column(2, "vm", pa.array(vms, pa.string())),
        "vms": result.vms(),
    }


def print_result(result: Result, console: Console, rows: int) -> None:
    """Print the tables of a result, each with the given number of rows at most.

    Where there are more, those with the greatest latency or utilisation are shown.
    """
    for name, table in result_tables(result).items():
        shown, worst = table.to_pylist(), "p99" if "p99" in table.column_names else "utilisation"
        hidden = max(0, len(shown) - rows)
        if hidden:
            kept = sorted(range(len(shown)), key=lambda n: -_number(shown[n][worst]))[:rows]
            shown = [shown[n] for n in sorted(kept)]
        title = "VMs" if name == "vms" else name
        if hidden:
            title += f": the {rows} of {len(shown) + hidden:,} with the greatest {worst}"
        print_rows(title, _columns_of(name, table), shown, console)


def _columns_of(name: str, table: pa.Table) -> dict[str, OutputColumn]:
    columns = _VERTEX_COLUMNS if name == "vertices" else _COLUMNS
    return {key: columns[key] for key in table.column_names}


def print_rows(
    title: str,
    columns: Mapping[str, OutputColumn],
    rows: Iterable[Mapping[str, Any]],
    console: Console,
) -> None:
    """Print a table; the keys of the columns are those of the rows."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for key, (heading, _) in columns.items():
        words = key in _WORDS
        table.add_column(heading, justify="left" if words else "right", no_wrap=not words)
    for row in rows:
        table.add_row(*(Text(shown(row[key])) for key, (_, shown) in columns.items()))
    console.print(FittedTable(table))
    console.print()


def terminal() -> Console:
    """Return the console of standard output, wide enough if it is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH_MAX)


def json_text(value: Any) -> str:
    """Return a value as JSON; what is not a finite number is null.

    Examples
    --------
    >>> json_text({"p99": math.nan, "rows": [1.5]})
    '{"p99": null, "rows": [1.5]}'
    """
    return json.dumps(_finite(value))


def result_page(title: str, result: Result, more: Iterable[str] = ()) -> str:
    """Return a page with the tables of a result and its plots over time; it needs no network.

    More tables, which are HTML, come first.
    """
    scenario = result.layout.scenario
    queries, vms = len(scenario.queries), len(scenario.vms)
    summary = (
        f"{queries:,} {'query' if queries == 1 else 'queries'} with "
        f"{len(result.layout.vertices):,} vertices on {vms:,} {'VM' if vms == 1 else 'VMs'}, "
        f"{scenario.duration:g} simulated seconds in ticks of {scenario.tick:g} s."
    )
    if scenario.warm_up:
        summary += f" The tables do not count the first {scenario.warm_up:g} s."
    tables = [
        html_table(
            "VMs" if name == "vms" else name,
            _columns_of(name, table),
            table.to_pylist(),
        )
        for name, table in result_tables(result).items()
    ]
    return plots_page(title, [summary], [*more, *tables], plots_over_time(result))


def plots_page(
    title: str,
    paragraphs: Iterable[str],
    tables: Iterable[str],
    plots: Iterable[tuple[str, go.Figure]],
) -> str:
    """Return a page of paragraphs, tables that are HTML, and plots."""
    parts = [f"<h1>{html.escape(title)}</h1>"]
    parts += [f"<p>{html.escape(paragraph)}</p>" for paragraph in paragraphs]
    parts += tables
    for number, (heading, plot) in enumerate(plots):
        drawn = chart(plot, with_script=number == 0)
        parts.append(f"<section><h2>{html.escape(heading)}</h2><div>{drawn}</div></section>")
    return document(title, parts)


def html_table(
    title: str, columns: Mapping[str, OutputColumn], rows: Sequence[Mapping[str, Any]]
) -> str:
    """Return a table as HTML; the keys of the columns are those of the rows."""

    def cell(key: str, text: str, tag: str) -> str:
        kind = "" if key in _WORDS else ' class="number"'
        return f"<{tag}{kind}>{html.escape(text)}</{tag}>"

    head = "".join(cell(key, heading, "th") for key, (heading, _) in columns.items())
    lines = "".join(
        f"<tr>{''.join(cell(key, shown(row[key]), 'td') for key, (_, shown) in columns.items())}"
        "</tr>"
        for row in rows
    )
    opened = " open" if len(rows) <= 20 else ""
    return (
        f"<section><details{opened}><summary>{html.escape(title)}</summary>"
        f"<div><table><tr>{head}</tr>{lines}</table></div></details></section>"
    )


@contextmanager
def progress(words: str) -> Iterator[Callable[[int | str], None]]:
    """Show a bar on standard error, if a terminal; give a function that takes a count or a step."""
    with _bars() as bars:
        bar = bars.add_task(words, total=None)
        yield lambda done: bars.update(bar, description=f"{words}: {done}")


@contextmanager
def progress_of_whole(words: str) -> Iterator[Callable[[float], None]]:
    """Show a bar as `progress` does; give a function that takes the part that is done, 0 to 1."""
    with _bars() as bars:
        bar = bars.add_task(words, total=1.0)
        yield lambda part: bars.update(bar, completed=part)


def _bars() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _number(value: float | None) -> float:
    return -1.0 if value is None or math.isnan(value) else value


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
