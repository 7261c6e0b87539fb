"""Streams without checkpoints go on from their retained log, in memory or in a folder."""

from __future__ import annotations

import errno
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import outpace as op
from outpace.engine.message import WatermarkArrived
from outpace.hosts.local import recoverable
from outpace.ingest.log.segment_writer import SegmentWriter

CHAIN = (
    op.Query("q")
    .order_by("ts")
    .pattern("A -> B")
    .define(A="k = 'a'", B="k = 'b'")
    .measures(first="A.ts", last="B.ts")
)
WINDOWS = CHAIN.over(op.windows.count(20, slide=5), duplicates=True, numbered=True)


def rows(first: int, size: int) -> pa.Table:
    """Return events that depend on their numbers alone."""
    kinds = [Random(number).choice("abxx") for number in range(first, first + size)]
    keys = [number * 7 % 3 for number in range(first, first + size)]
    columns = {"ts": range(first, first + size), "k": kinds, "key": keys, "unused": [0.5] * size}
    return pa.table(columns)


@pytest.mark.parametrize("query", [CHAIN, WINDOWS, CHAIN.partition_by("key")])
@pytest.mark.parametrize("folder", [False, True])
def test_a_stream_goes_on_from_its_log(query: op.Query, *, folder: bool, tmp_path: Path) -> None:
    whole = op.open(query)
    path = tmp_path / "log" if folder else None
    log = op.recover.RetainedLog(path, segment_bytes=2000)
    stream = op.open(query, recovery="replay", log=log)
    for first in range(0, 400, 10):
        expected = whole.push(rows(first, 10)).to_pylist()
        found = stream.push(rows(first, 10)).to_pylist()
        assert found == expected
        if first % 30 == 0:
            # What was not acknowledged comes out once more.
            log.close()
            log = op.recover.RetainedLog(path, segment_bytes=2000) if folder else log
            stream = op.resume(query, log)
            assert stream.replayed.to_pylist() == expected
        stream.acknowledge()
    assert stream.finish().to_pylist() == whole.finish().to_pylist()
    assert log.came == 400
    assert len(log) < 50


def test_what_no_match_uses_is_dropped_without_an_acknowledgement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recoverable, "NOTICE_EVENTS", 50)
    log = op.recover.RetainedLog()
    stream = op.open(CHAIN.over(op.windows.count(1000)), recovery="replay", log=log)
    found = stream.push(rows(0, 200)).num_rows
    assert len(log) == 200  # They may be acknowledged before the next push.
    stream.push(rows(200, 1))
    # Those of matches stay, the first one opened the window, and one match is not decided.
    assert found * 2 <= len(log) <= found * 2 + 12
    assert log.savepoint is not None
    assert log.savepoint.at == 200


def test_a_full_log_refuses_a_push_until_matches_are_acknowledged() -> None:
    log = op.recover.RetainedLog(events=30)
    stream = op.open(WINDOWS, recovery="replay", log=log)
    found = [stream.push(rows(first, 5)) for first in range(0, 25, 5)]
    assert sum(table.num_rows for table in found)
    with pytest.raises(op.DataError, match="no room for 25 more events"):
        stream.push(rows(25, 25))
    stream.acknowledge()
    whole = op.open(WINDOWS)
    whole.push(rows(0, 25))
    # Nothing of what was refused was taken.
    assert stream.push(rows(25, 15)).to_pylist() == whole.push(rows(25, 15)).to_pylist()


def test_a_push_that_could_not_be_retained_is_pushed_again_after_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = op.recover.RetainedLog(tmp_path / "log")
    stream = op.open(WINDOWS, recovery="replay", log=log)
    stream.push(rows(0, 20))
    stream.acknowledge()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SegmentWriter, "write", full)
        with pytest.raises(op.DataError, match="no space"):
            stream.push(rows(20, 20))
    # The stream is ahead of its log, so it goes on from there.
    for act in (lambda: stream.push(rows(20, 20)), stream.acknowledge, stream.finish):
        with pytest.raises(op.DataError, match="an earlier push failed") as told:
            act()
        assert "op.resume(query, log)" in str(told.value)
    again = op.resume(WINDOWS, log)
    whole = op.open(WINDOWS)
    whole.push(rows(0, 20))
    assert again.push(rows(20, 20)).to_pylist() == whole.push(rows(20, 20)).to_pylist()


