"""Run the chaos tests: `make chaos`, or `make chaos SEED=17` for one run that failed."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import postgres_server
import typer
from chaos.harness import Outcome, run_scenario
from chaos.scenario import Sink, make_scenario
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

CONSOLE = Console()


def main(
    seeds: Annotated[int, typer.Option(help="how many runs")] = 20,
    kills: Annotated[int, typer.Option(help="how many kills in each")] = 5,
    seed: Annotated[int | None, typer.Option(help="run this one alone")] = None,
) -> None:
    """Kill parts of streaming queries at seeded moments; compare what they have written."""
    chosen = range(seeds) if seed is None else [seed]
    scenarios = [make_scenario(number, kills) for number in chosen]
    if postgres_server.programs() is None:
        kept = [each for each in scenarios if each.sink is not Sink.POSTGRES]
        CONSOLE.print(f"no PostgreSQL here: {len(scenarios) - len(kept)} runs are left out")
        scenarios = kept
    outcomes = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        tempfile.TemporaryDirectory(prefix="outpace-chaos-") as place,
        Progress(*columns, TimeElapsedColumn(), console=CONSOLE) as progress,
    ):
        bar = progress.add_task("kills", total=sum(len(each.kills) for each in scenarios))

        def run(dsn: str | None) -> None:
            for scenario in scenarios:
                name = f"seed {scenario.seed}: {scenario.query} into {scenario.sink.value}"
                progress.update(bar, description=name)
                folder = Path(place) / f"seed-{scenario.seed}"
                folder.mkdir()
                outcome = run_scenario(scenario, folder, dsn, lambda _: progress.advance(bar))
                outcomes.append(outcome)
                if outcome.ok:
                    shutil.rmtree(folder)
                    continue
                kept = Path(tempfile.mkdtemp(prefix=f"outpace-chaos-seed-{scenario.seed}-"))
                shutil.move(folder, kept)
                CONSOLE.print(f"seed {scenario.seed} failed: {outcome.failure or ''}")
                CONSOLE.print(f"its log, checkpoint and output are in {kept}")
                CONSOLE.print(f"again: make chaos SEED={scenario.seed}")

        if any(each.sink is Sink.POSTGRES for each in scenarios):
            with postgres_server.server() as dsn:
                run(dsn)
        else:
            run(None)
    CONSOLE.print(as_table(outcomes))
    CONSOLE.print(summary(outcomes))
    sys.exit(0 if all(each.ok for each in outcomes) else 1)


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
