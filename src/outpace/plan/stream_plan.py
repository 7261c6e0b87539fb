"""How a query runs on a stream of micro-batches: what crosses, how it is packed, which stages.

A query with keys is divided by key: each instance of one stage orders, splits and matches the
events of its keys, unless what brings them into order needs those of all keys. A query without keys
and with one instance has one such instance. Windows without keys that several instances match, and
windows whose numbers count the events of all keys, take three stages: one instance orders and
splits, several match, one merges.

Several queries are one stage that orders and matches for all. Those that agree on the key, on the
time, and on a disorder that can be brought about apart are divided by key, as one of them would be;
others have all events in one place. Conditions are computed there, each once: Catalyst computes
none.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from outpace.engine.group_spec import GroupSpec, check_aside
from outpace.engine.match.task import fingerprint, kept_columns
from outpace.engine.operator_spec import OperatorSpec, tells_timeouts
from outpace.engine.packing import Packing
from outpace.engine.recover.refusals import check_recoverable
from outpace.engine.stage import LogReplay, StagePart, StageSpec
from outpace.errors import BindError, Hint, UnsupportedError
from outpace.pattern.bind.check import check_streamable
from outpace.pattern.bind.disorder import (
    CLOCK,
    CLOCK_TIMES,
    SOURCE,
    BoundDisorder,
    bind_disorder,
    setting_text,
)
from outpace.pattern.bind.scope import resolve_column
from outpace.pattern.disorder import InOrder, Invalid, Late
from outpace.pattern.duration import print_duration
from outpace.pattern.group import QueryGroup, listed_names, naming_query
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.query import Query
from outpace.pattern.types import is_string, type_name, value_type
from outpace.plan.crossing import Crossing, plan_crossing
from outpace.plan.plan import Division, Plan

#: Spark's readers put the text of a record that they cannot read into a column of this name.
CORRUPT: Final = "_corrupt_record"

#: What is said where alpha follows the load.
_EARLIER: Final = "the less the stage has to do, the less events wait"


@dataclass(frozen=True)
class StageDivision(Division):
    """How a stream is divided: rows are packed for stages, which are parts of the operator.

    Parameters
    ----------
    packing
        How rows are packed, and what travels of them.
    stages
        The stages, in order, each with the operator that it is a part of; one where there are
        several queries.
    """

    packing: Packing
    stages: tuple[StageSpec, ...]

    def lines(self, plan: Plan[Any]) -> list[str]:
        """Return what `explain()` shows of a plan over a stream."""
        packing, operator = self.packing, plan.runs
        named = ", ".join(map(print_name, filter(packing.schema.names.count, packing.columns)))
        bits = " and bits" if packing.bits is not None else ""
        others = packing.deciding_columns[1:] or tuple(filter(None, [packing.disorder.weighed]))
        *first, last = ["the time", *map(print_name, others)]
        words = " and ".join(filter(None, [", ".join(first), last]))
        only = f"; rows that fit no condition only tell {words}"
        dropped = only if packing.drop else ""
        pack = f"1. pack: blocks of {named}{bits}{dropped}"
        lines = ["on Spark, as a stream", *plan.crossing.lines(), pack]
        keyed = ", by key" if packing.keys and len(self.stages) == 1 else ""
        for place, spec in enumerate(self.stages, 2):
            many = f"{spec.instances} instances{keyed}" if spec.instances > 1 else "1 instance"
            lines.append(f"{place}. {spec.name}: {many}")
        if isinstance(operator, GroupSpec):
            many = "1 query" if len(operator.queries) == 1 else f"{len(operator.queries)} queries"
            lines.append(f"of {many}, whose rows say in the column query whose they are")
            if packing.sources is not None:
                lines.append(f"order: {_of_sources(packing.sources)}as each query says")
            early = any(query.follows_load for query in operator.queries)
            return [*lines, *([_EARLIER] if early else [])]
        return [*lines, *self._order_lines(operator.query)]

    def _order_lines(self, query: Query) -> list[str]:
        packing, disorder = self.packing, self.packing.disorder
        horizon = setting_text(disorder.value.horizon)
        late = {
            Late.DROP: "dropped and counted",
            Late.PASS: "passed on as if they happened at the watermark",
            Late.SIDE: "sent to the side output",
            Late.CORRECT: f"correcting what came out up to {horizon} ago, then dropped and counted",
        }
        invalid = {Invalid.FAIL: "an error", Invalid.QUARANTINE: "sent to the side output"}
        order = [f"order: {_of_sources(packing.sources)}{disorder!s}"]
        if packing.keys and not disorder.divisible:
            order.append("events of all keys are brought into order in one place")
        patience = disorder.value.patience
        for who, span in patience if isinstance(patience, tuple) else [("a source", patience)]:
            if isinstance(span, datetime.timedelta):
                silent = f"{who} that is silent for {print_duration(span)}"
                order.append(f"{silent} holds the others back no longer")
        if disorder["flag"] is not None:
            shown = print_name(disorder["flag"])
            order.append(f"{shown} says of events whether they went on because a time was up")
        if packing.clocks:
            order.append(f"rows with a {CLOCK} compare that of their source, and are no events")
        if packing.heartbeats is not None:
            shown = print_name(packing.heartbeats)
            order.append(f"rows with {shown} tell the time of their source, and are no events")
        if query.follows_load:
            order.append(_EARLIER)
        if disorder.value.clocked:
            order.append(
                "events arrive at the time of their batch; batches run without events, too"
            )
        if self.stages[0].replay is not None:
            order.append("no state is saved but savepoints: events that are lost are read again")
        return [
            *order,
            f"late events are {late[disorder.late]}; invalid events are"
            f" {invalid[disorder.invalid]}",
        ]


def plan_stream(
    query: Query,
    schema: pa.Schema,
    partitions: int,
    *,
    timeouts: bool = False,
    sources: tuple[str, ...] | None = None,
    heartbeats: str | None = None,
    log: int | None = None,
) -> Plan[StageDivision]:
    r"""Plan a query over a stream with rows of a schema.

    Parameters
    ----------
    query
        The query.
    schema
        The input's columns.
    partitions
        How many instances share the keys where the user has not said.
    timeouts
        Whether partial matches that WITHIN ended are asked for.
    sources
        The identifiers of several sources, in their order, where the column `source` says who sent
        a row.
    heartbeats
        The column that makes a row a heartbeat of its source, or of the only one, and no event:
        where it is not NULL, no row of a later batch has a time before it.
    log
        What tells the log that the rows come from, where no state is saved but savepoints, and the
        log is read again; None where the state is saved.

    Raises
    ------
    BindError
        The query does not fit the schema, or has no rising time to go by.
    UnsupportedError
        It asks for what a stream cannot give.

    Examples
    --------
    >>> from outpace.pattern.windows import CountWindows
    >>> query = Query("q").order_by("ts").pattern("A B").over(CountWindows(100, 10)).instances(4)
    >>> plan = plan_stream(query.measures(n="COUNT(*)"), pa.schema([("ts", pa.int64())]), 2)
    >>> [(spec.name, spec.instances) for spec in plan.division.stages]
    [('order + split', 1), ('match', 4), ('merge', 1)]
    >>> query = (Query("q").partition_by("key").order_by("ts").pattern("A -> B")
    ...          .define(A="v > 1", B="v < 1").measures(at="B.ts").within(5))
    >>> schema = pa.schema([("ts", pa.int64()), ("key", pa.string()), ("v", pa.int64())])
    >>> print("\n".join(plan_stream(query, schema, 2).lines()))
    on Spark, as a stream
      computed by Catalyst: 2 conditions
        A: (`v` > 1L)
        B: (`v` < 1L)
      columns that cross to Python: ts, key, and 1 byte of bits
      rows that cross: all
      1. pack: blocks of ts, key and bits; rows that fit no condition only tell the time
      2. order + match: 2 instances, by key
      order: each batch is sorted; events before those of an earlier batch are late
      late events are dropped and counted; invalid events are an error
    """
    _check(query, timeouts=timeouts)
    disorder = bind_disorder(query, schema)
    heartbeats = _heartbeats(heartbeats, schema, [disorder])
    if sources is not None:
        _check_source(schema)
        # Who sent an event is known by its cell, and breaks ties without a column.
        disorder = replace(disorder, ties=tuple(name for name in disorder.ties if name != SOURCE))
    clocks = sources is not None and _has_clocks(schema)
    flag = disorder.flag_for(schema)
    crossing = plan_crossing(
        query,
        schema if flag is None else schema.append(flag),
        timeouts=timeouts,
        unknown=disorder.changed(clocks=clocks),
    )
    bits = crossing.bits
    known = schema if bits is None else bits.task.bound.schema
    stay = set() if _sets_aside(query) else {*schema.names} - {*crossing.columns, *disorder.columns}
    if flag is not None:
        stay.add(flag.name)  # No row brings it.
    if sources is not None and not disorder.divisible:
        stay.discard(SOURCE)  # One place brings the events of all sources into order.
    events = pa.schema([field for field in known if field.name not in stay])
    operator = OperatorSpec(
        query,
        events,
        None if bits is None else bits.task,
        disorder,
        sources,
        timeouts=timeouts,
        forgets=True,
    )
    # A savepoint knows what became of events, so all parts are in one place.
    stages = _stages(operator, partitions, whole=log is not None)
    if log is not None:
        _check_replay(operator, clocks=clocks)
    # Events that are set aside, refused for their time, or decide are wanted as they are.
    drop = (
        crossing.drop_unused
        and disorder.late not in (Late.SIDE, Late.CORRECT)
        and disorder.ahead is None
    )
    # One place brings the events of all sources into order, each by its own times.
    by_times = disorder.goes_by_times and (sources is None or disorder.divisible)
    # Those that only decide have numbers, too, which no replay may change by cutting otherwise.
    alone = drop and not by_times and operator.useful is not None and log is None
    deciding = disorder.deciding_columns if alone else ()
    if deciding and sources is not None:
        deciding = (*deciding, SOURCE)
    packing = Packing(
        schema=schema,
        columns=tuple(events.names),
        keys=operator.bound.partition_by,
        instances=stages[0].instances,
        bits=bits if bits is not None and bits.predicates else None,
        drop=drop and (by_times or bool(deciding)),
        disorder=disorder,
        sources=sources,
        clocks=clocks,
        deciding_columns=deciding,
        unread=_unread(schema),
        heartbeats=heartbeats,
    )
    if log is not None:
        stages = tuple(replace(one, replay=LogReplay(packing, log)) for one in stages)
    packed = {*events.names, CORRUPT, *([] if sources is None else [SOURCE])}
    packed.update([CLOCK] if clocks else [])
    packed.update([] if heartbeats is None else [heartbeats])
    # Time passes with events that no step can use, so they cross and are left out after.
    columns = tuple(name for name in schema.names if name in packed)
    crossing = replace(crossing, schema=schema, columns=columns, drop_unused=False)
    return Plan(stages[0].operator, crossing, StageDivision(packing, stages))


def plan_group(
    group: QueryGroup,
    schema: pa.Schema,
    partitions: int,
    *,
    timeouts: bool = False,
    sources: tuple[str, ...] | None = None,
    heartbeats: str | None = None,
) -> Plan[StageDivision]:
    """Plan several queries over a stream with rows of a schema.

    Parameters
    ----------
    group, schema
        The queries, and the input's columns.
    partitions
        How many instances share the keys, where that can be.
    timeouts
        Whether partial matches that WITHIN ended are asked for, of the queries that have any.
    sources, heartbeats
        As in `plan_stream`.

    Raises
    ------
    BindError
        A query does not fit the schema, has no rising time to go by, or gives a column of the name
        of another, but not of its type.

    Examples
    --------
    >>> rise = Query("rise").order_by("ts").pattern("A B").define(B="x > A.x")
    >>> queries = QueryGroup((rise, replace(rise, name="again")))
    >>> schema = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])
    >>> for line in plan_group(queries, schema, 2).lines()[2:]:
    ...     print(line)
      columns that cross to Python: ts, x
      rows that cross: all
      1. pack: blocks of ts, x
      2. order + match of all: 1 instance
      of 2 queries, whose rows say in the column query whose they are
    """
    queries = []
    for query in group.queries:
        with naming_query(query):
            check_streamable(query)
        queries.append(query if query.order_of_arrival is not None else query.disorder(InOrder()))
    if sources is not None:
        _check_source(schema)
    if timeouts and not any(map(tells_timeouts, queries)):
        _check(queries[0], timeouts=True)
    whole = GroupSpec(
        tuple(queries), schema, sources, timeouts=timeouts, forgets=True, together=True
    )
    clocks = sources is not None and _has_clocks(schema)
    disorders = [one.disorder for one in whole.operators if one.disorder is not None]
    heartbeats = _heartbeats(heartbeats, schema, disorders)
    if any(_sets_aside(query) for query in queries):
        # Events that are set aside are wanted as they are.
        wanted = set(schema.names)
        check_aside(schema)
    else:
        wanted = {CORRUPT}.union(*(_read_columns(operator) for operator in whole.operators))
        wanted.update(() if sources is None else [SOURCE])
    columns = tuple(name for name in schema.names if name in wanted)
    divided = _divided_by_key(whole.operators)
    events = pa.schema([schema.field(name) for name in columns])
    spec = replace(whole, schema=events, divided=divided)
    identity = "\n".join(_identity_of(operator) for operator in spec.operators)
    stage = StageSpec(StagePart.GROUP, partitions if divided else 1, spec, identity)
    # What cannot be read is an error if it is one to any of them.
    strict = (one for one in whole.operators if not _quarantines(one.query))
    first = next(strict, whole.operators[0])
    assert first.disorder is not None
    packing = Packing(
        schema=schema,
        columns=columns,
        keys=first.bound.partition_by if divided else (),
        instances=stage.instances,
        bits=None,
        drop=False,
        disorder=first.disorder,
        sources=sources,
        whole=not divided,
        unread=_unread(schema),
        clocks=clocks,
        heartbeats=heartbeats,
        queries=tuple(query.name for query in queries),
    )
    assert spec.output, "columns of one name have one type"
    packed = {*columns, *([CLOCK] if clocks else []), heartbeats}
    crossed = tuple(name for name in schema.names if name in packed)
    crossing = Crossing(schema=schema, columns=crossed)
    return Plan(spec, crossing, StageDivision(packing, (stage,)))


def check_result_alone(query: Query) -> None:
    """Refuse to put rows aside where a stream on Spark gives its result and nothing else."""
    if _sets_aside(query):
        raise UnsupportedError(
            "the stream gives its result alone, without the rows that are put aside",
            where="disorder",
            hint=Hint(
                'write late="drop", "pass" or "correct", and invalid="fail"; '
                "op.search((left, right), op.Join(...)) gives all",
                "write LATE DROP, PASS or CORRECT, and INVALID FAIL",
            ),
        )


def _sets_aside(query: Query) -> bool:
    """Say whether events that take no part in a query are shown."""
    disorder = query.order_of_arrival
    return disorder is not None and (disorder.late is Late.SIDE or _quarantines(query))


def _quarantines(query: Query) -> bool:
    """Say whether events that cannot be used are set aside."""
    disorder = query.order_of_arrival
    return disorder is not None and disorder.invalid is Invalid.QUARANTINE


def _check(query: Query, *, timeouts: bool) -> None:
    check_streamable(query)
    others = (query.windows, query.operator, query.join)
    if timeouts and any(one is not None for one in others):
        raise UnsupportedError("only patterns without windows have partial matches that time out")


def _heartbeats(
    name: str | None, schema: pa.Schema, disorders: Sequence[BoundDisorder]
) -> str | None:
    """Return the column of heartbeats as the schema spells it, or refuse one that tells no time."""
    if name is None:
        return None
    column = resolve_column(name, schema, "heartbeats")
    times = {one.time for one in disorders}
    if len(times) > 1:
        raise BindError(
            "a heartbeat tells one time, and the queries of the group go by several",
            where="heartbeats",
            detail=listed_names(sorted(times)),
            hint="order all by the same time, or match them apart",
        )
    (time,) = times
    kinds = [schema.field(one).type for one in (column, time)]
    if column == time or kinds[0] != kinds[1]:
        raise BindError(
            f"the heartbeats in '{column}' are {type_name(kinds[0])}, not {type_name(kinds[1])} "
            f"beside the time '{time}'",
            where="heartbeats",
            hint=f"name a column of the type of '{time}', which is NULL where a row is an event",
        )
    return column


def _check_replay(operator: OperatorSpec, *, clocks: bool) -> None:
    """Refuse what reading a log again cannot rebuild."""
    if clocks:
        raise UnsupportedError(
            "clocks that are compared change the times of events, which are read again as they are",
            hint=f"leave out recovery=\"replay\", or the column '{CLOCK}'",
        )
    check_recoverable(operator)


def _check_source(schema: pa.Schema) -> None:
    """Refuse rows that do not say who sent them."""
    hint = f"give the stream a column '{SOURCE}' with the identifier of who sent each row"
    if SOURCE not in schema.names:
        raise BindError(
            f"the stream of several sources has no column '{SOURCE}'",
            detail=f"it has {', '.join(schema.names)}",
            hint=hint,
        )
    kind = value_type(schema.field(SOURCE).type)
    if not is_string(kind):
        raise BindError(f"the column '{SOURCE}' has {type_name(kind)}, not text", hint=hint)


def _has_clocks(schema: pa.Schema) -> bool:
    """Say whether rows may be exchanges with the clock of their source."""
    if CLOCK not in schema.names:
        return False
    kind = schema.field(CLOCK).type
    return pa.types.is_struct(kind) and {field.name for field in kind} == {*CLOCK_TIMES}


def _unread(schema: pa.Schema) -> str | None:
    """Return the column with the text of records that a reader could not read."""
    return CORRUPT if CORRUPT in schema.names else None


def _of_sources(sources: tuple[str, ...] | None) -> str:
    if sources is None:
        return ""
    return f"of {len(sources)} source{'s' * (len(sources) != 1)}, each by itself: "


def _stages(operator: OperatorSpec, partitions: int, *, whole: bool) -> tuple[StageSpec, ...]:
    """Return the stages of an operator, whose parts may have to be in one place."""
    query, identity = operator.query, _identity_of(operator)
    by_key = bool(operator.bound.partition_by)
    assert operator.disorder is not None
    # What decides from all events has them in one place, whatever their keys.
    keyed = by_key and operator.disorder.divisible
    count = query.instance_count if query.instance_count > 1 or not keyed else partitions
    numbered = query.windows is not None and query.numbered and by_key
    apart = query.windows is not None and (numbered or (not keyed and count > 1))
    # Who follows the load has all parts beside it: of others it does not know theirs.
    if apart and not (whole or query.follows_load):
        shared = replace(operator, instances=count)
        # What the one instance of a stage keeps depends on how many there are beside it.
        identity = f"{identity} instances={count}"
        return (
            StageSpec(StagePart.FRONT, 1, shared, identity),
            StageSpec(StagePart.INSTANCE, count, shared, identity),
            StageSpec(StagePart.BACK, 1, shared, identity),
        )
    keyed = keyed and not apart
    return (StageSpec(StagePart.WHOLE, count if keyed else 1, operator, identity),)


def _identity_of(operator: OperatorSpec) -> str:
    """Return what tells the states of different queries apart; those of users count by name."""
    if operator.task is not None:
        read = fingerprint(operator.task.bound)
    else:
        make = operator.query.operator
        kind = make if isinstance(make, type) else type(make and make())
        read = f"{kind.__module__}.{kind.__qualname__}"
    sources = "" if operator.sources is None else f" sources={operator.sources}"
    return f"{read} {operator.query.name} {operator.schema}{sources}"


def _read_columns(operator: OperatorSpec) -> set[str]:
    """Return the columns that an operator reads."""
    assert operator.disorder is not None
    if operator.task is None:
        return set(operator.schema.names)
    windows = () if operator.windows is None else operator.windows.columns
    kept = kept_columns(operator.task, operator.schema)
    return {*kept, *windows, *operator.disorder.columns}


def _divided_by_key(operators: tuple[OperatorSpec, ...]) -> bool:
    """Say whether the events of different keys can be brought into order and matched apart."""

    def rule(operator: OperatorSpec) -> tuple[object, ...]:
        disorder = operator.disorder
        assert disorder is not None
        # Numbers that are shown count the windows of all keys.
        numbered = operator.windows is not None and operator.query.numbered
        apart = disorder.divisible and not numbered and bool(operator.bound.partition_by)
        shared = disorder.time, disorder.takes_watermarks, disorder.ahead, disorder.invalid
        return apart, operator.bound.partition_by, *shared

    first, *others = (rule(operator) for operator in operators)
    return first[0] is True and all(other == first for other in others)
