"""`outpace clock`: a server and a source in processes of their own, and clear errors."""

from __future__ import annotations

import json
import re
import subprocess
import sysconfig
from collections import OrderedDict
from pathlib import Path

from typer.testing import CliRunner

from outpace.cli.clock import compared_with
from outpace.cli.main import app
from outpace.engine.message import ClockExchange
from outpace.engine.order.drift import SourceClock
from outpace.ingest.clock import SOURCES_MAX, ClockSync

OUTPACE = Path(sysconfig.get_path("scripts")) / "outpace"


def test_a_source_asks_a_server() -> None:
    server = subprocess.Popen(
        [OUTPACE, "clock", "serve", "--port", "0", "--source", "east", "--seconds", "20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        assert server.stdout is not None
        found = re.search(r"port (\d+)", server.stderr.readline())
        assert found is not None
        asked = ["clock", "ask", f"127.0.0.1:{found[1]}", "--source", "east"]
        done = CliRunner().invoke(app, [*asked, "--times", "3", "--every", "0"])
        assert done.exit_code == 0, done.output
        told = json.loads(done.output)
        assert told["exchanges"] + told["lost"] == 3
        assert abs(told["drift_us"]) <= told["bound_us"]
        line = json.loads(server.stdout.readline())
        assert (line["source"], line["exchanges"]) == ("east", 1)
    finally:
        server.terminate()
        server.communicate(timeout=10)


def test_errors_are_clear() -> None:
    for arguments, told in [
        (["ask", "here", "--source", "east"], "'here' is no address"),
        (["ask", "here:" + "9" * 5000, "--source", "east"], "is no address"),
        (["ask", "127.0.0.1:99999", "--source", "east"], "'127.0.0.1:99999' is no address"),
        (["serve", "--port", "99999", "--seconds", "0"], "cannot serve clocks"),
        (["ask", "127.0.0.1:9", "--source", "x" * 99], "has 1 to 64 bytes"),
        (["ask", "127.0.0.1:9", "--source", "x", "--timeout", "1e30"], "timeout is at most"),
        (["ask", "127.0.0.1:9", "--source", "x", "--every", "1e30"], "'--every'"),
    ]:
        done = CliRunner().invoke(app, ["clock", *arguments])
        assert done.exit_code == 2, done.output
        assert told in done.stderr
    with ClockSync(["west"], port=0) as sync:
        place = "{}:{}".format(*sync.address)
        asked = ["clock", "ask", place, "--source", "east", "--times", "1"]
        done = CliRunner().invoke(app, asked)
    assert (done.exit_code, "does not serve the source 'east'" in done.stderr) == (2, True)
    done = CliRunner().invoke(app, [*asked, "--timeout", "0.05"])
    assert (done.exit_code, "nobody answers" in done.stderr) == (2, True)


def test_sources_that_asked_last_are_remembered() -> None:
    known = OrderedDict[str, SourceClock]()
    names = [*map(str, range(SOURCES_MAX)), "0", "one more", "0"]
    counted = [compared_with(known, ClockExchange(name, 0, 5, 5, 10)).exchanges for name in names]
    assert counted[-3:] == [2, 1, 3]
    assert (len(known), "1" in known) == (SOURCES_MAX, False)
