"""Matching in process, fed piece by piece: a stream without a cluster.

Any cut of the input into pushes, with `state()` and `resume_query` anywhere between, gives the same
matches in the same order. A match is returned by the push that makes it final, not later. Events
of several sources are brought into one order first (`outpace.engine.order`), so it does not matter
either which source is pushed when. So are events that come out of order, as far as the query says
that they are (`Query.disorder`).

Matches that are pushed into another stream as they are bring with them how far time has come in
this one, since a match that ends later may become final earlier. The other stream then puts them in
order, and its own deadlines pass without another match. They bring ids too: what else is found here
does not change those of the matches that they are part of there.

What a stream takes can be recorded (`outpace.hosts.local.recording`), and replayed later.
"""

from __future__ import annotations

import datetime
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakSet

import pyarrow as pa

from outpace.engine.arrays import END_OF_TIME, NO_TIME
from outpace.engine.event import EVENT_ID
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.message import (
    Aside,
    EventsArrived,
    Instruction,
    SourceEnded,
    Stimulus,
    WatermarkArrived,
)
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.contract import with_reasons
from outpace.engine.rows.times import as_integer
from outpace.engine.state import State, reading
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import DataError, StateError
from outpace.hosts.clock import clock_time
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.hosts.local.open_stream import OpenStream
from outpace.pattern.bind.disorder import SOURCE, bind_disorder
from outpace.pattern.join import Join
from outpace.pattern.query import Query


@dataclass(frozen=True)
class _MatchOrigin:
    """What a table that a stream returned says of its matches to a stream that it is pushed into.

    Parameters
    ----------
    times
        How far time had come, by column: no later match has an event before it.
    matches
        The matches.
    gone
        Lets it be forgotten with the table.
    taken_by
        The streams that have taken the events: should they come again, they are others.
    """

    times: dict[str, int]
    matches: WindowMatches
    gone: weakref.ref[pa.Table]
    taken_by: WeakSet[StreamMatcher] = field(default_factory=WeakSet)


#: What tables say, by their identity, as a table of Arrow has no room for it. A copy, or a table
#: from a file, is just a table.
_origins: Final[dict[int, _MatchOrigin]] = {}


