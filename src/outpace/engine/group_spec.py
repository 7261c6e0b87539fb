"""The specification of the operators of several queries, and their matches as one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final

import pyarrow as pa

from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.operator_spec import OperatorSpec, tells_timeouts
from outpace.errors import BindError, Hint
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.group import check_names, naming_query
from outpace.pattern.query import Query
from outpace.pattern.types import type_name

#: The column that says which query a row is of.
QUERY: Final = "query"


@dataclass(frozen=True)
class GroupSpec:
    """The specification of the operators of several queries.

    Parameters
    ----------
    queries
        The queries, each with a name of its own.
    schema
        The columns that events have when they come.
    sources, timeouts, forgets, choose
        As in `OperatorSpec`.
    divided
        Whether several instances have the events of some keys each, and are told the times of all.
    together
        Whether the error of one query ends all; else the others go on.
    """

    queries: tuple[Query, ...]
    schema: pa.Schema
    sources: tuple[str, ...] | None = None
    timeouts: bool = False
    forgets: bool = False
    choose: Callable[[Task], Matcher] = choose_matcher
    divided: bool = False
    together: bool = False

    def __post_init__(self) -> None:
        check_names(self.queries)

    def __getstate__(self) -> dict[str, object]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def operators(self) -> tuple[OperatorSpec, ...]:
        """The operator of each query, were it alone."""
        return tuple(map(self._alone, self.queries))

    def _alone(self, query: Query) -> OperatorSpec:
        with naming_query(query):
            ordered = query.order_of_arrival is None
            spec = OperatorSpec(
                query,
                self.schema,
                disorder=None if ordered else bind_disorder(query, self.schema),
                sources=self.sources,
                timeouts=self.timeouts and tells_timeouts(query),
                forgets=self.forgets,
                choose=self.choose,
            )
            assert spec.bound
            return spec

    @cached_property
    def output(self) -> pa.Schema:
        """The columns of what comes out."""
        return joined_schema({one.query.name: one.output for one in self.operators})

    @cached_property
    def timed_out(self) -> pa.Schema:
        """The columns of partial matches that WITHIN ended; none where nobody asks for them."""
        told = {one.query.name: one.timed_out for one in self.operators if one.timeouts}
        return joined_schema(told) if told else pa.schema([])

    @property
    def matcher(self) -> Matcher | None:
        """What the first query is matched with: most of what is compiled serves all."""
        return self.operators[0].matcher

    @property
    def speculates(self) -> bool:
        """Whether any of them does, and wants to know the load of the host."""
        return any(query.speculates for query in self.queries)

    @property
    def clocked(self) -> bool:
        """Whether any of them goes by the time of batches."""
        disorders = (one.disorder for one in self.operators)
        return any(one is not None and one.value.clocked for one in disorders)


def joined_schema(outputs: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of what several queries give; those of one name have one type.

    Parameters
    ----------
    outputs
        The columns of each query, by its name.

    Examples
    --------
    >>> joined_schema({"a": pa.schema({"x": pa.int64()}), "b": pa.schema({"y": pa.int64()})}).names
    ['query', 'x', 'y']
    """
    fields: dict[str, pa.Field] = {}
    owners: dict[str, str] = {}
    for name, schema in outputs.items():
        for field in schema:
            known = fields.setdefault(field.name, pa.field(field.name, field.type))
            owner = owners.setdefault(field.name, name)
            if field.name == QUERY:
                raise BindError(
                    f"the column '{QUERY}' of '{name}' hides which query a row is of",
                    hint="give it another name",
                )
            if known.type != field.type:
                raise BindError(
                    f"the column '{field.name}' has two types in the results of the group",
                    detail=f"{type_name(known.type)} in '{owner}', {type_name(field.type)} in"
                    f" '{name}'",
                    hint="give it another name in one of them, or cast it",
                )
    return pa.schema([pa.field(QUERY, pa.string()), *fields.values()])


def named_rows(rows: pa.Table, query: str) -> pa.Table:
    """Return events that take no part in a query, with its name before their columns.

    Examples
    --------
    >>> named_rows(pa.table({"ts": [5]}), "q").to_pylist()
    [{'query': 'q', 'ts': 5}]
    """
    return rows.add_column(0, pa.field(QUERY, pa.string()), pa.repeat(query, rows.num_rows))


def check_aside(schema: pa.Schema) -> None:
    """Refuse columns of events that hide which query they take no part in."""
    if QUERY in schema.names:
        raise BindError(
            f"the column '{QUERY}' of the input hides which query a row takes no part in",
            hint=Hint(
                'give it another name, or write late="drop" and invalid="fail"',
                "give it another name, or write LATE DROP and INVALID FAIL",
            ),
        )


def joined_rows(tables: Mapping[str, pa.Table], schema: pa.Schema) -> pa.Table:
    """Return what queries give as one table with the columns of all, NULL where a query has none.

    Examples
    --------
    >>> every = joined_schema({"a": pa.schema({"x": pa.int64()}), "b": pa.schema({"y": pa.int8()})})
    >>> joined_rows({"b": pa.table({"y": pa.array([7], pa.int8())})}, every).to_pylist()
    [{'query': 'b', 'x': None, 'y': 7}]
    """
    named = (rows.append_column(QUERY, pa.repeat(name, len(rows))) for name, rows in tables.items())
    return pa.concat_tables([schema.empty_table(), *named], promote_options="default")
