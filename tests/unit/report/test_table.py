"""Tables on narrow terminals: no number is cut or broken, whatever the width."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.box import HEAVY_HEAD
from rich.console import Console
from rich.table import Table

from outpace.report.table import FittedTable


@given(
    st.lists(st.booleans(), min_size=2, max_size=9),
    st.integers(40, 90),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_every_number_is_shown_whole(
    numeric: list[bool], width: int, boxed: bool, random: object
) -> None:
    choose = random.choice  # type: ignore[attr-defined]  # of random.Random
    table = Table(title="table", box=HEAVY_HEAD if boxed else None, padding=(0, 1))
    shown = []
    for index, number in enumerate(numeric):
        table.add_column(f"head{index}", justify="right" if number else "left", no_wrap=number)
    for row in range(3):
        cells = []
        for index, number in enumerate(numeric):
            unique = f"{row + 1}{index + 1}7"
            if number:
                cells.append(choose([unique, f"{unique},000.55", f"{unique},123,456"]))
                shown.append(cells[-1])
            else:
                cells.append(choose(["word", "some long words that fold", "x" * 50]))
        table.add_row(*cells)
    text = io.StringIO()
    Console(file=text, width=width).print(FittedTable(table))
    lines = text.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    found = [word for line in lines for word in line.replace("│", " ").split()]
    assert all(number in found for number in shown)
    assert "…" not in text.getvalue()
    assert text.getvalue().count("table") == 1