def test_a_notice_that_fails_is_no_error_of_the_push(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recoverable, "NOTICE_EVENTS", 10)
    log = op.recover.RetainedLog(tmp_path / "log")
    stream = op.open(WINDOWS, recovery="replay", log=log, schema=rows(0, 1).schema)
    whole = op.open(WINDOWS)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(op.recover.RetainedLog, "_replace", full)
        for first in (0, 20):
            expected = whole.push(rows(first, 20)).to_pylist()
            assert stream.push(rows(first, 20)).to_pylist() == expected
    assert log.came == 40
    stream.push(rows(40, 1))
    log.close()
    again = op.recover.RetainedLog(tmp_path / "log").savepoint
    assert again is not None
    assert again.at == 40


@pytest.mark.parametrize("folder", [False, True])
def test_one_stream_at_a_time_goes_on_with_a_log(*, folder: bool, tmp_path: Path) -> None:
    path = tmp_path / "log" if folder else None
    log = op.recover.RetainedLog(path)
    stream = op.open(WINDOWS, recovery="replay", log=log)
    stream.push(rows(0, 10))
    if folder:
        with pytest.raises(op.DataError, match="another writer"):
            op.resume(WINDOWS, op.recover.RetainedLog(path))
    again = op.resume(WINDOWS, log)
    for act in (lambda: stream.push(rows(10, 5)), stream.acknowledge, stream.finish):
        with pytest.raises(op.DataError, match="another stream"):
            act()
    whole = op.open(WINDOWS)
    whole.push(rows(0, 10))
    assert again.push(rows(10, 5)).to_pylist() == whole.push(rows(10, 5)).to_pylist()


def test_a_folder_that_others_wrote_to_meanwhile_is_read_again(tmp_path: Path) -> None:
    stream = op.open(WINDOWS, recovery="replay", log=op.recover.RetainedLog(tmp_path / "log"))
    stream.push(rows(0, 10))
    stale = op.recover.RetainedLog(tmp_path / "log")
    stream.push(rows(10, 10))
    stream.log.close()
    again = op.resume(WINDOWS, stale)
    assert stale.came == 20
    again.push(rows(20, 1))
    stale.close()
    with pytest.raises(op.DataError, match="21 events"):
        stream.acknowledge()


def test_a_log_whose_first_savepoint_was_lost_begins_anew(tmp_path: Path) -> None:
    log = op.recover.RetainedLog(tmp_path / "log")
    stream = op.open(WINDOWS, recovery="replay", log=log)
    found = stream.push(rows(0, 10)).to_pylist()
    log.close()
    (tmp_path / "log" / "savepoint").unlink()
    again = op.resume(WINDOWS, op.recover.RetainedLog(tmp_path / "log"))
    assert again.replayed.to_pylist() == found


@pytest.mark.parametrize("savepoint", [False, True])
def test_a_log_that_has_begun_without_events_is_empty(*, savepoint: bool, tmp_path: Path) -> None:
    log = op.recover.RetainedLog(tmp_path / "log")
    assert log.is_empty
    op.open(WINDOWS, recovery="replay", log=log, schema=rows(0, 1).schema)
    log.close()
    if not savepoint:
        (tmp_path / "log" / "savepoint").unlink()
    log = op.recover.RetainedLog(tmp_path / "log")
    assert log.is_empty
    stream = op.open(WINDOWS, recovery="replay", log=log)
    expected = op.open(WINDOWS).push(rows(0, 30)).to_pylist()
    assert stream.push(rows(0, 30)).to_pylist() == expected
    assert not log.is_empty
    assert op.resume(WINDOWS, log).replayed.to_pylist() == expected


