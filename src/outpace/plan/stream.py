"""How a query runs on a stream of micro-batches: what crosses, how it is packed, which stages.

A query with keys is divided by key: each instance of one stage orders, splits and matches the
events of its keys, unless what brings them into order needs those of all keys. A query without keys
and with one instance has one such instance. Windows without keys that several instances match, and
windows whose numbers count the events of all keys, take three stages: one instance orders and
splits, several match, one merges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial

import pyarrow as pa

from outpace.engine.match.bits import BITS, BitTask
from outpace.engine.match.contract import Task
from outpace.engine.match.output import timed_out_schema
from outpace.engine.match.task import fingerprint, kept_columns, prepare
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.contract import REASON
from outpace.engine.packing import CORRUPT, Packing
from outpace.engine.stage import StagePart, StageSpec
from outpace.errors import BindError, UnsupportedError
from outpace.pattern.bind.disorder import SOURCE, BoundDisorder, bind_disorder
from outpace.pattern.bind.query import bind_operator
from outpace.pattern.bind.windows import ByTime, bind_windows
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import Invalid, Late
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.query import Query, RowsPerMatch
from outpace.pattern.types import is_string, type_name, value_type
from outpace.plan.crossing import Crossing, computed_by_catalyst
from outpace.plan.windows import shows_first_window


@dataclass(frozen=True)
class StreamLayout:
    """What the events of a query look like on their way.

    Parameters
    ----------
    bound
        The user's query.
    task
        The query that Python runs, which reads bits where there are any; None for a user-defined
        operator.
    bits, computed
        What computes the bits, if there are any: in Python, and in Catalyst.
    disorder
        How far events are out of order.
    columns
        The columns that travel.
    drop
        Whether rows without any bit are left out.
    sources
        The identifiers of several sources, in their order; None where there is one.
    """

    bound: BoundQuery
    task: Task | None
    bits: BitTask | None
    computed: tuple[tuple[str, str], ...]
    disorder: BoundDisorder
    columns: tuple[str, ...]
    drop: bool
    sources: tuple[str, ...] | None = None

    @property
    def events(self) -> pa.Schema:
        """The columns of the events that travel."""
        known = self.bound.schema if self.task is None else self.task.bound.schema
        return pa.schema([known.field(name) for name in self.columns])

    @property
    def identity(self) -> str:
        """What tells the states of different queries apart; operators of users count by name."""
        query = self.bound.query
        if query.operator is None:
            assert self.task is not None
            read = fingerprint(self.task.bound)
        else:
            make = query.operator
            kind = make if isinstance(make, type) else type(make())
            read = f"{kind.__module__}.{kind.__qualname__}"
        sources = "" if self.sources is None else f" sources={self.sources}"
        return f"{read} {query.name} {self.events}{sources}"


@dataclass(frozen=True, kw_only=True)
class StreamPlan(Crossing):
    """What a query does on a stream.

    Parameters
    ----------
    bound, computed, columns, drop_unused
        The user's query, and what crosses.
    layout
        What events look like on their way.
    packing
        How rows are packed.
    stages
        The stages, in order.
    timeouts
        Whether partial matches that WITHIN ended come out as well.
    """

    layout: StreamLayout
    packing: Packing
    stages: tuple[StageSpec, ...]
    timeouts: bool

    @property
    def timed_out(self) -> pa.Schema:
        """The columns of partial matches that timed out; none where they are not kept."""
        task = self.layout.task
        return pa.schema([]) if task is None or not self.timeouts else timed_out_schema(task)

    @property
    def invalid(self) -> pa.Schema:
        """The columns of events that cannot be used; `late` ones have those of the input."""
        return pa.schema([pa.field(REASON, pa.string()), *self.bound.schema])

    def shows_time_in(self, column: str) -> bool:
        """Say whether a column of the matches holds the time of an event of the match."""
        return self.stages[0].operator().shows_time_in(column)

    def tells_time_in(self, column: str) -> bool:
        """Say whether the stages know how far time has come in a column of the matches.

        They do where it holds the time of an event of the match, and where no match may start any
        time ago.
        """
        return self.shows_time_in(column) and self.stages[0].operator().reach is not None

    def lines(self) -> list[str]:
        r"""Return what `explain()` shows of the plan.

        Examples
        --------
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
        return ["on Spark, as a stream", *(f"  {line}" for line in self._lines())]

    def _lines(self) -> list[str]:
        layout = self.layout
        disorder = layout.disorder
        named = ", ".join(map(print_name, filter(self.bound.schema.names.count, layout.columns)))
        bits = " and bits" if layout.bits is not None else ""
        dropped = "; rows that fit no condition only tell the time" if self.packing.drop else ""
        lines = [*self.crossing_lines(), f"1. pack: blocks of {named}{bits}{dropped}"]
        keyed = ", by key" if self.bound.partition_by and len(self.stages) == 1 else ""
        for place, spec in enumerate(self.stages, 2):
            many = f"{spec.instances} instances{keyed}" if spec.instances > 1 else "1 instance"
            lines.append(f"{place}. {spec.name}: {many}")
        late = {
            Late.DROP: "dropped and counted",
            Late.PASS: "passed on as if they happened at the watermark",
            Late.SIDE: "sent to the side output",
        }
        invalid = {Invalid.FAIL: "an error", Invalid.QUARANTINE: "sent to the side output"}
        return [
            *lines,
            f"order: {_of_sources(layout.sources)}{disorder!s}",
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
) -> StreamPlan:
    """Plan a query over a stream with rows of a schema.

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
    >>> [(spec.name, spec.instances) for spec in plan.stages]
    [('order + split', 1), ('match', 4), ('merge', 1)]
    """
    layout = lay_out(query, schema, timeouts=timeouts, sources=sources)
    bound, disorder = layout.bound, layout.disorder
    stages = _stages(query, schema, layout, partitions, timeouts=timeouts)
    packing = Packing(
        schema=schema,
        columns=layout.columns,
        keys=bound.partition_by,
        time=disorder.time,
        instances=stages[0].instances,
        bits=layout.bits,
        drop=layout.drop,
        quarantine=disorder.invalid is Invalid.QUARANTINE,
        ahead=disorder.ahead,
        told=disorder.told,
        sources=sources,
    )
    columns = [name for name in layout.columns if name in schema.names]
    packed = [*([] if sources is None else [SOURCE]), CORRUPT]
    return StreamPlan(
        bound=bound,
        computed=layout.computed,
        columns=(*columns, *(n for n in packed if n in schema.names and n not in columns)),
        # Time passes with events that no step can use, so they cross and are left out after.
        drop_unused=False,
        layout=layout,
        packing=packing,
        stages=stages,
        timeouts=timeouts,
    )


