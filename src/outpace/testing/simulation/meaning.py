"""What an operator must give: windows, matches and operators of users by their definitions."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.event import Events
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.twin import TwinMatcher
from outpace.engine.message import Emit, EventsArrived, Instruction, SourceEnded, WatermarkArrived
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.times import as_integers
from outpace.engine.window_match.apply import fitted_rows
from outpace.engine.window_match.result import has_time
from outpace.pattern.bind.window_kinds import bind_windows
from outpace.pattern.operator import EventOperator
from outpace.pattern.query import Query, WithinKind
from outpace.pattern.windows import LandmarkWindows, SessionWindows, TimeWindows
from outpace.testing import oracle
from outpace.testing.simulation.queries import FLAG, FLAGS, EventRow, Holds, QueryCase
from outpace.testing.window_definition import windows_by_definition
from outpace.testing.window_matches import CutWindow, drifted_rows, windowed_matches

_MICROSECOND: Final = datetime.timedelta(microseconds=1)

Key: TypeAlias = "tuple[Any, ...]"


@dataclass(frozen=True)
class Meaning:
    """What must come out.

    Parameters
    ----------
    rows
        The result, in its order.
    timed_out
        Partial matches that time ended: key, labels and rows; None where nobody asks for them.
    """

    rows: list[EventRow]
    timed_out: list[tuple[Any, ...]] | None = None


def meaning_of(case: QueryCase, events: pa.Table, time: int, *, timeouts: bool) -> Meaning:
    """Return what a query means for events, which are in order and have ended.

    Parameters
    ----------
    case, events
        The query, and the events that take part.
    time
        How far time had come when they ended.
    timeouts
        Whether partial matches that time ended are wanted.
    """
    query = replace(
        case.query.emit("changes"), order_of_arrival=None, instance_count=1, scheduler=None
    )
    if query.operator is not None:
        return Meaning(_applied(query, events))
    if query.drift is not None:
        return Meaning(drifted_rows(query, events, cut_windows(query, events)))
    if query.windows is not None and query.uncertainty is None:
        found = windowed_matches(query, events, cut_windows(query, events))
        return Meaning([row for match in found for row in match.output])
    if case.holds is None:
        return Meaning(fed_at_once(query, events, None)[0])
    return _by_oracle(query, case.holds, events, time, timeouts=timeouts)


def fed_at_once(
    query: Query, events: pa.Table, time: int | None, *, timeouts: bool = False
) -> tuple[list[EventRow], list[EventRow]]:
    """Return what an operator gives that takes all events at once, with the plainest matcher.

    They have ended, or time has come so far. With the matches come partial matches that time ended.
    """
    query = replace(query.emit("changes"), order_of_arrival=None, instance_count=1, scheduler=None)
    # Nothing plainer knows of uncertain orders, and of joins.
    choose = TwinMatcher if query.uncertainty is None and query.join is None else choose_matcher
    operator = WholeOperator(OperatorSpec(query, events.schema, timeouts=timeouts, choose=choose))
    instructions: list[Instruction] = operator.step(EventsArrived(events))
    instructions += operator.step(SourceEnded() if time is None else WatermarkArrived(time))
    emitted = [one for one in instructions if isinstance(one, Emit)]
    matches = [row for emit in emitted for row in rows_of(emit.matches.table)]
    return matches, [row for emit in emitted for row in rows_of(emit.timed_out)]


def cut_windows(query: Query, events: pa.Table) -> list[CutWindow]:
    """Return the windows of a stream and their events, by definition."""
    partition, ordinal, arrivals = _partitions(query, events)
    bound = bind_windows(query, events.schema)
    times = np.zeros(0, np.int64)
    if bound.time is not None:
        times = np.asarray(as_integers(events[bound.time]), np.int64)
    numbered = Events(
        events,
        np.array(partition, np.int64),
        np.array(ordinal, np.int64),
        np.arange(events.num_rows),
        times,
    )
    timed = isinstance(query.windows, TimeWindows)
    found = []
    for window in windows_by_definition(bound, numbered):
        shown: list[object] = [None, None]
        if bound.time is not None:
            kind = events.schema.field(bound.time).type
            shown = [_instant(time, kind) for time in (window.start_time, window.end_time)]
        own = arrivals[window.partition][window.first : window.stop]
        found.append(
            CutWindow(
                window.partition,
                window.number,
                own,
                window.closed_at,
                shown[0],
                shown[1] if timed else None,
            )
        )
    return found


def rows_of(table: pa.Table) -> list[EventRow]:
    """Return the rows of a table."""
    found: list[EventRow] = table.to_pylist()
    return found


def _instant(time: int, kind: pa.DataType) -> object:
    return pa.scalar(time, pa.int64()).cast(kind).as_py()


def _partitions(query: Query, events: pa.Table) -> tuple[list[int], list[int], list[list[int]]]:
    """Return the partition of each event, its place in it, and the events of each partition."""
    keys: dict[Key, int] = {}
    partition: list[int] = []
    ordinal: list[int] = []
    arrivals: list[list[int]] = []
    for place, key in enumerate(_keys(query, events)):
        number = keys.setdefault(key, len(keys))
        if number == len(arrivals):
            arrivals.append([])
        partition.append(number)
        ordinal.append(len(arrivals[number]))
        arrivals[number].append(place)
    return partition, ordinal, arrivals


def _keys(query: Query, events: pa.Table) -> list[Key]:
    columns = [events[name].to_pylist() for name in query.partitions]
    return list(zip(*columns, strict=True)) if columns else [()] * events.num_rows


def _applied(query: Query, events: pa.Table) -> list[EventRow]:
    """Give each window to an operator of its own, all of its events at once."""
    windows = query if query.windows is not None else query.over(LandmarkWindows())
    assert query.operator is not None
    bound = OperatorSpec(query, events.schema).bound
    keys = _keys(query, events)
    given: list[tuple[tuple[int, int, int, int], EventRow]] = []
    times: list[int] | None = None
    if isinstance(query.windows, SessionWindows):
        times = as_integers(events[query.order[0].column]).tolist()
    for window in cut_windows(windows, events):
        rows = events.take(pa.array(window.rows, pa.int64()))
        operator = query.operator()
        output = operator.output
        last = window.rows[-1]
        # Sessions close one after the other, after their last events.
        turn = window.number if times is None else times[last]
        pieces: list[tuple[int, int, Any]] = []
        if isinstance(operator, EventOperator):
            for own, event in zip(window.rows, rows.to_pylist(), strict=True):
                one = pa.Table.from_pylist(list(operator.on_event(event) or ()), output)
                pieces.append((own, 1, one))
        else:
            pieces.append((last, 1, operator.process(rows)))
        pieces.append((window.closed_at, int(window.closed_at <= last), operator.close()))
        for event, phase, found in pieces:
            numbers: EventRow = {}
            if query.numbered:
                shown = window.start_time if has_time(bound) else None
                numbers = {"match_event": event, "window": window.number}
                numbers |= {"window_start": shown, "window_end": window.end_time}
            key = dict(zip(query.partitions, keys[window.rows[0]], strict=True))
            for row in fitted_rows(query.name, output, [found]).to_pylist():
                place = (event, phase, turn, window.rows[0])
                given.append((place, {**key, **row, **numbers}))
    return [row for _, row in sorted(given, key=lambda one: one[0])]


def _by_oracle(
    query: Query, holds: Mapping[str, Holds], events: pa.Table, time: int, *, timeouts: bool
) -> Meaning:
    rows = rows_of(events)
    times = as_integers(events[query.order[0].column]).tolist()
    _, _, arrivals = _partitions(query, events)
    found: list[EventRow] = []
    timed_out: list[tuple[Any, ...]] = []
    numbered = any(name == "n" for name, _ in query.outputs)
    for own in arrivals:
        key = {name: rows[own[0]][name] for name in query.partitions}
        question = _question(query, holds, [rows[place] for place in own])
        question = replace(question, times=[times[place] for place in own], watermark=time)
        answer = oracle.answer(question)
        for number, (_, run) in enumerate(answer.matches, 1):
            ids = [rows[own[event]]["id"] for event, _ in run]
            # An aggregate over no row is NULL.
            row = {**key, "ids": ids or None, "labels": [name for _, name in run] or None}
            row |= {"n": number} if numbered else {}
            if any(name == FLAGS for name, _ in query.outputs):
                row[FLAGS] = [rows[own[event]][FLAG] for event, _ in run] or None
            found.append(row)
        for run in answer.timed_out:
            labels, places = [name for _, name in run], [own[event] for event, _ in run]
            timed_out.append((*key.values(), labels, places))
    return Meaning(found, timed_out if timeouts else None)


def _question(
    query: Query, holds: Mapping[str, Holds], rows: Sequence[EventRow]
) -> oracle.Question:
    after = query.effective_skip
    limits = {limit.per.value: limit.count for limit in query.limits}
    assert query.tree is not None
    within, kind = None, WithinKind.FIRST_TO_LAST
    if query.bound is not None:
        kind, duration = query.bound.kind, query.bound.duration
        within = duration if isinstance(duration, int) else duration // _MICROSECOND
    return oracle.Question(
        query.tree,
        len(rows),
        lambda name, event, run: holds[name](rows, event, run),
        (),
        within,
        kind,
        query.effective_selection,
        after,
        frozenset(() if after.variable is None else (after.variable,)),
        query.consumption,
        limits.get("start"),
        limits.get("partition"),
    )
