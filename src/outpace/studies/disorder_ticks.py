"""Real ticks of stocks through reorderers: how long events wait, and how many are lost.

`Punctuation` goes by what is told: by somebody who knows which ticks are still to come, so it shows
what order costs at the least. Left out is `Speculative`, which loses what the K-slack in it does.

A file of ticks is CSV, maybe compressed, with the columns `price` and `stock_time_ms`, in the
order in which ticks were recorded. Nobody wrote down when: a tick arrives at the latest time of
those up to it, and a microsecond after the one before it at the earliest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from outpace.errors import DataError
from outpace.pattern.disorder import (
    LDOP,
    AQKSlack,
    Disorder,
    KSlack,
    MPKSlack,
    Punctuation,
    Quantile,
    Sequence,
)
from outpace.studies import disorder_figures as figures
from outpace.studies.disorder_runs import OrderedRun, run_order
from outpace.studies.disorder_stream import ARRIVED, disordered
from outpace.studies.report import Row

#: Steps of the clock, in microseconds.
_STEP: Final = 10_000

#: How often the time of ticks is told, in milliseconds.
_TOLD: Final = (10, 1000)

_COLUMNS: Final = ("stock_time_ms", "price")

#: Reorderers by family, each with what tells it from the others of its family.
TRIED: Final[dict[str, dict[str, Disorder]]] = {
    "K-slack": {
        f"K = {slack} ms": KSlack(slack, arrival=ARRIVED) for slack in (890, 800, 600, 300, 100, 0)
    },
    "MP-K-slack": {
        "": MPKSlack(arrival=ARRIVED),
        "at most 1 s": MPKSlack(at_most=1000, arrival=ARRIVED),
    },
    "Quantile": {
        f"share {share}": Quantile(share, arrival=ARRIVED) for share in (0.9, 0.99, 0.999, 0.9999)
    },
    "AQ-K-slack": {
        f"error {error}, at most 1 s": AQKSlack(
            error=error,
            aggregate="sum",
            column="price",
            window=1000,
            proportional=1.0,
            derivative=1.0,
            at_most=1000,
            arrival=ARRIVED,
        )
        for error in (0.1, 0.01, 0.001)
    },
    "LDOP": {
        f"factor {factor}": LDOP(window=60_000, low=factor, high=factor, arrival=ARRIVED)
        for factor in (1, 2, 3)
    },
    "Sequence": {
        **{
            f"at least {least} ms": Sequence("1 s", at_least=f"{least} ms", arrival=ARRIVED)
            for least in (100, 300, 600, 890)
        },
        "as it is": Sequence("1 s", arrival=ARRIVED),
    },
}


def ticks(path: Path, most: int | None = None) -> Iterator[Row]:
    """Bring ticks into order with each reorderer.

    Parameters
    ----------
    path
        The file.
    most
        How many of its ticks are taken at most; by default all.
    """
    stream = read_ticks(path, most)
    name, count = figures.TICKS.name, stream.num_rows
    yield Row(name, "ticks", count, "events")
    yield Row(name, "ticks out of order", disordered(stream["ts"].to_numpy()), "events")
    for family, settings in TRIED.items():
        for words, disorder in settings.items():
            run = run_order(disorder, [stream], time="ts", step=_STEP)
            setting = ", ".join(filter(None, (family, words)))
            yield from _shown(setting, family, run, count)
    for every in _TOLD:
        told = Punctuation(arrival=ARRIVED)
        run = run_order(told, [stream], time="ts", step=_STEP, told=every * 1000)
        yield from _shown(f"Punctuation, told every {every} ms", "Punctuation", run, count)


def _shown(setting: str, family: str, run: OrderedRun, count: int) -> Iterator[Row]:
    """Return the rows of a run over so many ticks."""
    lost = 100 * run.late / count
    yield Row(figures.TICKS.name, f"{setting}: latency", run.latency, "ms", None, family, lost)
    yield Row(figures.TICKS.name, f"{setting}: late", run.late, "events")


def read_ticks(path: Path, most: int | None = None, also: tuple[str, ...] = ()) -> pa.Table:
    """Return ticks as they arrive: times in milliseconds, arrivals in microseconds.

    Parameters
    ----------
    path
        The file.
    most
        How many are read at most.
    also
        More columns of the file.

    Raises
    ------
    DataError
        The file is none of ticks.
    """
    try:
        rows = csv.read_csv(path)
        rows = rows.select([*_COLUMNS, *also]).slice(0, most)
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        raise DataError(
            f"{path} is no file of ticks",
            detail=str(error),
            hint=f"it is CSV with the columns {', '.join(('price', 'stock_time_ms', *also))}",
        ) from None
    times = rows["stock_time_ms"].to_numpy()
    # Numbered as if by who sent them, in the order of their times.
    number = np.zeros(len(times), np.int64)
    row = np.arange(len(times))
    number[np.argsort(times, kind="stable")] = row
    arrived = np.maximum.accumulate(np.maximum.accumulate(times) * 1000 - row) + row
    columns = {"ts": times, ARRIVED: arrived, "seq": number}
    return pa.table(columns | {name: rows[name] for name in ("price", *also)})