@lru_cache(maxsize=64)
def lay_out(
    query: Query,
    schema: pa.Schema,
    *,
    timeouts: bool = False,
    sources: tuple[str, ...] | None = None,
) -> StreamLayout:
    """Decide what travels; a task that has seen the query before knows it still."""
    _check(query, timeouts=timeouts)
    disorder = bind_disorder(query, schema)
    if sources is not None:
        _check_source(schema)
        # Who sent an event is known by its cell, and breaks ties without a column.
        ties = tuple(name for name in disorder.ties if name != SOURCE)
        disorder = replace(disorder, ties=ties)
    windows = None if query.windows is None else bind_windows(query, schema)
    side = disorder.late is Late.SIDE or disorder.invalid is Invalid.QUARANTINE
    if query.operator is not None:
        bound = bind_operator(query, schema)
        names = tuple(schema.names)
        return StreamLayout(bound, None, None, (), disorder, names, drop=False, sources=sources)
    task = prepare(query, schema, timeouts=timeouts)
    bits, computed = computed_by_catalyst(task)
    known = bits.task.bound.schema
    split = () if windows is None else windows.columns
    wanted = {*kept_columns(bits.task, known), *split, *disorder.columns}
    names = tuple(
        name for name in known.names if name in wanted or (side and not name.startswith(BITS))
    )
    timed = windows is None or (
        isinstance(windows.kind, ByTime) and not shows_first_window(task.bound)
    )
    return StreamLayout(
        bound=task.bound,
        task=bits.task,
        bits=bits if bits.predicates else None,
        computed=computed,
        disorder=disorder,
        columns=names,
        # Events that are set aside, refused for their time, or decide are wanted as they are.
        drop=bits.drop_unused
        and timed
        and disorder.value.divisible
        and disorder.late is not Late.SIDE
        and disorder.ahead is None,
        sources=sources,
    )


@lru_cache(maxsize=64)
def operator_of(
    query: Query,
    schema: pa.Schema,
    count: int | None,
    sources: tuple[str, ...] | None,
    *,
    timeouts: bool = False,
) -> OperatorSpec:
    """Return the operator, with so many instances that share its windows, or one that has all.

    A process that has made it before has it still, with what is compiled.
    """
    layout = lay_out(query, schema, timeouts=timeouts, sources=sources)
    return OperatorSpec(
        query,
        layout.events,
        layout.task,
        layout.disorder,
        sources,
        instances=count,
        timeouts=timeouts,
        forgets=True,
    )


def _check(query: Query, *, timeouts: bool) -> None:
    if query.rows is RowsPerMatch.ALL_WITH_UNMATCHED:
        raise UnsupportedError(
            "a stream cannot return unmatched rows",
            hint="use ALL ROWS PER MATCH without WITH UNMATCHED ROWS, or match a whole table",
        )
    if timeouts and (query.windows is not None or query.operator is not None):
        raise UnsupportedError("only patterns without windows have partial matches that time out")


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


def _of_sources(sources: tuple[str, ...] | None) -> str:
    if sources is None:
        return ""
    return f"of {len(sources)} source{'s' * (len(sources) != 1)}, each by itself: "


def _stages(
    query: Query, schema: pa.Schema, layout: StreamLayout, partitions: int, *, timeouts: bool
) -> tuple[StageSpec, ...]:
    # What decides from all events has them in one place, whatever their keys.
    divided = layout.disorder.value.divisible
    keyed = bool(layout.bound.partition_by) and divided
    count = query.instance_count if query.instance_count > 1 or not keyed else partitions
    numbered = query.windows is not None and query.numbered and bool(layout.bound.partition_by)
    if query.windows is not None and (numbered or (not keyed and count > 1)):
        make = partial(operator_of, query, schema, count, layout.sources)
        # What the one instance of a stage keeps depends on how many there are beside it.
        identity = f"{layout.identity} instances={count}"
        return (
            StageSpec(StagePart.FRONT, 1, make, identity),
            StageSpec(StagePart.INSTANCE, count, make, identity),
            StageSpec(StagePart.BACK, 1, make, identity),
        )
    make = partial(operator_of, query, schema, None, layout.sources, timeouts=timeouts)
    return (StageSpec(StagePart.WHOLE, count if keyed else 1, make, layout.identity),)
