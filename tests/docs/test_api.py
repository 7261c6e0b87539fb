"""The page of the Python API is what the docstrings give, and leaves no public name out."""

import runpy
from pathlib import Path

import outpace as op

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "write_api.py"


def test_the_page_is_what_the_docstrings_give() -> None:
    script = runpy.run_path(str(SCRIPT))
    page = script["PAGE"].read_text(encoding="utf-8")
    assert page == script["written"](), f"run {SCRIPT.name} and look at what it changed"
    assert all(f"### `op.{name}`\n" in page for name in op.__all__)
