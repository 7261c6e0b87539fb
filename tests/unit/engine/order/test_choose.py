"""A new kind of disorder is one value, one part and one word: a toy one proves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import outpace as op
from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.order.choose import ORDERS
from outpace.engine.order.contract import Released
from outpace.engine.rows.times import as_integers
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State, integer
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import Disorder
from outpace.pattern.notation.disorder import KINDS


@dataclass(frozen=True, slots=True)
class Patient(Disorder):
    """All events wait until as many as `events` are there."""

    described = "events wait until {events} are there"
    events: int = 0


class PatientOrder(Stateful):
    """Lets go what waits when it is enough, sorted by time."""

    def __init__(self, bound: BoundQuery, disorder: BoundDisorder, schema: pa.Schema) -> None:
        self._time, self._events = disorder.time, dict(disorder.settings)["events"]
        self._nothing = schema.empty_table()
        self._waiting = self._nothing
        self.watermark = int(NO_TIME)

    @property
    def buffered(self) -> int:
        return int(self._waiting.num_rows)

    def push(
        self,
        rows: pa.Table,
        spans: Integers | None = None,
        told: int = NO_TIME,
        source: str | None = None,
    ) -> Released:
        waiting = pa.concat_tables([self._waiting, rows.select(self._nothing.column_names)])
        enough = waiting.num_rows >= self._events
        self._waiting = self._nothing if enough else waiting
        return self._release(waiting if enough else self._nothing)

    def tell(self, time: int, source: str | None = None) -> Released:
        return self._release(self._nothing)

    def finish(self, source: str | None = None) -> Released:
        waiting, self._waiting = self._waiting, self._nothing
        return self._release(waiting)

    def state(self) -> State:
        return State({"watermark": self.watermark}, [self._waiting])

    def restore(self, state: State) -> None:
        header, (self._waiting,) = state.content(1)
        self.watermark = integer(header, "watermark")

    def _release(self, rows: pa.Table) -> Released:
        ordered = rows.sort_by(self._time)
        if ordered.num_rows:
            self.watermark = int(as_integers(ordered.column(self._time))[-1])
        return Released(ordered, self.watermark)


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


def test_it_is_written_and_explained(patient: op.Query) -> None:
    text = patient.to_sql()
    assert "DISORDER PATIENCE 3" in text
    assert op.Query.from_sql(text, name="q") == patient
    from outpace.plan.stream import plan_stream

    plan = plan_stream(patient, pa.schema({"ts": pa.int64(), "x": pa.int64()}), 1)
    assert any("events wait until 3 are there" in line for line in plan.lines())
