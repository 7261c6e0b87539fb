"""What a stream says of late events that it drops: how many, and what that may mean for matches.

Whoever drops events by a setting that was never made should hear of it: a pattern with a negation
may match falsely then.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from outpace.pattern import ast
from outpace.pattern.bind.disorder import SOURCE
from outpace.pattern.disorder import Sequence
from outpace.pattern.query import Query

#: It is said again when so many times as many events came late as when it was last said.
_AGAIN: Final = 10


class LateEvents:
    """Counts the events that a query drops, or several that share what is counted.

    Examples
    --------
    >>> dropped = LateEvents(Query("alarm").pattern("A -> !B"))
    >>> print(dropped.count(1))
    query 'alarm': 1 event was late and dropped so far; with !B in the pattern, matches may be
    FALSE ALARMS. Let events wait longer with .disorder(...), or see late ones with late="side"
    >>> dropped.count(5)
    """

    def __init__(self, *queries: Query) -> None:
        first, *others = (f"'{query.name}'" for query in queries)
        self._who = f"queries {first} and {len(others)} more" if others else f"query {first}"
        joined = any(query.join is not None for query in queries)
        self._wait = "op.Join(disorder=...)" if joined else ".disorder(...)"
        trees = (query.tree for query in queries if query.tree is not None)
        nodes = (node for tree in trees for node in ast.walk(tree))
        self._negated = tuple(dict.fromkeys(n.name for n in nodes if isinstance(n, ast.Not)))
        self._numbered = any(isinstance(query.order_of_arrival, Sequence) for query in queries)
        self._count = 0
        self._last_count = 0

    def count(self, count: int, unnamed: Collection[str] = ()) -> str | None:
        """Count events; return what is to be said where that is news.

        Parameters
        ----------
        count
            How many more came late.
        unnamed
            The columns of the events, where nobody named their sources.
        """
        self._count += count
        if not count or self._count < _AGAIN * self._last_count:
            return None
        self._last_count = self._count
        events = "1 event was" if self._count == 1 else f"{self._count} events were"
        text = f"{self._who}: {events} late and dropped so far"
        if self._negated:
            names = ", ".join(f"!{name}" for name in self._negated)
            text += f"; with {names} in the pattern, matches may be FALSE ALARMS"
        if self._numbered and SOURCE in unnamed:
            text += (
                f". The events have a column '{SOURCE}', but the numbers of all count as those of"
                " one source: name the sources with sources=[...]"
            )
        return (
            f'{text}. Let events wait longer with {self._wait}, or see late ones with late="side"'
        )
