"""A query and what it reads, as a node of a graph."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.errors import BindError
from outpace.pattern.argument import a_text
from outpace.pattern.query import Query, checked_query


@dataclass(frozen=True)
class Node:
    """A query whose events are those of some sources, or the matches of other queries.

    Parameters
    ----------
    query
        The query.
    inputs
        The names of what it reads, in a graph; without any it reads all sources.

    Examples
    --------
    >>> alarm = Query("alarm").order_by("at").pattern("A B")
    >>> alarm.of("falls", "rises").inputs
    ('falls', 'rises')
    """

    query: Query
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_query(self.query)
        for name in self.inputs:
            a_text(name, "the name of an input", hint='write query.of("falls")')
            if self.inputs.count(name) > 1:
                raise BindError(
                    f"the query '{self.query.name}' reads '{name}' twice", hint="name it once"
                )
