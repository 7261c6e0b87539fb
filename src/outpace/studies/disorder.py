"""The study `disorder`: the experiments of a thesis on streams out of order, and one on real ticks.

`SOURCE` in `disorder_figures` names it. Latencies are in event time, on a clock that only the
stream moves, so they are the same on every machine; see `disorder_runs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.pattern.disorder import AQKSlack, Disorder, MPKSlack, Sequence
from outpace.studies import disorder_figures as figures
from outpace.studies.disorder_clocks import drifting, patterns, windows
from outpace.studies.disorder_figures import COVERAGE, GREATEST, SEQUENCE
from outpace.studies.disorder_runs import OrderedRun, run_order, shifted
from outpace.studies.disorder_stream import (
    ARRIVED,
    KICKOFF,
    PICOSECONDS,
    PROFILES,
    RATE,
    Profile,
    arriving,
    disordered,
    football,
)
from outpace.studies.disorder_ticks import ticks
from outpace.studies.report import Experiment, Figure, Row, Study

#: Microseconds in a millisecond, and picoseconds in a second.
_MILLISECOND: Final = 1000
_SECOND: Final = 1_000_000 * PICOSECONDS

#: Windows of AQ-K-slack: as long as 10 000 events take.
_BATCH: Final = 10_000 * _SECOND // RATE

#: What a source adds to the times of the one before it (section 5.1.2), in microseconds.
_APART: Final = 3 * _MILLISECOND

#: What a reorderer of the study reads.
_COLUMNS: Final = ("ts", ARRIVED, "seqNum", "v_abs")

_BY_NUMBER: Final = Sequence("500 ms", number="seqNum", arrival=ARRIVED)
_BY_DELAY: Final = MPKSlack(arrival=ARRIVED)
_BY_COVERAGE: Final = AQKSlack(
    error=0.03,
    aggregate="sum",
    column="v_abs",
    window=_BATCH,
    proportional=0.5,
    derivative=0.8,
    arrival=ARRIVED,
)

#: Sequence with the settings of the paper, and AQ-K-slack that is not told how late events usually
#: are.
OTHER_SETTINGS: Final[dict[str, Disorder]] = {
    f"{SEQUENCE} with the paper's settings": replace(
        _BY_NUMBER, alpha=0.6, beta=0.6, deviations=2.0
    ),
    f"{COVERAGE} without a least K, error of 3 %": _BY_COVERAGE,
    f"{COVERAGE} without a least K, error of 0.03 %": replace(_BY_COVERAGE, error=0.0003),
}

#: Sequence that lets late events pass, as the paper does where clocks are off.
_PASSING: Final = replace(_BY_NUMBER, late="pass")


@dataclass(frozen=True, slots=True)
class DisorderScale:
    """How much the study does.

    Parameters
    ----------
    parts
        Which part of the events of each dataset.
    step, source_step, clock_step
        Steps of the clock, in milliseconds: with one source, with several, and where their clocks
        are off.
    sources
        Their numbers, beyond one.
    drifts
        How far the clock of a source is off, in milliseconds; see `PAPER_DRIFTS`.
    window, short_window
        The length of windows: in milliseconds, and of many more of them in microseconds.
    ticks
        How many ticks are taken at most.
    """

    parts: tuple[float, float, float]
    step: int
    source_step: int
    clock_step: int
    sources: tuple[int, ...]
    drifts: tuple[int, ...]
    window: int
    short_window: int
    ticks: int | None


QUICK: Final = DisorderScale(
    parts=(0.15, 0.05, 0.05),
    step=5,
    source_step=20,
    clock_step=100,
    sources=(2,),
    drifts=(0, 5, 3_600_000),
    window=500,
    short_window=33_700,
    ticks=2000,
)
WHOLE: Final = DisorderScale(
    parts=(1, 1, 1),
    step=1,
    source_step=10,
    clock_step=50,
    sources=(2, 5, 10, 20),
    drifts=tuple(figures.PAPER_DRIFTS),
    window=10_000,
    short_window=103_700,
    ticks=None,
)


def disorder_study(scale: DisorderScale, ticks_path: Path | None = None) -> Study:
    """Return the study with its experiments set to a scale.

    Parameters
    ----------
    scale
        How much it does.
    ticks_path
        A file of ticks; see `disorder_ticks`. Without it they are left out.
    """
    profiles = [one.scaled(part) for one, part in zip(PROFILES, scale.parts, strict=True)]
    step, source_step = scale.step * _MILLISECOND, scale.source_step * _MILLISECOND
    experiments: list[tuple[str, Experiment]] = [
        ("5.1 the datasets", partial(datasets, profiles)),
        *(
            (f"5.2.2.1 {profile.name}", partial(single_source, profile, step))
            for profile in profiles
        ),
        *(
            (f"5.2.2.2 sources: {count}", partial(many_sources, profiles[-1], count, source_step))
            for count in scale.sources
        ),
        *(
            (
                f"5.2.2.3 {figures.PAPER_DRIFTS[drift][0]} off",
                partial(drifted, profiles[-1], drift, scale.clock_step * _MILLISECOND),
            )
            for drift in scale.drifts
        ),
        ("5.2.3.1 windows", partial(averaged, profiles[-1], scale)),
        ("5.2.3.2 patterns", patterns),
    ]
    shown: tuple[Figure, ...] = figures.FIGURES
    if ticks_path is not None:
        experiments.append(("real ticks", partial(ticks, ticks_path, scale.ticks)))
        shown = (*shown, figures.TICKS)
    return Study(
        name="disorder",
        title="Streams out of order",
        source=figures.SOURCE,
        figures=shown,
        experiments=tuple(experiments),
        place="table",
    )


def reorderers(profile: Profile) -> dict[str, Disorder]:
    """Return the reorderers with the settings of the study, for a dataset."""
    return {
        SEQUENCE: _BY_NUMBER,
        GREATEST: _BY_DELAY,
        COVERAGE: replace(_BY_COVERAGE, at_least=int(profile.usual * _MILLISECOND * PICOSECONDS)),
    }


@cache
def stream_of(profile: Profile) -> pa.Table:
    """Return the columns of a dataset that a reorderer reads, as its events arrive."""
    return arriving(football(profile.events), profile).select(_COLUMNS)


def datasets(profiles: list[Profile]) -> Iterator[Row]:
    """Say how far the events of each dataset are out of order."""
    for profile, whole in zip(profiles, PROFILES, strict=True):
        stream, name = stream_of(profile), profile.name
        times = stream["ts"].to_numpy()
        table = figures.DATASETS.name
        yield Row(table, f"{name}: all", len(times), "events", whole.events, "all", name)
        found = disordered(times)
        words = f"{name}: out of order"
        yield Row(table, words, found, "events", whole.disordered, "out of order", name)
        happened = (times - KICKOFF) // PICOSECONDS
        delays = (stream[ARRIVED].to_numpy() - happened) / _MILLISECOND
        late, figure = delays > 0, figures.DELAYS.name
        said = figures.PAPER_DELAYS[name]
        yield Row(figure, f"{name}: average delay", float(delays[late].mean()), "ms", said[0])
        yield Row(figure, f"{name}: greatest delay", float(delays.max()), "ms", said[1])
        seconds = happened // 1_000_000
        for second in np.unique(seconds).tolist():
            greatest = float(delays[seconds == second].max())
            setting = f"{name}: second {second}"
            yield Row(figure, setting, greatest, "ms", None, name, second)


def single_source(profile: Profile, step: int) -> Iterator[Row]:
    """Bring a dataset into order with each reorderer."""
    stream, name = stream_of(profile), profile.name
    count = disordered(stream["ts"].to_numpy())
    runs = {
        kind: run_order(disorder, [stream], time="ts", step=step)
        for kind, disorder in reorderers(profile).items()
    }
    if name == PROFILES[0].name:
        yield from _first_dataset(runs, count)
    if name == PROFILES[-1].name:
        yield from _of_sources(1, runs, count)
    for kind, run in runs.items():
        latency, accuracy = figures.PAPER_DATASETS[name][kind]
        setting = f"{name}, {kind}"
        yield Row(figures.LATENCIES.name, setting, run.latency, "ms", latency, kind, name)
        found = run.accuracy(count)
        yield Row(figures.ACCURACIES.name, setting, found, "%", accuracy, kind, name)
    for kind in (GREATEST, COVERAGE):
        papers = figures.PAPER_DATASETS[name]
        ratio = papers[kind][0] / papers[SEQUENCE][0]
        found = runs[kind].latency / runs[SEQUENCE].latency
        setting = f"{name}, {kind} to {SEQUENCE}"
        yield Row(figures.LATENCIES.name, setting, found, "times", ratio)
    for words, disorder in OTHER_SETTINGS.items():
        run = run_order(disorder, [stream], time="ts", step=step)
        table, setting = figures.OTHERS.name, f"{name}, {words}"
        yield Row(table, setting, run.accuracy(count), "%", None, words, name)
        yield Row(table, f"{setting}: latency", run.latency, "ms")


def _first_dataset(runs: dict[str, OrderedRun], count: int) -> Iterator[Row]:
    """Tables 5.4 and 5.5 and figure 5.7; so many events are out of order."""
    for kind, run in runs.items():
        average, greatest = figures.PAPER_LATENCY[kind]
        table = figures.LATENCY.name
        yield Row(table, f"{kind}: average", run.latency, "ms", average, "average", kind)
        found = run.greatest_latency
        yield Row(table, f"{kind}: greatest of a second", found, "ms", greatest, "greatest", kind)
        left, accuracy = figures.PAPER_LEFT
        yield Row(figures.LEFT.name, kind, run.late, "events", left, "late", kind)
        yield Row(figures.LEFT.name, f"{kind}: accuracy", run.accuracy(count), "%", accuracy)
        for second, latency in run.latencies():
            setting = f"{kind}: second {second}"
            yield Row(figures.OVER_TIME.name, setting, latency, "ms", None, kind, second)


def many_sources(profile: Profile, sources: int, step: int) -> Iterator[Row]:
    """Bring the events of several sources into one order, with each reorderer."""
    stream = stream_of(profile)
    apart = _sources(stream, sources)
    runs = {
        kind: run_order(disorder, apart, time="ts", step=step, apart=kind == SEQUENCE)
        for kind, disorder in reorderers(profile).items()
    }
    yield from _of_sources(sources, runs, sources * disordered(stream["ts"].to_numpy()))


def _of_sources(sources: int, runs: dict[str, OrderedRun], count: int) -> Iterator[Row]:
    """Tables 5.8 and 5.9; so many events are out of order."""
    for kind, run in runs.items():
        latency, accuracy = figures.PAPER_SOURCES[sources][kind]
        setting = f"{sources} {'source' if sources == 1 else 'sources'}, {kind}"
        yield Row(figures.SOURCES_LATENCY.name, setting, run.latency, "ms", latency, kind, sources)
        found = run.accuracy(count)
        yield Row(figures.SOURCES_ACCURACY.name, setting, found, "%", accuracy, kind, sources)


def drifted(profile: Profile, drift: int, step: int) -> Iterator[Row]:
    """Bring two sources into one order, of which one has a clock that is off."""
    return drifting(_PASSING, _sources(stream_of(profile), 2), drift, step)


def averaged(profile: Profile, scale: DisorderScale) -> Iterator[Row]:
    """Average over windows where the clock of one of two sources is measured wrongly."""
    sources = _sources(stream_of(profile), 2)
    return windows(_PASSING, sources, scale.window * _MILLISECOND, scale.short_window)


def _sources(stream: pa.Table, count: int) -> list[pa.Table]:
    """Return the same events of several sources, each a little behind the one before it."""
    return [
        shifted(stream, ts=number * _APART * PICOSECONDS, arrived=number * _APART)
        for number in range(count)
    ]
