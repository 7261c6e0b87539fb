"""The streaming program under test: started in a session of its own, again and again if need be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from chaos import processes

TESTS = Path(__file__).resolve().parents[1]
#: Programs that live for seconds gain nothing from Java's slow compiler.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Program:
    """`chaos.driver` in a folder; a context manager that leaves no process behind.

    Parameters
    ----------
    folder
        Where the program finds its log and keeps its checkpoint.
    about
        What it does; see `chaos.driver`.
    """

    def __init__(self, folder: Path, about: dict[str, object]) -> None:
        (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
        self._folder = folder
        self._sessions: list[int] = []
        self._starts = 0
        self.start()

    def start(self) -> None:
        """Start it, for the first time or after its end."""
        self._starts += 1
        # A number is free for others once the session is empty.
        self._sessions = [session for session in self._sessions if processes.processes(session)]
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        with self._log.open("wb") as log:
            self._running = subprocess.Popen(
                [sys.executable, "-m", "chaos.driver", str(self._folder)],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": path, "JAVA_TOOL_OPTIONS": JAVA_OPTIONS},
                start_new_session=True,
            )
        self._sessions.append(self.session)

    @property
    def session(self) -> int:
        """The session of its processes, which is the id of the first of them."""
        return self._running.pid

    @property
    def has_ended(self) -> bool:
        """Whether the first of its processes has ended."""
        return self._running.poll() is not None

    @property
    def said(self) -> str:
        """Where its last run has written to, and the end of that."""
        return f"{self._log}\n" + self._log.read_text("utf-8", "replace")[-2000:]

    def ask_to_stop(self) -> None:
        """Ask it to stop by itself, now or as soon as it runs."""
        (self._folder / "stop").touch()

    def wait(self, seconds: float | None = None) -> int | None:
        """Return its exit code, None where it goes on for longer."""
        try:
            return self._running.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._sessions:
            while alive := processes.processes(session):
                for each in alive:
                    each.kill()
                time.sleep(0.05)
        self._running.wait()

    @property
    def _log(self) -> Path:
        return self._folder / f"driver-{self._starts}.log"
