"""How several queries run on one stream of micro-batches: one stage orders and matches for all.

Queries that agree on the key, on the time, and on a disorder that can be brought about apart are
divided by key, as one of them would be; others have all events in one place. Conditions are
computed there, each once: Catalyst computes none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from outpace.engine.group_spec import GroupSpec
from outpace.engine.match.task import kept_columns
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.packing import CORRUPT, Packing
from outpace.engine.stage import StagePart, StageSpec
from outpace.pattern.bind.check import check_streamable
from outpace.pattern.disorder import InOrder
from outpace.pattern.group import QueryGroup, told_of
from outpace.pattern.notation.print_name import print_name
from outpace.plan.crossing import Crossing
from outpace.plan.stream import check_on_spark, identity_of


@dataclass(frozen=True, kw_only=True)
class GroupPlan(Crossing):
    """What several queries do on a stream.

    Parameters
    ----------
    bound, bits, windows, computed, columns, drop_unused
        The first query, and what crosses for all.
    operators
        What they do.
    output
        The columns of what they give.
    packing, stages
        How rows are packed, and the stage.
    """

    operators: GroupSpec
    output: pa.Schema
    packing: Packing
    stages: tuple[StageSpec, ...]

    @property
    def name(self) -> str:
        """What they are called together."""
        first, *others = self.operators.queries
        return f"{first.name} and {len(others)} more" if others else first.name

    def lines(self) -> list[str]:
        r"""Return what `explain()` shows of the plan.

        Examples
        --------
        >>> from outpace.pattern.query import Query
        >>> rise = Query("rise").order_by("ts").pattern("A B").define(B="x > A.x")
        >>> queries = QueryGroup((rise, replace(rise, name="again")))
        >>> schema = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])
        >>> print("\n".join(plan_group(queries, schema, 2).lines()))
        on Spark, as a stream
          columns that cross to Python: ts, x
          1. pack: blocks of ts, x
          2. order + match of all: 1 instance
          of 2 queries, whose rows say in the column query whose they are
        """
        (stage,) = self.stages
        named = ", ".join(map(print_name, self.columns))
        keys = ", ".join(map(print_name, self.packing.keys))
        many = f"{stage.instances} instances, by {keys}" if stage.instances > 1 else "1 instance"
        return [
            "on Spark, as a stream",
            f"  columns that cross to Python: {named}",
            f"  1. pack: blocks of {named}",
            f"  2. {stage.name}: {many}",
            f"  of {len(self.operators.queries)} queries, whose rows say in the column query whose"
            " they are",
        ]


def plan_group(group: QueryGroup, schema: pa.Schema, partitions: int) -> GroupPlan:
    """Plan several queries over a stream with rows of a schema.

    Parameters
    ----------
    group, schema
        The queries, and the input's columns.
    partitions
        How many instances share the keys, where that can be.

    Raises
    ------
    BindError
        A query does not fit the schema, has no rising time to go by, or gives a column of the name
        of another, but not of its type.
    """
    queries = []
    for query in group.queries:
        with told_of(query):
            check_streamable(query)
            check_on_spark(query, alone=True)
        queries.append(query if query.order_of_arrival is not None else query.disorder(InOrder()))
    whole = GroupSpec(tuple(queries), schema, forgets=True, together=True)
    wanted = {CORRUPT}.union(*(_columns(operator) for operator in whole.operators))
    columns = tuple(name for name in schema.names if name in wanted)
    divided = _divided(whole.operators)
    events = pa.schema([schema.field(name) for name in columns])
    spec = replace(whole, schema=events, divided=divided)
    identity = "\n".join(identity_of(operator) for operator in spec.operators)
    stage = StageSpec(StagePart.GROUP, partitions if divided else 1, spec, identity)
    first = whole.operators[0]
    assert first.disorder is not None
    packing = Packing(
        schema=schema,
        columns=columns,
        keys=first.bound.partition_by if divided else (),
        instances=stage.instances,
        bits=None,
        drop=False,
        disorder=first.disorder,
        whole=not divided,
    )
    return GroupPlan(
        bound=first.bound,
        bits=None,
        windows=None,
        computed=(),
        columns=columns,
        drop_unused=False,
        operators=spec,
        output=spec.output,
        packing=packing,
        stages=(stage,),
    )


def _columns(operator: OperatorSpec) -> set[str]:
    """Return the columns that an operator reads."""
    assert operator.disorder is not None
    if operator.task is None:
        return set(operator.schema.names)
    windows = () if operator.windows is None else operator.windows.columns
    kept = kept_columns(operator.task, operator.schema)
    return {*kept, *windows, *operator.disorder.columns}


def _divided(operators: tuple[OperatorSpec, ...]) -> bool:
    """Say whether the events of different keys can be brought into order and matched apart."""

    def rule(operator: OperatorSpec) -> tuple[object, ...]:
        disorder = operator.disorder
        assert disorder is not None
        # Numbers that are shown count the windows of all keys.
        numbered = operator.windows is not None and operator.query.numbered
        apart = disorder.divisible and not numbered and bool(operator.bound.partition_by)
        shared = disorder.time, disorder.told, disorder.ahead, disorder.invalid
        return apart, operator.bound.partition_by, *shared

    first, *others = (rule(operator) for operator in operators)
    return first[0] is True and all(other == first for other in others)
