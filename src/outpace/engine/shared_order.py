"""Queries with one order of events: this order, and their operators.

events with bits ──► order of all that agree on it ──► an operator of each query
                                                   └──► one of queries that are alike

Memory: that of the order and of the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from outpace.engine.alike import AlikeQueries, keys_of
from outpace.engine.intake import Intake
from outpace.engine.message import (
    Aside,
    Emit,
    EventsArrived,
    Instruction,
    SetAside,
    SourceEnded,
    Stimulus,
)
from outpace.engine.operator import WholeOperator, emit_of, joined_emit
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.chain import SlackChain
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import ReleasedEvents
from outpace.engine.shared_rows import GroupMember, SharedBits, SharedRows
from outpace.engine.snapshot import Stateful
from outpace.engine.state import NATURAL, State, integer
from outpace.engine.window_match.result import WindowMatches
from outpace.pattern.disorder import KSlack
from outpace.pattern.group import listed_names
from outpace.pattern.query import Query

#: Why queries have failed, by their names.
Failures: TypeAlias = dict[str, Exception]


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

    CHANGED = ("intake", "_alike", "_apart")

    def __init__(self, members: Sequence[GroupMember], shared: SharedBits, place: int) -> None:
        self._shared = shared
        self._numbers = {one.query.name: shared.numbers(one.bits) for one in members}
        first = members[0]
        slacks = isinstance(first.disorder.value, KSlack) and first.ordering[1]
        by_slack: dict[int, list[GroupMember]] = {}
        for member in members:
            by_slack.setdefault(member.disorder["slack"] if slacks else 0, []).append(member)
        self._links = [by_slack[slack] for slack in sorted(by_slack)]
        whole = first.whole
        schema = pa.schema([*whole.schema, *shared.fields])
        spec = replace(whole, schema=schema)
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
        #: Queries that are matched as one, and the operators of those that are not.
        self._alike = [AlikeQueries(one, shared) for link in self._links for one in _alike(link)]
        together = {one.query.name for alike in self._alike for one in alike.members}
        self._apart = {
            one.query.name: WholeOperator(one.spec)
            for one in members
            if one.query.name not in together
        }
        #: What a query gives that has nothing to say.
        self._silent = {one.query.name: _nothing_found(one.spec) for one in members}
        self._shown = first.whole.schema.names

    @property
    def operators(self) -> list[WholeOperator]:
        """What matches, each of them one query or several."""
        return [*self._apart.values(), *(one.operator for one in self._alike)]

    @property
    def partitions(self) -> int:
        """How many partitions are known to the query that knows most."""
        alike = (one.partitions for one in self._alike)
        return max([*(one.partitions for one in self._apart.values()), *alike])

    def lines(self) -> list[str]:
        """Say which queries share the order, and how each gets its events."""
        names = listed_names([one.query.name for link in self._links for one in link])
        alike = [
            f"  matched as one: {listed_names([one.query.name for one in each.members])}"
            for each in self._alike
        ]
        if len(self._links) == 1:
            return [f"ordered once for {names}: {self._links[0][0].disorder}", *alike]
        chain = (
            f"  {link[0].disorder}: {listed_names([one.query.name for one in link])}"
            for link in self._links
        )
        return [f"ordered once for {names}, in a chain", *chain, *alike]

    def goes_on(self, failed: Failures) -> bool:
        """Say whether any of its queries has not failed."""
        return any(name not in failed for name in self._silent)

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
            rows = self._shared.released(events.rows)
            aside = [(kind, _without_added(table, self._shown)) for kind, table in found.items()]
            emits = self._steps_as_one(link, rows, events.watermark, failed, ended=ended)
            for member in (one for one in link if one.query.name not in failed):
                with noted(member.query):
                    name = member.query.name
                    if (emit := emits.get(name)) is None:
                        emit = self._member_step(member, rows, events.watermark, ended=ended)
                    given += [SetAside(name, *one) for one in aside]
                    given.append(emit)
        return given

    def _steps_as_one(
        self,
        link: Sequence[GroupMember],
        rows: SharedRows,
        watermark: int,
        failed: Failures,
        *,
        ended: bool,
    ) -> dict[str, Emit]:
        """Return what queries of a link give that are matched as one, by their names.

        After an error each of them goes its own way, and the one that it is of is found so.
        """
        emits: dict[str, Emit] = {}
        own = {one.query.name for one in link}
        for alike in [one for one in self._alike if one.members[0].query.name in own]:
            names = [one.query.name for one in alike.members]
            going = [number for number, name in enumerate(names) if name not in failed]
            try:
                found = alike.step(rows, watermark, going, ended=ended)
            except Exception:
                if alike.operator.front.has_lost:
                    raise
                self._alike.remove(alike)
                for number, state in enumerate(alike.states()):
                    if number in going:
                        self._apart[names[number]] = WholeOperator(alike.members[number].spec)
                        self._apart[names[number]].restore(state)
            else:
                emits |= {names[n]: joined_emit(one) for n, one in zip(going, found, strict=True)}
        return emits

    def _member_step(
        self,
        member: GroupMember,
        rows: SharedRows,
        watermark: int,
        *,
        ended: bool,
    ) -> Emit:
        name = member.query.name
        operator, own = self._apart[name], member.rows(rows, self._numbers[name])
        if not own.num_rows and not ended and operator.instance.is_unmoved(watermark):
            return self._silent[name]
        stimuli: list[Stimulus] = [EventsArrived(own, watermark=watermark)]
        if ended:
            stimuli.append(SourceEnded())
        return joined_emit([emit_of(operator.step(stimulus)) for stimulus in stimuli])

    def state(self, failed: Failures) -> State:
        """Return all that is kept, but for queries that failed, for `restore`."""
        parts = {"intake": self.intake.state(), **operator_states(self._apart, failed)}
        for alike in self._alike:
            for member, state in zip(alike.members, alike.states(), strict=True):
                if member.query.name not in failed:
                    parts[f"of {member.query.name}"] = state
        return State({"released": self.released}, parts=parts)

    def restore(self, state: State, failed: Failures) -> None:
        """Go on from what `state` returned."""
        self.released = integer(state.numbers, "released", NATURAL)
        self.intake.restore(state.part("intake"))
        restore_operators(self._apart, state, failed)
        for alike in self._alike:
            operators = {one.query.name: WholeOperator(one.spec) for one in alike.members}
            restore_operators(operators, state, failed)
            going = enumerate(operators.items())
            alike.restore({number: one for number, (name, one) in going if name not in failed})


def _alike(link: Sequence[GroupMember]) -> list[list[GroupMember]]:
    """Return the queries of a link that are matched as one, where there are several."""
    by_keys: dict[str, list[GroupMember]] = {}
    for member in link:
        if (keys := keys_of(member)) is not None:
            by_keys.setdefault(keys, []).append(member)
    return [one for one in by_keys.values() if len(one) > 1]


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


def _without_added(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return events as they came; invalid ones have their reason first."""
    first = [name for name in rows.column_names[:1] if name not in names]
    return rows.select([*first, *names])
