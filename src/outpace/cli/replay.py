"""`outpace replay`: a recorded stream again, step by step, with what each gave and what is kept.

Exit code 2 tells of a recording that is damaged or foreign, with the place; 1 of steps that gave
something else than when they were recorded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import pyarrow as pa
import typer
from rich.console import Console
from rich.text import Text

from outpace.cli import options
from outpace.cli.run_query import Definition, SqlText, read_definition
from outpace.cli.stream_output import ConsoleWriter
from outpace.errors import BindError, OutpaceError
from outpace.hosts.local.replay import Replay, ReplayedStep
from outpace.hosts.local.replay import replay as replayed
from outpace.pattern.group import QueryGroup
from outpace.report.table import counted

#: A table that goes to a pipe or a file may be this wide.
_WIDTH_MAX: Final = 2_000
#: So many steps are shown at once: they share the widths of their columns.
_STEPS_AT_ONCE: Final = 100


def replay(
    recording: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a recording.", show_default=False)
    ],
    until: Annotated[int | None, typer.Option(min=0, help="The last step that is taken.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the matches, why, and what is undecided.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=0, max=10**6, help="Rows of a step that --explain shows.")
    ] = 20,
    query: Annotated[
        Path | None,
        typer.Option(help="The .py file of a query with parts in Python: they are not recorded."),
    ] = None,
    name: options.QueryName = None,
) -> None:
    """Replay a recorded stream step by step, and show what is kept after each.

    A recording comes from outpace stream --record, or op.open(query, record=...). Exit code 1 says
    that a step gave something else than when it was recorded.
    """
    steps = replayed(recording, until=until, query=_query(query, name))
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_MAX)
    count = 0
    other: list[int] = []
    writer = ConsoleWriter(console, _STEPS_AT_ONCE)
    rows: list[dict[str, object]] = []
    try:
        for step in steps:
            count += 1
            if step.as_recorded is False:
                other.append(step.number)
            if explain:
                _explain(console, steps, step, limit)
                continue
            rows.append(_row(steps, step))
            if len(rows) == _STEPS_AT_ONCE:
                _show(writer, rows)
    finally:
        _show(writer, rows)
    recorded = steps.query
    names = recorded.names if isinstance(recorded, QueryGroup) else (recorded.name,)
    told = ", ".join(f"'{name}'" for name in names)
    console.print(Text(f"{counted(count, 'step')} of {told}"))
    if explain and steps.unexplained is not None:
        typer.echo(steps.unexplained, err=True)
    if other:
        more = f", and {counted(len(other) - 1, 'other step')}" if len(other) > 1 else ""
        typer.echo(
            f"step {other[0]:,} gave something else than when it was recorded{more}", err=True
        )
        raise typer.Exit(1)


def _query(path: Path | None, name: str | None) -> Definition | None:
    if path is None:
        if name is not None:
            raise BindError("--name chooses a query of a Python file", hint="--query FILE.py")
        return None
    request = read_definition(path, name=name)
    if isinstance(request, SqlText):
        raise BindError(f"'{path}' holds a statement", hint="--query takes a query in Python")
    return request


def _show(writer: ConsoleWriter, rows: list[dict[str, object]]) -> None:
    """Print steps under those that are there."""
    if rows:
        writer.show(pa.Table.from_pylist(rows), len(rows))
        rows.clear()


def _row(steps: Replay, step: ReplayedStep) -> dict[str, object]:
    state = step.state
    return {
        "step": step.number,
        "came": step.title,
        "matches": _size(step.matches),
        "kept": state.rows_kept,
        "windows": state.open_windows,
        "partitions": state.partitions,
        "waiting": state.buffered,
        "watermark": _watermark(steps, step),
        "note": _note(step),
    }


def _watermark(steps: Replay, step: ReplayedStep) -> str:
    watermark = step.state.watermark
    return "" if watermark is None else steps.stream.time_text(watermark)


def _tables(found: pa.Table | dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Return tables by the names of the queries of a group; of one query without a name."""
    return found if isinstance(found, dict) else {"": found}


def _size(found: pa.Table | dict[str, pa.Table]) -> int:
    return sum(rows.num_rows for rows in _tables(found).values())


def _note(step: ReplayedStep) -> str:
    """Say what else came of a step, and whether it was so when it was recorded."""
    aside = (("timed out", step.timed_out), ("late", step.late), ("invalid", step.invalid))
    parts = [f"{_size(rows):,} {name}" for name, rows in aside if _size(rows)]
    if step.error is not None:
        error = step.error
        parts.append(f"refused: {error.message if isinstance(error, OutpaceError) else error}")
    if step.as_recorded is None:
        parts.append("left out: it was interrupted" if step.skipped else "the recording ends in it")
    elif not step.as_recorded:
        parts.append("not as recorded")
    return ", ".join(parts)


def _explain(console: Console, steps: Replay, step: ReplayedStep, limit: int) -> None:
    state = step.state
    note = _note(step)
    console.print(Text(f"step {step.number}: {step.title}{f', {note}' if note else ''}", "bold"))
    for name, found in _tables(step.matches).items():
        if rows := found.num_rows:
            if name:
                console.print(Text(f"\n{name}:"))
            ConsoleWriter(console, limit).show(found.slice(0, limit), rows)
    if steps.unexplained is None and (text := step.explain(limit)):
        console.print(Text(f"\n{text}\n"), soft_wrap=True)
    kept = [
        counted(state.rows_kept, "row"),
        counted(state.open_windows, "open window"),
        counted(state.partitions, "partition"),
        f"{state.buffered:,} waiting",
    ]
    if state.slack:
        kept.append(f"slack {state.slack:,}")
    if watermark := _watermark(steps, step):
        kept.append(f"watermark {watermark}")
    console.print(Text(f"kept: {', '.join(kept)}\n"), soft_wrap=True)
