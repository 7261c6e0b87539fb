"""The stage "order + match": events in any order become matches, in one instance.

An instance has the events of its keys, or all of them. Cells of events bring rows and the times of
the whole stream, so that deadlines pass and windows close without an event of its own. What comes
out is final: no later event that is not late can change it.

Memory: that of the reorderer and of the operator; the state is both.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.table import write_table
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.match.operator import Emitted
from outpace.engine.state import pack, parts, unpack
from outpace.engine.stream.cell import Cell, Counters, Kind
from outpace.engine.stream.operator import make_operator, push_until, reach_back
from outpace.engine.stream.ordering import TAKES, Ordering
from outpace.engine.window_match.operator import WindowedOperator
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.query import Query


class OrderMatchStage:
    """An instance that orders and matches.

    Parameters
    ----------
    query
        The query.
    schema
        The input's columns.
    disorder
        How far events are out of order, and what becomes of those that are late or invalid. Where
        late events go to a side output or invalid ones are set aside, all columns travel.
    columns
        The columns that the blocks of events have: those that the query reads, shows or orders by,
        `seq` and `source` where the input has them, and columns of bits.
    task
        The pattern as it is matched, where rows bring bits; by default that of the query.
    timeouts
        Whether partial matches that WITHIN ended are given as well.
    matcher
        How the pattern is matched; by default the fastest way. Instances may share it.

    Examples
    --------
    >>> import numpy as np
    >>> from outpace.engine.codec.block import block_cells, narrow_rows
    >>> from outpace.pattern.bind.disorder import bind_disorder
    >>> from outpace.pattern.disorder import KSlack
    >>> query = Query().order_by("ts").pattern("A B").within(5).measures(at="B.ts")
    >>> query, schema = query.disorder(KSlack(1)), pa.schema({"ts": pa.int64()})
    >>> stage = OrderMatchStage(query, schema, bind_disorder(query, schema), ("ts",))
    >>> block = block_cells([narrow_rows({"ts": pa.array([9, 8, 12])})])[0].as_buffer()
    >>> spans = np.array([8, 12]).tobytes()
    >>> cells = stage.step([Cell(Kind.EVENTS, block=block, spans=spans)])
    >>> [(cell.kind.name, cell.watermark) for cell in cells], stage.counters.buffered
    ([('MATCHES', 11), ('PULSE', 6)], 1)
    """

    def __init__(
        self,
        query: Query,
        schema: pa.Schema,
        disorder: BoundDisorder,
        columns: tuple[str, ...],
        task: Task | None = None,
        *,
        timeouts: bool = False,
        matcher: Matcher | None = None,
    ) -> None:
        self._operator = make_operator(
            query,
            schema,
            task=task,
            timeouts=timeouts,
            forgets=True,
            choose=lambda task: matcher or choose_matcher(task).matcher,
        )
        known = schema if task is None else task.bound.schema
        events = pa.schema([known.field(name) for name in columns])
        self._ordering = Ordering(self._operator.bound, disorder, events)
        self._reach = reach_back(self._operator)
        self._counters = Counters()

    @property
    def takes(self) -> frozenset[Kind]:
        """Events, and the times of those that no step can use."""
        return TAKES

    @property
    def counters(self) -> Counters:
        """What the last step did, and what is held after it."""
        return self._counters

    def step(self, cells: list[Cell]) -> list[Cell]:
        """Order the events of a batch, match those whose turn it is, and let time pass."""
        ordered = self._ordering.step(cells)
        emitted = push_until(self._operator, ordered.rows, ordered.watermark)
        self._count(ordered.counters, emitted)
        given = [(Kind.MATCHES, emitted.matches), (Kind.TIMED_OUT, emitted.timed_out)]
        return [
            *(
                Cell(kind, block=write_table(table), watermark=ordered.watermark)
                for kind, table in given
                if table.num_rows
            ),
            *ordered.aside,
            *self._pulse(ordered.watermark),
        ]

    def state(self) -> bytes:
        """Return what waits for its turn and what the operator keeps."""
        states = [self._ordering.state(), self._operator.state()]
        return pack({}, [pa.table({"part": pa.array(states, pa.binary())})])

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned."""
        _, (saved,) = unpack(data, 1)
        waiting, kept = parts(saved, 2)
        self._ordering.restore(waiting)
        self._operator.restore(kept)

    def _pulse(self, watermark: int) -> list[Cell]:
        """Tell how far back the events of later matches may lie, where there is a bound."""
        if self._reach is None or watermark == NO_TIME:
            return []
        return [Cell(Kind.PULSE, watermark=max(watermark - self._reach, int(NO_TIME)))]

    def _count(self, counters: Counters, emitted: Emitted) -> None:
        operator = self._operator
        self._counters = replace(
            counters,
            matches=emitted.matches.num_rows,
            timed_out=emitted.timed_out.num_rows,
            kept=operator.rows_kept,
            partials=operator.starts_kept(),
            open_windows=operator.open_windows if isinstance(operator, WindowedOperator) else 0,
            keys=operator.partitions_kept,
        )
