"""How the tests lie: where a part of Outpace is tested, and that no property is pinned."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
UNIT = PROJECT / "tests" / "unit"


def test_no_property_pins_the_number_of_its_examples() -> None:
    """`HYPOTHESIS_PROFILE=explore` raises them all: see `examples` of `properties.py`."""
    tests = [file for file in (PROJECT / "tests").rglob("test_*.py") if file != Path(__file__)]
    pinned = [file.name for file in tests if re.search(r"max_examples\s*=", file.read_text())]
    assert tests
    assert pinned == []
