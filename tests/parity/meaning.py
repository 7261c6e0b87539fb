"""What results must be: the oracles' answers, which are compared before anything is frozen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from parity.case import Case, Push, Row
from parity.record import Record, text

import outpace as op
from outpace.engine.event import Events
from outpace.pattern.bind.window_kinds import bind_windows
from outpace.testing import oracle
from outpace.testing.window_definition import windows_by_definition
from outpace.testing.window_matches import CutWindow, windowed_matches


def check(case: Case, record: Record) -> list[str]:
    """Compare a record with what its case means; return what it was compared with."""
    compared = []
    query, table = case.query, case.table
    if table is None or query.operator is not None or case.then is not None:
        pass
    elif query.windows is not None:
        assert _of_table(record) == [text(row) for row in _in_windows(query, table)], case.name
        compared.append("windows by definition")
    elif _is_for_oracle(query):
        _check_runs(case, table, record)
        compared.append("oracle")
    if case.steps and _takes_part(case, record) is not None:
        whole = op.match(_takes_part(case, record), query)
        whole = whole if case.then is None else op.match(whole, case.then)
        rows = (text(list(row.values())) for row in whole.to_pylist())
        assert sorted(_of_stream(record)) == sorted(rows), case.name
        compared.append("table")
    return compared


def _is_for_oracle(query: op.Query) -> bool:
    """Whether a match tells all its events, and none of its conditions is only in text."""
    told = {"ids", "labels"} <= {name for name, _ in query.outputs}
    return told and not query.subsets and "MATCH_NUMBER" not in query.to_sql()


def _of_table(record: Record, output: str = "matches") -> list[str]:
    found = record.get(output, {"rows": [], "table": []})
    return [text(found["rows"][number]) for number in found["table"]]


def _of_stream(record: Record) -> list[str]:
    found = record["matches"]
    return [text(found["rows"][number]) for step in found["stream"] for number in step]


def _takes_part(case: Case, record: Record) -> pa.Table | None:
    """Return the events of a stream that take part, None where some have other times there."""
    if case.sources is not None or case.query.order_of_arrival is None:
        return case.table
    if "'pass'" in repr(case.query.order_of_arrival):
        return None
    arrived = pa.concat_tables(step.rows for step in case.steps if isinstance(step, Push))
    aside = {
        row[list(record[output]["columns"]).index("id")]
        for output in ("late", "invalid")
        for row in record.get(output, {"rows": []})["rows"]
    }
    return arrived.filter(pa.array([row not in aside for row in arrived["id"].to_pylist()]))


def _check_runs(case: Case, table: pa.Table, record: Record) -> None:
    """Compare which events matches took, and those that time ended, with the oracle."""
    found, timed_out = [], []
    rows = _ordered(case.query, table)
    for own in _partitions(case.query, rows):
        key = [own[0][name] for name in case.query.partitions]
        answer = oracle.answer(_question(case, own, [row["ts"] for row in rows]))
        for _, run in answer.matches:
            ids, names = [own[event]["id"] for event, _ in run], [name for _, name in run]
            found.append(text([*key, ids, names]))
        for run in answer.timed_out:
            places, names = [own[event]["place"] for event, _ in run], [name for _, name in run]
            timed_out.append(text([*key, names, places]))
    # An aggregate over no row is NULL.
    given = [each.replace("null,null", "[],[]") for each in _of_table(record)]
    assert given == found, f"{case.name}: {given} for {found}"
    if case.query.bound is not None:
        keys = len(case.query.partitions)
        late = record.get("timed out", {"rows": [], "table": []})
        shown = [late["rows"][number] for number in late["table"]]
        given = [text([*row[:keys], *row[keys + 2 : keys + 4]]) for row in shown]
        assert given == timed_out, f"{case.name}: {given} for {timed_out}"


def _ordered(query: op.Query, table: pa.Table) -> list[Row]:
    """Return the rows of a table in a query's order, each with its place in the table."""
    placed = table.append_column("place", pa.array(np.arange(table.num_rows)))
    every = op.Query().order_by(*query.order).pattern("E").measures(place="E.place")
    return placed.take(op.match(placed, every)["place"]).to_pylist()


def _partitions(query: op.Query, rows: list[Row]) -> list[list[Row]]:
    parts: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault(tuple(row[name] for name in query.partitions), []).append(row)
    return list(parts.values())


def _question(case: Case, rows: Sequence[Row], times: Sequence[Any]) -> oracle.Question:
    query = case.query
    after = query.effective_skip
    limits = {limit.per.value: limit.count for limit in query.limits}
    assert query.tree is not None

    def holds(name: str, event: int, run: oracle.Run) -> bool:
        if name in case.holds:
            return case.holds[name](rows, event, run)
        return bool(rows[event]["kind"] == name.lower())

    integers = isinstance(times[0], int) if times else True
    return oracle.Question(
        query.tree,
        len(rows),
        holds,
        [row["ts"] for row in rows] if integers else [row["ts"].timestamp() for row in rows],
        _within(query),
        op.Query().within(1).bound.kind if query.bound is None else query.bound.kind,
        query.effective_selection,
        after,
        frozenset(() if after.variable is None else (after.variable,)),
        query.consumption,
        limits.get("start"),
        limits.get("partition"),
        max(times) if integers else max(times).timestamp(),
    )


def _within(query: op.Query) -> Any:
    if query.bound is None:
        return None
    duration = query.bound.duration
    return duration if isinstance(duration, int) else duration.total_seconds()


def _in_windows(query: op.Query, table: pa.Table) -> list[list[Any]]:
    """Return the matches of a table by the definitions of windows and of matches in them."""
    rows = table.to_pylist()
    keys: dict[tuple[Any, ...], list[int]] = {}
    partition, ordinal = [], []
    for place, row in enumerate(rows):
        own = keys.setdefault(tuple(row[name] for name in query.partitions), [])
        partition.append(list(keys).index(tuple(row[name] for name in query.partitions)))
        ordinal.append(len(own))
        own.append(place)
    arrivals = list(keys.values())
    times = np.array(table["ts"].cast(pa.int64()).to_numpy())
    events = Events(table, np.array(partition), np.array(ordinal), np.arange(len(rows)), times)
    kind = table.schema.field("ts").type
    timed = isinstance(query.windows, type(op.windows.time(1)))
    cut = [
        CutWindow(
            window.partition,
            window.number,
            arrivals[window.partition][window.first : window.stop],
            window.closed_at,
            pa.scalar(window.start_time, kind).as_py(),
            pa.scalar(window.end_time, kind).as_py() if timed else None,
        )
        for window in windows_by_definition(bind_windows(query, table.schema), events)
    ]
    found = windowed_matches(query, table, cut)
    return [list(row.values()) for match in found for row in match.output]
