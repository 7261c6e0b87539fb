"""A new kind of disorder is one value, one part and one word: a toy one proves it."""

from __future__ import annotations

import datetime
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from support.disorders import KINDS as TRIED
from support.patient_order import ASKED, Patient, PatientOrder, Rounding
from support.properties import examples
from support.strategies import disorders

import outpace as op
from outpace.engine.order.choose import ORDERS
from outpace.engine.order.contract import OrderCounters
from outpace.hosts.local import open_stream
from outpace.hosts.local import stream as stream_module
from outpace.ingest.source import Source
from outpace.pattern import disorder
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.disorder import Disorder
from outpace.pattern.notation.disorder import (
    FAMILIES,
    KINDS,
    common_syntax,
    disorder_syntax,
    parse_disorder,
)
from outpace.plan.stream_plan import plan_stream

SECOND = 1_000_000

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int64(), "seq": pa.int64()})


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> op.Query:
    monkeypatch.setitem(ORDERS, Patient, PatientOrder)
    monkeypatch.setitem(KINDS, "PATIENCE", Patient)
    return ASKED


def test_every_kind_is_among_those_that_all_is_tried_with() -> None:
    tried = {type(make()) for make in TRIED.values()}
    assert tried == {*ORDERS} == {*KINDS.values()}
    assert {one.__name__ for one in tried} == {*disorder.__all__} <= {*op.__all__}


def push(stream: Any, times: list[int], source: str | None = None) -> list[int]:
    found = stream.push({"ts": times, "x": times}, source=source)
    return list(found["at"].to_pylist())


def test_it_runs_in_a_stream_and_its_state_goes_on(patient: op.Query) -> None:
    stream = op.open(patient)
    assert push(stream, [3, 1]) == []
    assert stream.buffered == 2
    stream = op.resume(patient, stream.state())
    assert push(stream, [2, 5, 4]) == [2]
    assert push(stream, [7, 6]) == [4]
    assert stream.finish()["at"].to_pylist() == [6]


@pytest.mark.parametrize("sources", [None, ["a", "b"]])
def test_a_state_of_another_kind_of_order_is_refused(
    patient: op.Query, sources: list[str] | None
) -> None:
    slack = patient.disorder(op.KSlack(2))
    for saved, asked in ((patient, slack), (slack, patient)):
        stream = op.open(saved, sources=sources)
        push(stream, [3], sources and sources[0])
        with pytest.raises(op.StateError, match="brought into order in another way"):
            op.resume(asked, stream.state())


def test_speculation_wants_a_kind_that_says_what_k_is(patient: op.Query) -> None:
    with pytest.raises(op.UnsupportedError, match="nothing says what K is for Patient") as caught:
        op.open(patient.disorder(op.Speculative(Patient(4))), schema=SCHEMA)
    assert "op.MPKSlack" in str(caught.value.hint)
    assert "outpace.engine" not in str(caught.value)


def test_a_kind_that_nothing_runs_is_refused_with_those_that_run() -> None:
    @dataclass(frozen=True, slots=True)
    class Strange(Disorder):
        described = "in a strange way"

    query = op.Query("q").order_by("ts").pattern("A").disorder(Strange())
    with pytest.raises(op.UnsupportedError, match="Strange is no reorderer of Outpace") as caught:
        op.open(query, schema=SCHEMA)
    assert "op.KSlack" in str(caught.value.hint)
    assert "outpace.engine" not in str(caught.value)


@pytest.mark.parametrize("number", [0, 5, 60_000])
def test_a_duration_by_the_clock_that_is_a_number_gets_one_as_a_hint(number: int) -> None:
    with pytest.raises(op.BindError, match="such as '500 ms'"):
        op.Sequence(number)


def test_who_sent_an_event_may_not_be_null() -> None:
    query = op.Query("q").order_by("ts").pattern("A").disorder(op.KSlack(2))
    stream = op.open(query, sources=["a", "b"])
    with pytest.raises(op.DataError, match="'source' is NULL\n  hint: there are a, b"):
        stream.push(pa.table({"ts": [1, 2], "source": ["a", None]}))


