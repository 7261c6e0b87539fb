"""`outpace study NAME`: runs a paper's experiments and puts what it measures beside the paper.

Writes `NAME.json` (the rows) and `NAME.html` (a page with a plot for each figure, which needs no
network) into a folder, and prints a table. Both are made before anything is measured, so that
a path which cannot be written fails at once. What was measured before something fails, or before
Ctrl-C, is written; the page and the terminal say how far the study came.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from outpace.compiler.kernel import is_compiled
from outpace.engine.kernels.chains import walk_chains
from outpace.hosts.compile import compile_kernels
from outpace.studies import cepsim as cepsim_scales
from outpace.studies import disorder as disorder_scales
from outpace.studies import skip as skip_scales
from outpace.studies import speculation as speculation_scales
from outpace.studies.page import page_of
from outpace.studies.report import Row, Study, print_table, write_rows
from outpace.studies.space import QUICK, WHOLE, space_study

studies = typer.Typer(no_args_is_help=True, help="Run the experiments of a paper.")

Quick = Annotated[bool, typer.Option("--quick", help="Smaller settings, done in two minutes.")]
Out = Annotated[Path, typer.Option(help="The folder that gets the rows and the page.")]
Ticks = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="A CSV file of ticks with the columns price and stock_time_ms, for speculation also"
        " name. Without it ticks are left out.",
    ),
]


@studies.callback()
def group() -> None:
    """Run the experiments of a paper."""


@studies.command()
def space(quick: Quick = False, out: Out = Path("out")) -> None:
    """The splitter of a data-parallel operator: sizes, rates, overlap, instances, sources, load."""
    run_study(space_study(QUICK if quick else WHOLE), out, quick=quick)


@studies.command()
def cepsim(quick: Quick = False, out: Out = Path("out")) -> None:
    """The capacity simulator: latency, throughput, placements, scale, strategies, ticks."""
    scale = cepsim_scales.QUICK if quick else cepsim_scales.WHOLE
    run_study(cepsim_scales.cepsim_study(scale), out, quick=quick)


@studies.command()
def disorder(quick: Quick = False, out: Out = Path("out"), ticks: Ticks = None) -> None:
    """Streams out of order: latency and accuracy of reorderers, clocks that are off, and ticks."""
    scale = disorder_scales.QUICK if quick else disorder_scales.WHOLE
    run_study(disorder_scales.disorder_study(scale, ticks), out, quick=quick)


@studies.command()
def speculation(quick: Quick = False, out: Out = Path("out"), ticks: Ticks = None) -> None:
    """Speculation with checkpoints: throughput and latency by alpha, interval and instances."""
    scale = speculation_scales.QUICK if quick else speculation_scales.WHOLE
    run_study(speculation_scales.speculation_study(scale, ticks), out, quick=quick)


@studies.command()
def skip(quick: Quick = False, out: Out = Path("out")) -> None:
    """Recovery from a retained log: events replayed and retained, with and without skipping."""
    scale = skip_scales.QUICK if quick else skip_scales.WHOLE
    run_study(skip_scales.skip_study(scale), out, quick=quick)


def run_study(study: Study, out: Path, *, quick: bool) -> list[Row]:
    """Run a study with a progress bar, write its files into a folder and print its table.

    They are written after each experiment, so that what is measured is there, however long the
    others take.
    """
    out.mkdir(parents=True, exist_ok=True)
    data, page = out / f"{study.name}.json", out / f"{study.name}.html"
    for path in (data, page):
        path.open("a").close()
    if not is_compiled(walk_chains):
        # What is not compiled yet would be measured as plain Python where there is little to do.
        compile_kernels()
    measured: list[Row] = []
    begun: list[str] = []
    stopped: str | None = None
    console, total = Console(), len(study.experiments)

    def write(said: str | None) -> list[Row]:
        rows = study.in_order(measured)
        write_rows(data, rows, study.place, quick=quick)
        text = page_of(study, rows, conditions(quick=quick), stopped=said)
        page.write_text(text, encoding="utf-8")
        return rows

    try:
        with _progress(total) as on_start:

            def begin(words: str) -> None:
                if begun:
                    write(f"The study goes on: {len(begun)} of {total} experiments are done.")
                begun.append(words)
                on_start(words)

            for row in study.run(begin):
                measured.append(row)
    except BaseException as error:
        why = "was stopped" if isinstance(error, KeyboardInterrupt) else "failed"
        done = f"{max(0, len(begun) - 1)} of {total} experiments"
        stopped = f"The study {why} after {done}: what is missing was not measured."
        raise
    finally:
        rows = write(stopped)
        if stopped is not None:
            console.print(Text(f"{stopped} The page so far: {page}"), soft_wrap=True)
    print_table(study, rows, console)
    console.print(Text(conditions(quick=quick)), soft_wrap=True)
    console.print(Text(f"The rows: {data}"), soft_wrap=True)
    console.print(Text(f"The page: {page}"), soft_wrap=True)
    return rows


def conditions(*, quick: bool) -> str:
    """Say where and how a study is measured."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    settings = "all settings"
    if quick:
        settings = (
            "the smaller settings of --quick, which show that the study runs: numbers to compare"
            " with the paper, and with what the documentation says, are those of a run without it"
        )
    return (
        f"Measured on {cores} {'core' if cores == 1 else 'cores'} of one machine "
        f"({platform.system()}, {platform.machine()}, Python {platform.python_version()}), "
        f"with {settings}."
    )


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """Give a function that shows the name of an experiment on standard error, if a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    disable = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as progress:
        bar, done = progress.add_task("", total=total), count()
        yield lambda words: progress.update(bar, description=words, completed=next(done))
