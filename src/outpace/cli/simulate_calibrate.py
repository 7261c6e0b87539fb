"""`outpace simulate calibrate`: what a query costs on this machine, measured, as a scenario.

A query runs as a stream on Spark, at full speed and at several rates. What an event costs is
estimated by both methods of the CEPSim paper; see `outpace.simulate.calibration`.
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from outpace.cli.run_input import split_name
from outpace.cli.simulate_measure import default_mips, measuring_session, setting_of
from outpace.cli.simulate_output import (
    OutputColumn,
    count_text,
    json_text,
    percent_text,
    print_rows,
    progress,
    seconds_text,
    terminal,
)
from outpace.cli.top import metrics_at
from outpace.errors import BindError
from outpace.hosts.spark.session import CORES_MAX
from outpace.pattern.duration import parse_duration
from outpace.simulate.calibration.calibrated_scenario import (
    MeasuredRun,
    calibrated,
    calibrated_text,
)
from outpace.simulate.calibration.procedure import (
    CalibrationPace,
    CalibrationResult,
    measure_costs,
)
from outpace.simulate.calibration.running import read_running, running_of
from outpace.simulate.scenario import Scenario
from outpace.simulate.scenario_text import scenario_text

#: How long is measured, and with `--quick`.
PACE: Final = CalibrationPace(warm=90.0, seconds=40.0, turns=2, full=6)
QUICK: Final = CalibrationPace(warm=5.0, seconds=8.0, turns=1, full=3, batches=3, rates=(0.15, 0.7))

#: The rate of the scenario's producer, as a part of the maximum throughput.
_WRITTEN_AT: Final = 0.5

_COLUMNS: Final[Mapping[str, OutputColumn]] = {
    "query": ("query", str),
    "method": ("method", str),
    "event": ("an event", seconds_text),
    "instructions": ("instructions", count_text),
    "difference": ("difference", percent_text),
    "written": ("written", str),
}


def calibrate(
    query: Annotated[
        Path | None, typer.Argument(metavar="[QUERY]", help="A .sql or .py file.")
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="Names of workloads of `outpace bench`, with commas.")
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(
            "--from", help="The query's events: a Parquet, CSV or JSON file, or log:PATH."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The scenario; with several, -NAME is added.")] = Path(
        "scenario.toml"
    ),
    metrics: Annotated[
        str | None,
        typer.Option(
            "--from-metrics",
            help="A stream that ran: its metrics (URL or file), progress, or checkpoint.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--query", help="Which stream, if the metrics have several.")
    ] = None,
    trigger: Annotated[str, typer.Option(help="The time between two batches.")] = "2 s",
    max_events: Annotated[
        int, typer.Option(min=1, max=10**10, help="The most events of a batch.")
    ] = 1_000_000,
    cores: Annotated[
        int, typer.Option(min=1, max=CORES_MAX, help="The cores that Spark runs on.")
    ] = 2,
    mips: Annotated[
        float | None,
        typer.Option(help="Million instructions a second of a core; what the system says."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure for a short time.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """Measure what a query costs on Spark, or read it from a stream that ran; write a scenario."""
    interval = parse_duration(trigger, where="--trigger").total_seconds()
    if interval <= 0:
        raise BindError("the time between two batches is not above 0", where="--trigger")
    speed = default_mips() if mips is None else mips
    if not 0 < speed < float("inf"):
        raise BindError(f"{speed} is no number of instructions", where="--mips")
    if metrics is not None:
        if query is not None or workload is not None or events is not None:
            raise BindError("a stream that ran is not measured again", where="--from-metrics")
        _from_metrics(metrics, name, cores, speed, out, as_json)
        return
    subjects = _subjects(query, workload, events, out, interval, max_events, cores)
    paths = {one: _path(out, one, len(subjects)) for one in subjects}
    for path in paths.values():
        _check_out(path)
    settings = {one: setting_of(one, path.parent) for one, path in paths.items()}
    with measuring_session(cores) as session:
        for one, setting in settings.items():
            with progress(one.name) as on_progress:
                pace = QUICK if quick else PACE
                found = measure_costs(session, setting, pace, on_progress)
            scenario = calibrated(
                one,
                found.costs,
                found.selectivity,
                speed,
                _WRITTEN_AT * min(found.costs.events_per_second, max_events / interval),
            )
            lines = _comments(one, found, speed)
            paths[one].write_text(calibrated_text(scenario, one, lines), encoding="utf-8")
            _show(one, found, scenario, paths[one], as_json)


def _from_metrics(
    place: str, name: str | None, cores: int, mips: float, out: Path, as_json: bool
) -> None:
    """Write the scenario of a stream from what it left behind."""
    _check_out(out)
    if place.startswith(("http://", "https://")):
        stream = running_of(metrics_at(place), place, name)
    else:
        stream = read_running(place, name)
    costs, scenario = stream.costs(), stream.scenario(cores, mips)
    lines = [
        f"{stream.name}: what a stream on Spark costs, from {len(stream.batches):,} batches in "
        f"{place}.",
        f"A batch costs {seconds_text(costs.setup)} however few events it has, an event "
        f"{seconds_text(costs.event)}{_hidden(costs.latency.exact)}, on {cores} cores of {mips:g} "
        "million instructions a second.",
        f"Selectivity: {count_text(stream.matches)} matches of {stream.events:,} events."
        if stream.matches is not None
        else "Selectivity: nothing says how many rows came out; 1 stands for what you know.",
    ]
    comments = "".join(f"# {line}\n" for line in lines)
    out.write_text(f"{comments}\n{scenario_text(scenario)}", encoding="utf-8")
    if as_json:
        found = {
            "query": stream.name,
            "scenario": str(out),
            "batches": len(stream.batches),
            "setup": costs.setup,
            "event": costs.event,
            "events_per_s": costs.events_per_second,
            "interval": stream.interval,
            "selectivity": None if stream.matches is None else stream.matches / stream.events,
        }
        typer.echo(json_text(found))
    else:
        typer.echo("\n".join([*lines, f"The scenario: {out}"]))


def _check_out(path: Path) -> None:
    if path.is_dir() or not path.parent.is_dir():
        raise BindError(f"'{path}' cannot be written", where="--out", hint="name a file")


def _subjects(
    query: Path | None,
    workload: str | None,
    events: str | None,
    out: Path,
    trigger: float,
    most: int,
    cores: int,
) -> list[MeasuredRun]:
    subjects = []
    if query is not None:
        if events is None:
            raise BindError("the query has no events", hint="--from ticks.parquet")
        where = _events_beside(events, out)
        subjects.append(
            MeasuredRun(
                "", _beside(query, out), where, trigger=trigger, events_max=most, cores=cores
            )
        )
    elif events is not None:
        raise BindError("--from goes with a query file", hint="workloads have their own events")
    for name in (part.strip() for part in (workload or "").split(",")):
        if name:
            subjects.append(MeasuredRun(name, trigger=trigger, events_max=most, cores=cores))
    if not subjects:
        raise BindError("there is nothing to measure", hint="name a query file, or --workload w2k")
    return subjects


def _beside(path: Path, out: Path) -> str:
    """Return a path as seen from the folder of the scenario."""
    return os.path.relpath(path.expanduser().absolute(), out.absolute().parent)


def _events_beside(events: str, out: Path) -> str:
    """Return where events are, as seen from the folder of the scenario.

    Examples
    --------
    >>> _events_beside("t=log:ticks.log", Path("out/scenario.toml"))
    't=log:../ticks.log'
    """
    place = split_name(events)[1]
    name = events.removesuffix(place)
    if "://" in place:
        return events
    kind = "log:" if place.startswith("log:") else ""
    return f"{name}{kind}{_beside(Path(place.removeprefix(kind)), out)}"


def _path(out: Path, subject: MeasuredRun, count: int) -> Path:
    return out if count == 1 else out.with_name(f"{out.stem}-{subject.name}{out.suffix}")


def _comments(subject: MeasuredRun, found: CalibrationResult, mips: float) -> list[str]:
    """Return what the file says of how it was measured."""
    costs, counts = found.costs, found.counts
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    rates = ", ".join(f"{rate:,.0f} ({count})" for rate, count in found.rates.items())
    return [
        f"{subject.name}: what a stream on Spark costs, as outpace simulate calibrate measured it.",
        f"When and where: {now}, {platform.machine()}, local[{subject.cores}]; batches of at most "
        f"{subject.events_max:,} events every {subject.trigger:g} s.",
        f"A batch costs {seconds_text(costs.setup)} however few events it has: the line through "
        "the times of batches at several rates.",
        f"An event costs {seconds_text(costs.latency.seconds)} by latency: the slope of that line"
        f"{_hidden(costs.latency.exact)}.",
        f"  Events/s, with the batches that counted: {rates}.",
        f"An event costs {seconds_text(costs.throughput.seconds)} by maximum throughput: "
        f"{costs.events_per_second:,.0f} events/s in {found.full} batches right after each other, "
        f"without what a batch costs{_hidden(costs.throughput.exact)}.",
        f"Written: {seconds_text(costs.event)} an event, times {subject.cores} cores of "
        f"{mips:g} million instructions a second.",
        f"Error: a batch at these rates takes {percent_text(costs.error)} more or less than these "
        "costs say, as a median.",
        f"Selectivity: {counts.matches:,} matches of {counts.events:,} events; "
        f"{counts.late:,} late, {counts.invalid:,} invalid.",
    ]


def _hidden(exact: bool) -> str:
    return "" if exact else " (too large: noise hid what a batch costs)"


def _rows(
    subject: MeasuredRun, found: CalibrationResult, scenario: Scenario
) -> list[dict[str, Any]]:
    costs = found.costs
    speed = scenario.vms[0].capacity * 1e6
    rows = []
    for method, estimate, difference in (
        ("latency", costs.latency, costs.difference),
        ("maximum throughput", costs.throughput, 0.0),
    ):
        rows.append(
            {
                "query": subject.name,
                "method": method,
                "event": estimate.seconds,
                "instructions": estimate.seconds * speed,
                "difference": difference,
                "exact": estimate.exact,
                "written": "yes" if estimate.seconds == costs.event else "",
            }
        )
    return rows


def _show(
    subject: MeasuredRun, found: CalibrationResult, scenario: Scenario, path: Path, as_json: bool
) -> None:
    rows = _rows(subject, found, scenario)
    if as_json:
        typer.echo(
            json_text(
                {
                    "query": subject.name,
                    "scenario": str(path),
                    "setup": found.costs.setup,
                    "error": found.costs.error,
                    "events_per_s": found.costs.events_per_second,
                    "selectivity": found.selectivity,
                    "late": found.counts.late,
                    "invalid": found.counts.invalid,
                    "methods": [{key: row[key] for key in row if key != "query"} for row in rows],
                }
            )
        )
        return
    console = terminal()
    print_rows("instructions per event", _COLUMNS, rows, console)
    console.print(
        f"A batch costs {seconds_text(found.costs.setup)}; batches take "
        f"{percent_text(found.costs.error)} more or less than that says, as a median; "
        f"{count_text(found.counts.matches)} matches of {count_text(found.counts.events)} events. "
        f"The scenario: {path}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
