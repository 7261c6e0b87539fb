"""The match operator: one query over a table, or over a stream that comes in pieces.

`match_block` answers for a complete table. `MatchOperator` keeps, between pieces, the rows that an
undecided match may still need and one `Resume` per partition; each push matches `rows kept + new
rows`. So the cost of a push is linear in the rows kept, which WITHIN bounds, plus the new ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from outpace.engine.match.contract import (
    NO_TIME,
    Block,
    Found,
    Integers,
    Matcher,
    Outcome,
    Resume,
    Task,
)
from outpace.engine.match.output import match_table, timed_out_table
from outpace.engine.match.program import compile_program
from outpace.engine.match.reach import Reach, reach_of
from outpace.engine.match.times import time_values
from outpace.engine.partition import gather, key_codes, sort_groups, sort_table
from outpace.engine.state import pack, unpack
from outpace.errors import DataError, StateError
from outpace.pattern.bind import bind
from outpace.pattern.bound import BoundQuery
from outpace.pattern.print_query import print_identity
from outpace.pattern.query import Query


@dataclass(frozen=True)
class Emitted:
    """What a piece of input made final: matches, and partial matches that timed out."""

    matches: pa.Table
    timed_out: pa.Table


def prepare(query: Query, schema: pa.Schema, *, timeouts: bool = False) -> Task:
    """Bind and compile a query for a schema."""
    bound = bind(query, schema)
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
        times=time_values(bound, ordered.columns),
        ended=True,
    )


def match_block(task: Task, matcher: Matcher, block: Block) -> Outcome:
    """Match a complete block."""
    return matcher(block, Resume.fresh(len(block.segments) - 1))


def kept_columns(task: Task, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that must travel: all that are read, and all that come out."""
    out = set(task.bound.matched.names)
    wanted = {*task.bound.columns, *task.bound.partition_by, *task.bound.order_by}
    return tuple(name for name in schema.names if name in wanted or name in out)


