"""Several queries over one stream in process, fed piece by piece."""

from __future__ import annotations

import datetime
import logging
from typing import Final

import pyarrow as pa

from outpace.compiler.kernel import fitting
from outpace.engine.group import GroupOperator, GroupStep
from outpace.engine.group_spec import GroupSpec
from outpace.engine.message import (
    Aside,
    EventsArrived,
    SourceEnded,
    Stimulus,
    TimerFired,
    TimeTold,
)
from outpace.engine.order.contract import OrderCounters, with_reasons
from outpace.engine.rows.times import as_integer
from outpace.engine.state import State, reading
from outpace.errors import DataError, StateError
from outpace.hosts.background import compiled_soon
from outpace.hosts.clock import clock_time
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.pattern.disorder import Late
from outpace.pattern.group import QueryGroup
from outpace.plan.late_events import LateEvents

_LOG: Final = logging.getLogger("outpace.stream")

#: What each query gives, by its name.
Results = dict[str, pa.Table]


class GroupMatcher:
    """Queries of a group that are fed piece by piece; see `outpace.group`.

    Examples
    --------
    >>> from outpace.pattern.disorder import KSlack
    >>> from outpace.pattern.group import group
    >>> from outpace.pattern.query import Query
    >>> base = Query("rise").order_by("ts").pattern("A B").measures(at="B.ts").disorder(KSlack(1))
    >>> rise = base.define(B="x > A.x")
    >>> deep = Query("deep").order_by("ts").pattern("A").define(A="x < 0").measures(x="A.x")
    >>> matcher = GroupMatcher(group(rise, deep.disorder(KSlack(5))))
    >>> found = matcher.push({"ts": [1, 3, 2, 9], "x": [5, 6, -7, 0]})
    >>> {name: table.to_pylist() for name, table in found.items()}
    {'rise': [{'at': 3}], 'deep': [{'x': -7}]}
    """

    def __init__(self, queries: QueryGroup, *, timeouts: bool = False) -> None:
        self._group, self._timeouts = queries, timeouts
        self._operator: GroupOperator | None = None
        self._schema: pa.Schema | None = None
        self._begun = False
        disorders = {query: query.order_of_arrival for query in queries.queries}
        self._dropped = {
            query.name: LateEvents(query)
            for query, disorder in disorders.items()
            if disorder is not None and Late(disorder.late).drops
        }
        self._last = GroupStep()

    def bind(self, schema: pa.Schema) -> None:
        """Fit the queries to the input's schema; the first push does this by itself."""
        if self._begun and schema != self._schema:
            raise DataError(
                "the stream has rows of another schema already",
                hint="open another stream for rows with this schema",
            )
        if not self._begun:
            self._operator, self._schema = self._made(schema), schema

    def _made(self, schema: pa.Schema) -> GroupOperator:
        spec = GroupSpec(self._group.queries, schema, timeouts=self._timeouts, choose=compiled_soon)
        return GroupOperator(spec)

    def push(self, data: TableLike) -> Results:
        """Take the next rows and return the matches that became final, by the names of queries."""
        table = to_arrow(data, schema=self._schema)
        if self._operator is None:
            self.bind(table.schema)
        assert self._schema is not None
        if table.column_names != self._schema.names and set(self._schema.names) <= set(
            table.column_names
        ):
            table = table.select(self._schema.names)
        if not table.schema.equals(self._schema):
            raise DataError(
                "the rows have other columns than those before",
                detail=f"they have {', '.join(table.column_names)}",
                hint=f"push rows with {', '.join(self._schema.names)}, each of its type",
            )
        return self._step(EventsArrived(table, arrival=clock_time()))

    def advance(self, time: int | datetime.datetime) -> Results:
        """Promise that no later row has a time before `time`; return what became final."""
        self._bound("advance")
        columns = {q.order[0].column for q in self._group.queries if q.order}
        if len(columns) != 1:
            raise DataError(
                "the queries of the group have times in different columns",
                hint="push rows instead: each of them tells its time",
            )
        assert self._schema is not None
        kind = self._schema.field(columns.pop()).type
        return self._step(TimeTold(as_integer(time, kind)))

    def finish(self) -> Results:
        """Say that the input has ended and return the matches that became final."""
        self._bound("finish")
        return self._step(SourceEnded())

    @property
    def timer(self) -> int | None:
        """When, in microseconds of the clock, `wake` is due; None where no query asks for it."""
        return None if self._operator is None else self._operator.timer

    def wake(self) -> Results:
        """Let time pass by the clock and return what became final."""
        self._bound("wake")
        return self._step(TimerFired(clock_time()))

    @property
    def late(self) -> Results:
        """The rows that came late in the last push, by the names of queries with a disorder."""
        return self._set_aside(Aside.LATE)

    @property
    def invalid(self) -> Results:
        """The rows of the last push that cannot be used, with the reason in the first column."""
        return self._set_aside(Aside.INVALID)

    @property
    def timed_out(self) -> Results:
        """The partial matches that timed out in the last push, advance or finish."""
        return {name: emit.timed_out for name, emit in self._last.emits.items()}

    @property
    def failed(self) -> dict[str, Exception]:
        """The errors of queries that failed on a match: they give nothing more, the others do."""
        return {} if self._operator is None else dict(self._operator.failed)

    @property
    def buffered(self) -> int:
        """How many rows wait for others that may come before them, of all queries together."""
        return self.order.buffered

    @property
    def order(self) -> OrderCounters:
        """How it goes with the order of the rows, of all queries together.

        A row that several queries drop counts as late once.
        """
        return OrderCounters() if self._operator is None else self._operator.order_counters()

    def state(self) -> bytes:
        """Return everything that is kept between pushes, as bytes for `resume`."""
        if self._operator is None:
            return State({"group": True}).encode()
        assert self._schema is not None
        parts = {"operator": self._operator.state()}
        return State({"group": True}, [self._schema.empty_table()], parts).encode()

    def restore(self, state: bytes) -> None:
        """Go on from bytes that `state` returned; if they are refused, as before.

        Also a group that failed goes on from there.
        """
        saved = State.decode(state)
        if saved.numbers.get("group") is not True:
            raise StateError("the saved state belongs to one query, not to a group")
        operator, known = None, None
        if saved.tables:
            with reading():
                (schema,) = saved.tables
                known = schema.schema
                operator = self._made(known)
                operator.restore(saved.part("operator"))
        self._operator, self._schema, self._begun = operator, known, operator is not None
        self._last = GroupStep()

    @fitting()
    def _step(self, stimulus: Stimulus) -> Results:
        operator = self._bound("go on")
        before = set(operator.failed)
        found = operator.step(stimulus)
        for name in operator.failed.keys() - before:
            _LOG.error("query '%s' failed and takes no more: %s", name, operator.failed[name])
        self._begun, self._last = True, found
        for name, dropped in self._dropped.items():
            late = found.aside.get((name, Aside.LATE))
            warning = dropped.count(0 if late is None else late.num_rows)
            if warning is not None:
                _LOG.warning(warning)
        return found.matches

    def _set_aside(self, kind: Aside) -> Results:
        if self._schema is None:
            raise DataError("nothing has been pushed yet")
        nothing = self._schema.empty_table()
        none = nothing if kind is Aside.LATE else with_reasons(nothing, [])
        names = [q.name for q in self._group.queries if q.order_of_arrival is not None]
        return {name: self._last.aside.get((name, kind), none) for name in names}

    def _bound(self, action: str) -> GroupOperator:
        if self._operator is None:
            raise DataError(
                f"cannot {action} before the first push",
                hint="give the schema to open() if there may be no input",
            )
        return self._operator
