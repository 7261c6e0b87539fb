"""From matches to the result table: the columns of SQL:2016, in its order.

ONE ROW PER MATCH gives the partition columns and the measures. ALL ROWS PER MATCH gives every row
of the match with the input's columns too, rows in `{- -}` left out, and, where asked for, the rows
that are in no match, with NULL measures.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Integers, repeated
from outpace.engine.cores import cores, stretches
from outpace.engine.match.contract import Block, BlockMatches, PartialMatches, Task
from outpace.engine.match.identity import MatchIds
from outpace.engine.match.measures import evaluate_measures
from outpace.engine.rows.partition import gather
from outpace.engine.rows.times import from_integers, time_limits
from outpace.errors import DataError
from outpace.pattern.bind.uncertainty import CONFIDENCE
from outpace.pattern.bound import CONFIRMED, DIFF, MatchIdentity
from outpace.pattern.query import RowsPerMatch
from outpace.pattern.types import integer_range, is_instant, type_name

#: The measures of so many matches are worth another core.
LEAST_MATCHES: Final = 1 << 14

_UNITS_US: Final = {"s": 10**6, "ms": 10**3}
_DAY_US: Final = 86_400 * 10**6
_EPOCH: Final = datetime.datetime(1970, 1, 1)


def match_table(task: Task, block: Block, found: BlockMatches) -> pa.Table:
    """Return the result table of the matches, in their order."""
    bound, size = task.bound, len(found.start)
    whole = bound.query.rows is RowsPerMatch.ALL_WITH_UNMATCHED or bound.has(MatchIdentity)
    if whole or len(parts := stretches(size, LEAST_MATCHES)) < 2:
        return match_rows(task, block, found)[0]
    tables = cores().each(lambda part: match_rows(task, block, found.part(*part))[0], parts)
    return pa.concat_tables(tables)


def match_rows(
    task: Task,
    block: Block,
    found: BlockMatches,
    identify: Callable[[], MatchIds] | None = None,
) -> tuple[pa.Table, Integers]:
    """Return the result table of the matches, and which match each row belongs to.

    With unmatched rows asked for, the table alone is meant. What returns the ids of the matches may
    be given, so that they are made once.
    """
    bound = task.bound
    rows_mode = bound.query.rows
    row_index, match_index, measures = evaluate_measures(task, block, found, rows_mode, identify)
    if found.confirmed is not None:
        sure = pa.array(found.confirmed[match_index])
        measures[CONFIDENCE] = pc.if_else(sure, "CONFIRMED", "UNCERTAIN")
    if bound.query.join is not None and bound.time is not None and found.awaited is not None:
        measures[bound.time] = _known_at(bound.time, measures[bound.time], found.awaited)
    if rows_mode is RowsPerMatch.ALL_WITH_UNMATCHED:
        row_index, measures = _with_unmatched(block, found, row_index, match_index, measures)
    if bound.query.corrects:
        measures[DIFF] = repeated(1, len(row_index))
    if bound.query.confirms:
        measures[CONFIRMED] = repeated(True, len(row_index))
    columns = {
        name: gather(block.columns[name], row_index)
        for name in bound.matched.names
        if name not in measures
    }
    columns.update(measures)
    table = pa.table([columns[name] for name in bound.matched.names], schema=bound.matched)
    return table, match_index


def _known_at(name: str, times: pa.Array, awaited: Integers) -> pa.Array:
    """Return when matches were known: at their last event, or with the time that had to pass."""
    waited, kind = awaited != NO_TIME, times.type
    if not waited.any():
        return times
    unit = 1
    if is_instant(kind):
        # A type without so small times has the next one that it has.
        unit = _DAY_US if pa.types.is_date(kind) else _UNITS_US.get(kind.unit, 1)
    known = -(-np.where(waited, awaited, 0) // unit) * unit
    last = _last_time(kind) // unit * unit
    if known.max() > last:
        end = _EPOCH + datetime.timedelta(microseconds=last) if is_instant(kind) else last
        raise DataError(
            f"'{name}' ends before a row without a partner is known",
            detail=f"that is at its time and within, but the last {type_name(kind)} is {end}",
            hint="shorten within, leave the row out, or give the column a wider type",
        )
    return pc.if_else(pa.array(waited), from_integers(known, kind).cast(kind), times)


def _last_time(kind: pa.DataType) -> int:
    """Return the last time that a type can hold and that is in range."""
    if not is_instant(kind):
        return min(integer_range(kind)[1], time_limits(kind)[1] - 1)
    last = time_limits(pa.timestamp("us"))[1] - 1
    nanoseconds = pa.types.is_timestamp(kind) and kind.unit == "ns"
    return min(last, int(np.iinfo(np.int64).max) // 1000) if nanoseconds else last


def timed_out_schema(task: Task) -> pa.Schema:
    """Return the schema of the table of timed-out partial matches."""
    bound = task.bound
    fields = [bound.schema.field(name) for name in bound.partition_by]
    time = pa.int64() if bound.time is None else bound.schema.field(bound.time).type
    fields += [
        pa.field("first_time", time),
        pa.field("last_time", time),
        pa.field("labels", pa.list_(pa.string())),
        pa.field("rows", pa.list_(pa.int64())),
        pa.field("reason", pa.string()),
    ]
    return pa.schema(fields)


def timed_out_table(task: Task, block: Block, partial: PartialMatches | None) -> pa.Table:
    """Return the partial matches that WITHIN ended, and what each was waiting for.

    `rows` are arrival numbers: the place of each row in the input, counted from 0.
    """
    schema = timed_out_schema(task)
    if partial is None or not len(partial.start):
        return schema.empty_table()
    bound, program = task.bound, task.program
    last_at = partial.offsets[1:] - 1
    last_row = partial.rows[last_at]
    names = np.array(program.names, dtype=object)
    offsets = pa.array(partial.offsets.astype(np.int32))
    columns = [block.columns[name].take(pa.array(partial.start)) for name in bound.partition_by]
    if bound.time is None:
        columns += [
            pa.array(block.arrivals[partial.start], pa.int64()),
            pa.array(block.arrivals[last_row], pa.int64()),
        ]
    else:
        time = block.columns[bound.time]
        columns += [time.take(pa.array(partial.start)), time.take(pa.array(last_row))]
    labels = pa.array(names[task.variables[partial.positions]].tolist(), pa.string())
    columns.append(pa.ListArray.from_arrays(offsets, labels))
    columns.append(
        pa.ListArray.from_arrays(offsets, pa.array(block.arrivals[partial.rows], pa.int64()))
    )
    waiting = {position: _waiting(task, position) for position in set(partial.positions[last_at])}
    columns.append(pa.array([waiting[p] for p in partial.positions[last_at]], pa.string()))
    return pa.table(columns, schema=schema)


def _waiting(task: Task, position: int) -> str:
    targets = [move.target for move in task.program.follow[position] if move.target >= 0]
    variables = dict.fromkeys(task.program.positions[target].variable for target in targets)
    names = " or ".join(task.program.names[variable] for variable in variables)
    return f"no {names} within the time allowed" if names else "the time allowed passed"


def _with_unmatched(
    block: Block,
    found: BlockMatches,
    row_index: Integers,
    match_index: Integers,
    measures: dict[str, pa.Array],
) -> tuple[Integers, dict[str, pa.Array]]:
    """Add the rows of no match, and put all rows in the order of the matches' first rows."""
    matched = np.zeros(block.size, np.bool_)
    matched[found.rows] = True
    empty = np.diff(found.offsets) == 0
    matched[found.start[empty]] = True
    unmatched = np.flatnonzero(~matched)
    all_rows = np.concatenate([row_index, unmatched])
    place = np.concatenate([found.start[match_index], unmatched])
    order = np.argsort(place, kind="stable")
    padded = {
        name: pa.concat_arrays([column, pa.nulls(len(unmatched), column.type)]).take(
            pa.array(order)
        )
        for name, column in measures.items()
    }
    return all_rows[order], padded
