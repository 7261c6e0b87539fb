"""`outpace demo`: three patterns over a day of generated trades, in process, and a page to look at.

Guarantees that the same arguments find the same matches, and that the page needs no network.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import pyarrow as pa
import typer
from rich.console import Console
from rich.panel import Panel
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from outpace.cli.demo_page import cell_text, page_of
from outpace.cli.demo_search import STAGES, Announce, Findings, deepest, find

#: How long the search may take before a progress bar appears.
PATIENCE_SECONDS: Final = 2.0

#: How many matches a table shows.
SHOWN: Final = 8


def demo(
    out: Annotated[Path, typer.Option(help="The folder that gets demo.html.")] = Path("out"),
    rows: Annotated[int, typer.Option(min=0, help="How many trades to generate.")] = 20_000,
) -> None:
    """Find three patterns in generated stock trades and draw them on a page."""
    console = Console()
    with _progress(console) as announce:
        found = find(rows, announce)
    _report(console, found)
    out.mkdir(parents=True, exist_ok=True)
    page = out / "demo.html"
    page.write_text(page_of(found), encoding="utf-8")
    console.print(Text(f"The page: {page}"), soft_wrap=True)


@contextmanager
def _progress(console: Console) -> Iterator[Announce]:
    """Give a callback that moves a progress bar, which appears only if it is worth it."""
    progress = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = progress.add_task("", total=STAGES)
    completed = iter(range(STAGES))

    def announce(stage: str) -> None:
        progress.update(task, description=stage, completed=next(completed))

    timer = threading.Timer(PATIENCE_SECONDS, progress.start)
    timer.start()
    try:
        yield announce
    finally:
        timer.cancel()
        timer.join()
        progress.stop()


def _report(console: Console, found: Findings) -> None:
    console.print(f"{found.ticks.num_rows:,} trades")
    dips = deepest(found.dips, SHOWN)
    _print_table(console, f"{found.dips.num_rows:,} dips; the deepest:", dips)
    title = f"{found.rotations.num_rows:,} rotations of large trades; the first:"
    _print_table(console, title, found.rotations.slice(0, SHOWN))
    console.print(f"{found.chains:,} chains A ->> B ->> C ->> D, counted without listing them\n")
    console.print(Panel(Text(found.plan), title="the plan of the dip query", expand=False))


def _print_table(console: Console, title: str, rows: pa.Table) -> None:
    table = Table(title=title, title_justify="left")
    for field in rows.schema:
        numeric = pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
        table.add_column(field.name, justify="right" if numeric else "left")
    for row in rows.to_pylist():
        table.add_row(*(Text(cell_text(value)) for value in row.values()))
    console.print(table)
