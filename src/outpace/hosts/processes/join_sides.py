"""The two sources of a join that runs: its sides, whose rows become one stream when both are known.

The columns of a side are those of its first batch, so nothing is joined before each side has sent
one. A batch without rows will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from outpace.engine.join_tables import rows_of_side
from outpace.errors import BindError, DataError
from outpace.ingest.source import BATCH_ROWS, Heartbeat, Source
from outpace.pattern.bind.join import BoundJoin, bind_join
from outpace.pattern.join import SIDES, Join


@dataclass(frozen=True)
class Side(Source):
    """A source that is one side of a join, and is called so."""

    source: Source

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield all events from the beginning, at most `rows` at a time."""
        return self.source.batches(rows)

    def arrivals(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch | Heartbeat]:
        """Yield events as they come, and promises between them."""
        return self.source.arrivals(rows)


def sides_of(sources: Sequence[Source]) -> tuple[Side, ...]:
    """Return two sources as the left and the right side of a join."""
    if len(sources) != len(SIDES):
        raise BindError(
            f"a join has two sources, its left and its right side, not {len(sources)}",
            hint="write op.run(join, [orders, payments])",
        )
    return tuple(
        Side(side, source, time=source.time) for side, source in zip(SIDES, sources, strict=True)
    )


class JoinedSides:
    """A join whose sides tell their columns one after the other.

    Parameters
    ----------
    join
        The join.
    """

    def __init__(self, join: Join) -> None:
        self._join = join
        self._bound: BoundJoin | None = None

    def bind(self, schemas: Mapping[str, pa.Schema]) -> BoundJoin:
        """Fit the join to the columns of its sides."""
        for side in SIDES:
            if side not in schemas:
                raise DataError(
                    f"the {side} side has ended without events",
                    detail="a join needs the columns of both sides, which their events tell",
                    hint="a batch without rows tells them as well",
                )
        self._bound = bind_join(self._join, *(schemas[side] for side in SIDES))
        return self._bound

    def rows(self, side: str, rows: pa.Table) -> pa.Table:
        """Return rows of a side as the stream of both has them."""
        assert self._bound is not None
        return rows_of_side(self._bound, side, rows)
