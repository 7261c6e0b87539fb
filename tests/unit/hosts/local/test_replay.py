"""A recorded stream gives the same again, step by step; damage is told with its place."""

from __future__ import annotations

import datetime
import json
import logging
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.strategies import queries
from support.window_queries import KINDS, PATTERNS, Bounded

import outpace as op
from outpace.engine.message import (
    Aside,
    Emit,
    EventsArrived,
    Save,
    SetAside,
    SourceEnded,
    Stimulus,
    WatermarkArrived,
)
from outpace.engine.savepoint import Savepoint
from outpace.engine.window_match.result import WindowMatches
from outpace.engine.wire import instructions_checksum, read_stimulus, write_stimulus
from outpace.errors import OutpaceError, StateError
from outpace.hosts.local.recording import Recorder, StreamRecording
from outpace.ingest.log.frame import FrameKind
from outpace.pattern.group import QueryGroup

RISE = (
    op.Query("rise")
    .partition_by("key")
    .order_by("ts")
    .pattern("A B")
    .define(B="price > A.price")
    .measures(at="B.ts")
    .within(5)
)

QUERIES = {
    **PATTERNS,
    **{
        name: PATTERNS["next"].partition_by("key").over(kind)
        for name, kind in KINDS.items()
        if getattr(kind, "predicate", None) is None
    },
    "all rows": PATTERNS["within"].partition_by("key").all_rows_per_match(),
    "slack": PATTERNS["within"].disorder(op.KSlack(2, late="side", invalid="quarantine")),
    "late pass": PATTERNS["any"].within(6).disorder(op.KSlack(1, late="pass")),
    "watermark": PATTERNS["next"].within(6).disorder(op.Punctuation(late="side")),
    "in order": PATTERNS["strict"].disorder(op.InOrder(late="side")),
}


