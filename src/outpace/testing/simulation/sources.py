"""What becomes of the events of one or several sources that come by a clock, one after the other.

A source that numbers its events has a gate, which lets them in by their numbers. Behind it is an
order of its own. What that lets go waits for the other sources, but for none that is silent.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.pattern.disorder import InOrder, Late, Sequence
from outpace.pattern.query import Query
from outpace.testing.sequence import SequenceOracle
from outpace.testing.simulation.arrival import (
    ID,
    OrderedEvent,
    OrderModel,
    time_of,
    times_of,
)
from outpace.testing.simulation.queries import FLAG, EventRow


class SourcesModel:
    """One or several sources, whose events wait for those of the others.

    Parameters
    ----------
    query
        The query, with how far its events are out of order.
    schema
        The columns of the events.
    names
        The identifiers of the sources.
    """

    def __init__(self, query: Query, schema: pa.Schema, names: tuple[str, ...]) -> None:
        disorder = query.order_of_arrival
        assert disorder is not None
        self.query, self.clocked = query, disorder.clocked
        self.names = names if len(names) > 1 else None
        self.each = {name: _SourceModel(query, schema) for name in names}
        self._open = dict(self.each)
        self._schema, self._column = schema, disorder.arrival
        self._silence = _SilenceModel(_spans(disorder.patience, names))
        #: The events that went on, and those that wait for other sources, with these.
        self._gone: list[OrderedEvent] = []
        self._waiting: list[tuple[str, OrderedEvent]] = []
        self.time = int(NO_TIME)
        #: How far each source has said itself to have come.
        self._said = dict.fromkeys(names, int(NO_TIME))

    @property
    def is_patient(self) -> bool:
        """Whether sources may be silent."""
        return bool(self._silence.patience)

    @property
    def late(self) -> list[int]:
        """The events that came late, by their `id`."""
        return [one for each in self.each.values() for one in each.order.late]

    @property
    def invalid(self) -> list[int]:
        """The events that cannot be used, by their `id`."""
        return [one for each in self.each.values() for one in each.order.invalid]

    @property
    def timer(self) -> int | None:
        """When any wants to be asked again."""
        if not self.clocked:
            return None
        gaps = self._gaps
        timers = [gaps.get(name) for name in self._live]
        timers += [self._silence.due(name) for name in self._live if name not in gaps]
        return min((timer for timer in timers if timer is not None), default=None)

    @property
    def progress(self) -> tuple[int, int]:
        """How many events have had their turn, and how far time has come."""
        return len(self._gone), self.time

    def push(self, name: str, rows: list[EventRow], arrival: int, told: int) -> None:
        """Take rows of a source, and the watermark that comes with them."""
        source = self._open[name]
        for at, own in self._moments(rows, arrival):
            self._speak({name} if own else set(), at)
            source.push(own, at)
            self._pass_on()
        source.tell(told)
        self._pass_on()

    def push_together(self, parts: Mapping[str, list[EventRow]], arrival: int, told: int) -> None:
        """Take rows of several sources, and the watermark of all."""
        due = self.timer
        fires = due is not None and due <= arrival
        if fires and not self.is_patient:
            self.fire(arrival)
        self._speak({name for name, rows in parts.items() if rows}, arrival)
        for name, source in self._open.items():
            rows = parts.get(name, [])
            if rows or told != NO_TIME or self.names is None:
                source.push(rows, arrival)
                source.tell(told)
                self._said[name] = source.order.time
        self._pass_on()
        if fires and self.is_patient:
            # Who has events at this moment is not silent.
            self.fire(arrival)

    def tell(self, name: str, told: int, arrival: int) -> None:
        """Take a promise of a source, which counts as a word."""
        self._speak({name}, int(NO_TIME) if self._column is not None else arrival)
        self._open[name].tell(told)
        self._pass_on()

    def fire(self, at: int) -> None:
        """Let the clock come to a time."""
        for name in self._live:
            self._open[name].fire(at)
        self._find_silent(at)
        self._pass_on()

    def finish(self, source: str | None = None) -> None:
        """Take the end of a source, or of all."""
        for name in [*self._open] if source is None else [source]:
            self._open.pop(name).finish()
            self._silence.silent.discard(name)
        self._pass_on()

    def table(self, rows: list[EventRow]) -> pa.Table:
        """Return rows as they are sent."""
        return pa.Table.from_pylist(rows, schema=self._schema)

    def taken(self) -> pa.Table:
        """Return the events that take part, in order."""
        order = OrderModel(self.query)
        order.released = self._gone
        return order.taken(self._schema)

    @property
    def _live(self) -> list[str]:
        """The sources that others wait for."""
        return [name for name in self._open if name not in self._silence.silent]

    @property
    def _gaps(self) -> dict[str, int]:
        """The sources that wait for missing events of their own, and until when."""
        due = ((name, self._open[name].due) for name in self._live)
        return {name: at for name, at in due if at is not None}

    def _speak(self, spoken: set[str], clock: int) -> None:
        """Let sources speak at a time, after those are silent that were so before it.

        Without a column nobody knows what was between the last time and this one.
        """
        silence = self._silence
        if not silence.patience or (not spoken and clock == NO_TIME):
            return
        if clock > silence.now:
            before = silence.now if self._column is None else clock - 1
            for name in self._gaps:
                while (due := self._open[name].due) is not None and due <= before:
                    self._open[name].fire(due)
            self._find_silent(before)
            self._pass_on()
        moment, known = max(clock, silence.now), [*self._open]
        returned = silence.hear(spoken, moment, self._live, known, waiting=bool(self._gaps))
        for name in returned:
            # What it sends from now on is late where the others have passed it.
            self._open[name].tell(self.time)

    def _moments(self, rows: list[EventRow], arrival: int) -> list[tuple[int, list[EventRow]]]:
        """Return rows by when they arrived, where a column says so."""
        now, column = self._silence.now, self._column
        if column is None:
            return [(arrival, rows)]
        at = [max(row[column], now) for row in rows]
        return [
            (moment, [row for row, own in zip(rows, at, strict=True) if own == moment])
            for moment in sorted(set(at))
        ]

    def _find_silent(self, now: int) -> None:
        gaps = self._gaps
        # What a gap held that was given up has been said, though its source is silent now.
        self._said.update({name: self.each[name].order.time for name in self._live})
        self._silence.find(now, [name for name in self._live if name not in gaps])

    def _pass_on(self) -> None:
        """Let events go on that none of a source that others wait for can come before."""
        self._collect()
        if self.names is None:
            (only,) = self.each.values()
            self.time = only.order.time
            self._gone += [event for _, event in self._waiting]
            self._waiting = []
            return
        live = self._live
        self._said.update({name: self.each[name].order.time for name in live})
        times = [self.each[name].order.time for name in live or self.each]
        self.time = max(self.time, min(times) if live else max(times))
        for name in self._silence.silent:
            self._open[name].tell(self.time)
        self._collect()
        ready = [one for one in self._waiting if not live or one[1].time < self.time]
        self._waiting = [one for one in self._waiting if live and one[1].time >= self.time]
        # Those that nothing tells apart are in the order of their sources, and as they came.
        ready.sort(key=lambda one: (one[1].time, one[1].seq, one[0]))
        self._gone += [event for _, event in ready]
        for _, event in ready:
            if any(self._said[name] <= event.time for name in self._silence.silent):
                flag(event.row)

    def _collect(self) -> None:
        for name, source in self.each.items():
            self._waiting += [(name, event) for event in source.let_go()]


class _SilenceModel:
    """Which sources are silent, by how long others wait for them, in microseconds."""

    def __init__(self, patience: Mapping[str, int]) -> None:
        self.patience = patience
        self.now = int(NO_TIME)
        self.silent: set[str] = set()
        #: When the count began, and when each source spoke last since then.
        self._began: int | None = None
        self._heard: dict[str, int] = {}

    def due(self, name: str) -> int | None:
        """Return when a source is silent, if it says nothing."""
        if self._began is None or name not in self.patience:
            return None
        return self._heard.get(name, self._began) + self.patience[name]

    def find(self, now: int, names: Iterable[str]) -> None:
        """Find out which of some sources are silent at a time."""
        self.now = max(self.now, now)
        self.silent |= {name for name in names if self._is_over(name, self.now)}

    def hear(
        self,
        spoken: set[str],
        clock: int,
        live: Iterable[str],
        known: Iterable[str],
        *,
        waiting: bool,
    ) -> list[str]:
        """Let sources speak at a time; return those that were silent before.

        One that is waiting for missing events is not silent.
        """
        self.now = max(self.now, clock)
        if not spoken or clock == NO_TIME:
            return []
        before = self.silent
        if self._began is None:
            self._began = clock
        elif all(self._is_over(name, clock) for name in live) and not waiting:
            # All were silent: a new count begins for those that spoke in the last one.
            self.silent = {name for name in known if name not in self._heard}
            self._began, self._heard = clock, {}
        self.silent = self.silent - spoken
        self._heard |= dict.fromkeys(spoken, clock)
        return sorted(before - self.silent)

    def _is_over(self, name: str, clock: int) -> bool:
        due = self.due(name)
        return due is not None and due <= clock


class _SourceModel:
    """One source: its order, and before that a gate, where its events have numbers."""

    def __init__(self, query: Query, schema: pa.Schema) -> None:
        disorder = query.order_of_arrival
        assert disorder is not None
        self._disorder, self._schema, self._time = disorder, schema, time_of(query)
        self._gate: SequenceOracle | None = None
        if isinstance(disorder, Sequence):
            query = query.disorder(InOrder(**{**disorder.options, "arrival": None, "flag": None}))
            self._gate = SequenceOracle(
                alpha=disorder.alpha,
                beta=disorder.beta,
                deviations=disorder.deviations,
                shortest=_microseconds(disorder.at_least),
                longest=_microseconds(disorder.timeout),
                first=disorder.first,
            )
        self.order = OrderModel(query)
        self._rows: list[EventRow] = []
        self._now = self._told = int(NO_TIME)
        self._went = 0

    @property
    def due(self) -> int | None:
        """When missing events are given up."""
        return None if self._gate is None else self._gate.due

    def push(self, rows: list[EventRow], arrival: int) -> None:
        """Take rows."""
        if self._gate is None:
            self.order.push(self._table(rows))
            return
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
            # A column tells all that arrived before: what was waited for until then has gone on.
            while column is not None and self.due is not None and self.due < at:
                self.fire(self.due)
            self._gate.arrive(place, number, at)
            self._now = max(self._now, at)
        if column is None:
            self._now = max(self._now, arrival)
        self.tell(int(NO_TIME))

    def fire(self, at: int) -> None:
        """Let the clock come to a time."""
        self._now = max(self._now, at)
        self.tell(int(NO_TIME))

    def tell(self, told: int) -> None:
        """Take a promise, and let in what may go by now."""
        if self._gate is None:
            self.order.tell(told)
            return
        self._told = max(self._told, told)
        self._gate.pass_time(self._now)
        self._let_in(self._gate)
        held = [self._rows[place] for *_, place in self._gate.held.values()]
        known = [row for row in held if row[self._time] is not None]
        query = self.order.query
        self.order.tell(min([self._told, *times_of(query, self._table(known))]))

    def finish(self) -> None:
        """Let all in that is held."""
        if self._gate is not None:
            held = self._gate.held
            self._gate.order += [held.pop(number)[2] for number in sorted(held)]
            self._let_in(self._gate)
        self.order.finish()

    def let_go(self) -> list[OrderedEvent]:
        """Return the events that went on since the last call."""
        begin, self._went = self._went, len(self.order.released)
        return self.order.released[begin:]

    def _let_in(self, gate: SequenceOracle) -> None:
        entered = [*gate.order]
        if self._disorder.late is Late.PASS:
            for place, before in reversed(gate.late.items()):
                entered.insert(before, place)
        else:
            self.order.late += [self._rows[place][ID] for place in gate.late]
        for place in gate.timed:
            flag(self._rows[place])
        gate.timed.clear()
        self.order.push(self._table([self._rows[place] for place in entered]))
        gate.late.clear()
        gate.order.clear()

    def _table(self, rows: list[EventRow]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=self._schema)


def flag(row: EventRow) -> None:
    """Flag an event that went on because a time was up, where events have such a column."""
    if FLAG in row:
        row[FLAG] = True


def _spans(patience: Any, names: Iterable[str]) -> dict[str, int]:
    """Return how long others wait for each source, in microseconds; not for those left out."""
    if patience is None:
        return {}
    each = patience if isinstance(patience, tuple) else [(name, patience) for name in names]
    return {name: _microseconds(span) for name, span in each}


def _microseconds(span: Any) -> int:
    return 0 if span is None else int(span / datetime.timedelta(microseconds=1))
