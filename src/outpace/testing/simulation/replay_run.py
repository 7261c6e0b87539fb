"""An operator without saved state, simulated: it is rebuilt from a savepoint and retained events.

What feeds it retains the events and the stimuli between them; what takes its matches acknowledges
them when it likes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from random import Random

from outpace.engine.instance import Instance
from outpace.engine.message import (
    Deliver,
    Delivered,
    EventsArrived,
    Instruction,
    MatchesAcknowledged,
    SetAside,
    SourceEnded,
)
from outpace.engine.operator import emit_of, joined_emit
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.arrivals import is_put_in_order, retained_schema
from outpace.engine.recover.recoverable import RecoverableOperator, savepoint_of
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
    """Instances that share the windows of an operator, in one place; they answer in any order."""

    def __init__(self, operator: RecoverableOperator, random: Random) -> None:
        self._operator, self._random = operator, random
        spec = operator.spec
        self._instances = [Instance(spec) for _ in range(spec.instances or 1)]

    def carry(self, instructions: list[Instruction]) -> list[Instruction]:
        """Let all take what is delivered to them, and return all else, with one `Emit`."""
        sent: list[deque[Deliver]] = [deque() for _ in self._instances]
        for one in instructions:
            if isinstance(one, Deliver):
                sent[one.instance].append(one)
        emits = [emit_of(instructions)]
        while waiting := [number for number, queue in enumerate(sent) if queue]:
            number = self._random.choice(waiting)
            answer = self._instances[number].step(sent[number].popleft())
            emits.append(emit_of(self._operator.step(Delivered(number, answer))))
        aside = (one for one in instructions if isinstance(one, SetAside))
        return [*aside, joined_emit(emits)]


def run_recovered(
    spec: OperatorSpec, arrival: DrawnArrival, random: Random, trace: RunTrace
) -> RunOutcome:
    """Drive an operator that is lost now and then, and rebuilt by a replay."""

    def make() -> tuple[RecoverableOperator, Callable[[list[Instruction]], list[Instruction]]]:
        operator = RecoverableOperator(spec)
        if spec.instances is None:
            return operator, list
        return operator, InstancesInTurn(operator, random).carry

    (operator, carry), receiver = make(), Receiver()
    retained = RetainedLog()
    retained.begin(retained_schema(spec))
    retained.thin(savepoint_of(operator.step(MatchesAcknowledged())))
    often = random.choice([0.1, 0.5, 1.0])
    for stimulus in arrival.steps:
        trace.say(line_of(stimulus))
        turn = operator.turn
        rows = operator.retained(stimulus) if isinstance(stimulus, EventsArrived) else None
        receiver.take(emit_of(carry(operator.step(stimulus))).matches)
        retained.retain(stimulus, rows, turn, ordered=is_put_in_order(spec))
        if random.random() < often:
            number = receiver.acknowledged(random)
            savepoint = savepoint_of(operator.step(MatchesAcknowledged(number)))
            trace.say(f"  acknowledged {number}, {savepoint.seed} {savepoint.trim}")
            retained.thin(Savepoint.decode(savepoint.encode()))
        if random.random() < 0.3:
            trace.crash("  the operator is lost")
            operator, carry = make()
            assert retained.savepoint is not None
            events = retained.events()
            again = operator.rebuild(retained.savepoint, *events, retained.stimuli, carry)
            receiver.replay(again.matches)
    receiver.take(emit_of(carry(operator.step(SourceEnded()))).matches)
    return receiver.finish()
