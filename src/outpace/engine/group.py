"""Operators of several queries that look at the same events, which are ordered once for all.

    events ──► ids, bits ──► order of all queries that agree on it ──► operators of queries
                        └──► what is shared by none: an operator with an order of its own

Queries share an order where they are sorted by the same columns and agree on all settings of
disorder but K of K-slack: different K are a chain. Those that differ in conditions on single rows
alone share an operator (`outpace.engine.alike`). The matches of each query are those that it
finds alone.

Memory: that of the operators, and of the events that wait for the largest K of each order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

import numpy as np

from outpace.engine.emission import ChangeCounters
from outpace.engine.event import EVENT_ID
from outpace.engine.front import Front, FrontCounters
from outpace.engine.group_spec import GroupSpec
from outpace.engine.intake import JoinedIntakes
from outpace.engine.message import (
    Aside,
    BatchBegun,
    EventsArrived,
    FrontMoved,
    Instruction,
    Move,
    SetAside,
    SourceEnded,
    Stimulus,
    query_of,
    refused_message,
)
from outpace.engine.operator import WholeOperator
from outpace.engine.order.contract import OrderCounters, ReleasedEvents
from outpace.engine.shared_order import (
    Failures,
    SharedOrder,
    operator_states,
    restore_operators,
    set_aside,
)
from outpace.engine.shared_rows import GroupMember, SharedBits
from outpace.engine.state import NATURAL, SavedPart, State, integer, require
from outpace.errors import DataError, StateError
from outpace.pattern.group import listed_names, naming_query
from outpace.pattern.query import Query


class GroupOperator(SavedPart):
    """The operators of several queries over one stream.

    Parameters
    ----------
    spec
        The operators of the queries.
    place
        Which one it is, where each of several has events of its own.
    """

    CHANGED = ("_orders", "_alone", "failed")
    SAME: ClassVar = {"queries": ("_names", "other queries, or to these in another order")}

    def __init__(self, spec: GroupSpec, place: int = 0) -> None:
        self._spec, self._place = spec, place
        self._names = [query.name for query in spec.queries]
        members = [GroupMember(one) for one in spec.operators if _shares(one.query)]
        self._shared = SharedBits(members)
        agreeing: dict[tuple[object, ...], list[GroupMember]] = {}
        for member in members:
            agreeing.setdefault(member.ordering, []).append(member)
        self._orders = [SharedOrder(one, self._shared, place) for one in agreeing.values()]
        self._alone: dict[str, WholeOperator] = {}
        for one in (operator for operator in spec.operators if not _shares(operator.query)):
            with naming_query(one.query):
                self._alone[one.query.name] = WholeOperator(one, place)
        #: How the events of each query are brought into order, with all settings.
        self._orderings = [
            None if one.disorder is None else one.disorder.given for one in spec.operators
        ]
        #: How many events took no part, by why; one counts once, whoever sets it aside.
        self.aside: Counter[Aside] = Counter()
        self._lost = self._ended = False
        #: Why queries have failed, by their names: they take no more, and the others go on.
        self.failed: Failures = {}

    @property
    def operators(self) -> list[WholeOperator]:
        """The operators of all queries; those that are matched as one have one."""
        shared = (one for order in self._orders for one in order.operators)
        return [*shared, *self._alone.values()]

    @property
    def alpha(self) -> float:
        """The part of K that events wait, of the query whose events go on earliest."""
        return min(one.alpha for one in self.operators)

    @property
    def changes(self) -> ChangeCounters:
        """What became of matches that may be taken back, of all queries."""
        counted = ChangeCounters()
        for one in self.operators:
            counted = counted.plus(**vars(one.changes))
        return counted

    @property
    def work(self) -> tuple[float, float]:
        """Seconds that an event takes, and a checkpoint, of the query that takes longest."""
        each = [one.work for one in self.operators]
        return max(event for event, _ in each), max(checkpoint for _, checkpoint in each)

    def lines(self) -> list[str]:
        """Return what `explain()` shows: what the queries share."""
        alone = [f"with an order of its own: {listed_names([*self._alone])}"] * bool(self._alone)
        every, computed = self._shared.conditions, len(self._shared.predicates)
        return [
            *(line for order in self._orders for line in order.lines()),
            *alone,
            f"conditions on single rows: {every}, of which {computed} are computed",
        ]

    @property
    def arrived(self) -> int:
        """How many events have had their turn; of several orders that counts which let most go."""
        alone = (one.front.arrived for one in self._alone.values())
        return max([*(order.released for order in self._orders), *alone])

    @property
    def intake(self) -> JoinedIntakes:
        """How the events of all queries that have not failed come in."""
        shared = [one.intake for one in self._orders if one.goes_on(self.failed)]
        alone = [one.front.intake for one in self._going().values()]
        return JoinedIntakes([*shared, *alone])

    def _going(self) -> dict[str, WholeOperator]:
        """Return the operators with an order of their own that have not failed, by their names."""
        return {name: one for name, one in self._alone.items() if name not in self.failed}

    def counters(self) -> FrontCounters:
        """Return what there was, and what waits."""
        instances = [one.instance for one in self.operators]
        opened = sum(one.open_windows for one in instances)
        keys = self.partitions
        return FrontCounters(self.arrived, self.arrived, opened, keys, self.order, (0,), (0,))

    @property
    def partitions(self) -> int:
        """How many partitions are known to the query that knows most."""
        alone = (one.partitions for one in self._alone.values())
        return max([*(one.partitions for one in self._orders), *alone])

    @property
    def order(self) -> OrderCounters:
        """How it goes with the order of the events; a late one counts once, whoever drops it."""
        return replace(self.intake.counters(), late=self.aside[Aside.LATE])

    @property
    def timer(self) -> int | None:
        """When `TimerFired` is due; None where never."""
        if self._ended:
            return None
        timers = [one.intake.timer for one in self._orders if one.goes_on(self.failed)]
        timers += [one.front.timer for one in self._going().values()]
        return min((one for one in timers if one is not None), default=None)

    def step(self, stimulus: Stimulus | BatchBegun) -> list[Instruction]:
        """Take what happened and return what the queries give that have not `failed`, in turn.

        After an error in the order of the rows, or of a condition on single ones, nothing is taken.
        A query that fails later takes no more, and the others go on, unless all end together; the
        error of the last one is raised.
        """
        if isinstance(stimulus, BatchBegun):
            self.intake.waits.forget()
            return []
        if self._lost or len(self.failed) == len(self._names):
            raise DataError("an earlier push failed", hint="resume the group from a saved state")
        if self._ended:
            raise DataError("the group is finished", hint="open a new one for more input")
        if not isinstance(stimulus, Stimulus):
            raise refused_message("the group", stimulus, Stimulus)
        shared = stimulus
        if isinstance(stimulus, EventsArrived) and self._orders:
            shared = replace(stimulus, rows=self._shared.added(stimulus.rows))
        going, failed, given = self._going(), dict(self.failed), list[Instruction]()
        intakes = [one.intake.snapshot() for one in self._orders]
        fronts = [one.front.snapshot() for one in going.values()]
        moves: dict[str, list[Move]] = {}
        try:
            released = [one.intake.take(shared) for one in self._orders]
            for name, operator in going.items():
                with self._noted(operator.spec.query, operator.front):
                    moves[name] = operator.front.step(stimulus)
        except BaseException:
            for one, intake in zip(self._orders, intakes, strict=True):
                one.intake = intake
            for operator, front in zip(going.values(), fronts, strict=True):
                operator.front.become(front)
            self.failed = failed
            raise
        self._lost = True
        for name, said in moves.items():
            with self._noted(going[name].spec.query):
                given += going[name].step(FrontMoved(said))
        ended = isinstance(stimulus, SourceEnded) and stimulus.source is None
        for order, events in zip(self._orders, released, strict=True):
            given += order.pass_on(events, self._noted, self.failed, ended=ended)
        self._ended = ended
        self.aside = self.aside + Counter({why: _count(why, released, given) for why in Aside})
        self._lost = False
        if not given:
            raise next(reversed(self.failed.values()))
        places = {name: place for place, name in enumerate(self._names)}
        return sorted(given, key=lambda one: places[query_of(one)])

    @contextmanager
    def _noted(self, query: Query, front: Front | None = None) -> Iterator[None]:
        """Note the error of a query, which is its own, in place of raising it.

        A lack of memory is nobody's own, and where all end together no error is. Nor is one after
        which a front has lost nothing: it refuses the rows.
        """
        try:
            with naming_query(query):
                yield
        except Exception as error:
            memory = isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError)
            refused = front is not None and not front.has_lost
            if self._spec.together or memory or refused:
                raise
            self.failed[query.name] = error

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        if self._lost:
            raise DataError("an earlier push failed", hint="resume the group from a saved state")
        orders = enumerate(self._orders)
        parts = {f"order {number}": one.state(self.failed) for number, one in orders}
        parts |= operator_states(self._alone, self.failed)
        failed = [[name, str(error)] for name, error in self.failed.items()]
        numbers = {"orders": self._orderings, "failed": failed, "ended": self._ended}
        numbers |= {why.value: self.aside[why] for why in Aside}
        return super().state().plus(State(numbers, parts=parts))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process; if it is refused, as before.

        Also one that failed goes on from there.
        """
        fresh = GroupOperator(self._spec, self._place)
        fresh._read(state)
        self.become(fresh)

    def _read(self, state: State) -> None:
        super().restore(state)
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
        for number, order in enumerate(self._orders):
            order.restore(state.part(f"order {number}"), failed)
        restore_operators(self._alone, state, failed)
        self.failed, self._ended = failed, state.numbers.get("ended") is True
        self.aside = Counter({why: integer(state.numbers, why.value, NATURAL) for why in Aside})

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


def _count(why: Aside, released: Sequence[ReleasedEvents], given: Sequence[Instruction]) -> int:
    """Return how many events take no part, of those of common orders each once.

    Of a query with an order of its own nobody knows whether its events are those of others.
    """
    tables = [link[why] for one in released for link in set_aside(one) if why in link]
    ids = [table.column(EVENT_ID.name).to_numpy() for table in tables]
    own = (len(one.rows) for one in given if isinstance(one, SetAside) and one.kind is why)
    return max(len(np.unique(np.concatenate(ids))) if ids else 0, *own, 0)


def _shares(query: Query) -> bool:
    """Say whether a query can share its order: its operator needs nothing but rows in order."""
    disorder = query.order_of_arrival
    return (
        query.operator is None
        and disorder is not None
        and not query.corrects
        and not disorder.filters
    )
