"""A PostgreSQL server of the tests' own: in a temporary folder, on nothing but a Unix socket."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

PACKAGES = Path("/usr/lib/postgresql")
START_SECONDS_MAX = 60


def programs() -> Path | None:
    """The folder with the server's programs: the newest of Debian's packages, or on the PATH."""
    versions = PACKAGES.glob("*/bin/initdb")
    packaged = sorted(versions, key=lambda found: float(found.parts[-3]))
    if packaged:
        return packaged[-1].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


@contextmanager
def server() -> Iterator[str]:
    """Start a server with an empty cluster, give its address, and stop it at the end."""
    folder = programs()
    assert folder is not None, "PostgreSQL is not installed"
    # A user other than root must be able to reach it, which pytest's own folders forbid.
    with tempfile.TemporaryDirectory(prefix="outpace-postgres-", dir="/tmp") as place:
        owner = _owner(Path(place))
        data = Path(place) / "data"
        run = {"user": owner, "cwd": place} if owner else {"cwd": place}
        subprocess.run(
            [folder / "initdb", "-D", data, "-A", "trust", "-U", "outpace", "-E", "UTF8", "-N"],
            check=True,
            capture_output=True,
            **run,
        )
        options = ["-k", place, "-c", "listen_addresses=", "-c", "fsync=off"]
        with (Path(place) / "log").open("wb") as log:
            started = subprocess.Popen(
                [folder / "postgres", "-D", data, *options], stdout=log, stderr=log, **run
            )
        try:
            yield _wait(f"host={place} user=outpace dbname=postgres", started, Path(place) / "log")
        finally:
            started.send_signal(signal.SIGINT)
            started.wait()


def _owner(place: Path) -> str | None:
    """Who runs the server, which refuses to run as root; None where that is us."""
    if os.getuid() != 0:
        return None
    known = {user.pw_name for user in pwd.getpwall()}
    owner = "postgres" if "postgres" in known else "nobody"
    shutil.chown(place, owner)
    return owner


def _wait(address: str, started: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            psycopg.connect(address).close()
            return address
        except psycopg.OperationalError:
            if started.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL did not start: {log.read_text()}") from None
            time.sleep(0.05)
