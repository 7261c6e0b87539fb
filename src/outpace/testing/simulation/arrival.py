"""How the events of a stream come: cut, of sources or out of order, and what that means.

What takes part, in which order, and what is late or invalid is written down here as
`docs/explanation/streaming.md` has it, event by event, without a thought of speed.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME
from outpace.engine.message import (
    ClockExchange,
    EventsArrived,
    HostLoad,
    SourceEnded,
    Stimulus,
    TimerFired,
    WatermarkArrived,
)
from outpace.engine.rows.times import as_integers
from outpace.pattern.checkpoints import Adaptive, EverySpeculative, LeastWork
from outpace.pattern.disorder import (
    LDOP,
    AQKSlack,
    Disorder,
    InOrder,
    KSlack,
    Late,
    MPKSlack,
    Punctuation,
    Quantile,
    Speculative,
)
from outpace.pattern.query import Emission, Query, RowsPerMatch
from outpace.testing.slack import SlackOracle

#: A time that decides all that time can, and one that no clock believes.
END: Final = 1 << 40
FAR: Final = 1 << 39
#: How far ahead of the others an event may be, where that counts.
AHEAD: Final = 1 << 38

#: The column that tells events apart.
ID: Final = "id"


@dataclass(frozen=True)
class DrawnArrival:
    """How the events of a stream come, and what that means.

    Parameters
    ----------
    query
        The query, with how far its events are out of order.
    sources
        The identifiers of the sources, where there are several.
    steps
        What happens, but the end.
    events
        The events that take part, in their order.
    time
        How far time has come before the end.
    progress
        After each step: how many events have had their turn, and how far time has come. None where
        nobody looks, or what comes later is put between.
    late, invalid
        Which events are set aside, by their `id`.
    timers
        After each step: when the front must want to be asked again. None where it never does.
    clock
        A time by which all timers are due; NO_TIME where there is no clock.
    """

    query: Query
    sources: tuple[str, ...] | None
    steps: tuple[Stimulus, ...]
    events: pa.Table
    time: int
    progress: tuple[tuple[int, int], ...] | None = None
    late: tuple[int, ...] = ()
    invalid: tuple[int, ...] = ()
    timers: tuple[int | None, ...] | None = None
    clock: int = int(NO_TIME)

    def timer(self, steps: int) -> int | None:
        """Return when the front must want to be asked again after so many steps."""
        due = self.timers or ()
        return due[steps - 1] if 0 < steps <= len(due) else None

    @property
    def is_in_order(self) -> bool:
        """Whether the events come in an order, and others are refused."""
        alone = self.sources is None and self.query.order_of_arrival is None
        return alone and bool(self.query.order)


@dataclass(frozen=True)
class Batch:
    """A micro-batch: rows, how far time is told to have come, and when it is run.

    Rows are None where only a timer lets it be run.
    """

    rows: pa.Table | None
    told: int = int(NO_TIME)
    now: int = int(NO_TIME)


def draw_in_order(random: Random, query: Query, events: pa.Table, pieces: int) -> DrawnArrival:
    """Cut events that come in order, and tell the time between."""
    times = times_of(query, events)
    steps: list[Stimulus] = []
    progress = []
    time = int(NO_TIME)
    for low, high in cuts(random, events.num_rows, pieces):
        steps.append(EventsArrived(events.slice(low, high - low)))
        progress.append((high, max([time, *times[:high]])))
        if times and high and random.random() < 0.3:
            least = times[high - 1]
            watermark = random.randint(least, times[high] if high < len(times) else least + 9)
            steps.append(WatermarkArrived(watermark))
            time = max(time, watermark)
            progress.append((high, max([time, *times[:high]])))
    return DrawnArrival(query, None, tuple(steps), events, max([time, *times]), tuple(progress))


def draw_sources(
    random: Random, query: Query, events: pa.Table, pieces: int, *, corrects: bool = False
) -> DrawnArrival:
    """Give events to sources, which speak in any order, each in its own or out of it.

    Some have a clock of their own, which is compared before they speak: their events are those of
    the time of reference. Where what came out is corrected, events go on early.
    """
    names = tuple(f"s{number}" for number in range(random.randint(1, 4)))
    drifts: dict[str, int] = {}
    owners = np.array([random.randrange(len(names)) for _ in range(events.num_rows)], np.int64)
    waiting: dict[str, pa.Table] = {}
    for number, name in enumerate(names):
        own = events.filter(pa.array(owners == number))
        place = own.schema.get_field_index("seq")
        waiting[name] = own.set_column(place, "seq", pa.array(np.arange(own.num_rows)))
    whole = pa.concat_tables(waiting.values())
    sources = [name for name, own in waiting.items() for _ in range(own.num_rows)]
    keys = zip(times_of(query, whole), whole["seq"].to_pylist(), sources, strict=True)
    order = [row for _, row in sorted((key, row) for row, key in enumerate(keys))]
    if corrects or random.random() < 0.4:
        unit = unit_of(query, events)
        delay = random.randint(0, 5) * unit
        query = query.disorder(KSlack(duration(delay, unit), late="side"))
        if corrects:
            query = _early(random, query, ends=True)
        for name, own in waiting.items():
            arriving = delayed(random, times_of(query, own), delay, ties=True)
            waiting[name] = own.take(pa.array(arriving, pa.int64()))
            # What is uncertain of a clock is of the order, and times that come early stay.
            if query.uncertainty is None and not corrects and random.random() < 0.6:
                drifts[name] = random.choice([-100, -3, 0, 2, 5000]) * unit
                waiting[name] = _shifted(query, waiting[name], -drifts[name])
    steps: list[Stimulus] = [_exchange(random, name, drift) for name, drift in drifts.items()]
    open_names, most = list(names), 1 + 2 * events.num_rows // pieces
    while any(own.num_rows for own in waiting.values()):
        name = random.choice(open_names)
        rest = waiting[name]
        if not rest.num_rows:
            # The last one may still speak, so that time does not come to its end before all do.
            if len(open_names) > 1 and random.random() < 0.5:
                open_names.remove(name)
                steps.append(SourceEnded(name))
            continue
        if name in drifts and random.random() < 0.3:
            steps.append(_exchange(random, name, drifts[name]))
        size = random.randint(0, min(rest.num_rows, most))
        steps.append(EventsArrived(rest.slice(0, size), name))
        waiting[name] = rest = rest.slice(size)
        if rest.num_rows and random.random() < 0.4:
            steps.append(WatermarkArrived(min(times_of(query, rest)) - random.randint(0, 1), name))
    taken = whole.take(pa.array(order, pa.int64()))
    return DrawnArrival(
        query, names, tuple(steps), taken, max([int(NO_TIME), *times_of(query, taken)])
    )


def _shifted(query: Query, events: pa.Table, by: int) -> pa.Table:
    """Return events with other times."""
    place = events.schema.get_field_index(time_of(query))
    column = events.schema.field(place)
    times = pa.array([time + by for time in times_of(query, events)], pa.int64())
    return events.set_column(place, column, times.cast(column.type))


def _exchange(random: Random, source: str, drift: int) -> ClockExchange:
    """Let the clock of a source be compared, with ways there and back that take the same time."""
    asked, way, answer = (random.randint(0, 9) for _ in range(3))
    received = asked + way + drift
    return ClockExchange(source, asked, received, received + answer, asked + 2 * way + answer)


def draw_batched_sources(
    random: Random, query: Query, events: pa.Table, pieces: int, *, corrects: bool = False
) -> DrawnArrival:
    """Give events to sources, each out of order by itself, whose events come in common batches.

    Where what came out is corrected, they go on early.
    """
    names = tuple(f"s{number}" for number in range(random.randint(1, 3)))
    owners = pa.array([random.choice(names) for _ in range(events.num_rows)], pa.string())
    events = events.append_column("source", owners)
    unit = unit_of(query, events)
    delay = random.randint(0, 5) * unit
    query = query.disorder(KSlack(duration(delay, unit), late="side"))
    sent: dict[str, pa.Table] = {}
    count = random.randint(1, pieces)
    bounds: dict[str, list[int]] = {}
    for name in names:
        own = events.filter(pc.equal(owners, name))
        own = own.take(
            pa.array(delayed(random, times_of(query, own), delay, ties=True), pa.int64())
        )
        # A source numbers its events as it sends them, so numbers do not rise with time.
        place, size = own.schema.get_field_index("seq"), own.num_rows
        sent[name] = own.set_column(place, "seq", pa.array(range(size), pa.int64()))
        cuts = sorted(random.randint(0, size) for _ in range(count - 1))
        bounds[name] = [0, *cuts, size]
    whole = pa.concat_tables(sent.values())
    columns = (times_of(query, whole), whole["seq"].to_pylist(), whole["source"].to_pylist())
    order = sorted(range(whole.num_rows), key=lambda row: [column[row] for column in columns])
    taken = whole.take(pa.array(order, pa.int64()))
    steps, progress = [], []
    greatest = dict.fromkeys(names, int(NO_TIME))
    for batch in range(count):
        parts = []
        for name in random.sample(names, len(names)):
            low, high = bounds[name][batch : batch + 2]
            parts.append(sent[name].slice(low, high - low))
            greatest[name] = max([greatest[name], *times_of(query, parts[-1])])
        steps.append(EventsArrived(pa.concat_tables(parts)))
        least = min(greatest.values())
        time = least if least == NO_TIME else least - delay
        progress.append((sum(one < time for one in times_of(query, taken)), time))
    arrival = DrawnArrival(query, names, tuple(steps), taken, progress[-1][1], tuple(progress))
    if corrects:
        arrival = replace(arrival, query=_early(random, query, ends=False), progress=None)
    return arrival


def _early(random: Random, query: Query, *, ends: bool) -> Query:
    """Let the events of a query go on before its reorderer would let them."""
    disorder = query.order_of_arrival
    assert disorder is not None
    settings = {
        **disorder.options,
        "alpha": random.choice([0, 0.3, None, 1]),
        "checkpoints": random.choice([1, 1, 3, EverySpeculative(2), Adaptive(), LeastWork()]),
        "memory": random.choice([None, None, 1, 5]),
    }
    plain = replace(disorder, **Disorder().options)
    asked = query.disorder(Speculative(plain, **settings))
    return asked.emit(_draw_emission(random, asked, ends=ends))


def draw_disorder(
    random: Random,
    query: Query,
    events: pa.Table,
    pieces: int,
    *,
    own: bool,
    whole: bool,
    corrects: bool = False,
) -> DrawnArrival:
    """Let events come out of order.

    Parameters
    ----------
    random, query, events, pieces
        What is cut, and into how many pieces at most.
    own
        Whether the events are those of the simulator, so that some may be late or invalid.
    whole
        Whether all events come to one place. Otherwise only time tells which of them are late: of
        those that come at the same time each place knows its own.
    corrects
        Whether late events correct what came out, or those that come after others went on early.
    """
    times = times_of(query, events)
    unit = unit_of(query, events)
    most = random.randint(0, 5) * unit
    enough = not own or (random.random() < 0.5 and not corrects)
    slack = most if enough else random.randint(0, most // unit) * unit
    early = corrects and not query.duplicates and random.random() < 0.5
    late = "correct" if corrects else random.choice(["drop", "pass", "side"])
    late = random.choice(["drop", "side"]) if early else late
    disorder = _draw_kind(
        random, slack, unit, late, own=own, in_order=whole and not enough and not early
    )
    arriving = events.take(pa.array(delayed(random, times, most, ties=own), pa.int64()))
    if own and random.random() < 0.3:
        arriving = _with_invalid(random, query, arriving, far=disorder.ahead is not None)
    steps: list[Stimulus] = []
    watermark = int(NO_TIME)
    for low, high in cuts(random, arriving.num_rows, pieces):
        load = None
        if early and random.random() < 0.3:
            load = HostLoad(random.random(), random.random() / 100)
        steps.append(EventsArrived(arriving.slice(low, high - low), load=load))
        later = [time for time in times_of(query, arriving.slice(high)) if time < FAR]
        if random.random() < 0.4 and times and not isinstance(disorder, InOrder):
            # Told too early where the slack is not enough, too.
            watermark = max(watermark, min(later, default=max(times) + 3 * unit))
            watermark += 0 if enough else random.randint(0, 2) * unit
            steps.append(WatermarkArrived(watermark))
    arrival = _ordered(query.disorder(disorder), steps, events, own=own)
    asked = arrival.query
    if early:
        asked = _early(random, asked, ends=whole)
    elif corrects:
        asked = asked.emit(_draw_emission(random, asked, ends=whole))
    return replace(arrival, query=asked, progress=None if corrects else arrival.progress)


def draw_other(random: Random, query: Query, first: DrawnArrival) -> DrawnArrival:
    """Let another query take the same events as the first of its group, in an order of its own.

    Mostly they share the order, or differ in K alone.
    """
    disorder = first.query.order_of_arrival
    asked = replace(query, order_of_arrival=disorder)
    if first.sources is not None and asked.speculates:
        # All go on early, or none; and where the order is uncertain, windows need duplicates.
        windows = asked.windows if asked.uncertainty is None else None
        numbered = asked.numbered and windows is not None
        asked = replace(asked, duplicates=False, windows=windows, numbered=numbered)
    if disorder is None or first.sources is not None or first.timers is not None:
        return replace(first, query=asked)
    if random.random() < 0.3 and not (asked.speculates and query.duplicates):
        if asked.corrects:
            asked = asked.emit(_draw_emission(random, asked, ends=True))
        return replace(first, query=asked)
    unit = unit_of(query, first.events)
    slack, settings = random.randint(0, 5) * unit, disorder.options
    if disorder.late is Late.CORRECT or random.random() < 0.3:
        settings |= {"late": random.choice(["drop", "pass", "side"]), "horizon": None}
    asked = query.disorder(KSlack(duration(slack, unit), **settings))
    return _ordered(asked, first.steps, first.events, own=True)


def _ordered(
    query: Query, steps: Sequence[Stimulus], events: pa.Table, *, own: bool
) -> DrawnArrival:
    """Return what becomes of events that come step by step, by the disorder of a query."""
    model = OrderModel(query)
    progress: list[tuple[int, int]] = []
    for step in steps:
        if isinstance(step, EventsArrived):
            model.push(step.rows)
        elif isinstance(step, WatermarkArrived):
            model.tell(step.watermark)
        progress.append((len(model.released), model.time))
    model.finish()
    return DrawnArrival(
        query,
        None,
        tuple(steps),
        model.taken(events.schema) if own else events,
        model.time,
        tuple(progress),
        tuple(model.late),
        tuple(model.invalid),
    )


def _draw_emission(random: Random, query: Query, *, ends: bool) -> Emission:
    """Draw which rows come out; only a stream that ends confirms all that there is."""
    kinds = [Emission.CHANGES] * 2 + [Emission.CONFIRMED] * ends
    # Of the latest the last row of a match counts.
    kinds += [Emission.LATEST] * (query.rows is RowsPerMatch.ONE and not query.duplicates)
    return random.choice(kinds)


def _draw_kind(
    random: Random, slack: int, unit: int, late: str, *, own: bool, in_order: bool
) -> Disorder:
    settings: dict[str, Any] = {"late": late, "invalid": "quarantine" if own else "fail"}
    if late == "correct":
        settings["horizon"] = duration(AHEAD, unit)
    ahead = duration(AHEAD, unit) if own and random.random() < 0.5 else None
    if random.random() < 0.2:
        return Punctuation(**settings)
    settings["ahead"] = ahead
    if in_order and random.random() < 0.4:
        return InOrder(**settings)
    span = duration(slack, unit)
    if random.random() < 0.4:
        return KSlack(span, **settings)
    # Where all events have to be in time, K is what it is bound to, whatever the delays are.
    settings["at_least"] = settings["at_most"] = span
    if own and random.random() < 0.8:
        settings["at_least"] = random.choice([None, None, duration(unit, unit)])
        settings["at_most"] = random.choice([None, duration(4 * unit, unit)])
    return random.choice(_draw_adaptive(random, unit))(**settings)


def _draw_adaptive(random: Random, unit: int) -> list[Callable[..., Disorder]]:
    """Draw reorderers that choose K. The coverage that an extreme needs is exact, as K then is."""
    window = duration(random.choice([1, 3, 5]) * unit, unit)
    return [
        MPKSlack,
        partial(Quantile, random.choice([0.5, 0.9, 1.0])),
        partial(LDOP, window=window, low=random.choice([0.5, 1.0]), high=random.choice([1, 2.5])),
        partial(
            AQKSlack,
            aggregate=random.choice(["min", "max"]),
            confidence=random.choice([0.6, 0.95]),
            window=window,
            quantile=random.choice([0.5, 1.0]),
            proportional=random.choice([0.1, 1.5]),
            derivative=random.choice([0.0, 0.7]),
        ),
    ]


def unit_of(query: Query, events: pa.Table) -> int:
    """Return a span of time that matters to the queries, in units of the time column."""
    return 1 if pa.types.is_integer(events.schema.field(time_of(query)).type) else 1_000_000


def duration(span: int, unit: int) -> int | datetime.timedelta:
    """Return a span of time as a query has it."""
    return span if unit == 1 else datetime.timedelta(microseconds=span)


def _with_invalid(random: Random, query: Query, events: pa.Table, *, far: bool) -> pa.Table:
    """Put some events between that have no time, or one that nobody believes."""
    kind = events.schema.field(time_of(query)).type
    rows, beyond = events.to_pylist(), pa.scalar(FAR, pa.int64()).cast(kind).as_py()
    for number in range(random.randint(1, 3) if rows else 0):
        row = {**rows[0], ID: events.num_rows + number, "seq": events.num_rows + number}
        row[time_of(query)] = beyond if far and random.random() < 0.5 else None
        rows.insert(random.randint(1, len(rows)), row)
    return pa.Table.from_pylist(rows, schema=events.schema)


def delayed(random: Random, times: Sequence[int], most: int, *, ties: bool) -> list[int]:
    """Return an order in which no event comes behind one that is more than `most` later."""
    delays: dict[int, int] = {}
    arrivals = []
    for row, time in enumerate(times):
        delay = random.randint(0, most)
        # Events of the same time stay in their order where nothing else tells it.
        delay = delay if ties else delays.setdefault(time, delay)
        arrivals.append((time + delay, random.random() if ties else 0.0, row))
    return [row for *_, row in sorted(arrivals)]


@dataclass
class OrderedEvent:
    """An event on its way: its row, and the columns that order it."""

    row: dict[str, object]
    time: int
    seq: int
    place: int

    @property
    def order(self) -> tuple[int, int, int]:
        """Where it belongs."""
        return self.time, self.seq, self.place


@dataclass
class OrderModel:
    """What becomes of events that come out of order."""

    query: Query
    released: list[OrderedEvent] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    invalid: list[int] = field(default_factory=list)
    #: Those that came late, and are put where they belong.
    corrected: list[OrderedEvent] = field(default_factory=list)
    time: int = int(NO_TIME)
    _waiting: list[OrderedEvent] = field(default_factory=list)
    _came: int = 0

    def __post_init__(self) -> None:
        """Begin with a clock that has seen nothing."""
        assert self.query.order_of_arrival is not None
        self._clock = _clock_of(self.query.order_of_arrival)

    def push(self, rows: pa.Table) -> None:
        """Take a piece."""
        disorder = self.query.order_of_arrival
        assert disorder is not None
        in_order = isinstance(disorder, InOrder)
        fresh, seen = [], []
        for row, time in zip(rows.to_pylist(), times_of(self.query, rows), strict=True):
            self._came += 1
            if row[time_of(self.query)] is None or time >= FAR:
                self.invalid.append(row[ID])
                continue
            seen.append(time)
            event = OrderedEvent(row, time, row.get("seq", 0), self._came)
            if self._is_late(event, in_order=in_order):
                if disorder.late is Late.CORRECT:
                    self.corrected.append(event)
                    continue
                self.late.append(row.get(ID, 0))
                if disorder.late is not Late.PASS:
                    continue
                event.time = self.time
                if in_order and self.released:
                    event.time = max(event.time, self._last.time)
            fresh.append(event)
        if seen and not isinstance(disorder, Punctuation):
            # Events that arrive at once count in the order of their times.
            self._clock.tell(self.time)
            self._clock.follow(sorted(seen), [1.0] * len(seen), at_once=True)
            assert self._clock.watermark is not None
            self.time = self._clock.watermark
        self._waiting += fresh
        self._release(END if in_order else self.time)

    def tell(self, time: int) -> None:
        """Take a promise."""
        self.time = max(self.time, time)
        self._release(self.time)

    def finish(self) -> None:
        """Let all go that waits."""
        self._release(END)
        self.time = max([self.time, *(event.time for event in self.released[-1:])])

    def taken(self, schema: pa.Schema) -> pa.Table:
        """Return the events that take part, in order."""
        kind = schema.field(time_of(self.query)).type
        rows, events = [], self.released
        if self.corrected:
            events = sorted(events + self.corrected, key=lambda event: event.order)
        for event in events:
            time = pa.scalar(event.time, pa.int64()).cast(kind).as_py()
            rows.append({**event.row, time_of(self.query): time})
        return pa.Table.from_pylist(rows, schema=schema)

    def _is_late(self, event: OrderedEvent, *, in_order: bool) -> bool:
        if event.time < self.time:
            return True
        if not (in_order and self.released):
            return False
        return (event.time, event.seq) < (self._last.time, self._last.seq)

    @property
    def _last(self) -> OrderedEvent:
        """The last event by the order of the query; one that passed late may stand behind it."""
        return max(self.released, key=lambda event: (event.time, event.seq))

    def _release(self, before: int) -> None:
        ready = [event for event in self._waiting if event.time < before]
        self._waiting = [event for event in self._waiting if event.time >= before]
        self.released += sorted(ready, key=lambda event: event.order)


def _clock_of(disorder: Disorder) -> SlackOracle:
    """Return how far time comes with the events that are seen."""
    match disorder:
        case KSlack():
            slack = _units(disorder.slack)
            return SlackOracle("fixed", slack=slack, least=slack, most=slack)
        case MPKSlack():
            clock = SlackOracle("greatest")
        case Quantile():
            clock = SlackOracle("quantile", share=disorder.share)
        case LDOP():
            clock = SlackOracle("distance", low=disorder.low, high=disorder.high)
        case AQKSlack():
            clock = SlackOracle(
                "coverage",
                share=disorder.quantile,
                aggregate="extreme",
                normal=disorder.confidence,
                gains=(disorder.proportional, disorder.derivative),
            )
        case _:
            return SlackOracle("fixed")
    if isinstance(disorder, LDOP | AQKSlack):
        clock.length = _units(disorder.window)
    clock.least = _units(disorder.at_least or 0)
    clock.most = clock.most if disorder.at_most is None else _units(disorder.at_most)
    return clock


def _units(span: Any) -> int:
    """Return a span of time in units of the time column."""
    return span if isinstance(span, int) else int(span / datetime.timedelta(microseconds=1))


def batches(arrival: DrawnArrival) -> Iterator[Batch]:
    """Yield what comes as micro-batches; with the last one all time has passed."""
    nothing = arrival.events.schema.empty_table()
    for step in arrival.steps:
        match step:
            case EventsArrived():
                yield Batch(step.rows, step.watermark, step.arrival)
            case TimerFired():
                yield Batch(None, int(NO_TIME), step.at)
            case WatermarkArrived():
                yield Batch(nothing, step.watermark)
    yield Batch(nothing, END, arrival.clock)


def cuts(random: Random, size: int, pieces: int) -> list[tuple[int, int]]:
    """Cut so many rows into at most so many pieces, some of them empty."""
    count = random.randint(0, min(pieces, size) - 1) if size else 0
    places = sorted(random.randint(0, size) for _ in range(count))
    return list(pairwise([0, *places, size]))


def time_of(query: Query) -> str:
    """Return the name of the time column."""
    return query.order[0].column if query.order else ""


def times_of(query: Query, rows: pa.Table) -> list[int]:
    """Return the times of rows in units of the query; what has none comes last."""
    name = time_of(query)
    if name not in rows.column_names:
        return []
    column = rows[name]
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return []
    filled = as_integers(column.drop_null()).tolist()
    found = iter(filled)
    latest = max(filled, default=0)
    return [latest if missing else next(found) for missing in column.is_null().to_pylist()]
