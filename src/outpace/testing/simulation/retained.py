"""An operator without checkpoints, simulated: it is rebuilt from a savepoint and retained events.

What feeds it retains the events and the times that were told; what takes its matches acknowledges
them when it likes, and drops those that it has by their places.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.message import EventsArrived, SourceEnded, TimeTold
from outpace.engine.operator import emit_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.recoverable import RecoverableOperator
from outpace.engine.recover.savepoint import NOTHING, MatchPlace, Savepoint, is_behind
from outpace.engine.window_match.result import WindowMatches
from outpace.testing.simulation.arrival import DrawnArrival
from outpace.testing.simulation.places import RunOutcome, told
from outpace.testing.simulation.trace import RunTrace


class Retained:
    """Events and times that were told, as far as the last savepoint needs them."""

    def __init__(self, schema: pa.Schema, savepoint: Savepoint) -> None:
        self._rows = schema.empty_table()
        self._numbers = np.zeros(0, np.int64)
        self._told: list[tuple[int, int]] = []
        self._came = 0
        self._saved = savepoint.encode()

    def take(self, stimulus: EventsArrived | TimeTold) -> None:
        """Retain what an operator is about to take."""
        if isinstance(stimulus, TimeTold):
            self._told.append((self._came, stimulus.watermark))
            return
        self._rows = pa.concat_tables([self._rows, stimulus.rows])
        size = stimulus.rows.num_rows
        self._numbers = np.append(self._numbers, np.arange(self._came, self._came + size))
        self._came += size

    def thin(self, savepoint: Savepoint) -> None:
        """Drop what a savepoint has no use for."""
        needed = ~savepoint.drops(self._numbers)
        self._rows, self._numbers = self._rows.filter(pa.array(needed)), self._numbers[needed]
        self._told = [one for one in self._told if one[0] >= savepoint.at]
        self._saved = savepoint.encode()

    def replay(self, operator: RecoverableOperator) -> WindowMatches:
        """Rebuild an operator, and return what it gives."""
        savepoint = Savepoint.decode(self._saved)
        return operator.rebuild(savepoint, self._rows, self._numbers, self._told).matches


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
    retained = Retained(spec.schema, operator.notice())
    often = random.choice([0.1, 0.5, 1.0])
    for stimulus in arrival.steps:
        assert isinstance(stimulus, EventsArrived | TimeTold)
        trace.say(told(stimulus))
        retained.take(stimulus)
        receiver.take(emit_of(operator.step(stimulus)).matches)
        if random.random() < often:
            number = receiver.acknowledged(random)
            savepoint = operator.notice() if number is None else operator.save(*number)
            trace.say(f"  acknowledged {number}, {savepoint.seed} {savepoint.trim}")
            retained.thin(savepoint)
        if random.random() < 0.3:
            trace.say("  the operator is lost")
            operator = RecoverableOperator(spec)
            receiver.take(retained.replay(operator))
    receiver.take(emit_of(operator.step(SourceEnded())).matches)
    return receiver.outcome
