"""A query made ready for matching: bound, compiled, and its rows as blocks."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.event import EVENT_ID
from outpace.engine.match.contract import (
    Block,
    BlockMatches,
    Matcher,
    Outcome,
    PartialMatches,
    Resume,
    Task,
)
from outpace.engine.match.kernel_masks import BlockMasks
from outpace.engine.match.program import ACCEPT, compile_program
from outpace.engine.rows.partition import (
    gather,
    sort_table,
)
from outpace.engine.rows.times import time_values
from outpace.errors import BindError, UnsupportedError
from outpace.pattern.bind.query import bind
from outpace.pattern.bind.uncertainty import CLOCK_ERROR
from outpace.pattern.bound import BoundQuery, Predicate, PredicateClass
from outpace.pattern.notation.print_query import print_identity
from outpace.pattern.query import Query


def prepare(query: Query, schema: pa.Schema, *, timeouts: bool = False) -> Task:
    """Bind and compile a query for a schema."""
    if EVENT_ID.name in schema.names:
        raise BindError(
            f"a column cannot have the name '{EVENT_ID.name}', which means the ids of events",
            hint="give the column another name",
        )
    bound = bind(query, schema)
    if timeouts and bound.uncertainty is not None:
        raise UnsupportedError(
            "where the order of events is uncertain, partial matches are not known",
            hint="leave out uncertain, or do not ask for those that time ends",
        )
    assert bound.query.tree is not None
    names = tuple(predicate.name for predicate in bound.predicates)
    return Task(bound, compile_program(bound.query.tree, names), timeouts)


def whole_block(task: Task, table: pa.Table) -> Block:
    """Sort a complete table into one block."""
    bound = task.bound
    ordered = sort_table(table, bound, kept_columns(task, table.schema))
    arrivals = ordered.order
    if arrivals is None:
        # In a table without keys that is in order, a row's number is both.
        whole = len(ordered.segments) <= 2
        arrivals = ordered.ordinals if whole else np.arange(table.num_rows, dtype=np.int64)
    return Block(
        columns=ordered.columns,
        segments=ordered.segments,
        visible=ordered.segments[1:],
        ordinals=ordered.ordinals,
        arrivals=arrivals,
        times=time_values(bound, ordered.columns, arrivals),
        ended=True,
    )


def match_block(matcher: Matcher, block: Block) -> Outcome:
    """Match a complete block."""
    return matcher(block, Resume.fresh(len(block.segments) - 1))


def with_clock_errors(task: Task) -> Task:
    """Return the task of rows that say how far their times may be off."""
    bound = task.bound
    assert bound.uncertainty is not None
    changed = replace(
        bound,
        uncertainty=replace(bound.uncertainty, errors=CLOCK_ERROR.name),
        columns=(*bound.columns, CLOCK_ERROR.name),
        schema=bound.schema.append(CLOCK_ERROR),
    )
    return replace(task, bound=changed)


def kept_columns(task: Task, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that must travel: all that are read, and all that come out.

    Ids of events do, where rows bring them.
    """
    out = set(task.bound.matched.names)
    wanted = {*task.bound.columns, *task.bound.partition_by, *task.bound.order_by, EVENT_ID.name}
    return tuple(name for name in schema.names if name in wanted or name in out)


def _first_predicates(task: Task) -> list[Predicate]:
    """Return the conditions of the variables that a match may start with."""
    program = task.program
    targets = {move.target for move in program.initial} - {ACCEPT}
    variables = sorted({program.positions[target].variable for target in targets})
    return [task.bound.predicates[variable] for variable in variables]


def count_starts(task: Task, rows: pa.Table, undecided: Booleans) -> int:
    """Count the rows that a match may start with, of those of which that is not decided."""
    first = _first_predicates(task)
    alone = {PredicateClass.LOCAL, PredicateClass.ALWAYS}
    if any(predicate.kind not in alone for predicate in first):
        # What else they read may not be kept.
        return int(undecided.sum())
    columns = {name: gather(rows.column(name), None) for name in rows.column_names}
    size = np.array([0, len(undecided)], np.int64)
    nothing = size[:0]
    block = Block(columns, size, size[1:], nothing, nothing, nothing, ended=True)
    return int((undecided & (BlockMasks(first)(block) != 0)).sum())


def fingerprint(bound: BoundQuery) -> str:
    """Return a hash of the query and the types that it reads."""
    fields = [f"{name} {bound.schema.field(name).type}" for name in sorted(bound.columns)]
    text = print_identity(bound.query) + "\n" + "\n".join(fields)
    return hashlib.sha256(text.encode()).hexdigest()


def taken_lists(offsets: Integers, order: Integers) -> tuple[Integers, Integers]:
    """Return the offsets of lists in another order, and the places that their items come from."""
    sizes = np.diff(offsets)[order]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return ends, np.repeat(offsets[:-1][order] - ends[:-1], sizes) + np.arange(ends[-1])


def take_matches(found: BlockMatches, order: Integers) -> BlockMatches:
    """Return some of the matches, in the order of their numbers given."""
    offsets, source = taken_lists(found.offsets, order)
    return BlockMatches(
        found.segment[order],
        found.start[order],
        found.number[order],
        offsets,
        found.rows[source],
        found.positions[source],
        found.settled[order],
        confirmed=None if found.confirmed is None else found.confirmed[order],
        awaited=None if found.awaited is None else found.awaited[order],
    )


def take_partial_matches(partial: PartialMatches, order: Integers) -> PartialMatches:
    """Return some of the partial matches, in the order of their numbers given."""
    offsets, source = taken_lists(partial.offsets, order)
    return PartialMatches(
        partial.segment[order],
        partial.start[order],
        offsets,
        partial.rows[source],
        partial.positions[source],
        partial.settled[order],
        partial.awaited[order],
    )
