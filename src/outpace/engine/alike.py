"""Queries of one order, with the same keys, that one operator matches.

    rows with bits ──► each row for each query that can use it ──► one operator ──► by query

A query whose steps may follow each other at once also gets the first row that is of no use to it
behind one that is: those after it, of the same key, decide nothing any more.

What a step costs is mostly what it costs for each operator, however few rows come. Here all that
is done with rows is done once for all queries: who a row is for is a part of its key, so each query
has partitions of its own. Behind the order conditions on single rows are bits. So
queries that differ in these and in WITHIN alone are one pattern, which is searched for all of them
at once; other patterns are searched one after the other, in the same rows.

Each query gives what it gives alone, in the same order. That is so although the rows of others tell
the time as well: rows come in the order of their times, so where a match waits for time to pass,
the first row behind it, whoever it is for, comes before the first that is for its own query, and no
row of its own lies between. In a saved state each query stands for itself.

Memory: that of the operators of the queries, some rows for each of a part of what is released, and
a byte for each query and key where rows that are of no use count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.alike_state import WHOSE, states_apart, states_together
from outpace.engine.arrays import Integers
from outpace.engine.kernels.mask_bits import share_rows
from outpace.engine.match.bits import BITS
from outpace.engine.match.contract import JointTasks, Task
from outpace.engine.match.identity import UnmadeIds
from outpace.engine.match.kernel_arrays import BITS_MAX
from outpace.engine.match.task import fingerprint
from outpace.engine.message import Emit, EventsArrived, SourceEnded, Stimulus
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.key_table import KeyTable
from outpace.engine.rows.partition import gather, row_type
from outpace.engine.shared_rows import GroupMember, SharedBits, SharedRows
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State
from outpace.engine.window_match.result import JointMatches, LazyMatches, WindowMatches
from outpace.pattern.bound import Apply, MatchIdentity, PredicateClass, walk
from outpace.pattern.disorder import Late
from outpace.pattern.query import RowsPerMatch

#: So many rows, one for each query that gets it, go to the operator at once.
_ROWS_AT_ONCE: Final = 1 << 18

_PER_COLUMN: Final = 8

#: So many keys are kept that no query knows, beside as many as there are partitions.
_KEYS_MIN: Final = 1024


def keys_of(member: GroupMember) -> str | None:
    """Return what queries have in common that one operator matches; None for one that has its own.

    Of these all rows are of use that have a bit, and the first behind them, and they are decided by
    rows and by time.
    """
    bound, query = member.bits.task.bound, member.query
    measures = [measure.expression for measure in bound.measures]
    if (
        not (member.drops or member.drops_following)
        or len(bound.predicates) > BITS_MAX
        or member.whole.windows is not None
        or query.rows is not RowsPerMatch.ONE
        or query.join is not None
        or bound.uncertainty is not None
        or any(isinstance(node, MatchIdentity) for tree in measures for node in walk(tree))
        or Late(member.disorder.value.late) is Late.PASS
    ):
        return None
    return repr((bound.partition_by, bound.within is None))


def _shape_of(member: GroupMember) -> str:
    """Return what queries have in common that are one pattern, whatever WITHIN and their bits."""
    bound, query = member.bits.task.bound, member.query
    plain = replace(query, name="", definitions=(), set_aside=(), order_of_arrival=None, bound=None)
    kind = None if query.bound is None else query.bound.kind
    # What reads the match as well begins with the look at a bit.
    rest = [
        (one.name, one.kind, one.expression.arguments[1:])
        for one in bound.predicates
        if one.kind is not PredicateClass.LOCAL and isinstance(one.expression, Apply)
    ]
    # By their texts: 0.0 and -0.0 are equal, but not the same.
    names = [one.name for one in bound.predicates]
    return repr((plain, kind, names, rest, bound.measures, bound.columns, bound.output))


class AlikeQueries(Stateful):
    """The operator of queries that have `keys_of` in common.

    Parameters
    ----------
    members
        The queries.
    shared
        Their bits, among those of others.
    """

    CHANGED = ("operator", "_keys", "_due")

    def __init__(self, members: Sequence[GroupMember], shared: SharedBits) -> None:
        self.members = members
        shapes = [_shape_of(one) for one in members]
        numbered = {shape: number for number, shape in enumerate(dict.fromkeys(shapes))}
        task_of = np.array([numbered[shape] for shape in shapes])
        #: The queries of each pattern.
        self._queries = [np.flatnonzero(task_of == number) for number in range(len(numbered))]
        self._spec = _joint_spec(members, self._queries, task_of)
        self.operator = WholeOperator(self._spec)
        #: The keys of rows, which are looked up once for all queries.
        self._keys = KeyTable(self._key_columns)
        numbers = [shared.numbers(one.bits) for one in members]
        places = np.full((len(members), max(map(len, numbers))), -1, np.int64)
        for line, own in zip(places, numbers, strict=True):
            line[: len(own)] = own
        self._column, self._bit = np.where(places < 0, -1, np.divmod(places, _PER_COLUMN))
        #: Whether each query gets rows that are of no use, and whether one is due, for each key.
        self._ends = np.array([not one.drops for one in members], np.uint8)
        self._due = self._ends[None].copy()
        self._nothing = self._spec.arriving.empty_table()
        #: What each gives where there is nothing.
        self._no_matches = [WindowMatches.none(one.spec.bound.output) for one in members]
        self._no_timeouts = [one.spec.timed_out.empty_table() for one in members]

    @cached_property
    def _key_columns(self) -> pa.Schema:
        bound = self.members[0].spec.bound
        return pa.schema([bound.schema.field(name) for name in bound.partition_by])

    @property
    def partitions(self) -> int:
        """How many partitions are known to the query that knows most."""
        words = self.operator.front.keys.column(WHOSE.name).to_numpy()
        return int(np.bincount(words % len(self.members), minlength=1).max())

    def step(
        self, released: SharedRows, watermark: int, going: Sequence[int], *, ended: bool
    ) -> list[list[Emit]]:
        """Let some of the queries take what was released; return what each of them gives, in turn.

        After an error of a query, of which nobody knows which it is, nothing is taken.
        """
        released = released if self._ends.any() else released.useful
        several = ended or released.size * len(going) > _ROWS_AT_ONCE
        before = self.operator.snapshot() if several else None
        emits: list[list[Emit]] = []
        try:
            for stimulus in self._stimuli(released, watermark, going, ended=ended):
                said = self.operator.step(stimulus)
                emits += [self._by_query(one) for one in said if isinstance(one, Emit)]
        except Exception:
            if before is not None:
                self.operator = before
            self._due[:] = self._ends  # One too many changes nothing.
            raise
        self._forget()
        return [[each[query] for each in emits] for query in going]

    def _forget(self) -> None:
        """Forget keys that no query knows a partition of, where these are most."""
        if len(self._keys) > 2 * self.operator.partitions + _KEYS_MIN:
            words = self.operator.front.keys.column(WHOSE.name).to_numpy()
            unknown = np.setdiff1d(self._keys.numbers, words // len(self.members))
            self._keys.forget(unknown)
            self._due[unknown[unknown < len(self._due)]] = self._ends

    def _stimuli(
        self, released: SharedRows, watermark: int, going: Sequence[int], *, ended: bool
    ) -> Iterator[Stimulus]:
        """Give rows to queries, some at once, and the time with the last of them."""
        tables = self._tables(released, going)
        table = next(tables, self._nothing)
        for following in tables:
            yield EventsArrived(table)
            table = following
        yield EventsArrived(table, watermark=watermark)
        if ended:
            yield SourceEnded()

    def _tables(self, released: SharedRows, going: Sequence[int]) -> Iterator[pa.Table]:
        """Return the rows that queries can use, each once for every query, some at once."""
        whose = np.array(going, np.int32)
        column, bit = self._column[whose], self._bit[whose]
        room = max(len(going), min(released.size * len(going), _ROWS_AT_ONCE))
        begin, count = 0, np.zeros(1, np.int64)
        key = self._numbers(released)
        line = np.zeros_like(key)
        if self._ends.any():
            line = key
            self._make_room(int(key.max(initial=-1)) + 1)
        ends = self._ends[whose]
        while begin < released.size:
            row_of = np.empty(room, row_type(released.size))
            query_of, words = np.empty(room, np.int32), np.empty(room, np.int64)
            begin = share_rows(
                *(released.bits, column, bit, begin, row_of, query_of, words, count),
                *(line, whose, ends, self._due),
            )
            given = int(count[0])
            if not given:
                continue
            row_of, query_of, words = row_of[:given], query_of[:given], words[:given]
            added = {WHOSE.name: pa.array(key[row_of] * len(self.members) + whose[query_of])}
            for field in self._spec.arriving:
                if field.name.startswith(BITS):
                    first = _PER_COLUMN * int(field.name.removeprefix(BITS))
                    added[field.name] = pa.array((words >> first).astype(np.uint8))
                elif field.name not in added:
                    added[field.name] = gather(released.column(field.name), row_of)
            columns = [added[name] for name in self._spec.arriving.names]
            yield pa.Table.from_arrays(columns, schema=self._spec.arriving)

    def _make_room(self, keys: int) -> None:
        """Make room for what is due to keys; of a new one nobody knows what came before."""
        missing = keys - len(self._due)
        if missing > 0:
            more = np.repeat(self._ends[None], max(missing, len(self._due)), axis=0)
            self._due = np.concatenate([self._due, more])

    def _numbers(self, released: SharedRows) -> Integers:
        """Return the number of the key of each row."""
        if not self._key_columns.names:
            return np.zeros(released.size, np.int64)
        columns = [released.column(name) for name in self._key_columns.names]
        found = self._keys.look_up(pa.table(columns, schema=self._key_columns))
        self._keys.add(found)
        return found.numbers[found.codes]

    def _by_query(self, emit: Emit) -> list[Emit]:
        """Return what each query gives, of what all give."""
        matches = dict(enumerate(self._no_matches))
        if isinstance(emit.matches, JointMatches):
            for queries, found in zip(self._queries, emit.matches.parts, strict=True):
                if len(found):
                    matches |= dict(self._apart(queries, found))
        each = zip(self.members, matches.values(), self._no_timeouts, strict=True)
        return [
            Emit(one.query.name, found, nothing, emit.watermark) for one, found, nothing in each
        ]

    def _apart(
        self, queries: Integers, matches: WindowMatches
    ) -> Iterator[tuple[int, WindowMatches]]:
        """Return the queries of a pattern that have matches, and these, of those of all."""
        whose = matches.table.column(WHOSE.name).to_numpy() % len(self.members)
        order = np.argsort(whose, kind="stable")
        rows = matches.table.drop_columns([WHOSE.name])
        table = pa.table([gather(one, order) for one in rows.columns], schema=rows.schema)
        begins = np.searchsorted(whose, queries, sorter=order).tolist()
        bounds = pairwise([*begins, len(order)])
        for query, (begin, end) in zip(queries.tolist(), bounds, strict=True):
            if begin < end:
                own, rows = order[begin:end], table.slice(begin, end - begin)
                yield query, _part(self.members[query], matches, own, rows)

    def states(self) -> list[State]:
        """Return the state of the operator of each query, as it would be alone."""
        columns = [one.spec.kept.names for one in self.members]
        whole = self.operator.state()
        return states_apart(whole, self._keys, self._fresh, self._fingerprints, columns)

    @cached_property
    def _fresh(self) -> State:
        """The state of the operator of the first query before it has taken anything."""
        return WholeOperator(self.members[0].spec).state()

    @cached_property
    def _fingerprints(self) -> list[str]:
        """What tells the states of the queries apart."""
        return [fingerprint(one.spec.bound) for one in self.members]

    def restore(self, operators: Mapping[int, WholeOperator]) -> None:
        """Go on from where operators stand, each that of a query, by its number here."""
        fresh, keys = WholeOperator(self._spec), KeyTable(self._key_columns)
        if operators:
            states = {number: one.state() for number, one in operators.items()}
            fresh.restore(states_together(fresh.state(), keys, states, len(self.members)))
        self.operator, self._keys, self._due = fresh, keys, self._ends[None].copy()


def _joint_spec(
    members: Sequence[GroupMember], queries: Sequence[Integers], task_of: Integers
) -> OperatorSpec:
    """Return the operator of rows that say who they are for, as matches do.

    `queries` are those of each pattern, and `task_of` says which pattern a query has.
    """
    first = members[0].spec
    tasks = [_with_whose(members[own[0]].spec) for own in queries]
    fields = {one.name: one for member in members for one in member.spec.schema}
    schema = pa.schema([*fields.values(), WHOSE])
    bounds = [one.spec.bound.within for one in members if one.spec.bound.within is not None]
    kept = dict.fromkeys(
        name for task in tasks for name in (*task.bound.columns, *task.bound.output.names)
    )
    bound = replace(
        tasks[0].bound,
        schema=schema,
        columns=tuple(field.name for field in schema if field.name in kept),
    )
    within = np.array(bounds, np.int64) if bounds else None
    together = JointTasks(WHOSE.name, tuple(tasks), task_of, within)
    task = replace(tasks[0], bound=bound)
    return replace(first, schema=schema, given=task, together=together)


def _with_whose(spec: OperatorSpec) -> Task:
    """Return the pattern of a query whose rows say who they are for."""
    assert spec.given is not None
    bound = spec.given.bound
    changed = replace(
        bound,
        schema=bound.schema.append(WHOSE),
        partition_by=(WHOSE.name,),
        columns=(*bound.columns, WHOSE.name),
        output=bound.output.append(WHOSE),
    )
    return replace(spec.given, bound=changed)


def _part(
    member: GroupMember, matches: WindowMatches, own: Integers, table: pa.Table
) -> WindowMatches:
    """Return the matches of a query, which are these of all, as their rows tell."""
    ids, task = matches.identify, member.spec.task
    assert isinstance(ids, UnmadeIds)
    assert task is not None
    return LazyMatches(
        {"table": table, "event": matches.event[own], "identify": partial(ids.of, task, own)},
        offsets=lambda: np.arange(len(own) + 1),
        phase=lambda: matches.phase[own],
        window=lambda: matches.window[own],
        partition=lambda: matches.partition[own],
    )
