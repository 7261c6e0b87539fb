"""Sections 5.2, 5.3 and 5.4 of the study `space`, with instances in processes.

Rates are counted at the instances, as the paper does: what they have done, each event once however
many instances get it. They share the cores of this machine with the splitter and with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from outpace.hosts.processes.control import RateControl
from outpace.hosts.processes.metrics import Metrics
from outpace.ingest.pace import paced
from outpace.pattern.schedulers import Scheduler
from outpace.pattern.windows import CountWindows
from outpace.studies.report import Row
from outpace.studies.space_figures import (
    BUSY,
    DUPLICATION,
    INSTANCES_SIMPLE,
    INSTANCES_STOCK,
    MAXIMUM,
    SOURCES,
    STABILITY,
)
from outpace.studies.space_processes import RateProgress, TimedSource, busy, discarding, metrics_of
from outpace.studies.space_split import (
    IN_TURN,
    KEPT_AT_16_SOURCES,
    WINDOW,
    counted,
    overlap_rows,
    schedulers_for,
)
from outpace.studies.space_stream import EVENT_KINDS

#: What an instance of section 5.4.4 can do in a second, in events of windows.
BUSY_RATE: Final = 35_000
#: The slides of its windows.
BUSY_SLIDES: Final = (500, 250)

_WHOLE_WAY: Final = "the whole way"
_TUMBLING: Final = CountWindows(WINDOW, WINDOW)


def maximum(seconds: float) -> Iterator[Row]:
    """Figure 5.2: one source and one instance that discards what it gets."""
    for kind in EVENT_KINDS:
        rate = _discarding_rate(kind, 1, seconds)
        setting = f"{kind}, {_WHOLE_WAY}"
        yield Row(MAXIMUM.name, setting, rate, MAXIMUM.unit, None, _WHOLE_WAY, kind)


def overlap(size: int, slides: Sequence[int], seconds: float) -> Iterator[Row]:
    """Figure 5.3: large windows, smaller and smaller slides, an instance that discards events."""
    rates = {
        slide: _discarding_rate("SimpleEvent", 1, seconds, CountWindows(size, slide))
        for slide in slides
    }
    yield from overlap_rows(_WHOLE_WAY, size, rates)


def instances(counts: Sequence[int], seconds: float) -> Iterator[Row]:
    """Figure 5.5: more and more instances that discard what they get."""
    figures = {"SimpleEvent": INSTANCES_SIMPLE, "StockEvent": INSTANCES_STOCK}
    for kind, figure in figures.items():
        for count in counts:
            rate = _discarding_rate(kind, count, seconds)
            setting = f"{counted(count, 'instance')}, {_WHOLE_WAY}"
            yield Row(figure.name, setting, rate, figure.unit, None, _WHOLE_WAY, count)


def sources(counts: Sequence[int], seconds: float) -> Iterator[Row]:
    """Figure 5.6: more and more sources, and an instance that discards what it gets."""
    for kind in EVENT_KINDS:
        curve = f"{kind}, {_WHOLE_WAY}"
        rates = {count: _discarding_rate(kind, 1, seconds, sources=count) for count in counts}
        for count, rate in rates.items():
            setting = f"{kind}, {counted(count, 'source')}, {_WHOLE_WAY}"
            yield Row(SOURCES.name, setting, rate, SOURCES.unit, None, curve, count)
        setting = f"{kind}, 16 sources to 1, {_WHOLE_WAY}"
        kept = rates[16] / rates[1]
        yield Row(SOURCES.name, setting, kept, "ratio", KEPT_AT_16_SOURCES[kind])


def duplication(
    size: int, slides: Sequence[int], counts: Sequence[int], seconds: float
) -> Iterator[Row]:
    """Figure 5.7: overlapping windows, with instances that discard what they get."""
    for count in counts:
        for name, scheduler in schedulers_for(count):
            curve = f"{counted(count, 'instance')}, {name}, {_WHOLE_WAY}"
            for slide in slides:
                windows = CountWindows(size, slide)
                rate = _discarding_rate("SimpleEvent", count, seconds, windows, scheduler)
                setting = f"slide {slide:,}, {curve}"
                yield Row(DUPLICATION.name, setting, rate, DUPLICATION.unit, None, curve, slide)


def busy_instances(
    waiting: Sequence[int], computing: Sequence[int], sources: Sequence[int], seconds: float
) -> Iterator[Row]:
    """Figures 5.8 to 5.10: instances that need their time for every event.

    They are offered what they can do, and the last number of them also twice as much.

    Parameters
    ----------
    waiting
        Numbers of instances that wait for something elsewhere, and need no core for that.
    computing
        Numbers of instances that keep a core busy.
    sources
        The numbers of sources that together offer twice as much.
    seconds
        How long each number is measured.
    """
    for slide in BUSY_SLIDES:
        for computes, counts in ((False, waiting), (True, computing)):
            doing = "computing" if computes else "waiting"
            curve = f"slide {slide}, {doing}"
            for count in counts:
                rate = _Overload(slide, count, computes).rate(seconds)
                setting = f"slide {slide}, {count} {doing}"
                yield Row(BUSY.name, setting, rate, BUSY.unit, None, curve, count)
            overloaded = _Overload(slide, counts[-1], computes, overload=2)
            for number in sources:
                kept = overloaded.rate(seconds, number) / overloaded.able
                words = f"{setting}, double load, {counted(number, 'source')}"
                said = _OVERLOADED[slide, number]
                yield Row(BUSY.name, words, kept, "of capacity", said)


def stability(seconds: float, interval: float) -> Iterator[Row]:
    """Figure 5.4: a source that offers twice what an instance can do, for a longer time.

    Parameters
    ----------
    seconds
        How long.
    interval
        The rate is that of so many seconds each.
    """
    metrics = _Overload(WINDOW, 1, computes=True, overload=2).metrics(seconds)
    ends, rates = RateProgress.of(metrics).rates(interval)
    for end, rate in zip(ends.tolist(), rates.tolist(), strict=True):
        setting = f"after {end:g} s"
        yield Row(STABILITY.name, setting, rate, STABILITY.unit, None, "with rate control", end)
    (instance,) = metrics.instances
    best = instance.events / instance.busy_s
    steady = rates[ends > ends[-1] / 4]
    yield Row(STABILITY.name, "rate while the instance works", best, STABILITY.unit)
    yield Row(STABILITY.name, "mean rate to that", steady.mean() / best, "ratio", "declines")
    words = f"least rate of {interval:g} s to the mean"
    yield Row(STABILITY.name, words, steady.min() / steady.mean(), "ratio", "declines")
    waited = metrics.over_time("instance", "waiting")["value"].to_numpy().max()
    yield Row(STABILITY.name, "events that waited at most", float(waited), "events", "heap fills")


#: What the paper says of SPACE when it is overloaded, by slide and number of sources.
_OVERLOADED: Final = {
    (500, 1): "breaks down",
    (500, 2): "holds",
    (250, 1): "holds",
    (250, 2): "breaks down",
}


@dataclass(frozen=True)
class _Overload:
    """Busy instances, and sources that offer a multiple of what they can do."""

    slide: int
    count: int
    computes: bool
    overload: int = 1

    @property
    def able(self) -> float:
        """The events of the stream that all instances together can do in a second."""
        return self.count * BUSY_RATE * self.slide / WINDOW

    def metrics(self, seconds: float, sources: int = 1) -> Metrics:
        """Run for a time."""
        offered = self.overload * self.able / sources
        query = busy(BUSY_RATE, computes=self.computes).over(CountWindows(WINDOW, self.slide))
        return metrics_of(
            query.instances(self.count, schedule=IN_TURN),
            [
                paced(TimedSource(str(number), "SimpleEvent", seconds), offered)
                for number in range(sources)
            ],
            RateControl(),
        )

    def rate(self, seconds: float, sources: int = 1) -> float:
        """Return the events per second that are done."""
        return RateProgress.of(self.metrics(seconds, sources)).rate()


def _discarding_rate(
    kind: str,
    count: int,
    seconds: float,
    windows: CountWindows = _TUMBLING,
    scheduler: Scheduler = IN_TURN,
    sources: int = 1,
) -> float:
    query = discarding().over(windows).instances(count, schedule=scheduler)
    read = [TimedSource(f"{number:03}", kind, seconds) for number in range(sources)]
    return RateProgress.of(metrics_of(query, read)).rate()
