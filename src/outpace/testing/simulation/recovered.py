"""An operator without saved state, simulated: it is rebuilt from a savepoint and retained events.

What feeds it retains the events and the times that were told; what takes its matches acknowledges
them when it likes.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

from outpace.engine.message import EventsArrived, SourceEnded
from outpace.engine.operator import emit_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.recoverable import RecoverableOperator
from outpace.engine.recover.savepoint import Savepoint, is_put_in_order, retained_schema
from outpace.engine.window_match.result import WindowMatches
from outpace.ingest.retained import RetainedLog
from outpace.testing.simulation.arrival import DrawnArrival
from outpace.testing.simulation.places import RunOutcome, told
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


def run_recovered(
    spec: OperatorSpec, arrival: DrawnArrival, random: Random, trace: RunTrace
) -> RunOutcome:
    """Drive an operator that is lost now and then, and rebuilt by a replay."""
    operator, receiver = RecoverableOperator(spec), Receiver()
    retained = RetainedLog()
    retained.begin(retained_schema(spec))
    retained.thin(operator.notice())
    often = random.choice([0.1, 0.5, 1.0])
    for stimulus in arrival.steps:
        trace.say(told(stimulus))
        turn = operator.turn
        rows = operator.retained(stimulus) if isinstance(stimulus, EventsArrived) else None
        receiver.take(emit_of(operator.step(stimulus)).matches)
        retained.retain(stimulus, rows, turn, ordered=is_put_in_order(spec))
        if random.random() < often:
            number = receiver.acknowledged(random)
            savepoint = operator.notice() if number is None else operator.save(*number)
            trace.say(f"  acknowledged {number}, {savepoint.seed} {savepoint.trim}")
            retained.thin(Savepoint.decode(savepoint.encode()))
        if random.random() < 0.3:
            trace.say("  the operator is lost")
            operator = RecoverableOperator(spec)
            assert retained.savepoint is not None
            again = operator.rebuild(retained.savepoint, *retained.events(), retained.told)
            receiver.replay(again.matches)
    receiver.take(emit_of(operator.step(SourceEnded())).matches)
    return receiver.finish()