def test_a_log_that_lost_what_a_savepoint_needs_is_refused(tmp_path: Path) -> None:
    log = op.recover.RetainedLog(tmp_path / "log", segment_bytes=500)
    stream = op.open(WINDOWS, recovery="replay", log=log)
    for first in range(0, 100, 10):
        stream.push(rows(first, 10))
    old = (tmp_path / "log" / "savepoint").read_bytes()
    stream.acknowledge()
    log.close()
    # The events that it was made of are trimmed.
    (tmp_path / "log" / "savepoint").write_bytes(old)
    with pytest.raises(op.StateError, match=r"not retained|is missing"):
        op.resume(WINDOWS, op.recover.RetainedLog(tmp_path / "log"))


def test_the_columns_of_a_log_stay() -> None:
    stream = op.open(CHAIN, recovery="replay", schema=rows(0, 1).schema)
    stream.bind(rows(0, 1).schema)
    with pytest.raises(op.DataError, match="another schema"):
        stream.bind(pa.schema({"ts": pa.int32(), "k": pa.string()}))
    assert stream.push(rows(0, 5)).num_rows == op.open(CHAIN).push(rows(0, 5)).num_rows


def test_rows_that_are_refused_are_not_retained() -> None:
    log = op.recover.RetainedLog()
    stream = op.open(CHAIN, recovery="replay", log=log)
    stream.push(rows(10, 5))
    with pytest.raises(op.DataError):
        stream.push(rows(3, 1))
    assert log.came == 5


def test_time_that_was_told_counts_after_a_replay() -> None:
    query = CHAIN.over(op.windows.time(10), duplicates=True)
    log = op.recover.RetainedLog()
    stream = op.open(query, recovery="replay", log=log)
    stream.push(rows(0, 9))
    stream.advance(40)
    again = op.resume(query, log)
    with pytest.raises(op.DataError):
        again.push(rows(9, 1))


RISES = CHAIN.pattern("A B+").measures(first="A.ts", last="LAST(B.ts)")


def test_windows_that_time_closes_give_their_matches_after_an_acknowledgement() -> None:
    query = RISES.partition_by("key").over(op.windows.session(5), numbered=True)
    log = op.recover.RetainedLog()
    stream = op.open(query, recovery="replay", log=log)
    keys = [*"xxxxxxyyy"]
    stream.push({"ts": [0, 1, 11, 12, 21, 22, 23, 24, 25], "k": [*"abababbab"], "key": keys})
    assert stream.advance(28)["key"].to_pylist() == ["x"]
    stream.acknowledge()
    # The window of y has a smaller number than that of x, which time closed before.
    assert stream.advance(36)["key"].to_pylist() == ["y"]
    assert op.resume(query, log).replayed["key"].to_pylist() == ["y"]
    stream = op.resume(query, log)
    stream.acknowledge()
    assert op.resume(query, log).replayed.num_rows == 0


@pytest.mark.parametrize("query", [RISES.over(op.windows.time(5)), RISES.within(4), RISES])
def test_the_end_is_replayed_until_it_is_acknowledged(query: op.Query) -> None:
    log = op.recover.RetainedLog()
    stream = op.open(query, recovery="replay", log=log)
    stream.push({"ts": [1, 2], "k": ["a", "b"]})
    stream.advance(4)
    assert stream.finish().num_rows == 1
    again = op.resume(query, log)
    assert again.replayed.to_pylist() == [{"first": 1, "last": 2}]
    with pytest.raises(op.DataError, match="finished"):
        again.finish()
    again.acknowledge()
    assert op.resume(query, log).replayed.num_rows == 0


