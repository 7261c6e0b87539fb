"""An operator without checkpoints, simulated: it is rebuilt from a savepoint and retained events.

What feeds it retains the events and the times that were told; what takes its matches acknowledges
them when it likes, and drops those that it has by their places.
"""

from __future__ import annotations

from random import Random

import numpy as np

from outpace.engine.arrays import Integers
from outpace.engine.message import EventsArrived, SourceEnded, TimeTold
from outpace.engine.operator import emit_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.recoverable import RecoverableOperator
from outpace.engine.recover.savepoint import NOTHING, MatchPlace, Savepoint, is_behind
from outpace.engine.window_match.result import WindowMatches
from outpace.ingest.retained import RetainedLog
from outpace.testing.simulation.arrival import DrawnArrival
from outpace.testing.simulation.places import RunOutcome, told
from outpace.testing.simulation.trace import RunTrace


class Receiver:
    """What takes matches, each once, and acknowledges them."""

    def __init__(self) -> None:
        self.outcome = RunOutcome()
        self._last = NOTHING
        self._waiting: Integers = np.zeros((4, 0), np.int64)

    def take(self, matches: WindowMatches) -> None:
        """Take the matches that are new."""
        if not len(matches):
            return
        places = np.stack([matches.event, matches.phase, matches.window, matches.partition])
        new = np.flatnonzero(is_behind(places, self._last))
        if len(new):
            self.outcome.matches += matches.take(new).table.to_pylist()
            self._last = MatchPlace(*places[:, new[-1]].tolist())
            self._waiting = np.concatenate([self._waiting, places[:, new]], axis=1)

    def acknowledged(self, random: Random) -> tuple[int, int] | None:
        """Return the number of a match up to which all are acknowledged."""
        if not self._waiting.shape[1]:
            return None
        last = random.randrange(self._waiting.shape[1])
        x, _, y, _ = self._waiting[:, last].tolist()
        self._waiting = self._waiting[:, last + 1 :]
        return x, y


def run_retained(
    spec: OperatorSpec, arrival: DrawnArrival, random: Random, trace: RunTrace
) -> RunOutcome:
    """Drive an operator that is lost now and then, and rebuilt by a replay."""
    operator, receiver = RecoverableOperator(spec), Receiver()
    retained = RetainedLog()
    retained.begin(spec.schema)
    retained.thin(operator.notice())
    often = random.choice([0.1, 0.5, 1.0])
    for stimulus in arrival.steps:
        assert isinstance(stimulus, EventsArrived | TimeTold)
        trace.say(told(stimulus))
        receiver.take(emit_of(operator.step(stimulus)).matches)
        if isinstance(stimulus, TimeTold):
            retained.tell(stimulus.watermark)
        else:
            retained.append(stimulus.rows)
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
            receiver.take(again.matches)
    receiver.take(emit_of(operator.step(SourceEnded())).matches)
    return receiver.outcome