class StreamMatcher(OpenStream[WholeOperator, pa.Table]):
    """A query that is fed piece by piece; see `outpace.open`.

    Parameters
    ----------
    query
        The query.
    sources, timeouts, choose
        As for `outpace.open`; `choose` picks the matcher.

    Examples
    --------
    >>> rise = Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")
    >>> matcher = StreamMatcher(rise)
    >>> matcher.push({"ts": [1, 2], "x": [5, 6]}).to_pylist()
    [{'at': 2}]
    >>> matcher.finish().num_rows
    0
    """

    def __init__(
        self,
        query: Query,
        *,
        sources: Iterable[str] | None = None,
        timeouts: bool = False,
        choose: Callable[[Task], Matcher] | None = None,
    ) -> None:
        super().__init__([query], sources=sources, timeouts=timeouts, choose=choose)
        self._query = query
        #: The columns of matches that hold the time of an event, where it is known how far back.
        self._timed: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if self._operator is None:
            return f"stream of {self._query.name}: nothing pushed yet"
        kept = f"{self.rows_kept} rows kept, {self.buffered} waiting"
        return f"stream of {self._query.name}: {kept}"

    @property
    def _recorded(self) -> Query | Join:
        return self._query

    def _fit(self, schema: pa.Schema, *, brings_ids: bool = False) -> None:
        """Begin with an operator for a schema, and nothing that an earlier one had.

        Events that come with ids keep them only where that is known before the first of them.
        """
        disorder = None
        if self._query.order_of_arrival is not None:
            disorder = bind_disorder(self._query, schema)
        spec = OperatorSpec(
            self._query,
            schema,
            disorder=disorder,
            sources=self._identifiers,
            timeouts=self._timeouts,
            brings_ids=brings_ids,
            choose=self._choose,
        )
        operator = self._make(spec)
        if spec.reach is not None:
            self._timed = tuple(filter(spec.shows_time_in, spec.bound.output.names))
        self._operator, self._schema = operator, schema

    def _make(self, spec: OperatorSpec) -> WholeOperator:
        """Return the operator that takes the events."""
        return WholeOperator(spec)

    def push(self, data: TableLike, source: str | None = None) -> pa.Table:
        """Take the next rows and return the matches that became final.

        Parameters
        ----------
        data
            The rows, in event order, or as far out of it as the query's disorder says; of one
            source where there are several. One event may come as a dictionary of its values,
            some as a list of dictionaries.
        source
            Which one; where it is left out, a column `source` says who sent each row.
        """
        origin = _origins.get(id(data))
        table = self._rows(data, source)
        if self._operator is None:
            self.bind(table.schema)
        bound = self._bound("push").spec.bound
        if table.schema.get_field_index(EVENT_ID.name) >= 0:
            table = table.drop_columns([EVENT_ID.name])  # A column that nobody reads.
        if origin is not None and self not in origin.taken_by:
            ids = origin.matches.ids.of_rows(origin.matches.offsets)
            table = table.append_column(EVENT_ID, pa.array(ids))
        load = None if self._meter is None else self._meter.load()
        if self._identifiers is not None or source is not None:
            if source is not None or SOURCE not in table.column_names:
                self._check_source(source)
            found = self._step(EventsArrived(table, source, arrival=clock_time(), load=load))
        elif self._query.order_of_arrival is not None:
            found = self._step(EventsArrived(table, arrival=clock_time(), load=load))
        else:
            times = {} if origin is None else origin.times
            time = times.get(next(iter(bound.order_by), ""), int(NO_TIME))
            found = self._step(EventsArrived(table, watermark=time))
        if origin is not None:
            origin.taken_by.add(self)
        return found

    def _rows(self, data: TableLike, source: str | None) -> pa.Table:
        """Return what was pushed as a table."""
        return to_arrow(data, self._query, self._schema)

    def advance(self, time: int | datetime.datetime) -> pa.Table:
        """Promise that no later row has a time before `time`; return what became final.

        An earlier time than one that has passed promises nothing new, and takes nothing back.

        Parameters
        ----------
        time
            The time before which no row comes any more.
        """
        if self._identifiers is not None:
            raise DataError("time passes by source", hint="use heartbeat(source, time)")
        # Without an order nothing depends on time.
        timed = self._bound("advance").spec.bound.order_by
        watermark = as_integer(time, self._time_type()) if timed else NO_TIME
        return self._step(WatermarkArrived(watermark))

    @property
    def timed_out(self) -> pa.Table:
        """The partial matches that timed out in the last push, advance or finish."""
        if not self._emits:
            raise DataError("nothing has been pushed yet")
        return self._emits[self._query.name].timed_out

    @property
    def late(self) -> pa.Table:
        """The rows that came late in the last push, as they came, whatever becomes of them."""
        return self._set_aside(Aside.LATE)

    @property
    def invalid(self) -> pa.Table:
        """The rows of the last push that cannot be used, with the reason in the first column."""
        return self._set_aside(Aside.INVALID)

    def state(self) -> bytes:
        """Return everything that is kept between pushes, as bytes for `resume_query`."""
        header = {
            "sources": self._identifiers and list(self._identifiers),
            "disorder": self._query.order_of_arrival is not None,
        }
        if self._operator is None:
            return State(header).encode()
        assert self._schema is not None
        header["brings_ids"] = self._operator.spec.brings_ids
        operator = {"operator": self._operator.state()}
        return State(header, [self._schema.empty_table()], operator).encode()

    def _restore(self, saved: State) -> None:
        header = saved.numbers
        if "join" in header:
            raise StateError("the saved state belongs to a join", hint="resume it with its op.Join")
        if header.get("sources") != (self._identifiers and list(self._identifiers)):
            raise StateError("the saved state belongs to a stream with other sources")
        disorder = self._query.order_of_arrival is not None
        if header.get("disorder") is not disorder:
            raise StateError(
                f"the saved state belongs to a query {'without' if disorder else 'with'} disorder",
                hint="resume it with the query that it was saved from, or start from the input",
            )
        self._emits, self._aside, self._begun = {}, {}, False
        self._operator = None
        if not saved.tables:
            if self._schema is not None:
                self._fit(self._schema)
            return
        with reading():
            (schema,) = saved.tables
            self._fit(schema.schema, brings_ids=header.get("brings_ids") is True)
            self._begun = True
            assert self._operator is not None
            self._operator.restore(saved.part("operator"))

    def _instructions(self, stimulus: Stimulus) -> list[Instruction]:
        if (
            not self._begun
            and isinstance(stimulus, EventsArrived)
            and stimulus.rows.schema.get_field_index(EVENT_ID.name) >= 0
        ):
            assert self._schema is not None
            self._fit(self._schema, brings_ids=True)
        return super()._instructions(stimulus)

    def _found(self, stimulus: Stimulus) -> pa.Table:
        emit = self._emits[self._query.name]
        ended = isinstance(stimulus, SourceEnded) and stimulus.source is None
        return self._marked(emit.matches, END_OF_TIME if ended else emit.watermark)

    #: How a query says that events come out of order.
    _disorder_hint = 'write disorder(op.KSlack("2 s"))'

    def _set_aside(self, kind: Aside) -> pa.Table:
        if self._query.order_of_arrival is None:
            raise DataError("the query takes its events in order", hint=self._disorder_hint)
        if not self._emits or self._schema is None:
            raise DataError("nothing has been pushed yet")
        nothing = self._schema.empty_table()
        none = nothing if kind is Aside.LATE else with_reasons(nothing, [])
        return self._aside.get((self._query.name, kind), none)

    def _time_type(self) -> pa.DataType:
        bound = self._bound("tell the time").spec.bound
        if not bound.order_by:
            raise DataError("the query has no time", hint='write order_by("ts")')
        return bound.schema.field(bound.order_by[0]).type

    def _marked(self, matches: WindowMatches, time: int) -> pa.Table:
        """Return matches that tell a stream that they are pushed into what is known of them."""
        marked = matches.table.slice(0)  # an object of its own
        times = {} if time == NO_TIME else dict.fromkeys(self._timed, time)
        number = id(marked)
        gone = weakref.ref(marked, lambda _: _origins.pop(number, None))
        _origins[number] = _MatchOrigin(times, matches, gone)
        return marked
