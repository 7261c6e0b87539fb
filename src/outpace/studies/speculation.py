"""The study `speculation`: the experiments of a thesis on checkpoints, and two of its own.

`SOURCE` in `speculation_figures` names it. Instances are simulated, real parts of the engine are
not: see `speculation_runs`. What processes and real ticks say comes last.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.pattern.checkpoints import (
    Adaptive,
    CheckpointModel,
    Every,
    EverySpeculative,
    LeastWork,
)
from outpace.pattern.disorder import Disorder, KSlack, MPKSlack, Speculative
from outpace.studies import speculation_figures as figures
from outpace.studies.report import Experiment, Figure, Row, Study
from outpace.studies.speculation_black_box import BlackBoxHost
from outpace.studies.speculation_figures import counted
from outpace.studies.speculation_processes import processes
from outpace.studies.speculation_runs import (
    K_SLACK,
    SPECULATION,
    TURN_S,
    MeasuredCosts,
    RunSetting,
    SpeculationRun,
    VirtualHost,
    able_rate,
)
from outpace.studies.speculation_stream import APART, SEED, SLACK, SOURCES, DelayRamp, stream_of
from outpace.studies.speculation_ticks import ticks

#: Events in a second where throughput is measured, and where latency is, of what could be done.
_FLOOD: Final = 1e6 / APART
_OFFERED: Final = 0.5
#: The part of a run in which it is steady again, and how many points a curve has.
_STEADY: Final = (0.8, 0.97)
_POINTS: Final = 40
#: The checkpoints of section 7.6.4.
_EVERY: Final = 50

#: Factors for ticks, which are compared with the checkpoints of the default, too.
_EARLY_ALPHAS: Final = (0.8, 0.4, 0.0)
#: Those with which it is measured what steps take.
_MEASURED_ALPHAS: Final = (1.0, *_EARLY_ALPHAS)

BLACK_BOX: Final = "black box"
ADAPTIVE, DEFAULT = "adaptive", "default"
SPECULATIVE = f"every {_EVERY} speculative"


@dataclass(frozen=True, slots=True)
class SpeculationScale:
    """How much the study does.

    Parameters
    ----------
    size, slide
        Windows, in events.
    events
        Of a run with one instance on the clock of the study.
    instances
        Their numbers.
    alphas
        The speculation factors beside the adaptive one.
    intervals
        Events between checkpoints.
    interval_instances
        Numbers of instances with which these are compared.
    streams
        How many streams show whether 20 % speculation is above 100 %.
    single
        Events of a run of the black box.
    processes
        Numbers of instances in processes, as long as there are cores.
    process_events, process_batch, repeats
        Events of a run with processes, how many come at once, and how often it is measured.
    ticks
        How many ticks are taken at most.
    """

    size: int
    slide: int
    events: int
    instances: tuple[int, ...]
    alphas: tuple[float, ...]
    intervals: tuple[int, ...]
    interval_instances: tuple[int, ...]
    streams: int
    single: int
    processes: tuple[int, ...]
    process_events: int
    process_batch: int
    repeats: int
    ticks: int

    def events_of(self, instances: int) -> int:
        """Return how many events a run has; more for more instances."""
        return round(self.events * math.sqrt(instances))

    def setting(self, disorder: Disorder, instances: int, rate: float) -> RunSetting:
        """Return what runs, with so many events in a second."""
        return RunSetting(disorder, self.size, self.slide, instances, rate)

    def able(self, instances: int) -> float:
        """Return the events in a second that so many instances can do at most."""
        return able_rate(self.size, self.slide, instances)

    def ramp(self, instances: int) -> DelayRamp:
        """Return the delays of figure 7-1 for the events from a tenth to a third of a run."""
        span = self.events_of(instances) * APART
        begin, end = span // 10, span // 3
        return DelayRamp(begin, end, every=-(-(end - begin) // 18))

    def stream(self, instances: int, *, late: bool, seed: int = SEED) -> pa.Table:
        """Return events, in order or with the delays of figure 7-1."""
        ramp = self.ramp(instances) if late else None
        return stream_of(self.events_of(instances), ramp, seed=seed)


QUICK: Final = SpeculationScale(
    size=500,
    slide=100,
    events=1500,
    instances=(1, 16),
    alphas=(1.0, 0.8, 0.0),
    intervals=(5, 50, 500),
    interval_instances=(1,),
    streams=2,
    single=30,
    processes=(1,),
    process_events=200_000,
    process_batch=8000,
    repeats=3,
    ticks=200,
)
WHOLE: Final = SpeculationScale(
    size=2000,
    slide=400,
    events=12_000,
    instances=(1, 2, 4, 8, 16),
    alphas=(1.0, 0.8, 0.6, 0.4, 0.2, 0.0),
    intervals=(1, 5, 10, 50, 100, 500, 1000, 5000),
    interval_instances=(1, 2, 4, 8, 16),
    streams=5,
    single=300,
    processes=(1, 2, 4, 8, 16),
    process_events=1_000_000,
    process_batch=20_000,
    repeats=5,
    ticks=10_000,
)


def speculation_study(scale: SpeculationScale, ticks_path: Path | None = None) -> Study:
    """Return the study with its experiments set to a scale.

    Parameters
    ----------
    scale
        How much it does.
    ticks_path
        A file of ticks; see `speculation_ticks`. Without it they are left out.
    """
    cores = [count for count in scale.processes if count <= (os.cpu_count() or 1)]
    experiments: list[tuple[str, Experiment]] = [
        ("7.6.1 to 7.6.3", partial(compared, scale)),
        *((f"7.6.4 {counted(count)}", partial(factors, scale, count)) for count in scale.instances),
        *(
            (f"7.6.5 {counted(count)}", partial(intervals, scale, count))
            for count in scale.interval_instances
        ),
        (
            "processes",
            partial(processes, cores, scale.process_events, scale.process_batch, scale.repeats),
        ),
    ]
    shown: list[Figure] = [
        figures.THROUGHPUT,
        figures.LATENCY,
        figures.SPECULATION,
        figures.SPECULATION_LATENCY,
        figures.DISORDERED,
        *(figures.FACTORS[count] for count in scale.instances),
        *(figures.INTERVALS[count] for count in scale.interval_instances),
        figures.PROCESSES,
    ]
    if ticks_path is not None:
        experiments.append(("real ticks", partial(ticks, ticks_path, _EARLY_ALPHAS, scale.ticks)))
        shown.append(figures.TICKS)
    return Study(
        name="speculation",
        title="Speculation with checkpoints in memory",
        source=figures.SOURCE,
        figures=tuple(shown),
        experiments=tuple(experiments),
    )


def compared(scale: SpeculationScale) -> Iterator[Row]:
    """Figures 7-3 to 7-7: K-slack, speculation and the black box by the number of instances."""
    single = stream_of(scale.single)
    # What is needed is loaded and warm before anything counts.
    warm = stream_of(300, DelayRamp(0, 3000, every=160))
    _run(scale, Speculative(SLACK, alpha=0.0), 1, warm)
    for count in scale.instances:
        ordered, late = (scale.stream(count, late=late) for late in (False, True))
        kinds: dict[str, Disorder] = {
            K_SLACK: KSlack(SLACK),
            SPECULATION: Speculative(SLACK, alpha=0.0),
        }
        flooded = {kind: scale.setting(one, count, _FLOOD) for kind, one in kinds.items()}
        rates = {
            kind: VirtualHost(one, ordered).drive().throughput for kind, one in flooded.items()
        }
        rates[BLACK_BOX] = BlackBoxHost(flooded[SPECULATION], single).drive().throughput
        yield from _throughputs(count, rates)
        usual = {kind: _run(scale, one, count, ordered) for kind, one in kinds.items()}
        slow = scale.setting(kinds[SPECULATION], count, _OFFERED * rates[BLACK_BOX])
        box = BlackBoxHost(slow, single).drive()
        yield from _latencies(count, {**usual, BLACK_BOX: box})
        value = steady(_run(scale, MPKSlack(), count, late))
        words, said = counted(count), "higher than without late events"
        yield Row(figures.DISORDERED.name, words, value, "ms", said, K_SLACK, count)
        value = steady(_run(scale, MPKSlack(), count, ordered))
        words = f"{words}, no late events"
        yield Row(figures.DISORDERED.name, words, value, "ms", None, "no late events", count)


def _throughputs(count: int, rates: dict[str, float]) -> Iterator[Row]:
    """Figures 7-3 and 7-5."""
    name, unit, words = figures.SPECULATION.name, "events/s", counted(count)
    rises = "rises linearly"
    yield Row(figures.THROUGHPUT.name, words, rates[K_SLACK], unit, rises, K_SLACK, count)
    for kind, said in ((K_SLACK, None), (SPECULATION, rises), (BLACK_BOX, "the same for all")):
        yield Row(name, f"{words}, {kind}", rates[kind], unit, said, kind, count)
    ratio = rates[SPECULATION] / rates[K_SLACK]
    yield Row(name, f"{words}, speculation to K-slack", ratio, "ratio", "almost the same")
    ratio = rates[SPECULATION] / rates[BLACK_BOX]
    yield Row(name, f"{words}, speculation to the black box", ratio, "ratio", "far above")


def _latencies(count: int, runs: dict[str, SpeculationRun]) -> Iterator[Row]:
    """Figures 7-4 and 7-6."""
    name, words = figures.SPECULATION_LATENCY.name, counted(count)
    value = steady(runs[K_SLACK])
    yield Row(figures.LATENCY.name, words, value, "ms", "rises linearly", K_SLACK, count)
    for kind, run in runs.items():
        value = steady(run)
        yield Row(name, f"{words}, {kind}, tentative", value, "ms", None, kind, count)
    value = steady(runs[SPECULATION], confirmed=True)
    yield Row(name, f"{words}, {SPECULATION}, confirmed", value, "ms", None, "confirmed", count)


def factors(scale: SpeculationScale, count: int) -> Iterator[Row]:
    """Figures 7-8 to 7-12: speculation factors where events are late for a while."""
    figure, late = figures.FACTORS[count].name, scale.stream(count, late=True)
    ordered = _run(scale, MPKSlack(), count, scale.stream(count, late=False))
    yield from _over_time(figure, "K-slack, no late events", ordered)
    runs: dict[str, SpeculationRun] = {}
    costs = MeasuredCosts()
    for measured in _MEASURED_ALPHAS:
        _run(scale, Speculative(alpha=measured, checkpoints=_EVERY), count, late, costs)
        _run(scale, Speculative(alpha=measured), count, late, costs)
    costs.settle()
    for alpha in (*scale.alphas, None):
        words = ADAPTIVE if alpha is None else f"{100 * (1 - alpha):.0f} %"
        disorder = Speculative(alpha=alpha, checkpoints=_EVERY)
        runs[words] = run = _run(scale, disorder, count, late, costs)
        yield from _over_time(figure, words, run)
        yield Row(figure, f"{words}: steady, confirmed", steady(run, confirmed=True), "ms")
        yield Row(figure, f"{words}: went back", run.corrections, "times")
        yield Row(figure, f"{words}: went on once more", run.again, "events")
        yield Row(figure, f"{words}: taken back", run.retracted, "matches")
    falls = steady(runs["100 %"]) / steady(runs["0 %"])
    yield Row(figure, "100 % to 0 %: steady", falls, "ratio", "below 1")
    most = max(steady(run) for words, run in runs.items() if words != "0 %")
    most /= steady(runs["0 %"])
    yield Row(figure, "any speculation to 0 %: steady, at most", most, "ratio", "below 1")
    early = (_run(scale, Speculative(alpha=one), count, late, costs) for one in _EARLY_ALPHAS)
    most = max(map(steady, early)) / steady(runs["0 %"])
    words = "the same with the checkpoints of the default"
    yield Row(figure, words, most, "ratio", "below 1")
    shares = [peak(runs["20 %"]) / peak(runs["100 %"])]
    for seed in range(SEED + 1, SEED + scale.streams):
        other = scale.stream(count, late=True, seed=seed)
        little, much = (
            peak(_run(scale, Speculative(alpha=alpha, checkpoints=_EVERY), count, other, costs))
            for alpha in (0.8, 0.0)
        )
        shares.append(little / much)
    named = {
        "peak": shares[0],
        f"peak, least of {scale.streams} streams": min(shares),
        f"peak, most of {scale.streams} streams": max(shares),
    }
    there = "below 1" if count < 4 else "above"
    for words, share in named.items():
        yield Row(figure, f"20 % to 100 %: {words}", share, "ratio", there)
    backs = runs["20 %"].corrections / max(1, runs["100 %"].corrections)
    yield Row(figure, "20 % to 100 %: went back", backs, "ratio")
    down = steady(runs["20 %"]) / peak(runs["20 %"])
    said = "1: it rises all the time" if count == 16 else None
    yield Row(figure, "20 %: steady to its peak", down, "ratio", said)


def intervals(scale: SpeculationScale, count: int) -> Iterator[Row]:
    """Figures 7-13 to 7-17: intervals of checkpoints with adaptive speculation."""
    figure, late = figures.INTERVALS[count].name, scale.stream(count, late=True)
    models: dict[str, CheckpointModel] = {
        **{f"every {every:,}": Every(every) for every in scale.intervals},
        SPECULATIVE: EverySpeculative(_EVERY),
        ADAPTIVE: Adaptive(),
        DEFAULT: LeastWork(),
    }
    costs, peaks = MeasuredCosts(), dict[str, float]()
    for measured in (Every(_EVERY), LeastWork()):
        _run(scale, Speculative(checkpoints=measured), count, late, costs)
    costs.settle()
    for words, model in models.items():
        run = _run(scale, Speculative(checkpoints=model), count, late, costs)
        peaks[words] = peak(run)
        yield from _over_time(figure, words, run)
        yield Row(figure, f"{words}: checkpoints", run.marks, "checkpoints")
        yield Row(figure, f"{words}: went on once more", run.again, "events")
    fixed = [words for words, model in models.items() if isinstance(model, Every)]
    which = min(fixed, key=peaks.__getitem__)
    best = peaks[which]
    yield Row(figure, "default to the best interval: peak", peaks[DEFAULT] / best, "ratio")
    waits = peak(_run(scale, MPKSlack(), count, late, costs))
    yield Row(figure, "K-slack, which waits for K: peak", waits, "ms")
    early = Speculative(alpha=0.0, checkpoints=models[which])
    usual = steady(_run(scale, early, count, scale.stream(count, late=False), costs))
    yield Row(figure, "best interval, no late events: steady", usual, "ms")
    least = least_peak(scale, count)
    yield Row(figure, "free checkpoints: peak, at least", least, "ms")
    reached = max(usual, least) / best
    yield Row(figure, "the greater of both to the best interval: peak", reached, "ratio")


def least_peak(scale: SpeculationScale, count: int) -> float:
    """Return what the peak is at least, in milliseconds, if checkpoints were everywhere and free.

    An event waits for half of a turn until the host takes it, and for half of the events that come
    with it. Before, all is matched again that lies behind the first late event of the turn: K,
    without the few events between two late ones. To wait for K in its place takes longer, as
    events come at half the rate that instances can do, and two in three of them wait.
    """
    able, matched = scale.able(count), scale.ramp(count).greatest / APART - len(SOURCES)
    return 1000 * (TURN_S / 2 + _OFFERED * TURN_S / 2 + matched / able)


def _over_time(figure: str, words: str, run: SpeculationRun) -> Iterator[Row]:
    """Return a curve of tentative latencies, its peak, and where it is steady."""
    size = len(run.arrived) / _POINTS
    for number, latency in enumerate(_points(run)):
        place = round((number + 1) * size)
        yield Row(figure, f"{words}, event {place:,}", latency, "ms", None, words, place)
    yield Row(figure, f"{words}: peak", peak(run), "ms")
    yield Row(figure, f"{words}: steady", steady(run), "ms")


def _points(run: SpeculationRun) -> list[float]:
    parts = [
        run.latency(run.tentative, number / _POINTS, (number + 1) / _POINTS)
        for number in range(_POINTS)
    ]
    return [float(part.mean()) for part in parts if len(part)]


def peak(run: SpeculationRun) -> float:
    """Return the highest latency of a part in forty of the events, in milliseconds."""
    return max(_points(run))


def steady(run: SpeculationRun, *, confirmed: bool = False) -> float:
    """Return the latency at the end of a run, on average, in milliseconds."""
    found = run.latency(run.confirmed if confirmed else run.tentative, *_STEADY)
    return float(np.mean(found))


def _run(
    scale: SpeculationScale,
    disorder: Disorder,
    count: int,
    stream: pa.Table,
    costs: MeasuredCosts | None = None,
) -> SpeculationRun:
    """Run with events at a part of the rate that instances can do."""
    setting = scale.setting(disorder, count, _OFFERED * scale.able(count))
    return VirtualHost(setting, stream, costs=costs).drive()
