"""Complete tables: all rows are there at once, so the operator takes them in a few steps.

Memory: the rows, in their order, and what is found in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.match.contract import Progress
from outpace.engine.match.partitions import WholePartitions
from outpace.engine.message import (
    Answer,
    Deliver,
    Delivered,
    EventsArrived,
    SourceEnded,
    Stimulus,
)
from outpace.engine.operator import Front, Instance, WholeOperator, emit_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.partition import sort_rows
from outpace.engine.split.number import in_order
from outpace.engine.split.schedule import overlapping
from outpace.engine.split.windows import Split, joined_windows
from outpace.engine.window_match.matcher import ROWS_IN_STEP
from outpace.engine.window_match.result import WindowMatches
from outpace.engine.window_match.sharing import sharing

#: What an instance says of which nobody knows what it finds.
_TAKEN: Final = Answer(WindowMatches.none(pa.schema([])), pa.table({}), 0, 0)


def match_whole(
    spec: OperatorSpec, rows: pa.Table, progress: Progress | None = None
) -> tuple[pa.Table, int]:
    """Return what a complete table gives, and how many matches that is.

    In windows matches come in their order; partitions without windows one after the other, in the
    order of their first rows.

    Parameters
    ----------
    spec, rows
        The operator, and the rows in any order.
    progress
        Told how many rows are done, where windows share their searches.
    """
    if spec.windows is None:
        matcher = spec.matcher
        assert spec.task is not None
        assert matcher is not None
        whole = WholePartitions(spec.task, rows, lambda _: matcher)
        return whole.table(), len(whole.found.start)
    operator = WholeOperator(_unchecked(spec))
    ordered, total = _sorted(spec, rows), rows.num_rows
    size = ROWS_IN_STEP if _shares(spec) else max(1, total)
    stimuli: list[Stimulus] = [
        EventsArrived(ordered.slice(low, size)) for low in range(0, total, size)
    ]
    tables, partition = [], []
    for number, stimulus in enumerate([*stimuli, SourceEnded()]):
        matches = emit_of(operator.step(stimulus)).matches
        # Only the rows are wanted: what tells matches apart would keep the events.
        tables.append(matches.table)
        partition.append(matches.partition)
        if progress is not None:
            progress(min((number + 1) * size, total), total)
    table, owner = pa.concat_tables(tables), np.concatenate(partition)
    if spec.query.windows is None:
        table = table.take(pa.array(np.argsort(owner, kind="stable")))
    return table, len(owner)


def deliveries(front: Front, stimuli: Iterable[Stimulus]) -> Iterator[Deliver]:
    """Yield what instances are to take, which are elsewhere and do not say what they find."""
    for stimulus in stimuli:
        for message in front.step(stimulus):
            if isinstance(message, Deliver):
                yield message
                front.step(Delivered(message.instance, replace(_TAKEN, events=message.size)))


def whole_delivery(spec: OperatorSpec, rows: pa.Table) -> Deliver:
    """Return all rows, which are in order, in one delivery; every window that they open closes."""
    first, last = deliveries(Front(_unchecked(spec)), [EventsArrived(rows), SourceEnded()])
    closed = joined_windows(first.split.closed, last.split.closed)
    return replace(last, events=first.events, split=Split(first.split.opened, closed))


def _unchecked(spec: OperatorSpec) -> OperatorSpec:
    """Return an operator that takes rows as they come, which somebody has put in order."""
    return replace(spec, checked=False) if spec.checked else spec


def _sorted(spec: OperatorSpec, rows: pa.Table) -> pa.Table:
    """Return rows in the query's order, partition after partition where there are no windows."""
    if spec.query.windows is not None:
        return in_order(spec.bound, rows, spec.time)
    order, _ = sort_rows(rows, spec.bound)
    return rows if order is None else rows.take(pa.array(order))


def _shares(spec: OperatorSpec) -> bool:
    """Say whether windows share their searches, so that pieces of a table cost no more than all."""
    if spec.task is None or spec.matcher is None or not overlapping(spec.query.windows):
        return False
    return sharing(spec.task, spec.matcher) != "separate"


def count_whole(spec: OperatorSpec, rows: pa.Table) -> int:
    """Return how many matches `match_whole` would find where all are wanted, of a pattern."""
    return Instance(spec).count(whole_delivery(spec, _sorted(spec, rows)))
