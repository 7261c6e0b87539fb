"""The operators of several queries as one stage of a host with micro-batches; see `stage`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.block import read_block
from outpace.engine.codec.cell import Cell, CellKind, Counters
from outpace.engine.codec.table import write_table
from outpace.engine.group import GroupOperator
from outpace.engine.group_table import joined_rows, joined_schema
from outpace.engine.match.contract import Matcher
from outpace.engine.message import Aside, Emit, EventsArrived, SetAside, Stimulus, TimerFired
from outpace.engine.operator_spec import OperatorSpec
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.group import told_of
from outpace.pattern.query import Query


@dataclass(frozen=True)
class GroupSpec:
    """What the operators of several queries do, for whoever makes them.

    Parameters
    ----------
    queries
        The queries, each with a name of its own and a disorder.
    schema
        The columns that events have when they come.
    divided
        Whether several instances have the events of some keys each, and are told the times of all.
    """

    queries: tuple[Query, ...]
    schema: pa.Schema
    divided: bool

    def __getstate__(self) -> dict[str, object]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def operators(self) -> tuple[OperatorSpec, ...]:
        """The operator of each query, were it alone."""
        found = []
        for query in self.queries:
            with told_of(query):
                disorder = bind_disorder(query, self.schema)
                found.append(OperatorSpec(query, self.schema, disorder=disorder))
                assert found[-1].bound
        return tuple(found)

    @cached_property
    def output(self) -> pa.Schema:
        """The columns of what comes out."""
        return joined_schema({one.query.name: one.bound.output for one in self.operators})

    @property
    def matcher(self) -> Matcher | None:
        """What the first query is matched with: most of what is compiled serves all."""
        return self.operators[0].matcher

    @property
    def clocked(self) -> bool:
        """Whether any of them goes by the time of batches."""
        return any(
            one.disorder is not None and one.disorder.value.clocked for one in self.operators
        )


class GroupStage:
    """The operators of all queries: an instance has the events of its keys, or all of them."""

    takes = frozenset({CellKind.EVENTS})

    def __init__(self, spec: GroupSpec, number: int) -> None:
        self.part = GroupOperator(spec.queries, spec.schema, forgets=True, place=number)
        self._spec = spec
        self.counters = Counters()

    @property
    def timer(self) -> int | None:
        """When, by the time of batches, it wants to take a step; None where never."""
        return self.part.timer

    def step(self, cells: Sequence[Cell], now: int = NO_TIME) -> list[Cell]:
        """Order the events of a batch, match those whose turn it is, and let time pass."""
        timer, stimuli = self.part.timer, list[Stimulus]()
        if timer is not None and timer <= now:
            stimuli.append(TimerFired(now))
        if cells or not stimuli:
            stimuli.append(self._piece(cells, now))
        found = [self._spec.output.empty_table()]
        aside: Counter[tuple[Aside, str]] = Counter()
        for stimulus in stimuli:
            given = self.part.step(stimulus)
            for error in self.part.failed.values():
                raise error
            for name, instructions in given.items():
                for one in instructions:
                    if isinstance(one, Emit):
                        found.append(joined_rows(name, one.matches.table, self._spec.output))
                    elif isinstance(one, SetAside):
                        aside[one.kind, name] += one.rows.num_rows
        matches = pa.concat_tables(found)
        # An event counts once, for however many queries it comes late.
        late, invalid = (
            max((count for (kind, _), count in aside.items() if kind is wanted), default=0)
            for wanted in (Aside.LATE, Aside.INVALID)
        )
        instances = [one.instance for one in self.part.operators]
        self.counters = Counters(
            events=sum(len(one.rows) for one in stimuli if isinstance(one, EventsArrived)),
            matches=matches.num_rows,
            late=late,
            invalid=invalid,
            buffered=self.part.buffered,
            kept=sum(one.rows_kept for one in instances),
            partials=sum(one.starts_kept() for one in instances),
            open_windows=sum(one.open_windows for one in instances),
            keys=max(one.partitions_kept for one in instances),
        )
        if not matches.num_rows:
            return []
        return [Cell(CellKind.MATCHES, block=write_table(matches))]

    def _piece(self, cells: Sequence[Cell], now: int) -> EventsArrived:
        """Return the cells of a batch as one piece of the stream."""
        schema = self._spec.schema
        blocks = [read_block(pa.py_buffer(cell.block), schema) for cell in cells if len(cell.block)]
        tables = [pa.table([one[name] for name in schema.names], schema=schema) for one in blocks]
        spans = None
        if self._spec.divided:
            spans = np.concatenate([np.zeros((0, 2), np.int64), *(cell.times for cell in cells)])
        # Each sender promises for itself; all that ever do so take part in every batch.
        promised = [cell.watermark for cell in cells if cell.watermark != NO_TIME]
        told = min(promised, default=int(NO_TIME))
        rows = pa.concat_tables([schema.empty_table(), *tables])
        return EventsArrived(rows, spans=spans, watermark=told, arrival=now)