def test_times_that_say_no_more_are_not_retained(tmp_path: Path) -> None:
    log = op.recover.RetainedLog(tmp_path / "log")
    stream = op.open(CHAIN.over(op.windows.time(10)), recovery="replay", log=log)
    stream.push(rows(0, 1))
    for at in range(2, 20):
        stream.advance(at)
    assert log.stimuli == [(1, WatermarkArrived(19))]
    assert op.recover.RetainedLog(tmp_path / "log").stimuli == log.stimuli
    stream.push(rows(30, 1))
    stream.acknowledge()
    assert op.recover.RetainedLog(tmp_path / "log").stimuli == []


SHUFFLED = [
    CHAIN.disorder(op.KSlack(6, late="side")),
    WINDOWS.disorder(op.KSlack(6)),
    WINDOWS.partition_by("key").disorder(op.MPKSlack()),
    CHAIN.over(op.windows.time(20, slide=5)).disorder(op.AQKSlack(error=0.1)),
]


def shuffled(first: int, size: int) -> pa.Table:
    """Return events that depend on their numbers alone, some of which come late."""
    numbers = range(first, first + size)
    order = sorted(numbers, key=lambda number: number + Random(number).random() * 8)
    return rows(first, size).take(pa.array([number - first for number in order]))


@pytest.mark.parametrize("query", SHUFFLED)
@pytest.mark.parametrize("folder", [False, True])
def test_a_stream_out_of_order_goes_on_from_its_log(
    query: op.Query, *, folder: bool, tmp_path: Path
) -> None:
    whole = op.open(query)
    path = tmp_path / "log" if folder else None
    log = op.recover.RetainedLog(path, segment_bytes=4000)
    stream = op.open(query, recovery="replay", log=log)
    for first in range(0, 400, 20):
        pieces = shuffled(first, 20)
        expected = whole.push(pieces.slice(0, 13)).to_pylist()
        expected += whole.push(pieces.slice(13)).to_pylist()
        found = stream.push(pieces.slice(0, 13)).to_pylist()
        assert found + stream.push(pieces.slice(13)).to_pylist() == expected
        if first % 60 == 0:
            log.close()
            log = op.recover.RetainedLog(path, segment_bytes=4000) if folder else log
            stream = op.resume(query, log)
            assert stream.replayed.to_pylist() == expected
            assert (stream.buffered, stream.watermark) == (whole.buffered, whole.watermark)
        stream.acknowledge()
    assert stream.finish().to_pylist() == whole.finish().to_pylist()
    assert log.came == 400
    assert len(log) < 120


@pytest.mark.parametrize("query", [WINDOWS, CHAIN, WINDOWS.disorder(op.KSlack(4, patience=None))])
@pytest.mark.parametrize("folder", [False, True])
def test_several_sources_go_on_from_their_log(
    query: op.Query, *, folder: bool, tmp_path: Path
) -> None:
    path = tmp_path / "log" if folder else None
    log = op.recover.RetainedLog(path)
    whole = op.open(query, sources=["east", "west"])
    stream = op.open(query, recovery="replay", log=log, sources=["east", "west"])
    for turn, first in enumerate(range(0, 300, 15)):
        name = "east" if turn % 3 else "west"
        expected = whole.push(rows(first, 15), name).to_pylist()
        assert stream.push(rows(first, 15), name).to_pylist() == expected
        other = "west" if turn % 3 else "east"
        told = whole.heartbeat(other, first).to_pylist()
        assert stream.heartbeat(other, first).to_pylist() == told
        if turn % 4 == 0:
            log.close()
            log = op.recover.RetainedLog(path) if folder else log
            # The log knows the sources.
            stream = op.resume(query, log)
            assert stream.replayed.to_pylist() == expected + told
            assert stream.came == {
                "east": whole_of(turn, 15, "east"),
                "west": log.came - (whole_of(turn, 15, "east")),
            }
        stream.acknowledge()
    for name in ("east", "west"):
        assert stream.finish(name).to_pylist() == whole.finish(name).to_pylist()


def whole_of(turn: int, size: int, source: str) -> int:
    """Return how many events a source has sent up to a turn."""
    return size * sum(("east" if one % 3 else "west") == source for one in range(turn + 1))


