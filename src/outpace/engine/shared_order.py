"""The common part of queries with one order of events: this order, and bits of single rows.

    events with bits ──► order of all that agree on it ──► an operator of each query

A condition that needs only its own row is a bit, which is computed once, however many queries ask
for it, and rows that no step of a query can use do not reach its operator: they only tell the time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.intake import Intake
from outpace.engine.match.bits import (
    BITS,
    BitTask,
    bit_columns,
    columns_read,
    counts_unused,
    with_bits,
)
from outpace.engine.message import (
    Aside,
    Emit,
    EventsArrived,
    Instruction,
    SetAside,
    SourceEnded,
    Stimulus,
)
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.chain import SlackChain
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import ReleasedEvents
from outpace.engine.rows.partition import gather, one_array
from outpace.engine.rows.rearranged import as_table
from outpace.engine.snapshot import Stateful
from outpace.engine.state import NATURAL, State, integer
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import OutpaceError
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import Predicate
from outpace.pattern.disorder import KSlack, Late
from outpace.pattern.group import listed_names, naming_query
from outpace.pattern.query import Query

#: A condition of rows as 0 and 1, or several of them as the bits of bytes.
Bits: TypeAlias = npt.NDArray[np.uint8]

#: Why queries have failed, by their names.
Failures: TypeAlias = dict[str, Exception]

_PER_COLUMN: Final = 8

#: The columns of bits that the queries share are named so, followed by their number.
_SHARED: Final = "__outpace_shared_"


@dataclass(frozen=True)
class GroupMember:
    """A query that shares an order; `whole` is its operator, were it alone."""

    whole: OperatorSpec

    @property
    def query(self) -> Query:
        """The query."""
        return self.whole.query

    @property
    def disorder(self) -> BoundDisorder:
        """How far its events are out of order."""
        assert self.whole.disorder is not None
        return self.whole.disorder

    @cached_property
    def bits(self) -> BitTask:
        """Its pattern, where rows bring bits."""
        assert self.whole.task is not None
        moved = self.disorder.moved(clocks=self.whole.sources is not None)
        return with_bits(self.whole.task, moved=moved)

    @cached_property
    def spec(self) -> OperatorSpec:
        """The operator behind the order: it takes rows as they come, and is told the time."""
        known = replace(
            self.whole,
            schema=self.bits.task.bound.schema,
            given=self.bits.task,
            disorder=None,
            sources=None,
            checked=False,
            brings_ids=True,
        )
        needed = set(known.events.names)
        columns = [field for field in known.schema if field.name in needed]
        return replace(known, schema=pa.schema(columns))

    @cached_property
    def drops(self) -> bool:
        """Whether rows that no step can use may be left out; timed-out rows tell their numbers."""
        whole = self.whole
        if whole.timeouts or not self.bits.drop_unused:
            return False
        return not counts_unused(whole.bound, whole.windows)

    @cached_property
    def _nothing(self) -> pa.Table:
        return self.spec.arriving.empty_table()

    @property
    def ordering(self) -> tuple[object, ...]:
        """What queries agree on that share an order: its columns, and all settings but K.

        Where sources wait for each other, K counts as well.
        """
        bound, value = self.whole.bound, self.disorder.value
        slack = isinstance(value, KSlack) and value.arrival is None and value.late is not Late.PASS
        slack = slack and self.whole.sources is None
        settings = tuple(
            (name, one) for name, one in self.disorder.settings if not (slack and name == "slack")
        )
        sorted_by = bound.order_by, bound.descending, bound.nulls_first
        return type(value), slack, settings, self.disorder.ties, sorted_by, self.whole.measured

    def rows(self, released: _SharedRows, places: Sequence[tuple[str, int]]) -> pa.Table:
        """Return the rows that the operator needs, with its bits, which are at these places."""
        own, chosen = [released.bit(*place) for place in places], None
        if self.drops and own:
            chosen = np.flatnonzero(functools.reduce(np.bitwise_or, own).view(np.bool_))
            if not len(chosen):
                return self._nothing
            own = [bit.take(chosen) for bit in own]
        columns = [
            pa.array(_packed(own, int(field.name.removeprefix(BITS))))
            if field.name.startswith(BITS)
            else gather(released.column(field.name), chosen)
            for field in self.spec.arriving
        ]
        return pa.Table.from_arrays(columns, schema=self.spec.arriving)


class SharedBits:
    """The conditions of all queries, each once, as bits of columns that travel with the events."""

    def __init__(self, members: Iterable[GroupMember]) -> None:
        self.predicates: list[Predicate] = []
        #: The first query that has each of them.
        self._owners: list[Query] = []
        #: Where each is, by its text: 0.0 and -0.0 are equal, but not the same condition.
        self._places: dict[str, int] = {}
        #: How many conditions there are, equal ones counted each time.
        self.conditions = 0
        for member in members:
            with naming_query(member.query):
                predicates = member.bits.predicates
            self.conditions += len(predicates)
            for one in predicates:
                if (text := repr(one.expression)) not in self._places:
                    self._places[text] = len(self.predicates)
                    self.predicates.append(one)
                    self._owners.append(member.query)

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of bits."""
        count = -(-len(self.predicates) // _PER_COLUMN)
        return [pa.field(f"{_SHARED}{number}", pa.uint8()) for number in range(count)]

    def added(self, rows: pa.Table) -> pa.Table:
        """Return rows with all bits."""
        if not self.predicates:
            return rows
        predicates = tuple(self.predicates)
        columns = {name: one_array(rows.column(name)) for name in columns_read(predicates)}
        try:
            computed = bit_columns(predicates, columns, rows.num_rows)
        except OutpaceError:
            for one, owner in zip(predicates, self._owners, strict=True):
                with naming_query(owner):
                    bit_columns((one,), columns, rows.num_rows)
            raise
        for field, column in zip(self.fields, computed.values(), strict=True):
            rows = rows.append_column(field, column)
        return rows

    def places(self, task: BitTask) -> list[tuple[str, int]]:
        """Return the column of each condition of a query, and which bit of it."""
        places = (
            divmod(self._places[repr(one.expression)], _PER_COLUMN) for one in task.predicates
        )
        return [(f"{_SHARED}{column}", bit) for column, bit in places]


class _SharedRows:
    """Rows that come out of an order, whose columns and bits are made once for all queries."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._columns: dict[str, pa.Array] = {}
        self._apart: dict[tuple[str, int], Bits] = {}

    def column(self, name: str) -> pa.Array:
        """Return a column in one piece."""
        if name not in self._columns:
            self._columns[name] = one_array(self._rows.column(name))
        return self._columns[name]

    def bit(self, name: str, number: int) -> Bits:
        """Return a bit of a column as 0 and 1."""
        if (name, number) not in self._apart:
            self._apart[name, number] = (self.column(name).to_numpy() >> number) & 1
        return self._apart[name, number]


def _packed(bits: Sequence[Bits], number: int) -> Bits:
    """Return the column of bits with a number."""
    own = bits[number * _PER_COLUMN : (number + 1) * _PER_COLUMN]
    column = own[0].copy()
    for bit, values in enumerate(own[1:], start=1):
        column |= values << bit
    return column


class SharedOrder(Stateful):
    """The order of queries that agree on it, and their operators.

    Parameters
    ----------
    members
        The queries.
    shared
        Their bits, among those of others.
    place
        Which one it is, where each of several has events of its own.
    """

    CHANGED = ("intake", "operators")

    def __init__(self, members: Sequence[GroupMember], shared: SharedBits, place: int) -> None:
        self._places = {one.query.name: shared.places(one.bits) for one in members}
        first = members[0]
        slacks = isinstance(first.disorder.value, KSlack) and first.ordering[1]
        by_slack: dict[int, list[GroupMember]] = {}
        for member in members:
            by_slack.setdefault(member.disorder["slack"] if slacks else 0, []).append(member)
        self._links = [by_slack[slack] for slack in sorted(by_slack)]
        whole = first.whole
        schema = pa.schema([*whole.schema, *shared.fields])
        spec = replace(whole, schema=schema, given=whole.given)
        chained = [link[0].disorder for link in self._links]
        # What one query cannot use another may.
        order = (
            SlackChain(spec.bound, chained, spec.arriving)
            if len(chained) > 1
            else make_order(spec.bound, spec.disorder, spec.arriving, spec.sources)
        )
        self.intake = Intake(spec, place, order)
        #: How many events have had their turn, with the last that waits for them.
        self.released = 0
        self.operators = {one.query.name: WholeOperator(one.spec) for one in members}
        #: What a query gives that has nothing to say.
        self._silent = {name: _nothing_found(one.spec) for name, one in self.operators.items()}
        self._shown = first.whole.schema.names

    def lines(self) -> list[str]:
        """Say which queries share the order, and how each gets its events."""
        names = listed_names([one.query.name for link in self._links for one in link])
        if len(self._links) == 1:
            return [f"ordered once for {names}: {self._links[0][0].disorder}"]
        chain = (
            f"  {link[0].disorder}: {listed_names([one.query.name for one in link])}"
            for link in self._links
        )
        return [f"ordered once for {names}, in a chain", *chain]

    def goes_on(self, failed: Failures) -> bool:
        """Say whether any of its queries has not failed."""
        return any(name not in failed for name in self.operators)

    def pass_on(
        self,
        released: ReleasedEvents,
        noted: Callable[[Query], AbstractContextManager[None]],
        failed: Failures,
        *,
        ended: bool,
    ) -> list[Instruction]:
        """Let the queries take what was released; return what each gives, and note its error."""
        self.released += released.rows.num_rows
        links = released.links or (released,)
        given: list[Instruction] = []
        for link, events, found in zip(self._links, links, set_aside(released), strict=True):
            rows = _SharedRows(as_table(events.rows))
            aside = [(kind, _without_added(table, self._shown)) for kind, table in found.items()]
            for member in (one for one in link if one.query.name not in failed):
                with noted(member.query):
                    emit = self._member_step(member, rows, events.watermark, ended=ended)
                    given += [SetAside(emit.query, *one) for one in aside]
                    given.append(emit)
        return given

    def _member_step(
        self,
        member: GroupMember,
        rows: _SharedRows,
        watermark: int,
        *,
        ended: bool,
    ) -> Emit:
        name = member.query.name
        operator, own = self.operators[name], member.rows(rows, self._places[name])
        if not own.num_rows and not ended and operator.instance.is_unmoved(watermark):
            return self._silent[name]
        stimuli: list[Stimulus] = [EventsArrived(own, watermark=watermark)]
        if ended:
            stimuli.append(SourceEnded())
        return _one_emit([one for stimulus in stimuli for one in operator.step(stimulus)])

    def state(self, failed: Failures) -> State:
        """Return all that is kept, but for queries that failed, for `restore`."""
        return State(
            {"released": self.released},
            parts={"intake": self.intake.state(), **operator_states(self.operators, failed)},
        )

    def restore(self, state: State, failed: Failures) -> None:
        """Go on from what `state` returned."""
        self.released = integer(state.numbers, "released", NATURAL)
        self.intake.restore(state.part("intake"))
        restore_operators(self.operators, state, failed)


def set_aside(released: ReleasedEvents) -> list[dict[Aside, pa.Table]]:
    """Return for each link of an order the events that take no part, with their ids.

    Those that cannot be used are found by the first link, for all.
    """
    links = released.links or (released,)
    every = [{Aside.LATE: link.late, Aside.INVALID: links[0].invalid} for link in links]
    return [
        {kind: rows for kind, rows in one.items() if rows is not None and rows.num_rows}
        for one in every
    ]


def operator_states(operators: Mapping[str, WholeOperator], failed: Failures) -> dict[str, State]:
    """Return the states of operators that have not failed, as parts of another."""
    return {f"of {name}": one.state() for name, one in operators.items() if name not in failed}


def restore_operators(
    operators: Mapping[str, WholeOperator], state: State, failed: Failures
) -> None:
    """Let operators that have not failed go on from what `operator_states` returned."""
    for name, operator in operators.items():
        if name not in failed:
            operator.restore(state.part(f"of {name}"))


def _nothing_found(spec: OperatorSpec) -> Emit:
    """Return what an operator without windows gives where nothing became final."""
    nothing = WindowMatches.none(spec.bound.output), spec.timed_out.empty_table()
    return Emit(spec.query.name, *nothing)


def _one_emit(instructions: Sequence[Instruction]) -> Emit:
    """Return what an operator gave in several steps as one."""
    emits = [one for one in instructions if isinstance(one, Emit)]
    if len(emits) == 1:
        return emits[0]
    matches = WindowMatches.joined(emits[0].matches.table.schema, [one.matches for one in emits])
    timed_out = pa.concat_tables([one.timed_out for one in emits])
    return replace(emits[-1], matches=matches, timed_out=timed_out)


def _without_added(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return events as they came; invalid ones have their reason first."""
    first = [name for name in rows.column_names[:1] if name not in names]
    return rows.select([*first, *names])
