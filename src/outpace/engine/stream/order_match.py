"""The stage "order + match": events in any order become matches, in one instance.

An instance has the events of its keys, or all of them. Cells of events bring rows and the times of
the whole stream, so that deadlines pass and windows close without an event of its own. What comes
out is final: no later event that is not late can change it.

Memory: that of the reorderer and of the operator; the state is both.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from outpace.engine.block import read_block
from outpace.engine.match.contract import NO_TIME, Task
from outpace.engine.match.operator import MatchOperator
from outpace.engine.order.reorder import Released, Reorderer
from outpace.engine.state import pack, unpack
from outpace.engine.stream.cell import Cell, Counters, Kind
from outpace.engine.stream.operator import make_operator, push_until, reach_back
from outpace.engine.stream.table_block import write_table
from outpace.engine.window.operator import WindowedOperator
from outpace.pattern.bind_disorder import BoundDisorder
from outpace.pattern.disorder import Late
from outpace.pattern.query import Query

_TAKES = frozenset({Kind.EVENTS})


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

    Examples
    --------
    >>> from outpace.engine.block import block_cells, narrow_rows
    >>> from outpace.pattern.bind_disorder import bind_disorder
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
    ) -> None:
        self._disorder = disorder
        self._operator = make_operator(query, schema, task=task, timeouts=timeouts)
        self._input = tuple(name for name in schema.names if name in columns)
        known = schema if task is None else task.bound.schema
        self._events = pa.schema([known.field(name) for name in columns])
        self._reorderer = Reorderer(self._operator.bound, disorder, self._events)
        self._reach = reach_back(self._operator)
        self._counters = Counters()

    @property
    def takes(self) -> frozenset[Kind]:
        """Events."""
        return _TAKES

    @property
    def counters(self) -> Counters:
        """What the last step did, and what is held after it."""
        return self._counters

    def step(self, cells: list[Cell]) -> list[Cell]:
        """Order the events of a batch, match those whose turn it is, and let time pass."""
        rows = [self._read(cell) for cell in cells if len(cell.block)]
        events = pa.concat_tables([self._events.empty_table(), *rows])
        spans = np.concatenate([np.zeros((0, 2), np.int64), *(cell.times for cell in cells)])
        told = max((cell.watermark for cell in cells), default=int(NO_TIME))
        released = self._reorderer.push(events, spans, told)
        emitted = push_until(self._operator, released.rows, released.watermark)
        self._count(events.num_rows, released, emitted.matches.num_rows, emitted.timed_out.num_rows)
        given = [(Kind.MATCHES, emitted.matches), (Kind.TIMED_OUT, emitted.timed_out)]
        if self._disorder.late is Late.SIDE:
            given.append((Kind.LATE, released.late.select(self._input)))
        aside = [released.invalid.column_names[0], *self._input]
        given.append((Kind.INVALID, released.invalid.select(aside)))
        return [
            *(
                Cell(kind, block=write_table(table), watermark=released.watermark)
                for kind, table in given
                if table.num_rows
            ),
            *self._pulse(released.watermark),
        ]

    def state(self) -> bytes:
        """Return what waits for its turn and what the operator keeps."""
        parts = [self._reorderer.state(), self._operator.state()]
        return pack({}, [pa.table({"part": pa.array(parts, pa.binary())})])

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned."""
        _, (parts,) = unpack(data)
        waiting, kept = parts.column("part").to_pylist()
        self._reorderer.restore(waiting)
        self._operator.restore(kept)

    def _read(self, cell: Cell) -> pa.Table:
        block = cell.block if isinstance(cell.block, pa.Buffer) else pa.py_buffer(cell.block)
        columns = read_block(block, self._events)
        return pa.table([columns[name] for name in self._events.names], schema=self._events)

    def _pulse(self, watermark: int) -> list[Cell]:
        """Tell how far back the events of later matches may lie, where there is a bound."""
        if self._reach is None or watermark == NO_TIME:
            return []
        return [Cell(Kind.PULSE, watermark=max(watermark - self._reach, int(NO_TIME)))]

    def _count(self, events: int, released: Released, matches: int, timed_out: int) -> None:
        operator = self._operator
        self._counters = Counters(
            events=events,
            released=released.rows.num_rows,
            matches=matches,
            timed_out=timed_out,
            late=released.late.num_rows,
            invalid=released.invalid.num_rows,
            buffered=self._reorderer.buffered,
            kept=operator.rows_kept,
            open_windows=operator.open_windows if isinstance(operator, WindowedOperator) else 0,
            keys=operator.partitions_kept if isinstance(operator, MatchOperator) else 0,
        )
