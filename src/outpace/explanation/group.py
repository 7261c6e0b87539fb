"""EXPLAIN of several queries over one stream: what they share, then each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

import pyarrow as pa

from outpace.engine.group import GroupOperator
from outpace.engine.group_spec import GroupSpec
from outpace.explanation.explain import Explanation, explain
from outpace.pattern.group import QueryGroup, told_of


@dataclass(frozen=True, repr=False)
class GroupExplanation:
    """What is known of a group; `str()` gives the text, a notebook shows it and all pictures.

    Parameters
    ----------
    queries
        The explanation of each query, by its name.
    shared
        What the queries share; empty without a schema.
    placement
        Where they run, a title and indented lines; empty in process.
    """

    queries: dict[str, Explanation]
    shared: tuple[str, ...] = ()
    placement: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    @cached_property
    def text(self) -> str:
        """The explanation as plain text."""
        count = len(self.queries)
        shared = self.shared or ("what they share is known when they meet a schema",)
        title = f"group of {count} {'query' if count == 1 else 'queries'}"
        own = "\n".join([title, *(f"  {line}" for line in shared)])
        placed = "\n".join(self.placement)
        each = [one.text for one in self.queries.values()]
        return "\n\n".join(filter(None, [own, placed, *each]))

    def _repr_html_(self) -> str:
        pictures = "".join(one.svg for one in self.queries.values())
        return f"<div>{pictures}<pre>{escape(self.text)}</pre></div>"


def explain_group(
    group: QueryGroup, schema: pa.Schema | None = None, placement: Sequence[str] = ()
) -> GroupExplanation:
    """Explain several queries, with a schema also what they share.

    Examples
    --------
    >>> from outpace.pattern.disorder import KSlack
    >>> from outpace.pattern.query import Query
    >>> low = Query("low").order_by("ts").pattern("A").define(A="x < 1").disorder(KSlack(1))
    >>> deep = Query("deep").order_by("ts").pattern("A -> B").define(A="x < 1", B="x < 0")
    >>> schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    >>> explained = explain_group(QueryGroup((low, deep.disorder(KSlack(5)))), schema)
    >>> for line in explained.shared:
    ...     print(line)
    ordered once for low, deep, in a chain
      an event waits until one is seen that is 1 later: low
      an event waits until one is seen that is 5 later: deep
    conditions on single rows: 3, of which 2 are computed
    """
    explained = {}
    for query in group.queries:
        with told_of(query):
            explained[query.name] = explain(query, schema)
    if schema is None:
        return GroupExplanation(explained)
    shared = GroupOperator(GroupSpec(group.queries, schema)).lines()
    return GroupExplanation(explained, tuple(shared), tuple(placement))
