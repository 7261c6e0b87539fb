"""What all tests share: Hypothesis profiles, shared material, and what a machine must have."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from support.postgres_server import programs, server
from support.properties import USUAL
from xdist.scheduler import LoadScopeScheduling

from outpace.compiler.kernel import load_numba

# Tests are about what is compiled, not about the small inputs that are done before Numba is there.
load_numba()
# Arrow looks for pandas once, and a command that a test runs in this process may have hidden it.
pa.array([])

# Javas that live for minutes beside Python workers gain nothing from the slow compiler and the
# threads of the parallel collector. Spark's launcher reads this without a word about it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

PROJECT = Path(__file__).resolve().parents[1]

# The first example of a property may compile a kernel, so neither a deadline nor a slow first
# example means anything. `ci` draws the same examples in every run, so that a fresh clone gives
# the same verdict everywhere; `explore` looks for new failures and prints how to repeat them.
settings.register_profile(
    "ci",
    max_examples=USUAL * 7 // 10,  # As much as twenty minutes allow.
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore",
    max_examples=2_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


class SparkAside(LoadScopeScheduling):
    """Gives all that needs Spark to one worker: two local sessions would share the cores."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith(("tests/spark/", "tests/chaos/")) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SparkAside:
    """Let several workers share the tests that way."""
    return SparkAside(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long unless the command line selects by marker itself."""
    if config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker("soak")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of conformance cases and data that lies beside the project."""
    folder = PROJECT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the folder ../shared is not here")
    return folder


@pytest.fixture(scope="session")
def java() -> None:
    """Skips what needs Java where there is none."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or newer, and none is here")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server that the tests start and stop."""
    if programs() is None:
        pytest.skip("PostgreSQL's server programs are not installed: sh scripts/postgres.sh")
    with server() as address:
        yield address
