"""Several queries over one stream, as a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from outpace.errors import BindError, OutpaceError
from outpace.pattern.query import Query, checked_query


@dataclass(frozen=True)
class QueryGroup:
    """Queries that look at the same events; see `group`.

    Parameters
    ----------
    queries
        The queries, each with a name of its own.

    Examples
    --------
    >>> QueryGroup((Query("rise").pattern("A B"), Query("fall").pattern("A C"))).names
    ('rise', 'fall')
    """

    queries: tuple[Query, ...]

    def __post_init__(self) -> None:
        check_names(self.queries)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the queries, which their results come by."""
        return tuple(query.name for query in self.queries)


def check_names(queries: Sequence[Query]) -> None:
    """Refuse a group without queries, and one with two of one name."""
    if not queries:
        raise BindError("a group has one query at least", hint="write op.group(first, second)")
    for name, count in Counter(checked_query(query).name for query in queries).items():
        if count > 1:
            raise BindError(
                f"two queries of the group are named '{name}'",
                hint='results come by name: write op.Query("other")',
            )


def listed_names(names: Sequence[str]) -> str:
    """Return the names of queries for people; those of many are counted.

    Examples
    --------
    >>> listed_names(["a", "b"]), listed_names([f"q{number}" for number in range(100)])
    ('a, b', 'q0, q1, q2, q3, q4 and 95 more')
    """
    more = f" and {len(names) - 5} more" if len(names) > 6 else ""
    return ", ".join(names[: 5 if more else None]) + more


@contextmanager
def naming_query(query: Query) -> Iterator[None]:
    """Let errors say which query of a group they are of."""
    try:
        yield
    except OutpaceError as error:
        place = f"query '{query.name}'"
        error.where = place if error.where is None else f"{place}: {error.where}"
        raise


def group(*queries: Query) -> QueryGroup:
    """Put queries together that look at the same events, so that these are ordered once for all.

    Parameters
    ----------
    *queries
        The queries, each with a name of its own.

    Examples
    --------
    >>> rise = Query("rise").order_by("ts").pattern("A B").define(B="x > A.x")
    >>> group(rise, Query("fall").order_by("ts").pattern("A B").define(B="x < A.x")).names
    ('rise', 'fall')
    """
    return QueryGroup(queries)
