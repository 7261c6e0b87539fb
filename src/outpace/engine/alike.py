"""Queries of one order that differ in conditions on single rows alone, matched as one query.

    rows with bits ──► each row for each query that can use it ──► one operator ──► by query

Behind the order conditions on single rows are bits, so such queries have one pattern, whatever
their conditions are. One operator matches all of them: who a row is for is the first column of its
key. So a step costs the rows of all, and hardly anything for each query.

Each query gives what it gives alone, in the same order. Therefore only queries are matched as one
whose matches rows make final, as the rows of others tell the time here: those without WITHIN, and
chains `A -> B -> C`. In a saved state each query stands for itself.

Memory: that of the operators of the queries, and some rows for each of a part of what is released.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.alike_state import WHOSE, states_apart, states_together
from outpace.engine.arrays import Integers
from outpace.engine.kernels.mask_bits import share_rows
from outpace.engine.match.bits import BITS
from outpace.engine.match.contract import Task
from outpace.engine.match.identity import UnmadeIds
from outpace.engine.match.kernel import chain_steps
from outpace.engine.match.kernel_arrays import BITS_MAX
from outpace.engine.match.task import fingerprint
from outpace.engine.message import Emit, EventsArrived, SourceEnded, Stimulus
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.partition import gather, row_type
from outpace.engine.shared_rows import GroupMember, SharedBits, SharedRows
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State
from outpace.engine.window_match.result import LazyMatches, WindowMatches
from outpace.pattern.bound import Apply, MatchIdentity, PredicateClass, walk
from outpace.pattern.disorder import Late
from outpace.pattern.query import Consume, RowsPerMatch, Selection

#: So many rows, one for each query that gets it, go to the operator at once.
_ROWS_AT_ONCE: Final = 1 << 18

_PER_COLUMN: Final = 8


def shape_of(member: GroupMember) -> str | None:
    """Return what queries have in common that are matched as one; None for one that never is."""
    task, query = member.bits.task, member.query
    bound = task.bound
    measures = [measure.expression for measure in bound.measures]
    if (
        not member.drops
        or len(bound.predicates) > BITS_MAX
        or member.whole.windows is not None
        or query.rows is not RowsPerMatch.ONE
        or query.join is not None
        or bound.uncertainty is not None
        or any(isinstance(node, MatchIdentity) for tree in measures for node in walk(tree))
        or Late(member.disorder.value.late) is Late.PASS
        or not _decided_by_rows(task)
    ):
        return None
    plain = replace(query, name="", definitions=(), set_aside=(), order_of_arrival=None)
    # What reads the match as well begins with the look at a bit.
    rest = [
        (one.name, one.kind, one.expression.arguments[1:])
        for one in bound.predicates
        if one.kind is not PredicateClass.LOCAL and isinstance(one.expression, Apply)
    ]
    # By their texts: 0.0 and -0.0 are equal, but not the same.
    names = [one.name for one in bound.predicates]
    return repr((plain, names, rest, bound.measures, bound.columns, bound.output))


def _decided_by_rows(task: Task) -> bool:
    """Say whether no match of a task waits for time to pass."""
    bound = task.bound
    plain = (bound.query.effective_selection, bound.query.consumption) == (
        Selection.PREFERRED,
        Consume.NONE,
    )
    chained = plain and not any(bound.descending[:1]) and chain_steps(task) is not None
    return bound.within is None or chained


class AlikeQueries(Stateful):
    """The operator of queries that have one shape.

    Parameters
    ----------
    members
        The queries.
    shared
        Their bits, among those of others.
    """

    CHANGED = ("operator",)

    def __init__(self, members: Sequence[GroupMember], shared: SharedBits) -> None:
        self.members = members
        self._spec = _with_whose(members[0].spec)
        self.operator = WholeOperator(self._spec)
        numbers = np.array([shared.numbers(one.bits) for one in members], np.int64)
        self._column, self._bit = np.divmod(numbers, _PER_COLUMN)
        self._output = members[0].spec.bound.output
        self._nothing = self._spec.arriving.empty_table()
        self._no_matches = WindowMatches.none(self._output)
        self._no_timeouts = members[0].spec.timed_out.empty_table()

    @property
    def partitions(self) -> int:
        """How many partitions are known to the query that knows most."""
        whose = self.operator.front.keys.column(WHOSE.name).to_numpy()
        return int(np.bincount(whose, minlength=1).max())

    def step(
        self, released: SharedRows, watermark: int, going: Sequence[int], *, ended: bool
    ) -> list[list[Emit]]:
        """Let some of the queries take what was released; return what each of them gives, in turn.

        After an error of a query, of which nobody knows which it is, nothing is taken.
        """
        several = ended or released.useful.size * len(going) > _ROWS_AT_ONCE
        before = self.operator.snapshot() if several else None
        emits: list[list[Emit]] = []
        try:
            for stimulus in self._stimuli(released.useful, watermark, going, ended=ended):
                said = self.operator.step(stimulus)
                emits += [self._by_query(one) for one in said if isinstance(one, Emit)]
        except Exception:
            if before is not None:
                self.operator = before
            raise
        return [[each[query] for each in emits] for query in going]

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
        while begin < released.size:
            row_of = np.empty(room, row_type(released.size))
            query_of, words = np.empty(room, np.int32), np.empty(room, np.int64)
            begin = share_rows(released.bits, column, bit, begin, row_of, query_of, words, count)
            given = int(count[0])
            if not given:
                continue
            row_of, query_of, words = row_of[:given], query_of[:given], words[:given]
            added = {WHOSE.name: pa.array(whose[query_of])}
            for field in self._spec.arriving:
                if field.name.startswith(BITS):
                    first = _PER_COLUMN * int(field.name.removeprefix(BITS))
                    added[field.name] = pa.array((words >> first).astype(np.uint8))
                elif field.name not in added:
                    added[field.name] = gather(released.column(field.name), row_of)
            columns = [added[name] for name in self._spec.arriving.names]
            yield pa.Table.from_arrays(columns, schema=self._spec.arriving)

    def _by_query(self, emit: Emit) -> list[Emit]:
        """Return what each query gives, of what all give."""
        matches, said = emit.matches, (self._no_timeouts, emit.watermark)
        if not len(matches):
            return [Emit(one.query.name, self._no_matches, *said) for one in self.members]
        whose = matches.table.column(WHOSE.name).to_numpy()
        order = np.argsort(whose, kind="stable")
        bounds = np.searchsorted(whose[order], np.arange(len(self.members) + 1)).tolist()
        columns = [gather(matches.table.column(name), order) for name in self._output.names]
        table, event = pa.table(columns, schema=self._output), matches.event[order]
        each = zip(self.members, bounds[:-1], bounds[1:], strict=True)
        return [
            Emit(
                member.query.name,
                _part(
                    member,
                    matches,
                    order[begin:end],
                    table.slice(begin, end - begin),
                    event[begin:end],
                ),
                *said,
            )
            for member, begin, end in each
        ]

    def states(self) -> list[State]:
        """Return the state of the operator of each query, as it would be alone."""
        return states_apart(self.operator.state(), self._fresh, self._fingerprints)

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
        fresh = WholeOperator(self._spec)
        if operators:
            states = {number: one.state() for number, one in operators.items()}
            fresh.restore(states_together(fresh.state(), states))
        self.operator = fresh


def _with_whose(spec: OperatorSpec) -> OperatorSpec:
    """Return the operator of rows that say who they are for, as matches do."""
    assert spec.given is not None
    bound = spec.given.bound
    changed = replace(
        bound,
        schema=bound.schema.append(WHOSE),
        partition_by=(WHOSE.name, *bound.partition_by),
        columns=(*bound.columns, WHOSE.name),
        output=bound.output.append(WHOSE),
    )
    task = replace(spec.given, bound=changed)
    return replace(spec, schema=spec.schema.append(WHOSE), given=task)


def _part(
    member: GroupMember, matches: WindowMatches, own: Integers, table: pa.Table, event: Integers
) -> WindowMatches:
    """Return the matches of a query, which are these of all, as their rows and events tell."""
    ids, task = matches.identify, member.spec.task
    assert isinstance(ids, UnmadeIds)
    assert task is not None
    return LazyMatches(
        {"table": table, "event": event, "identify": partial(ids.of, task, own)},
        offsets=lambda: np.arange(len(own) + 1),
        phase=lambda: matches.phase[own],
        window=lambda: matches.window[own],
        partition=lambda: matches.partition[own],
    )