def test_a_piece_that_could_not_be_retained_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = WINDOWS.disorder(op.KSlack(6))
    log = op.recover.RetainedLog(tmp_path / "log")
    stream = op.open(query, recovery="replay", log=log)
    whole = op.open(query)
    assert stream.push(shuffled(0, 20)).to_pylist() == whole.push(shuffled(0, 20)).to_pylist()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SegmentWriter, "write", full)
        with pytest.raises(op.DataError, match="no space"):
            stream.push(shuffled(20, 20))
    # What was told of the piece is there, and its events are not.
    for first in (20, 40):
        stream = op.resume(query, log)
        assert log.came == first
        expected = whole.push(shuffled(first, 20)).to_pylist()
        assert stream.push(shuffled(first, 20)).to_pylist() == expected


@pytest.mark.parametrize("query", [WINDOWS, WINDOWS.disorder(op.KSlack(6))])
def test_a_savepoint_that_has_no_room_loses_nothing(
    query: op.Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = op.recover.RetainedLog(tmp_path / "log")
    stream = op.open(query, recovery="replay", log=log)
    found = stream.push(shuffled(0, 40) if query.order_of_arrival else rows(0, 40)).to_pylist()
    assert found
    opens = Path.open

    def full(path: Path, *args: Any, **settings: Any) -> Any:
        if path.suffix == ".new":
            raise OSError(errno.ENOSPC, "No space left on device")
        return opens(path, *args, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(op.DataError, match=r"cannot write(?s:.)*no space left on device"):
            stream.acknowledge()
    # Whoever goes on from the folder gets them again, and the stream can acknowledge them still.
    log.close()
    again = op.resume(query, op.recover.RetainedLog(tmp_path / "log"))
    assert again.replayed.to_pylist() == found
    again.log.close()
    stream.acknowledge()
    log.close()
    again = op.resume(query, op.recover.RetainedLog(tmp_path / "log"))
    assert again.replayed.num_rows == 0


def test_what_was_told_half_is_not_counted(tmp_path: Path) -> None:
    query = WINDOWS.disorder(op.KSlack(6))
    log = op.recover.RetainedLog(tmp_path / "log")
    stream = op.open(query, recovery="replay", log=log)
    stream.push(shuffled(0, 20))
    stream.advance(12)
    log.close()
    told = tmp_path / "log" / "stimuli"
    told.write_bytes(told.read_bytes()[:-3])
    log = op.recover.RetainedLog(tmp_path / "log")
    whole = op.open(query)
    whole.push(shuffled(0, 20))
    stream = op.resume(query, log)
    assert stream.watermark == whole.watermark
    for one in (whole, stream):
        one.advance(15)
    assert op.resume(query, log).watermark == whole.watermark == 15


@pytest.mark.parametrize("query", [WINDOWS, WINDOWS.disorder(op.KSlack(6))])
@pytest.mark.parametrize("damage", ["turned", "cut", "other", "none"])
def test_a_damaged_log_is_refused_or_gives_the_same(
    query: op.Query, damage: str, tmp_path: Path
) -> None:
    log = op.recover.RetainedLog(tmp_path / "log")
    stream = op.open(query, recovery="replay", log=log)
    for first in range(0, 80, 20):
        stream.push(shuffled(first, 20) if query.order_of_arrival else rows(first, 20))
    log.close()

    def outcome(name: str, data: bytes | None) -> tuple[object, ...]:
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
        shutil.copytree(tmp_path / "log", tmp_path / "again")
        changed = tmp_path / "again" / name
        changed.unlink() if data is None else changed.write_bytes(data)
        again = op.resume(query, op.recover.RetainedLog(tmp_path / "again"))
        found = again.replayed.to_pylist(), again.push(rows(90, 20)).to_pylist(), again.log.came
        again.log.close()
        return found

    want, refused = outcome("writer.lock", b""), 0
    for name in sorted(one.name for one in (tmp_path / "log").iterdir()):
        whole = (tmp_path / "log" / name).read_bytes()
        for place in range(7, len(whole), len(whole) // (1 if damage == "none" else 4) + 1):
            data: bytes | None = None
            if damage == "turned":
                data = whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :]
            elif damage == "cut":
                data = whole[:place]
            elif damage == "other":
                data = Random(place).randbytes(len(whole))
            try:
                assert outcome(name, data) == want
            except op.OutpaceError:
                refused += 1
    assert refused


def test_timers_count_after_a_replay() -> None:
    query = CHAIN.disorder(op.Sequence("1 ms"))
    log = op.recover.RetainedLog()
    stream = op.open(query, recovery="replay", log=log)
    columns = {"ts": [1, 4], "k": ["a", "b"], "seq": [0, 2]}
    assert stream.push(columns).num_rows == 0
    assert op.resume(query, log).timer == stream.timer is not None
    stream = op.resume(query, log)
    time.sleep(0.002)
    assert stream.wake().num_rows == 1
    assert op.resume(query, log).replayed.num_rows == 1


def test_what_cannot_be_recovered_is_refused(tmp_path: Path) -> None:
    log = op.recover.RetainedLog()
    corrected = CHAIN.disorder(op.KSlack(3, late="correct", horizon=9))
    with pytest.raises(op.UnsupportedError, match="late events correct"):
        op.open(corrected, recovery="replay", schema=rows(0, 1).schema)
    passed = CHAIN.disorder(op.KSlack(3, late="pass"))
    with pytest.raises(op.UnsupportedError, match="passed on get other times"):
        op.open(passed, recovery="replay", schema=rows(0, 1).schema)
    with pytest.raises(op.UnsupportedError, match="no recovery 'checkpoint'"):
        op.open(CHAIN, recovery="checkpoint")  # type: ignore[call-overload]  # refused
    with pytest.raises(op.StateError, match="is empty"):
        op.resume(CHAIN, log)
    stream = op.open(CHAIN, recovery="replay", log=log)
    stream.push(rows(0, 5))
    with pytest.raises(op.StateError, match="has events already"):
        op.open(CHAIN, recovery="replay", log=log)
    with pytest.raises(op.StateError, match="another query"):
        op.resume(WINDOWS, log)
    with pytest.raises(op.StateError, match="single query"):
        op.resume(CHAIN, log, timeouts=True)  # type: ignore[call-overload]  # refused
    with pytest.raises(op.DataError, match="saves no state"):
        stream.state()
    plain = op.open(CHAIN)
    with pytest.raises(op.DataError, match="from no state"):
        stream.restore(plain.state())
    for number in ((4, None), (None, 4), (4.5, 0), (True, 0)):
        with pytest.raises(op.DataError, match=r"two parts|whole number"):
            stream.acknowledge(*number)  # type: ignore[arg-type]  # refused


KILLED = """
import sys
import outpace as op
from test_recoverable import WINDOWS, rows
log = op.recover.RetainedLog(sys.argv[1], durable=True)
stream = op.open(WINDOWS, recovery="replay", log=log)
for first in range(0, 10**6, 10):
    stream.push(rows(first, 10))
    if first % 70 == 0:
        stream.acknowledge()
    print(first, flush=True)
"""


def test_a_log_survives_the_kill_of_its_process(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, cwd=Path(__file__).parent) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 200:
            pass
        process.send_signal(signal.SIGKILL)
    log = op.recover.RetainedLog(path)
    stream = op.resume(WINDOWS, log)
    whole = op.open(WINDOWS)
    given = whole.push(rows(0, log.came)).to_pylist()
    replayed = stream.replayed.to_pylist()
    assert log.savepoint is not None
    # All that had come was acknowledged then.
    assert log.savepoint.at % 70 == 10
    assert replayed == [row for row in given if row["match_event"] >= log.savepoint.at]
    assert len(log) < log.came
    assert (
        stream.push(rows(log.came, 30)).to_pylist()
        == whole.push(rows(log.came - 30, 30)).to_pylist()
    )
