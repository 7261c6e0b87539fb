"""Sections 5.2, 5.3 and 5.4.1 to 5.4.3 of the study `space`: how fast the splitter decides.

Rates are those of events of the stream. What is measured is the front of the operator as it runs:
the order of events, their numbers, windows, and which instance gets what. Nothing is simulated, but
nobody is behind it here; `outpace.studies.space_load` goes the whole way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from outpace.pattern.query import Query
from outpace.pattern.schedulers import Batches, RoundRobin, Scheduler
from outpace.pattern.windows import CountWindows
from outpace.studies.measure import MeasuredWork, rates_of
from outpace.studies.report import Row
from outpace.studies.space_figures import (
    DUPLICATION,
    INSTANCES_SIMPLE,
    INSTANCES_STOCK,
    MAXIMUM,
    OVERLAP,
    SOURCES,
)
from outpace.studies.space_processes import discarding
from outpace.studies.space_stream import (
    BLOCK_ROWS,
    EVENT_KINDS,
    AppliedStream,
    MergedStream,
    SplitStream,
    blocks_of,
)

#: Windows where the paper found that their size does not matter.
WINDOW: Final = 1_000

#: The curve of what is measured without processes.
ALONE: Final = "the splitter"

#: The curve of a splitter with an instance in the same place, which runs a user's operator.
APPLIED: Final = "with a user's operator"

#: The curve of a splitter of which all columns are read.
MOVED: Final = "all columns read"

#: How the paper gives windows to instances.
IN_TURN: Final = RoundRobin()

#: What the paper's text says of PACE: it keeps this share of its rate from 1 source to 16.
KEPT_AT_16_SOURCES: Final = {"SimpleEvent": "PACE: 0.34", "StockEvent": "PACE: 0.86"}


def maximum(events: int, seconds: float) -> Iterator[Row]:
    """Figure 5.2: one source, one instance, windows of 1000 events."""
    streams = [_full(_over(WINDOW), blocks_of(kind, events)) for kind in EVENT_KINDS]
    for kind, rate in zip(EVENT_KINDS, _rates(streams, seconds), strict=True):
        setting = f"{kind}, {ALONE}"
        yield Row(MAXIMUM.name, setting, rate, MAXIMUM.unit, None, ALONE, kind)


def overlap(size: int, slides: Sequence[int], events: int, seconds: float) -> Iterator[Row]:
    """Figure 5.3: large windows, and smaller and smaller slides."""
    blocks = blocks_of("SimpleEvent", events)
    for curve, make in ((ALONE, SplitStream), (APPLIED, AppliedStream)):
        streams = [_full(_over(size, slide), blocks, make) for slide in slides]
        rates = _rates(streams, seconds)
        yield from overlap_rows(curve, size, dict(zip(slides, rates, strict=True)))
    for slide in slides:
        bytes_each = _full(_over(size, slide), blocks).bytes_an_event()
        setting = f"{slide_setting(size, slide)}, told of windows"
        yield Row(OVERLAP.name, setting, bytes_each, "bytes/event")


def overlap_rows(curve: str, size: int, rates: Mapping[int, float]) -> Iterator[Row]:
    """Yield the rates of slides, from large to small, and what is left of the first."""
    for slide, rate in rates.items():
        said = "falls" if size // slide >= 100_000 else None
        setting = f"{slide_setting(size, slide)}, {curve}"
        yield Row(OVERLAP.name, setting, rate, OVERLAP.unit, said, curve, slide)
    first, *_, last = rates
    setting = f"slide {last:,} to slide {first:,}, {curve}"
    yield Row(OVERLAP.name, setting, rates[last] / rates[first], "ratio", "falls")


def slide_setting(size: int, slide: int) -> str:
    """Return a slide in words, with the windows that are open.

    Examples
    --------
    >>> slide_setting(1_000_000, 10)
    'slide 10: 100,000 open windows'
    """
    return f"slide {slide:,}: {counted(size // slide, 'open window')}"


def instances(counts: Sequence[int], events: int, seconds: float) -> Iterator[Row]:
    """Figure 5.5: windows without overlap, given to the instances in turn."""
    figures = {"SimpleEvent": INSTANCES_SIMPLE, "StockEvent": INSTANCES_STOCK}
    for kind, figure in figures.items():
        blocks = blocks_of(kind, events)
        queries = [_over(WINDOW).instances(count, schedule=IN_TURN) for count in counts]
        rates = _rates([_full(query, blocks) for query in queries], seconds)
        for count, rate in zip(counts, rates, strict=True):
            setting = f"{counted(count, 'instance')}, {ALONE}"
            said = "no loss" if count > 1 else None
            yield Row(figure.name, setting, rate, figure.unit, said, ALONE, count)
        setting = f"{counted(counts[-1], 'instance')} to {counts[0]}, {ALONE}"
        yield Row(figure.name, setting, rates[-1] / rates[0], "ratio", "no loss")


def sources(counts: Sequence[int], events: int, seconds: float) -> Iterator[Row]:
    """Figure 5.6: sources that send at the same times, put into one order and split."""
    for kind in EVENT_KINDS:
        for way, reads in ((ALONE, False), (MOVED, True)):
            streams = [_merged(kind, count, events // count, reads=reads) for count in counts]
            rates = dict(zip(counts, _rates(streams, seconds), strict=True))
            for count, rate in rates.items():
                setting = f"{kind}, {counted(count, 'source')}, {way}"
                yield Row(SOURCES.name, setting, rate, SOURCES.unit, None, f"{kind}, {way}", count)
            kept = rates[16] / rates[1]
            setting = f"{kind}, 16 sources to 1, {way}"
            yield Row(SOURCES.name, setting, kept, "ratio", KEPT_AT_16_SOURCES[kind])


def duplication(
    size: int, slides: Sequence[int], counts: Sequence[int], events: int, seconds: float
) -> Iterator[Row]:
    """Figure 5.7: overlapping windows given to several instances, in turn and in batches."""
    blocks = blocks_of("SimpleEvent", events)
    for count in counts:
        for name, scheduler in schedulers_for(count):
            for slide in slides:
                query = _over(size, slide).instances(count, schedule=scheduler)
                rate, sent = _duplicating(query, blocks, 2 * size, seconds)
                curve = f"{counted(count, 'instance')}, {name}"
                setting = f"slide {slide:,}, {curve}"
                yield Row(DUPLICATION.name, setting, rate, DUPLICATION.unit, None, curve, slide)
                yield Row(DUPLICATION.name, f"{setting}: sent", sent, "times")


def schedulers_for(count: int) -> list[tuple[str, Scheduler]]:
    """Return the ways in which windows are given to so many instances, with their names.

    Examples
    --------
    >>> schedulers_for(2)
    [('in turn', RoundRobin()), ('in batches', Batches(size=None))]
    """
    ways: list[tuple[str, Scheduler]] = [("in turn", IN_TURN), ("in batches", Batches())]
    return ways if count > 1 else ways[:1]


def _duplicating(
    query: Query, blocks: Sequence[pa.Table], first: int, seconds: float
) -> tuple[float, float]:
    """Return the rate, and how often an event is sent, after the first events."""
    stream = SplitStream(query, blocks)
    stream.run_until(first)
    before = stream.front.counters()
    (rate,) = _rates([stream], seconds)
    after = stream.front.counters()
    return rate, (after.sent - before.sent) / (after.events - before.events)


def _over(size: int, slide: int | None = None) -> Query:
    return discarding().over(CountWindows(size, slide or size))


def _full(
    query: Query, blocks: Sequence[pa.Table], make: type[SplitStream] = SplitStream
) -> SplitStream:
    """Return a stream that has as many windows open as it ever will."""
    stream = make(query, blocks)
    assert isinstance(query.windows, CountWindows)
    stream.run_until(query.windows.size)
    return stream


def _rates(streams: Sequence[SplitStream | MergedStream], seconds: float) -> list[float]:
    works = [MeasuredWork(stream.run, stream.events, stream.prepare) for stream in streams]
    return rates_of(works, seconds)


def _merged(kind: str, count: int, events: int, *, reads: bool) -> MergedStream:
    """Return a stream of so many sources with so many events each."""
    made = [
        EVENT_KINDS[kind](events, seed=number, rate=1_000_000 // count, id=f"{number:03}")
        for number in range(count)
    ]
    batches = {
        source.id: [pa.Table.from_batches([one]) for one in source.batches(BLOCK_ROWS)]
        for source in made
    }
    return MergedStream(_over(WINDOW), batches, reads=reads)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "source"), counted(2, "source")
    ('1 source', '2 sources')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
