"""`outpace simulate what-if` and `compare`: many runs of a scenario, and two scenarios."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import numpy as np
import plotly.graph_objects as go
import typer

from outpace.cli.simulate_output import (
    AsJson,
    EngineChoice,
    EngineName,
    OutputColumn,
    Page,
    ScenarioFile,
    bytes_text,
    check_page,
    count_text,
    html_table,
    json_text,
    percent_text,
    plots_page,
    price_text,
    print_rows,
    progress,
    seconds_text,
    terminal,
    yes_text,
)
from outpace.errors import BindError, ScenarioError
from outpace.pattern.duration import parse_duration
from outpace.report.plots import curve, style
from outpace.simulate import read_scenario, simulate
from outpace.simulate.catalogue import Catalogue
from outpace.simulate.outcome import Interval, Repeated, RunSummary, is_random, outcome_of, repeat
from outpace.simulate.plan_target import LatencyTarget
from outpace.simulate.result import Result
from outpace.simulate.run import Engine
from outpace.simulate.scenario import Scenario
from outpace.simulate.scenario_file import machines_of, read_catalogue
from outpace.simulate.what_if import WhatIf, what_if

_Number = TypeVar("_Number", int, float)

_COLUMNS: Final[Mapping[str, OutputColumn]] = {
    "machine": ("machine", str),
    "instances": ("instances", str),
    "rate": ("events/s", count_text),
    "latency": ("mean", seconds_text),
    "percentile": ("p99", seconds_text),
    "throughput": ("throughput/s", count_text),
    "loss": ("lost", percent_text),
    "utilisation": ("busiest VM", percent_text),
    "memory": ("memory", percent_text),
    "price": ("an hour", price_text),
    "keeps_up": ("keeps up", yes_text),
    "meets_target": ("meets target", yes_text),
}

#: The numbers of an outcome, as they are shown.
OUTCOMES: Final[Mapping[str, OutputColumn]] = {
    "latency": ("mean latency", seconds_text),
    "p50": ("p50", seconds_text),
    "p95": ("p95", seconds_text),
    "p99": ("p99", seconds_text),
    "throughput": ("throughput/s", count_text),
    "loss": ("lost", percent_text),
    "utilisation": ("busiest VM", percent_text),
    "memory": ("memory of a VM", bytes_text),
    "price": ("price of an hour", price_text),
}

CatalogueFile = Annotated[
    Path | None,
    typer.Option("--catalogue", help="Types of machines, a TOML file; those of the scenario's."),
]
Seeds = Annotated[
    int, typer.Option(min=1, max=1000, help="Runs with other seeds, for means with intervals.")
]


def what_if_command(
    scenario: ScenarioFile,
    rates: Annotated[str, typer.Option(help="Events a second, with commas: 500,1000,2000.")],
    machines: Annotated[
        str | None, typer.Option(help="Types of the catalogue, with commas; or all.")
    ] = None,
    instances: Annotated[str, typer.Option(help="Numbers of instances, with commas.")] = "1",
    catalogue: CatalogueFile = None,
    p99: Annotated[str | None, typer.Option(help='A latency to meet: "500 ms".')] = None,
    engine: EngineName = EngineChoice.AUTO,
    as_json: AsJson = False,
    page: Page = None,
) -> None:
    """Simulate a scenario at rates, on machines, with numbers of instances: all combinations."""
    asked = _numbers(rates, float, "--rates")
    counts = _numbers(instances, int, "--instances")
    read = read_scenario(scenario)
    types = catalogue_of(scenario, catalogue) if machines or catalogue else None
    chosen = [] if types is None else _named(types, machines)
    target = {} if p99 is None else {"target": LatencyTarget(_seconds(p99))}
    check_page(page)
    with progress("simulating") as on_simulation:
        found = what_if(
            read,
            asked,
            machines=chosen,
            instances=counts,
            engine=engine.engine,
            on_simulation=on_simulation,
            **target,
        )
    rows = [{**asdict(one.load), "machine": one.machine, "price": one.price} for one in found]
    hidden = {
        "machine": not types,
        "memory": not any(one.load.memory for one in found),
        "price": not any(one.price for one in found),
        "meets_target": p99 is None,
    }
    columns = {key: column for key, column in _COLUMNS.items() if not hidden.get(key)}
    if page is not None:
        plots = heat_maps(found)
        table = html_table("what if", columns, rows)
        page.write_text(plots_page(scenario.name, [], [table], plots), encoding="utf-8")
    if as_json:
        typer.echo(json_text({"rows": rows}))
        return
    print_rows(scenario.name, columns, rows, terminal())
    if page is not None:
        typer.echo(f"The page: {page}")


def heat_maps(found: Sequence[WhatIf]) -> list[tuple[str, go.Figure]]:
    """Return a map of the latency for each type of machine, by rate and number of instances.

    What does not keep up is crossed out: its latency is that of the run, and would grow in a longer
    one.
    """
    shown = [1000 * one.load.percentile for one in found if math.isfinite(one.load.percentile)]
    least, greatest = (math.log10(max(1e-6, f(shown))) if shown else 0.0 for f in (min, max))
    plots = []
    for machine in dict.fromkeys(one.machine for one in found):
        own = {(c.load.instances, c.load.rate): c for c in found if c.machine == machine}
        counts = list(dict.fromkeys(count for count, _ in own))
        rates = list(dict.fromkeys(rate for _, rate in own))
        cells = [[own[count, rate].load for rate in rates] for count in counts]
        plot = go.Figure(
            go.Heatmap(
                x=[f"{rate:,.6g}" for rate in rates],
                y=[f"{count:,}" for count in counts],
                z=[
                    [math.log10(max(1e-6, 1000 * min(c.percentile, 1e9))) for c in line]
                    for line in cells
                ],
                text=[
                    [seconds_text(c.percentile) + ("" if c.keeps_up else " ✗") for c in line]
                    for line in cells
                ],
                texttemplate="%{text}",
                hovertemplate="%{y} instances, %{x} events/s: %{text}<extra></extra>",
                colorscale="RdYlGn_r",
                zmin=least,
                zmax=max(greatest, least + 0.1),
                showscale=False,
            )
        )
        style(plot, "input rate of all instances (events/s)", "instances")
        plot.update_xaxes(type="category").update_yaxes(type="category")
        name = f" on {machine}" if machine else ""
        plots.append(
            (f"p99 latency{name}; ✗ does not keep up", plot.update_layout(showlegend=False))
        )
    return plots


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A scenario, a TOML file.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    seeds: Seeds = 1,
    engine: EngineName = EngineChoice.AUTO,
    as_json: AsJson = False,
    page: Page = None,
) -> None:
    """Simulate two scenarios, and show their results side by side with the differences."""
    scenarios = [read_scenario(path) for path in (first, second)]
    check_page(page)
    with progress("simulating") as on_simulation:
        runs = [repeated(one, seeds, engine.engine, on_simulation) for one in scenarios]
        results = [simulate(one, engine.engine) for one in scenarios]
    names = [str(first), str(second)] if first.name == second.name else [first.name, second.name]
    rows = compare_rows(runs[0], runs[1])
    columns: dict[str, OutputColumn] = {
        "quantity": ("", str),
        "first": (names[0], str),
        "second": (names[1], str),
        "difference": ("difference", str),
        "relative": ("", str),
    }
    by_query = _query_rows(results[0], results[1])
    headings = {key: columns[key] for key in ("first", "second", "difference", "relative")}
    query_columns: dict[str, OutputColumn] = {
        "query": ("query", str),
        "quantity": ("", str),
        **headings,
    }
    if page is not None:
        tables = [html_table("whole", columns, [_texts(row) for row in rows])]
        if by_query:
            shown = [_texts(row) for row in by_query]
            tables.append(html_table("queries", query_columns, shown))
        text = plots_page(" – ".join(names), [], tables, _over_time(names, results))
        page.write_text(text, encoding="utf-8")
    if as_json:
        typer.echo(json_text({"names": names, "whole": rows, "queries": by_query}))
        return
    print_rows("whole", columns, [_texts(row) for row in rows], terminal())
    if by_query:
        print_rows("queries", query_columns, [_texts(row) for row in by_query], terminal())
    if page is not None:
        typer.echo(f"The page: {page}")


def repeated(
    scenario: Scenario,
    seeds: int,
    engine: Engine | None,
    on_simulation: Callable[[int], None] = lambda _: None,
) -> Repeated:
    """Return so many runs with other seeds; where nothing is random, they are all the same."""
    if is_random(scenario) or seeds == 1:
        return repeat(scenario, seeds, engine=engine, on_simulation=on_simulation)
    return Repeated((outcome_of(simulate(scenario, engine)),) * seeds)


def compare_rows(first: Repeated, second: Repeated) -> list[dict[str, Any]]:
    """Return a row for each number of an outcome: both, and how much the second has more.

    Runs with the same number have the same seeds, so the interval is that of their differences.
    """
    rows = []
    for field in fields(RunSummary):
        pairs = [
            (getattr(a, field.name), getattr(b, field.name))
            for a, b in zip(first.outcomes, second.outcomes, strict=True)
        ]
        more = Interval.of([_difference(*pair) for pair in pairs])
        rows.append(_row(field.name, [Interval.of(one) for one in zip(*pairs, strict=True)], more))
    return rows


def _query_rows(first: Result, second: Result) -> list[dict[str, Any]]:
    """Return rows for the queries that both have."""
    tables = [
        {row["query"]: row for row in result.queries().to_pylist()} for result in (first, second)
    ]
    rows = []
    for query in tables[0]:
        for name in ("latency", "p99", "throughput", "loss"):
            if query in tables[1]:
                both = [table[query][name] for table in tables]
                intervals = [Interval(value, math.nan) for value in both]
                more = Interval(_difference(*both), math.nan)
                rows.append({"query": query, **_row(name, intervals, more)})
    return rows


def _row(name: str, both: Sequence[Interval], more: Interval) -> dict[str, Any]:
    mean = both[0].mean
    return {
        "quantity": name,
        "first": asdict(both[0]),
        "second": asdict(both[1]),
        "difference": asdict(more),
        "relative": more.mean / mean if mean and math.isfinite(mean) else math.nan,
    }


def _difference(one: float, other: float) -> float:
    return 0.0 if one == other else other - one


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    heading, shown = OUTCOMES[row["quantity"]]
    texts = {key: interval_text(row[key], shown) for key in ("first", "second", "difference")}
    relative = row["relative"]
    signed = "" if math.isnan(relative) or not relative else f"{100 * relative:+.3g} %"
    return {**row, **texts, "quantity": heading, "relative": signed}


def interval_text(interval: Mapping[str, float], shown: Callable[[Any], str]) -> str:
    """Return a mean with half of its interval.

    Examples
    --------
    >>> interval_text({"mean": -0.012, "half": 0.001}, seconds_text)
    '−12 ms ± 1 ms'
    """
    mean, half = interval["mean"], interval["half"]
    text = f"−{shown(-mean)}" if mean < 0 else shown(mean)
    return f"{text} ± {shown(half)}" if half > 0 else text


def _over_time(names: Sequence[str], results: Sequence[Result]) -> list[tuple[str, go.Figure]]:
    """Return plots of latency and throughput over time, a curve for each scenario."""
    latency, throughput = go.Figure(), go.Figure()
    for number, (name, result) in enumerate(zip(names, results, strict=True)):
        events = result.recording.consumer_events.sum(axis=1)
        delays = result.recording.consumer_delay.sum(axis=1)
        means = np.divide(delays, events, out=np.full(len(events), math.nan), where=events > 0)
        seconds = np.diff(result.times, prepend=0.0)
        latency.add_trace(curve(name, result.times.tolist(), (1000 * means).tolist(), number))
        throughput.add_trace(
            curve(name, result.times.tolist(), (events / seconds).tolist(), number)
        )
    style(latency, "time (s)", "mean latency (ms)")
    style(throughput, "time (s)", "events out (events/s)")
    return [("Latency", latency), ("Events that come out", throughput)]


def catalogue_of(scenario: Path, catalogue: Path | None) -> Catalogue:
    """Return the types of machines of a catalogue, or of the scenario's file."""
    found = machines_of(scenario) if catalogue is None else read_catalogue(catalogue)
    if found is None:
        raise ScenarioError(
            "there are no types of machines",
            where=scenario.name,
            hint="--catalogue machines.toml, or [[machines]] in the scenario",
        )
    return found


def _named(catalogue: Catalogue, names: str | None) -> list[Any]:
    if names is None or names.strip() == "all":
        return list(catalogue.machines)
    return [catalogue.machine(name.strip()) for name in names.split(",") if name.strip()]


def _numbers(text: str, kind: Callable[[str], _Number], where: str) -> list[_Number]:
    try:
        found = [kind(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found:
        raise BindError(f"'{text}' is not a list of numbers", where=where, hint="1,2,4")
    return found


def _seconds(p99: str) -> float:
    return parse_duration(p99, where="--p99").total_seconds()
