"""The technique that the paper compares with: speculation around an operator that is a black box.

Whoever buffers the events knows nothing of what is behind: one state of the whole system is saved
before each event that goes on early. All instances must have done what they got, and their states
are sent to who buffers. With a late event the whole system goes back to the state before it, and
gets all events since once more. Mutschler and Philippsen 2013, as Sardar 2018 reads it (sections
4.1 to 4.6 and 5.1 to 5.7).

The clock is that of `speculation_runs`: real parts and measured costs; instances work at the same
time where events are theirs, and save their states at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from outpace.engine.back import Back
from outpace.engine.front import Front
from outpace.engine.instance import Instance
from outpace.engine.message import (
    Deliver,
    Delivered,
    EventsArrived,
    Routed,
    SourceEnded,
    Stimulus,
    TurnEnded,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import ReleasedEvents
from outpace.engine.rows.permutation import as_table
from outpace.engine.rows.times import as_integers
from outpace.engine.state import State
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bind.query import bind
from outpace.studies.speculation_runs import LOAD_S, RunSetting, SpeculationRun
from outpace.studies.speculation_stream import APART, loads_of, sequence_query


@dataclass(frozen=True)
class SystemState:
    """The state of the whole system before an event.

    Parameters
    ----------
    time
        Of the event.
    parts
        Front, back and instances, as they were sent.
    given
        How many matches had come out.
    """

    time: int
    parts: list[bytes]
    given: int


class BlackBoxHost:
    """Drives an operator as a black box, one event after the other.

    Parameters
    ----------
    setting
        What runs.
    stream
        The events, in the order in which they come.
    """

    def __init__(self, setting: RunSetting, stream: pa.Table) -> None:
        schema = stream.schema
        query = setting.query
        inner = sequence_query(setting.size, setting.slide, setting.instances)
        self._setting, self._stream = setting, stream
        self._order = make_order(bind(query, schema), bind_disorder(query, schema), schema)
        spec = OperatorSpec(inner, schema).shared
        self._front, self._back = Front(spec), Back(spec)
        self._instances = [Instance(spec) for _ in range(setting.instances)]
        self._parts: list[Front | Back | Instance] = [self._front, self._back, *self._instances]
        self._now = 0.0
        #: States that somebody may go back to, and the events since the first of them.
        self._states: list[SystemState] = []
        self._events: list[tuple[int, pa.Table]] = []
        #: How many matches have come out and are there.
        self._given = 0
        self.run = SpeculationRun.begun(stream, setting.rate)

    def drive(self) -> SpeculationRun:
        """Let all events come."""
        for place in range(self._stream.num_rows):
            rows = self._stream.slice(place, 1)
            self._now = max(self._now, (place + 1) / self._setting.rate)
            push = partial(self._order.push, EventsArrived(rows))
            released, seconds = self.run.costs.of(push, "order")
            self._now += seconds
            self._take(released)
        self._take(self._order.finish())
        self._push(SourceEnded())
        self.run.given, self.run.ended = self._given, self._now
        return self.run

    def _take(self, released: ReleasedEvents) -> None:
        if released.late is not None:
            self.run.late += released.late.num_rows
        if released.correcting is not None and released.correcting.num_rows:
            self._correct(released.correcting)
        for rows in _one_by_one(as_table(released.rows)):
            time = int(as_integers(rows.column("ts"))[0])
            self._forward(time, rows)

    def _forward(self, time: int, rows: pa.Table) -> None:
        """Let an event go on, with a state of the system before it where it is speculation."""
        if time >= self._order.certain:
            self._save(time)
        else:
            # What is certain is never gone back to.
            self._states.clear()
            self._events.clear()
        self._events.append((time, rows))
        self._push(EventsArrived(rows))
        place = time // APART
        if np.isnan(self.run.tentative[place]):
            self.run.tentative[place] = self._now
        self.run.confirmed[place] = self._now

    def _save(self, time: int) -> None:
        """Save the state of the system; instances do so at the same time."""
        saved, costs = [], []
        for part in self._parts:
            state, seconds = self.run.costs.of(partial(_encoded, part), "state")
            saved.append(state)
            costs.append(seconds)
        self._now += costs[0] + costs[1] + max(costs[2:])
        self._states.append(SystemState(time, saved, self._given))
        self.run.marks += 1

    def _correct(self, late: pa.Table) -> None:
        """Go back before late events, and let all since go on again."""
        first = int(as_integers(late.column("ts")).min())
        if not self._states:
            # All states are gone, as what came since is certain: it comes too late (section 4.5).
            self.run.late += late.num_rows
            return
        before = [state for state in self._states if state.time <= first]
        state = before[-1] if before else self._states[0]
        self._restore(state)
        since = [one for one in self._events if one[0] >= state.time]
        self._states = self._states[: self._states.index(state)]
        self._events = [one for one in self._events if one[0] < state.time]
        since += [(int(as_integers(row.column("ts"))[0]), row) for row in _one_by_one(late)]
        self.run.corrections += 1
        self.run.again += len(since)
        for time, rows in sorted(since, key=lambda one: one[0]):
            self._forward(time, rows)

    def _restore(self, state: SystemState) -> None:
        costs = []
        for part, saved in zip(self._parts, state.parts, strict=True):
            costs.append(self.run.costs.of(partial(_restore, part, saved), "restore")[1])
        self._now += costs[0] + costs[1] + max(costs[2:])
        self.run.retracted += self._given - state.given
        self._given = state.given

    def _answered(self, message: Delivered) -> None:
        self._front.step(message)
        self._back.step(message)

    def _push(self, stimulus: Stimulus) -> None:
        """Let the system take something, and wait until all is done."""
        costs = self.run.costs
        said, seconds = costs.of(lambda: list(self._front.step(stimulus)), "front")
        deliveries = [message for message in said if isinstance(message, Deliver)]
        for message in said:
            if isinstance(message, Deliver | Routed):
                seconds += costs.of(partial(self._back.step, message), "back")[1]
        setting, busiest = self._setting, 0.0
        for message in deliveries:
            step = partial(self._instances[message.instance].step, message)
            answer, took = costs.of(step, "instance")
            if message.size:
                first = int(message.events.arrival[0])
                loads = loads_of(first, first + 1, setting.size, setting.slide, setting.instances)
                took += int(loads[message.instance]) * LOAD_S
            busiest = max(busiest, took)
            heard = partial(self._answered, Delivered(message.instance, answer))
            seconds += costs.of(heard, "answer")[1]
        (emit,), took = costs.of(lambda: self._back.step(TurnEnded()), "emit")
        self._given += emit.matches.table.num_rows
        self._now += seconds + busiest + took


def _encoded(part: Front | Back | Instance) -> bytes:
    return bytes(part.state().encode())


def _restore(part: Front | Back | Instance, saved: bytes) -> None:
    part.restore(State.decode(saved))


def _one_by_one(rows: pa.Table) -> Iterator[pa.Table]:
    for place in range(rows.num_rows):
        yield rows.slice(place, 1)