def test_it_runs_for_each_of_several_sources(patient: op.Query) -> None:
    stream = op.open(patient, sources=["a", "b"])
    assert push(stream, [3, 1, 5], "a") == []
    assert push(stream, [4, 2, 6], "b") == [2]
    assert stream.finish()["at"].to_pylist() == [4, 6]


@pytest.mark.parametrize("sources", [None, ["a", "b"]])
def test_it_is_asked_again_when_the_clock_has_come_to_its_time(
    patient: op.Query, sources: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [5 * SECOND]
    for module in (stream_module, open_stream):
        monkeypatch.setattr(module, "clock_time", lambda: clock[0])
    first, second = (None, None) if sources is None else ("a", "b")
    stream = op.open(patient, sources=sources, record=tmp_path / "run")
    assert stream.timer is None
    assert push(stream, [3], first) == []
    clock[0] += 10
    assert push(stream, [2], second) == []
    assert stream.timer == 6 * SECOND
    assert op.resume(patient, stream.state()).timer == 6 * SECOND
    assert stream.wake().num_rows == 0
    assert stream.timer == 6 * SECOND
    clock[0] = 6 * SECOND + 10
    found = stream.wake()["at"].to_pylist()
    # The other source has come to 2 alone, so what is at 3 waits for it.
    assert found == ([3] if sources is None else [])
    assert stream.timer is None
    assert found + stream.finish()["at"].to_pylist() == [3]
    assert all(step.as_recorded for step in op.replay(tmp_path / "run"))


@dataclass(frozen=True)
class Sent(Source):
    """Sends two pieces, of which the second has an event that is late."""

    def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
        for times in ([3, 1, 9], [2, 10]):
            yield pa.RecordBatch.from_pydict({"ts": times, "x": times, "seq": times})


@dataclass(frozen=True)
class Quiet(Source):
    """Sends two events, and then nothing until it is told to end."""

    ends: threading.Event = field(default_factory=threading.Event)

    def batches(self, rows: int = 100) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"ts": [3, 2], "x": [3, 2], "seq": [0, 1]})
        assert self.ends.wait(20), "nobody took the events"


def test_run_brings_a_clock(patient: op.Query) -> None:
    source = Quiet("quiet")
    with op.run(patient.disorder(Patient(4, "10 ms")), source) as matches:
        # The source is not at its end, and a later event never comes: the timer lets them go.
        assert next(matches)["at"].to_pylist() == [3]
        source.ends.set()
        assert not any(table.num_rows for table in matches)


FULL = Patient(
    20, "1500 ms", share=0.125, at_least=2, rounding="down", sequence="seq", late="side", ahead=9
)


@pytest.mark.parametrize("disorder", [Patient(4), Patient("2 s", "1 s"), FULL])
def test_it_is_written_and_read(patient: op.Query, disorder: Patient) -> None:
    query = patient.disorder(disorder)
    assert op.Query.from_sql(query.to_sql(), name="q") == query
    text = query.to_python()
    call = text[text.index("Patient(") : text.index("))", text.index("Patient(")) + 1]
    assert eval(call, {"Patient": Patient}) == disorder  # noqa: S307  # the test's own text


def test_whatever_its_settings_are_it_is_written_and_read(patient: op.Query) -> None:
    @examples(50)
    @given(disorders())
    def written_and_read(disorder: Disorder) -> None:
        query = patient.disorder(disorder)
        assert op.Query.from_sql(query.to_sql(), name="q") == query

    written_and_read()


def test_its_words_are_those_of_its_settings(patient: op.Query) -> None:
    (line,) = [
        line.strip() for line in patient.disorder(FULL).to_sql().splitlines() if "DISORDER" in line
    ]
    assert line == (
        "DISORDER PATIENCE 20 TIMEOUT INTERVAL '1.5' SECOND SHARE 0.125 AT_LEAST 2 "
        "ROUNDING DOWN SEQUENCE seq LATE SIDE AHEAD 9"
    )
    assert parse_disorder(line.removeprefix("DISORDER "), "--disorder") == FULL
    assert disorder_syntax("PATIENCE") == (
        "PATIENCE interval [TIMEOUT interval] [SHARE number] [AT_LEAST interval] "
        "[ROUNDING UP|DOWN] [SEQUENCE column]"
    )


