"""What tests of the commands share."""

import importlib
from pathlib import Path

import pytest


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark be seen where it should not start: it cannot."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    # Another test of this process may have a session.
    sessions = importlib.import_module("outpace.hosts.spark.session")
    monkeypatch.setattr(sessions, "_active", lambda: None)
