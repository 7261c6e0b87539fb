"""Plain text: tables with columns as wide as their longest cell, and numbers of things."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  "
) -> list[str]:
    """Return the lines of a table; a column that is empty in all rows is left out.

    Examples
    --------
    >>> text_table(["row", "note", "ts"], [["1", "", "10:00"], ["20", "", "10:01"]])
    ['  row  ts', '  1    10:00', '  20   10:01']
    """
    kept = [index for index in range(len(header)) if any(row[index] for row in rows)]
    cells = [[row[index] for index in kept] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(kept))]
    return [
        (indent + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))).rstrip()
        for row in cells
    ]


def counted(number: int, noun: str) -> str:
    """Return how many things there are."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
