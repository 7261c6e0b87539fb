"""Events with sequence numbers that come by a clock, whose timers fire, and what that means."""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Iterable
from itertools import accumulate
from random import Random
from typing import Any, Final, TypeAlias

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.message import (
    EventsArrived,
    SourceEnded,
    Stimulus,
    TimerFired,
    WatermarkArrived,
)
from outpace.pattern.disorder import InOrder, Late, Sequence
from outpace.pattern.query import Query
from outpace.testing.sequence import SequenceOracle
from outpace.testing.simulation.arrival import (
    AHEAD,
    FAR,
    ID,
    DrawnArrival,
    OrderModel,
    cuts,
    delayed,
    duration,
    time_of,
    times_of,
    unit_of,
)

#: The column that may say when events arrived, in place of the clock.
_ARRIVAL: Final = "at"
#: The longest timeout, in microseconds.
_LONGEST: Final = 200

Row: TypeAlias = "dict[str, Any]"


def draw_numbered(
    random: Random, query: Query, events: pa.Table, pieces: int, *, whole: bool
) -> DrawnArrival:
    """Let one or several sources number their events; some are lost, doubled or out of order.

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
    disorder = _draw_kind(random, unit_of(query, events), by_column=by_column)
    if len(names) > 1 and not whole:
        events = events.append_column("source", pa.nulls(events.num_rows, pa.string()))
    if by_column:
        events = events.append_column(_ARRIVAL, pa.nulls(events.num_rows, pa.int64()))
    rows: dict[str, list[Row]] = {name: [] for name in names}
    for row in events.to_pylist():
        name = random.choice(names)
        rows[name].append({**row, "source": name} if "source" in row else row)
    sent: dict[str, list[list[Row]]] = {}
    fresh = events.num_rows
    far = pa.scalar(FAR, pa.int64()).cast(events.schema.field(time_of(query)).type).as_py()
    for name, own in rows.items():
        arriving = _sent(random, own)
        bounds = cuts(random, len(arriving), max(1, pieces // len(names)))
        sent[name] = [arriving[low:high] for low, high in bounds]
        bad = far if disorder.ahead is not None else None
        fresh = _spoil(random, sent[name], fresh, {time_of(query): bad, "seq": None})
    model = _Sources(query.disorder(disorder), events.schema, names)
    course = _Course(random, model)
    (_send_apart if whole else _send_together)(course, sent)
    model.finish()
    return DrawnArrival(
        model.query,
        model.names,
        tuple(course.steps),
        model.taken(),
        model.time,
        tuple(course.progress),
        tuple(one for each in model.each.values() for one in each.order.late),
        tuple(one for each in model.each.values() for one in each.order.invalid),
        tuple(course.timers),
        course.clock + _LONGEST if model.clocked else int(NO_TIME),
    )


def _draw_kind(random: Random, unit: int, *, by_column: bool) -> Sequence:
    timeout = random.choice([1, 10, 40, _LONGEST])
    least = datetime.timedelta(microseconds=min(timeout, 5))
    return Sequence(
        datetime.timedelta(microseconds=timeout),
        alpha=random.choice([0.0, 0.6, 1.0]),
        beta=random.choice([0.0, 0.6, 1.0]),
        deviations=random.choice([0.0, 2.0]),
        at_least=random.choice([None, least]),
        late=random.choice(["drop", "pass", "side"]),
        invalid="quarantine",
        ahead=duration(AHEAD, unit) if random.random() < 0.5 else None,
        arrival=_ARRIVAL if by_column else None,
    )


def _sent(random: Random, rows: list[Row]) -> list[Row]:
    """Number rows as a source sends them, mostly in the order of time, and let them travel."""

    def mixed(rows: list[Row], most: int) -> list[Row]:
        order = delayed(random, range(len(rows)), random.randint(0, most), ties=True)
        return [rows[place] for place in order]

    rows = mixed(rows, random.choice([0, 0, 3]))
    rows = [{**row, "seq": number} for number, row in enumerate(rows)]
    lost = random.choice([0.0, 0.0, 0.2])
    return mixed([row for row in rows if random.random() >= lost], random.choice([0, 2, 5]))


def _spoil(random: Random, parts: list[list[Row]], fresh: int, bad: Row) -> int:
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

    def __init__(self, random: Random, model: _Sources) -> None:
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


def _send_apart(course: _Course, sent: dict[str, list[list[Row]]]) -> None:
    """Let each source send its pieces, tell the time and end, in any order."""
    random, model = course.random, course.model
    left = {name: deque(parts) for name, parts in sent.items()}
    while any(left.values()):
        name = random.choice([*left])
        source, gate, parts = name if model.names else None, model.each[name], left[name]
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
        gate.push(rows, arrival, told if at_once else int(NO_TIME))
        table = model.table(rows)
        course.note(
            EventsArrived(
                table, source, watermark=told if at_once else int(NO_TIME), arrival=arrival
            )
        )
        if not at_once and told != NO_TIME:
            gate.tell(told)
            course.note(WatermarkArrived(told, source))


def _send_together(course: _Course, sent: dict[str, list[list[Row]]]) -> None:
    """Let pieces of all sources come in common batches, with what is told of the time of all."""
    random, model = course.random, course.model
    left = {name: deque(parts) for name, parts in sent.items()}
    while any(left.values()):
        course.wait(early=False)
        parts = {name: own.popleft() for name, own in left.items() if own}
        told = _told(random, model, [rows for own in left.values() for rows in own])
        if (due := model.timer) is not None and due <= course.clock:
            model.fire(course.clock)
        for name, rows in parts.items():
            model.each[name].push(rows, course.clock, told)
        if told != NO_TIME:
            for name in model.each:
                model.each[name].push([], course.clock, told)
        every = [row for rows in parts.values() for row in rows]
        course.note(EventsArrived(model.table(every), watermark=told, arrival=course.clock))


def _told(random: Random, model: _Sources, later: Iterable[list[Row]]) -> int:
    """Return what is told of time: mostly what is true of the rows to come, or nothing."""
    if random.random() < 0.6:
        return int(NO_TIME)
    table = model.table([row for rows in later for row in rows])
    times = [time for time in times_of(model.query, table) if time < FAR]
    unit = unit_of(model.query, table)
    return min(times) + random.choice([0, 0, unit]) if times else int(NO_TIME)


# --- What it means -------------------------------------------------------------------------------


class _Gate:
    """One source: a gate lets its events in by their numbers; an order is behind it."""

    def __init__(self, query: Query, schema: pa.Schema) -> None:
        disorder = query.order_of_arrival
        assert isinstance(disorder, Sequence)
        self._disorder, self._schema, self._time = disorder, schema, time_of(query)
        self.order = OrderModel(query.disorder(InOrder(**{**disorder.options, "arrival": None})), 0)
        self._oracle = SequenceOracle(
            alpha=disorder.alpha,
            beta=disorder.beta,
            deviations=disorder.deviations,
            shortest=_microseconds(disorder.at_least),
            longest=_microseconds(disorder.timeout),
        )
        self._rows: list[Row] = []
        self._now = self._told = int(NO_TIME)

    @property
    def timer(self) -> int | None:
        """When the time of a held event is up."""
        if self._disorder.arrival is not None:
            return None
        return min((due for _, due, _ in self._oracle.held.values()), default=None)

    def push(self, rows: Iterable[Row], arrival: int, told: int) -> None:
        """Take rows, and what is told with them."""
        column = self._disorder.arrival
        coming = []
        for row in rows:
            if row["seq"] is None:
                self.order.invalid.append(row[ID])
                continue
            at = max(arrival if column is None else row[column], self._now)
            coming.append((at, row["seq"], len(self._rows)))
            self._rows.append(row)
        for at, number, place in sorted(coming):
            self._oracle.arrive(place, number, at)
            self._now = max(self._now, at)
        if column is None:
            self._now = max(self._now, arrival)
        self.tell(told)

    def fire(self, at: int) -> None:
        """Let the clock come to a time."""
        self._now = max(self._now, at)
        self.tell(int(NO_TIME))

    def tell(self, told: int) -> None:
        """Take a promise, and let in what may go by now."""
        self._told = max(self._told, told)
        self._oracle.pass_time(self._now)
        self._let_in()
        held = [self._rows[place] for *_, place in self._oracle.held.values()]
        known = [row for row in held if row[self._time] is not None]
        query = self.order.query
        self.order.tell(min([self._told, *times_of(query, self._table(known))]))

    def finish(self) -> None:
        """Let all in that is held."""
        held = self._oracle.held
        self._oracle.order += [held.pop(number)[2] for number in sorted(held)]
        self._let_in()
        self.order.finish()

    def _let_in(self) -> None:
        late, entered = self._oracle.late, self._oracle.order
        passes = self._disorder.late is Late.PASS
        if not passes:
            self.order.late += [self._rows[place][ID] for place in late]
        rows = [self._rows[place] for place in (*(late if passes else ()), *entered)]
        self.order.push(self._table(rows))
        late.clear()
        entered.clear()

    def _table(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=self._schema)


class _Sources:
    """One or several sources, whose events wait for those of the others."""

    def __init__(self, query: Query, schema: pa.Schema, names: tuple[str, ...]) -> None:
        self.query = query
        self.names = names if len(names) > 1 else None
        self.each = {name: _Gate(query, schema) for name in names}
        self._open = dict(self.each)
        self._schema = schema

    @property
    def clocked(self) -> bool:
        """Whether there is a clock; otherwise a column tells the time."""
        disorder = self.query.order_of_arrival
        return disorder is not None and disorder.clocked

    @property
    def timer(self) -> int | None:
        """When any wants to be asked again."""
        timers = [gate.timer for gate in self._open.values()]
        return min((timer for timer in timers if timer is not None), default=None)

    @property
    def time(self) -> int:
        """How far time has come."""
        if not self._open:
            return max(gate.order.time for gate in self.each.values())
        return min(gate.order.time for gate in self._open.values())

    @property
    def progress(self) -> tuple[int, int]:
        """How many events have had their turn, and how far time has come."""
        time = self.time
        released = [event for gate in self.each.values() for event in gate.order.released]
        if self.names is None:
            return len(released), time
        return sum(event.time < time for event in released), time

    def fire(self, at: int) -> None:
        """Let the clock come to a time."""
        for gate in self._open.values():
            gate.fire(at)

    def finish(self, source: str | None = None) -> None:
        """Take the end of a source, or of all."""
        for name in [*self._open] if source is None else [source]:
            self._open.pop(name).finish()

    def table(self, rows: list[Row]) -> pa.Table:
        """Return rows as they are sent."""
        return pa.Table.from_pylist(rows, schema=self._schema)

    def taken(self) -> pa.Table:
        """Return the events that take part, in order."""
        order = OrderModel(self.query, 0)
        each = [gate.order.released for _, gate in sorted(self.each.items())]
        order.released = [event for released in each for event in released]
        if self.names is not None:
            # Those that nothing tells apart are in the order of their sources, and as they came.
            order.released.sort(key=lambda event: (event.time, event.seq))
        return order.taken(self._schema)


def _microseconds(span: Any) -> int:
    return 0 if span is None else int(span / datetime.timedelta(microseconds=1))
