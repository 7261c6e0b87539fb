"""`outpace demo`: three patterns over a day of generated trades, and a page to look at.

They are searched on Spark, or in process where there is no Java or no PySpark.

Guarantees that the same arguments find the same matches, on Spark and in process, and that the page
needs no network.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import pyarrow as pa
import pyarrow.parquet
import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from outpace.cli.progress import spark_progress
from outpace.demo.page import cell_text, page_of
from outpace.demo.search import DemoHost, Findings, deepest, find, local_host, spark_host
from outpace.errors import OutpaceError
from outpace.hosts.spark.session import own_session
from outpace.ingest.ticks import generate_ticks
from outpace.report.table import FittedTable

#: How many matches a table shows.
SHOWN: Final = 8

#: Trades follow each other so closely that the default number of them fills a day.
MEAN_GAP_MS: Final = 400

#: Rows of one row group, so that even the demo's file has some for Spark's tasks to share.
_ROW_GROUP_ROWS: Final = 25_000


def demo(
    out: Annotated[
        Path, typer.Option(help="The folder that gets demo.html and ticks.parquet.")
    ] = Path("out"),
    rows: Annotated[
        int, typer.Option(min=0, max=10**8, help="How many trades to generate.")
    ] = 100_000,
    local: Annotated[bool, typer.Option("--local", help="Search in process, without Spark.")] = (
        False
    ),
    master: Annotated[
        str | None, typer.Option(help="Where Spark runs; local[*] by default.")
    ] = None,
) -> None:
    """Find three patterns in generated stock trades and draw them on a page."""
    console = Console()
    ticks = generate_ticks(rows, mean_gap_ms=MEAN_GAP_MS)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "ticks.parquet"
    pa.parquet.write_table(ticks, file, row_group_size=_ROW_GROUP_ROWS)
    with _host(console, ticks, None if local else file, master) as host:
        found = find(ticks, host)
    _report(console, found)
    page = out / "demo.html"
    page.write_text(page_of(found), encoding="utf-8")
    console.print(Text(f"The trades: {file}"), soft_wrap=True)
    console.print(Text(f"The page, with the plan: {page}"), soft_wrap=True)


@contextmanager
def _host(
    console: Console, ticks: pa.Table, file: Path | None, master: str | None
) -> Iterator[DemoHost]:
    """Give a host for the search: Spark where there is a file, and this process where not.

    Where Spark cannot start this process does it too, unless somebody has said where Spark runs.
    """
    with ExitStack() as stack:
        session = None
        if file is not None:
            with console.status("start Spark"):
                try:
                    session = stack.enter_context(own_session("outpace demo", master=master))
                except OutpaceError as error:
                    if master is not None:
                        raise
                    typer.echo(f"in process: {error.message}", err=True)
        if file is None or session is None:
            yield local_host(ticks, console.status)
        else:
            yield spark_host(session, file, partial(spark_progress, session))


def _report(console: Console, found: Findings) -> None:
    # The page has the whole plan: here it would push the matches off the screen.
    query = found.plan.partition("\n\n")[0]
    console.print(Panel(Text(query), title="one of the queries", expand=False))
    console.print(f"{found.ticks.num_rows:,} trades, searched {found.host}\n")
    # A terminal of 80 columns has no room for the times in the middle; the page shows them.
    dips = deepest(found.dips, SHOWN).drop_columns("bottom_at")
    _print_table(console, f"{found.dips.num_rows:,} dips; the deepest:", dips)
    title = f"{found.rotations.num_rows:,} rotations of large trades; the first:"
    _print_table(console, title, found.rotations.slice(0, SHOWN).drop_columns("second_at"))
    _print_table(console, "sell-offs after a large trade, by SQL:", found.sell_offs)


def _print_table(console: Console, title: str, rows: pa.Table) -> None:
    table = Table(title=title, title_justify="left")
    for field in rows.schema:
        numeric = pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
        table.add_column(
            field.name,
            justify="right" if numeric else "left",
            no_wrap=numeric,
        )
    for row in rows.to_pylist():
        table.add_row(*(Text(cell_text(value)) for value in row.values()))
    console.print(FittedTable(table))
