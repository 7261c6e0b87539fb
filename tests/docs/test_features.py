"""docs/features.md is true: every id is there, every path exists, "not yet" only without a path."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "features.md"

#: How many rows each group of capabilities has.
GROUPS = {"L": 10, "P": 12, "Q": 9, "R": 9, "O": 9, "C": 15, "S": 8}
IDS = [f"{group}{number}" for group, count in GROUPS.items() for number in range(1, count + 1)]


@dataclass(frozen=True)
class Row:
    id: str
    capability: str
    lives_in: str
    shown_by: str


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and re.fullmatch(r"[A-Z]\d+", cells[0]):
            found.append(Row(*cells))
    return found


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_capability_has_one_row() -> None:
    assert [row.id for row in rows()] == IDS


def test_the_ids_are_those_of_the_list_of_features(shared: Path) -> None:
    text = (shared / "FEATURES.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| ([A-Z]\d+) \|", text, re.MULTILINE) == IDS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_a_row_names_what_exists(row: Row) -> None:
    assert row.capability
    if not row.lives_in:
        assert row.shown_by == "not yet"
        return
    assert "not yet" not in row.shown_by
    modules, tests = quoted(row.lives_in), quoted(row.shown_by)
    assert modules
    assert tests
    assert all(test.startswith("tests/") for test in tests)
    missing = [path for path in modules + tests if not (PROJECT / path).exists()]
    assert not missing