def rows(times: list[int | None], key: str = "a") -> pa.Table:
    kinds = ["abcd"[(0 if t is None else t * t // 3) % 4] for t in times]
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()),
            "id": pa.array(range(len(times)), pa.int64()),
            "kind": pa.array(kinds, pa.string()),
            "key": pa.array([key] * len(times), pa.string()),
            "price": pa.array([float((t or 0) * 31 % 7) for t in times], pa.float64()),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "recording"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of four steps, of which one is refused."""
    path = tmp_path_factory.mktemp("recorded") / "recording"
    matcher = op.open(RISE, record=path)
    matcher.push(rows([1, 2]))
    with pytest.raises(op.DataError):
        matcher.push(rows([0]))
    matcher.push(rows([3, 4]))
    matcher.finish()
    return path


Actions = list[tuple[str, Any]]


@st.composite
def actions(draw: st.DrawFn) -> Actions:
    """Pushes in and out of order, times told, and an end: some of it is refused."""
    told: Actions = []
    time = 0
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["push", "push", "push", "advance"]))
        if kind == "advance":
            told.append(("advance", time + draw(st.integers(-2, 3))))
            continue
        steps = draw(st.lists(st.integers(-1, 3), max_size=5))
        times: list[int | None] = [max(0, int(t)) for t in time + np.cumsum(steps)]
        time = max([time, *(t for t in times if t is not None)])
        if draw(st.integers(0, 9)) == 0:
            times.append(None)
        told.append(("push", rows(times, draw(st.sampled_from("ab")))))
    return [*told, *([("finish", None)] if draw(st.booleans()) else [])]


def act(matcher: op.StreamMatcher, told: Actions) -> list[list[Any] | str]:
    """Return what came of each: matches, late, invalid, timed out, or the error."""
    outcomes: list[list[Any] | str] = []
    for name, value in told:
        try:
            arguments = () if name == "finish" else (value,)
            found = getattr(matcher, name)(*arguments)
        except OutpaceError as error:
            outcomes.append(error.message)
            continue
        outcomes.append([found.to_pylist(), matcher.timed_out.to_pylist()])
    return outcomes


def replayed(path: Path) -> list[list[Any] | str]:
    outcomes: list[list[Any] | str] = []
    for number, step in enumerate(op.replay(path), 1):
        assert (step.number, step.as_recorded) == (number, True)
        if step.error is None:
            outcomes.append([step.matches.to_pylist(), step.timed_out.to_pylist()])
        else:
            assert isinstance(step.error, OutpaceError)
            outcomes.append(step.error.message)
    return outcomes


@examples(40)
@given(st.sampled_from(sorted(QUERIES)), actions(), st.integers(0, 3))
def test_a_replay_gives_the_same_step_by_step(name: str, told: Actions, cut: int) -> None:
    query = QUERIES[name]
    timeouts = query.windows is None and query.bound is not None
    with TemporaryDirectory() as home:
        whole, rest = Path(home) / "whole", Path(home) / "rest"
        schema = rows([]).schema
        matcher = op.open(query, schema=schema, timeouts=timeouts, record=whole)
        first = [one for one in told[:cut] if one[0] != "finish"]
        outcomes = act(matcher, first)
        # The rest goes on in another recording, which begins with the state.
        matcher = op.resume(query, matcher.state(), timeouts=timeouts, record=rest)
        outcomes += act(matcher, told[len(first) :])
        assert replayed(whole) + replayed(rest) == outcomes
        last = op.replay(rest)
        for step in last:
            step.explain()
        if told[-1][0] != "finish":
            assert last.stream.state() == matcher.state()


@examples(40)
@given(queries())
def test_the_text_of_a_query_reads_back_as_the_same_query(query: op.Query) -> None:
    with TemporaryDirectory() as home:
        Recorder(home, query)
        read = StreamRecording.open(home)
        assert read.query(query) is query
        assert read.query() == replace(query, instance_count=1, scheduler=None)


def test_a_query_of_the_fluent_calls_is_recorded_as_text(folder: Path) -> None:
    query = PATTERNS["next"].over(op.windows.count(9))
    op.open(query.instances(4), record=folder)
    assert op.replay(folder).query == query


def test_the_first_push_brings_the_schema(folder: Path) -> None:
    matcher = op.open(RISE, record=folder)
    assert list(op.replay(folder)) == []
    matcher.push(rows([1, 2, 3]))
    (step,) = op.replay(folder)
    assert (step.state.rows_kept, step.state.partitions, step.state.watermark) == (1, 1, 3)
    assert step.title == "3 rows"


def test_sources_are_recorded(folder: Path) -> None:
    matcher = op.open(RISE, sources=["east", "west"], record=folder)
    matcher.push(rows([2], "k"), source="east")
    matcher.push(rows([1], "k"), source="west")
    found = matcher.heartbeat("west", 5)
    matcher.finish("east")
    matcher.finish()
    steps = list(op.replay(folder))
    assert [step.title for step in steps] == [
        *("1 row of east", "1 row of west", "time 5 of west", "end of east", "end"),
    ]
    assert [step.state.buffered for step in steps] == [1, 1, 0, 0, 0]
    assert steps[2].matches.equals(found)
    assert all(step.as_recorded for step in steps)


def test_late_and_invalid_rows_are_given_again(folder: Path) -> None:
    query = RISE.disorder(op.KSlack(1, late="side", invalid="quarantine"))
    matcher = op.open(query, record=folder)
    matcher.push(rows([5, 9, 1, None]))
    matcher.push(rows([2]))
    steps = list(op.replay(folder))
    assert [step.late["ts"].to_pylist() for step in steps[1:]] == [[2]]
    assert steps[0].invalid["reason"].to_pylist() == ["the time 'ts' is NULL"]
    assert all(step.as_recorded for step in steps)


def test_a_stream_that_follows_another_is_recorded(folder: Path) -> None:
    rises = op.open(RISE.measures(price="B.price"))
    pairs = op.Query("pairs").order_by("at").pattern("A B").measures(n="COUNT(*)").within(50)
    matcher = op.open(pairs, record=folder)
    outcomes = [
        matcher.push(rises.push(rows(list(range(low, low + 9))))).to_pylist()
        for low in (0, 9, 18, 27)
    ]
    steps = list(op.replay(folder))
    assert [step.matches.to_pylist() for step in steps] == outcomes
    assert any(outcomes)
    assert all(isinstance(step.stimulus, EventsArrived) for step in steps)
    assert steps[-1].state.watermark == matcher.watermark is not None


class Sum(op.Operator):
    """Sums prices; it fails where one is greater than ten."""

    output = pa.schema({"total": pa.float64()})

    def __init__(self) -> None:
        self.total = 0.0

    def process(self, events: pa.Table) -> pa.Table:
        prices = events["price"].to_pylist()
        if max(prices) > 10:
            raise ValueError("too much")
        self.total += sum(prices)
        return pa.table({"total": [self.total]})

    def state(self) -> bytes:
        return json.dumps(self.total).encode()

    def restore(self, state: bytes) -> None:
        self.total = json.loads(state)


def test_an_operator_in_python_has_to_be_given(folder: Path) -> None:
    query = op.Query("sums").order_by("ts").apply(Sum)
    matcher = op.open(query, record=folder)
    matcher.push({"ts": [1], "price": [2.0]})
    with pytest.raises(OutpaceError, match="too much"):
        matcher.push({"ts": [2], "price": [20.0]})
    with pytest.raises(StateError, match="parts in Python"):
        op.replay(folder)
    first, second = op.replay(folder, query=query)
    assert (first.as_recorded, second.as_recorded) == (True, True)
    assert "too much" in str(second.error)
    with pytest.raises(StateError, match="another query"):
        op.replay(folder, query=query.disorder(op.KSlack(1)))


def test_another_query_is_refused(recorded: Path) -> None:
    with pytest.raises(StateError, match="another query"):
        op.replay(recorded, query=RISE.within(6))
    with pytest.raises(StateError, match="another query"):
        op.replay(recorded, query=RISE.disorder(op.KSlack(1)))


def test_until_ends_a_replay_and_its_stream_goes_on(recorded: Path) -> None:
    steps = op.replay(recorded, until=2)
    assert [step.number for step in steps] == [1, 2]
    assert steps.stream.watermark == 2
    assert steps.stream.push(rows([3, 4])).num_rows == 1
    assert list(op.replay(recorded, until=0)) == []
    with pytest.raises(op.DataError, match="until"):
        op.replay(recorded, until=-1)


def test_a_step_that_gives_something_else_is_told(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outpace.engine.operator import WholeOperator

    before: Callable[..., list[Any]] = WholeOperator.step

    def changed(self: WholeOperator, stimulus: Stimulus) -> list[Any]:
        instructions = before(self, stimulus)
        (emit,) = instructions
        matches = replace(emit.matches, table=emit.matches.table.slice(1))
        return [replace(emit, matches=matches)]

    monkeypatch.setattr(WholeOperator, "step", changed)
    assert [step.as_recorded for step in op.replay(recorded)] == [False, True, False, True]


def test_a_step_that_ended_the_process_is_there(folder: Path) -> None:
    matcher = op.open(RISE, record=folder)
    matcher.push(rows([1, 2]))
    matcher.push(rows([3, 4]))
    # What is written before the step: all but its outcome.
    data = (folder / "steps").read_bytes()
    (folder / "steps").write_bytes(data[: frame_ends(folder)[-2]])
    steps = list(op.replay(folder))
    assert [step.as_recorded for step in steps] == [True, None]
    assert steps[1].matches.num_rows == 1


def test_an_interrupted_step_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = op.open(RISE, record=folder, schema=rows([]).schema)
    assert matcher._operator is not None

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(matcher._operator, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            matcher.push(rows([9]))
    matcher.push(rows([1, 2]))
    first, second = op.replay(folder)
    assert (first.skipped, first.as_recorded, first.state.rows_kept) == (True, None, 0)
    assert (second.skipped, second.as_recorded) == (False, True)


def test_recording_begins_where_it_is_asked_for(folder: Path) -> None:
    matcher = op.open(RISE)
    matcher.push(rows([1, 2]))
    matcher.record(folder)
    found = matcher.push(rows([3, 4]))
    (step,) = op.replay(folder)
    assert step.matches.equals(found)


def test_a_refused_state_is_not_in_a_recording(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher, other = op.open(RISE, record=folder), op.open(RISE.within(6))
    matcher.push(rows([1]))
    other.push(rows([1]))
    fresh, saved = op.open(RISE), matcher.state()
    with pytest.raises(op.StateError, match="another query"):
        matcher.restore(other.state())
    with monkeypatch.context() as patch:
        patch.setattr("outpace.hosts.local.recording.write_all", no_room)
        for state in (fresh.state(), saved):
            with pytest.raises(op.DataError, match="cannot record"):
                matcher.restore(state)
    assert matcher.push(rows([2])).num_rows == 1
    matcher.restore(saved)
    assert matcher.push(rows([2])).num_rows == 1
    matcher.restore(fresh.state())
    assert matcher.push(rows([2])).num_rows == 0
    steps = list(op.replay(folder))
    assert [step.as_recorded for step in steps] == [True] * 4
    assert [step.matches.num_rows for step in steps] == [0, 1, 1, 0]


def test_a_schema_stays_once_rows_were_taken() -> None:
    matcher = op.open(RISE)
    matcher.push(rows([1]))
    matcher.bind(rows([1]).schema)
    with pytest.raises(op.DataError, match="rows of another schema"):
        matcher.bind(rows([1]).schema.append(pa.field("more", pa.int64())))
    assert matcher.push(rows([2])).num_rows == 1


def no_room(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_stream_that_cannot_be_opened_leaves_no_folder(folder: Path) -> None:
    with pytest.raises(op.BindError):
        op.open(RISE, schema=pa.schema({"ts": pa.int64()}), record=folder)
    with pytest.raises(op.UnsupportedError):
        op.open(RISE.all_rows_per_match(unmatched=True), record=folder)
    assert not folder.exists()


def test_a_recording_that_is_no_stream_is_refused_with_its_place(folder: Path) -> None:
    Recorder(folder, RISE.all_rows_per_match(unmatched=True))
    with pytest.raises(op.UnsupportedError) as caught:
        op.replay(folder)
    assert caught.value.where == str(folder)


def test_a_folder_that_holds_something_is_refused(recorded: Path) -> None:
    with pytest.raises(op.DataError, match="not empty"):
        op.open(RISE, record=recorded)


def test_no_room_on_the_disk_is_told_and_nothing_is_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = op.open(RISE, record=folder)
    for times in ([1, 2], [3, 4]):
        with monkeypatch.context() as patch:
            patch.setattr("outpace.hosts.local.recording.write_all", no_room)
            with pytest.raises(op.DataError, match="cannot record"):
                matcher.push(rows(list(times)))
        assert matcher.push(rows(list(times))).num_rows == 1
    assert [step.as_recorded for step in op.replay(folder)] == [True, True]


def test_what_a_step_found_is_not_lost_where_its_outcome_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from outpace.hosts.local import recording

    matcher = op.open(RISE, record=folder)
    matcher.push(rows([1, 2]))
    calls: list[object] = []
    write = recording.write_all

    def full_later(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        write(*arguments)

    monkeypatch.setattr(recording, "write_all", full_later)
    assert matcher.push(rows([3, 4])).num_rows == 1
    assert "No space left" in caplog.text
    with pytest.raises(op.DataError, match="cannot go on"):
        matcher.push(rows([5]))
    assert [step.as_recorded for step in op.replay(folder)] == [True, None]


def damaged(recorded: Path, home: str, change: Callable[[bytearray], None], file: str) -> Path:
    path = Path(home) / "recording"
    shutil.copytree(recorded, path)
    data = bytearray((path / file).read_bytes())
    change(data)
    (path / file).write_bytes(data)
    return path


@examples(60)
@given(st.data())
def test_a_changed_byte_is_refused_with_its_place(recorded: Path, data: st.DataObject) -> None:
    size = (recorded / "steps").stat().st_size
    place = data.draw(st.integers(0, size - 1))
    bit = data.draw(st.integers(0, 7))

    def flip(content: bytearray) -> None:
        content[place] ^= 1 << bit

    with TemporaryDirectory() as home:
        path = damaged(recorded, home, flip, "steps")
        seen, error = until_damage(path)
        if error is None:
            # Only the zeros behind a payload are not looked at.
            assert seen == [1, 2, 3, 4]
        else:
            position, step = re.fullmatch(  # type: ignore[union-attr]  # it does match
                rf"{re.escape(str(path / 'steps'))}, byte (\d+), after step (\d)", str(error.where)
            ).groups()
            assert int(position) <= place < int(position) + 2000
            assert int(step) - len(seen) in (0, 1)


def until_damage(path: Path) -> tuple[list[int], StateError | None]:
    """Return the steps that are replayed as they were recorded, and what ends them."""
    seen: list[int] = []
    try:
        for step in op.replay(path):
            assert step.as_recorded in (True, None)
            seen.append(step.number)
    except StateError as error:
        return seen, error
    return seen, None


@examples(40)
@given(st.data())
def test_what_is_before_a_cut_is_replayed(recorded: Path, data: st.DataObject) -> None:
    size = (recorded / "steps").stat().st_size
    stop = data.draw(st.integers(0, size))

    def cut(content: bytearray) -> None:
        del content[stop:]

    with TemporaryDirectory() as home:
        steps = op.replay(damaged(recorded, home, cut, "steps"))
        seen = list(steps)
        ends = frame_ends(recorded)
        assert (steps.torn is None) == (stop in [0, *ends])
        assert len(seen) == sum(
            end <= stop for end, kind in zip(ends, frame_kinds(recorded), strict=True) if kind == 5
        )
        assert all(step.as_recorded in (True, None) for step in seen)


def frame_ends(path: Path) -> list[int]:
    return [frame.end for frame, _ in StreamRecording.open(path).frames()]


def frame_kinds(path: Path) -> list[int]:
    return [int(frame.kind) for frame, _ in StreamRecording.open(path).frames()]


def test_a_torn_end_is_told(
    recorded: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end = frame_ends(recorded)[-3]

    def tear(content: bytearray) -> None:
        del content[end + 70 :]

    with caplog.at_level(logging.WARNING):
        steps = op.replay(damaged(recorded, str(tmp_path), tear, "steps"))
        assert [step.number for step in steps] == [1, 2, 3]
    assert f"byte {end}, after step 3" in caplog.text
    assert steps.torn is not None

    def zeros(content: bytearray) -> None:
        content[end:] = bytes(len(content) - end)

    shutil.rmtree(tmp_path / "recording")
    steps = op.replay(damaged(recorded, str(tmp_path), zeros, "steps"))
    assert [step.number for step in steps] == [1, 2, 3]


@pytest.mark.parametrize("place", [0, 3])
def test_a_few_bytes_of_something_else_are_no_torn_end(
    recorded: Path, tmp_path: Path, place: int
) -> None:
    end = [0, *frame_ends(recorded)][place]

    def write(content: bytearray) -> None:
        content[end:] = b"hello"

    steps = op.replay(damaged(recorded, str(tmp_path), write, "steps"))
    with pytest.raises(StateError, match="damaged") as caught:
        list(steps)
    assert f"byte {end}," in str(caught.value)


@examples(60)
@given(st.data())
def test_a_changed_description_is_refused(recorded: Path, data: st.DataObject) -> None:
    content = (recorded / "recording.json").read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != content[place]))

    def change(copy: bytearray) -> None:
        copy[place] = byte

    with TemporaryDirectory() as home:
        path = damaged(recorded, home, change, "recording.json")
        try:
            op.replay(path)
            # White space that means nothing, or a mark of the order of bytes.
            changed = (path / "recording.json").read_text("utf-8-sig")
            said = [] if json.loads(changed) == json.loads(content) else ["nothing was told"]
        except OutpaceError as error:
            said = [str(error)]
        assert all(str(path) in one for one in said)


FRAMES = {
    "no stimulus": (FrameKind.STIMULUS, b"\1" * 40),
    "a stimulus of no kind": (FrameKind.STIMULUS, struct.pack("<qq3Q", 0, 3, 0, 0, 0)),
    "rows that are none": (FrameKind.STIMULUS, struct.pack("<qq3Q", 0, 0, 8, 0, 0) + bytes(8)),
    "no schema": (FrameKind.SCHEMA, b"schema"),
    "no state": (FrameKind.STATE, b"state"),
    "an outcome of nothing": (FrameKind.OUTCOME, bytes(5)),
    "events": (FrameKind.EVENTS, b""),
}


@pytest.mark.parametrize("name", FRAMES)
def test_content_that_nobody_wrote_is_refused(name: str, folder: Path) -> None:
    recorder = Recorder(folder, RISE)
    recorder._write(*FRAMES[name])
    with pytest.raises(OutpaceError) as caught:
        list(op.replay(folder))
    assert f"{folder / 'steps'}, byte 0, after step " in str(caught.value)


def test_a_step_before_the_schema_is_refused(folder: Path) -> None:
    recorder = Recorder(folder, RISE)
    for stimulus in (WatermarkArrived(7), EventsArrived(rows([1]))):
        with pytest.raises(ZeroDivisionError):
            recorder.step(stimulus, lambda _: [1 // 0])  # type: ignore[list-item]
    steps = list(op.replay(folder))
    assert [step.title for step in steps] == ["time 7", "1 row"]
    assert ["before the first push" in str(step.error) for step in steps] == [True, True]
    assert [step.as_recorded for step in steps] == [False, False]


def test_foreign_folders_are_refused(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(op.DataError, match="is no recording"):
        op.replay(tmp_path)
    op.log.create(tmp_path / "log", pa.schema({"ts": pa.int64()}))
    with pytest.raises(op.DataError, match="is no recording"):
        op.replay(tmp_path / "log")
    shutil.copytree(recorded, tmp_path / "copy")
    about = tmp_path / "copy" / "recording.json"
    about.write_text(about.read_text().replace('"version": 2', '"version": 7'))
    with pytest.raises(op.DataError, match="version 7"):
        op.replay(tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy")
    shutil.copytree(recorded, tmp_path / "copy")
    (tmp_path / "copy" / "steps").unlink()
    with pytest.raises(StateError, match="no steps"):
        list(op.replay(tmp_path / "copy"))


def test_the_steps_of_another_recording_are_refused(recorded: Path, folder: Path) -> None:
    op.open(RISE, record=folder).push(rows([1]))
    shutil.copyfile(recorded / "steps", folder / "steps")
    with pytest.raises(StateError, match="damaged"):
        list(op.replay(folder))


def stimuli() -> Iterator[Stimulus]:
    table = rows([1, None, 3])
    yield EventsArrived(table)
    yield EventsArrived(table.slice(1), "east", np.array([[1, 3], [7, 9]]), 5)
    yield EventsArrived(table.slice(3), "", np.zeros((0, 2), np.int64))
    yield EventsArrived(pa.table({"d": pa.array(["x", "y"]).dictionary_encode(), "l": [[1], None]}))
    yield WatermarkArrived(-7)
    yield WatermarkArrived(7, "wëst")
    yield SourceEnded()
    yield SourceEnded("east")


@pytest.mark.parametrize("stimulus", list(stimuli()), ids=lambda one: type(one).__name__)
def test_a_stimulus_reads_back_and_damage_is_refused(stimulus: Stimulus) -> None:
    data = write_stimulus(stimulus)
    again = read_stimulus(pa.py_buffer(data))
    if isinstance(stimulus, EventsArrived):
        assert isinstance(again, EventsArrived)
        assert again.rows.equals(stimulus.rows)
        assert (again.source, again.watermark) == (stimulus.source, stimulus.watermark)
        assert (again.spans is None) == (stimulus.spans is None)
        if stimulus.spans is not None:
            assert again.spans is not None
            assert again.spans.tolist() == stimulus.spans.tolist()
    else:
        assert again == stimulus
    for stop in range(0, len(data), 7):
        with pytest.raises(OutpaceError):
            read_stimulus(pa.py_buffer(data[:stop]))
    with pytest.raises(OutpaceError):
        read_stimulus(pa.py_buffer(data + b"\0"))


COLUMNS = [
    pa.array([1, None, 3]),
    pa.array([1.5, float("nan"), None]),
    pa.array([True, None, False]),
    pa.array(["a", None, "bc"]),
    pa.array(["a", None, "bc"], pa.string_view()),
    pa.array([b"ab", b"cd", None], pa.binary(2)),
    pa.array([[1, 2], None, [None]]),
    pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
    pa.array([{"a": 1}, None, {"a": None}]),
    pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    pa.array([1, 2, None], pa.timestamp("ns")),
    pa.array(["x", "y", None]).dictionary_encode(),
    pa.nulls(3),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_a_checksum_depends_on_values_alone(column: pa.Array) -> None:
    def checksum(values: pa.Array | pa.ChunkedArray) -> int:
        return instructions_checksum([SetAside("q", Aside.LATE, pa.table({"x": values}))])

    later = pa.concat_arrays([column, column]).slice(len(column))
    assert checksum(later) == checksum(column)
    assert checksum(pa.chunked_array([column.slice(0, 1), column.slice(1)])) == checksum(column)
    assert checksum(column.slice(1)) != checksum(column)
    if column.null_count < len(column):
        parts = [column.slice(1, 1), column.slice(0, 1), column.slice(2)]
        assert checksum(pa.chunked_array(parts)) != checksum(column)


def test_a_checksum_tells_what_is_emitted_and_what_is_set_aside() -> None:
    table, nothing = pa.table({"x": [1]}), pa.table({})
    none = WindowMatches.none(nothing.schema)
    told = [
        [Emit("q", replace(none, table=table), nothing)],
        [Emit("q", none, table)],
        [Emit("q", replace(none, table=table), nothing, 7)],
        [SetAside("q", Aside.LATE, table), Emit("q", none, nothing)],
        [SetAside("q", Aside.INVALID, table), Emit("q", none, nothing)],
        [Save("q", Savepoint.of("q", at=1))],
        [Save("q", Savepoint.of("q", at=2))],
    ]
    assert len({instructions_checksum(one) for one in told}) == len(told)


def test_a_garbage_value_under_null_is_no_difference() -> None:
    one = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1, 99]))]
    )
    other = pa.array([1, None])
    tables = [pa.table({"x": column}) for column in (one, other)]
    checksums = {instructions_checksum([SetAside("q", Aside.LATE, table)]) for table in tables}
    assert len(checksums) == 1


def test_predicates_of_windows_count_by_their_name(folder: Path) -> None:
    query = PATTERNS["next"].over(op.windows.between(predicate=Bounded()))
    op.open(query, record=folder).push(rows([1, 2]))
    with pytest.raises(StateError, match="parts in Python"):
        op.replay(folder)
    assert len(list(op.replay(folder, query=query))) == 1


def unexplained(folder: Path, opened: Callable[[], Any]) -> str:
    """Record a step, and return what the replay says in place of an explanation."""
    opened().push({"ts": [1, 2, 9], "price": [2.0, 1.0, 0.0]})
    (step,) = op.replay(folder)
    return step.explain()


def test_what_is_not_explained_is_told_and_not_made_up(folder: Path) -> None:
    # Step B before step A is a match in the other order, which no run through the events shows.
    pair = op.Query("pair").order_by("ts").pattern("A B").define(A="price = 1", B="price = 2")
    unsure = pair.measures(at="A.ts").no_skip().within(9).uncertain(3)
    told = unexplained(folder, lambda: op.open(unsure, record=folder))
    assert told == "steps are explained of a query without uncertain, in one order of the events"


def grouped() -> QueryGroup:
    """Return two queries that share a condition and drop rows, and one over windows."""
    base = op.Query("low").order_by("ts").pattern("A").define(A="price < 2").measures(at="A.ts")
    falls = (
        op.Query("falls")
        .order_by("ts")
        .pattern("A ->> B")
        .define(A="price > 3", B="price < 2 AND price < A.price")
    )
    return op.group(
        base.disorder(op.KSlack(5)),
        falls.measures(at="B.ts").within(9).disorder(op.KSlack(1)),
        replace(base, name="wide").over(op.windows.count(2)).disorder(op.KSlack(1)),
    )


def test_steps_of_a_group_are_explained_query_by_query_as_each_alone_is(folder: Path) -> None:
    queries = grouped()
    pieces = [{"ts": [1, 4, 2], "price": [4.0, 1.0, 2.5]}, {"ts": [9], "price": [5.0]}]
    streams = [op.open(queries, record=folder / "all")]
    streams += [op.open(query, record=folder / query.name) for query in queries.queries]
    for stream in streams:
        for piece in pieces:
            stream.push(piece)
        stream.finish()
    assert op.replay(folder / "all").unexplained is None
    alone = [list(op.replay(folder / query.name)) for query in queries.queries]
    together = list(op.replay(folder / "all"))
    for step, *each in zip(together, *alone, strict=True):
        texts = [
            (one.explain(), query.name) for one, query in zip(each, queries.queries, strict=True)
        ]
        wanted = "\n\n".join(f"query '{name}':\n\n{text}" for text, name in texts if text)
        assert step.explain() == wanted
    assert "price < A.price  1.0 < 4.0" in together[1].explain()
    assert together[1].state.slack == 5


def test_a_group_that_goes_on_from_saved_state_says_that_it_is_not_explained(folder: Path) -> None:
    queries = grouped()
    before = op.open(queries)
    before.push({"ts": [1], "price": [4.0]})
    op.resume(queries, before.state(), record=folder).push({"ts": [4], "price": [1.0]})
    steps = op.replay(folder)
    (step,) = steps
    assert (
        steps.unexplained == "steps of a group are explained where the recording has its beginning"
    )
    assert steps.unexplained in step.explain()


def test_a_query_of_a_group_that_fails_is_explained_up_to_there(folder: Path) -> None:
    base = op.Query("bad").order_by("ts").pattern("A").measures(at="A.ts")
    bad = base.measures(n="CAST(A.text AS INTEGER)")
    stream = op.open(op.group(replace(base, name="good"), bad), record=folder)
    for ts, text in ((1, "1"), (2, "x"), (3, "3")):
        stream.push({"ts": [ts], "text": [text]})
    texts = [step.explain() for step in op.replay(folder)]
    assert "query 'bad':\n\nmatch 0" in texts[0]
    assert "query 'bad':\n\nthe query failed: " in texts[1]
    assert "query 'bad'" not in texts[2]
    assert all("query 'good':\n\nmatch 0" in text for text in texts)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_steps_of_a_join_tell_pairs_and_who_waits_on_each_side(folder: Path, how: str) -> None:
    sides = [pa.schema({"id": pa.int64(), "ts": pa.int64(), name: pa.int64()}) for name in "ab"]
    join = op.Join(on="id", within=5, time="ts", how=how)
    stream = op.open(join, schema=sides, record=folder)
    stream.push({"id": [1, 2], "ts": [10, 11], "a": [1, 2]}, "left")
    stream.push({"id": [1, 3], "ts": [12, 12], "b": [1, 2]}, "right")
    stream.heartbeat("left", 13)
    stream.heartbeat("right", 17)
    stream.finish()
    texts = [step.explain() for step in op.replay(folder)]
    assert texts[0] == ""
    assert texts[1].startswith("undecided:\n  row 0 of left at 10 (id = 1): a partner may come")
    pair = "match 0, id = 1: row 0 of left at 10 and row 2 of right at 12 are 2 apart, at most 5"
    assert texts[2].startswith(pair)
    waits = "  row 0 of left at 10 (id = 1): a partner may come up to 15\n"
    assert waits in texts[2]
    assert "  row 2 of right at 12 (id = 1): a partner may come up to 17" in texts[2]
    lonely = "match 0, id = 2: row 1 of left at 11 has no partner: none came with a time up to 16"
    assert (lonely in "\n".join(texts)) == (how == "left")
    assert "undecided" not in texts[-1]


def test_an_uncertain_join_says_how_well_times_are_known(folder: Path) -> None:
    sides = [pa.schema({"id": pa.int64(), "ts": pa.int64(), name: pa.int64()}) for name in "ab"]
    join = op.Join(on="id", within=5, time="ts", uncertain=2)
    stream = op.open(join, schema=sides, record=folder)
    stream.push({"id": [1], "ts": [10], "a": [1]}, "left")
    stream.push({"id": [1], "ts": [16], "b": [1]}, "right")
    stream.finish()
    text = "\n".join(step.explain() for step in op.replay(folder))
    assert "at 10 and row 1 of right at 16 are 6 apart, known to within 2, at most 5" in text


def test_a_join_says_who_has_no_partner_yet_and_counts_many(folder: Path) -> None:
    kind = pa.timestamp("us", "UTC")
    sides = [pa.schema({"id": pa.int64(), "ts": kind, name: pa.int64()}) for name in "ab"]
    join = op.Join(on="id", within="5 s", time="ts", how="left")
    stream = op.open(join, schema=sides, record=folder)
    times = [datetime.datetime(2024, 1, 2, 0, 0, n, tzinfo=datetime.UTC) for n in range(8)]
    stream.push({"id": [1] * 8, "ts": times, "a": [0] * 8}, "left")
    stream.heartbeat("right", times[1])
    stream.heartbeat("right", times[7])
    text = list(op.replay(folder))[-1].explain()
    assert "and 1 more of left" in text
    assert "row 0 of left at 2024-01-02 00:00:00" in text
    assert "a partner may come up to 2024-01-02 00:00:11+00:00, it has none yet" in text


def test_a_refused_step_of_a_group_gives_nothing_by_names(tmp_path: Path) -> None:
    query = op.Query("q").order_by("ts").pattern("A").measures(at="A.ts").disorder(op.KSlack(5))
    stream = op.open(op.group(query), record=tmp_path / "run")
    stream.push({"ts": [1]})
    with pytest.raises(op.DataError):
        stream.push(pa.table({"ts": pa.array([None], pa.int64())}))
    taken, refused = op.replay(tmp_path / "run")
    assert list(taken.matches) == ["q"]
    assert refused.error is not None
    assert refused.matches == refused.late == {}