class MatchOperator:
    """One query over a stream, fed piece by piece in event order.

    Parameters
    ----------
    task, matcher
        The query and how it is matched.
    """

    def __init__(self, task: Task, matcher: Matcher) -> None:
        self.task = task
        self._matcher = matcher
        self._columns = kept_columns(task, task.bound.schema)
        self._reach: Reach = reach_of(task)
        self._keys: dict[tuple[object, ...], int] = {}
        self._key_rows: list[tuple[object, ...]] = []
        self._counts = np.zeros(0, np.int64)
        self._resume = Resume.fresh(0)
        self._rows = self._empty_rows()
        self._key = np.zeros(0, np.int64)
        self._ordinal = np.zeros(0, np.int64)
        self._arrival = np.zeros(0, np.int64)
        self._arrived = 0
        self._watermark = NO_TIME
        self._finished = False

    @property
    def bound(self) -> BoundQuery:
        """The query, bound."""
        return self.task.bound

    @property
    def rows_kept(self) -> int:
        """How many rows an undecided match may still need."""
        return int(self._rows.num_rows)

    @property
    def partitions_kept(self) -> int:
        """How many partitions have any state."""
        return len(self._key_rows)

    def push(self, table: pa.Table) -> Emitted:
        """Take the next rows and return what they make final; after an error nothing is taken."""
        self._check_schema(table.schema)
        rows = table.select(self._columns)
        return self._step(rows, self._key_numbers(rows))

    def advance(self, watermark: int) -> Emitted:
        """Promise that no later row has a time before `watermark`; return what became final."""
        return self._step(self._empty_rows(), np.zeros(0, np.int64), watermark=watermark)

    def finish(self) -> Emitted:
        """Say that no more rows come, and return the rest."""
        emitted = self._step(self._empty_rows(), np.zeros(0, np.int64), ended=True)
        self._finished = True
        return emitted

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `MatchOperator.restore`."""
        self._check_open()
        bound = self.task.bound
        consumed = self._resume.consumed
        keys = pa.table(
            {
                "count": self._counts,
                "next_start": self._resume.next_start,
                "barrier": self._resume.barrier,
                "number": self._resume.number,
                "completed_to": self._resume.completed_to,
                "consumed": pa.array([c.tolist() for c in consumed], pa.list_(pa.int64())),
            }
        )
        values = pa.table(
            {
                name: pa.array([row[i] for row in self._key_rows], bound.schema.field(name).type)
                for i, name in enumerate(bound.partition_by)
            }
        )
        places = pa.table({"key": self._key, "ordinal": self._ordinal, "arrival": self._arrival})
        header = {
            "query": fingerprint(bound),
            "arrived": self._arrived,
            "watermark": self._watermark,
        }
        return pack(header, [keys, values, places, self._rows])

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned, maybe in another process."""
        header, tables = unpack(data)
        if header.get("query") != fingerprint(self.task.bound):
            raise StateError(
                "the saved state belongs to another query or another schema",
                hint="resume it with the query that it was saved from, or start from the input",
            )
        keys, values, places, self._rows = tables
        self._arrived = int(str(header["arrived"]))
        self._watermark = int(str(header["watermark"]))
        self._counts = _integers(keys, "count")
        self._resume = Resume(
            _integers(keys, "next_start"),
            _integers(keys, "barrier"),
            _integers(keys, "number"),
            _integers(keys, "completed_to"),
            [np.asarray(row, np.int64) for row in keys.column("consumed").to_pylist()],
        )
        columns = [values.column(name).to_pylist() for name in self.task.bound.partition_by]
        self._key_rows = list(zip(*columns, strict=True)) if columns else [()] * keys.num_rows
        self._keys = {row: number for number, row in enumerate(self._key_rows)}
        self._key = _integers(places, "key")
        self._ordinal = _integers(places, "ordinal")
        self._arrival = _integers(places, "arrival")

    def _step(
        self, rows: pa.Table, key: Integers, *, watermark: int = NO_TIME, ended: bool = False
    ) -> Emitted:
        self._check_open()
        block, keys = self._block(rows, key, max(watermark, self._watermark), ended=ended)
        outcome = self._matcher(block, _select(self._resume, keys))
        emitted = self._emit(block, outcome)
        # Everything above only reads, so that a refused push leaves the operator as it was.
        self._arrived += len(key)
        np.add.at(self._counts, key, 1)
        self._watermark = max(watermark, self._newest(rows))
        self._retain(block, keys, outcome)
        return emitted

    def _emit(self, block: Block, outcome: Outcome) -> Emitted:
        settled = self._shown_at(block, outcome.found)
        order = np.lexsort((block.arrivals[outcome.found.start], settled))
        matches = match_table(self.task, block, take_matches(outcome.found, order))
        return Emitted(matches, timed_out_table(self.task, block, outcome.timed_out))

    def _shown_at(self, block: Block, found: Found) -> Integers:
        """Return when a match became final, counting the rows that NEXT looks ahead to."""
        if block.ended:
            # The end settles all that is left, at once.
            return np.zeros(len(found.start), np.int64)
        ahead = self._reach.ahead
        if not ahead:
            return found.settled
        shown = np.empty_like(found.settled)
        for segment in np.unique(found.segment):
            mine = found.segment == segment
            arrivals = block.arrivals[block.segments[segment] : block.segments[segment + 1]]
            shown[mine] = arrivals[np.searchsorted(arrivals, found.settled[mine]) + ahead]
        return shown

    def _block(
        self, rows: pa.Table, key: Integers, watermark: int, *, ended: bool
    ) -> tuple[Block, Integers]:
        """Join the rows kept and the new ones, by partition; return the block and its keys."""
        arrivals = np.arange(self._arrived, self._arrived + len(key), dtype=np.int64)
        joined = pa.concat_tables([self._rows, rows])
        joined_key = np.concatenate([self._key, key])
        order = np.argsort(joined_key, kind="stable")
        joined_key = joined_key[order]
        columns = {name: gather(joined.column(name), order) for name in self._columns}
        segments = np.flatnonzero(np.diff(joined_key, prepend=-1, append=-1)).astype(np.int64)
        segments = segments if len(joined_key) else np.zeros(1, np.int64)
        times = time_values(self.task.bound, columns)
        all_arrivals = np.concatenate([self._arrival, arrivals])[order]
        self._check_order(columns, times, segments, all_arrivals)
        ahead = 0 if ended else self._reach.ahead
        block = Block(
            columns=columns,
            segments=segments,
            visible=np.maximum(segments[1:] - ahead, segments[:-1]),
            ordinals=np.concatenate([self._ordinal, self._ordinals_of(key)])[order],
            arrivals=all_arrivals,
            times=times,
            ended=ended,
            # Rows that are only looked ahead at are not seen by the matcher yet, so time must not
            # settle what they could still change.
            watermark=NO_TIME if ahead else max(watermark, self._newest(rows)),
        )
        return block, joined_key[segments[:-1]]

    def _newest(self, rows: pa.Table) -> int:
        """Return the watermark after these rows."""
        bound = self.task.bound
        if bound.within is None or bound.time is None or not rows.num_rows:
            return self._watermark
        last = {bound.time: gather(rows.column(bound.time).slice(rows.num_rows - 1), None)}
        return max(self._watermark, int(time_values(bound, last)[0]))

    def _retain(self, block: Block, keys: Integers, outcome: Outcome) -> None:
        """Keep the rows that are still needed and the state of each partition."""
        _store(self._resume, keys, outcome.resume)
        first = np.maximum(outcome.keep_from - self._reach.back, block.segments[:-1])
        keep = np.zeros(block.size + 1, np.int64)
        np.add.at(keep, first, 1)
        np.add.at(keep, block.segments[1:], -1)
        kept = np.flatnonzero(np.cumsum(keep[:-1]) > 0)
        self._rows = pa.table(
            {name: column.take(pa.array(kept)) for name, column in block.columns.items()},
            schema=self._rows.schema,
        )
        sizes = np.diff(block.segments)
        self._key = np.repeat(keys, sizes)[kept]
        self._ordinal = block.ordinals[kept]
        self._arrival = block.arrivals[kept]
        if not self._reach.history:
            self._forget_idle()

    def _forget_idle(self) -> None:
        """Drop the state of partitions without rows, once they are the larger part."""
        live = np.unique(self._key)
        if len(self._key_rows) <= 2 * len(live) + 1024:
            return
        self._key_rows = [self._key_rows[number] for number in live]
        self._keys = {row: number for number, row in enumerate(self._key_rows)}
        self._counts = self._counts[live]
        self._resume = _select(self._resume, live)
        self._key = np.searchsorted(live, self._key)

    def _key_numbers(self, rows: pa.Table) -> Integers:
        """Return each row's partition number, giving numbers to new partitions."""
        names = self.task.bound.partition_by
        if not names:
            if not self._key_rows:
                self._add_keys([()])
            return np.zeros(rows.num_rows, np.int64)
        codes, firsts = key_codes([rows.column(name) for name in names])
        values = rows.select(names).take(pa.array(firsts)).to_pylist()
        tuples = [tuple(value[name] for name in names) for value in values]
        self._add_keys([key for key in tuples if key not in self._keys])
        numbers = np.array([self._keys[key] for key in tuples], np.int64)
        return numbers[codes] if len(codes) else np.zeros(0, np.int64)

    def _add_keys(self, added: list[tuple[object, ...]]) -> None:
        for key in added:
            self._keys[key] = len(self._key_rows)
            self._key_rows.append(key)
        fresh = Resume.fresh(len(added))
        self._counts = np.concatenate([self._counts, fresh.number])
        old = self._resume
        self._resume = Resume(
            np.concatenate([old.next_start, fresh.next_start]),
            np.concatenate([old.barrier, fresh.barrier]),
            np.concatenate([old.number, fresh.number]),
            np.concatenate([old.completed_to, fresh.completed_to]),
            [*old.consumed, *fresh.consumed],
        )

    def _ordinals_of(self, key: Integers) -> Integers:
        """Number new rows within their partitions."""
        order = np.argsort(key, kind="stable")
        grouped = key[order]
        ordinals = np.empty(len(key), np.int64)
        first = np.searchsorted(grouped, grouped)
        ordinals[order] = np.arange(len(key)) - first + self._counts[grouped]
        return ordinals

    def _check_order(
        self,
        columns: Mapping[str, pa.Array],
        times: Integers,
        segments: Integers,
        arrivals: Integers,
    ) -> None:
        """Refuse rows that come before rows already taken."""
        bound = self.task.bound
        new = np.flatnonzero(arrivals >= self._arrived)
        if not bound.order_by or not len(new):
            return
        if bound.within is not None:
            by_arrival = times[new[np.argsort(arrivals[new])]]
            before = np.concatenate([[self._watermark], by_arrival[:-1]])
            late = np.flatnonzero(by_arrival < before)
            if len(late):
                raise _out_of_order(int(late[0]), bound)
        rows = pa.table({name: columns[name] for name in bound.order_by})
        order = sort_groups(rows, bound, None, segments)
        if order is None:
            return
        moved = np.flatnonzero(order != np.arange(len(order)))
        if len(moved):
            late_arrivals = arrivals[moved]
            wrong = late_arrivals[late_arrivals >= self._arrived]
            raise _out_of_order(int(wrong.min()) - self._arrived, bound)

    def _check_open(self) -> None:
        if self._finished:
            raise DataError("the matcher is finished", hint="open a new one for more input")

    def _check_schema(self, schema: pa.Schema) -> None:
        for name in self._columns:
            wanted = self.task.bound.schema.field(name).type
            index = schema.get_field_index(name)
            if index < 0:
                raise DataError(f"the pushed table has no column '{name}'")
            if schema.field(index).type != wanted:
                raise DataError(
                    f"column '{name}' is {schema.field(index).type}, not {wanted} as before"
                )

    def _empty_rows(self) -> pa.Table:
        schema = self.task.bound.schema
        return pa.schema([schema.field(name) for name in self._columns]).empty_table()


