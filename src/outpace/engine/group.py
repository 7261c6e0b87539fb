"""Operators of several queries that look at the same events, which are ordered once for all.

    events ──► ids, bits ──► order of all queries that agree on it ──► an operator of each query
                        └──► what is shared by none: an operator with an order of its own

A condition that needs only its own row is a bit, which is computed once, however many queries ask
for it, and rows that no step of a query can use do not reach its operator: they only tell the time.
Queries share an order where they are sorted by the same columns and agree on all settings of
disorder but K of K-slack: different K are a chain. What each gives is what it gives alone.

Memory: that of the operators, and of the events that wait for the largest K of each order.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.event import EVENT_ID
from outpace.engine.front import FrontCounters
from outpace.engine.group_spec import GroupSpec
from outpace.engine.match.bits import (
    BITS,
    BitTask,
    bit_columns,
    columns_read,
    counts_unused,
    with_bits,
)
from outpace.engine.match.output import timed_out_schema
from outpace.engine.message import (
    Aside,
    ClockExchange,
    Emit,
    EventsArrived,
    Instruction,
    SetAside,
    SourceEnded,
    Stimulus,
    TimerFired,
    TimeTold,
)
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.chain import SlackChain
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import Order, OrderCounters, ReleasedEvents
from outpace.engine.order.drift import ClockReading
from outpace.engine.order.identify import EventIds
from outpace.engine.order.waits import JoinedWaits, Waits
from outpace.engine.rows.partition import gather, one_array
from outpace.engine.rows.rearranged import as_table
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State, require
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import DataError, OutpaceError, StateError
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import Predicate
from outpace.pattern.disorder import KSlack, Late
from outpace.pattern.group import listed_names, told_of
from outpace.pattern.query import Query

#: A condition of rows as 0 and 1, or several of them as the bits of bytes.
Bits: TypeAlias = npt.NDArray[np.uint8]

#: Why queries have failed, by their names.
Failures: TypeAlias = dict[str, Exception]
#: What is to be done, by the names of queries.
Instructions: TypeAlias = dict[str, list[Instruction]]

_PER_COLUMN: Final = 8

#: The columns of bits that the queries share are named so, followed by their number.
_SHARED: Final = "__outpace_shared_"


class GroupStep:
    """What one step gives.

    Attributes
    ----------
    emits
        What came out of each query that has not failed, by its name.
    aside
        The events that a query set aside, by its name and why.
    """

    def __init__(self) -> None:
        self.emits: dict[str, Emit] = {}
        self.aside: dict[tuple[str, Aside], pa.Table] = {}
        self._ids: dict[Aside, list[Integers]] = {kind: [] for kind in Aside}

    @property
    def matches(self) -> dict[str, pa.Table]:
        """The matches of each query, by its name."""
        return {name: emit.matches.table for name, emit in self.emits.items()}

    @property
    def instructions(self) -> Instructions:
        """What is to be done, by the name of a query."""
        found: Instructions = {name: [] for name in self.emits}
        for (name, kind), rows in self.aside.items():
            found.setdefault(name, []).append(SetAside(kind, rows))
        for name, emit in self.emits.items():
            found[name].append(emit)
        return found

    def count(self, kind: Aside) -> int:
        """Return how many events were set aside; one counts once, whoever sets it aside.

        Of a query with an order of its own nobody knows whether its events are those of others.
        """
        shared = np.unique(np.concatenate([np.zeros(0, np.int64), *self._ids[kind]]))
        own = [int(rows.num_rows) for (_, why), rows in self.aside.items() if why is kind]
        return max(len(shared), *own, 0)

    def take(self, query: str, instructions: Iterable[Instruction]) -> None:
        """Take what is to be done for a query."""
        for one in instructions:
            if isinstance(one, Emit):
                self.emits[query] = one
            else:
                self.aside[query, one.kind] = one.rows

    def take_ids(self, kind: Aside, events: pa.Table) -> None:
        """Take events that queries with a common order set aside, with their ids."""
        self._ids[kind].append(events.column(EVENT_ID.name).to_numpy())


@dataclass(frozen=True)
class _Member:
    """A query that shares an order; `whole` is its operator, were it alone."""

    whole: OperatorSpec

    @property
    def query(self) -> Query:
        return self.whole.query

    @property
    def disorder(self) -> BoundDisorder:
        assert self.whole.disorder is not None
        return self.whole.disorder

    @cached_property
    def bits(self) -> BitTask:
        assert self.whole.task is not None
        return with_bits(self.whole.task)

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


class _SharedBits:
    """The conditions of all queries, each once, as bits of columns that travel with the events."""

    def __init__(self, members: Iterable[_Member]) -> None:
        self.predicates: list[Predicate] = []
        #: The first query that has each of them.
        self._owners: list[Query] = []
        #: Where each is, by its text: 0.0 and -0.0 are equal, but not the same condition.
        self._places: dict[str, int] = {}
        #: How many conditions there are, equal ones counted each time.
        self.asked = 0
        for member in members:
            with told_of(member.query):
                predicates = member.bits.predicates
            self.asked += len(predicates)
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
                with told_of(owner):
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


class _SharedOrder(Stateful):
    """The order of queries that agree on it, and their operators.

    Parameters
    ----------
    members
        The queries.
    shared
        Their bits, among those of others.
    together
        Whether the error of one query ends all.
    """

    CHANGED = ("order", "operators", "waits")

    def __init__(self, members: Sequence[_Member], shared: _SharedBits, *, together: bool) -> None:
        self._together = together
        self._places = {one.query.name: shared.places(one.bits) for one in members}
        first = members[0]
        slacks = isinstance(first.disorder.value, KSlack) and first.ordering[1]
        by_slack: dict[int, list[_Member]] = {}
        for member in members:
            by_slack.setdefault(member.disorder["slack"] if slacks else 0, []).append(member)
        self._links = [by_slack[slack] for slack in sorted(by_slack)]
        schema = pa.schema([*first.whole.schema, *shared.fields, EVENT_ID])
        chained = [link[0].disorder for link in self._links]
        bound = first.whole.bound
        self.order: Order | SlackChain = (
            SlackChain(bound, chained, schema)
            if len(chained) > 1
            else make_order(bound, chained[0], schema, first.whole.sources)
        )
        self.waits = Waits(len(first.whole.sources or ()))
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

    def release(self, stimulus: Stimulus) -> list[ReleasedEvents]:
        """Let the order take what happened; after an error nothing is taken."""
        self.waits.begin(self.order)
        match stimulus:
            case EventsArrived():
                released = self.order.push(stimulus)
            case TimeTold():
                released = self.order.tell(stimulus.watermark, stimulus.source, stimulus.arrival)
            case TimerFired():
                released = self.order.fire(stimulus.at)
            case SourceEnded():
                released = self.order.finish(stimulus.source)
            case ClockExchange():
                assert isinstance(self.order, Order), "sources that have clocks share no chain"
                released = self.order.compare_clocks(stimulus)
        return released if isinstance(released, list) else [released]

    def pass_on(
        self, links: list[ReleasedEvents], step: GroupStep, failed: Failures, *, ended: bool
    ) -> None:
        """Let the queries take what was released, and note what each gives, or its error."""
        released = links[-1].rows.num_rows
        self.released += released
        self.waits.note(self.order, released, last=ended)
        for link, events in zip(self._links, links, strict=True):
            rows = _SharedRows(as_table(events.rows))
            aside = []
            for kind, table in ((Aside.LATE, events.late), (Aside.INVALID, links[0].invalid)):
                if table is not None and table.num_rows:
                    step.take_ids(kind, table)
                    aside.append(SetAside(kind, _without_added(table, self._shown)))
            for member in (one for one in link if one.query.name not in failed):
                with _noted(member.query, failed, together=self._together):
                    emit = self._member_step(member, rows, events.watermark, ended=ended)
                    step.take(member.query.name, [*aside, emit])

    def _member_step(
        self,
        member: _Member,
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
        return State({}, parts={"order": self.order.state(), **_states(self.operators, failed)})

    def restore(self, state: State, failed: Failures) -> None:
        """Go on from what `state` returned."""
        self.order.restore(state.part("order"))
        _restore_each(self.operators, state, failed)


class GroupOperator(Stateful):
    """The operators of several queries over one stream.

    Parameters
    ----------
    spec
        What they do.
    place
        Which one it is, where each of several has events of its own.
    """

    CHANGED = ("_ids", "_orders", "_alone", "failed")

    def __init__(self, spec: GroupSpec, place: int = 0) -> None:
        self._spec = spec
        self._names = [query.name for query in spec.queries]
        members = [_Member(one) for one in spec.operators if _shares(one.query)]
        self._shared = _SharedBits(members)
        agreeing: dict[tuple[object, ...], list[_Member]] = {}
        for member in members:
            agreeing.setdefault(member.ordering, []).append(member)
        self._orders = [
            _SharedOrder(one, self._shared, together=spec.together) for one in agreeing.values()
        ]
        self._ids = EventIds(spec.sources, place)
        self._alone: dict[str, WholeOperator] = {}
        for one in (operator for operator in spec.operators if not _shares(operator.query)):
            with told_of(one.query):
                self._alone[one.query.name] = WholeOperator(one, place)
        #: How the events of each query are brought into order, with all settings.
        self._orderings = [
            None if one.disorder is None else one.disorder.given for one in spec.operators
        ]
        #: How many events came late, by source.
        self._late: Counter[str | None] = Counter()
        self._lost = False
        #: Why queries have failed, by their names: they take no more, and the others go on.
        self.failed: Failures = {}

    @property
    def operators(self) -> list[WholeOperator]:
        """The operators of all queries."""
        shared = (one for order in self._orders for one in order.operators.values())
        return [*shared, *self._alone.values()]

    def lines(self) -> list[str]:
        """Return what `explain()` shows: what the queries share."""
        alone = [f"with an order of its own: {listed_names([*self._alone])}"] * bool(self._alone)
        asked, computed = self._shared.asked, len(self._shared.predicates)
        return [
            *(line for order in self._orders for line in order.lines()),
            *alone,
            f"conditions on single rows: {asked}, of which {computed} are computed",
        ]

    @property
    def arrived(self) -> int:
        """How many events have had their turn; of several orders that counts which let most go."""
        alone = (one.front.arrived for one in self._alone.values())
        return max([*(order.released for order in self._orders), *alone])

    @property
    def waits(self) -> JoinedWaits:
        """How long events wait for their turn."""
        alone = (one.front.waits for one in self._alone.values())
        return JoinedWaits([*(order.waits for order in self._orders), *alone])

    def counters(self) -> FrontCounters:
        """Return what there was, and what waits."""
        instances = [one.instance for one in self.operators]
        opened = sum(one.open_windows for one in instances)
        keys = max(one.partitions_kept for one in instances)
        order = self.order_counters()
        return FrontCounters(self.arrived, self.arrived, opened, keys, order, (0,), (0,))

    def order_counters(self, source: str | None = None) -> OrderCounters:
        """Return how it goes with the order of all events, or of those of a source.

        Where there are several orders, those that wait count in each, and else the greatest counts.
        """
        each = [order.waits.counters(order.order, source) for order in self._orders]
        each += [one.front.order_counters(source) for one in self._alone.values()]
        alone = source is None or self._spec.sources is None
        late = sum(self._late.values()) if alone else self._late[source]
        return replace(OrderCounters.joined(each), late=late)

    @property
    def timer(self) -> int | None:
        """When `TimerFired` is due; None where never."""
        timers = [one.order.timer for one in self._orders]
        going = (one for name, one in self._alone.items() if name not in self.failed)
        timers += [one.front.timer for one in going]
        return min((one for one in timers if one is not None), default=None)

    @property
    def holding(self) -> str | None:
        """The source that others wait for; None where there is one, or all have finished."""
        found = [one.holding for one in self._source_orders]
        found += [one.front.holding for one in self._alone.values()]
        return next((one for one in found if one is not None), None)

    def wants(self, source: str) -> bool:
        """Say whether a source may go on; one that is too far ahead of the others must wait."""
        found = [one.wants(source) for one in self._source_orders]
        return all([*found, *(one.front.wants(source) for one in self._alone.values())])

    def clock_of(self, source: str) -> ClockReading | None:
        """Return what is known of the clock of a source; None where nothing is."""
        found = [one.clock_of(source) for one in self._source_orders]
        found += [one.front.clock_of(source) for one in self._alone.values()]
        return next((one for one in found if one is not None), None)

    @property
    def _source_orders(self) -> list[Order]:
        """The orders that queries share, but for chains, which know no sources."""
        return [one.order for one in self._orders if isinstance(one.order, Order)]

    def step(self, stimulus: Stimulus) -> GroupStep:
        """Take what happened and return what the queries give that have not `failed`.

        After an error in the order of the rows, or of a condition on single ones, nothing is taken.
        A query that fails later takes no more, and the others go on, unless all end together; the
        error of the last one is raised.
        """
        if self._lost or len(self.failed) == len(self._names):
            raise DataError("an earlier push failed", hint="resume the group from a saved state")
        shared = stimulus
        if isinstance(stimulus, EventsArrived) and self._orders:
            rows = self._shared.added(stimulus.rows)
            shared = replace(stimulus, rows=self._ids.give(rows, stimulus.source))
        before = [one.order.snapshot() for one in self._orders]
        try:
            released = [one.release(shared) for one in self._orders]
        except BaseException:
            for one, was in zip(self._orders, before, strict=True):
                one.order = was
            raise
        self._lost = True
        ended = isinstance(stimulus, SourceEnded) and stimulus.source is None
        given = GroupStep()
        for order, links in zip(self._orders, released, strict=True):
            order.pass_on(links, given, self.failed, ended=ended)
        for name, operator in self._alone.items():
            if name not in self.failed:
                with _noted(operator.spec.query, self.failed, together=self._spec.together):
                    given.take(name, operator.step(stimulus))
        if isinstance(stimulus, EventsArrived):
            self._ids.accept(stimulus.source, stimulus.rows)
            self._late = self._late + Counter({stimulus.source: given.count(Aside.LATE)})
        self._lost = False
        if not given.emits:
            raise next(reversed(self.failed.values()))
        given.emits = {name: given.emits[name] for name in self._names if name in given.emits}
        return given

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        if self._lost:
            raise DataError("an earlier push failed", hint="resume the group from a saved state")
        orders = enumerate(self._orders)
        parts = {f"order {number}": one.state(self.failed) for number, one in orders}
        parts |= _states(self._alone, self.failed)
        failed = [[name, str(error)] for name, error in self.failed.items()]
        numbers: dict[str, object] = {
            "queries": self._names,
            "orders": self._orderings,
            "failed": failed,
        }
        return State(numbers, parts={"ids": self._ids.state(), **parts})

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process."""
        if state.numbers.get("queries") != self._names:
            raise StateError(
                "the saved state belongs to other queries",
                detail=f"saved {state.numbers.get('queries')}, now {self._names}",
            )
        saved = state.numbers.get("orders")
        require(isinstance(saved, list) and len(saved) == len(self._names), "orders are missing")
        assert isinstance(saved, list)
        for name, before, now in zip(self._names, saved, self._orderings, strict=True):
            if before != now:
                raise StateError(
                    f"the events of '{name}' were brought into order in another way",
                    detail=f"saved by {before}, now {now}",
                    hint="go on with the disorder that it was started with, or start from the"
                    " input",
                )
        failed = self._failed_before(state.numbers.get("failed"))
        self._ids.restore(state.part("ids"))
        for number, order in enumerate(self._orders):
            order.restore(state.part(f"order {number}"), failed)
        _restore_each(self._alone, state, failed)
        self.failed = failed

    def _failed_before(self, saved: object) -> Failures:
        """Return the queries that had failed when a state was saved."""
        require(isinstance(saved, list), "nobody knows which queries failed")
        assert isinstance(saved, list)
        pairs = [tuple(one) for one in saved if isinstance(one, list)]
        fits = all(len(one) == 2 and one[0] in self._names for one in pairs)
        require(fits and len(pairs) == len(saved), "a query that failed is unknown")
        return {
            name: DataError("the query failed before the state was saved", detail=str(said))
            for name, said in pairs
        }


