"""How the tests lie: where a part of Outpace is tested, and that no property is pinned."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
UNIT = PROJECT / "tests" / "unit"


def test_unit_tests_lie_as_the_source_does() -> None:
    """A file may be named after a promise; its folder is that of what it tests."""
    source = PROJECT / "src" / "outpace"
    folders = {file.parent.relative_to(UNIT) for file in UNIT.rglob("test_*.py")}
    assert len(folders) > 10
    assert {str(folder) for folder in folders if not (source / folder).is_dir()} == set()


def test_what_tests_share_is_in_one_folder() -> None:
    assert [file.name for file in (PROJECT / "tests").glob("*.py")] == ["conftest.py"]


def test_no_property_pins_the_number_of_its_examples() -> None:
    """`HYPOTHESIS_PROFILE=explore` raises them all: see `support/properties.py`."""
    tests = [file for file in (PROJECT / "tests").rglob("test_*.py") if file != Path(__file__)]
    pinned = [file.name for file in tests if re.search(r"max_examples\s*=", file.read_text())]
    assert tests
    assert pinned == []
