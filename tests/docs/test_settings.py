"""The reference names every setting of every reorderer, with its default."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from outpace.engine.order.choose import ORDERS
from outpace.pattern.disorder import Disorder

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "query.md"


def documented() -> dict[str, dict[str, str]]:
    """Return the settings of the table, by kind, with what it says of their defaults."""
    text = PAGE.read_text(encoding="utf-8")
    rows = text.split("| of | setting | by default | meaning |\n", 1)[1].splitlines()[1:]
    found: dict[str, dict[str, str]] = {}
    kinds: list[str] = []
    for row in rows:
        if not row.startswith("|"):
            break
        of, names, default, _ = (cell.strip() for cell in row.strip("|").split("|"))
        kinds = re.findall(r"op\.(\w+)", of) or kinds
        for kind in kinds:
            found.setdefault(kind, {}).update(dict.fromkeys(re.findall(r"`(\w+)`", names), default))
    return found


@pytest.mark.parametrize("kind", ORDERS)
def test_the_reference_names_every_setting(kind: type[Disorder]) -> None:
    common = {one.name for one in dataclasses.fields(Disorder)}
    own = {one.name: one for one in dataclasses.fields(kind) if one.name not in common}
    known = documented().get(kind.__name__, {})
    assert known.keys() == own.keys()
    for name, default in known.items():
        if isinstance(own[name].default, float):
            assert f"{own[name].default:g}" in default.split(", ")
