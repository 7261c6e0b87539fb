"""What is frozen of a case: what a table gives, what each step of a stream gives, and what waits.

The rows of an output are written once, and results are lists of their numbers, so that a file
shows what came out when. Large results are counted and hashed instead.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import pyarrow as pa
from parity.case import Advance, Case, Finish, Heartbeat, Push, Step

import outpace as op

Record: TypeAlias = "dict[str, Any]"

#: After how many steps a stream is saved and resumed.
SAVED_EVERY: Final = 4


class Output:
    """One output of a case: its different rows, numbered as they come, and which came where."""

    def __init__(self) -> None:
        self._columns: dict[str, str] | None = None
        self._numbers: dict[str, int] = {}
        self._table: list[int] | None = None
        self._stream: list[list[int]] = []

    def of_table(self, table: pa.Table) -> None:
        """Note what a whole table gave."""
        self._table = self._read(table)

    def of_step(self, table: pa.Table) -> None:
        """Note what the next step of a stream gave."""
        self._stream.append(self._read(table))

    def _read(self, table: pa.Table) -> list[int]:
        columns = {field.name: str(field.type) for field in table.schema}
        assert self._columns in (None, columns), f"columns change: {self._columns}, {columns}"
        self._columns = columns
        rows = zip(*(table[name].to_pylist() for name in columns), strict=True)
        texts = [text(list(row)) for row in rows] if columns else [text([])] * table.num_rows
        return [self._numbers.setdefault(each, len(self._numbers)) for each in texts]

    def written(self) -> Record:
        """Return what is frozen."""
        found: Record = {"columns": self._columns}
        found["rows"] = [json.loads(each) for each in self._numbers]
        if self._table is not None:
            found["table"] = self._table
        if self._stream:
            found["stream"] = self._stream
        return found


def text(value: object) -> str:
    """Return a value as JSON that is the same on every machine."""
    return json.dumps(value, default=_plain, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> object:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def digest(tables: Iterable[pa.Table]) -> Record:
    """Return how many rows each table has, and a hash of the values of all."""
    hashed = hashlib.sha256()
    counts = []
    columns: dict[str, str] = {}
    for table in tables:
        counts.append(table.num_rows)
        columns = {field.name: str(field.type) for field in table.schema}
        for row in zip(*(table[name].to_pylist() for name in columns), strict=True):
            hashed.update(text(list(row)).encode() + b"\n")
    return {"columns": columns, "counts": counts, "sha256": hashed.hexdigest()}


def record(case: Case) -> Record:
    """Ask a case in every way that it has, and return what is to be frozen."""
    outputs: dict[str, Output] = defaultdict(Output)
    found: Record = {}
    if case.table is not None:
        found |= _ask_table(case, case.table, outputs)
    if case.steps:
        found |= _ask_stream(case, outputs)
    written = {name: output.written() for name, output in outputs.items()}
    seen = {name: each for name, each in written.items() if each["rows"] or name == "matches"}
    return {"name": case.name, **found, **seen}


def _ask_table(case: Case, table: pa.Table, outputs: dict[str, Output]) -> Record:
    query = case.query
    matches = op.match(table, query)
    for count in case.instances:
        parallel = op.match(table, query.instances(count))
        assert parallel.equals(matches), f"{count} instances give something else"
    if times_out(case):
        outputs["timed out"].of_table(op.search(table, query).timed_out())
    if case.then is not None:
        outputs["matches"].of_table(op.match(matches, case.then))
        return {"first": digest([matches])}
    outputs["matches"].of_table(matches)
    return {} if query.operator is not None else {"count": op.search(table, query).count()}


def times_out(case: Case) -> bool:
    """Whether partial matches of a case time out."""
    query = case.query
    plain = query.windows is None and query.operator is None and case.then is None
    return plain and query.bound is not None


def _ask_stream(case: Case, outputs: dict[str, Output]) -> Record:
    """Feed a stream, which is saved now and then, and goes on from what was saved."""
    timeouts = times_out(case)
    first = next(step.rows for step in case.steps if isinstance(step, Push))
    stream = op.open(case.query, sources=case.sources, schema=first.schema, timeouts=timeouts)
    following = None if case.then is None else op.open(case.then)
    waiting = []
    for number, step in enumerate(case.steps, 1):
        saved = number % SAVED_EVERY == 0 and number < len(case.steps)
        matches = take(stream, step)
        if following is not None and case.then is not None:
            matches = following.push(matches)
            if number == len(case.steps):
                matches = pa.concat_tables([matches, following.finish()])
            elif saved:
                following = op.resume(case.then, following.state())
        outputs["matches"].of_step(matches)
        if timeouts:
            outputs["timed out"].of_step(stream.timed_out)
        if case.query.order_of_arrival is not None:
            outputs["late"].of_step(stream.late)
            outputs["invalid"].of_step(stream.invalid)
        waiting.append(stream.buffered)
        if saved:
            stream = op.resume(case.query, stream.state(), timeouts=timeouts)
    return {"waiting": waiting} if any(waiting) else {}


def take(stream: op.StreamMatcher, step: Step) -> pa.Table:
    """Feed a step to a stream."""
    match step:
        case Push(rows, source):
            return stream.push(rows, source)
        case Advance(time):
            return stream.advance(time)
        case Heartbeat(source, time):
            return stream.heartbeat(source, time)
        case Finish(source):
            return stream.finish(source)
