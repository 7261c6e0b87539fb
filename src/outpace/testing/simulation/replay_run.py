"""An operator without saved state, simulated: it is rebuilt from a savepoint and retained events.

What feeds it retains the events and the stimuli between them; what takes its matches acknowledges
them when it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

from outpace.engine.back import Back
from outpace.engine.front import Front
from outpace.engine.instance import Instance
from outpace.engine.message import (
    Deliver,
    Delivered,
    EventsArrived,
    MatchesAcknowledged,
    SourceEnded,
)
from outpace.engine.operator import emit_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.arrivals import is_put_in_order, retained_schema
from outpace.engine.recover.recoverable import RecoverableOperator, savepoint_of
from outpace.engine.recover.shared_instances import SharedRecoverableOperator
from outpace.engine.savepoint import Savepoint
from outpace.engine.window_match.result import WindowMatches
from outpace.ingest.retained_log import RetainedLog
from outpace.testing.simulation.arrival import DrawnArrival
from outpace.testing.simulation.places import RunOutcome, line_of
from outpace.testing.simulation.trace import RunTrace


class Receiver:
    """What takes matches, and acknowledges them; only those that it has not are replayed."""

    def __init__(self) -> None:
        self.outcome = RunOutcome()
        #: The numbers of matches that are not acknowledged, and their rows.
        self._waiting: list[tuple[tuple[int, int], list[dict[str, object]]]] = []

    def take(self, matches: WindowMatches) -> None:
        """Take matches."""
        rows, offsets = matches.table.to_pylist(), matches.offsets.tolist()
        numbers = zip(matches.event.tolist(), matches.window.tolist(), strict=True)
        for number, (low, high) in zip(numbers, pairwise(offsets), strict=True):
            self._waiting.append((number, rows[low:high]))

    def replay(self, matches: WindowMatches) -> None:
        """Take again the matches that were not acknowledged."""
        self._waiting = []
        self.take(matches)

    def acknowledged(self, random: Random) -> tuple[int, int] | None:
        """Return the number of a match up to which all are acknowledged."""
        if not self._waiting:
            return None
        number, _ = random.choice(self._waiting)
        self._settle(max(at for at, (one, _) in enumerate(self._waiting) if one == number) + 1)
        return number

    def finish(self) -> RunOutcome:
        """Acknowledge all, and return it."""
        self._settle(len(self._waiting))
        return self.outcome

    def _settle(self, count: int) -> None:
        for _, rows in self._waiting[:count]:
            self.outcome.matches += rows
        self._waiting = self._waiting[count:]


class InstancesInTurn:
    """Instances that share windows, in one place; they answer in any order."""

    def __init__(self, spec: OperatorSpec, random: Random) -> None:
        self.front, self.back = Front(spec), Back(spec)
        self._instances = [Instance(spec) for _ in range(spec.instances or 1)]
        self._random = random
        self._sent: list[list[Deliver]] = [[] for _ in self._instances]

    def send_all(self, deliveries: Sequence[Deliver]) -> None:
        """Give instances the deliveries of one block."""
        for delivery in deliveries:
            self.back.step(delivery)
            self._sent[delivery.instance].append(delivery)

    def receive_all(self) -> None:
        """Let all answer."""
        while waiting := [number for number, sent in enumerate(self._sent) if sent]:
            number = self._random.choice(waiting)
            answer = self._instances[number].step(self._sent[number].pop(0))
            answered = Delivered(number, answer)
            self.front.step(answered)
            self.back.step(answered)


def run_recovered(
    spec: OperatorSpec, arrival: DrawnArrival, random: Random, trace: RunTrace
) -> RunOutcome:
    """Drive an operator that is lost now and then, and rebuilt by a replay."""

    def make() -> RecoverableOperator:
        if spec.instances is None:
            return RecoverableOperator(spec)
        ordered = is_put_in_order(spec)
        shared = InstancesInTurn(replace(spec, traced=ordered), random)
        return SharedRecoverableOperator(replace(spec, instances=None), shared)

    operator, receiver = make(), Receiver()
    retained = RetainedLog()
    retained.begin(retained_schema(spec))
    retained.thin(savepoint_of(operator.step(MatchesAcknowledged())))
    often = random.choice([0.1, 0.5, 1.0])
    for stimulus in arrival.steps:
        trace.say(line_of(stimulus))
        turn = operator.turn
        rows = operator.retained(stimulus) if isinstance(stimulus, EventsArrived) else None
        receiver.take(emit_of(operator.step(stimulus)).matches)
        retained.retain(stimulus, rows, turn, ordered=is_put_in_order(spec))
        if random.random() < often:
            number = receiver.acknowledged(random)
            savepoint = savepoint_of(operator.step(MatchesAcknowledged(number)))
            trace.say(f"  acknowledged {number}, {savepoint.seed} {savepoint.trim}")
            retained.thin(Savepoint.decode(savepoint.encode()))
        if random.random() < 0.3:
            trace.say("  the operator is lost")
            operator = make()
            assert retained.savepoint is not None
            again = operator.rebuild(retained.savepoint, *retained.events(), retained.stimuli)
            receiver.replay(again.matches)
    receiver.take(emit_of(operator.step(SourceEnded())).matches)
    return receiver.finish()
