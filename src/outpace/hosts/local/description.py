"""What a recording says of what it records: a query, several of them, or a join.

A query is kept as SQL. One with parts in Python has no text: it is known by its names, and has to
be given again. A join is kept as its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

from outpace.errors import OutpaceError, StateError
from outpace.pattern.argument import a_text
from outpace.pattern.checkpoints import LeastWork
from outpace.pattern.disorder import Speculative
from outpace.pattern.group import QueryGroup
from outpace.pattern.join import Join
from outpace.pattern.notation.disorder import disorder_clauses, parse_disorder
from outpace.pattern.notation.join_values import read_join, write_join
from outpace.pattern.notation.print_query import print_identity
from outpace.pattern.query import Query

#: What a stream detects that can be recorded.
Recordable: TypeAlias = Query | QueryGroup | Join


def describe(recordable: Recordable) -> dict[str, Any]:
    """Return what a recording says of what it records, as plain values.

    Examples
    --------
    >>> describe(Join(on="id", within=5, time="ts"))["join"]["within"]
    5
    """
    if isinstance(recordable, QueryGroup):
        return {"queries": [describe(query) for query in recordable.queries]}
    if isinstance(recordable, Join):
        return {"join": write_join(recordable)}
    return {
        "name": recordable.name,
        "query": _text(recordable),
        "identity": identity_of(recordable),
    }


def is_description(said: object) -> TypeGuard[Mapping[str, Any]]:
    """Say whether this is something that `describe` returns."""
    if not isinstance(said, Mapping):
        return False
    if "queries" in said:
        queries = said["queries"]
        return isinstance(queries, list) and bool(queries) and all(map(_is_query, queries))
    return isinstance(said["join"], dict) if "join" in said else _is_query(said)


def _is_query(said: object) -> bool:
    if not isinstance(said, Mapping):
        return False
    name, text, identity = (said.get(key) for key in ("name", "query", "identity"))
    return isinstance(name, str) and isinstance(text, str | None) and isinstance(identity, str)


def recall(said: Mapping[str, Any], given: Recordable | None, path: Path) -> Recordable:
    """Return what was recorded, which may have to be given.

    Parameters
    ----------
    said
        What the recording says.
    given
        The same, as the user has it; None where the recording is to tell. Of the order of events
        it may say nothing: `outpace stream` has options for that, so the recording says it.
    path
        The file that says it.
    """
    if "join" in said:
        join = read_join(said["join"])
        if given is None:
            return join
        if isinstance(given, Join) and given.disorder is None:
            given = replace(given, disorder=join.disorder)
        return _same(given, given == join, said, path)
    if "queries" in said:
        parts = said["queries"]
        if given is None:
            return QueryGroup(tuple(_query(one, path) for one in parts))
        if isinstance(given, QueryGroup) and len(given.queries) == len(parts):
            given = QueryGroup(tuple(map(_ordered, given.queries, parts)))
        same = isinstance(given, QueryGroup) and describe(given)["queries"] == parts
        return _same(given, same, said, path)
    if given is None:
        return _query(said, path)
    given = _ordered(given, said) if isinstance(given, Query) else given
    same = isinstance(given, Query) and identity_of(given) == said["identity"]
    return _same(given, same, said, path)


def _ordered(given: Query, said: Mapping[str, Any]) -> Query:
    """Return a query that says nothing of the order of events with what the recording says."""
    last = said["identity"].rpartition("\n")[2]
    if given.order_of_arrival is not None or not last.startswith("DISORDER "):
        return given
    return given.disorder(parse_disorder(last.removeprefix("DISORDER "), "the recording"))


def _same(given: Recordable, same: bool, said: Mapping[str, Any], path: Path) -> Recordable:
    if not same:
        raise StateError(
            f"the recording in '{path.parent}' is of another query",
            detail=_identities(said),
            hint="leave query out, or give the one that was recorded",
        )
    return given


def _identities(said: Mapping[str, Any]) -> str:
    if "join" in said:
        return f"a join: {said['join']}"
    parts = said.get("queries", [said])
    return "\n".join(str(one["identity"]) for one in parts)


def _query(said: Mapping[str, Any], path: Path) -> Query:
    name, text, identity = (said[key] for key in ("name", "query", "identity"))
    if text is None:
        raise StateError(
            f"the query '{name}' has parts in Python, which are not in its recording",
            detail=identity,
            hint="op.replay(path, query=...), or outpace replay --query FILE",
        )
    try:
        query = Query.from_sql(text, name=a_text(name, "the name of a query"))
    except OutpaceError as error:
        error.where = f"{path}: {error.where or 'query'}"
        raise
    if identity_of(query) != identity:
        raise StateError(f"'{path}' contradicts itself", detail="it names two queries")
    return query


def identity_of(query: Query) -> str:
    """Return what tells a query from others, also in what it does with late events.

    Where checkpoints lie changes no result, so they do not count.
    """
    disorder = query.order_of_arrival
    if isinstance(disorder, Speculative):
        query = query.disorder(replace(disorder, checkpoints=LeastWork()))
    return "\n".join([print_identity(query), *disorder_clauses(query)])


def _text(query: Query) -> str | None:
    """Return a query as SQL that reads back as the same query, where there is such a text."""
    alone = replace(query, instance_count=1, scheduler=None)
    if query.operator is not None:
        return None
    try:
        text = alone.to_sql()
        return text if Query.from_sql(text, name=query.name) == alone else None
    except OutpaceError:
        return None
