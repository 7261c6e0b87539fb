"""The study `skip`: what it saves to retain and replay only the events that matches use.

As in the paper a run fails in the middle of its events and recovers. One operator gives the
savepoints of all ways to retain events, so that these differ in nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.message import EventsArrived, MatchesAcknowledged
from outpace.engine.operator import emit_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.recoverable import RecoverableOperator, savepoint_of
from outpace.engine.savepoint import Savepoint
from outpace.pattern.query import Query
from outpace.pattern.windows import TimeWindows
from outpace.studies.report import Experiment, Figure, PlotKind, Row, Study

SOURCE: Final = (
    "After G. F. Lima, M. Endler, A. Slo, S. Bhowmik, K. Rothermel: Skipping Unused Events to "
    "Speed Up Rollback-Recovery in Distributed Data-Parallel CEP, section IV. It compares runs of "
    "one operator, a library in C, with and without what it calls the skip flag."
)
#: The windows of the paper, and their slides, in units of time of which each event has one.
SIZE: Final = 1000
SLIDES: Final = (50, 800)
TYPES: Final = 10

MADE, WRITTEN = "savepoints", "savepoints and their bytes"
OFF, ON, NOTICES = "all retained", "skipping", "skipping, with notices"
#: How many events come between two notices, and in one piece where nothing is measured.
_NOTICE: Final = 100
_BLOCK: Final = 1 << 16
_REPEATS: Final = 3
#: The figures by slide: time to recover, time in savepoints, events replayed and retained.
_NAMES: Final = {50: ("9a", "9c", "9e", "9g"), 800: ("9b", "9d", "9f", "9h")}
#: Which part of what is retained without it the paper skips, with a save interval of 8.
_PAPER: Final = {50: 57.0, 800: 43.0}


def _figure(name: str, slide: int, title: str, unit: str, said: str, here: str) -> Figure:
    return Figure(
        name,
        f"{title}, windows that slide by {slide}",
        "save interval",
        title,
        unit,
        PlotKind.BARS,
        said,
        here,
    )


_SAVED: Final = (
    "With a save interval of 8 the recovery takes {paper:.0f} % less time with skipping; the gain "
    "is smaller for larger ones, as events that came after the last savepoint are all replayed."
)
_HERE: Final = (
    "Until half of the events have come; matches are acknowledged as the paper has it, the first "
    f"of each interval with the last. With notices the operator says every {_NOTICE} events which "
    "it skips."
)


_FIXED: Final = (
    "Best of three, of processor time. Events are matched in blocks, so that most of the time is "
    "what it takes to make an operator, whatever it replays."
)


def _figures(slide: int) -> tuple[Figure, ...]:
    recovery, overhead, replayed, backup = _NAMES[slide]
    said = _SAVED.format(paper=_PAPER[slide])
    return (
        _figure(recovery, slide, "time to recover", "ms", said, f"{_HERE} {_FIXED}"),
        _figure(
            overhead,
            slide,
            "time spent in savepoints",
            "%",
            "Below 1 % of the running time, with and without skipping.",
            "The part of the processor time that savepoints take, where events are pushed one by "
            "one, as in the paper; once without and once with the time to make the bytes that are "
            "kept. The operator always notes which events are skipped.",
        ),
        _figure(
            replayed,
            slide,
            "events replayed",
            "events",
            "Fewer with skipping, and even fewer when saves are more frequent.",
            _HERE,
        ),
        _figure(
            backup,
            slide,
            "largest number of events retained",
            "events",
            "Fewer with skipping.",
            f"{_HERE} The largest number in the last windows before the failure.",
        ),
    )


FIGURES: Final = (*_figures(50), *_figures(800))


@dataclass(frozen=True, slots=True)
class SkipScale:
    """How much the study does.

    Parameters
    ----------
    events, seeds
        Of a run, and how many runs there are.
    intervals
        How many matches are acknowledged at a time.
    single
        How many events are pushed one by one, to see what these take beside savepoints.
    """

    events: int
    seeds: int
    intervals: tuple[int, ...]
    single: int


QUICK: Final = SkipScale(events=100_000, seeds=5, intervals=(8, 16, 32, 64, 128), single=1000)
WHOLE: Final = replace(QUICK, events=1_000_000, seeds=50, single=8000)


def skip_study(scale: SkipScale) -> Study:
    """Return the study with its experiments set to a scale."""
    experiments: list[tuple[str, Experiment]] = [
        (f"slide {slide}, interval {interval}", partial(recoveries, scale, slide, interval))
        for slide in SLIDES
        for interval in scale.intervals
    ]
    experiments += [
        (f"savepoints, slide {slide}", partial(savings, scale, slide)) for slide in SLIDES
    ]
    title = "Skipping unused events in recovery from a retained log"
    return Study("skip", title, SOURCE, FIGURES, tuple(experiments))


def sequence_spec(slide: int) -> OperatorSpec:
    """Return the operator of the paper: `abcde` among ten types, each step with the next event."""
    names = "ABCDE"
    query = (
        Query("abcde")
        .order_by("ts")
        .pattern(" -> ".join(names))
        .define({name: f"type = {number}" for number, name in enumerate(names)})
        .measures(first="A.ts", last="E.ts")
        .over(TimeWindows(SIZE, slide), duplicates=True)
    )
    return OperatorSpec(query, pa.schema({"ts": pa.int64(), "type": pa.int8()}))


def random_events(size: int, seed: int) -> pa.Table:
    """Return events of random types, one in each unit of time."""
    types = np.random.default_rng(seed).integers(0, TYPES, size, np.int8)
    return pa.table({"ts": np.arange(size), "type": types})


@dataclass
class KeptEvents:
    """Events that are retained in one way, by their numbers."""

    skips: bool
    numbers: Integers
    savepoint: Savepoint
    largest: int = 0

    def append(self, first: int, stop: int) -> None:
        """Retain events."""
        self.numbers = np.append(self.numbers, np.arange(first, stop))
        self.largest = max(self.largest, len(self.numbers))

    def thin(self, savepoints: Sequence[Savepoint]) -> None:
        """Drop what savepoints have no use for, of which the last one counts."""
        for one in savepoints:
            self.savepoint = one if self.skips else replace(one, skip=one.skip[:0])
            self.numbers = self.numbers[~self.savepoint.drops(self.numbers)]


@dataclass(frozen=True)
class Failure:
    """What was retained when an operator failed, by the way to retain events."""

    spec: OperatorSpec
    events: pa.Table
    backups: dict[str, KeptEvents]
    waiting: int

    def recover(self, way: str) -> tuple[float, RecoverableOperator]:
        """Return the seconds that it takes to rebuild the operator, and that."""
        backup = self.backups[way]
        rows = self.events.take(pa.array(backup.numbers))
        fresh = RecoverableOperator(self.spec)
        begun = time.process_time()
        found = fresh.rebuild(backup.savepoint, rows, backup.numbers)
        taken = time.process_time() - begun
        assert len(found.matches) == self.waiting, "a replay gives what was not acknowledged"
        return taken, fresh


def failed(slide: int, interval: int, events: pa.Table) -> Failure:
    """Let an operator take half of the events, and return what was retained then."""
    spec = sequence_spec(slide)
    half = events.num_rows // 2
    x, y = _numbers(RecoverableOperator(spec), events.slice(0, half))
    # A savepoint is made with the last match of each interval, and acknowledges the first.
    last = np.arange(interval - 1, len(x), interval)
    saved_at = dict(zip((x[last] + 1).tolist(), (last - interval + 1).tolist(), strict=True))
    operator = RecoverableOperator(spec)
    begun = savepoint_of(operator.step(MatchesAcknowledged()))
    backups = {
        way: KeptEvents(way != OFF, np.zeros(0, np.int64), begun) for way in (OFF, ON, NOTICES)
    }
    between = half // max(1, len(last))
    detail = max(0, half - 2 * between - 3 * SIZE)
    blocks = range(_BLOCK, detail, _BLOCK)
    steps = [*blocks, *range(detail, half, _NOTICE), *(at for at in saved_at if at > detail), half]
    pending: list[Savepoint] = []
    first, acknowledged, reached = 0, -1, sorted(saved_at)
    for stop in sorted(set(steps)):
        operator.step(EventsArrived(events.slice(first, stop - first)))
        for backup in backups.values():
            backup.append(first, stop)
        before = reached[: np.searchsorted(reached, stop, "right")]
        match = saved_at[before[-1]] if before else -1
        if match > acknowledged:
            acknowledged = match
            number = int(x[match]), int(y[match])
            pending.append(savepoint_of(operator.step(MatchesAcknowledged(number))))
            backups[OFF].thin(pending[-1:])
            backups[ON].thin(pending)
            backups[NOTICES].thin(pending[-1:])
            pending = []
        elif stop < half:
            pending.append(savepoint_of(operator.step(MatchesAcknowledged())))
            backups[NOTICES].thin(pending[-1:])
        if stop <= detail:
            for backup in backups.values():
                backup.largest = 0
        first = stop
    settled = (x > x[acknowledged]) | ((x == x[acknowledged]) & (y > y[acknowledged]))
    waiting = int(settled.sum()) if acknowledged >= 0 else len(x)
    return Failure(spec, events, backups, waiting)


def _numbers(operator: RecoverableOperator, events: pa.Table) -> tuple[Integers, Integers]:
    """Return the numbers x:y of all matches."""
    found = [
        emit_of(operator.step(EventsArrived(events.slice(first, _BLOCK)))).matches
        for first in range(0, events.num_rows, _BLOCK)
    ]
    x = np.concatenate([one.event for one in found])
    y = np.concatenate([one.window for one in found])
    return x, y


def recoveries(scale: SkipScale, slide: int, interval: int) -> Iterator[Row]:
    """Measure time, events and the size of backups, with a save interval."""
    ways = (OFF, ON, NOTICES)
    measured: dict[str, list[tuple[float, int, int]]] = {way: [] for way in ways}
    for seed in range(scale.seeds):
        failure = failed(slide, interval, random_events(scale.events, seed))
        for way in ways:
            taken = min(failure.recover(way)[0] for _ in range(_REPEATS))
            backup = failure.backups[way]
            measured[way].append((taken * 1e3, len(backup.numbers), backup.largest))
    recovery, _, replayed, retained = _NAMES[slide]
    means = {way: np.mean(values, axis=0) for way, values in measured.items()}
    for place, (name, unit) in enumerate(
        ((recovery, "ms"), (replayed, "events"), (retained, "events"))
    ):
        for way in ways:
            value = float(means[way][place])
            setting = f"slide {slide}, save interval {interval}, {way}"
            yield Row(name, setting, value, unit, None, way, interval)
        for way in (ON, NOTICES):
            less = 100 * (1 - float(means[way][place] / means[OFF][place]))
            paper = _PAPER[slide] if (interval, way, place) == (8, ON, 0) else None
            setting = f"slide {slide}, save interval {interval}, less with {way}"
            yield Row(name, setting, less, "%", paper)


def savings(scale: SkipScale, slide: int) -> Iterator[Row]:
    """Measure which part of the running time savepoints take, where events come one by one."""
    spec, (_, name, _, _) = sequence_spec(slide), _NAMES[slide]
    events = random_events(4 * SIZE + scale.single, 0)
    operator = RecoverableOperator(spec)
    operator.step(EventsArrived(events.slice(0, 4 * SIZE)))
    begun = time.process_time()
    for number in range(4 * SIZE, events.num_rows):
        operator.step(EventsArrived(events.slice(number, 1)))
    pushing = (time.process_time() - begun) / scale.single
    for interval in scale.intervals:
        events = random_events(max(400 * interval, 20 * SIZE), 1)
        x, y = _numbers(RecoverableOperator(spec), events)
        operator, first = RecoverableOperator(spec), 0
        saving, writing, count = 0.0, 0.0, 0
        for last in range(interval - 1, len(x), interval):
            stop = int(x[last]) + 1
            operator.step(EventsArrived(events.slice(first, stop - first)))
            match = last - interval + 1
            acknowledged = MatchesAcknowledged((int(x[match]), int(y[match])))
            begun = time.process_time()
            savepoint = savepoint_of(operator.step(acknowledged))
            made = time.process_time()
            savepoint.encode()
            # The first windows are not full.
            if first >= 2 * SIZE:
                saving, count = saving + made - begun, count + stop - first
                writing += time.process_time() - made
            first = stop
            if count and stop > 2 * SIZE + scale.single and stop > 80 * interval:
                break
        for taken, label in ((saving, MADE), (saving + writing, WRITTEN)):
            share = 100 * taken / (taken + count * pushing)
            setting = f"slide {slide}, save interval {interval}, {label}"
            yield Row(name, setting, share, "%", "below 1", label, interval)
