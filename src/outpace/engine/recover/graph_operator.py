"""The operator of a graph: rows of its matches are the events of others, so they are counted.

Operators are deterministic, and a rebuilt one gives the matches behind the last one that was
acknowledged, in their order. So the number of the first row of these is all that has to be known,
and each row has the number among all that it had before: who has taken it drops it. The paper's x:y
has no distances; these numbers have, so that windows of successors may count them.

Memory: an integer for each match that is not acknowledged.
Paper: Lima et al., sections II-B and III-B5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.event import EVENT_ID, SEQUENCE_BITS
from outpace.engine.message import (
    Acknowledgement,
    Instruction,
    OperatorLost,
    RowsAcknowledged,
)
from outpace.engine.operator import emit_of, matches_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.event_needs import NeededNumbers
from outpace.engine.recover.partition_replay import PartitionReplay
from outpace.engine.recover.recoverable import RecoverableOperator
from outpace.engine.savepoint import Savepoint
from outpace.engine.window_match.result import WindowMatches


class CountedOperator(RecoverableOperator):
    """An operator that counts the rows of its matches, also when it was rebuilt.

    Examples
    --------
    >>> from outpace.engine.message import EventsArrived
    >>> from outpace.engine.operator import matches_of
    >>> from outpace.engine.recover.recoverable import savepoint_of
    >>> from outpace.pattern.query import Query
    >>> query = Query().order_by("ts").pattern("A B").measures(at="B.ts")
    >>> rows = pa.table({"ts": range(7)})
    >>> operator = CountedOperator(OperatorSpec(query, rows.schema))
    >>> matches_of(operator.step(EventsArrived(rows.slice(0, 6)))).num_rows, operator.came_out
    (3, 3)
    >>> savepoint_of(operator.step(RowsAcknowledged(3))).at, operator.settled
    (6, 3)
    >>> matches_of(operator.step(EventsArrived(rows.slice(6)))).num_rows, operator.came_out
    (0, 3)
    """

    def __init__(
        self,
        spec: OperatorSpec,
        place: int = 0,
        block_size: Callable[[pa.Table], int] | None = None,
    ) -> None:
        super().__init__(spec, place, block_size)
        #: How many rows came out of the stream, and how many of them are acknowledged.
        self.came_out = self.settled = 0
        #: How many rows each match has that is not acknowledged.
        self._sizes: list[Integers] = []
        #: How far time has come in what came out last.
        self._watermark = int(NO_TIME)

    def _given_of(self, instructions: list[Instruction]) -> list[Instruction]:
        """Count the rows of matches among instructions that are not settled."""
        given = super()._given_of(instructions)
        emit = emit_of(given)
        self._watermark = emit.watermark
        self._count(emit.matches)
        return given

    def _acknowledge(self, stimulus: Acknowledgement) -> None:
        """Take the acknowledgement of the first so many rows.

        Matches are acknowledged as a whole, and those that one event completes in one window at a
        time together.
        """
        assert isinstance(stimulus, RowsAcknowledged), "matches are acknowledged by their rows"
        sizes = np.concatenate([np.zeros(0, np.int64), *self._sizes])
        whole = int(np.searchsorted(np.cumsum(sizes), stimulus.count - self.settled, "right"))
        done = max(self._acknowledged, self._settled)
        taken, place = self._given.leading(done, whole)
        self._sizes = [sizes[taken:]]
        if taken:
            self._acknowledged = max(place, self._acknowledged)
            self.settled += int(sizes[:taken].sum())

    def needed_by_source(self, savepoint: Savepoint) -> dict[str | None, NeededNumbers]:
        """Return which events the last savepoint needs, by source and by their numbers there."""
        if self._arrived is None:
            return {None: NeededNumbers(savepoint.at, self._replay.numbers)}
        ids, old = self._arrived.ids, self._arrived.numbers < savepoint.at
        came, found = self.front.intake.came, dict[str | None, NeededNumbers]()
        for place, name in enumerate(came):
            own, first = ids >> SEQUENCE_BITS == place, place << SEQUENCE_BITS
            later = ids[own & ~old] - first
            at = int(later[0]) if len(later) else came[name]
            found[name] = NeededNumbers(at, ids[own & old] - first)
        return found

    def stand(
        self,
        savepoint: Savepoint,
        events: Mapping[str | None, tuple[pa.Table, Integers]],
        settled: int,
    ) -> pa.Table:
        """Stand where the operator of a savepoint stood, and return the matches behind it.

        Parameters
        ----------
        savepoint
            The savepoint.
        events
            By source, the events that it needs, and their numbers there, which rise.
        settled
            How many rows of matches were acknowledged.
        """
        if self._arrived is None:
            rows, numbers = events[None]
        else:
            # As they are told by their ids, any numbers that rise do.
            rows = pa.concat_tables(
                events[name][0].append_column(
                    EVENT_ID, pa.array(events[name][1] + (place << SEQUENCE_BITS))
                )
                for place, name in enumerate(self.front.intake.came)
            )
            numbers = np.arange(savepoint.at - rows.num_rows, savepoint.at)
            savepoint = replace(savepoint, trim=-1, skip=np.zeros((0, 2), np.int64))
        return matches_of(self.step(OperatorLost(savepoint, rows, numbers, settled)))

    def _stand(self, lost: OperatorLost) -> list[Instruction]:
        instructions = super()._stand(lost)
        self.settled = self.came_out = lost.settled
        return instructions

    @property
    def promise(self) -> int:
        """No later match has an event before this time; NO_TIME where nobody knows.

        Where there are windows, the operator is driven by events, see `OperatorSpec`.
        """
        if isinstance(self._replay, PartitionReplay):
            return self._watermark
        start = self._replay.start_open
        return self.front.intake.passed if start is None else start

    def _count(self, matches: WindowMatches) -> None:
        self.came_out += matches.table.num_rows
        if len(matches):
            self._sizes.append(np.diff(matches.offsets))
