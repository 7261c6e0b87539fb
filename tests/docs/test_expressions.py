"""The tables of functions and aggregates in the reference are those of the registry."""

import re
from pathlib import Path

from outpace.pattern.functions.aggregate import AGGREGATES
from outpace.pattern.functions.registry import FUNCTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "expressions.md"
ROW = re.compile(r"^\| `(\w+)` \|([^|]*)\|", re.MULTILINE)

#: Operators and forms that have names in the registry but their own syntax in the language.
SYNTAX = {"and", "or", "not", "in", "case", "cast", "try_cast"}


def documented(heading: str) -> set[str]:
    text = PAGE.read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    names: list[str] = []
    for name, aliases in ROW.findall(section):
        names += [name, *re.findall(r"`(\w+)`", aliases)]
    assert len(names) == len(set(names)), "a name stands in the tables twice"
    return set(names)


def test_every_function_is_documented_and_every_documented_one_exists() -> None:
    known = {name for f in FUNCTIONS for name in (f.name, *f.aliases) if name.isidentifier()}
    assert documented("Functions") == known - SYNTAX


def test_every_aggregate_is_documented_and_every_documented_one_exists() -> None:
    known = {name for a in AGGREGATES for name in (a.name, *a.aliases)}
    assert documented("Aggregates") == known