def fingerprint(bound: BoundQuery) -> str:
    """Return a hash of the query and the types that it reads."""
    fields = [f"{name} {bound.schema.field(name).type}" for name in sorted(bound.columns)]
    text = print_identity(bound.query) + "\n" + "\n".join(fields)
    return hashlib.sha256(text.encode()).hexdigest()


def _integers(table: pa.Table, name: str) -> Integers:
    return np.array(table.column(name).to_numpy(), np.int64)


def _select(resume: Resume, keys: Integers) -> Resume:
    return Resume(
        resume.next_start[keys],
        resume.barrier[keys],
        resume.number[keys],
        resume.completed_to[keys],
        [resume.consumed[key] for key in keys],
    )


def _store(resume: Resume, keys: Integers, part: Resume) -> None:
    resume.next_start[keys] = part.next_start
    resume.barrier[keys] = part.barrier
    resume.number[keys] = part.number
    resume.completed_to[keys] = part.completed_to
    for index, key in enumerate(keys):
        resume.consumed[key] = part.consumed[index]


def take_matches(found: Found, order: Integers) -> Found:
    """Return some of the matches, in the order of their numbers given."""
    sizes = np.diff(found.offsets)[order]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    source = np.repeat(found.offsets[:-1][order] - offsets[:-1], sizes) + np.arange(offsets[-1])
    return Found(
        found.segment[order],
        found.start[order],
        found.number[order],
        offsets,
        found.rows[source],
        found.positions[source],
        found.settled[order],
    )


def _out_of_order(row: int, bound: BoundQuery) -> DataError:
    return DataError(
        f"row {row} of the pushed table comes before rows that were already taken",
        detail=f"the query orders by {', '.join(bound.order_by)}",
        hint="push rows in event order",
    )
