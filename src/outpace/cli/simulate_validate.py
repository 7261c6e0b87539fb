"""`outpace simulate validate`: what the simulator predicts for rates, beside new runs at them.

Exit code 0 if all predictions are within the bounds, 1 if one is not, 2 for what is wrong with the
scenario or the options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import plotly.graph_objects as go
import typer

from outpace.cli.simulate_calibrate import PACE, QUICK
from outpace.cli.simulate_measure import measuring_session, setting_of
from outpace.cli.simulate_output import (
    OutputColumn,
    count_text,
    html_table,
    json_text,
    percent_text,
    plots_page,
    print_rows,
    progress,
    seconds_text,
    terminal,
)
from outpace.errors import BindError
from outpace.report.plots import COLOURS, curve, style
from outpace.simulate.calibration.calibrated_scenario import batch_operator, read_calibrated
from outpace.simulate.calibration.compare import (
    LATENCY_BOUND,
    THROUGHPUT_BOUND,
    Comparison,
    Reading,
    capacity_of,
    compare,
    predict,
)
from outpace.simulate.calibration.procedure import measure_rates

#: The rates below overload, as parts of that at which batches end in time, and one beyond the knee.
BELOW: Final = (0.2, 0.4, 0.6, 0.8)
ABOVE: Final = 1.2
_BELOW_QUICK: Final = (0.3, 0.6)

#: The least rate that the others are parts of, as a part of the knee.
_IN_TIME_LEAST: Final = 0.1

#: The steps of a predicted curve.
_CURVE: Final = 30

_COLUMNS: Final[Mapping[str, OutputColumn]] = {
    "rate": ("events/s", count_text),
    "predicted_latency": ("latency predicted", seconds_text),
    "latency": ("measured", seconds_text),
    "latency_spread": ("spread", seconds_text),
    "latency_error": ("error", percent_text),
    "predicted_throughput": ("throughput predicted", count_text),
    "throughput": ("measured", count_text),
    "throughput_spread": ("spread", count_text),
    "throughput_error": ("error", percent_text),
    "runs": ("runs", str),
    "judged": ("", str),
}


def validate(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO", help="A file that `calibrate` has written.")
    ],
    rates: Annotated[
        str | None,
        typer.Option(
            help="Events a second, with commas; by default parts of what ends in time, and beyond."
        ),
    ] = None,
    repeat: Annotated[
        int | None, typer.Option(min=1, help="Runs of each rate; the median counts. 3.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rates, for a short time.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    page: Annotated[Path | None, typer.Option("--html", help="A file for a page with plots.")] = (
        None
    ),
) -> None:
    """Predict latency and throughput at several rates, and compare with new runs on Spark."""
    read, measured = read_calibrated(scenario)
    in_time, knee = capacity_of(read, batch_operator(read, scenario))
    below = _BELOW_QUICK if quick else BELOW
    # Where a batch costs more than the interval by itself, batches follow each other at any rate.
    limit = in_time if in_time > _IN_TIME_LEAST * knee else knee
    chosen = [part * limit for part in below] + [ABOVE * knee] if rates is None else _all(rates)
    if page is not None and (page.is_dir() or not page.absolute().parent.is_dir()):
        raise BindError(f"'{page}' cannot be written", where="--html", hint="name a file")
    setting = setting_of(measured, scenario.parent)
    pace = QUICK if quick else PACE
    wanted = [(rate, rate > limit) for rate in chosen]
    times = repeat or (1 if quick else 3)
    with measuring_session(measured.cores) as session, progress(measured.name) as on_progress:
        readings = measure_rates(session, setting, pace, wanted, times, on_progress)
    rows = [
        compare(read, overload, own, pace.seconds if overload else None)
        for own, (_, overload) in zip(readings, wanted, strict=True)
    ]
    within = all(row.within for row in rows)
    if page is not None:
        predicted = [
            predict(read, rate, pace.seconds if rate > limit else None)
            for rate in _between([row.rate for row in rows])
        ]
        page.write_text(_page(scenario.name, rows, predicted, (in_time, knee)), encoding="utf-8")
    if as_json:
        shown = [_fields(row) for row in rows]
        typer.echo(json_text({"knee": knee, "in_time": in_time, "within": within, "rows": shown}))
    else:
        console = terminal()
        print_rows(
            f"{measured.name}: predicted and measured", _COLUMNS, map(_fields, rows), console
        )
        console.print(_answer(rows, in_time, knee), highlight=False, markup=False, soft_wrap=True)
        if page is not None:
            typer.echo(f"The page: {page}")
    if not within:
        raise typer.Exit(1)


def _all(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or not all(0 < rate < float("inf") for rate in found):
        raise BindError(f"'{text}' is not a list of rates", where="--rates", hint="1000,50000")
    return found


def _fields(row: Comparison) -> dict[str, Any]:
    judged = "within" if row.within else "outside"
    return {
        **asdict(row),
        "latency_error": row.latency_error,
        "throughput_error": row.throughput_error,
        "judged": f"{judged}, overload" if row.overload else judged,
    }


def _answer(rows: Sequence[Comparison], in_time: float, knee: float) -> str:
    outside = sum(not row.within for row in rows)
    bounds = (
        f"throughput within {percent_text(THROUGHPUT_BOUND)}, below overload latency within "
        f"{percent_text(LATENCY_BOUND)}"
    )
    verdict = "all within the bounds" if not outside else f"{outside} outside the bounds"
    return (
        f"Of {len(rows)} rates, {verdict} ({bounds}). A batch ends before the next is due up to "
        f"{count_text(in_time)} events/s, and it keeps up with {count_text(knee)} (the knee)."
    )


def _between(rates: Sequence[float]) -> list[float]:
    """Return the rates of a curve, from the least to the greatest of those that were measured.

    Examples
    --------
    >>> found = _between([100.0, 400.0])
    >>> found[0], found[-1], len(found)
    (100.0, 400.0, 31)
    """
    least, step = min(rates), (max(rates) - min(rates)) / _CURVE
    return [least + number * step for number in range(_CURVE + 1)]


def _page(
    title: str,
    rows: Sequence[Comparison],
    predicted: Sequence[Reading],
    capacity: tuple[float, float],
) -> str:
    table = html_table("predicted and measured", _COLUMNS, [_fields(row) for row in rows])
    plots = compare_plots(rows, predicted, capacity[1])
    return plots_page(title, [_answer(rows, *capacity)], [table], plots)


def compare_plots(
    rows: Sequence[Comparison], predicted: Sequence[Reading], knee: float
) -> list[tuple[str, go.Figure]]:
    """Return the plots with their titles; measured values have bars of their spread.

    Parameters
    ----------
    rows
        What was measured, beside what was predicted for it.
    predicted
        Predictions for many rates, which make the curve.
    knee
        The greatest rate that the query keeps up with.

    Examples
    --------
    >>> row = Comparison(1000, False, 1.6, 1.5, 0.1, 1000, 1010, 20, 3)
    >>> [title for title, _ in compare_plots([row], [Reading(1000, 1.6, 1000)], 2000)]
    ['Latency', 'Throughput', 'Error']
    """
    rates, places = [row.rate for row in rows], [reading.rate for reading in predicted]
    latency = _plot(
        curve("predicted", places, [1000 * reading.latency for reading in predicted], 0),
        curve("measured", rates, [1000 * row.latency for row in rows], 1),
        [500 * row.latency_spread for row in rows],
        "mean latency (ms)",
    )
    throughput = _plot(
        curve("predicted", places, [reading.throughput for reading in predicted], 0),
        curve("measured", rates, [row.throughput for row in rows], 1),
        [row.throughput_spread / 2 for row in rows],
        "throughput (events/s)",
    )
    plots = [("Latency", latency), ("Throughput", throughput), ("Error", _errors(rows))]
    for _, plot in plots:
        plot.add_vline(
            x=knee,
            line={"color": "#64748b", "dash": "dot", "width": 1},
            annotation_text="knee",
            annotation_position="top left",
        )
    return plots


def _plot(
    predicted: go.Scatter, measured: go.Scatter, half_spread: Sequence[float], unit: str
) -> go.Figure:
    predicted.update(mode="lines")
    measured.update(mode="markers", error_y={"type": "data", "array": list(half_spread)})
    return style(go.Figure([predicted, measured]), "input rate (events/s)", unit)


def _errors(rows: Sequence[Comparison]) -> go.Figure:
    rates = [row.rate for row in rows]
    plot = go.Figure(
        [
            curve("latency", rates, [100 * row.latency_error for row in rows], 0),
            curve("throughput", rates, [100 * row.throughput_error for row in rows], 1),
        ]
    )
    style(plot, "input rate (events/s)", "predicted above measured (%)")
    for bound, colour in ((LATENCY_BOUND, COLOURS[0]), (THROUGHPUT_BOUND, COLOURS[1])):
        for side in (-100 * bound, 100 * bound):
            plot.add_hline(y=side, line={"color": colour, "dash": "dash", "width": 1})
    return plot.update_yaxes(rangemode="normal")
