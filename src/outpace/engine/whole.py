"""Complete tables: all rows are there at once, so the operator takes them in a few steps.

Without windows a table is divided, not fed: every partition is a window that is open to the end,
and all of its rows are there, so the front has nothing to order, number or split, and the back has
one answer for each. What is left is the matcher of an instance, over all partitions as one block
(`engine.match.partitions`). Two steps of the operator give the same matches in 1.5 to 1.9 times the
processor time, as they number the events and look for rows to keep, of which none are; and they
give them in the order of the events that complete them, where a table has those of a key together.

Memory: the rows, in their order, and the matches in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, lru_cache, partial

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import EVENT_ID
from outpace.engine.front import Front
from outpace.engine.instance import Instance
from outpace.engine.match.contract import Progress
from outpace.engine.match.identity import match_ids
from outpace.engine.match.partitions import WholePartitions
from outpace.engine.message import (
    Answer,
    Deliver,
    Delivered,
    EventsArrived,
    Stimulus,
    TableArrived,
)
from outpace.engine.operator import WholeOperator, emit_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.partition import sort_rows
from outpace.engine.split.number import in_order
from outpace.engine.split.schedule import overlapping
from outpace.engine.window_match.matcher import ROWS_IN_STEP
from outpace.engine.window_match.result import (
    COMPLETING,
    LazyMatches,
    WindowMatches,
    found_matches,
)
from outpace.engine.window_match.sharing import sharing
from outpace.pattern.bound import MatchIdentity


@lru_cache(maxsize=1024)
def _taken(events: int) -> Answer:
    """Return what an instance says of which nobody knows what it finds: it took some events."""
    return Answer(WindowMatches.none(pa.schema([])), pa.table({}), 0, 0, events=events)


def match_whole(
    spec: OperatorSpec, rows: pa.Table, progress: Progress | None = None
) -> WindowMatches:
    """Return what a complete table gives.

    In windows matches come in their order; partitions without windows one after the other, in the
    order of their first rows. The id of an event is its row in the table, so that matches have the
    ids that a stream gives them which takes the rows as they lie there.

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
        block, found = whole.block, whole.found
        ids = partial(match_ids, spec.task, block, found)
        return found_matches(
            spec.task,
            block,
            found,
            found.settled,
            ids,
            phase=lambda: np.full(len(found.start), COMPLETING),
            window=lambda: np.zeros(len(found.start), np.int64),
            partition=lambda: found.segment,
        )
    if spec.bound.has(MatchIdentity):
        spec, rows = with_ids(spec, rows)
    tables, events, owners = [], [], []
    for matches in _in_steps(spec, _sorted(spec, rows), progress):
        # Mostly the rows are wanted alone: what tells matches apart would keep the events.
        tables.append(matches.table)
        events.append(matches.event)
        owners.append(matches.partition)
    table, order = pa.concat_tables(tables), None
    if spec.query.windows is None:
        order = np.argsort(np.concatenate(owners), kind="stable")
        table = table.take(pa.array(order))

    def joined(parts: list[Integers]) -> Integers:
        values = np.concatenate(parts)
        return values if order is None else values[order]

    @cache
    def again() -> WindowMatches:
        """Find the matches once more, with all that is known of them."""
        bringing, numbered = with_ids(spec, rows)
        parts = list(_in_steps(bringing, _sorted(spec, numbered)))
        found = WindowMatches.joined(spec.bound.output, parts)
        return found if order is None else found.take(order)

    return LazyMatches(
        {"table": table, "identify": lambda: again().ids},
        event=lambda: joined(events),
        partition=lambda: joined(owners),
        offsets=lambda: again().offsets,
        phase=lambda: again().phase,
        window=lambda: again().window,
    )


def with_ids(spec: OperatorSpec, rows: pa.Table) -> tuple[OperatorSpec, pa.Table]:
    """Return an operator and its rows, in any order, with their places in the table as ids."""
    if spec.task is not None and not spec.brings_ids:
        rows = rows.append_column(EVENT_ID, pa.array(np.arange(rows.num_rows)))
    return replace(spec, brings_ids=True), rows


def _in_steps(
    spec: OperatorSpec, ordered: pa.Table, progress: Progress | None = None
) -> Iterator[WindowMatches]:
    """Yield what rows in order give, step by step."""
    operator, total = WholeOperator(_unchecked(spec)), ordered.num_rows
    size = ROWS_IN_STEP if _shares(spec) else max(1, total)
    for low in range(0, max(1, total), size):
        piece = ordered.slice(low, size)
        more = low + size < total
        instructions = operator.step(EventsArrived(piece) if more else TableArrived(piece))
        yield emit_of(instructions).matches
        if progress is not None:
            progress(min(low + size, total), total)


def deliveries(front: Front, stimuli: Iterable[Stimulus]) -> Iterator[Deliver]:
    """Yield what instances are to take, which are elsewhere and do not say what they find."""
    for stimulus in stimuli:
        for message in front.step(stimulus):
            if isinstance(message, Deliver):
                yield message
                front.step(Delivered(message.instance, _taken(message.size)))


def whole_delivery(spec: OperatorSpec, rows: pa.Table) -> Deliver:
    """Return all rows, which are in order, in one delivery; every window that they open closes."""
    moves = Front(_unchecked(spec)).step(TableArrived(rows))
    (delivery,) = [one for one in moves if isinstance(one, Deliver)]
    return delivery


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
