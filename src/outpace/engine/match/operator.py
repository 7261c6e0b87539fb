"""The match operator: one query over a table, or over a stream that comes in pieces.

`match_block` answers for a complete table. `MatchOperator` keeps, between pieces, the rows that an
undecided match may still need and where matching stopped in each partition. A push matches `rows
kept + new rows` of the partitions that it has rows of, and of those in which time decides something
now. So its cost is linear in these rows, of which WITHIN bounds the ones kept; however many other
partitions there are, they cost nothing.

A partition is forgotten when an undecided match needs none of its rows. What stays of one without
rows, for as long as the stream goes on, is the least that decides about its later rows: the number
of its matches where MATCH_NUMBER() or a limit per partition ask for it and there was one, and that
it had rows where the pattern has `^`. PREV keeps as many last rows of every partition as it looks
back; session windows (`outpace.engine.split`) forget partitions that fall silent. With NEXT,
rows wait for those that it looks ahead to: time ends no wait then.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Booleans, Integers
from outpace.engine.kernels.grouping import count_rows, scatter_rows
from outpace.engine.match.contract import Block, Found, Matcher, Outcome, Resume, Task, TimedOut
from outpace.engine.match.kernel_masks import BlockMasks
from outpace.engine.match.output import match_table, timed_out_table
from outpace.engine.match.partitions import Numbered, Partitions
from outpace.engine.match.program import ACCEPT, compile_program
from outpace.engine.match.reach import Reach, reach_of
from outpace.engine.order.arrival import Arrival, passed
from outpace.engine.rows.deadlines import NEVER, Deadlines
from outpace.engine.rows.keyed import Kept, KeyedRows
from outpace.engine.rows.partition import (
    Grouping,
    gather,
    group_codes,
    one_array,
    placed,
    sort_table,
)
from outpace.engine.rows.times import time_values, valid_times
from outpace.engine.state import (
    NATURAL,
    integer,
    integers,
    pack,
    require,
    require_types,
    unpack,
)
from outpace.errors import DataError, StateError, other_type
from outpace.pattern.bind.query import bind
from outpace.pattern.bound import BoundQuery, Predicate, PredicateClass
from outpace.pattern.notation.print_query import print_identity
from outpace.pattern.query import Query
from outpace.pattern.values import TIME_LIMIT


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
        times=time_values(bound, ordered.columns, arrivals),
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


class _Tried(NamedTuple):
    """What a step would do."""

    block: Block
    keys: Integers
    outcome: Outcome
    watermark: int
    emitted: Emitted


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
        self._begin()

    def _begin(self) -> None:
        schema = self.task.bound.schema
        self._partitions = Partitions(schema, self.task.bound.partition_by)
        #: The rows kept, each with its ordinal and its arrival.
        self._kept = KeyedRows(pa.schema([schema.field(name) for name in self._columns]), 2)
        self._deadlines = Deadlines()
        self._arrival = Arrival(self.task.bound, self.task.bound.partition_by)
        self._arrived = 0
        self._watermark = NO_TIME
        self._finished = False

    @property
    def bound(self) -> BoundQuery:
        """The query, bound."""
        return self.task.bound

    @property
    def reach(self) -> Reach:
        """How far the query looks beyond the rows of a match."""
        return self._reach

    @property
    def rows_kept(self) -> int:
        """How many rows an undecided match may still need."""
        return len(self._kept)

    @property
    def partitions_kept(self) -> int:
        """How many partitions anything is kept of."""
        return len(self._partitions)

    def starts_kept(self) -> int:
        """Count the rows kept that an undecided match may start with; linear in the rows kept."""
        kept = self._kept.take(self._kept.keys)
        undecided = kept.numbers[0] >= self._partitions.resume(kept.key).next_start
        return count_starts(self.task, kept.rows, undecided)

    def push(self, table: pa.Table, watermark: int = NO_TIME) -> Emitted:
        """Take the next rows and return what they make final; after an error nothing is taken.

        With a watermark, it is promised as well that no later row has a time before that.
        """
        self._check_open()
        self._check_schema(table.schema)
        rows = table.select(self._columns)
        self._check_times(rows)
        new = self._partitions.number(rows)
        try:
            tried = self._try(rows, new, watermark=watermark)
        except BaseException:
            self._partitions.forget(new.added)
            raise
        self._arrival.take(rows)
        return self._take(new, tried)

    def advance(self, watermark: int) -> Emitted:
        """Promise that no later row has a time before `watermark`; return what became final."""
        return self._pass(watermark=watermark)

    def finish(self) -> Emitted:
        """Say that no more rows come, and return the rest."""
        emitted = self._pass(ended=True)
        self._finished = True
        return emitted

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `MatchOperator.restore`."""
        self._check_open()
        known, keys = self._partitions.tables()
        kept = self._kept.take(self._kept.keys)
        ordinal, arrival = kept.numbers
        # A state is the same however numbers were given: partitions are numbered anew.
        key = np.searchsorted(self._partitions.numbers(), kept.key)
        places = pa.table({"key": key, "ordinal": ordinal, "arrival": arrival})
        header = {
            "query": fingerprint(self.task.bound),
            "arrived": self._arrived,
            "watermark": self._watermark,
        }
        return pack(header, [known, keys, places, self._arrival.latest, kept.rows])

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned, maybe in another process."""
        header, (known, keys, places, latest, rows) = unpack(data, 5)
        if header.get("query") != fingerprint(self.task.bound):
            raise StateError(
                "the saved state belongs to another query or another schema",
                hint="resume it with the query that it was saved from, or start from the input",
            )
        self._begin()
        self._arrival.restore(latest)
        self._arrived = integer(header, "arrived", NATURAL)
        self._watermark = integer(header, "watermark")
        self._partitions.restore(known, keys)
        require_types(rows, self._empty_rows().schema)
        require(rows.num_rows == places.num_rows, "rows have no places")
        key, ordinal, arrival = integers(
            places, key=range(known.num_rows), ordinal=NATURAL, arrival=range(self._arrived)
        )
        self._check_places(key, ordinal, arrival)
        kept = Kept(rows.combine_chunks(), key, np.stack([ordinal, arrival]))
        self._kept.replace(self._partitions.numbers(), kept)
        read = {name: gather(rows.column(name), None) for name in self._columns}
        times = time_values(self.task.bound, read)
        begin = np.flatnonzero(np.diff(key, prepend=-1))
        ends = np.append(begin[1:], len(key))
        waiting = begin + self._partitions.resume(key[begin]).next_start - ordinal[begin]
        self._wait(key[begin], times, np.minimum(waiting, ends), ends)

    def _check_places(self, key: Integers, ordinal: Integers, arrival: Integers) -> None:
        """Refuse rows kept that are not the last ones of their partitions, from some row on."""
        begin = np.flatnonzero(np.diff(key, prepend=-1))
        sizes = np.diff(begin, append=len(key))
        require(len(np.unique(key[begin])) == len(begin), "the rows of a partition lie apart")
        next_start, count = self._partitions.next_start, self._partitions.count
        left = np.arange(len(key)) - np.repeat(begin + sizes, sizes)
        require((ordinal == count[key] + left).all(), "the ordinals of rows do not follow")
        inside = np.ones(len(key), np.bool_)
        inside[begin] = False
        require((np.diff(arrival, prepend=-1)[inside] > 0).all(), "arrivals do not rise")
        first = count[: len(self._partitions)].copy()
        first[key[begin]] = ordinal[begin]
        starts = next_start[: len(first)]
        require(((first <= starts) & (starts <= count[: len(first)])).all(), "a start has no row")

    def _pass(self, *, watermark: int = NO_TIME, ended: bool = False) -> Emitted:
        """Let time pass, or the input end."""
        self._check_open()
        rows = self._empty_rows()
        new = self._partitions.number(rows)
        return self._take(new, self._try(rows, new, watermark=watermark, ended=ended))

    def _try(
        self, rows: pa.Table, new: Numbered, *, watermark: int = NO_TIME, ended: bool = False
    ) -> _Tried:
        """Match without taking anything, so that a refused push leaves the operator as it was."""
        newest = max(min(watermark, TIME_LIMIT - 1), self._newest(rows))
        passed = self._deadlines.passed(newest)
        keys = self._kept.keys if ended else np.union1d(new.numbers, passed)
        block, keys = self._block(rows, new, keys.astype(np.int64), newest, ended=ended)
        outcome = self._matcher(block, self._partitions.resume(keys))
        return _Tried(block, keys, outcome, newest, self._emit(block, outcome))

    def _take(self, new: Numbered, tried: _Tried) -> Emitted:
        self._arrived += len(new.codes)
        self._partitions.count[new.numbers] += np.bincount(new.codes, minlength=len(new.numbers))
        self._watermark = tried.watermark
        self._retain(tried.block, tried.keys, tried.outcome)
        return tried.emitted

    def _emit(self, block: Block, outcome: Outcome) -> Emitted:
        order = emission_order(block, outcome.found, self._shown_at(block, outcome.found))
        matches = match_table(self.task, block, take_matches(outcome.found, order))
        late = outcome.timed_out
        if late is not None:
            late = _take_late(late, np.lexsort((block.arrivals[late.start], late.settled)))
        return Emitted(matches, timed_out_table(self.task, block, late))

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
        self, rows: pa.Table, new: Numbered, keys: Integers, watermark: int, *, ended: bool
    ) -> tuple[Block, Integers]:
        """Join the rows kept of some keys and the new ones; return the block and its keys."""
        kept = self._kept.take(keys)
        place = np.searchsorted(keys, new.numbers).astype(np.int32)
        codes = place[new.codes]
        ordinals = np.empty(len(codes), np.int64)
        count_rows(codes, self._partitions.count[keys], ordinals)
        arrivals = np.arange(self._arrived, self._arrived + len(codes), dtype=np.int64)
        codes = np.concatenate([np.searchsorted(keys, kept.key).astype(np.int32), codes])
        grouping = group_codes(codes, len(keys))
        joined = pa.concat_tables([kept.rows, rows])
        columns = {
            name: placed(
                one_array(joined.column(name)),
                grouping.order,
                grouping.codes,
                grouping.segments,
            )
            for name in self._columns
        }
        numbers = np.concatenate([kept.numbers, [ordinals, arrivals]], axis=1)
        ordinals, arrivals = (_grouped(line, grouping) for line in numbers)
        there = np.flatnonzero(np.diff(grouping.segments))
        segments = np.append(grouping.segments[there], len(codes))
        ahead = 0 if ended else self._reach.ahead
        block = Block(
            columns=columns,
            segments=segments,
            visible=np.maximum(segments[1:] - ahead, segments[:-1]),
            ordinals=ordinals,
            arrivals=arrivals,
            times=time_values(self.task.bound, columns),
            ended=ended,
            # Rows that are only looked ahead at are not seen by the matcher yet, so time must not
            # settle what they could still change.
            watermark=NO_TIME if ahead else watermark,
        )
        return block, keys[there]

    def _newest(self, rows: pa.Table) -> int:
        """Return the watermark after these rows."""
        bound = self.task.bound
        if bound.within is None or bound.time is None or not rows.num_rows:
            return self._watermark
        last = rows.column(bound.time).slice(rows.num_rows - 1)
        return max(self._watermark, int(valid_times(bound.time, last)[0]))

    def _retain(self, block: Block, keys: Integers, outcome: Outcome) -> None:
        """Keep the rows that are still needed and what is known of each partition."""
        self._partitions.stopped(keys, outcome.resume)
        begin, end = block.segments[:-1], block.segments[1:]
        first = np.maximum(outcome.keep_from - self._reach.back, begin)
        sizes = end - first
        rows = np.repeat(end - np.cumsum(sizes), sizes) + np.arange(sizes.sum())
        columns = {name: gather(column, rows) for name, column in block.columns.items()}
        numbers = np.stack([block.ordinals[rows], block.arrivals[rows]])
        self._kept.replace(keys, Kept(pa.table(columns), np.repeat(keys, sizes), numbers))
        self._deadlines.forget(self._watermark)
        self._wait(keys, block.times, outcome.keep_from, end)
        self._partitions.forget(keys[(sizes == 0) & ~self._remembered(outcome.resume)])

    def _remembered(self, resume: Resume) -> Booleans:
        """Say which partitions must stay known even without rows."""
        if self._reach.anchored:
            return np.ones(len(resume.number), np.bool_)
        return (resume.number > 0) & self._reach.numbered

    def _wait(self, keys: Integers, times: Integers, begin: Integers, end: Integers) -> None:
        """Note when time can decide something in partitions that have undecided rows.

        That is never before one of these rows is as old as WITHIN allows.
        """
        within = self.task.bound.within
        if within is None or self._reach.ahead:
            return
        young = np.append(np.flatnonzero(times > self._watermark - within), len(times))
        row = young[np.searchsorted(young, begin)]
        waits = row < end
        deadline = np.full(len(keys), NEVER)
        deadline[waits] = np.minimum(times[row[waits]], NEVER - 1 - within) + within
        self._deadlines.replace(keys, deadline)

    def _check_times(self, rows: pa.Table) -> None:
        """Refuse times out of range, rows that go back, and those before a time that has passed."""
        bound = self.task.bound
        first = self._watermark
        if bound.within is not None and bound.time is not None and rows.num_rows:
            column = rows.column(bound.time)
            first = int(valid_times(bound.time, column, range(rows.num_rows))[0])
        self._arrival.check(rows)
        if first < self._watermark:
            raise passed(0, f"{bound.time} is {rows.column(bound.time)[0]}")

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
                raise other_type(name, schema.field(index).type, wanted)

    def _empty_rows(self) -> pa.Table:
        schema = self.task.bound.schema
        return pa.schema([schema.field(name) for name in self._columns]).empty_table()


def emission_order(block: Block, found: Found, shown: Integers) -> Integers:
    """Return the order in which a stream shows matches that became final at these rows.

    Among those that one row made final it is that of their starts, but a partition keeps its own
    order: a match does not come before one with a lower number.
    """
    begun = block.arrivals[found.start]
    falls = begun[1:] < begun[:-1]
    if falls.any():
        apart = (np.diff(found.segment) != 0) | (np.diff(shown) != 0)
        if (falls & ~apart).any():
            group = np.cumsum(np.append(0, apart)) * len(begun)
            rank = np.empty(len(begun), np.int64)
            rank[np.argsort(begun, kind="stable")] = np.arange(len(begun))
            begun = np.maximum.accumulate(rank + group) - group
    return np.lexsort((begun, shown))


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


def _first_predicates(task: Task) -> list[Predicate]:
    """Return the conditions of the variables that a match may start with."""
    program = task.program
    targets = {move.target for move in program.initial} - {ACCEPT}
    variables = sorted({program.positions[target].variable for target in targets})
    return [task.bound.predicates[variable] for variable in variables]


def fingerprint(bound: BoundQuery) -> str:
    """Return a hash of the query and the types that it reads."""
    fields = [f"{name} {bound.schema.field(name).type}" for name in sorted(bound.columns)]
    text = print_identity(bound.query) + "\n" + "\n".join(fields)
    return hashlib.sha256(text.encode()).hexdigest()


def _grouped(values: Integers, grouping: Grouping) -> Integers:
    if grouping.codes is None:
        return values
    grouped = np.empty_like(values)
    scatter_rows(values, grouping.codes, grouping.segments, grouped)
    return grouped


def take_matches(found: Found, order: Integers) -> Found:
    """Return some of the matches, in the order of their numbers given."""
    offsets, source = _taken(found.offsets, order)
    return Found(
        found.segment[order],
        found.start[order],
        found.number[order],
        offsets,
        found.rows[source],
        found.positions[source],
        found.settled[order],
    )


def _take_late(late: TimedOut, order: Integers) -> TimedOut:
    offsets, source = _taken(late.offsets, order)
    return TimedOut(
        late.segment[order],
        late.start[order],
        offsets,
        late.rows[source],
        late.positions[source],
        late.settled[order],
    )


def _taken(offsets: Integers, order: Integers) -> tuple[Integers, Integers]:
    """Return the offsets of lists in another order, and the places that their items come from."""
    sizes = np.diff(offsets)[order]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return ends, np.repeat(offsets[:-1][order] - ends[:-1], sizes) + np.arange(ends[-1])
