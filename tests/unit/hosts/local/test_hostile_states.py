"""A saved state is safe to read from anywhere: it is refused, or a stream goes on from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[3]


def test_states_that_nobody_wrote_end_no_process_and_raise_nothing_else() -> None:
    """Longer runs, by hand: `PYTHONPATH=tests python -m support.hostile_states SEED COUNT`."""
    done = subprocess.run(
        [sys.executable, "-m", "support.hostile_states", "1", "100"],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 0, f"state {last} ended the process"
    assert "wrong" not in done.stdout, done.stdout
