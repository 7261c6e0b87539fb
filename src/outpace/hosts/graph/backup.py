"""What an operator tells its predecessors: a savepoint, and which of their events it needs.

Events are known by the numbers that each predecessor gave its own. So each may forget at its own
time: the newest backup says which of the events that come back are needed, and which to leave out.

Backups are kept by all ancestors, so that operators beside each other may be lost together.
Paper: Lima et al., sections II-B (there: ack) and II-C.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from outpace.engine.recover.event_needs import NeededNumbers
from outpace.engine.savepoint import MatchPlace, Savepoint
from outpace.engine.state import NATURAL, State, integer, reading, require


@dataclass(frozen=True, eq=False)
class Backup:
    """What an operator is rebuilt from, beside the events that its predecessors retain.

    Parameters
    ----------
    operator
        Its name.
    savepoint
        Where it stood.
    settled
        How many rows of its matches were acknowledged by all who read them.
    inputs
        Which events the savepoint needs, by predecessor, in the numbers of each.
    skipped
        How many events were of no use before all events before them were, so far.

    Examples
    --------
    >>> needed = NeededNumbers(5, np.array([3]))
    >>> backup = Backup("falls", needed.savepoint, 7, {"ticks": needed})
    >>> again = Backup.decode(backup.encoded)
    >>> again.operator, again.settled, again.inputs["ticks"].numbers.tolist()
    ('falls', 7, [3])
    """

    operator: str
    savepoint: Savepoint
    settled: int
    inputs: Mapping[str, NeededNumbers]
    skipped: int = 0

    @property
    def age(self) -> tuple[int, MatchPlace, int]:
        """What is greater for a later one of the operator."""
        return self.savepoint.at, self.savepoint.settled, self.settled

    @cached_property
    def encoded(self) -> bytes:
        """The backup as bytes."""
        header = {
            "operator": self.operator,
            "settled": self.settled,
            "skipped": self.skipped,
            "needed": [[name, one.at, one.trim] for name, one in self.inputs.items()],
        }
        bare = replace(self.savepoint, skip=np.zeros((0, 2), np.int64)).encode()
        saved = pa.table({"savepoint": pa.array([bare], pa.binary())})
        return State(header, [saved, *(one.runs() for one in self.inputs.values())]).encode()

    @staticmethod
    def decode(data: bytes) -> Backup:
        """Read what `encoded` has; raise `StateError` for anything else."""
        state = State.decode(data)
        with reading():
            header, (saved, *tables) = state.content()
            require(len(tables) == len(header["needed"]) > 0, "inputs are missing")
            inputs = {}
            for (name, at, trim), table in zip(header["needed"], tables, strict=True):
                numbers = {"at": at, "trim": trim}
                bounds = (
                    integer(numbers, "at", NATURAL),
                    integer(numbers, "trim", range(-1, 1 << 62)),
                )
                inputs[str(name)] = NeededNumbers.read(*bounds, table)
            savepoint = Savepoint.decode(saved["savepoint"][0].as_py())
            settled, skipped = (integer(header, one, NATURAL) for one in ("settled", "skipped"))
            return Backup(str(header["operator"]), savepoint, settled, inputs, skipped)


def keep_newest(known: dict[str, Backup], backups: Iterable[Backup]) -> None:
    """Keep of each operator the newest backup."""
    for one in backups:
        other = known.get(one.operator)
        if other is None or one.age >= other.age:
            known[one.operator] = one
