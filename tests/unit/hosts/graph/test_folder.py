"""A run that is lost as a whole, with sources, sinks and monitor, goes on from its folder."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.graphs import WINDOWS, PacedRows, chain, diamond, expected, letters

import outpace as op
from outpace.engine.state import State
from outpace.hosts.graph.message import read_backups
from outpace.ingest.log.folder import open_folder
from outpace.ingest.log.frame import read_mark

PROGRAM = """
import sys
import outpace as op
from support.graphs import WINDOWS, PacedRows, chain, diamond, letters

folder, shape, kind, count = sys.argv[1:]
operators = {"chain": chain, "diamond": diamond}[shape](WINDOWS[kind])
source = PacedRows("events", rows=letters(int(count), 3))
sinks = {list(operators)[-1]: f"{folder}/log"}
with op.graph(source, operators, sinks).run(f"{folder}/graph") as run:
    run.tables()
"""


def start(*arguments: str) -> subprocess.Popen[bytes]:
    # The program draws its graph as the tests do.
    places = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], env=environment)


def lost_and_run_again(
    folder: Path, shape: str, kind: str, count: int, seed: int, kills: int
) -> int:
    """Kill some runs, let the next one end, and return how many were lost."""
    draw, lost = random.Random(seed), 0
    while True:
        run = start(str(folder), shape, kind, str(count))
        if lost < kills:
            _await_savepoints(folder / "graph" / "savepoints", run)
            time.sleep(draw.uniform(0, 0.5))
            run.send_signal(signal.SIGKILL)
        code = run.wait(300)
        if code == 0:
            return lost
        assert code == -signal.SIGKILL
        saved = State.decode((folder / "graph" / "savepoints").read_bytes())
        assert any(backup.savepoint.at > 0 for backup in read_backups(saved))
        lost += 1


def _await_savepoints(file: Path, run: subprocess.Popen[bytes]) -> None:
    """Wait until the run has written savepoints, or has ended."""
    before = file.stat().st_mtime_ns if file.exists() else 0
    size = file.stat().st_size if file.exists() else 0
    end = time.monotonic() + 120
    while run.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
        if (
            file.exists()
            and file.stat().st_mtime_ns > before
            and file.stat().st_size > max(size // 2, 1000)
        ):
            return


def check(folder: Path, shape: str, kind: str, count: int) -> None:
    operators = {"chain": chain, "diamond": diamond}[shape](WINDOWS[kind])
    want = expected(letters(count, 3), operators)[list(operators)[-1]]
    assert op.log.open(folder / "log").read().equals(want)


def settled_before(saved: Path, last: int) -> Callable[[int], None]:
    """Let a source send its last batch when matches are acknowledged that the folder knows of."""

    def settled() -> bool:
        backups = read_backups(State.decode(saved.read_bytes()))
        return any(one.operator == "three" and one.settled for one in backups)

    def wait(number: int) -> None:
        end = time.monotonic() + 60
        while number == last and not settled() and time.monotonic() < end:
            time.sleep(0.05)

    return wait


def test_a_run_that_is_killed_as_a_whole_goes_on(tmp_path: Path) -> None:
    assert lost_and_run_again(tmp_path, "chain", "count", 6000, seed=1, kills=1) == 1
    check(tmp_path, "chain", "count", 6000)


@pytest.mark.soak
@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("shape", ["chain", "diamond"])
@pytest.mark.parametrize("seed", range(3))
def test_runs_that_are_killed_as_a_whole_go_on(
    tmp_path: Path, shape: str, kind: str, seed: int
) -> None:
    lost_and_run_again(tmp_path, shape, kind, 12_000, seed, kills=3)
    check(tmp_path, shape, kind, 12_000)


def test_a_run_that_has_ended_gives_nothing_again_to_its_log(tmp_path: Path) -> None:
    rows = letters(2000, 1)
    operators = chain(WINDOWS["count"])
    want = expected(rows, operators)["three"]
    for _ in range(2):
        source = PacedRows("events", rows=rows)
        graph = op.graph(source, operators, {"three": tmp_path / "log"})
        with graph.run(tmp_path / "graph") as run:
            assert run.tables() == {}
        assert op.log.open(tmp_path / "log").read().equals(want)


def test_what_comes_out_here_and_was_taken_does_not_come_again(tmp_path: Path) -> None:
    rows = letters(4000, 1)
    operators = chain(WINDOWS["time"])
    want = expected(rows, operators)["three"]
    wait = settled_before(tmp_path / "graph" / "savepoints", 99)
    graph = op.graph(PacedRows("events", rows=rows, before=wait), operators)
    with graph.run(tmp_path / "graph") as run:
        first = run.tables()["three"]
    assert first.equals(want)
    with graph.run(tmp_path / "graph") as run:
        again = run.tables()["three"]
    # What was acknowledged before the last savepoint does not; the rest comes as it was.
    assert again.num_rows < want.num_rows
    assert again.equals(want.slice(want.num_rows - again.num_rows))


def test_a_log_that_has_less_than_before_is_refused(tmp_path: Path) -> None:
    """Matches that were acknowledged do not come again, so they would be missing for ever."""
    wait = settled_before(tmp_path / "graph" / "savepoints", 49)
    source = PacedRows("events", rows=letters(2000, 1), before=wait)
    graph = op.graph(source, chain(WINDOWS["count"]), {"three": tmp_path / "log"})
    with graph.run(tmp_path / "graph") as run:
        run.tables()
    shutil.rmtree(tmp_path / "log")
    with (
        graph.run(tmp_path / "graph") as run,
        pytest.raises(op.DataError, match="has 0 matches, and the run goes on behind"),
    ):
        run.tables()


def test_folders_of_others_are_refused(tmp_path: Path) -> None:
    source = PacedRows("events", rows=letters(200, 1))
    graph = op.graph(source, chain(WINDOWS["count"]))
    with graph.run(tmp_path), pytest.raises(op.DataError, match="another run has the folder"):
        graph.run(tmp_path)
    other = op.graph(source, chain(WINDOWS["time"]))
    with pytest.raises(op.StateError, match="is that of another graph"):
        other.run(tmp_path)
    (tmp_path / "savepoints").write_bytes(b"nothing")
    with pytest.raises(op.StateError) as caught:
        graph.run(tmp_path)
    assert str(tmp_path / "savepoints") in str(caught.value)
    (tmp_path / "savepoints").unlink()
    os.mkfifo(tmp_path / "savepoints")
    with pytest.raises(op.DataError, match="is no regular file"):
        graph.run(tmp_path)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(op.DataError, match="cannot keep savepoints in"):
            graph.run(path)


def test_a_disk_without_room_ends_the_run_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = letters(3000, 1)
    operators = chain(WINDOWS["count"])
    full, refused = False, threading.Event()

    def wait(number: int) -> None:
        """Send the last events when savepoints could not be written."""
        if full and number == 49:
            refused.wait(60)

    def write(path: Path, *args: Any, **settings: Any) -> Any:
        if full and path.name == "savepoints.new":
            refused.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opens(path, *args, **settings)

    source = PacedRows("events", rows=rows, before=wait)
    graph = op.graph(source, operators, {"three": tmp_path / "log"})

    opens = Path.open
    monkeypatch.setattr(Path, "open", write)
    with graph.run(tmp_path / "graph") as run:
        full = True
        with pytest.raises(op.DataError, match=r"cannot keep savepoints in .*: no space left"):
            run.tables()
    full = False
    with graph.run(tmp_path / "graph") as run:
        run.tables()
    want = expected(rows, operators)["three"]
    assert op.log.open(tmp_path / "log").read().equals(want)


def test_what_is_acknowledged_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that crashes takes what is not there, so both files say how far they are."""
    saved, forced = tmp_path / "graph" / "savepoints", list[str]()
    synchronise, replaces = os.fsync, Path.replace

    def note(handle: int) -> None:
        forced.append(Path(f"/proc/self/fd/{handle}").resolve().name)
        synchronise(handle)

    def replace(path: Path, target: Path) -> Path:
        forced.append("replaced")
        return replaces(path, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(Path, "replace", replace)
    wait = settled_before(saved, 49)
    source = PacedRows("events", rows=letters(2000, 1), before=wait)
    graph = op.graph(source, chain(WINDOWS["count"]), {"three": tmp_path / "log"})
    with graph.run(saved.parent) as run:
        run.tables()
    ended = [place for place, name in enumerate(forced) if name == "replaced"]
    assert len(ended) > 1
    for place in ended:
        assert (forced[place - 1], forced[place + 1]) == ("savepoints.new", "graph")
    folder = open_folder(tmp_path / "log")
    mark = read_mark(folder.index_file(0).read_bytes(), folder.salt)
    assert mark is not None
    assert mark.stop == op.log.open(tmp_path / "log").stop > 0


def test_a_log_of_something_else_is_refused(tmp_path: Path) -> None:
    source = PacedRows("events", rows=letters(200, 1))
    op.log.create(tmp_path / "log", letters(1, 1).schema)
    graph = op.graph(source, chain(WINDOWS["count"]), {"three": tmp_path / "log"})
    for _ in range(2):
        with graph.run(tmp_path / "graph") as run, pytest.raises(op.DataError, match="already"):
            run.tables()