def test_settings_are_bound_by_their_kinds(patient: op.Query) -> None:
    bound = bind_disorder(patient.disorder(FULL), SCHEMA)
    assert dict(bound.settings) == {
        "at_most": 20,
        "timeout": 1_500_000,
        "share": 0.125,
        "at_least": 2,
        "rounding": Rounding.DOWN,
        "sequence": "seq",
        "late": FULL.late,
        "invalid": FULL.invalid,
        "ahead": 9,
        "arrival": None,
        "horizon": None,
        "patience": None,
        "flag": None,
    }
    assert bound.columns == ("ts", "seq")
    assert str(bound) == (
        "an event waits until one is seen that is 0.125 of 20 later "
        "(timeout 1500 milliseconds, at_least 2, rounding down, sequence seq)"
    )
    timed = SCHEMA.set(0, pa.field("ts", pa.timestamp("ms")))
    seconds = bind_disorder(patient.disorder(Patient("2 s", sequence="SEQ")), timed)
    assert (seconds["at_most"], seconds["sequence"]) == (2 * SECOND, "seq")


def test_explain_shows_it(patient: op.Query) -> None:
    lines = plan_stream(patient, SCHEMA, 1).lines()
    assert any("until one is seen that is 0.5 of 4 later (timeout 1 second)" in x for x in lines)
    assert "  events arrive at the time of their batch; batches run without events, too" in lines
    keyed = plan_stream(patient.partition_by("x").disorder(Patient(4)), SCHEMA, 3).lines()
    assert "  2. order + match: 1 instance" in keyed
    assert "  events of all keys are brought into order in one place" in keyed
    assert not any("time of their batch" in line for line in keyed)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"at_most": -1}, "at_most must not be negative"),
        ({"timeout": "-1 s"}, "timeout must not be negative"),
        ({"timeout": 3}, "timeout is a duration by the clock, not 3"),
        ({"share": float("nan")}, "share is a number, not nan"),
        ({"share": 1.5}, "share is a number from 0 to 1, not 1.5"),
        ({"share": "half"}, "share is a number, not 'half'"),
        ({"rounding": "sideways"}, "rounding does not know 'sideways'"),
        ({"sequence": 7}, "sequence is text, not 7"),
        ({"at_least": 21}, "at_most must not be less than at_least"),
        ({"late": "never"}, "late does not know 'never'"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(op.BindError) as caught:
        replace(FULL, **settings)
    assert (caught.value.message, caught.value.where) == (message, "op.Patient")


def test_a_text_that_is_no_duration_is_shown_with_its_setting() -> None:
    with pytest.raises(op.PatternSyntaxError) as caught:
        Patient(3, "2 parsecs")
    assert str(caught.value).splitlines()[:2] == [
        "[syntax] 'parsecs' is no unit of time",
        "  op.Patient, timeout, line 1, column 3",
    ]


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("PATIENCE", "expected an interval", ""),
        ("PATIENCE 3 SHARE 1.5", "share is a number from 0 to 1, not 1.5", "1.5"),
        ("PATIENCE 3 SHARE x", "expected a number for SHARE, found 'x'", "x"),
        ("PATIENCE 3 TIMEOUT 3", "timeout is a duration by the clock, not 3", "3"),
        ("PATIENCE 3 ROUNDING OFF", "expected UP or DOWN after ROUNDING", "OFF"),
        ("PATIENCE 3 SEQUENCE 3", "expected a column for SEQUENCE", "3"),
        ("PATIENCE 3 LATE SIDE LATE SIDE", "LATE stands here a second time", "LATE"),
        (
            "PATIENCE 3 AT_LEAST 4",
            "at_most must not be less than at_least",
            "PATIENCE 3 AT_LEAST 4",
        ),
    ],
)
def test_a_setting_that_does_not_fit_is_shown_in_its_place(
    patient: op.Query, text: str, message: str, place: str
) -> None:
    with pytest.raises(op.PatternSyntaxError) as caught:
        parse_disorder(text, "--disorder")
    error = caught.value
    assert error.message.startswith(message)
    assert error.where == "--disorder"
    assert error.span is not None
    assert text[error.span.start : error.span.end] == place


