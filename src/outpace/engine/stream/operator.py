"""The operator of a query over a stream: a pattern's, a user-defined one, or one over windows.

Hosts make it here, so that the same query runs the same way wherever its stream comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.match.operator import Emitted, MatchOperator, kept_columns, prepare
from outpace.pattern.bind.windows import ByTime, bind_windows
from outpace.pattern.bound import BoundQuery, Read
from outpace.pattern.query import Query, WithinKind

if TYPE_CHECKING:
    from outpace.engine.match.apply import AppliedOperator
    from outpace.engine.window_match.operator import WindowedOperator

StreamOperator: TypeAlias = "MatchOperator | AppliedOperator | WindowedOperator"


def make_operator(
    query: Query,
    schema: pa.Schema,
    *,
    task: Task | None = None,
    timeouts: bool = False,
    forgets: bool = False,
    choose: Callable[[Task], Matcher] = lambda task: choose_matcher(task).matcher,
) -> StreamOperator:
    """Return what runs a query over a stream that comes in order.

    Parameters
    ----------
    query, schema
        The query, and the columns of its input.
    task
        The pattern as it is matched, where rows bring bits; by default that of the query.
    timeouts
        Whether partial matches that WITHIN ended are returned as well.
    forgets
        Whether windows may forget keys that have none open; see `WindowedOperator`.
    choose
        Says how a pattern is matched; by default the fastest way that covers it. A host that makes
        an operator often gives the same matcher again, which keeps what it has computed.

    Examples
    --------
    >>> query = Query().order_by("ts").pattern("A B").measures(at="B.ts")
    >>> operator = make_operator(query, pa.schema([("ts", pa.int64())]))
    >>> operator.push(pa.table({"ts": [1, 2]})).matches.to_pylist()
    [{'at': 2}]
    """
    # A query without windows is ready sooner without what windows need.
    if query.operator is not None:
        if query.windows is not None:
            from outpace.engine.window_match.operator import windowed_operator

            return windowed_operator(query, schema, forgets=forgets)
        from outpace.engine.match.apply import AppliedOperator

        return AppliedOperator(query, schema)
    task = prepare(query, schema, timeouts=timeouts) if task is None else task
    if query.windows is not None:
        from outpace.engine.window_match.matcher import WindowMatcher
        from outpace.engine.window_match.operator import WindowedOperator

        windows, instance = bind_windows(query, schema), WindowMatcher(task, choose(task))
        columns = kept_columns(task, task.bound.schema)
        return WindowedOperator(task.bound, windows, instance, columns, forgets=forgets)
    return MatchOperator(task, choose(task))


def push_until(operator: StreamOperator, rows: pa.Table, watermark: int) -> Emitted:
    """Push rows, let time pass up to a watermark, and return what became final."""
    bound = operator.bound
    if bound.within is None and bound.query.windows is None:
        watermark = int(NO_TIME)  # Time decides nothing.
    if isinstance(operator, MatchOperator):
        return operator.push(rows, watermark)
    pushed = operator.push(rows)
    return pushed if watermark == NO_TIME else joined([pushed, operator.advance(watermark)])


def joined(emitted: list[Emitted]) -> Emitted:
    """Return what became final one after the other."""
    if len(emitted) == 1:
        return emitted[0]
    return Emitted(
        pa.concat_tables([one.matches for one in emitted]),
        pa.concat_tables([one.timed_out for one in emitted]),
    )


def reach_back(operator: StreamOperator) -> int | None:
    """Return how far before the watermark the events of a later match may lie; None: any distance.

    An undecided match lies within WITHIN of the watermark, as a match that cannot go on is decided.
    In windows only their end decides, so it is their size that counts.
    """
    bound = operator.bound
    if bound.query.windows is not None:
        kind = bind_windows(bound.query, bound.schema).kind
        return kind.size if isinstance(kind, ByTime) else None
    whole = bound.query.bound is not None and bound.query.bound.kind is WithinKind.FIRST_TO_LAST
    if not isinstance(operator, MatchOperator) or not whole or operator.reach.ahead:
        return None
    return bound.within


def shows_time(bound: BoundQuery, column: str) -> bool:
    """Say whether a column of the matches holds the time of an event of the match.

    Only of such a column what is known of time says anything: a time that was computed, or that of
    an event before the match, may lie before it.
    """
    shown = {measure.name: measure.expression for measure in bound.measures}.get(column)
    if shown is None:
        return column == bound.time
    return isinstance(shown, Read) and shown.column == bound.time and shown.place.shift >= 0
