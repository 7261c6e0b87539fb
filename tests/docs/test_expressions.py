"""The tables of functions and aggregates in the reference are those of the registry."""

import runpy
from pathlib import Path

from outpace.pattern.functions import FUNCTIONS

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "write_functions.py"


def test_the_tables_are_what_the_registry_gives() -> None:
    script = runpy.run_path(str(SCRIPT))
    page = script["PAGE"].read_text(encoding="utf-8")
    assert page == script["written"](page), f"run {SCRIPT.name} and look at what it changed"
    assert all(f"<!-- table: {name} -->" in page for name in (*script["TABLES"], "aggregates"))
    assert {f.name for table in script["TABLES"].values() for f in table} == {
        function.name for function in FUNCTIONS
    }