@contextmanager
def _noted(query: Query, failed: Failures, *, together: bool) -> Iterator[None]:
    """Note the error of a query, which is its own, in place of raising it.

    A lack of memory is nobody's own, and where all end together no error is.
    """
    try:
        with told_of(query):
            yield
    except Exception as error:
        if together or isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
            raise
        failed[query.name] = error


def _states(operators: Mapping[str, WholeOperator], failed: Failures) -> dict[str, State]:
    """Return the states of operators that have not failed, as parts of another."""
    return {f"of {name}": one.state() for name, one in operators.items() if name not in failed}


def _restore_each(operators: Mapping[str, WholeOperator], state: State, failed: Failures) -> None:
    for name, operator in operators.items():
        if name not in failed:
            operator.restore(state.part(f"of {name}"))


def _shares(query: Query) -> bool:
    """Say whether a query can share its order: its operator needs nothing but rows in order."""
    disorder = query.order_of_arrival
    return (
        query.operator is None
        and disorder is not None
        and not query.corrects
        and not disorder.filters
    )


def _nothing_found(spec: OperatorSpec) -> Emit:
    """Return what an operator without windows gives where nothing became final."""
    assert spec.task is not None
    timed_out = timed_out_schema(spec.task).empty_table()
    return Emit(WindowMatches.none(spec.bound.output), timed_out, int(NO_TIME))


def _one_emit(instructions: Sequence[Instruction]) -> Emit:
    """Return what an operator gave in several steps as one."""
    emits = [one for one in instructions if isinstance(one, Emit)]
    if len(emits) == 1:
        return emits[0]
    matches = WindowMatches.joined(emits[0].matches.table.schema, [one.matches for one in emits])
    timed_out = pa.concat_tables([one.timed_out for one in emits])
    return Emit(matches, timed_out, emits[-1].watermark)


def _without_added(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return events as they came; invalid ones have their reason first."""
    first = [name for name in rows.column_names[:1] if name not in names]
    return rows.select([*first, *names])
