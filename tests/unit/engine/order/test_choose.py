"""A new kind of disorder is one value, one part and one word: a toy one proves it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import outpace as op
from outpace.engine.arrays import NO_TIME
from outpace.engine.message import EventsArrived
from outpace.engine.order.choose import ORDERS
from outpace.engine.order.contract import Order, Released
from outpace.engine.rows.times import as_integers
from outpace.engine.state import State, integer
from outpace.hosts.local import stream as stream_module
from outpace.ingest.source import Source
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import Disorder
from outpace.pattern.notation.disorder import KINDS

SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Patient(Disorder):
    """All events wait until as many as `events` are there, or for a second by the clock."""

    described = "events wait until {events} are there"
    events: int = 0


class PatientOrder(Order):
    """Lets go what waits when it is enough or has waited long enough, sorted by time."""

    def __init__(self, bound: BoundQuery, disorder: BoundDisorder, schema: pa.Schema) -> None:
        self._time, self._events = disorder.time, dict(disorder.settings)["events"]
        self._nothing = schema.empty_table()
        self._waiting = self._nothing
        self._watermark = int(NO_TIME)
        self._due: int | None = None

    @property
    def watermark(self) -> int:
        return self._watermark

    @property
    def buffered(self) -> int:
        return int(self._waiting.num_rows)

    @property
    def timer(self) -> int | None:
        return self._due

    def push(self, events: EventsArrived) -> Released:
        rows = events.rows.select(self._nothing.column_names)
        waiting = pa.concat_tables([self._waiting, rows])
        enough = waiting.num_rows >= self._events
        self._waiting = self._nothing if enough else waiting
        if enough or not waiting.num_rows:
            self._due = None
        elif self._due is None:
            self._due = events.arrival + SECOND
        return self._release(waiting if enough else self._nothing)

    def tell(self, time: int, source: str | None = None) -> Released:
        return self._release(self._nothing)

    def fire(self, at: int) -> Released:
        if self._due is None or at < self._due:
            return self._release(self._nothing)
        return self.finish()

    def finish(self, source: str | None = None) -> Released:
        waiting, self._waiting, self._due = self._waiting, self._nothing, None
        return self._release(waiting)

    def state(self) -> State:
        return State({"watermark": self._watermark, "due": self._due}, [self._waiting])

    def restore(self, state: State) -> None:
        header, (self._waiting,) = state.content(1)
        self._watermark = integer(header, "watermark")
        self._due = None if header["due"] is None else integer(header, "due")

    def _release(self, rows: pa.Table) -> Released:
        ordered = rows.sort_by(self._time)
        if ordered.num_rows:
            self._watermark = int(as_integers(ordered.column(self._time))[-1])
        return Released(ordered, self._watermark)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> op.Query:
    monkeypatch.setitem(ORDERS, Patient, PatientOrder)
    monkeypatch.setitem(KINDS, "PATIENCE", Patient)
    query = op.Query("q").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")
    return query.disorder(Patient(events=3))


def push(stream: Any, times: list[int], source: str | None = None) -> list[int]:
    found = stream.push({"ts": times, "x": times}, source=source)
    return list(found["at"].to_pylist())


def test_it_runs_in_a_stream_and_its_state_goes_on(patient: op.Query) -> None:
    stream = op.open(patient)
    assert push(stream, [3, 1]) == []
    assert stream.buffered == 2
    stream = op.resume(patient, stream.state())
    assert push(stream, [2, 4]) == [2, 4]
    assert push(stream, [6]) == []
    assert push(stream, [5]) == []
    assert stream.finish()["at"].to_pylist() == [6]


def test_it_runs_for_each_of_several_sources(patient: op.Query) -> None:
    stream = op.open(patient, sources=["a", "b"])
    assert push(stream, [3, 1, 5], "a") == []
    assert push(stream, [4, 2, 6], "b") == [2, 4]
    assert stream.finish()["at"].to_pylist() == [6]


@pytest.mark.parametrize("sources", [None, ["a", "b"]])
def test_it_is_asked_again_when_the_clock_has_come_to_its_time(
    patient: op.Query, sources: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [5 * SECOND]
    monkeypatch.setattr(stream_module, "clock_time", lambda: clock[0])
    first, second = (None, None) if sources is None else ("a", "b")
    stream = op.open(patient, sources=sources, record=tmp_path / "run")
    assert stream.timer is None
    assert push(stream, [3], first) == []
    clock[0] += 10
    assert push(stream, [1], second) == []
    assert stream.timer == 6 * SECOND
    assert op.resume(patient, stream.state()).timer == 6 * SECOND
    assert stream.wake().num_rows == 0
    assert stream.timer == 6 * SECOND
    clock[0] = 6 * SECOND + 10
    found = stream.wake()["at"].to_pylist()
    assert found == ([3] if sources is None else [])
    assert stream.timer is None
    assert found + stream.finish()["at"].to_pylist() == [3]
    assert all(step.as_recorded for step in op.replay(tmp_path / "run"))


@dataclass(frozen=True)
class Quiet(Source):
    """Sends two events, and then nothing until it is told to end."""

    ends: threading.Event = field(default_factory=threading.Event)

    def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"ts": [3, 1], "x": [3, 1], "seq": [0, 1]})
        assert self.ends.wait(20), "nobody took the events"


def test_run_brings_a_clock(patient: op.Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SECOND", 10_000)
    source = Quiet("quiet")
    with op.run(patient, source) as matches:
        # The source is not at its end, and a third event never comes: the timer lets them go.
        assert next(matches)["at"].to_pylist() == [3]
        source.ends.set()
        assert not any(table.num_rows for table in matches)


def test_it_is_written_and_explained(patient: op.Query) -> None:
    text = patient.to_sql()
    assert "DISORDER PATIENCE 3" in text
    assert op.Query.from_sql(text, name="q") == patient
    from outpace.plan.stream import plan_stream

    plan = plan_stream(patient, pa.schema({"ts": pa.int64(), "x": pa.int64()}), 1)
    assert any("events wait until 3 are there" in line for line in plan.lines())
