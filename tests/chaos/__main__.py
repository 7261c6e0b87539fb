"""Run the chaos tests: `make chaos`, or `make chaos SEED=17` for one run that failed."""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from chaos.burst import run_burst
from chaos.harness import Outcome, run_scenario
from chaos.scenario import ALL, Scenario, Sink, make_scenario
from chaos.streams import NAMES
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from support import postgres_server

CONSOLE = Console()


def main(
    seeds: Annotated[int, typer.Option(help="how many runs")] = ALL,
    kills: Annotated[int, typer.Option(help="how many kills in each")] = 5,
    seed: Annotated[int | None, typer.Option(help="run this one alone")] = None,
    query: Annotated[list[str] | None, typer.Option(help="only runs of these queries")] = None,
) -> None:
    """Kill parts of streaming queries at seeded moments; compare what they have written."""
    if unknown := {*(query or ())} - {*NAMES}:
        raise typer.BadParameter(f"no query is called {unknown.pop()!r}: {', '.join(NAMES)}")
    drawn = (make_scenario(number, kills) for number in itertools.count(seed or 0))
    wanted = (each for each in drawn if not query or each.query in query)
    scenarios = list(itertools.islice(wanted, seeds if seed is None else 1))
    outcomes = run_all(scenarios)
    CONSOLE.print(as_table(outcomes))
    CONSOLE.print(summary(outcomes))
    done = len(outcomes) == len(scenarios) and all(each.ok for each in outcomes)
    absorbed = seed is not None or (done and run_one_burst())
    sys.exit(0 if done and absorbed else 1)


def run_all(scenarios: list[Scenario]) -> list[Outcome]:
    """Run scenarios one after the other, with a bar of the kills."""
    with ExitStack() as stack:
        dsn = None
        if postgres_server.programs() is not None:
            dsn = stack.enter_context(postgres_server.server())
        else:
            CONSOLE.print("no PostgreSQL here: runs that write into it write files instead")
            scenarios = [replace(each, sink=Sink.FILES) for each in scenarios]
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        progress = stack.enter_context(Progress(*columns, TimeElapsedColumn(), console=CONSOLE))
        bar = progress.add_task("kills", total=sum(len(each.kills) for each in scenarios))
        outcomes: list[Outcome] = []
        # Ctrl-C ends it with what is known so far.
        stack.enter_context(suppress(KeyboardInterrupt))
        for scenario in scenarios:
            name = f"seed {scenario.seed}: {scenario.query} into {scenario.sink.value}"
            progress.update(bar, description=name)
            outcomes.append(run_one(scenario, dsn, lambda _: progress.advance(bar)))
    return outcomes


def run_one(scenario: Scenario, dsn: str | None, tell: Callable[[Outcome], None]) -> Outcome:
    """Run a scenario in a folder that stays where it fails."""
    folder = Path(tempfile.mkdtemp(prefix=f"outpace-chaos-seed-{scenario.seed}-"))
    outcome = run_scenario(scenario, folder, dsn, tell)
    if outcome.ok:
        shutil.rmtree(folder)
        return outcome
    CONSOLE.print(f"seed {scenario.seed} failed: {outcome.failure or 'rows are lost or doubled'}")
    CONSOLE.print(f"its log, checkpoint and output are in {folder}")
    CONSOLE.print(f"again: make chaos SEED={scenario.seed}")
    return outcome


def run_one_burst() -> bool:
    """Run a burst, and return whether it was taken as it should be."""
    CONSOLE.print("a burst of ten times what the query takes ...")
    with tempfile.TemporaryDirectory(prefix="outpace-chaos-burst-") as place:
        seen = run_burst(Path(place), batches=6, events_per_batch=20_000)
    if seen.failure:
        CONSOLE.print(f"failed: {seen.failure}")
        return False
    table = Table()
    for name in ("", "Python", "with Java", "behind", "behind for", "took"):
        table.add_column(name, justify="right")
    for name, peak in (("steady", seen.steady), ("burst", seen.burst)):
        sizes = (f"{size / 2**20:.0f} MiB" for size in (peak.python_bytes, peak.all_bytes))
        behind = (f"{peak.behind_events:,.0f} events", f"{peak.behind_seconds:.1f} s")
        table.add_row(name, *sizes, *behind, f"{peak.seconds:.1f} s")
    CONSOLE.print(table)
    CONSOLE.print(
        f"{len(seen.batches)} batches of at most {max(seen.batches):,} events; "
        f"{seen.lost} rows lost, {seen.doubled} doubled"
    )
    return not (seen.lost or seen.doubled) and max(seen.batches) <= seen.events_per_batch


def as_table(outcomes: list[Outcome]) -> Table:
    """One line for each run: what was killed when, and what came of it."""
    table = Table(title="an asterisk: the batch was being worked on")
    for name in ("seed", "query", "sink", "kills: who in which batch after how long"):
        table.add_column(name)
    for name in ("batches", "restarts", "rows", "lost", "doubled"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for each in outcomes:
        scenario = each.scenario
        killed = (
            f"{kill.victim.value} {kill.batch}{'*' if kill.running else ''} {kill.seconds:.1f} s"
            for kill in each.killed
        )
        numbers = (each.batches, each.restarts, each.rows, each.lost, each.doubled)
        table.add_row(
            str(scenario.seed),
            f"{scenario.query}, {scenario.form}",
            scenario.sink.value,
            "\n".join(killed),
            *map(str, numbers),
            "[green]equal[/]" if each.ok else "[red]failed[/]",
        )
    return table


def summary(outcomes: list[Outcome]) -> str:
    """All runs in one line."""
    killed = [kill for each in outcomes for kill in each.killed]
    running = sum(kill.running for kill in killed)
    equal = sum(each.ok for each in outcomes)
    return (
        f"{len(killed)} kills, {running} of them in a batch that was being worked on; "
        f"{equal} of {len(outcomes)} runs wrote every row once"
    )


if __name__ == "__main__":
    typer.run(main)
