"""`outpace graph`: graphs of operators from a file, each operator in a process of its own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outpace.cli.graph_file import read_graph
from outpace.cli.run_local import json_lines
from outpace.errors import BindError
from outpace.hosts.graph.graph import Graph
from outpace.hosts.graph.keys import make_keys
from outpace.hosts.graph.metrics import GraphMetrics
from outpace.report.table import FittedTable

graphs = typer.Typer(no_args_is_help=True, help="Run graphs of operators.")

GraphFile = Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file with the graph.")]


@graphs.callback()
def group() -> None:
    """Run graphs of operators."""


@graphs.command()
def run(
    file: GraphFile,
    machine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which of the machines in the file this is."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="For savepoints, from which a lost run goes on.")
    ] = None,
    metrics: Annotated[bool, typer.Option(help="Show what was counted, at the end.")] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Serve metrics here; 0 is any free port.",
        ),
    ] = None,
) -> None:
    """Run a graph; matches that go to no log are written as JSON lines.

    The file has [sources.NAME] with path and time, [operators.NAME] with sql or file, and of: what
    it reads, all sources by default; and [sinks] with NAME = "folder" for logs of matches. With
    [machines], NAME = "tcp://host:port", run it on each of them: the first has sources, sinks and
    monitor, and the others the operators with machine = "NAME".
    """
    graph = read_graph(file)
    if not _is_first(graph, machine):
        if folder is not None or metrics or metrics_port is not None:
            raise BindError(
                f"machine '{machine}' has no savepoints and no metrics",
                hint=f"they are those of '{graph.placement.first}'",
            )
        graph.serve(str(machine))
        return
    printed = [name for name, sink in graph.sinks.items() if sink is None]
    with graph.run(folder) as running, ExitStack() as served:
        if metrics_port is not None:
            watch = served.enter_context(running.watch(port=metrics_port))
            typer.echo(f"metrics at {watch.url}/metrics", err=True)
        for name, table in running:
            _print(name if len(printed) > 1 else None, table)
        counted = running.metrics
    if metrics:
        _show(counted)


@graphs.command()
def keys(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file for the keys.")],
) -> None:
    """Make the keys of a graph on several machines, in a file that you alone can read.

    Copy it to each machine, and name it in the file of the graph: keys = "graph.key".
    """
    make_keys(file)


def _is_first(graph: Graph, machine: str | None) -> bool:
    """Say whether this is the machine with the sources, as the only one is."""
    machines = graph.placement.machines
    if machine is None and len(machines) > 1:
        raise BindError(
            "the graph runs on several machines, and it is not said which this is",
            hint=f"--machine {graph.placement.first} has sources and monitor; there are "
            f"{', '.join(machines)}",
        )
    if machine is not None and machine not in machines:
        known = ", ".join(one for one in machines if one)
        raise BindError(
            f"the graph has no machine '{machine}'",
            hint=f"there are {known}" if known else "write [machines] into the file",
        )
    return machine is None or machine == graph.placement.first


def _print(name: str | None, table: pa.Table) -> None:
    """Write matches as lines, with the operator where several have matches."""
    if name is not None:
        if "operator" in table.column_names:
            raise BindError(
                f"matches of '{name}' have a column 'operator', which says whose a line is",
                hint="give the column another name, or let the matches go to a log",
            )
        column = pa.array([name] * table.num_rows, pa.string())
        table = table.add_column(0, "operator", column)
    for batch in table.to_batches():
        for line in json_lines(batch):
            typer.echo(line)


def _show(counted: GraphMetrics) -> None:
    shown = Table()
    columns = ("operator", "events", "matches", "retained", "skipped", "replays", "recovered")
    for column in (*columns, "doubles"):
        shown.add_column(column, justify="left" if column == "operator" else "right")
    for name, one in counted.operators.items():
        shown.add_row(
            Text(name),
            f"{one.events:,}",
            f"{one.matches:,}",
            f"{one.retained_events:,}",
            f"{one.skipped_share:.0%}",
            str(one.replays),
            f"{one.recover_s:.2f} s" if one.replays else "",
            str(one.doubles),
        )
    Console(stderr=True).print(FittedTable(shown))