@pytest.mark.parametrize(
    ("disorder", "message", "where"),
    [
        (Patient(3, sequence="sequ"), "unknown column 'sequ'", "disorder, sequence"),
        (Patient(3, sequence="kind"), "sequence names a column of integers", "disorder"),
        (Patient("3 s"), "at_most is a duration, but 'ts' holds integers", "disorder"),
    ],
)
def test_a_setting_that_does_not_fit_the_schema_is_named(
    patient: op.Query, disorder: Patient, message: str, where: str
) -> None:
    schema = SCHEMA.append(pa.field("kind", pa.string()))
    with pytest.raises(op.BindError) as caught:
        bind_disorder(patient.disorder(disorder), schema)
    assert caught.value.message.startswith(message)
    assert caught.value.where == where


def test_a_clock_is_wanted_where_a_duration_goes_by_it() -> None:
    assert Patient(3, datetime.timedelta(seconds=1)).clocked
    assert not Patient(3).clocked
    assert not op.KSlack(3).clocked


def test_every_kind_has_its_row_in_the_reference() -> None:
    reference = Path(__file__).parents[4] / "docs" / "reference"
    table, syntax = ((reference / name).read_text() for name in ("query.md", "sql.md"))
    for word, kind in KINDS.items():
        assert re.search(rf"^\| `op\.{kind.__name__}\(.*`DISORDER {word}\b", table, re.MULTILINE)
        assert f"\n{disorder_syntax(word)}\n" in syntax


def test_every_word_of_the_clause_is_in_the_reference() -> None:
    reference = Path(__file__).parents[4] / "docs" / "reference"
    syntax = (reference / "sql.md").read_text()
    for word in FAMILIES["checkpoints"]:
        assert f"\n{disorder_syntax(word, 'checkpoints')}\n" in syntax
    assert f"\n{common_syntax()}\n" in syntax
    # What the page calls a setting, the parser takes.
    assert parse_disorder(
        "SPECULATIVE SLACK (MP) ALPHA 0.5 CHECKPOINTS (SPECULATIVE 5 MOST 9) INVALID QUARANTINE "
        "PATIENCE ('east' = '2 s', 'west' = '3 s')",
        "here",
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("KSLACK 5", "did you mean 'SLACK'?"),
        ("SLACK 5 LATTE PASS", "DISORDER SLACK takes LATE, INVALID, AHEAD"),
        ("MP LATE PASS ERROR 0.1", "DISORDER MP takes "),
        ("SLACK 5 LATE CORRECT", "hint: write LATE CORRECT HORIZON '10 s'"),
        ("SPECULATIVE SLACK 5 CHECKPOINTS '5 s'", "a number of events, or a model"),
    ],
)
def test_a_clause_that_cannot_be_read_says_what_could_be(text: str, hint: str) -> None:
    for read in (
        lambda: parse_disorder(text, "--disorder"),
        lambda: op.Query.from_sql(f"MATCH_RECOGNIZE (ORDER BY ts PATTERN (A) DISORDER {text})"),
    ):
        with pytest.raises(op.PatternSyntaxError) as caught:
            read()
        assert hint in str(caught.value)


def test_a_stream_and_a_run_tell_how_its_order_goes(patient: op.Query, tmp_path: Path) -> None:
    stream = op.open(patient, sources=["a", "b"], record=tmp_path / "run")
    push(stream, [3, 1, 5], "a")
    push(stream, [9, 2, 8], "b")
    push(stream, [1, 2, 7], "a")
    # 1, 3 and 5 came when 5 was the greatest time, and waited until it was 9; three went on.
    assert stream.order == OrderCounters(slack=2, buffered=4, late=2, latency=4.0, longest_wait=4)
    assert [step.state.slack for step in op.replay(tmp_path / "run")] == [2, 2, 2]
    with op.run(patient, Sent("one")) as matches:
        list(matches)
    known = matches.metrics.sources["one"]
    assert (known.slack, known.late, known.buffered) == (2, 1, 0)
