"""Several queries over one stream in process, fed piece by piece."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterable
from typing import Final

import pyarrow as pa

from outpace.engine.group import GroupOperator
from outpace.engine.group_spec import GroupSpec
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.message import (
    Aside,
    EventsArrived,
    Stimulus,
    WatermarkArrived,
)
from outpace.engine.order.contract import with_reasons
from outpace.engine.rows.times import as_integer
from outpace.engine.state import State, reading
from outpace.errors import DataError, StateError
from outpace.hosts.clock import clock_time
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.hosts.local.open_stream import OpenStream
from outpace.pattern.bind.disorder import SOURCE
from outpace.pattern.group import QueryGroup

_LOG: Final = logging.getLogger("outpace.stream")

#: What each query gives, by its name.
Results = dict[str, pa.Table]


class GroupMatcher(OpenStream[GroupOperator, Results]):
    """Queries of a group that are fed piece by piece; see `outpace.group`.

    Parameters
    ----------
    queries
        The queries that share the stream.
    sources, timeouts, choose
        As for `outpace.open`; `choose` picks the matcher of each query.

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

    def __init__(
        self,
        queries: QueryGroup,
        *,
        sources: Iterable[str] | None = None,
        timeouts: bool = False,
        choose: Callable[[Task], Matcher] | None = None,
    ) -> None:
        super().__init__(queries.queries, sources=sources, timeouts=timeouts, choose=choose)
        self._group = queries

    @property
    def _recorded(self) -> QueryGroup:
        return self._group

    def _fit(self, schema: pa.Schema) -> None:
        self._operator = GroupOperator(
            GroupSpec(
                self._group.queries,
                schema,
                sources=self._identifiers,
                timeouts=self._timeouts,
                choose=self._choose,
            )
        )
        self._schema = schema

    def push(self, data: TableLike, source: str | None = None) -> Results:
        """Take the next rows and return the matches that became final, by the names of queries.

        Parameters
        ----------
        data, source
            As for `StreamMatcher.push`.
        """
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
        named = self._identifiers is None or SOURCE in table.column_names
        if source is not None or not named:
            self._check_source(source)
        load = None if self._meter is None else self._meter.load()
        return self._step(EventsArrived(table, source, arrival=clock_time(), load=load))

    def advance(self, time: int | datetime.datetime) -> Results:
        """Promise that no later row has a time before `time`; return what became final.

        Parameters
        ----------
        time
            The time before which no row comes any more.
        """
        if self._identifiers is not None:
            raise DataError("time passes by source", hint="use heartbeat(source, time)")
        self._bound("advance")
        return self._step(WatermarkArrived(as_integer(time, self._time_type())))

    def _time_type(self) -> pa.DataType:
        columns = {q.order[0].column for q in self._group.queries if q.order}
        if len(columns) != 1:
            raise DataError(
                "the queries of the group have times in different columns",
                hint="push rows instead: each of them tells its time",
            )
        assert self._schema is not None
        return self._schema.field(columns.pop()).type

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
        return {name: emit.timed_out for name, emit in self._emits.items()}

    @property
    def failed(self) -> dict[str, Exception]:
        """The errors of queries that failed on a match: they give nothing more, the others do."""
        return {} if self._operator is None else dict(self._operator.failed)

    def state(self) -> bytes:
        """Return everything that is kept between pushes, as bytes for `resume`."""
        header = {"group": True, "sources": self._identifiers and list(self._identifiers)}
        if self._operator is None:
            return State(header).encode()
        assert self._schema is not None
        parts = {"operator": self._operator.state()}
        return State(header, [self._schema.empty_table()], parts).encode()

    def _restore(self, saved: State) -> None:
        if saved.numbers.get("group") is not True:
            raise StateError("the saved state belongs to one query, not to a group")
        if saved.numbers.get("sources") != (self._identifiers and list(self._identifiers)):
            raise StateError("the saved state belongs to a group with other sources")
        self._operator, self._schema = None, None
        if saved.tables:
            with reading():
                (schema,) = saved.tables
                self._fit(schema.schema)
                self._bound("go on").restore(saved.part("operator"))
        self._begun = self._operator is not None
        self._emits, self._aside = {}, {}

    def _step(self, stimulus: Stimulus) -> Results:
        operator, self._emits = self._bound("go on"), {}
        before = set(operator.failed)
        found = super()._step(stimulus)
        for name in operator.failed.keys() - before:
            _LOG.error("query '%s' failed and takes no more: %s", name, operator.failed[name])
        return found

    def _found(self, stimulus: Stimulus) -> Results:
        return {name: emit.matches.table for name, emit in self._emits.items()}

    def _set_aside(self, kind: Aside) -> Results:
        if self._schema is None:
            raise DataError("nothing has been pushed yet")
        nothing = self._schema.empty_table()
        none = nothing if kind is Aside.LATE else with_reasons(nothing, [])
        names = [q.name for q in self._group.queries if q.order_of_arrival is not None]
        return {name: self._aside.get((name, kind), none) for name in names}
