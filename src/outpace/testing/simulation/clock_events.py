"""Events of sources that come by a clock, whose timers fire: missing events, silent sources."""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from random import Random
from typing import Any, Final

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.message import (
    EventsArrived,
    SourceEnded,
    Stimulus,
    TimerFired,
    WatermarkArrived,
)
from outpace.pattern.disorder import Disorder, InOrder, KSlack, Sequence
from outpace.pattern.query import Query
from outpace.testing.simulation.arrival import (
    AHEAD,
    END,
    FAR,
    ID,
    DrawnArrival,
    cuts,
    delayed,
    duration,
    time_of,
    times_of,
    unit_of,
)
from outpace.testing.simulation.queries import FLAG, FLAGS, EventRow
from outpace.testing.simulation.sources import SourcesModel

#: The column that may say when events arrived, in place of the clock.
_ARRIVAL: Final = "at"
#: The longest timeout and patience, in microseconds.
_LONGEST: Final = 200


def draw_clocked(
    random: Random, query: Query, events: pa.Table, pieces: int, *, whole: bool
) -> DrawnArrival:
    """Let one or several sources send events; some are lost, doubled, invalid or out of order.

    Sources number their events, or others wait for them for so long only, or both.

    Parameters
    ----------
    random, query, events, pieces
        What is cut, and into how many pieces at most.
    whole
        Whether each source speaks by itself. Otherwise the events of all come in common batches,
        where a timer that is due comes first.
    """
    names = tuple(f"s{number}" for number in range(random.choice([1, 1, 2, 3])))
    by_column = whole and random.random() < 0.25
    disorder = _draw_kind(random, unit_of(query, events), names, by_column=by_column)
    if query.operator is None and query.uncertainty is None and random.random() < 0.4:
        disorder = replace(disorder, flag=FLAG)
        query = query.measures({FLAGS: f"ARRAY_AGG({FLAG})"})
        events = events.append_column(FLAG, pa.array([False] * events.num_rows, pa.bool_()))
    if len(names) > 1 and not whole:
        events = events.append_column("source", pa.nulls(events.num_rows, pa.string()))
    if by_column:
        events = events.append_column(_ARRIVAL, pa.nulls(events.num_rows, pa.int64()))
    rows: dict[str, list[EventRow]] = {name: [] for name in names}
    for row in events.to_pylist():
        name = random.choice(names)
        rows[name].append({**row, "source": name} if "source" in row else row)
    sent: dict[str, list[list[EventRow]]] = {}
    fresh = events.num_rows
    far = pa.scalar(FAR, pa.int64()).cast(events.schema.field(time_of(query)).type).as_py()
    for name, own in rows.items():
        arriving = _sent(random, own)
        bounds = cuts(random, len(arriving), max(1, pieces // len(names)))
        sent[name] = [arriving[low:high] for low, high in bounds]
        bad = far if disorder.ahead is not None else None
        spoiled: EventRow = {time_of(query): bad}
        if isinstance(disorder, Sequence):
            spoiled["seq"] = None
        fresh = _spoil(random, sent[name], fresh, spoiled)
    model = SourcesModel(query.disorder(disorder), events.schema, names)
    course = _Course(random, model)
    (_send_apart if whole else _send_together)(course, sent)
    clock = course.clock + _LONGEST if model.clocked else int(NO_TIME)
    if not whole:
        # Stages have no end, but a batch by which all timers are due.
        model.push_together({}, clock, END)
    model.finish()
    return DrawnArrival(
        model.query,
        model.names,
        tuple(course.steps),
        model.taken(),
        model.time,
        tuple(course.progress),
        tuple(model.late),
        tuple(model.invalid),
        tuple(course.timers),
        clock,
    )


def _draw_kind(random: Random, unit: int, names: tuple[str, ...], *, by_column: bool) -> Disorder:
    settings: dict[str, Any] = {
        "late": random.choice(["drop", "pass", "side"]),
        "invalid": "quarantine",
        "ahead": duration(AHEAD, unit) if random.random() < 0.5 else None,
        "arrival": _ARRIVAL if by_column else None,
    }
    if len(names) > 1 and random.random() < 0.6:
        settings["patience"] = _draw_patience(random, names)
        if random.random() < 0.4:
            slack = random.choice([0, 0, 1, 4]) * unit
            return KSlack(duration(slack, unit), **settings)
        if random.random() < 0.4:
            return InOrder(**settings)
    timeout = random.choice([1, 10, 40, _LONGEST])
    least = _clock_span(min(timeout, 5))
    return Sequence(
        _clock_span(timeout),
        alpha=random.choice([0.0, 0.6, 1.0]),
        beta=random.choice([0.0, 0.6, 1.0]),
        deviations=random.choice([0.0, 2.0]),
        at_least=random.choice([None, least]),
        first=random.choice([None, 0, 0, 1]),
        **settings,
    )


def _draw_patience(random: Random, names: tuple[str, ...]) -> Any:
    """Draw how long sources are waited for: all the same, or some of them each in its own way."""
    spans = [1, 5, 20, 60, _LONGEST]
    if random.random() < 0.6:
        return _clock_span(random.choice(spans))
    named = random.sample(names, random.randint(1, len(names)))
    return {name: _clock_span(random.choice(spans)) for name in named}


def _clock_span(microseconds: int) -> datetime.timedelta:
    return datetime.timedelta(microseconds=microseconds)


def _sent(random: Random, rows: list[EventRow]) -> list[EventRow]:
    """Number rows as a source sends them, mostly in the order of time, and let them travel."""

    def mixed(rows: list[EventRow], most: int) -> list[EventRow]:
        order = delayed(random, range(len(rows)), random.randint(0, most), ties=True)
        return [rows[place] for place in order]

    rows = mixed(rows, random.choice([0, 0, 3]))
    rows = [{**row, "seq": number} for number, row in enumerate(rows)]
    lost = random.choice([0.0, 0.0, 0.2])
    return mixed([row for row in rows if random.random() >= lost], random.choice([0, 2, 5]))


def _spoil(random: Random, parts: list[list[EventRow]], fresh: int, bad: EventRow) -> int:
    """Send some rows twice and spoil some: no time, one that nobody believes, or no number.

    The first that come are good: the others are compared with them. Returns the next free `id`.
    """
    good = True
    for part in parts:
        for place in range(0 if good else len(part)):
            if random.random() < 0.08:
                part.append({**part[place], ID: fresh})
                fresh += 1
            if random.random() < 0.06:
                name, value = random.choice([*bad.items()])
                part[place] = {**part[place], name: random.choice([None, value])}
        good = good and not part
    return fresh


# --- How they come -------------------------------------------------------------------------------


class _Course:
    """What happens, step by step, by a clock, and where the model stands after each."""

    def __init__(self, random: Random, model: SourcesModel) -> None:
        self.random, self.model = random, model
        self.clock = random.choice([0, 1_700_000_000_000_000])
        self.steps: list[Stimulus] = []
        self.timers: list[int | None] = []
        self.progress: list[tuple[int, int]] = []

    def note(self, step: Stimulus) -> None:
        """Note what happened, which the model has taken."""
        self.steps.append(step)
        self.timers.append(self.model.timer)
        self.progress.append(self.model.progress)

    def wait(self, *, early: bool) -> None:
        """Let time pass; timers may fire meanwhile, late or, where a host may do so, too early."""
        random, before = self.random, self.clock
        self.clock += random.choice([0, 0, 1, 3, 10, 60])
        if early and self.model.clocked and random.random() < 0.1:
            self._fire(random.randint(before, self.clock))
        while (due := self.model.timer) is not None and due <= self.clock:
            if random.random() < 0.4:
                break  # The next stimulus finds it due.
            self._fire(random.randint(due, self.clock))

    def _fire(self, at: int) -> None:
        self.model.fire(at)
        self.note(TimerFired(at))


def _send_apart(course: _Course, sent: dict[str, list[list[EventRow]]]) -> None:
    """Let each source send its pieces, tell the time and end, in any order."""
    random, model = course.random, course.model
    left = {name: deque(parts) for name, parts in sent.items()}
    while any(left.values()):
        name = random.choice([*left])
        source, parts = name if model.names else None, left[name]
        if not parts:
            # The last one may still speak.
            if len(left) > 1 and random.random() < 0.5:
                del left[name]
                model.finish(name)
                course.note(SourceEnded(name))
            continue
        course.wait(early=True)
        rows = parts.popleft()
        arrival = course.clock
        if not model.clocked:
            times = list(accumulate(random.choice([0, 0, 1, 8]) for _ in rows))
            rows = [
                {**row, _ARRIVAL: arrival + time} for row, time in zip(rows, times, strict=True)
            ]
            course.clock += times[-1] if times else 0
        elif random.random() < 0.1:
            arrival -= random.randint(0, 20)  # A clock may be set back.
        told = _told(random, model, parts)
        at_once = random.random() < 0.5
        model.push(name, rows, arrival, told if at_once else int(NO_TIME))
        table = model.table(rows)
        course.note(
            EventsArrived(
                table, source, watermark=told if at_once else int(NO_TIME), arrival=arrival
            )
        )
        if not at_once and told != NO_TIME:
            model.tell(name, told, arrival)
            course.note(WatermarkArrived(told, source, arrival))


def _send_together(course: _Course, sent: dict[str, list[list[EventRow]]]) -> None:
    """Let pieces of all sources come in common batches, with the watermark of all."""
    random, model = course.random, course.model
    left = {name: deque(parts) for name, parts in sent.items()}
    while any(left.values()):
        course.wait(early=False)
        parts = {name: own.popleft() for name, own in left.items() if own}
        told = _told(random, model, [rows for own in left.values() for rows in own])
        model.push_together(parts, course.clock, told)
        every = [row for rows in parts.values() for row in rows]
        course.note(EventsArrived(model.table(every), watermark=told, arrival=course.clock))


def _told(random: Random, model: SourcesModel, later: Iterable[list[EventRow]]) -> int:
    """Return a watermark that is sent: mostly one that is true of the rows to come, or none."""
    if random.random() < 0.6:
        return int(NO_TIME)
    table = model.table([row for rows in later for row in rows])
    times = [time for time in times_of(model.query, table) if time < FAR]
    unit = unit_of(model.query, table)
    return min(times) + random.choice([0, 0, unit]) if times else int(NO_TIME)
