"""An operator in one place, fed by calls: what several tests drive."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from outpace.engine.message import Emit, EventsArrived, SourceEnded, Stimulus, WatermarkArrived
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.state import State
from outpace.engine.whole import match_whole
from outpace.pattern.query import Query


class Given(NamedTuple):
    """What a step gave, as tables."""

    matches: pa.Table
    timed_out: pa.Table
    watermark: int


class FedOperator:
    """An operator whose steps return what they emit."""

    def __init__(self, query: Query, schema: pa.Schema, **spec: Any) -> None:
        self.operator = WholeOperator(OperatorSpec(query, schema, **spec))

    def push(self, rows: pa.Table) -> Given:
        return self._step(EventsArrived(rows))

    def advance(self, watermark: int) -> Given:
        return self._step(WatermarkArrived(watermark))

    def finish(self) -> Given:
        return self._step(SourceEnded())

    def state(self) -> bytes:
        return self.operator.state().encode()

    def restore(self, data: bytes) -> None:
        self.operator.restore(State.decode(data))

    @property
    def rows_kept(self) -> int:
        return self.operator.instance.rows_kept

    @property
    def partitions_kept(self) -> int:
        return self.operator.instance.partitions_kept

    def starts_kept(self) -> int:
        return self.operator.instance.starts_kept()

    def _step(self, stimulus: Stimulus) -> Given:
        (emit,) = [one for one in self.operator.step(stimulus) if isinstance(one, Emit)]
        return Given(emit.matches.table, emit.timed_out, emit.watermark)


def match_windows(query: Query, table: pa.Table) -> pa.Table:
    """Return the matches in the windows of a table, by one instance."""
    return match_whole(OperatorSpec(query, table.schema), table).table


def written(state: State) -> State:
    """Return a state as it is read where it was written."""
    return State.decode(state.encode())
