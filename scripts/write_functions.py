"""Write the tables of functions in docs/reference/expressions.md from the registry.

Run it after a change of the registry: `.venv/bin/python scripts/write_functions.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

from outpace.pattern.functions.aggregate import AGGREGATES
from outpace.pattern.functions.arithmetic import ARITHMETIC
from outpace.pattern.functions.choice import CHOICES
from outpace.pattern.functions.collection import COLLECTIONS
from outpace.pattern.functions.condition import CONDITIONS
from outpace.pattern.functions.function import Aggregator, Function
from outpace.pattern.functions.number import NUMBERS
from outpace.pattern.functions.search import SEARCHES
from outpace.pattern.functions.text import TEXTS
from outpace.pattern.functions.time import TIMES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "expressions.md"
TABLES: dict[str, tuple[Function, ...]] = {
    "conditions": CONDITIONS + CHOICES,
    "numbers": ARITHMETIC + NUMBERS,
    "texts": TEXTS + SEARCHES,
    "times": TIMES,
    "collections": COLLECTIONS,
}
#: A comment that names a table, and the table below it.
_PLACE = re.compile(r"(?<=^<!-- table: )(\w+)( -->\n)(?:\|.*\n)*", re.MULTILINE)


def written(page: str) -> str:
    """Return the page with the tables that the registry gives."""
    return _PLACE.sub(lambda place: place[1] + place[2] + _table(place[1]), page)


def _table(name: str) -> str:
    if name == "aggregates":
        head, rows = ["name", "also", "value"], [_names(entry) for entry in AGGREGATES]
    else:
        head = ["name", "also", "value", "example", "besides Python"]
        rows = [
            [*_names(entry), _code(entry.example), ", ".join(_evaluators(entry))]
            for entry in TABLES[name]
        ]
    lines = (f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))
    return "".join(line.replace("|  |", "| |") for line in lines)


def _names(entry: Function | Aggregator) -> list[str]:
    return [_code(entry.name), ", ".join(map(_code, entry.aliases)), entry.about]


def _evaluators(entry: Function) -> list[str]:
    meanings = {"Arrow": entry.arrow, "Numba": entry.numba, "Catalyst": entry.catalyst}
    return [name for name, meaning in meanings.items() if meaning is not None]


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
