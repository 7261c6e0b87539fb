"""What `outpace top` shows: for each query its state, its delay, where its time goes, its stages.

It is made of what `/metrics.json` says. Where a terminal has only ASCII, so has the view.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from outpace.report.table import FittedTable

_BAR_WIDTH: Final = 24
_SPARKS: Final = ("▁▂▃▄▅▆▇█", "_.-~=+*#")
_BLOCK: Final = "█"
_COLOURS: Final = ("cyan", "green", "yellow", "magenta", "blue", "red", "white")
_UNITS: Final = ("", "K", "M", "G", "T")

#: A column of the table of stages: its title, the metric, and whether it is left out if all are 0.
_COLUMNS: Final = (
    ("in/s", "outpace_stage_events_per_second", False),
    ("out/s", "outpace_stage_matches_per_second", False),
    ("late", "outpace_stage_late_total", False),
    ("invalid", "outpace_stage_invalid_total", True),
    ("slack", "outpace_stage_slack", True),
    ("early", "outpace_stage_early", True),
    ("latency", "outpace_stage_latency", True),
    ("longest", "outpace_stage_longest_wait", True),
    ("after", "outpace_stage_tentative_latency", True),
    ("sure", "outpace_stage_confirmed_total", True),
    ("sure after", "outpace_stage_confirmed_latency", True),
    ("taken back", "outpace_stage_retracted_share", True),
    ("rollbacks", "outpace_stage_rollbacks_total", True),
    ("replayed", "outpace_stage_replayed_total", True),
    ("again", "outpace_stage_redeliveries_total", True),
    ("marks", "outpace_stage_checkpoints_total", True),
    ("copied", "outpace_stage_checkpoint_bytes_total", True),
    ("silent", "outpace_stage_silent", True),
    ("unawaited", "outpace_stage_unawaited_total", True),
    ("buffer", "outpace_stage_buffered", False),
    ("wait s", "outpace_stage_wait_seconds", True),
    ("kept", "outpace_stage_kept", True),
    ("partial", "outpace_stage_partials", True),
    ("windows", "outpace_stage_open_windows", True),
    ("keys", "outpace_stage_keys", True),
    ("state", "outpace_stage_state_bytes", False),
)


#: The same of the table of operators of a run.
_OPERATOR_COLUMNS: Final = (
    ("events", "outpace_operator_events_total", False),
    ("matches", "outpace_operator_matches_total", False),
    ("late", "outpace_operator_late_total", True),
    ("invalid", "outpace_operator_invalid_total", True),
    ("slack", "outpace_operator_slack", True),
    ("latency", "outpace_operator_latency", True),
    ("longest", "outpace_operator_longest_wait", True),
    ("buffer", "outpace_operator_buffered", True),
    ("retained", "outpace_operator_retained_events", True),
    ("bytes", "outpace_operator_retained_bytes", True),
    ("skipped", "outpace_operator_skipped_share", True),
    ("saved s", "outpace_operator_savepoint_age_seconds", True),
    ("replays", "outpace_operator_replays_total", True),
    ("recover s", "outpace_operator_recover_seconds", True),
    ("doubles", "outpace_operator_doubles_total", True),
)


@dataclass
class _Values:
    """The values of one query: by metric, then by its other labels."""

    by_metric: dict[str, dict[tuple[str, ...], float]] = field(default_factory=dict)

    def add(self, sample: Mapping[str, Any]) -> None:
        labels = tuple(v for k, v in sample["labels"].items() if k not in ("query", "id"))
        self.by_metric.setdefault(sample["name"], {})[labels] = float(sample["value"])

    def one(self, name: str, *labels: str) -> float:
        return self.by_metric.get(name, {}).get(labels, 0.0)

    def all(self, name: str) -> dict[tuple[str, ...], float]:
        return self.by_metric.get(name, {})


def view(answers: Iterable[Mapping[str, Any]], *, ascii_only: bool = False) -> RenderableType:
    """Return the page of the answers of some programs."""
    shown: list[RenderableType] = []
    for one in answers:
        values: dict[str, _Values] = {}
        for sample in one["samples"]:
            values.setdefault(sample["labels"]["id"], _Values()).add(sample)
        for query in one["queries"]:
            shown += [*_query(query, values.get(query["id"], _Values()), ascii_only), Text()]
    return Group(*shown[:-1]) if shown else Text("no query has been started yet")


def sparkline(values: Sequence[float], *, ascii_only: bool = False) -> str:
    """Return values as small columns, the largest of them the highest.

    Examples
    --------
    >>> sparkline([0, 1, 2, 4])
    '▁▃▅█'
    >>> sparkline([])
    ''
    """
    levels = _SPARKS[ascii_only]
    top = max(values, default=0) or 1
    return "".join(levels[round(max(0, value) / top * (len(levels) - 1))] for value in values)


def amount(value: float, *, binary: bool = False) -> str:
    """Return a number in few characters.

    Examples
    --------
    >>> amount(0), amount(950), amount(1234), amount(25_000_000), amount(0.25)
    ('0', '950', '1.23K', '25.0M', '0.25')
    >>> amount(2048, binary=True)
    '2.00K'
    """
    base, step = 1024 if binary else 1000, 0
    while abs(value) >= base and step < len(_UNITS) - 1:
        value, step = value / base, step + 1
    if step == 0:
        return f"{value:.3g}"
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}{_UNITS[step]}"


def seconds(value: float) -> str:
    """Return a duration in few characters.

    Examples
    --------
    >>> seconds(0.0123), seconds(2.5), seconds(200), seconds(8000)
    ('12 ms', '2.5 s', '3 min 20 s', '2 h 13 min')
    """
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _query(query: Mapping[str, Any], values: _Values, ascii_only: bool) -> Iterable[RenderableType]:
    if operators := values.all("outpace_operator_events_total"):
        yield Text(query["name"], style="bold").append("  running", style="green")
        retained = values.all("outpace_operator_retained_events")
        rows = list(dict.fromkeys([*retained, *operators]))
        yield Padding(
            FittedTable(_table(values, rows, ("operator",), _OPERATOR_COLUMNS)), (1, 0, 0, 0)
        )
        return
    yield _title(query, values)
    if query["error"]:
        yield Text(f"  {str(query['error']).strip().splitlines()[0]}", style="red")
    yield _delay(query, values, ascii_only)
    phases = {name[0]: spent for name, spent in values.all("outpace_phase_batch_seconds").items()}
    stages: dict[str, float] = {}
    for (_, stage, part), value in values.all("outpace_stage_batch_seconds").items():
        stages[f"{stage}: {part}"] = stages.get(f"{stage}: {part}", 0.0) + value
    bars = Table.grid(Column(no_wrap=True), Column(no_wrap=True), Column(), padding=(0, 1))
    for title, parts in (("  batch", phases), ("  stages", stages)):
        if parts:
            bars.add_row(title, *_bar(parts, ascii_only))
    if bars.row_count:
        yield bars
    if stages:
        yield Padding(FittedTable(_stages(values)), (1, 0, 0, 0))


def _title(query: Mapping[str, Any], values: _Values) -> Text:
    state = "running" if query["running"] else "failed" if query["error"] else "ended"
    text = Text(query["name"], style="bold")
    text.append(f"  {state}", style={"running": "green", "failed": "red"}.get(state, "dim"))
    text.append(f"  batch {values.one('outpace_batch_number'):.0f}", style="default")
    text.append(f" in {seconds(values.one('outpace_batch_seconds'))}")
    last = query["history"][-1] if query["history"] else (0.0,) * 5
    text.append(f"  in {amount(last[2])} events/s  out {amount(last[3])} matches/s")
    duplication = values.all("outpace_duplication").values()
    if duplication:
        text.append(f"  duplication {max(duplication):.2f}")
    return text


def _delay(query: Mapping[str, Any], values: _Values, ascii_only: bool) -> Text:
    waiting = values.all("outpace_source_behind_events")
    if not waiting:
        return Text("  behind: the source does not tell", style="dim")
    behind = max(values.all("outpace_source_behind_seconds").values(), default=0.0)
    line = f"  behind {amount(sum(waiting.values()))} events, {seconds(behind)}  "
    history = [moment[4] for moment in query["history"]]
    return Text(line).append(sparkline(history, ascii_only=ascii_only), style="yellow")


def _bar(parts: Mapping[str, float], ascii_only: bool) -> tuple[Text, Text]:
    """Return a bar whose parts are as long as times are, and their names, the longest first."""
    whole = sum(parts.values()) or 1.0
    bar, legend = Text(), Text()
    longest = sorted(parts.items(), key=lambda part: -part[1])
    shown = [part for part in longest if part[1] / whole >= 0.01]
    for (name, value), colour in zip(shown, itertools.cycle(_COLOURS), strict=False):
        width = round(value / whole * _BAR_WIDTH)
        # Without colours, parts are told apart by their first letters.
        bar.append((name[:1] if ascii_only else _BLOCK) * width, style=colour)
        legend.append(f"{name} {seconds(value)}  ", style=colour)
    return bar, legend


def _stages(values: _Values) -> Table:
    stages = list(values.all("outpace_stage_events_total"))
    several = len({operator for operator, _ in stages}) > 1
    return _table(values, stages, ("operator", "stage") if several else ("stage",), _COLUMNS)


def _table(
    values: _Values,
    rows: Iterable[tuple[str, ...]],
    shown: Sequence[str],
    columns: Iterable[tuple[str, str, bool]],
) -> Table:
    """Return a table with a row for each of some labels, of which the last ones are shown."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for title in shown:
        table.add_column(title)
    chosen = [
        (title, name)
        for title, name, may_miss in columns
        if not may_miss or any(values.all(name).values())
    ]
    for title, _ in chosen:
        table.add_column(title, justify="right", no_wrap=True)
    for labels in rows:
        numbers = [
            amount(values.one(name, *labels), binary=name.endswith("_bytes")) for _, name in chosen
        ]
        table.add_row(*labels[-len(shown) :], *numbers)
    return table
